//! A device behind a vfio-user server and a host in the manner of SPDK's initiator, over a real socket, each
//! on threads of its own.

mod host;
mod initiator;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use initiator::{BASE, DATA, IO_ENTRIES, Initiator, RANGE_BYTES};
use unvme_bus::vfio_user::Server;
use unvme_bus::{Clock, EventFd, Function};
use unvme_spec::{Sqe, Status};

const WRITE: u8 = 1;
const READ: u8 = 2;
/// Largest transfer SPDK's vfio-user initiator makes.
const TRANSFER: usize = 128 << 10;
const BLOCKS: u32 = (TRANSFER / 512) as u32;

/// A server and the thread that does the device's work.
struct Served {
    folder: tempfile::TempDir,
    stop: EventFd,
    stopped: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Served {
    fn start() -> Self {
        Self::with(host::config(512))
    }

    fn with(config: unvme_ssd::SsdConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ssd = host::device(config);
        let function: Arc<dyn Function> = ssd.clone();
        // A folder: the socket is `cntrl` in it.
        let server = Server::bind(folder.path(), function).unwrap();
        let (stop, stopped) = (EventFd::new().unwrap(), Arc::new(AtomicBool::new(false)));
        let (ended, messages_stop) = (Arc::clone(&stopped), stop.clone());
        let work = std::thread::spawn(move || {
            let clock = Clock::wall();
            while !ended.load(Ordering::Acquire) {
                if ssd.advance(None, &clock) == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let messages = std::thread::spawn(move || server.run(&messages_stop).unwrap());
        Self { folder, stop, stopped, threads: vec![work, messages] }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("cntrl")
    }

    /// A host with queue pair 1.
    fn connect(&self) -> Initiator {
        let mut host = Initiator::attach(&self.path());
        host.enable();
        host.create_pair();
        host
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.signal();
        self.stopped.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

fn admin(opcode: u8, nsid: u32, cdw10: u32, cdw11: u32) -> Sqe {
    Sqe { opcode, nsid, cdw10, cdw11, ..Sqe::default() }
}

fn access(opcode: u8, lba: u32, blocks: u32) -> Sqe {
    Sqe { opcode, nsid: 1, cdw10: lba, cdw12: blocks - 1, ..Sqe::default() }
}

/// A PRP list as SPDK's trackers have it: within a page, behind other fields.
fn with_prps(host: &Initiator, tracker: usize, sqe: Sqe, at: usize) -> Sqe {
    let list = 128 << 10 | tracker << 12 | 0xb0;
    let first = 4096 - at % 4096;
    let entries: Vec<u64> =
        (at + first..at + TRANSFER).step_by(4096).map(|page| BASE + page as u64).collect();
    let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
    host.store(list, &bytes);
    Sqe { dptr: [BASE + at as u64, BASE + list as u64], ..sqe }
}

/// One data block descriptor in the command, as SPDK describes any contiguous buffer.
fn with_block(sqe: Sqe, at: usize, bytes: usize) -> Sqe {
    Sqe { flags: 0x40, dptr: [BASE + at as u64, bytes as u64], ..sqe }
}

fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (seed * 37 + i + (i >> 9) * 11) as u8).collect()
}

#[test]
fn a_controller_is_brought_up_with_the_commands_spdk_sends() {
    let served = Served::start();
    let mut host = Initiator::attach(&served.path());
    // CRMS and CRTO, command sets NVM and by profile, doorbell stride 4, 4 KiB pages.
    assert_eq!(host.cap(), 0x0840_0830_1403_0fff);
    assert_eq!((host.register(0x08), host.register(0x14), host.register(0x68)), (0x0002_0000, 0, 20));
    host.enable();
    assert_eq!(host.register(0x14), 0x0046_0061);
    let controller = host.admin_in(admin(0x06, 0, 1, 0), 4096);
    assert_eq!((controller[77], controller[259]), (9, 3), "MDTS 2 MiB, AERL 4");
    // SPDK looks for Zoned Namespaces and goes on without.
    let zoned = Sqe { dptr: [BASE + DATA as u64, 0], ..admin(0x06, 0, 6, 2 << 24) };
    assert_eq!(host.admin(zoned), Err(Status::INVALID_IO_COMMAND_SET));
    assert_eq!(host.admin(admin(0x09, 0, 0x0b, 0x0000_031f)), Ok(0), "events");
    for _ in 0..4 {
        host.push(0, admin(0x0c, 0, 0, 0));
        host.ring(0);
    }
    assert_eq!(host.admin(admin(0x09, 0, 0x07, 0x03ff_03ff)), Ok(0x003f_003f), "queues");
    assert_eq!(host.admin_in(admin(0x06, 0, 2, 0), 8), [1, 0, 0, 0, 0, 0, 0, 0], "active namespaces");
    let namespace = host.admin_in(admin(0x06, 1, 0, 0), 4096);
    assert_eq!(namespace[..8], [0, 0, 2, 0, 0, 0, 0, 0], "64 MiB in blocks of 512 bytes");
    assert_eq!(host.admin_in(admin(0x06, 1, 3, 0), 4)[..2], [1, 8], "an EUI64 comes first");
    host.create_pair();
    host.detach();
}

#[test]
fn data_comes_back_at_depth_through_prp_lists_and_data_blocks_across_mappings() {
    let served = Served::start();
    let mut host = served.connect();
    let depth = 16;
    // The eighth buffer and those behind it are in the second range; one lies across both.
    let buffer = |n: usize| RANGE_BYTES - TRANSFER * 8 + 4096 + n * TRANSFER;
    for (round, sgl) in [false, true, false, true].into_iter().enumerate() {
        for opcode in [WRITE, READ] {
            for n in 0..depth {
                let command = access(opcode, n as u32 * BLOCKS, BLOCKS);
                let at = buffer(n);
                match opcode {
                    WRITE => host.store(at, &pattern(round * depth + n, TRANSFER)),
                    _ => host.store(at, &vec![0xee; TRANSFER]),
                }
                let command =
                    if sgl { with_block(command, at, TRANSFER) } else { with_prps(&host, n, command, at) };
                host.push(1, command);
            }
            host.ring(1);
            for _ in 0..depth {
                assert_eq!(host.wait(1).status(), Status::SUCCESS);
            }
        }
        for n in 0..depth {
            assert!(host.load(buffer(n), TRANSFER) == pattern(round * depth + n, TRANSFER), "buffer {n}");
        }
    }
    host.detach();
}

#[test]
fn a_queue_goes_round_many_times_at_full_depth() {
    let served = Served::start();
    let mut host = served.connect();
    let (mut submitted, mut completed, total) = (0, 0, 20 * IO_ENTRIES);
    while completed < total {
        while submitted < total && submitted - completed < IO_ENTRIES - 1 {
            host.push(1, with_block(access(READ, submitted % 1000, 8), DATA, 4096));
            submitted += 1;
        }
        host.ring(1);
        assert_eq!(host.wait(1).status(), Status::SUCCESS);
        completed += 1;
    }
    assert_eq!(host.poll(1), None);
    host.detach();
}

#[test]
fn a_reset_under_load_loses_nothing_but_what_was_outstanding() {
    let served = Served::start();
    let mut host = served.connect();
    let data = pattern(9, 4096);
    host.store(DATA, &data);
    assert_eq!(host.execute(1, with_block(access(WRITE, 0, 8), DATA, 4096)), Ok(0));
    for round in 0..20 {
        for n in 0..200 {
            host.push(1, with_block(access(READ, n * 8, 8), DATA + 4096, 4096));
        }
        host.push(0, admin(0x0c, 0, 0, 0));
        host.ring(0);
        host.ring(1);
        for _ in 0..round {
            host.wait(1);
        }
        host.disable();
        host.enable();
        assert_eq!((host.poll(0), host.poll(1)), (None, None), "round {round}");
        host.create_pair();
        host.store(DATA + 4096, &[0; 4096]);
        assert_eq!(
            host.execute(1, with_block(access(READ, 0, 8), DATA + 4096, 4096)),
            Ok(0),
            "round {round}"
        );
        assert!(host.load(DATA + 4096, 4096) == data, "round {round}");
    }
    host.detach();
}

#[test]
fn aborts_and_events_work_while_reads_are_under_way() {
    let served = Served::start();
    let mut host = served.connect();
    assert_eq!(host.admin(admin(0x09, 0, 0x0b, 0x0000_031f)), Ok(0));
    let request = host.push(0, admin(0x0c, 0, 0, 0));
    host.ring(0);
    for _ in 0..50 {
        let cid = host.push(1, with_block(access(READ, 0, BLOCKS), DATA, TRANSFER));
        host.ring(1);
        assert_eq!(host.admin(admin(0x08, 0, u32::from(cid) << 16 | 1, 0)), Ok(1), "not aborted");
        let cqe = host.wait(1);
        assert_eq!((cqe.cid, cqe.status()), (cid, Status::SUCCESS));
    }
    let set = host.push(0, admin(0x09, 0, 0x04, 200));
    host.ring(0);
    assert_eq!(host.wait(0).cid, set);
    let event = host.wait(0);
    assert_eq!((event.cid, event.dw0), (request, 0x0002_0101), "temperature");
    // A doorbell of no queue, and both of queue pair 1 beyond their ends, in the mapped window.
    for (index, value, expected) in
        [(4, 0, 0x0001_0000), (2, IO_ENTRIES + 1, 0x0001_0100), (3, IO_ENTRIES + 1, 0x0001_0100)]
    {
        let request = host.push(0, admin(0x0c, 0, 0, 0));
        host.ring(0);
        host.ring_at(index, value);
        let event = host.wait(0);
        assert_eq!((event.cid, event.dw0), (request, expected), "doorbell {index}");
        host.admin_in(admin(0x02, u32::MAX, 1023 << 16 | 1, 0), 4096);
    }
    host.detach();
}

#[test]
fn one_host_after_the_other_attaches_without_a_pause() {
    let served = Served::start();
    for round in 0..20 {
        let mut host = served.connect();
        assert_eq!(host.execute(1, with_block(access(READ, 0, 1), DATA, 512)), Ok(0), "round {round}");
        match round % 2 {
            0 => host.detach(),
            // It dies with reads outstanding.
            _ => {
                host.push(1, with_block(access(READ, 0, BLOCKS), DATA, TRANSFER));
                host.ring(1);
            }
        }
    }
}

#[test]
fn pairs_are_stored_and_retrieved_by_both_command_sets() {
    let served = Served::with(host::pairs::kv_config());
    let mut host = served.connect();
    assert_eq!(
        host.admin_in(admin(0x06, 0, 7, 1 << 24), 8),
        [1, 0, 0, 0, 0, 0, 0, 0],
        "namespaces with pairs"
    );
    let value = pattern(3, TRANSFER);
    host.store(DATA, &value);
    let store = Sqe { cdw10: TRANSFER as u32, ..host::pairs::standard(host::pairs::STORE, b"large") };
    assert_eq!(host.execute(1, with_prps(&host, 0, store, DATA)), Ok(0));
    host.store(DATA, &vec![0; TRANSFER]);
    // The vendor's Retrieve, by PRPs: key length less one, then the key in dwords 12 to 15.
    let retrieve = Sqe {
        opcode: host::pairs::VENDOR_RETRIEVE,
        nsid: 1,
        cdw10: (TRANSFER / 4) as u32,
        cdw11: 4,
        cdw12: u32::from_le_bytes(*b"larg"),
        cdw13: u32::from(b'e'),
        ..Sqe::default()
    };
    assert_eq!(host.execute(1, with_prps(&host, 1, retrieve, DATA)), Ok(TRANSFER as u64));
    assert!(host.load(DATA, TRANSFER) == value);
    let exist = host::pairs::standard(host::pairs::EXIST, b"none");
    assert_eq!(host.execute(1, exist), Err(Status::KEY_NOT_FOUND));
    host.detach();
}
