//! What a key-value namespace takes, and how full it is.

use unvme_spec::samsung_kv;

use super::Kv;
use crate::{Error, Result};

/// What a namespace takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KvLimits {
    /// Fewest bytes of a key.
    pub key_bytes_min: usize,
    /// Most bytes of a key.
    pub key_bytes_max: usize,
    /// Most bytes of a value that one command stores.
    pub value_bytes_max: usize,
    /// Keyspaces: 1, or 2 with Samsung's vendor commands.
    pub keyspaces: u8,
    /// Most pairs, when the namespace has a limit.
    pub keys_max: Option<u32>,
    /// The Key Value Command Set, when the device has it.
    pub standard: Option<DialectLimits>,
    /// Samsung's vendor commands, when the device has them.
    pub vendor: Option<DialectLimits>,
}

/// What the commands of one dialect take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialectLimits {
    /// Fewest bytes of a key.
    pub key_bytes_min: usize,
    /// Most bytes of a key.
    pub key_bytes_max: usize,
    /// Most bytes of a value in one command.
    pub value_bytes_max: usize,
}

/// How full a namespace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvUsage {
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Write amplification in tenths, where the device has the log page that says so (CAh).
    pub waf_tenths: Option<u32>,
}

impl Kv {
    /// What the namespace takes.
    pub fn limits(&self) -> KvLimits {
        let namespace = &self.namespace;
        let standard = namespace.has_standard().then(|| DialectLimits {
            key_bytes_min: 1,
            key_bytes_max: namespace.standard_key_bytes_max(),
            value_bytes_max: namespace.standard_value_bytes_max(),
        });
        let vendor = namespace.has_vendor().then(|| DialectLimits {
            key_bytes_min: samsung_kv::KEY_BYTES_MIN,
            key_bytes_max: samsung_kv::KEY_BYTES_MAX,
            value_bytes_max: namespace.vendor_value_bytes_max(),
        });
        KvLimits {
            key_bytes_min: namespace.key_bytes_min(),
            key_bytes_max: namespace.key_bytes_max(),
            value_bytes_max: namespace.standard_value_bytes_max().max(namespace.vendor_value_bytes_max()),
            keyspaces: namespace.keyspaces(),
            keys_max: namespace.keys_max(),
            standard,
            vendor,
        }
    }

    /// How full the namespace is, read anew.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Driver`].
    pub fn usage(&self) -> Result<KvUsage> {
        let failed = |e| Error::driver(self.name.as_str(), e);
        let nsid = self.namespace.nsid();
        let (bytes, used_bytes) = if self.namespace.has_standard() {
            let identify = self.controller.identify_kv_namespace(nsid).map_err(failed)?;
            (identify.nsze, identify.nuse)
        } else {
            let identify = self.controller.identify_namespace(nsid).map_err(failed)?;
            let block_bytes = u64::from(identify.format().block_bytes().unwrap_or(0));
            (identify.nsze.saturating_mul(block_bytes), identify.nuse.saturating_mul(block_bytes))
        };
        let waf_tenths = match self.namespace.has_vendor() {
            true => self.controller.kv_waf_tenths().map_err(failed)?,
            false => None,
        };
        Ok(KvUsage { bytes, used_bytes, waf_tenths })
    }
}
