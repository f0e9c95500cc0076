//! One queue of one association, for the connection that it is.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use unvme_bus::{EventFd, Region};
use unvme_fabric::chap;
use unvme_spec::{Cqe, Status};

use super::commands::Proving;
use super::connect::Connecting;
use super::device::DeviceQueue;
use super::discovery::Discovery;
use super::guest::{Guest, origin};
use super::holds::Holds;
use super::memory::{MemoryBudget, WaitTicket};
use super::port::Peer;
use super::slots::{Slot, Slots, Stage};
use super::staging::Pool;
use super::target::Target;
use crate::association::{EndReason, IN_CAPSULE_BYTES, PortId};

/// Most bytes that a transport has for each entry of a queue: replies, and parts of data that was asked for.
pub(crate) const TRANSPORT_BYTES_PER_ENTRY: usize = 320;

/// A command that has begun and is not released yet: below the number of the queue's entries, and free for
/// another command once it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u16);

/// Data that a command needs from the host before it runs. A command whose key is in its capsule may want
/// twice: what is there, and then the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataWanted {
    /// The command.
    pub slot: SlotId,
    /// Bytes to receive, at least 1.
    pub bytes: u32,
    /// They are in the capsule, from its first byte of data on, and go to [`FabricsQueue::capsule_memory`]:
    /// at most [`FabricsQueue::in_capsule_bytes`]. Otherwise the transport asks the host for them, and they
    /// go to [`FabricsQueue::memory`].
    pub in_capsule: bool,
}

/// What becomes of a capsule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// The command runs.
    Run(SlotId),
    /// The command waits for data; [`FabricsQueue::data_arrived`] lets it run.
    NeedsData(DataWanted),
    /// There is no memory for the data in its capsule: the capsule is to be handed over again, after the next
    /// poll at the earliest, and nothing behind it before. Commands that the queue has end meanwhile.
    Full,
    /// The command waits for memory, never one whose data is in its capsule. If it then needs data from the
    /// host, [`FabricsQueue::next_wanted`] says so. The connection goes on reading meanwhile: data of other
    /// commands frees memory.
    Waits(SlotId),
    /// The command has been answered and has no slot. Data in its capsule is to be skipped.
    Refused(Cqe),
    /// The connection has to end.
    Fatal(Fatal),
}

/// Why a connection has to end at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fatal {
    /// More commands than the queue has entries.
    #[error("the host has sent more commands than its queue has entries")]
    TooManyCommands,
    /// The queue has ended, see [`FabricsQueue::state`].
    #[error("the queue has ended")]
    Ended,
    /// No memory for a queue.
    #[error("there is no memory")]
    NoMemory,
}

/// A command that has been executed: its completion is to be sent, and then [`FabricsQueue::release`]d.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The command.
    pub slot: SlotId,
    /// Its completion, with the host's command identifier and SQHD.
    pub cqe: Cqe,
    /// Bytes to send to the host before the completion, from the start of [`FabricsQueue::memory`]; 0 for a
    /// command that sends none, or has failed. The end of an iteration is a status that comes with data.
    pub bytes: u32,
    /// SQHD may be left out: the host does not use flow control (Connect, CATTR), so a result of zero says
    /// nothing and success can be said with the data.
    pub is_plain: bool,
}

/// Staging memory of a command.
#[derive(Clone, Copy, Debug)]
pub struct Staging<'a> {
    /// Memory it is in.
    pub region: &'a Region,
    /// Where it starts there.
    pub offset: usize,
    /// Bytes of it.
    pub bytes: usize,
}

/// How far a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueState {
    /// Connect has not come.
    Open,
    /// It is a queue of an association.
    Connected,
    /// The host has asked for its end (Disconnect): the connection closes when all responses have been sent.
    Disconnected,
    /// The association has ended, or the queue alone: the connection closes.
    Ended(EndReason),
}

/// What a queue is a queue of.
pub(super) enum At {
    /// Nothing yet.
    Unconnected,
    /// A controller of a device.
    Device(Box<DeviceQueue>),
    /// A discovery controller, which has an admin queue alone.
    Discovery(Box<Discovery>),
}

impl fmt::Debug for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unconnected => "Unconnected",
            Self::Device(_) => "Device",
            Self::Discovery(_) => "Discovery",
        })
    }
}

/// A command that was executed here, rather than by a controller of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Executed {
    pub(super) slot: u16,
    pub(super) status: Status,
    pub(super) result: u64,
    /// Bytes to send, when it has succeeded.
    pub(super) bytes: u32,
}

/// One queue of one association: the state of one connection. It can move to another thread, and is used by
/// one at a time.
pub struct FabricsQueue {
    pub(super) target: Arc<Target>,
    pub(super) port: PortId,
    pub(super) peer: Peer,
    pub(super) wake: Option<EventFd>,
    /// Among those who may have memory to give back.
    holder: Option<WaitTicket>,
    pub(super) at: At,
    pub(super) state: QueueState,
    pub(super) slots: Slots,
    pub(super) pool: Pool,
    pub(super) holds: Holds,
    /// Since when the host has kept memory, as of the last poll.
    oldest_hold: Option<u64>,
    /// Commands that wait for memory.
    pub(super) waiting: VecDeque<u16>,
    /// Commands that have waited for memory and want data.
    pub(super) wanted: VecDeque<u16>,
    pub(super) executed: VecDeque<Executed>,
    /// The first half of a fused pair, whose second has not come.
    pub(super) first_half: Option<u16>,
    /// Since when that one waits and has memory.
    pub(super) first_half_since: Option<u64>,
    /// Entries of the host's submission queue; 0 before Connect.
    pub(super) entries: u32,
    /// Commands answered, modulo that.
    sq_head: u16,
    /// SQHD is reserved.
    pub(super) has_no_flow_control: bool,
    /// Its Connect waits for another host to leave.
    pub(super) connecting: Option<Connecting>,
    /// The host has to authenticate before anything else.
    pub(super) must_authenticate: bool,
    /// How it does.
    pub(super) authentication: Option<Box<chap::Controller>>,
    /// What it has said to that end waits to be looked at.
    pub(super) proving: Option<Proving>,
    /// What is said of the host since the last poll: a command has come.
    pub(super) is_heard: bool,
    /// When the host was noted to be there last.
    pub(super) heard_at: Option<u64>,
    /// Clock at the last poll.
    pub(super) now: u64,
    /// Not Sync: it belongs to the connection.
    alone: PhantomData<Cell<()>>,
}

impl FabricsQueue {
    /// A queue that waits for Connect, which costs nothing yet.
    pub fn new(target: &Arc<Target>, port: PortId, peer: Peer) -> Self {
        let stranger = Guest::stranger(origin(&peer.address));
        Self {
            target: Arc::clone(target),
            port,
            peer,
            wake: None,
            holder: None,
            at: At::Unconnected,
            state: QueueState::Open,
            slots: Slots::default(),
            pool: Pool::new(target.memory().open(&stranger)),
            holds: Holds::default(),
            oldest_hold: None,
            waiting: VecDeque::new(),
            wanted: VecDeque::new(),
            executed: VecDeque::new(),
            first_half: None,
            first_half_since: None,
            entries: 0,
            sq_head: 0,
            has_no_flow_control: false,
            connecting: None,
            must_authenticate: false,
            authentication: None,
            proving: None,
            is_heard: false,
            heard_at: None,
            now: 0,
            alone: PhantomData,
        }
    }

    /// Signalled when [`FabricsQueue::poll`] has something to do that the connection has not brought: an
    /// event, the end of the association, memory that has become free. To be set before the first capsule;
    /// without it a connection has to ask now and then.
    pub fn set_wake(&mut self, wake: EventFd) {
        if let Some(before) = self.holder.replace(self.target.memory().enter(wake.clone())) {
            self.target.memory().leave(before);
        }
        self.wake = Some(wake);
    }

    /// Most bytes of data in a command capsule.
    pub fn in_capsule_bytes(&self) -> u32 {
        IN_CAPSULE_BYTES
    }

    /// A command that [`Begun::Waits`], or one whose key has arrived, has memory now and wants data from the
    /// host; asked for until there is none after each poll and each [`FabricsQueue::data_arrived`].
    #[inline]
    pub fn next_wanted(&mut self) -> Option<DataWanted> {
        let slot = self.wanted.pop_front()?;
        let bytes = self.slots.get(slot)?.bytes;
        Some(DataWanted { slot: SlotId(slot), bytes, in_capsule: false })
    }

    /// Where a command's data is; `None` for one without data.
    #[inline]
    pub fn memory(&self, slot: SlotId) -> Option<Staging<'_>> {
        let slot = self.slots.get(slot.0).filter(|slot| slot.bytes > 0)?;
        self.pool.staging_behind(slot.before_data(), slot.buffer?, slot.bytes)
    }

    /// Where that is which a command has in its capsule: its key, if it has one there, and the data behind
    /// it.
    #[inline]
    pub fn capsule_memory(&self, slot: SlotId) -> Option<Staging<'_>> {
        let slot = self.slots.get(slot.0)?;
        match slot.key_buffer {
            Some(key) => self.pool.staging(key, slot.key_bytes),
            None => self.pool.staging(slot.buffer?, slot.key_bytes.saturating_add(slot.bytes)),
        }
    }

    /// A command's response has been sent, and so has its data: its memory and its slot are free.
    #[inline]
    pub fn release(&mut self, slot: SlotId) {
        let is_done = self.slots.get(slot.0).is_some_and(|slot| slot.stage == Stage::Done);
        debug_assert!(is_done, "slot {} is released before it has been answered", slot.0);
        if is_done {
            self.free(slot.0);
        }
    }

    #[inline]
    pub(super) fn free(&mut self, slot: u16) {
        let Some(Slot { buffer, key_buffer, .. }) = self.slots.free(slot) else { return };
        self.give_back([buffer, key_buffer]);
    }

    /// How far the queue is.
    #[inline]
    pub fn state(&self) -> QueueState {
        self.state
    }

    /// The host has connected and has to prove who it is before anything else, which whoever has the clock
    /// does not wait for forever: see [`FabricsQueue::give_up_proof`].
    #[inline]
    pub fn awaits_proof(&self) -> bool {
        self.must_authenticate && self.state == QueueState::Connected
    }

    /// It is a queue of a device's controller, and its host has proven what it has to.
    #[inline]
    pub fn is_admitted(&self) -> bool {
        matches!(self.at, At::Device(_)) && !self.must_authenticate
    }

    /// The proof is too late: the queue ends.
    #[cold]
    pub fn give_up_proof(&mut self) {
        if self.awaits_proof() {
            self.tell_unproven(&EndReason::Authentication);
            self.end(EndReason::Authentication);
        }
    }

    /// When [`FabricsQueue::poll`] has to be called at the latest, by its clock.
    pub fn next_event(&self) -> Option<u64> {
        if self.has_room_for_waiting() {
            return Some(self.now);
        }
        let own = match &self.at {
            At::Unconnected => self.connect_again_at(),
            At::Device(device) if device.qid == 0 => {
                [device.due(), device.association.expires()].into_iter().flatten().min()
            }
            At::Device(device) => device.due(),
            At::Discovery(discovery) => Some(discovery.expires()),
        };
        [own, self.look_again_at(), self.prove_again_at()].into_iter().flatten().min()
    }

    /// A command that has waited for others of its queue to give back their memory waits no longer for that.
    fn has_room_for_waiting(&self) -> bool {
        let first = self.waiting.front().and_then(|&slot| self.slots.get(slot));
        first.is_some_and(|slot| slot.stage == Stage::Waiting(None) && self.may_hold(slot.bytes))
    }

    /// Since when, by the clock of the polls, the host has been to send data that it was asked for, or to
    /// take what a command has read: the oldest there is, whatever else it has done meanwhile.
    #[inline]
    pub fn oldest_transfer(&self) -> Option<u64> {
        self.oldest_hold
    }

    /// Whether others wait for memory while this host has more than its part.
    pub fn is_greedy(&self) -> bool {
        self.pool.is_greedy(self.budget())
    }

    /// Has its host's account pay for memory that the connection keeps until its end; false when it cannot,
    /// or nobody knows whose it is.
    pub fn pay(&mut self, bytes: u64) -> bool {
        self.is_admitted() && self.target.memory().take_fixed(bytes, self.pool.purse())
    }

    /// Commands that the queue has paid for: there are no more at a time.
    pub fn commands_max(&self) -> usize {
        self.slots.count()
    }

    /// The host has memory of a command to fill or to empty.
    #[inline]
    pub(super) fn hold(&mut self, at: u16) {
        let number = self.holds.begin(at);
        if let Some(slot) = self.slots.get_mut(at) {
            slot.hold = number;
        }
    }

    /// Finds out since when the host has kept memory.
    #[inline]
    pub(super) fn note_oldest_hold(&mut self) {
        let number = |at| self.slots.get(at).map(|slot| slot.hold);
        self.oldest_hold = self.holds.oldest(self.now, self.slots.count(), number);
    }

    /// Commands that have begun and are not released.
    pub fn outstanding(&self) -> usize {
        self.slots.taken()
    }

    /// NQN of the host, once it has connected.
    pub fn host(&self) -> Option<&str> {
        match &self.at {
            At::Unconnected => None,
            At::Device(device) => Some(&device.association.hostnqn),
            At::Discovery(discovery) => Some(&discovery.hostnqn),
        }
    }

    /// Identifier of the queue, once it is one.
    pub fn queue_id(&self) -> Option<u16> {
        match &self.at {
            At::Unconnected => None,
            At::Device(device) => Some(device.qid),
            At::Discovery(_) => Some(0),
        }
    }

    /// Whether it is the admin queue of an association that has other queues still, which would end with it.
    pub fn has_companions(&self) -> bool {
        matches!(&self.at, At::Device(device) if device.qid == 0 && device.association.has_io_queues())
    }

    pub(super) fn budget(&self) -> &MemoryBudget {
        self.target.memory()
    }

    /// The completion of a command; the head of the host's queue moves on.
    #[inline]
    pub(super) fn completion(&mut self, cid: u16, status: Status, result: u64) -> Cqe {
        // One entry for each answer, as if commands were taken from the queue when they are answered: a host
        // that uses flow control then never has more of them than its queue has entries.
        self.sq_head = self.sq_head.wrapping_add(1);
        if u32::from(self.sq_head) >= self.entries.max(1) {
            self.sq_head = 0;
        }
        let mut cqe = Cqe { dw0: result as u32, dw1: (result >> 32) as u32, cid, ..Cqe::default() };
        cqe.sq_head = if self.has_no_flow_control { 0 } else { self.sq_head };
        cqe.set_status(status, false);
        cqe
    }

    /// The queue has ended: nothing of it will run.
    pub(super) fn end(&mut self, reason: EndReason) {
        if !matches!(self.state, QueueState::Ended(_)) {
            tracing::info!(peer = self.peer.address, host = self.host(), queue = self.queue_id(), %reason, "a queue has ended");
            self.state = QueueState::Ended(reason);
            self.stop_proving();
        }
    }

    /// What the queue has of others is given back.
    fn leave(&mut self) {
        if let Some(Stage::Waiting(Some(ticket))) =
            self.waiting.front().and_then(|&slot| self.slots.get(slot)).map(|slot| slot.stage)
        {
            self.target.memory().forget(ticket);
        }
        self.stop_proving();
        match &mut self.at {
            At::Unconnected => {}
            At::Device(device) => device.close(),
            At::Discovery(discovery) => discovery.close(&self.target),
        }
        self.pool.close(self.target.memory());
        if let Some(holder) = self.holder.take() {
            self.target.memory().leave(holder);
        }
    }
}

impl fmt::Debug for FabricsQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FabricsQueue")
            .field("peer", &self.peer)
            .field("state", &self.state)
            .field("at", &self.at)
            .field("outstanding", &self.outstanding())
            .finish_non_exhaustive()
    }
}

impl Drop for FabricsQueue {
    fn drop(&mut self) {
        self.leave();
    }
}
