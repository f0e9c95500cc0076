//! Opening a session: devices, queues, threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use unvme_driver::{
    CompletionMode, Controller, Error as DriverError, KvNamespace, KvOptions, Namespace, QueueOptions,
};
use unvme_spec::identify::csi;

use super::journal::{Journal, Topic};
use super::listed::Listed;
use super::member::{Member, Shared};
use super::memory::Memory;
use super::operation::Pending;
use super::workers::Workers;
use super::{QueueKind, Session, SessionOptions};
use crate::SdkConfig;
use crate::cache::{CacheDevice, ReadCache};
use crate::config::{SlabPolicy, SsdType};
use crate::placement::{PlacedDevice, Placement};
use crate::slab::{Slab, SlabOptions};
use unvme::worker::{
    CompletionThread, Done, Medium, Queues, SPARE_BYTES, SharedQueue, Worker, WorkerOptions,
};
use unvme::{Device, Error, Pages, Result, open};

/// Commands that callers can have in flight on one synchronous queue at a time; further ones wait.
const SYNC_DEPTH: u16 = 64;
/// What a controller reset may take on top of the time-outs of commands before closing a session gives up.
const RESET_ALLOWANCE: Duration = Duration::from_secs(5);

/// Sessions opened so far; 0 is none.
static SESSIONS: AtomicU64 = AtomicU64::new(1);

impl Session {
    /// Opens all devices of `config`, which is settled first ([`SdkConfig::settle`]). On an error nothing
    /// stays open.
    ///
    /// # Errors
    /// What is wrong with the configuration; what opening a device ends with; [`Error::Unsupported`] for one
    /// that is not of the configuration's kind; [`Error::Driver`] when no queue can be created.
    pub fn open(mut config: SdkConfig, options: SessionOptions) -> Result<Self> {
        let warnings = config.settle()?;
        let names = config.devices.iter().map(|device| device.dev_id.as_str());
        let devices = names.map(|name| open(name, &options.open)).collect::<Result<_>>()?;
        Self::assemble(config, warnings, devices, options)
    }

    /// As [`Session::open`], with devices that the caller has opened: one for each of the configuration, in
    /// its order.
    ///
    /// # Errors
    /// As [`Session::open`]; [`Error::Argument`] when their number is not that of the configuration's.
    pub fn with_devices(
        mut config: SdkConfig,
        devices: Vec<Device>,
        options: SessionOptions,
    ) -> Result<Self> {
        let warnings = config.settle()?;
        if devices.len() != config.devices.len() {
            return Err(Error::Argument(format!(
                "{} devices for a configuration of {}",
                devices.len(),
                config.devices.len()
            )));
        }
        Self::assemble(config, warnings, devices, options)
    }

    fn assemble(
        mut config: SdkConfig,
        mut warnings: Vec<String>,
        devices: Vec<Device>,
        options: SessionOptions,
    ) -> Result<Self> {
        let placement = Placement::for_this_process(&config.devices);
        warnings.extend(placement.warnings.iter().cloned());
        placement.write_to(&mut config);
        let journal = Journal::open(&config.log_file, config.log_level).unwrap_or_else(|e| {
            warnings.push(format!("`log_file`: {}: {e}; nothing is logged", config.log_file.display()));
            Journal::none()
        });
        let patience = options.command_timeout.saturating_add(options.abort_grace);
        let shared = Arc::new(Shared {
            session: SESSIONS.fetch_add(1, Ordering::Relaxed),
            handler: Arc::clone(&options.handler),
            journal,
            submit_retry: config.submit_retry,
            command_timeout: options.command_timeout,
            closed: AtomicBool::new(false),
        });
        let mut opening = Opening { config: &config, options: &options, shared, warnings };
        let members = opening.members(devices, &placement)?;
        let threads = start_threads(&placement, &members)?;
        let Opening { shared, warnings, .. } = opening;
        for member in &members {
            let what = format_args!("opened with {} queues", member.workers.queues().count());
            shared.journal.write(Topic::Lifecycle, member.name(), what);
        }
        Ok(Self {
            config,
            warnings,
            members,
            shared,
            patience: patience.saturating_add(RESET_ALLOWANCE),
            threads: Mutex::new(threads),
        })
    }
}

struct Opening<'a> {
    config: &'a SdkConfig,
    options: &'a SessionOptions,
    shared: Arc<Shared>,
    warnings: Vec<String>,
}

impl Opening<'_> {
    fn members(&mut self, devices: Vec<Device>, placement: &Placement) -> Result<Vec<Arc<Member>>> {
        let slabs = devices.iter().map(|device| self.slab(device)).collect::<Result<Vec<_>>>()?;
        let caches = self.config.cache && self.config.ssd_type == SsdType::Kv;
        let cached = slabs.iter().map(|slab| CacheDevice {
            slab: slab.clone(),
            budget_bytes: if caches { self.cache_bytes() } else { 0 },
        });
        let cache = Arc::new(ReadCache::new(cached));
        let parts = devices.into_iter().zip(slabs).zip(&placement.devices).enumerate();
        parts
            .map(|(index, ((device, slab), placed))| {
                let memory = Memory::new(Arc::clone(&cache), slab, index, caches);
                self.member(index, device, memory, placed)
            })
            .collect()
    }

    fn slab(&self, device: &Device) -> Result<Slab> {
        let pages = match self.config.slab_policy {
            SlabPolicy::Huge => Pages::Huge,
            SlabPolicy::Posix => Pages::Ordinary,
        };
        let bytes = usize::try_from(self.config.slab_bytes).unwrap_or(usize::MAX);
        Slab::new(device.controller().pool(), &SlabOptions { bytes, pages })
            .map_err(|e| Error::Argument(format!("`slab_size`: {e}")))
    }

    /// What of the slab values may keep. The rest is for those on their way, which could otherwise get a
    /// buffer only by dropping a value each time.
    fn cache_bytes(&self) -> usize {
        usize::try_from(self.config.slab_bytes / 4 * 3).unwrap_or(usize::MAX)
    }

    fn member(
        &mut self,
        index: usize,
        device: Device,
        memory: Memory,
        placed: &PlacedDevice,
    ) -> Result<Arc<Member>> {
        let medium = medium(&device, self.config.ssd_type, self.options.kv)?;
        let workers = self.workers(&device, medium, placed)?;
        for queue in workers.queues_of(QueueKind::Sync) {
            // One that gets none now takes one with its first call.
            queue.keep(memory.alloc(SPARE_BYTES).ok());
        }
        let remembers = match &medium {
            Medium::Pairs(pairs) => memory.caches() || !pairs.has_vendor(),
            Medium::Blocks(_) => false,
        };
        Ok(Arc::new(Member {
            index,
            device,
            medium,
            workers,
            memory,
            remembers,
            pending: Pending::default(),
            listed: Listed::default(),
            placements: OnceLock::new(),
            shared: Arc::clone(&self.shared),
        }))
    }

    fn workers(&mut self, device: &Device, medium: Medium, placed: &PlacedDevice) -> Result<Workers> {
        let depth_max = device.controller().queue_depth_max();
        let depth = u16::try_from(placed.depth).unwrap_or(u16::MAX).min(depth_max);
        if u32::from(depth) < placed.depth {
            self.warnings.push(format!(
                "{}: `queue_depth`: {} is more than the device has; lowered to {depth}",
                device.name(),
                placed.depth
            ));
        }
        let mut missing = None;
        // Asynchronous queues first: their threads sleep on interrupts, of which there may be few.
        let mode = match placed.cq_cpus.turn(0) {
            Some(_) => CompletionMode::Interrupt,
            None if self.options.interrupts => CompletionMode::Interrupt,
            None => CompletionMode::Poll,
        };
        let asynchronous =
            self.worker(device, medium, placed.async_cpus.iter().collect(), (depth, mode), &mut missing)?;
        let depth = (SYNC_DEPTH.min(depth_max), CompletionMode::Poll);
        let synchronous =
            self.worker(device, medium, placed.sync_cpus.iter().collect(), depth, &mut missing)?;
        match missing {
            Some((_, e)) if asynchronous.is_none() && synchronous.is_none() => return Err(e),
            Some((cpu, Error::Driver { source, .. })) => {
                self.warnings.push(format!("{}: no queue for CPU {cpu}: {source}", device.name()));
            }
            _ => {}
        }
        Ok(Workers::new(synchronous, asynchronous))
    }

    /// Queues on some CPUs; `None` without any, or when none is left. `missing` is the last CPU that got
    /// none, and why.
    fn worker(
        &self,
        device: &Device,
        medium: Medium,
        cpus: Vec<u32>,
        (depth, mode): (u16, CompletionMode),
        missing: &mut Option<(u32, Error)>,
    ) -> Result<Option<Worker>> {
        let Some(&last) = cpus.last() else { return Ok(None) };
        let queue = QueueOptions {
            depth,
            mode,
            command_timeout: self.options.command_timeout,
            abort_grace: self.options.abort_grace,
            ..QueueOptions::default()
        };
        let options = WorkerOptions { queue, queues: Queues::Cpus(cpus), threads: 0 };
        match Worker::open(device, medium, &options) {
            Ok(worker) => {
                if let Some((cpu, reason)) = worker.shortage() {
                    let source = DriverError::Exhausted(reason.clone());
                    *missing = Some((*cpu, Error::Driver { what: device.name().to_owned(), source }));
                }
                Ok(Some(worker))
            }
            Err(e @ Error::Driver { source: DriverError::Exhausted(_), .. }) => {
                *missing = Some((last, e));
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }
}

/// Queues of members, by the CPU of the thread that is to serve them.
type Rounds = BTreeMap<u32, (Vec<Arc<SharedQueue>>, Vec<Arc<Member>>)>;

/// Starts a thread on each CPU that has asynchronous queues to serve, of whichever devices.
fn start_threads(placement: &Placement, members: &[Arc<Member>]) -> Result<Vec<CompletionThread>> {
    let mut rounds = Rounds::new();
    for (member, placed) in members.iter().zip(&placement.devices) {
        for (turn, queue) in member.workers.shared_of(QueueKind::Async).enumerate() {
            let Some(cpu) = placed.cq_cpus.turn(turn) else { continue };
            let (queues, owners) = rounds.entry(cpu).or_default();
            queues.push(Arc::clone(queue));
            owners.push(Arc::clone(member));
        }
    }
    let start = |(cpu, (queues, owners)): (u32, (_, Vec<Arc<Member>>))| {
        let deliver = Box::new(move |place: usize, batch: &mut Vec<Done>| owners[place].deliver(batch));
        CompletionThread::start(cpu, placement.can_pin(cpu), queues, Some(deliver))
    };
    rounds.into_iter().map(start).collect()
}

/// The namespace that a device is used for: the first of the right kind.
fn medium(device: &Device, ssd_type: SsdType, kv: KvOptions) -> Result<Medium> {
    let controller = device.controller();
    let nothing = |what: &str| Error::Unsupported {
        name: device.name().to_owned(),
        reason: format!("it has no namespace of {what}, which `ssd_type` says"),
    };
    match ssd_type {
        SsdType::Lba => {
            let nsid = *device.namespaces()?.first().ok_or_else(|| nothing("logical blocks"))?;
            device.admin(|controller| Namespace::open(controller, nsid)).map(Medium::Blocks)
        }
        SsdType::Kv => {
            let pairs = controller.command_set_namespaces(csi::KEY_VALUE).unwrap_or_default();
            // The family's first devices know no command sets: any of their namespaces may have the vendor's
            // commands.
            let all = device.admin(Controller::active_namespaces)?;
            let mut found =
                pairs.into_iter().chain(all).map(|nsid| KvNamespace::open_with(controller, nsid, kv));
            let opened = found.find(|opened| !matches!(opened, Err(DriverError::Unsupported(_))));
            match opened {
                Some(opened) => opened.map(Medium::Pairs).map_err(|e| Error::driver(device.name(), e)),
                None => Err(nothing("pairs")),
            }
        }
    }
}
