//! A queue pair in memory shared with a PCI function.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use unvme_bus::{Clock, DmaBuf, EventFd, Function};
use unvme_spec::admin::QueuePriority;
use unvme_spec::{Cid, Qid, Sqe, Status};

use super::admin_queue::Caller;
use super::device::PcieDevice;
use super::lifecycle::{FATAL, Lifecycle, PairRequest};
use super::pair::{CQ_SLACK, Pair, PairConfig, Refused};
use crate::Error;
use crate::command::{
    Completion, FOREIGN_BUFFER, KvCommand, NO_KEY_MEMORY, Payload, Rejected, command_name, too_long,
};
use crate::options::{CompletionMode, DEPTH_MAX, DataPointers, QueueOptions};
use crate::wait::{Wait, Waiter};
use crate::watch::Overdue;

/// In place of an epoch: matches none, so every call takes the slow way.
const NEVER: u64 = u64::MAX;
/// Between two looks at the clock: so many polls that found something, or a 1024th of it that found nothing.
const POLLS_TO_WATCH: i32 = 1 << 16;
const IDLE_POLL_COST: i32 = 1 << 10;

/// A submission queue and a completion queue in shared memory, with their slots.
pub struct Ring {
    pair: Pair,
    /// The controller's epoch this pair was created under, or [`NEVER`] while the pair does not work.
    gate: u64,
    waiter: Waiter,
    function: Arc<dyn Function>,
    device: Arc<PcieDevice>,
    /// The last epoch this pair has taken notice of.
    joined: u64,
    /// The device may have the pair's addresses.
    on_device: bool,
    interrupt: Option<(u16, EventFd)>,
    priority: QueuePriority,
    /// The device may move to another process.
    is_movable: bool,
}

impl Ring {
    pub(crate) fn create(device: &Arc<PcieDevice>, options: &QueueOptions) -> Result<Self, Error> {
        let (facts, limits) = (device.facts()?, device.base.limits());
        let depth_max = limits.depth_max;
        if options.depth == 0 || options.depth > depth_max {
            return Err(Error::InvalidArgument(format!(
                "a queue depth of {}: 1 to {depth_max} commands are possible (controller {}, driver {DEPTH_MAX})",
                options.depth,
                limits.cap.mqes_z(),
            )));
        }
        let data_pointers = match options.data_pointers {
            DataPointers::Sgl if !facts.sgl => {
                return Err(Error::Unsupported("the controller does not support SGLs".to_owned()));
            }
            DataPointers::Auto if !facts.sgl => DataPointers::Prp,
            chosen => chosen,
        };
        let mut first = Qid(0);
        loop {
            let (qid, vector) = device.take_queue(first, options.mode != CompletionMode::Poll)?;
            let made = Self::make(device, options, qid, vector, data_pointers);
            let mut ring = made.inspect_err(|_| device.return_queue(qid, vector))?;
            let installed = ring.install(&device.lifecycle());
            match &installed {
                Err(Error::Timeout { .. } | Error::Reset { .. } | Error::Protocol(_)) => {
                    let why = installed.as_ref().err().map(ToString::to_string).unwrap_or_default();
                    device.reset_since(ring.joined, &why)?;
                }
                // On a controller that several hosts share, another one has it. The identifier is free again,
                // here, when the ring is dropped; the next one is tried.
                Err(e) if e.status().is_some_and(|s| s.kind() == Status::INVALID_QUEUE_IDENTIFIER) => {
                    first = Qid(qid.0 + 1);
                    continue;
                }
                Err(_) if ring.is_movable && device.function.is_gone() => {
                    device.notice_gone(ring.joined);
                    device.lifecycle().check()?;
                    continue;
                }
                _ => {}
            }
            return installed.map(|()| ring);
        }
    }

    /// Creates the queues on the device, which does not have them. The caller holds the lifecycle lock, so
    /// that no reset comes between.
    fn install(&mut self, life: &Lifecycle) -> Result<(), Error> {
        let device = Arc::clone(&self.device);
        self.joined = device.base.epoch();
        life.check()?;
        if let Some((vector, event)) = &self.interrupt {
            // Each time: a function level reset may have been what brought the controller back.
            device.function.set_vector(*vector, Some(event.clone()))?;
        }
        self.on_device = true;
        let created = device.create_pair(&self.request(), |sqe| {
            let limit = device.base.options.admin_timeout;
            let completion = device.admin.execute(&device, Caller::BringUp, sqe, None, limit)?;
            Error::check(|| format!("{} {}", command_name(&sqe), self.waiter.id), completion.status)
        });
        match &created {
            Ok(()) => self.gate = self.joined,
            // A refusal leaves nothing on the device; after silence only a reset tells, which `drop` looks
            // for.
            Err(e) => self.on_device = e.status().is_none(),
        }
        created
    }

    fn make(
        device: &Arc<PcieDevice>,
        options: &QueueOptions,
        qid: Qid,
        vector: Option<u16>,
        data_pointers: DataPointers,
    ) -> Result<Self, Error> {
        let limits = device.base.limits();
        let config = PairConfig {
            qid,
            depth: options.depth,
            cq_slack: match options.mode {
                // As much as the controller's longest queue leaves.
                CompletionMode::Poll => CQ_SLACK.min(u32::from(limits.cap.mqes_z() - options.depth)),
                CompletionMode::Interrupt | CompletionMode::Hybrid => 0,
            },
            transfer_bytes_max: limits.transfer_bytes_max,
            data_pointers,
            long_keys: options.long_keys,
            is_movable: device.function.is_movable(),
            sq_doorbell: device.sq_doorbell(qid),
            cq_doorbell: device.cq_doorbell(qid),
        };
        let pair = Pair::new(&device.base.pool, config)?;
        let interrupt = match vector {
            None => None,
            Some(vector) => Some((vector, EventFd::new()?)),
        };
        let mut waiter = Waiter::new(qid, device.clock(), options);
        (waiter.countdown, waiter.host_driven) = (POLLS_TO_WATCH, device.host_driven);
        Ok(Self {
            pair,
            gate: NEVER,
            waiter,
            function: Arc::clone(&device.function),
            joined: NEVER,
            device: Arc::clone(device),
            on_device: false,
            interrupt,
            priority: options.priority.unwrap_or(match device.is_weighted() {
                true => QueuePriority::Medium,
                // It means nothing.
                false => QueuePriority::Urgent,
            }),
            is_movable: device.function.is_movable(),
        })
    }

    fn request(&self) -> PairRequest {
        PairRequest {
            qid: self.waiter.id,
            addresses: self.pair.addresses(),
            entries: self.pair.entries(),
            vector: self.interrupt.as_ref().map(|(vector, _)| *vector),
            priority: self.priority,
        }
    }

    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.pair.capacity()
    }

    /// As [`crate::Queue::submit`].
    #[inline(always)]
    pub(crate) fn submit(&mut self, sqe: Sqe, payload: Option<Payload>, token: u64) -> Result<(), Rejected> {
        if self.is_outdated() {
            self.attend();
            if let Some(error) = self.waiter.gone() {
                return Err(Rejected { error, buf: payload.map(|payload| payload.buf) });
            }
        }
        match self.pair.submit(sqe, payload, token) {
            Ok(()) => Ok(()),
            Err((refused, buf)) => Err(self.rejected(refused, buf)),
        }
    }

    /// As [`crate::Queue::submit_kv`].
    #[inline(always)]
    pub(crate) fn submit_kv(
        &mut self,
        command: KvCommand<'_>,
        payload: Option<Payload>,
        token: u64,
    ) -> Result<(), Rejected> {
        if self.is_outdated() {
            self.attend();
            if let Some(error) = self.waiter.gone() {
                return Err(Rejected { error, buf: payload.map(|payload| payload.buf) });
            }
        }
        let done = if let Some(key) = command.long_key {
            self.pair.submit_with_key(command.sqe, key, payload, token)
        } else if command.is_prp_only {
            self.pair.submit_as(command.sqe, payload, token, DataPointers::Prp)
        } else {
            self.pair.submit(command.sqe, payload, token)
        };
        match done {
            Ok(()) => Ok(()),
            Err((refused, buf)) => Err(self.rejected(refused, buf)),
        }
    }

    #[cold]
    fn rejected(&self, refused: Refused, buf: Option<DmaBuf>) -> Rejected {
        let error = match refused {
            Refused::Full => Error::Full { capacity: self.pair.capacity() as u32 },
            Refused::TooLong => too_long(buf.as_ref().map_or(0, DmaBuf::len), self.pair.transfer_bytes_max()),
            Refused::ForeignBuffer => Error::InvalidArgument(FOREIGN_BUFFER.to_owned()),
            Refused::NoList => {
                Error::Exhausted("no memory is left for the PRP list of a transfer".to_owned())
            }
            Refused::NoKeyMemory => Error::InvalidArgument(NO_KEY_MEMORY.to_owned()),
        };
        Rejected { error, buf }
    }

    /// What precedes taking completions.
    #[inline(always)]
    pub(crate) fn prepare(&mut self) {
        if self.is_outdated() || self.waiter.countdown < 0 {
            self.attend();
        }
    }

    /// Lets a host-driven device work on what was submitted.
    #[inline(always)]
    pub(crate) fn advance(&self) {
        if self.waiter.host_driven {
            self.function.advance(Some(self.waiter.id.0), &self.waiter.clock);
        }
    }

    /// Takes the next completion.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<Completion> {
        self.pair.pop()
    }

    /// What follows taking completions: tells the device how far that got, when it is time.
    #[inline(always)]
    pub(crate) fn end_poll(&mut self, found: bool) {
        self.waiter.countdown -= if found { 1 } else { IDLE_POLL_COST };
        if self.pair.owes_head() || self.pair.is_violated() {
            self.settle();
        }
    }

    /// [`Ring::end_poll`] when there is something to say: to the device, or of it.
    #[inline(never)]
    fn settle(&mut self) {
        // After a reset the doorbell is nobody's until the pair has been created again.
        let is_due = self.pair.owes_head() && !self.is_outdated();
        let failed = is_due && self.pair.acknowledge().is_err();
        if failed || self.pair.is_violated() {
            // The slow way, at the next call: a connection that fails is asked whether it is gone.
            self.waiter.countdown = -1;
        }
    }

    /// As [`crate::Queue::advancer`].
    pub(crate) fn advancer(&self) -> Option<Advancer> {
        self.waiter.host_driven.then(|| Advancer {
            function: Arc::clone(&self.function),
            queue: self.waiter.id,
            clock: self.waiter.clock.clone(),
        })
    }

    /// As [`crate::Queue::interrupt`].
    pub(crate) fn interrupt(&self) -> Option<&EventFd> {
        self.interrupt.as_ref().map(|(_, event)| event)
    }

    /// True when the controller has been reset since, or the pair does not work.
    #[inline(always)]
    fn is_outdated(&self) -> bool {
        self.device.base.epoch() != self.gate
    }

    fn reset(&self, why: &Error) {
        if let Err(e) = self.device.reset_since(self.joined, &why.to_string()) {
            tracing::warn!(error = %e, "controller reset");
        }
    }

    /// After the device has forgotten this pair: ends what was outstanding, unless the device has moved and
    /// it may be executed there, and creates the pair again.
    fn rejoin(&mut self) {
        let device = Arc::clone(&self.device);
        loop {
            let life = device.lifecycle();
            self.gate = NEVER;
            if self.is_movable && life.has_moved_since(self.joined) {
                self.pair.move_over();
            } else {
                self.pair.abort_all(life.stopped());
                if life.check().is_ok() {
                    self.pair.restart();
                }
            }
            self.on_device &= !life.stopped();
            if self.is_movable {
                let qid = self.waiter.id;
                self.pair.set_doorbells(device.sq_doorbell(qid), device.cq_doorbell(qid));
            }
            let installed = self.install(&life);
            let is_over = life.check().is_err();
            drop(life);
            if installed.is_err() && self.is_movable && !is_over && self.function.is_gone() {
                device.notice_gone(self.joined);
                continue;
            }
            self.waiter.dead = installed.err().map(|e| {
                tracing::warn!(queue = %self.waiter.id, error = %e, "the queue is not there after a reset");
                e.reason()
            });
            break;
        }
        if self.gate != NEVER
            && let Err(e) = self.pair.ring()
        {
            tracing::debug!(queue = %self.waiter.id, error = %e, "ring after a reset");
        }
    }

    /// Rings, unless a reset has taken what was submitted, or the device may have moved.
    #[inline(never)]
    fn ring_if_there(&mut self) -> Result<(), Error> {
        if self.is_outdated() {
            // What was submitted before a reset is not rung: poll returns it as aborted.
            self.attend();
        }
        if self.is_movable && self.gate != NEVER && self.pair.is_all_unseen() {
            self.look_for_device();
        }
        if self.gate == NEVER {
            return Ok(());
        }
        Ok(self.pair.ring()?)
    }

    /// Follows a device that has moved before it is sent what could be in doubt then: while nothing else is
    /// outstanding nobody has asked whether it is there.
    #[cold]
    #[inline(never)]
    fn look_for_device(&mut self) {
        if self.waiter.watch.is_due(self.waiter.clock.now()) && self.function.is_gone() {
            self.device.notice_gone(self.joined);
            self.attend();
        }
    }
}

impl Wait for Ring {
    fn waiter(&self) -> &Waiter {
        &self.waiter
    }

    fn waiter_mut(&mut self) -> &mut Waiter {
        &mut self.waiter
    }

    #[inline]
    fn outstanding(&self) -> usize {
        self.pair.outstanding()
    }

    #[inline(always)]
    fn ring(&mut self) -> Result<(), Error> {
        // A pair that does not work is outdated.
        if self.is_outdated() || self.is_movable {
            return self.ring_if_there();
        }
        self.pair.ring().map_err(Error::Bus)
    }

    fn look(&mut self) -> Result<bool, Error> {
        self.advance();
        Ok(self.pair.is_ready())
    }

    fn is_ready(&self) -> bool {
        self.pair.is_ready()
    }

    #[cold]
    #[inline(never)]
    fn attend(&mut self) {
        if let Some(entry) = self.pair.violation() {
            let why = Error::Protocol(format!(
                "completion on queue {} for command {:#06x} of queue {}, which is not outstanding",
                self.waiter.id, entry.cid, entry.sq_id
            ));
            self.reset(&why);
            self.waiter.trouble = Some(why);
        }
        if self.waiter.countdown < 0 {
            self.waiter.countdown = POLLS_TO_WATCH;
            if self.gate != NEVER && !self.is_outdated() {
                let is_due = self.waiter.watch.is_due(self.waiter.clock.now());
                if is_due && self.function.is_gone() {
                    self.device.notice_gone(self.joined);
                } else if is_due && self.pair.outstanding() > 0 && self.device.has_failed() {
                    if let Err(e) = self.device.reset_since(self.joined, FATAL) {
                        tracing::warn!(error = %e, "controller reset");
                    }
                } else {
                    self.check_time();
                }
            }
        }
        if self.device.base.epoch() != self.joined {
            self.rejoin();
        }
    }

    fn pause(&mut self, rounds: u32, _left: Duration) {
        if self.waiter.host_driven {
            self.device.work(rounds);
        } else if rounds.is_multiple_of(256) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }

    fn arm(&mut self) {
        if let Some(event) = self.interrupt() {
            event.drain();
        }
    }

    fn sleep(&mut self, limit: Duration) -> Result<(), Error> {
        if let Some(event) = self.interrupt() {
            event.wait(limit)?;
        }
        Ok(())
    }

    fn overdue(&mut self, now: u64) -> Option<Overdue> {
        self.waiter.watch.next(now, self.pair.deadlines())
    }

    fn abort(&mut self, cid: Cid) -> Result<(), Error> {
        self.device.abort(self.waiter.id, cid, self.waiter.watch.grace())
    }

    fn give_up(&mut self, _cid: Cid, why: &Error) {
        self.reset(why);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // While the device may reach the pair's memory, or that of its commands, neither goes back to the
        // pool.
        let removed = !self.on_device
            || self.is_movable && self.function.is_gone()
            || self.device.delete_pair(self.waiter.id).is_ok()
            || self.device.has_stopped_since(self.joined);
        let vector = self.interrupt.as_ref().map(|(vector, _)| *vector);
        if let Some(vector) = vector {
            // The function may be gone already.
            let _ = self.function.set_vector(vector, None);
        }
        if removed {
            self.device.return_queue(self.waiter.id, vector);
        } else {
            tracing::warn!(queue = %self.waiter.id, "the queue could not be deleted: its memory stays allocated");
            self.pair.quarantine();
        }
    }
}

/// Lets a host-driven device work on one queue, from any thread and while the queue is in use. It keeps the
/// function, and not the queue: after that has gone it does nothing.
#[derive(Clone)]
pub struct Advancer {
    function: Arc<dyn Function>,
    queue: Qid,
    clock: Clock,
}

impl Advancer {
    /// Lets the device work for a bounded while; returns how many units of work it did.
    #[inline]
    pub fn advance(&self) -> usize {
        self.function.advance(Some(self.queue.0), &self.clock)
    }

    /// The clock the device is handed; whoever waits moves it when it is a virtual one.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}

impl fmt::Debug for Advancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Advancer").field("queue", &self.queue).finish_non_exhaustive()
    }
}
