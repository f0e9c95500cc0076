//! Handles beside each other: what one has cached, others see; queues and who chooses them; streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use unvme::handle::{Chooser, Queueing, Request, RequestKind};
use unvme::{ControllerOptions, Device, Nsid, OpenOptions, open};

use crate::rig::on_each;
use crate::{bytes, device, handle, options, policies};

on_each! {
    fn what_one_has_in_memory_the_others_read(device: &Device) {
        let back = handle(device, "cache=write-back:4M");
        let bare = handle(device, "");
        let part = device.handle(Nsid(1), &options(64..128, "cache=read:1M:lru")).expect("handle");
        back.write(64, &bytes(1, 4096)).expect("write");
        let mut out = vec![0; 4096];
        bare.read(64, &mut out).expect("read");
        assert!(out == bytes(1, 4096), "past the cache");
        part.read(0, &mut out).expect("read");
        assert!(out == bytes(1, 4096), "by another cache");
        // The other way round, and a part of a page that waits.
        bare.write(66, &bytes(2, 512)).expect("write");
        back.read(64, &mut out).expect("read");
        assert!(out[1024..1536] == bytes(2, 512) && out[..1024] == bytes(1, 4096)[..1024]);
        part.write(3, &bytes(3, 512)).expect("write");
        back.flush().expect("flush");
        device.block(Nsid(1)).expect("blocks").read_at(64, &mut out).expect("read");
        assert!(out[1024..1536] == bytes(2, 512) && out[1536..2048] == bytes(3, 512));
        // A flush of one is about its blocks, whoever has written them.
        back.write(100, &bytes(4, 512)).expect("write");
        part.flush().expect("flush");
        device.block(Nsid(1)).expect("blocks").read_at(100, &mut out).expect("read");
        assert!(out[..512] == bytes(4, 512));
    }
}

on_each! {
    fn a_page_that_was_read_is_there(device: &Device) {
        let cached = handle(device, "cache=read:2M");
        let mut out = vec![0; 64 << 10];
        cached.read(8, &mut out).expect("read");
        cached.read(8, &mut out).expect("read");
        let counts = cached.statistics().cache;
        assert_eq!((counts.misses, counts.hits, counts.pages), (16, 16, 16));
        // A request that needs no device is over at once.
        let buf = cached.alloc(4096).expect("memory");
        cached.submit(Request::read(16, 8), Some(buf), 7).expect("submit");
        let mut done = Vec::new();
        assert_eq!(cached.poll(&mut done), 1);
        assert_eq!(cached.statistics().cache.hits, 17);
        // Random reads of more than there is room for: the budget holds.
        for at in 0..2000u64 {
            cached.read(at * 7919 % 32_000, &mut out[..512]).expect("read");
        }
        assert!(cached.statistics().cache.pages <= 512, "{:?}", cached.statistics());
    }
}

#[test]
fn those_who_share_queues_leave_some() {
    let controller = ControllerOptions { io_queues: 3, ..ControllerOptions::default() };
    let device = open("mem:block:16M", &OpenOptions { controller, ..OpenOptions::default() }).expect("open");
    let handles = ["", "complete=interrupt", "queue=own"].map(|text| handle(&device, text));
    for handle in &handles {
        handle.write(0, &bytes(1, 512)).expect("write");
    }
    device.handle(Nsid(1), &options(0..8, "queue=own")).expect_err("there is none left");
}

#[test]
fn a_function_chooses_the_queue() {
    let device = device("mem:block:16M");
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&asked);
    let mut policies = policies("");
    policies.queue = Queueing::Chosen(Chooser::new(move |request: &Request| {
        assert_eq!(request.kind, RequestKind::Write);
        seen.fetch_add(1, Ordering::Relaxed);
        // By the block, as a program would that has shards.
        request.lba as usize / 64
    }));
    let handle = handle(&device, "");
    handle.set(&policies).expect("set");
    for at in 0..20 {
        handle.write(at * 8, &bytes(1, 4096)).expect("write");
        handle.submit(Request::write(at, 1), Some(handle.alloc(512).expect("memory")), at).expect("submit");
    }
    let mut done = Vec::new();
    while done.len() < 20 {
        handle.wait(&mut done, Duration::from_secs(1));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 40);
}

#[test]
fn writes_go_to_the_stream_also_those_that_wait() {
    let device = device("mem:block:64M,block=4096,fdp,handles=4,ru=1M");
    let bare = handle(&device, "stream=2");
    let back = device.handle(Nsid(1), &options(4096..8192, "cache=write-back:4M,stream=3")).expect("handle");
    let mut block = device.block(Nsid(1)).expect("blocks");
    bare.write(0, &vec![1; 100 * 4096]).expect("write");
    back.write(0, &vec![2; 40 * 4096]).expect("write");
    back.flush().expect("flush");
    let buf = bare.alloc(8 * 4096).ok();
    bare.submit(Request::write(200, 8), buf, 0).expect("submit");
    let mut done = Vec::new();
    while bare.wait(&mut done, Duration::from_secs(1)) == 0 {}
    // Of a unit of 256 blocks.
    let left: Vec<u64> = block.handles().expect("handles").iter().map(|handle| handle.blocks_left).collect();
    assert_eq!(left, [256, 256, 256 - 108, 256 - 40]);
    let error = bare.set(&policies("stream=9")).expect_err("there is none");
    assert!(error.to_string().contains('9'), "{error}");
}
