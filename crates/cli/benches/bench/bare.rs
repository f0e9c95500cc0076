//! The loops without a device: what the work itself costs.

use std::time::Duration;

use anyhow::Result;
use unvme::{DmaBuf, Region};

use crate::load::{PAGE_BYTES, Random};

/// Operations between two looks at the clock.
const OPERATIONS_PER_LOOK: u64 = 4096;

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
