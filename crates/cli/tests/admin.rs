//! Identity, namespaces, formats, firmware, features, logs: as one process leaves them the next one finds
//! them.

mod home;

use home::{DEVICE, Home};

#[test]
fn identify_controller_prints_as_nvme_cli_does() {
    let home = Home::with_device();
    let text = home.ok(&["id-ctrl", DEVICE]);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("NVME Identify Controller:"));
    assert_eq!(lines.next(), Some("vid       : 0x1b36"));
    assert!(text.contains("\nsn        : UNVME000002000      \n"), "{text}");
    assert!(text.contains("\nmn        : unvme virtual SSD                       \n"), "{text}");
    let json = home.json(&["id-ctrl", DEVICE]);
    assert_eq!(json["vid"], 0x1b36);
    assert_eq!(json["sn"], "UNVME000002000      ");
    assert_eq!(json["tnvmcap"], "67108864");
    assert_eq!(json["sqes"], 0x66);
    let raw = home.run(&["id-ctrl", DEVICE, "--raw-binary"]).stdout;
    assert_eq!(raw.len(), 4096);
    assert_eq!(raw[..4], [0x36, 0x1b, 0x36, 0x1b]);
    assert_eq!(&raw[4..18], b"UNVME000002000");
    // nvme-cli's word for text.
    assert_eq!(home.ok(&["id-ctrl", DEVICE, "--output-format", "normal"]), text);
}

#[test]
fn identify_namespace_prints_as_nvme_cli_does() {
    let home = Home::with_device();
    let text = home.ok(&["id-ns", DEVICE, "-n", "1"]);
    assert!(text.starts_with("NVME Identify Namespace 1:\nnsze    : 0x20000\nncap    : 0x20000\n"), "{text}");
    assert!(text.contains("\nlbaf  0 : ms:0   lbads:9  rp:"), "{text}");
    assert!(text.contains("(in use)"), "{text}");
    let json = home.json(&["id-ns", DEVICE]);
    assert_eq!(json["nsze"], 131_072);
    assert_eq!(json["lbafs"][1]["ds"], 12);
    assert_eq!(home.run(&["id-ns", DEVICE, "-b"]).stdout.len(), 4096);
}

#[test]
fn namespaces_are_created_attached_used_detached_and_deleted() {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--size", "64M", "--namespaces", "16M"]);
    let created = home.ok(&["create-ns", DEVICE, "--size", "8M", "--block-size", "4096"]);
    assert_eq!(created, "create-ns: Success, created nsid:2\n");
    assert_eq!(home.ok(&["list-ns", DEVICE]), "[   0]:0x1\n", "not attached yet");
    assert_eq!(home.ok(&["list-ns", DEVICE, "--all"]), "[   0]:0x1\n[   1]:0x2\n");
    home.run(&["read", DEVICE, "-n", "2"])
        .fails_with(2, &["there is no namespace 2; attached namespaces are 1"]);
    assert!(home.ok(&["id-ns", DEVICE, "-n", "2", "--force"]).contains("nsze    : 0x800\n"));

    assert_eq!(home.ok(&["attach-ns", DEVICE, "-n", "2", "-c", "0"]), "attach-ns: Success, nsid:2\n");
    home.run(&["attach-ns", DEVICE, "-n", "2"]).fails_with(1, &["Namespace Already Attached (0x118"]);
    home.run(&["read", DEVICE])
        .fails_with(2, &["0000:02:00.0: namespaces are 1, 2; choose one with --namespace-id"]);
    home.ok_with(&["write", DEVICE, "-n", "2"], &[0x77; 4096]);
    assert_eq!(home.run(&["read", DEVICE, "-n", "2"]).stdout, [0x77; 4096]);
    assert_eq!(home.run(&["read", DEVICE, "-n", "1"]).stdout, [0; 512]);
    let list = home.json(&["list-ns", DEVICE]);
    assert_eq!(list, serde_json::json!({"nsid_list": [{"nsid": 1}, {"nsid": 2}]}));

    assert_eq!(home.ok(&["detach-ns", DEVICE, "-n", "2"]), "detach-ns: Success, nsid:2\n");
    assert_eq!(home.ok(&["delete-ns", DEVICE, "-n", "2"]), "delete-ns: Success, deleted nsid:2\n");
    assert_eq!(home.ok(&["list-ns", DEVICE, "-a"]), "[   0]:0x1\n");
    home.run(&["create-ns", DEVICE, "--nsze", "0xffffffff"])
        .fails_with(1, &["Namespace Insufficient Capacity (0x115"]);
    assert_eq!(home.ok(&["list-ctrl", DEVICE]), "num of ctrls present: 1\n[   0]:0\n");
    assert_eq!(home.json(&["list-ctrl", DEVICE, "-n", "1"])["ctrl_list"][0]["ctrl_id"], 0);
}

#[test]
fn a_format_erases_and_changes_the_block() {
    let home = Home::with_device();
    home.ok_with(&["write", DEVICE], &[1; 4096]);
    assert_eq!(home.ok(&["format", DEVICE, "-b", "4096", "-s", "1"]), "Success formatting namespace:1\n");
    assert_eq!(home.json(&["id-ns", DEVICE])["nsze"], 16_384);
    assert_eq!(home.run(&["read", DEVICE]).stdout, [0; 4096]);
    assert_eq!(home.ok(&["format", DEVICE, "--lbaf", "0", "--reset"]), "Success formatting namespace:1\n");
    assert_eq!(home.json(&["id-ns", DEVICE])["nsze"], 131_072);
    home.run(&["format", DEVICE, "-b", "1000"])
        .fails_with(2, &["--block-size 1000: the device offers 512, 4096"]);
    home.run(&["format", DEVICE, "-l", "9"]).fails_with(1, &["Invalid Format (0x10a"]);
    home.run(&["format", DEVICE, "-n", "9"]).fails_with(1, &["Format NVM", "Invalid Field in Command"]);
    home.run(&["format", DEVICE, "-n", "200"]).fails_with(1, &["Invalid Namespace or Format (0x00b"]);
}

/// A firmware image of revision 2.0 as the device documents one: magic, revision, payload, CRC-32 of all
/// that.
const IMAGE: [u8; 24] = *b"UNVMEFW\x002.0     \x01\x02\x03\x04\xc2\x50\x7a\xa2";

#[test]
fn firmware_is_downloaded_committed_and_active_after_a_reset() {
    let home = Home::with_device();
    let file = home.file("image", &IMAGE);
    let before = home.json(&["id-ctrl", DEVICE])["fr"].clone();
    assert_eq!(before, "1.0     ");
    let text = home.ok(&["fw-download", DEVICE, "--fw", &file]);
    assert_eq!(text, "Firmware download success; not committed, so the device forgets it now\n");
    let text = home.ok(&["fw-download", DEVICE, "--fw", &file, "--slot", "2", "--action", "1"]);
    assert!(text.contains("\nSuccess committing firmware action:1 slot:2"), "{text}");
    // Opening the device is the reset that activates it.
    assert_eq!(home.json(&["id-ctrl", DEVICE])["fr"], "2.0     ");
    let log = home.ok(&["fw-log", DEVICE]);
    assert!(log.contains("afi  : 0x2\n") && log.contains("frs2 : 0x2020202020302e32 (2.0)\n"), "{log}");
    let text = home.ok(&["fw-activate", DEVICE, "-s", "1", "-a", "2"]);
    assert!(text.starts_with("Success committing firmware action:2 slot:1"), "{text}");
    assert_eq!(home.json(&["id-ctrl", DEVICE])["fr"], "1.0     ");
}

#[test]
fn images_that_are_none_are_refused() {
    let home = Home::with_device();
    let odd = home.file("odd", &[0; 10]);
    home.run(&["fw-download", DEVICE, "-f", &odd])
        .fails_with(2, &["odd: 10 bytes; an image has 4 to 67108864"]);
    let empty = home.file("empty", &[]);
    home.run(&["fw-download", DEVICE, "-f", &empty]).fails_with(2, &["empty: 0 bytes"]);
    home.run(&["fw-download", DEVICE, "-f", "missing"])
        .fails_with(4, &["read missing: No such file or directory"]);
    home.run(&["fw-commit", DEVICE, "-s", "2", "-a", "0"]).fails_with(1, &["Firmware Commit", "(0x1"]);
    home.run(&["fw-commit", DEVICE, "-s", "8"]).fails_with_usage("'8'");
    let image = home.file("image", &[0; 8192]);
    home.run(&["fw-download", DEVICE, "-f", &image, "-x", "6"])
        .fails_with(2, &["--xfer 6: expected a multiple of 4, at most "]);
}

#[test]
fn features_are_read_set_and_explained() {
    let home = Home::with_device();
    let text = home.ok(&["get-feature", DEVICE, "-f", "7", "-H"]);
    assert!(text.starts_with("get-feature:0x07 (Number of Queues), Current value:0x"), "{text}");
    assert!(text.contains("\n\tNumber of IO Completion Queues Allocated (NCQA): "), "{text}");
    let text = home.ok(&["get-feature", DEVICE, "-f", "0x06", "--sel", "3"]);
    assert!(text.contains("Feature is changeable\n"), "{text}");
    let cache = |home: &Home| home.json(&["get-feature", DEVICE, "-f", "6"])["value"].clone();
    assert_eq!(cache(&home), 1);
    // Who opens the device resets it: the help says what --save is for.
    home.ok(&["set-feature", DEVICE, "-f", "6", "-v", "0"]);
    assert_eq!(home.json(&["get-feature", DEVICE, "-f", "6"])["value"], 1);
    assert!(
        home.ok(&["set-feature", "--help"]).contains("A value that is not saved is gone with the next reset")
    );
    assert_eq!(
        home.ok(&["set-feature", DEVICE, "-f", "6", "-v", "0", "--save"]),
        "set-feature:0x06 (Volatile Write Cache), value:0x00000000, cdw12:0x00000000, save:1\n"
    );
    assert_eq!(cache(&home), 0, "saved: the next process finds it");
    let time = home.json(&["get-feature", DEVICE, "-f", "0xe"]);
    assert_eq!((time["name"].as_str(), time["data"].as_str().map(str::len)), (Some("Timestamp"), Some(16)));
    home.ok(&["set-feature", DEVICE, "-f", "0xe", "-v", "1700000000000"]);
    assert_eq!(home.run(&["get-feature", DEVICE, "-f", "0x16", "-b"]).stdout.len(), 512);
    home.run(&["get-feature", DEVICE, "-f", "0xd0"])
        .fails_with(1, &["Get Features", "Invalid Field in Command"]);
    home.run(&["set-feature", DEVICE, "-f", "0x16"])
        .fails_with(2, &["Host Behavior is set with a data structure of 512 bytes; name a file with --data"]);
    home.run(&["set-feature", DEVICE, "-f", "6", "-v", "0x100000000"]).fails_with(2, &["at most 32 bits"]);
}

#[test]
fn logs_are_printed_as_nvme_cli_does() {
    let home = Home::with_device();
    home.ok_with(&["write", DEVICE], &[1; 512 * 3]);
    let text = home.ok(&["smart-log", DEVICE]);
    assert!(text.starts_with("Smart Log for NVME device:0000:02:00.0 namespace-id:ffffffff\n"), "{text}");
    let smart = home.json(&["smart-log", DEVICE]);
    assert_eq!((&smart["host_write_commands"], &smart["data_units_written"]), (&"1".into(), &"1".into()));
    let raw = home.run(&["get-log", DEVICE, "-i", "2", "-l", "512", "-b"]).stdout;
    assert_eq!((raw.len(), raw[0]), (512, 0));
    let dump = home.ok(&["get-log", DEVICE, "-i", "2", "-l", "30"]);
    assert!(
        dump.starts_with("Device:0000:02:00.0 log-id:2 namespace-id:0xffffffff\n       0  1  2"),
        "{dump}"
    );
    assert_eq!(dump.lines().count(), 4);
    let json = home.json(&["get-log", DEVICE, "-i", "3", "-l", "8", "-o", "8"]);
    assert_eq!(json["data"], "312e302020202020", "the revision of slot 1");
    home.run(&["get-log", DEVICE, "-i", "0xee", "-l", "4"]).fails_with(1, &["Invalid Log Page (0x109"]);
    home.run(&["get-log", DEVICE, "-i", "2", "-l", "0"]).fails_with(2, &["--log-len 0: expected 1 to "]);
    home.run(&["get-log", DEVICE, "-i", "2", "-l", "4", "-o", "2"]).fails_with(2, &["multiple of 4"]);
}

#[test]
fn an_error_is_in_the_error_log() {
    let home = Home::with_device();
    let _server = home.serve(&[DEVICE]);
    assert_eq!(
        home.ok(&["error-log", DEVICE]),
        "Error Log Entries for device:0000:02:00.0 entries:0\n.................\n"
    );
    home.run(&["dsm", DEVICE, "-d", "-s", "131071", "-b", "2"]).fails_with(1, &["LBA Out of Range"]);
    let log = home.json(&["error-log", DEVICE, "-e", "4"]);
    let entries = log["errors"].as_array().expect("list");
    assert!(entries.iter().any(|e| e["status_field"].as_u64().map(|s| s & 0x7ff) == Some(0x80)), "{log}");
}

#[test]
fn resets_keep_data_and_identity() {
    let home = Home::with_device();
    home.ok_with(&["write", DEVICE], &[5; 512]);
    assert_eq!(home.ok(&["reset", DEVICE]), "reset: Success\n");
    assert_eq!(home.ok(&["subsystem-reset", DEVICE]), "subsystem-reset: Success\n");
    assert_eq!(home.run(&["read", DEVICE]).stdout, [5; 512]);
}
