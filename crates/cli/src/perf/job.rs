//! What was typed, checked against the devices that are there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use unvme::fdp::PlacementId;
use unvme::{Block, Device, Error, Nsid, OpenOptions, Size, Transport, open};
use unvme_flash::PAGE_BYTES;

use super::addresses::{Distribution, Mix};
use super::args::Perf;
use super::cores;
use super::lane::Unit;
use super::ledger::Ledger;
use super::machine;
use super::matrix::Axis;
use super::pace::Arrivals;
use super::placement::{Placements, Select};
use super::watch::{VirtualTime, check_modelled};
use crate::exit::usage;
use crate::report::{DeviceIdentity, PlacedWrites, Workload};
use crate::target::blocks_or_what_there_is;

/// A namespace to measure.
#[derive(Debug)]
pub(super) struct Target {
    device: Arc<Device>,
    nsid: Nsid,
    /// For the report.
    pub(super) identity: DeviceIdentity,
    /// Size of a command, and of those that the device takes.
    pub(super) unit: Unit,
    /// Units in use.
    pub(super) units: u64,
    /// Present with `--verify`.
    pub(super) ledger: Option<Ledger>,
    /// It is written once before the first point.
    pub(super) fill: bool,
}

impl Target {
    pub(super) fn block(&self) -> Result<Block> {
        Ok(self.device.block(self.nsid)?)
    }

    /// Commands that a queue of the device takes.
    pub(super) fn queue_depth_max(&self) -> u16 {
        self.device.controller().queue_depth_max()
    }

    /// True when reads may find blocks that were never written.
    pub(super) fn may_be_empty(&self) -> bool {
        self.device.is_virtual() && !self.fill && !keeps_nothing(self.device.name())
    }
}

/// One combination of the sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Threads, the first of the job's cores.
    pub(super) threads: usize,
    /// Commands outstanding per thread and namespace.
    pub(super) depth: u16,
}

/// Everything there is to do.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) targets: Vec<Target>,
    pub(super) cores: Vec<usize>,
    pub(super) shapes: Vec<Shape>,
    pub(super) mix: Mix,
    pub(super) warmup: Duration,
    pub(super) time: Duration,
    pub(super) rate: Option<u64>,
    pub(super) arrivals: Arrivals,
    placements: Vec<PlacementId>,
    select: Select,
    pub(super) workload: Workload,
    /// What is to be said of commands beyond what a device takes.
    pub(super) beyond: Vec<String>,
    /// The clock of the devices, with `--virtual-time`.
    pub(super) virtual_time: Option<VirtualTime>,
    stop: Arc<AtomicBool>,
}

impl Job {
    /// Opens the devices and checks everything that can be known before the first command. Errors: a usage
    /// error that names the option; those of opening a device; a refusal to write to a real one.
    pub(super) fn new(args: &Perf, stop: Arc<AtomicBool>) -> Result<Self> {
        let mix = mix(args)?;
        check_placed(args)?;
        let (threads, depths) = axes(args)?;
        let cores = choose_cores(args, &threads)?;
        check_virtual(args, threads.iter().flatten().copied().max().unwrap_or(cores.len() as u32))?;
        let mut virtual_time = args.virtual_time.then(VirtualTime::new);
        let mut targets = Vec::new();
        for name in &args.devices {
            open_targets(args, name, virtual_time.as_mut(), &mut targets)?;
        }
        check_memory(memory_needed(&targets), machine::memory_available())?;
        let mut shapes = Vec::new();
        for &threads in threads.as_deref().unwrap_or(&[cores.len() as u32]) {
            shapes.extend(depths.iter().map(|&depth| Shape { threads: threads as usize, depth }));
        }
        check_limits(args, &targets, &shapes)?;
        let (option, depth) = (depth_option(args), depth_max(&shapes));
        let beyond = targets.iter().filter_map(|target| {
            let said = beyond(target.unit, target.queue_depth_max(), option, depth)?;
            Some(format!("{}: {said}", target.identity.label()))
        });
        let beyond = beyond.collect();
        let workload = Workload {
            pattern: args.pattern.name().to_owned(),
            io_bytes: args.io_size,
            read_percent: mix.read_percent.into(),
            distribution: mix.distribution.to_string(),
            seconds: args.time,
            verify: args.verify,
            rate_limit_iops: args.rate,
            arrivals: args.rate.map(|_| args.arrivals.name().to_owned()),
            commands: None,
            virtual_time: args.virtual_time,
            placement: args.fdp_pid.as_ref().map(|list| PlacedWrites {
                identifiers: list.0.iter().map(|id| id.0).collect(),
                select: args.fdp_select.name().to_owned(),
            }),
        };
        Ok(Self {
            targets,
            cores,
            shapes,
            mix,
            warmup: Duration::from_secs_f64(args.warmup),
            time: Duration::from_secs_f64(args.time),
            rate: args.rate,
            arrivals: args.arrivals,
            placements: args.fdp_pid.as_ref().map(|list| list.0.clone()).unwrap_or_default(),
            select: args.fdp_select,
            workload,
            beyond,
            virtual_time,
            stop,
        })
    }

    /// Where the writes of lane number `stream` go, if that was said.
    pub(super) fn placements(&self, stream: u64) -> Option<Placements> {
        Placements::new(&self.placements, self.select, self.mix.seed, stream)
    }

    /// The devices, each once.
    pub(super) fn devices(&self) -> Vec<Arc<Device>> {
        let mut devices: Vec<Arc<Device>> = Vec::new();
        for target in &self.targets {
            if !devices.iter().any(|device| Arc::ptr_eq(device, &target.device)) {
                devices.push(Arc::clone(&target.device));
            }
        }
        devices
    }

    /// Bytes that hosts have written to the flash of virtual SSDs in this process, and that it has written.
    pub(super) fn written(&self) -> (u64, u64) {
        let stats = self.devices().into_iter().filter_map(|device| device.flash_stats());
        stats.fold((0, 0), |(host, media), stats| {
            let own = (stats.ftl.host_pages * PAGE_BYTES).saturating_sub(stats.padded_bytes);
            (host + own, media + stats.ftl.media_bytes())
        })
    }

    /// False when a device on the network is not there at the moment.
    pub(super) fn is_connected(&self) -> bool {
        self.targets.iter().all(|target| target.device.controller().is_connected())
    }

    /// True after Ctrl-C.
    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// True when the points differ in more than nothing.
    pub(super) fn is_sweep(&self) -> bool {
        self.shapes.len() > 1
    }
}

fn mix(args: &Perf) -> Result<Mix> {
    let pattern = args.pattern;
    let read_percent = match args.read_percent {
        Some(percent) if pattern.is_mixed() => percent,
        Some(_) => return Err(usage(format!("-M: `-w {}` does not mix; use rw or randrw", pattern.name()))),
        None if pattern.is_mixed() => 50,
        None if pattern.writes() => 0,
        None => 100,
    };
    if args.dist != Distribution::Uniform && !pattern.is_random() {
        let name = pattern.name();
        return Err(usage(format!("--dist: the addresses of `-w {name}` are sequential; use rand{name}")));
    }
    Ok(Mix { pattern, read_percent, distribution: args.dist, seed: args.seed })
}

/// Placement identifiers are for writes.
fn check_placed(args: &Perf) -> Result<()> {
    match (&args.fdp_pid, args.pattern) {
        (Some(_), pattern) if !pattern.writes() => {
            Err(usage(format!("--fdp-pid: `-w {}` does not write", pattern.name())))
        }
        _ => Ok(()),
    }
}

/// Thread counts, if any were given, and depths.
fn axes(args: &Perf) -> Result<(Option<Vec<u32>>, Vec<u16>)> {
    let (mut threads, mut depths) = (None, None);
    for axis in &args.matrix {
        let (name, place, values) = match axis {
            Axis::Threads(values) => ("threads", &mut threads, values),
            Axis::Depth(values) => ("depth", &mut depths, values),
        };
        if place.replace(values.clone()).is_some() {
            return Err(usage(format!("--matrix: {name} is given twice")));
        }
    }
    // No value of the axis is above what a queue takes.
    let depths = depths.map(|values| values.iter().map(|&depth| depth as u16).collect());
    Ok((threads, depths.unwrap_or_else(|| vec![args.depth])))
}

fn choose_cores(args: &Perf, threads: &Option<Vec<u32>>) -> Result<Vec<usize>> {
    let available = cores::available()?;
    let shown = cores::display(&available);
    let chosen = match (&args.cores, threads) {
        (Some(typed), _) => {
            if let Some(missing) = typed.0.iter().find(|core| !available.contains(core)) {
                let message = format!("-c: core {missing} is not there; this process may use {shown}");
                return Err(usage(message));
            }
            typed.0.clone()
        }
        (None, Some(_)) => available,
        (None, None) => available.first().copied().into_iter().collect(),
    };
    let most = threads.iter().flatten().copied().max().unwrap_or(1) as usize;
    if most > chosen.len() {
        let message = format!(
            "--matrix threads: each thread has a core of its own, and {most} threads are more than the cores {}",
            cores::display(&chosen)
        );
        return Err(usage(message));
    }
    Ok(chosen)
}

/// Virtual time has one owner, and devices that live by it.
fn check_virtual(args: &Perf, threads: u32) -> Result<()> {
    if !args.virtual_time {
        return Ok(());
    }
    if threads > 1 {
        return Err(usage(
            "--virtual-time: one thread has the clock; use -q instead of more threads, and one core",
        ));
    }
    args.devices.iter().try_for_each(|name| check_modelled(name))
}

fn open_targets(
    args: &Perf,
    name: &str,
    virtual_time: Option<&mut VirtualTime>,
    targets: &mut Vec<Target>,
) -> Result<()> {
    let options = virtual_time.as_ref().map_or_else(OpenOptions::default, |time| time.options());
    let device = Arc::new(open(name, &options)?);
    if let Some(time) = virtual_time {
        time.add(&device)?;
    }
    let nsids = match args.namespace_id {
        Some(nsid) => vec![Nsid(nsid)],
        None => blocks_or_what_there_is(&device)?,
    };
    if nsids.is_empty() {
        return Err(usage(format!("{name}: no namespace is attached; there is nothing to measure")));
    }
    if args.verify && keeps_nothing(name) {
        return Err(usage(format!("--verify: {name} keeps no data that could be compared")));
    }
    let writes = args.pattern.writes();
    let in_memory = name.starts_with("mem:");
    let needed = writes && (device.is_virtual() || args.verify && args.pattern.is_mixed());
    let fill = !args.no_prefill && (args.prefill || !keeps_nothing(name) && (in_memory || needed));
    if writes || fill {
        args.force.confirm(&device, "this overwrites what is on it")?;
    }
    for nsid in nsids {
        let again = in_memory || args.prefill || args.verify;
        targets.push(open_target(args, &device, nsid, fill && (again || !is_full(&device, nsid)))?);
    }
    Ok(())
}

/// True for a device in memory that moves no data: there is nothing to fill it with.
fn keeps_nothing(name: &str) -> bool {
    name.starts_with("mem:") && name.contains(",media=null")
}

/// True for a namespace of which everything is in use, as after an earlier run: filling it again would only
/// wear it, and count as traffic where that is measured.
fn is_full(device: &Device, nsid: Nsid) -> bool {
    let data = device.admin(|controller| controller.identify_namespace(nsid));
    data.is_ok_and(|data| data.nuse >= data.nsze)
}

fn open_target(args: &Perf, device: &Arc<Device>, nsid: Nsid, fill: bool) -> Result<Target> {
    let mut block = device.block(nsid)?;
    if let Some(placements) = &args.fdp_pid {
        block.check_placements(&placements.0).map_err(|e| match e {
            Error::Argument(reason) => usage(format!("--fdp-pid: {reason}")),
            e => anyhow::Error::new(e).context("--fdp-pid"),
        })?;
    }
    let name = device.name();
    let block_bytes = u64::from(block.block_bytes());
    let transfer_max = u64::from(block.namespace().transfer_blocks_max()) * block_bytes;
    let io_bytes = args.io_size;
    if io_bytes == 0 || !io_bytes.is_multiple_of(block_bytes) {
        let message = format!(
            "-o {io_bytes}: {name} namespace {nsid} has blocks of {block_bytes} bytes; expected a multiple of that"
        );
        return Err(usage(message));
    }
    let units = args.range.unwrap_or(u64::MAX).min(block.bytes()) / io_bytes;
    if units == 0 {
        let bytes = block.bytes();
        let message = format!(
            "--range, -o: not one command of {io_bytes} bytes is in the range; {name} namespace {nsid} has {bytes} bytes"
        );
        return Err(usage(message));
    }
    let who = device.identity();
    let identity = DeviceIdentity {
        name: name.to_owned(),
        transport: transport(device.transport()).to_owned(),
        model: who.model.clone(),
        serial: who.serial.clone(),
        firmware: who.firmware.clone(),
        nsid: nsid.0,
        block_bytes: block.block_bytes(),
        capacity_bytes: block.bytes(),
    };
    let blocks = u32::try_from(io_bytes / block_bytes)
        .map_err(|_| usage(format!("-o {io_bytes}: a command of at most {} blocks is measured", u32::MAX)))?;
    let unit = Unit {
        block_bytes: block.block_bytes(),
        blocks,
        part_blocks: blocks.min((transfer_max / block_bytes).max(1) as u32),
    };
    let ledger = args.verify.then(|| Ledger::new(units)).transpose()?;
    Ok(Target { device: Arc::clone(device), nsid, identity, unit, units, ledger, fill })
}

/// The word that a row of the table begins with.
pub(crate) fn transport(transport: Transport) -> &'static str {
    match transport {
        Transport::InProcess => "VIRT",
        Transport::VfioUser => "VFIO-USER",
        Transport::Tcp => "TCP",
        _ => "NVME",
    }
}

/// Bytes that filling devices in memory takes.
fn memory_needed(targets: &[Target]) -> u64 {
    let in_memory = |target: &&Target| {
        let name = target.device.name();
        target.fill && name.starts_with("mem:") && !keeps_nothing(name)
    };
    targets.iter().filter(in_memory).map(|target| target.units * target.unit.bytes() as u64).sum()
}

/// The memory there is, in whole MiB, when it is known to be less than what is needed.
fn too_little(needed: u64, available: Option<u64>) -> Option<Size> {
    available.filter(|&available| needed > available).map(|available| Size(available >> 20 << 20))
}

/// Refuses to fill more memory than there is: the kernel would end this process, or another one, in the
/// middle.
fn check_memory(needed: u64, available: Option<u64>) -> Result<()> {
    let Some(available) = too_little(needed, available) else { return Ok(()) };
    let needed = Size(needed);
    Err(usage(format!(
        "-r: filling devices in memory takes {needed}, and {available} are available; use a smaller device or --range"
    )))
}

fn depth_max(shapes: &[Shape]) -> u16 {
    shapes.iter().map(|shape| shape.depth).max().unwrap_or(1)
}

/// The option that the depth is from.
fn depth_option(args: &Perf) -> &'static str {
    if args.matrix.iter().any(|axis| matches!(axis, Axis::Depth(_))) { "--matrix depth" } else { "-q" }
}

/// What becomes of commands beyond what a device takes, whose queues have room for `most`, when `depth` of
/// them are outstanding by that option.
fn beyond(unit: Unit, most: u16, option: &str, depth: u16) -> Option<String> {
    let parts = unit.parts();
    let mut said = Vec::new();
    if parts > 1 {
        let part = Size(u64::from(unit.part_blocks) * u64::from(unit.block_bytes));
        let whole = Size(unit.bytes() as u64);
        said.push(format!("-o {whole} goes in {parts} commands of at most {part}, and counts once"));
    }
    if u64::from(depth) * u64::from(parts) > most.into() {
        said.push(format!("{option} {depth}: its queue takes {most} commands, and the others wait here"));
    }
    if said.is_empty() { None } else { Some(said.join("; ")) }
}

/// Refuses commands whose buffers are more memory than there is.
fn check_buffers(targets: &[Target], depth: u16, threads: usize, available: Option<u64>) -> Result<()> {
    let each: u64 = targets.iter().map(|target| target.unit.bytes() as u64).sum();
    let needed = each.saturating_mul(depth.into()).saturating_mul(threads as u64);
    let Some(available) = too_little(needed, available) else { return Ok(()) };
    Err(usage(format!(
        "-o, -q: the buffers take {needed} bytes, and {available} are available; use a smaller one of them"
    )))
}

fn check_limits(args: &Perf, targets: &[Target], shapes: &[Shape]) -> Result<()> {
    let depth = depth_max(shapes);
    let threads = shapes.iter().map(|shape| shape.threads).max().unwrap_or(1);
    let option = depth_option(args);
    check_buffers(targets, depth, threads, machine::memory_available())?;
    for target in targets {
        let name = target.device.name();
        let controller = target.device.controller();
        let same = targets.iter().filter(|other| Arc::ptr_eq(&other.device, &target.device)).count();
        let (queues, most) = (threads * same, controller.queues_max());
        ensure!(
            queues <= most,
            usage(format!(
                "-c: {threads} threads on {same} namespaces need {queues} queues, and {name} has {most}"
            ))
        );
        let share = target.units / threads as u64;
        ensure!(
            target.ledger.is_none() || share > u64::from(depth),
            usage(format!(
                "--verify: each thread needs more units of its own than its {depth} commands, and has {share}; use a \
                 larger --range or a smaller {option}"
            ))
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_a_device_is_said_in_one_line() {
        let unit = |part_blocks| Unit { block_bytes: 512, blocks: 2048, part_blocks };
        assert_eq!(beyond(unit(2048), 127, "-q", 127), None);
        let deep = beyond(unit(2048), 127, "-q", 128).expect("too deep");
        assert_eq!(deep, "-q 128: its queue takes 127 commands, and the others wait here");
        let large = beyond(unit(256), 127, "-q", 15).expect("too large");
        assert_eq!(large, "-o 1M goes in 8 commands of at most 128K, and counts once");
        let both = beyond(unit(256), 127, "--matrix depth", 16).expect("both");
        assert_eq!(
            both,
            "-o 1M goes in 8 commands of at most 128K, and counts once; --matrix depth 16: its queue takes 127 \
             commands, and the others wait here"
        );
    }

    #[test]
    fn more_memory_than_there_is_is_not_filled() {
        assert!(check_memory(4 << 30, Some(4 << 30)).is_ok());
        assert!(check_memory(u64::MAX, None).is_ok());
        let message = check_memory(8 << 40, Some((6 << 30) + 5)).expect_err("too much").to_string();
        assert_eq!(
            message,
            "-r: filling devices in memory takes 8T, and 6G are available; use a smaller device or --range"
        );
    }
}
