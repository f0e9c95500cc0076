//! The index that is saved when a store is closed, and keys that it cannot tell apart.

use std::path::Path;
use std::sync::atomic::Ordering;

use zerocopy::IntoBytes;

use super::*;
use crate::kv::layout::{HEADER_AT, HeaderRead, SegmentHeader, SegmentKind};
use crate::kv::{Key, StorePolicy};

const BYTES: u64 = 32 << 20;

fn opened(path: &Path) -> Pairs {
    Pairs::new(open(folder(path, BYTES)), 0)
}

fn is_saved(pairs: &Pairs) -> bool {
    pairs.store.is_saved.load(Ordering::Relaxed)
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("index"))
        .collect();
    names.sort();
    names
}

#[test]
fn a_store_that_was_closed_opens_from_its_index_and_knows_everything() {
    let path = tempfile::tempdir().unwrap();
    let mut pairs = Pairs::new(create(folder(path.path(), BYTES)), 0);
    let mut random = Random(21);
    let value = |number: u32| vec![number as u8; 1 + number as usize % 900];
    for number in 0..9000u32 {
        pairs.put(&(number % 3000).to_be_bytes(), &value(number)).unwrap();
    }
    for _ in 0..9000 {
        // More older records than a slot can count.
        pairs.put(b"hot", b"again").unwrap();
    }
    let big = random.bytes(5_000_000);
    pairs.put(b"big", &big).unwrap();
    for number in 0..500u32 {
        pairs.delete(&number.to_be_bytes()).unwrap();
    }
    let before = pairs.store.stats();
    drop(pairs);
    assert_eq!(names(path.path()), ["index-0.kv"]);

    let mut pairs = opened(path.path());
    assert!(is_saved(&pairs));
    let after = pairs.store.stats();
    assert_eq!((after.pairs, after.used_bytes), (before.pairs, before.used_bytes));
    for number in 0..3000u32 {
        let expected = if number < 500 { Err(KvError::NotFound) } else { Ok(value(6000 + number)) };
        assert_eq!(pairs.get(&number.to_be_bytes()), expected, "{number}");
    }
    assert_eq!(pairs.get(b"big").unwrap(), big);
    assert_eq!(pairs.store.check(), []);
    assert_eq!(pairs.keys(b"").len() as u64, before.pairs);
    assert!(is_saved(&pairs), "reading changes nothing");
    // Who reads only writes nothing.
    let modified = || std::fs::metadata(path.path().join("index-0.kv")).unwrap().modified().unwrap();
    let then = modified();
    drop(pairs);
    assert_eq!(modified(), then);

    // The counts of older records are right: when the log has been turned over nothing is left of what was
    // deleted.
    let mut pairs = opened(path.path());
    pairs.delete(b"hot").unwrap();
    assert!(!is_saved(&pairs));
    for number in 0..3000u32 {
        pairs.delete(&number.to_be_bytes()).unwrap();
    }
    for _ in 0..4000 {
        let key = (9000 + random.below(20) as u32).to_be_bytes();
        pairs.put(&key, &random.bytes(20_000)).unwrap();
    }
    let (mut slots, mut parts) = (0, 0);
    let index = &pairs.store.index;
    (0..index.shards()).for_each(|n| {
        index.lock_shard(n).for_each(|_, slot| *if slot.is_part() { &mut parts } else { &mut slots } += 1);
    });
    // And the value in pieces: two extents, and fourteen parts.
    assert_eq!((slots, parts), (21, 14));
}

#[test]
fn an_index_counts_until_the_first_change_and_no_longer() {
    let path = tempfile::tempdir().unwrap();
    let mut pairs = Pairs::new(create(folder(path.path(), BYTES)), 0);
    pairs.put(b"key", b"old").unwrap();
    drop(pairs);
    let index = path.path().join("index-0.kv");
    let old = std::fs::read(&index).unwrap();
    for value in [b"new".as_slice(), b"newer"] {
        let mut pairs = opened(path.path());
        assert!(is_saved(&pairs));
        pairs.put(b"key", value).unwrap();
        // Killed: nothing is written when the store goes.
        pairs.store.abandon();
        drop(pairs);
        std::fs::write(&index, &old).unwrap();
        let mut pairs = opened(path.path());
        assert!(!is_saved(&pairs), "of another moment");
        assert_eq!(pairs.get(b"key").unwrap(), value);
    }
    // Also when nothing was changed after all: somebody has begun to write.
    drop(opened(path.path()));
    let kept = std::fs::read(&index).unwrap();
    std::fs::remove_file(&index).unwrap();
    let pairs = opened(path.path());
    pairs.store.abandon();
    drop(pairs);
    std::fs::write(&index, &kept).unwrap();
    assert!(!is_saved(&opened(path.path())));
    // Nor does that of a store that was on the same chunks before.
    let kept = std::fs::read(&index).unwrap();
    drop(create(folder(path.path(), BYTES)));
    std::fs::write(&index, &kept).unwrap();
    let mut pairs = opened(path.path());
    assert!(!is_saved(&pairs));
    assert_eq!(pairs.exist(b"key"), Ok(false));
    drop(pairs);
    // When the namespace goes, so does its index.
    let pairs = opened(path.path());
    assert!(is_saved(&pairs) && index.exists());
    pairs.store.abandon();
    pairs.store.drop_index();
    drop(pairs);
    assert_eq!(names(path.path()), Vec::<String>::new());
}

#[test]
fn an_index_that_says_other_of_a_segment_than_the_media_does_not_count() {
    let disk = Disk::new(&vec![0; 16 << 20], || {});
    let mut pairs = Pairs::new(create(Box::new(DiskStore(Arc::clone(&disk)))), 0);
    pairs.put(b"key", b"value").unwrap();
    drop(pairs);
    let HeaderRead::Valid(SegmentKind::Log, header) = SegmentHeader::read(&disk.image()[..64]) else {
        panic!("the first segment has the pair");
    };
    assert!(is_saved(&Pairs::new(open(Box::new(DiskStore(Arc::clone(&disk)))), 0)));
    // The media is of a later moment, and has an older superblock.
    let (incarnation, nonce) = (header.incarnation.get() + 1, header.nonce.get());
    let later = SegmentHeader::new(SegmentKind::Free, header.identity(), 0, incarnation, nonce);
    for at in HEADER_AT {
        disk.memory.write(at, later.as_bytes());
    }
    let mut pairs = Pairs::new(open(Box::new(DiskStore(Arc::clone(&disk)))), 0);
    assert!(!is_saved(&pairs));
    assert_eq!((pairs.exist(b"key"), pairs.store.stats().pairs), (Ok(false), 0));
}

#[test]
fn an_index_that_cannot_be_saved_costs_nothing_but_time() {
    let path = tempfile::tempdir().unwrap();
    let mut pairs = Pairs::new(create(folder(path.path(), BYTES)), 0);
    pairs.put(b"key", b"value").unwrap();
    // Something is where the file is to be written.
    let index = path.path().join("index-0.kv");
    std::fs::create_dir(path.path().join("index-0.kv.new")).unwrap();
    drop(pairs);
    assert!(!index.exists());
    let mut pairs = opened(path.path());
    assert!(!is_saved(&pairs));
    assert_eq!(pairs.get(b"key").unwrap(), b"value");
}

/// Two keys with one hash, in whatever order they are stored, deleted and moved, and however the store is
/// opened again.
#[test]
fn keys_with_one_hash_are_told_apart_by_what_they_are() {
    let seed = seed("twins");
    let mut random = Random(seed.value);
    for round in 0..30 {
        let path = tempfile::tempdir().unwrap();
        let mut pairs = Pairs::new(create(folder(path.path(), BYTES)), 0);
        let names = [b"first".as_slice(), b"second", b"third"];
        let mut model: [Option<Vec<u8>>; 3] = [None, None, None];
        for step in 0..40 {
            let which = random.below(3);
            let key = twin(names[which]);
            if random.below(4) == 0 {
                let existed = pairs.store.delete(&key, &mut pairs.scratch).unwrap();
                assert_eq!(existed, model[which].take().is_some(), "round {round}, step {step}");
            } else {
                let value = vec![step as u8; 1 + random.below(2000)];
                pairs.put_at(&key, &value).unwrap();
                model[which] = Some(value);
            }
            match random.below(12) {
                0 => pairs.store.close().unwrap(),
                1 => {
                    pairs.store.close().unwrap();
                    pairs.store.empty_all_dead();
                }
                2 => {
                    pairs.store.close().unwrap();
                    if random.below(2) == 0 {
                        let _ = std::fs::remove_file(path.path().join("index-0.kv"));
                    }
                    pairs.store.abandon();
                    pairs = opened(path.path());
                }
                _ => {}
            }
            for (name, expected) in names.iter().zip(&model) {
                let found = pairs.get_at(&twin(name)).ok();
                assert!(
                    found == *expected,
                    "round {round}, step {step}: {} has {:?} bytes instead of {:?}",
                    String::from_utf8_lossy(name),
                    found.map(|value| value.len()),
                    expected.as_ref().map(Vec::len)
                );
            }
        }
        assert_eq!(pairs.store.stats().pairs, model.iter().flatten().count() as u64);
    }
}

/// A key whose hash is that of all others of its kind.
fn twin(bytes: &[u8]) -> Key<'_> {
    Key { keyspace: 0, bytes, hash: 0x7711_0000_0000_0077 }
}

impl Pairs {
    fn put_at(&mut self, key: &Key<'_>, value: &[u8]) -> Result<(), KvError> {
        self.host.write(0, value);
        let pieces = self.pieces(value.len());
        let data = HostData { host: &self.view, pieces: &pieces, bytes: value.len() as u32 };
        self.store.store(key, data, StorePolicy::default(), &mut self.scratch)
    }

    fn get_at(&mut self, key: &Key<'_>) -> Result<Vec<u8>, KvError> {
        let pieces = self.pieces(4000);
        let data = HostData { host: &self.view, pieces: &pieces, bytes: 4000 };
        let part = Part { next_read: NOWHERE, ..Part::default() };
        let length = self.store.retrieve(key, part, data, &mut self.scratch)?;
        let mut out = vec![0; length as usize];
        self.host.read(0, &mut out);
        Ok(out)
    }
}
