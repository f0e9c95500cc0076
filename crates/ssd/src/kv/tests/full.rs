//! A full device.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::*;
use crate::kv::segment::{Purpose, State};

fn key(number: usize) -> Vec<u8> {
    format!("pair {number}").into_bytes()
}

/// Stores pairs of `bytes` until there is no space; returns how many.
fn fill(pairs: &mut Pairs, random: &mut Random, bytes: usize) -> usize {
    for number in 0.. {
        match pairs.put(&key(number), &random.bytes(bytes)) {
            Ok(()) => {}
            Err(KvError::Full) => return number,
            Err(error) => panic!("{error:?}"),
        }
    }
    0
}

#[test]
fn a_full_device_refuses_stores_takes_deletes_and_gives_the_space_back() {
    let mut random = Random(11);
    for bytes in [100, 4096, 70_000, 1_100_000, 3_000_000] {
        let mut pairs = Pairs::new(create(memory(32 << 20)), 0);
        let capacity = pairs.store.stats().capacity_bytes;
        let count = fill(&mut pairs, &mut random, bytes);
        let stats = pairs.store.stats();
        let left = capacity - stats.used_bytes;
        assert!((left as usize) < bytes * 2 + 200, "{bytes}: {count} pairs, {left} bytes of {capacity} left");
        assert_eq!(stats.pairs, count as u64);
        for round in 0..3 {
            // Overwriting takes no more space, however full the device is.
            for number in 0..count {
                let result = pairs.put(&key(number), &random.bytes(bytes));
                assert_eq!(result, Ok(()), "{bytes} bytes, round {round}, pair {number} of {count}");
            }
            for number in (0..count).step_by(2) {
                assert_eq!(pairs.delete(&key(number)), Ok(true));
            }
            assert_eq!(pairs.store.stats().pairs as usize, count / 2);
            for number in (0..count).step_by(2) {
                let result = pairs.put(&key(number), &random.bytes(bytes));
                if result == Err(KvError::Full) {
                    // Tombstones of pairs still in the log take some space.
                    assert!(count - number < count / 4 + 4, "{bytes} bytes: {number} of {count}");
                    break;
                }
                assert_eq!(result, Ok(()));
            }
        }
        for number in 0..count {
            pairs.delete(&key(number)).unwrap();
        }
        let stats = pairs.store.stats();
        assert_eq!(stats.pairs, 0);
        let again = fill(&mut pairs, &mut random, bytes);
        assert!(again * 10 >= count * 9, "{bytes} bytes: {again} pairs after {count}");
    }
}

#[test]
fn what_does_not_fit_leaves_the_old_value() {
    let mut random = Random(12);
    let mut pairs = Pairs::new(create(memory(16 << 20)), 0);
    fill(&mut pairs, &mut random, 10_000);
    let old = pairs.get(&key(0)).unwrap();
    assert_eq!(pairs.put(&key(0), &random.bytes(1 << 20)), Err(KvError::Full));
    assert_eq!(pairs.append(&key(0), &random.bytes(1 << 20)), Err(KvError::Full));
    assert_eq!(pairs.get(&key(0)), Ok(old));
    assert_eq!(pairs.put(b"new", &random.bytes(7 << 20)), Err(KvError::Full));
    assert_eq!(pairs.exist(b"new"), Ok(false));
}

#[test]
fn a_namespace_that_is_too_small_is_refused() {
    let media = Arc::new(Media::new(memory(14 << 20)).unwrap());
    let chunks = chunks_of(&media);
    let error = KvStore::create(media, chunks).err().expect("an error").to_string();
    assert_eq!(
        error,
        "bytes: 14680064 is not possible; expected at least 16777216 for a key-value namespace"
    );
}

#[test]
fn statistics_count_what_is_written_and_what_is_there() {
    let mut pairs = Pairs::new(create(memory(32 << 20)), 0);
    // Of 16 segments one is the append head's, three are reclaim's, and one keeps it from being busy all the
    // time.
    assert_eq!(pairs.store.stats().capacity_bytes, 11 * (2_097_152 - 65_536 - 8192));
    for number in 0..100 {
        pairs.put(&key(number), &[1; 4096]).unwrap();
    }
    let stats = pairs.store.stats();
    assert_eq!(stats.pairs, 100);
    assert_eq!(stats.host_bytes_written, 10 * (6 + 4096) + 90 * (7 + 4096));
    // A record of a 6- or 7-byte key: 32 + 8 + 4 + 60 + 4096, in whole 16 bytes, and 16 in the summary.
    assert_eq!(stats.used_bytes, 100 * (4208 + 16));
    assert!(stats.media_bytes_written >= 100 * 4208);
    for number in 0..100 {
        pairs.put(&key(number), &[2; 10]).unwrap();
    }
    // 32 + 8 + 4 + 10, in whole 16 bytes.
    assert_eq!(pairs.store.stats().used_bytes, 100 * (64 + 16));
    for number in 0..100 {
        pairs.put(&key(number), &[]).unwrap();
    }
    assert_eq!(pairs.store.stats().used_bytes, 100 * (48 + 16));
}

#[test]
fn deleted_keys_leave_the_index_and_the_log_once_their_records_are_gone() {
    let mut random = Random(13);
    let mut pairs = Pairs::new(create(memory(16 << 20)), 0);
    // One key with more versions than its slot can count, and many with a few.
    for version in 0..9000u32 {
        pairs.put(b"hot", &version.to_be_bytes()).unwrap();
        pairs.put(&key(version as usize % 3000), &version.to_be_bytes()).unwrap();
    }
    pairs.delete(b"hot").unwrap();
    for number in 0..3000 {
        pairs.delete(&key(number)).unwrap();
    }
    let slots = |pairs: &Pairs| {
        let mut count = 0;
        let index = &pairs.store.index;
        (0..index.shards()).for_each(|n| index.lock_shard(n).for_each(|_, _| count += 1));
        count
    };
    assert_eq!(slots(&pairs), 3001);
    // Turns the log over: what is dead goes, the older records first, then the tombstones.
    for _ in 0..4000 {
        let number = 5000 + random.below(20);
        pairs.put(&key(number), &random.bytes(20_000)).unwrap();
    }
    let stats = pairs.store.stats();
    assert_eq!((slots(&pairs), stats.pairs), (20, 20));
    assert!(stats.used_bytes < 20 * 20_300, "{}", stats.used_bytes);
}

/// A disk with space for so many chunks, which it keeps when the device is opened again.
struct Scarce {
    disk: DiskStore,
    space: usize,
    /// Chunks that have space, and may have been written.
    taken: Arc<Mutex<BTreeSet<u64>>>,
}

impl Store for Scarce {
    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }
    fn memory(&self) -> Option<&Region> {
        self.disk.memory()
    }
    fn life(&self) -> Option<[u8; 16]> {
        self.disk.life()
    }
    fn holds_data(&self, chunk: u64) -> bool {
        self.disk.holds_data(chunk)
    }
    fn reserve(&self, chunk: u64) -> Result<(), SsdError> {
        let mut taken = self.taken.lock().unwrap();
        if !taken.contains(&chunk) && taken.len() == self.space {
            let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(SsdError::File { path: "media".into(), what: "reserve space", source });
        }
        taken.insert(chunk);
        Ok(())
    }
    fn release(&self, chunk: u64) -> Result<(), SsdError> {
        self.taken.lock().unwrap().remove(&chunk);
        self.disk.release(chunk)
    }
    fn sync(&self) -> Result<(), SsdError> {
        self.disk.sync()
    }
    fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError> {
        Ok(None)
    }
    fn save_state(&self, _state: &[u8]) -> Result<(), SsdError> {
        Ok(())
    }
}

#[test]
fn pairs_are_deleted_and_stored_anew_on_a_file_system_without_space() {
    let mut random = Random(16);
    // Also so little that it ends with the first segments.
    for space in [4, 5, 9, 20] {
        let disk = Disk::new(&vec![0; 64 << 20], || {});
        let taken = Arc::new(Mutex::new(BTreeSet::new()));
        let scarce = || Scarce { disk: DiskStore(Arc::clone(&disk)), space, taken: Arc::clone(&taken) };
        let mut pairs = Pairs::new(create(Box::new(scarce())), 0);
        let count = fill(&mut pairs, &mut random, 10_000);
        assert!(count > 0, "{space} chunks");
        for round in 0..4 {
            // Closed, so that a deletion needs a segment.
            drop(pairs);
            pairs = Pairs::new(open(Box::new(scarce())), 0);
            for number in (round % 2..count).step_by(2) {
                let deleted = pairs.delete(&key(number));
                assert_eq!(deleted, Ok(true), "{space} chunks, round {round}: {number} of {count}");
            }
            drop(pairs);
            pairs = Pairs::new(open(Box::new(scarce())), 0);
            for number in 0..count {
                let expected = if number % 2 == round % 2 { Err(KvError::NotFound) } else { Ok(10_000) };
                assert_eq!(pairs.get(&key(number)).map(|value| value.len()), expected, "{space}: {number}");
            }
            // Segments that are open, and those that are kept, may take the space of some.
            let mut stored = 0;
            for number in (round % 2..count).step_by(2) {
                match pairs.put(&key(number), &random.bytes(10_000)) {
                    Ok(()) => stored += 1,
                    Err(KvError::Full) => break,
                    Err(error) => panic!("{error:?}"),
                }
            }
            assert!(space < 9 || stored > count / 4, "{space} chunks, round {round}: {stored} of {count}");
            if stored < count / 2 {
                break;
            }
        }
    }
}

/// Each process that deletes a pair begins a segment; on a file system that others have filled none gets
/// space.
#[test]
fn pairs_are_deleted_by_one_process_after_another_on_a_file_system_that_others_have_filled() {
    let mut random = Random(18);
    for bytes in [100, 10_000] {
        let disk = Disk::new(&vec![0; 64 << 20], || {});
        let taken = Arc::new(Mutex::new(BTreeSet::new()));
        let scarce = |space| {
            let disk = DiskStore(Arc::clone(&disk));
            Box::new(Scarce { disk, space, taken: Arc::clone(&taken) })
        };
        let mut pairs = Pairs::new(create(scarce(usize::MAX)), 0);
        // More than a segment of them, and the last one is as good as full.
        let count = 30 + (2 << 20) / bytes;
        for number in 0..count {
            assert_eq!(pairs.put(&key(number), &random.bytes(bytes)), Ok(()));
        }
        drop(pairs);
        let space = taken.lock().unwrap().len();
        for number in 0..30 {
            let mut pairs = Pairs::new(open(scarce(space)), 0);
            assert_eq!(pairs.delete(&key(number)), Ok(true), "{bytes} bytes, {number}");
            assert_eq!(pairs.exist(&key(number)), Ok(false));
        }
        let mut pairs = Pairs::new(open(scarce(space)), 0);
        let there = (0..count).filter(|&number| pairs.exist(&key(number)) == Ok(true)).count();
        assert_eq!(there, count - 30, "{bytes} bytes");
    }
}

/// Values of a MiB each leave half a segment that nothing but small ones can use: there is no space on the
/// media any more while some of the capacity is left, and copying makes none.
#[test]
fn deletions_work_on_a_device_that_values_which_lie_badly_have_filled() {
    let mut random = Random(15);
    let mut pairs = Pairs::new(create(memory(64 << 20)), 0);
    let mut keys = Vec::new();
    'filling: for number in 0.. {
        let big = (format!("big {number}").into_bytes(), 1_000_000);
        let small = (0..140).map(|n| (key(number * 140 + n), 4096));
        for (key, bytes) in std::iter::once(big).chain(small) {
            match pairs.put(&key, &random.bytes(bytes)) {
                Ok(()) => keys.push(key),
                Err(error) => {
                    assert_eq!(error, KvError::Full);
                    break 'filling;
                }
            }
        }
    }
    // By every queue: each has an append head of its own, and there is one segment for them all.
    let mut queues: Vec<Pairs> = (0..8).map(|lane| Pairs::new(Arc::clone(&pairs.store), lane)).collect();
    for number in 0..100 {
        let _ = queues[number % 8].put(b"another", &random.bytes(900_000));
    }
    let written = pairs.store.stats().media_bytes_written;
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(queues[number % 8].delete(key), Ok(true), "{number} of {}", keys.len());
    }
    let stats = pairs.store.stats();
    assert!(stats.media_bytes_written - written < 64 << 20, "{}", stats.media_bytes_written - written);
    assert!(stats.pairs <= 1 && stats.used_bytes < 2 << 20, "{stats:?}");
    assert!(fill(&mut pairs, &mut random, 1_000_000) > 20);
}

/// Sealed as they are, a segment that is half emptied and the one with its records would leave no segment
/// free for emptying any.
#[test]
fn a_store_that_is_closed_while_it_empties_a_segment_empties_all_of_it() {
    let mut random = Random(13);
    let mut pairs = Pairs::new(create(memory(16 << 20)), 0);
    for number in (0..40).chain((0..40).step_by(2)) {
        pairs.put(&key(number), &random.bytes(50_000)).unwrap();
    }
    let mut pool = pairs.store.segments.pool();
    while pool.free_count() > 1 {
        pool.take(Purpose::Reclaim, State::Extent).unwrap();
    }
    drop(pool);
    while pairs.store.stats().reclaimed_bytes == 0 {
        assert!(pairs.store.maintain(1));
    }
    let has_space = |pairs: &Pairs| {
        let pool = pairs.store.segments.pool();
        pool.free_count() + pool.on_the_way() > 0
    };
    assert!(!has_space(&pairs), "in the middle of it");
    pairs.store.close().unwrap();
    assert!(has_space(&pairs));
    for number in 0..40 {
        assert_eq!(pairs.delete(&key(number)), Ok(true));
    }
}
