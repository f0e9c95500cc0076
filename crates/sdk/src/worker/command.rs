//! What goes into a shared queue and comes out of it.

use std::fmt;

use unvme_driver::{
    Completion, DmaBuf, Error as DriverError, KvCommand, KvNamespace, KvVerdict, Namespace, Payload, Queue,
    Rejected,
};
use unvme_spec::{Nsid, Sqe, Status, samsung_kv};

use crate::op::without_buffer;
use crate::{Error, Op};

/// What the queues of a worker lead to: a namespace of blocks or of pairs.
#[derive(Clone, Copy, Debug)]
pub enum Medium {
    /// Logical blocks.
    Blocks(Namespace),
    /// Key-value pairs.
    Pairs(KvNamespace),
}

impl Medium {
    /// Namespace identifier.
    pub fn nsid(&self) -> Nsid {
        match self {
            Self::Blocks(namespace) => namespace.nsid(),
            Self::Pairs(namespace) => namespace.nsid(),
        }
    }

    /// Checks an operation. Of one that gives blocks back, the list of ranges is written to the buffer that
    /// is lent with it.
    ///
    /// Always inlined, as [`crate::BlockQueue::submit`] is: a constant kind of operation then leaves one
    /// path.
    ///
    /// # Errors
    /// [`DriverError::InvalidArgument`] for what this namespace cannot hold, [`DriverError::Unsupported`] for
    /// what it cannot do.
    #[inline(always)]
    pub fn command<'a>(&self, op: Op<'a>, data: &mut Data<'_>) -> Result<Command<'a>, DriverError> {
        let reading = Reading::of(&op);
        let kind = match (self, op) {
            (_, Op::Entry(sqe, bytes)) => Kind::Entry(*sqe, bytes),
            (Self::Blocks(namespace), Op::Deallocate(_)) => {
                let is_given = matches!(data, Data::Given(_));
                let mut buf = data.take_buf();
                let made = op.on_blocks(namespace, &mut buf);
                data.put_back(buf, is_given);
                let (sqe, bytes) = made?;
                Kind::Entry(sqe, bytes)
            }
            (Self::Blocks(namespace), op) => {
                let (sqe, bytes) = op.on_blocks(namespace, &mut None)?;
                Kind::Entry(sqe, bytes)
            }
            (Self::Pairs(namespace), op) => Kind::Kv(op.on_pairs(namespace)?),
        };
        let reading = match (reading, &kind) {
            // The number of blocks is known; that of the bytes, now.
            (Reading::Bytes(_), Kind::Entry(_, bytes)) => Reading::Bytes(*bytes as u32),
            (reading, _) => reading,
        };
        Ok(Command { kind, reading })
    }
}

/// The memory that an operation moves data from or to. It has at least as many bytes as the operation says.
///
/// ```
/// use unvme::{Nsid, Op, OpenOptions, open};
/// use unvme::worker::{Data, WorkerOptions};
///
/// # fn main() -> Result<(), unvme::Error> {
/// let device = open("mem:block:64M", &OpenOptions::default())?;
/// let worker = device.block(Nsid(1))?.worker(&WorkerOptions::default())?;
/// // Copied: any memory will do.
/// worker.call(Op::write(0, 1), Data::Out(&[7; 512]))?;
/// let mut copy = [0; 512];
/// worker.call(Op::read(0, 1), Data::In(&mut copy))?;
/// // Lent: the device reads and writes it directly, and it comes back with the completion.
/// let done = worker.call(Op::read(0, 1), Data::Lent(worker.alloc(512)?))?;
/// assert_eq!(done.buf.expect("it went with the command").to_vec()[..512], copy);
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub enum Data<'a> {
    /// Nothing is passed. What the operation brings comes with the completion, in a buffer that is allocated
    /// for it.
    #[default]
    None,
    /// Copied to the device's memory before the command goes.
    Out(&'a [u8]),
    /// Copied from the device's memory when the command has succeeded, as many bytes as it has brought. For
    /// those who wait: what is submitted with a token has nobody to copy for.
    In(&'a mut [u8]),
    /// A buffer of the controller's ([`crate::Controller::alloc`]) that travels with the command. It comes
    /// back with the completion, or with the refusal; only a device that was lost without a sign that it has
    /// stopped keeps it.
    Lent(DmaBuf),
    /// As [`Data::Lent`], of a buffer that nobody wants back: it returns to its pool when the command is
    /// over.
    Given(DmaBuf),
}

impl Data<'_> {
    /// Bytes that are there.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Out(data) => data.len(),
            Self::In(data) => data.len(),
            Self::Lent(buf) | Self::Given(buf) => buf.len(),
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The buffer that is lent, if one is: as after a refusal.
    #[inline]
    pub fn into_lent(self) -> Option<DmaBuf> {
        match self {
            Self::Lent(buf) => Some(buf),
            _ => None,
        }
    }

    #[inline(always)]
    fn take_buf(&mut self) -> Option<DmaBuf> {
        match std::mem::take(self) {
            Self::Lent(buf) | Self::Given(buf) => Some(buf),
            other => {
                *self = other;
                None
            }
        }
    }

    #[inline(always)]
    fn put_back(&mut self, buf: Option<DmaBuf>, is_given: bool) {
        if let Some(buf) = buf {
            *self = if is_given { Self::Given(buf) } else { Self::Lent(buf) };
        }
    }

    /// Before the command.
    #[inline]
    pub(super) fn fill(&self, buf: &mut DmaBuf, bytes: usize) {
        if let Self::Out(data) = self {
            buf.write(0, &data[..bytes]);
        }
    }

    /// After the command.
    #[inline]
    pub(super) fn take(&mut self, done: &Done) {
        if let (Self::In(out), Some(buf)) = (self, &done.buf)
            && done.bytes > 0
        {
            let bytes = done.bytes.min(out.len());
            buf.read(0, &mut out[..bytes]);
        }
    }
}

impl fmt::Debug for Data<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::None => "None",
            Self::Out(_) => "Out",
            Self::In(_) => "In",
            Self::Lent(_) => "Lent",
            Self::Given(_) => "Given",
        };
        f.debug_tuple(name).field(&self.len()).finish()
    }
}

/// An operation that a namespace has checked ([`Medium::command`]).
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    kind: Kind<'a>,
    pub(super) reading: Reading,
}

#[derive(Clone, Copy, Debug)]
enum Kind<'a> {
    Kv(KvCommand<'a>),
    /// An entry, and the bytes it moves.
    Entry(Sqe, usize),
}

impl Command<'_> {
    /// Its opcode.
    pub fn opcode(&self) -> u8 {
        match &self.kind {
            Kind::Kv(command) => command.sqe().opcode,
            Kind::Entry(sqe, _) => sqe.opcode,
        }
    }

    /// Bytes that it moves.
    #[inline]
    pub fn bytes(&self) -> usize {
        match &self.kind {
            Kind::Kv(command) => command.bytes(),
            Kind::Entry(_, bytes) => *bytes,
        }
    }

    /// Whether `data` has what the command moves.
    #[inline]
    pub(super) fn check(&self, data: &Data<'_>) -> Result<(), DriverError> {
        let bytes = self.bytes();
        let is_enough = match data {
            // A buffer is allocated for what the command brings.
            Data::None => bytes == 0 || self.reading.brings(),
            Data::In(_) if !self.reading.brings() => bytes == 0,
            data => data.len() >= bytes,
        };
        if is_enough { Ok(()) } else { Err(self.too_little(data)) }
    }

    #[cold]
    fn too_little(&self, data: &Data<'_>) -> DriverError {
        match data {
            Data::None => without_buffer(self.bytes()),
            data => DriverError::InvalidArgument(format!(
                "the command moves {} bytes; it came with {data:?}",
                self.bytes()
            )),
        }
    }

    /// Makes ready what goes with the command: the buffer that is lent, or one of `alloc` with what is
    /// copied.
    ///
    /// # Errors
    /// [`Reason::Driver`] for data that is missing or too short, and what `alloc` says.
    #[inline]
    pub fn load<E: From<Refused>>(
        &self,
        data: Data<'_>,
        alloc: impl FnOnce(usize) -> Result<DmaBuf, E>,
    ) -> Result<Load, E> {
        if let Err(e) = self.check(&data) {
            return Err(Refused::new(e, data).into());
        }
        let bytes = self.bytes();
        let (is_copy, is_lent) =
            (matches!(data, Data::Out(_) | Data::Given(_)), matches!(data, Data::Lent(_)));
        let buf = match data {
            Data::Lent(buf) | Data::Given(buf) => Some(buf),
            _ if bytes == 0 => None,
            data => {
                let mut buf = alloc(bytes)?;
                data.fill(&mut buf, bytes);
                Some(buf)
            }
        };
        Ok(Load { buf, is_copy, is_lent })
    }

    #[inline(always)]
    pub(super) fn submit(self, queue: &mut Queue, buf: Option<DmaBuf>, token: u64) -> Result<(), Rejected> {
        match self.kind {
            Kind::Kv(command) => queue.submit_kv(command, buf, token),
            Kind::Entry(sqe, bytes) => queue.submit(sqe, buf.map(|buf| Payload { buf, bytes }), token),
        }
    }
}

/// What goes with a command, and stays with it until it is over.
#[derive(Debug)]
pub struct Load {
    /// The buffer; `None` once it has gone.
    pub buf: Option<DmaBuf>,
    /// It is a copy of the submitter's data, or was given: nobody is told of it.
    pub(super) is_copy: bool,
    /// It was lent, and goes back to its owner.
    is_lent: bool,
}

impl Load {
    /// The buffer, when it is the submitter's: copies are of no use to anybody.
    pub fn lent(&mut self) -> Option<DmaBuf> {
        self.buf.take().filter(|_| self.is_lent)
    }
}

/// How the completion of a command is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// The status alone.
    Status,
    /// The status, of which this one is a success, too: the pair to delete is not there.
    Absence,
    /// So many bytes at the beginning of the buffer.
    Bytes(u32),
    /// A value from an offset on, and the bytes there is room for.
    Value { offset: u32, bytes: u32 },
    /// Keys of an iterator.
    Keys,
}

impl Reading {
    #[inline(always)]
    fn of(op: &Op<'_>) -> Self {
        match *op {
            Op::Read(range, _) => Self::Bytes(range.blocks),
            Op::List { bytes, .. } | Op::Entry(_, bytes) => Self::Bytes(bytes as u32),
            Op::Retrieve { offset, bytes, .. } => Self::Value { offset, bytes: bytes as u32 },
            Op::Delete { must_exist: false, .. } => Self::Absence,
            Op::IterateRead { .. } => Self::Keys,
            _ => Self::Status,
        }
    }

    /// Whether the command moves data to the host.
    #[inline]
    fn brings(self) -> bool {
        matches!(self, Self::Bytes(_) | Self::Value { .. } | Self::Keys)
    }
}

/// A command that is over.
#[derive(Debug)]
pub struct Done {
    /// What came with the submission; 0 for those that were waited for.
    pub token: u64,
    /// What the device said, whole; [`Status::ABORTED_BY_HOST`] when the device was lost or the worker closed
    /// first.
    pub status: Status,
    /// Command specific result, dwords 0 and 1 of the completion.
    pub result: u64,
    /// Bytes at the beginning of the buffer that the command has brought.
    pub bytes: usize,
    /// Of a retrieve: size of the value from the offset on, which may be more than there was room for.
    pub value_bytes: u64,
    /// The buffer that went with the command, lent or allocated for it.
    pub buf: Option<DmaBuf>,
    /// The buffer is a copy of the submitter's data.
    pub(super) is_copy: bool,
}

impl Done {
    #[inline]
    pub(super) fn of(completion: Completion, reading: Reading, token: u64) -> Self {
        let Completion { status, result, buf, .. } = completion;
        let mut done = Self { token, status, result, bytes: 0, value_bytes: 0, buf, is_copy: false };
        match reading {
            Reading::Bytes(bytes) if status.is_success() => done.bytes = bytes as usize,
            Reading::Value { offset, bytes } if status.is_success() => {
                done.value_bytes = KvNamespace::value_bytes(result).saturating_sub(offset).into();
                done.bytes = (bytes as usize).min(done.value_bytes as usize);
            }
            Reading::Absence if KvVerdict::of(status) == KvVerdict::NotFound => done.status = Status::SUCCESS,
            Reading::Keys if matches!(KvVerdict::of(status), KvVerdict::Done | KvVerdict::EndOfIteration) => {
                done.bytes = (result as u32).min(samsung_kv::ITERATE_BUFFER_BYTES) as usize;
            }
            _ => {}
        }
        done.bytes = done.bytes.min(done.buf.as_ref().map_or(0, DmaBuf::len));
        done
    }

    /// A command that succeeded without having been sent: `bytes` bytes of `buf` are the answer. For
    /// [`super::SharedQueue::post`].
    pub fn answered(token: u64, result: u64, buf: DmaBuf, bytes: usize, value_bytes: u64) -> Self {
        let status = Status::SUCCESS;
        Self { token, status, result, bytes, value_bytes, buf: Some(buf), is_copy: false }
    }

    /// Whether the buffer is a copy of what the submitter passed as [`Data::Out`]: nobody misses it.
    pub fn is_copy(&self) -> bool {
        self.is_copy
    }

    /// The end of a command that the device was not waited for.
    pub(super) fn aborted() -> Completion {
        Completion { token: 0, status: Status::ABORTED_BY_HOST, result: 0, buf: None }
    }
}

/// A command that was not taken: nothing was sent, and the handler or waker that would have been told is not.
pub struct Refused {
    /// Why.
    pub reason: Reason,
    /// The buffer that was lent with it.
    pub buf: Option<DmaBuf>,
}

/// Why a command was not taken.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// Every place of the queue is taken, or as many completions as it has places wait for somebody to poll.
    #[error("the queue is full")]
    Full,
    /// The worker is closed or being closed.
    #[error("the worker is closed")]
    Closed,
    /// The command cannot be, or the device does not work any more.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

impl Refused {
    #[inline]
    pub(super) fn new(reason: impl Into<Reason>, data: Data<'_>) -> Self {
        Self { reason: reason.into(), buf: data.into_lent() }
    }
}

impl From<Reason> for Refused {
    fn from(reason: Reason) -> Self {
        Self { reason, buf: None }
    }
}

unvme_bus::debug_parts!(Refused { reason });

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for Refused {}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        let source = match refused.reason {
            Reason::Driver(source) => source,
            other => DriverError::Exhausted(other.to_string()),
        };
        Self::driver("submit a command", source)
    }
}
