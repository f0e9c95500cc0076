//! A device that is lost, or does not answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unvme::worker::{Data, Queues, Reason, Worker, WorkerOptions};
use unvme::{ControllerOptions, DriverError, Function, Nsid, Op, QueueOptions, Status, open_function};

use crate::mortal::Mortal;

/// A worker on such a device, whose commands may take a second.
fn mortal(depth: u16, threads: usize) -> (Arc<Mortal>, Worker) {
    with_limit(depth, threads, Duration::from_secs(1))
}

/// A worker on such a device, whose commands may take as long as any `limit`.
pub(crate) fn with_limit(depth: u16, threads: usize, limit: Duration) -> (Arc<Mortal>, Worker) {
    let function = Mortal::new();
    let controller = ControllerOptions { admin_timeout: limit, ..ControllerOptions::default() };
    let device = open_function("mortal", Arc::clone(&function) as Arc<dyn Function>, &controller).unwrap();
    let queue = QueueOptions { depth, command_timeout: limit, abort_grace: limit, ..QueueOptions::default() };
    let options = WorkerOptions { queue, queues: Queues::Count(1), threads };
    let worker = device.block(Nsid(1)).unwrap().worker(&options).unwrap();
    (function, worker)
}

/// Submits reads of blocks 0 to `count`, which nobody answers; how many were taken. On a busy machine the
/// first one's time may be over before the last one is submitted.
fn submit(worker: &Worker, count: u64) -> usize {
    for token in 0..count {
        if let Err(refused) = worker.submit(Op::read(token, 1), Data::None, token) {
            assert!(matches!(refused.reason, Reason::Driver(DriverError::Gone { .. })), "{refused}");
            assert!(token > 0, "the device is gone before anything was lost");
            return token as usize;
        }
    }
    count as usize
}

fn loses(threads: usize, kill: fn(&Mortal)) {
    let (function, worker) = mortal(32, threads);
    assert_eq!(worker.call(Op::write(0, 1), Data::Out(&[1; 512])).unwrap().status, Status::SUCCESS);
    function.silence();
    let taken = submit(&worker, 6);
    kill(&function);
    let started = Instant::now();
    let mut done = Vec::new();
    std::thread::scope(|scope| {
        // A call and a future in flight with them.
        scope.spawn(|| {
            let answer = worker.call(Op::read(0, 1), Data::In(&mut [0; 512]));
            let is_lost = match &answer {
                Ok(done) => done.status == Status::ABORTED_BY_HOST,
                Err(refused) => matches!(refused.reason, Reason::Driver(_)),
            };
            assert!(is_lost, "{answer:?}");
        });
        scope.spawn(|| {
            let answer = futures_lite::future::block_on(worker.run(Op::read(0, 1), Data::None));
            let is_lost = match &answer {
                Ok(done) => done.status == Status::ABORTED_BY_HOST,
                Err(refused) => matches!(refused.reason, Reason::Driver(_)),
            };
            assert!(is_lost, "{answer:?}");
        });
        while done.len() < taken {
            assert!(started.elapsed() < Duration::from_secs(60), "{} have ended", done.len());
            worker.poll(&mut done);
        }
    });
    for (done, token) in done.iter().zip(0..) {
        assert_eq!((done.token, done.status), (token, Status::ABORTED_BY_HOST));
    }
    let started = Instant::now();
    for _ in 0..10 {
        let refused = worker.call(Op::Flush, Data::None).unwrap_err();
        assert!(matches!(refused.reason, Reason::Driver(DriverError::Gone { .. })), "{refused}");
        let refused = futures_lite::future::block_on(worker.run(Op::Flush, Data::None)).unwrap_err();
        assert!(matches!(refused.reason, Reason::Driver(DriverError::Gone { .. })), "{refused}");
    }
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    assert_eq!((worker.poll(&mut done), worker.outstanding()), (0, 0));
}

#[test]
fn a_device_that_stops_answering_ends_what_is_outstanding_once() {
    loses(0, Mortal::silence);
    loses(1, Mortal::silence);
}

#[test]
fn a_device_that_is_pulled_out_ends_what_is_outstanding_once() {
    loses(0, Mortal::pull);
    loses(1, Mortal::pull);
}

#[test]
fn closing_a_worker_whose_device_does_not_answer_ends_calls_and_tokens() {
    for threads in [0, 1] {
        let (function, worker) = mortal(8, threads);
        function.silence();
        let taken = submit(&worker, 4);
        let started = Instant::now();
        std::thread::scope(|scope| {
            let call = scope.spawn(|| worker.call(Op::read(0, 1), Data::None));
            std::thread::sleep(Duration::from_millis(20));
            worker.close();
            let answer = call.join().unwrap();
            assert!(answer.is_err() || answer.is_ok_and(|done| done.status == Status::ABORTED_BY_HOST));
        });
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
        let mut done = Vec::new();
        while worker.poll(&mut done) > 0 {}
        assert_eq!(done.len(), taken);
        assert!(done.iter().all(|done| done.status == Status::ABORTED_BY_HOST));
    }
}
