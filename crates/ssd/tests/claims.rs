//! Namespaces that a host has claimed: what other hosts may do with them, and when a claim ends.

mod host;

use std::sync::Arc;

use host::blocks::{
    COMPARE, DATASET_MANAGEMENT, FLUSH, READ, SOURCE, VERIFY, WRITE, WRITE_UNCORRECTABLE, WRITE_ZEROES,
    access, transfer,
};
use host::{DATA, Host, config, device, sqe};
use unvme_spec::{Sqe, Status};
use unvme_ssd::Ssd;

/// Claim Send and Claim Receive.
const SEND: u8 = 0xc5;
const RECEIVE: u8 = 0xc6;
const ALONE: u32 = 1;
const WITH_OTHERS: u32 = 2;
const RELEASE: u32 = 3;

const CONFLICT: Status = Status::RESERVATION_CONFLICT;

fn host_at(ssd: Arc<Ssd>) -> Host {
    let mut host = Host::attach(ssd);
    start(&mut host);
    host
}

fn start(host: &mut Host) {
    host.enable();
    host.create_queue_pair(1, 64);
}

/// Two controllers of a device with one namespace.
fn two() -> (Host, Host) {
    let first = device(config(512));
    let second = first.add_controller().expect("a controller");
    (host_at(first), host_at(second))
}

fn claim(host: &mut Host, operation: u32, words: &str) -> Result<u64, Status> {
    host.memory.write(DATA, words.as_bytes());
    let mut entry = Sqe { cdw10: words.len() as u32, cdw11: operation, ..sqe(SEND, 1) };
    host.set_prps(&mut entry, DATA, words.len().max(1));
    host.admin(entry)
}

fn holders(host: &mut Host) -> String {
    let mut entry = Sqe { cdw10: 4096, ..sqe(RECEIVE, u32::MAX) };
    host.set_prps(&mut entry, DATA, 4096);
    let bytes = host.admin(entry).expect("a list") as usize;
    String::from_utf8(host.bytes(DATA, bytes)).expect("UTF-8")
}

/// Every command that changes the blocks of namespace 1.
fn changing(host: &Host) -> Vec<Sqe> {
    let mut ranges = Sqe { cdw11: 4, ..sqe(DATASET_MANAGEMENT, 1) };
    // One range: 8 blocks from block 0 on.
    host.memory.write(SOURCE + 4096, &[0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    host.set_prps(&mut ranges, SOURCE + 4096, 16);
    vec![
        transfer(host, WRITE, 0, 1, SOURCE, 512),
        access(WRITE_ZEROES, 0, 1),
        access(WRITE_UNCORRECTABLE, 0, 1),
        ranges,
    ]
}

/// Format NVM, Delete and Detach of namespace 1, and of all of them.
fn reshaping(host: &Host) -> Vec<Sqe> {
    let mut list = [0; 4096];
    list[..4].copy_from_slice(&[1, 0, 0, 0]);
    host.memory.write(SOURCE + 8192, &list);
    let mut detach = Sqe { cdw10: 1, ..sqe(0x15, 1) };
    host.set_prps(&mut detach, SOURCE + 8192, 4096);
    let (format, delete) = (|nsid| sqe(0x80, nsid), |nsid| Sqe { cdw10: 1, ..sqe(0x0d, nsid) });
    vec![format(1), format(u32::MAX), delete(1), delete(u32::MAX), detach]
}

#[test]
fn what_one_host_has_claimed_no_other_changes_and_everybody_reads() {
    let (mut a, mut b) = two();
    assert_eq!(claim(&mut a, ALONE, "process 7 (mount)"), Ok(0));
    for entry in changing(&b) {
        assert_eq!(b.io(entry), Err(CONFLICT), "{entry:?}");
    }
    // Compare and Write: both halves fail, and the first one says why.
    b.memory.write(SOURCE, &[0; 512]);
    let halves = [(COMPARE, 1), (WRITE, 2)];
    for (opcode, fuse) in halves {
        let entry = transfer(&b, opcode, 0, 1, SOURCE, 512);
        b.push(1, Sqe { flags: fuse, ..entry });
    }
    b.ring(1);
    b.advance();
    let statuses: Vec<Status> = (0..2).map(|_| b.poll(1).expect("a completion").status().kind()).collect();
    assert_eq!(statuses, [CONFLICT, Status::ABORTED_FAILED_FUSED]);
    for host in [&mut a, &mut b] {
        for entry in reshaping(host) {
            assert_eq!(host.admin(entry), Err(CONFLICT), "{entry:?}");
        }
        assert_eq!(holders(host), "namespace 1: process 7 (mount)\n");
    }
    let read = transfer(&b, READ, 0, 1, DATA, 512);
    for entry in [read, access(VERIFY, 0, 1), sqe(FLUSH, 1), sqe(FLUSH, u32::MAX)] {
        assert_eq!(b.io(entry), Ok(0), "{entry:?}");
    }
    for entry in changing(&a) {
        assert_eq!(a.io(entry), Ok(0), "{entry:?}");
    }
    // A host that comes later is kept out as well.
    let mut late = host_at(b.ssd.add_controller().expect("a controller"));
    assert_eq!(late.io(access(WRITE_ZEROES, 0, 1)), Err(CONFLICT));
    assert_eq!(claim(&mut late, ALONE, "x"), Err(CONFLICT));
    assert_eq!(claim(&mut late, WITH_OTHERS, "x"), Err(CONFLICT));
    assert_eq!(late.admin(Sqe { cdw11: RELEASE, ..sqe(SEND, 1) }), Err(Status::INVALID_FIELD));
    assert_eq!(a.admin(Sqe { cdw11: RELEASE, ..sqe(SEND, 1) }), Ok(0));
    assert_eq!((late.io(access(WRITE_ZEROES, 0, 1)), holders(&mut b)), (Ok(0), String::new()));
    assert_eq!(b.admin(sqe(0x80, 1)), Ok(0));
}

#[test]
fn a_claim_with_others_keeps_everybody_from_changing_the_namespace() {
    let (mut a, mut b) = two();
    assert_eq!(claim(&mut a, WITH_OTHERS, "one"), Ok(0));
    assert_eq!(claim(&mut b, WITH_OTHERS, "two"), Ok(0));
    assert_eq!(claim(&mut b, ALONE, "three"), Err(CONFLICT));
    assert_eq!(holders(&mut a), "namespace 1: one\nnamespace 1: two\n");
    for host in [&mut a, &mut b] {
        for entry in changing(host) {
            assert_eq!(host.io(entry), Err(CONFLICT), "{entry:?}");
        }
    }
    assert_eq!(a.admin(Sqe { cdw11: RELEASE, ..sqe(SEND, 1) }), Ok(0));
    assert_eq!(a.io(access(WRITE_ZEROES, 0, 1)), Err(CONFLICT));
    assert_eq!(b.admin(Sqe { cdw11: RELEASE, ..sqe(SEND, 1) }), Ok(0));
    assert_eq!(a.io(access(WRITE_ZEROES, 0, 1)), Ok(0));
}

#[test]
fn a_claim_ends_with_a_reset_of_its_controller_and_with_the_controller() {
    let (mut a, mut b) = two();
    assert_eq!(claim(&mut b, ALONE, "b"), Ok(0));
    // Of another host's reset it does not hear.
    a.disable();
    start(&mut a);
    assert_eq!(a.io(access(WRITE_ZEROES, 0, 1)), Err(CONFLICT));
    b.disable();
    assert_eq!(a.io(access(WRITE_ZEROES, 0, 1)), Ok(0));
    start(&mut b);
    assert_eq!(claim(&mut b, ALONE, "b"), Ok(0));
    assert_eq!(a.io(access(WRITE_ZEROES, 0, 1)), Err(CONFLICT));
    drop(b);
    assert_eq!((a.io(access(WRITE_ZEROES, 0, 1)), holders(&mut a)), (Ok(0), String::new()));
}

#[test]
fn a_claim_that_says_nothing_or_too_much_or_names_no_namespace_is_refused() {
    let (mut a, _b) = two();
    for words in ["", "two\nlines", &"x".repeat(257)] {
        assert_eq!(claim(&mut a, ALONE, words), Err(Status::INVALID_FIELD), "{words:?}");
    }
    assert_eq!(claim(&mut a, 4, "x"), Err(Status::INVALID_FIELD));
    a.memory.write(DATA, b"x");
    for nsid in [0, 2, 128, u32::MAX] {
        let mut entry = Sqe { cdw10: 1, cdw11: ALONE, ..sqe(SEND, nsid) };
        a.set_prps(&mut entry, DATA, 1);
        assert!(a.admin(entry).is_err(), "{nsid}");
    }
    assert_eq!(a.admin(Sqe { cdw10: u32::MAX, ..sqe(RECEIVE, 1) }), Err(Status::INVALID_FIELD));
    assert_eq!(holders(&mut a), "");
}
