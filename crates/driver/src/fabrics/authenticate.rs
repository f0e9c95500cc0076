//! In-band authentication of a connection: the messages of DH-HMAC-CHAP, carried by Authentication Send and
//! Receive (Base 6.1, 6.2, 8.3.4).

use std::sync::atomic::{AtomicU16, Ordering};

use unvme_fabric::chap::{Host, Keys, Names, Policy, Step};
use unvme_spec::auth::{MESSAGE_BYTES_MAX, SECURITY_PROTOCOL, SECURITY_PROTOCOL_SPECIFIC};
use unvme_spec::fabrics::{Authentication, Command};

use super::connect::Connection;

use crate::Error;
use crate::tcp::TcpTarget;

/// Messages of one transaction at most; five are the longest way it can take.
const MESSAGES_MAX: usize = 8;

/// Authenticates both ways, as far as there are secrets. Errors: [`Error::Denied`] when one end does not know
/// what it has to, and those of [`Connection::call`].
pub(super) fn run(connection: &mut Connection, target: &TcpTarget) -> Result<(), Error> {
    static TRANSACTION: AtomicU16 = AtomicU16::new(1);
    let Some(secret) = target.secret.clone() else {
        if target.controller_secret.is_some() {
            return Err(Error::Denied(format!(
                "{} is to prove who it is, which takes a secret for {} as well as its own",
                target.shown(),
                target.host_identity.nqn
            )));
        }
        return Err(Error::Denied(format!(
            "{} wants hosts to authenticate, and there is no secret for {}",
            target.shown(),
            target.nqn
        )));
    };
    let names = Names { host: target.host_identity.nqn.clone(), subsystem: target.nqn.clone() };
    let keys = Keys { host: secret, controller: target.controller_secret.clone() };
    // Relaxed: it only has to be another one than the last.
    let transaction = TRANSACTION.fetch_add(1, Ordering::Relaxed);
    let mut host = Host::new(names, keys, Policy::default(), transaction);
    for _ in 0..MESSAGES_MAX {
        match host.step() {
            Step::Send(message) => {
                let sqe = Command::AuthenticationSend(carrier(message.len() as u32)).encode();
                connection.succeed("Authentication Send", sqe, Some(&message))?;
            }
            Step::Receive { bytes } => {
                let bytes = bytes.min(MESSAGE_BYTES_MAX);
                let sqe = Command::AuthenticationReceive(carrier(bytes)).encode();
                let message = connection.read("Authentication Receive", sqe, bytes as usize)?;
                host.received(&message);
            }
            Step::Authenticated => return Ok(()),
            Step::Failed { failure, by_controller } => {
                let shown = target.shown();
                return Err(Error::Denied(match by_controller {
                    true => format!("{shown} has refused {}: {failure}", target.host_identity.nqn),
                    false => format!("{shown} could not prove that it is {}: {failure}", target.nqn),
                }));
            }
        }
    }
    Err(Error::Protocol(format!("authentication takes more than {MESSAGES_MAX} messages")))
}

fn carrier(bytes: u32) -> Authentication {
    Authentication {
        security_protocol: SECURITY_PROTOCOL,
        specific_0: SECURITY_PROTOCOL_SPECIFIC,
        specific_1: SECURITY_PROTOCOL_SPECIFIC,
        bytes,
    }
}
