//! Commands as a program says them, and as the device takes them.

use sdk::fdp::PlacementId;
use sdk::{
    AccessFlags, BlockQueue, BlockRange, KvKey, Lba, Namespace, Op, Status, StoreOptions, WriteOptions,
};

use crate::queue::memory::Memory;
use crate::queue::slots::{Data, Kind, Slots};
use crate::queue::take_back;
use crate::result::{Code, Failure, Result};

/// `enum unvme_verb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Read,
    Write,
    Compare,
    Verify,
    WriteZeroes,
    Deallocate,
    Flush,
    Store,
    Retrieve,
    Delete,
    Exist,
    Append,
}

impl Verb {
    /// In the order of their numbers.
    pub(crate) const ALL: [Self; 12] = [
        Self::Read,
        Self::Write,
        Self::Compare,
        Self::Verify,
        Self::WriteZeroes,
        Self::Deallocate,
        Self::Flush,
        Self::Store,
        Self::Retrieve,
        Self::Delete,
        Self::Exist,
        Self::Append,
    ];

    /// Data comes from the device.
    #[inline]
    pub(super) fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Retrieve)
    }

    /// There is data.
    #[inline]
    pub(crate) fn moves(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Compare | Self::Store | Self::Retrieve | Self::Append)
    }

    fn is_of_blocks(self) -> bool {
        (self as u8) < Self::Flush as u8
    }
}

/// `enum unvme_flag`, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(pub(crate) u16);

impl Flags {
    const FUA: u16 = 1;
    const PLACED: u16 = 2;
    const DEALLOCATE: u16 = 4;
    const MUST_EXIST: u16 = 8;
    const MUST_NOT_EXIST: u16 = 16;
    /// All that have a meaning.
    pub(crate) const ALL: u16 = 31;

    #[inline]
    fn has(self, flag: u16) -> bool {
        self.0 & flag != 0
    }
}

/// `unvme_command`, looked at.
#[derive(Clone, Copy)]
pub(crate) struct Command<'a> {
    pub(crate) verb: Verb,
    pub(crate) keyspace: u8,
    pub(crate) flags: Flags,
    pub(crate) placement: u16,
    pub(crate) lba: u64,
    /// Bytes of the data, or of the blocks.
    pub(crate) length: usize,
    pub(crate) key: &'a [u8],
    pub(crate) data: *mut u8,
    pub(crate) token: u64,
}

impl<'a> Command<'a> {
    /// The blocks of a command for blocks; 0 of one that has none.
    #[inline]
    pub(super) fn check_blocks(&self, namespace: &Namespace) -> Result<u64> {
        if self.verb == Verb::Flush {
            return Ok(0);
        }
        if !self.verb.is_of_blocks() {
            return Err(Failure::new(Code::DD_UNSUPPORTED_CMD, "a namespace of blocks has no keys"));
        }
        let block_bytes = u64::from(namespace.block_bytes());
        let length = self.length as u64;
        if length == 0 || !length.is_multiple_of(block_bytes) {
            return Err(not_whole(self.length, namespace.block_bytes()));
        }
        let blocks = length / block_bytes;
        match self.lba.checked_add(blocks) {
            Some(end) if end <= namespace.blocks() => Ok(blocks),
            _ => Err(Failure::of_status(Status::LBA_OUT_OF_RANGE, Code::IO)),
        }
    }

    /// Whether it is one command of the device, which moves data.
    #[inline]
    pub(super) fn is_one(&self, namespace: &Namespace, blocks: u64) -> bool {
        self.verb.moves() && blocks <= namespace.transfer_blocks_max().into()
    }

    #[inline]
    pub(super) fn range(&self, blocks: u32) -> BlockRange {
        BlockRange::new(Lba(self.lba), blocks)
    }

    fn access(&self) -> AccessFlags {
        AccessFlags { force_unit_access: self.flags.has(Flags::FUA), ..AccessFlags::default() }
    }

    /// The operation of one that moves data from or to blocks.
    #[inline]
    pub(super) fn transfer(&self, blocks: u32) -> Op<'static> {
        let range = self.range(blocks);
        match self.verb {
            Verb::Read => Op::Read(range, self.access()),
            Verb::Compare => Op::Compare(range, self.access()),
            _ => {
                let placement = self.flags.has(Flags::PLACED).then_some(PlacementId(self.placement));
                Op::Write(range, WriteOptions { flags: self.access(), placement })
            }
        }
    }

    /// The operation on a namespace of pairs.
    #[inline]
    pub(super) fn of_pairs(&self) -> Result<Op<'a>> {
        let key = KvKey { keyspace: self.keyspace, bytes: self.key };
        Ok(match self.verb {
            Verb::Store => {
                let options = match (self.flags.has(Flags::MUST_EXIST), self.flags.has(Flags::MUST_NOT_EXIST))
                {
                    (true, true) => return Err(contradiction()),
                    (true, false) => StoreOptions::IF_EXISTS,
                    (false, true) => StoreOptions::IF_NOT_EXISTS,
                    (false, false) => StoreOptions::default(),
                };
                Op::Store { key, bytes: self.length, options }
            }
            Verb::Retrieve => Op::Retrieve { key, offset: 0, bytes: self.length },
            Verb::Delete => Op::Delete { key, must_exist: self.flags.has(Flags::MUST_EXIST) },
            Verb::Exist => Op::Exist(key),
            Verb::Append => Op::Append { key, bytes: self.length },
            Verb::Flush => Op::Flush,
            _ => return Err(Failure::new(Code::DD_UNSUPPORTED_CMD, "a namespace of pairs has no blocks")),
        })
    }

    /// What is to be done when it has ended.
    #[inline]
    pub(super) fn kind(&self) -> Kind {
        match self.verb {
            Verb::Retrieve => Kind::Retrieve,
            Verb::Delete if !self.flags.has(Flags::MUST_EXIST) => Kind::Forgiving,
            _ => Kind::Plain,
        }
    }
}

#[cold]
fn not_whole(length: usize, block_bytes: u32) -> Failure {
    let text =
        format!("{length} bytes: a multiple of {block_bytes}, the bytes of a block, is expected, and not 0");
    Failure::new(Code::DD_INVALID_PARAM, text)
}

#[cold]
fn contradiction() -> Failure {
    Failure::new(Code::SDK_INVALID_PARAM, "a pair that must be there and must not be there")
}

/// What is left of a command that takes more than one of the device's, or a list of ranges.
pub(super) struct Work {
    slot: u64,
    verb: Verb,
    flags: Flags,
    placement: u16,
    lba: u64,
    blocks: u64,
    data: *mut u8,
    is_done: bool,
}

impl Work {
    pub(super) fn new(slot: u64, command: &Command<'_>, blocks: u64) -> Self {
        let &Command { verb, flags, placement, lba, data, .. } = command;
        Self { slot, verb, flags, placement, lba, blocks, data, is_done: false }
    }

    /// The command's slot.
    pub(super) fn slot(&self) -> u64 {
        self.slot
    }

    /// Every piece has been submitted.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Submits the next piece.
    pub(super) fn submit_piece(
        &mut self,
        queue: &mut BlockQueue,
        memory: &mut Memory,
        slots: &mut Slots,
    ) -> Result<()> {
        let namespace = *queue.namespace();
        let most = match self.verb {
            Verb::Read | Verb::Write | Verb::Compare => u64::from(namespace.transfer_blocks_max()),
            Verb::Verify => namespace.verify_blocks_max().into(),
            Verb::WriteZeroes => namespace.write_zeroes_blocks_max().into(),
            // A range has 32 bits for its length.
            _ => u32::MAX.into(),
        };
        let blocks = self.blocks.min(most.max(1)) as u32;
        let bytes = namespace.bytes(BlockRange::new(Lba(self.lba), blocks));
        let piece = Command {
            verb: self.verb,
            keyspace: 0,
            flags: self.flags,
            placement: self.placement,
            lba: self.lba,
            length: bytes,
            key: &[],
            data: self.data,
            token: 0,
        };
        let range = [piece.range(blocks)];
        let (op, lent) = match self.verb {
            Verb::Verify => (Op::Verify(range[0]), None),
            Verb::WriteZeroes => {
                (Op::WriteZeroes { range: range[0], deallocate: self.flags.has(Flags::DEALLOCATE) }, None)
            }
            Verb::Deallocate => (Op::Deallocate(&range), Some((memory.spare(1)?, Data::NONE))),
            Verb::Flush => (Op::Flush, None),
            _ => (piece.transfer(blocks), Some(memory.lend(self.data, bytes, self.verb)?)),
        };
        let (buf, data) = lent.map_or((None, Data::NONE), |(buf, data)| (Some(buf), data));
        let slot = slots.take_piece(self.slot, data);
        queue.submit(op, buf, slot).map_err(|rejected| take_back(memory, slots, slot, rejected))?;
        self.lba += u64::from(blocks);
        self.blocks -= u64::from(blocks);
        if self.verb.moves() {
            self.data = self.data.wrapping_add(bytes);
        }
        self.is_done = self.blocks == 0;
        Ok(())
    }
}
