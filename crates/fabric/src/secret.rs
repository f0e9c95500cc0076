//! Secrets of in-band authentication: `DHHC-1:hh:BASE64:` (Base 8.3.4.5.7).
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use unvme_bus::SecretBytes;
use zeroize::Zeroizing;

use crate::interchange::{Form, Material, key, random};
use crate::{FabricError, Hash};

const FORM: Form = Form {
    kind: "DH-HMAC-CHAP secret (DHHC-1:hh:BASE64:)",
    prefix: "DHHC-1",
    hashes: &[Hash::Sha256, Hash::Sha384, Hash::Sha512],
    lengths: &[32, 48, 64],
};

/// What goes into a secret's transformation after the name (Base 8.3.4.5.7).
const TRANSFORMATION: &[u8] = b"NVMe-over-Fabrics";

/// What a host, or a subsystem, proves to know. Two are compared in constant time; it is cleared when dropped
/// and never printed, except by [`Secret::to_text`].
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Material);

impl Secret {
    /// A new secret of the system's random numbers, transformed by `hash` and as long as its output; 32 bytes
    /// without. Errors: [`FabricError::Os`] when the system has no random numbers.
    pub fn generate(hash: Option<Hash>) -> Result<Self, FabricError> {
        let key = random(hash.map_or(32, Hash::bytes))?;
        Ok(Self(Material { hash, key }))
    }

    /// Reads `DHHC-1:hh:BASE64:`; blanks and line ends around it do not count. Errors: [`FabricError::Key`]
    /// says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, FabricError> {
        FORM.parse(text).map(Self)
    }

    /// The secret as text, to be kept where nobody else can read it.
    pub fn to_text(&self) -> Zeroizing<String> {
        FORM.text(&self.0)
    }

    #[cfg(test)]
    pub(crate) fn of_bytes(hash: Option<Hash>, key: Vec<u8>) -> Self {
        Self(Material { hash, key: SecretBytes::copy_of(&key) })
    }

    /// The hash function that transforms it; `None` when it is used as it is.
    pub fn hash(&self) -> Option<Hash> {
        self.0.hash
    }

    /// The key of the responses of whoever is called `nqn`.
    pub(crate) fn transformed(&self, nqn: &str) -> SecretBytes {
        match self.0.hash {
            Some(hash) => hash.hmac(&self.0.key, &[nqn.as_bytes(), TRANSFORMATION]),
            None => self.0.key.clone(),
        }
    }
}

key!(Secret);

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";

    /// Made by `nvme gen-dhchap-key -m 0..3 -n HOST -s 000102..`, nvme-cli 2.3, which with a hash function
    /// prints the transformed key.
    const MADE_BY_NVME_CLI: [(Option<Hash>, &str); 4] = [
        (None, "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"),
        (Some(Hash::Sha256), "DHHC-1:01:bOHk6jHoMxpP5YJr/eF6XNOGuPAzh0iRniebpsVb9ydqVuR5:"),
        (
            Some(Hash::Sha384),
            "DHHC-1:02:JzgkyQ7IBRNgZgoVJQTRqDZ62Hnj5/kZ+vrrqjiE4TzoZZv5ycVS5cOLCiZ1bQfVVxJqow==:",
        ),
        (
            Some(Hash::Sha512),
            "DHHC-1:03:D+Ucidhr9Oh00yaKCrMLB2s2c/hsojlyxwni12p59UZ78f4YQ6UMpEcQG4yaPnLJFkljK+euytryvvQe2rYShiu0Vv0=:",
        ),
    ];

    #[test]
    fn secrets_of_nvme_cli_are_read_written_and_transformed_alike() {
        for (hash, text) in MADE_BY_NVME_CLI {
            let secret = Secret::parse(&format!(" {text}\n")).expect("a secret");
            assert_eq!((secret.hash(), secret.to_text().as_str()), (hash, text));
            let bytes = (0..hash.map_or(32, Hash::bytes) as u8).collect();
            assert_eq!(Secret::of_bytes(hash, bytes).transformed(HOST)[..], secret.0.key[..]);
        }
    }

    #[test]
    fn new_secrets_are_as_long_as_their_hash_and_never_the_same() {
        for hash in [None, Some(Hash::Sha256), Some(Hash::Sha384), Some(Hash::Sha512)] {
            let secret = Secret::generate(hash).expect("random numbers");
            let text = secret.to_text();
            assert_eq!(text.parse::<Secret>().expect("our own text"), secret);
            assert_eq!(secret.0.key.len(), hash.map_or(32, Hash::bytes));
            assert_ne!(Secret::generate(hash).expect("random numbers"), secret);
            assert_eq!(format!("{secret:?}"), "Secret(..)");
        }
    }
}
