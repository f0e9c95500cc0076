//! The names of a directory: a tree whose keys are hashes of names.
//!
//! A key has 57 bits of the hash and 6 that tell names of the same hash apart. It never changes as long as
//! the name is there, and is what a listing goes on from.

use std::ops::ControlFlow;
use std::sync::Arc;

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::buffer::{Buffer, Buffers};
use crate::error::{Error, Result};
use crate::journal::Tx;
use crate::tree::Tree;

/// The longest name, in bytes.
pub const NAME_MAX: usize = 255;

/// Names of one hash.
const SAME_MAX: u64 = 64;

/// Where a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub ino: u64,
    pub file_type: FileType,
}

impl Target {
    pub(crate) fn value(self, name: &[u8]) -> Vec<u8> {
        let mut value = Vec::with_capacity(9 + name.len());
        value.extend_from_slice(&self.ino.to_le_bytes());
        value.push((self.file_type.as_raw_mode() >> 12) as u8);
        value.extend_from_slice(name);
        value
    }

    pub(crate) fn parse(value: &[u8]) -> Option<(Self, &[u8])> {
        let (ino, rest) = value.split_first_chunk::<8>()?;
        let (&kind, name) = rest.split_first()?;
        let file_type = FileType::from_raw_mode(u32::from(kind) << 12);
        Some((Self { ino: u64::from_le_bytes(*ino), file_type }, name))
    }
}

/// The hash of a name, with the file system's own seed.
#[inline]
pub(crate) fn hash(name: &[u8], seed: u64) -> u64 {
    twox_hash::XxHash3_64::oneshot_with_seed(seed, name)
}

/// The first key that a name can have.
fn key_of(hash: u64) -> u64 {
    // The lowest keys stand for the directory itself and the one above.
    ((hash >> 7) * SAME_MAX).max(SAME_MAX)
}

/// Whether a name can be one.
///
/// # Errors
/// EINVAL, ENAMETOOLONG.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Errno::NAMETOOLONG.into());
    }
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
        return Err(Errno::INVAL.into());
    }
    Ok(())
}

/// A key of a name in a directory, and the page that it is in, or would be. It is good as long as nobody
/// changes the directory.
#[derive(Clone)]
pub(crate) struct Key {
    key: u64,
    leaf: Option<Arc<Buffer>>,
}

impl Key {
    /// The same key in a tree that has changed since it was found.
    pub(crate) fn anew(&self) -> Self {
        self.key.into()
    }
}

impl From<u64> for Key {
    fn from(key: u64) -> Self {
        Self { key, leaf: None }
    }
}

/// Where a name is in a directory, or would be.
#[derive(Clone)]
pub(crate) enum Slot {
    /// Its key, and where it leads to.
    Taken(Key, Target),
    /// It is not there. A key that it can have; `None` when all keys of its hash are taken.
    Free(Option<Key>),
}

impl Slot {
    /// Where it leads to.
    pub(crate) fn target(&self) -> Option<Target> {
        match self {
            Self::Taken(_, target) => Some(*target),
            Self::Free(_) => None,
        }
    }

    /// A key for a name that is not there.
    ///
    /// # Errors
    /// EEXIST when it is; ENOSPC when it can have none.
    pub(crate) fn free(self) -> Result<Key> {
        match self {
            Self::Taken(..) => Err(Errno::EXIST.into()),
            Self::Free(key) => key.ok_or(Error::Posix(Errno::NOSPC)),
        }
    }
}

/// Looks a name with its hash up in the tree of a directory, or in one that has none.
pub(crate) fn find(tree: Option<Tree>, buffers: &Buffers, name: &[u8], hash: u64) -> Result<Slot> {
    let first = key_of(hash);
    let Some(tree) = tree else { return Ok(Slot::Free(Some(first.into()))) };
    let mut free = first;
    let mut found = None;
    let leaf = tree.visit_few(buffers, first, first + SAME_MAX, |key, value| {
        if let Some((target, same)) = Target::parse(value)
            && same == name
        {
            found = Some((key, target));
            return ControlFlow::Break(());
        }
        free += u64::from(key == free);
        ControlFlow::Continue(())
    })?;
    Ok(match found {
        Some((key, target)) => Slot::Taken(Key { key, leaf }, target),
        // Others of its hash may be in the next page already.
        None if free == first => Slot::Free(Some(Key { key: free, leaf })),
        None => Slot::Free((free < first + SAME_MAX).then_some(free.into())),
    })
}

/// Whether a name can have this key.
pub(crate) fn is_key_of(key: u64, hash: u64) -> bool {
    key & !(SAME_MAX - 1) == key_of(hash)
}

/// Has a key lead somewhere.
pub(crate) fn set(tree: Tree, tx: &mut Tx<'_>, key: &Key, name: &[u8], target: Target) -> Result<()> {
    tree.insert_at(tx, key.leaf.as_ref(), key.key, &target.value(name)).map(drop)
}

/// Takes a name away.
pub(crate) fn unset(tree: Tree, tx: &mut Tx<'_>, key: &Key) -> Result<()> {
    match tree.remove_at(tx, key.leaf.as_ref(), key.key)? {
        true => Ok(()),
        false => Err(Error::damaged(tree.root, "a name has vanished from a directory")),
    }
}
