//! Log pages and asynchronous events (Base 5.1.12, 5.1.2).

use bitfield_struct::bitfield;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout,
    little_endian::{U16, U32, U64, U128},
};

codes! {
    /// Log page identifiers (Base figure 202).
    pub mod lid: u8, named {
        SUPPORTED_LOG_PAGES = 0x00, "Supported Log Pages";
        ERROR_INFORMATION = 0x01, "Error Information";
        SMART_HEALTH = 0x02, "SMART / Health Information";
        FIRMWARE_SLOT = 0x03, "Firmware Slot Information";
        CHANGED_NAMESPACES = 0x04, "Changed Attached Namespace List";
        COMMANDS_SUPPORTED = 0x05, "Commands Supported and Effects";
        DEVICE_SELF_TEST = 0x06, "Device Self-test";
        TELEMETRY_HOST = 0x07, "Telemetry Host-Initiated";
        TELEMETRY_CONTROLLER = 0x08, "Telemetry Controller-Initiated";
        ENDURANCE_GROUP = 0x09, "Endurance Group Information";
        ANA = 0x0c, "Asymmetric Namespace Access";
        PERSISTENT_EVENT = 0x0d, "Persistent Event Log";
        LBA_STATUS = 0x0e, "LBA Status Information";
        FEATURES_SUPPORTED = 0x12, "Feature Identifiers Supported and Effects";
        NVME_MI_COMMANDS_SUPPORTED = 0x13, "NVMe-MI Commands Supported and Effects";
        FDP_CONFIGURATIONS = 0x20, "FDP Configurations";
        FDP_HANDLE_USAGE = 0x21, "Reclaim Unit Handle Usage";
        FDP_STATISTICS = 0x22, "FDP Statistics";
        FDP_EVENTS = 0x23, "FDP Events";
        DISCOVERY = 0x70, "Discovery";
        RESERVATION_NOTIFICATION = 0x80, "Reservation Notification";
        SANITIZE_STATUS = 0x81, "Sanitize Status";
    }
}

/// Supported Log Pages (00h): 1024 bytes, an entry per log page identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SupportedLogPages {
    /// LID Supported and Effects, bits of [`lid_support`].
    pub pages: [u32; 256],
}

layout!(SupportedLogPages, 1024, { pages: 0 });

codes! {
    /// Bits of an entry of [`SupportedLogPages`].
    pub mod lid_support: u32 {
        LSUPP = 1 << 0, "LSUPP: the log page is supported";
        IOS = 1 << 1, "IOS: the offset of Get Log Page may be an index";
    }
}

/// An entry of the Error Information log (01h; Base 5.1.12.1.2): 64 bytes, most recent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ErrorInformation {
    /// Error Count: identifies the error for the life of the controller; 0 means the entry is not used.
    pub error_count: u64,
    /// Submission Queue ID; FFFFh when no queue is concerned.
    pub sqid: u16,
    /// Command ID; FFFFh when no command is concerned.
    pub cid: u16,
    /// Status in bits 15:1, phase tag in bit 0, as in a completion entry.
    pub status_phase: u16,
    /// Parameter Error Location: byte of the command in bits 7:0, bit in bits 10:8; FFFFh when not known.
    pub parameter_location: u16,
    /// First logical block with the error.
    pub lba: u64,
    /// Namespace.
    pub nsid: u32,
    /// Vendor Specific Information Available: log page identifier of more, or 0.
    pub vendor_log: u8,
    /// Transport Type: 0 not reported or not Fabrics.
    pub trtype: u8,
    /// Command Set Indicator, when the opcode is that of an I/O command and `version` is 1.
    pub csi: u8,
    /// Opcode, when `version` is 1.
    pub opcode: u8,
    /// Command Specific Information.
    pub command_specific: u64,
    /// Transport Type Specific Information.
    pub transport_specific: u16,
    _reserved42: [u8; 21],
    /// Log Page Version: 1 when `csi` and `opcode` are valid.
    pub version: u8,
}

layout!(ErrorInformation, 64, { lba: 16, nsid: 24, opcode: 31, command_specific: 32, version: 63 });

/// SMART / Health Information (02h; Base 5.1.12.1.3): 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SmartHealth {
    /// Critical Warning, bits of [`critical_warning`].
    pub critical_warning: u8,
    /// Composite Temperature in kelvins.
    pub temperature: U16,
    /// Available Spare in percent.
    pub available_spare: u8,
    /// Available Spare Threshold in percent.
    pub available_spare_threshold: u8,
    /// Percentage Used; may exceed 100.
    pub percentage_used: u8,
    /// Endurance Group Critical Warning Summary.
    pub endurance_group_warning: u8,
    _reserved7: [u8; 25],
    /// Data Units Read in thousands of 512 bytes, rounded up.
    pub data_units_read: U128,
    /// Data Units Written in thousands of 512 bytes, rounded up.
    pub data_units_written: U128,
    /// Host Read Commands.
    pub host_reads: U128,
    /// Host Write Commands.
    pub host_writes: U128,
    /// Controller Busy Time in minutes.
    pub controller_busy_time: U128,
    /// Power Cycles.
    pub power_cycles: U128,
    /// Power On Hours.
    pub power_on_hours: U128,
    /// Unexpected Power Losses.
    pub unsafe_shutdowns: U128,
    /// Media and Data Integrity Errors.
    pub media_errors: U128,
    /// Number of Error Information Log Entries over the life of the controller.
    pub error_log_entries: U128,
    /// Warning Composite Temperature Time in minutes.
    pub warning_temperature_time: u32,
    /// Critical Composite Temperature Time in minutes.
    pub critical_temperature_time: u32,
    /// Temperature Sensors 1 to 8 in kelvins; 0 when there is no such sensor.
    pub temperature_sensors: [u16; 8],
    /// Thermal Management Temperature 1 and 2 Transition Counts.
    pub thermal_transitions: [u32; 2],
    /// Total Time For Thermal Management Temperature 1 and 2 in seconds.
    pub thermal_time: [u32; 2],
    _reserved232: [u8; 280],
}

layout!(SmartHealth, 512, {
    temperature: 1, data_units_read: 32, host_reads: 64, power_cycles: 112, error_log_entries: 176,
    warning_temperature_time: 192, temperature_sensors: 200, thermal_transitions: 216, thermal_time: 224,
});

codes! {
    /// Bits of Critical Warning.
    pub mod critical_warning: u8 {
        SPARE = 1 << 0, "Available spare is below its threshold";
        TEMPERATURE = 1 << 1, "A temperature is above or below its threshold";
        RELIABILITY = 1 << 2, "Reliability is degraded";
        READ_ONLY = 1 << 3, "The media is read only";
        BACKUP_FAILED = 1 << 4, "The backup of volatile memory has failed";
        PMR_UNRELIABLE = 1 << 5, "The Persistent Memory Region is read only or unreliable";
    }
}

/// Firmware Slot Information (03h; Base 5.1.12.1.4): 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FirmwareSlot {
    /// Active Firmware Info: slot in use in bits 2:0, slot after the next controller level reset in bits 6:4
    /// (0 when not reported).
    pub afi: u8,
    _reserved1: [u8; 7],
    /// Firmware Revision for Slots 1 to 7, ASCII padded with spaces; zeroes when the slot is empty.
    pub frs: [[u8; 8]; 7],
    _reserved64: [u8; 448],
}

layout!(FirmwareSlot, 512, { frs: 8 });

/// Commands Supported and Effects (05h; Base 5.1.12.1.6): 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CommandsSupported {
    /// Admin commands by opcode, bits of [`command_effects`].
    pub admin: [u32; 256],
    /// I/O commands by opcode, bits of [`command_effects`].
    pub io: [u32; 256],
    _reserved2048: [u8; 2048],
}

layout!(CommandsSupported, 4096, { io: 1024 });

codes! {
    /// Bits of an entry of [`CommandsSupported`].
    pub mod command_effects: u32 {
        CSUPP = 1 << 0, "CSUPP: the command is supported";
        LBCC = 1 << 1, "LBCC: it may change the content of logical blocks";
        NCC = 1 << 2, "NCC: it may change the capabilities of a namespace";
        NIC = 1 << 3, "NIC: it may change the inventory of namespaces";
        CCC = 1 << 4, "CCC: it may change the capabilities of the controller";
        CSE_SHIFT = 16,
            "CSE, bits 18:16, at this position: 0 no restriction, 1 alone in its namespace, 2 alone in the \
             controller";
        ALONE_IN_NAMESPACE = 1 << CSE_SHIFT, "CSE: no other command for the same namespace meanwhile";
        CSE_MASK = 0b111, "Mask of CSE after the shift";
        UUID_SELECTION = 1 << 19, "USS: the command takes a UUID index";
    }

    /// Scope of a command or feature: bits 31:20 of its entry, at most one of them set (Base figures 211 and
    /// 256).
    pub mod effects_scope: u32 {
        NAMESPACE = 1 << 20, "One namespace";
        CONTROLLER = 1 << 21, "The controller";
        ENDURANCE_GROUP = 1 << 23, "An endurance group";
        SUBSYSTEM = 1 << 25, "The NVM subsystem";
    }
}

/// Endurance Group Information (09h; Base 5.1.12.1.10): 512 bytes, of the group in the Log Specific
/// Identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct EnduranceGroup {
    /// Critical Warning, bits of [`critical_warning`]: spare, reliability and read only.
    pub critical_warning: u8,
    /// Endurance Group Features: bit 0, the media is rotational.
    pub features: u8,
    _reserved2: u8,
    /// Available Spare in percent.
    pub available_spare: u8,
    /// Available Spare Threshold in percent.
    pub available_spare_threshold: u8,
    /// Percentage Used; may exceed 100.
    pub percentage_used: u8,
    /// Domain Identifier.
    pub domain: U16,
    _reserved8: [u8; 24],
    /// Endurance Estimate: billions of bytes that may be written over the group's life; 0 not reported.
    pub endurance_estimate: U128,
    /// Data Units Read in billions of bytes, rounded up.
    pub data_units_read: U128,
    /// Data Units Written in billions of bytes, rounded up: by hosts.
    pub data_units_written: U128,
    /// Media Units Written in billions of bytes, rounded up: by hosts and by the controller.
    pub media_units_written: U128,
    /// Host Read Commands.
    pub host_reads: U128,
    /// Host Write Commands.
    pub host_writes: U128,
    /// Media and Data Integrity Errors.
    pub media_errors: U128,
    /// Number of Error Information Log Entries.
    pub error_log_entries: U128,
    /// Total Endurance Group Capacity in bytes.
    pub total_capacity: U128,
    /// Unallocated Endurance Group Capacity in bytes.
    pub unallocated_capacity: U128,
    _reserved192: [u8; 320],
}

layout!(EnduranceGroup, 512, {
    available_spare: 3, domain: 6, endurance_estimate: 32, data_units_written: 64, media_units_written: 80,
    host_reads: 96, media_errors: 128, total_capacity: 160, unallocated_capacity: 176,
});

/// Head of the Asymmetric Namespace Access log page (0Ch; Base 5.1.12.1.13): 16 bytes. An [`AnaGroup`] for
/// each group follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct AnaHeader {
    /// Change Count: changes with the log page.
    pub change_count: U64,
    /// Number of ANA Group Descriptors.
    pub groups: U16,
    _reserved10: [u8; 6],
}

layout!(AnaHeader, 16, { groups: 8 });

/// ANA Group Descriptor: 32 bytes, and 4 for each namespace identifier behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct AnaGroup {
    /// ANA Group ID.
    pub group: U32,
    /// Number of NSID Values.
    pub namespaces: U32,
    /// Change Count of the group.
    pub change_count: U64,
    /// ANA state in bits 3:0.
    pub state: u8,
    _reserved17: [u8; 15],
}

layout!(AnaGroup, 32, { namespaces: 4, change_count: 8, state: 16 });

/// Dword 0 of the completion of an Asynchronous Event Request (Base 5.1.2.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct AsyncEvent {
    /// Type, see [`event_type`].
    #[bits(3)]
    pub event_type: u8,
    #[bits(5)]
    __: u8,
    /// What happened; the meaning depends on the type.
    pub info: u8,
    /// Log page to read, which also clears the event.
    pub log_page: u8,
    __: u8,
}

impl AsyncEvent {
    /// An event of `event_type` with its information and log page.
    pub const fn of(event_type: u8, info: u8, log_page: u8) -> Self {
        Self::new().with_event_type(event_type & 7).with_info(info).with_log_page(log_page)
    }
}

codes! {
    /// Types of asynchronous events.
    pub mod event_type: u8 {
        ERROR = 0, "Error, see [`super::error_event`]";
        SMART = 1, "SMART / Health status, see [`super::smart_event`]";
        NOTICE = 2, "Notice, see [`super::notice_event`]";
        IMMEDIATE = 3, "Immediate: not masked and not cleared by a log page";
        IO_COMMAND_SET = 6, "I/O Command Set specific";
        VENDOR = 7, "Vendor specific";
    }

    /// Information of error events.
    pub mod error_event: u8 {
        INVALID_DOORBELL_REGISTER = 0, "Write to Invalid Doorbell Register";
        INVALID_DOORBELL_VALUE = 1, "Invalid Doorbell Write Value";
        DIAGNOSTIC_FAILURE = 2, "Diagnostic Failure";
        PERSISTENT_INTERNAL = 3, "Persistent Internal Error";
        TRANSIENT_INTERNAL = 4, "Transient Internal Error";
        FIRMWARE_IMAGE_LOAD = 5, "Firmware Image Load Error";
    }

    /// Information of SMART / Health events.
    pub mod smart_event: u8 {
        RELIABILITY = 0, "NVM subsystem Reliability";
        TEMPERATURE = 1, "Temperature Threshold";
        SPARE = 2, "Spare Below Threshold";
    }

    /// Information of notices.
    pub mod notice_event: u8 {
        NAMESPACE_ATTRIBUTES = 0x00, "Attached Namespace Attribute Changed";
        FIRMWARE_ACTIVATION = 0x01, "Firmware Activation Starting";
        TELEMETRY = 0x02, "Telemetry Log Changed";
        ANA_CHANGE = 0x03, "Asymmetric Namespace Access Change";
        PREDICTABLE_LATENCY = 0x04, "Predictable Latency Event Aggregate Log Change";
        LBA_STATUS = 0x05, "LBA Status Information Alert";
        ENDURANCE_GROUP = 0x06, "Endurance Group Event Aggregate Log Page Change";
        DISCOVERY_LOG_CHANGE = 0xf0, "Discovery Log Page Change";
    }
}
