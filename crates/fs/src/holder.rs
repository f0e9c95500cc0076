//! One program at a time has a file system: a locked file of this machine says which one. The system takes
//! the lock back when the program ends, however it ends. Programs of other machines it does not know of.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// Where the files are, if there is such a directory; `/tmp` otherwise.
const DIRECTORY: &str = "/run/lock";

/// As long as it is there, nobody else mounts the file system.
pub(crate) struct Holder {
    file: File,
    path: String,
    is_alone: bool,
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Only who has it alone takes it away: others see that it is another one then, and begin again.
        if self.is_alone && is_there(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether a path leads to a file that is open.
pub(crate) fn is_there(file: impl AsFd, path: impl rustix::path::Arg) -> bool {
    let (Ok(open), Ok(named)) = (rustix::fs::fstat(file), rustix::fs::lstat(path)) else { return false };
    (open.st_dev, open.st_ino) == (named.st_dev, named.st_ino)
}

/// What is known of this program.
fn who() -> String {
    let command = std::env::args_os().next().unwrap_or_default();
    format!("process {} ({})", std::process::id(), Path::new(&command).display())
}

impl Holder {
    /// Takes the lock of the file system `uuid` on the device `name`; those who change nothing share it.
    ///
    /// # Errors
    /// [`Error::Busy`] says who has it.
    pub(crate) fn take(name: &str, uuid: &[u8; 16], is_read_only: bool) -> Result<Self> {
        let digits: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let directory = if Path::new(DIRECTORY).is_dir() { DIRECTORY } else { "/tmp" };
        let path = format!("{directory}/unvme-fs-{digits}.lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let failed = |e: Errno| Error::Device(format!("{name}: {path}: {}", std::io::Error::from(e)));
        let open =
            || rustix::fs::open(&path, flags, Mode::from_raw_mode(0o666)).map(File::from).map_err(failed);
        let operation = match is_read_only {
            true => FlockOperation::NonBlockingLockShared,
            false => FlockOperation::NonBlockingLockExclusive,
        };
        let mut file = loop {
            let mut file = open()?;
            // Those who come later may be other users.
            let _ = rustix::fs::fchmod(&file, Mode::from_raw_mode(0o666));
            match rustix::fs::flock(&file, operation) {
                Ok(()) if is_there(&file, &path) => break file,
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    let mut other = String::new();
                    // What it says helps; that it is locked is known without.
                    let _ = file.read_to_string(&mut other);
                    let other = if other.is_empty() { "another program" } else { other.trim_end() };
                    return Err(Error::Busy(format!("{name}: {other} has the file system mounted")));
                }
                Err(e) => return Err(failed(e)),
            }
        };
        if !is_read_only {
            // It is for people.
            let _ =
                file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(who().as_bytes()));
        }
        Ok(Self { file, path, is_alone: !is_read_only })
    }
}
