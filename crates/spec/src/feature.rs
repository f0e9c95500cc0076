//! Features: the values of Set Features and Get Features (Base 5.1.25).

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

codes! {
    /// Feature identifiers (Base figure 385).
    pub mod fid: u8, named {
        ARBITRATION = 0x01, "Arbitration";
        POWER_MANAGEMENT = 0x02, "Power Management";
        LBA_RANGE_TYPE = 0x03, "LBA Range Type";
        TEMPERATURE_THRESHOLD = 0x04, "Temperature Threshold";
        ERROR_RECOVERY = 0x05, "Error Recovery";
        VOLATILE_WRITE_CACHE = 0x06, "Volatile Write Cache";
        NUMBER_OF_QUEUES = 0x07, "Number of Queues";
        INTERRUPT_COALESCING = 0x08, "Interrupt Coalescing";
        INTERRUPT_VECTOR_CONFIGURATION = 0x09, "Interrupt Vector Configuration";
        WRITE_ATOMICITY = 0x0a, "Write Atomicity Normal";
        ASYNC_EVENT_CONFIGURATION = 0x0b, "Asynchronous Event Configuration";
        AUTONOMOUS_POWER_STATE_TRANSITION = 0x0c, "Autonomous Power State Transition";
        HOST_MEMORY_BUFFER = 0x0d, "Host Memory Buffer";
        TIMESTAMP = 0x0e, "Timestamp";
        KEEP_ALIVE_TIMER = 0x0f, "Keep Alive Timer";
        HOST_CONTROLLED_THERMAL_MANAGEMENT = 0x10, "Host Controlled Thermal Management";
        NON_OPERATIONAL_POWER_STATE = 0x11, "Non-Operational Power State Config";
        HOST_BEHAVIOR_SUPPORT = 0x16, "Host Behavior Support";
        SANITIZE_CONFIG = 0x17, "Sanitize Config";
        IO_COMMAND_SET_PROFILE = 0x19, "I/O Command Set Profile";
        FLEXIBLE_DATA_PLACEMENT = 0x1d, "Flexible Data Placement";
        FLEXIBLE_DATA_PLACEMENT_EVENTS = 0x1e, "Flexible Data Placement Events";
        KEY_VALUE_CONFIGURATION = 0x20, "Key Value Configuration";
        SOFTWARE_PROGRESS_MARKER = 0x80, "Software Progress Marker";
        HOST_IDENTIFIER = 0x81, "Host Identifier";
        RESERVATION_NOTIFICATION_MASK = 0x82, "Reservation Notification Mask";
        RESERVATION_PERSISTENCE = 0x83, "Reservation Persistence";
        NAMESPACE_WRITE_PROTECTION = 0x84, "Namespace Write Protection Config";
    }
}

choices! {
    /// Which value Get Features returns: SEL (Base 5.1.11).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Select(3 bits) {
        /// The value in force.
        #[default]
        Current = 0,
        /// The value the device was made with.
        Default = 1,
        /// The value that survives resets and power cycles.
        Saved = 2,
        /// Not a value: [`Capabilities`] of the feature in dword 0.
        SupportedCapabilities = 3,
    }
}

/// Answer to [`Select::SupportedCapabilities`] (Base 5.1.11): dword 0 of the completion.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Capabilities {
    /// The value can be saved.
    pub saveable: bool,
    /// The feature has a value per namespace.
    pub namespace_specific: bool,
    /// Set Features can change it.
    pub changeable: bool,
    #[bits(29)]
    __: u32,
}

/// Arbitration, 01h.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Arbitration {
    /// AB: commands taken from one queue at a time, as a power of two; 7 means no limit.
    #[bits(3)]
    pub burst: u8,
    #[bits(5)]
    __: u8,
    /// LPW: low priority weight, zero-based.
    pub low_weight_z: u8,
    /// MPW: medium priority weight, zero-based.
    pub medium_weight_z: u8,
    /// HPW: high priority weight, zero-based.
    pub high_weight_z: u8,
}

/// Power Management, 02h.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct PowerManagement {
    /// PS: power state.
    #[bits(5)]
    pub power_state: u8,
    /// WH: workload hint.
    #[bits(3)]
    pub workload_hint: u8,
    #[bits(24)]
    __: u32,
}

/// Temperature Threshold, 04h.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct TemperatureThreshold {
    /// TMPTH in kelvins.
    pub kelvins: u16,
    /// TMPSEL: 0 composite temperature, 1 to 8 a sensor, 15 all (Set Features only).
    #[bits(4)]
    pub sensor: u8,
    /// THSEL: 0 over temperature, 1 under temperature.
    #[bits(2)]
    pub kind: u8,
    /// TMPTHH: hysteresis in kelvins.
    #[bits(3)]
    pub hysteresis: u8,
    #[bits(7)]
    __: u8,
}

/// Error Recovery, 05h, a value per namespace (NVM 4.1.3.2).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ErrorRecovery {
    /// TLER: time limited error recovery in units of 100 ms; 0 means no limit.
    pub time_limit: u16,
    /// DULBE: reading a deallocated or unwritten block is an error.
    pub deallocated_error: bool,
    #[bits(15)]
    __: u16,
}

/// Volatile Write Cache, 06h.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct VolatileWriteCache {
    /// WCE: enabled.
    pub enabled: bool,
    #[bits(31)]
    __: u32,
}

/// Number of Queues, 07h: what is asked for in dword 11, what was allocated in dword 0 of the completion.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct NumberOfQueues {
    /// NSQR or NSQA: I/O submission queues, zero-based.
    pub submission_z: u16,
    /// NCQR or NCQA: I/O completion queues, zero-based.
    pub completion_z: u16,
}

/// Interrupt Coalescing, 08h.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct InterruptCoalescing {
    /// THR: completion entries to aggregate, zero-based.
    pub threshold_z: u8,
    /// TIME: longest delay in units of 100 us; 0 means none.
    pub time: u8,
    __: u16,
}

/// Interrupt Vector Configuration, 09h.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct InterruptVectorConfiguration {
    /// IV: interrupt vector.
    pub vector: u16,
    /// CD: interrupt coalescing does not apply to this vector.
    pub coalescing_disable: bool,
    #[bits(15)]
    __: u16,
}

/// Write Atomicity Normal, 0Ah.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct WriteAtomicity {
    /// DN: writes are atomic up to the size of AWUPF only, not AWUN.
    pub disable_normal: bool,
    #[bits(31)]
    __: u32,
}

/// Asynchronous Event Configuration, 0Bh: which events are sent.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct AsyncEventConfiguration {
    /// SMART / Health critical warnings, the bits of [`crate::log_page::critical_warning`].
    pub smart_critical_warnings: u8,
    /// Attached namespace attributes changed.
    pub namespace_attributes: bool,
    /// Firmware activation starting.
    pub firmware_activation: bool,
    /// Telemetry log changed.
    pub telemetry: bool,
    /// Asymmetric namespace access changed.
    pub ana_change: bool,
    /// Predictable latency event aggregate log changed.
    pub predictable_latency: bool,
    /// LBA status information alert.
    pub lba_status: bool,
    /// Endurance group event aggregate log changed.
    pub endurance_group: bool,
    /// Normal NVM subsystem shutdown.
    pub normal_shutdown: bool,
    #[bits(15)]
    __: u16,
    /// Discovery log page changed (discovery controllers).
    pub discovery_log: bool,
}

/// Most milliseconds a timestamp can hold: 48 bits.
pub const TIMESTAMP_MS_MAX: u64 = (1 << 48) - 1;

/// Timestamp, 0Eh (Base 5.1.25.1.7): 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Timestamp {
    milliseconds: [u8; 6],
    /// Bit 0: the clock may have stopped. Bits 3:1, origin: 0 controller level reset, 1 Set Features. Only
    /// Get Features returns them.
    pub attributes: u8,
    _reserved7: u8,
}

layout!(Timestamp, 8, { attributes: 6 });

impl Timestamp {
    /// Origin in bits 3:1 of the attributes: the value came from Set Features.
    pub const ORIGIN_SET_FEATURES: u8 = 1 << 1;

    /// A timestamp; bits of `milliseconds` above [`TIMESTAMP_MS_MAX`] are cut off.
    pub const fn new(milliseconds: u64, attributes: u8) -> Self {
        let [a, b, c, d, e, f, _, _] = milliseconds.to_le_bytes();
        Self { milliseconds: [a, b, c, d, e, f], attributes, _reserved7: 0 }
    }

    /// Milliseconds since 1 January 1970 UTC, or since the reset when the host never set it.
    pub const fn milliseconds(&self) -> u64 {
        let [a, b, c, d, e, f] = self.milliseconds;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}

/// Host Behavior Support, 16h (Base 5.1.25.1.14): 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct HostBehaviorSupport {
    /// Advanced Command Retry Enable: the host understands the retry delay of a status.
    pub acre: u8,
    /// Extended Telemetry Data Area 4 Supported.
    pub etdas: u8,
    /// LBA Format Extension Enable: the host understands 64 LBA formats.
    pub lbafee: u8,
    /// Host Dispersed Namespace Support.
    pub hdisns: u8,
    /// Copy Descriptor Formats Enable, a bit per format.
    pub cdfe: u16,
    _reserved6: [u8; 506],
}

layout!(HostBehaviorSupport, 512, { lbafee: 2, cdfe: 4 });

/// I/O Command Set Profile, 19h.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct IoCommandSetProfile {
    /// IOCSCI: index into the combinations of Identify CNS 1Ch.
    #[bits(9)]
    pub index: u16,
    #[bits(23)]
    __: u32,
}

/// Flexible Data Placement, 1Dh, a value per endurance group, whose identifier is in command dword 11 (Base
/// 5.1.25.1.20): command dword 12 of Set Features, dword 0 of the completion of Get Features.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct FlexibleDataPlacement {
    /// FDPE: enabled.
    pub enabled: bool,
    #[bits(7)]
    __: u8,
    /// FDPCIDX: index of the configuration in log page 20h.
    pub configuration: u8,
    __: u16,
}

/// Flexible Data Placement Events, 1Eh, a value per namespace and placement handle (Base 5.1.25.1.21):
/// command dword 11 of Set Features, whose data is a list of event types of a byte each, and of Get Features,
/// whose data is a list of [`crate::fdp::EventSupport`] and whose completion has their number in bits 7:0 of
/// dword 0.
///
/// Command dword 12 of Set Features is [`FdpEventsEnable`].
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct FdpEvents {
    /// PHNDL: placement handle.
    pub placement_handle: u16,
    /// NOET: event types in the data, or room for them.
    pub event_types: u8,
    __: u8,
}

/// Command dword 12 of Set Features of feature 1Eh.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct FdpEventsEnable {
    /// FDPEE: record events of these types, rather than not.
    pub enabled: bool,
    #[bits(31)]
    __: u32,
}

/// Key Value Configuration, 20h, a value per namespace of the Key Value Command Set (KV 4.1.3).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct KeyValueConfiguration {
    /// EDNEK: deleting a key that does not exist is an error, KV Key Does Not Exist.
    pub delete_missing_is_error: bool,
    #[bits(31)]
    __: u32,
}
