//! What a host that keeps to the rules gets (TCP Transport 1.1): expected bytes are those of the
//! specification's figures.

mod wire;

use unvme_ssd::tcp::{Ending, Limits};
use wire::{Sqe, Wire, Wishes, pdu, target};

const NO_DIGESTS: Wishes = Wishes { header_digest: false, data_digest: false, hpda_z: 0, maxr2t_z: 0 };
const DIGESTS: Wishes = Wishes { header_digest: true, data_digest: true, hpda_z: 0, maxr2t_z: 0 };
const TRANSIENT_TRANSPORT_ERROR: u16 = 0x022;
/// With Do Not Retry.
const DATA_SGL_LENGTH_INVALID: u16 = 0x400f;

fn pair(wishes: Wishes, limits: Limits) -> (Wire, Wire) {
    Wire::pair(&target(), limits, wishes, 16)
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// The IDs of command and transfer, the offset and length of the next R2T.
fn r2t(wire: &mut Wire) -> (u16, u16, u32, u32) {
    let pdu = wire.next().expect("an R2T");
    let (ttag, offset, bytes) = pdu.r2t();
    (pdu.cid(), ttag, offset, bytes)
}

#[test]
fn the_ic_resp_says_what_was_agreed_on() {
    let limits = Limits { cpda_z: 5, h2c_bytes_max: 0x2_0000, ..Limits::default() };
    let mut wire = Wire::new(&target(), limits);
    wire.feed(&pdu::ic_req(&Wishes { header_digest: true, data_digest: false, hpda_z: 3, maxr2t_z: 7 }));
    let mut expected = [0; 128];
    // Type, flags, HLEN, PDO, PLEN, PFV, CPDA, DGST, MAXH2CDATA.
    expected[..16].copy_from_slice(&[1, 0, 128, 0, 128, 0, 0, 0, 0, 0, 5, 1, 0, 0, 2, 0]);
    assert_eq!(wire.output, expected);
}

#[test]
fn a_read_comes_as_data_that_says_success() {
    let (_admin, mut wire) = pair(NO_DIGESTS, Limits::default());
    let data = pattern(512);
    assert_eq!(wire.run(Sqe::write(9, 1), &data).status(), 0);
    let bytes = wire.capsule(&Sqe::read(9, 1).cid(0x1234), &[]);
    wire.feed(&bytes);
    let answer = wire.next().expect("data");
    let mut expected =
        vec![7, 0x0c, 24, 24, 24, 2, 0, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0];
    expected.extend_from_slice(&data);
    assert_eq!(answer.0, expected);
    assert!(wire.output.is_empty(), "and no response");
}

#[test]
fn with_flow_control_a_response_with_sqhd_follows_the_data() {
    let (mut admin, _wire) = pair(NO_DIGESTS, Limits::default());
    let identify = Sqe::new(0x06).dword(10, 1).transported(4096).cid(77);
    let bytes = admin.capsule(&identify, &[]);
    admin.feed(&bytes);
    let data = admin.next().expect("data");
    assert_eq!((data.flags(), data.payload().0, data.payload().1.len()), (0x04, 0, 4096));
    let answer = admin.next().expect("a response");
    assert_eq!(answer.0[..8], [5, 0, 24, 0, 24, 0, 0, 0]);
    assert_eq!((answer.cid(), answer.status()), (77, 0));
    assert_eq!(answer.u16(16), 3, "SQHD after Connect, Property Set and this");
}

#[test]
fn all_parts_of_a_read_come_in_order_and_the_last_one_is_marked() {
    let limits = Limits { c2h_bytes_max: 1500, ..Limits::default() };
    let (_admin, mut wire) = pair(NO_DIGESTS, limits);
    let data = pattern(4096);
    assert_eq!(wire.run(Sqe::write(0, 8), &data).status(), 0);
    wire.feed(&wire.capsule(&Sqe::read(0, 8).cid(1), &[]));
    for (offset, bytes, flags) in [(0, 1500, 0x00), (1500, 1500, 0x00), (3000, 1096, 0x0c)] {
        let part = wire.next().expect("data");
        assert_eq!((part.flags(), part.payload()), (flags, (offset, &data[offset as usize..][..bytes])));
    }
    assert!(wire.output.is_empty());
}

#[test]
fn a_read_of_the_largest_transfer_is_one_part() {
    let (_admin, mut wire) = pair(NO_DIGESTS, Limits::default());
    wire.feed(&wire.capsule(&Sqe::read(0, 4096).cid(1), &[]));
    let part = wire.next().expect("data");
    assert_eq!((part.flags(), part.payload().0, part.payload().1.len()), (0x0c, 0, 2 << 20));
    assert!(wire.output.is_empty());
}

#[test]
fn data_is_aligned_as_each_side_asks_and_padded_with_zeroes() {
    let limits = Limits { cpda_z: 31, ..Limits::default() };
    for (hpda_z, pdo) in [(0, 28), (1, 32), (4, 40), (6, 28), (31, 128)] {
        let (_admin, mut wire) = pair(Wishes { hpda_z, ..DIGESTS }, limits);
        let data = pattern(1024);
        assert_eq!(wire.run(Sqe::write(5, 2), &data).status(), 0);
        wire.feed(&wire.capsule(&Sqe::read(5, 2).cid(1), &[]));
        let answer = wire.next().expect("data");
        answer.check_header_digest();
        assert_eq!((usize::from(answer.0[3]), answer.payload()), (pdo, (0, data.as_slice())));
        assert!(answer.0[28..pdo].iter().all(|byte| *byte == 0));
        assert_eq!(answer.u32(4) as usize, pdo + 1024 + 4);
    }
}

#[test]
fn an_r2t_asks_for_data_by_the_figure() {
    let (_admin, mut wire) = pair(NO_DIGESTS, Limits::default());
    wire.feed(&wire.capsule(&Sqe::write(0, 32).transported(16384).cid(0x0203), &[]));
    let answer = wire.next().expect("an R2T");
    let ttag = answer.0[10..12].to_vec();
    let mut expected = vec![9, 0, 24, 0, 24, 0, 0, 0, 0x03, 0x02];
    expected.extend_from_slice(&ttag);
    expected.extend_from_slice(&[0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0]);
    assert_eq!(answer.0, expected);
}

#[test]
fn as_many_r2ts_are_outstanding_as_both_sides_allow_and_their_data_may_come_in_any_order() {
    let limits = Limits { r2t_bytes_max: 4096, r2ts_max: 3, ..Limits::default() };
    for (maxr2t_z, outstanding) in [(0, 1), (1, 2), (15, 3), (u32::MAX, 3)] {
        let (_admin, mut wire) = pair(Wishes { maxr2t_z, ..NO_DIGESTS }, limits);
        let data = pattern(20480);
        wire.feed(&wire.capsule(&Sqe::write(0, 40).transported(20480).cid(7), &[]));
        let mut parts = Vec::new();
        let mut asked = 0;
        while asked < 20480 || !parts.is_empty() {
            while !wire.output.is_empty() {
                let (cid, ttag, offset, bytes) = r2t(&mut wire);
                assert_eq!((cid, offset, bytes), (7, asked, 4096));
                asked += bytes;
                parts.push((ttag, offset));
            }
            assert_eq!(parts.len(), outstanding.min(parts.len() + (20480 - asked as usize) / 4096));
            // The newest first.
            let (ttag, offset) = parts.pop().expect("a part");
            let part = &data[offset as usize..offset as usize + 4096];
            let first = wire.data(7, ttag, offset, &part[..1000], false);
            let second = wire.data(7, ttag, offset + 1000, &part[1000..], true);
            wire.feed(&first);
            wire.feed(&second);
        }
        assert_eq!(wire.next().expect("a response").status(), 0);
        wire.feed(&wire.capsule(&Sqe::read(0, 40).cid(8), &[]));
        assert_eq!(wire.next().expect("data").payload().1, data);
    }
}

#[test]
fn a_wrong_digest_of_data_in_a_capsule_fails_the_command_and_it_may_be_sent_again() {
    let (_admin, mut wire) = pair(DIGESTS, Limits::default());
    assert_eq!(wire.run(Sqe::write(3, 1), &[1; 512]).status(), 0);
    let mut bytes = wire.capsule(&Sqe::write(3, 1).in_capsule(512).cid(50), &[2; 512]);
    let good = bytes.clone();
    let data = usize::from(bytes[3]);
    bytes[data + 100] ^= 0x10;
    wire.feed(&bytes);
    let answer = wire.next().expect("a response");
    assert_eq!((answer.cid(), answer.status()), (50, TRANSIENT_TRANSPORT_ERROR));
    wire.feed(&wire.capsule(&Sqe::read(3, 1).cid(51), &[]));
    assert_eq!(wire.next().expect("data").payload().1, [1; 512], "nothing was written");
    wire.feed(&good);
    assert_eq!(wire.next().expect("a response").status(), 0);
    wire.feed(&wire.capsule(&Sqe::read(3, 1).cid(52), &[]));
    assert_eq!(wire.next().expect("data").payload().1, [2; 512]);
}

#[test]
fn after_a_wrong_digest_the_data_that_was_asked_for_is_taken_and_no_more_is_asked_for() {
    let limits = Limits { r2t_bytes_max: 4096, r2ts_max: 2, ..Limits::default() };
    let (_admin, mut wire) = pair(Wishes { maxr2t_z: 1, ..DIGESTS }, limits);
    wire.feed(&wire.capsule(&Sqe::write(0, 32).transported(16384).cid(60), &[]));
    let ((_, first, ..), (_, second, ..)) = (r2t(&mut wire), r2t(&mut wire));
    let mut bytes = wire.data(60, first, 0, &[9; 4096], true);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    wire.feed(&bytes);
    assert!(wire.output.is_empty(), "neither an R2T nor a response: {:?}", wire.next());
    wire.feed(&wire.data(60, second, 4096, &[9; 4096], true));
    let answer = wire.next().expect("a response");
    assert_eq!((answer.cid(), answer.status()), (60, TRANSIENT_TRANSPORT_ERROR));
    assert_eq!(wire.ending(), None);
    assert_eq!(wire.run(Sqe::write(0, 1), &[3; 512]).status(), 0, "the connection lives");
    assert!(wire.connection.is_idle());
}

#[test]
fn a_capsule_with_less_or_more_data_than_its_command_says_fails_and_its_data_is_skipped() {
    let (_admin, mut wire) = pair(NO_DIGESTS, Limits::default());
    for bytes in [512, 1536] {
        let capsule = wire.capsule(&Sqe::write(0, 2).in_capsule(1024).cid(4), &vec![7; bytes]);
        wire.feed(&capsule);
        let answer = wire.next().expect("a response");
        assert_eq!((answer.cid(), answer.status()), (4, DATA_SGL_LENGTH_INVALID));
    }
    assert_eq!(wire.run(Sqe::flush(), &[]).status(), 0);
}

#[test]
fn data_that_no_command_wants_is_skipped() {
    let (_admin, mut wire) = pair(DIGESTS, Limits::default());
    let mut flush = wire.capsule(&Sqe::flush().cid(1), &[5; 8192]);
    // Nor does its digest matter.
    let last = flush.len() - 1;
    flush[last] ^= 1;
    wire.feed(&flush);
    assert_eq!(wire.next().expect("a response").status(), 0);
    let write = wire.capsule(&Sqe::write(0, 32).transported(16384).cid(2), &[5; 100]);
    wire.feed(&write);
    assert_eq!(r2t(&mut wire).0, 2);
}

#[test]
fn before_connect_every_other_command_is_out_of_sequence() {
    let mut wire = Wire::greeted(&target(), Limits::default(), NO_DIGESTS);
    for _ in 0..3 {
        assert_eq!(wire.run(Sqe::flush(), &[]).status() & 0x7ff, 0x00c, "Command Sequence Error");
    }
    assert_eq!(wire.connect(0, 31, 0xffff, 0), 1);
}

#[test]
fn a_host_that_goes_takes_its_commands_with_it() {
    let target = target();
    let (admin, mut wire) = Wire::pair(&target, Limits::default(), NO_DIGESTS, 16);
    wire.feed(&wire.capsule(&Sqe::write(0, 32).transported(16384).cid(1), &[]));
    wire.feed(&wire.capsule(&Sqe::write(0, 1).in_capsule(512).cid(2), &[1; 512])[..300]);
    wire.hang_up();
    assert_eq!(wire.ending(), Some(Ending::Closed));
    assert!(!wire.connection.wants_input() && !wire.connection.wants_output());
    drop((wire, admin));
    assert_eq!(target.memory().used(), 0);
}

/// Reads of 8 KiB are executed 16 at a time: what a deep queue asks for at once takes no more memory than
/// that, and the first answers leave before the last commands begin.
#[test]
fn what_comes_at_once_is_executed_a_part_at_a_time() {
    const READS: u16 = 60;
    let (_admin, mut wire) = Wire::pair(&target(), Limits::default(), NO_DIGESTS, 64);
    let burst: Vec<u8> = (0..READS).flat_map(|cid| wire.capsule(&read_8k(cid), &[])).collect();
    let mut given = 0;
    let mut most = 0;
    // The receive buffer grows with what comes.
    while given < burst.len() {
        given += wire.give(&burst[given..]);
        most = most.max(wire.connection.queue().outstanding());
        wire.connection.advance(&wire.clock);
        wire.take();
    }
    for _ in 0..READS {
        most = most.max(wire.connection.queue().outstanding());
        wire.connection.advance(&wire.clock);
        wire.take();
    }
    assert_eq!(most, 16, "commands that have begun");
    for cid in 0..READS {
        let data = wire.next().expect("data");
        assert_eq!((data.kind(), data.cid()), (7, cid));
    }
    assert!(wire.output.is_empty() && wire.connection.is_idle());
}

/// What has begun may take its time, and what is sent may not be taken: what has arrived is looked at all the
/// same, without another byte.
#[test]
fn what_is_left_of_a_burst_begins_though_nothing_can_be_sent() {
    const READS: u16 = 24;
    let (_admin, mut wire) = Wire::pair(&target(), Limits::default(), NO_DIGESTS, 64);
    let burst: Vec<u8> = (0..READS).flat_map(|cid| wire.capsule(&read_8k(cid), &[])).collect();
    assert_eq!(wire.give(&burst), burst.len());
    assert_eq!(wire.connection.queue().outstanding(), 16);
    assert_eq!(wire.connection.next_event(), Some(wire.clock.now()), "there is more");
    for _ in 0..2 {
        wire.connection.advance(&wire.clock);
    }
    assert_eq!(wire.connection.queue().outstanding(), 24);
    wire.feed(&[]);
    assert_eq!((0..READS).filter_map(|_| wire.next()).count(), 24);
}

fn read_8k(cid: u16) -> Sqe {
    Sqe::read(0, 16).cid(cid)
}
