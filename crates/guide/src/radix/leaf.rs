//! Keys with their values.

use super::node::ARENA_MAX;

/// Keys up to this length are kept beside their value: no second memory access to compare one.
const INLINE_BYTES: usize = 22;

/// A key of any length.
enum Key {
    Inline { bytes: u8, data: [u8; INLINE_BYTES] },
    Boxed(Box<[u8]>),
}

impl Key {
    fn new(key: &[u8]) -> Self {
        let mut data = [0; INLINE_BYTES];
        match data.get_mut(..key.len()) {
            Some(start) => {
                start.copy_from_slice(key);
                Self::Inline { bytes: key.len() as u8, data }
            }
            None => Self::Boxed(key.into()),
        }
    }

    #[inline]
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Inline { bytes, data } => &data[..usize::from(*bytes)],
            Self::Boxed(key) => key,
        }
    }
}

struct Leaf<V> {
    key: Key,
    value: V,
}

/// All leaves of a tree. A place stays the same for as long as its key is in the tree.
pub(super) struct Leaves<V> {
    items: Vec<Option<Leaf<V>>>,
    free: Vec<u32>,
    boxed_bytes: usize,
}

impl<V> Leaves<V> {
    pub(super) const fn new() -> Self {
        Self { items: Vec::new(), free: Vec::new(), boxed_bytes: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.items.capacity() * size_of::<Option<Leaf<V>>>()
            + self.free.capacity() * size_of::<u32>()
            + self.boxed_bytes
    }

    pub(super) fn add(&mut self, key: &[u8], value: V) -> u32 {
        let key = Key::new(key);
        if let Key::Boxed(key) = &key {
            self.boxed_bytes += key.len();
        }
        let leaf = Some(Leaf { key, value });
        if let Some(index) = self.free.pop() {
            self.items[index as usize] = leaf;
            return index;
        }
        assert!(self.items.len() < ARENA_MAX, "a radix tree holds at most {ARENA_MAX} keys");
        self.items.push(leaf);
        self.items.len() as u32 - 1
    }

    pub(super) fn remove(&mut self, index: usize) -> Option<V> {
        let leaf = self.items.get_mut(index)?.take()?;
        if let Key::Boxed(key) = &leaf.key {
            self.boxed_bytes -= key.len();
        }
        self.free.push(index as u32);
        Some(leaf.value)
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &V)> {
        let leaf = self.items.get(index)?.as_ref()?;
        Some((leaf.key.as_slice(), &leaf.value))
    }

    #[inline]
    pub(super) fn value_mut(&mut self, index: usize) -> Option<&mut V> {
        Some(&mut self.items.get_mut(index)?.as_mut()?.value)
    }

    /// The key of a leaf that the tree refers to.
    #[inline]
    pub(super) fn key(&self, index: usize) -> &[u8] {
        self.get(index).expect("the tree refers to leaves that are there").0
    }
}
