//! What is counted.

use std::ops::Add;

use crate::PAGE_BYTES;

/// Counters of a stream: what one handle's writes, or one destination of reclaim, have caused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// Pages hosts have written through it.
    pub host_pages: u64,
    /// Pages that reclaim has moved out of units it filled.
    pub moved_pages: u64,
    /// Pages that reclaim has moved into units it fills.
    pub received_pages: u64,
    /// Units that it filled and reclaim erased.
    pub erased_units: u64,
}

impl Add for StreamStats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            host_pages: self.host_pages + other.host_pages,
            moved_pages: self.moved_pages + other.moved_pages,
            received_pages: self.received_pages + other.received_pages,
            erased_units: self.erased_units + other.erased_units,
        }
    }
}

/// Counters of a layer. Multiply by [`PAGE_BYTES`] for bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FtlStats {
    /// Pages hosts have written.
    pub host_pages: u64,
    /// Pages reclaim has moved, wear levelling included.
    pub reclaim_pages: u64,
    /// Of those, pages moved to even out wear.
    pub levelled_pages: u64,
    /// Of those, pages moved while a host's write waited for a unit because none was free.
    pub forced_pages: u64,
    /// Units erased.
    pub erased_units: u64,
    /// Pages of those units, whether they had been written or not.
    pub erased_pages: u64,
    /// Logical pages that are mapped.
    pub mapped_pages: u64,
    /// Logical pages that were deallocated.
    pub trimmed_pages: u64,
    /// Pages whose program has failed.
    pub failed_pages: u64,
    /// Most pages moved for one page that a host wrote.
    pub moved_at_once_max: u64,
}

impl FtlStats {
    /// Pages programmed: by hosts and by reclaim.
    pub fn media_pages(&self) -> u64 {
        self.host_pages + self.reclaim_pages
    }

    /// Bytes programmed (MBMW).
    pub fn media_bytes(&self) -> u64 {
        self.media_pages() * PAGE_BYTES
    }

    /// Write amplification since `before`: pages programmed for each page a host has written. `None` when no
    /// host has.
    pub fn write_amplification_since(&self, before: &Self) -> Option<f64> {
        let host = self.host_pages - before.host_pages;
        let media = self.media_pages() - before.media_pages();
        (host > 0).then(|| media as f64 / host as f64)
    }
}
