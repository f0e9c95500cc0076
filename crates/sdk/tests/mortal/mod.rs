//! A device that dies when it is told to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use unvme::{Clock, EventFd, Function, Region};
use unvme_bus::{BarLayout, BusError, Dma, DmaAccess};
use unvme_spec::regs::offset;
use unvme_ssd::{MemoryStore, Ssd, SsdConfig};

/// A device that can be told to pause, to work on nothing any more, and to be gone.
pub(crate) struct Mortal {
    ssd: Arc<Ssd>,
    /// Read while the device works, so that a change waits for it.
    paused: RwLock<bool>,
    failed: AtomicBool,
    gone: AtomicBool,
}

impl Mortal {
    pub(crate) fn new() -> Arc<Self> {
        let store = Box::new(MemoryStore::new(64 << 20).unwrap());
        let ssd = Ssd::new(SsdConfig::block(64 << 20, 512), store).unwrap();
        Arc::new(Self {
            ssd,
            paused: RwLock::new(false),
            failed: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        })
    }

    /// When this returns, the device works on no queue, and is well otherwise, until it is told to resume.
    pub(crate) fn pause(&self) {
        *self.paused.write().unwrap() = true;
    }

    #[allow(dead_code, reason = "not all tests let it")]
    pub(crate) fn resume(&self) {
        *self.paused.write().unwrap() = false;
    }

    /// When this returns, the device works on no queue, and never will.
    pub(crate) fn silence(&self) {
        self.failed.store(true, Ordering::Release);
        self.pause();
    }

    pub(crate) fn pull(&self) {
        self.silence();
        self.gone.store(true, Ordering::Release);
    }

    fn is_pulled(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

impl Dma for Mortal {
    fn dma_map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BusError> {
        self.ssd.dma_map(iova, region, access)
    }

    fn dma_unmap(&self, iova: u64, length: u64) -> Result<(), BusError> {
        self.ssd.dma_unmap(iova, length)
    }
}

impl Function for Mortal {
    fn config_read(&self, offset: usize, out: &mut [u8]) -> Result<(), BusError> {
        self.ssd.config_read(offset, out)
    }

    fn config_write(&self, offset: usize, data: &[u8]) -> Result<(), BusError> {
        self.ssd.config_write(offset, data)
    }

    fn bar(&self, index: usize) -> Result<Option<BarLayout>, BusError> {
        self.ssd.bar(index)
    }

    fn bar_read(&self, index: usize, at: u64, out: &mut [u8]) -> Result<(), BusError> {
        self.ssd.bar_read(index, at, out)?;
        if self.is_pulled() {
            // A function that is not there reads as all ones.
            out.fill(0xff);
        } else if at == offset::CSTS && self.failed.load(Ordering::Acquire) {
            // A reset does not bring it back: CSTS.CFS.
            out[0] |= 2;
        }
        Ok(())
    }

    fn bar_write(&self, index: usize, at: u64, data: &[u8]) -> Result<(), BusError> {
        self.ssd.bar_write(index, at, data)
    }

    fn vectors(&self) -> u16 {
        self.ssd.vectors()
    }

    fn set_vector(&self, vector: u16, event: Option<EventFd>) -> Result<(), BusError> {
        self.ssd.set_vector(vector, event)
    }

    fn reset(&self) -> Result<(), BusError> {
        self.ssd.reset()
    }

    fn is_host_driven(&self) -> bool {
        true
    }

    fn advance(&self, lane: Option<u16>, clock: &Clock) -> usize {
        let paused = self.paused.read().unwrap();
        if *paused { 0 } else { self.ssd.advance(lane, clock) }
    }

    fn is_gone(&self) -> bool {
        self.is_pulled()
    }
}
