//! Media that keeps a tag of each page instead of its data: what a page begins with.
//!
//! Hosts that write recognizable pages (a number and its copies, say) can still tell whether they get back what they wrote,
//! and a device of a terabyte fits into a few gigabytes of memory.

use std::sync::Mutex;

use unvme_bus::{Region, lock};

use super::{Extent, Media, Store, units};
use crate::SsdError;
use crate::config::CHUNK_BYTES;

/// Bytes of a tag.
pub(crate) const TAG_BYTES: usize = 8;
/// Bytes of the page that a tag stands for.
const PAGE_BYTES: usize = units::UNIT_BYTES;

/// A store of tags in memory. What is read of a page is its first eight bytes, over and over; a write that does not cover
/// them leaves no trace.
pub struct TagStore {
    bytes: u64,
    tags: Region,
    state: Mutex<Option<Vec<u8>>>,
}

impl TagStore {
    /// A store that stands for `bytes`, a multiple of [`CHUNK_BYTES`], and takes a 512th of that.
    ///
    /// # Errors
    /// [`SsdError::Bus`] when there is not enough address space.
    pub fn new(bytes: u64) -> Result<Self, SsdError> {
        let tags = usize::try_from(bytes / PAGE_BYTES as u64 * TAG_BYTES as u64).unwrap_or(usize::MAX);
        Ok(Self { bytes, tags: Region::anonymous(tags)?, state: Mutex::default() })
    }
}

impl Store for TagStore {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn memory(&self) -> Option<&Region> {
        None
    }

    fn tags(&self) -> Option<&Region> {
        Some(&self.tags)
    }

    fn persists(&self) -> bool {
        false
    }

    fn holds_data(&self, _chunk: u64) -> bool {
        false
    }

    fn reserve(&self, _chunk: u64) -> Result<(), SsdError> {
        Ok(())
    }

    fn release(&self, chunk: u64) -> Result<(), SsdError> {
        let bytes = CHUNK_BYTES as usize / PAGE_BYTES * TAG_BYTES;
        self.tags.discard(chunk as usize * bytes, bytes);
        Ok(())
    }

    fn sync(&self) -> Result<(), SsdError> {
        Ok(())
    }

    fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError> {
        Ok(lock(&self.state).clone())
    }

    fn save_state(&self, state: &[u8]) -> Result<(), SsdError> {
        *lock(&self.state) = Some(state.to_vec());
        Ok(())
    }
}

/// Where the tag of the page at a byte offset is.
#[inline]
pub(crate) fn place(offset: u64) -> usize {
    (offset / PAGE_BYTES as u64) as usize * TAG_BYTES
}

/// Bytes `within..` of a page that its tag stands for.
pub(crate) fn expand(tag: u64, within: usize, out: &mut [u8]) {
    let tag = tag.to_le_bytes();
    for (at, byte) in out.iter_mut().enumerate() {
        *byte = tag[(within + at) % TAG_BYTES];
    }
}

/// Media of tags without a translation layer. Tags are words: they are read and written whole, and need no version.
impl Media {
    #[cold]
    pub(super) fn read_tags(&self, extent: Extent, host: &Region, host_offset: usize) {
        let mut page = [0; PAGE_BYTES];
        let mut done = 0;
        while done < extent.bytes {
            let offset = extent.offset + done as u64;
            let bytes = (extent.bytes - done).min(PAGE_BYTES - offset as usize % PAGE_BYTES);
            self.fetch_tags(Extent { offset, bytes }, &mut page[..bytes]);
            host.write(host_offset + done, &page[..bytes]);
            done += bytes;
        }
    }

    #[cold]
    pub(super) fn write_tags(&self, extent: Extent, host: &Region, host_offset: usize) {
        let first = extent.offset.next_multiple_of(PAGE_BYTES as u64);
        for offset in (first..extent.offset + extent.bytes as u64).step_by(PAGE_BYTES) {
            let mut tag = [0; TAG_BYTES];
            host.read(host_offset + (offset - extent.offset) as usize, &mut tag);
            self.set_tag(offset, u64::from_le_bytes(tag));
        }
    }

    #[cold]
    pub(super) fn zero_tags(&self, extent: Extent) {
        let first = extent.offset.next_multiple_of(PAGE_BYTES as u64);
        for offset in (first..extent.offset + extent.bytes as u64).step_by(PAGE_BYTES) {
            self.set_tag(offset, 0);
        }
    }

    /// A part of one page; zeroes of media that does not even keep tags.
    #[cold]
    pub(super) fn fetch_tags(&self, extent: Extent, out: &mut [u8]) {
        let ordering = std::sync::atomic::Ordering::Relaxed;
        let tag = self.backing.tags().map_or(0, |tags| tags.load_u64(place(extent.offset), ordering));
        expand(tag, extent.offset as usize % PAGE_BYTES, out);
    }

    #[cold]
    pub(super) fn compare_and_write_tags(&self, extent: Extent, expected: &[u8], new: &[u8]) -> bool {
        let mut equal = self.is_null();
        // As one step: the version keeps other writers of the page out.
        self.units.write(extent, |offset, bytes| {
            let mut ours = vec![0; bytes];
            self.fetch_tags(extent, &mut ours);
            equal = equal || ours == expected;
            if let (true, 0, Some(tag)) = (equal, offset as usize % PAGE_BYTES, new.first_chunk()) {
                self.set_tag(offset, u64::from_le_bytes(*tag));
            }
        });
        equal
    }

    fn set_tag(&self, offset: u64, tag: u64) {
        if let Some(tags) = self.backing.tags() {
            tags.store_u64(place(offset), tag, std::sync::atomic::Ordering::Relaxed);
        }
    }
}
