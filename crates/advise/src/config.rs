//! Advice as what a user runs: configuration files, affinities, interrupts.

use serde::Serialize;
use unvme_guide::config::{DEV_ID_BYTES_MAX, DEVICES_MAX, SsdType};

use crate::cpus::Cpus;
use crate::interrupts::Interrupt;
use crate::location::{Location, Reach};
use crate::rules::Assignment;
use crate::topology::Topology;

/// Queues that a configuration file asks for.
#[derive(Clone, Copy, Debug)]
pub struct QueueSettings {
    /// Commands on an asynchronous queue.
    pub depth: u16,
    /// Whether queues are synchronous: for calls that wait.
    pub are_synchronous: bool,
}

/// A configuration file of the SDK: `kv_perf`, `sdk_perf` and the C library read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Configuration {
    /// What the devices are used as.
    pub ssd_type: SsdType,
    /// The file.
    pub text: String,
}

/// Keys of the file, in the order of the guide's samples.
#[derive(Serialize)]
struct File<'a> {
    ssd_type: SsdType,
    device_description: Vec<Described<'a>>,
}

#[derive(Serialize)]
struct Described<'a> {
    dev_id: &'a str,
    core_mask: String,
    sync_mask: String,
    cq_thread_mask: String,
    queue_depth: u16,
}

/// Files for all devices, one for each kind: `ssd_type` is of a whole file. What no file can say is among the
/// notes.
pub fn configurations(
    devices: &[Location],
    kinds: &[SsdType],
    assignment: &Assignment,
    queues: QueueSettings,
) -> (Vec<Configuration>, Vec<String>) {
    let (mut files, mut notes) = (Vec::new(), Vec::new());
    for kind in [SsdType::Lba, SsdType::Kv] {
        let mut described: Vec<Described<'_>> = Vec::new();
        for own in &assignment.devices {
            let (location, of) = (&devices[own.device], kinds[own.device]);
            if of != kind {
                continue;
            }
            let name = &location.name;
            if name.len() > DEV_ID_BYTES_MAX {
                notes.push(format!(
                    "{name}: longer than the {DEV_ID_BYTES_MAX} bytes of a `dev_id`, so it is in no configuration file"
                ));
                continue;
            }
            if described.iter().any(|other| other.dev_id == name) {
                notes.push(format!(
                    "{name}: named several times, and a configuration file has each device once"
                ));
                continue;
            }
            if described.len() == DEVICES_MAX {
                notes.push(format!("{name}: a configuration file has {DEVICES_MAX} devices at most"));
                continue;
            }
            let mask = |cpus: &Cpus| cpus.mask().map(|mask| format!("{mask:x}"));
            let (Some(core), Some(complete)) = (mask(&own.submit), mask(&own.complete)) else {
                notes.push(format!("{name}: its CPUs are beyond 63, which no mask can name"));
                continue;
            };
            described.push(Described {
                dev_id: name,
                sync_mask: if queues.are_synchronous { core.clone() } else { "0".to_owned() },
                core_mask: core,
                cq_thread_mask: complete,
                queue_depth: queues.depth,
            });
        }
        if described.is_empty() {
            continue;
        }
        let file = File { ssd_type: kind, device_description: described };
        // An object of strings and numbers: there is nothing that JSON could not hold.
        let text = serde_json::to_string_pretty(&file).expect("strings and numbers") + "\n";
        files.push(Configuration { ssd_type: kind, text });
    }
    (files, notes)
}

/// The line that starts a program on the CPUs of an assignment.
pub fn taskset(assignment: &Assignment) -> String {
    format!("taskset -c {} PROGRAM", assignment.cpus())
}

/// Lines for the unit of a service.
pub fn unit_lines(topology: &Topology, assignment: &Assignment) -> Vec<String> {
    let cpus = assignment.cpus();
    let mut lines = vec![format!("CPUAffinity={cpus}")];
    let nodes: Cpus = cpus.iter().filter_map(|cpu| topology.cpu(cpu)?.node).collect();
    let has_memory = |node: u32| topology.node(node).is_some_and(|node| node.has_memory);
    // A policy that binds to a node without memory keeps a service from starting.
    if topology.nodes.len() > 1 && !nodes.is_empty() && nodes.iter().all(has_memory) {
        lines.extend(["NUMAPolicy=bind".to_owned(), format!("NUMAMask={nodes}")]);
    }
    lines
}

/// Commands that keep the CPUs of an assignment at their highest frequency; none where they are, and without
/// cpufreq.
pub fn frequency_lines(topology: &Topology, assignment: &Assignment) -> Vec<String> {
    let cpus = assignment.cpus();
    let others = topology.governors.iter().filter(|(governor, _)| *governor != "performance");
    let slowed: Cpus =
        others.flat_map(|(_, own)| own.intersection(&cpus).iter().collect::<Vec<_>>()).collect();
    match slowed.is_empty() {
        true => Vec::new(),
        false => vec![format!("cpupower -c {slowed} frequency-set -g performance")],
    }
}

/// Commands that keep interrupts off the CPUs of an assignment, or bring them there, and what cannot be
/// moved.
pub fn interrupt_lines(
    topology: &Topology,
    devices: &[Location],
    all: &[Interrupt],
    assignment: &Assignment,
) -> (Vec<String>, Vec<String>) {
    let (mut commands, mut notes) = (Vec::new(), Vec::new());
    for own in &assignment.devices {
        let location = &devices[own.device];
        let managed: Vec<&Interrupt> = location.interrupts.iter().filter(|one| one.is_managed()).collect();
        if let (Reach::Kernel, false) = (location.reach, managed.is_empty()) {
            let on = |cpu: u32| managed.iter().any(|one| one.cpus().is_some_and(|cpus| cpus.contains(cpu)));
            let far: Cpus = own.submit.iter().filter(|&cpu| !on(cpu)).collect();
            let queues = managed.len();
            notes.push(match far.is_empty() {
                true => format!(
                    "{}: {queues} I/O queues, whose interrupts the kernel keeps on the CPUs that submit to them; \
                     CPUs {} have one",
                    location.name, own.submit
                ),
                false => format!(
                    "{}: {queues} I/O queues, whose interrupts the kernel places itself; none runs on CPUs {far}, whose \
                     completions come from another CPU",
                    location.name
                ),
            });
        }
        let target = if own.complete.is_empty() { &own.submit } else { &own.complete };
        for one in location.interrupts.iter().filter(|one| !one.is_managed()) {
            if one.cpus() != Some(target) {
                commands.push(set(one, target));
            }
        }
    }
    let used = assignment.cpus();
    let online: Cpus = topology.cpus.iter().map(|cpu| cpu.number).collect();
    let others = online.difference(&used);
    let rest = others.difference(&topology.isolated);
    let rest = if rest.is_empty() { others } else { rest };
    let numbers: Vec<u32> =
        devices.iter().flat_map(|device| &device.interrupts).map(|one| one.number).collect();
    let is_busy = |one: &&Interrupt| one.count != Some(0);
    let on_used = |one: &&Interrupt| one.cpus().is_some_and(|cpus| !cpus.intersection(&used).is_empty());
    let others = all.iter().filter(|one| !numbers.contains(&one.number) && !one.is_managed());
    let others: Vec<&Interrupt> = others.filter(is_busy).filter(on_used).collect();
    if !others.is_empty() {
        match rest.is_empty() {
            true => notes.push(format!(
                "{} interrupts of other devices run on these CPUs, and there is no other CPU for them",
                others.len()
            )),
            false => {
                commands.extend(others.iter().map(|one| set(one, &rest)));
                notes.push(
                    "an interrupt that the kernel places itself, such as that of a queue or of a CPU's timer, answers \
                     the command with EIO and stays where it is"
                        .to_owned(),
                );
            }
        }
    }
    (commands, notes)
}

fn set(interrupt: &Interrupt, cpus: &Cpus) -> String {
    let Interrupt { number, name, .. } = interrupt;
    format!("echo {cpus} > /proc/irq/{number}/smp_affinity_list   # {name}")
}
