//! Readers beside a writer and reclaim.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

const KEYS: usize = 40;

/// A value that says which version it is everywhere: a torn one shows.
fn value(version: u32) -> Vec<u8> {
    version.to_le_bytes().repeat(16 + version as usize % 3000)
}

#[test]
fn readers_see_whole_values_that_only_get_newer_while_a_writer_overwrites_and_reclaims() {
    let store = create(memory(16 << 20));
    let mut writer = Pairs::new(Arc::clone(&store), 0);
    for key in 0..KEYS {
        writer.put(&key.to_be_bytes(), &value(0)).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 1..3 {
            let (store, done) = (Arc::clone(&store), &done);
            scope.spawn(move || {
                let mut pairs = Pairs::new(store, reader);
                let mut random = Random(u64::from(reader));
                let mut newest = [0; KEYS];
                while !done.load(Ordering::Relaxed) {
                    let key = random.below(KEYS);
                    let (found, length) = pairs.part(&key.to_be_bytes(), 0, 16_000, false).unwrap();
                    let version = u32::from_le_bytes(found[..4].try_into().unwrap());
                    assert_eq!(found.len(), length as usize);
                    assert!(found == value(version), "key {key}, version {version}");
                    assert!(version >= newest[key], "key {key}: {version} after {}", newest[key]);
                    newest[key] = version;
                }
            });
        }
        for version in 1..25_000u32 {
            let key = (version.wrapping_mul(2_654_435_761) >> 16) as usize % KEYS;
            writer.put(&key.to_be_bytes(), &value(version)).unwrap();
            writer.store.maintain(20_000);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(store.stats().media_bytes_written > 64 << 20);
    assert_eq!(store.check(), []);
}

#[test]
fn writers_on_two_queues_lose_nothing_of_each_other() {
    let store = create(memory(64 << 20));
    std::thread::scope(|scope| {
        for lane in 0..2u16 {
            let store = Arc::clone(&store);
            scope.spawn(move || {
                let mut pairs = Pairs::new(store, lane);
                for number in 0..20_000u32 {
                    let own = [&lane.to_be_bytes()[..], &number.to_be_bytes()].concat();
                    pairs.put(&own, &number.to_le_bytes().repeat(10)).unwrap();
                    let common = number % 100;
                    match number % 3 {
                        0 => drop(pairs.delete(&common.to_be_bytes()).unwrap()),
                        _ => drop(pairs.append(&common.to_be_bytes(), &[lane as u8; 3]).unwrap()),
                    }
                }
            });
        }
    });
    let mut pairs = Pairs::new(Arc::clone(&store), 0);
    for lane in 0..2u16 {
        for number in 0..20_000u32 {
            let own = [&lane.to_be_bytes()[..], &number.to_be_bytes()].concat();
            assert_eq!(pairs.get(&own), Ok(number.to_le_bytes().repeat(10)));
        }
    }
    let common = (0..100u32).filter(|key| pairs.exist(&key.to_be_bytes()) == Ok(true)).count();
    assert_eq!(pairs.store.stats().pairs, 40_000 + common as u64);
    assert_eq!(pairs.keys(b"").len(), 40_000 + common);
}

#[test]
fn a_listing_that_begins_while_keys_come_and_go_has_all_that_stay() {
    let store = create(memory(64 << 20));
    let mut pairs = Pairs::new(Arc::clone(&store), 0);
    for number in 0..2000u32 {
        pairs.put(&[&b"stays"[..], &number.to_be_bytes()].concat(), b"").unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (store, done) = (Arc::clone(&store), &done);
        scope.spawn(move || {
            let mut pairs = Pairs::new(store, 1);
            let mut random = Random(3);
            while !done.load(Ordering::Relaxed) {
                let key = [&b"goes"[..], &random.below(500).to_be_bytes()].concat();
                pairs.put(&key, b"").unwrap();
                let key = [&b"goes"[..], &random.below(500).to_be_bytes()].concat();
                pairs.delete(&key).unwrap();
            }
        });
        for _ in 0..20 {
            assert_eq!(pairs.keys(b"stays").len(), 2000);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(pairs.keys(b"").len() as u64, store.stats().pairs);
}
