//! Identify data structures of the Key Value Command Set (KV 1.3, section 4.1.5).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Key value formats a namespace can state.
pub const KV_FORMATS_MAX: usize = 16;

/// Version of the Key Value Command Set that is implemented here, as [`KvControllerIdentify`] states it: 1.3.
pub const KV_VERSION_1_3: u32 = 1 << 16 | 3 << 8;

/// A key value format: 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct KvFormat {
    /// KVKML, most bytes of a key, at most 16.
    pub kvkml: u16,
    /// Reserved.
    pub reserved2: u8,
    /// AFO, additional format options: relative performance in bits 1:0.
    pub afo: u8,
    /// KVVML, most bytes of a value.
    pub kvvml: u32,
    /// MNKS, most keys of a namespace; 0 is no limit.
    pub mnks: u32,
    /// Reserved.
    pub reserved12: u32,
}

const _: () = assert!(size_of::<KvFormat>() == 16);

/// Identify Namespace of the Key Value Command Set (CNS 05h and 1Bh, CSI 01h).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct KvNamespaceIdentify {
    /// NSZE, size in bytes.
    pub nsze: u64,
    /// Reserved.
    pub reserved8: u64,
    /// NUSE, bytes in use.
    pub nuse: u64,
    /// NSFEAT, features.
    pub nsfeat: u8,
    /// NKVF, number of formats, zero-based.
    pub nkvf_z: u8,
    /// NMIC, multi-path I/O and sharing.
    pub nmic: u8,
    /// RESCAP, reservation capabilities.
    pub rescap: u8,
    /// FPI, format progress indicator.
    pub fpi: u8,
    /// KVFC, index of the current format in bits 3:0 (1.3).
    pub kvfc: u8,
    /// Reserved.
    pub reserved30: [u8; 2],
    /// NOVG, optimal value granularity in bytes.
    pub novg: u32,
    /// ANAGRPID.
    pub anagrpid: u32,
    /// Reserved.
    pub reserved40: [u8; 3],
    /// NSATTR, attributes.
    pub nsattr: u8,
    /// NVMSETID.
    pub nvmsetid: u16,
    /// ENDGID.
    pub endgid: u16,
    /// NGUID.
    pub nguid: [u8; 16],
    /// EUI64.
    pub eui64: [u8; 8],
    /// Key value formats.
    pub kvf: [KvFormat; KV_FORMATS_MAX],
    /// Reserved.
    pub reserved328: [u8; 3512],
    /// Vendor specific.
    pub vendor: [u8; 256],
}

layout!(KvNamespaceIdentify, 4096, { nuse: 16, nsfeat: 24, nkvf_z: 25, fpi: 28, kvfc: 29, novg: 32, nsattr: 43, endgid: 46, nguid: 48, eui64: 64, kvf: 72, vendor: 3840 });

impl KvNamespaceIdentify {
    /// The current format; all zeroes when the index names none.
    pub fn format(&self) -> KvFormat {
        self.kvf.get(usize::from(self.kvfc & 0xf)).copied().unwrap_or_default()
    }
}

/// Identify Controller of the Key Value Command Set (CNS 06h, CSI 01h).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct KvControllerIdentify {
    /// VER, version of the Key Value Command Set Specification (1.3): major in bits 31:16, minor in 15:8.
    pub ver: u32,
    /// Reserved.
    pub reserved4: [u8; 4092],
}

layout!(KvControllerIdentify, 4096, { ver: 0 });

/// Host software specified fields of a namespace of the Key Value Command Set (Namespace Management; KV
/// 4.1.6): 4096 bytes. Offsets are those of [`KvNamespaceIdentify`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct KvNamespaceCreate {
    /// NSZE, size in bytes.
    pub nsze: u64,
    _reserved8: [u8; 18],
    /// NMIC, multi-path I/O and sharing.
    pub nmic: u8,
    _reserved27: [u8; 2],
    /// KVFC, index of the format in bits 3:0.
    pub kvfc: u8,
    _reserved30: [u8; 6],
    /// ANAGRPID; 0 lets the controller choose.
    pub anagrpid: u32,
    _reserved40: [u8; 4],
    /// NVMSETID; 0 lets the controller choose.
    pub nvmsetid: u16,
    /// ENDGID; 0 lets the controller choose.
    pub endgid: u16,
    _reserved48: [u8; 344],
    /// NPHNDLS, number of placement handles.
    pub nphndls: u16,
    _reserved394: [u8; 118],
    /// Placement Handle Associated RUH, `nphndls` of them.
    pub phndl: [u16; 128],
    _reserved768: [u8; 3328],
}

layout!(KvNamespaceCreate, 4096, {
    nmic: 26, kvfc: 29, anagrpid: 36, nvmsetid: 44, endgid: 46, nphndls: 392, phndl: 512,
});

impl From<KvNamespaceCreate> for super::NamespaceCreate {
    /// The same page, as Namespace Management sends it; the placement handles are at the same place.
    fn from(create: KvNamespaceCreate) -> Self {
        zerocopy::transmute!(create)
    }
}
