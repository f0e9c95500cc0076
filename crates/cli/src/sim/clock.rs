//! Virtual time: a host that keeps a number of commands outstanding, on a device that takes as long as its
//! model says.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use unvme_flash::PAGE_BYTES;
use unvme_flash::timing::{Command, CommandKind, NotedOp, Timing};

use crate::perf::histogram;

/// The host's clock. Each page is a command of its own; the next one is submitted when one has completed.
pub(super) struct VirtualClock {
    timing: Timing,
    depth: usize,
    /// When the outstanding commands complete.
    outstanding: BinaryHeap<Reverse<u64>>,
    now: u64,
    /// Latencies of writes in nanoseconds.
    pub(super) latencies: Histogram<u64>,
}

impl VirtualClock {
    pub(super) fn new(timing: Timing, depth: usize) -> Result<Self> {
        let latencies = histogram().context("make a histogram")?;
        Ok(Self { timing, depth, outstanding: BinaryHeap::new(), now: 0, latencies })
    }

    /// Nanoseconds since the start.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// The device works on its own account from now on, and the host waits until that is done.
    pub(super) fn work(&mut self, ops: &[NotedOp]) {
        let command = Command { kind: CommandKind::Background, bytes: 0, durable: false, ops };
        self.now = self.now.max(self.timing.schedule(self.now, &command));
    }

    /// The host does nothing until then; everything that is outstanding has completed by itself.
    pub(super) fn wait_until(&mut self, end: u64) {
        self.now = self.now.max(end);
        self.outstanding.retain(|Reverse(due)| *due > end);
    }

    /// A page is written by a command that comes as soon as the host may send it.
    pub(super) fn write(&mut self, ops: &[NotedOp]) {
        if self.outstanding.len() >= self.depth
            && let Some(Reverse(first)) = self.outstanding.pop()
        {
            self.now = self.now.max(first);
        }
        let command = Command { kind: CommandKind::Write, bytes: PAGE_BYTES, durable: false, ops };
        let due = self.timing.schedule(self.now, &command);
        self.outstanding.push(Reverse(due));
        self.latencies.saturating_record(due - self.now);
    }
}
