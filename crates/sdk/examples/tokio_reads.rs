//! Reads that are awaited: `tokio_reads [DEVICE]` has 1,000 tasks of a tokio runtime read at once, on one
//! queue of 64 commands.

use std::error::Error;
use std::sync::Arc;

use unvme::worker::{Data, Queues, Refused, WorkerOptions};
use unvme::{Nsid, Op, OpenOptions, QueueOptions, open};

const READS: u64 = 1000;

fn read_all(device: &str) -> Result<usize, Box<dyn Error>> {
    let block = open(device, &OpenOptions::default())?.block(Nsid(1))?;
    let options = WorkerOptions {
        queue: QueueOptions { depth: 64, ..QueueOptions::default() },
        queues: Queues::Count(1),
        // It sleeps until there is something to tell, and wakes the tasks.
        threads: 1,
    };
    let worker = Arc::new(block.worker(&options)?);
    let bytes = block.block_bytes() as usize;
    tokio::runtime::Builder::new_multi_thread().build()?.block_on(async {
        let read = |lba| {
            let worker = Arc::clone(&worker);
            tokio::spawn(async move {
                // The buffer goes along and comes back: nothing is copied.
                let buf = worker.alloc(bytes)?;
                Ok::<_, Refused>(worker.run(Op::read(lba, 1), Data::Lent(buf)).await?.bytes)
            })
        };
        let tasks: Vec<_> = (0..READS).map(read).collect();
        let mut sum = 0;
        for task in tasks {
            sum += task.await??;
        }
        Ok(sum)
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = std::env::args().nth(1).unwrap_or_else(|| "mem:block:64M".to_owned());
    read_all(&device).map(drop)
}

#[test]
fn a_thousand_reads_bring_a_thousand_blocks() {
    assert_eq!(read_all("mem:block:64M").expect("a device in memory works"), 512_000);
}
