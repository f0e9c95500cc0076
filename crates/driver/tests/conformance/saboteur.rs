//! A function that passes everything on to another one, except what it is told not to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use unvme_bus::{BarLayout, BusError, Clock, Dma, DmaAccess, EventFd, Function, Region};
use unvme_spec::regs::{AMS_WEIGHTED, Cc, offset};
use unvme_spec::{Cid, Cqe, Qid, Sqe, Status, admin};

const CLASS: usize = 0x09;
const COMMAND: usize = 0x04;
const BUS_MASTER: u8 = 1 << 2;

/// Queues that are not served, whatever their doorbells say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Swallow {
    Nothing,
    IoQueues,
    AllQueues,
}

pub(crate) struct Saboteur {
    inner: Arc<dyn Function>,
    /// Read while the device works, so that a change waits for it.
    swallow: RwLock<Swallow>,
    /// CSTS never changes again.
    pub(crate) freeze_status: AtomicBool,
    /// CSTS.RDY is never 1.
    pub(crate) never_ready: AtomicBool,
    /// The controller cannot do the weighted round robin that it offers: it reports a fatal status.
    pub(crate) no_weights: AtomicBool,
    /// CAP.TO promises readiness within 500 ms, CRTO within a second.
    pub(crate) hurry: AtomicBool,
    /// The class code is that of an Ethernet controller.
    pub(crate) disguise: AtomicBool,
    /// The host has announced a normal shutdown (CC.SHN 01b).
    pub(crate) shutdown_seen: AtomicBool,
    /// Bus mastering was switched on while the controller was enabled.
    pub(crate) mastered_early: AtomicBool,
    /// Most interrupt vectors to admit to.
    pub(crate) vectors_max: AtomicU16,
    events: Mutex<BTreeMap<u16, EventFd>>,
    frozen: Mutex<Option<[u8; 4]>>,
    admin_sq: AtomicU64,
    memory: Mutex<Vec<(u64, Region)>>,
}

impl Saboteur {
    pub(crate) fn new(inner: Arc<dyn Function>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            swallow: RwLock::new(Swallow::Nothing),
            freeze_status: AtomicBool::new(false),
            no_weights: AtomicBool::new(false),
            never_ready: AtomicBool::new(false),
            hurry: AtomicBool::new(false),
            disguise: AtomicBool::new(false),
            shutdown_seen: AtomicBool::new(false),
            mastered_early: AtomicBool::new(false),
            vectors_max: AtomicU16::new(u16::MAX),
            events: Mutex::default(),
            frozen: Mutex::new(None),
            admin_sq: AtomicU64::new(0),
            memory: Mutex::default(),
        })
    }

    /// When this returns, the device does not work on queues that are swallowed from now on.
    pub(crate) fn swallow(&self, what: Swallow) {
        *self.swallow.write().unwrap() = what;
    }

    /// Where the device's interrupts of `vector` go.
    pub(crate) fn event(&self, vector: u16) -> Option<EventFd> {
        self.events.lock().unwrap().get(&vector).cloned()
    }

    fn host_memory(&self, iova: u64, bytes: usize) -> Region {
        let memory = self.memory.lock().unwrap();
        let (start, region) = memory
            .iter()
            .find(|(start, region)| (*start..start + region.len() as u64).contains(&iova))
            .expect("the address is mapped");
        region.slice((iova - start) as usize, bytes)
    }

    /// The admin commands in the host's submission queue, whether or not the device has taken them yet.
    pub(crate) fn admin_commands(&self) -> Vec<admin::Command> {
        let queue = self.host_memory(self.admin_sq.load(Ordering::Relaxed), 32 * 64);
        (0..32).map(|i| admin::Command::parse(&entry(&queue, i))).collect()
    }

    /// Writes an entry into the completion queue `qid` that the device knows nothing of.
    pub(crate) fn forge(&self, qid: Qid, index: usize, cid: Cid, phase: bool) {
        let queue = self.host_memory(self.admin_sq.load(Ordering::Relaxed), 32 * 64);
        let base = (0..32)
            .map(|i| entry(&queue, i))
            .find(|sqe| matches!(admin::Command::parse(sqe), admin::Command::CreateIoCq(c) if c.qid == qid))
            .expect("the queue has been created by one of the last commands")
            .dptr[0];
        let mut forged = Cqe { cid: cid.0, sq_id: qid.0, ..Cqe::default() };
        forged.set_status(Status::SUCCESS, phase);
        let words: [u64; 2] = zerocopy::transmute!(forged);
        let place = self.host_memory(base + index as u64 * 16, 16);
        place.store_u64(0, words[0], Ordering::Relaxed);
        place.store_u64(8, words[1], Ordering::Release);
    }
}

fn entry(queue: &Region, index: usize) -> Sqe {
    zerocopy::transmute!(queue.read_words::<8>(index * 64))
}

impl Dma for Saboteur {
    fn dma_map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BusError> {
        self.inner.dma_map(iova, region, access)?;
        self.memory.lock().unwrap().push((iova, region.clone()));
        Ok(())
    }

    fn dma_unmap(&self, iova: u64, length: u64) -> Result<(), BusError> {
        self.memory.lock().unwrap().retain(|(start, _)| !(iova..iova + length).contains(start));
        self.inner.dma_unmap(iova, length)
    }
}

impl Function for Saboteur {
    fn config_read(&self, offset: usize, out: &mut [u8]) -> Result<(), BusError> {
        self.inner.config_read(offset, out)?;
        if self.disguise.load(Ordering::Relaxed) && offset == CLASS {
            out.copy_from_slice(&[0x00, 0x00, 0x02]);
        }
        Ok(())
    }

    fn config_write(&self, offset: usize, data: &[u8]) -> Result<(), BusError> {
        if offset == COMMAND && data.first().is_some_and(|low| low & BUS_MASTER != 0) {
            let (mut before, mut cc) = ([0; 2], [0; 4]);
            self.inner.config_read(COMMAND, &mut before)?;
            self.inner.bar_read(0, offset::CC, &mut cc)?;
            if before[0] & BUS_MASTER == 0 && cc[0] & 1 != 0 {
                self.mastered_early.store(true, Ordering::Relaxed);
            }
        }
        self.inner.config_write(offset, data)
    }

    fn bar(&self, index: usize) -> Result<Option<BarLayout>, BusError> {
        self.inner.bar(index)
    }

    fn bar_read(&self, index: usize, at: u64, out: &mut [u8]) -> Result<(), BusError> {
        self.inner.bar_read(index, at, out)?;
        if self.hurry.load(Ordering::Relaxed) {
            match (at, &mut *out) {
                (offset::CAP, [_, _, _, timeout, ..]) => *timeout = 1,
                (offset::CRTO, [media_low, media_high, ..]) => (*media_low, *media_high) = (2, 0),
                _ => {}
            }
        }
        if at == offset::CSTS && out.len() == 4 {
            if self.freeze_status.load(Ordering::Relaxed) {
                let mut frozen = self.frozen.lock().unwrap();
                let value = *frozen.get_or_insert([out[0], out[1], out[2], out[3]]);
                out.copy_from_slice(&value);
            }
            if self.never_ready.load(Ordering::Relaxed) {
                out[0] &= !1;
            }
        }
        Ok(())
    }

    fn bar_write(&self, index: usize, at: u64, data: &[u8]) -> Result<(), BusError> {
        if at == offset::CC
            && self.no_weights.load(Ordering::Relaxed)
            && let Ok(bytes) = data.try_into()
            && Cc::from_bits(u32::from_le_bytes(bytes)).ams() == AMS_WEIGHTED
        {
            // A mechanism that there is not.
            let wrong = Cc::from_bits(u32::from_le_bytes(bytes)).with_ams(0b111);
            return self.inner.bar_write(index, at, &wrong.into_bits().to_le_bytes());
        }
        if at == offset::ASQ
            && let Ok(bytes) = data.try_into()
        {
            self.admin_sq.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        // CC.SHN is bits 15:14.
        if at == offset::CC && data.len() == 4 && data[1] >> 6 == 1 {
            self.shutdown_seen.store(true, Ordering::Relaxed);
        }
        self.inner.bar_write(index, at, data)
    }

    fn vectors(&self) -> u16 {
        self.inner.vectors().min(self.vectors_max.load(Ordering::Relaxed))
    }

    fn set_vector(&self, vector: u16, event: Option<EventFd>) -> Result<(), BusError> {
        let mut events = self.events.lock().unwrap();
        match &event {
            Some(event) => events.insert(vector, event.clone()),
            None => events.remove(&vector),
        };
        self.inner.set_vector(vector, event)
    }

    fn reset(&self) -> Result<(), BusError> {
        self.inner.reset()
    }

    fn stopped_by(&self) -> Option<String> {
        self.inner.stopped_by()
    }

    fn is_host_driven(&self) -> bool {
        self.inner.is_host_driven()
    }

    fn advance(&self, lane: Option<u16>, clock: &Clock) -> usize {
        let swallow = self.swallow.read().unwrap();
        match (*swallow, lane) {
            (Swallow::Nothing, _) => self.inner.advance(lane, clock),
            (Swallow::IoQueues, None | Some(0)) => self.inner.advance(Some(0), clock),
            (Swallow::IoQueues, Some(_)) | (Swallow::AllQueues, _) => 0,
        }
    }
}
