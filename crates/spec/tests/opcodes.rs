//! The table of commands against what the specifications say of their opcodes.

use unvme_spec::command::{self, Access, Changes, CommandSet, Direction, Length};
use unvme_spec::identify::csi;
use unvme_spec::{Fuse, Sqe};

const SETS: [CommandSet; 7] = [
    CommandSet::Admin,
    CommandSet::Fabrics,
    CommandSet::Nvm,
    CommandSet::KeyValue,
    CommandSet::SamsungKv,
    CommandSet::Fault,
    CommandSet::Claim,
];

#[test]
fn a_row_is_found_by_its_opcode_and_no_other_has_one() {
    for (set, rows) in SETS.into_iter().zip([30, 6, 10, 6, 8, 2, 2]) {
        let found: Vec<u8> = (0..=u8::MAX).filter(|opcode| set.facts(*opcode).is_some()).collect();
        assert_eq!(found.len(), rows, "{set:?}");
        assert_eq!(found, set.commands().iter().map(|facts| facts.opcode).collect::<Vec<_>>(), "{set:?}");
        for opcode in found {
            assert_eq!(set.facts(opcode).expect("it is there").opcode, opcode, "{set:?}");
        }
    }
}

/// Base figure 92: bits 1:0 of an opcode, of a Fabrics command of its FCTYPE.
#[test]
fn the_low_bits_of_an_opcode_say_which_way_its_data_goes_but_for_the_vendors_commands_for_pairs() {
    let directions = [Direction::None, Direction::ToController, Direction::ToHost, Direction::Both];
    for set in SETS.into_iter().filter(|set| *set != CommandSet::SamsungKv) {
        for facts in set.commands() {
            assert_eq!(facts.direction, directions[usize::from(facts.opcode & 3)], "{}", facts.name);
        }
    }
    let of = |opcode| Direction::of(&Sqe { opcode, ..Sqe::default() }, false);
    for (opcode, direction) in [
        (0x81, Direction::ToController),
        (0x83, Direction::ToController),
        (0x85, Direction::ToController),
        (0x90, Direction::ToHost),
        (0xa1, Direction::None),
        (0xb1, Direction::None),
        (0xb2, Direction::ToHost),
        (0xb3, Direction::None),
        (0xc2, Direction::None),
        (0x02, Direction::ToHost),
        (0x7d, Direction::ToController),
    ] {
        assert_eq!(of(opcode), direction, "{opcode:#04x}");
    }
    // Connect, Property Get and Authentication Receive.
    for (fctype, direction) in
        [(0x01, Direction::ToController), (0x04, Direction::None), (0x06, Direction::ToHost)]
    {
        let sqe = Sqe { opcode: 0x7f, nsid: fctype, ..Sqe::default() };
        assert_eq!(Direction::of(&sqe, true), direction, "{fctype:#04x}");
    }
    assert_eq!(Direction::of(&Sqe { opcode: 0xc2, ..Sqe::default() }, true), Direction::ToHost);
}

/// Base figure 92: C0h to FFh of admin commands and 80h to FFh of I/O commands are vendors'.
#[test]
fn the_opcodes_of_vendors_are_told_from_the_specifications() {
    for (opcode, admin, io) in [
        (0x00, false, false),
        (0x7f, false, false),
        (0x80, false, true),
        (0xbf, false, true),
        (0xc0, true, true),
    ] {
        assert_eq!(command::is_vendor_specific(opcode, true), admin, "{opcode:#04x}");
        assert_eq!(command::is_vendor_specific(opcode, false), io, "{opcode:#04x}");
    }
    assert!(command::io(csi::NVM, 0x81).is_none());
    assert_eq!(command::io(csi::KEY_VALUE, 0x81).map(|facts| facts.name), Some("KV Store"));
    assert_eq!(command::io(csi::KEY_VALUE, 0x01).map(|facts| facts.name), Some("Store"));
    assert_eq!(command::io(csi::NVM, 0x01).map(|facts| facts.name), Some("Write"));
    assert!(command::io(csi::ZONED, 0x01).is_none());
    for csi in [csi::NVM, csi::KEY_VALUE] {
        let mut opcodes: Vec<u8> =
            CommandSet::of_csi(csi).iter().flat_map(|set| set.commands()).map(|facts| facts.opcode).collect();
        let rows = opcodes.len();
        opcodes.sort_unstable();
        opcodes.dedup();
        assert_eq!(opcodes.len(), rows, "command set {csi} has two meanings for an opcode");
    }
}

/// An entry whose dwords 10 to 13 are these.
fn entry(dwords: [u32; 4]) -> Sqe {
    let [cdw10, cdw11, cdw12, cdw13] = dwords;
    Sqe { cdw10, cdw11, cdw12, cdw13, ..Sqe::default() }
}

#[test]
fn the_length_of_data_is_where_the_specification_has_it() {
    let bytes = |set: CommandSet, opcode, dwords| {
        let facts = set.facts(opcode).expect("it is in the table");
        facts.length.bytes(&entry(dwords), 512)
    };
    let (admin, nvm, kv, samsung) =
        (CommandSet::Admin, CommandSet::Nvm, CommandSet::KeyValue, CommandSet::SamsungKv);
    for (set, opcode, dwords, expected) in [
        // Get Log Page: NUMDL in bits 31:16 of dword 10, NUMDU in bits 15:0 of dword 11.
        (admin, 0x02, [0x007f_0002, 0, 0, 0], Some(512)),
        (admin, 0x02, [0xffff_0002, 0x1234_0001, 0, 0], Some(0x80000)),
        (admin, 0x06, [1, 0, 0, 0], Some(4096)),
        (admin, 0x0a, [7, 0, 0, 0], None),
        (admin, 0x11, [1023, 0, 0, 0], Some(4096)),
        (admin, 0x1a, [u32::MAX, 0, 0, 0], Some(1 << 34)),
        (admin, 0x82, [0, 512, 0, 0], Some(512)),
        (admin, 0x86, [0, 0, 1023, 0], Some(4096)),
        (CommandSet::Fabrics, 0x01, [0; 4], Some(1024)),
        (CommandSet::Fabrics, 0x05, [0, 76, 0, 0], Some(76)),
        // NLB beside FUA and Limited Retry.
        (nvm, 0x01, [0, 0, 0xc000_0007, 0], Some(4096)),
        (nvm, 0x02, [0, 0, 0xffff, 0], Some(65536 * 512)),
        (nvm, 0x05, [0; 4], Some(512)),
        (nvm, 0x08, [0, 0, 7, 0], None),
        (nvm, 0x09, [0xff, 4, 0, 0], Some(4096)),
        (nvm, 0x12, [1, 1023, 0, 0], Some(4096)),
        (nvm, 0x1d, [0x0003_0001, 0, 0, 0], Some(8)),
        (kv, 0x01, [4097, 16, 0, 0], Some(4097)),
        (kv, 0x06, [64, 0, 0, 0], Some(64)),
        (kv, 0x10, [0; 4], None),
        // Two dwords, of which three bytes are not used; and more unused than there are.
        (samsung, 0x81, [2, 0x0003_000f, 0, 0], Some(5)),
        (samsung, 0x83, [0, 0x0001_000f, 0, 0], None),
        (samsung, 0x85, [256, 2, 0, 0], Some(1024)),
        (samsung, 0x90, [1024, 0x0003_000f, 0, 0], Some(4096)),
        (samsung, 0xb2, [8192, 1, 0, 0], Some(32768)),
        (CommandSet::Fault, 0xc1, [77, 1, 0, 0], Some(77)),
        (CommandSet::Claim, 0xc5, [20, 1, 0, 0], Some(20)),
    ] {
        assert_eq!(bytes(set, opcode, dwords), expected, "{set:?} {opcode:#04x}");
    }
    assert_eq!(Length::Blocks.bytes(&entry([0, 0, 1, 0]), u64::MAX), None);
}

/// Commands Supported and Effects without CSUPP (Base figure 211): LBCC in bit 1, NCC 2, NIC 3, CCC 4, CSE
/// from bit 16 on, namespace scope bit 20, controller 21, subsystem 25.
#[test]
fn the_effects_are_those_of_the_log_page() {
    for (opcode, effects) in [
        (0x00, 0x0020_0000),
        (0x01, 0x0020_0000),
        (0x02, 0x0020_0000),
        (0x04, 0x0020_0000),
        (0x05, 0x0020_0000),
        (0x06, 0x0020_0000),
        (0x08, 0x0020_0000),
        (0x09, 0x0020_0000),
        (0x0a, 0x0020_0000),
        (0x0c, 0x0020_0000),
        (0x0d, 0x0200_000a),
        (0x10, 0x0200_0010),
        (0x11, 0x0200_0000),
        (0x15, 0x0010_0008),
        (0x18, 0x0020_0000),
        (0x19, 0x0010_0000),
        (0x1a, 0x0010_0000),
        (0x80, 0x0011_0006),
    ] {
        let facts = CommandSet::Admin.facts(opcode).expect("it is in the table");
        assert_eq!(facts.effects(), effects, "{}", facts.name);
    }
    let changing = |set: CommandSet| -> Vec<u8> {
        assert!(set.commands().iter().all(|facts| facts.effects() & !2 == 0), "{set:?}");
        set.commands().iter().filter(|facts| facts.effects() == 2).map(|facts| facts.opcode).collect()
    };
    assert_eq!(changing(CommandSet::Nvm), [0x01, 0x04, 0x08, 0x09]);
    assert_eq!(changing(CommandSet::KeyValue), [0x01, 0x10]);
    assert_eq!(changing(CommandSet::SamsungKv), [0x81, 0x83, 0x85, 0xa1, 0xb1]);
    for set in [CommandSet::Fault, CommandSet::Claim] {
        assert!(set.commands().iter().all(|facts| facts.effects() == 0x0020_0000), "{set:?}");
    }
}

#[test]
fn what_a_command_does_to_the_media_is_told_by_its_opcode() {
    let with = |set: CommandSet, has: &dyn Fn(&command::Facts) -> bool| -> Vec<u8> {
        set.commands().iter().filter(|facts| has(facts)).map(|facts| facts.opcode).collect()
    };
    let (nvm, kv, samsung) = (CommandSet::Nvm, CommandSet::KeyValue, CommandSet::SamsungKv);
    let repeatable = |facts: &command::Facts| facts.changes == Changes::Nothing;
    assert_eq!(with(CommandSet::Admin, &repeatable), [0x02, 0x06, 0x0a]);
    assert_eq!(with(nvm, &repeatable), [0x02, 0x05, 0x0c]);
    assert_eq!(with(kv, &repeatable), [0x02, 0x06, 0x14]);
    assert_eq!(with(samsung, &repeatable), [0x90, 0xb3]);
    let maybe = |facts: &command::Facts| facts.changes == Changes::MediaByFields;
    assert_eq!([with(nvm, &maybe), with(samsung, &maybe)], [[0x09], [0xb1]]);
    let of = |access| move |facts: &command::Facts| facts.access == access;
    assert_eq!(with(nvm, &of(Access::Read)), [0x02]);
    assert_eq!(with(kv, &of(Access::Read)), [0x02, 0x06]);
    assert_eq!(with(samsung, &of(Access::Read)), [0x90, 0xb2]);
    assert_eq!(with(nvm, &of(Access::Write)), [0x01]);
    assert_eq!(with(kv, &of(Access::Write)), [0x01]);
    assert_eq!(with(samsung, &of(Access::Write)), [0x81, 0x83, 0x85]);
    assert_eq!([with(nvm, &of(Access::Flush)), with(kv, &of(Access::Flush))], [[0x00], [0x00]]);
    assert_eq!(with(nvm, &|facts| facts.names_blocks), [0x01, 0x02, 0x04, 0x05, 0x08, 0x0c]);
    assert_eq!(with(nvm, &|facts| facts.moves_contents), [0x01, 0x02, 0x05]);
    assert_eq!(with(kv, &|facts| facts.moves_contents), [0x01, 0x02]);
    assert_eq!(with(samsung, &|facts| facts.moves_contents), [0x81, 0x83, 0x90]);
    assert_eq!(with(CommandSet::Admin, &|facts| facts.makes_queue), [0x00, 0x01, 0x04, 0x05]);
    // Compare and Write is the one fused operation there is (NVM 3.4.2).
    assert_eq!(with(nvm, &|facts| facts.fuse == Fuse::First), [0x05]);
    assert_eq!(with(nvm, &|facts| facts.fuse == Fuse::Second), [0x01]);
}

#[test]
fn force_unit_access_counts_where_something_is_written() {
    let forces = |opcode, cdw12| {
        let facts = CommandSet::Nvm.facts(opcode).expect("it is in the table");
        facts.forces_unit_access(&entry([0, 0, cdw12, 0]))
    };
    for opcode in [0x01, 0x08] {
        assert!(forces(opcode, 0x4000_0000) && !forces(opcode, 0xbfff_ffff), "{opcode:#04x}");
    }
    assert!(!forces(0x02, 0x4000_0000));
}
