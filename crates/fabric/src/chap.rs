//! In-band authentication: DH-HMAC-CHAP (Base 8.3.4.5). Both ends are state machines of messages; the
//! commands that carry them, Authentication Send and Receive, are their callers'.
//!
//! ```text
//! host                                   controller
//! Negotiate   --Authentication Send--->  chooses a hash function and a DH group
//!             <--Authentication Receive- Challenge: C1, S1, g^x
//! Reply: R1   --Authentication Send--->  checks R1
//! C2, S2, g^y
//!             <--Authentication Receive- Success1: R2, when the host has sent C2
//! Success2    --Authentication Send--->  only when it has, and R2 is right
//! ```
//!
//! A failure the controller finds is fetched as Failure1 in place of what the host expects; one the host
//! finds is sent as Failure2. Either ends the connection.

mod controller;
mod group;
mod host;

#[cfg(test)]
mod tests;

use subtle::ConstantTimeEq;
use unvme_bus::SecretBytes;
use unvme_spec::auth::{self, hash_id};

pub use controller::{Controller, Outcome};
pub use group::Group;
pub use host::{Host, Step};
pub use unvme_spec::auth::Failure;

use crate::interchange::random;
use crate::{Hash, Secret};

/// Names of both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// NQN of the host.
    pub host: String,
    /// NQN of the subsystem.
    pub subsystem: String,
}

/// Secrets of both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The host's, which it proves to know.
    pub host: Secret,
    /// The subsystem's, which the controller proves to know when the host asks for that. A host that has it
    /// asks, and does not go on without.
    pub controller: Option<Secret>,
}

/// What may be used, the favourite first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Hash functions.
    pub hashes: Vec<Hash>,
    /// DH groups.
    pub groups: Vec<Group>,
}

impl Default for Policy {
    /// Everything: the strongest hash function first, and the smallest group with 128 bits of strength, since
    /// the largest one takes both ends several times as long.
    fn default() -> Self {
        Self { hashes: Hash::ALL.to_vec(), groups: Group::ALL.to_vec() }
    }
}

impl Hash {
    /// Its identifier in messages.
    const fn id(self) -> u8 {
        match self {
            Self::Sha256 => hash_id::SHA_256,
            Self::Sha384 => hash_id::SHA_384,
            Self::Sha512 => hash_id::SHA_512,
        }
    }

    fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| hash.id() == id)
    }
}

/// Who proves something, which is part of the proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prover {
    Host,
    Controller,
}

/// What a response is computed from, besides the secret.
struct Question<'a> {
    hash: Hash,
    /// C1 or C2.
    challenge: &'a [u8],
    /// What the DH exchange has given; `None` for the group NULL.
    shared: Option<&'a [u8]>,
    /// S1 or S2.
    sequence: u32,
    transaction: u16,
}

impl Question<'_> {
    /// R1 or R2 (Base 8.3.4.5.4, 8.3.4.5.5).
    fn response(&self, prover: Prover, secret: &Secret, names: &Names) -> SecretBytes {
        let augmented = self.shared.map(|shared| self.hash.hmac(&self.hash.of(shared), &[self.challenge]));
        let challenge = augmented.as_ref().map_or(self.challenge, |augmented| augmented);
        let (label, first, second): (&[u8], _, _) = match prover {
            Prover::Host => (b"HostHost", &names.host, &names.subsystem),
            Prover::Controller => (b"Controller", &names.subsystem, &names.host),
        };
        let (sequence, transaction) = (self.sequence.to_le_bytes(), self.transaction.to_le_bytes());
        let parts = [
            challenge,
            &sequence,
            &transaction,
            &[auth::NO_SECURE_CHANNEL],
            label,
            first.as_bytes(),
            &[0],
            second.as_bytes(),
        ];
        self.hash.hmac(&secret.transformed(first), &parts)
    }

    /// Whether `response` is the right one, compared in constant time.
    fn is_answered_by(&self, response: &[u8], prover: Prover, secret: &Secret, names: &Names) -> bool {
        self.response(prover, secret, names).ct_eq(response).into()
    }
}

/// A challenge and its sequence number, which is not 0; a failure when the system has no random numbers.
fn fresh(hash: Hash) -> Result<(Vec<u8>, u32), Failure> {
    let failed = |_| Failure::AUTHENTICATION_FAILED;
    let challenge = random(hash.bytes()).map_err(failed)?.to_vec();
    let sequence = random(4).map_err(failed)?;
    let sequence = sequence.iter().fold(0, |number: u32, byte| number << 8 | u32::from(*byte));
    Ok((challenge, sequence.max(1)))
}
