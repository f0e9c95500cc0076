//! The commands that nvme-cli sent to QEMU's FDP, and what QEMU said: our device says the same where it
//! should.

mod host;

use host::placement::{host_at, log, null_device};
use host::{DATA, Host};
use unvme_flash::ftl::Isolation;
use unvme_spec::Sqe;
use unvme_ssd::{FlashConfig, FlashGeometry, SsdConfig};

/// QEMU's device: 1 GiB, blocks of 512 bytes, eight initially isolated handles, units of 16 MiB, a list of
/// all handles.
fn as_qemu() -> Host {
    let geometry = FlashGeometry { unit_bytes: 16 << 20, groups: 1, handles: vec![Isolation::Initially; 8] };
    let flash = FlashConfig { geometry, overprovisioning: 0.28, ..FlashConfig::default() };
    host_at(null_device(SsdConfig { flash: Some(flash), fdp: Some(0), ..SsdConfig::block(1 << 30, 512) }))
}

fn vector(name: &str) -> Vec<u8> {
    let path = format!("{}/../../tests/vectors/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The entry of that name in `fdp.hex`; its data pointer is the driver's, and ours is put in its place.
fn entry(host: &Host, name: &str, bytes: usize) -> Sqe {
    let text = String::from_utf8(vector("fdp.hex")).unwrap();
    let line = text.lines().find(|line| line.split(' ').next() == Some(name)).expect(name);
    let digits = line.split(' ').nth(2).expect("an entry");
    let entry: Vec<u8> =
        (0..64).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect();
    let mut sqe: Sqe = zerocopy::FromBytes::read_from_bytes(&entry[..]).unwrap();
    sqe.flags = 0;
    host.set_prps(&mut sqe, DATA, bytes);
    sqe
}

fn replay(host: &mut Host) {
    for name in ["fdp-write-handle-0", "fdp-write-handle-3", "fdp-write-handle-7"] {
        let write = entry(host, name, 4096);
        assert_eq!(host.io(write), Ok(0), "{name}");
    }
    let update = entry(host, "fdp-ruh-update", 2);
    host.memory.write(DATA, &3u16.to_le_bytes());
    assert_eq!(host.io(update), Ok(0));
}

#[test]
fn the_status_of_handles_is_byte_for_byte_that_of_qemu() {
    let mut host = as_qemu();
    replay(&mut host);
    let status = host::placement::receive(&mut host, 1, 1, 512).unwrap();
    assert_eq!(status, vector("ruh-status-fdp.bin"));
    let header = entry(&host, "fdp-ruh-status", 16);
    host.memory.fill(DATA, 32, 0xee);
    assert_eq!(host.io(header), Ok(0));
    assert_eq!(host.bytes(DATA, 16), status[..16]);
    assert_eq!(host.bytes(DATA + 16, 16), [0xee; 16]);
}

#[test]
fn usage_and_events_are_byte_for_byte_those_of_qemu() {
    let mut host = as_qemu();
    let qemu = vector("log-21-fdp.bin");
    let ours = log(&mut host, 0x21, 0, 8 + 8 * 8).unwrap();
    assert_eq!((&ours[..], qemu[72..].iter().any(|&byte| byte != 0)), (&qemu[..72], false));
    let usage = entry(&host, "fdp-usage", 8);
    assert_eq!(host.admin(usage), Ok(0));
    assert_eq!(host.bytes(DATA, 8), qemu[..8]);
    let qemu = vector("log-23-fdp.bin");
    assert_eq!(log(&mut host, 0x23, 1, qemu.len()).unwrap(), qemu);
}

#[test]
fn the_first_configuration_is_qemus_but_for_what_differs() {
    let mut host = as_qemu();
    let mut qemu = vector("log-20-fdp.bin")[16..16 + 96].to_vec();
    // FDPVWC: there is a write cache. MAXPIDS: eight, zero-based. NNSS: 128 namespaces.
    qemu[2] |= 1 << 4;
    qemu[10..12].copy_from_slice(&7u16.to_le_bytes());
    qemu[12..16].copy_from_slice(&128u32.to_le_bytes());
    let page = log(&mut host, 0x20, 0, 16 + 96).unwrap();
    assert_eq!(page[16..], qemu);
}

#[test]
fn statistics_count_what_is_written_and_not_what_is_left_of_a_unit_that_is_closed() {
    let mut host = as_qemu();
    replay(&mut host);
    let qemu = vector("log-22-fdp.bin");
    let stats = entry(&host, "fdp-stats", 64);
    assert_eq!(host.admin(stats), Ok(0));
    let ours = host.bytes(DATA, 64);
    assert_eq!(ours[..16], qemu[..16], "HBMW: 12288");
    assert_eq!(ours[16..32], qemu[..16], "MBMW: the same; QEMU adds what was left of the unit");
    assert_eq!(ours[32..], [0; 32]);
}
