//! `unvme kv`: pairs, one command at a time.

mod home;

use home::{DEVICE, Home, pattern};

/// A home with a key-value device of 64 MiB.
fn home() -> Home {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--type", "kv", "--size", "64M"]);
    home
}

#[test]
fn a_pair_is_stored_retrieved_and_deleted() {
    let home = home();
    assert_eq!(home.ok(&["kv", "store", DEVICE, "user:1", "Ada"]), "store: Success, 3 bytes\n");
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "user:1"]), "Ada");
    assert_eq!(home.ok(&["kv", "exist", DEVICE, "user:1"]), "exist: the key exists\n");
    assert_eq!(home.ok(&["kv", "delete", DEVICE, "user:1"]), "delete: Success\n");
    home.run(&["kv", "retrieve", DEVICE, "user:1"]).fails_with(1, &["retrieve: there is no key user:1"]);
    home.run(&["kv", "exist", DEVICE, "user:1"]).fails_with(1, &["exist: there is no key user:1"]);
    home.run(&["kv", "delete", DEVICE, "user:1"]).fails_with(1, &["delete: there is no key user:1"]);
    let gone = home.ok(&["kv", "delete", DEVICE, "user:1", "--ignore-missing"]);
    assert_eq!(gone, "delete: there was no such key\n");
}

#[test]
fn values_come_from_files_and_standard_input_and_go_to_files() {
    let home = home();
    let value = pattern(1, 100_001);
    let file = home.file("value.bin", &value);
    assert_eq!(home.ok(&["kv", "store", DEVICE, "file", "-f", &file]), "store: Success, 100001 bytes\n");
    home.ok_with(&["kv", "store", DEVICE, "stdin"], &value);
    home.ok_with(&["kv", "store", DEVICE, "empty"], b"");
    let back = home.path("back.bin");
    let said = home.ok(&["kv", "retrieve", DEVICE, "file", "-f", back.to_str().expect("UTF-8")]);
    assert_eq!(said, "retrieve: Success, 100001 of 100001 bytes\n");
    assert!(std::fs::read(back).expect("read") == value);
    assert!(home.run(&["kv", "retrieve", DEVICE, "stdin"]).stdout == value);
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "empty"]), "");
}

#[test]
fn conditions_are_kept_and_told() {
    let home = home();
    let fails =
        |args: &[&str], part| home.run(&[&["kv", "store", DEVICE], args].concat()).fails_with(1, &[part]);
    fails(&["pair", "v", "--if-exists"], "Key Does Not Exist");
    home.ok(&["kv", "store", DEVICE, "pair", "one", "--if-not-exists"]);
    fails(&["pair", "two", "--if-not-exists"], "Key Exists");
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "pair"]), "one");
    home.ok(&["kv", "store", DEVICE, "pair", "three", "--if-exists", "--compress"]);
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "pair"]), "three");
}

#[test]
fn a_part_of_a_value_its_size_and_its_dump_can_be_asked_for() {
    let home = home();
    let value: Vec<u8> = (0..1500u32).map(|byte| byte as u8).collect();
    home.ok_with(&["kv", "store", DEVICE, "part"], &value);
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "part", "--size-only"]), "1500\n");
    let retrieve = |args: &[&str]| home.run(&[&["kv", "retrieve", DEVICE, "part"], args].concat());
    assert_eq!(retrieve(&["--offset", "700", "--length", "9"]).stdout, value[700..709]);
    assert_eq!(retrieve(&["--offset", "1490", "--length", "1K"]).stdout, value[1490..]);
    assert_eq!(retrieve(&["--offset", "1500"]).stdout, b"");
    let dump = retrieve(&["--length", "2", "--show", "hex"]).text();
    assert!(dump.contains("0000: 00 01 ") && dump.lines().count() == 2, "{dump}");
    retrieve(&["--size-only", "--offset", "1"]).fails_with_usage("cannot be used with");
}

#[test]
fn json_has_keys_and_values_as_text_and_as_digits() {
    let home = home();
    home.ok(&["kv", "store", DEVICE, "-x", "00ff7e41", "text"]);
    let found = home.json(&["kv", "retrieve", DEVICE, "-x", "00ff7e41"]);
    assert_eq!((found["key"].as_str(), found["key_hex"].as_str()), (None, Some("00ff7e41")));
    assert_eq!((found["value"].as_str(), found["value_hex"].as_str()), (Some("text"), Some("74657874")));
    assert_eq!(found["value_bytes"], 4);
    let done = home.run(&["kv", "exist", DEVICE, "none", "--output-format", "json"]);
    assert_eq!((done.code, done.json()["exists"].as_bool()), (1, Some(false)));
}

#[test]
fn keys_are_listed_by_prefix_start_and_limit() {
    let home = home();
    for key in ["b1", "a2", "a1", "b2", "c"] {
        home.ok(&["kv", "store", DEVICE, key, "v"]);
    }
    let list = |args: &[&str]| home.ok(&[&["kv", "list", DEVICE], args].concat());
    assert_eq!(list(&[]), "a1\na2\nb1\nb2\nc\n");
    assert_eq!(list(&["--prefix", "b"]), "b1\nb2\n");
    assert_eq!(list(&["--start", "a2", "--limit", "2"]), "a2\nb1\n");
    assert_eq!(list(&["--prefix", "a", "--start", "a15"]), "a2\n");
    assert_eq!(list(&["-x", "--prefix", "63"]), "63\n");
    let json = home.json(&["kv", "list", DEVICE, "--prefix", "a"]);
    assert_eq!((json["count"].as_u64(), json["keys"][1]["key"].as_str()), (Some(2), Some("a2")));
}

#[test]
fn long_keys_and_keyspaces_go_by_the_vendor_commands() {
    let home = home();
    let long = "k".repeat(255);
    home.ok(&["kv", "store", DEVICE, &long, "long"]);
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, &long]), "long");
    home.ok(&["kv", "store", DEVICE, "both", "zero"]);
    home.ok(&["kv", "store", DEVICE, "both", "one", "--keyspace", "1"]);
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "both"]), "zero");
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "both", "--keyspace", "1"]), "one");
    assert_eq!(home.ok(&["kv", "list", DEVICE, "--keyspace", "1"]), "both\n");
    assert_eq!(home.ok(&["kv", "list", DEVICE]), format!("both\n{long}\n"));
}

#[test]
fn append_adds_to_the_end() {
    let home = home();
    home.ok(&["kv", "store", DEVICE, "log:1", "one"]);
    assert_eq!(home.ok(&["kv", "append", DEVICE, "log:1", ", two"]), "append: Success, 5 bytes\n");
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "log:1"]), "one, two");
}

#[test]
fn a_batch_stores_and_deletes_line_by_line() {
    let home = home();
    home.ok(&["kv", "store", DEVICE, "old", "v"]);
    let ops = "store a 1\nstore b two words\ndelete old\ndelete never\nstore empty\n";
    let said = home.ok_with(&["kv", "batch", DEVICE], ops.as_bytes());
    assert_eq!(said, "batch: 5 operations done, 0 failed\n");
    assert_eq!(home.ok(&["kv", "list", DEVICE]), "a\nb\nempty\n");
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "b"]), "two words");
    home.run_with(&["kv", "batch", DEVICE], b"store c 1\nmove c d\n")
        .fails_with(2, &["standard input:2: expected `store KEY VALUE` or `delete KEY`"]);
}

#[test]
fn many_operations_are_done_in_order() {
    let home = home();
    let mut ops = String::new();
    for number in 0..3000 {
        ops += &format!("store key{:04} {number}\n", number % 1000);
    }
    let file = home.file("ops", ops.as_bytes());
    assert_eq!(home.ok(&["kv", "batch", DEVICE, &file]), "batch: 3000 operations done, 0 failed\n");
    assert_eq!(home.ok(&["kv", "list", DEVICE]).lines().count(), 1000);
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "key0999"]), "2999");
}

#[test]
fn what_a_device_cannot_do_is_told_before_anything_is_sent() {
    let home = home();
    home.run(&["kv", "store", DEVICE, "", "v"]).fails_with(2, &["key"]);
    home.run(&["kv", "store", DEVICE, &"k".repeat(256), "v"]).fails_with(2, &["256"]);
    home.run(&["kv", "retrieve", DEVICE, "-x", "0g"]).fails_with(2, &["two hexadecimal digits"]);
    home.run(&["kv", "list", DEVICE, "--keyspace", "2"]).fails_with(2, &["keyspace 2"]);
    home.run(&["kv", "retrieve", DEVICE, "k", "-n", "9"]).fails_with(2, &["there is no namespace 9"]);
    home.ok(&["device", "create", "0000:03:00.0", "--size", "64M"]);
    home.run(&["kv", "list", "0000:03:00.0"])
        .fails_with(2, &["0000:03:00.0: no namespace for keys and values is attached"]);
    home.run(&["kv", "list", "0000:09:00.0"]).fails_with(3, &["virtual devices are"]);
}
