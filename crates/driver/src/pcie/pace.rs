//! Waiting for a device: bounded, and without keeping a device from its work.

use std::time::Duration;

use unvme_bus::EventFd;

use super::device::PcieDevice;
use crate::Error;

/// Rounds of looking before the first sleep.
const SPINS: u32 = 200;
/// Longest sleep between two looks.
const SLEEP_MAX: Duration = Duration::from_millis(1);
/// One wait with a limit.
pub(crate) struct Pace<'a> {
    device: &'a PcieDevice,
    started: u64,
    limit: Duration,
    rounds: u32,
}

impl<'a> Pace<'a> {
    pub(crate) fn new(device: &'a PcieDevice, limit: Duration) -> Self {
        Self { device, started: device.clock().now(), limit, rounds: 0 }
    }

    /// Time waited so far.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.device.clock().now().saturating_sub(self.started))
    }

    pub(crate) fn is_expired(&self) -> bool {
        self.elapsed() >= self.limit
    }

    pub(crate) fn timeout(&self, what: impl Into<String>) -> Error {
        Error::Timeout { what: what.into(), milliseconds: self.limit.as_millis() as u64 }
    }

    /// Looks again soon: at once, or after a sleep that `interrupt` cuts short. A virtual clock moves, as
    /// time does for whoever waits.
    pub(crate) fn pause(&mut self, interrupt: Option<&EventFd>) {
        self.rounds = self.rounds.saturating_add(1);
        if self.device.host_driven {
            self.device.work(self.rounds);
            return;
        }
        if self.rounds < SPINS {
            std::hint::spin_loop();
            return;
        }
        match interrupt {
            Some(event) if event.wait(SLEEP_MAX).is_ok() => {
                // The caller looks at the ring after this and before it sleeps again: no signal is lost.
                event.drain();
            }
            _ => std::thread::sleep(SLEEP_MAX / 4),
        }
        self.device.clock().advance(SLEEP_MAX / 4);
    }
}
