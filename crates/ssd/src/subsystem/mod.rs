//! The NVM subsystem: what the controllers of one device share, and which of them there are.
//!
//! | a controller's own | the subsystem's |
//! |---|---|
//! | configuration space, registers, doorbells, queues | media, flash, namespaces, pairs |
//! | DMA mappings, interrupts | features of namespaces, saved features |
//! | its features, Asynchronous Event Requests, an image that is being downloaded | firmware slots |
//! | its view of the namespaces: which are attached, which command sets are selected | FDP, timing, faults |
//! | completions that are held, iterators | the Error Information log, counters, saved state |
//!
//! **Locks**, in the order in which they are taken: [`Subsystem::changing`], and then what each controller
//! locks. A controller's registers are locked before its queues. Whoever holds a queue of one controller and
//! locks one of another holds its admin submission queue and `changing`, or registers, and nobody waits for
//! those with an I/O queue locked. The list of controllers is a leaf. None of the locks of features, events,
//! errors, firmware and counters, the controllers' and the subsystem's, is held while another is taken (that
//! of `saving` alone is held over others, see [`saved`]), and nobody locks a queue while holding one of them.

mod claims;
mod saving;

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, Weak};

use unvme_bus::{Clock, Published, lock};
use unvme_flash::PAGE_BYTES;
use unvme_flash::timing::Timing;
use unvme_spec::Nsid;
use unvme_spec::feature::Timestamp;
use unvme_spec::log_page::AsyncEvent;

use crate::association::Association;
use crate::claims::Claims;
use crate::controllers::{CONTROLLERS_MAX, ControllerSet, FIRST_CONTROLLER};
use crate::error_log::ErrorLog;
use crate::fault::Faults;
use crate::fdp::Fdp;
use crate::features::SharedFeatures;
use crate::firmware::Firmware;
use crate::media::Media;
use crate::namespace::{Namespace, NamespaceTable};
use crate::saved::{self, Saving};
use crate::smart::{Counted, Smart};
use crate::store::CHUNK_BYTES;
use crate::{Ssd, SsdConfig, SsdError};

/// See the module.
pub(crate) struct Subsystem {
    /// By identifier, [`CONTROLLERS_MAX`] places. One is taken until its controller has given up everything.
    controllers: Mutex<Vec<Option<Weak<Ssd>>>>,
    /// The controller after whose namespaces others are given theirs, and whose namespaces the saved state
    /// calls attached: the first there is.
    model: AtomicU16,
    /// There have been several controllers at a time.
    is_shared: AtomicBool,
    /// Held by what changes the namespaces, or anything else of the subsystem in more than one step: one
    /// admin command at a time, or the making of a controller.
    pub(crate) changing: Mutex<()>,
    /// The namespaces as nobody in particular sees them; each controller has a view of its own.
    pub(crate) namespaces: Published<NamespaceTable>,
    /// Namespaces that hosts have claimed.
    pub(crate) claims: Claims,
    pub(crate) media: Arc<Media>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) fdp: Arc<Fdp>,
    pub(crate) features: Mutex<SharedFeatures>,
    pub(crate) errors: Mutex<ErrorLog>,
    pub(crate) firmware: Mutex<Firmware>,
    pub(crate) smart: Mutex<Smart>,
    pub(crate) saving: Saving,
    /// The state could not be saved last time for want of space.
    lacks_space: AtomicBool,
    /// The hosts have been told that the flash is worn out.
    pub(crate) worn_out: AtomicBool,
    /// How long commands take; `None` for as long as they do.
    pub(crate) timing: Option<Mutex<Timing>>,
    /// Counters of queues that are gone.
    pub(crate) retired: Mutex<Counted>,
    /// Held by NVM Subsystem Reset.
    pub(crate) resetting: Mutex<()>,
    /// The device has been closed; locked while it is being.
    pub(crate) is_closed: Mutex<bool>,
}

impl Subsystem {
    /// Starts from what the store of `media` has kept, or as a new device.
    pub(crate) fn start(config: &SsdConfig, media: Arc<Media>) -> Result<Self, SsdError> {
        // Units of a translation layer are not known yet: without one they are chunks.
        let timing = config.timing.build((CHUNK_BYTES / PAGE_BYTES) as u32)?;
        let restored = saved::restore(config, &media)?;
        Ok(Self {
            controllers: Mutex::new(vec![None; CONTROLLERS_MAX]),
            model: AtomicU16::new(FIRST_CONTROLLER),
            is_shared: AtomicBool::new(false),
            changing: Mutex::new(()),
            namespaces: Published::new(restored.namespaces),
            features: Mutex::new(SharedFeatures::new(config, restored.features)),
            errors: Mutex::new(ErrorLog::new(restored.error_count, restored.errors)),
            firmware: Mutex::new(Firmware::new(restored.firmware)),
            smart: Mutex::new(Smart::new(restored.smart, restored.kv)),
            saving: Saving::new(),
            lacks_space: AtomicBool::new(false),
            worn_out: AtomicBool::new(false),
            faults: Arc::new(Faults::start(restored.faults, &config.faults)?),
            fdp: Arc::new(restored.fdp),
            claims: Claims::default(),
            media,
            timing: timing.map(Mutex::new),
            retired: Mutex::default(),
            resetting: Mutex::new(()),
            is_closed: Mutex::new(false),
        })
    }

    /// The controllers there are, in the order of their identifiers. Should the last owner of one drop it
    /// meanwhile, it goes when the caller drops it: which no lock but a queue's, a register file's or
    /// `changing` may be held for.
    pub(crate) fn controllers(&self) -> Vec<Arc<Ssd>> {
        lock(&self.controllers).iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// Which controllers there are.
    pub(crate) fn present(&self) -> ControllerSet {
        let controllers = lock(&self.controllers);
        let there = (0..).zip(controllers.iter()).filter(|(_, controller)| controller.is_some());
        there.fold(ControllerSet::default(), |set, (cntlid, _)| set.with(ControllerSet::only(cntlid)))
    }

    /// See [`Subsystem::model`].
    pub(crate) fn model(&self) -> ControllerSet {
        ControllerSet::only(self.model.load(Ordering::Relaxed))
    }

    /// True from when the subsystem has had several controllers at a time: until then it is one of a single
    /// controller for everybody, whom that may save some work.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// Identifier for a new controller: the smallest that is free. The caller holds `changing`.
    fn free_id(&self) -> Option<u16> {
        let present = self.present().with(ControllerSet::first());
        (0..CONTROLLERS_MAX as u16).find(|&cntlid| !present.contains(cntlid))
    }

    /// A controller is there from now on.
    pub(crate) fn enter(&self, controller: &Arc<Ssd>) {
        let mut controllers = lock(&self.controllers);
        controllers[usize::from(controller.cntlid)] = Some(Arc::downgrade(controller));
        self.note(&controllers);
    }

    /// A controller has given everything up; true when it was the last one.
    fn leave(&self, cntlid: u16) -> bool {
        let mut controllers = lock(&self.controllers);
        controllers[usize::from(cntlid)] = None;
        self.note(&controllers)
    }

    /// Takes note of which controllers there are; true when there are none.
    fn note(&self, controllers: &[Option<Weak<Ssd>>]) -> bool {
        let there: Vec<u16> =
            (0..).zip(controllers).filter(|(_, place)| place.is_some()).map(|(cntlid, _)| cntlid).collect();
        if there.len() > 1 {
            self.is_shared.store(true, Ordering::Relaxed);
        }
        let Some(&first) = there.first() else { return true };
        if self.model.swap(first, Ordering::Relaxed) != first {
            self.saving.changed();
        }
        false
    }

    /// Shows a version of the namespaces to every controller. The caller holds `changing`.
    pub(crate) fn publish(&self, table: &NamespaceTable) {
        let published: Result<(), Infallible> = self.namespaces.update(|_| Ok((table.clone(), ())));
        let Ok(()) = published;
        for controller in self.controllers() {
            controller.show(table);
        }
        self.saving.changed();
    }

    /// The time for events that belong to no controller: that of the first one whose host has said what time
    /// it is.
    pub(crate) fn timestamp(&self, clock: &Clock) -> Timestamp {
        let controllers = self.controllers();
        let knows = controllers.iter().find(|controller| lock(&controller.features).knows_time());
        let teller = knows.or(controllers.first());
        teller.map_or_else(Timestamp::default, |controller| lock(&controller.features).timestamp(clock))
    }

    /// A namespace's Identify data, or whether it is attached, has changed for some controllers.
    pub(crate) fn namespace_changed_for(&self, controllers: ControllerSet, nsid: Nsid) {
        for controller in self.controllers() {
            if controllers.contains(controller.cntlid) {
                controller.events.namespace_changed(nsid, controller.wanted_events());
            }
        }
    }

    /// A rule reports an event to all hosts, whatever they have asked to hear of.
    pub(crate) fn report(&self, event: AsyncEvent) {
        self.controllers().iter().for_each(|controller| controller.events.raise(event));
    }

    /// The media has become read only.
    pub(crate) fn media_is_read_only(&self) {
        for controller in self.controllers() {
            controller.events.media_is_read_only(controller.wanted_events());
        }
    }

    /// Firmware is about to be activated without a reset.
    pub(crate) fn firmware_activation_starting(&self) {
        for controller in self.controllers() {
            controller.events.firmware_activation_starting(controller.wanted_events());
        }
    }

    /// Firmware is activated by a reset of one controller, which all others have not asked for.
    pub(crate) fn firmware_activated_by_reset(&self, cntlid: u16) {
        for controller in self.controllers() {
            if controller.cntlid != cntlid && !controller.is_stopped() {
                controller.events.firmware_activation_starting(controller.wanted_events());
            }
        }
    }
}

impl Ssd {
    /// Another controller of this device: a PCI function of its own over the same namespaces, with an
    /// identifier (CNTLID), registers, doorbells, queues, DMA mappings, interrupts, events and features of
    /// its own. It is disabled, and the namespaces that are attached to the first controller there is are
    /// attached to it, private ones excepted. It is gone when its last owner drops it; the device is closed
    /// with its last controller.
    ///
    /// Hosts that drive the controllers of a device whose completions take their time have to use one virtual
    /// clock, or wall clocks. Errors: [`SsdError::Config`] when there are [`CONTROLLERS_MAX`] already, when
    /// the device is gone, or [`SsdError::Bus`] when there is no memory for doorbells.
    pub fn add_controller(self: &Arc<Self>) -> Result<Arc<Self>, SsdError> {
        self.add(None)
    }

    /// [`Ssd::add_controller`], for a host that is reached over a network: in place of a PCI function it has
    /// an association.
    pub(crate) fn add_remote_controller(
        self: &Arc<Self>,
        association: Arc<Association>,
    ) -> Result<Arc<Self>, SsdError> {
        self.add(Some(association))
    }

    fn add(self: &Arc<Self>, association: Option<Arc<Association>>) -> Result<Arc<Self>, SsdError> {
        let refused = |value: &str, expected: &str| SsdError::Config {
            key: "controllers",
            value: value.to_owned(),
            expected: expected.to_owned(),
        };
        let subsystem = &self.subsystem;
        let _alone = lock(&subsystem.changing);
        if self.faults.is_gone() {
            return Err(refused("another one of a device that is gone", "the device to be opened anew"));
        }
        let cntlid =
            subsystem.free_id().ok_or_else(|| refused("one more", "at most 128 at a time; close another"))?;
        let (newcomer, model) = (ControllerSet::only(cntlid), subsystem.model());
        let mut table = NamespaceTable::clone(&self.namespaces.get());
        let namespaces: Vec<Arc<Namespace>> = table.iter().cloned().collect();
        for namespace in namespaces {
            let attached = match namespace.attached.intersects(model) && !namespace.is_private {
                true => namespace.attached.with(newcomer),
                false => namespace.attached.without(newcomer),
            };
            if attached != namespace.attached {
                table.put(Namespace { attached, ..Namespace::clone(&namespace) });
            }
        }
        let controller = self.sibling(cntlid, table.seen_by(newcomer, false), association)?;
        subsystem.enter(&controller);
        subsystem.show_claims();
        subsystem.publish(&table);
        tracing::debug!(serial = self.config.serial, cntlid, "a controller was added");
        Ok(controller)
    }

    /// Identifier of this controller in its subsystem (CNTLID): 0 for the first.
    pub fn controller_id(&self) -> u16 {
        self.cntlid
    }

    /// NQN that the subsystem has by itself: made of its serial number.
    pub fn subsystem_nqn(&self) -> String {
        crate::identity::subsystem_nqn(&self.config.serial)
    }

    /// This controller alone.
    pub(crate) fn itself(&self) -> ControllerSet {
        ControllerSet::only(self.cntlid)
    }

    /// Takes over a version of the namespaces.
    fn show(&self, table: &NamespaceTable) {
        let shown: Result<(), Infallible> = self.namespaces.update(|view| Ok((table.seen_as(view), ())));
        let Ok(()) = shown;
    }

    /// True when no other controller is enabled: what belongs to all of them may be reset with this one.
    pub(crate) fn is_alone(&self) -> bool {
        let others = self.subsystem.controllers();
        others.iter().all(|other| other.cntlid == self.cntlid || other.is_stopped())
    }

    /// Gives up what is this controller's, and the device with the last one.
    fn depart(&self) {
        self.stop_serving();
        self.remove_queues();
        self.close_iterators();
        self.release_claims();
        if self.subsystem.leave(self.cntlid) {
            self.close_device();
        }
    }
}

impl Drop for Ssd {
    fn drop(&mut self) {
        self.depart();
    }
}
