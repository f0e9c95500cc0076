//! Operations that are waited for.

use unvme::worker::{Command, Data, Done};
use unvme::{Op, WriteOptions};
use unvme_driver::{Error as DriverError, KvKey, KvNamespace};
use unvme_spec::nvm::DsmRange;
use unvme_spec::samsung_kv;

use super::operation::Work;
use super::{Medium, Member, OpError, Outcome, QueueChoice, QueueKind, Returned};
use crate::cache::Hit;

impl Member {
    /// Does an operation and waits for it, on a synchronous queue. It is one command: of at most 2 MiB of
    /// blocks. A status other than success is an error here.
    ///
    /// # Errors
    /// [`Returned`], with the buffer that was lent. [`OpError::Argument`] for blocks that are not there, too
    /// little data, or a placement identifier that the device has not, with those it has; [`OpError::Status`]
    /// with what the device says, and with the vendor's status for a key, keyspace or value that cannot be;
    /// [`OpError::Unsupported`] for what this kind of device does not have; [`OpError::SlabExhausted`];
    /// [`OpError::WrongQueue`]; [`OpError::QueueFull`] when it stays so for the time a command may take;
    /// [`OpError::Closed`].
    #[inline]
    pub fn call(&self, queue: QueueChoice, op: Op<'_>, data: Data<'_>) -> Result<Outcome, Returned> {
        let is_lent = matches!(data, Data::Lent(_));
        self.do_and_wait(queue, op, data).map_err(|returned| returned.if_lent(is_lent))
    }

    #[inline]
    fn do_and_wait(&self, queue: QueueChoice, op: Op<'_>, mut data: Data<'_>) -> Result<Outcome, Returned> {
        if self.must_cut(&op, &data) {
            return self.retrieve_cut(queue, op, data);
        }
        let command = match self.command(queue, op, &mut data) {
            Ok(command) => command,
            Err(e) => return Err(Returned::new(e, data)),
        };
        if self.memory.caches() {
            return self.call_cached(queue, op, command, data);
        }
        succeeded(self.wait(queue, command, data)?)
    }

    /// Checks an operation. `queue` is where the device is asked which placement identifiers it has, the
    /// first time.
    #[inline]
    pub(super) fn command<'a>(
        &self,
        queue: QueueChoice,
        op: Op<'a>,
        data: &mut Data<'_>,
    ) -> Result<Command<'a>, OpError> {
        match (op, &self.medium) {
            (Op::Write(_, WriteOptions { placement: Some(placement), .. }), Medium::Blocks(_)) => {
                self.check_placements(queue, &[placement])?;
            }
            (Op::Deallocate(ranges), Medium::Blocks(_)) if data.is_empty() => {
                *data = Data::Given(self.memory.alloc(ranges.len().max(1) * size_of::<DsmRange>())?);
            }
            (Op::Retrieve { offset, .. }, Medium::Pairs(_))
                if !offset.is_multiple_of(samsung_kv::OFFSET_ALIGNMENT) =>
            {
                return Err(OpError::Status(samsung_kv::status::MISALIGNED_VALUE_OFFSET));
            }
            _ => {}
        }
        self.medium.command(op, data).map_err(|e| self.refused(&op, e))
    }

    /// Why no command could be made, as the status that the vendor's devices have for it where there is one.
    #[cold]
    fn refused(&self, op: &Op<'_>, error: DriverError) -> OpError {
        let (Medium::Pairs(pairs), Some((key, bytes))) = (&self.medium, pair_of(op)) else {
            return error.into();
        };
        let value_bytes_max = pairs.standard_value_bytes_max().max(pairs.vendor_value_bytes_max());
        if !(pairs.key_bytes_min()..=pairs.key_bytes_max()).contains(&key.bytes.len()) {
            OpError::Status(samsung_kv::status::INVALID_KEY_SIZE)
        } else if key.keyspace >= pairs.keyspaces() {
            OpError::Status(samsung_kv::status::INVALID_KEYSPACE)
        } else if bytes > value_bytes_max {
            OpError::Status(samsung_kv::status::INVALID_VALUE_SIZE)
        } else {
            error.into()
        }
    }

    /// Sends a command and waits for it; a status is no error.
    #[inline]
    pub(super) fn wait(
        &self,
        queue: QueueChoice,
        command: Command<'_>,
        data: Data<'_>,
    ) -> Result<Done, Returned> {
        let answer = match self.workers.route(queue, QueueKind::Sync) {
            Ok(route) => route.call_command(command, data, |bytes| Ok(self.memory.alloc(bytes)?)),
            Err(e) => Err(Returned::new(e, data)),
        };
        self.note(command, answer)
    }

    /// As [`Member::wait`] for an operation without data, on whichever kind of queue the CPU has that is
    /// asked for.
    pub(super) fn wait_either(&self, choice: QueueChoice, op: Op<'_>) -> Result<Done, OpError> {
        let kind = match choice {
            QueueChoice::Cpu(cpu) if !self.has_queue(cpu, QueueKind::Sync) => QueueKind::Async,
            _ => QueueKind::Sync,
        };
        let command = self.command(choice, op, &mut Data::None)?;
        let route = self.workers.route(choice, kind)?;
        let answer = route.call_command(command, Data::None, |bytes| Ok(self.memory.alloc(bytes)?));
        Ok(self.note(command, answer)?)
    }

    /// [`Member::call`] with the cache on, which is asked first and told after.
    fn call_cached(
        &self,
        queue: QueueChoice,
        op: Op<'_>,
        command: Command<'_>,
        data: Data<'_>,
    ) -> Result<Outcome, Returned> {
        match (op, data) {
            (Op::Retrieve { key, offset, bytes }, Data::In(out)) if out.len() >= bytes => {
                self.retrieve_cached(queue, command, key, offset, &mut out[..bytes])
            }
            (Op::Store { key, bytes, .. }, Data::Out(value)) if value.len() >= bytes => {
                self.store_cached(queue, command, key, &value[..bytes])
            }
            (Op::Append { key, .. } | Op::Delete { key, .. }, data) => {
                let claim = self.memory.claim_write(key);
                let answer = self.wait(queue, command, data);
                self.memory.end_without(claim);
                succeeded(answer?)
            }
            (op, data) => {
                let work = self.work(&op);
                match self.wait(queue, command, data) {
                    Ok(done) => ended(work.end(done, &self.memory)),
                    Err(returned) => {
                        work.abandon(&self.memory);
                        Err(returned)
                    }
                }
            }
        }
    }

    fn retrieve_cached(
        &self,
        queue: QueueChoice,
        command: Command<'_>,
        key: KvKey<'_>,
        offset: u32,
        out: &mut [u8],
    ) -> Result<Outcome, Returned> {
        if let Some(Hit { value_bytes, copied }) = self.memory.lookup(key, offset, out) {
            self.check_queue(queue, QueueKind::Sync)?;
            return Ok(Outcome::of_hit(value_bytes, offset, copied));
        }
        let buf = self.memory.alloc(out.len())?;
        let claim = self.memory.claim_fill(key);
        let mut outcome = succeeded(self.wait(queue, command, Data::Lent(buf))?)?;
        outcome.copy_data(out);
        self.memory.end_fill(claim, offset, outcome.result, outcome.data.take());
        Ok(outcome)
    }

    fn store_cached(
        &self,
        queue: QueueChoice,
        command: Command<'_>,
        key: KvKey<'_>,
        value: &[u8],
    ) -> Result<Outcome, Returned> {
        // Before the copy: what the cache does waits for memory, and would wait for the copy's writes as
        // well.
        let claim = self.memory.claim_write(key);
        let answer = self.memory.filled(value).map_err(Returned::from);
        match answer.and_then(|buf| succeeded(self.wait(queue, command, Data::Lent(buf))?)) {
            Ok(mut outcome) => {
                self.memory.end_store(claim, outcome.data.take(), value.len());
                Ok(outcome)
            }
            Err(returned) => {
                self.memory.end_without(claim);
                Err(returned)
            }
        }
    }

    /// What the cache has to be told when an operation is over, on buffers that are not the cache's.
    pub(super) fn work(&self, op: &Op<'_>) -> Work {
        match *op {
            Op::Store { key, bytes, .. } => {
                Work::Write { stored: Some(bytes), claim: self.memory.claim_write(key).hold() }
            }
            Op::Append { key, .. } | Op::Delete { key, .. } => {
                Work::Write { stored: None, claim: self.memory.claim_write(key).hold() }
            }
            Op::Retrieve { key, offset, .. } => {
                Work::Retrieve { offset, claim: self.memory.claim_fill(key).hold() }
            }
            _ => Work::Nothing,
        }
    }

    pub(super) fn pairs(&self) -> Result<&KvNamespace, OpError> {
        match &self.medium {
            Medium::Pairs(namespace) => Ok(namespace),
            Medium::Blocks(_) => Err(OpError::Unsupported("a block device has no pairs".into())),
        }
    }
}

/// The pair that an operation is about, and the bytes it moves.
fn pair_of<'a>(op: &Op<'a>) -> Option<(KvKey<'a>, usize)> {
    match *op {
        Op::Store { key, bytes, .. } | Op::Append { key, bytes } | Op::Retrieve { key, bytes, .. } => {
            Some((key, bytes))
        }
        Op::Delete { key, .. } | Op::Exist(key) => Some((key, 0)),
        _ => None,
    }
}

/// What a command that has to succeed has brought.
#[inline]
pub(super) fn succeeded(done: Done) -> Result<Outcome, Returned> {
    ended(Outcome::of(done))
}

#[inline]
pub(super) fn ended(outcome: Outcome) -> Result<Outcome, Returned> {
    if outcome.status.is_success() {
        return Ok(outcome);
    }
    Err(Returned { error: OpError::Status(outcome.status), buf: outcome.data })
}
