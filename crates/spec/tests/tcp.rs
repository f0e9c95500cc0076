//! PDUs of NVMe/TCP against what the Linux kernel's two ends have sent each other
//! (`tests/vectors/tcp-*.hex`), and against the figures of the specification where the kernel sends none
//! (NVMe/TCP Transport Specification 1.1, section 3.6).

use std::path::PathBuf;

use unvme_spec::tcp::{
    CAPSULE_CMD_BYTES, CAPSULE_RESP_BYTES, CommonHeader, DataHeader, IcReq, IcResp, R2t, TermReq, digests,
    fatal_error, flags, pdu_type,
};
use unvme_spec::{Cqe, Sqe};
use zerocopy::{FromBytes, IntoBytes};

/// The PDUs of a capture by name, in order: whether the host has sent it, and its bytes.
fn capture(file: &str, name: &str) -> Vec<(bool, Vec<u8>)> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "tests", "vectors", file].iter().collect();
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pdus = lines.filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, direction, kind, bytes] = words[..] else { panic!("{line}") };
        let bytes = (0..bytes.len()).step_by(2).map(|at| u8::from_str_radix(&bytes[at..at + 2], 16));
        (kind == name)
            .then(|| (direction == ">", bytes.collect::<Result<_, _>>().expect("hexadecimal digits")))
    });
    pdus.collect()
}

/// The first one of a name.
fn first(file: &str, name: &str) -> Vec<u8> {
    capture(file, name).swap_remove(0).1
}

fn common(pdu_type: u8, flags: u8, hlen: u8, pdo: u8, plen: u32) -> CommonHeader {
    CommonHeader { pdu_type, flags, hlen, pdo, plen: plen.into() }
}

#[test]
fn the_kernels_ic_req_asks_for_both_digests() {
    let bytes = first("tcp-digests.hex", "ic-req");
    let it = IcReq::read_from_bytes(&bytes).expect("128 bytes");
    assert_eq!(it.ch, common(pdu_type::IC_REQ, 0, 128, 0, 128));
    assert_eq!((it.pfv.get(), it.hpda_z, it.maxr2t_z.get()), (0, 0, 0));
    assert_eq!(it.dgst, digests::HEADER | digests::DATA);
    assert_eq!(it.as_bytes(), bytes);
}

#[test]
fn the_kernels_ic_resp_agrees_and_announces_four_megabytes() {
    let it = IcResp::read_from_bytes(&first("tcp-digests.hex", "ic-resp")).expect("128 bytes");
    assert_eq!(it.ch, common(pdu_type::IC_RESP, 0, 128, 0, 128));
    assert_eq!((it.pfv.get(), it.cpda_z, it.dgst), (0, 0, 3));
    assert_eq!(it.maxh2cdata.get(), 0x40_0000);
}

#[test]
fn the_kernels_connect_capsule_has_its_data_behind_the_header_digest() {
    let bytes = first("tcp-digests.hex", "capsule-cmd");
    let (ch, rest) = CommonHeader::read_from_prefix(&bytes).expect("a header");
    let both = flags::HEADER_DIGEST | flags::DATA_DIGEST;
    let plen = 72 + 4 + 1024 + 4;
    assert_eq!(ch, common(pdu_type::CAPSULE_CMD, both, CAPSULE_CMD_BYTES as u8, 76, plen));
    assert_eq!(bytes.len(), plen as usize);
    let (sqe, _) = Sqe::read_from_prefix(rest).expect("an entry");
    assert_eq!((sqe.opcode, sqe.flags), (0x7f, 0x40));
}

#[test]
fn the_kernels_response_capsule_is_a_header_and_a_completion() {
    let bytes = first("tcp-session.hex", "capsule-resp");
    assert_eq!(bytes.len(), CAPSULE_RESP_BYTES);
    let (ch, rest) = CommonHeader::read_from_prefix(&bytes).expect("a header");
    assert_eq!(ch, common(pdu_type::CAPSULE_RESP, 0, 24, 0, 24));
    let cqe = Cqe::read_from_bytes(rest).expect("a completion");
    assert!(cqe.status().is_success());
}

#[test]
fn the_kernels_r2t_and_the_data_that_answers_it_have_one_tag() {
    let bytes = first("tcp-session.hex", "r2t");
    let r2t = R2t::read_from_bytes(&bytes).expect("24 bytes");
    assert_eq!(r2t.ch, common(pdu_type::R2T, 0, 24, 0, 24));
    assert_eq!((r2t.r2to.get(), r2t.r2tl.get()), (0, 16384));
    let (is_host, bytes) = capture("tcp-session.hex", "h2c-data").swap_remove(0);
    assert!(is_host);
    let (data, _) = DataHeader::read_from_prefix(&bytes).expect("a header");
    assert_eq!(data.ch, common(pdu_type::H2C_DATA, flags::LAST_PDU, 24, 24, 24 + 16384));
    assert_eq!((data.cccid, data.ttag), (r2t.cccid, r2t.ttag));
    assert_eq!((data.datao.get(), data.datal.get()), (0, 16384));
}

#[test]
fn the_kernels_data_says_success_without_flow_control_alone() {
    for (file, expected) in [
        ("tcp-session.hex", flags::LAST_PDU),
        ("tcp-no-flow-control.hex", flags::LAST_PDU | flags::SUCCESS),
        ("tcp-digests.hex", flags::LAST_PDU | flags::HEADER_DIGEST | flags::DATA_DIGEST),
    ] {
        let (is_host, bytes) = capture(file, "c2h-data").pop().expect("data");
        assert!(!is_host);
        let (data, _) = DataHeader::read_from_prefix(&bytes).expect("a header");
        assert_eq!((data.ch.pdu_type, data.ch.flags), (pdu_type::C2H_DATA, expected), "{file}");
    }
}

#[test]
fn a_terminate_request_is_that_of_the_figure() {
    // Figure 24 with a header digest error, whose information is 44332211h, and 8 bytes of the header.
    let bytes = [
        3, 0, 24, 0, 32, 0, 0, 0, 0x03, 0x00, 0x11, 0x22, 0x33, 0x44, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 72,
        0, 76, 0, 0, 0,
    ];
    let (it, header) = TermReq::read_from_prefix(&bytes).expect("24 bytes");
    assert_eq!(it.ch, common(pdu_type::C2H_TERM_REQ, 0, 24, 0, 32));
    assert_eq!((it.fes.get(), it.fei.get()), (fatal_error::HEADER_DIGEST_ERROR, 0x4433_2211));
    assert_eq!(header.len(), 8);
}

#[test]
fn the_two_meanings_of_a_fatal_error_status_depend_on_who_says_it() {
    assert_eq!(fatal_error::name(5, true), Some("Data Transfer Limit Exceeded"));
    assert_eq!(fatal_error::name(5, false), Some("R2T Limit Exceeded"));
    assert_eq!(fatal_error::name(7, true), None);
}
