//! The queue of a device in a layout.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hdrhistogram::Histogram;
use quanta::Clock;
use unvme::worker::{Data, Done, Queues, Reason, SharedQueue, Worker, WorkerOptions};
use unvme::{CompletionMode, DmaBuf, Error, QueueOptions, Result, lock, random};

use super::{Completing, Placed, Subject};

/// Digits of latencies, and the longest one; what is longer counts as that.
const DIGITS: u8 = 3;
const LATENCY_MAX_NS: u64 = 60_000_000_000;
/// Commands that are submitted in a row at most, before the next queue has its turn.
const BURST: usize = 32;

/// What a measurement is doing; the word that all threads watch.
pub(super) mod phase {
    pub(in super::super) const WARMUP: u8 = 0;
    pub(in super::super) const MEASURE: u8 = 1;
    pub(in super::super) const STOP: u8 = 2;
}

/// What has completed while it was measured.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) latency_ns: Histogram<u64>,
    pub(super) completed: u64,
    pub(super) first_failure: Option<String>,
}

/// A slot for one command. The submitter writes `begun` and takes the buffer; the completing side puts the
/// buffer back and then frees the slot.
#[derive(Debug)]
struct Slot {
    /// Clock's raw count at submission, plus 1; 0 while the slot is free. Its Release store frees the slot,
    /// and pairs with the submitter's Acquire load.
    begun: AtomicU64,
    buf: Mutex<Option<DmaBuf>>,
}

/// Commands in flight, shared by the submitter and the completing side.
#[derive(Debug)]
pub(super) struct Flight {
    slots: Box<[Slot]>,
    pub(super) record: Mutex<Record>,
    clock: Clock,
    phase: Arc<AtomicU8>,
}

impl Flight {
    /// Takes completions: their latencies, and their buffers for the next commands.
    pub(super) fn complete(&self, done: &mut Vec<Done>) {
        let is_measured = self.phase.load(Ordering::Relaxed) == phase::MEASURE;
        let now = self.clock.raw();
        let mut record = lock(&self.record);
        for Done { token, status, buf, .. } in done.drain(..) {
            let Some(slot) = self.slots.get(token as usize) else { continue };
            let begun = slot.begun.load(Ordering::Relaxed).saturating_sub(1);
            if !status.is_success() && record.first_failure.is_none() {
                record.first_failure = Some(status.to_string());
            }
            if is_measured {
                record.completed += 1;
                record.latency_ns.saturating_record(self.clock.delta_as_nanos(begun, now).max(1));
            }
            *lock(&slot.buf) = buf;
            slot.begun.store(0, Ordering::Release);
        }
    }
}

/// A queue with its commands.
pub(super) struct Lane<'a> {
    subject: &'a Subject,
    pub(super) complete: Completing,
    pub(super) submit: u32,
    pub(super) worker: Worker,
    pub(super) flight: Arc<Flight>,
    /// The slot that is checked next.
    next: usize,
    random: u64,
    done: Vec<Done>,
}

impl<'a> Lane<'a> {
    /// Makes the queue and its buffers. Errors: those of [`Worker::open`]; [`Error::Argument`] when the
    /// device has no queue left, or no memory for buffers.
    pub(super) fn open(
        subject: &'a Subject,
        placed: Placed,
        depth: u16,
        seed: u64,
        phase: &Arc<AtomicU8>,
    ) -> Result<Self> {
        let mode = match placed.complete {
            Completing::Polled => CompletionMode::Poll,
            Completing::Thread(_) => CompletionMode::Interrupt,
        };
        let depth = depth.min(subject.device().controller().queue_depth_max());
        let options = WorkerOptions {
            queue: QueueOptions { depth, mode, ..QueueOptions::default() },
            queues: Queues::Cpus(vec![placed.submit]),
            threads: 0,
        };
        let worker = Worker::open(subject.device(), subject.medium(), &options)?;
        let slot = |_| -> Result<Slot> {
            let buf = worker.alloc(subject.buffer_bytes());
            let buf = buf.map_err(|refused| failed(subject, &refused.reason))?;
            Ok(Slot { begun: AtomicU64::new(0), buf: Mutex::new(Some(buf)) })
        };
        let capacity = worker.queues()[0].capacity().min(depth.into());
        let slots = (0..capacity).map(slot).collect::<Result<_>>()?;
        let latency_ns = Histogram::new_with_bounds(1, LATENCY_MAX_NS, DIGITS)
            .map_err(|e| Error::Argument(format!("a histogram of {DIGITS} digits: {e}")))?;
        let record = Record { latency_ns, completed: 0, first_failure: None };
        let flight =
            Flight { slots, record: Mutex::new(record), clock: Clock::new(), phase: Arc::clone(phase) };
        Ok(Self {
            subject,
            complete: placed.complete,
            submit: placed.submit,
            worker,
            flight: Arc::new(flight),
            next: 0,
            random: seed,
            done: Vec::new(),
        })
    }

    pub(super) fn queue(&self) -> &Arc<SharedQueue> {
        &self.worker.queues()[0]
    }

    /// Submits to free slots and, where this thread polls, takes what has completed. Returns true when
    /// anything was done. Errors: the device refuses commands.
    pub(super) fn turn(&mut self) -> Result<bool> {
        let mut moved = false;
        for _ in 0..BURST {
            if !self.submit_one()? {
                break;
            }
            moved = true;
        }
        Ok(self.poll() | moved)
    }

    /// Takes what has completed, where this thread polls.
    pub(super) fn poll(&mut self) -> bool {
        if self.complete != Completing::Polled || self.worker.poll(&mut self.done) == 0 {
            return false;
        }
        self.flight.complete(&mut self.done);
        true
    }

    fn submit_one(&mut self) -> Result<bool> {
        let slot = &self.flight.slots[self.next];
        // Slots are used in turn: devices complete nearly in order, so the next slot is nearly always free.
        if slot.begun.load(Ordering::Acquire) != 0 {
            return Ok(false);
        }
        let Some(buf) = lock(&slot.buf).take() else {
            return Err(failed(self.subject, &"it kept the buffer of a command"));
        };
        self.random = self.random.wrapping_add(random::STEP);
        let op = self.subject.op(random::mix(self.random));
        slot.begun.store(self.flight.clock.raw() + 1, Ordering::Relaxed);
        match self.queue().submit(op, Data::Lent(buf), self.next as u64) {
            Ok(()) => {
                self.next = (self.next + 1) % self.flight.slots.len();
                Ok(true)
            }
            Err(refused) => {
                *lock(&slot.buf) = refused.buf;
                slot.begun.store(0, Ordering::Relaxed);
                match refused.reason {
                    Reason::Full => Ok(false),
                    reason => Err(failed(self.subject, &reason)),
                }
            }
        }
    }

    /// Commands that have not completed.
    pub(super) fn outstanding(&self) -> u64 {
        self.worker.outstanding()
    }

    /// What has failed first, with the name of the device.
    pub(super) fn failure(&self) -> Option<Error> {
        let first = lock(&self.flight.record).first_failure.clone();
        first.map(|status| failed(self.subject, &format!("it answered {status}")))
    }
}

fn failed(subject: &Subject, why: &impl std::fmt::Display) -> Error {
    Error::Argument(format!("{}: {why}", subject.name()))
}
