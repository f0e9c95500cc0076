//! Status of a completed command, always whole: type, code, retry hints (Base 4.2.3).

use core::fmt;

/// Status field of a completion entry without the phase tag: SC in bits 7:0, SCT in bits 10:8, CRD in bits
/// 12:11, M in bit 13, DNR in bit 14.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Status(u16);

/// Status code type (Base figure 101).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusCodeType {
    /// Generic Command Status.
    Generic,
    /// Command Specific Status.
    CommandSpecific,
    /// Media and Data Integrity Errors.
    Media,
    /// Path Related Status.
    Path,
    /// Reserved values 4 to 6.
    Reserved(u8),
    /// Vendor Specific.
    Vendor,
}

const MORE: u16 = 1 << 13;
const DO_NOT_RETRY: u16 = 1 << 14;
const CODE_MASK: u16 = 0x7ff;

impl Status {
    /// Builds a status from its type (3 bits) and code.
    pub const fn new(code_type: u8, code: u8) -> Self {
        Self((code_type as u16 & 7) << 8 | code as u16)
    }

    /// From the 15 bits of a completion entry's status field (phase tag already shifted out).
    #[inline]
    pub const fn from_raw(raw: u16) -> Self {
        Self(raw & 0x7fff)
    }

    /// The 15 bits of the status field.
    #[inline]
    pub const fn raw(self) -> u16 {
        self.0
    }

    /// Status code, 8 bits; meaningful only together with [`Status::code_type`].
    pub const fn code(self) -> u8 {
        self.0 as u8
    }

    /// Status code type.
    pub const fn code_type(self) -> StatusCodeType {
        match (self.0 >> 8) & 7 {
            0 => StatusCodeType::Generic,
            1 => StatusCodeType::CommandSpecific,
            2 => StatusCodeType::Media,
            3 => StatusCodeType::Path,
            7 => StatusCodeType::Vendor,
            other => StatusCodeType::Reserved(other as u8),
        }
    }

    /// Type and code without the retry hints, for comparison.
    pub const fn kind(self) -> Self {
        Self(self.0 & CODE_MASK)
    }

    /// True for Successful Completion.
    #[inline]
    pub const fn is_success(self) -> bool {
        self.0 & CODE_MASK == 0
    }

    /// Do Not Retry: the same command would fail again.
    pub const fn do_not_retry(self) -> bool {
        self.0 & DO_NOT_RETRY != 0
    }

    /// The same status with Do Not Retry set.
    pub const fn with_do_not_retry(self) -> Self {
        Self(self.0 | DO_NOT_RETRY)
    }

    /// More: the Error Information log has more about this command.
    pub const fn more(self) -> bool {
        self.0 & MORE != 0
    }

    /// The same status with More set.
    pub const fn with_more(self) -> Self {
        Self(self.0 | MORE)
    }
}

macro_rules! statuses {
    ($($type:literal $code:literal $name:ident $text:literal;)*) => {
        impl Status {
            $(#[doc = concat!($text, ".")] pub const $name: Self = Self::new($type, $code);)*

            /// The specification's name of this status, if it is one this crate knows.
            pub const fn name(self) -> Option<&'static str> {
                match self.kind() {
                    $(Self::$name => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    0 0x00 SUCCESS "Successful Completion";
    0 0x01 INVALID_OPCODE "Invalid Command Opcode";
    0 0x02 INVALID_FIELD "Invalid Field in Command";
    0 0x03 COMMAND_ID_CONFLICT "Command ID Conflict";
    0 0x04 DATA_TRANSFER_ERROR "Data Transfer Error";
    0 0x05 ABORTED_POWER_LOSS "Commands Aborted due to Power Loss Notification";
    0 0x06 INTERNAL_ERROR "Internal Error";
    0 0x07 ABORT_REQUESTED "Command Abort Requested";
    0 0x08 ABORTED_SQ_DELETION "Command Aborted due to SQ Deletion";
    0 0x09 ABORTED_FAILED_FUSED "Command Aborted due to Failed Fused Command";
    0 0x0a ABORTED_MISSING_FUSED "Command Aborted due to Missing Fused Command";
    0 0x0b INVALID_NAMESPACE_OR_FORMAT "Invalid Namespace or Format";
    0 0x0c COMMAND_SEQUENCE_ERROR "Command Sequence Error";
    0 0x0d INVALID_SGL_SEGMENT "Invalid SGL Segment Descriptor";
    0 0x0e INVALID_SGL_COUNT "Invalid Number of SGL Descriptors";
    0 0x0f DATA_SGL_LENGTH_INVALID "Data SGL Length Invalid";
    0 0x10 METADATA_SGL_LENGTH_INVALID "Metadata SGL Length Invalid";
    0 0x11 SGL_DESCRIPTOR_TYPE_INVALID "SGL Descriptor Type Invalid";
    0 0x12 INVALID_CMB_USE "Invalid Use of Controller Memory Buffer";
    0 0x13 PRP_OFFSET_INVALID "PRP Offset Invalid";
    0 0x14 ATOMIC_WRITE_UNIT_EXCEEDED "Atomic Write Unit Exceeded";
    0 0x15 OPERATION_DENIED "Operation Denied";
    0 0x16 SGL_OFFSET_INVALID "SGL Offset Invalid";
    0 0x18 HOST_ID_INCONSISTENT_FORMAT "Host Identifier Inconsistent Format";
    0 0x19 KEEP_ALIVE_EXPIRED "Keep Alive Timer Expired";
    0 0x1a KEEP_ALIVE_INVALID "Keep Alive Timeout Invalid";
    0 0x1b ABORTED_PREEMPT "Command Aborted due to Preempt and Abort";
    0 0x1c SANITIZE_FAILED "Sanitize Failed";
    0 0x1d SANITIZE_IN_PROGRESS "Sanitize In Progress";
    0 0x1e SGL_GRANULARITY_INVALID "SGL Data Block Granularity Invalid";
    0 0x1f UNSUPPORTED_CMB_QUEUE "Command Not Supported for Queue in CMB";
    0 0x20 NAMESPACE_WRITE_PROTECTED "Namespace is Write Protected";
    0 0x21 COMMAND_INTERRUPTED "Command Interrupted";
    0 0x22 TRANSIENT_TRANSPORT_ERROR "Transient Transport Error";
    0 0x23 PROHIBITED_BY_LOCKDOWN "Command Prohibited by Command and Feature Lockdown";
    0 0x24 ADMIN_MEDIA_NOT_READY "Admin Command Media Not Ready";
    0 0x29 FDP_DISABLED "FDP Disabled";
    0 0x2a INVALID_PLACEMENT_HANDLE_LIST "Invalid Placement Handle List";
    0 0x80 LBA_OUT_OF_RANGE "LBA Out of Range";
    0 0x81 CAPACITY_EXCEEDED "Capacity Exceeded";
    0 0x82 NAMESPACE_NOT_READY "Namespace Not Ready";
    0 0x83 RESERVATION_CONFLICT "Reservation Conflict";
    0 0x84 FORMAT_IN_PROGRESS "Format In Progress";
    0 0x85 INVALID_VALUE_SIZE "Invalid Value Size";
    0 0x86 INVALID_KEY_SIZE "Invalid Key Size";
    0 0x87 KEY_NOT_FOUND "KV Key Does Not Exist";
    0 0x88 UNRECOVERED_ERROR "Unrecovered Error";
    0 0x89 KEY_EXISTS "Key Exists";
    1 0x00 COMPLETION_QUEUE_INVALID "Completion Queue Invalid";
    1 0x01 INVALID_QUEUE_IDENTIFIER "Invalid Queue Identifier";
    1 0x02 INVALID_QUEUE_SIZE "Invalid Queue Size";
    1 0x03 ABORT_LIMIT_EXCEEDED "Abort Command Limit Exceeded";
    1 0x05 AER_LIMIT_EXCEEDED "Asynchronous Event Request Limit Exceeded";
    1 0x06 INVALID_FIRMWARE_SLOT "Invalid Firmware Slot";
    1 0x07 INVALID_FIRMWARE_IMAGE "Invalid Firmware Image";
    1 0x08 INVALID_INTERRUPT_VECTOR "Invalid Interrupt Vector";
    1 0x09 INVALID_LOG_PAGE "Invalid Log Page";
    1 0x0a INVALID_FORMAT "Invalid Format";
    1 0x0b FIRMWARE_NEEDS_CONVENTIONAL_RESET "Firmware Activation Requires Conventional Reset";
    1 0x0c INVALID_QUEUE_DELETION "Invalid Queue Deletion";
    1 0x0d FEATURE_NOT_SAVEABLE "Feature Identifier Not Saveable";
    1 0x0e FEATURE_NOT_CHANGEABLE "Feature Not Changeable";
    1 0x0f FEATURE_NOT_NAMESPACE_SPECIFIC "Feature Not Namespace Specific";
    1 0x10 FIRMWARE_NEEDS_SUBSYSTEM_RESET "Firmware Activation Requires NVM Subsystem Reset";
    1 0x11 FIRMWARE_NEEDS_CONTROLLER_RESET "Firmware Activation Requires Controller Level Reset";
    1 0x12 FIRMWARE_NEEDS_MAX_TIME "Firmware Activation Requires Maximum Time Violation";
    1 0x13 FIRMWARE_ACTIVATION_PROHIBITED "Firmware Activation Prohibited";
    1 0x14 OVERLAPPING_RANGE "Overlapping Range";
    1 0x15 NAMESPACE_INSUFFICIENT_CAPACITY "Namespace Insufficient Capacity";
    1 0x16 NAMESPACE_IDENTIFIER_UNAVAILABLE "Namespace Identifier Unavailable";
    1 0x18 NAMESPACE_ALREADY_ATTACHED "Namespace Already Attached";
    1 0x19 NAMESPACE_IS_PRIVATE "Namespace Is Private";
    1 0x1a NAMESPACE_NOT_ATTACHED "Namespace Not Attached";
    1 0x1b THIN_PROVISIONING_UNSUPPORTED "Thin Provisioning Not Supported";
    1 0x1c CONTROLLER_LIST_INVALID "Controller List Invalid";
    1 0x1d SELF_TEST_IN_PROGRESS "Device Self-test In Progress";
    1 0x1e BOOT_PARTITION_WRITE_PROHIBITED "Boot Partition Write Prohibited";
    1 0x1f INVALID_CONTROLLER_IDENTIFIER "Invalid Controller Identifier";
    1 0x20 INVALID_SECONDARY_CONTROLLER_STATE "Invalid Secondary Controller State";
    1 0x21 INVALID_CONTROLLER_RESOURCES "Invalid Number of Controller Resources";
    1 0x22 INVALID_RESOURCE_IDENTIFIER "Invalid Resource Identifier";
    1 0x29 IO_COMMAND_SET_UNSUPPORTED "I/O Command Set Not Supported";
    1 0x2a IO_COMMAND_SET_NOT_ENABLED "I/O Command Set Not Enabled";
    1 0x2b IO_COMMAND_SET_COMBINATION_REJECTED "I/O Command Set Combination Rejected";
    1 0x2c INVALID_IO_COMMAND_SET "Invalid I/O Command Set";
    1 0x80 CONFLICTING_ATTRIBUTES "Conflicting Attributes";
    1 0x81 INVALID_PROTECTION_INFORMATION "Invalid Protection Information";
    1 0x82 WRITE_TO_READ_ONLY_RANGE "Attempted Write to Read Only Range";
    1 0x83 COMMAND_SIZE_LIMIT_EXCEEDED "Command Size Limit Exceeded";
    2 0x80 WRITE_FAULT "Write Fault";
    2 0x81 UNRECOVERED_READ_ERROR "Unrecovered Read Error";
    2 0x82 GUARD_CHECK_ERROR "End-to-end Guard Check Error";
    2 0x83 APPLICATION_TAG_CHECK_ERROR "End-to-end Application Tag Check Error";
    2 0x84 REFERENCE_TAG_CHECK_ERROR "End-to-end Reference Tag Check Error";
    2 0x85 COMPARE_FAILURE "Compare Failure";
    2 0x86 ACCESS_DENIED "Access Denied";
    2 0x87 DEALLOCATED_BLOCK "Deallocated or Unwritten Logical Block";
    3 0x00 INTERNAL_PATH_ERROR "Internal Path Error";
    3 0x01 ANA_PERSISTENT_LOSS "Asymmetric Access Persistent Loss";
    3 0x02 ANA_INACCESSIBLE "Asymmetric Access Inaccessible";
    3 0x03 ANA_TRANSITION "Asymmetric Access Transition";
    3 0x70 HOST_PATHING_ERROR "Host Pathing Error";
    3 0x71 ABORTED_BY_HOST "Command Aborted By Host";
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, raw) = (self.kind(), self.0);
        match self.name() {
            Some(name) => write!(f, "{name} ({:#05x}", kind.raw())?,
            None => write!(f, "status {:#05x} ({raw:#06x} raw", kind.raw())?,
        }
        f.write_str(if self.do_not_retry() { ", do not retry)" } else { ")" })
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Status {}
