//! Identify Controller (CNS 01h; Base figure 312) and its NVM Command Set companion (CNS 06h).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, little_endian::U128};

/// Identify Controller: 4096 bytes. Fields carry the specification's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct IdentifyController {
    /// PCI Vendor ID.
    pub vid: u16,
    /// PCI Subsystem Vendor ID.
    pub ssvid: u16,
    /// Serial Number, ASCII padded with spaces; see [`super::text`].
    pub sn: [u8; 20],
    /// Model Number, ASCII padded with spaces.
    pub mn: [u8; 40],
    /// Firmware Revision, ASCII padded with spaces.
    pub fr: [u8; 8],
    /// Recommended Arbitration Burst, as a power of two.
    pub rab: u8,
    /// IEEE OUI Identifier, least significant byte first.
    pub ieee: [u8; 3],
    /// Controller Multi-Path I/O and Namespace Sharing Capabilities.
    pub cmic: u8,
    /// Maximum Data Transfer Size: 2 to the power MDTS pages of CAP.MPSMIN; 0 means no limit.
    pub mdts: u8,
    /// Controller ID.
    pub cntlid: u16,
    /// Version, as in the VS register.
    pub ver: u32,
    /// RTD3 Resume Latency in microseconds.
    pub rtd3r: u32,
    /// RTD3 Entry Latency in microseconds.
    pub rtd3e: u32,
    /// Optional Asynchronous Events Supported, see [`oaes`].
    pub oaes: u32,
    /// Controller Attributes, see [`ctratt`].
    pub ctratt: u32,
    /// Read Recovery Levels Supported.
    pub rrls: u16,
    /// Boot Partition Capabilities.
    pub bpcap: u8,
    _reserved103: u8,
    /// NVM Subsystem Shutdown Latency in microseconds.
    pub nssl: u32,
    _reserved108: [u8; 2],
    /// Power Loss Signaling Information.
    pub plsi: u8,
    /// Controller Type: 1 I/O, 2 discovery, 3 administrative; 0 not reported.
    pub cntrltype: u8,
    /// FRU Globally Unique Identifier.
    pub fguid: [u8; 16],
    /// Command Retry Delay Time 1 in units of 100 ms.
    pub crdt1: u16,
    /// Command Retry Delay Time 2 in units of 100 ms.
    pub crdt2: u16,
    /// Command Retry Delay Time 3 in units of 100 ms.
    pub crdt3: u16,
    /// Controller Reachability Capabilities.
    pub crcap: u8,
    _reserved135: [u8; 118],
    /// NVM Subsystem Report.
    pub nvmsr: u8,
    /// VPD Write Cycle Information.
    pub vwci: u8,
    /// Management Endpoint Capabilities.
    pub mec: u8,
    /// Optional Admin Command Support, see [`oacs`].
    pub oacs: u16,
    /// Abort Command Limit, zero-based.
    pub acl_z: u8,
    /// Asynchronous Event Request Limit, zero-based.
    pub aerl_z: u8,
    /// Firmware Updates, see [`frmw`].
    pub frmw: u8,
    /// Log Page Attributes, see [`lpa`].
    pub lpa: u8,
    /// Error Log Page Entries, zero-based.
    pub elpe_z: u8,
    /// Number of Power States Support, zero-based.
    pub npss_z: u8,
    /// Admin Vendor Specific Command Configuration.
    pub avscc: u8,
    /// Autonomous Power State Transition Attributes.
    pub apsta: u8,
    /// Warning Composite Temperature Threshold in kelvins.
    pub wctemp: u16,
    /// Critical Composite Temperature Threshold in kelvins.
    pub cctemp: u16,
    /// Maximum Time for Firmware Activation in units of 100 ms.
    pub mtfa: u16,
    /// Host Memory Buffer Preferred Size in units of 4 KiB.
    pub hmpre: u32,
    /// Host Memory Buffer Minimum Size in units of 4 KiB.
    pub hmmin: u32,
    /// Total NVM Capacity in bytes.
    pub tnvmcap: U128,
    /// Unallocated NVM Capacity in bytes.
    pub unvmcap: U128,
    /// Replay Protected Memory Block Support.
    pub rpmbs: u32,
    /// Extended Device Self-test Time in minutes.
    pub edstt: u16,
    /// Device Self-test Options.
    pub dsto: u8,
    /// Firmware Update Granularity in units of 4 KiB; 0 not reported, FFh no restriction.
    pub fwug: u8,
    /// Keep Alive Support: granularity in units of 100 ms; 0 not supported.
    pub kas: u16,
    /// Host Controlled Thermal Management Attributes.
    pub hctma: u16,
    /// Minimum Thermal Management Temperature in kelvins.
    pub mntmt: u16,
    /// Maximum Thermal Management Temperature in kelvins.
    pub mxtmt: u16,
    /// Sanitize Capabilities.
    pub sanicap: u32,
    /// Host Memory Buffer Minimum Descriptor Entry Size in units of 4 KiB.
    pub hmminds: u32,
    /// Host Memory Maximum Descriptors Entries.
    pub hmmaxd: u16,
    /// NVM Set Identifier Maximum.
    pub nsetidmax: u16,
    /// Endurance Group Identifier Maximum.
    pub endgidmax: u16,
    /// ANA Transition Time in seconds.
    pub anatt: u8,
    /// Asymmetric Namespace Access Capabilities.
    pub anacap: u8,
    /// ANA Group Identifier Maximum.
    pub anagrpmax: u32,
    /// Number of ANA Group Identifiers.
    pub nanagrpid: u32,
    /// Persistent Event Log Size in units of 64 KiB.
    pub pels: u32,
    /// Domain Identifier.
    pub domainid: u16,
    /// Key Per I/O Capabilities.
    pub kpioc: u8,
    _reserved359: u8,
    /// Maximum Processing Time for Firmware Activation Without Reset in units of 100 ms.
    pub mptfawr: u16,
    _reserved362: [u8; 6],
    /// Max Endurance Group Capacity in bytes.
    pub megcap: U128,
    /// Temperature Threshold Hysteresis Attributes.
    pub tmpthha: u8,
    _reserved385: u8,
    /// Command Quiesce Time in milliseconds.
    pub cqt: u16,
    _reserved388: [u8; 124],
    /// Submission Queue Entry Size: required in bits 3:0 and maximum in bits 7:4, as powers of two.
    pub sqes: u8,
    /// Completion Queue Entry Size: required in bits 3:0 and maximum in bits 7:4, as powers of two.
    pub cqes: u8,
    /// Maximum Outstanding Commands; 0 not reported.
    pub maxcmd: u16,
    /// Number of Namespaces: the largest namespace identifier.
    pub nn: u32,
    /// Optional NVM Command Support, see [`oncs`].
    pub oncs: u16,
    /// Fused Operation Support, see [`fuses`].
    pub fuses: u16,
    /// Format NVM Attributes, see [`fna`].
    pub fna: u8,
    /// Volatile Write Cache, see [`vwc`].
    pub vwc: u8,
    /// Atomic Write Unit Normal in logical blocks, zero-based.
    pub awun_z: u16,
    /// Atomic Write Unit Power Fail in logical blocks, zero-based.
    pub awupf_z: u16,
    /// I/O Command Set Vendor Specific Command Configuration.
    pub icsvscc: u8,
    /// Namespace Write Protection Capabilities.
    pub nwpc: u8,
    /// Atomic Compare and Write Unit in logical blocks, zero-based.
    pub acwu_z: u16,
    /// Copy Descriptor Formats Supported.
    pub cdfs: u16,
    /// SGL Support, see [`sgls`].
    pub sgls: u32,
    /// Maximum Number of Allowed Namespaces.
    pub mnan: u32,
    /// Maximum Domain Namespace Attachments.
    pub maxdna: U128,
    /// Maximum I/O Controller Namespace Attachments.
    pub maxcna: u32,
    /// Optimal Aggregated Queue Depth.
    pub oaqd: u32,
    /// Recommended Host-Initiated Refresh Interval in days.
    pub rhiri: u8,
    /// Host-Initiated Refresh Time in minutes.
    pub hirt: u8,
    /// Controller Maximum Memory Range Tracking Descriptors.
    pub cmmrtd: u16,
    /// NVM Subsystem Maximum Memory Range Tracking Descriptors.
    pub nmmrtd: u16,
    /// Minimum Memory Range Tracking Granularity.
    pub minmrtg: u8,
    /// Maximum Memory Range Tracking Granularity.
    pub maxmrtg: u8,
    /// Tracking Attributes.
    pub trattr: u8,
    _reserved577: u8,
    /// Maximum Controller User Data Migration Queues.
    pub mcudmq: u16,
    /// Maximum NVM Subsystem User Data Migration Queues.
    pub mnsudmq: u16,
    /// Maximum CDQ Memory Ranges.
    pub mcmr: u16,
    /// NVM Subsystem Maximum CDQ Memory Ranges.
    pub nmcmr: u16,
    /// Maximum Controller Data Queue PRP Count.
    pub mcdqpc: u16,
    _reserved588: [u8; 180],
    /// NVM Subsystem NVMe Qualified Name, UTF-8 padded with NULs; see [`super::text::nqn`].
    pub subnqn: [u8; 256],
    _reserved1024: [u8; 768],
    /// I/O Queue Command Capsule Supported Size in units of 16 bytes (Fabrics).
    pub ioccsz: u32,
    /// I/O Queue Response Capsule Supported Size in units of 16 bytes (Fabrics).
    pub iorcsz: u32,
    /// In Capsule Data Offset in units of 16 bytes (Fabrics).
    pub icdoff: u16,
    /// Fabrics Controller Attributes.
    pub fcatt: u8,
    /// Maximum SGL Data Block Descriptors (Fabrics).
    pub msdbd: u8,
    /// Optional Fabrics Commands Support.
    pub ofcs: u16,
    /// Discovery Controller Type.
    pub dctype: u8,
    _reserved1807: [u8; 241],
    /// Power State Descriptors.
    pub psd: [PowerStateDescriptor; 32],
    /// Vendor Specific.
    pub vs: [u8; 1024],
}

layout!(IdentifyController, 4096, {
    mdts: 77, cntrltype: 111, nvmsr: 253, oacs: 256, wctemp: 266, tnvmcap: 280, kas: 320, anagrpmax: 344,
    megcap: 368, sqes: 512, nn: 516, sgls: 536, oaqd: 564, mcdqpc: 586, subnqn: 768, ioccsz: 1792, dctype: 1806,
    psd: 2048, vs: 3072,
});

/// Power State Descriptor (Base figure 313): 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct PowerStateDescriptor {
    /// Maximum Power in units that bit 0 of `flags` chooses.
    pub mp: u16,
    _reserved2: u8,
    /// Bit 0, MXPS: MP is in units of 0.1 mW instead of 10 mW. Bit 1, NOPS: non-operational state.
    pub flags: u8,
    /// Entry Latency in microseconds.
    pub enlat: u32,
    /// Exit Latency in microseconds.
    pub exlat: u32,
    /// Relative Read Throughput: lower is better.
    pub rrt: u8,
    /// Relative Read Latency.
    pub rrl: u8,
    /// Relative Write Throughput.
    pub rwt: u8,
    /// Relative Write Latency.
    pub rwl: u8,
    /// Idle Power in units that `ips` chooses.
    pub idlp: u16,
    /// Idle Power Scale in bits 7:6: 1 for 0.1 mW, 2 for 10 mW.
    pub ips: u8,
    _reserved19: u8,
    /// Active Power in units that `apws` chooses.
    pub actp: u16,
    /// Active Power Workload in bits 2:0, Active Power Scale in bits 7:6.
    pub apws: u8,
    /// Emergency Power Fail Recovery Time.
    pub epfrt: u8,
    /// Forced Quiescence Vault Time.
    pub fqvt: u8,
    /// Emergency Power Fail Vault Time.
    pub epfvt: u8,
    /// Scales of EPFRT in bits 3:0 and of FQVT in bits 7:4.
    pub epfrts_fqvts: u8,
    /// Scale of EPFVT in bits 3:0.
    pub epfvts: u8,
    _reserved28: [u8; 4],
}

layout!(PowerStateDescriptor, 32, { enlat: 4, rrt: 12, idlp: 16, actp: 20, epfvts: 27 });

codes! {
    /// Bits of CMIC.
    pub mod cmic: u8 {
        SEVERAL_PORTS = 1 << 0, "The NVM subsystem may have several ports";
        SEVERAL_CONTROLLERS = 1 << 1, "The NVM subsystem may have several controllers";
        ANA_REPORTING = 1 << 3, "Asymmetric Namespace Access is reported";
    }

    /// Bits of ANACAP, Asymmetric Namespace Access Capabilities.
    pub mod anacap: u8 {
        OPTIMIZED = 1 << 0, "ANA Optimized state";
        NON_OPTIMIZED = 1 << 1, "ANA Non-Optimized state";
        INACCESSIBLE = 1 << 2, "ANA Inaccessible state";
        PERSISTENT_LOSS = 1 << 3, "ANA Persistent Loss state";
        CHANGE = 1 << 4, "ANA Change state";
        GROUP_IS_FIXED = 1 << 6, "A namespace stays in its group while it is attached";
    }

    /// Bits of CTRATT, Controller Attributes.
    pub mod ctratt: u32 {
        HOST_IDENTIFIER_128 = 1 << 0, "HIDS: host identifiers of 128 bits";
        NVM_SETS = 1 << 2, "NSETS: NVM Sets";
        ENDURANCE_GROUPS = 1 << 4, "EGS: endurance groups";
        TRAFFIC_BASED_KEEP_ALIVE = 1 << 6, "TBKAS: the keep alive timer starts anew with any command";
        UUID_LIST = 1 << 9, "UUID List";
        FIXED_CAPACITY = 1 << 11, "FCM: capacity is managed in fixed units";
        VARIABLE_CAPACITY = 1 << 12, "VCM: capacity is managed in units of any size";
        EXTENDED_LBA_FORMATS = 1 << 15, "ELBAS: extended LBA formats";
        FLEXIBLE_DATA_PLACEMENT = 1 << 19, "FDPS: Flexible Data Placement";
    }

    /// Bits of OACS, Optional Admin Command Support.
    pub mod oacs: u16 {
        SECURITY = 1 << 0, "Security Send and Security Receive";
        FORMAT_NVM = 1 << 1, "Format NVM";
        FIRMWARE = 1 << 2, "Firmware Commit and Firmware Image Download";
        NAMESPACE_MANAGEMENT = 1 << 3, "Namespace Management and Namespace Attachment";
        DEVICE_SELF_TEST = 1 << 4, "Device Self-test";
        DIRECTIVES = 1 << 5, "Directive Send and Directive Receive";
        NVME_MI = 1 << 6, "NVMe-MI Send and NVMe-MI Receive";
        VIRTUALIZATION = 1 << 7, "Virtualization Management";
        DOORBELL_BUFFER = 1 << 8, "Doorbell Buffer Config";
        GET_LBA_STATUS = 1 << 9, "Get LBA Status";
        LOCKDOWN = 1 << 10, "Command and Feature Lockdown";
        LIVE_MIGRATION = 1 << 11, "Host Managed Live Migration";
    }

    /// Bits of ONCS, Optional NVM Command Support.
    pub mod oncs: u16 {
        COMPARE = 1 << 0, "Compare";
        WRITE_UNCORRECTABLE = 1 << 1, "Write Uncorrectable";
        DATASET_MANAGEMENT = 1 << 2, "Dataset Management";
        WRITE_ZEROES = 1 << 3, "Write Zeroes";
        SAVE_SELECT = 1 << 4, "Save field of Set Features and Select field of Get Features";
        RESERVATIONS = 1 << 5, "Reservations";
        TIMESTAMP = 1 << 6, "Timestamp feature";
        VERIFY = 1 << 7, "Verify";
        COPY = 1 << 8, "Copy";
        COPY_ATOMICITY = 1 << 9, "NVMCSA: a single Copy is atomic like a write";
        FAST_COPY = 1 << 10, "NVMAFC: all copies are fast copies";
        WRITE_ZEROES_DEALLOCATE_LIMIT = 1 << 11,
            "MAXWZD: Write Zeroes with Deallocate has a size limit of its own";
        NAMESPACE_ZEROES = 1 << 12, "NSZS: Write Zeroes can zero a whole namespace";
    }

    /// Bits of FUSES, Fused Operation Support.
    pub mod fuses: u16 {
        COMPARE_AND_WRITE = 1 << 0, "Compare and Write";
    }

    /// Bits of FNA, Format NVM Attributes.
    pub mod fna: u8 {
        FORMAT_ALL = 1 << 0, "A format applies to all namespaces";
        ERASE_ALL = 1 << 1, "A secure erase applies to all namespaces";
        CRYPTOGRAPHIC_ERASE = 1 << 2, "Cryptographic erase is supported";
        BROADCAST_UNSUPPORTED = 1 << 3, "Format NVM does not accept the broadcast namespace identifier";
    }

    /// Bits of VWC, Volatile Write Cache.
    pub mod vwc: u8 {
        PRESENT = 1 << 0, "There is a volatile write cache";
        FLUSH_ALL_UNSUPPORTED = 0b10 << 1,
            "Bits 2:1 = 10b: Flush does not accept the broadcast namespace identifier";
        FLUSH_ALL_SUPPORTED = 0b11 << 1, "Bits 2:1 = 11b: Flush accepts the broadcast namespace identifier";
    }

    /// Bits of LPA, Log Page Attributes.
    pub mod lpa: u8 {
        SMART_PER_NAMESPACE = 1 << 0, "SMART / Health per namespace";
        COMMANDS_SUPPORTED = 1 << 1, "Commands Supported and Effects";
        EXTENDED_DATA = 1 << 2, "Get Log Page takes 32-bit lengths and offsets";
        TELEMETRY = 1 << 3, "Telemetry";
        PERSISTENT_EVENT = 1 << 4, "Persistent Event log";
        SUPPORTED_LOG_PAGES = 1 << 5,
            "Supported Log Pages, Feature Identifiers and NVMe-MI Commands Supported and Effects";
        TELEMETRY_AREA_4 = 1 << 6, "Telemetry data area 4";
    }

    /// Bits of OAES, Optional Asynchronous Events Supported.
    pub mod oaes: u32 {
        NAMESPACE_ATTRIBUTES = 1 << 8, "Attached Namespace Attribute Changed notices";
        FIRMWARE_ACTIVATION = 1 << 9, "Firmware Activation Starting notices";
        ANA_CHANGE = 1 << 11, "Asymmetric Namespace Access Change notices";
        PREDICTABLE_LATENCY = 1 << 12, "Predictable Latency Event Aggregate Log Change notices";
        LBA_STATUS = 1 << 13, "LBA Status Information Alert notices";
        ENDURANCE_GROUP = 1 << 14, "Endurance Group Event Aggregate Log Change notices";
        NORMAL_SHUTDOWN = 1 << 15, "Normal NVM Subsystem Shutdown event";
        DISCOVERY_LOG_CHANGE = 1 << 31, "Discovery Log Change notices (discovery controllers)";
    }
}

/// Bits of FRMW, Firmware Updates.
pub mod frmw {
    /// Slot 1 is read only.
    pub const SLOT_1_READ_ONLY: u8 = 1 << 0;
    /// Bits 3:1: number of slots, 1 to 7, at this position.
    pub const SLOTS_SHIFT: u32 = 1;
    /// Mask of the number of slots after the shift.
    pub const SLOTS_MASK: u8 = 0b111;
    /// An image can be activated without a reset.
    pub const ACTIVATE_WITHOUT_RESET: u8 = 1 << 4;
    /// Overlapping downloads are detected.
    pub const OVERLAP_DETECTED: u8 = 1 << 5;
}

codes! {
    /// Bits of SGLS, SGL Support.
    pub mod sgls: u32 {
        SUPPORTED = 0b01, "Bits 1:0: SGLs are supported, with no alignment and granularity requirement";
        SUPPORTED_DWORD = 0b10, "Bits 1:0: SGLs are supported, with dword alignment and granularity";
        SUPPORT_MASK = 0b11, "Mask of bits 1:0";
        KEYED = 1 << 2, "Keyed SGL Data Block descriptor";
        BIT_BUCKET = 1 << 16, "SGL Bit Bucket descriptor";
        METADATA_BYTE_ALIGNED = 1 << 17, "Byte aligned contiguous metadata buffer";
        LONGER_THAN_DATA = 1 << 18, "The SGL may be longer than the data";
        METADATA_SGL = 1 << 19, "MPTR may contain an SGL descriptor";
        OFFSET = 1 << 20, "Descriptors may hold offsets instead of addresses";
        TRANSPORT = 1 << 21, "Transport SGL Data Block descriptor";
    }
}

/// I/O Command Set specific Identify Controller of the NVM Command Set (CNS 06h, CSI 00h; NVM 4.1.5.4): 4096
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NvmControllerIdentify {
    /// Verify Size Limit: 2 to the power VSL pages of CAP.MPSMIN; 0 means no limit, as in the two that
    /// follow.
    pub vsl: u8,
    /// Write Zeroes Size Limit.
    pub wzsl: u8,
    /// Write Uncorrectable Size Limit.
    pub wusl: u8,
    /// Dataset Management Ranges Limit; 0 means no limit, as in the two that follow.
    pub dmrl: u8,
    /// Dataset Management Range Size Limit in logical blocks.
    pub dmrsl: u32,
    /// Dataset Management Size Limit in logical blocks over all ranges.
    pub dmsl: u64,
    /// Key Per I/O Capabilities.
    pub kpiocap: u8,
    /// Write Zeroes With Deallocate Size Limit: 2 to the power WZDSL pages of CAP.MPSMIN.
    pub wzdsl: u8,
    /// Admin Optional Command Support.
    pub aocs: u16,
    /// Version of the NVM Command Set Specification.
    pub ver: u32,
    /// LBA Migration Queue Format.
    pub lbamqf: u8,
    _reserved25: [u8; 4071],
}

layout!(NvmControllerIdentify, 4096, { dmrsl: 4, dmsl: 8, kpiocap: 16, ver: 20, lbamqf: 24 });
