//! What sockets alone can do: a client and a server that exchange messages of fixed sizes over TCP and know
//! nothing else.
//!
//! Both are as clever as ours have to be: they poll without blocking, one call receives as much as there is
//! and one call sends as much as is owed, in place. A message is a head and a body. The server's bodies are
//! in random places of as much memory as a device has, sent from there or received there without a copy; the
//! client's are in as many buffers as there are messages out.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::cores;
use crate::load::Random;

/// Looks that find nothing before the server waits for its client: about a millisecond.
const IDLE_LOOKS: u32 = 1000;
/// Exchanges between two looks at the clock.
const EXCHANGES_PER_LOOK: u64 = 256;
/// Most pieces of one call, as ours.
const PIECES_MAX: usize = 64;
const PAGE_BYTES: usize = 4096;

/// Bytes of a message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Message {
    pub(crate) head: usize,
    /// 0 for a message that is a head alone.
    pub(crate) body: usize,
}

/// What is exchanged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) request: Message,
    pub(crate) answer: Message,
    /// Requests that are out at a time.
    pub(crate) in_flight: usize,
}

/// What the client tells the server: the shape, and bytes of its memory.
const WORDS: usize = 6;

fn to_bytes(words: [usize; WORDS]) -> [u8; WORDS * 8] {
    let mut bytes = [0; WORDS * 8];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&(word as u64).to_le_bytes());
    }
    bytes
}

fn from_bytes(bytes: [u8; WORDS * 8]) -> [usize; WORDS] {
    std::array::from_fn(|at| u64::from_le_bytes(std::array::from_fn(|i| bytes[at * 8 + i])) as usize)
}

/// Memory that was written, so that it is there, in which [`places`] finds `bytes`.
fn memory(bytes: usize) -> Vec<u8> {
    vec![0x5a; bytes + PAGE_BYTES]
}

/// The places for bodies in some memory, in whatever order; as many without memory for messages without.
fn places(memory: &mut [u8], body: usize, in_flight: usize) -> Vec<&mut [u8]> {
    if body == 0 {
        return (0..in_flight).map(|_| Default::default()).collect();
    }
    let aligned = memory.as_ptr().align_offset(PAGE_BYTES);
    let end = memory.len() - PAGE_BYTES + aligned;
    let mut places: Vec<&mut [u8]> = memory[aligned..end].chunks_exact_mut(body).collect();
    let mut random = Random::new(3);
    for last in (1..places.len()).rev() {
        places.swap(last, random.below(last as u64 + 1) as usize);
    }
    places
}

/// One direction of a stream.
#[derive(Debug)]
struct Pipe<'m> {
    /// Messages go round in both of these.
    heads: Vec<Vec<u8>>,
    bodies: Vec<&'m mut [u8]>,
    message: Message,
    /// Bytes that went through.
    passed: u64,
}

impl<'m> Pipe<'m> {
    fn new(message: Message, in_flight: usize, bodies: Vec<&'m mut [u8]>) -> Self {
        Self { heads: vec![vec![0x5a; message.head]; in_flight], bodies, message, passed: 0 }
    }

    fn bytes(&self) -> u64 {
        (self.message.head + self.message.body) as u64
    }

    /// Whole messages that went through.
    fn messages(&self) -> u64 {
        self.passed / self.bytes()
    }

    /// Places of the next message, and bytes of it that went through.
    fn place(&self) -> (usize, usize, usize) {
        let next = self.messages() as usize;
        (next % self.heads.len(), next % self.bodies.len(), (self.passed % self.bytes()) as usize)
    }

    /// Sends up to message `end`, as far as the socket takes it.
    fn send(&mut self, stream: &mut TcpStream, end: u64) -> io::Result<bool> {
        let before = self.passed;
        while self.messages() < end {
            let owed = (end - self.messages()) as usize;
            let (head, body, within) = self.place();
            let messages = self.heads[head..].iter().zip(&self.bodies[body..]).take(owed);
            let mut pieces: Vec<IoSlice<'_>> = messages
                .flat_map(|(head, body)| [&head[..], &body[..]])
                .filter(|piece| !piece.is_empty())
                .take(PIECES_MAX)
                .map(IoSlice::new)
                .collect();
            let mut pieces = &mut pieces[..];
            IoSlice::advance_slices(&mut pieces, within);
            match stream.write_vectored(pieces) {
                Ok(sent) => self.passed += sent as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(self.passed > before)
    }

    /// Receives what there is; `None` when the other side has closed.
    fn receive(&mut self, stream: &mut TcpStream) -> io::Result<Option<bool>> {
        let (head, body, within) = self.place();
        let messages = self.heads[head..].iter_mut().zip(&mut self.bodies[body..]);
        let mut rooms: Vec<IoSliceMut<'_>> = messages
            .flat_map(|(head, body)| [&mut head[..], &mut body[..]])
            .filter(|room| !room.is_empty())
            .take(PIECES_MAX)
            .map(IoSliceMut::new)
            .collect();
        let mut rooms = &mut rooms[..];
        IoSliceMut::advance_slices(&mut rooms, within);
        match stream.read_vectored(rooms) {
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

/// Memory of a client's bodies.
pub(crate) struct Buffers {
    requests: Vec<u8>,
    answers: Vec<u8>,
}

impl Buffers {
    pub(crate) fn new(shape: Shape) -> Self {
        let Shape { request, answer, in_flight } = shape;
        Self { requests: memory(request.body * in_flight), answers: memory(answer.body * in_flight) }
    }
}

/// The side that asks.
#[derive(Debug)]
pub(crate) struct Client<'m> {
    stream: TcpStream,
    requests: Pipe<'m>,
    answers: Pipe<'m>,
    in_flight: u64,
}

impl<'m> Client<'m> {
    /// A client of a server whose bodies are in so many bytes of memory.
    pub(crate) fn new(port: u16, shape: Shape, memory_bytes: u64, buffers: &'m mut Buffers) -> Result<Self> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).context("connect to the bare server")?;
        stream.set_nodelay(true)?;
        let Shape { request, answer, in_flight } = shape;
        let words = [request.head, request.body, answer.head, answer.body, in_flight, memory_bytes as usize];
        stream.write_all(&to_bytes(words))?;
        stream.set_nonblocking(true)?;
        let sources = places(&mut buffers.requests, request.body, in_flight);
        let targets = places(&mut buffers.answers, answer.body, in_flight);
        Ok(Self {
            stream,
            requests: Pipe::new(request, in_flight, sources),
            answers: Pipe::new(answer, in_flight, targets),
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
    let mut words = [0; WORDS * 8];
    stream.read_exact(&mut words)?;
    let [request_head, request_body, answer_head, answer_body, in_flight, bytes] = from_bytes(words);
    let request = Message { head: request_head, body: request_body };
    let answer = Message { head: answer_head, body: answer_body };
    let bytes_of = |message: Message| if message.body == 0 { 0 } else { bytes };
    let (mut targets, mut sources) = (memory(bytes_of(request)), memory(bytes_of(answer)));
    let mut requests = Pipe::new(request, in_flight, places(&mut targets, request_body, in_flight));
    let mut answers = Pipe::new(answer, in_flight, places(&mut sources, answer_body, in_flight));
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
