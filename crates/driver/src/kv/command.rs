//! Commands of either dialect.

use unvme_spec::kv;
use unvme_spec::samsung_kv::{
    self, IterateType, Prefix, Target, ValueSize, delete_option, retrieve_option, store_option,
};

use super::KvNamespace;
use crate::Error;
use crate::command::KvCommand;

/// A key, and the keyspace it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvKey<'a> {
    /// 0, or 1 on devices with Samsung's vendor commands.
    pub keyspace: u8,
    /// The key.
    pub bytes: &'a [u8],
}

impl<'a> KvKey<'a> {
    /// A key of keyspace 0.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { keyspace: 0, bytes }
    }
}

impl<'a> From<&'a [u8]> for KvKey<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        Self::new(bytes)
    }
}

/// When a store happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreCondition {
    /// Whether or not the key exists.
    #[default]
    Always,
    /// Only over an existing pair.
    IfExists,
    /// Only when there is no such key.
    IfNotExists,
}

/// Options of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreOptions {
    /// When it happens.
    pub condition: StoreCondition,
    /// Asks the device to compress the value, which only the vendor commands can.
    pub compress: bool,
}

impl StoreOptions {
    /// Only over an existing pair; the status is Key Does Not Exist otherwise.
    pub const IF_EXISTS: Self = Self { condition: StoreCondition::IfExists, compress: false };
    /// Only when there is no such key; the status is Key Exists otherwise.
    pub const IF_NOT_EXISTS: Self = Self { condition: StoreCondition::IfNotExists, compress: false };

    #[inline(always)]
    fn standard(self) -> kv::StoreOptions {
        kv::StoreOptions {
            must_exist: self.condition == StoreCondition::IfExists,
            must_not_exist: self.condition == StoreCondition::IfNotExists,
            no_compression: false,
        }
    }

    #[inline]
    pub(super) fn vendor(self) -> u8 {
        let condition = match self.condition {
            StoreCondition::Always => 0,
            StoreCondition::IfExists => store_option::UPDATE_ONLY,
            StoreCondition::IfNotExists => store_option::IDEMPOTENT,
        };
        condition | if self.compress { store_option::COMPRESS } else { 0 }
    }
}

/// What only the vendor commands can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    Compression,
    Offset,
    Append,
}

impl KvNamespace {
    /// Whether the standard set can express a command on `key`.
    ///
    /// Always inlined, as all between a typed call and the queue: the entry is then put together in
    /// registers.
    #[inline(always)]
    fn is_standard(&self, key: KvKey<'_>, need: Need) -> bool {
        key.keyspace == 0
            && need == Need::Nothing
            && key.bytes.len().wrapping_sub(1) < self.standard_key_bytes_max
    }

    /// Store: `bytes` bytes of the data buffer under `key`; 0 bytes are a value. Errors:
    /// [`Error::InvalidArgument`] for a key or a value of a length that no command here takes, or a keyspace
    /// there is not; [`Error::Unsupported`] for what takes the vendor commands on a device without them.
    #[inline(always)]
    pub fn store<'a>(
        &self,
        key: KvKey<'a>,
        bytes: usize,
        options: StoreOptions,
    ) -> Result<KvCommand<'a>, Error> {
        let need = if options.compress { Need::Compression } else { Need::Nothing };
        if self.is_standard(key, need)
            && bytes <= self.standard_value_bytes_max
            && let Some(wire) = kv::Key::new(key.bytes)
        {
            let options = options.standard();
            let command = kv::Command::Store { key: wire, value_bytes: bytes as u32, options };
            return Ok(KvCommand::standard(command.encode(self.nsid()), bytes));
        }
        self.vendor_store(key, bytes, options, need)
    }

    #[inline(never)]
    fn vendor_store<'a>(
        &self,
        key: KvKey<'a>,
        bytes: usize,
        options: StoreOptions,
        need: Need,
    ) -> Result<KvCommand<'a>, Error> {
        let wire = self.vendor_key(key, need)?;
        let size = ValueSize::of_bytes(self.vendor_bytes(key, bytes)?);
        let command = samsung_kv::Command::Store { key: wire, size, offset: 0, option: options.vendor() };
        Ok(self.vendor_command(command, key, bytes))
    }

    /// Append: adds `bytes` bytes of the data buffer to the end of a value. Errors: as
    /// [`KvNamespace::store`]: a vendor command.
    pub fn append<'a>(&self, key: KvKey<'a>, bytes: usize) -> Result<KvCommand<'a>, Error> {
        let wire = self.vendor_key(key, Need::Append)?;
        if !self.has_append() {
            return Err(self.lacking("append to a value"));
        }
        let size = ValueSize::of_bytes(self.vendor_bytes(key, bytes)?);
        let command = samsung_kv::Command::Append { key: wire, size, offset: 0, option: 0 };
        Ok(self.vendor_command(command, key, bytes))
    }

    /// Retrieve: a value from byte `offset` on, as much as `bytes` bytes of the data buffer take. Dword 0 of
    /// the completion is the size of the whole value ([`KvNamespace::value_bytes`]). A vendor command moves
    /// whole dwords: it can write up to three bytes more than `bytes`, which a buffer always has. Errors: as
    /// [`KvNamespace::store`]; [`Error::InvalidArgument`] also for an offset that is not a multiple of 512.
    #[inline(always)]
    pub fn retrieve<'a>(&self, key: KvKey<'a>, offset: u32, bytes: usize) -> Result<KvCommand<'a>, Error> {
        let need = if offset == 0 { Need::Nothing } else { Need::Offset };
        if self.is_standard(key, need)
            && bytes <= self.standard_value_bytes_max
            && let Some(wire) = kv::Key::new(key.bytes)
        {
            let command = kv::Command::Retrieve { key: wire, buffer_bytes: bytes as u32, raw: false };
            return Ok(KvCommand::standard(command.encode(self.nsid()), bytes));
        }
        self.vendor_retrieve(key, offset, bytes, need)
    }

    #[inline(never)]
    fn vendor_retrieve<'a>(
        &self,
        key: KvKey<'a>,
        offset: u32,
        bytes: usize,
        need: Need,
    ) -> Result<KvCommand<'a>, Error> {
        let wire = self.vendor_key(key, need)?;
        if !offset.is_multiple_of(samsung_kv::OFFSET_ALIGNMENT) {
            return Err(Error::InvalidArgument(format!(
                "namespace {}: retrieve from byte {offset}: a multiple of {} is expected",
                self.nsid(),
                samsung_kv::OFFSET_ALIGNMENT
            )));
        }
        let dwords = self.vendor_bytes(key, bytes)?.div_ceil(4);
        let option = if bytes == 0 { retrieve_option::SIZE_ONLY } else { retrieve_option::DECOMPRESS };
        let command = samsung_kv::Command::Retrieve { key: wire, dwords, offset, option };
        Ok(self.vendor_command(command, key, bytes))
    }

    /// Size of a whole value, from the result of a Retrieve that succeeded.
    #[inline]
    pub fn value_bytes(result: u64) -> u32 {
        // Dword 0 in either dialect.
        result as u32
    }

    /// Delete: a vendor command where there is one, as that always tells whether the key existed. The
    /// standard command tells when the namespace is configured so, see [`KvNamespace::delete_tells`]. Errors:
    /// as [`KvNamespace::store`].
    #[inline]
    pub fn delete<'a>(&self, key: KvKey<'a>) -> Result<KvCommand<'a>, Error> {
        self.delete_as(key, delete_option::CHECK_EXISTENCE)
    }

    /// Delete of a key that need not exist. The vendor command is then a success either way, and executed
    /// twice it is what it is executed once: it is sent again to a device that was out of reach. Errors: as
    /// [`KvNamespace::store`].
    #[inline]
    pub fn delete_if_present<'a>(&self, key: KvKey<'a>) -> Result<KvCommand<'a>, Error> {
        self.delete_as(key, 0)
    }

    #[inline]
    fn delete_as<'a>(&self, key: KvKey<'a>, option: u8) -> Result<KvCommand<'a>, Error> {
        if !self.has_vendor_for(key)
            && self.is_standard(key, Need::Nothing)
            && let Some(wire) = kv::Key::new(key.bytes)
        {
            return Ok(KvCommand::standard(kv::Command::Delete(wire).encode(self.nsid()), 0));
        }
        let wire = self.vendor_key(key, Need::Nothing)?;
        Ok(self.vendor_command(samsung_kv::Command::Delete { key: wire, option }, key, 0))
    }

    /// True when deleting a key that does not exist ends with an error status, and not with success.
    pub fn delete_tells(&self, key: KvKey<'_>) -> bool {
        self.has_vendor_for(key) || self.delete_missing_is_error
    }

    fn has_vendor_for(&self, key: KvKey<'_>) -> bool {
        self.has_vendor() && key.bytes.len() >= samsung_kv::KEY_BYTES_MIN
    }

    /// Exist: success when there is such a key. Errors: as [`KvNamespace::store`].
    #[inline(always)]
    pub fn exist<'a>(&self, key: KvKey<'a>) -> Result<KvCommand<'a>, Error> {
        if self.is_standard(key, Need::Nothing)
            && let Some(wire) = kv::Key::new(key.bytes)
        {
            return Ok(KvCommand::standard(kv::Command::Exist(wire).encode(self.nsid()), 0));
        }
        let wire = self.vendor_key(key, Need::Nothing)?;
        Ok(self.vendor_command(samsung_kv::Command::Exist { key: wire, option: 0 }, key, 0))
    }

    /// List: keys of keyspace 0 from `start` on, or from the first when that is empty, into `bytes` bytes of
    /// the data buffer, to be read with [`unvme_spec::kv::ListReader`]. Errors: [`Error::Unsupported`] on a
    /// namespace without the Key Value Command Set; [`Error::InvalidArgument`] for a start longer than any
    /// key, or a buffer that is too small for the number of keys or too long for one command.
    pub fn list(&self, start: &[u8], bytes: usize) -> Result<KvCommand<'static>, Error> {
        if !self.has_standard() {
            return Err(Error::Unsupported(format!(
                "namespace {} does not have the Key Value Command Set, which List is part of",
                self.nsid()
            )));
        }
        let wire = kv::Key::new(start).filter(|_| start.len() <= self.standard_key_bytes_max);
        let most = self.standard_value_bytes_max;
        match wire {
            Some(start) if (kv::LIST_HEADER_BYTES..=most).contains(&bytes) => {
                let command = kv::Command::List { start, buffer_bytes: bytes as u32 };
                Ok(KvCommand::standard(command.encode(self.nsid()), bytes))
            }
            _ => Err(Error::InvalidArgument(format!(
                "namespace {}: list from a key of {} bytes into {bytes} bytes: at most {} and {} to {most} are expected",
                self.nsid(),
                start.len(),
                self.standard_key_bytes_max,
                kv::LIST_HEADER_BYTES
            ))),
        }
    }

    /// Flush: everything that was completed before is on the media. The vendor commands have none: on a
    /// device with those alone it is the NVM Command Set's, which has the same opcode.
    pub fn flush(&self) -> KvCommand<'static> {
        KvCommand::standard(kv::Command::Flush.encode(self.nsid()), 0)
    }

    /// Iterate Request, open. Bits 7:0 of the completion's result are the iterator's identifier. Errors:
    /// [`Error::Unsupported`] without the vendor commands; [`Error::InvalidArgument`] for a keyspace there is
    /// not or a bitmask that is not ones from the most significant bit on.
    pub fn iterate_open(
        &self,
        keyspace: u8,
        kind: IterateType,
        prefix: Prefix,
    ) -> Result<KvCommand<'static>, Error> {
        if !prefix.is_contiguous() {
            return Err(Error::InvalidArgument(format!(
                "namespace {}: an iterator's bitmask of {:#010x}: ones from the most significant bit on are expected",
                self.nsid(),
                prefix.bitmask
            )));
        }
        self.iterator(keyspace, samsung_kv::Command::IterateOpen { kind: Ok(kind), prefix }, 0)
    }

    /// Iterate Request, close. Errors: as [`KvNamespace::iterate_open`].
    pub fn iterate_close(&self, keyspace: u8, iterator: u8) -> Result<KvCommand<'static>, Error> {
        self.iterator(keyspace, samsung_kv::Command::IterateClose { iterator }, 0)
    }

    /// Iterate Read into the first [`samsung_kv::ITERATE_BUFFER_BYTES`] bytes of the data buffer. The
    /// completion's result is the number of bytes that are valid. Errors: as [`KvNamespace::iterate_open`].
    pub fn iterate_read(&self, keyspace: u8, iterator: u8) -> Result<KvCommand<'static>, Error> {
        let bytes = samsung_kv::ITERATE_BUFFER_BYTES;
        let command = samsung_kv::Command::IterateRead { iterator, dwords: bytes / 4, option: 0 };
        self.iterator(keyspace, command, bytes as usize)
    }

    fn iterator(
        &self,
        keyspace: u8,
        command: samsung_kv::Command,
        bytes: usize,
    ) -> Result<KvCommand<'static>, Error> {
        if !self.has_vendor() {
            return Err(self.lacking("iterators"));
        }
        self.check_keyspace(keyspace)?;
        let sqe = command.encode(self.target(keyspace), self.keyspace_field);
        Ok(KvCommand { sqe, bytes, long_key: None, is_prp_only: true })
    }

    pub(super) fn target(&self, keyspace: u8) -> Target {
        Target { nsid: self.nsid(), keyspace: keyspace.into() }
    }

    fn vendor_command<'a>(
        &self,
        command: samsung_kv::Command,
        key: KvKey<'a>,
        bytes: usize,
    ) -> KvCommand<'a> {
        KvCommand {
            sqe: command.encode(self.target(key.keyspace), self.keyspace_field),
            bytes,
            long_key: (key.bytes.len() > samsung_kv::KEY_INLINE_BYTES).then_some(key.bytes),
            is_prp_only: true,
        }
    }

    /// The key of a vendor command. The address of a long one is for the queue to fill in.
    #[inline(never)]
    pub(super) fn vendor_key(&self, key: KvKey<'_>, need: Need) -> Result<samsung_kv::Key, Error> {
        let length = key.bytes.len();
        let fits = (samsung_kv::KEY_BYTES_MIN..=samsung_kv::KEY_BYTES_MAX).contains(&length);
        if !self.has_vendor() || !fits || key.keyspace >= samsung_kv::KEYSPACES {
            return Err(self.refuse_key(key, need));
        }
        Ok(samsung_kv::Key::inline(key.bytes)
            .unwrap_or(samsung_kv::Key::Memory { prp: [0; 2], length: length as u16 }))
    }

    pub(super) fn check_keyspace(&self, keyspace: u8) -> Result<(), Error> {
        if keyspace < self.keyspaces() {
            return Ok(());
        }
        Err(Error::InvalidArgument(format!(
            "namespace {}: keyspace {keyspace}: there {}",
            self.nsid(),
            if self.has_vendor() { "are 0 and 1" } else { "is 0 alone without Samsung's vendor commands" }
        )))
    }

    /// The number of bytes of a vendor command's value.
    pub(super) fn vendor_bytes(&self, key: KvKey<'_>, bytes: usize) -> Result<u32, Error> {
        if bytes <= self.vendor_value_bytes_max {
            return Ok(bytes as u32);
        }
        let most = self.vendor_value_bytes_max.max(self.standard_value_bytes_max);
        let reason = if bytes <= self.standard_value_bytes_max {
            // The standard set would take it, were it not for the rest of the command.
            format!(
                "this key or option takes a vendor command, and those move at most {} bytes",
                self.vendor_value_bytes_max
            )
        } else {
            format!("a command moves at most {most} bytes here")
        };
        Err(Error::InvalidArgument(format!(
            "namespace {}: {bytes} bytes under a key of {} bytes: {reason}",
            self.nsid(),
            key.bytes.len()
        )))
    }

    /// Why no command can be made for a key.
    #[cold]
    fn refuse_key(&self, key: KvKey<'_>, need: Need) -> Error {
        let length = key.bytes.len();
        let (min, max) = (self.key_bytes_min(), self.key_bytes_max());
        if !(min..=max).contains(&length) {
            let hint = match self.has_vendor() {
                false if (max + 1..=samsung_kv::KEY_BYTES_MAX).contains(&length) => {
                    "; longer ones take Samsung's vendor commands, which this device does not have"
                }
                _ => "",
            };
            return Error::InvalidArgument(format!(
                "namespace {}: a key of {length} bytes: {min} to {max} are possible{hint}",
                self.nsid()
            ));
        }
        if let Err(e) = self.check_keyspace(key.keyspace) {
            return e;
        }
        let what = match need {
            Need::Compression => "ask for compression",
            Need::Offset => "retrieve from an offset",
            Need::Append => "append to a value",
            Need::Nothing => "move a value of this size",
        };
        if !self.has_vendor() && need != Need::Nothing {
            return self.lacking(what);
        }
        // The standard set has no other reason to refuse a key that it takes.
        let is_too_large = self.is_standard(key, need);
        if length < samsung_kv::KEY_BYTES_MIN && !is_too_large {
            let why = if key.keyspace != 0 { "use keyspace 1" } else { what };
            return Error::InvalidArgument(format!(
                "namespace {}: {why} with a key of {length} bytes: that takes Samsung's vendor commands, whose keys have {} \
                 bytes or more",
                self.nsid(),
                samsung_kv::KEY_BYTES_MIN
            ));
        }
        Error::InvalidArgument(format!(
            "namespace {}: a command moves at most {} bytes of a value here",
            self.nsid(),
            self.standard_value_bytes_max
        ))
    }

    #[cold]
    pub(super) fn lacking(&self, what: &str) -> Error {
        Error::Unsupported(format!(
            "namespace {}: {what}: that takes Samsung's vendor commands, which this device does not have",
            self.nsid()
        ))
    }
}
