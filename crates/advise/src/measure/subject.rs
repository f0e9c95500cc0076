//! A device that is measured.

use std::sync::Arc;

use unvme::worker::Medium;
use unvme::{Device, Error, Nsid, Op, OpenOptions, Result, StoreOptions, Transport, open};

use crate::location::{Location, Reach};

/// Bytes of a virtual SSD in memory that are written and read: more than the caches of a processor hold, and
/// little of a machine's memory.
const MEMORY_RANGE: u64 = 256 << 20;
/// Pairs that are asked for at most.
const PAIRS_MAX: usize = 50_000;
/// Bytes of one write that fills a device in memory.
const FILL_BYTES: usize = 1 << 20;
const KEY_BYTES: usize = 16;

/// What is read of a device.
#[derive(Clone, Debug)]
pub struct SubjectOptions {
    /// Bytes of each command, or of each value.
    pub io_bytes: u32,
    /// The namespace; the first one with blocks, else the first one with pairs, when left out.
    pub nsid: Option<Nsid>,
}

/// What commands ask for.
#[derive(Debug)]
enum Content {
    /// `units` units of `unit` blocks each.
    Blocks { unit: u32, units: u64 },
    /// Keys that exist.
    Pairs { keys: Vec<Vec<u8>>, value_bytes: usize },
}

/// A device with one namespace of it, open for as long as it is measured.
#[derive(Debug)]
pub struct Subject {
    location: Location,
    device: Arc<Device>,
    medium: Medium,
    content: Content,
}

impl Subject {
    /// Opens a device. One in memory is filled first; nothing else is written to.
    ///
    /// # Errors
    /// Those of [`open`]; [`Error::Argument`] for a size that is no number of whole blocks, and a namespace
    /// without anything to read.
    pub fn open(mut location: Location, options: &SubjectOptions) -> Result<Self> {
        let device = Arc::new(open(&location.name, &OpenOptions::default())?);
        if location.reach == Reach::Process && device.transport() == Transport::InProcess {
            location.reach = Reach::Slot;
        }
        let is_memory = location.reach == Reach::InProcess;
        let blocks = device.namespaces()?;
        let all = device.all_namespaces()?.into_iter().map(|entry| entry.nsid);
        let pairs: Vec<Nsid> = all.filter(|nsid| !blocks.contains(nsid)).collect();
        let chosen = options.nsid.or_else(|| blocks.first().or_else(|| pairs.first()).copied());
        let Some(nsid) = chosen else {
            return Err(nothing(&location.name, "no namespace is attached; there is nothing to read"));
        };
        if pairs.contains(&nsid) {
            return Self::of_pairs(location, device, nsid, options.io_bytes, is_memory);
        }
        Self::of_blocks(location, device, nsid, options.io_bytes, is_memory)
    }

    fn of_blocks(
        location: Location,
        device: Arc<Device>,
        nsid: Nsid,
        io_bytes: u32,
        is_memory: bool,
    ) -> Result<Self> {
        let mut block = device.block(nsid)?;
        let size = block.block_bytes();
        if io_bytes == 0 || !io_bytes.is_multiple_of(size) {
            let what =
                format!("--io-size {io_bytes}: its blocks have {size} bytes; expected a multiple of that");
            return Err(nothing(&location.name, &what));
        }
        let most = device.controller().transfer_bytes_max() as u64;
        if u64::from(io_bytes) > most {
            let what = format!("--io-size {io_bytes}: one command of it moves {most} bytes at most");
            return Err(nothing(&location.name, &what));
        }
        let bytes = if is_memory { block.bytes().min(MEMORY_RANGE) } else { block.bytes() };
        let units = bytes / u64::from(io_bytes);
        if units == 0 {
            let what = format!("--io-size {io_bytes}: the namespace has {} bytes", block.bytes());
            return Err(nothing(&location.name, &what));
        }
        if is_memory {
            let data: Vec<u8> = (0..FILL_BYTES).map(|at| (at / 512 * 31 + at) as u8).collect();
            let mut lba = 0;
            let end = bytes / u64::from(size);
            while lba < end {
                let part = ((end - lba) * u64::from(size)).min(FILL_BYTES as u64) as usize;
                block.write_at(lba, &data[..part])?;
                lba += (part / size as usize) as u64;
            }
        }
        let medium = Medium::Blocks(*block.namespace());
        Ok(Self { location, device, medium, content: Content::Blocks { unit: io_bytes / size, units } })
    }

    fn of_pairs(
        location: Location,
        device: Arc<Device>,
        nsid: Nsid,
        io_bytes: u32,
        is_memory: bool,
    ) -> Result<Self> {
        let mut kv = device.kv(nsid)?;
        let value_bytes = io_bytes as usize;
        let most = (device.controller().transfer_bytes_max() as u64).min(kv.namespace().bytes() / 2);
        if u64::from(io_bytes) > most {
            let what = format!("--io-size {io_bytes}: one command of it moves {most} bytes at most");
            return Err(nothing(&location.name, &what));
        }
        if is_memory {
            let value = vec![0x5a; value_bytes];
            let count = kv.namespace().bytes().min(MEMORY_RANGE) / (u64::from(io_bytes) + 512) / 2;
            for number in 0..(count as usize).clamp(1, PAIRS_MAX) {
                kv.store(&key(number), &value, StoreOptions::default())?;
            }
        }
        let listed = kv.list()?.take(PAIRS_MAX);
        let keys = listed.collect::<Result<Vec<_>>>()?;
        if keys.is_empty() {
            let what =
                "it has no pairs to retrieve; store some first, with `unvme perf --prefill` for instance";
            return Err(nothing(&location.name, what));
        }
        let medium = Medium::Pairs(*kv.namespace());
        Ok(Self { location, device, medium, content: Content::Pairs { keys, value_bytes } })
    }

    /// Where it is.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.location.name
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The namespace.
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// Commands that a queue of it can have outstanding.
    pub fn depth_max(&self) -> u16 {
        self.device.controller().queue_depth_max()
    }

    /// True for a namespace of pairs.
    pub fn has_pairs(&self) -> bool {
        matches!(self.content, Content::Pairs { .. })
    }

    /// True when it lives in the memory of this process, so that another one like it can be opened.
    pub fn is_memory(&self) -> bool {
        self.location.reach == Reach::InProcess
    }

    /// True when it keeps its data, so that some of its blocks may never have been written.
    pub fn may_be_empty(&self) -> bool {
        self.device.is_virtual() && !self.is_memory() && !self.has_pairs()
    }

    /// Bytes of the buffer of a command.
    pub(super) fn buffer_bytes(&self) -> usize {
        match &self.content {
            Content::Blocks { unit, .. } => {
                *unit as usize
                    * match &self.medium {
                        Medium::Blocks(namespace) => namespace.block_bytes() as usize,
                        Medium::Pairs(_) => 1,
                    }
            }
            // A retrieve of no bytes takes a buffer all the same.
            Content::Pairs { value_bytes, .. } => (*value_bytes).next_multiple_of(512).max(512),
        }
    }

    /// The command for a random number.
    #[inline]
    pub(super) fn op(&self, random: u64) -> Op<'_> {
        let below = |end: u64| ((u128::from(random) * u128::from(end)) >> 64) as u64;
        match &self.content {
            Content::Blocks { unit, units } => Op::read(below(*units) * u64::from(*unit), *unit),
            Content::Pairs { keys, value_bytes } => {
                Op::retrieve(keys[below(keys.len() as u64) as usize].as_slice(), *value_bytes)
            }
        }
    }
}

fn key(number: usize) -> [u8; KEY_BYTES] {
    let mut key = *b"advise: 00000000";
    for (place, byte) in key.iter_mut().rev().take(8).enumerate() {
        *byte = b"0123456789abcdef"[number >> (4 * place) & 0xf];
    }
    key
}

fn nothing(name: &str, what: &str) -> Error {
    Error::Argument(format!("{name}: {what}"))
}
