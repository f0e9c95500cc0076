//! Keys as text: `PREFIX:hh:BASE64:`, where the base64 is of the key and its CRC-32, little-endian (Base
//! 8.3.4.5.7; NVMe/TCP Transport 3.6.1.5).
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use base64::engine::general_purpose::STANDARD;
use base64::{Engine, decoded_len_estimate};
use subtle::ConstantTimeEq;
use unvme_bus::{SecretBytes, random};
use zeroize::Zeroizing;

use crate::{FabricError, Hash};

/// Bytes of the CRC-32 after the key.
const CRC_BYTES: usize = 4;
/// Longest text of any key, with room for what an editor leaves at its end.
const TEXT_BYTES_MAX: usize = 128;

/// A form of keys.
pub(crate) struct Form {
    /// What it is called in messages.
    pub(crate) kind: &'static str,
    pub(crate) prefix: &'static str,
    /// Hash functions by their number, from 1 on; 0 is none.
    pub(crate) hashes: &'static [Hash],
    /// Lengths that a key can have.
    pub(crate) lengths: &'static [usize],
}

/// Bytes of a key with the hash function it is transformed by.
#[derive(Clone)]
pub(crate) struct Material {
    pub(crate) hash: Option<Hash>,
    pub(crate) key: SecretBytes,
}

impl PartialEq for Material {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && bool::from(self.key.ct_eq(&other.key))
    }
}

impl Eq for Material {}

/// What a type of [`Material`] owes its users: to be parsed, and not to be shown.
macro_rules! key {
    ($type:ident) => {
        impl std::str::FromStr for $type {
            type Err = FabricError;

            fn from_str(text: &str) -> Result<Self, FabricError> {
                Self::parse(text)
            }
        }

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!(stringify!($type), "(..)"))
            }
        }
    };
}

pub(crate) use key;

impl Form {
    /// Reads a key; blanks and line ends around it do not count.
    pub(crate) fn parse(&self, text: &str) -> Result<Material, FabricError> {
        let refuse = |reason| FabricError::Key { kind: self.kind, reason };
        let text = text.trim();
        if text.len() > TEXT_BYTES_MAX {
            return Err(refuse("it is too long"));
        }
        let mut fields = text.split(':');
        if fields.next() != Some(self.prefix) {
            return Err(refuse("it does not begin as such a key does"));
        }
        let (Some(number), Some(encoded), Some(""), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(refuse("four fields are expected: the prefix, two digits, base64, nothing"));
        };
        let hash =
            self.hash(number).ok_or_else(|| refuse("its hash function is not one of those defined"))?;
        let mut decoded = SecretBytes::zeroed(decoded_len_estimate(encoded.len()));
        let count = STANDARD.decode_slice(encoded, &mut decoded);
        let count = count.map_err(|_| refuse("its base64 cannot be decoded"))?;
        let key_bytes = count.checked_sub(CRC_BYTES).filter(|bytes| self.lengths.contains(bytes));
        let parts = decoded.get(..count).zip(key_bytes).and_then(|(all, at)| all.split_at_checked(at));
        let (key, crc) = parts.ok_or_else(|| refuse("its length is not one of those defined"))?;
        if crc != crc32fast::hash(key).to_le_bytes() {
            return Err(refuse("its checksum is wrong: it was not copied whole"));
        }
        Ok(Material { hash, key: SecretBytes::copy_of(key) })
    }

    /// The hash function behind two digits; `Some(None)` for none.
    fn hash(&self, number: &str) -> Option<Option<Hash>> {
        if number == "00" {
            return Some(None);
        }
        self.hashes.iter().find(|hash| self.number(Some(**hash)) == number).map(|hash| Some(*hash))
    }

    /// Two digits for a hash function.
    fn number(&self, hash: Option<Hash>) -> String {
        let position = hash.and_then(|hash| self.hashes.iter().position(|it| *it == hash));
        format!("{:02}", position.map_or(0, |position| position.saturating_add(1)))
    }

    /// The text of a key.
    pub(crate) fn text(&self, material: &Material) -> Zeroizing<String> {
        let mut bytes = SecretBytes::zeroed(material.key.len().saturating_add(CRC_BYTES));
        let crc = crc32fast::hash(&material.key).to_le_bytes();
        bytes.iter_mut().zip(material.key.iter().chain(&crc)).for_each(|(to, from)| *to = *from);
        // Long enough from the start: text that grows leaves copies behind.
        let mut text = Zeroizing::new(String::with_capacity(TEXT_BYTES_MAX));
        text.push_str(self.prefix);
        text.push(':');
        text.push_str(&self.number(material.hash));
        text.push(':');
        STANDARD.encode_string(&*bytes, &mut text);
        text.push(':');
        text
    }
}

/// Random bytes of the operating system.
pub(crate) fn random(bytes: usize) -> Result<SecretBytes, FabricError> {
    let mut bytes = SecretBytes::zeroed(bytes);
    random::fill(&mut bytes).map_err(|error| FabricError::os("ask the system for random numbers", error))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::{Psk, Secret};

    fn reason(text: &str) -> String {
        Secret::parse(text).expect_err("not a secret").to_string()
    }

    #[test]
    fn what_is_wrong_with_a_key_is_said_without_any_of_it() {
        const GOOD: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
        assert!(Secret::parse(GOOD).is_ok());
        for (text, expected) in [
            ("", "begin"),
            ("hunter2", "begin"),
            ("NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:", "begin"),
            ("DHHC-1:00", "four fields"),
            (&GOOD[..GOOD.len() - 1], "four fields"),
            (&format!("{GOOD}:"), "four fields"),
            (&GOOD.replace(":00:", ":04:"), "hash function"),
            (&GOOD.replace(":00:", ":0:"), "hash function"),
            (&GOOD.replace(":00:", ":+1:"), "hash function"),
            (&GOOD.replace("AAEC", "!!!!"), "base64"),
            (&GOOD.replace("AAEC", ""), "length"),
            ("DHHC-1:00::", "length"),
            ("DHHC-1:00:AAE=:", "length"),
            (&GOOD.replace("AAEC", "AAED"), "checksum"),
            (&GOOD.replace("KfiaR", "KfiaS"), "checksum"),
            (&"x".repeat(1000), "too long"),
        ] {
            let message = reason(text);
            assert!(message.contains(expected), "{text}: {message}");
            assert!(!message.contains("AAE") && !message.contains("hunter2"), "{message}");
        }
        // Three hash functions for secrets, two for keys of TLS.
        let third = "NVMeTLSkey-1:03:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
        assert!(Psk::parse(third).expect_err("SHA-512").to_string().contains("hash function"));
    }

    proptest! {
        #[test]
        fn no_text_makes_reading_a_key_panic(text in "(DHHC-1|NVMeTLSkey-1)?:?(0[0-4])?:?[A-Za-z0-9+/=:]{0,120}") {
            let _ = Secret::parse(&text);
            let _ = Psk::parse(&text);
        }

        #[test]
        fn a_key_with_one_character_changed_is_not_taken_for_another(at in 10_usize..58, with in "[A-Za-z0-9+/]") {
            let good = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
            let mut changed = good.to_owned();
            changed.replace_range(at..=at, &with);
            prop_assert!(changed == good || Secret::parse(&changed).is_err());
        }
    }
}
