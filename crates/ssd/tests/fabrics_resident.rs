//! What the bound of memory says is what the process has.

mod network;

use network::{Line, pairs, pattern, resident, sqe, target_for};
use unvme_spec::Sqe;
use unvme_ssd::fabrics::{Access, TargetOptions};

const MIB: usize = 1 << 20;
const BOUND: usize = 32 * MIB;
const VALUE: usize = 24 * MIB;

#[test]
fn queues_that_have_given_their_memory_back_do_not_have_it() {
    let options = TargetOptions { memory_bytes: BOUND as u64, ..TargetOptions::default() };
    let target = target_for(pairs(), Access::Any, options);
    let mut admin = Line::admin(&target);
    let store = Sqe { cdw10: VALUE as u32, cdw11: 1, cdw2: 0x61, ..sqe(0x01, 1) };
    Line::io(&target, &mut admin, 1, 31).transfer(store, &pattern(1, VALUE)).ok();
    let before = resident();
    let mut lines = Vec::new();
    for qid in 2..12 {
        let mut io = Line::io(&target, &mut admin, qid, 31);
        let begun = io.begin(Sqe { opcode: 0x02, ..store }, 0x5a, VALUE as u32).0;
        while io.finished.is_empty() {
            io.poll();
        }
        let slot = io.finished.remove(0).slot;
        assert_eq!(io.queue.memory(slot).expect("the value").bytes, VALUE, "{begun}");
        io.queue.release(slot);
        lines.push(io);
        let more = resident().saturating_sub(before);
        assert!(more <= BOUND + 8 * MIB, "{} MiB in {} queues", more / MIB, lines.len());
    }
    assert!(target.memory().used() <= BOUND as u64);
}
