//! A key-value device, and the loop an application would run on it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use unvme::{
    ControllerOptions, Device, DmaBuf, KvKey, KvQueue, Nsid, Payload, QueueOptions, Status, open_function,
};
use unvme_ssd::{CHUNK_BYTES, MemoryStore, Ssd, SsdConfig};

use crate::load::Random;
use crate::pairs::{Effort, rate};

/// Bytes of every key.
pub(crate) const KEY_BYTES: usize = 16;
/// Commands outstanding.
pub(crate) const DEPTH: u16 = 64;
/// Commands between two looks at the clock.
const COMMANDS_PER_LOOK: u64 = 4096;

/// The key of pair `id`: the same in the peers' `pairs.h`. Eight bytes that look random, so that the order of
/// keys has nothing to do with that of the numbers, and the number itself.
#[inline(always)]
pub(crate) fn key_of(id: u64) -> [u8; KEY_BYTES] {
    let mixed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15).swap_bytes();
    (u128::from(id) << 64 | u128::from(mixed)).to_le_bytes()
}

/// Each number below `pairs` once, in an order that jumps; the same in `pairs.h`.
#[inline(always)]
pub(crate) fn shuffled(index: u64, pairs: u64) -> u64 {
    ((u128::from(index) * 2_654_435_761 + 12_345) % u128::from(pairs)) as u64
}

/// Pairs of the rows.
pub(crate) fn pairs(effort: &Effort) -> u64 {
    if effort.smoke { 20_000 } else { 1_000_000 }
}

/// A device that is half full with that many pairs.
pub(crate) struct KvDevice {
    pub(crate) device: Device,
    pub(crate) ssd: Arc<Ssd>,
    pub(crate) pairs: u64,
    pub(crate) value_bytes: usize,
}

impl KvDevice {
    /// An empty device on memory media.
    pub(crate) fn empty(pairs: u64, value_bytes: usize) -> Result<Self> {
        let bytes = capacity(pairs, value_bytes);
        let ssd = Ssd::new(SsdConfig::kv(bytes), Box::new(MemoryStore::new(bytes)?))?;
        let function: Arc<Ssd> = Arc::clone(&ssd);
        let device = open_function("bench device", function, &ControllerOptions::default())?;
        Ok(Self { device, ssd, pairs, value_bytes })
    }

    /// A device with every pair.
    pub(crate) fn filled(pairs: u64, value_bytes: usize) -> Result<Self> {
        let made = Self::empty(pairs, value_bytes)?;
        KvLoad::new(&made, DEPTH, Kind::Store)?.run_fill(pairs)?;
        Ok(made)
    }
}

/// Media that `pairs` fill by half.
pub(crate) fn capacity(pairs: u64, value_bytes: usize) -> u64 {
    (pairs * (value_bytes as u64 + 128) * 2).next_multiple_of(CHUNK_BYTES).max(64 << 20)
}

/// What a load does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Retrieve,
    Store,
}

/// Random retrieves or stores, as many outstanding as there are buffers.
#[derive(Debug)]
pub(crate) struct KvLoad {
    queue: KvQueue,
    free: Vec<DmaBuf>,
    random: Random,
    pairs: u64,
    value_bytes: usize,
    kind: Kind,
}

impl KvLoad {
    pub(crate) fn new(on: &KvDevice, depth: u16, kind: Kind) -> Result<Self> {
        Self::on(&on.device, (on.pairs, on.value_bytes), depth, kind)
    }

    /// On a device with that many pairs, whose values have that many bytes.
    pub(crate) fn on(device: &Device, content: (u64, usize), depth: u16, kind: Kind) -> Result<Self> {
        let (pairs, value_bytes) = content;
        let kv = device.kv(Nsid(1))?;
        let queue = kv.queue(&QueueOptions { depth, ..QueueOptions::default() })?;
        let free = (0..depth)
            .map(|index| {
                let mut buf = queue.alloc(value_bytes.max(4096))?;
                buf.fill(index as u8 | 1);
                Ok(buf)
            })
            .collect::<Result<_>>()?;
        Ok(Self { queue, free, random: Random::new(u64::from(depth)), pairs, value_bytes, kind })
    }

    /// Runs for `side` and returns commands per second.
    pub(crate) fn rate(&mut self, side: Duration) -> Result<f64> {
        rate(side, || self.run(COMMANDS_PER_LOOK))
    }

    /// Completes at least `commands` commands on random pairs; returns how many.
    pub(crate) fn run(&mut self, commands: u64) -> Result<u64> {
        let mut done = 0;
        while done < commands {
            while let Some(buf) = self.free.pop() {
                let id = self.random.below(self.pairs);
                self.submit(id, buf)?;
            }
            done += self.collect()?;
        }
        Ok(done)
    }

    /// Stores every pair once, in an order that jumps.
    pub(crate) fn run_fill(&mut self, pairs: u64) -> Result<()> {
        let mut next = 0;
        while next < pairs || self.queue.outstanding() > 0 {
            while next < pairs
                && let Some(mut buf) = self.free.pop()
            {
                let id = shuffled(next, pairs);
                buf.write(0, &id.to_le_bytes());
                self.submit(id, buf)?;
                next += 1;
            }
            self.collect()?;
        }
        Ok(())
    }

    #[inline(always)]
    fn submit(&mut self, id: u64, buf: DmaBuf) -> Result<()> {
        let key = key_of(id);
        let payload = Payload { buf, bytes: self.value_bytes };
        match self.kind {
            Kind::Retrieve => self.queue.retrieve(KvKey::new(&key), payload, id)?,
            Kind::Store => self.queue.store(KvKey::new(&key), payload, id)?,
        }
        Ok(())
    }

    #[inline(always)]
    fn collect(&mut self) -> Result<u64> {
        self.queue.ring()?;
        let mut done = 0;
        for completion in self.queue.poll(usize::MAX) {
            if completion.status != Status::SUCCESS {
                return Err(failed(completion.token, completion.status));
            }
            if let Some(buf) = completion.buf {
                self.free.push(buf);
            }
            done += 1;
        }
        Ok(done)
    }
}

// As in `load`: a message put together in the loop would keep every completion in memory.
#[cold]
#[inline(never)]
fn failed(id: u64, status: Status) -> anyhow::Error {
    anyhow::anyhow!("pair {id}: {status}")
}
