//! Random operations against plain bytes in memory: one thread on several files with a cache that is too
//! small, and many threads on one file.

use std::sync::Mutex;
use std::time::Duration;

use proptest::prelude::*;
use unvme::{Block, Device, Nsid, OpenOptions, open};
use unvme_fs::{
    Allocation, CacheOptions, Credentials, Errno, FileSystem, MakeOptions, MountOptions, NewFile, Policy,
    Seek, Vnode, make,
};

const PAGE: u64 = 4096;

/// No file gets longer.
const END: u64 = 24 * PAGE;

#[derive(Clone, Debug)]
enum Step {
    Write { at: u64, bytes: usize, fill: u8, is_direct: bool },
    Append { bytes: usize, fill: u8 },
    Read { at: u64, bytes: usize, is_direct: bool },
    Truncate { size: u64 },
    Allocate { at: u64, bytes: u64, what: Allocation },
    Copy { at: u64, to: u64, bytes: u64 },
    Seek { at: u64 },
    DropCache,
    Sync,
    Mount,
}

/// Places and lengths, with those around page boundaries among them.
fn place(max: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        0..max,
        (0..max / PAGE).prop_map(|page| page * PAGE),
        (1..max / PAGE).prop_map(|page| page * PAGE - 1)
    ]
}

fn allocation() -> impl Strategy<Value = Allocation> {
    (0..3u8, any::<bool>()).prop_map(|(kind, keep_size)| match kind {
        0 => Allocation::Reserve { keep_size },
        1 => Allocation::PunchHole,
        _ => Allocation::ZeroRange { keep_size },
    })
}

fn step() -> impl Strategy<Value = Step> {
    let some = || 1..4 * PAGE as usize;
    prop_oneof![
        6 => (place(END - 4 * PAGE), some(), any::<u8>(), any::<bool>())
            .prop_map(|(at, bytes, fill, is_direct)| Step::Write { at, bytes, fill, is_direct }),
        2 => (some(), any::<u8>()).prop_map(|(bytes, fill)| Step::Append { bytes, fill }),
        4 => (place(END), some(), any::<bool>())
            .prop_map(|(at, bytes, is_direct)| Step::Read { at, bytes, is_direct }),
        2 => place(END).prop_map(|size| Step::Truncate { size }),
        2 => (place(END - 4 * PAGE), 1..4 * PAGE, allocation())
            .prop_map(|(at, bytes, what)| Step::Allocate { at, bytes, what }),
        1 => (place(END / 2 - 2 * PAGE), place(END / 2), 1..PAGE * 2)
            .prop_map(|(at, to, bytes)| Step::Copy { at, to: to + END / 2, bytes }),
        1 => place(END).prop_map(|at| Step::Seek { at }),
        1 => Just(Step::DropCache),
        1 => Just(Step::Sync),
        1 => Just(Step::Mount),
    ]
}

fn put(model: &mut Vec<u8>, at: u64, data: &[u8]) {
    let end = at as usize + data.len();
    if model.len() < end {
        model.resize(end, 0);
    }
    model[at as usize..end].copy_from_slice(data);
}

/// Bytes that tell one from its neighbours.
fn bytes(fill: u8, count: usize) -> Vec<u8> {
    (0..count).map(|at| fill.wrapping_add(at as u8 / 3)).collect()
}

fn device() -> (Device, Block) {
    let device = open("mem:block:16M", &OpenOptions::default()).expect("open");
    let block = device.block(Nsid(1)).expect("namespace");
    make(&block, "mem:", &MakeOptions::default(), |_, _| ()).expect("make");
    (device, block)
}

fn mount(block: &Block, policy: Policy, pages: usize) -> FileSystem {
    let cache = CacheOptions { bytes: pages * 4096, policy, ..CacheOptions::default() };
    FileSystem::mount(block, "mem:", &MountOptions { cache, ..MountOptions::default() }).expect("mount")
}

fn check_file(file: &Vnode, model: &[u8]) {
    assert_eq!(file.attributes().size, model.len() as u64);
    let mut all = vec![0xee; model.len() + 100];
    assert_eq!(file.read_at(0, &mut all).expect("read"), model.len());
    if let Some(at) = (0..model.len()).find(|&at| all[at] != model[at]) {
        panic!("byte {at} of {} is {:#x}, and was written {:#x}", model.len(), all[at], model[at]);
    }
}

fn keeps_size(what: Allocation) -> bool {
    match what {
        Allocation::PunchHole => true,
        Allocation::Reserve { keep_size } | Allocation::ZeroRange { keep_size } => keep_size,
    }
}

fn apply(file: &Vnode, model: &mut Vec<u8>, step: &Step) {
    match step {
        Step::Write { at, bytes: count, fill, is_direct } => {
            let data = bytes(*fill, *count);
            let done = if *is_direct { file.write_direct(*at, &data) } else { file.write_at(*at, &data) };
            assert_eq!(done.expect("write"), data.len());
            put(model, *at, &data);
        }
        Step::Append { bytes: count, fill } if model.len() as u64 + *count as u64 <= END => {
            let data = bytes(*fill, *count);
            assert_eq!(file.append(&data).expect("append"), (model.len() as u64, data.len()));
            model.extend_from_slice(&data);
        }
        Step::Append { .. } | Step::Mount => {}
        Step::Read { at, bytes: count, is_direct } => {
            let mut found = vec![0xee; *count];
            let done =
                if *is_direct { file.read_direct(*at, &mut found) } else { file.read_at(*at, &mut found) };
            let from = (*at as usize).min(model.len());
            let wanted = &model[from..(from + count).min(model.len())];
            assert_eq!(done.expect("read"), wanted.len());
            assert!(found[..wanted.len()] == *wanted, "bytes from {at} on");
        }
        Step::Truncate { size } => {
            file.truncate(*size).expect("truncate");
            model.resize(*size as usize, 0);
        }
        Step::Allocate { at, bytes, what } => {
            let end = at + bytes;
            file.allocate(*at..end, *what).expect("allocate");
            if !keeps_size(*what) && (model.len() as u64) < end {
                model.resize(end as usize, 0);
            }
            if !matches!(what, Allocation::Reserve { .. }) {
                let (from, to) = ((*at as usize).min(model.len()), (end as usize).min(model.len()));
                model[from..to].fill(0);
            }
        }
        Step::Copy { at, to, bytes } => {
            let there = (model.len() as u64).saturating_sub(*at).min(*bytes);
            assert_eq!(file.copy_range(*at, file, *to, *bytes).expect("copy"), there);
            if there > 0 {
                let data = model[*at as usize..][..there as usize].to_vec();
                put(model, *to, &data);
            }
        }
        Step::Seek { at } => {
            let is_behind = *at >= model.len() as u64;
            match file.seek(*at, Seek::Hole) {
                Ok(hole) => {
                    assert!(!is_behind && hole >= *at && hole <= model.len() as u64);
                    // All zeros from there to the next data.
                    let data =
                        file.seek(hole.min(model.len() as u64 - 1), Seek::Data).unwrap_or(model.len() as u64);
                    if data > hole {
                        assert!(model[hole as usize..data as usize].iter().all(|&byte| byte == 0));
                    }
                }
                Err(e) => assert!(is_behind && e.errno() == Errno::NXIO, "{e}"),
            }
        }
        Step::DropCache => file.drop_cache().expect("drop"),
        Step::Sync => file.sync_data().expect("sync"),
    }
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::S3Fifo), Just(Policy::Lru), Just(Policy::None)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn files_hold_what_was_written(
        steps in prop::collection::vec((0..3usize, step()), 1..60),
        policy in policy(),
        pages in prop_oneof![Just(5usize), Just(40), Just(1000)],
    ) {
        let (_device, block) = device();
        let who = Credentials::root();
        let mut fs = mount(&block, policy, pages);
        let name = |index: usize| [b'a' + index as u8];
        let mut files: Vec<Vnode> = (0..3)
            .map(|index| fs.root().and_then(|root| root.create(&name(index), &NewFile::regular(0o644), &who)))
            .collect::<Result<_, _>>()
            .expect("create");
        let mut models = vec![Vec::new(); 3];
        for (index, step) in &steps {
            if matches!(step, Step::Mount) {
                files.clear();
                drop(fs);
                fs = mount(&block, policy, pages);
                let root = fs.root().expect("root");
                files = (0..3).map(|index| root.lookup(&name(index), &who).expect("lookup")).collect();
            }
            apply(&files[*index], &mut models[*index], step);
            check_file(&files[*index], &models[*index]);
        }
        for (file, model) in files.iter().zip(&models) {
            check_file(file, model);
        }
        files.clear();
        drop(fs);
        let fs = mount(&block, policy, pages);
        for (index, model) in models.iter().enumerate() {
            check_file(&fs.root().expect("root").lookup(&name(index), &who).expect("lookup"), model);
        }
        prop_assert_eq!(fs.check(|_| ()).expect("check").problems, []);
    }
}

/// Threads write whole pages that say who has written them, each its own number and a count that goes up.
/// Whoever reads a page sees one of these pages, whole, and from each writer never an older one than before.
#[test]
fn many_threads_on_one_file_see_one_order() {
    const PAGES: u64 = 6;
    const THREADS: u64 = 4;
    let (_device, block) = device();
    for policy in [Policy::S3Fifo, Policy::Lru, Policy::None] {
        let fs = mount(&block, policy, 4);
        let who = Credentials::root();
        let file =
            fs.root().expect("root").create(b"shared", &NewFile::regular(0o644), &who).expect("create");
        file.write_at(0, &vec![0; (PAGES * PAGE) as usize]).expect("write");
        // The last count of each writer that anybody is sure of, for each page.
        let seen = Mutex::new(vec![[0u32; THREADS as usize]; PAGES as usize]);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (file, seen) = (file.clone(), &seen);
                scope.spawn(move || {
                    let mut choice = thread + 1;
                    for count in 1..=400u32 {
                        choice = choice
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let page = (choice >> 33) % PAGES;
                        let mut data = [0; PAGE as usize];
                        for word in data.chunks_exact_mut(8) {
                            word[..4].copy_from_slice(&(thread as u32 + 1).to_le_bytes());
                            word[4..].copy_from_slice(&count.to_le_bytes());
                        }
                        let done = match choice >> 61 {
                            0 | 1 => file.write_direct(page * PAGE, &data),
                            2 => file.sync_data().and_then(|()| file.write_at(page * PAGE, &data)),
                            3 => file.drop_cache().and_then(|()| file.write_at(page * PAGE, &data)),
                            _ => file.write_at(page * PAGE, &data),
                        };
                        assert_eq!(done.expect("write"), data.len());
                        let page = (choice >> 40) % PAGES;
                        let known = unvme::lock::lock(seen)[page as usize];
                        let done = if choice >> 63 == 0 {
                            file.read_at(page * PAGE, &mut data)
                        } else {
                            file.read_direct(page * PAGE, &mut data)
                        };
                        assert_eq!(done.expect("read"), data.len());
                        assert!(data.chunks_exact(8).all(|word| word == &data[..8]), "a page is torn");
                        let writer = u32::from_le_bytes(data[..4].try_into().expect("4 bytes"));
                        let number = u32::from_le_bytes(data[4..8].try_into().expect("4 bytes"));
                        if writer > 0 {
                            let at = writer as usize - 1;
                            assert!(
                                number >= known[at],
                                "{writer} has written {} there, and {number} is read",
                                known[at]
                            );
                            let mut seen = unvme::lock::lock(seen);
                            seen[page as usize][at] = seen[page as usize][at].max(number);
                        }
                    }
                });
            }
        });
        drop(file);
        fs.root().expect("root").unlink(b"shared", &who).expect("unlink");
        fs.sync().expect("sync");
        assert_eq!(fs.check(|_| ()).expect("check").problems, []);
    }
}

/// Threads that make, rename and remove names in the same directories, while others list them.
#[test]
fn many_threads_on_the_same_names_leave_everything_in_order() {
    let (_device, block) = device();
    let fs = mount(&block, Policy::S3Fifo, 64);
    let who = Credentials::root();
    let root = fs.root().expect("root");
    for name in [b"x", b"y"] {
        root.create(name, &NewFile::directory(0o755), &who).expect("mkdir");
    }
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (root, who) = (root.clone(), &who);
            scope.spawn(move || {
                let mut choice = thread + 77;
                for _ in 0..500 {
                    choice = choice
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let directory =
                        |bit: u64| root.lookup(if bit & 1 == 0 { b"x" } else { b"y" }, who).expect("there");
                    let (from, to) = (directory(choice >> 33), directory(choice >> 34));
                    let (name, other) =
                        ([b'a' + (choice >> 40) as u8 % 5], [b'a' + (choice >> 45) as u8 % 5]);
                    let done = match choice >> 61 {
                        0 | 1 => from
                            .create(&name, &NewFile::regular(0o644), who)
                            .and_then(|file| file.append(b"some").map(drop)),
                        2 => from.create(&name, &NewFile::directory(0o755), who).map(drop),
                        3 => from.unlink(&name, who),
                        4 => from.rmdir(&name, who),
                        5 | 6 => from.rename(&name, (&to, &other), unvme_fs::Rename::Replace, who),
                        _ => from.list(0, |_| std::ops::ControlFlow::Continue(())),
                    };
                    if let Err(e) = done {
                        assert!(matches!(e, unvme_fs::Error::Posix(_)), "{e}");
                    }
                }
            });
        }
    });
    fs.sync().expect("sync");
    assert_eq!(fs.check(|_| ()).expect("check").problems, []);
}

/// Nobody syncs, and everything is on the media after a while.
#[test]
fn what_waits_is_written_before_long() {
    let (_device, block) = device();
    let cache = CacheOptions { dirty_age: Duration::from_millis(50), ..CacheOptions::default() };
    let options =
        MountOptions { cache, commit_interval: Duration::from_millis(50), ..MountOptions::default() };
    let fs = FileSystem::mount(&block, "mem:", &options).expect("mount");
    let who = Credentials::root();
    let forced = fs.traffic().forced;
    let file = fs.root().expect("root").create(b"late", &NewFile::regular(0o644), &who).expect("create");
    file.write_at(0, &[7; 10_000]).expect("write");
    assert_eq!(fs.cache_statistics().dirty, 3);
    while fs.cache_statistics().dirty > 0 || fs.traffic().forced == forced {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(fs.cache_statistics().written_back, 3);
    assert!(fs.traffic().written_bytes >= 3 * 4096);
}
