//! Who holds a virtual slot.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::{Error, Result};

/// Bytes read of a lock file: room for any process id.
const PID_TEXT_BYTES_MAX: usize = 32;

/// A slot held by this process; released when dropped, or by the kernel when the process dies, however it dies.
#[derive(Debug)]
pub struct SlotLock {
    /// Holds the flock; its content is the holder's process id, for the others' error messages only.
    _file: File,
}

/// What came of trying to hold a slot.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// This process holds it now.
    Held(SlotLock),
    /// Another process does, or this one through another handle. The process id, if it could be read.
    Busy(Option<u32>),
}

impl SlotLock {
    /// Tries to take the lock file `path`, without waiting.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be used.
    pub(crate) fn attempt(path: &Path) -> Result<Attempt> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|e| Error::file("open", path, e))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(Attempt::Busy(holder(&file))),
            Err(e) => return Err(Error::file("lock", path, e)),
        }
        let pid = format!("{}\n", std::process::id());
        file.set_len(0)
            .and_then(|()| file.write_all(pid.as_bytes()))
            .map_err(|e| Error::file("write", path, e))?;
        Ok(Attempt::Held(Self { _file: file }))
    }
}

/// Who holds the lock file `path`: `None` when nobody does, `Some(None)` when the holder does not say. Does not take it.
///
/// # Errors
/// [`Error::Io`] when the file cannot be used.
pub(crate) fn probe(path: &Path) -> Result<Option<Option<u32>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::file("open", path, e)),
    };
    // Shared, so that two who look do not get in each other's way; given back at once by closing the file.
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(None),
        Err(Errno::WOULDBLOCK) => Ok(Some(holder(&file))),
        Err(e) => Err(Error::file("lock", path, e)),
    }
}

/// The process id in a lock file. `None` while its holder has not written it yet, or when it is rubbish.
fn holder(file: &File) -> Option<u32> {
    use std::os::unix::fs::FileExt;
    let mut bytes = [0; PID_TEXT_BYTES_MAX];
    let length = file.read_at(&mut bytes, 0).ok()?;
    std::str::from_utf8(bytes.get(..length)?).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_excludes_others_until_it_is_dropped() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("lock");
        let Attempt::Held(first) = SlotLock::attempt(&path).expect("first") else {
            panic!("a new lock is free");
        };
        match SlotLock::attempt(&path).expect("second") {
            Attempt::Busy(pid) => assert_eq!(pid, Some(std::process::id())),
            Attempt::Held(_) => panic!("held twice"),
        }
        drop(first);
        assert!(matches!(SlotLock::attempt(&path), Ok(Attempt::Held(_))));
    }

    #[test]
    fn rubbish_in_a_lock_file_is_an_unknown_holder() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("lock");
        let _held = SlotLock::attempt(&path).expect("hold");
        for rubbish in [&b"\xff\xfe"[..], b"", b"-3", b"99999999999", b"1 2"] {
            std::fs::write(&path, rubbish).expect("write");
            assert!(matches!(SlotLock::attempt(&path), Ok(Attempt::Busy(None))), "{rubbish:?}");
        }
    }
}
