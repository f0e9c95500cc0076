//! Saving what of the device survives the process; [`saved`](crate::saved) says when, and who locks what.

use std::sync::atomic::Ordering;

use unvme_bus::lock;
use unvme_spec::Status;

use super::Subsystem;
use crate::SsdError;
use crate::saved::{Counters, SavedState};
use crate::smart::Counted;

impl Subsystem {
    /// Makes what has changed survive. See `saved` for who may call it.
    pub(crate) fn save_state(&self) -> Result<(), Status> {
        if self.saving.is_saved() { Ok(()) } else { self.save(None) }
    }

    /// Makes everything survive, counters too. The caller holds no I/O queue.
    pub(crate) fn save_all(&self) -> Result<(), Status> {
        if self.media.store().is_read_only() {
            // Of what the device counts nothing is kept.
            return Ok(());
        }
        if self.faults.take_moved() || self.fdp.take_unsaved() {
            self.saving.changed();
        }
        self.save(Some(self.counted()))
    }

    /// Adds up what the queues of all controllers have counted since the device was made. The caller holds no
    /// I/O queue.
    pub(crate) fn counted(&self) -> Counted {
        let mut sum = *lock(&self.retired);
        for controller in self.controllers() {
            // The admin queue's own lock may be held by our caller; it counts no I/O.
            for cell in controller.queues.submission.iter().skip(1) {
                if let Some(queue) = lock(cell).as_ref() {
                    sum.add(&queue.counters, &queue.kv.counters);
                }
            }
        }
        sum
    }

    fn save(&self, counted: Option<Counted>) -> Result<(), Status> {
        if self.faults.is_dark() {
            return Err(Status::INTERNAL_ERROR);
        }
        self.saving.save(
            counted,
            |counted| {
                let (smart, kv) = {
                    let smart = lock(&self.smart);
                    (smart.saved(&counted.io), smart.kv(&counted.kv))
                };
                Counters { smart, error_count: lock(&self.errors).count(), kv }
            },
            |counters| self.store(counters),
        )
    }

    /// Writes everything to the store.
    fn store(&self, counters: &Counters) -> Result<(), Status> {
        let namespaces = self.namespaces.get();
        let features = lock(&self.features).saved();
        let firmware = lock(&self.firmware).saved();
        let namespaces = (&*namespaces, self.model());
        let state = SavedState::new(namespaces, features, firmware, counters, &self.fdp, self.media.flash())
            .with_errors(lock(&self.errors).saved())
            .with_faults(self.faults.saved());
        let text = state.to_bytes().map_err(|error| {
            tracing::error!(%error, "the device's state could not be written down");
            Status::INTERNAL_ERROR
        })?;
        let saved = self.media.store().save_state(&text);
        let is_full = saved.as_ref().is_err_and(SsdError::is_full);
        // Space does not come back at once: it is said once.
        let is_known = self.lacks_space.swap(is_full, Ordering::Relaxed) && is_full;
        saved.map_err(|error| {
            if !is_known {
                tracing::error!(%error, "the device's state could not be saved");
            }
            Status::INTERNAL_ERROR
        })
    }
}
