//! Space of the store that hosts have given up, on media without a translation layer.
//!
//! A chunk's space is given back when none of its units is in use: at once when all of it is deallocated, or
//! when the last of several commands has deallocated the rest. A unit that was deallocated holds zeroes until
//! it is written.
//!
//! **Who keeps out whom.** Which units of a chunk are unused changes with their versions held
//! ([`Units`](super::units::Units)), as their data does. A chunk is given back with the versions of all its
//! units held, so nobody writes to it meanwhile, and a writer that holds a unit looks whether its chunk still
//! has space. Versions are held before the lock of [`Backing`](crate::store::Backing), never the other way
//! round. A reader that was copying sees another version, and then a chunk without space.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use unvme_flash::ftl::Placement;
use unvme_flash::timing::OpList;
use unvme_spec::Status;

use super::atomic::Content;
use super::units::UNIT_BYTES;
use super::{Media, checksum};
use crate::SsdError;
use crate::store::{CHUNK_BYTES, Extent};

/// Units of a chunk.
const CHUNK_UNITS: u64 = CHUNK_BYTES / UNIT_BYTES as u64;
const WORDS: usize = (CHUNK_UNITS / 64) as usize;

/// Units of each chunk that were deallocated and not written since. Nothing is known of a chunk of which no
/// unit ever was: all of it is in use.
pub(super) struct Unused {
    chunks: Box<[OnceLock<Box<Bits>>]>,
}

/// A bit per unit of a chunk.
type Bits = [AtomicU64; WORDS];

fn place(offset: u64) -> (usize, u64) {
    let unit = offset % CHUNK_BYTES / UNIT_BYTES as u64;
    ((unit / 64) as usize, 1 << (unit % 64))
}

impl Unused {
    pub(super) fn new(chunks: u64) -> Self {
        Self { chunks: (0..chunks).map(|_| OnceLock::new()).collect() }
    }

    /// The unit at `offset`, whose version the caller holds, is written.
    #[inline]
    pub(super) fn clear(&self, offset: u64) {
        let Some(bits) = self.chunks.get((offset / CHUNK_BYTES) as usize).and_then(OnceLock::get) else {
            return;
        };
        let (word, bit) = place(offset);
        // Relaxed, here and below: the version that is held orders it.
        if bits[word].load(Ordering::Relaxed) & bit != 0 {
            bits[word].fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// The unit at `offset`, whose version the caller holds, is deallocated.
    fn set(&self, offset: u64) {
        if let Some(bits) = self.chunks.get((offset / CHUNK_BYTES) as usize) {
            let (word, bit) = place(offset);
            bits.get_or_init(Box::default)[word].fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// No unit of a chunk, all of whose versions the caller holds, is in use.
    fn set_all(&self, chunk: u64) {
        if let Some(bits) = self.chunks.get(chunk as usize) {
            bits.get_or_init(Box::default).iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        }
    }

    /// Units of the first `bytes` of a chunk that are unused.
    fn count(&self, chunk: u64, bytes: u64) -> u64 {
        let Some(bits) = self.chunks.get(chunk as usize).and_then(OnceLock::get) else { return 0 };
        let is_unused = |unit: &u64| {
            let (word, bit) = place(unit * UNIT_BYTES as u64);
            bits[word].load(Ordering::Relaxed) & bit != 0
        };
        (0..bytes / UNIT_BYTES as u64).filter(is_unused).count() as u64
    }
}

impl Media {
    /// Bytes that hosts have in use of the first `bytes` of a chunk: what was written and not deallocated
    /// since, as far as is known.
    pub(crate) fn bytes_used(&self, chunk: u64, bytes: u64) -> u64 {
        let unused = match self.is_reserved(chunk) {
            true => self.unused.count(chunk, bytes) * UNIT_BYTES as u64,
            false => bytes,
        };
        bytes.saturating_sub(unused)
    }

    /// Zeroes the media; a chunk without space is zeroes already. Errors: as [`Media::write`]: with a
    /// translation layer parts of pages are written.
    pub(crate) fn zero(&self, extent: Extent, at: Placement, ops: &mut OpList) -> Result<(), Status> {
        if let Some(flash) = &self.flash {
            return flash.zero(extent, at, ops);
        }
        self.begin_zeroes(extent.offset / CHUNK_BYTES)?;
        match self.backing.memory() {
            Some(_) => self.fill_zeroes(extent, |offset, _| self.unused.clear(offset)),
            None => {
                self.zero_tags(extent);
                Ok(())
            }
        }
    }

    /// Chunks that have space are about to be zeroed: their checksums are told. Errors: as
    /// [`Media::reserve_blocks`].
    fn begin_zeroes(&self, chunk: u64) -> Result<(), Status> {
        match &self.sums {
            Some(sums) if self.backing.is_reserved(chunk) => sums.begin(chunk, &self.backing),
            _ => Ok(()),
        }
    }

    /// Zeroes the media and gives back the space of chunks that nothing is left of. Errors: as
    /// [`Media::zero`].
    pub(crate) fn deallocate(&self, extent: Extent, at: Placement, ops: &mut OpList) -> Result<(), Status> {
        if self.flash.is_some() || self.backing.memory().is_none() {
            return self.zero(extent, at, ops);
        }
        let chunk = extent.offset / CHUNK_BYTES;
        if !self.backing.is_reserved(chunk) {
            return Ok(());
        }
        self.begin_zeroes(chunk)?;
        if extent.bytes as u64 == CHUNK_BYTES {
            let mut done = Ok(());
            self.units.hold(extent, || done = self.give_back(chunk));
            return done;
        }
        self.fill_zeroes(extent, |offset, bytes| {
            if bytes == UNIT_BYTES {
                self.unused.set(offset);
            }
        })?;
        let is_unused = || self.unused.count(chunk, CHUNK_BYTES) == CHUNK_UNITS;
        if is_unused() {
            let all = Extent { offset: chunk * CHUNK_BYTES, bytes: CHUNK_BYTES as usize };
            // Another queue may have written in the meantime.
            let mut done = Ok(());
            self.units.hold(all, || {
                if is_unused() {
                    done = self.give_back(chunk);
                }
            });
            return done;
        }
        Ok(())
    }

    /// Zeroes an extent of a chunk that has space; `note` is told of each unit while it is held. Errors:
    /// Write Fault.
    fn fill_zeroes(&self, extent: Extent, note: impl Fn(u64, usize)) -> Result<(), Status> {
        let Some(memory) = self.backing.memory() else { return Ok(()) };
        let chunk = extent.offset / CHUNK_BYTES;
        let mut done = Ok(());
        if !self.backing.is_reserved(chunk) {
            return done;
        }
        self.units.write(extent, |offset, bytes| {
            if self.backing.is_reserved(chunk) && done.is_ok() {
                done = self.put(memory, offset, Content::Zeroes(bytes));
                note(offset, bytes);
            }
        });
        done
    }

    /// Gives the space of chunks back, and does away with their checksums. Nobody is at work on them. Errors:
    /// when the store fails; what has not been given back is as it was, or in part zeroes.
    pub(super) fn release_chunks(&self, chunks: impl IntoIterator<Item = u64>) -> Result<(), SsdError> {
        let Some(sums) = &self.sums else { return self.backing.release(chunks) };
        let chunks: Vec<u64> = chunks.into_iter().filter(|&chunk| self.backing.is_reserved(chunk)).collect();
        sums.begin_going(&chunks, &self.backing).map_err(|_| checksum::unwritable(self.store()))?;
        chunks.into_iter().try_for_each(|chunk| self.release_chunk(chunk))
    }

    /// Gives the space of a chunk back; its checksums have been told. Errors: as [`Media::release_chunks`].
    fn release_chunk(&self, chunk: u64) -> Result<(), SsdError> {
        let Some(sums) = self.sums.as_ref().filter(|_| self.backing.is_reserved(chunk)) else {
            return self.backing.release([chunk]);
        };
        sums.going(chunk, &self.backing);
        self.backing.release([chunk]).inspect_err(|_| sums.stays(chunk, &self.backing))?;
        sums.gone(chunk, &self.backing);
        Ok(())
    }

    /// Gives the space of a chunk back, all units of which are held and whose checksums have been told. What
    /// cannot be given back is zeroed. Errors: Write Fault.
    #[cold]
    fn give_back(&self, chunk: u64) -> Result<(), Status> {
        let start = chunk * CHUNK_BYTES;
        if let Err(error) = self.release_chunk(chunk) {
            tracing::warn!(chunk, %error, "the space of deallocated blocks could not be given back");
            if let Some(memory) = self.backing.memory() {
                (start..start + CHUNK_BYTES)
                    .step_by(UNIT_BYTES)
                    .try_for_each(|offset| self.put(memory, offset, Content::Zeroes(UNIT_BYTES)))?;
            }
        }
        self.unused.set_all(chunk);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, Mutex};

    use unvme_bus::Region;

    use super::*;
    use crate::MemoryStore;
    use crate::store::NOWHERE;

    const ROUNDS: u64 = 2000;

    fn all() -> Extent {
        Extent { offset: 0, bytes: CHUNK_BYTES as usize }
    }

    /// Writes, deallocations and reads of one chunk at a time: each block is as one of them has left it, and
    /// a chunk that has no space holds nothing that could come back with it.
    #[test]
    fn a_chunk_that_is_written_while_it_is_given_back_holds_what_was_written_or_zeroes() {
        let media = Media::new(Box::new(MemoryStore::new(CHUNK_BYTES).unwrap())).unwrap();
        let off = || OpList::new(false);
        let (begin, end) = (Barrier::new(3), Barrier::new(3));
        // Who panics would leave the others waiting.
        let wrong = Mutex::new(Vec::new());
        let check = |is_right: bool, what: &str, round: u64| {
            if !is_right {
                wrong.lock().unwrap().push(format!("{what}, round {round}"));
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    begin.wait();
                    let parts: u64 = if round % 2 == 0 { 1 } else { 2 };
                    for part in 0..parts {
                        let bytes = CHUNK_BYTES / parts;
                        let extent = Extent { offset: part * bytes, bytes: bytes as usize };
                        media.deallocate(extent, Placement::default(), &mut off()).unwrap();
                    }
                    end.wait();
                }
            });
            scope.spawn(|| {
                let host = Region::anonymous(16 * UNIT_BYTES).unwrap();
                for round in 0..ROUNDS {
                    begin.wait();
                    let extent = Extent { offset: 0, bytes: 16 * UNIT_BYTES };
                    media.read(extent, &host, 0, NOWHERE, &mut off()).unwrap();
                    for unit in 0..16 {
                        let mut page = [0; UNIT_BYTES];
                        host.read(unit * UNIT_BYTES, &mut page);
                        check(page.iter().all(|&byte| byte == page[0]), "half of a unit", round);
                    }
                    end.wait();
                }
            });
            let host = Region::anonymous(16 * UNIT_BYTES).unwrap();
            for round in 0..ROUNDS {
                let value = (round % 255) as u8 + 1;
                host.fill(0, 16 * UNIT_BYTES, value);
                let extent = Extent { offset: 0, bytes: 16 * UNIT_BYTES };
                // As a command does, long before it writes.
                media.reserve_blocks(0).unwrap();
                begin.wait();
                media.write(extent, &host, 0, Placement::default(), &mut off()).unwrap();
                end.wait();
                let memory = media.memory().unwrap();
                let mut page = [0; UNIT_BYTES];
                for unit in 0..16 {
                    memory.read(unit * UNIT_BYTES, &mut page);
                    let expected = [0, value].map(|value| [value; UNIT_BYTES]);
                    check(expected.contains(&page), "something else", round);
                    check(media.is_reserved(0) || page == [0; UNIT_BYTES], "data left behind", round);
                    // What is not in use is what the host has not written.
                    let is_unused = media.unused.count(0, (unit as u64 + 1) * UNIT_BYTES as u64)
                        > media.unused.count(0, (unit * UNIT_BYTES) as u64);
                    check(
                        !media.is_reserved(0) || !is_unused || page == [0; UNIT_BYTES],
                        "data not in use",
                        round,
                    );
                }
            }
        });
        assert_eq!(wrong.into_inner().unwrap(), [""; 0]);
        media.deallocate(all(), Placement::default(), &mut off()).unwrap();
        assert_eq!((media.is_reserved(0), media.bytes_used(0, CHUNK_BYTES)), (false, 0));
    }
}
