//! Opening a session: devices, queues, threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use unvme_driver::{
    CompletionMode, Controller, Error as DriverError, KvNamespace, KvOptions, Namespace, Queue, QueueOptions,
};
use unvme_spec::identify::csi;

use super::completer::{Completer, Rounds};
use super::journal::{Journal, Topic};
use super::lane::{Lane, SPARE_BYTES};
use super::lanes::Lanes;
use super::listed::Listed;
use super::member::{Member, Shared, Target};
use super::memory::Memory;
use super::sleeper::Sleeper;
use super::{QueueKind, Session, SessionOptions};
use crate::SdkConfig;
use crate::cache::{CacheDevice, ReadCache};
use crate::config::{SlabPolicy, SsdType};
use crate::placement::{PlacedDevice, Placement};
use crate::slab::{Slab, SlabOptions};
use unvme::{Device, Error, Pages, Result, open};

/// Commands that callers can have in flight on one synchronous queue at a time; further ones wait.
const SYNC_DEPTH: u16 = 64;
/// What a controller reset may take on top of the time-outs of commands before closing a session gives up.
const RESET_ALLOWANCE: Duration = Duration::from_secs(5);

/// Sessions opened so far; 0 is none.
static SESSIONS: AtomicU64 = AtomicU64::new(1);

/// The threads that are to be: a bed for each CPU.
type Sleepers = BTreeMap<u32, Arc<Sleeper>>;

impl Session {
    /// Opens all devices of `config`, which is settled first ([`SdkConfig::settle`]). On an error nothing stays open.
    ///
    /// # Errors
    /// What is wrong with the configuration; what opening a device ends with; [`Error::Unsupported`] for one that is not
    /// of the configuration's kind; [`Error::Driver`] when no queue can be created.
    pub fn open(mut config: SdkConfig, options: SessionOptions) -> Result<Self> {
        let warnings = config.settle()?;
        let names = config.devices.iter().map(|device| device.dev_id.as_str());
        let devices = names.map(|name| open(name, &options.open)).collect::<Result<_>>()?;
        Self::assemble(config, warnings, devices, options)
    }

    /// As [`Session::open`], with devices that the caller has opened: one for each of the configuration, in its order.
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
        let mut opening =
            Opening { config: &config, options: &options, shared, sleepers: Sleepers::new(), warnings };
        let members = opening.members(devices, &placement)?;
        let completers = opening.completers(&placement, &members)?;
        let Opening { shared, warnings, .. } = opening;
        for member in &members {
            let what = format_args!("opened with {} queues", member.lanes.all().len());
            shared.journal.write(Topic::Lifecycle, member.name(), what);
        }
        Ok(Self {
            config,
            warnings,
            members,
            shared,
            patience: patience.saturating_add(RESET_ALLOWANCE),
            completers: Mutex::new(completers),
        })
    }
}

struct Opening<'a> {
    config: &'a SdkConfig,
    options: &'a SessionOptions,
    shared: Arc<Shared>,
    sleepers: Sleepers,
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

    /// What of the slab values may keep. The rest is for those on their way, which could otherwise get a buffer only by
    /// dropping a value each time.
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
        let target = target(&device, self.config.ssd_type, self.options.kv)?;
        let lanes = self.lanes(&device, placed)?;
        for lane in lanes.iter().filter(|lane| lane.kind == QueueKind::Sync) {
            // One that gets none now takes one with its first call.
            lane.keep(memory.alloc(SPARE_BYTES).ok());
        }
        Ok(Arc::new(Member {
            index,
            device,
            target,
            lanes: Lanes::new(lanes),
            memory,
            listed: Listed::default(),
            placements: OnceLock::new(),
            shared: Arc::clone(&self.shared),
        }))
    }

    fn lanes(&mut self, device: &Device, placed: &PlacedDevice) -> Result<Vec<Lane>> {
        let controller = device.controller();
        let depth_max = controller.queue_depth_max();
        let depth = u16::try_from(placed.depth).unwrap_or(u16::MAX).min(depth_max);
        if u32::from(depth) < placed.depth {
            self.warnings.push(format!(
                "{}: `queue_depth`: {} is more than the device has; lowered to {depth}",
                device.name(),
                placed.depth
            ));
        }
        let mut lanes = Vec::new();
        let mut missing = None;
        // Asynchronous queues first: their threads sleep on interrupts, of which there may be few.
        for (turn, cpu) in placed.async_cpus.iter().enumerate() {
            let sleeper = placed.cq_cpus.turn(turn).map(|cpu| self.sleeper(cpu)).transpose()?;
            match self.queue(controller, depth, sleeper.is_some()) {
                Ok(queue) => lanes.push(Lane::new(cpu, QueueKind::Async, queue, sleeper)),
                Err(e) => missing = Some((cpu, e)),
            }
        }
        for cpu in placed.sync_cpus.iter() {
            match self.queue(controller, SYNC_DEPTH.min(depth_max), false) {
                Ok(queue) => lanes.push(Lane::new(cpu, QueueKind::Sync, queue, None)),
                Err(e) => missing = Some((cpu, e)),
            }
        }
        match missing {
            Some((cpu, e @ DriverError::Exhausted(_))) if !lanes.is_empty() => {
                self.warnings.push(format!("{}: no queue for CPU {cpu}: {e}", device.name()));
                Ok(lanes)
            }
            Some((_, e)) => Err(Error::driver(device.name(), e)),
            None => Ok(lanes),
        }
    }

    /// A queue; with an interrupt when somebody sleeps on it and the device has one left. A drive on UIO has none at all.
    fn queue(
        &self,
        controller: &Controller,
        depth: u16,
        interrupt: bool,
    ) -> std::result::Result<Queue, DriverError> {
        let mut options = QueueOptions {
            depth,
            command_timeout: self.options.command_timeout,
            abort_grace: self.options.abort_grace,
            long_keys: self.config.ssd_type == SsdType::Kv,
            ..QueueOptions::default()
        };
        let can_interrupt = match controller.function() {
            Some(function) => function.vectors() > 0 && !function.is_host_driven(),
            None => controller.is_kernel(),
        };
        if interrupt && can_interrupt {
            options.mode = CompletionMode::Interrupt;
            match controller.create_queue(&options) {
                Err(DriverError::Exhausted(_)) => options.mode = CompletionMode::Poll,
                answer => return answer,
            }
        }
        controller.create_queue(&options)
    }

    fn sleeper(&mut self, cpu: u32) -> Result<Arc<Sleeper>> {
        if let Some(sleeper) = self.sleepers.get(&cpu) {
            return Ok(Arc::clone(sleeper));
        }
        let sleeper = Arc::new(Sleeper::new()?);
        self.sleepers.insert(cpu, Arc::clone(&sleeper));
        Ok(sleeper)
    }

    fn completers(&self, placement: &Placement, members: &[Arc<Member>]) -> Result<Vec<Completer>> {
        let mut completers = Vec::new();
        for (&cpu, sleeper) in &self.sleepers {
            let mut rounds = Rounds::new();
            for member in members {
                let lanes = member.lanes.all().iter().enumerate();
                rounds.extend(
                    lanes
                        .filter(|(_, lane)| lane.is_served_by(sleeper))
                        .map(|(index, _)| (Arc::clone(member), index)),
                );
            }
            let started = Completer::start(cpu, placement.can_pin(cpu), Arc::clone(sleeper), rounds);
            match started {
                Ok(completer) => completers.push(completer),
                Err(e) => {
                    completers.iter_mut().for_each(Completer::stop);
                    return Err(e);
                }
            }
        }
        Ok(completers)
    }
}

/// The namespace that a device is used for: the first of the right kind.
fn target(device: &Device, ssd_type: SsdType, kv: KvOptions) -> Result<Target> {
    let controller = device.controller();
    let nothing = |what: &str| Error::Unsupported {
        name: device.name().to_owned(),
        reason: format!("it has no namespace of {what}, which `ssd_type` says"),
    };
    match ssd_type {
        SsdType::Lba => {
            let nsid = *device.namespaces()?.first().ok_or_else(|| nothing("logical blocks"))?;
            device.admin(|controller| Namespace::open(controller, nsid)).map(Target::Blocks)
        }
        SsdType::Kv => {
            let pairs = controller.command_set_namespaces(csi::KEY_VALUE).unwrap_or_default();
            // The family's first devices know no command sets: any of their namespaces may have the vendor's commands.
            let all = device.admin(Controller::active_namespaces)?;
            let mut found =
                pairs.into_iter().chain(all).map(|nsid| KvNamespace::open_with(controller, nsid, kv));
            let opened = found.find(|opened| !matches!(opened, Err(DriverError::Unsupported(_))));
            match opened {
                Some(opened) => opened.map(Target::Kv).map_err(|e| Error::driver(device.name(), e)),
                None => Err(nothing("pairs")),
            }
        }
    }
}
