//! Devices over the network: `unvme serve --tcp`, `tcp:` names, `discover`, `key`.

mod home;
mod network;

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use home::{DEVICE, Home, pattern, wait, wait_busy};
use network::{address_of, host_nqn, name_of, private};

const NQN: &str = "nqn.2024-01.io.example:ssd";

#[test]
fn blocks_and_pairs_are_served_side_by_side_and_discovery_names_them() {
    let home = Home::with_device();
    let server =
        home.serve(&["--tcp", "0", "--nqn", NQN, "--nqn", "nqn.2024-01.io.example:kv", DEVICE, "mem:kv:64M"]);
    let blocks = name_of(&server);
    let pairs = blocks.replace(NQN, "nqn.2024-01.io.example:kv");
    let data = pattern(3, 2 << 20);
    for options in ["", ",hdgst", ",ddgst", ",hdgst,ddgst,keep-alive=5,reconnect=5"] {
        let name = format!("{blocks}{options}");
        home.ok_with(&["write", &name, "-s", "8", "--force"], &data);
        assert_eq!(home.run(&["read", &name, "-s", "8", "-z", "2M"]).stdout, data, "{options}");
    }
    home.ok_with(&["compare", &blocks, "-s", "8"], &data);
    assert!(home.ok(&["list", &blocks]).contains("UNVME000002000"));

    // The slot is there for this machine by its own name as well.
    assert_eq!(home.run(&["read", DEVICE, "-s", "8", "-z", "2M"]).stdout, data);
    home.run(&["serve", DEVICE]).fails_with(3, &["in use by process"]);

    home.ok(&["kv", "store", "--force", &pairs, "user:1", "Ada"]);
    let value = pattern(5, 3 << 20);
    let file = home.file("value", &value);
    home.ok(&["kv", "store", "--force", &pairs, "large", "--file", &file]);
    // The vendor's commands: another keyspace.
    home.ok(&["kv", "store", "--force", &pairs, "user:1", "Grace", "--keyspace", "1"]);
    let long = "a key of more than sixteen bytes";
    home.ok(&["kv", "store", "--force", &pairs, long, "value"]);
    assert_eq!(home.run(&["kv", "retrieve", &pairs, long]).stdout, b"value");
    assert_eq!(home.run(&["kv", "retrieve", &pairs, "user:1"]).stdout, b"Ada");
    assert_eq!(home.run(&["kv", "retrieve", &pairs, "large"]).stdout, value);
    assert_eq!(home.run(&["kv", "retrieve", &pairs, "user:1", "--keyspace", "1"]).stdout, b"Grace");
    assert_eq!(home.ok(&["kv", "list", &pairs, "--prefix", "user:"]), "user:1\n");

    let table = home.ok(&["discover", address_of(&blocks)]);
    assert!(table.contains(&blocks) && table.contains(&pairs), "{table}");
    let found = home.json(&["discover", address_of(&blocks)]);
    let names: Vec<_> =
        found["records"].as_array().expect("a list").iter().map(|r| r["name"].clone()).collect();
    assert!(names.contains(&blocks.as_str().into()) && names.contains(&pairs.as_str().into()), "{found}");
    assert_eq!(found["records"][0]["trtype"], "tcp");

    // A target with its address in fabrics.json is listed with the others.
    let known = format!(r#"{{"targets": [{{"nqn": "{NQN}", "address": "{}"}}]}}"#, address_of(&blocks));
    private(&home, "unvme/fabrics.json", &known);
    let listed = home.json(&["list"]);
    let paths: Vec<_> =
        listed["Devices"].as_array().expect("a list").iter().map(|d| d["DevicePath"].clone()).collect();
    assert!(paths.contains(&blocks.as_str().into()) && paths.contains(&DEVICE.into()), "{listed}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_slot_that_was_served_has_what_was_written_and_a_killed_server_is_taken_up_again() {
    let home = Home::with_device();
    let server = home.serve(&["--tcp", "0", "--nqn", NQN, DEVICE]);
    let name = name_of(&server);
    let port = address_of(&name).rsplit_once(':').expect("a port").1.to_owned();
    home.ok_with(&["write", &name, "-f", "--force"], &[9; 4096]);

    // Reads are sent again, so their client does not notice; writes may have been executed, so theirs is
    // told.
    let reading = format!("{name},reconnect=30");
    let mut reader = home
        .command(&["perf", "-r", &reading, "-w", "randread", "-q", "8", "-o", "4096", "-t", "15"])
        .stdout(Stdio::null())
        .spawn()
        .expect("start");
    let mut writer = home
        .command(&["write", &reading, "-s", "64", "-z", "8M", "--force"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("start");
    let mut input = writer.stdin.take().expect("piped");
    std::io::Write::write_all(&mut input, &pattern(7, 4 << 20)).expect("write");
    std::thread::sleep(Duration::from_millis(1000));
    server.kill();
    let server = home.serve(&["--tcp", &port, "--nqn", NQN, DEVICE]);
    // It may have ended already.
    let _ = std::io::Write::write_all(&mut input, &pattern(8, 4 << 20));
    drop(input);
    assert!(matches!(wait(&mut writer), 0 | 1 | 4));
    assert_eq!(wait(&mut reader), 0);
    assert_eq!(
        home.run(&["read", &name, "-z", "4096"]).stdout,
        [9; 4096],
        "what was written before is there"
    );
    assert_eq!(server.terminate(), 0);
    assert_eq!(home.run(&["read", DEVICE, "-z", "4096"]).stdout, [9; 4096]);
}

/// A measurement of a target that is killed meanwhile, with its standard error.
fn measure_a_killed_target(time: &str) -> (Home, std::process::Child, BufReader<std::process::ChildStderr>) {
    let home = Home::with_device();
    let server = home.serve(&["--tcp", "0", "--nqn", NQN, DEVICE]);
    // The target does not come back, however long it is waited for.
    let name = format!("{},reconnect=86400", name_of(&server));
    let mut perf = home
        .command(&["perf", "-r", &name, "-w", "randread", "-q", "4", "--warmup", "0", "-t", time])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    wait_busy(&perf);
    server.kill();
    let mut stderr = BufReader::new(perf.stderr.take().expect("piped"));
    let mut said = String::new();
    while !said.contains("reconnecting") {
        said.clear();
        assert_ne!(stderr.read_line(&mut said).expect("read"), 0, "it ended and did not say why");
    }
    let (_, address) = name.split_once("tcp:").expect("a name");
    let (address, _) = address.split_once('/').expect("an address");
    assert!(said.starts_with(&format!("unvme: note: reconnecting to {address}: ")), "{said}");
    (home, perf, stderr)
}

/// It ends with what it has measured.
fn ends_with_results(mut perf: std::process::Child, is_early: bool) {
    let code = wait(&mut perf);
    let mut text = String::new();
    perf.stdout.take().expect("piped").read_to_string(&mut text).expect("read");
    // Commands that were on their way have failed, if there were any.
    assert!(matches!((code, is_early), (0, false) | (130, true) | (1, _)), "{code}: {text}");
    assert!(text.contains("IOPS"), "{text}");
    assert_eq!(text.contains("Stopped early."), is_early, "{text}");
}

#[test]
fn a_lost_target_is_named_and_ctrl_c_ends_waiting_for_it() {
    let (_home, perf, _stderr) = measure_a_killed_target("600");
    let sent = std::process::Command::new("kill").args(["-INT", &perf.id().to_string()]).status();
    assert!(sent.expect("kill").success());
    ends_with_results(perf, true);
}

#[test]
fn a_measurement_ends_in_time_whether_or_not_its_target_is_there() {
    let (_home, perf, _stderr) = measure_a_killed_target("8");
    ends_with_results(perf, false);
}

#[test]
fn sigterm_ends_a_server_under_load_and_what_it_acknowledged_is_there() {
    let home = Home::with_device();
    let server = home.serve(&["--tcp", "0", "--nqn", NQN, DEVICE]);
    let name = format!("{},reconnect=0", name_of(&server));
    let mut load = home
        .command(&["perf", "-r", &name, "-w", "randwrite", "-q", "16", "-o", "4096", "-t", "30", "--force"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("start");
    std::thread::sleep(Duration::from_millis(1500));
    let asked = Instant::now();
    assert_eq!(server.terminate(), 0);
    assert!(asked.elapsed() < Duration::from_secs(60), "{:?}", asked.elapsed());
    assert_ne!(wait(&mut load), 0, "its device is gone");
    home.ok(&["device", "check", DEVICE]);
}

#[test]
fn only_listed_hosts_enter() {
    let home = Home::new();
    let server = home.serve(&[
        "--tcp",
        "0",
        "--nqn",
        NQN,
        "--allow-host",
        "nqn.2024-01.io.example:other",
        "mem:block:16M",
    ]);
    let name = name_of(&server);
    let me = host_nqn(&home);
    home.run(&["id-ctrl", &name]).fails_with(4, &[&name, NQN, &me]);
    assert!(!home.ok(&["discover", address_of(&name)]).contains(NQN), "discovery does not tell of it either");
    drop(server);
    let server = home.serve(&["--tcp", "0", "--nqn", NQN, "--allow-host", &me, "mem:block:16M"]);
    home.ok(&["id-ctrl", &name_of(&server)]);
}

#[test]
fn hosts_prove_that_they_know_their_key_and_targets_theirs() {
    let home = Home::new();
    for key in ["host.key", "target.key", "wrong.key"] {
        home.ok(&["key", "generate", "dhchap", "--out", key]);
    }
    let me = host_nqn(&home);
    let access = format!(
        r#"{{"hosts": [{{"nqn": "{me}", "dhchap_key": "host.key", "dhchap_controller_key": "target.key"}}]}}"#
    );
    let access = private(&home, "access.json", &access);
    let server = home.serve(&["--tcp", "0", "--nqn", NQN, "--access", &access, "mem:block:16M"]);
    let name = name_of(&server);
    let know = |keys: &str| {
        private(&home, "unvme/fabrics.json", &format!(r#"{{"targets": [{{"nqn": "{NQN}", {keys}}}]}}"#));
    };
    home.run(&["id-ctrl", &name]).fails_with(4, &[&name]);
    know(r#""dhchap_key": "../host.key""#);
    home.ok(&["id-ctrl", &name]);
    know(r#""dhchap_key": "../host.key", "dhchap_controller_key": "../target.key""#);
    home.ok_with(&["write", &name, "--force"], &[1; 4096]);
    assert_eq!(home.run(&["read", &name, "-z", "4096"]).stdout, [1; 4096]);
    know(r#""dhchap_key": "../wrong.key""#);
    home.run(&["id-ctrl", &name]).fails_with(4, &[&name]);
    know(r#""dhchap_key": "../host.key", "dhchap_controller_key": "../wrong.key""#);
    home.run(&["id-ctrl", &name]).fails_with(4, &[&name]);

    // Neither file may be for all to read.
    fs::set_permissions(home.path("unvme/fabrics.json"), Permissions::from_mode(0o644)).expect("mode");
    home.run(&["id-ctrl", &name]).fails_with(4, &["fabrics.json: others can read", "chmod 600 "]);
    fs::set_permissions(&access, Permissions::from_mode(0o640)).expect("mode");
    home.run(&["serve", "--tcp", "0", "--access", &access, "mem:block:16M"])
        .fails_with(4, &["access.json: others can read", "mode 640", "chmod 600 "]);
}

#[test]
fn a_key_in_place_of_a_file_is_not_repeated_and_a_subsystem_that_is_not_served_is_refused() {
    let home = Home::new();
    for key in ["DHHC-1:00:c2VjcmV0:", "NVMeTLSkey-1:01:c2VjcmV0:"] {
        let refused = home.run(&["serve", "--tcp", "0", "--access", key, "mem:block:16M"]);
        refused.fails_with(2, &["a key was given where the path of a file is expected"]);
        assert!(!refused.stderr.contains("c2VjcmV0"), "{}", refused.stderr);
    }
    let access = r#"{"hosts": [{"nqn": "nqn.host", "subsystems": ["nqn.2014-08.org.example:sdd"]}]}"#;
    let access = private(&home, "access.json", access);
    home.run(&["serve", "--tcp", "0", "--nqn", NQN, "--access", &access, "mem:block:16M"])
        .fails_with(2, &["nqn.host", "nqn.2014-08.org.example:sdd, which is not served", NQN]);
}

#[test]
fn with_a_tls_key_everything_is_encrypted_and_nobody_enters_without() {
    let home = Home::new();
    home.ok(&["key", "generate", "tls", "--out", "tls.key"]);
    let me = host_nqn(&home);
    let access = format!(r#"{{"hosts": [{{"nqn": "{me}", "tls_key": "tls.key"}}]}}"#);
    let access = private(&home, "access.json", &access);
    let server = home.serve(&["--tcp", "0", "--nqn", NQN, "--access", &access, "mem:block:16M"]);
    let name = name_of(&server);
    home.run(&["id-ctrl", &format!("{name},reconnect=0")]).fails_with(4, &[&name]);
    // A subsystem's keys are its own, wherever an entry says that it is; discovery is asked by those of a
    // subsystem there.
    let known = |address: &str| {
        format!(r#"{{"targets": [{{"nqn": "{NQN}", "address": "{address}", "tls_key": "../tls.key"}}]}}"#)
    };
    private(&home, "unvme/fabrics.json", &known(address_of(&name)));
    for at in [name.clone(), name.replace("127.0.0.1", "localhost")] {
        home.ok(&["id-ctrl", &at]);
        assert!(home.ok(&["discover", address_of(&at)]).contains("tls13"), "{at}");
    }
    private(&home, "unvme/fabrics.json", &known("10.0.0.1:4420"));
    home.ok(&["id-ctrl", &name]);
    private(&home, "unvme/fabrics.json", &known(address_of(&name)));
    let data = pattern(11, 1 << 20);
    for name in [name.clone(), format!("{name},hdgst,ddgst")] {
        home.ok_with(&["write", &name, "--force"], &data);
        assert_eq!(home.run(&["read", &name, "-z", "1M"]).stdout, data);
    }
    assert!(home.ok(&["discover", address_of(&name)]).contains("tls13"));
}

#[test]
fn a_tls_key_of_sha_384_opens_a_subsystem_as_others_do() {
    let home = Home::new();
    home.ok(&["key", "generate", "tls", "--hash", "sha384", "--out", "tls.key"]);
    home.ok(&["key", "generate", "tls", "--hash", "sha384", "--out", "other.key"]);
    let me = host_nqn(&home);
    let access = format!(r#"{{"hosts": [{{"nqn": "{me}", "tls_key": "tls.key"}}]}}"#);
    let access = private(&home, "access.json", &access);
    let server = home.serve(&["--tcp", "0", "--nqn", NQN, "--access", &access, "mem:block:16M"]);
    let name = name_of(&server);
    for (key, enters) in [("tls.key", true), ("other.key", false)] {
        let known = format!(r#"{{"targets": [{{"nqn": "{NQN}", "tls_key": "../{key}"}}]}}"#);
        private(&home, "unvme/fabrics.json", &known);
        let done = home.run(&["id-ctrl", &format!("{name},reconnect=0")]);
        assert_eq!(done.code == 0, enters, "{key}: {}", done.stderr);
    }
}

#[test]
fn a_key_value_namespace_is_shown_by_its_capacity_when_that_is_asked_for() {
    let home = Home::new();
    for (options, is_shown) in [(&[][..], false), (&["--kv-ncap"], true)] {
        let arguments = [&["--tcp", "0", "--nqn", NQN], options, &["mem:kv:16M"]].concat();
        let server = home.serve(&arguments);
        let name = name_of(&server);
        let page = home.json(&["id-ns", &name, "-n", "1", "--csi", "0"]);
        let ncap = page["ncap"].as_u64().expect("a number");
        let bytes = home.json(&["id-ns", &name, "-n", "1"])["nsze"].as_u64().expect("a number");
        assert!(bytes > 1 << 20, "{bytes}");
        assert_eq!(ncap, if is_shown { bytes / 512 } else { 0 });
        // Its command set is what it was.
        home.ok(&["kv", "store", "--force", &name, "user:1", "Ada"]);
        assert_eq!(home.ok(&["kv", "retrieve", &name, "user:1"]).trim_end(), "Ada");
    }
}

#[test]
fn referrals_are_followed_once_each() {
    let home = Home::new();
    let second = home.serve(&["--tcp", "0", "--nqn", "nqn.2024-01.io.example:second", "mem:kv:16M"]);
    let second_name = name_of(&second);
    let first = home.serve(&[
        "--tcp",
        "0",
        "--nqn",
        NQN,
        "--referral",
        address_of(&second_name),
        "--referral",
        "127.0.0.1:1",
        "mem:block:16M",
    ]);
    let first_name = name_of(&first);
    let done = home.run(&["discover", address_of(&first_name)]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let table = done.text();
    assert!(table.contains(&first_name) && table.contains(&second_name), "{table}");
    assert!(
        done.stderr.contains("discover 127.0.0.1:1"),
        "what could not be asked is named: {}",
        done.stderr
    );
}

#[test]
fn one_device_is_reached_at_two_ports_with_their_states() {
    let home = Home::new();
    let server = home.serve(&["--tcp", "0", "--tcp", "[::1]:0", "--nqn", NQN, "mem:block:16M"]);
    let name = name_of(&server);
    let found = home.json(&["discover", address_of(&name)]);
    let other = found["records"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|r| r["traddr"] == "::1" && !r["name"].is_null());
    let other = other.and_then(|r| r["name"].as_str()).expect("the other port").to_owned();
    home.ok_with(&["write", &name, "--force"], &[4; 512]);
    assert_eq!(home.run(&["read", &other]).stdout, [4; 512]);
    home.run(&["serve", "--tcp", "4420", "--ana", "4421=lost", "mem:block:16M"])
        .fails_with(2, &["--ana 4421: there is no --tcp with this port"]);
}

#[test]
fn a_device_is_not_offered_to_the_world_by_oversight() {
    let home = Home::new();
    for address in ["0.0.0.0:0", "[::]:0"] {
        home.run(&["serve", "--tcp", address, "mem:block:16M"]).fails_with(
            2,
            &["is reached from other machines", "--allow-host NQN", "--access FILE", "--allow-any-host"],
        );
    }
    let server = home.serve(&["--tcp", "0.0.0.0:0", "--allow-any-host", "--nqn", NQN, "mem:block:16M"]);
    let name = name_of(&server).replace("0.0.0.0", "127.0.0.1");
    home.ok(&["id-ctrl", &name]);
    // Discovery tells of the address that was asked, not of one that nobody can connect to.
    assert!(home.ok(&["discover", address_of(&name)]).contains(&name));
}

#[test]
fn what_cannot_be_served_over_tcp_is_refused() {
    let home = Home::with_device();
    for (args, part) in [
        (&["--tcp", "nowhere at all", DEVICE][..], "expected an address and a port such as 10.0.0.1:4420"),
        (&["--tcp", "4420", "--socket", "s", DEVICE], "cannot be used with"),
        (&["--nqn", NQN, DEVICE], "--tcp <ADDR:PORT>"),
        (&["--tcp", "4420", "--threads", "0", DEVICE], "0 is not in 1..=64"),
        (&["--tcp", "4420", "--allow-any-host", "--allow-host", NQN, DEVICE], "cannot be used with"),
        (
            &["--tcp", "4420", "--ana", "4420=good", DEVICE],
            "expected optimized, non-optimized, inaccessible or lost",
        ),
    ] {
        home.run(&[&["serve"], args].concat()).fails_with_usage(part);
    }
    for (args, code, part) in [
        (&["mem:block:16M", "mem:kv:16M"][..], 2, "one device, on one core, unless --tcp"),
        (&["--tcp", "0", "--nqn", "ssd", DEVICE], 2, "`ssd` is no NQN"),
        (&["--tcp", "0", "--nqn", NQN, DEVICE, "mem:kv:16M"], 2, "1 NQNs for 2 devices"),
        (&["--tcp", "0", "--nqn", NQN, "--nqn", NQN, DEVICE, "mem:kv:16M"], 2, "would both be"),
        (&["--tcp", "0", "--allow-host", "me", DEVICE], 2, "`me` is no NQN"),
        (&["--tcp", "0", "--memory", "1M", DEVICE], 2, "at least 16M is expected"),
        (&["--tcp", "0", "--core", "9999", DEVICE], 2, "core 9999: cores are numbered 0 to "),
        (&["--tcp", "0", "--threads", "1", "--core", "0,1", DEVICE], 2, "more cores (2) than threads (1)"),
        (&["--tcp", "0", "--access", "none", DEVICE], 4, "open none"),
        (&["--tcp", "192.0.2.1:4420", "--allow-any-host", DEVICE], 4, "listen on 192.0.2.1:4420"),
        (&["--tcp", "0", "vfio-user:s"], 2, "only virtual devices can be served"),
        (&["--tcp", "0", "09:00.0"], 3, "no such device"),
    ] {
        home.run(&[&["serve"], args].concat()).fails_with(code, &[part]);
    }
    home.ok(&["id-ctrl", DEVICE]);
}

#[test]
fn a_target_that_is_not_there_is_told_in_time() {
    let home = Home::new();
    let started = Instant::now();
    home.run(&["id-ctrl", &format!("tcp:127.0.0.1:1/{NQN}")])
        .fails_with(4, &["open tcp:127.0.0.1:1/", "127.0.0.1:1"]);
    let server = home.serve(&["--tcp", "0", "--nqn", NQN, "mem:block:16M"]);
    let other = name_of(&server).replace(NQN, "nqn.2024-01.io.example:other");
    let done = home.run(&["id-ctrl", &other]);
    assert!(
        matches!(done.code, 1 | 4) && done.stderr.contains("nqn.2024-01.io.example:other"),
        "{}",
        done.stderr
    );
    home.run(&["write", &name_of(&server)]).fails_with(5, &["not confirmed", "--force"]);
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn keys_are_made_and_checked_and_never_typed() {
    let home = Home::new();
    for (kind, hash, prefix) in [
        ("dhchap", "none", "DHHC-1:00:"),
        ("dhchap", "sha256", "DHHC-1:01:"),
        ("dhchap", "sha384", "DHHC-1:02:"),
        ("dhchap", "sha512", "DHHC-1:03:"),
        ("tls", "sha256", "NVMeTLSkey-1:01:"),
        ("tls", "sha384", "NVMeTLSkey-1:02:"),
        ("tls", "none", "NVMeTLSkey-1:0:"),
    ] {
        let key = home.ok(&["key", "generate", kind, "--hash", hash]);
        assert!(key.starts_with(prefix) || (hash, kind) == ("none", "tls"), "{key}");
        let checked = home.ok_with(&["key", "check", "-"], key.as_bytes());
        assert_eq!(checked, format!("a {kind} key, hash {hash}; its checksum is right\n"));
    }
    home.ok(&["key", "generate", "tls", "--out", "k"]);
    assert_eq!(fs::metadata(home.path("k")).expect("made").permissions().mode() & 0o777, 0o600);
    home.run(&["key", "generate", "tls", "--out", "k"]).fails_with(4, &["create k", "File exists"]);
    assert_eq!(home.json(&["key", "check", "k"])["kind"], "tls");
    // The key alone, without a line end; read with whatever an editor leaves around it.
    let key = fs::read_to_string(home.path("k")).expect("text");
    assert!(key.starts_with("NVMeTLSkey-1:01:") && key.ends_with(':'), "the length of {}", key.len());
    for text in [format!("{key}\n"), format!("{key}\r\n"), format!(" {key} \t\r\n\n"), key.clone()] {
        private(&home, "edited", &text);
        assert_eq!(home.json(&["key", "check", "edited"])["kind"], "tls", "{:?}", &text[key.len()..]);
    }
    home.run(&["key", "generate", "tls", "--hash", "sha512"]).fails_with(2, &["sha256, sha384 or none"]);
    // One character of the key is another: the checksum tells. The key is not repeated.
    let wrong =
        home.run_with(&["key", "check", "-"], b"DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaS:");
    wrong.fails_with(2, &[]);
    assert!(!wrong.stderr.contains("AAECAwQ"), "{}", wrong.stderr);
    let typed = home.run(&["key", "check", "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"]);
    typed.fails_with(2, &["not the name of a file"]);
    assert!(!typed.stderr.contains("AAECAwQ"), "{}", typed.stderr);
}
