//! Virtual devices that are unplugged and plugged, idle and under load of several processes.

mod home;

use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use home::{DEVICE, Home, pattern, wait};

/// The virtual device is unplugged, or was while the command had it open.
const UNPLUGGED: i32 = 6;
const SAYS_SO: &str = "0000:02:00.0 is unplugged; plug it with: unvme device plug 0000:02:00.0";
/// Within this time every process has noticed, also on a machine that runs much else.
const NOTICE: Duration = Duration::from_secs(60);

/// Starts a command that has the device open when this returns.
fn start(home: &Home, args: &[&str]) -> Child {
    let mut command = home.command(args);
    let child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("start");
    let (lock, pid) = (home.slot().join("lock"), child.id().to_string());
    let started = Instant::now();
    // Its first word is the holder.
    while std::fs::read_to_string(&lock).unwrap_or_default().split_whitespace().next() != Some(&pid) {
        assert!(started.elapsed() < Duration::from_secs(60), "{args:?} does not open the device");
        thread::sleep(Duration::from_millis(2));
    }
    child
}

/// The command ends soon, with the code and the words for a device that was unplugged.
#[track_caller]
fn ends_unplugged(mut child: Child) {
    let started = Instant::now();
    let code = wait(&mut child);
    assert!(started.elapsed() < NOTICE, "{:?}", started.elapsed());
    let mut stderr = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("read");
    assert_eq!(code, UNPLUGGED, "{stderr}");
    assert!(stderr.contains(SAYS_SO) && !stderr.contains("panicked"), "{stderr}");
}

fn unplug(home: &Home) {
    let started = Instant::now();
    assert_eq!(home.ok(&["device", "unplug", DEVICE]), "unplugged 0000:02:00.0\n");
    assert!(started.elapsed() < NOTICE, "{:?}", started.elapsed());
}

fn plug(home: &Home) {
    assert_eq!(home.ok(&["device", "plug", DEVICE]), "plugged 0000:02:00.0\n");
}

#[test]
fn an_unplugged_device_is_listed_as_such_and_not_opened_by_any_command() {
    let home = Home::with_device();
    home.ok_with(&["write", DEVICE], &[7; 512]);
    unplug(&home);
    assert_eq!(home.ok(&["device", "unplug", "02:00.0"]), "0000:02:00.0 is unplugged already\n");
    assert_eq!(home.json(&["device", "list"])["devices"][0]["state"], "unplugged");
    assert_eq!(home.json(&["device", "show", DEVICE])["state"], "unplugged");
    assert_eq!(home.json(&["list"])["Devices"], serde_json::json!([]));
    for args in [
        &["id-ctrl", DEVICE][..],
        &["read", "02:00.0"],
        &["serve", DEVICE],
        &["perf", "-r", DEVICE, "-t", "1"],
        &["device", "check", DEVICE],
        &["fault", "list", DEVICE],
        &["list", DEVICE],
    ] {
        home.run(args).fails_with(UNPLUGGED, &[SAYS_SO]);
    }
    home.run(&["device", "create", DEVICE, "--size", "64M"]).fails_with(2, &["exists at this address"]);
    home.run(&["id-ctrl", "09:00.0"]).fails_with(3, &["virtual devices are 0000:02:00.0 (unplugged)"]);
    plug(&home);
    assert_eq!(home.ok(&["device", "plug", DEVICE]), "0000:02:00.0 is plugged already\n");
    assert_eq!(home.json(&["device", "list"])["devices"][0]["state"], "free");
    assert_eq!(home.run(&["read", DEVICE]).stdout, [7; 512]);
    unplug(&home);
    home.ok(&["device", "remove", DEVICE]);
    home.run(&["device", "plug", DEVICE]).fails_with(3, &["no such device"]);
}

#[test]
fn what_is_not_there_cannot_be_unplugged() {
    let home = Home::with_device();
    for verb in ["unplug", "plug"] {
        home.run(&["device", verb, "09:00.0"]).fails_with(3, &["0000:09:00.0: no such device", DEVICE]);
        assert_eq!(home.run(&["device", verb, "mem:block:1G"]).code, 2);
    }
    let json = home.json(&["device", "unplug", DEVICE]);
    assert_eq!(json, serde_json::json!({"address": DEVICE, "state": "unplugged", "changed": true}));
    assert_eq!(home.json(&["device", "plug", DEVICE])["changed"], true);
    assert_eq!(home.json(&["device", "plug", DEVICE])["changed"], false);
}

#[test]
fn perf_ends_when_its_device_is_unplugged_and_runs_again_after_the_replug() {
    let home = Home::with_device();
    let long = ["perf", "-r", DEVICE, "-t", "60", "--warmup", "0", "-w", "randrw", "-q", "8"];
    for round in 0..3 {
        let perf = start(&home, &long);
        thread::sleep(Duration::from_millis(100 * round));
        unplug(&home);
        ends_unplugged(perf);
        plug(&home);
    }
    // How far the first ones came with filling the device depends on the machine: this one does not.
    home.ok(&["perf", "-r", DEVICE, "-t", "0.1", "--warmup", "0", "-w", "randwrite", "--no-prefill"]);
}

#[test]
fn server_and_clients_end_when_the_device_is_unplugged() {
    let home = Home::with_device();
    let data = pattern(9, 1 << 20);
    home.ok_with(&["write", DEVICE, "-s", "8192", "-f"], &data);
    let server = home.serve(&[DEVICE]);
    // A client in the middle of writing: what is in the pipe is smaller than what was written.
    let mut client = home
        .command(&["write", DEVICE, "-z", "8M"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    let mut input = client.stdin.take().expect("piped");
    input.write_all(&[1; 2 << 20]).expect("write");
    unplug(&home);
    assert_eq!(server.ended(), UNPLUGGED);
    // The client may be gone before it has taken everything.
    let _ = input.write_all(&[2; 6 << 20]);
    drop(input);
    ends_unplugged(client);
    plug(&home);
    assert!(!home.slot().join("cntrl").exists(), "the server has removed its socket");
    assert_eq!(home.run(&["read", DEVICE, "-s", "8192", "-z", "1M"]).stdout, data);
    let server = home.serve(&[DEVICE]);
    assert_eq!(home.run(&["read", DEVICE, "-s", "8192", "-z", "1M"]).stdout, data);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn holder_and_those_who_reach_the_device_through_it_all_end() {
    let home = Home::with_device();
    let long = ["perf", "-r", DEVICE, "-t", "60", "--warmup", "0", "-w", "randwrite", "-q", "4"];
    let holder = start(&home, &long);
    // A client in the middle of writing: what is in the pipe is smaller than what was written, so it is
    // attached.
    let mut client = home
        .command(&["write", DEVICE, "-z", "8M"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    let mut input = client.stdin.take().expect("piped");
    input.write_all(&[1; 2 << 20]).expect("write");
    unplug(&home);
    // It may be gone before it has taken everything.
    let _ = input.write_all(&[2; 6 << 20]);
    drop(input);
    ends_unplugged(client);
    ends_unplugged(holder);
    plug(&home);
    home.ok(&["id-ctrl", DEVICE]);
}

#[test]
fn two_at_once_unplug_a_device_in_use() {
    let home = Home::with_device();
    let holder = start(&home, &["write", DEVICE, "-z", "8M"]);
    let both = [(); 2].map(|()| {
        let mut command = home.command(&["device", "unplug", DEVICE]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start")
    });
    let said: Vec<String> = both
        .into_iter()
        .map(|one| {
            let output = one.wait_with_output().expect("wait");
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).expect("UTF-8")
        })
        .collect();
    assert!(said.contains(&"unplugged 0000:02:00.0\n".to_owned()), "{said:?}");
    let mut holder = holder;
    let _ = holder.stdin.take().expect("piped").write_all(&[1; 8 << 20]);
    ends_unplugged(holder);
    plug(&home);
    home.ok(&["id-ctrl", DEVICE]);
}

#[test]
fn a_holder_that_is_stopped_keeps_its_device_and_is_named() {
    let home = Home::with_device();
    let mut holder = start(&home, &["write", DEVICE, "-z", "8M"]);
    let pid = holder.id().to_string();
    let signal = |name: &str| {
        let sent = std::process::Command::new("kill").args([name, &pid]).status().expect("kill");
        assert!(sent.success());
    };
    signal("-STOP");
    home.run(&["device", "unplug", DEVICE]).fails_with(
        3,
        &[&format!("0000:02:00.0: in use by process {pid}; it has not given the device back within 10s")],
    );
    signal("-CONT");
    assert_ne!(home.json(&["device", "list"])["devices"][0]["state"], "unplugged");
    // A holder that is killed while somebody waits for it has given the device back.
    signal("-STOP");
    let unplugging =
        home.command(&["device", "unplug", DEVICE]).stdout(Stdio::null()).spawn().expect("start");
    while !home.slot().join("unplugged").exists() {
        thread::sleep(Duration::from_millis(2));
    }
    signal("-KILL");
    let code = wait(&mut holder);
    let mut stderr = String::new();
    holder.stderr.take().expect("piped").read_to_string(&mut stderr).expect("read");
    assert_eq!(code, -1, "{stderr}");
    let mut unplugging = unplugging;
    assert_eq!(wait(&mut unplugging), 0);
    plug(&home);
    home.ok(&["id-ctrl", DEVICE]);
}

#[test]
fn an_unplugging_that_is_killed_leaves_a_slot_that_is_unplugged_again_or_plugged() {
    let home = Home::with_device();
    let mut holder = start(&home, &["write", DEVICE, "-z", "8M"]);
    let pid = holder.id().to_string();
    let signal = |name: &str| {
        assert!(std::process::Command::new("kill").args([name, &pid]).status().expect("kill").success());
    };
    signal("-STOP");
    let mut unplugging = home.command(&["device", "unplug", DEVICE]).spawn().expect("start");
    while !home.slot().join("unplugged").exists() {
        thread::sleep(Duration::from_millis(2));
    }
    unplugging.kill().expect("kill");
    wait(&mut unplugging);
    let state = home.json(&["device", "list"])["devices"][0]["state"].clone();
    assert_eq!(state, format!("unplugged, process {pid} has not given it back"));
    home.run(&["id-ctrl", DEVICE]).fails_with(UNPLUGGED, &[SAYS_SO]);
    signal("-CONT");
    let _ = holder.stdin.take().expect("piped").write_all(&[1; 8 << 20]);
    ends_unplugged(holder);
    assert_eq!(home.json(&["device", "list"])["devices"][0]["state"], "unplugged");
    plug(&home);
    home.ok(&["id-ctrl", DEVICE]);
}
