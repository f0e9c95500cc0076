//! What kind of device to be.

use unvme_flash::timing::TimingConfig;
use unvme_spec::samsung_kv::KeyspaceField;

use crate::SsdError;
use crate::fault::{FAULTS_MAX, FaultRule};
use crate::flash::FlashConfig;
use crate::limits::{IO_QUEUES_MAX, NAMESPACES_MAX, QUEUE_ENTRIES_MAX};
use crate::store::{CHUNK_BYTES, sums};

/// A namespace a new device starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceConfig {
    /// Capacity in bytes; `None` takes what is left. A multiple of the block size.
    pub bytes: Option<u64>,
    /// What it holds.
    pub kind: NamespaceKind,
}

/// What a namespace holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceKind {
    /// Logical blocks (NVM command set) of this many bytes: 512 or 4096.
    Blocks(u32),
    /// Pairs (Key Value command set, and the vendor's commands). Its capacity is in whole chunks, at least 16
    /// MiB; what pairs can use of it is a little less.
    KeyValue,
}

impl NamespaceConfig {
    /// Logical blocks of `block_bytes` on all the space that is left.
    pub const fn blocks(block_bytes: u32) -> Self {
        Self { bytes: None, kind: NamespaceKind::Blocks(block_bytes) }
    }

    /// Pairs on all the space that is left.
    pub const fn key_value() -> Self {
        Self { bytes: None, kind: NamespaceKind::KeyValue }
    }
}

/// Identity and limits of a device. What a slot has stored about itself (namespaces, features, firmware) wins
/// over [`SsdConfig::namespaces`], which only describes a device's first day.
#[derive(Clone, Debug)]
pub struct SsdConfig {
    /// Serial number, 1 to 20 ASCII characters.
    pub serial: String,
    /// Model number, 1 to 40 ASCII characters.
    pub model: String,
    /// Capacity that hosts see in bytes, a multiple of [`CHUNK_BYTES`].
    pub bytes: u64,
    /// Namespaces of a device that has no stored state.
    pub namespaces: Vec<NamespaceConfig>,
    /// I/O queue pairs, 1 to [`IO_QUEUES_MAX`].
    pub io_queues: u16,
    /// Entries per queue, 2 to [`QUEUE_ENTRIES_MAX`].
    pub queue_entries: u32,
    /// Largest data transfer of a command in bytes: a power of two from 8 KiB to 128 MiB, or `None` for no
    /// limit. A limit of 4 KiB would be MDTS 0, which means that there is none.
    pub transfer_bytes_max: Option<u32>,
    /// Where vendor commands for pairs name their keyspace. With [`KeyspaceField::Nsid`], as the uNVMe SDK
    /// has it, they are for the first Key Value namespace.
    pub keyspace_field: KeyspaceField,
    /// Whether Key Value namespaces take the vendor's commands beside the standard ones. A device without
    /// them is what others build.
    pub vendor_kv: bool,
    /// Whether the vendor's admin commands that manage faults are there, see [`unvme_spec::fault`].
    pub fault_commands: bool,
    /// Rules for faults as long as this device is there, beside those its saved state has; they are not
    /// saved.
    pub faults: Vec<FaultRule>,
    /// Index of the FDP configuration that is enabled on the device's first day; `None` leaves FDP disabled.
    /// See log page 20h; 0 has one kind of handles, initially isolated.
    pub fdp: Option<u8>,
    /// How long commands take: by default as long as they do.
    pub timing: TimingConfig,
    /// The flash and its translation layer; `None` when data lies where hosts put it, which is the fastest.
    pub flash: Option<FlashConfig>,
    /// Each block has a checksum, and one that does not fit is an Unrecovered Read Error. For blocks without
    /// flash: flash has checksums of its own, and so have pairs.
    pub checksum: bool,
}

impl SsdConfig {
    /// A device of `bytes` with one namespace over all of it.
    pub fn block(bytes: u64, block_bytes: u32) -> Self {
        Self {
            serial: "UNVME0000000001".into(),
            model: "unvme virtual SSD".into(),
            bytes,
            namespaces: vec![NamespaceConfig::blocks(block_bytes)],
            io_queues: IO_QUEUES_MAX,
            queue_entries: QUEUE_ENTRIES_MAX,
            transfer_bytes_max: Some(2 << 20),
            keyspace_field: KeyspaceField::default(),
            vendor_kv: true,
            fault_commands: true,
            faults: Vec::new(),
            fdp: None,
            timing: TimingConfig::None,
            flash: None,
            checksum: false,
        }
    }

    /// A device of `bytes` with one Key Value namespace over all of it. There is no limit to the size of a
    /// transfer but that of a value, 256 MiB.
    pub fn kv(bytes: u64) -> Self {
        Self {
            namespaces: vec![NamespaceConfig::key_value()],
            transfer_bytes_max: None,
            ..Self::block(bytes, 4096)
        }
    }

    /// Bytes of the store the device needs, a multiple of [`CHUNK_BYTES`]: its capacity, and with flash or
    /// checksums what lies beside the data as well. Sparse media takes no more space than is written. Errors:
    /// [`SsdError::Ftl`] naming what is impossible about the flash, and what works.
    pub fn store_bytes(&self) -> Result<u64, SsdError> {
        let sums = if self.checksum { sums::area_bytes(self.bytes) } else { 0 };
        self.flash.as_ref().map_or(Ok(self.bytes + sums), |flash| flash.store_bytes(self.bytes))
    }

    pub(crate) fn check(&self) -> Result<(), SsdError> {
        let refuse = |key, value: String, expected: &str| {
            Err(SsdError::Config { key, value, expected: expected.into() })
        };
        let printable =
            |s: &str, most| !s.is_empty() && s.len() <= most && s.bytes().all(|b| (0x20..0x7f).contains(&b));
        if !printable(&self.serial, 20) {
            return refuse("serial", self.serial.clone(), "1 to 20 printable ASCII characters");
        }
        if !printable(&self.model, 40) {
            return refuse("model", self.model.clone(), "1 to 40 printable ASCII characters");
        }
        if self.bytes == 0 || !self.bytes.is_multiple_of(CHUNK_BYTES) || self.bytes > 1 << 50 {
            return refuse("bytes", self.bytes.to_string(), "a multiple of 2 MiB, at most 1 PiB");
        }
        if !(1..=IO_QUEUES_MAX).contains(&self.io_queues) {
            return refuse("io_queues", self.io_queues.to_string(), "1 to 64");
        }
        if !(2..=QUEUE_ENTRIES_MAX).contains(&self.queue_entries) {
            return refuse("queue_entries", self.queue_entries.to_string(), "2 to 4096");
        }
        if let Some(most) = self.transfer_bytes_max
            && !(most.is_power_of_two() && (8192..=128 << 20).contains(&most))
        {
            return refuse(
                "transfer_bytes_max",
                most.to_string(),
                "a power of two from 8 KiB to 128 MiB, or none",
            );
        }
        if self.namespaces.len() > NAMESPACES_MAX as usize {
            return refuse("namespaces", format!("{} of them", self.namespaces.len()), "at most 128");
        }
        if self.fdp.is_some() && self.flash.is_none() {
            return refuse("fdp", "a configuration".into(), "none: there is no flash");
        }
        if self.checksum && self.flash.is_some() {
            return refuse("checksum", "on".into(), "none with flash, which has checksums of its own");
        }
        if self.checksum && self.namespaces.iter().any(|n| n.kind == NamespaceKind::KeyValue) {
            return refuse("checksum", "on".into(), "none with pairs, which have checksums of their own");
        }
        self.ftl()?;
        self.timing.check()?;
        if self.faults.len() > FAULTS_MAX {
            return refuse("faults", format!("{} of them", self.faults.len()), "at most 64");
        }
        for namespace in &self.namespaces {
            if let NamespaceKind::Blocks(bytes) = namespace.kind
                && !matches!(bytes, 512 | 4096)
            {
                return refuse("block_bytes", bytes.to_string(), "512 or 4096");
            }
        }
        Ok(())
    }
}
