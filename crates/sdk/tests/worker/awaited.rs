//! Futures: with and without somebody else who looks after the queue.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures_lite::future::{block_on, poll_once, yield_now};
use unvme::worker::{Data, Done, Queues, Reason, Refused, Run, Worker};
use unvme::{Op, Status};

use crate::lost::with_limit;
use crate::mortal::Mortal;
use crate::{blocks, options};

/// All of them, polled in turn by one thread.
async fn all<'a>(mut runs: Vec<Pin<Box<Run<'a>>>>) -> Vec<Result<Done, Refused>> {
    let mut answers = Vec::new();
    while !runs.is_empty() {
        let mut left = Vec::new();
        for mut run in runs {
            match poll_once(run.as_mut()).await {
                Some(answer) => answers.push(answer),
                None => left.push(run),
            }
        }
        runs = left;
        yield_now().await;
    }
    answers
}

/// A worker whose device can pause, however busy the machine is.
fn patient(depth: u16, threads: usize) -> (Arc<Mortal>, Worker) {
    with_limit(depth, threads, Duration::from_secs(3600))
}

fn fill(worker: &Worker, blocks: u64) {
    for lba in 0..blocks {
        worker.call(Op::write(lba, 1), Data::Out(&[lba as u8; 512])).unwrap();
    }
}

#[test]
fn a_thousand_reads_on_a_queue_of_64_are_awaited_by_one_thread() {
    for threads in [0, 1] {
        let worker = blocks(Queues::Count(1), 64, threads);
        fill(&worker, 1000);
        let runs = (0..1000).map(|lba| Box::pin(worker.run(Op::read(lba, 1), Data::None))).collect();
        let answers = block_on(all(runs));
        assert_eq!(answers.len(), 1000);
        assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|done| done.bytes == 512)));
        assert_eq!(worker.outstanding(), 0);
    }
}

#[test]
fn a_thousand_tasks_of_a_runtime_with_many_threads_read_what_was_written() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    for (queues, depth, threads) in [
        (Queues::Count(1), 64, 0),
        (Queues::Count(1), 64, 1),
        (Queues::Count(2), 4, 2),
        (Queues::PerCpu, 1, 0),
    ] {
        let worker = Arc::new(blocks(queues, depth, threads));
        fill(&worker, 1000);
        runtime.block_on(async {
            let tasks: Vec<_> = (0..1000u64)
                .map(|lba| {
                    let worker = Arc::clone(&worker);
                    tokio::spawn(async move {
                        let buf = worker.alloc(512).unwrap();
                        let done = worker.run(Op::read(lba, 1), Data::Lent(buf)).await.unwrap();
                        assert_eq!(done.status, Status::SUCCESS);
                        assert_eq!(done.buf.unwrap().to_vec()[..512], [lba as u8; 512]);
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(worker.outstanding(), 0);
    }
}

#[test]
fn a_reactor_that_watches_the_descriptor_makes_progress_for_all() {
    let worker = blocks(Queues::Count(2), 8, 0);
    let descriptor = worker.descriptor().unwrap();
    let finished = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut done = Vec::new();
            while finished.load(Ordering::Acquire) < 4 {
                let mut fds = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
                let limit = rustix::event::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
                let _ = rustix::event::poll(&mut fds, Some(&limit));
                worker.poll(&mut done);
            }
            assert!(done.is_empty());
        });
        for thread in 0..4u64 {
            let (worker, finished) = (&worker, &finished);
            scope.spawn(move || {
                for lba in 0..200 {
                    let done = block_on(worker.run(Op::read(thread * 200 + lba, 1), Data::None)).unwrap();
                    assert_eq!(done.bytes, 512);
                }
                finished.fetch_add(1, Ordering::Release);
            });
        }
    });
}

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Bell {
    fn rings(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn poll_with(run: &mut Pin<&mut Run<'_>>, bell: &Arc<Bell>) -> Poll<Result<Done, Refused>> {
    run.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(bell))))
}

/// Waits for what a thread does.
fn until(mut what: impl FnMut() -> bool) {
    let started = Instant::now();
    while !what() {
        assert!(started.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    }
}

#[test]
fn a_place_goes_to_who_has_waited_longest_and_who_goes_away_hands_it_on() {
    let (function, worker) = patient(1, 1);
    function.pause();
    let bells: Vec<Arc<Bell>> = (0..4).map(|_| Arc::default()).collect();
    let mut holder = Box::pin(worker.run(Op::Flush, Data::None));
    assert!(poll_with(&mut holder.as_mut(), &bells[0]).is_pending());
    let mut second = pin!(worker.run(Op::Flush, Data::None));
    let mut third = Box::pin(worker.run(Op::Flush, Data::None));
    let mut fourth = pin!(worker.run(Op::Flush, Data::None));
    assert!(poll_with(&mut second, &bells[1]).is_pending());
    assert!(poll_with(&mut third.as_mut(), &bells[2]).is_pending());
    assert!(poll_with(&mut fourth, &bells[3]).is_pending());
    assert!(matches!(worker.submit(Op::Flush, Data::None, 1).unwrap_err().reason, Reason::Full));
    function.resume();
    until(|| bells[0].rings() > 0);
    let Poll::Ready(Ok(done)) = poll_with(&mut holder.as_mut(), &bells[0]) else { panic!("it is over") };
    assert_eq!(done.status, Status::SUCCESS);
    assert_eq!((bells[1].rings(), bells[2].rings(), bells[3].rings()), (1, 0, 0));
    // The place is the second one's, though nothing is in the queue: nobody comes in between.
    assert!(matches!(worker.submit(Op::Flush, Data::None, 1).unwrap_err().reason, Reason::Full));
    // The third goes away before it is its turn, and so the fourth is next.
    drop(third);
    until(|| poll_with(&mut second, &bells[1]).is_ready());
    until(|| bells[3].rings() > 0);
    assert_eq!(bells[2].rings(), 0);
    until(|| poll_with(&mut fourth, &bells[3]).is_ready());
    worker.call(Op::Flush, Data::None).unwrap();
}

#[test]
fn one_that_goes_away_with_a_place_hands_it_on() {
    let (function, worker) = patient(1, 1);
    function.pause();
    let bells: Vec<Arc<Bell>> = (0..3).map(|_| Arc::default()).collect();
    let mut holder = Box::pin(worker.run(Op::Flush, Data::None));
    let mut second = Box::pin(worker.run(Op::Flush, Data::None));
    let mut third = pin!(worker.run(Op::Flush, Data::None));
    assert!(poll_with(&mut holder.as_mut(), &bells[0]).is_pending());
    assert!(poll_with(&mut second.as_mut(), &bells[1]).is_pending());
    assert!(poll_with(&mut third, &bells[2]).is_pending());
    function.resume();
    // The first is over when somebody takes its answer; the place is the second's then, which never takes it.
    until(|| poll_with(&mut holder.as_mut(), &bells[0]).is_ready());
    until(|| bells[1].rings() > 0);
    assert_eq!(bells[2].rings(), 0);
    drop(second);
    until(|| bells[2].rings() > 0);
    until(|| poll_with(&mut third, &bells[2]).is_ready());
}

#[test]
fn a_future_that_is_dropped_leaves_its_buffer_with_the_command_until_that_is_over() {
    for threads in [0, 1] {
        let (function, worker) = patient(2, threads);
        function.pause();
        let bell = Arc::default();
        for _ in 0..2 {
            let mut buf = worker.alloc(512).unwrap();
            buf.fill(9);
            let mut write = Box::pin(worker.run(Op::write(5, 1), Data::Lent(buf)));
            assert!(poll_with(&mut write.as_mut(), &bell).is_pending());
        }
        assert_eq!((worker.outstanding(), worker.queues()[0].in_queue()), (2, 2));
        assert!(matches!(worker.submit(Op::Flush, Data::None, 1).unwrap_err().reason, Reason::Full));
        function.resume();
        // It is executed all the same, and both places are free again.
        let mut block = [0; 512];
        worker.call(Op::read(5, 1), Data::In(&mut block)).unwrap();
        until(|| {
            worker.poll(&mut Vec::new());
            worker.outstanding() == 0
        });
        worker.call(Op::read(5, 1), Data::In(&mut block)).unwrap();
        assert_eq!(block, [9; 512]);
    }
}

#[test]
fn futures_are_dropped_at_random_and_nobody_is_forgotten() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    for threads in [0, 1] {
        let worker = Arc::new(blocks(Queues::Count(1), 4, threads));
        let finished = Arc::new(AtomicU64::new(0));
        runtime.block_on(async {
            let tasks: Vec<_> = (0..600u64)
                .map(|id| {
                    let (worker, finished) = (Arc::clone(&worker), Arc::clone(&finished));
                    tokio::spawn(async move {
                        let mut run = Box::pin(worker.run(Op::read(id, 1), Data::None));
                        if id % 3 == 0 {
                            // Polled so often, and never again.
                            for _ in 0..id % 5 {
                                if poll_once(run.as_mut()).await.is_some() {
                                    return;
                                }
                                yield_now().await;
                            }
                            return;
                        }
                        run.await.unwrap();
                        finished.fetch_add(1, Ordering::Relaxed);
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(finished.load(Ordering::Relaxed), 400);
        until(|| {
            worker.poll(&mut Vec::new());
            worker.outstanding() == 0
        });
    }
}

#[test]
fn closing_ends_futures_that_were_sent_and_those_that_wait() {
    let (function, worker) = patient(1, 0);
    function.pause();
    let bells: Vec<Arc<Bell>> = (0..2).map(|_| Arc::default()).collect();
    let mut sent = pin!(worker.run(Op::Flush, Data::None));
    let mut waits = pin!(worker.run(Op::write(0, 1), Data::Lent(worker.alloc(512).unwrap())));
    assert!(poll_with(&mut sent, &bells[0]).is_pending());
    assert!(poll_with(&mut waits, &bells[1]).is_pending());
    function.silence();
    worker.close();
    let Poll::Ready(Ok(done)) = poll_with(&mut sent, &bells[0]) else { panic!("it is over") };
    assert_eq!(done.status, Status::ABORTED_BY_HOST);
    let Poll::Ready(Err(refused)) = poll_with(&mut waits, &bells[1]) else { panic!("it is over") };
    assert!(matches!(refused.reason, Reason::Closed) && refused.buf.is_some());
    assert!(bells.iter().all(|bell| bell.rings() > 0));
}

#[test]
fn calls_tokens_and_futures_share_a_queue() {
    let worker = Arc::new(blocks(Queues::Count(1), 8, 1));
    let options = options(Queues::Count(1), 8, 1);
    assert_eq!((options.threads, worker.queues()[0].capacity()), (1, 8));
    std::thread::scope(|scope| {
        let tokens = scope.spawn(|| {
            let mut done = Vec::new();
            let mut next = 0;
            while done.len() < 500 {
                if next < 500 && worker.submit(Op::read(next, 1), Data::None, next).is_ok() {
                    next += 1;
                }
                worker.poll(&mut done);
            }
            done.len()
        });
        for _ in 0..2 {
            scope.spawn(|| {
                for lba in 0..500 {
                    assert_eq!(worker.call(Op::read(lba, 1), Data::None).unwrap().bytes, 512);
                }
            });
            scope.spawn(|| {
                for lba in 0..500 {
                    assert_eq!(block_on(worker.run(Op::read(lba, 1), Data::None)).unwrap().bytes, 512);
                }
            });
        }
        assert_eq!(tokens.join().unwrap(), 500);
    });
    assert_eq!(worker.outstanding(), 0);
}
