//! Virtual key-value devices: created, shown, formatted, checked.

mod home;

use std::os::unix::fs::MetadataExt;

use home::{DEVICE, Home};

#[test]
fn a_key_value_device_is_created_listed_and_shown() {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--type", "kv", "--size", "64M", "--keyspace-field", "nsid"]);
    let show = home.ok(&["device", "show", DEVICE]);
    assert!(show.contains("type           : kv\n") && show.contains("keyspace_field : nsid\n"), "{show}");
    assert!(show.contains("namespace 1    : 64M for pairs when new\n"), "{show}");
    let table = home.ok(&["list"]);
    let row = table.lines().nth(2).expect("a namespace");
    assert!(row.contains(" / ") && row.contains("  -  ") && row.contains("  KV  "), "{table}");
    let list = home.json(&["list"]);
    assert_eq!((&list["Devices"][0]["SSDType"], &list["Devices"][0]["UsedBytes"]), (&"KV".into(), &0.into()));
    let id = home.ok(&["id-ns", DEVICE]);
    assert!(id.starts_with("NVME Identify Namespace 1 (key value):\n"), "{id}");
    assert!(id.contains("kvf   0 : kvkml:16 kvvml:268435456 mnks:0 rp:0 (in use)\n"), "{id}");
    assert_eq!(home.ok(&["id-ns", DEVICE, "--csi", "1"]), id);
    home.run(&["id-ns", DEVICE, "--csi", "2"]).fails_with(2, &["expected 0 (NVM) or 1 (key value)"]);
    assert_eq!(home.ok(&["list-ns", DEVICE, "--csi", "1"]), "[   0]:0x1\n");
    assert_eq!(home.ok(&["list-ns", DEVICE, "--csi", "0"]), "");
}

#[test]
fn a_device_may_have_blocks_and_pairs() {
    let home = Home::new();
    let create =
        ["device", "create", DEVICE, "--type", "kv", "--size", "64M", "--namespaces", "block:16M,32M"];
    home.ok(&create);
    let list = home.json(&["list"]);
    assert_eq!(list["Devices"][0]["SSDType"], "LBA");
    assert_eq!(list["Devices"][1]["SSDType"], "KV");
    home.ok_with(&["write", DEVICE, "-z", "512"], b"blocks");
    home.ok(&["kv", "store", DEVICE, "-n", "2", "key", "pairs"]);
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "-n", "2", "key"]), "pairs");
    home.run(&["format", DEVICE, "-n", "2", "--block-size", "512"])
        .fails_with(2, &["namespace 2 holds pairs, which have no blocks"]);
    home.ok(&["format", DEVICE, "-n", "2", "--ses", "1"]);
    assert!(home.ok(&["read", DEVICE, "-z", "6"]).starts_with("blocks"));
    home.run(&["kv", "retrieve", DEVICE, "-n", "2", "key"]).fails_with(1, &[]);
    home.ok(&["create-ns", DEVICE, "--csi", "1", "--size", "16M"]);
    home.ok(&["attach-ns", DEVICE, "-n", "3", "-c", "0"]);
    assert_eq!(home.ok(&["list-ns", DEVICE, "-y", "1"]), "[   0]:0x2\n[   1]:0x3\n");
}

#[test]
fn the_logs_of_kv_ssds_are_shown_field_by_field() {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--type", "kv", "--size", "64M"]);
    home.ok(&["kv", "store", DEVICE, "key1", "value"]);
    let log = home.ok(&["get-log", DEVICE, "-i", "0xc0", "-l", "1024"]);
    assert!(log.starts_with("Extended SMART Log for device:0000:02:00.0\n"), "{log}");
    assert!(
        log.contains("store_succeeded         : 1\n") && log.contains("key_max                 : 255\n"),
        "{log}"
    );
    assert_eq!(home.json(&["get-log", DEVICE, "-i", "0xc0", "-l", "1024"])["store_value_max"], 5);
    assert!(home.ok(&["get-log", DEVICE, "-i", "0xca", "-l", "512"]).contains("waf                     : "));
    assert!(home.ok(&["get-log", DEVICE, "-i", "0xd0", "-l", "512"]).ends_with("none is open\n"));
    // A part of a page is shown as bytes.
    assert!(home.ok(&["get-log", DEVICE, "-i", "0xc0", "-l", "16"]).contains("0000: 00 00"));
}

#[test]
fn a_check_names_the_pair_whose_value_is_damaged_and_the_others_are_read() {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--type", "kv", "--size", "64M"]);
    home.ok(&["kv", "store", DEVICE, "good", "the value of another pair"]);
    home.ok(&["kv", "store", DEVICE, "bad", "this value will have a flipped bit"]);
    assert_eq!(home.ok(&["device", "check", DEVICE]), "namespace 1: 2 pairs, nothing is lost\n");
    let path = home.slot().join("media.img");
    let mut media = std::fs::read(&path).expect("media");
    let needle = b"a flipped bit";
    let places: Vec<usize> =
        (0..media.len() - needle.len()).filter(|&at| media[at..].starts_with(needle)).collect();
    assert!(!places.is_empty(), "the value is on the media");
    for at in places {
        media[at] ^= 1;
    }
    std::fs::write(&path, media).expect("media");
    let outcome = home.run(&["device", "check", DEVICE]);
    outcome.fails_with(1, &["1 of what was stored cannot be read"]);
    let done = home.run(&["device", "check", DEVICE, "--output", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!(json["namespaces"][0]["lost"][0]["key"], "626164");
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "good"]), "the value of another pair");
    home.run(&["kv", "retrieve", DEVICE, "bad"]).fails_with(1, &["Unrecovered Error"]);
    home.run(&["device", "check", "03:00.0"]).fails_with(3, &["no such device"]);
    let accepted = home.ok(&["device", "check", DEVICE, "--accept-loss"]);
    assert!(accepted.starts_with("namespace 1: 1 pair left, 1 loss given up\n"), "{accepted}");
    assert!(accepted.contains("key \"bad\" of keyspace 0"), "{accepted}");
    home.run(&["kv", "retrieve", DEVICE, "bad"]).fails_with(1, &["there is no key bad"]);
    assert_eq!(home.ok(&["device", "check", DEVICE]), "namespace 1: 1 pair, nothing is lost\n");
}

/// Offset of the segment of the media in which a value lies.
fn segment_of(media: &[u8], value: &[u8]) -> usize {
    let at = (0..media.len() - value.len()).rfind(|&at| media[at..].starts_with(value));
    at.expect("the value is on the media") >> 21 << 21
}

/// A value in a segment of its own, beside an older one in another.
fn with_an_older_value(home: &Home) {
    home.ok(&["device", "create", DEVICE, "--type", "kv", "--size", "64M"]);
    home.ok(&["kv", "store", DEVICE, "key", "the OLDER value"]);
    for number in 0..12 {
        home.ok_with(&["kv", "store", DEVICE, &format!("other {number}")], &vec![number; 1 << 20]);
    }
    home.ok(&["kv", "store", DEVICE, "key", "the NEWEST value"]);
    home.ok(&["flush", DEVICE]);
}

#[test]
fn a_lost_page_brings_no_older_value_back() {
    let home = Home::new();
    with_an_older_value(&home);
    let path = home.slot().join("media.img");
    let good = std::fs::read(&path).expect("media");
    let segment = segment_of(&good, b"the NEWEST value");
    let mut bad = good.clone();
    bad[segment..segment + 4096].fill(0);
    std::fs::write(&path, &bad).expect("media");
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "key"]), "the NEWEST value");
    home.ok(&["device", "check", DEVICE]);
}

#[test]
fn a_lost_segment_is_told_and_nothing_is_read_until_that_is_accepted() {
    let home = Home::new();
    with_an_older_value(&home);
    let path = home.slot().join("media.img");
    let mut media = std::fs::read(&path).expect("media");
    let segment = segment_of(&media, b"the NEWEST value");
    media[segment..segment + (2 << 20)].fill(0);
    std::fs::write(&path, &media).expect("media");
    // As long as the index is there, it is known what was in it.
    let check = home.run(&["device", "check", DEVICE]);
    assert!(check.code == 1 && !check.text().contains("in doubt"), "{}", check.text());
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "other 1"]).len(), 1 << 20);
    std::fs::remove_file(home.slot().join("index-0.kv")).expect("the index");
    home.run(&["kv", "retrieve", DEVICE, "key"]).fails_with(1, &["Unrecovered Error"]);
    home.run(&["kv", "list", DEVICE]).fails_with(1, &["Unrecovered Error"]);
    home.ok(&["kv", "store", DEVICE, "other 1", "stored meanwhile"]);
    for _ in 0..2 {
        let check = home.run(&["device", "check", DEVICE]);
        check.fails_with(1, &["nobody knows whose", "unvme device check 0000:02:00.0 --accept-loss"]);
        let offset = format!("  offset {:#x}: ", segment + 4096);
        assert!(check.text().contains(&offset) && check.text().contains("  in doubt: "), "{}", check.text());
    }
    let check = home.run(&["device", "check", DEVICE, "--output", "json"]).json();
    assert_eq!((&check["namespaces"][0]["in_doubt"], &check["accepted"]), (&true.into(), &false.into()));
    let accepted = home.json(&["device", "check", DEVICE, "--accept-loss"]);
    assert_eq!(accepted["namespaces"][0]["lost"][0]["offset"], segment as u64 + 4096);
    assert_eq!(
        (&accepted["namespaces"][0]["in_doubt"], &accepted["accepted"]),
        (&false.into(), &true.into())
    );
    assert_eq!(home.ok(&["device", "check", DEVICE]), "namespace 1: 13 pairs, nothing is lost\n");
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "key"]), "the OLDER value");
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "other 1"]), "stored meanwhile");
}

/// What makes opening fast is there after each command, and is nobody else's to read.
#[test]
fn a_slot_of_pairs_keeps_its_index_between_commands() {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--type", "kv", "--size", "64M"]);
    home.ok(&["kv", "store", DEVICE, "key", "old"]);
    let index = home.slot().join("index-0.kv");
    let then = std::fs::metadata(&index).expect("the index");
    assert_eq!(then.mode() & 0o7777, 0o600);
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "key"]), "old");
    let now = std::fs::metadata(&index).expect("the index");
    assert_eq!((now.ino(), now.mtime_nsec()), (then.ino(), then.mtime_nsec()), "reading changes nothing");
    home.ok(&["kv", "store", DEVICE, "key", "new"]);
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "key"]), "new");
    // Without it everything is there as well.
    std::fs::remove_file(&index).expect("it can be deleted");
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "key"]), "new");
    assert!(index.exists(), "and it is made again");
}
