//! Logical blocks that are old or new after the process was killed, on media without a translation layer.
//!
//! **A redo log** (write-ahead log with one record for each writer at work): the new bytes of a unit are
//! copied to a record of the log, the record's word then names where they go, they are copied to the media,
//! and the word is cleared. The log is memory of a file, as the media is. A kill leaves the word clear, and
//! the unit is as it was or has been written whole; or it leaves the word set, and the next process that
//! opens the device copies the record's bytes again ([`Redo::pending`]).
//!
//! **Order.** A thread that is killed has executed its instructions up to one of them, and all of its stores
//! up to that one reach memory, streaming stores as well. So nothing but the compiler has to be kept from
//! reordering the stores. A power cut is another matter: pages of both files are written back in any order,
//! and the log does not count after it.
//!
//! **Where there is no space for the log**, each unit is written by a system call
//! ([`Store::write_page`](crate::Store::write_page)): the system copies within a page without being
//! interrupted.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

use unvme_bus::Region;

use crate::SsdError;
use crate::store::Backing;
use crate::store::redo::{RECORD_BYTES, RECORDS, data_at, word_at};

/// What a word counts in.
const SECTOR_BYTES: u64 = 512;
/// Bits of a word: the number of the first sector, the number of sectors, and whether they are zeroes, of
/// which the record has no data.
const SECTORS_SHIFT: u32 = 48;
const ZEROES: u64 = 1 << 63;
const SECTORS_MAX: u64 = RECORD_BYTES as u64 / SECTOR_BYTES;
/// Attempts to find a free record before the processor is left to others.
const SPINS: usize = 1000;

/// How logical blocks are kept whole.
pub(super) enum Atomicity {
    /// Nothing outlives the process.
    NotNeeded,
    Redo(Box<Redo>),
    /// There is no space for the log.
    Calls,
}

impl Atomicity {
    /// Errors: [`SsdError::Newer`], [`SsdError::State`] when the log is damaged, [`SsdError::File`] when it
    /// cannot be used for another reason than that there is no space for it.
    pub(super) fn open(backing: &Backing) -> Result<Self, SsdError> {
        match backing.redo() {
            Ok(Some(region)) => Ok(Self::Redo(Box::new(Redo::new(region.clone())))),
            Ok(None) => Ok(Self::NotNeeded),
            Err(error) if error.is_full() => {
                let media = backing.store().media_path();
                tracing::warn!(
                    media = %media.display(), %error,
                    "no space for the redo log: blocks are written by system calls, which is slower"
                );
                Ok(Self::Calls)
            }
            Err(error) => Err(error),
        }
    }
}

/// The new content of a part of one unit.
#[derive(Clone, Copy)]
pub(super) enum Content<'a> {
    /// Bytes of host memory, which may change at any time.
    Host {
        region: &'a Region,
        offset: usize,
        bytes: usize,
    },
    Bytes(&'a [u8]),
    Zeroes(usize),
}

impl Content<'_> {
    #[inline]
    pub(super) const fn len(&self) -> usize {
        match *self {
            Self::Host { bytes, .. } | Self::Zeroes(bytes) => bytes,
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

/// A write that a killed process had not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) offset: u64,
    /// What the media is to hold there.
    pub(super) data: Vec<u8>,
}

/// See the module.
pub(super) struct Redo {
    log: Region,
    /// Whether a thread uses the record.
    claimed: [Claimed; RECORDS],
}

/// A line of its own: other threads write its neighbors.
#[derive(Default)]
#[repr(align(64))]
struct Claimed(AtomicBool);

/// A claimed record.
#[derive(Clone, Copy)]
pub(super) struct Record(usize);

thread_local! {
    /// The record that this thread used last, which is in its processor's cache.
    static LAST: Cell<usize> = Cell::new(next_thread() % RECORDS);
}

fn next_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    THREADS.fetch_add(1, Ordering::Relaxed)
}

/// Word of a record, for bytes in whole sectors.
#[inline]
const fn word(offset: u64, bytes: usize) -> u64 {
    (offset / SECTOR_BYTES) | ((bytes as u64 / SECTOR_BYTES) << SECTORS_SHIFT)
}

impl Redo {
    fn new(log: Region) -> Self {
        Self { log, claimed: std::array::from_fn(|_| Claimed::default()) }
    }

    /// Writes to media of `capacity` bytes that a killed process has not finished. Errors:
    /// [`SsdError::State`] when a record is damaged.
    pub(super) fn pending(&self, capacity: u64, backing: &Backing) -> Result<Vec<Pending>, SsdError> {
        let mut pending = Vec::new();
        for record in 0..RECORDS {
            let word = self.log.load_u64(word_at(record), Ordering::Acquire);
            if word == 0 {
                continue;
            }
            let (is_zeroes, sectors) = (word & ZEROES != 0, (word & !ZEROES) >> SECTORS_SHIFT);
            let offset = (word & ((1 << SECTORS_SHIFT) - 1)) * SECTOR_BYTES;
            let bytes = sectors * SECTOR_BYTES;
            let fits = (1..=SECTORS_MAX).contains(&sectors)
                && offset / RECORD_BYTES as u64 == (offset + bytes - 1) / RECORD_BYTES as u64
                && offset + bytes <= capacity;
            if !fits {
                let reason = format!(
                    "record {record} of its redo log, media.redo, is of {sectors} sectors at byte {offset}; \
                     expected at most {SECTORS_MAX} within one page of {capacity} bytes of data: the log is \
                     damaged. Without that file the device can be opened; a block that was being written when \
                     its process was killed may then be half old and half new"
                );
                return Err(SsdError::State { path: backing.store().media_path(), reason });
            }
            let mut data = vec![0; bytes as usize];
            if !is_zeroes {
                self.log.read(data_at(record), &mut data);
            }
            pending.push(Pending { offset, data });
        }
        Ok(pending)
    }

    /// No record is in use: what they held is on the media.
    pub(super) fn clear(&self) {
        compiler_fence(Ordering::SeqCst);
        (0..RECORDS).for_each(|record| self.log.store_u64(word_at(record), 0, Ordering::Release));
        compiler_fence(Ordering::SeqCst);
    }

    /// Writes a part of a unit, which the caller holds. `write` copies the record's bytes, or zeroes, to the
    /// media; it gets the log and the offset in it.
    #[inline]
    pub(super) fn write(&self, offset: u64, content: Content<'_>, write: impl FnOnce(&Region, usize)) {
        let record = self.claim();
        let data = data_at(record.0);
        let zeroes = match content {
            Content::Host { region, offset, bytes } => {
                region.copy_to(offset, &self.log, data, bytes);
                0
            }
            Content::Bytes(bytes) => {
                self.log.write(data, bytes);
                0
            }
            Content::Zeroes(_) => ZEROES,
        };
        self.begin(record, word(offset, content.len()) | zeroes);
        write(&self.log, data);
        self.end(record);
    }

    /// The record's bytes are complete: from here on the write counts as done.
    #[inline]
    fn begin(&self, record: Record, word: u64) {
        compiler_fence(Ordering::SeqCst);
        self.log.store_u64(word_at(record.0), word, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    /// The media has all of it.
    #[inline]
    fn end(&self, record: Record) {
        compiler_fence(Ordering::SeqCst);
        self.log.store_u64(word_at(record.0), 0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if let Some(Claimed(claimed)) = self.claimed.get(record.0) {
            claimed.store(false, Ordering::Release);
        }
    }

    /// A record that no other thread uses. A thread that has one waits for nothing but memory.
    #[inline]
    fn claim(&self) -> Record {
        let last = LAST.get();
        match self.claimed.get(last) {
            Some(Claimed(claimed)) if !claimed.swap(true, Ordering::Acquire) => Record(last),
            _ => self.claim_other(last),
        }
    }

    #[cold]
    fn claim_other(&self, last: usize) -> Record {
        let mut attempt = 1;
        loop {
            let record = (last + attempt) % RECORDS;
            if !self.claimed[record].0.swap(true, Ordering::Acquire) {
                LAST.set(record);
                return Record(record);
            }
            if attempt > SPINS {
                std::thread::yield_now();
            }
            attempt += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use unvme_flash::ftl::Placement;
    use unvme_flash::timing::OpList;

    use super::super::{Media, UNIT_BYTES};
    use super::*;
    use crate::store::{CHUNK_BYTES, Extent, Store};

    /// Media and log that outlive a device.
    #[derive(Clone)]
    struct Lasting {
        memory: Region,
        /// `None` where there is no space for it.
        log: Option<Region>,
    }

    impl Lasting {
        fn new() -> Self {
            let log = Region::anonymous(RECORD_BYTES * (RECORDS + 1)).unwrap();
            Self { memory: Region::anonymous(CHUNK_BYTES as usize).unwrap(), log: Some(log) }
        }

        fn media(&self) -> Media {
            Media::new(Box::new(self.clone())).unwrap()
        }

        fn holds(&self, offset: usize) -> Vec<u8> {
            let mut data = vec![0; UNIT_BYTES];
            self.memory.read(offset, &mut data);
            data
        }
    }

    impl Store for Lasting {
        fn bytes(&self) -> u64 {
            self.memory.len() as u64
        }
        fn memory(&self) -> Option<&Region> {
            Some(&self.memory)
        }
        fn redo(&self) -> Result<Option<Region>, SsdError> {
            let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
            let no_space = SsdError::File { path: "log".into(), what: "write", source: full };
            self.log.clone().map(Some).ok_or(no_space)
        }
        fn holds_data(&self, _chunk: u64) -> bool {
            true
        }
        fn reserve(&self, _chunk: u64) -> Result<(), SsdError> {
            Ok(())
        }
        fn release(&self, _chunk: u64) -> Result<(), SsdError> {
            Ok(())
        }
        fn sync(&self) -> Result<(), SsdError> {
            Ok(())
        }
        fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError> {
            Ok(None)
        }
        fn save_state(&self, _state: &[u8]) -> Result<(), SsdError> {
            Ok(())
        }
    }

    /// Stops a write after `copied` bytes of `content` have arrived.
    fn stop_within(media: &Media, offset: u64, content: Content<'_>, copied: usize) {
        let Atomicity::Redo(redo) = &media.atomicity else { panic!("no redo log") };
        let memory = media.memory().unwrap();
        let stopped = catch_unwind(AssertUnwindSafe(|| {
            redo.write(offset, content, |log, data| {
                match content {
                    Content::Zeroes(_) => memory.fill(offset as usize, copied, 0),
                    _ => log.copy_to(data, memory, offset as usize, copied),
                }
                panic!("the process is killed here");
            });
        }));
        assert!(stopped.is_err());
    }

    #[test]
    fn a_write_that_stops_within_a_block_is_finished_by_the_next_device() {
        for copied in [0, 1, 511, 2048, 4095, 4096] {
            let store = Lasting::new();
            store.memory.fill(0, CHUNK_BYTES as usize, 0xaa);
            let media = store.media();
            stop_within(&media, 8192, Content::Bytes(&[0x55; UNIT_BYTES]), copied);
            stop_within(&media, 16_384 + 512, Content::Zeroes(1024), copied.min(1024));
            // Its records stay claimed: the writes of other threads have others.
            let host = Region::anonymous(UNIT_BYTES).unwrap();
            let extent = Extent { offset: 4096, bytes: UNIT_BYTES };
            media.write(extent, &host, 0, Placement::default(), &mut OpList::new(false)).unwrap();
            drop(media);
            let _next = store.media();
            assert_eq!(store.holds(4096), [0; UNIT_BYTES]);
            assert_eq!(store.holds(8192), [0x55; UNIT_BYTES], "{copied} bytes copied");
            let mut zeroed = vec![0xaa; UNIT_BYTES];
            zeroed[512..1536].fill(0);
            assert_eq!(store.holds(16_384), zeroed, "{copied} bytes zeroed");
            assert_eq!(store.holds(12_288), [0xaa; UNIT_BYTES], "what is next to it");
        }
    }

    #[test]
    fn without_space_for_a_log_blocks_are_written_by_calls() {
        let store = Lasting { log: None, ..Lasting::new() };
        let media = store.media();
        assert!(matches!(media.atomicity, Atomicity::Calls));
        let host = Region::anonymous(UNIT_BYTES).unwrap();
        host.fill(0, UNIT_BYTES, 0x77);
        let extent = Extent { offset: 4096, bytes: UNIT_BYTES };
        media.write(extent, &host, 0, Placement::default(), &mut OpList::new(false)).unwrap();
        assert_eq!(store.holds(4096), [0x77; UNIT_BYTES]);
        media.zero(extent, Placement::default(), &mut OpList::new(false)).unwrap();
        assert_eq!(store.holds(4096), [0; UNIT_BYTES]);
    }

    #[test]
    fn more_writers_than_records_wait_for_one_another() {
        let store = Lasting::new();
        let media = store.media();
        std::thread::scope(|scope| {
            for thread in 0..RECORDS + 9 {
                let media = &media;
                scope.spawn(move || {
                    let host = Region::anonymous(UNIT_BYTES).unwrap();
                    host.fill(0, UNIT_BYTES, thread as u8 + 1);
                    let extent = Extent { offset: (thread * UNIT_BYTES) as u64, bytes: UNIT_BYTES };
                    for _ in 0..20 {
                        media.write(extent, &host, 0, Placement::default(), &mut OpList::new(false)).unwrap();
                    }
                });
            }
        });
        for thread in 0..RECORDS + 9 {
            assert_eq!(store.holds(thread * UNIT_BYTES), [thread as u8 + 1; UNIT_BYTES]);
        }
    }
}
