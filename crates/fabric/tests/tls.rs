//! TLS 1.3 with pre-shared keys: both ends of this crate with each other, and each with the `openssl`
//! program.
#![cfg(feature = "tls")]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use unvme_bus::{Piece, Region, Room};
use unvme_fabric::{Acceptor, FabricError, Handshake, Hash, Psk, PskVersion, Stream, TlsPsk};

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
const SUBSYSTEM: &str = "nqn.2014-08.org.example:kv";
const LONG: Duration = Duration::from_secs(20);
/// `NVMeTLSkey-1:00:`: used as it is.
const KEY: &str = "NVMeTLSkey-1:00:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
/// What TLS uses of [`KEY`] with identity version 0 between [`HOST`] and [`SUBSYSTEM`]: computed by the HKDF
/// of `openssl kdf`.
const TLS_KEY: &str = "fd605df1cb7e651d55bb365c1d8429cb642944d96cabce9687aa0e55629eacbf";

fn psk() -> TlsPsk {
    Psk::parse(KEY).expect("a key").tls(PskVersion::V0, HOST, SUBSYSTEM).expect("a TLS key")
}

fn acceptor() -> Acceptor {
    Acceptor::new(|identity| Some(psk()).filter(|psk| psk.identity() == identity)).expect("an acceptor")
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

/// Goes on with one end until it is open or has failed.
fn opened(stream: &mut Stream) -> Result<(), FabricError> {
    let until = Instant::now() + LONG;
    loop {
        match stream.handshake() {
            Ok(Handshake::Done) => return Ok(()),
            Ok(_) if Instant::now() < until => std::thread::yield_now(),
            Ok(step) => panic!("{step:?}"),
            Err(error) => return Err(error),
        }
    }
}

/// Goes on with both ends until each is open or has failed.
fn shake(host: &mut Stream, target: &mut Stream) -> [Result<(), FabricError>; 2] {
    let mut results = [None, None];
    let until = Instant::now() + LONG;
    while results.iter().any(Option::is_none) && Instant::now() < until {
        for (stream, result) in [&mut *host, &mut *target].into_iter().zip(&mut results) {
            if result.is_none() {
                *result = match stream.handshake() {
                    Ok(Handshake::Done) => Some(Ok(())),
                    Ok(_) => None,
                    Err(error) => Some(Err(error)),
                };
            }
        }
    }
    results.map(|result| result.unwrap_or_else(|| panic!("a handshake that never ends")))
}

fn pair(psk: &TlsPsk, acceptor: &Acceptor) -> (Stream, Stream) {
    let (listener, address) = listener();
    let host = Stream::start(address, Some(psk)).expect("started");
    let target = Stream::accepted_tls(listener.accept().expect("a peer").0, acceptor).expect("accepted");
    (host, target)
}

fn open_pair() -> (Stream, Stream) {
    let (mut host, mut target) = pair(&psk(), &acceptor());
    for result in shake(&mut host, &mut target) {
        result.expect("open");
    }
    (host, target)
}

/// Repeats what would block.
fn patiently<T>(mut step: impl FnMut() -> io::Result<T>) -> T {
    let until = Instant::now() + LONG;
    loop {
        match step() {
            Ok(value) => return value,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                std::thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn both_ends_with_the_key_exchange_more_than_the_sockets_hold() {
    let (mut host, mut target) = open_pair();
    assert_eq!(target.tls_identity(), Some(psk().identity()));
    assert_eq!(host.tls_identity(), Some(psk().identity()));
    assert!(host.is_secure() && target.is_secure());
    const BYTES: usize = 8 << 20;
    let (from, to) = (Region::anonymous(BYTES).expect("memory"), Region::anonymous(BYTES).expect("memory"));
    let pattern: Vec<u8> = (0..BYTES).map(|i| (i * 31 % 253) as u8).collect();
    from.write(0, &pattern);
    let (mut sent, mut received) = (0, 0);
    let mut head = [0; 5];
    let mut has_blocked = false;
    assert_eq!(patiently(|| host.send(&[Piece::Bytes(b"head"), Piece::Bytes(b"!")])), 5);
    assert_eq!(patiently(|| target.receive(&mut [Room::Bytes(&mut head)])), 5);
    assert_eq!(&head, b"head!");
    while received < BYTES {
        // All of the rest, in pieces of which the first is always where the last call stopped.
        let rest = Piece::Memory { region: &from, offset: sent, bytes: BYTES - sent };
        match host.send(&[rest]) {
            Ok(bytes) => sent += bytes,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                has_blocked = true;
                // The reader begins when the sockets are full.
                let bytes = (BYTES - received).min(100_000);
                received += patiently(|| {
                    target.receive(&mut [Room::Memory { region: &to, offset: received, bytes }])
                });
            }
        }
        if sent == BYTES {
            let bytes = BYTES - received;
            received +=
                patiently(|| target.receive(&mut [Room::Memory { region: &to, offset: received, bytes }]));
        }
    }
    assert!(has_blocked, "8 MiB were to be more than the sockets hold");
    let mut back = vec![0; BYTES];
    to.read(0, &mut back);
    assert!(back == pattern);
}

#[test]
fn a_target_that_never_answers_is_given_up_in_time() {
    // The system accepts the connection; nobody does the handshake.
    let (_listener, address) = listener();
    let started = Instant::now();
    let error =
        Stream::connect(address, Duration::from_millis(50), Some(&psk())).expect_err("nobody answers");
    assert!(matches!(error, FabricError::Timeout { milliseconds: 50, .. }), "{error}");
    assert!(started.elapsed() < LONG);
}

#[test]
fn what_is_decrypted_and_not_received_yet_is_announced() {
    let (mut host, mut target) = open_pair();
    let mut part = [0; 4];
    let nothing = target.receive(&mut [Room::Bytes(&mut part)]).expect_err("nothing is there");
    assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    assert!(!target.has_buffered());
    assert_eq!(patiently(|| host.send(&[Piece::Bytes(b"one record")])), 10);
    assert_eq!(patiently(|| target.receive(&mut [Room::Bytes(&mut part)])), 4);
    assert!(target.has_buffered());
    let (mut first, mut second) = ([0; 4], [0; 9]);
    let mut rooms = [Room::Bytes(&mut first), Room::Bytes(&mut []), Room::Bytes(&mut second)];
    assert_eq!(target.receive(&mut rooms).expect("it is there"), 6);
    assert_eq!((&first, &second[..2]), (b"reco", &b"rd"[..]));
    assert!(!target.has_buffered());
    host.finish();
    assert_eq!(patiently(|| target.receive(&mut [Room::Bytes(&mut part)])), 0, "the end of the stream");
}

#[test]
fn a_connection_that_is_cut_is_an_error_and_no_end_of_the_stream() {
    let (host, mut target) = open_pair();
    drop(host);
    let mut byte = [0];
    let error = loop {
        match target.receive(&mut [Room::Bytes(&mut byte)]) {
            Ok(bytes) => panic!("{bytes} bytes"),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert_ne!(error.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn a_host_with_another_key_or_name_stays_outside() {
    let other = Psk::generate(None).expect("random numbers");
    let same_name = other.tls(PskVersion::V0, HOST, SUBSYSTEM).expect("a TLS key");
    let unknown = other.tls(PskVersion::V0, "nqn.2014-08.org.example:other", SUBSYSTEM).expect("a TLS key");
    for psk in [same_name, unknown] {
        let (mut host, mut target) = pair(&psk, &acceptor());
        let [at_host, at_target] = shake(&mut host, &mut target);
        assert!(matches!(at_target, Err(FabricError::Tls { .. })), "{at_target:?}");
        assert!(matches!(at_host, Err(FabricError::Tls { .. })), "{at_host:?}");
        assert_eq!(target.tls_identity(), None);
        let mut byte = [0];
        assert!(target.receive(&mut [Room::Bytes(&mut byte)]).is_err());
    }
}

#[test]
fn a_plain_connection_to_a_target_with_tls_is_refused_and_a_silent_one_waits_without_blocking() {
    let (listener, address) = listener();
    let mut plain = TcpStream::connect(address).expect("connected");
    let mut target =
        Stream::accepted_tls(listener.accept().expect("a peer").0, &acceptor()).expect("accepted");
    let began = Instant::now();
    for _ in 0..100 {
        assert_eq!(target.handshake().expect("nothing yet"), Handshake::WantsRead);
    }
    assert!(began.elapsed() < LONG);
    // An Initialize Connection Request of NVMe/TCP.
    plain.write_all(&[[0, 0, 128, 0, 128, 0, 0, 0].as_slice(), &[0; 120]].concat()).expect("sent");
    let error = loop {
        match target.handshake() {
            Ok(_) if began.elapsed() < LONG => std::thread::yield_now(),
            Ok(step) => panic!("{step:?}"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, FabricError::Tls { .. }), "{error}");
}

#[test]
fn the_longest_names_that_there_are_have_a_key() {
    let (host_name, subsystem) = ("h".repeat(223), "s".repeat(223));
    let psk = Psk::generate(Some(Hash::Sha256)).expect("random numbers");
    let psk = psk.tls(PskVersion::V1, &host_name, &subsystem).expect("a TLS key");
    let key = psk.clone();
    let acceptor = Acceptor::new(move |identity| Some(key.clone()).filter(|key| key.identity() == identity));
    let (mut host, mut target) = pair(&psk, &acceptor.expect("an acceptor"));
    for result in shake(&mut host, &mut target) {
        result.expect("open");
    }
    assert_eq!(target.tls_identity(), Some(psk.identity()));
}

#[test]
fn keys_of_both_hash_functions_open_the_doors_of_one_target_and_neither_the_others() {
    let keys: Vec<TlsPsk> = [Hash::Sha256, Hash::Sha384]
        .into_iter()
        .flat_map(|hash| {
            let psk = Psk::generate(Some(hash)).expect("random numbers");
            [PskVersion::V0, PskVersion::V1]
                .map(|version| psk.tls(version, HOST, SUBSYSTEM).expect("a TLS key"))
        })
        .collect();
    let ring = keys.clone();
    let acceptor = Acceptor::new(move |identity| ring.iter().find(|key| key.identity() == identity).cloned())
        .expect("an acceptor");
    for key in &keys {
        let (mut host, mut target) = pair(key, &acceptor);
        for result in shake(&mut host, &mut target) {
            result.expect("open");
        }
        assert_eq!(target.tls_identity(), Some(key.identity()));
        assert_eq!(patiently(|| host.send(&[Piece::Bytes(b"hello")])), 5);
        let mut word = [0; 5];
        assert_eq!(patiently(|| target.receive(&mut [Room::Bytes(&mut word)])), 5);
        assert_eq!(&word, b"hello");
    }
    // Another key by the same name.
    let other = Psk::generate(Some(Hash::Sha384)).expect("random numbers");
    let (mut host, mut target) = pair(&other.tls(PskVersion::V0, HOST, SUBSYSTEM).expect("a key"), &acceptor);
    for result in shake(&mut host, &mut target) {
        assert!(matches!(result, Err(FabricError::Tls { .. })), "{result:?}");
    }
}

/// A key of SHA-384 from the unit tests of the Linux kernel (drivers/nvme/common/tests/auth_kunit.c), and
/// what the kernel makes of it for TLS between `hostnqn` and `subsysnqn`.
const LONG_KEY: &str =
    "NVMeTLSkey-1:00:8Ust0yNMRZaU07xj+JaL1rN8LG3oSeIuEYdJABzku+hkC546dIyxHOSx1x01nM45CD5VHQ==:";
const LONG_TLS_KEY: &str =
    "2774753233537b3fa50eb7d16a8e43457d85f4906c005b2236616c5d80939d0898fff15bb8b77119d2be0aac423e7590";

fn long_psk() -> TlsPsk {
    Psk::parse(LONG_KEY).expect("a key").tls(PskVersion::V1, "hostnqn", "subsysnqn").expect("a TLS key")
}

/// The file by which the `openssl` program is told of a key of SHA-384: a session with cipher suite 1302h.
fn session_file(folder: &std::path::Path, key: &str) -> String {
    let der = folder.join("session.der");
    let key: Vec<u8> = (0..key.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&key[at..at + 2], 16).expect("digits"))
        .collect();
    // A sequence of version 1, TLS version 0304h, the cipher suite, no identifier, and the key.
    let mut bytes = vec![0x30, 0x3f, 2, 1, 1, 2, 2, 3, 4, 4, 2, 0x13, 0x02, 4, 0, 4, 48];
    bytes.extend(key);
    std::fs::write(&der, bytes).expect("written");
    let pem = folder.join("session.pem").to_str().expect("text").to_owned();
    let made = Command::new("openssl")
        .args(["sess_id", "-inform", "DER", "-in", der.to_str().expect("text"), "-out", &pem])
        .stdout(Stdio::null())
        .status()
        .expect("the openssl program");
    assert!(made.success());
    pem
}

#[test]
fn openssl_comes_and_is_reached_by_a_key_of_sha_384() {
    let folder = tempfile::tempdir().expect("a folder");
    let psk = long_psk();
    let acceptor = Acceptor::new(|identity| Some(long_psk()).filter(|psk| psk.identity() == identity));
    let acceptor = acceptor.expect("an acceptor");
    let (listener, address) = listener();
    for (key, is_right) in [(LONG_TLS_KEY, true), (&LONG_TLS_KEY.replace('3', "4"), false)] {
        let (port, file) = (address.to_string(), session_file(folder.path(), key));
        // Both suites: the target has to choose that of the key.
        let suites = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384";
        let identity = psk.identity();
        let _client = Program::new(&[
            "s_client",
            "-connect",
            &port,
            "-tls1_3",
            "-psk_identity",
            identity,
            "-psk_session",
            &file,
            "-ciphersuites",
            suites,
            "-quiet",
        ]);
        let mut target =
            Stream::accepted_tls(listener.accept().expect("a peer").0, &acceptor).expect("accepted");
        let result = opened(&mut target);
        assert_eq!(result.is_ok(), is_right, "{result:?}");
        // And the other way round.
        let mut server = Program::new(&[
            "s_server",
            "-accept",
            "127.0.0.1:0",
            "-tls1_3",
            "-nocert",
            "-psk_identity",
            identity,
            "-psk_session",
            &file,
            "-ciphersuites",
            "TLS_AES_256_GCM_SHA384",
        ]);
        let mut output = BufReader::new(server.0.stdout.take().expect("piped"));
        let address = loop {
            let mut line = String::new();
            assert!(output.read_line(&mut line).expect("read") > 0, "it says where it is");
            if let Some(rest) = line.strip_prefix("ACCEPT ") {
                break rest.trim().parse::<SocketAddr>().expect("an address");
            }
        };
        let mut host = Stream::start(address, Some(&psk)).expect("started");
        let result = opened(&mut host);
        assert_eq!(result.is_ok(), is_right, "{result:?}");
    }
}

/// The `openssl` program, killed when the test is done.
struct Program(Child);

impl Program {
    fn new(arguments: &[&str]) -> Self {
        let mut command = Command::new("openssl");
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        Self(command.spawn().expect("the openssl program"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_client_of_openssl_is_let_in_with_the_key_alone() {
    let (listener, address) = listener();
    for (key, is_right) in [(TLS_KEY, true), (&TLS_KEY.replace('0', "1"), false)] {
        let (port, psk) = (address.to_string(), psk());
        let mut client = Program::new(&[
            "s_client",
            "-connect",
            &port,
            "-tls1_3",
            "-psk_identity",
            psk.identity(),
            "-psk",
            key,
            "-quiet",
        ]);
        let mut target =
            Stream::accepted_tls(listener.accept().expect("a peer").0, &acceptor()).expect("accepted");
        let result = opened(&mut target);
        assert_eq!(result.is_ok(), is_right, "{result:?}");
        if !is_right {
            continue;
        }
        assert_eq!(target.tls_identity(), Some(psk.identity()));
        let mut line = [0; 6];
        client.0.stdin.as_mut().expect("piped").write_all(b"hello\n").expect("written");
        assert_eq!(patiently(|| target.receive(&mut [Room::Bytes(&mut line)])), 6);
        assert_eq!(&line, b"hello\n");
        assert_eq!(patiently(|| target.send(&[Piece::Bytes(b"world\n")])), 6);
        let mut answer = [0; 6];
        client.0.stdout.as_mut().expect("piped").read_exact(&mut answer).expect("read");
        assert_eq!(&answer, b"world\n");
    }
}

#[test]
fn a_server_without_the_key_is_refused_even_when_it_has_a_certificate() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "1",
        ])
        .args(["-subj", "/CN=impostor", "-keyout", &path("key"), "-out", &path("certificate")])
        .stderr(Stdio::null())
        .status()
        .expect("the openssl program");
    assert!(made.success());
    for (key, is_right) in [(Some(TLS_KEY), true), (None, false)] {
        let psk = psk();
        let (key_file, certificate) = (path("key"), path("certificate"));
        let mut arguments =
            vec!["s_server", "-accept", "127.0.0.1:0", "-tls1_3", "-key", &key_file, "-cert", &certificate];
        if let Some(key) = key {
            arguments.extend(["-psk", key, "-psk_identity", psk.identity()]);
        }
        let mut server = Program::new(&arguments);
        let mut output = BufReader::new(server.0.stdout.take().expect("piped"));
        let mut line = String::new();
        while !line.starts_with("ACCEPT ") {
            line.clear();
            assert!(output.read_line(&mut line).expect("read") > 0, "the server ended");
        }
        let address = line["ACCEPT ".len()..].trim().parse().expect("an address");
        let result = Stream::connect(address, LONG, Some(&psk));
        match (result, is_right) {
            (Ok(mut host), true) => {
                assert_eq!(host.tls_identity(), Some(psk.identity()));
                assert_eq!(patiently(|| host.send(&[Piece::Bytes(b"hello\n")])), 6);
                while !line.starts_with("hello") {
                    line.clear();
                    assert!(output.read_line(&mut line).expect("read") > 0, "the server ended");
                }
            }
            (Err(FabricError::Tls { .. }), false) => {}
            (result, _) => panic!("{result:?}"),
        }
    }
}
