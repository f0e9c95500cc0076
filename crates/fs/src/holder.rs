//! One program at a time has a file system: a locked file of this machine says which one. The system releases
//! the lock when the program ends, however it ends. The device is told as well, where it knows claims: it
//! keeps programs of other machines away, and commands that know nothing of file systems.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use unvme::{Block, Claim, ClaimKind, Status};

use crate::error::{Error, Result};

/// Where the files are, if there is such a directory; `/tmp` otherwise.
const DIRECTORY: &str = "/run/lock";

/// As long as it exists, no other process mounts the file system, and no other host changes the
/// namespace.
pub(crate) struct Holder {
    file: File,
    path: String,
    is_alone: bool,
    /// The device enforces it for every name and every machine; the file is there for devices that do not,
    /// and for several mounts in one process.
    _claim: Claim,
}

impl Drop for Holder {
    fn drop(&mut self) {
        release(&self.file, &self.path, self.is_alone);
    }
}

/// Removes a lock file that is locked. Only who has it alone does: others see that it is another one then,
/// and begin again.
fn release(file: &File, path: &str, is_alone: bool) {
    if is_alone && is_there(file, path) {
        let _ = std::fs::remove_file(path);
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
    /// Acquires the lock of the file system `uuid` on the device `name`, to mount it; those who change
    /// nothing share it.
    ///
    /// # Errors
    /// [`Error::Busy`] says who has it.
    pub(crate) fn take(block: &Block, name: &str, uuid: &[u8; 16], is_read_only: bool) -> Result<Self> {
        Self::take_for(block, name, uuid, is_read_only, MOUNTED)
    }

    /// [`Holder::take`] for a process that is `doing` something else with it.
    ///
    /// # Errors
    /// As [`Holder::take`].
    pub(crate) fn take_for(
        block: &Block,
        name: &str,
        uuid: &[u8; 16],
        is_read_only: bool,
        doing: &str,
    ) -> Result<Self> {
        let digits: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let directory = if Path::new(DIRECTORY).is_dir() { DIRECTORY } else { "/tmp" };
        let path = format!("{directory}/unvme-fs-{digits}.lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // A refusal: the device is not to blame.
        let failed = |e: Errno| {
            let why = "whether another program has the file system mounted cannot be found out";
            Error::Busy(format!("{name}: {why}: {path}: {}", std::io::Error::from(e)))
        };
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
        let is_alone = !is_read_only;
        match claim(block, name, is_read_only, doing) {
            Ok(claim) => Ok(Self { file, path, is_alone, _claim: claim }),
            Err(e) => {
                release(&file, &path, is_alone);
                Err(e)
            }
        }
    }
}

/// How long a claim is tried for. That of a process that was killed ends when the device notices, which a
/// server does within milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// What a process that has claimed a namespace does with it, for [`claim`].
const MOUNTED: &str = "has the file system mounted";
pub(crate) const MAKING: &str = "is making a file system";

/// Keeps all others from changing the namespace.
///
/// # Errors
/// [`Error::Busy`] says who has claimed it.
pub(crate) fn claim(block: &Block, name: &str, is_read_only: bool, doing: &str) -> Result<Claim> {
    let kind = match is_read_only {
        true => ClaimKind::WithOthers,
        false => ClaimKind::Alone,
    };
    let holder = format!("{} {doing}", who());
    let begun = Instant::now();
    loop {
        match block.claim(kind, &holder) {
            Err(e) if is_conflict(&e) && begun.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            claimed => return claimed.map_err(|error| refusal(name, error)),
        }
    }
}

fn is_conflict(error: &unvme::Error) -> bool {
    error.status().is_some_and(|status| status.kind() == Status::RESERVATION_CONFLICT)
}

/// Why a namespace could not be claimed.
fn refusal(name: &str, error: unvme::Error) -> Error {
    match error {
        unvme::Error::Claimed { holders, .. } => Error::Busy(format!("{name}: {holders}")),
        unvme::Error::Argument(reason) => Error::Busy(format!("{name}: {reason}")),
        other if is_conflict(&other) => {
            Error::Busy(format!("{name}: another program has it open and changes it; end that one first"))
        }
        other => Error::Device(format!("{name}: claim the namespace: {other}")),
    }
}
