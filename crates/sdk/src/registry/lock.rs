//! Who holds a virtual slot.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::FILE_MODE;
use crate::{Error, Result};

/// Bytes read of a lock file: room for any process id, its namespace and a [`Note`].
const TEXT_BYTES_MAX: usize = 64;
/// How often a lock file is taken that turns out to be another's by then.
const REPLACED_MAX: u32 = 100;

/// A slot held by this process; released when dropped, or by the kernel when the process dies, however it
/// dies.
#[derive(Debug)]
pub struct SlotLock {
    /// Holds the flock; its content is the holder's process id, for the others' error messages only.
    file: File,
    /// The process that took it: one that was forked off has a copy.
    pid: u32,
}

impl Drop for SlotLock {
    /// What it says of this process is not true any more when the file is closed.
    fn drop(&mut self) {
        if self.pid == std::process::id()
            && let Err(e) = self.file.set_len(0)
        {
            tracing::debug!(error = %e, "empty a lock file");
        }
    }
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
    /// Tries to take the lock file `path`, without waiting. Holding it takes no space, and on a read-only
    /// file system no lock file: its folder is locked then. Errors: [`Error::Io`] when the file cannot be
    /// used.
    pub(crate) fn attempt(path: &Path) -> Result<Attempt> {
        for _ in 0..REPLACED_MAX {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
            let (file, at) = match options.open(path) {
                Err(e) if e.kind() == ErrorKind::ReadOnlyFilesystem => open_to_read(path)?,
                opened => (opened.map_err(|e| Error::file("open", path, e))?, path),
            };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(Attempt::Busy(holder(&file))),
                Err(e) => return Err(Error::file("lock", path, e)),
            }
            if is_still_at(&file, at)? {
                return Ok(Attempt::Held(Self::of(file, path)));
            }
        }
        let source = std::io::Error::other("its slot is removed and created again all the time");
        Err(Error::file("lock", path, source))
    }

    /// Says in a lock file that is held who holds it.
    fn of(mut file: File, path: &Path) -> Self {
        let pid = std::process::id();
        let line = match pid_namespace() {
            Some(namespace) => format!("{pid} {namespace}\n"),
            None => format!("{pid}\n"),
        };
        let said = file.set_len(0).and_then(|()| file.write_all(line.as_bytes()));
        if let Err(e) = said {
            // Others cannot tell who holds it.
            tracing::debug!(lock = %path.display(), error = %e, "write a lock file");
        }
        Self { file, pid }
    }
}

/// The lock file, or its folder when there is none and none can be made; and which of them it is.
fn open_to_read(path: &Path) -> Result<(File, &Path)> {
    if let Ok(file) = File::open(path) {
        return Ok((file, path));
    }
    let folder = path.parent().unwrap_or(path);
    File::open(folder).map(|file| (file, folder)).map_err(|e| Error::file("open", folder, e))
}

/// False when the file was removed since it was opened, or another one is there now: its lock keeps nobody
/// out.
fn is_still_at(file: &File, path: &Path) -> Result<bool> {
    let failed = |e| Error::file("inspect", path, e);
    let opened = file.metadata().map_err(failed)?;
    match path.metadata() {
        Ok(found) => Ok((found.dev(), found.ino()) == (opened.dev(), opened.ino())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(failed(e)),
    }
}

/// Names the namespace that this process's id is of: in another one, such as another container's, the same
/// number is another process. `None` where the system does not say.
fn pid_namespace() -> Option<String> {
    std::fs::read_link("/proc/self/ns/pid").ok()?.into_os_string().into_string().ok()
}

/// What a holder adds to its lock file: whether others reach the device through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// They do, for as long as it has the device open.
    Shared,
    /// They need not wait for a socket.
    Alone,
}

impl Note {
    fn text(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Alone => "alone",
        }
    }
}

/// Adds a note to the lock file `path`, which this process holds.
pub(crate) fn add_note(path: &Path, note: Note) {
    let text = note.text();
    let added = OpenOptions::new().append(true).open(path).and_then(|mut file| writeln!(file, "{text}"));
    if let Err(e) = added {
        // Others wait a little longer before they are told.
        tracing::debug!(lock = %path.display(), error = %e, "note in a lock file");
    }
}

/// The note in the lock file `path`, when its holder has left one.
pub(crate) fn note(path: &Path) -> Option<Note> {
    let text = content(&File::open(path).ok()?)?;
    let second = text.lines().nth(1)?;
    [Note::Shared, Note::Alone].into_iter().find(|note| note.text() == second)
}

/// Who holds the lock file `path`: `None` when nobody does, `Some(None)` when the holder does not say. Does
/// not take it. Errors: [`Error::Io`] when the file cannot be used.
pub(crate) fn probe(path: &Path) -> Result<Option<Option<u32>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::file("open", path, e)),
    };
    // Shared, so that two who look do not get in each other's way; given back at once by closing the file.
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(None),
        Err(Errno::WOULDBLOCK) => Ok(Some(holder(&file))),
        Err(e) => Err(Error::file("lock", path, e)),
    }
}

/// The process id in a lock file. `None` while its holder has not written it yet, when it is rubbish, and
/// when it says nothing here: it is of another namespace. A lock file that names none is of this one.
fn holder(file: &File) -> Option<u32> {
    let content = content(file)?;
    let line = content.lines().next()?.trim();
    let (pid, namespace) = line.split_once(' ').map_or((line, None), |(pid, of)| (pid, Some(of)));
    if namespace.is_some() && namespace != pid_namespace().as_deref() {
        return None;
    }
    pid.parse().ok()
}

/// What is in a lock file, as far as it is of interest.
fn content(file: &File) -> Option<String> {
    use std::os::unix::fs::FileExt;
    let mut bytes = [0; TEXT_BYTES_MAX];
    let length = file.read_at(&mut bytes, 0).ok()?;
    std::str::from_utf8(bytes.get(..length)?).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::thread;

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
        assert_eq!(std::fs::read(&path).expect("lock file"), b"", "it names nobody");
        assert!(matches!(SlotLock::attempt(&path), Ok(Attempt::Held(_))));
    }

    #[test]
    fn a_holder_can_say_that_nobody_needs_to_wait() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("lock");
        let held = SlotLock::attempt(&path).expect("hold");
        assert_eq!(note(&path), None);
        add_note(&path, Note::Alone);
        assert_eq!(note(&path), Some(Note::Alone));
        assert!(
            matches!(SlotLock::attempt(&path), Ok(Attempt::Busy(pid)) if pid == Some(std::process::id()))
        );
        drop(held);
        let _next = SlotLock::attempt(&path).expect("hold");
        assert_eq!(note(&path), None, "the next holder has not said so");
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

    #[test]
    fn a_lock_file_that_is_removed_and_made_again_is_held_once() {
        const REMOVALS: u32 = 2000;
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("lock");
        let (is_held, removed) = (AtomicBool::new(false), AtomicU32::new(0));
        let use_it = || {
            while removed.load(Ordering::Relaxed) < REMOVALS {
                let Attempt::Held(lock) = SlotLock::attempt(&path).expect("lock") else { continue };
                assert!(!is_held.swap(true, Ordering::SeqCst), "held twice");
                is_held.store(false, Ordering::SeqCst);
                // As whoever removes a slot does while it holds it: the next one is another lock.
                std::fs::remove_file(&path).expect("it is this one's to remove");
                removed.fetch_add(1, Ordering::Relaxed);
                drop(lock);
            }
        };
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(use_it))));
    }

    #[test]
    fn a_holder_is_named_where_its_process_id_means_something() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("lock");
        let _held = SlotLock::attempt(&path).expect("hold");
        let own = pid_namespace().expect("the system says");
        assert_eq!(
            std::fs::read_to_string(&path).expect("lock file"),
            format!("{} {own}\n", std::process::id())
        );
        for (says, expected) in [
            (format!("4194304 {own}\nshared\n"), Some(4_194_304)),
            ("17 pid:[1]\nshared\n".to_owned(), None),
            ("17\nshared\n".to_owned(), Some(17)),
        ] {
            std::fs::write(&path, &says).expect("write");
            assert!(matches!(SlotLock::attempt(&path), Ok(Attempt::Busy(pid)) if pid == expected), "{says}");
            assert_eq!(note(&path), Some(Note::Shared));
        }
    }
}
