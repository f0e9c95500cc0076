//! Connect: who may, to what, and what is wrong with it (Base 6.3).

mod network;

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use network::{
    DISCOVERY, HOST, IN_CAPSULE, Line, PORT, SUBSYSTEM, blocks, connect, connect_data, pairs, pattern, read,
    security, sqe, target, target_for, write,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use unvme_bus::Clock;
use unvme_fabric::Psk;
use unvme_spec::{Sqe, Status};
use unvme_ssd::fabrics::{
    Access, Begun, EndReason, FabricsQueue, Fatal, HostAccess, Peer, QueueState, Target, TargetOptions,
    TlsPeer,
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
        ("a host's name without an end", admin, changed(512, &[b'n'; 256]), IN_DATA | 512),
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
    admin.enable();
    // Who is in stays as long as it is listed, and no longer.
    assert!(target.set_access(SUBSYSTEM, access(HOST)));
    admin.poll();
    assert_eq!(admin.queue.state(), QueueState::Connected);
    assert!(target.set_access(SUBSYSTEM, access("nqn.2026-01.example:other")));
    admin.poll();
    assert_eq!(admin.queue.state(), QueueState::Ended(EndReason::Revoked));
    assert_eq!(Line::new(&target).connect(0, 0xffff, 31, 0).status(), INVALID_HOST);
    target.close();
    assert_eq!(Line::new(&target).connect(0, 0xffff, 31, 0).status(), CONTROLLER_BUSY);
}

#[test]
fn a_host_without_a_name_enters_where_any_host_may() {
    let enter = |access, subsystem: &str| {
        let target = target_for(blocks(), access, TargetOptions::default());
        let mut line = Line::new(&target);
        let answer = line.send(connect(0, 31, 0, 0), &connect_data(subsystem, "", 0xffff));
        (answer.status(), answer.cqe.dw0 & IN_DATA)
    };
    for subsystem in [SUBSYSTEM, DISCOVERY] {
        assert_eq!(enter(Access::Any, subsystem), (Status::SUCCESS, 0), "{subsystem}");
    }
    let listed = HostAccess { nqn: HOST.into(), ..HostAccess::default() };
    assert_eq!(enter(Access::Hosts(vec![listed]), SUBSYSTEM), (INVALID_HOST, IN_DATA));

    // Its I/O queues have no name, either.
    let target = target(blocks());
    let mut admin = Line::new(&target);
    let cntlid = admin.send(connect(0, 31, 0, 0), &connect_data(SUBSYSTEM, "", 0xffff)).result() as u16;
    admin.enable();
    let io = |host| Line::new(&target).send(connect(1, 31, 0, 0), &connect_data(SUBSYSTEM, host, cntlid));
    let named = io(HOST);
    assert_eq!((named.status(), named.cqe.dw0), (INVALID_PARAMETERS, IN_DATA | 512));
    io("").ok();
}

#[test]
fn a_tls_key_is_for_one_host_and_one_subsystem() {
    let target = target(blocks());
    let connect_as = |hostnqn: &str, subnqn: &str| {
        let tls = Some(TlsPeer { hostnqn: hostnqn.into(), subnqn: subnqn.into(), key: None });
        let queue = FabricsQueue::new(&target, PORT, Peer { tls, ..Peer::default() });
        let mut line = Line::new(&target);
        line.queue = queue;
        line.connect(0, 0xffff, 31, 0).status()
    };
    assert_eq!(connect_as(HOST, SUBSYSTEM), Status::SUCCESS);
    assert_eq!(connect_as("nqn.other", SUBSYSTEM), INVALID_HOST);
    assert_eq!(connect_as(HOST, DISCOVERY), INVALID_HOST);
}

/// A host that is known by a TLS key, and has come by one.
fn by_tls(target: &Arc<Target>, key: &Psk) -> Line {
    let tls = Some(TlsPeer { hostnqn: HOST.into(), subnqn: SUBSYSTEM.into(), key: Some(key.clone()) });
    let mut line = Line::new(target);
    line.queue = FabricsQueue::new(target, PORT, Peer { tls, ..Peer::default() });
    line
}

#[test]
fn whoever_came_by_a_key_that_counts_no_more_is_disconnected_and_nobody_else() {
    let [old, new] = [(); 2].map(|()| Psk::generate(None).expect("random numbers"));
    let access = |tls: Option<&Psk>| {
        let other = HostAccess { nqn: "nqn.other".into(), ..HostAccess::default() };
        Access::Hosts(vec![
            HostAccess { nqn: HOST.into(), tls: tls.cloned(), ..HostAccess::default() },
            other,
        ])
    };
    let target = target_for(blocks(), access(Some(&old)), TargetOptions::default());
    assert_eq!(Line::new(&target).connect(0, 0xffff, 31, 0).status(), INVALID_HOST, "without TLS");
    let mut other = Line::new(&target);
    other.send(connect(0, 31, 0, 0), &connect_data(SUBSYSTEM, "nqn.other", 0xffff)).ok();
    let mut line = by_tls(&target, &old);
    line.connect(0, 0xffff, 31, 0).ok();
    // Its handshake is done, and it asks for nothing before the key is another one.
    let mut late = by_tls(&target, &old);
    assert!(target.set_access(SUBSYSTEM, access(Some(&new))));
    line.poll();
    assert_eq!(line.queue.state(), QueueState::Ended(EndReason::Revoked));
    assert_eq!(late.connect(0, 0xffff, 31, 0).status(), INVALID_HOST);
    let mut line = by_tls(&target, &new);
    line.connect(0, 0xffff, 31, 0).ok();
    // Nothing is asked of it any more that it has not proven.
    assert!(target.set_access(SUBSYSTEM, access(None)));
    for line in [&mut line, &mut other] {
        line.poll();
        assert_eq!(line.queue.state(), QueueState::Connected);
    }
}

#[test]
fn a_subsystem_that_is_offered_no_more_ends_for_its_hosts_and_the_others_stay() {
    let target = target(blocks());
    target.add_subsystem("nqn.2026-01.example:other", pairs(), Access::Any).expect("a subsystem");
    let mut stays = Line::new(&target);
    stays.send(connect(0, 31, 0, 0), &connect_data("nqn.2026-01.example:other", HOST, 0xffff)).ok();
    let mut admin = Line::admin(&target);
    assert!(target.remove_subsystem(SUBSYSTEM) && !target.remove_subsystem(SUBSYSTEM));
    admin.poll();
    assert_eq!(admin.queue.state(), QueueState::Ended(EndReason::DeviceGone));
    assert_eq!(Line::new(&target).connect(0, 0xffff, 31, 0).status(), INVALID_PARAMETERS);
    stays.poll();
    assert_eq!(stays.queue.state(), QueueState::Connected);
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
fn fabrics_commands_that_an_io_queue_does_not_have_are_invalid_opcodes_there() {
    let target = target(blocks());
    let mut admin = Line::admin(&target);
    let mut io = Line::io(&target, &mut admin, 1, 31);
    // Property Set, Connect, Property Get, and types that nobody has: each without data, and with a data
    // pointer of PRPs, which no network has.
    for fctype in [0x00, 0x01, 0x04, 0x02, 0x7f, 0xff] {
        assert_eq!(io.plain(sqe(0x7f, fctype)).status(), Status::INVALID_OPCODE, "{fctype:#x}");
        let begun = io.queue.begin(&Sqe { cid: 0x99, dptr: [4096, 0], ..sqe(0x7f, fctype) });
        let Begun::Refused(cqe) = begun else { panic!("{fctype:#x}: {begun:?}") };
        assert_eq!(cqe.status(), Status::INVALID_OPCODE.with_do_not_retry(), "{fctype:#x}");
    }
    assert_eq!(io.connect(2, 1, 31, 0).status(), Status::INVALID_OPCODE);
    // Those that it has are looked at as before.
    assert_eq!(io.plain(security(0x06, 16)).status(), Status::INVALID_FIELD);
    io.receive(read(0, 1), 512).ok();
    io.plain(sqe(0x7f, 0x08)).ok();
    assert_eq!(io.queue.state(), QueueState::Disconnected);
}

#[test]
fn an_identifier_of_a_request_for_events_serves_another_command_meanwhile() {
    let target = target(blocks());
    let mut admin = Line::admin(&target);
    admin.plain(Sqe { cdw10: 0x0b, cdw11: 0x100, ..sqe(0x09, 0) }).ok();
    let request = Sqe { cid: 7, flags: 0x40, ..sqe(0x0c, 0) };
    assert!(matches!(admin.queue.begin(&request), Begun::Run(_)));
    admin.poll();
    let again = admin.queue.begin(&request);
    let Begun::Refused(cqe) = again else { panic!("{again:?}") };
    assert_eq!(cqe.status().kind(), Status::COMMAND_ID_CONFLICT, "two requests");
    let identify = Sqe { cid: 7, flags: 0x40, cdw10: 1, dptr: [0, 4096 | 0x5a << 56], ..sqe(0x06, 0) };
    for _ in 0..2 {
        assert!(matches!(admin.queue.begin(&identify), Begun::Run(_)));
        let answer = admin.wait_for(7);
        assert_eq!(answer.ok()[4..8], *b"UNVM", "SN");
    }
    // An event and the other command's answer, ready at the same time.
    assert!(matches!(admin.queue.begin(&identify), Begun::Run(_)));
    Line::admin(&target).plain(Sqe { cdw10: 1, ..sqe(0x0d, 1) }).ok();
    let answers = [admin.wait_for(7), admin.wait_for(7)];
    let mut seen: Vec<_> = answers.iter().map(|answer| (answer.data.len(), answer.result())).collect();
    seen.sort_unstable();
    assert_eq!(seen, [(0, 0x0004_0002), (4096, 0)]);
    // One request too many is refused, and not the command that shares its identifier.
    for cid in 1..=4 {
        assert!(matches!(admin.queue.begin(&Sqe { cid, ..request }), Begun::Run(_)));
    }
    assert!(matches!(admin.queue.begin(&request), Begun::Run(_)));
    assert!(matches!(admin.queue.begin(&identify), Begun::Run(_)));
    let mut answers = [admin.wait_for(7), admin.wait_for(7)];
    answers.sort_by_key(|answer| answer.data.len());
    assert_eq!(answers[0].status(), Status::AER_LIMIT_EXCEEDED);
    assert!(answers[1].cqe.status().is_success() && answers[1].data.len() == 4096);
    assert_eq!(admin.queue.outstanding(), 4);
}

#[test]
fn a_key_value_namespace_has_a_capacity_for_hosts_that_look_for_it_when_that_is_asked_for() {
    for pairs_in_blocks in [false, true] {
        let options = TargetOptions { pairs_in_blocks, ..TargetOptions::default() };
        let target = target_for(pairs(), Access::Any, options);
        let mut admin = Line::admin(&target);
        let own = admin.receive(Sqe { cdw10: 5, cdw11: 1 << 24, ..sqe(0x06, 1) }, 4096).ok();
        let page = admin.identify(0, 1);
        if !pairs_in_blocks {
            assert_eq!(page, vec![0; 4096]);
            continue;
        }
        let at = |page: &[u8], at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"));
        assert_eq!([at(&page, 0), at(&page, 8)], [at(&own, 0) / 512; 2], "NSZE, NCAP");
        assert_eq!(at(&page, 16), at(&own, 16) / 512, "NUSE");
        let format = usize::from(page[26] & 15);
        assert_eq!(page[128 + 4 * format + 2], 9, "LBADS of FLBAS");
        assert_eq!((&page[104..120], &page[120..128]), (&own[48..64], &own[64..72]), "NGUID, EUI64");
    }
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
