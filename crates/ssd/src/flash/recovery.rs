//! The way back from the media.
//!
//! What is known for certain is the latest checkpoint, as of program C. Beyond that:
//!
//! 1. **Records** with a sequence above C say what was programmed since. Those up to the watermark W survived
//!    a sync, and are taken as they are: if their data does not fit them, that is damage, and reading says
//!    so. Beyond W nobody was told that anything would stay. There, a record whose data does not fit it was
//!    torn, or half of it was lost: it is as if it had never been programmed, and what was there before
//!    counts.
//! 2. Of several records of a logical page the highest sequence counts. A unit that was freed keeps its old
//!    records until it is written over; they are superseded, durably, and never win.
//! 3. **The journal** says what was deallocated, each entry as of a program.
//!
//! A record in which a bit or two have flipped is corrected, and so is an entry of the journal. A record that
//! cannot be is ignored, and told if it was on the media for certain. A page that the checkpoint has in a
//! place where another one's record is now is lost: reading it is an error.

use std::collections::{BTreeSet, HashMap};

use unvme_bus::Region;
use unvme_flash::PAGE_BYTES;
use unvme_flash::ftl::{Ftl, FtlConfig, Image, StreamStats, UnitImage, UnitState};

use super::chip::{Block, Books};
use super::layout::Layout;
use super::record::{self, FLAG_ELSEWHERE, FLAG_MOVED, RECORD_BYTES, Record};
use super::room::Room;
use super::superblock::{self, Superblock};
use super::{FlashConfig, FlashDamage, checkpoint, journal};
use crate::SsdError;
use crate::store::{Backing, CHUNK_BYTES, Store};

/// A layer and its books, as they are at opening.
pub(super) struct Opened {
    pub(super) ftl: Ftl,
    pub(super) books: Books,
    pub(super) lost: BTreeSet<u32>,
    pub(super) noticed: Vec<FlashDamage>,
}

/// The store could not be written to.
pub(super) fn unwritable(store: &dyn Store) -> SsdError {
    damaged(store, "the flash could not be written to; the log says why")
}

fn damaged(store: &dyn Store, reason: impl Into<String>) -> SsdError {
    SsdError::State { path: store.media_path(), reason: reason.into() }
}

impl Opened {
    /// A layer without data, whose units have been erased so often.
    pub(super) fn empty(superblock: Superblock, config: FtlConfig, erased: &[u32]) -> Result<Self, SsdError> {
        let books = Books::new(superblock, &config, erased);
        let mut ftl = Ftl::new(config)?;
        if erased.iter().any(|&count| count > 0) {
            let mut image = ftl.image();
            for (unit, &count) in image.units.iter_mut().zip(erased) {
                unit.erased = count;
            }
            ftl = Ftl::restore(ftl.config().clone(), &image, [])?;
        }
        Ok(Self { ftl, books, lost: BTreeSet::new(), noticed: Vec::new() })
    }
}

/// Opens what is on the store, or makes it new when there is nothing.
pub(super) fn open(
    config: &FlashConfig,
    capacity: u64,
    layout: &Layout,
    memory: &Region,
    backing: &Backing,
) -> Result<Opened, SsdError> {
    let mut noticed = Vec::new();
    let Some(superblock) = find_superblock(layout, memory, backing, &mut noticed)? else {
        let superblock = Superblock::new(config.geometry.clone());
        superblock.write(memory, layout, backing)?;
        return Opened::empty(superblock, FlashConfig::pooled(config.ftl(capacity)?), &[]);
    };
    let ftl = FlashConfig::pooled(config.ftl_with(capacity, &superblock.geometry)?);
    let mut scan = Scan::begin(layout, memory, backing, &superblock, ftl, noticed);
    scan.read_records();
    scan.read_journal();
    scan.finish(superblock)
}

/// The superblock that counts; `None` on a store that was never written.
fn find_superblock(
    layout: &Layout,
    memory: &Region,
    backing: &Backing,
    noticed: &mut Vec<FlashDamage>,
) -> Result<Option<Superblock>, SsdError> {
    let mut found: Option<Superblock> = None;
    let mut reasons = Vec::new();
    let is_there = backing.is_reserved(layout.superblocks[0] / CHUNK_BYTES);
    for at in layout.superblocks.into_iter().filter(|_| is_there) {
        match superblock::read(memory, at) {
            superblock::Found::Superblock(image, superblock) => {
                let (pages, physical) = (image.logical_pages, image.physical_pages);
                if (pages, physical) != (layout.logical_pages, layout.physical_pages) {
                    return Err(damaged(
                        backing.store(),
                        format!(
                            "the flash has {pages} logical and {physical} physical pages, the device {} and {}",
                            layout.logical_pages, layout.physical_pages
                        ),
                    ));
                }
                if found.as_ref().is_none_or(|other| other.epoch < superblock.epoch) {
                    found = Some(superblock);
                }
            }
            superblock::Found::Format(found) if found > superblock::VERSION => {
                let (path, known) = (backing.store().media_path(), superblock::VERSION);
                return Err(SsdError::Newer { path, what: "its flash", found, known });
            }
            superblock::Found::Format(found) => reasons.push((at, superblock::other_format(found))),
            superblock::Found::Nothing => reasons.push((at, "a superblock is missing".to_owned())),
            superblock::Found::Damaged(reason) => reasons.push((at, reason)),
        }
    }
    if found.is_none() && !is_blank(layout, memory, backing, &reasons) {
        let reason = reasons.pop().map_or("the superblocks are missing".into(), |(_, reason)| reason);
        return Err(damaged(backing.store(), reason));
    }
    if let Some(superblock) = &found {
        for (at, reason) in reasons {
            tracing::warn!(at, reason, "the other superblock is used");
            noticed.push(FlashDamage::new(
                at,
                None,
                format!("{reason}; the other one was used, and this one repaired"),
            ));
            superblock.write(memory, layout, backing)?;
        }
    }
    Ok(found)
}

/// True when nothing was ever written: neither superblocks nor records.
fn is_blank(layout: &Layout, memory: &Region, backing: &Backing, reasons: &[(u64, String)]) -> bool {
    let mut zeroes = (0..layout.physical_pages * RECORD_BYTES).step_by(CHUNK_BYTES as usize);
    reasons.iter().all(|(_, reason)| reason == "a superblock is missing")
        && zeroes.all(|start| {
            let at = layout.records + start;
            let end = (at + CHUNK_BYTES).min(layout.superblocks[0]);
            !backing.is_reserved(at / CHUNK_BYTES)
                || (at..end)
                    .step_by(RECORD_BYTES as usize)
                    .all(|at| memory.read_words::<4>(at as usize) == [0; 4])
        })
}

/// Most damaged records and entries that are looked at for flipped bits, each of which takes a fraction of a
/// millisecond: more than that are no flipped bits.
const CORRECTIONS_MAX: u32 = 1000;

/// What is known of a logical page.
#[derive(Clone, Copy, Default)]
struct Newest {
    /// Sequence of its record plus one; that of the checkpoint where that has it; 0 for nothing.
    sequence: u64,
    ppn: Option<u32>,
}

/// What records say of a unit beyond the checkpoint.
#[derive(Clone, Copy, Default)]
struct UnitScan {
    erased: u32,
    written: u32,
    stream: u16,
    sequence: u64,
    since: u64,
    /// Place in the unit of the last page that a sync has covered for certain.
    durable: Option<u32>,
}

struct Scan<'a> {
    layout: &'a Layout,
    memory: &'a Region,
    backing: &'a Backing,
    config: FtlConfig,
    secret: u64,
    /// The checkpoint, without its map.
    checkpoint: u64,
    base: Image,
    /// Program of the checkpoint, and the last one that survives a power cut.
    since: u64,
    watermark: u64,
    newest: Vec<Newest>,
    lost: BTreeSet<u32>,
    units: Vec<Option<UnitScan>>,
    /// Of the newest record.
    sequence: u64,
    host_pages: u64,
    /// Pages found by stream that programmed them: hosts', moved ones.
    found: Vec<(u64, u64)>,
    elsewhere: BTreeSet<u32>,
    journal: u64,
    noticed: Vec<FlashDamage>,
    corrections_left: u32,
    /// Physical pages whose record cannot be read.
    unreadable: Vec<u32>,
}

impl<'a> Scan<'a> {
    fn begin(
        layout: &'a Layout,
        memory: &'a Region,
        backing: &'a Backing,
        superblock: &Superblock,
        config: FtlConfig,
        mut noticed: Vec<FlashDamage>,
    ) -> Self {
        let secret = superblock.secret;
        let mut latest: Option<checkpoint::Checkpoint> = None;
        for slot in 0..layout.checkpoints.len() {
            match checkpoint::read(memory, layout, secret, slot, backing) {
                checkpoint::Found::Checkpoint(found)
                    if found.image.units.len() == config.units as usize
                        && latest.as_ref().is_none_or(|other| other.number < found.number) =>
                {
                    latest = Some(*found);
                }
                checkpoint::Found::Damaged(reason) => {
                    noticed.push(FlashDamage::new(layout.checkpoints[slot], None, reason));
                }
                _ => {}
            }
        }
        let mut newest = vec![Newest::default(); layout.logical_pages as usize];
        let mut scan_base = (0, 0, Image::default(), BTreeSet::new());
        if let Some(found) = latest {
            for (entry, ppn) in newest.iter_mut().zip(&found.map) {
                let ppn = ppn.filter(|ppn| u64::from(*ppn) < layout.physical_pages);
                *entry = Newest { sequence: if ppn.is_some() { found.sequence + 1 } else { 0 }, ppn };
            }
            scan_base = (found.number, found.sequence, found.image, found.lost.into_iter().collect());
        }
        let (checkpoint, since, base, lost) = scan_base;
        Self {
            checkpoint,
            since,
            watermark: superblock::read_watermark(memory, layout, secret).max(since),
            newest,
            lost,
            units: vec![None; config.units as usize],
            sequence: since,
            host_pages: base.stats.host_pages,
            found: Vec::new(),
            elsewhere: BTreeSet::new(),
            journal: journal::first(layout, checkpoint),
            noticed,
            corrections_left: CORRECTIONS_MAX,
            unreadable: Vec::new(),
            layout,
            memory,
            backing,
            config,
            secret,
            base,
        }
    }

    /// The record of a physical page. One with a flipped bit or two is repaired.
    fn record(&mut self, ppn: u32) -> Option<Record> {
        let at = self.layout.record(ppn);
        if let Some(record) = Record::read(self.memory, at, self.secret, ppn) {
            return Some(record);
        }
        let words: [u64; 4] = self.memory.read_words(at as usize);
        if words == [0; 4] {
            return None;
        }
        if !self.may_correct() {
            return None;
        }
        let is_possible = |record: &Record| {
            record.lpn < self.layout.logical_pages
                && (record.flags & FLAG_ELSEWHERE != 0 || self.fits(ppn, record))
        };
        let corrected = Record::corrected(words, self.secret, ppn, is_possible);
        if let Some(record) = corrected {
            self.memory.write_words(at as usize, record.seal(self.secret, ppn));
            let what = "a flipped bit in a record was corrected";
            self.noticed.push(FlashDamage::new(at, Some(record.lpn), what));
        }
        corrected
    }

    fn may_correct(&mut self) -> bool {
        let left = self.corrections_left;
        self.corrections_left = left.saturating_sub(1);
        left > 0
    }

    /// A record that cannot be read is told when one that was programmed after it in the same unit was
    /// synced: it was on the media whole. What it was of may be back as it was before. Any other may be half
    /// of one that was being written.
    fn tell_unreadable(&mut self) {
        for ppn in std::mem::take(&mut self.unreadable) {
            let (number, within) = (ppn / self.config.unit_pages, ppn % self.config.unit_pages);
            let unit = &self.units[number as usize];
            if unit.and_then(|unit| unit.durable).is_some_and(|durable| within < durable) {
                let what = "a record is damaged: the page that it was of is lost, or as it was before";
                self.noticed.push(FlashDamage::new(self.layout.record(ppn), None, what));
            }
        }
    }

    fn has_records(&self, ppn: u32) -> bool {
        self.backing.is_reserved(self.layout.record(ppn) / CHUNK_BYTES)
    }

    fn read_records(&mut self) {
        let pages = self.config.units * self.config.unit_pages;
        for ppn in 0..pages {
            if !self.has_records(ppn) {
                continue;
            }
            let Some(record) = self.record(ppn) else {
                if self.memory.read_words::<4>(self.layout.record(ppn) as usize) != [0; 4] {
                    self.unreadable.push(ppn);
                }
                continue;
            };
            if record.lpn >= self.layout.logical_pages {
                let what = format!("the record is of logical page {}, which there is not", record.lpn);
                self.noticed.push(FlashDamage::new(self.layout.record(ppn), None, what));
                continue;
            }
            if record.flags & FLAG_ELSEWHERE != 0 {
                self.elsewhere.insert(ppn);
            }
            if record.sequence > self.since {
                self.take(ppn, &record);
            }
        }
        self.tell_unreadable();
        // Numbers that a sync has covered are not given again, whatever has become of their records.
        self.sequence = self.sequence.max(self.watermark);
    }

    /// A record of what was programmed since the checkpoint.
    fn take(&mut self, ppn: u32, record: &Record) {
        self.note_unit(ppn, record);
        if record.sequence > self.sequence {
            self.sequence = record.sequence;
            // The difference is less than 2^32: a checkpoint does not stay that long.
            let written = record.host_pages.wrapping_sub(self.base.stats.host_pages as u32);
            self.host_pages = self.base.stats.host_pages + u64::from(written);
        }
        if record.sequence > self.watermark && record.flags & FLAG_ELSEWHERE == 0 && !self.fits(ppn, record) {
            // As if it had never been programmed, now and the next time.
            self.memory.write_words(self.layout.record(ppn) as usize, [0; 4]);
            return;
        }
        self.count(record);
        let newest = &mut self.newest[record.lpn as usize];
        if newest.sequence < record.sequence + 1 {
            *newest = Newest { sequence: record.sequence + 1, ppn: Some(ppn) };
            self.lost.remove(&record.lpn);
        }
    }

    fn fits(&self, ppn: u32, record: &Record) -> bool {
        let at = self.layout.page(ppn);
        let mut block: Block = [0; PAGE_BYTES as usize];
        if self.backing.is_reserved(at / CHUNK_BYTES) {
            self.memory.read(at as usize, &mut block);
        }
        record.data_crc == record::crc(&block)
    }

    fn note_unit(&mut self, ppn: u32, record: &Record) {
        let number = (ppn / self.config.unit_pages) as usize;
        let written = ppn % self.config.unit_pages + 1;
        let before = self.base.units.get(number).copied().unwrap_or_default();
        let unit = self.units[number].get_or_insert(UnitScan {
            erased: before.erased,
            written: before.written,
            ..UnitScan::default()
        });
        if record.erased > unit.erased || record.erased == unit.erased && unit.sequence == 0 {
            let is_new = record.erased > unit.erased;
            unit.erased = record.erased;
            unit.written = if is_new { 0 } else { unit.written };
            unit.durable = if is_new { None } else { unit.durable };
        }
        if record.erased == unit.erased {
            if record.sequence <= self.watermark {
                unit.durable = Some(ppn % self.config.unit_pages);
            }
            unit.written = unit.written.max(written);
            if record.sequence > unit.sequence {
                unit.sequence = record.sequence;
                unit.stream = record.stream;
                let host_pages = record.host_pages.wrapping_sub(self.base.stats.host_pages as u32);
                unit.since = self.base.stats.host_pages + u64::from(host_pages);
            }
        }
    }

    fn count(&mut self, record: &Record) {
        let stream = usize::from(record.stream);
        if self.found.len() <= stream {
            self.found.resize(stream + 1, (0, 0));
        }
        match record.flags & FLAG_MOVED {
            0 => self.found[stream].0 += 1,
            _ => self.found[stream].1 += 1,
        }
    }

    fn read_journal(&mut self) {
        let half = self.journal..self.journal + journal::capacity(self.layout) / 2;
        for number in 0..journal::capacity(self.layout) {
            let mut found = journal::read(self.memory, self.layout, self.secret, number);
            if let journal::Found::Damaged = found
                && self.may_correct()
            {
                found = journal::repair(self.memory, self.layout, self.secret, number);
            }
            if let journal::Found::Corrected(entry) = found {
                let what = format!("a flipped bit in journal entry {number} was corrected");
                self.noticed.push(FlashDamage::new(self.layout.journal, None, what));
                found = journal::Found::Entry(entry);
            }
            match found {
                journal::Found::Entry(entry) if entry.sequence >= self.since => {
                    if half.contains(&number) {
                        self.journal = number + 1;
                    }
                    // Programs up to this one have happened, whether or not anything is left of them: what is
                    // programmed from now on is not what the entry speaks of.
                    self.sequence = self.sequence.max(entry.sequence);
                    let end = entry.first.saturating_add(entry.pages).min(self.layout.logical_pages);
                    for lpn in entry.first..end {
                        let newest = &mut self.newest[lpn as usize];
                        // Up to the program that the entry follows; that of the checkpoint is older than any
                        // entry.
                        if newest.sequence <= entry.sequence + 1 {
                            newest.ppn = None;
                            self.lost.remove(&lpn);
                        }
                    }
                }
                journal::Found::Damaged => {
                    let what = format!("journal entry {number} is damaged: what was deallocated may be back");
                    self.noticed.push(FlashDamage::new(self.layout.journal, None, what));
                    if half.contains(&number) {
                        self.journal = number + 1;
                    }
                }
                _ => {}
            }
        }
    }

    /// A page that the checkpoint has, and nothing since: it is still in its place, or lost.
    fn check_place(&mut self, lpn: u32) {
        let newest = self.newest[lpn as usize];
        let Some(ppn) = newest.ppn.filter(|_| newest.sequence == self.since + 1) else { return };
        if !self.has_records(ppn) {
            return;
        }
        match self.record(ppn) {
            Some(record) if record.lpn == lpn && record.sequence <= self.since => {}
            // Damaged, or cut: reading compares it with the data and says so.
            None if self.is_untouched(ppn) => {}
            _ => {
                self.newest[lpn as usize].ppn = None;
                self.lost.insert(lpn);
                let what = "the newest record of the page is damaged: its data is lost";
                self.noticed.push(FlashDamage::new(self.layout.record(ppn), Some(lpn), what));
            }
        }
    }

    /// Nothing says that the unit was erased since the checkpoint.
    fn is_untouched(&self, ppn: u32) -> bool {
        let number = (ppn / self.config.unit_pages) as usize;
        let erased = self.base.units.get(number).map_or(0, |unit| unit.erased);
        self.units[number].is_none_or(|unit| unit.erased == erased)
    }

    fn finish(mut self, superblock: Superblock) -> Result<Opened, SsdError> {
        for lpn in 0..self.layout.logical_pages {
            self.check_place(lpn);
        }
        let mut image = self.image()?;
        let mut mapping: Vec<(u32, u32)> =
            (0u32..).zip(&self.newest).filter_map(|(lpn, newest)| Some((lpn, newest.ppn?))).collect();
        for &(_, ppn) in &mapping {
            let (number, within) = (ppn / self.config.unit_pages, ppn % self.config.unit_pages);
            if let Some(unit) = image.units.get_mut(number as usize).filter(|unit| unit.written <= within) {
                // Whatever else is known of the unit: there is data in it.
                unit.written = within + 1;
                unit.state = UnitState::Closed;
            }
        }
        self.reserve_open(&mut image.units);
        // Everything from here on relies on what was found being there.
        self.backing.sync().map_err(|_| unwritable(self.backing.store()))?;
        let (erased_before, sequence) = (sum_of_erased(&image), self.sequence);
        let mut room = Room {
            layout: self.layout,
            memory: self.memory,
            backing: self.backing,
            config: &self.config,
            secret: self.secret,
            host_pages: self.host_pages,
            units: &mut image.units,
            mapping: &mut mapping,
            sequence: self.sequence,
        };
        room.make()?;
        self.sequence = room.sequence;
        let (erased, moved) = (sum_of_erased(&image) - erased_before, self.sequence - sequence);
        add(&mut image, &self.config, 0, moved, erased);
        let restored = Ftl::restore(self.config.clone(), &image, mapping.iter().copied());
        let ftl = restored.map_err(|error| damaged(self.backing.store(), error.to_string()))?;
        let erased_of_units: Vec<u32> = image.units.iter().map(|unit| unit.erased).collect();
        let mut books = Books::new(superblock, &self.config, &erased_of_units);
        for (book, unit) in books.units.iter_mut().zip(&image.units) {
            book.stream = unit.stream;
        }
        for (lpn, ppn) in mapping {
            if self.elsewhere.contains(&ppn) {
                books.set_elsewhere(lpn, true);
            } else {
                ftl.map().mark(lpn);
            }
        }
        books.sequence = self.sequence;
        books.host_pages = self.host_pages;
        books.checkpoint = self.checkpoint;
        books.journal.next = self.journal;
        books.journal.durable = self.journal;
        // From here on everything that was found is durable, and so is what was taken out.
        self.backing.sync().map_err(|_| unwritable(self.backing.store()))?;
        books.durable = self.sequence;
        for turn in 0..2 {
            superblock::write_watermark(self.memory, self.layout, self.secret, self.sequence, turn);
        }
        Ok(Opened { ftl, books, lost: self.lost, noticed: self.noticed })
    }

    /// Makes sure of the space of units that are written further: the store has space where there is data.
    /// Without it they are not written further.
    fn reserve_open(&self, units: &mut [UnitImage]) {
        let pages = u64::from(self.config.unit_pages);
        for (number, unit) in (0u32..).zip(units).filter(|(_, unit)| unit.state == UnitState::Open) {
            let first = number * self.config.unit_pages;
            let space = self.backing.reserve_range(self.layout.page(first), pages * PAGE_BYTES);
            if space.and(self.backing.reserve_range(self.layout.record(first), pages * RECORD_BYTES)).is_err()
            {
                unit.state = UnitState::Closed;
            }
        }
    }

    /// The units and counters as of now.
    fn image(&mut self) -> Result<Image, SsdError> {
        let mut image = match self.base.units.is_empty() {
            true => Ftl::new(self.config.clone())?.image(),
            false => std::mem::take(&mut self.base),
        };
        let erased_before = sum_of_erased(&image);
        let open = self.open_units(&image);
        for ((number, unit), scan) in (0u32..).zip(&mut image.units).zip(&self.units) {
            let Some(scan) = scan else {
                if unit.state == UnitState::Open && open.get(&unit.stream) != Some(&number) {
                    unit.state = UnitState::Closed;
                }
                continue;
            };
            let is_open = open.get(&scan.stream) == Some(&number) && scan.written < self.config.unit_pages;
            *unit = UnitImage {
                erased: scan.erased,
                state: if is_open { UnitState::Open } else { UnitState::Closed },
                written: scan.written,
                stream: scan.stream,
                since: scan.since,
            };
        }
        let erased = sum_of_erased(&image).saturating_sub(erased_before);
        self.restore_counters(&mut image, erased);
        Ok(image)
    }

    /// The unit that each stream wrote to last.
    fn open_units(&self, base: &Image) -> HashMap<u16, u32> {
        let mut latest: HashMap<u16, (u64, u32)> = HashMap::new();
        for ((number, unit), scan) in (0u32..).zip(&base.units).zip(&self.units) {
            let (stream, sequence) = match scan {
                Some(scan) => (scan.stream, scan.sequence),
                None if unit.state == UnitState::Open => (unit.stream, 0),
                None => continue,
            };
            let entry = latest.entry(stream).or_insert((sequence, number));
            if entry.0 < sequence {
                *entry = (sequence, number);
            }
        }
        latest.into_iter().map(|(stream, (_, number))| (stream, number)).collect()
    }

    /// Totals are exact: the newest record says them. Of pages programmed since the checkpoint whose unit was
    /// erased again, or whose record a power cut has taken, nobody knows which stream they went through: they
    /// are the first one's.
    fn restore_counters(&self, image: &mut Image, erased: u64) {
        let programmed = self.sequence - image.stats.media_pages().min(self.sequence);
        let host = (self.host_pages - image.stats.host_pages).min(programmed);
        let moved = programmed - host;
        let (mut host_left, mut moved_left) = (host, moved);
        for (stream, &(host, moved)) in image.streams.iter_mut().zip(&self.found) {
            let (host, moved) = (host.min(host_left), moved.min(moved_left));
            *stream =
                *stream + StreamStats { host_pages: host, received_pages: moved, ..StreamStats::default() };
            host_left -= host;
            moved_left -= moved;
        }
        image.stats.host_pages += host - host_left;
        image.stats.reclaim_pages += moved - moved_left;
        // What the others have received was moved from somewhere.
        if let Some(first) = image.streams.first_mut() {
            first.moved_pages += moved - moved_left;
        }
        add(image, &self.config, host_left, moved_left, erased);
    }
}

/// Counts pages and erased units that no stream can be named for.
fn add(image: &mut Image, config: &FtlConfig, host: u64, moved: u64, erased: u64) {
    let Image { stats, streams, .. } = image;
    if let Some(first) = streams.first_mut() {
        let rest =
            StreamStats { host_pages: host, moved_pages: moved, received_pages: moved, erased_units: erased };
        *first = *first + rest;
    }
    stats.host_pages += host;
    stats.reclaim_pages += moved;
    stats.erased_units += erased;
    stats.erased_pages += erased * u64::from(config.unit_pages);
}

fn sum_of_erased(image: &Image) -> u64 {
    image.units.iter().map(|unit| u64::from(unit.erased)).sum()
}
