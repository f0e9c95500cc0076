//! Log pages and asynchronous events (Base 5.1.12, 5.1.2).

use bitfield_struct::bitfield;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout,
    little_endian::{U16, U32, U64, U128},
};

/// Log page identifiers (Base figure 202).
pub mod lid {
    /// Supported Log Pages.
    pub const SUPPORTED_LOG_PAGES: u8 = 0x00;
    /// Error Information.
    pub const ERROR_INFORMATION: u8 = 0x01;
    /// SMART / Health Information.
    pub const SMART_HEALTH: u8 = 0x02;
    /// Firmware Slot Information.
    pub const FIRMWARE_SLOT: u8 = 0x03;
    /// Changed Attached Namespace List.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands Supported and Effects.
    pub const COMMANDS_SUPPORTED: u8 = 0x05;
    /// Device Self-test.
    pub const DEVICE_SELF_TEST: u8 = 0x06;
    /// Telemetry Host-Initiated.
    pub const TELEMETRY_HOST: u8 = 0x07;
    /// Telemetry Controller-Initiated.
    pub const TELEMETRY_CONTROLLER: u8 = 0x08;
    /// Endurance Group Information.
    pub const ENDURANCE_GROUP: u8 = 0x09;
    /// Asymmetric Namespace Access.
    pub const ANA: u8 = 0x0c;
    /// Persistent Event Log.
    pub const PERSISTENT_EVENT: u8 = 0x0d;
    /// LBA Status Information.
    pub const LBA_STATUS: u8 = 0x0e;
    /// Feature Identifiers Supported and Effects.
    pub const FEATURES_SUPPORTED: u8 = 0x12;
    /// NVMe-MI Commands Supported and Effects.
    pub const NVME_MI_COMMANDS_SUPPORTED: u8 = 0x13;
    /// FDP Configurations.
    pub const FDP_CONFIGURATIONS: u8 = 0x20;
    /// Reclaim Unit Handle Usage.
    pub const FDP_HANDLE_USAGE: u8 = 0x21;
    /// FDP Statistics.
    pub const FDP_STATISTICS: u8 = 0x22;
    /// FDP Events.
    pub const FDP_EVENTS: u8 = 0x23;
    /// Discovery.
    pub const DISCOVERY: u8 = 0x70;
    /// Reservation Notification.
    pub const RESERVATION_NOTIFICATION: u8 = 0x80;
    /// Sanitize Status.
    pub const SANITIZE_STATUS: u8 = 0x81;
}

/// The specification's name of a log page.
pub const fn lid_name(lid: u8) -> Option<&'static str> {
    Some(match lid {
        lid::SUPPORTED_LOG_PAGES => "Supported Log Pages",
        lid::ERROR_INFORMATION => "Error Information",
        lid::SMART_HEALTH => "SMART / Health Information",
        lid::FIRMWARE_SLOT => "Firmware Slot Information",
        lid::CHANGED_NAMESPACES => "Changed Attached Namespace List",
        lid::COMMANDS_SUPPORTED => "Commands Supported and Effects",
        lid::DEVICE_SELF_TEST => "Device Self-test",
        lid::TELEMETRY_HOST => "Telemetry Host-Initiated",
        lid::TELEMETRY_CONTROLLER => "Telemetry Controller-Initiated",
        lid::ENDURANCE_GROUP => "Endurance Group Information",
        lid::ANA => "Asymmetric Namespace Access",
        lid::PERSISTENT_EVENT => "Persistent Event Log",
        lid::LBA_STATUS => "LBA Status Information",
        lid::FEATURES_SUPPORTED => "Feature Identifiers Supported and Effects",
        lid::NVME_MI_COMMANDS_SUPPORTED => "NVMe-MI Commands Supported and Effects",
        lid::FDP_CONFIGURATIONS => "FDP Configurations",
        lid::FDP_HANDLE_USAGE => "Reclaim Unit Handle Usage",
        lid::FDP_STATISTICS => "FDP Statistics",
        lid::FDP_EVENTS => "FDP Events",
        lid::DISCOVERY => "Discovery",
        lid::RESERVATION_NOTIFICATION => "Reservation Notification",
        lid::SANITIZE_STATUS => "Sanitize Status",
        _ => return None,
    })
}

/// Supported Log Pages (00h): 1024 bytes, an entry per log page identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SupportedLogPages {
    /// LID Supported and Effects, bits of [`lid_support`].
    pub pages: [u32; 256],
}

layout!(SupportedLogPages, 1024, { pages: 0 });

/// Bits of an entry of [`SupportedLogPages`].
pub mod lid_support {
    /// LSUPP: the log page is supported.
    pub const LSUPP: u32 = 1 << 0;
    /// IOS: the offset of Get Log Page may be an index.
    pub const IOS: u32 = 1 << 1;
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

/// Bits of Critical Warning.
pub mod critical_warning {
    /// Available spare is below its threshold.
    pub const SPARE: u8 = 1 << 0;
    /// A temperature is above or below its threshold.
    pub const TEMPERATURE: u8 = 1 << 1;
    /// Reliability is degraded.
    pub const RELIABILITY: u8 = 1 << 2;
    /// The media is read only.
    pub const READ_ONLY: u8 = 1 << 3;
    /// The backup of volatile memory has failed.
    pub const BACKUP_FAILED: u8 = 1 << 4;
    /// The Persistent Memory Region is read only or unreliable.
    pub const PMR_UNRELIABLE: u8 = 1 << 5;
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

/// Bits of an entry of [`CommandsSupported`].
pub mod command_effects {
    /// CSUPP: the command is supported.
    pub const CSUPP: u32 = 1 << 0;
    /// LBCC: it may change the content of logical blocks.
    pub const LBCC: u32 = 1 << 1;
    /// NCC: it may change the capabilities of a namespace.
    pub const NCC: u32 = 1 << 2;
    /// NIC: it may change the inventory of namespaces.
    pub const NIC: u32 = 1 << 3;
    /// CCC: it may change the capabilities of the controller.
    pub const CCC: u32 = 1 << 4;
    /// CSE, bits 18:16, at this position: 0 no restriction, 1 alone in its namespace, 2 alone in the
    /// controller.
    pub const CSE_SHIFT: u32 = 16;
    /// CSE: no other command for the same namespace meanwhile.
    pub const ALONE_IN_NAMESPACE: u32 = 1 << CSE_SHIFT;
    /// Mask of CSE after the shift.
    pub const CSE_MASK: u32 = 0b111;
    /// USS: the command takes a UUID index.
    pub const UUID_SELECTION: u32 = 1 << 19;
}

/// Scope of a command or feature: bits 31:20 of its entry, at most one of them set (Base figures 211 and
/// 256).
pub mod effects_scope {
    /// One namespace.
    pub const NAMESPACE: u32 = 1 << 20;
    /// The controller.
    pub const CONTROLLER: u32 = 1 << 21;
    /// An endurance group.
    pub const ENDURANCE_GROUP: u32 = 1 << 23;
    /// The NVM subsystem.
    pub const SUBSYSTEM: u32 = 1 << 25;
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

/// Types of asynchronous events.
pub mod event_type {
    /// Error, see [`super::error_event`].
    pub const ERROR: u8 = 0;
    /// SMART / Health status, see [`super::smart_event`].
    pub const SMART: u8 = 1;
    /// Notice, see [`super::notice_event`].
    pub const NOTICE: u8 = 2;
    /// Immediate: not masked and not cleared by a log page.
    pub const IMMEDIATE: u8 = 3;
    /// I/O Command Set specific.
    pub const IO_COMMAND_SET: u8 = 6;
    /// Vendor specific.
    pub const VENDOR: u8 = 7;
}

/// Information of error events.
pub mod error_event {
    /// Write to Invalid Doorbell Register.
    pub const INVALID_DOORBELL_REGISTER: u8 = 0;
    /// Invalid Doorbell Write Value.
    pub const INVALID_DOORBELL_VALUE: u8 = 1;
    /// Diagnostic Failure.
    pub const DIAGNOSTIC_FAILURE: u8 = 2;
    /// Persistent Internal Error.
    pub const PERSISTENT_INTERNAL: u8 = 3;
    /// Transient Internal Error.
    pub const TRANSIENT_INTERNAL: u8 = 4;
    /// Firmware Image Load Error.
    pub const FIRMWARE_IMAGE_LOAD: u8 = 5;
}

/// Information of SMART / Health events.
pub mod smart_event {
    /// NVM subsystem Reliability.
    pub const RELIABILITY: u8 = 0;
    /// Temperature Threshold.
    pub const TEMPERATURE: u8 = 1;
    /// Spare Below Threshold.
    pub const SPARE: u8 = 2;
}

/// Information of notices.
pub mod notice_event {
    /// Attached Namespace Attribute Changed.
    pub const NAMESPACE_ATTRIBUTES: u8 = 0x00;
    /// Firmware Activation Starting.
    pub const FIRMWARE_ACTIVATION: u8 = 0x01;
    /// Telemetry Log Changed.
    pub const TELEMETRY: u8 = 0x02;
    /// Asymmetric Namespace Access Change.
    pub const ANA_CHANGE: u8 = 0x03;
    /// Predictable Latency Event Aggregate Log Change.
    pub const PREDICTABLE_LATENCY: u8 = 0x04;
    /// LBA Status Information Alert.
    pub const LBA_STATUS: u8 = 0x05;
    /// Endurance Group Event Aggregate Log Page Change.
    pub const ENDURANCE_GROUP: u8 = 0x06;
    /// Discovery Log Page Change.
    pub const DISCOVERY_LOG_CHANGE: u8 = 0xf0;
}
