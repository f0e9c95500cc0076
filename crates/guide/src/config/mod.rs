//! The SDK's configuration: which devices, on which CPUs, with how much memory.
//!
//! | key | accepts | default |
//! |---|---|---|
//! | `cache` | "on", "off" | "off" |
//! | `cache_algorithm` | "radix" | "radix" |
//! | `cache_reclaim_policy` | "lru" | "lru" |
//! | `slab_size` | MB per device; less than 44 is raised to 44 | 512 |
//! | `app_hugemem_size` | MB | 0 |
//! | `slab_alloc_policy` | "huge", "posix" | "huge" |
//! | `ssd_type` | "kv", "lba" | "kv" |
//! | `submit_retry_interval` | microseconds, 0 to 1000; -1 for no retry | 1 |
//! | `log_level` | 0 nothing, 1 errors, 2 initialising and finalising too, 3 every operation | 0 |
//! | `log_file` | a path of at most 1023 bytes | `kvsdk.log` in the folder of the virtual devices |
//! | `driver` | any string; it has no meaning any more | |
//! | `device_description` | an object, or an array of 1 to 64 objects, with the keys below | must be there |
//! | `dev_id` | a device name of at most 31 bytes: `0000:0b:00.0`, `kernel:/dev/ng0n1` | must be there |
//! | `core_mask` | CPUs with a queue to the device | chosen, see [`crate::placement`] |
//! | `sync_mask` | those of them whose queue is synchronous | 0 |
//! | `cq_thread_mask` | CPUs of completion threads; 0: the program polls | 0 |
//! | `queue_depth` | commands on an asynchronous queue, 1 to 4095 | 64, without `core_mask` 32 |
//!
//! A mask is hexadecimal whether it is in quotes or not: `10`, `"10"` and `"0x10"` are all CPU 4. A string
//! with a `-` or a `,` is a list of CPUs in decimal, `"0-3,8"`. A `core_mask` of 0 counts as not given, and
//! then the other masks do too.
//!
//! The syntax is JSON with `//` and `/* */` comments, and as much leniency as the samples printed in the
//! guide need, since that is what people start from: commas may be missing or trail, quotes may be
//! typographic, masks may be bare (`00FF`), and devices may follow the `]` that should have come after them.
//! All else is an error with line, column and key: an unknown key, a repeated one, a wrong type, a value out
//! of range, a file that is not there. Nothing falls back to a device that nobody named.
//!
//! The reader is written by hand because no JSON or JSON5 reader keeps what this needs: how a bare mask is
//! spelled, the place of each key, and the leniency above.

mod file;
mod nearest;
mod schema;
mod show;
mod syntax;

pub use file::{ConfigFile, DeviceEntry, FILE_BYTES_MAX};

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use unvme::{DEPTH_MAX, Error, PciAddress, Registry, Result};

/// Devices of a configuration.
pub const DEVICES_MAX: usize = 64;
/// Bytes of a `dev_id` in a file, as many as the original's structures hold.
pub const DEV_ID_BYTES_MAX: usize = 31;
/// Bytes of a device's name otherwise: options of virtual devices and paths of sockets make it long.
pub const DEVICE_NAME_BYTES_MAX: usize = 255;
/// Name of the log file when the configuration has none.
const LOG_FILE: &str = "kvsdk.log";
/// Bytes of a `log_file`.
pub const LOG_FILE_BYTES_MAX: usize = 1023;
/// Most detailed `log_level`.
pub const LOG_LEVEL_MAX: u8 = 3;
/// Deepest `queue_depth`.
pub const QUEUE_DEPTH_MAX: u32 = DEPTH_MAX as u32;
/// Longest `submit_retry_interval` in microseconds.
pub const SUBMIT_RETRY_US_MAX: u32 = 1000;
/// Smallest slab of a device: 4 MB for each of its 11 sizes.
pub const SLAB_BYTES_MIN: u64 = 44 << 20;
/// Largest `slab_size` and `app_hugemem_size` in MB: 1 TB.
pub const MEMORY_MB_MAX: u64 = 1 << 20;
/// `queue_depth` of a device with masks.
pub const QUEUE_DEPTH_DEFAULT: u32 = 64;
/// `queue_depth` of a device that is placed automatically.
pub const QUEUE_DEPTH_AUTOMATIC: u32 = 32;

/// How cached pairs are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheAlgorithm {
    /// "radix": a radix tree over the keys.
    #[default]
    Radix,
}

/// Which cached pairs give way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheReclaim {
    /// "lru": the least recently used.
    #[default]
    Lru,
}

/// Where the slab's memory comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SlabPolicy {
    /// "huge": huge pages where there are any.
    #[default]
    Huge,
    /// "posix": ordinary pages.
    Posix,
}

/// What kind of devices they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SsdType {
    /// "kv": key-value devices.
    #[default]
    Kv,
    /// "lba": block devices.
    Lba,
}

/// A device and its CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Name of the device, 1 to 255 bytes; in a file it has at most 31.
    pub dev_id: String,
    /// CPUs with a queue to the device, bit `n` for CPU `n`. 0: they are chosen, see [`crate::placement`].
    pub core_mask: u64,
    /// Those of them whose queue is synchronous.
    pub sync_mask: u64,
    /// CPUs of the threads that complete for the asynchronous queues; 0: there are none, the program polls.
    pub cq_thread_mask: u64,
    /// Commands that can be outstanding on an asynchronous queue, 1 to [`QUEUE_DEPTH_MAX`].
    pub queue_depth: u32,
}

impl DeviceConfig {
    /// A device that is placed automatically.
    pub fn new(dev_id: impl Into<String>) -> Self {
        Self {
            dev_id: dev_id.into(),
            core_mask: 0,
            sync_mask: 0,
            cq_thread_mask: 0,
            queue_depth: QUEUE_DEPTH_AUTOMATIC,
        }
    }

    /// Whether its masks were not given.
    pub fn is_placed_automatically(&self) -> bool {
        self.core_mask == 0
    }

    fn queue_depth_default(&self) -> u32 {
        if self.is_placed_automatically() { QUEUE_DEPTH_AUTOMATIC } else { QUEUE_DEPTH_DEFAULT }
    }
}

/// A whole configuration: every option has its value.
///
/// Serializes as a configuration file says it, in its units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SdkConfig {
    /// Whether there is a read cache.
    pub cache: bool,
    /// Memory for values on their way and for the cache, in bytes per device. It is reserved, and used as it
    /// is needed.
    pub slab_bytes: u64,
    /// Memory for what the program allocates, in bytes.
    pub app_memory_bytes: u64,
    /// Where the slab's memory comes from.
    pub slab_policy: SlabPolicy,
    /// What kind of devices they are.
    pub ssd_type: SsdType,
    /// How long to wait before trying again when a queue is full, at most 1 ms; `None`: no retry, the caller
    /// gets an error.
    pub submit_retry: Option<Duration>,
    /// How much is logged: 0 nothing, 1 errors, 2 initialising and finalising too, 3 every operation.
    pub log_level: u8,
    /// Where it is logged.
    pub log_file: PathBuf,
    /// The devices, 1 to 64. None by default: which ones is for the user to say.
    pub devices: Vec<DeviceConfig>,
}

/// Where it is logged unless the file says otherwise: where nobody else can make files. Empty without such a
/// place.
fn default_log_file() -> PathBuf {
    Registry::from_environment().map_or_else(|_| PathBuf::new(), |registry| registry.home().join(LOG_FILE))
}

impl Default for SdkConfig {
    fn default() -> Self {
        Self {
            cache: false,
            slab_bytes: 512 << 20,
            app_memory_bytes: 0,
            slab_policy: SlabPolicy::Huge,
            ssd_type: SsdType::Kv,
            submit_retry: Some(Duration::from_micros(1)),
            log_level: 0,
            log_file: default_log_file(),
            devices: Vec::new(),
        }
    }
}

impl SdkConfig {
    /// Checks a configuration that a program made, and settles what the original SDK settles: a slab that is
    /// too small is raised, a retry interval that is too long is lowered, an empty log file and a queue depth
    /// of 0 are the default ones, and masks without a core mask count as not given. What is changed against
    /// what was said is returned, each a sentence.
    ///
    /// # Errors
    /// [`Error::Argument`] naming the key and what was expected: no device, too many, a device without a
    /// name, with one that is too long or named twice; memory, a log level, a path or a queue depth out of
    /// range.
    pub fn settle(&mut self) -> Result<Vec<String>> {
        self.check_bounds()?;
        let mut warnings = Vec::new();
        if self.slab_bytes < SLAB_BYTES_MIN {
            warnings.push(format!(
                "`slab_size`: {} MB are too little; raised to {} MB",
                self.slab_bytes >> 20,
                SLAB_BYTES_MIN >> 20
            ));
            self.slab_bytes = SLAB_BYTES_MIN;
        }
        let retry_max = Duration::from_micros(SUBMIT_RETRY_US_MAX.into());
        if let Some(interval) = self.submit_retry.filter(|interval| *interval > retry_max) {
            warnings.push(format!(
                "`submit_retry_interval`: {} us are too long; lowered to {SUBMIT_RETRY_US_MAX} us",
                interval.as_micros()
            ));
            self.submit_retry = Some(retry_max);
        }
        if self.log_file.as_os_str().is_empty() {
            self.log_file = Self::default().log_file;
        }
        for device in &mut self.devices {
            if device.is_placed_automatically() && (device.sync_mask | device.cq_thread_mask) != 0 {
                warnings.push(format!(
                    "{}: masks count only together with a `core_mask`; its CPUs are chosen automatically",
                    device.dev_id
                ));
                (device.sync_mask, device.cq_thread_mask) = (0, 0);
            }
            if device.queue_depth == 0 {
                device.queue_depth = device.queue_depth_default();
            }
        }
        Ok(warnings)
    }

    fn check_bounds(&self) -> Result<()> {
        let wrong = |key: &str, reason: String| Err(Error::Argument(format!("`{key}`: {reason}")));
        let memory_max = MEMORY_MB_MAX << 20;
        for (key, bytes) in [("slab_size", self.slab_bytes), ("app_hugemem_size", self.app_memory_bytes)] {
            if bytes > memory_max {
                return wrong(key, format!("at most {memory_max} bytes are possible, not {bytes}"));
            }
        }
        if self.log_level > LOG_LEVEL_MAX {
            return wrong("log_level", format!("expected 0 to {LOG_LEVEL_MAX}, not {}", self.log_level));
        }
        let path = self.log_file.as_os_str().as_encoded_bytes();
        if path.len() > LOG_FILE_BYTES_MAX || path.contains(&0) {
            let reason =
                format!("expected at most {LOG_FILE_BYTES_MAX} bytes and no NUL, not {} bytes", path.len());
            return wrong("log_file", reason);
        }
        if !(1..=DEVICES_MAX).contains(&self.devices.len()) {
            let reason = format!("expected 1 to {DEVICES_MAX} devices, not {}", self.devices.len());
            return wrong("device_description", reason);
        }
        for (index, device) in self.devices.iter().enumerate() {
            let name = &device.dev_id;
            if !(1..=DEVICE_NAME_BYTES_MAX).contains(&name.len()) || name.contains('\0') {
                let reason = format!(
                    "expected 1 to {DEVICE_NAME_BYTES_MAX} bytes and no NUL, not {} ({name:?})",
                    name.len()
                );
                return wrong("dev_id", reason);
            }
            if self.devices.iter().take(index).any(|other| same_device(&other.dev_id, name)) {
                return wrong("dev_id", format!("{name} is named twice; each device is named once"));
            }
            if device.queue_depth > QUEUE_DEPTH_MAX {
                let reason = format!("{name}: expected 1 to {QUEUE_DEPTH_MAX}, not {}", device.queue_depth);
                return wrong("queue_depth", reason);
            }
        }
        Ok(())
    }
}

/// Whether two names are spellings of one: a PCI address has a long and a short form.
fn same_device(a: &str, b: &str) -> bool {
    let address = |name: &str| name.parse::<PciAddress>().ok();
    a == b || address(a).is_some_and(|first| address(b) == Some(first))
}

#[cfg(test)]
mod tests;
