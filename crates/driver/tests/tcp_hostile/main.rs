//! The initiator against a target that breaks the rules: an error is reported, nothing panics, and no buffer
//! comes back half written as a success.

mod associations;
mod connections;
mod data;
mod greetings;
mod losses;
mod target;

use std::time::Duration;

use unvme_driver::{Completion, Controller, Error, Payload, Queue, QueueOptions};
use unvme_spec::Sqe;

/// Long enough for anything that works.
const PATIENCE: Duration = Duration::from_secs(60);

fn sqe(opcode: u8, block: u32) -> Sqe {
    Sqe { opcode, nsid: 1, cdw10: block, ..Sqe::default() }
}

fn read(controller: &Controller, queue: &mut Queue, block: u32, bytes: usize) {
    let buf = controller.alloc(bytes).expect("a buffer");
    queue.submit(sqe(0x02, block), Some(Payload::whole(buf)), block.into()).expect("submit");
    queue.ring().expect("ring");
}

fn write(controller: &Controller, queue: &mut Queue, block: u32, bytes: usize) {
    let mut buf = controller.alloc(bytes).expect("a buffer");
    buf.fill(block as u8);
    queue.submit(sqe(0x01, block), Some(Payload::whole(buf)), block.into()).expect("submit");
    queue.ring().expect("ring");
}

/// The next completion, and the errors that waiting for it has brought.
fn next(queue: &mut Queue) -> (Completion, Vec<Error>) {
    let mut errors = Vec::new();
    let started = std::time::Instant::now();
    loop {
        if let Some(completion) = queue.poll(1).next() {
            return (completion, errors);
        }
        assert!(started.elapsed() < PATIENCE, "nothing has completed; {errors:?}");
        if let Err(e) = queue.wait(PATIENCE) {
            errors.push(e);
        }
    }
}

fn options(depth: u16) -> QueueOptions {
    QueueOptions { depth, ..QueueOptions::default() }
}

fn queue(controller: &Controller) -> Queue {
    controller.create_queue(&options(16)).expect("a queue")
}

/// The bytes of a buffer when all are the same.
fn all(completion: &Completion) -> Option<u8> {
    let bytes = completion.buf.as_ref()?.to_vec();
    bytes.iter().all(|byte| *byte == bytes[0]).then_some(bytes[0])
}
