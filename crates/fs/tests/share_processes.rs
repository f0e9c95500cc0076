//! Clients of a shared file system that are processes: they are killed, and become other programs.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use tempfile::TempDir;
use unvme::{Nsid, OpenOptions, open};
use unvme_fs::calls::{At, OpenId, Processes, Range, Reply, Request};
use unvme_fs::share::{Client, Identity, Reserved, Server, ServerOptions};
use unvme_fs::{FileSystem, MakeOptions, MountOptions, make};

/// Set for child processes: what they are to do, and where.
const CHILD: &str = "UNVME_FS_SHARE_CHILD";
const SOCKET: &str = "UNVME_FS_SHARE_SOCKET";
const OPEN: &str = "UNVME_FS_SHARE_OPEN";

const NEW: OFlags = OFlags::RDWR.union(OFlags::CREATE);
const ALL: Range = Range { is_of_open: false, is_exclusive: true, start: 0, end: u64::MAX };

fn at(path: &[u8]) -> At<'_> {
    At { base: OpenId::ROOT, path, follows: true }
}

fn ask(client: &Client, request: &Request<'_>) -> Reply {
    client.call(request, &[], &mut []).unwrap_or_else(|e| panic!("{request:?}: {e}"))
}

fn open_at(client: &Client, path: &str) -> OpenId {
    let request = Request::Open { at: at(path.as_bytes()), flags: NEW.bits(), mode: 0o644 };
    match ask(client, &request) {
        Reply::Opened(open, ..) => open,
        other => panic!("{other:?}"),
    }
}

fn write(client: &Client, open: OpenId, offset: u64, data: &[u8]) {
    let written = client.call(&Request::Write { open, offset }, data, &mut []);
    assert_eq!(written.expect("written"), Reply::Number(data.len() as u64));
}

fn read(client: &Client, open: OpenId, offset: u64, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    match client.call(&Request::Read { open, offset }, &[], &mut out) {
        Ok(Reply::Number(read)) => out.truncate(read as usize),
        other => panic!("{other:?}"),
    }
    out
}

fn served() -> (Server, Arc<Processes>, TempDir) {
    served_with(&ServerOptions::default())
}

fn served_with(options: &ServerOptions) -> (Server, Arc<Processes>, TempDir) {
    let (processes, folder) = (mounted(), tempfile::tempdir().expect("a folder"));
    let server = Server::start(Arc::clone(&processes), &socket(&folder), options).expect("a server");
    (server, processes, folder)
}

fn mounted() -> Arc<Processes> {
    let device = open("mem:block:64M", &OpenOptions::default()).expect("a device");
    let block = device.block(Nsid(1)).expect("a namespace");
    make(&block, device.name(), &MakeOptions::default(), |_, _| ()).expect("a file system");
    let fs = FileSystem::mount(&block, device.name(), &MountOptions::default()).expect("mounted");
    Processes::new(fs)
}

fn socket(folder: &TempDir) -> PathBuf {
    folder.path().join("socket")
}

/// This program, as a child that does something else.
fn child(what: &str, folder: &TempDir) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test program"));
    command.args(["--exact", "children", "--nocapture"]).env(CHILD, what).env(SOCKET, socket(folder));
    command.stdout(Stdio::piped());
    command
}

/// What the children do; nothing when this is no child.
#[test]
fn children() {
    let Some(what) = std::env::var_os(CHILD) else { return };
    let socket = PathBuf::from(std::env::var_os(SOCKET).expect("a socket"));
    match what.to_str() {
        Some("busy") => be_busy(&socket),
        Some("resume") => resume(&socket),
        Some("exec") => exec(&socket),
        Some("come") => come(&socket),
        Some("serve") => serve(&socket),
        _ => panic!("{what:?}"),
    }
}

/// Does everything at once, until it is killed.
fn be_busy(socket: &Path) {
    let client = Client::connect(socket, Identity::own()).expect("connected");
    let locked = open_at(&client, "locked");
    ask(&client, &Request::Lock { open: locked, range: ALL });
    let gone = open_at(&client, "gone");
    ask(&client, &Request::Remove { at: at(b"gone"), is_directory: false });
    let (_, _memory) = client.map(locked, true).expect("mapped");
    writeln!(std::io::stdout(), "\nbusy").expect("said");
    std::thread::scope(|scope| {
        for thread in 0..3_u8 {
            let client = &client;
            scope.spawn(move || {
                for round in 0_u64.. {
                    write(client, gone, round % 64 * 4096, &vec![thread; 1 << (round % 20)]);
                    let name = format!("name{thread}");
                    let open = open_at(client, &name);
                    write(client, locked, 4096, &[thread; 100]);
                    ask(client, &Request::Remove { at: at(name.as_bytes()), is_directory: false });
                    ask(client, &Request::Close { open });
                }
            });
        }
    });
}

fn said(child: &mut Child) -> String {
    let out = BufReader::new(child.stdout.take().expect("a pipe"));
    // The test harness says something, too.
    out.lines()
        .map_while(Result::ok)
        .find(|line| ["busy", "read", "serving"].contains(&line.as_str()))
        .unwrap_or_default()
}

#[test]
fn a_client_that_is_killed_takes_nothing_from_others() {
    let (server, processes, folder) = served();
    let client = Client::connect(&socket(&folder), Identity::own()).expect("connected");
    let (mine, locked) = (open_at(&client, "mine"), open_at(&client, "locked"));
    for round in 0..12_u64 {
        let mut busy = child("busy", &folder).spawn().expect("a child");
        assert_eq!(said(&mut busy), "busy");
        let until = Instant::now() + Duration::from_millis(round * 3);
        let mut count = 0_u64;
        while Instant::now() < until || count == 0 {
            write(&client, mine, 0, &count.to_le_bytes());
            assert_eq!(read(&client, mine, 0, 8), count.to_le_bytes());
            count += 1;
        }
        busy.kill().expect("killed");
        busy.wait().expect("gone");
        let start = Instant::now();
        while processes.opens() != 2 || processes.is_any_mapped() || server.clients() != 1 {
            assert!(start.elapsed() < Duration::from_secs(60), "{} files open", processes.opens());
            std::thread::sleep(Duration::from_millis(1));
        }
        ask(&client, &Request::Lock { open: locked, range: ALL });
        ask(&client, &Request::Unlock { open: locked, range: ALL });
    }
}

/// Goes on with what another program had open.
fn resume(socket: &Path) {
    let fd = std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor");
    let client = Client::resume(socket, Identity::own(), fd).expect("resumed");
    let open = OpenId(std::env::var(OPEN).expect("said").parse().expect("a number"));
    assert_eq!(read(&client, open, 0, 100), b"from the parent");
    write(&client, open, 0, b"from the child!");
    let range = Range { start: 0, end: 9, ..ALL };
    match ask(&client, &Request::FindLock { open, range }) {
        // A child has none of its parent's locks.
        Reply::Lock(Some((_, pid))) => assert_ne!(pid, std::process::id()),
        // What `execve` has made of a process has them.
        Reply::Lock(None) => {}
        other => panic!("{other:?}"),
    }
    writeln!(std::io::stdout(), "\nread").expect("said");
    std::thread::sleep(Duration::from_secs(3600));
}

#[test]
fn a_child_that_is_another_program_has_what_its_parent_has_open() {
    let (server, processes, folder) = served();
    let client = Client::connect(&socket(&folder), Identity::own()).expect("connected");
    let file = open_at(&client, "file");
    write(&client, file, 0, b"from the parent");
    ask(&client, &Request::Remove { at: at(b"file"), is_directory: false });
    ask(&client, &Request::Lock { open: file, range: ALL });
    let passed = client.prepare_fork().and_then(unvme_fs::share::Forked::into_descriptor).expect("prepared");
    assert_eq!(server.clients(), 2);
    let mut command = child("resume", &folder);
    let mut other = command.env(OPEN, file.0.to_string()).stdin(passed).spawn().expect("a child");
    drop(command);
    assert_eq!(said(&mut other), "read");
    assert_eq!(read(&client, file, 0, 100), b"from the child!");
    ask(&client, &Request::Close { open: file });
    assert_eq!(processes.opens(), 1, "the child has it");
    other.kill().expect("killed");
    other.wait().expect("gone");
    let start = Instant::now();
    while processes.opens() != 0 || server.clients() != 1 {
        assert!(start.elapsed() < Duration::from_secs(60), "{} files open", processes.opens());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Becomes another program, which has the same connection.
fn exec(socket: &Path) {
    let client = Client::connect(socket, Identity::own()).expect("connected");
    let file = open_at(&client, "file");
    write(&client, file, 0, b"from the parent");
    ask(&client, &Request::Remove { at: at(b"file"), is_directory: false });
    ask(&client, &Request::Lock { open: file, range: ALL });
    client.map(file, true).expect("mapped");
    let number = client.pass_on().expect("passed on");
    // The descriptor stays open, as does its copy, which the test can have without a word of unsafe.
    let command = format!("exec \"$0\" --exact children --nocapture <&{number} {number}<&-");
    let mut shell = Command::new("/bin/bash");
    shell.args(["-c", &command]).arg(std::env::current_exe().expect("the test program"));
    let error =
        std::os::unix::process::CommandExt::exec(shell.env(CHILD, "resume").env(OPEN, file.0.to_string()));
    panic!("{error}");
}

#[test]
fn a_process_that_becomes_another_program_goes_on_with_what_it_had() {
    let (server, processes, folder) = served();
    let client = Client::connect(&socket(&folder), Identity::own()).expect("connected");
    let mut other = child("exec", &folder).spawn().expect("a child");
    assert_eq!(said(&mut other), "read");
    assert_eq!((processes.opens(), server.clients()), (1, 2));
    // Mappings end with the image.
    let start = Instant::now();
    while processes.is_any_mapped() {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(client);
    other.kill().expect("killed");
    other.wait().expect("gone");
    server.wait_idle(Duration::from_millis(1));
    assert_eq!(processes.opens(), 0);
}

/// Comes while the server is another process's, and tries to lock what that one has locked.
fn come(socket: &Path) {
    writeln!(std::io::stdout(), "\nhere").expect("said");
    let client = Client::connect(socket, Identity::own()).expect("connected");
    let open = open_at(&client, "file");
    let locked = client.call(&Request::Flock { open, is_exclusive: Some(true) }, &[], &mut []);
    let what = match locked.map_err(|e| e.errno()) {
        Err(unvme_fs::Errno::AGAIN) => "refused".into(),
        other => format!("{other:?}"),
    };
    writeln!(std::io::stdout(), "\n{what}").expect("said");
    std::thread::sleep(Duration::from_secs(3600));
}

#[test]
fn others_come_when_the_first_one_has_everything_again() {
    let reserved = Reserved { pid: std::process::id(), limit: Duration::from_secs(3600) };
    let (_server, _, folder) = served_with(&ServerOptions { reserved: Some(reserved), ..Default::default() });
    let mut other = child("come", &folder).spawn().expect("a child");
    let mut out = BufReader::new(other.stdout.take().expect("piped"));
    let mut said = || loop {
        let mut line = String::new();
        assert!(out.read_line(&mut line).expect("a line") > 0, "it has ended");
        if ["here", "refused", "Done"].iter().any(|word| line.contains(word)) {
            return line.trim().to_owned();
        }
    };
    assert_eq!(said(), "here");
    // Enough for it to come first, if it could.
    std::thread::sleep(Duration::from_millis(300));
    let client = Client::connect(&socket(&folder), Identity::own()).expect("connected");
    let open = open_at(&client, "file");
    ask(&client, &Request::Flock { open, is_exclusive: Some(true) });
    client.reap_unnamed().expect("reaped");
    assert_eq!(said(), "refused");
    other.kill().expect("killed");
    other.wait().expect("gone");
}

/// Serves until it is killed.
fn serve(socket: &Path) {
    let _server = Server::start(mounted(), socket, &ServerOptions::default()).expect("a server");
    writeln!(std::io::stdout(), "\nserving").expect("said");
    std::thread::sleep(Duration::from_secs(3600));
}

#[test]
fn a_server_that_is_killed_is_started_again_by_its_clients_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = child("serve", &folder).spawn().expect("a child");
    assert_eq!(said(&mut server), "serving");
    let clients = [(); 4].map(|()| Client::connect(&socket(&folder), Identity::own()).expect("connected"));
    let (started, path) = (Arc::new(AtomicUsize::new(0)), socket(&folder));
    let servers: Arc<Mutex<Vec<Server>>> = Arc::default();
    for client in &clients {
        let (started, servers, path) = (Arc::clone(&started), Arc::clone(&servers), path.clone());
        client.start_when_killed(Arc::new(move |hold| {
            started.fetch_add(1, Ordering::SeqCst);
            let server = Server::start_held(&mut Some(hold), mounted(), &path, &ServerOptions::default());
            servers.lock().expect("nobody panics").push(server.expect("a server"));
            true
        }));
    }
    server.kill().expect("killed");
    server.wait().expect("gone");
    std::thread::scope(|scope| {
        for client in &clients {
            scope.spawn(move || {
                let start = Instant::now();
                while client.ping().is_err() {
                    assert!(start.elapsed() < Duration::from_secs(60), "nobody has started one");
                    std::thread::sleep(Duration::from_millis(5));
                }
                assert_eq!(client.generation(), 1);
            });
        }
    });
    assert_eq!(started.load(Ordering::SeqCst), 1);
}
