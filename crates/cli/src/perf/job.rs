//! One workload, checked against the devices that are there.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use unvme::fdp::PlacementId;
use unvme::{Block, Device, Error, Kv, Nsid, Size, Transport};
use unvme_spec::kv::LIST_HEADER_BYTES;

use super::addresses::{Distribution, Mix, Random};
use super::blend::{Blend, Recipe};
use super::breaks::{Breaks, Burst, Pause};
use super::keys::Keys;
use super::lane::Unit;
use super::ledger::Ledger;
use super::pace::Arrivals;
use super::pairs::Pairs;
use super::pattern::Pattern;
use super::placement::{Placements, Select};
use super::replay::{Recording, Replay, Speed};
use super::rest::Completion;
use super::settings::Settings;
use crate::exit::usage;
use crate::report::{
    BurstShape, DeviceIdentity, PairsShape, PlacedWrites, Shape, SizeShare, TraceShape, Workload,
};

/// Pairs where nobody says how many, at most, and keys of a list.
const KEYS_MAX: u64 = 1_000_000;
const SCAN_LENGTH: u32 = 100;
/// Where the streams of the seed begin that choose how long lists are.
const LIST_STREAMS: u64 = 1 << 41;

/// A namespace that a job is about.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) device: Arc<Device>,
    pub(super) nsid: Nsid,
    /// For the report.
    pub(super) identity: DeviceIdentity,
    /// Size of a command, and of those that the device takes.
    pub(super) unit: Unit,
    /// Units in use.
    pub(super) units: Range<u64>,
    /// Present with `--verify`.
    pub(super) ledger: Option<Arc<Ledger>>,
    /// The keys, where it is one of pairs: a unit is a pair then, and its blocks are bytes of its value.
    pub(super) keys: Option<Arc<Keys>>,
}

impl Target {
    /// Checks what the settings ask of a namespace. Errors: a usage error that names the option.
    pub(super) fn new(settings: &Settings, device: &Arc<Device>, identity: &DeviceIdentity) -> Result<Self> {
        let nsid = Nsid(identity.nsid);
        if identity.block_bytes == 0 {
            return Self::of_pairs(settings, device, identity);
        }
        ensure_blocks(settings, identity)?;
        let mut block = device.block(nsid)?;
        if let Some(placements) = &settings.fdp_pid {
            block.check_placements(&placements.0).map_err(|e| match e {
                Error::Argument(reason) => usage(format!("--fdp-pid: {reason}")),
                e => anyhow::Error::new(e).context("--fdp-pid"),
            })?;
        }
        let (unit, units) = extent(settings, &block, device.name())?;
        let (device, identity) = (Arc::clone(device), identity.clone());
        Ok(Self { device, nsid, identity, unit, units, ledger: None, keys: None })
    }

    /// The same of a namespace of pairs.
    fn of_pairs(settings: &Settings, device: &Arc<Device>, identity: &DeviceIdentity) -> Result<Self> {
        let nsid = Nsid(identity.nsid);
        let kv = device.kv(nsid)?;
        let keys = keys_of(settings, &kv, identity)?;
        let value_bytes = settings.io_size();
        let lists = LIST_HEADER_BYTES + keys.scan_max as usize * keys.entry_bytes();
        let lists = if settings.pattern() == Pattern::YcsbE { lists as u64 } else { 0 };
        let blocks = value_bytes.max(lists).next_multiple_of(4) as u32;
        let unit = Unit { block_bytes: 1, blocks, part_blocks: blocks };
        let (device, identity) = (Arc::clone(device), identity.clone());
        Ok(Self {
            device,
            nsid,
            identity,
            unit,
            units: 0..keys.loaded,
            ledger: None,
            keys: Some(Arc::new(keys)),
        })
    }

    pub(super) fn block(&self) -> Result<Block> {
        Ok(self.device.block(self.nsid)?)
    }

    /// Commands that a queue of the device takes.
    pub(super) fn queue_depth_max(&self) -> u16 {
        self.device.controller().queue_depth_max()
    }

    /// True when it is of that namespace.
    pub(super) fn is_on(&self, device: &Arc<Device>, nsid: Nsid) -> bool {
        Arc::ptr_eq(&self.device, device) && self.nsid == nsid
    }

    /// Units in use.
    pub(super) fn count(&self) -> u64 {
        self.units.end - self.units.start
    }

    /// Bytes of them.
    pub(super) fn bytes(&self) -> u64 {
        self.count() * self.unit.bytes() as u64
    }
}

/// Settings of pairs are of no use for blocks.
fn ensure_blocks(settings: &Settings, identity: &DeviceIdentity) -> Result<()> {
    let label = identity.label();
    if settings.pattern().is_of_pairs() {
        let name = settings.pattern().name();
        return Err(usage(format!(
            "-w {name}: {label} has blocks; use read, write, randread, randwrite, rw or randrw"
        )));
    }
    let options = [
        ("--keys", settings.keys.is_some()),
        ("--key-size", settings.key_size.is_some()),
        ("--scan-length", settings.scan_length.is_some()),
        ("--dist latest", settings.dist == Some(Distribution::Latest)),
    ];
    match options.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(usage(format!("{option}: {label} has blocks, and no keys"))),
        None => Ok(()),
    }
}

/// The keys that are used of a namespace of pairs. Errors: a usage error that names the option.
fn keys_of(settings: &Settings, kv: &Kv, identity: &DeviceIdentity) -> Result<Keys> {
    let (label, limits, pattern) = (identity.label(), kv.limits(), settings.pattern());
    if !pattern.is_of_pairs() {
        let name = pattern.name();
        return Err(usage(format!(
            "-w {name}: {label} has pairs; use retrieve, store, exist, delete, mixed or ycsb-a to ycsb-f"
        )));
    }
    let options = [
        ("--trim", settings.trim.is_some()),
        ("--flush-every", settings.flush_every.is_some()),
        ("--fdp-pid", settings.fdp_pid.is_some()),
        ("--range", settings.range.is_some()),
        ("--offset", settings.offset.is_some()),
        ("--scan-length", settings.scan_length.is_some() && pattern != Pattern::YcsbE),
    ];
    if let Some((option, _)) = options.iter().find(|(_, given)| *given) {
        let name = pattern.name();
        return Err(usage(format!("{option}: it says nothing of `-w {name}` on {label}; leave it out")));
    }
    let value_bytes = settings.io_size();
    if value_bytes > limits.value_bytes_max as u64 {
        let (option, most) = (settings.size_option(), limits.value_bytes_max);
        return Err(usage(format!("{option} {value_bytes}: {label} stores values of at most {most} bytes")));
    }
    if pattern == Pattern::YcsbE && limits.standard.is_none() {
        return Err(usage(format!("-w ycsb-e: {label} has no List, which is of the Key Value Command Set")));
    }
    let key_bytes = settings.key_size.unwrap_or(16);
    // Keys of more than 16 bytes are the vendor commands', which have no List.
    let most = limits
        .standard
        .filter(|_| pattern == Pattern::YcsbE)
        .map_or(limits.key_bytes_max, |of| of.key_bytes_max);
    if !(limits.key_bytes_min..=most).contains(&key_bytes.into()) {
        let least = limits.key_bytes_min;
        return Err(usage(format!(
            "--key-size {key_bytes}: {label} takes keys of {least} to {most} bytes here"
        )));
    }
    let fit = (identity.capacity_bytes / 2 / (value_bytes + u64::from(key_bytes)).max(1)).clamp(1, KEYS_MAX);
    let loaded =
        settings.keys.unwrap_or(fit.min(limits.keys_max.map_or(u64::MAX, |keys| u64::from(keys) / 2)).max(1));
    if loaded == 0 || loaded > Keys::most(key_bytes) {
        let most = Keys::most(key_bytes);
        return Err(usage(format!("--keys {loaded}: keys of {key_bytes} bytes are 1 to {most}")));
    }
    Ok(Keys::new(loaded, key_bytes, settings.scan_length.unwrap_or(SCAN_LENGTH)))
}

/// Size of a command, and which units of it the settings leave of a namespace.
fn extent(settings: &Settings, block: &Block, name: &str) -> Result<(Unit, Range<u64>)> {
    let nsid = block.nsid();
    let block_bytes = u64::from(block.block_bytes());
    let transfer_max = u64::from(block.namespace().transfer_blocks_max()) * block_bytes;
    let (io_bytes, option) = (settings.io_size(), settings.size_option());
    if let Some(broken) = settings.size_mix.as_ref().and_then(|mix| mix.broken(block_bytes)) {
        return Err(usage(format!(
            "--size-mix {broken}: {name} namespace {nsid} has blocks of {block_bytes} bytes; expected multiples of that"
        )));
    }
    if io_bytes == 0 || !io_bytes.is_multiple_of(block_bytes) {
        let message = format!(
            "{option} {io_bytes}: {name} namespace {nsid} has blocks of {block_bytes} bytes; expected a multiple of that"
        );
        return Err(usage(message));
    }
    let offset = settings.offset.unwrap_or(0);
    if !offset.is_multiple_of(io_bytes) {
        return Err(usage(format!(
            "--offset {}: expected a multiple of {option}, {}",
            Size(offset),
            Size(io_bytes)
        )));
    }
    let bytes = block.bytes();
    let end = offset.saturating_add(settings.range.unwrap_or(u64::MAX)).min(bytes) / io_bytes;
    let units = offset / io_bytes..end;
    if units.is_empty() {
        let options = if offset > 0 { "--offset, --range" } else { "--range" };
        let message = format!(
            "{options}, {option}: not one command of {io_bytes} bytes is in the range; {name} namespace {nsid} has {bytes} bytes"
        );
        return Err(usage(message));
    }
    let blocks = u32::try_from(io_bytes / block_bytes).map_err(|_| {
        usage(format!("{option} {io_bytes}: a command of at most {} blocks is measured", u32::MAX))
    })?;
    let part_blocks = blocks.min((transfer_max / block_bytes).max(1) as u32);
    Ok((Unit { block_bytes: block.block_bytes(), blocks, part_blocks }, units))
}

/// What some threads do for a while.
#[derive(Debug)]
pub(super) struct Job {
    /// What it goes by, where several run at once.
    pub(super) name: Option<String>,
    pub(super) targets: Vec<Target>,
    /// The core of each thread.
    pub(super) cores: Vec<usize>,
    /// Commands outstanding per thread and namespace.
    pub(super) depth: u16,
    pub(super) mix: Mix,
    pub(super) warmup: Duration,
    /// `None`: until the amount of data has been moved.
    pub(super) time: Option<Duration>,
    /// Commands of all threads on all targets.
    pub(super) limit: Option<u64>,
    pub(super) rate: Option<u64>,
    pub(super) arrivals: Arrivals,
    pub(super) completion: Completion,
    /// How commands differ.
    recipe: Recipe,
    think: Option<Pause>,
    burst: Option<Burst>,
    /// What is replayed, and how fast.
    recorded: Option<(Arc<Recording>, Speed)>,
    placements: Vec<PlacementId>,
    select: Select,
    pub(super) workload: Workload,
}

impl Job {
    /// What the settings say of `targets`. Errors: a usage error that names the option.
    pub(super) fn new(
        settings: &Settings,
        seed: u64,
        cores: Vec<usize>,
        targets: Vec<Target>,
    ) -> Result<Self> {
        let mix = mix(settings, seed)?;
        check_dependent(settings)?;
        let io_bytes = settings.io_size();
        let used = targets.iter().map(Target::bytes).sum();
        let recipe = Recipe {
            sizes: settings.size_mix.clone(),
            trim_percent: settings.trim.unwrap_or(0),
            flush_every: settings.flush_every,
        };
        let mean_bytes = settings.size_mix.as_ref().map_or(io_bytes, |mix| mix.mean().max(1));
        let limit = settings.amount.map(|amount| amount.bytes(used).div_ceil(mean_bytes));
        let workload = Workload {
            pattern: settings.pattern().name().to_owned(),
            io_bytes,
            read_percent: mix.read_percent.into(),
            distribution: mix.distribution.to_string(),
            seconds: settings.time().unwrap_or(0.0),
            amount: settings.amount.map(|amount| amount.to_string()),
            verify: false,
            rate_limit_iops: settings.rate,
            arrivals: settings.rate.map(|_| settings.arrivals().name().to_owned()),
            commands: None,
            virtual_time: false,
            placement: settings.fdp_pid.as_ref().map(|list| PlacedWrites {
                identifiers: list.0.iter().map(|id| id.0).collect(),
                select: settings.fdp_select().name().to_owned(),
            }),
            shape: shape(settings, &targets),
        };
        Ok(Self {
            name: None,
            targets,
            cores,
            depth: settings.depth(),
            mix,
            warmup: Duration::from_secs_f64(settings.warmup()),
            time: settings.time().map(Duration::from_secs_f64),
            limit,
            rate: settings.rate,
            arrivals: settings.arrivals(),
            completion: settings.completion(),
            recipe,
            think: settings.think,
            burst: settings.burst,
            recorded: None,
            placements: settings.fdp_pid.as_ref().map(|list| list.0.clone()).unwrap_or_default(),
            select: settings.fdp_select(),
            workload,
        })
    }

    /// What is replayed, on the namespace and the thread that it has. Errors: a usage error: there is less
    /// than that of the namespace, or more than one of them.
    pub(super) fn replay(&mut self, recording: &Arc<Recording>, speed: Speed) -> Result<()> {
        let [target] = &self.targets[..] else {
            return Err(usage("--trace: one namespace replays it; choose one with -r and -n"));
        };
        if self.threads() > 1 {
            return Err(usage(
                "--trace: one thread replays it; use -q instead of --threads or more cores in -c",
            ));
        }
        let capacity = target.identity.capacity_bytes;
        if recording.reach > capacity {
            let (path, label) = (recording.path.display(), target.identity.label());
            // Devices in memory come in steps of 2 MiB.
            let (reach, capacity) = (Size(recording.reach.next_multiple_of(2 << 20)), Size(capacity));
            return Err(usage(format!(
                "--trace: {path} reaches {reach}, and {label} has {capacity}; use a larger device (mem:block:{reach} takes \
                 memory for what is written alone), or one of the trace's with --trace-device"
            )));
        }
        self.limit = Some(recording.requests);
        self.workload.pattern = "replay".to_owned();
        self.workload.shape.trace = Some(TraceShape {
            file: recording.path.display().to_string(),
            requests: recording.requests,
            speed: recording.rate(speed).map(|_| speed.to_string()),
        });
        self.recorded = Some((Arc::clone(recording), speed));
        Ok(())
    }

    /// What a lane replays, if anything.
    pub(super) fn replay_of(&self, unit: Unit) -> Option<Replay> {
        self.recorded.as_ref().map(|(recording, speed)| Replay::new(recording, *speed, unit.block_bytes))
    }

    /// Commands that become due per second, where that does not depend on the device.
    pub(super) fn asked(&self) -> Option<f64> {
        match &self.recorded {
            Some((recording, speed)) => recording.rate(*speed),
            None => self.rate.map(|rate| rate as f64),
        }
    }

    /// The option that says how large commands are.
    pub(super) fn size_option(&self) -> &'static str {
        if self.recorded.is_some() { "--trace: a request of" } else { "-o" }
    }

    /// The seed of that round: independent figures, and yet the same again the next time.
    pub(super) fn seed(&self, round: u32) -> u64 {
        self.mix.seed.wrapping_add(round.into())
    }

    /// Where the writes of lane number `stream` go, if that was said.
    pub(super) fn placements(&self, seed: u64, stream: u64) -> Option<Placements> {
        Placements::new(&self.placements, self.select, seed, stream)
    }

    /// What lane number `stream` does to the pairs of a target, if it has some.
    pub(super) fn pairs(&self, target: &Target, seed: u64, stream: u64) -> Option<Pairs> {
        let is_latest = self.mix.distribution == Distribution::Latest;
        let random = Random::new(seed, LIST_STREAMS + stream);
        target.keys.as_ref().map(|keys| Pairs::new(keys, self.mix.pattern, is_latest, random))
    }

    /// How the commands of lane number `stream` differ, if they do.
    pub(super) fn blend(&self, unit: Unit, seed: u64, stream: u64) -> Option<Blend> {
        match &self.recorded {
            Some(_) => Some(Blend::of_a_trace(unit)),
            None => Blend::new(&self.recipe, unit, seed, stream),
        }
    }

    /// When a lane submits nothing, if there is such a time.
    pub(super) fn breaks(&self) -> Option<Breaks> {
        Breaks::new(self.think, self.burst)
    }

    /// True where commands have different sizes.
    pub(super) fn has_sizes(&self) -> bool {
        self.recipe.sizes.is_some() || self.recorded.is_some() || self.has_pairs()
    }

    /// True where pairs are measured.
    pub(super) fn has_pairs(&self) -> bool {
        self.targets.iter().any(|target| target.keys.is_some())
    }

    /// True where some commands deallocate.
    pub(super) fn has_trims(&self) -> bool {
        self.recipe.trim_percent > 0 || self.recorded.as_ref().is_some_and(|(recording, _)| recording.trims)
    }

    /// True where flushes go out.
    pub(super) fn has_flushes(&self) -> bool {
        let is_recorded = self.recorded.as_ref().is_some_and(|(recording, _)| recording.flushes);
        self.recipe.flush_every.is_some() || is_recorded
    }

    /// Number of threads.
    pub(super) fn threads(&self) -> usize {
        self.cores.len()
    }

    /// Lanes of all threads.
    pub(super) fn lanes(&self) -> usize {
        self.threads() * self.targets.len()
    }

    /// Commands of lane number `index`, where their number is limited.
    pub(super) fn limit_of(&self, index: usize) -> Option<u64> {
        let lanes = self.lanes() as u64;
        self.limit.map(|limit| limit / lanes + u64::from((index as u64) < limit % lanes))
    }

    /// What it takes, as far as that is known.
    pub(super) fn duration(&self) -> Duration {
        self.warmup + self.time.unwrap_or_default()
    }
}

/// Which addresses, and which of them are read. Errors: a usage error about options that say nothing of
/// the pattern.
pub(super) fn mix(settings: &Settings, seed: u64) -> Result<Mix> {
    let (pattern, distribution) = (settings.pattern(), settings.dist());
    let read_percent = match settings.read_percent {
        Some(percent) if pattern.is_mixed() => percent,
        Some(_) => {
            let (name, mixed) =
                (pattern.name(), if pattern.is_of_pairs() { "mixed" } else { "rw or randrw" });
            return Err(usage(format!("-M: `-w {name}` does not mix; use {mixed}")));
        }
        None => pattern.read_percent(),
    };
    if distribution != Distribution::Uniform && !pattern.is_random() {
        let name = pattern.name();
        return Err(usage(format!("--dist: the addresses of `-w {name}` are sequential; use rand{name}")));
    }
    Ok(Mix { pattern, read_percent, distribution, seed })
}

/// What the report says of commands that differ.
fn shape(settings: &Settings, targets: &[Target]) -> Shape {
    let sizes = settings.size_mix.iter().flat_map(|mix| mix.sizes());
    Shape {
        pairs: targets.iter().find_map(|target| {
            let keys = target.keys.as_ref()?;
            Some(PairsShape { keys: keys.loaded, key_bytes: keys.bytes })
        }),
        trace: None,
        size_mix: sizes.map(|&(bytes, weight)| SizeShare { bytes, weight }).collect(),
        trim_percent: settings.trim.filter(|&percent| percent > 0).map(u32::from),
        flush_every: settings.flush_every,
        completion: settings.completion.map(|how| how.name().to_owned()),
        think_us: settings.think.map(Pause::us),
        burst: settings.burst.map(|of| BurstShape { commands: of.commands, pause_us: of.pause.us() }),
    }
}

/// Settings that say something of others want those, and some exclude others.
fn check_dependent(settings: &Settings) -> Result<()> {
    let pattern = settings.pattern();
    check_blend(settings)?;
    match (&settings.fdp_pid, settings.fdp_select) {
        (Some(_), _) if !pattern.writes() => {
            return Err(usage(format!("--fdp-pid: `-w {}` does not write", pattern.name())));
        }
        (None, Some(_)) => return Err(usage("--fdp-select: expected --fdp-pid with it, to select from")),
        _ => {}
    }
    match (settings.rate, settings.arrivals) {
        (None, Some(_)) => Err(usage("--arrivals: expected --rate with it, whose commands arrive so")),
        _ => Ok(()),
    }
}

/// Settings of commands that differ want some others, and exclude some.
fn check_blend(settings: &Settings) -> Result<()> {
    let pattern = settings.pattern();
    if settings.size_mix.is_some() && settings.io_size.is_some() {
        return Err(usage("--size-mix: it says how large commands are; leave out -o"));
    }
    let options = [("--trim", settings.trim.is_some()), ("--flush-every", settings.flush_every.is_some())];
    if let Some((option, _)) = options.iter().find(|(_, given)| *given && !pattern.writes()) {
        let name = pattern.name();
        return Err(usage(format!(
            "{option}: `-w {name}` does not write; use one of write, randwrite, rw, randrw"
        )));
    }
    let options = [("--think", settings.think.is_some()), ("--burst", settings.burst.is_some())];
    if let Some((option, _)) = options.iter().find(|(_, given)| *given && settings.rate.is_some()) {
        return Err(usage(format!("{option}: --rate says when commands are due; leave one of them out")));
    }
    let reads = pattern.is_mixed() && settings.read_percent != Some(0);
    if settings.trim == Some(100) && settings.amount.is_some() && !reads {
        return Err(usage("--trim 100: no data is moved that --amount could be of; use --time"));
    }
    Ok(())
}

/// A trace excludes what it says itself, and what is said of one wants one. Errors: a usage error that
/// names the option.
pub(super) fn check_trace(settings: &Settings) -> Result<()> {
    if settings.trace.is_none() {
        let options = [
            ("--trace-format", settings.trace_format.is_some()),
            ("--trace-device", !settings.trace_device.is_empty()),
            ("--trace-speed", settings.trace_speed.is_some()),
        ];
        return match options.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(usage(format!("{option}: expected --trace with it"))),
            None => Ok(()),
        };
    }
    let options = [
        ("-w", settings.pattern.is_some()),
        ("-M", settings.read_percent.is_some()),
        ("-o", settings.io_size.is_some()),
        ("--size-mix", settings.size_mix.is_some()),
        ("--trim", settings.trim.is_some()),
        ("--flush-every", settings.flush_every.is_some()),
        ("--amount", settings.amount.is_some()),
        ("--rate", settings.rate.is_some()),
        ("--arrivals", settings.arrivals.is_some()),
        ("--think", settings.think.is_some()),
        ("--burst", settings.burst.is_some()),
        ("--dist", settings.dist.is_some()),
        ("--fdp-select", settings.fdp_select.is_some()),
        ("--range", settings.range.is_some()),
        ("--offset", settings.offset.is_some()),
    ];
    match options.iter().find(|(_, given)| *given) {
        Some((option, _)) => {
            Err(usage(format!("{option}: --trace says what is done; leave one of them out")))
        }
        None => Ok(()),
    }
}

/// The settings of a workload that has what there is in a trace, on blocks of that size; what was typed
/// beside it stays.
pub(super) fn as_workload(typed: &Settings, recording: &Recording, block_bytes: u32) -> Settings {
    let (pattern, read_percent) = match recording.read_percent {
        0 => (Pattern::Randwrite, None),
        100 => (Pattern::Randread, None),
        percent => (Pattern::Randrw, Some(percent)),
    };
    let io_size = recording.slot_bytes(block_bytes);
    Settings {
        pattern: Some(pattern),
        read_percent,
        io_size: Some(io_size),
        range: Some(recording.reach.next_multiple_of(io_size)),
        ..typed.clone()
    }
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

/// What becomes of commands beyond what a device takes, whose queues have room for `most`, when `depth` of
/// them are outstanding; options say which size and depth those are.
pub(super) fn beyond(unit: Unit, most: u16, (size, option): (&str, &str), depth: u16) -> Option<String> {
    let parts = unit.parts();
    let mut said = Vec::new();
    if parts > 1 {
        let part = Size(u64::from(unit.part_blocks) * u64::from(unit.block_bytes));
        let whole = Size(unit.bytes() as u64);
        said.push(format!("{size} {whole} goes in {parts} commands of at most {part}, and counts once"));
    }
    if u64::from(depth) * u64::from(parts) > most.into() {
        said.push(format!("{option} {depth}: its queue takes {most} commands, and the others wait here"));
    }
    if said.is_empty() { None } else { Some(said.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_a_device_is_said_in_one_line() {
        let unit = |part_blocks| Unit { block_bytes: 512, blocks: 2048, part_blocks };
        assert_eq!(beyond(unit(2048), 127, ("-o", "-q"), 127), None);
        let deep = beyond(unit(2048), 127, ("-o", "-q"), 128).expect("too deep");
        assert_eq!(deep, "-q 128: its queue takes 127 commands, and the others wait here");
        let large = beyond(unit(256), 127, ("-o", "-q"), 15).expect("too large");
        assert_eq!(large, "-o 1M goes in 8 commands of at most 128K, and counts once");
        let both = beyond(unit(256), 127, ("-o", "--matrix depth"), 16).expect("both");
        assert_eq!(
            both,
            "-o 1M goes in 8 commands of at most 128K, and counts once; --matrix depth 16: its queue takes 127 \
             commands, and the others wait here"
        );
    }
}
