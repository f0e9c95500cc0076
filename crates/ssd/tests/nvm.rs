//! The NVM command set: what each command does, and what it says when it cannot.

mod host;

use host::blocks::{
    COMPARE, DATASET_MANAGEMENT, FLUSH, READ, SOURCE, VERIFY, WRITE, WRITE_UNCORRECTABLE, WRITE_ZEROES,
    access, pattern, read, transfer, write,
};
use host::{DATA, Host, attached, config, sqe};
use unvme_spec::{Sqe, Status};
use unvme_ssd::{NamespaceConfig, NamespaceKind, SsdConfig};

const FUA: u32 = 1 << 30;
const FUSED_FIRST: u8 = 1;
const FUSED_SECOND: u8 = 2;
/// Blocks of 512 bytes the device has.
const BLOCKS: u64 = host::MEDIA_BYTES / 512;

#[test]
fn ranges_beyond_the_end_are_out_of_range_for_every_command() {
    let mut host = Host::with_queues(512);
    for opcode in [READ, WRITE, COMPARE, VERIFY, WRITE_ZEROES, WRITE_UNCORRECTABLE] {
        for (lba, blocks) in [(BLOCKS, 1), (BLOCKS - 1, 2), (u64::MAX, 1), (u64::MAX, 2), (1 << 63, 8)] {
            let beyond = transfer(&host, opcode, lba, blocks, DATA, 1024);
            assert_eq!(host.io(beyond), Err(Status::LBA_OUT_OF_RANGE), "opcode {opcode:#x} at {lba:#x}");
        }
        let last = transfer(&host, opcode, BLOCKS - 1, 1, DATA, 512);
        assert_eq!(host.io(last), Ok(0), "opcode {opcode:#x}");
    }
    let cqe = host.execute(1, access(VERIFY, BLOCKS, 1));
    assert!(cqe.status().do_not_retry() && cqe.status().more());
}

#[test]
fn transfers_beyond_the_limit_are_refused_and_commands_that_move_nothing_have_none() {
    let mut host = Host::with_queues(512);
    for opcode in [READ, WRITE, COMPARE] {
        let beyond = transfer(&host, opcode, 0, 4097, DATA, 512);
        assert_eq!(host.io(beyond), Err(Status::INVALID_FIELD), "opcode {opcode:#x}, 2 MiB and a block");
    }
    for opcode in [VERIFY, WRITE_ZEROES, WRITE_UNCORRECTABLE] {
        assert_eq!(host.io(access(opcode, 0, 65536)), Ok(0), "opcode {opcode:#x}");
    }
}

#[test]
fn namespaces_that_are_not_there_and_unknown_opcodes_are_refused() {
    let mut host = Host::with_queues(512);
    for opcode in [FLUSH, READ, WRITE, COMPARE, VERIFY, WRITE_ZEROES, WRITE_UNCORRECTABLE, DATASET_MANAGEMENT]
    {
        for (nsid, expected) in [
            (0, Status::INVALID_NAMESPACE_OR_FORMAT),
            (2, Status::INVALID_FIELD),
            (128, Status::INVALID_FIELD),
            (129, Status::INVALID_NAMESPACE_OR_FORMAT),
            (0xffff_fffe, Status::INVALID_NAMESPACE_OR_FORMAT),
        ] {
            let command = Sqe { nsid, ..transfer(&host, opcode, 0, 1, DATA, 512) };
            assert_eq!(host.io(command), Err(expected), "opcode {opcode:#x}, namespace {nsid:#x}");
        }
        let all = Sqe { nsid: 0xffff_ffff, ..transfer(&host, opcode, 0, 1, DATA, 512) };
        let expected = if opcode == FLUSH { Ok(0) } else { Err(Status::INVALID_NAMESPACE_OR_FORMAT) };
        assert_eq!(host.io(all), expected, "opcode {opcode:#x}, all namespaces");
    }
    for opcode in [0x03, 0x06, 0x07, 0x0d, 0x19, 0x80, 0xff] {
        assert_eq!(host.io(sqe(opcode, 1)), Err(Status::INVALID_OPCODE), "opcode {opcode:#x}");
    }
}

#[test]
fn namespaces_do_not_share_blocks() {
    let half = NamespaceConfig { bytes: Some(host::MEDIA_BYTES / 2), kind: NamespaceKind::Blocks(512) };
    let mut host = attached(SsdConfig {
        namespaces: vec![half, NamespaceConfig { kind: NamespaceKind::Blocks(4096), ..half }],
        ..config(512)
    });
    host.enable();
    host.create_queue_pair(1, 8);
    for (nsid, blocks) in [(1, 8), (2, 1)] {
        host.memory.write(SOURCE, &pattern(nsid as u8, 4096));
        let write = Sqe { nsid, ..transfer(&host, WRITE, 0, blocks, SOURCE, 4096) };
        assert_eq!(host.io(write), Ok(0));
    }
    for (nsid, blocks) in [(1, 8), (2, 1)] {
        let read = Sqe { nsid, ..transfer(&host, READ, 0, blocks, DATA, 4096) };
        assert_eq!(host.io(read), Ok(0));
        assert!(host.bytes(DATA, 4096) == pattern(nsid as u8, 4096), "namespace {nsid}");
    }
}

#[test]
fn compare_says_whether_the_data_is_the_same() {
    let mut host = Host::with_queues(512);
    let data = pattern(1, 12288);
    write(&mut host, 40, &data, 512);
    host.memory.write(DATA, &data);
    let compare = transfer(&host, COMPARE, 40, 24, DATA, 12288);
    assert_eq!(host.io(compare), Ok(0));
    for at in [0, 511, 4096, 12287] {
        host.memory.write(DATA + at, &[!data[at]]);
        assert_eq!(host.io(compare), Err(Status::COMPARE_FAILURE), "byte {at} differs");
        host.memory.write(DATA + at, &[data[at]]);
    }
    host.memory.fill(DATA, 512, 0);
    let untouched = transfer(&host, COMPARE, 5000, 1, DATA, 512);
    assert_eq!(host.io(untouched), Ok(0), "blocks never written are zeroes");
}

#[test]
fn write_zeroes_and_deallocate_make_zeroes_of_exactly_their_blocks() {
    for deallocate in [false, true] {
        let mut host = Host::with_queues(512);
        let data = pattern(8, 32 * 512);
        write(&mut host, 0, &data, 512);
        if deallocate {
            let mut ranges = Vec::new();
            for (blocks, lba) in [(3u32, 5u64), (0, 0), (4, 16)] {
                ranges.extend([0; 4]);
                ranges.extend(blocks.to_le_bytes());
                ranges.extend(lba.to_le_bytes());
            }
            host.memory.write(DATA, &ranges);
            let mut dsm = Sqe { cdw10: 2, cdw11: 0b011, ..sqe(DATASET_MANAGEMENT, 1) };
            host.set_prps(&mut dsm, DATA, 48);
            assert_eq!(host.io(dsm), Ok(0));
            assert!(read(&mut host, 0, 32 * 512, 512) == data, "hints change nothing");
            host.memory.write(DATA, &ranges);
            assert_eq!(host.io(Sqe { cdw11: 0b100, ..dsm }), Ok(0));
        } else {
            assert_eq!(host.io(access(WRITE_ZEROES, 5, 3)), Ok(0));
            let mut fua = access(WRITE_ZEROES, 16, 4);
            fua.cdw12 |= FUA | 1 << 25;
            assert_eq!(host.io(fua), Ok(0));
        }
        let mut expected = data;
        expected[5 * 512..8 * 512].fill(0);
        expected[16 * 512..20 * 512].fill(0);
        assert!(read(&mut host, 0, 32 * 512, 512) == expected, "deallocate: {deallocate}");
    }
}

#[test]
fn dataset_management_checks_all_its_ranges_before_it_touches_one() {
    let mut host = Host::with_queues(512);
    let data = pattern(2, 512);
    write(&mut host, 0, &data, 512);
    let mut ranges = Vec::new();
    for (blocks, lba) in [(1u32, 0u64), (2, BLOCKS - 1)] {
        ranges.extend([0; 4]);
        ranges.extend(blocks.to_le_bytes());
        ranges.extend(lba.to_le_bytes());
    }
    host.memory.write(SOURCE, &ranges);
    let mut dsm = Sqe { cdw10: 1, cdw11: 0b100, ..sqe(DATASET_MANAGEMENT, 1) };
    host.set_prps(&mut dsm, SOURCE, 32);
    assert_eq!(host.io(dsm), Err(Status::LBA_OUT_OF_RANGE));
    assert!(read(&mut host, 0, 512, 512) == data);
    host.memory.write(SOURCE + 24, &u64::MAX.to_le_bytes());
    assert_eq!(host.io(dsm), Err(Status::LBA_OUT_OF_RANGE), "an end beyond 64 bits");
    assert_eq!(host.io(Sqe { dptr: [0x7000_0000, 0], ..dsm }), Err(Status::DATA_TRANSFER_ERROR));
    // 256 ranges take a whole page; all of them empty.
    host.memory.fill(SOURCE, 4096, 0);
    assert_eq!(host.io(Sqe { cdw10: 255, ..dsm }), Ok(0));
}

#[test]
fn uncorrectable_blocks_fail_until_they_are_written() {
    let mut host = Host::with_queues(512);
    write(&mut host, 0, &pattern(4, 4096), 512);
    let reading = |host: &mut Host, opcode| {
        [0, 2, 3, 4, 5, 7].map(|lba| {
            host.memory.write(DATA, &pattern(4, 4096)[lba * 512..][..512]);
            let command = transfer(host, opcode, lba as u64, 1, DATA, 512);
            host.io(command)
        })
    };
    let bad = Err(Status::UNRECOVERED_READ_ERROR);
    assert_eq!(host.io(access(WRITE_UNCORRECTABLE, 3, 2)), Ok(0));
    for opcode in [READ, COMPARE, VERIFY] {
        assert_eq!(reading(&mut host, opcode), [Ok(0), Ok(0), bad, bad, Ok(0), Ok(0)], "opcode {opcode:#x}");
    }
    assert_eq!(host.io(access(VERIFY, 0, 8)), bad, "one bad block spoils the whole range");
    let repair = transfer(&host, WRITE, 3, 1, SOURCE, 512);
    assert_eq!(host.io(repair), Ok(0));
    assert_eq!(host.io(access(VERIFY, 3, 1)), Ok(0));
    assert_eq!(host.io(access(VERIFY, 4, 1)), bad);
    assert_eq!(host.io(access(WRITE_ZEROES, 4, 1)), Ok(0));
    assert_eq!(host.io(access(VERIFY, 0, 8)), Ok(0));
    // A write that fails repairs nothing.
    assert_eq!(host.io(access(WRITE_UNCORRECTABLE, 3, 1)), Ok(0));
    assert_eq!(
        host.io(Sqe { dptr: [0x7000_0000, 0], ..access(WRITE, 3, 1) }),
        Err(Status::DATA_TRANSFER_ERROR)
    );
    assert_eq!(host.io(access(VERIFY, 3, 1)), bad);
}

#[test]
fn flush_and_forced_unit_access_and_limited_retry_succeed() {
    let mut host = Host::with_queues(512);
    assert_eq!(host.io(sqe(FLUSH, 1)), Ok(0));
    for flags in [FUA, 1 << 31, FUA | 1 << 31] {
        for opcode in [WRITE, READ, COMPARE] {
            let mut command = transfer(&host, opcode, 3, 1, DATA, 512);
            command.cdw12 |= flags;
            assert_eq!(host.io(command), Ok(0), "opcode {opcode:#x}, flags {flags:#x}");
        }
    }
    // The same with the write cache disabled.
    assert_eq!(host.admin(Sqe { cdw10: 0x06, ..sqe(0x09, 0) }), Ok(0));
    write(&mut host, 3, &pattern(5, 512), 512);
    assert_eq!(read(&mut host, 3, 512, 512), pattern(5, 512));
}

/// Submits commands together and returns their statuses in the order of submission.
fn together(host: &mut Host, commands: &[Sqe]) -> Vec<Status> {
    let cids: Vec<u16> = commands.iter().map(|sqe| host.push(1, *sqe)).collect();
    host.ring(1);
    while host.advance() > 0 {}
    cids.iter()
        .map(|&cid| {
            let cqe = host.poll(1).expect("a completion for each");
            assert_eq!(cqe.cid, cid);
            cqe.status().kind()
        })
        .collect()
}

/// Compare and Write of block 7: expects the pattern `expected` and writes the pattern `new`.
fn fused(host: &Host, expected: u8, new: u8) -> [Sqe; 2] {
    host.memory.write(SOURCE, &pattern(expected, 512));
    host.memory.write(SOURCE + 4096, &pattern(new, 512));
    let compare = transfer(host, COMPARE, 7, 1, SOURCE, 512);
    let write = transfer(host, WRITE, 7, 1, SOURCE + 4096, 512);
    [Sqe { flags: FUSED_FIRST, ..compare }, Sqe { flags: FUSED_SECOND, ..write }]
}

#[test]
fn compare_and_write_writes_when_the_comparison_succeeds() {
    let mut host = Host::with_queues(512);
    write(&mut host, 7, &pattern(1, 512), 512);
    let pair = fused(&host, 1, 2);
    assert_eq!(together(&mut host, &pair), [Status::SUCCESS; 2]);
    assert!(read(&mut host, 7, 512, 512) == pattern(2, 512));
    let pair = fused(&host, 1, 3);
    assert_eq!(together(&mut host, &pair), [Status::COMPARE_FAILURE, Status::ABORTED_FAILED_FUSED]);
    assert!(read(&mut host, 7, 512, 512) == pattern(2, 512));
    // A block that cannot be read cannot be compared, and is a media error (SMART, byte 160).
    assert_eq!(host.io(access(WRITE_UNCORRECTABLE, 7, 1)), Ok(0));
    let pair = fused(&host, 2, 3);
    assert_eq!(together(&mut host, &pair), [Status::UNRECOVERED_READ_ERROR, Status::ABORTED_FAILED_FUSED]);
    let smart = host.admin_in(Sqe { cdw10: 127 << 16 | 0x02, ..sqe(0x02, 0xffff_ffff) }, 512).unwrap();
    assert_eq!(smart[160..176], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    write(&mut host, 7, &pattern(2, 512), 512);
    // The shortest turn still takes a pair.
    assert_eq!(host.admin(Sqe { cdw10: 0x01, cdw11: 0, ..sqe(0x09, 0) }), Ok(0));
    let pair = fused(&host, 2, 4);
    let answers = together(&mut host, &[sqe(FLUSH, 1), pair[0], pair[1], sqe(FLUSH, 1)]);
    assert_eq!(answers, [Status::SUCCESS; 4]);
    assert!(read(&mut host, 7, 512, 512) == pattern(4, 512));
}

#[test]
fn a_fused_command_without_its_partner_is_aborted_alone() {
    let mut host = Host::with_queues(512);
    write(&mut host, 7, &pattern(1, 512), 512);
    let [first, second] = fused(&host, 1, 2);
    let (missing, ok) = (Status::ABORTED_MISSING_FUSED, Status::SUCCESS);
    let flush = sqe(FLUSH, 1);
    assert_eq!(together(&mut host, &[first]), [missing]);
    assert_eq!(together(&mut host, &[second]), [missing]);
    assert_eq!(together(&mut host, &[flush, second, flush]), [ok, missing, ok]);
    assert_eq!(together(&mut host, &[first, flush, second]), [missing, ok, missing]);
    assert_eq!(together(&mut host, &[second, first]), [missing, missing]);
    let reserved = Sqe { flags: 3, ..flush };
    assert_eq!(together(&mut host, &[reserved, flush]), [Status::INVALID_FIELD, ok]);
    assert_eq!(together(&mut host, &[first, reserved]), [missing, Status::INVALID_FIELD]);
    assert!(read(&mut host, 7, 512, 512) == pattern(1, 512), "nothing was written");
    assert_eq!(together(&mut host, &[first, first, second]), [missing, ok, ok]);
    assert!(read(&mut host, 7, 512, 512) == pattern(2, 512));
}

#[test]
fn a_completion_queue_that_cannot_hold_both_aborts_a_fused_pair_and_goes_on() {
    let mut host = Host::started(512);
    host.create_cq(1, 2).unwrap();
    host.create_sq(1, 1, 8).unwrap();
    let [first, second] = fused(&host, 0, 2);
    for sqe in [first, second, sqe(FLUSH, 1)] {
        host.push(1, sqe);
    }
    host.ring(1);
    let statuses = [0; 3].map(|_| {
        host.advance();
        host.poll(1).map(|cqe| cqe.status().kind())
    });
    let missing = Some(Status::ABORTED_MISSING_FUSED);
    assert_eq!(statuses, [missing, missing, Some(Status::SUCCESS)]);
}

#[test]
fn fused_pairs_that_do_not_fit_together_fail_both() {
    let mut host = Host::with_queues(512);
    write(&mut host, 7, &pattern(1, 512), 512);
    let [first, second] = fused(&host, 1, 2);
    let invalid = [Status::INVALID_FIELD; 2];
    for (pair, what) in [
        ([Sqe { opcode: READ, ..first }, second], "read and write"),
        ([first, Sqe { opcode: COMPARE, ..second }], "compare and compare"),
        ([Sqe { opcode: FLUSH, ..first }, Sqe { opcode: 0xff, ..second }], "flush and an unknown opcode"),
        ([first, Sqe { cdw10: 8, ..second }], "another block"),
        ([first, Sqe { cdw12: 1, ..second }], "another length"),
        ([first, Sqe { nsid: 2, ..second }], "another namespace"),
    ] {
        assert_eq!(together(&mut host, &pair), invalid, "{what}");
    }
    for (change, expected) in [
        (Sqe { nsid: 9, ..first }, Status::INVALID_FIELD),
        (Sqe { nsid: 200, ..first }, Status::INVALID_NAMESPACE_OR_FORMAT),
        (Sqe { cdw11: 1, ..first }, Status::LBA_OUT_OF_RANGE),
        (Sqe { cdw12: 1, ..first }, Status::ATOMIC_WRITE_UNIT_EXCEEDED),
        (Sqe { dptr: [0x7000_0000, 0], ..first }, Status::DATA_TRANSFER_ERROR),
    ] {
        let Sqe { nsid, cdw11, cdw12, .. } = change;
        let pair = [change, Sqe { nsid, cdw11, cdw12, ..second }];
        assert_eq!(together(&mut host, &pair), [expected, Status::ABORTED_FAILED_FUSED], "{change:x?}");
    }
    assert_eq!(host.io(access(WRITE_UNCORRECTABLE, 7, 1)), Ok(0));
    let answers = together(&mut host, &[first, second]);
    assert_eq!(answers, [Status::UNRECOVERED_READ_ERROR, Status::ABORTED_FAILED_FUSED]);
}

#[test]
fn ranges_that_overlap_or_come_in_any_order_are_all_deallocated() {
    let mut host = Host::with_queues(512);
    let data = pattern(9, 32 * 512);
    write(&mut host, 0, &data, 512);
    // Blocks 4 to 11 from four ranges, block 20 twice, and an empty range within what is kept.
    let list = [(20u64, 1u32), (8, 4), (4, 6), (5, 2), (4, 1), (20, 1), (15, 0)];
    let mut ranges = Vec::new();
    for (lba, blocks) in list {
        ranges.extend([0; 4]);
        ranges.extend(blocks.to_le_bytes());
        ranges.extend(lba.to_le_bytes());
    }
    host.memory.write(DATA, &ranges);
    let mut dsm = Sqe { cdw10: list.len() as u32 - 1, cdw11: 0b100, ..sqe(DATASET_MANAGEMENT, 1) };
    host.set_prps(&mut dsm, DATA, ranges.len());
    assert_eq!(host.io(dsm), Ok(0));
    let mut expected = data;
    expected[4 * 512..12 * 512].fill(0);
    expected[20 * 512..21 * 512].fill(0);
    assert!(read(&mut host, 0, 32 * 512, 512) == expected);
}
