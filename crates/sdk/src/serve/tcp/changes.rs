//! What happens to a server while it runs, beside its connections.

use std::cell::RefCell;
use std::time::Duration;

use unvme_bus::EventFd;

use super::admission::{AccessUpdates, Admission};
use super::devices::Served;

/// See the module.
pub(super) struct Changes<'a> {
    /// Signalled when a device was unplugged, and when there are refusals to tell of later.
    pub(super) news: &'a EventFd,
    pub(super) admission: &'a Admission<'a>,
    pub(super) updates: Option<&'a AccessUpdates>,
    /// The devices that are there.
    pub(super) served: &'a RefCell<Vec<Served>>,
    /// Name of the device that was unplugged last.
    pub(super) last_unplugged: &'a RefCell<Option<String>>,
}

impl Changes<'_> {
    /// Sees to what has happened; false when nothing is left to serve.
    pub(super) fn attend(&self) -> bool {
        self.news.drain();
        if let Some(access) = self.updates.and_then(AccessUpdates::take) {
            self.admission.update(&access);
        }
        self.admission.target.refusals().tell_left_out(false);
        self.remove_unplugged()
    }

    /// When that is to be done again though nobody asks for it.
    pub(super) fn due(&self) -> Option<Duration> {
        self.admission.target.refusals().due()
    }

    /// Ends the subsystems whose devices are gone, and gives their slots back.
    fn remove_unplugged(&self) -> bool {
        let mut served = self.served.borrow_mut();
        while let Some(at) = served.iter().position(Served::is_unplugged) {
            let device = served.remove(at);
            tracing::warn!(device = device.name, nqn = device.nqn, "unplugged, and served no more");
            self.admission.target.remove_subsystem(&device.nqn);
            self.last_unplugged.replace(Some(device.address()));
        }
        !served.is_empty()
    }
}
