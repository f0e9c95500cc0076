//! What is refused, and the whole message of each refusal.

use super::*;

/// Members of the file, each before a good device, and their messages.
const FILE_MISTAKES: &[(&str, &str)] = &[
    ("\n  \"slab_sise\": 1", "2:3: `slab_sise`: there is no such key; did you mean `slab_size`?"),
    ("\"Cache\": 1", "1:2: `Cache`: there is no such key; did you mean `cache`?"),
    (
        "\"c\": 1",
        "1:2: `c`: there is no such key; expected one of cache, cache_algorithm, cache_reclaim_policy, slab_size, app_hugemem_size, slab_alloc_policy, ssd_type, driver, submit_retry_interval, log_level, log_file, device_description",
    ),
    ("\"core_mask\": 1", "1:2: `core_mask`: this is a key of a device; it goes into `device_description`"),
    ("\"cache\": \"on\",\n\"cache\": \"on\"", "2:1: `cache`: the key was given already, on line 1, column 2"),
    ("\"cache\": \"yes\"", "1:11: `cache`: expected \"on\" or \"off\", found \"yes\""),
    ("\"cache\": \"ON\"", "1:11: `cache`: expected \"on\" or \"off\", found \"ON\"; did you mean \"on\"?"),
    ("\"cache\": true", "1:11: `cache`: expected \"on\" or \"off\", found `true`"),
    ("\"cache\": on", "1:11: `cache`: expected \"on\" or \"off\", found `on`"),
    ("\"cache_algorithm\": \"art\"", "1:21: `cache_algorithm`: expected \"radix\", found \"art\""),
    ("\"cache_reclaim_policy\": \"fifo\"", "1:26: `cache_reclaim_policy`: expected \"lru\", found \"fifo\""),
    ("\"slab_alloc_policy\": 32", "1:23: `slab_alloc_policy`: expected \"huge\" or \"posix\", found `32`"),
    ("\"ssd_type\": \"block\"", "1:14: `ssd_type`: expected \"kv\" or \"lba\", found \"block\""),
    (
        "\"slab_size\": \"512\"",
        "1:15: `slab_size`: expected a number from 0 to 1048576 (MB), found \"512\" in quotes",
    ),
    ("\"slab_size\": -1", "1:15: `slab_size`: expected a number from 0 to 1048576 (MB), found `-1`"),
    (
        "\"slab_size\": 1048577",
        "1:15: `slab_size`: expected a number from 0 to 1048576 (MB), found `1048577`",
    ),
    (
        "\"slab_size\": 99999999999999999999",
        "1:15: `slab_size`: expected a number from 0 to 1048576 (MB), found `99999999999999999999`",
    ),
    (
        "\"slab_size\": 1.5",
        "1:15: `slab_size`: expected a number from 0 to 1048576 (MB), found `1.5`, which is no decimal integer",
    ),
    (
        "\"slab_size\": 0x200",
        "1:15: `slab_size`: expected a number from 0 to 1048576 (MB), found `0x200`, which is no decimal integer",
    ),
    (
        "\"slab_size\": +1",
        "1:15: `slab_size`: expected a number from 0 to 1048576 (MB), found `+1`, which is no decimal integer",
    ),
    (
        "\"slab_size\": 0512",
        "1:15: `slab_size`: expected a number from 0 to 1048576 (MB), found `0512`; leave out the zeros in front",
    ),
    (
        "\"app_hugemem_size\": {}",
        "1:22: `app_hugemem_size`: expected a number from 0 to 1048576 (MB), found an object",
    ),
    (
        "\"submit_retry_interval\": 1001",
        "1:27: `submit_retry_interval`: expected a number from -1 to 1000 (microseconds, or -1 for no retry), found `1001`",
    ),
    (
        "\"submit_retry_interval\": -2",
        "1:27: `submit_retry_interval`: expected a number from -1 to 1000 (microseconds, or -1 for no retry), found `-2`",
    ),
    ("\"log_level\": 4", "1:15: `log_level`: expected a number from 0 to 3 (how much is logged), found `4`"),
    ("\"log_file\": 4", "1:14: `log_file`: expected a path in double quotes, found `4`"),
    ("\"log_file\": \"\"", "1:14: `log_file`: expected a path of 1 to 1023 bytes, found 0"),
    ("\"log_file\": \"a\\u0000\"", "1:14: `log_file`: expected a path, found one with a NUL character"),
    ("\"driver\": 1", "1:12: `driver`: expected a name in double quotes, found `1`"),
    ("\"cache\": \"on\" \"ssd_type\" \"kv\"", "1:27: `ssd_type`: expected `:` after the key, found a string"),
];

#[test]
fn a_mistake_is_named_with_its_place_its_key_and_what_was_expected() {
    for (text, message) in FILE_MISTAKES {
        assert_eq!(refused(&format!("{{{text}, {DEVICE}}}")), *message);
    }
    let long = "/".repeat(1024);
    let message = "1:14: `log_file`: expected a path of 1 to 1023 bytes, found 1024";
    assert_eq!(refused(&format!("{{\"log_file\": \"{long}\", {DEVICE}}}")), message);
}

/// Descriptions of devices, on the second line of a file, and their messages.
const DEVICE_MISTAKES: &[(&str, &str)] = &[
    ("5", "2:1: `device_description`: expected an object or an array of objects, found `5`"),
    ("[]", "2:1: `device_description`: expected at least one device, found none"),
    ("[\"0000:02:00.0\"]", "2:2: `device_description`: expected an object, found \"0000:02:00.0\""),
    (
        "{\"core_mask\": 1}",
        "2:1: `dev_id`: the device has no `dev_id`; expected its name, such as \"dev_id\": \"0000:02:00.0\"",
    ),
    ("{\"dev_id\": \"\"}", "2:12: `dev_id`: expected the name of a device of 1 to 31 bytes, found 0"),
    (
        "{\"dev_id\": \"vfio-user:/run/user/1000/nvme.sock\"}",
        "2:12: `dev_id`: expected the name of a device of 1 to 31 bytes, found 34",
    ),
    (
        "{\"dev_id\": \"vfio-user:\"}",
        "2:12: `dev_id`: expected the path of a socket, such as vfio-user:/run/nvme.sock",
    ),
    ("{\"dev_id\": 2}", "2:12: `dev_id`: expected the name of a device in double quotes, found `2`"),
    (
        "{\"dev_id\": \"a\", \"dev_id\": \"b\"}",
        "2:17: `dev_id`: the key was given already, on line 2, column 2",
    ),
    (
        "{\"dev_id\": \"a\", \"coremask\": 1}",
        "2:17: `coremask`: there is no such key; did you mean `core_mask`?",
    ),
    (
        "{\"dev_id\": \"a\", \"slab_size\": 1}",
        "2:17: `slab_size`: this is no key of a device; it goes outside of the device's object",
    ),
    (
        "{\"dev_id\": \"a\", \"core_mask\": \"G\"}",
        "2:30: `core_mask`: `G` is no CPU mask; expected up to 16 hexadecimal digits such as F or 0x00FF, or a list such as \"0-3,8\"",
    ),
    (
        "{\"dev_id\": \"a\", \"core_mask\": 1FFFFFFFFFFFFFFFF}",
        "2:30: `core_mask`: `1FFFFFFFFFFFFFFFF` is no CPU mask; expected up to 16 hexadecimal digits such as F or 0x00FF, or a list such as \"0-3,8\"",
    ),
    (
        "{\"dev_id\": \"a\", \"sync_mask\": \"3-1\"}",
        "2:30: `sync_mask`: `3-1` is no list of CPUs from 0 to 63; expected one such as \"0-3,8\"",
    ),
    (
        "{\"dev_id\": \"a\", \"sync_mask\": -1}",
        "2:30: `sync_mask`: expected a mask, found `-1`; a list of CPUs is in quotes",
    ),
    (
        "{\"dev_id\": \"a\", \"cq_thread_mask\": [1]}",
        "2:35: `cq_thread_mask`: expected a mask such as \"0xF\", found an array",
    ),
    (
        "{\"dev_id\": \"a\", \"queue_depth\": 0}",
        "2:32: `queue_depth`: expected a number from 1 to 4095 (commands), found `0`",
    ),
    (
        "{\"dev_id\": \"a\", \"queue_depth\": 4096}",
        "2:32: `queue_depth`: expected a number from 1 to 4095 (commands), found `4096`",
    ),
    (
        "{\"dev_id\": \"a\", \"queue_depth\": FF}",
        "2:32: `queue_depth`: expected a number from 1 to 4095 (commands), found `FF`, which is no decimal integer",
    ),
    (
        "[{\"dev_id\": \"0000:02:00.0\"},\n {\"dev_id\": \"02:00.0\"}]",
        "3:13: `dev_id`: 02:00.0 is device 1 of the list already; each device is named once",
    ),
];

#[test]
fn a_mistake_in_a_device_is_named_too() {
    for (text, message) in DEVICE_MISTAKES {
        assert_eq!(refused(&format!("{{\"device_description\":\n{text}}}")), *message);
    }
}

#[test]
fn a_configuration_without_a_device_falls_back_to_none() {
    let expected = "`device_description`: no device is named; expected \"device_description\": { \"dev_id\": \"0000:02:00.0\" }";
    assert_eq!(refused("{}"), format!("1:1: {expected}"));
    assert_eq!(refused("// nothing\n  {\"cache\": \"on\"}"), format!("2:3: {expected}"));
}

#[test]
fn a_file_that_is_not_there_or_is_no_text_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config.json");
    let missing = SdkConfig::load(&path).expect_err("there is no file");
    let expected = format!("open {}: No such file or directory (os error 2)", path.display());
    assert_eq!(missing.to_string(), expected);

    std::fs::write(&path, b"{\n\"cache\": \"\xff\"}").expect("written");
    let error = ConfigFile::load(&path).expect_err("not UTF-8");
    assert_eq!(error.to_string(), format!("{}:2:11: the text is not UTF-8", path.display()));

    std::fs::write(&path, " ".repeat(262_144 - 2) + "{}").expect("written");
    assert_eq!(ConfigFile::load(&path).expect("just short enough"), ConfigFile::default());
    std::fs::write(&path, " ".repeat(262_145)).expect("written");
    assert!(matches!(ConfigFile::load(&path), Err(Error::Argument(_))));
}

#[test]
fn a_configuration_that_a_program_made_is_checked() {
    let good = SdkConfig { devices: vec![device("0000:02:00.0", 1, 1, 2, 0)], ..Default::default() };
    let mut settled = good.clone();
    settled.log_file = "".into();
    settled.submit_retry = Some(Duration::from_millis(5));
    let warnings = settled.settle().expect("can be settled");
    assert_eq!(warnings, ["`submit_retry_interval`: 5000 us are too long; lowered to 1000 us"]);
    assert_eq!(settled.submit_retry, Some(Duration::from_millis(1)));
    assert_eq!((settled.devices[0].queue_depth, settled.log_file), (64, SdkConfig::default().log_file));

    type Change = fn(&mut SdkConfig);
    let changes: [(Change, &str); 10] = [
        (|c| c.devices.clear(), "`device_description`: expected 1 to 64 devices, not 0"),
        (
            |c| c.devices = (0..65).map(|n| DeviceConfig::new(format!("{n}"))).collect(),
            "`device_description`: expected 1 to 64 devices, not 65",
        ),
        (|c| c.devices[0].dev_id.clear(), "`dev_id`: expected 1 to 255 bytes and no NUL, not 0 (\"\")"),
        (
            |c| c.devices[0].dev_id = "a\0".into(),
            "`dev_id`: expected 1 to 255 bytes and no NUL, not 2 (\"a\\0\")",
        ),
        (
            |c| c.devices.push(DeviceConfig::new("02:00.0")),
            "`dev_id`: 02:00.0 is named twice; each device is named once",
        ),
        (|c| c.devices[0].queue_depth = 4096, "`queue_depth`: 0000:02:00.0: expected 1 to 4095, not 4096"),
        (|c| c.log_level = 4, "`log_level`: expected 0 to 3, not 4"),
        (
            |c| c.log_file = "/".repeat(1024).into(),
            "`log_file`: expected at most 1023 bytes and no NUL, not 1024 bytes",
        ),
        (
            |c| c.slab_bytes = (1 << 40) + 1,
            "`slab_size`: at most 1099511627776 bytes are possible, not 1099511627777",
        ),
        (
            |c| c.app_memory_bytes = u64::MAX,
            "`app_hugemem_size`: at most 1099511627776 bytes are possible, not 18446744073709551615",
        ),
    ];
    for (change, message) in changes {
        let mut wrong = good.clone();
        change(&mut wrong);
        assert_eq!(wrong.settle().expect_err(message).to_string(), message);
    }
    // Longer than what a file may say: options and paths are part of a name.
    let mut long = good.clone();
    long.devices[0].dev_id = "x".repeat(255);
    long.settle().expect("a long name");
    long.devices[0].dev_id.push('x');
    let message = long.settle().expect_err("too long").to_string();
    assert!(message.starts_with("`dev_id`: expected 1 to 255 bytes and no NUL, not 256 (\"xxx"), "{message}");
}
