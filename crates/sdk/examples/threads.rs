//! One device, driven by 64 threads: `threads [DEVICE]` writes, flushes and reads back through one worker.

use unvme::worker::{Data, Refused, WorkerOptions};
use unvme::{Nsid, Op, OpenOptions, open};

const THREADS: u64 = 64;
const BLOCKS_PER_THREAD: u64 = 1000;

fn drive(device: &str) -> Result<(), unvme::Error> {
    let block = open(device, &OpenOptions::default())?.block(Nsid(1))?;
    let worker = block.worker(&WorkerOptions::default())?;
    let bytes = block.block_bytes() as usize;
    let work = |thread: u64| -> Result<(), Refused> {
        let blocks = thread * BLOCKS_PER_THREAD..(thread + 1) * BLOCKS_PER_THREAD;
        let mut data = vec![0; bytes];
        for lba in blocks.clone() {
            worker.call(Op::write(lba, 1), Data::Out(&vec![lba as u8; bytes]))?;
        }
        worker.call(Op::Flush, Data::None)?;
        for lba in blocks {
            let done = worker.call(Op::read(lba, 1), Data::In(&mut data))?;
            assert!(done.status.is_success() && data == vec![lba as u8; bytes], "block {lba}");
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread has panicked"))
    })?;
    Ok(())
}

fn main() -> Result<(), unvme::Error> {
    drive(&std::env::args().nth(1).unwrap_or_else(|| "mem:block:64M".to_owned()))
}

#[test]
fn sixty_four_threads_read_what_they_have_written() {
    drive("mem:block:64M").expect("a device in memory works");
}
