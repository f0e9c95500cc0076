//! In-band authentication: a queue does nothing else before its host has proven who it is (Base 8.3.4).

mod network;

use std::sync::Arc;
use std::time::Duration;

use network::{
    DISCOVERY, HOST, Line, PORT, SUBSYSTEM, TRANSPORT, blocks, connect, connect_data, pairs, read, security,
    sqe, target_for,
};
use unvme_fabric::chap::{Failure, Group, Keys, Names, Policy, Step};
use unvme_fabric::{Psk, Secret};
use unvme_spec::{Sqe, Status};
use unvme_ssd::fabrics::{
    Access, Begun, EndReason, FabricsQueue, HostAccess, Peer, QueueState, Target, TargetOptions, TlsPeer,
};

const AUTHENTICATION_REQUIRED: Status = Status::new(1, 0x91);

fn secret() -> Secret {
    Secret::generate(None).expect("random numbers")
}

fn target(keys: &Keys) -> Arc<Target> {
    target_with(keys, TargetOptions::default())
}

fn target_with(keys: &Keys, options: TargetOptions) -> Arc<Target> {
    let host = HostAccess { nqn: HOST.into(), keys: Some(keys.clone()), ..HostAccess::default() };
    target_for(blocks(), Access::Hosts(vec![host]), options)
}

/// Carries messages until the host is done.
fn authenticate(line: &mut Line, keys: Keys) -> Step {
    authenticate_by(line, keys, Policy::default())
}

fn authenticate_by(line: &mut Line, keys: Keys, policy: Policy) -> Step {
    authenticate_to(SUBSYSTEM, line, keys, policy)
}

fn authenticate_to(subnqn: &str, line: &mut Line, keys: Keys, policy: Policy) -> Step {
    let names = Names { host: HOST.into(), subsystem: subnqn.into() };
    network::authenticate(line, names, keys, policy)
}

#[test]
fn a_host_with_a_secret_proves_it_on_each_queue_and_nothing_else_works_before() {
    let keys = Keys { host: secret(), controller: Some(secret()) };
    let target = target(&keys);
    let mut admin = Line::new(&target);
    // ATR, and CNTLID 1.
    assert_eq!(admin.connect(0, 0xffff, 31, 0).result(), 1 << 17 | 1);
    assert_eq!(admin.plain(Sqe { cdw11: 0x14, ..sqe(0x7f, 0x04) }).status(), AUTHENTICATION_REQUIRED);
    assert_eq!(admin.receive(Sqe { cdw10: 1, ..sqe(0x06, 0) }, 4096).status(), AUTHENTICATION_REQUIRED);
    assert!(admin.queue.awaits_proof());
    assert!(matches!(authenticate(&mut admin, keys.clone()), Step::Authenticated));
    assert!(!admin.queue.awaits_proof());
    admin.enable();
    let mut io = Line::new(&target);
    assert_eq!(io.connect(1, 1, 100, 0).result(), 1 << 17 | 1);
    assert_eq!(io.receive(read(0, 1), 512).status(), AUTHENTICATION_REQUIRED);
    assert!(matches!(authenticate(&mut io, keys), Step::Authenticated));
    // As many commands as it has entries.
    let begun: Vec<_> = (0..101).map(|_| io.begin(read(0, 1), TRANSPORT, 512).0).collect();
    begun.into_iter().for_each(|cid| drop(io.wait_for(cid).ok()));
}

/// Whether the discovery log has a subsystem, 4 KiB of it that is.
fn shows(line: &mut Line, subnqn: &str) -> bool {
    let page = line.receive(Sqe { cdw10: 0x03ff_0070, ..sqe(0x02, 0) }, 4096).ok();
    page.windows(subnqn.len()).any(|bytes| bytes == subnqn.as_bytes())
}

#[test]
fn discovery_shows_a_subsystem_to_a_host_that_has_proven_what_it_asks_for() {
    const OPEN: &str = "nqn.2026-01.example:open";
    let keys = Keys { host: secret(), controller: Some(secret()) };
    let target = target(&keys);
    target.add_subsystem(OPEN, pairs(), Access::Any).expect("a subsystem");
    let connected = |host: &str, peer: Peer| {
        let mut line = Line::new(&target);
        line.queue = FabricsQueue::new(&target, PORT, peer);
        let result = line.send(connect(0, 31, 0, 0), &connect_data(DISCOVERY, host, 0xffff)).result();
        (line, result >> 16)
    };
    // Who claims a name that has a key has to prove it: ATR.
    let (mut line, required) = connected(HOST, Peer::default());
    assert_eq!(required, 2);
    assert_eq!(line.plain(Sqe { cdw11: 0x14, ..sqe(0x7f, 0x04) }).status(), AUTHENTICATION_REQUIRED);
    let log = Sqe { cdw10: 0x03ff_0070, ..sqe(0x02, 0) };
    assert_eq!(line.receive(log, 4096).status(), AUTHENTICATION_REQUIRED);
    let wrong = Keys { host: secret(), ..keys.clone() };
    let failed = authenticate_to(DISCOVERY, &mut line, wrong, Policy::default());
    assert!(matches!(failed, Step::Failed { .. }));
    let (mut line, _) = connected(HOST, Peer::default());
    let proven = authenticate_to(DISCOVERY, &mut line, keys.clone(), Policy::default());
    assert!(matches!(proven, Step::Authenticated));
    line.enable();
    assert!(shows(&mut line, SUBSYSTEM) && shows(&mut line, OPEN));
    // Another name needs no proof, and sees what is for all.
    let (mut stranger, required) = connected("nqn.stranger", Peer::default());
    assert_eq!(required, 0);
    stranger.enable();
    assert!(!shows(&mut stranger, SUBSYSTEM) && shows(&mut stranger, OPEN));

    // What it has proven is not what is asked for any more.
    let hosts = |keys: Option<Keys>, tls: Option<&Psk>| {
        Access::Hosts(vec![HostAccess { nqn: HOST.into(), keys, tls: tls.cloned() }])
    };
    assert!(target.set_access(SUBSYSTEM, hosts(Some(Keys { host: secret(), controller: None }), None)));
    assert!(!shows(&mut line, SUBSYSTEM) && shows(&mut line, OPEN));

    // A key of TLS is proven by the connection.
    let [own, other] = [(); 2].map(|()| Psk::generate(None).expect("random numbers"));
    assert!(target.set_access(SUBSYSTEM, hosts(None, Some(&own))));
    for (key, is_shown) in [(None, false), (Some(&other), false), (Some(&own), true)] {
        let tls =
            key.map(|key| TlsPeer { hostnqn: HOST.into(), subnqn: DISCOVERY.into(), key: Some(key.clone()) });
        let (mut line, required) = connected(HOST, Peer { tls, ..Peer::default() });
        assert_eq!(required, 0);
        line.enable();
        assert_eq!(shows(&mut line, SUBSYSTEM), is_shown, "{key:?}");
        assert!(shows(&mut line, OPEN));
    }
}

#[test]
fn a_host_with_the_wrong_secret_is_told_so_and_its_connection_closes() {
    let keys = Keys { host: secret(), controller: None };
    let target = target(&keys);
    let mut admin = Line::new(&target);
    admin.connect(0, 0xffff, 31, 0).ok();
    assert!(matches!(
        authenticate(&mut admin, Keys { host: secret(), ..keys }),
        Step::Failed { by_controller: true, .. }
    ));
    assert_eq!(admin.queue.state(), QueueState::Disconnected);
}

#[test]
fn other_security_protocols_and_queues_that_need_no_proof_are_refused() {
    let keys = Keys { host: secret(), controller: None };
    let target = target(&keys);
    let mut admin = Line::new(&target);
    admin.connect(0, 0xffff, 31, 0).ok();
    let other = Sqe { cdw10: 0xef01_0100, ..security(0x06, 64) };
    assert_eq!(admin.run(other, TRANSPORT, 64, &[]).status(), Status::INVALID_FIELD);
    let open = network::target(blocks());
    let mut admin = Line::admin(&open);
    assert_eq!(admin.run(security(0x06, 64), TRANSPORT, 64, &[]).status(), Status::INVALID_OPCODE);
}

#[test]
fn a_command_for_authentication_has_no_more_data_than_a_message_and_no_longer_message_than_data() {
    let keys = Keys { host: secret(), controller: None };
    let target = target(&keys);
    let mut admin = Line::new(&target);
    admin.connect(0, 0xffff, 31, 0).ok();
    // Authentication Send and Receive; TL and AL, and bytes of the SGL.
    for (fctype, length, bytes) in [
        (0x05, 256 << 20, 256 << 20),
        (0x06, 256 << 20, 256 << 20),
        (0x05, 64, 4097),
        (0x06, 64, 4097),
        (0x05, 65, 64),
        (0x06, 65, 64),
    ] {
        let answer = admin.run(security(fctype, length), TRANSPORT, bytes, &[]);
        assert_eq!(answer.status(), Status::INVALID_FIELD, "{fctype:#x} {length} {bytes}");
    }
    assert!(matches!(authenticate(&mut admin, keys), Step::Authenticated));
}

#[test]
fn who_has_proven_nothing_holds_little_memory_and_its_commands_go_on_one_after_another() {
    let target = target(&Keys { host: secret(), controller: None });
    let mut admin = Line::new(&target);
    admin.connect(0, 0xffff, 2000, 0).ok();
    let queue = target.memory().used();
    assert!(
        queue <= 128 << 10,
        "a queue of two thousand entries is there when it is known for whom: {queue}"
    );
    let begun: Vec<_> = (0..30).map(|_| admin.begin(security(0x05, 4096), TRANSPORT, 4096)).collect();
    let wanted = |begun: &Begun| matches!(begun, Begun::NeedsData(_));
    assert_eq!(begun.iter().filter(|(_, begun)| wanted(begun)).count(), 2);
    admin.poll();
    assert_eq!(admin.queue.next_wanted(), None);
    assert!(target.memory().used() - queue <= 64 << 10, "{} bytes", target.memory().used());
    let (first, Begun::NeedsData(data)) = begun[0] else { panic!("{:?}", begun[0]) };
    admin.fill(data, &[0; 4096]);
    admin.wait_for(first);
    assert_eq!(admin.queue.next_event(), Some(0), "there is room for the next one");
    admin.poll();
    assert_eq!(admin.queue.next_wanted().map(|wanted| wanted.slot), Some(Line::slot_of(begun[2].1)));
}

#[test]
fn commands_that_are_refused_keep_nobody_alive() {
    let target = target(&Keys { host: secret(), controller: None });
    let mut admin = Line::new(&target);
    admin.send(connect(0, 31, 0, 30_000), &connect_data(SUBSYSTEM, HOST, 0xffff)).ok();
    admin.clock.advance(Duration::from_secs(20));
    assert_eq!(admin.plain(sqe(0x18, 0)).status(), AUTHENTICATION_REQUIRED);
    admin.poll();
    assert_eq!(admin.queue.next_event(), Some(30_000_000_000));
    admin.clock.advance(Duration::from_secs(10));
    admin.poll();
    assert_eq!(admin.queue.state(), QueueState::Ended(EndReason::KeepAlive));
}

#[test]
fn the_large_groups_are_used_by_targets_that_were_told_to() {
    let keys = Keys { host: secret(), controller: None };
    let large = || Policy { groups: vec![Group::Ffdhe8192, Group::Ffdhe6144], ..Policy::default() };
    let start = |target: &Arc<Target>| {
        let mut admin = Line::new(target);
        admin.connect(0, 0xffff, 31, 0).ok();
        admin
    };
    let answer = authenticate_by(&mut start(&target(&keys)), keys.clone(), large());
    assert!(matches!(answer, Step::Failed { failure: Failure::GROUP_NOT_USABLE, .. }), "{answer:?}");
    let told = target_with(&keys, TargetOptions { authentication: large(), ..TargetOptions::default() });
    assert!(matches!(authenticate_by(&mut start(&told), keys, large()), Step::Authenticated));
}
