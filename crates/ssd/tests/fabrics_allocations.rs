//! A queue at work allocates nothing.

#[path = "../../driver/tests/counting/mod.rs"]
mod counting;
mod network;

use network::{IN_CAPSULE, Line, TRANSPORT, blocks, read, target, write};
use unvme_ssd::fabrics::{Begun, Finished};

/// Begins as many reads and writes as the queue takes, and ends them.
fn round(line: &mut Line, finished: &mut Vec<Finished>) {
    let mut begun = 0;
    for number in 0..60 {
        let (_, read) = line.begin(read(number, 8), TRANSPORT, 4096);
        let (_, write) = line.begin(write(number * 8, 8), IN_CAPSULE, 4096);
        assert!(matches!(read, Begun::Run(_)));
        let Begun::NeedsData(wanted) = write else { panic!("{write:?}") };
        line.queue.data_arrived(wanted.slot);
        begun += 2;
    }
    finished.clear();
    while finished.len() < begun {
        line.queue.poll(&line.clock, finished);
    }
    for done in finished.iter() {
        assert!(done.cqe.status().is_success());
        line.queue.release(done.slot);
    }
}

#[test]
fn commands_are_begun_executed_and_released_without_an_allocation_once_the_queue_is_warm() {
    let target = target(blocks());
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 127);
    let mut finished = Vec::with_capacity(128);
    for _ in 0..3 {
        round(&mut io, &mut finished);
    }
    let before = counting::count();
    for _ in 0..100 {
        round(&mut io, &mut finished);
    }
    assert_eq!(counting::count(), before);
}
