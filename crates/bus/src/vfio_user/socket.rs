//! Whole messages and their descriptors over a UNIX stream socket.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg,
};
use zerocopy::FromBytes;

use super::wire::{FDS_MAX, HEADER_BYTES, Header, MESSAGE_BYTES_MAX};
use crate::{BusError, Region};

/// Name of the socket when a path names a folder, as SPDK's initiator and target have it.
const SOCKET_IN_FOLDER: &str = "cntrl";

/// The socket that a path names: itself, or `cntrl` in it when it is a folder.
pub(crate) fn socket_path(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(SOCKET_IN_FOLDER) } else { path.to_path_buf() }
}

/// The address of a socket file.
pub(crate) fn address(path: &Path) -> Result<SocketAddrUnix, BusError> {
    SocketAddrUnix::new(path)
        .map_err(|e| BusError::os(format!("socket path {} (107 bytes at most)", path.display()), e))
}

/// A new, non-blocking stream socket.
pub(crate) fn unix_socket() -> Result<OwnedFd, BusError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|e| BusError::os("create a socket", e))
}

/// How far the message being received has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is whole: [`Socket::message`] has it.
    Complete,
    /// More of it must arrive first.
    Pending,
    /// The other side is gone, perhaps in the middle of a message.
    Closed,
    /// What arrives is not a message; nothing after it can be read.
    Broken(&'static str),
}

/// A message on its way out, with shared memory whose descriptor goes along.
#[derive(Debug)]
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    window: Option<Region>,
}

impl Outgoing {
    pub(crate) fn new(bytes: Vec<u8>, window: Option<Region>) -> Self {
        Self { bytes, sent: 0, window }
    }
}

/// One end of a connection. Never blocks except where it says so.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    /// The message being received: the header, then all of it once its size is known.
    buffer: Vec<u8>,
    filled: usize,
    fds: Vec<OwnedFd>,
    /// The buffer holds a whole message that has been handed out.
    consumed: bool,
}

impl Socket {
    /// A connected stream socket, made non-blocking.
    pub(crate) fn new(fd: OwnedFd) -> Result<Self, BusError> {
        rustix::io::ioctl_fionbio(&fd, true).map_err(|e| BusError::os("make a socket non-blocking", e))?;
        Ok(Self { fd, buffer: vec![0; HEADER_BYTES], filled: 0, fds: Vec::new(), consumed: false })
    }

    /// True when a part of a message has arrived and the rest is awaited.
    pub(crate) fn is_partial(&self) -> bool {
        !self.consumed && self.filled > 0
    }

    /// Takes what has arrived of the current message, never a byte beyond it: the kernel hands over the
    /// descriptors of the next message with its first byte.
    pub(crate) fn fill(&mut self) -> Progress {
        if self.consumed {
            self.consumed = false;
            self.filled = 0;
            self.fds.clear();
            self.buffer.truncate(HEADER_BYTES);
        }
        loop {
            if self.filled == HEADER_BYTES && self.buffer.len() == HEADER_BYTES {
                match announced_size(&self.buffer) {
                    Ok(size) => self.buffer.resize(size, 0),
                    Err(reason) => return Progress::Broken(reason),
                }
            }
            if self.filled == self.buffer.len() {
                return Progress::Complete;
            }
            match self.receive_some() {
                Ok(0) => return Progress::Closed,
                Ok(bytes) => self.filled = self.filled.saturating_add(bytes),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Progress::Pending,
                Err(Errno::MSGSIZE) => {
                    return Progress::Broken("more descriptors than this process can take");
                }
                Err(_) => return Progress::Closed,
            }
        }
    }

    fn receive_some(&mut self) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let room = self.buffer.get_mut(self.filled..).unwrap_or_default();
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(&self.fd, &mut [IoSliceMut::new(room)], &mut control, flags)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        // Some descriptors were dropped by the kernel: which ones is unknown.
        if received.flags.contains(ReturnFlags::CTRUNC) || self.fds.len() > FDS_MAX {
            return Err(Errno::MSGSIZE);
        }
        Ok(received.bytes)
    }

    /// The message [`Socket::fill`] has completed, and the descriptors that came with it. Once per message.
    pub(crate) fn message(&mut self) -> (&[u8], Vec<OwnedFd>) {
        self.consumed = true;
        (&self.buffer, std::mem::take(&mut self.fds))
    }

    /// Sends a message and copies of `fds`, waiting up to `limit` for room.
    ///
    /// A message that was sent in part is followed by nothing that can be read: after an error the connection
    /// is of no use any more.
    pub(crate) fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>], limit: Duration) -> Result<(), Errno> {
        let deadline = Instant::now().checked_add(limit);
        let mut rest = message;
        let mut fds = fds;
        while !rest.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
                return Err(Errno::INVAL);
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.fd, &[IoSlice::new(rest)], &mut control, flags) {
                Ok(sent) => {
                    rest = rest.get(sent..).unwrap_or_default();
                    fds = &[];
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let left = deadline.map_or(limit, |d| d.saturating_duration_since(Instant::now()));
                    if left.is_zero() {
                        return Err(Errno::TIMEDOUT);
                    }
                    wait(&mut [PollFd::new(&self.fd, PollFlags::OUT)], Some(left))?;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Sends what the other side takes of a message without waiting; true when that was the rest of it.
    pub(crate) fn push(&self, message: &mut Outgoing) -> Result<bool, Errno> {
        loop {
            let rest = message.bytes.get(message.sent..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(true);
            }
            // The descriptor goes with the first byte.
            let fd = message.window.as_ref().filter(|_| message.sent == 0).and_then(Region::backing);
            let fd = fd.map(|(fd, _)| fd);
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if fd.is_some() && !control.push(SendAncillaryMessage::ScmRights(fd.as_slice())) {
                return Err(Errno::INVAL);
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.fd, &[IoSlice::new(rest)], &mut control, flags) {
                Ok(sent) => message.sent = message.sent.saturating_add(sent),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(e) => return Err(e),
            }
        }
    }

    /// Waits until something has arrived, or the other side is gone; false when `limit` has passed.
    pub(crate) fn wait_readable(&self, limit: Duration) -> Result<bool, Errno> {
        wait(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(limit))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sleeps until one of `fds` is ready or `limit` has passed; false when it has passed, or a signal arrived.
pub(crate) fn wait(fds: &mut [PollFd<'_>], limit: Option<Duration>) -> Result<bool, Errno> {
    let limit = limit.map(|l| Timespec::try_from(l).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 }));
    match poll(fds, limit.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Bytes of the message that starts with this header.
fn announced_size(header: &[u8]) -> Result<usize, &'static str> {
    let (header, _) = Header::ref_from_prefix(header).map_err(|_| "a truncated header")?;
    let size = usize::try_from(header.size.get()).unwrap_or(usize::MAX);
    if size < HEADER_BYTES {
        return Err("a message that claims to be shorter than its header");
    }
    if size > MESSAGE_BYTES_MAX {
        return Err("a message longer than was agreed");
    }
    Ok(size)
}
