use proptest::prelude::*;

use super::*;

mod mistakes;
mod samples;

/// The member that every whole configuration needs.
const DEVICE: &str = r#""device_description": {"dev_id": "0000:02:00.0"}"#;

fn file(text: &str) -> ConfigFile {
    ConfigFile::parse(text, "test.json").unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn config(text: &str) -> (SdkConfig, Vec<String>) {
    SdkConfig::parse(text, "test.json").unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The message of the error, without the name of the file.
fn refused(text: &str) -> String {
    let error = SdkConfig::parse(text, "test.json").expect_err(text);
    let message = error.to_string();
    message.strip_prefix("test.json:").unwrap_or(&message).to_owned()
}

fn device(
    dev_id: &str,
    core_mask: u64,
    sync_mask: u64,
    cq_thread_mask: u64,
    queue_depth: u32,
) -> DeviceConfig {
    DeviceConfig { dev_id: dev_id.into(), core_mask, sync_mask, cq_thread_mask, queue_depth }
}

fn entry(masks: &str) -> DeviceEntry {
    let text = format!("{{\"device_description\": {{\"dev_id\": \"mem:block:1G\", {masks}}}}}");
    file(&text).devices.map(|devices| devices[0].clone()).unwrap_or_default()
}

#[test]
fn a_file_says_only_what_it_says() {
    assert_eq!(file("{}"), ConfigFile::default());
    let defaults =
        SdkConfig { slab_bytes: 77 << 20, devices: vec![DeviceConfig::new("a")], ..Default::default() };
    assert_eq!(file("{}").over(defaults.clone()), defaults);
    let logged = SdkConfig { log_level: 2, ..defaults.clone() };
    assert_eq!(file(r#"{"log_level": 2}"#).over(defaults), logged);
}

#[test]
fn a_device_has_any_name_that_fits() {
    for name in
        ["0000:0b:00.0", "kernel:/dev/ng0n1", "kernel:/dev/nvme0n1p2", "mem:kv:1G", "vfio-user:/run/s"]
    {
        let (config, warnings) = config(&format!("{{\"device_description\": {{\"dev_id\": \"{name}\"}}}}"));
        assert_eq!(config.devices, [DeviceConfig::new(name)]);
        assert_eq!(warnings, Vec::<String>::new());
    }
    let nothing = refused(r#"{"device_description": {"dev_id": "kernel:"}}"#);
    assert!(nothing.contains("`dev_id`: expected a path, such as kernel:/dev/ng0n1"), "{nothing}");
}

#[test]
fn every_key_is_read() {
    let said = file(
        r#"{"cache": "on", "cache_algorithm": "radix", "cache_reclaim_policy": "lru", "slab_size": 100,
            "app_hugemem_size": 7, "slab_alloc_policy": "posix", "ssd_type": "lba", "driver": "udd",
            "submit_retry_interval": 1000, "log_level": 3, "log_file": "/tmp/kv sdk.log",
            "device_description": [{"dev_id": "0000:02:00.0", "core_mask": "F", "sync_mask": 3,
                "cq_thread_mask": "4-5", "queue_depth": 4095}]}"#,
    );
    let expected = ConfigFile {
        cache: Some(true),
        cache_algorithm: Some(CacheAlgorithm::Radix),
        cache_reclaim_policy: Some(CacheReclaim::Lru),
        slab_bytes: Some(104_857_600),
        app_memory_bytes: Some(7_340_032),
        slab_policy: Some(SlabPolicy::Posix),
        ssd_type: Some(SsdType::Lba),
        submit_retry_us: Some(1000),
        log_level: Some(3),
        log_file: Some("/tmp/kv sdk.log".into()),
        devices: Some(vec![DeviceEntry {
            dev_id: "0000:02:00.0".into(),
            core_mask: Some(0xf),
            sync_mask: Some(3),
            cq_thread_mask: Some(0x30),
            queue_depth: Some(4095),
        }]),
    };
    assert_eq!(said, expected);
}

#[test]
fn what_is_left_out_has_the_documented_default() {
    let (config, warnings) = config(&format!("{{{DEVICE}}}"));
    let expected = SdkConfig {
        cache: false,
        slab_bytes: 536_870_912,
        app_memory_bytes: 0,
        slab_policy: SlabPolicy::Huge,
        ssd_type: SsdType::Kv,
        submit_retry: Some(Duration::from_micros(1)),
        log_level: 0,
        log_file: default_log_file(),
        devices: vec![device("0000:02:00.0", 0, 0, 0, 32)],
    };
    assert_eq!((config, warnings), (expected, vec![]));
    let depth = |masks: &str| entry(masks).queue_depth;
    assert_eq!(depth("\"core_mask\": 1"), None);
    let text = r#"{"device_description": {"dev_id": "a", "core_mask": 1, "sync_mask": 1}}"#;
    assert_eq!(file(text).over(SdkConfig::default()).devices, [device("a", 1, 1, 0, 64)]);
}

#[test]
fn the_smallest_and_the_largest_values_are_accepted() {
    for (text, microseconds) in [("-1", None), ("0", Some(0)), ("1000", Some(1000))] {
        let (config, _) = config(&format!("{{\"submit_retry_interval\": {text}, {DEVICE}}}"));
        assert_eq!(config.submit_retry, microseconds.map(Duration::from_micros));
    }
    assert_eq!(file(r#"{"slab_size": 1048576}"#).slab_bytes, Some(1 << 40));
    assert_eq!(file(r#"{"app_hugemem_size": 0}"#).app_memory_bytes, Some(0));
    assert_eq!(file(r#"{"log_level": 0}"#).log_level, Some(0));
    assert_eq!(entry(r#""queue_depth": 1"#).queue_depth, Some(1));
    let path = "/".repeat(1023);
    assert_eq!(file(&format!("{{\"log_file\": \"{path}\"}}")).log_file, Some(path.into()));
    let name = "vfio-user:".to_owned() + &"s".repeat(21);
    assert!(file(&format!("{{\"device_description\": {{\"dev_id\": \"{name}\"}}}}")).devices.is_some());
    let devices: Vec<_> = (0..64).map(|n| format!("{{\"dev_id\": \"0000:{n:02x}:00.0\"}}")).collect();
    let text = format!("{{\"device_description\": [{}]}}", devices.join(","));
    assert_eq!(config(&text).0.devices.len(), 64);
    let more = format!("{{\"device_description\": [{},\n{{\"dev_id\": \"02:00.1\"}}]}}", devices.join(","));
    assert_eq!(refused(&more), "2:1: `device_description`: 65 devices; at most 64 are possible");
}

#[test]
fn masks_are_hexadecimal_with_and_without_quotes() {
    for (text, mask) in [
        ("10", 0x10),
        ("\"10\"", 0x10),
        ("\"0x10\"", 0x10),
        ("0x10", 0x10),
        ("FF", 0xff),
        ("\"0f\"", 0xf),
        ("00FF", 0xff),
        ("1000000", 1 << 24),
        ("ffffffffffffffff", u64::MAX),
        ("\"0-3,8\"", 0x10f),
        ("\"63-63\"", 1 << 63),
        ("0", 0),
    ] {
        for key in ["core_mask", "sync_mask", "cq_thread_mask"] {
            let entry = entry(&format!("\"{key}\": {text}"));
            let read = [entry.core_mask, entry.sync_mask, entry.cq_thread_mask];
            assert_eq!(read.into_iter().flatten().collect::<Vec<_>>(), [mask], "{key} {text}");
        }
    }
}

#[test]
fn a_slab_that_is_too_small_is_raised_with_a_warning() {
    let (small, warnings) = config(&format!("{{\"slab_size\": 43, {DEVICE}}}"));
    assert_eq!(small.slab_bytes, 46_137_344);
    assert_eq!(warnings, ["`slab_size`: 43 MB are too little; raised to 44 MB"]);
    let (enough, warnings) = config(&format!("{{\"slab_size\": 44, {DEVICE}}}"));
    assert_eq!((enough.slab_bytes, warnings.len()), (46_137_344, 0));
}

#[test]
fn masks_without_a_core_mask_count_as_not_given() {
    let text =
        r#"{"device_description": {"dev_id": "a", "core_mask": 0, "sync_mask": 1, "cq_thread_mask": 2}}"#;
    let (config, warnings) = config(text);
    assert_eq!(config.devices, [device("a", 0, 0, 0, 32)]);
    assert_eq!(
        warnings,
        ["a: masks count only together with a `core_mask`; its CPUs are chosen automatically"]
    );
}

#[test]
fn asynchronous_queues_that_nobody_completes_are_told() {
    let said = |masks: &str| config(&format!("{{\"device_description\": {{\"dev_id\": \"a\", {masks}}}}}")).1;
    let warning =
        "a: there is no `cq_thread_mask`, so asynchronous operations complete only while the program polls";
    assert_eq!(said(r#""core_mask": 3, "sync_mask": 1"#), [warning]);
    assert_eq!(said(r#""core_mask": 3, "sync_mask": 3"#), [""; 0]);
    assert_eq!(said(r#""core_mask": 3, "cq_thread_mask": 0"#), [""; 0]);
}

#[test]
fn memory_is_counted_as_the_original_does() {
    let mut config = SdkConfig { devices: vec![device("a", 1, 0, 2, 64)], ..Default::default() };
    // 384 + 317 + 524288 KB and a fifth are 615.2 MB.
    assert_eq!(config.memory_mb(), 616);
    config.app_memory_bytes = 1 << 20;
    assert_eq!(config.memory_mb(), 620);
    config.slab_bytes = 44 << 20;
    config.app_memory_bytes = 0;
    config.devices = vec![device("b", 0xf, 0, 2, 1)];
    // 384 + 4 * 5 + 45056 KB and a fifth are 53.3 MB.
    assert_eq!(config.memory_mb(), 56);

    let busy = |queue_depth| (0..64).map(|n| device(&n.to_string(), u64::MAX, 0, 0, queue_depth)).collect();
    // 64 devices of 384 + 317 * 64 + 45056 KB and a fifth are 4929.6 MB; with 5 KB for a queue, 3432 MB.
    config.devices = busy(64);
    assert_eq!(config.memory_mb(), 4932);
    config.devices = busy(1);
    assert_eq!(config.memory_mb(), 3432);
}

#[test]
fn options_are_described_one_on_a_line() {
    let config = SdkConfig {
        submit_retry: None,
        devices: vec![device("0000:02:00.0", 0xf, 0x3, 0x10, 64), DeviceConfig::new("mem:kv:1G")],
        ..Default::default()
    };
    let expected = "\
----------------kv sdk options----------------
cache                 : off
cache_algorithm       : radix
cache_reclaim_policy  : lru
slab_size             : 512 MB
app_hugemem_size      : 0 MB
slab_alloc_policy     : huge
ssd_type              : kv
submit_retry_interval : none
log_level             : 0
log_file              : LOG_FILE
nr_ssd                : 2
dev_id[0]             : 0000:02:00.0
  core_mask           : 0xf (CPUs 0-3)
  sync_mask           : 0x3 (CPUs 0-1)
  cq_thread_mask      : 0x10 (CPUs 4)
  queue_depth         : 64
dev_id[1]             : mem:kv:1G
  core_mask           : automatic
  sync_mask           : automatic
  cq_thread_mask      : automatic
  queue_depth         : 32
----------------------------------------------
";
    let log_file = default_log_file();
    assert!(log_file.file_name().is_none_or(|name| name == "kvsdk.log"));
    assert_eq!(config.describe(), expected.replace("LOG_FILE", &log_file.to_string_lossy()));
}

prop_compose! {
    fn any_device(index: usize)(
        scheme in prop_oneof![Just("vfio-user:/run/"), Just("slot "), Just("é\"\\\u{1}")],
        masks in any::<Option<(u64, u64, u64)>>(),
        queue_depth in 1u32..=4095,
    ) -> DeviceConfig {
        let (core, sync, cq) = masks.filter(|(core, _, _)| *core != 0).unwrap_or_default();
        device(&format!("{scheme}{index}"), core, sync, cq, queue_depth)
    }
}

prop_compose! {
    fn any_config()(
        cache: bool,
        slab_mb in 44u64..=1 << 20,
        app_mb in 0u64..=1 << 20,
        posix: bool,
        lba: bool,
        retry in prop::option::of(0u64..=1000),
        log_level in 0u8..=3,
        log_file in "[^\u{0}]{1,200}",
        devices in (1usize..=64).prop_flat_map(|count| (0..count).map(any_device).collect::<Vec<_>>()),
    ) -> SdkConfig {
        SdkConfig {
            cache,
            slab_bytes: slab_mb << 20,
            app_memory_bytes: app_mb << 20,
            slab_policy: if posix { SlabPolicy::Posix } else { SlabPolicy::Huge },
            ssd_type: if lba { SsdType::Lba } else { SsdType::Kv },
            submit_retry: retry.map(Duration::from_micros),
            log_level,
            log_file: log_file.into(),
            devices,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_printed_reads_as_the_same(config in any_config()) {
        let printed = config.to_json();
        let (read, warnings) = SdkConfig::parse(&printed, "printed.json").map_err(|e| TestCaseError::fail(format!("{e}\n{printed}")))?;
        prop_assert_eq!(&read, &config);
        prop_assert_eq!(warnings, Vec::<String>::new());
        // What is printed is JSON for everybody.
        prop_assert!(serde_json::from_str::<serde_json::Value>(&printed).is_ok());
    }

    #[test]
    fn any_text_is_read_or_refused_with_a_place_in_it(text in "[{}\\[\\]:,\"a-f0-9x./* \n\u{201c}\\\\-]{0,80}") {
        if let Err(error) = ConfigFile::parse(&text, "any.json") {
            let Error::Config { line, column, .. } = error else {
                return Err(TestCaseError::fail(format!("{error}")));
            };
            let on_line = text.split('\n').nth(line - 1).map(str::len);
            prop_assert!(on_line.is_some_and(|length| (1..=length + 1).contains(&column)), "{line}:{column} of {text:?}");
        }
    }
}
