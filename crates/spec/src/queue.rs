//! Submission and completion queue entries (Base 3.3.3).

use core::mem::{offset_of, size_of};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Status;

/// Submission queue entry: 64 bytes (Base 3.3.3.1, figures 91 and 92).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
pub struct Sqe {
    /// Opcode; bits 1:0 give the direction of the data transfer.
    pub opcode: u8,
    /// FUSE in bits 1:0, PSDT in bits 7:6.
    pub flags: u8,
    /// Command identifier.
    pub cid: u16,
    /// Namespace identifier.
    pub nsid: u32,
    /// Command dword 2.
    pub cdw2: u32,
    /// Command dword 3.
    pub cdw3: u32,
    /// Metadata pointer.
    pub mptr: u64,
    /// Data pointer: PRP1 and PRP2, or one SGL descriptor.
    pub dptr: [u64; 2],
    /// Command dword 10.
    pub cdw10: u32,
    /// Command dword 11.
    pub cdw11: u32,
    /// Command dword 12.
    pub cdw12: u32,
    /// Command dword 13.
    pub cdw13: u32,
    /// Command dword 14.
    pub cdw14: u32,
    /// Command dword 15.
    pub cdw15: u32,
}

const _: () = {
    assert!(size_of::<Sqe>() == 64);
    assert!(offset_of!(Sqe, mptr) == 16);
    assert!(offset_of!(Sqe, dptr) == 24);
    assert!(offset_of!(Sqe, cdw15) == 60);
};

/// Fused operation (Base 3.4.2): bits 1:0 of the flags byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fuse {
    /// A command of its own.
    Normal,
    /// First command of a fused pair.
    First,
    /// Second command of a fused pair.
    Second,
    /// Value 3, which the specification reserves.
    Reserved,
}

/// How the data pointer is to be read: PSDT, bits 7:6 of the flags byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPointerKind {
    /// Physical Region Pages.
    Prp,
    /// SGL; the metadata pointer, if any, is one contiguous buffer.
    Sgl,
    /// SGL; the metadata pointer is the address of an SGL segment.
    SglMetadata,
    /// Value 3, which the specification reserves.
    Reserved,
}

impl Sqe {
    /// Fused operation of this entry.
    #[inline]
    pub const fn fuse(&self) -> Fuse {
        match self.flags & 3 {
            0 => Fuse::Normal,
            1 => Fuse::First,
            2 => Fuse::Second,
            _ => Fuse::Reserved,
        }
    }

    /// Sets the fused operation.
    pub const fn set_fuse(&mut self, fuse: Fuse) {
        let bits = match fuse {
            Fuse::Normal => 0,
            Fuse::First => 1,
            Fuse::Second => 2,
            Fuse::Reserved => 3,
        };
        self.flags = self.flags & !3 | bits;
    }

    /// How the data pointer is to be read.
    #[inline]
    pub const fn data_pointer_kind(&self) -> DataPointerKind {
        match self.flags >> 6 {
            0 => DataPointerKind::Prp,
            1 => DataPointerKind::Sgl,
            2 => DataPointerKind::SglMetadata,
            _ => DataPointerKind::Reserved,
        }
    }

    /// Declares the data pointer an SGL descriptor (PSDT 01b) instead of PRPs.
    #[inline]
    pub const fn set_sgl(&mut self) {
        self.flags = self.flags & 0x3f | 0x40;
    }

    /// A 64-bit value from command dwords 10 (low) and 11 (high): most I/O commands keep the starting LBA
    /// there.
    #[inline]
    pub const fn cdw10_11(&self) -> u64 {
        self.cdw10 as u64 | (self.cdw11 as u64) << 32
    }

    /// The entry as the eight 64-bit words it has in memory.
    ///
    /// Put together from the fields, not reinterpreted: narrow stores that are read back as wide words stall
    /// a processor until all of them have left its store buffer, which costs more than everything else a
    /// submission does.
    #[inline(always)]
    pub const fn to_words(&self) -> [u64; 8] {
        const fn join(low: u32, high: u32) -> u64 {
            low as u64 | (high as u64) << 32
        }
        let head = self.opcode as u32 | (self.flags as u32) << 8 | (self.cid as u32) << 16;
        [
            join(head, self.nsid),
            join(self.cdw2, self.cdw3),
            self.mptr,
            self.dptr[0],
            self.dptr[1],
            join(self.cdw10, self.cdw11),
            join(self.cdw12, self.cdw13),
            join(self.cdw14, self.cdw15),
        ]
    }

    /// Sets command dwords 10 (low) and 11 (high).
    #[inline]
    pub const fn set_cdw10_11(&mut self, value: u64) {
        self.cdw10 = value as u32;
        self.cdw11 = (value >> 32) as u32;
    }
}

/// Completion queue entry: 16 bytes (Base 3.3.3.2, figure 96).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(16))]
pub struct Cqe {
    /// Command specific result, dword 0.
    pub dw0: u32,
    /// Command specific result, dword 1.
    pub dw1: u32,
    /// Submission queue head pointer: entries before it have been consumed.
    pub sq_head: u16,
    /// Submission queue the command came from.
    pub sq_id: u16,
    /// Command identifier.
    pub cid: u16,
    /// Bit 0 phase tag, bits 15:1 status.
    pub status_phase: u16,
}

const _: () = {
    assert!(size_of::<Cqe>() == 16);
    assert!(offset_of!(Cqe, status_phase) == 14);
};

impl Cqe {
    /// The status field.
    #[inline]
    pub const fn status(&self) -> Status {
        Status::from_raw(self.status_phase >> 1)
    }

    /// The phase tag.
    #[inline]
    pub const fn phase(&self) -> bool {
        self.status_phase & 1 != 0
    }

    /// Sets status and phase tag together.
    #[inline]
    pub const fn set_status(&mut self, status: Status, phase: bool) {
        self.status_phase = status.raw() << 1 | phase as u16;
    }

    /// The entry as the two 64-bit words it has in memory, put together from the fields as in
    /// [`Sqe::to_words`]. The phase tag is in the second.
    #[inline(always)]
    pub const fn to_words(&self) -> [u64; 2] {
        let origin = self.sq_head as u64 | (self.sq_id as u64) << 16;
        [self.result(), origin | (self.cid as u64) << 32 | (self.status_phase as u64) << 48]
    }

    /// Command specific result as one 64-bit value.
    #[inline]
    pub const fn result(&self) -> u64 {
        self.dw0 as u64 | (self.dw1 as u64) << 32
    }
}
