//! The Error Information log (Base 5.1.12.1.2).

use std::collections::VecDeque;

use unvme_bus::lock;
use unvme_spec::log_page::ErrorInformation;
use unvme_spec::status::StatusCodeType;
use unvme_spec::{Sqe, Status, command, samsung_kv};
use zerocopy::{FromBytes, IntoBytes};

use super::identify::ELPE_Z;
use super::state::{bytes_of, hexadecimal};
use crate::Ssd;

/// Bytes of an entry.
const ERROR_BYTES: usize = size_of::<ErrorInformation>();
/// Entries of the log.
pub(super) const ERROR_LOG_ENTRIES: usize = ELPE_Z as usize + 1;

/// Value of a field that concerns no queue, no command, or no parameter.
const NONE: u16 = 0xffff;
/// Opcode and command set of an entry are valid.
const LOG_PAGE_VERSION: u8 = 1;

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
    pub(super) fn saved(&self) -> Vec<String> {
        self.entries.iter().map(|entry| hexadecimal(entry.as_bytes())).collect()
    }

    /// What [`ErrorLog::saved`] has written; `None` when it is something else.
    pub(super) fn restore(saved: &[String]) -> Option<Vec<ErrorInformation>> {
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
    pub(super) fn entries(&self) -> impl Iterator<Item = &ErrorInformation> {
        self.entries.iter()
    }

    fn record(&mut self, mut entry: ErrorInformation) {
        // The count is never zero: an entry with that count is unused.
        self.count = self.count.wrapping_add(1).max(1);
        entry.error_count = self.count;
        self.entries.truncate(ERROR_LOG_ENTRIES - 1);
        self.entries.push_front(entry);
    }

    /// An error that no command is to blame for: a doorbell.
    pub(super) fn record_doorbell(&mut self) {
        let mut entry = ErrorInformation::default();
        entry.sqid = NONE;
        entry.cid = NONE;
        entry.status_phase = Status::INVALID_FIELD.raw() << 1;
        entry.parameter_location = NONE;
        self.record(entry);
    }
}

impl Ssd {
    /// Records a failed command; returns the status to complete it with, which says that the log has more.
    ///
    /// The outcome of a comparison, that a key is there or not, and the end of an iteration are answers and not faults: they
    /// would only push errors out of the log.
    #[cold]
    pub(crate) fn failed(&self, sqid: u16, sqe: &Sqe, status: Status) -> Status {
        if is_answer(status) {
            return status;
        }
        tracing::debug!(sqid, cid = sqe.cid, opcode = sqe.opcode, nsid = sqe.nsid, %status, "command failed");
        if status.kind() == Status::WRITE_TO_READ_ONLY_RANGE {
            self.note_refused_write();
        }
        let status = status.with_more();
        let mut entry = ErrorInformation::default();
        entry.sqid = sqid;
        entry.cid = sqe.cid;
        entry.status_phase = status.raw() << 1;
        entry.parameter_location = parameter_location(status);
        entry.nsid = sqe.nsid;
        entry.opcode = sqe.opcode;
        entry.version = LOG_PAGE_VERSION;
        if sqid != 0 {
            entry.csi = self.namespaces.get().csi(sqe.nsid);
            if command::io(entry.csi, sqe.opcode).is_some_and(|facts| facts.names_blocks) {
                entry.lba = sqe.cdw10_11();
            }
        }
        lock(&self.subsystem.admin.errors).record(entry);
        status
    }
}

/// True for statuses that are what a command was asked to find out.
fn is_answer(status: Status) -> bool {
    use samsung_kv::status;
    const ANSWERS: [Status; 7] = [
        Status::COMPARE_FAILURE,
        Status::ABORTED_FAILED_FUSED,
        Status::KEY_NOT_FOUND,
        Status::KEY_EXISTS,
        status::KEY_NOT_FOUND,
        status::IDEMPOTENT_STORE_FAIL,
        status::ITERATE_END,
    ];
    ANSWERS.contains(&status.kind())
}

/// Byte of the submission queue entry a status complains about, where the status alone says it.
fn parameter_location(status: Status) -> u16 {
    match status.kind() {
        Status::INVALID_OPCODE => 0,
        Status::INVALID_NAMESPACE_OR_FORMAT => 4,
        Status::PRP_OFFSET_INVALID
        | Status::INVALID_SGL_SEGMENT
        | Status::INVALID_SGL_COUNT
        | Status::DATA_SGL_LENGTH_INVALID
        | Status::SGL_DESCRIPTOR_TYPE_INVALID => 24,
        Status::LBA_OUT_OF_RANGE
        | Status::INVALID_QUEUE_IDENTIFIER
        | Status::INVALID_LOG_PAGE
        | Status::INVALID_FORMAT
        | Status::INVALID_FIRMWARE_SLOT => 40,
        Status::INVALID_QUEUE_SIZE => 42,
        Status::COMPLETION_QUEUE_INVALID | Status::INVALID_INTERRUPT_VECTOR => 46,
        _ if status.code_type() == StatusCodeType::Media => 40,
        _ => NONE,
    }
}
