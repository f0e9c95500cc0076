//! The side that has the file system mounted.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use unvme::lock::{lock, read, wait_while, write};
use unvme::{EventFd, Pages, Region};

use super::hold::Hold;
use super::identity::{self, Peer};
use super::packet;
use super::slot::{CONNECTIONS_MAX, CONTROL_BYTES, Control, SLOTS_BYTES, is_passing};
use super::wire::{Answer, Ask, VERSION, parse, to_bytes};
use super::worker::{Connection, work};
use crate::calls::{EndedMaps, Process, Processes};
use crate::error::{Error, Result};
use crate::stripe::Apart;

/// Sockets of those who have not said yet who they are.
const STRANGERS_MAX: usize = 64;
/// How long they may take for it.
const STRANGER_LIMIT: Duration = Duration::from_secs(5);
/// How long nobody is let in when there are no descriptors.
const FULL_PAUSE: Duration = Duration::from_millis(100);
/// How often one looks whether the first client has everything again.
const RESERVED_PAUSE: Duration = Duration::from_millis(2);
/// How long a call waits for clients that have ended to be parted with.
const PART_LIMIT: Duration = Duration::from_secs(1);
/// Threads of [`Server`], most.
const WORKERS_MAX: usize = 64;

/// How a server serves.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Threads that do what is asked: so many calls can wait for the device at a time. At most 64.
    pub workers: usize,
    /// How long one of them looks for more before it sleeps.
    pub spin: Duration,
    /// How often what programs have stored to mapped files is written to the files.
    pub write_back: Duration,
    /// Who comes first, if anybody does.
    pub reserved: Option<Reserved>,
}

/// The process that had the file system until now: others are let in when it has said by
/// [`super::Client::reap_unnamed`] that it has everything again, when it and its children are gone, or when
/// it has had its time.
#[derive(Clone, Copy, Debug)]
pub struct Reserved {
    /// Its identifier.
    pub pid: u32,
    /// How long others wait for it.
    pub limit: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            workers: 16,
            spin: Duration::from_micros(100),
            write_back: Duration::from_secs(5),
            reserved: None,
        }
    }
}

/// What the threads of a server share.
pub(super) struct Shared {
    pub control: Control,
    pub spin: Duration,
    /// A bit for each worker that looks for work: that neither works nor sleeps.
    pub looking: Apart<AtomicU64>,
    /// The control page says so, too, but clients can write there.
    has_ended: AtomicBool,
    processes: Arc<Processes>,
    connections: RwLock<Vec<Option<Arc<Connection>>>>,
    activity: Mutex<Activity>,
    changed: Condvar,
    rounds: Rounds,
}

/// Looks at all sockets that somebody waits for.
struct Rounds {
    call: EventFd,
    /// How many were asked for, and how many of these are done.
    asked: AtomicU64,
    done: Mutex<u64>,
    changed: Condvar,
}

impl Rounds {
    fn new() -> Result<Self> {
        let call = EventFd::new().map_err(|e| Error::Device(e.to_string()))?;
        Ok(Self { call, asked: AtomicU64::new(0), done: Mutex::new(0), changed: Condvar::new() })
    }

    /// Those that were asked for so far are done.
    fn finish(&self, asked: u64) {
        *lock(&self.done) = asked;
        self.changed.notify_all();
    }
}

/// Who is there, and since when nobody is.
struct Activity {
    connections: usize,
    since: Instant,
    is_stopped: bool,
    has_ended: bool,
}

/// Has [`Server::wait_idle`] return.
#[derive(Clone)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Does so, from now on.
    pub fn stop(&self) {
        lock(&self.0.activity).is_stopped = true;
        self.0.changed.notify_all();
    }
}

/// Serves a mounted file system to other processes, until it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    stop: EventFd,
    threads: Vec<JoinHandle<()>>,
    socket: PathBuf,
    /// Last: nobody else begins before everything here has ended.
    hold: Option<Hold>,
}

impl Shared {
    pub(super) fn connection(&self, index: usize) -> Option<Arc<Connection>> {
        read(&self.connections).get(index)?.clone()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Waits until clients have nothing any more whose end others may know of already: the kernel closes
    /// their sockets first.
    pub(super) fn part_with_the_ended(&self) {
        let rounds = &self.rounds;
        let number = rounds.asked.fetch_add(1, Ordering::SeqCst) + 1;
        rounds.call.signal();
        let done = lock(&rounds.done);
        drop(wait_while(&rounds.changed, done, PART_LIMIT, |done| *done < number && !self.has_ended()));
    }

    /// A connection for a process.
    fn add(&self, peer: Peer, process: Arc<Process>) -> Result<Arc<Connection>> {
        let slots = Region::shared_on("unvme-slots", SLOTS_BYTES, Pages::Ordinary)
            .map_err(|e| Error::Device(e.to_string()))?;
        let mut connections = write(&self.connections);
        let index = connections.iter().position(Option::is_none).unwrap_or(connections.len());
        if index == CONNECTIONS_MAX {
            return Err(Errno::USERS.into());
        }
        if index == connections.len() {
            connections.push(None);
        }
        self.control.clear(index);
        let connection = Arc::new(Connection::new(index, unvme::random::number(), peer, process, slots));
        connections[index] = Some(Arc::clone(&connection));
        if self.count(connections.iter().flatten().count()) {
            connections[index] = None;
            self.count(connections.iter().flatten().count());
            return Err(Errno::CONNREFUSED.into());
        }
        Ok(connection)
    }

    fn remove(&self, connection: &Arc<Connection>) {
        connection.is_closed.store(true, Ordering::Release);
        let mut connections = write(&self.connections);
        connections[connection.index] = None;
        self.control.clear(connection.index);
        self.count(connections.iter().flatten().count());
    }

    /// So many there are now; whether it is over, and nobody is to come any more.
    fn count(&self, connections: usize) -> bool {
        let mut activity = lock(&self.activity);
        activity.connections = connections;
        activity.since = Instant::now();
        self.changed.notify_all();
        activity.is_stopped
    }

    fn by_ticket(&self, ticket: u64) -> Option<Arc<Connection>> {
        read(&self.connections).iter().flatten().find(|connection| connection.ticket == ticket).cloned()
    }

    fn write_back_now_and_then(&self, interval: Duration) {
        let mut activity = lock(&self.activity);
        let mut last = Instant::now();
        while !activity.has_ended {
            let left = interval.saturating_sub(last.elapsed());
            if left.is_zero() {
                drop(activity);
                if let Err(e) = self.processes.write_back_maps() {
                    tracing::warn!("write mapped files back: {e}");
                }
                last = Instant::now();
                activity = lock(&self.activity);
            } else {
                activity = wait_while(&self.changed, activity, left, |now| !now.has_ended);
            }
        }
    }
}

impl Server {
    /// Serves `processes` at a socket, which is made; no other server may have it.
    ///
    /// # Errors
    /// [`Error::Busy`] when another server serves there; [`Error::Format`], [`Error::Posix`],
    /// [`Error::Device`] when the socket, the threads or the memory cannot be had.
    pub fn start(processes: Arc<Processes>, socket: &Path, options: &ServerOptions) -> Result<Self> {
        Self::start_held(&mut Some(Hold::take(socket)?), processes, socket, options)
    }

    /// As [`Server::start`], for who has taken the socket before it mounted the file system, and keeps it
    /// when there is no server.
    ///
    /// # Errors
    /// As there; [`Error::Busy`] without a `hold`.
    pub fn start_held(
        hold: &mut Option<Hold>,
        processes: Arc<Processes>,
        socket: &Path,
        options: &ServerOptions,
    ) -> Result<Self> {
        let held =
            hold.as_ref().ok_or_else(|| Error::Busy(format!("{}: it is not held", socket.display())))?;
        held.clear(socket)?;
        let listener = packet::listen(socket)?;
        let memory = Region::shared_on("unvme-control", CONTROL_BYTES, Pages::Ordinary);
        let shared = Arc::new(Shared {
            control: Control(memory.map_err(|e| Error::Device(e.to_string()))?),
            spin: options.spin,
            looking: Apart(AtomicU64::new(0)),
            has_ended: AtomicBool::new(false),
            processes,
            connections: RwLock::default(),
            activity: Mutex::new(Activity {
                connections: 0,
                since: Instant::now(),
                is_stopped: false,
                has_ended: false,
            }),
            changed: Condvar::new(),
            rounds: Rounds::new()?,
        });
        let stop = EventFd::new().map_err(|e| Error::Device(e.to_string()))?;
        let mut server =
            Self { shared, stop: stop.clone(), threads: Vec::new(), socket: socket.into(), hold: None };
        for number in 0..options.workers.clamp(1, WORKERS_MAX) {
            server.spawn("unvme-work", move |shared| work(shared, number))?;
        }
        let interval = options.write_back;
        server.spawn("unvme-maps", move |shared| shared.write_back_now_and_then(interval))?;
        let (parted, left_over) = mpsc::channel();
        server.spawn("unvme-parted", move |_| finish(&left_over))?;
        let reserved = options.reserved;
        server
            .spawn("unvme-share", move |shared| Desk::new(shared, listener, stop, parted, reserved).run())?;
        server.hold = hold.take();
        Ok(server)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce(&Shared) + Send + 'static) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name(name.into()).spawn(move || run(&shared));
        self.threads.push(thread.map_err(|e| Error::Device(format!("start a thread: {e}")))?);
        Ok(())
    }

    /// Has a process that is in this one be known, by a ticket: children of it come by
    /// [`super::Client::fork_of`]. It counts as a client.
    ///
    /// # Errors
    /// EUSERS when there are too many clients; [`Error::Device`] when there is no memory.
    pub fn enroll(&self, process: Arc<Process>) -> Result<u64> {
        Ok(self.shared.add(Peer::own(), process)?.ticket)
    }

    /// Ends it. Nobody else serves there, or has the file system to itself, as long as the caller has what is
    /// returned.
    pub fn end(mut self) -> Option<Hold> {
        self.hold.take()
    }

    /// It serves, whatever it has taken over: see [`Hold::keep`].
    pub fn keep_hold(&self) {
        if let Some(hold) = &self.hold {
            hold.keep();
        }
    }

    /// In a child that `fork` has made of the server's process: see [`Hold::forget`].
    pub fn forget_hold(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.forget();
        }
    }

    /// Clients that are connected.
    pub fn clients(&self) -> usize {
        lock(&self.shared.activity).connections
    }

    /// For somebody else to say when it is enough.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// Returns when nobody was connected for so long, or [`Stopper::stop`] was said.
    pub fn wait_idle(&self, idle: Duration) {
        let mut activity = lock(&self.shared.activity);
        while !activity.is_stopped {
            let left = match activity.connections {
                0 => idle.saturating_sub(activity.since.elapsed()),
                _ => Duration::from_secs(3600),
            };
            if left.is_zero() {
                // Who comes from now on is not let in, and finds the next one.
                activity.is_stopped = true;
                return;
            }
            let before = (activity.connections, activity.since);
            activity = wait_while(&self.shared.changed, activity, left, |now| {
                !now.is_stopped && (now.connections, now.since) == before
            });
        }
    }
}

impl Drop for Server {
    /// Calls that have begun are done; clients see that the server is gone.
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::SeqCst);
        self.stop.signal();
        self.shared.control.end();
        lock(&self.shared.activity).has_ended = true;
        self.shared.changed.notify_all();
        let _ = std::fs::remove_file(&self.socket);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the server has panicked");
            }
        }
        let connections = std::mem::take(&mut *write(&self.shared.connections));
        connections.iter().flatten().for_each(|connection| connection.rouse());
    }
}

/// What clients leave when they go, and what waits for the device when it is dropped.
#[expect(dead_code, reason = "they are held")]
enum Left {
    Connection(Arc<Connection>),
    Maps(EndedMaps),
}

/// Drops what clients have left: nobody who comes waits for it.
fn finish(left_over: &Receiver<Left>) {
    left_over.iter().for_each(drop);
}

/// Where clients come to: their sockets. Nothing here waits for the device, or for those who do.
struct Desk<'a> {
    shared: &'a Shared,
    listener: OwnedFd,
    stop: EventFd,
    guests: HashMap<u64, Guest>,
    next: u64,
    parted: Sender<Left>,
    /// Until when nobody is let in: there are no descriptors.
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

impl<'a> Desk<'a> {
    fn new(
        shared: &'a Shared,
        listener: OwnedFd,
        stop: EventFd,
        parted: Sender<Left>,
        reserved: Option<Reserved>,
    ) -> Self {
        let reserved = reserved.map(|first| (first.pid, Instant::now() + first.limit, false));
        Self { shared, listener, stop, guests: HashMap::new(), next: 0, parted, full_until: None, reserved }
    }

    fn run(mut self) {
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

    /// Looks, or waits until something comes: whether somebody knocks, and whose sockets have something.
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

    /// A child of a client comes by a socket that the client has sent, as who the client was when it came.
    fn fork(&mut self, peer: Peer, socket: OwnedFd, ask: Ask) {
        let socket = packet::out_of_the_way(socket);
        let mut guest = Guest { socket, peer, since: Instant::now(), connection: None };
        let done = guest.answer(self.shared, &self.parted, ask);
        if let Err(e) = &done {
            refuse(guest.socket.as_fd(), e, "");
        }
        self.next += 1;
        self.guests.insert(self.next, guest);
        if done.is_err() {
            self.part(self.next);
        }
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
        let (bytes, fds) = match packet::receive(guest.socket.as_fd()) {
            Ok(Some(packet)) => packet,
            Err(Error::Posix(errno)) if is_passing(errno) => return true,
            _ => return false,
        };
        let done = match parse::<Ask>(&bytes) {
            Some(ask @ Ask::Fork { .. }) if guest.connection.is_some() => {
                let peer = guest.peer.clone();
                if let Some(socket) = fds.into_iter().next() {
                    self.fork(peer, socket, ask);
                }
                return true;
            }
            Some(ask) => guest.answer(self.shared, &self.parted, ask),
            None => Err(Errno::PROTO.into()),
        };
        if let Err(e) = done {
            refuse(guest.socket.as_fd(), &e, "");
        }
        true
    }
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
    fn answer(&mut self, shared: &Shared, parted: &Sender<Left>, ask: Ask) -> Result<()> {
        let is_same = |version: u32| if version == VERSION { Ok(()) } else { Err(Errno::PROTO) };
        match ask {
            Ask::Enter { version, identity: said } => {
                is_same(version)?;
                identity::check(&said, &self.peer)?;
                let process = shared.processes.enter(said.pid, said.credentials());
                self.connect(shared, Arc::new(process))
            }
            Ask::Fork { version, ticket } => {
                is_same(version)?;
                let parent = shared.by_ticket(ticket).ok_or(Error::Posix(Errno::SRCH))?;
                self.connect(shared, Arc::new(parent.process.fork(parent.peer.pid())))
            }
            Ask::Resume { version } => {
                is_same(version)?;
                let before = self.connection.take().ok_or(Error::Posix(Errno::NOTCONN))?;
                let process = Arc::clone(&before.process);
                shared.remove(&before);
                let _ = parted.send(Left::Maps(process.forget_maps()));
                self.connect(shared, process)
            }
            Ask::Memory { ino } => {
                let connection = self.connection.as_ref().ok_or(Error::Posix(Errno::NOTCONN))?;
                let memory = connection.process.map_memory(ino);
                let errno = memory.as_ref().err().map(|e| e.errno().raw_os_error());
                let fds: Vec<BorrowedFd<'_>> = memory.iter().map(AsFd::as_fd).collect();
                packet::send(self.socket.as_fd(), &to_bytes(&Answer::Memory { ino, errno })?, &fds)
            }
        }
    }

    fn connect(&mut self, shared: &Shared, process: Arc<Process>) -> Result<()> {
        if self.connection.is_some() {
            return Err(Errno::ISCONN.into());
        }
        let connection = shared.add(self.peer.clone(), process)?;
        self.connection = Some(Arc::clone(&connection));
        let regions = [&shared.control.0, &connection.slots].map(Region::backing);
        let mut fds: Vec<BorrowedFd<'_>> = regions.into_iter().flatten().map(|(fd, _)| fd).collect();
        let mut pages = None;
        if let (Some((size, shown)), Some(sizes)) =
            (shared.processes.fs().shown_pages(), shared.processes.show()?)
        {
            pages = Some(size);
            fds.extend(shown);
            fds.push(sizes);
        }
        let (index, ticket) = (connection.index as u32, connection.ticket);
        packet::send(self.socket.as_fd(), &to_bytes(&Answer::Welcome { index, ticket, pages })?, &fds)
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::OFlags;
    use unvme::{Device, Nsid, OpenOptions, open};

    use super::super::{Client, Identity};
    use super::*;
    use crate::calls::{At, OpenId, Reply, Request};
    use crate::{FileSystem, MakeOptions, MountOptions, make};

    /// On a file system of its own.
    fn processes() -> (Device, Arc<Processes>) {
        let device = open("mem:block:64M", &OpenOptions::default()).expect("a device");
        let block = device.block(Nsid(1)).expect("a namespace");
        make(&block, device.name(), &MakeOptions::default(), |_, _| ()).expect("a file system");
        let fs = FileSystem::mount(&block, device.name(), &MountOptions::default()).expect("mounted");
        (device, Processes::new(fs))
    }

    #[test]
    fn a_child_that_comes_by_what_is_no_socket_is_sent_away() {
        let (_device, processes) = processes();
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("socket");
        let server = Server::start(processes, &socket, &ServerOptions::default()).expect("a server");
        let ours = packet::connect(&socket, Duration::from_secs(5)).expect("connected");
        let say = |ask: &Ask, fds: &[BorrowedFd<'_>]| {
            packet::send(ours.as_fd(), &to_bytes(ask).expect("bytes"), fds).expect("sent");
        };
        say(&Ask::Enter { version: VERSION, identity: Identity::own() }, &[]);
        let hear = || packet::receive_within(ours.as_fd(), Duration::from_secs(5)).expect("answered").0;
        let Some(Answer::Welcome { ticket, .. }) = parse(&hear()) else { panic!("not welcome") };
        let nothing = std::fs::File::open("/dev/null").expect("there");
        // One that nobody reads from, and that has no room, does not stop the server either.
        let (full, _nobody) = packet::pair().expect("sockets");
        while packet::send(full.as_fd(), &[0; 1024], &[]).is_ok() {}
        rustix::io::ioctl_fionbio(&full, false).expect("it waits");
        for fd in [nothing.as_fd(), full.as_fd()] {
            say(&Ask::Fork { version: VERSION, ticket }, &[fd]);
            say(&Ask::Fork { version: VERSION, ticket: ticket ^ 1 }, &[fd]);
        }
        say(&Ask::Fork { version: VERSION, ticket }, &[]);
        say(&Ask::Memory { ino: 1 }, &[]);
        assert!(matches!(parse(&hear()), Some(Answer::Memory { ino: 1, .. })));
        assert_eq!(server.clients(), 1);
        drop(Client::connect(&socket, Identity::own()).expect("another one"));
    }

    #[test]
    fn who_comes_does_not_wait_for_the_files_of_those_who_go() {
        let (_device, processes) = processes();
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("socket");
        let server = Server::start(Arc::clone(&processes), &socket, &ServerOptions::default());
        let server = server.expect("a server");
        let come = || Client::connect(&socket, Identity::own()).expect("connected");
        let first = come();
        let at = At { base: OpenId::ROOT, path: b"file", follows: true };
        let flags = (OFlags::RDWR | OFlags::CREATE).bits();
        let opened = first.call(&Request::Open { at, flags, mode: 0o644 }, &[], &mut []).expect("opened");
        let Reply::Opened(file, ..) = opened else { panic!("{opened:?}") };
        first.call(&Request::Flock { open: file, is_exclusive: Some(true) }, &[], &mut []).expect("locked");
        let (mapped, _memory) = first.map(file, true).expect("mapped");
        let child = first.prepare_fork().expect("a child").into_child_of_server().expect("connected");
        processes.while_written_back(mapped.ino, || {
            // Both have it mapped, and the last one is to write it back.
            drop((first, child));
            let second = come();
            let opened =
                second.call(&Request::Open { at, flags, mode: 0o644 }, &[], &mut []).expect("opened");
            let Reply::Opened(file, ..) = opened else { panic!("{opened:?}") };
            let lock = Request::Flock { open: file, is_exclusive: Some(true) };
            second.call(&lock, &[], &mut []).expect("given back");
        });
        drop(server);
    }
}
