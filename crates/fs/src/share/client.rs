//! The side that asks.

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use unvme::lock::{lock, try_lock};

use super::hold::Hold;
use super::link::{Link, Sight};
use super::packet;
use super::slot::DATA_BYTES_MAX;
use super::wire::{Answered, Ask, Call, Identity, VERSION};
use super::worker::STAGED_BYTES_MAX;
use crate::calls::{Mapped, OpenId, Reply, Request};
use crate::error::{Error, Result};

/// How often a server that is gone is looked for.
const RETRY: Duration = Duration::from_millis(20);
/// How often a server is started in place of one that was killed.
const START: Duration = Duration::from_secs(1);
/// How much of a directory is asked for at a time: what fits into a slot.
const LIST_BYTES_MAX: usize = 96 << 10;

/// A process that uses a file system which another one has mounted: what [`crate::calls::Process`] is to
/// those who have it mounted themselves. Clones are the same process, and any thread may use them, as may
/// handlers of signals.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

/// Starts a server at a client's socket, and returns when clients can connect, or that it could not. The
/// server is to keep files without names: others have them open, too.
pub type Starter = dyn Fn(Hold) -> bool + Send + Sync;

struct Inner {
    socket: PathBuf,
    identity: Mutex<Identity>,
    /// Taken for as long as it takes to clone or replace it.
    link: RwLock<Arc<Link>>,
    /// When a server was looked for last.
    tried: Mutex<Option<Instant>>,
    generation: AtomicU64,
    /// The last server before this one that ended in order; 0 as long as none has.
    ended: AtomicU32,
    /// Who starts another server, and when one was started last.
    starter: Mutex<Option<(Arc<Starter>, Option<Instant>)>>,
}

/// An open file that is read without asking the server, as long as its pages are in the server's memory.
/// Copies of them that a client makes are as if it had asked; access times stay.
pub struct Watched {
    link: Arc<Link>,
    open: OpenId,
    ino: u64,
    place: usize,
    /// How often in a row the server was to bring pages, and they were not there afterwards.
    in_vain: AtomicU32,
}

/// A connection for a child that a process is about to have.
pub struct Forked(Client);

impl Client {
    /// Comes to the server that listens at a path.
    ///
    /// # Errors
    /// ENOENT, ECONNREFUSED when there is none; EACCES when it is another user's; EPERM when the identity is
    /// not this process's own, and it is not root; EUSERS when there are too many clients.
    pub fn connect(socket: &Path, identity: Identity) -> Result<Self> {
        let link = Link::open(socket, &Ask::Enter { version: VERSION, identity: identity.clone() })?;
        Ok(Self::new(socket, identity, link))
    }

    fn new(socket: &Path, identity: Identity, link: Link) -> Self {
        Self(Arc::new(Inner {
            socket: socket.into(),
            identity: Mutex::new(identity),
            link: RwLock::new(Arc::new(link)),
            tried: Mutex::default(),
            generation: AtomicU64::new(0),
            ended: AtomicU32::new(0),
            starter: Mutex::default(),
        }))
    }

    /// From here on, when the server was killed, and nobody else has its file system, `start` is called by a
    /// thread that asks for something, with what keeps others out; at most once in a second. Its call fails
    /// all the same: what was open is not any more, and [`Client::generation`] says so. A server that has
    /// ended in order stays away.
    pub fn start_when_killed(&self, start: Arc<Starter>) {
        *lock(&self.0.starter) = Some((start, None));
    }

    /// Starts a server; false when nobody may, or it cannot be.
    fn start(&self) -> bool {
        let start = {
            let mut starter = lock(&self.0.starter);
            let Some((start, last)) = &mut *starter else { return false };
            if last.is_some_and(|last| last.elapsed() < START) {
                return false;
            }
            *last = Some(Instant::now());
            Arc::clone(start)
        };
        // Who has it mounts the file system, or serves it.
        Hold::take(&self.0.socket).is_ok_and(|hold| start(hold))
    }

    /// The connection that was passed on to this image of a process by [`Client::pass_on`]: it is the same
    /// process, with the same files open.
    ///
    /// # Errors
    /// EIO when the server is gone.
    pub fn resume(socket: &Path, identity: Identity, fd: OwnedFd) -> Result<Self> {
        let fd = packet::out_of_the_way(fd);
        packet::keep_over_exec(fd.as_fd(), false)?;
        let link = match fd.try_clone().map(|fd| Link::over(fd, &Ask::Resume { version: VERSION })) {
            // The image before this one was of another user, and has not said that it gave that up.
            Ok(Err(Error::Posix(Errno::PERM))) => Link::change_user_by(&fd, identity.clone())?,
            Ok(resumed) => resumed?,
            Err(_) => Link::over(fd, &Ask::Resume { version: VERSION })?,
        };
        let client = Self::new(socket, identity.clone(), link);
        client.done(&Call::Identify(identity))?;
        Ok(client)
    }

    /// How often another server was found after one was gone. What was opened before is not open any more.
    pub fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// The server's number, which no other server has; 0 when it cannot be known.
    pub fn server(&self) -> u32 {
        self.current().map_or(0, |link| link.number)
    }

    /// Whether the last server before this one that ended in order had this number: it has written
    /// everything. What was written to one that was killed, and not synced, may be lost.
    pub fn has_ended_in_order(&self, server: u32) -> bool {
        server != 0 && self.0.ended.load(Ordering::Acquire) == server
    }

    /// Does what a request says, as [`crate::calls::Process::call`].
    ///
    /// # Errors
    /// Those of the call; EIO when the server is gone, until one is back.
    pub fn call(&self, request: &Request<'_>, input: &[u8], output: &mut [u8]) -> Result<Reply> {
        self.call_for(None, request, input, output)
    }

    /// As [`Client::call`], for a thread that acts for another user than its process, if there is one.
    fn call_for(
        &self,
        who: Option<&Identity>,
        request: &Request<'_>,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<Reply> {
        match request {
            Request::Read { open, offset } if output.len() > DATA_BYTES_MAX => {
                self.read(*open, *offset, output)
            }
            Request::Write { open, offset } if input.len() > DATA_BYTES_MAX => {
                self.write(who, *open, *offset, input)
            }
            Request::Append { .. } if input.len() > DATA_BYTES_MAX => {
                // In one piece, or others' would be in between.
                let mut pieces: Vec<&[u8]> =
                    input[..input.len().min(STAGED_BYTES_MAX)].chunks(DATA_BYTES_MAX).collect();
                let last = pieces.pop().unwrap_or_default();
                let call = match who {
                    None => Call::DoStaged(request.clone()),
                    Some(who) => Call::DoStagedAs(who.clone(), request.clone()),
                };
                match self.link()?.call_staged(&pieces, &call, last) {
                    // The server keeps no more of all clients' data: a part is written, as when space ends.
                    Err(Error::Posix(Errno::NOBUFS)) => {
                        self.once(who, request, &input[..DATA_BYTES_MAX], output)
                    }
                    answered => reply(answered?),
                }
            }
            Request::List { open, cookie, bytes } if *bytes > LIST_BYTES_MAX => self.once(
                who,
                &Request::List { open: *open, cookie: *cookie, bytes: LIST_BYTES_MAX },
                &[],
                &mut [],
            ),
            _ => self.once(who, request, input, output),
        }
    }

    fn once(
        &self,
        who: Option<&Identity>,
        request: &Request<'_>,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<Reply> {
        let call = match who {
            None => Call::Do(request.clone()),
            Some(who) => Call::DoAs(who.clone(), request.clone()),
        };
        reply(self.link()?.call(&call, input, output)?)
    }

    fn read(&self, open: OpenId, offset: u64, output: &mut [u8]) -> Result<Reply> {
        let mut done = 0;
        for piece in output.chunks_mut(DATA_BYTES_MAX) {
            let room = piece.len();
            match self.once(None, &Request::Read { open, offset: offset.saturating_add(done) }, &[], piece) {
                Ok(Reply::Number(read)) => {
                    done += read;
                    if read < room as u64 {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                other => return other,
            }
        }
        Ok(Reply::Number(done))
    }

    fn write(&self, who: Option<&Identity>, open: OpenId, offset: u64, input: &[u8]) -> Result<Reply> {
        let mut done = 0;
        for piece in input.chunks(DATA_BYTES_MAX) {
            let request = Request::Write { open, offset: offset.saturating_add(done) };
            match self.once(who, &request, piece, &mut []) {
                Ok(Reply::Number(written)) => {
                    done += written;
                    if written < piece.len() as u64 {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                other => return other,
            }
        }
        Ok(Reply::Number(done))
    }

    /// Asks for nothing: whether the server is there.
    ///
    /// # Errors
    /// EIO when it is not.
    pub fn ping(&self) -> Result<()> {
        self.done(&Call::Ping)
    }

    /// Everything has been opened again that was open at an earlier mount: as
    /// [`crate::FileSystem::reap_unnamed`].
    ///
    /// # Errors
    /// As there; EIO when the server is gone.
    pub fn reap_unnamed(&self) -> Result<()> {
        self.done(&Call::Reap)
    }

    /// It is another process from now on, or acts for another user.
    ///
    /// # Errors
    /// EPERM when the identity is not this process's own, and it is not root; EIO.
    pub fn set_identity(&self, identity: Identity) -> Result<()> {
        self.done(&Call::Identify(identity.clone()))?;
        *lock(&self.0.identity) = identity;
        Ok(())
    }

    /// This process has changed its user, and cannot go back: it gets another connection, which the server
    /// gives to the user that the kernel knows it as now. The one before is no use to anybody any more, and
    /// the memory of it reads as zeroes in this process. No other thread of it may be in a call. A
    /// thread that [watches](Client::watch) a file has to ask for it again.
    ///
    /// # Errors
    /// EPERM when the identity is not this process's own; EUSERS when there are clients of too many users;
    /// EIO. The connection before is closed all the same.
    pub fn change_user(&self, identity: Identity) -> Result<()> {
        let before = self.current().ok_or(Error::Posix(Errno::IO))?;
        let new = before.change_user(identity.clone(), false);
        let detached = before.detach();
        drop(before);
        *lock(&self.0.identity) = identity;
        let new = Arc::new(new?);
        *unvme::lock::write(&self.0.link) = new;
        detached
    }

    /// As [`Client::call`], for a thread that acts for another user than its process.
    ///
    /// # Errors
    /// As there; EPERM when the process cannot act for that user.
    pub fn call_as(
        &self,
        identity: &Identity,
        request: &Request<'_>,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<Reply> {
        self.call_for(Some(identity), request, input, output)
    }

    /// As [`crate::calls::Process::keep_only`].
    ///
    /// # Errors
    /// EOVERFLOW for more than 131072 files: then all stay; EIO when the server is gone.
    pub fn keep_only(&self, kept: &[OpenId]) -> Result<()> {
        let bytes: Vec<u8> = kept.iter().flat_map(|open| open.0.to_le_bytes()).collect();
        if bytes.len() > DATA_BYTES_MAX {
            return Err(Errno::OVERFLOW.into());
        }
        reply(self.link()?.call(&Call::KeepOnly, &bytes, &mut [])?).map(|_| ())
    }

    /// As [`crate::calls::Process::map`].
    ///
    /// # Errors
    /// As there; EIO when the server is gone.
    pub fn map(&self, open: OpenId, is_stored_to: bool) -> Result<(Mapped, OwnedFd)> {
        self.map_range(open, is_stored_to, 0..u64::MAX)
    }

    /// As [`crate::calls::Process::map_range`].
    ///
    /// # Errors
    /// As there; EIO when the server is gone.
    pub fn map_range(
        &self,
        open: OpenId,
        is_stored_to: bool,
        Range { start, end }: Range<u64>,
    ) -> Result<(Mapped, OwnedFd)> {
        let link = self.link()?;
        match link.call(&Call::MapRange { open, is_stored_to, start, end }, &[], &mut [])? {
            Answered::Mapped(ino, size) => {
                let memory = link.memory(ino).inspect_err(|_| {
                    // The error says more than this one could.
                    let _ = link.call(&Call::Unmap { ino }, &[], &mut []);
                })?;
                Ok((Mapped { ino, size }, memory))
            }
            _ => Err(Errno::IO.into()),
        }
    }

    /// As [`crate::calls::Process::load_map`].
    ///
    /// # Errors
    /// As there; EIO when the server is gone.
    pub fn load_map(&self, ino: u64, Range { start, end }: Range<u64>) -> Result<()> {
        self.done(&Call::LoadMap { ino, start, end })
    }

    /// As [`crate::calls::Process::store_to`].
    ///
    /// # Errors
    /// As there; EIO when the server is gone.
    pub fn store_to(&self, ino: u64) -> Result<()> {
        self.done(&Call::StoreTo { ino })
    }

    /// As [`crate::calls::Process::sync_map`].
    ///
    /// # Errors
    /// As there; EIO when the server is gone.
    pub fn sync_map(&self, ino: u64) -> Result<()> {
        self.done(&Call::SyncMap { ino })
    }

    /// As [`crate::calls::Process::unmap`].
    ///
    /// # Errors
    /// As there; EIO when the server is gone.
    pub fn unmap(&self, ino: u64) -> Result<()> {
        self.done(&Call::Unmap { ino })
    }

    /// An open file is to be read without asking, until it is closed. A child process asks for its own; so
    /// does whoever has found another server.
    ///
    /// # Errors
    /// EBADF when it is not open for reading; EOPNOTSUPP when the server does not share its pages; ENFILE
    /// when too many files are read like that; EIO when the server is gone.
    pub fn watch(&self, open: OpenId) -> Result<Watched> {
        let link = self.link()?;
        match link.call(&Call::Watch { open }, &[], &mut [])? {
            Answered::Watched(ino, place) => {
                Ok(Watched { link, open, ino, place: place as usize, in_vain: AtomicU32::new(0) })
            }
            _ => Err(Errno::IO.into()),
        }
    }

    fn done(&self, call: &Call<'_>) -> Result<()> {
        reply(self.link()?.call(call, &[], &mut [])?).map(|_| ())
    }

    /// Gets a connection for the child of a `fork` that is about to be: it has the same files open, and is
    /// another process. What the parent opens after this is not the child's.
    ///
    /// # Errors
    /// EIO when the server is gone; EUSERS when there are too many clients.
    pub fn prepare_fork(&self) -> Result<Forked> {
        let link = self.link()?.fork()?;
        let child = Self::new(&self.0.socket, lock(&self.0.identity).clone(), link);
        child.0.generation.store(self.generation(), Ordering::Release);
        let starter = lock(&self.0.starter).as_ref().map(|(start, _)| (Arc::clone(start), None));
        *lock(&child.0.starter) = starter;
        Ok(Forked(child))
    }

    /// As [`Client::prepare_fork`], for a process that serves its own file system: `ticket` is that of
    /// [`super::Server::enroll`].
    ///
    /// # Errors
    /// As there.
    pub fn fork_of(socket: &Path, identity: Identity, ticket: u64) -> Result<Forked> {
        let link = Link::open(socket, &Ask::Fork { version: VERSION, ticket })?;
        Ok(Forked(Self::new(socket, identity, link)))
    }

    /// The connection's descriptor, which nobody else may close.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.current()?.with_socket(|socket| Ok(socket.as_raw_fd())).ok()
    }

    /// In a child: lets go of the parent's connection, which would seem to be alive otherwise when the parent
    /// is not, and of the memory of it, since the child may become another user. The parent keeps both.
    ///
    /// # Errors
    /// [`Error::Device`] when the kernel refuses to unmap it.
    pub fn leave(&self) -> Result<()> {
        self.current().map_or(Ok(()), |link| link.detach())
    }

    /// Has the connection stay over `execve`; the number of its descriptor, for [`Client::resume`]. Mappings
    /// of files end with the image.
    ///
    /// # Errors
    /// EIO when the server is gone.
    pub fn pass_on(&self) -> Result<RawFd> {
        self.link()?.with_socket(|socket| {
            packet::keep_over_exec(socket.as_fd(), true)?;
            Ok(socket.as_raw_fd())
        })
    }

    /// The opposite of [`Client::pass_on`], when there was no `execve`.
    ///
    /// # Errors
    /// EIO when the server is gone.
    pub fn take_back(&self) -> Result<()> {
        self.link()?.with_socket(|socket| packet::keep_over_exec(socket.as_fd(), false))
    }

    /// The connection, as it is. `None` when another thread replaces it for long, which none does, or when
    /// this is a handler of a signal that came while this thread did.
    fn current(&self) -> Option<Arc<Link>> {
        for _ in 0..10_000 {
            // Not waited for: who waits keeps out those who come later, and one of them may be a handler that
            // the first one waits for.
            if let Ok(link) = self.0.link.try_read() {
                return Some(Arc::clone(&link));
            }
            std::thread::yield_now();
        }
        None
    }

    /// The connection; another one when the server was gone and is back.
    fn link(&self) -> Result<Arc<Link>> {
        let link = self.current().ok_or(Error::Posix(Errno::IO))?;
        if !link.is_dead() {
            return Ok(link);
        }
        // One looks for the server.
        let mut tried = try_lock(&self.0.tried).ok_or(Error::Posix(Errno::IO))?;
        if tried.is_some_and(|last| last.elapsed() < RETRY) {
            return Err(Errno::IO.into());
        }
        *tried = Some(Instant::now());
        let identity = lock(&self.0.identity).clone();
        let ask = Ask::Enter { version: VERSION, identity };
        let new = match Link::open(&self.0.socket, &ask) {
            Err(_) if !link.has_ended() && self.start() => Link::open(&self.0.socket, &ask),
            other => other,
        };
        let new = Arc::new(new.map_err(|_| Error::Posix(Errno::IO))?);
        for _ in 0..10_000 {
            if let Ok(mut link) = self.0.link.try_write() {
                let before = std::mem::replace(&mut *link, Arc::clone(&new));
                if before.has_ended() {
                    self.0.ended.store(before.number, Ordering::Release);
                }
                drop(link);
                drop(before);
                self.0.generation.fetch_add(1, Ordering::AcqRel);
                return Ok(new);
            }
            std::thread::yield_now();
        }
        Err(Errno::IO.into())
    }
}

fn reply(answered: Answered) -> Result<Reply> {
    match answered {
        Answered::Reply(reply) => Ok(reply),
        _ => Err(Errno::IO.into()),
    }
}

impl Watched {
    /// Reads what is there, up to the end of the file: how many bytes. `None` when the server is to be asked,
    /// by [`Request::Read`]: then `out` holds anything.
    #[inline]
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Option<usize> {
        match self.link.read_shown((self.ino, self.place), offset, out, true) {
            Sight::Read(read) => self.seen(read),
            Sight::NoPage => self.fetch(offset, out),
            Sight::Nothing => None,
        }
    }

    /// Has the server bring pages, and reads them where they are then: two copies fewer than
    /// [`Request::Read`] makes. What it cannot bring, such as holes, is asked for, and at once after a few
    /// times, until something has been there again.
    fn fetch(&self, offset: u64, out: &mut [u8]) -> Option<usize> {
        /// Beyond, pages may be gone before they are read.
        const BYTES_MAX: usize = 64 << 10;
        const IN_VAIN_MAX: u32 = 4;
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        if out.len() > BYTES_MAX || in_vain >= IN_VAIN_MAX {
            return None;
        }
        if self.link.call(&Call::Fetch { open: self.open, offset }, &[], out).is_err() {
            // Whoever asks is told why.
            self.in_vain.store(IN_VAIN_MAX, Ordering::Relaxed);
            return None;
        }
        match self.link.read_shown((self.ino, self.place), offset, out, false) {
            Sight::Read(read) => return self.seen(read),
            Sight::NoPage => self.in_vain.store(in_vain + 1, Ordering::Relaxed),
            Sight::Nothing => {}
        }
        None
    }

    /// Something has been there.
    #[inline]
    fn seen(&self, read: usize) -> Option<usize> {
        if self.in_vain.load(Ordering::Relaxed) != 0 {
            self.in_vain.store(0, Ordering::Relaxed);
        }
        Some(read)
    }
}

impl Forked {
    /// In the child: its connection. `parent` is let go of.
    ///
    /// # Errors
    /// EIO when the server is gone.
    pub fn into_child(self, parent: &Client) -> Result<Client> {
        parent.leave()?;
        self.into_child_of_server()
    }

    /// As [`Forked::into_child`], of a process that serves its own file system.
    ///
    /// # Errors
    /// As there.
    pub fn into_child_of_server(self) -> Result<Client> {
        let mut identity = lock(&self.0.0.identity).clone();
        identity.pid = std::process::id();
        self.0.set_identity(identity)?;
        Ok(self.0)
    }

    /// For a child that is another program: a descriptor that stays open over `execve`, for
    /// [`Client::resume`]. The parent drops it when the child has begun.
    ///
    /// # Errors
    /// EIO when the server is gone.
    pub fn into_descriptor(self) -> Result<OwnedFd> {
        self.0.link()?.with_socket(|socket| {
            let fd = packet::out_of_the_way(socket.try_clone().map_err(|_| Error::Posix(Errno::MFILE))?);
            packet::keep_over_exec(fd.as_fd(), true)?;
            Ok(fd)
        })
    }
}
