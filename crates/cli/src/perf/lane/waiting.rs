//! Waiting on the queue of a lane.

use std::time::Duration;

use anyhow::{Context, Result};
use unvme::EventFd;

use super::Lane;
use crate::perf::rest;

impl rest::Queue for Lane<'_> {
    fn outstanding(&mut self) -> usize {
        self.queue().map_or(0, |queue| queue.outstanding())
    }

    fn wait(&mut self, limit: Duration) -> Result<()> {
        let device = self.generator.device;
        match self.queue() {
            Some(queue) => queue.wait(limit).map(|_| ()).with_context(|| device.to_owned()),
            None => Ok(()),
        }
    }

    fn interrupt(&mut self) -> Option<&EventFd> {
        self.queue()?.interrupt()
    }

    fn is_host_driven(&mut self) -> bool {
        self.queue().is_some_and(|queue| queue.advancer().is_some())
    }
}
