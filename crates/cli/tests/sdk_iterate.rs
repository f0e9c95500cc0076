//! `sdk_iterate` and `sdk_iterate_async`.

mod home;

use home::{DEVICE, Done, Home};

fn home() -> Home {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--type", "kv", "--size", "64M"]);
    home
}

#[track_caller]
fn ok(home: &Home, words: &str) -> Done {
    let done = home.run(&words.split(' ').collect::<Vec<_>>());
    assert_eq!(done.code, 0, "{words}: {}", done.stderr);
    done
}

#[test]
fn keys_with_one_prefix_are_found_and_others_are_not() {
    let home = home();
    home.ok(&["kv", "store", DEVICE, "another", "v"]);
    let done = ok(&home, "sdk_iterate");
    for part in [
        "sdk_iterate value_size=4096 insert_count=20\n",
        "iterate_handle_info[1] : info.handle_id=1 info.status=0 info.type=0 info.prefix=00000000 ",
        "iterate_handle_info[1] : info.handle_id=1 info.status=1 info.type=1 info.prefix=00000000 info.bitmask=ffffffff",
        "iterate_handle_info[16] : ",
        "Iterate open success : iterator id=1\n",
        "num_keys_read = 20\n",
    ] {
        assert!(done.stderr.contains(part), "`{part}` is not in: {}", done.stderr);
    }
    let text = done.text();
    let blocks: Vec<&str> =
        text.lines().filter_map(|line| Some(line.split_once(" total elapsed: ")?.0)).collect();
    let expected = [
        "sdk_init",
        "Setup App",
        "kv_store",
        "kv_retrieve",
        "kv_iterate_open",
        "kv_iterate_read",
        "kv_iterate_close",
        "kv_delete",
        "Teardown Memory",
        "kv_sdk_finalize",
    ];
    assert_eq!(blocks, expected, "in the order of the original");
    let read = "Iterate Read Request=32768\n\
                Iterate Read Result: it->kv.key.length=0 it->kv.value.length=404 ret=0x93\n";
    assert!(done.stderr.contains(read), "{}", done.stderr);
    assert_eq!(home.ok(&["kv", "list", DEVICE]), "another\n", "what was stored is gone");
}

#[test]
fn twenty_reads_are_queued_and_those_behind_the_end_are_empty() {
    let home = home();
    let done = ok(&home, "sdk_iterate_async --num-keys 4000 --value-size 16");
    let lengths: Vec<&str> = done
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("Iterate Read Result: it->kv.key.length=0 it->kv.value.length="))
        .collect();
    assert_eq!(lengths.len(), 20, "{}", done.stderr);
    // A full read has 1638 keys: 4 + 1638 * 20 bytes.
    assert_eq!(lengths[..2], ["32764 status=0", "32764 status=0"]);
    assert_eq!(lengths[2], "14484 status=147", "the last 724 keys come with the end");
    assert_eq!(lengths[3..], ["0 status=147"; 17]);
    assert!(done.stderr.contains("num_keys_read = 4000\n"), "{}", done.stderr);
    assert!(done.text().contains("kv_iterate_read_async latency QoS: \n"), "{}", done.text());
}

#[test]
fn json_tells_what_the_iterator_brought() {
    let home = home();
    let json = ok(&home, "sdk_iterate --num-keys 50 --output json").json();
    assert_eq!((json["iterator"]["id"].as_u64(), json["iterator"]["keys"].as_u64()), (Some(1), Some(50)));
    assert_eq!(
        (json["iterator"]["end"].as_bool(), json["phases"][2]["name"].as_str()),
        (Some(true), Some("kv_delete"))
    );
}

#[test]
fn without_the_device_of_the_guide_another_one_is_to_be_named() {
    let home = Home::new();
    let done = home.run(&["sdk_iterate"]);
    assert_eq!(done.code, 3);
    assert!(done.stderr.contains("0000:02:00.0: no such device"), "{}", done.stderr);
    ok(&home, "sdk_iterate --device mem:kv:64M");
    let config = r#"{ "ssd_type": "lba", "device_description": { "dev_id": "mem:block:64M" } }"#;
    home.file("lba.json", config.as_bytes());
    let done = home.run(&["sdk_iterate", "--config", "lba.json"]);
    assert_eq!(done.code, 2);
    assert!(done.stderr.contains("iterators need a key-value device"), "{}", done.stderr);
}
