//! What happens to the device as a whole: events, read-only media, fatal status, unplugging, cutting the
//! power.

use std::sync::atomic::Ordering;

use unvme_spec::log_page::critical_warning;

use crate::Ssd;
use crate::association::EndReason;
use crate::fault::judge::{DeviceFate, End};

impl Ssd {
    /// Sees to what programs of media have set off; false when nothing is answered any more.
    pub(crate) fn settle(&self) -> bool {
        self.faults.take_pending().is_none_or(|fate| self.apply_fate(fate))
    }

    /// What happens to the device; false when nothing is answered any more. The caller may hold its queue.
    pub(super) fn apply_fate(&self, fate: DeviceFate) -> bool {
        for event in fate.events {
            self.subsystem.report(event);
        }
        if fate.read_only {
            self.subsystem.media_is_read_only();
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

    /// From now on no controller of the device answers. The caller may hold its queue; who is at work on
    /// another one ends its turn before the next command.
    pub(crate) fn vanish(&self) {
        self.faults.set_gone();
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
            self.subsystem.saving.changed();
        }
        if self.subsystem.save_state().is_err() {
            tracing::error!("the rules' counters could not be saved before the power was cut");
        }
        self.faults.set_dark();
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
