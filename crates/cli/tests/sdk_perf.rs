//! `sdk_perf` and `sdk_perf_async`.

mod home;

use home::{DEVICE, Done, Home};

const CONFIG: &str = r#"{ "slab_size": 44, "ssd_type": "kv",
"device_description": { "dev_id": "0000:02:00.0", "core_mask": 1, "sync_mask": 1, "cq_thread_mask": 1, "queue_depth": 64 } }"#;

/// A home with the configurations that the programs look for.
fn home(device_type: &str) -> Home {
    let home = Home::new();
    home.ok(&["device", "create", DEVICE, "--type", device_type, "--size", "64M"]);
    let config = CONFIG.replace("\"kv\"", if device_type == "kv" { "\"kv\"" } else { "\"lba\"" });
    home.file("kv_sdk_sync_config.json", config.as_bytes());
    home.file("kv_sdk_async_config.json", config.replace("\"sync_mask\": 1", "\"sync_mask\": 0").as_bytes());
    home
}

#[track_caller]
fn ok(home: &Home, words: &str) -> Done {
    let done = home.run(&words.split(' ').collect::<Vec<_>>());
    assert_eq!(done.code, 0, "{words}: {}", done.stderr);
    done
}

/// The names of the blocks of results, in their order.
fn blocks(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_suffix(" latency QoS: ")).collect()
}

#[test]
fn pairs_are_stored_retrieved_asked_for_and_deleted() {
    let home = home("kv");
    let done = ok(&home, "sdk_perf --num-keys 500 --value-size 1000");
    let text = done.text();
    assert_eq!(blocks(&text), ["kv_store", "kv_retrieve", "kv_exist", "kv_delete", "kv_exist"]);
    assert!(text.contains("\nkv_sdk_init total elapsed: "), "{text}");
    for part in [
        "current core(0) is allowed to access on handle [1,]\n",
        "[TEST INFO] value_size=1000 insert_count=500, num_threads=1\n",
        "[DEVICE #0 information before test]\n  -Total Size of the NVMe Device: ",
        "  -WAF Before doing I/O: 1.000000\n",
        "[cid=0][tid=0][handle=1]kv_store: 0 Done\n",
        "[DEVICE #0 information after test]\n",
    ] {
        assert!(done.stderr.contains(part), "`{part}` is not in: {}", done.stderr);
    }
    assert_eq!(home.ok(&["kv", "list", DEVICE]), "");
}

#[test]
fn many_at_a_time_have_names_of_their_own() {
    let home = home("kv");
    let text = ok(&home, "sdk_perf_async --num-keys 500 --verify").text();
    let names = ["store", "retrieve", "exist", "delete", "exist_after_delete"];
    assert_eq!(blocks(&text), names.map(|name| format!("kv_sdk_multi_{name}")));
    assert!(text.contains("Miscompare count: 0\n\n\n"), "{text}");
}

#[test]
fn blocks_have_no_keys_to_ask_for() {
    let home = home("block");
    let done = ok(&home, "sdk_perf_async --num-keys 300 --verify");
    let names = ["store", "retrieve", "delete"];
    assert_eq!(blocks(&done.text()), names.map(|name| format!("kv_sdk_multi_{name}")));
    assert!(done.stderr.contains("  -Used Size of the NVMe Device: 0 MB\n"), "{}", done.stderr);
    let done = home.run(&["sdk_perf", "--value-size", "100"]);
    assert_eq!(done.code, 2);
    assert!(done.stderr.contains("has blocks of 512 bytes"), "{}", done.stderr);
}

#[test]
fn json_and_report_have_a_phase_for_each_step() {
    let home = home("kv");
    let json = ok(&home, "sdk_perf --num-keys 100 --output json --report r.html").json();
    let names: Vec<&str> = json["phases"]
        .as_array()
        .expect("phases")
        .iter()
        .filter_map(|phase| phase["name"].as_str())
        .collect();
    assert_eq!(names, ["kv_store", "kv_retrieve", "kv_exist", "kv_delete", "kv_exist"]);
    assert_eq!((json["tool"].as_str(), json["success"].as_bool()), (Some("sdk_perf"), Some(true)));
    assert!(std::fs::read_to_string(home.path("r.html")).expect("report").contains(">kv_retrieve<"));
}

#[test]
fn without_a_configuration_nothing_is_done() {
    let home = Home::new();
    for program in ["sdk_perf", "sdk_perf_async"] {
        let done = home.run(&[program, "--config", "no_config.json"]);
        assert_eq!(done.code, 4);
        assert!(
            done.stderr.starts_with(&format!("{program}: ")) && done.stderr.contains("no_config.json"),
            "{}",
            done.stderr
        );
    }
    home.file("wrong.json", b"{ \"ssd_type\": \"kv\" }");
    let done = home.run(&["sdk_perf", "--config", "wrong.json"]);
    assert!(done.code == 2 && done.stderr.contains("wrong.json:1:"), "{}", done.stderr);
}

#[test]
fn a_configuration_without_the_queues_that_are_needed_says_so() {
    let home = home("kv");
    let done = home.run(&["sdk_perf", "--config", "kv_sdk_async_config.json", "--num-keys", "1"]);
    assert_eq!(done.code, 2);
    assert!(
        done.stderr.contains("0000:02:00.0: no CPU has a queue that is synchronous; see `sync_mask`"),
        "{}",
        done.stderr
    );
}

#[test]
fn a_device_that_is_too_small_fails_with_what_it_said() {
    let home = home("kv");
    let done = home.run(&["sdk_perf", "--num-keys", "5000", "--value-size", "65536"]);
    assert_eq!(done.code, 1);
    assert!(done.stderr.contains("kv_store") && done.stderr.contains("Capacity Exceeded"), "{}", done.stderr);
}
