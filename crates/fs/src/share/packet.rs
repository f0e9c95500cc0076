//! Packets and descriptors over a UNIX socket.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, UCred,
};

use super::slot::is_passing;
use super::wire::MESSAGE_BYTES_MAX;
use crate::error::{Error, Result};

/// Most descriptors of a packet.
pub(super) const FDS_MAX: usize = 8;
/// Descriptors are moved out of the way of those of programs, which expect small numbers in a row.
const FD_MIN: i32 = 512;
/// Clients that have not been accepted yet.
const BACKLOG: i32 = 128;

fn address(path: &Path) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new(path)
        .map_err(|_| Error::Format(format!("{}: a socket's path has 107 bytes at most", path.display())))
}

fn socket() -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Two sockets that are connected to each other.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (one, other) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok((out_of_the_way(one), other))
}

/// The same descriptor under a large number, or as it is when the limit does not allow that.
pub(super) fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(&fd, FD_MIN).unwrap_or(fd)
}

/// Whether a descriptor stays open over `execve`.
pub(super) fn keep_over_exec(fd: BorrowedFd<'_>, stays: bool) -> Result<()> {
    Ok(rustix::io::fcntl_setfd(fd, if stays { FdFlags::empty() } else { FdFlags::CLOEXEC })?)
}

/// Listens at a path, which nobody else does.
pub(super) fn listen(path: &Path) -> Result<OwnedFd> {
    let listener = socket()?;
    rustix::net::bind(&listener, &address(path)?)?;
    rustix::fs::chmod(path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    // Before the first client can send: each packet has its sender's credentials with it.
    expect_credentials(listener.as_fd())?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

pub(super) fn accept(listener: BorrowedFd<'_>) -> Result<OwnedFd> {
    let socket = rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    expect_credentials(socket.as_fd())?;
    Ok(socket)
}

/// Has the kernel attach to each packet the credentials of the process that sends it (`SO_PASSCRED`).
pub(super) fn expect_credentials(socket: BorrowedFd<'_>) -> Result<()> {
    Ok(rustix::net::sockopt::set_socket_passcred(socket, true)?)
}

/// A connection to whoever listens at a path.
pub(super) fn connect(path: &Path, limit: Duration) -> Result<OwnedFd> {
    let (socket, address) = (out_of_the_way(socket()?), address(path)?);
    let end = Instant::now().checked_add(limit);
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            // Others are before us.
            Err(e) if is_passing(e) && end.is_some_and(|end| Instant::now() < end) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// The process, the user and the group of a sender, as numbers: that of a process in another PID namespace,
/// which this one does not show, is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sender {
    pub pid: i32,
    pub uid: u32,
    pub gid: u32,
}

impl From<UCred> for Sender {
    fn from(of: UCred) -> Self {
        Self { pid: of.pid.as_raw_pid(), uid: of.uid.as_raw(), gid: of.gid.as_raw() }
    }
}

/// A packet that was received.
pub(super) struct Packet {
    pub bytes: Vec<u8>,
    pub fds: Vec<OwnedFd>,
    /// Those of the sender when it sent it, checked by the kernel. None unless the receiver
    /// [expects](expect_credentials) them.
    pub sender: Option<Sender>,
}

/// Sends a packet.
pub(super) fn send(fd: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    send_as(fd, bytes, fds, None)
}

/// Sends a packet with credentials (`SCM_CREDENTIALS`), which the kernel checks: the process's own
/// identifier, and one each of its real, effective and saved users and groups.
///
/// # Errors
/// EPERM when they are not the sender's own.
pub(super) fn send_as(
    fd: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    sender: Option<UCred>,
) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX), ScmCredentials(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    if let Some(sender) = sender {
        control.push(SendAncillaryMessage::ScmCredentials(sender));
    }
    // A socket that came from a client may be one that waits.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        match rustix::net::sendmsg(fd, &[IoSlice::new(bytes)], &mut control, flags) {
            Err(Errno::INTR) => {}
            done => return done.map(|_| ()).map_err(Error::from),
        }
    }
}

/// A packet; none when the other side is gone.
///
/// # Errors
/// EAGAIN when there is none now.
pub(super) fn receive(fd: BorrowedFd<'_>) -> Result<Option<Packet>> {
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = rustix::net::recvmsg(fd, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    let (mut fds, mut sender) = (Vec::new(), None);
    for message in control.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(more) => fds.extend(more),
            RecvAncillaryMessage::ScmCredentials(credentials) => sender = Some(Sender::from(credentials)),
            _ => {}
        }
    }
    if received.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC) {
        return Err(Errno::MSGSIZE.into());
    }
    bytes.truncate(received.bytes);
    Ok((received.bytes > 0).then_some(Packet { bytes, fds, sender }))
}

/// As [`receive`], waiting for up to `limit`: EIO when nothing comes, or the other side is gone.
pub(super) fn receive_within(fd: BorrowedFd<'_>, limit: Duration) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
    let start = Instant::now();
    loop {
        match receive(fd) {
            Ok(Some(packet)) => return Ok((packet.bytes, packet.fds)),
            Err(Error::Posix(errno)) if is_passing(errno) => {}
            Ok(None) | Err(Error::Posix(_)) => return Err(Errno::IO.into()),
            Err(e) => return Err(e),
        }
        let left = limit.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(Errno::IO.into());
        }
        let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Timespec::try_from(left).ok().as_ref());
    }
}

/// Whether the other side has closed the connection.
pub(super) fn is_closed(fd: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok()
        && fds.iter().any(|fd| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL))
}
