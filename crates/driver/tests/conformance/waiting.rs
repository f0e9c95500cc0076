use std::time::{Duration, Instant};

use unvme_bus::Function;
use unvme_driver::{CompletionMode, Payload, QueueOptions};
use unvme_spec::Status;
use unvme_spec::nvm::{AccessFlags, BlockRange};
use unvme_spec::{Lba, Sqe};

use crate::rig::{PATIENCE, Transport, block_queue, next, small};
use crate::saboteur::Swallow;

fn in_mode(mode: CompletionMode) -> QueueOptions {
    QueueOptions { depth: 8, mode, ..QueueOptions::default() }
}

/// One command at a time and bursts, so that completions arrive before, while and after the owner falls
/// asleep.
fn commands_in_mode(transport: Transport, mode: CompletionMode) {
    let rig = transport(small());
    let (controller, mut queue, namespace) = block_queue(&rig, &in_mode(mode));
    assert_eq!(queue.mode(), mode);
    let read: Sqe = namespace.read(BlockRange::new(Lba(0), 8), AccessFlags::default()).unwrap();
    for round in 0..200u64 {
        for token in 0..1 + round % 8 {
            let buf = controller.alloc(4096).unwrap();
            queue.submit(read, Some(Payload::whole(buf)), token).unwrap();
        }
        if round % 16 == 0 {
            queue.ring().unwrap();
            std::thread::sleep(Duration::from_micros(200));
        }
        for _ in 0..1 + round % 8 {
            assert_eq!(next(&mut queue).status, Status::SUCCESS, "round {round}");
        }
    }
}

pub(crate) fn a_polling_queue_waits_for_its_completion(transport: Transport) {
    commands_in_mode(transport, CompletionMode::Poll);
}

pub(crate) fn an_interrupt_wakes_the_sleeper(transport: Transport) {
    commands_in_mode(transport, CompletionMode::Interrupt);
}

pub(crate) fn a_hybrid_queue_loses_no_completion(transport: Transport) {
    commands_in_mode(transport, CompletionMode::Hybrid);
}

pub(crate) fn waiting_for_nothing_returns_at_once(transport: Transport) {
    let rig = transport(small());
    for mode in [CompletionMode::Poll, CompletionMode::Interrupt, CompletionMode::Hybrid] {
        let (_controller, mut queue, _namespace) = block_queue(&rig, &in_mode(mode));
        let started = Instant::now();
        assert!(!queue.wait(Duration::from_secs(3600)).unwrap());
        assert!(started.elapsed() < Duration::from_secs(60));
    }
}

pub(crate) fn a_wait_ends_when_its_time_is_over(transport: Transport) {
    let rig = transport(small());
    for mode in [CompletionMode::Poll, CompletionMode::Interrupt, CompletionMode::Hybrid] {
        let (_controller, mut queue, namespace) = block_queue(&rig, &in_mode(mode));
        rig.saboteur.swallow(Swallow::IoQueues);
        queue.submit(namespace.flush(), None, 1).unwrap();
        let started = rig.clock.now();
        assert!(!queue.wait(Duration::from_millis(30)).unwrap(), "{mode:?}");
        let waited = Duration::from_nanos(rig.clock.now() - started);
        assert!(waited >= Duration::from_millis(30), "{mode:?} waited for {waited:?}");
        rig.saboteur.swallow(Swallow::Nothing);
        assert!(queue.wait(PATIENCE).unwrap(), "{mode:?}");
        assert_eq!(queue.poll(8).count(), 1);
    }
}

pub(crate) fn only_queues_that_sleep_have_interrupts(transport: Transport) {
    let rig = transport(small());
    let (controller, mut polled, namespace) = block_queue(&rig, &in_mode(CompletionMode::Poll));
    let mut sleeper = controller.create_queue(&in_mode(CompletionMode::Interrupt)).unwrap();
    let event = rig.saboteur.event(1).expect("vector 1 is the first I/O queue's that asked for one");
    assert!(rig.saboteur.event(2).is_none());
    polled.submit(namespace.flush(), None, 1).unwrap();
    assert_eq!(next(&mut polled).status, Status::SUCCESS);
    assert!(!event.wait(Duration::ZERO).unwrap(), "the polled queue raised an interrupt");
    for _ in 0..3 {
        sleeper.submit(namespace.flush(), None, 1).unwrap();
        sleeper.ring().unwrap();
        rig.saboteur.advance(None, &rig.clock);
        // Nobody has drained it: the signal stays, however late we look.
        assert!(event.wait(PATIENCE).unwrap(), "no interrupt");
        assert_eq!(next(&mut sleeper).status, Status::SUCCESS);
        event.drain();
    }
    controller.reset().unwrap();
    sleeper.submit(namespace.flush(), None, 1).unwrap();
    sleeper.ring().unwrap();
    rig.saboteur.advance(None, &rig.clock);
    assert!(event.wait(PATIENCE).unwrap(), "no interrupt after a reset");
    drop(sleeper);
    assert!(rig.saboteur.event(1).is_none());
}
