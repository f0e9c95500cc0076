//! A controller that is reached over a network: from Connect to data and back.

mod network;

use network::{HOST, Line, SUBSYSTEM, blocks, pairs, pattern, read, sqe, target, write};
use unvme_spec::{Sqe, Status};
use unvme_ssd::fabrics::QueueState;

#[test]
fn a_host_connects_enables_the_controller_and_sees_who_it_is() {
    let target = target(blocks());
    let mut admin = Line::new(&target);
    assert_eq!((admin.queue.state(), admin.queue.host()), (QueueState::Open, None));
    let connected = admin.connect(0, 0xffff, 31, 0);
    // The first controller is the one at the bus; SQHD is behind Connect.
    assert_eq!((connected.result(), connected.cqe.sq_head), (1, 1));
    assert_eq!((admin.queue.state(), admin.queue.host()), (QueueState::Connected, Some(HOST)));
    assert_eq!(admin.property(0x08, 0), 0x0002_0000, "VS");
    assert_eq!(admin.property(0x00, 1) & 0x1_ffff, 0x1_0fff, "CAP.MQES, CAP.CQR");
    assert_eq!(admin.property(0x1c, 0), 0, "CSTS");
    let early = admin.receive(Sqe { cdw10: 1, ..sqe(0x06, 0) }, 4096);
    assert_eq!((early.status(), early.data.len()), (Status::COMMAND_SEQUENCE_ERROR, 0));
    admin.enable();
    let page = admin.identify(1, 0);
    assert_eq!(page.len(), 4096);
    assert_eq!(&page[78..80], [1, 0], "CNTLID");
    assert_eq!(page[76], 0b1011, "CMIC");
    assert_eq!(page[111], 1, "CNTRLTYPE");
    assert_eq!(&page[320..322], [1, 0], "KAS");
    assert_eq!(&page[514..516], [0, 16], "MAXCMD");
    assert_eq!(&page[536..540], [0x01, 0, 0x34, 0], "SGLS");
    assert_eq!(&page[768..768 + SUBSYSTEM.len()], SUBSYSTEM.as_bytes(), "SUBNQN");
    assert_eq!(page[768 + SUBSYSTEM.len()], 0);
    assert_eq!(
        &page[1792..1804],
        [0x04, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1],
        "IOCCSZ, IORCSZ, ICDOFF, FCATT, MSDBD"
    );
    let namespace = admin.identify(0, 1);
    assert_eq!((namespace[30], &namespace[92..96]), (1, &[1, 0, 0, 0][..]), "NMIC, ANAGRPID");
}

#[test]
fn blocks_are_written_from_the_capsule_and_from_a_transfer_and_are_read() {
    let target = target(blocks());
    let mut admin = Line::admin(&target);
    assert_eq!(admin.plain(Sqe { cdw10: 7, cdw11: 0x0003_0003, ..sqe(0x09, 0) }).result(), 0x003f_003f);
    let mut io = Line::io(&target, &mut admin, 1, 127);
    let (small, large) = (pattern(1, 4096), pattern(2, 128 << 10));
    io.send(write(0, 8), &small).ok();
    io.transfer(write(8, 256), &large).ok();
    assert_eq!(io.receive(read(0, 8), 4096).ok(), small);
    assert_eq!(io.receive(read(8, 256), 128 << 10).ok(), large);
    // As many bytes as the blocks have, whatever the host has room for.
    assert_eq!(io.receive(read(1, 1), 4096).ok(), small[512..1024]);
    let short = io.receive(read(0, 8), 512);
    assert_eq!((short.status(), short.data.len()), (Status::DATA_SGL_LENGTH_INVALID, 0));
    let beyond = io.receive(read(u32::MAX, 8), 4096);
    assert_eq!((beyond.status(), beyond.data.len()), (Status::LBA_OUT_OF_RANGE, 0));
    assert_eq!(io.queue.outstanding(), 0);
}

#[test]
fn pairs_are_stored_and_retrieved_with_as_many_bytes_as_they_have() {
    let target = target(pairs());
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 31);
    let key = |sqe: Sqe, bytes: u32| Sqe { cdw10: bytes, cdw11: 3, cdw2: 0x0063_6261, ..sqe };
    let value = pattern(7, 3 << 20);
    io.transfer(key(sqe(0x01, 1), 3 << 20), &value).ok();
    let whole = io.receive(key(sqe(0x02, 1), 4 << 20), 4 << 20);
    assert_eq!(whole.result(), 3 << 20);
    assert_eq!(whole.ok(), value);
    let part = io.receive(key(sqe(0x02, 1), 4096), 4096);
    assert_eq!((part.result(), part.data.len()), (3 << 20, 4096));
    // An empty value, and a list of both keys.
    io.plain(Sqe { cdw10: 0, cdw11: 1, cdw2: 0x64, ..sqe(0x01, 1) }).ok();
    assert!(io.receive(Sqe { cdw10: 4096, cdw11: 1, cdw2: 0x64, ..sqe(0x02, 1) }, 4096).ok().is_empty());
    let list = io.receive(Sqe { cdw10: 4096, ..sqe(0x06, 1) }, 4096).ok();
    assert_eq!(list, [2, 0, 0, 0, 3, 0, b'a', b'b', b'c', 0, 0, 0, 1, 0, b'd', 0]);
    let missing = io.receive(Sqe { cdw10: 4096, cdw11: 1, cdw2: 0x65, ..sqe(0x02, 1) }, 4096);
    assert_eq!((missing.status(), missing.data.len()), (Status::KEY_NOT_FOUND, 0));
}

#[test]
fn the_vendors_commands_for_pairs_work_with_keys_that_are_in_the_entry() {
    let target = target(pairs());
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 31);
    // Store of 4098 bytes: 1025 dwords of which 2 bytes are not used; key "key1".
    let store = Sqe { cdw10: 1025, cdw11: 2 << 16 | 3, cdw12: 0x3179_656b, ..sqe(0x81, 1) };
    let value = pattern(9, 4098);
    let mut sent = value.clone();
    sent.resize(4100, 0);
    io.send(store, &sent).ok();
    let retrieve = Sqe { cdw10: 2048, cdw11: 3, cdw12: 0x3179_656b, ..sqe(0x90, 1) };
    let got = io.receive(retrieve, 8192);
    assert_eq!(got.result(), 4098);
    assert_eq!(got.ok(), value);
    // One in the host's memory, to which PRPs point.
    let long = Sqe { cdw10: 1, cdw11: 19, ..sqe(0x90, 1) };
    let refused = io.receive(long, 4096).cqe.status();
    assert_eq!((refused.kind(), refused.do_not_retry()), (Status::SGL_DESCRIPTOR_TYPE_INVALID, true));
}
