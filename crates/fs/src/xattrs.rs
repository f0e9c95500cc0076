//! Extended attributes: a tree whose keys are hashes of names, and whose values are the attributes in pieces.
//!
//! Of a key, 48 bits are the hash, 4 tell names of the same hash apart, and 12 are the piece. The first piece
//! begins with the name and with how long the whole value is.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use rustix::fs::{FileType, XattrFlags};
use rustix::io::Errno;

use crate::access::{self, Credentials, READ, WRITE};
use crate::buffer::Buffers;
use crate::directory::NAME_MAX;
use crate::error::{Error, Result};
use crate::journal::Tx;
use crate::layout::{Inode, Kinds, Time};
use crate::node::{Node, State};
use crate::page::VALUE_MAX;
use crate::privileges::{self, CAPABILITIES, SET_ID};
use crate::space::Need;
use crate::system::System;
use crate::tree::{GROWTH, Tree};

/// The longest value of an extended attribute, in bytes, as on Linux.
pub const XATTR_MAX: usize = 65536;

/// The attribute that shows and sets the expected life of a file's data.
pub(crate) const HINT_NAME: &[u8] = b"user.unvme.write_hint";

/// Values of `F_SET_RW_HINT`, in order.
const HINTS: [&str; 6] = ["not-set", "none", "short", "medium", "long", "extreme"];

const SAME_BITS: u32 = 4;
const PIECE_BITS: u32 = 12;
const PIECE: u64 = (1 << PIECE_BITS) - 1;

/// New pages that a value needs at most.
const SET_GROWTH: u64 = (XATTR_MAX / VALUE_MAX + 1) as u64 + 2 * GROWTH;

/// How an attribute is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetXattr {
    /// It is made, or has another value from now on.
    #[default]
    Any,
    /// `XATTR_CREATE`: EEXIST when it is there.
    Create,
    /// `XATTR_REPLACE`: ENODATA when it is not there.
    Replace,
    /// Both, as Linux takes them: EEXIST when it is there, ENODATA when it is not.
    Neither,
}

impl SetXattr {
    /// What the flags of `setxattr(2)` mean.
    ///
    /// # Errors
    /// EINVAL for those that there are not.
    pub fn from_flags(flags: i32) -> Result<Self> {
        match XattrFlags::from_bits_retain(flags as u32) {
            none if none.is_empty() => Ok(Self::Any),
            XattrFlags::CREATE => Ok(Self::Create),
            XattrFlags::REPLACE => Ok(Self::Replace),
            both if both == XattrFlags::CREATE | XattrFlags::REPLACE => Ok(Self::Neither),
            _ => Err(Errno::INVAL.into()),
        }
    }
}

fn key_of(name: &[u8], seed: u64) -> u64 {
    let hash = twox_hash::XxHash3_64::oneshot_with_seed(seed, name);
    hash >> (SAME_BITS + PIECE_BITS) << (SAME_BITS + PIECE_BITS)
}

/// A first piece: name, length of the value, and its beginning.
fn parse_first(piece: &[u8]) -> Option<(&[u8], usize, &[u8])> {
    let (&name_len, rest) = piece.split_first()?;
    let (name, rest) = rest.split_at_checked(name_len.into())?;
    let (len, start) = rest.split_first_chunk::<4>()?;
    let len = u32::from_le_bytes(*len) as usize;
    (len <= XATTR_MAX && start.len() <= len).then_some((name, len, start))
}

/// The value of an attribute, and the key of its first piece.
pub(crate) fn find(tree: Tree, buffers: &Buffers, seed: u64, name: &[u8]) -> Result<Option<(u64, Vec<u8>)>> {
    let base = key_of(name, seed);
    let end = base + (1 << (SAME_BITS + PIECE_BITS));
    let mut found: Option<(u64, Vec<u8>)> = None;
    let mut len = 0;
    let mut is_damaged = false;
    tree.visit(buffers, base, |key, piece| {
        if key >= end {
            return ControlFlow::Break(());
        }
        match &mut found {
            Some((first, value)) if key == *first + (key & PIECE) && key & PIECE > 0 => {
                value.extend_from_slice(piece)
            }
            Some(_) => return ControlFlow::Break(()),
            None if key & PIECE > 0 => {}
            None => match parse_first(piece) {
                Some((same, whole, start)) if same == name => {
                    len = whole;
                    found = Some((key, start.to_vec()));
                }
                Some(_) => {}
                None => is_damaged = true,
            },
        }
        ControlFlow::Continue(())
    })?;
    if is_damaged || found.as_ref().is_some_and(|(_, value)| value.len() != len) {
        return Err(Error::damaged(tree.root, "an extended attribute is not whole"));
    }
    Ok(found)
}

/// A key whose pieces are free.
fn free_key(tree: Tree, buffers: &Buffers, seed: u64, name: &[u8]) -> Result<u64> {
    let base = key_of(name, seed);
    let mut free = 0;
    tree.visit(buffers, base, |key, _| {
        let slot = (key - base) >> PIECE_BITS;
        if slot > free {
            return ControlFlow::Break(());
        }
        free = slot + 1;
        ControlFlow::Continue(())
    })?;
    if free < 1 << SAME_BITS { Ok(base + (free << PIECE_BITS)) } else { Err(Errno::NOSPC.into()) }
}

fn remove(tree: Tree, tx: &mut Tx<'_>, first: u64) -> Result<()> {
    for piece in 0..=PIECE {
        if !tree.remove(tx, first + piece)? {
            break;
        }
    }
    Ok(())
}

fn insert(tree: Tree, tx: &mut Tx<'_>, first: u64, name: &[u8], value: &[u8]) -> Result<()> {
    let mut piece = Vec::with_capacity(VALUE_MAX);
    piece.push(name.len() as u8);
    piece.extend_from_slice(name);
    piece.extend_from_slice(&(value.len() as u32).to_le_bytes());
    let (start, rest) = value.split_at(value.len().min(VALUE_MAX - piece.len()));
    piece.extend_from_slice(start);
    tree.insert(tx, first, &piece)?;
    for (index, more) in rest.chunks(VALUE_MAX).enumerate() {
        tree.insert(tx, first + 1 + index as u64, more)?;
    }
    Ok(())
}

/// The pieces of those attributes that are whole, of pieces in the order of their keys.
pub(crate) fn whole(pieces: &[(u64, Vec<u8>)]) -> Vec<(u64, Vec<u8>)> {
    let attributes = pieces.chunk_by(|(a, _), (b, _)| a & !PIECE == b & !PIECE && a + 1 == *b);
    let is_whole = |some: &&[(u64, Vec<u8>)]| {
        let Some((first, rest)) = some.split_first() else { return false };
        let Some((_, len, start)) = parse_first(&first.1).filter(|_| first.0 & PIECE == 0) else {
            return false;
        };
        start.len() + rest.iter().map(|(_, piece)| piece.len()).sum::<usize>() == len
    };
    attributes.filter(is_whole).flat_map(|some| some.iter().cloned()).collect()
}

/// Whether all attributes are whole.
pub(crate) fn are_whole(pieces: &[(u64, Vec<u8>)]) -> bool {
    whole(pieces).len() == pieces.len()
}

/// Shows the name of each attribute.
pub(crate) fn names(tree: Tree, buffers: &Buffers, mut show: impl FnMut(&[u8])) -> Result<()> {
    tree.visit(buffers, 0, |key, piece| {
        if key & PIECE == 0
            && let Some((name, ..)) = parse_first(piece)
        {
            show(name);
        }
        ControlFlow::Continue(())
    })
}

/// Whether a name can be one of an attribute, and somebody may read or write it.
fn check(inode: &Inode, name: &[u8], who: &Credentials, wanted: u32) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Errno::RANGE.into());
    }
    check_access(inode, name, who, wanted)?;
    if matches!(name, b"user." | b"trusted." | b"security.") {
        // A name of a class, and none in it.
        return Err(Errno::INVAL.into());
    }
    Ok(())
}

fn check_access(inode: &Inode, name: &[u8], who: &Credentials, wanted: u32) -> Result<()> {
    let is_write = wanted & WRITE != 0;
    if name.starts_with(b"user.") {
        // Others than files and directories have permissions that mean something else.
        let is_plain = matches!(inode.file_type(), FileType::RegularFile | FileType::Directory);
        let is_sticky = inode.is_directory() && inode.mode & 0o1000 != 0;
        if !is_plain || is_write && is_sticky && !who.owns(inode) {
            return Err(if is_write { Errno::PERM } else { Errno::NODATA }.into());
        }
        return access::check(inode, who, wanted);
    }
    if name.starts_with(b"trusted.") {
        let refused = if is_write { Errno::PERM } else { Errno::NODATA };
        return if who.is_root() { Ok(()) } else { Err(refused.into()) };
    }
    if name.starts_with(b"security.") {
        return if who.is_root() || !is_write { Ok(()) } else { Err(Errno::PERM.into()) };
    }
    // Access control lists are among these: no permission check here honors one, so none is accepted.
    // Programs that copy one go on with the mode then.
    Err(Errno::OPNOTSUPP.into())
}

impl System {
    fn xattrs(node: &Node, state: &State) -> Option<Tree> {
        (state.inode.xattrs != 0).then_some(Tree { root: state.inode.xattrs, owner: node.ino })
    }

    pub(crate) fn get_xattr(&self, node: &Node, name: &[u8], who: &Credentials) -> Result<Vec<u8>> {
        let state = unvme::lock::read(&node.state);
        check(&state.inode, name, who, READ)?;
        if name == HINT_NAME {
            return match HINTS.get(usize::from(state.inode.hint)) {
                Some(text) if state.inode.hint > 0 => Ok(text.as_bytes().to_vec()),
                _ => Err(Errno::NODATA.into()),
            };
        }
        let tree = Self::xattrs(node, &state).ok_or(Error::Posix(Errno::NODATA))?;
        let found = find(tree, &self.buffers, self.seed, name)?;
        found.map(|(_, value)| value).ok_or(Error::Posix(Errno::NODATA))
    }

    pub(crate) fn list_xattrs(&self, node: &Node, who: &Credentials) -> Result<Vec<Vec<u8>>> {
        let state = unvme::lock::read(&node.state);
        let mut list = Vec::new();
        if state.inode.hint > 0 {
            list.push(HINT_NAME.to_vec());
        }
        if let Some(tree) = Self::xattrs(node, &state) {
            names(tree, &self.buffers, |name| {
                // A mount stored access control lists once. As on any file system without support for them,
                // they are neither listed nor read.
                if !name.starts_with(b"system.") && (who.is_root() || !name.starts_with(b"trusted.")) {
                    list.push(name.to_vec());
                }
            })?;
        }
        Ok(list)
    }

    /// Sets an attribute, or removes it.
    pub(crate) fn set_xattr(
        &self,
        node: &Node,
        name: &[u8],
        value: Option<&[u8]>,
        how: SetXattr,
        who: &Credentials,
    ) -> Result<()> {
        self.check_writable()?;
        if value.is_some_and(|value| value.len() > XATTR_MAX) {
            return Err(Errno::TOOBIG.into());
        }
        let mut state = node.lock();
        if state.is_gone {
            return Err(Errno::STALE.into());
        }
        check(&state.inode, name, who, WRITE)?;
        if name == HINT_NAME {
            return self.set_hint(node, &mut state, hint_of(value)?);
        }
        let tree = Self::xattrs(node, &state);
        let found = match tree {
            Some(tree) => find(tree, &self.buffers, self.seed, name)?.map(|(key, _)| key),
            None => None,
        };
        match (found, how, value) {
            (Some(_), SetXattr::Create | SetXattr::Neither, Some(_)) => return Err(Errno::EXIST.into()),
            (None, SetXattr::Replace | SetXattr::Neither, _) | (None, _, None) => {
                return Err(Errno::NODATA.into());
            }
            _ => {}
        }
        if name == CAPABILITIES {
            node.may_grant.store(true, Ordering::Relaxed);
        }
        self.replace_xattr(node, &mut state, name, (found, value))
    }

    /// Replaces an attribute, which is at the key that was found, or adds or removes it.
    fn replace_xattr(
        &self,
        node: &Node,
        state: &mut State,
        name: &[u8],
        (found, value): (Option<u64>, Option<&[u8]>),
    ) -> Result<()> {
        let tree = Self::xattrs(node, state);
        let key = match (found, tree) {
            (Some(key), _) => key,
            (None, Some(tree)) => free_key(tree, &self.buffers, self.seed, name)?,
            (None, None) => key_of(name, self.seed),
        };
        let (need, growth) = if value.is_some() { (Need::More, SET_GROWTH) } else { (Need::Delete, GROWTH) };
        self.transact_on(state, need, growth, |tx, state| {
            let before = tx.pages();
            let tree = match tree {
                Some(tree) => tree,
                None => self.new_tree(tx, node.ino)?,
            };
            if found.is_some() {
                remove(tree, tx, key)?;
            }
            if let Some(value) = value {
                insert(tree, tx, key, name, value)?;
            }
            state.inode.xattrs = tree.root;
            let mut is_empty = true;
            tree.visit(&self.buffers, 0, |_, _| {
                is_empty = false;
                ControlFlow::Break(())
            })?;
            if is_empty {
                tx.free_page(tree.root)?;
                state.inode.xattrs = 0;
            }
            state.inode.blocks = state.inode.blocks.wrapping_add_signed(tx.pages() - before);
            state.inode.changed = Time::now();
            self.log(tx, node.ino, state)
        })
    }

    /// Removes the capabilities of a file, without a check of permissions. Returns whether it had any.
    pub(crate) fn drop_capabilities(&self, node: &Node, state: &mut State) -> Result<bool> {
        let Some(tree) = Self::xattrs(node, state) else { return Ok(false) };
        match find(tree, &self.buffers, self.seed, CAPABILITIES)? {
            Some((key, _)) => self.replace_xattr(node, state, CAPABILITIES, (Some(key), None)).map(|()| true),
            None => Ok(false),
        }
    }

    /// Removes what a change of a file's content by `who` takes away.
    pub(crate) fn drop_privileges(&self, node: &Node, who: &Credentials) -> Result<()> {
        self.check_writable()?;
        let mut state = node.lock();
        if state.is_gone || !state.inode.is_file() {
            return Ok(());
        }
        self.drop_capabilities(node, &mut state)?;
        let lost = privileges::lost_with_content(&state.inode, who);
        if lost != 0 {
            self.transact_on(&mut state, Need::Delete, 0, |tx, state| {
                state.inode.mode &= !lost;
                state.inode.changed = Time::now();
                self.log(tx, node.ino, state)
            })?;
        }
        if state.inode.mode & SET_ID == 0 {
            node.may_grant.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    fn set_hint(&self, node: &Node, state: &mut State, hint: u8) -> Result<()> {
        node.bump();
        self.transact_on(state, Need::Delete, 0, |tx, state| {
            state.inode.hint = hint;
            state.inode.changed = Time::now();
            self.log(tx, node.ino, state)
        })
    }
}

/// Whether a file can have this hint.
pub(crate) fn is_hint(hint: u8) -> bool {
    usize::from(hint) < HINTS.len()
}

/// A hint as it is typed: a name, or the number that `F_SET_RW_HINT` has for it.
fn hint_of(value: Option<&[u8]>) -> Result<u8> {
    let Some(value) = value else { return Ok(0) };
    let text = value.strip_suffix(b"\0").unwrap_or(value);
    let found = HINTS.iter().position(|name| name.as_bytes() == text);
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<u8>().ok());
    let hint = found.map(|at| at as u8).or(number).filter(|&hint| is_hint(hint));
    hint.ok_or(Error::Posix(Errno::INVAL))
}
