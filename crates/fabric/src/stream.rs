//! A byte stream between a host and a controller: TCP, bare or under TLS. Nothing here waits, except where it
//! is said.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use unvme_bus::socket::{self, Piece, Room};

use crate::tls::{Acceptor, Claimed, Session};
use crate::{FabricError, TlsPsk};

/// A connection. Its descriptor is non-blocking, and what is sent leaves at once (TCP_NODELAY).
///
/// One that was only started, or that has TLS, is open when [`Stream::handshake`] says so; until then nothing
/// can be sent or received.
pub struct Stream {
    kind: Kind,
    /// The TCP connection is there.
    is_connected: bool,
}

enum Kind {
    Plain(TcpStream),
    Tls(Box<Session>),
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// Open: bytes may flow.
    Done,
    /// Goes on when the descriptor is readable.
    WantsRead,
    /// Goes on when the descriptor is writable.
    WantsWrite,
}

impl Stream {
    /// Starts to connect, under TLS when there is a key, and waits for nothing: [`Stream::handshake`] goes on
    /// with it. Errors: [`FabricError::Os`] when the system refuses, [`FabricError::NoTls`] for a key in a
    /// build without TLS.
    pub fn start(address: SocketAddr, psk: Option<&TlsPsk>) -> Result<Self, FabricError> {
        let what = || format!("connect to {address}");
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = socket_with(family, SocketType::STREAM, flags, None)
            .map_err(|error| FabricError::os(what(), error))?;
        match rustix::net::connect(&fd, &address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(FabricError::os(what(), error)),
        }
        let socket = TcpStream::from(fd);
        socket.set_nodelay(true).map_err(|error| FabricError::os(what(), error))?;
        let kind = match psk {
            None => Kind::Plain(socket),
            Some(psk) => Kind::Tls(Box::new(Session::connect(socket, psk)?)),
        };
        Ok(Self { kind, is_connected: false })
    }

    /// Connects, under TLS when there is a key, and waits until the connection is open. Errors: as
    /// [`Stream::start`]; [`FabricError::Timeout`] when that takes longer than `timeout`,
    /// [`FabricError::Tls`] when the other side does not have the key.
    pub fn connect(
        address: SocketAddr,
        timeout: Duration,
        psk: Option<&TlsPsk>,
    ) -> Result<Self, FabricError> {
        let deadline = Instant::now() + timeout;
        let mut stream = Self::start(address, psk)?;
        loop {
            let flags = match stream.handshake()? {
                Handshake::Done => return Ok(stream),
                Handshake::WantsRead => PollFlags::IN,
                Handshake::WantsWrite => PollFlags::OUT,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let milliseconds = timeout.as_millis() as u64;
                return Err(FabricError::Timeout { what: format!("connect to {address}"), milliseconds });
            }
            stream.wait(flags, left)?;
        }
    }

    /// A connection that was accepted. It is open. Errors: [`FabricError::Os`] when its settings cannot be
    /// made.
    pub fn accepted(socket: TcpStream) -> Result<Self, FabricError> {
        prepare(&socket)?;
        Ok(Self { kind: Kind::Plain(socket), is_connected: true })
    }

    /// A connection that was accepted and is to be under TLS. Errors: as [`Stream::accepted`];
    /// [`FabricError::Tls`] when the TLS library has no memory.
    pub fn accepted_tls(socket: TcpStream, acceptor: &Acceptor) -> Result<Self, FabricError> {
        prepare(&socket)?;
        Ok(Self { kind: Kind::Tls(Box::new(Session::accept(socket, acceptor)?)), is_connected: true })
    }

    /// Goes on with connecting, and with the handshake of TLS; to be called until it says
    /// [`Handshake::Done`], each time the descriptor is ready for what it wants. Once open it stays so.
    /// Errors: [`FabricError::Os`] when the connection was refused or broke, [`FabricError::Tls`] when the
    /// other side does not have the key or does not speak TLS 1.3.
    pub fn handshake(&mut self) -> Result<Handshake, FabricError> {
        if !self.is_connected && !self.is_writable()? {
            return Ok(Handshake::WantsWrite);
        }
        self.is_connected = true;
        match &mut self.kind {
            Kind::Plain(_) => Ok(Handshake::Done),
            Kind::Tls(session) => session.handshake(),
        }
    }

    /// Whether the TCP connection is there; an error when it failed.
    fn is_writable(&self) -> Result<bool, FabricError> {
        let failed = |error: io::Error| FabricError::os("connect", error);
        if !self.wait(PollFlags::OUT, Duration::ZERO)? {
            return Ok(false);
        }
        match sockopt::socket_error(self.as_fd()).map_err(|error| failed(error.into()))? {
            Ok(()) => Ok(true),
            Err(error) => Err(failed(error.into())),
        }
    }

    fn wait(&self, flags: PollFlags, timeout: Duration) -> Result<bool, FabricError> {
        let fd = self.as_fd();
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&fd, flags)], Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(FabricError::os("wait for a connection", error)),
        }
    }

    /// Sends what the connection takes now, from the first byte on; how many bytes that was. What it does not
    /// take is to be offered again, the same bytes first: under TLS a part of them may be encrypted already.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when it takes nothing now; otherwise the connection is broken.
    ///
    /// # Panics
    /// When a piece is not within its region.
    #[inline]
    pub fn send(&mut self, pieces: &[Piece<'_>]) -> io::Result<usize> {
        match &mut self.kind {
            Kind::Plain(socket) => socket::send(socket.as_fd(), pieces),
            Kind::Tls(session) => session.send(pieces),
        }
    }

    /// Receives what is there now into `rooms`, one after the other; how many bytes that was, 0 at the end of
    /// the stream.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when nothing is there; otherwise the connection is broken.
    ///
    /// # Panics
    /// When there is no room for a single byte, or a room is not within its region.
    #[inline]
    pub fn receive(&mut self, rooms: &mut [Room<'_>]) -> io::Result<usize> {
        match &mut self.kind {
            Kind::Plain(socket) => socket::receive(socket.as_fd(), rooms),
            Kind::Tls(session) => session.receive(rooms),
        }
    }

    /// Whether bytes may wait in this process, which the descriptor does not show: [`Stream::receive`] is to
    /// be called until it would block before anybody waits for the descriptor.
    #[inline]
    pub fn has_buffered(&self) -> bool {
        match &self.kind {
            Kind::Plain(_) => false,
            Kind::Tls(session) => session.has_buffered(),
        }
    }

    /// Whether the connection is encrypted.
    pub fn is_secure(&self) -> bool {
        matches!(self.kind, Kind::Tls(_))
    }

    /// Identity of the key by which the other side of a TLS connection has proven itself; `None` without TLS
    /// and before the handshake is done.
    pub fn tls_identity(&self) -> Option<&str> {
        match &self.kind {
            Kind::Plain(_) => None,
            Kind::Tls(session) => session.identity(),
        }
    }

    /// Identity of the key that the host of a TLS connection says it has, whether it has proven that or not;
    /// `None` without TLS, on the host's side, and until it has said so.
    pub fn claimed_identity(&self) -> Option<&Claimed> {
        match &self.kind {
            Kind::Plain(_) => None,
            Kind::Tls(session) => session.claimed(),
        }
    }

    /// Address of the other side. Errors: what getpeername(2) says when the connection is gone.
    pub fn peer(&self) -> io::Result<SocketAddr> {
        self.socket().peer_addr()
    }

    /// Tells the other side that nothing more is sent. It may go on sending.
    pub fn finish(&mut self) {
        if let Kind::Tls(session) = &mut self.kind {
            session.finish();
        }
        if let Err(error) = self.socket().shutdown(std::net::Shutdown::Write) {
            tracing::debug!(%error, "shut a connection down");
        }
    }

    /// Closes the connection by a reset (SO_LINGER of 0): the kernel discards what it has not sent yet, which
    /// would otherwise still reach the other side after this call.
    pub fn discard(self) {
        if let Err(error) = sockopt::set_socket_linger(self.socket(), Some(Duration::ZERO)) {
            tracing::debug!(%error, "discard what a connection has not sent");
        }
    }

    fn socket(&self) -> &TcpStream {
        match &self.kind {
            Kind::Plain(socket) => socket,
            Kind::Tls(session) => session.socket(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("socket", self.socket()).field("is_secure", &self.is_secure()).finish()
    }
}

fn prepare(socket: &TcpStream) -> Result<(), FabricError> {
    socket
        .set_nonblocking(true)
        .and_then(|()| socket.set_nodelay(true))
        .map_err(|error| FabricError::os("set a connection up", error))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn bytes_flow_both_ways_and_the_end_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut host = Stream::connect(listener.local_addr().expect("bound"), LONG, None).expect("connected");
        let mut target = Stream::accepted(listener.accept().expect("a peer").0).expect("accepted");
        assert_eq!(target.handshake().expect("open"), Handshake::Done);
        assert_eq!(host.peer().expect("there"), listener.local_addr().expect("bound"));
        let mut byte = [0; 8];
        let nothing = target.receive(&mut [Room::Bytes(&mut byte)]).expect_err("nothing is there");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(host.send(&[Piece::Bytes(b"abc"), Piece::Bytes(b"de")]).expect("sent"), 5);
        assert!(target.wait(PollFlags::IN, LONG).expect("waited"));
        assert_eq!(target.receive(&mut [Room::Bytes(&mut byte)]).expect("received"), 5);
        assert_eq!(&byte[..5], b"abcde");
        host.finish();
        assert!(target.wait(PollFlags::IN, LONG).expect("waited"));
        assert_eq!(target.receive(&mut [Room::Bytes(&mut byte)]).expect("the end"), 0);
        assert!(!host.is_secure() && host.tls_identity().is_none() && !host.has_buffered());
    }

    #[test]
    fn a_port_that_nobody_listens_at_is_refused() {
        let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
        let refused = Stream::connect(closed, LONG, None).expect_err("nobody listens");
        assert!(refused.to_string().contains("refused"), "{refused}");
    }
}
