//! What is known of a command by its opcode alone: one table for every command set, in `command/table.rs`.
//!
//! Whoever asks what a command is (which way its data goes, how long it is, whether it changes media) reads
//! it here; whoever executes commands parses them: [`crate::admin::Command`], [`crate::nvm::Command`],
//! [`crate::kv::Command`], [`crate::samsung_kv::Command`]. A command set is a section of the table and a
//! module with its `Command`. An opcode that the table does not have is no error: it has no facts.

pub(crate) mod table;

use crate::log_page::command_effects::LBCC;
use crate::{Fuse, Sqe, admin, fabrics};
pub use table::CommandSet;

impl CommandSet {
    /// What is known of the command with this opcode; of a Fabrics command, with this FCTYPE.
    #[inline]
    pub fn facts(self, opcode: u8) -> Option<&'static Facts> {
        self.table().get(opcode)
    }

    /// Its commands, in the order of their opcodes.
    pub fn commands(self) -> &'static [Facts] {
        self.table().rows()
    }
}

/// What is known of a command on an I/O queue, for a namespace of command set `csi`.
#[inline]
pub fn io(csi: u8, opcode: u8) -> Option<&'static Facts> {
    CommandSet::of_csi(csi).iter().find_map(|set| set.facts(opcode))
}

/// True for the opcodes that the specification leaves to vendors: C0h to FFh of admin commands, 80h to FFh of
/// I/O commands (Base figure 92).
#[inline]
pub const fn is_vendor_specific(opcode: u8, is_admin: bool) -> bool {
    opcode >= if is_admin { 0xc0 } else { 0x80 }
}

/// What is known of a command by its opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// Its opcode, or FCTYPE.
    pub opcode: u8,
    /// The specification's name, or the vendor's.
    pub name: &'static str,
    /// What it is called on a command line: nvme-cli's word where that has one. Empty where nobody has asked
    /// for one.
    pub word: &'static str,
    /// Which way its data goes, if it has any.
    pub direction: Direction,
    /// Where the length of its data is.
    pub length: Length,
    /// What it changes.
    pub changes: Changes,
    /// What it is to the media: what a timing model charges for.
    pub access: Access,
    /// Its data is what a namespace holds, blocks or a value, rather than a structure about them.
    pub moves_contents: bool,
    /// It names logical blocks in dwords 10 to 12: SLBA and NLB.
    pub names_blocks: bool,
    /// What it writes is durable before it completes when FUA, bit 30 of dword 12, is set.
    pub has_fua: bool,
    /// Its half of a fused operation (Base 3.4.2); [`Fuse::Normal`] for one that cannot be fused.
    pub fuse: Fuse,
    /// It makes or deletes an I/O queue in host memory: over Fabrics a connection is the queue.
    pub makes_queue: bool,
    /// What [`Facts::effects`] says beside LBCC.
    other_effects: u32,
}

impl Facts {
    /// Bits of [`crate::log_page::command_effects`] and [`crate::log_page::effects_scope`] that an `unvme`
    /// device reports of it, without CSUPP.
    pub const fn effects(&self) -> u32 {
        match self.changes {
            Changes::Media | Changes::MediaByFields => self.other_effects | LBCC,
            Changes::Nothing | Changes::Controller => self.other_effects,
        }
    }

    /// True when this entry asks for its writes to be durable before it completes.
    #[inline]
    pub const fn forces_unit_access(&self, sqe: &Sqe) -> bool {
        self.has_fua && sqe.cdw12 & crate::nvm::DW12_FUA != 0
    }
}

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// There is none.
    None,
    /// From the host.
    ToController,
    /// To the host.
    ToHost,
    /// Both ways, which no command that is known does.
    Both,
}

impl Direction {
    /// What bits 1:0 of an entry's opcode say, of a Fabrics command those of its FCTYPE (Base figure 92).
    #[inline]
    pub const fn by_opcode(sqe: &Sqe) -> Self {
        let code = match sqe.opcode {
            admin::opcode::FABRICS => fabrics::Command::fctype(sqe),
            opcode => opcode,
        };
        match code & 3 {
            0 => Self::None,
            1 => Self::ToController,
            2 => Self::ToHost,
            _ => Self::Both,
        }
    }

    /// Which way the data of an entry goes. The opcodes of the vendor's commands for pairs do not say it;
    /// those of all others do, known or not.
    #[inline]
    pub fn of(sqe: &Sqe, is_admin: bool) -> Self {
        if is_admin || !is_vendor_specific(sqe.opcode, false) {
            return Self::by_opcode(sqe);
        }
        CommandSet::SamsungKv.facts(sqe.opcode).map_or(Self::None, |facts| facts.direction)
    }

    /// Whether data comes from the host.
    #[inline]
    pub const fn is_to_controller(self) -> bool {
        matches!(self, Self::ToController | Self::Both)
    }

    /// Whether data goes to the host.
    #[inline]
    pub const fn is_to_host(self) -> bool {
        matches!(self, Self::ToHost | Self::Both)
    }
}

/// Where the length of a command's data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// The entry does not say, or there is no data.
    Unstated,
    /// Always so many bytes.
    Fixed(u32),
    /// NLB: bits 15:0 of dword 12, zero-based, in logical blocks.
    Blocks,
    /// Dword 10 in dwords, less the bytes in bits 17:16 of dword 11, which are not used.
    Value,
    /// A number in the entry.
    Number(Number),
}

/// A number in dwords 10 to 13 of an entry that is a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// Bit at which it starts, counted from bit 0 of dword 10 on.
    pub first_bit: u8,
    /// Its bits, at most 32.
    pub bits: u8,
    /// One less than what is meant.
    pub is_zero_based: bool,
    /// What it counts, in bytes.
    pub unit_bytes: u8,
}

impl Length {
    const fn bytes_at(first_bit: u8) -> Self {
        Self::Number(Number { first_bit, bits: 32, is_zero_based: false, unit_bytes: 1 })
    }

    const fn dwords_at(first_bit: u8, is_zero_based: bool) -> Self {
        Self::Number(Number { first_bit, bits: 32, is_zero_based, unit_bytes: 4 })
    }

    const fn entries_at(first_bit: u8, bits: u8, unit_bytes: u8) -> Self {
        Self::Number(Number { first_bit, bits, is_zero_based: true, unit_bytes })
    }

    /// Bytes of an entry's data, on a namespace with blocks of `block_bytes`; `None` when the entry does not
    /// say, or what it says cannot be.
    pub const fn bytes(self, sqe: &Sqe, block_bytes: u64) -> Option<u64> {
        match self {
            Self::Unstated => None,
            Self::Fixed(bytes) => Some(bytes as u64),
            Self::Blocks => ((sqe.cdw12 & 0xffff) as u64 + 1).checked_mul(block_bytes),
            Self::Value => (sqe.cdw10 as u64 * 4).checked_sub((sqe.cdw11 >> 16 & 3) as u64),
            Self::Number(number) => Some(number.of(sqe) * number.unit_bytes as u64),
        }
    }
}

impl Number {
    const fn of(self, sqe: &Sqe) -> u64 {
        let dwords = sqe.cdw10 as u128
            | (sqe.cdw11 as u128) << 32
            | (sqe.cdw12 as u128) << 64
            | (sqe.cdw13 as u128) << 96;
        let number = (dwords >> self.first_bit) as u64 & ((1 << self.bits) - 1);
        number + self.is_zero_based as u64
    }
}

/// What a command changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Nothing: it may be executed twice.
    Nothing,
    /// The controller's state, an iterator's place, what a write cache holds; not what a namespace holds.
    Controller,
    /// What namespaces hold, if its fields say so.
    MediaByFields,
    /// What namespaces hold.
    Media,
}

/// What a command is to the media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Neither of the others.
    Other,
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It makes durable what was written.
    Flush,
}
