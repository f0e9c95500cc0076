//! A queue beside the kernel's driver: an io_uring, and what its commands become.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use unvme_bus::{Clock, DmaBuf, EventFd};
use unvme_spec::{Nsid, Qid, Sqe, Status};

use super::nvme::NvmeNodes;
use super::overdue::{Limits, Overdue};
use super::steps::{FILE, Next, Work};
use super::uring::{Operation, Reaped, Uring, UringOptions};
use super::wire::CommandKind;
use super::{KernelDevice, Target, errno, is_foreign};
use crate::Error;
use crate::hybrid::Learnt;
use crate::kv::KvCommand;
use crate::pair::FOREIGN_BUFFER;
use crate::queue::{Completion, CompletionMode, DataPointers, Payload, QueueOptions, Rejected};

/// Between two looks at the clock: so many polls that found something, or a 1024th of it that found nothing.
const POLLS_TO_WATCH: i32 = 1 << 16;
const IDLE_POLL_COST: i32 = 1 << 10;
/// Longest sleep: the command time-outs are looked at in between.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// What commands become.
enum Way {
    /// NVMe commands.
    Passthrough {
        /// Namespaces whose node is registered, by their number there.
        routes: Vec<Nsid>,
    },
    /// Operations of the block layer.
    Block {
        /// How far the command in each slot has come.
        works: Box<[Option<Work>]>,
    },
}

/// A command that has ended, before its owner took it.
struct Ended {
    index: u32,
    status: Status,
    result: u64,
}

/// An io_uring on the nodes of the kernel's driver, or on a block device or file.
///
/// The methods are those of [`crate::Queue`]. Submitted commands may reach the kernel before they are rung.
pub struct KernelQueue {
    ring: Uring,
    way: Way,
    ended: VecDeque<Ended>,
    /// Counts down to the next look at the clock.
    countdown: i32,
    id: Qid,
    mode: CompletionMode,
    clock: Clock,
    device: Arc<KernelDevice>,
    command_timeout: Duration,
    abort_grace: Duration,
    limits: Limits,
    /// Why the device does not work any more.
    dead: Option<String>,
    /// What went wrong and nobody has been told yet.
    trouble: Option<Error>,
    event: Option<EventFd>,
    learnt: Learnt,
}

impl fmt::Debug for KernelQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelQueue")
            .field("id", &self.id)
            .field("capacity", &self.capacity())
            .field("outstanding", &self.outstanding())
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl KernelQueue {
    pub(crate) fn create(device: &Arc<KernelDevice>, options: &QueueOptions) -> Result<Self, Error> {
        let depth_max = device.depth_max();
        if options.depth == 0 || options.depth > depth_max {
            return Err(Error::InvalidArgument(format!(
                "a queue depth of {}: 1 to {depth_max} commands are possible",
                options.depth
            )));
        }
        if options.data_pointers == DataPointers::Sgl {
            return Err(Error::Unsupported(
                "SGLs through the kernel's driver, which chooses between PRPs and SGLs itself".to_owned(),
            ));
        }
        let id = device.take_queue()?;
        Self::make(device, options, id).inspect_err(|_| device.return_queue(id))
    }

    fn make(device: &Arc<KernelDevice>, options: &QueueOptions, id: Qid) -> Result<Self, Error> {
        let is_polling = options.mode == CompletionMode::Poll;
        let polls_device = match &device.target {
            Target::Nvme(nodes) => is_polling && nodes.has_poll_queues(),
            // The block layer polls for reads and writes alone, and a ring that does takes nothing else.
            Target::Block(_) => false,
        };
        let uring = UringOptions { depth: options.depth, polls_device, cooperative: is_polling };
        let ring = Uring::new(&device.memory, &uring)?;
        let (way, limits) = match &device.target {
            Target::Nvme(_) => (
                Way::Passthrough { routes: Vec::new() },
                Limits::passthrough(options.command_timeout, options.abort_grace),
            ),
            Target::Block(file) => {
                ring.register_file(FILE, file.as_fd())?;
                let works = (0..options.depth).map(|_| None).collect();
                (Way::Block { works }, Limits::block(options.command_timeout, options.abort_grace))
            }
        };
        let event = match is_polling {
            true => None,
            false => {
                let event = EventFd::new()?;
                ring.register_event(&event)?;
                Some(event)
            }
        };
        Ok(Self {
            ring,
            way,
            ended: VecDeque::with_capacity(options.depth.into()),
            countdown: POLLS_TO_WATCH,
            id,
            mode: options.mode,
            clock: device.clock().clone(),
            device: Arc::clone(device),
            command_timeout: options.command_timeout,
            abort_grace: options.abort_grace,
            limits,
            dead: None,
            trouble: None,
            event,
            learnt: Learnt::default(),
        })
    }

    /// As [`crate::Queue::id`].
    pub fn id(&self) -> Qid {
        self.id
    }

    /// As [`crate::Queue::mode`].
    pub fn mode(&self) -> CompletionMode {
        self.mode
    }

    /// As [`crate::Queue::capacity`].
    #[inline]
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// As [`crate::Queue::outstanding`].
    #[inline]
    pub fn outstanding(&self) -> usize {
        self.ring.taken()
    }

    /// As [`crate::Queue::interrupt`].
    pub fn interrupt(&self) -> Option<&EventFd> {
        self.event.as_ref()
    }

    /// As [`crate::Queue::submit`].
    #[inline]
    #[allow(clippy::missing_errors_doc)] // Stated there.
    pub fn submit(&mut self, sqe: Sqe, payload: Option<Payload>, token: u64) -> Result<(), Rejected> {
        let (buf, bytes) = match payload {
            Some(Payload { buf, bytes }) => {
                if let Some(error) = self.refuse(&buf, bytes) {
                    return Err(Rejected { error, buf: Some(buf) });
                }
                (Some(buf), bytes)
            }
            None => (None, 0),
        };
        if sqe.flags != 0 || sqe.mptr != 0 {
            let what = if sqe.flags != 0 { "a fused pair or an SGL" } else { "a pointer in dwords 4 and 5" };
            return Err(Rejected { error: unsupported(what), buf });
        }
        if let Some(reason) = &self.dead {
            return Err(Rejected { error: Error::Gone { reason: reason.clone() }, buf });
        }
        match self.way {
            Way::Passthrough { .. } => self.pass(&sqe, buf, bytes, token),
            Way::Block { .. } => self.begin(&sqe, buf, bytes, token),
        }
    }

    /// As [`crate::Queue::submit_kv`].
    #[allow(clippy::missing_errors_doc)] // Stated there.
    pub fn submit_kv(
        &mut self,
        command: KvCommand<'_>,
        buf: Option<DmaBuf>,
        token: u64,
    ) -> Result<(), Rejected> {
        let bytes = command.bytes;
        if command.long_key.is_some() {
            return Err(Rejected {
                error: unsupported("a key of more than 16 bytes, which travels in memory"),
                buf,
            });
        }
        if bytes > 0 && buf.is_none() {
            let reason = format!("the command moves {bytes} bytes and came without a buffer");
            return Err(Rejected { error: Error::InvalidArgument(reason), buf: None });
        }
        self.submit(command.sqe, buf.map(|buf| Payload { buf, bytes }), token)
    }

    /// Why a buffer cannot go along.
    #[inline]
    fn refuse(&self, buf: &DmaBuf, bytes: usize) -> Option<Error> {
        let most = self.device.transfer_bytes_max();
        if bytes > buf.len() || bytes > most {
            return Some(Error::InvalidArgument(format!(
                "the transfer is longer than its buffer ({} bytes) or than the limit of {most} bytes",
                buf.len()
            )));
        }
        is_foreign(buf, self.device.pool()).then(|| Error::InvalidArgument(FOREIGN_BUFFER.to_owned()))
    }

    #[inline]
    fn take_slot(&mut self, buf: Option<DmaBuf>, token: u64) -> Result<u32, Rejected> {
        let capacity = self.ring.capacity() as u32;
        self.ring.take(buf, token).map_err(|buf| Rejected { error: Error::Full { capacity }, buf })
    }

    /// Passes a command on as it is.
    #[inline]
    fn pass(&mut self, sqe: &Sqe, buf: Option<DmaBuf>, bytes: usize, token: u64) -> Result<(), Rejected> {
        let file = match self.route(Nsid(sqe.nsid)) {
            Ok(file) => file,
            Err(error) => return Err(Rejected { error, buf }),
        };
        let index = self.take_slot(buf, token)?;
        let Some(file) = file else {
            self.end(index, Status::INVALID_NAMESPACE_OR_FORMAT.with_do_not_retry(), 0);
            return Ok(());
        };
        let timeout = self.command_timeout;
        let command = Operation::Command { file, kind: CommandKind::Io, sqe, bytes: bytes as u32, timeout };
        self.ring.start(index, &command).map_err(|error| Rejected { error, buf: self.ring.finish(index).1 })
    }

    /// The registered node of a namespace; `None` when there is no such namespace.
    #[inline]
    fn route(&mut self, nsid: Nsid) -> Result<Option<u32>, Error> {
        match &self.way {
            Way::Passthrough { routes } => match routes.iter().position(|known| *known == nsid) {
                Some(place) => Ok(Some(place as u32)),
                None => self.find_route(nsid),
            },
            Way::Block { .. } => Ok(None),
        }
    }

    #[cold]
    fn find_route(&mut self, nsid: Nsid) -> Result<Option<u32>, Error> {
        let (Way::Passthrough { routes }, Target::Nvme(nodes)) = (&mut self.way, &self.device.target) else {
            return Ok(None);
        };
        let Some(file) = NvmeNodes::namespace(nodes, nsid)? else { return Ok(None) };
        let place = routes.len() as u32;
        self.ring.register_file(place, file.as_fd())?;
        routes.push(nsid);
        Ok(Some(place))
    }

    /// Begins a command of the block layer.
    fn begin(&mut self, sqe: &Sqe, buf: Option<DmaBuf>, bytes: usize, token: u64) -> Result<(), Rejected> {
        let Target::Block(file) = &self.device.target else {
            return Err(Rejected { error: unsupported("a block command"), buf });
        };
        let parsed = Work::parse(file, sqe, buf.as_ref().map(|buf| (buf, bytes)));
        let index = self.take_slot(buf, token)?;
        match parsed {
            Err(status) => {
                self.end(index, status, 0);
                Ok(())
            }
            Ok(work) => {
                if let Way::Block { works } = &mut self.way {
                    works[index as usize] = Some(work);
                }
                self.go_on(index).map_err(|error| Rejected { error, buf: self.ring.finish(index).1 })
            }
        }
    }

    /// Starts the next operation of a command, or ends it.
    fn go_on(&mut self, index: u32) -> Result<(), Error> {
        let Way::Block { works } = &mut self.way else { return Ok(()) };
        let Some(work) = works[index as usize].as_mut() else { return Ok(()) };
        match work.next(self.device.scratch_pool()) {
            Next::Start(operation) => self.ring.start(index, &operation),
            Next::Lend(scratch, operation) => {
                self.ring.lend(index, scratch);
                self.ring.start(index, &operation)
            }
            Next::Done(status) => {
                self.end(index, status, 0);
                Ok(())
            }
        }
    }

    /// Remembers the end of a command that no completion of the kernel's tells of.
    fn end(&mut self, index: u32, status: Status, result: u64) {
        self.ended.push_back(Ended { index, status, result });
        if let Some(event) = &self.event {
            event.signal();
        }
    }

    /// As [`crate::Queue::ring`].
    #[inline]
    #[allow(clippy::missing_errors_doc)] // Stated there.
    pub fn ring(&mut self) -> Result<(), Error> {
        self.ring.send()
    }

    /// As [`crate::Queue::poll`], and as [`crate::Queue::take`]: the kernel's devices work by themselves.
    #[inline]
    pub fn poll(&mut self, max: usize) -> KernelCompletions<'_> {
        if self.countdown < 0 {
            self.attend();
        }
        if let Err(e) = self.ring.look() {
            self.trouble.get_or_insert(e);
        }
        KernelCompletions { queue: self, left: max, found: false }
    }

    /// Takes what the kernel has completed until a command has ended: true when one has.
    fn gather(&mut self) -> bool {
        while self.ended.is_empty() {
            let Some(reaped) = self.ring.reap() else { return false };
            if let Some((status, result)) = self.settle(reaped) {
                self.ended.push_back(Ended { index: reaped.index, status, result });
            }
        }
        true
    }

    /// What an operation's end means for its command: its status and result, or that it goes on.
    #[inline]
    fn settle(&mut self, reaped: Reaped) -> Option<(Status, u64)> {
        match &self.way {
            Way::Passthrough { .. } if reaped.res >= 0 => {
                Some((Status::from_raw(reaped.res as u16), reaped.result))
            }
            Way::Passthrough { .. } => Some((self.failed(-reaped.res), 0)),
            Way::Block { .. } => self.step(reaped).map(|status| (status, 0)),
        }
    }

    /// A command that the kernel did not pass on, or whose device is gone.
    #[cold]
    fn failed(&mut self, code: i32) -> Status {
        let Target::Nvme(nodes) = &self.device.target else { return errno::passthrough_status(code) };
        let error = errno::explain("a command through", &nodes.shown, code);
        if errno::is_gone(code) {
            self.dead = Some(error.reason());
        } else if matches!(code, libc::EPERM | libc::EACCES) {
            self.trouble.get_or_insert(error);
        } else {
            tracing::debug!(error = %error, "refused");
        }
        errno::passthrough_status(code)
    }

    fn step(&mut self, reaped: Reaped) -> Option<Status> {
        let Way::Block { works } = &mut self.way else { return None };
        if errno::is_gone(-reaped.res) {
            self.dead = Some(std::io::Error::from_raw_os_error(-reaped.res).to_string());
        }
        let work = works[reaped.index as usize].as_mut()?;
        if let Some(status) = work.note(reaped.res, self.ring.buffers(reaped.index)) {
            works[reaped.index as usize] = None;
            return Some(status);
        }
        if let Err(e) = self.go_on(reaped.index) {
            self.trouble.get_or_insert(e);
            return Some(Status::INTERNAL_ERROR);
        }
        if let Err(e) = self.ring.send() {
            self.trouble.get_or_insert(e);
        }
        None
    }

    /// As [`crate::Queue::wait`].
    #[allow(clippy::missing_errors_doc)] // Stated there.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, Error> {
        if self.countdown < 0 {
            self.attend();
        }
        self.ring.send()?;
        if let Some(e) = self.trouble.take() {
            return Err(e);
        }
        if self.is_ready()? {
            return self.told();
        }
        if self.outstanding() == 0 {
            return match &self.dead {
                Some(reason) => Err(Error::Gone { reason: reason.clone() }),
                None => Ok(false),
            };
        }
        match self.mode {
            CompletionMode::Poll => self.spin(timeout),
            CompletionMode::Interrupt => self.sleep(timeout),
            CompletionMode::Hybrid => self.spin_or_sleep(timeout),
        }
    }

    fn is_ready(&mut self) -> Result<bool, Error> {
        if self.gather() {
            return Ok(true);
        }
        self.ring.look()?;
        Ok(self.gather())
    }

    fn spin(&mut self, limit: Duration) -> Result<bool, Error> {
        let started = self.clock.now();
        let mut rounds = 0u32;
        loop {
            if self.is_ready()? {
                return self.told();
            }
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(64) {
                // A virtual clock moves, as time does for whoever waits.
                self.clock.advance(Duration::from_micros(64));
                self.attend();
                if self.trouble.is_some() {
                    return self.told();
                }
                if self.elapsed(started) >= limit {
                    return Ok(false);
                }
            }
            if rounds.is_multiple_of(256) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    fn sleep(&mut self, limit: Duration) -> Result<bool, Error> {
        let started = self.clock.now();
        loop {
            if let Some(event) = &self.event {
                // Somebody else may sleep on it later, for what completes from now on.
                event.drain();
            }
            if self.is_ready()? {
                return self.told();
            }
            self.attend();
            if self.trouble.is_some() || !self.ended.is_empty() {
                return self.told();
            }
            let left = limit.saturating_sub(self.elapsed(started));
            if left.is_zero() {
                return Ok(false);
            }
            let nap = left.min(SLEEP_MAX).min(self.limits.interval());
            self.ring.sleep(nap)?;
            self.clock.advance(nap);
        }
    }

    fn spin_or_sleep(&mut self, limit: Duration) -> Result<bool, Error> {
        let started = self.clock.now();
        let spun = match self.learnt.budget() {
            Some(budget) => self.spin(budget.min(limit))?,
            None => false,
        };
        let ready = spun || self.sleep(limit)?;
        self.learnt.note(self.clock.now().saturating_sub(started));
        Ok(ready)
    }

    fn elapsed(&self, started: u64) -> Duration {
        Duration::from_nanos(self.clock.now().saturating_sub(started))
    }

    /// The end of a wait: trouble comes first, and what has ended stays for the next poll.
    fn told(&mut self) -> Result<bool, Error> {
        match self.trouble.take() {
            Some(e) => Err(e),
            None => Ok(!self.ended.is_empty()),
        }
    }

    /// Acts upon commands that take too long.
    #[cold]
    #[inline(never)]
    fn attend(&mut self) {
        self.countdown = POLLS_TO_WATCH;
        self.take_all();
        let now = self.clock.now();
        while let Some(overdue) = self.limits.next(now, &mut self.ring) {
            match overdue {
                Overdue::Cancel(index) => {
                    tracing::warn!(queue = %self.id, index, "no answer: cancelled");
                    if let Err(e) = self.ring.cancel(index) {
                        tracing::warn!(error = %e, "cancel");
                    }
                }
                Overdue::GiveUp(index) => {
                    self.ring.give_up(index);
                    if let Way::Block { works } = &mut self.way {
                        works[index as usize] = None;
                    }
                    self.trouble = Some(self.limits.timeout(format!("command {index} on queue {}", self.id)));
                    self.end(index, Status::ABORTED_BY_HOST, 0);
                }
            }
        }
    }

    /// Takes all that the kernel has completed: what only its owner forgot to poll is not late.
    fn take_all(&mut self) {
        while let Some(reaped) = self.ring.reap() {
            if let Some((status, result)) = self.settle(reaped) {
                self.ended.push_back(Ended { index: reaped.index, status, result });
            }
        }
    }

    #[inline]
    fn pop(&mut self) -> Option<Completion> {
        let ended = loop {
            if let Some(ended) = self.ended.pop_front() {
                break ended;
            }
            let reaped = self.ring.reap()?;
            if let Some((status, result)) = self.settle(reaped) {
                break Ended { index: reaped.index, status, result };
            }
        };
        let (token, buf) = self.ring.finish(ended.index);
        Some(Completion { token, status: ended.status, result: ended.result, buf })
    }
}

impl Drop for KernelQueue {
    fn drop(&mut self) {
        // What the kernel still has, it may still write: the buffers go back when it is done, and are leaked otherwise.
        let started = self.clock.now();
        let mut sent = self.ring.send();
        while self.ring.in_flight() > 0 && sent.is_ok() && self.elapsed(started) < self.abort_grace {
            while self.ring.reap().is_some() {}
            if self.ring.in_flight() > 0 {
                sent = self.ring.sleep(SLEEP_MAX);
                self.clock.advance(SLEEP_MAX);
            }
        }
        if self.ring.in_flight() > 0 {
            let commands = self.ring.in_flight();
            tracing::warn!(queue = %self.id, commands, "commands did not end: their memory stays allocated");
        }
        self.device.return_queue(self.id);
    }
}

#[cold]
fn unsupported(what: &str) -> Error {
    Error::Unsupported(format!(
        "{what} cannot be passed through the kernel's driver; a drive taken over with `unvme setup config` can do it"
    ))
}

/// Completions of a [`KernelQueue`]; see [`crate::Completions`].
#[derive(Debug)]
pub struct KernelCompletions<'a> {
    queue: &'a mut KernelQueue,
    left: usize,
    found: bool,
}

impl Iterator for KernelCompletions<'_> {
    type Item = Completion;

    #[inline]
    fn next(&mut self) -> Option<Completion> {
        if self.left == 0 {
            return None;
        }
        let completion = self.queue.pop()?;
        self.left -= 1;
        self.found = true;
        Some(completion)
    }
}

impl Drop for KernelCompletions<'_> {
    #[inline]
    fn drop(&mut self) {
        self.queue.countdown -= if self.found { 1 } else { IDLE_POLL_COST };
    }
}
