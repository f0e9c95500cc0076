//! Slots that are unplugged while somebody uses them: what is under way ends in errors, what was acknowledged
//! stays, and the slot opens again at once, also while handles of what it was are still there.
#![cfg(feature = "local")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use unvme::registry::{BlockBytes, DeviceSpec, Plugged};
use unvme::{
    Block, BlockRange, Error, Lba, Nsid, OpenOptions, PciAddress, QueueOptions, Registry, Size, Status,
    StoreOptions, open,
};

const NAME: &str = "0000:01:00.0";
/// Within this time every process has noticed.
const NOTICE: Duration = Duration::from_secs(60);
const BLOCK: usize = 512;

struct Bench {
    registry: Registry,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new(spec: &DeviceSpec) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let registry = Registry::at(folder.path().join("home"));
        registry.create(Self::address(), spec).unwrap();
        Self { registry, _folder: folder }
    }

    fn blocks() -> Self {
        Self::new(&DeviceSpec::block(Size(16 << 20), BlockBytes::B512, "S1"))
    }

    fn address() -> PciAddress {
        NAME.parse().unwrap()
    }

    fn options(&self) -> OpenOptions {
        OpenOptions { registry: Some(self.registry.clone()), ..OpenOptions::default() }
    }

    fn open_block(&self) -> Block {
        open(NAME, &self.options()).unwrap().block(Nsid(1)).unwrap()
    }

    /// Unplugs within [`NOTICE`].
    #[track_caller]
    fn unplug(&self) {
        let started = Instant::now();
        assert_eq!(self.registry.unplug(Self::address()).unwrap(), Plugged::Changed);
        assert!(started.elapsed() < NOTICE, "{:?}", started.elapsed());
    }

    #[track_caller]
    fn plug(&self) {
        assert_eq!(self.registry.plug(Self::address()).unwrap(), Plugged::Changed);
    }
}

/// Writes 1, 2, 3, ... to blocks 0, 1, 2, ... around `blocks` until that fails; the last number that was
/// acknowledged.
fn write_on(block: &mut Block, first: u64, blocks: u64) -> (u64, Error) {
    let mut number = first;
    loop {
        let mut data = [0; BLOCK];
        data[..8].copy_from_slice(&number.to_le_bytes());
        match block.write_at(number % blocks, &data) {
            Ok(()) => number += 1,
            Err(e) => return (number - 1, e),
        }
    }
}

/// Everything up to `last` is there: each block has the latest number that was written to it, or the one that
/// was under way when the device went.
fn verify(block: &mut Block, last: u64, blocks: u64) {
    let mut data = vec![0; blocks as usize * BLOCK];
    block.read_at(0, &mut data).unwrap();
    for (at, bytes) in data.chunks(BLOCK).enumerate() {
        let found = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        // The latest number up to `last` that belongs here; 0 when there is none.
        let behind = (last % blocks + blocks - at as u64) % blocks;
        let expected = last.saturating_sub(behind);
        let on_its_way = last + 1;
        assert!(
            found == expected || (found == on_its_way && found % blocks == at as u64),
            "{at}: {found}, not {expected}"
        );
    }
}

#[test]
fn an_unplugged_slot_does_not_open_and_says_how_to_plug_it() {
    let bench = Bench::blocks();
    bench.unplug();
    let refused = open(NAME, &bench.options()).unwrap_err();
    assert!(matches!(&refused, Error::Unplugged { name } if name == NAME), "{refused}");
    assert_eq!(
        refused.to_string(),
        "0000:01:00.0 is unplugged; plug it with: unvme device plug 0000:01:00.0"
    );
    bench.plug();
    bench.open_block();
}

#[test]
fn writes_end_in_an_error_when_the_slot_is_unplugged_and_what_was_acknowledged_is_there_after_the_replug() {
    const BLOCKS: u64 = 64;
    let bench = Bench::blocks();
    let mut last = 0;
    for round in 0..50 {
        let mut block = bench.open_block();
        verify(&mut block, last, BLOCKS);
        let (acknowledged, error) = thread::scope(|scope| {
            let writer = scope.spawn(|| write_on(&mut block, last + 1, BLOCKS));
            // From before the first write to some time after it.
            thread::sleep(Duration::from_micros(round * 100));
            bench.unplug();
            let unplugged = Instant::now();
            let ended = writer.join().unwrap();
            assert!(unplugged.elapsed() < NOTICE, "{:?}", unplugged.elapsed());
            ended
        });
        assert!(error.to_string().starts_with(NAME), "{error}");
        assert!(matches!(error, Error::Driver { .. } | Error::Ended { .. }), "{error:?}");
        last = acknowledged;
        bench.plug();
        // The handle that has lost its device is still there, and stays as it is.
        let mut again = bench.open_block();
        verify(&mut again, last, BLOCKS);
        assert!(block.write_at(0, &[0xff; BLOCK]).is_err());
        drop(block);
        verify(&mut again, last, BLOCKS);
    }
    assert!(last > 0, "nothing was ever written");
}

#[test]
fn commands_in_flight_come_back_each_once_with_a_status() {
    let bench = Bench::blocks();
    let block = bench.open_block();
    let mut queue = block.queue(&QueueOptions { depth: 16, ..QueueOptions::default() }).unwrap();
    for token in 0..16 {
        let buf = queue.alloc(BLOCK).unwrap();
        queue.write(BlockRange::new(Lba(token), 1), buf, token).unwrap();
    }
    // Not rung: the device does not know of them when it goes.
    bench.unplug();
    let started = Instant::now();
    let mut back = Vec::new();
    while back.len() < 16 {
        assert!(started.elapsed() < NOTICE, "{back:?}");
        let _ = queue.wait(Duration::from_millis(10));
        back.extend(queue.poll(16).map(|completion| (completion.token, completion.status)));
    }
    back.sort_by_key(|(token, _)| *token);
    let expected: Vec<_> = (0..16).map(|token| (token, Status::ABORTED_BY_HOST)).collect();
    assert_eq!(back, expected);
    let buf = queue.alloc(BLOCK).unwrap();
    let refused = queue.write(BlockRange::new(Lba(0), 1), buf, 0).unwrap_err();
    assert!(refused.to_string().contains("the controller is gone"), "{refused}");
}

#[test]
fn pairs_that_were_acknowledged_survive_and_the_store_is_whole() {
    let bench = Bench::new(&DeviceSpec::kv(Size(32 << 20), "S1"));
    let mut stored = 0u32;
    for round in 0..10 {
        let device = open(NAME, &bench.options()).unwrap();
        let mut kv = device.kv(Nsid(1)).unwrap();
        for number in 0..stored {
            let value = kv.retrieve(&number.to_be_bytes()).unwrap();
            assert_eq!(value.as_deref(), Some(&vec![number as u8; 1000][..]), "pair {number}");
        }
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                loop {
                    let options = StoreOptions::default();
                    match kv.store(&stored.to_be_bytes(), &[stored as u8; 1000], options) {
                        Ok(_) => stored += 1,
                        Err(e) => return e,
                    }
                }
            });
            thread::sleep(Duration::from_millis(round));
            bench.unplug();
            let error = writer.join().unwrap();
            assert!(error.to_string().starts_with(NAME), "{error}");
        });
        bench.plug();
        let slot = bench.registry.find(Bench::address()).unwrap();
        let found = unvme::check(&slot, unvme::Losses::Keep).unwrap();
        assert!(found.namespaces.iter().all(|namespace| namespace.lost.is_empty()), "{found:?}");
    }
    assert!(stored > 0, "nothing was ever stored");
}

#[test]
fn flash_that_was_unplugged_under_writes_is_whole() {
    let mut spec = DeviceSpec::block(Size(16 << 20), BlockBytes::B4096, "S1");
    spec.ftl = Some(unvme::registry::FtlSpec {
        unit_bytes: 256 << 10,
        ..unvme::registry::FtlSpec::new(Size(16 << 20))
    });
    let bench = Bench::new(&spec);
    for round in 0..5 {
        let mut block = bench.open_block();
        let written = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut at = 0;
                while block.write_at(at % 4096, &[round; 4096]).is_ok() {
                    at += 7;
                    written.store(at, Ordering::Relaxed);
                }
            });
            let started = Instant::now();
            while written.load(Ordering::Relaxed) < 700 {
                assert!(started.elapsed() < NOTICE, "nothing is written");
                thread::yield_now();
            }
            bench.unplug();
        });
        bench.plug();
        let slot = bench.registry.find(Bench::address()).unwrap();
        let found = unvme::check(&slot, unvme::Losses::Keep).unwrap().flash.unwrap();
        assert!(found.lost.is_empty() && found.mapped_pages > 0, "{found:?}");
    }
}

#[test]
fn two_who_unplug_at_once_and_opening_meanwhile_end_well() {
    let bench = Bench::blocks();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let opener = scope.spawn(|| {
            let mut opened = 0;
            while !stop.load(Ordering::Relaxed) {
                match open(NAME, &bench.options()) {
                    Ok(device) => {
                        opened += 1;
                        if let Ok(mut block) = device.block(Nsid(1)) {
                            let _ = block.write_at(0, &[1; BLOCK]);
                        }
                    }
                    // It went before, or in the middle of being opened.
                    Err(Error::Unplugged { .. } | Error::Driver { .. } | Error::InUse { .. }) => {}
                    Err(e) => panic!("{e}"),
                }
            }
            opened
        });
        for _ in 0..30 {
            let both = [(); 2].map(|()| scope.spawn(|| bench.registry.unplug(Bench::address()).unwrap()));
            let done = both.map(|one| one.join().unwrap());
            assert!(done.contains(&Plugged::Changed), "{done:?}");
            bench.plug();
            thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        assert!(opener.join().unwrap() > 0);
    });
    bench.open_block().write_at(0, &[2; BLOCK]).unwrap();
}

#[test]
fn who_waits_on_a_device_that_goes_does_not_wait_for_a_time_out() {
    let bench = Bench::blocks();
    let block = bench.open_block();
    let mut queue = block.queue(&QueueOptions::default()).unwrap();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            loop {
                let Ok(buf) = queue.alloc(BLOCK) else { break };
                if queue.read(BlockRange::new(Lba(0), 1), buf, 0).is_err() {
                    break;
                }
                // Never rung: the device has no reason to answer.
                while queue.outstanding() > 0 {
                    let _ = queue.wait(NOTICE);
                    let _ = queue.poll(16).count();
                }
            }
            tell.send(()).unwrap();
        });
        thread::sleep(Duration::from_millis(20));
        bench.unplug();
        told.recv_timeout(NOTICE).expect("the loss is noticed");
    });
}
