//! What happens in corners: on full devices, beside errors, when calls overlap, and with inodes that cannot
//! be.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::fs::FileType;
use rustix::io::Errno;
use unvme::{Block, Device, Nsid, OpenOptions, QueueOptions, open};
use unvme_fs::{
    Allocation, CacheOptions, Credentials, Event, FileId, FileQueue, FileSystem, Lock, LockKind, MakeOptions,
    MountOptions, NewAttributes, NewFile, Rename, SetXattr, Vnode, check, make, repair,
};

const PAGE: usize = 4096;

fn device_of(size: &str) -> (Device, Block) {
    let device = open(&format!("mem:block:{size}"), &OpenOptions::default()).expect("open");
    let block = device.block(Nsid(1)).expect("namespace");
    make(&block, "mem:", &MakeOptions::default(), |_, _| ()).expect("make");
    (device, block)
}
fn mount(block: &Block) -> FileSystem {
    FileSystem::mount(block, "mem:", &MountOptions::default()).expect("mount")
}
/// A file of eight pages of ones, and a queue that has been given twos for the first one, and has not told
/// the device yet.
fn being_written(fs: &FileSystem) -> (Vnode, FileQueue, FileId) {
    let file = create(fs, b"f");
    file.write_direct(0, &[1; 8 * 4096]).unwrap();
    file.sync().unwrap();
    let mut queue = fs.queue(&QueueOptions { depth: 8, ..QueueOptions::default() }).unwrap();
    let id = queue.add(&file).unwrap();
    let mut buf = queue.alloc(4096).unwrap();
    buf.write(0, &[2; 4096]);
    queue.write(id, 0, 4096, buf, 1).map_err(|r| r.error).unwrap();
    (file, queue, id)
}

/// Waits for all calls of a queue, which succeed.
fn finish(queue: &mut FileQueue) {
    while queue.outstanding() > 0 {
        queue.wait(Duration::from_secs(1)).unwrap();
        queue.poll(8).for_each(|done| {
            done.result.unwrap();
        });
    }
}

/// What a call returns that must not hang.
fn in_time<R: Send + 'static>(call: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, over) = channel();
    std::thread::spawn(move || done.send(call()));
    over.recv_timeout(Duration::from_secs(120)).expect("it hangs, or has panicked")
}

/// From now on the first block of a file cannot be written.
fn refuse_writes(device: &Device, block: &Block, file: &Vnode) {
    let lba = file.extents().expect("extents")[0].device_offset / u64::from(block.block_bytes());
    let rule =
        format!(r#"{{"match": {{"opcode": "write", "lba": "{lba}"}}, "act": {{"status": "write-fault"}}}}"#);
    device.add_faults(&rule).expect("rule");
}

fn create(fs: &FileSystem, name: &[u8]) -> Vnode {
    fs.root().unwrap().create(name, &NewFile::regular(0o644), &Credentials::root()).expect("create")
}

#[test]
fn names_of_a_directory_that_gets_smaller_are_renamed_and_not_lost() {
    let (_device, block) = device_of("64M");
    let fs = mount(&block);
    let who = Credentials::root();
    let dir = fs.root().unwrap().create(b"d", &NewFile::directory(0o755), &who).unwrap();
    let total = 3000;
    let name = |n: usize| format!("name number {n:05} {}", "x".repeat(60)).into_bytes();
    for n in 0..total {
        dir.create(&name(n), &NewFile::regular(0o644), &who).unwrap();
    }
    // leave few, then rename all that are left over and over
    let mut left: Vec<Vec<u8>> = (0..total).map(name).collect();
    let mut seed = 7u64;
    let mut rnd = |m: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % m
    };
    let mut lost = Vec::new();
    let mut fresh = 0;
    while left.len() > 20 && lost.is_empty() {
        let at = rnd(left.len());
        let gone = left.swap_remove(at);
        dir.unlink(&gone, &who).unwrap();
        let at = rnd(left.len());
        fresh += 1;
        let to = format!("fresh {fresh:06} {}", "y".repeat(60)).into_bytes();
        dir.rename(&left[at].clone(), (&dir, &to), Rename::Replace, &who).unwrap();
        if dir.lookup(&to, &who).is_err() {
            lost.push(String::from_utf8_lossy(&to).into_owned());
        }
        left[at] = to;
    }
    let problems = fs.check(|_| ()).unwrap().problems;
    assert!(
        lost.is_empty() && problems.is_empty(),
        "lost {lost:?}, left {} {:?}",
        left.len(),
        &problems[..problems.len().min(3)]
    );
}

#[test]
fn whoever_syncs_beside_somebody_else_waits_for_a_flush_too() {
    let (device, block) = device_of("64M");
    let fs = mount(&block);
    let file = create(&fs, b"f");
    file.write_direct(0, &[1; 8192]).unwrap();
    fs.sync().unwrap();
    fs.start_recording();
    file.write_direct(0, &[2; 4096]).unwrap();
    device.add_faults(r#"{"match": {"opcode": "flush"}, "act": {"delay": "2s"}}"#).expect("rule");
    let other = file.clone();
    let first = std::thread::spawn(move || {
        other.sync_data().unwrap();
    });
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    file.sync_data().unwrap();
    let took = start.elapsed();
    let events = fs.take_events();
    let has_flushed = events.iter().any(|e| matches!(e, Event::Flush));
    first.join().unwrap();
    assert!(has_flushed, "fsync returned after {took:?}, and nothing was flushed: {} events", events.len());
}

#[test]
fn a_file_that_memory_has_forgotten_is_synced_all_the_same() {
    let (_device, block) = device_of("256M");
    let options = MountOptions {
        metadata_bytes: 1 << 20,
        commit_interval: Duration::from_secs(3600),
        ..MountOptions::default()
    };
    let fs = FileSystem::mount(&block, "mem:", &options).unwrap();
    let who = Credentials::root();
    let root = fs.root().unwrap();
    create(&fs, b"precious");
    for n in 0..2000 {
        root.create(format!("{n}").as_bytes(), &NewFile::regular(0o644), &who).unwrap();
    }
    let file = root.lookup(b"precious", &who).unwrap();
    file.sync().unwrap();
    fs.abandon();
    drop((file, root, fs));
    let fs = mount(&block);
    assert!(fs.root().unwrap().lookup(b"precious", &who).is_ok(), "fsync'd file is gone");
}

#[test]
fn what_a_queue_writes_replaces_pages_that_were_read_meanwhile() {
    let (_device, block) = device_of("64M");
    let fs = mount(&block);
    let (file, mut queue, id) = being_written(&fs);
    let mut out = [0; 4096];
    file.read_at(0, &mut out).unwrap(); // brings the old page
    let buf = queue.alloc(4096).unwrap();
    queue.read(id, 4 * 4096, 4096, buf, 2).map_err(|r| r.error).unwrap();
    queue.ring().unwrap();
    finish(&mut queue);
    file.read_at(0, &mut out).unwrap();
    let mut direct = [0; 4096];
    file.read_direct(0, &mut direct).unwrap();
    assert_eq!((out[0], direct[0]), (2, 2), "cached and direct");
}

#[test]
fn a_file_without_names_is_cut_off_and_given_back_after_a_crash() {
    let (_device, block) = device_of("64M");
    let fs = mount(&block);
    let who = Credentials::root();
    let file = create(&fs, b"f");
    for n in 0..40 {
        file.write_direct(n * 8192, &[1; 4096]).unwrap();
    }
    fs.root().unwrap().unlink(b"f", &who).unwrap();
    file.truncate(4096).unwrap();
    fs.sync().unwrap();
    fs.abandon();
    drop((file, fs));
    let fs = mount(&block);
    assert_eq!(fs.check(|_| ()).unwrap().problems, []);
}

#[test]
fn the_names_of_every_directory_cannot_be_unlinked() {
    let (_device, block) = device_of("64M");
    let fs = mount(&block);
    let who = Credentials::root();
    let directory = fs.root().expect("root").create(b"d", &NewFile::directory(0o755), &who).expect("create");
    for (name, errno) in [(&b".."[..], Errno::ISDIR), (b".", Errno::ISDIR)] {
        let directory = directory.clone();
        let unlink = move || directory.unlink(name, &Credentials::root()).map_err(|e| e.errno());
        assert_eq!(in_time(unlink), Err(errno));
    }
    let rmdir = |name: &[u8]| directory.rmdir(name, &who).map_err(|e| e.errno());
    assert_eq!((rmdir(b"."), rmdir(b"..")), (Err(Errno::INVAL), Err(Errno::NOTEMPTY)));
}

#[test]
fn what_was_taken_on_a_full_device_can_be_written() {
    let (_device, block) = device_of("64M");
    let fs = mount(&block);
    let who = Credentials::root();
    let root = fs.root().unwrap();
    let mut files = 0;
    'all: for n in 0..4000 {
        let Ok(file) = root.create(format!("{n}").as_bytes(), &NewFile::regular(0o644), &who) else { break };
        for page in 0..7 {
            // Each page an extent, and one more than an inode holds.
            if file.write_at(page * 8192, &[n as u8; PAGE]).ok() != Some(PAGE) {
                break 'all;
            }
        }
        files += 1;
    }
    let done = fs.sync();
    assert!(done.is_ok(), "{files} files were accepted, {:?}: sync: {done:?}", fs.usage());
}

#[test]
fn a_full_device_can_be_emptied_however_often_it_is_filled() {
    let (_device, block) = device_of("64M");
    let options = MountOptions::default();
    let fs = FileSystem::mount(&block, "mem:", &options).unwrap();
    let who = Credentials::root();
    let root = fs.root().unwrap();
    for n in 0..200 {
        root.create(format!("e{n}").as_bytes(), &NewFile::regular(0o644), &who).unwrap();
    }
    fs.sync().unwrap();
    let big = create(&fs, b"big");
    let mut at = 0;
    let mut fill = |fs: &FileSystem| {
        while let Ok(bytes @ 1..) = big.write_at(at, &[1; PAGE]) {
            at += bytes as u64;
        }
        fs.sync().expect("sync");
    };
    for n in 0..200 {
        let done = root.unlink(format!("e{n}").as_bytes(), &who);
        assert!(done.is_ok(), "unlink {n}: {done:?}");
        fill(&fs);
    }
}

#[test]
fn readers_go_on_when_other_calls_on_the_file_fail() {
    let (_device, block) = device_of("64M");
    let cache = CacheOptions { bytes: 64 * 4096, ..CacheOptions::default() };
    let fs = FileSystem::mount(&block, "mem:", &MountOptions { cache, ..MountOptions::default() }).unwrap();
    let file = create(&fs, b"f");
    file.write_direct(0, &vec![1; 4 << 20]).unwrap();
    let fill = create(&fs, b"fill");
    let mut at = 0;
    while let Ok(bytes @ 1..) = fill.write_direct(at, &[1; PAGE]) {
        at += bytes as u64;
    }
    fs.sync().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut out = [0; 4096];
            let mut seed = 1u64;
            for _ in 0..200_000 {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
                file.read_at((seed >> 33) % 1024 * 4096, &mut out).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            let begun = Instant::now();
            while !stop.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(3) {
                let set = file.set_xattr(b"user.x", &[1; 60_000], SetXattr::Any, &Credentials::root());
                assert_eq!(set.map_err(|e| e.errno()), Err(Errno::NOSPC));
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn an_inode_that_could_not_be_taken_is_counted_as_free() {
    let (device, block) = device_of("512M");
    let fs = mount(&block);
    let root = fs.root().unwrap();
    root.create(b"zero", &NewFile::directory(0o644), &Credentials::root()).unwrap();
    fs.sync().unwrap();
    let before = fs.usage();
    device.add_faults(r#"{"match": {"opcode": "read"}, "act": {"status": "0x281"}}"#).unwrap();
    for n in 0..2 {
        let _ = root.create(format!("{n}").as_bytes(), &NewFile::directory(0o644), &Credentials::root());
    }
    device.clear_faults(None).unwrap();
    assert_eq!(fs.usage(), before);
}

#[test]
fn a_block_that_cannot_be_written_keeps_nothing_from_being_committed() {
    let (device, block) = device_of("64M");
    let some = Duration::from_millis(300);
    let cache = CacheOptions { dirty_age: some, ..CacheOptions::default() };
    let options = MountOptions { cache, commit_interval: some, ..MountOptions::default() };
    let fs = FileSystem::mount(&block, "mem:", &options).expect("mount");
    let file = create(&fs, b"file");
    file.write_direct(0, &[1; PAGE]).expect("write");
    fs.sync().expect("sync");
    refuse_writes(&device, &block, &file);
    fs.start_recording();
    let other = create(&fs, b"other");
    other.write_at(0, b"other").expect("write");
    file.write_at(0, b"bad").expect("write");
    // Until a transaction is on the media that knows of the data.
    let until = Instant::now() + Duration::from_secs(120);
    let mut events = Vec::new();
    loop {
        events.extend(fs.take_events());
        let data = events.iter().position(
            |event| matches!(event, Event::Write { data, durable: false, .. } if data.starts_with(b"other")),
        );
        let is_committed = |at: usize| {
            events[at..]
                .iter()
                .any(|event| matches!(event, Event::Write { durable: true, .. } | Event::Flush))
        };
        if data.is_some_and(is_committed) || Instant::now() > until {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    // And the record of it, if it was a long one.
    std::thread::sleep(Duration::from_secs(1));
    fs.abandon();
    device.clear_faults(None).expect("clear");
    drop((file, other, fs));
    let fs = mount(&block);
    let found = fs.root().expect("root").lookup(b"other", &Credentials::root()).expect("committed");
    assert_eq!(found.attributes().size, 5);
}

#[test]
fn a_queue_takes_files_of_its_own_file_system_alone() {
    let (_one, first) = device_of("64M");
    let (_two, second) = device_of("64M");
    let (fs, other) = (mount(&first), mount(&second));
    let mut queue = fs.queue(&QueueOptions::default()).expect("queue");
    assert_eq!(queue.add(&create(&other, b"two")).map_err(|e| e.errno()), Err(Errno::XDEV));
    assert!(queue.add(&create(&fs, b"one")).is_ok());
}

#[test]
fn what_cannot_be_reserved_takes_nothing() {
    let (_device, block) = device_of("512M");
    let fs = mount(&block);
    let file = create(&fs, b"f");
    fs.sync().unwrap();
    let before = fs.usage().free_blocks;
    assert!(file.allocate(0..1 << 40, Allocation::Reserve { keep_size: false }).is_err());
    assert_eq!(fs.usage().free_blocks, before, "size {}", file.attributes().size);
}

#[test]
fn one_name_made_and_removed_by_many_leaves_nothing_behind() {
    let (_device, block) = device_of("64M");
    let fs = mount(&block);
    let stop = AtomicBool::new(false);
    let bad = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let root = fs.root().unwrap();
                while !stop.load(Ordering::Relaxed) {
                    if let Err(e) = root.unlink(b"x", &Credentials::root())
                        && e.errno() != Errno::NOENT
                    {
                        bad.lock().unwrap().push(format!("unlink {e}"));
                        break;
                    }
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                let root = fs.root().unwrap();
                while !stop.load(Ordering::Relaxed) {
                    match root.create(b"x", &NewFile::regular(0o644), &Credentials::root()) {
                        Ok(f) => {
                            if let Err(e) = f.write_at(0, &[1; 5000]) {
                                bad.lock().unwrap().push(format!("write {e}"));
                            }
                        }
                        Err(e) if e.errno() == Errno::EXIST => {}
                        Err(e) => {
                            bad.lock().unwrap().push(format!("create {e}"));
                            break;
                        }
                    }
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = fs.sync();
            }
        });
        std::thread::sleep(Duration::from_secs(4));
        stop.store(true, Ordering::Relaxed);
    });
    let bad = bad.into_inner().unwrap();
    let problems = fs.check(|_| ()).map(|s| s.problems);
    assert!(
        bad.is_empty() && problems.as_ref().is_ok_and(|p| p.is_empty()),
        "{:?} {problems:?}",
        &bad[..bad.len().min(3)]
    );
}

#[test]
fn paths_are_what_they_are_on_linux() {
    let (_device, block) = device_of("64M");
    let fs = mount(&block);
    create(&fs, b"f");
    let who = Credentials::root();
    let resolve = |path: &[u8]| fs.resolve(path, true, &who).map(|found| found.ino()).map_err(|e| e.errno());
    assert_eq!(resolve(b""), Err(Errno::NOENT));
    assert_eq!(fs.attributes(b"", true, &who).map_err(|e| e.errno()), Err(Errno::NOENT));
    assert_eq!(resolve(b"f/"), Err(Errno::NOTDIR));
    assert_eq!(fs.resolve_parent(b"/f/", &who).map(drop).map_err(|e| e.errno()), Err(Errno::NOTDIR));
    assert!(fs.resolve_parent(b"/new/", &who).is_ok(), "mkdir takes a slash");
    let link = NewFile { file_type: FileType::Symlink, target: b"", ..NewFile::regular(0o777) };
    let linked = fs.root().expect("root").create(b"l", &link, &who);
    assert_eq!(linked.map(drop).map_err(|e| e.errno()), Err(Errno::NOENT));
    assert!(resolve(&b"/".repeat(4095)).is_ok());
    assert_eq!(resolve(&b"/".repeat(4096)), Err(Errno::NAMETOOLONG));
}

#[test]
fn metadata_in_memory_are_bounded_when_nothing_is_written() {
    let (_device, block) = device_of("1G");
    {
        let fs = mount(&block);
        let root = fs.root().unwrap();
        for n in 0..30000 {
            root.create(format!("{n:0200}").as_bytes(), &NewFile::regular(0o644), &Credentials::root())
                .unwrap();
        }
        fs.unmount().unwrap();
    }
    let fs = FileSystem::mount(
        &block,
        "mem:",
        &MountOptions { is_read_only: true, metadata_bytes: 1 << 20, ..MountOptions::default() },
    )
    .unwrap();
    let root = fs.root().unwrap();
    let list = || {
        let before = fs.traffic().reads;
        root.list(0, |_| std::ops::ControlFlow::Continue(())).unwrap();
        fs.traffic().reads - before
    };
    let (first, second) = (list(), list());
    assert!(
        second > first / 2,
        "{first} reads of metadata pages, with a budget of 1024, and {second} the second time"
    );
}

#[test]
fn a_directory_that_gets_another_group_keeps_its_set_group_bit() {
    let (_device, block) = device_of("64M");
    let fs = mount(&block);
    let root = fs.root().unwrap();
    let dir = root.create(b"d", &NewFile::directory(0o2775), &Credentials::root()).unwrap();
    dir.set_attributes(
        &NewAttributes { uid: Some(7), gid: Some(8), ..NewAttributes::default() },
        &Credentials::root(),
    )
    .unwrap();
    dir.set_attributes(
        &NewAttributes { permissions: Some(0o2775), ..NewAttributes::default() },
        &Credentials::root(),
    )
    .unwrap();
    let who = Credentials { uid: 7, gid: 8, groups: vec![9], ..Credentials::default() };
    dir.set_attributes(&NewAttributes { gid: Some(9), ..NewAttributes::default() }, &who).unwrap();
    assert_eq!(dir.attributes().mode & 0o7777, 0o2775, "Linux keeps set-gid of directories");
}

#[test]
fn a_direct_write_that_is_too_long_writes_what_there_is_room_for() {
    let (_device, block) = device_of("64M");
    let fs = mount(&block);
    let fill = create(&fs, b"fill");
    let other = create(&fs, b"other");
    other.write_direct(0, &[1; 60 * 4096]).unwrap();
    fs.sync().unwrap();
    let mut at = 0;
    while let Ok(n) = fill.write_direct(at, &[1; 4096]) {
        at += n as u64;
    }
    other.truncate(0).unwrap();
    fs.sync().unwrap();
    let free = fs.usage().free_blocks;
    let big = fill.write_direct(at, &vec![1; 1 << 20]);
    let small = fill.write_direct(at, &vec![1; 10 * 4096]);
    assert!(big.is_ok(), "{free} free: 1 MiB: {big:?}, 40 KiB: {small:?}");
}

fn craft(block: &mut Block, ino: u64, offset: usize, bytes: &[u8]) {
    let blocks = block.bytes() / 4096;
    let at = (1 + (blocks / 32).clamp(256, 65536) + 2 + (ino - 1) / 16) * 4096;
    let mut page = vec![0; 4096];
    let at = at / u64::from(block.block_bytes());
    block.read_at(at, &mut page).unwrap();
    let start = 48 + ((ino - 1) % 16) as usize * 252 + offset;
    page[start..start + bytes.len()].copy_from_slice(bytes);
    page[8..12].fill(0);
    let crc = crc_fast::crc32_iscsi(&page);
    page[8..12].copy_from_slice(&crc.to_le_bytes());
    block.write_at(at, &page).unwrap();
}

#[test]
fn directories_in_a_circle_are_damage_and_nothing_hangs() {
    let (_device, mut block) = device_of("64M");
    let who = Credentials::root();
    let below = {
        let fs = mount(&block);
        let root = fs.root().expect("root");
        let above = root.create(b"a", &NewFile::directory(0o755), &who).expect("create");
        let below = above.create(b"b", &NewFile::directory(0o755), &who).expect("create").ino();
        root.create(b"s", &NewFile::directory(0o755), &who).expect("create");
        drop((above, root));
        fs.unmount().expect("unmount");
        below
    };
    craft(&mut block, below, 96, &below.to_le_bytes());
    let fs = mount(&block);
    let renamed = in_time(move || {
        let to = fs.resolve(b"/a/b", true, &Credentials::root()).expect("resolve");
        let root = fs.root().expect("root");
        root.rename(b"s", (&to, b"s"), Rename::Replace, &Credentials::root()).map_err(|e| e.to_string())
    });
    assert!(renamed.expect_err("a circle").contains("does not lead up to the root"));
}

#[test]
fn a_block_that_cannot_be_written_keeps_no_other_file_from_being_written() {
    let (device, block) = device_of("64M");
    let fs = FileSystem::mount(
        &block,
        "mem:",
        &MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() },
    )
    .unwrap();
    let file = create(&fs, b"file");
    file.write_direct(0, &[1; 4096]).unwrap();
    let others: Vec<_> = (0..10).map(|n| create(&fs, format!("o{n}").as_bytes())).collect();
    fs.sync().unwrap();
    refuse_writes(&device, &block, &file);
    file.write_at(0, b"bad").unwrap();
    for other in &others {
        other.write_at(0, b"other").unwrap();
    }
    for _ in 0..5 {
        assert!(fs.sync().is_err());
    }
    fs.abandon();
    device.clear_faults(None).unwrap();
    drop((file, others, fs));
    let fs = mount(&block);
    let sizes: Vec<u64> = (0..10)
        .map(|n| {
            fs.root()
                .unwrap()
                .lookup(format!("o{n}").as_bytes(), &Credentials::root())
                .unwrap()
                .attributes()
                .size
        })
        .collect();
    assert_eq!(sizes, [5; 10], "sizes of the others after five syncs");
}

#[test]
fn inodes_that_cannot_be_are_found_and_repaired() {
    let (_device, mut block) = device_of("64M");
    let who = Credentials::root();
    let (link, file) = {
        let fs = mount(&block);
        let new = NewFile { file_type: FileType::Symlink, target: b"target", ..NewFile::regular(0o777) };
        let link = fs.root().expect("root").create(b"l", &new, &who).expect("create").ino();
        let file = create(&fs, b"f");
        file.write_direct(0, &[1; PAGE]).expect("write");
        let file = file.ino();
        fs.unmount().expect("unmount");
        (link, file)
    };
    let cases: [(u64, usize, &[u8], &str); 7] = [
        (link, 16, &1000_u64.to_le_bytes(), "a target of 6 bytes, and its size is 1000"),
        (link, 128, &[0], "its target is lost: after a repair the symbolic link leads to `(lost)`"),
        (link, 128, &[2], "what is inline belongs to another type"),
        (file, 40, &u32::MAX.to_le_bytes(), "a time with 4294967295 nanoseconds"),
        (file, 130, &[200], "write hint 200"),
        (file, 128, &[1], "what is inline belongs to another type"),
        (file, 2, &[1], "mode 0o"),
    ];
    for (ino, offset, bytes, what) in cases {
        craft(&mut block, ino, offset, bytes);
        let problems = check(&block, "mem:", |_| ()).expect("check").problems;
        let is_told = problems.iter().any(|problem| problem.what.contains(what));
        assert!(is_told, "{what}: {problems:?}");
        repair(&block, "mem:", |_| ()).expect("repair");
        assert_eq!(check(&block, "mem:", |_| ()).expect("check").problems, [], "{what}");
    }
}

#[test]
fn what_a_queue_writes_is_not_lost_beside_a_write_of_a_part_of_it() {
    let (_device, block) = device_of("64M");
    let fs = mount(&block);
    let (file, mut queue, _) = being_written(&fs);
    file.write_at(10, &[9]).unwrap();
    finish(&mut queue);
    let mut direct = [0; 4096];
    file.read_at(0, &mut direct).unwrap();
    assert_eq!(direct[100], 2, "byte 10 is {}", direct[10]);
}

#[test]
fn files_that_were_written_are_forgotten_like_others() {
    let (_device, block) = device_of("1G");
    let options = MountOptions { metadata_bytes: 1 << 20, ..MountOptions::default() };
    let fs = FileSystem::mount(&block, "mem:", &options).unwrap();
    let who = Credentials::root();
    let root = fs.root().unwrap();
    let lock = Lock { owner: 1, kind: LockKind::Exclusive, start: 0, end: 9 };
    let mut files = vec![];
    for n in 0..200 {
        let file = create(&fs, format!("file{n}").as_bytes());
        if n % 2 == 1 {
            file.write_at(0, b"x").unwrap();
        }
        file.lock(lock, false).unwrap();
        files.push(file);
    }
    fs.sync().unwrap();
    files.iter().for_each(|f| f.drop_cache().unwrap());
    drop(files);
    fs.sync().unwrap();
    for n in 0..30000 {
        root.create(format!("{n}").as_bytes(), &NewFile::regular(0o644), &who).unwrap();
    }
    let kept = |odd: usize| {
        (0..200)
            .filter(|n| n % 2 == odd)
            .filter(|n| {
                root.lookup(format!("file{n}").as_bytes(), &who)
                    .unwrap()
                    .find_lock(&Lock { owner: 2, ..lock })
                    .is_some()
            })
            .count()
    };
    let (created, written) = (kept(0), kept(1));
    assert!(
        written < 50,
        "of 100 nodes that were created {created} are in memory still, of 100 that were written {written}"
    );
}

#[test]
fn an_unlink_that_fails_takes_nothing_of_another_one_back() {
    let (device, block) = device_of("512M");
    let who = Credentials::root();
    {
        let fs = mount(&block);
        let root = fs.root().unwrap();
        root.create(b"g0", &NewFile::directory(0o755), &who).unwrap();
        let g1 = root.create(b"g1", &NewFile::directory(0o755), &who).unwrap();
        g1.create(b"victim", &NewFile::regular(0o644), &who).unwrap();
        drop((root, g1));
        fs.unmount().unwrap();
    }
    let fs = mount(&block);
    let root = fs.root().unwrap();
    let g1 = root.lookup(b"g1", &who).unwrap();
    let victim = g1.lookup(b"victim", &who).unwrap();
    g1.unlink(b"victim", &who).unwrap();
    let mut open: Vec<Vnode> = (0..335).map(|_| root.create_unnamed(0o600, &who).unwrap()).collect();
    fs.sync().unwrap();
    // The maps of the second group are read for the first time when the file is given up.
    let lba = (1 + 4096 + 32_256) * 8;
    let slow_and_wrong = r#""act": {"status": "0x281", "delay": "2s"}"#;
    let rule = format!(r#"{{"match": {{"opcode": "read", "lba": "{lba}"}}, {slow_and_wrong}}}"#);
    device.add_faults(&rule).unwrap();
    let ending = std::thread::spawn(move || drop(victim));
    std::thread::sleep(Duration::from_millis(500));
    // Enough to divide a page of the list.
    for _ in 0..61 {
        open.push(root.create_unnamed(0o600, &who).unwrap());
    }
    let joined = ending.join().is_ok();
    device.clear_faults(None).unwrap();
    let problems = fs.check(|_| ()).map(|s| s.problems);
    drop(open);
    let later = fs.check(|_| ()).map(|s| s.problems);
    assert!(
        joined && problems.as_ref().is_ok_and(|p| p.is_empty()) && later.as_ref().is_ok_and(|p| p.is_empty()),
        "ended {joined} {problems:?} {later:?}"
    );
}

#[test]
fn a_sync_beside_another_one_waits_for_what_that_one_writes() {
    let (_device, block) = device_of("64M");
    let fs = mount(&block);
    let files: Vec<Vnode> = (0..60).map(|n| create(&fs, format!("{n}").as_bytes())).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    fs.sync().expect("sync");
                }
            });
        }
        for round in 0..200 {
            for file in &files {
                file.write_at(round * 100, &[round as u8; 3000]).expect("write");
            }
            fs.sync().expect("sync");
            let waiting = fs.cache_statistics().dirty;
            if waiting > 0 {
                stop.store(true, Ordering::Relaxed);
                panic!("round {round}: {waiting} pages wait still");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_long_file_is_never_longer_than_what_has_been_written_of_it() {
    let (device, block) = device_of("256M");
    let options = MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() };
    let fs = FileSystem::mount(&block, "mem:", &options).expect("mount");
    let (long, other) = (create(&fs, b"long"), create(&fs, b"other"));
    fs.sync().expect("sync");
    long.write_at(0, &vec![7; 12_000 * PAGE]).expect("write");
    // Some of it can be written, and then no more.
    let rule = r#"{"match": {"opcode": "write", "after": 150}, "act": {"status": "write-fault"}}"#;
    device.add_faults(rule).expect("rule");
    assert_eq!(long.sync().expect_err("it fails").errno(), Errno::IO);
    device.clear_faults(None).expect("clear");
    other.set_xattr(b"user.x", b"x", SetXattr::Any, &Credentials::root()).expect("setxattr");
    other.sync().expect("sync");
    fs.abandon();
    drop((long, other, fs));
    let fs = mount(&block);
    let long = fs.root().expect("root").lookup(b"long", &Credentials::root()).expect("lookup");
    let mut data = vec![0; long.attributes().size as usize];
    long.read_at(0, &mut data).expect("read");
    assert!(
        !data.is_empty() && data.iter().all(|&byte| byte == 7),
        "{} bytes, some of them zeros",
        data.len()
    );
}
