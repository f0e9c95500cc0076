//! Claims of what the kernel drives: among the programs of this machine, by locked files.
//!
//! The kernel's controller outlives a process, so a claim that the device keeps would, too. A file lock does
//! not. There are two files for each namespace, block device or file. The program that has claimed it holds
//! the lock of one. A program that changes it holds the lock of the other, shared, from its first such
//! command on. Each side acquires its own lock before it tests the other's: of two that come at once at least
//! one is refused.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use unvme_bus::lock;
use unvme_spec::{Nsid, Status, nvm};

use crate::Error;
use crate::claim::ClaimKind;

/// Where the files are, if there is such a directory; `/tmp` otherwise.
const DIRECTORY: &str = "/run/lock";
/// The two sides: who has claimed a namespace, and who changes it.
const CLAIM: &str = "claim";
const WRITE: &str = "write";
/// A test holds the other side's lock for a moment: how often, and after what time, one is tried again.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);

/// What this process has claimed, and what it changes.
#[derive(Debug, Default)]
pub(super) struct NodeClaims {
    claims: Mutex<Vec<(Nsid, ClaimKind, Locked)>>,
    written: Mutex<Vec<(Nsid, Locked)>>,
}

/// A locked file; the last program that has it removes it.
#[derive(Debug)]
struct Locked {
    file: File,
    path: String,
}

impl Drop for Locked {
    fn drop(&mut self) {
        if rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok()
            && leads_to(&self.path, &self.file)
        {
            // One that stays is locked by no program.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether a path leads to an open file: its last holder removes it.
fn leads_to(path: &str, file: &File) -> bool {
    let (Ok(open), Ok(named)) = (rustix::fs::fstat(file), rustix::fs::lstat(path)) else { return false };
    (open.st_dev, open.st_ino) == (named.st_dev, named.st_ino)
}

impl Locked {
    fn path(name: &str, side: &str) -> String {
        let directory = if Path::new(DIRECTORY).is_dir() { DIRECTORY } else { "/tmp" };
        format!("{directory}/unvme-node-{name}.{side}")
    }

    /// The file `name` of one side, locked; `None` when another program keeps it locked. Errors:
    /// [`Error::Denied`] when this user cannot have such a file.
    fn acquire(name: &str, side: &str, operation: FlockOperation) -> Result<Option<Self>, Error> {
        Self::acquire_at(Self::path(name, side), operation)
    }

    fn acquire_at(path: String, operation: FlockOperation) -> Result<Option<Self>, Error> {
        let failed = |e: Errno| {
            let text = format!("{path}, which says who uses a namespace: {}", std::io::Error::from(e));
            match e {
                Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOENT => Error::Denied(text),
                _ => Error::InvalidArgument(text),
            }
        };
        for _ in 0..TRIES {
            let file = open(&path).map_err(failed)?;
            match rustix::fs::flock(&file, operation) {
                Ok(()) if leads_to(&path, &file) => return Ok(Some(Self { file, path: path.clone() })),
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => std::thread::sleep(PAUSE),
                Err(e) => return Err(failed(e)),
            }
        }
        Ok(None)
    }

    /// Whether another program has the file of one side locked.
    fn is_held(name: &str, side: &str) -> Result<bool, Error> {
        Ok(Self::acquire(name, side, FlockOperation::NonBlockingLockExclusive)?.is_none())
    }
}

fn open(path: &str) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    // Without O_CREAT first: in a sticky directory the kernel refuses it for a file of another user.
    let opened = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => rustix::fs::open(path, flags | OFlags::CREATE, Mode::from_raw_mode(0o666)),
        opened => opened,
    };
    let file = File::from(opened?);
    // Those who come later may be other users.
    let _ = rustix::fs::fchmod(&file, Mode::from_raw_mode(0o666));
    Ok(file)
}

/// False for commands that change nothing in a namespace, whatever its command set.
#[inline]
pub(super) fn may_change(opcode: u8) -> bool {
    const RECEIVE: u8 = nvm::opcode::IO_MANAGEMENT_RECEIVE;
    !matches!(
        opcode,
        nvm::opcode::FLUSH | nvm::opcode::READ | nvm::opcode::COMPARE | nvm::opcode::VERIFY | RECEIVE
    )
}

/// What a command is refused with that a claim does not admit.
pub(super) const CONFLICT: Status = Status::RESERVATION_CONFLICT.with_do_not_retry();

pub(super) fn conflict() -> Error {
    Error::Status { what: "a namespace that another program uses".to_owned(), status: CONFLICT }
}

impl NodeClaims {
    /// Claims namespace `nsid`, which `name` stands for whichever node leads to it. False when this user
    /// cannot have the file.
    pub(super) fn claim(&self, nsid: Nsid, name: &str, kind: ClaimKind, holder: &str) -> Result<bool, Error> {
        unless_denied(self.try_claim(nsid, name, kind, holder).map(|()| true), false)
    }

    fn try_claim(&self, nsid: Nsid, name: &str, kind: ClaimKind, holder: &str) -> Result<(), Error> {
        let operation = match kind {
            ClaimKind::Alone => FlockOperation::NonBlockingLockExclusive,
            ClaimKind::WithOthers => FlockOperation::NonBlockingLockShared,
        };
        let Some(mut own) = Locked::acquire(name, CLAIM, operation)? else { return Err(conflict()) };
        let mut written = lock(&self.written);
        // The lock of this process's own changes is out of the way for the test.
        let before = written.len();
        written.retain(|(of, _)| *of != nsid);
        let is_changed = Locked::is_held(name, WRITE)?;
        if written.len() < before
            && let Some(again) = Locked::acquire(name, WRITE, FlockOperation::NonBlockingLockShared)?
        {
            written.push((nsid, again));
        }
        drop(written);
        if is_changed {
            return Err(conflict());
        }
        // It is for people.
        let file = &mut own.file;
        let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(holder.as_bytes()));
        lock(&self.claims).push((nsid, kind, own));
        Ok(())
    }

    /// Ends a claim.
    pub(super) fn release(&self, nsid: Nsid, kind: ClaimKind) {
        let mut claims = lock(&self.claims);
        if let Some(index) = claims.iter().position(|claim| (claim.0, claim.1) == (nsid, kind)) {
            claims.remove(index);
        }
    }

    /// Whether this process may change a namespace: it has claimed it alone, or no program has. If so, no
    /// other program claims it from now on, for as long as this device is open. A user who cannot have the
    /// file changes it, too: what the kernel lets a user write to, claims must not keep away for good.
    pub(super) fn admits_changes(&self, nsid: Nsid, name: &str) -> Result<bool, Error> {
        unless_denied(self.try_change(nsid, name), true)
    }

    fn try_change(&self, nsid: Nsid, name: &str) -> Result<bool, Error> {
        let own = lock(&self.claims).iter().find(|claim| claim.0 == nsid).map(|claim| claim.1);
        if own == Some(ClaimKind::WithOthers) {
            return Ok(false);
        }
        let mut written = lock(&self.written);
        if written.iter().any(|(of, _)| *of == nsid) {
            return Ok(true);
        }
        let shared = FlockOperation::NonBlockingLockShared;
        let Some(changing) = Locked::acquire(name, WRITE, shared)? else { return Ok(false) };
        if own.is_none() && Locked::is_held(name, CLAIM)? {
            return Ok(false);
        }
        written.push((nsid, changing));
        Ok(true)
    }
}

/// `otherwise`, with a warning, when this user cannot have the files.
pub(super) fn unless_denied(outcome: Result<bool, Error>, otherwise: bool) -> Result<bool, Error> {
    match outcome {
        Err(Error::Denied(reason)) => {
            tracing::warn!(reason, "other programs do not know that this one uses the namespace");
            Ok(otherwise)
        }
        outcome => outcome,
    }
}

/// Who has claimed what `name` stands for; `None` when no program has.
pub(super) fn holder(name: &str) -> Result<Option<String>, Error> {
    if !Locked::is_held(name, CLAIM)? {
        return Ok(None);
    }
    let mut holder = String::new();
    // What it says helps; that it is locked is known without.
    let _ = open(&Locked::path(name, CLAIM)).map(|mut file| file.read_to_string(&mut holder));
    let holder = holder.trim_end();
    Ok(Some(if holder.is_empty() { "another program" } else { holder }.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another program: it has locks of its own.
    fn two() -> (NodeClaims, NodeClaims, String) {
        (NodeClaims::default(), NodeClaims::default(), format!("test-{:016x}", unvme_bus::random::number()))
    }

    #[test]
    fn what_one_program_has_claimed_another_neither_claims_nor_changes() {
        let (a, b, name) = two();
        let nsid = Nsid(1);
        assert!(a.claim(nsid, &name, ClaimKind::Alone, "process 7 (mount)").expect("claimed"));
        assert!(b.claim(nsid, &name, ClaimKind::Alone, "b").is_err());
        assert!(b.claim(nsid, &name, ClaimKind::WithOthers, "b").is_err());
        assert!(!b.admits_changes(nsid, &name).expect("tested"));
        assert_eq!(holder(&name).expect("tested").as_deref(), Some("process 7 (mount)"));
        assert!(a.admits_changes(nsid, &name).expect("tested"));
        a.release(nsid, ClaimKind::Alone);
        assert_eq!(holder(&name).expect("tested"), None);
        assert!(b.admits_changes(nsid, &name).expect("tested"), "several may change what is not claimed");
        assert!(a.claim(nsid, &name, ClaimKind::Alone, "a").is_err(), "b changes it");
        drop(b);
        assert!(a.claim(nsid, &name, ClaimKind::WithOthers, "a").expect("claimed"));
        assert!(!a.admits_changes(nsid, &name).expect("tested"), "not by who reads alone, either");
        drop(a);
        for side in [CLAIM, WRITE] {
            assert!(!Path::new(&Locked::path(&name, side)).exists(), "the last program removes its files");
        }
    }

    #[test]
    fn a_user_who_cannot_have_the_file_changes_the_namespace_and_claims_nothing() {
        let path = "/proc/unvme-node-none.write".to_owned();
        let denied = Locked::acquire_at(path, FlockOperation::NonBlockingLockShared);
        let Err(denied @ Error::Denied(_)) = denied else { panic!("{denied:?}") };
        assert!(denied.to_string().contains("/proc/unvme-node-none.write"), "{denied}");
        assert!(unless_denied(Err(denied), true).expect("admitted"));
        let taken = Error::InvalidArgument("a file".to_owned());
        assert!(unless_denied(Err(taken), true).is_err(), "what else fails is not passed over");
    }
}
