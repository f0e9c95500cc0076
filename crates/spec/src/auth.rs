//! Messages of in-band authentication, DH-HMAC-CHAP, which Authentication Send and Receive carry (Base
//! 8.3.4.5).
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use core::fmt;

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout,
    little_endian::{U16, U32},
};

/// SECP of Authentication Send and Receive: NVMe.
pub const SECURITY_PROTOCOL: u8 = 0xe9;
/// SPSP0 and SPSP1 of Authentication Send and Receive.
pub const SECURITY_PROTOCOL_SPECIFIC: u8 = 0x01;
/// AUTHID of a protocol descriptor: DH-HMAC-CHAP.
pub const DH_HMAC_CHAP: u8 = 0x01;
/// Most identifiers of hash functions, and of DH groups, in a protocol descriptor.
pub const IDENTIFIERS_MAX: usize = 30;
/// SC_C: no secure channel is concatenated.
pub const NO_SECURE_CHANNEL: u8 = 0;
/// AUTH_TYPE of Negotiate and of both failures.
pub const COMMON_MESSAGE: u8 = 0x00;
/// AUTH_TYPE of the messages of DH-HMAC-CHAP.
pub const DH_HMAC_CHAP_MESSAGE: u8 = 0x01;
/// Reason code of both failures: authentication failure. There is no other.
pub const REASON_AUTHENTICATION_FAILURE: u8 = 0x01;
/// Most bytes of any message that is well formed: a challenge or reply with SHA-512 and a group of 8192 bits,
/// or a Negotiate with as many descriptors as fit then.
pub const MESSAGE_BYTES_MAX: u32 = 4096;

codes! {
    /// Message identifiers: AUTH_ID.
    pub mod message_id: u8 {
        NEGOTIATE = 0x00, "AUTH_Negotiate, by the host";
        CHALLENGE = 0x01, "DH-HMAC-CHAP_Challenge, by the controller";
        REPLY = 0x02, "DH-HMAC-CHAP_Reply, by the host";
        SUCCESS1 = 0x03, "DH-HMAC-CHAP_Success1, by the controller";
        SUCCESS2 = 0x04, "DH-HMAC-CHAP_Success2, by a host that has authenticated the controller";
        FAILURE2 = 0xf0, "AUTH_Failure2, by the host";
        FAILURE1 = 0xf1, "AUTH_Failure1, by the controller";
    }

    /// Identifiers of hash functions.
    pub mod hash_id: u8 {
        SHA_256 = 0x01, "SHA-256";
        SHA_384 = 0x02, "SHA-384";
        SHA_512 = 0x03, "SHA-512";
    }

    /// Identifiers of DH groups.
    pub mod group_id: u8 {
        NULL = 0x00, "No Diffie-Hellman exchange";
        FFDHE_2048 = 0x01, "ffdhe2048 (RFC 7919)";
        FFDHE_3072 = 0x02, "ffdhe3072";
        FFDHE_4096 = 0x03, "ffdhe4096";
        FFDHE_6144 = 0x04, "ffdhe6144";
        FFDHE_8192 = 0x05, "ffdhe8192";
    }
}

open_codes! {
    /// Why a transaction failed: reason code explanation of both failures.
    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Failure(u8), "reason" {
        /// The other side is not who it should be.
        AUTHENTICATION_FAILED = 0x01, "Authentication failed";
        /// No authentication protocol of those offered can be used.
        PROTOCOL_NOT_USABLE = 0x02, "Authentication protocol not usable";
        /// The sides disagree about a secure channel.
        SECURE_CHANNEL_MISMATCH = 0x03, "Secure channel concatenation mismatch";
        /// No hash function of those offered can be used.
        HASH_NOT_USABLE = 0x04, "Hash function not usable";
        /// No DH group of those offered can be used.
        GROUP_NOT_USABLE = 0x05, "DH group not usable";
        /// A message with a wrong field.
        INCORRECT_PAYLOAD = 0x06, "Incorrect payload";
        /// Another message was expected.
        INCORRECT_MESSAGE = 0x07, "Incorrect protocol message";
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl core::error::Error for Failure {}

/// What every message begins with: 6 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Head {
    /// AUTH_TYPE: [`COMMON_MESSAGE`] or [`DH_HMAC_CHAP_MESSAGE`].
    pub auth_type: u8,
    /// AUTH_ID, see [`message_id`].
    pub auth_id: u8,
    _reserved2: [u8; 2],
    /// T_ID: transaction, chosen by the host.
    pub transaction: U16,
}

layout!(Head, 6, { transaction: 4 });

impl Head {
    /// The head of a message of `transaction`.
    pub const fn new(auth_type: u8, auth_id: u8, transaction: u16) -> Self {
        Self { auth_type, auth_id, _reserved2: [0; 2], transaction: U16::new(transaction) }
    }

    /// The head of `message`; `None` when that is shorter.
    pub fn of(message: &[u8]) -> Option<Self> {
        Some(Self::read_from_prefix(message).ok()?.0)
    }
}

/// Start of AUTH_Negotiate: 8 bytes, then the descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NegotiateHead {
    /// Head.
    pub head: Head,
    /// SC_C: the secure channel the host wants afterwards, [`NO_SECURE_CHANNEL`] for none.
    pub secure_channel: u8,
    /// NAPD: number of protocol descriptors.
    pub descriptors: u8,
}

layout!(NegotiateHead, 8, { secure_channel: 6, descriptors: 7 });

/// An authentication protocol: 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ProtocolDescriptor {
    /// AUTHID: [`DH_HMAC_CHAP`].
    pub protocol: u8,
    _reserved1: u8,
    /// HALEN: how many hash functions there are.
    pub hash_count: u8,
    /// DHLEN: how many DH groups there are.
    pub group_count: u8,
    /// Hash functions, the host's favourite first, see [`hash_id`].
    pub hash_ids: [u8; IDENTIFIERS_MAX],
    /// DH groups, likewise, see [`group_id`].
    pub group_ids: [u8; IDENTIFIERS_MAX],
}

layout!(ProtocolDescriptor, 64, { hash_count: 2, hash_ids: 4, group_ids: 34 });

impl ProtocolDescriptor {
    /// DH-HMAC-CHAP with the first [`IDENTIFIERS_MAX`] of each list.
    pub fn dh_hmac_chap(hashes: impl Iterator<Item = u8>, groups: impl Iterator<Item = u8>) -> Self {
        let mut descriptor = Self { protocol: DH_HMAC_CHAP, ..Self::default() };
        for (target, hash) in descriptor.hash_ids.iter_mut().zip(hashes) {
            *target = hash;
            descriptor.hash_count = descriptor.hash_count.saturating_add(1);
        }
        for (target, group) in descriptor.group_ids.iter_mut().zip(groups) {
            *target = group;
            descriptor.group_count = descriptor.group_count.saturating_add(1);
        }
        descriptor
    }

    /// The hash functions; `None` when there are said to be more than fit.
    pub fn hashes(&self) -> Option<&[u8]> {
        self.hash_ids.get(..usize::from(self.hash_count))
    }

    /// The DH groups; `None` when there are said to be more than fit.
    pub fn groups(&self) -> Option<&[u8]> {
        self.group_ids.get(..usize::from(self.group_count))
    }
}

/// AUTH_Negotiate, understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiate<'a> {
    /// Its start.
    pub head: NegotiateHead,
    /// The descriptors, 64 bytes each.
    descriptors: &'a [u8],
}

impl<'a> Negotiate<'a> {
    /// Understands a message; `None` when it is shorter than it says.
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let (head, rest) = NegotiateHead::read_from_prefix(message).ok()?;
        let bytes = usize::from(head.descriptors).checked_mul(size_of::<ProtocolDescriptor>())?;
        Some(Self { head, descriptors: rest.get(..bytes)? })
    }

    /// The protocol descriptors.
    pub fn descriptors(&self) -> impl Iterator<Item = ProtocolDescriptor> + use<'a> {
        self.descriptors
            .chunks_exact(size_of::<ProtocolDescriptor>())
            .filter_map(|bytes| ProtocolDescriptor::read_from_bytes(bytes).ok())
    }
}

/// Start of DH-HMAC-CHAP_Challenge: 16 bytes, then the challenge and the DH value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ChallengeHead {
    /// Head.
    pub head: Head,
    /// HL: bytes of a hash.
    pub hash_bytes: u8,
    _reserved7: u8,
    /// Hash function that is used, see [`hash_id`].
    pub hash: u8,
    /// DH group that is used, see [`group_id`].
    pub group: u8,
    /// DHVLEN: bytes of the DH value.
    pub dh_bytes: U16,
    /// SEQNUM: sequence number S1, not 0.
    pub sequence: U32,
}

layout!(ChallengeHead, 16, { hash_bytes: 6, hash: 8, dh_bytes: 10, sequence: 12 });

/// DH-HMAC-CHAP_Challenge, understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge<'a> {
    /// Its start.
    pub head: ChallengeHead,
    /// C1.
    pub challenge: &'a [u8],
    /// The controller's DH value, big-endian; empty for the group NULL.
    pub dh: &'a [u8],
}

impl<'a> Challenge<'a> {
    /// Understands a message; `None` when it is shorter than it says.
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let (head, rest) = ChallengeHead::read_from_prefix(message).ok()?;
        let (challenge, rest) = rest.split_at_checked(usize::from(head.hash_bytes))?;
        Some(Self { head, challenge, dh: rest.get(..usize::from(head.dh_bytes.get()))? })
    }
}

/// Start of DH-HMAC-CHAP_Reply: 16 bytes, then the response, the challenge and the DH value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ReplyHead {
    /// Head.
    pub head: Head,
    /// HL: bytes of a hash.
    pub hash_bytes: u8,
    _reserved7: u8,
    /// CVALID: 1 when the host challenges the controller too.
    pub has_challenge: u8,
    _reserved9: u8,
    /// DHVLEN: bytes of the DH value.
    pub dh_bytes: U16,
    /// SEQNUM: sequence number S2; 0 when the controller is not to be authenticated.
    pub sequence: U32,
}

layout!(ReplyHead, 16, { hash_bytes: 6, has_challenge: 8, dh_bytes: 10, sequence: 12 });

/// DH-HMAC-CHAP_Reply, understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// Its start.
    pub head: ReplyHead,
    /// R1.
    pub response: &'a [u8],
    /// C2; there in any case, and meaningless without CVALID.
    pub challenge: &'a [u8],
    /// The host's DH value, big-endian; empty for the group NULL.
    pub dh: &'a [u8],
}

impl<'a> Reply<'a> {
    /// Understands a message; `None` when it is shorter than it says.
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let (head, rest) = ReplyHead::read_from_prefix(message).ok()?;
        let (response, rest) = rest.split_at_checked(usize::from(head.hash_bytes))?;
        let (challenge, rest) = rest.split_at_checked(usize::from(head.hash_bytes))?;
        Some(Self { head, response, challenge, dh: rest.get(..usize::from(head.dh_bytes.get()))? })
    }
}

/// Start of DH-HMAC-CHAP_Success1: 16 bytes, then the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Success1Head {
    /// Head.
    pub head: Head,
    /// HL: bytes of a hash.
    pub hash_bytes: u8,
    _reserved7: u8,
    /// RVALID: 1 when there is a response.
    pub has_response: u8,
    _reserved9: [u8; 7],
}

layout!(Success1Head, 16, { hash_bytes: 6, has_response: 8 });

/// DH-HMAC-CHAP_Success1, understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Success1<'a> {
    /// Its start.
    pub head: Success1Head,
    /// R2, when there is one.
    pub response: Option<&'a [u8]>,
}

impl<'a> Success1<'a> {
    /// Understands a message; `None` when it is shorter than it says.
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let (head, rest) = Success1Head::read_from_prefix(message).ok()?;
        let response = match head.has_response & 1 {
            0 => None,
            _ => Some(rest.get(..usize::from(head.hash_bytes))?),
        };
        Some(Self { head, response })
    }
}

/// DH-HMAC-CHAP_Success2: 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Success2 {
    /// Head.
    pub head: Head,
    _reserved6: [u8; 10],
}

layout!(Success2, 16, { head: 0 });

/// AUTH_Failure1 or AUTH_Failure2: 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FailureMessage {
    /// Head.
    pub head: Head,
    /// Reason code: [`REASON_AUTHENTICATION_FAILURE`].
    pub reason: u8,
    /// Reason code explanation, see [`Failure`].
    pub explanation: u8,
}

layout!(FailureMessage, 8, { reason: 6, explanation: 7 });

impl FailureMessage {
    /// AUTH_Failure1 or AUTH_Failure2 of `transaction`.
    pub const fn new(auth_id: u8, transaction: u16, failure: Failure) -> Self {
        Self {
            head: Head::new(COMMON_MESSAGE, auth_id, transaction),
            reason: REASON_AUTHENTICATION_FAILURE,
            explanation: failure.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the Linux host sends first: three hash functions, six groups, transaction 1.
    fn negotiate() -> [u8; 72] {
        let mut message = [0; 72];
        message[..8].copy_from_slice(&[0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x01]);
        message[8..15].copy_from_slice(&[0x01, 0x00, 0x03, 0x06, 0x01, 0x02, 0x03]);
        message[42..48].copy_from_slice(&[0x00, 0x01, 0x02, 0x03, 0x04, 0x05]);
        message
    }

    #[test]
    fn a_negotiate_of_linux_is_understood_and_written_alike() {
        let bytes = negotiate();
        let message = Negotiate::parse(&bytes).expect("whole");
        assert_eq!(message.head.head, Head::new(COMMON_MESSAGE, message_id::NEGOTIATE, 1));
        assert_eq!(message.head.secure_channel, NO_SECURE_CHANNEL);
        let mut descriptors = message.descriptors();
        let descriptor = descriptors.next().expect("one");
        assert!(descriptors.next().is_none());
        assert_eq!(descriptor.protocol, DH_HMAC_CHAP);
        assert_eq!(descriptor.hashes(), Some(&[hash_id::SHA_256, hash_id::SHA_384, hash_id::SHA_512][..]));
        assert_eq!(descriptor.groups(), Some(&[0, 1, 2, 3, 4, 5][..]));
        assert_eq!(ProtocolDescriptor::dh_hmac_chap(1..=3, 0..=5), descriptor);
        assert_eq!(descriptor.as_bytes(), &bytes[8..]);
        assert!(Negotiate::parse(&bytes[..71]).is_none());
    }

    #[test]
    fn more_identifiers_than_fit_are_no_list() {
        let mut bytes = negotiate();
        (bytes[10], bytes[11]) = (31, 255);
        let message = Negotiate::parse(&bytes).expect("whole");
        let descriptor = message.descriptors().next().expect("one");
        assert_eq!((descriptor.hashes(), descriptor.groups()), (None, None));
        assert_eq!(ProtocolDescriptor::dh_hmac_chap(0..=255, 0..=255).hash_count, 30);
    }

    #[test]
    fn a_challenge_has_its_fields_where_the_specification_has_them() {
        let mut bytes = [0; 16 + 32 + 4];
        bytes[..16]
            .copy_from_slice(&[1, 1, 0, 0, 0x34, 0x12, 32, 0, 0x01, 0x05, 4, 0, 0x78, 0x56, 0x34, 0x12]);
        bytes[16..48].fill(0xc1);
        bytes[48..].fill(0xd1);
        let message = Challenge::parse(&bytes).expect("whole");
        assert_eq!(message.head.head.transaction.get(), 0x1234);
        assert_eq!((message.head.hash, message.head.group), (hash_id::SHA_256, group_id::FFDHE_8192));
        assert_eq!(message.head.sequence.get(), 0x1234_5678);
        assert_eq!((message.challenge, message.dh), (&[0xc1; 32][..], &[0xd1; 4][..]));
        assert!(Challenge::parse(&bytes[..51]).is_none());
        assert!(Challenge::parse(&bytes[..15]).is_none());
    }

    #[test]
    fn a_reply_has_its_fields_where_the_specification_has_them() {
        let mut bytes = [0; 16 + 48 + 48 + 2];
        bytes[..16].copy_from_slice(&[1, 2, 0, 0, 7, 0, 48, 0, 1, 0, 2, 0, 9, 0, 0, 0]);
        bytes[16..64].fill(0xa1);
        bytes[64..112].fill(0xc2);
        bytes[112..].fill(0xd2);
        let message = Reply::parse(&bytes).expect("whole");
        assert_eq!((message.head.has_challenge, message.head.sequence.get()), (1, 9));
        assert_eq!(message.response, [0xa1; 48]);
        assert_eq!(message.challenge, [0xc2; 48]);
        assert_eq!(message.dh, [0xd2; 2]);
        assert!(Reply::parse(&bytes[..113]).is_none());
    }

    #[test]
    fn successes_and_failures_have_their_fields_where_the_specification_has_them() {
        let mut bytes = [0; 16 + 32];
        bytes[..9].copy_from_slice(&[1, 3, 0, 0, 7, 0, 32, 0, 1]);
        bytes[16..].fill(0xa2);
        assert_eq!(Success1::parse(&bytes).expect("whole").response, Some(&[0xa2; 32][..]));
        assert!(Success1::parse(&bytes[..47]).is_none());
        bytes[8] = 0;
        assert_eq!(Success1::parse(&bytes[..16]).expect("whole").response, None);
        let failure = FailureMessage::new(message_id::FAILURE1, 0x0102, Failure::GROUP_NOT_USABLE);
        assert_eq!(failure.as_bytes(), [0x00, 0xf1, 0, 0, 0x02, 0x01, 0x01, 0x05]);
        let failure = FailureMessage::new(message_id::FAILURE2, 1, Failure::AUTHENTICATION_FAILED);
        assert_eq!(failure.as_bytes(), [0x00, 0xf0, 0, 0, 0x01, 0x00, 0x01, 0x01]);
    }
}
