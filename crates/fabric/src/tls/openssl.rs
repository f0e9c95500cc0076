//! Sessions of OpenSSL over non-blocking sockets.

use std::io;
use std::net::TcpStream;
use std::sync::OnceLock;

use openssl::ex_data::Index;
use openssl::ssl::{
    ErrorCode, Ssl, SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions, SslRef,
    SslSessionCacheMode, SslStream, SslVerifyMode, SslVersion,
};
use unvme_bus::{Piece, Room};

use super::IDENTITY_BYTES_MAX;
use super::record::{RECORD_BYTES, Record};
use crate::stream::Handshake;
use crate::{FabricError, Hash, TlsPsk};

/// The cipher suite that every implementation of NVMe/TCP with TLS has.
const CIPHER_SUITE: &str = "TLS_AES_128_GCM_SHA256";
/// Most records sent by one call, so that one connection does not keep the others waiting.
const RECORDS_PER_SEND: usize = 16;
/// After so many looks at a silent socket the memory for records is given back. A target's worker looks more
/// often before it leaves a connection to its poller; a busy connection is seldom silent for so long.
const DRY_READS_MAX: u32 = 128;

/// The target's side of TLS: knows the keys of all hosts. Clones share it.
#[derive(Clone)]
pub struct Acceptor(SslContext);

impl Acceptor {
    /// Asks `find` for the key of each identity a host offers; `None` refuses it. Keys that are not of
    /// SHA-256 are passed over: OpenSSL's callback for such keys knows no other. Errors: [`FabricError::Tls`]
    /// when OpenSSL cannot be set up.
    pub fn new<F>(find: F) -> Result<Self, FabricError>
    where
        F: Fn(&str) -> Option<TlsPsk> + Send + Sync + 'static,
    {
        let mut context = context(SslMethod::tls_server())?;
        let index = identity_index()?;
        context.set_psk_server_callback(move |ssl, identity, target| {
            let Some(identity) = identity.and_then(|bytes| std::str::from_utf8(bytes).ok()) else {
                return Ok(0);
            };
            let Some(psk) = find(identity).filter(|psk| psk.hash() == Hash::Sha256) else {
                tracing::debug!(identity, "no TLS key for this identity");
                return Ok(0);
            };
            // The binder of the handshake proves afterwards that the host has the key.
            ssl.set_ex_data(index, identity.to_owned());
            Ok(put(psk.key(), target))
        });
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
    stream: SslStream<TcpStream>,
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
        const WHAT: &str = "use a TLS key";
        if psk.hash() != Hash::Sha256 {
            let reason =
                "its hash is SHA-384, and this TLS takes keys of SHA-256 (identity NVMe0R01 or NVMe1R01)";
            return Err(FabricError::Tls { what: WHAT.into(), reason: reason.into() });
        }
        if psk.identity().len() > IDENTITY_BYTES_MAX {
            let reason = format!(
                "the names of host and subsystem are too long: its identity has {} bytes, {IDENTITY_BYTES_MAX} can be used",
                psk.identity().len()
            );
            return Err(FabricError::Tls { what: WHAT.into(), reason });
        }
        let mut context = context(SslMethod::tls_client())?;
        // There is no authority: a target that shows a certificate instead of using the key is refused.
        context.set_verify(SslVerifyMode::PEER);
        let (index, psk) = (identity_index()?, psk.clone());
        context.set_psk_client_callback(move |ssl, _hint, identity, target| {
            ssl.set_ex_data(index, psk.identity().to_owned());
            put(psk.identity().as_bytes(), identity);
            if let Some(end) = identity.get_mut(psk.identity().len()) {
                *end = 0;
            }
            Ok(put(psk.key(), target))
        });
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
        let stream = SslStream::new(ssl, socket).map_err(|error| failed("set TLS up", &error))?;
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
            Err(error) => return Err(failed("TLS handshake", &error)),
        }
        // A peer that proves itself by anything but the key has not proven anything.
        let ssl = self.stream.ssl();
        if ssl.peer_certificate().is_some() || !ssl.session_reused() || self.identity_of(ssl).is_none() {
            let reason = "the other side did not use the key".to_owned();
            return Err(FabricError::Tls { what: "TLS handshake".into(), reason });
        }
        self.is_open = true;
        Ok(Handshake::Done)
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
        self.is_open.then(|| self.identity_of(self.stream.ssl())).flatten()
    }

    fn identity_of<'a>(&self, ssl: &'a SslRef) -> Option<&'a str> {
        let index = identity_index().ok()?;
        ssl.ex_data(index).map(String::as_str)
    }

    pub(crate) fn finish(&mut self) {
        if let Err(error) = self.stream.shutdown() {
            tracing::debug!(%error, is_host = self.is_host, "shut TLS down");
        }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }
}

/// What both sides have in common.
fn context(method: SslMethod) -> Result<SslContextBuilder, FabricError> {
    let build = || {
        let mut context = SslContext::builder(method)?;
        context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
        context.set_ciphersuites(CIPHER_SUITE)?;
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

/// Where a connection keeps the identity of its key.
fn identity_index() -> Result<Index<Ssl, String>, FabricError> {
    static INDEX: OnceLock<Result<Index<Ssl, String>, String>> = OnceLock::new();
    INDEX
        .get_or_init(|| Ssl::new_ex_index().map_err(|error| error.to_string()))
        .clone()
        .map_err(|reason| FabricError::Tls { what: "set TLS up".into(), reason })
}

/// Copies `bytes` to the start of `target`; their number, 0 when they do not fit.
fn put(bytes: &[u8], target: &mut [u8]) -> usize {
    match target.get_mut(..bytes.len()) {
        Some(start) => {
            start.copy_from_slice(bytes);
            bytes.len()
        }
        None => 0,
    }
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
