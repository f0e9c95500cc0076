//! Making a file system.

use rustix::fs::FileType;
use unvme::worker::{Queues, WorkerOptions};
use unvme::{Block, Claim};

use crate::bits;
use crate::disk::{Disk, Durable};
use crate::error::{Error, Result};
use crate::holder::{Holder, MAKING, claim};
use crate::layout::{
    self, BLOCK, Expected, FIRST_INO, GROUP_BLOCKS, Geometry, Head, INODES_PER_BLOCK, Inode, Kind,
    ORPHANS_INO, Page, ROOT_INO, Superblock, Time, VERSION, seal, stamp,
};
use crate::page;
use crate::placement::{Class, Placement};
use crate::system::read_superblock;

/// Blocks of one range that is deallocated: 1 GiB.
const DEALLOCATED_MAX: u64 = 1 << 18;

/// The fewest blocks that a file system can have.
const BLOCKS_MIN: u64 = 1024;

/// How a file system is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MakeOptions {
    /// A name for people: up to 63 bytes.
    pub label: String,
    /// Bytes of the device for each inode: how many files there can be. `None`: 16 KiB.
    pub bytes_per_inode: Option<u64>,
    /// Bytes of the journal. `None`: one part in 32 of the device, at least 1 MiB and at most 256 MiB.
    pub journal_bytes: Option<u64>,
    /// What tells it from all others. `None`: a random one.
    pub uuid: Option<[u8; 16]>,
    /// The device is told first that nothing of what it holds is needed any more.
    pub deallocate: bool,
}

impl Default for MakeOptions {
    fn default() -> Self {
        Self {
            label: String::new(),
            bytes_per_inode: None,
            journal_bytes: None,
            uuid: None,
            deallocate: true,
        }
    }
}

fn format_error(name: &str, what: impl std::fmt::Display) -> Error {
    Error::Format(format!("{name}: {what}"))
}

/// The numbers of a new file system on a device of `blocks` blocks.
fn plan(name: &str, blocks: u64, options: &MakeOptions) -> Result<Geometry> {
    if blocks < BLOCKS_MIN {
        return Err(format_error(
            name,
            format_args!("{blocks} blocks of {BLOCK} bytes; a file system needs {BLOCKS_MIN} or more"),
        ));
    }
    let per_inode = options.bytes_per_inode.unwrap_or(16 << 10);
    if !(4096..=1 << 26).contains(&per_inode) {
        return Err(format_error(
            name,
            format_args!("{per_inode} bytes for each inode; 4096 to 67108864 are possible"),
        ));
    }
    let journal_blocks = match options.journal_bytes {
        None => (blocks / 32).clamp(256, 65536),
        Some(bytes) if bytes < 1 << 20 || bytes / BLOCK as u64 > blocks / 4 => {
            return Err(format_error(
                name,
                format_args!("a journal of {bytes} bytes; 1 MiB up to a quarter of the device is possible"),
            ));
        }
        Some(bytes) => bytes / BLOCK as u64,
    };
    let groups_start = 1 + journal_blocks;
    let inodes =
        (GROUP_BLOCKS * BLOCK as u64 / per_inode).min(GROUP_BLOCKS) / INODES_PER_BLOCK * INODES_PER_BLOCK;
    let room = blocks - 1 - groups_start;
    // Less than a group: its inodes are fewer, as well.
    let inodes_per_group = if room < GROUP_BLOCKS { inodes * room / GROUP_BLOCKS } else { inodes };
    let inodes_per_group = (inodes_per_group / INODES_PER_BLOCK * INODES_PER_BLOCK).max(64);
    let mut geometry = Geometry {
        blocks,
        journal_start: 1,
        journal_blocks,
        groups_start,
        groups: room.div_ceil(GROUP_BLOCKS) as u32,
        inodes_per_group: inodes_per_group as u32,
    };
    // A last group with more of its own than for files is left out.
    if geometry.groups > 1 && geometry.group_len(geometry.groups - 1) < 2 * geometry.group_overhead() + 64 {
        geometry.groups -= 1;
    }
    Ok(geometry)
}

struct Maker<'a> {
    disk: &'a Disk,
    geometry: Geometry,
    fs: u64,
}

impl Maker<'_> {
    fn write(&self, kind: Kind, block: u64, owner: u64, fill: impl FnOnce(&mut Page)) -> Result<()> {
        let mut page: Page = [0; BLOCK];
        stamp(&mut page, &Expected { kind, fs: self.fs, block, owner: Some(owner) });
        fill(&mut page);
        seal(&mut page, 1);
        self.disk.write(block, &page, Durable::Later, Class::Metadata)
    }

    /// The maps of a group. Returns its free blocks and inodes.
    fn group(&self, group: u32) -> Result<(u64, u64)> {
        let overhead = self.geometry.group_overhead();
        let pages = if group == 0 { 2 } else { 0 };
        let inodes = if group == 0 { FIRST_INO - 1 } else { 0 };
        self.write(Kind::BlockMap, self.geometry.group_start(group), group.into(), |page| {
            bits::mark(page, 0, overhead + pages, true);
        })?;
        self.write(Kind::InodeMap, self.geometry.inode_map(group), group.into(), |page| {
            bits::mark(page, 0, inodes, true);
        })?;
        let blocks = self.geometry.group_len(group) - overhead - pages;
        Ok((blocks, u64::from(self.geometry.inodes_per_group) - inodes))
    }

    /// The root directory, and the list of files without names.
    fn first_inodes(&self) -> Result<()> {
        let now = Time::now();
        let start = self.geometry.group_start(0) + self.geometry.group_overhead();
        let inode = |links: u32, tree: u64| Inode {
            mode: FileType::Directory.as_raw_mode() | 0o755,
            links,
            blocks: 1,
            accessed: now,
            modified: now,
            changed: now,
            created: now,
            generation: 1,
            // Whoever makes it may use it.
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            parent: ROOT_INO,
            tree,
            ..Inode::default()
        };
        for (tree, ino) in [(start, ROOT_INO), (start + 1, ORPHANS_INO)] {
            self.write(Kind::Tree, tree, ino, |page| page::init(page, 0))?;
        }
        let (block, root) = self.geometry.inode_block(ROOT_INO).expect("the first group has it");
        self.write(Kind::Inodes, block, 0, |page| {
            layout::encode(page, root, Some(&inode(2, start)));
            layout::encode(page, root + 1, Some(&inode(1, start + 1)));
        })
    }

    fn journal(&self, free: (u64, u64)) -> Result<()> {
        let head = Head {
            tail_tx: 2.into(),
            tail: 0.into(),
            free_blocks: free.0.into(),
            free_inodes: free.1.into(),
            clean: 1.into(),
            zero: 0.into(),
        };
        for index in 0..2 {
            self.write(Kind::JournalHead, self.geometry.journal_start + index, 0, |page| head.put(page))?;
        }
        Ok(())
    }
}

/// Excludes all other processes: none has a file system of the namespace mounted, and none can mount one or
/// change the namespace before the new one is made.
fn keep(disk: &Disk, block: &Block, name: &str) -> Result<(Option<Holder>, Option<Claim>)> {
    // A mount reads the copy where the first one cannot be had. What cannot be read is written anew.
    let former = read_superblock(disk, 0).or_else(|_| read_superblock(disk, disk.blocks() - 1));
    match former {
        Ok(former) => Ok((Some(Holder::take_for(block, name, &former.uuid, false, MAKING)?), None)),
        Err(_) => Ok((None, Some(claim(block, name, false, MAKING)?))),
    }
}

/// Makes an empty file system of the whole namespace. What was there is lost. `progress` is told how many of
/// how many groups are done.
///
/// # Errors
/// [`Error::Format`] for a device or options that cannot be, [`Error::Busy`] when a program has the file
/// system mounted that is there, [`Error::Device`].
pub fn make(
    block: &Block,
    name: &str,
    options: &MakeOptions,
    mut progress: impl FnMut(u64, u64),
) -> Result<()> {
    let worker = WorkerOptions { queues: Queues::Count(1), ..WorkerOptions::default() };
    let disk = Disk::open(block, name, &worker, Placement::Off)?;
    if options.label.len() > 63 {
        return Err(format_error(name, "a label has up to 63 bytes"));
    }
    let geometry = plan(name, disk.blocks(), options)?;
    let uuid = options.uuid.unwrap_or_else(|| {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&unvme::random::number().to_le_bytes());
        uuid[8..].copy_from_slice(&unvme::random::number().to_le_bytes());
        // A random UUID, RFC 9562 section 5.4.
        uuid[6] = uuid[6] & 0x0f | 0x40;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        uuid
    });
    let mut label = [0; 64];
    label[..options.label.len()].copy_from_slice(options.label.as_bytes());
    let superblock = Superblock {
        version: VERSION.into(),
        block_bytes: (BLOCK as u32).into(),
        uuid,
        compatible: 0.into(),
        read_only: 0.into(),
        incompatible: 0.into(),
        blocks: geometry.blocks.into(),
        journal_start: geometry.journal_start.into(),
        journal_blocks: geometry.journal_blocks.into(),
        groups_start: geometry.groups_start.into(),
        groups: geometry.groups.into(),
        inodes_per_group: geometry.inodes_per_group.into(),
        hash_seed: u64::from_le_bytes(uuid[8..].try_into().expect("8 of 16 bytes")).into(),
        created: (Time::now().seconds as u64 * 1_000_000_000).into(),
        label,
    };
    let _kept = keep(&disk, block, name)?;
    // What was there stops being a file system before the new one is one.
    disk.write(0, &[0; BLOCK], Durable::Now, Class::Metadata)?;
    if options.deallocate {
        let all: Vec<_> = (0..disk.blocks())
            .step_by(DEALLOCATED_MAX as usize)
            .map(|start| (start, DEALLOCATED_MAX.min(disk.blocks() - start)))
            .collect();
        if let Err(e) = disk.deallocate(&all) {
            // It is advice.
            tracing::debug!("{e}");
        }
    }
    let maker = Maker { disk: &disk, geometry, fs: superblock.fs() };
    let mut free = (0, 0);
    for group in 0..geometry.groups {
        let (blocks, inodes) = maker.group(group)?;
        free = (free.0 + blocks, free.1 + inodes);
        progress(u64::from(group) + 1, geometry.groups.into());
    }
    maker.first_inodes()?;
    maker.journal(free)?;
    maker.write(Kind::Superblock, geometry.copy_block(), 0, |page| superblock.put(page))?;
    disk.flush()?;
    maker.write(Kind::Superblock, 0, 0, |page| superblock.put(page))?;
    disk.flush()
}
