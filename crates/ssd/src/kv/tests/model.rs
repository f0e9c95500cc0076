//! Random operations against a map.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn random_key(random: &mut Random, keys: usize) -> Vec<u8> {
    let number = random.below(keys);
    let bytes = match number % 7 {
        0 => 255,
        1 => 1,
        2 => 4,
        3 => 23,
        _ => 16,
    };
    let mut key = vec![b'k'; bytes];
    let digits = format!("{number:x}");
    let used = bytes.min(digits.len());
    key[bytes - used..].copy_from_slice(&digits.as_bytes()[digits.len() - used..]);
    key
}

fn random_value(random: &mut Random) -> Vec<u8> {
    let bytes = match random.below(100) {
        0 => 0,
        1..50 => random.below(200),
        50..80 => random.below(9000),
        80..84 => 4096,
        84..97 => random.below(60_000),
        97 => random.below(1 << 20),
        98 => (2 << 20) - random.below(10_000),
        _ => random.below(5 << 20),
    };
    match random.below(3) {
        0 => random.bytes(bytes),
        1 => random.half(bytes),
        _ => vec![random.next() as u8; bytes],
    }
}

fn check_all(pairs: &mut Pairs, model: &Model) {
    for (key, value) in model {
        assert_eq!(pairs.get(key).as_ref(), Ok(value), "key {key:02x?} of {} bytes", value.len());
    }
    assert_eq!(pairs.store.stats().pairs, model.len() as u64);
}

fn random_operation(random: &mut Random, pairs: &mut Pairs, model: &mut Model) {
    let key = random_key(random, 150);
    let existing = model.get(&key).cloned();
    match random.below(20) {
        0..8 => {
            let value = random_value(random);
            let policy = StorePolicy {
                must_exist: random.below(10) == 0,
                must_not_exist: random.below(10) == 0,
                compress: random.below(4) == 0,
            };
            let expected = match &existing {
                None if policy.must_exist => Err(KvError::NotFound),
                Some(_) if policy.must_not_exist => Err(KvError::Exists),
                _ => Ok(()),
            };
            match pairs.store_with(&key, &value, policy) {
                Err(KvError::Full) => {
                    let stats = pairs.store.stats();
                    let left = stats.capacity_bytes - stats.used_bytes;
                    assert!(value.len() as u64 * 2 + 200_000 > left, "full with {left} bytes left");
                }
                result => {
                    assert_eq!(result, expected);
                    if expected.is_ok() {
                        model.insert(key, value);
                    }
                }
            }
        }
        8..10 => {
            let value = random.bytes(random.0 as usize % 5000);
            let mut sum = existing.unwrap_or_default();
            sum.extend_from_slice(&value);
            match pairs.append(&key, &value) {
                Err(KvError::Full) => {}
                result => {
                    assert_eq!(result, Ok(sum.len() as u32));
                    model.insert(key, sum);
                }
            }
        }
        10..14 => {
            assert_eq!(pairs.delete(&key), Ok(existing.is_some()));
            model.remove(&key);
        }
        14..18 => {
            let length = existing.as_ref().map_or(0, Vec::len);
            let offset = random.below(length + 100);
            let bytes = random.below(20_000);
            let expected = existing.map(|value| {
                let end = value.len().min(offset + bytes);
                (value.get(offset..end).unwrap_or_default().to_vec(), value.len() as u32)
            });
            assert_eq!(pairs.part(&key, offset as u32, bytes, false), expected.ok_or(KvError::NotFound));
        }
        18 => assert_eq!(pairs.exist(&key), Ok(existing.is_some())),
        _ => {
            let listed = pairs.keys(&key);
            let expected: Vec<_> = model.range(key..).map(|(key, _)| key.clone()).collect();
            assert_eq!(listed, expected);
        }
    }
    if random.below(30) == 0 {
        pairs.store.maintain(100_000);
    }
}

#[test]
fn random_operations_give_what_a_map_gives_over_reopening_and_killing() {
    let seed = seed("random_operations");
    let mut random = Random(seed.value);
    for _ in 0..3 {
        let disk = Disk::new(&vec![0; 32 << 20], || {});
        let mut pairs = Pairs::new(create(Box::new(DiskStore(Arc::clone(&disk)))), 0);
        let mut disk = disk;
        let mut model = Model::new();
        for step in 0..6000 {
            random_operation(&mut random, &mut pairs, &mut model);
            if random.below(800) == 0 || step == 5999 {
                check_all(&mut pairs, &model);
                // A process that is killed leaves its memory as it is; one that ends closes the store.
                let killed = random.below(2) == 0;
                let image = killed.then(|| disk.image());
                drop(pairs);
                disk = Disk::new(&image.unwrap_or_else(|| disk.image()), || {});
                pairs = Pairs::new(open(Box::new(DiskStore(Arc::clone(&disk)))), 0);
                assert_eq!(pairs.store.check(), [], "killed: {killed}");
                check_all(&mut pairs, &model);
            }
        }
    }
}

#[test]
fn a_value_of_the_largest_size_comes_back_whole_and_in_parts() {
    let bytes = super::super::VALUE_BYTES_MAX as usize;
    let mut pairs = Pairs::with_host(create(memory(1 << 30)), 0, bytes + 4096);
    let mut value = Random(1).bytes(bytes);
    pairs.put(b"big", &value).unwrap();
    assert!(pairs.get(b"big").unwrap() == value);
    for (offset, length) in [(0, 1), (2_093_055, 2), (bytes - 1, 10), (100_000_000, 5_000_000)] {
        let (part, whole) = pairs.part(b"big", offset as u32, length, false).unwrap();
        assert!(part == value[offset..bytes.min(offset + length)]);
        assert_eq!(whole as usize, bytes);
    }
    value.push(0);
    assert_eq!(pairs.put(b"bigger", &value), Err(KvError::TooLong));
    assert_eq!(pairs.append(b"big", b"x"), Err(KvError::TooLong));
    let used = pairs.store.stats().used_bytes;
    assert!(used > bytes as u64 * 9 / 10);
    assert_eq!(pairs.delete(b"big"), Ok(true));
    assert!(pairs.store.stats().used_bytes < 100);
}

#[test]
fn a_compressed_value_takes_less_space_and_its_stored_form_can_be_read() {
    let mut pairs = Pairs::new(create(memory(64 << 20)), 0);
    let value = vec![7; 1 << 20];
    let policy = StorePolicy { compress: true, ..StorePolicy::default() };
    pairs.store_with(b"packed", &value, policy).unwrap();
    assert!(pairs.store.stats().used_bytes < 10_000);
    assert_eq!(pairs.get(b"packed").unwrap(), value);
    assert_eq!(pairs.part(b"packed", 5, 3, false), Ok((vec![7; 3], 1 << 20)));
    let (stored, length) = pairs.part(b"packed", 0, 1 << 20, true).unwrap();
    assert_eq!(stored.len(), length as usize);
    assert_eq!(lz4_flex::block::decompress(&stored, 1 << 20).unwrap(), value);
    // What does not compress is stored as it is.
    let noise = Random(3).bytes(10_000);
    pairs.store_with(b"noise", &noise, policy).unwrap();
    assert_eq!(pairs.part(b"noise", 0, 10_000, true), Ok((noise, 10_000)));
}

#[test]
fn keys_of_the_two_keyspaces_are_apart() {
    let mut pairs = Pairs::new(create(memory(16 << 20)), 0);
    pairs.put(b"key", b"zero").unwrap();
    let store = Arc::clone(&pairs.store);
    let other = store.key(1, b"key");
    assert_eq!(store.exist(&other, &mut pairs.scratch), Ok(false));
    let nothing = HostData { host: &pairs.view, pieces: &[], bytes: 0 };
    store.store(&other, nothing, StorePolicy::default(), &mut pairs.scratch).unwrap();
    assert_eq!(pairs.get(b"key").unwrap(), b"zero");
    assert_eq!(store.delete(&other, &mut pairs.scratch), Ok(true));
    assert_eq!(pairs.exist(b"key"), Ok(true));
}

#[test]
fn listing_keeps_to_prefix_mask_length_and_position() {
    let mut pairs = Pairs::new(create(memory(16 << 20)), 0);
    for key in ["a", "ab", "abcd", "abcdefghijklmnopq", "abce", "b", "bbcd"] {
        pairs.put(key.as_bytes(), b"").unwrap();
    }
    let list = |listing: Listing<'_>| {
        let mut keys = Vec::new();
        let emit = |key: &[u8]| {
            keys.push(String::from_utf8(key.to_vec()).unwrap());
            true
        };
        pairs.store.list(listing, emit).unwrap();
        keys
    };
    let all = all_from(b"");
    assert_eq!(list(Listing { key_bytes_max: 16, ..all }), ["a", "ab", "abcd", "abce", "b", "bbcd"]);
    assert_eq!(list(Listing { start: b"abce", ..all }), ["abce", "b", "bbcd"]);
    assert_eq!(list(Listing { start: b"abce", after_start: true, ..all }), ["b", "bbcd"]);
    let prefix = u32::from_be_bytes(*b"abcd");
    assert_eq!(list(Listing { prefix, mask: u32::MAX, ..all }), ["abcd", "abcdefghijklmnopq"]);
    assert_eq!(
        list(Listing { prefix, mask: 0xffff_0000, start: b"abcd", after_start: true, ..all }),
        ["abcdefghijklmnopq", "abce"]
    );
    assert_eq!(list(Listing { prefix, mask: 0x00ff_ffff, ..all }), ["abcd", "abcdefghijklmnopq", "bbcd"]);
    assert_eq!(list(Listing { keyspace: 1, ..all }), Vec::<String>::new());
    let mut first = Vec::new();
    pairs
        .store
        .list(all, |key| {
            first.push(key.to_vec());
            first.len() < 2
        })
        .unwrap();
    assert_eq!(first, [b"a".to_vec(), b"ab".to_vec()]);
}

#[test]
fn a_value_that_compresses_to_a_little_more_than_a_segment_holds_comes_back_whole() {
    let mut pairs = Pairs::new(create(memory(64 << 20)), 0);
    let policy = StorePolicy { compress: true, ..StorePolicy::default() };
    for zeroes in (8_000..=16_000).step_by(1000) {
        let mut value = Random(3).bytes(2 << 20);
        value[..zeroes].fill(0);
        pairs.store_with(b"key", &value, policy).unwrap();
        assert!(pairs.get(b"key").as_ref() == Ok(&value), "{zeroes} zeroes");
    }
}
