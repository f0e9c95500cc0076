//! Everything that is to be measured, checked against the devices that are there.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, ensure};
use unvme::{Device, NamespaceEntry, Nsid, OpenOptions, Size, Transport, lock, open};
use unvme_flash::PAGE_BYTES;
use unvme_spec::identify::csi;

use super::args::Perf;
use super::cores;
use super::job::{Job, Target, as_workload, beyond, check_trace, transport};
use super::ledger::Ledger;
use super::load::Loaded;
use super::machine;
use super::matrix;
use super::pattern::Pattern;
use super::replay::Recording;
use super::rest::Completion;
use super::settings::Settings;
use super::sheet::{Phase, Rounds};
use super::watch::{VirtualTime, check_modelled};
use crate::exit::usage;
use crate::report::{DeviceIdentity, Setting, Workload};
use crate::target::blocks_or_what_there_is;
use crate::trace::Format;

/// A namespace that is measured.
#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) device: Arc<Device>,
    pub(super) nsid: Nsid,
    /// For the report.
    pub(super) identity: DeviceIdentity,
    /// It is written once before the first point: these bytes of it.
    pub(super) fill: Option<std::ops::Range<u64>>,
    /// Some job writes to it.
    is_written: bool,
}

impl Namespace {
    /// True when reads may find blocks that were never written.
    pub(super) fn may_be_empty(&self) -> bool {
        let is_kept = self.device.is_virtual() && !keeps_nothing(self.device.name());
        is_kept && self.identity.block_bytes > 0 && self.fill.is_none() && !self.is_written
    }
}

/// Jobs that run at the same time: one point of the report.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) phase: Option<String>,
    /// What tells it from others of the phase.
    pub(super) at: Vec<Setting>,
    pub(super) jobs: Vec<Job>,
    /// It is measured until it is steady.
    pub(super) rounds: Option<Rounds>,
}

impl Stage {
    /// Threads of all jobs.
    pub(super) fn threads(&self) -> usize {
        self.jobs.iter().map(|job| job.threads()).sum()
    }

    /// The most that a job keeps outstanding.
    pub(super) fn depth(&self) -> u16 {
        self.jobs.iter().map(|job| job.depth).max().unwrap_or(1)
    }

    /// What it takes once, as far as that is known.
    pub(super) fn duration(&self) -> Duration {
        self.jobs.iter().map(Job::duration).max().unwrap_or_default()
    }

    /// What all rounds of it take at most.
    pub(super) fn planned(&self) -> Duration {
        self.duration() * self.rounds.as_ref().map_or(1, |rounds| rounds.max)
    }

    /// For the report.
    pub(super) fn workload(&self) -> Option<&Workload> {
        self.jobs.first().map(|job| &job.workload)
    }
}

/// Everything there is to do.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) namespaces: Vec<Namespace>,
    pub(super) stages: Vec<Stage>,
    /// What is to be said of jobs that are more than devices and cores take.
    pub(super) notes: Vec<String>,
    /// The clock of the devices, with `--virtual-time`.
    pub(super) virtual_time: Option<VirtualTime>,
    /// Length of an interval of the rate over time, where that was said.
    pub(super) interval: Option<Duration>,
    ledgers: Vec<(Arc<Device>, Nsid, u32, Arc<Ledger>)>,
    /// What namespaces of pairs have got.
    pairs: Mutex<Vec<(Arc<Device>, Nsid, Loaded)>>,
    /// Traces that have been read.
    recordings: Vec<(Source, Arc<Recording>)>,
    stop: Arc<AtomicBool>,
}

/// A trace: its file, its form, and devices of it.
type Source = (PathBuf, Option<Format>, Vec<String>);

/// A job to be, of a stage to be.
struct Draft {
    name: Option<String>,
    settings: Settings,
}

/// A stage to be.
struct Outline {
    phase: Option<String>,
    at: Vec<Setting>,
    drafts: Vec<Draft>,
    rounds: Option<Rounds>,
}

impl Outline {
    /// The core of each thread of each job. A job has as many threads as it says, or one on each core that
    /// was named; one where several jobs run. Jobs of a stage that name the same cores take them in turn.
    /// Errors: a usage error about a core that this process may not use, or too few of them.
    fn cores(&self) -> Result<Vec<Vec<usize>>> {
        let several = self.drafts.len() > 1;
        let first = self.drafts.first().map(|draft| &draft.settings.cores);
        let is_shared = self.drafts.iter().all(|draft| Some(&draft.settings.cores) == first);
        let mut taken = 0;
        let mut all = Vec::new();
        for Draft { settings, .. } in &self.drafts {
            let pool = pool(settings, several)?;
            let threads = match settings.threads {
                Some(threads) => threads as usize,
                None if settings.cores.is_some() && !several => pool.len(),
                None => 1,
            };
            ensure!(
                several || threads <= pool.len(),
                usage(format!(
                    "--threads: each thread has a core of its own, and {threads} threads are more than the cores {}",
                    cores::display(&pool)
                ))
            );
            let skipped = if is_shared { taken } else { 0 };
            all.push(pool.iter().copied().cycle().skip(skipped).take(threads).collect());
            taken = (taken + threads) % pool.len().max(1);
        }
        Ok(all)
    }
}

/// The cores that threads of a job may run on. Errors: a usage error about one this process may not use.
fn pool(settings: &Settings, several: bool) -> Result<Vec<usize>> {
    let available = cores::available()?;
    match &settings.cores {
        Some(typed) => match typed.0.iter().find(|core| !available.contains(core)) {
            Some(missing) => Err(usage(format!(
                "-c: core {missing} is not there; this process may use {}",
                cores::display(&available)
            ))),
            None => Ok(typed.0.clone()),
        },
        None if several || settings.threads.is_some() => Ok(available),
        None => Ok(available.first().copied().into_iter().collect()),
    }
}

impl Session {
    /// Opens the devices and checks everything that can be known before the first command. Errors: a usage
    /// error that names the option; those of opening a device; a refusal to write to a real one.
    pub(super) fn new(args: &Perf, phases: &[Phase], top: &Settings, stop: Arc<AtomicBool>) -> Result<Self> {
        let outlines = outlines(args, phases, top)?;
        let drafts = || outlines.iter().flat_map(|outline| &outline.drafts);
        check_virtual(args, &outlines)?;
        let mut session = Self {
            namespaces: Vec::new(),
            stages: Vec::new(),
            notes: Vec::new(),
            virtual_time: args.virtual_time.then(VirtualTime::new),
            interval: args.interval.map(Duration::from_secs_f64),
            ledgers: Vec::new(),
            pairs: Mutex::default(),
            recordings: Vec::new(),
            stop,
        };
        for draft in drafts() {
            ensure!(!draft.settings.devices.is_empty(), usage("-r: expected a device, such as mem:block:1G"));
            for name in &draft.settings.devices {
                session.open(args, name, &draft.settings)?;
            }
        }
        for outline in &outlines {
            let stage = session.stage(args, outline)?;
            session.stages.push(stage);
        }
        session.plan_filling(args)?;
        check_memory(session.memory_needed(), machine::memory_available())?;
        session.check_limits()?;
        Ok(session)
    }

    /// Opens a device and its namespaces, once.
    fn open(&mut self, args: &Perf, name: &str, settings: &Settings) -> Result<()> {
        let known = self.namespaces.iter().find(|namespace| namespace.device.name() == name);
        let device = match known {
            Some(namespace) => Arc::clone(&namespace.device),
            None => {
                let options =
                    self.virtual_time.as_ref().map_or_else(OpenOptions::default, VirtualTime::options);
                let device = Arc::new(open(name, &options)?);
                if let Some(time) = &mut self.virtual_time {
                    time.add(&device)?;
                }
                device
            }
        };
        ensure!(
            !(args.verify && keeps_nothing(name)),
            usage(format!("--verify: {name} keeps no data that could be compared"))
        );
        for nsid in chosen(&device, settings)? {
            if self.namespaces.iter().any(|known| Arc::ptr_eq(&known.device, &device) && known.nsid == nsid) {
                continue;
            }
            let (block_bytes, capacity_bytes) = match is_of_pairs(&device, nsid)? {
                true => (0, device.kv(nsid)?.namespace().bytes()),
                false => {
                    let block = device.block(nsid)?;
                    (block.block_bytes(), block.bytes())
                }
            };
            let who = device.identity();
            let identity = DeviceIdentity {
                name: device.name().to_owned(),
                transport: transport(device.transport()).to_owned(),
                model: who.model.clone(),
                serial: who.serial.clone(),
                firmware: who.firmware.clone(),
                nsid: nsid.0,
                block_bytes,
                capacity_bytes,
            };
            let device = Arc::clone(&device);
            self.namespaces.push(Namespace { device, nsid, identity, fill: None, is_written: false });
        }
        Ok(())
    }

    fn stage(&mut self, args: &Perf, outline: &Outline) -> Result<Stage> {
        let cores = outline.cores()?;
        let mut jobs = Vec::new();
        for (index, draft) in outline.drafts.iter().enumerate() {
            ensure!(
                !args.verify || draft.settings.size_mix.is_none(),
                usage(
                    "--size-mix: --verify keeps account of units that are written whole; leave one of them out"
                )
            );
            let recording = self.recording(args, &draft.settings)?;
            let settings = match &recording {
                Some(recording) => as_workload(&draft.settings, recording, self.block_bytes(&draft.settings)),
                None => draft.settings.clone(),
            };
            let settings = self.of_pairs(args, settings)?;
            let mut targets = Vec::new();
            for name in &settings.devices {
                targets.extend(self.targets(args, name, &settings)?);
            }
            // Jobs are different streams of the same seed.
            let seed = args.seed.wrapping_add((index as u64) << 32);
            let mut job = Job::new(&settings, seed, cores[index].clone(), targets)?;
            if let Some(recording) = &recording {
                job.replay(recording, settings.trace_speed())?;
            }
            job.name.clone_from(&draft.name);
            job.workload.verify = args.verify;
            job.workload.virtual_time = args.virtual_time;
            jobs.push(job);
        }
        let Outline { phase, at, rounds, .. } = outline;
        let stage = Stage { phase: phase.clone(), at: at.clone(), jobs, rounds: rounds.clone() };
        if args.verify {
            check_apart(&stage)?;
        }
        let mut used: Vec<usize> = cores.into_iter().flatten().collect();
        used.sort_unstable();
        used.dedup();
        if stage.threads() > used.len() {
            let cores = cores::display(&used);
            let phase = stage.phase.as_deref().unwrap_or("the jobs");
            self.note(format!("{phase}: {} threads share the cores {cores}", stage.threads()));
        }
        Ok(stage)
    }

    /// The trace that is to be replayed, read once. Errors: those of [`Recording::read`], and usage errors
    /// about options beside it.
    fn recording(&mut self, args: &Perf, settings: &Settings) -> Result<Option<Arc<Recording>>> {
        check_trace(settings)?;
        let Some(path) = &settings.trace else { return Ok(None) };
        ensure!(!args.verify, usage("--verify: what a trace writes is not known; leave one of them out"));
        let source = (path.clone(), settings.trace_format, settings.trace_device.clone());
        if let Some((_, known)) = self.recordings.iter().find(|(of, _)| *of == source) {
            return Ok(Some(Arc::clone(known)));
        }
        let recording = Arc::new(Recording::read(path, settings.trace_format, &settings.trace_device)?);
        self.recordings.push((source, Arc::clone(&recording)));
        Ok(Some(recording))
    }

    /// Settings without a workload are of retrieves where there are pairs. Errors: a usage error about
    /// options that are of no use with those.
    fn of_pairs(&self, args: &Perf, settings: Settings) -> Result<Settings> {
        let pairs = || self.meant(&settings).any(|namespace| namespace.identity.block_bytes == 0);
        if !pairs() {
            return Ok(settings);
        }
        ensure!(
            self.meant(&settings).all(|namespace| namespace.identity.block_bytes == 0),
            usage("-r: some namespaces have blocks and some have pairs; measure one kind at a time")
        );
        ensure!(!args.verify, usage("--verify: values are not compared; it is for blocks"));
        ensure!(settings.trace.is_none(), usage("--trace: it is of blocks, and the namespace has pairs"));
        let pattern = Some(settings.pattern.unwrap_or(Pattern::Retrieve));
        Ok(Settings { pattern, ..settings })
    }

    /// The namespaces that settings mean.
    fn meant<'a>(&'a self, settings: &'a Settings) -> impl Iterator<Item = &'a Namespace> {
        self.namespaces.iter().filter(|of| {
            settings.devices.iter().any(|name| name == of.device.name())
                && settings.namespace_id.is_none_or(|nsid| nsid == of.nsid.0)
        })
    }

    /// Bytes of the largest blocks of the namespaces that are meant.
    fn block_bytes(&self, settings: &Settings) -> u32 {
        self.meant(settings).map(|of| of.identity.block_bytes).filter(|&bytes| bytes > 0).max().unwrap_or(512)
    }

    fn targets(&mut self, args: &Perf, name: &str, settings: &Settings) -> Result<Vec<Target>> {
        let mut targets = Vec::new();
        for index in 0..self.namespaces.len() {
            let namespace = &self.namespaces[index];
            let wanted = settings.namespace_id.is_none_or(|nsid| nsid == namespace.nsid.0);
            if namespace.device.name() != name || !wanted {
                continue;
            }
            let mut target = Target::new(settings, &namespace.device, &namespace.identity)?;
            if args.verify {
                target.ledger = Some(self.ledger(&target)?);
            }
            targets.push(target);
        }
        Ok(targets)
    }

    /// The ledger of a namespace in units of that size.
    fn ledger(&mut self, target: &Target) -> Result<Arc<Ledger>> {
        let blocks = target.unit.blocks;
        let units = target.units.end;
        let known = self.ledgers.iter().find(|(device, nsid, of, ledger)| {
            target.is_on(device, *nsid) && *of == blocks && ledger.units() >= target.units.end
        });
        if let Some((_, _, _, ledger)) = known {
            return Ok(Arc::clone(ledger));
        }
        let ledger = Arc::new(Ledger::new(units)?);
        self.ledgers.push((Arc::clone(&target.device), target.nsid, blocks, Arc::clone(&ledger)));
        Ok(ledger)
    }

    /// Which namespaces are filled before the first point, and how far.
    fn plan_filling(&mut self, args: &Perf) -> Result<()> {
        let jobs = || self.stages.iter().flat_map(|stage| &stage.jobs);
        let mut planned = Vec::new();
        for namespace in &self.namespaces {
            let name = namespace.device.name();
            let is_on =
                |job: &&Job| job.targets.iter().any(|target| Arc::ptr_eq(&target.device, &namespace.device));
            let writes = jobs().filter(is_on).any(|job| job.mix.pattern.writes());
            let mixed = jobs().filter(is_on).any(|job| job.mix.pattern.is_mixed());
            let in_memory = name.starts_with("mem:");
            let is_of_pairs = namespace.identity.block_bytes == 0;
            let pairs = is_of_pairs && jobs().filter(is_on).any(|job| job.mix.pattern.needs_pairs());
            let needed = match is_of_pairs {
                true => pairs && namespace.device.is_virtual(),
                false => writes && (namespace.device.is_virtual() || args.verify && mixed),
            };
            let in_memory = in_memory && (pairs || !is_of_pairs);
            let fill = !args.no_prefill && (args.prefill || !keeps_nothing(name) && (in_memory || needed));
            if writes || fill {
                args.force.confirm(&namespace.device, "this overwrites what is on it")?;
            }
            let again = in_memory || args.prefill || args.verify;
            let fill = fill && (again || is_of_pairs || !is_full(&namespace.device, namespace.nsid));
            let targets =
                || jobs().flat_map(|job| &job.targets).filter(|t| t.is_on(&namespace.device, namespace.nsid));
            let unit = |target: &Target| target.unit.bytes() as u64;
            let first = targets().map(|target| target.units.start * unit(target)).min().unwrap_or(0);
            let end = targets().map(|target| target.units.end * unit(target)).max().unwrap_or(0);
            planned.push((fill.then_some(first..end), writes));
        }
        for (namespace, (fill, writes)) in self.namespaces.iter_mut().zip(planned) {
            (namespace.fill, namespace.is_written) = (fill, writes);
        }
        Ok(())
    }

    /// What ledgers of other sizes hold of a namespace is not known any more once a stage has written it.
    pub(super) fn forget_for(&self, stage: &Stage) {
        let writes = stage.jobs.iter().filter(|job| job.mix.pattern.writes());
        for target in writes.flat_map(|job| &job.targets) {
            for (device, nsid, _, ledger) in &self.ledgers {
                let own = target.ledger.as_ref().is_some_and(|own| Arc::ptr_eq(own, ledger));
                if target.is_on(device, *nsid) && !own {
                    ledger.forget();
                }
            }
        }
    }

    /// Everything that has been filled is known to the ledgers.
    pub(super) fn filled(&self, namespace: &Namespace, bytes: &std::ops::Range<u64>, generation: u8) {
        for (device, nsid, blocks, ledger) in &self.ledgers {
            if Arc::ptr_eq(device, &namespace.device) && *nsid == namespace.nsid {
                let unit = u64::from(*blocks) * u64::from(namespace.identity.block_bytes);
                let units = bytes.start.div_ceil(unit)..(bytes.end / unit).min(ledger.units());
                units.for_each(|unit| ledger.release(unit, generation));
            }
        }
    }

    /// True where pairs are to be found, and nobody stores them before.
    pub(super) fn lacks_pairs(&self, namespace: &Namespace) -> bool {
        let jobs = self.stages.iter().flat_map(|stage| &stage.jobs);
        let mut needing = jobs.filter(|job| job.mix.pattern.needs_pairs()).flat_map(|job| &job.targets);
        namespace.fill.is_none() && needing.any(|target| target.is_on(&namespace.device, namespace.nsid))
    }

    /// True where pairs are stored before they are measured.
    pub(super) fn is_to_be_loaded(&self, target: &Target) -> bool {
        let own = |of: &&Namespace| target.is_on(&of.device, of.nsid);
        self.namespaces.iter().find(own).is_some_and(|namespace| namespace.fill.is_some())
    }

    /// What a namespace of pairs has got.
    pub(super) fn loaded(&self, target: &Target) -> Option<Loaded> {
        let known = lock(&self.pairs);
        known.iter().find(|(device, nsid, _)| target.is_on(device, *nsid)).map(|(.., loaded)| loaded.clone())
    }

    /// It has got that; `None`: nobody knows.
    pub(super) fn has_loaded(&self, target: &Target, loaded: Option<Loaded>) {
        let mut known = lock(&self.pairs);
        known.retain(|(device, nsid, _)| !target.is_on(device, *nsid));
        known.extend(loaded.map(|loaded| (Arc::clone(&target.device), target.nsid, loaded)));
    }

    /// The devices, each once.
    pub(super) fn devices(&self) -> Vec<Arc<Device>> {
        let mut devices: Vec<Arc<Device>> = Vec::new();
        for namespace in &self.namespaces {
            if !devices.iter().any(|device| Arc::ptr_eq(device, &namespace.device)) {
                devices.push(Arc::clone(&namespace.device));
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

    /// True when there is flash in this process, of which more is known.
    pub(super) fn has_flash(&self) -> bool {
        self.namespaces.iter().any(|namespace| namespace.device.flash_stats().is_some())
    }

    /// False when a device on the network is not there at the moment.
    pub(super) fn is_connected(&self) -> bool {
        self.namespaces.iter().all(|namespace| namespace.device.controller().is_connected())
    }

    /// True after Ctrl-C.
    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// True when there are points to choose from.
    pub(super) fn is_sweep(&self) -> bool {
        self.stages.len() > 1
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Bytes that filling devices in memory takes.
    fn memory_needed(&self) -> u64 {
        let in_memory = self.namespaces.iter().filter(|namespace| {
            let name = namespace.device.name();
            name.starts_with("mem:") && !keeps_nothing(name)
        });
        in_memory.filter_map(|namespace| namespace.fill.as_ref()).map(|bytes| bytes.end - bytes.start).sum()
    }

    fn check_limits(&mut self) -> Result<()> {
        let mut notes = Vec::new();
        for stage in &self.stages {
            for job in &stage.jobs {
                check_job(job)?;
                notes.extend(sleepless(job));
                notes.extend(job.targets.iter().filter_map(|target| {
                    let said =
                        beyond(target.unit, target.queue_depth_max(), (job.size_option(), "-q"), job.depth)?;
                    Some(format!("{}: {said}", target.identity.label()))
                }));
            }
            check_queues(stage)?;
        }
        notes.into_iter().for_each(|note| self.note(note));
        Ok(())
    }
}

/// What becomes of sleep on devices that work only while somebody looks.
fn sleepless(job: &Job) -> Option<String> {
    let how = Some(job.completion).filter(|&how| how != Completion::Poll)?;
    let local = |target: &&Target| target.device.transport() == Transport::InProcess;
    let label = job.targets.iter().find(local)?.identity.label();
    let name = how.name();
    Some(format!(
        "{label}: a device of this process works only while it is polled: --completion {name} polls"
    ))
}

/// The stages: each phase at each of its places, the phase's own settings over those of its place's.
fn outlines(args: &Perf, phases: &[Phase], top: &Settings) -> Result<Vec<Outline>> {
    let mut outlines = Vec::new();
    for phase in phases {
        let below = phase.settings.clone().over(&args.settings.clone().over(top));
        for place in matrix::places(&phase.axes).map_err(usage)? {
            let common = place.settings.over(&below);
            let draft = |(name, settings): &(String, Settings)| Draft {
                name: Some(name.clone()),
                settings: settings.clone().over(&common),
            };
            let drafts = match phase.jobs.is_empty() {
                true => vec![Draft { name: None, settings: common.clone() }],
                false => phase.jobs.iter().map(draft).collect(),
            };
            let at = place.at.into_iter().map(|(name, value)| Setting { name, value }).collect();
            outlines.push(Outline { phase: phase.name.clone(), at, drafts, rounds: phase.rounds.clone() });
        }
    }
    Ok(outlines)
}

/// Virtual time has one owner, and devices that live by it.
fn check_virtual(args: &Perf, outlines: &[Outline]) -> Result<()> {
    if !args.virtual_time {
        return Ok(());
    }
    for outline in outlines {
        if outline.cores()?.iter().map(Vec::len).sum::<usize>() > 1 {
            return Err(usage(
                "--virtual-time: one thread has the clock; use -q instead of more threads, and one core",
            ));
        }
        let names = outline.drafts.iter().flat_map(|draft| &draft.settings.devices);
        names.into_iter().try_for_each(|name| check_modelled(name))?;
    }
    Ok(())
}

/// The namespaces that are meant.
fn chosen(device: &Device, settings: &Settings) -> Result<Vec<Nsid>> {
    let nsids = match settings.namespace_id {
        Some(nsid) => vec![Nsid(nsid)],
        None if settings.pattern.is_some_and(Pattern::is_of_pairs) => pairs_or_what_there_is(device)?,
        None => blocks_or_what_there_is(device)?,
    };
    if nsids.is_empty() {
        let name = device.name();
        return Err(usage(format!("{name}: no namespace is attached; there is nothing to measure")));
    }
    Ok(nsids)
}

/// True for a namespace of pairs.
fn is_of_pairs(device: &Device, nsid: Nsid) -> Result<bool> {
    Ok(device.all_namespaces()?.iter().any(|entry| entry.nsid == nsid && holds_pairs(entry)))
}

fn holds_pairs(entry: &NamespaceEntry) -> bool {
    entry.command_set == csi::KEY_VALUE
}

/// Namespaces of pairs; where there are none all others.
fn pairs_or_what_there_is(device: &Device) -> Result<Vec<Nsid>> {
    let all = device.all_namespaces()?;
    let has_pairs = all.iter().any(holds_pairs);
    Ok(all.iter().filter(|entry| !has_pairs || holds_pairs(entry)).map(|entry| entry.nsid).collect())
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

/// Nobody else may write what a job expects to read.
fn check_apart(stage: &Stage) -> Result<()> {
    let bytes = |target: &Target| {
        let unit = target.unit.bytes() as u64;
        target.units.start * unit..target.units.end * unit
    };
    for (index, job) in stage.jobs.iter().enumerate() {
        for other in &stage.jobs[index + 1..] {
            let shared = job.targets.iter().find(|one| {
                other.targets.iter().any(|two| {
                    let (a, b) = (bytes(one), bytes(two));
                    one.is_on(&two.device, two.nsid) && a.start < b.end && b.start < a.end
                })
            });
            let writes = job.mix.pattern.writes() || other.mix.pattern.writes();
            if let Some(target) = shared.filter(|_| writes) {
                return Err(usage(format!(
                    "--verify: two jobs at once use the same part of {}, and one writes; give each its own with --offset \
                     and --range",
                    target.identity.label()
                )));
            }
        }
    }
    Ok(())
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

/// Refuses commands whose buffers are more memory than there is.
fn check_job(job: &Job) -> Result<()> {
    let each: u64 = job.targets.iter().map(|target| target.unit.bytes() as u64).sum();
    let needed = each.saturating_mul(job.depth.into()).saturating_mul(job.threads() as u64);
    if let Some(available) = too_little(needed, machine::memory_available()) {
        return Err(usage(format!(
            "-o, -q: the buffers take {needed} bytes, and {available} are available; use a smaller one of them"
        )));
    }
    for target in &job.targets {
        let share = target.count() / job.threads() as u64;
        ensure!(
            target.ledger.is_none() || share > u64::from(job.depth),
            usage(format!(
                "--verify: each thread needs more units of its own than its {} commands, and has {share}; use a larger \
                 --range or a smaller -q",
                job.depth
            ))
        );
    }
    Ok(())
}

fn check_queues(stage: &Stage) -> Result<()> {
    for target in stage.jobs.iter().flat_map(|job| &job.targets) {
        let on = |job: &Job| job.targets.iter().filter(|t| Arc::ptr_eq(&t.device, &target.device)).count();
        let queues: usize = stage.jobs.iter().map(|job| job.threads() * on(job)).sum();
        let most = target.device.controller().queues_max();
        ensure!(
            queues <= most,
            usage(format!(
                "-c, --threads: {} threads need {queues} queues, one for each namespace, and {} has {most}",
                stage.threads(),
                target.device.name()
            ))
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
