//! A host that takes all the memory it can get, and keeps it: the others have their shares.

mod network;

use std::sync::Arc;

use network::{IN_CAPSULE, Line, SUBSYSTEM, TRANSPORT, blocks, connect, connect_data, pattern, read, write};
use unvme_bus::Clock;
use unvme_ssd::fabrics::{Access, Begun, Target, TargetOptions};

const MIB: u32 = 1 << 20;
const EVIL: (&str, &str) = ("192.0.2.66:1000", "nqn.evil");
const TRUE: (&str, &str) = ("192.0.2.7:1000", "nqn.true");
/// Commands of a queue.
const COMMANDS: u16 = 999;

fn target() -> Arc<Target> {
    network::target_for(
        blocks(),
        Access::Any,
        TargetOptions { memory_bytes: 64 << 20, ..TargetOptions::default() },
    )
}

/// Connects a queue of a host, by address and name; `None` when it is told to come later.
fn join(target: &Arc<Target>, host: (&str, &str), qid: u16, cntlid: u16, sqsize: u16) -> Option<(Line, u16)> {
    let mut line = Line::from(target, host.0, &Clock::manual());
    let data = connect_data(SUBSYSTEM, host.1, cntlid);
    let answer = line.run(connect(qid, sqsize, 0, 0), IN_CAPSULE, data.len() as u32, &data);
    answer.cqe.status().is_success().then(|| (line, answer.cqe.result() as u16))
}

/// A host with an admin queue and an I/O queue.
fn host(target: &Arc<Target>, host: (&str, &str), sqsize: u16) -> (Line, u16, Line) {
    let (mut admin, cntlid) = join(target, host, 0, 0xffff, 31).expect("a controller");
    admin.enable();
    let (io, _) = join(target, host, 1, cntlid, sqsize).expect("an I/O queue");
    (admin, cntlid, io)
}

/// Writes whose data never comes, as many as the queue takes.
fn hog(line: &mut Line) {
    for number in 0..u32::from(COMMANDS) {
        let (_, begun) = line.begin(write(number % 32 * 2048, MIB / 512), TRANSPORT, MIB);
        assert!(matches!(begun, Begun::NeedsData(_) | Begun::Waits(_)), "{begun:?}");
    }
    line.poll();
}

/// Commands of all sizes, each of which is answered though nothing else happens and no time passes.
fn is_answered(admin: &mut Line, io: &mut Line) {
    for round in 0..20u8 {
        admin.identify(1, 0);
        for bytes in [512, 4096, 64 << 10, MIB as usize] {
            let data = pattern(round, bytes);
            io.transfer(write(0, bytes as u32 / 512), &data).ok();
            assert!(io.receive(read(0, bytes as u32 / 512), bytes as u32).ok() == data, "{bytes} bytes");
        }
        io.send(write(0, 16), &pattern(round, 8192)).ok();
    }
}

#[test]
fn a_host_that_keeps_all_it_can_get_does_not_keep_others_waiting() {
    let target = target();
    let (mut admin, _, mut io) = host(&target, TRUE, 127);
    let (evil_admin, cntlid, first) = host(&target, EVIL, COMMANDS);
    let mut evil = vec![evil_admin, first];
    evil.extend((2..4).map(|qid| join(&target, EVIL, qid, cntlid, COMMANDS).expect("a queue").0));
    evil.iter_mut().skip(1).for_each(hog);
    let used = target.memory().used();
    assert!(used > 48 << 20, "what nobody else asks for is anybody's: {used}");
    is_answered(&mut admin, &mut io);
    // Who comes while all is taken finds its share as well.
    let (mut late_admin, _, mut late) = host(&target, ("203.0.113.1:9", "nqn.late"), 127);
    is_answered(&mut late_admin, &mut late);
    is_answered(&mut admin, &mut io);
    assert!(target.memory().used() <= target.memory().limit());
    drop((evil, admin, io, late_admin, late));
    assert_eq!(target.memory().used(), 0);
}

#[test]
fn hosts_at_one_address_have_shares_of_their_own() {
    let target = target();
    let (evil_admin, cntlid, first) = host(&target, ("192.0.2.7:9", EVIL.1), COMMANDS);
    let mut evil = vec![evil_admin, first];
    evil.extend(
        (2..4).map(|qid| join(&target, ("192.0.2.7:9", EVIL.1), qid, cntlid, COMMANDS).expect("a queue").0),
    );
    evil.iter_mut().skip(1).for_each(hog);
    let (mut admin, _, mut io) = host(&target, TRUE, 127);
    is_answered(&mut admin, &mut io);
}

#[test]
fn the_admin_queue_of_a_host_is_answered_while_its_other_queues_have_all_of_its_share() {
    let target = target();
    let (mut admin, cntlid, first) = host(&target, EVIL, COMMANDS);
    let mut io = vec![first];
    io.extend((2..4).map(|qid| join(&target, EVIL, qid, cntlid, COMMANDS).expect("a queue").0));
    io.iter_mut().for_each(hog);
    admin.identify(1, 0);
}

#[test]
fn memory_that_was_lent_goes_to_who_has_less_when_it_comes_back() {
    let target = target();
    let (_admin, _, mut busy) = host(&target, EVIL, COMMANDS);
    let mut wanted: Vec<_> = (0..100)
        .filter_map(|number| match busy.begin(write(number % 32 * 2048, MIB / 512), TRANSPORT, MIB) {
            (_, Begun::NeedsData(wanted)) => Some(wanted),
            _ => None,
        })
        .collect();
    busy.poll();
    assert!(wanted.len() > 50, "{}", wanted.len());
    let (_other_admin, _, mut other) = host(&target, TRUE, 127);
    let begun: Vec<_> = (0..20).map(|_| other.begin(write(0, MIB / 512), TRANSPORT, MIB).1).collect();
    let had = begun.iter().filter(|begun| matches!(begun, Begun::NeedsData(_))).count();
    assert!((1..=2).contains(&had), "its share: {had}");
    other.poll();
    // As soon as the busy host's commands are done, the other one's have what they had.
    let data = pattern(1, MIB as usize);
    let mut served = 0;
    for done in 1..=20 {
        busy.fill(wanted.pop().expect("one of fifty"), &data);
        busy.poll();
        busy.poll();
        other.poll();
        while other.queue.next_wanted().is_some() {
            served += 1;
        }
        assert!(served + 2 >= done.min(18), "{served} of {done}");
    }
}
