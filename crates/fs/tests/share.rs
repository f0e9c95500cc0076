//! Sharing a mounted file system with other processes.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use tempfile::TempDir;
use unvme::{Nsid, OpenOptions, open};
use unvme_fs::calls::{At, FileHandle, NewTime, OpenId, Processes, Range, Reply, Request};
use unvme_fs::share::{Client, Identity, Server, ServerOptions, Watched};
use unvme_fs::{CacheOptions, Credentials, Errno, FileSystem, MakeOptions, MountOptions, make};

/// A server in this process.
struct House {
    server: Option<Server>,
    processes: Arc<Processes>,
    folder: TempDir,
}

fn mounted_with(cache: CacheOptions) -> FileSystem {
    let device = open("mem:block:64M", &OpenOptions::default()).expect("a device");
    let block = device.block(Nsid(1)).expect("a namespace");
    make(&block, device.name(), &MakeOptions::default(), |_, _| ()).expect("a file system");
    let options = MountOptions { cache, ..MountOptions::default() };
    FileSystem::mount(&block, device.name(), &options).expect("mounted")
}

fn mounted() -> FileSystem {
    mounted_with(CacheOptions::default())
}

impl House {
    fn new() -> Self {
        Self::with(mounted())
    }

    /// Clients read the pages of the cache, so many of them.
    fn with_shared_pages(pages: usize) -> Self {
        Self::with(mounted_with(CacheOptions {
            bytes: pages * 4096,
            is_shared: true,
            ..CacheOptions::default()
        }))
    }

    fn with(fs: FileSystem) -> Self {
        let processes = Processes::new(fs);
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
        Reply::Opened(open, file, ..) => Ok((open, file.ino)),
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
fn who_has_ended_has_no_lock_whenever_somebody_asks() {
    let house = House::new();
    let mine = house.client();
    let (file, _) = open_at(&mine, "file", NEW).expect("made");
    let range = Range { is_of_open: true, is_exclusive: true, start: 0, end: 9 };
    for _ in 0..50 {
        let other = house.client();
        let (theirs, _) = open_at(&other, "file", NEW).expect("there");
        assert_eq!(ask(&other, &Request::Lock { open: theirs, range }), Ok(Reply::Done));
        assert_eq!(ask(&mine, &Request::Lock { open: file, range }), Err(Errno::AGAIN));
        drop(other);
        assert_eq!(ask(&mine, &Request::Lock { open: file, range }), Ok(Reply::Done));
        assert_eq!(ask(&mine, &Request::Unlock { open: file, range }), Ok(Reply::Done));
    }
}

#[test]
fn a_number_that_another_file_has_by_now_is_stale() {
    let house = House::new();
    let client = house.client();
    let opened =
        client.call(&Request::Open { at: at(b"file"), flags: NEW.bits(), mode: 0o644 }, &[], &mut []);
    let Ok(Reply::Opened(_, FileHandle { ino, generation }, ..)) = opened else { panic!("{opened:?}") };
    let adopt = |generation| ask(&client, &Request::Adopt { ino, generation, flags: 0 });
    assert!(adopt(Some(generation)).is_ok());
    assert!(adopt(None).is_ok());
    assert_eq!(adopt(Some(generation ^ 1)), Err(Errno::STALE));
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

#[test]
fn who_waits_for_a_lock_gets_it_and_nobody_waits_for_himself() {
    let house = House::new();
    let clients = [house.client(), house.client()];
    let open = |client: &Client, name| open_at(client, name, NEW).expect("made").0;
    let opens = clients.each_ref().map(|client| [open(client, "a"), open(client, "b")]);
    let range = Range { is_of_open: false, is_exclusive: true, start: 0, end: u64::MAX };
    let wait = |which: usize, file: usize| {
        let ask = |request: &Request<'_>| clients[which].call(request, &[], &mut []);
        wait_for_lock(ask, opens[which][file], range).map_err(|e| e.errno())
    };
    assert_eq!(wait(0, 0), Ok(()));
    assert_eq!(wait(1, 1), Ok(()));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let done = wait(0, 1);
            if done.is_err() {
                ask(&clients[0], &Request::Unlock { open: opens[0][0], range }).expect("given back");
            }
            done
        });
        let second = wait(1, 0);
        if second.is_err() {
            ask(&clients[1], &Request::Unlock { open: opens[1][1], range }).expect("given back");
        }
        // One of them is told, gives back what it has, and the other one goes on.
        let mut both = [first.join().expect("a thread"), second];
        both.sort_by_key(Result::is_err);
        assert_eq!(both, [Ok(()), Err(Errno::DEADLK)]);
    });
}

/// A mapping of a file's memory, as a program has it.
fn stored(memory: &OwnedFd, offset: u64, data: &[u8]) {
    assert_eq!(rustix::io::pwrite(memory, data, offset), Ok(data.len()));
}

fn loaded(memory: &OwnedFd, offset: u64, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    let read = rustix::io::pread(memory, &mut out, offset).expect("read");
    out.truncate(read);
    out
}

#[test]
fn what_is_stored_to_a_mapped_file_is_read_and_what_is_written_is_seen_there() {
    let house = House::new();
    let (one, two) = (house.client(), house.client());
    let (file, ino) = open_at(&one, "file", NEW).expect("made");
    write(&one, file, 0, &[1; 10_000]);
    let (mapped, memory) = one.map(file, true).expect("mapped");
    assert_eq!((mapped.ino, mapped.size), (ino, 10_000));
    assert_eq!(loaded(&memory, 9_990, 100), [1; 10]);
    let (theirs, _) = open_at(&two, "file", NEW).expect("there");
    stored(&memory, 100, b"stored");
    assert_eq!(read(&two, theirs, 98, 10), b"\x01\x01stored\x01\x01");
    write(&two, theirs, 5_000, b"written");
    assert_eq!(loaded(&memory, 5_000, 7), b"written");
    // The size is the file's: longer, shorter, by appending, by a hole.
    let appended = two.call(&Request::Append { open: theirs }, b"tail", &mut []).expect("appended");
    assert_eq!(appended, Reply::Appended(10_000, 4));
    assert_eq!(loaded(&memory, 9_999, 100), b"\x01tail");
    ask(&two, &Request::Allocate { open: theirs, mode: 3, offset: 0, bytes: 4096 }).expect("a hole");
    assert_eq!(loaded(&memory, 4_090, 10), [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]);
    ask(&two, &Request::Truncate { at: of(theirs), size: 4_200 }).expect("cut");
    assert_eq!(loaded(&memory, 4_198, 10), [1, 1]);
    // Another file's data, and to another file.
    let (other, _) = open_at(&two, "other", NEW).expect("made");
    write(&two, other, 0, b"copied");
    stored(&memory, 4_097, b"new");
    let copy = |open, offset, to, to_offset, bytes| Request::Copy { open, offset, to, to_offset, bytes };
    assert_eq!(ask(&two, &copy(other, 0, theirs, 50, 6)), Ok(Reply::Number(6)));
    assert_eq!(loaded(&memory, 50, 6), b"copied");
    assert_eq!(ask(&two, &copy(theirs, 4_097, other, 0, 3)), Ok(Reply::Number(3)));
    assert_eq!(read(&two, other, 0, 10), b"newied");
    // A mapping stays when its file is closed, and ends with its process.
    ask(&one, &Request::Close { open: file }).expect("closed");
    stored(&memory, 0, b"last");
    one.sync_map(ino).expect("written");
    assert!(house.processes.is_any_mapped());
    stored(&memory, 4, b"words");
    let opened = open_at(&two, "file", OFlags::RDWR.union(OFlags::TRUNC));
    assert_eq!(loaded(&memory, 0, 10), b"", "cut by opening it");
    write(&two, opened.expect("there").0, 0, b"more");
    stored(&memory, 1, b"0");
    drop(one);
    while house.processes.is_any_mapped() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(read(&two, theirs, 0, 10), b"m0re");
}

#[test]
fn files_are_mapped_and_unmapped_while_others_write() {
    let house = House::new();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mapper = house.client();
        let (file, _) = open_at(&mapper, "file", NEW).expect("made");
        let writers: Vec<_> = (0..3_u64)
            .map(|which| {
                let client = house.client();
                let done = &done;
                scope.spawn(move || {
                    let (file, _) = open_at(&client, "file", NEW).expect("there");
                    let mut round = 0_u64;
                    while !done.load(Ordering::Relaxed) {
                        round += 1;
                        write(&client, file, which * 4096, &round.to_le_bytes());
                        assert_eq!(read(&client, file, which * 4096, 8), round.to_le_bytes());
                    }
                    (client, file, round)
                })
            })
            .collect();
        for round in 0..200_u64 {
            let (mapped, memory) = mapper.map(file, true).expect("mapped");
            stored(&memory, 50_000, &round.to_le_bytes());
            // Beyond the end of a file nothing is stored.
            write(&mapper, file, 50_000, &round.to_le_bytes());
            stored(&memory, 50_000, &(round + 1).to_le_bytes());
            mapper.unmap(mapped.ino).expect("unmapped");
            assert_eq!(read(&mapper, file, 50_000, 8), (round + 1).to_le_bytes());
        }
        done.store(true, Ordering::Relaxed);
        for (which, writer) in writers.into_iter().enumerate() {
            let (client, file, round) = writer.join().expect("a thread");
            assert_eq!(read(&client, file, which as u64 * 4096, 8), round.to_le_bytes());
        }
    });
    assert!(!house.processes.is_any_mapped());
}

#[test]
fn what_is_mapped_without_a_server_is_the_same() {
    let processes = Processes::new(mounted());
    let process = processes.enter(1, Credentials::root());
    let open = |flags: OFlags| {
        let request = Request::Open { at: at(b"file"), flags: flags.bits(), mode: 0o644 };
        match process.call(&request, &[], &mut []) {
            Ok(Reply::Opened(open, ..)) => open,
            other => panic!("{other:?}"),
        }
    };
    let file = open(NEW);
    process.call(&Request::Write { open: file, offset: 0 }, b"text", &mut []).expect("written");
    let to_read = open(OFlags::RDONLY);
    let mapped = process.map(to_read, false).expect("mapped");
    let memory = process.map_memory(mapped.ino).expect("its memory");
    assert!(rustix::io::pwrite(&memory, b"x", 0).is_err(), "it is open for reading alone");
    process.map(file, true).expect("mapped again");
    stored(&process.map_memory(mapped.ino).expect("its memory"), 0, b"T");
    process.call(&Request::Sync { open: file, data_only: true }, &[], &mut []).expect("synced");
    let mut out = [0; 4];
    assert_eq!(process.file(file).expect("open").read_at(0, &mut out).expect("read"), 4);
    assert_eq!(&out, b"Text");
    let to_write = open(OFlags::WRONLY);
    assert_eq!(process.map(to_write, false).expect_err("not to be read").errno(), Errno::ACCESS);
    assert_eq!(process.map(OpenId::ROOT, false).expect_err("a directory").errno(), Errno::NODEV);
    let child = process.fork(2);
    process.unmap(mapped.ino).expect("unmapped");
    process.unmap(mapped.ino).expect("unmapped");
    assert_eq!(process.unmap(mapped.ino).expect_err("not mapped any more").errno(), Errno::INVAL);
    assert!(processes.is_any_mapped());
    drop(child);
    assert!(!processes.is_any_mapped());
}

/// `F_SETLKW`.
fn wait_for_lock(
    ask: impl Fn(&Request<'_>) -> unvme_fs::Result<Reply>,
    open: OpenId,
    range: Range,
) -> unvme_fs::Result<()> {
    loop {
        match ask(&Request::AwaitLock { open, range }) {
            Err(unvme_fs::Error::Posix(Errno::AGAIN)) => {}
            done => return done.map(drop),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A page that says which one it is and how often it was written, all over.
fn page(index: u64, round: u64) -> Vec<u8> {
    let mut page = Vec::with_capacity(4096);
    while page.len() < 4096 {
        page.extend_from_slice(&index.to_le_bytes());
        page.extend_from_slice(&round.to_le_bytes());
    }
    page
}

fn round_of(index: u64, bytes: &[u8]) -> u64 {
    let round = u64::from_le_bytes(*bytes[8..].first_chunk().expect("a page"));
    assert!(bytes == page(index, round), "page {index}, round {round} and something else");
    round
}

#[test]
fn a_hit_needs_no_server() {
    let mut house = House::with_shared_pages(1024);
    let client = house.client();
    let (file, _) = open_at(&client, "file", NEW).expect("made");
    write(&client, file, 0, &[1; 10_000]);
    let watched = client.watch(file).expect("watched");
    let mut out = [0; 6000];
    assert_eq!(watched.read(5000, &mut out), Some(5000), "up to the end");
    assert!(out[..5000] == [1; 5000]);
    assert_eq!((watched.read(10_000, &mut out), watched.read(1 << 40, &mut out)), (Some(0), Some(0)));
    let other = house.client();
    let (theirs, _) = open_at(&other, "file", NEW).expect("there");
    write(&other, theirs, 9_999, b"abc");
    assert_eq!(watched.read(9_998, &mut out), Some(4));
    assert_eq!(&out[..4], b"\x01abc");
    ask(&other, &Request::Truncate { at: of(theirs), size: 100 }).expect("cut");
    assert_eq!(watched.read(98, &mut out), Some(2));
    ask(&other, &Request::Truncate { at: of(theirs), size: 10_000 }).expect("longer");
    assert_eq!(watched.read(5000, &mut out), None, "a hole has no pages");
    assert_eq!(read(&client, file, 5000, 6000), [0; 5000]);
    // What is mapped is read by asking; and again without, later.
    let (mapped, memory) = other.map(theirs, true).expect("mapped");
    stored(&memory, 1, b"stored");
    assert_eq!(watched.read(0, &mut out), None);
    assert_eq!(read(&client, file, 0, 8), b"\x01stored\x01");
    other.unmap(mapped.ino).expect("unmapped");
    assert_eq!(watched.read(0, &mut out[..8]), Some(8));
    assert_eq!(&out[..8], b"\x01stored\x01");
    // Closed, and its place given to another file.
    let (next, _) = open_at(&client, "next", NEW).expect("made");
    ask(&client, &Request::Close { open: file }).expect("closed");
    assert_eq!(watched.read(0, &mut out), None);
    let watched_next = client.watch(next).expect("watched");
    assert_eq!((watched.read(0, &mut out), watched_next.read(0, &mut out)), (None, Some(0)));
    assert_eq!(client.watch(file).err().expect("closed").errno(), Errno::BADF);
    write(&client, next, 0, b"next");
    assert_eq!(watched_next.read(0, &mut out), Some(4));
    drop(house.server.take());
    assert_eq!(ask(&client, &Request::Usage), Err(Errno::IO));
    assert_eq!(watched_next.read(0, &mut out), None, "the server is gone");
    let plain = House::new();
    let client = plain.client();
    let (file, _) = open_at(&client, "file", NEW).expect("made");
    assert_eq!(client.watch(file).err().expect("not shared").errno(), Errno::OPNOTSUPP);
}

#[test]
fn what_was_written_is_read_without_asking_while_pages_come_and_go() {
    const PAGES: u64 = 96;
    // Fewer than there are.
    let house = House::with_shared_pages(64);
    let client = house.client();
    let (file, _) = open_at(&client, "file", NEW).expect("made");
    let written: Vec<AtomicU64> = (0..PAGES).map(|_| AtomicU64::new(0)).collect();
    for index in 0..PAGES {
        write(&client, file, index * 4096, &page(index, 0));
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2_u64)
            .map(|reader| {
                let (client, written, done) = (house.client(), &written, &done);
                scope.spawn(move || {
                    let (file, _) = open_at(&client, "file", OFlags::RDONLY).expect("there");
                    let watched = client.watch(file).expect("watched");
                    let (mut out, mut hits, mut turn) = (vec![0; 4096], 0_u64, reader);
                    while !done.load(Ordering::Relaxed) || hits == 0 {
                        turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let index = (turn >> 33) % PAGES;
                        let least = written[index as usize].load(Ordering::SeqCst);
                        let round = match watched.read(index * 4096, &mut out) {
                            Some(bytes) => {
                                hits += 1;
                                assert_eq!(bytes, 4096);
                                round_of(index, &out)
                            }
                            None => round_of(index, &read(&client, file, index * 4096, 4096)),
                        };
                        assert!(round >= least, "page {index}: {round} came after {least}");
                    }
                })
            })
            .collect();
        for round in 1..4000_u64 {
            let index = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
            let index = index % PAGES;
            write(&client, file, index * 4096, &page(index, round));
            written[index as usize].store(round, Ordering::SeqCst);
            if round % 500 == 0 {
                ask(&client, &Request::Sync { open: file, data_only: true }).expect("synced");
            }
        }
        done.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().expect("a thread"));
    });
}

/// A client of the model, and what it has open.
struct Actor {
    client: Client,
    opens: Vec<Opened>,
}

struct Opened {
    open: OpenId,
    /// Which content of the model it has.
    file: usize,
    watched: Option<Watched>,
}

/// What there should be: contents, and names of some of them.
#[derive(Default)]
struct Model {
    contents: Vec<Vec<u8>>,
    names: BTreeMap<String, usize>,
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

impl Actor {
    fn new(client: Client) -> Self {
        Self { client, opens: Vec::new() }
    }

    fn open(&mut self, model: &mut Model, name: &str) {
        let (open, _) = open_at(&self.client, name, NEW).expect("opened");
        let file = *model.names.entry(name.to_owned()).or_insert_with(|| {
            model.contents.push(Vec::new());
            model.contents.len() - 1
        });
        let watched = Some(self.client.watch(open).expect("watched"));
        self.opens.push(Opened { open, file, watched });
    }

    fn change(&self, random: &mut Random, model: &mut Model, which: usize) {
        let Opened { open, file, .. } = self.opens[which];
        let content = &mut model.contents[file];
        let (offset, bytes) = (random.below(20_000) as usize, random.below(9_000) as usize + 1);
        let data = vec![random.below(256) as u8; bytes];
        let mut put = |offset: usize, data: &[u8]| {
            content.resize(content.len().max(offset + data.len()), 0);
            content[offset..offset + data.len()].copy_from_slice(data);
        };
        match random.below(6) {
            0 => {
                ask(&self.client, &Request::Truncate { at: of(open), size: offset as u64 }).expect("cut");
                content.resize(offset, 0);
            }
            1 => {
                let at = content.len();
                let done = self.client.call(&Request::Append { open }, &data, &mut []).expect("appended");
                assert_eq!(done, Reply::Appended(at as u64, bytes as u64));
                content.extend_from_slice(&data);
            }
            2 => {
                let (mapped, memory) = self.client.map(open, true).expect("mapped");
                assert!(loaded(&memory, 0, 100_000) == *content, "mapped");
                if offset < content.len() {
                    let data = &data[..bytes.min(content.len() - offset)];
                    stored(&memory, offset as u64, data);
                    content[offset..offset + data.len()].copy_from_slice(data);
                }
                self.client.unmap(mapped.ino).expect("unmapped");
            }
            _ => {
                write(&self.client, open, offset as u64, &data);
                put(offset, &data);
            }
        }
    }

    fn check(&self, random: &mut Random, model: &Model, which: usize) -> bool {
        let opened = &self.opens[which];
        let content = &model.contents[opened.file];
        let (offset, bytes) = (random.below(25_000) as usize, random.below(12_000) as usize + 1);
        let expected = content.get(offset.min(content.len())..).unwrap_or_default();
        let expected = &expected[..bytes.min(expected.len())];
        let mut out = vec![0; bytes];
        let hit = opened.watched.as_ref().and_then(|watched| watched.read(offset as u64, &mut out));
        if let Some(bytes) = hit {
            assert!(&out[..bytes] == expected, "read without asking");
        }
        assert!(read(&self.client, opened.open, offset as u64, bytes) == expected, "read by asking");
        hit.is_some()
    }

    fn fork(&mut self, other: &Client) {
        let child = self.client.prepare_fork().and_then(|forked| forked.into_child(other)).expect("a child");
        self.client = child;
        for opened in &mut self.opens {
            opened.watched = self.client.watch(opened.open).ok();
        }
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "the seed, to repeat what has failed")]
fn clients_together_are_like_one_program() {
    let seed = std::env::var("UNVME_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1_u64);
    let rounds = if std::env::var_os("UNVME_TEST_EXHAUSTIVE").is_some() { 100_000 } else { 2_500 };
    eprintln!("UNVME_TEST_SEED={seed}");
    let (mut random, mut model) = (Random(seed), Model::default());
    let house = House::with_shared_pages(64);
    let mut actors: Vec<Actor> = (0..3).map(|_| Actor::new(house.client())).collect();
    let (mut hits, mut reads) = (0, 0);
    for _ in 0..rounds {
        let actor = &mut actors[random.below(3) as usize];
        let name = format!("file{}", random.below(4));
        let which = random.below(actor.opens.len().max(1) as u64) as usize;
        match random.below(20) {
            0 | 1 if actor.opens.len() < 6 => actor.open(&mut model, &name),
            2 if !actor.opens.is_empty() => {
                let gone = actor.opens.swap_remove(which);
                ask(&actor.client, &Request::Close { open: gone.open }).expect("closed");
            }
            3 => {
                let done =
                    ask(&actor.client, &Request::Remove { at: at(name.as_bytes()), is_directory: false });
                assert_eq!(done.is_ok(), model.names.remove(&name).is_some());
            }
            4 => {
                let to = format!("file{}", random.below(4));
                let (from, new) = (at(name.as_bytes()), at(to.as_bytes()));
                let done = ask(&actor.client, &Request::Rename { from, to: new, flags: 0 });
                let moved = model.names.remove(&name);
                assert_eq!(done.is_ok(), moved.is_some());
                model.names.extend(moved.map(|file| (to, file)));
            }
            5 => {
                // What `into_child` lets go of is the parent's, which is somebody else here.
                let other = house.client();
                actor.fork(&other);
            }
            6 if !actor.opens.is_empty() => {
                let sync = Request::Sync { open: actor.opens[which].open, data_only: true };
                ask(&actor.client, &sync).expect("synced");
            }
            7..=12 if !actor.opens.is_empty() => actor.change(&mut random, &mut model, which),
            _ if !actor.opens.is_empty() => {
                reads += 1;
                hits += u32::from(actor.check(&mut random, &model, which));
            }
            _ => {}
        }
    }
    assert!(hits > reads / 20, "{hits} of {reads} without asking");
    house.wait_for_opens(actors.iter().map(|actor| actor.opens.len()).sum());
}

#[test]
fn pages_that_are_not_there_are_brought_for_whoever_reads_without_asking() {
    const PAGE: u64 = 4096;
    let house = House::with_shared_pages(64);
    let client = house.client();
    let (open, _) = open_at(&client, "file", NEW).expect("opened");
    let data: Vec<u8> = (0..300 * PAGE).map(|at| (at / PAGE) as u8 ^ 0x5a).collect();
    assert_eq!(write(&client, open, 0, &data), data.len() as u64);
    ask(&client, &Request::Sync { open, data_only: false }).expect("synced");
    let watched = client.watch(open).expect("watched");
    let mut out = vec![0; 10_000];
    let mut brought = 0;
    for nth in 0..300 {
        let offset = nth * 7919 % 290 * PAGE + 100;
        if let Some(bytes) = watched.read(offset, &mut out) {
            assert!(out[..bytes] == data[offset as usize..][..10_000.min(data.len() - offset as usize)]);
            brought += 1;
        }
    }
    assert!(brought > 290, "{brought} of 300");
    // Holes have no pages: there is no more than to ask.
    ask(&client, &Request::Truncate { at: of(open), size: 400 * PAGE }).expect("longer");
    for page in 310..320 {
        assert_eq!(watched.read(page * PAGE, &mut out), None);
        assert!(read(&client, open, page * PAGE, 10_000).iter().all(|&byte| byte == 0));
    }
    // What has been there once is brought again.
    assert_eq!(read(&client, open, 0, 10_000), data[..10_000]);
    assert_eq!(watched.read(0, &mut out), Some(10_000));
    assert_eq!(watched.read(200 * PAGE, &mut out), Some(10_000));
    assert!(out == data[200 * PAGE as usize..][..10_000]);
    // Its end is not read beyond.
    assert_eq!(watched.read(400 * PAGE, &mut out), Some(0));
}
