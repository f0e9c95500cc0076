//! A device, and the loop an application would run on it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use unvme::{
    BlockQueue, BlockRange, ControllerOptions, Device, DmaBuf, Lba, Nsid, QueueOptions, Region, Status,
    open_function,
};
use unvme_ssd::{MemoryStore, Ssd, SsdConfig, Store};

/// Data of every command.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Commands between two looks at the clock.
const COMMANDS_PER_LOOK: u64 = 4096;

/// xorshift64*: a few cycles, the same on both sides of every ratio.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `end`, which is below 2^32.
    #[inline(always)]
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) * end) >> 32
    }
}

/// A device on memory media, full of data, and that memory.
pub(crate) fn memory_device(bytes: u64) -> Result<(Device, Region)> {
    let store = MemoryStore::new(bytes)?;
    let memory = store.memory().context("a memory store has memory")?.clone();
    let device = device(bytes, Box::new(store))?;
    fill(&device, bytes)?;
    Ok((device, memory))
}

/// A device that moves no data.
pub(crate) fn null_device(bytes: u64) -> Result<Device> {
    device(bytes, Box::new(MemoryStore::null(bytes)))
}

fn device(bytes: u64, store: Box<dyn Store>) -> Result<Device> {
    device_of(SsdConfig::block(bytes, PAGE_BYTES as u32), store)
}

/// A device in this process.
pub(crate) fn device_of(config: SsdConfig, store: Box<dyn Store>) -> Result<Device> {
    let ssd: Arc<Ssd> = Ssd::new(config, store)?;
    Ok(open_function("bench device", ssd, &ControllerOptions::default())?)
}

/// Writes every block: memory that was never written is not there.
pub(crate) fn fill(device: &Device, bytes: u64) -> Result<()> {
    const STEP: usize = 2 << 20;
    let mut block = device.block(Nsid(1))?;
    let mut random = Random::new(7);
    let data: Vec<u8> = (0..STEP).map(|_| random.below(256) as u8).collect();
    for offset in (0..bytes).step_by(STEP) {
        block.write_at(offset / u64::from(block.block_bytes()), &data)?;
    }
    Ok(())
}

/// Random reads or writes of pages, as many outstanding as there are buffers.
#[derive(Debug)]
pub(crate) struct Load {
    queue: BlockQueue,
    /// Buffers that are not with the device.
    free: Vec<DmaBuf>,
    random: Random,
    pages: u64,
    page_blocks: u32,
    write: bool,
}

impl Load {
    pub(crate) fn new(device: &Device, depth: u16, write: bool) -> Result<Self> {
        Self::of_bytes(device, depth, write, PAGE_BYTES)
    }

    /// The same load in pages of another size.
    pub(crate) fn of_bytes(device: &Device, depth: u16, write: bool, bytes: usize) -> Result<Self> {
        let block = device.block(Nsid(1))?;
        let queue = block.queue(&QueueOptions { depth, ..QueueOptions::default() })?;
        let free = buffers(&queue, depth, bytes)?;
        let pages = block.bytes() / bytes as u64;
        let page_blocks = bytes as u32 / block.block_bytes();
        Ok(Self { queue, free, random: Random::new(u64::from(depth)), pages, page_blocks, write })
    }

    /// The same load on the first pages of the device alone.
    pub(crate) fn within(self, pages: u64) -> Self {
        Self { pages: self.pages.min(pages), ..self }
    }

    /// Buffers like those of the load, for its bare counterpart.
    pub(crate) fn more_buffers(&self, count: u16) -> Result<Vec<DmaBuf>> {
        buffers(&self.queue, count, PAGE_BYTES)
    }

    /// Runs for `side` and returns commands per second.
    pub(crate) fn rate(&mut self, side: Duration) -> Result<f64> {
        crate::pairs::rate(side, || self.run(COMMANDS_PER_LOOK))
    }

    /// Completes at least `commands` commands; returns how many.
    pub(crate) fn run(&mut self, commands: u64) -> Result<u64> {
        let mut done = 0;
        while done < commands {
            while let Some(buf) = self.free.pop() {
                let page = self.random.below(self.pages);
                let range = BlockRange::new(Lba(page * u64::from(self.page_blocks)), self.page_blocks);
                if self.write {
                    self.queue.write(range, buf, page)?
                } else {
                    self.queue.read(range, buf, page)?
                }
            }
            self.queue.ring()?;
            for completion in self.queue.poll(usize::MAX) {
                if completion.status != Status::SUCCESS {
                    return Err(failed(completion.token, completion.status));
                }
                if let Some(buf) = completion.buf {
                    self.free.push(buf);
                }
                done += 1;
            }
        }
        Ok(done)
    }
}

// Takes its values by value and out of line: a message put together in the loop would keep every completion
// in memory.
#[cold]
#[inline(never)]
fn failed(page: u64, status: Status) -> anyhow::Error {
    anyhow::anyhow!("page {page}: {status}")
}

fn buffers(queue: &BlockQueue, count: u16, bytes: usize) -> Result<Vec<DmaBuf>> {
    (0..count)
        .map(|index| {
            let mut buf = queue.alloc(bytes)?;
            buf.fill(index as u8 | 1);
            Ok(buf)
        })
        .collect()
}
