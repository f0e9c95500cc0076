//! Operations that are not waited for.

use std::time::Instant;

use unvme::Op;
use unvme::worker::{Command, Data, Done, Load, Reason, SharedQueue, Submitter};

use super::operation::Work;
use super::{Member, OpError, QueueChoice, QueueKind, Returned};
use crate::cache::Hit;

impl Member {
    /// Begins an operation and returns; the handler is given its outcome, with `token`. What is read comes in
    /// a buffer of the slab's ([`Data::None`]), or in the one that was lent; what is written is copied, or
    /// lent.
    ///
    /// A queue that is full is tried again as the configuration says.
    ///
    /// # Errors
    /// As [`Member::call`], of those that are known before the device answers; [`OpError::QueueFull`]. The
    /// handler is not called then.
    #[inline]
    pub fn submit(&self, queue: QueueChoice, op: Op<'_>, data: Data<'_>, token: u64) -> Result<(), Returned> {
        let is_lent = matches!(data, Data::Lent(_));
        self.begin(queue, op, data, token).map_err(|returned| returned.if_lent(is_lent))
    }

    #[inline]
    fn begin(&self, queue: QueueChoice, op: Op<'_>, mut data: Data<'_>, token: u64) -> Result<(), Returned> {
        if self.must_cut(&op, &data) {
            return self.submit_cut(queue, op, data, token);
        }
        let command = match self.command(QueueChoice::Auto, op, &mut data) {
            Ok(command) => command,
            Err(e) => return Err(Returned::new(e, data)),
        };
        if self.memory.caches()
            && let (Op::Retrieve { key, offset, bytes }, Data::None) = (op, &data)
        {
            let mut buf = self.memory.alloc(bytes)?;
            if let Some(Hit { value_bytes, .. }) = self.memory.lookup_into(key, offset, &mut buf) {
                self.check_queue(queue, QueueKind::Async)?;
                let value_bytes = value_bytes as u64;
                let left = value_bytes.saturating_sub(offset.into());
                let done = Done::answered(token, value_bytes, buf, bytes.min(left as usize), left);
                return Ok(self.finish_at_once(queue, done)?);
            }
            data = Data::Lent(buf);
        }
        let load = self.load(command, data)?;
        let work = if self.memory.caches() { self.work(&op) } else { Work::Nothing };
        self.send(queue, command, load, token, work)
    }

    /// What goes with a command.
    #[inline]
    pub(super) fn load(&self, command: Command<'_>, data: Data<'_>) -> Result<Load, Returned> {
        if let Data::In(_) = data {
            return Err(OpError::Argument("nobody is there to copy to when it completes".into()).into());
        }
        command.load(data, |bytes| Ok(self.memory.alloc(bytes)?))
    }

    /// Sends a command with a token.
    #[inline]
    pub(super) fn send(
        &self,
        choice: QueueChoice,
        command: Command<'_>,
        mut load: Load,
        token: u64,
        work: Work,
    ) -> Result<(), Returned> {
        let token = if self.remembers { self.pending.add(token, work) } else { token };
        let answer = match self.workers.route(choice, QueueKind::Async) {
            Ok(route) => {
                let queue = route.first();
                match queue.send(command, &mut load, token, Submitter::Program) {
                    Ok(()) => return Ok(()),
                    Err(Reason::Full) => self.send_later(queue, command, &mut load, token),
                    Err(reason) => Err(reason.into()),
                }
            }
            Err(e) => Err(e),
        };
        answer.map_err(|error| {
            if self.remembers {
                self.pending.take(token).1.abandon(&self.memory);
            }
            Returned { error, buf: load.lent() }
        })
    }

    /// Tries again for as long as the configuration says.
    #[cold]
    fn send_later(
        &self,
        queue: &SharedQueue,
        command: Command<'_>,
        load: &mut Load,
        token: u64,
    ) -> Result<(), OpError> {
        let Some(interval) = self.shared.submit_retry else { return Err(OpError::QueueFull) };
        let submitter = if self.is_in_handler() { Submitter::Handler } else { Submitter::Program };
        let started = Instant::now();
        let mut patience = queue.patience();
        while started.elapsed() < self.shared.command_timeout {
            let tried = Instant::now();
            self.free_places(queue);
            match queue.send(command, load, token, submitter) {
                Ok(()) => return Ok(()),
                Err(Reason::Full) if submitter == Submitter::Handler && queue.is_backed_up() => break,
                Err(Reason::Full) => {}
                Err(reason) => return Err(reason.into()),
            }
            patience.pause();
            while tried.elapsed() < interval {
                std::thread::yield_now();
            }
        }
        Err(OpError::QueueFull)
    }

    /// Does what the caller can do for a full queue to have room again.
    fn free_places(&self, queue: &SharedQueue) {
        if self.is_in_handler() {
            // Whoever called the handler may be the only one to serve the queue.
            queue.make_room();
        } else if !queue.is_served() {
            self.process(queue, &mut Vec::new());
        }
    }

    /// Calls the handler for an operation that needed no command; in a handler later, from whoever serves the
    /// queue: handlers that submit the next operation would otherwise call each other without end. Errors:
    /// [`OpError::QueueFull`] when too many operations have ended already, [`OpError::Closed`]. The handler
    /// is not called.
    pub(super) fn finish_at_once(&self, choice: QueueChoice, mut done: Done) -> Result<(), OpError> {
        if !self.is_in_handler() {
            self.finish(done.token, Work::Nothing.end(done, &self.memory));
            return Ok(());
        }
        let queue = self.workers.route(choice, QueueKind::Async)?.first();
        // What needs no command is of a device whose operations are remembered.
        let token = self.pending.add(done.token, Work::Nothing);
        done.token = token;
        queue.post(done).map_err(|reason| {
            self.pending.take(token);
            reason.into()
        })
    }
}
