//! Scatter Gather List descriptors (Base 4.3.2).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

codes! {
    /// Descriptor types: bits 7:4 of the identifier byte.
    pub mod descriptor_type: u8 {
        DATA_BLOCK = 0x0, "SGL Data Block: address and length of data";
        BIT_BUCKET = 0x1, "SGL Bit Bucket: data read from the media that the host does not want";
        SEGMENT = 0x2, "SGL Segment: the next segment, which is not the last one";
        LAST_SEGMENT = 0x3, "SGL Last Segment: the next segment, which is the last one";
        KEYED_DATA_BLOCK = 0x4, "Keyed SGL Data Block";
        TRANSPORT_DATA_BLOCK = 0x5, "Transport SGL Data Block";
        VENDOR = 0xf, "Vendor specific";
    }

    /// Descriptor sub types: bits 3:0 of the identifier byte.
    pub mod sub_type: u8 {
        ADDRESS = 0x0, "The address is a memory address";
        OFFSET = 0x1, "The address is an offset, of a kind the transport defines";
        TRANSPORT = 0xa, "NVMe transport specific, first value of Ah to Fh";
    }
}

/// Bytes of one descriptor.
pub const DESCRIPTOR_BYTES: usize = 16;

/// An SGL descriptor: 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Descriptor {
    /// Address of the data or of the next segment.
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
    _reserved12: [u8; 3],
    /// Type in bits 7:4, sub type in bits 3:0.
    pub identifier: u8,
}

layout!(Descriptor, 16, { length: 8, identifier: 15 });

impl Descriptor {
    const fn new(kind: u8, address: u64, length: u32) -> Self {
        Self { address, length, _reserved12: [0; 3], identifier: kind << 4 | sub_type::ADDRESS }
    }

    /// `length` bytes of data at `address`.
    #[inline]
    pub const fn data_block(address: u64, length: u32) -> Self {
        Self::new(descriptor_type::DATA_BLOCK, address, length)
    }

    /// `length` bytes of data at `offset` of what a command capsule has behind its entry.
    #[inline]
    pub const fn in_capsule(offset: u64, length: u32) -> Self {
        let identifier = descriptor_type::DATA_BLOCK << 4 | sub_type::OFFSET;
        Self { address: offset, length, _reserved12: [0; 3], identifier }
    }

    /// `length` bytes of data that the transport moves.
    #[inline]
    pub const fn transport_block(length: u32) -> Self {
        let identifier = descriptor_type::TRANSPORT_DATA_BLOCK << 4 | sub_type::TRANSPORT;
        Self { address: 0, length, _reserved12: [0; 3], identifier }
    }

    /// `length` bytes that are not transferred.
    #[inline]
    pub const fn bit_bucket(length: u32) -> Self {
        Self::new(descriptor_type::BIT_BUCKET, 0, length)
    }

    /// The next segment: `length` bytes of descriptors at `address`, the last of which points to yet another
    /// segment.
    #[inline]
    pub const fn segment(address: u64, length: u32) -> Self {
        Self::new(descriptor_type::SEGMENT, address, length)
    }

    /// The last segment: `length` bytes of descriptors at `address`, none of which points to a segment.
    #[inline]
    pub const fn last_segment(address: u64, length: u32) -> Self {
        Self::new(descriptor_type::LAST_SEGMENT, address, length)
    }

    /// Type, 4 bits, see [`descriptor_type`].
    #[inline]
    pub const fn kind(&self) -> u8 {
        self.identifier >> 4
    }

    /// Sub type, 4 bits, see [`sub_type`].
    #[inline]
    pub const fn sub_type(&self) -> u8 {
        self.identifier & 0xf
    }

    /// From the data pointer of a submission queue entry whose PSDT says SGL.
    #[inline]
    pub const fn from_dptr(dptr: [u64; 2]) -> Self {
        let [a, b, c, identifier] = ((dptr[1] >> 32) as u32).to_le_bytes();
        Self { address: dptr[0], length: dptr[1] as u32, _reserved12: [a, b, c], identifier }
    }

    /// As the data pointer of a submission queue entry; PSDT is set by [`crate::Sqe::set_sgl`].
    #[inline]
    pub const fn to_dptr(self) -> [u64; 2] {
        let [a, b, c] = self._reserved12;
        let high = u32::from_le_bytes([a, b, c, self.identifier]);
        [self.address, self.length as u64 | (high as u64) << 32]
    }
}
