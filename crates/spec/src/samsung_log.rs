//! Log pages of Samsung's KV SSDs: C0h, CAh and D0h.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

codes! {
    /// Log identifiers.
    pub mod lid: u8 {
        EXTENDED_SMART = 0xc0, "Extended SMART information, [`super::ExtendedSmartLog`]";
        WAF = 0xca, "Write amplification, [`super::WafLog`]";
        ITERATORS = 0xd0, "Iterators, [`super::IteratorLog`]";
    }
}

/// What one kind of command has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CommandCounts {
    /// Commands that arrived.
    pub submitted: u64,
    /// Commands that succeeded.
    pub succeeded: u64,
    /// Commands that failed.
    pub failed: u64,
}

/// Sizes of values in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ValueSizes {
    /// Largest.
    pub max: u32,
    /// Smallest.
    pub min: u32,
    /// Average.
    pub average: u32,
}

/// A range that the device supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Limits {
    /// Most bytes.
    pub max: u32,
    /// Fewest bytes.
    pub min: u32,
    /// Multiple in bytes.
    pub alignment: u32,
}

/// Log page C0h, extended SMART information: 1024 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ExtendedSmartLog {
    /// Not described.
    pub reserved0: [u8; 512],
    /// Retrieve commands.
    pub retrieve: CommandCounts,
    /// Store commands.
    pub store: CommandCounts,
    /// Append commands.
    pub append: CommandCounts,
    /// Delete commands.
    pub delete: CommandCounts,
    /// Not described.
    pub reserved608: [u8; 120],
    /// Values retrieved.
    pub retrieve_sizes: ValueSizes,
    /// Values stored.
    pub store_sizes: ValueSizes,
    /// Values appended.
    pub append_sizes: ValueSizes,
    /// Not described.
    pub reserved764: [u8; 60],
    /// Keys: most bytes, fewest, alignment.
    pub key: Limits,
    /// Values: most bytes, fewest, alignment.
    pub value: Limits,
    /// Values of Retrieve.
    pub retrieve_limits: Limits,
    /// Values of Store.
    pub store_limits: Limits,
    /// Values of Append.
    pub append_limits: Limits,
    /// Not described.
    pub reserved884: [u8; 60],
    /// Write amplification factor in tenths.
    pub waf_tenths: u32,
    /// Not described.
    pub reserved948: [u8; 76],
}

layout!(ExtendedSmartLog, 1024, { retrieve: 512, store: 536, append: 560, delete: 584, retrieve_sizes: 728, store_sizes: 740, append_sizes: 752, key: 824, value: 836, retrieve_limits: 848, store_limits: 860, append_limits: 872, waf_tenths: 944 });

/// Log page CAh: 512 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct WafLog {
    /// Not described.
    pub reserved0: [u8; 256],
    /// Write amplification factor in tenths.
    pub waf_tenths: u32,
    /// Not described.
    pub reserved260: [u8; 252],
}

layout!(WafLog, 512, { waf_tenths: 256 });

/// An iterator in log page D0h: 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct IteratorEntry {
    /// Identifier, 1 to 16.
    pub id: u8,
    /// 1 open, 0 closed.
    pub status: u8,
    /// Number of an [`crate::samsung_kv::IterateType`].
    pub kind: u8,
    /// Keyspace.
    pub keyspace: u8,
    /// First four bytes of the keys.
    pub prefix: [u8; 4],
    /// Bits of them that count.
    pub bitmask: [u8; 4],
    /// 1 when nothing is left to iterate over.
    pub is_eof: u8,
    /// Reserved.
    pub reserved: [u8; 3],
}

const _: () = assert!(size_of::<IteratorEntry>() == 16);

/// Log page D0h: the iterators by identifier, 512 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct IteratorLog {
    /// Entry `n` is iterator `n + 1`.
    pub iterators: [IteratorEntry; 16],
    /// Not described.
    pub reserved256: [u8; 256],
}

layout!(IteratorLog, 512, { reserved256: 256 });
