//! What every controller has, whoever drives it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use unvme_bus::{Clock, DmaPool, lock};
use unvme_spec::Qid;
use unvme_spec::regs::Cap;

use crate::claim::Claimed;
use crate::numbers::Numbers;
use crate::options::ControllerOptions;

/// What is known of a controller once it has been brought up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) cap: Cap,
    pub(crate) version: u32,
    /// Most commands of a queue.
    pub(crate) depth_max: u16,
    /// Longest transfer in bytes: MDTS or the options, whichever is less.
    pub(crate) transfer_bytes_max: usize,
    /// Firmware Update Granularity in bytes: pieces of an image are multiples of it.
    pub(crate) firmware_piece_bytes: usize,
}

pub(crate) struct Base {
    pub(crate) pool: DmaPool,
    pub(crate) options: ControllerOptions,
    /// Changes twice for each start: queues compare it with the value they were created under.
    pub(crate) epoch: AtomicU64,
    /// Queue identifiers. That of the admin queue, 0, is always taken.
    pub(crate) queues: Numbers,
    pub(crate) claimed: Claimed,
    limits: Mutex<Limits>,
    /// Why commands were last ended otherwise than by the device.
    ended_by: Mutex<Option<String>>,
}

impl Base {
    /// For a controller with so many I/O queues.
    pub(crate) fn new(
        pool: DmaPool,
        options: ControllerOptions,
        epoch: u64,
        queues: usize,
        limits: Limits,
    ) -> Self {
        let numbers = Numbers::new(queues + 1);
        numbers.claim(Qid::ADMIN.0.into());
        Self {
            pool,
            options,
            epoch: AtomicU64::new(epoch),
            queues: numbers,
            claimed: Claimed::default(),
            limits: Mutex::new(limits),
            ended_by: Mutex::new(None),
        }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.options.clock
    }

    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        // Acquire: pairs with the Release of whoever changed it.
        self.epoch.load(Ordering::Acquire)
    }

    /// As [`crate::Controller::ended_by`].
    pub(crate) fn ended_by(&self) -> Option<String> {
        lock(&self.ended_by).clone()
    }

    /// Commands are about to be ended, for a reason.
    pub(crate) fn note_end(&self, why: String) {
        *lock(&self.ended_by) = Some(why);
    }

    pub(crate) fn limits(&self) -> Limits {
        *lock(&self.limits)
    }

    pub(crate) fn set_limits(&self, limits: Limits) {
        *lock(&self.limits) = limits;
    }

    /// I/O queues that there can be.
    pub(crate) fn queues_max(&self) -> usize {
        self.queues.count() - 1
    }

    /// Takes the first free queue identifier from `first` on.
    pub(crate) fn take_queue(&self, first: Qid) -> Option<Qid> {
        self.queues.take(first.0.into()).map(|number| Qid(number as u16))
    }

    /// Gives back what [`Base::take_queue`] took.
    pub(crate) fn return_queue(&self, qid: Qid) {
        self.queues.give_back(qid.0.into());
    }
}
