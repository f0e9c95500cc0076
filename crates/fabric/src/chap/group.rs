//! Diffie-Hellman groups (RFC 7919) and the exchange in them.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod ffdhe;

use std::sync::OnceLock;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use unvme_spec::auth::{Failure, group_id};
use zeroize::Zeroizing;

use crate::interchange::random;

/// Bytes of a private exponent: more than twice the strength of the largest group, which RFC 7919 (5.2) asks
/// for.
const EXPONENT_BYTES: usize = 64;
/// The generator of every group.
const GENERATOR: u8 = 2;

/// A DH group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// No exchange: the response depends on the secret alone, which a listener can try to guess.
    Null,
    /// ffdhe2048.
    Ffdhe2048,
    /// ffdhe3072.
    Ffdhe3072,
    /// ffdhe4096.
    Ffdhe4096,
    /// ffdhe6144.
    Ffdhe6144,
    /// ffdhe8192.
    Ffdhe8192,
}

impl Group {
    /// All of them, in the order of [`super::Policy::default`].
    pub const ALL: [Self; 6] =
        [Self::Ffdhe3072, Self::Ffdhe4096, Self::Ffdhe6144, Self::Ffdhe8192, Self::Ffdhe2048, Self::Null];

    /// Its identifier in messages.
    pub(super) const fn id(self) -> u8 {
        match self {
            Self::Null => group_id::NULL,
            Self::Ffdhe2048 => group_id::FFDHE_2048,
            Self::Ffdhe3072 => group_id::FFDHE_3072,
            Self::Ffdhe4096 => group_id::FFDHE_4096,
            Self::Ffdhe6144 => group_id::FFDHE_6144,
            Self::Ffdhe8192 => group_id::FFDHE_8192,
        }
    }

    pub(super) fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.id() == id)
    }

    /// Bytes of a public value; 0 for [`Group::Null`].
    pub const fn bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 256,
            Self::Ffdhe3072 => 384,
            Self::Ffdhe4096 => 512,
            Self::Ffdhe6144 => 768,
            Self::Ffdhe8192 => 1024,
        }
    }

    /// Its prime, prepared for arithmetic; `None` for [`Group::Null`].
    fn prime(self) -> Option<&'static BoxedMontyParams> {
        static PRIMES: [OnceLock<BoxedMontyParams>; 5] = [const { OnceLock::new() }; 5];
        let (cell, digits) = match (self, &PRIMES) {
            (Self::Null, _) => return None,
            (Self::Ffdhe2048, [cell, ..]) => (cell, ffdhe::FFDHE_2048),
            (Self::Ffdhe3072, [_, cell, ..]) => (cell, ffdhe::FFDHE_3072),
            (Self::Ffdhe4096, [_, _, cell, ..]) => (cell, ffdhe::FFDHE_4096),
            (Self::Ffdhe6144, [.., cell, _]) => (cell, ffdhe::FFDHE_6144),
            (Self::Ffdhe8192, [.., cell]) => (cell, ffdhe::FFDHE_8192),
        };
        Some(cell.get_or_init(|| {
            let prime = BoxedUint::from_be_hex(digits, self.bits()).into_option();
            let prime = prime.and_then(|prime| Odd::new(prime).into_option());
            BoxedMontyParams::new_vartime(prime.expect("the table has odd numbers of the right length"))
        }))
    }

    const fn bits(self) -> u32 {
        // At most 1024 bytes.
        (self.bytes() as u32).saturating_mul(8)
    }
}

/// One end's part of an exchange.
pub(super) struct Exchange {
    group: Group,
    exponent: Zeroizing<BoxedUint>,
}

impl Exchange {
    /// A new exponent of random numbers; `None` for [`Group::Null`].
    pub(super) fn new(group: Group) -> Result<Option<Self>, Failure> {
        if group == Group::Null {
            return Ok(None);
        }
        let bytes = random(EXPONENT_BYTES).map_err(|_| Failure::AUTHENTICATION_FAILED)?;
        Ok(Some(Self::from_exponent(group, &bytes)))
    }

    pub(super) fn from_exponent(group: Group, bytes: &[u8]) -> Self {
        let bits = (bytes.len() as u32).saturating_mul(8);
        Self { group, exponent: Zeroizing::new(BoxedUint::from_be_slice_truncated(bytes, bits)) }
    }

    /// What the other end is told: big-endian, as long as the prime.
    pub(super) fn public(&self) -> Vec<u8> {
        let Some(prime) = self.group.prime() else { return Vec::new() };
        let generator = BoxedUint::from_be_slice_truncated(&[GENERATOR], self.group.bits());
        self.power(generator, prime).to_vec()
    }

    /// What both ends know afterwards: big-endian, as long as the prime. `None` when the other end's value is
    /// not one of the group's, or one that gives the result away (RFC 7919, 5.1).
    pub(super) fn shared(&self, theirs: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let prime = self.group.prime()?;
        if theirs.len() != self.group.bytes() {
            return None;
        }
        let theirs = BoxedUint::from_be_slice(theirs, self.group.bits()).ok()?;
        let one = BoxedUint::one_with_precision(self.group.bits());
        let last = prime.modulus().as_ref().wrapping_sub(&one);
        if theirs <= one || theirs >= last {
            return None;
        }
        Some(self.power(theirs, prime))
    }

    fn power(&self, base: BoxedUint, prime: &BoxedMontyParams) -> Zeroizing<Vec<u8>> {
        let power = Zeroizing::new(BoxedMontyForm::new(base, prime).pow(&self.exponent));
        Zeroizing::new(Zeroizing::new(power.retrieve()).to_be_bytes().into_vec())
    }
}
