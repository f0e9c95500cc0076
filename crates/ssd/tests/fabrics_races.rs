//! Queues of an association on threads of their own, while the controller is reset and associations end.

mod network;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use network::{IN_CAPSULE, Line, PORT, TRANSPORT, blocks, pairs, read, sqe, target, target_for, write};
use unvme_bus::{Clock, EventFd};
use unvme_spec::Sqe;
use unvme_ssd::fabrics::{Access, Begun, QueueState, Target, TargetOptions};

/// Connects queue `qid` whenever it can, and reads and writes until it ends. Returns how many commands were
/// answered.
fn work(target: &Arc<Target>, qid: u16, cntlid: &AtomicU32, is_over: &AtomicBool) -> usize {
    let mut answered = 0;
    while !is_over.load(Ordering::Relaxed) {
        let mut line = Line::at(target, PORT, &Clock::wall());
        let connected = line.connect_unless_ended(qid, cntlid.load(Ordering::Relaxed) as u16, 15);
        if !connected.is_some_and(|answer| answer.cqe.status().is_success()) {
            thread::yield_now();
            continue;
        }
        while line.queue.state() == QueueState::Connected && !is_over.load(Ordering::Relaxed) {
            for block in 0..7 {
                match line.begin(read(block, 8), TRANSPORT, 4096).1 {
                    Begun::Run(_) | Begun::Refused(_) | Begun::Fatal(_) => {}
                    other => panic!("{other:?}"),
                }
                if let Begun::NeedsData(wanted) = line.begin(write(block, 8), IN_CAPSULE, 4096).1 {
                    line.queue.data_arrived(wanted.slot);
                }
            }
            while line.queue.outstanding() > 0 && line.queue.state() == QueueState::Connected {
                line.poll();
                for finished in line.finished.drain(..) {
                    line.queue.release(finished.slot);
                    answered += 1;
                }
            }
        }
    }
    answered
}

#[test]
fn resets_and_ends_of_associations_under_load_leave_nothing_behind() {
    const ROUNDS: usize = 60;
    let target = target(blocks());
    let (cntlid, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    let answered: usize = thread::scope(|scope| {
        let (target, cntlid, is_over) = (&target, &cntlid, &is_over);
        let workers: Vec<_> =
            (1..=3).map(|qid| scope.spawn(move || work(target, qid, cntlid, is_over))).collect();
        for round in 0..ROUNDS {
            let mut admin = Line::at(target, PORT, &Clock::wall());
            let connected = admin.connect(0, 0xffff, 31, 0).result();
            admin.enable();
            cntlid.store(connected as u32, Ordering::Relaxed);
            for _ in 0..round % 4 {
                thread::sleep(Duration::from_millis(2));
                admin.set_property(0x14, 0x0046_0060);
                admin.enable();
            }
            thread::sleep(Duration::from_millis(2));
        }
        is_over.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().expect("a worker")).sum()
    });
    assert!(answered > 0);
    assert_eq!(target.memory().used(), 0);
    // All identifiers are free again.
    assert_eq!(Line::new(&target).connect(0, 0xffff, 31, 0).result(), 1);
}

/// Runs a command with so many bytes of data either way, asleep whenever there is nothing to do.
fn run_asleep(line: &mut Line, wake: &EventFd, sqe: Sqe, bytes: u32, data: &[u8]) -> Vec<u8> {
    let (cid, begun) = line.begin(sqe, TRANSPORT, bytes);
    if let Begun::NeedsData(wanted) = begun {
        line.fill(wanted, data);
    }
    loop {
        let worked = line.poll();
        if let Some(answer) = line.take(cid) {
            return answer.ok();
        }
        if let Some(wanted) = line.queue.next_wanted() {
            line.fill(wanted, data);
        } else if worked == 0 {
            assert!(wake.wait(Duration::from_secs(20)).expect("an eventfd"), "nobody woke the queue up");
            wake.drain();
        }
    }
}

#[test]
fn hosts_whose_values_fit_one_at_a_time_take_turns_and_are_woken_up_for_it() {
    const BYTES: u32 = 3 << 20;
    let options = TargetOptions { memory_bytes: 5 << 20, ..TargetOptions::default() };
    let target = target_for(pairs(), Access::Any, options);
    let all_are_connected = Barrier::new(3);
    thread::scope(|scope| {
        for host in 0..3u8 {
            let (target, all_are_connected) = (&target, &all_are_connected);
            scope.spawn(move || {
                let wake = EventFd::new().expect("an eventfd");
                let mut admin = Line::admin(target);
                let mut io = Line::at(target, PORT, &Clock::wall());
                io.queue.set_wake(wake.clone());
                let cntlid = admin.cntlid();
                io.connect(1, cntlid, 15, 0).ok();
                all_are_connected.wait();
                let key = |opcode| Sqe { cdw10: BYTES, cdw11: 1, cdw2: host.into(), ..sqe(opcode, 1) };
                for round in 0..20u8 {
                    let value = vec![host * 32 + round; BYTES as usize];
                    run_asleep(&mut io, &wake, key(0x01), BYTES, &value);
                    assert!(run_asleep(&mut io, &wake, key(0x02), BYTES, &[]) == value, "{host} {round}");
                }
            });
        }
    });
    assert_eq!(target.memory().used(), 0);
}
