//! `kv_sdk` and the SDK's configuration, each made of the other.

use std::ffi::c_char;
use std::path::PathBuf;
use std::time::Duration;

use unvme_guide::config::{
    ConfigFile, DEVICES_MAX, DeviceConfig, DeviceEntry, SLAB_BYTES_MIN, SdkConfig, SlabPolicy, SsdType,
};

use crate::abi::{KvNvmeIoOptions, KvSdk, NR_MAX_SSD};

const _: () = assert!(DEVICES_MAX == NR_MAX_SSD);

const SLAB_MM_ALLOC_POSIX: i32 = 0x10;
const SLAB_MM_ALLOC_HUGE: i32 = 0x20;

/// What a program wrote into a `kv_sdk`; bounds are checked when the devices are opened.
///
/// Errors name the field and what was expected.
pub(crate) fn from_struct(opt: &KvSdk) -> Result<SdkConfig, String> {
    only_zero("cache_algorithm", opt.cache_algorithm)?;
    only_zero("cache_reclaim_policy", opt.cache_reclaim_policy)?;
    Ok(SdkConfig {
        cache: opt.use_cache != 0,
        // Not given means as little as possible.
        slab_bytes: if opt.slab_size == 0 { SLAB_BYTES_MIN } else { opt.slab_size },
        app_memory_bytes: opt.app_hugemem_size,
        slab_policy: match opt.slab_alloc_policy {
            0 | SLAB_MM_ALLOC_HUGE => SlabPolicy::Huge,
            SLAB_MM_ALLOC_POSIX => SlabPolicy::Posix,
            other => return Err(format!("slab_alloc_policy: expected 0x10 or 0x20, not {other:#x}")),
        },
        ssd_type: ssd_type(opt.ssd_type)?,
        submit_retry: match opt.submit_retry_interval {
            -1 => None,
            interval => Some(Duration::from_micros(u64::try_from(interval).map_err(|_| {
                format!("submit_retry_interval: expected microseconds or -1, not {interval}")
            })?)),
        },
        log_level: u8::try_from(opt.log_level)
            .map_err(|_| format!("log_level: expected 0 to 3, not {}", opt.log_level))?,
        log_file: PathBuf::from(text("log_file", &opt.log_file)?),
        devices: devices(opt)?,
    })
}

fn only_zero(field: &str, value: i32) -> Result<(), String> {
    if value == 0 { Ok(()) } else { Err(format!("{field}: expected 0, the only one there is, not {value}")) }
}

/// The kind of SSD a number means.
pub(crate) fn ssd_type(number: i32) -> Result<SsdType, String> {
    match number {
        0 => Ok(SsdType::Kv),
        1 => Ok(SsdType::Lba),
        other => Err(format!("ssd_type: expected KV_TYPE_SSD (0) or LBA_TYPE_SSD (1), not {other}")),
    }
}

/// Entries with a name; how many there are is not taken from `nr_ssd`, which programs leave unset.
fn devices(opt: &KvSdk) -> Result<Vec<DeviceConfig>, String> {
    let mut devices = Vec::new();
    for (name, options) in opt.dev_id.iter().zip(&opt.dd_options) {
        let name = text("dev_id", name)?;
        if !name.is_empty() {
            devices.push(device(name, options));
        }
    }
    Ok(devices)
}

/// A device with the masks of `options`.
pub(crate) fn device(name: String, options: &KvNvmeIoOptions) -> DeviceConfig {
    DeviceConfig {
        core_mask: options.core_mask,
        sync_mask: options.sync_mask,
        cq_thread_mask: options.cq_thread_mask,
        queue_depth: options.queue_depth,
        ..DeviceConfig::new(name)
    }
}

/// The text before the first NUL.
fn text(field: &str, chars: &[c_char]) -> Result<String, String> {
    let bytes: Vec<u8> = chars.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    if bytes.len() == chars.len() {
        return Err(format!("{field}: expected at most {} bytes and a terminating 0", chars.len() - 1));
    }
    String::from_utf8(bytes).map_err(|_| format!("{field}: expected UTF-8"))
}

/// Writes a text, cut to what fits with its NUL.
fn set_text(chars: &mut [c_char], text: &str) {
    chars.fill(0);
    let room = chars.len().saturating_sub(1);
    for (target, byte) in chars.iter_mut().take(room).zip(text.bytes()) {
        *target = byte as c_char;
    }
}

/// Writes what is in effect into the program's `kv_sdk`.
pub(crate) fn write_back(config: &SdkConfig, handles: &[u64], opt: &mut KvSdk) {
    opt.use_cache = u8::from(config.cache);
    opt.slab_size = config.slab_bytes;
    opt.app_hugemem_size = config.app_memory_bytes;
    opt.slab_alloc_policy = slab_policy_number(config.slab_policy);
    opt.ssd_type = ssd_type_number(config.ssd_type);
    opt.submit_retry_interval = config.submit_retry.map_or(-1, |interval| interval.as_micros() as i32);
    opt.log_level = config.log_level.into();
    set_text(&mut opt.log_file, &config.log_file.to_string_lossy());
    opt.nr_ssd = config.devices.len() as i32;
    opt.dev_id = [[0; _]; NR_MAX_SSD];
    opt.dd_options = [KvNvmeIoOptions::default(); NR_MAX_SSD];
    opt.dev_handle = [0; NR_MAX_SSD];
    for (index, device) in config.devices.iter().enumerate().take(NR_MAX_SSD) {
        set_text(&mut opt.dev_id[index], &device.dev_id);
        opt.dd_options[index] = KvNvmeIoOptions {
            core_mask: device.core_mask,
            sync_mask: device.sync_mask,
            num_cq_threads: device.cq_thread_mask.count_ones().into(),
            cq_thread_mask: device.cq_thread_mask,
            queue_depth: device.queue_depth,
            mem_size_mb: 0,
        };
        opt.dev_handle[index] = handles.get(index).copied().unwrap_or(0);
    }
}

/// Writes what a file says into a program's `kv_sdk`, and leaves the rest of it alone.
pub(crate) fn load(file: &ConfigFile, opt: &mut KvSdk) {
    if let Some(cache) = file.cache {
        opt.use_cache = u8::from(cache);
    }
    if file.cache_algorithm.is_some() {
        opt.cache_algorithm = 0;
    }
    if file.cache_reclaim_policy.is_some() {
        opt.cache_reclaim_policy = 0;
    }
    if let Some(bytes) = file.slab_bytes {
        opt.slab_size = bytes;
    }
    if let Some(bytes) = file.app_memory_bytes {
        opt.app_hugemem_size = bytes;
    }
    if let Some(policy) = file.slab_policy {
        opt.slab_alloc_policy = slab_policy_number(policy);
    }
    if let Some(kind) = file.ssd_type {
        opt.ssd_type = ssd_type_number(kind);
    }
    if let Some(interval) = file.submit_retry_us {
        opt.submit_retry_interval = interval;
    }
    if let Some(level) = file.log_level {
        opt.log_level = level.into();
    }
    if let Some(path) = &file.log_file {
        set_text(&mut opt.log_file, &path.to_string_lossy());
    }
    if let Some(devices) = &file.devices {
        opt.nr_ssd = devices.len().min(NR_MAX_SSD) as i32;
        for (index, device) in devices.iter().enumerate().take(NR_MAX_SSD) {
            set_text(&mut opt.dev_id[index], &device.dev_id);
            load_device(device, &mut opt.dd_options[index]);
        }
    }
}

fn load_device(device: &DeviceEntry, options: &mut KvNvmeIoOptions) {
    if let Some(mask) = device.core_mask {
        options.core_mask = mask;
    }
    if let Some(mask) = device.sync_mask {
        options.sync_mask = mask;
    }
    if let Some(mask) = device.cq_thread_mask {
        options.cq_thread_mask = mask;
        options.num_cq_threads = mask.count_ones().into();
    }
    if let Some(depth) = device.queue_depth {
        options.queue_depth = depth;
    }
}

fn slab_policy_number(policy: SlabPolicy) -> i32 {
    match policy {
        SlabPolicy::Huge => SLAB_MM_ALLOC_HUGE,
        SlabPolicy::Posix => SLAB_MM_ALLOC_POSIX,
    }
}

fn ssd_type_number(kind: SsdType) -> i32 {
    match kind {
        SsdType::Kv => 0,
        SsdType::Lba => 1,
    }
}

/// The options in effect, one a line, between lines that say what they are.
pub(crate) fn show(config: &SdkConfig) -> String {
    use std::fmt::Write as _;

    let on = |on| if on { "on" } else { "off" };
    let mut text = String::from("--------kv sdk options--------\n");
    let _ = writeln!(text, "cache: {}", on(config.cache));
    let _ = writeln!(text, "slab_size: {} MB", config.slab_bytes >> 20);
    let _ = writeln!(text, "app_hugemem_size: {} MB", config.app_memory_bytes >> 20);
    let _ = writeln!(text, "slab_alloc_policy: {:#x}", slab_policy_number(config.slab_policy));
    let _ = writeln!(text, "ssd_type: {}", if config.ssd_type == SsdType::Kv { "kv" } else { "lba" });
    let interval = config.submit_retry.map_or(-1, |interval| interval.as_micros() as i64);
    let _ = writeln!(text, "submit_retry_interval: {interval} us");
    let _ = writeln!(text, "log_level: {}, log_file: {}", config.log_level, config.log_file.display());
    for device in &config.devices {
        let _ = writeln!(
            text,
            "{}: core_mask={:#x} sync_mask={:#x} cq_thread_mask={:#x} queue_depth={}",
            device.dev_id, device.core_mask, device.sync_mask, device.cq_thread_mask, device.queue_depth
        );
    }
    text.push_str("------------------------------");
    text
}
