//! A function on a socket.

use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};

use super::bars::Bars;
use super::session::{Reply, Session};
use super::socket::{Progress, Socket, address, socket_path, unix_socket, wait};
use super::wire::{Command, error_reply};
use crate::{BusError, EventFd, Function};

/// A client must introduce itself, a message that has begun must be whole, and a reply must be taken, within this time.
const STALL_LIMIT: Duration = Duration::from_secs(5);
/// Clients that may wait for the previous one to be cleaned up after.
const BACKLOG: i32 = 16;
/// Pause after a failure to accept that does not pass by itself, such as a full descriptor table.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Offers a function to one client at a time.
///
/// [`Server::run`] answers messages on the thread that calls it. The data path does not pass through it: doorbells and
/// buffers are shared memory, and whoever calls [`Function::advance`] moves the data.
pub struct Server {
    function: Arc<dyn Function>,
    bars: Arc<Bars>,
    listener: OwnedFd,
    path: PathBuf,
    /// Device and inode of the socket file, to remove only what is ours.
    file: Option<(u64, u64)>,
    attached: AtomicBool,
}

/// Why a connection is over.
enum Ended {
    /// The client went, or was sent away.
    Client,
    /// The caller of [`Server::run`] wants to stop.
    Stopped,
}

impl Server {
    /// Listens on `path`, or on `cntrl` in it when it is a folder, where SPDK's initiator looks. A socket file that
    /// nobody listens on is replaced.
    ///
    /// # Errors
    /// [`BusError::Os`] when the socket cannot be made, [`BusError::Unsupported`] when somebody listens there already,
    /// the file is not a socket, or the function has a window that cannot be shared (see [`crate::Window`]).
    pub fn bind(path: &Path, function: Arc<dyn Function>) -> Result<Self, BusError> {
        let bars = Arc::new(Bars::of(&*function)?);
        let path = socket_path(path);
        remove_stale(&path)?;
        let listener = unix_socket()?;
        let what = || format!("listen on {}", path.display());
        rustix::net::bind(&listener, &address(&path)?).map_err(|e| BusError::os(what(), e))?;
        let file = identity(&path);
        let server = Self { function, bars, listener, path, file, attached: AtomicBool::new(false) };
        rustix::net::listen(&server.listener, BACKLOG)
            .map_err(|e| BusError::os(format!("listen on {}", server.path.display()), e))?;
        Ok(server)
    }

    /// The socket file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True while a client is attached.
    pub fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Acquire)
    }

    /// Serves one client after the other until `stop` is signalled, which stays signalled. Another client that
    /// connects meanwhile is told that the device is busy.
    ///
    /// When a client goes, in whatever way, the function is reset and nothing of the client's is left in it.
    ///
    /// # Errors
    /// [`BusError::Os`] when the socket itself fails. What a client does wrong ends its connection only.
    pub fn run(&self, stop: &EventFd) -> Result<(), BusError> {
        loop {
            let mut ready = [PollFd::new(stop, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
            wait(&mut ready, None).map_err(|e| BusError::os("wait for a client", e))?;
            let [stopped, _] = ready;
            if !stopped.revents().is_empty() {
                return Ok(());
            }
            let Some(client) = self.accept(stop)? else { continue };
            let ended = self.serve(client, stop);
            self.attached.store(false, Ordering::Release);
            match ended? {
                Ended::Client => tracing::debug!(socket = %self.path.display(), "client detached"),
                Ended::Stopped => return Ok(()),
            }
        }
    }

    fn accept(&self, stop: &EventFd) -> Result<Option<OwnedFd>, BusError> {
        match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
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

    /// Serves one client to its end. Dropping the session on the way out cleans up after it.
    fn serve(&self, client: OwnedFd, stop: &EventFd) -> Result<Ended, BusError> {
        let mut socket = Socket::new(client)?;
        let mut session = Session::with_bars(Arc::clone(&self.function), Arc::clone(&self.bars));
        // When the message under way must be whole. The first one is under way from the start: a client that says
        // nothing would keep all others away.
        let mut due = Some(Instant::now() + STALL_LIMIT);
        loop {
            match socket.fill() {
                Progress::Complete => {
                    due = None;
                    let (message, fds) = socket.message();
                    let reply = session.handle(message, fds);
                    self.attached.store(session.is_negotiated(), Ordering::Release);
                    if !deliver(&socket, &reply) {
                        return Ok(Ended::Client);
                    }
                    // A client that never pauses must not keep us from stopping.
                    if stop.wait(Duration::ZERO)? {
                        return Ok(Ended::Stopped);
                    }
                }
                Progress::Pending => {
                    if due.is_none() && socket.is_partial() {
                        due = Some(Instant::now() + STALL_LIMIT);
                    }
                    let left = due.map(|due| due.saturating_duration_since(Instant::now()));
                    if left.is_some_and(|left| left.is_zero()) {
                        tracing::warn!("vfio-user: client sent away: its message did not come, or not whole");
                        return Ok(Ended::Client);
                    }
                    if let Some(ended) = self.wait_for_more(&socket, stop, left)? {
                        return Ok(ended);
                    }
                }
                Progress::Closed => return Ok(Ended::Client),
                Progress::Broken(reason) => {
                    tracing::warn!(reason, "vfio-user: client sent away");
                    return Ok(Ended::Client);
                }
            }
        }
    }

    /// Sleeps until the client has sent something or `limit` has passed; anyone else who connects is turned away.
    fn wait_for_more(
        &self,
        socket: &Socket,
        stop: &EventFd,
        limit: Option<Duration>,
    ) -> Result<Option<Ended>, BusError> {
        let mut ready = [
            PollFd::new(stop, PollFlags::IN),
            PollFd::new(socket, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        wait(&mut ready, limit).map_err(|e| BusError::os("wait for a message", e))?;
        let [stopped, message, newcomer] = ready.map(|fd| !fd.revents().is_empty());
        if stopped {
            return Ok(Some(Ended::Stopped));
        }
        // Looked at again after the newcomer was seen: a client that went before the newcomer came has made room.
        let waiting =
            || socket.wait_readable(Duration::ZERO).map_err(|e| BusError::os("wait for a message", e));
        if newcomer
            && !message
            && !waiting()?
            && let Some(client) = self.accept(stop)?
        {
            turn_away(&client);
        }
        Ok(None)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Another server may have replaced the file by now; that one stays.
        let ours = self.file.is_some() && identity(&self.path) == self.file;
        if ours && let Err(e) = std::fs::remove_file(&self.path) {
            tracing::debug!(socket = %self.path.display(), error = %e, "remove the socket file");
        }
    }
}

/// Sends a reply; false when the connection is over.
fn deliver(socket: &Socket, reply: &Reply) -> bool {
    if !reply.bytes.is_empty() {
        let fd = reply.fds();
        if let Err(e) = socket.send(&reply.bytes, fd.as_slice(), STALL_LIMIT) {
            tracing::debug!(error = %e, "vfio-user: reply");
            return false;
        }
    }
    !reply.hang_up
}

/// Tells a client that another one is attached, as the answer to the VERSION it is about to send or has sent: clients
/// count their messages from 0.
fn turn_away(client: &OwnedFd) {
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
