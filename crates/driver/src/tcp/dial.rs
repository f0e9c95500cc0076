//! A connection to a target, until its two sides have agreed on how PDUs look (NVMe/TCP Transport 3.3).

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use unvme_bus::socket::{Piece, Room};
use unvme_fabric::{FabricError, PskVersion, Stream};

use super::link::await_ready;
use super::pdu::{self, Agreement, Fault, INIT_BYTES};
use super::target::TcpTarget;
use crate::Error;

/// Time for a connection to come about, and for the answer to its first PDU.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// First byte of what a target sends in the clear that speaks TLS alone: a record of type alert (RFC 8446,
/// 5.1). No PDU of a target begins so.
const TLS_ALERT: u8 = 0x15;

/// A socket to the first address of the target that answers.
pub(crate) fn dial(target: &TcpTarget) -> Result<Stream, Error> {
    let shown = target.shown();
    let unreachable = |e: &dyn std::fmt::Display| Error::Unreachable(format!("{shown}: {e}"));
    let addresses = (target.host.as_str(), target.port).to_socket_addrs().map_err(|e| unreachable(&e))?;
    let deadline = Instant::now() + CONNECT_LIMIT;
    let mut last = unreachable(&"the name has no address");
    for address in addresses {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match open(target, address, left) {
            Ok(stream) => return Ok(stream),
            Err(e @ FabricError::Tls { .. }) => {
                return Err(Error::Denied(format!("{shown}: {e}")));
            }
            Err(e @ (FabricError::Key { .. } | FabricError::NoTls)) => {
                return Err(Error::InvalidArgument(e.to_string()));
            }
            Err(e) => last = unreachable(&e),
        }
    }
    Err(last)
}

/// Connects, with a TLS key of the newer form first: old targets know the other one alone.
fn open(target: &TcpTarget, address: SocketAddr, limit: Duration) -> Result<Stream, FabricError> {
    let Some(psk) = &target.tls else { return Stream::connect(address, limit, None) };
    let key = |version| psk.tls(version, &target.host_identity.nqn, &target.nqn);
    match Stream::connect(address, limit, Some(&key(PskVersion::V1)?)) {
        Err(FabricError::Tls { .. }) => Stream::connect(address, limit, Some(&key(PskVersion::V0)?)),
        outcome => outcome,
    }
}

/// Initialize Connection Request and Response.
pub(crate) fn initialize(stream: &mut Stream, target: &TcpTarget) -> Result<Agreement, Error> {
    let deadline = Instant::now() + CONNECT_LIMIT;
    let lost = |e: &dyn std::fmt::Display| {
        Error::Unreachable(format!("{}: {e}; does it speak NVMe/TCP?", target.shown()))
    };
    let wait = |stream: &Stream, flags: PollFlags| {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let milliseconds = CONNECT_LIMIT.as_millis() as u64;
            let what = format!("the answer of {} to the first PDU", target.shown());
            return Err(Error::Timeout { what, milliseconds });
        }
        if !stream.has_buffered() {
            await_ready(stream, flags, left);
        }
        Ok(())
    };
    let request = pdu::ic_req(target.digests);
    let mut sent = 0;
    while sent < request.len() {
        match stream.send(&[Piece::Bytes(&request[sent..])]) {
            Ok(bytes) => sent += bytes,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => wait(stream, PollFlags::OUT)?,
            Err(e) => return Err(lost(&e)),
        }
    }
    let mut response = [0; INIT_BYTES];
    let mut received = 0;
    // A Terminate Request in its place is shorter.
    while received < expected(&response, received) {
        match stream.receive(&mut [Room::Bytes(&mut response[received..])]) {
            Ok(0) if received >= pdu::COMMON_BYTES => break,
            Ok(0) if received == 0 => return Err(unanswered(target)),
            Ok(0) => return Err(lost(&"the connection was closed")),
            Ok(_) if response[0] == TLS_ALERT => {
                return Err(Error::Denied(format!(
                    "{}: it speaks TLS, and this connection is without: a TLS key for it is needed",
                    target.shown()
                )));
            }
            Ok(bytes) => received += bytes,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => wait(stream, PollFlags::IN)?,
            Err(e) if received == 0 && e.kind() == std::io::ErrorKind::ConnectionReset => {
                return Err(unanswered(target));
            }
            Err(e) => return Err(lost(&e)),
        }
    }
    pdu::ic_resp(&response, target.digests).map_err(|Fault { what, .. }| Error::Protocol(what))
}

/// The target has closed the connection and said nothing at all.
fn unanswered(target: &TcpTarget) -> Error {
    let hint = match target.tls {
        None => "it may let nobody in without TLS, which takes a TLS key; or it does not speak NVMe/TCP",
        Some(_) => "does it speak NVMe/TCP?",
    };
    Error::Unreachable(format!("{}: it closed the connection without an answer: {hint}", target.shown()))
}

/// Bytes of the answer, by what there is of it.
fn expected(response: &[u8; INIT_BYTES], received: usize) -> usize {
    let plen = u32::from_le_bytes([response[4], response[5], response[6], response[7]]) as usize;
    if received < pdu::COMMON_BYTES { INIT_BYTES } else { plen.clamp(pdu::COMMON_BYTES, INIT_BYTES) }
}
