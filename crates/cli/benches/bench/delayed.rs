//! A device that takes its time: the virtual SSD, with every command answered no sooner than a flash drive
//! would.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use unvme::{BarLayout, BusError, Clock, Dma, DmaAccess, EventFd, Function, Region};
use unvme_ssd::Ssd;

/// Queues it keeps times for.
const LANES: usize = 65;

/// A device that looks at a queue only when its doorbell was rung a while ago. For one command at a time.
pub(crate) struct Delayed {
    inner: Arc<Ssd>,
    doorbells: Region,
    delay: Duration,
    start: Instant,
    lanes: Vec<Lane>,
}

/// What was last seen of a queue.
#[derive(Default)]
struct Lane {
    tail: AtomicU32,
    /// Nanoseconds since the start at which the tail was first seen.
    since: AtomicU64,
}

impl Delayed {
    pub(crate) fn new(inner: Arc<Ssd>, delay: Duration) -> Result<Arc<Self>> {
        let layout = inner.bar(0)?.context("an NVMe controller has BAR0")?;
        let doorbells = layout.windows.first().context("its doorbells are memory")?.region.clone();
        let lanes = (0..LANES).map(|_| Lane::default()).collect();
        Ok(Arc::new(Self { inner, doorbells, delay, start: Instant::now(), lanes }))
    }

    /// True when the queue has waited long enough.
    fn is_due(&self, queue: u16) -> bool {
        let Some(lane) = self.lanes.get(usize::from(queue)).filter(|_| queue != 0) else { return true };
        let now = self.start.elapsed().as_nanos() as u64;
        // Acquire: pairs with the host's Release store of the doorbell.
        let tail = self.doorbells.load_u32(usize::from(queue) * 8, Ordering::Acquire);
        if lane.tail.swap(tail, Ordering::Relaxed) != tail {
            lane.since.store(now, Ordering::Relaxed);
        }
        now - lane.since.load(Ordering::Relaxed) >= self.delay.as_nanos() as u64
    }
}

impl Dma for Delayed {
    fn dma_map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BusError> {
        self.inner.dma_map(iova, region, access)
    }

    fn dma_unmap(&self, iova: u64, length: u64) -> Result<(), BusError> {
        self.inner.dma_unmap(iova, length)
    }
}

impl Function for Delayed {
    fn config_read(&self, offset: usize, out: &mut [u8]) -> Result<(), BusError> {
        self.inner.config_read(offset, out)
    }

    fn config_write(&self, offset: usize, data: &[u8]) -> Result<(), BusError> {
        self.inner.config_write(offset, data)
    }

    fn bar(&self, index: usize) -> Result<Option<BarLayout>, BusError> {
        self.inner.bar(index)
    }

    fn bar_read(&self, index: usize, offset: u64, out: &mut [u8]) -> Result<(), BusError> {
        self.inner.bar_read(index, offset, out)
    }

    fn bar_write(&self, index: usize, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.inner.bar_write(index, offset, data)
    }

    fn vectors(&self) -> u16 {
        self.inner.vectors()
    }

    fn set_vector(&self, vector: u16, event: Option<EventFd>) -> Result<(), BusError> {
        self.inner.set_vector(vector, event)
    }

    fn reset(&self) -> Result<(), BusError> {
        self.inner.reset()
    }

    fn is_host_driven(&self) -> bool {
        true
    }

    fn advance(&self, lane: Option<u16>, clock: &Clock) -> usize {
        match lane {
            Some(queue) if !self.is_due(queue) => 0,
            lane => self.inner.advance(lane, clock),
        }
    }
}
