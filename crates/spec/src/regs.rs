//! Controller registers in BAR0 (Base 3.1.4; PCIe Transport 3.1).

use bitfield_struct::bitfield;

codes! {
    /// Byte offsets of the registers.
    pub mod offset: u64 {
        CAP = 0x00, "Controller Capabilities, 8 bytes";
        VS = 0x08, "Version, 4 bytes";
        INTMS = 0x0c, "Interrupt Mask Set, 4 bytes";
        INTMC = 0x10, "Interrupt Mask Clear, 4 bytes";
        CC = 0x14, "Controller Configuration, 4 bytes";
        CSTS = 0x1c, "Controller Status, 4 bytes";
        NSSR = 0x20, "NVM Subsystem Reset, 4 bytes";
        AQA = 0x24, "Admin Queue Attributes, 4 bytes";
        ASQ = 0x28, "Admin Submission Queue Base Address, 8 bytes";
        ACQ = 0x30, "Admin Completion Queue Base Address, 8 bytes";
        CMBLOC = 0x38, "Controller Memory Buffer Location, 4 bytes";
        CMBSZ = 0x3c, "Controller Memory Buffer Size, 4 bytes";
        NSSD = 0x64, "NVM Subsystem Shutdown, 4 bytes";
        CRTO = 0x68, "Controller Ready Timeouts, 4 bytes";
        DOORBELLS = 0x1000,
            "First doorbell; with stride 0 each takes 4 bytes: SQ0 tail, CQ0 head, SQ1 tail, and so on";
    }
}

/// Value that, written to NSSR, starts an NVM Subsystem Reset: "NVMe" in ASCII.
pub const NSSR_MAGIC: u32 = 0x4e56_4d65;

/// NVMe 2.0 in the VS register.
pub const VERSION_2_0: u32 = 0x0002_0000;

/// Version as printed by tools: major.minor.tertiary.
pub const fn version_parts(vs: u32) -> (u16, u8, u8) {
    ((vs >> 16) as u16, (vs >> 8) as u8, vs as u8)
}

/// Controller Capabilities (Base figure 36).
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Cap {
    /// Maximum Queue Entries Supported, zero-based.
    #[bits(16)]
    pub mqes_z: u16,
    /// Contiguous Queues Required.
    pub cqr: bool,
    /// Arbitration Mechanism Supported: bit 0 weighted round robin, bit 1 vendor specific.
    #[bits(2)]
    pub ams: u8,
    #[bits(5)]
    __: u8,
    /// Timeout: worst case time for CSTS.RDY to follow CC.EN, in units of 500 ms.
    #[bits(8)]
    pub to: u8,
    /// Doorbell Stride: 2 to the power (2 + DSTRD) bytes.
    #[bits(4)]
    pub dstrd: u8,
    /// NVM Subsystem Reset Supported.
    pub nssrs: bool,
    /// Command Sets Supported: bit 0 NVM, bit 6 I/O command sets by profile, bit 7 admin only.
    #[bits(8)]
    pub css: u8,
    /// Boot Partition Support.
    pub bps: bool,
    /// Controller Power Scope.
    #[bits(2)]
    pub cps: u8,
    /// Memory Page Size Minimum: 2 to the power (12 + MPSMIN) bytes.
    #[bits(4)]
    pub mpsmin: u8,
    /// Memory Page Size Maximum: 2 to the power (12 + MPSMAX) bytes.
    #[bits(4)]
    pub mpsmax: u8,
    /// Persistent Memory Region Supported.
    pub pmrs: bool,
    /// Controller Memory Buffer Supported.
    pub cmbs: bool,
    /// NVM Subsystem Shutdown Supported.
    pub nsss: bool,
    /// Controller Ready Modes Supported: bit 0 with media, bit 1 independent of media.
    #[bits(2)]
    pub crms: u8,
    #[bits(3)]
    __: u8,
}

/// Controller Configuration (Base figure 41).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Cc {
    /// Enable.
    pub en: bool,
    #[bits(3)]
    __: u8,
    /// I/O Command Set Selected: 000b NVM, 110b all supported, 111b admin only.
    #[bits(3)]
    pub css: u8,
    /// Memory Page Size: 2 to the power (12 + MPS) bytes.
    #[bits(4)]
    pub mps: u8,
    /// Arbitration Mechanism Selected.
    #[bits(3)]
    pub ams: u8,
    /// Shutdown Notification.
    #[bits(2)]
    pub shn: u8,
    /// I/O Submission Queue Entry Size, as a power of two.
    #[bits(4)]
    pub iosqes: u8,
    /// I/O Completion Queue Entry Size, as a power of two.
    #[bits(4)]
    pub iocqes: u8,
    /// Controller Ready Independent of Media Enable.
    pub crime: bool,
    #[bits(7)]
    __: u8,
}

/// CAP.AMS: weighted round robin with urgent priority class is supported.
pub const CAP_AMS_WEIGHTED: u8 = 1 << 0;
/// CC.AMS: round robin.
pub const AMS_ROUND_ROBIN: u8 = 0b000;
/// CC.AMS: weighted round robin with urgent priority class.
pub const AMS_WEIGHTED: u8 = 0b001;

/// CC.CSS: the NVM command set alone.
pub const CSS_NVM: u8 = 0b000;
/// CC.CSS: all supported I/O command sets.
pub const CSS_ALL: u8 = 0b110;
/// CC.CSS: admin commands only.
pub const CSS_ADMIN_ONLY: u8 = 0b111;

/// CC.SHN: no notification.
pub const SHN_NONE: u8 = 0;
/// CC.SHN: normal shutdown.
pub const SHN_NORMAL: u8 = 1;
/// CC.SHN: abrupt shutdown.
pub const SHN_ABRUPT: u8 = 2;

/// Controller Status (Base figure 42).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Csts {
    /// Ready.
    pub rdy: bool,
    /// Controller Fatal Status.
    pub cfs: bool,
    /// Shutdown Status: 0 normal operation, 1 in progress, 2 complete.
    #[bits(2)]
    pub shst: u8,
    /// NVM Subsystem Reset Occurred; written with 1 to clear.
    pub nssro: bool,
    /// Processing Paused.
    pub pp: bool,
    /// Shutdown Type: 0 controller, 1 subsystem.
    pub st: bool,
    #[bits(25)]
    __: u32,
}

/// CSTS.SHST: normal operation.
pub const SHST_NORMAL: u8 = 0;
/// CSTS.SHST: shutdown in progress.
pub const SHST_IN_PROGRESS: u8 = 1;
/// CSTS.SHST: shutdown complete.
pub const SHST_COMPLETE: u8 = 2;

/// Admin Queue Attributes (Base figure 45).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Aqa {
    /// Admin Submission Queue Size, zero-based.
    #[bits(12)]
    pub asqs_z: u16,
    #[bits(4)]
    __: u8,
    /// Admin Completion Queue Size, zero-based.
    #[bits(12)]
    pub acqs_z: u16,
    #[bits(4)]
    __: u8,
}

/// Controller Ready Timeouts (Base figure 59), in units of 500 ms.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Crto {
    /// With media.
    pub crwmt: u16,
    /// Independent of media.
    pub crimt: u16,
}
