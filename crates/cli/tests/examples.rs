//! Every example that a help text has is run as it is typed, but for what takes a machine's drives or other
//! machines.

mod home;

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use home::{DEVICE, Home};

/// Parts of examples that cannot be run here: drives of the machine, root, other machines, and what is built
/// apart (tests/rocksdb.sh runs those).
const ELSEWHERE: &[&str] = &[
    "kernel:",
    "sudo ",
    "10.0.0.1",
    "[fe80::1]",
    "0000:0b:00.0",
    "/other-machine/",
    "unvme rocksdb -",
    "unvme run -",
    "kv_db_bench",
];
/// Commands whose examples run at a time.
const SIDE_BY_SIDE: usize = 4;

/// What an example says, and what takes less time or memory and is the same otherwise.
const SHORTER: &[(&str, &str)] = &[
    ("-q 32 -t 10", "-q 32 -t 0.05"),
    ("-t 600 --virtual-time", "-t 0.5 --virtual-time"),
    ("--repeat 10", "--repeat 4 -t 0.05"),
    ("depth=1..256 -t 1", "depth=1..256 -t 0.05"),
    ("mix=100,70,0 --report", "mix=100,70,0 -t 0.05 --report"),
    ("--handle rw=randread,sched=share:8", "-t 0.3 --handle rw=randread,sched=share:8"),
    ("--compare -t 0.2", "--compare -t 0.05"),
    ("--sheet quick -t 1", "--sheet quick -t 0.1"),
    ("-w ycsb-a --keys 100000", "-w ycsb-a --keys 10000 -t 0.1"),
    ("-c 0x3 --verify", "-c 0x1 --verify -t 0.05"),
    ("--fdp-select random", "--fdp-select random -t 0.05"),
    ("--arrivals poisson", "--arrivals poisson -t 0.05"),
    ("perf -r mem:block:1G", "perf -r mem:block:64M"),
    ("unvme serve ", "unvme serve --populate 0 "),
    ("mem:block:256M --sweep", "mem:block:16M -t 0.02 --repeat 4 --sweep"),
    ("unvme sim --recipe cachelib", "unvme sim --recipe cachelib --size 256M --writes 2"),
    ("unvme sim --recipe rocksdb", "unvme sim --recipe rocksdb --size 2G --writes 2"),
    ("unvme sim --recipe adversarial", "unvme sim --recipe adversarial --size 1G --writes 2"),
    ("unvme sim -w ", "unvme sim --size 256M --writes 2 -w "),
    ("unvme sim --workload", "unvme sim --size 256M --writes 2 --workload"),
    ("--size 64G --writes 10 --timing tlc", "--size 1G --writes 2 --timing tlc"),
    ("~/.local", "./local"),
];

/// The command of each line of examples: without what is said of it, continued lines in one.
fn examples(help: &str) -> Vec<String> {
    let joined = help.replace(" \\\n", " ");
    let lines = joined.lines().map(|line| line.strip_prefix("Example: ").unwrap_or(line).trim_start());
    lines
        .filter_map(|line| {
            let command = line.split_once("  ").map_or(line, |(command, _)| command.trim_end());
            let command = command.split_once(" #").map_or(command, |(command, _)| command).trim_end();
            let piped = command.split_once("| ").map_or(command, |(_, behind)| behind);
            let starts = ["unvme ", "kv_", "sdk_", "blobfs_", "sudo "];
            let is_one = starts.iter().any(|start| command.starts_with(start) || piped.starts_with(start));
            (is_one && !command.contains("[OPTIONS]") && !command.ends_with(':')).then(|| command.to_owned())
        })
        .collect()
}

/// The help of a command and of those below it.
fn helps(home: &Home, words: &[String], found: &mut Vec<(Vec<String>, String)>) {
    let args: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
    let help = home.ok(&args);
    let below: Vec<String> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .filter(|word| word != "help")
        .collect();
    let text = match help.rfind("Print help") {
        Some(at) => help[at..].to_owned(),
        None => String::new(),
    };
    found.push((words.to_vec(), text));
    for word in below {
        helps(home, &[words, &[word]].concat(), found);
    }
}

/// A home as the examples of a command expect it.
fn prepared(words: &[String], example: &str) -> Home {
    let home = Home::new();
    let is = |word: &str| words.first().is_some_and(|first| first == word);
    let device: &[&str] = match words {
        _ if is("kv") || is("kv_perf") || is("kv_nvme") => &["--type", "kv", "--size", "1G"],
        // Their examples begin with it, or want room for namespaces.
        [first, second] if first == "device" && second == "create" => &[],
        [first] if first == "device" || first == "fdp" || first == "kv" => &[],
        [] => &[],
        [first] if first == "create-ns" && example.contains("--phndls") => {
            &["--size", "8G", "--namespaces", "1G", "--fdp"]
        }
        [first] if first == "create-ns" => &["--size", "8G", "--namespaces", "1G"],
        [first] if first == "get-log" => &["--type", "kv", "--size", "1G"],
        [first] if first == "set-feature" => &["--size", "1G", "--ftl", "page"],
        [first, second] if first == "fdp" && second == "feature" => &["--size", "1G", "--ftl", "page"],
        _ => &["--size", "1G", "--fdp"],
    };
    if !(device.is_empty() || words.len() == 1 && is("kv")) {
        home.ok(&[&["device", "create", DEVICE], device].concat());
        home.ok(&[&["device", "create", "0000:01:00.0"], device].concat());
        home.ok(&["device", "create", "0000:03:00.0", "--size", "64M"]);
    }
    if is("fdp") && words.len() == 2 && words[1] == "feature" || is("set-feature") {
        home.ok(&["delete-ns", DEVICE, "-n", "1"]);
    }
    if is("kv") && words.len() == 2 {
        home.ok_with(&["kv", "store", DEVICE, "user:1"], &[b'v'; 2000]);
    }
    if is("fs") || is("mkfs") || is("blobfs_perf") {
        prepare_files(&home);
    }
    if is("kv_nvme") {
        home.ok(&["kv", "store", DEVICE, "0000 and more", "value"]);
    }
    if is("id-ns") {
        home.ok(&["device", "remove", DEVICE, "--force"]);
        home.ok(&["device", "create", DEVICE, "--type", "kv", "--size", "64M"]);
    }
    let image = if is("fw-download") { FIRMWARE.as_slice() } else { &[7; 8192] };
    home.file("image.bin", image);
    if is("compare") {
        home.ok(&["write", DEVICE, "-s", "2048", "--data", "image.bin"]);
    }
    if words == ["perf", "compare"] {
        std::fs::create_dir(home.path("runs")).expect("a folder");
        for file in ["after.json", "runs/one.json", "runs/two.json"] {
            home.ok(&["perf", "-r", "mem:block:16M", "-t", "0.05", "--repeat", "2", "--json", file]);
        }
    }
    prepare_plots(&home, words);
    if is("fault") && words.len() == 2 && words[1] == "clear" {
        for _ in 0..3 {
            home.ok(&["fault", "add", DEVICE, "--opcode", "read", "--delay", "1ms"]);
        }
    }
    home.file("ada.bin", b"Ada");
    home.file("value.bin", b"value");
    home.file("value.txt", &[b'v'; 4096]);
    home.file(
        "ssd.iolog",
        b"fio version 2 iolog\nssd add\nssd open\nssd write 0 4096\nssd write 8192 4096\n",
    );
    home.file("sample_config.json", CONFIGURATION);
    home
}

/// A file system with what examples expect in it, and the guide's configuration.
fn prepare_files(home: &Home) {
    home.ok(&["fs", "mkfs", DEVICE]);
    home.ok(&["fs", "mkdir", DEVICE, "/old"]);
    home.file("Cargo.toml", b"[package]\n");
    for path in ["/Cargo.toml", "/text", "/draft"] {
        home.ok(&["fs", "put", DEVICE, "Cargo.toml", path]);
    }
    home.file(
        "lba_sdk_config.json",
        br#"{ "cache": "off", "ssd_type": "lba", "app_hugemem_size": 320, "slab_size": 16, "log_level": 0,
            "device_description": [ { "dev_id": "0000:02:00.0", "core_mask": "1", "sync_mask": "1",
            "cq_thread_mask": "0", "queue_depth": 8 } ] }"#,
    );
}

/// Results that are drawn.
fn prepare_plots(home: &Home, words: &[String]) {
    if words == ["fio-plot"] {
        prepare_fio(home);
    }
    if words == ["fdp", "plot"] {
        let line = |at: u32| {
            format!(
                "{{\"time\":{at},\"host_bytes\":{at},\"media_bytes\":{at},\"erased_bytes\":0,\"used_bytes\":1,\
                 \"capacity_bytes\":2,\"handles_open\":1}}\n"
            )
        };
        let lines: String = (1..9).map(line).collect();
        home.file("on.jsonl", lines.as_bytes());
        home.file("off.jsonl", lines.as_bytes());
    }
    if words == ["rocksdb-plot"] {
        prepare_rocksdb(home);
    }
}

fn prepare_fio(home: &Home) {
    std::fs::create_dir(home.path("results")).expect("a folder");
    for file in ["latency.json", "results/latency.json"] {
        home.file(file, FIO);
    }
    home.ok(&["perf", "-r", "mem:block:16M", "-q", "32", "-t", "0.05", "--json", "perf.json"]);
    home.ok(&["fio-plot", "latency.json", "--json", "run.json"]);
}

fn prepare_rocksdb(home: &Home) {
    for folder in ["out/unvme", "out/kernel"] {
        std::fs::create_dir_all(home.path(folder)).expect("a folder");
    }
    for file in ["fillseq.txt", "out/unvme/1-insert.txt", "out/kernel/1-insert.txt"] {
        home.file(file, b"fillseq      :       2.886 micros/op 346497 ops/sec;   38.3 MB/s\n");
    }
    home.ok(&["rocksdb-plot", "out/unvme", "--json", "results.json"]);
}

/// What fio writes, as far as it is read.
const FIO: &[u8] = br#"{ "fio version" : "fio-3.33", "timestamp" : 1763634847, "jobs" : [ { "jobname" : "t",
    "job options" : { "rw" : "randread", "bs" : "4k", "iodepth" : "32" },
    "read" : { "iops" : 1000.0, "bw_bytes" : 4096000, "total_ios" : 5000, "clat_ns" : { "min" : 1000, "max" : 9000,
    "mean" : 2000.0, "N" : 5000, "percentile" : { "50.000000" : 1800, "99.000000" : 8000 } } } } ] }"#;

const FIRMWARE: &[u8; 24] = b"UNVMEFW\x002.0     \x01\x02\x03\x04\xc2\x50\x7a\xa2";

const CONFIGURATION: &[u8] = br#"{ "cache": "off", "ssd_type": "kv", "driver": "udd", "log_level": 0, "log_file": "./kvsdk.log",
    "device_description": [ { "dev_id": "0000:02:00.0", "core_mask": "0x1", "sync_mask": "0x1", "cq_thread_mask": "0x1", "queue_depth": 8 } ] }"#;

fn run(home: &Home, programs: &Path, example: &str) -> (bool, String) {
    let mut line = SHORTER.iter().fold(example.to_owned(), |line, (from, to)| line.replace(from, to));
    if line.starts_with("unvme serve") || line.starts_with("unvme fs serve") {
        line = format!("timeout --preserve-status -s TERM 2 {line}");
    }
    let path = format!("{}:/usr/bin:/bin", programs.display());
    let mut command = Command::new("bash");
    command.args(["-c", &format!("set -o pipefail; {line}")]).env_clear().env("PATH", path);
    command.env("UNVME_HOME", home.path("unvme")).env("UNVME_SYSTEM_ROOT", home.path("system"));
    command.env("USER", "somebody").env("HOME", home.path("home")).current_dir(home.path(""));
    command.env("XDG_RUNTIME_DIR", home.path("run"));
    for folder in ["local/share/bash-completion/completions", "run"] {
        std::fs::create_dir_all(home.path(folder)).expect("a folder");
    }
    let output = command.output().expect("bash");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    // Nothing is advised on a machine that other tests keep busy.
    let is_busy = line.starts_with("unvme advise") && told.contains(" from this run: ");
    (output.status.success() || is_busy, format!("{line}: {}\n{told}", output.status))
}

#[test]
fn every_example_of_every_help_text_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in [
        "unvme",
        "kv_perf",
        "kv_nvme",
        "sdk_perf",
        "sdk_perf_async",
        "sdk_iterate",
        "sdk_iterate_async",
        "blobfs_perf",
    ] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_unvme"), folder.path().join(name)).expect("a link");
    }
    let mut found = Vec::new();
    helps(&Home::new(), &[], &mut found);
    // Most of them wait for a good part of their time.
    let (next, results) = (AtomicUsize::new(0), Mutex::new((0, Vec::new())));
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                while let Some((words, text)) = found.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (ran, mut failed) = run_all(words, text, folder.path());
                    let mut results = results.lock().expect("nobody has panicked");
                    results.0 += ran;
                    results.1.append(&mut failed);
                }
            });
        }
    });
    let (ran, failed) = results.into_inner().expect("nobody has panicked");
    assert!(failed.is_empty(), "{} of {ran} examples fail:\n{}", failed.len(), failed.join("\n"));
    assert!(ran > 100, "{ran} examples were found");
}

/// Runs the examples of a command, one after the other; how many, and what those that fail say.
fn run_all(words: &[String], text: &str, programs: &Path) -> (usize, Vec<String>) {
    let all = examples(text);
    let here = all.iter().filter(|example| !ELSEWHERE.iter().any(|part| example.contains(part)));
    let here: Vec<_> = here.cloned().collect();
    let (mut ran, mut failed) = (0, Vec::new());
    if here.is_empty() {
        return (ran, failed);
    }
    let mut home = prepared(words, &here[0]);
    let name = "tcp:127.0.0.1:4420/nqn.2024-01.io.example:blocks";
    let server = here.iter().any(|example| example.contains(name)).then(|| {
        let nqn = "nqn.2024-01.io.example:blocks";
        home.serve(&["--tcp", "127.0.0.1:0", "--nqn", nqn, "mem:block:64M"])
    });
    for mut example in here {
        if words == ["create-ns"] {
            home = prepared(words, &example);
        }
        if let Some(server) = &server {
            let served = server.line.split(" as ").nth(1).and_then(|rest| rest.split(' ').next());
            example = example.replace(name, served.expect("a name"));
        }
        let (succeeded, told) = run(&home, programs, &example);
        ran += 1;
        if !succeeded {
            failed.push(told);
        }
    }
    (ran, failed)
}

#[test]
fn help_fits_the_terminal() {
    let home = Home::new();
    let mut found = Vec::new();
    helps(&home, &[], &mut found);
    for (words, _) in found {
        let args: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
        for width in [80, 60] {
            let output = home.command(&args).env("COLUMNS", width.to_string()).output().expect("run");
            let text = String::from_utf8_lossy(&output.stdout);
            // What is one word, a list of values for instance, cannot be broken.
            let long: Vec<&str> = text
                .lines()
                .filter(|line| line.chars().count() > width && line.split_whitespace().count() > 2)
                .filter(|line| !line.starts_with("Usage: "))
                .collect();
            assert!(long.is_empty(), "{words:?} at {width}: {long:#?}");
        }
    }
}
