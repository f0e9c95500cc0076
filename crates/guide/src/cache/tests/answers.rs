//! Every answer is what the device would say.

use proptest::prelude::*;

use super::*;

const MIB: usize = 1 << 20;

#[test]
fn a_hit_with_a_buffer_that_is_too_small_fills_it_and_no_more() {
    let cache = cache(1, MIB);
    store(&cache, &id(b"key"), b"0123456789");
    let mut memory = [0xee; 8];
    let hit = cache.lookup(&id(b"key"), 0, &mut memory[..4]).unwrap();
    assert_eq!((hit.copied, &memory[..]), (4, &b"0123\xee\xee\xee\xee"[..]));
    assert_eq!(cache.lookup(&id(b"key"), 0, &mut [][..]).unwrap().copied, 0);
    let pool = DmaPool::new(Arc::new(AddressSpace::new()));
    let mut buf = pool.alloc(4).unwrap();
    assert_eq!(cache.lookup(&id(b"key"), 3, &mut buf).unwrap().copied, 4);
    assert_eq!(buf.to_vec(), b"3456");
    let mut beyond = [0xff; 4];
    buf.region().read(4, &mut beyond);
    assert_eq!(beyond, [0; 4]);
}

#[test]
fn a_hit_starts_at_the_offset_that_was_asked_for() {
    let cache = cache(1, MIB);
    store(&cache, &id(b"key"), b"0123456789");
    let mut out = [0xee; 6];
    let hit = cache.lookup(&id(b"key"), 7, out.as_mut_slice()).unwrap();
    assert_eq!((hit.copied, &out), (3, b"789\xee\xee\xee"));
    // At the end and beyond it the device has its own answer.
    for offset in [10, 11, 1 << 32, u64::MAX] {
        assert_eq!(cache.lookup(&id(b"key"), offset, out.as_mut_slice()), None, "{offset}");
    }
}

#[test]
fn a_hit_says_how_long_the_whole_value_is() {
    let cache = cache(1, MIB);
    store(&cache, &id(b"key"), &[7; 3000]);
    store(&cache, &id(b"nil"), b"");
    for (offset, room, copied) in [(0, 100, 100), (0, 4096, 3000), (2512, 4096, 488), (512, 0, 0)] {
        let hit = cache.lookup(&id(b"key"), offset, vec![0; room].as_mut_slice()).unwrap();
        assert_eq!((hit.value_bytes, hit.copied), (3000, copied), "{room} bytes at {offset}");
    }
    assert_eq!(cached(&cache, &id(b"nil")).unwrap(), b"");
}

#[test]
fn a_part_of_a_value_is_never_taken_for_the_whole() {
    let cache = cache(1, MIB);
    let fetched = |offset, value_bytes, data| Fetched { offset, value_bytes, data: Value::Bytes(data) };
    for part in
        [fetched(0, 10, b"01234"), fetched(5, 10, b"56789"), fetched(5, 5, b"56789"), fetched(0, 10, b"")]
    {
        let what = format!("{part:?}");
        let ticket = cache.fill_begin(&id(b"key"));
        cache.fill_end(ticket, &id(b"key"), part);
        assert_eq!(cached(&cache, &id(b"key")), None, "{what}");
    }
    // A buffer does not have more bytes than it is long, whatever its size class has.
    let buf = cache.alloc(0, 100).unwrap();
    let ticket = cache.fill_begin(&id(b"key"));
    let data = Value::Buffer { buf, bytes: 110 };
    cache.fill_end(ticket, &id(b"key"), Fetched { offset: 0, value_bytes: 110, data });
    assert_eq!(cached(&cache, &id(b"key")), None);
    let ticket = cache.fill_begin(&id(b"key"));
    cache.fill_end(ticket, &id(b"key"), fetched(0, 5, b"whole"));
    assert_eq!(cached(&cache, &id(b"key")).unwrap(), b"whole");
}

#[test]
fn the_same_key_of_another_device_or_keyspace_is_another_pair() {
    let cache = cache(2, MIB);
    let at = |device, keyspace| EntryId { device, keyspace, key: b"key" };
    store(&cache, &at(0, 0), b"00");
    store(&cache, &at(0, 1), b"01");
    store(&cache, &at(1, 0), b"10");
    assert_eq!(cached(&cache, &at(1, 1)), None);
    cache.remove(&at(0, 1));
    assert_eq!(cached(&cache, &at(0, 0)).unwrap(), b"00");
    assert_eq!(cached(&cache, &at(0, 1)), None);
    assert_eq!(cached(&cache, &at(1, 0)).unwrap(), b"10");
    // A key that begins with what would be a keyspace.
    store(&cache, &EntryId { device: 0, keyspace: 0, key: b"\x01key" }, b"x");
    assert_eq!(cached(&cache, &at(0, 1)), None);
}

#[test]
fn a_format_empties_the_cache_of_its_device_and_of_no_other() {
    let cache = cache(2, 64 * MIB);
    let at = |device, key| EntryId { device, keyspace: 1, key };
    let keys: Vec<Vec<u8>> = (0..500u32).map(|at| at.to_be_bytes().to_vec()).collect();
    for key in &keys {
        store(&cache, &at(0, key), b"old");
        store(&cache, &at(1, key), b"other");
    }
    cache.forget_device(0);
    for key in &keys {
        assert_eq!(cached(&cache, &at(0, key)), None);
        assert_eq!(cached(&cache, &at(1, key)).unwrap(), b"other");
    }
    assert_eq!(cache.stats().entries, 500);
}

#[test]
fn an_iterator_that_deletes_takes_its_pairs_out_of_the_cache_and_no_others() {
    let cache = cache(1, 64 * MIB);
    let at = |keyspace, key| EntryId { device: 0, keyspace, key };
    let pairs: [(u8, &[u8]); 6] =
        [(0, b"0000a"), (0, b"0001a"), (0, b"00"), (0, b"0100a"), (1, b"0000a"), (0, b"1000a")];
    for (keyspace, key) in pairs {
        store(&cache, &at(keyspace, key), b"value");
    }
    let scope = Scope::Matching { keyspace: 0, prefix: 0x3030_3030, bitmask: 0xffff_0000 };
    let sweep = cache.sweep_begin(0, scope);
    let left = |cache: &ReadCache| pairs.map(|(keyspace, key)| cached(cache, &at(keyspace, key)).is_some());
    assert_eq!(left(&cache), [false, false, false, true, true, true]);
    // Until it ends, what it may still delete is not cached.
    store(&cache, &at(0, b"0000a"), b"value");
    store(&cache, &at(0, b"9999a"), b"value");
    assert_eq!(cached(&cache, &at(0, b"0000a")), None);
    assert!(cached(&cache, &at(0, b"9999a")).is_some());
    cache.sweep_end(sweep);
    store(&cache, &at(0, b"0000a"), b"value");
    assert!(cached(&cache, &at(0, b"0000a")).is_some());
}

#[test]
fn a_device_that_another_process_may_write_is_not_cached() {
    let cache = cache(1, 0);
    store(&cache, &id(b"key"), b"value");
    let ticket = cache.fill_begin(&id(b"key"));
    let data = Value::Bytes(b"value");
    cache.fill_end(ticket, &id(b"key"), Fetched { offset: 0, value_bytes: 5, data });
    assert_eq!(cached(&cache, &id(b"key")), None);
    cache.forget_device(0);
    assert_eq!(cache.evict(0, 1000), 0);
    assert!(cache.alloc(0, 1000).is_ok());
    assert_eq!(cache.stats().entries, 0);
}

#[test]
fn devices_and_keys_that_do_not_exist_are_never_cached() {
    let cache = cache(1, MIB);
    let long = vec![b'k'; 256];
    for id in [EntryId { device: 1, keyspace: 0, key: b"key" }, id(&long), id(b"")] {
        store(&cache, &id, b"value");
        assert_eq!(cached(&cache, &id), None);
    }
    cache.forget_device(7);
    assert_eq!(cache.evict(7, 1), 0);
    let key = vec![b'k'; 255];
    store(&cache, &id(&key), b"value");
    assert!(cached(&cache, &id(&key)).is_some());
}

#[derive(Clone, Debug)]
enum Step {
    Store(u8, usize),
    Append(u8),
    Delete(u8),
    Retrieve(u8, u64, usize),
    Sweep(Option<(u8, u32)>),
    Evict(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0u8..24;
    let bytes = || prop_oneof![Just(0usize), 1usize..300, Just(4096usize), 0usize..20_000];
    prop_oneof![
        20 => (key.clone(), bytes()).prop_map(|(key, bytes)| Step::Store(key, bytes)),
        3 => key.clone().prop_map(Step::Append),
        5 => key.clone().prop_map(Step::Delete),
        40 => (key, prop_oneof![Just(0u64), 0u64..21_000], bytes())
            .prop_map(|(key, offset, room)| Step::Retrieve(key, offset, room)),
        1 => prop::option::of((0u8..2, 0u32..3)).prop_map(Step::Sweep),
        1 => (0usize..100_000).prop_map(Step::Evict),
    ]
}

/// Keys of one to five bytes in two keyspaces, many with a start in common.
fn name(key: u8) -> (u8, Vec<u8>) {
    let text = [b'a' + key % 3, b'a', b'a' + key % 2, b'a', b'a' + key / 6];
    (key % 2, text[..5 - usize::from(key % 5)].to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn with_the_cache_in_between_every_answer_is_the_devices(
        budget in prop_oneof![Just(3000usize), Just(40_000), Just(64 * MIB)],
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let (cache, map) = (cache(1, budget), Map::default());
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                Step::Store(key, bytes) => {
                    let (keyspace, key) = name(key);
                    let id = EntryId { device: 0, keyspace, key: &key };
                    let value: Vec<u8> = (0..bytes).map(|i| (i + at) as u8).collect();
                    let ticket = cache.write_begin(&id);
                    map.store(&id, &value);
                    // By copy and with the buffer itself, of the right size and larger.
                    let mut buf = cache.alloc(0, bytes << (at % 3)).unwrap();
                    buf.write(0, &value);
                    let value =
                        if at % 2 == 0 { Value::Bytes(&value) } else { Value::Buffer { buf, bytes } };
                    cache.write_end(ticket, &id, Some(value));
                }
                Step::Append(key) | Step::Delete(key) if at % 7 == 0 => {
                    // A command that fails.
                    let (keyspace, key) = name(key);
                    let id = EntryId { device: 0, keyspace, key: &key };
                    let ticket = cache.write_begin(&id);
                    cache.write_end(ticket, &id, None);
                }
                Step::Append(key) => {
                    let (keyspace, key) = name(key);
                    let id = EntryId { device: 0, keyspace, key: &key };
                    let ticket = cache.write_begin(&id);
                    map.append(&id, b"more");
                    cache.write_end(ticket, &id, None);
                }
                Step::Delete(key) => {
                    let (keyspace, key) = name(key);
                    let id = EntryId { device: 0, keyspace, key: &key };
                    let ticket = cache.write_begin(&id);
                    map.delete(&id);
                    cache.write_end(ticket, &id, None);
                }
                Step::Retrieve(key, offset, room) => {
                    let (keyspace, key) = name(key);
                    let id = EntryId { device: 0, keyspace, key: &key };
                    prop_assert_eq!(retrieve(&cache, &map, &id, offset, room), map.retrieve(&id, offset, room));
                    prop_assert_eq!(retrieve(&cache, &map, &id, 0, 40_000), map.retrieve(&id, 0, 40_000));
                }
                Step::Sweep(what) => {
                    let scope = what.map_or(Scope::Device, |(keyspace, first)| Scope::Matching {
                        keyspace,
                        prefix: 0x6161_6161 + (first << 24),
                        bitmask: [0xff00_0000, 0xffff_ffff, 0xfff0_0000][at % 3],
                    });
                    let sweep = cache.sweep_begin(0, scope);
                    map.sweep(scope);
                    cache.sweep_end(sweep);
                }
                Step::Evict(bytes) => {
                    cache.evict(0, bytes);
                }
            }
            prop_assert!(cache.stats().bytes <= budget);
        }
        cache.forget_device(0);
        let stats = cache.stats();
        prop_assert_eq!((stats.entries, stats.bytes), (0, 0));
        prop_assert_eq!(cache.devices[0].slab.stats().used_bytes, 0);
    }
}

#[test]
fn a_key_that_has_gone_is_not_found_in_the_place_it_had() {
    let cache = cache(1, 4 * MIB);
    let key = |number: u32| number.to_be_bytes();
    // Many more than there are places at first, in leaves that others have left, some twice.
    for round in 0..4u32 {
        for number in 0..3000 {
            store(&cache, &id(&key(number)), &[number.to_le_bytes(), round.to_le_bytes()].concat());
        }
        for number in (0..3000).filter(|number| number % 4 == round) {
            cache.remove(&id(&key(number)));
        }
        for number in 3000..3500 {
            store(&cache, &id(&key(number + round * 500)), &number.to_le_bytes());
        }
        // Twice: by the tree, and by where that has led.
        for number in (0..3000u32).chain(0..3000) {
            let expected = [number.to_le_bytes(), round.to_le_bytes()].concat();
            let found = cached(&cache, &id(&key(number)));
            assert_eq!(found, (number % 4 != round).then_some(expected), "key {number}, round {round}");
        }
    }
}
