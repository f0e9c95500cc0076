//! The keys in order, for listing and iterating.
//!
//! The index knows hashes only. The first listing reads all keys from the media, once; from then on each
//! shard notes the keys that come and go, and the next listing takes note of those. Who never lists pays
//! nothing.

use std::borrow::Borrow;
use std::cmp::Ordering as Order;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use unvme_bus::lock;

use super::record::HeadBuffer;
use super::{KEYSPACES, Key, KvError, KvStore, Listing};

/// Keys up to this length need no memory of their own.
const SHORT_BYTES: usize = 22;
/// Changes noted by a shard before background work should look at them.
const CHANGES_MANY: usize = 256;

/// A key in 24 bytes when it is short.
#[derive(Clone, Debug)]
pub(super) enum CompactKey {
    Short { bytes: u8, key: [u8; SHORT_BYTES] },
    Long(Box<[u8]>),
}

impl CompactKey {
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut key = [0; SHORT_BYTES];
        match key.get_mut(..bytes.len()) {
            Some(short) => {
                short.copy_from_slice(bytes);
                Self::Short { bytes: bytes.len() as u8, key }
            }
            None => Self::Long(bytes.into()),
        }
    }

    /// Memory beside its own.
    fn heap_bytes(&self) -> u64 {
        if let Self::Long(key) = self { key.len() as u64 } else { 0 }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Short { bytes, key } => &key[..usize::from(*bytes)],
            Self::Long(key) => key,
        }
    }
}

impl Borrow<[u8]> for CompactKey {
    fn borrow(&self) -> &[u8] {
        self.as_slice()
    }
}

impl Ord for CompactKey {
    fn cmp(&self, other: &Self) -> Order {
        self.as_slice().cmp(other.as_slice())
    }
}

impl PartialOrd for CompactKey {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for CompactKey {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for CompactKey {}

/// A key that has come or gone.
#[derive(Debug)]
pub(super) struct Change {
    keyspace: u8,
    key: CompactKey,
    exists: bool,
}

impl Change {
    pub(super) fn added(key: &Key<'_>) -> Self {
        Self { keyspace: key.keyspace, key: CompactKey::new(key.bytes), exists: true }
    }

    pub(super) fn removed(key: &Key<'_>) -> Self {
        Self { keyspace: key.keyspace, key: CompactKey::new(key.bytes), exists: false }
    }
}

/// All keys, by keyspace.
#[derive(Default)]
struct Sets {
    keys: [BTreeSet<CompactKey>; KEYSPACES as usize],
    /// Pairs whose heads are damaged, by hash and place: their keys are missing.
    unread: Vec<(u64, u64)>,
}

/// The ordered keys, if anybody has ever asked for them.
pub(super) struct Ordered {
    sets: Mutex<Option<Sets>>,
    /// Bytes of the keys that are not [`CompactKey::Short`].
    long_bytes: AtomicU64,
    /// A bit per shard: it has noted changes.
    changed: Box<[AtomicU64]>,
    /// Some shard has noted many.
    is_behind: AtomicBool,
}

impl Ordered {
    pub(super) fn new(shards: usize) -> Self {
        let changed = (0..shards.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let long_bytes = AtomicU64::new(0);
        Self { sets: Mutex::default(), long_bytes, changed, is_behind: AtomicBool::new(false) }
    }

    /// Notes in `changes`, those of a locked shard, that a key has come or gone.
    pub(super) fn note(&self, shard: usize, changes: &mut Vec<Change>, change: Change) {
        changes.push(change);
        let (word, bit) = (&self.changed[shard / 64], 1 << (shard % 64));
        // Relaxed: who acts on the bit locks the shard.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        if changes.len().is_multiple_of(CHANGES_MANY) {
            self.is_behind.store(true, Ordering::Relaxed);
        }
    }

    /// Memory in bytes, estimated: nodes of B-trees are three quarters full on average, and lists of changes
    /// are short.
    pub(super) fn memory_bytes(&self) -> u64 {
        let sets = lock(&self.sets);
        let Some(sets) = sets.as_ref() else { return 0 };
        let keys: usize = sets.keys.iter().map(BTreeSet::len).sum();
        let nodes = (keys * size_of::<CompactKey>() * 4 / 3) as u64;
        nodes + self.long_bytes.load(Ordering::Relaxed)
    }
}

impl KvStore {
    /// Calls `emit` for each key of a listing until it returns false. The store is not called from within
    /// `emit`.
    ///
    /// # Errors
    /// [`KvError::Unrecovered`] while nobody knows which keys are missing, and behind the last key while
    /// there are pairs whose keys cannot be read.
    pub(crate) fn list(
        &self,
        listing: Listing<'_>,
        mut emit: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), KvError> {
        self.vouch()?;
        let mut guard = lock(&self.ordered.sets);
        let sets = self.up_to_date(&mut guard);
        let Some(set) = sets.keys.get(usize::from(listing.keyspace)) else { return Ok(()) };
        // A mask that begins with ones is a prefix: all keys that have it lie together. They begin with the
        // shortest one, without the zeroes that are taken for missing bytes.
        let whole = prefix_mask(listing.mask);
        let least = (listing.prefix & whole).to_be_bytes();
        let first = &least[..least.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)];
        let (start, after) = match listing.start < first {
            true => (first, false),
            false => (listing.start, listing.after_start),
        };
        let start = if after { Bound::Excluded(start) } else { Bound::Included(start) };
        for key in set.range::<[u8], _>((start, Bound::Unbounded)) {
            let key = key.as_slice();
            if (first_bytes(key) ^ listing.prefix) & whole != 0 {
                break;
            }
            let wanted =
                key.len() <= listing.key_bytes_max && (first_bytes(key) ^ listing.prefix) & listing.mask == 0;
            if wanted && !emit(key) {
                return Ok(());
            }
        }
        // Those that were stored again since, deleted or given up are missed no more.
        sets.unread.retain(|&(hash, place)| self.index.is_newest(hash, place));
        if sets.unread.is_empty() { Ok(()) } else { Err(KvError::Unrecovered) }
    }

    /// Takes note of changes that have piled up; part of background work.
    pub(super) fn maintain_ordered(&self) {
        if self.ordered.is_behind.load(Ordering::Relaxed)
            && let Ok(mut guard) = self.ordered.sets.try_lock()
        {
            self.ordered.is_behind.store(false, Ordering::Relaxed);
            self.up_to_date(&mut guard);
        }
    }

    fn up_to_date<'a>(&self, guard: &'a mut MutexGuard<'_, Option<Sets>>) -> &'a mut Sets {
        if guard.is_none() {
            **guard = Some(self.read_all_keys());
        }
        let sets = guard.get_or_insert_default();
        for (word, bits) in self.ordered.changed.iter().enumerate() {
            let mut bits = bits.swap(0, Ordering::Relaxed);
            while bits != 0 {
                let number = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let changes = self.index.lock_shard(number).state.changes.as_mut().map(std::mem::take);
                for change in changes.into_iter().flatten() {
                    let Some(set) = sets.keys.get_mut(usize::from(change.keyspace)) else { continue };
                    let (exists, bytes) = (change.exists, change.key.heap_bytes());
                    let is_news =
                        if exists { set.insert(change.key) } else { set.remove(change.key.as_slice()) };
                    match exists {
                        true if is_news => _ = self.ordered.long_bytes.fetch_add(bytes, Ordering::Relaxed),
                        false if is_news => _ = self.ordered.long_bytes.fetch_sub(bytes, Ordering::Relaxed),
                        _ => {}
                    }
                }
            }
        }
        sets
    }

    /// Reads all keys from the media, and has the shards note changes from that moment on.
    fn read_all_keys(&self) -> Sets {
        let mut keys: [Vec<CompactKey>; KEYSPACES as usize] = Default::default();
        let mut unread = Vec::new();
        let mut buffer = HeadBuffer::new();
        for number in 0..self.index.shards() {
            let mut shard = self.index.lock_shard(number);
            shard.state.changes = Some(Vec::new());
            shard.for_each(|hash, slot| {
                if slot.is_tombstone() || slot.is_part() {
                    return;
                }
                let Some(head) = self.load_head(slot.place(), &mut buffer) else {
                    return unread.push((hash, slot.place()));
                };
                if let Some(keys) = keys.get_mut(usize::from(head.keyspace)) {
                    let key = CompactKey::new(buffer.key(&head));
                    self.ordered.long_bytes.fetch_add(key.heap_bytes(), Ordering::Relaxed);
                    keys.push(key);
                }
            });
        }
        Sets { keys: keys.map(|keys| keys.into_iter().collect()), unread }
    }
}

/// The leading ones of a mask, as far as they are whole bytes.
fn prefix_mask(mask: u32) -> u32 {
    let bits = mask.leading_ones() / 8 * 8;
    if bits == 0 { 0 } else { u32::MAX << (32 - bits) }
}

/// The first four bytes of a key as a big-endian number, with zeroes for missing ones.
fn first_bytes(key: &[u8]) -> u32 {
    let mut bytes = [0; 4];
    for (to, from) in bytes.iter_mut().zip(key) {
        *to = *from;
    }
    u32::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_key_takes_24_bytes_and_keys_compare_like_their_bytes() {
        assert_eq!(size_of::<CompactKey>(), 24);
        let keys = [b"a".to_vec(), b"ab".to_vec(), vec![b'a'; 22], vec![b'a'; 23], vec![0xff; 255]];
        for a in &keys {
            assert_eq!(CompactKey::new(a).as_slice(), a);
            for b in &keys {
                assert_eq!(CompactKey::new(a).cmp(&CompactKey::new(b)), a.cmp(b));
            }
        }
    }

    #[test]
    fn a_mask_is_a_prefix_as_far_as_it_has_whole_bytes_of_ones() {
        assert_eq!(prefix_mask(0), 0);
        assert_eq!(prefix_mask(0xff00_0000), 0xff00_0000);
        assert_eq!(prefix_mask(0xffff_8001), 0xffff_0000);
        assert_eq!(prefix_mask(u32::MAX), u32::MAX);
        assert_eq!(first_bytes(b"\x01\x02"), 0x0102_0000);
    }
}
