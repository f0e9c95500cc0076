//! Serving queues: pop, execute, complete.

use unvme_bus::mem::any_lost;
use unvme_bus::{Clock, lock};
use unvme_spec::admin::opcode;
use unvme_spec::{Fuse, Sqe, Status, nvm};

use crate::Ssd;
use crate::admin::Answer;
use crate::inject::Served;
use crate::queue::{BadDoorbell, CompletionQueue, Rung, SubmissionQueue};
use crate::reply::Reply;
use crate::store::NOWHERE;

/// Most commands served in one turn, so that one queue cannot starve the others.
const TURN_MAX: u32 = 256;
/// Most bytes of values and keys that one turn moves, but for its last command: a value can have 256 MiB.
const TURN_BYTES_MAX: u64 = 16 << 20;
/// How long, in nanoseconds, one turn is at work on commands that can take long whatever they move, but for
/// the last of them: the other queues of a thread wait meanwhile.
const TURN_PATIENCE_NS: u64 = 1_000_000;
/// How many entries ahead the submission queue is fetched: entries that another core wrote take as long to
/// arrive as one from memory, and several can be on their way at a time.
const ENTRIES_AHEAD: u32 = 8;

/// What is left of a turn for commands that can take long. Whoever has none reads no clock.
struct Patience<'a> {
    clock: &'a Clock,
    /// When the last of them began.
    since: Option<u64>,
    spent_ns: u64,
}

impl<'a> Patience<'a> {
    fn new(clock: &'a Clock) -> Self {
        Self { clock, since: None, spent_ns: 0 }
    }

    /// A command that can take long begins.
    #[cold]
    fn watch(&mut self) {
        self.since = Some(self.clock.now());
    }

    /// Whether there is any after the last command, which has ended.
    #[inline]
    fn is_left(&mut self) -> bool {
        self.since.is_none() || self.has_some_left()
    }

    #[cold]
    fn has_some_left(&mut self) -> bool {
        if let Some(since) = self.since.take() {
            self.spent_ns = self.spent_ns.saturating_add(self.clock.now().saturating_sub(since));
        }
        self.spent_ns < TURN_PATIENCE_NS
    }
}

/// What came of serving a queue.
#[derive(Clone, Copy, Default)]
pub(crate) struct Turn {
    /// Commands that were taken from it.
    pub(crate) taken: u32,
    /// What else was done: completions whose time had come, work of stores.
    done: u32,
    /// More could have been taken, and it has been enough for now.
    pub(crate) is_cut: bool,
}

impl Turn {
    #[inline]
    pub(crate) const fn all(self) -> usize {
        (self.taken + self.done) as usize
    }
}

impl Ssd {
    /// Serves one submission queue for a turn; returns the number of commands completed.
    #[inline]
    pub(crate) fn serve(&self, qid: u16, clock: &Clock) -> usize {
        self.serve_turn::<true>(qid, TURN_MAX, clock).all()
    }

    /// The same, of no more than `most` commands; one more where the last is the first of a fused pair. What
    /// there is to do in idle time is left.
    pub(crate) fn serve_up_to(&self, qid: u16, most: u32, clock: &Clock) -> Turn {
        self.serve_turn::<false>(qid, most, clock)
    }

    #[inline]
    fn serve_turn<const MAINTAINS: bool>(&self, qid: u16, most: u32, clock: &Clock) -> Turn {
        if self.is_stopped() {
            return Turn::default();
        }
        let Some(cell) = self.queues.submission.get(usize::from(qid)) else { return Turn::default() };
        // Somebody else at work on this queue (its creation, a reset, another poller) is no reason to wait.
        let Ok(mut guard) = cell.try_lock() else { return Turn::default() };
        let Some(sq) = guard.as_mut() else { return Turn::default() };
        let waiting = self.entries(sq.rung(&self.queues.doorbells));
        // Nothing to pop: only events that wait for an Asynchronous Event Request, or what is held back for
        // its time, are worth the locks below.
        let is_held_back = sq.is_held_back || (qid == 0 && self.events.is_ready());
        if waiting == 0 && !is_held_back {
            let done = if MAINTAINS { self.use_idle_time(sq, clock) } else { 0 };
            return Turn { done, ..Turn::default() };
        }
        let Some(mut cq_guard) = self.queues.completion.get(usize::from(sq.cqid)).map(|c| lock(c)) else {
            return Turn::default();
        };
        let Some(cq) = cq_guard.as_mut() else { return Turn::default() };
        self.namespaces.refresh(&mut sq.namespaces);
        let ready = sq.refresh(&self.memory) & cq.refresh(&self.memory);
        if !ready {
            return Turn::default();
        }
        let posted = if cq.holds_completions() { cq.post_due(clock.now()) } else { 0 };
        if sq.ops.is_on() || self.faults.is_armed() {
            sq.begin_turn(clock);
        }
        if self.fdp.is_active() {
            sq.clock.clone_from(clock);
        }
        let room = self.entries(cq.room(&self.queues.doorbells));
        let turn = waiting.min(room).min(most).min(self.hot.arbitration_burst());
        let served = if qid == 0 {
            // Admin commands lock other queues and may reset the device: they are executed without holding
            // this completion queue, whose room nobody else takes.
            drop(cq_guard);
            self.serve_admin(sq, turn, clock)
        } else {
            let holds_pairs = sq.namespaces.first_key_value().is_some();
            let served = match holds_pairs {
                true => self.serve_io::<true>(sq, cq, turn, clock),
                false => self.serve_io::<false>(sq, cq, turn, clock),
            };
            cq.announce(&self.interrupts, &self.hot, clock);
            sq.is_held_back = cq.unannounced != 0 || cq.holds_completions();
            if cq.holds_completions() {
                // Others were answered at once, where only a rule delays.
                cq.note_head(sq.id, sq.head as u16);
            }
            if holds_pairs && MAINTAINS {
                // The host has its completions; its next commands wait no longer than this takes.
                drop(cq_guard);
                self.maintain(sq);
            }
            self.time_background(sq, clock);
            served
        };
        Turn { taken: served, done: posted, is_cut: served > 0 && served < turn }
    }

    /// Gets on with what there is to do in idle time, at a queue that may have commands. Returns how much
    /// that was.
    #[cold]
    pub(crate) fn maintain_idle(&self, qid: u16, clock: &Clock) -> usize {
        let Some(cell) = self.queues.submission.get(usize::from(qid)) else { return 0 };
        let Ok(mut guard) = cell.try_lock() else { return 0 };
        guard.as_mut().map_or(0, |sq| self.use_idle_time(sq, clock) as usize)
    }

    /// What a doorbell says; nothing when its value is beyond the queue, which is reported once.
    #[inline]
    fn entries(&self, rung: Rung) -> u32 {
        match rung {
            Rung::Entries(entries) => entries,
            Rung::Invalid { first_time } => {
                if first_time {
                    self.doorbell_error(BadDoorbell::Value);
                }
                0
            }
        }
    }

    /// Nothing waits in a queue: stores get on with their work. Returns 1 when there is more of it.
    #[inline]
    fn use_idle_time(&self, sq: &mut SubmissionQueue, clock: &Clock) -> u32 {
        if sq.id == 0 {
            return 0;
        }
        // What the work of an earlier turn has set off is not put off until the host wants something.
        if self.faults.is_armed() && !self.settle() {
            return 0;
        }
        let mut more = self.media.flash().is_some_and(|flash| flash.maintain(&mut sq.ops));
        if sq.namespaces.first_key_value().is_some() {
            more |= self.maintain(sq);
        } else if !more {
            return 0;
        }
        self.time_background(sq, clock);
        more.into()
    }

    /// Serves I/O commands of a turn. `PAIRS` says whether the device has Key Value namespaces: one that has
    /// none asks no command which namespace it is for.
    #[inline]
    fn serve_io<const PAIRS: bool>(
        &self,
        sq: &mut SubmissionQueue,
        cq: &mut CompletionQueue,
        turn: u32,
        clock: &Clock,
    ) -> u32 {
        let prefetches = PAIRS || !self.media.is_null();
        // What a command works on is looked up in an index of pairs, or in the map of a translation layer.
        let looks_up = PAIRS || self.media.flash().is_some();
        let is_write_through = self.hot.is_write_through();
        let mut patience = Patience::new(clock);
        let mut served = 0;
        if PAIRS {
            sq.kv.turn_bytes = 0;
        }
        if prefetches {
            sq.prefetch_entries(0, turn.min(ENTRIES_AHEAD));
        }
        if looks_up && turn > 1 {
            self.prefetch_lookup::<PAIRS>(sq, &sq.peek(1));
        }
        while served < turn && (!PAIRS || sq.kv.turn_bytes < TURN_BYTES_MAX) && patience.is_left() {
            if prefetches {
                self.prefetch_next::<PAIRS>(sq, turn - served, looks_up);
            }
            let sqe = sq.peek(0);
            let is_for_pairs = PAIRS && self.is_for_pairs(&sq.namespaces, &sqe);
            if is_write_through || may_take_long(&sqe, is_for_pairs) {
                patience.watch();
            }
            if sqe.fuse() != Fuse::Normal {
                let taken = self.serve_fused(sq, cq, &sqe, turn - served);
                if taken == 0 {
                    break;
                }
                served += taken;
                continue;
            }
            sq.consume();
            if self.faults.is_armed() {
                match self.serve_by_rules(sq, cq, &sqe) {
                    Served::No => {}
                    Served::Yes => {
                        served += 1;
                        continue;
                    }
                    Served::EndTurn => return served + 1,
                }
            }
            let answer = match self.check_claims(sq, &sqe) {
                Err(status) => Err(status),
                Ok(()) if is_for_pairs => self.execute_kv(sq, &sqe),
                Ok(()) => self.execute_nvm(sq, &sqe).map(Reply::sending),
            };
            let mut reply = answer.unwrap_or_else(Reply::from);
            if any_lost() {
                reply = reply.with_status(self.unless_lost(sq, &sqe, reply.status));
            }
            if !reply.status.is_success() {
                reply.status = self.failed(sq.id, &sqe, reply.status);
            }
            self.answer(sq, cq, &sqe, reply);
            served += 1;
        }
        served
    }

    /// Brings close what the next commands need, of those that are `left` in a turn.
    #[inline(always)]
    fn prefetch_next<const PAIRS: bool>(&self, sq: &mut SubmissionQueue, left: u32, looks_up: bool) {
        if left > ENTRIES_AHEAD {
            sq.prefetch_entries(ENTRIES_AHEAD, 1);
        }
        if looks_up && left > 2 {
            self.prefetch_lookup::<PAIRS>(sq, &sq.peek(2));
        }
        sq.next_read = match left > 1 {
            true if PAIRS => self.prefetch_record(sq, &sq.peek(1)),
            true => self.prefetch_blocks(sq, &sq.peek(1)),
            false => NOWHERE,
        };
    }

    /// What a command that was executed ends with when memory may be lost that it has read or written.
    #[cold]
    pub(crate) fn unless_lost(&self, sq: &SubmissionQueue, sqe: &Sqe, status: Status) -> Status {
        if !status.is_success() {
            return status;
        }
        if self.media.is_lost() {
            return match (self.changes_media(sq, sqe), self.is_for_pairs(&sq.namespaces, sqe)) {
                (true, _) => Status::WRITE_FAULT,
                (false, true) => Status::UNRECOVERED_ERROR,
                (false, false) => Status::UNRECOVERED_READ_ERROR,
            };
        }
        if sq.host.is_lost() { Status::DATA_TRANSFER_ERROR } else { status }
    }

    /// Brings close what a command that waits will be looked up in.
    #[inline]
    fn prefetch_lookup<const PAIRS: bool>(&self, sq: &SubmissionQueue, sqe: &Sqe) {
        if PAIRS { self.prefetch_index(sq, sqe) } else { self.prefetch_map(sq, sqe) }
    }

    /// Answers a command that has been executed: at once, or when it is due.
    #[inline(always)]
    fn answer(&self, sq: &mut SubmissionQueue, cq: &mut CompletionQueue, sqe: &Sqe, reply: Reply) {
        let due = if sq.ops.is_on() { self.hold_until(sq, sqe, reply.status, 0) } else { None };
        cq.ticket(sq.id, sq.head as u16, sqe.cid).answer(due, reply);
    }

    /// A fused command and, when it is the first of a pair, its partner (Base 3.4.2). Returns how many
    /// commands were completed; 0 when the pair has to wait for room.
    #[cold]
    fn serve_fused(&self, sq: &mut SubmissionQueue, cq: &mut CompletionQueue, sqe: &Sqe, turn: u32) -> u32 {
        let partner = match sq.rung(&self.queues.doorbells) {
            // A completion queue of two entries never has room for both.
            Rung::Entries(waiting) if waiting > 1 && cq.entries > 2 => {
                Some(sq.peek(1)).filter(|next| next.fuse() == Fuse::Second)
            }
            _ => None,
        };
        let (Fuse::First, Some(second)) = (sqe.fuse(), partner) else {
            sq.consume();
            let status = match sqe.fuse() {
                Fuse::Reserved => Status::INVALID_FIELD.with_do_not_retry(),
                _ => Status::ABORTED_MISSING_FUSED,
            };
            let status = self.failed(sq.id, sqe, status);
            self.answer(sq, cq, sqe, status.into());
            return 1;
        };
        if turn < 2 && self.entries(cq.room(&self.queues.doorbells)) < 2 {
            return 0;
        }
        let statuses = match self.check_claims(sq, &second) {
            Ok(()) => self.execute_compare_and_write(sq, sqe, &second),
            Err(status) => (status, Status::ABORTED_FAILED_FUSED),
        };
        // One operation: both halves are done at one time, the first one's completion before the second's.
        let due = if sq.ops.is_on() { self.hold_until(sq, &second, statuses.1, 0) } else { None };
        for (entry, mut status) in [(sqe, statuses.0), (&second, statuses.1)] {
            sq.consume();
            if any_lost() {
                status = self.unless_lost(sq, entry, status);
            }
            let status = if status.is_success() { status } else { self.failed(sq.id, entry, status) };
            cq.ticket(sq.id, sq.head as u16, entry.cid).answer(due, status.into());
        }
        2
    }

    fn serve_admin(&self, sq: &mut SubmissionQueue, turn: u32, clock: &Clock) -> u32 {
        let mut patience = Patience::new(clock);
        let mut served = 0;
        while served < turn && !self.is_stopped() && patience.is_left() {
            patience.watch();
            let sqe = sq.peek(0);
            sq.consume();
            let answer = match self.faults.is_armed() {
                true => self.execute_admin_by_rules(sq, &sqe, clock),
                false => self.execute_admin(sq, &sqe, clock),
            };
            let mut guard = lock(&self.queues.completion[0]);
            let Some(cq) = guard.as_mut() else { return served };
            if sqe.opcode == opcode::ABORT {
                // A command that was aborted completes before the Abort does (Base 5.1.1).
                self.deliver_events(sq, cq, turn - served);
            }
            match answer {
                Answer::Now(answer) => {
                    let mut reply = answer.unwrap_or_else(|status| self.failed(0, &sqe, status).into());
                    if sqe.opcode == opcode::ASYNC_EVENT_REQUEST {
                        reply = reply.of_event();
                    }
                    cq.ticket(0, sq.head as u16, sqe.cid).complete(reply);
                }
                Answer::Later => {}
            }
            if cq.holds_completions() {
                cq.note_head(0, sq.head as u16);
            }
            served += 1;
        }
        let mut guard = lock(&self.queues.completion[0]);
        if let Some(cq) = guard.as_mut() {
            self.deliver_events(sq, cq, 0);
            cq.announce(&self.interrupts, &self.hot, clock);
            sq.is_held_back = cq.holds_completions();
        }
        served
    }

    /// Completes Asynchronous Event Requests for which something has happened, as long as more than
    /// `reserved` entries are free.
    fn deliver_events(&self, sq: &SubmissionQueue, cq: &mut CompletionQueue, reserved: u32) {
        while let Rung::Entries(room) = cq.room(&self.queues.doorbells)
            && room > reserved
        {
            let Some((cid, reply)) = self.events.next() else { break };
            cq.ticket(0, sq.head as u16, cid).complete(reply);
        }
    }
}

/// Whether a command can take long whatever it moves: it waits for the media, or works on blocks without
/// their data. What others do is bounded by the memory that their data is in, or by the bytes of a turn.
#[inline]
fn may_take_long(sqe: &Sqe, is_for_pairs: bool) -> bool {
    match (sqe.opcode, is_for_pairs) {
        (nvm::opcode::FLUSH, _) => true,
        (_, true) | (nvm::opcode::READ, _) => false,
        (nvm::opcode::WRITE, false) => {
            matches!(nvm::Command::parse(sqe), nvm::Command::Write(_, flags) if flags.force_unit_access)
        }
        (_, false) => true,
    }
}
