//! How a name is moved, and the whiteout that a renaming can leave in its place.

use rustix::fs::{FileType, RenameFlags};
use rustix::io::Errno;

use crate::access::Credentials;
use crate::directory::{self, Key, Target};
use crate::error::Result;
use crate::journal::Tx;
use crate::layout::Inode;
use crate::names::{NewFile, Place};
use crate::node::State;
use crate::system::System;
use crate::tree::Tree;

/// How a name is moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rename {
    /// What has the new name loses it.
    #[default]
    Replace,
    /// `RENAME_NOREPLACE`: EEXIST when something has the new name.
    NoReplace,
    /// `RENAME_EXCHANGE`: both have each other's name.
    Exchange,
    /// `RENAME_WHITEOUT`: as [`Rename::Replace`], and the old name leads to a whiteout, a character device
    /// 0:0. An overlay takes a directory as its upper one only where this works.
    Whiteout,
    /// `RENAME_NOREPLACE` and `RENAME_WHITEOUT`.
    NoReplaceWhiteout,
}

impl Rename {
    /// What the flags of `renameat2(2)` mean.
    ///
    /// # Errors
    /// EINVAL for those that are not implemented, and for `RENAME_EXCHANGE` with another.
    pub fn from_flags(flags: u32) -> Result<Self> {
        match RenameFlags::from_bits_retain(flags) {
            none if none.is_empty() => Ok(Self::Replace),
            RenameFlags::NOREPLACE => Ok(Self::NoReplace),
            RenameFlags::EXCHANGE => Ok(Self::Exchange),
            RenameFlags::WHITEOUT => Ok(Self::Whiteout),
            both if both == RenameFlags::NOREPLACE | RenameFlags::WHITEOUT => Ok(Self::NoReplaceWhiteout),
            _ => Err(Errno::INVAL.into()),
        }
    }

    /// Whether the new name may be that of something.
    pub(crate) fn replaces(self) -> bool {
        !matches!(self, Self::NoReplace | Self::NoReplaceWhiteout)
    }

    /// Whether the old name leads to a whiteout afterwards.
    pub(crate) fn leaves_whiteout(self) -> bool {
        matches!(self, Self::Whiteout | Self::NoReplaceWhiteout)
    }
}

/// The inode of a whiteout, allocated before the transaction that puts it into place.
pub(crate) struct Whiteout {
    ino: u64,
    inode: Inode,
}

impl System {
    /// Allocates the inode of a whiteout in a directory.
    pub(crate) fn take_whiteout(
        &self,
        parent: u64,
        directory: &State,
        who: &Credentials,
    ) -> Result<Whiteout> {
        let new = NewFile { file_type: FileType::CharacterDevice, ..NewFile::regular(0) };
        let inode = self.new_inode(parent, &directory.inode, &new, who);
        Ok(Whiteout { ino: self.take_inode(parent, false)?, inode })
    }

    /// Frees it again when the transaction has failed.
    pub(crate) fn untake_whiteout(&self, whiteout: &Whiteout) {
        self.space.untake_inode(whiteout.ino);
    }

    /// Has a name that leads to something else lead to a whiteout. The directory's inode is changed, and not
    /// logged.
    pub(crate) fn put_whiteout(
        &self,
        tx: &mut Tx<'_>,
        place: Place<'_>,
        directory: &mut State,
        key: &Key,
        whiteout: &Whiteout,
    ) -> Result<()> {
        tx.use_inode(whiteout.ino)?;
        tx.put_inode(whiteout.ino, Some(&whiteout.inode))?;
        let tree = Tree { root: directory.inode.tree, owner: place.directory.ino };
        let target = Target { ino: whiteout.ino, file_type: FileType::CharacterDevice };
        directory::set(tree, tx, key, place.name, target)?;
        Self::touch(directory);
        Ok(())
    }
}
