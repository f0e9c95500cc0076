//! The values of one shard, by key and by when they were used last.

use unvme_bus::Region;

use super::key::TreeKey;
use crate::radix::{LeafId, RadixTree};
use crate::slab::{CLASSES, Class, SlabBuf};

/// What an entry takes beside its key and its buffer: leaf, its share of inner nodes, the handle of the
/// buffer.
const ENTRY_BYTES: usize = 192;
const NONE: u32 = u32::MAX;
/// Hints of a shard that has few entries.
const HINTS_MIN: usize = 64;
/// Lowest bit of a hash that chooses a hint.
const HINT_SHIFT: u32 = 24;
/// Lists: one for each size of buffer, and one for values without a byte.
const LISTS: usize = CLASSES + 1;

/// A complete value.
pub(super) struct Entry {
    /// None when the value is empty.
    buf: Option<SlabBuf>,
    /// The memory of `buf`, one step nearer.
    region: Option<Region>,
    /// Size of the value.
    bytes: u32,
    list: u8,
    /// Towards what was used later.
    newer: u32,
    /// Towards what was used earlier.
    older: u32,
    /// The shard's count of uses at the last one.
    used_at: u64,
}

impl Entry {
    /// The value in the first `bytes` of `buf`.
    pub(super) fn new(buf: Option<SlabBuf>, bytes: usize) -> Self {
        let class = buf.as_ref().and_then(|buf| Class::holding(buf.capacity()));
        let list = class.map_or(CLASSES, Class::index) as u8;
        let region = buf.as_ref().map(|buf| buf.region().clone());
        Self { buf, region, bytes: bytes as u32, list, newer: NONE, older: NONE, used_at: 0 }
    }

    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes as usize
    }

    pub(super) fn buf(&self) -> Option<&SlabBuf> {
        self.buf.as_ref()
    }

    /// The memory the value is at the beginning of, if it has a byte.
    #[inline]
    pub(super) fn region(&self) -> Option<&Region> {
        self.region.as_ref()
    }

    /// Bytes of the slab it takes.
    pub(super) fn slab_bytes(&self) -> usize {
        self.buf.as_ref().map_or(0, SlabBuf::capacity)
    }

    /// Bytes it takes of the cache's budget.
    pub(super) fn charge(&self, key: &[u8]) -> usize {
        self.slab_bytes() + key.len() + ENTRY_BYTES
    }
}

/// What was taken out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Freed {
    /// Bytes of the cache's budget.
    pub(super) charge: usize,
    pub(super) slab_bytes: usize,
}

impl Freed {
    pub(super) fn add(&mut self, other: Self) {
        self.charge += other.charge;
        self.slab_bytes += other.slab_bytes;
    }
}

#[derive(Clone, Copy)]
struct List {
    newest: u32,
    oldest: u32,
}

/// Values by key, and in lists by use.
///
/// There is a list for each size of buffer: who needs a buffer of one size is not helped by dropping another.
/// The value used longest ago is at the end of one of them.
///
/// The way down the tree is a memory access for each node. A table by hash remembers where it led: one
/// access, which is right unless two keys share a place. The leaf's own key tells.
pub(super) struct Entries {
    tree: RadixTree<Entry>,
    /// Leaves by hash, a power of two of them, or none; any of them may be wrong.
    hints: Vec<u32>,
    lists: [List; LISTS],
    uses: u64,
}

impl Entries {
    pub(super) fn new() -> Self {
        let lists = [List { newest: NONE, oldest: NONE }; LISTS];
        Self { tree: RadixTree::new(), hints: Vec::new(), lists, uses: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.tree.len()
    }

    /// The leaf of a key, and how long its value is.
    #[inline]
    pub(super) fn find(&mut self, key: &TreeKey) -> Option<(LeafId, usize)> {
        let place = self.hint_of(key.hash());
        if let Some(hint) = self.hints.get(place) {
            let leaf = LeafId(*hint);
            if let Some((found, entry)) = self.tree.leaf(leaf)
                && found == key.as_slice()
            {
                return Some((leaf, entry.bytes()));
            }
        }
        let leaf = self.tree.find(key.as_slice())?;
        if let Some(hint) = self.hints.get_mut(place) {
            *hint = leaf.0;
        }
        Some((leaf, self.get(leaf)?.bytes()))
    }

    #[inline]
    fn hint_of(&self, hash: u64) -> usize {
        // The highest bits have chosen the shard: all keys here share them.
        (hash >> HINT_SHIFT) as usize & self.hints.len().wrapping_sub(1)
    }

    /// Makes room for as many hints as there are entries, and some more. Those that are lost come back with
    /// use.
    fn grow_hints(&mut self) {
        if self.tree.len() > self.hints.len() / 2 {
            let places = (self.tree.len() * 2).next_power_of_two().max(HINTS_MIN);
            self.hints = vec![NONE; places];
        }
    }

    #[inline]
    pub(super) fn get(&self, leaf: LeafId) -> Option<&Entry> {
        Some(self.tree.leaf(leaf)?.1)
    }

    /// Marks an entry as used now.
    #[inline]
    pub(super) fn touch(&mut self, leaf: LeafId) {
        let Some((_, entry)) = self.tree.leaf(leaf) else { return };
        if entry.newer == NONE {
            // The newest of its list: nothing moves, but its age counts against the other lists.
            self.stamp(leaf);
            return;
        }
        self.unlink(leaf);
        self.link(leaf);
    }

    /// Adds an entry, in place of the one the key may have.
    pub(super) fn insert(&mut self, key: &TreeKey, entry: Entry) -> Freed {
        let freed = self.remove(key);
        let (leaf, _) = self.tree.insert_leaf(key.as_slice(), entry);
        self.link(leaf);
        self.grow_hints();
        let place = self.hint_of(key.hash());
        self.hints[place] = leaf.0;
        freed
    }

    pub(super) fn remove(&mut self, key: &TreeKey) -> Freed {
        self.find(key).map(|(leaf, _)| self.remove_leaf(leaf)).unwrap_or_default()
    }

    pub(super) fn remove_leaf(&mut self, leaf: LeafId) -> Freed {
        let Some((key, entry)) = self.tree.leaf(leaf) else { return Freed::default() };
        let freed = Freed { charge: entry.charge(key), slab_bytes: entry.slab_bytes() };
        self.unlink(leaf);
        self.tree.remove_leaf(leaf);
        freed
    }

    /// Removes the entries whose keys start with `prefix` and are `meant`.
    pub(super) fn remove_all(&mut self, prefix: &[u8], meant: impl Fn(&[u8], &Entry) -> bool) -> Freed {
        let mut found = Vec::new();
        let mut leaves = self.tree.prefix(prefix);
        while let Some(leaf) = leaves.next_leaf() {
            if self.tree.leaf(leaf).is_some_and(|(key, entry)| meant(key, entry)) {
                found.push(leaf);
            }
        }
        let mut freed = Freed::default();
        for leaf in found {
            freed.add(self.remove_leaf(leaf));
        }
        freed
    }

    /// The entry used longest ago, and how many uses ago that was.
    pub(super) fn oldest(&self) -> Option<(LeafId, u64)> {
        self.lists.iter().filter_map(|list| self.age(list)).max_by_key(|(_, age)| *age)
    }

    /// As [`Entries::oldest`], of those with buffers of one size.
    pub(super) fn oldest_of(&self, class: Class) -> Option<(LeafId, u64)> {
        self.age(&self.lists[class.index()])
    }

    /// All entries that have a buffer.
    pub(super) fn bufs(&self) -> impl Iterator<Item = &SlabBuf> {
        self.tree.iter().filter_map(|(_, entry)| entry.buf())
    }

    fn age(&self, list: &List) -> Option<(LeafId, u64)> {
        let leaf = LeafId(list.oldest);
        Some((leaf, self.uses - self.get(leaf)?.used_at))
    }

    fn stamp(&mut self, leaf: LeafId) {
        self.uses += 1;
        if let Some(entry) = self.tree.leaf_mut(leaf) {
            entry.used_at = self.uses;
        }
    }

    fn link(&mut self, leaf: LeafId) {
        self.stamp(leaf);
        let Some(entry) = self.tree.leaf_mut(leaf) else { return };
        let list = &mut self.lists[usize::from(entry.list)];
        let older = std::mem::replace(&mut list.newest, leaf.0);
        entry.newer = NONE;
        entry.older = older;
        match self.tree.leaf_mut(LeafId(older)) {
            Some(older) => older.newer = leaf.0,
            None => list.oldest = leaf.0,
        }
    }

    fn unlink(&mut self, leaf: LeafId) {
        let Some(entry) = self.get(leaf) else { return };
        let (newer, older) = (entry.newer, entry.older);
        let list = &mut self.lists[usize::from(entry.list)];
        match self.tree.leaf_mut(LeafId(newer)) {
            Some(newer) => newer.older = older,
            None => list.newest = older,
        }
        match self.tree.leaf_mut(LeafId(older)) {
            Some(older) => older.newer = newer,
            None => list.oldest = newer,
        }
    }
}
