//! Who may serve at a socket, or have the file system of one to itself: one process at a time.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::packet;
use crate::error::{Error, Result};
use crate::holder::is_there;

/// A lock file beside a socket, which this process has locked. It is removed when this is dropped, and
/// unlocked when nobody has its descriptor any more. One that was taken over is the other process's until
/// [`Hold::keep`].
pub struct Hold {
    path: PathBuf,
    file: Option<OwnedFd>,
    is_given: AtomicBool,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let is_another = || self.file.as_ref().is_some_and(|file| !is_there(file, self.path.as_path()));
        if !self.is_given.load(Ordering::Relaxed) && !is_another() {
            // Before it is unlocked: who waits for it looks whether it is still there.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Where the lock file of a socket is.
fn beside(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    PathBuf::from(path)
}

/// Whether a process has the lock file of a socket.
pub(super) fn is_held(socket: &Path) -> bool {
    let Ok(file) = rustix::fs::open(beside(socket), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else {
        return false;
    };
    matches!(rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared), Err(Errno::AGAIN))
}

impl Hold {
    /// Takes it for a socket.
    ///
    /// # Errors
    /// [`Error::Busy`] when another process has it; [`Error::Posix`] when there can be no file.
    pub fn take(socket: &Path) -> Result<Self> {
        let path = beside(socket);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        loop {
            let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::AGAIN) => {
                    let what = "another process has its file system, or serves it";
                    return Err(Error::Busy(format!("{}: {what}", socket.display())));
                }
                held => held?,
            }
            // Somebody else may have removed it just before.
            if is_there(&file, path.as_path()) {
                let file = packet::out_of_the_way(file);
                return Ok(Self { path, file: Some(file), is_given: AtomicBool::new(false) });
            }
        }
    }

    /// Takes over what another process has taken, by the number of the descriptor that it has left open for
    /// this one. It stays open as long as this process is there.
    ///
    /// # Errors
    /// [`Error::Format`] when the descriptor is not that of the socket's lock file, or the file is not
    /// locked.
    pub fn inherit(socket: &Path, number: u32) -> Result<Self> {
        let path = beside(socket);
        let wrong = |what: &str| Error::Format(format!("descriptor {number}: {what} {}", path.display()));
        let file = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let there = rustix::fs::fstat(&file)?;
        match rustix::fs::stat(format!("/proc/self/fd/{number}")) {
            Ok(ours) if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino) => {}
            _ => return Err(wrong("expected the lock file")),
        }
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN) => Ok(Self { path, file: None, is_given: AtomicBool::new(true) }),
            Ok(()) => Err(wrong("nobody has locked")),
            Err(e) => Err(e.into()),
        }
    }

    /// What was taken over is this process's own from now on: it does what the other one had it for.
    pub fn keep(&self) {
        self.is_given.store(false, Ordering::Relaxed);
    }

    /// The descriptor, for a process that takes it over.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.file.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Another process has taken it over: it is that one's to give back.
    pub fn give(self) {
        self.is_given.store(true, Ordering::Relaxed);
    }

    /// In a child that has got it by `fork`: the parent keeps it, and only the parent.
    pub fn forget(&mut self) {
        self.is_given.store(true, Ordering::Relaxed);
        self.file = None;
    }

    /// Removes the socket of a server that was killed.
    pub(super) fn clear(&self, socket: &Path) -> Result<()> {
        match std::fs::remove_file(socket) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(Errno::from_io_error(&e).unwrap_or(Errno::IO).into())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_and_whoever_comes_next_makes_the_file_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("socket");
        let first = Hold::take(&socket).expect("nobody has it");
        assert!(matches!(Hold::take(&socket), Err(Error::Busy(_))));
        let number = first.descriptor().expect("a descriptor");
        let second = Hold::inherit(&socket, number as u32).expect("it is the lock file");
        drop(Hold::inherit(&socket, number as u32).expect("as before"));
        assert!(beside(&socket).exists(), "who has not begun has not taken it over");
        second.keep();
        first.give();
        assert!(beside(&socket).exists());
        drop(second);
        assert!(!beside(&socket).exists());
        let mut third = Hold::take(&socket).expect("it was given back");
        third.forget();
        drop(third);
        assert!(beside(&socket).exists(), "it is the parent's");
    }

    #[test]
    fn what_is_no_locked_file_of_the_socket_is_not_taken_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("socket");
        assert!(matches!(Hold::inherit(&socket, 0), Err(Error::Posix(Errno::NOENT))));
        let file = std::fs::File::create(beside(&socket)).expect("a file");
        let number = file.as_raw_fd() as u32;
        assert!(matches!(Hold::inherit(&socket, number), Err(Error::Format(_))), "nobody has locked it");
        rustix::fs::flock(&file, FlockOperation::LockExclusive).expect("a lock");
        Hold::inherit(&socket, number).expect("locked");
        assert!(matches!(Hold::inherit(&socket, 0), Err(Error::Posix(_) | Error::Format(_))));
    }
}
