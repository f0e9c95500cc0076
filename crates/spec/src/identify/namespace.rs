//! Identify Namespace of the NVM Command Set (CNS 00h; NVM 4.1.5.1, figure 114) and its extension (CNS 05h;
//! NVM 4.1.5.3).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, little_endian::U128};

/// LBA Format: 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct LbaFormat {
    /// Metadata Size in bytes.
    pub ms: u16,
    /// LBA Data Size as a power of two: 9 is 512 bytes, 12 is 4096. 0 means the format is not available.
    pub lbads: u8,
    /// Relative Performance in bits 1:0: 0 best, 1 better, 2 good, 3 degraded.
    pub rp: u8,
}

layout!(LbaFormat, 4, { rp: 3 });

impl LbaFormat {
    /// Bytes of a logical block; `None` when the format is not available or absurd (below 512 bytes, above 2
    /// GiB).
    pub const fn block_bytes(&self) -> Option<u32> {
        if self.lbads >= 9 && self.lbads < 32 { Some(1 << self.lbads) } else { None }
    }
}

/// Identify Namespace: 4096 bytes. Fields carry the specification's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// Namespace Size in logical blocks; 0 means the namespace is not active.
    pub nsze: u64,
    /// Namespace Capacity: blocks that can be allocated at one time.
    pub ncap: u64,
    /// Namespace Utilization: blocks that are allocated.
    pub nuse: u64,
    /// Namespace Features, see [`nsfeat`].
    pub nsfeat: u8,
    /// Number of LBA Formats, zero-based.
    pub nlbaf_z: u8,
    /// Formatted LBA Size: index of the format in bits 3:0 and 6:5, bit 4 metadata at the end of the block.
    pub flbas: u8,
    /// Metadata Capabilities.
    pub mc: u8,
    /// End-to-end Data Protection Capabilities.
    pub dpc: u8,
    /// End-to-end Data Protection Type Settings.
    pub dps: u8,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities: bit 0 shared.
    pub nmic: u8,
    /// Reservation Capabilities.
    pub rescap: u8,
    /// Format Progress Indicator: bit 7 supported, bits 6:0 percent left.
    pub fpi: u8,
    /// Deallocate Logical Block Features: bits 2:0 what a deallocated block reads as (1 zeroes, 2 FFh), bit 3
    /// Write Zeroes can deallocate, bit 4 guard is the CRC of that value.
    pub dlfeat: u8,
    /// Namespace Atomic Write Unit Normal in logical blocks, zero-based.
    pub nawun_z: u16,
    /// Namespace Atomic Write Unit Power Fail in logical blocks, zero-based.
    pub nawupf_z: u16,
    /// Namespace Atomic Compare and Write Unit in logical blocks, zero-based.
    pub nacwu_z: u16,
    /// Namespace Atomic Boundary Size Normal in logical blocks, zero-based.
    pub nabsn_z: u16,
    /// Namespace Atomic Boundary Offset in logical blocks.
    pub nabo: u16,
    /// Namespace Atomic Boundary Size Power Fail in logical blocks, zero-based.
    pub nabspf_z: u16,
    /// Namespace Optimal I/O Boundary in logical blocks.
    pub noiob: u16,
    /// NVM Capacity in bytes.
    pub nvmcap: U128,
    /// Namespace Preferred Write Granularity in logical blocks, zero-based.
    pub npwg_z: u16,
    /// Namespace Preferred Write Alignment in logical blocks, zero-based.
    pub npwa_z: u16,
    /// Namespace Preferred Deallocate Granularity in logical blocks, zero-based.
    pub npdg_z: u16,
    /// Namespace Preferred Deallocate Alignment in logical blocks, zero-based.
    pub npda_z: u16,
    /// Namespace Optimal Write Size in logical blocks, zero-based.
    pub nows_z: u16,
    /// Maximum Single Source Range Length of Copy in logical blocks.
    pub mssrl: u16,
    /// Maximum Copy Length in logical blocks.
    pub mcl: u32,
    /// Maximum Source Range Count of Copy, zero-based.
    pub msrc_z: u8,
    /// Key Per I/O Status.
    pub kpios: u8,
    /// Number of Unique Attribute LBA Formats.
    pub nulbaf: u8,
    _reserved83: u8,
    /// Key Per I/O Data Access Alignment and Granularity in logical blocks, zero-based.
    pub kpiodaag_z: u32,
    _reserved88: [u8; 4],
    /// ANA Group Identifier.
    pub anagrpid: u32,
    _reserved96: [u8; 3],
    /// Namespace Attributes: bit 0 write protected.
    pub nsattr: u8,
    /// NVM Set Identifier.
    pub nvmsetid: u16,
    /// Endurance Group Identifier.
    pub endgid: u16,
    /// Namespace Globally Unique Identifier, most significant byte first; zeroes when there is none.
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier, most significant byte first; zeroes when there is none.
    pub eui64: [u8; 8],
    /// LBA Formats.
    pub lbaf: [LbaFormat; 64],
    /// Vendor Specific.
    pub vs: [u8; 3712],
}

layout!(IdentifyNamespace, 4096, {
    nsfeat: 24, dlfeat: 33, noiob: 46, nvmcap: 48, npwg_z: 64, nows_z: 72, mcl: 76, kpiodaag_z: 84, anagrpid: 92,
    nsattr: 99, endgid: 102, nguid: 104, eui64: 120, lbaf: 128, vs: 384,
});

impl IdentifyNamespace {
    /// Index into the LBA formats that is in use. The upper bits count only when there are more than 16
    /// formats.
    pub const fn format_index(&self) -> u8 {
        let low = self.flbas & 0xf;
        let formats = self.nlbaf_z as u16 + self.nulbaf as u16 + 1;
        if formats > 16 { low | (self.flbas >> 5 & 3) << 4 } else { low }
    }

    /// The LBA format in use.
    pub const fn format(&self) -> LbaFormat {
        // The index has 6 bits and the array 64 entries.
        self.lbaf[self.format_index() as usize]
    }
}

codes! {
    /// Bits of NSFEAT, Namespace Features.
    pub mod nsfeat: u8 {
        THIN_PROVISIONING = 1 << 0, "Thin provisioning";
        ATOMIC = 1 << 1, "NAWUN, NAWUPF and NACWU apply";
        DEALLOCATED_ERROR = 1 << 2, "Reading a deallocated or unwritten block can be an error";
        IDENTIFIERS_NOT_REUSED = 1 << 3, "NGUID and EUI64 are never reused";
        OPTIMAL_PERFORMANCE = 1 << 4, "NPWG, NPWA, NPDG, NPDA and NOWS apply (bit 0 of OPTPERF)";
    }
}

/// I/O Command Set specific Identify Namespace of the NVM Command Set (CNS 05h, CSI 00h): 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NvmNamespaceIdentify {
    /// Logical Block Storage Tag Mask.
    pub lbstm: u64,
    /// Protection Information Capabilities.
    pub pic: u8,
    /// Protection Information Format Attribute.
    pub pifa: u8,
    _reserved10: [u8; 2],
    /// Extended LBA Formats: storage tag size in bits 6:0, protection information format in bits 8:7.
    pub elbaf: [u32; 64],
    /// Namespace Preferred Deallocate Granularity Large in logical blocks.
    pub npdgl: u32,
    /// Namespace Preferred Read Granularity in logical blocks.
    pub nprg: u32,
    /// Namespace Preferred Read Alignment in logical blocks.
    pub npra: u32,
    /// Namespace Optimal Read Size in logical blocks.
    pub nors: u32,
    /// Namespace Preferred Deallocate Alignment Large in logical blocks.
    pub npdal: u32,
    /// LBA Format Placement Shard Size in logical blocks.
    pub lbapss: u32,
    /// Tracked LBA Allocation Granularity in logical blocks.
    pub tlbaag: u32,
    _reserved296: [u8; 3800],
}

layout!(NvmNamespaceIdentify, 4096, { pic: 8, elbaf: 12, npdgl: 268, tlbaag: 292 });
