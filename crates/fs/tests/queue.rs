//! Calls that do not wait: against plain bytes, beside calls that do, and on blocks that are given away
//! meanwhile.

use std::collections::HashSet;
use std::time::Duration;

use unvme::{Block, Device, Nsid, OpenOptions, QueueOptions, open};
use unvme_fs::{Credentials, Errno, FileQueue, FileSystem, MakeOptions, MountOptions, NewFile, Vnode, make};

const PAGE: usize = 4096;
const PAGES: usize = 64;

fn device() -> (Device, Block) {
    let device = open("mem:block:16M", &OpenOptions::default()).expect("open");
    let block = device.block(Nsid(1)).expect("namespace");
    make(&block, "mem:", &MakeOptions::default(), |_, _| ()).expect("make");
    (device, block)
}

fn mount(block: &Block) -> FileSystem {
    FileSystem::mount(block, "mem:", &MountOptions::default()).expect("mount")
}

fn queue(fs: &FileSystem) -> FileQueue {
    fs.queue(&QueueOptions { depth: 16, ..QueueOptions::default() }).expect("queue")
}

fn create(fs: &FileSystem, name: &[u8]) -> Vnode {
    fs.root()
        .and_then(|root| root.create(name, &NewFile::regular(0o644), &Credentials::root()))
        .expect("create")
}

/// What is under way: the page, and what a read is to bring.
struct Call {
    page: usize,
    wanted: Option<Vec<u8>>,
}

fn finish(queue: &mut FileQueue) {
    while queue.outstanding() > 0 {
        queue.wait(Duration::from_secs(1)).expect("wait");
        queue.poll(16).for_each(drop);
    }
}

#[test]
fn pages_hold_what_was_written_last() {
    let (_device, block) = device();
    let fs = mount(&block);
    let node = create(&fs, b"pages");
    let mut model = vec![0u8; PAGES * PAGE];
    node.write_at(0, &model).expect("write");
    node.sync_data().expect("sync");
    let mut queue = queue(&fs);
    let file = queue.add(&node).expect("add");
    let mut choice = 5u64;
    let mut calls: Vec<Option<Call>> = (0..12).map(|_| None).collect();
    let mut busy = HashSet::new();
    let mut done = 0;
    while done < 4000 {
        choice = choice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let page = (choice >> 33) as usize % PAGES;
        let slot = calls.iter().position(Option::is_none).filter(|_| !busy.contains(&page));
        if let Some(slot) = slot {
            let offset = (page * PAGE) as u64;
            if choice >> 62 == 0 {
                // One that waits, in between: by way of the cache.
                let fill = vec![choice as u8; 100];
                node.write_at(offset + 50, &fill).expect("write");
                model[page * PAGE + 50..][..100].copy_from_slice(&fill);
            }
            if choice >> 59 & 15 == 3 {
                node.drop_cache().expect("drop");
            }
            let mut buf = queue.alloc(PAGE).expect("memory");
            let here = &mut model[page * PAGE..][..PAGE];
            let wanted = if choice >> 40 & 1 == 0 {
                here.fill(choice as u8 ^ 0x5a);
                buf.write(0, here);
                queue.write(file, offset, PAGE, buf, slot as u64).expect("submit");
                None
            } else {
                queue.read(file, offset, PAGE, buf, slot as u64).expect("submit");
                Some(here.to_vec())
            };
            busy.insert(page);
            calls[slot] = Some(Call { page, wanted });
            if choice >> 50 & 3 != 0 {
                continue;
            }
        }
        assert!(queue.wait(Duration::from_secs(10)).expect("wait"));
        for completion in queue.poll(4) {
            assert_eq!(completion.result.expect("result"), PAGE);
            let call = calls[completion.token as usize].take().expect("under way");
            busy.remove(&call.page);
            if let Some(wanted) = call.wanted {
                assert!(completion.buf.expect("buffer").to_vec()[..PAGE] == wanted, "page {}", call.page);
            }
            done += 1;
        }
    }
    finish(&mut queue);
    queue.sync(file, 99).expect("submit");
    assert!(queue.wait(Duration::from_secs(10)).expect("wait"));
    assert_eq!(queue.poll(1).map(|completion| completion.token).collect::<Vec<_>>(), [99]);
    queue.remove(file).expect("idle");
    assert_eq!(queue.remove(file).expect_err("gone").errno(), Errno::BADF);
    let mut all = vec![0; model.len()];
    node.read_direct(0, &mut all).expect("read");
    assert!(all == model);
    drop((queue, node));
    assert_eq!(fs.check(|_| ()).expect("check").problems, []);
}

#[test]
fn blocks_of_a_call_under_way_are_nobody_elses() {
    let (_device, block) = device();
    let fs = mount(&block);
    let who = Credentials::root();
    let node = create(&fs, b"victim");
    node.write_at(0, &vec![1; 512 * PAGE]).expect("write");
    fs.sync().expect("sync");
    node.drop_cache().expect("drop");
    let free = fs.usage().free_blocks;
    let mut queue = queue(&fs);
    let file = queue.add(&node).expect("add");
    let mut buf = queue.alloc(PAGE).expect("memory");
    buf.write(0, &[0xee; PAGE]);
    // Taken, and not told to the device yet.
    queue.write(file, 0, PAGE, buf, 1).expect("submit");
    node.truncate(0).expect("truncate");
    fs.sync().expect("sync");
    assert_eq!(fs.usage().free_blocks, free + 512, "what is deleted counts as free");
    // But nobody gets them as long as the call is under way.
    let other = create(&fs, b"other");
    let bytes = other.write_direct(0, &vec![2; (free as usize + 512) * PAGE]).expect("write");
    assert!(bytes > 1024 * PAGE && bytes <= free as usize * PAGE, "{} of {free} blocks", bytes / PAGE);
    fs.sync().expect("sync");
    assert!(queue.wait(Duration::from_secs(10)).expect("wait"));
    assert_eq!(queue.poll(4).count(), 1);
    let mut all = vec![0; bytes];
    other.read_direct(0, &mut all).expect("read");
    assert!(all.iter().all(|&byte| byte == 2), "somebody else's call has written here");
    fs.sync().expect("sync");
    fs.root().expect("root").unlink(b"other", &who).expect("unlink");
    drop((other, queue, node));
    // They can be had now.
    let blocks = fs.usage().free_blocks as usize - 128;
    assert!(blocks as u64 > free);
    assert_eq!(create(&fs, b"all").write_direct(0, &vec![3; blocks * PAGE]).expect("write"), blocks * PAGE);
    assert_eq!(fs.check(|_| ()).expect("check").problems, []);
}

#[test]
fn what_cannot_be_comes_back_with_its_buffer() {
    let (_device, block) = device();
    let fs = mount(&block);
    let node = create(&fs, b"some");
    let mut queue = queue(&fs);
    let file = queue.add(&node).expect("add");
    let buf = queue.alloc(PAGE).expect("memory");
    let refused = queue.read(file, 0, 2 * PAGE, buf, 1).expect_err("too short");
    assert_eq!((refused.error.errno(), refused.buf.is_some()), (Errno::INVAL, true));
    let directory = queue.add(&fs.root().expect("root")).expect("add");
    let refused = queue.read(directory, 0, PAGE, refused.buf.expect("buffer"), 1).expect_err("a directory");
    assert_eq!(refused.error.errno(), Errno::ISDIR);
    // Behind the end there is nothing, and an append says where it went.
    queue.read(file, 0, PAGE, refused.buf.expect("buffer"), 7).expect("submit");
    let mut buf = queue.alloc(PAGE).expect("memory");
    buf.write(0, b"text");
    queue.append(file, 4, buf, 8).expect("submit");
    let mut seen = Vec::new();
    while seen.len() < 2 {
        assert!(queue.wait(Duration::from_secs(10)).expect("wait"));
        seen.extend(queue.poll(8).map(|done| (done.token, done.offset, done.result.expect("done"))));
    }
    assert_eq!(seen, [(7, 0, 0), (8, 0, 4)]);
}
