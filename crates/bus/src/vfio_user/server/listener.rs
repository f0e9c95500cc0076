//! The socket file a server listens on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};

use crate::vfio_user::socket::{address, socket_path, unix_socket};
use crate::vfio_user::wire::{Command, error_reply};
use crate::{BusError, EventFd};

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 16;
/// Pause after a failure to accept that does not pass by itself, such as a full descriptor table.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket. Its file is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    fd: OwnedFd,
    path: PathBuf,
    /// Device and inode of the socket file, to remove only what is ours.
    file: Option<(u64, u64)>,
}

impl Listener {
    /// Listens on `path`, or on `cntrl` in it when it is a folder. A socket file that nobody listens on is
    /// replaced.
    pub(super) fn bind(path: &Path) -> Result<Self, BusError> {
        let path = socket_path(path);
        remove_stale(&path)?;
        let fd = unix_socket()?;
        let failed = |e: Errno| BusError::os(format!("listen on {}", path.display()), e);
        // Before there is a file: whoever can connect can do with the function what its owner can.
        rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        rustix::net::bind(&fd, &address(&path)?).map_err(failed)?;
        let file = identity(&path);
        rustix::net::listen(&fd, BACKLOG).map_err(failed)?;
        Ok(Self { fd, path, file })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whoever is the next to connect; `None` when nobody is. When that is for want of descriptors or memory,
    /// it takes a pause that `stop` ends.
    pub(super) fn accept(&self, stop: &EventFd) -> Result<Option<OwnedFd>, BusError> {
        match rustix::net::accept_with(&self.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(client) => Ok(Some(client)),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(e @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                tracing::warn!(error = %e, "accept a client");
                stop.wait(ACCEPT_PAUSE)?;
                Ok(None)
            }
            Err(e) => Err(BusError::os(format!("accept a client on {}", self.path.display()), e)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Another server may have replaced the file by now; that one stays.
        let ours = self.file.is_some() && identity(&self.path) == self.file;
        if ours && let Err(e) = std::fs::remove_file(&self.path) {
            tracing::debug!(socket = %self.path.display(), error = %e, "remove the socket file");
        }
    }
}

/// Tells a client that there is no room for it, as the answer to the VERSION it is about to send or has sent:
/// clients count their messages from 0.
pub(super) fn turn_away(client: &OwnedFd) {
    let busy = error_reply(0, Command::VERSION, Errno::BUSY.raw_os_error().unsigned_abs());
    // Best effort: when it does not arrive, the end of the connection says it too.
    let _ = rustix::net::send(client, &busy, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Removes a socket file that nobody listens on.
fn remove_stale(path: &Path) -> Result<(), BusError> {
    let Ok(metadata) = path.symlink_metadata() else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(BusError::Unsupported(format!(
            "{} exists and is not a socket; choose another path",
            path.display()
        )));
    }
    match rustix::net::connect(unix_socket()?, &address(path)?) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path)
            .map_err(|e| BusError::os(format!("remove the stale socket {}", path.display()), e)),
        Err(Errno::NOENT) => Ok(()),
        // A full backlog (EAGAIN) is a sign of life too.
        Ok(()) | Err(Errno::AGAIN) => Err(BusError::Unsupported(format!(
            "{} is served by another process; stop it or choose another path",
            path.display()
        ))),
        Err(e) => Err(BusError::os(format!("check who serves {}", path.display()), e)),
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|m| (m.dev(), m.ino()))
}
