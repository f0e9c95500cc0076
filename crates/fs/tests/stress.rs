//! Threads that do everything at once to the same few files, on devices that are nearly full, with a cache
//! and a journal that are too small, and with reads that fail: nothing hangs, and everything fits together
//! afterwards.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use unvme::{Device, Nsid, OpenOptions, QueueOptions, open};
use unvme_fs::{
    Allocation, CacheOptions, Credentials, Errno, Error, FileQueue, FileSystem, MakeOptions, MountOptions,
    NewFile, Rename, Result, SetXattr, Vnode, make,
};

const PAGE: usize = 4096;

/// How long each runs: briefly, or as long as it takes to find what is rare.
fn time() -> Duration {
    Duration::from_secs(if std::env::var_os("UNVME_TEST_EXHAUSTIVE").is_some() { 60 } else { 3 })
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn bytes(&mut self, end: u64) -> Vec<u8> {
        let fill = self.below(256) as u8;
        vec![fill; self.below(end) as usize]
    }

    /// Some are long, so that directories have several pages.
    fn name(&mut self) -> Vec<u8> {
        let number = self.below(60);
        format!("f{number}{}", "z".repeat(number as usize % 7 * 30)).into_bytes()
    }

    fn directory_name(&mut self) -> Vec<u8> {
        format!("s{}", self.below(3)).into_bytes()
    }

    fn directory(&mut self, fs: &FileSystem) -> Result<Vnode> {
        let path = match self.below(6) {
            number @ 0..4 => format!("/d{number}"),
            number => format!("/d{}/s{}", number - 4, self.below(3)),
        };
        fs.resolve(path.as_bytes(), true, &Credentials::root())
    }
}

/// Calls that do not wait, on whole pages of a file.
fn queued(queue: &mut FileQueue, file: &Vnode, random: &mut Random) -> Result<()> {
    let id = queue.add(file)?;
    for token in 0..3 {
        let (at, buf) = (random.below(20) * PAGE as u64, queue.alloc(PAGE)?);
        let sent = match random.below(2) {
            0 => queue.write(id, at, PAGE, buf, token),
            _ => queue.read(id, at, PAGE, buf, token),
        };
        match sent {
            Err(refused) if refused.error.errno() != Errno::ISDIR => return Err(refused.error),
            _ => {}
        }
    }
    while queue.outstanding() > 0 {
        queue.wait(Duration::from_secs(1))?;
        queue.poll(8).for_each(drop);
    }
    queue.remove(id)
}

fn act(fs: &FileSystem, queue: &mut FileQueue, random: &mut Random) -> Result<()> {
    let who = &Credentials::root();
    let (directory, other) = (random.directory(fs)?, random.directory(fs)?);
    let (name, new) = (random.name(), random.name());
    let file = || directory.lookup(&name, who);
    match random.below(20) {
        0..=2 => directory.create(&name, &NewFile::regular(0o644), who).map(drop),
        3 => directory.create(&random.directory_name(), &NewFile::directory(0o755), who).map(drop),
        4 | 5 => directory.unlink(&name, who),
        6 => directory.rmdir(&random.directory_name(), who),
        7 => directory.rename(&name, (&other, &new), Rename::Replace, who),
        8 => {
            let (from, to) = (random.directory_name(), random.directory_name());
            directory.rename(&from, (&other, &to), Rename::Replace, who)
        }
        9 => directory.rename(&name, (&other, &new), Rename::Exchange, who),
        10 => file()?.link(&other, &new, who),
        11 => file()?.truncate(random.below(200_000)),
        12 | 13 => file()?.write_at(random.below(100) * 2000, &random.bytes(20_000)).map(drop),
        14 => file()?.write_direct(random.below(50) * 8192, &[7; PAGE]).map(drop),
        15 => file()?.read_at(random.below(100_000), &mut vec![0; 30_000]).map(drop),
        16 => file()?.set_xattr(b"user.a", &random.bytes(6000), SetXattr::Any, who),
        17 => match random.below(6) {
            0 | 1 => file()?.sync(),
            2 | 3 => file()?
                .allocate(random.below(100_000)..100_000 + random.below(100_000), Allocation::PunchHole),
            keep => {
                file()?.allocate(random.below(100_000)..200_000, Allocation::Reserve { keep_size: keep == 4 })
            }
        },
        18 => queued(queue, &file()?, random),
        _ if random.below(20) == 0 => fs.sync(),
        _ => directory.list(0, |_| ControlFlow::Continue(())),
    }
}

fn run(size: &str, seed: u64, fault: Option<&str>) {
    let device: Device = open(&format!("mem:block:{size}"), &OpenOptions::default()).expect("open");
    let block = device.block(Nsid(1)).expect("namespace");
    make(&block, "mem:", &MakeOptions::default(), |_, _| ()).expect("make");
    let options = MountOptions {
        metadata_bytes: 1 << 20,
        cache: CacheOptions { bytes: 1 << 20, ..CacheOptions::default() },
        commit_interval: Duration::from_millis(300),
        ..MountOptions::default()
    };
    let fs = FileSystem::mount(&block, "mem:", &options).expect("mount");
    for name in [b"d0", b"d1", b"d2", b"d3"] {
        let root = fs.root().expect("root");
        root.create(name, &NewFile::directory(0o755), &Credentials::root()).expect("mkdir");
    }
    if let Some(rule) = fault {
        device.add_faults(rule).expect("rule");
    }
    let (begun, done) = (Instant::now(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (fs, done) = (&fs, &done);
            scope.spawn(move || {
                let mut random = Random(seed + thread * 77 + 1);
                let mut queue = fs.queue(&QueueOptions { depth: 8, ..QueueOptions::default() });
                while queue.is_err() && fault.is_some() {
                    queue = fs.queue(&QueueOptions { depth: 8, ..QueueOptions::default() });
                }
                let mut queue = queue.expect("queue");
                while begun.elapsed() < time() {
                    match act(fs, &mut queue, &mut random) {
                        Ok(()) => {
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(Error::Posix(_)) => {}
                        Err(Error::Device(_)) if fault.is_some() => {}
                        Err(e) => panic!("{e}"),
                    }
                }
            });
        }
    });
    device.clear_faults(None).expect("clear");
    assert!(done.into_inner() > 100);
    assert_eq!(fs.check(|_| ()).expect("check").problems, []);
    fs.sync().expect("sync");
    let usage = fs.usage();
    fs.unmount().expect("unmount");
    drop(fs);
    let fs = FileSystem::mount(&block, "mem:", &options).expect("mount");
    assert_eq!(fs.check(|_| ()).expect("check").problems, []);
    assert_eq!(fs.usage(), usage, "what is free in memory is what is free on the media");
}

#[test]
fn with_room() {
    run("256M", 1, None);
}

#[test]
fn on_a_small_device() {
    run("16M", 5, None);
}

const READS_FAIL: &str =
    r#"{"match": {"opcode": "read", "probability": 0.05, "seed": 7}, "act": {"status": "0x281"}}"#;

#[test]
fn with_reads_that_fail() {
    run("64M", 9, Some(READS_FAIL));
}

#[test]
fn on_a_small_device_with_reads_that_fail() {
    run("16M", 9, Some(READS_FAIL));
}
