//! Any text as a configuration file. It is read or refused with a place that lies in it; what was read is
//! within the documented bounds, can be placed on any machine, and when printed reads as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unvme::Error;
use unvme_guide::config::{DEV_ID_BYTES_MAX, DEVICES_MAX, LOG_FILE_BYTES_MAX, SLAB_BYTES_MIN};
use unvme_guide::{CpuSet, Placement, SdkConfig};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let (config, _) = match SdkConfig::parse(&text, "fuzz.json") {
        Ok(read) => read,
        Err(Error::Config { line, column, reason, .. }) => {
            let on_line = text.split('\n').nth(line - 1).map(str::len);
            assert!(on_line.is_some_and(|length| (1..=length + 1).contains(&column)), "{line}:{column}");
            // A message is for a terminal, however long the file's words are.
            assert!(reason.len() < 1000 && !reason.is_empty(), "{reason}");
            return;
        }
        Err(other) => panic!("a text is wrong at a place: {other}"),
    };

    assert!((1..=DEVICES_MAX).contains(&config.devices.len()));
    assert!(config.devices.iter().all(|device| (1..=DEV_ID_BYTES_MAX).contains(&device.dev_id.len())));
    assert!((1..=LOG_FILE_BYTES_MAX).contains(&config.log_file.as_os_str().len()));
    assert!(config.slab_bytes >= SLAB_BYTES_MIN && config.log_level <= 3);
    assert!(config.memory_mb() > 0 && !config.describe().is_empty());

    let (again, _) = SdkConfig::parse(&config.to_json(), "printed.json").unwrap();
    assert_eq!(again, config);

    for cpus in [0x1, 0x3, 0x8000_0000_0000_0001, u64::MAX] {
        let placement = Placement::of(&config.devices, CpuSet(cpus), data.len());
        assert_eq!(placement.devices.len(), config.devices.len());
        assert!(placement.devices.iter().all(|placed| !placed.queue_cpus().is_empty()));
    }
});
