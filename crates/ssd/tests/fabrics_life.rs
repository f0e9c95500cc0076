//! The life of an association: keep alive, events, resets, ANA, and its end, of which every connection hears.

mod network;

use std::sync::Arc;
use std::time::Duration;

use network::{
    HOST, IN_CAPSULE, Line, PORT, SUBSYSTEM, TRANSPORT, blocks, connect, connect_data, pattern, port, read,
    sqe, target, write,
};
use unvme_bus::{Clock, EventFd};
use unvme_spec::{Sqe, Status};
use unvme_ssd::fabrics::{AnaState, Begun, EndReason, PortId, QueueState, Target};
use unvme_ssd::{FaultAction, FaultDelay, FaultMatch, FaultRule};

fn event() -> EventFd {
    EventFd::new().expect("an eventfd")
}

/// An admin queue with KATO in milliseconds, whose controller is enabled.
fn with_keep_alive(target: &Arc<Target>, kato_ms: u32) -> Line {
    let mut line = Line::new(target);
    line.send(connect(0, 31, 0, kato_ms), &connect_data(SUBSYSTEM, HOST, 0xffff)).ok();
    line.enable();
    line
}

#[test]
fn a_host_that_is_silent_for_longer_than_its_timeout_is_gone_with_all_its_queues() {
    let target = target(blocks());
    let mut admin = with_keep_alive(&target, 1950);
    // Rounded up to the granularity of KAS.
    assert_eq!(admin.plain(Sqe { cdw10: 0x0f, ..sqe(0x0a, 0) }).result(), 2000);
    let mut io = Line::io(&target, &mut admin, 1, 31);
    let wake = event();
    admin.clock.advance(Duration::from_millis(1500));
    admin.plain(sqe(0x18, 0)).ok();
    assert_eq!(admin.queue.next_event(), Some(3_500_000_000));
    // Any command is a sign of life.
    admin.clock.advance(Duration::from_millis(1900));
    io.receive(read(0, 1), 512).ok();
    admin.poll();
    assert_eq!(admin.queue.state(), QueueState::Connected);
    admin.clock.advance(Duration::from_millis(1999));
    admin.poll();
    assert_eq!(admin.queue.state(), QueueState::Connected);
    admin.clock.advance(Duration::from_millis(1));
    let mut other = Line::new(&target);
    other.clock = admin.clock.clone();
    other.queue.set_wake(wake.clone());
    other.connect(2, 1, 31, 0).ok();
    // That Connect was on a queue of the association, too.
    admin.poll();
    assert_eq!(admin.queue.state(), QueueState::Connected);
    admin.clock.advance(Duration::from_millis(2000));
    admin.poll();
    assert_eq!(admin.queue.state(), QueueState::Ended(EndReason::KeepAlive));
    assert!(wake.drain());
    for line in [&mut io, &mut other] {
        line.poll();
        assert_eq!(line.queue.state(), QueueState::Ended(EndReason::KeepAlive));
    }
}

#[test]
fn the_keep_alive_timer_can_be_set_and_switched_off() {
    let target = target(blocks());
    let mut admin = with_keep_alive(&target, 0);
    assert_eq!(admin.queue.next_event(), None);
    admin.plain(Sqe { cdw10: 0x0f, cdw11: 5000, ..sqe(0x09, 0) }).ok();
    assert_eq!(admin.queue.next_event(), Some(5_000_000_000));
    assert_eq!(admin.plain(Sqe { cdw10: 3 << 8 | 0x0f, ..sqe(0x0a, 0) }).result(), 4, "changeable");
    admin.plain(Sqe { cdw10: 0x0f, cdw11: 0, ..sqe(0x09, 0) }).ok();
    admin.clock.advance(Duration::from_secs(3600));
    admin.poll();
    assert_eq!(admin.queue.state(), QueueState::Connected);
}

#[test]
fn a_controller_reset_ends_the_io_queues_and_the_admin_queue_goes_on() {
    let target = target(blocks());
    let mut admin = Line::admin(&target);
    let wake = event();
    let mut io = Line::at(&target, PORT, &admin.clock);
    io.queue.set_wake(wake.clone());
    io.connect(1, 1, 31, 0).ok();
    io.send(write(5, 1), &pattern(5, 512)).ok();
    let (request, begun) = admin.begin(sqe(0x0c, 0), TRANSPORT, 0);
    assert!(matches!(begun, Begun::Run(_)));
    admin.poll();
    admin.set_property(0x14, 0x0046_0060);
    assert_eq!(admin.property(0x1c, 0), 0, "CSTS.RDY");
    // The controller has it no more, and the connection is told.
    assert_eq!(admin.wait_for(request).status(), Status::ABORTED_SQ_DELETION);
    assert!(wake.drain());
    io.poll();
    assert_eq!(io.queue.state(), QueueState::Ended(EndReason::Reset));
    admin.enable();
    // Its connection has to go before another one can be that queue.
    assert_eq!(Line::new(&target).connect(1, 1, 31, 0).status(), Status::COMMAND_SEQUENCE_ERROR);
    drop(io);
    let mut io = Line::io(&target, &mut admin, 1, 31);
    assert_eq!(io.receive(read(5, 1), 512).ok(), pattern(5, 512));
    for _ in 0..100 {
        assert_eq!(admin.identify(1, 0)[78], 1);
    }
}

#[test]
fn commands_that_come_with_a_reset_in_one_go_are_executed_by_the_controller_after_it() {
    let target = target(blocks());
    let mut admin = Line::admin(&target);
    for _ in 0..40 {
        let set = |value| Sqe { cdw11: 0x14, cdw12: value, ..sqe(0x7f, 0x00) };
        let (before, _) = admin.begin(Sqe { cdw10: 1, ..sqe(0x06, 0) }, TRANSPORT, 4096);
        let (disable, _) = admin.begin(set(0x0046_0060), TRANSPORT, 0);
        let (enable, _) = admin.begin(set(0x0046_0061), TRANSPORT, 0);
        let (after, _) = admin.begin(Sqe { cdw10: 1, ..sqe(0x06, 0) }, TRANSPORT, 4096);
        assert_eq!(admin.wait_for(before).status(), Status::ABORTED_SQ_DELETION);
        admin.wait_for(disable).ok();
        admin.wait_for(enable).ok();
        assert_eq!(admin.wait_for(after).ok()[78], 1);
    }
}

#[test]
fn shutdown_is_reported_complete_and_the_data_is_there_for_the_next_host() {
    let target = target(blocks());
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 31);
    io.send(write(1, 1), &pattern(8, 512)).ok();
    admin.set_property(0x14, 0x0046_4061);
    assert_eq!(admin.property(0x1c, 0) & 0xc, 8, "CSTS.SHST");
    drop((admin, io));
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 31);
    assert_eq!(io.receive(read(1, 1), 512).ok(), pattern(8, 512));
}

#[test]
fn a_subsystem_reset_ends_every_association() {
    let target = target(blocks());
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 31);
    let mut other = Line::new(&target);
    other.connect(0, 0xffff, 31, 0).ok();
    let reset = Sqe { cdw11: 0x20, cdw12: 0x4e56_4d65, ..sqe(0x7f, 0x00) };
    assert!(matches!(admin.begin(reset, TRANSPORT, 0).1, Begun::Run(_)));
    for line in [&mut admin, &mut io, &mut other] {
        line.poll();
        assert_eq!(line.queue.state(), QueueState::Ended(EndReason::SubsystemReset));
    }
    assert_eq!(Line::admin(&target).identify(1, 0)[111], 1);
}

#[test]
fn an_unplugged_device_is_gone_for_all_connections_and_for_new_ones() {
    let device = blocks();
    let target = target(Arc::clone(&device));
    let mut admin = Line::admin(&target);
    let wake = event();
    let mut io = Line::at(&target, PORT, &admin.clock);
    io.queue.set_wake(wake.clone());
    io.connect(1, 1, 31, 0).ok();
    let (_, begun) = io.begin(write(0, 1), IN_CAPSULE, 512);
    assert!(matches!(begun, Begun::NeedsData(_)));
    device.unplug();
    assert!(wake.drain());
    for line in [&mut admin, &mut io] {
        line.poll();
        assert_eq!(line.queue.state(), QueueState::Ended(EndReason::DeviceGone));
    }
    assert_eq!(Line::new(&target).connect(0, 0xffff, 31, 0).status(), Status::new(1, 0x81));
}

#[test]
fn an_event_wakes_the_admin_queue_up_and_an_abort_finds_a_request_by_its_identifier() {
    let target = target(blocks());
    let wake = event();
    let mut admin = Line::new(&target);
    admin.queue.set_wake(wake.clone());
    admin.connect(0, 0xffff, 31, 0).ok();
    admin.enable();
    admin.plain(Sqe { cdw10: 0x0b, cdw11: 0x100, ..sqe(0x09, 0) }).ok();
    let (first, _) = admin.begin(sqe(0x0c, 0), TRANSPORT, 0);
    let (second, _) = admin.begin(sqe(0x0c, 0), TRANSPORT, 0);
    admin.poll();
    assert_eq!((admin.finished.len(), admin.queue.next_event()), (0, None));
    assert!(!wake.drain());
    // Another host deletes and so changes a namespace.
    let mut other = Line::admin(&target);
    other.plain(Sqe { cdw10: 1, ..sqe(0x0d, 1) }).ok();
    assert!(wake.drain());
    assert_eq!(admin.wait_for(first).result(), 0x0004_0002);
    let abort = admin.plain(Sqe { cdw10: u32::from(second) << 16, ..sqe(0x08, 0) });
    assert_eq!(abort.result(), 0, "it was aborted");
    assert_eq!(admin.wait_for(second).status(), Status::ABORT_REQUESTED);
    assert_eq!(admin.plain(Sqe { cdw10: 0x1234 << 16, ..sqe(0x08, 0) }).result(), 1);
}

#[test]
fn ana_states_are_reported_and_where_a_device_cannot_be_reached_its_commands_fail() {
    let target = target(blocks());
    target.add_port(port(PortId(2))).expect("a second port");
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 31);
    admin.plain(Sqe { cdw10: 0x0b, cdw11: 0x800, ..sqe(0x09, 0) }).ok();
    let (request, _) = admin.begin(sqe(0x0c, 0), TRANSPORT, 0);
    admin.poll();
    let log = |admin: &mut Line| admin.receive(Sqe { cdw10: 12 << 16 | 0x0c, ..sqe(0x02, 0) }, 52).ok();
    let mut expected = vec![0; 52];
    expected[8] = 1;
    expected[16] = 1;
    expected[20] = 1;
    expected[32] = 1;
    expected[48] = 1;
    assert_eq!(log(&mut admin), expected);
    // At the other port nothing changes for this host.
    target.set_ana(PortId(2), Some(SUBSYSTEM), AnaState::NonOptimized);
    admin.poll();
    assert!(admin.finished.is_empty());
    target.set_ana(PORT, None, AnaState::Inaccessible);
    assert_eq!(admin.wait_for(request).result(), 0x000c_0302);
    (expected[0], expected[24], expected[32]) = (1, 1, 3);
    assert_eq!(log(&mut admin), expected);
    let refused = io.receive(read(0, 1), 512).cqe.status();
    assert_eq!((refused.kind(), refused.do_not_retry()), (Status::new(3, 0x02), false));
    let mut elsewhere = Line::at(&target, PortId(2), &Clock::manual());
    elsewhere.connect(0, 0xffff, 31, 0).ok();
    elsewhere.enable();
    assert_eq!(elsewhere.receive(Sqe { cdw10: 12 << 16 | 0x0c, ..sqe(0x02, 0) }, 52).ok()[32], 2);
    target.set_ana(PORT, None, AnaState::Optimized);
    io.receive(read(0, 1), 512).ok();
}

#[test]
fn queues_are_not_created_by_commands_and_keep_alive_is_one() {
    let target = target(blocks());
    let mut admin = Line::admin(&target);
    for opcode in [0x00, 0x01, 0x04, 0x05] {
        assert_eq!(admin.plain(sqe(opcode, 0)).status(), Status::INVALID_OPCODE, "{opcode:#x}");
    }
    let effects = admin.receive(Sqe { cdw10: 0x03ff_0005, ..sqe(0x02, 0) }, 4096).ok();
    let supported = |opcode: usize| effects[opcode * 4] & 1;
    assert_eq!([0x00, 0x01, 0x04, 0x05, 0x06, 0x18].map(supported), [0, 0, 0, 0, 1, 1]);
}

#[test]
fn a_fused_pair_reaches_the_controller_as_one_whichever_half_is_there_first() {
    let target = target(blocks());
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 31);
    io.send(write(0, 1), &pattern(1, 512)).ok();
    let compare = Sqe { flags: 1, ..Sqe { opcode: 0x05, ..read(0, 1) } };
    let second = Sqe { flags: 2, ..write(0, 1) };
    let (first_cid, begun) = io.begin(compare, TRANSPORT, 512);
    let Begun::NeedsData(first_data) = begun else { panic!("{begun:?}") };
    let (second_cid, begun) = io.begin(second, IN_CAPSULE, 512);
    let Begun::NeedsData(second_data) = begun else { panic!("{begun:?}") };
    let (between, _) = io.begin(read(1, 1), TRANSPORT, 512);
    io.fill(second_data, &pattern(2, 512));
    io.wait_for(between).ok();
    io.fill(first_data, &pattern(1, 512));
    io.wait_for(first_cid).ok();
    io.wait_for(second_cid).ok();
    assert_eq!(io.receive(read(0, 1), 512).ok(), pattern(2, 512));
    // A first half without a second one.
    let (alone, begun) = io.begin(compare, IN_CAPSULE, 512);
    let Begun::NeedsData(data) = begun else { panic!("{begun:?}") };
    io.fill(data, &pattern(2, 512));
    io.poll();
    assert!(io.finished.is_empty());
    io.receive(read(0, 1), 512).ok();
    assert_eq!(io.wait_for(alone).status(), Status::ABORTED_MISSING_FUSED);
}

#[test]
fn a_host_whose_commands_are_all_refused_is_there_all_the_same() {
    let target = target(blocks());
    let mut admin = with_keep_alive(&target, 2000);
    for _ in 0..4 {
        admin.clock.advance(Duration::from_millis(1500));
        assert_eq!(admin.plain(sqe(0x7f, 0x77)).status(), Status::INVALID_OPCODE);
        admin.poll();
        assert_eq!(admin.queue.state(), QueueState::Connected);
    }
}

#[test]
fn a_command_that_is_held_and_aborted_is_answered_soon() {
    let device = blocks();
    let delay = Some(FaultDelay { min: Duration::from_secs(60), max: Duration::from_secs(60) });
    let matching = FaultMatch { queue: Some(1), ..FaultMatch::default() };
    let action = FaultAction { delay, ..FaultAction::default() };
    device.add_passing_faults(vec![FaultRule { matching, action, ..FaultRule::default() }]).expect("a rule");
    let target = target(device);
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 31);
    let (cid, _) = io.begin(read(0, 8), TRANSPORT, 4096);
    io.poll();
    io.poll();
    let aborted = admin.plain(Sqe { cdw10: u32::from(cid) << 16 | 1, ..sqe(0x08, 0) });
    assert_eq!(aborted.result(), 0);
    let due = io.queue.next_event().expect("a look at the controller");
    assert!(due - io.clock.now() <= 5_000_000, "in {} ns", due - io.clock.now());
    io.clock.advance(Duration::from_millis(5));
    assert_eq!(io.wait_for(cid).status(), Status::ABORT_REQUESTED);
}

#[test]
fn an_admin_queue_has_companions_until_the_last_io_queue_is_gone() {
    let target = target(blocks());
    let mut admin = Line::admin(&target);
    assert!(!admin.queue.has_companions());
    let first = Line::io(&target, &mut admin, 1, 31);
    let second = Line::io(&target, &mut admin, 2, 31);
    assert!(admin.queue.has_companions() && !first.queue.has_companions());
    drop(first);
    assert!(admin.queue.has_companions());
    drop(second);
    assert!(!admin.queue.has_companions());
}

#[test]
fn a_claim_ends_with_the_connection_of_the_admin_queue() {
    let target = target(blocks());
    // Claim Send: alone, and a name of one byte.
    let claim = || Sqe { cdw10: 1, cdw11: 1, ..sqe(0xc5, 1) };
    let mut first = Line::admin(&target);
    first.send(claim(), b"a").ok();
    let mut second = Line::admin(&target);
    assert_eq!(second.send(claim(), b"b").status(), Status::RESERVATION_CONFLICT);
    drop(first);
    second.send(claim(), b"b").ok();
}
