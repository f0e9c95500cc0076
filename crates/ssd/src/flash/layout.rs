//! Where everything lies on the store of a device with flash.
//!
//! ```text
//! 0            capacity                                                                          store_bytes
//! |  identity  |  pages, by ppn  |  records, by ppn  | superblocks | journal | checkpoint 0 | checkpoint 1 |
//! ```
//!
//! Each part begins at a multiple of 2 MiB. **identity** is as large as what hosts see: the chunks of Key
//! Value namespaces lie there, each at its own number. All of it is sparse: what is not written takes no
//! space.

use unvme_flash::PAGE_BYTES;

use super::checkpoint;
use super::record::RECORD_BYTES;
use crate::store::CHUNK_BYTES;

const JOURNAL_BYTES: u64 = CHUNK_BYTES;

/// Byte offsets on the store. Depends on the capacity and on the number of physical pages, and not on how
/// those are divided into units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) logical_pages: u32,
    pub(crate) physical_pages: u64,
    /// Of physical page 0.
    pub(crate) pages: u64,
    /// Of the record of physical page 0.
    pub(crate) records: u64,
    /// Of the two superblocks, half a chunk apart.
    pub(crate) superblocks: [u64; 2],
    pub(crate) journal: u64,
    pub(crate) journal_bytes: u64,
    pub(crate) checkpoints: [u64; 2],
    pub(crate) checkpoint_bytes: u64,
    pub(crate) store_bytes: u64,
}

impl Layout {
    pub(super) fn new(capacity: u64, logical_pages: u32, physical_pages: u64) -> Self {
        let part = |bytes: u64| bytes.next_multiple_of(CHUNK_BYTES);
        let pages = part(capacity);
        let records = pages + part(physical_pages * PAGE_BYTES);
        let superblocks = records + part(physical_pages * RECORD_BYTES);
        let journal = superblocks + CHUNK_BYTES;
        let checkpoint_bytes = part(checkpoint::bytes_max(logical_pages, physical_pages));
        let checkpoint = journal + JOURNAL_BYTES;
        Self {
            logical_pages,
            physical_pages,
            pages,
            records,
            superblocks: [superblocks, superblocks + CHUNK_BYTES / 2],
            journal,
            journal_bytes: JOURNAL_BYTES,
            checkpoints: [checkpoint, checkpoint + checkpoint_bytes],
            checkpoint_bytes,
            store_bytes: checkpoint + 2 * checkpoint_bytes,
        }
    }

    /// Byte offset of a physical page.
    #[inline]
    pub(crate) fn page(&self, ppn: u32) -> u64 {
        self.pages + u64::from(ppn) * PAGE_BYTES
    }

    /// Byte offset of a physical page's record.
    #[inline]
    pub(crate) fn record(&self, ppn: u32) -> u64 {
        self.records + u64::from(ppn) * RECORD_BYTES
    }
}
