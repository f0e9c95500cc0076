//! The directory: which segments live, in pages that are not their own.
//!
//! A segment's header says what it is, and both of its copies lie in one page. When that page is lost, or the
//! media gives back what was in it before, nothing in the segment tells that it lives: its records would be
//! missed, and older ones of their keys would count. So what a segment is, which use of it this is, and how
//! far syncs have covered it, is also in an entry of the directory, twice.
//!
//! The first pages of segments have room that neither logs nor extents use. Each group of
//! [`GROUP_SEGMENTS`] has its entries in the first page of its first segment, and again in that of the
//! segment before it; for the first group, that is one in its middle. So the two copies of an entry are in
//! two pages of two chunks, no page has entries of two groups, and of header and entries at least two are in
//! pages of their own: whichever page is lost, one is left.
//!
//! **Which of them counts.** The one with the highest incarnation; of the same incarnation, the one that says
//! free, because a segment is only ever erased after it was used. A page that has gone stale is found so, and
//! repaired with one that is lost. A power cut may leave any of the three as they were before: then nothing
//! of that use of the segment had been synced, or (free) nothing has been written over yet.
//!
//! **When it is written.** With each change of what a segment is, after its header. After a sync, for the
//! segments that it has covered further than the last one: what is noted there is true whenever it reaches
//! the media, so nobody waits for that.

use zerocopy::IntoBytes;

use super::KvStore;
use super::layout::{
    DIRECTORY_AT, DirectoryEntry, GROUP_SEGMENTS, Listed, SUPERBLOCK_AT, SegmentKind, Superblock,
};
use super::segment::{Pool, Segments};
use crate::media::Media;

/// Segments whose first pages have the entries of a segment's group, in a store of `count`.
pub(super) fn hosts(segment: u32, count: usize) -> [u32; 2] {
    let group = GROUP_SEGMENTS as u32;
    match segment / group * group {
        0 => [0, (count as u32 / 2).min(group / 2)],
        first => [first, first - 1],
    }
}

/// What one copy of the directory says about a segment.
pub(super) enum Entry {
    Listed(Listed),
    /// Nothing has ever been written there.
    Blank,
    Damaged,
}

impl Segments {
    /// Segments whose first pages have the directory's entry of `segment`.
    #[inline]
    pub(super) fn hosts(&self, segment: u32) -> [u32; 2] {
        hosts(segment, self.count())
    }

    fn entry_at(&self, host: u32, segment: u32) -> usize {
        let number = segment as usize % GROUP_SEGMENTS;
        self.base(host) as usize + DIRECTORY_AT + number * size_of::<DirectoryEntry>()
    }
}

impl KvStore {
    /// Notes what a segment is in both copies of the directory. The lock of the pool keeps the copies alike.
    pub(super) fn enter(&self, pool: &Pool, segment: u32, kind: SegmentKind) {
        let info = &pool.segments[segment as usize];
        let synced_end = if kind == SegmentKind::Log { info.synced_end } else { 0 };
        let listed = Listed { kind, incarnation: info.incarnation, nonce: info.nonce, synced_end };
        self.write_entry(segment, &listed);
    }

    /// Writes both copies of an entry, whose hosts have space.
    pub(super) fn write_entry(&self, segment: u32, listed: &Listed) {
        let entry = DirectoryEntry::new(listed, self.segments.identity.secret, segment);
        for host in self.segments.hosts(segment) {
            self.memory.write(self.segments.entry_at(host, segment), entry.as_bytes());
        }
    }

    /// Both copies of an entry.
    pub(super) fn load_entries(&self, segment: u32) -> [Entry; 2] {
        self.segments.hosts(segment).map(|host| {
            let mut bytes = [0; size_of::<DirectoryEntry>()];
            if self.media.is_reserved(self.segments.chunk(host)) {
                self.memory.read(self.segments.entry_at(host, segment), &mut bytes);
            }
            match DirectoryEntry::read(&bytes, self.segments.identity.secret, segment) {
                Some(listed) => Entry::Listed(listed),
                None if bytes.iter().all(|&byte| byte == 0) => Entry::Blank,
                None => Entry::Damaged,
            }
        })
    }

    /// Writes one copy of a new superblock after the other, where there is space.
    pub(super) fn write_superblock(&self, generation: u64) -> Superblock {
        let superblock = Superblock::new(self.segments.identity, generation, self.media.store().life());
        for host in self.segments.hosts(0) {
            if self.media.reserve(self.segments.chunk(host)).is_ok() {
                let at = self.segments.base(host) as usize + SUPERBLOCK_AT;
                self.memory.write(at, superblock.as_bytes());
            }
        }
        superblock
    }
}

/// The superblock on `chunks` that was written last.
pub(super) fn find_superblock(media: &Media, chunks: &[u32]) -> Option<Superblock> {
    let memory = media.memory()?;
    let copies = hosts(0, chunks.len()).into_iter().filter_map(|host| {
        let chunk = *chunks.get(host as usize)?;
        if !media.is_reserved(u64::from(chunk)) {
            return None;
        }
        let mut bytes = [0; size_of::<Superblock>()];
        memory.read(chunk as usize * super::layout::SEGMENT_BYTES + SUPERBLOCK_AT, &mut bytes);
        Superblock::read(&bytes)
    });
    copies.max_by_key(Superblock::generation)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_copies_of_an_entry_are_in_two_pages_and_no_page_has_entries_of_two_groups() {
        for count in (8..300).chain([GROUP_SEGMENTS * 1000 + 1]) {
            let mut taken = BTreeSet::new();
            for first in (0..count).step_by(GROUP_SEGMENTS) {
                let [a, b] = hosts(first as u32, count);
                assert!((a as usize) < count && (b as usize) < count && a != b, "{count}: {a} {b}");
                assert!(taken.insert(a) && taken.insert(b), "{count} segments, group of {first}");
                let last = (first + GROUP_SEGMENTS).min(count) - 1;
                assert_eq!(hosts(last as u32, count), [a, b]);
            }
        }
    }
}
