//! Whether clients are who they say they are.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::UCred;

use super::wire::{GROUPS_MAX, Identity};
use crate::error::Result;

/// Who was at the other end of a socket when it connected: the process may have ended since, and a child of
/// it have the socket.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub credentials: UCred,
    groups: Vec<u32>,
}

impl Peer {
    pub(super) fn of(socket: BorrowedFd<'_>) -> Result<Self> {
        let credentials = rustix::net::sockopt::socket_peercred(socket)?;
        let groups = unvme::peer_groups(socket);
        let groups = groups.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        Ok(Self { credentials, groups })
    }

    /// This process itself.
    pub(super) fn own() -> Self {
        let credentials = UCred {
            pid: rustix::process::getpid(),
            uid: rustix::process::geteuid(),
            gid: rustix::process::getegid(),
        };
        Self { credentials, groups: Identity::own().groups }
    }

    pub(super) fn pid(&self) -> u32 {
        self.credentials.pid.as_raw_nonzero().get() as u32
    }
}

/// Whether a client may come: it is of this process's user, or root.
///
/// # Errors
/// EACCES.
pub(super) fn check_peer(peer: &Peer) -> Result<()> {
    let uid = peer.credentials.uid;
    let is_ours = uid.is_root() || uid == rustix::process::geteuid();
    if is_ours { Ok(()) } else { Err(Errno::ACCESS.into()) }
}

/// Whether what a client says is its own, or root says it.
///
/// # Errors
/// EPERM; EINVAL for more groups than there can be.
pub(super) fn check(said: &Identity, peer: &Peer) -> Result<()> {
    if said.groups.len() > GROUPS_MAX {
        return Err(Errno::INVAL.into());
    }
    let UCred { uid, gid, .. } = peer.credentials;
    if uid.is_root() {
        return Ok(());
    }
    let is_own = |group: &u32| *group == gid.as_raw() || peer.groups.contains(group);
    if said.uid == uid.as_raw() && is_own(&said.gid) && said.groups.iter().all(is_own) {
        return Ok(());
    }
    Err(Errno::PERM.into())
}

/// Whether a process has ended, waited for or not. As long as it is of the same user, no descriptor is taken
/// for the look: other threads of a program may count on which number is the next one.
pub fn has_ended(pid: u32) -> bool {
    match rustix::fs::readlink(format!("/proc/{pid}/exe"), Vec::new()) {
        Ok(_) => return false,
        // One that nobody has waited for yet has no program any more.
        Err(Errno::NOENT) => return true,
        Err(_) => {}
    }
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Gid, Uid};

    use super::*;

    #[test]
    fn a_process_that_nobody_has_waited_for_has_ended() {
        assert!(!has_ended(std::process::id()));
        let mut child = std::process::Command::new("sleep").arg("3600").spawn().expect("a child");
        assert!(!has_ended(child.id()));
        child.kill().expect("killed");
        let begun = std::time::Instant::now();
        while !has_ended(child.id()) {
            assert!(begun.elapsed().as_secs() < 60, "it seems to be there");
            std::thread::yield_now();
        }
        child.wait().expect("waited for");
        assert!(has_ended(child.id()));
    }

    #[test]
    fn root_may_be_anybody_and_others_themselves_alone() {
        // The process may be gone by now: what it was when it came is known.
        let pid = rustix::process::Pid::from_raw(i32::MAX).expect("a number");
        let peer = |uid, gid, groups: &[u32]| Peer {
            credentials: UCred { pid, uid: Uid::from_raw(uid), gid: Gid::from_raw(gid) },
            groups: groups.to_vec(),
        };
        let (other, root) = (peer(1000, 1000, &[44, 45]), peer(0, 0, &[]));
        let said = |uid, gid, groups: &[u32]| Identity { pid: 1, uid, gid, groups: groups.to_vec() };
        assert!(check(&said(5, 6, &[7]), &root).is_ok());
        assert!(check(&said(1000, 1000, &[1000]), &other).is_ok());
        assert!(check(&said(1000, 45, &[44, 1000]), &other).is_ok());
        for wrong in
            [said(0, 1000, &[]), said(1000, 54_321, &[]), said(1000, 1000, &[54_321]), said(1001, 1000, &[])]
        {
            assert_eq!(check(&wrong, &other).expect_err("not its own").errno(), Errno::PERM);
        }
    }
}
