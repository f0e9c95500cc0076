//! The loops without a device: what the work itself costs.

use std::time::Duration;

use anyhow::Result;
use unvme::{DmaBuf, Region};

use crate::load::{PAGE_BYTES, Random};

/// Operations between two looks at the clock.
const OPERATIONS_PER_LOOK: u64 = 4096;
const SQE_WORDS: usize = 8;
const CQE_WORDS: usize = 2;
const SQE_BYTES: usize = SQE_WORDS * 8;
const CQE_BYTES: usize = CQE_WORDS * 8;

/// Copies pages between random places of a device's media memory and buffers, one after the other, by plain
/// memmove.
#[derive(Debug)]
pub(crate) struct CopyLoop {
    memory: Region,
    bufs: Vec<DmaBuf>,
    random: Random,
    pages: u64,
    write: bool,
}

impl CopyLoop {
    pub(crate) fn new(memory: Region, bufs: Vec<DmaBuf>, write: bool) -> Self {
        let pages = (memory.len() / PAGE_BYTES) as u64;
        Self { memory, random: Random::new(bufs.len() as u64), bufs, pages, write }
    }

    /// Runs for `side` and returns pages per second.
    pub(crate) fn rate(&mut self, side: Duration) -> Result<f64> {
        crate::pairs::rate(side, || Ok(self.run(OPERATIONS_PER_LOOK)))
    }

    fn run(&mut self, pages: u64) -> u64 {
        let mut done = 0;
        while done < pages {
            for buf in &self.bufs {
                let offset = self.random.below(self.pages) as usize * PAGE_BYTES;
                if self.write {
                    buf.region().copy_to(0, &self.memory, offset, PAGE_BYTES);
                } else {
                    self.memory.copy_to(offset, buf.region(), 0, PAGE_BYTES);
                }
            }
            done += self.bufs.len() as u64;
        }
        done
    }
}

/// Writes and reads the entries of a queue pair in memory of its own, a batch at a time: submission entries
/// with the fields of a read, each read by what stands for the device, then completion entries, each read by
/// what stands for the host.
#[derive(Debug)]
pub(crate) struct RingLoop {
    submissions: Region,
    completions: Region,
    depth: usize,
    random: Random,
    pages: u64,
    /// Turns around the rings: its low bit is the phase.
    turn: u64,
    /// Keeps what was read from being optimized away.
    pub(crate) sum: u64,
}

impl RingLoop {
    pub(crate) fn new(depth: u16, pages: u64) -> Result<Self> {
        let depth = usize::from(depth);
        Ok(Self {
            submissions: Region::shared("bench-sq", depth * SQE_BYTES)?,
            completions: Region::shared("bench-cq", depth * CQE_BYTES)?,
            depth,
            random: Random::new(depth as u64),
            pages,
            turn: 0,
            sum: 0,
        })
    }

    /// Runs for `side` and returns entry pairs per second.
    pub(crate) fn rate(&mut self, side: Duration) -> Result<f64> {
        crate::pairs::rate(side, || Ok(self.run(OPERATIONS_PER_LOOK)))
    }

    fn run(&mut self, entries: u64) -> u64 {
        const READ: u64 = 0x02;
        let mut done = 0;
        while done < entries {
            self.turn += 1;
            let phase = self.turn & 1;
            for slot in 0..self.depth {
                let page = self.random.below(self.pages);
                let iova = 0x1_0000_0000 + (slot * PAGE_BYTES) as u64;
                let sqe = [READ | (slot as u64) << 16 | 1 << 32, 0, 0, iova, 0, page, 0, 0];
                self.submissions.write_words::<SQE_WORDS>(slot * SQE_BYTES, sqe);
            }
            for slot in 0..self.depth {
                let sqe = self.submissions.read_words::<SQE_WORDS>(slot * SQE_BYTES);
                let cid = (sqe[0] >> 16) & 0xffff;
                self.sum = self.sum.wrapping_add(sqe.iter().fold(0, |all, word| all ^ word));
                let cqe = [0, slot as u64 | 1 << 16 | cid << 32 | phase << 48];
                self.completions.write_words::<CQE_WORDS>(slot * CQE_BYTES, cqe);
            }
            for slot in 0..self.depth {
                let cqe = self.completions.read_words::<CQE_WORDS>(slot * CQE_BYTES);
                self.sum = self.sum.wrapping_add(cqe[0] ^ cqe[1]);
            }
            done += self.depth as u64;
        }
        done
    }
}
