//! Calls to a server, and its calls to us.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use super::memory;
use crate::function::IOVA_RANGE;
use crate::lock;
use crate::vfio_user::socket::{Progress, Socket};
use crate::vfio_user::version::Capabilities;
use crate::vfio_user::wire::{self, Command, HEADER_BYTES, Header};
use crate::{AddressSpace, BusError};

/// Calls that timed out and whose answers may still come; with more of them the server is given up.
const OVERDUE_MAX: usize = 16;
/// Messages of the server answered in a row while nothing is asked of it.
const SERVED_MAX: usize = 64;

/// A connection over which one call is made at a time.
pub(crate) struct Channel {
    name: String,
    timeout: Duration,
    data_bytes_max: usize,
    /// The I/O virtual addresses the server wants to be used.
    addresses: Range<u64>,
    /// Set once the connection is of no use any more, and never cleared.
    gone: AtomicBool,
    /// What the server may reach by message.
    memory: AddressSpace,
    line: Mutex<Line>,
}

struct Line {
    socket: Socket,
    /// Message ID of the next call.
    next: u16,
    /// Message IDs of calls that timed out.
    overdue: Vec<u16>,
}

/// A message the server sent.
enum Incoming {
    /// The answer to the call with this message ID: payload and descriptors, or an errno.
    Reply(u16, Result<(Vec<u8>, Vec<OwnedFd>), Errno>),
    /// Its own command has been answered.
    Served,
}

impl Channel {
    /// Agrees on the version with a server.
    pub(crate) fn open(name: String, socket: Socket, timeout: Duration) -> Result<Self, BusError> {
        let line = Mutex::new(Line { socket, next: 0, overdue: Vec::new() });
        let mut channel = Self {
            name,
            timeout,
            data_bytes_max: wire::DATA_BYTES_MAX,
            addresses: IOVA_RANGE,
            gone: AtomicBool::new(false),
            memory: AddressSpace::new(),
            line,
        };
        let version = wire::Version { major: wire::VERSION_MAJOR.into(), minor: wire::VERSION_MINOR.into() };
        let text = Capabilities::ours().text();
        let (answer, _) = channel.call(Command::VERSION, &[version.as_bytes(), &text], &[])?;
        let Ok((version, text)) = wire::Version::ref_from_prefix(&answer) else {
            return Err(channel.nonsense("the answer to VERSION is too short"));
        };
        let (major, minor) = (version.major.get(), version.minor.get());
        if major != wire::VERSION_MAJOR || minor > wire::VERSION_MINOR {
            return Err(channel.nonsense(&format!("version {major}.{minor}, 0.1 or 0.0 expected")));
        }
        let Some(capabilities) = Capabilities::parse(text) else {
            return Err(channel.nonsense("its capabilities are not JSON"));
        };
        channel.data_bytes_max = capabilities.data_bytes_max();
        if channel.data_bytes_max < 8 {
            return Err(channel.nonsense("it takes fewer than 8 bytes of data"));
        }
        match capabilities.addresses() {
            Ok(Some(addresses)) => channel.addresses = addresses,
            Ok(None) => {}
            Err(reason) => return Err(channel.nonsense(reason)),
        }
        Ok(channel)
    }

    /// The server, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Data bytes that may go into one message.
    pub(crate) fn data_bytes_max(&self) -> usize {
        self.data_bytes_max
    }

    /// The I/O virtual addresses the server wants to be used.
    pub(crate) fn addresses(&self) -> Range<u64> {
        self.addresses.clone()
    }

    /// What the server may reach by message.
    pub(crate) fn memory(&self) -> &AddressSpace {
        &self.memory
    }

    /// True when the connection is known to be over.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Asks the server something: the payload of its answer, and the descriptors that came with it. Errors:
    /// [`BusError::Os`] with the errno the server answered, [`BusError::Timeout`], [`BusError::Gone`], and
    /// [`BusError::Protocol`] when what comes back is no answer, after which the connection is given up.
    pub(crate) fn call(
        &self,
        command: Command,
        payload: &[&[u8]],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Vec<u8>, Vec<OwnedFd>), BusError> {
        let mut line = lock(&self.line);
        if self.is_gone() {
            return Err(self.lost());
        }
        let id = line.next;
        line.next = id.wrapping_add(1);
        let mut message = vec![0; HEADER_BYTES];
        payload.iter().for_each(|part| message.extend_from_slice(part));
        wire::seal(&mut message, id, command, wire::TYPE_COMMAND);
        match line.socket.send(&message, fds, self.timeout) {
            // Sending to a server that has just turned us away fails; what it said is still to be read.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(e) => {
                // A part of the message may be out: nothing that follows would be understood.
                self.give_up();
                return Err(if e == Errno::TIMEDOUT { self.late(command) } else { self.lost() });
            }
        }
        let deadline = Instant::now().checked_add(self.timeout);
        loop {
            let left = deadline.map_or(self.timeout, |d| d.saturating_duration_since(Instant::now()));
            match self.receive(&mut line, left)? {
                Some(Incoming::Reply(answered, outcome)) if answered == id => {
                    let refused = |e: Errno| {
                        BusError::os(format!("{}: {command} refused", self.name), io::Error::from(e))
                    };
                    return outcome.map_err(refused);
                }
                Some(Incoming::Reply(answered, _)) => self.late_answer(&mut line, answered)?,
                Some(Incoming::Served) if !left.is_zero() => {}
                // In time means in time: a server that asks without a pause does not keep the caller.
                Some(Incoming::Served) | None => {
                    line.overdue.push(id);
                    if line.overdue.len() > OVERDUE_MAX {
                        self.give_up();
                    }
                    return Err(self.late(command));
                }
            }
        }
    }

    /// Answers what the server has asked meanwhile, without waiting, and notices its end. Returns how many
    /// questions there were.
    pub(crate) fn answer_server(&self) -> usize {
        // Otherwise the call that is under way answers.
        let Some(mut line) = lock::try_lock(&self.line) else { return 0 };
        let mut served = 0usize;
        for _ in 0..SERVED_MAX {
            if self.is_gone() {
                break;
            }
            match self.receive(&mut line, Duration::ZERO) {
                Ok(Some(Incoming::Served)) => served = served.saturating_add(1),
                Ok(Some(Incoming::Reply(id, _))) if self.late_answer(&mut line, id).is_ok() => {}
                // Nothing more, or the end, which `receive` has noted.
                _ => break,
            }
        }
        served
    }

    /// The next message of the server; `None` when it has not come within `limit`.
    fn receive(
        &self,
        line: &mut MutexGuard<'_, Line>,
        limit: Duration,
    ) -> Result<Option<Incoming>, BusError> {
        let deadline = Instant::now().checked_add(limit);
        loop {
            match line.socket.fill() {
                Progress::Complete => return self.sort(line).map(Some),
                Progress::Closed => {
                    self.give_up();
                    return Err(self.lost());
                }
                Progress::Broken(reason) => return Err(self.nonsense(reason)),
                Progress::Pending => {}
            }
            let left = deadline.map_or(limit, |d| d.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            line.socket.wait_readable(left).map_err(|e| {
                self.give_up();
                BusError::os("wait for an answer", e)
            })?;
        }
    }

    /// Tells an answer from a question, and answers questions.
    fn sort(&self, line: &mut MutexGuard<'_, Line>) -> Result<Incoming, BusError> {
        let (message, fds) = line.socket.message();
        let Ok((header, payload)) = Header::ref_from_prefix(message) else {
            return Err(self.nonsense("a truncated header"));
        };
        let (id, flags) = (header.id.get(), header.flags.get());
        match header.kind() {
            // Not all servers repeat the command in a reply, so only the ID counts.
            wire::TYPE_REPLY if flags & wire::FLAG_ERROR != 0 => {
                // The errno is optional and, from a hostile server, any number.
                let code = i32::try_from(header.error.get()).ok().filter(|code| (1..4096).contains(code));
                Ok(Incoming::Reply(id, Err(code.map_or(Errno::IO, Errno::from_raw_os_error))))
            }
            wire::TYPE_REPLY => Ok(Incoming::Reply(id, Ok((payload.to_vec(), fds)))),
            wire::TYPE_COMMAND => {
                let command = header.command();
                let outcome = memory::serve(&self.memory, command, payload);
                if flags & wire::FLAG_NO_REPLY == 0 {
                    let reply = match outcome {
                        Ok(mut reply) => {
                            wire::seal(&mut reply, id, command, wire::TYPE_REPLY);
                            reply
                        }
                        Err(e) => wire::error_reply(id, command, e.raw_os_error().unsigned_abs()),
                    };
                    if line.socket.send(&reply, &[], self.timeout).is_err() {
                        self.give_up();
                        return Err(self.lost());
                    }
                }
                Ok(Incoming::Served)
            }
            _ => Err(self.nonsense("a message that is neither a command nor a reply")),
        }
    }

    /// Drops the answer to a call that has timed out.
    fn late_answer(&self, line: &mut MutexGuard<'_, Line>, id: u16) -> Result<(), BusError> {
        match line.overdue.iter().position(|&overdue| overdue == id) {
            Some(at) => {
                line.overdue.swap_remove(at);
                Ok(())
            }
            None => Err(self.nonsense("an answer to a question that was not asked")),
        }
    }

    fn give_up(&self) {
        self.gone.store(true, Ordering::Release);
    }

    fn lost(&self) -> BusError {
        BusError::Gone(self.name.clone())
    }

    fn late(&self, command: Command) -> BusError {
        let milliseconds = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        BusError::Timeout { what: format!("{}: {command}", self.name), milliseconds }
    }

    /// The error for a server that breaks the protocol. The connection is given up.
    pub(crate) fn nonsense(&self, reason: &str) -> BusError {
        self.give_up();
        BusError::Protocol(format!("{}: {reason}", self.name))
    }
}
