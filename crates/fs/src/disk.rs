//! The device below: blocks of the file system on a namespace. Single commands go by a worker that all
//! threads use; what takes several goes by a lane, a queue pair for whoever is on a CPU, all of them at
//! once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use unvme::lock::lock;
use unvme::worker::{Data, Done, Refused, WorkerOptions};
use unvme::{
    AccessFlags, Block, BlockQueue, BlockRange, DmaBuf, Lba, Op, QueueOptions, Region, Worker, WriteOptions,
};

use crate::error::{Error, Result};
use crate::layout::BLOCK;
use crate::placement::{Class, Placement, Placements};

/// Ranges of one deallocation.
const RANGES_MAX: usize = 256;

/// When a write is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    /// After the next flush.
    Later,
    /// When it returns: Force Unit Access.
    Now,
}

/// What reached the device, in order: for those who test what a power cut leaves.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Blocks were written.
    Write {
        /// First block of the file system.
        block: u64,
        /// Their bytes.
        data: Vec<u8>,
        /// They were durable at once.
        durable: bool,
    },
    /// What was written before became durable.
    Flush,
    /// Blocks were given back: start and number. Their content may be anything that was there, or zeros.
    Deallocate(Vec<(u64, u64)>),
}

/// What the file system has asked the device for since it was mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Read commands.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write commands.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Of the write commands, those with Force Unit Access.
    pub forced: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes deallocated.
    pub deallocated_bytes: u64,
}

#[derive(Default)]
struct Counts {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    forced: AtomicU64,
    flushes: AtomicU64,
    deallocated_bytes: AtomicU64,
}

/// A queue pair for calls of several commands.
struct Lane {
    queue: BlockQueue,
    spare: Vec<DmaBuf>,
}

/// A lane, made when it is needed, or none where no queue pair was left for it.
type Place = Mutex<Option<Option<Lane>>>;

/// Bytes that a call of the worker moves by way of a buffer that it keeps; for more a lane has them.
const SHORT: usize = 16 << 10;

/// Commands that a lane has under way at most.
const LANE_DEPTH: usize = 32;

/// Bytes that it has under way at most: what was put into buffers is to be in a cache when a device in this
/// process takes it from there.
const LANE_BYTES: usize = 1 << 20;

/// Pages that are written to consecutive blocks: the memory of each, and where in it that is.
pub(crate) struct Piece<'a> {
    pub start: u64,
    pub pages: Vec<(&'a Region, usize)>,
    pub class: Class,
}

impl Piece<'_> {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.pages.len() * BLOCK];
        for (page, place) in self.pages.iter().zip(bytes.chunks_exact_mut(BLOCK)) {
            page.0.read(page.1, place);
        }
        bytes
    }
}

pub(crate) struct Disk {
    name: String,
    /// What they lead to.
    block: Mutex<Block>,
    worker: Worker,
    /// One for each queue of the worker.
    lanes: Box<[Place]>,
    /// The journal's.
    journal_lane: Place,
    /// Logical blocks of a block of the file system.
    lbas: u64,
    blocks: u64,
    /// Blocks of one command.
    piece: usize,
    placements: Placements,
    counts: Counts,
    /// Data of files were written since the last commit saw to it that they are durable.
    has_unsettled: AtomicBool,
    /// Flushes that have begun, and the last of them that has succeeded.
    flushes: AtomicU64,
    flushed: AtomicU64,
    is_recording: AtomicBool,
    events: Mutex<Vec<Event>>,
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

impl Disk {
    pub(crate) fn open(
        block: &Block,
        name: &str,
        options: &WorkerOptions,
        placement: Placement,
    ) -> Result<Self> {
        let lba_bytes = block.block_bytes() as usize;
        if lba_bytes > BLOCK || !BLOCK.is_multiple_of(lba_bytes) {
            return Err(Error::Format(format!(
                "{name}: its blocks have {lba_bytes} bytes; a file system needs blocks of {BLOCK} bytes or a \
                 part of that"
            )));
        }
        let lbas = (BLOCK / lba_bytes) as u64;
        let piece = (block.namespace().transfer_blocks_max() as usize / lbas as usize).clamp(1, 64);
        let worker = block.worker(options)?;
        Ok(Self {
            name: name.to_string(),
            block: Mutex::new(block.clone()),
            lanes: worker.queues().iter().map(|_| Mutex::default()).collect(),
            journal_lane: Mutex::default(),
            worker,
            lbas,
            blocks: block.blocks() / lbas,
            piece,
            placements: Placements::find(block, placement)?,
            counts: Counts::default(),
            has_unsettled: AtomicBool::new(false),
            flushes: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            is_recording: AtomicBool::new(false),
            events: Mutex::new(Vec::new()),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Blocks of the file system that the namespace has.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    fn range(&self, block: u64, bytes: usize) -> BlockRange {
        self.lba_range(block, (bytes / BLOCK) as u64)
    }

    fn done(&self, what: &str, block: u64, done: std::result::Result<Done, Refused>) -> Result<()> {
        match done {
            Ok(done) if done.status.is_success() => Ok(()),
            Ok(done) => {
                Err(Error::Device(format!("{}: {what} of block {block}: {}", self.name, done.status)))
            }
            Err(refused) => {
                Err(Error::Device(format!("{}: {what} of block {block}: {}", self.name, refused.reason)))
            }
        }
    }

    /// Reads whole blocks.
    pub(crate) fn read(&self, block: u64, out: &mut [u8]) -> Result<()> {
        debug_assert!(out.len().is_multiple_of(BLOCK));
        if out.len() > SHORT
            && let Some(done) = self.in_lane(self.own_lane(), |lane| self.read_in_lane(lane, block, out))
        {
            return done;
        }
        let mut at = block;
        for piece in out.chunks_mut(self.piece * BLOCK) {
            let range = self.range(at, piece.len());
            add(&self.counts.reads, 1);
            add(&self.counts.read_bytes, piece.len() as u64);
            at += (piece.len() / BLOCK) as u64;
            let op = Op::Read(range, AccessFlags::default());
            self.done("a read", range.start.0 / self.lbas, self.worker.call(op, Data::In(piece)))?;
        }
        Ok(())
    }

    /// Writes whole blocks.
    pub(crate) fn write(&self, block: u64, data: &[u8], durable: Durable, class: Class) -> Result<()> {
        debug_assert!(data.len().is_multiple_of(BLOCK));
        if data.len() > SHORT {
            let blocks = (data.len() / BLOCK) as u64;
            let starts = (0..blocks).step_by(self.piece);
            let runs: Vec<_> = starts.map(|at| (block + at, (blocks - at).min(self.piece()))).collect();
            let mut pieces = data.chunks(self.piece * BLOCK);
            return self.write_runs_in(self.own_lane(), &runs, durable, class, |_, buf| {
                buf.write(0, pieces.next().unwrap_or_default());
            });
        }
        let force_unit_access = durable == Durable::Now;
        let mut at = block;
        for piece in data.chunks(self.piece * BLOCK) {
            let range = self.range(at, piece.len());
            add(&self.counts.writes, 1);
            add(&self.counts.written_bytes, piece.len() as u64);
            add(&self.counts.forced, force_unit_access.into());
            let flags = AccessFlags { force_unit_access, ..AccessFlags::default() };
            let op = Op::Write(range, WriteOptions { flags, placement: self.placements.of(class) });
            self.done("a write", at, self.worker.call(op, Data::Out(piece)))?;
            let written = at;
            self.record(|| Event::Write { block: written, data: piece.to_vec(), durable: force_unit_access });
            at += (piece.len() / BLOCK) as u64;
        }
        Ok(())
    }

    /// The lane of this CPU.
    fn own_lane(&self) -> &Place {
        &self.lanes[rustix::thread::sched_getcpu() % self.lanes.len()]
    }

    /// Does something with a lane. `None`: the device has no queue pair for it.
    fn in_lane<R>(&self, place: &Place, act: impl FnOnce(&mut Lane) -> Result<R>) -> Option<Result<R>> {
        let mut place = lock(place);
        let lane = place.get_or_insert_with(|| {
            let options = QueueOptions { depth: 2 * LANE_DEPTH as u16, ..QueueOptions::default() };
            lock(&self.block).queue(&options).ok().map(|queue| Lane { queue, spare: Vec::new() })
        });
        let done = act(lane.as_mut()?);
        if done.is_err() {
            // What is under way there ends with it.
            *place = None;
        }
        Some(done)
    }

    /// Sends what `next` puts into a buffer, until it has nothing more; `done` has the buffer of each again.
    fn run(
        &self,
        lane: &mut Lane,
        what: &str,
        mut next: impl FnMut(&mut DmaBuf) -> Option<(usize, u64, Op<'static>)>,
        mut done: impl FnMut(u64, &DmaBuf),
    ) -> Result<()> {
        let failed = |e: &dyn std::fmt::Display| Error::Device(format!("{}: {what}: {e}", self.name));
        let mut is_over = false;
        let mut wrong = None;
        loop {
            let mut under_way = 0;
            while !is_over && lane.queue.outstanding() < LANE_DEPTH && under_way < LANE_BYTES {
                let mut buf = match lane.spare.pop() {
                    Some(buf) => buf,
                    None => lane.queue.alloc(self.piece * BLOCK)?,
                };
                match next(&mut buf) {
                    Some((bytes, token, op)) => {
                        under_way += bytes;
                        lane.queue.submit(op, Some(buf), token).map_err(|refused| failed(&refused.error))?;
                    }
                    None => {
                        is_over = true;
                        lane.spare.push(buf);
                    }
                }
            }
            if lane.queue.outstanding() == 0 {
                return wrong.map_or(Ok(()), Err);
            }
            lane.queue.wait(Duration::from_millis(100)).map_err(|e| failed(&e))?;
            for completion in lane.queue.poll(LANE_DEPTH) {
                if !completion.status.is_success() {
                    wrong = Some(failed(&completion.status));
                    is_over = true;
                } else if let Some(buf) = &completion.buf {
                    done(completion.token, buf);
                }
                lane.spare.extend(completion.buf);
            }
        }
    }

    fn read_in_lane(&self, lane: &mut Lane, block: u64, out: &mut [u8]) -> Result<()> {
        let piece = self.piece * BLOCK;
        let (mut sent, bytes) = (0, out.len());
        let next = |_: &mut DmaBuf| {
            let some = piece.min(bytes - sent);
            if some == 0 {
                return None;
            }
            add(&self.counts.reads, 1);
            add(&self.counts.read_bytes, some as u64);
            let range = self.range(block + (sent / BLOCK) as u64, some);
            sent += some;
            Some((some, (sent - some) as u64, Op::Read(range, AccessFlags::default())))
        };
        self.run(lane, "a read", next, |at, buf| {
            let at = at as usize;
            let end = (at + piece).min(bytes);
            buf.read(0, &mut out[at..end]);
        })
    }

    /// Writes data of a file, all pieces at once. See [`Disk::write_data`].
    pub(crate) fn write_pieces(&self, mut pieces: Vec<Piece<'_>>) -> Result<()> {
        pieces.sort_unstable_by_key(|piece| piece.start);
        pieces.dedup_by(|next, piece| {
            let is_next = next.start == piece.start + piece.pages.len() as u64 && next.class == piece.class;
            if is_next {
                piece.pages.append(&mut next.pages);
            }
            is_next
        });
        match self.in_lane(self.own_lane(), |lane| self.write_in_lane(lane, &pieces)) {
            Some(done) => done?,
            None => {
                for piece in &pieces {
                    self.write(piece.start, &piece.bytes(), Durable::Later, piece.class)?;
                }
            }
        }
        self.mark_unsettled();
        Ok(())
    }

    fn write_in_lane(&self, lane: &mut Lane, pieces: &[Piece<'_>]) -> Result<()> {
        let mut commands = pieces.iter().flat_map(|piece| {
            let starts = (piece.start..).step_by(self.piece);
            starts.zip(piece.pages.chunks(self.piece)).map(|(start, pages)| (start, pages, piece.class))
        });
        let next = |buf: &mut DmaBuf| {
            let (start, pages, class) = commands.next()?;
            for (at, page) in pages.iter().enumerate() {
                page.0.copy_to(page.1, buf.region(), at * BLOCK, BLOCK);
            }
            let bytes = pages.len() * BLOCK;
            add(&self.counts.writes, 1);
            add(&self.counts.written_bytes, bytes as u64);
            Some((bytes, start, Op::Write(self.range(start, bytes), self.write_options(class))))
        };
        self.run(lane, "a write", next, |_, _| ())?;
        for piece in pieces {
            self.record(|| Event::Write { block: piece.start, data: piece.bytes(), durable: false });
        }
        Ok(())
    }

    /// Blocks that one command takes.
    pub(crate) fn piece(&self) -> u64 {
        self.piece as u64
    }

    /// Writes runs of blocks for the journal, first block and number of each, of which each is one command.
    /// `fill` puts what belongs there into the buffer of a run; they are asked for in order, and written in
    /// any.
    pub(crate) fn write_runs(
        &self,
        runs: &[(u64, u64)],
        durable: Durable,
        class: Class,
        fill: impl FnMut(usize, &mut DmaBuf),
    ) -> Result<()> {
        self.write_runs_in(&self.journal_lane, runs, durable, class, fill)
    }

    fn write_runs_in(
        &self,
        place: &Place,
        runs: &[(u64, u64)],
        durable: Durable,
        class: Class,
        mut fill: impl FnMut(usize, &mut DmaBuf),
    ) -> Result<()> {
        let force_unit_access = durable == Durable::Now;
        let flags = AccessFlags { force_unit_access, ..AccessFlags::default() };
        let options = WriteOptions { flags, placement: self.placements.of(class) };
        let mut nth = 0;
        let mut next = |buf: &mut DmaBuf| {
            let &(start, blocks) = runs.get(nth)?;
            debug_assert!(blocks <= self.piece());
            let bytes = blocks as usize * BLOCK;
            fill(nth, buf);
            nth += 1;
            add(&self.counts.writes, 1);
            add(&self.counts.written_bytes, bytes as u64);
            add(&self.counts.forced, force_unit_access.into());
            self.record(|| {
                let mut data = vec![0; bytes];
                buf.read(0, &mut data);
                Event::Write { block: start, data, durable: force_unit_access }
            });
            Some((bytes, start, Op::Write(self.lba_range(start, blocks), options)))
        };
        let in_lane = self.in_lane(place, |lane| self.run(lane, "a write", &mut next, |_, _| ()));
        if let Some(done) = in_lane {
            return done;
        }
        let mut buf = self.worker.alloc(self.piece * BLOCK).map_err(|refused| {
            Error::Device(format!("{}: memory for a write: {}", self.name, refused.reason))
        })?;
        while let Some((_, start, op)) = next(&mut buf) {
            let mut sent = self.worker.call(op, Data::Given(buf));
            let back = match &mut sent {
                Ok(done) => done.buf.take(),
                Err(refused) => refused.buf.take(),
            };
            self.done("a write", start, sent)?;
            buf = match back {
                Some(buf) => buf,
                None => return Err(Error::Device(format!("{}: a write has lost its buffer", self.name))),
            };
        }
        Ok(())
    }

    /// Data of files were written that are not durable yet.
    #[inline]
    pub(crate) fn mark_unsettled(&self) {
        if !self.has_unsettled.load(Ordering::Acquire) {
            self.has_unsettled.store(true, Ordering::Release);
        }
    }

    /// What leads to the namespace, for queues of others.
    pub(crate) fn block(&self) -> Block {
        lock(&self.block).clone()
    }

    /// How something is written that may wait for a flush.
    #[inline]
    pub(crate) fn write_options(&self, class: Class) -> WriteOptions {
        WriteOptions { placement: self.placements.of(class), ..WriteOptions::default() }
    }

    /// The logical blocks of some blocks.
    pub(crate) fn lba_range(&self, block: u64, blocks: u64) -> BlockRange {
        BlockRange::new(Lba(block * self.lbas), (blocks * self.lbas) as u32)
    }

    /// Writes data of a file. No transaction is committed before they are durable: none ever leads to blocks
    /// that hold what somebody else has left there.
    pub(crate) fn write_data(&self, block: u64, data: &[u8], class: Class) -> Result<()> {
        self.write(block, data, Durable::Later, class)?;
        self.mark_unsettled();
        Ok(())
    }

    /// Makes the data of files durable that were written before. One caller at a time.
    pub(crate) fn settle(&self) -> Result<()> {
        if self.has_unsettled.swap(false, Ordering::AcqRel) {
            self.flush().inspect_err(|_| self.has_unsettled.store(true, Ordering::Release))?;
        }
        Ok(())
    }

    /// Makes what was written before durable.
    pub(crate) fn flush(&self) -> Result<()> {
        add(&self.counts.flushes, 1);
        let number = self.flushes.fetch_add(1, Ordering::SeqCst) + 1;
        self.done("a flush", 0, self.worker.call(Op::Flush, Data::None))?;
        self.flushed.fetch_max(number, Ordering::SeqCst);
        self.record(|| Event::Flush);
        Ok(())
    }

    /// The flush that makes durable what has been written until now: the next one to begin.
    #[inline]
    pub(crate) fn next_flush(&self) -> u64 {
        self.flushes.load(Ordering::SeqCst) + 1
    }

    /// The last flush that has succeeded. What was written before it has begun is durable.
    #[inline]
    pub(crate) fn flushed(&self) -> u64 {
        self.flushed.load(Ordering::SeqCst)
    }

    /// Tells the device that ranges of blocks, first block and number of each, are not needed any more.
    pub(crate) fn deallocate(&self, ranges: &[(u64, u64)]) -> Result<()> {
        for some in ranges.chunks(RANGES_MAX) {
            let list: Vec<_> = some
                .iter()
                .map(|&(block, blocks)| BlockRange::new(Lba(block * self.lbas), (blocks * self.lbas) as u32))
                .collect();
            add(&self.counts.deallocated_bytes, some.iter().map(|range| range.1 * BLOCK as u64).sum());
            let first = some[0].0;
            self.done("a deallocation", first, self.worker.call(Op::Deallocate(&list), Data::None))?;
            self.record(|| Event::Deallocate(some.to_vec()));
        }
        Ok(())
    }

    pub(crate) fn traffic(&self) -> Traffic {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { reads, read_bytes, writes, written_bytes, forced, flushes, deallocated_bytes } =
            &self.counts;
        Traffic {
            reads: of(reads),
            read_bytes: of(read_bytes),
            writes: of(writes),
            written_bytes: of(written_bytes),
            forced: of(forced),
            flushes: of(flushes),
            deallocated_bytes: of(deallocated_bytes),
        }
    }

    fn record(&self, event: impl FnOnce() -> Event) {
        if self.is_recording.load(Ordering::Relaxed) {
            lock(&self.events).push(event());
        }
    }

    pub(crate) fn start_recording(&self) {
        self.is_recording.store(true, Ordering::Relaxed);
    }

    pub(crate) fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut *lock(&self.events))
    }
}
