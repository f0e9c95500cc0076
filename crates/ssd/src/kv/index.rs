//! The index: hash of a key to [`Slot`], sharded, read without a lock.
//!
//! **Shape.** Buckets of four slots fill a cache line each: hash, word, hash, word ... A key is in the first
//! bucket from its home bucket on that had room; a bucket with an empty slot ends the search. The whole hash
//! is in the slot, so the table grows without looking at the media.
//!
//! **Growth.** Each shard doubles on its own when it is some 70 to 82 % full, each at a slightly different
//! degree: memory and pauses are spread instead of all shards growing at once. Shards are interleaved: bucket
//! `n` of all shards lie beside each other, so that a shard's table doubles in place while what has been
//! touched of the reserved address space stays one piece. Nothing is freed or moved to another address:
//! readers may look at any time.
//!
//! **Readers** write nothing. A slot's word is written last and read first, so a slot is seen whole. What
//! moves slots (growth, and removing one) makes the shard's version odd meanwhile, and readers look again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use unvme_bus::{BusError, Region, SpinGuard, SpinLock};

use super::ordered::Change;
use super::slot::{OLDER_MAX, Slot};

const SLOTS: usize = 4;
const BUCKET_BYTES: usize = 64;
const SHARD_BITS_MAX: u32 = 10;

/// All shards of the index.
pub(super) struct Index {
    buckets: Region,
    shards: Box<[Shard]>,
    shard_bits: u32,
    /// Largest level a shard has address space for.
    level_max: u32,
}

/// Alone on its lines: what readers look at shares no line with another shard's lock.
#[repr(align(128))]
struct Shard {
    /// Odd while slots are moved.
    version: AtomicU32,
    /// The shard has `1 << level` buckets.
    level: AtomicU32,
    state: SpinLock<ShardState>,
}

/// What a shard's writer changes under its lock.
#[derive(Default)]
pub(super) struct ShardState {
    /// Sequence number of the shard's next record.
    pub(super) sequence: u64,
    /// Slots in use, tombstones included.
    pub(super) used: usize,
    /// Pairs that exist.
    pub(super) pairs: u64,
    /// There may be keys with one hash, or have been: see `RecordHead::may_be_twin`.
    pub(super) has_twins: bool,
    /// Counts of older records that do not fit into the slot, by hash and place of the newest record.
    pub(super) large: HashMap<(u64, u64), u64>,
    /// Changes to the set of keys since the ordered set took notice; `None` while there is no such set.
    pub(super) changes: Option<Vec<Change>>,
}

/// A slot that was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hit {
    pub(super) slot: Slot,
    /// Offset of the slot's word.
    at: usize,
    version: u32,
}

/// A locked shard: nobody else changes its slots.
pub(super) struct LockedShard<'a> {
    index: &'a Index,
    shard: &'a Shard,
    number: usize,
    pub(super) state: SpinGuard<'a, ShardState>,
}

impl Index {
    /// An empty index with address space for `pairs_max` pairs.
    pub(super) fn new(pairs_max: u64) -> Result<Self, BusError> {
        let shard_bits = (pairs_max / 1024).max(64).ilog2().min(SHARD_BITS_MAX);
        let shards = 1usize << shard_bits;
        // Twice the room for an even distribution: shards differ, and none may run out before the media does.
        let buckets = (pairs_max as usize).div_ceil(shards * SLOTS).next_power_of_two() * 2;
        let level_max = buckets.ilog2();
        Ok(Self {
            buckets: Region::anonymous(shards * buckets * BUCKET_BYTES)?,
            shards: (0..shards).map(|_| Shard::new()).collect(),
            shard_bits,
            level_max,
        })
    }

    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        (hash >> (64 - self.shard_bits)) as usize
    }

    /// Offset of a shard's bucket.
    #[inline]
    fn bucket_at(&self, shard: usize, bucket: usize) -> usize {
        (bucket << self.shard_bits | shard) * BUCKET_BYTES
    }

    /// Brings the line close in which a search will begin.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        let number = self.shard_of(hash);
        let Some(shard) = self.shards.get(number) else { return };
        let mask = (1usize << shard.level.load(Ordering::Relaxed)) - 1;
        self.buckets.prefetch(self.bucket_at(number, hash as usize & mask), 1);
    }

    /// The `nth` slot with this hash: there are several when keys collide, which only comparing keys tells.
    #[inline]
    pub(super) fn find(&self, hash: u64, nth: usize) -> Option<Hit> {
        self.find_by(hash, || skip(nth))
    }

    /// The first slot with this hash that is accepted, by what `accept` makes: a search may have to begin
    /// anew.
    #[inline]
    fn find_by<A: FnMut(Slot) -> bool>(&self, hash: u64, accept: impl Fn() -> A) -> Option<Hit> {
        let number = self.shard_of(hash);
        let shard = &self.shards[number];
        loop {
            // Acquire: pairs with the Release in `restructure`.
            let version = shard.version.load(Ordering::Acquire);
            if version & 1 == 0 {
                let found = self.search(shard, number, hash, accept());
                // Acquire fence: the slots were read before the version is read again.
                fence(Ordering::Acquire);
                if shard.version.load(Ordering::Relaxed) == version {
                    return found.map(|(slot, at)| Hit { slot, at, version });
                }
            }
            std::hint::spin_loop();
        }
    }

    #[inline]
    fn search(
        &self,
        shard: &Shard,
        number: usize,
        hash: u64,
        mut accept: impl FnMut(Slot) -> bool,
    ) -> Option<(Slot, usize)> {
        let buckets = 1usize << shard.level.load(Ordering::Relaxed);
        for probe in 0..buckets {
            let at = self.bucket_at(number, (hash as usize).wrapping_add(probe) & (buckets - 1));
            let words = self.buckets.words::<8>(at);
            let mut is_full = true;
            for slot in 0..SLOTS {
                // Acquire: pairs with the Release in `LockedShard::set`, and makes the record's bytes
                // visible.
                let word = words[slot * 2 + 1].load(Ordering::Acquire);
                if word == 0 {
                    is_full = false;
                } else if words[slot * 2].load(Ordering::Relaxed) == hash && accept(Slot(word)) {
                    return Some((Slot(word), at + slot * 16 + 8));
                }
            }
            if !is_full {
                return None;
            }
        }
        None
    }

    /// True when the record that was found is still the newest one of its key: its bytes have not been
    /// reused.
    #[inline]
    pub(super) fn is_current(&self, hash: u64, hit: &Hit) -> bool {
        // Acquire fence: the record's bytes were read before.
        fence(Ordering::Acquire);
        let shard = &self.shards[self.shard_of(hash)];
        if shard.version.load(Ordering::Relaxed) == hit.version {
            let word = self.buckets.load_u64(hit.at, Ordering::Relaxed);
            return word != 0 && Slot(word).place() == hit.slot.place();
        }
        self.is_newest(hash, hit.slot.place())
    }

    /// True when `place` holds the newest record of a key with this hash.
    pub(super) fn is_newest(&self, hash: u64, place: u64) -> bool {
        self.find_place(hash, place).is_some()
    }

    /// The slot whose record is at `place`.
    pub(super) fn find_place(&self, hash: u64, place: u64) -> Option<Hit> {
        self.find_by(hash, || |slot: Slot| slot.place() == place)
    }

    /// Keeps other writers of a key's shard out.
    #[inline]
    pub(super) fn lock(&self, hash: u64) -> LockedShard<'_> {
        self.lock_shard(self.shard_of(hash))
    }

    pub(super) fn lock_shard(&self, number: usize) -> LockedShard<'_> {
        let shard = &self.shards[number];
        LockedShard { index: self, shard, number, state: shard.state.lock() }
    }

    pub(super) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Shard a hash belongs to.
    pub(super) fn shard_number(&self, hash: u64) -> usize {
        self.shard_of(hash)
    }

    /// Bytes in which the buckets of all shards lie, from the first one of all on.
    pub(super) fn buckets_bytes(&self) -> usize {
        let level = self.shards.iter().map(|shard| shard.level.load(Ordering::Relaxed)).max().unwrap_or(0);
        self.bucket_at(0, 1 << level)
    }

    /// Copies bytes of the buckets from `at` on. Nobody changes the index meanwhile.
    pub(super) fn copy_buckets(&self, at: usize, out: &mut [u8]) {
        self.buckets.read(at, out);
    }

    /// Makes an empty shard what it was. `None` when it cannot have been that.
    pub(super) fn restore(&self, number: usize, level: u32, state: ShardState) -> Option<()> {
        // One slot at least is empty: that ends every search.
        if level > self.level_max || state.used >= SLOTS << level {
            return None;
        }
        let shard = self.shards.get(number)?;
        shard.level.store(level, Ordering::Relaxed);
        *shard.state.lock() = state;
        Some(())
    }

    /// Fills buckets from `at` on, whole ones, with slots of which `is_place` is true, and counts them in
    /// `used`, by shard. `None` when one is not.
    pub(super) fn fill_buckets(
        &self,
        at: usize,
        bytes: &[u8],
        is_place: impl Fn(Slot) -> bool,
        used: &mut [usize],
    ) -> Option<()> {
        let mask = self.shards.len() - 1;
        for (bucket, slots) in (at / BUCKET_BYTES..).zip(bytes.chunks_exact(BUCKET_BYTES)) {
            let words = slots.chunks_exact(16).map(|slot| {
                u64::from_le_bytes([
                    slot[8], slot[9], slot[10], slot[11], slot[12], slot[13], slot[14], slot[15],
                ])
            });
            let mut count = 0;
            for word in words.filter(|&word| word != 0) {
                if !is_place(Slot(word)) {
                    return None;
                }
                count += 1;
            }
            used[bucket & mask] += count;
        }
        self.buckets.write(at, bytes);
        Some(())
    }

    /// True when each shard has as many slots in use as it says.
    pub(super) fn has_used(&self, used: &[usize]) -> bool {
        self.shards.iter().zip(used).all(|(shard, &used)| shard.state.lock().used == used)
    }

    /// Empties the index. Nobody uses it yet.
    pub(super) fn clear(&mut self) {
        self.buckets.discard(0, self.buckets_bytes());
        self.shards.iter_mut().for_each(|shard| *shard = Shard::new());
    }

    /// Memory in use for buckets and shards, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let buckets: u64 = self.shards.iter().map(|s| 1 << s.level.load(Ordering::Relaxed)).sum();
        buckets * BUCKET_BYTES as u64 + (self.shards.len() * size_of::<Shard>()) as u64
    }
}

impl Shard {
    fn new() -> Self {
        let state = ShardState { sequence: 1, ..ShardState::default() };
        Self { version: AtomicU32::new(0), level: AtomicU32::new(0), state: SpinLock::new(state) }
    }

    /// Slots the shard may use before it grows. At least one stays empty, which ends every search.
    fn limit(&self, number: usize, level: u32) -> usize {
        let slots = SLOTS << level;
        let percent = 70 + number % 13;
        (slots * percent / 100).min(slots - 1)
    }
}

impl LockedShard<'_> {
    #[inline]
    fn words(&self, bucket: usize) -> &[AtomicU64; 8] {
        self.index.buckets.words::<8>(self.index.bucket_at(self.number, bucket))
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// The shard has `1 << level` buckets.
    pub(super) fn level(&self) -> u32 {
        self.shard.level.load(Ordering::Relaxed)
    }

    /// The `nth` slot with this hash.
    #[inline]
    pub(super) fn find(&self, hash: u64, nth: usize) -> Option<Hit> {
        self.find_by(hash, skip(nth))
    }

    #[inline]
    fn find_by(&self, hash: u64, accept: impl FnMut(Slot) -> bool) -> Option<Hit> {
        let (slot, at) = self.index.search(self.shard, self.number, hash, accept)?;
        Some(Hit { slot, at, version: self.shard.version.load(Ordering::Relaxed) })
    }

    /// The slot whose record is at `place`.
    pub(super) fn find_place(&self, hash: u64, place: u64) -> Option<Hit> {
        self.find_by(hash, |slot| slot.place() == place)
    }

    /// The only slot with this hash; `None` when there are several, or none.
    pub(super) fn find_only(&self, hash: u64) -> Option<Hit> {
        let mut count = 0;
        let second = self.find_by(hash, |_| {
            count += 1;
            count == 2
        });
        if second.is_some() { None } else { self.find(hash, 0) }
    }

    /// How many older records of the key there are.
    #[inline]
    pub(super) fn older(&self, hash: u64, slot: Slot) -> u64 {
        match slot.older() {
            OLDER_MAX => self.state.large.get(&(hash, slot.place())).copied().unwrap_or(OLDER_MAX),
            older => older,
        }
    }

    /// Makes `slot`, with `older` older records, the newest of the key that `hit` was.
    #[inline]
    pub(super) fn set(&mut self, hash: u64, hit: &Hit, slot: Slot, older: u64) {
        if hit.slot.older() == OLDER_MAX {
            self.state.large.remove(&(hash, hit.slot.place()));
        }
        if older >= OLDER_MAX {
            self.state.large.insert((hash, slot.place()), older);
        }
        // Release: pairs with the Acquire in `search`.
        let word = slot.with_older(older).0;
        self.index.buckets.store_u64(hit.at, word, Ordering::Release);
    }

    /// True when [`LockedShard::insert`] will find room.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        let level = self.shard.level.load(Ordering::Relaxed);
        level < self.index.level_max || self.state.used + 1 < SLOTS << level
    }

    /// Adds a slot for a key that has none; there is room.
    pub(super) fn insert(&mut self, hash: u64, slot: Slot, older: u64) {
        let level = self.shard.level.load(Ordering::Relaxed);
        if self.state.used >= self.shard.limit(self.number, level) && level < self.index.level_max {
            self.grow(level);
        }
        if older >= OLDER_MAX {
            self.state.large.insert((hash, slot.place()), older);
        }
        self.state.used += 1;
        self.put(hash, slot.with_older(older).0);
    }

    /// Writes a slot into the first bucket with room.
    fn put(&self, hash: u64, word: u64) {
        let buckets = 1usize << self.shard.level.load(Ordering::Relaxed);
        for probe in 0..buckets {
            let words = self.words((hash as usize).wrapping_add(probe) & (buckets - 1));
            for slot in 0..SLOTS {
                if words[slot * 2 + 1].load(Ordering::Relaxed) == 0 {
                    words[slot * 2].store(hash, Ordering::Relaxed);
                    // Release: a reader that sees the word sees the hash, and the record.
                    words[slot * 2 + 1].store(word, Ordering::Release);
                    return;
                }
            }
        }
        debug_assert!(false, "a shard of the index is full");
    }

    /// Runs `change` with readers kept out.
    fn restructure(&self, change: impl FnOnce(&Self)) {
        let version = self.shard.version.load(Ordering::Relaxed);
        self.shard.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // Release fence: a reader that sees a slot that moves also sees the odd version.
        fence(Ordering::Release);
        change(self);
        self.shard.version.store(version.wrapping_add(2), Ordering::Release);
    }

    #[cold]
    fn grow(&self, level: u32) {
        let mut slots = Vec::with_capacity(self.state.used);
        self.for_each(|hash, slot| slots.push((hash, slot.0)));
        self.restructure(|shard| {
            for bucket in 0..1usize << level {
                shard.words(bucket).iter().for_each(|word| word.store(0, Ordering::Relaxed));
            }
            shard.shard.level.store(level + 1, Ordering::Relaxed);
            for &(hash, word) in &slots {
                shard.put(hash, word);
            }
        });
    }

    /// Makes room for `slots` slots at once, in an empty shard.
    pub(super) fn reserve(&self, slots: usize) {
        let mut level = 0;
        while level < self.index.level_max && slots > self.shard.limit(self.number, level) {
            level += 1;
        }
        self.shard.level.store(level, Ordering::Relaxed);
    }

    /// Visits all slots.
    pub(super) fn for_each(&self, mut visit: impl FnMut(u64, Slot)) {
        for bucket in 0..1usize << self.shard.level.load(Ordering::Relaxed) {
            let words = self.words(bucket);
            for slot in 0..SLOTS {
                let word = words[slot * 2 + 1].load(Ordering::Relaxed);
                if word != 0 {
                    visit(words[slot * 2].load(Ordering::Relaxed), Slot(word));
                }
            }
        }
    }

    /// Removes a slot. Slots behind it that its bucket's being full had sent on move up.
    pub(super) fn remove(&mut self, hash: u64, hit: &Hit) {
        if hit.slot.older() == OLDER_MAX {
            self.state.large.remove(&(hash, hit.slot.place()));
        }
        self.state.used -= 1;
        self.restructure(|shard| shard.close_hole(hit.at));
    }

    fn close_hole(&self, at: usize) {
        let mask = (1usize << self.shard.level.load(Ordering::Relaxed)) - 1;
        let mut hole = ((at / BUCKET_BYTES) >> self.index.shard_bits, at % BUCKET_BYTES / 16);
        let mut bucket = hole.0;
        let mut was_full = is_full(self.words(bucket));
        self.words(hole.0)[hole.1 * 2 + 1].store(0, Ordering::Relaxed);
        for _ in 0..mask {
            if !was_full {
                return;
            }
            bucket = (bucket + 1) & mask;
            let words = self.words(bucket);
            let distance = bucket.wrapping_sub(hole.0) & mask;
            let movable = (0..SLOTS).find(|slot| {
                let home = words[slot * 2].load(Ordering::Relaxed) as usize & mask;
                words[slot * 2 + 1].load(Ordering::Relaxed) != 0
                    && bucket.wrapping_sub(home) & mask >= distance
            });
            was_full = is_full(words);
            if let Some(slot) = movable {
                let target = self.words(hole.0);
                target[hole.1 * 2].store(words[slot * 2].load(Ordering::Relaxed), Ordering::Relaxed);
                target[hole.1 * 2 + 1].store(words[slot * 2 + 1].load(Ordering::Relaxed), Ordering::Relaxed);
                words[slot * 2 + 1].store(0, Ordering::Relaxed);
                hole = (bucket, slot);
            }
        }
    }
}

/// Accepts the slot after the first `nth`.
#[inline]
fn skip(nth: usize) -> impl FnMut(Slot) -> bool {
    let mut left = nth;
    move |_| {
        let found = left == 0;
        left = left.wrapping_sub(1);
        found
    }
}

fn is_full(words: &[AtomicU64; 8]) -> bool {
    (0..SLOTS).all(|slot| words[slot * 2 + 1].load(Ordering::Relaxed) != 0)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::kv::layout::RecordKind;

    /// Hashes that meet in few buckets of few shards, now and then the same one.
    fn crowded(number: u64) -> u64 {
        ((number % 3) << 60) | (number / 3 % 29) | ((number / 90 % 4) << 20)
    }

    #[test]
    fn slots_that_come_and_go_are_found_whatever_bucket_they_are_in() {
        let index = Index::new(1 << 16).unwrap();
        let mut model: HashSet<(u64, u64)> = HashSet::new();
        let mut seed = 7u64;
        for round in 0..30_000u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let hash = crowded(seed >> 40);
            let mut shard = index.lock(hash);
            // More come in the first half, more go in the second.
            let adds = (seed >> 33) % 10 < if round < 15_000 { 6 } else { 3 };
            match shard.find(hash, 0) {
                Some(hit) if !adds => {
                    assert!(model.remove(&(hash, hit.slot.place())));
                    shard.remove(hash, &hit);
                }
                None if !adds => assert!(model.iter().all(|&(h, _)| h != hash)),
                _ if !shard.has_room() => {}
                _ => {
                    let place = (round + 1) * 16;
                    shard.insert(hash, Slot::new(place, 64, RecordKind::Value), 0);
                    model.insert((hash, place));
                }
            }
            drop(shard);
            if round % 5000 == 0 {
                for &(hash, place) in &model {
                    assert!(index.is_newest(hash, place), "{hash:#x} at {place} in round {round}");
                }
                let mut all = 0;
                (0..index.shards()).for_each(|n| index.lock_shard(n).for_each(|_, _| all += 1));
                assert_eq!(all, model.len());
            }
        }
    }

    #[test]
    fn there_is_address_space_for_the_index_of_the_largest_namespace() {
        let index = Index::new((8 << 40) / 64).unwrap();
        let mut shard = index.lock(u64::MAX);
        shard.insert(u64::MAX, Slot::new((8 << 40) - 64, 64, RecordKind::Value), 0);
        assert_eq!(index.buckets.len(), 4 << 40);
        assert_eq!(shard.find(u64::MAX, 0).unwrap().slot.place(), (8 << 40) - 64);
    }

    #[test]
    fn slots_of_one_hash_are_told_apart_by_their_number() {
        let index = Index::new(1 << 16).unwrap();
        let mut shard = index.lock(5);
        for place in [16, 32, 48] {
            assert!(shard.find_only(5).is_none_or(|hit| hit.slot.place() == 16));
            shard.insert(5, Slot::new(place, 64, RecordKind::Value), 0);
        }
        assert!(shard.find_only(5).is_none());
        let places: Vec<u64> = (0..4).map_while(|n| index.find(5, n)).map(|hit| hit.slot.place()).collect();
        assert_eq!(places, [16, 32, 48]);
    }

    #[test]
    fn counts_that_do_not_fit_into_a_slot_are_kept_exactly() {
        let index = Index::new(1 << 16).unwrap();
        let mut shard = index.lock(9);
        shard.insert(9, Slot::new(16, 64, RecordKind::Value), 0);
        let mut expected = 0;
        for place in 2..20_000u64 {
            let hit = shard.find(9, 0).unwrap();
            assert_eq!(shard.older(9, hit.slot), expected);
            expected += 1;
            shard.set(9, &hit, Slot::new(place * 16, 64, RecordKind::Value), expected);
        }
        for _ in 0..19_998 {
            let hit = shard.find(9, 0).unwrap();
            assert_eq!(shard.older(9, hit.slot), expected);
            expected -= 1;
            shard.set(9, &hit, hit.slot, expected);
        }
        assert!(shard.state.large.is_empty());
        assert_eq!(shard.find(9, 0).unwrap().slot.older(), 0);
    }
}
