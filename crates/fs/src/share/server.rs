//! The side that has the file system mounted.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use unvme::lock::{lock, read, wait_while, write};
use unvme::{EventFd, Pages, Region};

use super::accept::{Acceptor, finish};
use super::hold::Hold;
use super::identity::Peer;
use super::long::{self, LongCalls};
use super::packet;
use super::realm::Realms;
use super::slot::{CONNECTIONS_MAX, SLOTS_BYTES};
use super::wire::Number;
use super::worker::{Connection, work};
use crate::calls::{Process, Processes};
use crate::error::{Error, Result};

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
    pub realms: Realms,
    pub spin: Duration,
    /// Bytes that all clients have staged.
    pub staged_bytes: Arc<AtomicUsize>,
    /// The control pages say so, too, but clients can write there.
    has_ended: AtomicBool,
    pub processes: Arc<Processes>,
    connections: RwLock<Vec<Option<Arc<Connection>>>>,
    activity: Mutex<Activity>,
    changed: Condvar,
    pub rounds: Rounds,
    /// Which server this is to clients that have known another one: never 0.
    pub number: u32,
    pub process: Number,
    pub long: LongCalls,
}

/// Looks at all sockets that somebody waits for.
pub(super) struct Rounds {
    pub call: EventFd,
    /// How many were asked for, and how many of these are done.
    pub asked: AtomicU64,
    done: Mutex<u64>,
    changed: Condvar,
}

impl Rounds {
    fn new() -> Result<Self> {
        let call = EventFd::new().map_err(|e| Error::Device(e.to_string()))?;
        Ok(Self { call, asked: AtomicU64::new(0), done: Mutex::new(0), changed: Condvar::new() })
    }

    /// Those that were asked for so far are done.
    pub(super) fn finish(&self, asked: u64) {
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
    /// Without clients it ends after a time.
    ends_idle: bool,
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
    pub(super) fn add(self: &Arc<Self>, peer: Peer, process: Arc<Process>) -> Result<Arc<Connection>> {
        let realm = self.realms.of(self, peer.credentials.uid)?;
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
        realm.control.clear(index);
        let connection = Arc::new(Connection::new(index, (peer, realm), process, slots));
        connections[index] = Some(Arc::clone(&connection));
        if self.count(connections.iter().flatten().count()) {
            connections[index] = None;
            self.count(connections.iter().flatten().count());
            return Err(Errno::CONNREFUSED.into());
        }
        Ok(connection)
    }

    pub(super) fn remove(&self, connection: &Arc<Connection>) {
        connection.is_closed.store(true, Ordering::Release);
        let mut connections = write(&self.connections);
        connections[connection.index] = None;
        connection.realm.control.clear(connection.index);
        self.realms.end_empty(connections.iter().flatten());
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

    /// Ends now what would end by itself after a time without clients.
    ///
    /// # Errors
    /// EBUSY when it has clients, or stays without them.
    pub(super) fn finish_idle(&self) -> Result<()> {
        let mut activity = lock(&self.activity);
        if !activity.is_stopped && (activity.connections > 0 || !activity.ends_idle) {
            return Err(Errno::BUSY.into());
        }
        activity.is_stopped = true;
        self.changed.notify_all();
        Ok(())
    }

    pub(super) fn by_ticket(&self, ticket: u64) -> Option<Arc<Connection>> {
        read(&self.connections).iter().flatten().find(|connection| connection.ticket == ticket).cloned()
    }

    fn write_back_now_and_then(&self, interval: Duration) {
        let mut activity = lock(&self.activity);
        let mut last = Instant::now();
        while !activity.has_ended {
            let left = interval.saturating_sub(last.elapsed());
            if left.is_zero() {
                drop(activity);
                if let Err(e) = self.processes.write_back_maps_while(&|| !self.has_ended()) {
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
        let shared = Arc::new(Shared {
            realms: Realms::new()?,
            spin: options.spin,
            staged_bytes: Arc::default(),
            has_ended: AtomicBool::new(false),
            processes,
            connections: RwLock::default(),
            activity: Mutex::new(Activity {
                connections: 0,
                since: Instant::now(),
                is_stopped: false,
                has_ended: false,
                ends_idle: false,
            }),
            changed: Condvar::new(),
            rounds: Rounds::new()?,
            number: (unvme::random::number() as u32).max(1),
            process: Number::own(),
            long: LongCalls::default(),
        });
        let stop = EventFd::new().map_err(|e| Error::Device(e.to_string()))?;
        let mut server =
            Self { shared, stop: stop.clone(), threads: Vec::new(), socket: socket.into(), hold: None };
        for number in 0..options.workers.clamp(1, WORKERS_MAX) {
            server.spawn("unvme-work", move |shared| work(shared, &shared.realms.own, number))?;
        }
        for _ in 0..long::THREADS {
            server.spawn("unvme-long", |shared| long::work(shared))?;
        }
        let interval = options.write_back;
        server.spawn("unvme-maps", move |shared| shared.write_back_now_and_then(interval))?;
        let (parted, left_over) = mpsc::channel();
        server.spawn("unvme-parted", move |_| finish(&left_over))?;
        let reserved = options.reserved;
        server.spawn("unvme-share", move |shared| {
            Acceptor::new(shared, listener, stop, parted, reserved).run()
        })?;
        server.hold = hold.take();
        Ok(server)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce(&Arc<Shared>) + Send + 'static) -> Result<()> {
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

    /// Which server this is, as [`super::Client::server`] of its clients: never 0.
    pub fn number(&self) -> u32 {
        self.shared.number
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

    /// Returns when no client was connected for `idle`, when [`Stopper::stop`] is called, and when
    /// [`end_idle_server`](super::end_idle_server) is while no client is connected. With [`Duration::MAX`]
    /// the server stays without clients.
    pub fn wait_idle(&self, idle: Duration) {
        let mut activity = lock(&self.shared.activity);
        activity.ends_idle = idle < Duration::MAX;
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
        self.shared.realms.end();
        self.shared.long.end();
        lock(&self.shared.activity).has_ended = true;
        self.shared.changed.notify_all();
        let _ = std::fs::remove_file(&self.socket);
        // The thread that makes realms ends before the ones that it has made are asked for.
        let own: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        let others = self.shared.realms.take_threads();
        for joined in own.into_iter().chain(others.into_iter().map(JoinHandle::join)) {
            if joined.is_err() {
                tracing::error!("a thread of the server has panicked");
            }
        }
        let connections = std::mem::take(&mut *write(&self.shared.connections));
        connections.iter().flatten().for_each(|connection| connection.rouse());
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd};

    use rustix::fs::OFlags;
    use unvme::{Device, Nsid, OpenOptions, open};

    use super::super::wire::{Answer, Ask, VERSION, parse, to_bytes};
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

    /// A server with one worker, which would wait for the lock of the mapped file.
    #[test]
    fn a_large_mapped_file_that_is_written_back_keeps_no_worker_busy() {
        let (_device, processes) = processes();
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("socket");
        let options = ServerOptions { workers: 1, ..ServerOptions::default() };
        let server = Server::start(Arc::clone(&processes), &socket, &options).expect("a server");
        let come = || Client::connect(&socket, Identity::own()).expect("connected");
        let (first, second) = (come(), come());
        let at = At { base: OpenId::ROOT, path: b"file", follows: true };
        let flags = (OFlags::RDWR | OFlags::CREATE).bits();
        let opened = first.call(&Request::Open { at, flags, mode: 0o644 }, &[], &mut []).expect("opened");
        let Reply::Opened(file, ..) = opened else { panic!("{opened:?}") };
        let truncate = Request::Truncate { at: At { base: file, path: b"", follows: true }, size: 1 << 30 };
        first.call(&truncate, &[], &mut []).expect("longer");
        let (mapped, _memory) = first.map(file, true).expect("mapped");
        let mut writer = None;
        processes.while_written_back(mapped.ino, || {
            writer = Some(thread::spawn(move || first.sync_map(mapped.ino)));
            let (done, is_done) = mpsc::channel();
            thread::spawn(move || {
                for _ in 0..50 {
                    second.ping().expect("answered");
                    thread::sleep(Duration::from_millis(1));
                }
                done.send(()).expect("the test waits");
            });
            is_done.recv_timeout(Duration::from_secs(60)).expect("others are answered in the meantime");
        });
        writer.expect("begun").join().expect("a thread").expect("written back");
        drop(server);
    }
}
