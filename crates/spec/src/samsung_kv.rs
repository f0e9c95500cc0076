//! The vendor specific key-value commands of Samsung's KV SSDs, which predate the Key Value Command Set.
//!
//! Keys of 4 to 255 bytes: up to 16 bytes are in CDW12 to CDW15, longer ones in memory that CDW12 to CDW15
//! point to as PRP1 and PRP2 do. Value sizes are in dwords, with the number of bytes of the last one that are
//! not used. Errors are statuses of type 3, see [`status`].
//!
//! The vendor's commands know no network. Over Fabrics, where keys have no address, the longer ones are in
//! the command capsule, by a convention of this project's:
//!
//! | capsule | what |
//! |---|---|
//! | CDW12 to CDW15 | SGL Data Block descriptor, sub type Offset: address 0, length that of the key |
//! | data, bytes 0 to 255 | the key, padded with zeroes to [`KEY_CAPSULE_BYTES`] |
//! | data, from byte 256 on | the data, when it fits: its descriptor has sub type Offset and address 256 |
//!
//! Data that does not fit, and data for the host, has the transport's descriptor and travels as that of any
//! command.

mod batch;
mod iterate;

pub use crate::command::table::samsung_kv as opcode;
use crate::sgl::Descriptor;
use crate::{Nsid, Sqe, Status};
pub use batch::{BATCH_HEAD_BYTES, BatchCommand, BatchEntry, BatchReader, BatchWriter, batch_result};
pub use iterate::{IterateKeys, IteratePairs, IterateWriter, Pair};

/// Fewest bytes of a key.
pub const KEY_BYTES_MIN: usize = 4;
/// Most bytes of a key.
pub const KEY_BYTES_MAX: usize = 255;
/// Keys up to this length are in the entry.
pub const KEY_INLINE_BYTES: usize = 16;
/// Bytes that a longer key has at the start of a command capsule's data.
pub const KEY_CAPSULE_BYTES: u32 = 256;
/// Most bytes of a value that one command moves.
pub const VALUE_BYTES_MAX: u32 = 2 << 20;
/// Retrieve starts at a multiple of this.
pub const OFFSET_ALIGNMENT: u32 = 512;
/// Keyspaces of a device.
pub const KEYSPACES: u8 = 2;
/// Iterators that can be open at a time; identifiers are 1 to this.
pub const ITERATORS_MAX: u8 = 16;
/// Bytes of the buffer of Iterate Read.
pub const ITERATE_BUFFER_BYTES: u32 = 32 << 10;
/// Bytes of the count in front of the keys that Iterate Read returns.
pub const ITERATE_HEADER_BYTES: usize = 4;
/// Most commands in a batch.
pub const BATCH_COMMANDS_MAX: usize = 8;

/// Statuses of type 3. Since NVMe 1.4 that type means Path Related Status: these are understood only as
/// answers to the commands here.
pub mod status {
    use core::fmt;

    use super::Status;

    macro_rules! statuses {
        ($($code:literal $name:ident $text:literal;)*) => {
            $(#[doc = concat!($text, ".")] pub const $name: Status = Status::new(3, $code);)*

            /// What a status means as an answer to a command of this set; `None` for one of another type or
            /// meaning.
            pub const fn name(status: Status) -> Option<&'static str> {
                match status.kind() {
                    $(self::$name => Some($text),)*
                    _ => None,
                }
            }
        };
    }

    statuses! {
        0x01 INVALID_VALUE_SIZE "Invalid Value Size";
        0x02 INVALID_VALUE_OFFSET "Invalid Value Offset";
        0x03 INVALID_KEY_SIZE "Invalid Key Size";
        0x04 INVALID_OPTION "Invalid Option";
        0x05 INVALID_KEYSPACE "Invalid Keyspace";
        0x08 MISALIGNED_VALUE_SIZE "Misaligned Value Size";
        0x09 MISALIGNED_VALUE_OFFSET "Misaligned Value Offset";
        0x0a MISALIGNED_KEY_SIZE "Misaligned Key Size";
        0x10 KEY_NOT_FOUND "Key Does Not Exist";
        0x11 UNRECOVERED_ERROR "Unrecovered Error";
        0x12 CAPACITY_EXCEEDED "Capacity Exceeded";
        0x80 IDEMPOTENT_STORE_FAIL "Idempotent Store Failed: Key Exists";
        0x81 MAXIMUM_VALUE_SIZE_EXCEEDED "Maximum Value Size Exceeded";
        0x90 ITERATE_REQUEST_NOT_PROCESSED "Iterator Request Could Not Be Processed";
        0x91 ITERATE_NO_HANDLE "No Iterator Available";
        0x92 ITERATE_ALREADY_OPEN "Iterator Is Open Already";
        0x93 ITERATE_END "End of Iteration";
        0x94 ITERATE_REQUEST_FAIL "Iterator Request Failed";
        0x95 ITERATE_TCG_LOCKED "Iterator Locked";
        0x96 ITERATE_ERROR "Iterator Error";
    }

    /// A status that answers a command on pairs, as one of these: those of the Key Value Command Set become
    /// what means the same here. `None` for success and for statuses that say nothing about a pair.
    pub const fn of(status: Status) -> Option<Status> {
        match status.kind() {
            Status::CAPACITY_EXCEEDED => Some(CAPACITY_EXCEEDED),
            Status::INVALID_VALUE_SIZE => Some(INVALID_VALUE_SIZE),
            Status::INVALID_KEY_SIZE => Some(INVALID_KEY_SIZE),
            Status::KEY_NOT_FOUND => Some(KEY_NOT_FOUND),
            Status::UNRECOVERED_ERROR => Some(UNRECOVERED_ERROR),
            Status::KEY_EXISTS => Some(IDEMPOTENT_STORE_FAIL),
            kind if name(kind).is_some() => Some(kind),
            _ => None,
        }
    }

    /// How the status of a command on pairs is told: one text for one fact, whichever of the two dialects the
    /// command went by, with the code that the guide has for it, such as `Key Does Not Exist (0x10)`. A
    /// status that says nothing about a pair is told as any other command's.
    #[derive(Clone, Copy, Debug)]
    pub struct OfPair(pub Status);

    impl fmt::Display for OfPair {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match of(self.0).and_then(|kind| Some((name(kind)?, kind.code()))) {
                Some((name, code)) => write!(f, "{name} ({code:#04x})"),
                None => self.0.fmt(f),
            }
        }
    }
}

const DW11_KEY_BYTES_Z: u32 = 0xff;
const DW11_OPTION_SHIFT: u32 = 8;
const DW11_UNUSED_SHIFT: u32 = 16;
const REQUEST_OPEN: u8 = 0x01;
const REQUEST_CLOSE: u8 = 0x02;

/// Where a command names its keyspace: devices of the family differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyspaceField {
    /// In CDW3, with a namespace identifier of its own.
    #[default]
    Cdw3,
    /// In place of the namespace identifier, as the uNVMe SDK sends it.
    Nsid,
}

/// Which key space of which namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The namespace; 0 with [`KeyspaceField::Nsid`], where there is only one.
    pub nsid: Nsid,
    /// The keyspace, as the host wrote it.
    pub keyspace: u32,
}

impl Target {
    /// Reads namespace and keyspace.
    #[inline]
    pub const fn parse(sqe: &Sqe, field: KeyspaceField) -> Self {
        match field {
            KeyspaceField::Cdw3 => Self { nsid: Nsid(sqe.nsid), keyspace: sqe.cdw3 },
            KeyspaceField::Nsid => Self { nsid: Nsid(0), keyspace: sqe.nsid },
        }
    }

    /// Writes namespace and keyspace.
    #[inline(always)]
    pub const fn encode(self, sqe: &mut Sqe, field: KeyspaceField) {
        match field {
            KeyspaceField::Cdw3 => {
                sqe.nsid = self.nsid.0;
                sqe.cdw3 = self.keyspace;
            }
            KeyspaceField::Nsid => sqe.nsid = self.keyspace,
        }
    }
}

/// A key as an entry names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// In the entry: the first `length` bytes, at most 16.
    Inline {
        /// The key, padded with zeroes.
        bytes: [u8; KEY_INLINE_BYTES],
        /// Bytes of the key, 1 to 16.
        length: u8,
    },
    /// In host memory, or in the command capsule.
    Memory {
        /// PRP entries 1 and 2 of the key, or its SGL descriptor.
        prp: [u64; 2],
        /// Bytes of the key, 17 to 256.
        length: u16,
    },
}

impl Key {
    /// A key of 1 to 16 bytes in the entry; `None` for any other length.
    #[inline(always)]
    pub fn inline(key: &[u8]) -> Option<Self> {
        let bytes = crate::kv::padded(key).filter(|_| !key.is_empty())?;
        Some(Self::Inline { bytes, length: key.len() as u8 })
    }

    /// The key, when it is in the entry.
    #[inline]
    pub fn as_inline(&self) -> Option<&[u8]> {
        match self {
            Self::Inline { bytes, length } => bytes.get(..usize::from(*length)),
            Self::Memory { .. } => None,
        }
    }

    /// Bytes of the key, 1 to 256.
    #[inline]
    pub const fn len(&self) -> usize {
        match self {
            Self::Inline { length, .. } => *length as usize,
            Self::Memory { length, .. } => *length as usize,
        }
    }

    /// Never true: the length is zero-based on the wire.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn parse(sqe: &Sqe) -> Self {
        let length = (sqe.cdw11 & DW11_KEY_BYTES_Z) as u16 + 1;
        let words = [sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15];
        if usize::from(length) > KEY_INLINE_BYTES {
            let [a, b, c, d] = words.map(u64::from);
            return Self::Memory { prp: [a | b << 32, c | d << 32], length };
        }
        let mut bytes = [0; KEY_INLINE_BYTES];
        for (target, word) in bytes.chunks_exact_mut(4).zip(words) {
            target.copy_from_slice(&word.to_le_bytes());
        }
        Self::Inline { bytes, length: length as u8 }
    }

    #[inline(always)]
    fn encode(self, sqe: &mut Sqe) {
        let (low, high, length) = match self {
            Self::Inline { bytes, length } => {
                let value = u128::from_le_bytes(bytes);
                (value as u64, (value >> 64) as u64, u16::from(length))
            }
            Self::Memory { prp: [low, high], length } => (low, high, length),
        };
        sqe.cdw12 = low as u32;
        sqe.cdw13 = (low >> 32) as u32;
        sqe.cdw14 = high as u32;
        sqe.cdw15 = (high >> 32) as u32;
        sqe.cdw11 = u32::from(length.wrapping_sub(1)) & DW11_KEY_BYTES_Z;
    }
}

/// Size of a value on the wire: dwords, and how many bytes of the last one are not used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueSize {
    /// Dwords.
    pub dwords: u32,
    /// Bytes of the last dword that are not part of the value, 0 to 3.
    pub unused: u8,
}

impl ValueSize {
    /// The size of a value of `bytes` bytes.
    #[inline]
    pub const fn of_bytes(bytes: u32) -> Self {
        let dwords = bytes.div_ceil(4);
        Self { dwords, unused: (dwords as u64 * 4 - bytes as u64) as u8 }
    }

    /// Bytes of the value; `None` when more bytes are unused than there are.
    #[inline]
    pub const fn bytes(self) -> Option<u64> {
        (self.dwords as u64 * 4).checked_sub(self.unused as u64)
    }
}

codes! {
    /// Options of Store and Append (CDW11 bits 15:8).
    pub mod store_option: u8 {
        COMPRESS = 1, "Compress the value";
        IDEMPOTENT = 2, "Fail when the key exists";
        BACKGROUND_COMPRESS = 4, "Compress the value later";
        UPDATE_ONLY = 8, "Fail when the key does not exist";
        ALL = COMPRESS | IDEMPOTENT | BACKGROUND_COMPRESS | UPDATE_ONLY, "All bits that mean something";
    }

    /// Options of Retrieve (CDW11 bits 15:8).
    pub mod retrieve_option: u8 {
        DECOMPRESS = 1, "Decompress the value";
        SIZE_ONLY = 2, "Return the size of the value and no data";
        ALL = DECOMPRESS | SIZE_ONLY, "All bits that mean something";
    }
}

/// Options of Delete (CDW11 bits 15:8).
pub mod delete_option {
    /// Fail when the key does not exist.
    pub const CHECK_EXISTENCE: u8 = 1;
}

/// What an iterator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IterateType {
    /// Return keys.
    Key,
    /// Return keys and values.
    KeyValue,
    /// Delete the pairs, in the background.
    KeyDelete,
}

impl IterateType {
    /// The number by which log page D0h and the SDK call it: 1, 2, 3.
    pub const fn number(self) -> u8 {
        match self {
            Self::Key => 1,
            Self::KeyValue => 2,
            Self::KeyDelete => 3,
        }
    }

    /// The type with that number.
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Key,
            2 => Self::KeyValue,
            3 => Self::KeyDelete,
            _ => return None,
        })
    }

    const fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0x04 => Self::Key,
            0x08 => Self::KeyValue,
            0x10 => Self::KeyDelete,
            _ => return None,
        })
    }
}

/// Which keys an iterator is about: those of which the first four bytes, as a big-endian number, equal
/// `prefix` in the bits that `bitmask` has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    /// First four bytes of a key as a big-endian number.
    pub prefix: u32,
    /// Bits that count: ones from the most significant bit on.
    pub bitmask: u32,
}

impl Prefix {
    /// True when `bitmask` is a run of ones that starts at the most significant bit, or zero.
    pub const fn is_contiguous(self) -> bool {
        self.bitmask.leading_ones() == self.bitmask.count_ones()
    }

    /// Whether a key matches. Bytes that a shorter key does not have are zeroes.
    pub fn matches(self, key: &[u8]) -> bool {
        let mut first = [0; 4];
        for (target, byte) in first.iter_mut().zip(key) {
            *target = *byte;
        }
        (u32::from_be_bytes(first) ^ self.prefix) & self.bitmask == 0
    }
}

/// A vendor command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Store a pair.
    Store {
        /// The key.
        key: Key,
        /// Size of the value.
        size: ValueSize,
        /// Offset in the value in bytes; 0.
        offset: u32,
        /// Bits of [`store_option`].
        option: u8,
    },
    /// Append to a value.
    Append {
        /// The key.
        key: Key,
        /// Size of what is appended.
        size: ValueSize,
        /// Offset in the value in bytes; 0.
        offset: u32,
        /// Bits of [`store_option`].
        option: u8,
    },
    /// Several commands in one, see [`BatchReader`].
    Batch {
        /// Number of commands.
        commands: u8,
        /// Size of the data buffer in dwords.
        dwords: u32,
    },
    /// Retrieve a value from an offset on. Dword 0 of the completion is the size of the whole value.
    Retrieve {
        /// The key.
        key: Key,
        /// Size of the buffer in dwords.
        dwords: u32,
        /// First byte of the value that is wanted.
        offset: u32,
        /// Bits of [`retrieve_option`].
        option: u8,
    },
    /// Delete a pair.
    Delete {
        /// The key.
        key: Key,
        /// Bits of [`delete_option`].
        option: u8,
    },
    /// Ask whether a key exists.
    Exist {
        /// The key.
        key: Key,
        /// 0.
        option: u8,
    },
    /// Open an iterator. Bits 7:0 of dword 0 of the completion are its identifier.
    IterateOpen {
        /// What it does; the bits of the request when they are no type.
        kind: Result<IterateType, u8>,
        /// Which keys.
        prefix: Prefix,
    },
    /// Close an iterator.
    IterateClose {
        /// Its identifier.
        iterator: u8,
    },
    /// An Iterate Request that neither opens nor closes.
    IterateInvalid {
        /// CDW11 bits 15:8.
        request: u8,
    },
    /// Read from an iterator. Dword 0 of the completion is the number of bytes.
    IterateRead {
        /// Its identifier.
        iterator: u8,
        /// Size of the buffer in dwords.
        dwords: u32,
        /// 0.
        option: u8,
    },
    /// An opcode that is not one of this set.
    Unknown(u8),
}

impl Command {
    /// Reads a submission queue entry. Never fails: an unknown opcode is a value.
    #[inline]
    pub fn parse(sqe: &Sqe) -> Self {
        let option = (sqe.cdw11 >> DW11_OPTION_SHIFT) as u8;
        let offset = sqe.mptr as u32;
        let size = ValueSize { dwords: sqe.cdw10, unused: (sqe.cdw11 >> DW11_UNUSED_SHIFT) as u8 & 3 };
        match sqe.opcode {
            opcode::RETRIEVE => Self::Retrieve { key: Key::parse(sqe), dwords: sqe.cdw10, offset, option },
            opcode::STORE => Self::Store { key: Key::parse(sqe), size, offset, option },
            opcode::APPEND => Self::Append { key: Key::parse(sqe), size, offset, option },
            opcode::BATCH => Self::Batch { commands: sqe.cdw11 as u8, dwords: sqe.cdw10 },
            opcode::DELETE => Self::Delete { key: Key::parse(sqe), option },
            opcode::EXIST => Self::Exist { key: Key::parse(sqe), option },
            opcode::ITERATE_REQUEST => parse_request(sqe, option),
            opcode::ITERATE_READ => {
                Self::IterateRead { iterator: sqe.cdw11 as u8, dwords: sqe.cdw10, option }
            }
            other => Self::Unknown(other),
        }
    }

    /// The key of a command that has one, and nothing else of it.
    #[inline]
    pub fn key_of(sqe: &Sqe) -> Option<Key> {
        match sqe.opcode {
            opcode::RETRIEVE | opcode::STORE | opcode::APPEND | opcode::DELETE | opcode::EXIST => {
                Some(Key::parse(sqe))
            }
            _ => None,
        }
    }

    /// Writes opcode, namespace and keyspace, key and command dwords; command identifier and data pointer are
    /// the queue's to fill in.
    #[inline(always)]
    pub fn encode(self, target: Target, field: KeyspaceField) -> Sqe {
        let mut sqe = Sqe::default();
        target.encode(&mut sqe, field);
        match self {
            Self::Store { key, size, offset, option } => {
                encode_value(&mut sqe, opcode::STORE, key, size);
                encode_options(&mut sqe, offset, option);
            }
            Self::Append { key, size, offset, option } => {
                encode_value(&mut sqe, opcode::APPEND, key, size);
                encode_options(&mut sqe, offset, option);
            }
            Self::Retrieve { key, dwords, offset, option } => {
                encode_value(&mut sqe, opcode::RETRIEVE, key, ValueSize { dwords, unused: 0 });
                encode_options(&mut sqe, offset, option);
            }
            Self::Delete { key, option } => {
                encode_value(&mut sqe, opcode::DELETE, key, ValueSize::default());
                encode_options(&mut sqe, 0, option);
            }
            Self::Exist { key, option } => {
                encode_value(&mut sqe, opcode::EXIST, key, ValueSize::default());
                encode_options(&mut sqe, 0, option);
            }
            Self::Batch { commands, dwords } => {
                sqe.opcode = opcode::BATCH;
                sqe.cdw10 = dwords;
                sqe.cdw11 = commands.into();
            }
            Self::IterateOpen { kind, prefix } => encode_open(&mut sqe, kind, prefix),
            Self::IterateClose { iterator } => {
                sqe.opcode = opcode::ITERATE_REQUEST;
                sqe.cdw11 = u32::from(REQUEST_CLOSE) << DW11_OPTION_SHIFT | u32::from(iterator);
            }
            Self::IterateInvalid { request } => {
                sqe.opcode = opcode::ITERATE_REQUEST;
                sqe.cdw11 = u32::from(request) << DW11_OPTION_SHIFT;
            }
            Self::IterateRead { iterator, dwords, option } => {
                sqe.opcode = opcode::ITERATE_READ;
                sqe.cdw10 = dwords;
                sqe.cdw11 = u32::from(option) << DW11_OPTION_SHIFT | u32::from(iterator);
            }
            Self::Unknown(opcode) => sqe.opcode = opcode,
        }
        sqe
    }
}

/// Sets the address of a key in memory, for an entry that was encoded before it was known: PRP entries 1 and
/// 2.
pub const fn set_key_prp(sqe: &mut Sqe, prp: [u64; 2]) {
    sqe.cdw12 = prp[0] as u32;
    sqe.cdw13 = (prp[0] >> 32) as u32;
    sqe.cdw14 = prp[1] as u32;
    sqe.cdw15 = (prp[1] >> 32) as u32;
}

/// Sets the descriptor of a key that is in the command capsule, for an entry that has its length.
pub const fn set_key_in_capsule(sqe: &mut Sqe) {
    let bytes = (sqe.cdw11 & DW11_KEY_BYTES_Z) + 1;
    set_key_prp(sqe, Descriptor::in_capsule(0, bytes).to_dptr());
}

fn parse_request(sqe: &Sqe, request: u8) -> Command {
    if request & REQUEST_OPEN != 0 {
        let bits = request & !REQUEST_OPEN;
        // Both travel as big-endian numbers.
        let prefix = Prefix { prefix: sqe.cdw12.swap_bytes(), bitmask: sqe.cdw13.swap_bytes() };
        return Command::IterateOpen { kind: IterateType::from_bits(bits).ok_or(bits), prefix };
    }
    match request {
        REQUEST_CLOSE => Command::IterateClose { iterator: sqe.cdw11 as u8 },
        _ => Command::IterateInvalid { request },
    }
}

fn encode_open(sqe: &mut Sqe, kind: Result<IterateType, u8>, prefix: Prefix) {
    let bits = kind.map_or_else(|bits| bits, |kind| 2 << kind.number());
    sqe.opcode = opcode::ITERATE_REQUEST;
    sqe.cdw11 = u32::from(REQUEST_OPEN | bits) << DW11_OPTION_SHIFT;
    sqe.cdw12 = prefix.prefix.swap_bytes();
    sqe.cdw13 = prefix.bitmask.swap_bytes();
}

#[inline(always)]
fn encode_value(sqe: &mut Sqe, opcode: u8, key: Key, size: ValueSize) {
    sqe.opcode = opcode;
    sqe.cdw10 = size.dwords;
    key.encode(sqe);
    sqe.cdw11 |= u32::from(size.unused & 3) << DW11_UNUSED_SHIFT;
}

#[inline(always)]
fn encode_options(sqe: &mut Sqe, offset: u32, option: u8) {
    sqe.mptr = offset.into();
    sqe.cdw11 |= u32::from(option) << DW11_OPTION_SHIFT;
}
