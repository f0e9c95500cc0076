//! Virtual devices: created, listed, shown, removed.

mod home;

use home::{DEVICE, Home};

#[test]
fn a_device_is_created_listed_shown_and_removed() {
    let home = Home::new();
    let created = home.ok(&["device", "create", "02:00.0", "--size", "64M", "--block", "4096"]);
    assert!(created.starts_with("created 0000:02:00.0: 64M in "), "{created}");

    let list = home.json(&["device", "list"]);
    assert_eq!(list["devices"][0]["address"], DEVICE);
    assert_eq!(list["devices"][0]["capacity_bytes"], 67_108_864);
    assert_eq!(list["devices"][0]["state"], "free");

    let show = home.ok(&["device", "show", DEVICE]);
    assert!(show.contains("serial         : UNVME000002000\n"), "{show}");
    assert!(show.contains("namespace 1    : 64M in blocks of 4096 bytes when new\n"), "{show}");

    let table = home.ok(&["list"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(
        lines[0].split("  ").map(str::trim).filter(|c| !c.is_empty()).collect::<Vec<_>>(),
        ["BDF Address", "SN", "Model", "Namespace", "Usage", "Format", "SSD Type", "FW Rev"]
    );
    assert!(lines[2].starts_with("0000:02:00.0  UNVME000002000  unvme virtual SSD  1  "), "{table}");
    assert!(lines[2].contains("0.00 B / 67.11 MB  4096 B + 0 B  LBA  "), "{table}");
    assert_eq!(lines.len(), 3);

    assert_eq!(home.ok(&["device", "remove", DEVICE]), "removed 0000:02:00.0\n");
    assert!(!home.slot().exists());
    assert!(home.ok(&["device", "list"]).starts_with("no virtual devices in "));
}

#[test]
fn list_has_the_json_keys_of_nvme_cli() {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--size", "64M", "--namespaces", "16M,32M", "--serial", "S1"]);
    let list = home.json(&["list"]);
    let second = &list["Devices"][1];
    assert_eq!(second["NameSpace"], 2);
    assert_eq!(second["DevicePath"], DEVICE);
    assert_eq!(second["SerialNumber"], "S1");
    assert_eq!(second["ModelNumber"], "unvme virtual SSD");
    assert_eq!(second["PhysicalSize"], 33_554_432);
    assert_eq!(second["MaximumLBA"], 65536);
    assert_eq!(second["SectorSize"], 512);
    assert_eq!(list["Devices"].as_array().map(Vec::len), Some(2));
}

#[test]
fn the_first_free_address_is_taken_when_none_is_named() {
    let home = Home::new();
    for expected in ["0000:01:00.0", "0000:02:00.0"] {
        assert_eq!(home.json(&["device", "create", "--size", "2M"])["address"], expected);
    }
}

#[test]
fn a_null_device_forgets_what_is_written() {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--size", "1T", "--media", "null"]);
    home.ok_with(&["write", DEVICE, "-z", "512"], b"gone");
    assert!(!home.slot().join("media.img").exists());
    assert!(home.ok(&["list"]).contains(" / 1.10 TB  "));
}

#[test]
fn an_address_that_is_taken_is_refused_and_the_device_stays() {
    let home = Home::with_device();
    home.ok_with(&["write", DEVICE, "-z", "512"], b"kept");
    home.run(&["device", "create", "02:00.0", "--size", "2M"])
        .fails_with(2, &["0000:02:00.0: a virtual device exists at this address", "remove it first"]);
    assert!(home.ok(&["read", DEVICE, "-z", "4"]).starts_with("kept"));
}

#[test]
fn devices_that_cannot_be_are_refused_with_what_can() {
    let home = Home::new();
    for (args, parts) in [
        (
            &["--size", "8M", "--type", "kv"][..],
            &["`namespaces`: namespace 1 of type kv has 8388608 bytes, expected at least 16M in steps of 2M"]
                [..],
        ),
        (&["--size", "64M", "--type", "kv", "--media", "null"], &["`media`: a device that keeps no data"]),
        (&["--size", "64M", "--keyspace-field", "nsid"], &["`keyspace_field`: only a device of type kv"]),
        (
            &["--size", "64M", "--namespaces", "kv:32M"],
            &["a device of type block has no namespace of type kv"],
        ),
        (&["--size", "1M"], &["`capacity_bytes`: a capacity is 2M to 8T in steps of 2M, not 1M"]),
        (&["--size", "3M"], &["in steps of 2M, not 3M"]),
        (&["--size", "16T"], &["not 16T"]),
        (
            &["--size", "8M", "--namespaces", "8M,2M"],
            &["`namespaces`: they take 5 units of 2M, the device has 4"],
        ),
        (&["--size", "8M", "--namespaces", "100"], &["namespace 1 has 100 bytes"]),
        (&["--size", "8M", "--serial", "123456789012345678901"], &["`serial`: expected 1 to 20 printable"]),
        (&["--size", "8M", "--model", ""], &["`model`: expected 1 to 40 printable"]),
    ] {
        home.run(&[&["device", "create", DEVICE], args].concat()).fails_with(2, parts);
    }
    home.run(&["device", "create", DEVICE, "--size", "64M", "--namespaces", "tape:32M"])
        .fails_with_usage("`tape` is no type, expected block or kv");
    assert!(!home.slot().exists(), "nothing of the failures is left");
}

#[test]
fn removing_what_is_not_there_lists_what_is() {
    let home = Home::with_device();
    home.run(&["device", "remove", "09:00.0"])
        .fails_with(3, &["0000:09:00.0: no such device", "virtual devices are 0000:02:00.0 in "]);
    home.run(&["device", "show", "09:00.0"]).fails_with(3, &["virtual devices are 0000:02:00.0 in "]);
}

#[test]
fn a_damaged_description_is_told_with_its_place() {
    let home = Home::with_device();
    let path = home.slot().join("device.json");
    let text = std::fs::read_to_string(&path).expect("read");
    std::fs::write(&path, text.replace("\"serial\"", "\"cereal\"")).expect("write");
    let place = format!("{}:6:10: `cereal`: unknown field `cereal`, expected one of ", path.display());
    home.run(&["id-ctrl", DEVICE]).fails_with(4, &[&place]);
    home.run(&["device", "show", DEVICE]).fails_with(4, &[&place]);
    // It is still listed, so that it can be found, and it can be removed.
    assert!(home.ok(&["device", "list"]).contains("unknown field `cereal`"));
    home.ok(&["device", "remove", DEVICE]);
}

#[test]
fn a_media_file_of_another_size_is_told() {
    let home = Home::with_device();
    home.ok(&["id-ctrl", DEVICE]);
    std::fs::write(home.slot().join("media.img"), [0; 4096]).expect("write");
    home.run(&["id-ctrl", DEVICE]).fails_with(4, &["media.img", "4096 bytes", "67108864"]);
}

#[test]
fn without_a_home_the_variable_to_set_is_named() {
    let home = Home::new();
    let mut command = home.command(&["device", "list"]);
    let output = command.env_remove("UNVME_HOME").output().expect("run");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("set UNVME_HOME to a folder"));
    let folder = home.path("state");
    let mut command = home.command(&["device", "create", "--size", "2M"]);
    let output = command.env_remove("UNVME_HOME").env("XDG_STATE_HOME", &folder).output().expect("run");
    assert_eq!(output.status.code(), Some(0));
    assert!(folder.join("unvme/slots/0000:01:00.0/device.json").exists());
}

#[test]
fn diagnostics_in_a_file_have_no_colours() {
    let home = Home::new();
    let output = home
        .command(&["id-ctrl", "mem:block:2M"])
        .env("UNVME_LOG", "debug")
        .output()
        .expect("run the program");
    let log = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(log.contains("DEBUG unvme_ssd"), "{log}");
    assert!(!log.contains('\x1b'), "{log}");
}

#[test]
fn a_check_names_ranges_of_blocks_that_are_not_as_they_were_written() {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--size", "16M", "--checksum"]);
    home.ok_with(&["write", DEVICE, "-z", "64K"], &[7; 64 << 10]);
    let good = home.ok(&["device", "check", DEVICE]);
    assert_eq!(good, "namespace 1: 4096 blocks with space, all as they were written\n");
    assert_eq!(home.json(&["device", "check", DEVICE])["blocks"][0]["damaged"], 0);
    let path = home.slot().join("media.img");
    let mut media = std::fs::read(&path).expect("media");
    for block in [3, 4, 5].into_iter().chain((10..60).step_by(2)) {
        media[block * 512 + 9] ^= 1;
    }
    // As a copy without holes: every block has space.
    std::fs::write(&path, media).expect("media");
    let done = home.run(&["device", "check", DEVICE]);
    let text = String::from_utf8(done.stdout.clone()).expect("text");
    let expected =
        "namespace 1: 32768 blocks with space, 28 blocks not as written\n  blocks 3 to 5\n  block 10\n";
    assert!(text.starts_with(expected) && text.ends_with("  block 46\n  and 6 blocks more\n"), "{text}");
    done.fails_with(1, &["28 of what was stored cannot be read"]);
    let done = home.run(&["device", "check", DEVICE, "--output", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!(json["blocks"][0]["ranges"][0], serde_json::json!({"first": 3, "blocks": 3}), "{json}");
    assert_eq!((&json["lost"], json["blocks"][0]["ranges"].as_array().map(Vec::len)), (&28.into(), Some(26)));
}
