//! Logical blocks after SIGKILL, on a device kept in files: each is old or new, never a part of both (AWUPF
//! of one block). The redo log is written by hand as docs/disk-format.md describes it, and by processes that
//! are killed.

mod host;

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use host::blocks::{SOURCE, WRITE, WRITE_ZEROES, access, pattern, read, transfer, write};
use host::{Host, MEDIA_BYTES, config};
use tempfile::TempDir;
use unvme_ssd::{FileStore, Ssd, SsdConfig, SsdError};

const LOG: &str = "media.redo";
const MEDIA: &str = "media.img";

fn checked(block_bytes: u32, checksum: bool) -> SsdConfig {
    SsdConfig { checksum, ..config(block_bytes) }
}

fn try_open(folder: &Path, config: &SsdConfig) -> Result<Host, SsdError> {
    let bytes = config.store_bytes()?;
    let store = FileStore::open(folder, bytes)?;
    let mut host = Host::attach(Ssd::new(config.clone(), Box::new(store))?);
    host.enable();
    host.create_queue_pair(1, 64);
    Ok(host)
}

fn open(folder: &Path, config: &SsdConfig) -> Host {
    try_open(folder, config).expect("a device in files")
}

/// Puts a write that was cut off in the log: record `record` has `data` for `sectors` sectors at byte
/// `offset` of the media. Bit 63 of the word says that they are zeroes.
fn put_record(folder: &Path, record: u64, offset: u64, sectors: u64, data: Option<&[u8]>) {
    let log = OpenOptions::new().write(true).open(folder.join(LOG)).expect("a redo log");
    log.write_all_at(data.unwrap_or_default(), 4096 * (record + 1)).expect("its data");
    let zeroes = if data.is_none() { 1 << 63 } else { 0 };
    let word = (offset / 512) | (sectors << 48) | zeroes;
    log.write_all_at(&u64::to_le_bytes(word), 64 * (record + 1)).expect("its word");
}

/// Where in the media file `data` is.
fn find(folder: &Path, data: &[u8]) -> u64 {
    let media = fs::read(folder.join(MEDIA)).expect("media");
    let at = media.chunks(512).position(|sector| sector == &data[..512]).expect("the data");
    at as u64 * 512
}

#[test]
fn a_block_that_was_being_written_when_the_process_was_killed_is_new() {
    for checksum in [false, true] {
        let folder = TempDir::new().expect("a folder");
        let config = checked(4096, checksum);
        let (old, new) = (pattern(1, 4096), pattern(200, 4096));
        let mut host = open(folder.path(), &config);
        write(&mut host, 5, &old, 4096);
        write(&mut host, 6, &old, 4096);
        drop(host);
        let at = find(folder.path(), &old);
        // The first half has arrived.
        let media = OpenOptions::new().write(true).open(folder.path().join(MEDIA)).expect("media");
        media.write_all_at(&new[..2000], at).expect("half a block");
        put_record(folder.path(), 3, at, 8, Some(&new));
        // Block 6 was being zeroed.
        media.write_all_at(&[0; 100], at + 4096).expect("half a block");
        put_record(folder.path(), 62, at + 4096, 8, None);
        let mut host = open(folder.path(), &config);
        assert!(read(&mut host, 5, 4096, 4096) == new, "checksum {checksum}");
        assert!(read(&mut host, 6, 4096, 4096) == [0; 4096], "checksum {checksum}");
        // It is done once: what is written behind it stays.
        write(&mut host, 5, &old, 4096);
        drop(host);
        let mut host = open(folder.path(), &config);
        assert!(read(&mut host, 5, 4096, 4096) == old, "checksum {checksum}");
        assert!(read(&mut host, 6, 4096, 4096) == [0; 4096], "checksum {checksum}");
    }
}

#[test]
fn a_log_from_before_the_machine_started_does_not_count() {
    let folder = TempDir::new().expect("a folder");
    let config = checked(512, false);
    let mut host = open(folder.path(), &config);
    write(&mut host, 9, &pattern(1, 512), 512);
    drop(host);
    put_record(folder.path(), 0, find(folder.path(), &pattern(1, 512)), 1, Some(&pattern(2, 512)));
    let log = OpenOptions::new().write(true).open(folder.path().join(LOG)).expect("a redo log");
    // The boot id, in bytes 32 to 48 of the header.
    log.write_all_at(&[7; 16], 32).expect("the header");
    for _ in 0..2 {
        let mut host = open(folder.path(), &config);
        assert!(read(&mut host, 9, 512, 512) == pattern(1, 512));
    }
}

#[test]
fn a_log_that_is_damaged_or_newer_is_refused_by_name() {
    let folder = TempDir::new().expect("a folder");
    let config = checked(4096, false);
    let mut host = open(folder.path(), &config);
    write(&mut host, 0, &pattern(1, 4096), 4096);
    drop(host);
    let before = fs::read(folder.path().join(MEDIA)).expect("media");
    for (offset, sectors) in [(0, 9), (512, 8), (MEDIA_BYTES, 8), (0, 0x4000 - 1)] {
        put_record(folder.path(), 1, offset, sectors, Some(&pattern(9, 4096)));
        let refused = try_open(folder.path(), &config).map(|_| ()).expect_err("a damaged log");
        assert!(
            matches!(&refused, SsdError::State { reason, .. } if reason.contains("record 1")),
            "{refused}"
        );
    }
    let log = OpenOptions::new().write(true).open(folder.path().join(LOG)).expect("a redo log");
    log.write_all_at(&[2, 0, 0, 0], 8).expect("the version");
    let refused = try_open(folder.path(), &config).map(|_| ()).expect_err("a newer log");
    assert!(matches!(&refused, SsdError::Newer { found: 2, known: 1, .. }), "{refused}");
    assert!(fs::read(folder.path().join(MEDIA)).expect("media") == before, "nothing was changed");
}

/// Set in a process that is to be killed: the folder, the block size and whether there are checksums.
const CHILD: &str = "UNVME_TEST_KILLED";
/// Blocks that are written all the time, of 4 KiB.
const UNITS: u64 = 256;
const KILLS: u64 = 6;

/// Writes blocks until it is killed: each 8 bytes of a block are the number of its write. Does nothing in a
/// process of its own right.
#[test]
fn writes_until_it_is_killed() {
    let Ok(description) = std::env::var(CHILD) else { return };
    let words: Vec<&str> = description.split('|').collect();
    let [folder, block_bytes, checksum] = words[..] else { panic!("{description}") };
    let block_bytes: usize = block_bytes.parse().expect("a number");
    let mut host = open(Path::new(folder), &checked(block_bytes as u32, checksum == "true"));
    let bytes = UNITS as usize * 4096;
    writeln!(std::io::stdout(), "\nwriting").expect("said");
    for number in 1_u64.. {
        let data: Vec<u8> = number.to_le_bytes().repeat(bytes / 8);
        // Also in pieces that meet within a block.
        let source = SOURCE + [0, 1028, 4092][number as usize % 3];
        host.memory.write(source, &data);
        let blocks = (bytes / block_bytes) as u32;
        let command = match number % 4 {
            3 => access(WRITE_ZEROES, 0, blocks),
            _ => transfer(&host, WRITE, 0, blocks, source, bytes),
        };
        assert_eq!(host.io(command), Ok(0));
    }
}

fn kill_some(block_bytes: usize, checksum: bool) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().to_str().expect("UTF-8");
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "writes_until_it_is_killed", "--nocapture"])
            .env(CHILD, format!("{path}|{block_bytes}|{checksum}"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let is_writing = lines.map_while(Result::ok).any(|line| line == "writing");
        assert!(is_writing, "the child has not written");
        std::thread::sleep(Duration::from_micros(3000 + 1700 * kill));
        child.kill().expect("killed");
        child.wait().expect("its end");
        let mut host = open(folder.path(), &checked(block_bytes as u32, checksum));
        for unit in 0..UNITS {
            let blocks = 4096 / block_bytes as u64;
            let data = read(&mut host, unit * blocks, 4096, block_bytes);
            for (index, block) in data.chunks(block_bytes).enumerate() {
                let is_whole = block.chunks(8).all(|word| word == &block[..8]);
                assert!(is_whole, "unit {unit}, block {index}, kill {kill}: a part of two writes");
            }
        }
    }
}

#[test]
fn blocks_of_4096_bytes_are_whole_after_kills() {
    kill_some(4096, false);
}

#[test]
fn blocks_of_512_bytes_are_whole_after_kills() {
    kill_some(512, false);
}

#[test]
fn blocks_with_checksums_are_whole_and_fit_them_after_kills() {
    kill_some(4096, true);
}

#[test]
fn a_log_that_cannot_be_used_is_an_error_of_opening() {
    let folder = TempDir::new().expect("a folder");
    let config = checked(4096, true);
    // It is not a device without a log.
    fs::create_dir(folder.path().join(LOG)).expect("a folder");
    let refused = try_open(folder.path(), &config).map(|_| ()).expect_err("no log");
    assert!(matches!(&refused, SsdError::File { path, .. } if path.ends_with(LOG)), "{refused}");
    fs::remove_dir(folder.path().join(LOG)).expect("removed");
    drop(open(folder.path(), &config));
    assert_eq!(File::open(folder.path().join(LOG)).unwrap().metadata().unwrap().len(), 64 * 4096);
}
