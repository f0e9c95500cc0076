//! The controller's side of NVMe/TCP: Protocol Data Units to a [`FabricsQueue`] and back (TCP Transport 1.1).
//!
//! A [`Connection`] is a state machine without a socket: whoever owns the socket lends it to
//! [`Connection::receive`] and [`Connection::send`], and calls [`Connection::advance`] in between. One call
//! each moves as many PDUs as there are, and data moves between the socket and the staging memory of the
//! commands:
//!
//! ```text
//! loop {
//!     connection.receive(|rooms| stream.receive(rooms));   // PDUs in, write data into staging memory
//!     connection.advance(&clock);                          // commands run, completions become PDUs
//!     connection.send(|pieces| stream.send(pieces));       // PDUs out, read data from staging memory
//!     if connection.ending().is_some() { break; }          // then the socket is closed
//! }
//! ```
//!
//! | module | concept |
//! |---|---|
//! | `header` | what a header must be: PDU types, flags, lengths, offsets |
//! | `input` | bytes that are not understood yet |
//! | `receive` | PDUs from the host |
//! | `round` | how much begins before any of it is answered |
//! | `transfer` | R2Ts, and the data that they ask for |
//! | `output` | bytes and memory on their way out |
//! | `reply` | PDUs to the host |
//! | `ending` | why a connection ends |
//! | `limits` | what a connection allows its host |
//!
//! Whatever is malformed ends this connection and nothing else: the host gets the Terminate Request that the
//! specification names, its further input is thrown away, and the connection ends when the host closes it or
//! after [`Limits::linger`].
//!
//! What it does not implement: data for the host is never asked to be sent again, and `MAXR2T` is used up to
//! [`Limits::r2ts_max`] alone.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod ending;
mod header;
mod input;
mod limits;
mod output;
mod receive;
mod reply;
mod round;
mod transfer;
mod watch;

use std::collections::VecDeque;
use std::io;

use unvme_bus::{Clock, Piece, Room};

use crate::fabrics::{FabricsQueue, Finished, QueueState, SlotId};

pub use ending::{Ending, Fatal, Late};
pub use limits::{DATA_ALIGNMENT_Z_MAX, Limits, R2TS_MAX};

use header::Agreed;
use input::Input;
use output::Output;
use receive::Receiving;
use reply::Reply;
use round::Round;
use transfer::Transfers;
use watch::Watch;

/// How often a capsule that there is no memory for is looked at again, in nanoseconds.
const PAUSE_NS: u64 = 1_000_000;

/// One connection of a host: a queue of its controller, once it has sent Connect.
pub struct Connection {
    queue: FabricsQueue,
    limits: Limits,
    phase: Phase,
    /// What both sides have said in their initialization PDUs.
    agreed: Agreed,
    input: Input,
    receiving: Receiving,
    round: Round,
    transfers: Transfers,
    /// What is to be sent and is not encoded yet.
    replies: VecDeque<Reply>,
    output: Output,
    /// Asynchronous Event Requests: commands that nothing may ever end.
    event_requests: Vec<SlotId>,
    /// Empty between calls; kept for its memory.
    finished: Vec<Finished>,
    watch: Watch,
    /// Commands that arrive are thrown away.
    is_draining: bool,
    /// There is no memory for a capsule that has arrived: it is looked at again later, and nothing behind it
    /// before.
    is_paused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing but an ICReq is taken.
    Greeting,
    Running,
    /// What is encoded is still sent, what arrives is thrown away.
    Closing(Ending),
    Ended(Ending),
}

impl Connection {
    /// A connection that was just accepted. Panics: when a limit is outside its range.
    pub fn new(queue: FabricsQueue, limits: Limits) -> Self {
        limits.check();
        Self {
            queue,
            limits,
            phase: Phase::Greeting,
            agreed: Agreed::default(),
            input: Input::new(),
            receiving: Receiving::Header,
            round: Round::default(),
            transfers: Transfers::default(),
            replies: VecDeque::new(),
            output: Output::default(),
            event_requests: Vec::new(),
            finished: Vec::new(),
            watch: Watch::default(),
            is_draining: false,
            is_paused: false,
        }
    }

    /// Whether [`Connection::receive`] would take bytes. False while the host does not take what is sent to
    /// it, and once the connection has ended.
    pub fn wants_input(&self) -> bool {
        match self.phase {
            Phase::Greeting | Phase::Running => !self.is_full() && !self.is_paused && self.input.has_room(),
            Phase::Closing(_) => true,
            Phase::Ended(_) => false,
        }
    }

    /// Whether [`Connection::send`] has bytes to send.
    pub fn wants_output(&self) -> bool {
        !self.output.is_empty() || (!self.replies.is_empty() && self.is_open())
    }

    /// Has `from` fill the rooms that there are, once, and understands what it received: how many bytes.
    /// [`bus::socket::receive`](unvme_bus::socket::receive) is such a function: 0 is the end of the stream,
    /// [`io::ErrorKind::WouldBlock`] is not an error. It takes none, either, between a burst of commands and
    /// the next [`Connection::advance`].
    pub fn receive(&mut self, from: impl FnOnce(&mut [Room<'_>]) -> io::Result<usize>) -> usize {
        if !self.wants_input() || self.round.is_full() {
            return 0;
        }
        let result = match self.phase {
            Phase::Closing(_) => self.input.discard(from),
            _ => self.receive_pdus(from),
        };
        match result {
            Ok(0) => self.end_of_stream(),
            Ok(bytes) => {
                self.watch.input.moved(bytes);
                return bytes;
            }
            Err(io::ErrorKind::WouldBlock) => {}
            Err(kind) => self.socket_failed(kind),
        }
        0
    }

    /// Has `to` send what there is, once: how many bytes it took.
    /// [`bus::socket::send`](unvme_bus::socket::send) is such a function.
    pub fn send(&mut self, to: impl FnOnce(&[Piece<'_>]) -> io::Result<usize>) -> usize {
        self.encode();
        if self.output.is_empty() {
            return 0;
        }
        let queue = &self.queue;
        let result = self.output.send(|slot| queue.memory(slot), to);
        match result {
            Ok(bytes) => {
                let queue = &mut self.queue;
                self.output.sent(bytes, |slot| queue.release(slot));
                self.watch.output.moved(bytes);
                if self.output.is_empty() {
                    self.watch.output.progress();
                }
                self.finish_closing();
                // What stood still because the output was full goes on.
                self.understand();
                bytes
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => {
                self.socket_failed(error.kind());
                0
            }
        }
    }

    /// Runs what has arrived, takes completions, and looks at the clock: how much was done, 0 for nothing.
    pub fn advance(&mut self, clock: &Clock) -> usize {
        if matches!(self.phase, Phase::Ended(_)) {
            return 0;
        }
        let mut done = 0;
        if self.is_open() {
            let is_behind = self.round.is_behind() && !self.round.is_full();
            if is_behind {
                self.understand();
            }
            done = self.queue.poll(clock, &mut self.finished).max(usize::from(is_behind));
            self.round.end();
            self.take_finished();
            self.ask_for_wanted();
            if std::mem::take(&mut self.is_paused) {
                self.understand();
                done = done.max(usize::from(!self.is_paused));
            }
            match self.queue.state() {
                QueueState::Ended(_) => self.close(Ending::Queue),
                QueueState::Disconnected if !self.wants_output() && self.is_quiet() => {
                    self.close(Ending::Queue)
                }
                _ => {}
            }
        }
        self.look_at_clock(clock.now());
        done
    }

    /// When [`Connection::advance`] is to be called again though nothing has arrived, in nanoseconds of the
    /// clock; `None` when only the host can make something happen.
    pub fn next_event(&self) -> Option<u64> {
        if matches!(self.phase, Phase::Ended(_)) {
            return None;
        }
        let queue = if self.is_open() { self.queue.next_event() } else { None };
        let again = self.is_paused.then(|| self.watch.now.saturating_add(PAUSE_NS));
        let behind = self.round.is_behind().then_some(self.watch.now);
        [queue, again, behind, self.deadline()].into_iter().flatten().min()
    }

    /// Why the connection has ended: there is nothing left to do but to close the socket. `None` while it has
    /// not.
    pub fn ending(&self) -> Option<Ending> {
        match self.phase {
            Phase::Ended(ending) => Some(ending),
            _ => None,
        }
    }

    /// No command is under way, except Asynchronous Event Requests, and nothing is half received or half
    /// sent.
    pub fn is_idle(&self) -> bool {
        self.is_quiet() && !self.wants_output() && !self.is_receiving()
    }

    fn is_quiet(&self) -> bool {
        self.queue.outstanding() <= self.event_requests.len()
    }

    /// Whether a PDU has arrived in part.
    fn is_receiving(&self) -> bool {
        !self.input.is_empty() || matches!(self.receiving, Receiving::Data(_))
    }

    /// Completions become replies.
    fn take_finished(&mut self) {
        for finished in self.finished.drain(..) {
            if !self.event_requests.is_empty() {
                self.event_requests.retain(|slot| *slot != finished.slot);
            }
            self.replies.push_back(Reply::Completion { finished, sent: 0 });
        }
    }

    /// Begins no further command: those that have begun get their data, run and are answered; others that
    /// arrive are thrown away, as if they had been lost with the connection, which is to be
    /// [`Connection::stop`]ped once it is idle.
    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Takes no further PDU, sends what is ready, then ends.
    pub fn stop(&mut self) {
        if self.is_open() {
            self.encode();
            self.close(Ending::Stopped);
        }
    }

    /// The queue, for what is to be known of its association.
    pub fn queue(&self) -> &FabricsQueue {
        &self.queue
    }

    fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Greeting | Phase::Running)
    }

    /// Takes nothing more. What is encoded is sent; replies that are not are dropped.
    fn close(&mut self, ending: Ending) {
        self.encode();
        self.replies.clear();
        self.enter(Phase::Closing(ending));
        self.finish_closing();
    }

    /// After the last byte there is nothing to wait for, except for a host that was sent a Terminate Request:
    /// closing at once, with input unread, would make the system discard what the host has not read.
    fn finish_closing(&mut self) {
        if let Phase::Closing(ending) = self.phase
            && self.output.is_empty()
            && !matches!(ending, Ending::Fatal(_))
        {
            self.enter(Phase::Ended(ending));
        }
    }

    fn end_of_stream(&mut self) {
        let ending = match self.phase {
            Phase::Closing(ending) => ending,
            _ => Ending::Closed,
        };
        self.enter(Phase::Ended(ending));
    }

    fn socket_failed(&mut self, kind: io::ErrorKind) {
        let ending = match self.phase {
            Phase::Closing(ending) => ending,
            _ => Ending::Socket(kind),
        };
        self.enter(Phase::Ended(ending));
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.watch.restart();
        if matches!(phase, Phase::Ended(_)) {
            self.output = Output::default();
            self.replies.clear();
            self.transfers = Transfers::default();
        }
    }
}
