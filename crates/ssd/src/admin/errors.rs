//! Errors of commands, as the Error Information log tells them (Base 5.1.12.1.2).

use unvme_bus::lock;
use unvme_spec::identify::cns;
use unvme_spec::log_page::{ErrorInformation, lid};
use unvme_spec::status::StatusCodeType;
use unvme_spec::{Sqe, Status, admin, command, samsung_kv};

use crate::Ssd;
use crate::error_log::NONE;

/// Opcode and command set of an entry are valid.
const LOG_PAGE_VERSION: u8 = 1;
/// What Identify says by the command set in its CSI field.
const PER_COMMAND_SET: [u8; 6] = [
    cns::COMMAND_SET_NAMESPACE,
    cns::COMMAND_SET_CONTROLLER,
    cns::COMMAND_SET_ACTIVE_NAMESPACES,
    cns::COMMAND_SET_NAMESPACE_FOR_FORMAT,
    cns::COMMAND_SET_ALLOCATED_NAMESPACES,
    cns::COMMAND_SET_ALLOCATED_NAMESPACE,
];

impl Ssd {
    /// Records a failed command; returns the status to complete it with, which says that the log has more.
    ///
    /// The outcome of a comparison, that a key is there or not, and the end of an iteration are answers and
    /// not faults: they would only push errors out of the log. So is that a command set is not there, which
    /// hosts ask for with each of those that they know.
    #[cold]
    pub(crate) fn failed(&self, sqid: u16, sqe: &Sqe, status: Status) -> Status {
        if is_answer(status) || (sqid == 0 && self.is_probe(sqe)) {
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
        lock(&self.subsystem.errors).record(entry);
        status
    }

    /// An admin command that asks what a command set is like which the controller does not have.
    fn is_probe(&self, sqe: &Sqe) -> bool {
        match admin::Command::parse(sqe) {
            admin::Command::Identify(identify) => {
                PER_COMMAND_SET.contains(&identify.cns) && !self.has_command_set(identify.csi)
            }
            admin::Command::GetLogPage(get) => {
                get.lid == lid::COMMANDS_SUPPORTED && !self.has_command_set(get.csi)
            }
            _ => false,
        }
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
