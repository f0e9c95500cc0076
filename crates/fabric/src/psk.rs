//! Pre-shared keys of NVMe/TCP with TLS: `NVMeTLSkey-1:hh:BASE64:`, and what TLS is given of them (NVMe/TCP
//! Transport 3.6.1.3 to 3.6.1.5).
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use unvme_bus::SecretBytes;
use zeroize::Zeroizing;

use crate::interchange::{Form, Material, key, random};
use crate::{FabricError, Hash};

const FORM: Form = Form {
    kind: "TLS key (NVMeTLSkey-1:hh:BASE64:)",
    prefix: "NVMeTLSkey-1",
    hashes: &[Hash::Sha256, Hash::Sha384],
    lengths: &[32, 48],
};

/// What goes into a key's digest after the names.
const DIGEST_SUFFIX: &[u8] = b"NVMe-over-Fabrics";

/// A pre-shared key as it was configured. Two are compared in constant time; it is cleared when dropped and
/// never printed, except by [`Psk::to_text`].
#[derive(Clone, PartialEq, Eq)]
pub struct Psk(Material);

/// Which of the two ways to make a key of TLS, and its name, of a configured one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PskVersion {
    /// Identity `NVMe0R0h HOSTNQN SUBNQN` (NVMe/TCP Transport 1.0).
    V0,
    /// Identity `NVMe1R0h HOSTNQN SUBNQN DIGEST`, which several keys of one pair of names can have.
    V1,
    /// As [`PskVersion::V1`], derived as nvme-cli 2.13 does, which is Debian 13's: its `nvme gen-tls-key
    /// --insert` makes such keys, whose digest tells them apart. Those it makes with the identity of
    /// [`PskVersion::V0`] cannot be told apart.
    V1Unprefixed,
}

impl PskVersion {
    /// All of them, the one to be tried first first.
    pub const ALL: [Self; 3] = [Self::V1, Self::V0, Self::V1Unprefixed];
}

impl Psk {
    /// A new key of the system's random numbers, retained by `hash` and as long as its output; 32 bytes
    /// without. Errors: [`FabricError::Os`] when the system has no random numbers, [`FabricError::Key`] for
    /// SHA-512, which such keys do not have.
    pub fn generate(hash: Option<Hash>) -> Result<Self, FabricError> {
        if hash == Some(Hash::Sha512) {
            return Err(FabricError::Key { kind: FORM.kind, reason: "SHA-256 or SHA-384 is expected" });
        }
        let key = random(hash.map_or(32, Hash::bytes))?;
        Ok(Self(Material { hash, key }))
    }

    /// Reads `NVMeTLSkey-1:hh:BASE64:`; blanks and line ends around it do not count. Errors:
    /// [`FabricError::Key`] says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, FabricError> {
        let material = FORM.parse(text)?;
        if material.hash.is_some_and(|hash| hash.bytes() != material.key.len()) {
            return Err(FabricError::Key {
                kind: FORM.kind,
                reason: "its length is not that of its hash function",
            });
        }
        Ok(Self(material))
    }

    /// The key as text, to be kept where nobody else can read it.
    pub fn to_text(&self) -> Zeroizing<String> {
        FORM.text(&self.0)
    }

    /// The hash function by which a host's own key is retained; `None` when it is used as it is.
    pub fn hash(&self) -> Option<Hash> {
        self.0.hash
    }

    /// Hash function of the keys of TLS that are made of this one: its own, or without one that of its
    /// length.
    pub fn cipher_hash(&self) -> Hash {
        match self.0.hash {
            Some(hash) => hash,
            None if self.0.key.len() == Hash::Sha384.bytes() => Hash::Sha384,
            None => Hash::Sha256,
        }
    }

    /// The key of TLS between a host and a subsystem, with its identity. Errors: [`FabricError::Key`] when
    /// the names are longer than the derivation has room for.
    pub fn tls(&self, version: PskVersion, hostnqn: &str, subnqn: &str) -> Result<TlsPsk, FabricError> {
        let long =
            || FabricError::Key { kind: FORM.kind, reason: "the names of host and subsystem are too long" };
        let hash = self.cipher_hash();
        let retained = match self.0.hash {
            Some(hash) => self.expand(hash, version, &self.0.key, "HostNQN", hostnqn).ok_or_else(long)?,
            None => self.0.key.clone(),
        };
        let number = if hash == Hash::Sha256 { 1 } else { 2 };
        let (identity, context) = match version {
            PskVersion::V0 => {
                let identity = format!("NVMe0R{number:02} {hostnqn} {subnqn}");
                (identity.clone(), identity)
            }
            PskVersion::V1 | PskVersion::V1Unprefixed => {
                let parts = [hostnqn.as_bytes(), b" ", subnqn.as_bytes(), b" ", DIGEST_SUFFIX];
                let digest = STANDARD.encode(&*hash.hmac(&retained, &parts));
                (format!("NVMe1R{number:02} {hostnqn} {subnqn} {digest}"), format!("{number:02} {digest}"))
            }
        };
        let key = self.expand(hash, version, &retained, "nvme-tls-psk", &context).ok_or_else(long)?;
        Ok(TlsPsk { identity, hash, key })
    }

    /// HKDF of `key`, as long as the output of the hash function; `None` when `context` is too long.
    fn expand(
        &self,
        hash: Hash,
        version: PskVersion,
        key: &[u8],
        label: &str,
        context: &str,
    ) -> Option<SecretBytes> {
        let bytes = u8::try_from(hash.bytes()).ok()?;
        let (key, context) = (hash.extract(key), context.as_bytes());
        match version {
            PskVersion::V0 | PskVersion::V1 => hash.expand_label(&key, label, context, bytes),
            PskVersion::V1Unprefixed => Some(hash.expand_unprefixed_label(&key, label, context, bytes)),
        }
    }
}

key!(Psk);

/// A key as TLS uses it, between one host and one subsystem. Cleared when dropped and never printed.
#[derive(Clone)]
pub struct TlsPsk {
    identity: String,
    hash: Hash,
    #[cfg_attr(not(feature = "tls"), allow(dead_code))]
    key: SecretBytes,
}

impl TlsPsk {
    /// Its name, which is sent in the clear.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Hash function of the cipher suite.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    #[cfg(feature = "tls")]
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }
}

unvme_bus::debug_parts!(TlsPsk { identity });

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "nqn.psk-test-host";
    const SUBSYSTEM: &str = "nqn.psk-test-subsys";

    /// From libnvme's own tests (test/psk.c): keys in the interchange form, and the identities made of them.
    const OF_LIBNVME: [(&str, Option<&str>); 3] = [
        ("NVMeTLSkey-1:00:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:", None),
        (
            "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:",
            Some(
                "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU=",
            ),
        ),
        (
            "NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:",
            Some(
                "NVMe1R02 nqn.psk-test-host nqn.psk-test-subsys \
                 QhW2+Rp6RzHlNtCslyRxMnwJ11tKKhz8JCAQpQ+XUD8f9td1VeH5h53yz2wKJG1a",
            ),
        ),
    ];

    #[test]
    fn keys_of_libnvme_are_read_and_named_alike() {
        for (text, identity) in OF_LIBNVME {
            let psk = Psk::parse(text).expect("a key");
            assert_eq!(psk.to_text().as_str(), text);
            let Some(identity) = identity else { continue };
            assert_eq!(psk.tls(PskVersion::V1, HOST, SUBSYSTEM).expect("a TLS key").identity(), identity);
        }
        let psk = Psk::parse(OF_LIBNVME[1].0).expect("a key");
        let tls = psk.tls(PskVersion::V0, HOST, SUBSYSTEM).expect("a TLS key");
        assert_eq!(tls.identity(), "NVMe0R01 nqn.psk-test-host nqn.psk-test-subsys");
        assert_eq!(tls.hash(), Hash::Sha256);
    }

    /// What `nvme gen-tls-key --insert --hmac 1 --identity 0|1` of nvme-cli puts into a keyring for
    /// [`OF_LIBNVME`]'s second key: version 2.16, and for the last one 2.13.
    #[test]
    fn keys_of_tls_are_those_that_nvme_cli_gives_the_kernel() {
        let psk = Psk::parse(OF_LIBNVME[1].0).expect("a key");
        for (version, identity, key) in [
            (
                PskVersion::V0,
                "NVMe0R01 nqn.psk-test-host nqn.psk-test-subsys",
                "05c6503551ad136e6ee32e6eeb3f6d500b69701d84ec71e328f65c7f51566f68",
            ),
            (
                PskVersion::V1,
                "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU=",
                "8fc3c0badfd4c0c66fa3ca33aadd0314f85536cc9bc47338b60f3e6e563786ca",
            ),
            (
                PskVersion::V1Unprefixed,
                "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys 66GuqV08TsAGII39teWUfwQwizjv06Jy8jOcX3NAAzM=",
                "b9f5ab2a41ba6e72a23a12066302a2f775fa6c0942c8e0b18ca8ac07edf305e2",
            ),
        ] {
            let tls = psk.tls(version, HOST, SUBSYSTEM).expect("a TLS key");
            let digits: String = tls.key.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!((tls.identity(), digits.as_str()), (identity, key));
        }
    }

    /// From the unit tests of the Linux kernel (drivers/nvme/common/tests/auth_kunit.c): a key that is used
    /// as it is, its digest, and the key of TLS.
    #[test]
    fn keys_of_tls_are_those_the_kernel_derives() {
        let sha256 = (
            [
                0x17, 0x33, 0xc5, 0x9f, 0xa7, 0xf4, 0x8f, 0xcf, 0x37, 0xf5, 0xf2, 0x6f, 0xc4, 0xff, 0x02,
                0x68, 0xad, 0x4f, 0x78, 0xe0, 0x30, 0xf4, 0xf3, 0xb0, 0xbf, 0xd1, 0xd4, 0x7e, 0x7b, 0xb1,
                0x44, 0x7a,
            ]
            .as_slice(),
            "NVMe1R01 hostnqn subsysnqn OldoKuTfKddMuyCznAZojkWD7P4D9/AtzDzLimtOxqI=",
            [
                0x3c, 0x17, 0xda, 0x62, 0x84, 0x74, 0xa0, 0x4d, 0x22, 0x47, 0xc4, 0xca, 0xb4, 0x79, 0x68,
                0xc9, 0x15, 0x38, 0x81, 0x93, 0xf7, 0xc0, 0x71, 0xbd, 0x94, 0x89, 0xcc, 0x36, 0x66, 0xcd,
                0x7c, 0xc8,
            ]
            .as_slice(),
        );
        let sha384 = (
            [
                0xf1, 0x4b, 0x2d, 0xd3, 0x23, 0x4c, 0x45, 0x96, 0x94, 0xd3, 0xbc, 0x63, 0xf8, 0x96, 0x8b,
                0xd6, 0xb3, 0x7c, 0x2c, 0x6d, 0xe8, 0x49, 0xe2, 0x2e, 0x11, 0x87, 0x49, 0x00, 0x1c, 0xe4,
                0xbb, 0xe8, 0x64, 0x0b, 0x9e, 0x3a, 0x74, 0x8c, 0xb1, 0x1c, 0xe4, 0xb1, 0xd7, 0x1d, 0x35,
                0x9c, 0xce, 0x39,
            ]
            .as_slice(),
            "NVMe1R02 hostnqn subsysnqn cffMWk8TSS7HOQebjgYEIkrPrjWPV4JE5cdPB8WhEvY4JBW5YynKyv66XscN4A9n",
            [
                0x27, 0x74, 0x75, 0x32, 0x33, 0x53, 0x7b, 0x3f, 0xa5, 0x0e, 0xb7, 0xd1, 0x6a, 0x8e, 0x43,
                0x45, 0x7d, 0x85, 0xf4, 0x90, 0x6c, 0x00, 0x5b, 0x22, 0x36, 0x61, 0x6c, 0x5d, 0x80, 0x93,
                0x9d, 0x08, 0x98, 0xff, 0xf1, 0x5b, 0xb8, 0xb7, 0x71, 0x19, 0xd2, 0xbe, 0x0a, 0xac, 0x42,
                0x3e, 0x75, 0x90,
            ]
            .as_slice(),
        );
        for (key, identity, tls_key) in [sha256, sha384] {
            let psk = Psk(Material { hash: None, key: SecretBytes::copy_of(key) });
            let tls = psk.tls(PskVersion::V1, "hostnqn", "subsysnqn").expect("a TLS key");
            assert_eq!((tls.identity(), &tls.key[..]), (identity, tls_key));
        }
    }

    #[test]
    fn a_key_is_as_long_as_its_hash() {
        for text in [OF_LIBNVME[1].0.replace(":01:", ":02:"), OF_LIBNVME[2].0.replace(":02:", ":01:")] {
            let error = Psk::parse(&text).expect_err("of another length").to_string();
            assert!(error.contains("length"), "{error}");
        }
    }

    #[test]
    fn new_keys_are_read_back_and_never_printed() {
        for hash in [None, Some(Hash::Sha256), Some(Hash::Sha384)] {
            let psk = Psk::generate(hash).expect("random numbers");
            assert_eq!(psk.to_text().parse::<Psk>().expect("our own text"), psk);
            assert_eq!(psk.hash(), hash);
            assert_eq!(format!("{psk:?}"), "Psk(..)");
        }
        assert!(matches!(Psk::generate(Some(Hash::Sha512)), Err(FabricError::Key { .. })));
    }

    #[test]
    fn names_too_long_for_the_derivation_are_an_error() {
        let psk = Psk::generate(Some(Hash::Sha256)).expect("random numbers");
        let long = "n".repeat(223);
        assert!(psk.tls(PskVersion::V0, &long, &long).is_err());
        assert!(psk.tls(PskVersion::V1, &long, &long).is_ok());
    }
}
