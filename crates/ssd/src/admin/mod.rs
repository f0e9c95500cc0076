//! The admin command set.
//!
//! | module | commands |
//! |---|---|
//! | `queues` | Create and Delete I/O Submission and Completion Queue |
//! | `identify` | Identify |
//! | `features`, `command_sets` | Get and Set Features, and which I/O command sets are enabled |
//! | `logs`, `errors`, `effects` | Get Log Page, the Error Information log, what is supported |
//! | `vendor_logs`, `placement_logs` | logs of KV SSDs and of Flexible Data Placement |
//! | `wear` | how worn the flash is |
//! | `directives` | Directive Send and Receive |
//! | `remote` | what a controller has and says whose host is reached over a network |
//! | `events` | Asynchronous Event Request, Abort |
//! | `namespaces` | Namespace Management and Attachment, Format NVM |
//! | `claims` | Claim Send and Claim Receive |
//! | `firmware` | Firmware Image Download and Commit |

mod claims;
mod command_sets;
mod directives;
mod effects;
mod errors;
mod events;
mod features;
mod firmware;
mod identify;
mod logs;
mod namespaces;
mod placement;
mod placement_logs;
mod queues;
mod remote;
mod vendor_logs;
mod wear;

use std::sync::MutexGuard;

use unvme_bus::space::Direction;
use unvme_bus::{Clock, lock};
use unvme_spec::regs::Cc;
use unvme_spec::sgl::Descriptor;
use unvme_spec::{DataPointerKind, Fuse, Sqe, Status, admin};

use crate::Ssd;
use crate::association::ResetScope;
use crate::dptr::DataPointer;
use crate::features::HotFeatures;
use crate::firmware::Download;
use crate::queue::SubmissionQueue;
use crate::reply::Reply;

/// What an admin command is answered with.
pub(crate) enum Answer {
    /// At once.
    Now(Result<Reply, Status>),
    /// When something happens (Asynchronous Event Request).
    Later,
}

/// Lengths in bytes of an answer with data.
#[derive(Clone, Copy)]
struct Lengths {
    /// Transfer length of the command: the layout of the host's buffer follows from it.
    asked: usize,
    /// Bytes that are written to the host, at most `asked`.
    moved: usize,
}

impl Ssd {
    /// The controller has been enabled.
    pub(crate) fn admin_enabled(&self, cc: Cc) {
        *lock(&self.configuration) = cc;
        lock(&self.subsystem.smart).set_shut_down(false);
        // From now on the end of the process without a shutdown is an unsafe one: the store has to know.
        // That it cannot be saved is told where it is noticed; the device works all the same.
        let _ = self.subsystem.save_all();
    }

    /// All queues are gone: what a reset ends and restores. What belongs to other controllers as well stays
    /// as it is while one of them is enabled.
    pub(crate) fn reset_admin(&self, scope: ResetScope) {
        self.events.reset();
        self.release_claims();
        let is_alone = self.is_alone();
        let saved = {
            let mut shared = lock(&self.subsystem.features);
            if is_alone {
                shared.reset();
            }
            shared.saved_values()
        };
        let features = {
            let mut features = lock(&self.features);
            features.reset(saved);
            HotFeatures::new(&features)
        };
        self.hot.replace(&features);
        if scope == ResetScope::Subsystem {
            self.close_units_at_reset();
        }
        if is_alone {
            self.reset_placement();
        }
        self.configure_pairs();
        self.close_iterators();
        *lock(&self.download) = Download::default();
        let activated = lock(&self.subsystem.firmware).reset();
        if activated {
            self.subsystem.saving.changed();
            self.subsystem.firmware_activated_by_reset(self.cntlid);
        }
        let _ = self.subsystem.save_all();
        tracing::debug!(?scope, serial = self.config.serial, cntlid = self.cntlid, "controller reset");
    }

    /// Held while a command changes what controllers share in more than one step.
    fn alone_for(&self, sqe: &Sqe, command: &admin::Command) -> Option<MutexGuard<'_, ()>> {
        let changes = Self::is_claim_command(sqe)
            || matches!(
                command,
                admin::Command::NamespaceManagement(_)
                    | admin::Command::NamespaceAttachment(_)
                    | admin::Command::FormatNvm(_)
                    | admin::Command::SetFeatures(_)
                    | admin::Command::FirmwareCommit(_)
            );
        changes.then(|| lock(&self.subsystem.changing))
    }

    /// Executes one admin command. The admin submission queue is the caller's; no completion queue is locked.
    pub(crate) fn execute_admin(&self, sq: &mut SubmissionQueue, sqe: &Sqe, clock: &Clock) -> Answer {
        lock(&self.subsystem.smart).tick(clock.now());
        // Admin commands are never fused. Over PCIe their data pointer is PRPs, over a network it is an SGL,
        // of which is left here where the data was received (Base 3.3.3.1, PSDT).
        let expected = if self.association.is_some() { DataPointerKind::Sgl } else { DataPointerKind::Prp };
        if sqe.fuse() != Fuse::Normal || sqe.data_pointer_kind() != expected {
            return Answer::Now(Err(Status::INVALID_FIELD.with_do_not_retry()));
        }
        let command = admin::Command::parse(sqe);
        if matches!(command, admin::Command::AsyncEventRequest) {
            return self.async_event_request(sqe.cid);
        }
        let _alone = self.alone_for(sqe, &command);
        Answer::Now(match command {
            admin::Command::Identify(identify) => self.identify(sq, sqe, identify),
            admin::Command::GetLogPage(get) => self.get_log_page(sq, sqe, get, clock),
            admin::Command::GetFeatures(get) => self.get_features(sq, sqe, get, clock),
            admin::Command::DirectiveReceive(receive) => self.directive_receive(sq, sqe, receive),
            _ if self.is_fault_command(sqe) => self.fault_command(sq, sqe),
            _ if Self::is_claim_command(sqe) => self.claim_command(sq, sqe),
            other => self.execute_sending_nothing(sq, sqe, other, clock).map(Reply::of),
        })
    }

    /// Executes an admin command that sends no data to the host; returns dwords 0 and 1 of its completion.
    fn execute_sending_nothing(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        command: admin::Command,
        clock: &Clock,
    ) -> Result<u64, Status> {
        match command {
            // Queues come with Connect and go with their connections.
            admin::Command::CreateIoCq(_)
            | admin::Command::CreateIoSq(_)
            | admin::Command::DeleteIoCq { .. }
            | admin::Command::DeleteIoSq { .. }
                if self.association.is_some() =>
            {
                Err(Status::INVALID_OPCODE.with_do_not_retry())
            }
            admin::Command::KeepAlive if self.association.is_some() => Ok(0),
            admin::Command::CreateIoCq(create) => self.create_io_cq(sq, sqe, create),
            admin::Command::CreateIoSq(create) => self.create_io_sq(sq, sqe, create),
            admin::Command::DeleteIoCq { qid } => self.delete_io_cq(qid),
            admin::Command::DeleteIoSq { qid } => self.delete_io_sq(qid),
            admin::Command::SetFeatures(set) => self.set_features(sq, sqe, set, clock),
            admin::Command::Abort { sqid, cid } => self.abort(sqid, cid),
            admin::Command::NamespaceManagement(manage) => self.namespace_management(sq, sqe, manage),
            admin::Command::NamespaceAttachment(attach) => self.namespace_attachment(sq, sqe, attach),
            admin::Command::DirectiveSend(send) => self.directive_send(send),
            admin::Command::FormatNvm(format) => self.format_nvm(format),
            admin::Command::FirmwareDownload(download) => self.firmware_download(sq, sqe, download),
            admin::Command::FirmwareCommit(commit) => self.firmware_commit(commit),
            _ => Err(Status::INVALID_OPCODE.with_do_not_retry()),
        }
    }

    /// Sends `data` to a host that asks for `asked` bytes, as much of it as that is. A shorter answer leaves
    /// the rest of the host's buffer alone at a bus; a host at a network gets zeroes there, as far as its SGL
    /// has space for them.
    pub(crate) fn send(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        data: &[u8],
        asked: usize,
    ) -> Result<Reply, Status> {
        let bytes = data.len().min(asked);
        if self.association.is_some() {
            let space = Descriptor::from_dptr(sqe.dptr).length as usize;
            return self.send_padded(sq, sqe, data, bytes.max(asked.min(space)));
        }
        self.transfer(sq, sqe, data, Lengths { asked, moved: bytes })
    }

    /// Sends all of `data`, for a command whose fields state no length: its transfer is as long as its data
    /// structure. At a network the rest of what the host has space for is filled with zeroes.
    pub(crate) fn send_whole(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        data: &[u8],
    ) -> Result<Reply, Status> {
        let space = Descriptor::from_dptr(sqe.dptr).length as usize;
        let bytes = if self.association.is_some() { data.len().max(space) } else { data.len() };
        self.send_padded(sq, sqe, data, bytes)
    }

    /// Sends `bytes` bytes, which are the transfer length: as much of `data` as that is, and zeroes behind
    /// its end.
    pub(crate) fn send_padded(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        data: &[u8],
        bytes: usize,
    ) -> Result<Reply, Status> {
        self.transfer(sq, sqe, data, Lengths { asked: bytes, moved: bytes })
    }

    /// Copies `data`, and zeroes behind its end, to the first `moved` bytes of a buffer of `asked`. Nothing
    /// is copied before every piece of host memory has been found.
    fn transfer(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        data: &[u8],
        lengths: Lengths,
    ) -> Result<Reply, Status> {
        let Lengths { asked, moved } = lengths;
        self.check_admin_transfer(asked)?;
        let (host, page_bytes, direction) = (&sq.host, sq.page_bytes, Direction::Write);
        DataPointer { host, sqe, page_bytes, bytes: asked, direction }.walk_first(moved, &mut sq.pieces)?;
        if moved > data.len() {
            sq.pieces.iter().for_each(|&place| sq.host.region(place).fill(place.offset, place.bytes, 0));
        }
        DataPointer::scatter(&sq.host, &sq.pieces, data);
        Ok(Reply::sending(moved as u32))
    }

    /// Fetches `bytes` of data from the host.
    pub(crate) fn receive(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        bytes: usize,
    ) -> Result<Vec<u8>, Status> {
        self.check_admin_transfer(bytes)?;
        let pointer =
            DataPointer { host: &sq.host, sqe, page_bytes: sq.page_bytes, bytes, direction: Direction::Read };
        pointer.walk(&mut sq.pieces)?;
        let mut data = vec![0; bytes];
        pointer.gather(&sq.pieces, &mut data)?;
        Ok(data)
    }

    fn check_admin_transfer(&self, bytes: usize) -> Result<(), Status> {
        match bytes as u64 <= self.transfer_bytes_max {
            true => Ok(()),
            false => Err(Status::INVALID_FIELD.with_do_not_retry()),
        }
    }
}
