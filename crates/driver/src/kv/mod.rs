//! A key-value namespace: its limits, and commands that are checked before they are sent.
//!
//! There are two sets of commands for the same pairs. A device has one of them, or both over one index:
//!
//! | | Key Value Command Set | Samsung's vendor commands |
//! |---|---|---|
//! | keys | 1 to 16 bytes | 4 to 255 bytes, in two keyspaces |
//! | values | up to the format's limit, whole | up to 2 MiB per command; parts retrieved; appended to |
//! | enumeration | List, from a key on | iterators by the first four bytes |
//! | several at once | - | batches of eight |
//!
//! A command goes out in the standard set when that can express it, and as a vendor command otherwise: long
//! keys, keyspace 1, offsets, append, asking for compression, iterators and batches.

mod batch;
mod command;
mod status;
#[cfg(test)]
mod tests;

use unvme_spec::feature::{KeyValueConfiguration, fid};
use unvme_spec::identify::{KvNamespaceIdentify, cns, csi};
use unvme_spec::log_page::{CommandsSupported, command_effects, lid};
use unvme_spec::samsung_kv::{self, KeyspaceField, Target, opcode};
use unvme_spec::samsung_log::{WafLog, lid::WAF};
use unvme_spec::{Nsid, Status, admin, kv};
use zerocopy::FromBytes;

pub use batch::KvBatchOp;
pub use command::{KvKey, StoreCondition, StoreOptions};
pub use status::KvVerdict;

use crate::{Controller, Error, LogRequest, QueueOptions};

/// Whether to use Samsung's vendor commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VendorCommands {
    /// When the Commands Supported and Effects log lists all of 81h, 90h, A1h, B1h, B2h and B3h for the
    /// namespace's command set. The log names opcodes and not what they mean: a device of another vendor that
    /// uses the same six needs [`VendorCommands::Never`], one of the family that has no such log
    /// [`VendorCommands::Always`].
    #[default]
    Detect,
    /// All of them, whatever the device says about itself.
    Always,
    /// None of them.
    Never,
    /// All of them, and nothing of the Key Value Command Set, on a namespace that has both.
    Only,
}

/// How to treat a key-value namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvOptions {
    /// Whether to use the vendor commands.
    pub vendor: VendorCommands,
    /// Where vendor commands name their keyspace. `None` finds out with one vendor Exist on a queue of its
    /// own, which names namespace 0: that is keyspace 0 to the one kind, and no namespace to the other.
    pub keyspace_field: Option<KeyspaceField>,
}

/// The vendor commands a namespace takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Vendor {
    basic: bool,
    append: bool,
    batch: bool,
}

/// What the driver knows of a key-value namespace. A value: it does not follow a format; open it again after
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvNamespace {
    nsid: Nsid,
    /// It has the Key Value Command Set.
    standard: bool,
    vendor: Vendor,
    keyspace_field: KeyspaceField,
    /// Longest key of the standard set; 0 without it.
    standard_key_bytes_max: usize,
    /// Largest value of the standard set; 0 without it.
    standard_value_bytes_max: usize,
    /// Largest value of a vendor command; 0 without them.
    vendor_value_bytes_max: usize,
    /// EDNEK: the standard Delete tells when there was no such key.
    delete_missing_is_error: bool,
    bytes: u64,
    keys_max: Option<u32>,
}

impl KvNamespace {
    /// Reads what there is to know about an active namespace, and detects the vendor commands. Errors: as
    /// [`KvNamespace::open_with`].
    pub fn open(controller: &Controller, nsid: Nsid) -> Result<Self, Error> {
        Self::open_with(controller, nsid, KvOptions::default())
    }

    /// Reads what there is to know about an active namespace.
    ///
    /// A namespace of the NVM Command Set is a key-value namespace when its vendor commands say so: Samsung's
    /// first devices know no command sets. Errors: [`Error::Unsupported`] when the namespace is not active or
    /// has no key-value commands; [`Error::Status`] and those of [`Controller::admin`].
    pub fn open_with(controller: &Controller, nsid: Nsid, options: KvOptions) -> Result<Self, Error> {
        let set = controller.namespace_command_set(nsid)?;
        let vendor = match options.vendor {
            // They use dwords 4 and 5, and a second pointer for long keys, which the kernel's driver does not
            // pass on.
            VendorCommands::Always | VendorCommands::Only if controller.is_kernel() => {
                return Err(Error::Unsupported(
                    "Samsung's vendor commands cannot be passed through the kernel's driver; a drive taken over with \
                     `unvme setup config` can do them"
                        .to_owned(),
                ));
            }
            _ if controller.is_kernel() => Vendor::default(),
            VendorCommands::Never => Vendor::default(),
            VendorCommands::Always | VendorCommands::Only => {
                Vendor { basic: true, append: true, batch: true }
            }
            VendorCommands::Detect => Vendor::detect(controller, set)?,
        };
        let standard = set == csi::KEY_VALUE;
        if !standard && !vendor.basic {
            return Err(Error::Unsupported(format!(
                "namespace {nsid} has command set {set:#04x} and no key-value commands"
            )));
        }
        let transfer_bytes_max = controller.transfer_bytes_max();
        let mut namespace = Self {
            nsid,
            standard,
            vendor,
            keyspace_field: options.keyspace_field.unwrap_or_default(),
            standard_key_bytes_max: 0,
            standard_value_bytes_max: 0,
            vendor_value_bytes_max: 0,
            delete_missing_is_error: false,
            bytes: 0,
            keys_max: None,
        };
        if vendor.basic {
            if options.keyspace_field.is_none() {
                namespace.keyspace_field = find_keyspace_field(controller)?;
            }
            namespace.vendor_value_bytes_max =
                transfer_bytes_max.min(samsung_kv::VALUE_BYTES_MAX as usize) & !3;
        }
        if standard {
            namespace.learn(&controller.identify_kv_namespace(nsid)?, transfer_bytes_max);
            if vendor.basic {
                // What the namespace says of itself is of all its values, however they are stored.
                namespace.vendor_value_bytes_max = namespace.standard_value_bytes_max & !3;
            }
            namespace.delete_missing_is_error = reads_delete_as_error(controller, nsid)?;
        } else {
            let identify = controller.identify_namespace(nsid)?;
            let block_bytes = identify.format().block_bytes().unwrap_or(0);
            namespace.bytes = identify.nsze.saturating_mul(block_bytes.into());
        }
        if namespace.bytes == 0 {
            return Err(Error::Unsupported(format!("namespace {nsid} is not active")));
        }
        if options.vendor == VendorCommands::Only {
            namespace.standard = false;
            (namespace.standard_key_bytes_max, namespace.standard_value_bytes_max) = (0, 0);
        }
        Ok(namespace)
    }

    fn learn(&mut self, identify: &KvNamespaceIdentify, transfer_bytes_max: usize) {
        let format = identify.format();
        // A zero leaves the limit to the command.
        let or_most = |limit: u32, most: usize| if limit == 0 { most } else { most.min(limit as usize) };
        self.bytes = identify.nsze;
        self.keys_max = (format.mnks != 0).then_some(format.mnks);
        self.standard_key_bytes_max = or_most(format.kvkml.into(), kv::KEY_BYTES_MAX);
        self.standard_value_bytes_max = or_most(format.kvvml, transfer_bytes_max);
    }

    /// Namespace identifier.
    pub fn nsid(&self) -> Nsid {
        self.nsid
    }

    /// True when it has the Key Value Command Set.
    #[inline]
    pub fn has_standard(&self) -> bool {
        self.standard
    }

    /// True when it has Samsung's vendor commands.
    #[inline]
    pub fn has_vendor(&self) -> bool {
        self.vendor.basic
    }

    /// True when it has the vendor's Append.
    pub fn has_append(&self) -> bool {
        self.vendor.append
    }

    /// True when it has the vendor's Batch.
    pub fn has_batch(&self) -> bool {
        self.vendor.batch
    }

    /// Size in bytes, as Identify says.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Most pairs, when the format has a limit.
    pub fn keys_max(&self) -> Option<u32> {
        self.keys_max
    }

    /// Fewest bytes of a key.
    pub fn key_bytes_min(&self) -> usize {
        if self.standard { 1 } else { samsung_kv::KEY_BYTES_MIN }
    }

    /// Most bytes of a key.
    pub fn key_bytes_max(&self) -> usize {
        if self.vendor.basic { samsung_kv::KEY_BYTES_MAX } else { self.standard_key_bytes_max }
    }

    /// Most bytes of a key of the standard set; 0 when the namespace does not have that.
    pub fn standard_key_bytes_max(&self) -> usize {
        self.standard_key_bytes_max
    }

    /// Most bytes of a value in one command of the standard set; 0 when the namespace does not have that.
    pub fn standard_value_bytes_max(&self) -> usize {
        self.standard_value_bytes_max
    }

    /// Most bytes of a value in one vendor command; 0 when the namespace has none.
    pub fn vendor_value_bytes_max(&self) -> usize {
        self.vendor_value_bytes_max
    }

    /// Keyspaces.
    pub fn keyspaces(&self) -> u8 {
        if self.vendor.basic { samsung_kv::KEYSPACES } else { 1 }
    }
}

impl Vendor {
    /// Asks the Commands Supported and Effects log of a command set. A controller without it has none of the
    /// commands.
    fn detect(controller: &Controller, set: u8) -> Result<Self, Error> {
        let request = LogRequest {
            lid: lid::COMMANDS_SUPPORTED,
            csi: set,
            bytes: size_of::<CommandsSupported>(),
            ..Default::default()
        };
        let bytes = match controller.get_log(&request) {
            Err(e) if e.status().is_some_and(is_unknown_log) => return Ok(Self::default()),
            other => other?,
        };
        let Ok(log) = CommandsSupported::read_from_bytes(&bytes) else {
            return Err(Error::Protocol("Commands Supported and Effects is not 4096 bytes".to_owned()));
        };
        let has = |opcode: u8| log.io[usize::from(opcode)] & command_effects::CSUPP != 0;
        let basic = [
            opcode::STORE,
            opcode::RETRIEVE,
            opcode::DELETE,
            opcode::ITERATE_REQUEST,
            opcode::ITERATE_READ,
            opcode::EXIST,
        ]
        .into_iter()
        .all(has);
        Ok(Self { basic, append: basic && has(opcode::APPEND), batch: basic && has(opcode::BATCH) })
    }
}

impl Controller {
    /// Identify Namespace of the Key Value Command Set (CNS 05h, CSI 01h), read anew. Errors:
    /// [`Error::Status`] and those of [`Controller::admin`].
    pub fn identify_kv_namespace(&self, nsid: Nsid) -> Result<KvNamespaceIdentify, Error> {
        self.identify_as(admin::Identify {
            nsid,
            cns: cns::COMMAND_SET_NAMESPACE,
            csi: csi::KEY_VALUE,
            ..Default::default()
        })
    }

    /// Write amplification in tenths, from the vendor's log page CAh; `None` when the controller does not
    /// have that. Errors: [`Error::Status`] and those of [`Controller::admin`].
    pub fn kv_waf_tenths(&self) -> Result<Option<u32>, Error> {
        let request = LogRequest { lid: WAF, bytes: size_of::<WafLog>(), ..Default::default() };
        match self.get_log(&request) {
            Err(e) if e.status().is_some_and(is_unknown_log) => Ok(None),
            Err(e) => Err(e),
            Ok(bytes) => Ok(WafLog::read_from_bytes(&bytes).ok().map(|log| log.waf_tenths)),
        }
    }
}

/// Asks the device where its vendor commands name their keyspace.
fn find_keyspace_field(controller: &Controller) -> Result<KeyspaceField, Error> {
    let options = QueueOptions { depth: 1, ..QueueOptions::default() };
    let mut queue = match controller.create_queue(&options) {
        Err(Error::Exhausted(reason)) => {
            tracing::warn!(reason, "no queue to ask for the place of the keyspace: CDW3 it is");
            return Ok(KeyspaceField::Cdw3);
        }
        other => other?,
    };
    let key = samsung_kv::Key::Inline { bytes: [0; samsung_kv::KEY_INLINE_BYTES], length: 4 };
    let target = Target { nsid: Nsid::NONE, keyspace: 0 };
    let sqe = samsung_kv::Command::Exist { key, option: 0 }.encode(target, KeyspaceField::Cdw3);
    queue.submit(sqe, None, 0)?;
    while !queue.wait(options.command_timeout)? {}
    let status = queue.poll(1).next().map(|completion| completion.status);
    Ok(match status.map(KvVerdict::of) {
        Some(KvVerdict::Done | KvVerdict::NotFound) => KeyspaceField::Nsid,
        _ => KeyspaceField::Cdw3,
    })
}

/// EDNEK of the Key Value Configuration. Namespaces without the feature are older than the choice: to them it
/// is an error.
fn reads_delete_as_error(controller: &Controller, nsid: Nsid) -> Result<bool, Error> {
    let feature = admin::GetFeatures { nsid, fid: fid::KEY_VALUE_CONFIGURATION, ..Default::default() };
    match controller.get_feature(feature, 0) {
        Err(e) if e.status().is_some_and(|status| status.kind() == Status::INVALID_FIELD) => Ok(true),
        other => Ok(KeyValueConfiguration::from_bits(other?.value).delete_missing_is_error()),
    }
}

/// How controllers refuse a log page that they do not have.
fn is_unknown_log(status: Status) -> bool {
    matches!(status.kind(), Status::INVALID_LOG_PAGE | Status::INVALID_FIELD)
}
