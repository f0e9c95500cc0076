//! The hash functions of keys and authentication, and what is made of them: HMAC and HKDF.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use unvme_bus::SecretBytes;
use zeroize::Zeroize;

/// A hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

/// Label prefix of HKDF-Expand-Label (RFC 8446, 7.1).
const LABEL_PREFIX: &[u8] = b"tls13 ";

impl Hash {
    /// All of them, the strongest first.
    pub const ALL: [Self; 3] = [Self::Sha512, Self::Sha384, Self::Sha256];

    /// Bytes of a hash.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// The hash of `data`.
    pub(crate) fn of(self, data: &[u8]) -> SecretBytes {
        match self {
            Self::Sha256 => keep(&mut Sha256::digest(data)),
            Self::Sha384 => keep(&mut Sha384::digest(data)),
            Self::Sha512 => keep(&mut Sha512::digest(data)),
        }
    }

    /// HMAC of the parts, one after the other.
    pub(crate) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> SecretBytes {
        match self {
            Self::Sha256 => mac(Hmac::<Sha256>::new_from_slice(key), parts),
            Self::Sha384 => mac(Hmac::<Sha384>::new_from_slice(key), parts),
            Self::Sha512 => mac(Hmac::<Sha512>::new_from_slice(key), parts),
        }
    }

    /// HKDF-Extract with a salt of zeroes (RFC 5869, 2.2).
    pub(crate) fn extract(self, input: &[u8]) -> SecretBytes {
        // HMAC pads a key with zeroes: no key is one of zeroes.
        self.hmac(&[], &[input])
    }

    /// HKDF-Expand-Label (RFC 8446, 7.1) of at most 255 bytes; `None` when `label` or `context` has more than
    /// fit.
    pub(crate) fn expand_label(
        self,
        key: &[u8],
        label: &str,
        context: &[u8],
        bytes: u8,
    ) -> Option<SecretBytes> {
        let label_bytes = u8::try_from(LABEL_PREFIX.len().checked_add(label.len())?).ok()?;
        let context_bytes = u8::try_from(context.len()).ok()?;
        let (length, label_bytes, context_bytes) =
            (u16::from(bytes).to_be_bytes(), [label_bytes], [context_bytes]);
        let info = [&length, &label_bytes[..], LABEL_PREFIX, label.as_bytes(), &context_bytes, context];
        Some(self.expand(key, &info.concat(), bytes))
    }

    /// What libnvme 1.13 takes for HKDF-Expand-Label: nothing says how long label and context are, and the
    /// length is little-endian.
    pub(crate) fn expand_unprefixed_label(
        self,
        key: &[u8],
        label: &str,
        context: &[u8],
        bytes: u8,
    ) -> SecretBytes {
        let info = [&u16::from(bytes).to_le_bytes(), LABEL_PREFIX, label.as_bytes(), context];
        self.expand(key, &info.concat(), bytes)
    }

    /// HKDF-Expand (RFC 5869, 2.3).
    fn expand(self, key: &[u8], info: &[u8], bytes: u8) -> SecretBytes {
        let mut output = SecretBytes::zeroed(usize::from(bytes));
        let mut block = SecretBytes::zeroed(0);
        for (count, part) in (1..=u8::MAX).zip(output.chunks_mut(self.bytes())) {
            block = self.hmac(key, &[&block, info, &[count]]);
            part.copy_from_slice(&block[..part.len()]);
        }
        output
    }
}

fn mac<M: Mac, E: std::fmt::Debug>(mac: Result<M, E>, parts: &[&[u8]]) -> SecretBytes {
    let mut mac = mac.expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    keep(&mut mac.finalize().into_bytes())
}

/// Moves a result to where it is cleared in the end, and clears it here.
fn keep(output: &mut [u8]) -> SecretBytes {
    let kept = SecretBytes::copy_of(output);
    output.zeroize();
    kept
}
