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
//! **Locks**, in the order in which they are taken: [`Subsystem::changing`], and then what each controller locks. A
//! controller's registers are locked before its queues. Whoever holds a queue of one controller and locks one of another
//! holds its admin submission queue and `changing`, or registers, and nobody waits for those with an I/O queue locked. The
//! list of controllers is a leaf.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, Weak};

use unvme_bus::{Published, lock};
use unvme_flash::timing::Timing;

use crate::admin::SharedAdmin;
use crate::fabrics::Association;
use crate::namespace::{Namespace, NamespaceTable};
use crate::smart::Counted;
use crate::{Ssd, SsdError};

/// Most controllers that a device has at a time.
pub const CONTROLLERS_MAX: usize = 128;

/// Identifier of the first controller of a device. No other one gets it, not even when that one has gone.
const FIRST: u16 = 0;

/// Controllers, a bit for each by its identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ControllerSet(u128);

const _: () = assert!(CONTROLLERS_MAX <= u128::BITS as usize);

impl ControllerSet {
    /// One controller, whose identifier is below [`CONTROLLERS_MAX`].
    pub(crate) const fn only(cntlid: u16) -> Self {
        Self(1 << cntlid)
    }

    /// The controller a device has when it is made.
    pub(crate) const fn first() -> Self {
        Self::only(FIRST)
    }

    #[inline(always)]
    pub(crate) const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) const fn contains(self, cntlid: u16) -> bool {
        (cntlid as usize) < CONTROLLERS_MAX && self.intersects(Self::only(cntlid))
    }

    pub(crate) const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Identifiers in ascending order.
    pub(crate) fn iter(self) -> impl Iterator<Item = u16> {
        (0..CONTROLLERS_MAX as u16).filter(move |&cntlid| self.contains(cntlid))
    }
}

/// See the module.
pub(crate) struct Subsystem {
    /// By identifier, [`CONTROLLERS_MAX`] places. One is taken until its controller has given up everything.
    controllers: Mutex<Vec<Option<Weak<Ssd>>>>,
    /// The controller after whose namespaces others are given theirs, and whose namespaces the saved state calls attached:
    /// the first there is.
    model: AtomicU16,
    /// There have been several controllers at a time.
    is_shared: AtomicBool,
    /// Held by what changes the namespaces, or anything else of the subsystem in more than one step: one admin command at a
    /// time, or the making of a controller.
    pub(crate) changing: Mutex<()>,
    /// The namespaces as nobody in particular sees them; each controller has a view of its own.
    pub(crate) namespaces: Published<NamespaceTable>,
    pub(crate) admin: SharedAdmin,
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
    pub(crate) fn new(namespaces: NamespaceTable, admin: SharedAdmin, timing: Option<Timing>) -> Self {
        Self {
            controllers: Mutex::new(vec![None; CONTROLLERS_MAX]),
            model: AtomicU16::new(FIRST),
            is_shared: AtomicBool::new(false),
            changing: Mutex::new(()),
            namespaces: Published::new(namespaces),
            admin,
            timing: timing.map(Mutex::new),
            retired: Mutex::default(),
            resetting: Mutex::new(()),
            is_closed: Mutex::new(false),
        }
    }

    /// The controllers there are, in the order of their identifiers. Should the last owner of one drop it meanwhile, it goes
    /// when the caller drops it: which no lock but a queue's, a register file's or `changing` may be held for.
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

    /// True from when the subsystem has had several controllers at a time: until then it is one of a single controller for
    /// everybody, whom that may save some work.
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
            self.admin.changed();
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
        self.admin.changed();
    }
}

impl Ssd {
    /// Another controller of this device: a PCI function of its own over the same namespaces, with an identifier (CNTLID),
    /// registers, doorbells, queues, DMA mappings, interrupts, events and features of its own. It is disabled, and the
    /// namespaces that are attached to the first controller there is are attached to it, private ones excepted. It is gone when
    /// its last owner drops it; the device is closed with its last controller.
    ///
    /// Hosts that drive the controllers of a device whose completions take their time have to use one virtual clock, or wall
    /// clocks.
    ///
    /// # Errors
    /// [`SsdError::Config`] when there are [`CONTROLLERS_MAX`] already, when the device is gone, or [`SsdError::Bus`] when
    /// there is no memory for doorbells.
    pub fn add_controller(self: &Arc<Self>) -> Result<Arc<Self>, SsdError> {
        self.add(None)
    }

    /// [`Ssd::add_controller`], for a host that is reached over a network: in place of a PCI function it has an association.
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
        crate::admin::subsystem_nqn(&self.config.serial)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_controllers_is_a_set_of_small_numbers() {
        let set = ControllerSet::only(0).with(ControllerSet::only(127));
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 127]);
        assert!(set.contains(127) && !set.contains(1) && !set.contains(128) && !set.contains(0xffff));
        assert_eq!((set.count(), set.without(ControllerSet::first())), (2, ControllerSet::only(127)));
        assert!(ControllerSet::only(127).is_within(set) && !set.is_within(ControllerSet::only(127)));
        assert!(!ControllerSet::default().contains(0) && !set.intersects(ControllerSet::only(3)));
    }
}
