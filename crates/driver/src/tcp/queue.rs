//! A queue over the network: a connection, and what is done when it breaks.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unvme_bus::{Clock, DmaBuf, EventFd};
use unvme_spec::{Qid, Sqe};

use super::connect::{Connection, Role};
use super::device::{Life, TcpDevice};
use super::link::{Broken, Link, LinkConfig, Manner};
use super::sleeper::Sleeper;
use crate::Error;
use crate::hybrid::Learnt;
use crate::kv::KvCommand;
use crate::queue::{Completion, CompletionMode, DataPointers, Payload, QueueOptions, Rejected};
use crate::watch::Watch;

/// In place of an epoch: matches none, so every call takes the slow way.
const NEVER: u64 = u64::MAX;
/// Between two looks at the clock: so many polls that found something, or a 64th of it that found nothing. Each is a system
/// call, which takes longer than a look at a ring.
const POLLS_TO_WATCH: i32 = 1 << 12;
const IDLE_POLL_COST: i32 = 1 << 6;
/// Longest sleep: time-outs are looked at in between.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// Sleep between two looks while there is no connection.
const DOWN_SLEEP: Duration = Duration::from_millis(1);
/// Time for a target to notice that the connection is closed that had the identifier before.
const QUEUE_ID_LIMIT: Duration = Duration::from_secs(2);
const QUEUE_ID_INTERVAL: Duration = Duration::from_millis(5);

/// A connection to a controller of a TCP target, with the slots of its commands.
///
/// The methods are those of [`crate::Queue`]. While the connection is lost, commands are taken until all slots are: those
/// that the target has never seen, and those that only read, are sent when it is back; the others end with
/// [`unvme_spec::Status::ABORTED_BY_HOST`], as they may have been executed. After a time without a connection
/// ([`crate::Reconnect::give_up_after`]) everything ends that way, and nothing is taken any more.
pub struct TcpQueue {
    link: Link,
    /// The epoch the connection is of, or [`NEVER`] while there is none.
    gate: u64,
    /// Counts down to the next look at the clock.
    countdown: i32,
    id: Qid,
    mode: CompletionMode,
    depth: u16,
    clock: Clock,
    device: Arc<TcpDevice>,
    /// The last epoch this queue has taken notice of.
    joined: u64,
    /// The epoch in which the queue could not be connected.
    failed: u64,
    /// What is wrong with the connection, before the device has been told.
    broken: Option<Broken>,
    /// Why the queue does not work any more.
    dead: Option<String>,
    /// What went wrong and nobody has been told yet.
    trouble: Option<Error>,
    sleeper: Option<Sleeper>,
    /// The sleeper waits for room to send, too.
    watches_room: bool,
    /// The sleeper has been waked, and not been settled.
    is_waked: bool,
    learnt: Learnt,
    watch: Watch,
}

impl fmt::Debug for TcpQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpQueue")
            .field("id", &self.id)
            .field("capacity", &self.capacity())
            .field("outstanding", &self.outstanding())
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl TcpQueue {
    pub(crate) fn create(device: &Arc<TcpDevice>, options: &QueueOptions) -> Result<Self, Error> {
        let depth_max = device.depth_max();
        if options.depth == 0 || options.depth > depth_max {
            return Err(Error::InvalidArgument(format!(
                "a queue depth of {}: 1 to {depth_max} commands are possible",
                options.depth
            )));
        }
        if options.data_pointers == DataPointers::Prp {
            return Err(Error::Unsupported("PRPs over the network, where data has no addresses".to_owned()));
        }
        let id = device.take_queue()?;
        let mut queue = Self::make(device, options, id).inspect_err(|_| device.return_queue(id))?;
        // From here on the identifier goes back when the queue is dropped.
        queue.join(true)?;
        Ok(queue)
    }

    fn make(device: &Arc<TcpDevice>, options: &QueueOptions, id: Qid) -> Result<Self, Error> {
        let link = Link::new(&LinkConfig {
            depth: options.depth,
            is_admin: false,
            long_keys: options.long_keys,
            pool: device.pool().id(),
            transfer_bytes_max: device.transfer_bytes_max(),
        });
        let sleeper = match options.mode {
            CompletionMode::Poll => None,
            CompletionMode::Interrupt | CompletionMode::Hybrid => Some(Sleeper::new()?),
        };
        Ok(Self {
            link,
            gate: NEVER,
            countdown: POLLS_TO_WATCH,
            id,
            mode: options.mode,
            depth: options.depth,
            clock: device.clock().clone(),
            device: Arc::clone(device),
            joined: NEVER,
            failed: NEVER,
            broken: None,
            dead: None,
            trouble: None,
            sleeper,
            watches_room: false,
            is_waked: false,
            learnt: Learnt::default(),
            watch: Watch::new(options.command_timeout, options.abort_grace),
        })
    }

    /// Connects the queue to the controller of the association there is; a new one tries to get a lost one back.
    fn join(&mut self, is_new: bool) -> Result<(), Error> {
        let device = Arc::clone(&self.device);
        // No association ends or begins meanwhile.
        let mut life = device.life();
        match &*life {
            Life::Down { why, .. } if !is_new => return Err(Error::Unreachable(why.clone())),
            _ => device.reconnect(&mut life)?,
        }
        let epoch = device.epoch();
        let facts = device.facts();
        if self.id.0 > facts.queues {
            return Err(Error::Exhausted(format!(
                "the target grants {} I/O queues now, and this is number {}",
                facts.queues, self.id
            )));
        }
        if self.depth > facts.depth_max {
            return Err(Error::Exhausted(format!(
                "the controller takes {} commands now, and this queue is for {}",
                facts.depth_max, self.depth
            )));
        }
        let role = Role { qid: self.id, sqsize_z: self.depth, cntlid: facts.cntlid };
        let (stream, agreed) = open(&device, role)?;
        if let Some(sleeper) = &self.sleeper {
            sleeper.watch(&stream)?;
            self.watches_room = false;
        }
        self.link.transfer_bytes_max = facts.transfer_bytes_max;
        self.link.attach(stream, agreed, facts.in_capsule_bytes);
        (self.gate, self.joined) = (epoch, epoch);
        self.dead = None;
        drop(life);
        self.mind_sleeper();
        Ok(())
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
        self.link.capacity()
    }

    /// As [`crate::Queue::outstanding`].
    #[inline]
    pub fn outstanding(&self) -> usize {
        self.link.outstanding()
    }

    /// As [`crate::Queue::interrupt`].
    pub fn interrupt(&self) -> Option<&EventFd> {
        self.sleeper.as_ref().map(Sleeper::event)
    }

    /// As [`crate::Queue::submit`].
    #[inline]
    #[allow(clippy::missing_errors_doc)] // Stated there.
    pub fn submit(&mut self, sqe: Sqe, payload: Option<Payload>, token: u64) -> Result<(), Rejected> {
        self.submit_as(sqe, payload, Manner { token, ..Manner::default() })
    }

    /// As [`crate::Queue::submit_kv`].
    #[inline]
    #[allow(clippy::missing_errors_doc)] // Stated there.
    pub fn submit_kv(
        &mut self,
        command: KvCommand<'_>,
        buf: Option<DmaBuf>,
        token: u64,
    ) -> Result<(), Rejected> {
        let bytes = command.bytes;
        if bytes > 0 && buf.is_none() {
            let reason = format!("the command moves {bytes} bytes and came without a buffer");
            return Err(Rejected { error: Error::InvalidArgument(reason), buf: None });
        }
        let payload = buf.map(|buf| Payload { buf, bytes });
        // Samsung's commands, which know no SGLs, move whole dwords.
        let (whole_dwords, long_key) = (command.is_prp_only, command.long_key);
        let manner = Manner { token, long_key, is_kv: true, whole_dwords };
        self.submit_as(command.sqe, payload, manner)
    }

    #[inline]
    fn submit_as(&mut self, sqe: Sqe, payload: Option<Payload>, manner: Manner<'_>) -> Result<(), Rejected> {
        if self.is_outdated() {
            self.attend();
            if let Some(reason) = &self.dead {
                let error = Error::Gone { reason: reason.clone() };
                return Err(Rejected { error, buf: payload.map(|payload| payload.buf) });
            }
        }
        self.link.submit(sqe, payload, manner).map_err(|(error, buf)| Rejected { error, buf })
    }

    /// As [`crate::Queue::ring`].
    #[inline]
    #[allow(clippy::missing_errors_doc)] // Stated there.
    pub fn ring(&mut self) -> Result<(), Error> {
        if self.is_outdated() {
            self.attend();
        }
        if self.gate != NEVER
            && let Err(broken) = self.link.flush()
        {
            self.note(broken);
        }
        self.mind_sleeper();
        Ok(())
    }

    /// As [`crate::Queue::poll`], and as [`crate::Queue::take`]: targets work by themselves.
    #[inline]
    pub fn poll(&mut self, max: usize) -> TcpCompletions<'_> {
        if self.is_outdated() || self.countdown < 0 {
            self.attend();
        }
        self.link.begin();
        TcpCompletions { queue: self, left: max, found: false }
    }

    /// True when the association has changed since, or there is no connection.
    #[inline]
    fn is_outdated(&self) -> bool {
        self.device.epoch() != self.gate
    }

    /// As [`crate::Queue::wait`].
    #[allow(clippy::missing_errors_doc)] // Stated there.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, Error> {
        if self.countdown < 0 {
            self.attend();
        }
        self.ring()?;
        if let Some(e) = self.trouble.take() {
            return Err(e);
        }
        if self.look() {
            return Ok(true);
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

    /// Whether a completion can be taken.
    #[inline]
    fn look(&mut self) -> bool {
        self.link.begin();
        match self.link.look() {
            Ok(ready) => ready,
            Err(broken) => {
                self.note(broken);
                self.link.is_ready()
            }
        }
    }

    #[cold]
    fn note(&mut self, broken: Broken) {
        self.broken.get_or_insert(broken);
        self.countdown = -1;
    }

    fn spin(&mut self, limit: Duration) -> Result<bool, Error> {
        let started = self.clock.now();
        let mut rounds = 0u32;
        loop {
            if self.look() {
                return Ok(true);
            }
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(16) || self.countdown < 0 || self.gate == NEVER {
                // A virtual clock moves, as time does for whoever waits.
                self.clock.advance(Duration::from_micros(64));
                if self.look_after() {
                    return self.troubled();
                }
                if self.elapsed(started) >= limit {
                    return Ok(false);
                }
                if self.gate == NEVER {
                    self.nap(limit.saturating_sub(self.elapsed(started)).min(DOWN_SLEEP));
                }
            }
            if rounds.is_multiple_of(16) {
                std::thread::yield_now();
            }
        }
    }

    fn sleep(&mut self, limit: Duration) -> Result<bool, Error> {
        let started = self.clock.now();
        loop {
            if self.look() {
                return Ok(true);
            }
            if self.look_after() {
                return self.troubled();
            }
            let left = limit.saturating_sub(self.elapsed(started));
            if left.is_zero() {
                return Ok(false);
            }
            self.nap(left.min(SLEEP_MAX).min(self.watch.interval()));
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

    /// Sleeps until something arrives, at most for `limit`.
    fn nap(&self, limit: Duration) {
        if self.link.stream().is_some() {
            self.link.rest(limit);
        } else {
            std::thread::sleep(limit.min(DOWN_SLEEP));
        }
        self.clock.advance(limit);
    }

    fn elapsed(&self, started: u64) -> Duration {
        Duration::from_nanos(self.clock.now().saturating_sub(started))
    }

    /// Looks at time-outs and at the association while nothing completes; true when the caller must stop waiting.
    fn look_after(&mut self) -> bool {
        self.countdown = -1;
        self.attend();
        self.trouble.is_some() || self.link.is_ready() || self.dead.is_some()
    }

    /// The end of a wait that [`TcpQueue::look_after`] ended.
    fn troubled(&mut self) -> Result<bool, Error> {
        match self.trouble.take() {
            Some(e) => Err(e),
            None => Ok(self.link.is_ready()),
        }
    }

    /// Everything that is not the everyday: broken connections, reconnecting, time-outs, keeping alive.
    #[cold]
    #[inline(never)]
    fn attend(&mut self) {
        self.mind_sleeper();
        if let Some(broken) = self.broken.take()
            && self.gate != NEVER
        {
            self.device.lose(self.gate, &broken);
            if let Broken::Protocol(what) = broken {
                self.trouble = Some(Error::Protocol(format!("queue {}: {what}", self.id)));
            }
        }
        if self.countdown < 0 {
            self.countdown = POLLS_TO_WATCH;
            self.device.pulse();
            if !self.is_outdated() {
                self.check_time();
            }
        }
        self.device.attend();
        let epoch = self.device.epoch();
        if epoch != self.gate {
            self.leave(epoch);
            if epoch.is_multiple_of(2) {
                self.rejoin(epoch);
            }
        }
        self.mind_sleeper();
    }

    /// Keeps the event that others sleep on to what is so: it is waked while the connection has room for what waits to be
    /// sent, and rests once what they were waked for has been taken.
    #[inline]
    fn mind_sleeper(&mut self) {
        if self.sleeper.is_some() {
            self.mind(self.link.is_blocked());
        }
    }

    fn mind(&mut self, is_blocked: bool) {
        let Some(sleeper) = &self.sleeper else { return };
        if self.is_waked && !self.link.is_ready() {
            self.is_waked = false;
            sleeper.settle();
        }
        if let Some(stream) = self.link.stream()
            && self.watches_room != is_blocked
        {
            self.watches_room = is_blocked;
            sleeper.watch_room(stream, is_blocked);
        }
    }

    /// Takes notice of the end of an association.
    fn leave(&mut self, epoch: u64) {
        if epoch == self.joined {
            return;
        }
        self.gate = NEVER;
        self.link.close();
        if self.device.resends_since(self.joined) {
            self.link.requeue(true);
        } else {
            self.link.abort_all();
        }
        self.joined = epoch;
        if let Some(sleeper) = &self.sleeper {
            self.is_waked = true;
            sleeper.wake();
        }
    }

    /// Connects to the controller of a new association, unless that has failed for good.
    fn rejoin(&mut self, epoch: u64) {
        if self.failed == epoch {
            return;
        }
        match self.join(false) {
            Ok(()) => {
                if let Err(broken) = self.link.flush() {
                    self.note(broken);
                }
            }
            // The target is on its way out again: the association is tried anew.
            Err(e @ (Error::Unreachable(_) | Error::Timeout { .. })) => {
                self.device.lose(epoch, &Broken::Lost(e.to_string()));
            }
            // The key was good for the admin queue: a handshake that breaks off looks like a key that is not.
            Err(e @ Error::Denied(_)) if self.device.target.tls.is_some() => {
                self.device.lose(epoch, &Broken::Lost(e.to_string()));
            }
            Err(e) => {
                tracing::warn!(queue = %self.id, error = %e, "the queue is not there after a reconnection");
                self.link.abort_all();
                self.dead = Some(e.reason());
                self.failed = epoch;
            }
        }
    }

    /// Aborts commands that take too long, and resets a controller that does not even abort them.
    fn check_time(&mut self) {
        let now = self.clock.now();
        let Some(overdue) = self.watch.next(now, self.link.deadlines()) else { return };
        let what = format!("command {:#06x} on queue {}", overdue.cid.0, self.id);
        if overdue.was_aborted {
            let why = self.watch.timeout(what);
            if let Err(e) = self.device.reset_since(self.gate, &why.to_string()) {
                tracing::warn!(error = %e, "controller reset");
            }
            self.trouble = Some(why);
            return;
        }
        tracing::warn!(what, "no answer: Abort");
        if let Err(e) = self.device.abort(self.id, overdue.cid, self.watch.grace()) {
            // A status leaves the grace period to run; a dead admin queue has led to a reset already.
            tracing::warn!(what, error = %e, "Abort");
        }
    }

    #[inline]
    fn pop(&mut self) -> Option<Completion> {
        if let Some(completion) = self.link.pop() {
            return Some(completion);
        }
        if self.look_on() { self.link.pop() } else { None }
    }

    /// As [`TcpQueue::look`], in the same round.
    #[inline]
    fn look_on(&mut self) -> bool {
        match self.link.look() {
            Ok(ready) => ready,
            Err(broken) => {
                self.note(broken);
                self.link.is_ready()
            }
        }
    }
}

/// Opens the connection of a queue. The target may not have noticed yet that the one before it is closed.
fn open(device: &TcpDevice, role: Role) -> Result<(unvme_fabric::Stream, super::pdu::Agreement), Error> {
    let deadline = Instant::now() + QUEUE_ID_LIMIT;
    loop {
        match Connection::open(&device.target, device.pool(), role) {
            Ok(connection) => {
                let lost =
                    || Error::Unreachable(format!("{}: the connection was lost", device.target.shown()));
                return connection.into_parts().ok_or_else(lost);
            }
            Err(refusal) if refusal.is_queue_taken() && Instant::now() < deadline => {
                std::thread::sleep(QUEUE_ID_INTERVAL);
            }
            Err(refusal) if refusal.is_stale() => {
                return Err(Error::Unreachable(Error::from(refusal).reason()));
            }
            Err(refusal) => return Err(refusal.into()),
        }
    }
}

impl Drop for TcpQueue {
    fn drop(&mut self) {
        // Nobody writes the buffers of commands in flight any more once the connection is closed: they were this process's
        // all the time.
        self.link.close();
        self.device.return_queue(self.id);
    }
}

/// Completions of a [`TcpQueue`]; see [`crate::Completions`].
#[derive(Debug)]
pub struct TcpCompletions<'a> {
    queue: &'a mut TcpQueue,
    left: usize,
    found: bool,
}

impl Iterator for TcpCompletions<'_> {
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

impl Drop for TcpCompletions<'_> {
    #[inline]
    fn drop(&mut self) {
        self.queue.countdown =
            self.queue.countdown.saturating_sub(if self.found { 1 } else { IDLE_POLL_COST });
        self.queue.mind_sleeper();
    }
}
