//! Where processes that use one drive meet: a folder of the user, on a file system that does not outlive a
//! restart.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use unvme_bus::PciAddress;

use crate::registry::{Attempt, FOLDER_MODE, SlotLock};
use crate::{Error, Result};

const LOCK_FILE: &str = "lock";
const SOCKET_FILE: &str = "cntrl";

/// A drive's folder, and its lock.
#[derive(Debug)]
pub(crate) struct DrivePlace {
    folder: PathBuf,
    _lock: SlotLock,
}

/// What came of trying to hold a drive.
pub(crate) enum Held {
    /// This process holds it.
    Here(DrivePlace),
    /// Another process does.
    Busy {
        /// Which one, when it says.
        pid: Option<u32>,
        /// Its lock file.
        lock: PathBuf,
        /// Where it listens.
        socket: PathBuf,
    },
}

impl DrivePlace {
    /// Tries to hold the drive at `address`. Errors: [`Error::Io`] when the folder cannot be made,
    /// [`Error::Setup`] when somebody else could get in.
    pub(crate) fn hold(address: PciAddress) -> Result<Held> {
        Self::hold_in(&folder_by_environment(), address)
    }

    fn hold_in(runtime: &Path, address: PciAddress) -> Result<Held> {
        make_private(runtime)?;
        let folder = runtime.join("drives").join(address.to_string());
        fs::DirBuilder::new()
            .recursive(true)
            .mode(FOLDER_MODE)
            .create(&folder)
            .map_err(|e| Error::file("create", &folder, e))?;
        let (lock, socket) = (folder.join(LOCK_FILE), folder.join(SOCKET_FILE));
        match SlotLock::attempt(&lock)? {
            Attempt::Held(held) => {
                // A socket that is there was left by a process that was killed.
                match fs::remove_file(&socket) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::file("remove", &socket, e)),
                    _ => Ok(Held::Here(Self { folder, _lock: held })),
                }
            }
            Attempt::Busy(pid) => Ok(Held::Busy { pid, lock, socket }),
        }
    }

    pub(crate) fn lock_path(&self) -> PathBuf {
        self.folder.join(LOCK_FILE)
    }

    pub(crate) fn socket_path(&self) -> PathBuf {
        self.folder.join(SOCKET_FILE)
    }
}

/// A directory of this user alone, for sockets by which its processes meet: `$XDG_RUNTIME_DIR/unvme`; without
/// it, or when it belongs to another user (`sudo -E`), `/run/unvme` for root and `/tmp/unvme-UID` for others.
///
/// # Errors
/// [`Error::Io`] when it cannot be made, [`Error::Setup`] when somebody else could get in.
pub fn runtime_folder() -> Result<PathBuf> {
    let folder = folder_by_environment();
    make_private(&folder)?;
    Ok(folder)
}

fn folder_by_environment() -> PathBuf {
    let given = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    folder_of(given, geteuid().as_raw())
}

fn folder_of(given: Option<PathBuf>, uid: u32) -> PathBuf {
    // The XDG Base Directory Specification: the directory is owned by its user, or another one is used.
    let is_own = |path: &PathBuf| path.metadata().map_or(true, |found| found.uid() == uid);
    match (given.filter(|path| path.is_absolute() && is_own(path)), uid) {
        (Some(given), _) => given.join("unvme"),
        (None, 0) => PathBuf::from("/run/unvme"),
        (None, uid) => PathBuf::from(format!("/tmp/unvme-{uid}")),
    }
}

/// Makes a folder that is this user's alone, or sees that it is: in `/tmp` anybody could have made it.
fn make_private(folder: &Path) -> Result<()> {
    match fs::DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::file("create", folder, e));
        }
        _ => {}
    }
    let found = folder.symlink_metadata().map_err(|e| Error::file("inspect", folder, e))?;
    let uid = geteuid().as_raw();
    if found.is_dir() && found.uid() == uid && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(Error::Setup {
        problem: format!(
            "{} is not a folder that belongs to user {uid} alone (it belongs to user {}, mode {:o})",
            folder.display(),
            found.uid(),
            found.mode() & 0o7777
        ),
        remedy: format!("remove it, or `chmod 700 {}` if it is yours", folder.display()),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn address() -> PciAddress {
        "0000:01:00.0".parse().expect("an address")
    }

    #[test]
    fn a_drive_is_held_once_and_free_again_when_its_holder_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime = folder.path().join("unvme");
        let Ok(Held::Here(first)) = DrivePlace::hold_in(&runtime, address()) else { panic!("free") };
        assert_eq!(first.socket_path(), runtime.join("drives/0000:01:00.0/cntrl"));
        assert_eq!(runtime.metadata().expect("made").mode() & 0o777, 0o700);
        match DrivePlace::hold_in(&runtime, address()) {
            Ok(Held::Busy { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
            _ => panic!("held twice"),
        }
        let stale = first.socket_path();
        fs::write(&stale, b"").expect("a file");
        drop(first);
        assert!(matches!(DrivePlace::hold_in(&runtime, address()), Ok(Held::Here(_))));
        assert!(!stale.exists(), "what a killed holder left is removed");
    }

    #[test]
    fn the_runtime_directory_of_another_user_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let given = || Some(folder.path().to_owned());
        let (own, other) = (geteuid().as_raw(), geteuid().as_raw() + 1);
        assert_eq!(folder_of(given(), own), folder.path().join("unvme"));
        assert_eq!(folder_of(given(), other), PathBuf::from(format!("/tmp/unvme-{other}")));
        assert_eq!(folder_of(None, 0), PathBuf::from("/run/unvme"));
    }

    #[test]
    fn a_folder_that_others_can_enter_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime = folder.path().join("unvme");
        fs::create_dir(&runtime).expect("a folder");
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o755)).expect("mode");
        let refused = DrivePlace::hold_in(&runtime, address()).map(|_| ()).expect_err("others can enter");
        assert!(
            refused.to_string().contains("mode 755") && refused.to_string().contains("chmod 700"),
            "{refused}"
        );
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).expect("mode");
        assert!(DrivePlace::hold_in(&runtime, address()).is_ok());

        let link = folder.path().join("link");
        symlink(&runtime, &link).expect("a link");
        assert!(DrivePlace::hold_in(&link, address()).is_err(), "a link leads wherever its maker likes");
    }
}
