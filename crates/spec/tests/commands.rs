//! Commands between their typed form and the 64 bytes of an entry.

use unvme_spec::{
    Cid, Lba, Nsid, Qid, Sqe,
    admin::{self, Command},
    command::CommandSet,
    feature::Select,
    nvm::{self, AccessFlags, BlockRange},
};
use zerocopy::{FromBytes, IntoBytes};

/// Bits of NSID and of command dwords 10 to 15 that mean something, by opcode, from the specification.
const ADMIN_BITS: [(u8, [u32; 7]); 18] = [
    (0x00, [0, 0x0000_ffff, 0, 0, 0, 0, 0]),
    (0x01, [0, 0xffff_ffff, 0xffff_0007, 0, 0, 0, 0]),
    (0x02, [!0, 0xffff_ffff, 0xffff_ffff, !0, !0, 0xff80_007f, 0]),
    (0x04, [0, 0x0000_ffff, 0, 0, 0, 0, 0]),
    // The interrupt vector counts only together with bit 1, interrupts enabled: see the test of its own
    // below.
    (0x05, [0, 0xffff_ffff, 0x0000_0003, 0, 0, 0, 0]),
    (0x06, [!0, 0xffff_00ff, 0xff00_ffff, 0, 0, 0x0000_007f, 0]),
    (0x08, [0, 0xffff_ffff, 0, 0, 0, 0, 0]),
    (0x09, [!0, 0x8000_00ff, !0, !0, !0, 0x0000_007f, !0]),
    (0x0a, [!0, 0x0000_07ff, !0, 0, 0, 0x0000_007f, 0]),
    (0x0c, [0; 7]),
    (0x0d, [!0, 0x0000_000f, 0xff00_0000, 0, 0, 0, 0]),
    (0x10, [0, 0x8000_003f, 0, 0, 0, 0, 0]),
    (0x11, [0, 0xffff_ffff, 0xffff_ffff, 0, 0, 0, 0]),
    (0x15, [!0, 0x0000_000f, 0, 0, 0, 0, 0]),
    (0x18, [0; 7]),
    (0x19, [!0, !0, !0, !0, 0, 0, 0]),
    (0x1a, [!0, !0, !0, !0, 0, 0, 0]),
    (0x80, [!0, 0x0000_3fff, 0, 0, 0, 0, 0]),
];

/// The same for the NVM Command Set, without NSID: directives, storage tags and protection information are
/// not kept. I/O Management Send has a test of its own: what bits 31:16 mean depends on bits 7:0.
const NVM_BITS: [(u8, [u32; 6]); 9] = [
    (0x00, [0; 6]),
    (0x01, [!0, !0, 0xfc00_ffff, 0, 0, 0]),
    (0x02, [!0, !0, 0xfc00_ffff, 0, 0, 0]),
    (0x04, [!0, !0, 0x0000_ffff, 0, 0, 0]),
    (0x05, [!0, !0, 0xfc00_ffff, 0, 0, 0]),
    (0x08, [!0, !0, 0xfe00_ffff, 0, 0, 0]),
    (0x09, [0x0000_00ff, 0x0000_0007, 0, 0, 0, 0]),
    (0x0c, [!0, !0, 0xfc00_ffff, 0, 0, 0]),
    (0x12, [0xffff_00ff, !0, 0, 0, 0, 0]),
];

fn with_dwords(opcode: u8, nsid: u32, dwords: [u32; 6]) -> Sqe {
    let [cdw10, cdw11, cdw12, cdw13, cdw14, cdw15] = dwords;
    Sqe { opcode, nsid, cdw10, cdw11, cdw12, cdw13, cdw14, cdw15, ..Sqe::default() }
}

fn dwords(sqe: &Sqe) -> [u32; 6] {
    [sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15]
}

/// A sequence of entries that are different in all fields, the same in each run.
fn entries(opcode: u8, count: usize) -> impl Iterator<Item = Sqe> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(opcode);
    (0..count).map(move |_| {
        let mut bytes = [0; 64];
        for chunk in bytes.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            chunk.copy_from_slice(&state.to_le_bytes());
        }
        bytes[0] = opcode;
        Sqe::read_from_bytes(&bytes).unwrap()
    })
}

#[test]
fn admin_commands_keep_exactly_the_bits_the_specification_defines() {
    for (opcode, [nsid_bits, bits @ ..]) in ADMIN_BITS {
        for bit in 0..32 {
            let nsid = Command::parse(&with_dwords(opcode, 1 << bit, [0; 6])).encode();
            assert_eq!(nsid.nsid, nsid_bits & 1 << bit, "opcode {opcode:#04x}, NSID bit {bit}");
            for dword in 0..6 {
                let mut sent = [0; 6];
                sent[dword] = 1 << bit;
                let mut kept = [0; 6];
                kept[dword] = bits[dword] & 1 << bit;
                let sqe = Command::parse(&with_dwords(opcode, 0, sent)).encode();
                assert_eq!(dwords(&sqe), kept, "opcode {opcode:#04x}, dword {}, bit {bit}", dword + 10);
                assert_eq!(sqe.opcode, opcode);
            }
        }
    }
}

#[test]
fn nvm_commands_keep_exactly_the_bits_this_crate_interprets() {
    for (opcode, bits) in NVM_BITS {
        for bit in 0..32 {
            for dword in 0..6 {
                let mut sent = [0; 6];
                sent[dword] = 1 << bit;
                let mut kept = [0; 6];
                kept[dword] = bits[dword] & 1 << bit;
                let sqe = nvm::Command::parse(&with_dwords(opcode, 0, sent)).encode(Nsid(7));
                assert_eq!(dwords(&sqe), kept, "opcode {opcode:#04x}, dword {}, bit {bit}", dword + 10);
                assert_eq!((sqe.opcode, sqe.nsid), (opcode, 7));
            }
        }
    }
}

#[test]
fn io_management_send_keeps_the_operation_and_what_belongs_to_it() {
    for (cdw10, kept) in [
        (0xffff_ff00, 0x0000_0000),
        (0xffff_0001, 0xffff_0001),
        (0x0007_ff01, 0x0007_0001),
        (0x1234_00c0, 0x1234_00c0),
    ] {
        let sqe = nvm::Command::parse(&with_dwords(0x1d, 0, [cdw10, !0, !0, !0, !0, !0])).encode(Nsid(7));
        assert_eq!(dwords(&sqe), [kept, 0, 0, 0, 0, 0], "{cdw10:#010x}");
    }
}

#[test]
fn every_entry_parses_and_what_was_parsed_survives_a_round_trip() {
    for opcode in 0..=u8::MAX {
        for sqe in entries(opcode, 500) {
            let command = Command::parse(&sqe);
            assert_eq!(Command::parse(&command.encode()), command);
            let command = nvm::Command::parse(&sqe);
            assert_eq!(nvm::Command::parse(&command.encode(Nsid(sqe.nsid))), command);
        }
    }
}

#[test]
fn opcodes_without_a_typed_form_are_values() {
    let named = |opcode| CommandSet::Admin.facts(opcode).map(|facts| facts.name);
    let typed = ADMIN_BITS.map(|(opcode, _)| opcode);
    for opcode in 0..=u8::MAX {
        let parsed = Command::parse(&with_dwords(opcode, 1, [!0; 6]));
        assert_eq!(parsed == Command::Unknown(opcode), !typed.contains(&opcode), "opcode {opcode:#04x}");
        if typed.contains(&opcode) {
            assert!(named(opcode).is_some(), "opcode {opcode:#04x} has no name");
        }
    }
    assert_eq!(nvm::Command::parse(&with_dwords(0x7d, 1, [0; 6])), nvm::Command::Unknown(0x7d));
    assert_eq!(named(0x06), Some("Identify"));
    assert_eq!(named(0xff), None);
}

#[test]
fn the_longest_log_page_transfer_is_two_to_the_32_dwords() {
    let Command::GetLogPage(page) =
        Command::parse(&with_dwords(0x02, !0, [0xffff_0002, 0x0000_ffff, 0, 0, 0, 0]))
    else {
        panic!("not Get Log Page");
    };
    assert_eq!(page.dwords, 1 << 32);
    assert_eq!(page.bytes(), 1 << 34);
}

#[test]
fn get_log_page_puts_each_field_where_the_specification_says() {
    let page = admin::GetLogPage {
        nsid: Nsid::ALL,
        lid: 0x02,
        lsp: 0x55,
        retain_async_event: true,
        dwords: 0x1_2346,
        lsi: 0xabcd,
        offset: 0x1122_3344_5566_7788,
        offset_is_index: true,
        csi: 0x01,
        uuid_index: 0x7e,
    };
    let sqe = Command::GetLogPage(page).encode();
    assert_eq!(sqe.opcode, 0x02);
    assert_eq!(sqe.nsid, 0xffff_ffff);
    assert_eq!(dwords(&sqe), [0x2345_d502, 0xabcd_0001, 0x5566_7788, 0x1122_3344, 0x0180_007e, 0]);
}

#[test]
fn create_queue_commands_match_the_specification() {
    let sq = admin::CreateIoSq {
        qid: Qid(3),
        size: 1024,
        cqid: Qid(2),
        contiguous: true,
        priority: admin::QueuePriority::Medium,
    };
    let sqe = Command::CreateIoSq(sq).encode();
    assert_eq!((sqe.opcode, sqe.nsid, dwords(&sqe)), (0x01, 0, [0x03ff_0003, 0x0002_0005, 0, 0, 0, 0]));

    let cq = admin::CreateIoCq { qid: Qid(2), size: 65536, contiguous: true, interrupt: Some(5) };
    let sqe = Command::CreateIoCq(cq).encode();
    assert_eq!((sqe.opcode, sqe.nsid, dwords(&sqe)), (0x05, 0, [0xffff_0002, 0x0005_0003, 0, 0, 0, 0]));
    assert_eq!(Command::parse(&sqe), Command::CreateIoCq(cq));
}

#[test]
fn an_interrupt_vector_counts_only_when_interrupts_are_enabled() {
    let polled = Command::parse(&with_dwords(0x05, 0, [0x000f_0001, 0x0009_0001, 0, 0, 0, 0]));
    let expected = admin::CreateIoCq { qid: Qid(1), size: 16, contiguous: true, interrupt: None };
    assert_eq!(polled, Command::CreateIoCq(expected));
    let vector_zero = Command::parse(&with_dwords(0x05, 0, [0x000f_0001, 0x0000_0003, 0, 0, 0, 0]));
    let expected = admin::CreateIoCq { interrupt: Some(0), ..expected };
    assert_eq!(vector_zero, Command::CreateIoCq(expected));
}

#[test]
fn format_joins_the_two_halves_of_the_lba_format_index() {
    let format = admin::FormatNvm {
        nsid: Nsid(1),
        lbaf: 0x25,
        metadata_extended: true,
        protection: 1,
        protection_first: true,
        secure_erase: admin::SecureErase::Cryptographic,
    };
    let sqe = Command::FormatNvm(format).encode();
    assert_eq!((sqe.opcode, sqe.cdw10), (0x80, 0x0000_2535));
    assert_eq!(Command::parse(&sqe), Command::FormatNvm(format));
}

#[test]
fn features_carry_save_and_select_in_dword_10() {
    let set = admin::SetFeatures { fid: 0x07, save: true, cdw11: 0x0003_0003, ..Default::default() };
    let sqe = Command::SetFeatures(set).encode();
    assert_eq!((sqe.opcode, sqe.cdw10, sqe.cdw11), (0x09, 0x8000_0007, 0x0003_0003));
    let get = admin::GetFeatures { fid: 0x06, select: Select::SupportedCapabilities, ..Default::default() };
    let sqe = Command::GetFeatures(get).encode();
    assert_eq!((sqe.opcode, sqe.cdw10), (0x0a, 0x0000_0306));
}

#[test]
fn reserved_selectors_are_kept_as_values() {
    let sqe = with_dwords(0x0d, 1, [0x9, 0, 0, 0, 0, 0]);
    let expected = admin::NamespaceManagement {
        nsid: Nsid(1),
        operation: admin::NamespaceOperation::Reserved(9),
        csi: 0,
    };
    assert_eq!(Command::parse(&sqe), Command::NamespaceManagement(expected));
    let sqe = with_dwords(0x10, 0, [0x0000_0028, 0, 0, 0, 0, 0]);
    let expected =
        admin::FirmwareCommit { action: admin::CommitAction::Reserved(5), slot: 0, boot_partition: false };
    assert_eq!(Command::parse(&sqe), Command::FirmwareCommit(expected));
}

#[test]
fn abort_names_the_queue_in_the_low_half_and_the_command_in_the_high_half() {
    let sqe = Command::Abort { sqid: Qid(0x0102), cid: Cid(0xa0b0) }.encode();
    assert_eq!((sqe.opcode, sqe.cdw10), (0x08, 0xa0b0_0102));
}

#[test]
fn firmware_commands_match_the_specification() {
    let download = admin::FirmwareDownload { dwords: 1024, offset_dwords: 2048 };
    let sqe = Command::FirmwareDownload(download).encode();
    assert_eq!((sqe.opcode, sqe.cdw10, sqe.cdw11), (0x11, 1023, 2048));
    let commit = admin::FirmwareCommit {
        action: admin::CommitAction::ActivateImmediately,
        slot: 2,
        boot_partition: false,
    };
    let sqe = Command::FirmwareCommit(commit).encode();
    assert_eq!((sqe.opcode, sqe.cdw10), (0x10, 0x1a));
}

#[test]
fn an_identify_entry_has_these_64_bytes() {
    let identify =
        admin::Identify { nsid: Nsid(0x0403_0201), cns: 0x12, cntid: 0x3456, ..Default::default() };
    let mut sqe = Command::Identify(identify).encode();
    sqe.cid = 0xbeef;
    sqe.dptr = [0x1000, 0x2000];
    let mut expected = [0; 64];
    expected[..8].copy_from_slice(&[0x06, 0x00, 0xef, 0xbe, 0x01, 0x02, 0x03, 0x04]);
    expected[25] = 0x10;
    expected[33] = 0x20;
    expected[40..44].copy_from_slice(&[0x12, 0x00, 0x56, 0x34]);
    assert_eq!(sqe.as_bytes(), expected);
}

#[test]
fn a_block_count_of_zero_on_the_wire_is_one_block() {
    let sqe = with_dwords(0x02, 1, [5, 0, 0, 0, 0, 0]);
    let one = BlockRange::new(Lba(5), 1);
    assert_eq!(nvm::Command::parse(&sqe), nvm::Command::Read(one, AccessFlags::default()));
    let sqe = with_dwords(0x01, 1, [0xffff_fff0, 0xffff_ffff, 0x4000_ffff, 0, 0, 0]);
    let longest = BlockRange::new(Lba(0xffff_ffff_ffff_fff0), 65536);
    assert_eq!(nvm::Command::parse(&sqe), nvm::Command::Write(longest, AccessFlags::FUA));
    assert_eq!(longest.end(), None, "the end does not fit in 64 bits");
    assert_eq!(one.end(), Some(6));
}
