//! Who may do what.

use rustix::io::Errno;

use crate::error::Result;
use crate::layout::{Inode, Kinds};

/// Permission to read, as in `access(2)`.
pub const READ: u32 = 4;
/// Permission to write.
pub const WRITE: u32 = 2;
/// Permission to execute, or to look for names in a directory.
pub const EXECUTE: u32 = 1;

/// In whose name something is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// User; 0 may do everything.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Somebody has seen to it already that they may: everything is allowed. New files are still the user's
    /// and the group's.
    pub are_checked: bool,
}

impl Credentials {
    /// Those of user 0.
    pub fn root() -> Self {
        Self::default()
    }

    pub(crate) fn is_root(&self) -> bool {
        self.uid == 0 || self.are_checked
    }

    pub(crate) fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether they are the owner's, or root's.
    pub(crate) fn owns(&self, inode: &Inode) -> bool {
        self.is_root() || self.uid == inode.uid
    }
}

/// Whether somebody has all of the permissions `wanted`.
///
/// # Errors
/// EACCES.
pub(crate) fn check(inode: &Inode, who: &Credentials, wanted: u32) -> Result<()> {
    let mode = inode.mode;
    if who.is_root() {
        // Root executes what somebody may execute.
        let is_possible = wanted & EXECUTE == 0 || inode.is_directory() || mode & 0o111 != 0;
        return if is_possible { Ok(()) } else { Err(Errno::ACCESS.into()) };
    }
    let granted = if who.uid == inode.uid {
        mode >> 6
    } else if who.is_in(inode.gid) {
        mode >> 3
    } else {
        mode
    };
    if wanted & !granted & 7 == 0 { Ok(()) } else { Err(Errno::ACCESS.into()) }
}

/// Whether somebody may take a name of `inode` out of `directory`, or have it lead elsewhere.
///
/// # Errors
/// EACCES; EPERM in a directory with the sticky bit.
pub(crate) fn check_removal(directory: &Inode, inode: &Inode, who: &Credentials) -> Result<()> {
    check(directory, who, WRITE | EXECUTE)?;
    if directory.mode & 0o1000 != 0 && !who.owns(directory) && !who.owns(inode) {
        return Err(Errno::PERM.into());
    }
    Ok(())
}
