//! Who comes to a shared file system, in which order, and what those leave who go.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use tempfile::TempDir;
use unvme::{Block, Device, Nsid, OpenOptions, open};
use unvme_fs::calls::{At, OpenId, Process, Processes, Range, Reply, Request};
use unvme_fs::share::{Client, Identity, Reserved, Server, ServerOptions, end_idle_server};
use unvme_fs::{
    CacheOptions, Credentials, Errno, Error, FileSystem, MakeOptions, MountOptions, Policy, make,
};

const NEW: OFlags = OFlags::RDWR.union(OFlags::CREATE);
const ALL: Range = Range { is_of_open: false, is_exclusive: true, start: 0, end: u64::MAX };

fn device() -> (Device, Block) {
    let device = open("mem:block:64M", &OpenOptions::default()).expect("a device");
    let block = device.block(Nsid(1)).expect("a namespace");
    make(&block, device.name(), &MakeOptions::default(), |_, _| ()).expect("a file system");
    (device, block)
}

fn processes() -> Arc<Processes> {
    let (device, block) = device();
    Processes::new(FileSystem::mount(&block, device.name(), &MountOptions::default()).expect("mounted"))
}

fn served(reserved: Option<Reserved>) -> (Server, Arc<Processes>, TempDir) {
    let (processes, folder) = (processes(), tempfile::tempdir().expect("a folder"));
    let options = ServerOptions { reserved, ..ServerOptions::default() };
    let server = Server::start(Arc::clone(&processes), &socket(&folder), &options).expect("a server");
    (server, processes, folder)
}

fn socket(folder: &TempDir) -> PathBuf {
    folder.path().join("socket")
}

fn client(folder: &TempDir) -> Client {
    Client::connect(&socket(folder), Identity::own()).expect("connected")
}

fn open_request(path: &[u8], flags: OFlags) -> Request<'_> {
    Request::Open { at: At { base: OpenId::ROOT, path, follows: true }, flags: flags.bits(), mode: 0o644 }
}

fn opened(reply: unvme_fs::Result<Reply>) -> OpenId {
    match reply {
        Ok(Reply::Opened(open, ..)) => open,
        other => panic!("{other:?}"),
    }
}

fn open_at(client: &Client, path: &str) -> OpenId {
    opened(client.call(&open_request(path.as_bytes(), NEW), &[], &mut []))
}

fn open_in(process: &Process, path: &str, flags: OFlags) -> OpenId {
    opened(process.call(&open_request(path.as_bytes(), flags), &[], &mut []))
}

fn ask(client: &Client, request: &Request<'_>) -> Result<Reply, Errno> {
    client.call(request, &[], &mut []).map_err(|e| e.errno())
}

fn flock(client: &Client, open: OpenId) -> Result<Reply, Errno> {
    ask(client, &Request::Flock { open, is_exclusive: Some(true) })
}

fn size_of(process: &Process, open: OpenId) -> u64 {
    process.file(open).expect("open").attributes().size
}

fn stored(memory: &OwnedFd, data: &[u8]) {
    assert_eq!(rustix::io::pwrite(memory, data, 0), Ok(data.len()));
}

#[test]
fn what_is_not_kept_is_closed_with_its_locks() {
    let (_server, processes, folder) = served(None);
    let (one, two) = (client(&folder), client(&folder));
    let (kept, gone) = (open_at(&one, "kept"), open_at(&one, "gone"));
    for open in [kept, gone] {
        assert_eq!(flock(&one, open), Ok(Reply::Done));
        assert_eq!(ask(&one, &Request::Lock { open, range: ALL }), Ok(Reply::Done));
    }
    let unnamed = open_at(&one, "unnamed");
    let path = At { base: OpenId::ROOT, path: b"unnamed", follows: false };
    assert_eq!(ask(&one, &Request::Remove { at: path, is_directory: false }), Ok(Reply::Done));
    one.keep_only(&[kept]).expect("kept");
    assert_eq!(processes.opens(), 1);
    assert_eq!(ask(&one, &Request::Sync { open: gone, data_only: true }), Err(Errno::BADF));
    assert_eq!(ask(&one, &Request::Sync { open: unnamed, data_only: true }), Err(Errno::BADF));
    let (theirs, free) = (open_at(&two, "kept"), open_at(&two, "gone"));
    assert_eq!(flock(&two, theirs), Err(Errno::AGAIN));
    assert_eq!(ask(&two, &Request::Lock { open: theirs, range: ALL }), Err(Errno::AGAIN));
    assert_eq!(flock(&two, free), Ok(Reply::Done));
    assert_eq!(ask(&two, &Request::Lock { open: free, range: ALL }), Ok(Reply::Done));
}

#[test]
fn who_comes_after_another_one_has_gone_finds_its_locks_given_back() {
    let (_server, _, folder) = served(None);
    for _ in 0..50 {
        let one = client(&folder);
        let file = open_at(&one, "file");
        let (_, memory) = one.map(file, true).expect("mapped");
        stored(&memory, b"text");
        assert_eq!(flock(&one, file), Ok(Reply::Done));
        drop(one);
        let two = client(&folder);
        let same = open_at(&two, "file");
        assert_eq!(flock(&two, same), Ok(Reply::Done));
    }
}

#[test]
fn two_that_close_a_file_at_a_time_close_it_once() {
    let processes = processes();
    let parent = processes.enter(1, Credentials::root());
    for _ in 0..2000 {
        let open = open_in(&parent, "file", NEW);
        let child = parent.fork(2);
        let begin = Barrier::new(2);
        let done: Vec<bool> = std::thread::scope(|scope| {
            let close = || {
                begin.wait();
                parent.call(&Request::Close { open }, &[], &mut []).is_ok()
            };
            [scope.spawn(close), scope.spawn(close)].map(|thread| thread.join().expect("closed")).into()
        });
        assert_eq!(done.iter().filter(|&&done| done).count(), 1);
        child.call(&Request::Sync { open, data_only: true }, &[], &mut []).expect("the child has it");
    }
}

#[test]
fn a_mapped_file_that_is_opened_to_be_cut_stays_cut() {
    const BYTES: usize = 4 << 20;
    let processes = processes();
    let (one, two) = (processes.enter(1, Credentials::root()), processes.enter(2, Credentials::root()));
    let file = open_in(&one, "file", NEW);
    let mapped = one.map(file, true).expect("mapped");
    let memory = one.map_memory(mapped.ino).expect("its memory");
    let data = vec![7; BYTES];
    for round in 0..30 {
        one.file(file).expect("open").truncate(0).expect("cut");
        one.call(&Request::Allocate { open: file, mode: 0, offset: 0, bytes: BYTES as u64 }, &[], &mut [])
            .expect("as long as before");
        stored(&memory, &data);
        let begin = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begin.wait();
                one.sync_map(mapped.ino).expect("written");
            });
            begin.wait();
            std::thread::sleep(Duration::from_micros(round * 100));
            let cut = open_in(&two, "file", OFlags::RDWR | OFlags::TRUNC);
            two.call(&Request::Close { open: cut }, &[], &mut []).expect("closed");
        });
        assert_eq!(size_of(&one, file), 0, "round {round}");
    }
}

#[test]
fn what_is_not_mapped_is_not_written_back() {
    let (_server, processes, folder) = served(None);
    let (one, two) = (client(&folder), client(&folder));
    let file = open_at(&one, "file");
    let (mapped, _memory) = one.map(file, true).expect("mapped");
    one.sync_map(mapped.ino).expect("written");
    let errno = |done: unvme_fs::Result<()>| done.expect_err("it is not mapped").errno();
    assert_eq!(errno(two.sync_map(mapped.ino)), Errno::INVAL);
    assert_eq!(errno(two.store_to(mapped.ino)), Errno::INVAL);
    one.unmap(mapped.ino).expect("unmapped");
    assert_eq!(errno(one.sync_map(mapped.ino)), Errno::INVAL);
    assert_eq!(errno(processes.enter(3, Credentials::root()).sync_map(mapped.ino)), Errno::INVAL);
}

#[test]
fn a_file_that_is_mapped_to_be_read_alone_is_not_compared() {
    let processes = processes();
    let process = processes.enter(1, Credentials::root());
    let file = open_in(&process, "file", NEW);
    process.call(&Request::Write { open: file, offset: 0 }, b"file", &mut []).expect("written");
    let mapped = process.map(file, false).expect("mapped");
    let memory = process.map_memory(mapped.ino).expect("its memory");
    // Nobody does so who has said that he does not: it tells whether somebody looks.
    stored(&memory, b"disk");
    let there = || {
        let mut out = [0; 4];
        process.file(file).expect("open").read_at(0, &mut out).expect("read");
        out
    };
    process.call(&Request::Sync { open: file, data_only: true }, &[], &mut []).expect("synced");
    assert_eq!(&there(), b"file");
    process.store_to(mapped.ino).expect("it was open for writing");
    process.call(&Request::Sync { open: file, data_only: true }, &[], &mut []).expect("synced");
    assert_eq!(&there(), b"disk");
    let to_read = open_in(&process, "file", OFlags::RDONLY);
    assert_eq!(process.map(to_read, true).expect_err("it may not be").errno(), Errno::ACCESS);
}

#[test]
fn who_is_awaited_has_a_limit() {
    // A process that does not come.
    let reserved = Reserved { pid: u32::MAX, limit: Duration::from_millis(50) };
    let (_server, _, folder) = served(Some(reserved));
    client(&folder).ping().expect("let in");
}

#[test]
fn who_is_awaited_is_let_in_and_others_when_it_has_gone() {
    let reserved = Reserved { pid: std::process::id(), limit: Duration::from_secs(3600) };
    let (server, _, folder) = served(Some(reserved));
    let first = client(&folder);
    first.ping().expect("let in");
    drop(first);
    let start = Instant::now();
    while server.clients() != 0 {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
    client(&folder).ping().expect("let in again");
}

#[test]
fn a_file_system_that_is_mounted_is_not_made_anew() {
    let (device, block) = device();
    let fs = FileSystem::mount(&block, device.name(), &MountOptions::default()).expect("mounted");
    let again = || make(&block, device.name(), &MakeOptions::default(), |_, _| ());
    match again() {
        Err(Error::Busy(who)) => assert!(who.contains(&std::process::id().to_string()), "{who}"),
        other => panic!("{other:?}"),
    }
    fs.root().expect("it is as it was").create_unnamed(0o600, &Credentials::root()).map(drop).expect("made");
    fs.unmount().expect("unmounted");
    drop(fs);
    again().expect("nobody has it");
}

#[test]
fn a_server_that_ends_in_order_is_not_started_again() {
    let (server, _, folder) = served(None);
    let client = client(&folder);
    let started = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&started);
    client.start_when_killed(Arc::new(move |_hold| {
        count.fetch_add(1, Ordering::SeqCst);
        false
    }));
    drop(server);
    for _ in 0..5 {
        assert_eq!(client.ping().expect_err("it is gone").errno(), Errno::IO);
        std::thread::sleep(Duration::from_millis(30));
    }
    assert_eq!(started.load(Ordering::SeqCst), 0);
}

#[test]
fn nobody_waits_for_a_call_that_takes_long() {
    let ((device, block), folder) = (device(), tempfile::tempdir().expect("a folder"));
    // What is read comes from the device.
    let cache = CacheOptions { policy: Policy::None, ..CacheOptions::default() };
    let options = MountOptions { cache, ..MountOptions::default() };
    let fs = FileSystem::mount(&block, device.name(), &options).expect("mounted");
    let few = ServerOptions { workers: 3, ..ServerOptions::default() };
    let _server = Server::start(Processes::new(fs), &socket(&folder), &few).expect("a server");
    let (slow, other) = (client(&folder), client(&folder));
    let open = open_at(&slow, "file");
    slow.call(&Request::Write { open, offset: 0 }, &[1; 4096], &mut []).expect("written");
    other.ping().expect("there");
    let rule = r#"{"match":{"opcode":"read"},"act":{"delay":"3s"}}"#;
    device.add_faults(rule).expect("a rule");
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut out = [0; 4096];
                slow.call(&Request::Read { open, offset: 0 }, &[], &mut out).expect("read");
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        // Both are under way, most likely.
        std::thread::sleep(Duration::from_millis(200));
        for _ in 0..20 {
            // The worker that is left sleeps each time, and would sleep for a second.
            std::thread::sleep(Duration::from_millis(2));
            other.ping().expect("answered");
        }
        assert_eq!(done.load(Ordering::SeqCst), 0, "somebody waited for them");
    });
}

#[test]
fn what_a_full_device_has_no_room_for_is_not_said_to_be_synced() {
    let processes = processes();
    let process = processes.enter(1, Credentials::root());
    let (open, fill) = (open_in(&process, "mapped", NEW), open_in(&process, "fill", NEW));
    let bytes = 256_usize << 10;
    let at = At { base: open, path: b"", follows: true };
    process.call(&Request::Truncate { at, size: bytes as u64 }, &[], &mut []).expect("a hole");
    let mapped = process.map(open, true).expect("mapped");
    stored(&process.map_memory(mapped.ino).expect("its memory"), &vec![1; bytes]);
    // What is left has room for a part of it.
    let mut end = 0;
    let write = |at: u64, data: &[u8]| match process.call(
        &Request::Write { open: fill, offset: at },
        data,
        &mut [],
    ) {
        Ok(Reply::Number(written)) => Some(written),
        _ => None,
    };
    while let Some(written) = write(end, &[2; 64 << 10]) {
        end += written;
    }
    let at = At { base: fill, path: b"", follows: true };
    process.call(&Request::Truncate { at, size: end - (100 << 10) }, &[], &mut []).expect("cut");
    process.call(&Request::Sync { open: fill, data_only: false }, &[], &mut []).expect("synced");
    let failed = process.sync_map(mapped.ino).map_err(|e| e.errno());
    assert_eq!(failed, Err(Errno::NOSPC));
    // With room it is all there.
    process.call(&Request::Truncate { at, size: 0 }, &[], &mut []).expect("cut");
    process.call(&Request::Sync { open: fill, data_only: false }, &[], &mut []).expect("synced");
    process.sync_map(mapped.ino).expect("synced");
    let mut out = vec![0; bytes];
    assert_eq!(process.file(open).expect("open").read_at(0, &mut out).expect("read"), bytes);
    assert!(out.iter().all(|&byte| byte == 1));
}

#[test]
fn a_server_without_clients_ends_before_its_time_when_it_is_asked() {
    const IDLE: Duration = Duration::from_secs(60);
    let (server, _processes, folder) = served(None);
    let first = client(&folder);
    let ended = std::thread::spawn(move || server.wait_idle(IDLE));
    end_idle_server(&socket(&folder));
    first.ping().expect("it serves");
    drop(first);
    let begun = Instant::now();
    while !ended.is_finished() && begun.elapsed() < IDLE {
        end_idle_server(&socket(&folder));
    }
    assert!(begun.elapsed() < IDLE, "it has waited for clients");
    ended.join().expect("ended");
}

#[test]
fn a_server_that_stays_without_clients_does_not_end_when_it_is_asked() {
    let (server, _processes, folder) = served(None);
    let stopper = server.stopper();
    let ended = std::thread::spawn(move || server.wait_idle(Duration::MAX));
    end_idle_server(&socket(&folder));
    client(&folder).ping().expect("it serves");
    stopper.stop();
    ended.join().expect("ended");
    // No process has it any more: there is nothing to wait for.
    end_idle_server(&socket(&folder));
}
