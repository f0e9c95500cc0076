//! Commands that overtake each other, step by step.

use super::*;

const MIB: usize = 1 << 20;
const KEY: EntryId<'static> = EntryId { device: 0, keyspace: 0, key: b"key" };

fn fill(cache: &ReadCache, ticket: super::super::FillTicket, value: &[u8]) {
    let value_bytes = value.len() as u64;
    cache.fill_end(ticket, &KEY, Fetched { offset: 0, value_bytes, data: Value::Bytes(value) });
}

#[test]
fn a_retrieve_overtaken_by_a_store_does_not_bring_the_old_value_back() {
    let cache = cache(1, MIB);
    let ticket = cache.fill_begin(&KEY);
    store(&cache, &KEY, b"new");
    fill(&cache, ticket, b"old");
    assert_eq!(cached(&cache, &KEY).unwrap(), b"new");
    // Nor when the new one has left the cache meanwhile.
    let ticket = cache.fill_begin(&KEY);
    store(&cache, &KEY, b"newer");
    cache.evict(0, usize::MAX);
    fill(&cache, ticket, b"new");
    assert_eq!(cached(&cache, &KEY), None);
}

#[test]
fn a_retrieve_overtaken_by_a_delete_does_not_bring_the_pair_back() {
    let cache = cache(1, MIB);
    let ticket = cache.fill_begin(&KEY);
    cache.remove(&KEY);
    fill(&cache, ticket, b"old");
    assert_eq!(cached(&cache, &KEY), None);
}

#[test]
fn a_retrieve_that_begins_or_ends_during_a_write_does_not_fill() {
    let cache = cache(1, MIB);
    // It begins before the write and ends during it.
    let ticket = cache.fill_begin(&KEY);
    let write = cache.write_begin(&KEY);
    fill(&cache, ticket, b"old");
    assert_eq!(cached(&cache, &KEY), None);
    // It begins during the write and ends during it, then after it.
    fill(&cache, cache.fill_begin(&KEY), b"old");
    assert_eq!(cached(&cache, &KEY), None);
    let ticket = cache.fill_begin(&KEY);
    cache.write_end(write, &KEY, None);
    fill(&cache, ticket, b"old");
    assert_eq!(cached(&cache, &KEY), None);
    fill(&cache, cache.fill_begin(&KEY), b"new");
    assert_eq!(cached(&cache, &KEY).unwrap(), b"new");
}

#[test]
fn from_its_beginning_a_write_hides_the_value_it_may_replace() {
    let cache = cache(1, MIB);
    store(&cache, &KEY, b"old");
    let write = cache.write_begin(&KEY);
    assert_eq!(cached(&cache, &KEY), None);
    // It failed, or nobody knows: the device is asked.
    cache.write_end(write, &KEY, None);
    assert_eq!(cached(&cache, &KEY), None);
}

#[test]
fn two_stores_that_overlap_leave_nothing_because_nobody_knows_which_was_last() {
    let cache = cache(1, MIB);
    for first_ends_first in [true, false] {
        let first = cache.write_begin(&KEY);
        let second = cache.write_begin(&KEY);
        let (one, other) = if first_ends_first { (first, second) } else { (second, first) };
        cache.write_end(one, &KEY, Some(Value::Bytes(b"one")));
        assert_eq!(cached(&cache, &KEY), None);
        // A third that begins while the other is under way is not alone either.
        let third = cache.write_begin(&KEY);
        cache.write_end(other, &KEY, Some(Value::Bytes(b"other")));
        assert_eq!(cached(&cache, &KEY), None);
        cache.write_end(third, &KEY, Some(Value::Bytes(b"third")));
        assert_eq!(cached(&cache, &KEY), None);
        store(&cache, &KEY, b"alone");
        assert_eq!(cached(&cache, &KEY).unwrap(), b"alone");
    }
}

#[test]
fn nothing_that_overlaps_a_format_or_an_iterator_that_deletes_is_cached() {
    let matching = Scope::Matching { keyspace: 0, prefix: 0x6b65_0000, bitmask: 0xffff_0000 };
    for scope in [Scope::Device, matching] {
        let cache = cache(1, MIB);
        let (before, write_before) = (cache.fill_begin(&KEY), cache.write_begin(&id(b"key 2")));
        let sweep = cache.sweep_begin(0, scope);
        let (during, write_during) = (cache.fill_begin(&KEY), cache.write_begin(&id(b"key 3")));
        fill(&cache, before, b"old");
        assert_eq!(cached(&cache, &KEY), None, "{scope:?}");
        cache.write_end(write_before, &id(b"key 2"), Some(Value::Bytes(b"old")));
        cache.sweep_end(sweep);
        fill(&cache, during, b"old");
        cache.write_end(write_during, &id(b"key 3"), Some(Value::Bytes(b"old")));
        assert_eq!(cache.stats().entries, 0, "{scope:?}");
        fill(&cache, cache.fill_begin(&KEY), b"new");
        assert_eq!(cached(&cache, &KEY).unwrap(), b"new");
    }
}

#[test]
fn of_two_sweeps_that_overlap_each_keeps_its_pairs_out_until_its_own_end() {
    let cache = cache(1, MIB);
    let narrow = Scope::Matching { keyspace: 0, prefix: 0x6b65_7900, bitmask: 0xffff_ff00 };
    let (first, second) = (cache.sweep_begin(0, Scope::Device), cache.sweep_begin(0, narrow));
    cache.sweep_end(first);
    store(&cache, &KEY, b"value");
    assert_eq!(cached(&cache, &KEY), None);
    cache.sweep_end(second);
    store(&cache, &KEY, b"value");
    assert!(cached(&cache, &KEY).is_some());
}

#[test]
fn a_ticket_that_is_lost_or_handed_in_for_another_pair_makes_the_cache_forget_and_never_lie() {
    let cache = cache(1, MIB);
    let other = id(b"another");
    let value = || Fetched { offset: 0, value_bytes: 5, data: Value::Bytes(b"value") };
    cache.fill_end(cache.fill_begin(&KEY), &other, value());
    assert_eq!(cached(&cache, &other), None);
    let write = cache.write_begin(&KEY);
    cache.write_end(write, &other, Some(Value::Bytes(b"value")));
    assert_eq!((cached(&cache, &KEY), cached(&cache, &other)), (None, None));
    store(&cache, &KEY, b"value");
    assert!(cached(&cache, &KEY).is_some());
    drop(cache.write_begin(&KEY));
    store(&cache, &KEY, b"newer");
    assert_eq!(cached(&cache, &KEY), None);
}
