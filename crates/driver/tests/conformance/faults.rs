use std::sync::atomic::Ordering;
use std::time::Duration;

use unvme_bus::Function;
use unvme_driver::{Controller, ControllerOptions, Error, Namespace, Payload, Queue, QueueOptions};
use unvme_spec::admin::QueuePriority;
use unvme_spec::nvm::{AccessFlags, BlockRange};
use unvme_spec::{Cid, Lba, Nsid, Status, admin};

use crate::rig::{PATIENCE, Rig, Transport, block_queue, run, small};
use crate::saboteur::Swallow;

/// Limits that pass quickly on a wall clock; a virtual one does not care.
fn impatient() -> QueueOptions {
    QueueOptions {
        depth: 8,
        command_timeout: Duration::from_secs(1),
        abort_grace: Duration::from_secs(1),
        ..QueueOptions::default()
    }
}

fn impatient_controller(rig: &Rig) -> ControllerOptions {
    ControllerOptions { admin_timeout: Duration::from_secs(2), ..rig.options() }
}

/// Submits reads of a block each, with tokens from 0, and rings.
fn submit_reads(rig: &Rig, queue: &mut Queue, controller: &Controller, count: u64) {
    let namespace = Namespace::open(controller, Nsid(1)).unwrap();
    rig.saboteur.swallow(Swallow::IoQueues);
    for token in 0..count {
        let read = namespace.read(BlockRange::new(Lba(token), 1), AccessFlags::default()).unwrap();
        let buf = controller.alloc(512).unwrap();
        queue.submit(read, Some(Payload::whole(buf)), token).unwrap();
    }
    queue.ring().unwrap();
}

/// Polls until all outstanding commands have come back; their tokens, sorted, each with status and whether
/// its buffer came along.
fn collect(queue: &mut Queue) -> Vec<(u64, Status, bool)> {
    let mut all = Vec::new();
    for _ in 0..100_000 {
        let polled = queue.poll(usize::MAX).map(|done| (done.token, done.status, done.buf.is_some()));
        all.extend(polled);
        if queue.outstanding() == 0 {
            all.sort_by_key(|(token, _, _)| *token);
            return all;
        }
        // Errors are the business of the behaviour; here every command must come back in spite of them.
        let _ = queue.wait(Duration::from_millis(20));
    }
    panic!("{} commands never came back", queue.outstanding());
}

fn aborted(count: u64, with_buffer: bool) -> Vec<(u64, Status, bool)> {
    (0..count).map(|token| (token, Status::ABORTED_BY_HOST, with_buffer)).collect()
}

pub(crate) fn a_reset_returns_every_outstanding_command_and_the_queue_goes_on(transport: Transport) {
    let rig = transport(small());
    let (controller, mut queue, namespace) = block_queue(&rig, &impatient());
    let mut other = controller.create_queue(&impatient()).unwrap();
    for _ in 0..20 {
        submit_reads(&rig, &mut queue, &controller, 8);
        submit_reads(&rig, &mut other, &controller, 3);
        controller.reset().unwrap();
        // Commands a reset has ended keep their slots until they are taken.
        let rejected = queue.submit(namespace.flush(), None, 99).unwrap_err();
        assert!(matches!(rejected.error, Error::Full { .. }), "{rejected}");
        assert_eq!(collect(&mut queue), aborted(8, true));
        assert_eq!(controller.ended_by().as_deref(), Some("a reset was asked for"));
        assert_eq!(collect(&mut other), aborted(3, true));
        rig.saboteur.swallow(Swallow::Nothing);
        assert_eq!(run(&mut queue, namespace.flush(), None).status, Status::SUCCESS);
        assert_eq!(run(&mut other, namespace.flush(), None).status, Status::SUCCESS);
    }
}

pub(crate) fn a_command_without_answer_is_aborted_and_then_the_controller_is_reset(transport: Transport) {
    let rig = transport(small());
    let (controller, mut queue, namespace) = block_queue(&rig, &impatient());
    submit_reads(&rig, &mut queue, &controller, 5);
    let all = collect(&mut queue);
    let tokens: Vec<u64> = all.iter().map(|(token, _, _)| *token).collect();
    assert_eq!(tokens, [0, 1, 2, 3, 4]);
    if all.iter().any(|(_, status, _)| *status == Status::ABORTED_BY_HOST) {
        let why = controller.ended_by().unwrap();
        assert!(why.contains("no answer within "), "{why}");
    }
    for (token, status, with_buffer) in all {
        // The device may manage to abort what it has not looked at yet; what it does not answer at all, the
        // reset ends.
        assert!(
            matches!(status.kind(), Status::ABORTED_BY_HOST | Status::ABORT_REQUESTED),
            "{token}: {status}"
        );
        assert!(with_buffer, "the buffer of {token} came back");
    }
    rig.saboteur.swallow(Swallow::Nothing);
    assert_eq!(run(&mut queue, namespace.flush(), None).status, Status::SUCCESS);
}

pub(crate) fn a_command_that_answers_after_the_abort_needs_no_reset(transport: Transport) {
    let rig = transport(small());
    let options = QueueOptions { abort_grace: Duration::from_secs(3600), ..impatient() };
    let (controller, mut queue, _namespace) = block_queue(&rig, &options);
    submit_reads(&rig, &mut queue, &controller, 1);
    let sent = || rig.saboteur.admin_commands().iter().any(|c| matches!(c, admin::Command::Abort { .. }));
    assert!(!sent());
    let started = rig.clock.now();
    while !sent() {
        assert!(!queue.wait(Duration::from_millis(10)).unwrap(), "nothing can have completed");
        assert!(Duration::from_nanos(rig.clock.now() - started) < PATIENCE, "no Abort was sent");
    }
    rig.saboteur.swallow(Swallow::Nothing);
    assert!(queue.wait(PATIENCE).unwrap());
    let completion = queue.poll(1).next().unwrap();
    assert!(matches!(completion.status.kind(), Status::SUCCESS | Status::ABORT_REQUESTED), "{completion:?}");
    assert_eq!(controller.epoch(), 1, "there was no reset");
}

pub(crate) fn waits_of_no_time_at_all_still_notice_a_command_that_takes_too_long(transport: Transport) {
    let rig = transport(small());
    rig.saboteur.hurry.store(true, Ordering::Relaxed);
    let (controller, mut queue, _namespace) = block_queue(&rig, &impatient());
    submit_reads(&rig, &mut queue, &controller, 1);
    let sent = || rig.saboteur.admin_commands().iter().any(|c| matches!(c, admin::Command::Abort { .. }));
    let started = rig.clock.now();
    while !sent() {
        assert!(!queue.wait(Duration::ZERO).unwrap(), "nothing can have completed");
        rig.clock.advance(Duration::from_micros(10));
        assert!(Duration::from_nanos(rig.clock.now() - started) < PATIENCE, "no Abort was sent");
    }
}

pub(crate) fn a_dead_admin_queue_ends_everything_with_errors(transport: Transport) {
    let rig = transport(small());
    let controller = Controller::open(rig.function.clone(), impatient_controller(&rig)).unwrap();
    let mut queue = controller.create_queue(&impatient()).unwrap();
    submit_reads(&rig, &mut queue, &controller, 4);
    rig.saboteur.swallow(Swallow::AllQueues);
    // The registers work: the device is known to have stopped, and the buffers come back.
    assert_eq!(collect(&mut queue), aborted(4, true));
    let rejected = queue.submit(Default::default(), None, 1).unwrap_err();
    assert!(matches!(rejected.error, Error::Gone { .. }), "{rejected}");
    assert!(matches!(controller.identify_controller(), Err(Error::Gone { .. })));
    assert!(matches!(controller.poll_events(), Err(Error::Gone { .. })));
    assert!(matches!(queue.wait(PATIENCE), Err(Error::Gone { .. } | Error::Timeout { .. })));
    // It can be brought back when it works again.
    rig.saboteur.swallow(Swallow::Nothing);
    controller.reset().unwrap();
    let namespace = Namespace::open(&controller, Nsid(1)).unwrap();
    assert_eq!(run(&mut queue, namespace.flush(), None).status, Status::SUCCESS);
}

pub(crate) fn a_controller_that_never_stops_keeps_the_buffers(transport: Transport) {
    let rig = transport(small());
    rig.saboteur.hurry.store(true, Ordering::Relaxed);
    let controller = Controller::open(rig.function.clone(), impatient_controller(&rig)).unwrap();
    let mut queue = controller.create_queue(&impatient()).unwrap();
    submit_reads(&rig, &mut queue, &controller, 4);
    // CSTS.RDY stays 1: the device may write the buffers at any time from now on.
    rig.saboteur.freeze_status.store(true, Ordering::Relaxed);
    rig.saboteur.swallow(Swallow::AllQueues);
    assert!(controller.reset().is_err());
    assert_eq!(collect(&mut queue), aborted(4, false));
}

pub(crate) fn an_abort_without_answer_ends_with_the_grace_period(transport: Transport) {
    let rig = transport(small());
    rig.saboteur.hurry.store(true, Ordering::Relaxed);
    let patient = ControllerOptions { admin_timeout: Duration::from_secs(3600), ..rig.options() };
    let controller = Controller::open(rig.function.clone(), patient).unwrap();
    let mut queue = controller.create_queue(&impatient()).unwrap();
    submit_reads(&rig, &mut queue, &controller, 4);
    rig.saboteur.freeze_status.store(true, Ordering::Relaxed);
    rig.saboteur.swallow(Swallow::AllQueues);
    let started = rig.clock.now();
    assert_eq!(collect(&mut queue), aborted(4, false));
    let took = Duration::from_nanos(rig.clock.now() - started);
    assert!(took < PATIENCE, "the admin queue's own limit is an hour: {took:?}");
}

/// A device that completes `cid` although it is not outstanding, or not any more.
fn forge_and_recover(rig: &Rig, controller: &Controller, queue: &mut Queue, cid: Cid) {
    rig.saboteur.forge(queue.id(), 0, cid, true);
    // The ring is found ready; what is there is refused, which resets the controller.
    assert!(queue.wait(PATIENCE).unwrap());
    assert_eq!(queue.poll(8).count(), 0);
    let error = queue.wait(PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Protocol(_)), "{error}");
    assert_eq!(controller.epoch(), 2);
}

pub(crate) fn a_foreign_completion_resets_the_controller(transport: Transport) {
    for cid in [0x0000, 0x0007, 0x0fff, 0xffff, 0x2001] {
        let rig = transport(small());
        let (controller, mut queue, namespace) = block_queue(&rig, &impatient());
        submit_reads(&rig, &mut queue, &controller, 2);
        // The two are 1000h and 1001h: the first use of slots 0 and 1.
        forge_and_recover(&rig, &controller, &mut queue, Cid(cid));
        assert_eq!(collect(&mut queue), aborted(2, true));
        rig.saboteur.swallow(Swallow::Nothing);
        assert_eq!(run(&mut queue, namespace.flush(), None).status, Status::SUCCESS);
    }
}

pub(crate) fn a_completion_that_comes_twice_resets_the_controller(transport: Transport) {
    let rig = transport(small());
    let (controller, mut queue, _namespace) = block_queue(&rig, &impatient());
    submit_reads(&rig, &mut queue, &controller, 1);
    rig.saboteur.forge(queue.id(), 0, Cid(0x1000), true);
    assert_eq!(queue.poll(8).map(|done| done.token).collect::<Vec<_>>(), [0]);
    rig.saboteur.forge(queue.id(), 1, Cid(0x1000), true);
    submit_reads(&rig, &mut queue, &controller, 1);
    assert_eq!(queue.poll(8).count(), 0);
    assert_eq!(collect(&mut queue), aborted(1, true));
    assert_eq!(controller.epoch(), 2);
}

pub(crate) fn a_controller_that_never_gets_ready_is_a_timeout(transport: Transport) {
    let rig = transport(small());
    rig.saboteur.hurry.store(true, Ordering::Relaxed);
    rig.saboteur.never_ready.store(true, Ordering::Relaxed);
    let started = rig.clock.now();
    let error = Controller::open(rig.function.clone(), rig.options()).unwrap_err();
    // The larger of CAP.TO and CRTO.CRWMT.
    assert_eq!(error.to_string(), "enable the controller: no answer within 1000 ms");
    assert!(rig.clock.now() - started >= 1_000_000_000);
    rig.saboteur.never_ready.store(false, Ordering::Relaxed);
    rig.open();
}

pub(crate) fn a_bring_up_that_fails_halfway_leaves_the_controller_disabled(transport: Transport) {
    let rig = transport(small());
    // Registers work, so that the controller is enabled; Identify is never answered.
    rig.saboteur.swallow(Swallow::AllQueues);
    let error = Controller::open(rig.function.clone(), impatient_controller(&rig)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    let mut cc = [0xff; 4];
    rig.saboteur.bar_read(0, 0x14, &mut cc).unwrap();
    assert_eq!(cc[0] & 1, 0, "CC.EN: the memory of the admin queue is the host's again");
    rig.saboteur.swallow(Swallow::Nothing);
    rig.open();
}

#[test]
fn a_killed_server_fails_commands_and_a_new_client_can_attach() {
    let mut rig = Rig::vfio_user(small());
    // It is noticed that the server is gone, and not that it is late.
    let endless = QueueOptions { command_timeout: Duration::from_secs(3600), ..QueueOptions::default() };
    let (controller, mut queue, _namespace) = block_queue(&rig, &endless);
    submit_reads(&rig, &mut queue, &controller, 6);
    rig.kill_server();
    assert_eq!(collect(&mut queue), aborted(6, true));
    assert!(matches!(controller.identify_controller(), Err(Error::Gone { .. } | Error::Bus(_))));
    let rejected = queue.submit(Default::default(), None, 1).unwrap_err();
    assert!(matches!(rejected.error, Error::Gone { .. }), "{rejected}");
    assert_eq!(rejected.to_string().matches("the controller is gone").count(), 1, "{rejected}");
    drop(queue);
    drop(controller);
}

#[test]
fn a_client_that_went_leaves_a_device_for_the_next() {
    let mut rig = Rig::vfio_user(small());
    let (controller, mut queue, namespace) = block_queue(&rig, &QueueOptions::default());
    assert_eq!(run(&mut queue, namespace.flush(), None).status, Status::SUCCESS);
    drop((controller, queue));
    rig.function = rig.saboteur.clone();
    rig.attach_again();
    let (_controller, mut queue, namespace) = block_queue(&rig, &QueueOptions::default());
    assert_eq!(run(&mut queue, namespace.flush(), None).status, Status::SUCCESS);
}

pub(crate) fn a_controller_that_cannot_weigh_queues_comes_up_without(transport: Transport) {
    let rig = transport(small());
    rig.saboteur.no_weights.store(true, Ordering::Relaxed);
    let controller = rig.open();
    assert!(!controller.is_weighted());
    let high = QueueOptions { priority: Some(QueuePriority::High), ..QueueOptions::default() };
    let error = controller.create_queue(&high).unwrap_err().to_string();
    assert!(error.contains("needs weighted round robin"), "{error}");
    let mut queue = controller.create_queue(&QueueOptions::default()).unwrap();
    let namespace = Namespace::open(&controller, Nsid(1)).unwrap();
    assert_eq!(run(&mut queue, namespace.flush(), None).status, Status::SUCCESS);
    // It is not tried again.
    controller.reset().unwrap();
    assert_eq!(run(&mut queue, namespace.flush(), None).status, Status::SUCCESS);
}
