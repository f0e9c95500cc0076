//! An adaptive radix tree: an ordered map from byte strings, as compact as a hash table and without its
//! rehashing.
//!
//! After Leis, Kemper, Neumann, "The Adaptive Radix Tree" (ICDE 2013): inner nodes have one of four sizes, a
//! path without a branch is stored in one node, and a key that shares no more bytes with any other ends in a
//! leaf at once. Lookups compare only the first bytes of a long path on the way down and the whole key at the
//! leaf. One thing is added: a key may be the start of another, in which case its leaf hangs on the node
//! where it ends.
//!
//! Nodes and leaves are in arenas and refer to each other by index. A key's leaf keeps its place until the
//! key is removed, so that others (the cache's list of what was used last) can refer to it as well.

mod iter;
mod leaf;
mod node;

#[cfg(test)]
mod tests;

use std::fmt;

pub use iter::Prefix;
use leaf::Leaves;
use node::{Header, Kind, Nodes, Ref};

/// An ordered map from byte strings of any length, the empty one included, to values.
pub struct RadixTree<V> {
    root: Ref,
    nodes: Nodes,
    leaves: Leaves<V>,
}

/// A key's leaf, for as long as the key is in the tree; after that, perhaps another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafId(pub(crate) u32);

/// A place in the tree that refers to a node or leaf.
#[derive(Clone, Copy)]
enum Slot {
    Root,
    Child(Ref, u8),
}

/// Where a leaf hangs.
struct Place {
    /// What refers to `node`; what refers to the leaf itself when there is no node.
    slot: Slot,
    /// The node, and the byte the leaf is at; none when the key ends with the node.
    node: Option<(Ref, Option<u8>)>,
    leaf: usize,
}

impl<V> RadixTree<V> {
    /// An empty tree. Takes no memory.
    pub const fn new() -> Self {
        Self { root: Ref::NONE, nodes: Nodes::new(), leaves: Leaves::new() }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.leaves.len()
    }

    /// True when there is no key.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Bytes of memory the tree has taken, what `V` refers to not counted.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.nodes.bytes() + self.leaves.bytes()
    }

    /// Removes all keys and gives the memory back.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// The value of `key`.
    pub fn get(&self, key: &[u8]) -> Option<&V> {
        self.leaf(self.find(key)?).map(|(_, value)| value)
    }

    /// The value of `key`, to be changed.
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        let leaf = self.find(key)?;
        self.leaf_mut(leaf)
    }

    /// Sets the value of `key` and returns the one it had.
    ///
    /// # Panics
    /// When there are more than 2^29 keys, or `key` is 4 GiB long or longer.
    pub fn insert(&mut self, key: &[u8], value: V) -> Option<V> {
        self.insert_leaf(key, value).1
    }

    /// Removes `key` and returns its value.
    pub fn remove(&mut self, key: &[u8]) -> Option<V> {
        let leaf = self.find(key)?;
        let place = self.place_of(key, leaf);
        self.detach(&place)
    }

    /// All keys with their values, in ascending order.
    pub fn iter(&self) -> Prefix<'_, V> {
        self.prefix(&[])
    }

    /// The keys that start with `prefix` and their values, in ascending order.
    pub fn prefix(&self, prefix: &[u8]) -> Prefix<'_, V> {
        Prefix::new(self, self.below(prefix))
    }

    /// The leaf of `key`.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<LeafId> {
        let mut at = self.root;
        let mut depth = 0;
        loop {
            match at.kind() {
                Kind::None => return None,
                Kind::Leaf => {
                    return (self.leaves.key(at.index()) == key).then_some(LeafId(at.index() as u32));
                }
                _ => at = self.nodes.step(at, key, &mut depth),
            }
        }
    }

    /// As [`RadixTree::insert`], with the leaf.
    pub(crate) fn insert_leaf(&mut self, key: &[u8], value: V) -> (LeafId, Option<V>) {
        assert!(key.len() < u32::MAX as usize, "a key of {} bytes", key.len());
        if let Some(leaf) = self.find(key) {
            let old = self.leaf_mut(leaf).map(|old| std::mem::replace(old, value));
            return (leaf, old);
        }
        let leaf = LeafId(self.leaves.add(key, value));
        self.attach_new(key, Ref::new(Kind::Leaf, leaf.0));
        (leaf, None)
    }

    /// Key and value of a leaf.
    #[inline]
    pub(crate) fn leaf(&self, leaf: LeafId) -> Option<(&[u8], &V)> {
        self.leaves.get(leaf.0 as usize)
    }

    /// Value of a leaf, to be changed.
    #[inline]
    pub(crate) fn leaf_mut(&mut self, leaf: LeafId) -> Option<&mut V> {
        self.leaves.value_mut(leaf.0 as usize)
    }

    /// Removes a leaf and its key.
    pub(crate) fn remove_leaf(&mut self, leaf: LeafId) -> Option<V> {
        let (key, _) = self.leaf(leaf)?;
        let place = self.place_of(key, leaf);
        self.detach(&place)
    }

    /// The highest node below which are all keys that start with `prefix`, and no others.
    fn below(&self, prefix: &[u8]) -> Ref {
        let mut at = self.root;
        let mut depth = 0;
        while !at.is_none() && !at.is_leaf() {
            depth += self.nodes.header(at).path_bytes as usize;
            let Some(byte) = prefix.get(depth) else { break };
            at = self.nodes.child(at, *byte);
            depth += 1;
        }
        // Paths were not compared on the way. All keys below share theirs, so one of them tells.
        if at.is_none() || !self.leaves.key(self.any_leaf(at)).starts_with(prefix) { Ref::NONE } else { at }
    }

    /// A leaf below `at`, which is not [`Ref::NONE`].
    fn any_leaf(&self, mut at: Ref) -> usize {
        while !at.is_leaf() {
            let end = self.nodes.header(at).end;
            at = match self.nodes.next_child(at, 0) {
                Some((_, child)) if end.is_none() => child,
                _ => end,
            };
        }
        at.index()
    }

    fn at(&self, slot: Slot) -> Ref {
        match slot {
            Slot::Root => self.root,
            Slot::Child(node, byte) => self.nodes.child(node, byte),
        }
    }

    fn set(&mut self, slot: Slot, at: Ref) {
        match slot {
            Slot::Root => self.root = at,
            Slot::Child(node, byte) => self.nodes.replace_child(node, byte, at),
        }
    }

    /// Hangs a leaf whose `key` is not in the tree yet.
    fn attach_new(&mut self, key: &[u8], leaf: Ref) {
        let mut slot = Slot::Root;
        let mut depth = 0;
        loop {
            let at = self.at(slot);
            if at.is_none() {
                return self.set(slot, leaf);
            }
            if at.is_leaf() {
                return self.split_leaf(slot, at, (key, leaf), depth);
            }
            let path_bytes = self.nodes.header(at).path_bytes as usize;
            let shared = self.shared_path(at, key, depth);
            if shared < path_bytes {
                return self.split_path(slot, at, (key, leaf), depth, shared);
            }
            depth += path_bytes;
            let Some(byte) = key.get(depth) else {
                self.nodes.header_mut(at).end = leaf;
                return;
            };
            if self.nodes.child(at, *byte).is_none() {
                let grown = self.nodes.add_child(at, *byte, leaf);
                return self.set(slot, grown);
            }
            slot = Slot::Child(at, *byte);
            depth += 1;
        }
    }

    /// How many bytes of a node's path `key` has from `depth` on.
    fn shared_path(&self, at: Ref, key: &[u8], depth: usize) -> usize {
        let header = self.nodes.header(at);
        let path_bytes = header.path_bytes as usize;
        let kept = header.path();
        let shared = shared_bytes(kept, &key[depth..]);
        if shared < kept.len() || path_bytes == kept.len() {
            return shared;
        }
        let path = &self.leaves.key(self.any_leaf(at))[depth..depth + path_bytes];
        shared_bytes(path, &key[depth..])
    }

    /// A leaf and a new one get a node that holds what their keys share.
    fn split_leaf(&mut self, slot: Slot, old: Ref, (key, new): (&[u8], Ref), depth: usize) {
        let old_key = self.leaves.key(old.index());
        let shared = shared_bytes(&old_key[depth..], &key[depth..]);
        let node = self.nodes.add_node(Header::new(&key[depth..depth + shared]));
        attach(&mut self.nodes, node, &old_key[depth + shared..], old);
        attach(&mut self.nodes, node, &key[depth + shared..], new);
        self.set(slot, node);
    }

    /// A node's path ends where a new key leaves it; the rest of it goes to a node below.
    fn split_path(&mut self, slot: Slot, old: Ref, (key, new): (&[u8], Ref), depth: usize, shared: usize) {
        let path_bytes = self.nodes.header(old).path_bytes as usize;
        let path = &self.leaves.key(self.any_leaf(old))[depth..depth + path_bytes];
        self.nodes.header_mut(old).set_path(&path[shared + 1..]);
        let node = self.nodes.add_node(Header::new(&path[..shared]));
        attach(&mut self.nodes, node, &path[shared..], old);
        attach(&mut self.nodes, node, &key[depth + shared..], new);
        self.set(slot, node);
    }

    /// Where the leaf of `key` hangs.
    fn place_of(&self, key: &[u8], leaf: LeafId) -> Place {
        let leaf = leaf.0 as usize;
        let mut slot = Slot::Root;
        let mut depth = 0;
        // The key is there, so the way down is known to be right.
        loop {
            let at = self.at(slot);
            if at.is_leaf() {
                return Place { slot, node: None, leaf };
            }
            depth += self.nodes.header(at).path_bytes as usize;
            let Some(byte) = key.get(depth) else {
                return Place { slot, node: Some((at, None)), leaf };
            };
            if self.nodes.child(at, *byte).is_leaf() {
                return Place { slot, node: Some((at, Some(*byte))), leaf };
            }
            slot = Slot::Child(at, *byte);
            depth += 1;
        }
    }

    fn detach(&mut self, place: &Place) -> Option<V> {
        match place.node {
            None => self.set(place.slot, Ref::NONE),
            Some((node, None)) => {
                self.nodes.header_mut(node).end = Ref::NONE;
                self.merge(place.slot, node);
            }
            Some((node, Some(byte))) => {
                let node = self.nodes.remove_child(node, byte);
                self.set(place.slot, node);
                self.merge(place.slot, node);
            }
        }
        self.leaves.remove(place.leaf)
    }

    /// A node with one thing left gives way to it.
    fn merge(&mut self, slot: Slot, node: Ref) {
        let header = *self.nodes.header(node);
        let left = match (header.count, header.end) {
            (0, end) => end,
            (1, Ref::NONE) => match self.nodes.next_child(node, 0) {
                Some((byte, child)) => {
                    if !child.is_leaf() {
                        self.nodes.header_mut(child).prepend(&header, byte);
                    }
                    child
                }
                None => return,
            },
            _ => return,
        };
        self.set(slot, left);
        self.nodes.free(node);
    }
}

/// Puts `what` where a key's `rest` continues from the end of a node's path.
fn attach(nodes: &mut Nodes, node: Ref, rest: &[u8], what: Ref) {
    match rest.first() {
        // There is room: the node was made for two.
        Some(byte) => {
            nodes.add_child(node, *byte, what);
        }
        None => nodes.header_mut(node).end = what,
    }
}

fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl<V> Default for RadixTree<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> fmt::Debug for RadixTree<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RadixTree")
            .field("len", &self.len())
            .field("memory_bytes", &self.memory_bytes())
            .finish()
    }
}

impl<'a, V> IntoIterator for &'a RadixTree<V> {
    type Item = (&'a [u8], &'a V);
    type IntoIter = Prefix<'a, V>;

    fn into_iter(self) -> Prefix<'a, V> {
        self.iter()
    }
}
