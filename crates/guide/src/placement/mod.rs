//! Which CPUs submit to which device, and which complete: the resource scheduler.
//!
//! A configuration either gives a device all its masks, which are then taken as they are, or none, and CPUs
//! are chosen here. Of `n` CPUs the lowest three quarters submit, the lower half of those through synchronous
//! queues and the rest through asynchronous ones; one of the others completes. With eight CPUs, 0-2 are
//! synchronous, 3-5 asynchronous and 6 or 7 completes. Three CPUs do one thing each; of two, the asynchronous
//! one also completes; and a single CPU does it all, the only case in which a CPU has two queues to a device.
//!
//! A choice depends on nothing but the arguments. Processes take different turns, so that they do not
//! overlap.

mod cpus;

pub use cpus::{CPUS_MAX, CpuSet, NotCpus};

use crate::config::{DeviceConfig, SdkConfig};

/// Devices that one chosen CPU completes for before the next one takes over.
pub const DEVICES_PER_COMPLETION_CPU: usize = 4;

/// The queues of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedDevice {
    /// CPUs with a synchronous queue.
    pub sync_cpus: CpuSet,
    /// CPUs with an asynchronous queue. Disjoint from `sync_cpus`, unless the device was placed on a single
    /// CPU.
    pub async_cpus: CpuSet,
    /// CPUs whose completion threads serve the asynchronous queues. Empty: there are no threads, callers
    /// poll.
    pub cq_cpus: CpuSet,
    /// Commands that can be outstanding on an asynchronous queue.
    pub depth: u32,
}

impl PlacedDevice {
    /// CPUs with a queue of either kind.
    pub fn queue_cpus(&self) -> CpuSet {
        self.sync_cpus.union(self.async_cpus)
    }
}

/// The queues of all devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// One for each device of the configuration, in its order.
    pub devices: Vec<PlacedDevice>,
    /// The CPUs there are. A queue or a completion thread of any other CPU exists, and nothing is pinned for
    /// it.
    pub cpus: CpuSet,
    /// This process's turn: where its round robin over CPUs starts.
    pub turn: usize,
    /// What was said and cannot be followed, each one a sentence that names the device and the key.
    pub warnings: Vec<String>,
}

impl Placement {
    /// Places devices on `cpus`; an empty set counts as CPU 0. `turn` makes processes choose differently: any
    /// number that differs among them, such as the process id.
    pub fn of(devices: &[DeviceConfig], cpus: CpuSet, turn: usize) -> Self {
        let cpus = if cpus.is_empty() { CpuSet::one(0) } else { cpus };
        let mut placement =
            Self { devices: Vec::with_capacity(devices.len()), cpus, turn, warnings: Vec::new() };
        let mut chosen = 0;
        for device in devices {
            let placed = if device.is_placed_automatically() {
                chosen += 1;
                choose(cpus, turn.wrapping_add((chosen - 1) / DEVICES_PER_COMPLETION_CPU), device.queue_depth)
            } else {
                follow(device, cpus, &mut placement.warnings)
            };
            placement.devices.push(placed);
        }
        placement
    }

    /// Places devices on the CPUs of this process, which takes its turn by its id.
    pub fn for_this_process(devices: &[DeviceConfig]) -> Self {
        Self::of(devices, CpuSet::of_process(), std::process::id() as usize)
    }

    /// Whether a thread can be pinned to this CPU.
    pub fn can_pin(&self, cpu: u32) -> bool {
        self.cpus.contains(cpu)
    }

    /// Writes the masks into the configuration that was placed, as the original SDK does for its callers.
    ///
    /// Masks cannot say that a CPU has two queues; such a CPU is shown as synchronous.
    pub fn write_to(&self, config: &mut SdkConfig) {
        for (device, placed) in config.devices.iter_mut().zip(&self.devices) {
            device.core_mask = placed.queue_cpus().0;
            device.sync_mask = placed.sync_cpus.0;
            device.cq_thread_mask = placed.cq_cpus.0;
        }
    }
}

/// Queues for a device that was given no masks.
fn choose(cpus: CpuSet, completion_turn: usize, depth: u32) -> PlacedDevice {
    if cpus.len() == 1 {
        return PlacedDevice { sync_cpus: cpus, async_cpus: cpus, cq_cpus: cpus, depth };
    }
    // Both kinds of queue need a CPU, also where three quarters of the CPUs are only one.
    let submit = cpus.lowest((cpus.len() * 3 / 4).max(2));
    let sync_cpus = submit.lowest(submit.len() / 2);
    let async_cpus = submit.difference(sync_cpus);
    let rest = cpus.difference(submit);
    let completing = if rest.is_empty() { async_cpus } else { rest };
    let cq_cpus = completing.turn(completion_turn).map_or(CpuSet::EMPTY, CpuSet::one);
    PlacedDevice { sync_cpus, async_cpus, cq_cpus, depth }
}

/// Queues as the masks say.
fn follow(device: &DeviceConfig, cpus: CpuSet, warnings: &mut Vec<String>) -> PlacedDevice {
    let DeviceConfig { dev_id, core_mask, sync_mask, cq_thread_mask, queue_depth } = device;
    let (core, sync, cq) = (CpuSet(*core_mask), CpuSet(*sync_mask), CpuSet(*cq_thread_mask));
    let stray = sync.difference(core);
    if !stray.is_empty() {
        warnings.push(format!("{dev_id}: `sync_mask` names CPUs that `core_mask` lacks ({stray}); ignored"));
    }
    for (key, set, what) in [("core_mask", core, "queues"), ("cq_thread_mask", cq, "completion threads")] {
        let missing = set.difference(cpus);
        if !missing.is_empty() {
            warnings.push(format!(
                "{dev_id}: `{key}` names CPUs that this process does not have ({missing}; it has {cpus}); \
                 their {what} run on any CPU"
            ));
        }
    }
    PlacedDevice {
        sync_cpus: core.intersection(sync),
        async_cpus: core.difference(sync),
        cq_cpus: cq,
        depth: *queue_depth,
    }
}

#[cfg(test)]
mod tests;
