//! A thread that owns connections, and everything that is done for them.
//!
//! While there is work a worker does not sleep: it looks at the connections that had some lately in every
//! round, and asks the poller about the others now and then. Once nothing has come for a while it sleeps in
//! the poller, until a socket, a timer or a wake-up has something.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use unvme_bus::{Clock, EventFd, lock};

use super::peer::{Accepted, Peer, Turn};
use super::poller::{Interest, Poller, Ready};
use crate::Result;

/// The poller's key for the wake-up.
const WAKE: u64 = u64::MAX;
/// A connection that has brought nothing in so many rounds is left to the poller.
const QUIET_ROUNDS_MAX: u32 = 256;
/// While some connections are looked at in every round, the poller is asked about the others once in so many.
const ROUNDS_PER_POLL: u32 = 16;
/// How often the clocks of connections are looked at whose hosts are silent.
const CLOCK_INTERVAL: Duration = Duration::from_micros(500);
/// Connections whose clocks are looked at each time while others have work; of many, an eighth.
const CLOCKS_MIN: usize = 64;
/// An event that is so close is waited for without sleep.
const SLEEP_MIN: Duration = Duration::from_millis(1);
/// Longest sleep while there are connections: each then looks at its clock.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// How long work on an admin queue keeps a worker awake: some commands follow each other, a Keep Alive is
/// followed by nothing.
const SPIN_ADMIN: Duration = Duration::from_micros(50);
/// How long a server that is to end waits for commands it has, and for data that hosts have promised.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// What the listener and a worker share.
pub(super) struct Mailbox {
    accepted: Mutex<Vec<Accepted>>,
    /// Connections that the worker has, those in the mailbox included.
    count: AtomicUsize,
    wake: EventFd,
    stop: AtomicBool,
}

impl Mailbox {
    pub(super) fn new() -> Result<Self> {
        let wake = EventFd::new().map_err(|e| crate::Error::driver("serve", unvme_driver::Error::Bus(e)))?;
        let (accepted, count, stop) = (Mutex::default(), AtomicUsize::new(0), AtomicBool::new(false));
        Ok(Self { accepted, count, wake, stop })
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(super) fn put(&self, accepted: Accepted) {
        self.count.fetch_add(1, Ordering::Relaxed);
        lock(&self.accepted).push(accepted);
        self.wake.signal();
    }

    /// Has the worker look at all its connections.
    pub(super) fn wake(&self) {
        self.wake.signal();
    }

    /// Has the worker finish what is begun, close all connections, and end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake.signal();
    }

    fn take(&self) -> Vec<Accepted> {
        std::mem::take(&mut *lock(&self.accepted))
    }
}

/// See the module.
pub(super) struct Worker {
    mailbox: Arc<Mailbox>,
    poller: Poller,
    clock: Clock,
    /// By the poller's key. A place that is free is in `free`.
    peers: Vec<Option<Peer>>,
    free: Vec<usize>,
    /// Those that are looked at in every round.
    active: Vec<usize>,
    /// How long to look for work without sleep after the last that an I/O queue had; `None` for ever.
    spin: Option<Duration>,
    /// Until then there is no sleep, by the clock.
    awake_until: u64,
    /// When the clocks of silent connections are looked at next.
    clocks_at: u64,
    /// At which connection.
    next_clock: usize,
    /// Empty between rounds; kept for its memory.
    ready: Vec<Ready>,
    /// Since when the server is to end.
    draining_since: Option<u64>,
}

impl Worker {
    pub(super) fn new(mailbox: Arc<Mailbox>, spin: Option<Duration>) -> Result<Self> {
        let poller = Poller::new()?;
        poller.add(&mailbox.wake, WAKE, Interest::INPUT)?;
        Ok(Self {
            mailbox,
            poller,
            clock: Clock::wall(),
            peers: Vec::new(),
            free: Vec::new(),
            active: Vec::new(),
            spin,
            // Without a limit there is no sleep at all.
            awake_until: if spin.is_none() { u64::MAX } else { 0 },
            clocks_at: 0,
            next_clock: 0,
            ready: Vec::new(),
            draining_since: None,
        })
    }

    /// Works until it is stopped and no connection is left. Errors: when the poller fails.
    pub(super) fn run(&mut self) -> Result<()> {
        let mut round = 0u32;
        loop {
            round = round.wrapping_add(1);
            self.turn_active();
            if self.draining_since.is_some() && self.drain() {
                return Ok(());
            }
            if self.active.is_empty() || round.is_multiple_of(ROUNDS_PER_POLL) {
                self.poller.wait(self.timeout())?;
                self.handle_events();
            }
        }
    }

    /// Looks at every connection that had work lately.
    fn turn_active(&mut self) {
        let mut at = 0;
        while let Some(&key) = self.active.get(at) {
            let turn = self.look(key, Peer::turn);
            if turn == Turn::Over {
                // It is not there any more.
                continue;
            }
            let clock = self.clock.clone();
            let stays = self.peer(key).is_some_and(|peer| {
                peer.quiet = if turn == Turn::Quiet { peer.quiet.saturating_add(1) } else { 0 };
                peer.is_active =
                    peer.quiet < QUIET_ROUNDS_MAX || peer.has_buffered() || is_due_soon(peer, &clock);
                peer.is_active
            });
            if stays {
                at += 1;
            } else {
                self.active.swap_remove(at);
                self.update_interest(key);
            }
        }
    }

    /// Looks at a connection, and closes one that is over.
    fn look(&mut self, key: usize, how: fn(&mut Peer, &Clock) -> Turn) -> Turn {
        let Some(Some(peer)) = self.peers.get_mut(key) else { return Turn::Over };
        let turn = how(peer, &self.clock);
        let awake_for = match turn {
            Turn::Quiet => return turn,
            Turn::Over => {
                self.close(key);
                return turn;
            }
            Turn::Worked => Some(SPIN_ADMIN),
            Turn::WorkedOnData => self.spin,
        };
        let until =
            awake_for.map_or(u64::MAX, |spin| self.clock.now().saturating_add(spin.as_nanos() as u64));
        self.awake_until = self.awake_until.max(until);
        turn
    }

    fn close(&mut self, key: usize) {
        if let Some(place) = self.peers.get_mut(key)
            && place.take().is_some()
        {
            self.free.push(key);
            // The next one that has the place is looked at when it has something.
            self.active.retain(|&active| active != key);
            self.mailbox.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn peer(&mut self, key: usize) -> Option<&mut Peer> {
        self.peers.get_mut(key)?.as_mut()
    }

    /// How long to wait in the poller.
    fn timeout(&self) -> Option<Duration> {
        let now = self.clock.now();
        if !self.active.is_empty() || now < self.awake_until || self.draining_since.is_some() {
            return Some(Duration::ZERO);
        }
        let events = self.peers.iter().flatten().filter_map(Peer::next_event);
        let left = events.min().map(|at| Duration::from_nanos(at.saturating_sub(now)));
        match left {
            Some(left) if left < SLEEP_MIN => Some(Duration::ZERO),
            Some(left) => Some(left.min(SLEEP_MAX)),
            None if self.peers.len() > self.free.len() => Some(SLEEP_MAX),
            None => None,
        }
    }

    /// Tells the poller what a connection waits for that is not looked at in every round. One that cannot be
    /// waited for is closed.
    fn update_interest(&mut self, key: usize) {
        let Some(Some(peer)) = self.peers.get_mut(key) else { return };
        let wanted = peer.wanted();
        if wanted != peer.interest
            && let Some(fd) = peer.fd()
        {
            match self.poller.change(fd, key as u64, wanted) {
                Ok(()) => peer.interest = wanted,
                Err(error) => {
                    tracing::warn!(%error, "a connection is closed");
                    self.close(key);
                }
            }
        }
    }

    /// Sees to what the poller has brought, and to what is due.
    fn handle_events(&mut self) {
        let mut is_woken = false;
        let mut ready = std::mem::take(&mut self.ready);
        ready.extend(self.poller.ready());
        for event in ready.drain(..) {
            if event.key == WAKE {
                is_woken = true;
                continue;
            }
            let key = event.key as usize;
            let turn = self.look(key, Peer::turn);
            if event.is_broken && turn == Turn::Quiet {
                // It would be reported for ever.
                self.close(key);
            }
            // It may have been reported for what it does not wait for any more.
            self.update_interest(key);
            self.activate(key);
        }
        self.ready = ready;
        if is_woken {
            self.mailbox.wake.drain();
            if self.mailbox.stop.load(Ordering::Acquire) && self.draining_since.is_none() {
                self.draining_since = Some(self.clock.now());
            }
            self.admit();
        }
        self.look_at_clocks(is_woken);
    }

    /// Sees to the connections that are due though their hosts are silent; to all when there was a wake-up,
    /// which does not say whose it was.
    fn look_at_clocks(&mut self, is_woken: bool) {
        let now = self.clock.now();
        if !is_woken && now < self.clocks_at {
            return;
        }
        self.clocks_at = now.saturating_add(CLOCK_INTERVAL.as_nanos() as u64);
        let all = self.peers.len();
        let count = if is_woken || self.active.is_empty() { all } else { all.min(CLOCKS_MIN.max(all / 8)) };
        for _ in 0..count {
            let key = if self.next_clock < all { self.next_clock } else { 0 };
            self.next_clock = key + 1;
            let is_due = |peer: &mut Peer| !peer.is_active && peer.next_event().is_some_and(|at| at <= now);
            if (is_woken || self.peer(key).is_some_and(is_due)) && self.look(key, Peer::tend) != Turn::Quiet {
                // What it has done may let it take more.
                self.activate(key);
            }
        }
    }

    /// Looks at a connection in every round from now on.
    fn activate(&mut self, key: usize) {
        if let Some(peer) = self.peer(key)
            && !std::mem::replace(&mut peer.is_active, true)
        {
            peer.quiet = 0;
            self.active.push(key);
        }
    }

    /// Takes over the connections that the listener has brought.
    fn admit(&mut self) {
        for accepted in self.mailbox.take() {
            let now = self.clock.now();
            let peer = match Peer::new(accepted, self.mailbox.wake.clone(), now) {
                Ok(peer) if self.draining_since.is_none() => peer,
                _ => {
                    self.mailbox.count.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
            };
            let key = self.free.pop().unwrap_or_else(|| {
                self.peers.push(None);
                self.peers.len() - 1
            });
            let added = peer.fd().map_or(Ok(()), |fd| self.poller.add(fd, key as u64, peer.interest));
            if let Some(place) = self.peers.get_mut(key) {
                *place = Some(peer);
            }
            match added {
                Ok(()) => self.activate(key),
                // There may be too many in all pollers of this user (epoll(7), max_user_watches).
                Err(error) => {
                    tracing::warn!(%error, "a host could not be let in");
                    self.close(key);
                }
            }
        }
    }

    /// Ends connections that have nothing under way; true when none is left.
    fn drain(&mut self) -> bool {
        let since = self.draining_since.unwrap_or_default();
        let for_how_long = Duration::from_nanos(self.clock.now().saturating_sub(since));
        for key in 0..self.peers.len() {
            let Some(peer) = self.peer(key) else { continue };
            peer.drain();
            if peer.may_end() || for_how_long >= DRAIN_MAX {
                peer.stop();
            }
            self.look(key, Peer::turn);
        }
        self.peers.len() == self.free.len() || for_how_long >= 2 * DRAIN_MAX
    }
}

/// Something of the connection is due before a sleep would be worth it.
fn is_due_soon(peer: &Peer, clock: &Clock) -> bool {
    let soon = clock.now().saturating_add(SLEEP_MIN.as_nanos() as u64);
    peer.next_event().is_some_and(|at| at < soon)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::super::peer::accepted_for_tests;
    use super::super::tls::Keyring;
    use super::*;

    fn connected(listener: &TcpListener) -> (TcpStream, Accepted) {
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
        let (socket, address) = listener.accept().expect("a peer");
        (client, accepted_for_tests(socket, address, Keyring::default()))
    }

    #[test]
    fn a_connection_that_the_poller_does_not_take_is_closed_and_the_others_stay() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mailbox = Arc::new(Mailbox::new().expect("a mailbox"));
        let mut worker = Worker::new(Arc::clone(&mailbox), None).expect("a worker");
        let (mut lost, accepted) = connected(&listener);
        // It is there already, so that it cannot be added.
        worker.poller.add(&accepted.socket, 7, Interest::INPUT).expect("added");
        mailbox.put(accepted);
        let (_kept, accepted) = connected(&listener);
        mailbox.put(accepted);
        worker.admit();
        assert_eq!(mailbox.count(), 1);
        assert_eq!(worker.peers.iter().flatten().count(), 1);
        assert_eq!(std::io::Read::read(&mut lost, &mut [0]).expect("the end"), 0, "it is closed");

        assert_eq!(worker.active.len(), 1, "who is gone is not looked at");
        let place = worker.active[0];
        worker.close(place);
        assert!(worker.active.is_empty());

        // One that was never added cannot be changed.
        let (_other, accepted) = connected(&listener);
        mailbox.count.fetch_add(1, Ordering::Relaxed);
        let mut peer = Peer::new(accepted, mailbox.wake.clone(), 0).expect("a peer");
        peer.interest = Interest { input: false, output: true };
        worker.peers.push(Some(peer));
        let key = worker.peers.len() - 1;
        worker.update_interest(key);
        assert!(worker.peers[key].is_none());
        assert_eq!(mailbox.count(), 0);
    }
}
