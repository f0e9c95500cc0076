//! The host's end of DH-HMAC-CHAP.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use unvme_spec::auth::{
    COMMON_MESSAGE, Challenge, ChallengeHead, DH_HMAC_CHAP_MESSAGE, Failure, FailureMessage, Head,
    MESSAGE_BYTES_MAX, NegotiateHead, ProtocolDescriptor, ReplyHead, Success1, Success2, message_id,
};
use zerocopy::{FromBytes, IntoBytes};
use zeroize::Zeroizing;

use super::group::Exchange;
use super::{Group, Keys, Names, Policy, Prover, Question, fresh};
use crate::Hash;

/// What the host is to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Send this by Authentication Send, then ask again.
    Send(Vec<u8>),
    /// Fetch a message by Authentication Receive with this allocation length, and hand it to
    /// [`Host::received`].
    Receive {
        /// Allocation length.
        bytes: u32,
    },
    /// Done: the controller knows who the host is, and the other way round when the host has the controller's
    /// secret.
    Authenticated,
    /// Done: the connection is to be closed.
    Failed {
        /// Why.
        failure: Failure,
        /// The controller refused the host, rather than the host the controller.
        by_controller: bool,
    },
}

/// The host's end of one transaction.
pub struct Host {
    names: Names,
    keys: Keys,
    policy: Policy,
    transaction: u16,
    phase: Phase,
}

enum Phase {
    /// Negotiate is to be sent.
    Start,
    /// Challenge is awaited.
    AwaitsChallenge,
    /// Reply is to be sent.
    Replies {
        message: Vec<u8>,
        next: Expected,
    },
    /// Success1 is awaited.
    AwaitsSuccess(Expected),
    /// Success2 is to be sent.
    Succeeds,
    Authenticated,
    /// Failure2 is to be sent.
    Refuses(Failure),
    Failed {
        failure: Failure,
        by_controller: bool,
    },
}

/// What Success1 has to say.
struct Expected {
    hash: Hash,
    /// The challenge to the controller.
    asked: Option<Asked>,
}

struct Asked {
    challenge: Vec<u8>,
    sequence: u32,
    shared: Option<Zeroizing<Vec<u8>>>,
}

impl Host {
    /// A transaction with an identifier of the host's choice, different from that of the one before.
    pub fn new(names: Names, keys: Keys, policy: Policy, transaction: u16) -> Self {
        Self { names, keys, policy, transaction, phase: Phase::Start }
    }

    /// As if this Reply had been sent.
    #[cfg(test)]
    pub(super) fn after_reply(mut self, hash: Hash, reply: &unvme_spec::auth::Reply<'_>) -> Self {
        let (challenge, sequence) = (reply.challenge.to_vec(), reply.head.sequence.get());
        let asked = self.keys.controller.as_ref().map(|_| Asked { challenge, sequence, shared: None });
        self.phase = Phase::AwaitsSuccess(Expected { hash, asked });
        self
    }

    /// What to do next. A [`Step::Send`] is given out once.
    pub fn step(&mut self) -> Step {
        match &mut self.phase {
            Phase::Start => {
                self.phase = Phase::AwaitsChallenge;
                Step::Send(self.negotiate())
            }
            Phase::AwaitsChallenge | Phase::AwaitsSuccess(_) => Step::Receive { bytes: MESSAGE_BYTES_MAX },
            Phase::Replies { message, next } => {
                let (message, asked) = (std::mem::take(message), next.asked.take());
                self.phase = Phase::AwaitsSuccess(Expected { hash: next.hash, asked });
                Step::Send(message)
            }
            Phase::Succeeds => {
                self.phase = Phase::Authenticated;
                let mut message = Success2::default();
                message.head = Head::new(DH_HMAC_CHAP_MESSAGE, message_id::SUCCESS2, self.transaction);
                Step::Send(message.as_bytes().to_vec())
            }
            Phase::Refuses(failure) => {
                let message = FailureMessage::new(message_id::FAILURE2, self.transaction, *failure);
                self.phase = Phase::Failed { failure: *failure, by_controller: false };
                Step::Send(message.as_bytes().to_vec())
            }
            Phase::Authenticated => Step::Authenticated,
            Phase::Failed { failure, by_controller } => {
                Step::Failed { failure: *failure, by_controller: *by_controller }
            }
        }
    }

    /// What Authentication Receive has brought; bytes beyond the message do not count. Panics: when
    /// [`Host::step`] has not asked for a message.
    pub fn received(&mut self, message: &[u8]) {
        let result = match &self.phase {
            Phase::AwaitsChallenge => {
                self.expect(message, message_id::CHALLENGE).and_then(|()| self.answer(message))
            }
            Phase::AwaitsSuccess(expected) => {
                self.expect(message, message_id::SUCCESS1).and_then(|()| self.verify(message, expected))
            }
            _ => panic!("a message is received when Step::Receive asks for it"),
        };
        self.phase = result.unwrap_or_else(|phase| phase);
    }

    fn negotiate(&self) -> Vec<u8> {
        let head = Head::new(COMMON_MESSAGE, message_id::NEGOTIATE, self.transaction);
        let head = NegotiateHead { head, descriptors: 1, ..NegotiateHead::default() };
        let descriptor = ProtocolDescriptor::dh_hmac_chap(
            self.policy.hashes.iter().map(|hash| hash.id()),
            self.policy.groups.iter().map(|group| group.id()),
        );
        [head.as_bytes(), descriptor.as_bytes()].concat()
    }

    /// Checks that this is the message that comes now, and not a failure.
    fn expect(&self, message: &[u8], auth_id: u8) -> Result<(), Phase> {
        let head = Head::of(message).ok_or(Phase::Refuses(Failure::INCORRECT_PAYLOAD))?;
        if (head.auth_type, head.auth_id) == (COMMON_MESSAGE, message_id::FAILURE1) {
            let failure = FailureMessage::read_from_prefix(message).map(|(it, _)| Failure(it.explanation));
            let failure = failure.unwrap_or(Failure::AUTHENTICATION_FAILED);
            return Err(Phase::Failed { failure, by_controller: true });
        }
        if (head.auth_type, head.auth_id) != (DH_HMAC_CHAP_MESSAGE, auth_id) {
            return Err(Phase::Refuses(Failure::INCORRECT_MESSAGE));
        }
        if head.transaction.get() != self.transaction {
            return Err(Phase::Refuses(Failure::INCORRECT_PAYLOAD));
        }
        Ok(())
    }

    /// Answers a Challenge.
    fn answer(&self, message: &[u8]) -> Result<Phase, Phase> {
        self.reply(message).map_err(Phase::Refuses)
    }

    fn reply(&self, message: &[u8]) -> Result<Phase, Failure> {
        let Challenge { head, challenge, dh } =
            Challenge::parse(message).ok_or(Failure::INCORRECT_PAYLOAD)?;
        let hash = Hash::from_id(head.hash).filter(|hash| self.policy.hashes.contains(hash));
        let hash = hash.ok_or(Failure::HASH_NOT_USABLE)?;
        let group = Group::from_id(head.group).filter(|group| self.policy.groups.contains(group));
        let group = group.ok_or(Failure::GROUP_NOT_USABLE)?;
        if !is_consistent(&head, hash, group) {
            return Err(Failure::INCORRECT_PAYLOAD);
        }
        let exchange = Exchange::new(group)?;
        let shared = match &exchange {
            None => None,
            Some(exchange) => Some(exchange.shared(dh).ok_or(Failure::INCORRECT_PAYLOAD)?),
        };
        let question = Question {
            hash,
            challenge,
            shared: shared.as_ref().map(|shared| shared.as_slice()),
            sequence: head.sequence.get(),
            transaction: self.transaction,
        };
        let response = question.response(Prover::Host, &self.keys.host, &self.names);
        let public = exchange.as_ref().map_or_else(Vec::new, Exchange::public);
        let asked = match self.keys.controller {
            None => None,
            Some(_) => {
                let (challenge, sequence) = fresh(hash)?;
                Some(Asked { challenge, sequence, shared })
            }
        };
        let mut reply = ReplyHead::default();
        reply.head = Head::new(DH_HMAC_CHAP_MESSAGE, message_id::REPLY, self.transaction);
        (reply.hash_bytes, reply.dh_bytes) = (head.hash_bytes, head.dh_bytes);
        reply.has_challenge = asked.is_some().into();
        reply.sequence = asked.as_ref().map_or(0, |asked| asked.sequence).into();
        let nothing = vec![0; hash.bytes()];
        let challenge = asked.as_ref().map_or(&nothing, |asked| &asked.challenge);
        let message = [reply.as_bytes(), &response, challenge, &public].concat();
        Ok(Phase::Replies { message, next: Expected { hash, asked } })
    }

    /// Checks a Success1.
    fn verify(&self, message: &[u8], expected: &Expected) -> Result<Phase, Phase> {
        let refuse = |failure| Err(Phase::Refuses(failure));
        let Some(Success1 { head, response }) = Success1::parse(message) else {
            return refuse(Failure::INCORRECT_PAYLOAD);
        };
        if usize::from(head.hash_bytes) != expected.hash.bytes() {
            return refuse(Failure::INCORRECT_PAYLOAD);
        }
        let (Some(asked), Some(secret)) = (&expected.asked, &self.keys.controller) else {
            return Ok(Phase::Authenticated);
        };
        let question = Question {
            hash: expected.hash,
            challenge: &asked.challenge,
            shared: asked.shared.as_ref().map(|shared| shared.as_slice()),
            sequence: asked.sequence,
            transaction: self.transaction,
        };
        match response {
            Some(response) if question.is_answered_by(response, Prover::Controller, secret, &self.names) => {
                Ok(Phase::Succeeds)
            }
            _ => refuse(Failure::AUTHENTICATION_FAILED),
        }
    }
}

/// Whether the lengths are those of what was chosen, and the sequence number is one.
fn is_consistent(head: &ChallengeHead, hash: Hash, group: Group) -> bool {
    usize::from(head.hash_bytes) == hash.bytes()
        && usize::from(head.dh_bytes.get()) == group.bytes()
        && head.sequence.get() != 0
}

unvme_bus::debug_parts!(Host { transaction });
