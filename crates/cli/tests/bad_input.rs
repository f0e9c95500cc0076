//! What bad input gets: an error that says what was expected, and never another device.

mod home;

use home::{DEVICE, Home};

#[test]
fn an_unknown_device_lists_what_is_there() {
    let home = Home::with_device();
    home.ok(&["device", "create", "0000:83:00.0", "--size", "2M"]);
    for name in ["0000:09:00.0", "09:00.0", "nvme", "nothing", ""] {
        home.run(&["id-ctrl", name]).fails_with(
            3,
            &[
                &format!("unvme: {name}: no such device; "),
                "virtual devices are 0000:02:00.0, 0000:83:00.0 in ",
                "`unvme device create`",
                "mem:block:SIZE",
                "vfio-user:SOCKET",
            ],
        );
    }
    Home::new()
        .run(&["list", "09:00.0"])
        .fails_with(3, &["no such device; there are no virtual devices in "]);
}

#[test]
fn names_of_other_transports_say_what_is_supported() {
    let home = Home::new();
    home.run(&["id-ctrl", "kernel:"]).fails_with(2, &["expected a path, such as kernel:/dev/ng0n1"]);
    home.run(&["id-ctrl", "kernel:nowhere"])
        .fails_with(4, &["open kernel:nowhere", "No such file or directory", "unvme setup status"]);
    home.run(&["id-ctrl", "tcp:host:4420/nqn"]).fails_with(2, &["`nqn` is no NQN; expected up to 223 bytes"]);
    home.run(&["id-ctrl", "tcp:host"]).fails_with(2, &["expected tcp:HOST:PORT/NQN"]);
    home.run(&["id-ctrl", "mem:kv:1M"]).fails_with(2, &["SIZE is 16M to 8T in steps of 2M, not 1M"]);
    home.run(&["id-ctrl", "mem:block:1Q"]).fails_with(2, &["`1Q` is not a size", "4G"]);
    home.run(&["id-ctrl", "mem:block:1G,block=1024"])
        .fails_with(2, &["block: a logical block has 512 or 4096 bytes"]);
    home.run(&["id-ctrl", "vfio-user:"]).fails_with(2, &["expected the path of a socket"]);
    home.run(&["id-ctrl", "vfio-user:nowhere"])
        .fails_with(4, &["open vfio-user:nowhere", "No such file or directory"]);
    let file = home.file("file", b"no socket");
    home.run(&["id-ctrl", &format!("vfio-user:{file}")]).fails_with(4, &["Connection refused"]);
}

#[test]
fn wrong_options_name_the_option_and_what_was_expected() {
    let home = Home::new();
    for (args, part) in [
        (&["read", DEVICE, "-s", "ten"][..], "--start-block <LBA>"),
        (&["read", DEVICE, "-s", "-1"], "'-1'"),
        (&["read", DEVICE, "-z", "4GB"], "powers of 1024"),
        (&["read", DEVICE, "-n", "0x100000000"], "expected a number up to 4294967295"),
        (&["get-log", DEVICE, "-i", "256", "-l", "4"], "expected a number up to 255"),
        (&["get-log", DEVICE, "-l", "4"], "--log-id <ID>"),
        (&["get-feature", DEVICE, "-f", "1", "-s", "4"], "4 is not in 0..=3"),
        (&["id-ctrl"], "<DEVICE>"),
        (&["id-ctrl", DEVICE, "-o", "xml"], "possible values: text, json"),
        (&["create-ns", DEVICE], "--nsze <BLOCKS>"),
        (&["device", "create", "2:0.0", "--size", "4G"], "domain:bus:device.function"),
        (&["device", "create", "--size", "4X"], "`4X` is not a size"),
        (&["device", "create", "--size", "4G", "--block", "1024"], "512 or 4096 bytes, not 1024"),
        (&["serve", DEVICE, "--core", "x"], "--core <CORE>"),
        (&["frobnicate"], "unrecognized subcommand"),
    ] {
        home.run(args).fails_with_usage(part);
    }
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let home = Home::with_device();
    home.run(&["read", DEVICE, "-c", "0", "-z", "513"])
        .fails_with(2, &["--data-size 513", "names 1 block, 512 bytes"]);
    home.run(&["read", DEVICE, "-o", "json"]).fails_with(2, &["standard output has the data", "--data"]);
    home.run(&["dsm", DEVICE, "-d", "-s", "0,8", "-b", "8"])
        .fails_with(2, &["2 first blocks, 1 numbers of blocks"]);
    home.run(&["dsm", DEVICE, "-d", "-s", "0", "-b", "8", "-a", "1,2"]).fails_with(2, &["2 attributes"]);
    home.run(&["format", DEVICE, "-l", "0", "-b", "512"]).fails_with_usage("cannot be used with");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let home = Home::with_device();
    home.run(&["write", DEVICE, "-d", "missing"]).fails_with(4, &["open missing: No such file or directory"]);
    home.run(&["read", DEVICE, "-d", "no/where"])
        .fails_with(4, &["create no/where: No such file or directory"]);
    home.run(&["write", DEVICE, "-d", "/"]).fails_with(4, &["read /: Is a directory"]);
    home.run(&["read", DEVICE, "-z", "4K", "-d", "/dev/full"])
        .fails_with(4, &["read to /dev/full: No space left on device"]);
}

#[test]
fn a_full_standard_output_is_an_error() {
    let home = Home::with_device();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("open");
    let output = home.command(&["id-ctrl", DEVICE]).stdout(full).output().expect("run");
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stderr).contains("No space left on device"));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("open");
    let output = home.command(&["read", DEVICE]).stdout(full).output().expect("run");
    assert_eq!(output.status.code(), Some(4));
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(message, "unvme: read to standard output: No space left on device (os error 28)\n");
}

/// /dev/zero states a size of 0 and never ends.
#[test]
fn files_without_an_end_are_refused() {
    let home = Home::new();
    for (args, part) in [
        (&["perf", "-r", "mem:block:4M", "--job", "/dev/zero"][..], "more than 1 MiB; expected a job file"),
        (&["fdp", "plot", "--placed", "/dev/zero", "--unplaced", "/dev/zero"], "more than 64 MiB"),
        (&["rocksdb-plot", "/dev/zero"], "more than 64 MiB; expected the output of db_bench"),
        (&["perf", "compare", "/dev/zero", "/dev/zero"], "expected JSON"),
    ] {
        home.run(args).fails_with(2, &[part]);
    }
}
