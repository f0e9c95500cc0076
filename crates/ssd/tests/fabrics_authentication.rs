//! In-band authentication: a queue does nothing else before its host has proven who it is (Base 8.3.4).

mod network;

use std::sync::Arc;
use std::time::Duration;

use network::{
    HOST, IN_CAPSULE, Line, SUBSYSTEM, TRANSPORT, blocks, connect, connect_data, read, sqe, target_for,
};
use unvme_fabric::Secret;
use unvme_fabric::chap::{Failure, Group, Host, Keys, Names, Policy, Step};
use unvme_spec::{Sqe, Status};
use unvme_ssd::fabrics::{Access, Begun, EndReason, HostAccess, QueueState, Target, TargetOptions};

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

/// SECP E9h, SPSP1 and SPSP0 01h.
fn security(fctype: u32, bytes: u32) -> Sqe {
    Sqe { cdw10: 0xe901_0100, cdw11: bytes, ..sqe(0x7f, fctype) }
}

/// Carries messages until the host is done.
fn authenticate(line: &mut Line, keys: Keys) -> Step {
    authenticate_by(line, keys, Policy::default())
}

fn authenticate_by(line: &mut Line, keys: Keys, policy: Policy) -> Step {
    let names = Names { host: HOST.into(), subsystem: SUBSYSTEM.into() };
    let mut host = Host::new(names, keys, policy, 1);
    loop {
        match host.step() {
            Step::Send(message) => {
                line.run(security(0x05, message.len() as u32), IN_CAPSULE, message.len() as u32, &message)
                    .ok();
            }
            Step::Receive { bytes } => {
                let message = line.run(security(0x06, bytes), TRANSPORT, bytes, &[]).ok();
                host.received(&message);
            }
            done => return done,
        }
    }
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
    assert_eq!(io.connect(1, 1, 31, 0).result(), 1 << 17 | 1);
    assert_eq!(io.receive(read(0, 1), 512).status(), AUTHENTICATION_REQUIRED);
    assert!(matches!(authenticate(&mut io, keys), Step::Authenticated));
    io.receive(read(0, 1), 512).ok();
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
    let begun: Vec<_> = (0..1500).map(|_| admin.begin(security(0x05, 4096), TRANSPORT, 4096)).collect();
    let wanted = |begun: &Begun| matches!(begun, Begun::NeedsData(_));
    assert_eq!(begun.iter().filter(|(_, begun)| wanted(begun)).count(), 2);
    admin.poll();
    assert_eq!(admin.queue.next_wanted(), None);
    assert!(target.memory().used() <= 64 << 10, "{} bytes", target.memory().used());
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
