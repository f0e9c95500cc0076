//! What a queue of a namespace is asked to do.

use unvme_driver::{
    DmaBuf, Error as DriverError, KvCommand, KvKey, KvNamespace, Namespace, StoreOptions, WriteOptions,
};
use unvme_spec::nvm::{AccessFlags, BlockRange};
use unvme_spec::samsung_kv::{IterateType, Prefix};
use unvme_spec::{Lba, Sqe};

/// A command, on a namespace of logical blocks or of pairs. It says how many bytes it moves; which memory
/// they are in is said where it is submitted. A command of the other kind of namespace is refused, and
/// nothing is sent.
///
/// ```
/// use unvme::{BlockRange, Lba, Op, WriteOptions, AccessFlags};
///
/// // Eight blocks from block 64 on, durable when the write completes.
/// let fua = AccessFlags { force_unit_access: true, ..AccessFlags::default() };
/// let write = Op::Write(BlockRange::new(Lba(64), 8), WriteOptions::from(fua));
/// // The short forms have the default options.
/// assert_eq!(Op::read(64, 8), Op::Read(BlockRange::new(Lba(64), 8), AccessFlags::default()));
/// assert_ne!(write, Op::write(64, 8));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op<'a> {
    /// Blocks to the buffer.
    Read(BlockRange, AccessFlags),
    /// The buffer to blocks. Whether the namespace has the placement identifier, if there is one, is not
    /// looked at: a device takes its first placement handle for one that it has not.
    /// [`crate::Block::placements`] lists them.
    Write(BlockRange, WriteOptions),
    /// Blocks against the buffer: [`unvme_spec::Status::COMPARE_FAILURE`] when they differ.
    Compare(BlockRange, AccessFlags),
    /// Checks that the blocks can be read; no buffer.
    Verify(BlockRange),
    /// Sets the blocks to zero; no buffer.
    WriteZeroes {
        /// The blocks.
        range: BlockRange,
        /// The device should also give their space back.
        deallocate: bool,
    },
    /// Marks the blocks as unreadable until they are written; no buffer.
    WriteUncorrectable(BlockRange),
    /// Tells the device that these blocks are not needed any more. The buffer takes the list of ranges, 16
    /// bytes each.
    Deallocate(&'a [BlockRange]),
    /// Makes everything that was completed before durable; no buffer.
    Flush,
    /// The buffer becomes the value of the key.
    Store {
        /// The key.
        key: KvKey<'a>,
        /// Bytes of the value; 0 takes no buffer.
        bytes: usize,
        /// Options.
        options: StoreOptions,
    },
    /// Adds the buffer to the end of a value: vendor commands.
    Append {
        /// The key.
        key: KvKey<'a>,
        /// Bytes to add.
        bytes: usize,
    },
    /// The value to the buffer. The completion tells the size of the whole value, which may be more or less.
    Retrieve {
        /// The key.
        key: KvKey<'a>,
        /// First byte of the value that is wanted; anything but 0 takes the vendor commands, and a multiple
        /// of 512.
        offset: u32,
        /// Bytes of the buffer; 0 asks for the size alone.
        bytes: usize,
    },
    /// Removes a pair; no buffer.
    Delete {
        /// The key.
        key: KvKey<'a>,
        /// A key that does not exist is an error. Without, it is a success for the vendor commands, and the
        /// command is sent again when the device was out of reach; of the standard Delete, whose answer
        /// depends on the namespace, a worker makes a success, and a [`crate::KvQueue`] hands on what the
        /// device says.
        must_exist: bool,
    },
    /// Asks whether a key exists; no buffer.
    Exist(KvKey<'a>),
    /// Keys to the buffer, see [`unvme_spec::kv::ListReader`]: standard commands.
    List {
        /// First key; empty for the beginning.
        start: &'a [u8],
        /// Bytes of the buffer.
        bytes: usize,
    },
    /// Opens an iterator; no buffer. Its identifier is the result. Vendor commands.
    IterateOpen {
        /// Keyspace.
        keyspace: u8,
        /// What it does.
        kind: IterateType,
        /// Which keys.
        prefix: Prefix,
    },
    /// Closes an iterator; no buffer. Vendor commands.
    IterateClose {
        /// Keyspace.
        keyspace: u8,
        /// Identifier.
        iterator: u8,
    },
    /// Reads from an iterator into a buffer of 32 KiB; the result is the number of valid bytes. Vendor
    /// commands.
    IterateRead {
        /// Keyspace.
        keyspace: u8,
        /// Identifier.
        iterator: u8,
    },
    /// An entry of the caller's own, for commands that have no name here, and the bytes it moves.
    Entry(&'a Sqe, usize),
}

impl<'a> Op<'a> {
    /// A read of `blocks` blocks from `lba` on.
    #[inline(always)]
    pub fn read(lba: u64, blocks: u32) -> Self {
        Self::Read(BlockRange::new(Lba(lba), blocks), AccessFlags::default())
    }

    /// A write of `blocks` blocks from `lba` on.
    #[inline(always)]
    pub fn write(lba: u64, blocks: u32) -> Self {
        Self::Write(BlockRange::new(Lba(lba), blocks), WriteOptions::default())
    }

    /// A store of `bytes` bytes, whether or not there is a pair of that key.
    #[inline(always)]
    pub fn store(key: impl Into<KvKey<'a>>, bytes: usize) -> Self {
        Self::Store { key: key.into(), bytes, options: StoreOptions::default() }
    }

    /// A retrieve of up to `bytes` bytes from the start of a value.
    #[inline(always)]
    pub fn retrieve(key: impl Into<KvKey<'a>>, bytes: usize) -> Self {
        Self::Retrieve { key: key.into(), offset: 0, bytes }
    }

    /// The entry on a namespace of blocks, and the bytes it transfers. A list of ranges is written to `buf`.
    ///
    /// Always inlined, as everything between here and the queue: a constant kind of command then leaves one
    /// path, on which the entry is put together in registers.
    #[inline(always)]
    pub(crate) fn on_blocks(
        self,
        namespace: &Namespace,
        buf: &mut Option<DmaBuf>,
    ) -> Result<(Sqe, usize), DriverError> {
        Ok(match self {
            Self::Read(range, flags) => (namespace.read(range, flags)?, namespace.bytes(range)),
            Self::Write(range, options) => (namespace.write(range, options)?, namespace.bytes(range)),
            Self::Compare(range, flags) => (namespace.compare(range, flags)?, namespace.bytes(range)),
            Self::Verify(range) => (namespace.verify(range, AccessFlags::default())?, 0),
            Self::WriteZeroes { range, deallocate } => {
                (namespace.write_zeroes(range, AccessFlags::default(), deallocate)?, 0)
            }
            Self::WriteUncorrectable(range) => (namespace.write_uncorrectable(range)?, 0),
            Self::Deallocate(ranges) => match buf {
                Some(buf) => namespace.deallocate(ranges, buf)?,
                None => return Err(without_buffer(size_of_val(ranges))),
            },
            Self::Flush => (namespace.flush(), 0),
            Self::Entry(sqe, bytes) => (*sqe, bytes),
            _ => return Err(foreign("blocks", "pairs")),
        })
    }

    /// The command on a namespace of pairs; `None` for an entry of the caller's own.
    ///
    /// Always inlined, as [`Op::on_blocks`] is.
    #[inline(always)]
    pub(crate) fn on_pairs(self, namespace: &KvNamespace) -> Result<KvCommand<'a>, DriverError> {
        match self {
            Self::Store { key, bytes, options } => namespace.store(key, bytes, options),
            Self::Retrieve { key, offset, bytes } => namespace.retrieve(key, offset, bytes),
            Self::Delete { key, must_exist: true } => namespace.delete(key),
            Self::Delete { key, must_exist: false } => namespace.delete_if_present(key),
            Self::Exist(key) => namespace.exist(key),
            Self::Append { key, bytes } => namespace.append(key, bytes),
            Self::List { start, bytes } => namespace.list(start, bytes),
            Self::IterateOpen { keyspace, kind, prefix } => namespace.iterate_open(keyspace, kind, prefix),
            Self::IterateClose { keyspace, iterator } => namespace.iterate_close(keyspace, iterator),
            Self::IterateRead { keyspace, iterator } => namespace.iterate_read(keyspace, iterator),
            Self::Flush => Ok(namespace.flush()),
            _ => Err(foreign("pairs", "blocks")),
        }
    }
}

#[cold]
fn foreign(here: &str, there: &str) -> DriverError {
    DriverError::Unsupported(format!("a namespace of {here} has no {there}"))
}

/// Why a command that moves data cannot go alone.
#[cold]
pub(crate) fn without_buffer(bytes: usize) -> DriverError {
    DriverError::InvalidArgument(format!("the command moves {bytes} bytes and came without a buffer"))
}
