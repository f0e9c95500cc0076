//! In the steady state a worker allocates nothing. In a process of its own: the allocator counts.

#[path = "../../driver/tests/counting/mod.rs"]
mod counting;

use std::pin::pin;

use futures_lite::future::{block_on, poll_once, zip};
use unvme::worker::{Data, Queues, Worker, WorkerOptions};
use unvme::{Nsid, Op, OpenOptions, QueueOptions, open};

fn worker(threads: usize) -> Worker {
    let device = open("mem:block:64M", &OpenOptions::default()).unwrap();
    let queue = QueueOptions { depth: 2, ..QueueOptions::default() };
    let options = WorkerOptions { queue, queues: Queues::Count(1), threads };
    device.block(Nsid(1)).unwrap().worker(&options).unwrap()
}

/// Rounds of everything, and what the last of them have allocated.
fn allocated(mut round: impl FnMut()) -> u64 {
    (0..50).for_each(|_| round());
    let before = counting::count();
    (0..200).for_each(|_| round());
    counting::count() - before
}

#[test]
fn calls_and_tokens_allocate_nothing() {
    for threads in [0, 1] {
        let worker = worker(threads);
        let mut block = [0; 512];
        let mut buf = Some(worker.alloc(4096).unwrap());
        let mut done = Vec::new();
        let allocations = allocated(|| {
            worker.call(Op::write(1, 1), Data::Out(&block)).unwrap();
            worker.call(Op::read(1, 1), Data::In(&mut block)).unwrap();
            worker.submit(Op::read(0, 8), Data::Lent(buf.take().unwrap()), 1).unwrap();
            while worker.poll(&mut done) == 0 {}
            buf = done.pop().unwrap().buf;
        });
        assert_eq!(allocations, 0, "with {threads} threads");
    }
}

#[test]
fn futures_allocate_nothing_also_when_they_wait_for_a_place() {
    for threads in [0, 1] {
        let worker = worker(threads);
        let mut bufs: Vec<_> = (0..4).map(|_| worker.alloc(512).unwrap()).collect();
        let allocations = allocated(|| {
            let mut next = |lba| worker.run(Op::read(lba, 1), Data::Lent(bufs.pop().unwrap()));
            let (first, second, third, fourth) = (next(0), next(1), next(2), next(3));
            let ((first, second), (third, fourth)) = block_on(zip(zip(first, second), zip(third, fourth)));
            for answer in [first, second, third, fourth] {
                bufs.push(answer.unwrap().buf.unwrap());
            }
            // One that is dropped on its way.
            block_on(async {
                let mut dropped = pin!(worker.run(Op::Flush, Data::None));
                poll_once(dropped.as_mut()).await;
            });
        });
        assert_eq!(allocations, 0, "with {threads} threads");
    }
}
