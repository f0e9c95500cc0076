//! Queues that threads share: waiting, polling, awaiting, and the end of it all.

mod awaited;
mod lost;
#[path = "../mortal/mod.rs"]
mod mortal;
mod shared;

use unvme::worker::{Queues, Worker, WorkerOptions};
use unvme::{Nsid, OpenOptions, QueueOptions, open};

/// A worker on a device of 64 MiB with blocks of 512 bytes.
fn blocks(queues: Queues, depth: u16, threads: usize) -> Worker {
    let device = open("mem:block:64M", &OpenOptions::default()).unwrap();
    device.block(Nsid(1)).unwrap().worker(&options(queues, depth, threads)).unwrap()
}

fn options(queues: Queues, depth: u16, threads: usize) -> WorkerOptions {
    WorkerOptions { queue: QueueOptions { depth, ..QueueOptions::default() }, queues, threads }
}
