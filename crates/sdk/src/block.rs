//! A namespace of logical blocks: simple calls that wait, of any length.

use std::time::Duration;

use unvme_driver::{
    Completion, Controller, DSM_RANGES_MAX, DmaBuf, Error as DriverError, Namespace, Payload, Queue,
    QueueOptions, WriteOptions,
};
use unvme_spec::fdp::PlacementId;
use unvme_spec::nvm::{AccessFlags, BlockRange};
use unvme_spec::{Lba, Nsid, Sqe, Status};

use crate::queue::BlockQueue;
use crate::worker::{Medium, Worker, WorkerOptions};
use crate::{Error, Result};

/// Commands of one call that are outstanding at a time.
const DEPTH: u16 = 8;
/// Most bytes of one command: enough to make its cost vanish, few enough to keep the processor's caches.
const CHUNK_BYTES: u32 = 256 << 10;
/// How long to wait before looking at the queue's health again.
const WAIT: Duration = Duration::from_millis(100);

/// A namespace of logical blocks.
///
/// The calls here wait until they are done and take any length; they are for those who do not count
/// microseconds. [`Block::queue`] is for those who do, [`Block::worker`] for programs of many threads.
///
/// ```
/// use unvme::{Nsid, OpenOptions, open};
///
/// # fn main() -> Result<(), unvme::Error> {
/// let device = open("mem:block:64M", &OpenOptions::default())?;
/// let mut block = device.block(Nsid(1))?;
/// // A megabyte from block 100 on, in as many commands as it takes.
/// block.write_at(100, &vec![0x5a; 1 << 20])?;
/// block.flush()?;
/// let mut data = vec![0; 1 << 20];
/// block.read_at(100, &mut data)?;
/// assert!(data.iter().all(|byte| *byte == 0x5a));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Block {
    /// Device and namespace, for errors.
    name: String,
    controller: Controller,
    namespace: Namespace,
    /// Made by the first call that needs it.
    queue: Option<Queue>,
    /// The placement identifiers the namespace has, ascending: read by the first call that names one. They
    /// are as the namespace was created.
    placements: Option<Vec<PlacementId>>,
}

/// Another way to the same namespace, with a queue of its own when it needs one.
impl Clone for Block {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            controller: self.controller.clone(),
            namespace: self.namespace,
            queue: None,
            placements: self.placements.clone(),
        }
    }
}

/// What a call does with each of its pieces.
enum Task<'a> {
    Read(&'a mut [u8]),
    Write(&'a [u8], WriteOptions),
    Compare(&'a [u8]),
    Verify,
    WriteZeroes { deallocate: bool },
    WriteUncorrectable,
}

impl Task<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::Read(_) => "read",
            Self::Write(..) => "write",
            Self::Compare(_) => "compare",
            Self::Verify => "verify",
            Self::WriteZeroes { .. } => "write zeroes to",
            Self::WriteUncorrectable => "write uncorrectable",
        }
    }

    /// Bytes of the caller's buffer, if there is one.
    fn bytes(&self) -> Option<usize> {
        match self {
            Self::Read(data) => Some(data.len()),
            Self::Write(data, _) | Self::Compare(data) => Some(data.len()),
            Self::Verify | Self::WriteZeroes { .. } | Self::WriteUncorrectable => None,
        }
    }

    /// The command for a piece.
    fn encode(&self, namespace: &Namespace, range: BlockRange) -> std::result::Result<Sqe, DriverError> {
        let flags = AccessFlags::default();
        match self {
            Self::Read(_) => namespace.read(range, flags),
            Self::Write(_, options) => namespace.write(range, *options),
            Self::Compare(_) => namespace.compare(range, flags),
            Self::Verify => namespace.verify(range, flags),
            Self::WriteZeroes { deallocate } => namespace.write_zeroes(range, flags, *deallocate),
            Self::WriteUncorrectable => namespace.write_uncorrectable(range),
        }
    }

    /// Fills the buffer of the piece at byte `offset` of the caller's.
    fn fill(&self, buf: &mut DmaBuf, offset: usize, bytes: usize) {
        match self {
            Self::Write(data, _) | Self::Compare(data) => buf.write(0, &data[offset..offset + bytes]),
            Self::Read(_) | Self::Verify | Self::WriteZeroes { .. } | Self::WriteUncorrectable => {}
        }
    }

    /// Takes what the piece at byte `offset` has brought.
    fn take(&mut self, buf: &DmaBuf, offset: usize, bytes: usize) {
        if let Self::Read(data) = self {
            buf.read(0, &mut data[offset..offset + bytes]);
        }
    }
}

/// A call cut into commands.
struct Pieces {
    start: u64,
    blocks: u64,
    piece_blocks: u64,
    block_bytes: usize,
}

impl Pieces {
    fn count(&self) -> u64 {
        self.blocks.div_ceil(self.piece_blocks)
    }

    fn range(&self, index: u64) -> BlockRange {
        let skip = index * self.piece_blocks;
        // At most `piece_blocks`, which is a 32-bit number.
        BlockRange::new(Lba(self.start + skip), self.piece_blocks.min(self.blocks - skip) as u32)
    }

    /// Where the piece is in the caller's buffer: offset and length in bytes.
    fn place(&self, index: u64) -> (usize, usize) {
        let offset = (index * self.piece_blocks) as usize * self.block_bytes;
        (offset, self.range(index).blocks as usize * self.block_bytes)
    }
}

impl Block {
    pub(crate) fn open(device: &str, controller: &Controller, nsid: Nsid) -> Result<Self> {
        let name = format!("{device} namespace {nsid}");
        let namespace = Namespace::open(controller, nsid).map_err(|e| Error::driver(name.as_str(), e))?;
        Ok(Self { name, controller: controller.clone(), namespace, queue: None, placements: None })
    }

    /// Namespace identifier.
    pub fn nsid(&self) -> Nsid {
        self.namespace.nsid()
    }

    /// Bytes of a logical block.
    pub fn block_bytes(&self) -> u32 {
        self.namespace.block_bytes()
    }

    /// Size in logical blocks.
    pub fn blocks(&self) -> u64 {
        self.namespace.blocks()
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks() * u64::from(self.block_bytes())
    }

    /// What the driver knows of the namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// A queue pair of its own: submit and poll.
    ///
    /// # Errors
    /// [`Error::Argument`] for a depth out of range, [`Error::Driver`] when no queue is left.
    pub fn queue(&self, options: &QueueOptions) -> Result<BlockQueue> {
        BlockQueue::create(&self.name, &self.controller, self.namespace, options)
    }

    /// Queue pairs for all threads of the program.
    ///
    /// # Errors
    /// As [`Worker::open`].
    pub fn worker(&self, options: &WorkerOptions) -> Result<Worker> {
        Worker::create(&self.name, &self.controller, Medium::Blocks(self.namespace), options)
    }

    /// Reads from `lba` on until `out` is full.
    ///
    /// # Errors
    /// [`Error::Argument`] for a length that is no multiple of the block, or blocks beyond the end;
    /// [`Error::Device`] with the first blocks that failed; [`Error::Driver`].
    pub fn read_at(&mut self, lba: u64, out: &mut [u8]) -> Result<()> {
        self.run_bytes(lba, Task::Read(out))
    }

    /// Writes `data` from `lba` on. It is durable after [`Block::flush`].
    ///
    /// # Errors
    /// As [`Block::read_at`]. Other pieces than the one named may have been written or not.
    pub fn write_at(&mut self, lba: u64, data: &[u8]) -> Result<()> {
        self.write_with(lba, data, WriteOptions::default())
    }

    /// Writes `data` from `lba` on with Force Unit Access: it is durable when this returns.
    ///
    /// # Errors
    /// As [`Block::write_at`].
    pub fn write_through_at(&mut self, lba: u64, data: &[u8]) -> Result<()> {
        self.write_with(lba, data, AccessFlags::FUA)
    }

    /// Writes `data` from `lba` on, with access options, and to where a placement identifier says.
    ///
    /// # Errors
    /// As [`Block::write_at`]; [`Error::Argument`] for a placement identifier that the namespace has not,
    /// with those it has; [`Error::Device`] with [`Status::FDP_DISABLED`] when it has none.
    pub fn write_with(&mut self, lba: u64, data: &[u8], options: impl Into<WriteOptions>) -> Result<()> {
        let options = options.into();
        if let Some(placement) = options.placement {
            self.check_placements(&[placement])?;
        }
        self.run_bytes(lba, Task::Write(data, options))
    }

    /// Compares the blocks from `lba` on with `data`, in the device.
    ///
    /// # Errors
    /// As [`Block::read_at`]; a difference is [`Error::Device`] with [`Status::COMPARE_FAILURE`].
    pub fn compare(&mut self, lba: u64, data: &[u8]) -> Result<()> {
        self.run_bytes(lba, Task::Compare(data))
    }

    /// Checks that `blocks` blocks from `lba` on can be read, without moving them.
    ///
    /// # Errors
    /// As [`Block::read_at`].
    pub fn verify(&mut self, lba: u64, blocks: u64) -> Result<()> {
        let piece_blocks = self.namespace.verify_blocks_max();
        self.run(lba, blocks, piece_blocks, Task::Verify)
    }

    /// Sets `blocks` blocks from `lba` on to zero; with `deallocate` the device should give their space back,
    /// too.
    ///
    /// # Errors
    /// As [`Block::write_at`].
    pub fn write_zeroes(&mut self, lba: u64, blocks: u64, deallocate: bool) -> Result<()> {
        let piece_blocks = self.namespace.write_zeroes_blocks_max();
        self.run(lba, blocks, piece_blocks, Task::WriteZeroes { deallocate })
    }

    /// Has `blocks` blocks from `lba` on be unreadable until they are written again.
    ///
    /// # Errors
    /// As [`Block::write_at`].
    pub fn write_uncorrectable(&mut self, lba: u64, blocks: u64) -> Result<()> {
        let piece_blocks = self.namespace.write_uncorrectable_blocks_max();
        self.run(lba, blocks, piece_blocks, Task::WriteUncorrectable)
    }

    /// Makes everything that was written before durable.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Driver`].
    pub fn flush(&mut self) -> Result<()> {
        let sqe = self.namespace.flush();
        self.command("flush", sqe, None)
    }

    /// Tells the device that the blocks of `ranges` are not needed any more: first block and number of blocks
    /// of each.
    ///
    /// # Errors
    /// [`Error::Argument`] for a range that is empty or beyond the end; [`Error::Device`], [`Error::Driver`].
    pub fn deallocate(&mut self, ranges: &[(u64, u64)]) -> Result<()> {
        let mut list = Vec::with_capacity(ranges.len());
        for &(lba, blocks) in ranges {
            self.check("deallocate", lba, blocks)?;
            let pieces = Pieces { start: lba, blocks, piece_blocks: u32::MAX.into(), block_bytes: 0 };
            list.extend((0..pieces.count()).map(|index| pieces.range(index)));
        }
        for some in list.chunks(DSM_RANGES_MAX) {
            let failed = |e| Error::driver(self.name.as_str(), e);
            let mut buf = self.controller.alloc(some.len() * 16).map_err(failed)?;
            let (sqe, bytes) = self.namespace.deallocate(some, &mut buf).map_err(failed)?;
            self.command("deallocate", sqe, Some(Payload { buf, bytes }))?;
        }
        Ok(())
    }

    /// Sends one command that is made already, and waits for it.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Driver`].
    pub fn command(&mut self, what: &str, sqe: Sqe, payload: Option<Payload>) -> Result<()> {
        self.exchange(what, sqe, payload).map(drop)
    }

    /// [`Block::command`], for those who look at what has come back.
    pub(crate) fn exchange(
        &mut self,
        what: &str,
        sqe: Sqe,
        payload: Option<Payload>,
    ) -> Result<Option<DmaBuf>> {
        let mut queue = self.take_queue()?;
        let name = self.name.clone();
        let done =
            queue.submit(sqe, payload, 0).map_err(|e| Error::driver(name.as_str(), e.error)).and_then(|()| {
                let mut done = None;
                collect(&name, &mut queue, |completion| done = Some(completion))?;
                Ok(done)
            });
        self.keep_queue(queue);
        match done? {
            Some(Completion { status, .. }) if !status.is_success() => {
                Err(Error::refused(format!("{name}: {what}"), status, &self.controller))
            }
            done => Ok(done.and_then(|completion| completion.buf)),
        }
    }

    /// Device and namespace, for errors.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn controller(&self) -> &Controller {
        &self.controller
    }

    pub(crate) fn known_placements(&mut self) -> &mut Option<Vec<PlacementId>> {
        &mut self.placements
    }

    fn take_queue(&mut self) -> Result<Queue> {
        match self.queue.take() {
            Some(queue) => Ok(queue),
            None => {
                let depth = DEPTH.min(self.controller.queue_depth_max());
                let options = QueueOptions { depth, ..QueueOptions::default() };
                self.controller.create_queue(&options).map_err(|e| Error::driver(self.name.as_str(), e))
            }
        }
    }

    /// Keeps the queue for the next call, unless an error has left commands of this one on it.
    fn keep_queue(&mut self, queue: Queue) {
        if queue.outstanding() == 0 {
            self.queue = Some(queue);
        }
    }

    fn check(&self, what: &str, lba: u64, blocks: u64) -> Result<()> {
        if blocks == 0 || lba.checked_add(blocks).is_none_or(|end| end > self.blocks()) {
            return Err(Error::Argument(format!(
                "{}: {what} {blocks} blocks from block {lba}: the namespace has {} blocks",
                self.name,
                self.blocks()
            )));
        }
        Ok(())
    }

    /// A task that moves the caller's bytes.
    fn run_bytes(&mut self, lba: u64, task: Task<'_>) -> Result<()> {
        let bytes = task.bytes().unwrap_or(0) as u64;
        let block_bytes = u64::from(self.block_bytes());
        if !bytes.is_multiple_of(block_bytes) {
            return Err(Error::Argument(format!(
                "{}: {} {bytes} bytes: whole blocks of {block_bytes} bytes are expected",
                self.name,
                task.name()
            )));
        }
        let piece_blocks = self.namespace.transfer_blocks_max().min(CHUNK_BYTES / self.block_bytes());
        self.run(lba, bytes / block_bytes, piece_blocks, task)
    }

    fn run(&mut self, lba: u64, blocks: u64, piece_blocks: u32, mut task: Task<'_>) -> Result<()> {
        if blocks == 0 && task.bytes().is_some() {
            return Ok(());
        }
        self.check(task.name(), lba, blocks)?;
        let pieces = Pieces {
            start: lba,
            blocks,
            piece_blocks: piece_blocks.max(1).into(),
            block_bytes: self.block_bytes() as usize,
        };
        let mut queue = self.take_queue()?;
        let done = self.run_pieces(&mut queue, &pieces, &mut task);
        self.keep_queue(queue);
        match done? {
            None => Ok(()),
            Some((index, status)) => {
                let BlockRange { start, blocks } = pieces.range(index);
                let what = format!("{}: {} {blocks} blocks from block {start}", self.name, task.name());
                Err(Error::refused(what, status, &self.controller))
            }
        }
    }

    /// Sends all pieces, several at a time. Returns the first, in their order, that the device refused.
    fn run_pieces(
        &self,
        queue: &mut Queue,
        pieces: &Pieces,
        task: &mut Task<'_>,
    ) -> Result<Option<(u64, Status)>> {
        let failed = |e| Error::driver(self.name.as_str(), e);
        let moves_data = task.bytes().is_some();
        let mut buffers: Vec<DmaBuf> = Vec::new();
        let mut refused: Option<(u64, Status)> = None;
        let mut next = 0;
        while next < pieces.count() && refused.is_none() {
            while next < pieces.count() && queue.outstanding() < queue.capacity() {
                // An error in here drops the queue, and with it what is outstanding.
                let sqe = task.encode(&self.namespace, pieces.range(next)).map_err(failed)?;
                let mut payload = None;
                if moves_data {
                    let (offset, bytes) = pieces.place(next);
                    let mut buf = match buffers.pop() {
                        Some(buf) => buf,
                        // The first piece is the longest.
                        None => self.controller.alloc(pieces.place(0).1).map_err(failed)?,
                    };
                    task.fill(&mut buf, offset, bytes);
                    payload = Some(Payload { buf, bytes });
                }
                queue.submit(sqe, payload, next).map_err(|e| failed(e.error))?;
                next += 1;
            }
            collect(&self.name, queue, |completion| {
                let index = completion.token;
                if !completion.status.is_success() {
                    if refused.is_none_or(|(first, _)| index < first) {
                        refused = Some((index, completion.status));
                    }
                } else if let Some(buf) = &completion.buf {
                    let (offset, bytes) = pieces.place(index);
                    task.take(buf, offset, bytes);
                }
                buffers.extend(completion.buf);
            })?;
        }
        Ok(refused)
    }
}

/// Waits for everything outstanding and hands it to `done`.
pub(crate) fn collect(name: &str, queue: &mut Queue, mut done: impl FnMut(Completion)) -> Result<()> {
    let mut broken = None;
    let mut aborted = false;
    while queue.outstanding() > 0 {
        let waited = queue.wait(WAIT);
        let mut came = false;
        for completion in queue.poll(DEPTH.into()) {
            came = true;
            aborted |= completion.status == Status::ABORTED_BY_HOST;
            done(completion);
        }
        if let Err(e) = waited {
            broken = Some(e);
            // The queue returns what was outstanding; one that does not even do that is lost.
            if !came {
                break;
            }
        }
    }
    if aborted && broken.is_none() {
        // The host, that is our driver, had a reason, and a status cannot say it.
        broken = queue.wait(Duration::ZERO).err();
    }
    broken.map_or(Ok(()), |e| Err(Error::driver(name, e)))
}
