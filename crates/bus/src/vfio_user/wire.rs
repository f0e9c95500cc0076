//! Layouts and codes of the vfio-user protocol 0.1, all little-endian.
//!
//! The structures are those of `<linux/vfio.h>` behind a message header. Sources: `docs/vfio-user.rst` and
//! `include/vfio-user.h` of libvfio-user, and QEMU's `hw/vfio-user/protocol.h` where the document is silent.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most data bytes in one region or DMA message, as we announce it (`max_data_xfer_size`).
pub const DATA_BYTES_MAX: usize = 1 << 20;
/// Longest message we take: the data, and room for the header and the structure before it.
pub const MESSAGE_BYTES_MAX: usize = DATA_BYTES_MAX + 4096;
/// Most descriptors the kernel passes with one message (SCM_MAX_FD).
pub(crate) const FDS_MAX: usize = 253;
/// Descriptors per message we announce (`max_msg_fds`). QEMU rejects a larger number; more are taken all the
/// same.
pub(crate) const FDS_ANNOUNCED: u64 = 16;
/// Most DMA ranges a client may have mapped, announced as `max_dma_maps`: the most QEMU accepts.
pub(crate) const DMA_RANGES_MAX: usize = 65_535;

/// What a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Command(pub(crate) u16);

macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        impl Command {
            $($(#[$doc])* pub(crate) const $name: Self = Self($code);)*
        }

        impl std::fmt::Display for Command {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match *self {
                    $(Self::$name => f.write_str(stringify!($name)),)*
                    Self(code) => write!(f, "command {code}"),
                }
            }
        }
    };
}

commands! {
    VERSION = 1,
    DMA_MAP = 2,
    DMA_UNMAP = 3,
    DEVICE_GET_INFO = 4,
    DEVICE_GET_REGION_INFO = 5,
    DEVICE_GET_REGION_IO_FDS = 6,
    DEVICE_GET_IRQ_INFO = 7,
    DEVICE_SET_IRQS = 8,
    REGION_READ = 9,
    REGION_WRITE = 10,
    DMA_READ = 11,
    DMA_WRITE = 12,
    /// The early drafts of the document say 14; every implementation says 13.
    DEVICE_RESET = 13,
    DIRTY_PAGES = 14,
    REGION_WRITE_MULTI = 15,
}

/// Bits 3:0 of [`Header::flags`]: what kind of message it is.
pub(crate) const FLAG_TYPE_MASK: u32 = 0xf;
pub(crate) const TYPE_COMMAND: u32 = 0;
/// The reply to the command with the same message ID.
pub(crate) const TYPE_REPLY: u32 = 1;
/// The sender of a command wants no reply.
pub(crate) const FLAG_NO_REPLY: u32 = 1 << 4;
/// The command failed; [`Header::error`] holds an errno, and nothing follows the header.
pub(crate) const FLAG_ERROR: u32 = 1 << 5;

/// Start of every message.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    /// Chosen by the sender of a command and repeated in its reply.
    pub(crate) id: U16,
    pub(crate) command: U16,
    /// Bytes of the whole message, header included.
    pub(crate) size: U32,
    pub(crate) flags: U32,
    /// An errno in an error reply.
    pub(crate) error: U32,
}

/// Bytes of [`Header`].
pub(crate) const HEADER_BYTES: usize = size_of::<Header>();

impl Header {
    pub(crate) fn command(&self) -> Command {
        Command(self.command.get())
    }

    pub(crate) fn kind(&self) -> u32 {
        self.flags.get() & FLAG_TYPE_MASK
    }
}

/// Payload of VERSION, before the JSON text.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Version {
    pub(crate) major: U16,
    pub(crate) minor: U16,
}

pub(crate) const VERSION_MAJOR: u16 = 0;
pub(crate) const VERSION_MINOR: u16 = 1;

/// Payload of DMA_MAP (`struct vfio_iommu_type1_dma_map`, the address field holding the descriptor's offset).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct DmaMap {
    pub(crate) argsz: U32,
    pub(crate) flags: U32,
    /// Offset of the range in the object behind the descriptor.
    pub(crate) offset: U64,
    pub(crate) iova: U64,
    pub(crate) length: U64,
}

/// The device may read.
pub(crate) const DMA_READABLE: u32 = 1 << 0;
/// The device may write.
pub(crate) const DMA_WRITABLE: u32 = 1 << 1;
/// Set by clients of an early draft when a descriptor comes along, which its presence says already.
pub(crate) const DMA_MAPPABLE: u32 = 1 << 2;

/// Payload of DMA_UNMAP, and of its reply.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct DmaUnmap {
    pub(crate) argsz: U32,
    pub(crate) flags: U32,
    pub(crate) iova: U64,
    pub(crate) length: U64,
}

/// `VFIO_DMA_UNMAP_FLAG_ALL`: everything there is; address and length are zero.
pub(crate) const UNMAP_ALL: u32 = 1 << 1;

/// Payload of DEVICE_GET_INFO, and of its reply.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct DeviceInfo {
    pub(crate) argsz: U32,
    pub(crate) flags: U32,
    pub(crate) regions: U32,
    pub(crate) irqs: U32,
}

/// DEVICE_RESET works.
pub(crate) const DEVICE_RESETTABLE: u32 = 1 << 0;
/// A PCI device: regions and interrupts are numbered as below.
pub(crate) const DEVICE_PCI: u32 = 1 << 1;

/// Base address registers are regions 0 to 5.
pub(crate) const BARS: usize = 6;
/// Configuration space.
pub(crate) const REGION_CONFIG: u32 = 7;
/// Regions of a PCI device: six BARs, expansion ROM, configuration space, VGA.
pub(crate) const REGIONS: u32 = 9;
/// MSI-X, the only interrupt index that has vectors here.
pub(crate) const IRQ_MSIX: u32 = 2;
/// Interrupt indices of a PCI device: INTx, MSI, MSI-X, error, request.
pub(crate) const IRQS: u32 = 5;

/// Payload of DEVICE_GET_REGION_INFO, and of its reply, which capabilities may follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RegionInfo {
    /// Bytes the client takes, and in the reply those it would take to send everything.
    pub(crate) argsz: U32,
    pub(crate) flags: U32,
    pub(crate) index: U32,
    /// Offset of the first capability from the start of this structure.
    pub(crate) cap_offset: U32,
    pub(crate) size: U64,
    /// Where the region starts in the object behind its descriptor.
    pub(crate) offset: U64,
}

pub(crate) const REGION_READABLE: u32 = 1 << 0;
pub(crate) const REGION_WRITABLE: u32 = 1 << 1;
/// A descriptor comes along that can be mapped.
pub(crate) const REGION_MAPPABLE: u32 = 1 << 2;
pub(crate) const REGION_HAS_CAPS: u32 = 1 << 3;

/// Start of a region capability.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct CapHeader {
    pub(crate) id: U16,
    pub(crate) version: U16,
    /// Offset of the next capability from the start of the region information; 0 ends the list.
    pub(crate) next: U32,
}

/// The parts of the region that can be mapped follow.
pub(crate) const CAP_SPARSE_MMAP: u16 = 1;

/// The rest of a sparse mmap capability; [`SparseArea`]s follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct SparseHeader {
    pub(crate) areas: U32,
    pub(crate) reserved: U32,
}

/// A part of a region that can be mapped, at [`RegionInfo::offset`] + `offset` of the descriptor.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct SparseArea {
    pub(crate) offset: U64,
    pub(crate) size: U64,
}

/// Payload of DEVICE_GET_IRQ_INFO, and of its reply.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct IrqInfo {
    pub(crate) argsz: U32,
    pub(crate) flags: U32,
    pub(crate) index: U32,
    pub(crate) count: U32,
}

/// Vectors of the index can be delivered to eventfds.
pub(crate) const IRQ_EVENTFD: u32 = 1 << 0;

/// Payload of DEVICE_SET_IRQS, before its array of booleans if it has one.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct SetIrqs {
    pub(crate) argsz: U32,
    pub(crate) flags: U32,
    pub(crate) index: U32,
    pub(crate) start: U32,
    pub(crate) count: U32,
}

pub(crate) const IRQ_DATA_NONE: u32 = 1 << 0;
pub(crate) const IRQ_DATA_BOOL: u32 = 1 << 1;
pub(crate) const IRQ_DATA_EVENTFD: u32 = 1 << 2;
pub(crate) const IRQ_ACTION_MASK: u32 = 1 << 3;
pub(crate) const IRQ_ACTION_UNMASK: u32 = 1 << 4;
pub(crate) const IRQ_ACTION_TRIGGER: u32 = 1 << 5;

/// Payload of REGION_READ and REGION_WRITE, and of their replies, before the data.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RegionAccess {
    pub(crate) offset: U64,
    pub(crate) region: U32,
    pub(crate) count: U32,
}

/// One of the writes of a REGION_WRITE_MULTI, whose payload is a 64-bit count and that many of these.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct MultiWrite {
    pub(crate) offset: U64,
    pub(crate) region: U32,
    /// Bytes of `data` that count, 8 at most.
    pub(crate) count: U32,
    pub(crate) data: [u8; 8],
}

/// Payload of DMA_READ and DMA_WRITE, and of their replies, before the data.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct DmaAccess {
    pub(crate) iova: U64,
    pub(crate) count: U64,
}

const _: () = {
    assert!(size_of::<Header>() == 16 && offset_of!(Header, error) == 12);
    assert!(size_of::<Version>() == 4);
    assert!(size_of::<DmaMap>() == 32 && offset_of!(DmaMap, iova) == 16);
    assert!(size_of::<DmaUnmap>() == 24 && offset_of!(DmaUnmap, length) == 16);
    assert!(size_of::<DeviceInfo>() == 16 && offset_of!(DeviceInfo, irqs) == 12);
    assert!(size_of::<RegionInfo>() == 32 && offset_of!(RegionInfo, offset) == 24);
    assert!(size_of::<CapHeader>() == 8 && size_of::<SparseHeader>() == 8 && size_of::<SparseArea>() == 16);
    assert!(size_of::<IrqInfo>() == 16 && offset_of!(IrqInfo, count) == 12);
    assert!(size_of::<SetIrqs>() == 20 && offset_of!(SetIrqs, count) == 16);
    assert!(size_of::<RegionAccess>() == 16 && offset_of!(RegionAccess, count) == 12);
    assert!(size_of::<MultiWrite>() == 24 && offset_of!(MultiWrite, data) == 16);
    assert!(size_of::<DmaAccess>() == 16);
};

/// Puts the header in front of a message whose payload is in place after [`HEADER_BYTES`] bytes of room.
pub(crate) fn seal(message: &mut [u8], id: u16, command: Command, flags: u32) {
    // Our own messages are at most a few pages longer than DATA_BYTES_MAX.
    let size = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let header = Header {
        id: id.into(),
        command: command.0.into(),
        size: size.into(),
        flags: flags.into(),
        error: 0.into(),
    };
    if let Some(room) = message.get_mut(..HEADER_BYTES) {
        room.copy_from_slice(header.as_bytes());
    }
}

/// A message that says a command failed: a header alone, as the protocol demands.
pub(crate) fn error_reply(id: u16, command: Command, errno: u32) -> Vec<u8> {
    let header = Header {
        id: id.into(),
        command: command.0.into(),
        size: (HEADER_BYTES as u32).into(),
        flags: (TYPE_REPLY | FLAG_ERROR).into(),
        error: errno.into(),
    };
    header.as_bytes().to_vec()
}
