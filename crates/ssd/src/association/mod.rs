//! An association: a host and the controller that was made for it (Base 3.3.2).
//!
//! Each of its queues belongs to a connection, which may be served by a thread of its own. What they have to
//! know of one another is here: whether the association goes on, which queues there are, when the host was
//! last heard of.

mod proof;
mod reach;

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use unvme_bus::{AddressSpace, EventFd, lock};

pub(crate) use proof::Proof;
pub(crate) use reach::Reach;
pub use reach::{AnaState, PortId};

/// Granularity of the keep alive timer in milliseconds (KAS).
pub(crate) const KEEP_ALIVE_UNIT_MS: u32 = 100;

/// Most bytes of data in a command capsule.
pub(crate) const IN_CAPSULE_BYTES: u32 = 8192;

/// Why an association, or a queue, has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndReason {
    /// The admin queue's connection is gone.
    #[error("the connection of the admin queue is gone")]
    AdminGone,
    /// The keep alive timer has expired.
    #[error("the keep alive timer has expired")]
    KeepAlive,
    /// The controller was reset or disabled, which ends its I/O queues.
    #[error("the controller was reset")]
    Reset,
    /// The subsystem was reset.
    #[error("the subsystem was reset")]
    SubsystemReset,
    /// The device is gone.
    #[error("the device is gone")]
    DeviceGone,
    /// The host did not prove in time who it is.
    #[error("the host did not prove in time who it is")]
    Authentication,
    /// The host is not among those that may enter any more, or has to prove something else.
    #[error("the host may not enter any more")]
    Revoked,
    /// There were too few places for all, and another host's claim to this one was better.
    #[error("its place was needed for another host")]
    GaveWay,
}

impl EndReason {
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::AdminGone => 1,
            Self::KeepAlive => 2,
            Self::Reset => 3,
            Self::SubsystemReset => 4,
            Self::DeviceGone => 5,
            Self::Authentication => 6,
            Self::Revoked => 7,
            Self::GaveWay => 8,
        }
    }

    /// `None` for 0, which is no reason.
    pub(super) const fn of(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::AdminGone,
            2 => Self::KeepAlive,
            3 => Self::Reset,
            4 => Self::SubsystemReset,
            5 => Self::DeviceGone,
            6 => Self::Authentication,
            7 => Self::Revoked,
            8 => Self::GaveWay,
            _ => return None,
        })
    }
}

/// How deep a reset goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResetScope {
    /// CC.EN cleared.
    Controller,
    /// Function level reset, or the host has gone.
    Function,
    /// NVM Subsystem Reset.
    Subsystem,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Association {
    /// NQN of the subsystem, as its host knows it.
    subnqn: String,
    port: PortId,
    /// How well the subsystem is reached at that port.
    pub(crate) reach: Arc<Reach>,
    pub(crate) hostnqn: String,
    pub(crate) hostid: [u8; 16],
    /// What was asked of the host when it came.
    pub(crate) proof: Proof,
    /// See [`crate::fabrics::TargetOptions::pairs_in_blocks`].
    pub(crate) pairs_in_blocks: bool,
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
    /// Whoever has it has to prove first that it may.
    is_unproven: bool,
    /// It is to leave.
    gives_way: bool,
    wake: Option<EventFd>,
}

/// What a new association is made of.
pub(crate) struct AssociationParts {
    pub(crate) subnqn: String,
    pub(crate) port: PortId,
    pub(crate) reach: Arc<Reach>,
    pub(crate) hostnqn: String,
    pub(crate) hostid: [u8; 16],
    pub(crate) proof: Proof,
    pub(crate) pairs_in_blocks: bool,
    pub(crate) space: Arc<AddressSpace>,
    pub(crate) keep_alive_ms: u32,
    /// Queues there can be, the admin queue included.
    pub(crate) queues: usize,
}

impl Association {
    pub(crate) fn new(parts: AssociationParts) -> Self {
        let AssociationParts {
            subnqn,
            port,
            reach,
            hostnqn,
            hostid,
            proof,
            pairs_in_blocks,
            space,
            keep_alive_ms,
            queues,
        } = parts;
        Self {
            subnqn,
            port,
            reach,
            hostnqn,
            hostid,
            proof,
            pairs_in_blocks,
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
        &self.subnqn
    }

    /// Where the host reaches the subsystem.
    pub(crate) fn port(&self) -> PortId {
        self.port
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
    pub(crate) fn seen(&self, now: u64) {
        self.last_seen.store(now, Ordering::Relaxed);
    }

    /// When the keep alive timer expires, unless something is heard before; `None` without one.
    pub(crate) fn expires(&self) -> Option<u64> {
        let milliseconds = u64::from(self.keep_alive_ms());
        (milliseconds != 0)
            .then(|| self.last_seen.load(Ordering::Relaxed).saturating_add(milliseconds * 1_000_000))
    }

    /// Why it has ended; `None` while it goes on.
    #[inline]
    pub(crate) fn ended(&self) -> Option<EndReason> {
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
    pub(crate) fn resets(&self) -> u32 {
        self.resets.load(Ordering::Acquire)
    }

    /// Takes a queue; false when somebody has it, or there is none with this identifier.
    pub(crate) fn take_seat(&self, qid: u16, wake: Option<EventFd>) -> bool {
        match lock(&self.seats).get_mut(usize::from(qid)) {
            Some(seat) if !seat.is_taken => {
                *seat = Seat { is_taken: true, wake, ..Seat::default() };
                true
            }
            _ => false,
        }
    }

    /// Whoever has the queue has to prove first that it may, or has done so.
    pub(crate) fn set_unproven(&self, qid: u16, is_unproven: bool) {
        if let Some(seat) = lock(&self.seats).get_mut(usize::from(qid)) {
            seat.is_unproven = is_unproven;
        }
    }

    /// Somebody else wants the queue: whoever has it and has proven nothing is told to leave. False when
    /// nobody is to be waited for.
    pub(crate) fn claim_seat(&self, qid: u16) -> bool {
        let mut seats = lock(&self.seats);
        let Some(seat) = seats.get_mut(usize::from(qid)).filter(|seat| seat.is_taken && seat.is_unproven)
        else {
            return false;
        };
        seat.gives_way = true;
        seat.wake.iter().for_each(EventFd::signal);
        true
    }

    /// Whoever has the queue is to leave it.
    pub(crate) fn gives_way(&self, qid: u16) -> bool {
        lock(&self.seats).get(usize::from(qid)).is_some_and(|seat| seat.gives_way && seat.is_unproven)
    }

    /// Somebody serves a queue that is not the admin queue.
    pub(crate) fn has_io_queues(&self) -> bool {
        lock(&self.seats).iter().skip(1).any(|seat| seat.is_taken)
    }

    /// Nobody serves the queue any more.
    pub(crate) fn leave_seat(&self, qid: u16) {
        if let Some(seat) = lock(&self.seats).get_mut(usize::from(qid)) {
            *seat = Seat::default();
        }
    }
}

fn in_units(milliseconds: u32) -> u32 {
    milliseconds.checked_next_multiple_of(KEEP_ALIVE_UNIT_MS).unwrap_or(u32::MAX)
}
