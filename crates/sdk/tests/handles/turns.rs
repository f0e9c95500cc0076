//! Who is let go first, on a device.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use unvme::handle::{Handle, Request, RequestKind, WINDOW};
use unvme::{Clock, ControllerOptions, Device, OpenOptions, open};

use crate::rig::on_each;
use crate::{device, handle, policies};

/// Keeps `depth` writes of 128 KiB under way until told to stop; how many have ended.
fn press(handle: &Handle, depth: u64, stop: &AtomicBool) -> u64 {
    let mut free: Vec<_> = (0..depth).map(|_| handle.alloc(128 << 10).expect("memory")).collect();
    let (mut ended, mut at) = (0, 0);
    let mut done = Vec::new();
    let goes_on = |ended| ended == 0 || !stop.load(Ordering::Relaxed);
    while goes_on(ended) || handle.outstanding() > 0 {
        while goes_on(ended)
            && let Some(buf) = free.pop()
        {
            at = (at + 256) % (handle.blocks() - 256);
            handle.submit(Request::write(at, 256), Some(buf), 0).expect("submit");
        }
        handle.wait(&mut done, Duration::from_millis(10));
        ended += done.len() as u64;
        free.extend(done.drain(..).filter_map(|done| done.buf));
    }
    ended
}

on_each! {
    fn nobody_starves_beside_one_who_writes_as_much_as_he_can(device: &Device) {
        let reader = handle(device, "sched=share:8");
        let writer = handle(device, "sched=share:1");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writes = scope.spawn(|| press(&writer, 32, &stop));
            let mut out = [0; 4096];
            for at in 0..200 {
                reader.read(at * 8, &mut out).expect("read");
            }
            // Deadlines and first come, first served, meanwhile.
            reader.set(&policies("sched=deadline:100us")).expect("set");
            writer.set(&policies("sched=fifo")).expect("set");
            for at in 0..200 {
                reader.read(at * 8, &mut out).expect("read");
            }
            stop.store(true, Ordering::Relaxed);
            assert!(writes.join().expect("no panic") > 0);
        });
    }
}

#[test]
fn one_thread_may_have_both_of_them() {
    let device = device("mem:block:64M,timing=optane");
    assert_eq!(device.handle_window(), WINDOW);
    // Two commands of 128 KiB.
    device.set_handle_window(288 << 10);
    let reader = handle(&device, "sched=share:8");
    let writer = handle(&device, "sched=share:1");
    let mut out = [0; 4096];
    for round in 0..20u64 {
        for at in 0..16 {
            let buf = writer.alloc(128 << 10).expect("memory");
            writer.submit(Request::write(at * 256, 256), Some(buf), at).expect("submit");
        }
        // Nobody polls the writer but whoever waits here.
        reader.read(round * 8, &mut out).expect("read");
    }
    let mut done = Vec::new();
    while done.len() < 320 {
        writer.wait(&mut done, Duration::from_secs(1));
    }
    assert!(done.iter().all(|done| done.status.is_success()));
}

#[test]
fn a_limit_is_kept_on_a_clock_that_waiting_moves() {
    let clock = Clock::manual();
    let controller = ControllerOptions { clock: clock.clone(), ..ControllerOptions::default() };
    let device = open("mem:block:16M", &OpenOptions { controller, ..OpenOptions::default() }).expect("open");
    let handle = handle(&device, "limit=iops:100:burst:100ms");
    let mut out = [0; 512];
    let started = clock.now();
    for at in 0..110 {
        handle.read(at, &mut out).expect("read");
    }
    // Ten at once, and a hundred in a second.
    let took = clock.now() - started;
    assert!((1_000_000_000..1_020_000_000).contains(&took), "{took}");
}

#[test]
fn what_is_shared_by_weight_is_shared_by_weight() {
    let device = device("mem:block:64M,timing=optane");
    let (one, three) = (handle(&device, "sched=share:1"), handle(&device, "sched=share:3"));
    let stop = AtomicBool::new(false);
    let [few, many] = std::thread::scope(|scope| {
        let both = [scope.spawn(|| press(&one, 16, &stop)), scope.spawn(|| press(&three, 16, &stop))];
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(500) {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
        both.map(|thread| thread.join().expect("no panic"))
    });
    // Not how fast, but that it is clearly more: the machine may be busy.
    assert!(many > few, "{many} and {few}");
}

fn limited(device: &Device) -> Handle {
    handle(device, "limit=iops:1:burst:1ms")
}

#[test]
fn a_limit_that_is_lifted_lets_those_go_who_wait_and_a_handle_that_is_dropped_ends_them() {
    let device = device("mem:block:16M");
    let handle = limited(&device);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut out = [0; 512];
            (0..3).for_each(|at| handle.read(at, &mut out).expect("read"));
        });
        std::thread::sleep(Duration::from_millis(20));
        handle.set(&policies("")).expect("set");
        waiting.join().expect("no panic");
    });
    let handle = limited(&device);
    for token in 0..5 {
        let buf = Some(handle.alloc(512).expect("memory"));
        handle.submit(Request::read(token, 1), buf, token).expect("submit");
    }
    let started = Instant::now();
    drop(handle);
    assert!(started.elapsed() < Duration::from_secs(3), "not a second for each");
}

#[test]
fn what_a_request_waits_for_its_turn_is_not_learnt() {
    let device = device("mem:block:16M,timing=tlc");
    let handle = handle(&device, "complete=hybrid,limit=iops:1:burst:1ms");
    handle.write(0, &[1; 512]).expect("it is the one that may go at once");
    handle.submit(Request::read(0, 8), handle.alloc(4096).ok(), 0).expect("submit");
    let mut done = Vec::new();
    while handle.wait(&mut done, Duration::from_secs(1)) == 0 {}
    assert!(done[0].status.is_success());
    let learnt = handle.learnt(RequestKind::Read, 4096);
    assert!(learnt < Duration::from_millis(500), "{learnt:?}");
    // A flush may take much longer than what is given back, and says nothing of it.
    handle.set(&policies("complete=hybrid")).expect("set");
    let rule = r#"{ "match": { "opcode": "flush" }, "act": { "delay": "300ms" } }"#;
    device.add_passing_faults(rule).expect("rule");
    handle.flush().expect("flush");
    assert!(handle.learnt(RequestKind::Flush, 0) >= Duration::from_millis(300));
    assert_eq!(handle.learnt(RequestKind::Discard, 0), Duration::ZERO);
}

/// How long reads of 4 KiB take, in nanoseconds of the device's clock and the longest first, beside one who
/// keeps 64 of 128 KiB under way.
fn beside_a_crowd(reader: &str, crowd: &str) -> Vec<u64> {
    let clock = Clock::manual();
    let controller = ControllerOptions { clock: clock.clone(), ..ControllerOptions::default() };
    let options = OpenOptions { controller, ..OpenOptions::default() };
    let device = open("mem:block:64M,timing=tlc", &options).expect("open");
    // What is under way is not bounded here.
    device.set_handle_window(1 << 30);
    let [reader, crowd] = [reader, crowd].map(|text| handle(&device, text));
    let mut at = 0;
    let mut submit = |buf| {
        at = (at + 256) % (crowd.blocks() - 256);
        crowd.submit(Request::read(at, 256), Some(buf), 0).expect("submit");
    };
    (0..64).for_each(|_| submit(crowd.alloc(128 << 10).expect("memory")));
    let (mut took, mut done, mut out) = (Vec::new(), Vec::new(), [0; 4096]);
    for round in 0..100 {
        let begun = clock.now();
        reader.read(round * 328 % 100_000, &mut out).expect("read");
        took.push(clock.now() - begun);
        crowd.poll(&mut done);
        done.drain(..).filter_map(|done| done.buf).for_each(&mut submit);
        // The device looks at queues that somebody polls.
        crowd.poll(&mut done);
    }
    took.sort_unstable_by_key(|&time| std::cmp::Reverse(time));
    took
}

#[test]
fn the_device_has_a_high_class_wait_for_less_than_all_that_a_low_one_has_sent() {
    let alike = beside_a_crowd("", "");
    let weighted = beside_a_crowd("sched=wrr:high", "sched=wrr:low");
    let same_class = beside_a_crowd("sched=wrr:low", "sched=wrr:low");
    assert!(weighted[50] * 2 < alike[50], "{} {}", weighted[50], alike[50]);
    assert!(weighted[50] * 2 < same_class[50], "{} {}", weighted[50], same_class[50]);
}

#[test]
fn what_waits_for_its_turn_is_not_let_go_before_the_devices_queue_is_there() {
    let device = device("mem:block:64M,timing=tlc");
    let (one, other) = (handle(&device, "sched=share:1"), handle(&device, "sched=share:1"));
    let mut out = [0; 4096];
    other.read(0, &mut out).expect("awake");
    for at in 0..300 {
        let buf = one.alloc(128 << 10).expect("memory");
        one.submit(Request::read(at * 256 % 100_000, 256), Some(buf), at).expect("submit");
    }
    for text in
        ["sched=wrr:low", "sched=share:2,limit=iops:100000", "sched=wrr:high,limit=iops:200000", "sched=fifo"]
    {
        one.set(&policies(text)).expect("set");
        assert_eq!(one.policies(), policies(text));
        other.read(8, &mut out).expect("read");
    }
    let mut done = Vec::new();
    while done.len() < 300 {
        one.wait(&mut done, Duration::from_secs(10));
    }
    assert!(done.iter().all(|done| done.status.is_success()));
}

#[test]
fn a_handle_goes_from_class_to_class_with_what_is_under_way() {
    let device = device("mem:block:64M,timing=tlc");
    let one = handle(&device, "sched=wrr:urgent");
    let other = handle(&device, "sched=wrr:medium,limit=iops:100000");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| press(&one, 16, &stop));
        let mut out = [0; 4096];
        for (round, class) in ["high", "low", "urgent", "medium"].into_iter().cycle().take(12).enumerate() {
            one.set(&policies(&format!("sched=wrr:{class}"))).expect("set");
            if round % 4 == 3 {
                one.set(&policies("sched=share:2")).expect("set");
            }
            other.read(round as u64 * 8, &mut out).expect("read");
        }
        stop.store(true, Ordering::Relaxed);
        assert!(reads.join().expect("no panic") > 0);
    });
}
