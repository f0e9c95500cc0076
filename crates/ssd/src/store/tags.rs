//! Media that keeps a tag of each page instead of its data: what a page begins with.
//!
//! Hosts that write recognizable pages (a number and its copies, say) can still tell whether they get back
//! what they wrote, and a device of a terabyte fits into a few gigabytes of memory.

use std::sync::Mutex;

use unvme_bus::{Region, lock};

use super::{CHUNK_BYTES, Store};
use crate::SsdError;

pub(crate) const TAG_BYTES: usize = 8;
/// Bytes of the page that a tag stands for.
const PAGE_BYTES: usize = unvme_flash::PAGE_BYTES as usize;

/// A store of tags in memory. What is read of a page is its first eight bytes, over and over; a write that
/// does not cover them leaves no trace.
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
