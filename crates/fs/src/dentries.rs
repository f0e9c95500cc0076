//! Names that were looked up lately, and the nodes that they lead to: a lookup that finds one here reads no
//! page and takes no lock of an inode.
//!
//! A name is added by whoever has found it, under the lock of its directory, and removed by whoever takes it
//! away, before he lets go of that lock: what is here is true. Of a node with several names one is kept.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use unvme::lock::lock;

use crate::node::Node;
use crate::stripe::Apart;
use unvme::spread::spread;

const SHARDS: usize = 128;

/// Bytes of a name that is kept in its place.
const SHORT: usize = 38;

/// A name, if possible without a pointer.
enum Name {
    Short(u8, [u8; SHORT]),
    Long(Box<[u8]>),
}

impl Name {
    fn new(name: &[u8]) -> Self {
        if name.len() > SHORT {
            return Self::Long(name.into());
        }
        let mut bytes = [0; SHORT];
        bytes[..name.len()].copy_from_slice(name);
        Self::Short(name.len() as u8, bytes)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(len, bytes) => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

/// A name of a directory, and the hash of the name.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub directory: u64,
    pub name: &'a [u8],
    pub hash: u64,
}

impl Entry<'_> {
    fn key(&self) -> u64 {
        // 0 is no key.
        (spread(self.directory) ^ self.hash).max(1)
    }
}

struct Dentry {
    directory: u64,
    node: Arc<Node>,
    name: Name,
}

const _: () = assert!(size_of::<(u64, Dentry)>() == 64);

impl Dentry {
    fn is(&self, entry: &Entry<'_>) -> bool {
        self.directory == entry.directory && self.name.bytes() == entry.name
    }
}

/// Keys are hashes.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

type Shard = Apart<Mutex<HashMap<u64, Dentry, BuildHasherDefault<AsItIs>>>>;

/// All of them. There are no more than nodes in memory.
pub(crate) struct Dentries(Box<[Shard]>);

impl Dentries {
    pub(crate) fn new() -> Self {
        Self((0..SHARDS).map(|_| Shard::default()).collect())
    }

    /// Neither the bits that the table takes first, nor those of its tags.
    fn shard(&self, key: u64) -> &Shard {
        &self.0[(key >> 40) as usize % SHARDS]
    }

    #[inline]
    pub(crate) fn get(&self, entry: &Entry<'_>) -> Option<Arc<Node>> {
        let key = entry.key();
        let shard = lock(&self.shard(key).0);
        shard.get(&key).filter(|dentry| dentry.is(entry)).map(|dentry| {
            dentry.node.touch();
            Arc::clone(&dentry.node)
        })
    }

    /// Looks at the node that a name leads to, without counting it. It must not wait for anything.
    #[inline]
    pub(crate) fn with<R>(&self, entry: &Entry<'_>, look: impl FnOnce(&Node) -> R) -> Option<R> {
        let key = entry.key();
        let shard = lock(&self.shard(key).0);
        shard.get(&key).filter(|dentry| dentry.is(entry)).map(|dentry| look(&dentry.node))
    }

    /// A name of a directory whose lock is held leads to `node`.
    pub(crate) fn put(&self, entry: &Entry<'_>, node: &Arc<Node>) {
        let key = entry.key();
        let dentry =
            Dentry { directory: entry.directory, node: Arc::clone(node), name: Name::new(entry.name) };
        let old = node.dentry.swap(key, Ordering::AcqRel);
        if old != 0 && old != key {
            self.take(old, node);
        }
        let replaced = lock(&self.shard(key).0).insert(key, dentry);
        drop(replaced);
    }

    /// A name leads nowhere any more, or elsewhere.
    pub(crate) fn remove(&self, entry: &Entry<'_>) {
        let key = entry.key();
        let mut shard = lock(&self.shard(key).0);
        let is_it = shard.get(&key).is_some_and(|dentry| dentry.is(entry));
        let removed = if is_it { shard.remove(&key) } else { None };
        // Its node may be nobody else's: it is dropped without the lock.
        drop(shard);
        drop(removed);
    }

    fn take(&self, key: u64, node: &Arc<Node>) {
        let mut shard = lock(&self.shard(key).0);
        let is_its = shard.get(&key).is_some_and(|dentry| Arc::ptr_eq(&dentry.node, node));
        let removed = if is_its { shard.remove(&key) } else { None };
        drop(shard);
        drop(removed);
    }

    /// Nobody finds a node here any more.
    pub(crate) fn forget(&self, node: &Arc<Node>) {
        let key = node.dentry.swap(0, Ordering::AcqRel);
        if key != 0 {
            self.take(key, node);
        }
    }
}
