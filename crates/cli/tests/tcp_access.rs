//! Who may enter a server of the network, while it runs: rules that change, refusals that are told, devices
//! that go.

mod home;
mod network;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use home::{DEVICE, Home, Server, becomes, wait};
use network::{address_of, host_nqn, name_of, private};

const NQN: &str = "nqn.2024-01.io.example:ssd";
const OTHER_NQN: &str = "nqn.2024-01.io.example:other";
/// NQN of another host than this one.
const OTHER_HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
const LOG: &str = "serve.log";
/// Level of what is logged: what the program does by itself.
const DEFAULT: &str = "";

/// A second host: another name, and keys of its own.
fn other_host(home: &Home) -> Home {
    let other = Home::new();
    private(&other, "unvme/hostnqn", OTHER_HOST);
    private(
        &other,
        "unvme/fabrics.json",
        &fs::read_to_string(home.path("unvme/fabrics.json")).expect("keys"),
    );
    other
}

/// What the server has logged so far.
fn log(home: &Home) -> String {
    fs::read_to_string(home.path(LOG)).expect("a log")
}

#[track_caller]
fn logs(home: &Home, text: &str) {
    assert!(becomes(|| log(home).contains(text)), "`{text}` is not in: {}", log(home));
}

/// The server reads its rules again, and says `text` when it has.
#[track_caller]
fn hup(home: &Home, server: &Server, text: &str) {
    let before = log(home).matches(text).count();
    server.signal("HUP");
    assert!(becomes(|| log(home).matches(text).count() > before), "{}", log(home));
}

const DONE: &str = "who may enter has been read again";
const KEPT: &str = "who may enter stays as it was";

/// A host that reads until its device is gone, and that the server of `home` knows of.
fn connected_reader(home: &Home, host: &Home, name: &str) -> Child {
    let connected = || log(home).matches("a host has connected").count();
    let before = connected();
    let args = ["perf", "-r", name, "-w", "randread", "-q", "1", "-o", "4096", "-t", "600", "--warmup", "0"];
    let mut command = host.command(&args);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("start");
    assert!(becomes(|| connected() > before), "{}", log(home));
    child
}

#[test]
fn rules_that_are_read_again_disconnect_whom_they_do_not_let_in_and_nobody_else() {
    let home = Home::with_device();
    for key in ["a.key", "b.key"] {
        home.ok(&["key", "generate", "dhchap", "--out", key]);
    }
    let me = host_nqn(&home);
    private(
        &home,
        "unvme/fabrics.json",
        &format!(r#"{{"targets": [{{"nqn": "{NQN}", "dhchap_key": "{}"}}]}}"#, home.path("a.key").display()),
    );
    let other = other_host(&home);
    let both = |mine: &str| {
        let them = format!(r#"{{"nqn": "{OTHER_HOST}", "dhchap_key": "a.key"}}"#);
        let me = if mine.is_empty() { String::new() } else { format!(r#", {{"nqn": "{me}", {mine}}}"#) };
        private(&home, "hosts.json", &format!(r#"{{"hosts": [{them}{me}]}}"#))
    };
    let access = both(r#""dhchap_key": "a.key""#);
    let args = ["--tcp", "0", "--nqn", NQN, "--nqn", OTHER_NQN, "--access", &access, DEVICE, "mem:block:16M"];
    let server = home.serve_logged(&args, LOG, "info");
    let name = format!("{},reconnect=0", name_of(&server));
    home.ok(&["id-ctrl", &name]);
    let mut stays = connected_reader(&home, &other, &name);
    for revoked in [
        r#""dhchap_key": "b.key""#,
        r#""dhchap_key": "a.key", "subsystems": ["nqn.2024-01.io.example:other"]"#,
        "",
    ] {
        both(r#""dhchap_key": "a.key""#);
        hup(&home, &server, DONE);
        let mut goes = connected_reader(&home, &home, &name);
        for wrong in
            ["{", r#"{"hosts": []}"#, r#"{"hosts": [{"nqn": "nqn.a", "subsystems": ["nqn.not.served"]}]}"#]
        {
            private(&home, "hosts.json", wrong);
            hup(&home, &server, KEPT);
            assert!(goes.try_wait().expect("wait").is_none(), "{wrong}: {}", log(&home));
        }
        home.ok(&["id-ctrl", &name]);
        let gone = || {
            let log = log(&home);
            let lines = log.lines().filter(|line| line.contains("a host is disconnected"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let before = gone().len();
        both(revoked);
        hup(&home, &server, DONE);
        let gone = gone();
        assert!(gone.len() > before, "{revoked}: {gone:?}");
        assert!(gone.iter().all(|line| line.contains(&me)), "{revoked}: {gone:?}");
        assert_ne!(wait(&mut goes), 0, "{revoked}: its device is gone");
        assert_eq!(home.run(&["id-ctrl", &name]).code, 4, "{revoked}");
        assert!(stays.try_wait().expect("wait").is_none(), "{revoked}");
    }
    stays.kill().expect("kill");
    stays.wait().expect("wait");
    assert!(!log(&home).contains("DHHC"), "{}", log(&home));
    assert_eq!(server.terminate(), 0);
}

#[test]
fn every_refusal_is_told_with_the_name_and_the_reason_and_a_flood_of_them_by_number() {
    let home = Home::new();
    home.ok(&["key", "generate", "dhchap", "--out", "host.key"]);
    home.ok(&["key", "generate", "dhchap", "--out", "wrong.key"]);
    let me = host_nqn(&home);
    let access = |host: &str, key: &str| {
        private(&home, "hosts.json", &format!(r#"{{"hosts": [{{"nqn": "{host}"{key}}}]}}"#))
    };
    let path = access(OTHER_HOST, "");
    let server = home.serve_logged(
        &["--tcp", "0", "--nqn", NQN, "--access", &path, "--max-connections", "64", "mem:block:16M"],
        LOG,
        DEFAULT,
    );
    let name = format!("{},reconnect=0", name_of(&server));
    let refused = |name: &str, why: &str| {
        assert_eq!(home.run(&["id-ctrl", name]).code, 4);
        logs(&home, why);
        let line = log(&home).lines().find(|line| line.contains(why)).expect("just seen").to_owned();
        assert!(
            line.contains(" WARN ") && line.contains("peer=\"127.0.0.1:") && line.contains(&me),
            "{line}"
        );
    };
    refused(&name, "it is not among the hosts that may enter");
    refused(&name.replace(NQN, "nqn.no"), "there is no such subsystem here");
    access(&me, r#", "dhchap_key": "host.key""#);
    hup(&home, &server, DONE);
    refused(&name, "it has to authenticate, and has gone without");
    private(
        &home,
        "unvme/fabrics.json",
        &format!(r#"{{"targets": [{{"nqn": "{NQN}", "dhchap_key": "../wrong.key"}}]}}"#),
    );
    refused(&name, "it did not authenticate");
    // What is no NVMe/TCP at all.
    let junk = || {
        let mut socket = TcpStream::connect(address_of(&name)).expect("connect");
        socket.write_all(&[0x47; 128]).expect("sent");
        // It is told so, and then hung up on when it has gone.
        let mut told = [0; 1];
        socket.read_exact(&mut told).expect("a Terminate Request");
    };
    junk();
    logs(&home, "refused: terminated: Invalid PDU Header Field");
    let lines = log(&home).matches("refused").count();
    (0..50).for_each(|_| junk());
    assert_eq!(server.terminate(), 0);
    let log = log(&home);
    assert!(log.matches("refused").count() <= lines + 8, "{log}");
    let left_out: Vec<u32> = log
        .lines()
        .filter_map(|line| line.split_once(" more refusals")?.0.split_whitespace().last()?.parse().ok())
        .collect();
    let told = log.matches("refused").count() - lines;
    assert_eq!(left_out.iter().sum::<u32>() as usize + told, 50, "{log}");
}

#[test]
fn who_comes_by_tls_where_it_is_not_spoken_or_without_where_it_is_is_told_so() {
    let home = Home::new();
    home.ok(&["key", "generate", "tls", "--out", "tls.key"]);
    let me = host_nqn(&home);
    let access =
        private(&home, "hosts.json", &format!(r#"{{"hosts": [{{"nqn": "{me}", "tls_key": "tls.key"}}]}}"#));
    let known = format!(r#"{{"targets": [{{"nqn": "{NQN}", "tls_key": "../tls.key"}}]}}"#);
    let server =
        home.serve_logged(&["--tcp", "0", "--nqn", NQN, "--access", &access, "mem:block:16M"], LOG, DEFAULT);
    let name = format!("{},reconnect=0", name_of(&server));
    home.run(&["id-ctrl", &name]).fails_with(4, &["it speaks TLS, and this connection is without"]);
    logs(&home, "refused: it came without TLS, and all hosts have TLS keys here");
    private(&home, "unvme/fabrics.json", &known);
    home.ok(&["id-ctrl", &name]);
    home.ok(&["key", "generate", "tls", "--out", "other.key"]);
    private(&home, "unvme/fabrics.json", &known.replace("tls.key", "other.key"));
    home.run(&["id-ctrl", &name]).fails_with(4, &["it speaks TLS and does not take the key of this host"]);
    logs(&home, "refused: TLS");
    assert_eq!(server.terminate(), 0);

    private(&home, "unvme/fabrics.json", &known);
    let server = home.serve_logged(&["--tcp", "0", "--nqn", NQN, "mem:block:16M"], LOG, DEFAULT);
    let name = format!("{},reconnect=0", name_of(&server));
    home.run(&["id-ctrl", &name]).fails_with(4, &["it answered without TLS"]);
    logs(&home, "refused: it wants TLS, and no host has a TLS key here");

    // Targets of other kinds only hang up.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = silent.local_addr().expect("bound");
    std::thread::spawn(move || {
        silent.incoming().for_each(|socket| {
            let mut greeting = [0; 4096];
            assert!(socket.expect("a host").read(&mut greeting).expect("a greeting") > 0);
        })
    });
    let name = format!("tcp:{at}/{NQN},reconnect=0");
    home.run(&["id-ctrl", &name])
        .fails_with(4, &["closed the connection without an answer: it may not speak TLS"]);
    private(&home, "unvme/fabrics.json", r#"{"targets": []}"#);
    home.run(&["id-ctrl", &name])
        .fails_with(4, &["closed the connection without an answer: it may let nobody in without TLS"]);
}

#[test]
fn a_device_that_is_unplugged_ends_its_subsystem_and_the_last_one_the_server() {
    const SECOND: &str = "0000:03:00.0";
    let home = Home::with_device();
    home.ok(&["device", "create", SECOND, "--size", "64M"]);
    let server =
        home.serve_logged(&["--tcp", "0", "--nqn", NQN, "--nqn", OTHER_NQN, DEVICE, SECOND], LOG, "info");
    let name = format!("{},reconnect=0", name_of(&server));
    let other = name.replace(NQN, OTHER_NQN);
    home.ok_with(&["write", &other, "--force"], &[5; 4096]);
    let mut goes = connected_reader(&home, &home, &other);
    let mut stays = connected_reader(&home, &home, &name);
    home.ok(&["device", "unplug", SECOND]);
    assert_ne!(wait(&mut goes), 0);
    logs(&home, "unplugged, and served no more");
    assert!(!home.ok(&["discover", address_of(&name)]).contains(OTHER_NQN));
    assert_ne!(home.run(&["id-ctrl", &other]).code, 0);
    // The slot is anybody's who plugs it again.
    home.ok(&["device", "plug", SECOND]);
    assert_eq!(home.run(&["read", SECOND, "-z", "4096"]).stdout, [5; 4096]);
    home.ok_with(&["write", &name, "--force"], &[6; 4096]);
    assert!(stays.try_wait().expect("wait").is_none(), "the other host has noticed nothing");
    home.ok(&["device", "unplug", DEVICE]);
    assert_ne!(wait(&mut stays), 0);
    assert_eq!(server.ended(), 6, "nothing is left to serve");
    logs(&home, "0000:02:00.0 is unplugged; plug it with: unvme device plug 0000:02:00.0");
}

/// The bytes of a key in its text form, `DHHC-1:01:BASE64:`, without the checksum.
fn key_bytes(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let encoded = text.trim().split(':').nth(2).expect("base64").trim_end_matches('=');
    let digit = |c: u8| DIGITS.iter().position(|it| *it == c).expect("a digit") as u32;
    let mut bytes = Vec::new();
    for four in encoded.as_bytes().chunks(4) {
        let bits = four.iter().fold(0, |bits, c| bits << 6 | digit(*c)) << (6 * (4 - four.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..four.len()]);
    }
    bytes.truncate(bytes.len() - 4);
    bytes
}

/// Starts a program that may leave a core dump in its folder.
fn with_core_dumps(home: &Home, args: &[&str]) -> Child {
    let plain = home.command(args);
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", "ulimit -c unlimited; exec \"$0\" \"$@\""])
        .arg(plain.get_program())
        .args(plain.get_args());
    command.env_clear().current_dir(plain.get_current_dir().expect("a folder"));
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdout(Stdio::null()).stderr(File::create(home.path("core.log")).expect("create"));
    command.spawn().expect("start")
}

/// The core dump that a process leaves when it aborts; `None` when it leaves none.
fn core_of(home: &Home, mut process: Child) -> Option<Vec<u8>> {
    let status = std::process::Command::new("kill").args(["-s", "ABRT", &process.id().to_string()]).status();
    assert!(status.expect("kill").success());
    assert_eq!(wait(&mut process), -1, "a signal has ended it");
    let is_core = |name: &str| name.starts_with("core") && name != "core.log";
    let entries = fs::read_dir(home.path("")).expect("a folder").map(|entry| entry.expect("an entry"));
    let found = entries.into_iter().find(|entry| entry.file_name().to_str().is_some_and(is_core))?;
    let core = fs::read(found.path()).expect("a core dump");
    fs::remove_file(found.path()).expect("removed");
    Some(core)
}

#[test]
fn no_key_is_in_a_core_dump() {
    let home = Home::new();
    for key in ["host.key", "target.key"] {
        home.ok(&["key", "generate", "dhchap", "--out", key]);
    }
    let keys = ["host.key", "target.key"].map(|key| fs::read_to_string(home.path(key)).expect("a key"));
    let me = host_nqn(&home);
    // One in the file, one in a file of its own.
    let both = format!(r#""dhchap_key": "{}", "dhchap_controller_key": "#, keys[0].trim());
    let access = format!(r#"{{"hosts": [{{"nqn": "{me}", {both} "target.key"}}]}}"#);
    let access = private(&home, "hosts.json", &access);
    private(
        &home,
        "unvme/fabrics.json",
        &format!(r#"{{"targets": [{{"nqn": "{NQN}", {both} "../target.key"}}]}}"#),
    );
    let has = |core: &[u8], bytes: &[u8]| core.windows(bytes.len()).any(|window| window == bytes);

    let server =
        home.serve_logged(&["--tcp", "0", "--nqn", NQN, "--access", &access, "mem:block:16M"], LOG, "info");
    let name = format!("{},reconnect=0", name_of(&server));
    let host = with_core_dumps(
        &home,
        &["perf", "-r", &name, "-w", "randread", "-q", "1", "-o", "4096", "-t", "600", "--warmup", "0"],
    );
    // It has authenticated, and reads: what is done with a key for moments is done.
    let reads =
        || -> Option<u64> { home.json(&["smart-log", &name])["host_read_commands"].as_str()?.parse().ok() };
    assert!(becomes(|| reads().is_some_and(|reads| reads > 1000)), "{:?}", reads());
    let Some(core) = core_of(&home, host) else {
        // The machine gives core dumps to a program of its own, or makes none.
        return;
    };
    assert!(has(&core, NQN.as_bytes()), "it is a dump of the memory");
    for key in &keys {
        let bytes = key_bytes(key);
        let text = key.split(':').nth(2).expect("base64").as_bytes();
        for at in [0, 16] {
            assert!(!has(&core, &bytes[at..at + 16]), "a key is in the core dump");
            assert!(!has(&core, &text[at..at + 16]), "the text of a key is in the core dump");
        }
    }
    assert_eq!(server.terminate(), 0);

    // A server that has the keys of others leaves none at all.
    let port = address_of(&name).rsplit_once(':').expect("a port").1;
    let serve = ["serve", "--tcp", port, "--nqn", NQN, "--access", &access, "mem:block:16M"];
    let server = with_core_dumps(&home, &serve);
    assert!(becomes(|| home.run(&["id-ctrl", &name]).code == 0));
    assert!(core_of(&home, server).is_none(), "a server with keys");
    let server = with_core_dumps(&home, &["serve", "--tcp", port, "--nqn", NQN, "mem:block:16M"]);
    assert!(becomes(|| TcpStream::connect(address_of(&name)).is_ok()));
    assert!(core_of(&home, server).is_some(), "a server without");
}

#[test]
fn discovery_shows_what_asks_for_a_key_to_whoever_has_proven_to_have_it() {
    let home = Home::new();
    home.ok(&["key", "generate", "dhchap", "--out", "host.key"]);
    let me = host_nqn(&home);
    let access = format!(r#"{{"hosts": [{{"nqn": "{me}", "dhchap_key": "host.key"}}]}}"#);
    let access = private(&home, "hosts.json", &access);
    let server =
        home.serve_logged(&["--tcp", "0", "--nqn", NQN, "--access", &access, "mem:block:16M"], LOG, DEFAULT);
    let name = name_of(&server);
    let at = address_of(&name);
    // Who has the name and not the key.
    home.run(&["discover", at]).fails_with(4, &[at, "wants hosts to authenticate, and there is no secret"]);
    logs(&home, "it has to authenticate, and has gone without");
    for known in [format!(r#", "address": "{at}""#), String::new()] {
        let key = r#""dhchap_key": "../host.key""#;
        private(
            &home,
            "unvme/fabrics.json",
            &format!(r#"{{"targets": [{{"nqn": "{NQN}"{known}, {key}}}]}}"#),
        );
        assert!(home.ok(&["discover", at]).contains(&name), "{known}");
    }
    // Another name has nothing to prove, and nothing to see.
    private(&home, "unvme/hostnqn", OTHER_HOST);
    assert!(!home.ok(&["discover", at]).contains(NQN));
}

#[test]
fn an_entry_of_fabrics_json_that_is_wrong_is_named_and_hurts_no_other_target() {
    let home = Home::new();
    let server =
        home.serve(&["--tcp", "0", "--nqn", NQN, "--nqn", OTHER_NQN, "mem:block:16M", "mem:block:16M"]);
    let name = name_of(&server);
    let (at, other) = (address_of(&name), name.replace(NQN, OTHER_NQN));
    let good = format!(r#"{{"nqn": "{NQN}", "address": "{at}"}}"#);
    for (bad, part) in [
        (format!(r#"{{"nqn": "{OTHER_NQN}", "dhchap_key": "nowhere.key"}}"#), "nowhere.key is not there"),
        (format!(r#"{{"nqn": "{OTHER_NQN}", "adress": "{at}"}}"#), "`adress`: unknown field"),
        (format!(r#"{{"nqn": "{OTHER_NQN}", "tls_key": 7}}"#), "`tls_key`: invalid type"),
    ] {
        private(&home, "unvme/fabrics.json", &format!("{{\"targets\": [\n{bad},\n{good}]}}"));
        home.ok(&["id-ctrl", &name]);
        home.run(&["id-ctrl", &other]).fails_with(4, &["fabrics.json:2:", part]);
        for (args, shown) in [(&["list"][..], &name), (&["discover", at], &name)] {
            let done = home.run(args);
            assert_eq!(done.code, 0, "{args:?}: {}", done.stderr);
            assert!(done.text().contains(shown.as_str()), "{args:?}: {}", done.text());
            let warning = "unvme: warning: this target is left out: ";
            assert!(done.stderr.starts_with(warning) && done.stderr.contains(part), "{}", done.stderr);
        }
    }
}
