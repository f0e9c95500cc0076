//! Where hosts come in.

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};
use unvme_bus::EventFd;

use super::changes::Changes;
use super::crowd::Crowd;
use super::peer::{Accepted, Port};
use super::poller::{Interest, Poller};
use super::worker::Mailbox;
use crate::fabrics::Endpoint;
use crate::{Error, Result};

/// The poller's key for the end of the server.
const STOP: u64 = u64::MAX;
/// And for what is to be seen to meanwhile.
const NEWS: u64 = u64::MAX - 1;
/// Connections that the system keeps until they are accepted.
const BACKLOG: i32 = 1024;
/// How long nobody is accepted after the system has had no more descriptors or memory.
const BREATH: Duration = Duration::from_millis(100);
/// Connections that are accepted before the other ports have their turn.
const ACCEPTS_MAX: usize = 64;
/// Descriptors that a server needs beside its connections.
const DESCRIPTORS_BESIDE: u64 = 256;

/// A port that listens.
pub(super) struct Listener {
    pub(super) socket: TcpListener,
    pub(super) address: SocketAddr,
}

impl Listener {
    pub(super) fn bind(endpoint: &Endpoint) -> Result<Self> {
        let failed = |e: std::io::Error| Error::Io { what: format!("listen on {endpoint}"), source: e };
        let addresses = endpoint.resolve().map_err(failed)?;
        let socket = TcpListener::bind(addresses.as_slice()).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        rustix::net::listen(&socket, BACKLOG).map_err(|e| failed(e.into()))?;
        let address = socket.local_addr().map_err(failed)?;
        Ok(Self { socket, address })
    }
}

/// Hands connections to workers.
pub(super) struct Dispatcher<'a> {
    pub(super) listeners: &'a [(Listener, Arc<Port>)],
    pub(super) mailboxes: &'a [Arc<Mailbox>],
    pub(super) crowd: Crowd,
    /// A worker has failed.
    pub(super) failed: &'a AtomicBool,
    pub(super) changes: &'a Changes<'a>,
    /// There was no room for the last connection, which was told.
    pub(super) is_full: Cell<bool>,
}

impl Dispatcher<'_> {
    /// Accepts hosts until `stop` is signalled.
    pub(super) fn run(&self, stop: &EventFd) -> Result<()> {
        let mut poller = Poller::new()?;
        poller.add(stop, STOP, Interest::INPUT)?;
        poller.add(self.changes.news, NEWS, Interest::INPUT)?;
        if let Some(updates) = self.changes.updates {
            poller.add(updates.news(), NEWS, Interest::INPUT)?;
        }
        for (index, (listener, _)) in self.listeners.iter().enumerate() {
            poller.add(&listener.socket, index as u64, Interest::INPUT)?;
        }
        loop {
            let due = self.changes.due();
            poller.wait(due)?;
            let is_due = due.is_some_and(|due| due.is_zero());
            if (is_due || poller.ready().any(|event| event.key == NEWS)) && !self.changes.attend() {
                return Ok(());
            }
            for event in poller.ready() {
                if event.key == STOP || self.failed.load(Ordering::Acquire) {
                    return Ok(());
                }
                if let Some((listener, port)) = self.listeners.get(event.key as usize) {
                    self.accept(listener, port, stop);
                }
            }
        }
    }

    /// Accepts some of those who wait: the poller tells of the others again.
    fn accept(&self, listener: &Listener, port: &Arc<Port>, stop: &EventFd) {
        for _ in 0..ACCEPTS_MAX {
            match listener.socket.accept() {
                Ok((socket, address)) => self.admit(socket, address, port),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if is_passing(&e) => {}
                Err(error) => {
                    tracing::warn!(%error, "a host could not be let in");
                    // No descriptor, or no memory: there may be some soon. The end of the server is not put
                    // off.
                    let _ = stop.wait(BREATH);
                    return;
                }
            }
        }
    }
}

impl Dispatcher<'_> {
    /// Hands a connection to the worker that has the fewest, if there is room for it.
    fn admit(&self, socket: TcpStream, address: SocketAddr, port: &Arc<Port>) {
        let fewest = self.mailboxes.iter().enumerate().min_by_key(|(_, mailbox)| mailbox.count());
        let Some((worker, mailbox)) = fewest else { return };
        let Some(entry) = self.crowd.enter(address, worker) else { return self.refuse(address) };
        self.is_full.set(entry.instead_of.is_some() && self.is_full.get());
        if let Some(gone) = entry.instead_of {
            self.refuse(address);
            self.mailboxes.get(gone.worker).into_iter().for_each(|mailbox| mailbox.wake());
        }
        mailbox.put(Accepted { socket, address, port: Arc::clone(port), visitor: entry.visitor });
    }

    /// Tells of the first in a row: who floods a server does not fill its log as well.
    fn refuse(&self, host: SocketAddr) {
        if !self.is_full.replace(true) {
            let max = self.crowd.most();
            tracing::warn!(%host, max, "too many connections; strangers give way from now on, or are refused");
        }
    }
}

/// Errors of the connection that was about to be accepted, rather than of the listener.
fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted)
        || Errno::from_io_error(error).is_some_and(|errno| {
            matches!(errno, Errno::PROTO | Errno::NETDOWN | Errno::HOSTUNREACH | Errno::NETUNREACH)
        })
}

/// Raises the limit of descriptors as far as this process may and the connections need.
pub(super) fn raise_descriptor_limit(connections_max: usize) {
    let mut limit = getrlimit(Resource::Nofile);
    let needed = connections_max as u64 + DESCRIPTORS_BESIDE;
    if limit.current.is_none_or(|current| current >= needed) {
        return;
    }
    limit.current = Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed)));
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "raise the limit of descriptors");
    }
}

/// Connections that this process has descriptors for, at most `connections_max`. Strangers give way from
/// there on: without a descriptor for it a newcomer could not even be accepted.
pub(super) fn connections_possible(connections_max: usize) -> usize {
    possible_within(connections_max, getrlimit(Resource::Nofile).current)
}

fn possible_within(connections_max: usize, limit: Option<u64>) -> usize {
    let Some(limit) = limit else { return connections_max };
    let possible = limit - DESCRIPTORS_BESIDE.min(limit / 2);
    connections_max.min(usize::try_from(possible).unwrap_or(usize::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::net::TcpStream;

    use super::super::admission::Admission;
    use super::super::peer::port_for_tests;
    use super::super::tls::{Doors, Keyring};
    use super::*;

    #[test]
    fn no_more_connections_are_kept_than_there_are_descriptors_for() {
        assert_eq!(possible_within(4096, None), 4096);
        assert_eq!(possible_within(4096, Some(1 << 20)), 4096);
        assert_eq!(possible_within(4096, Some(4096)), 3840);
        assert_eq!(possible_within(4096, Some(256)), 128);
        assert_eq!(possible_within(4096, Some(0)), 1);
    }

    #[test]
    fn a_flood_at_one_port_does_not_keep_the_others_waiting() {
        let listener = Listener::bind(&Endpoint::new("127.0.0.1", 0)).expect("a port");
        let clients: Vec<_> =
            (0..ACCEPTS_MAX + 6).map(|_| TcpStream::connect(listener.address).expect("connect")).collect();
        let mailboxes = [Arc::new(Mailbox::new().expect("a mailbox"))];
        let failed = AtomicBool::new(false);
        let (stop, port) = (EventFd::new().expect("an eventfd"), port_for_tests(Keyring::default()));
        let doors = Doors::new(Keyring::default());
        let admission = Admission { target: &port.target, doors: &doors, addresses: vec![], nqns: vec![] };
        let (served, last_unplugged) = (RefCell::default(), RefCell::default());
        let changes = Changes {
            news: &stop,
            admission: &admission,
            updates: None,
            served: &served,
            last_unplugged: &last_unplugged,
        };
        let (is_full, crowd) = (Cell::new(false), Crowd::new(ACCEPTS_MAX + 2));
        let dispatcher = Dispatcher {
            listeners: &[],
            mailboxes: &mailboxes,
            crowd,
            failed: &failed,
            changes: &changes,
            is_full,
        };
        dispatcher.accept(&listener, &port, &stop);
        assert_eq!(mailboxes[0].count(), ACCEPTS_MAX);
        assert!(!dispatcher.is_full.get());
        dispatcher.accept(&listener, &port, &stop);
        assert_eq!(mailboxes[0].count(), ACCEPTS_MAX + 6, "four of them in the place of others");
        assert!(dispatcher.is_full.get(), "the first was told of, the others are not");
        drop(clients);
    }
}
