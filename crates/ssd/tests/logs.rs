//! Get Log Page.

mod host;
mod kept;

use std::time::Duration;

use host::{BASE, DATA, Host, attached, config, sqe};
use kept::{Kept, Problem, State};
use unvme_spec::{Sqe, Status};
use unvme_ssd::SsdConfig;

fn log(lid: u32, dwords: u32) -> Sqe {
    Sqe { cdw10: ((dwords - 1) & 0xffff) << 16 | lid, cdw11: (dwords - 1) >> 16, ..sqe(0x02, 0) }
}

fn read(host: &mut Host, lid: u32, bytes: usize) -> Vec<u8> {
    host.admin_in(log(lid, bytes as u32 / 4), bytes).unwrap()
}

fn u32_at(page: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(page[offset..offset + 4].try_into().unwrap())
}

fn u128_at(page: &[u8], offset: usize) -> u128 {
    u128::from_le_bytes(page[offset..offset + 16].try_into().unwrap())
}

/// A read or write of `blocks` logical blocks at 0 of namespace 1, to and from the data area.
fn transfer(host: &mut Host, opcode: u8, blocks: u32, block_bytes: usize) -> Result<u64, Status> {
    let mut sqe = Sqe { cdw12: blocks - 1, ..sqe(opcode, 1) };
    host.set_prps(&mut sqe, DATA, blocks as usize * block_bytes);
    host.io(sqe)
}

const PAGES: [(u32, usize); 8] = [
    (0x00, 1024),
    (0x01, 4096),
    (0x02, 512),
    (0x03, 512),
    (0x04, 4096),
    (0x05, 4096),
    (0x12, 1024),
    (0x13, 4096),
];

/// Pages of a device that can have Key Value namespaces.
const KEY_VALUE_PAGES: [u32; 3] = [0xc0, 0xca, 0xd0];

#[test]
fn the_list_of_log_pages_is_the_log_pages_there_are() {
    let mut host = Host::started(512);
    let list = read(&mut host, 0x00, 1024);
    for lid in 0..=0xff {
        let supported = PAGES.iter().any(|(page, _)| *page == lid) || KEY_VALUE_PAGES.contains(&lid);
        assert_eq!(u32_at(&list, lid as usize * 4), u32::from(supported), "log page {lid:#x}");
        let answer = host.admin_in(log(lid, 1), 4).map(|_| ());
        assert_eq!(
            answer,
            if supported { Ok(()) } else { Err(Status::INVALID_LOG_PAGE) },
            "log page {lid:#x}"
        );
    }
}

#[test]
fn a_page_can_be_read_from_any_dword_and_no_further_than_its_end() {
    let mut host = Host::started(512);
    for (lid, bytes) in PAGES {
        let whole = read(&mut host, lid, bytes);
        let from = |offset: u64, dwords: u32| Sqe {
            cdw12: offset as u32,
            cdw13: (offset >> 32) as u32,
            ..log(lid, dwords)
        };
        let end = bytes as u64;
        assert_eq!(host.admin_in(from(4, 2), 8).unwrap(), whole[4..12], "log page {lid:#x}");
        assert_eq!(host.admin_in(from(end - 4, 1), 4).unwrap(), whole[bytes - 4..], "log page {lid:#x}");
        // What is asked for beyond the end is not written.
        let beyond = host.admin_in(from(end - 4, 3), 12).unwrap();
        assert_eq!((&beyond[..4], &beyond[4..]), (&whole[bytes - 4..], &[0xee; 8][..]), "log page {lid:#x}");
        assert_eq!(host.admin_in(from(end, 1), 4), Ok(vec![0xee; 4]), "log page {lid:#x}");
        for offset in [end + 4, 1 << 32, u64::MAX - 3, 1, 2, 3, end + 1] {
            assert_eq!(
                host.admin(from(offset, 1)),
                Err(Status::INVALID_FIELD),
                "log page {lid:#x} at {offset:#x}"
            );
        }
    }
}

#[test]
fn what_no_log_page_has_is_an_invalid_field() {
    let mut host = Host::started(512);
    for (lid, _) in PAGES {
        let index = Sqe { cdw14: 1 << 23, ..log(lid, 1) };
        assert_eq!(host.admin(index), Err(Status::INVALID_FIELD), "log page {lid:#x} by index");
        for nsid in [1, 2, 0xffff_fffe] {
            let one = Sqe { nsid, ..log(lid, 1) };
            assert_eq!(host.admin(one), Err(Status::INVALID_FIELD), "log page {lid:#x} of namespace {nsid}");
        }
        let all = Sqe { nsid: 0xffff_ffff, ..log(lid, 1) };
        assert!(host.admin_in(all, 4).is_ok(), "log page {lid:#x} of all namespaces");
    }
    let zoned = Sqe { cdw14: 2 << 24, ..log(0x05, 1) };
    assert_eq!(host.admin_in(zoned, 4), Err(Status::INVALID_FIELD), "effects of another command set");
}

#[test]
fn lengths_beyond_the_transfer_limit_are_refused_and_without_a_limit_nothing_is_allocated_for_them() {
    let mut host = Host::started(512);
    assert_eq!(host.admin(log(0x02, (2 << 20) / 4 + 1)), Err(Status::INVALID_FIELD));
    let mut host = attached(SsdConfig { transfer_bytes_max: None, ..config(512) });
    host.enable();
    let mut endless = Sqe { cdw10: 0xffff_0000 | 0x02, cdw11: 0xffff, ..sqe(0x02, 0) };
    host.set_prps(&mut endless, DATA, 512);
    assert_eq!(host.admin(endless), Ok(0));
    assert_eq!(host.bytes(DATA + 1, 2), [57, 1]);
}

#[test]
fn a_page_that_cannot_be_delivered_stays_unread() {
    let mut host = Host::started(512);
    host.write32(0x1000 + 8, 1);
    for (prp1, expected) in [(0x1000, Status::DATA_TRANSFER_ERROR), (BASE + 1, Status::PRP_OFFSET_INVALID)] {
        assert_eq!(host.admin(Sqe { dptr: [prp1, 0], ..log(0x01, 16) }), Err(expected));
    }
    let cid = host.push(0, sqe(0x0c, 0));
    host.ring(0);
    host.advance();
    let event = host.poll(0).expect("the event was not cleared");
    assert_eq!((event.cid, event.dw0), (cid, 0x0001_0000));
}

#[test]
fn failed_commands_are_in_the_error_log_newest_first() {
    let mut host = Host::with_queues(512);
    assert_eq!(read(&mut host, 0x01, 4096), vec![0; 4096]);
    let mut beyond = sqe(0x02, 1);
    beyond.dptr[0] = BASE + DATA as u64;
    (beyond.cdw10, beyond.cdw11) = (0x5566_7788, 0x1122_3344);
    assert_eq!(host.io(beyond), Err(Status::LBA_OUT_OF_RANGE));
    assert_eq!(host.admin(sqe(0xc9, 7)), Err(Status::INVALID_OPCODE));
    let page = read(&mut host, 0x01, 4096);
    // Count 2, queue 0, command 5, status DNR M 001h, byte 0, namespace 7, opcode C9h.
    let newest = [
        2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0x02, 0xc0, 0, 0, //
        0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0xc9,
    ];
    // Count 1, queue 1, command 4, status DNR M 080h, byte 40, the logical block, namespace 1, opcode 2.
    let before = [
        1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 4, 0, 0x00, 0xc1, 40, 0, //
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 1, 0, 0, 0, 0, 0, 0, 2,
    ];
    assert_eq!(page[..32], newest);
    assert_eq!(page[64..96], before);
    assert_eq!((page[63], page[127]), (1, 1), "log page version");
    assert_eq!(page[128..], vec![0; 4096 - 128]);
}

#[test]
fn the_error_log_keeps_the_last_64_and_counts_all() {
    let mut host = Host::started(512);
    for _ in 0..100 {
        assert_eq!(host.admin(sqe(0xff, 0)), Err(Status::INVALID_OPCODE));
    }
    let page = read(&mut host, 0x01, 4096);
    let counts: Vec<u32> = page.chunks(64).map(|entry| u32_at(entry, 0)).collect();
    assert_eq!(counts, (37..=100).rev().collect::<Vec<_>>());
    assert_eq!(u128_at(&read(&mut host, 0x02, 512), 176), 100);
}

#[test]
fn a_failed_comparison_is_an_answer_and_not_in_the_error_log() {
    let mut host = Host::with_queues(512);
    host.memory.fill(DATA, 512, 1);
    assert_eq!(transfer(&mut host, 0x05, 1, 512), Err(Status::COMPARE_FAILURE));
    assert_eq!(read(&mut host, 0x01, 64), vec![0; 64]);
}

#[test]
fn a_probe_of_a_command_set_that_is_not_there_is_not_in_the_error_log() {
    let mut host = Host::started(512);
    // Zoned Namespaces, Subsystem Local Memory and Computational Programs.
    for csi in [2, 3, 4] {
        for cns in [0x05, 0x06, 0x07, 0x0a, 0x1a, 0x1b] {
            let probe = Sqe { cdw10: cns, cdw11: csi << 24, ..sqe(0x06, 1) };
            assert!(host.admin_in(probe, 4096).is_err(), "CNS {cns:#x}, CSI {csi}");
        }
        assert_eq!(host.admin_in(Sqe { cdw14: csi << 24, ..log(0x05, 1) }, 4), Err(Status::INVALID_FIELD));
    }
    assert_eq!(read(&mut host, 0x01, 64), vec![0; 64]);
    assert_eq!(u128_at(&read(&mut host, 0x02, 512), 176), 0, "number of entries");
    // What is wrong with a command set that is there is an error, and so is a page that nobody has.
    let nowhere = Sqe { cdw10: 0x05, ..sqe(0x06, 0xffff_fffe) };
    assert_eq!(host.admin_in(nowhere, 4096), Err(Status::INVALID_NAMESPACE_OR_FORMAT));
    assert_eq!(host.admin_in(Sqe { cdw10: 0x70, ..sqe(0x06, 1) }, 4096), Err(Status::INVALID_FIELD));
    assert_eq!(u32_at(&read(&mut host, 0x01, 64), 0), 2);
}

#[test]
fn smart_counts_data_in_thousands_of_512_bytes_rounded_up() {
    for (block_bytes, blocks) in [(512, 8), (4096, 1)] {
        let mut host = Host::with_queues(block_bytes);
        let fresh = read(&mut host, 0x02, 512);
        assert_eq!(
            fresh[..6],
            [0, 57, 1, 100, 10, 0],
            "no warning, 313 K, all spare, threshold, nothing used"
        );
        assert_eq!([32, 48, 64, 80].map(|offset| u128_at(&fresh, offset)), [0; 4]);
        let mut counts = Vec::new();
        for (writes, reads) in [(1, 0), (124, 1), (1, 125)] {
            for _ in 0..writes {
                transfer(&mut host, 0x01, blocks, block_bytes as usize).unwrap();
            }
            for _ in 0..reads {
                transfer(&mut host, 0x02, blocks, block_bytes as usize).unwrap();
            }
            let page = read(&mut host, 0x02, 512);
            counts.push([32, 48, 64, 80].map(|offset| u128_at(&page, offset)));
        }
        // Units read, units written, reads, writes: 125 commands of 4096 bytes are exactly one unit.
        assert_eq!(counts, [[0, 1, 0, 1], [1, 1, 1, 125], [2, 2, 126, 126]], "{block_bytes}-byte blocks");
    }
}

#[test]
fn smart_counts_media_errors_and_goes_on_counting_after_queues_are_gone() {
    let mut host = Host::with_queues(512);
    transfer(&mut host, 0x04, 1, 512).unwrap();
    for _ in 0..3 {
        assert_eq!(transfer(&mut host, 0x02, 1, 512), Err(Status::UNRECOVERED_READ_ERROR));
    }
    transfer(&mut host, 0x01, 1, 512).unwrap();
    host.disable();
    host.enable();
    host.create_queue_pair(1, 8);
    transfer(&mut host, 0x01, 1, 512).unwrap();
    let page = read(&mut host, 0x02, 512);
    assert_eq!(
        [80, 160, 176].map(|offset| u128_at(&page, offset)),
        [2, 3, 3],
        "writes, media errors, log entries"
    );
}

#[test]
fn smart_counts_hours_of_power_on() {
    let mut host = Host::started(512);
    read(&mut host, 0x02, 512);
    host.clock.advance(Duration::from_secs(3 * 3600 - 1));
    assert_eq!(u128_at(&read(&mut host, 0x02, 512), 128), 2);
    host.clock.advance(Duration::from_secs(1));
    assert_eq!(u128_at(&read(&mut host, 0x02, 512), 128), 3);
}

#[test]
fn hours_of_power_on_count_without_being_asked_for_and_are_kept() {
    let state = State::default();
    let start = || {
        let store = Kept::new(host::MEDIA_BYTES, &state, &Problem::default());
        let mut host = Host::attach(host::device_on(config(512), store));
        host.enable();
        host
    };
    let mut first = start();
    assert_eq!(first.admin(sqe(0xff, 0)), Err(Status::INVALID_OPCODE));
    first.clock.advance(Duration::from_secs(2 * 3600));
    assert_eq!(first.admin(sqe(0xff, 0)), Err(Status::INVALID_OPCODE));
    drop(first);
    assert_eq!(u128_at(&read(&mut start(), 0x02, 512), 128), 2);
}

#[test]
fn power_cycles_and_unsafe_shutdowns_are_counted_over_the_life_of_the_device() {
    let state = State::default();
    let start = || {
        let store = Kept::new(host::MEDIA_BYTES, &state, &Problem::default());
        let mut host = Host::attach(host::device_on(config(512), store));
        host.enable();
        host.create_queue_pair(1, 8);
        host
    };
    // Power cycles, unsafe shutdowns, writes, log entries.
    let counters = |host: &mut Host| {
        let page = read(host, 0x02, 512);
        [112, 144, 80, 176].map(|offset| u128_at(&page, offset))
    };
    let mut first = start();
    assert_eq!(counters(&mut first), [1, 0, 0, 0]);
    transfer(&mut first, 0x01, 1, 512).unwrap();
    assert_eq!(first.admin(sqe(0xff, 0)), Err(Status::INVALID_OPCODE));
    // Normal shutdown notification.
    first.write32(0x14, 0x0046_4001);
    assert_eq!(first.read32(0x1c) & 0b1100, 0b1000, "shutdown complete");
    std::mem::forget(first);

    let mut second = start();
    assert_eq!(counters(&mut second), [2, 0, 1, 1]);
    // Killed.
    std::mem::forget(second);

    let mut third = start();
    assert_eq!(counters(&mut third), [3, 1, 1, 1]);
    // Shut down, and at work again before it is killed.
    third.write32(0x14, 0x0046_4001);
    third.disable();
    third.enable();
    std::mem::forget(third);

    let mut fourth = start();
    assert_eq!(counters(&mut fourth), [4, 2, 1, 1]);
    drop(fourth);
    assert_eq!(counters(&mut start()), [5, 2, 1, 1], "a device that is closed is shut down");
}

#[test]
fn the_effects_log_lists_exactly_the_commands_that_are_executed() {
    let mut host = Host::with_queues(512);
    let page = read(&mut host, 0x05, 4096);
    for opcode in 0..=0xffu8 {
        let listed = u32_at(&page, usize::from(opcode) * 4) & 1 == 1;
        // A request for an event never completes; it is known to be executed.
        if opcode != 0x0c {
            let answer = host.admin(Sqe { cdw10: 0xffff_ffff, cdw11: 0xffff_ffff, ..sqe(opcode, 0xfff0) });
            assert_eq!(answer != Err(Status::INVALID_OPCODE), listed, "admin opcode {opcode:#x}: {answer:?}");
        }
        let listed = u32_at(&page, 1024 + usize::from(opcode) * 4) & 1 == 1;
        let answer = host.io(Sqe { cdw10: 0xffff_ffff, cdw11: 0xffff_ffff, ..sqe(opcode, 0xfff0) });
        assert_eq!(answer != Err(Status::INVALID_OPCODE), listed, "I/O opcode {opcode:#x}: {answer:?}");
    }
    assert_eq!(u32_at(&page, 0x0c * 4) & 1, 1);
    // I/O commands: supported, and which may change logical blocks; Linux warns of every other bit.
    for (opcode, effects) in
        [(0x00, 1), (0x01, 3), (0x02, 1), (0x04, 3), (0x05, 1), (0x08, 3), (0x09, 3), (0x0c, 1)]
    {
        assert_eq!(u32_at(&page, 1024 + opcode * 4), effects, "I/O opcode {opcode:#x}");
    }
    // Format: changes logical blocks and capabilities of a namespace, and nothing else is sent meanwhile.
    assert_eq!(u32_at(&page, 0x80 * 4), 0x0011_0007);
    assert_eq!(page[2048..], [0; 2048]);
}

#[test]
fn the_features_log_lists_exactly_the_features_there_are() {
    let mut host = Host::started(512);
    let page = read(&mut host, 0x12, 1024);
    for fid in 0..=0xffu32 {
        let there = host.admin(Sqe { cdw10: 3 << 8 | fid, ..sqe(0x0a, 0) }).is_ok();
        let scope = if matches!(fid, 0x05 | 0x20) { 1 << 20 } else { 1 << 21 };
        let expected = if there { scope | 1 } else { 0 };
        assert_eq!(u32_at(&page, fid as usize * 4), expected, "feature {fid:#x}");
    }
}
