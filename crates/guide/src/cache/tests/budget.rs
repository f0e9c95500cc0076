//! What is dropped to make room, and that there is room.

use std::collections::VecDeque;

use super::*;

const MIB: usize = 1 << 20;

fn named(at: u32) -> [u8; 8] {
    (u64::from(at) | 0x6b65_7900_0000_0000).to_be_bytes()
}

#[test]
fn what_was_used_longest_ago_is_dropped_first() {
    // Ten values of a shard, each with its buffer, keyspace, key and entry, of two sizes of buffer.
    let cache = cache(1, 5 * (128 + 256 + 2 * (1 + 8 + 192)));
    let value = |at: u32| vec![at as u8; if at.is_multiple_of(2) { 100 } else { 200 }];
    let mut model: VecDeque<u32> = VecDeque::new();
    let mut random = 0x2545_f491_4f6c_dd1du64;
    for round in 0..20_000 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let at = (random >> 32) as u32 % 16;
        let found = cached(&cache, &id(&named(at)));
        let place = model.iter().position(|other| *other == at);
        assert_eq!(found.is_some(), place.is_some(), "round {round}, key {at}, {model:?}");
        match place {
            Some(place) => {
                assert_eq!(found.unwrap(), value(at));
                model.remove(place);
            }
            None => store(&cache, &id(&named(at)), &value(at)),
        }
        model.push_back(at);
        // What the budget holds depends on the sizes: the oldest go until it fits.
        let charge = |at: &u32| if at.is_multiple_of(2) { 329 } else { 457 };
        while model.iter().map(charge).sum::<usize>() > 5 * 786 {
            model.pop_front();
        }
        assert_eq!(cache.stats().bytes, model.iter().map(charge).sum::<usize>());
    }
}

#[test]
fn a_value_larger_than_the_budget_or_any_buffer_is_not_cached_and_drops_nothing() {
    let cache = cache(1, 8 * MIB);
    store(&cache, &id(b"small"), b"value");
    store(&cache, &id(b"large"), &vec![1; 2 * MIB + 1]);
    assert_eq!(cache.stats().entries, 1);
    store(&cache, &id(b"large"), &vec![1; 2 * MIB]);
    assert_eq!(cache.stats().entries, 2);
    let small = super::cache(1, 1000);
    store(&small, &id(b"small"), b"value");
    store(&small, &id(b"large"), &[1; 1000]);
    assert!(cached(&small, &id(b"small")).is_some());
}

#[test]
fn a_small_value_that_came_in_a_large_buffer_does_not_keep_it() {
    let cache = cache(1, 8 * MIB);
    let mut buf = cache.alloc(0, 64 << 10).unwrap();
    buf.write(0, b"value");
    let ticket = cache.write_begin(&id(b"key"));
    cache.write_end(ticket, &id(b"key"), Some(Value::Buffer { buf, bytes: 5 }));
    assert_eq!(cached(&cache, &id(b"key")).unwrap(), b"value");
    assert_eq!(cache.devices[0].slab.stats().used_bytes, 128);
}

#[test]
fn a_buffer_of_the_right_size_is_kept_without_a_copy() {
    let cache = cache(1, 8 * MIB);
    let buf = cache.alloc(0, 4096).unwrap();
    let region = buf.region().clone();
    region.fill(0, 4096, 1);
    let ticket = cache.write_begin(&id(b"key"));
    cache.write_end(ticket, &id(b"key"), Some(Value::Buffer { buf, bytes: 4096 }));
    // Only a test may do this.
    region.fill(0, 4096, 2);
    assert_eq!(cached(&cache, &id(b"key")).unwrap(), [2; 4096]);
}

#[test]
fn commands_get_their_buffers_from_a_cache_that_has_taken_the_whole_slab() {
    let cache = cache(1, 1 << 30);
    for at in 0..20_000 {
        store(&cache, &id(&named(at)), &[at as u8; 4096]);
    }
    let slab = &cache.devices[0].slab;
    let full = slab.stats();
    assert!(full.used_bytes > 15 * MIB, "{full:?}");
    // Every size can be had, in number.
    for bytes in [100, 4096, 32_768, 2 * MIB] {
        let held: Vec<_> =
            (0..4).map(|_| cache.alloc(0, bytes).unwrap_or_else(|e| panic!("{bytes}: {e}"))).collect();
        assert!(held.iter().all(|buf| buf.len() == bytes));
    }
    assert_eq!(cache.evict(0, MIB) / MIB, 1);
    // When it is commands that have it all, it is an error at once, for values as for commands.
    let mut held = Vec::new();
    while let Ok(buf) = cache.alloc(0, 4096) {
        held.push(buf);
        assert!(held.len() <= SLAB_BYTES_MIN / 4096);
    }
    store(&cache, &id(b"key"), &[1; 4096]);
    assert_eq!(cached(&cache, &id(b"key")), None);
    drop(held);
    assert!(cache.alloc(0, 4096).is_ok());
}

#[test]
fn memory_follows_the_sizes_of_the_values_that_are_used() {
    let cache = cache(1, 1 << 30);
    let write = |at: u32, bytes: usize| {
        let ticket = cache.write_begin(&id(&named(at)));
        let mut buf = cache.alloc(0, bytes).unwrap();
        buf.write(0, &vec![at as u8; bytes]);
        cache.write_end(ticket, &id(&named(at)), Some(Value::Buffer { buf, bytes }));
    };
    for at in 0..40_000 {
        write(at, 1024);
    }
    let of_first = cache.stats().entries;
    assert!(of_first >= 14 << 10, "{of_first}");
    for at in 50_000..80_000 {
        write(at, 4096);
    }
    let kept = (50_000..80_000).filter(|at| cached(&cache, &id(&named(*at))).is_some()).count();
    assert!(kept >= 6 * 512, "{kept} values in memory that would hold {}", of_first / 4);
}
