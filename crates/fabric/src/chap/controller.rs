//! The controller's end of DH-HMAC-CHAP.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use unvme_spec::auth::{
    COMMON_MESSAGE, ChallengeHead, DH_HMAC_CHAP, DH_HMAC_CHAP_MESSAGE, Failure, FailureMessage, Head,
    NO_SECURE_CHANNEL, Negotiate, Reply, Success1Head, message_id,
};
use zerocopy::{FromBytes, IntoBytes};

use super::group::Exchange;
use super::{Group, Keys, Names, Policy, Prover, Question, fresh};
use crate::Hash;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not there yet: nothing but authentication is allowed.
    Pending,
    /// The host is who it says.
    Authenticated,
    /// The connection is to be closed.
    Failed(Failure),
}

/// The controller's end of one connection, over all its transactions: a host may authenticate again.
pub struct Controller {
    names: Names,
    keys: Keys,
    policy: Policy,
    phase: Phase,
    /// Of the transaction that is under way, or the last one.
    transaction: u16,
    /// A transaction has succeeded.
    is_authenticated: bool,
}

enum Phase {
    /// Negotiate is awaited.
    Idle,
    /// Challenge is to be fetched.
    Challenges {
        message: Vec<u8>,
        next: Asked,
    },
    /// Reply is awaited.
    AwaitsReply(Asked),
    /// Success1 is to be fetched.
    Succeeds {
        message: Vec<u8>,
        is_mutual: bool,
    },
    /// Success2 is awaited.
    AwaitsSuccess,
    /// Failure1 is to be fetched.
    Refuses(Failure),
    Failed(Failure),
}

/// The challenge to the host.
struct Asked {
    hash: Hash,
    group: Group,
    challenge: Vec<u8>,
    sequence: u32,
    exchange: Option<Exchange>,
}

impl Controller {
    /// A connection of which the Connect command has told the names.
    pub fn new(names: Names, keys: Keys, policy: Policy) -> Self {
        Self { names, keys, policy, phase: Phase::Idle, transaction: 0, is_authenticated: false }
    }

    /// As if this Challenge had been fetched.
    #[cfg(test)]
    pub(super) fn after_challenge(mut self, challenge: &unvme_spec::auth::Challenge<'_>) -> Self {
        let hash = Hash::from_id(challenge.head.hash).expect("a hash function");
        let (challenge, sequence) = (challenge.challenge.to_vec(), challenge.head.sequence.get());
        self.phase =
            Phase::AwaitsReply(Asked { hash, group: Group::Null, challenge, sequence, exchange: None });
        self
    }

    /// How far it is.
    pub fn outcome(&self) -> Outcome {
        match &self.phase {
            Phase::Failed(failure) => Outcome::Failed(*failure),
            _ if self.is_authenticated => Outcome::Authenticated,
            _ => Outcome::Pending,
        }
    }

    /// Data of an Authentication Send. The command succeeds in any case: what is wrong with a message is told
    /// by the next Authentication Receive.
    pub fn send(&mut self, message: &[u8]) {
        let Some(head) = Head::of(message) else {
            return self.refuse(Failure::INCORRECT_PAYLOAD);
        };
        match (std::mem::replace(&mut self.phase, Phase::Idle), head.auth_type, head.auth_id) {
            (phase @ (Phase::Refuses(_) | Phase::Failed(_)), ..) => self.phase = phase,
            (_, COMMON_MESSAGE, message_id::FAILURE2) => {
                let failure = FailureMessage::read_from_prefix(message).map(|(it, _)| it.explanation);
                let failure = failure.map_or(Failure::AUTHENTICATION_FAILED, Failure);
                self.phase = Phase::Failed(failure);
            }
            (Phase::Idle, COMMON_MESSAGE, message_id::NEGOTIATE) => {
                self.transaction = head.transaction.get();
                self.enter(|controller| controller.challenge(message));
            }
            (Phase::Idle, ..) => {
                self.transaction = head.transaction.get();
                self.refuse(Failure::INCORRECT_MESSAGE);
            }
            _ if head.transaction.get() != self.transaction => self.refuse(Failure::INCORRECT_PAYLOAD),
            (Phase::AwaitsReply(asked), DH_HMAC_CHAP_MESSAGE, message_id::REPLY) => {
                self.enter(|controller| controller.verify(message, &asked));
            }
            (Phase::AwaitsSuccess, DH_HMAC_CHAP_MESSAGE, message_id::SUCCESS2) => {
                self.is_authenticated = true;
            }
            _ => self.refuse(Failure::INCORRECT_MESSAGE),
        }
    }

    /// The message that an Authentication Receive of `bytes` fetches, at most as long; the rest of what the
    /// command transfers is zeroes.
    pub fn receive(&mut self, bytes: u32) -> Vec<u8> {
        let room = usize::try_from(bytes).unwrap_or(usize::MAX);
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Challenges { message, next } if message.len() <= room => {
                self.phase = Phase::AwaitsReply(next);
                return message;
            }
            Phase::Succeeds { message, is_mutual } if message.len() <= room => {
                if is_mutual {
                    self.phase = Phase::AwaitsSuccess;
                } else {
                    self.is_authenticated = true;
                }
                return message;
            }
            Phase::Challenges { .. } | Phase::Succeeds { .. } => self.refuse(Failure::INCORRECT_PAYLOAD),
            phase @ (Phase::Refuses(_) | Phase::Failed(_)) => self.phase = phase,
            Phase::Idle | Phase::AwaitsReply(_) | Phase::AwaitsSuccess => {
                self.refuse(Failure::INCORRECT_MESSAGE);
            }
        }
        let (Phase::Refuses(failure) | Phase::Failed(failure)) = self.phase else {
            return Vec::new();
        };
        self.phase = Phase::Failed(failure);
        let message = FailureMessage::new(message_id::FAILURE1, self.transaction, failure);
        let mut message = message.as_bytes().to_vec();
        message.truncate(room);
        message
    }

    fn refuse(&mut self, failure: Failure) {
        if !matches!(self.phase, Phase::Refuses(_) | Phase::Failed(_)) {
            self.phase = Phase::Refuses(failure);
        }
    }

    fn enter(&mut self, step: impl FnOnce(&Self) -> Result<Phase, Failure>) {
        self.phase = step(self).unwrap_or_else(Phase::Refuses);
    }

    /// Makes a Challenge of what a Negotiate offers.
    fn challenge(&self, message: &[u8]) -> Result<Phase, Failure> {
        let negotiate = Negotiate::parse(message).ok_or(Failure::INCORRECT_PAYLOAD)?;
        if negotiate.head.secure_channel != NO_SECURE_CHANNEL {
            return Err(Failure::SECURE_CHANNEL_MISMATCH);
        }
        if negotiate.head.descriptors == 0 {
            return Err(Failure::INCORRECT_PAYLOAD);
        }
        let descriptor = negotiate.descriptors().find(|it| it.protocol == DH_HMAC_CHAP);
        let descriptor = descriptor.ok_or(Failure::PROTOCOL_NOT_USABLE)?;
        let hashes = descriptor.hashes().ok_or(Failure::INCORRECT_PAYLOAD)?;
        let groups = descriptor.groups().ok_or(Failure::INCORRECT_PAYLOAD)?;
        let hash = self.policy.hashes.iter().find(|hash| hashes.contains(&hash.id()));
        let hash = *hash.ok_or(Failure::HASH_NOT_USABLE)?;
        let group = self.policy.groups.iter().find(|group| groups.contains(&group.id()));
        let group = *group.ok_or(Failure::GROUP_NOT_USABLE)?;
        let (challenge, sequence) = fresh(hash)?;
        let exchange = Exchange::new(group)?;
        let public = exchange.as_ref().map_or_else(Vec::new, Exchange::public);
        let mut head = ChallengeHead::default();
        head.head = Head::new(DH_HMAC_CHAP_MESSAGE, message_id::CHALLENGE, self.transaction);
        // At most 64 and 1024.
        (head.hash_bytes, head.dh_bytes) = (hash.bytes() as u8, (public.len() as u16).into());
        (head.hash, head.group) = (hash.id(), group.id());
        head.sequence = sequence.into();
        let message = [head.as_bytes(), &challenge, &public].concat();
        Ok(Phase::Challenges { message, next: Asked { hash, group, challenge, sequence, exchange } })
    }

    /// Checks a Reply, and answers the challenge in it.
    fn verify(&self, message: &[u8], asked: &Asked) -> Result<Phase, Failure> {
        let Reply { head, response, challenge, dh } =
            Reply::parse(message).ok_or(Failure::INCORRECT_PAYLOAD)?;
        if usize::from(head.hash_bytes) != asked.hash.bytes()
            || usize::from(head.dh_bytes.get()) != asked.group.bytes()
        {
            return Err(Failure::INCORRECT_PAYLOAD);
        }
        let shared = match &asked.exchange {
            None => None,
            Some(exchange) => Some(exchange.shared(dh).ok_or(Failure::INCORRECT_PAYLOAD)?),
        };
        let mut question = Question {
            hash: asked.hash,
            challenge: &asked.challenge,
            shared: shared.as_ref().map(|shared| shared.as_slice()),
            sequence: asked.sequence,
            transaction: self.transaction,
        };
        if !question.is_answered_by(response, Prover::Host, &self.keys.host, &self.names) {
            return Err(Failure::AUTHENTICATION_FAILED);
        }
        // Without a sequence number the challenge is for a secure channel, of which there is none.
        let is_mutual = head.has_challenge & 1 == 1 && head.sequence.get() != 0;
        let response = match (&self.keys.controller, is_mutual) {
            (_, false) => None,
            // A controller that has no secret cannot prove anything; one that is asked its own question does
            // not.
            (None, true) => return Err(Failure::AUTHENTICATION_FAILED),
            (Some(_), true) if challenge == asked.challenge => return Err(Failure::AUTHENTICATION_FAILED),
            (Some(secret), true) => {
                (question.challenge, question.sequence) = (challenge, head.sequence.get());
                Some(question.response(Prover::Controller, secret, &self.names))
            }
        };
        let mut success = Success1Head::default();
        success.head = Head::new(DH_HMAC_CHAP_MESSAGE, message_id::SUCCESS1, self.transaction);
        success.hash_bytes = head.hash_bytes;
        success.has_response = response.is_some().into();
        let nothing = vec![0; asked.hash.bytes()];
        let message = [success.as_bytes(), response.as_ref().map_or(&nothing, |it| it)].concat();
        Ok(Phase::Succeeds { message, is_mutual })
    }
}

unvme_bus::debug_parts!(Controller { outcome() });
