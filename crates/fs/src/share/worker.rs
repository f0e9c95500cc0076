//! The server's threads that do what is asked: they look for calls, do them, and sleep when nothing comes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use unvme::Region;
use unvme::lock::lock;

use super::identity::{self, Peer};
use super::server::Shared;
use super::slot::{DATA_BYTES_MAX, FRAME_BYTES_MAX, SLOTS, Slot};
use super::wire::{Answered, Call, parse, to_bytes};
use crate::calls::{OpenId, Process, Reply, Request};
use crate::error::{Error, Result};

/// Most that is kept for one call whose data come in pieces.
pub(super) const STAGED_BYTES_MAX: usize = 64 << 20;

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
    pub process: Arc<Process>,
    pub slots: Region,
    /// The client is gone: nothing of it is begun any more.
    pub is_closed: AtomicBool,
    /// It has everything again that it had at an earlier mount.
    pub has_reaped: AtomicBool,
    /// By slot: data that came before their call.
    staged: Vec<Mutex<Vec<u8>>>,
}

/// What calls are copied into, before anybody looks at them.
struct Buffers {
    frame: Vec<u8>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Connection {
    pub(super) fn new(index: usize, ticket: u64, peer: Peer, process: Arc<Process>, slots: Region) -> Self {
        let staged = (0..SLOTS).map(|_| Mutex::default()).collect();
        let [is_closed, has_reaped] = [false; 2].map(AtomicBool::new);
        Self { index, ticket, peer, process, slots, is_closed, has_reaped, staged }
    }

    /// Wakes all who wait.
    pub(super) fn rouse(&self) {
        (0..SLOTS).for_each(|slot| Slot::new(&self.slots, slot).rouse());
    }

    /// Does what is in a slot.
    fn run(&self, shared: &Shared, number: usize, buffers: &mut Buffers) {
        let slot = Slot::new(&self.slots, number);
        if self.is_closed.load(Ordering::Acquire) || !slot.start() {
            return;
        }
        let Buffers { frame: frame_room, input, output } = buffers;
        let lengths = slot.lengths();
        let (frame, input) = (&mut frame_room[..lengths.frame], &mut input[..lengths.input]);
        slot.read_frame(frame);
        slot.read_data(input);
        let output = &mut output[..lengths.output];
        let done = catch_unwind(AssertUnwindSafe(|| match parse::<Call<'_>>(frame) {
            Some(call) => self.answer(shared, number, &call, input, output),
            None => Err(Errno::INVAL.into()),
        }));
        let (answered, read) = match done {
            Ok(Ok(answered)) => answered,
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
            Call::DoStaged(request) => {
                let mut data = std::mem::take(&mut *lock(&self.staged[number]));
                data.extend_from_slice(input);
                self.ask(shared, request, &data, output)
            }
            Call::Stage => {
                let mut staged = lock(&self.staged[number]);
                if staged.len() + input.len() > STAGED_BYTES_MAX {
                    *staged = Vec::new();
                    return Err(Errno::NOBUFS.into());
                }
                staged.extend_from_slice(input);
                Ok((done, 0))
            }
            Call::Ping => Ok((done, 0)),
            Call::Reap => {
                self.process.fs().reap_unnamed()?;
                self.has_reaped.store(true, Ordering::Release);
                Ok((done, 0))
            }
            Call::Identify(new) => {
                identity::check(new, &self.peer)?;
                self.process.set_identity(new.pid, new.credentials());
                Ok((done, 0))
            }
            Call::Map { open, is_stored_to } => {
                let mapped = self.process.map(*open, *is_stored_to)?;
                Ok((Answered::Mapped(mapped.ino, mapped.size), 0))
            }
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

    fn ask(
        &self,
        shared: &Shared,
        request: &Request<'_>,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(Answered, usize)> {
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

/// Works until the server ends. `number` is this worker's: below 64.
pub(super) fn work(shared: &Shared, number: usize) {
    let control = &shared.control;
    let mut buffers = Buffers {
        frame: vec![0; FRAME_BYTES_MAX],
        input: vec![0; DATA_BYTES_MAX],
        output: vec![0; DATA_BYTES_MAX],
    };
    let (mut from, mut turn, mut rounds) = (0, 0, 0_u32);
    let bit = 1_u64 << number;
    let look = || shared.looking.0.fetch_or(bit, Ordering::Relaxed);
    let look_away = || shared.looking.0.fetch_and(!bit, Ordering::Relaxed);
    control.wake_up();
    look();
    let mut since = Instant::now();
    while !shared.has_ended() {
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
            if let Some(connection) = shared.connection(index) {
                connection.run(shared, slot, &mut buffers);
            }
            look();
            since = Instant::now();
            continue;
        }
        // One that looks is enough: the first of them.
        let is_first = shared.looking.0.load(Ordering::Relaxed) & (bit - 1) == 0;
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
            control.rest(REST, || shared.has_ended());
            look();
            since = Instant::now();
        }
    }
    look_away();
    control.fall_asleep();
}
