//! `kv_nvme`: the guide's command line, called as a subcommand and by its own name.

mod home;

use std::process::Command;

use home::{DEVICE, Done, Home, pattern};

const KEY: [&str; 4] = ["-k", "keyvalue12345678", "-l", "16"];

fn home() -> Home {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--type", "kv", "--size", "64M"]);
    home
}

fn nvme(home: &Home, verb: &str, args: &[&str]) -> Done {
    home.run(&[&["kv_nvme", verb, DEVICE], args].concat())
}

#[track_caller]
fn ok(home: &Home, verb: &str, args: &[&str]) -> String {
    let done = nvme(home, verb, args);
    assert_eq!(done.code, 0, "{verb} {args:?}: {}", done.stderr);
    done.text()
}

#[track_caller]
fn fails(home: &Home, verb: &str, args: &[&str], code: i32, part: &str) {
    let done = nvme(home, verb, args);
    assert_eq!(done.code, code, "{}", done.stderr);
    assert!(done.stderr.starts_with("kv_nvme: ") && done.stderr.contains(part), "{}", done.stderr);
}

#[test]
fn the_guides_samples_write_read_and_delete_a_pair() {
    let home = home();
    let value = pattern(7, 4096);
    let file = home.file("value.txt", &value);
    let write = [&KEY[..], &["-v", &file, "-o", "0", "-s", "4096", "-a", "-w", "-t"]].concat();
    let done = nvme(&home, "write", &write);
    assert_eq!(done.text(), "write: Success, 4096 bytes\n");
    let said = &done.stderr;
    assert!(said.starts_with("write\n") && said.contains("  key         : keyvalue12345678\n"), "{said}");
    assert!(said.contains("  mode        : async\nwrite latency: ") && said.ends_with(" us\n"), "{said}");
    let read = nvme(&home, "read", &[&KEY[..], &["-s", "4096", "-w", "-t"]].concat());
    assert!(read.stdout == value, "nothing but the value");
    assert!(read.stderr.starts_with("read\n") && read.stderr.contains("read latency: "), "{}", read.stderr);
    let read = nvme(&home, "read", &[&KEY[..], &["-s", "10"]].concat());
    assert!(
        read.stdout == value[..10] && read.stderr == "read: Success, 10 of 4096 bytes\n",
        "{}",
        read.stderr
    );
    let out = home.path("output.txt");
    let out = out.to_str().expect("UTF-8");
    let said = ok(&home, "read", &[&KEY[..], &["-s", "1001", "-v", out]].concat());
    assert_eq!(said, "read: Success, 1001 of 4096 bytes\n");
    assert!(std::fs::read(out).expect("read") == value[..1001]);
    assert_eq!(ok(&home, "read", &[&KEY[..], &["-s", "4096", "-i", "2"]].concat()), "4096\n");
    assert!(nvme(&home, "read", &[&KEY[..], &["-s", "4096", "-o", "3584"]].concat()).stdout == value[3584..]);
    assert_eq!(ok(&home, "exist", &KEY), "exist: the key exists\n");
    assert_eq!(ok(&home, "delete", &KEY), "delete: Success\n");
    assert_eq!(ok(&home, "delete", &KEY), "delete: Success\n", "of a key that is not there");
    fails(&home, "delete", &[&KEY[..], &["-i", "1"]].concat(), 1, "Key Does Not Exist");
    fails(&home, "exist", &KEY, 1, "Key Does Not Exist");
    fails(&home, "read", &[&KEY[..], &["-s", "4096"]].concat(), 1, "Key Does Not Exist");
}

#[test]
fn options_of_a_write_are_kept() {
    let home = home();
    let file = home.file("value.txt", b"short");
    let write = |more: [&'static str; 2]| [&KEY[..], &["-v", &file, "-s", "8"], &more].concat();
    ok(&home, "write", &write(["-i", "1"]));
    assert_eq!(nvme(&home, "read", &[&KEY[..], &["-s", "8"]].concat()).stdout, b"short\0\0\0");
    fails(&home, "write", &write(["-i", "1"]), 1, "Key Exists");
    ok(&home, "write", &write(["-n", "1"]));
    fails(&home, "write", &write(["-o", "512"]), 2, "an offset is not supported");
    fails(&home, "write", &["-k", "abc", "-l", "4", "-v", &file, "-s", "8"], 2, "the key abc has 3 bytes");
    fails(&home, "write", &[&KEY[..], &["-v", "none.txt", "-s", "8"]].concat(), 4, "read none.txt");
}

/// Stores keys with the prefix `0000`, and some others.
fn store_keys(home: &Home, count: u32) {
    let mut ops = "store 0001x v\nstore zzzz v\n".to_owned();
    for number in 0..count {
        ops += &format!("store 0000k{number:05} v\n");
    }
    home.ok_with(&["kv", "batch", DEVICE], ops.as_bytes());
}

#[test]
fn iterators_live_over_invocations() {
    let home = home();
    store_keys(&home, 3000);
    let open = ["-p", "0x30303030"];
    assert_eq!(ok(&home, "open-it", &open), "open-it: Success, iterator id 1\n");
    fails(&home, "open-it", &open, 1, "Iterator Is Open Already (0x92)");
    assert_eq!(
        ok(&home, "open-it", &["-p", "0x30300000", "-b", "0xffff0000"]),
        "open-it: Success, iterator id 2\n"
    );
    let mut keys = Vec::new();
    loop {
        let done = nvme(&home, "read-it", &["-i", "1"]);
        if done.code != 0 {
            assert_eq!(done.code, 1);
            assert!(done.stderr.contains("End of Iteration (0x93)"), "{}", done.stderr);
            break;
        }
        keys.extend(done.text().lines().map(str::to_owned));
        // What is stored behind the position is found, what is stored before is not.
        home.ok(&["kv", "store", DEVICE, "0000a", "v"]);
        home.ok(&["kv", "store", DEVICE, "0000z", "v"]);
    }
    let mut expected: Vec<String> = (0..3000).map(|number| format!("0000k{number:05}")).collect();
    expected.push("0000z".to_owned());
    assert_eq!(keys, expected, "each once and in order");
    let all = nvme(&home, "read-it", &["-i", "2", "-s", "264"]).text();
    assert_eq!(all.lines().next(), Some("0000a"), "the other iterator has a position of its own");
    assert_eq!(ok(&home, "close-it", &["-i", "1"]), "close-it: Success\n");
    fails(&home, "read-it", &["-i", "1"], 1, "iterator 1 is not open");
    fails(&home, "close-it", &["-i", "1"], 1, "Iterator Request Could Not Be Processed (0x90)");
    assert_eq!(ok(&home, "open-it", &open), "open-it: Success, iterator id 1\n");
}

#[test]
fn a_file_gets_the_devices_own_form() {
    let home = home();
    for key in ["0000a", "0000bcde"] {
        home.ok(&["kv", "store", DEVICE, key, "v"]);
    }
    ok(&home, "open-it", &["-p", "0x30303030", "-i", "2"]);
    let file = home.path("keys.bin");
    let said = ok(&home, "read-it", &["-i", "1", "-v", file.to_str().expect("UTF-8")]);
    assert_eq!(said, "read-it: Success, 2 keys, the last\n");
    let expected = b"\x02\0\0\0\x05\0\0\x000000a\0\0\0\x08\0\0\x000000bcde";
    assert_eq!(std::fs::read(file).expect("read"), expected);
}

#[test]
fn an_iterator_deletes_what_it_is_about() {
    let home = home();
    store_keys(&home, 500);
    let said = ok(&home, "open-it", &["-p", "0x30303030", "-i", "3"]);
    assert_eq!(said, "open-it: Success, iterator id 1, 500 pairs deleted\n");
    assert_eq!(home.ok(&["kv", "list", DEVICE]), "0001x\nzzzz\n");
    fails(&home, "read-it", &["-i", "1"], 1, "returns no keys");
    ok(&home, "close-it", &["-i", "1"]);
}

#[test]
fn iterators_that_cannot_be_are_refused() {
    let home = home();
    fails(&home, "open-it", &["-b", "0x0fffffff"], 2, "ones from the most significant bit on");
    fails(&home, "read-it", &["-i", "3"], 1, "iterator 3 is not open");
    let done = home.run(&["kv_nvme", "open-it", "mem:kv:64M"]);
    assert_eq!(done.code, 2);
    assert!(done.stderr.contains("it ends with this command"), "{}", done.stderr);
    for number in 1..=16 {
        ok(&home, "open-it", &["-p", &number.to_string()]);
    }
    fails(&home, "open-it", &["-p", "17"], 1, "No Iterator Available (0x91)");
}

#[test]
fn commands_on_devices_are_those_of_unvme() {
    let home = home();
    // Names and columns of the guide's sample.
    let identity = ok(&home, "id-ctrl", &[]);
    let names: Vec<&str> = identity.lines().skip(1).take(10).map(|line| &line[..11]).collect();
    let expected = [
        "vid      : ",
        "ssvid    : ",
        "sn       : ",
        "mn       : ",
        "fr       : ",
        "rab      : ",
        "ieee     : ",
        "cmic     : ",
        "mdts     : ",
        "ctrlid   : ",
    ];
    assert!(identity.starts_with("NVME Identify Controller:\nvid      : 0x"), "{identity}");
    assert_eq!(names, expected);
    assert!(!identity.contains("cntlid"), "{identity}");
    assert!(home.ok(&["kv_nvme", "version"]).starts_with("kv_nvme version 0."));
    let page = home.path("c0.bin");
    let path = page.to_str().expect("UTF-8");
    // With the guide's comma.
    ok(&home, "get-log", &["--log-id=0xc0,", "--log-len=512", "-b", path]);
    assert_eq!(std::fs::read(&page).expect("read").len(), 512);
    // The same bytes on standard output, as many as were asked for.
    let log = nvme(&home, "get-log", &["--log-id=0xc0,", "--log-len=512"]);
    assert_eq!((log.stdout, log.stderr.as_str()), (std::fs::read(&page).expect("read"), ""));
    let smart = nvme(&home, "get-log", &["-i", "2", "-l", "510"]).stdout;
    assert_eq!(smart.len(), 510);
    fails(&home, "get-log", &["-i", "0xf7", "-l", "512"], 1, "Invalid Log Page");
    ok(&home, "smart-log", &["-b", path]);
    assert_eq!(std::fs::read(&page).expect("read").len(), 512);
    ok(&home, "id-ctrl", &["-b", path]);
    assert_eq!(std::fs::read(&page).expect("read").len(), 4096);
    home.ok(&["kv", "store", DEVICE, "key1", "v"]);
    ok(&home, "format", &[]);
    assert_eq!(home.ok(&["kv", "list", DEVICE]), "", "formatted");
    ok(&home, "reset", &[]);
    assert!(home.ok(&["kv_nvme", "list"]).contains("  KV  "));
}

#[test]
fn what_is_not_supported_says_so() {
    let home = home();
    for verb in ["dsm", "flush", "get-feature", "security-send", "write-uncor", "subsystem-reset"] {
        fails(&home, verb, &[], 2, &format!("{verb} is not supported by kv_nvme"));
    }
    fails(&home, "fw-activate", &["-s", "2"], 2, "FW-ACTIVATE PROHIBITED");
    fails(&home, "nonsense", &[], 2, "there is no such command");
}

#[test]
fn a_link_by_its_name_is_the_program() {
    let home = home();
    let link = home.path("kv_nvme");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_unvme"), &link).expect("link");
    let output = Command::new(&link)
        .args(["exist", DEVICE, "-k", "none", "-l", "4"])
        .env_clear()
        .env("UNVME_HOME", home.path("unvme"))
        .output()
        .expect("run the link");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("kv_nvme: exist: none: "));
}

/// Whatever a command goes by: `kv_nvme` knows keys of 16 bytes, which the Key Value Command Set has, and
/// longer ones, which the vendor's commands have.
#[test]
fn one_fact_is_told_in_one_text_whichever_dialect_said_it() {
    let home = home();
    let long = "k".repeat(40);
    let file = home.file("value.txt", b"v");
    for (key, bytes) in [("sixteen bytes  x", "16"), (long.as_str(), "40")] {
        let pair = ["-k", key, "-l", bytes];
        for verb in ["exist", "delete"] {
            let more: &[&str] = if verb == "delete" { &["-i", "1"] } else { &[] };
            let done = nvme(&home, verb, &[&pair[..], more].concat());
            assert_eq!(done.stderr, format!("kv_nvme: {verb}: {key}: Key Does Not Exist (0x10)\n"));
        }
        let write = [&pair[..], &["-v", &file, "-s", "1", "-i", "1"]].concat();
        ok(&home, "write", &write);
        let done = nvme(&home, "write", &write);
        let told = "Idempotent Store Failed: Key Exists (0x80)";
        assert_eq!(done.stderr, format!("kv_nvme: write: {key}: {told}\n"));
        let done = home.run(&["kv", "store", DEVICE, key, "v", "--if-not-exists"]);
        assert!(done.stderr.ends_with(&format!(": store: the device answered {told}\n")), "{}", done.stderr);
    }
}
