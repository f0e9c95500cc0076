//! The journal: what was deallocated since the last checkpoint. Records cannot say that.
//!
//! It has two halves, used in turn: what follows a checkpoint does not overwrite what follows the one before,
//! which counts if that checkpoint is damaged.

use twox_hash::XxHash3_64;
use unvme_bus::Region;
use unvme_spec::Status;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::chip::Books;
use super::layout::Layout;
use super::record::SEQUENCE_END;
use super::{Flash, Inner, flips};

const ENTRY_BYTES: u64 = 32;

/// An entry, as it is on the media; little-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Entry {
    /// Number of the last program before it: data programmed until then is gone.
    pub(super) sequence: u64,
    /// First logical page.
    pub(super) first: u32,
    /// Logical pages.
    pub(super) pages: u32,
    pub(super) reserved: u64,
    /// XXH3 of what is before; the seed is the store's secret plus the number of the entry.
    pub(super) check: u64,
}

const _: () = assert!(size_of::<Entry>() as u64 == ENTRY_BYTES);
const _: () = assert!(std::mem::offset_of!(Entry, check) == 24);

/// Where the next entry goes.
#[derive(Default)]
pub(super) struct Journal {
    pub(super) next: u64,
    /// Entries before this one survive a power cut.
    pub(super) durable: u64,
}

impl Entry {
    fn expected_check(&self, secret: u64, number: u64) -> u64 {
        let covered = &self.as_bytes()[..std::mem::offset_of!(Entry, check)];
        XxHash3_64::oneshot_with_seed(secret.wrapping_add(number), covered)
    }

    fn is_intact(&self, secret: u64, number: u64) -> bool {
        self.sequence < SEQUENCE_END && self.check == self.expected_check(secret, number)
    }
}

/// Where the half that follows a checkpoint begins.
pub(super) const fn first(layout: &Layout, checkpoint: u64) -> u64 {
    checkpoint % 2 * (capacity(layout) / 2)
}

/// Entries the journal has room for, in both halves.
pub(super) const fn capacity(layout: &Layout) -> u64 {
    layout.journal_bytes / ENTRY_BYTES
}

/// What is at the place of an entry.
pub(super) enum Found {
    Entry(Entry),
    /// An entry in which a bit or two had flipped.
    Corrected(Entry),
    Nothing,
    Damaged,
}

/// Reads an entry.
pub(super) fn read(memory: &Region, layout: &Layout, secret: u64, number: u64) -> Found {
    let words: [u64; 4] = memory.read_words((layout.journal + number * ENTRY_BYTES) as usize);
    let entry: Entry = zerocopy::transmute!(words);
    match words {
        [0, 0, 0, 0] => Found::Nothing,
        _ if entry.is_intact(secret, number) => Found::Entry(entry),
        _ => Found::Damaged,
    }
}

/// Reads an entry that is damaged, and repairs it if it can be.
#[cold]
pub(super) fn repair(memory: &Region, layout: &Layout, secret: u64, number: u64) -> Found {
    let place = (layout.journal + number * ENTRY_BYTES) as usize;
    let corrected = flips::undone(memory.read_words(place), |words| {
        let entry: Entry = zerocopy::transmute!(words);
        entry.is_intact(secret, number).then_some((entry, words))
    });
    match corrected {
        Some((entry, words)) => {
            memory.write_words(place, words);
            Found::Corrected(entry)
        }
        None => Found::Damaged,
    }
}

impl Journal {
    /// The journal behind a checkpoint.
    pub(super) const fn begun(layout: &Layout, checkpoint: u64) -> Self {
        let first = first(layout, checkpoint);
        Self { next: first, durable: first }
    }

    /// Loses any of the entries that no sync has covered: `keeps` says which stay.
    pub(super) fn forget_some(&self, memory: &Region, layout: &Layout, mut keeps: impl FnMut(u64) -> bool) {
        for number in self.durable..self.next {
            if !keeps(number) {
                memory.write_words((layout.journal + number * ENTRY_BYTES) as usize, [0; 4]);
            }
        }
    }
}

impl Books {
    /// Notes that pages are deallocated. There is room for it.
    pub(super) fn note_trim(&mut self, memory: Option<&Region>, layout: &Layout, first: u32, pages: u32) {
        let Some(memory) = memory else { return };
        let (number, secret) = (self.journal.next, self.superblock.secret);
        let mut entry = Entry { sequence: self.sequence, first, pages, ..Entry::default() };
        entry.check = entry.expected_check(secret, number);
        let words: [u64; 4] = zerocopy::transmute!(entry);
        memory.write_words((layout.journal + number * ENTRY_BYTES) as usize, words);
        self.journal.next += 1;
    }
}

impl Flash {
    /// Makes sure that another entry fits: a checkpoint empties the journal.
    pub(super) fn make_room_in_journal(&self, inner: &mut Inner) -> Result<(), Status> {
        // A file that was copied may have a hole here.
        self.backing.reserve_range(self.layout.journal, self.layout.journal_bytes)?;
        let end = first(&self.layout, inner.books.checkpoint) + capacity(&self.layout) / 2;
        if inner.books.journal.next < end { Ok(()) } else { self.write_checkpoint(inner) }
    }
}
