//! What happens to the device as a whole: events, read-only media, fatal status, unplugging, cutting the power.

use std::sync::atomic::Ordering;

use unvme_bus::lock;
use unvme_spec::log_page::critical_warning;

use super::judge::{DeviceFate, End};
use super::state::Faults;
use crate::Ssd;
use crate::fabrics::EndReason;

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

    /// Has commands looked at only if the rules ask for it: see [`Faults::arm`].
    pub(crate) fn rearm(&self) {
        self.note(&lock(&self.rules));
    }

    /// Media is about to program `pages` pages. Returns how many of them it may: all, unless the power is cut at one
    /// of them, which is then not programmed whole and is the last that is begun. Without power it is none.
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
    fn take_pending(&self) -> Option<DeviceFate> {
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

impl Ssd {
    /// Sees to what programs of media have set off; false when nothing is answered any more.
    pub(crate) fn settle(&self) -> bool {
        self.faults.take_pending().is_none_or(|fate| self.befall(fate))
    }

    /// What happens to the device; false when nothing is answered any more. The caller may hold its queue.
    pub(super) fn befall(&self, fate: DeviceFate) -> bool {
        for event in fate.events {
            self.report(event);
        }
        if fate.read_only {
            self.media_is_read_only();
        }
        match fate.end {
            None => return true,
            Some(End::Fatal) => {
                // This controller's: the others go on.
                self.is_fatal.store(true, Ordering::Release);
                tracing::warn!(cntlid = self.cntlid, "a rule has made the controller fail");
                self.stop_serving();
                self.faults.arm();
            }
            Some(End::Unplugged) => {
                tracing::warn!("a rule has unplugged the device");
                self.vanish();
            }
            Some(End::PowerCut { seed }) => {
                self.cut_power(seed);
                self.vanish();
            }
        }
        false
    }

    /// From now on no controller of the device answers. The caller may hold its queue; who is at work on another one ends its
    /// turn before the next command.
    pub(crate) fn vanish(&self) {
        // SeqCst: either a controller that is being enabled sees this, or it is stopped below after it has started.
        self.faults.power.fetch_or(GONE, Ordering::SeqCst);
        self.faults.arm();
        self.stop_serving();
        for controller in self.subsystem.controllers() {
            controller.stop_serving();
            if let Some(association) = &controller.association {
                association.end(EndReason::DeviceGone);
            }
        }
    }

    /// The power goes. The counters of rules are saved before: they are the script's, not the device's.
    fn cut_power(&self, seed: u64) {
        if self.faults.take_moved() {
            self.subsystem.admin.changed();
        }
        if self.save_state().is_err() {
            tracing::error!("the rules' counters could not be saved before the power was cut");
        }
        self.faults.power.fetch_or(GONE | OFF, Ordering::AcqRel);
        self.namespaces.get().stores().for_each(|pairs| pairs.store.abandon());
        self.lose_what_was_not_flushed(seed);
        tracing::warn!(seed, "a rule has cut the power");
    }

    /// Without flash, media is memory or a file that keeps what was written.
    fn lose_what_was_not_flushed(&self, seed: u64) {
        if let Some(flash) = self.media.flash() {
            flash.cut_power(seed);
        }
    }

    /// Asked when the device is dropped: false when there is no power to save anything.
    pub(crate) fn is_powered(&self) -> bool {
        self.settle();
        !self.faults.is_dark()
    }

    /// Bits of Critical Warning in the SMART log that rules have set.
    pub(crate) fn fault_warnings(&self) -> u8 {
        if self.faults.is_read_only() { critical_warning::READ_ONLY } else { 0 }
    }
}
