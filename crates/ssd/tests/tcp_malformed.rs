//! Every malformed PDU gets the Terminate Request that the specification names, and ends its connection alone
//! (TCP Transport 1.1, section 3.5 and the figures of the PDUs in 3.6).

mod wire;

use std::time::Duration;

use unvme_ssd::tcp::{Ending, Fatal, Limits};
use wire::{Sqe, Wire, Wishes, pdu, target};

const DIGESTS: Wishes = Wishes { header_digest: true, data_digest: true, hpda_z: 0, maxr2t_z: 0 };
const NO_DIGESTS: Wishes = Wishes { header_digest: false, data_digest: false, hpda_z: 0, maxr2t_z: 0 };
/// Small numbers, so that a write of 8 KiB has several R2Ts of several PDUs each.
const LIMITS: fn() -> Limits = || Limits { h2c_bytes_max: 4096, r2t_bytes_max: 8192, ..Limits::default() };

/// A connection that was just accepted.
fn new() -> Wire {
    Wire::new(&target(), LIMITS())
}

/// A connection after the initialization, before Connect.
fn greeted() -> Wire {
    Wire::greeted(&target(), LIMITS(), NO_DIGESTS)
}

/// An I/O queue of 4 entries, and its admin queue.
fn io(wishes: Wishes) -> (Wire, Wire) {
    Wire::pair(&target(), LIMITS(), wishes, 4)
}

/// An I/O queue with a write of 16 KiB under way, whose first 8 KiB were asked for; its command identifier
/// and transfer tag.
fn asked(wishes: Wishes) -> ((Wire, Wire), u16, u16) {
    let (admin, mut wire) = io(wishes);
    let cid = wire.cid();
    let bytes = wire.capsule(&Sqe::write(0, 32).transported(16384).cid(cid), &[]);
    wire.feed(&bytes);
    let r2t = wire.next().expect("an R2T");
    let (ttag, offset, bytes) = r2t.r2t();
    assert_eq!((r2t.cid(), offset, bytes), (cid, 0, 8192));
    assert!(wire.next().is_none(), "the host takes one R2T at a time");
    ((admin, wire), cid, ttag)
}

/// What `bytes` get: a Terminate Request with this status and information and the first `shown` bytes of
/// them, and nothing else. What follows is thrown away; the connection ends when the host closes it, or when
/// it does not.
#[track_caller]
fn is_terminated(wire: &mut Wire, bytes: &[u8], status: u16, information: u32, shown: usize) {
    wire.feed(bytes);
    let mut expected = vec![3, 0, 24, 0, 24 + shown as u8, 0, 0, 0];
    expected.extend_from_slice(&status.to_le_bytes());
    expected.extend_from_slice(&information.to_le_bytes());
    expected.extend_from_slice(&[0; 10]);
    expected.extend_from_slice(&bytes[..shown]);
    assert_eq!(wire.next().map(|pdu| pdu.0), Some(expected), "the Terminate Request");
    assert_eq!(wire.feed(&pdu::ic_req(&NO_DIGESTS)), 128, "further input is thrown away");
    assert!(wire.output.is_empty(), "nothing follows a Terminate Request");
    assert_eq!(wire.ending(), None, "the host may read it first");
    wire.hang_up();
    assert_eq!(wire.ending(), Some(Ending::Fatal(Fatal { status, information })));
    assert_eq!(wire.connection.next_event(), None);
}

/// The bytes with one of them changed.
fn with(mut bytes: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    bytes[at] = value;
    bytes
}

/// Rules by name: a connection, the bytes that break the rule, FES, FEI, bytes of the header that come back.
macro_rules! rules {
    ($($name:ident($wire:ident = $make:expr) { $bytes:expr } => $status:expr, $information:expr, $shown:expr;)*) => {$(
        #[test]
        fn $name() {
            let mut held = $make;
            #[allow(unused_mut)]
            let mut $wire = held.wire();
            let bytes: Vec<u8> = $bytes;
            is_terminated($wire, &bytes, $status, $information, $shown);
        }
    )*};
}

/// The connection under test, with what it needs to live.
trait Held {
    fn wire(&mut self) -> &mut Wire;
}

impl Held for Wire {
    fn wire(&mut self) -> &mut Wire {
        self
    }
}

impl Held for (Wire, Wire) {
    fn wire(&mut self) -> &mut Wire {
        &mut self.1
    }
}

fn ic_req() -> Vec<u8> {
    pdu::ic_req(&NO_DIGESTS).to_vec()
}

fn flush(wire: &Wire) -> Vec<u8> {
    wire.capsule(&Sqe::flush(), &[])
}

fn write(wire: &Wire, bytes: usize) -> Vec<u8> {
    wire.capsule(&Sqe::write(0, (bytes / 512) as u32).in_capsule(bytes as u32), &vec![7; bytes])
}

rules! {
    // Initialization.
    a_capsule_before_the_ic_req_is_a_sequence_error(wire = new()) { flush(wire) } => 0x02, 0, 72;
    data_before_the_ic_req_is_a_sequence_error(wire = new()) { wire.data(0, 0, 0, &[1; 8], true) } => 0x02, 0, 24;
    a_second_ic_req_is_a_sequence_error(wire = greeted()) { ic_req() } => 0x02, 0, 128;
    a_format_version_that_is_unknown_is_not_supported(wire = new()) { with(ic_req(), 8, 1) } => 0x06, 8, 128;
    an_hpda_of_more_than_five_bits_is_invalid(wire = new()) { with(ic_req(), 10, 32) } => 0x01, 10, 128;
    an_ic_req_with_flags_is_invalid(wire = new()) { with(ic_req(), 1, 1) } => 0x01, 1, 128;
    an_ic_req_with_another_hlen_is_invalid(wire = new()) { with(ic_req(), 2, 127) } => 0x01, 2, 8;
    an_ic_req_with_a_data_offset_is_invalid(wire = new()) { with(ic_req(), 3, 128) } => 0x01, 3, 128;
    an_ic_req_with_another_plen_is_invalid(wire = new()) { with(ic_req(), 4, 132) } => 0x01, 4, 128;

    // Types.
    a_type_that_does_not_exist_is_invalid(wire = greeted()) { with(flush(wire), 0, 0x08) } => 0x01, 0, 8;
    a_request_of_another_protocol_is_invalid(wire = new()) { b"GET / HTTP/1.1\r\n\r\n".to_vec() } => 0x01, 0, 8;
    an_ic_resp_from_a_host_is_invalid(wire = new()) { with(ic_req(), 0, 0x01) } => 0x01, 0, 8;
    a_terminate_request_of_a_controller_is_invalid(wire = greeted()) { with(flush(wire), 0, 0x03) } => 0x01, 0, 8;
    a_response_from_a_host_is_invalid(wire = greeted()) { with(flush(wire), 0, 0x05) } => 0x01, 0, 8;
    data_to_the_host_from_a_host_is_invalid(wire = greeted()) { with(flush(wire), 0, 0x07) } => 0x01, 0, 8;
    an_r2t_from_a_host_is_invalid(wire = greeted()) { with(flush(wire), 0, 0x09) } => 0x01, 0, 8;

    // Capsules: flags, lengths, offsets, the first one that is wrong.
    a_reserved_flag_is_invalid(wire = greeted()) { with(flush(wire), 1, 0x80) } => 0x01, 1, 72;
    a_capsule_with_last_pdu_is_invalid(wire = greeted()) { with(flush(wire), 1, 0x04) } => 0x01, 1, 72;
    a_header_digest_that_is_not_agreed_on_is_invalid(wire = greeted()) { with(flush(wire), 1, 0x01) } => 0x01, 1, 72;
    a_data_digest_that_is_not_agreed_on_is_invalid(wire = io(NO_DIGESTS)) { with(write(wire, 512), 1, 0x02) } => 0x01, 1, 72;
    a_header_digest_that_is_missing_is_invalid(wire = io(DIGESTS)) { with(flush(wire), 1, 0x00) } => 0x01, 1, 72;
    a_data_digest_that_is_missing_is_invalid(wire = io(DIGESTS)) { with(write(wire, 512), 1, 0x01) } => 0x01, 1, 72;
    a_data_digest_of_no_data_is_invalid(wire = io(DIGESTS)) { with(flush(wire), 1, 0x03) } => 0x01, 1, 72;
    flags_come_before_a_wrong_hlen(wire = greeted()) { with(with(flush(wire), 1, 0x80), 2, 64) } => 0x01, 1, 8;
    a_capsule_with_another_hlen_is_invalid(wire = greeted()) { with(flush(wire), 2, 64) } => 0x01, 2, 8;
    a_data_offset_in_the_header_is_invalid(wire = io(NO_DIGESTS)) { with(write(wire, 512), 3, 68) } => 0x01, 3, 72;
    a_data_offset_in_the_header_digest_is_invalid(wire = io(DIGESTS)) { with(write(wire, 512), 3, 72) } => 0x01, 3, 72;
    a_data_offset_that_is_not_aligned_is_invalid(wire = io(NO_DIGESTS)) { with(write(wire, 512), 3, 74) } => 0x01, 3, 72;
    a_data_offset_beyond_the_pdu_is_invalid(wire = io(NO_DIGESTS)) {
        with(with(write(wire, 512), 4, 80), 5, 0).into_iter().enumerate().map(|(at, byte)| if at == 3 { 84 } else { byte }).collect()
    } => 0x01, 3, 72;
    a_data_offset_without_data_is_invalid(wire = io(NO_DIGESTS)) { with(flush(wire), 3, 8) } => 0x01, 3, 72;
    a_plen_shorter_than_the_header_is_invalid(wire = io(NO_DIGESTS)) { with(flush(wire), 4, 71) } => 0x01, 4, 72;
    a_plen_without_the_header_digest_is_invalid(wire = io(DIGESTS)) { with(flush(wire), 4, 72) } => 0x01, 4, 72;
    a_plen_without_the_data_digest_is_invalid(wire = io(DIGESTS)) { with(with(write(wire, 512), 4, 80), 5, 0) } => 0x01, 4, 72;
    more_data_in_a_capsule_than_the_controller_takes_is_invalid(wire = io(NO_DIGESTS)) { write(wire, 8704) } => 0x01, 4, 72;
    a_plen_of_four_gigabytes_is_invalid(wire = io(NO_DIGESTS)) {
        with(with(with(with(write(wire, 512), 4, 0xff), 5, 0xff), 6, 0xff), 7, 0xff)
    } => 0x01, 4, 72;
}

#[test]
fn a_wrong_header_digest_is_fatal_and_comes_back() {
    let (_admin, mut wire) = io(DIGESTS);
    let bytes = flush(&wire);
    let digest = u32::from_le_bytes(bytes[72..76].try_into().expect("4 bytes"));
    let wrong = digest ^ 0x0100;
    let bytes = with(bytes.clone(), 73, bytes[73] ^ 1);
    is_terminated(&mut wire, &bytes, 0x03, wrong, 72);
}

#[test]
fn a_header_that_was_changed_on_its_way_has_a_wrong_header_digest() {
    let (_admin, mut wire) = io(DIGESTS);
    let bytes = flush(&wire);
    let digest = u32::from_le_bytes(bytes[72..76].try_into().expect("4 bytes"));
    is_terminated(&mut wire, &with(bytes, 40, 1), 0x03, digest, 72);
}

#[test]
fn data_for_a_transfer_tag_that_is_unknown_is_invalid() {
    let ((_admin, mut wire), cid, ttag) = asked(NO_DIGESTS);
    let bytes = wire.data(cid, ttag + 1, 0, &[1; 4096], false);
    is_terminated(&mut wire, &bytes, 0x01, 10, 24);
}

#[test]
fn data_for_another_command_than_the_transfer_tags_is_invalid() {
    let ((_admin, mut wire), cid, ttag) = asked(NO_DIGESTS);
    let bytes = wire.data(cid + 1, ttag, 0, &[1; 4096], false);
    is_terminated(&mut wire, &bytes, 0x01, 8, 24);
}

#[test]
fn data_of_another_length_than_the_pdus_is_invalid() {
    let ((_admin, mut wire), cid, ttag) = asked(NO_DIGESTS);
    let bytes = with(wire.data(cid, ttag, 0, &[1; 4096], false), 16, 1);
    is_terminated(&mut wire, &bytes, 0x05, 0, 24);
    let ((_admin, mut wire), cid, ttag) = asked(NO_DIGESTS);
    let bytes = with(wire.data(cid, ttag, 0, &[1; 2048], false), 16, 1);
    is_terminated(&mut wire, &bytes, 0x01, 16, 24);
}

#[test]
fn data_of_no_bytes_is_invalid() {
    let ((_admin, mut wire), cid, ttag) = asked(NO_DIGESTS);
    let bytes = wire.data(cid, ttag, 0, &[], false);
    is_terminated(&mut wire, &bytes, 0x01, 16, 24);
}

#[test]
fn more_data_in_a_pdu_than_maxh2cdata_exceeds_the_limit() {
    let ((_admin, mut wire), cid, ttag) = asked(NO_DIGESTS);
    let bytes = wire.data(cid, ttag, 0, &[1; 4100], false);
    is_terminated(&mut wire, &bytes, 0x05, 0, 24);
}

#[test]
fn data_beyond_what_was_asked_for_is_out_of_range() {
    let ((_admin, mut wire), cid, ttag) = asked(NO_DIGESTS);
    let bytes = wire.data(cid, ttag, 8192, &[1; 512], true);
    is_terminated(&mut wire, &bytes, 0x04, 0, 24);
    let ((_admin, mut wire), cid, ttag) = asked(NO_DIGESTS);
    let bytes = wire.data(cid, ttag, 4100, &[1; 4096], true);
    is_terminated(&mut wire, &bytes, 0x04, 0, 24);
    let ((_admin, mut wire), cid, ttag) = asked(NO_DIGESTS);
    let bytes = wire.data(cid, ttag, 0xffff_ff00, &[1; 512], true);
    is_terminated(&mut wire, &bytes, 0x04, 0, 24);
}

#[test]
fn data_before_what_was_asked_for_is_out_of_range() {
    let ((_admin, mut wire), cid, ttag) = asked(NO_DIGESTS);
    wire.feed(&wire.data(cid, ttag, 0, &[1; 4096], false));
    wire.feed(&wire.data(cid, ttag, 4096, &[1; 4096], true));
    let (ttag, offset, _) = wire.next().expect("the second R2T").r2t();
    assert_eq!(offset, 8192);
    let bytes = wire.data(cid, ttag, 0, &[1; 4096], false);
    is_terminated(&mut wire, &bytes, 0x04, 0, 24);
}

#[test]
fn data_out_of_order_is_a_sequence_error() {
    let ((_admin, mut wire), cid, ttag) = asked(NO_DIGESTS);
    let bytes = wire.data(cid, ttag, 4096, &[1; 4096], true);
    is_terminated(&mut wire, &bytes, 0x02, 0, 24);
    let ((_admin, mut wire), cid, ttag) = asked(NO_DIGESTS);
    wire.feed(&wire.data(cid, ttag, 0, &[1; 4096], false));
    let again = wire.data(cid, ttag, 0, &[1; 4096], false);
    is_terminated(&mut wire, &again, 0x02, 0, 24);
}

#[test]
fn last_pdu_that_is_missing_or_early_is_a_sequence_error() {
    let ((_admin, mut wire), cid, ttag) = asked(NO_DIGESTS);
    wire.feed(&wire.data(cid, ttag, 0, &[1; 4096], false));
    let bytes = wire.data(cid, ttag, 4096, &[1; 4096], false);
    is_terminated(&mut wire, &bytes, 0x02, 0, 24);
    let ((_admin, mut wire), cid, ttag) = asked(NO_DIGESTS);
    let bytes = wire.data(cid, ttag, 0, &[1; 4096], true);
    is_terminated(&mut wire, &bytes, 0x02, 0, 24);
}

#[test]
fn data_of_a_transfer_that_is_over_is_invalid() {
    let ((_admin, mut wire), cid, ttag) = asked(NO_DIGESTS);
    wire.feed(&wire.data(cid, ttag, 0, &[1; 4096], false));
    wire.feed(&wire.data(cid, ttag, 4096, &[1; 4096], true));
    let (second, ..) = wire.next().expect("the second R2T").r2t();
    wire.feed(&wire.data(cid, second, 8192, &[1; 4096], false));
    wire.feed(&wire.data(cid, second, 12288, &[1; 4096], true));
    assert_eq!(wire.next().expect("a response").status(), 0);
    let bytes = wire.data(cid, second, 12288, &[1; 4096], true);
    is_terminated(&mut wire, &bytes, 0x01, 10, 24);
}

#[test]
fn more_commands_than_the_queue_has_entries_are_a_sequence_error() {
    // Four writes that wait for their data fill the queue.
    let (_admin, mut wire) = io(NO_DIGESTS);
    for cid in 0..4 {
        wire.feed(&wire.capsule(&Sqe::write(0, 32).transported(16384).cid(cid), &[]));
        assert_eq!(wire.next().expect("an R2T").cid(), cid);
    }
    let bytes = wire.capsule(&Sqe::flush().cid(9), &[]);
    is_terminated(&mut wire, &bytes, 0x02, 0, 72);
}

#[test]
fn a_terminate_request_of_the_host_is_not_answered() {
    let (_admin, mut wire) = io(DIGESTS);
    let mut bytes = vec![2, 0, 24, 0, 24 + 8, 0, 0, 0, 0x05, 0];
    bytes.extend_from_slice(&[0; 14 + 8]);
    wire.feed(&bytes);
    assert!(wire.output.is_empty());
    assert_eq!(wire.ending(), Some(Ending::TerminatedByHost(0x05)));
}

#[test]
fn a_terminate_request_that_is_malformed_is_not_answered_either() {
    for (at, value) in [(2, 23), (4, 23)] {
        let (_admin, mut wire) = io(NO_DIGESTS);
        let bytes = [2, 0, 24, 0, 24, 0, 0, 0, 0x05, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        wire.feed(&with(bytes.to_vec(), at, value));
        assert!(wire.output.is_empty());
        assert_eq!(wire.ending(), Some(Ending::TerminatedByHost(0)));
    }
}

#[test]
fn a_host_that_does_not_close_after_a_terminate_request_is_waited_for_no_longer_than_allowed() {
    let mut wire = greeted();
    wire.feed(&ic_req());
    assert!(wire.next().is_some());
    let linger = Limits::default().linger;
    wire.wait(linger - Duration::from_nanos(1));
    assert_eq!(wire.ending(), None);
    wire.wait(Duration::from_nanos(1));
    assert_eq!(wire.ending(), Some(Ending::Fatal(Fatal { status: 0x02, information: 0 })));
}

#[test]
fn the_other_connections_of_the_association_go_on() {
    let target = target();
    let (mut admin, mut wire) = Wire::pair(&target, LIMITS(), NO_DIGESTS, 4);
    let mut other = admin.join(&target, LIMITS(), 2, 4);
    is_terminated(&mut wire, &ic_req(), 0x02, 0, 128);
    drop(wire);
    assert_eq!(other.run(Sqe::flush(), &[]).status(), 0);
    assert_eq!(admin.run(Sqe::property_get(0x1c), &[]).cqe_u32(0) & 1, 1, "CSTS.RDY");
    let mut again = admin.join(&target, LIMITS(), 1, 4);
    assert_eq!(again.run(Sqe::flush(), &[]).status(), 0);
}
