//! What public controller-compliance programs demand of a controller, one test a demand.
//!
//! The demands are those of SPDK's `nvme_compliance`, `aer`, `doorbell_aers`, `fused_ordering` and `abort`;
//! the tests are ours, and go through queues and doorbells as those programs do.

mod host;

use host::blocks::{COMPARE, READ, WRITE, transfer};
use host::{BASE, DATA, Host, attached, config, device, sqe};
use unvme_bus::{Dma, Function};
use unvme_spec::{Cqe, Sqe, Status};
use unvme_ssd::{NamespaceConfig, NamespaceKind, SsdConfig};

const DELETE_SQ: u8 = 0x00;
const CREATE_SQ: u8 = 0x01;
const GET_LOG: u8 = 0x02;
const DELETE_CQ: u8 = 0x04;
const CREATE_CQ: u8 = 0x05;
const IDENTIFY: u8 = 0x06;
const ABORT: u8 = 0x08;
const SET_FEATURES: u8 = 0x09;
const GET_FEATURES: u8 = 0x0a;
const ASYNC_EVENT: u8 = 0x0c;
const FABRICS: u8 = 0x7f;

const NUMBER_OF_QUEUES: u32 = 0x07;
/// CAP.MQES and CAP.CQR of the devices made here: the largest queue, zero-based, and contiguous queues only.
const MQES: u32 = 4095;
/// Rounds in which a device without work has looked at every doorbell.
const ROUNDS: usize = 2048;

fn with(sqe: Sqe, cdw10: u32, cdw11: u32) -> Sqe {
    Sqe { cdw10, cdw11, ..sqe }
}

fn create_cq(qid: u32, size_z: u32, cdw11: u32) -> Sqe {
    Sqe { dptr: [BASE + DATA as u64, 0], ..with(sqe(CREATE_CQ, 0), size_z << 16 | qid, cdw11) }
}

fn create_sq(qid: u32, size_z: u32, cdw11: u32) -> Sqe {
    Sqe { opcode: CREATE_SQ, ..create_cq(qid, size_z, cdw11) }
}

fn delete(opcode: u8, qid: u32) -> Sqe {
    with(sqe(opcode, 0), qid, 0)
}

/// A host that has read a block through queue pair 1.
fn reading() -> Host {
    let mut host = Host::with_queues(512);
    let read = transfer(&host, READ, 0, 1, DATA, 512);
    assert_eq!(host.io(read), Ok(0));
    host
}

/// Lets the device work until something completes on the admin queue.
fn await_admin(host: &mut Host) -> Option<Cqe> {
    (0..ROUNDS).find_map(|_| {
        host.advance();
        host.poll(0)
    })
}

#[test]
fn identify_controller_fails_when_the_data_pointer_describes_less_than_it_returns() {
    let mut host = Host::started(512);
    let identify = with(sqe(IDENTIFY, 0), 1, 0);
    assert_eq!(host.admin_in(identify, 4096).unwrap()[..2], [0x36, 0x1b]);
    // The last KiB of a page and no second entry: three KiB have nowhere to go.
    let short = Sqe { dptr: [BASE + DATA as u64 + 3072, 0], ..identify };
    host.memory.fill(DATA, 4096, 0xee);
    assert_eq!(host.admin(short), Err(Status::DATA_TRANSFER_ERROR));
    assert_eq!(host.bytes(DATA, 4096), [0xee; 4096], "and nothing was written");
}

#[test]
fn admin_commands_are_never_fused() {
    let mut host = Host::started(512);
    let identify = Sqe { dptr: [BASE + DATA as u64, 0], ..with(sqe(IDENTIFY, 0), 1, 0) };
    // Both commands of the pair with one doorbell, as a host submits them.
    let cids = [1, 2].map(|flags| host.push(0, Sqe { flags, ..identify }));
    host.ring(0);
    host.advance();
    for cid in cids {
        let cqe = host.poll(0).expect("a completion");
        assert_eq!((cqe.cid, cqe.status().kind()), (cid, Status::INVALID_FIELD));
    }
    assert_eq!(host.admin(Sqe { flags: 3, ..identify }), Err(Status::INVALID_FIELD));
    assert_eq!(host.admin(identify), Ok(0));
}

#[test]
fn admin_commands_over_pcie_have_no_sgl() {
    let mut host = Host::started(512);
    let block = [BASE + DATA as u64, 4096];
    for flags in [0x40, 0x80, 0xc0] {
        for (opcode, cdw10) in
            [(IDENTIFY, 1), (GET_LOG, 127 << 16 | 2), (GET_FEATURES, 1), (CREATE_CQ, 7 << 16 | 1)]
        {
            let command = Sqe { flags, dptr: block, ..with(sqe(opcode, 0), cdw10, 1) };
            assert_eq!(
                host.admin(command),
                Err(Status::INVALID_FIELD),
                "opcode {opcode:#x}, flags {flags:#x}"
            );
        }
    }
    host.create_cq(1, 8).expect("none of them has created a queue");
}

#[test]
fn identify_namespace_knows_broadcast_active_and_inactive_namespaces() {
    let first = NamespaceConfig { bytes: Some(16 << 20), kind: NamespaceKind::Blocks(512) };
    let mut host = attached(SsdConfig { namespaces: vec![first], ..config(512) });
    host.enable();
    let controller = host.admin_in(with(sqe(IDENTIFY, 0), 1, 0), 4096).unwrap();
    let nn = u32::from_le_bytes(controller[516..520].try_into().unwrap());
    assert_eq!(nn, 128);
    assert_eq!(controller[256] & 1 << 3, 1 << 3, "OACS: namespace management, so broadcast is allowed");
    let mut identify = |nsid| host.admin_in(with(sqe(IDENTIFY, nsid), 0, 0), 4096);
    assert_eq!(identify(0), Err(Status::INVALID_NAMESPACE_OR_FORMAT));
    assert_eq!(identify(nn + 1), Err(Status::INVALID_NAMESPACE_OR_FORMAT));
    let common = identify(u32::MAX).unwrap();
    assert_eq!(common[130], 9, "LBAF 0: 512 bytes");
    let active = identify(1).unwrap();
    assert_eq!(active[..8], [0, 0x80, 0, 0, 0, 0, 0, 0], "NSZE: 32768 blocks");
    assert_eq!(active[24] & 1 << 4, 0, "NSFEAT: no preferred granularities, which a host would check");
    for inactive in [2, nn] {
        assert!(identify(inactive).unwrap() == [0; 4096], "namespace {inactive}");
    }
}

#[test]
fn all_mandatory_features_can_be_read() {
    let mut host = Host::started(512);
    for (fid, expected) in [
        (0x01, 0x0f03_0007),
        (0x02, 0),
        (0x04, 343),
        (0x05, 0),
        (0x07, 0x003f_003f),
        (0x08, 0),
        (0x09, 0),
        (0x0a, 0),
        (0x0b, 0),
        (0x0f, 0),
    ] {
        assert_eq!(host.admin(with(sqe(GET_FEATURES, 0), fid, 0)), Ok(expected), "feature {fid:#04x}");
    }
    assert_eq!(host.admin_in(with(sqe(GET_FEATURES, 0), 0x16, 0), 512).unwrap(), [0; 512]);
}

#[test]
fn the_number_of_queues_is_negotiated_once_and_never_with_ffffh() {
    let mut host = Host::started(512);
    let set = |value| with(sqe(SET_FEATURES, 0), NUMBER_OF_QUEUES, value);
    for value in [0xffff_ffff, 0x0000_ffff, 0xffff_0000] {
        assert_eq!(host.admin(set(value)), Err(Status::INVALID_FIELD), "{value:#010x}");
    }
    // What SPDK asks for at first.
    assert_eq!(host.admin(set(0x03ff_03ff)), Ok(0x003f_003f));
    host.create_queue_pair(1, 256);
    assert_eq!(host.admin(set(0x0080_0080)), Err(Status::COMMAND_SEQUENCE_ERROR));
    assert_eq!(host.admin(with(sqe(GET_FEATURES, 0), NUMBER_OF_QUEUES, 0)), Ok(0x003f_003f));
}

#[test]
fn mandatory_log_pages_can_be_read_with_and_without_a_namespace() {
    let mut host = Host::started(512);
    for nsid in [0, u32::MAX] {
        for (lid, bytes) in [(0x01, 64), (0x01, 4096), (0x02, 512), (0x03, 512)] {
            let dwords_z = bytes / 4 - 1;
            let get = with(sqe(GET_LOG, nsid), dwords_z << 16 | lid, 0);
            assert!(host.admin_in(get, bytes as usize).is_ok(), "log {lid:#04x}, namespace {nsid:#x}");
        }
    }
}

#[test]
fn a_log_page_offset_is_within_the_page() {
    let mut host = Host::started(512);
    let get = |offset| Sqe { cdw12: offset, ..with(sqe(GET_LOG, 0), 127 << 16 | 3, 0) };
    let whole = host.admin_in(get(0), 512).unwrap();
    assert_eq!(host.admin_in(get(516), 512), Err(Status::INVALID_FIELD));
    assert_eq!(host.admin_in(get(u32::MAX - 3), 512), Err(Status::INVALID_FIELD));
    let rest = host.admin_in(get(4), 512).unwrap();
    assert!(rest[..508] == whole[4..], "the page from its second dword");
    assert_eq!(rest[508..], [0xee; 4], "what is behind the page is left alone");
}

#[test]
fn fabrics_commands_are_not_for_pcie() {
    let mut host = Host::started(512);
    // Property Get of CAP, eight bytes.
    let get = with(sqe(FABRICS, 4), 1, 0);
    assert_eq!(host.admin(get), Err(Status::INVALID_OPCODE));
}

#[test]
fn the_admin_queue_cannot_be_deleted() {
    let mut host = Host::started(512);
    for opcode in [DELETE_SQ, DELETE_CQ] {
        assert_eq!(host.admin(delete(opcode, 0)), Err(Status::INVALID_QUEUE_IDENTIFIER));
    }
}

#[test]
fn a_submission_queue_is_deleted_once_and_its_completion_queue_after_it() {
    let mut host = reading();
    assert_eq!(host.admin(delete(DELETE_SQ, 1)), Ok(0));
    assert_eq!(host.admin(delete(DELETE_SQ, 1)), Err(Status::INVALID_QUEUE_IDENTIFIER));
    assert_eq!(host.admin(delete(DELETE_CQ, 1)), Ok(0));
    assert_eq!(host.admin(delete(DELETE_CQ, 1)), Err(Status::INVALID_QUEUE_IDENTIFIER));
}

#[test]
fn a_completion_queue_in_use_cannot_be_deleted() {
    let mut host = reading();
    assert_eq!(host.admin(delete(DELETE_CQ, 1)), Err(Status::INVALID_QUEUE_DELETION));
    let read = transfer(&host, READ, 0, 1, DATA, 512);
    assert_eq!(host.io(read), Ok(0), "the pair still works");
    assert_eq!(host.admin(delete(DELETE_SQ, 1)), Ok(0));
    assert_eq!(host.admin(delete(DELETE_CQ, 1)), Ok(0));
}

#[test]
fn a_completion_queue_has_an_existing_vector_and_contiguous_memory() {
    let mut host = Host::started(512);
    let vector = |iv: u32, pc| iv << 16 | 0b10 | pc;
    assert_eq!(host.admin(create_cq(1, MQES, vector(2048, 1))), Err(Status::INVALID_INTERRUPT_VECTOR));
    assert_eq!(host.admin(create_cq(1, MQES, vector(1, 0))), Err(Status::INVALID_FIELD));
    assert_eq!(host.admin(create_cq(1, MQES, vector(1, 1))), Ok(0));
    assert_eq!(host.admin(delete(DELETE_CQ, 1)), Ok(0));
}

#[test]
fn a_submission_queue_has_a_legal_size_and_an_io_completion_queue() {
    let mut host = reading();
    let queues = host.admin(with(sqe(GET_FEATURES, 0), NUMBER_OF_QUEUES, 0)).unwrap() as u32;
    let ncqr = (queues >> 16) + 1;
    assert_eq!(host.admin(delete(DELETE_SQ, 1)), Ok(0));
    let create = |size_z, cqid: u32| create_sq(1, size_z, cqid << 16 | 1);
    assert_eq!(host.admin(create(0, 1)), Err(Status::INVALID_QUEUE_SIZE));
    assert_eq!(host.admin(create(MQES + 1, 1)), Err(Status::INVALID_QUEUE_SIZE));
    assert_eq!(host.admin(create(MQES, 0)), Err(Status::INVALID_QUEUE_IDENTIFIER));
    assert_eq!(host.admin(create(MQES, ncqr + 1)), Err(Status::INVALID_QUEUE_IDENTIFIER));
    assert_eq!(host.admin(create(MQES, 1)), Ok(0));
}

#[test]
fn a_submission_queue_is_contiguous() {
    let mut host = Host::with_queues(512);
    assert_eq!(host.admin(delete(DELETE_SQ, 1)), Ok(0));
    assert_eq!(host.admin(create_sq(1, MQES, 1 << 16)), Err(Status::INVALID_FIELD));
    assert_eq!(host.admin(create_sq(1, MQES, 1 << 16 | 1)), Ok(0));
}

#[test]
fn all_queue_pairs_that_were_offered_work_at_once_and_there_is_not_one_more() {
    let mut host = Host::started(512);
    let queues = host.admin(with(sqe(GET_FEATURES, 0), NUMBER_OF_QUEUES, 0)).unwrap() as u32;
    let pairs = ((queues & 0xffff).min(queues >> 16) + 1) as u16;
    for qid in 1..=pairs {
        host.create_queue_pair(qid, 2);
    }
    for qid in 1..=pairs {
        assert!(host.execute(qid, sqe(0x00, 1)).status().is_success(), "queue pair {qid}");
    }
    assert_eq!(host.create_cq(pairs + 1, 2), Err(Status::INVALID_QUEUE_IDENTIFIER));
}

#[test]
fn submission_queues_share_completion_queues_in_any_pattern() {
    let mut host = Host::started(512);
    let set = with(sqe(SET_FEATURES, 0), NUMBER_OF_QUEUES, 1 << 16 | 3);
    assert_eq!(host.admin(set), Ok(0x003f_003f), "more than asked for is allowed");
    host.create_cq(1, 8).unwrap();
    host.create_cq(2, 8).unwrap();
    for (sqid, cqid) in [(1, 2), (2, 2), (3, 2), (4, 1)] {
        host.create_sq(sqid, cqid, 8).unwrap();
    }
    for (sqid, cqid) in [(1, 2), (2, 2), (3, 2), (4, 1)] {
        let cid = host.push(sqid, sqe(0x00, 1));
        host.ring(sqid);
        host.advance();
        assert_eq!(host.poll(cqid).map(|cqe| (cqe.sq_id, cqe.cid)), Some((sqid, cid)));
    }
    assert_eq!(host.admin(delete(DELETE_SQ, 1)), Ok(0));
    assert_eq!(host.admin(delete(DELETE_SQ, 2)), Ok(0));
    assert_eq!(host.admin(delete(DELETE_CQ, 2)), Err(Status::INVALID_QUEUE_DELETION));
    for (opcode, qid) in [(DELETE_SQ, 3), (DELETE_SQ, 4), (DELETE_CQ, 2), (DELETE_CQ, 1)] {
        assert_eq!(host.admin(delete(opcode, qid)), Ok(0));
    }
}

/// A host with queue pair 1 of 32 entries and an outstanding Asynchronous Event Request.
fn awaiting_events() -> (Host, u16) {
    let mut host = Host::started(512);
    host.create_queue_pair(1, 32);
    let cid = request_event(&mut host);
    (host, cid)
}

fn request_event(host: &mut Host) -> u16 {
    let cid = host.push(0, sqe(ASYNC_EVENT, 0));
    host.ring(0);
    host.advance();
    cid
}

/// The next event is this one; its log page is read, which lets the next one come.
fn expect_event(host: &mut Host, cid: u16, event: u32) {
    let cqe = await_admin(host).expect("an event");
    assert_eq!((cqe.cid, cqe.dw0, cqe.status()), (cid, event, Status::SUCCESS));
    let log = host.admin_in(with(sqe(GET_LOG, u32::MAX), 1023 << 16 | 1, 0), 4096).unwrap();
    assert_ne!(log[..8], [0; 8], "there is an entry in the Error Information log");
}

#[test]
fn doorbells_that_are_no_ones_are_noticed_in_memory_whatever_is_written_to_them() {
    let (mut host, mut cid) = awaiting_events();
    // Zero is what a new queue's doorbell holds: the value alone does not say that it was written.
    for (qid, is_head, value) in
        [(2, false, 0), (2, true, 0), (64, false, 1), (64, true, 7), (65, false, 0), (511, true, 0)]
    {
        if is_head {
            host.ring_head(qid, value)
        } else {
            host.ring_tail(qid, value)
        }
        expect_event(&mut host, cid, 0x0001_0000);
        cid = request_event(&mut host);
    }
    for _ in 0..ROUNDS {
        host.advance();
    }
    assert_eq!(host.poll(0), None, "each is reported once");
    assert!(host.execute(1, sqe(0x00, 1)).status().is_success());
}

#[test]
fn doorbells_of_queues_that_were_deleted_are_no_ones() {
    let (mut host, mut cid) = awaiting_events();
    assert!(host.execute(1, sqe(0x00, 1)).status().is_success());
    assert_eq!(host.admin(delete(DELETE_SQ, 1)), Ok(0));
    assert_eq!(host.admin(delete(DELETE_CQ, 1)), Ok(0));
    for _ in 0..ROUNDS {
        host.advance();
    }
    assert_eq!(host.poll(0), None, "what was written before is nothing new");
    for is_head in [false, true] {
        if is_head {
            host.ring_head(1, 1)
        } else {
            host.ring_tail(1, 1)
        }
        expect_event(&mut host, cid, 0x0001_0000);
        cid = request_event(&mut host);
    }
    host.create_queue_pair(1, 32);
    assert!(host.execute(1, sqe(0x00, 1)).status().is_success());
}

#[test]
fn doorbell_values_beyond_either_queue_are_noticed_while_nothing_else_happens() {
    let (mut host, cid) = awaiting_events();
    host.ring_tail(1, 33);
    expect_event(&mut host, cid, 0x0001_0100);
    // The tail is still wrong when the head becomes it too.
    let cid = request_event(&mut host);
    host.ring_head(1, 33);
    expect_event(&mut host, cid, 0x0001_0100);
    let cid = request_event(&mut host);
    for _ in 0..ROUNDS {
        host.advance();
    }
    assert_eq!(host.poll(0), None, "each is reported once");
    host.ring_tail(1, 0);
    host.ring_head(1, 32);
    expect_event(&mut host, cid, 0x0001_0100);
    host.ring_head(1, 0);
    assert!(host.execute(1, sqe(0x00, 1)).status().is_success());
}

#[test]
fn doorbells_written_before_or_during_a_reset_mean_nothing_after_it() {
    let mut host = attached(config(512));
    // A disabled controller has no queues and reports nothing, in memory or by register.
    let write_all = |host: &Host| {
        host.ring_tail(2, 5);
        host.ring_head(300, 5);
        host.write32(0x1000, 1);
        host.write32(0x1000 + 4 * 8, 1);
    };
    write_all(&host);
    for round in 0..2 {
        host.enable();
        host.create_queue_pair(1, 8);
        request_event(&mut host);
        assert_eq!(await_admin(&mut host), None, "round {round}");
        assert!(host.execute(1, sqe(0x00, 1)).status().is_success());
        host.ring_tail(2, 5);
        host.disable();
        write_all(&host);
    }
}

#[test]
fn a_threshold_below_the_temperature_is_an_event_while_the_admin_queue_is_busy() {
    let mut host = Host::started(512);
    // All critical warnings, namespace attributes and firmware activation, which is all SPDK asks for here.
    let oaes = host.admin_in(with(sqe(IDENTIFY, 0), 1, 0), 4096).unwrap()[92..96].to_vec();
    assert_eq!(oaes, [0, 0b11, 0, 0]);
    assert_eq!(host.admin(with(sqe(SET_FEATURES, 0), 0x0b, 0x0000_031f)), Ok(0));
    let cids: Vec<u16> = (0..4).map(|_| request_event(&mut host)).collect();
    let original = host.admin(with(sqe(GET_FEATURES, 0), 0x04, 0)).unwrap() as u32;
    // Once around the queue, and on.
    for _ in 0..40 {
        assert_eq!(host.admin(with(sqe(GET_FEATURES, 0), NUMBER_OF_QUEUES, 0)), Ok(0x003f_003f));
    }
    assert_eq!(host.admin(with(sqe(SET_FEATURES, 0), 0x04, 200)), Ok(0));
    let cqe = await_admin(&mut host).expect("an event");
    assert_eq!((cqe.cid, cqe.dw0), (cids[0], 0x0002_0101));
    assert_eq!(host.admin(with(sqe(SET_FEATURES, 0), 0x04, original)), Ok(0));
    let health = host.admin_in(with(sqe(GET_LOG, u32::MAX), 127 << 16 | 2, 0), 512).unwrap();
    assert_eq!(health[..3], [0, 57, 1], "no warning any more, 313 K");
    assert_eq!(await_admin(&mut host), None);
}

#[test]
fn an_abort_always_completes_and_never_loses_the_command_it_is_about() {
    let mut host = Host::with_queues(512);
    for depth in [1usize, 4, 60] {
        let read = transfer(&host, READ, 0, 1, DATA, 512);
        let cids: Vec<u16> = (0..depth).map(|_| host.push(1, read)).collect();
        host.ring(1);
        // ACL: four at a time.
        for four in cids.chunks(4) {
            let aborts: Vec<u16> = four
                .iter()
                .map(|&cid| host.push(0, with(sqe(ABORT, 0), u32::from(cid) << 16 | 1, 0)))
                .collect();
            host.ring(0);
            host.advance();
            for abort in aborts {
                let cqe = host.poll(0).expect("a completion of the Abort");
                assert_eq!((cqe.cid, cqe.dw0, cqe.status()), (abort, 1, Status::SUCCESS));
            }
        }
        for cid in cids {
            let cqe = host.poll(1).expect("a completion of the read");
            assert_eq!((cqe.cid, cqe.status()), (cid, Status::SUCCESS));
        }
    }
}

#[test]
fn a_fused_pair_stays_together_behind_writes_of_the_same_blocks() {
    let mut host = Host::with_queues(512);
    host.memory.fill(DATA, 64 << 10, 0);
    // Large writes come from the data area, the pair's block too: both are zeroes, so that Compare succeeds.
    for round in 0..32 {
        let large = transfer(&host, WRITE, 0, 128, DATA, 64 << 10);
        let mut cids: Vec<u16> = (0..8).map(|_| host.push(1, large)).collect();
        host.ring(1);
        let block = transfer(&host, WRITE, 0, 1, DATA, 512);
        cids.push(host.push(1, Sqe { opcode: COMPARE, flags: 1, ..block }));
        // The first command is in the queue and its doorbell is not rung: the device may be anywhere.
        for _ in 0..round {
            host.advance();
        }
        cids.push(host.push(1, Sqe { flags: 2, ..block }));
        host.ring(1);
        while !cids.is_empty() {
            host.advance();
            while let Some(cqe) = host.poll(1) {
                assert_eq!((cqe.cid, cqe.status()), (cids.remove(0), Status::SUCCESS), "round {round}");
            }
        }
    }
}

#[test]
fn command_sets_that_cap_does_not_offer_make_no_controller() {
    let offered = attached(config(512)).read64(0x00) >> 37 & 0xff;
    assert_eq!(offered, 1 << 6 | 1, "CAP.CSS: NVM, and all by profile; not admin commands alone");
    for css in 0..8 {
        let mut host = attached(config(512));
        host.set_admin_queue();
        host.write32(0x14, 0x0046_0001 | css << 4);
        let enabled = offered & 1 << css != 0;
        assert_eq!(host.read32(0x1c), if enabled { 1 } else { 2 }, "CSTS with CC.CSS {css}");
    }
}

#[test]
fn a_controller_that_is_reset_under_load_starts_again_and_again() {
    let mut host = Host::with_queues(512);
    for round in 0..16 {
        let read = transfer(&host, READ, 0, 8, DATA, 4096);
        for _ in 0..60 {
            host.push(1, read);
        }
        host.ring(1);
        if round % 2 == 0 {
            host.advance();
        }
        request_event(&mut host);
        // CC.EN is set when a host that resets finds the controller; it waits for CSTS.RDY both ways.
        host.disable();
        host.enable();
        assert_eq!(await_admin(&mut host), None, "nothing of before the reset completes after it");
        host.create_queue_pair(1, 64);
        let cqe = host.execute(1, read);
        assert_eq!((cqe.sq_head, cqe.status_phase), (1, 1), "a new queue");
    }
}

#[test]
fn a_host_that_goes_away_leaves_a_controller_for_the_next() {
    let ssd = device(config(512));
    for _ in 0..4 {
        let mut host = Host::attach(ssd.clone());
        host.enable();
        host.create_queue_pair(1, 8);
        assert_eq!(host.io(sqe(0x00, 1)), Ok(0));
        host.push(1, sqe(0x00, 1));
        host.ring(1);
        // What a server does when its client is gone, with and without a shutdown before.
        ssd.reset().unwrap();
        ssd.dma_unmap(BASE, host.memory.len() as u64).unwrap();
    }
}
