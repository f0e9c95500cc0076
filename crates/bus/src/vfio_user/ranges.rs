//! What a client has mapped, as the protocol sees it.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;

use rustix::io::Errno;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    /// First I/O virtual address.
    pub(crate) iova: u64,
    /// Bytes.
    pub(crate) length: u64,
    /// The function was told about it.
    pub(crate) mapped: bool,
}

/// Disjoint ranges by their first address.
#[derive(Debug, Default)]
pub(crate) struct Ranges(BTreeMap<u64, Range>);

impl Ranges {
    /// Number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// True when a range has a byte in common with `iova..iova + length`.
    pub(crate) fn overlaps(&self, iova: u64, length: u64) -> bool {
        let end = iova.saturating_add(length);
        self.0.range(..end).next_back().is_some_and(|(_, r)| r.iova.saturating_add(r.length) > iova)
    }

    /// Adds a range that overlaps none.
    pub(crate) fn insert(&mut self, range: Range) {
        self.0.insert(range.iova, range);
    }

    /// Removes a range.
    pub(crate) fn remove(&mut self, iova: u64) {
        self.0.remove(&iova);
    }

    /// All ranges, ascending.
    pub(crate) fn all(&self) -> Vec<Range> {
        self.0.values().copied().collect()
    }

    /// First address and length of the span from the first to the last range the function was told about.
    pub(crate) fn mapped_span(&self) -> Option<(u64, u64)> {
        let mut mapped = self.0.values().filter(|r| r.mapped);
        let first = mapped.next()?;
        let last = mapped.next_back().unwrap_or(first);
        Some((first.iova, last.iova.saturating_add(last.length).saturating_sub(first.iova)))
    }

    /// The ranges within `iova..iova + length`, ascending. Errors: EINVAL when one would be cut in two,
    /// ENOENT when there is none.
    pub(crate) fn within(&self, iova: u64, length: u64) -> Result<Vec<Range>, Errno> {
        let end = iova.saturating_add(length);
        let within: Vec<Range> = self.0.range(iova..end).map(|(_, r)| *r).collect();
        let cut_at_start = self
            .0
            .range(..iova)
            .next_back()
            .is_some_and(|(_, before)| before.iova.saturating_add(before.length) > iova);
        let cut_at_end = within.last().is_some_and(|last| last.iova.saturating_add(last.length) > end);
        match within.is_empty() {
            _ if cut_at_start || cut_at_end => Err(Errno::INVAL),
            true => Err(Errno::NOENT),
            false => Ok(within),
        }
    }
}
