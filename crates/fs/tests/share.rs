//! Sharing a mounted file system with other processes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use tempfile::TempDir;
use unvme::{Nsid, OpenOptions, open};
use unvme_fs::calls::{At, NewTime, OpenId, Processes, Range, Reply, Request};
use unvme_fs::share::{Client, Identity, Server, ServerOptions};
use unvme_fs::{Errno, FileSystem, MakeOptions, MountOptions, make};

/// A server in this process.
struct House {
    server: Option<Server>,
    processes: Arc<Processes>,
    folder: TempDir,
}

fn mounted() -> FileSystem {
    let device = open("mem:block:64M", &OpenOptions::default()).expect("a device");
    let block = device.block(Nsid(1)).expect("a namespace");
    make(&block, device.name(), &MakeOptions::default(), |_, _| ()).expect("a file system");
    FileSystem::mount(&block, device.name(), &MountOptions::default()).expect("mounted")
}

impl House {
    fn new() -> Self {
        let processes = Processes::new(mounted());
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("socket");
        let server =
            Server::start(Arc::clone(&processes), &socket, &ServerOptions::default()).expect("a server");
        Self { server: Some(server), processes, folder }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn client(&self) -> Client {
        Client::connect(&self.socket(), Identity::own()).expect("connected")
    }

    /// Until everything that processes have open is as much as that.
    fn wait_for_opens(&self, opens: usize) {
        let start = Instant::now();
        while self.processes.opens() != opens {
            assert!(start.elapsed() < Duration::from_secs(60), "{} files open", self.processes.opens());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn at(path: &[u8]) -> At<'_> {
    At { base: OpenId::ROOT, path, follows: true }
}

fn of(base: OpenId) -> At<'static> {
    At { base, path: b"", follows: true }
}

fn open_at(client: &Client, path: &str, flags: OFlags) -> Result<(OpenId, u64), Errno> {
    let request = Request::Open { at: at(path.as_bytes()), flags: flags.bits(), mode: 0o644 };
    match client.call(&request, &[], &mut []).map_err(|e| e.errno())? {
        Reply::Opened(open, ino, ..) => Ok((open, ino)),
        other => panic!("{other:?}"),
    }
}

fn ask(client: &Client, request: &Request<'_>) -> Result<Reply, Errno> {
    client.call(request, &[], &mut []).map_err(|e| e.errno())
}

fn write(client: &Client, open: OpenId, offset: u64, data: &[u8]) -> u64 {
    match client.call(&Request::Write { open, offset }, data, &mut []) {
        Ok(Reply::Number(written)) => written,
        other => panic!("{other:?}"),
    }
}

fn read(client: &Client, open: OpenId, offset: u64, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    match client.call(&Request::Read { open, offset }, &[], &mut out) {
        Ok(Reply::Number(read)) => out.truncate(read as usize),
        other => panic!("{other:?}"),
    }
    out
}

const NEW: OFlags = OFlags::RDWR.union(OFlags::CREATE);

#[test]
fn what_one_client_does_another_one_sees() {
    let house = House::new();
    let (one, two) = (house.client(), house.client());
    let (file, ino) = open_at(&one, "file", NEW).expect("made");
    assert_eq!(write(&one, file, 0, b"hello"), 5);
    let (same, same_ino) = open_at(&two, "file", OFlags::RDONLY).expect("there");
    assert_eq!(ino, same_ino);
    assert_eq!(read(&two, same, 1, 100), b"ello");
    // What is open is each process's own.
    assert_eq!(ask(&two, &Request::Sync { open: file, data_only: true }), Err(Errno::BADF));
    assert_eq!(ask(&two, &Request::Remove { at: at(b"none"), is_directory: false }), Err(Errno::NOENT));
    let now = Request::ChangeTimes { at: at(b"file"), accessed: NewTime::Now, modified: NewTime::Keep };
    assert_eq!(ask(&two, &now), Ok(Reply::Done));
    house.wait_for_opens(2);
    drop(two);
    house.wait_for_opens(1);
    assert_eq!(read(&one, file, 0, 5), b"hello");
}

#[test]
fn large_data_go_in_pieces() {
    let house = House::new();
    let client = house.client();
    let (file, _) = open_at(&client, "large", NEW).expect("made");
    let data: Vec<u8> = (0..5_000_000_u32).map(|i| (i * 7 / 3) as u8).collect();
    assert_eq!(write(&client, file, 3, &data), data.len() as u64);
    assert!(read(&client, file, 3, data.len() + 10) == data);
    let appended = client.call(&Request::Append { open: file }, &data, &mut []);
    assert_eq!(appended.expect("appended"), Reply::Appended(5_000_003, 5_000_000));
    assert!(read(&client, file, 5_000_003, data.len()) == data);
    let name = [b'n'; 5000];
    assert_eq!(ask(&client, &Request::Attributes { at: at(&name) }), Err(Errno::NAMETOOLONG));
    let value = vec![7; 60_000];
    let set = Request::SetXattr { at: of(file), name: b"user.large", value: &value, flags: 0 };
    assert_eq!(ask(&client, &set), Ok(Reply::Done));
    let get = Request::GetXattr { at: of(file), name: b"user.large" };
    assert_eq!(ask(&client, &get), Ok(Reply::Bytes(value)));
}

#[test]
fn many_threads_share_one_client() {
    let house = House::new();
    let client = house.client();
    std::thread::scope(|scope| {
        for thread in 0..80_u32 {
            let client = client.clone();
            scope.spawn(move || {
                let (file, _) = open_at(&client, &format!("file{thread}"), NEW).expect("made");
                for round in 0..20_u32 {
                    let data = (thread * 1000 + round).to_le_bytes();
                    write(&client, file, u64::from(round) * 4, &data);
                    assert_eq!(read(&client, file, u64::from(round) * 4, 4), data);
                }
            });
        }
    });
    house.wait_for_opens(80);
}

#[test]
fn a_lock_keeps_another_process_out_until_its_owner_goes() {
    let house = House::new();
    let (one, two) = (house.client(), house.client());
    let (mine, _) = open_at(&one, "file", NEW).expect("made");
    let (theirs, _) = open_at(&two, "file", NEW).expect("there");
    let range = Range { is_of_open: false, is_exclusive: true, start: 0, end: 9 };
    assert_eq!(ask(&one, &Request::Lock { open: mine, range }), Ok(Reply::Done));
    assert_eq!(ask(&two, &Request::Lock { open: theirs, range }), Err(Errno::AGAIN));
    let found = ask(&two, &Request::FindLock { open: theirs, range });
    assert_eq!(found, Ok(Reply::Lock(Some((range, std::process::id())))));
    drop(one);
    house.wait_for_opens(1);
    assert_eq!(ask(&two, &Request::Lock { open: theirs, range }), Ok(Reply::Done));
}

#[test]
fn a_server_that_ends_is_an_error_and_another_one_is_found() {
    let mut house = House::new();
    let client = house.client();
    let (file, _) = open_at(&client, "file", NEW).expect("made");
    drop(house.server.take());
    let start = Instant::now();
    assert_eq!(ask(&client, &Request::Usage), Err(Errno::IO));
    assert!(start.elapsed() < Duration::from_secs(30));
    assert_eq!(ask(&client, &Request::Usage), Err(Errno::IO));
    let options = ServerOptions::default();
    house.server =
        Some(Server::start(Arc::clone(&house.processes), &house.socket(), &options).expect("a server"));
    let busy = Server::start(Arc::clone(&house.processes), &house.socket(), &options);
    assert_eq!(busy.err().expect("served there").errno(), Errno::BUSY);
    while ask(&client, &Request::Usage).is_err() {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(client.generation(), 1);
    assert_eq!(ask(&client, &Request::Sync { open: file, data_only: true }), Err(Errno::BADF));
    assert!(open_at(&client, "file", OFlags::RDONLY).is_ok());
}

#[test]
fn nobody_is_waited_for_until_nobody_was_there_for_so_long() {
    let house = House::new();
    let server = house.server.as_ref().expect("there");
    let client = house.client();
    assert_eq!(server.clients(), 1);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| server.wait_idle(Duration::from_millis(20)));
        std::thread::sleep(Duration::from_millis(60));
        assert!(!waits.is_finished());
        drop(client);
    });
    assert_eq!(server.clients(), 0);
}

#[test]
fn a_child_has_the_same_files_and_no_locks() {
    let house = House::new();
    let parent = house.client();
    let (file, _) = open_at(&parent, "file", NEW).expect("made");
    write(&parent, file, 0, b"before");
    let range = Range { is_of_open: false, is_exclusive: true, start: 0, end: 9 };
    assert_eq!(ask(&parent, &Request::Lock { open: file, range }), Ok(Reply::Done));
    assert_eq!(ask(&parent, &Request::Remove { at: at(b"file"), is_directory: false }), Ok(Reply::Done));
    let forked = parent.prepare_fork().expect("prepared");
    let (later, _) = open_at(&parent, "later", NEW).expect("made");
    // The parent's connection is not let go of here, where both are one process.
    let other = house.client();
    let child = forked.into_child(&other).expect("a child");
    assert_eq!(read(&child, file, 0, 10), b"before");
    assert_eq!(ask(&child, &Request::Lock { open: file, range }), Err(Errno::AGAIN));
    assert_eq!(ask(&child, &Request::Sync { open: later, data_only: true }), Err(Errno::BADF));
    drop((parent, other));
    house.wait_for_opens(1);
    assert_eq!(ask(&child, &Request::Lock { open: file, range }), Ok(Reply::Done));
    assert_eq!(read(&child, file, 0, 10), b"before", "it has no name, and is still open");
    drop(child);
    house.wait_for_opens(0);
}
