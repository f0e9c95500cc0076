//! The polled path allocates nothing.

mod counting;

use unvme_driver::{Controller, ControllerOptions, Namespace, Payload, QueueOptions};
use unvme_spec::nvm::{AccessFlags, BlockRange};
use unvme_spec::{Lba, Nsid, Status};
use unvme_ssd::{MemoryStore, Ssd, SsdConfig};

#[test]
fn a_hundred_thousand_commands_allocate_nothing() {
    const COMMANDS: u64 = 100_000;
    const DEPTH: u16 = 32;
    let config = SsdConfig::block(8 << 20, 4096);
    let store = MemoryStore::new(config.bytes).unwrap();
    let ssd = Ssd::new(config, Box::new(store)).unwrap();
    let controller = Controller::open(ssd, ControllerOptions::default()).unwrap();
    let mut queue = controller.create_queue(&QueueOptions { depth: DEPTH, ..Default::default() }).unwrap();
    let namespace = Namespace::open(&controller, Nsid(1)).unwrap();
    // 4 KiB, two pages, and a list: every way to describe a buffer.
    let mut bufs: Vec<_> = (0..DEPTH).map(|i| controller.alloc(4096 << (i % 3)).unwrap()).collect();

    let mut run = |commands: u64| {
        let mut done = 0;
        let mut submitted = 0;
        while done < commands {
            while submitted < commands
                && let Some(buf) = bufs.pop()
            {
                let range = BlockRange::new(Lba(submitted % 1024), buf.len() as u32 / 4096);
                let flags = AccessFlags::default();
                let sqe = match submitted % 2 {
                    0 => namespace.read(range, flags).unwrap(),
                    _ => namespace.write(range, flags).unwrap(),
                };
                queue.submit(sqe, Some(Payload::whole(buf)), submitted).unwrap();
                submitted += 1;
            }
            queue.ring().unwrap();
            for completion in queue.poll(usize::MAX) {
                assert_eq!(completion.status, Status::SUCCESS);
                bufs.push(completion.buf.unwrap());
                done += 1;
            }
        }
    };
    // Once before counting: the device makes its own tables on first use.
    run(1_000);
    let before = counting::count();
    run(COMMANDS);
    let allocated = counting::count() - before;
    assert_eq!(allocated, 0, "allocations in {COMMANDS} commands");
    // The counter counts.
    drop(std::hint::black_box(Box::new(1u64)));
    assert!(counting::count() > before);
}
