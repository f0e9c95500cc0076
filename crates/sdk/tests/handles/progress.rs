//! Nobody waits for ever, whoever else there is and whatever he does or leaves undone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use unvme::handle::{Handle, Request};
use unvme::{Clock, ControllerOptions, Device, Nsid, OpenOptions, open};

use crate::{bytes, device, handle, options, policies};

/// Longer than anything here takes, on a machine that does a lot else.
const FOR_EVER: Duration = Duration::from_secs(300);

/// Does something that has to end.
fn bounded(act: impl FnOnce() + Send + 'static) {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        act();
        let _ = tell.send(());
    });
    match told.recv_timeout(FOR_EVER) {
        Err(RecvTimeoutError::Timeout) => panic!("it does not end"),
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

fn submit(handle: &Handle, request: Request, value: u8) {
    let mut buf = handle.alloc(request.blocks as usize * handle.block_bytes() as usize).expect("memory");
    let length = buf.len();
    buf.write(0, &bytes(value, length));
    handle.submit(request, Some(buf), u64::from(value)).expect("submit");
}

/// Takes so many, all of which went well.
fn take(handle: &Handle, count: usize) {
    let mut done = Vec::new();
    while done.len() < count {
        handle.wait(&mut done, Duration::from_secs(1));
    }
    assert!(done.iter().all(|done| done.status.is_success()), "{done:?}");
}

#[test]
fn one_who_waits_sends_what_others_have_submitted_and_do_not_look_after() {
    for (writing, reading) in
        [("", ""), ("sched=share:1", "sched=share:8"), ("sched=share:8", "sched=share:1")]
    {
        for name in ["mem:block:64M", "mem:block:64M,timing=optane"] {
            bounded(move || {
                let device = device(name);
                let (writer, reader) = (handle(&device, writing), handle(&device, reading));
                let mut out = [0; 4096];
                for round in 0..4 {
                    reader.read(0, &mut out).expect("both are awake");
                    (0..50).for_each(|at| submit(&writer, Request::write(at * 8, 8), round));
                    for at in 0..60 {
                        reader.read(at * 8, &mut out).expect("read");
                    }
                }
                // Behind what is its own.
                writer.read(0, &mut out).expect("read");
                take(&writer, 200);
            });
        }
    }
}

#[test]
fn requests_and_what_is_written_back_to_the_same_pages_wait_for_each_other_for_a_while() {
    bounded(|| {
        let device = device("mem:block:64M,timing=optane");
        let (sender, back) = (handle(&device, ""), handle(&device, "cache=write-back:4M"));
        for round in 0..80u64 {
            // Pages of the second and the third request.
            for page in [32 + round % 32, 64 + round % 32] {
                back.write(page * 8, &bytes(round as u8, 4096)).expect("write");
            }
            (0..3).for_each(|nth| submit(&sender, Request::write(nth * 256, 256), round as u8));
            std::thread::scope(|scope| {
                scope.spawn(|| take(&sender, 3));
                scope.spawn(|| back.flush().expect("flush"));
                scope.spawn(|| sender.write(64 * 8 + 1, &bytes(1, 512)).expect("write"));
                scope.spawn(|| sender.discard(32 * 8, 20).expect("deallocate"));
            });
        }
    });
}

#[test]
fn a_flush_writes_what_waits_on_a_page_that_others_write_to() {
    bounded(|| {
        let device = device("mem:block:16M");
        let (back, other) = (handle(&device, "cache=write-back:1M"), handle(&device, ""));
        let mut block = device.block(Nsid(1)).expect("blocks");
        let stop = AtomicBool::new(false);
        // The page is the other one's most of the time.
        let rule = r#"{ "match": { "opcode": "write", "lba": "1" }, "act": { "delay": "500us" } }"#;
        device.add_passing_faults(rule).expect("rule");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    other.write(1, &bytes(9, 3 * 512)).expect("write");
                }
            });
            let mut lost = None;
            for round in 1..=60u8 {
                back.write(0, &[round; 512]).expect("write");
                back.flush().expect("flush");
                let mut out = [0; 512];
                block.read_at(0, &mut out).expect("read");
                if out != [round; 512] {
                    lost = Some(round);
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
            assert_eq!(lost, None, "it was flushed, and is not on the device");
        });
    });
}

#[test]
fn a_flush_ends_beside_one_who_always_writes() {
    bounded(|| {
        let device = device("mem:block:16M");
        let (back, other) = (handle(&device, "cache=write-back:1M"), handle(&device, ""));
        // Each takes another time, so that there is always one under way.
        let rule =
            r#"{ "match": { "opcode": "write", "lba": "8000-9000" }, "act": { "delay": "30ms-90ms" } }"#;
        device.add_passing_faults(rule).expect("rule");
        let (flushed, begun) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let started = Instant::now();
                let mut done = Vec::new();
                (0..16).for_each(|at| submit(&other, Request::write(8000 + at * 8, 1), at as u8));
                begun.store(true, Ordering::Relaxed);
                while !flushed.load(Ordering::Relaxed) && started.elapsed() < FOR_EVER / 4 {
                    other.wait(&mut done, Duration::from_millis(100));
                    done.drain(..).for_each(|done| {
                        submit(&other, Request::write(8000 + done.token * 8, 1), done.token as u8);
                    });
                }
                assert!(flushed.load(Ordering::Relaxed), "as long as somebody writes, no flush ends");
                take(&other, other.outstanding());
            });
            while !begun.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            for round in 0..5 {
                back.write(round * 8, &bytes(round as u8, 512)).expect("write");
                back.flush().expect("flush");
            }
            flushed.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn caches_come_and_go_beside_a_long_write() {
    bounded(|| {
        let device = device("mem:block:64M");
        let bare = handle(&device, "limit=bytes:1M:burst:1ms");
        let mut block = device.block(Nsid(1)).expect("blocks");
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| bare.write(0, &vec![7; 16 << 20]).expect("write"));
            let mut out = [0; 512];
            while out[0] == 0 {
                block.read_at(0, &mut out).expect("read");
            }
            let cached = handle(&device, "cache=write-through:1M");
            block.read_at(32_767, &mut out).expect("read");
            let is_over = out[0] != 0;
            // What is written from now on, it sees.
            cached.read(32_767, &mut out).expect("read");
            bare.set(&policies("")).expect("set");
            assert!(!is_over, "a cache waits for all of a write");
            writing.join().expect("no panic");
            cached.read(32_767, &mut out).expect("read");
            assert!(out == [7; 512]);
        });
    });
}

/// A device on a clock that waiting moves.
fn timed() -> (Device, Clock) {
    let clock = Clock::manual();
    let controller = ControllerOptions { clock: clock.clone(), ..ControllerOptions::default() };
    let device = open("mem:block:64M", &OpenOptions { controller, ..OpenOptions::default() }).expect("open");
    (device, clock)
}

#[test]
fn what_waited_in_a_cache_does_not_count_in_the_limit_that_comes_with_another() {
    let (device, clock) = timed();
    let handle = handle(&device, "cache=write-back:16M:dirty:16M");
    handle.write(0, &bytes(1, 8 << 20)).expect("write");
    let before = clock.now();
    handle.set(&policies("limit=iops:1")).expect("set");
    assert!(clock.now() - before < 2_000_000_000, "{} ns", clock.now() - before);
    let mut out = [0; 4096];
    for at in 0..11 {
        handle.read(at * 8, &mut out).expect("read");
    }
    assert!(clock.now() - before >= 10_000_000_000, "{} ns", clock.now() - before);
}

#[test]
fn policies_that_are_refused_are_refused_as_a_whole() {
    let (device, clock) = timed();
    let handle = device.handle(Nsid(1), &options(4..32, "")).expect("handle");
    handle.set(&policies("cache=read:1M,limit=iops:1")).expect_err("half a page");
    let before = clock.now();
    let mut out = [0; 512];
    for at in 0..10 {
        handle.read(at, &mut out).expect("read");
    }
    assert!(clock.now() - before < 2_000_000_000, "{} ns", clock.now() - before);
}

#[test]
fn a_handle_that_is_closed_ends_what_it_has_not_sent() {
    bounded(|| {
        let device = device("mem:block:16M,timing=optane");
        let other = handle(&device, "cache=write-through:1M");
        let mut out = [0; 4096];
        for _ in 0..50 {
            other.read(0, &mut out).expect("both are awake");
            let one = handle(&device, "");
            (0..20).for_each(|nth| submit(&one, Request::write(nth % 3 * 8, 8), nth as u8));
            one.close().expect("close");
            other.write(0, &bytes(1, 4096)).expect("nobody has its pages");
        }
    });
}
