//! A file system that several processes share, and what happens when its server ends.

mod home;

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use home::{DEVICE, Home, wait};
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use unvme_fs::calls::{At, OpenId, Reply, Request};
use unvme_fs::share::{Client, Identity};
use unvme_fs::{Errno, Error};

struct Serving {
    process: Child,
    out: BufReader<ChildStdout>,
    line: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Serving {
    fn start(home: &Home, args: &[&str]) -> Self {
        let mut command = home.command(&[&["fs", "serve"], args].concat());
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("start the server");
        let mut out = BufReader::new(process.stdout.take().expect("piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("read");
        assert!(line.starts_with("serving the file system of "), "{line}");
        Self { process, out, line }
    }

    /// SIGTERM, then its exit code.
    fn terminate(mut self) -> i32 {
        let pid = Pid::from_raw(self.process.id() as i32).expect("a process");
        kill_process(pid, Signal::TERM).expect("signalled");
        wait(&mut self.process)
    }
}

fn socket(home: &Home) -> PathBuf {
    home.path("s")
}

fn connect(home: &Home) -> Client {
    Client::connect(&socket(home), Identity::own()).expect("connected")
}

fn open_at(client: &Client, path: &str) -> Result<OpenId, Error> {
    let at = At { base: OpenId::ROOT, path: path.as_bytes(), follows: true };
    let flags = (OFlags::RDWR | OFlags::CREATE).bits();
    match client.call(&Request::Open { at, flags, mode: 0o644 }, &[], &mut [])? {
        Reply::Opened(open, ..) => Ok(open),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_synced_is_there_after_a_server_was_killed_and_clients_go_on() {
    let home = Home::with_device();
    home.ok(&["fs", "mkfs", DEVICE]);
    let args = [DEVICE, "--socket", "s", "--cache", "16M"];
    let mut server = Serving::start(&home, &args);
    let client = connect(&home);
    for round in 0..4_u64 {
        let open = open_at(&client, &format!("file{round}")).expect("made");
        let data = [round as u8 + 1; 10_000];
        client.call(&Request::Write { open, offset: 0 }, &data, &mut []).expect("written");
        client.call(&Request::Sync { open, data_only: false }, &[], &mut []).expect("synced");
        client.call(&Request::Write { open, offset: 100_000 }, &data, &mut []).expect("written");
        server.process.kill().expect("killed");
        server.process.wait().expect("gone");
        let start = Instant::now();
        assert_eq!(client.call(&Request::Usage, &[], &mut []).expect_err("gone").errno(), Errno::IO);
        assert!(start.elapsed() < Duration::from_secs(30));
        server = Serving::start(&home, &args);
        let open = loop {
            match open_at(&client, &format!("file{round}")) {
                Ok(open) => break open,
                Err(e) => assert_eq!(e.errno(), Errno::IO),
            }
            assert!(start.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut out = [0; 10_000];
        client.call(&Request::Read { open, offset: 0 }, &[], &mut out).expect("read");
        assert!(out == data);
        assert_eq!(client.generation(), round + 1);
    }
    assert_eq!(server.terminate(), 0);
    assert!(home.ok(&["fs", "ls", DEVICE]).contains("file3"));
    home.ok(&["fs", "check", DEVICE]);
}

#[test]
fn a_server_ends_when_nobody_was_there_for_so_long() {
    let home = Home::new();
    let mut server =
        Serving::start(&home, &["mem:block:64M", "--socket", "s", "--idle", "1", "--ready-fd", "1"]);
    let mut byte = [0];
    server.out.read_exact(&mut byte).expect("told");
    let client = connect(&home);
    open_at(&client, "file").expect("made");
    std::thread::sleep(Duration::from_millis(1500));
    assert!(server.process.try_wait().expect("asked").is_none(), "somebody is there");
    drop(client);
    assert_eq!(wait(&mut server.process), 0);
    assert!(!socket(&home).exists() && !home.path("s.lock").exists());
}

#[test]
fn each_device_has_a_place_of_its_own_and_one_server() {
    let home = Home::with_device();
    let runtime = home.path("runtime");
    std::fs::create_dir(&runtime).expect("a folder");
    home.run(&["fs", "serve", DEVICE, "--socket", "s"]).fails_with(2, &["mkfs"]);
    assert!(!socket(&home).exists());
    home.ok(&["fs", "mkfs", DEVICE]);
    let mut command = home.command(&["fs", "serve", DEVICE, "--output", "json", "--keep-unnamed"]);
    command.env("XDG_RUNTIME_DIR", &runtime).stdout(Stdio::piped());
    let mut process = command.spawn().expect("start the server");
    let mut text = String::new();
    let mut out = BufReader::new(process.stdout.take().expect("piped"));
    while !text.contains('}') {
        out.read_line(&mut text).expect("read");
    }
    let server = Serving { process, out, line: text };
    let said: serde_json::Value = serde_json::from_str(&server.line).expect("JSON");
    let socket = said["socket"].as_str().expect("a path");
    assert!(
        socket.starts_with(runtime.join("unvme/fs/0000-02-00.0-1-").to_str().expect("UTF-8")),
        "{socket}"
    );
    let client = Client::connect(socket.as_ref(), Identity::own()).expect("connected");
    open_at(&client, "file").expect("made");
    home.run(&["fs", "serve", DEVICE, "--socket", "s"]).fails_with(3, &[]);
    let mut again = home.command(&["fs", "serve", "02:00.0"]);
    let refused = again.env("XDG_RUNTIME_DIR", &runtime).output().expect("run");
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert_eq!(server.terminate(), 0);
    assert!(home.ok(&["fs", "ls", DEVICE]).contains("file"));
}
