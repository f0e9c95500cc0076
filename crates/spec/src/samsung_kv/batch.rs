//! The data of Batch (85h): up to eight commands in one buffer, each a Store or a Delete.
//!
//! | offset | what |
//! |---|---|
//! | 0 | eight [`BatchEntry`]s of 16 bytes, as many of them in use as CDW11 bits 7:0 say |
//! | 128 | reserved, up to 512 |
//! | 512 | for each command: 64 reserved bytes, key and value, both padded to a multiple of 64 |
//!
//! CDW10 is the size of all of it in dwords. The layout is that of the open Samsung KVSSD host code and of
//! NVMeVirt. What the device says about each command is not written down there but for its codes,
//! [`batch_result`]: here dword 0 of the completion has them, four bits each, the first command's in bits
//! 3:0.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::BATCH_COMMANDS_MAX;

/// Bytes in front of the commands' keys and values.
pub const BATCH_HEAD_BYTES: usize = 512;
/// Reserved bytes in front of each command's key.
const COMMAND_HEAD_BYTES: usize = 64;
/// Keys and values are padded to a multiple of this.
const ALIGNMENT: usize = 64;

/// What a command in a batch is, without key and value: 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct BatchEntry {
    /// [`super::opcode::STORE`] or [`super::opcode::DELETE`].
    pub opcode: u8,
    /// Bytes of the key.
    pub key_bytes: u8,
    /// Reserved.
    pub reserved2: [u8; 2],
    /// Bytes of the value; 0 for Delete.
    pub value_bytes: U32,
    /// Options of the command of that opcode.
    pub option: u8,
    /// Keyspace.
    pub keyspace: u8,
    /// Reserved.
    pub reserved10: [u8; 6],
}

layout!(BatchEntry, 16, { value_bytes: 4, option: 8, keyspace: 9 });

/// What became of a command in a batch.
pub mod batch_result {
    /// Success.
    pub const SUCCESS: u8 = 0x0;
    /// Invalid value size.
    pub const INVALID_VALUE_SIZE: u8 = 0x1;
    /// Invalid key size.
    pub const INVALID_KEY_SIZE: u8 = 0x2;
    /// The opcode cannot be part of a batch.
    pub const UNSUPPORTED_OPCODE: u8 = 0x3;
    /// Invalid option.
    pub const INVALID_OPTION: u8 = 0x4;
    /// Invalid keyspace.
    pub const INVALID_KEYSPACE: u8 = 0x5;
    /// The key does not exist.
    pub const KEY_NOT_FOUND: u8 = 0x6;
    /// Unrecovered error.
    pub const UNRECOVERED_ERROR: u8 = 0x7;
    /// No space left.
    pub const CAPACITY_EXCEEDED: u8 = 0x8;
    /// An idempotent store found the key.
    pub const IDEMPOTENT_STORE_FAIL: u8 = 0x9;
    /// A store that only updates did not find the key.
    pub const UPDATE_STORE_FAIL: u8 = 0xa;

    /// The result of command `index` in dword 0 of the completion.
    pub const fn of(dw0: u32, index: u32) -> u8 {
        (dw0 >> (4 * (index & 7)) & 0xf) as u8
    }

    /// Dword 0 with `result` for command `index`.
    pub const fn with(dw0: u32, index: u32, result: u8) -> u32 {
        let shift = 4 * (index & 7);
        dw0 & !(0xf << shift) | (result as u32 & 0xf) << shift
    }
}

/// A command in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchCommand<'a> {
    /// [`super::opcode::STORE`] or [`super::opcode::DELETE`].
    pub opcode: u8,
    /// Keyspace.
    pub keyspace: u8,
    /// Options of the command of that opcode.
    pub option: u8,
    /// The key.
    pub key: &'a [u8],
    /// The value; empty for Delete.
    pub value: &'a [u8],
}

/// Writes the data of a batch.
#[derive(Debug)]
pub struct BatchWriter<'a> {
    buffer: &'a mut [u8],
    used: usize,
    commands: u8,
}

impl<'a> BatchWriter<'a> {
    /// A batch without commands; `None` when the buffer has no room for the head.
    pub fn new(buffer: &'a mut [u8]) -> Option<Self> {
        buffer.get_mut(..BATCH_HEAD_BYTES)?.fill(0);
        Some(Self { buffer, used: BATCH_HEAD_BYTES, commands: 0 })
    }

    /// Adds a command; false, and nothing added, when there are eight, it does not fit, or the key is longer
    /// than 255 bytes.
    pub fn push(&mut self, command: BatchCommand<'_>) -> bool {
        let index = usize::from(self.commands);
        let (Ok(key_bytes), Ok(value_bytes)) =
            (u8::try_from(command.key.len()), u32::try_from(command.value.len()))
        else {
            return false;
        };
        let Some(end) = command_bytes(command.key.len(), command.value.len())
            .and_then(|bytes| self.used.checked_add(bytes))
            .filter(|&end| end <= self.buffer.len() && index < BATCH_COMMANDS_MAX)
        else {
            return false;
        };
        let entry = BatchEntry {
            opcode: command.opcode,
            key_bytes,
            value_bytes: value_bytes.into(),
            option: command.option,
            keyspace: command.keyspace,
            ..BatchEntry::default()
        };
        let (head, body) = self.buffer.split_at_mut(self.used);
        if let Some(slot) = head.chunks_exact_mut(size_of::<BatchEntry>()).nth(index) {
            slot.copy_from_slice(entry.as_bytes());
        }
        if let Some(body) = body.get_mut(..end - self.used) {
            body.fill(0);
            let (_, data) = body.split_at_mut(COMMAND_HEAD_BYTES);
            let (key, value) = data.split_at_mut(command.key.len().next_multiple_of(ALIGNMENT));
            for (place, bytes) in [(key, command.key), (value, command.value)] {
                if let Some(place) = place.get_mut(..bytes.len()) {
                    place.copy_from_slice(bytes);
                }
            }
        }
        self.used = end;
        self.commands += 1;
        true
    }

    /// Commands so far.
    pub const fn commands(&self) -> u8 {
        self.commands
    }

    /// Bytes that are used, a multiple of 64.
    pub const fn bytes(&self) -> usize {
        self.used
    }
}

/// Bytes of a command behind the head; `None` when they are beyond all numbers.
fn command_bytes(key: usize, value: usize) -> Option<usize> {
    let key = key.checked_next_multiple_of(ALIGNMENT)?;
    let value = value.checked_next_multiple_of(ALIGNMENT)?;
    key.checked_add(value)?.checked_add(COMMAND_HEAD_BYTES)
}

/// Reads the data of a batch: each command, and the offset of its value in the data. A command that is not
/// whole within the data is `None`, and the last that is returned.
#[derive(Clone, Debug)]
pub struct BatchReader<'a> {
    head: &'a [u8],
    rest: &'a [u8],
    /// Offset of `rest` in the data.
    offset: usize,
    left: u8,
}

impl<'a> BatchReader<'a> {
    /// The first `commands` commands in `data`; `None` when there are more than eight, or `data` is shorter
    /// than its head.
    pub fn new(data: &'a [u8], commands: u8) -> Option<Self> {
        let (head, rest) = data.split_at_checked(BATCH_HEAD_BYTES)?;
        let fits = usize::from(commands) <= BATCH_COMMANDS_MAX;
        fits.then_some(Self { head, rest, offset: BATCH_HEAD_BYTES, left: commands })
    }

    fn command(&mut self) -> Option<(BatchCommand<'a>, usize)> {
        let (entry, head) = BatchEntry::read_from_prefix(self.head).ok()?;
        self.head = head;
        let (key_bytes, value_bytes) = (usize::from(entry.key_bytes), entry.value_bytes.get() as usize);
        let (body, rest) = self.rest.split_at_checked(command_bytes(key_bytes, value_bytes)?)?;
        let key_offset = COMMAND_HEAD_BYTES;
        let value_offset = key_offset + key_bytes.next_multiple_of(ALIGNMENT);
        let command = BatchCommand {
            opcode: entry.opcode,
            keyspace: entry.keyspace,
            option: entry.option,
            key: body.get(key_offset..)?.get(..key_bytes)?,
            value: body.get(value_offset..)?.get(..value_bytes)?,
        };
        let position = self.offset + value_offset;
        self.offset += body.len();
        self.rest = rest;
        Some((command, position))
    }
}

impl<'a> Iterator for BatchReader<'a> {
    type Item = Option<(BatchCommand<'a>, usize)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let command = self.command();
        if command.is_none() {
            self.left = 0;
        }
        Some(command)
    }
}
