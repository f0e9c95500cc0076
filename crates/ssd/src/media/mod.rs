//! Where the data is: a [`Store`] of bytes, and the [`Media`] built on it.

mod file;
mod memory;
mod units;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use unvme_bus::Region;
use unvme_spec::Status;

use crate::SsdError;
use crate::config::CHUNK_BYTES;
use crate::engine::lock;
use units::Units;

pub use file::FileStore;
pub use memory::{MemoryStore, NullStore};

/// Bytes that outlive a command, and perhaps the process.
pub trait Store: Send + Sync {
    /// Capacity in bytes, a multiple of [`CHUNK_BYTES`].
    fn bytes(&self) -> u64;

    /// The bytes as memory; `None` for a store that keeps no data at all.
    fn memory(&self) -> Option<&Region>;

    /// True when the chunk may hold data from earlier; asked once, when the device is made.
    fn holds_data(&self, chunk: u64) -> bool;

    /// Makes sure that every byte of a chunk can be written. Called before the first write to it, by one thread at a
    /// time.
    ///
    /// # Errors
    /// When there is no space, or the file system fails.
    fn reserve(&self, chunk: u64) -> Result<(), SsdError>;

    /// Gives a chunk's space back. It must read as zeroes when it is reserved again. Nobody touches the chunk
    /// meanwhile.
    ///
    /// # Errors
    /// When the file system fails.
    fn release(&self, chunk: u64) -> Result<(), SsdError>;

    /// Makes everything written before survive a power cut.
    ///
    /// # Errors
    /// When the file system fails.
    fn sync(&self) -> Result<(), SsdError>;

    /// Where the state is kept, for messages.
    fn state_path(&self) -> PathBuf {
        PathBuf::from("saved state")
    }

    /// The device's state as saved last.
    ///
    /// # Errors
    /// When it is there but cannot be read.
    fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError>;

    /// Replaces the device's saved state, all or nothing.
    ///
    /// # Errors
    /// When the file system fails; the old state is kept.
    fn save_state(&self, state: &[u8]) -> Result<(), SsdError>;
}

/// A store, which of its chunks have space, and the atomicity of its units.
pub(crate) struct Media {
    store: Box<dyn Store>,
    memory: Option<Region>,
    /// A bit per chunk: its space is reserved. A chunk without space reads as zeroes and is never touched.
    reserved: Box<[AtomicU64]>,
    /// Held while a chunk is being reserved: a store may have to rewrite it for that.
    reserving: Mutex<()>,
    units: Units,
    /// Writes go past the processor's caches: the media is larger than those are.
    bypasses_caches: bool,
}

/// Media up to this size is taken to fit in a processor's caches.
const CACHED_BYTES_MAX: u64 = 32 << 20;

/// As the place of the next read: there is none.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// A range of the media within one chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

impl Media {
    pub(crate) fn new(store: Box<dyn Store>) -> Result<Self, SsdError> {
        let chunks = store.bytes() / CHUNK_BYTES;
        let reserved: Box<[AtomicU64]> = (0..chunks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        for chunk in (0..chunks).filter(|&c| store.holds_data(c)) {
            reserved[chunk as usize / 64].fetch_or(1 << (chunk % 64), Ordering::Relaxed);
        }
        let memory = store.memory().cloned();
        let units = Units::new(if memory.is_some() { store.bytes() } else { 0 })?;
        let bypasses_caches = store.bytes() > CACHED_BYTES_MAX;
        Ok(Self { store, memory, reserved, reserving: Mutex::new(()), units, bypasses_caches })
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub(crate) fn chunks(&self) -> u64 {
        self.store.bytes() / CHUNK_BYTES
    }

    /// True when the store keeps no data: commands are checked and completed, and nothing moves.
    #[inline]
    pub(crate) fn is_null(&self) -> bool {
        self.memory.is_none()
    }

    /// The data as memory; `None` when the store keeps none. Who reads or writes it keeps to chunks that are reserved, and
    /// has a way of its own to tell a whole write from half a one.
    pub(crate) fn memory(&self) -> Option<&Region> {
        self.memory.as_ref()
    }

    /// True when writes had better go past the processor's caches.
    pub(crate) fn bypasses_caches(&self) -> bool {
        self.bypasses_caches
    }

    #[inline]
    pub(crate) fn is_reserved(&self, chunk: u64) -> bool {
        // Acquire: pairs with the Release in `reserve`, so that a chunk seen as reserved is.
        self.reserved
            .get(chunk as usize / 64)
            .is_some_and(|word| word.load(Ordering::Acquire) & 1 << (chunk % 64) != 0)
    }

    /// Gives a chunk space if it has none yet.
    #[inline]
    pub(crate) fn reserve(&self, chunk: u64) -> Result<(), Status> {
        if self.is_reserved(chunk) { Ok(()) } else { self.reserve_now(chunk) }
    }

    #[cold]
    fn reserve_now(&self, chunk: u64) -> Result<(), Status> {
        let _one_at_a_time = lock(&self.reserving);
        if self.is_reserved(chunk) {
            // Another queue's write was first, and may have put its data there already.
            return Ok(());
        }
        self.store.reserve(chunk).map_err(|e| {
            tracing::warn!(chunk, error = %e, "no space for a write");
            if is_full(&e) { Status::CAPACITY_EXCEEDED } else { Status::WRITE_FAULT }
        })?;
        if let Some(word) = self.reserved.get(chunk as usize / 64) {
            word.fetch_or(1 << (chunk % 64), Ordering::Release);
        }
        Ok(())
    }

    /// Gives the space of chunks back; they read as zeroes from now on. No command may be under way on them.
    pub(crate) fn release(&self, chunks: impl IntoIterator<Item = u64>) -> Result<(), SsdError> {
        for chunk in chunks.into_iter().filter(|&c| self.is_reserved(c)) {
            if let Some(word) = self.reserved.get(chunk as usize / 64) {
                word.fetch_and(!(1 << (chunk % 64)), Ordering::Release);
            }
            self.store.release(chunk).inspect_err(|_| {
                // It may still hold data: it must not pass for zeroes.
                if let Some(word) = self.reserved.get(chunk as usize / 64) {
                    word.fetch_or(1 << (chunk % 64), Ordering::Release);
                }
            })?;
        }
        Ok(())
    }

    pub(crate) fn sync(&self) -> Result<(), Status> {
        self.store.sync().map_err(|e| {
            tracing::error!(error = %e, "the media could not be flushed");
            Status::WRITE_FAULT
        })
    }

    /// Announces that `offset` will be read soon.
    #[inline]
    pub(crate) fn foresee(&self, offset: u64) {
        self.units.prefetch(offset);
    }

    /// Media to host memory. `ahead` is where the next command will read, or [`NOWHERE`].
    #[inline]
    pub(crate) fn read(&self, extent: Extent, host: &Region, host_offset: usize, ahead: u64) {
        let Some(memory) = &self.memory else { return };
        if !self.is_reserved(extent.offset / CHUNK_BYTES) {
            return host.fill(host_offset, extent.bytes, 0);
        }
        self.units.read(extent, |offset, bytes| {
            let done = (offset - extent.offset) as usize;
            memory.copy_to_ahead(offset as usize, host, host_offset + done, bytes, ahead as usize);
        });
    }

    /// Host memory to media; the chunk has been reserved.
    #[inline]
    pub(crate) fn write(&self, extent: Extent, host: &Region, host_offset: usize) {
        let Some(memory) = &self.memory else { return };
        self.units.write(extent, |offset, bytes| {
            let done = (offset - extent.offset) as usize;
            if self.bypasses_caches {
                host.copy_to_uncached(host_offset + done, memory, offset as usize, bytes);
            } else {
                host.copy_to(host_offset + done, memory, offset as usize, bytes);
            }
        });
    }

    /// Zeroes the media; a chunk without space is zeroes already.
    pub(crate) fn zero(&self, extent: Extent) {
        let Some(memory) = &self.memory else { return };
        if self.is_reserved(extent.offset / CHUNK_BYTES) {
            self.units.write(extent, |offset, bytes| memory.fill(offset as usize, bytes, 0));
        }
    }

    /// True when media and host memory hold the same bytes.
    pub(crate) fn equals(&self, extent: Extent, host: &Region, host_offset: usize) -> bool {
        let Some(memory) = &self.memory else { return true };
        let present = self.is_reserved(extent.offset / CHUNK_BYTES);
        let mut ours = [0; units::UNIT_BYTES];
        let mut theirs = [0; units::UNIT_BYTES];
        let mut equal = true;
        self.units.read(extent, |offset, bytes| {
            let done = (offset - extent.offset) as usize;
            if present {
                memory.read(offset as usize, &mut ours[..bytes]);
            }
            host.read(host_offset + done, &mut theirs[..bytes]);
            equal = equal && ours[..bytes] == theirs[..bytes];
        });
        equal
    }

    /// Compares and, when equal, writes, as one atomic step. All of it lies within one unit.
    pub(crate) fn compare_and_write(&self, extent: Extent, expected: &[u8], new: &[u8]) -> bool {
        let Some(memory) = &self.memory else { return true };
        let mut equal = false;
        self.units.write(extent, |offset, bytes| {
            let mut ours = vec![0; bytes];
            memory.read(offset as usize, &mut ours);
            equal = ours == expected;
            if equal {
                memory.write(offset as usize, new);
            }
        });
        equal
    }
}

/// True when there is no space left for the store, and nothing is broken.
fn is_full(error: &SsdError) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error, SsdError::File { source, .. }
        if matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    use super::*;

    /// A store that takes its time and counts how often it is asked for space.
    struct Slow(MemoryStore, Arc<AtomicU32>);

    impl Store for Slow {
        fn bytes(&self) -> u64 {
            self.0.bytes()
        }
        fn memory(&self) -> Option<&Region> {
            self.0.memory()
        }
        fn holds_data(&self, _chunk: u64) -> bool {
            false
        }
        fn reserve(&self, _chunk: u64) -> Result<(), SsdError> {
            self.1.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        }
        fn release(&self, chunk: u64) -> Result<(), SsdError> {
            self.0.release(chunk)
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

    #[test]
    fn a_chunk_that_several_queues_write_to_first_is_reserved_once() {
        let count = Arc::new(AtomicU32::new(0));
        let store = Slow(MemoryStore::new(CHUNK_BYTES).unwrap(), Arc::clone(&count));
        let media = Media::new(Box::new(store)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    media.reserve(0).unwrap();
                    assert!(media.is_reserved(0));
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
