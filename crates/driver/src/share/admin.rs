//! What becomes of a client's admin command.
//!
//! | command | |
//! |---|---|
//! | Create and Delete I/O Queue | to the drive, once address, identifier and vector are the client's own |
//! | Asynchronous Event Request | held here; completed with what the drive reports to the holder |
//! | Abort | goes to the drive for the client's own I/O queues; nothing else is aborted |
//! | Set Features: Number of Queues, Asynchronous Event Configuration | answered here |
//! | Set Features: another I/O Command Set Profile than the holder's | Feature Not Changeable |
//! | Set Features of vectors, host memory or the connection | Feature Not Changeable |
//! | Keep Alive | done: the connection tells whether a client lives |
//! | Doorbell Buffer Config, Virtualization Management, Fabrics | Invalid Command Opcode |
//! | everything else | goes to the drive as it is |

use unvme_bus::space::{Direction, View};
use unvme_spec::admin::{Command, CreateIoCq, CreateIoSq, QueuePriority, SetFeatures, opcode};
use unvme_spec::feature::{Arbitration, NumberOfQueues, Select, fid};
use unvme_spec::{Cqe, Sqe, Status};

use super::queues::Queues;
use super::rings::is_mapped;
use crate::pcie::PcieDevice;

/// Asynchronous Event Requests a client may have outstanding.
const EVENT_REQUESTS_MAX: usize = 16;
/// Abort, dword 0 of the completion: the command was not aborted.
const NOT_ABORTED: u64 = 1;

/// What to do when the drive has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    /// A queue has been created, or not.
    Created {
        qid: u16,
        is_completion: bool,
    },
    /// A queue has been deleted, or not.
    Deleted {
        qid: u16,
        is_completion: bool,
    },
}

/// What becomes of a command.
pub(super) enum Action {
    /// It is answered here.
    Answer(Status, u64),
    /// It waits for an event.
    Hold,
    /// It goes to the drive.
    Forward(Sqe, Effect),
}

/// What a decision depends on, and may change.
pub(super) struct Context<'a> {
    pub(super) device: &'a PcieDevice,
    pub(super) view: &'a View,
    pub(super) queues: &'a mut Queues,
    /// Asynchronous Event Requests that are held.
    pub(super) held: usize,
    /// Asynchronous Event Configuration.
    pub(super) events: &'a mut u32,
    /// The client has chosen weighted round robin.
    pub(super) is_weighted: bool,
}

impl Context<'_> {
    /// Decides about one command.
    pub(super) fn decide(&mut self, sqe: Sqe) -> Action {
        let outcome = match Command::parse(&sqe) {
            Command::CreateIoCq(create) => self.create_completion(sqe, &create),
            Command::CreateIoSq(create) => self.create_submission(sqe, &create),
            Command::DeleteIoCq { qid } => self
                .queues
                .remove(qid, true)
                .map(|()| Action::Forward(sqe, Effect::Deleted { qid: qid.0, is_completion: true })),
            Command::DeleteIoSq { qid } => self
                .queues
                .remove(qid, false)
                .map(|()| Action::Forward(sqe, Effect::Deleted { qid: qid.0, is_completion: false })),
            Command::AsyncEventRequest if self.held >= EVENT_REQUESTS_MAX => Err(Status::AER_LIMIT_EXCEEDED),
            Command::AsyncEventRequest => Ok(Action::Hold),
            // Admin commands travel under identifiers of the holder, and other queues are not the client's.
            Command::Abort { sqid, .. } if !self.queues.has_submission(sqid) => {
                Ok(Action::Answer(Status::SUCCESS, NOT_ABORTED))
            }
            Command::SetFeatures(set) => Ok(self.set_features(sqe, &set)),
            Command::GetFeatures(get)
                if get.fid == fid::ASYNC_EVENT_CONFIGURATION && get.select == Select::Current =>
            {
                Ok(Action::Answer(Status::SUCCESS, u64::from(*self.events)))
            }
            Command::KeepAlive => Ok(Action::Answer(Status::SUCCESS, 0)),
            Command::Unknown(
                opcode::DOORBELL_BUFFER_CONFIG | opcode::VIRTUALIZATION_MANAGEMENT | opcode::FABRICS,
            ) => Err(Status::INVALID_OPCODE),
            _ => Ok(Action::Forward(sqe, Effect::None)),
        };
        outcome.unwrap_or_else(|status| Action::Answer(status.with_do_not_retry(), 0))
    }

    fn create_completion(&mut self, sqe: Sqe, create: &CreateIoCq) -> Result<Action, Status> {
        self.check_queue(&sqe, create.contiguous, create.size, size_of::<Cqe>(), Direction::Write)?;
        let vector = self.queues.add_completion(create.qid, create.size, create.interrupt)?;
        // The same command with the drive's vector in place of the client's.
        let rewritten = Command::CreateIoCq(CreateIoCq { interrupt: vector, ..*create }).encode();
        let sqe = Sqe { cdw10: rewritten.cdw10, cdw11: rewritten.cdw11, ..sqe };
        Ok(Action::Forward(sqe, Effect::Created { qid: create.qid.0, is_completion: true }))
    }

    fn create_submission(&mut self, sqe: Sqe, create: &CreateIoSq) -> Result<Action, Status> {
        self.check_queue(&sqe, create.contiguous, create.size, size_of::<Sqe>(), Direction::Read)?;
        self.queues.add_submission(create.qid, create.size, create.cqid)?;
        // The drive may weigh what the client does not.
        let priority = if self.is_weighted { create.priority } else { QueuePriority::Medium };
        let rewritten = Command::CreateIoSq(CreateIoSq { priority, ..*create }).encode();
        let sqe = Sqe { cdw10: rewritten.cdw10, cdw11: rewritten.cdw11, ..sqe };
        Ok(Action::Forward(sqe, Effect::Created { qid: create.qid.0, is_completion: false }))
    }

    /// A queue is one range of the client's memory: the drive would write completions wherever it is told.
    fn check_queue(
        &self,
        sqe: &Sqe,
        contiguous: bool,
        entries: u32,
        entry_bytes: usize,
        direction: Direction,
    ) -> Result<(), Status> {
        let [address, _] = sqe.dptr;
        let most = u32::from(self.device.cap.mqes_z()).saturating_add(1);
        if entries < 2 || entries > most {
            return Err(Status::INVALID_QUEUE_SIZE);
        }
        let bytes = u64::from(entries).saturating_mul(entry_bytes as u64);
        if !contiguous || !address.is_multiple_of(4096) {
            return Err(Status::INVALID_FIELD);
        }
        if !is_mapped(self.view, address, bytes, direction) {
            return Err(Status::DATA_TRANSFER_ERROR);
        }
        Ok(())
    }

    fn set_features(&mut self, sqe: Sqe, set: &SetFeatures) -> Action {
        let refused = Action::Answer(Status::FEATURE_NOT_CHANGEABLE.with_do_not_retry(), 0);
        match set.fid {
            fid::NUMBER_OF_QUEUES => {
                // All identifiers the drive has: which of them are free shows when queues are created.
                let all = u16::try_from(self.device.base.queues_max()).unwrap_or(u16::MAX);
                let all_z = all.saturating_sub(1);
                let granted = NumberOfQueues::new().with_submission_z(all_z).with_completion_z(all_z);
                Action::Answer(Status::SUCCESS, u64::from(granted.into_bits()))
            }
            fid::ASYNC_EVENT_CONFIGURATION => {
                *self.events = set.cdw11;
                Action::Answer(Status::SUCCESS, 0)
            }
            fid::IO_COMMAND_SET_PROFILE if set.cdw11 == self.device.profile() => {
                Action::Answer(Status::SUCCESS, 0)
            }
            fid::IO_COMMAND_SET_PROFILE
            | fid::INTERRUPT_COALESCING
            | fid::INTERRUPT_VECTOR_CONFIGURATION
            | fid::HOST_MEMORY_BUFFER
            | fid::KEEP_ALIVE_TIMER
            | fid::HOST_BEHAVIOR_SUPPORT => refused,
            fid::ARBITRATION => {
                // The drive's, after its resets as well.
                self.device.keep_arbitration(Arbitration::from_bits(set.cdw11));
                Action::Forward(sqe, Effect::None)
            }
            _ => Action::Forward(sqe, Effect::None),
        }
    }
}

/// The command that deletes a queue.
pub(super) fn delete(qid: u16, is_completion: bool) -> Sqe {
    let qid = unvme_spec::Qid(qid);
    match is_completion {
        true => Command::DeleteIoCq { qid }.encode(),
        false => Command::DeleteIoSq { qid }.encode(),
    }
}
