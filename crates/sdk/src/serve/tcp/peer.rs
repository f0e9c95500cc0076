//! A host's connection: its socket, and what is known of it until it speaks NVMe/TCP.

use std::fmt;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use unvme_bus::{Clock, EventFd};
use unvme_fabric::{Handshake, Stream};
use unvme_ssd::fabrics::{FabricsQueue, Peer as Who, PortId, Refused, Target};
use unvme_ssd::tcp::{Connection, Ending, Limits};

use super::crowd::Visitor;
use super::poller::Interest;
use super::tls::{Doors, Keyring};

/// A host has this long to begin, and to end the handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A host that is silent for so long is asked by the system whether it is there: hosts need not use the keep
/// alive timer.
const SILENCE: Duration = Duration::from_secs(30);
/// How long the system waits for an answer, and how often it asks: after a minute it is gone.
const SILENCE_ANSWER: Duration = Duration::from_secs(10);
const SILENCE_QUESTIONS: u32 = 3;
/// Said of a host whose TLS key is nobody's here.
const NO_KEY: &str =
    "TLS: there is no key here for the identity it came with: its name, the subsystem or the key differ";
/// Most bytes of a host that are read before it is answered that it speaks the wrong language: a socket that
/// is closed with bytes unread throws the answer away.
const GREETING_BYTES_MAX: usize = 4 << 10;
/// A fatal alert of TLS, Unexpected Message (RFC 8446, 6), for who speaks NVMe/TCP where TLS is spoken alone.
const TLS_ONLY: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 10];
/// A Terminate Request, Invalid PDU Header Field at byte 0 (NVMe/TCP Transport 3.6.2.3), for who speaks TLS
/// where it is not spoken.
const NO_TLS: [u8; 24] = [3, 0, 24, 0, 24, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// First byte of what a host sends that wants TLS: a record of type handshake (RFC 8446, 5.1). The first byte
/// of an ICReq, its PDU type, is 0.
const TLS_HANDSHAKE: u8 = 0x16;

/// Where a host has come in.
#[derive(Clone)]
pub(super) struct Port {
    pub(super) target: Arc<Target>,
    pub(super) id: PortId,
    pub(super) doors: Arc<Doors>,
    pub(super) limits: Limits,
}

/// A socket that was accepted.
pub(super) struct Accepted {
    pub(super) socket: TcpStream,
    pub(super) address: SocketAddr,
    pub(super) port: Arc<Port>,
    pub(super) visitor: Arc<Visitor>,
}

/// A connection, from its first byte to its last.
pub(super) struct Peer {
    stage: Stage,
    /// Of the host.
    address: SocketAddr,
    /// At which the host has come in.
    local: String,
    port: Arc<Port>,
    visitor: Arc<Visitor>,
    /// The others know that its host is no stranger.
    is_admitted: bool,
    /// Until then it has to be open, in nanoseconds of the clock.
    deadline: u64,
    wake: EventFd,
    /// What the poller awaits of it.
    pub(super) interest: Interest,
    /// Turns in a row in which nothing has happened.
    pub(super) quiet: u32,
    /// It is looked at in every round.
    pub(super) is_active: bool,
}

enum Stage {
    /// Its first byte decides whether it is TLS.
    Silent(TcpStream),
    /// In the handshake of TLS, by the keys there were when it began.
    Handshake(Stream, Arc<Keyring>),
    Open {
        stream: Stream,
        connection: Box<Connection>,
    },
    /// To be closed.
    Over,
}

/// What came of looking at a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing was to do.
    Quiet,
    /// Something of an admin queue's, or of a connection that is none yet.
    Worked,
    /// Something of an I/O queue's.
    WorkedOnData,
    /// The connection is over.
    Over,
}

impl Peer {
    /// Takes over a socket. `wake` is signalled when the connection has something to do that its host has not
    /// brought.
    pub(super) fn new(accepted: Accepted, wake: EventFd, now: u64) -> std::io::Result<Self> {
        let Accepted { socket, address, port, visitor } = accepted;
        socket.set_nonblocking(true)?;
        keep_alive(&socket)?;
        let local = socket.local_addr()?.ip().to_canonical().to_string();
        Ok(Self {
            stage: Stage::Silent(socket),
            address,
            local,
            port,
            visitor,
            is_admitted: false,
            deadline: now.saturating_add(HANDSHAKE.as_nanos() as u64),
            wake,
            interest: Interest::INPUT,
            quiet: 0,
            is_active: false,
        })
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.stage {
            Stage::Silent(socket) => Some(socket.as_fd()),
            Stage::Handshake(stream, _) | Stage::Open { stream, .. } => Some(stream.as_fd()),
            Stage::Over => None,
        }
    }

    /// Does what there is to do: receives, runs, sends, each once.
    pub(super) fn turn(&mut self, clock: &Clock) -> Turn {
        match &mut self.stage {
            Stage::Open { stream, connection } => {
                let mut work = connection.receive(|rooms| stream.receive(rooms));
                work += connection.advance(clock);
                work += connection.send(|pieces| stream.send(pieces));
                self.outcome(work)
            }
            _ => self.begin(clock),
        }
    }

    /// Lets the connection look at the clock, and sends what has become ready, without looking for input:
    /// what a connection needs whose host is silent.
    pub(super) fn tend(&mut self, clock: &Clock) -> Turn {
        if self.visitor.has_to_leave() {
            return self.end("there are too many connections, and another one's claim is better");
        }
        match &mut self.stage {
            Stage::Open { stream, connection } => {
                let mut work = connection.advance(clock);
                work += connection.send(|pieces| stream.send(pieces));
                self.outcome(work)
            }
            Stage::Over => Turn::Over,
            _ if clock.now() >= self.deadline => self.refuse("it was silent for too long"),
            _ => Turn::Quiet,
        }
    }

    fn outcome(&mut self, work: usize) -> Turn {
        let Stage::Open { connection, .. } = &self.stage else { return Turn::Over };
        if let Some(ending) = connection.ending() {
            return match ending {
                Ending::Fatal(_) | Ending::Late(_) => {
                    let host = connection.queue().host().map(str::to_owned);
                    self.refuse_as(host.as_deref(), &ending)
                }
                _ if connection.queue().awaits_proof() => {
                    let host = connection.queue().host().map(str::to_owned);
                    self.refuse_as(host.as_deref(), &"it has to authenticate, and has gone without")
                }
                _ => self.end(&ending.to_string()),
            };
        }
        if !self.is_admitted && connection.queue().is_admitted() {
            self.is_admitted = true;
            self.visitor.admit();
        }
        match work {
            0 => Turn::Quiet,
            _ if connection.queue().queue_id().is_some_and(|qid| qid > 0) => Turn::WorkedOnData,
            _ => Turn::Worked,
        }
    }

    fn end(&mut self, reason: &str) -> Turn {
        tracing::debug!(host = %self.address, reason, "a connection has ended");
        if let Stage::Open { stream, .. } = &mut self.stage {
            stream.finish();
        }
        self.stage = Stage::Over;
        Turn::Over
    }

    /// Closes a connection that the host has not closed, and says why.
    fn refuse(&mut self, why: &str) -> Turn {
        self.refuse_as(None, &why)
    }

    /// The same of one whose host has said who it is.
    fn refuse_as(&mut self, host: Option<&str>, why: &dyn fmt::Display) -> Turn {
        let peer = &self.address.to_string();
        self.port.target.refusals().tell(&Refused { peer, host, ..Refused::of(why) });
        self.end(&why.to_string())
    }

    /// Goes on with a connection that is not open yet.
    fn begin(&mut self, clock: &Clock) -> Turn {
        if clock.now() >= self.deadline {
            return self.refuse("it was silent for too long");
        }
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Silent(socket) => self.listen(socket),
            Stage::Handshake(stream, keyring) => self.handshake(stream, keyring),
            Stage::Open { .. } | Stage::Over => Turn::Over,
        }
    }

    /// Looks at the first byte.
    fn listen(&mut self, socket: TcpStream) -> Turn {
        let mut first = [0];
        match socket.peek(&mut first) {
            Ok(0) => return self.end("closed by the host"),
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                self.stage = Stage::Silent(socket);
                return Turn::Quiet;
            }
            Err(e) => return self.end(&e.to_string()),
        }
        let keyring = self.port.doors.keyring();
        let stream = match (&keyring.acceptor, first) {
            (Some(acceptor), [TLS_HANDSHAKE]) => Stream::accepted_tls(socket, acceptor),
            (None, [TLS_HANDSHAKE]) => {
                answer(socket, &NO_TLS);
                return self.refuse(
                    "it wants TLS, and no host has a TLS key here: name one in the access file, or let it come without",
                );
            }
            _ if keyring.requires_tls => {
                answer(socket, &TLS_ONLY);
                return self
                    .refuse("it came without TLS, and all hosts have TLS keys here: it has to use its own");
            }
            _ => Stream::accepted(socket),
        };
        match stream {
            Ok(stream) => self.handshake(stream, keyring),
            Err(e) => self.end(&e.to_string()),
        }
    }

    fn handshake(&mut self, mut stream: Stream, keyring: Arc<Keyring>) -> Turn {
        match stream.handshake() {
            Ok(Handshake::Done) => {
                let tls = stream.tls_identity().and_then(|identity| keyring.peer_of(identity));
                if stream.is_secure() && tls.is_none() {
                    return self.refuse("the identity of its TLS key does not say who it is");
                }
                let who = Who { address: self.address.to_string(), local: self.local.clone(), tls };
                let mut queue = FabricsQueue::new(&self.port.target, self.port.id, who);
                queue.set_wake(self.wake.clone());
                let connection = Box::new(Connection::new(queue, self.port.limits));
                self.stage = Stage::Open { stream, connection };
                Turn::Worked
            }
            Ok(_) => {
                self.stage = Stage::Handshake(stream, keyring);
                Turn::Quiet
            }
            Err(e) => {
                // Nobody sees why it fails but here: a host that has no key, or an outdated one, is only hung
                // up on.
                let Some(claimed) = stream.claimed_identity() else { return self.refuse_as(None, &e) };
                let host = keyring.peer_of(&claimed.identity).map(|peer| peer.hostnqn);
                match claimed.is_known {
                    true => self.refuse_as(host.as_deref(), &e),
                    false => self.refuse_as(host.as_deref(), &NO_KEY),
                }
            }
        }
    }

    /// What the poller has to await before the worker sleeps.
    pub(super) fn wanted(&self) -> Interest {
        match &self.stage {
            Stage::Open { connection, .. } => {
                Interest { input: connection.wants_input(), output: connection.wants_output() }
            }
            _ => Interest::INPUT,
        }
    }

    /// Bytes wait in this process that the poller does not see.
    pub(super) fn has_buffered(&self) -> bool {
        match &self.stage {
            Stage::Open { stream, connection } => stream.has_buffered() && connection.wants_input(),
            _ => false,
        }
    }

    /// When it is to be looked at again though its host brings nothing.
    pub(super) fn next_event(&self) -> Option<u64> {
        match &self.stage {
            Stage::Open { connection, .. } => connection.next_event(),
            Stage::Over => None,
            _ => Some(self.deadline),
        }
    }

    /// The server ends: no further command begins.
    pub(super) fn drain(&mut self) {
        if let Stage::Open { connection, .. } = &mut self.stage {
            connection.drain();
        }
    }

    /// The server ends: true when the connection may be closed without anything being lost that was begun. An
    /// admin queue takes all others of its association along, so it is the last one.
    pub(super) fn may_end(&self) -> bool {
        match &self.stage {
            Stage::Open { connection, .. } => connection.is_idle() && !connection.queue().has_companions(),
            _ => true,
        }
    }

    /// Takes nothing new; what is ready is sent.
    pub(super) fn stop(&mut self) {
        match &mut self.stage {
            Stage::Open { connection, .. } => connection.stop(),
            _ => self.stage = Stage::Over,
        }
    }
}

/// Tells a host what is spoken here, as far as that can be done at once. The connection is closed.
fn answer(mut socket: TcpStream, words: &[u8]) {
    let mut unread = [0; GREETING_BYTES_MAX];
    let said = socket.read(&mut unread).and_then(|_| socket.write_all(words));
    if let Err(error) = said.and_then(|()| socket.shutdown(Shutdown::Write)) {
        tracing::debug!(%error, "answer a host that speaks another language");
    }
}

/// A host that has gone without a word is found out.
fn keep_alive(socket: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, SILENCE)?;
    sockopt::set_tcp_keepintvl(socket, SILENCE_ANSWER)?;
    sockopt::set_tcp_keepcnt(socket, SILENCE_QUESTIONS)
}

#[cfg(test)]
pub(super) fn accepted_for_tests(socket: TcpStream, address: SocketAddr, keyring: Keyring) -> Accepted {
    let entry = super::crowd::Crowd::new(1).enter(address, 0).expect("room for one");
    Accepted { socket, address, port: port_for_tests(keyring), visitor: entry.visitor }
}

#[cfg(test)]
pub(super) fn port_for_tests(keyring: Keyring) -> Arc<Port> {
    let target = Target::new(unvme_ssd::fabrics::TargetOptions::default());
    let doors = Arc::new(Doors::new(keyring));
    Arc::new(Port { target, id: PortId(1), doors, limits: Limits::default() })
}

#[cfg(test)]
mod silence {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_host_that_is_gone_without_a_word_is_found_out_within_a_minute() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let _host = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
        let (socket, address) = listener.accept().expect("a peer");
        let accepted = accepted_for_tests(socket, address, Keyring::default());
        let peer = Peer::new(accepted, EventFd::new().expect("an eventfd"), 0).expect("a peer");
        let fd = peer.fd().expect("a socket");
        assert!(sockopt::socket_keepalive(fd).expect("SO_KEEPALIVE"));
        let idle = sockopt::tcp_keepidle(fd).expect("TCP_KEEPIDLE");
        let interval = sockopt::tcp_keepintvl(fd).expect("TCP_KEEPINTVL");
        let count = sockopt::tcp_keepcnt(fd).expect("TCP_KEEPCNT");
        assert_eq!(idle + interval * count, Duration::from_secs(60));
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use std::net::TcpListener;

    use unvme_fabric::{Acceptor, Psk, PskVersion, TlsPsk};

    use super::*;

    /// From libnvme's tests (test/psk.c).
    const KEY: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

    fn key(hostnqn: &str) -> TlsPsk {
        let psk: Psk = KEY.parse().expect("a key");
        psk.tls(PskVersion::V0, hostnqn, "nqn.subsystem").expect("a TLS key")
    }

    /// How the server ends the handshake with a host that has the key of `hostnqn`; false when it hangs up.
    fn enters(hostnqn: &'static str) -> bool {
        let acceptor = Acceptor::new(move |_| Some(key(hostnqn))).expect("an acceptor");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("bound");
        let host = std::thread::spawn(move || Stream::connect(at, HANDSHAKE, Some(&key(hostnqn))));
        let (socket, address) = listener.accept().expect("a peer");
        let keyring = Keyring { acceptor: Some(acceptor), ..Keyring::default() };
        let accepted = accepted_for_tests(socket, address, keyring);
        let (wake, clock) = (EventFd::new().expect("an eventfd"), Clock::wall());
        let mut peer = Peer::new(accepted, wake, clock.now()).expect("a peer");
        while !matches!(peer.stage, Stage::Open { .. } | Stage::Over) {
            peer.turn(&clock);
        }
        host.join().expect("no panic").expect("the handshake itself is right");
        matches!(peer.stage, Stage::Open { .. })
    }

    #[test]
    fn a_tls_key_that_does_not_say_whose_it_is_opens_nothing() {
        assert!(enters("nqn.host"));
        assert!(!enters(""), "its name is `NVMe0R01  nqn.subsystem`");
    }
}
