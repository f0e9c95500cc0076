//! An association: a host and the controller that was made for it (Base 3.3.2).
//!
//! Each of its queues belongs to a connection, which may be served by a thread of its own. What they have to know of one
//! another is here: whether the association goes on, which queues there are, when the host was last heard of.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use unvme_bus::{AddressSpace, EventFd, lock};

use super::port::{AnaState, PortId};
use super::queue::EndReason;
use super::subsystem::{Offer, Reach};
use crate::ssd::ResetScope;

/// Granularity of the keep alive timer in milliseconds (KAS).
pub(crate) const KEEP_ALIVE_UNIT_MS: u32 = 100;

/// See the module.
#[derive(Debug)]
pub(crate) struct Association {
    pub(super) offer: Arc<Offer>,
    pub(super) port: PortId,
    /// How well the subsystem is reached at that port.
    pub(super) reach: Arc<Reach>,
    pub(super) hostnqn: String,
    pub(super) hostid: [u8; 16],
    /// Memory of the admin queue.
    space: Arc<AddressSpace>,
    /// KATO in milliseconds; 0 when there is no timer.
    keep_alive_ms: AtomicU32,
    /// When a command last came, by the clock of who serves the queues.
    last_seen: AtomicU64,
    /// An [`EndReason`], or 0.
    ended: AtomicU8,
    /// Controller resets, each of which ends the I/O queues there were.
    resets: AtomicU32,
    /// By queue identifier: who serves it. Theirs until they have noticed that it has ended.
    seats: Mutex<Vec<Seat>>,
}

#[derive(Clone, Debug, Default)]
struct Seat {
    is_taken: bool,
    wake: Option<EventFd>,
}

/// What a new association is made of.
pub(super) struct AssociationParts {
    pub(super) offer: Arc<Offer>,
    pub(super) port: PortId,
    pub(super) hostnqn: String,
    pub(super) hostid: [u8; 16],
    pub(super) space: Arc<AddressSpace>,
    pub(super) keep_alive_ms: u32,
    /// Queues there can be, the admin queue included.
    pub(super) queues: usize,
}

impl Association {
    pub(super) fn new(parts: AssociationParts) -> Self {
        let AssociationParts { offer, port, hostnqn, hostid, space, keep_alive_ms, queues } = parts;
        Self {
            reach: offer.reach(port),
            offer,
            port,
            hostnqn,
            hostid,
            space,
            keep_alive_ms: AtomicU32::new(in_units(keep_alive_ms)),
            last_seen: AtomicU64::new(0),
            ended: AtomicU8::new(0),
            resets: AtomicU32::new(0),
            seats: Mutex::new(vec![Seat::default(); queues]),
        }
    }

    /// NQN of the subsystem, as hosts know it.
    pub(crate) fn subnqn(&self) -> &str {
        &self.offer.nqn
    }

    /// Memory of the admin queue.
    pub(crate) fn admin_space(&self) -> &Arc<AddressSpace> {
        &self.space
    }

    /// KATO in milliseconds.
    pub(crate) fn keep_alive_ms(&self) -> u32 {
        self.keep_alive_ms.load(Ordering::Relaxed)
    }

    /// Sets KATO, rounded up to what the timer can do.
    pub(crate) fn set_keep_alive_ms(&self, milliseconds: u32) {
        self.keep_alive_ms.store(in_units(milliseconds), Ordering::Relaxed);
    }

    /// State of the namespaces at the host's port, and how often it has changed.
    pub(crate) fn ana(&self) -> (AnaState, u64) {
        (self.reach.state(), self.reach.changes())
    }

    /// The host was heard of.
    pub(super) fn seen(&self, now: u64) {
        self.last_seen.store(now, Ordering::Relaxed);
    }

    /// When the keep alive timer expires, unless something is heard before; `None` without one.
    pub(super) fn expires(&self) -> Option<u64> {
        let milliseconds = u64::from(self.keep_alive_ms());
        (milliseconds != 0)
            .then(|| self.last_seen.load(Ordering::Relaxed).saturating_add(milliseconds * 1_000_000))
    }

    /// Why it has ended; `None` while it goes on.
    #[inline]
    pub(super) fn ended(&self) -> Option<EndReason> {
        EndReason::of(self.ended.load(Ordering::Acquire))
    }

    /// It ends: every connection of it is to close. The first reason stays.
    pub(crate) fn end(&self, reason: EndReason) {
        let first = self.ended.compare_exchange(0, reason.code(), Ordering::AcqRel, Ordering::Relaxed);
        if first.is_ok() {
            self.wake_all();
        }
    }

    fn wake_all(&self) {
        lock(&self.seats).iter().filter_map(|seat| seat.wake.as_ref()).for_each(EventFd::signal);
    }

    /// The controller was reset, its queues are gone.
    pub(crate) fn controller_was_reset(&self, scope: ResetScope) {
        self.resets.fetch_add(1, Ordering::AcqRel);
        match scope {
            ResetScope::Controller => self.wake_all(),
            ResetScope::Function | ResetScope::Subsystem => self.end(EndReason::SubsystemReset),
        }
    }

    /// Resets of the controller so far.
    #[inline]
    pub(super) fn resets(&self) -> u32 {
        self.resets.load(Ordering::Acquire)
    }

    /// Takes a queue; false when somebody has it, or there is none with this identifier.
    pub(super) fn take_seat(&self, qid: u16, wake: Option<EventFd>) -> bool {
        match lock(&self.seats).get_mut(usize::from(qid)) {
            Some(seat) if !seat.is_taken => {
                *seat = Seat { is_taken: true, wake };
                true
            }
            _ => false,
        }
    }

    /// Somebody serves a queue that is not the admin queue.
    pub(super) fn has_io_queues(&self) -> bool {
        lock(&self.seats).iter().skip(1).any(|seat| seat.is_taken)
    }

    /// Nobody serves the queue any more.
    pub(super) fn leave_seat(&self, qid: u16) {
        if let Some(seat) = lock(&self.seats).get_mut(usize::from(qid)) {
            *seat = Seat::default();
        }
    }
}

fn in_units(milliseconds: u32) -> u32 {
    milliseconds.checked_next_multiple_of(KEEP_ALIVE_UNIT_MS).unwrap_or(u32::MAX)
}
