//! More hosts than there are controllers: who prove nothing, and who take more than their part, do not keep
//! the others out.

mod network;

use std::sync::Arc;

use network::{HOST, IN_CAPSULE, Line, SUBSYSTEM, blocks, connect, connect_data, read};
use unvme_bus::Clock;
use unvme_fabric::Secret;
use unvme_fabric::chap::{Keys, Names, Policy, Step};
use unvme_spec::Status;
use unvme_ssd::CONTROLLERS_MAX;
use unvme_ssd::fabrics::{Access, EndReason, HostAccess, QueueState, Target, TargetOptions};

const CONTROLLER_BUSY: Status = Status::new(1, 0x81);
/// More than there are controllers.
const ATTACKERS: usize = 2 * CONTROLLERS_MAX;
const EVIL: &str = "192.0.2.66:1000";
const TRUE: &str = "192.0.2.7:1000";

/// Connections, and what they all are served with.
struct Crowd {
    target: Arc<Target>,
    clock: Clock,
    lines: Vec<Line>,
}

impl Crowd {
    fn of(access: Access) -> Self {
        let target = network::target_for(blocks(), access, TargetOptions::default());
        Self { target, clock: Clock::manual(), lines: Vec::new() }
    }

    /// Every connection has its turn, and those that have ended are closed.
    fn turn(&mut self) {
        self.lines.iter_mut().for_each(|line| {
            line.poll();
        });
        self.lines.retain(|line| !matches!(line.queue.state(), QueueState::Ended(_)));
    }

    /// Connects from `address` while everybody else is served as well.
    fn connect(&mut self, address: &str, host: &str, qid: u16, cntlid: u16) -> (Line, Status, u64) {
        let mut line = Line::from(&self.target, address, &self.clock);
        let data = connect_data(SUBSYSTEM, host, cntlid);
        let started = line.start(connect(qid, 31, 0, 0), IN_CAPSULE, data.len() as u32, &data);
        let cid = started.expect("Connect is always taken");
        for _ in 0..1000 {
            line.poll();
            if let Some(answer) = line.take(cid) {
                return (line, answer.status(), answer.cqe.result());
            }
            self.turn();
        }
        panic!("no answer to Connect: {:?}", line.queue);
    }

    /// A host that connects and stays as it is.
    fn hold_on(&mut self, address: &str, host: &str) -> Status {
        let (line, status, _) = self.connect(address, host, 0, 0xffff);
        self.lines.push(line);
        status
    }

    /// A host that connects and enables its controller; the identifier of that.
    fn enter(&mut self, address: &str, host: &str) -> Option<u16> {
        let (mut line, status, result) = self.connect(address, host, 0, 0xffff);
        if status != Status::SUCCESS {
            return None;
        }
        line.enable();
        self.lines.push(line);
        Some(result as u16)
    }

    /// A host that has an I/O queue as well, and reads; false when it is told to come later.
    fn works(&mut self, address: &str, host: &str) -> bool {
        let Some(cntlid) = self.enter(address, host) else { return false };
        let (mut io, status, _) = self.connect(address, host, 1, cntlid);
        assert_eq!(status, Status::SUCCESS);
        io.receive(read(0, 1), 512).ok();
        self.lines.push(io);
        true
    }
}

fn keys() -> Keys {
    Keys { host: Secret::generate(None).expect("random numbers"), controller: None }
}

fn hosts(keys: &[(&str, &Keys)]) -> Access {
    let host = |&(nqn, keys): &(&str, &Keys)| {
        let keys = Some(keys.clone());
        HostAccess { nqn: nqn.to_owned(), keys, ..HostAccess::default() }
    };
    Access::Hosts(keys.iter().map(host).collect())
}

fn prove(line: &mut Line, host: &str, keys: &Keys) -> Step {
    let names = Names { host: host.into(), subsystem: SUBSYSTEM.into() };
    network::authenticate(line, names, keys.clone(), Policy::default())
}

/// The true host connects, proves who it is on both queues, and reads.
fn enters_by_proof(crowd: &mut Crowd, address: &str, keys: &Keys) {
    let (mut admin, status, result) = crowd.connect(address, HOST, 0, 0xffff);
    assert_eq!(status, Status::SUCCESS);
    assert!(matches!(prove(&mut admin, HOST, keys), Step::Authenticated));
    admin.enable();
    let (mut io, status, _) = crowd.connect(address, HOST, 1, result as u16);
    assert_eq!(status, Status::SUCCESS);
    assert!(matches!(prove(&mut io, HOST, keys), Step::Authenticated));
    io.receive(read(0, 1), 512).ok();
}

#[test]
fn hosts_that_prove_nothing_do_not_keep_the_true_one_out() {
    let keys = keys();
    for (attackers, address) in [(EVIL, TRUE), (TRUE, TRUE)] {
        let mut crowd = Crowd::of(hosts(&[(HOST, &keys)]));
        for _ in 0..ATTACKERS {
            assert_eq!(crowd.hold_on(attackers, HOST), Status::SUCCESS);
        }
        for _ in 0..10 {
            enters_by_proof(&mut crowd, address, &keys);
        }
    }
}

#[test]
fn who_comes_from_many_addresses_has_few_places_until_it_proves_something() {
    let keys = keys();
    let mut crowd = Crowd::of(hosts(&[(HOST, &keys), ("nqn.other", &keys)]));
    for number in 0..ATTACKERS {
        crowd.hold_on(&format!("198.51.{}.{}:9", number / 250, number % 250), "nqn.other");
    }
    crowd.turn();
    assert!(crowd.lines.len() <= 8, "{} hold a controller under one name", crowd.lines.len());
    enters_by_proof(&mut crowd, TRUE, &keys);
    // Those of one address are fewer still than those of all.
    for number in 0..ATTACKERS {
        crowd.hold_on(EVIL, if number % 2 == 0 { "nqn.other" } else { HOST });
    }
    crowd.turn();
    assert!(crowd.lines.len() <= 16, "{} hold a controller", crowd.lines.len());
    enters_by_proof(&mut crowd, TRUE, &keys);
}

#[test]
fn the_oldest_of_those_who_prove_nothing_gives_way_and_is_told_why() {
    let keys = keys();
    let mut crowd = Crowd::of(hosts(&[(HOST, &keys)]));
    let (mut first, ..) = crowd.connect(EVIL, HOST, 0, 0xffff);
    for _ in 0..8 {
        assert_eq!(first.queue.state(), QueueState::Connected);
        crowd.hold_on(EVIL, HOST);
        first.poll();
    }
    assert_eq!(first.queue.state(), QueueState::Ended(EndReason::GaveWay));
}

#[test]
fn a_queue_that_somebody_sits_on_without_proof_is_had_by_its_host() {
    let keys = keys();
    let mut crowd = Crowd::of(hosts(&[(HOST, &keys)]));
    let (mut admin, _, result) = crowd.connect(TRUE, HOST, 0, 0xffff);
    assert!(matches!(prove(&mut admin, HOST, &keys), Step::Authenticated));
    admin.enable();
    let (seated, status, _) = crowd.connect(EVIL, HOST, 1, result as u16);
    assert_eq!(status, Status::SUCCESS);
    crowd.lines.push(seated);
    let (mut io, status, _) = crowd.connect(TRUE, HOST, 1, result as u16);
    assert_eq!(status, Status::SUCCESS);
    assert!(matches!(prove(&mut io, HOST, &keys), Step::Authenticated));
    io.receive(read(0, 1), 512).ok();
    // With proof it is the host's.
    let (_, status, _) = crowd.connect(EVIL, HOST, 1, result as u16);
    assert_eq!(status, Status::COMMAND_SEQUENCE_ERROR);
}

#[test]
fn a_host_that_has_proven_its_name_many_times_gives_way_to_another_that_has() {
    let (greedy, keys) = (keys(), keys());
    let mut crowd = Crowd::of(hosts(&[("nqn.greedy", &greedy), (HOST, &keys)]));
    for _ in 0..CONTROLLERS_MAX {
        let (mut line, status, _) = crowd.connect(EVIL, "nqn.greedy", 0, 0xffff);
        assert_eq!(status, Status::SUCCESS);
        assert!(matches!(prove(&mut line, "nqn.greedy", &greedy), Step::Authenticated));
        crowd.lines.push(line);
        crowd.turn();
    }
    assert!(crowd.lines.len() > 100, "places that nobody else wants are anybody's: {}", crowd.lines.len());
    enters_by_proof(&mut crowd, TRUE, &keys);
}

#[test]
fn where_nothing_is_asked_an_address_gives_way_to_another_one() {
    let mut crowd = Crowd::of(Access::Any);
    for number in 0..CONTROLLERS_MAX - 1 {
        assert!(crowd.works(EVIL, &format!("nqn.evil:{number}")));
    }
    crowd.turn();
    assert_eq!(crowd.lines.len(), 2 * (CONTROLLERS_MAX - 1), "places that nobody else wants are anybody's");
    for _ in 0..10 {
        assert!(crowd.works(TRUE, HOST));
    }
    // With as many as the others it is told to come later, and takes nobody's.
    let mut entered = 10;
    while crowd.works(TRUE, HOST) {
        entered += 1;
    }
    assert_eq!(entered, (CONTROLLERS_MAX - 1) / 2);
    let (_, status, result) = crowd.connect(TRUE, HOST, 0, 0xffff);
    assert_eq!((status, result), (CONTROLLER_BUSY, 0));
}

#[test]
fn where_nothing_is_asked_hosts_that_only_hold_on_give_way_even_at_one_address() {
    let mut crowd = Crowd::of(Access::Any);
    for number in 0..ATTACKERS {
        assert_eq!(crowd.hold_on(TRUE, &format!("nqn.evil:{number}")), Status::SUCCESS);
    }
    for _ in 0..10 {
        assert!(crowd.works(TRUE, HOST));
    }
    for number in 0..ATTACKERS {
        crowd.hold_on(&format!("198.51.{}.{}:9", number / 250, number % 250), "nqn.evil");
    }
    assert!(crowd.works("203.0.113.9:7", "nqn.late"));
}
