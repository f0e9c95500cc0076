//! A store, which of its chunks have space, and whether it can still be trusted to keep what it is given.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use unvme_bus::{Region, lock};
use unvme_spec::Status;

use super::{CHUNK_BYTES, Store};
use crate::SsdError;

/// Media up to this size is taken to fit in a processor's caches.
const CACHED_BYTES_MAX: u64 = 32 << 20;

/// See the module.
pub(crate) struct Backing {
    store: Box<dyn Store>,
    memory: Option<Region>,
    tags: Option<Region>,
    /// The store's redo log, once it has been asked for.
    redo: OnceLock<Region>,
    /// A bit per chunk: its space is reserved. A chunk without space reads as zeroes and is never touched.
    reserved: Box<[AtomicU64]>,
    /// Held while a chunk is being reserved: a store may have to rewrite it for that.
    reserving: Mutex<()>,
    /// A sync has failed: the system may have dropped what it could not write, and a later sync would succeed
    /// without it.
    has_failed: AtomicBool,
    bypasses_caches: bool,
}

impl Backing {
    pub(crate) fn new(store: Box<dyn Store>) -> Self {
        let chunks = store.bytes() / CHUNK_BYTES;
        let reserved: Box<[AtomicU64]> = (0..chunks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        for chunk in (0..chunks).filter(|&c| store.holds_data(c)) {
            reserved[chunk as usize / 64].fetch_or(1 << (chunk % 64), Ordering::Relaxed);
        }
        let memory = store.memory().cloned();
        let tags = store.tags().cloned();
        let bypasses_caches = store.bytes() > CACHED_BYTES_MAX;
        let (reserving, has_failed) = (Mutex::new(()), AtomicBool::new(false));
        let redo = OnceLock::new();
        Self { store, memory, tags, redo, reserved, reserving, has_failed, bypasses_caches }
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The data as memory; `None` when the store keeps none, or a tag of each page only.
    #[inline]
    pub(crate) fn memory(&self) -> Option<&Region> {
        self.memory.as_ref()
    }

    /// Tags of pages, eight bytes for each of the store's; `None` when it keeps all of the data or nothing.
    #[inline]
    pub(crate) fn tags(&self) -> Option<&Region> {
        self.tags.as_ref()
    }

    /// The store's redo log. Errors: as [`Store::redo`].
    pub(crate) fn redo(&self) -> Result<Option<&Region>, SsdError> {
        let opened = self.store.redo()?;
        Ok(opened.map(|region| self.redo.get_or_init(|| region)))
    }

    /// Writes a part of a page by a system call. Errors: Write Fault, and so does every later sync.
    #[cold]
    pub(crate) fn write_page(&self, offset: u64, bytes: &[u8]) -> Result<(), Status> {
        self.store.write_page(offset, bytes).map_err(|error| {
            self.has_failed.store(true, Ordering::Release);
            tracing::error!(offset, %error, "a block could not be written");
            Status::WRITE_FAULT
        })
    }

    /// True when the store's memory went away, such as by its file being cut. It does not come back.
    pub(crate) fn is_lost(&self) -> bool {
        let regions = [self.memory.as_ref(), self.tags.as_ref(), self.redo.get()];
        let is_lost = regions.into_iter().flatten().any(Region::is_lost);
        if is_lost && !self.has_failed.swap(true, Ordering::AcqRel) {
            let media = self.store.media_path();
            tracing::error!(
                media = %media.display(),
                "the file was cut while the device was in use; all its commands fail from now on"
            );
        }
        is_lost
    }

    /// True when writes had better go past the processor's caches.
    #[inline]
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

    /// Gives space to all chunks of a range of bytes.
    pub(crate) fn reserve_range(&self, offset: u64, bytes: u64) -> Result<(), Status> {
        (offset / CHUNK_BYTES..(offset + bytes).div_ceil(CHUNK_BYTES))
            .try_for_each(|chunk| self.reserve(chunk))
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
            if e.is_full() { Status::CAPACITY_EXCEEDED } else { Status::WRITE_FAULT }
        })?;
        if let Some(word) = self.reserved.get(chunk as usize / 64) {
            word.fetch_or(1 << (chunk % 64), Ordering::Release);
        }
        Ok(())
    }

    /// Gives the space of chunks back; they read as zeroes from now on. Nobody may be at work on their bytes.
    pub(crate) fn release(&self, chunks: impl IntoIterator<Item = u64>) -> Result<(), SsdError> {
        for chunk in chunks.into_iter().filter(|&c| self.is_reserved(c)) {
            // Who is about to write to it gets space when this is over.
            let _one_at_a_time = lock(&self.reserving);
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

    /// Makes everything written before survive a power cut. Once it has failed it never succeeds again.
    pub(crate) fn sync(&self) -> Result<(), Status> {
        if self.has_failed.load(Ordering::Acquire) || self.is_lost() {
            return Err(Status::WRITE_FAULT);
        }
        self.store.sync().map_err(|e| {
            self.has_failed.store(true, Ordering::Release);
            tracing::error!(error = %e, "the media could not be flushed; nothing can be made durable any more");
            Status::WRITE_FAULT
        })?;
        // The system reports a failure once: of two syncs at a time the other one must not pass for a
        // success.
        if self.has_failed.load(Ordering::Acquire) { Err(Status::WRITE_FAULT) } else { Ok(()) }
    }
}
