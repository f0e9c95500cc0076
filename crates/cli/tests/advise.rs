//! `unvme advise`: by the topology of copies of machines, and by measurements, of which nothing here depends
//! on how fast or how quiet the machine is.

mod home;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use home::{Done, Home};
use serde_json::Value;

/// Copies the `/sys` of a machine with two sockets of two cores into `root`: CPUs 0-1 and 2-3, an L3 and a
/// node for each, and a drive on each node.
fn two_sockets(root: &Path) {
    let file = |path: &str, content: &str| {
        let path = root.join("sys").join(path);
        fs::create_dir_all(path.parent().expect("parent")).expect("directory");
        fs::write(path, content).expect("file");
    };
    file("devices/system/cpu/online", "0-3\n");
    for cpu in 0..4 {
        let (node, dir) = (cpu / 2, format!("devices/system/cpu/cpu{cpu}"));
        let l3 = ["0-1\n", "2-3\n"][node];
        file(&format!("{dir}/topology/physical_package_id"), &format!("{node}\n"));
        file(&format!("{dir}/topology/core_cpus_list"), &format!("{cpu}\n"));
        file(&format!("{dir}/cache/index3/level"), "3\n");
        file(&format!("{dir}/cache/index3/shared_cpu_list"), l3);
        file(&format!("devices/system/node/node{node}/cpulist"), l3);
    }
    for (node, address) in ["0000:0b:00.0", "0000:81:00.0"].into_iter().enumerate() {
        let dir = format!("bus/pci/devices/{address}");
        for (name, content) in
            [("vendor", "0x144d"), ("device", "0xa808"), ("class", "0x010802"), ("resource", "0x0 0x0 0x0")]
        {
            file(&format!("{dir}/{name}"), content);
        }
        file(&format!("{dir}/numa_node"), &format!("{node}\n"));
        file("bus/pci/drivers/vfio-pci/unbind", "");
        symlink("../../drivers/vfio-pci", root.join("sys").join(dir).join("driver")).expect("driver");
    }
}

/// Runs a measurement that gives advice, or says that the machine is too busy for it.
fn measured(home: &Home, args: &[&str]) -> (bool, Done) {
    let args = [&["advise", "-t", "0.02", "--repeat", "4", "--io-size", "4096"], args].concat();
    let done = home.run(&args);
    if done.code != 0 {
        assert!(done.code == 1 && done.stderr.contains("from this run: "), "{}: {}", done.code, done.stderr);
    }
    (done.code == 0, done)
}

#[test]
fn another_machine_is_advised_by_a_copy_of_its_sysfs() {
    let home = Home::new();
    two_sockets(&home.path("machine"));
    for dir in ["machine", "machine/sys"] {
        let dir = home.path(dir).display().to_string();
        let text = home.ok(&["advise", "--sysfs", &dir, "--config", "sdk.json"]);
        for line in [
            "  CPUs      4 online, 4 cores in 2 sockets",
            "  L3        2 domains: 0-1 | 2-3",
            "  0000:81:00.0: driver vfio-pci, node 1",
            "  0000:0b:00.0: submit on CPU 0, complete on 1 (same L3)",
            "  0000:81:00.0: submit on CPU 2, complete on 3 (same L3)",
            "  taskset -c 0-3 PROGRAM",
            "  NUMAMask=0-1",
        ] {
            assert!(text.lines().any(|found| found == line), "no line `{line}`:\n{text}");
        }
        let file: Value =
            serde_json::from_slice(&fs::read(home.path("sdk.json")).expect("read")).expect("JSON");
        let second = &file["device_description"][1];
        assert_eq!((&second["core_mask"], &second["cq_thread_mask"]), (&"4".into(), &"8".into()));
    }
    let one = ["advise", "--sysfs", "machine", "0000:81:00.0"];
    let json = home.json(&one);
    assert_eq!(json["advice"]["assignment"]["devices"][0]["submit"], "2");
    assert_eq!(json["topology"]["nodes"][1]["cpus"], "2-3");
}

/// Runs `sdk_perf_async`, which prints its progress on standard error.
fn asynchronous(home: &Home, file: &str) {
    let done = home.run(&["sdk_perf_async", "--config", file, "--num-keys", "100"]);
    assert_eq!(done.code, 0, "{file}: {}", done.stderr);
}

#[test]
fn what_is_advised_runs_in_the_programs_of_the_guide() {
    let home = Home::new();
    for more in [&[][..], &["--poll"]] {
        home.ok(&[&["advise", "--no-measure", "mem:kv:64M", "--config", "pairs.json"], more].concat());
        home.ok(&["kv_perf", "-j", "pairs.json", "-w", "-r", "-n", "100"]);
        asynchronous(&home, "pairs.json");
        home.ok(&[&["advise", "--no-measure", "mem:block:64M", "--config", "blocks.json"], more].concat());
        home.ok(&["kv_perf", "-j", "blocks.json", "-w", "-r", "-n", "100"]);
        asynchronous(&home, "blocks.json");
    }
    // Calls that wait have queues of their own.
    home.ok(&["advise", "--no-measure", "mem:kv:64M", "--sync", "--config", "waits.json"]);
    home.ok(&["kv_perf", "-j", "waits.json", "-w", "-r", "-n", "100"]);
    let done = home.run(&["sdk_perf", "--config", "waits.json", "--num-keys", "100"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
}

#[test]
fn placements_are_measured_and_reported_or_the_machine_is_told_to_be_busy() {
    let home = Home::new();
    let files = ["--report", "advise.html", "--json", "advise.json", "--config", "sdk.json"];
    let (is_quiet, done) = measured(&home, &[&["mem:block:16M"], &files[..]].concat());
    let text = done.text();
    assert!(text.contains("CPU of a thread that submits and polls"), "{text}");
    assert!(text.contains("Completion of what one thread submits"), "{text}");
    let json: Value =
        serde_json::from_slice(&fs::read(home.path("advise.json")).expect("read")).expect("JSON");
    let page = fs::read_to_string(home.path("advise.html")).expect("a page");
    assert!(page.contains("Completion of what one thread submits"));
    let cases = json["plan"]["cases"].as_array().expect("cases").len();
    let figures = json["figures"].as_array().expect("figures");
    assert_eq!(figures.len(), cases);
    assert!(figures.iter().all(|own| own["samples"].as_array().is_some_and(|all| all.len() == 4)));
    assert_eq!(json["advice"].is_null(), !is_quiet);
    assert_eq!(text.contains("Configuration for kv_perf"), is_quiet, "{text}");
    assert_eq!(home.path("sdk.json").exists(), is_quiet);
    if is_quiet {
        home.ok(&["kv_perf", "-j", "sdk.json", "-w", "-n", "100"]);
    }
}

#[test]
fn the_tables_of_the_guide_are_printed() {
    let home = Home::new();
    for (sweep, title, row) in [
        ("affinity", "CPU affinity (the guide's Figure 10)", "NUMA-aware, a pair of cores for each"),
        ("l3", "L3 cache sharing (the guide's Figure 13)", "L3 cache sharing"),
        ("devices", "Devices on a core (the guide's Figure 31)", "4 on a core"),
        ("qos", "Devices on a core (the guide's Figure 32)", "8 on a core"),
    ] {
        let (is_quiet, done) = measured(&home, &["mem:block:16M", "--sweep", sweep]);
        let text = done.text();
        assert_eq!(text.contains(title), is_quiet, "{sweep}: {text}");
        assert_eq!(text.lines().any(|line| line.starts_with(row)), is_quiet, "{sweep}: {text}");
    }
}

#[test]
fn a_device_that_does_not_open_is_skipped_and_told() {
    let home = Home::new();
    let (_, done) = measured(&home, &["mem:block:16M", "kernel:/dev/no-such-device"]);
    let text = done.text();
    assert!(text.contains("  kernel:/dev/no-such-device: skipped: "), "{text}");
    home.run(&["advise", "kernel:/dev/no-such-device"]).fails_with(4, &["/dev/no-such-device"]);
}

#[test]
fn nothing_is_written_to_a_device_that_keeps_its_data() {
    let home = Home::with_device();
    let before = home.ok(&["smart-log", "0000:02:00.0", "-o", "json"]);
    let written = |text: &str| {
        let log: Value = serde_json::from_str(text).expect("JSON");
        log["data_units_written"].clone()
    };
    measured(&home, &["0000:02:00.0"]);
    let after = home.ok(&["smart-log", "0000:02:00.0", "-o", "json"]);
    assert_eq!(written(&before), written(&after));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let home = Home::new();
    home.file("no-copy", b"");
    for (args, parts) in [
        (
            &["--sysfs", "no-copy"][..],
            &["--sysfs no-copy: neither devices/system/cpu nor", "expected a copy"][..],
        ),
        (&["--no-measure", "mem:tape:1G"], &["mem:tape:1G"]),
        (&["--no-measure", "--sweep", "l3"], &["--sweep"]),
        (&["--no-measure", "kernel:/dev/no-such-device"], &["no such drive is on this machine"]),
        (&["--no-measure", "0000:99:00.0"], &["0000:99:00.0: no such drive is on this machine"]),
        (&["--io-size", "64M", "mem:block:128M"], &["one command of it moves"]),
        (&["mem:block:16M", "mem:kv:64M", "--config", "both.json"], &["`ssd_type` is of a whole file"]),
        (&["--poll", "--sync"], &["--poll", "--sync"]),
        (&["-t", "0"], &["expected more than 0"]),
        (&["-t", "nan"], &["expected more than 0"]),
        (&["--repeat", "0"], &["0 is not in 1..=1000"]),
        (&["-q", "5000"], &["5000 is not in 1..=4095"]),
        (&["--for", "speed"], &["throughput, latency"]),
        (&["--io-size", "100", "mem:block:16M"], &["its blocks have 512 bytes"]),
        (&["--io-size", "8G", "mem:block:16M"], &["expected at most 4294967295 bytes"]),
        (&["-n", "7", "mem:block:16M"], &["7"]),
        (&["--unknown"], &["--unknown"]),
    ] {
        let done = home.run(&[&["advise"], args].concat());
        assert_eq!(done.code, 2, "{args:?}: {}", done.stderr);
        for part in parts {
            assert!(done.stderr.contains(part), "{args:?}: `{part}` is not in: {}", done.stderr);
        }
    }
    two_sockets(&home.path("machine"));
    let both = ["advise", "--no-measure", "mem:kv:64M", "mem:block:64M", "--config", "both.json"];
    home.run(&both).fails_with(2, &["`ssd_type` is of a whole file"]);
    let twice = ["advise", "--sysfs", "machine", "0000:0b:00.0", "0b:00.0"];
    home.run(&twice).fails_with(2, &["0b:00.0: named twice"]);
    let missing = ["advise", "--sysfs", "machine", "0000:99:00.0"];
    home.run(&missing).fails_with(2, &["0000:99:00.0: no such drive is in the copy of the machine"]);
    fs::write(home.path("machine/sys/devices/system/cpu/online"), "many").expect("write");
    home.run(&["advise", "--sysfs", "machine"]).fails_with(2, &["cpu/online", "`many`", "0-3,8"]);
}
