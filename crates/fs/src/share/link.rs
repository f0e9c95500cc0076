//! A client's connection: descriptor and mappings, and calls through them. It has no threads.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use unvme::Region;
use unvme::cache::{PAGE, ShownPages};
use unvme::lock::{lock, try_lock};

use super::identity::own_credentials;
use super::packet;
use super::process::Seen;
use super::slot::{CONTROL_BYTES, Control, FRAME_BYTES_MAX, SLOTS, SLOTS_BYTES, Slot};
use super::wire::{Answer, Answered, Ask, Call, Identity, VERSION, error_of, parse, to_bytes};
use crate::calls::Sizes;
use crate::error::{Error, Result};

/// How long a server may take to say something by the socket, where it never waits for a device.
pub(super) const SAY_LIMIT: Duration = Duration::from_secs(5);
/// Answers that came too late for those who asked, and are skipped.
const LATE_MAX: usize = 1024;
/// How long a caller looks before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// How long a caller waits for a worker that is awake before it wakes another one.
const PATIENCE: Duration = Duration::from_micros(4);
/// How long one reads without asking before one looks whether the server is there.
const LOOK: Duration = Duration::from_millis(10);
/// How long it sleeps before it looks whether the server is there.
const NAP: Duration = Duration::from_millis(100);

/// One connection to a server.
pub(super) struct Link {
    /// None when it was given to somebody else.
    socket: Mutex<Option<OwnedFd>>,
    index: usize,
    pub ticket: u64,
    /// Which server it is: see [`super::Server::number`].
    pub number: u32,
    control: Control,
    slots: Region,
    /// Slots in which a call of this process is.
    busy: AtomicU64,
    is_dead: AtomicBool,
    /// The server's process, where its end can be seen. Children of it may have its sockets open.
    server: Option<Seen>,
    /// Pages of files, and how long those are; none when the server keeps them to itself.
    shown: Option<(ShownPages, Sizes)>,
}

thread_local! {
    /// The slot that this thread had last: its memory is in this CPU's caches.
    static LAST: Cell<u32> = const { Cell::new(u32::MAX) };
    /// When this thread has looked last whether the server is there, by the clock's milliseconds.
    static LOOKED: Cell<i64> = const { Cell::new(0) };
}

/// What a client sees of a file in the server's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// So many bytes were read.
    Read(usize),
    /// A page is not there.
    NoPage,
    /// The server is to be asked, or is gone.
    Nothing,
}

/// A slot that a call has taken.
struct Taken<'a> {
    link: &'a Link,
    number: usize,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        // A server that is gone may still write to it.
        if !self.link.is_dead() {
            self.link.busy.fetch_and(!(1 << self.number), Ordering::Release);
        }
    }
}

fn from_bus(error: unvme::BusError) -> Error {
    Error::Device(error.to_string())
}

/// Says something to a server, with the credentials that it goes by.
pub(super) fn say(socket: &OwnedFd, ask: &Ask, fds: &[BorrowedFd<'_>]) -> Result<()> {
    let bytes = to_bytes(ask)?;
    match packet::send_as(socket.as_fd(), &bytes, fds, Some(own_credentials())) {
        // In a user namespace of its own that has no such user: the kernel attaches what it knows.
        Err(Error::Posix(Errno::INVAL | Errno::PERM)) => packet::send(socket.as_fd(), &bytes, fds),
        sent => sent,
    }
}

/// Asks for a connection over a socket that goes to the server with the question.
fn by_pair(socket: &OwnedFd, ask: &Ask) -> Result<Link> {
    let (ours, theirs) = packet::pair()?;
    say(socket, ask, &[theirs.as_fd()])?;
    drop(theirs);
    Link::welcomed(ours)
}

impl Link {
    /// Connects and says who comes.
    pub(super) fn open(path: &Path, ask: &Ask) -> Result<Self> {
        Self::over(packet::connect(path, SAY_LIMIT)?, ask)
    }

    /// Over a socket that is connected.
    pub(super) fn over(socket: OwnedFd, ask: &Ask) -> Result<Self> {
        say(&socket, ask, &[])?;
        Self::welcomed(socket)
    }

    /// One more, for a child of this process. The server gets its socket by this one: where the server
    /// listens may be out of reach, since this process has become another user.
    pub(super) fn fork(&self) -> Result<Self> {
        self.by_pair(&Ask::Fork { version: VERSION, ticket: self.ticket })
    }

    /// One for this process, which has changed its user: what the kernel knows of it is noted in the socket
    /// that this one gets. The server serves this one no more, also where it cannot have another one.
    pub(super) fn change_user(&self, identity: Identity, is_new_image: bool) -> Result<Self> {
        self.by_pair(&Ask::Become { version: VERSION, identity, is_new_image })
    }

    fn by_pair(&self, ask: &Ask) -> Result<Self> {
        self.with_socket(|socket| by_pair(socket, ask))
    }

    /// As [`Link::change_user`], of a connection of the image before this one.
    pub(super) fn change_user_by(socket: &OwnedFd, identity: Identity) -> Result<Self> {
        by_pair(socket, &Ask::Become { version: VERSION, identity, is_new_image: true })
    }

    /// What a server answers to who has said who he is.
    fn welcomed(socket: OwnedFd) -> Result<Self> {
        let (answer, fds) = packet::receive_within(socket.as_fd(), SAY_LIMIT)?;
        let (index, ticket, number, process, pages) = match parse::<Answer>(&answer) {
            Some(Answer::Welcome { index, ticket, server, process, pages }) => {
                (index as usize, ticket, server, process, pages)
            }
            Some(Answer::Refused { errno, why }) => return Err(refused(errno, &why)),
            _ => return Err(Errno::PROTO.into()),
        };
        let [control, slots, shown @ ..] = fds.as_slice() else { return Err(Errno::PROTO.into()) };
        let shown = match (pages, shown) {
            (Some(size), [pages, table, used, sizes]) => {
                let fds = [pages.as_fd(), table.as_fd(), used.as_fd()];
                Some((ShownPages::open(size, fds).map_err(from_bus)?, Sizes::open(sizes.as_fd())?))
            }
            _ => None,
        };
        if index >= super::slot::CONNECTIONS_MAX {
            return Err(Errno::PROTO.into());
        }
        Ok(Self {
            server: Seen::new(process),
            control: Control(Region::sealed(control.as_fd(), CONTROL_BYTES, true).map_err(from_bus)?),
            slots: Region::sealed(slots.as_fd(), SLOTS_BYTES, true).map_err(from_bus)?,
            socket: Mutex::new(Some(packet::out_of_the_way(socket))),
            index,
            ticket,
            number,
            busy: AtomicU64::new(0),
            is_dead: AtomicBool::new(false),
            shown,
        })
    }

    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Acquire)
    }

    /// Whether the server has said that it ends.
    pub(super) fn has_ended(&self) -> bool {
        self.control.has_ended()
    }

    /// Does something with the socket.
    pub(super) fn with_socket<R>(&self, act: impl FnOnce(&OwnedFd) -> Result<R>) -> Result<R> {
        act(lock(&self.socket).as_ref().ok_or(Error::Posix(Errno::IO))?)
    }

    /// Lets go of the socket, in this process.
    pub(super) fn give_up(&self) {
        self.is_dead.store(true, Ordering::Release);
        if let Some(mut socket) = try_lock(&self.socket) {
            *socket = None;
        }
    }

    /// As [`Link::give_up`]; and what this process sees of the server's memory is zeroes from here on. No
    /// thread may be in a call.
    pub(super) fn detach(&self) -> Result<()> {
        self.give_up();
        if let Some((pages, sizes)) = &self.shown {
            pages.detach().map_err(from_bus)?;
            sizes.detach()?;
        }
        [&self.control.0, &self.slots].into_iter().try_for_each(Region::detach).map_err(from_bus)
    }

    /// The memory of a file that is mapped.
    pub(super) fn memory(&self, ino: u64) -> Result<OwnedFd> {
        self.with_socket(|socket| {
            say(socket, &Ask::Memory { ino }, &[])?;
            for _ in 0..LATE_MAX {
                let (answer, mut fds) = packet::receive_within(socket.as_fd(), SAY_LIMIT)?;
                match (parse::<Answer>(&answer), fds.pop()) {
                    // Who asked for it has not waited for so long.
                    (Some(Answer::Memory { ino: late, .. }), _) if late != ino => {}
                    (Some(Answer::Memory { errno: Some(errno), .. }), _) => return Err(error_of(errno)),
                    (Some(Answer::Memory { errno: None, .. }), Some(memory)) => {
                        return Ok(packet::out_of_the_way(memory));
                    }
                    (Some(Answer::Refused { errno, why }), _) => return Err(refused(errno, &why)),
                    _ => return Err(Errno::PROTO.into()),
                }
            }
            Err(Errno::IO.into())
        })
    }

    /// Reads a file without asking. `is_use`: somebody uses these pages now, and it was not counted before.
    pub(super) fn read_shown(
        &self,
        (ino, place): (u64, usize),
        offset: u64,
        out: &mut [u8],
        is_use: bool,
    ) -> Sight {
        let Some((pages, sizes)) = self.shown.as_ref() else { return Sight::Nothing };
        if self.is_dead() || is_time_to_look() && self.is_gone() {
            return Sight::Nothing;
        }
        let Some(size) = sizes.of(ino, place) else { return Sight::Nothing };
        let there = size.saturating_sub(offset).min(out.len() as u64) as usize;
        let (mut done, page) = (0, PAGE as u64);
        while done < there {
            let at = offset + done as u64;
            let skip = (at % page) as usize;
            let bytes = (PAGE - skip).min(there - done);
            if !pages.read(ino, at / page, skip, &mut out[done..done + bytes], is_use) {
                return Sight::NoPage;
            }
            done += bytes;
        }
        // What was cut off meanwhile was cleared before.
        let end = offset + there as u64;
        if there == 0 || sizes.of(ino, place).is_some_and(|size| size >= end) {
            Sight::Read(there)
        } else {
            Sight::Nothing
        }
    }

    /// A slot that nobody is in: the one this thread had last, if possible. A signal handler that calls while
    /// its thread is in a call gets another one.
    fn take(&self) -> Result<Taken<'_>> {
        let last = LAST.try_with(Cell::get).unwrap_or(u32::MAX);
        loop {
            let busy = self.busy.load(Ordering::Relaxed);
            let free = !busy;
            let number =
                if last < SLOTS as u32 && free & 1 << last != 0 { last } else { free.trailing_zeros() };
            if number < SLOTS as u32 {
                if self.busy.fetch_or(1 << number, Ordering::Acquire) & 1 << number == 0 {
                    // A thread that is about to end has none any more.
                    let _ = LAST.try_with(|last| last.set(number));
                    return Ok(Taken { link: self, number: number as usize });
                }
                continue;
            }
            if self.is_gone() {
                return Err(Errno::IO.into());
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Whether the server is gone; then it stays so.
    fn is_gone(&self) -> bool {
        let is_closed = match try_lock(&self.socket) {
            Some(socket) => socket.as_ref().is_none_or(packet::is_closed),
            // Somebody talks to the server.
            None => false,
        };
        if is_closed || self.control.has_ended() {
            self.is_dead.store(true, Ordering::Release);
        }
        self.is_dead()
    }

    /// As [`Link::is_gone`], for who has waited for long: a child of the server may keep its sockets open.
    fn has_left(&self) -> bool {
        if self.server.is_some_and(|server| server.has_ended()) {
            self.is_dead.store(true, Ordering::Release);
        }
        self.is_gone()
    }

    /// A call, when its data come in pieces before it.
    pub(super) fn call_staged(&self, pieces: &[&[u8]], call: &Call<'_>, input: &[u8]) -> Result<Answered> {
        let taken = self.take()?;
        for piece in pieces {
            self.ask(&taken, &Call::Stage, piece, &mut [])?;
        }
        self.ask(&taken, call, input, &mut [])
    }

    /// A call.
    pub(super) fn call(&self, call: &Call<'_>, input: &[u8], output: &mut [u8]) -> Result<Answered> {
        let taken = self.take()?;
        self.ask(&taken, call, input, output)
    }

    fn ask(&self, taken: &Taken<'_>, call: &Call<'_>, input: &[u8], output: &mut [u8]) -> Result<Answered> {
        if self.is_dead() {
            return Err(Errno::IO.into());
        }
        let slot = Slot::new(&self.slots, taken.number);
        let mut small = [0; 256];
        let whole;
        let frame = match postcard::to_slice(call, &mut small) {
            Ok(frame) => &*frame,
            Err(_) => {
                whole = to_bytes(call)?;
                whole.as_slice()
            }
        };
        if frame.len() > FRAME_BYTES_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        slot.post(frame, input, output.len());
        self.control.post(self.index, taken.number);
        self.wait(&slot, taken.number)?;
        let lengths = slot.lengths();
        let answered = if lengths.frame <= small.len() {
            let frame = &mut small[..lengths.frame];
            slot.read_frame(frame);
            parse::<Answered>(frame)
        } else {
            let mut frame = vec![0; lengths.frame];
            slot.read_frame(&mut frame);
            parse::<Answered>(&frame)
        };
        let read = lengths.input.min(output.len());
        slot.read_data(&mut output[..read]);
        slot.free();
        match answered {
            Some(Answered::Error(errno)) => Err(error_of(errno)),
            Some(answered) => Ok(answered),
            None => Err(Errno::IO.into()),
        }
    }

    /// Wakes a worker when nobody has taken a call: those that are awake have others.
    fn insist(&self, slot: &Slot<'_>, number: usize) {
        if slot.is_posted() {
            self.control.insist(self.index, number);
        }
    }

    /// Until what was asked is done.
    fn wait(&self, slot: &Slot<'_>, number: usize) -> Result<()> {
        let start = Instant::now();
        let mut has_patience = true;
        loop {
            for _ in 0..32 {
                if slot.is_done() {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            let waited = start.elapsed();
            if has_patience && waited >= PATIENCE {
                has_patience = false;
                self.insist(slot, number);
            }
            if waited >= SPIN {
                break;
            }
        }
        while !slot.is_done() {
            self.insist(slot, number);
            slot.wait(NAP);
            if !slot.is_done() && self.has_left() && !slot.is_done() {
                return Err(Errno::IO.into());
            }
        }
        Ok(())
    }
}

#[inline]
fn is_time_to_look() -> bool {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    let now = now.tv_sec * 1000 + now.tv_nsec / 1_000_000;
    let is_time =
        |looked: &Cell<i64>| now - looked.get() >= LOOK.as_millis() as i64 && looked.replace(now) != now;
    LOOKED.try_with(is_time).unwrap_or(true)
}

fn refused(errno: i32, why: &str) -> Error {
    tracing::debug!("the server refuses: {why}");
    error_of(errno)
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    use unvme::Pages;

    use super::super::wire::Number;
    use super::*;

    #[test]
    fn memory_that_comes_late_is_not_taken_for_another_files() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (ours, theirs) = pair.expect("sockets");
        let say = |answer: &Answer, fds: &[BorrowedFd<'_>]| {
            packet::send(theirs.as_fd(), &to_bytes(answer).expect("encoded"), fds).expect("sent");
        };
        let regions = [("control", CONTROL_BYTES), ("slots", SLOTS_BYTES)]
            .map(|(name, bytes)| Region::shared_on(name, bytes, Pages::Ordinary).expect("memory"));
        let fds: Vec<_> = regions.iter().filter_map(Region::backing).map(|(fd, _)| fd).collect();
        say(&Answer::Welcome { index: 0, ticket: 1, server: 1, process: Number::own(), pages: None }, &fds);
        let link = Link::over(ours, &Ask::Resume { version: VERSION }).expect("connected");
        let memory = |bytes: u64| {
            let fd = rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
            rustix::fs::ftruncate(&fd, bytes).expect("so long");
            fd
        };
        // What was asked for before, and given up.
        say(&Answer::Memory { ino: 1, errno: None }, &[memory(1).as_fd()]);
        say(&Answer::Memory { ino: 3, errno: Some(Errno::NOMEM.raw_os_error()) }, &[]);
        say(&Answer::Memory { ino: 2, errno: None }, &[memory(2).as_fd()]);
        let found = link.memory(2).expect("its memory");
        assert_eq!(rustix::fs::fstat(&found).expect("there").st_size, 2);
        say(&Answer::Memory { ino: 2, errno: Some(Errno::NOMEM.raw_os_error()) }, &[]);
        assert_eq!(link.memory(2).expect_err("there is none").errno(), Errno::NOMEM);
    }
}
