//! What sockets alone can do: a client and a server that exchange messages of fixed sizes over TCP and know
//! nothing else.
//!
//! Both are as clever as ours have to be: they poll without blocking, one call receives as much as there is
//! and one call sends as much as is owed, in place.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::cores;

/// Looks that find nothing before the server waits for its client: about a millisecond.
const IDLE_LOOKS: u32 = 1000;
/// Exchanges between two looks at the clock.
const EXCHANGES_PER_LOOK: u64 = 256;

/// What is exchanged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Bytes of a request.
    pub(crate) request: usize,
    /// Bytes of its answer.
    pub(crate) answer: usize,
    /// Requests that are out at a time.
    pub(crate) in_flight: usize,
}

impl Shape {
    const WORDS: usize = 3;

    fn to_bytes(self) -> [u8; Self::WORDS * 8] {
        let mut bytes = [0; Self::WORDS * 8];
        for (place, word) in bytes.chunks_exact_mut(8).zip([self.request, self.answer, self.in_flight]) {
            place.copy_from_slice(&(word as u64).to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: [u8; Self::WORDS * 8]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at * 8 + i])) as usize;
        Self { request: word(0), answer: word(1), in_flight: word(2) }
    }
}

/// One direction of a stream: messages go round in memory that has room for all that can be in flight.
#[derive(Debug)]
struct Pipe {
    ring: Vec<u8>,
    message: usize,
    /// Bytes that went through.
    passed: u64,
}

impl Pipe {
    fn new(message: usize, in_flight: usize) -> Self {
        Self { ring: vec![0x5a; message * in_flight], message, passed: 0 }
    }

    /// Whole messages that went through.
    fn messages(&self) -> u64 {
        self.passed / self.message as u64
    }

    /// Place of the next byte in the ring.
    fn place(&self) -> usize {
        (self.passed % self.ring.len() as u64) as usize
    }

    /// Sends up to message `end`, as far as the socket takes it.
    fn send(&mut self, stream: &mut TcpStream, end: u64) -> io::Result<bool> {
        let before = self.passed;
        while self.passed < end * self.message as u64 {
            let owed = end * self.message as u64 - self.passed;
            let place = self.place();
            let bytes = (self.ring.len() - place).min(usize::try_from(owed).unwrap_or(usize::MAX));
            match stream.write(&self.ring[place..place + bytes]) {
                Ok(sent) => self.passed += sent as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(self.passed > before)
    }

    /// Receives what there is; `None` when the other side has closed.
    fn receive(&mut self, stream: &mut TcpStream) -> io::Result<Option<bool>> {
        let place = self.place();
        match stream.read(&mut self.ring[place..]) {
            Ok(0) => Ok(None),
            Ok(received) => {
                self.passed += received as u64;
                Ok(Some(true))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Some(false)),
            Err(error) => Err(error),
        }
    }
}

/// The side that asks.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    requests: Pipe,
    answers: Pipe,
    in_flight: u64,
}

impl Client {
    pub(crate) fn new(port: u16, shape: Shape) -> Result<Self> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).context("connect to the bare server")?;
        stream.set_nodelay(true)?;
        stream.write_all(&shape.to_bytes())?;
        stream.set_nonblocking(true)?;
        let Shape { request, answer, in_flight } = shape;
        Ok(Self {
            stream,
            requests: Pipe::new(request, in_flight),
            answers: Pipe::new(answer, in_flight),
            in_flight: in_flight as u64,
        })
    }

    /// Runs for `side` and returns exchanges per second.
    pub(crate) fn rate(&mut self, side: Duration) -> Result<f64> {
        crate::pairs::rate(side, || self.run(EXCHANGES_PER_LOOK))
    }

    fn run(&mut self, exchanges: u64) -> Result<u64> {
        let before = self.answers.messages();
        loop {
            let answered = self.answers.messages();
            if answered - before >= exchanges {
                return Ok(answered - before);
            }
            self.requests.send(&mut self.stream, answered + self.in_flight)?;
            ensure!(self.answers.receive(&mut self.stream)?.is_some(), "the bare server has closed");
        }
    }
}

/// Serves each client in a thread of its own on `core`, from now on. Returns the port.
pub(crate) fn serve(core: usize) -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("listen")?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(io::Result::ok) {
            // A client that goes ends its thread, and nothing else.
            thread::spawn(move || cores::pin(core).and_then(|()| answer(stream)));
        }
    });
    Ok(port)
}

fn answer(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut shape = [0; Shape::WORDS * 8];
    stream.read_exact(&mut shape)?;
    let Shape { request, answer, in_flight } = Shape::from_bytes(shape);
    let (mut requests, mut answers) = (Pipe::new(request, in_flight), Pipe::new(answer, in_flight));
    let (mut idle, mut blocking) = (0, true);
    loop {
        // The other server of a pair gets the core while this one has nothing to do.
        if blocking != (idle > IDLE_LOOKS) {
            blocking = !blocking;
            stream.set_nonblocking(!blocking)?;
        }
        let Some(received) = requests.receive(&mut stream)? else { return Ok(()) };
        if blocking {
            blocking = false;
            stream.set_nonblocking(true)?;
        }
        let sent = answers.send(&mut stream, requests.messages())?;
        idle = if received || sent { 0 } else { idle + 1 };
    }
}
