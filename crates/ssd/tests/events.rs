//! Asynchronous events, and Abort.

mod host;

use host::{BASE, DATA, Host, sqe};
use unvme_spec::{Cqe, Sqe, Status};

const TEMPERATURE_EVENT: u32 = 0x0002_0101;
const INVALID_DOORBELL_REGISTER: u32 = 0x0001_0000;
const INVALID_DOORBELL_VALUE: u32 = 0x0001_0100;
const NAMESPACE_CHANGED: u32 = 0x0004_0002;

/// Submits an Asynchronous Event Request; returns its command identifier.
fn request(host: &mut Host) -> u16 {
    let cid = host.push(0, sqe(0x0c, 0));
    host.ring(0);
    host.advance();
    cid
}

fn event(host: &mut Host) -> Option<(u16, u32, Status)> {
    host.advance();
    host.poll(0).map(|cqe: Cqe| (cqe.cid, cqe.dw0, cqe.status()))
}

fn set_feature(host: &mut Host, fid: u32, value: u32) {
    assert_eq!(host.admin(Sqe { cdw10: fid, cdw11: value, ..sqe(0x09, 0) }), Ok(0));
}

/// Reads a log page; `retain` sets RAE.
fn read_log(host: &mut Host, lid: u32, dwords: u32, retain: bool) -> Vec<u8> {
    let cdw10 = (dwords - 1) << 16 | u32::from(retain) << 15 | lid;
    host.admin_in(Sqe { cdw10, ..sqe(0x02, 0) }, dwords as usize * 4).unwrap()
}

/// Attaches (0) or detaches (1) namespace 1.
fn attach(host: &mut Host, select: u32) {
    // One controller, number 0.
    host.memory.fill(DATA, 4096, 0);
    host.memory.write(DATA, &[1, 0]);
    let mut attach = Sqe { cdw10: select, ..sqe(0x15, 1) };
    attach.dptr = [BASE + DATA as u64, 0];
    assert_eq!(host.admin(attach), Ok(0));
}

fn abort(sqid: u16, cid: u16) -> Sqe {
    Sqe { cdw10: u32::from(cid) << 16 | u32::from(sqid), ..sqe(0x08, 0) }
}

#[test]
fn four_requests_may_be_outstanding_and_the_fifth_is_one_too_many() {
    let mut host = Host::started(512);
    for _ in 0..4 {
        request(&mut host);
        assert_eq!(event(&mut host), None);
    }
    assert_eq!(host.admin(sqe(0x0c, 0)), Err(Status::AER_LIMIT_EXCEEDED));
    assert_eq!(host.admin(sqe(0x18, 0)), Err(Status::INVALID_OPCODE), "other commands go on");
}

#[test]
fn an_aborted_request_completes_before_the_abort_does() {
    let mut host = Host::started(512);
    let (first, second) = (request(&mut host), request(&mut host));
    for cid in [second, first] {
        let aborting = host.push(0, abort(0, cid));
        host.ring(0);
        assert_eq!(event(&mut host), Some((cid, 0, Status::ABORT_REQUESTED)));
        assert_eq!(event(&mut host), Some((aborting, 0, Status::SUCCESS)));
        assert_eq!(host.admin(abort(0, cid)), Ok(1), "it is gone");
    }
}

#[test]
fn a_command_that_cannot_be_aborted_says_so() {
    let mut host = Host::with_queues(512);
    let outstanding = request(&mut host);
    for (sqid, cid) in [(0, 0x7777), (1, outstanding), (1, 1), (64, 0), (0xffff, 0xffff)] {
        assert_eq!(host.admin(abort(sqid, cid)), Ok(1), "queue {sqid}, command {cid}");
    }
    assert_eq!(event(&mut host), None, "the request is still outstanding");
}

#[test]
fn a_reset_forgets_requests_and_events() {
    let mut host = Host::started(512);
    request(&mut host);
    host.ring_tail(0, 9999);
    host.disable();
    host.enable();
    assert_eq!(event(&mut host), None);
    for _ in 0..4 {
        request(&mut host);
    }
    assert_eq!(event(&mut host), None);
}

#[test]
fn a_doorbell_value_beyond_the_queue_is_an_error_event_and_an_error_entry() {
    let mut host = Host::with_queues(512);
    let cid = request(&mut host);
    host.ring_tail(1, 64);
    assert_eq!(event(&mut host), None, "the admin queue has had its turn before the doorbell was looked at");
    assert_eq!(event(&mut host), Some((cid, INVALID_DOORBELL_VALUE, Status::SUCCESS)));
    let log = read_log(&mut host, 0x01, 16, false);
    // Error count 1, no queue, no command, Invalid Field, no parameter.
    assert_eq!(log[..16], [1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 4, 0, 0xff, 0xff]);
    // The same wrong value is reported once; a right one puts the queue back to work.
    request(&mut host);
    host.advance();
    assert_eq!(event(&mut host), None);
    host.ring_tail(1, 0);
    assert!(host.execute(1, sqe(0x00, 1)).status().is_success());
}

#[test]
fn a_completion_doorbell_beyond_the_queue_is_an_error_event_too() {
    let mut host = Host::with_queues(512);
    let cid = request(&mut host);
    host.ring_head(1, 0xffff_ffff);
    host.push(1, sqe(0x00, 1));
    host.ring(1);
    host.advance();
    assert_eq!(event(&mut host), Some((cid, INVALID_DOORBELL_VALUE, Status::SUCCESS)));
    assert_eq!(host.poll(1), None, "there is no telling how much room there is");
    host.ring_head(1, 0);
    host.advance();
    assert!(host.poll(1).is_some());
}

#[test]
fn a_write_to_the_doorbell_of_no_queue_is_an_error_event() {
    let mut host = Host::started(512);
    let cid = request(&mut host);
    // Submission queue 1 and, with the next request, completion queue 70.
    host.write32(0x1000 + 8, 1);
    assert_eq!(event(&mut host), Some((cid, INVALID_DOORBELL_REGISTER, Status::SUCCESS)));
    read_log(&mut host, 0x01, 16, false);
    host.write32(0x1000 + 70 * 8 + 4, 1);
    let cid = request(&mut host);
    assert_eq!(event(&mut host), Some((cid, INVALID_DOORBELL_REGISTER, Status::SUCCESS)), "it had waited");
}

#[test]
fn crossing_a_temperature_threshold_is_an_event_when_the_host_wants_it() {
    let mut host = Host::started(512);
    let cid = request(&mut host);
    set_feature(&mut host, 0x04, 313);
    assert_eq!(event(&mut host), None, "not asked for");
    assert_eq!(read_log(&mut host, 0x02, 128, true)[..3], [0b10, 57, 1], "critical warning, 313 K");
    set_feature(&mut host, 0x0b, 0b10);
    assert_eq!(
        event(&mut host),
        Some((cid, TEMPERATURE_EVENT, Status::SUCCESS)),
        "now it is, and it is too hot"
    );
    // While the event is not cleared there is no second one.
    let cid = request(&mut host);
    set_feature(&mut host, 0x04, 343);
    set_feature(&mut host, 0x04, 1 << 20 | 313);
    assert_eq!(event(&mut host), None);
    assert_eq!(read_log(&mut host, 0x02, 128, false)[0], 0b10, "too cold");
    set_feature(&mut host, 0x04, 1 << 20 | 312);
    assert_eq!(read_log(&mut host, 0x02, 128, false)[0], 0, "just right");
    assert_eq!(event(&mut host), None);
    set_feature(&mut host, 0x04, 1 << 20 | 400);
    assert_eq!(event(&mut host), Some((cid, TEMPERATURE_EVENT, Status::SUCCESS)));
}

#[test]
fn an_event_is_masked_until_its_log_page_is_read_without_retaining_it() {
    let mut host = Host::started(512);
    set_feature(&mut host, 0x0b, 1 << 8);
    let first = request(&mut host);
    attach(&mut host, 1);
    assert_eq!(event(&mut host), Some((first, NAMESPACE_CHANGED, Status::SUCCESS)));
    let second = request(&mut host);
    attach(&mut host, 0);
    assert_eq!(event(&mut host), None);
    assert_eq!(read_log(&mut host, 0x04, 1024, true)[..8], [1, 0, 0, 0, 0, 0, 0, 0], "retained");
    assert_eq!(event(&mut host), None, "still masked");
    assert_eq!(read_log(&mut host, 0x04, 1024, false)[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(event(&mut host), None, "the host has seen the second change as well");
    assert_eq!(read_log(&mut host, 0x04, 1024, false), vec![0; 4096], "reading it emptied it");
    attach(&mut host, 1);
    assert_eq!(event(&mut host), Some((second, NAMESPACE_CHANGED, Status::SUCCESS)));
}

#[test]
fn events_of_different_types_do_not_mask_each_other() {
    let mut host = Host::started(512);
    set_feature(&mut host, 0x0b, 1 << 8 | 0b10);
    let cids = [request(&mut host), request(&mut host), request(&mut host)];
    attach(&mut host, 1);
    assert_eq!(event(&mut host), Some((cids[0], NAMESPACE_CHANGED, Status::SUCCESS)));
    set_feature(&mut host, 0x04, 300);
    assert_eq!(event(&mut host), Some((cids[1], TEMPERATURE_EVENT, Status::SUCCESS)));
    host.write32(0x1000 + 8, 1);
    assert_eq!(event(&mut host), Some((cids[2], INVALID_DOORBELL_REGISTER, Status::SUCCESS)));
}

#[test]
fn changes_are_listed_even_when_nobody_wants_the_event() {
    let mut host = Host::started(512);
    request(&mut host);
    attach(&mut host, 1);
    assert_eq!(event(&mut host), None);
    assert_eq!(read_log(&mut host, 0x04, 2, false), [1, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn events_wait_for_room_in_the_completion_queue() {
    let mut host = Host::started(512);
    let cids = [request(&mut host), request(&mut host)];
    // Fill the queue: 31 of 32 entries, none of them taken.
    let fillers: Vec<u16> = (0..31).map(|_| host.push(0, abort(0, 0x7777))).collect();
    host.ring(0);
    assert_eq!(host.advance(), 31);
    host.write32(0x1000 + 8, 1);
    host.advance();
    for cid in fillers {
        assert_eq!(host.poll(0).map(|cqe| cqe.cid), Some(cid));
    }
    assert_eq!(host.poll(0), None);
    assert_eq!(event(&mut host), Some((cids[0], INVALID_DOORBELL_REGISTER, Status::SUCCESS)));
}
