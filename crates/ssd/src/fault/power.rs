//! Whether the device is there and has power, and what programs of media set off.

use std::sync::atomic::Ordering;

use unvme_bus::lock;

use super::judge::{DeviceFate, End};
use super::state::Faults;

/// Registers read as all ones, and nothing answers.
const GONE: u8 = 1 << 1;
/// There is no power: nothing is written any more.
const OFF: u8 = 1 << 2;

impl Faults {
    fn has(&self, bit: u8) -> bool {
        self.power.load(Ordering::Acquire) & bit != 0
    }

    /// True when nothing answers: the device was unplugged, or has no power.
    pub(crate) fn is_gone(&self) -> bool {
        self.has(GONE)
    }

    /// True when the power was cut: nothing is programmed any more.
    pub(crate) fn is_off(&self) -> bool {
        self.has(OFF)
    }

    /// True when the power was cut and that has been seen to: nothing is saved any more.
    pub(crate) fn is_dark(&self) -> bool {
        self.power.load(Ordering::Acquire) & (GONE | OFF) == GONE | OFF
    }

    /// Nothing answers from now on.
    pub(crate) fn set_gone(&self) {
        // SeqCst: either a controller that is being enabled sees this, or it is stopped after it has started.
        self.power.fetch_or(GONE, Ordering::SeqCst);
        self.arm();
    }

    /// There is no power from now on, and that has been seen to.
    pub(crate) fn set_dark(&self) {
        self.power.fetch_or(GONE | OFF, Ordering::AcqRel);
    }

    /// Has commands looked at only if the rules ask for it: see [`Faults::arm`].
    pub(crate) fn rearm(&self) {
        self.note(&lock(&self.rules));
    }

    /// Media is about to program `pages` pages. Returns how many of them it may: all, unless the power is cut
    /// at one of them, which is then not programmed whole and is the last that is begun. Without power it is
    /// none.
    ///
    /// May be called under any lock: what else a program sets off is put off until the engine sees to it.
    #[inline]
    pub(crate) fn programmed(&self, pages: u64) -> u64 {
        if self.counts_programs() { self.programmed_while_counting(pages) } else { pages }
    }

    #[cold]
    fn programmed_while_counting(&self, pages: u64) -> u64 {
        let mut done = 0;
        while done < pages && !self.is_off() {
            let (counted, fate) = self.count_programs(pages - done);
            done += counted;
            let Some(fate) = fate else { continue };
            let cut = matches!(fate.end, Some(End::PowerCut { .. }));
            if cut {
                self.power.fetch_or(OFF, Ordering::AcqRel);
            }
            lock(&self.pending).get_or_insert_default().merge(fate);
            self.note(&lock(&self.rules));
            if cut {
                return done - 1;
            }
        }
        done
    }

    /// What a program has set off and nobody has seen to.
    pub(crate) fn take_pending(&self) -> Option<DeviceFate> {
        let fate = lock(&self.pending).take()?;
        self.note(&lock(&self.rules));
        Some(fate)
    }
}

impl DeviceFate {
    /// Both; the power cut is the stronger end.
    fn merge(&mut self, other: Self) {
        self.events.extend(other.events);
        self.read_only |= other.read_only;
        self.end = match other.end {
            Some(End::PowerCut { .. }) => other.end,
            _ => self.end.or(other.end),
        };
    }
}
