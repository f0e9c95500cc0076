//! Running commands, and what comes of them.

use unvme_bus::Clock;
use unvme_spec::fabrics::fctype;
use unvme_spec::{Sqe, Status, admin};

use super::device::Completion;
use super::queue::{At, FabricsQueue, Finished, QueueState, SlotId};
use super::slots::{Slot, Stage};
use super::staging::{Buffer, Terms};
use crate::association::EndReason;
use crate::reply::EVENT_SENT;

/// How long an I/O queue does not say again that its host was heard of, in nanoseconds: all queues of an
/// association say so in one place. The keep alive timer is that much too early when I/O queues alone are
/// used.
const HEARD_NS: u64 = 10_000_000;
/// How long the first half of a fused pair has its memory while its second half does not come, in
/// nanoseconds.
const FIRST_HALF_NS: u64 = 10_000_000_000;
/// How long a command waits for memory before its queue looks again without having been told to, in
/// nanoseconds: that nothing was mapped, though there was room for it, passes without anybody telling.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;
/// SQHD in the answer to Connect when SQ flow control is not used.
const NO_FLOW_CONTROL: u16 = 0xffff;

impl FabricsQueue {
    /// Runs what can run, and appends what has been executed to `out`. Returns how much was done: 0 when
    /// there is nothing to do before the connection brings something, [`FabricsQueue::next_event`], or the
    /// wake-up.
    #[inline]
    pub fn poll(&mut self, clock: &Clock, out: &mut Vec<Finished>) -> usize {
        self.now = clock.now();
        if !self.goes_on() {
            return 0;
        }
        let before = out.len();
        if self.budget().is_pressed() {
            self.give_back_idle();
        }
        if self.first_half.is_some() {
            self.watch_first_half();
        }
        let mut worked = 0;
        if self.proving.is_some() {
            worked += self.prove(clock);
        }
        if !self.waiting.is_empty() {
            worked += self.serve_waiting();
        }
        worked += self.drive(clock, out);
        self.answer_executed(out);
        self.note_oldest_hold();
        worked.max(out.len() - before)
    }

    /// False when the queue has ended, which is found out here.
    #[inline]
    fn goes_on(&mut self) -> bool {
        let reason = match (&self.state, &mut self.at) {
            (QueueState::Ended(_), _) => return false,
            (_, At::Unconnected) => None,
            (_, At::Device(device)) => {
                let association = &device.association;
                if std::mem::take(&mut self.is_heard) {
                    let is_news = |at: u64| device.qid == 0 || self.now.saturating_sub(at) >= HEARD_NS;
                    if self.heard_at.is_none_or(is_news) {
                        self.heard_at = Some(self.now);
                        association.seen(self.now);
                    }
                }
                if device.qid == 0 && association.expires().is_some_and(|at| at <= self.now) {
                    association.end(EndReason::KeepAlive);
                }
                match association.ended() {
                    None if self.must_authenticate && association.gives_way(device.qid) => {
                        Some(EndReason::GaveWay)
                    }
                    None if device.qid != 0 && device.notice_reset() => Some(EndReason::Reset),
                    reason => reason,
                }
            }
            (_, At::Discovery(discovery)) => {
                if std::mem::take(&mut self.is_heard) {
                    discovery.seen(self.now);
                }
                (discovery.expires() <= self.now).then_some(EndReason::KeepAlive)
            }
        };
        if let Some(reason) = reason {
            self.end(reason);
        }
        reason.is_none()
    }

    /// Gives memory to commands that wait for it, in the order in which they came. Returns how many got some.
    #[cold]
    fn serve_waiting(&mut self) -> usize {
        let mut served = 0;
        while let Some(&at) = self.waiting.front() {
            let Some(&Slot { stage: Stage::Waiting(ticket), bytes, is_write, .. }) = self.slots.get(at)
            else {
                self.waiting.pop_front();
                continue;
            };
            // Who has a place in the line was within its bounds when it came there.
            if ticket.is_none() && !self.may_hold(bytes) {
                break;
            }
            let budget = self.target.memory();
            let Some(buffer) = self.pool.take(bytes, budget, Terms::Turn(ticket)) else {
                if ticket.is_none() {
                    let ticket = self.pool.wait(budget, self.wake.clone());
                    if let Some(slot) = self.slots.get_mut(at) {
                        slot.stage = Stage::Waiting(Some(ticket));
                    }
                    // Nobody told of memory that became free before there was a line, this queue's own
                    // included.
                    self.give_back_idle();
                    continue;
                }
                break;
            };
            if let Some(ticket) = ticket {
                budget.forget(ticket);
            }
            self.waiting.pop_front();
            if let Some(slot) = self.slots.get_mut(at) {
                slot.buffer = Some(buffer);
                slot.stage = Stage::Filling;
            }
            match is_write {
                true => {
                    self.hold(at);
                    self.wanted.push_back(at);
                }
                false => self.run(at),
            }
            served += 1;
        }
        served
    }

    /// Memory that no command has goes back.
    #[cold]
    fn give_back_idle(&mut self) {
        self.pool.trim();
        if self.pool.has_unmapped() {
            self.return_unmapped();
        }
    }

    /// Memory that the pool has unmapped goes back, once the controller does not reach it.
    #[cold]
    fn return_unmapped(&mut self) {
        if let At::Device(device) = &self.at {
            device.drop_stale_mappings();
        }
        self.pool.return_unmapped(self.target.memory());
    }

    /// Memory that a command has had.
    #[inline]
    pub(super) fn give_back(&mut self, buffers: [Option<Buffer>; 2]) {
        for buffer in buffers.into_iter().flatten() {
            self.pool.give(buffer, self.target.memory());
        }
        if self.pool.has_unmapped() {
            self.return_unmapped();
        }
    }

    /// A first half of a fused pair has memory that others may wait for: when its second does not come, it
    /// stays alone.
    #[cold]
    fn watch_first_half(&mut self) {
        let is_paired = |first| self.slots.get(first).is_some_and(|slot| slot.stage == Stage::Paired);
        if !self.first_half.is_some_and(is_paired) {
            return;
        }
        let since = *self.first_half_since.get_or_insert(self.now);
        if self.now.saturating_sub(since) >= FIRST_HALF_NS {
            self.part_first_half();
        }
    }

    /// When what waits for others is looked at again: memory for a command that has a place in the line, and
    /// the second half of a fused pair.
    pub(super) fn look_again_at(&self) -> Option<u64> {
        let is_in_line = (!self.waiting.is_empty()).then(|| self.now.saturating_add(LOOK_AGAIN_NS));
        let half = self.first_half.map(|_| self.first_half_since.unwrap_or(self.now));
        let part = half.map(|since| since.saturating_add(FIRST_HALF_NS));
        [is_in_line, part].into_iter().flatten().min()
    }

    /// Lets the controller work, and takes what it has executed.
    #[inline]
    fn drive(&mut self, clock: &Clock, out: &mut Vec<Finished>) -> usize {
        let mut worked = match &mut self.at {
            At::Unconnected => return self.connect_again(),
            At::Discovery(_) => return self.drive_discovery(),
            At::Device(device) => {
                if device.qid == 0 && device.notice_reset() {
                    self.abort_running();
                    return 1;
                }
                device.advance(clock)
            }
        };
        let before = out.len();
        while let At::Device(device) = &mut self.at
            && let Some(completion) = device.next_completion()
        {
            self.finish(completion, out);
        }
        if let At::Device(device) = &mut self.at {
            if out.len() != before {
                device.consumed();
                worked = worked.max(1);
            }
            if worked == 0 {
                device.note_due(self.now);
            }
        }
        worked
    }

    /// A command that the controller has executed.
    #[inline]
    fn finish(&mut self, completion: Completion, out: &mut Vec<Finished>) {
        let Completion { cid, status, sent, result } = completion;
        let is_event = sent == EVENT_SENT;
        let request = if is_event { self.slots.find_request(cid) } else { None };
        let Some(at) = request.or_else(|| self.slots.find(cid)).or_else(|| self.slots.find_request(cid))
        else {
            tracing::error!(cid, "the controller has answered a command that it does not have");
            return;
        };
        let Some(slot) = self.slots.get(at) else { return };
        if slot.is_request
            && let At::Device(device) = &mut self.at
        {
            device.event_request_answered();
        }
        // Media that keeps no data reads whatever the host asks for.
        let bytes = sent.min(slot.bytes);
        self.answer(at, status, result, bytes, out);
    }

    /// Answers a command.
    #[inline]
    fn answer(&mut self, at: u16, status: Status, result: u64, bytes: u32, out: &mut Vec<Finished>) {
        let Some(slot) = self.slots.get(at) else { return };
        let cid = slot.sqe.cid;
        let is_connect = matches!(slot.sqe, Sqe { opcode: admin::opcode::FABRICS, nsid, .. } if nsid as u8 == fctype::CONNECT);
        self.slots.answered(at);
        if bytes == 0
            && let Some(slot) = self.slots.get_mut(at)
        {
            // Nothing of it is sent: others need not wait until the response is.
            let buffers = [slot.buffer.take(), slot.key_buffer.take()];
            self.give_back(buffers);
        } else {
            self.hold(at);
        }
        let mut cqe = self.completion(cid, status, result);
        if is_connect && self.has_no_flow_control {
            // This is how the host learns that there is none (Base 6.3).
            cqe.sq_head = NO_FLOW_CONTROL;
        }
        out.push(Finished { slot: SlotId(at), cqe, bytes, is_plain: self.has_no_flow_control });
    }

    /// Answers what was executed here.
    #[inline]
    fn answer_executed(&mut self, out: &mut Vec<Finished>) {
        while let Some(executed) = self.executed.pop_front() {
            let bytes = if executed.status.is_success() { executed.bytes } else { 0 };
            self.answer(executed.slot, executed.status, executed.result, bytes, out);
        }
    }

    /// The controller was reset: it has none of its commands any more. They are answered all the same, since
    /// the connection has them.
    #[cold]
    pub(super) fn abort_running(&mut self) {
        for at in self.slots.at_stage(Stage::Running) {
            let is_lost = self.slots.get(at).is_some_and(|slot| slot.sqe.opcode != admin::opcode::FABRICS);
            let is_answered = self.executed.iter().any(|executed| executed.slot == at);
            if is_lost && !is_answered {
                self.executed(at, Err(Status::ABORTED_SQ_DELETION), 0);
            }
        }
    }
}
