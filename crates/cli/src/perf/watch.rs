//! The time that a lane goes by: that of the machine, or that of a modelled device.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Result;
use unvme::{Clock, Device, DeviceName, Function, OpenOptions, Registry, Transport};

use crate::exit::usage;

/// The clock goes on by this when no device has anything to come.
const IDLE_NS: u64 = 1000;

/// A clock that goes on to what comes next on devices in this process, whenever there is nothing to do.
pub(super) struct VirtualTime {
    clock: Clock,
    functions: Vec<Arc<dyn Function>>,
}

impl std::fmt::Debug for VirtualTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VirtualTime").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl VirtualTime {
    pub(super) fn new() -> Self {
        Self { clock: Clock::manual(), functions: Vec::new() }
    }

    /// How a device is opened that lives by this clock: others would use the machine's.
    pub(super) fn options(&self) -> OpenOptions {
        let mut options = OpenOptions { share: false, ..OpenOptions::default() };
        options.controller.clock = self.clock.clone();
        options
    }

    /// Has the clock go by a device that was opened so. Errors: a usage error when it is not in this process.
    pub(super) fn add(&mut self, device: &Device) -> Result<()> {
        match device.controller().function() {
            Some(function) if device.transport() == Transport::InProcess => {
                self.functions.push(Arc::clone(function));
                Ok(())
            }
            _ => Err(usage(format!(
                "--virtual-time: {} is in use by another process, whose clock is the machine's; stop that process",
                device.name()
            ))),
        }
    }

    /// Nothing is left to submit or to take: time goes on to what comes next, at most to `until_ns` of the
    /// clock.
    fn pass(&self, until_ns: Option<u64>) {
        // What has been rung is taken at the time it is now.
        let worked: usize = self.functions.iter().map(|function| function.advance(None, &self.clock)).sum();
        if worked > 0 {
            return;
        }
        let now = self.clock.now();
        let events = self.functions.iter().filter_map(|function| function.next_event());
        let next = events.chain(until_ns).min().unwrap_or(now + IDLE_NS);
        self.clock.advance(Duration::from_nanos(next.saturating_sub(now).max(1)));
    }
}

/// Refuses a device whose time is not a model's, before it is opened. Errors: a usage error that says what
/// can be used.
pub(super) fn check_modelled(name: &str) -> Result<()> {
    let expected = "expected a virtual SSD of this process with a timing, such as mem:block:1G,timing=tlc or a slot made \
                    with `unvme device create --timing tlc`";
    let timing = match DeviceName::parse(name)? {
        Some(DeviceName::Memory(device)) => Some(device.timing),
        Some(DeviceName::Address(address)) => match Registry::from_environment()?.find(address) {
            Some(slot) => Some(slot.spec()?.timing),
            None => None,
        },
        // Opening it says what is there.
        None => return Ok(()),
        Some(_) => None,
    };
    match timing {
        Some(timing) if !timing.is_none() => Ok(()),
        Some(_) => Err(usage(format!("--virtual-time: {name} has no timing; {expected}"))),
        None => Err(usage(format!("--virtual-time: {name} has a time of its own; {expected}"))),
    }
}

/// The machine's clock: the processor's counter where that is one, as a lane looks twice for each command at
/// depth 1, and what the kernel has is half of what a command without media takes then.
fn machine() -> &'static quanta::Clock {
    static CLOCK: OnceLock<quanta::Clock> = OnceLock::new();
    CLOCK.get_or_init(quanta::Clock::new)
}

/// Time since a thread began.
#[derive(Clone, Copy, Debug)]
pub(super) enum Watch<'a> {
    Wall { clock: &'static quanta::Clock, start: u64 },
    Virtual { time: &'a VirtualTime, start_ns: u64 },
}

impl<'a> Watch<'a> {
    /// The machine's, from now on.
    pub(super) fn wall() -> Self {
        let clock = machine();
        Self::Wall { clock, start: clock.raw() }
    }

    /// That of `time`, if there is one, else the machine's.
    pub(super) fn start(time: Option<&'a VirtualTime>) -> Self {
        match time {
            Some(time) => Self::Virtual { time, start_ns: time.clock.now() },
            None => Self::wall(),
        }
    }

    #[inline]
    pub(super) fn ns(&self) -> u64 {
        match self {
            Self::Wall { clock, start } => clock.delta_as_nanos(*start, clock.raw()),
            Self::Virtual { time, start_ns } => time.clock.now().saturating_sub(*start_ns),
        }
    }

    #[inline]
    pub(super) fn is_virtual(&self) -> bool {
        matches!(self, Self::Virtual { .. })
    }

    /// There is nothing to do until something happens, or until `until_ns`: virtual time goes on to that.
    pub(super) fn pass(&self, until_ns: Option<u64>) {
        if let Self::Virtual { time, start_ns } = self {
            time.pass(until_ns.map(|until_ns| until_ns.saturating_add(*start_ns)));
        }
    }
}
