//! Accepts clients and their messages: one thread, for all sockets.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use unvme::{EventFd, Region};

use super::identity::{self, Peer};
use super::packet;
use super::server::{Reserved, Shared};
use super::slot::{CONNECTIONS_MAX, is_passing};
use super::wire::{Answer, Ask, VERSION, parse, to_bytes};
use super::worker::Connection;
use crate::calls::{EndedMaps, Process};
use crate::error::{Error, Result};

/// Sockets of those who have not said yet who they are.
const STRANGERS_MAX: usize = 64;
/// How long they may take for it.
const STRANGER_LIMIT: Duration = Duration::from_secs(5);
/// How long the server accepts no client after it has run out of descriptors.
const FULL_PAUSE: Duration = Duration::from_millis(100);
/// How often one looks whether the first client has everything again.
const RESERVED_PAUSE: Duration = Duration::from_millis(2);

/// What clients leave when they go, and what waits for the device when it is dropped.
#[expect(dead_code, reason = "they are held")]
pub(super) enum Left {
    Connection(Arc<Connection>),
    Maps(EndedMaps),
}

/// Drops what clients have left, on a thread for which no client waits.
pub(super) fn finish(left_over: &Receiver<Left>) {
    left_over.iter().for_each(drop);
}

/// Where clients come to: their sockets. Nothing here waits for the device, or for those who do.
pub(super) struct Acceptor<'a> {
    shared: &'a Arc<Shared>,
    listener: OwnedFd,
    stop: EventFd,
    guests: HashMap<u64, Guest>,
    next: u64,
    parted: Sender<Left>,
    /// Until when no client is accepted: there are no descriptors.
    full_until: Option<Instant>,
    /// Who is let in alone, until when, and whether he has come.
    reserved: Option<(u32, Instant, bool)>,
}

/// A socket of a client.
struct Guest {
    socket: OwnedFd,
    peer: Peer,
    since: Instant,
    connection: Option<Arc<Connection>>,
}

impl<'a> Acceptor<'a> {
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        listener: OwnedFd,
        stop: EventFd,
        parted: Sender<Left>,
        reserved: Option<Reserved>,
    ) -> Self {
        let reserved = reserved.map(|first| (first.pid, Instant::now() + first.limit, false));
        Self { shared, listener, stop, guests: HashMap::new(), next: 0, parted, full_until: None, reserved }
    }

    pub(super) fn run(mut self) {
        let mut done = 0;
        while !self.shared.has_ended() {
            let asked = self.shared.rounds.asked.load(Ordering::SeqCst);
            let (is_called, ready) = self.wait(asked == done);
            if asked != done && ready.is_empty() {
                done = asked;
                self.shared.rounds.finish(done);
            }
            for number in ready {
                if !self.serve(number) {
                    self.part(number);
                }
            }
            if is_called {
                self.welcome();
            }
            self.look_at_reservation();
            let is_open = self.reserved.is_none();
            let limit = |guest: &Guest| {
                is_open && guest.connection.is_none() && guest.since.elapsed() > STRANGER_LIMIT
            };
            self.guests.retain(|_, guest| !limit(guest));
        }
    }

    /// Polls, or waits: whether a client connects, and which sockets have a packet.
    fn wait(&self, waits: bool) -> (bool, Vec<u64>) {
        let full = self.full_until.map(|until| until.saturating_duration_since(Instant::now()));
        let is_full = full.is_some_and(|left| !left.is_zero());
        let knocks = if is_full { PollFlags::empty() } else { PollFlags::IN };
        let called = &self.shared.rounds.call;
        let mut fds = vec![
            PollFd::new(&self.stop, PollFlags::IN),
            PollFd::new(called, PollFlags::IN),
            PollFd::new(&self.listener, knocks),
        ];
        let heard = self.guests.iter().filter(|(_, guest)| self.is_let_in(guest));
        let (numbers, sockets): (Vec<u64>, Vec<_>) = heard.map(|(number, guest)| (*number, guest)).unzip();
        fds.extend(sockets.iter().map(|guest| PollFd::new(&guest.socket, PollFlags::IN)));
        let mut limit = Duration::from_secs(1);
        if is_full {
            limit = limit.min(FULL_PAUSE);
        }
        if self.reserved.is_some() {
            limit = limit.min(RESERVED_PAUSE);
        }
        if !waits {
            limit = Duration::ZERO;
        }
        let _ = poll(&mut fds, Timespec::try_from(limit).ok().as_ref());
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        if is_ready(&fds[1]) {
            called.drain();
        }
        let ready = numbers.into_iter().zip(&fds[3..]).filter(|(_, fd)| is_ready(fd));
        (!is_full && is_ready(&fds[2]), ready.map(|(number, _)| number).collect())
    }

    /// Whether a client is answered now.
    fn is_let_in(&self, guest: &Guest) -> bool {
        guest.connection.is_some() || self.reserved.is_none_or(|(pid, ..)| pid == guest.peer.pid())
    }

    /// Whether others than the first one are let in from now on.
    fn look_at_reservation(&mut self) {
        let Some((pid, end, has_come)) = &mut self.reserved else { return };
        let mut theirs = self.guests.values().filter_map(|guest| guest.connection.as_ref());
        let has_reaped = theirs.clone().any(|connection| connection.has_reaped.load(Ordering::Acquire));
        let is_there = theirs.any(|connection| connection.peer.pid() == *pid);
        if has_reaped || *has_come && !is_there || Instant::now() >= *end {
            self.reserved = None;
            // The time that they have begins.
            self.guests.values_mut().for_each(|guest| guest.since = Instant::now());
        } else {
            *has_come |= is_there;
        }
    }

    fn welcome(&mut self) {
        let strangers = self.guests.values().filter(|guest| guest.connection.is_none()).count();
        // While one of them has it alone, that one may be behind all others.
        let strangers_max = if self.reserved.is_some() { CONNECTIONS_MAX } else { STRANGERS_MAX };
        if strangers >= strangers_max {
            // They have a time to say who they are.
            thread::sleep(Duration::from_millis(10));
        }
        for _ in strangers..strangers_max {
            let socket = match packet::accept(self.listener.as_fd()) {
                Ok(socket) => socket,
                Err(Error::Posix(errno)) if is_passing(errno) => return,
                Err(e) => {
                    tracing::warn!("let a client in: {e}");
                    self.full_until = Some(Instant::now() + FULL_PAUSE);
                    return;
                }
            };
            let Ok(peer) = Peer::of(socket.as_fd()) else { continue };
            if let Err(e) = identity::check_peer(&peer) {
                refuse(socket.as_fd(), &e, "the server is another user's");
                continue;
            }
            self.next += 1;
            let guest = Guest { socket, peer, since: Instant::now(), connection: None };
            self.guests.insert(self.next, guest);
        }
    }

    /// A client comes by a socket that another one, or itself, has sent.
    fn come(
        &mut self,
        peer: Peer,
        socket: OwnedFd,
        ask: impl FnOnce(&mut Guest, &Arc<Shared>) -> Result<()>,
    ) -> bool {
        let socket = packet::out_of_the_way(socket);
        let mut guest = Guest { socket, peer, since: Instant::now(), connection: None };
        let done =
            packet::expect_credentials(guest.socket.as_fd()).and_then(|()| ask(&mut guest, self.shared));
        if let Err(e) = &done {
            refuse(guest.socket.as_fd(), e, "");
        }
        self.next += 1;
        self.guests.insert(self.next, guest);
        if done.is_err() {
            self.part(self.next);
        }
        done.is_ok()
    }

    /// The child of a client, which is of the user that its parent has stated to be.
    fn fork(&mut self, peer: Peer, socket: OwnedFd, (version, ticket): (u32, u64)) {
        self.come(peer, socket, |guest, shared| guest.fork(shared, version, ticket));
    }

    /// A client that has changed its user goes on by another connection, and the one before is closed, also
    /// when there cannot be another one.
    fn change_user(&mut self, number: u64, sender: packet::Sender, socket: OwnedFd, ask: Ask) -> bool {
        let Ask::Become { version, identity: said, is_new_image } = ask else { return false };
        let Some(before) = self.guests.get_mut(&number).and_then(|guest| guest.connection.take()) else {
            return false;
        };
        self.shared.remove(&before);
        let process = Arc::clone(&before.process);
        if is_new_image {
            let _ = self.parted.send(Left::Maps(process.forget_maps()));
        }
        let _ = self.parted.send(Left::Connection(before));
        let is_let_in = Peer::stated(sender, socket.as_fd()).is_ok_and(|peer| {
            self.come(peer, socket, |guest, shared| {
                check_version(version)?;
                identity::check(&said, &guest.peer)?;
                process.set_identity(said.pid, said.credentials());
                guest.connect(shared, Arc::clone(&process))
            })
        });
        if !is_let_in {
            process.end();
        }
        false
    }

    fn part(&mut self, number: u64) {
        let Some(guest) = self.guests.remove(&number) else { return };
        if let Some(connection) = guest.connection {
            connection.process.end();
            self.shared.remove(&connection);
            // The thread is there for as long as this one is.
            let _ = self.parted.send(Left::Connection(connection));
        }
    }

    /// Reads what a client says, and answers; false when it is gone.
    fn serve(&mut self, number: u64) -> bool {
        let Some(guest) = self.guests.get_mut(&number) else { return false };
        let packet::Packet { bytes, fds, sender } = match packet::receive(guest.socket.as_fd()) {
            Ok(Some(packet)) => packet,
            Err(Error::Posix(errno)) if is_passing(errno) => return true,
            _ => return false,
        };
        let mut fds = fds.into_iter();
        let done = match (parse::<Ask>(&bytes), sender) {
            (Some(ask @ Ask::Become { .. }), Some(sender)) if guest.connection.is_some() => {
                return match fds.next() {
                    Some(socket) => self.change_user(number, sender, socket, ask),
                    None => true,
                };
            }
            (Some(ask), Some(sender)) => match (guest.check_sender(sender), ask) {
                (Ok(()), Ask::Fork { version, ticket }) if guest.connection.is_some() => {
                    let peer = guest.peer.clone();
                    if let Some(socket) = fds.next() {
                        self.fork(peer, socket, (version, ticket));
                    }
                    return true;
                }
                (Ok(()), ask) => guest.answer(self.shared, &self.parted, ask),
                (Err(e), _) => Err(e),
            },
            _ => Err(Errno::PROTO.into()),
        };
        if let Err(e) = done {
            refuse(guest.socket.as_fd(), &e, "");
        }
        true
    }
}

/// # Errors
/// EPROTO.
fn check_version(version: u32) -> Result<()> {
    if version == VERSION { Ok(()) } else { Err(Errno::PROTO.into()) }
}

fn refuse(socket: BorrowedFd<'_>, error: &Error, why: &str) {
    let why = if why.is_empty() { error.to_string() } else { why.into() };
    let refused = Answer::Refused { errno: error.errno().raw_os_error(), why };
    if let Ok(bytes) = to_bytes(&refused) {
        // Who is gone need not be told.
        let _ = packet::send(socket, &bytes, &[]);
    }
}

impl Guest {
    /// Whether the sender of a packet is of the user that this socket answers for. Who has not entered yet
    /// answers for the user that it is now.
    ///
    /// # Errors
    /// EPERM; EACCES when the user has no access to this server.
    fn check_sender(&mut self, sender: packet::Sender) -> Result<()> {
        if self.connection.is_none() {
            self.peer = Peer::stated(sender, self.socket.as_fd())?;
            return identity::check_peer(&self.peer);
        }
        // A root process states itself as root whatever user it acts for.
        if sender.uid == self.peer.credentials.uid { Ok(()) } else { Err(Errno::PERM.into()) }
    }

    fn answer(&mut self, shared: &Arc<Shared>, parted: &Sender<Left>, ask: Ask) -> Result<()> {
        match ask {
            Ask::Enter { version, identity: said } => {
                check_version(version)?;
                identity::check(&said, &self.peer)?;
                let process = shared.processes.enter(said.pid, said.credentials());
                self.connect(shared, Arc::new(process))
            }
            Ask::Fork { version, ticket } => self.fork(shared, version, ticket),
            Ask::Resume { version } => {
                check_version(version)?;
                let before = self.connection.take().ok_or(Error::Posix(Errno::NOTCONN))?;
                let process = Arc::clone(&before.process);
                shared.remove(&before);
                let _ = parted.send(Left::Maps(process.forget_maps()));
                self.connect(shared, process)
            }
            Ask::Finish { version } => {
                check_version(version)?;
                if !self.peer.is_trusted() {
                    return Err(Errno::PERM.into());
                }
                shared.finish_idle()?;
                packet::send(self.socket.as_fd(), &to_bytes(&Answer::Finishing)?, &[])
            }
            // It needs a connection, and a socket.
            Ask::Become { .. } => Err(Errno::NOTCONN.into()),
            Ask::Memory { ino } => {
                let connection = self.connection.as_ref().ok_or(Error::Posix(Errno::NOTCONN))?;
                let memory = connection.process.map_memory(ino);
                let errno = memory.as_ref().err().map(|e| e.errno().raw_os_error());
                let fds: Vec<BorrowedFd<'_>> = memory.iter().map(AsFd::as_fd).collect();
                packet::send(self.socket.as_fd(), &to_bytes(&Answer::Memory { ino, errno })?, &fds)
            }
        }
    }

    /// The ticket leads to the parent, which has to be of the user that this socket answers for: a process
    /// that was a user's child has that user's tickets in its memory.
    fn fork(&mut self, shared: &Arc<Shared>, version: u32, ticket: u64) -> Result<()> {
        check_version(version)?;
        let parent = shared.by_ticket(ticket).ok_or(Error::Posix(Errno::SRCH))?;
        if parent.peer.credentials.uid != self.peer.credentials.uid {
            return Err(Errno::PERM.into());
        }
        self.connect(shared, Arc::new(parent.process.fork(parent.peer.pid())))
    }

    fn connect(&mut self, shared: &Arc<Shared>, process: Arc<Process>) -> Result<()> {
        if self.connection.is_some() {
            return Err(Errno::ISCONN.into());
        }
        let connection = shared.add(self.peer.clone(), process)?;
        self.connection = Some(Arc::clone(&connection));
        let regions = [&connection.realm.control.0, &connection.slots].map(Region::backing);
        let mut fds: Vec<BorrowedFd<'_>> = regions.into_iter().flatten().map(|(fd, _)| fd).collect();
        let mut pages = None;
        // They are of all files, whichever user may read those.
        if self.peer.is_trusted()
            && let (Some((size, shown)), Some(sizes)) =
                (shared.processes.fs().shown_pages(), shared.processes.show()?)
        {
            pages = Some(size);
            fds.extend(shown);
            fds.push(sizes);
        }
        let (index, ticket) = (connection.index as u32, connection.ticket);
        let (server, process) = (shared.number, shared.process);
        let welcome = Answer::Welcome { index, ticket, server, process, pages };
        packet::send(self.socket.as_fd(), &to_bytes(&welcome)?, &fds)
    }
}
