//! The cached values of one device: shards, a budget, and what is dropped when it is used up.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use unvme_bus::lock;

use super::entries::{Entries, Entry, Freed};
use super::gate::Gate;
use super::key::TreeKey;
use super::{CacheDevice, Value};
use crate::slab::{Class, Slab, SlabBuf, SlabError};

/// A shard is worth having for this many bytes of budget.
const SHARD_BYTES: usize = 4 << 20;
/// Most shards of a device: enough for threads to seldom meet in one.
const SHARDS_MAX: usize = 16;
/// How much older the oldest value of another size must be before its memory changes sizes.
const AGE_RATIO: u64 = 4;
/// A buffer is looked for this often after one was dropped: others may be quicker.
const ATTEMPTS: usize = 4;
/// Buffers of a slab that are this near to each other are in one chunk.
const CHUNK_BYTES: u64 = 2 << 20;

/// A part of a device's values, chosen by hash.
#[repr(align(128))]
pub(super) struct Shard {
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) entries: Entries,
    pub(super) gate: Gate,
    pub(super) hits: u64,
    pub(super) misses: u64,
}

impl Shard {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic with the lock held is a defect of this module. What is in the shard may then be half done,
        // so it goes; its part of the budget stays taken.
        let mut state = lock(&self.state);
        if self.state.is_poisoned() {
            state.entries = Entries::new();
            self.state.clear_poison();
        }
        state
    }
}

pub(super) struct DeviceCache {
    pub(super) slab: Slab,
    budget_bytes: usize,
    used_bytes: AtomicUsize,
    /// None when nothing is cached.
    shards: Box<[Shard]>,
    /// Where to look next for something to drop.
    hand: AtomicUsize,
    /// Values dropped so far, and how many it must be before memory changes sizes again.
    dropped: AtomicU64,
    rebalance_at: AtomicU64,
}

impl DeviceCache {
    pub(super) fn new(device: CacheDevice) -> Self {
        let count = match device.budget_bytes {
            0 => 0,
            bytes => 1 << (bytes / SHARD_BYTES).clamp(1, SHARDS_MAX).ilog2(),
        };
        let shard = |_| Shard {
            state: Mutex::new(State { entries: Entries::new(), gate: Gate::new(), hits: 0, misses: 0 }),
        };
        Self {
            slab: device.slab,
            budget_bytes: device.budget_bytes,
            used_bytes: AtomicUsize::new(0),
            shards: (0..count).map(shard).collect(),
            hand: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            rebalance_at: AtomicU64::new(0),
        }
    }

    /// The shard of a key; `None` when nothing of this device is cached.
    #[inline]
    pub(super) fn shard(&self, hash: u64) -> Option<&Shard> {
        let bits = self.shards.len().checked_ilog2()?;
        self.shards.get(if bits == 0 { 0 } else { (hash >> (64 - bits)) as usize })
    }

    pub(super) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// What was taken out of a shard no longer counts.
    pub(super) fn release(&self, freed: Freed) {
        if freed.charge > 0 {
            self.used_bytes.fetch_sub(freed.charge, Ordering::Relaxed);
        }
    }

    /// An entry of `value`, its charge taken off the budget. `None` when there is no room for it.
    pub(super) fn prepare(&self, key: &TreeKey, value: Value<'_>) -> Option<Entry> {
        let bytes = value.bytes();
        let class = Class::holding(bytes)?;
        let buf = match value {
            _ if bytes == 0 => None,
            Value::Buffer { buf, .. } if Class::holding(buf.capacity()) == Some(class) => Some(buf),
            // A buffer of its size, rather than a large one for a small value.
            Value::Buffer { buf, .. } => {
                let kept = self.buffer_for_value(class, bytes)?;
                buf.region().copy_to(0, kept.region(), 0, bytes);
                Some(kept)
            }
            Value::Bytes(data) => {
                let mut kept = self.buffer_for_value(class, bytes)?;
                kept.write(0, data);
                Some(kept)
            }
        };
        let entry = Entry::new(buf, bytes);
        self.reserve(key.hash(), entry.charge(key.as_slice())).then_some(entry)
    }

    /// An entry that was prepared and does not come in.
    pub(super) fn withdraw(&self, key: &TreeKey, entry: &Entry) {
        self.release(Freed { charge: entry.charge(key.as_slice()), slab_bytes: 0 });
    }

    /// Takes `charge` off the budget, dropping what was used longest ago to make room.
    fn reserve(&self, hash: u64, charge: usize) -> bool {
        if charge > self.budget_bytes {
            return false;
        }
        let shards = self.shards.len();
        // Each shard knows only its own order of use: begin with one chosen by chance, so that none loses
        // more than others.
        let mut at = hash as usize % shards;
        // Each round but the last drops a value.
        loop {
            let fits = |used: usize| (used <= self.budget_bytes - charge).then(|| used + charge);
            if self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok() {
                return true;
            }
            let Some(found) = (0..shards).map(|i| (at + i) % shards).find(|i| self.drop_oldest(*i).is_some())
            else {
                return false;
            };
            at = (found + 1) % shards;
        }
    }

    /// Drops what a shard has not used for longest.
    fn drop_oldest(&self, shard: usize) -> Option<Freed> {
        let mut state = self.shards[shard].lock();
        let (leaf, _) = state.entries.oldest()?;
        Some(self.dropped(state.entries.remove_leaf(leaf)))
    }

    fn dropped(&self, freed: Freed) -> Freed {
        self.release(freed);
        self.dropped.fetch_add(1, Ordering::Relaxed);
        freed
    }

    /// Drops values until `bytes` of the slab, or everything, was given back; returns how many bytes were.
    pub(super) fn evict(&self, bytes: usize) -> usize {
        let shards = self.shards.len();
        let mut freed = 0;
        let mut empty = 0;
        while freed < bytes && empty < shards {
            let at = self.hand.fetch_add(1, Ordering::Relaxed) % shards;
            match self.drop_oldest(at) {
                Some(dropped) => {
                    freed += dropped.slab_bytes;
                    empty = 0;
                }
                None => empty += 1,
            }
        }
        freed
    }

    /// A buffer for a value to keep: never worth more than a value of the same size.
    fn buffer_for_value(&self, class: Class, bytes: usize) -> Option<SlabBuf> {
        self.slab.alloc_at_hand(bytes).ok().or_else(|| self.take_from_values(class, bytes))
    }

    fn take_from_values(&self, class: Class, bytes: usize) -> Option<SlabBuf> {
        (0..ATTEMPTS)
            .find_map(|_| self.drop_oldest_of(class).and_then(|()| self.slab.alloc_at_hand(bytes).ok()))
    }

    /// A buffer for an I/O command: when the slab has none left, values are dropped.
    #[inline]
    pub(super) fn alloc(&self, bytes: usize) -> Result<SlabBuf, SlabError> {
        self.slab.alloc_at_hand(bytes).or_else(|_| self.alloc_from_values(bytes))
    }

    #[inline(never)]
    fn alloc_from_values(&self, bytes: usize) -> Result<SlabBuf, SlabError> {
        let Some(class) = Class::holding(bytes) else { return self.slab.alloc(bytes) };
        if self.is_unbalanced(class) {
            // Chunks may be left from the last time.
            if let Ok(buf) = self.slab.alloc_reclaimed(bytes) {
                return Ok(buf);
            }
            if self.dropped.load(Ordering::Relaxed) >= self.rebalance_at.load(Ordering::Relaxed) {
                self.drop_chunks(class);
                if let Ok(buf) = self.slab.alloc_reclaimed(bytes) {
                    return Ok(buf);
                }
            }
        }
        if let Some(buf) = self.take_from_values(class, bytes) {
            return Ok(buf);
        }
        // No value has such a buffer. Memory of other sizes has to do, however lately it was used.
        self.slab
            .alloc_reclaimed(bytes)
            .ok()
            .or_else(|| {
                (0..ATTEMPTS).find_map(|_| {
                    self.drop_chunks(class);
                    self.slab.alloc_reclaimed(bytes).ok()
                })
            })
            .map_or_else(|| self.slab.alloc(bytes), Ok)
    }

    /// Drops the oldest value with a buffer of one size, of the next shard that has one.
    fn drop_oldest_of(&self, class: Class) -> Option<()> {
        let shards = self.shards.len();
        let start = self.hand.fetch_add(1, Ordering::Relaxed);
        (0..shards).map(|i| &self.shards[(start + i) % shards]).find_map(|shard| {
            let mut state = shard.lock();
            let (leaf, _) = state.entries.oldest_of(class)?;
            self.dropped(state.entries.remove_leaf(leaf));
            Some(())
        })
    }

    /// Whether other sizes keep values that are much older than those that have to go for a buffer of this
    /// one.
    fn is_unbalanced(&self, class: Class) -> bool {
        if self.shards.is_empty() {
            return false;
        }
        let state = self.shards[self.hand.load(Ordering::Relaxed) % self.shards.len()].lock();
        match (state.entries.oldest(), state.entries.oldest_of(class)) {
            (Some((_, age)), Some((_, own))) => age > AGE_RATIO.saturating_mul(own.max(1)),
            _ => false,
        }
    }

    /// Drops the values in some of the slab's chunks, so that their memory can change sizes: those with most
    /// values of a size other than `class`. Looks at every value once, and therefore seldom.
    fn drop_chunks(&self, class: Class) {
        let chunk_of = |buf: &SlabBuf| buf.iova() / CHUNK_BYTES;
        let can_give = self.slab.can_give();
        let is_given = |buf: &&SlabBuf| {
            Class::holding(buf.capacity()).is_some_and(|other| other != class && can_give[other.index()])
        };
        let mut cached: BTreeMap<u64, usize> = BTreeMap::new();
        let mut values = 0;
        for shard in &self.shards {
            let state = shard.lock();
            values += state.entries.len();
            for buf in state.entries.bufs().filter(is_given) {
                *cached.entry(chunk_of(buf)).or_default() += buf.capacity();
            }
        }
        let mut chunks: Vec<(u64, usize)> = cached.into_iter().collect();
        chunks.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        chunks.truncate((chunks.len() / 16).max(2));
        let chosen: Vec<u64> = chunks.into_iter().map(|(chunk, _)| chunk).collect();
        for shard in &self.shards {
            let is_chosen =
                |_: &[u8], entry: &Entry| entry.buf().is_some_and(|buf| chosen.contains(&chunk_of(buf)));
            let freed = shard.lock().entries.remove_all(&[], is_chosen);
            self.release(freed);
        }
        let next = self.dropped.load(Ordering::Relaxed) + values as u64 / 8 + 1;
        self.rebalance_at.store(next, Ordering::Relaxed);
    }
}
