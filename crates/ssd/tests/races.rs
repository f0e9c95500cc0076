//! Resets, shutdowns and vanishing memory while other threads serve the queues.

mod host;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host::blocks::{READ, SOURCE, WRITE, transfer};
use host::{BASE, DATA, Host, sqe};
use unvme_bus::{Dma, DmaAccess, Function};
use unvme_spec::Sqe;
use unvme_ssd::Ssd;

const CC: u64 = 0x14;
const CSTS: u64 = 0x1c;
/// Bytes of each command of the load: long enough for whatever happens to come in its middle.
const LOAD_BYTES: usize = 256 << 10;
const LOAD_COMMANDS: usize = 32;

/// Ends the servers when the test ends, or fails.
struct StopsAtEnd<'a>(&'a AtomicBool);

impl Drop for StopsAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `test` while two threads serve every queue of the device.
fn while_served(host: &mut Host, test: impl FnOnce(&mut Host)) {
    let stop = AtomicBool::new(false);
    let (ssd, clock): (Arc<Ssd>, _) = (host.ssd.clone(), host.clock.clone());
    std::thread::scope(|scope| {
        let _stops = StopsAtEnd(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    ssd.advance(None, &clock);
                }
            });
        }
        test(host);
    });
}

/// Executes a command whose completion another thread posts.
fn execute(host: &mut Host, qid: u16, sqe: Sqe) {
    let cid = host.push(qid, sqe);
    host.ring(qid);
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(cqe) = host.poll(qid) {
            assert_eq!((cqe.cid, cqe.status().is_success()), (cid, true));
            return;
        }
        assert!(Instant::now() < deadline, "no completion");
        std::thread::yield_now();
    }
}

/// Enables the controller and creates I/O queue pair 1, as other threads serve it. Every other time there is
/// another submission queue, of another class, so that queues are served by their classes.
fn bring_up(host: &mut Host, round: usize) {
    host.enable_with(1 << 11);
    let mut create_cq = Sqe { cdw10: 63 << 16 | 1, cdw11: 0b01, ..sqe(0x05, 0) };
    create_cq.dptr = [BASE + Host::completion_offset(1) as u64, 0];
    execute(host, 0, create_cq);
    host.know_completion(1, 64);
    let mut create_sq = Sqe { cdw10: 63 << 16 | 1, cdw11: 1 << 16 | 1, ..sqe(0x01, 0) };
    create_sq.dptr = [BASE + Host::submission_offset(1) as u64, 0];
    execute(host, 0, create_sq);
    host.know_submission(1, 64);
    if round % 2 == 1 {
        let mut create_sq = Sqe { cdw10: 63 << 16 | 2, cdw11: 1 << 16 | 1 << 1 | 1, ..sqe(0x01, 0) };
        create_sq.dptr = [BASE + Host::submission_offset(2) as u64, 0];
        execute(host, 0, create_sq);
        host.know_submission(2, 64);
    }
}

/// Rings the doorbell for reads and writes, which share one PRP list, and waits until the first of them is
/// done.
fn load(host: &mut Host) {
    for index in 0..LOAD_COMMANDS {
        let (opcode, offset) = if index % 2 == 0 { (READ, DATA) } else { (WRITE, SOURCE) };
        let blocks = (LOAD_BYTES / 512) as u32;
        let command = transfer(host, opcode, index as u64 * u64::from(blocks), blocks, offset, LOAD_BYTES);
        host.push(1, command);
    }
    host.ring(1);
    let deadline = Instant::now() + Duration::from_secs(20);
    while host.peek(1).is_none() {
        assert!(Instant::now() < deadline, "no completion");
        std::hint::spin_loop();
    }
}

#[test]
fn after_any_reset_under_load_nothing_moves_and_the_device_can_be_used_again() {
    let mut host = host::attached(host::config(512));
    while_served(&mut host, |host| {
        for round in 0..24 {
            bring_up(host, round);
            load(host);
            match round % 4 {
                0 => host.write32(CC, 0x0046_0000),
                1 => host.write32(0x20, 0x4e56_4d65),
                2 => host.ssd.reset().unwrap(),
                _ => {
                    host.write32(CC, 0x0046_4001);
                    assert_eq!(host.read32(CSTS) & 0b1111, 0b1001, "CSTS.SHST complete");
                    host.write32(CC, 0x0046_0000);
                }
            }
            assert_eq!(host.read32(CSTS) & 1, 0);
            host.memory.fill(0, host::MEMORY_BYTES, 0x5a);
            std::thread::sleep(Duration::from_millis(1));
            assert!(host.bytes(0, host::MEMORY_BYTES).iter().all(|&b| b == 0x5a), "round {round}");
            host.forget_queues();
        }
    });
}

#[test]
fn memory_that_is_unmapped_under_load_is_not_touched_any_more() {
    let mut host = host::attached(host::config(512));
    while_served(&mut host, |host| {
        for round in 0..24 {
            bring_up(host, round);
            load(host);
            host.ssd.dma_unmap(BASE, host::MEMORY_BYTES as u64).unwrap();
            let before = host.bytes(0, host::MEMORY_BYTES);
            std::thread::sleep(Duration::from_millis(1));
            assert!(host.bytes(0, host::MEMORY_BYTES) == before, "round {round}");
            host.ssd.dma_map(BASE, &host.memory, DmaAccess::READ_WRITE).unwrap();
            // The queues find their memory again, and every command is answered once.
            let deadline = Instant::now() + Duration::from_secs(20);
            let mut answers = 0;
            while answers < LOAD_COMMANDS {
                answers += usize::from(host.poll(1).is_some());
                assert!(Instant::now() < deadline, "round {round}: {answers} answers");
            }
            assert!(host.poll(1).is_none());
            host.disable();
        }
    });
}
