//! Identify, field by field, at the offsets of the specification (Base 5.1.13, NVM 4.1.5).

mod host;

use host::{Host, MEDIA_BYTES, config, device, sqe};
use unvme_spec::{Sqe, Status};
use unvme_ssd::{MemoryStore, NamespaceConfig, NamespaceKind, Ssd, SsdConfig};

const ALL: u32 = 0xffff_ffff;

fn command(cns: u8, nsid: u32) -> Sqe {
    Sqe { cdw10: cns.into(), ..sqe(0x06, nsid) }
}

fn with_csi(cns: u8, nsid: u32, csi: u8) -> Sqe {
    Sqe { cdw11: u32::from(csi) << 24, ..command(cns, nsid) }
}

fn with_cntid(cns: u8, nsid: u32, cntid: u16) -> Sqe {
    Sqe { cdw10: u32::from(cntid) << 16 | u32::from(cns), ..sqe(0x06, nsid) }
}

fn identify(host: &mut Host, command: Sqe) -> Result<Vec<u8>, Status> {
    host.admin_in(command, 4096)
}

fn u16_at(page: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(page[at..at + 2].try_into().unwrap())
}

fn u32_at(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(page[at..at + 4].try_into().unwrap())
}

fn u64_at(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().unwrap())
}

/// Two namespaces of 512 and 4096 byte blocks and 32 MiB to spare.
fn host_with_two() -> Host {
    let namespaces = vec![
        NamespaceConfig { bytes: Some(16 << 20), kind: NamespaceKind::Blocks(512) },
        NamespaceConfig { bytes: Some(16 << 20), kind: NamespaceKind::Blocks(4096) },
    ];
    let mut host = Host::attach(device(SsdConfig { namespaces, ..config(512) }));
    host.enable();
    host
}

#[test]
fn identify_controller_says_what_the_device_is_and_can_do() {
    let mut host = host_with_two();
    let page = identify(&mut host, command(0x01, 0)).unwrap();
    assert_eq!(page[0..4], [0x36, 0x1b, 0x36, 0x1b], "VID, SSVID");
    assert_eq!(&page[4..24], b"UNVME0000000001     ", "SN");
    assert_eq!(&page[24..64], b"unvme virtual SSD                       ", "MN");
    assert_eq!(&page[64..72], b"1.0     ", "FR");
    assert_eq!(page[73..76], [0x00, 0x54, 0x52], "IEEE, least significant byte first");
    assert_eq!(page[76], 0, "CMIC: one port, one controller");
    assert_eq!(page[77], 9, "MDTS: 2 MiB in pages of 4 KiB");
    assert_eq!(u16_at(&page, 78), 0, "CNTLID");
    assert_eq!(u32_at(&page, 80), 0x0002_0000, "VER");
    assert_eq!(u32_at(&page, 88), 10_000_000, "RTD3E in microseconds");
    assert_eq!(u32_at(&page, 92), 0x300, "OAES: namespace attributes, firmware activation");
    assert_eq!(u32_at(&page, 96), 0, "CTRATT");
    assert_eq!(page[111], 1, "CNTRLTYPE: I/O controller");
    assert_eq!(u16_at(&page, 256), 0b1110, "OACS: format, firmware, namespace management");
    assert_eq!(page[258..260], [3, 3], "ACL, AERL");
    assert_eq!(page[260], 0x16, "FRMW: three slots, all writable, activation without reset");
    assert_eq!(page[261], 0x26, "LPA: commands supported and effects, extended data, supported log pages");
    assert_eq!(page[262..264], [63, 0], "ELPE, NPSS");
    assert_eq!((u16_at(&page, 266), u16_at(&page, 268)), (343, 358), "WCTEMP, CCTEMP");
    assert_eq!((u64_at(&page, 280), u64_at(&page, 288)), (64 << 20, 0), "TNVMCAP");
    assert_eq!((u64_at(&page, 296), u64_at(&page, 304)), (32 << 20, 0), "UNVMCAP");
    assert_eq!(page[319], 1, "FWUG: 4 KiB");
    assert_eq!(page[512..514], [0x66, 0x44], "SQES, CQES");
    assert_eq!(u32_at(&page, 516), 128, "NN");
    assert_eq!(u16_at(&page, 520), 0xdf, "ONCS: all but reservations and copy");
    assert_eq!(u16_at(&page, 522), 1, "FUSES: compare and write");
    assert_eq!(page[524..526], [0, 7], "FNA: per namespace; VWC: present, Flush takes FFFFFFFFh");
    assert_eq!(page[526..530], [0, 0, 0, 0], "AWUN, AWUPF: one block");
    assert_eq!(page[531], 0, "NWPC");
    assert_eq!(u16_at(&page, 532), 0, "ACWU: one block");
    assert_eq!(u32_at(&page, 536), 0x0004_0001, "SGLS: any alignment, longer than the data");
    assert_eq!(u32_at(&page, 540), 128, "MNAN");
    assert_eq!(&page[768..800], b"nqn.2014-08.org.nvmexpress:uuid:", "SUBNQN");
    assert_eq!(page[836..1024], [0; 188], "SUBNQN has 68 characters");
    assert_eq!(page[2048..2080], [0; 32], "power state 0");
}

#[test]
fn the_subsystem_name_is_a_uuid_of_the_serial_number_and_never_changes() {
    let name = |serial: &str| {
        let mut host = Host::attach(device(SsdConfig { serial: serial.into(), ..config(512) }));
        host.enable();
        let page = identify(&mut host, command(0x01, 0)).unwrap();
        String::from_utf8(page[768..836].to_vec()).unwrap()
    };
    let first = name("A");
    assert_eq!(first, name("A"));
    assert_ne!(first, name("B"));
    let uuid = &first[32..];
    assert_eq!((&uuid[8..9], &uuid[13..15], &uuid[18..19], &uuid[23..24]), ("-", "-8", "-", "-"), "{uuid}");
    assert!(matches!(uuid.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "variant of RFC 9562: {uuid}");
    assert_eq!(
        first, "nqn.2014-08.org.nvmexpress:uuid:44a0bac0-24f1-8bbb-b294-8628c6eb1e76",
        "devices in the field keep their name"
    );
}

#[test]
fn mdts_is_the_limit_on_transfers_and_zero_without_one() {
    for (limit, mdts) in [(Some(8192), 1), (Some(2 << 20), 9), (Some(128 << 20), 15), (None, 0)] {
        let mut host = Host::attach(device(SsdConfig { transfer_bytes_max: limit, ..config(512) }));
        host.enable();
        assert_eq!(identify(&mut host, command(0x01, 0)).unwrap()[77], mdts, "{limit:?}");
    }
}

#[test]
fn a_limit_that_mdts_cannot_say_is_refused() {
    let config = SsdConfig { transfer_bytes_max: Some(4096), ..config(512) };
    let error = Ssd::new(config, Box::new(MemoryStore::null(MEDIA_BYTES))).err().expect("an error");
    assert!(error.to_string().starts_with("transfer_bytes_max: 4096"), "{error}");
}

#[test]
fn identify_namespace_describes_size_format_and_identifiers() {
    let mut host = host_with_two();
    let first = identify(&mut host, command(0x00, 1)).unwrap();
    assert_eq!(
        (u64_at(&first, 0), u64_at(&first, 8), u64_at(&first, 16)),
        (32768, 32768, 0),
        "NSZE, NCAP, NUSE"
    );
    assert_eq!(first[24..34], [0, 1, 0, 0, 0, 0, 0, 0, 0x80, 1], "NSFEAT to DLFEAT");
    assert_eq!((u64_at(&first, 48), u64_at(&first, 56)), (16 << 20, 0), "NVMCAP");
    assert_eq!(first[112..120], [0x52, 0x54, 0x00, 0, 0, 0, 0, 1], "NGUID: OUI, number of the namespace");
    assert_eq!(first[120..123], [0x52, 0x54, 0x00], "EUI64: OUI");
    assert_eq!(first[126..128], [0, 1], "EUI64: number of the namespace");
    assert_eq!(first[128..140], [0, 0, 9, 2, 0, 0, 12, 0, 0, 0, 0, 0], "LBAF0 to LBAF2");
    let second = identify(&mut host, command(0x00, 2)).unwrap();
    assert_eq!((u64_at(&second, 0), second[26]), (4096, 1), "NSZE, FLBAS");
    assert_eq!(second[104..119], first[104..119], "NGUID differs in its last byte");
    assert_eq!((second[119], second[127]), (2, 2));
    let common = identify(&mut host, command(0x00, ALL)).unwrap();
    assert_eq!((u64_at(&common, 0), common[25], common[26]), (0, 1, 0), "NSZE, NLBAF, FLBAS");
    assert_eq!(common[128..140], first[128..140]);
    assert_eq!(common[104..128], [0; 24]);
}

#[test]
fn utilization_grows_with_the_chunks_that_are_written() {
    let mut host = Host::with_queues(4096);
    let mut write = sqe(0x01, 1);
    host.set_prps(&mut write, host::DATA, 4096);
    // Blocks 511 and 512 of 4 KiB lie in the first and in the second chunk of 2 MiB.
    for (block, used) in [(511, 512), (0, 512), (512, 1024)] {
        write.cdw10 = block;
        host.io(write).unwrap();
        assert_eq!(u64_at(&identify(&mut host, command(0x00, 1)).unwrap(), 16), used, "after block {block}");
    }
}

#[test]
fn a_namespace_that_is_not_there_is_zeroes_or_the_status_the_specification_names() {
    let mut host = host_with_two();
    for cns in [0x00, 0x05, 0x08, 0x11] {
        assert_eq!(identify(&mut host, command(cns, 3)).unwrap(), vec![0; 4096], "CNS {cns:#x}");
        for nsid in [0, 129, ALL - 1] {
            let result = identify(&mut host, command(cns, nsid));
            assert_eq!(result, Err(Status::INVALID_NAMESPACE_OR_FORMAT), "CNS {cns:#x} of {nsid:#x}");
        }
    }
    for cns in [0x03, 0x08, 0x11] {
        let result = identify(&mut host, command(cns, ALL));
        assert_eq!(result, Err(Status::INVALID_NAMESPACE_OR_FORMAT), "CNS {cns:#x}");
    }
    assert_eq!(identify(&mut host, command(0x03, 3)), Err(Status::INVALID_FIELD));
    assert_eq!(identify(&mut host, command(0x03, 0)), Err(Status::INVALID_NAMESPACE_OR_FORMAT));
}

#[test]
fn descriptors_are_eui64_nguid_and_the_command_set() {
    let mut host = host_with_two();
    let namespace = identify(&mut host, command(0x00, 2)).unwrap();
    let page = identify(&mut host, command(0x03, 2)).unwrap();
    assert_eq!(page[..4], [1, 8, 0, 0]);
    assert_eq!(page[4..12], namespace[120..128]);
    assert_eq!(page[12..16], [2, 16, 0, 0]);
    assert_eq!(page[16..32], namespace[104..120]);
    assert_eq!(page[32..38], [4, 1, 0, 0, 0, 0]);
    assert_eq!(page[37..], [0; 4096 - 37]);
}

#[test]
fn lists_start_after_the_identifier_given() {
    let mut host = host_with_two();
    for cns in [0x02, 0x07, 0x10, 0x1a] {
        let mut entries = |nsid| identify(&mut host, command(cns, nsid)).map(|p| p[..12].to_vec());
        assert_eq!(entries(0).unwrap(), [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0], "CNS {cns:#x}");
        assert_eq!(entries(1).unwrap(), [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(entries(2).unwrap(), [0; 12]);
        assert_eq!(entries(0xffff_fffd).unwrap(), [0; 12]);
        assert_eq!(entries(ALL - 1), Err(Status::INVALID_NAMESPACE_OR_FORMAT));
        assert_eq!(entries(ALL), Err(Status::INVALID_NAMESPACE_OR_FORMAT));
    }
}

#[test]
fn command_set_specific_data_of_the_nvm_command_set_is_zeroes_and_other_sets_are_refused() {
    let mut host = host_with_two();
    assert_eq!(identify(&mut host, with_csi(0x05, 1, 0)).unwrap(), vec![0; 4096]);
    assert_eq!(identify(&mut host, with_csi(0x05, ALL, 0)).unwrap(), vec![0; 4096]);
    assert_eq!(identify(&mut host, with_csi(0x06, 0, 0)).unwrap(), vec![0; 4096]);
    for csi in [2, 3, 0xff] {
        assert_eq!(identify(&mut host, with_csi(0x05, 1, csi)), Err(Status::INVALID_IO_COMMAND_SET));
        assert_eq!(identify(&mut host, with_csi(0x06, 0, csi)), Err(Status::INVALID_IO_COMMAND_SET));
        assert_eq!(identify(&mut host, with_csi(0x07, 0, csi)), Err(Status::INVALID_FIELD));
        assert_eq!(identify(&mut host, with_csi(0x1a, 0, csi)), Err(Status::INVALID_FIELD));
    }
}

#[test]
fn the_independent_structure_says_that_the_namespace_is_ready() {
    let page = identify(&mut host_with_two(), command(0x08, 1)).unwrap();
    let mut expected = vec![0; 4096];
    expected[3] = 0x80;
    expected[14] = 0x01;
    assert_eq!(page, expected, "FPI and NSTAT.NRDY");
}

#[test]
fn controller_lists_name_the_only_controller() {
    let mut host = host_with_two();
    assert_eq!(identify(&mut host, with_cntid(0x12, 1, 0)).unwrap()[..6], [1, 0, 0, 0, 0, 0]);
    assert_eq!(identify(&mut host, with_cntid(0x12, 1, 1)).unwrap(), vec![0; 4096]);
    assert_eq!(identify(&mut host, with_cntid(0x12, 3, 0)), Err(Status::INVALID_FIELD));
    assert_eq!(identify(&mut host, with_cntid(0x12, ALL, 0)), Err(Status::INVALID_FIELD));
    assert_eq!(identify(&mut host, with_cntid(0x12, 0, 0)), Err(Status::INVALID_NAMESPACE_OR_FORMAT));
    assert_eq!(identify(&mut host, with_cntid(0x13, 0, 0)).unwrap()[..6], [1, 0, 0, 0, 0, 0]);
    assert_eq!(identify(&mut host, with_cntid(0x13, 0, 1)).unwrap(), vec![0; 4096]);
}

#[test]
fn command_sets_can_be_enabled_together_or_one_alone() {
    let mut host = host_with_two();
    for cntid in [0, 0xffff] {
        let page = identify(&mut host, with_cntid(0x1c, 0, cntid)).unwrap();
        // NVM and Key Value, NVM, Key Value.
        assert_eq!([0, 8, 16, 24].map(|at| u64_at(&page, at)), [3, 1, 2, 0]);
    }
    assert_eq!(identify(&mut host, with_cntid(0x1c, 0, 1)), Err(Status::INVALID_FIELD));
}

#[test]
fn every_other_cns_is_an_invalid_field() {
    let mut host = host_with_two();
    let known = [0x00, 0x01, 0x02, 0x03, 0x05, 0x06, 0x07, 0x08, 0x10, 0x11, 0x12, 0x13, 0x1a, 0x1b, 0x1c];
    for cns in (0..=0xff).filter(|cns| !known.contains(cns)) {
        assert_eq!(identify(&mut host, command(cns, 1)), Err(Status::INVALID_FIELD), "CNS {cns:#x}");
    }
}

#[test]
fn a_buffer_that_is_too_short_is_refused_and_left_alone() {
    let mut host = host_with_two();
    // The last kilobyte of a page, and no second page.
    let mut short = command(0x01, 0);
    short.dptr = [host::BASE + host::DATA as u64 + 3072, 0];
    host.memory.fill(host::DATA, 4096, 0xee);
    assert_eq!(host.admin(short), Err(Status::DATA_TRANSFER_ERROR));
    assert_eq!(host.bytes(host::DATA, 4096), vec![0xee; 4096]);
    assert!(identify(&mut host, command(0x01, 0)).is_ok());
}
