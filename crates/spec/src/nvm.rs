//! Commands of the NVM Command Set (NVM 1.1, section 3).

pub use crate::command::table::nvm as opcode;
use crate::{
    Lba, Nsid, Sqe,
    fdp::{IoManagementReceive, IoManagementSend},
};

/// Most logical blocks one command can name: NLB is a zero-based 16-bit field.
pub const BLOCKS_PER_COMMAND_MAX: u32 = 1 << 16;

const DW12_LIMITED_RETRY: u32 = 1 << 31;
pub(crate) const DW12_FUA: u32 = 1 << 30;
const DW12_PRINFO_SHIFT: u32 = 26;
const DW12_DEALLOCATE: u32 = 1 << 25;

/// A range of logical blocks, as all commands but Dataset Management name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockRange {
    /// First logical block.
    pub start: Lba,
    /// Number of logical blocks, 1 to 65536.
    pub blocks: u32,
}

impl BlockRange {
    /// A range of `blocks` logical blocks (1 to [`BLOCKS_PER_COMMAND_MAX`]) from `start`.
    #[inline]
    pub const fn new(start: Lba, blocks: u32) -> Self {
        Self { start, blocks }
    }

    /// The logical block behind the last one; `None` when it does not fit in 64 bits.
    #[inline]
    pub const fn end(self) -> Option<u64> {
        self.start.0.checked_add(self.blocks as u64)
    }

    /// The blocks of a command that names them in dwords 10 to 12.
    #[inline]
    pub const fn parse(sqe: &Sqe) -> Self {
        Self { start: Lba(sqe.cdw10_11()), blocks: (sqe.cdw12 & 0xffff) + 1 }
    }

    #[inline(always)]
    fn encode(self, sqe: &mut Sqe) {
        sqe.set_cdw10_11(self.start.0);
        sqe.cdw12 = self.blocks.wrapping_sub(1) & 0xffff;
    }
}

/// Options of the commands that move data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessFlags {
    /// Force Unit Access: a write is on the media before it completes, a read comes from the media.
    pub force_unit_access: bool,
    /// Limited Retry: the controller should spend less effort on error recovery.
    pub limited_retry: bool,
    /// Protection Information fields (PRACT and PRCHK), 4 bits; zero on a namespace without protection.
    pub protection_info: u8,
}

impl AccessFlags {
    /// Force Unit Access and nothing else.
    pub const FUA: Self = Self { force_unit_access: true, limited_retry: false, protection_info: 0 };

    #[inline]
    fn parse(cdw12: u32) -> Self {
        Self {
            force_unit_access: cdw12 & DW12_FUA != 0,
            limited_retry: cdw12 & DW12_LIMITED_RETRY != 0,
            protection_info: (cdw12 >> DW12_PRINFO_SHIFT) as u8 & 0xf,
        }
    }

    #[inline]
    const fn encode(self) -> u32 {
        (self.force_unit_access as u32) << 30
            | (self.limited_retry as u32) << 31
            | (self.protection_info as u32 & 0xf) << DW12_PRINFO_SHIFT
    }
}

/// A command of the NVM Command Set, with lengths widened to one-based.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Flush: all that was written is on the media.
    Flush,
    /// Write. Its directive, if any, is in the entry: [`Sqe::directive`].
    Write(BlockRange, AccessFlags),
    /// Read.
    Read(BlockRange, AccessFlags),
    /// Write Uncorrectable: reading these blocks fails until they are written.
    WriteUncorrectable(BlockRange),
    /// Compare.
    Compare(BlockRange, AccessFlags),
    /// Write Zeroes.
    WriteZeroes {
        /// Blocks to zero.
        range: BlockRange,
        /// Access options.
        flags: AccessFlags,
        /// DEAC: the controller should deallocate the blocks.
        deallocate: bool,
    },
    /// Dataset Management over `ranges` entries of [`DsmRange`] in the data buffer.
    DatasetManagement {
        /// Number of ranges, 1 to 256.
        ranges: u32,
        /// AD: deallocate.
        deallocate: bool,
        /// IDW and IDR hints, bits 1:0.
        hints: u8,
    },
    /// Verify: the blocks can be read.
    Verify(BlockRange, AccessFlags),
    /// I/O Management Receive.
    IoManagementReceive(IoManagementReceive),
    /// I/O Management Send.
    IoManagementSend(IoManagementSend),
    /// An opcode this crate does not know.
    Unknown(u8),
}

impl Command {
    /// Reads a submission queue entry. Never fails: an unknown opcode is a value.
    #[inline]
    pub fn parse(sqe: &Sqe) -> Self {
        match sqe.opcode {
            opcode::READ => Self::Read(BlockRange::parse(sqe), AccessFlags::parse(sqe.cdw12)),
            opcode::WRITE => Self::Write(BlockRange::parse(sqe), AccessFlags::parse(sqe.cdw12)),
            opcode::FLUSH => Self::Flush,
            opcode::WRITE_UNCORRECTABLE => Self::WriteUncorrectable(BlockRange::parse(sqe)),
            opcode::COMPARE => Self::Compare(BlockRange::parse(sqe), AccessFlags::parse(sqe.cdw12)),
            opcode::WRITE_ZEROES => Self::WriteZeroes {
                range: BlockRange::parse(sqe),
                flags: AccessFlags::parse(sqe.cdw12),
                deallocate: sqe.cdw12 & DW12_DEALLOCATE != 0,
            },
            opcode::DATASET_MANAGEMENT => Self::DatasetManagement {
                ranges: (sqe.cdw10 & 0xff) + 1,
                deallocate: sqe.cdw11 & 4 != 0,
                hints: sqe.cdw11 as u8 & 3,
            },
            opcode::VERIFY => Self::Verify(BlockRange::parse(sqe), AccessFlags::parse(sqe.cdw12)),
            opcode::IO_MANAGEMENT_RECEIVE => Self::IoManagementReceive(IoManagementReceive::parse(sqe)),
            opcode::IO_MANAGEMENT_SEND => Self::IoManagementSend(IoManagementSend::parse(sqe)),
            other => Self::Unknown(other),
        }
    }

    /// Writes opcode, namespace and command dwords; command identifier and data pointer are the queue's to
    /// fill in.
    #[inline(always)]
    pub fn encode(self, nsid: Nsid) -> Sqe {
        let mut sqe = Sqe { nsid: nsid.0, ..Sqe::default() };
        match self {
            Self::Flush => sqe.opcode = opcode::FLUSH,
            Self::Read(range, flags) => encode_access(&mut sqe, opcode::READ, range, flags),
            Self::Write(range, flags) => encode_access(&mut sqe, opcode::WRITE, range, flags),
            Self::Compare(range, flags) => encode_access(&mut sqe, opcode::COMPARE, range, flags),
            Self::Verify(range, flags) => encode_access(&mut sqe, opcode::VERIFY, range, flags),
            Self::WriteUncorrectable(range) => {
                encode_access(&mut sqe, opcode::WRITE_UNCORRECTABLE, range, AccessFlags::default());
            }
            Self::WriteZeroes { range, flags, deallocate } => {
                encode_access(&mut sqe, opcode::WRITE_ZEROES, range, flags);
                sqe.cdw12 |= (deallocate as u32) << 25;
            }
            Self::DatasetManagement { ranges, deallocate, hints } => {
                sqe.opcode = opcode::DATASET_MANAGEMENT;
                sqe.cdw10 = ranges.wrapping_sub(1) & 0xff;
                sqe.cdw11 = (hints as u32 & 3) | (deallocate as u32) << 2;
            }
            Self::IoManagementReceive(command) => {
                sqe.opcode = opcode::IO_MANAGEMENT_RECEIVE;
                command.encode(&mut sqe);
            }
            Self::IoManagementSend(command) => {
                sqe.opcode = opcode::IO_MANAGEMENT_SEND;
                command.encode(&mut sqe);
            }
            Self::Unknown(opcode) => sqe.opcode = opcode,
        }
        sqe
    }
}

#[inline(always)]
fn encode_access(sqe: &mut Sqe, opcode: u8, range: BlockRange, flags: AccessFlags) {
    sqe.opcode = opcode;
    range.encode(sqe);
    sqe.cdw12 |= flags.encode();
}

/// One range of a Dataset Management command (NVM figure 47): 16 bytes.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    zerocopy::FromBytes,
    zerocopy::IntoBytes,
    zerocopy::KnownLayout,
    zerocopy::Immutable,
)]
#[repr(C)]
pub struct DsmRange {
    /// Context attributes (hints).
    pub attributes: u32,
    /// Length in logical blocks; unlike NLB not zero-based.
    pub blocks: u32,
    /// First logical block.
    pub start: u64,
}

const _: () = {
    assert!(size_of::<DsmRange>() == 16);
    assert!(core::mem::offset_of!(DsmRange, start) == 8);
};
