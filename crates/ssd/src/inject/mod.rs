//! Injecting faults: what the rules of [`fault`](crate::fault) say is done, in the one place all commands
//! come through.
//!
//! | module | concept |
//! |---|---|
//! | here | what happens to commands |
//! | `corrupt` | data that changes on the way |
//! | `device` | what happens to the device: fatal status, unplugging, and cutting the power |
//! | `command` | the vendor's admin commands that add, clear and list rules |

mod command;
mod corrupt;
mod device;

use unvme_bus::mem::any_lost;
use unvme_bus::space::Direction;
use unvme_bus::{Clock, lock};
use unvme_spec::command::{Access, Changes, Facts, is_vendor_specific};
use unvme_spec::nvm::{BlockRange, DsmRange};
use unvme_spec::{Sqe, Status, admin, kv, nvm, samsung_kv};
use zerocopy::IntoBytes;

use crate::Ssd;
use crate::admin::Answer;
use crate::dptr::DataPointer;
use crate::fault::judge::{DeviceFate, Subject, Verdict};
use crate::fault::{CorruptData, Corruption, WrongCompletion};
use crate::queue::{CompletionQueue, Rung, SubmissionQueue};
use crate::reply::Reply;
use corrupt::{Copied, corrupt_pieces};

/// Pages of media that programs are counted in.
const PROGRAM_BYTES: u64 = 4096;

/// What has become of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// Nothing: no rule is about it, and the engine goes on with it.
    No,
    /// It has been taken care of.
    Yes,
    /// It has been, and the turn is over: there is less room than there was, or no device.
    EndTurn,
}

/// Data that a command moves.
#[derive(Clone, Copy)]
enum Moves {
    Nothing,
    /// So many bytes to the device.
    In(usize),
    /// To the host.
    Out(usize),
}

impl Ssd {
    /// Serves an I/O command that has been taken from its queue, if a rule has something to say about it.
    #[cold]
    pub(crate) fn serve_by_rules(
        &self,
        sq: &mut SubmissionQueue,
        cq: &mut CompletionQueue,
        sqe: &Sqe,
    ) -> Served {
        if !self.settle() || self.is_stopped() {
            return Served::EndTurn;
        }
        let mut verdict = self.verdict(sq, sqe);
        if verdict.is_none() && !self.faults.counts_programs() && !self.faults.is_read_only() {
            return Served::No;
        }
        let mut verdict = verdict.take().unwrap_or_default();
        let end = verdict.device.end.take();
        self.apply_fate(std::mem::take(&mut verdict.device));
        if self.faults.is_read_only() && self.changes_media(sq, sqe) && verdict.status.is_none() {
            verdict.status = Some(self.read_only_status(sq, sqe));
        }
        let refused = verdict.status.is_some() || verdict.dropped;
        let mut reply = match refused && !verdict.executed {
            true => Reply::DONE,
            false => self.execute_by_rules(sq, sqe, &verdict),
        };
        if any_lost() {
            reply = reply.with_status(self.unless_lost(sq, sqe, reply.status));
        }
        if end.is_some() {
            self.apply_fate(DeviceFate { end, ..Default::default() });
            return Served::EndTurn;
        }
        if !self.settle() {
            return Served::EndTurn;
        }
        if verdict.dropped {
            sq.ops.clear();
            return Served::Yes;
        }
        reply = reply.with_status(verdict.status.unwrap_or(reply.status));
        if !reply.status.is_success() && !verdict.unlogged {
            reply.status = self.failed(sq.id, sqe, reply.status);
        }
        self.answer_by_rules(sq, cq, sqe, reply, &verdict)
    }

    fn verdict(&self, sq: &mut SubmissionQueue, sqe: &Sqe) -> Option<Verdict> {
        let for_pairs = self.takes_pairs(sq, sqe);
        let mut long = [0; samsung_kv::KEY_BYTES_MAX];
        let mut key = [0; samsung_kv::KEY_INLINE_BYTES];
        let key = match for_pairs {
            true => self.key_of(sq, sqe, &mut key, &mut long),
            false => None,
        };
        let range = sq.namespaces.facts(for_pairs, sqe).filter(|facts| facts.names_blocks).map(|_| {
            let range = BlockRange::parse(sqe);
            (range.start.0, range.end().map_or(u64::MAX, |end| end - 1))
        });
        let ranges = if for_pairs { Vec::new() } else { self.ranges_of(sq, sqe) };
        let blocks = if ranges.is_empty() { range.as_slice() } else { &ranges };
        self.faults.judge(&Subject { queue: sq.id, opcode: sqe.opcode, nsid: sqe.nsid, blocks, key })
    }

    fn takes_pairs(&self, sq: &SubmissionQueue, sqe: &Sqe) -> bool {
        sq.namespaces.first_key_value().is_some() && self.is_for_pairs(&sq.namespaces, sqe)
    }

    /// First and last logical block of each range of Dataset Management; none when they cannot be read.
    fn ranges_of(&self, sq: &mut SubmissionQueue, sqe: &Sqe) -> Vec<(u64, u64)> {
        let nvm::Command::DatasetManagement { ranges, .. } = nvm::Command::parse(sqe) else {
            return Vec::new();
        };
        if !self.faults.wants_blocks() {
            return Vec::new();
        }
        let mut list = vec![DsmRange::default(); ranges as usize];
        let (bytes, page_bytes, direction) = (size_of_val(list.as_slice()), sq.page_bytes, Direction::Read);
        let pointer = DataPointer { host: &sq.host, sqe, page_bytes, bytes, direction };
        if pointer.fetch(&mut sq.pieces, list.as_mut_bytes()).is_err() {
            return Vec::new();
        }
        let named = list.iter().filter(|range| range.blocks > 0);
        named.map(|range| (range.start, range.start.saturating_add(u64::from(range.blocks) - 1))).collect()
    }

    /// The key a command names, in the entry or in host memory; `None` when it cannot be read there either.
    fn key_of<'k>(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        inline: &'k mut [u8; samsung_kv::KEY_INLINE_BYTES],
        long: &'k mut [u8; samsung_kv::KEY_BYTES_MAX],
    ) -> Option<&'k [u8]> {
        let mut copy = |bytes: &[u8]| {
            inline.get_mut(..bytes.len())?.copy_from_slice(bytes);
            Some(bytes.len())
        };
        let bytes = match is_vendor_specific(sqe.opcode, false) {
            false => copy(kv::Command::key_of(sqe)?.as_bytes()?)?,
            true => match samsung_kv::Command::key_of(sqe)? {
                key @ samsung_kv::Key::Inline { .. } => copy(key.as_inline()?)?,
                samsung_kv::Key::Memory { prp, length } if self.faults.wants_keys() => {
                    let bytes = usize::from(length);
                    let entry = Sqe { dptr: prp, ..Sqe::default() };
                    let (page_bytes, direction) = (sq.page_bytes, Direction::Read);
                    let pointer = DataPointer { host: &sq.host, sqe: &entry, page_bytes, bytes, direction };
                    pointer.fetch(&mut sq.pieces, long.get_mut(..bytes)?).ok()?;
                    return long.get(..bytes);
                }
                samsung_kv::Key::Memory { .. } => return None,
            },
        };
        inline.get(..bytes)
    }

    /// Executes a command, its data changed where a rule asks for that, and counts the pages it programs.
    fn execute_by_rules(&self, sq: &mut SubmissionQueue, sqe: &Sqe, verdict: &Verdict) -> Reply {
        let moves = self.moves(sq, sqe);
        let of = |data: CorruptData| -> Vec<(&Corruption, u64)> {
            let ours = verdict.corrupt.iter().filter(|(corrupt, _)| corrupt.data == data);
            ours.map(|(corrupt, seed)| (corrupt, *seed)).collect()
        };
        let written_before = sq.counters.bytes_written;
        let reply = match moves {
            Moves::In(bytes) => {
                let corruptions = of(CorruptData::Write);
                let pages = self.pages_allowed(sq, sqe);
                match (corruptions.is_empty(), pages) {
                    (true, None) => self.execute_io(sq, sqe),
                    (_, pages) => self.execute_copied(sq, sqe, bytes, &corruptions, pages),
                }
            }
            _ => self.execute_io(sq, sqe),
        };
        if let Moves::Out(bytes) = moves
            && reply.status.is_success()
        {
            self.corrupt_read(sq, sqe, bytes, reply.sent, &of(CorruptData::Read));
        }
        if self.counts_pairs(sq, sqe) {
            let bytes = sq.counters.bytes_written - written_before;
            self.faults.programmed(bytes.div_ceil(PROGRAM_BYTES));
        }
        reply
    }

    fn execute_io(&self, sq: &mut SubmissionQueue, sqe: &Sqe) -> Reply {
        let answer = match self.check_claims(sq, sqe) {
            Err(status) => Err(status),
            Ok(()) if self.takes_pairs(sq, sqe) => self.execute_kv(sq, sqe),
            Ok(()) => self.execute_nvm(sq, sqe).map(Reply::sending),
        };
        answer.unwrap_or_else(Reply::from)
    }

    /// [`Ssd::execute_io`] of a command whose data is changed, or of which only the first `pages` pages are
    /// programmed.
    fn execute_copied(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        bytes: usize,
        corruptions: &[(&Corruption, u64)],
        pages: Option<u64>,
    ) -> Reply {
        let Ok(mut copied) = Copied::fetch(sq, sqe, bytes) else {
            // The command fails with what is wrong with its pointer.
            return self.execute_io(sq, sqe);
        };
        for (corruption, seed) in corruptions {
            copied.corrupt(corruption, *seed);
        }
        if let Some(pages) = pages
            && !self.shorten(sq, &mut copied.sqe, pages)
        {
            return Reply::DONE;
        }
        copied.execute(sq, |sq, sqe| self.execute_io(sq, sqe))
    }

    /// Without flash, pages of logical blocks are counted here. `None` when all of a write may be programmed.
    fn pages_allowed(&self, sq: &SubmissionQueue, sqe: &Sqe) -> Option<u64> {
        if !self.faults.counts_programs() || self.counts_programs_itself() || self.takes_pairs(sq, sqe) {
            return None;
        }
        let (start, end) = self.written_bytes(sq, sqe)?;
        let pages = end.div_ceil(PROGRAM_BYTES) - start / PROGRAM_BYTES;
        Some(self.faults.programmed(pages)).filter(|allowed| *allowed < pages)
    }

    /// Cuts a write to its first pages; false when there are none.
    fn shorten(&self, sq: &SubmissionQueue, sqe: &mut Sqe, pages: u64) -> bool {
        let (Some((start, _)), Ok(namespace)) = (self.written_bytes(sq, sqe), sq.namespaces.blocks(sqe.nsid))
        else {
            return false;
        };
        let end = (start / PROGRAM_BYTES + pages) * PROGRAM_BYTES;
        let blocks = end.saturating_sub(start) >> namespace.block_shift;
        // NLB is zero-based and has 16 bits; there are fewer blocks than there were.
        let Some(nlb_z) = blocks.checked_sub(1).filter(|_| pages > 0) else { return false };
        sqe.cdw12 = sqe.cdw12 & !0xffff | nlb_z as u32 & 0xffff;
        true
    }

    /// First byte, and the one behind the last, that a write puts to its namespace.
    fn written_bytes(&self, sq: &SubmissionQueue, sqe: &Sqe) -> Option<(u64, u64)> {
        let nvm::Command::Write(range, _) = nvm::Command::parse(sqe) else { return None };
        let namespace = sq.namespaces.blocks(sqe.nsid).ok()?;
        namespace.check(range).ok()?;
        Some((namespace.bytes(range.start.0), namespace.bytes(range.end()?)))
    }

    /// Without flash, pages of pairs are counted by the bytes of their values, when they have been written.
    fn counts_pairs(&self, sq: &SubmissionQueue, sqe: &Sqe) -> bool {
        self.faults.counts_programs() && !self.counts_programs_itself() && self.takes_pairs(sq, sqe)
    }

    /// True when media counts its programs itself.
    fn counts_programs_itself(&self) -> bool {
        self.media.flash().is_some()
    }

    /// The contents of a namespace that a command moves; nothing for one that will fail, or whose data no
    /// rule changes.
    fn moves(&self, sq: &SubmissionQueue, sqe: &Sqe) -> Moves {
        let for_pairs = self.takes_pairs(sq, sqe);
        let of_contents = |facts: &&Facts| facts.moves_contents && facts.access != Access::Other;
        let Some(facts) = sq.namespaces.facts(for_pairs, sqe).filter(of_contents) else {
            return Moves::Nothing;
        };
        let to_host = facts.direction.is_to_host();
        let (unit_bytes, most) = if for_pairs {
            // A buffer may be longer than any value; what is copied before it is stored may not.
            let copied_max = if to_host { u64::MAX } else { VALUE_BYTES_MAX };
            (1, self.transfer_bytes_max.min(copied_max))
        } else {
            match sq.namespaces.blocks(sqe.nsid) {
                Ok(namespace) if namespace.check(BlockRange::parse(sqe)).is_ok() => {
                    (namespace.bytes(1), self.transfer_bytes_max)
                }
                _ => return Moves::Nothing,
            }
        };
        match facts.length.bytes(sqe, unit_bytes).filter(|bytes| *bytes <= most) {
            Some(bytes) if to_host => Moves::Out(bytes as usize),
            Some(bytes) => Moves::In(bytes as usize),
            None => Moves::Nothing,
        }
    }

    /// Changes what a read has put into host memory: `sent` bytes, of the `bytes` that it has asked for.
    fn corrupt_read(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        bytes: usize,
        sent: u32,
        corruptions: &[(&Corruption, u64)],
    ) {
        if corruptions.is_empty() {
            return;
        }
        let (page_bytes, direction) = (sq.page_bytes, Direction::Write);
        let pointer = DataPointer { host: &sq.host, sqe, page_bytes, bytes, direction };
        if pointer.walk_first(sent as usize, &mut sq.pieces).is_ok() {
            corrupt_pieces(&sq.host, &sq.pieces, sent.into(), corruptions);
        }
    }

    /// True for commands that change what is on the media.
    pub(crate) fn changes_media(&self, sq: &SubmissionQueue, sqe: &Sqe) -> bool {
        match sq.namespaces.facts(self.takes_pairs(sq, sqe), sqe).map(|facts| facts.changes) {
            Some(Changes::Media) => true,
            // An iterator that deletes does so in the background, and not by its command.
            Some(Changes::MediaByFields) => {
                matches!(nvm::Command::parse(sqe), nvm::Command::DatasetManagement { deallocate: true, .. })
            }
            Some(Changes::Controller | Changes::Nothing) | None => false,
        }
    }

    /// What writes to read-only media fail with: NVM 1.0 figure 14 has a status for it, the Key Value command
    /// set none.
    fn read_only_status(&self, sq: &SubmissionQueue, sqe: &Sqe) -> Status {
        match self.takes_pairs(sq, sqe) {
            true => Status::NAMESPACE_WRITE_PROTECTED.with_do_not_retry(),
            false => Status::WRITE_TO_READ_ONLY_RANGE.with_do_not_retry(),
        }
    }

    fn answer_by_rules(
        &self,
        sq: &mut SubmissionQueue,
        cq: &mut CompletionQueue,
        sqe: &Sqe,
        reply: Reply,
        verdict: &Verdict,
    ) -> Served {
        let due = match sq.ops.is_on() || verdict.delay_ns > 0 {
            true => self.hold_until(sq, sqe, reply.status, verdict.delay_ns),
            false => None,
        };
        self.post_by_rules(sq, cq, sqe.cid, due, reply, verdict.completion)
    }

    /// Posts a completion, right or wrong, when it is due; there is room for it.
    fn post_by_rules(
        &self,
        sq: &mut SubmissionQueue,
        cq: &mut CompletionQueue,
        cid: u16,
        due: Option<u64>,
        reply: Reply,
        wrong: Option<WrongCompletion>,
    ) -> Served {
        // Every bit is another one: the number of a slot as well as what counts its use.
        let cid = if wrong == Some(WrongCompletion::CommandId) { !cid } else { cid };
        let sq_id = if wrong == Some(WrongCompletion::QueueId) { !sq.id } else { sq.id };
        cq.ticket(sq_id, sq.head as u16, cid).answer(due, reply);
        if wrong != Some(WrongCompletion::Duplicate) {
            return Served::Yes;
        }
        // The other entries are for commands that wait.
        let waiting = if let Rung::Entries(waiting) = sq.rung(&self.queues.doorbells) { waiting } else { 0 };
        if matches!(cq.room(&self.queues.doorbells), Rung::Entries(room) if room > waiting) {
            cq.ticket(sq_id, sq.head as u16, cid).answer(due, reply);
        }
        Served::EndTurn
    }

    /// Executes an admin command, or not, as rules say.
    #[cold]
    pub(crate) fn execute_admin_by_rules(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        clock: &Clock,
    ) -> Answer {
        if self.is_fault_command(sqe) {
            return self.execute_admin(sq, sqe, clock);
        }
        if !self.settle() {
            return Answer::Later;
        }
        let subject = Subject { queue: 0, opcode: sqe.opcode, nsid: sqe.nsid, blocks: &[], key: None };
        let Some(mut verdict) = self.faults.judge(&subject) else {
            return self.execute_admin(sq, sqe, clock);
        };
        let end = verdict.device.end.take();
        self.apply_fate(std::mem::take(&mut verdict.device));
        let refused = verdict.status.is_some() || verdict.dropped;
        // A request that waits for an event is answered when there is one, if it is not refused.
        let waits = sqe.opcode == admin::opcode::ASYNC_EVENT_REQUEST;
        let mut answer = match refused && (!verdict.executed || waits) {
            true => Answer::Now(Ok(Reply::DONE)),
            false => self.execute_admin(sq, sqe, clock),
        };
        if end.is_some() {
            self.apply_fate(DeviceFate { end, ..Default::default() });
            return Answer::Later;
        }
        if verdict.dropped || matches!(answer, Answer::Later) {
            return Answer::Later;
        }
        match verdict.status {
            Some(status) if status.is_success() => {
                let sent = if let Answer::Now(Ok(reply)) = answer { reply.sent } else { 0 };
                answer = Answer::Now(Ok(Reply { sent, ..Reply::DONE }));
            }
            Some(status) => answer = Answer::Now(Err(status)),
            None => {}
        }
        if verdict.delay_ns == 0 && verdict.completion.is_none() {
            return answer;
        }
        self.answer_admin_by_rules(sq, sqe, answer, &verdict)
    }

    /// Answers an admin command late, or wrong. No completion queue is locked.
    fn answer_admin_by_rules(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        answer: Answer,
        verdict: &Verdict,
    ) -> Answer {
        let mut reply = match answer {
            Answer::Now(answer) => answer.unwrap_or_else(|status| self.failed(0, sqe, status).into()),
            Answer::Later => return answer,
        };
        if sqe.opcode == admin::opcode::ASYNC_EVENT_REQUEST {
            reply = reply.of_event();
        }
        let due = (verdict.delay_ns > 0).then(|| sq.turn_began.saturating_add(verdict.delay_ns));
        if let Some(cq) = lock(&self.queues.completion[0]).as_mut() {
            self.post_by_rules(sq, cq, sqe.cid, due, reply, verdict.completion);
        }
        Answer::Later
    }
}

/// Most bytes of a value that one command moves.
const VALUE_BYTES_MAX: u64 = 256 << 20;
