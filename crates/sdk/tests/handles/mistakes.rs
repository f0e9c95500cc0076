//! What a mistake is answered with.

use unvme::handle::{Chooser, HandleOptions, OUTSTANDING_MAX, Queueing, Request};
use unvme::{Error, Nsid, Status};

use crate::rig::Rig;
use crate::{bytes, device, handle, options, policies};

fn message(error: Error) -> String {
    error.to_string()
}

#[test]
fn a_partition_is_on_the_namespace_and_nothing_leads_out_of_it() {
    let device = device("mem:block:16M");
    for (blocks, part) in [
        (0..32_769, "blocks 0 to 32769: it begins before it ends, and the namespace has 32768 blocks"),
        (5..5, "blocks 5 to 5"),
        (40_000..50_000, "the namespace has 32768 blocks"),
    ] {
        let error = device.handle(Nsid(1), &options(blocks, "")).expect_err("no such partition");
        assert!(message(error).contains(part));
    }
    let handle = device.handle(Nsid(1), &options(100..108, "")).expect("handle");
    assert_eq!((handle.blocks(), handle.partition(), handle.block_bytes()), (8, 100..108, 512));
    handle.write(0, &bytes(1, 8 * 512)).expect("all of it");
    let mut out = [0; 1024];
    let error = handle.read(7, &mut out).expect_err("beyond the end");
    assert!(message(error).contains("read 2 blocks from block 7 of a handle: it has 8 blocks"));
    assert!(message(handle.write(8, &[0; 512]).expect_err("beyond")).contains("write 1 blocks from block 8"));
    assert!(message(handle.write(u64::MAX, &[0; 512]).expect_err("beyond")).contains("it has 8 blocks"));
    assert!(message(handle.write(0, &[0; 700]).expect_err("half a block")).contains("whole blocks of 512"));
    assert!(message(handle.discard(0, 9).expect_err("beyond")).contains("deallocate 9 blocks"));
    handle.read(8, &mut []).expect("nothing");
    let refused = handle.submit(Request::read(4, 5), handle.alloc(4096).ok(), 1).expect_err("beyond");
    assert!(refused.buf.is_some() && message(refused.error).contains("it has 8 blocks"));
    let refused = handle.submit(Request::read(0, 8), handle.alloc(512).ok(), 1).expect_err("too short");
    assert!(message(refused.error).contains("read 4096 bytes: the buffer has 512"));
    assert!(handle.submit(Request::write(0, 1), None, 1).is_err());
    assert!(device.handle(Nsid(9), &HandleOptions::default()).is_err());
}

#[test]
fn a_class_needs_a_queue_of_ones_own_and_a_device_that_has_classes() {
    let device = device("mem:block:16M");
    let mut chosen = policies("sched=wrr:high");
    chosen.queue = Queueing::Chosen(Chooser::new(|_| 0));
    let wrong = HandleOptions { policies: chosen, ..HandleOptions::default() };
    assert!(message(device.handle(Nsid(1), &wrong).expect_err("chosen")).contains("a function chooses"));
    let rig = Rig::tcp();
    let remote = rig.open();
    let handle = handle(&remote, "sched=share:2");
    let error = message(handle.set(&policies("sched=wrr:high")).expect_err("no classes"));
    assert!(error.contains("needs weighted round robin") && error.contains("network"), "{error}");
    // It is what it was.
    assert_eq!(handle.policies(), policies("sched=share:2"));
    handle.write(0, &bytes(1, 512)).expect("and it goes on");
    drop((handle, remote));
    rig.end();
}

#[test]
fn a_cache_is_of_whole_pages() {
    let small = device("mem:block:16M");
    let error = small.handle(Nsid(1), &options(4..32, "cache=read:1M")).expect_err("half a page");
    assert!(
        message(error)
            .contains("multiples of 8 blocks (4 KiB), or with the namespace, and not with blocks 4")
    );
    let bare = small.handle(Nsid(1), &options(4..32, "")).expect("without one");
    assert!(bare.set(&policies("cache=write-back:1M")).is_err());
    bare.write(0, &bytes(1, 512)).expect("and it goes on");
    let mut wrong = policies("cache=read:1M");
    wrong.cache.bytes = 1;
    assert!(message(bare.set(&wrong).expect_err("no cache")).contains("a cache of 1 bytes"));
}

#[test]
fn a_device_that_fails_says_what_and_where() {
    let device = device("mem:block:16M");
    for text in ["", "cache=read:1M", "cache=write-through:1M", "cache=write-back:1M"] {
        let handle = handle(&device, text);
        let rule = r#"{ "match": { "opcode": "read", "lba": "800" }, "act": { "status": "0x281" } }"#;
        device.add_faults(rule).expect("rule");
        let mut out = [0; 4096];
        let error = handle.read(800, &mut out).expect_err("it cannot be read");
        assert_eq!(error.status().map(Status::kind), Some(Status::UNRECOVERED_READ_ERROR), "{text}");
        assert!(message(error).contains("read 8 blocks from block 800"), "{text}");
        let buf = handle.alloc(4096).ok();
        handle.submit(Request::read(800, 8), buf, 5).expect("submit");
        let mut done = Vec::new();
        while handle.wait(&mut done, std::time::Duration::from_secs(1)) == 0 {}
        assert_eq!(done[0].status.kind(), Status::UNRECOVERED_READ_ERROR);
        assert!(done[0].buf.is_some());
        device.clear_faults(None).expect("clear");
        handle.read(800, &mut out).expect("it was not kept");
    }
}

#[test]
fn a_block_that_cannot_be_read_is_mended_by_writing_it_and_is_nobody_elses_fault() {
    for text in ["", "cache=read:1M", "cache=write-through:1M", "cache=write-back:1M"] {
        let device = device("mem:block:16M");
        let (handle, _other) = (handle(&device, text), handle(&device, "cache=read:1M"));
        let rule = r#"{ "match": { "opcode": "read", "lba": "801" }, "act": { "status": "0x281" } }"#;
        device.add_faults(rule).expect("rule");
        let mut out = [0; 512];
        handle.read(802, &mut out).expect("the block beside it");
        if text.is_empty() {
            handle.submit(Request::read(802, 1), handle.alloc(512).ok(), 5).expect("submit");
            let mut done = Vec::new();
            while handle.wait(&mut done, std::time::Duration::from_secs(1)) == 0 {}
            assert!(done[0].status.is_success(), "{}", done[0].status);
        }
        handle.write(801, &bytes(1, 512)).expect(text);
        handle.flush().expect("flush");
        device.clear_faults(None).expect("clear");
        device.block(Nsid(1)).expect("blocks").read_at(801, &mut out).expect("read");
        assert!(out == bytes(1, 512)[..], "{text}");
    }
}

#[test]
fn the_longest_request_may_begin_anywhere() {
    let device = device("mem:block:64M");
    let _cached = handle(&device, "cache=read:4M");
    let block = device.block(Nsid(1)).expect("blocks");
    let most = block.namespace().transfer_blocks_max();
    for text in ["", "cache=read:4M", "cache=write-back:4M"] {
        let handle = handle(&device, text);
        let data = bytes(3, most as usize * 512);
        handle.write(3, &data).expect("write");
        handle.flush().expect("flush");
        let other = handle.alloc(data.len()).ok();
        handle.submit(Request::read(3, most), other, 5).expect("submit");
        let mut done = Vec::new();
        while handle.wait(&mut done, std::time::Duration::from_secs(1)) == 0 {}
        assert!(done[0].status.is_success(), "{text}: {}", done[0].status);
        assert!(done[0].buf.as_ref().is_some_and(|buf| buf.to_vec()[..data.len()] == data), "{text}");
    }
}

#[test]
fn no_more_requests_than_there_is_room_for() {
    let device = device("mem:block:16M,timing=tlc");
    let handle = handle(&device, "limit=iops:1");
    for token in 0..OUTSTANDING_MAX as u64 {
        handle.submit(Request::flush(), None, token).expect("submit");
    }
    let refused = handle.submit(Request::flush(), None, 0).expect_err("too many");
    assert!(refused.is_full);
    handle.set(&policies("")).expect("set");
    let mut done = Vec::new();
    while done.len() < OUTSTANDING_MAX {
        handle.wait(&mut done, std::time::Duration::from_secs(1));
    }
    handle.submit(Request::flush(), None, 0).expect("there is room again");
}
