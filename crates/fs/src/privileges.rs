//! What a program gains when it executes a file, and what a change of the file takes away: the set-id bits,
//! and the capabilities of `security.capability`.
//!
//! The rules are the kernel's (`file_remove_privs`, `setattr_should_drop_suidgid`): capabilities go with each
//! change of the content or of the owner, set-id bits unless the caller may keep them (`CAP_FSETID`, which
//! root has here). Stores to a mapping remove nothing, as on Linux.
//!
//! Operations on data do none of this by themselves. The kernel does it for a mount before it asks; a process
//! does it for programs that ask by [`crate::calls`].

use crate::access::Credentials;
use crate::layout::{Inode, Kinds};

/// The attribute with the capabilities of a program.
pub(crate) const CAPABILITIES: &[u8] = b"security.capability";

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
/// Both bits.
pub(crate) const SET_ID: u32 = SET_UID | SET_GID;

/// Whether a mode has set-id bits that take effect: the set-group-ID bit of a file that its group may not
/// execute stands for mandatory locking.
pub(crate) fn is_set_id(mode: u32) -> bool {
    mode & SET_UID != 0 || mode & (SET_GID | 0o010) == SET_GID | 0o010
}

/// Whether an inode may have what a change takes away. Which attributes it has is not read for this.
pub(crate) fn may_grant(inode: &Inode) -> bool {
    inode.is_file() && (inode.mode & SET_ID != 0 || inode.xattrs != 0)
}

/// The set-group-ID bit, if a change by `who` removes it (`setattr_should_drop_sgid`).
fn lost_set_gid(inode: &Inode, who: &Credentials) -> u32 {
    let is_kept = inode.mode & 0o010 == 0 && (who.is_root() || who.is_in(inode.gid));
    if is_kept { 0 } else { inode.mode & SET_GID }
}

/// The bits that a change of the owner by `who` removes, of anything but a directory.
pub(crate) fn lost_with_owner(inode: &Inode, who: &Credentials) -> u32 {
    (inode.mode & SET_UID) | lost_set_gid(inode, who)
}

/// The bits that a change of the content by `who` removes.
pub(crate) fn lost_with_content(inode: &Inode, who: &Credentials) -> u32 {
    if who.is_root() { 0 } else { lost_with_owner(inode, who) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode(mode: u32) -> Inode {
        Inode { mode: 0o100_000 | mode, uid: 5, gid: 6, ..Inode::default() }
    }

    fn user(uid: u32, gid: u32) -> Credentials {
        Credentials { uid, gid, ..Credentials::default() }
    }

    #[test]
    fn set_id_bits_go_as_linux_has_them_go() {
        let (root, member, other) = (Credentials::root(), user(5, 6), user(7, 8));
        for (mode, by_root, by_member, by_other) in [
            (0o4755, 0, 0o4000, 0o4000),
            (0o2755, 0, 0o2000, 0o2000),
            (0o2745, 0, 0, 0o2000),
            (0o6711, 0, 0o6000, 0o6000),
            (0o6700, 0, 0o4000, 0o6000),
            (0o1777, 0, 0, 0),
        ] {
            let lost = [&root, &member, &other].map(|who| lost_with_content(&inode(mode), who));
            assert_eq!(lost, [by_root, by_member, by_other], "{mode:o}");
        }
        assert_eq!(lost_with_owner(&inode(0o6711), &root), 0o6000);
        assert_eq!(lost_with_owner(&inode(0o6701), &root), 0o4000, "for mandatory locking");
        assert!(is_set_id(0o4000) && is_set_id(0o2010) && !is_set_id(0o2700) && !is_set_id(0o1777));
    }
}
