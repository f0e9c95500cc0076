//! The names of a directory: a tree whose keys are hashes of names.
//!
//! A key has 57 bits of the hash and 6 that tell names of the same hash apart. It never changes as long as
//! the name is there, and is what a listing goes on from.

use std::ops::ControlFlow;

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::buffer::Buffers;
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

/// The first key that a name can have.
pub(crate) fn key_of(name: &[u8], seed: u64) -> u64 {
    let hash = twox_hash::XxHash3_64::oneshot_with_seed(seed, name);
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

/// Where `name` leads to, and its key.
pub(crate) fn find(tree: Tree, buffers: &Buffers, seed: u64, name: &[u8]) -> Result<Option<(u64, Target)>> {
    let first = key_of(name, seed);
    let mut found = None;
    tree.visit_few(buffers, first, first + SAME_MAX, |key, value| match Target::parse(value) {
        Some((target, same)) if same == name => {
            found = Some((key, target));
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    })?;
    Ok(found)
}

/// A key for a name that is not there.
pub(crate) fn free_key(tree: Tree, buffers: &Buffers, seed: u64, name: &[u8]) -> Result<u64> {
    let first = key_of(name, seed);
    let mut free = first;
    tree.visit(buffers, first, |key, _| {
        if key == free && free < first + SAME_MAX {
            free += 1;
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    if free < first + SAME_MAX { Ok(free) } else { Err(Errno::NOSPC.into()) }
}

/// Has a key lead somewhere.
pub(crate) fn set(tree: Tree, tx: &mut Tx<'_>, key: u64, name: &[u8], target: Target) -> Result<()> {
    tree.insert(tx, key, &target.value(name)).map(drop)
}

/// Takes a name away.
pub(crate) fn unset(tree: Tree, tx: &mut Tx<'_>, key: u64) -> Result<()> {
    match tree.remove(tx, key)? {
        true => Ok(()),
        false => Err(Error::damaged(tree.root, "a name has vanished from a directory")),
    }
}
