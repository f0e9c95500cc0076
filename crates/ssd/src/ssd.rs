//! The device: what it is made of and how it starts, stops and resets.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use unvme_bus::function::CONFIG_SPACE_BYTES;
use unvme_bus::space::Direction;
use unvme_bus::{
    AddressSpace, BarLayout, BusError, Clock, Dma, DmaAccess, EventFd, Function, Published, Region, Window,
    lock,
};
use unvme_flash::timing::TimingModel;
use unvme_spec::regs::{AMS_WEIGHTED, Cc, SHST_COMPLETE, SHST_NORMAL};
use unvme_spec::{Nsid, Status};

use crate::SsdError;
use crate::arbiter::Arbiter;
use crate::association::{Association, ResetScope};
use crate::claims::Excluded;
use crate::config::SsdConfig;
use crate::controllers::ControllerSet;
use crate::events::Events;
use crate::fault::Faults;
use crate::fdp::Fdp;
use crate::features::{Features, HotFeatures};
use crate::firmware::Download;
use crate::flash::{Flash, FlashDamage, FlashStats};
use crate::interrupts::Interrupts;
use crate::kv::{Damage, KeyValue, KvStats};
use crate::media::Media;
use crate::namespace::{CheckedBlocks, NamespaceTable};
use crate::pci::{self, ConfigSpace, RegisterFile};
use crate::queue::{
    BadDoorbell, CQE_BYTES, CompletionQueue, CompletionQueueParts, Queues, Ring, SQE_BYTES, SubmissionQueue,
    SubmissionQueueParts,
};
use crate::store::Store;
use crate::subsystem::Subsystem;

/// A virtual SSD: one PCI function, one NVMe controller. A device has one when it is made, and as many more
/// as [`Ssd::add_controller`] adds; what they share is in `subsystem`.
///
/// What each command needs of the subsystem is here as well, so that it costs no further indirection.
pub struct Ssd {
    pub(crate) config: SsdConfig,
    pub(crate) cntlid: u16,
    /// Bytes one command may move; `u64::MAX` when there is no limit.
    pub(crate) transfer_bytes_max: u64,
    pub(crate) memory: AddressSpace,
    pub(crate) queues: Queues,
    pub(crate) arbiter: Arbiter,
    pub(crate) interrupts: Interrupts,
    /// All namespaces, as this controller sees them.
    pub(crate) namespaces: Published<NamespaceTable>,
    pub(crate) media: Arc<Media>,
    /// Namespaces that others have claimed.
    pub(crate) excluded: Excluded,
    /// Features that the I/O path looks at.
    pub(crate) hot: HotFeatures,
    pub(crate) features: Mutex<Features>,
    pub(crate) events: Events,
    /// A firmware image that arrives in pieces.
    pub(crate) download: Mutex<Download>,
    /// CC: command set selected and entry sizes.
    pub(crate) configuration: Mutex<Cc>,
    pub(crate) fdp: Arc<Fdp>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) subsystem: Arc<Subsystem>,
    pub(crate) registers: Mutex<RegisterFile>,
    pci: Mutex<ConfigSpace>,
    /// The controller is disabled: nothing is served, and doorbells mean nothing.
    stopped: AtomicBool,
    /// A rule has set CSTS.CFS, until the controller is reset.
    pub(crate) is_fatal: AtomicBool,
    /// A host has asked for the device to be unplugged; done when nothing is locked.
    pub(crate) wants_unplug: AtomicBool,
    /// Whose controller it is, when its host is reached over a network; `None` for a PCI function.
    pub(crate) association: Option<Arc<Association>>,
}

/// What a controller is made of.
struct Parts {
    config: SsdConfig,
    cntlid: u16,
    view: NamespaceTable,
    subsystem: Arc<Subsystem>,
    association: Option<Arc<Association>>,
}

/// What a host reads of a device that is not there.
const ALL_ONES: u8 = 0xff;

/// What [`Ssd::check`] has found in a Key Value namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedNamespace {
    /// The namespace.
    pub nsid: Nsid,
    /// Pairs that exist, those that are damaged included.
    pub pairs: u64,
    /// What is lost, or not as it was written.
    pub lost: Vec<Damage>,
    /// Nobody knows which pairs all of that was: whatever there is of a key may be older than what was lost,
    /// and reading is refused until the loss is accepted.
    pub is_in_doubt: bool,
}

impl Ssd {
    /// A device over `store`. State that the store has kept from earlier (namespaces, saved features,
    /// firmware, counters) wins over the configuration's namespaces. Errors: [`SsdError::Config`] for a value
    /// out of range, [`SsdError::State`] for state this version cannot read, or what the store reports.
    pub fn new(config: SsdConfig, store: Box<dyn Store>) -> Result<Arc<Self>, SsdError> {
        config.check()?;
        let bytes = config.store_bytes()?;
        if store.bytes() != bytes {
            return Err(SsdError::Config {
                key: "bytes",
                value: config.bytes.to_string(),
                expected: format!("a store of {bytes} bytes for it, not of {}", store.bytes()),
            });
        }
        let media = Arc::new(Media::open(&config, store)?);
        let subsystem = Arc::new(Subsystem::start(&config, media)?);
        let view = subsystem.namespaces.get().seen_by(ControllerSet::first(), false);
        let ssd = Self::controller(Parts { config, cntlid: 0, view, subsystem, association: None })?;
        ssd.subsystem.enter(&ssd);
        if let Some(flash) = ssd.flash() {
            flash.obey(Arc::clone(&ssd.faults));
        }
        if ssd.media.store().is_read_only() {
            ssd.faults.protect();
        }
        ssd.configure_pairs();
        ssd.start_timing();
        Ok(ssd)
    }

    /// Another controller of the same subsystem, which sees the namespaces as `view`.
    pub(crate) fn sibling(
        &self,
        cntlid: u16,
        view: NamespaceTable,
        association: Option<Arc<Association>>,
    ) -> Result<Arc<Self>, SsdError> {
        Self::controller(Parts {
            config: self.config.clone(),
            cntlid,
            view,
            subsystem: Arc::clone(&self.subsystem),
            association,
        })
    }

    fn controller(parts: Parts) -> Result<Arc<Self>, SsdError> {
        let Parts { config, cntlid, view, subsystem, association } = parts;
        let features = Features::new(&config, &lock(&subsystem.features));
        let queues = usize::from(config.io_queues) + 1;
        Ok(Arc::new(Self {
            cntlid,
            transfer_bytes_max: config.transfer_bytes_max.map_or(u64::MAX, u64::from),
            memory: AddressSpace::new(),
            // At the page of its object where BAR0 has it: what a vfio-user client maps is the BAR.
            queues: Queues::new(queues, pci::doorbell_memory()?),
            arbiter: Arbiter::new(config.timing.model().map(TimingModel::dies)),
            interrupts: Interrupts::new(config.io_queues + 1),
            namespaces: Published::new(view),
            registers: Mutex::new(RegisterFile::new(config.queue_entries, association.is_some())),
            pci: Mutex::new(ConfigSpace::new(config.io_queues + 1)),
            stopped: AtomicBool::new(true),
            is_fatal: AtomicBool::new(false),
            wants_unplug: AtomicBool::new(false),
            association,
            excluded: Excluded::default(),
            hot: HotFeatures::new(&features),
            features: Mutex::new(features),
            events: Events::default(),
            download: Mutex::default(),
            configuration: Mutex::new(Cc::new()),
            media: Arc::clone(&subsystem.media),
            fdp: Arc::clone(&subsystem.fdp),
            faults: Arc::clone(&subsystem.faults),
            subsystem,
            config,
        }))
    }

    /// Reads everything in the Key Value namespaces and names what is lost, what was found when the device
    /// was made included. Commands may go on meanwhile.
    pub fn check(&self) -> Vec<CheckedNamespace> {
        let table = self.namespaces.get();
        let check = |(nsid, pairs): (Nsid, &KeyValue)| CheckedNamespace {
            nsid,
            lost: pairs.store.check(),
            pairs: pairs.store.stats().pairs,
            is_in_doubt: pairs.store.is_in_doubt(),
        };
        table.key_value_namespaces().map(check).collect()
    }

    /// Reads all logical blocks of a device that has checksums of them and names those that are not as they
    /// were written; `None` for a device that has none. Commands may go on meanwhile.
    pub fn check_blocks(&self) -> Option<Vec<CheckedBlocks>> {
        self.media.has_sums().then(|| self.namespaces.get().check_blocks(&self.media))
    }

    /// Gives up what cannot be read in the Key Value namespaces, so that everything that is left can be: as
    /// [`Ssd::check`] returns it, with what was given up. For a device that is not in use meanwhile.
    ///
    /// # Errors
    /// When there is no space to note what is given up, or the media fails. Some may have been given up then.
    pub fn accept_loss(&self) -> Result<Vec<CheckedNamespace>, Status> {
        let table = self.namespaces.get();
        let accept = |(nsid, pairs): (Nsid, &KeyValue)| -> Result<CheckedNamespace, Status> {
            let lost = pairs.store.accept_loss()?;
            Ok(CheckedNamespace { nsid, lost, pairs: pairs.store.stats().pairs, is_in_doubt: false })
        };
        table.key_value_namespaces().map(accept).collect()
    }

    /// Reads everything below the logical blocks of a device with flash and names what is damaged, what was
    /// found when the device was made included. For a device that is not in use meanwhile.
    pub fn check_flash(&self) -> Vec<FlashDamage> {
        self.media.flash().map(Flash::check).unwrap_or_default()
    }

    /// What the translation layer has counted, and how worn the flash is; `None` when there is no flash.
    pub fn ftl_stats(&self) -> Option<FlashStats> {
        self.media.flash().map(Flash::stats)
    }

    /// Plans a power cut of a device with flash, for tests of what survives: the `programs`th program of a
    /// page from now on, counted from 1, is torn, a part of what was not flushed is lost as `seed` says, and
    /// nothing is written from then on. 0 takes the plan back. Other surroundings than flash are cut by rules
    /// for faults.
    pub fn plan_power_cut(&self, programs: u64, seed: u64) {
        if let Some(flash) = self.media.flash() {
            flash.plan_power_cut(programs, seed);
        }
    }

    /// True when the power of a device with flash has been cut.
    pub fn has_lost_power(&self) -> bool {
        self.media.flash().is_some_and(Flash::has_lost_power)
    }

    /// The translation layer, when the device has one.
    pub(crate) fn flash(&self) -> Option<&Flash> {
        self.media.flash()
    }

    /// Nothing is served any more until the controller is enabled anew.
    pub(crate) fn stop_serving(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Numbers about the store of an active Key Value namespace; `None` when there is none. What a host can
    /// know is in Identify and the log pages: this is for who made the device.
    pub fn kv_stats(&self, nsid: Nsid) -> Option<KvStats> {
        self.namespaces.get().pairs(nsid.0).ok().map(|pairs| pairs.store.stats())
    }

    /// Takes memory for the first `bytes_max` bytes of media that lie in memory from the system, which
    /// otherwise happens when they are touched; returns for how many. Errors: [`SsdError::Bus`] when the
    /// system has not so much.
    pub fn populate(&self, bytes_max: u64) -> Result<u64, SsdError> {
        let Some(memory) = self.media.memory().filter(|_| !self.media.store().persists()) else {
            return Ok(0);
        };
        let bytes = bytes_max.min(memory.len() as u64);
        if bytes > 0 {
            memory.populate(bytes as usize)?;
        }
        Ok(bytes)
    }

    /// CC.CSS says whether namespaces of other command sets than NVM are there for the host.
    fn select_command_sets(&self, cc: Cc) {
        let all = cc.css() == unvme_spec::regs::CSS_ALL;
        // Another controller may be changing the table: what it is now is known to `update` alone.
        let published: Result<(), Infallible> = self.namespaces.update(|table| {
            let mut table = table.clone();
            table.select_command_sets(all);
            Ok((table, ()))
        });
        let Ok(()) = published;
    }

    /// Removes a submission queue; commands not yet served are dropped with it.
    pub(crate) fn remove_submission(&self, id: u16) -> Option<SubmissionQueue> {
        let queue = self.queues.take_submission(id)?;
        self.arbiter.part(id);
        lock(&self.subsystem.retired).add(&queue.counters, &queue.kv.counters);
        Some(queue)
    }

    /// CC.EN 0 to 1. False when the host's settings make no controller: the caller reports a fatal status.
    pub(crate) fn enable(&self, registers: &RegisterFile) -> bool {
        let Some(page_bytes) = pci::accepted_page_bytes(registers.cap, registers.cc) else { return false };
        let (sq_entries, cq_entries) =
            (u32::from(registers.aqa.asqs_z()) + 1, u32::from(registers.aqa.acqs_z()) + 1);
        if sq_entries < 2 || cq_entries < 2 {
            return false;
        }
        let mask = u64::from(page_bytes) - 1;
        if registers.asq & mask != 0 || registers.acq & mask != 0 {
            return false;
        }
        let space = self.association.as_ref().map(|association| Arc::clone(association.admin_space()));
        let host = space.as_deref().unwrap_or(&self.memory).view();
        let rings = (
            Ring::find(&host, registers.asq, sq_entries as usize * SQE_BYTES, Direction::Read),
            Ring::find(&host, registers.acq, cq_entries as usize * CQE_BYTES, Direction::Write),
        );
        let (Some(sq_ring), Some(cq_ring)) = rings else { return false };
        self.select_command_sets(registers.cc);
        self.restart_timing();
        self.arbiter.choose(registers.cc.ams() == AMS_WEIGHTED);
        self.admin_enabled(registers.cc);
        // Hosts may go on to ring doorbells of queues they had before a reset until they notice.
        self.queues.doorbells.mark_all_absent();
        self.queues.install_completion(CompletionQueue::new(CompletionQueueParts {
            id: 0,
            entries: cq_entries,
            vector: Some(0),
            ring: cq_ring,
            host: host.clone(),
            space: space.clone(),
        }));
        self.queues.install_submission(SubmissionQueue::new(SubmissionQueueParts {
            cntlid: self.cntlid,
            id: 0,
            cqid: 0,
            entries: sq_entries,
            ring: sq_ring,
            page_bytes,
            host,
            space,
            namespaces: self.namespaces.reader(),
            is_timed: false,
        }));
        // SeqCst: see `Ssd::vanish`.
        self.stopped.store(false, Ordering::SeqCst);
        if self.faults.is_gone() {
            self.stop_serving();
        }
        true
    }

    /// All queues are gone, nothing is outstanding.
    pub(crate) fn remove_queues(&self) {
        for id in 0..self.queues.submission.len() as u16 {
            self.remove_submission(id);
        }
        for cell in &self.queues.completion {
            *lock(cell) = None;
        }
        self.queues.doorbells.mark_all_absent();
    }

    /// Controller level reset, apart from the registers.
    fn reset_controller(&self, scope: ResetScope) {
        self.stop_serving();
        self.remove_queues();
        self.interrupts.clear_mask(u32::MAX);
        if self.is_fatal.swap(false, Ordering::AcqRel) {
            self.faults.rearm();
        }
        self.faults.forget_stop();
        self.reset_admin(scope);
        if let Some(association) = &self.association {
            association.controller_was_reset(scope);
        }
    }

    /// NVM Subsystem Reset: every controller of the device is reset. Nothing of any is locked.
    fn reset_subsystem(&self) {
        let _one_at_a_time = lock(&self.subsystem.resetting);
        let controllers = self.subsystem.controllers();
        controllers.iter().for_each(|controller| controller.stop_serving());
        for controller in &controllers {
            let mut registers = lock(&controller.registers);
            if self.faults.is_gone() {
                return;
            }
            controller.reset_controller(ResetScope::Subsystem);
            registers.reset(true);
            registers.csts.set_nssro(true);
        }
    }

    /// Reacts to what a register write has changed, but for NVM Subsystem Reset, which is about other
    /// registers, too.
    fn apply(&self, registers: &mut RegisterFile, written: pci::Written) {
        match written {
            pci::Written::Nothing | pci::Written::SubsystemReset => {}
            pci::Written::Doorbell { offset, value } => {
                if !self.is_stopped() && !self.queues.write_doorbell((offset / 4) as usize, value) {
                    self.doorbell_error(BadDoorbell::Register);
                }
            }
            pci::Written::InterruptMaskSet(bits) => self.interrupts.set_mask(bits),
            pci::Written::InterruptMaskClear(bits) => self.interrupts.clear_mask(bits),
            pci::Written::Configuration(new) => self.configure(registers, new),
        }
    }

    fn configure(&self, registers: &mut RegisterFile, new: Cc) {
        let old = registers.cc;
        registers.cc = new;
        if old.en() && !new.en() {
            self.reset_controller(ResetScope::Controller);
            registers.reset(false);
            registers.cc = new.with_en(false);
        } else if !old.en() && new.en() {
            let accepted = self.enable(registers);
            registers.csts.set_rdy(accepted);
            registers.csts.set_cfs(!accepted);
        } else if new.en() {
            *lock(&self.configuration) = new;
        }
        let notified = new.shn() != unvme_spec::regs::SHN_NONE;
        if notified && registers.csts.shst() == SHST_NORMAL {
            if self.is_alone() {
                self.shut_down();
            } else if self.persist_all().is_err() {
                tracing::error!(cntlid = self.cntlid, "the device could not save everything at shutdown");
            }
            registers.csts.set_shst(SHST_COMPLETE);
        } else if !notified && !old.en() {
            registers.csts.set_shst(SHST_NORMAL);
        }
    }

    /// Shutdown of one of several controllers: what its host has written is on the media, and the device goes
    /// on.
    fn persist_all(&self) -> Result<(), Status> {
        self.subsystem.namespaces.get().stores().try_for_each(|pairs| pairs.store.sync())?;
        self.media.sync()?;
        self.subsystem.save_all()
    }

    /// Shutdown notification: everything is on the media before the host is told that it is complete.
    pub(crate) fn shut_down(&self) {
        let stores = self.subsystem.namespaces.get().stores().try_for_each(|pairs| pairs.store.close());
        let closed = stores.and_then(|()| self.media.close());
        if closed.and_then(|()| self.media.sync()).is_err() {
            tracing::error!("the device could not save everything at shutdown");
            return;
        }
        lock(&self.subsystem.smart).set_shut_down(true);
        let _ = self.subsystem.save_all();
    }
}

impl Dma for Ssd {
    fn dma_map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BusError> {
        self.memory.map(iova, region, access)
    }

    fn dma_unmap(&self, iova: u64, length: u64) -> Result<(), BusError> {
        self.memory.unmap(iova, length)?;
        self.queues.drop_stale_mappings(&self.memory);
        Ok(())
    }
}

impl Function for Ssd {
    fn config_read(&self, offset: usize, out: &mut [u8]) -> Result<(), BusError> {
        check_config_range(offset, out.len())?;
        if self.faults.is_gone() {
            out.fill(ALL_ONES);
            return Ok(());
        }
        lock(&self.pci).read(offset, out);
        Ok(())
    }

    fn config_write(&self, offset: usize, data: &[u8]) -> Result<(), BusError> {
        check_config_range(offset, data.len())?;
        if self.faults.is_gone() {
            return Ok(());
        }
        let reset = lock(&self.pci).write(offset, data);
        if reset { self.reset() } else { Ok(()) }
    }

    fn bar(&self, index: usize) -> Result<Option<BarLayout>, BusError> {
        Ok((index == 0).then(|| BarLayout {
            bytes: pci::BAR_BYTES,
            windows: vec![Window {
                offset: pci::DOORBELL_PAGE,
                region: self.queues.doorbells.memory().clone(),
            }],
        }))
    }

    fn bar_read(&self, index: usize, offset: u64, out: &mut [u8]) -> Result<(), BusError> {
        pci::check_bar_range(index, offset, out.len())?;
        if self.faults.is_gone() {
            out.fill(ALL_ONES);
        } else if pci::is_msix(offset) {
            lock(&self.pci).msix_read(offset, out);
        } else if offset >= pci::DOORBELL_PAGE {
            // Reading a doorbell register returns a vendor specific value.
            out.fill(0);
        } else {
            let mut registers = lock(&self.registers);
            if self.is_fatal.load(Ordering::Acquire) {
                registers.csts.set_cfs(true);
            }
            registers.read(offset, out, self.interrupts.mask());
        }
        Ok(())
    }

    fn bar_write(&self, index: usize, offset: u64, data: &[u8]) -> Result<(), BusError> {
        pci::check_bar_range(index, offset, data.len())?;
        if self.faults.is_gone() {
            return Ok(());
        }
        if pci::is_msix(offset) {
            lock(&self.pci).msix_write(offset, data);
            return Ok(());
        }
        let mut registers = lock(&self.registers);
        // While this was waited for, the device may have gone.
        if self.faults.is_gone() {
            return Ok(());
        }
        let mut at = offset;
        let mut resets_subsystem = false;
        // A 64-bit register may be written in one access or in two.
        for word in data.chunks(4) {
            if let (Ok(bytes), 0) = (<[u8; 4]>::try_from(word), at % 4) {
                let written = registers.write(at, u32::from_le_bytes(bytes));
                resets_subsystem |= matches!(written, pci::Written::SubsystemReset);
                self.apply(&mut registers, written);
            }
            at += 4;
        }
        drop(registers);
        if resets_subsystem {
            self.reset_subsystem();
        }
        Ok(())
    }

    /// A device that was unplugged or has no power; a host in the same process need not wait for its commands
    /// to time out.
    fn is_gone(&self) -> bool {
        self.faults.is_gone()
    }

    fn next_event(&self) -> Option<u64> {
        // Its own, whose documentation says more.
        Self::next_event(self)
    }

    fn stopped_by(&self) -> Option<String> {
        self.faults.stopped_by()
    }

    fn vectors(&self) -> u16 {
        self.interrupts.vectors()
    }

    fn set_vector(&self, vector: u16, event: Option<EventFd>) -> Result<(), BusError> {
        self.interrupts.listen(vector, event)
    }

    fn reset(&self) -> Result<(), BusError> {
        if self.faults.is_gone() {
            return Ok(());
        }
        let mut registers = lock(&self.registers);
        if self.faults.is_gone() {
            return Ok(());
        }
        self.reset_controller(ResetScope::Function);
        registers.reset(true);
        lock(&self.pci).reset();
        Ok(())
    }

    fn is_host_driven(&self) -> bool {
        true
    }

    #[inline]
    fn advance(&self, lane: Option<u16>, clock: &Clock) -> usize {
        self.attend_placement(clock);
        let served = self.serve_next(lane, clock);
        self.attend_placement(clock);
        if self.is_stopped() {
            self.see_to_removal();
        }
        served
    }
}

fn check_config_range(offset: usize, length: usize) -> Result<(), BusError> {
    BusError::check_range("configuration space", offset as u64, length, CONFIG_SPACE_BYTES as u64)
}
