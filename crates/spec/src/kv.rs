//! Commands of the Key Value Command Set (NVMe Key Value Command Set Specification 1.3, section 3).
//!
//! A key of up to 16 bytes is in the entry: bytes 0 to 3 in CDW2, 4 to 7 in CDW3, 8 to 11 in CDW14, 12 to 15
//! in CDW15. Sizes are in bytes and not zero-based.

pub use crate::command::table::kv as opcode;
use crate::{Nsid, Sqe};

/// Most bytes of a key: it is part of the entry.
pub const KEY_BYTES_MAX: usize = 16;
/// Bytes of the count in front of the keys that List returns.
pub const LIST_HEADER_BYTES: usize = 4;
/// Bytes of the length in front of each key that List returns.
const LIST_LENGTH_BYTES: usize = 2;
/// Each key that List returns starts at a multiple of this.
const LIST_ALIGNMENT: usize = 4;

const DW11_MUST_EXIST: u32 = 1 << 8;
const DW11_MUST_NOT_EXIST: u32 = 1 << 9;
const DW11_NO_COMPRESSION: u32 = 1 << 10;
const DW11_RAW: u32 = 1 << 8;

/// A key as an entry has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    /// KL as the host wrote it, which may be more than there are bytes.
    length: u8,
}

impl Key {
    /// A key of up to 16 bytes; `None` for a longer one. An empty key means the beginning to List and is an
    /// error to all other commands.
    #[inline(always)]
    pub fn new(key: &[u8]) -> Option<Self> {
        Some(Self { bytes: padded(key)?, length: key.len() as u8 })
    }

    /// The key; `None` when KL is more than 16.
    #[inline]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        self.bytes.get(..usize::from(self.length))
    }

    /// KL, Key Length in bytes, 0 to 255 as the host wrote it.
    #[inline]
    pub const fn length(&self) -> u8 {
        self.length
    }

    #[inline]
    fn parse(sqe: &Sqe) -> Self {
        let words = [sqe.cdw2, sqe.cdw3, sqe.cdw14, sqe.cdw15];
        let mut bytes = [0; KEY_BYTES_MAX];
        for (target, word) in bytes.chunks_exact_mut(4).zip(words) {
            target.copy_from_slice(&word.to_le_bytes());
        }
        Self { bytes, length: sqe.cdw11 as u8 }
    }

    #[inline(always)]
    fn encode(self, sqe: &mut Sqe) {
        let low = u64::from_le_bytes(first_half(&self.bytes));
        let high = u64::from_le_bytes(second_half(&self.bytes));
        sqe.cdw2 = low as u32;
        sqe.cdw3 = (low >> 32) as u32;
        sqe.cdw14 = high as u32;
        sqe.cdw15 = (high >> 32) as u32;
        sqe.cdw11 = u32::from(self.length);
    }
}

const fn first_half(bytes: &[u8; KEY_BYTES_MAX]) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h, ..] = *bytes;
    [a, b, c, d, e, f, g, h]
}

const fn second_half(bytes: &[u8; KEY_BYTES_MAX]) -> [u8; 8] {
    let [.., a, b, c, d, e, f, g, h] = *bytes;
    [a, b, c, d, e, f, g, h]
}

/// A key of up to 16 bytes, with zeroes behind it; `None` for a longer one.
///
/// Put together from two words that may overlap: copied byte by byte into memory, it would be read back as
/// words before the bytes have arrived there, which stalls.
#[inline(always)]
pub(crate) fn padded(key: &[u8]) -> Option<[u8; KEY_BYTES_MAX]> {
    let length = key.len();
    let value = if let (Some(first), Some(last)) = (key.first_chunk::<8>(), key.last_chunk::<8>()) {
        let skip = length.checked_sub(8).filter(|skip| *skip <= 8)? as u32;
        u128::from(u64::from_le_bytes(*first)) | u128::from(u64::from_le_bytes(*last)) << (8 * skip)
    } else if let (Some(first), Some(last)) = (key.first_chunk::<4>(), key.last_chunk::<4>()) {
        let skip = length as u32 - 4;
        u128::from(u32::from_le_bytes(*first)) | u128::from(u32::from_le_bytes(*last)) << (8 * skip)
    } else {
        key.iter().rev().fold(0, |value, byte| value << 8 | u128::from(*byte))
    };
    Some(value.to_le_bytes())
}

/// Options of Store (CDW11 bits 15:8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreOptions {
    /// The key must exist already: KV Key Does Not Exist otherwise.
    pub must_exist: bool,
    /// The key must not exist yet: Key Exists otherwise.
    pub must_not_exist: bool,
    /// The controller does not compress the value.
    pub no_compression: bool,
}

impl StoreOptions {
    #[inline]
    const fn parse(cdw11: u32) -> Self {
        Self {
            must_exist: cdw11 & DW11_MUST_EXIST != 0,
            must_not_exist: cdw11 & DW11_MUST_NOT_EXIST != 0,
            no_compression: cdw11 & DW11_NO_COMPRESSION != 0,
        }
    }

    #[inline]
    const fn encode(self) -> u32 {
        (self.must_exist as u32) << 8 | (self.must_not_exist as u32) << 9 | (self.no_compression as u32) << 10
    }
}

/// A command of the Key Value Command Set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Flush: all that was stored is on the media.
    Flush,
    /// Store `value_bytes` bytes of the data buffer under a key.
    Store {
        /// The key, 1 to 16 bytes.
        key: Key,
        /// VS, size of the value in bytes; 0 is a value.
        value_bytes: u32,
        /// Options.
        options: StoreOptions,
    },
    /// Retrieve a value. Dword 0 of the completion is the size of the whole value, whatever fits in the
    /// buffer.
    Retrieve {
        /// The key, 1 to 16 bytes.
        key: Key,
        /// HBS, size of the host's buffer in bytes.
        buffer_bytes: u32,
        /// Return the value as it is on the media, without decompressing it.
        raw: bool,
    },
    /// List keys in ascending order, see [`ListReader`].
    List {
        /// Where to start; 0 bytes long for the beginning.
        start: Key,
        /// HBS, size of the host's buffer in bytes, at least [`LIST_HEADER_BYTES`].
        buffer_bytes: u32,
    },
    /// Delete a key and its value.
    Delete(Key),
    /// Ask whether a key exists.
    Exist(Key),
    /// An opcode that is not one of this command set.
    Unknown(u8),
}

impl Command {
    /// Reads a submission queue entry. Never fails: an unknown opcode is a value.
    #[inline]
    pub fn parse(sqe: &Sqe) -> Self {
        match sqe.opcode {
            opcode::RETRIEVE => Self::Retrieve {
                key: Key::parse(sqe),
                buffer_bytes: sqe.cdw10,
                raw: sqe.cdw11 & DW11_RAW != 0,
            },
            opcode::STORE => Self::Store {
                key: Key::parse(sqe),
                value_bytes: sqe.cdw10,
                options: StoreOptions::parse(sqe.cdw11),
            },
            opcode::FLUSH => Self::Flush,
            opcode::LIST => Self::List { start: Key::parse(sqe), buffer_bytes: sqe.cdw10 },
            opcode::DELETE => Self::Delete(Key::parse(sqe)),
            opcode::EXIST => Self::Exist(Key::parse(sqe)),
            other => Self::Unknown(other),
        }
    }

    /// The key of a command that is about one pair, and nothing else of it.
    #[inline]
    pub fn key_of(sqe: &Sqe) -> Option<Key> {
        match sqe.opcode {
            opcode::RETRIEVE | opcode::STORE | opcode::DELETE | opcode::EXIST => Some(Key::parse(sqe)),
            _ => None,
        }
    }

    /// Writes opcode, namespace, key and command dwords; command identifier and data pointer are the queue's
    /// to fill in.
    #[inline(always)]
    pub fn encode(self, nsid: Nsid) -> Sqe {
        let mut sqe = Sqe { nsid: nsid.0, ..Sqe::default() };
        match self {
            Self::Flush => sqe.opcode = opcode::FLUSH,
            Self::Store { key, value_bytes, options } => {
                encode_key(&mut sqe, opcode::STORE, key, value_bytes);
                sqe.cdw11 |= options.encode();
            }
            Self::Retrieve { key, buffer_bytes, raw } => {
                encode_key(&mut sqe, opcode::RETRIEVE, key, buffer_bytes);
                sqe.cdw11 |= (raw as u32) << 8;
            }
            Self::List { start, buffer_bytes } => encode_key(&mut sqe, opcode::LIST, start, buffer_bytes),
            Self::Delete(key) => encode_key(&mut sqe, opcode::DELETE, key, 0),
            Self::Exist(key) => encode_key(&mut sqe, opcode::EXIST, key, 0),
            Self::Unknown(opcode) => sqe.opcode = opcode,
        }
        sqe
    }
}

#[inline(always)]
fn encode_key(sqe: &mut Sqe, opcode: u8, key: Key, bytes: u32) {
    sqe.opcode = opcode;
    sqe.cdw10 = bytes;
    key.encode(sqe);
}

/// Bytes of a key's record in what List returns: length, key, zeroes up to a multiple of four.
const fn record_bytes(key_bytes: usize) -> usize {
    (LIST_LENGTH_BYTES + key_bytes).next_multiple_of(LIST_ALIGNMENT)
}

/// Writes what List returns: the number of keys (32 bits), then for each its length (16 bits), the key, and
/// zeroes up to a multiple of four (KV figure 17).
#[derive(Debug)]
pub struct ListWriter<'a> {
    buffer: &'a mut [u8],
    used: usize,
    keys: u32,
}

impl<'a> ListWriter<'a> {
    /// An empty list in `buffer`; `None` when the buffer has no room for the number of keys.
    pub fn new(buffer: &'a mut [u8]) -> Option<Self> {
        buffer.get_mut(..LIST_HEADER_BYTES)?.fill(0);
        Some(Self { buffer, used: LIST_HEADER_BYTES, keys: 0 })
    }

    /// Adds a key of up to 65535 bytes; false, and nothing added, when its record does not fit.
    pub fn push(&mut self, key: &[u8]) -> bool {
        let (Ok(length), bytes) = (u16::try_from(key.len()), record_bytes(key.len())) else { return false };
        let Some(record) = self.buffer.get_mut(self.used..).and_then(|rest| rest.get_mut(..bytes)) else {
            return false;
        };
        let (head, rest) = record.split_at_mut(LIST_LENGTH_BYTES);
        head.copy_from_slice(&length.to_le_bytes());
        let (body, padding) = rest.split_at_mut(key.len());
        body.copy_from_slice(key);
        padding.fill(0);
        self.used += bytes;
        self.keys += 1;
        true
    }

    /// Writes the number of keys; returns the bytes that are used.
    pub fn finish(self) -> usize {
        if let Some(header) = self.buffer.get_mut(..LIST_HEADER_BYTES) {
            header.copy_from_slice(&self.keys.to_le_bytes());
        }
        self.used
    }
}

/// Reads what List returned. It ends early when a device says that there are more keys than bytes.
#[derive(Clone, Debug)]
pub struct ListReader<'a> {
    rest: &'a [u8],
    keys: u32,
}

impl<'a> ListReader<'a> {
    /// The keys in `data`; none when it is shorter than the number of keys.
    pub fn new(data: &'a [u8]) -> Self {
        match data.split_first_chunk::<LIST_HEADER_BYTES>() {
            Some((header, rest)) => Self { rest, keys: u32::from_le_bytes(*header) },
            None => Self { rest: &[], keys: 0 },
        }
    }
}

impl<'a> Iterator for ListReader<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.keys = self.keys.checked_sub(1)?;
        let (head, rest) = self.rest.split_first_chunk::<LIST_LENGTH_BYTES>()?;
        let length = usize::from(u16::from_le_bytes(*head));
        let key = rest.get(..length)?;
        // The padding of the last record may be missing.
        self.rest = self.rest.get(record_bytes(length)..).unwrap_or(&[]);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_every_length_is_padded_with_zeroes() {
        const KEY: [u8; 17] = *b"\xff1234567\x8090abcdef";
        for length in 0..=16 {
            let mut expected = [0; 16];
            expected[..length].copy_from_slice(&KEY[..length]);
            assert_eq!(padded(&KEY[..length]), Some(expected), "{length} bytes");
        }
        assert_eq!(padded(&KEY), None);
    }
}
