//! Power that a rule cuts at a program: what was flushed is there when the device is opened again, and the
//! rule knows that it has acted.

mod host;

use std::sync::Arc;

use host::blocks::{FLUSH, READ, SOURCE, WRITE, transfer};
use host::{DATA, Host, device_on, sqe};
use unvme_bus::Function;
use unvme_spec::Sqe;
use unvme_ssd::{
    CHUNK_BYTES, FaultAction, FaultMatch, FaultRule, FlashConfig, FlashGeometry, NamespaceConfig, SsdConfig,
    SsdError, Store,
};

#[allow(dead_code)] // Power goes by rules here, not by the disk.
#[path = "host/disk.rs"]
mod disk;

use disk::{Disk, DiskStore};

const BYTES: u64 = 2 << 20;
const PAGE: usize = 4096;
const PAGES: u32 = (BYTES / PAGE as u64) as u32;
/// Pages of a command.
const COMMAND: u32 = 8;

fn config(block_bytes: u32, flash: Option<FlashConfig>) -> SsdConfig {
    let namespaces = vec![NamespaceConfig::blocks(block_bytes)];
    SsdConfig { namespaces, flash, ..SsdConfig::block(BYTES, block_bytes) }
}

fn with_flash() -> SsdConfig {
    let geometry = FlashGeometry { unit_bytes: 64 << 10, ..FlashGeometry::default() };
    let flash = FlashConfig { geometry, overprovisioning: 0.3, ..FlashConfig::default() };
    config(PAGE as u32, Some(flash))
}

fn open(config: SsdConfig, disk: &Arc<Disk>) -> Host {
    let mut host = Host::attach(device_on(config, Box::new(DiskStore(Arc::clone(disk)))));
    host.enable();
    host.create_queue_pair(1, 64);
    host
}

fn cut_at(program: u64) -> FaultRule {
    let matching = FaultMatch { program: Some(program), seed: program, ..FaultMatch::default() };
    FaultRule { id: None, matching, action: FaultAction { power_cut: true, ..FaultAction::default() } }
}

/// True when a command succeeded; false when nothing answers it any more.
fn succeeds(host: &mut Host, sqe: Sqe) -> bool {
    host.push(1, sqe);
    host.ring(1);
    host.advance();
    let Some(cqe) = host.poll(1) else { return false };
    assert_eq!(host::outcome(cqe), Ok(0));
    true
}

/// A page that says which one it is and which write it is from.
fn page(lpn: u32, version: u32) -> Vec<u8> {
    [lpn.to_le_bytes(), version.to_le_bytes()].concat().repeat(PAGE / 8)
}

fn write(host: &mut Host, lpn: u32, pages: u32, version: u32) -> bool {
    let data: Vec<u8> = (lpn..lpn + pages).flat_map(|lpn| page(lpn, version)).collect();
    host.memory.write(SOURCE, &data);
    let write = transfer(host, WRITE, lpn.into(), pages, SOURCE, data.len());
    succeeds(host, write)
}

/// Writes until the power goes, and flushes now and then. What each page may hold after that.
fn write_until_the_cut(host: &mut Host) -> Vec<Vec<u32>> {
    let mut may_hold = vec![vec![1]; PAGES as usize];
    for version in 2..1000 {
        if version % 4 == 0 {
            if !succeeds(host, sqe(FLUSH, 1)) {
                return may_hold;
            }
            for page in &mut may_hold {
                page.drain(..page.len() - 1);
            }
            continue;
        }
        let lpn = version * 37 % (PAGES - COMMAND);
        for page in &mut may_hold[lpn as usize..(lpn + COMMAND) as usize] {
            page.push(version);
        }
        if !write(host, lpn, COMMAND, version) {
            return may_hold;
        }
    }
    panic!("the power was not cut");
}

#[test]
fn what_was_flushed_is_on_flash_after_a_cut_at_any_program() {
    let disk = Disk::new(&vec![0; with_flash().store_bytes().unwrap() as usize], || {});
    let mut host = open(with_flash(), &disk);
    for lpn in (0..PAGES).step_by(COMMAND as usize) {
        assert!(write(&mut host, lpn, COMMAND, 1));
    }
    drop(host);
    let (image, state) = (disk.image(), disk.state.lock().unwrap().clone());
    let mut lost = 0;
    for program in 1..=120 {
        let disk = Disk::new(&image, || {});
        disk.state.lock().unwrap().clone_from(&state);
        let mut host = open(with_flash(), &disk);
        host.ssd.add_fault(cut_at(program)).unwrap();
        let may_hold = write_until_the_cut(&mut host);
        assert_eq!(host.read32(0x1c), u32::MAX, "CSTS of a device without power");
        assert!(host.ssd.is_gone(), "its driver need not wait for that");
        drop(host);

        let mut host = open(with_flash(), &disk);
        let faults = host.ssd.faults();
        assert_eq!((faults[0].matched, faults[0].hits), (program, 1), "the rule has acted");
        for (lpn, may_hold) in may_hold.iter().enumerate() {
            let read = transfer(&host, READ, lpn as u64, 1, DATA, PAGE);
            assert!(succeeds(&mut host, read));
            let found = host.bytes(DATA, PAGE);
            let version = u32::from_le_bytes(found[4..8].try_into().unwrap());
            assert!(may_hold.contains(&version), "program {program}, page {lpn}: {version} of {may_hold:?}");
            assert_eq!(found, page(lpn as u32, version), "program {program}, page {lpn} is torn");
            lost += usize::from(may_hold.last() != Some(&version));
        }
        assert_eq!(host.ssd.check_flash(), [], "program {program}");
        // It acts once: the device goes on.
        assert!(write(&mut host, 0, COMMAND, 2000) && succeeds(&mut host, sqe(FLUSH, 1)));
    }
    assert!(lost > 120, "a cut loses what was not flushed: {lost} pages");
}

#[test]
fn without_flash_all_before_the_cut_is_there_and_nothing_after_it() {
    // Of a command over four pages from the middle of the first, which is five: at which program, and how
    // many blocks are new.
    for (program, new) in [(1, 0), (2, 4), (3, 12), (4, 20), (5, 28)] {
        let disk = Disk::new(&vec![0x11; BYTES as usize], || {});
        let mut host = open(config(512, None), &disk);
        host.memory.fill(SOURCE, 2 * 16384, 0x22);
        let write = |host: &Host, lba: u64| transfer(host, WRITE, lba, 32, SOURCE, 16384);
        let before = write(&host, 64);
        assert!(succeeds(&mut host, before));
        host.ssd.add_fault(cut_at(program)).unwrap();
        let at = write(&host, 4);
        assert!(!succeeds(&mut host, at), "the command is not answered");
        let after = write(&host, 128);
        assert!(!succeeds(&mut host, after));
        drop(host);

        let mut host = open(config(512, None), &disk);
        assert_eq!((host.ssd.faults()[0].matched, host.ssd.faults()[0].hits), (program, 1));
        let read = transfer(&host, READ, 0, 256, DATA, 256 * 512);
        assert!(succeeds(&mut host, read));
        let data = host.bytes(DATA, 256 * 512);
        let is_new: Vec<u64> =
            (0..256).filter(|lba| data[*lba as usize * 512..][..512] == [0x22; 512]).collect();
        let expected: Vec<u64> = (4..4 + new).chain(64..96).collect();
        assert_eq!(is_new, expected, "program {program}");
        let again = write(&host, 4);
        assert!(succeeds(&mut host, again), "it acts once");
    }
}
