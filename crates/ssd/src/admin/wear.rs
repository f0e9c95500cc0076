//! How worn the flash is, as SMART and the endurance group's log page say it. Memory that is no flash does
//! not wear out.

use std::sync::atomic::Ordering;

use unvme_flash::PAGE_BYTES;
use unvme_spec::log_page::critical_warning;

use crate::Ssd;
use crate::smart::{SPARE_THRESHOLD_PERCENT, Wear};

impl Ssd {
    pub(super) fn wear(&self) -> Wear {
        let Some(flash) = self.media.flash() else {
            return Wear {
                spare_percent: 100,
                is_read_only: false,
                used_percent: 0,
                media_bytes: 0,
                endurance_bytes: 0,
            };
        };
        let stats = flash.stats();
        let physical =
            u128::from(stats.config.units) * u128::from(stats.config.unit_pages) * u128::from(PAGE_BYTES);
        Wear {
            spare_percent: stats.spare_percent,
            is_read_only: stats.is_read_only,
            used_percent: u8::try_from(stats.used_percent).unwrap_or(u8::MAX),
            media_bytes: stats.ftl.media_bytes() + self.fdp.counted_before().media_bytes(),
            endurance_bytes: physical * u128::from(stats.config.endurance.unwrap_or(0)),
        }
    }

    /// A write was refused. When that is because the flash is worn out, the host hears of it once.
    #[cold]
    pub(super) fn note_refused_write(&self) {
        let is_read_only = self.media.flash().is_some_and(|flash| flash.stats().is_read_only);
        if is_read_only && !self.subsystem.worn_out.swap(true, Ordering::Relaxed) {
            self.subsystem.media_is_read_only();
        }
    }

    /// Critical warnings that come from wear: little spare is left, more has been written than flash lasts
    /// for, or nothing can be written any more.
    pub(super) fn wear_warnings(&self) -> u8 {
        let wear = self.wear();
        let spare = if wear.spare_percent < SPARE_THRESHOLD_PERCENT { critical_warning::SPARE } else { 0 };
        let degraded = if wear.used_percent >= 100 { critical_warning::RELIABILITY } else { 0 };
        let read_only = if wear.is_read_only { critical_warning::READ_ONLY } else { 0 };
        spare | degraded | read_only
    }
}
