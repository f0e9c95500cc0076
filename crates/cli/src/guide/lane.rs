//! A thread of a test: the operations it does on its queue, one after the other or many at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use unvme::{BlockRange, DmaBuf, Lba, Status};
use unvme_guide::config::SsdType;
use unvme_guide::session::{Data, KvKey, Member, Op, OpError, QueueChoice, QueueKind, Returned, Session};
use unvme_spec::samsung_kv;

use super::in_flight::{Claim, InFlight, Router, Until};
use super::pair::{self, KEY_BYTES, Pairs, Target};
use super::record::{Kind, PairSize, Record};

/// Pause of a wait for completions before it looks again whether somebody has to poll.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Bytes of a buffer for values of no bytes: a command takes one along all the same.
const BYTES_MIN: usize = 512;
/// A retrieve's buffer is a multiple of this.
const BUFFER_ALIGNMENT: u32 = 4;

/// Which answers of the device are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    Success,
    /// Success, and for keys that are not there also that they are not.
    SuccessOrMissing,
    /// That there is no such key.
    Missing,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// What its device is used as.
    pub(crate) ssd_type: SsdType,
    /// What is done.
    pub(crate) kind: Kind,
    /// Number of the pair.
    pub(crate) id: u64,
    /// How large it is.
    pub(crate) size: PairSize,
    /// Checksum that the value has to have.
    pub(crate) check: Option<u64>,
    /// Which answers are right.
    pub(crate) expect: Expect,
    /// Its buffer is one of the thread's own, for the next operation.
    pub(crate) lent: bool,
}

/// What the device answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    /// Bytes of the value that was retrieved.
    pub(crate) value_bytes: u64,
    /// Checksum of it, when it is to be checked.
    pub(crate) checksum: Option<u64>,
}

impl Answer {
    const SUCCESS: Self = Self { status: Status::SUCCESS, value_bytes: 0, checksum: None };
}

/// True when a status says that there is no such key, in either dialect.
pub(crate) fn is_missing(status: Status) -> bool {
    let kind = status.kind();
    kind == samsung_kv::status::KEY_NOT_FOUND || kind == Status::KEY_NOT_FOUND
}

/// How the status of a command on a pair is told.
pub(crate) fn status_text(status: Status) -> String {
    samsung_kv::status::OfPair(status).to_string()
}

/// How it is told that an operation on a pair was not done.
pub(crate) fn error_text(error: &OpError) -> String {
    match error {
        OpError::Status(status) => format!("the device answered {}", status_text(*status)),
        error => error.to_string(),
    }
}

impl Operation {
    /// Enters what came of it: right, missing or wrong.
    pub(crate) fn enter(&self, answer: &Answer, begin: Duration, end: Duration, record: &mut Record) {
        let Self { kind, id, size, check, expect, .. } = *self;
        let missing = is_missing(answer.status);
        let right = match expect {
            Expect::Success => answer.status.is_success(),
            Expect::SuccessOrMissing => answer.status.is_success() || missing,
            Expect::Missing => missing,
        };
        if !right {
            let name = kind.name();
            let what = || match (expect, answer.status.is_success()) {
                (Expect::Missing, true) => format!("{name} of pair {id}: the key exists; it was deleted"),
                _ if self.ssd_type == SsdType::Lba => format!("{name} of pair {id}: {}", answer.status),
                _ => format!("{name} of pair {id}: {}", status_text(answer.status)),
            };
            return match answer.status.kind() {
                Status::ABORTED_BY_HOST => record.ended(what),
                _ => record.failed(what),
            };
        }
        record.missing += u64::from(missing && expect == Expect::SuccessOrMissing);
        if let (Some(check), Some(checksum), false) = (check, answer.checksum, missing)
            && (check != checksum || answer.value_bytes != u64::from(size.value_bytes))
        {
            record.miscompares += 1;
        }
        record.succeeded(kind, size, begin, end);
    }
}

/// A thread with its queue.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Its device.
    pub(crate) member: Arc<Member>,
    pub(crate) cpu: u32,
    /// What its queue is.
    pub(crate) queue: QueueKind,
    /// Which queue that is.
    pub(crate) choice: QueueChoice,
    /// Depth of its queue; 1 for a synchronous one.
    pub(crate) depth: u32,
    /// Nobody polls for it.
    pub(crate) polls: bool,
    /// Values go in buffers of the device and are not copied.
    pub(crate) lends: bool,
    /// Keyspace of its keys.
    pub(crate) keyspace: u8,
    pub(crate) pairs: Pairs,
    /// What is under way, on an asynchronous queue.
    pub(crate) in_flight: Arc<InFlight>,
}

/// A place of a thread: which device, on which CPU, with which kind of queue, for which pairs.
#[derive(Clone, Debug)]
pub(crate) struct LaneOptions {
    /// Place of the device in the session.
    pub(crate) device: usize,
    /// CPU of the thread.
    pub(crate) cpu: u32,
    /// The kind of queue it needs.
    pub(crate) queue: QueueKind,
    pub(crate) pairs: Pairs,
    /// Values go in buffers of the device and are not copied.
    pub(crate) lends: bool,
}

/// Gives each lane its queue: that of its CPU where that is of the right kind, else any of the device's.
pub(crate) fn lanes(session: &Session, router: &Router, lanes: Vec<LaneOptions>) -> Result<Vec<Lane>> {
    let depth = |lane: &LaneOptions| match lane.queue {
        QueueKind::Sync => 1,
        QueueKind::Async => session.members()[lane.device].queue_depth(),
    };
    let depths: Vec<usize> = lanes.iter().map(depth).collect();
    let in_flight = router.connect(&depths)?;
    let lane = |((lane, depth), in_flight): ((LaneOptions, usize), Arc<InFlight>)| {
        let LaneOptions { device, cpu, queue, pairs, lends } = lane;
        let member = Arc::clone(&session.members()[device]);
        let choice = if member.has_queue(cpu, queue) { QueueChoice::Cpu(cpu) } else { QueueChoice::Auto };
        let polls = session.config().devices[device].cq_thread_mask == 0;
        Lane { member, cpu, queue, choice, depth: depth as u32, polls, lends, keyspace: 0, pairs, in_flight }
    };
    Ok(lanes.into_iter().zip(depths).zip(in_flight).map(lane).collect())
}

/// What an operation takes along, and what is kept for the next one.
#[derive(Default)]
pub(super) struct Operands {
    /// A value that is copied.
    pub(super) value: Vec<u8>,
    /// A buffer of the device, which goes along itself.
    pub(super) buf: Option<DmaBuf>,
}

impl Operands {
    /// The buffer that was prepared.
    fn taken(&mut self) -> Result<DmaBuf, OpError> {
        // Only a device that was lost keeps a buffer, and after that nothing else is submitted.
        self.buf.take().ok_or(OpError::Closed)
    }

    /// The first `bytes` bytes of what was retrieved.
    fn value(&mut self, bytes: usize) -> &[u8] {
        if let Some(buf) = &self.buf {
            self.value.resize(bytes, 0);
            buf.read(0, &mut self.value);
        }
        &self.value[..bytes]
    }
}

/// What a test of a thread came to, and when.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// What it found out.
    pub(crate) record: Record,
    /// When it began.
    pub(crate) start: Instant,
    /// From the first submission to the last completion.
    pub(crate) elapsed: Duration,
}

/// Tells the operation of an id.
pub(crate) struct Request {
    /// What is done.
    pub(crate) kind: Kind,
    /// Number of the pair.
    pub(crate) id: u64,
    /// Checksum that the value has to have.
    pub(crate) check: Option<u64>,
}

impl Lane {
    /// Does `requests` in order; counts in `progress` how many were done. The first failure ends it.
    pub(crate) fn run(
        &self,
        requests: impl Iterator<Item = Request>,
        expect: Expect,
        progress: &AtomicU64,
    ) -> Result<Outcome> {
        let operations = requests.map(|Request { kind, id, check }| Operation {
            ssd_type: self.member.ssd_type(),
            kind,
            id,
            size: self.pairs.size(id),
            check,
            expect,
            lent: self.lends,
        });
        match self.queue {
            QueueKind::Sync => self.run_sync(operations, progress),
            QueueKind::Async => self.run_async(operations, progress),
        }
    }

    fn run_sync(&self, operations: impl Iterator<Item = Operation>, progress: &AtomicU64) -> Result<Outcome> {
        let mut record = Record::new()?;
        let mut operands = Operands::default();
        let start = Instant::now();
        for operation in operations {
            self.prepare(&operation, &mut operands)?;
            let begin = start.elapsed();
            let answer = self.call(&operation, &mut operands);
            let end = start.elapsed();
            match answer {
                Ok(mut answer) => {
                    let bytes = u64::from(operation.size.value_bytes).min(answer.value_bytes) as usize;
                    answer.checksum = operation.check.map(|_| pair::checksum(operands.value(bytes)));
                    operation.enter(&answer, begin, end, &mut record);
                }
                Err(error) => record.failed(|| told(&operation, &error)),
            }
            if record.failures > 0 {
                break;
            }
            progress.fetch_add(1, Ordering::Relaxed);
        }
        record.give_reason(|| self.ended_by());
        Ok(Outcome { record, start, elapsed: start.elapsed() })
    }

    fn run_async(
        &self,
        operations: impl Iterator<Item = Operation>,
        progress: &AtomicU64,
    ) -> Result<Outcome> {
        let mut operands = Operands::default();
        let start = Instant::now();
        self.in_flight.begin(start)?;
        let mut prepared = Ok(());
        for operation in operations {
            prepared = self.prepare(&operation, &mut operands);
            if prepared.is_err() || !self.launch(&operation, &mut operands) {
                break;
            }
            progress.fetch_add(1, Ordering::Relaxed);
        }
        // Bounded by the session: it ends every command, by its time-out if need be.
        while !self.wait(Until::Idle) {}
        prepared?;
        let mut record = self.in_flight.end()?;
        record.give_reason(|| self.ended_by());
        Ok(Outcome { record, start, elapsed: start.elapsed() })
    }

    /// Why this host has ended commands of the device, if it has.
    fn ended_by(&self) -> Option<String> {
        self.member.device().controller().ended_by()
    }

    /// Submits an operation as soon as there is room for it; false when no more are to be.
    fn launch(&self, operation: &Operation, operands: &mut Operands) -> bool {
        loop {
            let token = match self.in_flight.claim(*operation) {
                Claim::Token(token) => token,
                Claim::Failed => return false,
                Claim::Full => {
                    self.wait(Until::Room);
                    continue;
                }
            };
            let error = match self.submit(operation, operands, token) {
                Ok(()) => return true,
                Err(error) => error,
            };
            self.in_flight.cancel(token);
            if !matches!(error, OpError::QueueFull) {
                self.in_flight.fail(|| told(operation, &error));
                return false;
            }
            self.wait(Until::Room);
            std::thread::yield_now();
        }
    }

    /// Waits a while; true when what is waited for is so.
    fn wait(&self, until: Until) -> bool {
        if !self.polls {
            return self.in_flight.wait(until, LOOK_AGAIN);
        }
        let cpu = match self.choice {
            QueueChoice::Cpu(cpu) => Some(cpu),
            QueueChoice::Auto => None,
        };
        if self.member.process_completions(cpu) == 0 {
            std::thread::yield_now();
        }
        self.in_flight.wait(until, Duration::ZERO)
    }

    /// Makes what an operation takes along: the value to store, or room for one.
    fn prepare(&self, operation: &Operation, operands: &mut Operands) -> Result<()> {
        match operation.kind {
            Kind::Store | Kind::Retrieve if self.lends => self.prepare_lent(operation, operands)?,
            Kind::Store => self.pairs.fill(operation.id, &mut operands.value),
            Kind::Retrieve => operands.value.resize(room(operation), 0),
            Kind::Delete | Kind::Exist => {}
        }
        Ok(())
    }

    /// Takes a buffer, and makes the value in it when it is to be stored.
    fn prepare_lent(&self, operation: &Operation, operands: &mut Operands) -> Result<()> {
        let buf = match operands.buf.take().or_else(|| self.in_flight.take_buffer()) {
            Some(buf) => buf,
            None => {
                let bytes = (self.pairs.bytes_max() as usize).next_multiple_of(BYTES_MIN).max(BYTES_MIN);
                self.member.device().admin(|controller| controller.alloc(bytes))?
            }
        };
        if operation.kind == Kind::Store {
            self.pairs.fill_region(operation.id, buf.region(), &mut operands.value);
        }
        operands.buf = Some(buf);
        Ok(())
    }

    /// The operation as the session takes it; `range` is where blocks are listed.
    fn op<'a>(
        &self,
        operation: &Operation,
        target: Target<'a>,
        range: &'a mut Option<BlockRange>,
    ) -> Result<Op<'a>, OpError> {
        Ok(match target {
            Target::Key(bytes) => {
                let key = KvKey { keyspace: self.keyspace, bytes };
                match operation.kind {
                    Kind::Store => Op::store(key, operation.size.value_bytes as usize),
                    Kind::Retrieve => Op::retrieve(key, room(operation)),
                    Kind::Delete => Op::Delete { key, must_exist: false },
                    Kind::Exist => Op::Exist(key),
                }
            }
            Target::Blocks { lba, blocks } => match operation.kind {
                Kind::Store => Op::write(lba, blocks),
                Kind::Retrieve => Op::read(lba, blocks),
                Kind::Delete => {
                    let range = range.insert(BlockRange::new(Lba(lba), blocks));
                    Op::Deallocate(std::slice::from_ref(range))
                }
                Kind::Exist => {
                    return Err(OpError::Unsupported("a block device has no keys to ask for".to_owned()));
                }
            },
        })
    }

    /// Whether the operation goes with the buffer.
    fn is_lent(&self, kind: Kind) -> bool {
        self.lends && matches!(kind, Kind::Store | Kind::Retrieve)
    }

    fn call(&self, operation: &Operation, operands: &mut Operands) -> Result<Answer, OpError> {
        let (mut made, mut range) = ([0; KEY_BYTES], None);
        let target = self.pairs.target(operation.id, &mut made);
        let op = self.op(operation, target, &mut range)?;
        let is_lent = self.is_lent(operation.kind);
        let data = match operation.kind {
            _ if is_lent => Data::Lent(operands.taken()?),
            Kind::Store => Data::Out(&operands.value),
            Kind::Retrieve => Data::In(&mut operands.value),
            Kind::Delete | Kind::Exist => Data::None,
        };
        let (answer, buf) = match self.member.call(self.choice, op, data) {
            Ok(outcome) => {
                let value_bytes = match op {
                    Op::Read(..) => operation.size.value_bytes.into(),
                    _ => outcome.value_bytes,
                };
                (Ok(Answer { value_bytes, ..Answer::SUCCESS }), outcome.data)
            }
            // A status is an answer, whatever it says.
            Err(Returned { error: OpError::Status(status), buf }) => {
                (Ok(Answer { status, ..Answer::SUCCESS }), buf)
            }
            Err(Returned { error, buf }) => (Err(error), buf),
        };
        if is_lent {
            operands.buf = buf;
        }
        answer
    }

    fn submit(&self, operation: &Operation, operands: &mut Operands, token: u64) -> Result<(), OpError> {
        let (mut made, mut range) = ([0; KEY_BYTES], None);
        let target = self.pairs.target(operation.id, &mut made);
        let op = self.op(operation, target, &mut range)?;
        let data = match operation.kind {
            kind if self.is_lent(kind) => Data::Lent(operands.taken()?),
            Kind::Store => Data::Out(&operands.value),
            Kind::Retrieve | Kind::Delete | Kind::Exist => Data::None,
        };
        self.member.submit(self.choice, op, data, token).map_err(|Returned { error, buf }| {
            operands.buf = buf.or_else(|| operands.buf.take());
            error
        })
    }
}

/// Bytes of the buffer of a retrieve.
pub(super) fn room(operation: &Operation) -> usize {
    operation.size.value_bytes.next_multiple_of(BUFFER_ALIGNMENT) as usize
}

fn told(operation: &Operation, error: &OpError) -> String {
    let text = match operation.ssd_type {
        SsdType::Kv => error_text(error),
        SsdType::Lba => error.to_string(),
    };
    format!("{} of pair {}: {text}", operation.kind.name(), operation.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATION: Operation = Operation {
        ssd_type: SsdType::Kv,
        kind: Kind::Retrieve,
        id: 7,
        size: PairSize { index: 0, key_bytes: 16, value_bytes: 100 },
        check: Some(0xabcd),
        expect: Expect::Success,
        lent: false,
    };
    const FOUND: Answer = Answer { status: Status::SUCCESS, value_bytes: 100, checksum: Some(0xabcd) };
    const MISSING: Answer =
        Answer { status: samsung_kv::status::KEY_NOT_FOUND, value_bytes: 0, checksum: Some(1) };

    /// Operations, miscompares, missing keys and failures.
    fn entered(operation: &Operation, answer: &Answer) -> (u64, u64, u64, u64) {
        let mut record = Record::new().expect("record");
        operation.enter(answer, Duration::ZERO, Duration::from_micros(1), &mut record);
        (record.operations(), record.miscompares, record.missing, record.failures)
    }

    #[test]
    fn a_value_that_is_not_what_was_stored_is_counted() {
        assert_eq!(entered(&OPERATION, &FOUND), (1, 0, 0, 0));
        assert_eq!(entered(&OPERATION, &Answer { checksum: Some(0xabce), ..FOUND }), (1, 1, 0, 0));
        assert_eq!(entered(&OPERATION, &Answer { value_bytes: 101, ..FOUND }), (1, 1, 0, 0), "longer");
        let unchecked = Operation { check: None, ..OPERATION };
        assert_eq!(entered(&unchecked, &Answer { checksum: None, ..FOUND }), (1, 0, 0, 0));
    }

    #[test]
    fn what_is_expected_decides_whether_a_missing_key_is_a_failure() {
        assert_eq!(entered(&OPERATION, &MISSING), (0, 0, 0, 1));
        let either = Operation { expect: Expect::SuccessOrMissing, ..OPERATION };
        assert_eq!(entered(&either, &MISSING), (1, 0, 1, 0));
        assert_eq!(entered(&either, &FOUND), (1, 0, 0, 0));
        let gone = Operation { kind: Kind::Exist, check: None, expect: Expect::Missing, ..OPERATION };
        assert_eq!(entered(&gone, &MISSING), (1, 0, 0, 0));
        assert_eq!(entered(&gone, &FOUND), (0, 0, 0, 1));
        let full = Answer { status: Status::CAPACITY_EXCEEDED, ..MISSING };
        assert_eq!(entered(&either, &full), (0, 0, 0, 1));
    }

    #[test]
    fn a_status_is_told_as_that_of_a_pair_or_as_that_of_a_block() {
        let first = |ssd_type, status| {
            let mut record = Record::new().expect("record");
            let operation = Operation { ssd_type, ..OPERATION };
            let answer = Answer { status, ..MISSING };
            operation.enter(&answer, Duration::ZERO, Duration::from_micros(1), &mut record);
            record.first_failure.expect("a failure")
        };
        let full = Status::CAPACITY_EXCEEDED;
        assert_eq!(first(SsdType::Kv, full), "retrieve of pair 7: Capacity Exceeded (0x12)");
        assert_eq!(first(SsdType::Lba, full), "retrieve of pair 7: Capacity Exceeded (0x081)");
    }

    #[test]
    fn what_the_host_has_ended_is_told_with_the_reason() {
        let first = |status, before: bool| {
            let mut record = Record::new().expect("record");
            if before {
                record.failed(|| "broken".to_owned());
            }
            let answer = Answer { status, ..MISSING };
            OPERATION.enter(&answer, Duration::ZERO, Duration::from_micros(1), &mut record);
            record.give_reason(|| Some("the device was unplugged".to_owned()));
            record.first_failure.expect("a failure")
        };
        assert_eq!(
            first(Status::ABORTED_BY_HOST, false),
            "retrieve of pair 7: Command Aborted By Host (0x371): the device was unplugged"
        );
        assert_eq!(first(Status::ABORTED_BY_HOST, true), "broken");
        assert!(!first(Status::CAPACITY_EXCEEDED, false).contains("unplugged"));
    }

    #[test]
    fn missing_is_understood_in_both_dialects_and_statuses_have_names() {
        assert!(is_missing(Status::KEY_NOT_FOUND) && is_missing(Status::new(3, 0x10).with_do_not_retry()));
        assert!(!is_missing(Status::SUCCESS) && !is_missing(Status::new(0, 0x10)));
        assert_eq!(status_text(Status::new(3, 0x10)), "Key Does Not Exist (0x10)");
        assert_eq!(status_text(Status::new(0, 0x87).with_do_not_retry()), "Key Does Not Exist (0x10)");
        assert_eq!(status_text(Status::CAPACITY_EXCEEDED), "Capacity Exceeded (0x12)");
        assert_eq!(status_text(Status::LBA_OUT_OF_RANGE), "LBA Out of Range (0x080)");
    }
}
