//! A device that another process serves, and what happens when that process dies.

mod home;

use std::io::Write;
use std::process::{Command, Stdio};

use home::{DEVICE, Home, pattern, wait};

#[test]
fn commands_attach_to_the_process_that_serves_the_device() {
    let home = Home::with_device();
    let server = home.serve(&[DEVICE]);
    let socket = home.slot().join("cntrl");
    assert!(server.line.contains(socket.to_str().expect("UTF-8")), "{}", server.line);
    let state = home.json(&["device", "show", DEVICE])["state"].clone();
    assert_eq!(state, format!("served by process {}", server.pid()));

    let data = pattern(5, 2 << 20);
    home.ok_with(&["write", DEVICE, "-s", "8"], &data);
    assert_eq!(home.run(&["read", DEVICE, "-s", "8", "-z", "2M"]).stdout, data);
    home.ok_with(&["compare", DEVICE, "-s", "8"], &data);
    assert!(home.ok(&["list"]).contains("UNVME000002000"));
    home.ok(&["reset", DEVICE]);

    home.run(&["device", "remove", DEVICE]).fails_with(3, &[&format!("in use by process {}", server.pid())]);
    home.run(&["serve", DEVICE]).fails_with(3, &[&format!("in use by process {}", server.pid())]);

    assert_eq!(server.terminate(), 0);
    assert!(!socket.exists(), "the socket is removed");
    assert_eq!(
        home.run(&["read", DEVICE, "-s", "8", "-z", "2M"]).stdout,
        data,
        "and the data is in the slot"
    );
}

#[test]
fn any_socket_can_be_served_on_and_the_slot_still_leads_there() {
    let home = Home::with_device();
    let server = home.serve(&[DEVICE, "--socket", "here.sock", "--core", "0", "--busy-poll"]);
    home.ok_with(&["write", DEVICE], &[3; 512]);
    assert_eq!(home.run(&["read", "vfio-user:here.sock"]).stdout, [3; 512]);
    assert_eq!(server.terminate(), 0);
    assert!(!home.path("here.sock").exists() && !home.slot().join("cntrl").is_symlink());

    let _server = home.serve(&["mem:block:16M", "--socket", "mem.sock"]);
    home.ok_with(&["write", "vfio-user:mem.sock", "--force"], &[4; 512]);
    assert_eq!(
        home.run(&["read", "vfio-user:mem.sock"]).stdout,
        [4; 512],
        "a memory device lives in its server"
    );
}

#[test]
fn destroying_data_on_a_device_that_is_not_virtual_needs_force() {
    let home = Home::new();
    let _server = home.serve(&["mem:block:16M", "--socket", "s"]);
    let name = "vfio-user:s";
    let image = home.file("image", &[7; 4096]);
    for args in [
        &["write", name][..],
        &["write-zeroes", name],
        &["format", name, "-l", "0"],
        &["dsm", name, "-d", "-s", "0", "-b", "8"],
        &["delete-ns", name, "-n", "1"],
        &["fw-commit", name, "-s", "2"],
        &["fw-download", name, "--fw", &image, "-s", "2"],
        &["write-uncor", name],
        &["set-feature", name, "-f", "6", "-v", "0", "--save"],
        &["dir-send", name, "-D", "0", "-T", "1", "-e", "1"],
        &["io-mgmt-send", name, "--mo", "1", "--mos", "0", "-l", "4"],
        &["fdp", "update", name, "-p", "0"],
        &["fdp", "feature", name, "--disable"],
        &["io-passthru", name, "--opcode", "1", "-n", "1", "-l", "512"],
        &["admin-passthru", name, "--opcode", "0x80", "-n", "1"],
        &["perf", "-r", name, "-w", "randwrite", "-t", "0.01"],
    ] {
        home.run(args).fails_with(5, &["vfio-user:s: ", "not confirmed", "--force"]);
        let words = args.iter().take_while(|word| **word != name && !word.starts_with('-'));
        let words: Vec<&str> = words.copied().chain(["--help"]).collect();
        assert!(home.ok(&words).contains("--force"), "{words:?}");
    }
    // What changes nothing, and what is gone with the next reset, is not asked for.
    home.ok(&["fdp", "feature", "mem:block:64M,fdp"]);
    home.ok(&["set-feature", name, "-f", "6", "-v", "0"]);
    home.ok(&["format", name, "-l", "0", "--force"]);
    home.ok(&["write-zeroes", name, "--force"]);
    assert_eq!(home.json(&["list-ns", name])["nsid_list"][0]["nsid"], 1, "nothing was deleted");
}

#[test]
fn pairs_of_a_device_that_is_not_virtual_are_changed_with_force_alone() {
    let home = Home::new();
    let _server = home.serve(&["mem:kv:16M", "--socket", "s"]);
    let name = "vfio-user:s";
    home.ok(&["kv", "store", name, "k", "value", "--force"]);
    let lines = home.file("lines", b"store k other\ndelete k\n");
    for args in [
        &["kv", "store", name, "k", "other"][..],
        &["kv", "append", name, "k", "more"],
        &["kv", "delete", name, "k"],
        &["kv", "batch", name, &lines],
    ] {
        home.run(args).fails_with(5, &["vfio-user:s: kv ", "not confirmed", "--force"]);
        assert_eq!(home.run(&["kv", "retrieve", name, "k"]).stdout, b"value", "{args:?}");
        assert!(home.ok(&[args[0], args[1], "--help"]).contains("--force"), "{args:?}");
    }
    assert!(home.ok(&["kv", "batch", name, &lines, "--force"]).contains("2 operations done"));
}

#[test]
fn a_killed_server_leaves_a_device_that_opens_again() {
    let home = Home::with_device();
    let server = home.serve(&[DEVICE]);
    home.ok_with(&["write", DEVICE, "-f"], &[9; 4096]);
    server.kill();
    assert!(home.slot().join("cntrl").exists(), "it had no chance to clean up");
    assert_eq!(home.run(&["read", DEVICE, "-z", "4096"]).stdout, [9; 4096]);
    let server = home.serve(&[DEVICE]);
    assert_eq!(home.run(&["read", DEVICE, "-z", "4096"]).stdout, [9; 4096]);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_client_of_a_socket_whose_server_dies_fails_in_time() {
    let home = Home::with_device();
    let server = home.serve(&[DEVICE, "--socket", "s"]);
    let mut client = home
        .command(&["write", "vfio-user:s", "-z", "8M", "--force"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    let mut input = client.stdin.take().expect("piped");
    input.write_all(&[1; 4 << 20]).expect("write");
    // What is in the pipe is smaller than what was written: the client is attached and at work, as others can
    // be.
    assert_eq!(home.run(&["read", "vfio-user:s"]).stdout, [1; 512]);
    server.kill();
    // The client may be gone before it has taken everything.
    let _ = input.write_all(&[2; 4 << 20]);
    drop(input);
    assert_eq!(wait(&mut client), 4);
    let stderr = std::io::read_to_string(client.stderr.take().expect("piped")).expect("read");
    assert!(stderr.starts_with("unvme: vfio-user:s"), "{stderr}");
    assert!(stderr.contains("gone"), "{stderr}");
    home.ok_with(&["write", DEVICE], &[3; 512]);
    assert_eq!(home.run(&["read", DEVICE]).stdout, [3; 512]);
}

#[test]
fn a_client_of_a_slot_whose_server_dies_goes_on() {
    let home = Home::with_device();
    let server = home.serve(&[DEVICE]);
    let mut client =
        home.command(&["write", DEVICE, "-z", "8M"]).stdin(Stdio::piped()).spawn().expect("start");
    let mut input = client.stdin.take().expect("piped");
    input.write_all(&[1; 4 << 20]).expect("write");
    assert_eq!(home.run(&["read", DEVICE]).stdout, [1; 512]);
    server.kill();
    input.write_all(&[2; 4 << 20]).expect("the client takes everything");
    drop(input);
    assert_eq!(wait(&mut client), 0);
    let written = [[1; 4 << 20].as_slice(), &[2; 4 << 20]].concat();
    assert!(home.run(&["read", DEVICE, "-z", "8M"]).stdout == written, "it reads as it was written");
}

#[test]
fn what_cannot_be_served_is_refused() {
    let home = Home::with_device();
    home.run(&["serve", "mem:block:16M"]).fails_with(2, &["serve mem:block:16M: ", "name a socket"]);
    home.run(&["serve", "vfio-user:s"]).fails_with(2, &["only virtual devices can be served"]);
    home.run(&["serve", DEVICE, "--core", "900"]).fails_with(2, &["core 900: this process cannot run there"]);
    home.run(&["serve", DEVICE, "--core", "9999"]).fails_with(2, &["core 9999: cores are numbered 0 to "]);
    home.run(&["serve", "09:00.0"]).fails_with(3, &["no such device"]);
    home.file("file", b"something");
    home.run(&["serve", DEVICE, "--socket", "file"]).fails_with(4, &["file exists and is not a socket"]);
    assert_eq!(std::fs::read(home.path("file")).expect("read"), b"something");
    assert!(!home.slot().join("cntrl").is_symlink());
}

#[test]
fn sigint_ends_a_server_as_ctrl_c_does() {
    let home = Home::with_device();
    let server = home.serve(&[DEVICE]);
    let sent = Command::new("kill").args(["-INT", &server.pid().to_string()]).status().expect("kill");
    assert!(sent.success());
    assert_eq!(server.ended(), 0);
    assert!(!home.slot().join("cntrl").exists());
}

/// Memory of a process that is there, in bytes.
fn resident(pid: u32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).expect("statm");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("pages") * 4096
}

#[test]
fn memory_of_a_device_is_taken_before_it_is_served_unless_said_otherwise() {
    const MEBIBYTE: u64 = 1 << 20;
    let home = Home::new();
    for (socket, more, least, most) in
        [("all.sock", None, 200, 300), ("some.sock", Some("100M"), 100, 180), ("none.sock", Some("0"), 0, 80)]
    {
        let mut args = vec!["mem:block:200M", "--socket", socket];
        args.extend(more.iter().flat_map(|size| ["--populate", size]));
        let server = home.serve(&args);
        let taken = resident(server.pid());
        assert!((least * MEBIBYTE..most * MEBIBYTE).contains(&taken), "{socket}: {taken} bytes");
        assert_eq!(server.terminate(), 0);
    }
    home.run(&["serve", "mem:block:200M", "--populate", "much"])
        .fails_with_usage("invalid value 'much' for '--populate");
}
