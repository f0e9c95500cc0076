//! What a journal says when a file system is mounted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::HEADS;
use super::salvage::{Damage, Survey};
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
    pub damage: Damage,
}

/// The last image of each block, and its transaction.
pub(super) type Images = HashMap<u64, (Arc<Page>, u64)>;

pub(super) struct Reader<'a> {
    disk: &'a Disk,
    geometry: &'a Geometry,
    pub(super) fs: u64,
}

/// A record that is whole.
pub(super) struct Record {
    images: Vec<(u64, Page)>,
    revoked: Vec<u64>,
    blocks: u64,
    free: (u64, u64),
}

/// Where replay begins.
struct Start {
    head: Head,
    turn: u64,
    /// The other head, or both of them, are damaged.
    is_damaged: bool,
}

impl Reader<'_> {
    pub(super) fn ring_blocks(&self) -> u64 {
        self.geometry.journal_blocks - HEADS
    }

    /// The newer of the two heads that is whole; without one, the newest run of records in the ring.
    fn start(&self, damage: &mut Damage) -> Result<Start> {
        let mut best: Option<(Head, u64)> = None;
        let mut broken: Vec<Error> = Vec::new();
        for index in 0..HEADS {
            let block = self.geometry.journal_start + index;
            let mut page: Page = [0; BLOCK];
            let kind = Kind::JournalHead;
            let found = self
                .disk
                .read(block, &mut page)
                .and_then(|()| layout::check(&page, &Expected { kind, fs: self.fs, block, owner: Some(0) }));
            let (head, turn) = (Head::of(&page), Header::of(&page).tx.get());
            match found {
                Ok(()) if head.tail.get() >= self.ring_blocks() || head.tail_tx.get() == 0 => {
                    broken.push(Error::damaged(block, "the head of the journal points out of it"));
                }
                Ok(()) if best.is_none_or(|best| best.1 < turn) => best = Some((head, turn)),
                Ok(()) => {}
                Err(e) => broken.push(e),
            }
        }
        let is_damaged = !broken.is_empty();
        if let Some((head, turn)) = best {
            damage.healed.extend(broken.iter().map(ToString::to_string));
            return Ok(Start { head, turn, is_damaged });
        }
        let why = match broken.iter().position(|e| matches!(e, Error::Device(_))) {
            // They may be whole, and readable the next time.
            Some(at) => return Err(broken.swap_remove(at)),
            None => broken.pop().expect("no head is whole"),
        };
        let survey = Survey::of(self, 0, self.ring_blocks(), 1, damage)?;
        let Some((tail, tail_tx)) = survey.newest_run(self)? else { return Err(why) };
        damage
            .lost
            .push(format!("both heads are damaged, and replay begins at transaction {tail_tx}: {why}"));
        let head = Head {
            tail_tx: tail_tx.into(),
            tail: tail.into(),
            free_blocks: self.geometry.blocks.into(),
            free_inodes: self.geometry.inodes().into(),
            clean: 0.into(),
            zero: 0.into(),
        };
        Ok(Start { head, turn: TURN_AFTER_LOSS, is_damaged })
    }

    /// Blocks of the ring from `at` on.
    pub(super) fn read(&self, at: u64, blocks: u64) -> Result<Vec<u8>> {
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
    pub(super) fn record(&self, at: u64, tx: u64) -> Result<Option<Record>> {
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
            if page[8..12] != entry.crc.get().to_le_bytes() || !self.is_image(page, entry.block.get(), tx) {
                return Ok(None);
            }
            found.push((entry.block.get(), *page));
        }
        let revoked = list[images..].iter().map(|entry| entry.block.get()).collect();
        let free = (start.free_blocks.get(), start.free_inodes.get());
        Ok(Some(Record { images: found, revoked, blocks, free }))
    }

    /// Whether a page is a whole image of `block` that transaction `tx` wrote.
    pub(super) fn is_image(&self, page: &Page, block: u64, tx: u64) -> bool {
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

/// The turn of the first head after both were lost: no head that is on the media has it, or a later one.
const TURN_AFTER_LOSS: u64 = 1 << 62;

/// A journal that nothing is known of: it starts again, with numbers that no block can have.
fn forget(geometry: &Geometry) -> Replayed {
    Replayed {
        images: BTreeMap::new(),
        next_tx: 1 << 62,
        head: 0,
        used: 0,
        free: (geometry.blocks, geometry.inodes()),
        turn: TURN_AFTER_LOSS,
        records: 0,
        is_clean: false,
        damage: Damage::default(),
    }
}

/// A replay that is under way.
struct Replay<'a> {
    reader: Reader<'a>,
    images: Images,
    damage: Damage,
    tx: u64,
    at: u64,
    used: u64,
    records: u64,
    free: (u64, u64),
}

impl Replay<'_> {
    /// Applies the whole records that follow, up to the first one that is not whole.
    fn follow(&mut self) -> Result<()> {
        while self.used < self.reader.ring_blocks()
            && let Some(record) = self.reader.record(self.at, self.tx)?
        {
            for block in record.revoked {
                self.images.remove(&block);
                self.damage.supersede(block);
            }
            for (block, page) in record.images {
                self.images.insert(block, (Arc::new(page), self.tx));
                self.damage.supersede(block);
            }
            self.free = record.free;
            self.at = (self.at + record.blocks) % self.reader.ring_blocks();
            self.used += record.blocks;
            self.records += 1;
            self.tx += 1;
        }
        Ok(())
    }

    /// Skips records that are damaged. Returns whether whole ones follow.
    fn skip(&mut self, survey: &Survey) -> Result<bool> {
        let Some(last) = survey.last().filter(|&last| last > self.tx) else { return Ok(false) };
        let next = survey.next_record(&self.reader, self.tx)?;
        // The last one that the ring has a block of may be torn; all before it were durable.
        let end = next.map_or(last, |(_, tx)| tx);
        // A mount that replays the journal writes all images to their addresses, and leaves out this many
        // numbers, more than the ring can hold: then the head that said so is missing, and no record.
        let leap = self.reader.geometry.journal_blocks;
        let is_leap = end - self.tx == leap && !self.damage.healed.is_empty();
        if end - self.tx < leap {
            survey.salvage(&self.reader, (self.tx, end), &mut self.images, &mut self.damage)?;
        }
        let records = match end - self.tx {
            1 => format!("the record of transaction {} is damaged", self.tx),
            _ => format!("the records of transactions {} to {} are missing or damaged", self.tx, end - 1),
        };
        let (tx, before) = (self.tx, self.records);
        let goes_on = next.is_some();
        if let Some((at, next)) = next {
            let ring = self.reader.ring_blocks();
            // Without a record before it the ring has been written over since the head: it begins here.
            self.used = if before == 0 { 0 } else { self.used + (at + ring - self.at) % ring };
            (self.at, self.tx) = (at, next);
            self.follow()?;
        } else {
            self.tx = last;
        }
        debug_assert!(self.tx > tx, "every skip ends at a later transaction");
        let whole = match self.records - before {
            0 => "a later one was begun".to_owned(),
            1 => "a whole one follows".to_owned(),
            many => format!("{many} whole ones follow"),
        };
        if !is_leap {
            self.damage.lost.push(format!("{records}, and {whole}"));
        }
        Ok(goes_on)
    }
}

/// Reads the journal, and adds what is wrong with it to `told`. Nothing is written. For a check or a repair,
/// `is_tolerant`, one of which nothing can be read begins again.
///
/// # Errors
/// [`Error::Device`], [`Error::Damaged`] when it has neither a whole head nor a whole record.
pub(crate) fn recover(
    disk: &Disk,
    geometry: &Geometry,
    fs: u64,
    is_tolerant: bool,
    told: &mut Vec<(String, String)>,
) -> Result<Replayed> {
    let about = || "the journal".to_owned();
    let replayed = match replay(disk, geometry, fs) {
        Err(e @ Error::Damaged { .. }) if is_tolerant => {
            told.push((about(), e.to_string()));
            forget(geometry)
        }
        other => other?,
    };
    let wrong = replayed.damage.lost.iter().chain(&replayed.damage.healed);
    told.extend(wrong.map(|what| (about(), what.clone())));
    Ok(replayed)
}

/// As [`recover`], without a repair.
fn replay(disk: &Disk, geometry: &Geometry, fs: u64) -> Result<Replayed> {
    let reader = Reader { disk, geometry, fs };
    let mut damage = Damage::default();
    let Start { head, turn, is_damaged } = reader.start(&mut damage)?;
    let mut replay = Replay {
        reader,
        images: HashMap::new(),
        damage,
        tx: head.tail_tx.get(),
        at: head.tail.get(),
        used: 0,
        records: 0,
        free: (head.free_blocks.get(), head.free_inodes.get()),
    };
    replay.follow()?;
    let is_clean = head.clean.get() == 1 && replay.records == 0 && !is_damaged;
    let mut next_tx = replay.tx;
    if !is_clean {
        // The rest of the ring tells a torn tail from damage: see `salvage`.
        let rest = replay.reader.ring_blocks().saturating_sub(replay.used);
        let survey = Survey::of(&replay.reader, replay.at, rest, replay.tx, &mut replay.damage)?;
        while replay.skip(&survey)? {}
        // What is left of a torn record must never count.
        next_tx = replay.tx.max(survey.last().unwrap_or(0)) + geometry.journal_blocks;
    }
    Ok(Replayed {
        images: replay.images.into_iter().collect(),
        next_tx,
        head: replay.at,
        used: replay.used.min(replay.reader.ring_blocks()),
        free: replay.free,
        turn,
        records: replay.records,
        is_clean,
        damage: replay.damage,
    })
}
