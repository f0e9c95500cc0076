//! What the translation layer does, and when something is to be done about it.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use unvme_bus::{Clock, lock};
use unvme_flash::ftl::{Ftl, Opened, Placement, StreamInfo, UnitState};
use unvme_flash::timing::OpList;
use unvme_spec::fdp::Event;
use unvme_spec::feature::Timestamp;

use super::{Fdp, NEVER};
use crate::flash::{Flash, Note, Shape};

/// Events are saved by the next Flush, and without one when this time has passed since the first one that is
/// not: a process that is killed loses those of one second at most.
const SAVE_AFTER_NS: u64 = 1_000_000_000;

/// What a layer's units that are not free were opened as.
fn units_in_use(ftl: &Ftl) -> Vec<Opened> {
    let config = ftl.config();
    let per_group = config.units / u32::from(config.groups);
    let opened = |number: u32| {
        let unit = ftl.unit(number);
        if unit.state == UnitState::Free {
            return None;
        }
        let StreamInfo { handle, is_destination, .. } = ftl.stream(unit.stream);
        let group = (number / per_group) as u16;
        Some(Opened { unit: number, group, handle, is_destination, stream: unit.stream })
    };
    (0..config.units).filter_map(opened).collect()
}

impl Fdp {
    /// Makes the flash leave notes, if FDP is enabled.
    pub(crate) fn start_watching(&self, flash: &Flash) {
        if self.enabled().is_none() {
            return flash.watch().stop();
        }
        flash.with(&mut OpList::default(), |ftl, _| {
            let config = ftl.config();
            let shape = Shape { unit_pages: config.unit_pages, groups: config.groups };
            let units = units_in_use(ftl);
            let note = |&opened: &Opened| {
                let at = shape.host_stream(opened)?;
                let is_open = ftl.open_unit(at).is_some_and(|open| open.unit == opened.unit);
                is_open.then_some(Note::Opened { at, unit: opened.unit })
            };
            let open = units.iter().filter_map(note).collect();
            flash.watch().start(shape, units, open);
        });
        flash.watch().want_moves(self.wants_moves());
    }

    /// FDP is enabled: notes and time limits are to be looked after.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Events have been recorded that have no time yet.
    pub(crate) fn has_unstamped(&self) -> bool {
        self.unstamped.load(Ordering::Relaxed)
    }

    /// A time limit is over, or events have to be saved. The clock is read only where there is one of these
    /// to come.
    pub(crate) fn is_due(&self, clock: &Clock) -> bool {
        let due = self.due.load(Ordering::Relaxed);
        due != NEVER && {
            let now = clock.now();
            self.note_time(now);
            now >= due
        }
    }

    pub(crate) fn note_time(&self, now: u64) {
        self.latest.store(now, Ordering::Relaxed);
    }

    /// The latest clock reading.
    pub(crate) fn latest(&self) -> u64 {
        self.latest.load(Ordering::Relaxed)
    }

    /// Held by who turns notes into events; `None` while somebody else does, for all.
    pub(crate) fn try_attend(&self) -> Option<MutexGuard<'_, ()>> {
        self.attending.try_lock().ok()
    }

    pub(crate) fn opened(&self, at: Placement, unit: u32, now: u64) {
        lock(&self.state).open.opened(at, unit, now);
    }

    pub(crate) fn closed(&self, at: Placement) {
        lock(&self.state).open.closed(at);
    }

    pub(crate) fn take_expired(&self, now: u64) -> Vec<(Placement, u32)> {
        lock(&self.state).open.take_expired(now)
    }

    /// Records an event that is not known to be of one reclaim unit handle, when it is wanted for any.
    pub(crate) fn record_for_any(&self, event: Event) {
        let mut state = lock(&self.state);
        if state.current.iter().any(|set| set.contains(event.event_type)) {
            self.put(&mut state, event);
        }
    }

    /// Gives events their time, and looks when this is to be done again. True when events have to be saved
    /// now.
    pub(crate) fn settle(&self, now: u64, timestamp: Timestamp) -> bool {
        if self.unstamped.load(Ordering::Relaxed) {
            self.stamp(timestamp);
            lock(&self.state).unsaved_since.get_or_insert(now);
        }
        let state = lock(&self.state);
        let save_at = state.unsaved_since.map(|since| since.saturating_add(SAVE_AFTER_NS));
        let next = [state.open.next_expiry(), save_at].into_iter().flatten().min();
        self.due.store(next.unwrap_or(NEVER), Ordering::Relaxed);
        drop(state);
        save_at.is_some_and(|at| at <= now) && self.take_unsaved()
    }
}
