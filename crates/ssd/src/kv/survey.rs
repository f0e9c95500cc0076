//! What is known of a segment before its records are looked at: its header, and both copies of its entry in
//! the directory.

use super::KvStore;
use super::directory::Entry;
use super::layout::{
    DATA_START, DIRECTORY_AT, HEADER_AT, HeaderRead, LINE_BYTES, Listed, SEGMENT_BYTES, SUPERBLOCK_AT,
    SegmentHeader, SegmentKind, Superblock,
};
use crate::media::Media;

/// What is known of a segment.
pub(super) enum Survey {
    /// It has never been used.
    Unused,
    /// What its header and the directory agree on, or the one of them that counts.
    Known { listed: Listed, has_header: bool },
    /// It has been used, and nothing that tells what for is intact.
    Lost,
}

/// What is said of a segment in the three places that do.
pub(super) fn survey(store: &KvStore, segment: u32) -> Survey {
    let chunk = store.segments.chunk(segment);
    let header = match read_header(&store.media, chunk as u32) {
        HeaderRead::Valid(kind, header) => {
            let is_ours = header.identity() == store.segments.identity && header.index.get() == segment;
            is_ours.then_some(Listed {
                kind,
                incarnation: header.incarnation.get(),
                nonce: header.nonce.get(),
                synced_end: 0,
            })
        }
        HeaderRead::Version(_) | HeaderRead::Nothing => None,
    };
    let entries = store.load_entries(segment);
    let listed = entries.iter().filter_map(|entry| match entry {
        Entry::Listed(listed) => Some(*listed),
        Entry::Blank | Entry::Damaged => None,
    });
    let Some(mut newest) = listed.clone().chain(header).max_by_key(|l| order(l.kind, l.incarnation)) else {
        // One damaged page is where nothing was; several are where nobody knows what was.
        let damaged = entries.iter().filter(|entry| matches!(entry, Entry::Damaged)).count();
        let is_lost = damaged + usize::from(has_been_used(store, segment)) > 1;
        return if is_lost { Survey::Lost } else { Survey::Unused };
    };
    let is_same = |other: &Listed| {
        (other.kind, other.incarnation, other.nonce) == (newest.kind, newest.incarnation, newest.nonce)
    };
    let has_header = header.as_ref().is_some_and(is_same);
    // Copies differ in that when one of them is stale.
    newest.synced_end = listed.filter(is_same).map(|listed| listed.synced_end).max().unwrap_or(0);
    Survey::Known { listed: newest, has_header }
}

/// The header of a segment: of its two copies, the one that was written last.
pub(super) fn read_header(media: &Media, chunk: u32) -> HeaderRead {
    let Some(memory) = media.memory().filter(|_| media.is_reserved(u64::from(chunk))) else {
        return HeaderRead::Nothing;
    };
    let mut found = HeaderRead::Nothing;
    for at in HEADER_AT {
        let mut bytes = [0; size_of::<SegmentHeader>()];
        memory.read(chunk as usize * SEGMENT_BYTES + at, &mut bytes);
        found = match (found, SegmentHeader::read(&bytes)) {
            (HeaderRead::Valid(kind, header), HeaderRead::Valid(other_kind, other)) => {
                let is_later =
                    order(other_kind, other.incarnation.get()) > order(kind, header.incarnation.get());
                if is_later { HeaderRead::Valid(other_kind, other) } else { HeaderRead::Valid(kind, header) }
            }
            (found @ HeaderRead::Valid(..), _) | (found, HeaderRead::Nothing) => found,
            (_, other) => other,
        };
    }
    found
}

/// Of two things that a segment is said to be, the later one is the greater: it is erased after it was used.
fn order(kind: SegmentKind, incarnation: u64) -> (u64, bool) {
    (incarnation, kind == SegmentKind::Free)
}

/// True when there is something in a segment's first page, beside what it has for others, or at its first
/// record.
fn has_been_used(store: &KvStore, segment: u32) -> bool {
    let mut start = [0; DATA_START + LINE_BYTES];
    if store.media.is_reserved(store.segments.chunk(segment)) {
        store.memory.read(store.segments.base(segment) as usize, &mut start);
    }
    if store.segments.hosts(segment).contains(&segment)
        || store.segments.hosts(segment + 1).contains(&segment)
    {
        start[SUPERBLOCK_AT..SUPERBLOCK_AT + size_of::<Superblock>()].fill(0);
        start[DIRECTORY_AT..HEADER_AT[1]].fill(0);
    }
    start.iter().any(|&byte| byte != 0)
}
