//! Devices that are opened, and measurements of them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use unvme::Nsid;
use unvme_advise::measure::{Subject, SubjectOptions};
use unvme_advise::statistics::Spread;
use unvme_advise::{
    AssignOptions, Campaign, Case, Figures, Findings, Location, Plan, PlanOptions, QueueSettings, Reach,
    Sweep, Topology, assign, configurations, frequency_lines, interrupt_lines, interrupts, locate,
    located_drives, noise, order, round_trip_ns, taskset, unit_lines,
};
use unvme_guide::config::SsdType;
use unvme_setup::System;

use super::Advise;
use super::outcome::{Advice, CacheLine, DeviceFound, Outcome, Skipped};
use crate::exit::usage;
use crate::perf::machine::memory_available;
use crate::perf::{Progress, command_line, machine, now, stop_on_signals};

/// What is measured when no device is named.
const DEFAULT_DEVICE: &str = "mem:block:256M";
/// Bytes that a device in memory takes at most while it is measured, its mapping included.
const MEMORY_EACH: u64 = 320 << 20;
/// Time before a measurement that is not counted.
const WARMUP: Duration = Duration::from_millis(20);
/// CPUs between which a cache line is sent.
const PINGED_MAX: usize = 64;
/// Measurements of each pair, and their time.
const PINGS: usize = 5;
const PING_TIME: Duration = Duration::from_millis(2);

/// Finds out everything.
pub(super) fn gather(args: &Advise) -> Result<Outcome> {
    let (system, live) = (args.system()?, System::live());
    // Threads run on this machine, also where its drives are a copy (`UNVME_SYSTEM_ROOT`).
    let topology = Topology::read(if args.sysfs.is_some() { &system } else { &live })?;
    let mut outcome = Outcome::new(command_line(), now(), machine(), topology);
    outcome.is_measured = args.measures();
    outcome.goal = args.goal();
    outcome.depth = args.depth;
    outcome.nsid = args.namespace_id;
    outcome.io_bytes = args.io_size;
    outcome.other_machine = args.sysfs.as_ref().map(|dir| dir.display().to_string());
    if !outcome.is_measured {
        return unmeasured(args, &system, outcome);
    }
    let stop = stop_on_signals()?;
    let (subjects, given) = open(args, &system, &mut outcome)?;
    plan(args, &subjects, given, &mut outcome);
    if args.sweep() == Sweep::Advice {
        outcome.cache_line = ping(&outcome.topology, &stop)?;
    }
    outcome.figures = measure(args, &outcome.plan, &subjects, &stop)?;
    outcome.interrupted = stop.load(Ordering::Relaxed);
    if outcome.interrupted {
        return Ok(outcome);
    }
    outcome.noise = noise(&outcome.plan, &outcome.figures);
    outcome.judge();
    if outcome.noise.is_none() && args.sweep() == Sweep::Advice {
        let findings = Findings::of(&outcome.plan, &outcome.figures, args.goal());
        advise(args, &system, &mut outcome, findings)?;
    }
    Ok(outcome)
}

/// Plans the measurements of `subjects`, of which the first `given` were named, and notes what they tell.
fn plan(args: &Advise, subjects: &[Subject], given: usize, outcome: &mut Outcome) {
    for subject in &subjects[..given] {
        let ssd_type = if subject.has_pairs() { SsdType::Kv } else { SsdType::Lba };
        if subject.may_be_empty() {
            outcome.notes.push(format!(
                "{}: blocks that were never written are read as zeroes, without the media; `unvme perf --prefill` writes \
                 them all",
                subject.name()
            ));
        }
        if subject.location().reach == Reach::Process {
            outcome
                .notes
                .push(format!("{}: a process that serves it needs a CPU of its own", subject.name()));
        }
        outcome.devices.push(DeviceFound { location: subject.location().clone(), ssd_type });
    }
    let locations: Vec<Location> = subjects.iter().map(|subject| subject.location().clone()).collect();
    let Some(first) = subjects.first() else { return };
    let kind = |subject: &Subject| (subject.location().node, subject.location().reach, subject.has_pairs());
    let alike: Vec<usize> = (0..subjects.len()).filter(|&at| kind(&subjects[at]) == kind(first)).collect();
    if given > 1 {
        outcome.notes.push(format!(
            "{}: classes of placement are measured on it, and it stands for all",
            first.name()
        ));
    }
    if alike.len() < subjects.len() {
        let note = "devices of another kind or node than the first one are not measured together with it";
        outcome.notes.push(note.to_owned());
    }
    let depth_max = subjects.iter().map(Subject::depth_max).min().unwrap_or(args.depth);
    if args.depth > depth_max {
        outcome.notes.push(format!(
            "-q {}: a queue takes {depth_max} commands at most; measured with those",
            args.depth
        ));
        outcome.depth = depth_max;
    }
    let served = subjects[..given].iter().filter(|own| own.location().reach == Reach::Process).count();
    let options = PlanOptions {
        sweep: args.sweep(),
        depth: outcome.depth,
        queues_max: first.device().controller().queues_max(),
        served,
        alike: &alike,
    };
    outcome.plan = Plan::new(&outcome.topology, &locations, options);
}

/// Advice by the rules and the figures of the guide.
fn unmeasured(args: &Advise, system: &System, mut outcome: Outcome) -> Result<Outcome> {
    let locations = match args.devices.is_empty() {
        true => located_drives(system)?,
        false => args.devices.iter().map(|name| locate(system, name)).collect::<unvme::Result<_>>()?,
    };
    if locations.is_empty() {
        return Err(usage("no NVMe drive is on the PCI bus; name the devices that are to be placed"));
    }
    for location in locations {
        let is_file = location.name.strip_prefix("kernel:").is_some_and(|path| Path::new(path).exists());
        if location.reach == Reach::Other && location.address.is_none() && !(is_file && args.sysfs.is_none())
        {
            let whose = if args.sysfs.is_some() { "in the copy of the machine" } else { "on this machine" };
            return Err(usage(format!("{}: no such drive is {whose}", location.name)));
        }
        if is_duplicate(&outcome.devices, &location) {
            return Err(usage(format!("{}: named twice", location.name)));
        }
        if location.reach != Reach::InProcess {
            let name = &location.name;
            outcome
                .notes
                .push(format!("{name}: taken for a device with blocks; one with pairs has `ssd_type` kv"));
        }
        let ssd_type = if location.name.starts_with("mem:kv") { SsdType::Kv } else { SsdType::Lba };
        outcome.devices.push(DeviceFound { location, ssd_type });
    }
    let findings = Findings::of_guide(args.goal());
    advise(args, system, &mut outcome, findings)?;
    Ok(outcome)
}

/// True for a device that is known already, by its name or its address; those in memory are different ones.
fn is_duplicate(known: &[DeviceFound], location: &Location) -> bool {
    known.iter().map(|found| &found.location).any(|other| {
        let is_address = other.address.is_some() && other.address == location.address;
        is_address || other.name == location.name && location.reach != Reach::InProcess
    })
}

fn advise(args: &Advise, system: &System, outcome: &mut Outcome, findings: Findings) -> Result<()> {
    let locations: Vec<Location> = outcome.devices.iter().map(|found| found.location.clone()).collect();
    let kinds: Vec<SsdType> = outcome.devices.iter().map(|found| found.ssd_type).collect();
    let options = AssignOptions {
        per_core: if args.polls() { findings.per_core_polled } else { findings.per_core_apart },
        polls: args.polls(),
        queues: if args.polls() { findings.queues_polled } else { findings.queues_apart },
        completing: findings.completing,
        completing_many: findings.completing_many,
    };
    let queues = QueueSettings { depth: outcome.depth, are_synchronous: args.sync };
    let topology = &outcome.topology;
    let assignment = assign(topology, &locations, options);
    let (configurations, mut notes) = configurations(&locations, &kinds, &assignment, queues);
    let (interrupt_lines, more) = interrupt_lines(topology, &locations, &interrupts(system)?, &assignment);
    notes.splice(0..0, assignment.notes.iter().cloned());
    notes.extend(more);
    outcome.advice = Some(Advice {
        taskset: taskset(&assignment),
        unit: unit_lines(topology, &assignment),
        frequency: frequency_lines(topology, &assignment),
        per_core: options.per_core,
        polls: args.polls(),
        is_synchronous: args.sync,
        findings,
        assignment,
        configurations,
        interrupts: interrupt_lines,
        notes,
    });
    Ok(())
}

/// Opens the devices; returns them with the number of those that were given, which come first. Errors: none
/// can be opened.
fn open(args: &Advise, system: &System, outcome: &mut Outcome) -> Result<(Vec<Subject>, usize)> {
    let default = [DEFAULT_DEVICE.to_owned()];
    let names = if args.devices.is_empty() { &default[..] } else { &args.devices };
    if args.devices.is_empty() {
        outcome.drives_of_machine = located_drives(system)?;
    }
    let io_bytes = u32::try_from(args.io_size)
        .map_err(|_| usage(format!("--io-size {}: expected at most {} bytes", args.io_size, u32::MAX)))?;
    let options = SubjectOptions { io_bytes, nsid: args.namespace_id.map(Nsid) };
    let mut subjects: Vec<Subject> = Vec::new();
    let mut first_error = None;
    for name in names {
        if subjects.iter().any(|known| known.name() == name && !known.is_memory()) {
            return Err(usage(format!("{name}: named twice; one device is measured once")));
        }
        match locate(system, name).and_then(|location| Subject::open(location, &options)) {
            Ok(subject) => {
                let address = &subject.location().address;
                if address.is_some() && subjects.iter().any(|known| known.location().address == *address) {
                    return Err(usage(format!("{name}: named twice; one device is measured once")));
                }
                subjects.push(subject);
            }
            Err(error) => {
                outcome.skipped.push(Skipped { name: name.clone(), reason: error.to_string() });
                first_error.get_or_insert(error);
            }
        }
    }
    let given = subjects.len();
    if let (0, Some(error)) = (given, first_error) {
        return Err(error.into());
    }
    let kinds = subjects.iter().map(Subject::has_pairs);
    if args.config.is_some() && kinds.clone().any(|own| own) && !kinds.clone().all(|own| own) {
        return Err(usage(
            "--config: `ssd_type` is of a whole file, and some devices have blocks and some have pairs; name one kind at a \
             time",
        ));
    }
    // Devices in memory are alike: further ones stand for those that a machine has more of.
    let is_alike = |one: &Subject| one.is_memory() && one.has_pairs() == subjects[0].has_pairs();
    if subjects.iter().all(is_alike) {
        let location = subjects[0].location().clone();
        let most = memory_available().map_or(usize::MAX, |bytes| (bytes / 2 / MEMORY_EACH) as usize);
        while subjects.len() < args.sweep().devices().min(most) {
            subjects.push(Subject::open(location.clone(), &options)?);
        }
    }
    Ok((subjects, given))
}

fn measure(args: &Advise, plan: &Plan, subjects: &[Subject], stop: &AtomicBool) -> Result<Vec<Figures>> {
    let campaign = Campaign {
        repeat: args.repeat,
        time: Duration::from_secs_f64(args.time),
        warmup: WARMUP,
        stop: Some(stop),
    };
    let progress = Progress::new("measure", 1);
    let mut tick = |over: usize, all: usize, case: &Case| {
        progress.of(all as u64);
        progress.set(over as u64);
        progress.say(format!("{} at depth {}", super::text::layout(&case.layout), case.depth));
    };
    Ok(campaign.run(plan, subjects, &mut tick)?)
}

/// A cache line sent between every two usable CPUs, in rounds.
fn ping(topology: &Topology, stop: &AtomicBool) -> Result<Option<CacheLine>> {
    let mut cpus: Vec<u32> = order(topology, None).into_iter().take(PINGED_MAX).collect();
    cpus.sort_unstable();
    if cpus.len() < 2 {
        return Ok(None);
    }
    let mut figures = vec![vec![Vec::new(); cpus.len()]; cpus.len()];
    for _ in 0..PINGS {
        for one in 0..cpus.len() {
            for other in one + 1..cpus.len() {
                if stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                figures[one][other].push(round_trip_ns([cpus[one], cpus[other]], PING_TIME)?);
            }
        }
    }
    let between = |one: usize, other: usize| {
        let (low, high) = (one.min(other), one.max(other));
        Spread::of(&figures[low][high])
    };
    let row = |one: usize| (0..cpus.len()).map(|other| between(one, other)).collect();
    Ok(Some(CacheLine { round_trip_ns: (0..cpus.len()).map(row).collect(), cpus }))
}
