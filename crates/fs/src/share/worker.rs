//! The server's threads that do what is asked: they look for calls, do them, and sleep when nothing comes.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use unvme::Region;
use unvme::lock::lock;

use super::identity::{self, Peer};
use super::realm::Realm;
use super::server::Shared;
use super::slot::{DATA_BYTES_MAX, FRAME_BYTES_MAX, SLOTS, Slot};
use super::wire::{Answered, Call, Identity, parse, to_bytes};
use crate::access::Credentials;
use crate::calls::{OpenId, Process, Reply, Request};
use crate::error::{Error, Result};

/// Most that is kept for one call whose data come in pieces.
pub(super) const STAGED_BYTES_MAX: usize = 64 << 20;
/// Most that is kept for all calls of all clients whose data come in pieces: a client that stages and never
/// calls costs the server so much and no more.
pub(super) const STAGED_BYTES_OF_ALL: usize = 256 << 20;

/// How long a worker sleeps when nothing wakes it.
const REST: Duration = Duration::from_secs(1);
/// After so many rounds, connections that are quiet are not looked at any more.
const TIDY_EVERY: u32 = 256;

/// A client that is connected.
pub(super) struct Connection {
    pub index: usize,
    /// What a child of it shows.
    pub ticket: u64,
    pub peer: Peer,
    /// Whose control page its client sees.
    pub realm: Arc<Realm>,
    pub process: Arc<Process>,
    pub slots: Region,
    /// The client is gone: nothing of it is begun any more.
    pub is_closed: AtomicBool,
    /// It has everything again that it had at an earlier mount.
    pub has_reaped: AtomicBool,
    /// By slot: data that came before their call.
    staged: Vec<Mutex<Staged>>,
    /// A bit for each slot whose call is a long one: a client that posts it again is not listened to.
    long: AtomicU64,
}

/// Data that came before their call, and what counts them with those of all clients.
#[derive(Default)]
struct Staged {
    bytes: Vec<u8>,
    all: Option<Arc<AtomicUsize>>,
}

impl Staged {
    /// # Errors
    /// ENOBUFS when these, or those of all clients, would be too many: then none of these are kept.
    fn add(&mut self, input: &[u8], all: &Arc<AtomicUsize>) -> Result<()> {
        let bytes = input.len();
        let count = |counted: usize| Some(counted + bytes).filter(|sum| *sum <= STAGED_BYTES_OF_ALL);
        if self.bytes.len() + bytes > STAGED_BYTES_MAX
            || all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_err()
        {
            self.take();
            return Err(Errno::NOBUFS.into());
        }
        self.all = Some(Arc::clone(all));
        self.bytes.extend_from_slice(input);
        Ok(())
    }

    fn take(&mut self) -> Vec<u8> {
        if let Some(all) = &self.all {
            all.fetch_sub(self.bytes.len(), Ordering::Relaxed);
        }
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.take();
    }
}

/// What calls are copied into, before anybody looks at them.
pub(super) struct Buffers {
    frame: Vec<u8>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Buffers {
    pub(super) fn new() -> Self {
        Self {
            frame: vec![0; FRAME_BYTES_MAX],
            input: vec![0; DATA_BYTES_MAX],
            output: vec![0; DATA_BYTES_MAX],
        }
    }
}

impl Connection {
    pub(super) fn new(
        index: usize,
        (peer, realm): (Peer, Arc<Realm>),
        process: Arc<Process>,
        slots: Region,
    ) -> Self {
        let staged = (0..SLOTS).map(|_| Mutex::default()).collect();
        let [is_closed, has_reaped] = [false; 2].map(AtomicBool::new);
        let ticket = unvme::random::number();
        let long = AtomicU64::new(0);
        Self { index, ticket, peer, realm, process, slots, is_closed, has_reaped, staged, long }
    }

    /// Wakes all who wait.
    pub(super) fn rouse(&self) {
        (0..SLOTS).for_each(|slot| Slot::new(&self.slots, slot).rouse());
    }

    /// Does what is in a slot, or leaves it to the threads for long calls.
    fn run(self: &Arc<Self>, shared: &Shared, number: usize, buffers: &mut Buffers) {
        let slot = Slot::new(&self.slots, number);
        let is_long = self.long.load(Ordering::Acquire) & 1 << number != 0;
        if is_long || self.is_closed.load(Ordering::Acquire) || !slot.start() {
            return;
        }
        self.run_started(shared, number, buffers, false);
    }

    /// Does a long call.
    pub(super) fn run_long(self: &Arc<Self>, shared: &Shared, number: usize, buffers: &mut Buffers) {
        self.long.fetch_and(!(1 << number), Ordering::AcqRel);
        if !self.is_closed.load(Ordering::Acquire) {
            self.run_started(shared, number, buffers, true);
        }
    }

    fn run_started(self: &Arc<Self>, shared: &Shared, number: usize, buffers: &mut Buffers, has_time: bool) {
        let slot = Slot::new(&self.slots, number);
        let Buffers { frame: frame_room, input, output } = buffers;
        let lengths = slot.lengths();
        let (frame, input) = (&mut frame_room[..lengths.frame], &mut input[..lengths.input]);
        slot.read_frame(frame);
        slot.read_data(input);
        let output = &mut output[..lengths.output];
        let done = catch_unwind(AssertUnwindSafe(|| match parse::<Call<'_>>(frame) {
            Some(call) if !has_time && self.is_long(&call) => Ok(None),
            Some(call) => self.answer(shared, number, &call, input, output).map(Some),
            None => Err(Errno::INVAL.into()),
        }));
        let (answered, read) = match done {
            Ok(Ok(Some(answered))) => answered,
            Ok(Ok(None)) => {
                self.long.fetch_or(1 << number, Ordering::AcqRel);
                shared.long.push(Arc::clone(self), number);
                return;
            }
            Ok(Err(e)) => (Answered::Error(number_of(&e)), 0),
            // It has been reported; one call has failed.
            Err(_) => (Answered::Error(Errno::IO.raw_os_error()), 0),
        };
        // What was asked has been done with: there is room for the answer.
        match postcard::to_slice(&answered, frame_room) {
            Ok(bytes) => slot.finish(bytes, &output[..read]),
            Err(_) => {
                let too_long = to_bytes(&Answered::Error(Errno::OVERFLOW.raw_os_error()));
                slot.finish(&too_long.unwrap_or_default(), &[]);
            }
        }
    }

    /// Whether a call may take too long for a worker.
    fn is_long(&self, call: &Call<'_>) -> bool {
        match call {
            Call::Do(request)
            | Call::DoAs(_, request)
            | Call::DoStaged(request)
            | Call::DoStagedAs(_, request) => self.process.is_long(request),
            Call::Map { open, .. } => self.process.is_long_to_map(*open, &(0..u64::MAX)),
            Call::MapRange { open, start, end, .. } => self.process.is_long_to_map(*open, &(*start..*end)),
            Call::LoadMap { ino, .. } | Call::SyncMap { ino } | Call::Unmap { ino } => {
                self.process.is_long_on(*ino)
            }
            _ => false,
        }
    }

    /// Maps a file. Loading it ends with the server, and with the client.
    fn map(&self, shared: &Shared, open: OpenId, is_stored_to: bool, range: Range<u64>) -> Result<Answered> {
        let goes_on = || self.goes_on(shared);
        let mapped = self.process.map_while(open, is_stored_to, &range, &goes_on)?;
        Ok(Answered::Mapped(mapped.ino, mapped.size))
    }

    fn goes_on(&self, shared: &Shared) -> bool {
        !shared.has_ended() && !self.is_closed.load(Ordering::Acquire)
    }

    /// What comes of a call, and how many bytes of data.
    fn answer(
        &self,
        shared: &Shared,
        number: usize,
        call: &Call<'_>,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(Answered, usize)> {
        let done = Answered::Reply(Reply::Done);
        match call {
            Call::Do(request) => self.ask(shared, request, input, output),
            Call::DoAs(who, request) => self.ask_as(shared, who, request, input, output),
            Call::DoStaged(request) => self.ask(shared, request, &self.staged_with(number, input), output),
            Call::DoStagedAs(who, request) => {
                self.ask_as(shared, who, request, &self.staged_with(number, input), output)
            }
            Call::Stage => {
                lock(&self.staged[number]).add(input, &shared.staged_bytes)?;
                Ok((done, 0))
            }
            Call::Ping => Ok((done, 0)),
            Call::Reap => {
                // What has no name and is not open yet is another client's, which comes later.
                if !self.peer.is_trusted() {
                    return Err(Errno::PERM.into());
                }
                self.process.fs().reap_unnamed()?;
                self.has_reaped.store(true, Ordering::Release);
                Ok((done, 0))
            }
            Call::Identify(new) => {
                identity::check(new, &self.peer)?;
                self.process.set_identity(new.pid, new.credentials());
                Ok((done, 0))
            }
            Call::Map { open, is_stored_to } => Ok((self.map(shared, *open, *is_stored_to, 0..u64::MAX)?, 0)),
            Call::MapRange { open, is_stored_to, start, end } => {
                Ok((self.map(shared, *open, *is_stored_to, *start..*end)?, 0))
            }
            Call::LoadMap { ino, start, end } => {
                self.process.load_while(*ino, &(*start..*end), &|| self.goes_on(shared))?;
                Ok((done, 0))
            }
            // Its client sees no pages.
            Call::Watch { .. } if !self.peer.is_trusted() => Err(Errno::OPNOTSUPP.into()),
            Call::Watch { open } => {
                let (ino, place) = self.process.watch(*open)?;
                Ok((Answered::Watched(ino, place as u32), 0))
            }
            Call::Fetch { open, offset } => {
                let request = Request::Read { open: *open, offset: *offset };
                self.ask(shared, &request, &[], output).map(|(answered, _)| (answered, 0))
            }
            Call::KeepOnly => {
                let words = input.as_chunks::<8>().0;
                let kept: Vec<OpenId> = words.iter().map(|word| OpenId(u64::from_le_bytes(*word))).collect();
                self.process.keep_only(&kept);
                Ok((done, 0))
            }
            Call::StoreTo { ino } => self.process.store_to(*ino).map(|()| (done, 0)),
            Call::SyncMap { ino } => self.process.sync_map(*ino).map(|()| (done, 0)),
            Call::Unmap { ino } => self.process.unmap(*ino).map(|()| (done, 0)),
        }
    }

    /// The data that were kept for a call, and behind them those that came with it.
    fn staged_with(&self, number: usize, input: &[u8]) -> Vec<u8> {
        let mut data = lock(&self.staged[number]).take();
        data.extend_from_slice(input);
        data
    }

    /// As [`Connection::ask`], for a thread that acts for another user than its process.
    fn ask_as(
        &self,
        shared: &Shared,
        who: &Identity,
        request: &Request<'_>,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(Answered, usize)> {
        identity::check(who, &self.peer)?;
        let who: Credentials = who.credentials();
        crate::calls::acting_as(&who, || self.ask(shared, request, input, output))
    }

    fn ask(
        &self,
        shared: &Shared,
        request: &Request<'_>,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(Answered, usize)> {
        if let Request::Adopt { ino, flags, .. } = request
            && !self.peer.is_trusted()
        {
            self.process.check_adoption(*ino, *flags)?;
        }
        let mut done = self.process.call(request, input, output);
        if is_in_the_way(request, &done) {
            // Of somebody, perhaps, whom his parent has waited for.
            shared.part_with_the_ended();
            done = self.process.call(request, input, output);
        }
        let reply = done?;
        let read = match (request, &reply) {
            (Request::Read { .. }, Reply::Number(read)) => (*read as usize).min(output.len()),
            _ => 0,
        };
        Ok((Answered::Reply(reply), read))
    }
}

/// Whether somebody's lock is in the way of a call that does not come back on its own.
fn is_in_the_way(request: &Request<'_>, done: &Result<Reply>) -> bool {
    match request {
        Request::Lock { .. } | Request::Flock { .. } => matches!(done, Err(Error::Posix(Errno::AGAIN))),
        Request::FindLock { .. } => matches!(done, Ok(Reply::Lock(Some(_)))),
        _ => false,
    }
}

fn number_of(error: &Error) -> i32 {
    if !matches!(error, Error::Posix(_)) {
        // The client is told a number alone.
        tracing::warn!("{error}");
    }
    error.errno().raw_os_error()
}

/// Works for the clients of a realm until it, or the server, ends. `number` is this worker's: below 64.
pub(super) fn work(shared: &Shared, realm: &Realm, number: usize) {
    let control = &realm.control;
    let is_over = || shared.has_ended() || realm.is_over();
    let mut buffers = Buffers::new();
    let (mut from, mut turn, mut rounds) = (0, 0, 0_u32);
    let bit = 1_u64 << number;
    let look = || realm.looking.0.fetch_or(bit, Ordering::Relaxed);
    let look_away = || realm.looking.0.fetch_and(!bit, Ordering::Relaxed);
    control.wake_up();
    look();
    let mut since = Instant::now();
    while !is_over() {
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(TIDY_EVERY) {
            control.tidy();
        }
        if let Some((index, slot)) = control.take(from, turn) {
            if look_away() == bit && control.is_any_posted() {
                control.ring();
            }
            from = (index + 1) % super::slot::CONNECTIONS_MAX;
            turn = slot + 1;
            // Those of other realms are not this realm's clients' to call for.
            if let Some(connection) = shared.connection(index).filter(|found| realm.has(found)) {
                connection.run(shared, slot, &mut buffers);
            }
            look();
            since = Instant::now();
            continue;
        }
        // One that looks is enough: the first of them.
        let is_first = realm.looking.0.load(Ordering::Relaxed) & (bit - 1) == 0;
        if is_first && since.elapsed() < shared.spin {
            // What somebody waits for is seen at once: a pause may take as long as a call.
            for _ in 0..16 {
                if control.is_any_posted() {
                    break;
                }
                std::hint::spin_loop();
            }
        } else {
            look_away();
            control.rest(REST, is_over);
            look();
            since = Instant::now();
        }
    }
    look_away();
    control.fall_asleep();
}
