//! Values in pieces.

use super::*;
use crate::kv::big::is_to_be_cut;
use crate::kv::layout::{RecordHead, RecordKind, SEGMENT_BYTES};
use crate::kv::pieces::{MANIFEST_BYTES, Pieces};
use crate::kv::segment::State;

/// A value of one part, or of some, and a rest.
const LENGTHS: [usize; 7] = [200_000, 300_000, 1 << 20, 1_100_000, 1_900_000, 2_500_000, 4_400_000];

fn on_disk(bytes: usize) -> (Arc<Disk>, Pairs) {
    let disk = Disk::new(&vec![0; bytes], || {});
    let pairs = Pairs::new(create(Box::new(DiskStore(Arc::clone(&disk)))), 0);
    (disk, pairs)
}

fn reopened(image: &[u8]) -> (Arc<Disk>, Pairs) {
    let disk = Disk::new(image, || {});
    let pairs = Pairs::new(open(Box::new(DiskStore(Arc::clone(&disk)))), 0);
    (disk, pairs)
}

/// Offsets of the record of kind `number` that are in an image, by what their heads say.
fn records(image: &[u8], number: u8) -> Vec<usize> {
    (0..image.len())
        .step_by(16)
        .filter(|at| (4096..SEGMENT_BYTES - 4096).contains(&(at % SEGMENT_BYTES)))
        .filter(|&at| {
            let segment = at / SEGMENT_BYTES * SEGMENT_BYTES;
            let is_log = image[segment + 12..segment + 16] == 2u32.to_le_bytes();
            let has_nonce = image[at + 24..at + 28] == image[segment + 40..segment + 44];
            is_log && has_nonce && image[at + 30] == number && RecordHead::parse(&image[at..]).is_some()
        })
        .collect()
}

#[test]
fn a_store_holds_95_percent_of_its_capacity_of_values_of_any_size_from_2_kib() {
    let mut random = Random(3);
    let mut table = Vec::new();
    let mut sizes: Vec<usize> = (1..15).map(|power| 1024 << power).collect();
    sizes.extend([70_000, 100_000, 150_000, 175_000, 262_000, 350_000, 524_000, 700_000, 1_048_576]);
    sizes.extend([1_100_000, 1_500_000, 1_990_000, 2_050_000, 2_500_000, 3_100_000, 5_000_000, 12_000_000]);
    for bytes in sizes {
        let store = create(memory(160 << 20));
        let mut pairs = Pairs::with_host(store, 0, 17 << 20);
        let value = random.bytes(bytes);
        let mut count = 0u64;
        while pairs.put(&count.to_be_bytes(), &value) == Ok(()) {
            count += 1;
        }
        // What does not take another value of this size takes smaller ones.
        let small = &value[..bytes.min(2000)];
        let mut left = 0;
        while pairs.put(&(u64::MAX - left).to_be_bytes(), small) == Ok(()) {
            left += 1;
        }
        let held = count * bytes as u64 + left * small.len() as u64;
        table.push((bytes, held * 1000 / pairs.store.stats().capacity_bytes));
        for number in [0, count / 2, count - 1] {
            assert!(pairs.get(&number.to_be_bytes()).as_deref() == Ok(&value[..]), "{bytes}");
        }
    }
    for (bytes, permille) in &table {
        // Below this a key and what finds it take more.
        let least = if *bytes < 2048 { 920 } else { 950 };
        assert!(*permille >= least, "{bytes} bytes: {permille} of 1000; {table:?}");
    }
}

#[test]
fn what_is_cut_takes_less_than_it_would_whole_and_all_that_does_not_fit_is_cut() {
    let head = |bytes: u32| RecordHead {
        kind: RecordKind::Value,
        keyspace: 0,
        key_bytes: 16,
        stored_bytes: bytes as usize,
        value_bytes: bytes,
        compressed: false,
        may_be_twin: false,
        sequence: 0,
    };
    for (bytes, is_cut) in [
        (0, false),
        (65_000, false),
        (100_000, false),
        (150_000, false),
        (200_000, false),
        (262_144, true),
        (680_000, false),
        (1_000_000, false),
        (1 << 20, true),
        (1_500_000, true),
        (2_000_000, false),
        (2 << 20, true),
    ] {
        assert_eq!(is_to_be_cut(&head(bytes)), is_cut, "{bytes}");
    }
    // It is the stored form that counts.
    for (bytes, is_cut) in [(1_000_000, false), (1 << 20, true), (2_000_000, false), (2_090_000, true)] {
        let packed = RecordHead { compressed: true, value_bytes: 2 << 20, ..head(bytes) };
        assert_eq!(is_to_be_cut(&packed), is_cut, "{bytes}");
    }
}

#[test]
fn compressed_values_use_as_much_of_the_capacity_as_others() {
    let mut random = Random(13);
    let mut table = Vec::new();
    for bytes in
        [5_000, 100_000, 300_000, 524_000, 700_000, 1_048_576, 1_500_000, 1_990_000, 2_000_000, 2_097_152]
    {
        let mut pairs = Pairs::with_host(create(memory(160 << 20)), 0, 3 << 20);
        let value = random.half(bytes);
        let mut count = 0u64;
        while pairs.put_packed(&count.to_be_bytes(), &value) == Ok(()) {
            count += 1;
        }
        let (_, packed) = pairs.part(&0u64.to_be_bytes(), 0, 0, true).unwrap();
        assert!((packed as usize) < bytes * 6 / 10, "{bytes}: {packed}");
        let small = random.bytes(2000);
        let mut left = 0;
        while pairs.put(&(u64::MAX - left).to_be_bytes(), &small) == Ok(()) {
            left += 1;
        }
        let held = count * u64::from(packed) + left * small.len() as u64;
        table.push((bytes, packed, held * 1000 / pairs.store.stats().capacity_bytes));
        for number in [0, count / 2, count - 1] {
            assert!(pairs.get(&number.to_be_bytes()).as_deref() == Ok(&value[..]), "{bytes}");
        }
    }
    assert!(table.iter().all(|(_, _, permille)| *permille >= 950), "{table:?}");
}

#[test]
fn a_compressed_value_in_pieces_is_read_in_ranges_and_in_its_stored_form() {
    let mut random = Random(14);
    let (disk, mut pairs) = on_disk(48 << 20);
    let mut all = Vec::new();
    let (mut parts, mut extents) = (0, 0);
    // The last one hardly compresses: a segment of its own, and a rest.
    for (number, bytes) in [1_048_576, 1_200_000, 2_097_152, 2_097_152].into_iter().enumerate() {
        let key = format!("key {number}").into_bytes();
        let mut value = if number < 3 { random.half(bytes) } else { random.bytes(bytes) };
        value[bytes - 12_000..].fill(0);
        pairs.put_packed(&key, &value).unwrap();
        let pieces = Pieces::of(pairs.part(&key, 0, 0, true).unwrap().1);
        (parts, extents) = (parts + pieces.parts, extents + pieces.extents);
        all.push((key, value));
    }
    assert_eq!((parts, extents, pieces_of(&pairs)), (9 + 10 + 18, 1, (parts, extents)));
    assert_eq!(records(&disk.image(), RecordKind::Big.number()).len(), 4);
    for is_reopened in [false, true] {
        if is_reopened {
            let image = disk.image();
            pairs = Pairs::new(open(Box::new(DiskStore(disk.killed(&image)))), 0);
        }
        for (key, value) in &all {
            let (stored, packed) = pairs.part(key, 0, value.len(), true).unwrap();
            assert!(stored.len() == packed as usize && stored.len() < value.len());
            assert!(lz4_flex::block::decompress(&stored, value.len()).unwrap() == *value);
            let (some, _) = pairs.part(key, 400_000, 70_000, true).unwrap();
            assert!(some == stored[400_000..470_000]);
            for _ in 0..20 {
                let (from, wanted) = (random.below(value.len()), 1 + random.below(200_000));
                let (found, length) = pairs.part(key, from as u32, wanted, false).unwrap();
                let end = value.len().min(from + wanted);
                assert!(length as usize == value.len() && found == value[from..end], "{from}, {wanted}");
            }
        }
    }
    let (key, value) = &mut all[0];
    value.extend_from_slice(b"more");
    assert_eq!(pairs.append(key, b"more"), Ok(value.len() as u32));
    assert!(pairs.get(key).as_ref() == Ok(value));
}

#[test]
fn any_range_of_a_value_in_pieces_is_read_from_the_pieces_it_lies_in() {
    let mut random = Random(4);
    let (_disk, mut pairs) = on_disk(48 << 20);
    for bytes in LENGTHS {
        let value = random.bytes(bytes);
        pairs.put(b"key", &value).unwrap();
        assert!(pairs.get(b"key").as_deref() == Ok(&value[..]), "{bytes}");
        let pieces = Pieces::of(bytes as u32);
        let borders = [pieces.in_extents(), pieces.in_extents() + pieces.in_parts(), 57_344, bytes];
        for _ in 0..60 {
            let near = borders[random.below(4)].min(bytes);
            let from = (near + random.below(9000)).saturating_sub(4500);
            let most = [100, 9000, 200_000][random.below(3)];
            let wanted = 1 + random.below(most);
            let end = bytes.min(from + wanted);
            let expected = value.get(from.min(end)..end).unwrap_or_default();
            let (found, length) = pairs.part(b"key", from as u32, wanted, false).unwrap();
            assert!(length as usize == bytes && found == expected, "{bytes}: {from}, {wanted}");
        }
    }
    assert_eq!((pairs.keys(b""), pairs.store.stats().pairs), (vec![b"key".to_vec()], 1));
}

#[test]
fn a_value_that_is_replaced_or_deleted_gives_all_its_pieces_back() {
    let mut random = Random(5);
    let (disk, mut pairs) = on_disk(32 << 20);
    // Much more than there is room for.
    for round in 0..120 {
        let bytes = LENGTHS[random.below(LENGTHS.len())];
        let value = random.bytes(bytes);
        let key = [b'a' + random.below(3) as u8];
        pairs.put(&key, &value).unwrap();
        assert!(pairs.get(&key).as_deref() == Ok(&value[..]), "round {round}");
    }
    for key in [b"a", b"b", b"c"] {
        pairs.delete(key).unwrap();
    }
    // Tombstones: 32 bytes, the key and an entry in the summary.
    assert!(pairs.store.stats().used_bytes <= 3 * 64);
    pairs.store.empty_all_dead();
    let used = pairs.store.stats().used_bytes;
    let live: u32 = (0..16).map(|segment| pairs.store.segments.live(segment)).filter(|&n| n < 1 << 30).sum();
    assert!(live <= 200, "{live}");
    drop(pairs);
    let (_disk, pairs) = reopened(&disk.image());
    assert_eq!(pairs.store.stats().used_bytes, used);
    assert_eq!(pairs.keys(b""), [b""; 0]);
}

/// Parts that the index has, and segments that are extents.
fn pieces_of(pairs: &Pairs) -> (usize, usize) {
    let store = &pairs.store;
    let mut parts = 0;
    for shard in 0..store.index.shards() {
        store.index.lock_shard(shard).for_each(|_, slot| parts += usize::from(slot.is_part()));
    }
    let pool = store.segments.pool();
    (parts, pool.segments.iter().filter(|segment| segment.state == State::Extent).count())
}

/// Without filling the store: where pieces are not given up, a full one looks for space for ever.
#[test]
fn pieces_of_a_value_that_is_superseded_or_deleted_are_given_up_at_once() {
    for bytes in LENGTHS {
        let (_disk, mut pairs) = on_disk(32 << 20);
        let all = Pieces::of(bytes as u32);
        let pieces = if bytes == 200_000 { (0, 0) } else { (all.parts, all.extents) };
        let live = |pairs: &Pairs| -> u32 {
            (0..16).map(|segment| pairs.store.segments.live(segment)).filter(|&live| live < 1 << 30).sum()
        };
        for round in 0..3 {
            for _ in 0..2 {
                pairs.put(b"key", &Random(round).bytes(bytes)).unwrap();
                assert_eq!(pieces_of(&pairs), pieces, "{bytes}: round {round}");
            }
            match round {
                0 => pairs.put(b"key", b"small").unwrap(),
                1 => assert_eq!(pairs.append(b"key", b"more"), Ok(bytes as u32 + 4)),
                _ => assert_eq!(pairs.delete(b"key"), Ok(true)),
            }
            let expected = if round == 1 { pieces } else { (0, 0) };
            assert_eq!(pieces_of(&pairs), expected, "{bytes}: round {round}");
            if round != 1 {
                assert!(live(&pairs) <= 48, "{bytes}: round {round}: {} live", live(&pairs));
            }
        }
    }
}

#[test]
fn reclaim_moves_parts_with_readers_at_work() {
    let store = create(memory(48 << 20));
    let value = |number: u64, version: u64| Random(number << 32 | version).bytes(700_000 + number as usize);
    let mut pairs = Pairs::new(Arc::clone(&store), 0);
    for number in 0..12u64 {
        pairs.put(&number.to_be_bytes(), &value(number, 0)).unwrap();
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut reader = Pairs::new(Arc::clone(&store), 1);
            let mut random = Random(6);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                // These are never replaced, only moved.
                let number = random.below(6) as u64;
                assert!(reader.get(&number.to_be_bytes()) == Ok(value(number, 0)), "{number}");
            }
        });
        let mut random = Random(7);
        for round in 1..150u64 {
            let number = 6 + random.below(6) as u64;
            pairs.put(&number.to_be_bytes(), &value(number, round)).unwrap();
            let small = random.bytes(3000);
            pairs.put(format!("small {}", round % 50).as_bytes(), &small).unwrap();
            if round % 3 == 0 {
                pairs.store.maintain(1 << 20);
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(store.stats().reclaimed_bytes > 2 << 20, "{:?}", store.stats());
    assert_eq!(store.check(), []);
}

/// Parts without their value: of one that was being written when the process died, or that a power cut took.
#[test]
fn parts_of_a_value_that_is_not_there_are_let_go() {
    let (disk, mut pairs) = on_disk(32 << 20);
    pairs.put(b"key", b"old").unwrap();
    pairs.store.sync().unwrap();
    let used = pairs.store.stats().used_bytes;
    pairs.put(b"key", &Random(8).bytes(1_100_000)).unwrap();
    let mut image = disk.image();
    pairs.store.abandon();
    let [record] = records(&image, RecordKind::Big.number())[..] else { panic!("one value") };
    assert_eq!(records(&image, RecordKind::Part.number()).len(), 19);
    image[record..record + MANIFEST_BYTES].fill(0);
    // A power cut has taken the record: nobody had been promised it.
    let (disk, mut pairs) = reopened(&image);
    assert_eq!(pairs.get(b"key").unwrap(), b"old");
    assert_eq!((pairs.store.check(), pairs.store.stats().used_bytes), (Vec::new(), used));
    assert_eq!(pairs.keys(b""), [b"key"]);
    let live = |pairs: &Pairs| (0..16).map(|segment| pairs.store.segments.live(segment)).sum::<u32>();
    assert_eq!(live(&pairs), 48, "the old pair's record");
    drop(pairs);
    let (_disk, pairs) = reopened(&disk.image());
    assert_eq!((pairs.store.stats().used_bytes, live(&pairs)), (used, 48));
}

#[test]
fn a_value_of_which_a_power_cut_has_taken_a_part_is_not_there() {
    for from_end in [0, 1, 18] {
        let (disk, mut pairs) = on_disk(32 << 20);
        pairs.put(b"key", b"old").unwrap();
        pairs.store.sync().unwrap();
        pairs.put(b"key", &Random(8).bytes(1_100_000)).unwrap();
        let mut image = disk.image();
        pairs.store.abandon();
        let parts = records(&image, RecordKind::Part.number());
        // A page in the middle of the part's data.
        let lost = (parts[parts.len() - 1 - from_end] + 20_000) / 4096 * 4096;
        image[lost..lost + 4096].fill(0);
        let (_disk, mut pairs) = reopened(&image);
        assert_eq!(pairs.get(b"key").unwrap(), b"old");
        assert_eq!(pairs.store.check(), []);
    }
}

#[test]
fn damage_in_a_part_is_damage_of_its_value() {
    let (plain, compressed) = (Random(9).bytes(1_100_000), Random(9).half(1_900_000));
    for (what, is_packed) in (0..6).map(|case| (case % 3, case > 2)) {
        let value = if is_packed { &compressed } else { &plain };
        let put = |pairs: &mut Pairs| {
            pairs
                .store_with(b"key", value, StorePolicy { compress: is_packed, ..StorePolicy::default() })
                .unwrap();
        };
        let (disk, mut pairs) = on_disk(32 << 20);
        pairs.put(b"other", b"value").unwrap();
        let used = pairs.store.stats().used_bytes;
        put(&mut pairs);
        let image = disk.image();
        let at = match what {
            0 => records(&image, RecordKind::Part.number())[7] + 20_000,
            1 => records(&image, RecordKind::Part.number())[7] + 8,
            _ => records(&image, RecordKind::Big.number())[0] + 1000,
        };
        disk.memory.write(at, &[image[at] ^ 1]);
        for is_reopened in [false, true] {
            if is_reopened {
                pairs.store.close().unwrap();
                let left = disk.killed(&disk.image());
                pairs.store.abandon();
                pairs = Pairs::new(open(Box::new(DiskStore(left))), 0);
            }
            assert_eq!(pairs.get(b"key"), Err(KvError::Unrecovered), "{what}");
            let damage = pairs.store.check();
            let [only] = &damage[..] else { panic!("{what}: {damage:?}") };
            assert_eq!(only.key, Some((0, b"key".to_vec())));
            // The key is there; it is its value that is not.
            assert_eq!(pairs.keys(b""), [b"key".to_vec(), b"other".to_vec()], "{what}");
        }
        // What comes before it can be read.
        if what < 2 && !is_packed {
            assert_eq!(pairs.part(b"key", 0, 4096, false).unwrap().0, value[..4096]);
        }
        assert_eq!(pairs.store.accept_loss().unwrap().len(), 1);
        assert_eq!((pairs.get(b"key"), pairs.store.check()), (Err(KvError::NotFound), Vec::new()));
        pairs.store.empty_all_dead();
        put(&mut pairs);
        assert!(pairs.get(b"key").as_deref() == Ok(&value[..]));
        pairs.delete(b"key").unwrap();
        let left = pairs.store.stats().used_bytes;
        assert!(what == 2 || left <= used + 64, "{what}: {used} and then {left}");
    }
}

#[test]
fn bytes_written_to_the_media_count_parts() {
    let (_disk, mut pairs) = on_disk(32 << 20);
    let before = pairs.store.stats();
    pairs.put(b"key", &Random(9).bytes(1_100_000)).unwrap();
    let after = pairs.store.stats();
    assert_eq!(after.host_bytes_written - before.host_bytes_written, 1_100_003);
    let media = after.media_bytes_written - before.media_bytes_written;
    assert!((1_100_000 + 4096..1_130_000).contains(&media), "{media}");
}
