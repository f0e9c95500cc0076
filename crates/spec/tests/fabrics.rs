//! Fabrics commands and the Discovery log page against what the Linux kernel's two ends have sent each other
//! (`tests/vectors/tcp-*.hex`), and against the figures of the specification.

use std::path::PathBuf;

use unvme_spec::fabrics::{
    Authentication, Command, Connect, ConnectData, Connected, DiscoveryHeader, DiscoveryRecord,
    InvalidParameter, Property, nqn, nqn_bytes, status,
};
use unvme_spec::log_page::{AnaGroup, AnaHeader};
use unvme_spec::{Cqe, Qid, Sqe};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of the PDU header in front of a capsule's entry, and of a data PDU's data.
const CAPSULE_HEADER: usize = 8;
const DATA_HEADER: usize = 24;

/// The PDUs of a capture that have this name, in order.
fn capture(file: &str, name: &str) -> Vec<Vec<u8>> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "tests", "vectors", file].iter().collect();
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pdus = lines.filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, _, kind, bytes] = words[..] else { panic!("{line}") };
        let bytes = (0..bytes.len()).step_by(2).map(|at| u8::from_str_radix(&bytes[at..at + 2], 16));
        (kind == name).then(|| bytes.collect::<Result<_, _>>().expect("hexadecimal digits"))
    });
    pdus.collect()
}

fn entry(pdu: &[u8]) -> Sqe {
    Sqe::read_from_bytes(&pdu[CAPSULE_HEADER..CAPSULE_HEADER + 64]).expect("an entry")
}

fn completion(pdu: &[u8]) -> Cqe {
    Cqe::read_from_bytes(&pdu[CAPSULE_HEADER..CAPSULE_HEADER + 16]).expect("a completion")
}

/// What a command is, apart from what the transport says of its data.
fn without_data_pointer(sqe: Sqe) -> Sqe {
    Sqe { cid: 0, dptr: [0; 2], ..sqe }
}

#[test]
fn connect_of_the_kernel_is_understood_and_made() {
    let capsules = capture("tcp-session.hex", "capsule-cmd");
    let admin = Connect { sqsize_z: 31, keep_alive_ms: 2000, ..Connect::default() };
    let sqe = entry(&capsules[0]);
    assert_eq!(Command::parse(&sqe), Command::Connect(admin));
    assert_eq!(Command::Connect(admin).encode(), without_data_pointer(sqe));
    let data = ConnectData::read_from_bytes(&capsules[0][CAPSULE_HEADER + 64..]).expect("1024 bytes");
    let hostid =
        [0x11, 0x11, 0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x44, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55];
    assert_eq!((data.hostid, data.cntlid.get()), (hostid, 0xffff));
    let names = (nqn(&data.subnqn).expect("a name"), nqn(&data.hostnqn).expect("a name"));
    assert!(names.0.starts_with("nqn.") && names.1.starts_with("nqn."), "{names:?}");
    let mut made = ConnectData::default();
    made.hostid = hostid;
    made.cntlid = 0xffff.into();
    made.subnqn = nqn_bytes(names.0).expect("short enough");
    made.hostnqn = nqn_bytes(names.1).expect("short enough");
    assert_eq!(made.as_bytes(), &capsules[0][CAPSULE_HEADER + 64..]);
    // An I/O queue of the same session.
    let fabrics = capsules.iter().map(|pdu| entry(pdu)).filter(|sqe| sqe.opcode == 0x7f);
    let io = fabrics.map(|sqe| Command::parse(&sqe));
    let io = io.filter_map(|command| match command {
        Command::Connect(connect) if connect.qid != Qid::ADMIN => Some(connect),
        _ => None,
    });
    let io: Vec<Connect> = io.collect();
    assert!(!io.is_empty());
    assert!(io.iter().all(|connect| connect.sqsize_z == 15 && connect.keep_alive_ms == 0), "{io:?}");
}

#[test]
fn a_host_without_flow_control_says_so_in_connect_and_is_answered_with_a_head_of_all_ones() {
    let capsules = capture("tcp-no-flow-control.hex", "capsule-cmd");
    let Command::Connect(connect) = Command::parse(&entry(&capsules[0])) else { panic!("no Connect") };
    assert_eq!(connect.attributes, Connect::DISABLE_SQ_FLOW_CONTROL);
    assert_eq!(completion(&capture("tcp-no-flow-control.hex", "capsule-resp")[0]).sq_head, 0xffff);
}

#[test]
fn the_kernels_answers_to_connect_name_controller_authentication_and_what_was_wrong() {
    let first = |file| completion(&capture(file, "capsule-resp")[0]);
    let connected = Connected { cntlid: 1, ..Connected::default() };
    assert_eq!(Connected::from_dword(first("tcp-session.hex").dw0), connected);
    let dword = first("tcp-auth-null-sha256.hex").dw0;
    let authenticates = Connected { must_authenticate: true, ..connected };
    assert_eq!((Connected::from_dword(dword), authenticates.to_dword()), (authenticates, dword));
    let refused: Vec<Cqe> =
        capture("tcp-refused.hex", "capsule-resp").iter().map(|pdu| completion(pdu)).collect();
    let parameter = InvalidParameter { in_data: true, offset: 256 };
    assert_eq!(refused[0].status(), status::CONNECT_INVALID_PARAMETERS.with_do_not_retry());
    assert_eq!(
        (InvalidParameter::from_dword(refused[0].dw0), parameter.to_dword()),
        (parameter, refused[0].dw0)
    );
    assert_eq!(refused[1].status(), status::CONNECT_INVALID_HOST.with_do_not_retry());
    let host = InvalidParameter { in_data: true, offset: 512 };
    assert_eq!(InvalidParameter::from_dword(refused[1].dw0), host);
}

#[test]
fn properties_of_the_kernel_are_understood_and_made() {
    let capsules = capture("tcp-session.hex", "capsule-cmd");
    let expected = [
        Command::PropertyGet(Property { offset: 0, is_wide: Some(true), value: 0 }),
        Command::PropertySet(Property { offset: 0x14, is_wide: Some(false), value: 0x0046_0060 }),
        Command::PropertyGet(Property { offset: 0, is_wide: Some(true), value: 0 }),
        Command::PropertySet(Property { offset: 0x14, is_wide: Some(false), value: 0x0046_0061 }),
    ];
    for (pdu, command) in capsules[1..].iter().zip(expected) {
        let sqe = entry(pdu);
        assert_eq!(Command::parse(&sqe), command);
        assert_eq!(command.encode(), without_data_pointer(sqe));
    }
}

#[test]
fn authentication_commands_of_the_kernel_are_understood_and_made() {
    let capsules = capture("tcp-auth-null-sha256.hex", "capsule-cmd");
    let of = |bytes| Authentication { security_protocol: 0xe9, specific_0: 1, specific_1: 1, bytes };
    let expected = [Command::AuthenticationSend(of(0x48)), Command::AuthenticationReceive(of(0x1000))];
    for (pdu, command) in capsules[1..].iter().zip(expected) {
        let sqe = entry(pdu);
        assert_eq!(Command::parse(&sqe), command);
        assert_eq!(command.encode(), without_data_pointer(sqe));
    }
}

#[test]
fn disconnect_and_reserved_values_are_what_the_figures_say() {
    let mut bytes = [0u8; 64];
    (bytes[0], bytes[1], bytes[4], bytes[40]) = (0x7f, 0x40, 0x08, 0);
    let sqe = Sqe::read_from_bytes(&bytes).expect("an entry");
    assert_eq!(Command::parse(&sqe), Command::Disconnect { record_format: 0 });
    assert_eq!(Command::Disconnect { record_format: 0 }.encode().as_bytes(), bytes);
    bytes[4] = 0x7e;
    assert_eq!(Command::parse(&Sqe::read_from_bytes(&bytes).expect("an entry")), Command::Unknown(0x7e));
    (bytes[4], bytes[40]) = (0x04, 2);
    let Command::PropertyGet(property) = Command::parse(&Sqe::read_from_bytes(&bytes).expect("an entry"))
    else {
        panic!("no Property Get")
    };
    assert_eq!(property.is_wide, None);
}

#[test]
fn the_kernels_discovery_log_page_is_understood() {
    let pages = capture("tcp-discovery.hex", "c2h-data");
    let pages: Vec<&[u8]> = pages.iter().map(|pdu| &pdu[DATA_HEADER..]).collect();
    // The kernel's tools read the first 20 bytes, and then the records.
    let mut start = [0; 1024];
    start[..20].copy_from_slice(pages.iter().find(|page| page.len() == 20).expect("the head of the page"));
    let header = DiscoveryHeader::read_from_bytes(&start).expect("a header");
    assert_eq!((header.genctr.get(), header.numrec.get(), header.recfmt.get()), (6, 4, 0));
    let records = pages.iter().find(|page| page.starts_with(&[3, 1, 3, 4])).expect("records");
    let records: Vec<DiscoveryRecord> = records
        .chunks(1024)
        .map(|bytes| DiscoveryRecord::read_from_bytes(bytes).expect("a record"))
        .collect();
    for record in &records {
        assert_eq!((record.trtype, record.adrfam, record.cntlid.get()), (3, 1, 0xffff));
        assert!(nqn(&record.subnqn).is_some_and(|name| name.starts_with("nqn.")));
        assert!(record.traddr.starts_with(b"1"), "{:?}", &record.traddr[..16]);
    }
    assert_eq!(records.iter().map(|record| record.subtype).collect::<Vec<_>>(), [3, 2, 2, 1]);
}

#[test]
fn names_are_text_that_ends_within_their_field() {
    assert_eq!(nqn(&[b'n'; 256]), None);
    let mut longest = [0; 256];
    longest[..223].fill(b'n');
    assert_eq!(nqn(&longest).map(str::len), Some(223));
    longest[223] = b'n';
    assert_eq!(nqn(&longest), None);
    assert_eq!((nqn(&[0; 256]), nqn_bytes(&"n".repeat(224))), (None, None));
    assert_eq!(nqn_bytes("nqn.a").map(|bytes| bytes[..6].to_vec()), Some(b"nqn.a\0".to_vec()));
}

#[test]
fn the_ana_log_page_is_laid_out_as_the_figures_say() {
    let mut header = AnaHeader::default();
    (header.change_count, header.groups) = (0x0102_0304_0506_0708.into(), 0x0a09.into());
    assert_eq!(header.as_bytes(), [8, 7, 6, 5, 4, 3, 2, 1, 9, 10, 0, 0, 0, 0, 0, 0]);
    let mut group = AnaGroup::default();
    (group.group, group.namespaces, group.change_count, group.state) = (1.into(), 2.into(), 3.into(), 0xf);
    let mut expected = [0; 32];
    (expected[0], expected[4], expected[8], expected[16]) = (1, 2, 3, 0xf);
    assert_eq!(group.as_bytes(), expected);
}
