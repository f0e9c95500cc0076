//! Mapped files: what is loaded, what is written back, and what programs find in them.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::OFlags;
use tempfile::TempDir;
use unvme::{Nsid, OpenOptions, open};
use unvme_fs::calls::{At, OpenId, Processes, Reply, Request};
use unvme_fs::share::{Client, Identity, Server, ServerOptions};
use unvme_fs::{Attributes, Errno, FileSystem, MakeOptions, MountOptions, make};

const NEW: OFlags = OFlags::RDWR.union(OFlags::CREATE);
const TIB: u64 = 1 << 40;

/// A server, and one of its clients with an open file.
struct House {
    client: Client,
    file: OpenId,
    socket: PathBuf,
    _server: Server,
    _folder: TempDir,
}

fn at(path: &[u8]) -> At<'_> {
    At { base: OpenId::ROOT, path, follows: true }
}

fn of(base: OpenId) -> At<'static> {
    At { base, path: b"", follows: true }
}

fn ask(client: &Client, request: &Request<'_>) -> Result<Reply, Errno> {
    client.call(request, &[], &mut []).map_err(|e| e.errno())
}

fn open_file(client: &Client, flags: OFlags) -> OpenId {
    match ask(client, &Request::Open { at: at(b"file"), flags: flags.bits(), mode: 0o644 }) {
        Ok(Reply::Opened(open, ..)) => open,
        other => panic!("{other:?}"),
    }
}

impl House {
    fn new() -> Self {
        let device = open("mem:block:64M", &OpenOptions::default()).expect("a device");
        let block = device.block(Nsid(1)).expect("a namespace");
        make(&block, device.name(), &MakeOptions::default(), |_, _| ()).expect("a file system");
        let fs = FileSystem::mount(&block, device.name(), &MountOptions::default()).expect("mounted");
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("socket");
        let server = Server::start(Processes::new(fs), &socket, &ServerOptions::default());
        let server = server.expect("a server");
        let client = Client::connect(&socket, Identity::own()).expect("connected");
        let file = open_file(&client, NEW);
        Self { client, file, socket, _server: server, _folder: folder }
    }

    fn another(&self) -> Client {
        Client::connect(&self.socket, Identity::own()).expect("connected")
    }

    fn write(&self, offset: u64, data: &[u8]) {
        let written = self.client.call(&Request::Write { open: self.file, offset }, data, &mut []);
        assert_eq!(written.expect("written"), Reply::Number(data.len() as u64));
    }

    fn read(&self, offset: u64, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        match self.client.call(&Request::Read { open: self.file, offset }, &[], &mut out) {
            Ok(Reply::Number(read)) => out.truncate(read as usize),
            other => panic!("{other:?}"),
        }
        out
    }

    fn resize(&self, size: u64) {
        ask(&self.client, &Request::Truncate { at: of(self.file), size }).expect("resized");
    }

    fn attributes(&self) -> Attributes {
        match ask(&self.client, &Request::Attributes { at: of(self.file) }) {
            Ok(Reply::Attributes(found)) => found,
            other => panic!("{other:?}"),
        }
    }
}

fn stored(memory: &OwnedFd, offset: u64, data: &[u8]) {
    assert_eq!(rustix::io::pwrite(memory, data, offset), Ok(data.len()));
}

fn seen(memory: &OwnedFd, offset: u64, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    let read = rustix::io::pread(memory, &mut out, offset).expect("read");
    out.truncate(read);
    out
}

/// Bytes of memory.
fn allocated(memory: &OwnedFd) -> u64 {
    rustix::fs::fstat(memory).expect("there").st_blocks as u64 * 512
}

/// A file of 1 TiB with three pages of data: reading it whole would take half an hour.
#[test]
fn holes_of_a_mapped_file_cost_neither_time_nor_memory_nor_blocks() {
    let house = House::new();
    house.resize(TIB);
    for offset in [0, 5 << 30, TIB - 4096] {
        house.write(offset, b"data");
    }
    let before = house.attributes();
    let (mapped, memory) = house.client.map(house.file, true).expect("mapped");
    assert_eq!(seen(&memory, TIB - 4096, 5), b"data\0");
    assert_eq!(seen(&memory, 5 << 30, 5), b"data\0");
    assert!(allocated(&memory) < 1 << 20, "{} bytes", allocated(&memory));
    // Pages of zeros that a program has touched are no data.
    stored(&memory, 1 << 30, &[0; 1 << 20]);
    stored(&memory, 7 << 30, b"stored");
    house.client.sync_map(mapped.ino).expect("written");
    assert_eq!(house.read(7 << 30, 6), b"stored");
    house.client.unmap(mapped.ino).expect("unmapped");
    assert_eq!(house.read(7 << 30, 6), b"stored");
    let grown = house.attributes().sectors - before.sectors;
    assert!(grown <= 64, "{grown} sectors for one page");
}

#[test]
fn what_is_cleared_of_a_mapped_file_is_cleared_at_any_length() {
    let house = House::new();
    house.resize(TIB);
    house.write(100, &[7; 10_000]);
    let (_, memory) = house.client.map(house.file, true).expect("mapped");
    stored(&memory, 1 << 30, b"stored");
    let hole = Request::Allocate { open: house.file, mode: 3, offset: 1000, bytes: TIB };
    ask(&house.client, &hole).expect("a hole");
    assert_eq!(seen(&memory, 999, 2), [7, 0]);
    assert_eq!(seen(&memory, 1 << 30, 6), [0; 6]);
    assert_eq!(house.read(999, 2), [7, 0]);
}

#[test]
fn a_range_of_a_file_is_mapped_and_the_rest_is_read_from_the_file() {
    let house = House::new();
    house.write(0, &[1; 8 << 20]);
    let (mapped, memory) = house.client.map_range(house.file, true, 4096..4097).expect("mapped");
    assert_eq!(allocated(&memory), 4096);
    assert_eq!(seen(&memory, 4096, 2), [1, 1]);
    stored(&memory, 4096 + 10, b"stored");
    // Over both: written, read, and copied.
    house.write(8190, b"both");
    assert_eq!(seen(&memory, 8190, 2), b"bo");
    assert_eq!(house.read(8189, 6), b"\x01both\x01");
    assert_eq!(house.read(4096 + 9, 8), b"\x01stored\x01");
    let copy = Request::Copy { open: house.file, offset: 0, to: house.file, to_offset: 1 << 20, bytes: 8192 };
    assert_eq!(ask(&house.client, &copy), Ok(Reply::Number(8192)));
    assert_eq!(house.read((1 << 20) + 4096 + 9, 8), b"\x01stored\x01");
    // More of it, beyond the end as well, where the file grows.
    house.client.load_map(mapped.ino, 0..9 << 20).expect("loaded");
    assert_eq!(seen(&memory, 8190, 5), b"both\x01");
    house.write(8 << 20, b"grown");
    assert_eq!(seen(&memory, 8 << 20, 10), b"grown");
    stored(&memory, (8 << 20) + 1, b"RO");
    house.client.unmap(mapped.ino).expect("unmapped");
    assert_eq!(house.read(8 << 20, 10), b"gROwn");
    assert_eq!(house.client.load_map(mapped.ino, 0..1).expect_err("not mapped").errno(), Errno::INVAL);
}

#[test]
fn a_mapping_that_is_only_read_writes_nothing_back() {
    let house = House::new();
    house.write(0, &[1; 100_000]);
    let reader = open_file(&house.client, OFlags::RDONLY);
    let before = house.attributes();
    let (mapped, memory) = house.client.map(reader, false).expect("mapped");
    assert_eq!(seen(&memory, 99_999, 2), [1]);
    house.client.sync_map(mapped.ino).expect("synced");
    house.client.unmap(mapped.ino).expect("unmapped");
    let after = house.attributes();
    assert_eq!((after.modified, after.changed), (before.modified, before.changed));
}

/// The end of one mapping meets the beginning of the next: what either has stored is in the file.
#[test]
fn nothing_stored_is_lost_when_mappings_end_while_others_begin() {
    const ROUNDS: u64 = 300;
    let house = House::new();
    house.resize(1 << 20);
    let threads: Vec<_> = (0..3_u64)
        .map(|which| {
            let client = house.another();
            std::thread::spawn(move || {
                let file = open_file(&client, NEW);
                for round in 1..=ROUNDS {
                    let (mapped, memory) = client.map(file, true).expect("mapped");
                    let last = seen(&memory, which * 300_000, 8);
                    assert_eq!(last, (round - 1).to_le_bytes(), "of thread {which}");
                    stored(&memory, which * 300_000, &round.to_le_bytes());
                    client.unmap(mapped.ino).expect("unmapped");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    for which in 0..3 {
        assert_eq!(house.read(which * 300_000, 8), ROUNDS.to_le_bytes());
    }
}

/// POSIX, `mmap`: what is stored beyond the end of a file, in its last page, is no content of it.
#[test]
fn what_is_stored_beyond_the_end_is_not_in_a_file_that_grows() {
    let grow: [fn(&House); 5] = [
        |house| house.resize(5000),
        |house| house.write(4990, b"end"),
        |house| {
            let append = Request::Append { open: house.file };
            house.client.call(&append, &[b'a'; 4000], &mut []).expect("appended");
        },
        |house| {
            let reserve = Request::Allocate { open: house.file, mode: 0, offset: 0, bytes: 5000 };
            ask(&house.client, &reserve).expect("reserved");
        },
        |house| {
            let to = house.file;
            house.write(0, b"x");
            let copy = Request::Copy { open: to, offset: 0, to, to_offset: 4990, bytes: 1 };
            ask(&house.client, &copy).expect("copied");
        },
    ];
    for (which, grow) in grow.iter().enumerate() {
        for is_written_back in [false, true] {
            let house = House::new();
            house.write(0, b"abc");
            let (mapped, memory) = house.client.map_range(house.file, true, 0..8192).expect("mapped");
            stored(&memory, 10, b"X");
            if is_written_back {
                house.client.sync_map(mapped.ino).expect("written");
            }
            grow(&house);
            let expected = if which == 2 { b'a' } else { 0 };
            assert_eq!(house.read(10, 1), [expected], "{which}, {is_written_back}");
            assert_eq!(seen(&memory, 10, 1), [expected], "{which}, {is_written_back}");
            house.client.unmap(mapped.ino).expect("unmapped");
            assert_eq!(house.read(10, 1), [expected], "{which}, {is_written_back}");
        }
    }
}

/// The kernel checks the permissions of the memory itself when its descriptor is opened again by way of
/// `/proc/self/fd`.
#[test]
fn memory_for_a_reader_cannot_be_opened_for_writing() {
    let house = House::new();
    house.write(0, b"content");
    let reader = open_file(&house.client, OFlags::RDONLY);
    let (_, memory) = house.client.map(reader, false).expect("mapped");
    assert_eq!(rustix::fs::fstat(&memory).expect("there").st_mode & 0o222, 0, "no user may write to it");
    assert_eq!(rustix::io::pwrite(&memory, b"x", 0), Err(Errno::BADF));
    // And a writer cannot have it refuse what others write.
    let (_, writable) = house.client.map(house.file, true).expect("mapped");
    stored(&writable, 0, b"C");
    let seals = rustix::fs::SealFlags::WRITE;
    assert_eq!(rustix::fs::fcntl_add_seals(&writable, seals), Err(Errno::PERM));
    assert_eq!(house.read(0, 7), b"Content");
}
