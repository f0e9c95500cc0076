//! A queue pair in memory shared with a PCI function.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use unvme_bus::{Clock, DmaBuf, EventFd, Function};
use unvme_spec::{Qid, Sqe, Status};

use crate::Error;
use crate::admin_queue::{Caller, command_name};
use crate::device::Device;
use crate::hybrid::Learnt;
use crate::kv::KvCommand;
use crate::lifecycle::{Lifecycle, PairRequest};
use crate::pace::Pace;
use crate::pair::{CQ_SLACK, FOREIGN_BUFFER, NO_KEY_MEMORY, Pair, PairConfig, Refused};
use crate::queue::{
    Advancer, Completion, CompletionMode, DEPTH_MAX, DataPointers, Payload, QueueOptions, Rejected,
};
use crate::watch::Watch;

/// In place of an epoch: matches none, so every call takes the slow way.
const NEVER: u64 = u64::MAX;
/// Between two looks at the clock: so many polls that found something, or a 1024th of it that found nothing.
const POLLS_TO_WATCH: i32 = 1 << 16;
const IDLE_POLL_COST: i32 = 1 << 10;
/// Longest sleep: the command time-outs are looked at in between.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// A submission queue and a completion queue in shared memory, with their slots.
///
/// The methods are those of [`crate::Queue`].
pub struct Ring {
    pair: Pair,
    /// The controller's epoch this pair was created under, or [`NEVER`] while the pair does not work.
    gate: u64,
    /// Counts down to the next look at the clock.
    countdown: i32,
    lane: Qid,
    host_driven: bool,
    function: Arc<dyn Function>,
    clock: Clock,
    device: Arc<Device>,
    /// The last epoch this pair has taken notice of.
    joined: u64,
    /// The device may have the pair's addresses.
    on_device: bool,
    /// Why the pair could not be created again after a reset.
    dead: Option<String>,
    /// What went wrong and nobody has been told yet.
    trouble: Option<Error>,
    mode: CompletionMode,
    interrupt: Option<(u16, EventFd)>,
    learnt: Learnt,
    watch: Watch,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("id", &self.lane)
            .field("capacity", &self.capacity())
            .field("outstanding", &self.outstanding())
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl Ring {
    pub(crate) fn create(device: &Arc<Device>, options: &QueueOptions) -> Result<Self, Error> {
        let facts = device.facts()?;
        let depth_max = device.depth_max();
        if options.depth == 0 || options.depth > depth_max {
            return Err(Error::InvalidArgument(format!(
                "a queue depth of {}: 1 to {depth_max} commands are possible (controller {}, driver {DEPTH_MAX})",
                options.depth,
                device.cap.mqes_z(),
            )));
        }
        let data_pointers = match options.data_pointers {
            DataPointers::Sgl if !facts.sgl => {
                return Err(Error::Unsupported("the controller does not support SGLs".to_owned()));
            }
            DataPointers::Auto if !facts.sgl => DataPointers::Prp,
            chosen => chosen,
        };
        let transfer_bytes_max = facts.transfer_bytes_max;
        let mut first = Qid(0);
        loop {
            let (qid, vector) = device.take_queue(first, options.mode != CompletionMode::Poll)?;
            let made = Self::make(device, options, qid, vector, data_pointers, transfer_bytes_max);
            let mut ring = made.inspect_err(|_| device.return_queue(qid, vector))?;
            let installed = ring.install(&device.lifecycle());
            match &installed {
                Err(Error::Timeout { .. } | Error::Reset { .. } | Error::Protocol(_)) => {
                    let why = installed.as_ref().err().map(ToString::to_string).unwrap_or_default();
                    device.reset_since(ring.joined, &why)?;
                }
                // On a controller that several hosts share, another one has it. The identifier is free again, here, when
                // the ring is dropped; the next one is tried.
                Err(e) if e.status().is_some_and(|s| s.kind() == Status::INVALID_QUEUE_IDENTIFIER) => {
                    first = Qid(qid.0 + 1);
                    continue;
                }
                _ => {}
            }
            return installed.map(|()| ring);
        }
    }

    /// Creates the queues on the device, which does not have them. The caller holds the lifecycle lock, so that no reset
    /// comes between.
    fn install(&mut self, life: &Lifecycle) -> Result<(), Error> {
        let device = Arc::clone(&self.device);
        self.joined = device.epoch.load(Ordering::Acquire);
        life.check()?;
        if let Some((vector, event)) = &self.interrupt {
            // Each time: a function level reset may have been what brought the controller back.
            device.function.set_vector(*vector, Some(event.clone()))?;
        }
        self.on_device = true;
        let created = device.create_pair(&self.request(), |sqe| {
            let limit = device.options.admin_timeout;
            let completion = device.admin.execute(&device, Caller::BringUp, sqe, None, limit)?;
            Error::check(|| format!("{} {}", command_name(&sqe), self.lane), completion.status)
        });
        match &created {
            Ok(()) => self.gate = self.joined,
            // A refusal leaves nothing on the device; after silence only a reset tells, which `drop` looks for.
            Err(e) => self.on_device = e.status().is_none(),
        }
        created
    }

    fn make(
        device: &Arc<Device>,
        options: &QueueOptions,
        qid: Qid,
        vector: Option<u16>,
        data_pointers: DataPointers,
        transfer_bytes_max: usize,
    ) -> Result<Self, Error> {
        let config = PairConfig {
            qid,
            depth: options.depth,
            cq_slack: match options.mode {
                // As much as the controller's longest queue leaves.
                CompletionMode::Poll => CQ_SLACK.min(u32::from(device.cap.mqes_z() - options.depth)),
                CompletionMode::Interrupt | CompletionMode::Hybrid => 0,
            },
            transfer_bytes_max,
            data_pointers,
            long_keys: options.long_keys,
            sq_doorbell: device.sq_doorbell(qid),
            cq_doorbell: device.cq_doorbell(qid),
        };
        let pair = Pair::new(&device.pool, config)?;
        let interrupt = match vector {
            None => None,
            Some(vector) => Some((vector, EventFd::new()?)),
        };
        Ok(Self {
            pair,
            gate: NEVER,
            countdown: POLLS_TO_WATCH,
            lane: qid,
            host_driven: device.host_driven,
            function: Arc::clone(&device.function),
            clock: device.clock.clone(),
            joined: NEVER,
            device: Arc::clone(device),
            on_device: false,
            dead: None,
            trouble: None,
            mode: options.mode,
            interrupt,
            learnt: Learnt::default(),
            watch: Watch::new(options.command_timeout, options.abort_grace),
        })
    }

    fn request(&self) -> PairRequest {
        PairRequest {
            qid: self.lane,
            addresses: self.pair.addresses(),
            entries: self.pair.entries(),
            vector: self.interrupt.as_ref().map(|(vector, _)| *vector),
        }
    }

    /// As [`crate::Queue::id`].
    pub fn id(&self) -> Qid {
        self.lane
    }

    /// As [`crate::Queue::mode`].
    pub fn mode(&self) -> CompletionMode {
        self.mode
    }

    /// As [`crate::Queue::capacity`].
    #[inline]
    pub fn capacity(&self) -> usize {
        self.pair.capacity()
    }

    /// As [`crate::Queue::outstanding`].
    #[inline]
    pub fn outstanding(&self) -> usize {
        self.pair.outstanding()
    }

    /// As [`crate::Queue::submit`].
    #[inline(always)]
    #[allow(clippy::missing_errors_doc)] // Stated there.
    pub fn submit(&mut self, sqe: Sqe, payload: Option<Payload>, token: u64) -> Result<(), Rejected> {
        if self.is_outdated() {
            self.attend();
            if let Some(reason) = &self.dead {
                let error = Error::Gone { reason: reason.clone() };
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
    #[allow(clippy::missing_errors_doc)] // Stated there.
    pub fn submit_kv(
        &mut self,
        command: KvCommand<'_>,
        buf: Option<DmaBuf>,
        token: u64,
    ) -> Result<(), Rejected> {
        if self.is_outdated() {
            self.attend();
            if let Some(reason) = &self.dead {
                return Err(Rejected { error: Error::Gone { reason: reason.clone() }, buf });
            }
        }
        let bytes = command.bytes;
        if bytes > 0 && buf.is_none() {
            return Err(without_buffer(bytes));
        }
        let payload = buf.map(|buf| Payload { buf, bytes });
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
            Refused::TooLong => Error::InvalidArgument(format!(
                "the transfer is longer than its buffer ({} bytes) or than the limit of {} bytes",
                buf.as_ref().map_or(0, DmaBuf::len),
                self.pair.transfer_bytes_max()
            )),
            Refused::ForeignBuffer => Error::InvalidArgument(FOREIGN_BUFFER.to_owned()),
            Refused::NoList => {
                Error::Exhausted("no memory is left for the PRP list of a transfer".to_owned())
            }
            Refused::NoKeyMemory => Error::InvalidArgument(NO_KEY_MEMORY.to_owned()),
        };
        Rejected { error, buf }
    }

    /// As [`crate::Queue::ring`].
    #[inline]
    #[allow(clippy::missing_errors_doc)] // Stated there.
    pub fn ring(&mut self) -> Result<(), Error> {
        if self.is_outdated() {
            // What was submitted before a reset is not rung: poll returns it as aborted.
            self.attend();
        }
        if self.gate == NEVER {
            return Ok(());
        }
        Ok(self.pair.ring()?)
    }

    /// As [`crate::Queue::poll`].
    #[inline]
    pub fn poll(&mut self, max: usize) -> RingCompletions<'_> {
        if self.is_outdated() || self.countdown < 0 {
            self.attend();
        }
        if self.host_driven {
            self.function.advance(Some(self.lane.0), &self.clock);
        }
        RingCompletions { ring: self, left: max, found: false }
    }

    /// As [`crate::Queue::take`].
    #[inline]
    pub fn take(&mut self, max: usize) -> RingCompletions<'_> {
        if self.is_outdated() || self.countdown < 0 {
            self.attend();
        }
        RingCompletions { ring: self, left: max, found: false }
    }

    /// As [`crate::Queue::advancer`].
    pub fn advancer(&self) -> Option<Advancer> {
        self.host_driven.then(|| Advancer {
            function: Arc::clone(&self.function),
            lane: self.lane,
            clock: self.clock.clone(),
        })
    }

    /// As [`crate::Queue::interrupt`].
    pub fn interrupt(&self) -> Option<&EventFd> {
        self.interrupt.as_ref().map(|(_, event)| event)
    }

    /// True when the controller has been reset since, or the pair does not work.
    #[inline]
    fn is_outdated(&self) -> bool {
        // Acquire: pairs with the Release of the reset that changed it.
        self.device.epoch.load(Ordering::Acquire) != self.gate
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
        if self.pair.outstanding() == 0 {
            return match &self.dead {
                Some(reason) => Err(Error::Gone { reason: reason.clone() }),
                None => Ok(false),
            };
        }
        match (self.mode, self.interrupt.clone()) {
            (CompletionMode::Interrupt, Some((_, event))) if !self.host_driven => self.sleep(&event, timeout),
            (CompletionMode::Hybrid, Some((_, event))) if !self.host_driven => {
                self.spin_or_sleep(&event, timeout)
            }
            _ => self.spin(timeout),
        }
    }

    /// Whether a completion can be taken, after a host-driven device has had its chance.
    fn look(&mut self) -> bool {
        if self.host_driven {
            self.function.advance(Some(self.lane.0), &self.clock);
        }
        self.pair.is_ready()
    }

    fn spin(&mut self, limit: Duration) -> Result<bool, Error> {
        let device = Arc::clone(&self.device);
        let mut pace = Pace::new(&device, limit);
        let mut rounds = 0u32;
        loop {
            if self.look() {
                return Ok(true);
            }
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(64) && self.look_after() {
                return self.troubled();
            }
            if pace.is_expired() {
                return Ok(false);
            }
            if self.host_driven {
                pace.pause(None);
            } else if rounds.is_multiple_of(256) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    fn sleep(&mut self, event: &EventFd, timeout: Duration) -> Result<bool, Error> {
        let device = Arc::clone(&self.device);
        let pace = Pace::new(&device, timeout);
        loop {
            // First the counter, then the ring, then sleep: an interrupt between the two looks leaves the counter set.
            event.drain();
            if self.pair.is_ready() {
                return Ok(true);
            }
            if self.look_after() {
                return self.troubled();
            }
            let left = timeout.saturating_sub(pace.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            event.wait(left.min(SLEEP_MAX).min(self.watch.interval()))?;
        }
    }

    fn spin_or_sleep(&mut self, event: &EventFd, timeout: Duration) -> Result<bool, Error> {
        let started = self.clock.now();
        let spun = match self.learnt.budget() {
            Some(budget) => self.spin(budget.min(timeout))?,
            None => false,
        };
        let ready = spun || self.sleep(event, timeout)?;
        self.learnt.note(self.clock.now().saturating_sub(started));
        Ok(ready)
    }

    /// Looks at time-outs and at the controller while nothing completes; true when the caller must stop waiting.
    fn look_after(&mut self) -> bool {
        self.countdown = -1;
        self.attend();
        self.trouble.is_some() || self.pair.is_ready() || self.gate == NEVER
    }

    /// The end of a wait that [`Ring::look_after`] ended.
    fn troubled(&mut self) -> Result<bool, Error> {
        match self.trouble.take() {
            Some(e) => Err(e),
            None => Ok(self.pair.is_ready()),
        }
    }

    /// Everything that is not the everyday: broken protocol, resets by others, time-outs.
    #[cold]
    #[inline(never)]
    fn attend(&mut self) {
        if let Some(entry) = self.pair.violation() {
            let what = format!(
                "completion on queue {} for command {:#06x} of queue {}, which is not outstanding",
                self.lane, entry.cid, entry.sq_id
            );
            self.reset(Error::Protocol(what));
        }
        if self.countdown < 0 {
            self.countdown = POLLS_TO_WATCH;
            if self.gate != NEVER && !self.is_outdated() {
                self.check_time();
            }
        }
        if self.device.epoch.load(Ordering::Acquire) != self.joined {
            self.rejoin();
        }
    }

    /// Aborts commands that take too long, and resets a controller that does not even abort them.
    fn check_time(&mut self) {
        let now = self.clock.now();
        if self.watch.is_due(now) && self.function.is_gone() {
            self.device.notice_gone(self.joined);
            return;
        }
        let Some(overdue) = self.watch.next(now, self.pair.deadlines()) else { return };
        let what = format!("command {:#06x} on queue {}", overdue.cid.0, self.lane);
        if overdue.was_aborted {
            self.reset(self.watch.timeout(what));
            return;
        }
        tracing::warn!(what, "no answer: Abort");
        if let Err(e) = self.device.abort(self.lane, overdue.cid, self.watch.grace()) {
            // A status leaves the grace period to run; a dead admin queue has led to a reset already.
            tracing::warn!(what, error = %e, "Abort");
        }
    }

    fn reset(&mut self, why: Error) {
        if let Err(e) = self.device.reset_since(self.joined, &why.to_string()) {
            tracing::warn!(error = %e, "controller reset");
        }
        self.trouble = Some(why);
    }

    /// After the device has forgotten this pair: ends what was outstanding and creates the pair again.
    fn rejoin(&mut self) {
        let device = Arc::clone(&self.device);
        let life = device.lifecycle();
        self.gate = NEVER;
        self.pair.abort_all(life.stopped());
        self.on_device &= !life.stopped();
        if life.check().is_ok() {
            self.pair.restart();
        }
        self.dead = self.install(&life).err().map(|e| {
            tracing::warn!(queue = %self.lane, error = %e, "the queue is not there after a reset");
            e.reason()
        });
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // While the device may reach the pair's memory, or that of its commands, neither goes back to the pool.
        let removed = !self.on_device
            || self.device.delete_pair(self.lane).is_ok()
            || self.device.has_stopped_since(self.joined);
        let vector = self.interrupt.as_ref().map(|(vector, _)| *vector);
        if let Some(vector) = vector {
            // The function may be gone already.
            let _ = self.function.set_vector(vector, None);
        }
        if removed {
            self.device.return_queue(self.lane, vector);
        } else {
            tracing::warn!(queue = %self.lane, "the queue could not be deleted: its memory stays allocated");
            self.pair.quarantine();
        }
    }
}

#[cold]
fn without_buffer(bytes: usize) -> Rejected {
    let reason = format!("the command moves {bytes} bytes and came without a buffer");
    Rejected { error: Error::InvalidArgument(reason), buf: None }
}

/// Completions of a [`Ring`]; see [`crate::Completions`].
#[derive(Debug)]
pub struct RingCompletions<'a> {
    ring: &'a mut Ring,
    left: usize,
    found: bool,
}

impl Iterator for RingCompletions<'_> {
    type Item = Completion;

    // Always inlined, as is `Pair::pop`: the caller then takes the completion apart in registers.
    #[inline(always)]
    fn next(&mut self) -> Option<Completion> {
        if self.left == 0 {
            return None;
        }
        let completion = self.ring.pair.pop()?;
        self.left -= 1;
        self.found = true;
        Some(completion)
    }
}

impl Drop for RingCompletions<'_> {
    #[inline]
    fn drop(&mut self) {
        self.ring.countdown -= if self.found { 1 } else { IDLE_POLL_COST };
        // After a reset the doorbell is nobody's until the pair has been created again.
        let is_due = self.ring.pair.owes_head() && !self.ring.is_outdated();
        let failed = is_due && self.ring.pair.acknowledge().is_err();
        if failed || self.ring.pair.is_violated() {
            // The slow way, at the next call: a connection that fails is asked whether it is gone.
            self.ring.countdown = -1;
        }
    }
}
