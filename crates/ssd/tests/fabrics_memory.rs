//! Memory for data in flight: bounded for all queues of a target, and never in each other's way for good.

mod network;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use network::{IN_CAPSULE, Line, PORT, TRANSPORT, blocks, pairs, pattern, read, sqe, target_for, write};
use unvme_bus::EventFd;
use unvme_spec::{Sqe, Status};
use unvme_ssd::fabrics::{Access, Begun, Target, TargetOptions};

const MIB: u32 = 1 << 20;

fn target(memory_bytes: u64) -> Arc<Target> {
    target_for(blocks(), Access::Any, TargetOptions { memory_bytes, ..TargetOptions::default() })
}

fn megabyte(block: u32) -> Sqe {
    write(block, MIB / 512)
}

#[test]
fn commands_that_find_no_memory_wait_in_their_order_and_then_run() {
    let target = target(3 << 20);
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 31);
    let mut other = Line::at(&target, PORT, &admin.clock);
    let wake = EventFd::new().expect("an eventfd");
    other.queue.set_wake(wake.clone());
    other.connect(2, 1, 31, 0).ok();
    let begun: Vec<_> = (0..3).map(|number| io.begin(megabyte(number * 2048), TRANSPORT, MIB)).collect();
    let [(first, Begun::NeedsData(a)), (second, Begun::NeedsData(b)), (third, Begun::Waits(slot))] =
        begun[..]
    else {
        panic!("{begun:?}")
    };
    // It waits its turn, and so does what comes behind it in another queue, though there is memory for it;
    // but for what the host's share is enough for.
    io.poll();
    other.receive(read(0, 8), 4096).ok();
    let (small, begun) = other.begin(read(0, 256), TRANSPORT, 128 << 10);
    assert!(matches!(begun, Begun::Waits(_)), "{begun:?}");
    let data = pattern(1, MIB as usize);
    io.fill(a, &data);
    io.wait_for(first).ok();
    io.poll();
    let wanted = io.queue.next_wanted().expect("memory for the third");
    assert_eq!((wanted.slot, wanted.bytes, wanted.in_capsule), (slot, MIB, false));
    assert_eq!(io.queue.next_wanted(), None);
    io.fill(wanted, &data);
    io.fill(b, &data);
    io.wait_for(second).ok();
    io.wait_for(third).ok();
    other.wait_for(small).ok();
    assert!(target.memory().used() <= target.memory().limit());
    drop((io, other, admin));
    assert_eq!(target.memory().used(), 0);
}

#[test]
fn data_in_a_capsule_is_taken_whatever_others_hold() {
    let target = target(2 << 20);
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 63);
    let (held, begun) = io.begin(megabyte(0), TRANSPORT, MIB);
    let Begun::NeedsData(wanted) = begun else { panic!("{begun:?}") };
    let (waiting, begun) = io.begin(megabyte(2048), TRANSPORT, MIB);
    assert!(matches!(begun, Begun::Waits(_)), "{begun:?}");
    for number in 0..40 {
        io.send(write(8000 + number * 16, 16), &pattern(number as u8, 8192)).ok();
    }
    io.fill(wanted, &pattern(1, MIB as usize));
    io.wait_for(held).ok();
    io.poll();
    let wanted = io.queue.next_wanted().expect("memory");
    io.fill(wanted, &pattern(2, MIB as usize));
    io.wait_for(waiting).ok();
}

#[test]
fn what_a_queue_keeps_is_given_back_when_another_one_needs_it() {
    let target = target(5 << 20);
    let mut admin = Line::admin(&target);
    let mut idle = Line::at(&target, PORT, &admin.clock);
    let wake = EventFd::new().expect("an eventfd");
    idle.queue.set_wake(wake.clone());
    idle.connect(1, 1, 31, 0).ok();
    for number in 0..3 {
        let begun: Vec<_> = (0..3).map(|_| idle.begin(read(number, 2048), TRANSPORT, MIB)).collect();
        begun.into_iter().for_each(|(cid, _)| drop(idle.wait_for(cid).ok()));
    }
    let kept = target.memory().used();
    assert!(kept >= 3 << 20, "{kept} bytes are kept for the next commands");
    let mut io = Line::io(&target, &mut admin, 2, 31);
    let begun: Vec<_> = (0..3).map(|_| io.begin(read(0, 2048), TRANSPORT, MIB)).collect();
    io.poll();
    assert!(wake.drain(), "the idle queue is asked for what it keeps");
    idle.poll();
    begun.into_iter().for_each(|(cid, _)| drop(io.wait_for(cid).ok()));
}

#[test]
fn a_command_that_can_never_have_its_memory_is_refused() {
    let target =
        target_for(pairs(), Access::Any, TargetOptions { memory_bytes: 8 << 20, ..TargetOptions::default() });
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 31);
    let store = |bytes| Sqe { cdw10: bytes, cdw11: 1, cdw2: 0x61, ..sqe(0x01, 1) };
    // Three quarters of all are what any command may have.
    let (most, beyond) = (6 << 20, (6 << 20) + 4096);
    assert_eq!(io.run(store(beyond), TRANSPORT, beyond, &[]).status(), Status::INVALID_FIELD);
    io.transfer(store(most), &pattern(1, most as usize)).ok();
    io.transfer(store(most), &pattern(2, most as usize)).ok();
    assert_eq!(io.receive(Sqe { opcode: 0x02, ..store(most) }, most).ok(), pattern(2, most as usize));
}

#[test]
fn no_limit_of_the_device_is_exceeded_before_its_data_is_asked_for() {
    let target = target(64 << 20);
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 31);
    // MDTS is 2 MiB.
    assert_eq!(io.run(write(0, 8192), TRANSPORT, 4 << 20, &[]).status(), Status::INVALID_FIELD);
    assert_eq!(io.run(write(0, 32), IN_CAPSULE, 16384, &[]).status(), Status::SGL_OFFSET_INVALID);
}

#[test]
fn a_queue_at_work_maps_nothing_new() {
    let target = target(64 << 20);
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 127);
    let round = |io: &mut Line| {
        let begun: Vec<_> =
            (0..127).map(|number| io.begin(read(number, 256), TRANSPORT, 128 << 10)).collect();
        begun.into_iter().for_each(|(cid, _)| drop(io.wait_for(cid).ok()));
    };
    round(&mut io);
    let used = target.memory().used();
    for _ in 0..10 {
        round(&mut io);
        assert_eq!(target.memory().used(), used);
    }
}

/// I/O queue `qid`, and what wakes it.
fn woken(target: &Arc<Target>, admin: &mut Line, qid: u16) -> (Line, EventFd) {
    let mut io = Line::at(target, PORT, &admin.clock);
    let wake = EventFd::new().expect("an eventfd");
    io.queue.set_wake(wake.clone());
    let cntlid = admin.cntlid();
    io.connect(qid, cntlid, 31, 0).ok();
    (io, wake)
}

#[test]
fn a_queue_that_never_rests_does_not_keep_others_from_memory() {
    const BYTES: u32 = 128 << 10;
    let target = target(4 << 20);
    let mut admin = Line::admin(&target);
    let (mut busy, _) = woken(&target, &mut admin, 1);
    let (mut other, _) = woken(&target, &mut admin, 2);
    let data = pattern(1, BYTES as usize);
    let step = |number: u32| write(number % 200 * 256, BYTES / 512);
    let mut begun: VecDeque<_> = (0..24).map(|number| busy.begin(step(number), TRANSPORT, BYTES)).collect();
    let (late, waits) = other.begin(read(0, 4096), TRANSPORT, 2 * MIB);
    assert!(matches!(waits, Begun::Waits(_)), "{waits:?}");
    for round in 0..200 {
        other.poll();
        if let Some(answer) = other.take(late) {
            return drop(answer.ok());
        }
        busy.poll();
        if let Some((cid, Begun::NeedsData(wanted))) = begun.pop_front() {
            busy.fill(wanted, &data);
            busy.wait_for(cid).ok();
            begun.push_back(busy.begin(step(round), TRANSPORT, BYTES));
        }
    }
    panic!("the busy queue has been served 200 times, and the other one never");
}

#[test]
fn more_in_flight_than_a_queue_keeps_is_not_mapped_anew_each_time() {
    let target = target(64 << 20);
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 63);
    let mut begun: VecDeque<_> = (0..40).map(|_| io.begin(read(0, 2048), TRANSPORT, MIB).0).collect();
    let used = target.memory().used();
    assert!(used >= 40 << 20);
    for _ in 0..100 {
        let cid = begun.pop_front().expect("one of forty");
        io.wait_for(cid).ok();
        assert_eq!(target.memory().used(), used, "its memory is kept for the next one");
        begun.push_back(io.begin(read(0, 2048), TRANSPORT, MIB).0);
    }
}

#[test]
fn a_write_that_is_done_has_no_memory_though_its_response_is_not_sent() {
    let target = target(u64::from(MIB) * 4 / 3);
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 31);
    let mut other = Line::io(&target, &mut admin, 2, 31);
    let (cid, Begun::NeedsData(wanted)) = io.begin(megabyte(0), TRANSPORT, MIB) else { panic!("memory") };
    io.fill(wanted, &pattern(1, MIB as usize));
    let (waiting, begun) = other.begin(read(0, 2048), TRANSPORT, MIB);
    assert!(matches!(begun, Begun::Waits(_)), "{begun:?}");
    other.poll();
    while io.finished.is_empty() {
        io.poll();
    }
    assert_eq!(other.wait_for(waiting).ok(), pattern(1, MIB as usize));
    io.take(cid).expect("its response").ok();
}

#[test]
fn idle_queues_are_asked_once_for_all_who_wait() {
    let target = target(3 << 20);
    let mut admin = Line::admin(&target);
    let (mut idle, wake) = woken(&target, &mut admin, 1);
    let mut io = Line::io(&target, &mut admin, 2, 31);
    let mut other = Line::io(&target, &mut admin, 3, 31);
    let held = io.begin(megabyte(0), TRANSPORT, MIB);
    assert!(matches!(held.1, Begun::NeedsData(_)), "{held:?}");
    wake.drain();
    for (line, signals) in [(&mut io, true), (&mut other, false)] {
        let (_, begun) = line.begin(megabyte(0), TRANSPORT, 2 * MIB);
        assert!(matches!(begun, Begun::Waits(_)), "{begun:?}");
        line.poll();
        assert_eq!(wake.drain(), signals);
        idle.poll();
    }
}

/// Halves of a Compare and Write.
fn halves(block: u32) -> [Sqe; 2] {
    [Sqe { opcode: 0x05, flags: 0x01, ..write(block, 1) }, Sqe { flags: 0x02, ..write(block, 1) }]
}

#[test]
fn half_a_fused_pair_has_little_memory_and_not_for_long() {
    let target = target(64 << 20);
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 31);
    let [first, _] = halves(0);
    let large = io.run(Sqe { cdw12: 255, ..first }, TRANSPORT, 128 << 10, &[]);
    assert_eq!(large.status(), Status::ATOMIC_WRITE_UNIT_EXCEEDED);
    let (cid, begun) = io.begin(first, TRANSPORT, 512);
    let Begun::NeedsData(wanted) = begun else { panic!("{begun:?}") };
    io.fill(wanted, &[0; 512]);
    io.poll();
    let patience = io.queue.next_event().expect("an end of its patience") - io.clock.now();
    io.clock.advance(Duration::from_nanos(patience - 1));
    io.poll();
    io.poll();
    assert!(io.take(cid).is_none(), "its second half may come");
    io.clock.advance(Duration::from_nanos(1));
    assert_eq!(io.wait_for(cid).status(), Status::ABORTED_MISSING_FUSED);
}

#[test]
fn the_halves_of_a_pair_do_not_wait_for_each_other_around_somebody_else() {
    let target = target(2 << 20);
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 31);
    let mut other = Line::io(&target, &mut admin, 2, 31);
    let quarter = MIB / 4;
    let (before, Begun::NeedsData(held)) = io.begin(write(8192, quarter / 512), TRANSPORT, quarter) else {
        panic!("memory")
    };
    let [first, second] = halves(0);
    let (compare, begun) = io.begin(first, TRANSPORT, 512);
    let Begun::NeedsData(wanted) = begun else { panic!("{begun:?}") };
    io.fill(wanted, &[0; 512]);
    // It wants all there is, and others have some of that.
    let (waiting, begun) = other.begin(read(0, 3072), TRANSPORT, 6 * quarter);
    assert!(matches!(begun, Begun::Waits(_)), "{begun:?}");
    other.poll();
    admin.poll();
    let (last, begun) = io.begin(second, TRANSPORT, 512);
    let Begun::NeedsData(wanted) = begun else { panic!("{begun:?}") };
    io.fill(wanted, &[7; 512]);
    io.wait_for(compare).ok();
    io.wait_for(last).ok();
    io.fill(held, &pattern(1, quarter as usize));
    io.wait_for(before).ok();
    io.poll();
    assert_eq!(other.wait_for(waiting).ok()[..513], [vec![7; 512], vec![0]].concat());
}

#[test]
fn as_much_is_sent_as_a_command_asks_for_however_much_there_is_room_for() {
    let target = target(64 << 20);
    let mut admin = Line::admin(&target);
    assert_eq!(admin.receive(Sqe { cdw10: 1, ..sqe(0x06, 0) }, 65536).ok().len(), 4096);
    // SMART / Health Information, 128 dwords; and a page that ends before what is asked for.
    let log = |lid: u32, dwords: u32| Sqe { cdw10: lid | (dwords - 1) << 16, ..sqe(0x02, u32::MAX) };
    assert_eq!(admin.receive(log(0x02, 128), 65536).ok().len(), 512);
    let page = admin.receive(log(0x02, 1024), 65536).ok();
    assert_eq!((page.len(), &page[512..]), (4096, &[0; 4096 - 512][..]));
}
