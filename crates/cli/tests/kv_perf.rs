//! `kv_perf`: the guide's samples, and what scripts read of its output.

mod home;

use std::process::Command;

use home::{DEVICE, Done, Home};

/// The guide's sample configuration, with a smaller slab.
const CONFIG: &str = r#"{ "cache": "off", "cache_algorithm": "radix", "cache_reclaim_policy": "lru",
"slab_size": 44, "slab_alloc_policy": "huge", "ssd_type": "kv", "driver": "udd", "log_level": 0,
"device_description": { "dev_id": "0000:02:00.0", "core_mask": 1, "sync_mask": 1, "cq_thread_mask": 1, "queue_depth": 64 } }"#;

fn home() -> Home {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--type", "kv", "--size", "64M"]);
    home.file("sample_config.json", CONFIG.as_bytes());
    home
}

fn lba_home() -> Home {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--size", "64M"]);
    home.file("sample_config.json", CONFIG.replace("\"kv\"", "\"lba\"").as_bytes());
    home
}

fn run(home: &Home, words: &str) -> Done {
    let words: Vec<&str> =
        ["kv_perf", "-j", "sample_config.json"].into_iter().chain(words.split(' ')).collect();
    home.run(&words)
}

#[track_caller]
fn ok(home: &Home, words: &str) -> String {
    let done = run(home, words);
    let text = done.text();
    assert_eq!(done.code, 0, "{words}: {}\n{text}", done.stderr);
    assert!(
        text.starts_with("Starting tests...\n\n[KV Perf Test Information: sample_config.json]\n"),
        "{text}"
    );
    assert!(text.ends_with("SUCCESS\n"), "{text}");
    text
}

/// The number behind the first occurrence of a text.
#[track_caller]
fn number(text: &str, before: &str) -> f64 {
    let at = text.find(before).unwrap_or_else(|| panic!("`{before}` is not in: {text}"));
    let rest = &text[at + before.len()..];
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().unwrap_or_else(|_| panic!("no number behind `{before}` in: {text}"))
}

#[test]
fn the_guides_samples_run_and_tell_what_they_did() {
    let home = home();
    let text = ok(&home, "-n 1000 -v 4096 -w");
    assert!(text.contains("  ***RUN AS LOW CMD MODE***\n"), "{text}");
    assert!(
        text.contains("Device [0] Thread Index: 0 results for Write\n[WRITE]:[READ]:[DEL] = 1000:0:0\n"),
        "{text}"
    );
    assert_eq!(number(&text, "[WRITE] Total Value Size: "), 4_096_000.0);
    assert_eq!(number(&text, "\tWAF: "), 1.0, "as the device says it, not a tenth of that");
    assert!(number(&text, "0000:02:00.0 Device's Write OPS/sec: ") > 0.0);
    assert_eq!(number(&text, "0000:02:00.0 Device's Read OPS/sec: "), 0.0);
    let text = ok(&home, "-n 1000 -v 4096 -w -r -u");
    assert!(!text.contains("LOW CMD MODE") && text.contains(" use_cache: 1\n"), "{text}");
    assert!(text.contains("results for Read\n[WRITE]:[READ]:[DEL] = 0:1000:0\n"), "{text}");
    let text = ok(&home, "-n 1000 -v 4096 2048 -w");
    assert!(text.contains("[WRITE] operations: 500, Key size: 16, Value size: 4096\n"), "{text}");
    assert!(text.contains("[WRITE] operations: 500, Key size: 16, Value size: 2048\n"), "{text}");
    let text = ok(&home, "-n 100 80 30 -v 4096 -b");
    assert!(text.contains("results for Blend\n[WRITE]:[READ]:[DEL] = 100:80:30\n"), "{text}");
    assert!(text.contains("   [Total Blended IO Latency]\n     lat(usec): min="), "{text}");
    let text = ok(&home, "-n 1000 -v 4096 -w -s 0");
    let counts = "[Device no: 0, Received Callbacks Count: 1000, Submitted I/Os Count: 1000]\n";
    assert!(text.contains(counts), "asynchronous: {text}");
}

#[test]
fn what_was_written_is_there_under_the_keys_of_the_original() {
    let home = home();
    ok(&home, "-n 30 -v 5 -w -o 3");
    let keys = home.ok(&["kv", "list", DEVICE, "-x"]);
    assert_eq!(keys.lines().count(), 30);
    assert_eq!(keys.lines().next(), Some("03000000000000000000000000000000"));
    let value = |key: &str| home.ok(&["kv", "retrieve", DEVICE, "-x", key]);
    assert_eq!(value("03000000000000000000000000000000"), "ddddd");
    assert_eq!(value("1b000000000000000000000000000000"), "bbbbb", "letter 27 modulo 26");
}

#[test]
fn verifying_compares_what_is_there_and_finds_what_is_wrong() {
    let home = home();
    for words in
        ["-n 500 -v 4096 100 -x", "-n 500 -x -p 4 -s 0", "-n 500 -x -L", "-n 500 -x -p 2 -g 7 -s 0 -u"]
    {
        assert!(ok(&home, words).contains("Miscompare count: 0\n"), "{words}");
    }
    // A text for the values is the same in two runs, so that a value that was changed between them is found.
    ok(&home, "-n 10 -v 8 -w -k DEADBEEF");
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "-x", &"0".repeat(32)]), "DEADBEEF");
    ok(&home, "-n 10 -v 20 -w -k DEADBEEF");
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "-x", &"0".repeat(32)]), "DEADBEEFDEADBEEFDEAD");
}

#[test]
fn a_value_that_is_not_what_was_stored_is_a_miscompare_and_fails() {
    let home = home();
    // The second pair takes the place of the first, which is read all the same.
    for pairs in ["samekey one\nsamekey two\n", "samekey one\nsamekey one and more\n"] {
        home.file("pairs.txt", pairs.as_bytes());
        for words in
            ["-x -f pairs.txt", "-x -f pairs.txt -s 0", "-x -f pairs.txt -L", "-x -f pairs.txt -u -s 0"]
        {
            let done = run(&home, words);
            assert_eq!(done.code, 1, "{words}: {}", done.stderr);
            assert!(done.text().contains("\nMiscompare count: 1\n"), "{words}: {}", done.text());
            assert!(done.text().ends_with("FAIL\n"), "{words}: {}", done.text());
            assert_eq!(done.stderr, "kv_perf: Read: 1 values were not what had been stored\n", "{words}");
        }
    }
    let json = run(&home, "-x -f pairs.txt --output json").json();
    assert_eq!(
        (json["success"].as_bool(), json["phases"][1]["miscompares"].as_u64()),
        (Some(false), Some(1))
    );
}

#[test]
fn a_value_that_the_media_damaged_is_an_error_and_never_returned() {
    let home = home();
    ok(&home, "-z -w -n 20 -v 4096");
    let media = home.path("unvme/slots").join(DEVICE).join("media.img");
    let mut bytes = std::fs::read(&media).expect("the media is a file");
    // The tenth value is all `j`.
    let at = bytes.windows(4096).position(|window| window.iter().all(|&byte| byte == b'j')).expect("value 9");
    bytes[at + 100] ^= 1;
    std::fs::write(&media, bytes).expect("write the media");
    for words in ["-r -n 20", "-r -n 20 -s 0", "-r -n 20 -L", "-r -n 20 -u"] {
        let done = run(&home, words);
        assert_eq!(done.code, 1, "{words}: {}", done.stderr);
        assert!(done.text().ends_with("FAIL\n"), "{words}: {}", done.text());
        let expected = "kv_perf: Read: 0000:02:00.0: retrieve of pair 9: Unrecovered Error (0x11)\n";
        assert_eq!(done.stderr, expected, "{words}");
    }
    ok(&home, "-r -n 9");
    ok(&home, "-r -n 10 -o 10");
    ok(&home, "-x -n 20 -v 4096");
}

#[test]
fn reading_what_is_not_there_fails_in_every_kind_of_queue() {
    let home = home();
    for words in ["-n 10 -r", "-n 10 -r -s 0", "-n 10 -r -L"] {
        let done = run(&home, words);
        assert_eq!(done.code, 1, "{words}");
        assert!(done.text().ends_with("FAIL\n"), "{}", done.text());
        assert!(done.stderr.contains("Read: 0000:02:00.0: retrieve of pair 0: "), "{}", done.stderr);
        assert!(done.stderr.contains("Key Does Not Exist"), "{}", done.stderr);
    }
}

#[test]
fn phases_are_done_in_their_order_as_often_as_asked_for() {
    let home = home();
    let text = ok(&home, "-z -w -r -e -n 100 -t 2");
    assert!(text.contains("Successfully formatted the device: 0000:02:00.0\n"), "{text}");
    let order: Vec<&str> = text.lines().filter_map(|line| line.split(" results for ").nth(1)).collect();
    assert_eq!(order, ["Write", "Read", "Delete", "Write", "Read", "Delete"]);
    assert!(text.contains("Device [0] Thread Index: 0 Test 1 is running...\n"), "{text}");
    assert_eq!(home.ok(&["kv", "list", DEVICE]), "", "all were deleted");
}

#[test]
fn a_file_of_pairs_is_what_is_stored() {
    let home = home();
    home.file("pairs.txt", b"key:one first value\nkey:two\tsecond\nkey:three 3\n");
    let text = ok(&home, "-w -r -x -f pairs.txt");
    assert!(text.contains("  - num_keys: 3 (default: 1000)\n"), "{text}");
    assert!(text.contains("[WRITE] operations: 3\n[WRITE] Total Key Size: 23\n"), "{text}");
    assert!(text.contains("Miscompare count: 0\n"), "{text}");
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "key:one"]), "first value");
    ok(&home, "-e -n 2 -f pairs.txt");
    assert_eq!(home.ok(&["kv", "list", DEVICE]), "key:three\n");
    home.file("pairs.txt", b"alone\n");
    let done = run(&home, "-z -w -f pairs.txt");
    assert_eq!((done.code, done.text().as_str()), (234, "Starting tests...\n"), "nothing is formatted");
    assert!(
        done.stderr.contains("pairs.txt:1: expected a key, a blank or a tab, and a value"),
        "{}",
        done.stderr
    );
}

#[test]
fn blocks_are_written_read_verified_and_deallocated() {
    let home = lba_home();
    for words in ["-n 500 -v 4096 -w -r -e", "-n 500 -v 512 1024 -x -p 4 -s 0", "-n 500 -x -p 3 -s 0"] {
        ok(&home, words);
    }
    let done = run(&home, "-n 1 -v 1000 -w");
    assert_eq!(done.code, 234);
    assert!(done.stderr.contains("has blocks of 512 bytes, and a value is whole blocks"), "{}", done.stderr);
    let done = run(&home, "-n 20000 -v 4096 -w");
    assert!(done.stderr.contains("key 19999 of 4096 bytes ends at block 160000"), "{}", done.stderr);
    ok(&home, "-n 10 -v 512 -w -k block");
    assert!(home.ok(&["read", DEVICE, "-z", "10"]).starts_with("blockblock"));
}

#[test]
fn the_type_of_the_device_may_be_said_in_place_of_the_file() {
    let home = lba_home();
    home.file("sample_config.json", CONFIG.as_bytes());
    ok(&home, "-n 10 -w -m 0");
    assert_ne!(run(&home, "-n 10 -w -m 1").code, 0, "it is none for keys and values");
}

#[test]
fn several_devices_are_driven_at_once() {
    let home = home();
    home.ok(&["device", "create", "0000:03:00.0", "--type", "kv", "--size", "64M"]);
    let text = ok(&home, "-n 50 -w -x -d 0000:02:00.0 0000:03:00.0 -c 1 1 -s 1 0 -q 1 1 -a 64 16");
    assert!(text.contains("Device [1] Thread Index: 0 results for Write\n"), "{text}");
    assert!(number(&text, "0000:03:00.0 Device's Read OPS/sec: ") > 0.0);
    assert!(
        text.contains("[Device no: 0, Received Callbacks Count: 0, Submitted I/Os Count: 0]\n"),
        "{text}"
    );
    assert!(
        text.contains("[Device no: 1, Received Callbacks Count: 50, Submitted I/Os Count: 50]\n"),
        "{text}"
    );
    // The threads of further devices go on where the ids of those before ended.
    assert_eq!(
        home.ok(&["kv", "list", "0000:03:00.0", "-x", "--limit", "1"]),
        format!("32{}\n", "0".repeat(30))
    );
}

#[test]
fn a_queue_that_nobody_completes_is_polled() {
    let home = home();
    ok(&home, "-n 500 -x -s 0 -q 0");
}

#[test]
fn the_log_page_is_read_alone_and_meanwhile() {
    let home = home();
    let text = ok(&home, "-i");
    assert!(text.contains("============ Extended S.M.A.R.T. Information ============\n"), "{text}");
    assert!(text.contains("    nMaxKeySize_Spec: 255\n") && text.contains("\n03f0: "), "{text}");
    assert!(text.contains("nr_send_log_page = 1\n") && !text.contains("results for"), "{text}");
    let text = ok(&home, "-i -w -n 10");
    assert!(text.contains("results for Write\n") && text.contains("nr_send_log_page = 1\n"), "{text}");
    assert!(!text.contains("S.M.A.R.T."), "only the dump, while something else is told");
}

#[test]
fn json_has_the_whole_result_and_the_report_its_plots() {
    let home = home();
    let report = home.path("report.html");
    let done = run(&home, "-n 2000 -w -r -t 2 -s 0 --output json --report report.html");
    assert_eq!(done.code, 0, "{}", done.stderr);
    let json = done.json();
    assert_eq!((json["tool"].as_str(), json["success"].as_bool()), (Some("kv_perf"), Some(true)));
    assert_eq!(json["config"]["device_description"][0]["dev_id"], DEVICE);
    assert_eq!(json["devices"][0]["after"]["waf"], 1.0);
    let phases = json["phases"].as_array().expect("phases");
    assert_eq!(phases.len(), 4);
    assert_eq!((phases[1]["name"].as_str(), phases[1]["operations"].as_u64()), (Some("Read"), Some(2000)));
    assert_eq!(phases[3]["test"], 1);
    assert_eq!(phases[0]["threads"][0]["queue"], "async");
    assert_eq!(phases[0]["kinds"]["store"]["latency_us"]["percentiles"][12]["percent"], 99.0);
    let html = std::fs::read_to_string(report).expect("the report is there");
    for part in
        ["Latency percentiles", "Throughput over time", ">Write 0<", ">Read 1<", "for keys and values"]
    {
        assert!(html.contains(part), "{part}");
    }
    assert!(!html.contains("http://") && !html.contains("https://"));
}

#[test]
fn a_failure_is_in_the_json_too() {
    let home = home();
    let done = run(&home, "-n 5 -r --output json");
    assert_eq!(done.code, 1);
    let json = done.json();
    assert_eq!(json["success"], false);
    assert!(json["failure"].as_str().is_some_and(|text| text.contains("Key Does Not Exist")), "{json}");
}

#[test]
fn wrong_usage_has_the_exit_code_of_the_original() {
    let home = home();
    for (words, part) in [
        ("-n 10", "At least one of tests should be specified"),
        ("-b -w -n 1 1 1", "This combination of tests is not supported."),
        ("-w -d a b -c 1", "Please Check the configuration: num. of core_mask: 1"),
        ("-w -p 9", "9 is not in 0..=4"),
        ("-w --nonsense", "unexpected argument"),
        ("-w -v 4194304", "'4194304' for '--value_size <BYTES>...': a value has at most 2097152 bytes"),
        ("-w -n 0", "-n 0: expected at least one key"),
    ] {
        let done = run(&home, words);
        assert_eq!(done.code, 234, "{words}: {}", done.stderr);
        assert!(done.stderr.contains(part), "{words}: {}", done.stderr);
        assert_eq!(done.text(), "", "{words}: nothing was begun");
    }
    let help = home.ok(&["kv_perf", "-h"]);
    assert!(help.contains("--num_keys") && help.contains("--use_sdk_cmd"), "{help}");
}

#[test]
fn numbers_that_nobody_has_memory_or_space_for_are_refused() {
    let home = home();
    let done = run(&home, "-x -n 0x1000000000000");
    assert_eq!(done.code, 234, "{}", done.stderr);
    let expected = "kv_perf: -x: there is no memory for the checksums of 281474976710656 values\n";
    assert_eq!(done.stderr, expected);
    let done = run(&home, "-b -n 0x1000000000000 0x1000000000000 0x1000000000000 -v 2097152");
    assert_eq!(done.code, 1, "{}", done.stderr);
    assert!(done.stderr.contains("Capacity Exceeded"), "{}", done.stderr);
    ok(&home, "-z -w -n 3 -v 16 -p 3 -y 0-0xffffffffffffffff -o 0x1000000000000");
    ok(&home, "-z -w -r -n 3 -v 16 -p 1 -o 0x1000000000000");
}

#[test]
fn a_configuration_that_is_not_there_or_wrong_drives_no_device() {
    let home = home();
    let done = home.run(&["kv_perf", "-w", "-j", "no_config.json"]);
    assert_eq!(done.code, 4);
    assert!(done.stderr.contains("no_config.json"), "{}", done.stderr);
    home.file("sample_config.json", CONFIG.replace("dev_id", "dev-id").as_bytes());
    let done = run(&home, "-w");
    assert_eq!(done.code, 234);
    assert!(
        done.stderr.contains("sample_config.json:3:") && done.stderr.contains("dev-id"),
        "{}",
        done.stderr
    );
    assert_eq!(home.ok(&["kv", "list", DEVICE]), "");
}

#[test]
fn a_link_by_its_name_is_the_program() {
    let home = home();
    let link = home.path("kv_perf");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_unvme"), &link).expect("link");
    let output = Command::new(&link)
        .args(["-w", "-n", "10", "-j", "sample_config.json"])
        .env_clear()
        .env("UNVME_HOME", home.path("unvme"))
        .current_dir(home.path(""))
        .output()
        .expect("run the link");
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("SUCCESS\n"));
    let help = Command::new(&link).arg("-h").env_clear().output().expect("run the link");
    assert_eq!(help.status.code(), Some(234), "as the original's");
    assert!(String::from_utf8_lossy(&help.stdout).contains("Usage: kv_perf [OPTIONS]"));
}

#[test]
fn the_scripts_run_it_and_read_its_lines() {
    if Command::new("python3").arg("--version").output().is_err() {
        // Nothing else here needs Python.
        return;
    }
    let home = home();
    home.ok(&["device", "remove", DEVICE]);
    home.ok(&["device", "create", DEVICE, "--type", "kv", "--size", "256M"]);
    let link = home.path("kv_perf");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_unvme"), &link).expect("link");
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../share/unvme/kv_perf_scripts/");
    let script = |name: &str| {
        let output = Command::new("python3")
            .arg(format!("{scripts}{name}.py"))
            .env("UNVME_HOME", home.path("unvme"))
            .env("KV_PERF", &link)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output()
            .expect("run python3");
        assert_eq!(output.status.code(), Some(0), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(script("kv_perf_format").ends_with("Successfully formatted the device: 0000:02:00.0\n"));
    let said = script("kv_perf_async_singleiq");
    for part in [
        "sequential\n  0000:02:00.0 Write: ",
        "random\n",
        "0000:02:00.0 Delete: ",
        "Total Value Size: 40960000\n",
    ] {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
}

/// A prefix with the program, as `make install` lays it out.
fn installed() -> tempfile::TempDir {
    let prefix = tempfile::tempdir().expect("a folder");
    let (bin, samples) = (prefix.path().join("bin"), prefix.path().join("share/unvme"));
    std::fs::create_dir_all(&bin).expect("folder");
    std::fs::create_dir_all(samples.join("kv_perf_scripts")).expect("folder");
    std::fs::copy(env!("CARGO_BIN_EXE_unvme"), bin.join("unvme")).expect("copy");
    std::os::unix::fs::symlink("unvme", bin.join("kv_perf")).expect("link");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../share/unvme");
    for file in ["kv_perf_scripts/kv_perf_default_config.json", "sample_config.json"] {
        std::fs::copy(format!("{source}/{file}"), samples.join(file)).expect("copy");
    }
    prefix
}

#[test]
fn samples_beside_the_program_are_found_from_any_folder() {
    let home = Home::new();
    for device in ["0000:01:00.0", DEVICE] {
        home.ok(&["device", "create", device, "--type", "kv", "--size", "64M"]);
    }
    let prefix = installed();
    let run = |words: &str| {
        let output = Command::new(prefix.path().join("bin/kv_perf"))
            .args(words.split(' '))
            .env_clear()
            .env("UNVME_HOME", home.path("unvme"))
            .env("UNVME_SYSTEM_ROOT", home.path("system"))
            .current_dir("/")
            .output()
            .expect("run the installed program");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), text, said)
    };
    let samples = prefix.path().join("share/unvme");
    let (code, text, said) = run("-n 100 -v 4096 -w");
    assert_eq!(code, Some(0), "{said}");
    let default = samples.join("kv_perf_scripts/kv_perf_default_config.json");
    assert!(text.contains(&format!("[KV Perf Test Information: {}]\n", default.display())), "{text}");
    let warning = format!(
        "kv_perf: warning: ./kv_perf_scripts/kv_perf_default_config.json is not here; {} is used\n",
        default.display()
    );
    assert!(said.starts_with(&warning), "{said}");
    // The examples of the help, with fewer pairs.
    for words in [
        "-n 100 -v 4096 -w -j sample_config.json",
        "-n 100 -v 4096 -w -r -j sample_config.json -u",
        "-n 100 -v 4096 2048 -w -j sample_config.json",
        "-n 100 80 30 -v 4096 -b -j sample_config.json",
        "-n 100 -v 4096 -w -j sample_config.json -s 0",
        "-d 0000:01:00.0 0000:02:00.0 -c F F0 -s 0 0 -q 2 4 -a 64 256 -n 100 -v 4096 -w",
    ] {
        let (code, text, said) = run(words);
        assert_eq!(code, Some(0), "{words}: {said}\n{text}");
    }
    let (code, _, said) = run("-n 100 -w -j none.json");
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("none.json"), "{said}");
}
