//! The polled path of key-value commands allocates nothing. The device does, once in a while, when it opens a
//! segment.

mod counting;

use unvme_driver::{
    Controller, ControllerOptions, DataPointers, KvKey, KvNamespace, QueueOptions, StoreOptions,
};
use unvme_spec::{Nsid, Status};
use unvme_ssd::{MemoryStore, Ssd, SsdConfig};

/// Keys of both kinds, in both keyspaces.
fn key(n: u64, bytes: &mut [u8; 40]) -> KvKey<'_> {
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    let length = if n.is_multiple_of(3) { 40 } else { 16 };
    KvKey { keyspace: u8::from(n.is_multiple_of(5)), bytes: &bytes[..length] }
}

#[test]
fn a_hundred_thousand_pairs_are_stored_and_retrieved_without_allocating() {
    const COMMANDS: u64 = 100_000;
    const DEPTH: u16 = 32;
    const KEYS: u64 = 500;
    let config = SsdConfig::kv(256 << 20);
    let store = MemoryStore::new(config.bytes).unwrap();
    let ssd = Ssd::new(config, Box::new(store)).unwrap();
    let controller = Controller::open(ssd, ControllerOptions::default()).unwrap();
    let namespace = KvNamespace::open(&controller, Nsid(1)).unwrap();
    for data_pointers in [DataPointers::Prp, DataPointers::Auto] {
        let options = QueueOptions { depth: DEPTH, long_keys: true, data_pointers, ..Default::default() };
        let mut queue = controller.create_queue(&options).unwrap();
        let mut bufs: Vec<_> = (0..DEPTH).map(|_| controller.alloc(16_384).unwrap()).collect();
        let mut run = |commands: u64| {
            let (mut done, mut submitted, mut allocated) = (0, 0, 0);
            while done < commands {
                let before = counting::count();
                while submitted < commands
                    && let Some(buf) = bufs.pop()
                {
                    let mut name = [7; 40];
                    let key = key(submitted % KEYS, &mut name);
                    // One page, two pages, and a list.
                    let bytes = [100, 5_000, 12_000][submitted as usize % 3];
                    let command = match submitted / KEYS % 3 {
                        0 => namespace.store(key, bytes, StoreOptions::default()),
                        1 => namespace.exist(key),
                        _ => namespace.retrieve(key, 0, 16_384),
                    };
                    queue.submit_kv(command.unwrap(), Some(buf), submitted).unwrap();
                    submitted += 1;
                }
                queue.ring().unwrap();
                allocated += counting::count() - before;
                // The device works in here.
                let completions = queue.poll(usize::MAX);
                let before = counting::count();
                for completion in completions {
                    assert_eq!(completion.status, Status::SUCCESS);
                    bufs.push(completion.buf.unwrap());
                    done += 1;
                }
                allocated += counting::count() - before;
            }
            allocated
        };
        assert_eq!(run(COMMANDS), 0, "allocations in {COMMANDS} commands, {data_pointers:?}");
    }
    // The counter counts.
    let before = counting::count();
    drop(std::hint::black_box(Box::new(1u64)));
    assert!(counting::count() > before);
}
