//! Threads against a model.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use unvme::worker::{Data, Queues, Reason, Worker, WorkerOptions};
use unvme::{AccessFlags, BlockRange, DriverError, Lba, Nsid, Op, OpenOptions, Status, WriteOptions, open};

use crate::blocks;

const BLOCKS_PER_THREAD: u64 = 64;

/// A small generator of numbers that are not in order.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Writes, reads, zeroes and gives back blocks of the thread's own at random, copied and lent, and knows what
/// they hold.
fn at_random(worker: &Worker, thread: u64, rounds: u64) {
    let mut random = Random(thread);
    let first = thread * BLOCKS_PER_THREAD;
    let mut model = vec![[0u8; 512]; BLOCKS_PER_THREAD as usize];
    let mut buf = Some(worker.alloc(8 * 512).unwrap());
    for round in 0..rounds {
        let at = random.below(BLOCKS_PER_THREAD - 8);
        let count = 1 + random.below(8);
        let (lba, range) = (first + at, at as usize..(at + count) as usize);
        let bytes = count as usize * 512;
        match random.below(6) {
            0 => {
                let data = vec![(round + thread) as u8; bytes];
                let done = worker.call(Op::write(lba, count as u32), Data::Out(&data)).unwrap();
                assert_eq!(done.status, Status::SUCCESS);
                model[range].fill([(round + thread) as u8; 512]);
            }
            1 => {
                let mut lent = buf.take().unwrap();
                lent.fill(round as u8);
                let done = worker.call(Op::write(lba, count as u32), Data::Lent(lent)).unwrap();
                assert_eq!(done.status, Status::SUCCESS);
                buf = done.buf;
                model[range].fill([round as u8; 512]);
            }
            2 => {
                let zeroes =
                    Op::WriteZeroes { range: BlockRange::new(Lba(lba), count as u32), deallocate: false };
                assert_eq!(worker.call(zeroes, Data::None).unwrap().status, Status::SUCCESS);
                model[range].fill([0; 512]);
            }
            3 => {
                let back = [BlockRange::new(Lba(lba), count as u32)];
                assert_eq!(worker.call(Op::Deallocate(&back), Data::None).unwrap().status, Status::SUCCESS);
                // The device in this process reads zeroes there.
                model[range].fill([0; 512]);
            }
            4 => {
                let done = worker.call(Op::read(lba, count as u32), Data::Lent(buf.take().unwrap())).unwrap();
                assert_eq!(done.bytes, bytes);
                buf = done.buf;
                let data = buf.as_ref().unwrap().to_vec();
                assert_eq!(data[..bytes], *model[range].concat(), "thread {thread}, blocks from {lba}");
            }
            _ => {
                let mut data = vec![0; bytes];
                worker.call(Op::read(lba, count as u32), Data::In(&mut data)).unwrap();
                assert_eq!(data, model[range].concat(), "thread {thread}, blocks from {lba}");
            }
        }
    }
}

#[test]
fn many_threads_that_call_read_what_they_have_written() {
    for (queues, depth, threads) in [
        (Queues::PerCpu, 128, 0),
        (Queues::Count(1), 2, 0),
        (Queues::Count(3), 4, 2),
        (Queues::Cpus(vec![1]), 8, 1),
    ] {
        let worker = blocks(queues, depth, threads);
        std::thread::scope(|scope| {
            for thread in 0..16 {
                let worker = &worker;
                scope.spawn(move || at_random(worker, thread, 300));
            }
        });
        assert_eq!(worker.outstanding(), 0);
    }
}

/// Some threads submit, others poll, and others call; each token comes back once.
fn submitted_and_polled(worker: &Worker, pollers: usize) {
    let others = 1000 + pollers as u64;
    const TOTAL: u64 = 4000;
    let (next, came) = (AtomicU64::new(0), AtomicU64::new(0));
    let seen: Vec<AtomicBool> = (0..TOTAL).map(|_| AtomicBool::new(false)).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let token = next.fetch_add(1, Ordering::Relaxed);
                    if token >= TOTAL {
                        break;
                    }
                    let block = [token as u8; 512];
                    while let Err(refused) = worker.submit(Op::write(token, 1), Data::Out(&block), token) {
                        assert!(matches!(refused.reason, Reason::Full), "{refused}");
                        std::thread::yield_now();
                    }
                }
            });
        }
        for _ in 0..pollers {
            scope.spawn(|| {
                let mut done = Vec::new();
                while came.load(Ordering::Relaxed) < TOTAL {
                    worker.poll(&mut done);
                    for done in done.drain(..) {
                        assert_eq!(done.status, Status::SUCCESS);
                        assert!(!seen[done.token as usize].swap(true, Ordering::Relaxed), "{}", done.token);
                        came.fetch_add(1, Ordering::Relaxed);
                    }
                    std::thread::yield_now();
                }
            });
        }
        scope.spawn(|| at_random(worker, others, 300));
    });
    assert!(seen.iter().all(|seen| seen.load(Ordering::Relaxed)));
    let mut block = [0; 512];
    for lba in 0..TOTAL {
        worker.call(Op::read(lba, 1), Data::In(&mut block)).unwrap();
        assert_eq!(block, [lba as u8; 512]);
    }
    assert_eq!(worker.outstanding(), 0);
}

#[test]
fn what_is_submitted_comes_out_of_poll_once_whoever_polls() {
    for (queues, depth, threads) in
        [(Queues::PerCpu, 64, 0), (Queues::Count(2), 8, 1), (Queues::Count(1), 1, 0)]
    {
        let worker = blocks(queues, depth, threads);
        submitted_and_polled(&worker, 1);
        submitted_and_polled(&worker, 3);
    }
}

#[test]
fn a_full_queue_refuses_and_gives_the_buffer_back_until_somebody_polls() {
    let worker = blocks(Queues::Count(1), 4, 0);
    for token in 0..4 {
        worker.submit(Op::write(token, 1), Data::Out(&[1; 512]), token).unwrap();
    }
    let mut buf = worker.alloc(512).unwrap();
    buf.fill(7);
    let refused = worker.submit(Op::write(9, 1), Data::Lent(buf), 9).unwrap_err();
    assert!(matches!(refused.reason, Reason::Full));
    let buf = refused.buf.expect("the buffer comes back");
    assert_eq!(buf.to_vec()[..512], [7; 512]);
    // Calls find their place all the same, and take nothing away from pollers.
    assert_eq!(worker.call(Op::Flush, Data::None).unwrap().status, Status::SUCCESS);
    let refused = worker.submit(Op::write(9, 1), Data::Lent(buf), 9).unwrap_err();
    assert!(matches!(refused.reason, Reason::Full), "completions that nobody polls are bounded");
    let mut done = Vec::new();
    while done.len() < 4 {
        worker.poll(&mut done);
    }
    worker.submit(Op::write(9, 1), Data::Lent(refused.buf.unwrap()), 9).unwrap();
    while worker.poll(&mut done) == 0 {}
    assert_eq!(done.iter().map(|done| done.token).collect::<Vec<_>>(), [0, 1, 2, 3, 9]);
    assert!(done[4].buf.is_some() && !done[4].is_copy());
}

#[test]
fn a_completion_thread_sleeps_and_wakes_up_for_whoever_waits_for_the_descriptor() {
    let worker = blocks(Queues::Count(2), 16, 1);
    let descriptor = worker.descriptor().unwrap();
    let mut done = Vec::new();
    for token in 0..50 {
        worker.submit(Op::read(token, 1), Data::None, token).unwrap();
        let mut fds = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
        let limit = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut fds, Some(&limit)).unwrap(), 1, "operation {token}");
        assert_eq!(worker.poll(&mut done), 1);
        let mut fds = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
        let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut fds, Some(&none)).unwrap(), 0, "nothing is left to poll");
        std::thread::sleep(Duration::from_millis(if token % 10 == 0 { 2 } else { 0 }));
    }
    assert!(done.iter().zip(0..).all(|(done, token)| done.token == token && done.bytes == 512));
}

#[test]
fn without_a_thread_the_descriptor_is_readable_as_long_as_commands_are_outstanding() {
    let worker = blocks(Queues::Count(1), 16, 0);
    let descriptor = worker.descriptor().unwrap();
    let is_readable = || {
        let mut fds = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    };
    assert!(!is_readable());
    for token in 0..3 {
        worker.submit(Op::Flush, Data::None, token).unwrap();
    }
    let mut done = Vec::new();
    while done.len() < 3 {
        assert!(is_readable());
        worker.poll(&mut done);
    }
    assert!(!is_readable());
}

#[test]
fn closing_ends_what_is_outstanding_and_refuses_what_comes_after() {
    let worker = blocks(Queues::Count(1), 16, 0);
    for token in 0..10 {
        worker.submit(Op::write(token, 1), Data::Out(&[1; 512]), token).unwrap();
    }
    worker.close();
    let refused = worker.submit(Op::write(0, 1), Data::Lent(worker.alloc(512).unwrap()), 10).unwrap_err();
    assert!(matches!(refused.reason, Reason::Closed) && refused.buf.is_some());
    assert!(matches!(worker.call(Op::Flush, Data::None).unwrap_err().reason, Reason::Closed));
    let mut done = Vec::new();
    worker.poll(&mut done);
    let mut ended: BTreeMap<u64, Status> = done.iter().map(|done| (done.token, done.status)).collect();
    assert_eq!(ended.len(), 10);
    ended.retain(|_, status| *status != Status::ABORTED_BY_HOST && *status != Status::SUCCESS);
    assert_eq!(ended, BTreeMap::new());
    assert_eq!((worker.poll(&mut done), worker.outstanding()), (0, 0));
}

#[test]
fn closing_beside_threads_that_use_it_ends_them_all() {
    for threads in [0, 1] {
        let worker = blocks(Queues::Count(2), 8, threads);
        let started = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let worker = &worker;
                scope.spawn(move || {
                    let mut done = Vec::new();
                    loop {
                        let answer = if thread % 2 == 0 {
                            worker.call(Op::read(thread, 1), Data::None).map(drop)
                        } else {
                            worker.poll(&mut done);
                            done.clear();
                            worker.submit(Op::read(thread, 1), Data::None, thread)
                        };
                        match answer {
                            Ok(()) => {}
                            Err(refused) if matches!(refused.reason, Reason::Full) => {}
                            Err(refused) => {
                                break assert!(matches!(refused.reason, Reason::Closed), "{refused}");
                            }
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(50));
            worker.close();
        });
        assert!(started.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn what_a_namespace_cannot_do_is_refused_before_anything_is_sent() {
    let worker = blocks(Queues::Count(1), 4, 0);
    fn reason(worker: &Worker, op: Op<'_>, data: Data<'_>) -> DriverError {
        match worker.call(op, data).unwrap_err().reason {
            Reason::Driver(e) => e,
            other => panic!("{other}"),
        }
    }
    assert!(matches!(reason(&worker, Op::store(&b"key"[..], 0), Data::None), DriverError::Unsupported(_)));
    assert!(matches!(reason(&worker, Op::read(u64::MAX, 1), Data::None), DriverError::InvalidArgument(_)));
    assert!(matches!(reason(&worker, Op::write(0, 1), Data::None), DriverError::InvalidArgument(_)));
    assert!(matches!(
        reason(&worker, Op::write(0, 2), Data::Out(&[0; 512])),
        DriverError::InvalidArgument(_)
    ));
    assert!(matches!(
        reason(&worker, Op::read(0, 2), Data::In(&mut [0; 512])),
        DriverError::InvalidArgument(_)
    ));
    assert!(matches!(reason(&worker, Op::Deallocate(&[]), Data::None), DriverError::InvalidArgument(_)));
    let refused = worker.submit(Op::read(0, 1), Data::In(&mut [0; 512]), 1).unwrap_err();
    assert!(matches!(refused.reason, Reason::Driver(DriverError::InvalidArgument(_))));
    let lent = worker.call(Op::read(u64::MAX, 1), Data::Lent(worker.alloc(512).unwrap())).unwrap_err();
    assert!(lent.buf.is_some());
}

#[test]
fn a_write_with_options_goes_where_they_say() {
    let worker = blocks(Queues::Count(1), 4, 0);
    let flags = AccessFlags { force_unit_access: true, ..AccessFlags::default() };
    let range = BlockRange::new(Lba(3), 1);
    worker.call(Op::Write(range, WriteOptions::from(flags)), Data::Out(&[3; 512])).unwrap();
    assert_eq!(worker.call(Op::Compare(range, flags), Data::Out(&[3; 512])).unwrap().status, Status::SUCCESS);
    let differs = worker.call(Op::Compare(range, flags), Data::Out(&[4; 512])).unwrap().status;
    assert_eq!(differs.kind(), Status::COMPARE_FAILURE);
    assert_eq!(worker.call(Op::Verify(range), Data::None).unwrap().status, Status::SUCCESS);
}

#[test]
fn pairs_are_stored_and_found_from_every_thread() {
    let device = open("mem:kv:64M", &OpenOptions::default()).unwrap();
    let worker = device.kv(Nsid(1)).unwrap().worker(&WorkerOptions::default()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let worker = &worker;
            scope.spawn(move || {
                for id in 0..100u32 {
                    let key = (thread * 1000 + id).to_be_bytes();
                    let key = &key[..];
                    let value = vec![id as u8; 100 + id as usize];
                    worker.call(Op::store(key, value.len()), Data::Out(&value)).unwrap();
                    assert_eq!(
                        worker.call(Op::Exist(key.into()), Data::None).unwrap().status,
                        Status::SUCCESS
                    );
                    let mut out = [0; 4096];
                    let done = worker.call(Op::retrieve(key, 4096), Data::In(&mut out)).unwrap();
                    assert_eq!((&out[..done.bytes], done.value_bytes), (&value[..], value.len() as u64));
                    // More than there is room for: as much as there is, and how much there would have been.
                    let done = worker.call(Op::retrieve(key, 8), Data::None).unwrap();
                    assert_eq!((done.bytes, done.value_bytes), (8, value.len() as u64));
                    let delete = |must_exist| Op::Delete { key: key.into(), must_exist };
                    assert_eq!(worker.call(delete(true), Data::None).unwrap().status, Status::SUCCESS);
                    assert_eq!(worker.call(delete(false), Data::None).unwrap().status, Status::SUCCESS);
                    assert!(!worker.call(delete(true), Data::None).unwrap().status.is_success());
                }
            });
        }
    });
}
