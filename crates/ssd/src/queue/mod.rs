//! Submission and completion queues as the device sees them.

mod doorbell;
mod set;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use unvme_bus::space::{Direction, View};
use unvme_bus::{AddressSpace, Clock, Reader, Region};
use unvme_flash::timing::OpList;
use unvme_spec::{Cqe, Sqe, Status};

use crate::features::HotFeatures;
use crate::held::{Due, Held, Origin};
use crate::interrupts::Interrupts;
use crate::kv::KvLane;
use crate::namespace::NamespaceTable;
use crate::reply::Reply;
use crate::smart::IoCounters;
pub(crate) use doorbell::BadDoorbell;
pub(crate) use set::Queues;

/// Bytes of a submission queue entry.
pub(crate) const SQE_BYTES: usize = 64;
/// Bytes of a completion queue entry.
pub(crate) const CQE_BYTES: usize = 16;

/// Ring memory of a queue: contiguous for the host, and in one piece for us.
pub(crate) struct Ring {
    iova: u64,
    bytes: usize,
    direction: Direction,
    /// `None` while the host has it unmapped: virtual machine monitors unmap all memory for a moment whenever
    /// their memory layout changes, with the controller enabled.
    memory: Option<Region>,
}

impl Ring {
    /// Finds `bytes` of host memory at `iova`; `None` when they are not mapped in one piece.
    pub(crate) fn find(host: &View, iova: u64, bytes: usize, direction: Direction) -> Option<Self> {
        let memory = Some(find_ring(host, iova, bytes, direction)?);
        Some(Self { iova, bytes, direction, memory })
    }

    /// Finds the same memory again after the mappings have changed.
    #[cold]
    fn find_again(&mut self, host: &View) {
        self.memory = find_ring(host, self.iova, self.bytes, self.direction);
        if self.memory.is_none() {
            tracing::debug!(
                iova = self.iova,
                bytes = self.bytes,
                "a queue waits for its memory to be mapped again"
            );
        }
    }
}

fn find_ring(host: &View, iova: u64, bytes: usize, direction: Direction) -> Option<Region> {
    let (region, offset) = host.resolve(iova, bytes, direction)?;
    // Entries are read and written as 64-bit words.
    let aligned = iova.is_multiple_of(8) && (region.as_ptr().addr() + offset) % 8 == 0;
    aligned.then(|| region.slice(offset, bytes))
}

/// Doorbell registers: memory shared with the host, in the order of the specification.
pub(crate) struct Doorbells(Region);

impl Doorbells {
    /// The doorbells of a device without queues.
    pub(crate) fn new(memory: Region) -> Self {
        let doorbells = Self(memory);
        doorbells.mark_all_absent();
        doorbells
    }

    pub(crate) fn memory(&self) -> &Region {
        &self.0
    }

    /// Byte offset of a submission queue's tail.
    pub(crate) const fn tail_offset(qid: u16) -> usize {
        qid as usize * 8
    }

    /// Byte offset of a completion queue's head.
    pub(crate) const fn head_offset(qid: u16) -> usize {
        qid as usize * 8 + 4
    }

    #[inline]
    fn tail(&self, qid: u16) -> u32 {
        // Acquire: pairs with the host's Release store of the doorbell; the entries before the tail are
        // visible.
        self.0.load_u32(Self::tail_offset(qid), Ordering::Acquire)
    }

    #[inline]
    fn head(&self, qid: u16) -> u32 {
        // Acquire: the host has read the entries before the head before they are overwritten.
        self.0.load_u32(Self::head_offset(qid), Ordering::Acquire)
    }

    /// Sets a tail to zero, as creating a queue does.
    pub(crate) fn clear_tail(&self, qid: u16) {
        self.0.store_u32(Self::tail_offset(qid), 0, Ordering::Relaxed);
    }

    /// Sets a head to zero, as creating a queue does.
    pub(crate) fn clear_head(&self, qid: u16) {
        self.0.store_u32(Self::head_offset(qid), 0, Ordering::Relaxed);
    }
}

/// What a doorbell says about a queue.
pub(crate) enum Rung {
    /// This many entries wait.
    Entries(u32),
    /// The value is beyond the queue; reported once per value.
    Invalid { first_time: bool },
}

/// What a submission queue had counted when the last command was timed: the difference is what the next one
/// has moved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    pub(crate) bytes: u64,
    /// The same of the turn's Key Value commands, which also count lists of keys.
    pub(crate) turn_bytes: u64,
    /// Bytes of pairs that have been stored since the last whole page.
    pub(crate) stored: u64,
    /// Pages of pairs that have been read or programmed: a place for those whose place is not known.
    pub(crate) pages: u64,
}

impl Moved {
    /// Bytes moved since the last time; they are taken notice of.
    pub(crate) fn since(&mut self, bytes: u64, turn_bytes: u64) -> u64 {
        let moved = (bytes - self.bytes).max(turn_bytes.saturating_sub(self.turn_bytes));
        (self.bytes, self.turn_bytes) = (bytes, turn_bytes);
        moved
    }
}

/// A submission queue. Aligned so that neighbours served on two cores share no cache line, nor a pair of
/// lines that is fetched together.
#[repr(align(128))]
pub(crate) struct SubmissionQueue {
    pub(crate) id: u16,
    pub(crate) cqid: u16,
    pub(crate) entries: u32,
    pub(crate) head: u32,
    pub(crate) ring: Ring,
    /// Memory page size the controller was enabled with.
    pub(crate) page_bytes: u32,
    /// Host memory as of the last batch.
    pub(crate) host: View,
    /// Memory that is there for this queue alone, in place of the controller's.
    space: Option<Arc<AddressSpace>>,
    /// Namespaces as of the last batch.
    pub(crate) namespaces: Reader<NamespaceTable>,
    pub(crate) counters: IoCounters,
    /// Pieces of host memory of the command at work; kept for its allocation.
    pub(crate) pieces: Vec<unvme_bus::space::Place>,
    /// Data of the command at work whose pieces meet within a block; kept for its allocation.
    pub(crate) gathered: Vec<u8>,
    /// Where the command behind the one at work will read.
    pub(crate) next_read: u64,
    /// What Key Value commands need; none do on most devices.
    pub(crate) kv: Box<KvLane>,
    /// Flash operations of the command at work, where a timing is configured.
    pub(crate) ops: OpList,
    /// What the last commands that were timed had moved.
    pub(crate) moved: Moved,
    /// When this turn began, by the clock of who serves the queue; looked at only where completions may be
    /// held.
    pub(crate) turn_began: u64,
    /// The clock of who serves the queue, kept while FDP is enabled.
    pub(crate) clock: Clock,
    /// The completion queue held back an interrupt, or completions, when this queue was served last.
    pub(crate) is_held_back: bool,
    invalid_tail: u32,
}

/// What a new submission queue is made of.
pub(crate) struct SubmissionQueueParts {
    /// The controller whose queue it is.
    pub(crate) cntlid: u16,
    pub(crate) id: u16,
    pub(crate) cqid: u16,
    pub(crate) entries: u32,
    pub(crate) ring: Ring,
    pub(crate) page_bytes: u32,
    pub(crate) host: View,
    /// What `host` shows, where it is not the controller's memory.
    pub(crate) space: Option<Arc<AddressSpace>>,
    pub(crate) namespaces: Reader<NamespaceTable>,
    /// Flash operations are noted: a timing is configured.
    pub(crate) is_timed: bool,
}

impl SubmissionQueue {
    pub(crate) fn new(parts: SubmissionQueueParts) -> Self {
        let SubmissionQueueParts { cntlid, id, cqid, entries, ring, page_bytes, host, .. } = parts;
        let SubmissionQueueParts { space, namespaces, is_timed, .. } = parts;
        Self {
            id,
            cqid,
            entries,
            head: 0,
            ring,
            page_bytes,
            host,
            space,
            namespaces,
            counters: IoCounters::default(),
            pieces: Vec::new(),
            gathered: Vec::new(),
            next_read: crate::store::NOWHERE,
            kv: Box::new(KvLane::new(cntlid, id)),
            ops: OpList::new(is_timed),
            moved: Moved::default(),
            turn_began: 0,
            clock: Clock::wall(),
            is_held_back: false,
            invalid_tail: 0,
        }
    }

    /// A turn begins in which completions may have to be held.
    #[cold]
    pub(crate) fn begin_turn(&mut self, clock: &Clock) {
        self.turn_began = clock.now();
        self.moved.bytes = self.counters.bytes_read + self.counters.bytes_written;
        self.moved.turn_bytes = 0;
    }

    /// What the tail doorbell says.
    #[inline]
    pub(crate) fn rung(&mut self, doorbells: &Doorbells) -> Rung {
        let tail = doorbells.tail(self.id);
        if tail < self.entries {
            let ahead = if tail >= self.head { tail - self.head } else { tail + self.entries - self.head };
            return Rung::Entries(ahead);
        }
        let first_time = tail != self.invalid_tail;
        self.invalid_tail = tail;
        Rung::Invalid { first_time }
    }

    /// The entry `ahead` places behind the head, each word of it read once. Without memory it is all zeroes;
    /// callers have seen that [`SubmissionQueue::refresh`] says there is some.
    #[inline]
    pub(crate) fn peek(&self, ahead: u32) -> Sqe {
        let Some(memory) = &self.ring.memory else { return Sqe::default() };
        let mut index = self.head + ahead;
        if index >= self.entries {
            index -= self.entries;
        }
        zerocopy::transmute!(memory.read_words::<8>(index as usize * SQE_BYTES))
    }

    /// Brings `count` entries from `ahead` places behind the head close. A hint: at the end of the ring some
    /// are left out.
    #[inline]
    pub(crate) fn prefetch_entries(&self, ahead: u32, count: u32) {
        if let Some(memory) = &self.ring.memory {
            let index = self.head + ahead;
            let index = if index >= self.entries { index - self.entries } else { index };
            memory.prefetch(index as usize * SQE_BYTES, count as usize);
        }
    }

    /// Moves the head behind the entry it is at.
    #[inline]
    pub(crate) fn consume(&mut self) {
        self.head += 1;
        if self.head == self.entries {
            self.head = 0;
        }
    }

    /// Notices what has changed since the last batch; false while the queue's own memory is not mapped.
    #[inline]
    pub(crate) fn refresh(&mut self, host: &AddressSpace) -> bool {
        if self.space.as_deref().unwrap_or(host).refresh(&mut self.host) {
            self.ring.find_again(&self.host);
        }
        self.ring.memory.is_some()
    }
}

/// A completion queue; aligned as [`SubmissionQueue`] is.
#[repr(align(128))]
pub(crate) struct CompletionQueue {
    pub(crate) id: u16,
    pub(crate) entries: u32,
    /// Interrupt vector, when interrupts are enabled for the queue.
    pub(crate) vector: Option<u16>,
    /// Submission queues that complete here.
    pub(crate) users: u16,
    /// Entries posted that no interrupt has announced yet.
    pub(crate) unannounced: u32,
    /// When the oldest of them was noticed.
    pub(crate) unannounced_since: Option<u64>,
    /// Completions that are not due yet; each has its place among the entries.
    held: Held,
    ring: Ring,
    host: View,
    /// See [`SubmissionQueue::space`].
    space: Option<Arc<AddressSpace>>,
    tail: u32,
    phase: bool,
    invalid_head: u32,
}

/// What a new completion queue is made of.
pub(crate) struct CompletionQueueParts {
    pub(crate) id: u16,
    pub(crate) entries: u32,
    pub(crate) vector: Option<u16>,
    pub(crate) ring: Ring,
    pub(crate) host: View,
    /// What `host` shows, where it is not the controller's memory.
    pub(crate) space: Option<Arc<AddressSpace>>,
}

impl CompletionQueue {
    pub(crate) fn new(parts: CompletionQueueParts) -> Self {
        let CompletionQueueParts { id, entries, vector, ring, host, space } = parts;
        Self {
            id,
            entries,
            vector,
            users: 0,
            unannounced: 0,
            unannounced_since: None,
            held: Held::default(),
            ring,
            host,
            space,
            tail: 0,
            phase: true,
            invalid_head: 0,
        }
    }

    /// What the head doorbell and completions that are held leave free; entries wait there for the host
    /// otherwise.
    #[inline]
    pub(crate) fn room(&mut self, doorbells: &Doorbells) -> Rung {
        let head = doorbells.head(self.id);
        if head < self.entries {
            let used = if self.tail >= head { self.tail - head } else { self.tail + self.entries - head };
            return Rung::Entries((self.entries - 1 - used).saturating_sub(self.held.len()));
        }
        let first_time = head != self.invalid_head;
        self.invalid_head = head;
        Rung::Invalid { first_time }
    }

    /// Notices what has changed since the last batch; false while the queue's own memory is not mapped.
    #[inline]
    pub(crate) fn refresh(&mut self, host: &AddressSpace) -> bool {
        if self.space.as_deref().unwrap_or(host).refresh(&mut self.host) {
            self.ring.find_again(&self.host);
        }
        self.ring.memory.is_some()
    }

    /// Writes an entry, as two words. There is room for it.
    ///
    /// The words come in registers: an entry put together in memory would be written in narrow pieces and
    /// read back wide, which stalls the processor for longer than the rest of a command takes.
    #[inline(always)]
    fn post(&mut self, origin: Origin, reply: Reply) {
        let Origin { sq_id, sq_head, cid } = origin;
        let Reply { status, sent, result } = reply;
        // Who has a queue of memory of its own is a fabric: it knows which queue that is and how far, and
        // wants to know what to send.
        let (sq_head, sq_id) = match self.space {
            None => (sq_head, sq_id),
            Some(_) => (sent as u16, (sent >> 16) as u16),
        };
        let entry = Cqe {
            sq_id,
            sq_head,
            cid,
            status_phase: status.raw() << 1 | u16::from(self.phase),
            ..Cqe::default()
        };
        let [_, tagged] = entry.to_words();
        let offset = self.tail as usize * CQE_BYTES;
        if let Some(memory) = &self.ring.memory {
            let [first, second] = memory.words::<2>(offset);
            first.store(result, Ordering::Relaxed);
            // Release: the word with the phase tag goes last; who sees it sees the first word and the data as
            // well.
            second.store(tagged, Ordering::Release);
        }
        self.tail += 1;
        if self.tail == self.entries {
            self.tail = 0;
            self.phase = !self.phase;
        }
        self.unannounced += 1;
    }

    /// True when completions wait for their time.
    #[inline]
    pub(crate) fn holds_completions(&self) -> bool {
        self.held.len() > 0
    }

    /// When the first completion that is held is due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.held.next_due()
    }

    /// A submission queue's head has come this far: what is held tells the host of no earlier one.
    pub(crate) fn note_head(&mut self, sq_id: u16, sq_head: u16) {
        self.held.note_head(sq_id, sq_head);
    }

    /// Posts what is due at `now`, in the order of its times; returns how many entries that were.
    pub(crate) fn post_due(&mut self, now: u64) -> u32 {
        let mut posted = 0;
        while let Some(Due { origin, reply }) = self.held.pop_due(now) {
            self.post(origin, reply);
            posted += 1;
        }
        posted
    }

    /// Posts everything that is held for a submission queue: it is going away, and its commands have been
    /// executed.
    pub(crate) fn post_all_of(&mut self, sq_id: u16) {
        for Due { origin, reply } in self.held.take_all_of(sq_id) {
            self.post(origin, reply);
        }
    }

    /// Ends a command whose completion is held as aborted; false when there is none.
    pub(crate) fn abort_held(&mut self, sq_id: u16, cid: u16) -> bool {
        let Some(held) = self.held.take(sq_id, cid) else { return false };
        self.post(held.origin, Status::ABORT_REQUESTED.into());
        true
    }

    /// Signals the queue's interrupt for entries posted since the last time, unless they are to be collected.
    #[inline]
    pub(crate) fn announce(&mut self, interrupts: &Interrupts, features: &HotFeatures, clock: &Clock) {
        if self.unannounced == 0 {
            return;
        }
        let Some(vector) = self.vector else {
            self.unannounced = 0;
            return;
        };
        if self.id != 0 && features.is_coalescing() && self.hold_interrupt(vector, features, clock) {
            return;
        }
        self.signal(interrupts, vector);
    }

    /// Signals the queue's interrupt for entries that are held back: nobody may be there to do it later.
    pub(crate) fn announce_now(&mut self, interrupts: &Interrupts) {
        if let Some(vector) = self.vector
            && self.unannounced != 0
        {
            self.signal(interrupts, vector);
        }
    }

    #[inline]
    fn signal(&mut self, interrupts: &Interrupts, vector: u16) {
        self.unannounced = 0;
        self.unannounced_since = None;
        interrupts.signal(vector);
    }

    /// Interrupt coalescing (Base 5.1.25.1.6): an interrupt waits for the threshold or the time, whichever is
    /// first.
    fn hold_interrupt(&mut self, vector: u16, features: &HotFeatures, clock: &Clock) -> bool {
        let Some((threshold, nanoseconds)) = features.coalescing_of(vector) else { return false };
        let now = clock.now();
        let since = *self.unannounced_since.get_or_insert(now);
        self.unannounced < threshold && now.saturating_sub(since) < nanoseconds
    }

    /// Takes the place for a command's completion. The caller has seen that there is room.
    #[inline(always)]
    pub(crate) fn ticket(&mut self, sq_id: u16, sq_head: u16, cid: u16) -> Ticket<'_> {
        Ticket { queue: self, origin: Origin { sq_id, sq_head, cid } }
    }
}

/// A command that must be answered. Its exits are [`Ticket::complete`] and [`Ticket::hold`].
pub(crate) struct Ticket<'a> {
    queue: &'a mut CompletionQueue,
    origin: Origin,
}

impl Ticket<'_> {
    /// Answers the command.
    #[inline(always)]
    pub(crate) fn complete(self, reply: Reply) {
        let mut ticket = std::mem::ManuallyDrop::new(self);
        let origin = ticket.origin;
        ticket.queue.post(origin, reply);
    }

    /// Answers the command when `due` has come, or at once.
    #[inline(always)]
    pub(crate) fn answer(self, due: Option<u64>, reply: Reply) {
        match due {
            None => self.complete(reply),
            Some(due) => self.hold(due, reply),
        }
    }

    /// Answers the command when `due` has come. Its place in the queue is taken until then, so that there is
    /// one.
    #[inline(always)]
    pub(crate) fn hold(self, due: u64, reply: Reply) {
        let mut ticket = std::mem::ManuallyDrop::new(self);
        let origin = ticket.origin;
        ticket.queue.held.push(due, Due { origin, reply });
    }
}

impl Drop for Ticket<'_> {
    /// A ticket that is dropped is a defect of this crate; the host must not hang for it.
    #[cold]
    fn drop(&mut self) {
        let Origin { sq_id, cid, .. } = self.origin;
        debug_assert!(std::thread::panicking(), "command {cid} of queue {sq_id} was not answered");
        tracing::error!(cid, queue = sq_id, "a command was not answered");
        self.queue.post(self.origin, Status::INTERNAL_ERROR.into());
    }
}
