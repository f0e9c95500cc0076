//! The simulated power cut: what a device that loses its power loses, and nothing else.
//!
//! The program under way is torn: half of its data is there, and no record of it. Of what was programmed and
//! deallocated since the last flush any part is lost, as a seed says. Nothing is written any more until the
//! store is opened again.
//!
//! Pairs lie in the identity area, which the layer does not write: they stay, flushed or not, as after a
//! process that was killed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use unvme_bus::lock;

use crate::fault::Faults;
use crate::store::CHUNK_BYTES;

use super::Flash;
use super::chip::Books;
use super::record::Record;

/// Whether there is power, and for how long.
#[derive(Default)]
pub(super) struct Power {
    /// One of the others is to be looked at.
    is_alert: AtomicBool,
    is_off: AtomicBool,
    /// What was not flushed has been lost.
    has_lost: AtomicBool,
    /// Rules for faults, which may let the power fail at a program.
    faults: OnceLock<Arc<Faults>>,
    /// Programs that are left before the cut; 0 when none is planned.
    countdown: AtomicU64,
    seed: AtomicU64,
}

/// What a program may do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Permit {
    /// All of it.
    Whole,
    /// Half of it: the power fails meanwhile.
    Half,
    /// Nothing.
    None,
}

impl Power {
    /// True when nothing is written any more.
    #[inline]
    pub(super) fn is_off(&self) -> bool {
        self.is_alert.load(Ordering::Relaxed) && self.is_off.load(Ordering::Acquire)
    }

    /// Asked once for each program, with the write lock held.
    #[inline]
    pub(super) fn permit(&self) -> Permit {
        let is_watched = self.faults.get().is_some_and(|faults| faults.counts_programs());
        if is_watched || self.is_alert.load(Ordering::Relaxed) { self.count() } else { Permit::Whole }
    }

    #[cold]
    fn count(&self) -> Permit {
        if self.is_off.load(Ordering::Acquire) {
            return Permit::None;
        }
        if self.faults.get().is_some_and(|faults| faults.programmed(1) == 0) {
            return Permit::Half;
        }
        let left = self.countdown.load(Ordering::Relaxed);
        self.countdown.store(left.saturating_sub(1), Ordering::Relaxed);
        if left == 1 { Permit::Half } else { Permit::Whole }
    }
}

impl Flash {
    /// Rules for faults are told of each program, and say when the power fails. What is lost then says
    /// [`Flash::cut_power`], which follows.
    pub(crate) fn obey(&self, faults: Arc<Faults>) {
        let already = self.power.faults.set(faults);
        debug_assert!(already.is_ok(), "a device has one set of rules");
    }

    /// Plans a power cut: the `programs`th program from now on, counted from 1, is the one it happens in.
    /// `seed` says what is lost. 0 takes the plan back.
    pub(crate) fn plan_power_cut(&self, programs: u64, seed: u64) {
        let _nobody_writes = lock(&self.inner);
        self.power.seed.store(seed | 1, Ordering::Relaxed);
        self.power.countdown.store(programs, Ordering::Relaxed);
        self.power.is_alert.store(true, Ordering::Relaxed);
    }

    /// Cuts the power now. See the module.
    pub(crate) fn cut_power(&self, seed: u64) {
        let mut inner = lock(&self.inner);
        self.power.seed.store(seed, Ordering::Relaxed);
        self.lose(&mut inner.books);
    }

    /// True after a power cut.
    pub(crate) fn has_lost_power(&self) -> bool {
        self.power.is_off()
    }

    /// The power has failed in the middle of a program.
    #[cold]
    pub(super) fn power_failed(&self, books: &mut Books) {
        self.power.is_off.store(true, Ordering::Release);
        self.power.is_alert.store(true, Ordering::Relaxed);
        if self.power.seed.load(Ordering::Relaxed) != 0 {
            self.lose(books);
        }
    }

    /// The power is gone: forgets what a drive may forget.
    #[cold]
    fn lose(&self, books: &mut Books) {
        self.power.is_off.store(true, Ordering::Release);
        self.power.is_alert.store(true, Ordering::Relaxed);
        if self.power.has_lost.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(memory) = self.memory().filter(|_| self.persists) else { return };
        let mut random = self.power.seed.load(Ordering::Relaxed) | 1;
        let mut below = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 33) % bound
        };
        // From nothing at all to everything.
        let odds = below(5);
        let secret = books.superblock.secret;
        for ppn in 0..self.layout.physical_pages as u32 {
            let at = self.layout.record(ppn);
            if self.backing.is_reserved(at / CHUNK_BYTES)
                && Record::read(memory, at, secret, ppn).is_some_and(|record| record.sequence > books.durable)
                && below(4) < odds
            {
                memory.write_words(at as usize, [0; 4]);
            }
        }
        books.journal.forget_some(memory, &self.layout, |_| below(4) < odds);
    }
}
