//! Configuration space, registers, and the life of a controller from enable to shutdown.

// The seed is printed.
#![allow(clippy::print_stdout)]

mod host;

use host::{BASE, Host, attached, config, device, sqe};
use unvme_bus::{BusError, Function};
use unvme_spec::{Sqe, Status};
use unvme_ssd::SsdConfig;

const CC: u64 = 0x14;
const CSTS: u64 = 0x1c;
const NSSR: u64 = 0x20;
/// 16-byte and 64-byte entries, enabled.
const ENABLED: u32 = 0x0046_0001;

fn config_bytes<const N: usize>(host: &Host, offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    host.ssd.config_read(offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn registers_of_a_device_that_was_just_plugged_in() {
    let host = attached(config(512));
    // CAP: 4096 entries, contiguous, weighted round robin, 10 s, subsystem reset, command sets NVM and by
    // profile, pages 4 KiB to 64 KiB, CRMS.
    assert_eq!(host.read64(0x00), 0x0840_0830_1403_0fff);
    assert_eq!(host.read32(0x08), 0x0002_0000, "VS");
    for offset in [0x0c, 0x10, 0x14, 0x1c, 0x20, 0x24, 0x28, 0x2c, 0x30, 0x34, 0x38, 0x3c] {
        assert_eq!(host.read32(offset), 0, "register {offset:#x}");
    }
    assert_eq!(host.read32(0x68), 20, "CRTO");
    let host = attached(SsdConfig { queue_entries: 256, ..config(512) });
    assert_eq!(host.read64(0x00) & 0xffff, 255, "CAP.MQES");
}

#[test]
fn a_controller_is_enabled_used_and_disabled() {
    let mut host = attached(config(512));
    host.enable();
    assert_eq!(host.read32(CC), ENABLED);
    assert_eq!(host.admin(sqe(0x18, 0)), Err(Status::INVALID_OPCODE));
    host.disable();
    assert_eq!((host.read32(CC), host.read32(CSTS)), (0x0046_0000, 0));
    // The admin queue's registers are kept, and cannot be changed while the controller is enabled.
    assert_eq!(
        (host.read32(0x24), host.read64(0x28), host.read64(0x30)),
        (0x001f_001f, BASE, BASE + 0x1_0000)
    );
    host.enable();
    host.write32(0x24, 0x00ff_00ff);
    host.write64(0x28, 0x4000);
    host.write64(0x30, 0x8000);
    assert_eq!(
        (host.read32(0x24), host.read64(0x28), host.read64(0x30)),
        (0x001f_001f, BASE, BASE + 0x1_0000)
    );
    assert_eq!(host.admin(sqe(0x18, 0)), Err(Status::INVALID_OPCODE));
}

#[test]
fn a_configuration_that_makes_no_controller_is_a_fatal_status_until_it_is_disabled() {
    let (aqa, asq, acq) = (0x001f_001f, BASE, BASE + 0x1_0000);
    for (cc, aqa, asq, acq, what) in [
        (ENABLED | 5 << 7, aqa, asq, acq, "128 KiB pages"),
        (ENABLED | 2 << 11, aqa, asq, acq, "an arbitration mechanism that is reserved"),
        (ENABLED | 7 << 11, aqa, asq, acq, "vendor specific arbitration"),
        (ENABLED | 1 << 4, aqa, asq, acq, "command set 1"),
        (0x0045_0001, aqa, asq, acq, "32-byte submission entries"),
        (0x0056_0001, aqa, asq, acq, "32-byte completion entries"),
        (ENABLED, 0x001f_0000, asq, acq, "an admin submission queue of one entry"),
        (ENABLED, 0x0000_001f, asq, acq, "an admin completion queue of one entry"),
        (ENABLED, aqa, asq + 64, acq, "a submission queue that is not page aligned"),
        (ENABLED, aqa, asq, acq + 16, "a completion queue that is not page aligned"),
        (ENABLED | 1 << 7, aqa, asq + 4096, acq, "one that is aligned to 4 KiB with 8 KiB pages"),
        (ENABLED, aqa, 0, acq, "a submission queue that is not mapped"),
        (ENABLED, aqa, asq, !0xfff, "a completion queue at the end of the address space"),
    ] {
        let mut host = attached(config(512));
        host.write32(0x24, aqa);
        host.write64(0x28, asq);
        host.write64(0x30, acq);
        host.write32(CC, cc);
        assert_eq!(host.read32(CSTS), 0b10, "{what}: CSTS.CFS and not CSTS.RDY");
        assert_eq!(host.advance(), 0, "{what}");
        host.write32(CC, 0);
        assert_eq!(host.read32(CSTS), 0, "{what}: a reset clears it");
        host.enable();
        assert_eq!(host.admin(sqe(0x18, 0)), Err(Status::INVALID_OPCODE), "{what}");
    }
}

#[test]
fn larger_memory_pages_are_the_ones_queues_are_aligned_to() {
    let mut host = attached(config(512));
    host.set_admin_queue();
    host.write32(CC, ENABLED | 1 << 7);
    assert_eq!(host.read32(CSTS), 1);
    let create = |prp1| Sqe { cdw10: 7 << 16 | 1, cdw11: 1, dptr: [prp1, 0], ..sqe(0x05, 0) };
    assert_eq!(host.admin(create(BASE + (8 << 20) + 4096)), Err(Status::PRP_OFFSET_INVALID));
    assert_eq!(host.admin(create(BASE + (8 << 20) + 8192)), Ok(0));
}

#[test]
fn a_reset_ends_queues_and_a_host_can_start_again() {
    let mut host = Host::with_queues(512);
    host.push(1, sqe(0x00, 1));
    host.ring(1);
    host.disable();
    assert_eq!(host.advance(), 0, "nothing is served while disabled");
    host.enable();
    assert_eq!(host.admin(Sqe { cdw10: 1, ..sqe(0x00, 0) }), Err(Status::INVALID_QUEUE_IDENTIFIER));
    host.create_queue_pair(1, 8);
    let cqe = host.execute(1, sqe(0x00, 1));
    assert_eq!((cqe.sq_head, cqe.status_phase), (1, 1));
}

#[test]
fn shutdown_is_complete_when_it_is_notified_and_normal_again_after_the_next_enable() {
    for (notification, enabled) in [(1 << 14, true), (2 << 14, true), (1 << 14, false), (2 << 14, false)] {
        let mut host = Host::started(512);
        let ready = u32::from(enabled);
        if !enabled {
            host.disable();
        }
        host.write32(CC, 0x0046_0000 | ready | notification);
        assert_eq!(host.read32(CSTS), 0b1000 | ready, "CSTS.SHST complete, CSTS.RDY as before");
        host.write32(CC, 0x0046_0000);
        assert_eq!(host.read32(CSTS), 0);
        host.enable();
        assert_eq!(host.read32(CSTS), 1);
        assert_eq!(host.admin(sqe(0x18, 0)), Err(Status::INVALID_OPCODE));
    }
}

#[test]
fn a_controller_that_is_enabled_right_after_a_shutdown_is_at_work_again() {
    let host = attached(config(512));
    host.write32(CC, 0x0046_4000);
    assert_eq!(host.read32(CSTS), 0b1000, "CSTS.SHST complete");
    host.write64(0x28, BASE);
    host.write64(0x30, BASE + 0x10000);
    host.write32(0x24, 0x001f_001f);
    host.write32(CC, ENABLED);
    assert_eq!(host.read32(CSTS), 1, "ready, no shutdown");
}

#[test]
fn a_subsystem_reset_starts_with_the_magic_and_is_remembered_until_cleared() {
    let mut host = Host::with_queues(512);
    host.write32(NSSR, 0x1234_5678);
    host.write32(NSSR, 0x4e56_4d64);
    assert_eq!(host.read32(CSTS), 1, "any other value does nothing");
    assert_eq!(host.io(sqe(0x00, 1)), Ok(0));
    host.write32(NSSR, 0x4e56_4d65);
    assert_eq!(host.read32(CSTS), 1 << 4, "CSTS.NSSRO, not ready");
    assert_eq!((host.read32(CC), host.read32(0x24), host.read64(0x28), host.read64(0x30)), (0, 0, 0, 0));
    host.enable();
    assert_eq!(host.read32(CSTS), 1 << 4 | 1);
    host.write32(CSTS, 1 << 4);
    assert_eq!(host.read32(CSTS), 1);
    host.write32(CSTS, 0xffff_ffff);
    assert_eq!(host.read32(CSTS), 1, "everything else is read-only");
}

#[test]
fn interrupt_masks_are_set_and_cleared_bit_by_bit() {
    let host = attached(config(512));
    host.write32(0x0c, 0x00ff_00f0);
    host.write32(0x0c, 0x0000_000f);
    assert_eq!((host.read32(0x0c), host.read32(0x10)), (0x00ff_00ff, 0x00ff_00ff));
    host.write32(0x10, 0x000f_000f);
    assert_eq!((host.read32(0x0c), host.read32(0x10)), (0x00f0_00f0, 0x00f0_00f0));
    host.ssd.reset().unwrap();
    assert_eq!((host.read32(0x0c), host.read32(0x10)), (0, 0), "a reset masks nothing");
    let mut host = Host::started(512);
    host.write32(0x0c, 5);
    host.disable();
    assert_eq!(host.read32(0x0c), 0, "nor does clearing CC.EN");
}

#[test]
fn doorbells_work_through_the_register_interface_too() {
    let mut host = Host::with_queues(512);
    host.push(1, sqe(0x00, 1));
    host.write32(0x1000 + 8, 1);
    assert_eq!(host.advance(), 1);
    let cqe = host.peek(1).expect("a completion");
    assert!(cqe.status().is_success());
    host.write32(0x1000 + 12, 1);
    assert_eq!(host.read32(0x1000 + 8), 0, "reading a doorbell says nothing");
}

#[test]
fn configuration_space_is_that_of_an_nvme_controller() {
    let host = attached(config(512));
    assert_eq!(config_bytes(&host, 0), [0x36, 0x1b, 0x10, 0x00], "vendor and device");
    assert_eq!(config_bytes(&host, 9), [0x02, 0x08, 0x01], "class code 01 08 02");
    assert_eq!(config_bytes(&host, 0x0e), [0x00], "header type");
    let mut capabilities = Vec::new();
    let [mut at] = config_bytes(&host, 0x34);
    while at != 0 {
        let [id, next] = config_bytes(&host, usize::from(at));
        capabilities.push(id);
        at = next;
    }
    assert_eq!(capabilities, [0x01, 0x11, 0x10], "power management, MSI-X, PCI Express");
    let [.., size, _, table, _, _, _, pending, _, _, _] = config_bytes::<12>(&host, 0x50);
    assert_eq!((size, table, pending), (64, 0x00, 0x00), "65 vectors, table and pending bits in BAR 0");
    assert_eq!(host.ssd.vectors(), 65);
}

#[test]
fn bar_0_is_sized_by_writing_ones_and_read_only_bits_stay() {
    let host = attached(config(512));
    host.ssd.config_write(0x10, &[0xff; 8]).unwrap();
    assert_eq!(config_bytes(&host, 0x10), [0x04, 0xc0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], "16 KiB, 64-bit");
    host.ssd.config_write(0x10, &0xfee0_1234_5678_9abcu64.to_le_bytes()).unwrap();
    assert_eq!(u64::from_le_bytes(config_bytes(&host, 0x10)), 0xfee0_1234_5678_8004);
    host.ssd.config_write(0x14 + 4, &[0xff; 24]).unwrap();
    assert_eq!(config_bytes(&host, 0x18), [0; 20], "there is no other BAR");
    host.ssd.config_write(0, &[0xff; 16]).unwrap();
    assert_eq!(config_bytes(&host, 0), [0x36, 0x1b, 0x10, 0x00, 0x06, 0x04, 0x10, 0x00]);
    assert!(matches!(host.ssd.bar(0), Ok(Some(layout)) if layout.bytes == 0x4000));
    for index in [1, 2, 5, 6, usize::MAX] {
        assert!(matches!(host.ssd.bar(index), Ok(None)), "BAR {index}");
    }
}

#[test]
fn a_function_level_reset_is_a_reset_of_everything() {
    let mut host = Host::with_queues(512);
    host.ssd.config_write(0x04, &[0x06]).unwrap();
    host.ssd.config_write(0x60 + 8, &[0x00, 0x80]).unwrap();
    assert_eq!((host.read32(CC), host.read32(CSTS), host.read32(0x24)), (0, 0, 0));
    assert_eq!(config_bytes(&host, 0x04), [0x00, 0x00], "command register");
    assert_eq!(config_bytes(&host, 0x68), [0x00, 0x00], "the bit that starts it reads as zero");
    host.enable();
    host.create_queue_pair(1, 8);
    assert_eq!(host.io(sqe(0x00, 1)), Ok(0));
}

#[test]
fn the_msix_table_keeps_what_is_written_and_starts_masked() {
    let host = attached(config(512));
    let entry = |vector: u64| 0x2000 + vector * 16;
    assert_eq!([0, 4, 8, 12].map(|at| host.read32(entry(64) + at)), [0, 0, 0, 1]);
    for (at, value) in [(0, 0xfee0_0000), (4, 1), (8, 0x41), (12, 0)] {
        host.write32(entry(64) + at, value);
    }
    assert_eq!([0, 4, 8, 12].map(|at| host.read32(entry(64) + at)), [0xfee0_0000, 1, 0x41, 0]);
    host.write32(entry(65), 0xffff_ffff);
    assert_eq!(host.read32(entry(65)), 0, "there are 65 vectors");
    assert_eq!(host.read32(0x3000), 0, "pending bits");
}

#[test]
fn accesses_of_any_size_and_offset_are_answered_or_refused_and_never_panic() {
    let host = Host::with_queues(512);
    let mut buffer = vec![0; 0x5000];
    for offset in (0..0x4010).step_by(3).chain([u64::MAX, u64::MAX - 3, 1 << 63]) {
        for length in [0usize, 1, 2, 3, 4, 5, 7, 8, 12, 64, 4095, 0x4000, 0x5000] {
            let fits = offset.checked_add(length as u64).is_some_and(|end| end <= 0x4000);
            let read = host.ssd.bar_read(0, offset, &mut buffer[..length]);
            assert_eq!(read.is_ok(), fits, "read of {length} at {offset:#x}");
            assert!(fits || matches!(read, Err(BusError::OutOfRange { .. })));
        }
    }
    for (index, offset, length) in [(1, 0, 4), (0, 0x4000, 4), (0, u64::MAX - 1, 4), (6, 0, 0x5000)] {
        assert!(host.ssd.bar_write(index, offset, &buffer[..length]).is_err());
    }
    for (offset, length) in [(4096, 1), (0, 4097), (usize::MAX, 2), (4093, 4)] {
        assert!(host.ssd.config_read(offset, &mut buffer[..length]).is_err());
        assert!(host.ssd.config_write(offset, &buffer[..length]).is_err());
    }
}

#[test]
fn random_register_writes_leave_a_device_that_can_be_reset_and_used() {
    let seed = 0x5eed_0001u64;
    println!("seed {seed:#x}");
    let mut state = seed;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut host = Host::attach(device(config(512)));
    for _ in 0..20_000 {
        let choice = random();
        let length = [1, 2, 4, 8, 3, 16][random() as usize % 6];
        let data: Vec<u8> = (0..length).map(|_| random() as u8).collect();
        match choice % 4 {
            0 => drop(host.ssd.config_write(random() as usize % 4200, &data)),
            1 => drop(host.ssd.bar_write(0, random() % 0x40, &data)),
            2 => drop(host.ssd.bar_write(0, random() % 0x4100, &data)),
            _ => _ = host.advance(),
        }
    }
    host.ssd.reset().unwrap();
    host.enable();
    host.create_queue_pair(1, 8);
    assert_eq!(host.io(sqe(0x00, 1)), Ok(0));
}
