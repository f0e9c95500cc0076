//! A target of NVMe/TCP: virtual devices, offered to hosts on any machine.
//!
//! | file | concept |
//! |---|---|
//! | `devices` | the devices, each a subsystem |
//! | `admission` | who may enter, and what is refused before anybody can |
//! | `changes` | what happens to a server while it runs: other rules, devices that are unplugged |
//! | `listener` | sockets that listen, and handing connections to workers |
//! | `crowd` | who gives way when there are too many connections |
//! | `worker` | a thread with connections of its own |
//! | `peer` | a connection: its socket and its state machine |
//! | `poller` | epoll |
//! | `tls` | keys of hosts that come by TLS |

mod admission;
mod changes;
mod crowd;
mod devices;
mod listener;
mod peer;
mod poller;
mod tls;
mod worker;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use unvme_bus::EventFd;
use unvme_ssd::FaultRule;
use unvme_ssd::fabrics::{AddressFamily, PortId, PortOptions, Referral, Target, TargetOptions};
use unvme_ssd::tcp::Limits;

use self::admission::Admission;
use self::changes::Changes;
use self::crowd::Crowd;
use self::devices::Served;
use self::listener::{Dispatcher, Listener, connections_possible, raise_descriptor_limit};
use self::peer::Port;
use self::tls::{Doors, Keyring};
use self::worker::{Mailbox, Worker};
use super::pin;
use crate::fabrics::{Access, Endpoint};
use crate::name::TcpName;
use crate::{Error, Registry, Result};

pub use self::admission::AccessUpdates;
pub use unvme_ssd::fabrics::AnaState;

/// Threads of a server that was not told how many.
const THREADS_DEFAULT_MAX: usize = 4;
/// Most threads of a server.
pub const TCP_THREADS_MAX: usize = 64;
/// Connections of a server that was not told how many.
const CONNECTIONS_MAX: usize = 4096;
/// Most ports of a server.
const PORTS_MAX: usize = 64;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Address and TCP port; port 0 takes any that is free.
    pub endpoint: Endpoint,
    /// How well the devices are reached there (Asymmetric Namespace Access).
    pub ana: AnaState,
}

/// How to serve devices to other machines.
#[derive(Clone, Debug)]
pub struct TcpServeOptions {
    /// Where virtual slots are; `None` means [`Registry::from_environment`].
    pub registry: Option<Registry>,
    /// Where to listen, 1 to 64 ports: each offers all devices.
    pub listen: Vec<ListenOptions>,
    /// NQNs of the devices, in their order; when empty, each device has one of its own.
    pub nqns: Vec<String>,
    /// Who may enter. Anybody may when it says nothing and all ports are on the loopback.
    pub access: Access,
    /// Changes that while the server runs; `None` for rules that stay.
    pub access_updates: Option<AccessUpdates>,
    /// Most bytes of memory for all hosts: data on its way, queues and commands.
    pub memory_bytes: u64,
    /// Threads, 1 to [`TCP_THREADS_MAX`]; `None` for one on each of `cores`, and without those for half of
    /// the processors and at most 4.
    pub threads: Option<usize>,
    /// Processors that the threads are pinned to, one after the other and then from the first on again; none
    /// when empty. No more than there are threads.
    pub cores: Vec<usize>,
    /// How long a thread looks for work without sleep after the last there was; `None` means for ever.
    pub spin: Option<Duration>,
    /// Rules for faults of all devices, beside those they have: they end with the server.
    pub faults: Vec<FaultRule>,
    /// Discovery services elsewhere that hosts are told of.
    pub referrals: Vec<Endpoint>,
    /// Identify Namespace of the NVM Command Set says how large key-value namespaces are, in blocks of 512
    /// bytes, for hosts that take one without capacity there for inactive, as SPDK's does. Hosts that do not
    /// ask for command sets may take it for blocks.
    pub kv_ncap: bool,
    /// Most connections at a time. For a further one another has to leave: a stranger's, which has proven
    /// nothing, or one of the address that has most.
    pub connections_max: usize,
    /// Most bytes of memory devices' data that are taken from the system before anybody is served, the first
    /// device's first.
    pub populate_bytes: u64,
}

impl Default for TcpServeOptions {
    fn default() -> Self {
        Self {
            registry: None,
            listen: Vec::new(),
            nqns: Vec::new(),
            access: Access::default(),
            access_updates: None,
            memory_bytes: TargetOptions::default().memory_bytes,
            threads: None,
            cores: Vec::new(),
            spin: Some(Duration::from_millis(2)),
            faults: Vec::new(),
            referrals: Vec::new(),
            kv_ncap: false,
            connections_max: CONNECTIONS_MAX,
            populate_bytes: 0,
        }
    }
}

/// A device that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedSubsystem {
    /// The name it was given by.
    pub device: String,
    /// NQN of its subsystem.
    pub nqn: String,
    /// What hosts open it by, one for each port.
    pub names: Vec<TcpName>,
}

/// Serves devices to hosts on any machine by NVMe/TCP until `stop` is signalled: then nobody is let in, what
/// has begun is finished, and the connections are closed. `ready` is called once, when hosts can connect.
///
/// Each device is a subsystem of its own, and every port has a discovery service as well. Slots stay open to
/// other processes of this machine by their names. A device that is unplugged ends its subsystem, and the
/// last of them the server. The calling thread accepts connections and sees to such changes.
///
/// # Errors
/// [`Error::NotFound`], [`Error::InUse`]; [`Error::Unplugged`] for a device that is unplugged, and when all
/// have been meanwhile; [`Error::Unsupported`] for one that is not virtual; [`Error::Argument`] for options
/// that make no sense, and for devices that anybody on the network could write; [`Error::Io`] when a port
/// cannot be had.
pub fn serve_tcp(
    devices: &[String],
    options: &TcpServeOptions,
    stop: &EventFd,
    ready: impl FnOnce(&[ServedSubsystem]),
) -> Result<()> {
    let mailboxes = check(options)?;
    raise_descriptor_limit(options.connections_max);
    // Before the devices: a port that is taken is found out without touching them.
    let listeners = listen(options)?;
    let news = EventFd::new().map_err(|e| Error::driver("serve", unvme_driver::Error::Bus(e)))?;
    let served = devices::open(devices, options, &news)?;
    let nqns: Vec<String> = served.iter().map(|device| device.nqn.clone()).collect();
    let nqns: Vec<&str> = nqns.iter().map(String::as_str).collect();
    admission::check_subsystems(&options.access, &nqns)?;
    let target = target(&served, &listeners, options)?;
    target.refusals().wake_by(news.clone());
    let doors = Arc::new(Doors::new(Keyring::new(&options.access, &nqns)?));
    let ports: Vec<(Listener, Arc<Port>)> = (1..)
        .zip(listeners)
        .map(|(id, listener)| {
            let (target, doors) = (Arc::clone(&target), Arc::clone(&doors));
            (listener, Arc::new(Port { target, id: PortId(id), doors, limits: Limits::default() }))
        })
        .collect();
    let announced = names(&served, &ports);
    let addresses = ports.iter().map(|(at, _)| at.address.ip()).collect();
    let admission = Admission { target: &target, doors: &doors, addresses, nqns };
    let (served, last_unplugged) = (RefCell::new(served), RefCell::default());
    let changes = Changes {
        news: &news,
        admission: &admission,
        updates: options.access_updates.as_ref(),
        served: &served,
        last_unplugged: &last_unplugged,
    };
    run(&changes, &ports, &mailboxes, options, stop, || ready(&announced))?;
    target.refusals().tell_left_out(true);
    // No queue is left: the devices go with the last of their handles.
    drop(ports);
    match last_unplugged.into_inner() {
        Some(name) if served.borrow().is_empty() => Err(Error::Unplugged { name }),
        _ => Ok(()),
    }
}

/// Finds out what makes no sense before anything is opened; the places where workers get their connections.
fn check(options: &TcpServeOptions) -> Result<Vec<Arc<Mailbox>>> {
    let refused = |reason: String| Err(Error::Argument(format!("serve: {reason}")));
    if !(1..=PORTS_MAX).contains(&options.listen.len()) {
        return refused(format!("{} ports; 1 to {PORTS_MAX} are expected", options.listen.len()));
    }
    admission::check_hosts(&options.access)?;
    let cores = options.cores.len();
    let threads = options.threads.unwrap_or_else(|| if cores > 0 { cores } else { threads_default() });
    if !(1..=TCP_THREADS_MAX).contains(&threads) {
        return refused(format!("{threads} as the number of threads; 1 to {TCP_THREADS_MAX} are expected"));
    }
    if cores > threads {
        return refused(format!("more cores ({cores}) than threads ({threads}); expected no more of them"));
    }
    (0..threads).map(|_| Mailbox::new().map(Arc::new)).collect()
}

fn threads_default() -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).clamp(1, THREADS_DEFAULT_MAX)
}

fn listen(options: &TcpServeOptions) -> Result<Vec<Listener>> {
    let mut listeners = Vec::new();
    for at in &options.listen {
        let listener = Listener::bind(&at.endpoint)?;
        admission::check(&options.access, listener.address.ip())?;
        listeners.push(listener);
    }
    Ok(listeners)
}

/// What is offered.
fn target(served: &[Served], listeners: &[Listener], options: &TcpServeOptions) -> Result<Arc<Target>> {
    let target = Target::new(TargetOptions {
        memory_bytes: options.memory_bytes,
        pairs_in_blocks: options.kv_ncap,
        ..TargetOptions::default()
    });
    let refused = |name: &str| {
        let name = name.to_owned();
        move |source| Error::Ssd { name, source }
    };
    for device in served {
        let access = admission::access_of(&options.access, &device.nqn);
        let added = target.add_subsystem(&device.nqn, Arc::clone(&device.ssd), access);
        added.map_err(refused(&device.name))?;
    }
    for ((id, listener), at) in (1..).zip(listeners).zip(&options.listen) {
        let mut port = port_at(listener.address.ip().to_string(), listener.address);
        (port.id, port.ana) = (PortId(id), at.ana);
        port.is_secure = admission::requires_tls(&options.access);
        target.add_port(port).map_err(refused("serve"))?;
    }
    for endpoint in &options.referrals {
        let failed = |e| Error::Io { what: format!("find {endpoint}"), source: e };
        // Hosts are told the address: they may not know the name.
        let addresses = endpoint.resolve().map_err(failed)?;
        let Some(address) = addresses.first() else {
            return Err(Error::Argument(format!("serve: {endpoint} has no address")));
        };
        let port = port_at(address.ip().to_string(), *address);
        target.add_referral(Referral { port, nqn: String::new() }).map_err(refused("serve"))?;
    }
    Ok(target)
}

fn port_at(address: String, at: SocketAddr) -> PortOptions {
    let family = if at.is_ipv4() { AddressFamily::Ipv4 } else { AddressFamily::Ipv6 };
    PortOptions { family, address, service: at.port().to_string(), ..PortOptions::default() }
}

fn names(served: &[Served], ports: &[(Listener, Arc<Port>)]) -> Vec<ServedSubsystem> {
    let names = |nqn: &str| ports.iter().map(|(at, _)| TcpName::new(at.address.into(), nqn)).collect();
    let all = served.iter().map(|device| ServedSubsystem {
        device: device.name.clone(),
        nqn: device.nqn.clone(),
        names: names(&device.nqn),
    });
    all.collect()
}

/// Starts the workers, lets hosts in until the end, and has the workers finish.
fn run(
    changes: &Changes<'_>,
    ports: &[(Listener, Arc<Port>)],
    mailboxes: &[Arc<Mailbox>],
    options: &TcpServeOptions,
    stop: &EventFd,
    ready: impl FnOnce(),
) -> Result<()> {
    let failed = AtomicBool::new(false);
    thread::scope(|scope| {
        let (started, starts) = channel();
        let workers: Vec<_> = mailboxes
            .iter()
            .enumerate()
            .map(|(index, mailbox)| {
                let (mailbox, started, failed) = (Arc::clone(mailbox), started.clone(), &failed);
                let core = options.cores.get(index % options.cores.len().max(1)).copied();
                let spin = options.spin;
                scope.spawn(move || {
                    let _alarm = Alarm { failed, stop };
                    let ended = work(&mailbox, core, spin, &started);
                    if ended.is_err() {
                        failed.store(true, Ordering::Release);
                        stop.signal();
                    }
                    ended
                })
            })
            .collect();
        drop(started);
        // Each says whether it could begin.
        let received = if starts.iter().take(workers.len()).all(|has_begun| has_begun) {
            ready();
            let crowd = Crowd::new(connections_possible(options.connections_max));
            let is_full = Cell::new(false);
            Dispatcher { listeners: ports, mailboxes, crowd, failed: &failed, changes, is_full }.run(stop)
        } else {
            Ok(())
        };
        changes.admission.target.close();
        mailboxes.iter().for_each(|mailbox| mailbox.stop());
        let ended = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.fold(received, |first, ended| first.and(ended))
    })
}

/// Ends the server when a thread of it panics: its connections are served by nobody.
struct Alarm<'a> {
    failed: &'a AtomicBool,
    stop: &'a EventFd,
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.failed.store(true, Ordering::Release);
            self.stop.signal();
        }
    }
}

fn work(
    mailbox: &Arc<Mailbox>,
    core: Option<usize>,
    spin: Option<Duration>,
    started: &Sender<bool>,
) -> Result<()> {
    let worker = pin(core).and_then(|()| Worker::new(Arc::clone(mailbox), spin));
    // Who waits for it is gone when another one could not begin.
    let _ = started.send(worker.is_ok());
    worker?.run()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabrics::{AllowedHost, Keys};

    fn options(threads: Option<usize>, cores: &[usize]) -> TcpServeOptions {
        let listen = ListenOptions { endpoint: Endpoint::new("127.0.0.1", 0), ana: AnaState::Optimized };
        TcpServeOptions { listen: vec![listen], threads, cores: cores.to_vec(), ..TcpServeOptions::default() }
    }

    #[test]
    fn every_core_that_was_named_has_a_thread() {
        let threads = |threads, cores: &[usize]| check(&options(threads, cores)).map(|it| it.len());
        assert_eq!(threads(None, &[0, 1, 2, 3, 4, 5]).expect("one each"), 6);
        assert_eq!(threads(Some(3), &[0]).expect("all on one"), 3);
        assert_eq!(threads(None, &[]).expect("some"), threads_default());
        let refused = threads(Some(1), &[0, 1]).expect_err("the second would have none").to_string();
        assert!(refused.contains("more cores (2) than threads (1)"), "{refused}");
        assert!(threads(None, &[0; TCP_THREADS_MAX + 1]).is_err());
    }

    #[test]
    fn a_thread_that_panics_ends_the_server() {
        let (failed, stop) = (AtomicBool::new(false), EventFd::new().expect("an eventfd"));
        drop(Alarm { failed: &failed, stop: &stop });
        assert!(!failed.load(Ordering::Acquire) && !stop.drain());
        let panicked = thread::scope(|scope| {
            let (failed, stop) = (&failed, &stop);
            let worker = scope.spawn(move || {
                let _alarm = Alarm { failed, stop };
                panic!("as if by a bug");
            });
            worker.join().is_err()
        });
        assert!(panicked && failed.load(Ordering::Acquire) && stop.drain());
    }

    #[test]
    fn hosts_with_rules_of_their_own_and_a_door_that_is_open_to_all_are_refused() {
        let host = AllowedHost { nqn: "nqn.a".into(), subsystems: None, keys: Keys::default() };
        let refused = |any_host| {
            let access = Access { hosts: vec![host.clone()], any_host };
            check(&TcpServeOptions { access, ..options(None, &[]) }).err().map(|e| e.to_string())
        };
        assert!(refused(true).is_some_and(|reason| reason.contains("nqn.a")));
        assert_eq!(refused(false), None);
    }
}
