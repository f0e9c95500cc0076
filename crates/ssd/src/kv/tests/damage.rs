//! Flipped bytes.

use std::collections::BTreeMap;

use super::*;
use crate::kv::layout::{DIRECTORY_AT, SEGMENT_BYTES, TAIL_AT, TRAILER_AT};

type Model = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A store's image with values of all sizes, superseded and deleted ones among them. With `is_closed` as it
/// is after shutdown, else as a kill leaves it.
fn image(random: &mut Random, is_closed: bool) -> (Arc<Disk>, Model) {
    let disk = Disk::new(&vec![0; 32 << 20], || {});
    let mut pairs = Pairs::new(create(Box::new(DiskStore(Arc::clone(&disk)))), 0);
    let mut model = Model::new();
    for number in 0..700 {
        let key = format!("key {}", random.below(300)).into_bytes();
        let bytes = match number {
            650 => 3_000_000,
            // Compressed, and cut then.
            620 | 640 => 1_200_000,
            _ if number % 50 == 0 => random.below(100_000),
            _ => random.below(5000),
        };
        let is_packed = number % 20 == 0;
        let value = (is_packed || number % 6 > 0)
            .then(|| if is_packed { random.half(bytes) } else { random.bytes(bytes) });
        match &value {
            Some(value) if is_packed => pairs.put_packed(&key, value).unwrap(),
            Some(value) => pairs.put(&key, value).unwrap(),
            None => {
                pairs.delete(&key).unwrap();
            }
        }
        model.insert(key, value);
        if number == 400 && !is_closed {
            pairs.store.close().unwrap();
        }
    }
    // What a kill leaves, or what it leaves after shutdown.
    if is_closed {
        pairs.store.close().unwrap();
    }
    let left = disk.killed(&disk.image());
    (left, model)
}

/// A byte worth flipping: of a record, or of what describes a segment.
fn target(random: &mut Random, image: &[u8]) -> usize {
    loop {
        let segment = random.below(image.len() / SEGMENT_BYTES) * SEGMENT_BYTES;
        let at = segment
            + match random.below(10) {
                0 => random.below(64),
                1 if random.below(2) == 0 => TAIL_AT + random.below(8),
                1 => DIRECTORY_AT + random.below(8 * 32),
                2 => TRAILER_AT + random.below(64),
                3 => TRAILER_AT - 1 - random.below(2000),
                4 => 4032 + random.below(64),
                5 => 4096 + random.below(40_000),
                _ => random.below(SEGMENT_BYTES),
            };
        if image[at] != 0 {
            return at;
        }
    }
}

fn flip_and_check((disk, image): (&Disk, &[u8]), at: usize, bit: u8, model: &Model) {
    let mut flipped = image.to_vec();
    flipped[at] ^= 1 << bit;
    let mut pairs = Pairs::new(open(Box::new(DiskStore(disk.killed(&flipped)))), 0);
    let mut wrong = Vec::new();
    for (key, value) in model {
        match (pairs.get(key), value) {
            (Ok(found), Some(value)) if found == *value => {}
            (Err(KvError::NotFound), None) => {}
            // Of a pair, or of the record that says that there is none.
            (Err(KvError::Unrecovered), _) => wrong.push(key),
            (found, _) => {
                let what = found.map(|v| v.len());
                panic!("byte {at:#x}: {}: {what:?}", String::from_utf8_lossy(key));
            }
        }
    }
    pairs.check_listing(model, &format!("byte {at:#x}"));
    assert!(wrong.len() <= 1, "byte {at:#x}: {} pairs are gone", wrong.len());
    if !wrong.is_empty() {
        assert_ne!(pairs.store.check(), [], "byte {at:#x}: lost and not reported");
    }
    // What is damaged can be replaced and deleted.
    for key in wrong {
        pairs.put(key, b"new").unwrap();
        assert_eq!(pairs.get(key).unwrap(), b"new");
        assert_eq!(pairs.delete(key), Ok(true));
        assert_eq!(pairs.exist(key), Ok(false));
        let there =
            model.iter().filter(|(other, value)| *other != key && value.is_some()).map(|(key, _)| key);
        assert!(pairs.keys(b"").iter().eq(there), "byte {at:#x}: nothing is missed any more");
    }
}

#[test]
fn a_flipped_byte_costs_one_pair_at_most_and_is_never_a_wrong_value() {
    let seed = seed("flips");
    let mut random = Random(seed.value);
    let (disk, model) = image(&mut random, true);
    let image = disk.image();
    for _ in 0..120 {
        let (at, bit) = (target(&mut random, &image), random.below(8) as u8);
        flip_and_check((&disk, &image), at, bit, &model);
    }
}

#[test]
fn a_flipped_byte_in_the_log_of_a_killed_store_is_reported() {
    let seed = seed("flips_after_a_kill");
    let mut random = Random(seed.value);
    let (disk, model) = image(&mut random, false);
    let image = disk.image();
    for _ in 0..120 {
        let (at, bit) = (target(&mut random, &image), random.below(8) as u8);
        flip_and_check((&disk, &image), at, bit, &model);
    }
}

#[test]
fn damage_under_a_running_store_is_an_error_of_the_pair_and_survives_reclaim() {
    let seed = seed("running");
    let mut random = Random(seed.value);
    let disk = Disk::new(&vec![0; 16 << 20], || {});
    let mut pairs = Pairs::new(create(Box::new(DiskStore(Arc::clone(&disk)))), 0);
    for number in 0..100u32 {
        pairs.put(&number.to_be_bytes(), &number.to_le_bytes().repeat(500)).unwrap();
    }
    // In the value of one pair and in the key of another.
    let image = disk.image();
    let find = |wanted: &[u8]| image.windows(wanted.len()).position(|w| w == wanted).expect("there");
    let value_at = find(&7u32.to_le_bytes().repeat(500)) + 1000;
    let key_at = find(&9u32.to_le_bytes().repeat(500)) - 8;
    assert_eq!(image[key_at..key_at + 4], 9u32.to_be_bytes());
    disk.memory.write(value_at, &[0xee]);
    disk.memory.write(key_at, &[0xee]);
    for round in 0..3 {
        for number in 0..100u32 {
            let expected = match number {
                7 | 9 => Err(KvError::Unrecovered),
                _ => Ok(number.to_le_bytes().repeat(500)),
            };
            assert_eq!(pairs.get(&number.to_be_bytes()), expected, "round {round}");
        }
        assert_eq!(pairs.store.check().len(), 2);
        // Turns the whole log over several times.
        for _ in 0..3000 {
            let key = 1000 + random.below(50) as u32;
            pairs.put(&key.to_be_bytes(), &random.bytes(8000)).unwrap();
        }
    }
    for number in [7u32, 9] {
        assert_eq!(pairs.delete(&number.to_be_bytes()), Ok(true));
        assert_eq!(pairs.get(&number.to_be_bytes()), Err(KvError::NotFound));
    }
    assert_eq!(pairs.store.check(), []);
}

#[test]
fn a_damaged_pair_that_is_stored_again_is_listed_again() {
    let disk = Disk::new(&vec![0; 16 << 20], || {});
    let mut pairs = Pairs::new(create(Box::new(DiskStore(Arc::clone(&disk)))), 0);
    pairs.put(b"key", b"value").unwrap();
    let at = disk.image().windows(5).position(|w| w == b"value").expect("there");
    disk.memory.write(at - 8, b"x");
    pairs.put(b"other", b"value").unwrap();
    // Behind what can be listed, and not before it.
    assert_eq!(pairs.list(b""), (vec![b"other".to_vec()], Err(KvError::Unrecovered)));
    pairs.put(b"key", b"again").unwrap();
    assert_eq!(pairs.keys(b""), [b"key".to_vec(), b"other".to_vec()]);
}

#[test]
fn reclaim_leaves_a_damaged_record_where_it_is_when_the_summary_is_damaged_too() {
    let mut random = Random(5);
    let disk = Disk::new(&vec![0; 16 << 20], || {});
    let mut pairs = Pairs::new(create(Box::new(DiskStore(Arc::clone(&disk)))), 0);
    for number in 0..100u32 {
        pairs.put(&number.to_be_bytes(), &number.to_le_bytes().repeat(500)).unwrap();
    }
    pairs.store.close().unwrap();
    let image = disk.image();
    let value = 7u32.to_le_bytes().repeat(500);
    let at = image.windows(value.len()).position(|w| w == value).expect("there");
    disk.memory.write(at + 1000, &[0xee]);
    disk.memory.write(at / SEGMENT_BYTES * SEGMENT_BYTES + TRAILER_AT, b"x");
    // Records of the same size: were the segment used again, one of them would be where the damaged one was.
    for _ in 0..20_000 {
        pairs.put(&(1000 + random.below(50) as u32).to_be_bytes(), &random.bytes(2000)).unwrap();
    }
    for number in 0..100u32 {
        let expected = match number {
            7 => Err(KvError::Unrecovered),
            _ => Ok(number.to_le_bytes().repeat(500)),
        };
        assert_eq!(pairs.get(&number.to_be_bytes()), expected, "{number}");
    }
}

#[test]
fn a_segment_whose_first_page_is_lost_loses_nothing() {
    let mut random = Random(6);
    for is_closed in [true, false] {
        let (disk, model) = image(&mut random, is_closed);
        let good = disk.image();
        let used = (1..good.len() / SEGMENT_BYTES).filter(|s| good[s * SEGMENT_BYTES + 12] == 2);
        for segment in used.map(|segment| segment * SEGMENT_BYTES) {
            for fill in [0, 0xff] {
                let mut bad = good.clone();
                bad[segment..segment + 4096].fill(fill);
                for _ in 0..2 {
                    let disk = disk.killed(&bad);
                    let mut pairs = Pairs::new(open(Box::new(DiskStore(Arc::clone(&disk)))), 0);
                    assert_eq!(pairs.store.check(), [], "{segment:#x} {fill}");
                    for (key, value) in &model {
                        assert_eq!(pairs.get(key).ok().as_ref(), value.as_ref(), "{segment:#x} {fill}");
                    }
                    drop(pairs);
                    bad = disk.image();
                }
            }
        }
    }
}
