//! The entries of the Error Information log (Base 5.1.12.1.2).

use std::collections::VecDeque;

use unvme_spec::Status;
use unvme_spec::log_page::ErrorInformation;
use zerocopy::{FromBytes, IntoBytes};

use crate::hex::{bytes_of, hexadecimal};

/// Entries of the Error Information log, zero-based.
pub(crate) const ELPE_Z: u8 = 63;
/// Bytes of an entry.
const ERROR_BYTES: usize = size_of::<ErrorInformation>();
pub(crate) const ERROR_LOG_ENTRIES: usize = ELPE_Z as usize + 1;

/// Value of a field that concerns no queue, no command, or no parameter.
pub(crate) const NONE: u16 = 0xffff;
/// The most recent errors, newest first.
pub(crate) struct ErrorLog {
    entries: VecDeque<ErrorInformation>,
    count: u64,
}

impl ErrorLog {
    /// The log of a device that has had `count` errors before, the last of which are `entries`, newest first.
    pub(crate) fn new(count: u64, entries: Vec<ErrorInformation>) -> Self {
        Self { entries: entries.into(), count }
    }

    /// The entries as they are saved: 128 hexadecimal digits each.
    pub(crate) fn saved(&self) -> Vec<String> {
        self.entries.iter().map(|entry| hexadecimal(entry.as_bytes())).collect()
    }

    /// What [`ErrorLog::saved`] has written; `None` when it is something else.
    pub(crate) fn restore(saved: &[String]) -> Option<Vec<ErrorInformation>> {
        if saved.len() > ERROR_LOG_ENTRIES {
            return None;
        }
        let read =
            |digits: &String| ErrorInformation::read_from_bytes(&bytes_of::<ERROR_BYTES>(digits)?).ok();
        saved.iter().map(read).collect()
    }

    /// Errors over the life of the device.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The entries in the order of the log page.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &ErrorInformation> {
        self.entries.iter()
    }

    pub(crate) fn record(&mut self, mut entry: ErrorInformation) {
        // The count is never zero: an entry with that count is unused.
        self.count = self.count.wrapping_add(1).max(1);
        entry.error_count = self.count;
        self.entries.truncate(ERROR_LOG_ENTRIES - 1);
        self.entries.push_front(entry);
    }

    /// An error that no command is to blame for: a doorbell.
    pub(crate) fn record_doorbell(&mut self) {
        let mut entry = ErrorInformation::default();
        entry.sqid = NONE;
        entry.cid = NONE;
        entry.status_phase = Status::INVALID_FIELD.raw() << 1;
        entry.parameter_location = NONE;
        self.record(entry);
    }
}
