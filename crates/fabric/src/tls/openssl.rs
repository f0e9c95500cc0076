//! Sessions of OpenSSL over non-blocking sockets.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, OnceLock};

use openssl::ex_data::Index;
use openssl::ssl::{
    ClientHelloResponse, ErrorCode, Ssl, SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions,
    SslRef, SslSessionCacheMode, SslStream, SslVerifyMode, SslVersion,
};
use unvme_bus::{Piece, Room};

use super::record::{RECORD_BYTES, Record};
use super::{Claimed, external};
use crate::stream::Handshake;
use crate::{FabricError, Hash, TlsPsk};

/// The cipher suites of keys of SHA-256 and SHA-384, as OpenSSL's lists are written.
const CIPHER_SUITES: &str = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384";
/// First bytes of TLS records: Change Cipher Spec, alert, handshake (RFC 8446, 5.1).
const TLS_RECORDS: std::ops::RangeInclusive<u8> = 0x14..=0x16;
/// Most records sent by one call, so that one connection does not keep the others waiting.
const RECORDS_PER_SEND: usize = 16;
/// After so many looks at a silent socket the memory for records is given back. A target's worker looks more
/// often before it leaves a connection to its poller; a busy connection is seldom silent for so long.
const DRY_READS_MAX: u32 = 128;

/// The target's side of TLS: knows the keys of all hosts. Clones share it.
#[derive(Clone)]
pub struct Acceptor(SslContext);

impl Acceptor {
    /// Asks `find` for the key of each identity a host offers; `None` refuses it. Errors:
    /// [`FabricError::Tls`] when OpenSSL cannot be set up.
    pub fn new<F>(find: F) -> Result<Self, FabricError>
    where
        F: Fn(&str) -> Option<TlsPsk> + Send + Sync + 'static,
    {
        let mut context = context(SslMethod::tls_server(), CIPHER_SUITES)?;
        let index = identity_index()?;
        let find = Arc::new(find);
        let known = Arc::clone(&find);
        // OpenSSL decides on the cipher suite before it asks for a key, and passes over a key of another
        // hash function.
        context.set_client_hello_callback(move |ssl, _alert| {
            let hash = external::offered(ssl).and_then(|offered| {
                let mut keys = identities(offered).filter_map(|identity| known(text(identity)?));
                keys.next().map(|psk| psk.hash())
            });
            if let Some(hash) = hash {
                ssl.set_ciphersuites(suite(hash).0)?;
            }
            Ok(ClientHelloResponse::SUCCESS)
        });
        let asked = external::find(&mut context, move |ssl, identity| {
            let identity = text(identity)?;
            let psk = find(identity);
            // The binder of the handshake proves afterwards that the host has the key.
            ssl.set_ex_data(index, Claimed { identity: identity.to_owned(), is_known: psk.is_some() });
            psk.map(|psk| (psk.clone(), suite(psk.hash()).1))
        });
        asked.map_err(|error| failed("set TLS up", &error))?;
        Ok(Self(context.build()))
    }
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Acceptor")
    }
}

/// One end of a connection.
pub(crate) struct Session {
    stream: SslStream<Wire>,
    is_open: bool,
    is_host: bool,
    /// Decrypted, and not yet received by the caller.
    received: Record,
    /// How often in a row there was nothing to receive.
    dry_reads: u32,
    /// OpenSSL may hold bytes of the socket: it has not said yet that it needs more.
    may_hold: bool,
    /// What OpenSSL has begun to send and wants to be offered again.
    unsent: Record,
}

impl Session {
    pub(crate) fn connect(socket: TcpStream, psk: &TlsPsk) -> Result<Self, FabricError> {
        let (name, suite) = suite(psk.hash());
        let mut context = context(SslMethod::tls_client(), name)?;
        // There is no authority: a target that shows a certificate instead of using the key is refused.
        context.set_verify(SslVerifyMode::PEER);
        identity_index()?;
        let offer = external::Offer { psk: psk.clone(), suite, used: note_used };
        external::offer(&mut context, offer).map_err(|error| failed("set TLS up", &error))?;
        Self::new(&context.build(), socket, true)
    }

    pub(crate) fn accept(socket: TcpStream, acceptor: &Acceptor) -> Result<Self, FabricError> {
        Self::new(&acceptor.0, socket, false)
    }

    fn new(context: &SslContext, socket: TcpStream, is_host: bool) -> Result<Self, FabricError> {
        let mut ssl = Ssl::new(context).map_err(|error| failed("set TLS up", &error))?;
        if is_host {
            ssl.set_connect_state();
        } else {
            ssl.set_accept_state();
        }
        let stream = SslStream::new(ssl, Wire { socket, first: None })
            .map_err(|error| failed("set TLS up", &error))?;
        let (received, unsent) = (Record::default(), Record::default());
        Ok(Self { stream, is_open: false, is_host, received, dry_reads: 0, may_hold: true, unsent })
    }

    pub(crate) fn handshake(&mut self) -> Result<Handshake, FabricError> {
        if self.is_open {
            return Ok(Handshake::Done);
        }
        match self.stream.do_handshake() {
            Ok(()) => {}
            Err(error) if error.code() == ErrorCode::WANT_READ => return Ok(Handshake::WantsRead),
            Err(error) if error.code() == ErrorCode::WANT_WRITE => return Ok(Handshake::WantsWrite),
            Err(error) => return Err(self.handshake_failed(&error)),
        }
        // A peer that proves itself by anything but the key has not proven anything.
        let ssl = self.stream.ssl();
        if ssl.peer_certificate().is_some() || !ssl.session_reused() || known_of(ssl).is_none() {
            let reason = "the other side did not use the key".to_owned();
            return Err(FabricError::Tls { what: "TLS handshake".into(), reason });
        }
        self.is_open = true;
        Ok(Handshake::Done)
    }

    /// Why there is no handshake. A host is told what its target seems to be, which OpenSSL does not say.
    fn handshake_failed(&self, error: &openssl::ssl::Error) -> FabricError {
        let reason = match self.stream.get_ref().first {
            _ if !self.is_host => error.to_string(),
            None => "it closed the connection without an answer: it may not speak TLS, or refuse the key. \
                     Does it want hosts to come without a TLS key?"
                .to_owned(),
            Some(first) if !TLS_RECORDS.contains(&first) => {
                "it answered without TLS: it is to be reached without a TLS key".to_owned()
            }
            Some(_) => format!("it speaks TLS and does not take the key of this host ({error})"),
        };
        FabricError::Tls { what: "TLS handshake".into(), reason }
    }

    pub(crate) fn send(&mut self, pieces: &[Piece<'_>]) -> io::Result<usize> {
        let mut sent = 0;
        for _ in 0..RECORDS_PER_SEND {
            if self.unsent.is_empty() {
                gather(pieces, sent, &mut self.unsent);
            }
            if self.unsent.is_empty() {
                break;
            }
            match self.stream.ssl_write(self.unsent.rest()) {
                Ok(bytes) => {
                    sent += bytes;
                    self.unsent.fill(0);
                }
                Err(error) => return finished(sent, error),
            }
        }
        Ok(sent)
    }

    pub(crate) fn receive(&mut self, rooms: &mut [Room<'_>]) -> io::Result<usize> {
        assert!(rooms.iter().any(|room| !room.is_empty()), "no room to receive into");
        let mut done = 0;
        for room in rooms {
            let mut at = 0;
            while at < room.len() {
                if self.received.is_empty() {
                    match self.decrypt() {
                        Ok(true) => {}
                        Ok(false) => return Ok(done),
                        Err(error) => return finished(done, error),
                    }
                }
                let count = room.copy_from(at, self.received.rest());
                self.received.take(count);
                (at, done) = (at + count, done + count);
            }
        }
        Ok(done)
    }

    /// Fills `received` with the next record; false at the end of the stream.
    fn decrypt(&mut self) -> Result<bool, openssl::ssl::Error> {
        // A silent connection is looked at without memory for a record.
        let is_silent = self.dry_reads >= DRY_READS_MAX;
        let mut first = [0];
        let room = if is_silent { &mut first } else { self.received.room() };
        match self.stream.ssl_read(room) {
            Ok(bytes) => {
                if is_silent {
                    self.received.room()[..1].copy_from_slice(&first);
                }
                self.received.fill(bytes);
                (self.may_hold, self.dry_reads) = (true, 0);
                Ok(bytes > 0)
            }
            Err(error) => {
                // It has to send something first, an answer of TLS's own, and then reads what it holds.
                self.may_hold = error.code() == ErrorCode::WANT_WRITE;
                self.dry_reads = self.dry_reads.saturating_add(1);
                if self.dry_reads >= DRY_READS_MAX {
                    self.received.release();
                    self.unsent.release();
                }
                if error.code() == ErrorCode::ZERO_RETURN { Ok(false) } else { Err(error) }
            }
        }
    }

    pub(crate) fn has_buffered(&self) -> bool {
        !self.received.is_empty() || self.may_hold
    }

    pub(crate) fn identity(&self) -> Option<&str> {
        self.is_open.then(|| known_of(self.stream.ssl())).flatten()
    }

    /// Identity of the key that the host says it has.
    pub(crate) fn claimed(&self) -> Option<&Claimed> {
        if self.is_host { None } else { claimed_of(self.stream.ssl()) }
    }

    pub(crate) fn finish(&mut self) {
        if let Err(error) = self.stream.shutdown() {
            tracing::debug!(%error, is_host = self.is_host, "shut TLS down");
        }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.stream.get_ref().socket
    }
}

/// The socket, and the first byte that it has brought: it says whether the other side speaks TLS at all.
struct Wire {
    socket: TcpStream,
    first: Option<u8>,
}

impl Read for Wire {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = self.socket.read(room)?;
        if self.first.is_none() && count > 0 {
            self.first = room.first().copied();
        }
        Ok(count)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// What both sides have in common.
fn context(method: SslMethod, suites: &str) -> Result<SslContextBuilder, FabricError> {
    let build = || {
        let mut context = SslContext::builder(method)?;
        context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
        context.set_ciphersuites(suites)?;
        context.set_mode(SslMode::ENABLE_PARTIAL_WRITE | SslMode::ACCEPT_MOVING_WRITE_BUFFER);
        context.set_mode(SslMode::RELEASE_BUFFERS);
        // A record, or several small ones, by one system call, and not each header and body by one of their
        // own.
        context.set_read_ahead(true);
        context.set_options(SslOptions::NO_TICKET | SslOptions::NO_RENEGOTIATION);
        context.set_num_tickets(0)?;
        context.set_session_cache_mode(SslSessionCacheMode::OFF);
        Ok(context)
    };
    build().map_err(|error: openssl::error::ErrorStack| failed("set TLS up", &error))
}

fn claimed_of(ssl: &SslRef) -> Option<&Claimed> {
    ssl.ex_data(identity_index().ok()?)
}

/// Identity of the key that both sides have.
fn known_of(ssl: &SslRef) -> Option<&str> {
    claimed_of(ssl).filter(|claimed| claimed.is_known).map(|claimed| claimed.identity.as_str())
}

/// Where a connection keeps the identity of its key.
fn identity_index() -> Result<Index<Ssl, Claimed>, FabricError> {
    static INDEX: OnceLock<Result<Index<Ssl, Claimed>, String>> = OnceLock::new();
    INDEX
        .get_or_init(|| Ssl::new_ex_index().map_err(|error| error.to_string()))
        .clone()
        .map_err(|reason| FabricError::Tls { what: "set TLS up".into(), reason })
}

/// A connection of a host uses its key.
fn note_used(ssl: &mut SslRef, psk: &TlsPsk) {
    if let Ok(index) = identity_index() {
        ssl.set_ex_data(index, Claimed { identity: psk.identity().to_owned(), is_known: true });
    }
}

/// The cipher suite of keys of a hash function: its name, and its number (RFC 8446, B.4).
fn suite(hash: Hash) -> (&'static str, [u8; 2]) {
    match hash {
        // No key of TLS is of SHA-512.
        Hash::Sha256 | Hash::Sha512 => ("TLS_AES_128_GCM_SHA256", [0x13, 0x01]),
        Hash::Sha384 => ("TLS_AES_256_GCM_SHA384", [0x13, 0x02]),
    }
}

fn text(identity: &[u8]) -> Option<&str> {
    std::str::from_utf8(identity).ok()
}

/// The identities in the extension of a host's first message: their bytes in 16 bits, and then for each its
/// bytes in 16 bits, itself, and 32 bits of its age (RFC 8446, 4.2.11).
fn identities(extension: &[u8]) -> impl Iterator<Item = &[u8]> {
    let list = counted(extension).map_or(&[][..], |(list, _)| list);
    let mut rest = list;
    std::iter::from_fn(move || {
        let (identity, behind) = counted(rest)?;
        rest = behind.get(4..)?;
        Some(identity)
    })
}

/// Bytes that have their number in front of them, and what is behind them.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&count, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(u16::from_be_bytes(count).into())
}

/// The next record's worth of `pieces`, from byte `skip` on.
fn gather(pieces: &[Piece<'_>], mut skip: usize, record: &mut Record) {
    let room = record.room();
    let mut filled = 0;
    for piece in pieces {
        let from = skip.min(piece.len());
        skip -= from;
        filled += piece.skip(from).copy_to(&mut room[filled..]);
        if filled == RECORD_BYTES {
            break;
        }
    }
    record.fill(filled);
}

/// The result of a call that has moved `done` bytes before `error`.
fn finished(done: usize, error: openssl::ssl::Error) -> io::Result<usize> {
    if done > 0 {
        // The error, if it is one, comes again with the next call.
        return Ok(done);
    }
    match error.code() {
        ErrorCode::WANT_READ | ErrorCode::WANT_WRITE => Err(io::ErrorKind::WouldBlock.into()),
        _ => Err(error
            .into_io_error()
            .unwrap_or_else(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error.to_string()))),
    }
}

fn failed(what: &str, error: &dyn std::error::Error) -> FabricError {
    FabricError::Tls { what: what.to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::{Psk, PskVersion};

    /// From libnvme's tests (test/psk.c).
    const KEY: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

    #[test]
    fn identities_are_read_as_far_as_they_are_whole() {
        // Two identities of 2 and 3 bytes with their ages, as in RFC 8446, 4.2.11; binders are behind them.
        let whole = [
            0, 17, 0, 2, b'a', b'b', 0, 0, 0, 0, 0, 3, b'c', b'd', b'e', 1, 2, 3, 4, //
            0, 33, 32,
        ];
        let read = |bytes: &[u8]| identities(bytes).map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(read(&whole), [b"ab".to_vec(), b"cde".to_vec()]);
        for end in 0..19 {
            assert_eq!(read(&whole[..end]), Vec::<Vec<u8>>::new(), "the list is cut after {end} bytes");
        }
        let cut = [0, 12, 0, 2, b'a', b'b', 0, 0, 0, 0, 0, 3, b'c', b'd'];
        assert_eq!(read(&cut), [b"ab".to_vec()]);
        assert_eq!(read(&[0xff; 64]), Vec::<Vec<u8>>::new());
    }

    fn open_pair() -> (Session, Session) {
        let psk = Psk::parse(KEY).expect("a key").tls(PskVersion::V0, "nqn.a", "nqn.b").expect("a TLS key");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
        let mut host = Session::connect(socket, &psk).expect("started");
        let acceptor = Acceptor::new(move |_| Some(psk.clone())).expect("an acceptor");
        let mut target = Session::accept(listener.accept().expect("a peer").0, &acceptor).expect("accepted");
        for socket in [host.socket(), target.socket()] {
            socket.set_nonblocking(true).expect("a mode");
        }
        let mut states = [Handshake::WantsRead; 2];
        while states != [Handshake::Done; 2] {
            states = [host.handshake().expect("host"), target.handshake().expect("target")];
        }
        (host, target)
    }

    #[test]
    fn a_silent_connection_has_no_memory_for_records_and_misses_nothing() {
        let (mut host, mut target) = open_pair();
        let mut back = [0; 16];
        for _ in 0..3 {
            assert_eq!(host.send(&[Piece::Bytes(b"some bytes")]).expect("sent"), 10);
            let mut done = 0;
            while done < 10 {
                done += target.receive(&mut [Room::Bytes(&mut back[done..])]).unwrap_or(0);
            }
            assert_eq!(&back[..10], b"some bytes");
            assert!(target.received.has_memory());
            for _ in 0..=DRY_READS_MAX {
                for end in [&mut host, &mut target] {
                    assert!(end.receive(&mut [Room::Bytes(&mut back)]).is_err());
                }
            }
            for end in [&host, &target] {
                assert!(!end.received.has_memory() && !end.unsent.has_memory() && !end.has_buffered());
            }
        }
    }
}
