//! Submit and poll: calls that do not wait, by a queue pair of one thread, with buffers that travel.
//!
//! Where a file's blocks are known and nothing of it is in memory, a call is a command of the device and
//! nothing else: nothing is copied, locked or allocated. Everything else is done by a helper's thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use unvme::lock::read;
use unvme::{BlockQueue, Completions, DmaBuf, Op, QueueOptions};

use crate::epoch::Flights;
use crate::error::{Error, Result};
use crate::extents::Extent;
use crate::layout::{BLOCK, Kinds};
use crate::node::Node;
use crate::placement::Class;
use crate::system::{FileSystem, Grip, Mount};
use crate::vnode::Vnode;

const BLOCK_64: u64 = BLOCK as u64;

/// A file of a [`FileQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(u32);

/// A call that was not taken, with its buffer.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub error: Error,
    /// The buffer.
    pub buf: Option<DmaBuf>,
}

/// A call that is over.
#[derive(Debug)]
pub struct FileCompletion {
    /// As it was submitted.
    pub token: u64,
    /// Bytes that were read or written.
    pub result: Result<usize>,
    /// Where [`FileQueue::append`] has written to.
    pub offset: u64,
    /// The buffer.
    pub buf: Option<DmaBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Append,
    Sync,
    SyncData,
}

/// A command under way.
#[derive(Clone, Copy)]
struct Flight {
    token: u64,
    offset: u64,
    file: u32,
    bytes: u32,
    kind: Kind,
    generation: u8,
    /// That of the file when it was sent to the device.
    version: u64,
}

/// A file, and where its blocks were when somebody looked last.
struct Open {
    vnode: Vnode,
    version: u64,
    can_read: bool,
    can_write: bool,
    size: u64,
    hint: u8,
    /// First block in the file, and the extent, of those with data.
    extents: Vec<(u64, Extent)>,
}

impl Open {
    /// Looks again.
    fn look(&mut self, system: &Mount) -> Result<()> {
        let node = self.vnode.node();
        let state = read(&node.state);
        if !state.inode.is_file() {
            let errno = if state.inode.is_directory() { Errno::ISDIR } else { Errno::INVAL };
            return Err(errno.into());
        }
        let Some(extents) = &state.extents else {
            drop(state);
            system.load_extents(node.ino, &mut node.lock())?;
            return self.look(system);
        };
        self.version = node.version.load(Ordering::Acquire);
        self.size = state.size;
        self.hint = state.inode.hint;
        self.can_read = state.cache.dirty().is_empty();
        self.can_write = state.cache.is_empty() && !system.is_read_only;
        self.extents.clear();
        self.extents.extend(
            extents.iter().filter(|(_, extent)| !extent.is_unwritten).map(|(at, extent)| (at, *extent)),
        );
        Ok(())
    }

    /// Where blocks are that are consecutive on the device, and have data.
    #[inline]
    fn find(&self, block: u64, blocks: u64) -> Option<u64> {
        let covers =
            |(first, extent): &(u64, Extent)| block >= *first && block + blocks <= *first + extent.blocks;
        let start = |(first, extent): &(u64, Extent)| extent.start + (block - *first);
        // Whoever reads here and there has another extent each time: nothing is to be guessed.
        let index = self.extents.partition_point(|(first, _)| *first <= block).checked_sub(1)?;
        let found = self.extents.get(index).filter(|found| covers(found))?;
        Some(start(found))
    }
}

/// What the helper does.
struct Job {
    flight: Flight,
    node: Vnode,
    buf: Option<DmaBuf>,
}

struct Helper {
    jobs: Option<Sender<Job>>,
    done: Receiver<FileCompletion>,
    thread: Option<JoinHandle<()>>,
    /// The files of what it has been given, in that order, which is that of what it has done.
    pending: VecDeque<u32>,
}

impl Helper {
    fn start() -> Result<Self> {
        let (jobs, todo) = channel::<Job>();
        let (finished, done) = channel();
        let work = move || {
            while let Ok(job) = todo.recv() {
                if finished.send(job.run()).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("unvme-fs-queue".into()).spawn(work);
        let thread = thread.map_err(|e| Error::Device(format!("start a thread: {e}")))?;
        Ok(Self { jobs: Some(jobs), done, thread: Some(thread), pending: VecDeque::new() })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Job {
    fn run(mut self) -> FileCompletion {
        let Flight { token, offset, bytes, kind, .. } = self.flight;
        let mut at = offset;
        let mut data = vec![0; if matches!(kind, Kind::Sync | Kind::SyncData) { 0 } else { bytes as usize }];
        let result = match (kind, &mut self.buf) {
            (Kind::Read, Some(buf)) => {
                self.node.read_at(offset, &mut data).inspect(|&bytes| buf.write(0, &data[..bytes]))
            }
            (Kind::Write, Some(buf)) => {
                buf.read(0, &mut data);
                self.node.write_at(offset, &data)
            }
            (Kind::Append, Some(buf)) => {
                buf.read(0, &mut data);
                self.node.append(&data).map(|(end, bytes)| {
                    at = end;
                    bytes
                })
            }
            (Kind::Sync, _) => self.node.sync().map(|()| 0),
            _ => self.node.sync_data().map(|()| 0),
        };
        FileCompletion { token, result, offset: at, buf: self.buf }
    }
}

/// Calls of one thread that do not wait. Its files are used past the page cache where nothing of them is in
/// it, and by way of it otherwise: who waits and who does not sees the same.
///
/// ```
/// use std::time::Duration;
/// use unvme::{Nsid, OpenOptions, QueueOptions, open};
/// use unvme_fs::{Credentials, FileSystem, MakeOptions, MountOptions, NewFile, make};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = open("mem:block:64M", &OpenOptions::default())?;
/// let block = device.block(Nsid(1))?;
/// make(&block, device.name(), &MakeOptions::default(), |_, _| ())?;
/// let fs = FileSystem::mount(&block, device.name(), &MountOptions::default())?;
/// let node = fs.root()?.create(b"log", &NewFile::regular(0o644), &Credentials::root())?;
/// let mut queue = fs.queue(&QueueOptions { depth: 8, ..QueueOptions::default() })?;
/// let file = queue.add(&node)?;
/// let mut buf = queue.alloc(4096)?;
/// buf.write(0, b"first line\n");
/// queue.append(file, 11, buf, 1).map_err(|refused| refused.error)?;
/// while queue.outstanding() > 0 {
///     queue.wait(Duration::from_secs(1))?;
///     for done in queue.poll(8) {
///         assert_eq!((done.token, done.offset, done.result?), (1, 0, 11));
///     }
/// }
/// queue.sync_data(file, 2)?;
/// # while queue.outstanding() > 0 { queue.wait(Duration::from_secs(1))?; queue.poll(8).for_each(drop); }
/// # Ok(())
/// # }
/// ```
pub struct FileQueue {
    // First: it ends before the file system does.
    helper: Option<Helper>,
    queue: BlockQueue,
    flights: Flights,
    /// By the tokens of the queue below.
    table: Vec<Flight>,
    free: Vec<u32>,
    files: Vec<Option<Open>>,
    ready: VecDeque<FileCompletion>,
    /// Blocks of one command.
    blocks_max: u64,
    system: Arc<Grip>,
}

impl FileSystem {
    /// A queue for one thread.
    ///
    /// # Errors
    /// [`Error::Device`] when the device has no queue pair left, or not such a deep one.
    pub fn queue(&self, options: &QueueOptions) -> Result<FileQueue> {
        let queue = self.0.disk.block().queue(options)?;
        let lba_bytes = u64::from(queue.namespace().block_bytes());
        let blocks_max = u64::from(queue.namespace().transfer_blocks_max()) * lba_bytes / BLOCK_64;
        Ok(FileQueue {
            helper: None,
            table: Vec::with_capacity(queue.capacity()),
            queue,
            flights: Flights::new(self.0.space.epochs().join()),
            free: Vec::new(),
            files: Vec::new(),
            ready: VecDeque::new(),
            blocks_max,
            system: self.0.own(),
        })
    }
}

impl FileQueue {
    /// Has a file take part. It stays open until [`FileQueue::remove`].
    ///
    /// # Errors
    /// EXDEV for a file of another file system.
    pub fn add(&mut self, vnode: &Vnode) -> Result<FileId> {
        if !vnode.is_of(&self.system) {
            return Err(Errno::XDEV.into());
        }
        let open = Open {
            vnode: vnode.clone(),
            version: u64::MAX,
            can_read: false,
            can_write: false,
            size: 0,
            hint: 0,
            extents: Vec::new(),
        };
        let free = self.files.iter().position(Option::is_none);
        let index = free.unwrap_or(self.files.len());
        if free.is_none() {
            self.files.push(None);
        }
        self.files[index] = Some(open);
        Ok(FileId(index as u32))
    }

    /// Lets a file go.
    ///
    /// # Errors
    /// EBUSY while calls on it are under way; EBADF.
    pub fn remove(&mut self, file: FileId) -> Result<()> {
        let mut is_free = vec![false; self.table.len()];
        self.free.iter().for_each(|&at| is_free[at as usize] = true);
        let mut sent = self.table.iter().zip(is_free).filter(|(_, is_free)| !is_free);
        if sent.any(|(flight, _)| flight.file == file.0)
            || self.helper.as_ref().is_some_and(|helper| helper.pending.contains(&file.0))
        {
            return Err(Errno::BUSY.into());
        }
        match self.files.get_mut(file.0 as usize).and_then(Option::take) {
            Some(_) => Ok(()),
            None => Err(Errno::BADF.into()),
        }
    }

    /// A zeroed buffer that the device can reach.
    ///
    /// # Errors
    /// [`Error::Device`] when memory is used up.
    pub fn alloc(&self, bytes: usize) -> Result<DmaBuf> {
        Ok(self.queue.alloc(bytes)?)
    }

    /// Calls that were taken and not polled yet.
    pub fn outstanding(&self) -> usize {
        self.queue.outstanding()
            + self.ready.len()
            + self.helper.as_ref().map_or(0, |helper| helper.pending.len())
    }

    /// Reads `bytes` bytes from `offset` on, into the beginning of the buffer.
    ///
    /// # Errors
    /// [`Refused`]: EAGAIN when the queue is full, EINVAL for a buffer that is too short, EBADF.
    #[inline]
    pub fn read(
        &mut self,
        file: FileId,
        offset: u64,
        bytes: usize,
        buf: DmaBuf,
        token: u64,
    ) -> std::result::Result<(), Refused> {
        self.submit(Kind::Read, file, offset, bytes, buf, token)
    }

    /// Writes the first `bytes` bytes of the buffer at `offset`.
    ///
    /// # Errors
    /// As [`FileQueue::read`].
    #[inline]
    pub fn write(
        &mut self,
        file: FileId,
        offset: u64,
        bytes: usize,
        buf: DmaBuf,
        token: u64,
    ) -> std::result::Result<(), Refused> {
        self.submit(Kind::Write, file, offset, bytes, buf, token)
    }

    /// Writes the first `bytes` bytes of the buffer behind the end of the file.
    ///
    /// # Errors
    /// As [`FileQueue::read`].
    pub fn append(
        &mut self,
        file: FileId,
        bytes: usize,
        buf: DmaBuf,
        token: u64,
    ) -> std::result::Result<(), Refused> {
        self.submit(Kind::Append, file, 0, bytes, buf, token)
    }

    /// `fsync`: everything of the file that was over when this is called is durable when it is over.
    ///
    /// # Errors
    /// EBADF; [`Error::Device`].
    pub fn sync(&mut self, file: FileId, token: u64) -> Result<()> {
        self.help(Kind::Sync, file, 0, 0, None, token).map_err(|refused| refused.error)
    }

    /// `fdatasync`.
    ///
    /// # Errors
    /// As [`FileQueue::sync`].
    pub fn sync_data(&mut self, file: FileId, token: u64) -> Result<()> {
        self.help(Kind::SyncData, file, 0, 0, None, token).map_err(|refused| refused.error)
    }

    #[inline]
    fn submit(
        &mut self,
        kind: Kind,
        file: FileId,
        offset: u64,
        bytes: usize,
        buf: DmaBuf,
        token: u64,
    ) -> std::result::Result<(), Refused> {
        if bytes > buf.len() {
            return Err(Refused { error: Errno::INVAL.into(), buf: Some(buf) });
        }
        let is_whole = (offset | bytes as u64).is_multiple_of(BLOCK_64) && bytes > 0;
        let blocks = bytes as u64 / BLOCK_64;
        if !is_whole || kind == Kind::Append || blocks > self.blocks_max {
            return self.help(kind, file, offset, bytes, Some(buf), token);
        }
        if self.queue.outstanding() >= self.queue.capacity() {
            return Err(Refused { error: Errno::AGAIN.into(), buf: Some(buf) });
        }
        let Some(Some(open)) = self.files.get_mut(file.0 as usize) else {
            return Err(Refused { error: Errno::BADF.into(), buf: Some(buf) });
        };
        // First: what is found from here on stays until the command is over.
        let generation = self.flights.begin(self.system.space.epochs());
        if open.version != open.vnode.node().version.load(Ordering::SeqCst)
            && let Err(error) = open.look(&self.system)
        {
            self.flights.end(generation);
            return Err(Refused { error, buf: Some(buf) });
        }
        let can = if kind == Kind::Read { open.can_read } else { open.can_write };
        let is_inside = can && offset.checked_add(bytes as u64).is_some_and(|end| end <= open.size);
        let found = if is_inside { open.find(offset / BLOCK_64, blocks) } else { None };
        let Some(start) = found else {
            self.flights.end(generation);
            return self.help(kind, file, offset, bytes, Some(buf), token);
        };
        let (hint, version) = (open.hint, open.version);
        let flight = Flight { token, offset, file: file.0, bytes: bytes as u32, kind, generation, version };
        let index = match self.free.pop() {
            Some(index) => {
                self.table[index as usize] = flight;
                index
            }
            None => {
                self.table.push(flight);
                self.table.len() as u32 - 1
            }
        };
        let range = self.system.disk.lba_range(start, blocks);
        let sent = match kind {
            Kind::Read => self.queue.read(range, buf, index.into()),
            _ => {
                let options = self.system.disk.write_options(Class::Data(hint));
                self.queue.submit(Op::Write(range, options), Some(buf), index.into())
            }
        };
        sent.map_err(|rejected| {
            self.free.push(index);
            self.flights.end(generation);
            Refused { error: Error::Device(rejected.error.to_string()), buf: rejected.buf }
        })
    }

    /// Has the helper do it.
    #[cold]
    fn help(
        &mut self,
        kind: Kind,
        file: FileId,
        offset: u64,
        bytes: usize,
        buf: Option<DmaBuf>,
        token: u64,
    ) -> std::result::Result<(), Refused> {
        let Some(Some(open)) = self.files.get(file.0 as usize) else {
            return Err(Refused { error: Errno::BADF.into(), buf });
        };
        if bytes > u32::MAX as usize {
            return Err(Refused { error: Errno::INVAL.into(), buf });
        }
        let node = open.vnode.clone();
        if self.helper.is_none() {
            match Helper::start() {
                Ok(helper) => self.helper = Some(helper),
                Err(error) => return Err(Refused { error, buf }),
            }
        }
        let helper = self.helper.as_mut().expect("started above");
        if helper.pending.len() >= self.queue.capacity() {
            return Err(Refused { error: Errno::AGAIN.into(), buf });
        }
        let flight =
            Flight { token, offset, file: file.0, bytes: bytes as u32, kind, generation: 0, version: 0 };
        let sent = helper.jobs.as_ref().expect("until it is dropped").send(Job { flight, node, buf });
        match sent {
            Ok(()) => {
                helper.pending.push_back(file.0);
                Ok(())
            }
            Err(back) => {
                Err(Refused { error: Error::Device("the helper has ended".into()), buf: back.0.buf })
            }
        }
    }

    /// Tells the device about everything submitted since the last call.
    ///
    /// # Errors
    /// The connection to the device failed.
    #[inline]
    pub fn ring(&mut self) -> Result<()> {
        self.queue.ring().map_err(|e| Error::Device(e.to_string()))
    }

    /// Waits until something has finished (true) or `timeout` has passed (false). Rings first.
    ///
    /// # Errors
    /// What went wrong with the queue since the last call.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        let until = Instant::now() + timeout;
        loop {
            if !self.ready.is_empty() {
                return Ok(true);
            }
            let left = until.saturating_duration_since(Instant::now());
            let Some(helper) = self.helper.as_mut().filter(|helper| !helper.pending.is_empty()) else {
                return self.queue.wait(left).map_err(|e| Error::Device(e.to_string()));
            };
            if self.queue.outstanding() > 0 {
                // Both can be first: one is asked, and then the other.
                let some = left.min(Duration::from_micros(50));
                if self.queue.wait(some).map_err(|e| Error::Device(e.to_string()))? {
                    return Ok(true);
                }
            }
            let some = if self.queue.outstanding() > 0 { Duration::ZERO } else { left };
            match helper.done.recv_timeout(some) {
                Ok(done) => {
                    helper.pending.pop_front();
                    self.ready.push_back(done);
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Ok(false),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Device("the helper has ended".into()));
                }
            }
        }
    }

    /// Up to `max` calls that are over, and those that the helper has done.
    #[inline]
    pub fn poll(&mut self, max: usize) -> FileCompletions<'_> {
        if let Some(helper) = self.helper.as_mut().filter(|helper| !helper.pending.is_empty()) {
            while let Ok(done) = helper.done.try_recv() {
                helper.pending.pop_front();
                self.ready.push_back(done);
            }
        }
        let from_device = max.saturating_sub(self.ready.len());
        FileCompletions {
            left: max,
            ready: &mut self.ready,
            device: self.queue.poll(from_device),
            table: &self.table,
            free: &mut self.free,
            flights: &mut self.flights,
            files: &self.files,
            system: &self.system,
        }
    }
}

/// Calls that are over: what [`FileQueue::poll`] returns.
pub struct FileCompletions<'a> {
    left: usize,
    ready: &'a mut VecDeque<FileCompletion>,
    device: Completions<'a>,
    table: &'a [Flight],
    free: &'a mut Vec<u32>,
    flights: &'a mut Flights,
    files: &'a [Option<Open>],
    system: &'a Mount,
}

impl Iterator for FileCompletions<'_> {
    type Item = FileCompletion;

    #[inline]
    fn next(&mut self) -> Option<FileCompletion> {
        self.left = self.left.checked_sub(1)?;
        if let Some(done) = self.ready.pop_front() {
            return Some(done);
        }
        let completion = self.device.next()?;
        let flight = self.table[completion.token as usize];
        self.free.push(completion.token as u32);
        let mut result = match completion.status.is_success() {
            true => Ok(flight.bytes as usize),
            false => Err(Error::Device(completion.status.to_string())),
        };
        if flight.kind == Kind::Write
            && let Some(Some(open)) = self.files.get(flight.file as usize)
            && let Err(e) = written(self.system, open.vnode.node(), &flight, completion.buf.as_ref())
        {
            result = result.and(Err(e));
        }
        self.flights.end(flight.generation);
        let Flight { token, offset, .. } = flight;
        Some(FileCompletion { token, result, offset, buf: completion.buf })
    }
}

/// What is to be noted when blocks of a file were written past the cache.
#[inline]
fn written(system: &Mount, node: &Arc<Node>, flight: &Flight, buf: Option<&DmaBuf>) -> Result<()> {
    system.disk.mark_unsettled();
    node.mark_unflushed(&system.disk);
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    if node.written.load(Ordering::Relaxed) < now {
        node.written.store(now, Ordering::Relaxed);
        system.list(node);
    }
    node.writes.fetch_add(1, Ordering::SeqCst);
    if flight.version == node.version.load(Ordering::SeqCst) {
        return Ok(());
    }
    written_beside(system, node, flight, buf)
}

/// Others have changed the file meanwhile, or have brought pages into memory: those may hold what was there
/// before, and may even have been written since. What was written here is written once more, as if it came
/// last.
#[cold]
fn written_beside(system: &Mount, node: &Arc<Node>, flight: &Flight, buf: Option<&DmaBuf>) -> Result<()> {
    let mut state = node.lock();
    let bytes = state.size.saturating_sub(flight.offset).min(flight.bytes.into());
    let Some(buf) = buf.filter(|_| bytes > 0 && !state.is_gone) else { return Ok(()) };
    let mut data = vec![0; bytes as usize];
    buf.read(0, &mut data);
    let is_direct = system.cache.is_off() || node.switches.direct_write.load(Ordering::Relaxed);
    let mut done = 0;
    while done < data.len() {
        // What is wrong is said of what is left.
        let at = flight.offset + done as u64;
        match system.write(node, &mut state, at, &data[done..], is_direct)? {
            0 => return Err(Errno::IO.into()),
            some => done += some,
        }
    }
    Ok(())
}

impl Drop for FileQueue {
    fn drop(&mut self) {
        // What is under way ends first: its blocks may be somebody else's afterwards.
        let until = Instant::now() + Duration::from_secs(60);
        while self.queue.outstanding() > 0 && Instant::now() < until {
            if self.queue.wait(Duration::from_millis(100)).is_err() {
                break;
            }
            self.queue.poll(64).for_each(drop);
        }
        self.system.space.epochs().leave(self.flights.slot());
    }
}
