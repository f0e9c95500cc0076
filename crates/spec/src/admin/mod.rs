//! Admin commands (Base 5).
//!
//! Device Self-test, security, sanitize, virtualization management and the rest are known by name
//! only: they parse as [`Command::Unknown`].

mod fields;

pub use crate::command::table::admin as opcode;
pub use crate::directive::{DirectiveReceive, DirectiveSend};
use crate::{Cid, Nsid, Qid, Sqe, feature};
use fields::{dwords_z, high, join};

/// Create I/O Submission Queue (Base 5.2.2). The base address is PRP1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreateIoSq {
    /// Queue to create.
    pub qid: Qid,
    /// Entries, 1 to 65536; the specification asks for at least 2.
    pub size: u32,
    /// Completion queue it posts to.
    pub cqid: Qid,
    /// PC: the queue is physically contiguous, PRP1 is its address rather than that of a list.
    pub contiguous: bool,
    /// QPRIO: used by weighted round robin only.
    pub priority: QueuePriority,
}

/// The priority class of a submission queue, QPRIO (Base 5.2.2, 3.4.4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueuePriority {
    /// Before all that have a weight, who may starve.
    #[default]
    Urgent,
    /// As many commands in a round as the high priority weight says.
    High,
    /// As many as the medium priority weight says.
    Medium,
    /// As many as the low priority weight says.
    Low,
}

impl QueuePriority {
    /// From the field, whose bits are the lowest two of `raw`.
    pub const fn from_raw(raw: u8) -> Self {
        match raw & 3 {
            0 => Self::Urgent,
            1 => Self::High,
            2 => Self::Medium,
            _ => Self::Low,
        }
    }

    /// The two bits of the field.
    pub const fn raw(self) -> u8 {
        self as u8
    }
}

/// Create I/O Completion Queue (Base 5.2.1). The base address is PRP1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreateIoCq {
    /// Queue to create.
    pub qid: Qid,
    /// Entries, 1 to 65536; the specification asks for at least 2.
    pub size: u32,
    /// PC: the queue is physically contiguous, PRP1 is its address rather than that of a list.
    pub contiguous: bool,
    /// Interrupt vector; `None` clears IEN, interrupts enabled.
    pub interrupt: Option<u16>,
}

/// Get Log Page (Base 5.1.12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GetLogPage {
    /// Namespace, where the log page has a scope of one; otherwise 0 or [`Nsid::ALL`].
    pub nsid: Nsid,
    /// Log Page Identifier, see [`crate::log_page::lid`].
    pub lid: u8,
    /// Log Specific Parameter, 7 bits.
    pub lsp: u8,
    /// RAE: reading this page does not clear its asynchronous event.
    pub retain_async_event: bool,
    /// Length in dwords, 1 to 2^32: NUMDU and NUMDL joined.
    pub dwords: u64,
    /// Log Specific Identifier.
    pub lsi: u16,
    /// Where to start: a byte offset, or an index when `offset_is_index`.
    pub offset: u64,
    /// OT: `offset` counts entries instead of bytes.
    pub offset_is_index: bool,
    /// Command Set Identifier.
    pub csi: u8,
    /// UUID Index, 7 bits.
    pub uuid_index: u8,
}

impl GetLogPage {
    /// Length of the transfer in bytes.
    pub const fn bytes(&self) -> u64 {
        self.dwords * 4
    }
}

/// Identify (Base 5.1.13). The data is 4096 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identify {
    /// Namespace, or where a list starts.
    pub nsid: Nsid,
    /// Controller or Namespace Structure, see [`crate::identify::cns`].
    pub cns: u8,
    /// Controller identifier.
    pub cntid: u16,
    /// Command Set Identifier, see [`crate::identify::csi`].
    pub csi: u8,
    /// CNS Specific Identifier.
    pub cns_specific: u16,
    /// UUID Index, 7 bits.
    pub uuid_index: u8,
}

/// Set Features (Base 5.1.25).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetFeatures {
    /// Namespace, for features that have a value per namespace.
    pub nsid: Nsid,
    /// Feature identifier, see [`feature::fid`].
    pub fid: u8,
    /// SV: the value also survives power cycles and resets.
    pub save: bool,
    /// The value: command dword 11.
    pub cdw11: u32,
    /// Command dword 12.
    pub cdw12: u32,
    /// Command dword 13.
    pub cdw13: u32,
    /// Command dword 15.
    pub cdw15: u32,
    /// UUID Index, 7 bits of command dword 14.
    pub uuid_index: u8,
}

/// Get Features (Base 5.1.11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GetFeatures {
    /// Namespace, for features that have a value per namespace.
    pub nsid: Nsid,
    /// Feature identifier, see [`feature::fid`].
    pub fid: u8,
    /// Which value.
    pub select: feature::Select,
    /// Selects within the feature: an interrupt vector, a temperature sensor.
    pub cdw11: u32,
    /// UUID Index, 7 bits.
    pub uuid_index: u8,
}

choices! {
    /// What Namespace Management shall do: SEL.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum NamespaceOperation(4 bits) {
        /// Create a namespace from [`crate::identify::NamespaceCreate`]; dword 0 of the completion is its
        /// identifier.
        Create = 0,
        /// Delete a namespace, or all with [`Nsid::ALL`].
        Delete = 1,
    }
}

/// Namespace Management (Base 5.1.21).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceManagement {
    /// Namespace to delete; zero to create.
    pub nsid: Nsid,
    /// What to do.
    pub operation: NamespaceOperation,
    /// Command Set Identifier of the namespace to create, see [`crate::identify::csi`].
    pub csi: u8,
}

choices! {
    /// What Namespace Attachment shall do: SEL.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum AttachmentOperation(4 bits) {
        /// Attach the namespace to the controllers of the list.
        Attach = 0,
        /// Detach it from them.
        Detach = 1,
    }
}

/// Namespace Attachment (Base 5.1.20). The data is a [`crate::identify::ControllerList`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceAttachment {
    /// Namespace to attach or detach.
    pub nsid: Nsid,
    /// What to do.
    pub operation: AttachmentOperation,
}

choices! {
    /// Commit Action of Firmware Commit.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CommitAction(3 bits) {
        /// The downloaded image replaces the slot's, and is not activated.
        Replace = 0,
        /// The downloaded image replaces the slot's and is activated at the next controller level reset.
        ReplaceAndActivateAtReset = 1,
        /// The image in the slot is activated at the next controller level reset.
        ActivateAtReset = 2,
        /// The image in the slot, or the downloaded one that replaces it, is activated at once.
        ActivateImmediately = 3,
        /// The downloaded image replaces the boot partition.
        ReplaceBootPartition = 6,
        /// The boot partition becomes the active one.
        ActivateBootPartition = 7,
    }
}

/// Firmware Commit (Base 5.1.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirmwareCommit {
    /// What to do.
    pub action: CommitAction,
    /// Firmware slot 1 to 7; 0 lets the controller choose.
    pub slot: u8,
    /// BPID: boot partition 1 instead of 0.
    pub boot_partition: bool,
}

/// Firmware Image Download (Base 5.1.9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirmwareDownload {
    /// Length in dwords, 1 to 2^32.
    pub dwords: u64,
    /// Offset in the image in dwords.
    pub offset_dwords: u32,
}

choices! {
    /// Secure Erase Settings of Format NVM.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum SecureErase(3 bits) {
        /// No secure erase.
        #[default]
        None = 0,
        /// All user data is erased.
        UserData = 1,
        /// The encryption key is deleted.
        Cryptographic = 2,
    }
}

/// Format NVM (Base 5.1.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormatNvm {
    /// Namespace, or [`Nsid::ALL`].
    pub nsid: Nsid,
    /// Index into the LBA formats, 6 bits: LBAFU and LBAFL joined.
    pub lbaf: u8,
    /// MSET: metadata is at the end of each logical block instead of in a separate buffer.
    pub metadata_extended: bool,
    /// PI: protection information type, 3 bits; 0 none.
    pub protection: u8,
    /// PIL: protection information is in the first bytes of the metadata.
    pub protection_first: bool,
    /// SES.
    pub secure_erase: SecureErase,
}

/// An admin command, with lengths widened to one-based.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Delete I/O Submission Queue.
    DeleteIoSq {
        /// Queue to delete.
        qid: Qid,
    },
    /// Create I/O Submission Queue.
    CreateIoSq(CreateIoSq),
    /// Get Log Page.
    GetLogPage(GetLogPage),
    /// Delete I/O Completion Queue.
    DeleteIoCq {
        /// Queue to delete.
        qid: Qid,
    },
    /// Create I/O Completion Queue.
    CreateIoCq(CreateIoCq),
    /// Identify.
    Identify(Identify),
    /// Abort.
    Abort {
        /// Submission queue of the command to abort.
        sqid: Qid,
        /// The command to abort.
        cid: Cid,
    },
    /// Set Features.
    SetFeatures(SetFeatures),
    /// Get Features.
    GetFeatures(GetFeatures),
    /// Asynchronous Event Request: completes when there is something to tell.
    AsyncEventRequest,
    /// Namespace Management.
    NamespaceManagement(NamespaceManagement),
    /// Firmware Commit.
    FirmwareCommit(FirmwareCommit),
    /// Firmware Image Download.
    FirmwareDownload(FirmwareDownload),
    /// Namespace Attachment.
    NamespaceAttachment(NamespaceAttachment),
    /// Keep Alive.
    KeepAlive,
    /// Directive Send.
    DirectiveSend(DirectiveSend),
    /// Directive Receive.
    DirectiveReceive(DirectiveReceive),
    /// Format NVM.
    FormatNvm(FormatNvm),
    /// An opcode this crate does not interpret.
    Unknown(u8),
}

impl Command {
    /// Reads a submission queue entry. Never fails: an unknown opcode is a value, and so are reserved field
    /// values.
    pub fn parse(sqe: &Sqe) -> Self {
        match sqe.opcode {
            opcode::DELETE_IO_SQ => Self::DeleteIoSq { qid: Qid(sqe.cdw10 as u16) },
            opcode::CREATE_IO_SQ => Self::CreateIoSq(CreateIoSq::parse(sqe)),
            opcode::GET_LOG_PAGE => Self::GetLogPage(GetLogPage::parse(sqe)),
            opcode::DELETE_IO_CQ => Self::DeleteIoCq { qid: Qid(sqe.cdw10 as u16) },
            opcode::CREATE_IO_CQ => Self::CreateIoCq(CreateIoCq::parse(sqe)),
            opcode::IDENTIFY => Self::Identify(Identify::parse(sqe)),
            opcode::ABORT => Self::Abort { sqid: Qid(sqe.cdw10 as u16), cid: Cid(high(sqe.cdw10)) },
            opcode::SET_FEATURES => Self::SetFeatures(SetFeatures::parse(sqe)),
            opcode::GET_FEATURES => Self::GetFeatures(GetFeatures::parse(sqe)),
            opcode::ASYNC_EVENT_REQUEST => Self::AsyncEventRequest,
            opcode::NAMESPACE_MANAGEMENT => Self::NamespaceManagement(NamespaceManagement::parse(sqe)),
            opcode::FIRMWARE_COMMIT => Self::FirmwareCommit(FirmwareCommit::parse(sqe)),
            opcode::FIRMWARE_DOWNLOAD => Self::FirmwareDownload(FirmwareDownload {
                dwords: sqe.cdw10 as u64 + 1,
                offset_dwords: sqe.cdw11,
            }),
            opcode::NAMESPACE_ATTACHMENT => Self::NamespaceAttachment(NamespaceAttachment::parse(sqe)),
            opcode::KEEP_ALIVE => Self::KeepAlive,
            opcode::DIRECTIVE_SEND => Self::DirectiveSend(DirectiveSend::parse(sqe)),
            opcode::DIRECTIVE_RECEIVE => Self::DirectiveReceive(DirectiveReceive::parse(sqe)),
            opcode::FORMAT_NVM => Self::FormatNvm(FormatNvm::parse(sqe)),
            other => Self::Unknown(other),
        }
    }

    /// Writes the command into an entry whose command identifier and data pointer the caller fills.
    pub fn encode(self) -> Sqe {
        match self {
            Self::DeleteIoSq { qid } => {
                Sqe { opcode: opcode::DELETE_IO_SQ, cdw10: qid.0 as u32, ..Sqe::default() }
            }
            Self::CreateIoSq(command) => command.encode(),
            Self::GetLogPage(command) => command.encode(),
            Self::DeleteIoCq { qid } => {
                Sqe { opcode: opcode::DELETE_IO_CQ, cdw10: qid.0 as u32, ..Sqe::default() }
            }
            Self::CreateIoCq(command) => command.encode(),
            Self::Identify(command) => command.encode(),
            Self::Abort { sqid, cid } => {
                Sqe { opcode: opcode::ABORT, cdw10: join(cid.0, sqid.0), ..Sqe::default() }
            }
            Self::SetFeatures(command) => command.encode(),
            Self::GetFeatures(command) => command.encode(),
            Self::AsyncEventRequest => Sqe { opcode: opcode::ASYNC_EVENT_REQUEST, ..Sqe::default() },
            Self::NamespaceManagement(command) => command.encode(),
            Self::FirmwareCommit(command) => command.encode(),
            Self::FirmwareDownload(command) => Sqe {
                opcode: opcode::FIRMWARE_DOWNLOAD,
                cdw10: dwords_z(command.dwords),
                cdw11: command.offset_dwords,
                ..Sqe::default()
            },
            Self::NamespaceAttachment(command) => command.encode(),
            Self::KeepAlive => Sqe { opcode: opcode::KEEP_ALIVE, ..Sqe::default() },
            Self::DirectiveSend(command) => command.encode(),
            Self::DirectiveReceive(command) => command.encode(),
            Self::FormatNvm(command) => command.encode(),
            Self::Unknown(opcode) => Sqe { opcode, ..Sqe::default() },
        }
    }
}
