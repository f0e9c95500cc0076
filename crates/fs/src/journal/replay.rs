//! What a journal says when a file system is mounted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::HEADS;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::layout::{
    self, BLOCK, Descriptor, ENTRIES_PER_BLOCK, Entry, Expected, Geometry, Head, Header, Kind, Page,
    entries_of,
};
use crate::page;

/// What was found.
pub(crate) struct Replayed {
    /// The last image of each block that may not be in its place, and its transaction.
    pub images: BTreeMap<u64, (Arc<Page>, u64)>,
    /// The transaction to go on with. No record on the media has it, or a later one.
    pub next_tx: u64,
    /// Where its record goes.
    pub head: u64,
    /// Blocks of the ring that hold what is replayed.
    pub used: u64,
    /// Free blocks and inodes.
    pub free: (u64, u64),
    pub turn: u64,
    /// Records that were replayed.
    pub records: u64,
    /// It was left in order.
    pub is_clean: bool,
}

struct Reader<'a> {
    disk: &'a Disk,
    geometry: &'a Geometry,
    fs: u64,
}

/// A record that is whole.
struct Record {
    images: Vec<(u64, Page)>,
    revoked: Vec<u64>,
    blocks: u64,
    free: (u64, u64),
}

impl Reader<'_> {
    fn ring_blocks(&self) -> u64 {
        self.geometry.journal_blocks - HEADS
    }

    fn head(&self) -> Result<(Head, u64)> {
        let mut best: Option<(Head, u64)> = None;
        let mut broken = None;
        for index in 0..HEADS {
            let block = self.geometry.journal_start + index;
            let mut page: Page = [0; BLOCK];
            let found = self.disk.read(block, &mut page).and_then(|()| {
                let kind = Kind::JournalHead;
                layout::check(&page, &Expected { kind, fs: self.fs, block, owner: Some(0) })
            });
            let turn = Header::of(&page).tx.get();
            match found {
                Ok(()) if best.is_none_or(|best| best.1 < turn) => best = Some((Head::of(&page), turn)),
                Ok(()) => {}
                Err(e) => broken = Some(e),
            }
        }
        match (best, broken) {
            (Some((head, _)), _) if head.tail.get() >= self.ring_blocks() || head.tail_tx.get() == 0 => {
                Err(Error::damaged(self.geometry.journal_start, "the head of the journal points out of it"))
            }
            (Some(best), _) => Ok(best),
            (None, Some(e)) => Err(e),
            (None, None) => unreachable!("there are two heads"),
        }
    }

    /// Blocks of the ring from `at` on.
    fn read(&self, at: u64, blocks: u64) -> Result<Vec<u8>> {
        let start = self.geometry.journal_start + HEADS;
        let mut bytes = vec![0; blocks as usize * BLOCK];
        let until_end = (self.ring_blocks() - at).min(blocks) as usize * BLOCK;
        let (first, rest) = bytes.split_at_mut(until_end);
        self.disk.read(start + at, first)?;
        self.disk.read(start, rest)?;
        Ok(bytes)
    }

    /// A descriptor of `tx`, if there is one.
    fn descriptor(&self, page: &Page, tx: u64) -> Option<Descriptor> {
        let expected = Expected { kind: Kind::Descriptor, fs: self.fs, block: 0, owner: None };
        (layout::check(page, &expected).is_ok() && Header::of(page).tx.get() == tx)
            .then(|| Descriptor::of(page))
    }

    /// The record of `tx` at `at`; `None` when there is none that is whole.
    fn record(&self, at: u64, tx: u64) -> Result<Option<Record>> {
        let first = self.read(at, 1)?;
        let Some(start) = self.descriptor(first.as_slice().try_into().expect("a block"), tx) else {
            return Ok(None);
        };
        let (descriptors, entries) = (start.descriptors.get() as usize, start.entries.get() as usize);
        let images = start.images.get() as usize;
        let blocks = (descriptors + images) as u64;
        if start.index.get() != 0
            || images > entries
            || descriptors != entries.div_ceil(ENTRIES_PER_BLOCK)
            || blocks > self.ring_blocks()
        {
            return Ok(None);
        }
        let bytes = self.read(at, blocks)?;
        let (heads, bodies) = bytes.split_at(descriptors * BLOCK);
        let mut list: Vec<Entry> = Vec::with_capacity(entries);
        for (index, bytes) in heads.chunks_exact(BLOCK).enumerate() {
            let page: &Page = bytes.try_into().expect("a block");
            match self.descriptor(page, tx) {
                Some(found) if found.index.get() as usize == index && found.entries == start.entries => {
                    list.extend(entries_of(page, (entries - list.len()).min(ENTRIES_PER_BLOCK)));
                }
                _ => return Ok(None),
            }
        }
        let mut found = Vec::with_capacity(images);
        for (entry, bytes) in list.iter().zip(bodies.chunks_exact(BLOCK)) {
            let page: &Page = bytes.try_into().expect("a block");
            if page[8..12] != entry.crc.get().to_le_bytes() || !self.is_image(page, entry, tx) {
                return Ok(None);
            }
            found.push((entry.block.get(), *page));
        }
        let revoked = list[images..].iter().map(|entry| entry.block.get()).collect();
        let free = (start.free_blocks.get(), start.free_inodes.get());
        Ok(Some(Record { images: found, revoked, blocks, free }))
    }

    fn is_image(&self, page: &Page, entry: &Entry, tx: u64) -> bool {
        let block = entry.block.get();
        let is_there = block >= self.geometry.groups_start && block < self.geometry.copy_block();
        let header = Header::of(page);
        let kinds = [Kind::Tree, Kind::Inodes, Kind::BlockMap, Kind::InodeMap];
        let Some(&kind) = kinds.iter().find(|&&kind| kind as u16 == header.kind()) else { return false };
        is_there
            && header.tx.get() == tx
            && layout::check(page, &Expected { kind, fs: self.fs, block, owner: None }).is_ok()
            && (kind != Kind::Tree || page::check(page, block).is_ok())
    }
}

/// A journal that nothing is known of: it starts again, with numbers that no block can have.
pub(crate) fn forget(geometry: &Geometry) -> Replayed {
    Replayed {
        images: BTreeMap::new(),
        next_tx: 1 << 62,
        head: 0,
        used: 0,
        free: (geometry.blocks, geometry.inodes()),
        turn: 1 << 62,
        records: 0,
        is_clean: false,
    }
}

/// Reads the journal. Nothing is written.
///
/// # Errors
/// [`Error::Device`], [`Error::Damaged`] when none of its heads can be read.
pub(crate) fn replay(disk: &Disk, geometry: &Geometry, fs: u64) -> Result<Replayed> {
    let reader = Reader { disk, geometry, fs };
    let (head, turn) = reader.head()?;
    let mut tx = head.tail_tx.get();
    let mut at = head.tail.get();
    let mut free = (head.free_blocks.get(), head.free_inodes.get());
    let mut images: HashMap<u64, (Arc<Page>, u64)> = HashMap::new();
    let (mut used, mut records) = (0, 0);
    while used < reader.ring_blocks()
        && let Some(record) = reader.record(at, tx)?
    {
        for block in record.revoked {
            images.remove(&block);
        }
        for (block, page) in record.images {
            images.insert(block, (Arc::new(page), tx));
        }
        free = record.free;
        at = (at + record.blocks) % reader.ring_blocks();
        used += record.blocks;
        records += 1;
        tx += 1;
    }
    let is_clean = head.clean.get() == 1 && records == 0;
    // A record that a power cut has torn may have whole ones behind it, which must never count.
    let next_tx = if is_clean { tx } else { tx + geometry.journal_blocks };
    Ok(Replayed {
        images: images.into_iter().collect(),
        next_tx,
        head: at,
        used,
        free,
        turn,
        records,
        is_clean,
    })
}
