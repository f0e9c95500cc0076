//! A queue over the network: a connection, and what is done when it breaks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unvme_bus::EventFd;
use unvme_spec::{Cid, Qid, Sqe};

use super::connect::{Connection, Role};
use super::device::{Life, TcpDevice};
use crate::Error;
use crate::command::{Completion, KvCommand, Payload, Rejected};
use crate::options::{CompletionMode, DataPointers, QueueOptions};
use crate::tcp::{Agreement, Broken, Link, LinkConfig, Manner, Sleeper};
use crate::wait::{Wait, Waiter};
use crate::watch::Overdue;

/// In place of an epoch: matches none, so every call takes the slow way.
const NEVER: u64 = u64::MAX;
/// Between two looks at the clock: so many polls that found something, or a 64th of it that found nothing.
/// Each is a system call, which takes longer than a look at a ring.
const POLLS_TO_WATCH: i32 = 1 << 12;
const IDLE_POLL_COST: i32 = 1 << 6;
/// Sleep between two looks while there is no connection.
const DOWN_SLEEP: Duration = Duration::from_millis(1);
/// Time for a target to notice that the connection is closed that had the identifier before.
const QUEUE_ID_LIMIT: Duration = Duration::from_secs(2);
const QUEUE_ID_INTERVAL: Duration = Duration::from_millis(5);

/// A connection to a controller of a TCP target, with the slots of its commands.
///
/// While the connection is lost, commands are accepted until all slots are in use. When it is back, the queue
/// sends those that the target has never seen, and those that leave and answer the same when they are
/// executed twice: reads, writes, Write Zeroes, deallocation, Flush, stores without a condition. They go in
/// the order of their submission, before later ones. The others (fused pairs, conditional stores, deletes
/// that answer whether the key existed, append, batches) end with [`unvme_spec::Status::ABORTED_BY_HOST`], as
/// they may have been executed. After a time without a connection ([`crate::Reconnect::give_up_after`])
/// everything ends that way, and nothing is accepted any more.
pub struct TcpQueue {
    link: Link,
    /// The epoch the connection is of, or [`NEVER`] while there is none.
    gate: u64,
    waiter: Waiter,
    depth: u16,
    device: Arc<TcpDevice>,
    /// The last epoch this queue has taken notice of.
    joined: u64,
    /// The epoch in which the queue could not be connected.
    failed: u64,
    /// What is wrong with the connection, before the device has been told.
    broken: Option<Broken>,
    sleeper: Option<Sleeper>,
    /// The sleeper waits for room to send, too.
    watches_room: bool,
    /// The sleeper has been waked, and not been settled.
    is_waked: bool,
}

impl TcpQueue {
    pub(crate) fn create(device: &Arc<TcpDevice>, options: &QueueOptions) -> Result<Self, Error> {
        let depth_max = device.base.limits().depth_max;
        if options.depth == 0 || options.depth > depth_max {
            return Err(Error::InvalidArgument(format!(
                "a queue depth of {}: 1 to {depth_max} commands are possible",
                options.depth
            )));
        }
        if options.data_pointers == DataPointers::Prp {
            return Err(Error::Unsupported("PRPs over the network, where data has no addresses".to_owned()));
        }
        let Some(id) = device.base.take_queue(Qid::ADMIN) else {
            let most = device.base.queues_max();
            return Err(Error::Exhausted(format!("all {most} I/O queues of the controller are in use")));
        };
        let made = Self::make(device, options, id);
        let mut queue = made.inspect_err(|_| device.base.return_queue(id))?;
        // From here on the identifier goes back when the queue is dropped.
        queue.join(true)?;
        Ok(queue)
    }

    fn make(device: &Arc<TcpDevice>, options: &QueueOptions, id: Qid) -> Result<Self, Error> {
        let link = Link::new(&LinkConfig {
            depth: options.depth,
            is_admin: false,
            long_keys: options.long_keys,
            pool: device.base.pool.id(),
            transfer_bytes_max: device.base.limits().transfer_bytes_max,
        });
        let sleeper = match options.mode {
            CompletionMode::Poll => None,
            CompletionMode::Interrupt | CompletionMode::Hybrid => Some(Sleeper::new()?),
        };
        let mut waiter = Waiter::new(id, device.base.clock(), options);
        waiter.countdown = POLLS_TO_WATCH;
        Ok(Self {
            link,
            gate: NEVER,
            waiter,
            depth: options.depth,
            device: Arc::clone(device),
            joined: NEVER,
            failed: NEVER,
            broken: None,
            sleeper,
            watches_room: false,
            is_waked: false,
        })
    }

    /// Connects the queue to the controller of the association there is; a new one tries to get a lost one
    /// back.
    fn join(&mut self, is_new: bool) -> Result<(), Error> {
        let device = Arc::clone(&self.device);
        // No association ends or begins meanwhile.
        let mut life = device.life();
        match &*life {
            Life::Down { why, .. } if !is_new => return Err(Error::Unreachable(why.clone())),
            _ => device.reconnect(&mut life)?,
        }
        let epoch = device.base.epoch();
        let (facts, limits) = (device.facts(), device.base.limits());
        let id = self.waiter.id;
        if id.0 > facts.queues {
            return Err(Error::Exhausted(format!(
                "the target grants {} I/O queues now, and this is number {id}",
                facts.queues
            )));
        }
        if self.depth > limits.depth_max {
            return Err(Error::Exhausted(format!(
                "the controller takes {} commands now, and this queue is for {}",
                limits.depth_max, self.depth
            )));
        }
        let role = Role { qid: id, sqsize_z: self.depth, cntlid: facts.cntlid };
        let (stream, agreed) = open(&device, role)?;
        if let Some(sleeper) = &self.sleeper {
            sleeper.watch(&stream)?;
            self.watches_room = false;
        }
        self.link.transfer_bytes_max = limits.transfer_bytes_max;
        self.link.attach(stream, agreed, facts.in_capsule_bytes);
        (self.gate, self.joined) = (epoch, epoch);
        self.waiter.dead = None;
        drop(life);
        self.update_sleeper();
        Ok(())
    }

    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.link.capacity()
    }

    /// As [`crate::Queue::interrupt`].
    pub(crate) fn interrupt(&self) -> Option<&EventFd> {
        self.sleeper.as_ref().map(Sleeper::event)
    }

    /// As [`crate::Queue::submit`].
    #[inline]
    pub(crate) fn submit(&mut self, sqe: Sqe, payload: Option<Payload>, token: u64) -> Result<(), Rejected> {
        self.submit_as(sqe, payload, Manner { token, ..Manner::default() })
    }

    /// As [`crate::Queue::submit_kv`].
    #[inline]
    pub(crate) fn submit_kv(
        &mut self,
        command: KvCommand<'_>,
        payload: Option<Payload>,
        token: u64,
    ) -> Result<(), Rejected> {
        // Samsung's commands, which know no SGLs, move whole dwords.
        let (whole_dwords, long_key) = (command.is_prp_only, command.long_key);
        self.submit_as(command.sqe, payload, Manner { token, long_key, is_kv: true, whole_dwords })
    }

    #[inline]
    fn submit_as(&mut self, sqe: Sqe, payload: Option<Payload>, manner: Manner<'_>) -> Result<(), Rejected> {
        if self.is_outdated() {
            self.attend();
            if let Some(error) = self.waiter.gone() {
                return Err(Rejected { error, buf: payload.map(|payload| payload.buf) });
            }
        }
        self.link.submit(sqe, payload, manner)
    }

    /// As [`crate::Queue::is_connected`].
    pub(crate) fn is_connected(&self) -> bool {
        self.device.is_connected()
    }

    /// What precedes taking completions.
    #[inline]
    pub(crate) fn prepare(&mut self) {
        if self.is_outdated() || self.waiter.countdown < 0 {
            self.attend();
        }
        self.link.begin();
    }

    /// What follows taking completions.
    #[inline]
    pub(crate) fn end_poll(&mut self, found: bool) {
        self.waiter.countdown -= if found { 1 } else { IDLE_POLL_COST };
        self.update_sleeper();
    }

    /// True when the association has changed since, or there is no connection.
    #[inline]
    fn is_outdated(&self) -> bool {
        self.device.base.epoch() != self.gate
    }

    #[cold]
    fn note(&mut self, broken: Broken) {
        self.broken.get_or_insert(broken);
        self.waiter.countdown = -1;
    }

    /// Sleeps until something arrives, at most for `limit`.
    fn nap(&self, limit: Duration) {
        if self.link.stream().is_some() {
            self.link.rest(limit);
        } else {
            std::thread::sleep(limit.min(DOWN_SLEEP));
        }
        self.waiter.clock.advance(limit);
    }

    /// Keeps the event that others sleep on to what is so: it is waked while the connection has room for what
    /// waits to be sent, and rests once what they were waked for has been taken.
    #[inline]
    fn update_sleeper(&mut self) {
        let Some(sleeper) = &self.sleeper else { return };
        let is_blocked = self.link.is_blocked();
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
        if self.device.resends_since(self.joined) {
            self.link.discard();
            self.link.requeue(true);
        } else {
            self.link.close();
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
                tracing::warn!(queue = %self.waiter.id, error = %e, "the queue is not there after a reconnection");
                self.link.abort_all();
                self.waiter.dead = Some(e.reason());
                self.failed = epoch;
            }
        }
    }

    /// Takes the next completion.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Completion> {
        if let Some(completion) = self.link.pop() {
            return Some(completion);
        }
        if self.look_on() { self.link.pop() } else { None }
    }

    /// Whether a completion can be taken, after a look in the same round as the last one.
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

impl Wait for TcpQueue {
    fn waiter(&self) -> &Waiter {
        &self.waiter
    }

    fn waiter_mut(&mut self) -> &mut Waiter {
        &mut self.waiter
    }

    #[inline]
    fn outstanding(&self) -> usize {
        self.link.outstanding()
    }

    #[inline]
    fn ring(&mut self) -> Result<(), Error> {
        if self.is_outdated() {
            self.attend();
        }
        if self.gate != NEVER
            && let Err(broken) = self.link.flush()
        {
            self.note(broken);
        }
        self.update_sleeper();
        Ok(())
    }

    #[inline]
    fn look(&mut self) -> Result<bool, Error> {
        self.link.begin();
        Ok(self.look_on())
    }

    fn is_ready(&self) -> bool {
        self.link.is_ready()
    }

    #[cold]
    #[inline(never)]
    fn attend(&mut self) {
        self.update_sleeper();
        if let Some(broken) = self.broken.take()
            && self.gate != NEVER
        {
            self.device.lose(self.gate, &broken);
            if let Broken::Protocol(what) = broken {
                self.waiter.trouble = Some(Error::Protocol(format!("queue {}: {what}", self.waiter.id)));
            }
        }
        if self.waiter.countdown < 0 {
            self.waiter.countdown = POLLS_TO_WATCH;
            self.device.send_keep_alive();
            if !self.is_outdated() {
                self.check_time();
            }
        }
        self.device.attend();
        let epoch = self.device.base.epoch();
        if epoch != self.gate {
            self.leave(epoch);
            if epoch.is_multiple_of(2) {
                self.rejoin(epoch);
            }
        }
        self.update_sleeper();
    }

    fn pause(&mut self, rounds: u32, left: Duration) {
        if self.gate == NEVER {
            // Nothing comes without a connection: the next look is whether there is one.
            self.waiter.countdown = -1;
            self.nap(left.min(DOWN_SLEEP));
        }
        if rounds.is_multiple_of(16) {
            // A virtual clock moves, as time does for whoever waits.
            self.waiter.clock.advance(Duration::from_micros(64));
            std::thread::yield_now();
        }
    }

    fn sleep(&mut self, limit: Duration) -> Result<(), Error> {
        self.nap(limit);
        Ok(())
    }

    fn overdue(&mut self, now: u64) -> Option<Overdue> {
        self.waiter.watch.next(now, self.link.deadlines())
    }

    fn abort(&mut self, cid: Cid) -> Result<(), Error> {
        self.device.abort(self.waiter.id, cid, self.waiter.watch.grace())
    }

    fn give_up(&mut self, _cid: Cid, why: &Error) {
        if let Err(e) = self.device.reset_since(self.gate, &why.to_string()) {
            tracing::warn!(error = %e, "controller reset");
        }
    }
}

/// Opens the connection of a queue. The target may not have noticed yet that the one before it is closed.
fn open(device: &TcpDevice, role: Role) -> Result<(unvme_fabric::Stream, Agreement), Error> {
    let deadline = Instant::now() + QUEUE_ID_LIMIT;
    loop {
        match Connection::open(&device.target, &device.base.pool, role) {
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
        // Nobody writes the buffers of commands in flight any more once the connection is closed: they were
        // this process's all the time.
        self.link.close();
        self.device.base.return_queue(self.waiter.id);
    }
}
