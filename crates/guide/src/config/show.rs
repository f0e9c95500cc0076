//! A configuration as text: JSON, the block of options, and the memory it needs.

use std::fmt::Write as _;

use serde::{Serialize, Serializer};

use super::{DeviceConfig, SdkConfig, SlabPolicy, SsdType};
use crate::placement::CpuSet;

const MEGABYTE: u64 = 1 << 20;

/// Keys and units of the file.
#[derive(Serialize)]
struct ShownConfig<'a> {
    cache: &'static str,
    cache_algorithm: &'static str,
    cache_reclaim_policy: &'static str,
    slab_size: u64,
    app_hugemem_size: u64,
    slab_alloc_policy: SlabPolicy,
    ssd_type: SsdType,
    submit_retry_interval: i64,
    log_level: u8,
    log_file: String,
    device_description: Vec<ShownDevice<'a>>,
}

#[derive(Serialize)]
struct ShownDevice<'a> {
    dev_id: &'a str,
    #[serde(flatten)]
    masks: Option<ShownMasks>,
    queue_depth: u32,
}

#[derive(Serialize)]
struct ShownMasks {
    core_mask: String,
    sync_mask: String,
    cq_thread_mask: String,
}

impl Serialize for SdkConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.shown().serialize(serializer)
    }
}

impl SdkConfig {
    /// The configuration as a file that says the same. Memory is in whole MB there, rounded up.
    pub fn to_json(&self) -> String {
        // Strings and integers under fixed keys: there is nothing that JSON could not hold.
        serde_json::to_string_pretty(self).expect("a configuration is plain JSON")
    }

    /// Memory the configuration needs, in MB and in steps of 4 MB, as the original SDK counts it: per device
    /// the slab, 384 KB and some for each queue; a fifth on top; and what the program asks for.
    ///
    /// A device that is to be placed counts as one queue; see [`crate::placement::Placement::write_to`].
    pub fn memory_mb(&self) -> u64 {
        let device_kb = |device: &DeviceConfig| {
            let queues = u64::from(device.core_mask.count_ones().max(1));
            let queue_kb = (5 * u64::from(device.queue_depth)).saturating_sub(3).max(5);
            384 + queue_kb * queues + self.slab_bytes.div_ceil(1024)
        };
        let devices_kb: u64 = self.devices.iter().map(device_kb).sum();
        let total_kb = (devices_kb * 6).div_ceil(5) + self.app_memory_bytes.div_ceil(1024);
        total_kb.div_ceil(4096) * 4
    }

    /// All options, one on a line, between two rules.
    pub fn describe(&self) -> String {
        let shown = self.shown();
        let mut text = String::from("----------------kv sdk options----------------\n");
        let retry = match shown.submit_retry_interval {
            -1 => "none".to_owned(),
            interval => format!("{interval} us"),
        };
        let slab_policy = if self.slab_policy == SlabPolicy::Huge { "huge" } else { "posix" };
        let ssd_type = if self.ssd_type == SsdType::Kv { "kv" } else { "lba" };
        for (key, value) in [
            ("cache", shown.cache.to_owned()),
            ("cache_algorithm", shown.cache_algorithm.to_owned()),
            ("cache_reclaim_policy", shown.cache_reclaim_policy.to_owned()),
            ("slab_size", format!("{} MB", shown.slab_size)),
            ("app_hugemem_size", format!("{} MB", shown.app_hugemem_size)),
            ("slab_alloc_policy", slab_policy.to_owned()),
            ("ssd_type", ssd_type.to_owned()),
            ("submit_retry_interval", retry),
            ("log_level", shown.log_level.to_string()),
            ("log_file", shown.log_file),
            ("nr_ssd", self.devices.len().to_string()),
        ] {
            line(&mut text, key, &value);
        }
        for (index, device) in self.devices.iter().enumerate() {
            line(&mut text, &format!("dev_id[{index}]"), &device.dev_id);
            for (key, mask) in [
                ("core_mask", device.core_mask),
                ("sync_mask", device.sync_mask),
                ("cq_thread_mask", device.cq_thread_mask),
            ] {
                let value = if device.is_placed_automatically() {
                    "automatic".to_owned()
                } else {
                    format!("{mask:#x} (CPUs {})", CpuSet(mask))
                };
                line(&mut text, &format!("  {key}"), &value);
            }
            line(&mut text, "  queue_depth", &device.queue_depth.to_string());
        }
        text.push_str("----------------------------------------------\n");
        text
    }

    fn shown(&self) -> ShownConfig<'_> {
        ShownConfig {
            cache: if self.cache { "on" } else { "off" },
            cache_algorithm: "radix",
            cache_reclaim_policy: "lru",
            slab_size: self.slab_bytes.div_ceil(MEGABYTE),
            app_hugemem_size: self.app_memory_bytes.div_ceil(MEGABYTE),
            slab_alloc_policy: self.slab_policy,
            ssd_type: self.ssd_type,
            submit_retry_interval: self
                .submit_retry
                .map_or(-1, |interval| i64::try_from(interval.as_micros()).unwrap_or(i64::MAX)),
            log_level: self.log_level,
            log_file: self.log_file.to_string_lossy().into_owned(),
            device_description: self.devices.iter().map(shown_device).collect(),
        }
    }
}

/// Masks of a device that is placed automatically are left out: they would say nothing.
fn shown_device(device: &DeviceConfig) -> ShownDevice<'_> {
    let hex = |mask: u64| format!("{mask:#x}");
    let masks = (!device.is_placed_automatically()).then(|| ShownMasks {
        core_mask: hex(device.core_mask),
        sync_mask: hex(device.sync_mask),
        cq_thread_mask: hex(device.cq_thread_mask),
    });
    ShownDevice { dev_id: &device.dev_id, masks, queue_depth: device.queue_depth }
}

fn line(text: &mut String, key: &str, value: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{key:<22}: {value}");
}
