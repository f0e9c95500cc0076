//! The admin queue of an association: shared by all threads.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use unvme_bus::{PoolId, lock};
use unvme_fabric::Stream;
use unvme_spec::{Sqe, admin};

use super::device::TcpDevice;
use crate::command::{Completion, Payload, Rejected, command_name};
use crate::mailbox::Mailbox;
use crate::tcp::{Agreement, Broken, Link, LinkConfig, Manner, Sleeper};
use crate::{Error, Event};

/// Commands that can be outstanding on the admin queue.
pub(super) const ADMIN_DEPTH: u16 = 31;
/// Rounds of looking before the first sleep.
const SPINS: u32 = 100;
/// Longest sleep between two looks.
const SLEEP_MAX: Duration = Duration::from_millis(1);

struct State {
    link: Link,
    mail: Mailbox,
    /// Why nothing works any more.
    closed: Option<String>,
    keep_alive: KeepAlive,
}

/// Where the keep-alive stands. Times are of the controller's clock.
#[derive(Clone, Copy, Default)]
struct KeepAlive {
    /// When the last Keep Alive was sent.
    sent_at: u64,
    /// The one that has not been answered.
    token: Option<u64>,
}

pub(super) struct TcpAdmin {
    state: Mutex<State>,
    sleeper: Sleeper,
}

impl TcpAdmin {
    pub(super) fn new(pool: PoolId, transfer_bytes_max: usize) -> Result<Self, Error> {
        let link = Link::new(&LinkConfig {
            depth: ADMIN_DEPTH,
            is_admin: true,
            long_keys: false,
            pool,
            transfer_bytes_max,
        });
        let state = State { link, mail: Mailbox::default(), closed: None, keep_alive: KeepAlive::default() };
        Ok(Self { state: Mutex::new(state), sleeper: Sleeper::new()? })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every method leaves the state whole before anything that could panic.
        lock(&self.state)
    }

    /// Goes on with a connection. Commands that waited for it are sent.
    pub(super) fn attach(&self, stream: Stream, agreed: Agreement, limits: AdminLimits) -> Result<(), Error> {
        let mut state = self.lock();
        self.sleeper.watch(&stream)?;
        state.link.transfer_bytes_max = limits.transfer_bytes_max;
        state.link.attach(stream, agreed, unvme_spec::tcp::ADMIN_IN_CAPSULE_BYTES);
        state.keep_alive = KeepAlive { sent_at: limits.now, token: None };
        state.closed = None;
        state.mail.want_events(limits.events);
        state.arm_events();
        // A connection that breaks at once is noticed by whoever looks next.
        let _ = state.link.flush();
        Ok(())
    }

    /// Ends the connection. Commands that can be sent again wait for the next one; the others have ended, as
    /// have all of them without `resends`.
    pub(super) fn detach(&self, resends: bool) {
        let mut state = self.lock();
        state.link.close();
        // Its answer is of no use any more, and the next connection begins with a time of its own.
        if let Some(token) = state.keep_alive.token.take() {
            state.mail.abandon(token);
        }
        if resends {
            state.link.requeue(true);
        } else {
            state.link.abort_all();
        }
        state.collect();
        drop(state);
        self.sleeper.wake();
    }

    /// Turns users away until the next connection.
    pub(super) fn shut(&self, reason: &str) {
        let mut state = self.lock();
        state.closed = Some(reason.to_owned());
        state.link.abort_all();
        state.collect();
        drop(state);
        self.sleeper.wake();
    }

    /// Sends a command and waits for its completion, whatever its status. While there is no connection it
    /// waits for one, as part of `limit`. Errors: [`Error::Timeout`], [`Error::Gone`],
    /// [`Error::InvalidArgument`]. The caller decides about a reset.
    pub(super) fn execute(
        &self,
        device: &TcpDevice,
        sqe: Sqe,
        payload: Option<Payload>,
        limit: Duration,
    ) -> Result<Completion, Error> {
        let clock = device.base.clock();
        let started = clock.now();
        let elapsed = || Duration::from_nanos(clock.now().saturating_sub(started));
        let late = || Error::Timeout { what: command_name(&sqe), milliseconds: limit.as_millis() as u64 };
        let mut payload = payload;
        let mut token = None;
        let mut rounds = 0;
        loop {
            let epoch = device.base.epoch();
            let mut state = self.lock();
            if token.is_none() {
                token = state.start(&sqe, &mut payload)?;
            }
            let looked = state.look();
            if let Some(token) = token
                && let Some(completion) = state.mail.take(token)
            {
                return Ok(completion);
            }
            if elapsed() >= limit {
                if let Some(token) = token {
                    state.give_up(token);
                }
                return Err(late());
            }
            drop(state);
            if let Err(broken) = looked {
                device.lose(epoch, &broken);
            }
            device.attend();
            rounds += 1;
            if rounds > SPINS {
                self.sleeper.sleep(SLEEP_MAX);
                clock.advance(SLEEP_MAX);
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Sends a command by the connection of `epoch`, and by no other, and waits for its completion for as
    /// long as that connection lasts, at most until `deadline` of the controller's clock. Nothing is done
    /// about a connection that breaks.
    pub(super) fn execute_under(
        &self,
        device: &TcpDevice,
        epoch: u64,
        sqe: Sqe,
        deadline: u64,
    ) -> Option<Completion> {
        if !epoch.is_multiple_of(2) {
            // There is none, but for the one that is being made and has no epoch yet.
            return None;
        }
        let clock = device.base.clock();
        let mut token = None;
        for rounds in 0u32.. {
            let mut state = self.lock();
            // The next connection comes under this lock, and when the epoch is another one.
            let is_over = device.base.epoch() != epoch || state.link.stream().is_none();
            if !is_over && token.is_none() {
                token = state.start(&sqe, &mut None).ok()?;
            }
            let is_over = state.look().is_err() || is_over;
            if let Some(completion) = token.and_then(|token| state.mail.take(token)) {
                return Some(completion);
            }
            if is_over || clock.now() >= deadline {
                if let Some(token) = token {
                    state.give_up(token);
                }
                break;
            }
            drop(state);
            if rounds > SPINS {
                self.sleeper.sleep(SLEEP_MAX);
                clock.advance(SLEEP_MAX);
            } else {
                std::hint::spin_loop();
            }
        }
        None
    }

    /// The events that have arrived; their requests are sent again. Errors: [`Error::Gone`].
    pub(super) fn take_events(&self, device: &TcpDevice) -> Result<Vec<Event>, Error> {
        let epoch = device.base.epoch();
        let mut state = self.lock();
        let looked = state.look();
        let events = state.mail.take_events();
        state.arm_events();
        let flushed = looked.and_then(|()| state.link.flush());
        let closed = state.closed.clone();
        drop(state);
        if let Err(broken) = flushed {
            device.lose(epoch, &broken);
        }
        match closed {
            Some(reason) if events.is_empty() => Err(Error::Gone { reason }),
            _ => Ok(events),
        }
    }

    /// Sends a Keep Alive when it is time for one, and looks whether the last one was answered. Does nothing
    /// while somebody else is at the queue. Errors: the connection is broken.
    pub(super) fn keep_alive(&self, interval: Duration, now: u64) -> Result<(), Broken> {
        let Some(mut state) = lock::try_lock(&self.state) else { return Ok(()) };
        if state.link.stream().is_none() {
            return Ok(());
        }
        state.look()?;
        let since = Duration::from_nanos(now.saturating_sub(state.keep_alive.sent_at));
        if let Some(token) = state.keep_alive.token {
            if state.mail.take(token).is_some() {
                state.keep_alive.token = None;
            } else if since >= interval {
                return Err(Broken::Lost(format!("no answer to Keep Alive within {} ms", since.as_millis())));
            }
        }
        // Twice in an interval: one that comes late is not too late.
        if state.keep_alive.token.is_none() && since >= interval / 2 {
            let sqe = admin::Command::KeepAlive.encode();
            state.keep_alive = KeepAlive { sent_at: now, token: state.start(&sqe, &mut None).ok().flatten() };
            state.link.flush()?;
        }
        Ok(())
    }
}

/// What an admin queue goes on with besides its connection.
#[derive(Clone, Copy)]
pub(super) struct AdminLimits {
    pub(super) transfer_bytes_max: usize,
    /// Asynchronous Event Requests the controller takes.
    pub(super) events: u32,
    pub(super) now: u64,
}

impl State {
    /// Takes a command; `None`, with the payload still there, while the queue is full.
    fn start(&mut self, sqe: &Sqe, payload: &mut Option<Payload>) -> Result<Option<u64>, Error> {
        if let Some(reason) = &self.closed {
            return Err(Error::Gone { reason: reason.clone() });
        }
        if sqe.opcode == admin::opcode::FABRICS && self.link.stream().is_none() {
            // It is about the association that there was, and not about the next one.
            return Err(Error::Unreachable(format!("{}: there is no connection", command_name(sqe))));
        }
        let token = self.mail.token();
        let bytes = payload.as_ref().map_or(0, |payload| payload.bytes);
        match self.link.submit(*sqe, payload.take(), Manner { token, ..Manner::default() }) {
            Ok(()) => {
                self.mail.sent();
                Ok(Some(token))
            }
            Err(Rejected { error: Error::Full { .. }, buf }) => {
                *payload = buf.map(|buf| Payload { buf, bytes });
                Ok(None)
            }
            Err(rejected) => Err(rejected.error),
        }
    }

    /// Sends what waits, and takes what has completed.
    fn look(&mut self) -> Result<(), Broken> {
        self.link.begin();
        let flushed = self.link.flush();
        let looked = loop {
            match self.link.look() {
                Ok(true) => self.collect(),
                Ok(false) => break Ok(()),
                Err(e) => break Err(e),
            }
        };
        self.collect();
        flushed.and(looked)
    }

    /// Nobody waits for a command any more: it is not sent when it has not been.
    fn give_up(&mut self, token: u64) {
        self.link.cancel(token);
        self.collect();
        self.mail.abandon(token);
    }

    fn collect(&mut self) {
        while let Some(completion) = self.link.pop() {
            self.mail.deliver(completion);
        }
    }

    fn arm_events(&mut self) {
        while let Some(token) = self.mail.event_token() {
            let sqe = admin::Command::AsyncEventRequest.encode();
            if self.link.submit(sqe, None, Manner { token, ..Manner::default() }).is_err() {
                break;
            }
            self.mail.event_sent();
        }
    }
}
