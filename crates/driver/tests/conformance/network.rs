//! What only a device on the network has: discovery, hosts that have to prove who they are, targets that come
//! back.

use unvme_driver::{Controller, ControllerOptions, Error, Payload, QueueOptions, TcpDigests, discover};
use unvme_fabric::chap::Keys;
use unvme_fabric::{Hash, Secret};
use unvme_spec::fabrics::{DISCOVERY_NQN, subtype, trtype};
use unvme_spec::{Nsid, Status};
use unvme_ssd::fabrics::{Access, HostAccess};

use crate::rig::{filled, run, small, ssd};
use crate::served::{HOST, NQN, Served};

fn secret() -> Secret {
    Secret::generate(Some(Hash::Sha256)).expect("random numbers")
}

/// A device that `host` may use who knows `own`, and who is told that the target knows `controller`.
fn guarded(own: Secret, controller: Option<Secret>) -> Served {
    let keys = Some(Keys { host: own, controller });
    let host = HostAccess { nqn: HOST.to_owned(), keys, ..HostAccess::default() };
    Served::start(ssd(small()), Access::Hosts(vec![host]))
}

fn open(target: unvme_driver::TcpTarget) -> Result<Controller, Error> {
    Controller::open_tcp(target, ControllerOptions::default())
}

#[test]
fn a_discovery_service_names_the_subsystem_and_its_port() {
    let served = Served::start(ssd(small()), Access::Any);
    let mut target = served.target();
    target.nqn = DISCOVERY_NQN.to_owned();
    assert!(matches!(open(target.clone()), Err(Error::InvalidArgument(_))), "it is no device");
    let entries = discover(&target).expect("discover");
    let entry = entries.iter().find(|entry| entry.nqn == NQN).expect("it is listed");
    assert_eq!((entry.transport, entry.kind), (trtype::TCP, subtype::NVM));
    assert_eq!((&*entry.address, &entry.service), ("127.0.0.1", &target.port.to_string()));
}

#[test]
fn a_host_proves_who_it_is_on_every_queue() {
    let own = secret();
    let served = guarded(own.clone(), None);
    let mut target = served.target();
    let error = open(target.clone()).expect_err("without a secret");
    assert!(matches!(error, Error::Denied(_)), "{error}");
    target.secret = Some(secret());
    let error = open(target.clone()).expect_err("another secret");
    assert!(matches!(error, Error::Denied(_)), "{error}");
    target.secret = Some(own);
    let controller = open(target).expect("the right secret");
    let mut queue = controller.create_queue(&QueueOptions::default()).expect("a queue authenticates, too");
    let namespace = unvme_driver::Namespace::open(&controller, Nsid(1)).expect("namespace");
    assert_eq!(run(&mut queue, namespace.flush(), None).status, Status::SUCCESS);
}

#[test]
fn a_target_proves_who_it_is_when_the_host_has_its_secret() {
    let (own, controller) = (secret(), secret());
    let served = guarded(own.clone(), Some(controller.clone()));
    let mut target = served.target();
    target.secret = Some(own);
    target.controller_secret = Some(secret());
    let error = open(target.clone()).expect_err("somebody else");
    assert!(matches!(error, Error::Denied(_)), "{error}");
    target.controller_secret = Some(controller);
    open(target).expect("the right target").identify_controller().expect("identify");
}

#[test]
fn digests_cover_headers_and_data_both_ways() {
    let served = Served::start(ssd(small()), Access::Any);
    let mut target = served.target();
    target.digests = TcpDigests { header: true, data: true };
    let controller = open(target).expect("open");
    let mut queue = controller.create_queue(&QueueOptions::default()).expect("a queue");
    let namespace = unvme_driver::Namespace::open(&controller, Nsid(1)).expect("namespace");
    for blocks in [1, 8, 16, 17, 4000] {
        let range = unvme_spec::nvm::BlockRange::new(unvme_spec::Lba(7), blocks);
        let data: Vec<u8> = (0..namespace.bytes(range)).map(|at| (at * 7 % 251) as u8).collect();
        let write = namespace.write(range, unvme_spec::nvm::AccessFlags::default()).expect("write");
        let done = run(&mut queue, write, Some(Payload::whole(filled(&controller, &data))));
        assert_eq!(done.status, Status::SUCCESS);
        let read = namespace.read(range, unvme_spec::nvm::AccessFlags::default()).expect("read");
        let buf = controller.alloc(data.len()).expect("buffer");
        let done = run(&mut queue, read, Some(Payload::whole(buf)));
        assert_eq!(done.status, Status::SUCCESS);
        assert!(done.buf.expect("it comes back").to_vec() == data, "{blocks} blocks differ");
    }
}
