//! One client of a server: its socket, its session and what it has yet to take.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;

use super::Server;
use crate::vfio_user::session::{Reply, Session};
use crate::vfio_user::socket::{Outgoing, Progress, Socket};
use crate::vfio_user::wire::{Command, error_reply};
use crate::{BusError, Function};

/// A client must introduce itself, a message that has begun must be whole, and a reply must be taken, within
/// this time.
const STALL_LIMIT: Duration = Duration::from_secs(5);
/// Messages of one client answered in a row while others wait.
const MESSAGES_MAX: u32 = 16;

/// How a turn of a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It goes on.
    Stays,
    /// The client went, or must go.
    Over,
}

/// One client.
pub(super) struct Connection {
    socket: Socket,
    /// Made when the first message has arrived: whoever only looks whether somebody listens costs no
    /// function.
    session: Option<Session>,
    function: Option<Arc<dyn Function>>,
    /// What the client has not taken of a reply. Nothing more is read from it meanwhile.
    unsent: Option<Outgoing>,
    /// When the message or the reply under way must be whole. The first message is under way from the start.
    due: Option<Instant>,
    listed: bool,
}

impl Connection {
    pub(super) fn new(client: OwnedFd) -> Result<Self, BusError> {
        Ok(Self {
            socket: Socket::new(client)?,
            session: None,
            function: None,
            unsent: None,
            due: Some(Instant::now() + STALL_LIMIT),
            listed: false,
        })
    }

    /// What to wait for.
    pub(super) fn interest(&self) -> PollFlags {
        if self.unsent.is_some() { PollFlags::OUT } else { PollFlags::IN }
    }

    /// How long the client may still take for what is under way; `None` when nothing is.
    pub(super) fn patience(&self, now: Instant) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(now))
    }

    /// True when what the client drives is gone, so that the client has to be told by the end of the
    /// connection, or when memory is gone that it has shared.
    pub(super) fn is_orphaned(&self) -> bool {
        if self.session.as_ref().is_some_and(Session::has_lost_memory) {
            let reason =
                "memory that it had mapped for the device went away: its file was cut, or has no room";
            tracing::warn!(reason, "vfio-user: client sent away");
            return true;
        }
        self.function.as_ref().is_some_and(|function| function.is_gone())
    }

    /// Does what there is to do without waiting.
    pub(super) fn turn(&mut self, server: &Server) -> Turn {
        if let Some(unsent) = &mut self.unsent {
            match self.socket.push(unsent) {
                Ok(true) => {
                    (self.unsent, self.due) = (None, None);
                }
                Ok(false) => return self.check_time("its reply was not taken"),
                Err(_) => return Turn::Over,
            }
        }
        for _ in 0..MESSAGES_MAX {
            match self.socket.fill() {
                Progress::Complete => {
                    self.due = None;
                    if self.answer(server) == Turn::Over {
                        return Turn::Over;
                    }
                    if self.unsent.is_some() {
                        return Turn::Stays;
                    }
                }
                Progress::Pending => {
                    if self.due.is_none() && self.socket.is_partial() {
                        self.due = Some(Instant::now() + STALL_LIMIT);
                    }
                    return self.check_time("its message did not come, or not whole");
                }
                Progress::Closed => return Turn::Over,
                Progress::Broken(reason) => {
                    tracing::warn!(reason, "vfio-user: client sent away");
                    return Turn::Over;
                }
            }
        }
        Turn::Stays
    }

    fn check_time(&self, reason: &str) -> Turn {
        if self.due.is_some_and(|due| due <= Instant::now()) {
            tracing::warn!(reason, "vfio-user: client sent away");
            return Turn::Over;
        }
        Turn::Stays
    }

    /// Carries out the message that has arrived and sends the reply, or what the client takes of it now.
    fn answer(&mut self, server: &Server) -> Turn {
        let (message, fds) = self.socket.message();
        if self.session.is_none() {
            match server.lend() {
                Ok((function, bars)) => {
                    self.function = Some(Arc::clone(&function));
                    self.session = Some(Session::with_bars(function, bars, Some(server.look.clone())));
                }
                Err(e) => {
                    tracing::warn!(error = %e, "vfio-user: client sent away");
                    let code = refusal(&e).raw_os_error().unsigned_abs();
                    let refused = error_reply(0, Command::VERSION, code);
                    let _ = self.socket.push(&mut Outgoing::new(refused, None));
                    return Turn::Over;
                }
            }
        }
        let Some(session) = &mut self.session else { return Turn::Over };
        let Reply { bytes, window, hang_up } = session.handle(message, fds);
        if !self.listed && session.is_negotiated() {
            // Before the client knows: what it asks for next may need the function to work.
            self.listed = true;
            server.list(self.function.as_ref());
        }
        if !bytes.is_empty() {
            let mut reply = Outgoing::new(bytes, window);
            match self.socket.push(&mut reply) {
                Ok(true) => {}
                Ok(false) if !hang_up => {
                    self.due = Some(Instant::now() + STALL_LIMIT);
                    self.unsent = Some(reply);
                }
                Ok(false) => {}
                Err(e) => {
                    tracing::debug!(error = %e, "vfio-user: reply");
                    return Turn::Over;
                }
            }
        }
        if hang_up { Turn::Over } else { Turn::Stays }
    }

    /// Cleans up after the client: its function is reset, and then of no use to it any more.
    pub(super) fn end(mut self, server: &Server) {
        drop(self.session.take());
        if self.listed {
            server.unlist(self.function.as_ref());
            tracing::debug!(socket = %server.path().display(), "client detached");
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What a client is told that no function can be had for.
fn refusal(error: &BusError) -> Errno {
    match error {
        BusError::Os { source, .. } => source.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error),
        BusError::Gone(_) => Errno::NODEV,
        // Among them: as many clients as the function has room for.
        _ => Errno::BUSY,
    }
}
