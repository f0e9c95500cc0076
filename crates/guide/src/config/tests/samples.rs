//! Configurations as people have them: printed in the guide, and shipped here.

use std::path::Path;

use super::*;

#[test]
fn the_printed_samples_of_the_guide_are_read() {
    let three = [
        device("0000:0a:00.0", 0xff, 0xf, 0x1, 256),
        device("0000:0b:00.0", 0xff0, 0xf0, 0x10, 256),
        device("0000:0c:00.0", 0x7f80, 0x780, 0x100, 256),
    ];
    for (name, text, devices) in [
        (
            "missing commas",
            include_str!("../samples/missing_commas.json"),
            &[device("0000:01:00.0", 0xf, 0, 4, 64)] as &[_],
        ),
        (
            "a device after the bracket",
            include_str!("../samples/second_device_after_bracket.json"),
            &[device("0000:0a:00.0", 0xff, 0xf, 1, 256), device("0000:0b:00.0", 0xff00, 0xf00, 0x100, 256)],
        ),
        ("devices after the bracket", include_str!("../samples/three_devices_after_bracket.json"), &three),
        ("no commas in the array", include_str!("../samples/three_devices_without_commas.json"), &three),
        (
            "typographic quotes",
            include_str!("../samples/typographic.json"),
            &[device("0000:05:00.0", 1 << 24, 0, 1, 64), device("0000:02:00.0", 1, 0, 1 << 25, 64)],
        ),
    ] {
        let (config, warnings) = config(text);
        assert_eq!(config.devices, devices, "{name}");
        assert_eq!(warnings, [""; 0], "{name}");
    }
    let (options, _) = config(include_str!("../samples/missing_commas.json"));
    assert_eq!((options.cache, options.app_memory_bytes), (true, 1 << 30));
    assert_eq!(options.log_file, Path::new("/tmp/kv sdk.log"));
}

#[test]
fn the_sample_configurations_of_this_project_are_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../share/unvme");
    let slab = |config: &SdkConfig| (config.slab_bytes >> 20, config.app_memory_bytes >> 20);
    let dev = "0000:02:00.0";
    for (name, ssd_type, memory, devices) in [
        ("kv_sdk_sync_config.json", SsdType::Kv, (512, 0), vec![device(dev, 1, 1, 2, 64)]),
        ("kv_sdk_async_config.json", SsdType::Lba, (44, 0), vec![device(dev, 1, 0, 2, 128)]),
        ("kv_sdk_simple_config.json", SsdType::Kv, (512, 0), vec![DeviceConfig::new(dev)]),
        ("sample_config.json", SsdType::Kv, (512, 0), vec![device(dev, 1, 1, 2, 64)]),
        (
            "kv_perf_scripts/kv_perf_default_config.json",
            SsdType::Kv,
            (512, 0),
            vec![device(dev, 1, 0, 1, 64)],
        ),
        ("lba_sdk_config.json", SsdType::Lba, (44, 512), vec![device(dev, 1, 0, 0, 256)]),
        ("fuse/lba_sdk_config.json", SsdType::Lba, (44, 3072), vec![device(dev, 3, 0, 0, 256)]),
        ("unvme_rocksdb/lba_sdk_config.json", SsdType::Lba, (44, 5120), vec![device(dev, 1, 0, 0, 256)]),
        ("fio_plugin/unvme2_config.json", SsdType::Lba, (512, 0), vec![device(dev, 3, 0, 0xc, 64)]),
        (
            "fio_plugin/unvme2_config_multi.json",
            SsdType::Lba,
            (512, 0),
            vec![device("0000:01:00.0", 1, 0, 4, 64), device(dev, 1, 0, 8, 64)],
        ),
    ] {
        let (config, warnings) = SdkConfig::load(folder.join(name)).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((config.ssd_type, slab(&config), &config.devices), (ssd_type, memory, &devices), "{name}");
        assert_eq!(warnings, [""; 0], "{name}");
    }
}
