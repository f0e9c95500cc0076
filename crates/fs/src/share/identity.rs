//! Whether clients are who they say they are.

use std::os::fd::BorrowedFd;

use rustix::fs::Uid;
use rustix::io::Errno;
use rustix::net::UCred;

use super::packet::Sender;
use super::wire::{GROUPS_MAX, Identity};
use crate::error::Result;

/// A client's process, user and groups as the kernel knows them: when its socket connected, or when it last
/// [stated](Peer::stated) them. The process may have ended since, and a child of it have the socket.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub credentials: Sender,
    groups: Vec<u32>,
}

/// The credentials that this process attaches to what it sends: root, where any of its users is root, since
/// it can become root again at any time; otherwise the user and group that it acts for.
pub(super) fn own_credentials() -> UCred {
    let gid = rustix::process::getegid();
    UCred { pid: rustix::process::getpid(), uid: Uid::from_raw(stated_user()), gid }
}

/// The user that the calling thread states itself as to a server: root, where that is within its reach.
pub fn stated_user() -> u32 {
    if is_root_within_reach() { 0 } else { rustix::process::geteuid().as_raw() }
}

/// Whether the calling thread is root, or can become root again: by its real or its saved user.
pub fn is_root_within_reach() -> bool {
    unvme::users_of_thread().contains(&0)
}

impl Peer {
    pub(super) fn of(socket: BorrowedFd<'_>) -> Result<Self> {
        let failed = |e: std::io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
        let (pid, uid, gid) = unvme::peer_credentials(socket).map_err(failed)?;
        let credentials = Sender { pid, uid, gid };
        let groups = unvme::peer_groups(socket).map_err(failed)?;
        Ok(Self { credentials, groups })
    }

    /// The sender of a packet. `socket` is one that it has made or connected: the groups that the kernel
    /// noted then count where process, user and group are those of the sender, who may have got the socket
    /// from a process with other rights.
    ///
    /// # Errors
    /// Those of `getsockopt`.
    pub(super) fn stated(sender: Sender, socket: BorrowedFd<'_>) -> Result<Self> {
        let made = Self::of(socket)?;
        let groups = if made.credentials == sender { made.groups } else { Vec::new() };
        Ok(Self { credentials: sender, groups })
    }

    /// Whether everything on the device is within its reach anyway: it is root, or the user who has the file
    /// system mounted.
    pub(super) fn is_trusted(&self) -> bool {
        let uid = self.credentials.uid;
        uid == 0 || uid == rustix::process::geteuid().as_raw()
    }

    /// This process itself.
    pub(super) fn own() -> Self {
        let credentials = Sender {
            pid: rustix::process::getpid().as_raw_pid(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        Self { credentials, groups: Identity::own().groups }
    }

    pub(super) fn pid(&self) -> u32 {
        self.credentials.pid as u32
    }
}

/// Whether a client may come: it is of this process's user, or root.
///
/// # Errors
/// EACCES.
pub(super) fn check_peer(peer: &Peer) -> Result<()> {
    if peer.is_trusted() { Ok(()) } else { Err(Errno::ACCESS.into()) }
}

/// Whether what a client says is its own, or root says it.
///
/// # Errors
/// EPERM; EINVAL for more groups than there can be.
pub(super) fn check(said: &Identity, peer: &Peer) -> Result<()> {
    if said.groups.len() > GROUPS_MAX {
        return Err(Errno::INVAL.into());
    }
    let Sender { uid, gid, .. } = peer.credentials;
    if uid == 0 {
        return Ok(());
    }
    let is_own = |group: &u32| *group == gid || peer.groups.contains(group);
    if said.uid == uid && is_own(&said.gid) && said.groups.iter().all(is_own) {
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
    let text = match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(text) => text,
        // Without a descriptor to read it with (EMFILE) nothing is known.
        Err(e) => {
            return e.kind() == std::io::ErrorKind::NotFound || Errno::from_io_error(&e) == Some(Errno::SRCH);
        }
    };
    text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
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
        let peer = |uid, gid, groups: &[u32]| Peer {
            credentials: Sender { pid: i32::MAX, uid, gid },
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
