//! The file system.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};
use unvme_fs::{Credentials, FileSystem, NewFile};

use crate::cores;
use crate::fs_load::{
    FileLoad, Kernel, Mounted, PageReads, Phases, again, full_file, many_files, many_kernel_files, mounted,
};
use crate::load::{Load, PAGE_BYTES, memory_device};
use crate::pairs::{Effort, interleave, median};
use crate::row::{Better, Row};

pub(crate) const READ: &str = "fs.read.vs_block";
pub(crate) const WRITE: &str = "fs.write.vs_block";
pub(crate) const TWO_CORES_READ: &str = "fs.two_cores.read";
pub(crate) const TWO_CORES_WRITE: &str = "fs.two_cores.write";
pub(crate) const TWO_CORES_CREATE: &str = "fs.two_cores.create";
pub(crate) const HIT: &str = "fs.hit.vs_kernel";
pub(crate) const HOT: &str = "fs.hit.hot";
pub(crate) const CREATE: &str = "fs.create.vs_ext4";
pub(crate) const UNLINK: &str = "fs.unlink.vs_ext4";
pub(crate) const STAT: &str = "fs.stat.vs_ext4";
pub(crate) const FSYNC: &str = "fs.fsync.vs_ext4";
pub(crate) const MOUNT: &str = "fs.mount";

/// Calls outstanding.
const DEPTH: u16 = 32;

/// Room for metadata beside a file.
const BESIDE: u64 = 64 << 20;

/// Why a row cannot be measured here: it is tried whether the kernel's file system can be mounted.
pub(crate) fn obstacle(id: &str) -> Option<String> {
    let tried = match id {
        HIT | HOT => Kernel::tmpfs(1 << 20),
        CREATE | UNLINK | STAT | FSYNC => Kernel::ext4(16 << 20),
        _ => return None,
    };
    tried.err().map(|e| format!("{e:#}"))
}

fn higher(id: &'static str, value: f64, target: f64, note: String) -> Row {
    Row { id, value, unit: "x", target, better: Better::Higher, note }
}

/// Random reads of a file, against the same of the device.
pub(crate) fn read(effort: &Effort) -> Result<Row> {
    let (ratio, note) = versus_block(effort, false)?;
    Ok(higher(READ, ratio, 0.92, note))
}

/// Random overwrites in a file, against the same of the device.
pub(crate) fn write(effort: &Effort) -> Result<Row> {
    let (ratio, note) = versus_block(effort, true)?;
    Ok(higher(WRITE, ratio, 0.9, note))
}

fn versus_block(effort: &Effort, write: bool) -> Result<(f64, String)> {
    cores::on_first(|core| {
        let bytes = effort.media_bytes;
        let Mounted { fs, device } = mounted(bytes + BESIDE, 16 << 20, None)?;
        let file = full_file(&fs, bytes)?;
        // Of the same size: its memory is as far away.
        let (other, _) = memory_device(bytes + BESIDE)?;
        let mut ours = FileLoad::new(&fs, &file, DEPTH, write)?;
        let mut bare = Load::new(&other, DEPTH, write)?.within(bytes / PAGE_BYTES as u64);
        let pairs = interleave(effort, || ours.rate(effort.side), || bare.rate(effort.side))?;
        drop(device);
        Ok((pairs.ratio, format!("{}; depth {DEPTH}, one thread on core {core}", pairs.rates())))
    })
}

/// Two threads against one; the lone one alternates between the cores.
fn two_cores(
    effort: &Effort,
    id: &'static str,
    target: f64,
    one: impl Fn(usize) -> Result<f64> + Sync,
) -> Result<Row> {
    let pair = cores::pair()?;
    let before = cores::round_trip_ns(pair)?;
    let together = || {
        let start = Barrier::new(pair.len());
        thread::scope(|scope| {
            let threads = [0, 1].map(|index| {
                let (start, one) = (&start, &one);
                scope.spawn(move || {
                    let pinned = cores::pin(pair[index]);
                    start.wait();
                    pinned?;
                    one(index)
                })
            });
            threads.into_iter().map(cores::join).sum::<Result<f64>>()
        })
    };
    let mut turn = 0;
    let alone = || {
        turn += 1;
        cores::on(pair[turn % 2], || one(turn % 2))
    };
    let pairs = interleave(effort, together, alone)?;
    let after = cores::round_trip_ns(pair)?;
    let note = format!(
        "{}; a thread each on cores {} and {}; a cache line's round trip takes {before:.0} ns before, \
         {after:.0} ns after",
        pairs.rates(),
        pair[0],
        pair[1]
    );
    Ok(higher(id, pairs.ratio, target, note))
}

fn two_cores_data(effort: &Effort, id: &'static str, target: f64, write: bool) -> Result<Row> {
    let bytes = effort.media_bytes / 2;
    let mounted = mounted(bytes + BESIDE, 16 << 20, None)?;
    let file = full_file(&mounted.fs, bytes)?;
    two_cores(effort, id, target, |_| FileLoad::new(&mounted.fs, &file, DEPTH, write)?.rate(effort.side))
}

pub(crate) fn two_cores_read(effort: &Effort) -> Result<Row> {
    two_cores_data(effort, TWO_CORES_READ, 1.9, false)
}

pub(crate) fn two_cores_write(effort: &Effort) -> Result<Row> {
    two_cores_data(effort, TWO_CORES_WRITE, 1.8, true)
}

/// Files that are created in a directory of each thread's own, and removed again outside of the time.
pub(crate) fn two_cores_create(effort: &Effort) -> Result<Row> {
    let mounted = mounted(effort.media_bytes, 64 << 20, Some(4096))?;
    let fs = &mounted.fs;
    two_cores(effort, TWO_CORES_CREATE, 1.6, |index| create_for_a_while(fs, index, effort))
}

fn create_for_a_while(fs: &FileSystem, index: usize, effort: &Effort) -> Result<f64> {
    let who = Credentials::root();
    let name = format!("thread{index}");
    let directory = fs.root()?.create(name.as_bytes(), &NewFile::directory(0o755), &who)?;
    let mut made = 0u64;
    let rate = crate::pairs::rate(effort.side, || {
        for _ in 0..64 {
            directory.create(format!("f{made}").as_bytes(), &NewFile::regular(0o644), &who)?;
            made += 1;
        }
        Ok(64)
    })?;
    for at in 0..made {
        directory.unlink(format!("f{at}").as_bytes(), &who)?;
    }
    fs.root()?.rmdir(name.as_bytes(), &who)?;
    fs.sync()?;
    Ok(rate)
}

fn hits(effort: &Effort, id: &'static str, bytes: u64, target: f64) -> Result<Row> {
    cores::on_first(|core| {
        let mounted = mounted(bytes + BESIDE, (bytes + bytes / 4) as usize, None)?;
        let file = full_file(&mounted.fs, bytes)?;
        let tmpfs = Kernel::tmpfs(bytes + (1 << 20))?;
        let path = tmpfs.path().join("file");
        std::fs::write(&path, vec![0x5a; bytes as usize])?;
        let kernel = File::open(&path)?;
        let mut ours = PageReads::new(bytes, |at, page| Ok(file.read_at(at, page)?));
        let mut theirs = PageReads::new(bytes, |at, page| Ok(kernel.read_at(page, at)?));
        ours.touch()?;
        theirs.touch()?;
        let pairs = interleave(effort, || ours.rate(effort.side), || theirs.rate(effort.side))?;
        let note = format!("{}; {} MiB, one thread on core {core}", pairs.rates(), bytes >> 20);
        Ok(higher(id, pairs.ratio, target, note))
    })
}

/// Reads from the page cache, against the kernel's from a tmpfs.
pub(crate) fn hit(effort: &Effort) -> Result<Row> {
    hits(effort, HIT, effort.media_bytes / 2, 1.4)
}

/// The same where the processor's caches hold all of it.
pub(crate) fn hot(effort: &Effort) -> Result<Row> {
    hits(effort, HOT, 4 << 20, 3.0)
}

/// Many small files, ours and ext4's, in turn: pairs of phases.
fn small_files(effort: &Effort) -> Result<(Vec<(Phases, Phases)>, u64)> {
    let (files, bytes, pairs) = if effort.smoke { (500, 64 << 20, 1) } else { (100_000, 2 << 30, 3) };
    let ours = mounted(bytes, 1 << 30, None)?;
    let ext4 = Kernel::ext4(bytes)?;
    let mut measured = Vec::new();
    for _ in 0..pairs {
        measured.push((many_files(&ours.fs, files)?, many_kernel_files(ext4.path(), files)?));
    }
    Ok((measured, files))
}

fn phase(effort: &Effort, id: &'static str, target: f64, of: fn(&Phases) -> f64) -> Result<Row> {
    cores::on_first(|core| {
        let (measured, files) = small_files(effort)?;
        let ratio = median(measured.iter().map(|(ours, theirs)| of(theirs) / of(ours)));
        let each = |seconds: f64| seconds * 1e6 / files as f64;
        let note = format!(
            "{:.2} us / {:.2} us for each of {files} files, median of {}; one thread on core {core}",
            each(median(measured.iter().map(|(ours, _)| of(ours)))),
            each(median(measured.iter().map(|(_, theirs)| of(theirs)))),
            measured.len(),
        );
        Ok(higher(id, ratio, target, note))
    })
}

pub(crate) fn create(effort: &Effort) -> Result<Row> {
    phase(effort, CREATE, 3.0, |phases| phases.create)
}

pub(crate) fn unlink(effort: &Effort) -> Result<Row> {
    phase(effort, UNLINK, 3.0, |phases| phases.unlink)
}

pub(crate) fn stat(effort: &Effort) -> Result<Row> {
    phase(effort, STAT, 4.0, |phases| phases.stat)
}

/// Appends of a page, each made durable.
pub(crate) fn fsync(effort: &Effort) -> Result<Row> {
    // A log is not endless.
    const PAGES: u64 = 4096;
    cores::on_first(|core| {
        let bytes = 256 << 20;
        let ours = mounted(bytes, 64 << 20, None)?;
        let ext4 = Kernel::ext4(bytes)?;
        let file = ours.fs.root()?.create(b"log", &NewFile::regular(0o644), &Credentials::root())?;
        let theirs = File::create(ext4.path().join("log"))?;
        let page = [0x5a; PAGE_BYTES];
        let (mut here, mut there) = (0, 0);
        let pairs = interleave(
            effort,
            || {
                crate::pairs::rate(effort.side, || {
                    if here == PAGES {
                        file.truncate(0)?;
                        here = 0;
                    }
                    file.append(&page)?;
                    file.sync_data()?;
                    here += 1;
                    Ok(1)
                })
            },
            || {
                crate::pairs::rate(effort.side, || {
                    if there == PAGES {
                        theirs.set_len(0)?;
                        there = 0;
                    }
                    theirs.write_all_at(&page, there * PAGE_BYTES as u64)?;
                    theirs.sync_data()?;
                    there += 1;
                    Ok(1)
                })
            },
        )?;
        Ok(higher(FSYNC, pairs.ratio, 3.0, format!("{}; one thread on core {core}", pairs.rates())))
    })
}

/// A mount after a kill, with many files and a journal to be replayed.
pub(crate) fn mount(effort: &Effort) -> Result<Row> {
    let (files, bytes) = if effort.smoke { (2_000, 64 << 20) } else { (1_000_000, 6 << 30) };
    let Mounted { fs, device } = mounted(bytes, 16 << 20, Some(4096))?;
    let who = Credentials::root();
    let root = fs.root()?;
    for at in 0..files {
        if at % 1000 == 0 {
            root.create(format!("d{}", at / 1000).as_bytes(), &NewFile::directory(0o755), &who)?;
        }
        let parent = fs.resolve(format!("d{}", at / 1000).as_bytes(), true, &who)?;
        parent.create(format!("f{at}").as_bytes(), &NewFile::regular(0o644), &who)?;
    }
    // It is in the ring, and stays there.
    fs.sync()?;
    fs.abandon();
    drop((root, fs));
    let start = Instant::now();
    let fs = again(&device, 16 << 20)?;
    ensure!(
        fs.resolve(format!("d{}/f{}", (files - 1) / 1000, files - 1).as_bytes(), true, &who)?.ino() > 0,
        "a name is gone"
    );
    let seconds = start.elapsed().as_secs_f64();
    let note = format!("{files} files; {} records replayed", fs.description().replayed);
    Ok(Row { id: MOUNT, value: seconds, unit: "s", target: 2.0, better: Better::Lower, note })
}
