//! Whether clients are who they say they are.

use rustix::io::Errno;
use rustix::net::UCred;

use super::wire::{GROUPS_MAX, Identity};
use crate::error::Result;

/// Whether a client at the other end of a socket may come: it is of this process's user, or root.
///
/// # Errors
/// EACCES.
pub(super) fn check_peer(peer: &UCred) -> Result<()> {
    let is_ours = peer.uid.is_root() || peer.uid == rustix::process::geteuid();
    if is_ours { Ok(()) } else { Err(Errno::ACCESS.into()) }
}

/// Whether what a client says is its own, or root says it.
///
/// # Errors
/// EPERM; EINVAL for more groups than there can be.
pub(super) fn check(said: &Identity, peer: &UCred) -> Result<()> {
    if said.groups.len() > GROUPS_MAX {
        return Err(Errno::INVAL.into());
    }
    if peer.uid.is_root() {
        return Ok(());
    }
    let own = groups_of(peer);
    let is_own = |gid: &u32| *gid == peer.gid.as_raw() || own.contains(gid);
    if said.uid == peer.uid.as_raw() && is_own(&said.gid) && said.groups.iter().all(is_own) {
        return Ok(());
    }
    Err(Errno::PERM.into())
}

/// The groups that the kernel has for a process: SO_PEERCRED tells one alone.
fn groups_of(peer: &UCred) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", peer.pid)).unwrap_or_default();
    let words = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned();
        line.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>()
    };
    [words("Gid:"), words("Groups:")].concat()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Gid, Uid};

    use super::*;

    #[test]
    fn root_may_be_anybody_and_others_themselves_alone() {
        let pid = rustix::process::getpid();
        let other = UCred { pid, uid: Uid::from_raw(1000), gid: Gid::from_raw(1000) };
        let root = UCred { pid, uid: Uid::ROOT, gid: Gid::ROOT };
        let said = |uid, gid, groups: &[u32]| Identity { pid: 1, uid, gid, groups: groups.to_vec() };
        assert!(check(&said(5, 6, &[7]), &root).is_ok());
        assert!(check(&said(1000, 1000, &[1000]), &other).is_ok());
        for wrong in
            [said(0, 1000, &[]), said(1000, 54_321, &[]), said(1000, 1000, &[54_321]), said(1001, 1000, &[])]
        {
            assert_eq!(check(&wrong, &other).expect_err("not its own").errno(), Errno::PERM);
        }
    }
}
