//! What a configuration file says, and what it leaves open.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::syntax::{self, Fault, Value};
use super::{CacheAlgorithm, CacheReclaim, DeviceConfig, SdkConfig, SlabPolicy, SsdType, schema};
use unvme::{Error, Result};

/// Bytes that a configuration file can have: a longer one is something else.
pub const FILE_BYTES_MAX: usize = 256 << 10;

/// What a configuration file says; a key that it does not have is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFile {
    /// `cache`, "on" or "off".
    pub cache: Option<bool>,
    /// `cache_algorithm`, "radix".
    pub cache_algorithm: Option<CacheAlgorithm>,
    /// `cache_reclaim_policy`, "lru".
    pub cache_reclaim_policy: Option<CacheReclaim>,
    /// `slab_size`, in bytes here and in MB in the file.
    pub slab_bytes: Option<u64>,
    /// `app_hugemem_size`, in bytes here and in MB in the file.
    pub app_memory_bytes: Option<u64>,
    /// `slab_alloc_policy`, "huge" or "posix".
    pub slab_policy: Option<SlabPolicy>,
    /// `ssd_type`, "kv" or "lba".
    pub ssd_type: Option<SsdType>,
    /// `submit_retry_interval` in microseconds, 0 to 1000, or -1 for no retry.
    pub submit_retry_us: Option<i32>,
    /// `log_level`, 0 to 3.
    pub log_level: Option<u8>,
    /// `log_file`, 1 to 1023 bytes.
    pub log_file: Option<PathBuf>,
    /// `device_description`: 1 to 64 devices.
    pub devices: Option<Vec<DeviceEntry>>,
}

/// What a configuration file says about a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceEntry {
    /// `dev_id`: a device name, 1 to 31 bytes. The only key that must be there.
    pub dev_id: String,
    /// `core_mask`: bit `n` is CPU `n`.
    pub core_mask: Option<u64>,
    /// `sync_mask`.
    pub sync_mask: Option<u64>,
    /// `cq_thread_mask`.
    pub cq_thread_mask: Option<u64>,
    /// `queue_depth`, 1 to [`super::QUEUE_DEPTH_MAX`].
    pub queue_depth: Option<u32>,
}

impl DeviceEntry {
    fn config(&self) -> DeviceConfig {
        let mut device = DeviceConfig::new(&self.dev_id);
        device.core_mask = self.core_mask.unwrap_or(0);
        device.sync_mask = self.sync_mask.unwrap_or(0);
        device.cq_thread_mask = self.cq_thread_mask.unwrap_or(0);
        device.queue_depth = self.queue_depth.unwrap_or_else(|| device.queue_depth_default());
        device
    }
}

impl ConfigFile {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be read; [`Error::Config`] with line, column and key when it is wrong;
    /// [`Error::Argument`] when it has more than [`FILE_BYTES_MAX`] bytes.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::parse(&read(path)?, path)
    }

    /// Understands the text of a file; `path` is for messages.
    ///
    /// # Errors
    /// [`Error::Config`] with line, column and key.
    pub fn parse(text: &str, path: impl AsRef<Path>) -> Result<Self> {
        understand(text).map_err(|fault| located(text, path.as_ref(), fault))
    }

    /// The configuration with what the file says over what it had.
    pub fn over(&self, defaults: SdkConfig) -> SdkConfig {
        SdkConfig {
            cache: self.cache.unwrap_or(defaults.cache),
            slab_bytes: self.slab_bytes.unwrap_or(defaults.slab_bytes),
            app_memory_bytes: self.app_memory_bytes.unwrap_or(defaults.app_memory_bytes),
            slab_policy: self.slab_policy.unwrap_or(defaults.slab_policy),
            ssd_type: self.ssd_type.unwrap_or(defaults.ssd_type),
            submit_retry: self.submit_retry_us.map_or(defaults.submit_retry, |interval| {
                u64::try_from(interval).ok().map(Duration::from_micros)
            }),
            log_level: self.log_level.unwrap_or(defaults.log_level),
            log_file: self.log_file.clone().unwrap_or(defaults.log_file),
            devices: match &self.devices {
                Some(entries) => entries.iter().map(DeviceEntry::config).collect(),
                None => defaults.devices,
            },
        }
    }

    /// What the file does not say and probably should.
    pub(super) fn warnings(&self) -> Vec<String> {
        let entries = self.devices.iter().flatten();
        let unserved = entries.filter(|entry| {
            let async_mask = entry.core_mask.unwrap_or(0) & !entry.sync_mask.unwrap_or(0);
            async_mask != 0 && entry.cq_thread_mask.is_none()
        });
        unserved
            .map(|entry| {
                format!(
                    "{}: there is no `cq_thread_mask`, so asynchronous operations complete only while the program polls",
                    entry.dev_id
                )
            })
            .collect()
    }
}

impl SdkConfig {
    /// Reads a file over the defaults, and settles what it says; see [`SdkConfig::settle`].
    ///
    /// The second value is what was said and is not followed, each a sentence.
    ///
    /// # Errors
    /// Those of [`ConfigFile::load`]; [`Error::Config`] when the file names no device.
    pub fn load(path: impl AsRef<Path>) -> Result<(Self, Vec<String>)> {
        let path = path.as_ref();
        Self::parse(&read(path)?, path)
    }

    /// [`SdkConfig::load`] of a text; `path` is for messages.
    ///
    /// # Errors
    /// [`Error::Config`] with line, column and key.
    pub fn parse(text: &str, path: impl AsRef<Path>) -> Result<(Self, Vec<String>)> {
        let path = path.as_ref();
        let file = ConfigFile::parse(text, path)?;
        if file.devices.is_none() {
            let key = schema::DEVICES;
            let reason =
                format!("no device is named; expected \"{key}\": {{ \"dev_id\": \"0000:02:00.0\" }}");
            let at = text.find('{').unwrap_or(0);
            return Err(located(text, path, Fault { at, key: Some(key.into()), reason }));
        }
        let mut config = file.over(Self::default());
        let mut warnings = file.warnings();
        warnings.append(&mut config.settle()?);
        Ok((config, warnings))
    }
}

fn understand(text: &str) -> std::result::Result<ConfigFile, Fault> {
    let root = syntax::parse(text)?;
    debug_assert!(matches!(root.value, Value::Object(_)), "only an object is accepted");
    schema::file(text, &root)
}

fn located(text: &str, path: &Path, fault: Fault) -> Error {
    let (line, column) = syntax::place(text, fault.at);
    Error::Config { path: path.into(), line, column, key: fault.key, reason: fault.reason }
}

fn read(path: &Path) -> Result<String> {
    let file = File::open(path).map_err(|e| Error::file("open", path, e))?;
    let mut bytes = Vec::new();
    let limit = FILE_BYTES_MAX as u64 + 1;
    file.take(limit).read_to_end(&mut bytes).map_err(|e| Error::file("read", path, e))?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(Error::Argument(format!(
            "{}: more than {FILE_BYTES_MAX} bytes; this is no configuration of the SDK",
            path.display()
        )));
    }
    String::from_utf8(bytes).map_err(|e| {
        let valid = e.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(e.as_bytes().get(..valid).unwrap_or_default()).into_owned();
        let reason = "the text is not UTF-8".to_owned();
        located(&text, path, Fault { at: valid, key: None, reason })
    })
}
