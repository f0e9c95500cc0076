//! Values, or parts of them.

use unvme_driver::{Completion, DmaBuf, KvNamespace, KvVerdict};
use unvme_spec::samsung_kv;

use super::{BUFFER_BYTES_MIN, Kv};
use crate::{Error, Result};

/// Attempts to retrieve a value that others keep replacing by longer ones.
const ATTEMPTS: usize = 32;

/// What [`Kv::retrieve_into`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retrieved {
    /// Bytes at the start of the caller's buffer that hold data.
    pub copied: usize,
    /// Bytes of the whole value.
    pub value_bytes: u64,
}

impl Kv {
    /// The whole value of `key`; `None` when there is no such key.
    ///
    /// # Errors
    /// As [`Kv::retrieve_into`].
    pub fn retrieve(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let most = self.retrieve_bytes_max(key);
        let mut wanted = self.buf.as_ref().map_or(BUFFER_BYTES_MIN, DmaBuf::len).min(most);
        for _ in 0..ATTEMPTS {
            let Some((completion, value_bytes)) = self.retrieve_once(key, 0, wanted)? else {
                return Ok(None);
            };
            if value_bytes <= wanted {
                let mut value = vec![0; value_bytes];
                if let Some(buf) = &completion.buf {
                    buf.read(0, &mut value);
                }
                self.keep(completion.buf);
                return Ok(Some(value));
            }
            self.keep(completion.buf);
            if value_bytes > most {
                if let Some(value) = self.retrieve_pieces(key, value_bytes)? {
                    return Ok(Some(value));
                }
            } else {
                wanted = value_bytes.next_power_of_two().min(most);
            }
        }
        Err(Error::Argument(format!(
            "{}: the value changed each of {ATTEMPTS} times that it was retrieved",
            self.name
        )))
    }

    /// A value that takes several commands; `None` when it changed its size meanwhile.
    fn retrieve_pieces(&mut self, key: &[u8], value_bytes: usize) -> Result<Option<Vec<u8>>> {
        if !self.can_continue(key) {
            return Err(Error::Argument(format!(
                "{}: the value has {value_bytes} bytes, and a command moves {}",
                self.name,
                self.retrieve_bytes_max(key)
            )));
        }
        let mut value = vec![0; value_bytes];
        let found = self.retrieve_into(key, 0, &mut value)?;
        let whole = Retrieved { copied: value_bytes, value_bytes: value_bytes as u64 };
        Ok((found == Some(whole)).then_some(value))
    }

    /// The value of `key` from byte `offset` on, as much as `out` takes; `None` when there is no such key.
    /// Nothing is copied when the value ends before.
    ///
    /// A value that takes several commands, because `out` is longer than the device's limit, is not read in
    /// one moment: it can mix what others store meanwhile.
    ///
    /// # Errors
    /// [`Error::Argument`] for a key of a length that the device does not take; [`Error::Unsupported`] for an
    /// offset on a device without the vendor commands; [`Error::Device`], [`Error::Driver`].
    pub fn retrieve_into(&mut self, key: &[u8], offset: u32, out: &mut [u8]) -> Result<Option<Retrieved>> {
        if offset > 0 && !self.can_continue(key) {
            // Refused as any other offset is, and not only from the first multiple of 512 on.
            self.made(self.namespace.retrieve(self.key(key), samsung_kv::OFFSET_ALIGNMENT, out.len()))?;
        }
        let mut copied = 0;
        loop {
            let from = offset.saturating_add(copied as u32);
            // Retrieve starts at multiples of 512; what comes before is dropped here.
            let skip = (from % samsung_kv::OFFSET_ALIGNMENT) as usize;
            let most = match from {
                0 => self.retrieve_bytes_max(key),
                _ => self.namespace.vendor_value_bytes_max(),
            };
            let left = &mut out[copied..];
            let wanted = (left.len() + skip).min(most);
            let Some((completion, value_bytes)) = self.retrieve_once(key, from - skip as u32, wanted)? else {
                return Ok(None);
            };
            let behind = value_bytes.saturating_sub(from as usize);
            let mut there = wanted.saturating_sub(skip).min(behind);
            match &completion.buf {
                Some(buf) => buf.read(skip, &mut left[..there]),
                None => there = 0,
            }
            self.keep(completion.buf);
            copied += there;
            if there == behind || there == 0 || copied == out.len() || !self.can_continue(key) {
                return Ok(Some(Retrieved { copied, value_bytes: value_bytes as u64 }));
            }
        }
    }

    /// Bytes of the value of `key`; `None` when there is no such key.
    ///
    /// # Errors
    /// As [`Kv::retrieve_into`].
    pub fn value_bytes(&mut self, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.retrieve_once(key, 0, 0)?.map(|(_, value_bytes)| value_bytes as u64))
    }

    /// One Retrieve: its completion and the size of the whole value; `None` when there is no such key.
    fn retrieve_once(
        &mut self,
        key: &[u8],
        offset: u32,
        bytes: usize,
    ) -> Result<Option<(Completion, usize)>> {
        let command = self.made(self.namespace.retrieve(self.key(key), offset, bytes))?;
        let buf = if bytes > 0 { Some(self.buffer(bytes)?) } else { None };
        let completion = self.run(command, buf)?;
        if offset > 0 && completion.status.kind() == samsung_kv::status::INVALID_VALUE_OFFSET {
            // The value ends before the offset, which is no reason to fail.
            self.keep(completion.buf);
            return self.retrieve_once(key, 0, 0);
        }
        if KvVerdict::of(completion.status) == KvVerdict::NotFound {
            self.keep(completion.buf);
            return Ok(None);
        }
        self.check("retrieve", completion.status)?;
        let value_bytes = KvNamespace::value_bytes(completion.result) as usize;
        Ok(Some((completion, value_bytes)))
    }

    /// Most bytes of a value that one Retrieve from its start returns.
    fn retrieve_bytes_max(&self, key: &[u8]) -> usize {
        let namespace = &self.namespace;
        let standard = self.keyspace == 0 && key.len() <= namespace.standard_key_bytes_max();
        if standard { namespace.standard_value_bytes_max() } else { namespace.vendor_value_bytes_max() }
    }

    /// Whether a value can be retrieved from an offset on.
    fn can_continue(&self, key: &[u8]) -> bool {
        self.namespace.has_vendor() && key.len() >= samsung_kv::KEY_BYTES_MIN
    }
}
