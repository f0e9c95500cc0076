//! All that hosts can make a server keep is within the bound of memory: queues, commands, and their keys.
//!
//! One test in a process of its own: it counts what the process has.

mod network;

use std::sync::Arc;

use network::{
    IN_CAPSULE, Line, SUBSYSTEM, TRANSPORT, connect, connect_data, pairs, pattern, resident, sqe, target_for,
};
use unvme_bus::Clock;
use unvme_spec::Sqe;
use unvme_ssd::fabrics::{Access, Begun, Target, TargetOptions};

const MIB: usize = 1 << 20;
const BOUND: usize = 64 * MIB;
/// What allocators keep, and what a connection has before it has said anything.
const BESIDE: usize = 24 * MIB;
const SQSIZE: u16 = 1023;
const QUEUES: u16 = 63;
const CONTROLLERS: usize = 4;

/// The vendor's Store with a key of 17 bytes in the capsule, and a value of 1 MiB that never comes.
fn store() -> Sqe {
    let sqe = Sqe { cdw10: MIB as u32 / 4, cdw11: 16, cdw14: 17, cdw15: 0x0100_0000, ..sqe(0x81, 1) };
    Sqe { cdw12: 0, cdw13: 0, ..sqe }
}

/// Fills a queue; how many commands it took.
fn fill(line: &mut Line) -> usize {
    let mut begun = 0;
    while let (_, Begun::NeedsData(wanted)) = line.begin(store(), TRANSPORT, MIB as u32) {
        assert!(wanted.in_capsule, "{wanted:?}");
        let memory = line.queue.capsule_memory(wanted.slot).expect("memory for the key");
        memory.region.write(memory.offset, &pattern(1, 256));
        line.queue.data_arrived(wanted.slot);
        begun += 1;
        if begun == usize::from(SQSIZE) {
            break;
        }
    }
    line.poll();
    begun
}

/// A queue of a host; `None` when it is told to come later.
fn join(lines: &mut Vec<Line>, target: &Arc<Target>, host: &str, qid: u16, cntlid: u16) -> Option<u16> {
    let mut line = Line::from(target, "192.0.2.66:1000", &Clock::manual());
    let data = connect_data(SUBSYSTEM, host, cntlid);
    let sqsize = if qid == 0 { 31 } else { SQSIZE };
    let answer = line.run(connect(qid, sqsize, 0, 0), IN_CAPSULE, data.len() as u32, &data);
    if !answer.cqe.status().is_success() {
        return None;
    }
    if qid == 0 {
        line.enable();
    }
    lines.push(line);
    Some(answer.cqe.result() as u16)
}

#[test]
fn queues_commands_and_long_keys_are_within_the_bound_of_memory() {
    let options = TargetOptions { memory_bytes: BOUND as u64, ..TargetOptions::default() };
    let target = target_for(pairs(), Access::Any, options);
    let before = resident();
    let mut lines = Vec::new();
    for _ in 0..CONTROLLERS {
        let Some(cntlid) = join(&mut lines, &target, "nqn.evil", 0, 0xffff) else { break };
        if (1..=QUEUES).any(|qid| join(&mut lines, &target, "nqn.evil", qid, cntlid).is_none()) {
            break;
        }
    }
    let mut commands = 0;
    for line in lines.iter_mut().filter(|line| line.queue.queue_id() != Some(0)) {
        commands += fill(line);
        let more = resident().saturating_sub(before);
        assert!(more <= BOUND + BESIDE, "{} MiB for {commands} commands", more / MIB);
    }
    assert!(commands >= 8 * usize::from(SQSIZE), "{commands} commands in {} queues", lines.len());
    assert!(target.memory().used() <= target.memory().limit());
    // Another host has a controller, a queue and an answer all the same.
    let mut others = Vec::new();
    let cntlid = join(&mut others, &target, "nqn.true", 0, 0xffff).expect("a controller");
    join(&mut others, &target, "nqn.true", 1, cntlid).expect("a queue");
    let [admin, io] = &mut others[..] else { panic!("two queues") };
    admin.identify(1, 0);
    let store = Sqe { cdw10: 4096, cdw11: 1, cdw2: 0x61, ..sqe(0x01, 1) };
    io.transfer(store, &pattern(2, 4096)).ok();
    assert_eq!(io.receive(Sqe { opcode: 0x02, ..store }, 4096).ok(), pattern(2, 4096));
    drop((lines, others));
    assert_eq!(target.memory().used(), 0);
}
