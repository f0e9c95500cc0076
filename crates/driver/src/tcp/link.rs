//! Mechanics of one queue over a connection: slots, what is sent, what arrives. Which controller it belongs
//! to, and what to do when the connection breaks, is decided above; as [`crate::pcie`] does it for rings.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use unvme_bus::PoolId;
use unvme_bus::socket::{Piece, Room};
use unvme_fabric::Stream;
use unvme_spec::command::{self, Access, Changes, CommandSet, Direction, Facts, is_vendor_specific};
use unvme_spec::identify::csi;
use unvme_spec::samsung_kv::KEY_CAPSULE_BYTES;
use unvme_spec::tcp::fatal_error;
use unvme_spec::{Cid, Cqe, Sqe, Status, admin};

use super::inbox::{Arrival, Inbox, Taken};
use super::outbox::Outbox;
use super::pdu::{self, Agreement, Fault, Head, R2TS_MAX};
use super::slots::{Order, Slot, Slots, Stage};
use crate::Error;
use crate::command::{Completion, NO_KEY_MEMORY, Payload, Rejected};
use crate::repeat::{may_repeat, may_repeat_in};

/// A command is sent again so many times at most: a target that breaks over a command gets it no more.
const RESENDS_MAX: u8 = 8;

/// Why a connection does not work any more.
#[derive(Clone, Debug)]
pub(crate) enum Broken {
    /// It was lost: the other side has closed it, or the network has.
    Lost(String),
    /// The target broke the protocol.
    Protocol(String),
}

impl Broken {
    fn io(what: &str, e: &io::Error) -> Self {
        Self::Lost(format!("{what}: {e}"))
    }
}

/// A command that has ended, before its owner took it.
#[derive(Clone, Copy)]
struct Ended {
    index: u16,
    status: Status,
    result: u64,
}

/// What a link is made of.
pub(crate) struct LinkConfig {
    pub(crate) depth: u16,
    pub(crate) is_admin: bool,
    /// Memory for a long key in every slot.
    pub(crate) long_keys: bool,
    pub(crate) pool: PoolId,
    pub(crate) transfer_bytes_max: usize,
}

/// What a command is submitted with besides its entry.
#[derive(Clone, Copy, Default)]
pub(crate) struct Manner<'a> {
    pub(crate) token: u64,
    /// The key, when it is not in the entry.
    pub(crate) long_key: Option<&'a [u8]>,
    /// A key-value command: a success may come with less data than the buffer takes.
    pub(crate) is_kv: bool,
    /// Data for the host comes in whole dwords, up to three bytes beyond what was asked for.
    pub(crate) whole_dwords: bool,
}

/// The slots of a queue and, while there is one, its connection.
pub(crate) struct Link {
    slots: Slots,
    outbox: Outbox,
    inbox: Inbox,
    ended: VecDeque<Ended>,
    stream: Option<Stream>,
    /// The connection has shown to hold nothing more.
    is_drained: bool,
    /// Why nothing is received any more: the target has been told to end the connection.
    over: Option<Broken>,
    is_admin: bool,
    pool: PoolId,
    pub(crate) transfer_bytes_max: usize,
}

impl Link {
    pub(crate) fn new(config: &LinkConfig) -> Self {
        let outbox = Outbox::new(config.depth, config.long_keys);
        Self {
            slots: Slots::new(config.depth, config.long_keys),
            inbox: Inbox::new(outbox.agreed),
            outbox,
            ended: VecDeque::with_capacity(config.depth.into()),
            stream: None,
            is_drained: false,
            over: None,
            is_admin: config.is_admin,
            pool: config.pool,
            transfer_bytes_max: config.transfer_bytes_max,
        }
    }

    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    #[inline]
    pub(crate) fn outstanding(&self) -> usize {
        self.slots.taken()
    }

    pub(crate) fn stream(&self) -> Option<&Stream> {
        self.stream.as_ref()
    }

    /// Whether something waits that the connection did not take.
    pub(crate) fn is_blocked(&self) -> bool {
        self.stream.is_some() && !self.outbox.is_empty()
    }

    /// Goes on with a connection. What has been submitted in the meantime is sent with the next
    /// [`Link::flush`].
    pub(crate) fn attach(&mut self, stream: Stream, agreed: Agreement, in_capsule_bytes: u32) {
        self.outbox.clear();
        self.outbox.agreed = agreed;
        self.outbox.in_capsule_bytes = in_capsule_bytes;
        self.inbox.clear(agreed);
        self.over = None;
        self.stream = Some(stream);
        if in_capsule_bytes < KEY_CAPSULE_BYTES {
            self.abort_long_keys();
        }
    }

    /// Ends the commands that wait for a connection and have keys that this one's capsules have no room for.
    fn abort_long_keys(&mut self) {
        let Self { slots, outbox, ended, .. } = self;
        outbox.waiting.retain(|&index| match slots.get_mut(index) {
            Some(slot) if slot.key_bytes() > 0 => {
                slot.stage = Stage::Ended;
                ended.push_back(Ended { index, status: Status::ABORTED_BY_HOST, result: 0 });
                false
            }
            _ => true,
        });
    }

    /// Lets go of the connection as it is.
    pub(crate) fn take_stream(&mut self) -> Option<Stream> {
        self.stream.take()
    }

    /// Ends the connection, after what the kernel still has to send.
    pub(crate) fn close(&mut self) {
        if let Some(mut stream) = self.stream.take() {
            stream.finish();
        }
        self.forget_connection();
    }

    /// Ends a connection whose commands are sent again on the next one. What the kernel has not sent is
    /// discarded, as in Linux (`sock_no_linger`): an old write must not arrive after its repetition, and
    /// after later writes of the same blocks.
    pub(crate) fn discard(&mut self) {
        if let Some(stream) = self.stream.take() {
            stream.discard();
        }
        self.forget_connection();
    }

    fn forget_connection(&mut self) {
        // No part of a buffer waits any more.
        for (index, slot) in self.slots.busy() {
            if slot.unsent > 0 {
                slot.unsent = 0;
                if slot.stage == Stage::Ended {
                    self.outbox.emptied.push(index);
                }
            }
        }
        self.release();
        self.outbox.clear();
        // Data that was arriving belongs to no command any more.
        self.inbox.clear(self.inbox.agreed);
        self.over = None;
    }

    /// After the connection has ended: what can be sent again waits for the next one, the rest has ended. So
    /// have those that waited and were about the association that has ended.
    pub(crate) fn requeue(&mut self, resends: bool) {
        let Self { slots, outbox, ended, is_admin, .. } = self;
        outbox.waiting.retain(|&index| match slots.get_mut(index) {
            Some(slot) if slot.stage == Stage::Waiting => {
                let is_stale =
                    *is_admin && matches!(slot.sqe.opcode, admin::opcode::FABRICS | admin::opcode::ABORT);
                if is_stale {
                    slot.stage = Stage::Ended;
                    ended.push_back(Ended { index, status: Status::ABORTED_BY_HOST, result: 0 });
                }
                !is_stale
            }
            _ => false,
        });
        let mut again = Vec::new();
        for (index, slot) in self.slots.busy().filter(|(_, slot)| slot.stage == Stage::Sent) {
            if resends && slot.resent < RESENDS_MAX && is_repeatable(slot, self.is_admin) {
                slot.resent += 1;
                slot.renew();
                slot.rename();
                again.push((slot.serial, index));
            } else {
                slot.stage = Stage::Ended;
                self.ended.push_back(Ended { index, status: Status::ABORTED_BY_HOST, result: 0 });
            }
        }
        // In the order of their submission, as they went out the first time.
        again.sort_unstable();
        for (_, index) in again.into_iter().rev() {
            self.outbox.waiting.push_front(index);
        }
    }

    /// Ends every command that has not ended, those that were never sent among them.
    pub(crate) fn abort_all(&mut self) {
        self.requeue(false);
        while let Some(index) = self.outbox.waiting.pop_front() {
            if let Some(slot) = self.slots.get_mut(index) {
                slot.stage = Stage::Ended;
                self.ended.push_back(Ended { index, status: Status::ABORTED_BY_HOST, result: 0 });
            }
        }
    }

    /// Takes a command back that has not been sent: it ends. One that has been is left as it is.
    pub(crate) fn cancel(&mut self, token: u64) {
        let mut waiting = self.slots.busy().filter(|(_, slot)| slot.stage == Stage::Waiting);
        let Some((index, slot)) = waiting.find(|(_, slot)| slot.token == token) else { return };
        slot.stage = Stage::Ended;
        drop(waiting);
        self.outbox.waiting.retain(|it| *it != index);
        self.ended.push_back(Ended { index, status: Status::ABORTED_BY_HOST, result: 0 });
    }

    /// Takes a command; it is sent by [`Link::flush`]. Errors: why not, and the buffer:
    /// [`Error::InvalidArgument`], [`Error::Full`].
    #[inline]
    pub(crate) fn submit(
        &mut self,
        sqe: Sqe,
        payload: Option<Payload>,
        manner: Manner<'_>,
    ) -> Result<(), Rejected> {
        if manner.long_key.is_some()
            && let Some(error) = self.refuse_long_key()
        {
            return Err(Rejected { error, buf: payload.map(|payload| payload.buf) });
        }
        let payload = payload.map(|payload| payload.check(self.transfer_bytes_max, self.pool)).transpose()?;
        let (buf, bytes) = payload.map_or((None, 0), |payload| (Some(payload.buf), payload.bytes as u32));
        let direction = match bytes {
            0 => Direction::None,
            _ => direction(&sqe),
        };
        let bytes = match &buf {
            // The buffer's memory is whole pages, or pieces of a multiple of that.
            Some(buf) if manner.whole_dwords && direction == Direction::ToHost => {
                bytes.next_multiple_of(4).min(buf.region().len() as u32)
            }
            _ => bytes,
        };
        let Manner { token, long_key, is_kv, .. } = manner;
        let due = bytes_due(&sqe, bytes, self.is_admin, is_kv);
        let order = Order { sqe, long_key, token, buf, bytes, direction, due, is_kv };
        match self.slots.take(order) {
            Ok(index) => {
                self.outbox.waiting.push_back(index);
                Ok(())
            }
            Err(buf) => Err(Rejected { error: Error::Full { capacity: self.capacity() as u32 }, buf }),
        }
    }

    /// Why a key that is not in its entry cannot be sent; `None` when it can.
    fn refuse_long_key(&self) -> Option<Error> {
        if !self.slots.take_long_keys() {
            return Some(Error::InvalidArgument(NO_KEY_MEMORY.to_owned()));
        }
        let most = self.outbox.in_capsule_bytes;
        (most < KEY_CAPSULE_BYTES).then(|| {
            Error::Unsupported(format!(
                "a key of more than 16 bytes: it takes {KEY_CAPSULE_BYTES} bytes of a capsule, and the target takes {most}"
            ))
        })
    }

    /// Sends what waits, as far as the connection takes it. Errors: the connection is broken.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<(), Broken> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        if self.outbox.is_empty() {
            return Ok(());
        }
        let flushed = self.outbox.flush(stream, &mut self.slots);
        if !self.outbox.emptied.is_empty() {
            self.release();
        }
        match flushed {
            Ok(_) => Ok(()),
            Err(e) => Err(Broken::io("send", &e)),
        }
    }

    /// Gives up the slots of commands that had ended before their data had left.
    fn release(&mut self) {
        while let Some(index) = self.outbox.emptied.pop() {
            if let Some((status, result)) = self.slots.get_mut(index).and_then(Slot::verdict) {
                self.ended.push_back(Ended { index, status, result });
            }
        }
    }

    /// Begins a round of looking: what the connection has shown to hold nothing is asked again.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.is_drained = false;
    }

    /// Whether a completion can be taken; receives when none is there, until the connection has shown to hold
    /// nothing more, which it is not asked for a second time in a round. Errors: the connection is broken.
    /// Completions that came before are taken first.
    #[inline]
    pub(crate) fn look(&mut self) -> Result<bool, Broken> {
        if !self.ended.is_empty() {
            return Ok(true);
        }
        if let Some(broken) = &self.over {
            return Err(broken.clone());
        }
        if self.gather()? {
            return Ok(true);
        }
        while !self.is_drained {
            self.receive()?;
            if self.gather()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Receives once.
    #[inline]
    fn receive(&mut self) -> Result<(), Broken> {
        let Some(stream) = &mut self.stream else {
            self.is_drained = true;
            return Ok(());
        };
        match self.inbox.receive(&self.slots, |rooms| stream.receive(rooms)) {
            Ok(Taken::Nothing) => {
                return Err(Broken::Lost("the target has closed the connection".to_owned()));
            }
            // Under TLS a call takes one record, and there may be more.
            Ok(Taken::Some) => self.is_drained = !stream.is_secure(),
            Ok(Taken::All) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.is_drained = true,
            Err(e) => return Err(Broken::io("receive", &e)),
        }
        Ok(())
    }

    /// Acts upon what has arrived until a command has ended: true when one has.
    #[inline]
    fn gather(&mut self) -> Result<bool, Broken> {
        while self.ended.is_empty() {
            match self.inbox.next(&mut self.slots).and_then(|it| it.map(|it| self.take(it)).transpose()) {
                Ok(Some(())) => {}
                Ok(None) => {
                    // What was asked for meanwhile.
                    self.flush()?;
                    return Ok(false);
                }
                Err(fault) => return Err(self.terminate(&fault)),
            }
        }
        Ok(true)
    }

    fn take(&mut self, arrival: Arrival) -> Result<(), Fault> {
        match arrival {
            Arrival::Data { index, is_success, is_intact } => {
                let Some(slot) = self.slots.get_mut(index) else { return Ok(()) };
                slot.is_corrupt |= !is_intact;
                if is_success { self.end(index, Status::SUCCESS, 0) } else { Ok(()) }
            }
            Arrival::Head(Head::Response(entry)) => self.respond(&entry),
            Arrival::Head(Head::Ask { cid, tag, offset, bytes }) => self.ask(cid, tag, offset, bytes),
            Arrival::Head(Head::Terminate { status, information }) => {
                Err(Fault::of(CLOSED, pdu::terminate_text(status, information)))
            }
            Arrival::Head(Head::Data { .. }) => Ok(()),
        }
    }

    #[inline]
    fn respond(&mut self, entry: &Cqe) -> Result<(), Fault> {
        let Some((index, _)) = self.slots.of(entry.cid) else {
            let what = format!("completion of command {:#06x}, which is not outstanding", entry.cid);
            return Err(Fault::field(20, what));
        };
        self.end(index, entry.status(), entry.result())
    }

    /// A command has ended. Its buffer is given back once no part of it waits to be sent.
    #[inline]
    fn end(&mut self, index: u16, status: Status, result: u64) -> Result<(), Fault> {
        let Some(slot) = self.slots.get_mut(index) else { return Ok(()) };
        let mut status = status;
        if status.is_success() {
            if let Some(what) = slot.contradiction(result) {
                return Err(Fault::of(fatal_error::SEQUENCE_ERROR, what));
            }
            if slot.is_corrupt {
                status = Status::TRANSIENT_TRANSPORT_ERROR;
            }
        }
        slot.stage = Stage::Ended;
        if slot.asks > 0 {
            slot.asks = 0;
            self.outbox.forget(index);
        }
        if slot.unsent > 0 {
            slot.hold(status, result);
        } else {
            self.ended.push_back(Ended { index, status, result });
        }
        Ok(())
    }

    fn ask(&mut self, cid: u16, tag: u16, offset: u32, bytes: u32) -> Result<(), Fault> {
        let in_capsule_bytes = self.outbox.in_capsule_bytes;
        let Some((index, slot)) = self.slots.of(cid) else {
            let what = format!("Ready to Transfer for command {cid:#06x}, which is not outstanding");
            return Err(Fault::field(8, what));
        };
        let end = offset.checked_add(bytes);
        let is_outside = slot.direction != Direction::ToController
            || slot.is_in_capsule(in_capsule_bytes)
            || bytes == 0
            || end.is_none_or(|end| end > slot.bytes);
        if is_outside {
            let what =
                format!("{bytes} bytes asked for at {offset} of a transfer of {}", slot.transfer_bytes());
            return Err(Fault::of(fatal_error::DATA_OUT_OF_RANGE, what));
        }
        if offset < slot.asked {
            return Err(Fault::field(12, format!("data at {offset} of a command is asked for again")));
        }
        if slot.asks == R2TS_MAX {
            return Err(Fault::of(
                fatal_error::LIMIT_EXCEEDED,
                format!("more than {R2TS_MAX} R2Ts for a command"),
            ));
        }
        slot.asks += 1;
        slot.asked = end.unwrap_or(slot.bytes);
        self.outbox.answer(index, tag, offset, bytes);
        Ok(())
    }

    /// Tells the target what is wrong, as far as it can be told at once.
    #[cold]
    fn terminate(&mut self, fault: &Fault) -> Broken {
        if fault.status == CLOSED {
            return Broken::Lost(fault.what.clone());
        }
        if !self.is_blocked()
            && let Some(stream) = &mut self.stream
        {
            let request = pdu::terminate(fault, self.inbox.wrong());
            // The connection is closed either way.
            let _ = stream.send(&[Piece::Bytes(&request)]);
        }
        let broken = match fault.status {
            // Bits that flipped on the way are nobody's mistake.
            fatal_error::HEADER_DIGEST_ERROR => Broken::Lost(fault.what.clone()),
            _ => Broken::Protocol(fault.what.clone()),
        };
        self.over = Some(broken.clone());
        broken
    }

    /// Takes a completion that is there.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Completion> {
        let Ended { index, status, result } = self.ended.pop_front()?;
        let (token, buf) = self.slots.finish(index)?;
        Some(Completion { token, status, result, buf })
    }

    /// Whether [`Link::pop`] has something.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The commands the target has, each with its deadline, which starts at 0.
    pub(crate) fn deadlines(&mut self) -> impl Iterator<Item = (Cid, &mut u64)> {
        self.slots.deadlines()
    }

    /// As if a connection had taken all that waits.
    pub(crate) fn pretend_sent(&mut self, agreed: Agreement) {
        self.inbox.clear(agreed);
        self.outbox.agreed = agreed;
        self.outbox.pretend_sent(&mut self.slots);
    }

    /// As if a connection had held `bytes`: acts upon them, and counts what ended by its token.
    pub(crate) fn pretend_received(&mut self, mut bytes: &[u8], ended: &mut [u32]) -> Result<(), Broken> {
        self.is_drained = true;
        while !bytes.is_empty() {
            let from = |rooms: &mut [Room<'_>]| {
                let mut taken = 0;
                for room in rooms {
                    taken += room.copy_from(0, &bytes[taken..]);
                }
                bytes = &bytes[taken..];
                Ok(taken)
            };
            self.inbox.receive(&self.slots, from).map_err(|e| Broken::io("receive", &e))?;
            while self.look()? {
                while let Some(completion) = self.pop() {
                    ended[completion.token as usize] += 1;
                }
            }
        }
        Ok(())
    }

    /// Sends a command and waits for its completion, whatever its status; for a link that nobody else uses.
    /// Errors: [`Error::Timeout`], [`Error::Unreachable`] when the connection is lost, [`Error::Protocol`].
    pub(crate) fn call(
        &mut self,
        what: &str,
        sqe: Sqe,
        payload: Option<Payload>,
        limit: Duration,
    ) -> Result<Completion, Error> {
        let manner = Manner { token: CALL_TOKEN, ..Manner::default() };
        self.submit(sqe, payload, manner)?;
        let deadline = Instant::now() + limit;
        self.flush().map_err(|e| broken(what, e))?;
        loop {
            self.begin();
            while self.look().map_err(|e| broken(what, e))? {
                if let Some(completion) = self.pop()
                    && completion.token == CALL_TOKEN
                {
                    return Ok(completion);
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Timeout { what: what.to_owned(), milliseconds: limit.as_millis() as u64 });
            }
            self.rest(left);
        }
    }

    /// Sleeps until something arrives, or can be sent, or `limit` has passed.
    pub(crate) fn rest(&self, limit: Duration) {
        if let Some(stream) = &self.stream
            && !stream.has_buffered()
        {
            let flags = if self.is_blocked() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            await_ready(stream, flags, limit);
        }
    }
}

/// In place of a fatal error status: the target has ended the connection, and is told nothing.
const CLOSED: u16 = 0;
/// Of the one command of [`Link::call`].
const CALL_TOKEN: u64 = u64::MAX;

pub(crate) fn await_ready(stream: &Stream, flags: PollFlags, limit: Duration) {
    let limit = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
    // Whoever waits looks again afterwards, whatever has ended the sleep.
    let _ = poll(&mut [PollFd::new(stream, flags)], Some(&limit));
}

fn broken(what: &str, e: Broken) -> Error {
    match e {
        Broken::Lost(why) => Error::Unreachable(format!("{what}: {why}")),
        Broken::Protocol(why) => Error::Protocol(format!("{what}: {why}")),
    }
}

/// Which way the data of a command with a buffer goes, also of those commands of a vendor whose opcode claims
/// that there is none.
#[inline]
fn direction(sqe: &Sqe) -> Direction {
    let is_to_controller = Direction::by_opcode(sqe).is_to_controller();
    if is_to_controller { Direction::ToController } else { Direction::ToHost }
}

/// What is known of a command of a queue by its opcode.
#[inline]
fn facts_of(sqe: &Sqe, is_admin: bool, is_kv: bool) -> Option<&'static Facts> {
    match (is_admin, is_kv) {
        (true, _) => CommandSet::Admin.facts(sqe.opcode),
        (false, true) => command::io(csi::KEY_VALUE, sqe.opcode),
        (false, false) => command::io(csi::NVM, sqe.opcode),
    }
}

/// Bytes of data that a success of a command stands for at the least, of the `bytes` there is room for.
#[inline]
fn bytes_due(sqe: &Sqe, bytes: u32, is_admin: bool, is_kv: bool) -> u32 {
    match facts_of(sqe, is_admin, is_kv) {
        Some(facts) if is_admin && facts.changes == Changes::Nothing => {
            let due = facts.length.bytes(sqe, 0).unwrap_or(0);
            bytes.min(u32::try_from(due).unwrap_or(u32::MAX))
        }
        // Of a value that is read there may be less; a vendor's opcode may be another vendor's.
        Some(Facts { access: Access::Read, moves_contents: true, .. }) if !is_kv => bytes,
        Some(Facts { access: Access::Write, .. }) if !is_vendor_specific(sqe.opcode, false) => bytes,
        _ => 0,
    }
}

/// Whether a command that may have been executed may be executed again. Of admin commands, those that change
/// nothing.
fn is_repeatable(slot: &Slot, is_admin: bool) -> bool {
    if is_admin {
        let facts = CommandSet::Admin.facts(slot.sqe.opcode);
        return facts.is_some_and(|facts| facts.changes == Changes::Nothing);
    }
    // An entry that came as one says nothing of its namespace's command set.
    if slot.is_kv { may_repeat_in(csi::KEY_VALUE, &slot.sqe) } else { may_repeat(&slot.sqe) }
}
