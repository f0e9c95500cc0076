//! Media that is not what was written: whole pages of anything, and structures with wrong numbers and right
//! checksums.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use zerocopy::IntoBytes;

use super::*;
use crate::kv::checksum;
use crate::kv::directory::hosts;
use crate::kv::layout::{
    DATA_START, DIRECTORY_AT, DirectoryEntry, GROUP_SEGMENTS, HEADER_AT, HeaderRead, Listed, RecordHead,
    SEGMENT_BYTES, SegmentHeader, SegmentKind, TAIL_AT, TRAILER_AT, tail_word,
};

const PAGE: usize = 4096;
const KEYS: usize = 40;

/// All values that each key has ever had.
type Versions = BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>;

fn key(number: usize) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// The image of a small store that has been used, and after `is_closed` shut down.
fn image(random: &mut Random, is_closed: bool) -> (Vec<u8>, Option<Vec<u8>>, Versions) {
    let disk = Disk::new(&vec![0; 16 << 20], || {});
    let mut pairs = Pairs::new(create(Box::new(DiskStore(Arc::clone(&disk)))), 0);
    let mut versions = Versions::new();
    for number in 0..400 {
        let key = key(random.below(KEYS));
        let bytes = match number {
            300 => 2_500_000,
            _ if number % 40 == 0 => random.below(200_000),
            _ => random.below(9000),
        };
        if random.below(5) == 0 {
            pairs.delete(&key).unwrap();
            continue;
        }
        let value = match random.below(2) {
            0 => random.bytes(bytes),
            _ => vec![number as u8; bytes],
        };
        let policy = StorePolicy { compress: random.below(2) == 0, ..StorePolicy::default() };
        pairs.store_with(&key, &value, policy).unwrap();
        versions.entry(key).or_default().insert(value);
    }
    if is_closed {
        pairs.store.close().unwrap();
    }
    let index = disk.indexes.lock().unwrap().last().cloned();
    (disk.image(), index, versions)
}

/// Opens what may be anything, and does everything with it. Values are those that were stored, or errors.
fn use_it(image: &[u8], index: Option<&[u8]>, versions: Option<&Versions>) -> bool {
    let disk = Disk::new(image, || {});
    disk.indexes.lock().unwrap().extend(index.map(<[u8]>::to_vec));
    let Ok(store) = try_open(Box::new(DiskStore(Arc::clone(&disk)))) else { return false };
    let mut pairs = Pairs::new(store, 0);
    let read = |pairs: &mut Pairs, versions: Option<&Versions>| {
        for key in (0..KEYS).map(key) {
            let length = pairs.part(&key, 0, 0, false).map_or(0, |(_, length)| length as usize);
            if length > HOST_BYTES {
                continue;
            }
            let found = pairs.get(&key);
            if let (Ok(value), Some(versions)) = (&found, versions) {
                let known = versions.get(&key).is_some_and(|known| known.contains(value));
                assert!(known, "{}: {} bytes nobody stored", String::from_utf8_lossy(&key), value.len());
            }
            let _ = pairs.part(&key, 3, 5000, true);
            let _ = pairs.exist(&key);
        }
        // Who is in doubt lists nothing.
        let _ = pairs.store.list(all_from(b""), |_| true);
    };
    read(&mut pairs, versions);
    pairs.store.check();
    for number in 0..30 {
        let _ = pairs.append(&key(number % KEYS), b"more");
        let _ = pairs.put(&key((number * 7) % KEYS), &[9; 5000]);
        let _ = pairs.delete(&key((number * 3) % KEYS));
    }
    // Turns the log over: everything on it is looked at.
    for number in 0..60 {
        let _ = pairs.put(&key(KEYS + number % 5), &[number as u8; 300_000]);
        pairs.store.maintain(300_000);
    }
    let _ = pairs.store.sync();
    pairs.store.check();
    read(&mut pairs, None);
    drop(pairs);
    // What it has become can be opened again, and is as good as any other once its losses are accepted.
    let pairs = Pairs::new(open(Box::new(DiskStore(Disk::new(&disk.image(), || {})))), 0);
    if pairs.store.accept_loss().is_ok() {
        // A forged record may be where its key is never looked for.
        assert!(versions.is_none() || pairs.store.check().is_empty());
        pairs.keys(b"");
    }
    true
}

/// Replaces a few pages by something else.
fn damage_pages(random: &mut Random, image: &mut [u8]) {
    let pages = image.len() / PAGE;
    for _ in 0..1 + random.below(6) {
        // Half of the pages are the first ones of segments, or the last.
        let page = match random.below(4) {
            0 => random.below(pages) / 512 * 512,
            1 => random.below(pages) / 512 * 512 + 511,
            _ => random.below(pages),
        };
        let other = random.below(pages) * PAGE;
        let (at, cut) = (page * PAGE, random.below(PAGE));
        match random.below(6) {
            0 => image[at..at + PAGE].fill(0),
            1 => image[at..at + PAGE].copy_from_slice(&random.bytes(PAGE)),
            2 => image.copy_within(other..other + PAGE, at),
            3 => image[at + cut..at + PAGE].fill(0xff),
            4 => (0..20).for_each(|_| image[at + random.below(PAGE)] ^= 1 << random.below(8)),
            _ => image.copy_within(other..other + cut, at),
        }
    }
    if random.below(10) == 0 {
        let at = random.below(pages) * PAGE;
        image[at..].fill(0);
    }
}

#[test]
fn pages_of_anything_are_never_a_panic_and_never_a_value_that_nobody_stored() {
    let seed = seed("pages");
    let mut random = Random(seed.value);
    let mut opened = 0;
    for is_closed in [true, false] {
        let (good, index, versions) = image(&mut random, is_closed);
        for _ in 0..rounds() {
            let mut bad = good.clone();
            damage_pages(&mut random, &mut bad);
            opened += usize::from(use_it(&bad, index.as_deref(), Some(&versions)));
        }
    }
    assert!(opened > 0);
}

/// Images to try of each kind.
fn rounds() -> usize {
    std::env::var("UNVME_TEST_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(15)
}

/// A number that is likely to be an edge.
fn edge(random: &mut Random) -> u64 {
    match random.below(6) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << random.below(64),
        3 => (1u64 << random.below(64)).wrapping_sub(1),
        4 => random.below(5000) as u64,
        _ => random.next(),
    }
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = image.get_mut(at..at + bytes.len()) {
        to.copy_from_slice(bytes);
    }
}

/// Gives some fields of a segment other numbers, with checksums that fit them: the store's secret is on the
/// media.
fn forge(random: &mut Random, image: &mut [u8], segment: usize) {
    let base = segment * SEGMENT_BYTES;
    let HeaderRead::Valid(_, header) = SegmentHeader::read(&image[base..base + 64]) else { return };
    let (secret, nonce) = (header.secret.get(), header.nonce.get());
    match random.below(5) {
        0 => {
            // Header: kind, incarnation or nonce.
            let (field, bytes) = [(12, 4), (32, 8), (40, 4)][random.below(3)];
            let value = match field {
                12 => 1 + random.below(3) as u64,
                _ => edge(random),
            };
            put(image, base + field, &value.to_le_bytes()[..bytes]);
            let check = checksum::of_metadata(0, &image[base..base + 56]);
            put(image, base + 56, &check.to_le_bytes());
            image.copy_within(base..base + 64, base + HEADER_AT[1]);
        }
        1 => put(image, base + TAIL_AT, &tail_word(edge(random) as usize, nonce).to_le_bytes()),
        2 => {
            let kind = [SegmentKind::Free, SegmentKind::Log, SegmentKind::Extent][random.below(3)];
            let nonce = if random.below(4) == 0 { edge(random) as u32 } else { nonce };
            let incarnation = if random.below(2) == 0 { edge(random) } else { header.incarnation.get() };
            let synced_end = edge(random) as u32;
            let listed = Listed { kind, incarnation, nonce, synced_end };
            let entry = DirectoryEntry::new(&listed, secret, segment as u32);
            let copies = random.below(3);
            for host in hosts(segment as u32, image.len() / SEGMENT_BYTES) {
                if copies != host as usize % 2 {
                    let at = host as usize * SEGMENT_BYTES + DIRECTORY_AT;
                    put(image, at + segment % GROUP_SEGMENTS * 32, entry.as_bytes());
                }
            }
        }
        3 => forge_summary(random, image, base, secret, nonce),
        _ => {
            for _ in 0..1 + random.below(20) {
                forge_record(random, image, base, secret, nonce);
            }
        }
    }
}

fn forge_summary(random: &mut Random, image: &mut [u8], base: usize, secret: u64, nonce: u32) {
    let trailer = base + TRAILER_AT;
    let mut entries = u32::from_le_bytes(image[trailer + 12..trailer + 16].try_into().unwrap()) as usize;
    if entries > 5000 {
        return;
    }
    if random.below(4) == 0 {
        entries = random.below(130_000);
        put(image, trailer + 12, &(entries as u32).to_le_bytes());
    }
    if random.below(4) == 0 {
        put(image, trailer + 16, &(edge(random) as u32).to_le_bytes());
    }
    let start = trailer - entries * 16;
    for _ in 0..random.below(30).min(entries) {
        let entry = start + random.below(entries) * 16;
        match random.below(5) {
            0 => put(image, entry, &edge(random).to_le_bytes()),
            1 => put(image, entry + 8, &edge(random).to_le_bytes()),
            2 => image.copy_within(start..start + 16, entry),
            3 => {
                // Another kind.
                let word = u64::from_le_bytes(image[entry + 8..entry + 16].try_into().unwrap());
                let word = word & !(7 << 17) | (random.below(8) as u64) << 17;
                put(image, entry + 8, &word.to_le_bytes());
            }
            _ => {
                // The hash of another record.
                let other = start + random.below(entries) * 16;
                image.copy_within(other..other + 8, entry);
            }
        }
    }
    let summary = checksum::of_metadata(secret ^ u64::from(nonce), &image[start..trailer]);
    put(image, trailer, b"UNVMEKVS");
    put(image, trailer + 8, &nonce.to_le_bytes());
    put(image, trailer + 48, &summary.to_le_bytes());
    let check = checksum::of_metadata(secret, &image[trailer..trailer + 56]);
    put(image, trailer + 56, &check.to_le_bytes());
}

fn forge_record(random: &mut Random, image: &mut [u8], base: usize, secret: u64, nonce: u32) {
    // Some record of the segment.
    let from = DATA_START + random.below(SEGMENT_BYTES - DATA_START) / 2 / 16 * 16;
    let found = (from..TRAILER_AT - 32).step_by(16).find(|at| {
        image[base + at + 24..base + at + 28] == nonce.to_le_bytes()
            && RecordHead::parse(&image[base + at..base + SEGMENT_BYTES]).is_some()
    });
    let Some(at) = found.map(|at| base + at) else { return };
    let (field, bytes) = [(8, 8), (16, 4), (20, 4), (28, 1), (29, 1), (30, 1), (31, 1)][random.below(7)];
    let value = match field {
        29..32 => random.below(3) as u64,
        _ => edge(random),
    };
    put(image, at + field, &value.to_le_bytes()[..bytes]);
    let Some(head) = RecordHead::parse(&image[at..]) else { return };
    let end = (at + head.head_bytes()).min(image.len());
    let check = checksum::of_metadata(secret, &image[at + 8..end]);
    put(image, at, check.as_bytes());
}

#[test]
fn wrong_numbers_with_right_checksums_are_never_a_panic() {
    let seed = seed("forged");
    let mut random = Random(seed.value);
    for is_closed in [true, false] {
        let (good, ..) = image(&mut random, is_closed);
        for _ in 0..rounds() {
            let mut bad = good.clone();
            for _ in 0..1 + random.below(8) {
                let segment = random.below(bad.len() / SEGMENT_BYTES);
                forge(&mut random, &mut bad, segment);
            }
            use_it(&bad, None, None);
        }
    }
}

/// The index that was saved says anything, and has the checksum of what it says.
#[test]
fn a_saved_index_with_wrong_numbers_and_a_right_checksum_is_never_a_panic() {
    let seed = seed("forged_index");
    let mut random = Random(seed.value);
    let (good, index, _) = image(&mut random, true);
    let index = index.expect("it was closed");
    let HeaderRead::Valid(_, header) = SegmentHeader::read(&good[..64]) else { panic!("no header") };
    let moment = u64::from_le_bytes(index[24..32].try_into().unwrap());
    let end = index.len() - 8;
    let described = 56 + 24 * (good.len() / SEGMENT_BYTES) + 40 * 256;
    let mut taken = 0;
    for _ in 0..4 * rounds() {
        let mut bad = index.clone();
        for _ in 0..1 + random.below(4) {
            // What comes before the buckets, more often than they deserve by size.
            let limit = if random.below(2) == 0 { described.min(end) } else { end };
            let at = random.below(limit) / 4 * 4;
            let bytes = [1, 4, 8][random.below(3)];
            put(&mut bad[..end], at, &edge(&mut random).to_le_bytes()[..bytes]);
        }
        if random.below(8) == 0 {
            bad.truncate(random.below(end));
        }
        if bad.len() > 8 {
            let end = bad.len() - 8;
            let check = checksum::of_metadata(header.secret.get() ^ moment, &bad[..end]);
            bad[end..].copy_from_slice(&check.to_le_bytes());
        }
        let disk = Disk::new(&good, || {});
        disk.indexes.lock().unwrap().push(bad.clone());
        taken += usize::from(open(Box::new(DiskStore(disk))).is_saved.load(Ordering::Relaxed));
        use_it(&good, Some(&bad), None);
    }
    assert!(taken > 0, "what is forged is never even looked at");
}
