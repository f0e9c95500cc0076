//! The queues that a command may take.

use std::sync::Arc;
use std::time::Instant;

use unvme_driver::{Completion, DmaBuf};
use unvme_spec::nvm::DsmRange;

use super::command::{Command, Data, Done, Reason, Refused};
use super::future::Run;
use super::manner::Manner;
use super::queue::{SPARE_BYTES, SharedQueue, Submitter};
use crate::Op;

/// The queues that a command may take, the best one first: of [`super::Worker::nearest`] or
/// [`SharedQueue::route`]. Those who wait take another queue when the best one is busy; what is submitted
/// with a token stays with the best one.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    pub(super) first: &'a SharedQueue,
    pub(super) others: &'a [Arc<SharedQueue>],
    /// Which of the others comes after the first one.
    pub(super) start: usize,
    /// How calls wait.
    pub(super) manner: Manner<'a>,
}

impl<'a> Route<'a> {
    /// The best queue.
    #[inline]
    pub fn first(&self) -> &'a SharedQueue {
        self.first
    }

    /// The same, with calls that wait in such a manner.
    #[inline]
    pub fn waiting(self, manner: Manner<'a>) -> Self {
        Self { manner, ..self }
    }

    /// All of them; the best one may occur again.
    pub fn all(&self) -> impl Iterator<Item = &'a SharedQueue> + use<'a> {
        let (others, start) = (self.others, self.start);
        let rotated = (0..others.len()).map(move |index| &*others[(start + index) % others.len()]);
        std::iter::once(self.first).chain(rotated)
    }

    /// Checks `op`; a list of ranges gets its buffer.
    #[inline(always)]
    fn command<'o>(&self, op: Op<'o>, data: &mut Data<'_>) -> Result<Command<'o>, Refused> {
        if let (Op::Deallocate(ranges), Data::None) = (op, &*data) {
            *data = Data::Given(self.first.alloc(ranges.len().max(1) * size_of::<DsmRange>())?);
        }
        match self.first.medium.command(op, data) {
            Ok(command) => Ok(command),
            Err(e) => Err(Refused::new(e, std::mem::take(data))),
        }
    }

    /// As [`super::Worker::call`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn call(&self, op: Op<'_>, mut data: Data<'_>) -> Result<Done, Refused> {
        let command = self.command(op, &mut data)?;
        self.call_command(command, data, |bytes| Ok(self.first.alloc(bytes)?))
    }

    /// As [`Route::call`], with a command that has been checked. Buffers for what is copied come from
    /// `alloc`.
    ///
    /// # Errors
    /// As [`super::Worker::call`], and what `alloc` says.
    #[inline]
    pub fn call_command<E: From<Refused>>(
        &self,
        command: Command<'_>,
        data: Data<'_>,
        alloc: impl FnOnce(usize) -> Result<DmaBuf, E>,
    ) -> Result<Done, E> {
        if let Data::Out(_) | Data::In(_) = data {
            return self.exchange(command, data, alloc);
        }
        let mut load = command.load(data, alloc)?;
        let answer = match self.first.try_call(command, &mut load.buf, self.manner) {
            Some(Err(Reason::Full)) | None => self.call_elsewhere(command, &mut load.buf),
            Some(answer) => answer,
        };
        match answer {
            Ok(completion) => {
                let mut done = Done::of(completion, command.reading, 0);
                done.buf = done.buf.filter(|_| !load.is_copy);
                Ok(done)
            }
            Err(reason) => Err(Refused { reason, buf: load.lent() }.into()),
        }
    }

    /// A call that copies: with a spare buffer of the best queue where that is free.
    #[inline]
    fn exchange<E: From<Refused>>(
        &self,
        command: Command<'_>,
        mut data: Data<'_>,
        alloc: impl FnOnce(usize) -> Result<DmaBuf, E>,
    ) -> Result<Done, E> {
        if let Err(e) = command.check(&data) {
            return Err(Refused::new(e, data).into());
        }
        match self.first.try_exchange(command, &mut data, self.manner) {
            Some(Err(Reason::Full)) | None => {}
            Some(answer) => return answer.map_err(|reason| Refused::from(reason).into()),
        }
        let bytes = command.bytes();
        let mut buf = match self.first.spare(bytes) {
            Some(spare) => spare,
            None => alloc(bytes.max(SPARE_BYTES))?,
        };
        data.fill(&mut buf, bytes);
        let completion = self.call_elsewhere(command, &mut Some(buf)).map_err(Refused::from)?;
        let mut done = Done::of(completion, command.reading, 0);
        data.take(&done);
        self.first.keep(done.buf.take());
        Ok(done)
    }

    /// The first choice is taken: any other, or else the first one that gets free.
    #[cold]
    fn call_elsewhere(&self, command: Command<'_>, buf: &mut Option<DmaBuf>) -> Result<Completion, Reason> {
        for queue in self.all() {
            match queue.try_call(command, buf, self.manner) {
                Some(Err(Reason::Full)) | None => {}
                Some(answer) => return answer,
            }
        }
        let mut patience = self.first.patience();
        let started = Instant::now();
        loop {
            match self.first.call_now(command, buf, self.manner) {
                Err(Reason::Full) if started.elapsed() < self.first.timeout => {
                    // What others submitted takes the places: it is taken off the queue for them.
                    self.first.make_room();
                    patience.pause();
                }
                answer => return answer,
            }
        }
    }

    /// As [`super::Worker::submit`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn submit(&self, op: Op<'_>, mut data: Data<'_>, token: u64) -> Result<(), Refused> {
        let command = self.command(op, &mut data)?;
        if let Data::In(_) = data {
            return Err(Refused::from(nobody_to_copy()));
        }
        let mut load = command.load(data, |bytes| Ok::<_, Refused>(self.first.alloc(bytes)?))?;
        match self.first.send(command, &mut load, token, Submitter::Program) {
            Ok(()) => Ok(()),
            Err(reason) => Err(Refused { reason, buf: load.lent() }),
        }
    }

    /// As [`super::Worker::run`].
    pub fn run(self, op: Op<'a>, mut data: Data<'a>) -> Run<'a> {
        let command = match self.command(op, &mut data) {
            Ok(command) => command,
            Err(refused) => return Run::refused(self, refused),
        };
        let out = match data {
            Data::In(out) => {
                if let Err(e) = command.check(&Data::In(&mut *out)) {
                    return Run::refused(self, Refused::new(e, Data::None));
                }
                data = Data::None;
                Some(out)
            }
            other => {
                data = other;
                None
            }
        };
        match command.load(data, |bytes| Ok::<_, Refused>(self.first.alloc(bytes)?)) {
            Ok(load) => Run::new(self, command, load, out),
            Err(refused) => Run::refused(self, refused),
        }
    }
}

#[cold]
fn nobody_to_copy() -> Reason {
    let reason = "what is submitted with a token has nobody to copy for: lend a buffer, or pass none";
    Reason::Driver(unvme_driver::Error::InvalidArgument(reason.into()))
}
