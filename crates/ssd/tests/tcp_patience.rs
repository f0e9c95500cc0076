//! Hosts that are slow, silent, deaf or greedy; and how few calls those need that are none of it.

mod wire;

use std::cell::Cell;
use std::time::Duration;

use unvme_bus::Room;
use unvme_fabric::Secret;
use unvme_fabric::chap::Keys;
use unvme_ssd::fabrics::{Access, EndReason, HostAccess, QueueState, TargetOptions};
use unvme_ssd::tcp::{Ending, Late, Limits};
use unvme_ssd::{FaultAction, FaultDelay, FaultRule};
use wire::{Sqe, Wire, Wishes, device, drain, fill, pdu, target, target_for, would_block};

const NO_DIGESTS: Wishes = Wishes { header_digest: false, data_digest: false, hpda_z: 0, maxr2t_z: 0 };
const NANOSECOND: Duration = Duration::from_nanos(1);

fn pair(entries: u16) -> (Wire, Wire) {
    Wire::pair(&target(), Limits::default(), NO_DIGESTS, entries)
}

/// Waits until just before a limit and then until the limit.
#[track_caller]
fn ends_after(wire: &mut Wire, limit: Duration, ending: Ending) {
    wire.connection.advance(&wire.clock);
    let deadline = wire.connection.next_event().expect("a deadline");
    assert!(deadline <= wire.clock.now() + limit.as_nanos() as u64, "{deadline}");
    wire.wait(limit - NANOSECOND);
    assert_eq!(wire.ending(), None, "too early");
    wire.wait(NANOSECOND);
    assert_eq!(wire.ending(), Some(ending));
}

#[test]
fn a_host_that_sends_nothing_is_not_waited_for() {
    let mut wire = Wire::new(&target(), Limits::default());
    ends_after(&mut wire, Limits::default().handshake, Ending::Late(Late::Greeting));
}

#[test]
fn a_host_that_sends_its_ic_req_byte_by_byte_has_no_more_time_for_it() {
    let mut wire = Wire::new(&target(), Limits::default());
    wire.connection.advance(&wire.clock);
    for byte in &pdu::ic_req(&NO_DIGESTS)[..100] {
        wire.feed(&[*byte]);
        wire.wait(Duration::from_millis(90));
    }
    assert_eq!(wire.ending(), None);
    wire.wait(Duration::from_secs(1));
    assert_eq!(wire.ending(), Some(Ending::Late(Late::Greeting)));
}

#[test]
fn a_host_that_never_connects_is_not_waited_for() {
    let mut wire = Wire::greeted(&target(), Limits::default(), NO_DIGESTS);
    ends_after(&mut wire, Limits::default().connect, Ending::Late(Late::Connect));
}

#[test]
fn a_host_whose_connects_are_refused_has_no_more_time() {
    let mut wire = Wire::greeted(&target(), Limits::default(), NO_DIGESTS);
    wire.wait(Duration::from_secs(5));
    let data = pdu::connect_data(0xffff, "nqn.2026-01.org.example:nothing", wire::HOST);
    assert_ne!(wire.run(Sqe::connect(0, 31, 0), &data).status(), 0);
    wire.wait(Duration::from_secs(4));
    assert_eq!(wire.ending(), None);
    wire.wait(Duration::from_secs(1));
    assert!(wire.ending().is_some());
}

#[test]
fn a_connection_on_which_nothing_is_due_stays() {
    let (mut admin, mut wire) = pair(8);
    wire.run(Sqe::flush(), &[]);
    assert_eq!(wire.connection.next_event(), None);
    wire.wait(Duration::from_secs(3600));
    assert_eq!(wire.ending(), None);
    assert_eq!(wire.run(Sqe::flush(), &[]).status(), 0);
    let event = admin.capsule(&Sqe::new(0x0c).cid(900), &[]);
    admin.feed(&event);
    admin.wait(Duration::from_secs(3600));
    assert_eq!(admin.ending(), None);
    assert!(admin.connection.is_idle(), "an Asynchronous Event Request keeps nobody waiting");
}

#[test]
fn half_a_pdu_is_not_waited_for_forever() {
    let (_admin, mut wire) = pair(8);
    wire.feed(&wire.capsule(&Sqe::flush(), &[])[..71]);
    ends_after(&mut wire, Limits::default().stall, Ending::Late(Late::Stalled));
}

#[test]
fn data_that_was_asked_for_is_not_waited_for_forever() {
    let (_admin, mut wire) = pair(8);
    wire.feed(&wire.capsule(&Sqe::write(0, 32).transported(16384), &[]));
    ends_after(&mut wire, Limits::default().stall, Ending::Late(Late::Stalled));
}

#[test]
fn other_commands_do_not_make_up_for_data_that_is_not_sent() {
    let (_admin, mut wire) = pair(8);
    wire.feed(&wire.capsule(&Sqe::write(0, 32).transported(16384).cid(900), &[]));
    assert_eq!(wire.next().expect("an R2T").kind(), 9);
    for _ in 0..5 {
        wire.wait(Duration::from_secs(5));
        assert_eq!(wire.run(Sqe::flush(), &[]).status(), 0);
        assert_eq!(wire.run(Sqe::write(0, 8), &[1; 4096]).status(), 0);
    }
    wire.wait(Duration::from_secs(5));
    assert_eq!(wire.ending(), Some(Ending::Late(Late::Stalled)));
}

#[test]
fn other_transfers_do_not_make_one_of_them_younger() {
    let (_admin, mut wire) = pair(8);
    wire.feed(&wire.capsule(&Sqe::write(0, 32).transported(16384).cid(900), &[]));
    assert_eq!(wire.next().expect("an R2T").kind(), 9);
    let mut waited = Duration::ZERO;
    while wire.ending().is_none() {
        assert!(waited < Limits::default().transfer, "{waited:?}");
        wire.wait(Duration::from_secs(20));
        waited += Duration::from_secs(20);
        wire.feed(&wire.capsule(&Sqe::write(64, 8).transported(4096).cid(3), &[]));
        let Some(ready) = wire.next() else { continue };
        let (ttag, ..) = ready.r2t();
        wire.feed(&wire.data(3, ttag, 0, &[1; 4096], true));
        assert_eq!(wire.next().expect("a response").status(), 0);
    }
    assert_eq!(wire.ending(), Some(Ending::Late(Late::Stalled)));
    assert_eq!(waited, Limits::default().transfer);
}

#[test]
fn a_host_with_more_than_its_part_has_less_time_while_others_wait() {
    let target = target_for(device(), TargetOptions { memory_bytes: 8 << 20, ..TargetOptions::default() });
    let (admin, mut wire) = Wire::pair(&target, Limits::default(), NO_DIGESTS, 32);
    let mut other = admin.join(&target, Limits::default(), 2, 16);
    let megabyte = Sqe::write(0, 2048).transported(1 << 20);
    for cid in 0..7 {
        wire.feed(&wire.capsule(&megabyte.cid(cid), &[]));
    }
    let mut parts: Vec<_> = (0..6).map(|_| wire.next().expect("an R2T")).collect();
    let mut waited = Duration::ZERO;
    while wire.ending().is_none() {
        if waited.is_zero() {
            other.feed(&other.capsule(&megabyte.cid(1), &[]));
        }
        // Some of each comes, so that data is not what has stalled.
        let part = parts.pop().expect("one of six");
        wire.feed(&wire.data(part.cid(), part.r2t().0, 0, &[1; 8192], false));
        wire.wait(Duration::from_secs(10));
        other.feed(&[]);
        waited += Duration::from_secs(10);
    }
    assert_eq!((wire.ending(), waited), (Some(Ending::Late(Late::Stalled)), Limits::default().stall));
}

#[test]
fn what_was_read_is_not_kept_for_a_host_that_takes_it_drop_by_drop() {
    let (_admin, mut wire) = pair(8);
    wire.give(&wire.capsule(&Sqe::read(0, 4096).cid(3), &[]));
    wire.chunk = 4 << 10;
    let mut waited = Duration::ZERO;
    while wire.ending().is_none() {
        assert!(waited <= Limits::default().transfer, "{waited:?}");
        wire.wait(Duration::from_secs(20));
        waited += Duration::from_secs(20);
        wire.take();
    }
    assert_eq!(wire.ending(), Some(Ending::Late(Late::Stalled)));
}

#[test]
fn a_few_bytes_now_and_then_are_not_enough() {
    let (_admin, mut wire) = pair(8);
    wire.feed(&wire.capsule(&Sqe::write(0, 64).transported(32768).cid(3), &[]));
    let (ttag, ..) = wire.next().expect("an R2T").r2t();
    let bytes = wire.data(3, ttag, 0, &[1; 32768], true);
    let mut given = 0;
    while wire.ending().is_none() {
        given += wire.feed(&bytes[given..given + 100]);
        wire.wait(Duration::from_secs(5));
    }
    assert_eq!(wire.ending(), Some(Ending::Late(Late::Stalled)));
    assert!(given < 1000, "{given} bytes");
}

#[test]
fn slow_is_not_stalled() {
    let (_admin, mut wire) = pair(8);
    wire.feed(&wire.capsule(&Sqe::write(0, 64).transported(32768).cid(3), &[]));
    let (ttag, ..) = wire.next().expect("an R2T").r2t();
    for part in wire.data(3, ttag, 0, &[1; 32768], true).chunks(4096) {
        wire.feed(part);
        wire.wait(Duration::from_secs(25));
    }
    assert_eq!(wire.next().expect("a response").status(), 0);
}

#[test]
fn a_host_that_never_reads_is_listened_to_only_so_long() {
    let (_admin, mut wire) = pair(8);
    let mut sent = 0u64;
    // Commands that are refused have no slot that would bound them.
    let mut wire_before = Wire::greeted(&target(), Limits::default(), NO_DIGESTS);
    let flush = wire_before.capsule(&Sqe::flush(), &[]);
    while wire_before.connection.wants_input() {
        let given = wire_before.give(&flush);
        wire_before.connection.advance(&wire_before.clock);
        wire_before.connection.send(|_| would_block());
        sent += given as u64;
        assert!(sent < 4 << 20, "it is still listened to");
    }
    // With commands that have slots the queue's size is the bound.
    for cid in 0..8 {
        wire.give(&wire.capsule(&Sqe::read(0, 8).cid(cid), &[]));
        wire.connection.advance(&wire.clock);
        wire.connection.send(|_| would_block());
    }
    let answered = wire.connection.queue().outstanding();
    assert_eq!(answered, 8, "what is not sent is not over");
    ends_after(&mut wire, Limits::default().stall, Ending::Late(Late::Stalled));
}

#[test]
fn a_host_that_reads_again_gets_everything() {
    let (_admin, mut wire) = pair(64);
    let mut bytes = Vec::new();
    for cid in 0..60 {
        bytes.extend(wire.capsule(&Sqe::read(0, 128).cid(cid), &[]));
    }
    let mut at = 0;
    while at < bytes.len() {
        at += wire.give(&bytes[at..]);
        wire.connection.advance(&wire.clock);
        wire.connection.send(|_| would_block());
    }
    wire.chunk = 1;
    for _ in 0..1000 {
        wire.take();
    }
    wire.chunk = usize::MAX;
    wire.feed(&[]);
    let mut data = 0;
    while let Some(pdu) = wire.next() {
        data += pdu.payload().1.len();
    }
    assert_eq!(data, 60 * 65536);
    assert!(wire.connection.is_idle());
}

#[test]
fn a_connection_that_is_stopped_sends_what_is_ready_and_ends() {
    let (_admin, mut wire) = pair(8);
    wire.give(&wire.capsule(&Sqe::flush().cid(5), &[]));
    wire.connection.advance(&wire.clock);
    wire.connection.stop();
    assert_eq!(wire.ending(), None);
    wire.take();
    assert_eq!(wire.next().expect("a response").cid(), 5);
    assert_eq!(wire.ending(), Some(Ending::Stopped));
    let (_admin, mut wire) = pair(8);
    wire.connection.stop();
    assert_eq!(wire.ending(), Some(Ending::Stopped));
}

#[test]
fn a_socket_that_fails_ends_the_connection() {
    let (_admin, mut wire) = pair(8);
    assert_eq!(wire.connection.receive(|_| would_block()), 0);
    assert_eq!(wire.ending(), None);
    wire.connection.receive(|_| Err(std::io::ErrorKind::ConnectionReset.into()));
    assert_eq!(wire.ending(), Some(Ending::Socket(std::io::ErrorKind::ConnectionReset)));
}

#[test]
fn one_call_takes_128_reads_and_a_few_bring_their_data() {
    let (_admin, mut wire) = pair(129);
    let mut bytes = Vec::new();
    for cid in 0..128 {
        bytes.extend(wire.capsule(&Sqe::read(0, 8).cid(cid), &[]));
    }
    // The first bursts make the room.
    wire.feed(&bytes);
    wire.feed(&bytes);
    wire.output.clear();
    assert_eq!(wire.give(&bytes), 128 * 72);
    assert_eq!(wire.connection.queue().outstanding(), 32, "as many as have 128 KiB begin");
    let mut calls = 0;
    while wire.connection.advance(&wire.clock) > 0 {
        calls += usize::from(wire.take() > 0);
    }
    assert_eq!(wire.output.len(), 128 * (24 + 4096));
    assert!(calls <= 5, "{calls} calls");
}

#[test]
fn the_responses_of_128_writes_are_one_piece() {
    let (_admin, mut wire) = pair(129);
    let mut bytes = Vec::new();
    for cid in 0..128 {
        bytes.extend(wire.capsule(&Sqe::write(0, 1).in_capsule(512).cid(cid), &[1; 512]));
    }
    let mut at = 0;
    while at < bytes.len() {
        at += wire.give(&bytes[at..]);
    }
    while wire.connection.advance(&wire.clock) > 0 {}
    let mut output = Vec::new();
    let sent = wire.connection.send(|pieces| {
        assert_eq!(pieces.len(), 1);
        Ok(drain(pieces, usize::MAX, &mut output))
    });
    assert_eq!(sent, 128 * 24);
}

#[test]
fn most_of_a_large_write_goes_straight_to_its_place() {
    let (_admin, mut wire) = pair(8);
    // Room for bursts, which large data must not pass through.
    for _ in 0..8 {
        let bytes: Vec<u8> = (0..1000).flat_map(|cid| wire.capsule(&Sqe::flush().cid(cid), &[])).collect();
        for part in bytes.chunks(7 * 72) {
            wire.feed(part);
        }
    }
    wire.output.clear();
    wire.feed(&wire.capsule(&Sqe::write(0, 256).transported(131_072).cid(3), &[]));
    let (ttag, ..) = wire.next().expect("an R2T").r2t();
    let data: Vec<u8> = (0..131_072).map(|at| (at % 249) as u8).collect();
    let bytes = wire.data(3, ttag, 0, &data, true);
    let (mut at, mut calls) = (0, 0);
    let direct = Cell::new(0);
    while at < bytes.len() {
        at += wire.connection.receive(|rooms| {
            let filled = fill(rooms, &bytes[at..]);
            if let Some(Room::Memory { bytes, .. }) = rooms.first() {
                direct.set(direct.get() + filled.min(*bytes));
            }
            Ok(filled)
        });
        calls += 1;
    }
    assert_eq!(calls, 2);
    assert!(direct.get() > 129_000, "{} bytes", direct.get());
    wire.feed(&[]);
    assert_eq!(wire.next().expect("a response").status(), 0);
    wire.feed(&wire.capsule(&Sqe::read(0, 256).cid(4), &[]));
    assert_eq!(wire.next().expect("data").payload().1, data);
}

/// A target whose host has a secret.
fn secretive() -> std::sync::Arc<unvme_ssd::fabrics::Target> {
    let target = target();
    let keys = Keys { host: Secret::generate(None).expect("random numbers"), controller: None };
    let host = HostAccess { nqn: wire::HOST.to_owned(), keys: Some(keys), ..HostAccess::default() };
    assert!(target.set_access(wire::SUBSYSTEM, Access::Hosts(vec![host])));
    target
}

#[test]
fn a_host_that_never_proves_who_it_is_is_not_waited_for() {
    let mut wire = Wire::greeted(&secretive(), Limits::default(), NO_DIGESTS);
    wire.connect(0, 31, 0xffff, 0);
    ends_after(&mut wire, Limits::default().connect, Ending::Queue);
    assert_eq!(wire.connection.queue().state(), QueueState::Ended(EndReason::Authentication));
}

#[test]
fn a_host_that_asks_for_other_things_has_no_more_time_to_prove_who_it_is() {
    let mut wire = Wire::greeted(&secretive(), Limits::default(), NO_DIGESTS);
    wire.connect(0, 31, 0xffff, 0);
    for _ in 0..9 {
        wire.wait(Duration::from_secs(1));
        let refused = wire.run(Sqe::property_set(0x14, wire::CC_ENABLED), &[]);
        assert_eq!(refused.status(), 0x191, "Authentication Required");
    }
    // Nor with the announcement of a message that does not come.
    wire.feed(&wire.capsule(&Sqe::new(0x7f).cid(77), &[])[..71]);
    wire.wait(Duration::from_secs(1));
    assert_eq!(wire.ending(), Some(Ending::Queue));
}

#[test]
fn a_connection_that_drains_gets_the_data_it_has_asked_for_and_begins_nothing() {
    let (_admin, mut wire) = pair(8);
    wire.feed(&wire.capsule(&Sqe::write(0, 32).transported(16384).cid(3), &[]));
    let (ttag, ..) = wire.next().expect("an R2T").r2t();
    wire.connection.drain();
    assert!(!wire.connection.is_idle());
    // A new write with its data, and the data of the old one behind it.
    let mut bytes = wire.capsule(&Sqe::write(64, 1).in_capsule(512).cid(4), &[9; 512]);
    bytes.extend(wire.data(3, ttag, 0, &[1; 16384], true));
    bytes.extend(wire.capsule(&Sqe::flush().cid(5), &[]));
    assert_eq!(wire.feed(&bytes), bytes.len());
    let answer = wire.next().expect("a response");
    assert_eq!((answer.cid(), answer.status()), (3, 0));
    assert_eq!(wire.next(), None);
    assert!(wire.connection.is_idle());
    wire.connection.stop();
    assert_eq!(wire.ending(), Some(Ending::Stopped));
}

#[test]
fn a_verify_has_the_opcode_of_an_event_request_and_is_waited_for() {
    let device = device();
    let delay = Some(FaultDelay { min: Duration::from_secs(2), max: Duration::from_secs(2) });
    let action = FaultAction { delay, ..FaultAction::default() };
    device.add_passing_faults(vec![FaultRule { action, ..FaultRule::default() }]).expect("a rule");
    let target = target_for(device, TargetOptions::default());
    let mut admin = Wire::greeted(&target, Limits::default(), NO_DIGESTS);
    admin.connect(0, 31, 0xffff, 0);
    admin.run(Sqe::property_set(0x14, wire::CC_ENABLED), &[]);
    let mut wire = admin.join(&target, Limits::default(), 1, 8);
    wire.feed(&wire.capsule(&Sqe::new(0x0c).nsid(1).cid(3), &[]));
    assert_eq!(wire.next(), None);
    assert!(!wire.connection.is_idle());
    wire.clock.advance(Duration::from_secs(2));
    wire.feed(&[]);
    assert_eq!(wire.next().map(|answer| (answer.cid(), answer.status())), Some((3, 0)));
    admin.feed(&admin.capsule(&Sqe::new(0x0c).cid(4), &[]));
    assert!(admin.connection.is_idle(), "events may never come");
}
