//! Connect: who may, to what, and what is wrong with it (Base 6.3).

mod network;

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use network::{
    DISCOVERY, HOST, IN_CAPSULE, Line, PORT, SUBSYSTEM, blocks, connect, connect_data, pattern, read, sqe,
    target, target_for, write,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use unvme_bus::Clock;
use unvme_spec::{Sqe, Status};
use unvme_ssd::fabrics::{
    Access, Begun, EndReason, FabricsQueue, Fatal, HostAccess, Peer, QueueState, TargetOptions, TlsPeer,
};

const INVALID_PARAMETERS: Status = Status::new(1, 0x82);
const INVALID_HOST: Status = Status::new(1, 0x84);
const CONTROLLER_BUSY: Status = Status::new(1, 0x81);
const SEQUENCE_ERROR: Status = Status::COMMAND_SEQUENCE_ERROR;
/// IATTR: the parameter is in the data.
const IN_DATA: u32 = 1 << 16;

#[test]
fn each_parameter_that_is_wrong_is_named() {
    let target = target(blocks());
    let data = connect_data(SUBSYSTEM, HOST, 0xffff);
    let changed = |at: usize, bytes: &[u8]| {
        let mut data = data.clone();
        data[at..at + bytes.len()].copy_from_slice(bytes);
        data
    };
    let admin = connect(0, 31, 0, 0);
    let cases = [
        ("a queue of no entries", connect(0, 0, 0, 0), data.clone(), 44),
        ("an admin queue of too many", connect(0, 4095, 0, 0), data.clone(), 44),
        ("an I/O queue without a controller", connect(1, 31, 0, 0), changed(16, &[9, 0]), IN_DATA | 16),
        ("a controller by its number", admin, changed(16, &[1, 0]), IN_DATA | 16),
        ("the static model", admin, changed(16, &[0xfe, 0xff]), IN_DATA | 16),
        ("no host identifier", admin, changed(0, &[0; 16]), IN_DATA),
        ("another subsystem", admin, changed(256, b"nqn.x"), IN_DATA | 256),
        ("no subsystem", admin, changed(256, &[0]), IN_DATA | 256),
        ("a name without an end", admin, changed(256, &[b'n'; 256]), IN_DATA | 256),
        ("no host", admin, changed(512, &[0]), IN_DATA | 512),
        ("a host that is not UTF-8", admin, changed(512, &[0xff]), IN_DATA | 512),
    ];
    for (name, sqe, data, dword) in cases {
        let mut line = Line::new(&target);
        let answer = line.send(sqe, &data);
        assert_eq!((answer.status(), answer.cqe.dw0), (INVALID_PARAMETERS, dword), "{name}");
        assert!(answer.cqe.status().do_not_retry(), "{name}");
        assert_eq!(line.queue.state(), QueueState::Open, "{name}");
    }
    let format = Line::new(&target).send(Sqe { cdw10: 1, ..admin }, &data);
    assert_eq!(format.status(), Status::new(1, 0x80));
    let short = Line::new(&target).send(admin, &data[..1020]);
    assert_eq!(short.status(), Status::DATA_SGL_LENGTH_INVALID);
}

#[test]
fn a_queue_takes_connect_once_and_first() {
    let target = target(blocks());
    let mut line = Line::new(&target);
    assert_eq!(line.receive(Sqe { cdw10: 1, ..sqe(0x06, 0) }, 4096).status(), SEQUENCE_ERROR);
    assert_eq!(line.plain(Sqe { cdw11: 0x14, ..sqe(0x7f, 0x04) }).status(), SEQUENCE_ERROR);
    line.connect(0, 0xffff, 31, 0).ok();
    assert_eq!(line.connect(0, 0xffff, 31, 0).status(), SEQUENCE_ERROR);
    // Disconnect is for I/O queues.
    assert_eq!(line.plain(sqe(0x7f, 0x08)).status(), Status::new(1, 0x85));
    assert_eq!(line.plain(sqe(0x7f, 0x77)).status(), Status::INVALID_OPCODE);
}

#[test]
fn io_queues_are_those_of_the_host_that_has_the_controller_and_each_is_there_once() {
    let target = target(blocks());
    let mut admin = Line::new(&target);
    admin.connect(0, 0xffff, 31, 0).ok();
    assert_eq!(Line::new(&target).connect(1, 1, 31, 0).status(), SEQUENCE_ERROR, "before CC.EN");
    admin.enable();
    let wrong = |at: usize, byte: u8, dword: u32| {
        let mut data = connect_data(SUBSYSTEM, HOST, 1);
        data[at] = byte;
        let answer = Line::new(&target).send(connect(1, 31, 0, 0), &data);
        assert_eq!((answer.status(), answer.cqe.dw0), (INVALID_PARAMETERS, dword));
    };
    wrong(0, 0x22, IN_DATA);
    wrong(512 + 4, b'x', IN_DATA | 512);
    wrong(16, 2, IN_DATA | 16);
    let many = Line::new(&target).connect(65, 1, 31, 0);
    assert_eq!((many.status(), many.cqe.dw0), (INVALID_PARAMETERS, 42), "a queue there is not");
    let long = Line::new(&target).connect(1, 1, 4096, 0);
    assert_eq!((long.status(), long.cqe.dw0), (INVALID_PARAMETERS, 44), "more entries than CAP.MQES");
    let first = Line::io(&target, &mut admin, 1, 31);
    assert_eq!(Line::new(&target).connect(1, 1, 31, 0).status(), SEQUENCE_ERROR, "twice");
    drop(first);
    Line::io(&target, &mut admin, 1, 31).receive(read(0, 8), 4096).ok();
}

#[test]
fn hosts_that_are_not_listed_are_refused_and_listed_ones_are_not() {
    let access = |nqn: &str| Access::Hosts(vec![HostAccess { nqn: nqn.into(), ..HostAccess::default() }]);
    let target = target_for(blocks(), access("nqn.2026-01.example:other"), TargetOptions::default());
    let refused = Line::new(&target).connect(0, 0xffff, 31, 0);
    assert_eq!((refused.status(), refused.cqe.dw0), (INVALID_HOST, IN_DATA | 512));
    assert!(target.set_access(SUBSYSTEM, access(HOST)));
    let mut admin = Line::new(&target);
    admin.connect(0, 0xffff, 31, 0).ok();
    // Who is in stays.
    assert!(target.set_access(SUBSYSTEM, access("nqn.2026-01.example:other")));
    admin.enable();
    assert_eq!(Line::new(&target).connect(0, 0xffff, 31, 0).status(), INVALID_HOST);
    target.close();
    assert_eq!(Line::new(&target).connect(0, 0xffff, 31, 0).status(), CONTROLLER_BUSY);
}

#[test]
fn a_tls_key_is_for_one_host_and_one_subsystem() {
    let target = target(blocks());
    let connect_as = |hostnqn: &str, subnqn: &str| {
        let tls = Some(TlsPeer { hostnqn: hostnqn.into(), subnqn: subnqn.into() });
        let queue = FabricsQueue::new(&target, PORT, Peer { tls, ..Peer::default() });
        let mut line = Line::new(&target);
        line.queue = queue;
        line.connect(0, 0xffff, 31, 0).status()
    };
    assert_eq!(connect_as(HOST, SUBSYSTEM), Status::SUCCESS);
    assert_eq!(connect_as("nqn.other", SUBSYSTEM), INVALID_HOST);
    assert_eq!(connect_as(HOST, DISCOVERY), INVALID_HOST);
}

#[test]
fn when_all_controllers_are_taken_a_host_is_told_to_come_later() {
    let target = target(blocks());
    let mut lines: Vec<Line> = (1..unvme_ssd::CONTROLLERS_MAX)
        .map(|number| {
            let mut line = Line::new(&target);
            assert_eq!(line.connect(0, 0xffff, 31, 0).result(), number as u64);
            line
        })
        .collect();
    let refused = Line::new(&target).connect(0, 0xffff, 31, 0);
    assert_eq!((refused.status(), refused.cqe.status().do_not_retry()), (CONTROLLER_BUSY, false));
    lines.truncate(100);
    assert_eq!(Line::new(&target).connect(0, 0xffff, 31, 0).result(), 101);
}

#[test]
fn the_head_of_the_hosts_queue_goes_round_with_each_answer_or_is_not_told() {
    let target = target(blocks());
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 3);
    let heads: Vec<u16> = (0..6).map(|_| io.receive(read(0, 1), 512).cqe.sq_head).collect();
    assert_eq!(heads, [2, 3, 0, 1, 2, 3]);
    let mut free = Line::at(&target, PORT, &Clock::manual());
    let connected = free.connect(2, 1, 3, 0x04);
    assert_eq!((connected.result(), connected.cqe.sq_head), (1, 0xffff), "CATTR: no flow control");
    assert_eq!(free.receive(read(0, 1), 512).cqe.sq_head, 0);
    let (_, begun) = free.begin(read(0, 1), network::TRANSPORT, 512);
    assert!(matches!(begun, Begun::Run(_)));
    free.poll();
    assert!(free.finished[0].is_plain);
}

#[test]
fn more_commands_than_entries_end_the_connection_and_an_identifier_is_used_once_at_a_time() {
    let target = target(blocks());
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 3);
    let (cid, _) = io.begin(write(0, 1), IN_CAPSULE, 512);
    let again = io.queue.begin(&Sqe { cid, flags: 0x40, ..read(0, 1) });
    let Begun::Refused(cqe) = again else { panic!("{again:?}") };
    assert_eq!(cqe.status().kind(), Status::COMMAND_ID_CONFLICT);
    for _ in 0..3 {
        assert!(matches!(io.begin(write(0, 1), IN_CAPSULE, 512).1, Begun::NeedsData(_)));
    }
    assert_eq!(io.begin(write(0, 1), IN_CAPSULE, 512).1, Begun::Fatal(Fatal::TooManyCommands));
}

#[test]
fn an_io_queue_can_be_disconnected_and_connected_again() {
    let target = target(blocks());
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 31);
    io.send(write(3, 1), &pattern(3, 512)).ok();
    io.plain(sqe(0x7f, 0x08)).ok();
    assert_eq!(io.queue.state(), QueueState::Disconnected);
    assert_eq!(io.begin(read(0, 1), network::TRANSPORT, 512).1, Begun::Fatal(Fatal::Ended));
    drop(io);
    let mut io = Line::io(&target, &mut admin, 1, 31);
    assert_eq!(io.receive(read(3, 1), 512).ok(), pattern(3, 512));
    drop(admin);
    io.poll();
    assert_eq!(io.queue.state(), QueueState::Ended(EndReason::AdminGone));
}

/// All that is logged, as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = self.0.lock().expect("nobody panics with it");
        write!(text, "{field}={value:?} ").expect("memory");
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_refusal_is_logged_by_the_name_that_its_status_has_for_connect() {
    let target = target_for(blocks(), Access::Hosts(Vec::new()), TargetOptions::default());
    let log = Log::default();
    let answer =
        tracing::subscriber::with_default(log.clone(), || Line::new(&target).connect(0, 0xffff, 31, 0));
    assert_eq!(answer.status(), INVALID_HOST);
    let text = log.0.lock().expect("nobody panics with it");
    assert!(text.contains("Connect was refused") && text.contains("Connect Invalid Host"), "{text}");
}
