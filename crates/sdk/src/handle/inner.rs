//! A handle at work: calls that wait.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use unvme_bus::lock::{lock, read, write};
use unvme_driver::WriteOptions;
use unvme_spec::nvm::BlockRange;
use unvme_spec::{Lba, Status};

use super::aio::{Aloft, Line};
use super::arbiter::Lane;
use super::flight::{end_claim, end_discard, end_fill, end_through};
use super::hub::{Hub, Way};
use super::policy::{CacheMode, Completing, Policies, Queueing, Schedule};
use super::request::{Completed, Request, RequestKind};
use super::table::{PAGE_64, Pool, Put, pages_of, slices};
use crate::worker::{Data, Habit, Manner, Route, Worker};
use crate::{Error, Op, Result};

/// Bytes of one command of a call: a multiple of a page, and what others may have to wait for.
pub(super) const PIECE: u64 = 128 << 10;
/// Classes of sizes whose times are learnt apart: up to 4 KiB, 8, and so on.
const SIZES: usize = 8;
/// How often a page is brought to write a part of it, before the write goes past the cache.
const TRIES: usize = 3;

/// What holds for a handle now.
#[derive(Debug)]
pub(super) struct Active {
    pub policies: Policies,
    pub worker: Arc<Worker>,
    pub pool: Option<Arc<Pool>>,
}

impl Active {
    pub(super) fn options(&self) -> WriteOptions {
        WriteOptions { placement: self.policies.stream, ..WriteOptions::default() }
    }

    fn mode(&self) -> CacheMode {
        self.policies.cache.mode
    }
}

/// How a command that writes gets to the device.
#[derive(Clone, Copy, Debug)]
enum Passage {
    /// No cache has to know of it.
    Bare,
    /// Its pages are claimed.
    Claimed(u64),
}

/// How long commands take, by what they do and how much.
#[derive(Debug, Default)]
pub(super) struct Habits([[Habit; SIZES]; 4]);

impl Habits {
    pub(super) fn of(&self, kind: RequestKind, bytes: u64) -> &Habit {
        let kind = match kind {
            RequestKind::Read => 0,
            RequestKind::Write => 1,
            RequestKind::Flush => 2,
            RequestKind::Discard => 3,
        };
        let size = (bytes / PAGE_64).checked_ilog2().unwrap_or(0) as usize;
        &self.0[kind][size.min(SIZES - 1)]
    }
}

/// A handle, for all who have something to do with it.
#[derive(Debug)]
pub(super) struct Inner {
    pub hub: Arc<Hub>,
    pub lane: Arc<Lane>,
    /// The partition, in blocks of the namespace.
    pub range: Range<u64>,
    active: RwLock<Arc<Active>>,
    /// Held by whoever changes the policies, from the beginning on.
    changing: Mutex<()>,
    /// Held by whoever does something, and alone by whoever changes the policies.
    pub gate: RwLock<()>,
    pub habits: Habits,
    /// Writes that are under way while no handle has a cache.
    bare_writes: AtomicU64,
    /// Requests that were not sent. Whoever sends some has the lock, and what is active then is so until they
    /// are sent.
    pub line: Mutex<Line>,
    pub ready: Mutex<Vec<Completed>>,
    pub outstanding: AtomicUsize,
    /// Who waits for one to end, asleep.
    pub sleepers: AtomicUsize,
    /// What could not be written when nobody had asked for it: the next flush tells.
    late: Mutex<Option<Error>>,
    /// Requests on the device, the oldest first, when it is learnt how long they take.
    pub aloft: Mutex<Aloft>,
}

impl Inner {
    pub(super) fn new(hub: &Arc<Hub>, range: Range<u64>, policies: Policies) -> Result<Arc<Self>> {
        let lane = hub.arbiter().join(&policies);
        let made = Self::activate(hub, &range, None, policies);
        let active = made.inspect_err(|_| hub.arbiter().part(&lane))?;
        let has_cache = active.pool.is_some();
        let inner = Arc::new(Self {
            hub: Arc::clone(hub),
            lane,
            range,
            active: RwLock::new(Arc::new(active)),
            changing: Mutex::default(),
            gate: RwLock::default(),
            habits: Habits::default(),
            bare_writes: AtomicU64::new(0),
            line: Mutex::default(),
            ready: Mutex::default(),
            outstanding: AtomicUsize::new(0),
            sleepers: AtomicUsize::new(0),
            late: Mutex::default(),
            aloft: Mutex::default(),
        });
        hub.join(&inner);
        if has_cache {
            inner.begin_caching();
        }
        Ok(inner)
    }

    /// What holds with such policies.
    fn activate(
        hub: &Arc<Hub>,
        range: &Range<u64>,
        worker: Option<&Arc<Worker>>,
        policies: Policies,
    ) -> Result<Active> {
        let what = |reason: String| Error::Argument(format!("{}: {reason}", hub.name));
        policies.check().map_err(what)?;
        let mut pool = None;
        if policies.cache.mode != CacheMode::None {
            let per_page = PAGE_64 / hub.block_bytes().min(PAGE_64);
            let is_aligned = |block: u64| block.is_multiple_of(per_page) || block == hub.namespace.blocks();
            if hub.block_bytes() > PAGE_64 {
                return Err(what(format!(
                    "blocks of {} bytes are not cached, but up to 4096",
                    hub.block_bytes()
                )));
            }
            if !is_aligned(range.start) || !is_aligned(range.end) {
                return Err(what(format!(
                    "a handle with a cache begins and ends at multiples of {per_page} blocks (4 KiB), or with the \
                     namespace, and not with blocks {} to {}",
                    range.start, range.end
                )));
            }
            pool = Some(Pool::new(&hub.name, &policies.cache)?);
        }
        let worker = worker.map_or_else(|| hub.worker(&policies), |worker| Ok(Arc::clone(worker)))?;
        Ok(Active { policies, worker, pool })
    }

    pub(super) fn active(&self) -> Arc<Active> {
        Arc::clone(&read(&self.active))
    }

    /// Has other policies from now on.
    pub(super) fn set(&self, policies: Policies) -> Result<()> {
        policies.check().map_err(|reason| Error::Argument(format!("{}: {reason}", self.hub.name)))?;
        let _one = lock(&self.changing);
        let old = self.active();
        let (schedule, limit) = (policies.schedule, policies.limit);
        let keeps_cache = old.policies.cache == policies.cache;
        let keeps_class = old.policies.class() == policies.class();
        let keeps_queue = old.policies.queue == policies.queue
            && keeps_class
            && (old.policies.completing == Completing::Interrupt)
                == (policies.completing == Completing::Interrupt);
        let worker = keeps_queue.then_some(&old.worker);
        // All that can be refused comes first.
        let new = if keeps_cache {
            let worker =
                worker.map_or_else(|| self.hub.worker(&policies), |worker| Ok(Arc::clone(worker)))?;
            Active { policies, worker, pool: old.pool.clone() }
        } else {
            Self::activate(&self.hub, &self.range, worker, policies)?
        };
        // Then what those who wait for their turn wait for. What the device decides it decides by a queue of
        // that class: without it nobody would, so the schedule comes and goes with it.
        let until_then = if keeps_class { schedule } else { old.policies.schedule };
        self.hub.arbiter().set(&self.lane, until_then, limit.as_ref());
        let _alone = write(&self.gate);
        if keeps_cache {
            self.take_over(new, keeps_queue);
            return Ok(());
        }
        let (had_cache, has_cache) = (old.pool.is_some(), new.pool.is_some());
        if has_cache && !had_cache {
            self.begin_caching();
        }
        let given_up = self.give_up_for(&old, until_then);
        if given_up.is_ok() {
            self.take_over(new, keeps_queue);
        }
        if had_cache != has_cache && had_cache == given_up.is_ok() {
            self.hub.caching.fetch_sub(1, Ordering::SeqCst);
        }
        given_up
    }

    /// Gives the cache up for another one. What waited to be written is of before the limit: it takes its
    /// turn beside what the handle has asked for, and counts in no limit.
    fn give_up_for(&self, old: &Active, schedule: Schedule) -> Result<()> {
        let Some(pool) = &old.pool else { return Ok(()) };
        let lane = self.hub.arbiter().join(&Policies { schedule, ..Policies::default() });
        let given_up = self.give_up_cache(&lane, old, pool);
        self.hub.arbiter().part(&lane);
        given_up
    }

    /// Other things hold from now on. What is under way by the queue, when that is another one, ends before.
    fn take_over(&self, new: Active, keeps_queue: bool) {
        if !keeps_queue {
            lock(&self.line).is_held = true;
            self.hub.wait_until(&self.active().worker, || self.in_flight() == 0);
        }
        let mut line = lock(&self.line);
        let (schedule, limit) = (new.policies.schedule, new.policies.limit);
        if new.policies.class() != self.active().policies.class() {
            self.hub.arbiter().set(&self.lane, schedule, limit.as_ref());
        }
        *write(&self.active) = Arc::new(new);
        line.is_held = false;
    }

    /// Requests that are on the device, for one who has the gate alone.
    fn in_flight(&self) -> usize {
        let not_there = lock(&self.ready).len() + lock(&self.line).len();
        self.outstanding.load(Ordering::Acquire).saturating_sub(not_there)
    }

    /// From now on all handles of the namespace look into the table; those that did not are waited for.
    fn begin_caching(&self) {
        self.hub.caching.fetch_add(1, Ordering::SeqCst);
        for handle in self.hub.everybody() {
            let worker = Arc::clone(&handle.active().worker);
            self.hub.wait_until(&worker, || handle.bare_writes.load(Ordering::SeqCst) == 0);
        }
    }

    /// Writes what waits, and gives all pages up. When something could not be written, everything stays.
    fn give_up_cache(&self, lane: &Arc<Lane>, old: &Active, pool: &Arc<Pool>) -> Result<()> {
        let way = Way { lane, worker: &old.worker, options: old.options() };
        let mut patience = old.worker.nearest().first().patience();
        loop {
            self.hub.write_all(&way, pool)?;
            if pool.dirty_pages() == 0 && self.hub.table.empty(pool) {
                pool.close();
                // What came between the two.
                if self.hub.table.empty(pool) {
                    return Ok(());
                }
            }
            if !self.hub.desk.progress() {
                patience.pause();
            }
        }
    }

    /// The handle is closed.
    pub(super) fn close(&self) -> Result<()> {
        let _alone = write(&self.gate);
        let active = self.active();
        self.drop_waiting();
        self.hub.wait_until(&active.worker, || self.in_flight() == 0);
        let mut result = Ok(());
        if let Some(pool) = &active.pool {
            // What waits to be written is of before, whatever the limit was, and whoever goes on.
            self.hub.arbiter().set(&self.lane, Schedule::Priority(u8::MAX), None);
            result = self.give_up_cache(&self.lane, &active, pool);
            if let Err(error) = &result {
                pool.close();
                self.lose(pool, error.status().unwrap_or(Status::WRITE_FAULT));
            }
            self.hub.caching.fetch_sub(1, Ordering::SeqCst);
        }
        self.hub.arbiter().part(&self.lane);
        result.and(self.take_late())
    }

    /// Gives up all pages of a pool, written or not. Others have written to those that were not, perhaps, and
    /// all who have their blocks are told: the next flush of each is one that has failed.
    fn lose(&self, pool: &Arc<Pool>, status: Status) {
        let others: Vec<_> =
            self.hub.everybody().into_iter().filter(|other| !std::ptr::eq(&**other, self)).collect();
        // With the lock of those who flush: they find the pages, or what has become of them.
        let _claims = lock(&self.hub.claims);
        let lost = self.hub.table.drop_pages_of(pool);
        for other in others {
            let pages = other.pages();
            if lost.iter().any(|page| pages.contains(page)) {
                let what = "write what waited in the cache of a handle that was closed";
                lock(&other.late).get_or_insert_with(|| self.hub.refused(what, status));
            }
        }
    }

    /// The pages that its blocks are on.
    fn pages(&self) -> Range<u64> {
        let block = self.hub.block_bytes();
        pages_of(self.range.start * block, (self.range.end - self.range.start) * block)
    }

    fn take_late(&self) -> Result<()> {
        lock(&self.late).take().map_or(Ok(()), Err)
    }

    /// A write begins that no cache has to know of; or one does.
    pub(super) fn begin_bare_write(&self) -> bool {
        // Sequentially consistent, as the other side: one of the two sees the other.
        self.bare_writes.fetch_add(1, Ordering::SeqCst);
        let is_bare = !self.hub.is_caching();
        if !is_bare {
            self.end_bare_write();
        }
        is_bare
    }

    pub(super) fn end_bare_write(&self) {
        self.bare_writes.fetch_sub(1, Ordering::SeqCst);
    }

    /// Where blocks of the handle are on the namespace.
    pub(super) fn place(&self, what: &str, lba: u64, blocks: u64) -> Result<u64> {
        let all = self.range.end - self.range.start;
        match lba.checked_add(blocks) {
            Some(end) if end <= all && blocks > 0 => Ok(self.range.start + lba),
            _ => Err(Error::Argument(format!(
                "{}: {what} {blocks} blocks from block {lba} of a handle: it has {all} blocks",
                self.hub.name
            ))),
        }
    }

    fn blocks_of(&self, what: &str, bytes: usize) -> Result<u64> {
        let block = self.hub.block_bytes();
        match (bytes as u64).is_multiple_of(block) {
            true => Ok(bytes as u64 / block),
            false => Err(Error::Argument(format!(
                "{}: {what} {bytes} bytes: whole blocks of {block} bytes are expected",
                self.hub.name
            ))),
        }
    }

    pub(super) fn manner<'a>(&'a self, active: &Active, kind: RequestKind, bytes: u64) -> Manner<'a> {
        match active.policies.completing {
            Completing::Poll => Manner::Spin,
            Completing::Interrupt => Manner::Sleep,
            Completing::Hybrid => Manner::Hybrid(self.habits.of(kind, bytes)),
        }
    }

    /// The index of the queue that a function chooses; beyond all of them for the nearest.
    pub(super) fn queue(active: &Active, request: &Request) -> usize {
        match &active.policies.queue {
            Queueing::Chosen(chooser) => (chooser.0)(request) % active.worker.queues().len(),
            Queueing::Own => 0,
            Queueing::Shared => usize::MAX,
        }
    }

    /// Sends one command, when it is its turn, and waits for it.
    fn exchange(
        &self,
        active: &Active,
        request: Request,
        op: Op<'_>,
        data: Data<'_>,
    ) -> Result<Data<'static>> {
        self.hub.wait_for_turn(&self.lane, self.bytes(&request), &active.worker);
        self.exchange_in_turn(active, request, op, data)
    }

    /// Sends one command, whose turn it is, and waits for it.
    fn exchange_in_turn(
        &self,
        active: &Active,
        request: Request,
        op: Op<'_>,
        data: Data<'_>,
    ) -> Result<Data<'static>> {
        let bytes = u64::from(request.blocks) * self.hub.block_bytes();
        let route: Route<'_> = match active.worker.queues().get(Self::queue(active, &request)) {
            Some(chosen) => chosen.route(),
            None => active.worker.nearest(),
        };
        let answer = route.waiting(self.manner(active, request.kind, bytes)).call(op, data);
        self.hub.arbiter().leave(&self.lane, self.bytes(&request));
        let done = answer.map_err(|e| match Error::from(e) {
            Error::Argument(reason) => Error::Argument(format!("{}: {reason}", self.hub.name)),
            other => other,
        })?;
        if done.status.is_success() {
            return Ok(done.buf.map_or(Data::None, Data::Lent));
        }
        let what = match request.kind {
            RequestKind::Read => "read",
            RequestKind::Write => "write",
            RequestKind::Flush => "flush",
            RequestKind::Discard => "deallocate",
        };
        Err(self
            .hub
            .refused(&format!("{what} {} blocks from block {}", request.blocks, request.lba), done.status))
    }

    /// Bytes of one command.
    fn piece(&self) -> u64 {
        let most = u64::from(self.hub.namespace.transfer_blocks_max()) * self.hub.block_bytes();
        PIECE.min(if most >= PAGE_64 { most / PAGE_64 * PAGE_64 } else { most })
    }

    fn range_at(&self, byte: u64, bytes: u64) -> BlockRange {
        let block = self.hub.block_bytes();
        BlockRange::new(Lba(byte / block), (bytes / block) as u32)
    }

    pub(super) fn read(&self, lba: u64, out: &mut [u8]) -> Result<()> {
        let blocks = self.blocks_of("read", out.len())?;
        if blocks == 0 {
            return Ok(());
        }
        let byte = self.place("read", lba, blocks)? * self.hub.block_bytes();
        if self.hub.is_caching() {
            return self.read_cached(byte, out);
        }
        let _open = read(&self.gate);
        let active = self.active();
        self.read_device(&active, byte, out)
    }

    fn read_device(&self, active: &Active, byte: u64, out: &mut [u8]) -> Result<()> {
        let piece = self.piece();
        let mut at = byte;
        for part in out.chunks_mut(piece as usize) {
            let range = self.range_at(at, part.len() as u64);
            at += part.len() as u64;
            let request = Request::read(range.start.0, range.blocks);
            self.exchange(active, request, Op::Read(range, Default::default()), Data::In(part))?;
        }
        Ok(())
    }

    fn read_cached(&self, byte: u64, out: &mut [u8]) -> Result<()> {
        let missing = {
            let active = read(&self.active);
            let missing = self.hub.table.copy(byte, out);
            if let Some(pool) = &active.pool {
                let pages = pages_of(byte, out.len() as u64);
                let absent: u64 = missing.iter().map(|range| range.end - range.start).sum();
                pool.cache.count_hits(pages.end - pages.start - absent);
            }
            missing
        };
        if missing.is_empty() {
            return Ok(());
        }
        let _open = read(&self.gate);
        let active = self.active();
        for range in missing {
            self.read_missing(&active, range, byte, out)?;
        }
        Ok(())
    }

    /// Reads pages that were not there, and keeps them.
    fn read_missing(&self, active: &Active, missing: Range<u64>, byte: u64, out: &mut [u8]) -> Result<()> {
        let end = byte + out.len() as u64;
        let Some(pool) = &active.pool else {
            // Nothing is to be kept: the blocks alone that were asked for.
            let from = (missing.start * PAGE_64).max(byte);
            let to = (missing.end * PAGE_64).min(end);
            let device = &mut out[(from - byte) as usize..(to - byte) as usize];
            return self.read_device(active, from, device);
        };
        let most = (self.piece() / PAGE_64).max(1);
        let mut page = missing.start;
        while page < missing.end {
            let pages = page..missing.end.min(page + most);
            page = pages.end;
            let from = (pages.start * PAGE_64).max(byte);
            let to = (pages.end * PAGE_64).min(end);
            let part = &mut out[(from - byte) as usize..(to - byte) as usize];
            if let Err(error) = self.fill(active, pool, pages.clone(), from, part) {
                // A block beside those that were asked for may be to blame.
                match to - from < (pages.end - pages.start) * PAGE_64 {
                    true => self.read_device(active, from, part)?,
                    false => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Reads whole pages for some of their bytes.
    fn fill(
        &self,
        active: &Active,
        pool: &Arc<Pool>,
        pages: Range<u64>,
        from: u64,
        part: &mut [u8],
    ) -> Result<()> {
        let mut claims = lock(&self.hub.claims);
        // Somebody may have brought or changed them in between.
        let missing = self.hub.table.copy(from, part);
        if missing.is_empty() {
            return Ok(());
        }
        let claim = claims.fill(pages.clone());
        drop(claims);
        pool.cache.count_reads(missing.iter().map(|range| range.end - range.start).sum(), 0);
        let namespace_end = self.hub.namespace.blocks() * self.hub.block_bytes();
        let bytes = (pages.end * PAGE_64).min(namespace_end) - pages.start * PAGE_64;
        let range = self.range_at(pages.start * PAGE_64, bytes);
        let request = Request::read(range.start.0, range.blocks);
        let answer = self.hub.alloc((pages.end - pages.start) * PAGE_64).and_then(|buf| {
            self.exchange(active, request, Op::Read(range, Default::default()), Data::Lent(buf))
        });
        let buf = match answer.map(Data::into_lent) {
            Ok(Some(buf)) => buf,
            other => {
                lock(&self.hub.claims).end(claim);
                return other.map(drop);
            }
        };
        let end = from + part.len() as u64;
        for range in &missing {
            let (start, stop) = ((range.start * PAGE_64).max(from), (range.end * PAGE_64).min(end));
            buf.read(
                (start - pages.start * PAGE_64) as usize,
                &mut part[(start - from) as usize..(stop - from) as usize],
            );
        }
        end_fill(&self.hub, Some(claim), Some(pool), (pages.start * PAGE_64, &missing), &buf);
        Ok(())
    }

    pub(super) fn write(&self, lba: u64, data: &[u8]) -> Result<()> {
        let blocks = self.blocks_of("write", data.len())?;
        if blocks == 0 {
            return Ok(());
        }
        let byte = self.place("write", lba, blocks)? * self.hub.block_bytes();
        let _open = read(&self.gate);
        let active = self.active();
        match (&active.pool, active.mode()) {
            (Some(pool), CacheMode::WriteBack) => self.write_back(&active, pool, byte, data),
            _ => self.write_through(&active, byte, data),
        }
    }

    /// Writes to the device, and has what is in memory follow.
    fn write_through(&self, active: &Active, byte: u64, data: &[u8]) -> Result<()> {
        let mut at = byte;
        for part in data.chunks(self.piece() as usize) {
            let range = self.range_at(at, part.len() as u64);
            let request = Request::write(range.start.0, range.blocks);
            let passage = self.begin_write(active, &request);
            let op = Op::Write(range, active.options());
            let written = self.exchange_in_turn(active, request, op, Data::Out(part)).map(drop);
            if let Passage::Claimed(_) = passage {
                let is_written = written.as_ref().map(|()| part).map_err(|_| part.len() as u64);
                end_through(&self.hub, active.pool.as_ref(), at, is_written);
            }
            self.end_write(passage);
            written?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Waits for the turn of a command that writes, then until nobody else writes there.
    fn begin_write(&self, active: &Active, request: &Request) -> Passage {
        self.hub.wait_for_turn(&self.lane, self.bytes(request), &active.worker);
        if self.begin_bare_write() {
            return Passage::Bare;
        }
        let block = self.hub.block_bytes();
        let pages = pages_of(request.lba * block, u64::from(request.blocks) * block);
        Passage::Claimed(self.hub.claim_to_write(&pages, &active.worker))
    }

    fn end_write(&self, passage: Passage) {
        match passage {
            Passage::Bare => self.end_bare_write(),
            Passage::Claimed(claim) => end_claim(&self.hub, Some(claim)),
        }
    }

    /// Writes to memory.
    pub(super) fn write_back(&self, active: &Active, pool: &Arc<Pool>, byte: u64, data: &[u8]) -> Result<()> {
        let namespace_end = self.hub.namespace.blocks() * self.hub.block_bytes();
        for (page, skip, range) in slices(byte, data.len()) {
            let slice = &data[range.clone()];
            let at = byte + range.start as u64;
            let is_whole =
                skip == 0 && (slice.len() as u64 == PAGE_64 || at + slice.len() as u64 == namespace_end);
            if !self.put(active, pool, (page, skip), slice, is_whole) {
                self.write_through(active, at, slice)?;
            }
        }
        Ok(())
    }

    /// Puts bytes into a page. Returns whether that was possible; else they are to be written past the cache.
    fn put(
        &self,
        active: &Active,
        pool: &Arc<Pool>,
        (page, skip): (u64, usize),
        data: &[u8],
        is_whole: bool,
    ) -> bool {
        for _ in 0..TRIES {
            if pool.dirty_pages() >= pool.dirty_max() && !self.make_clean(active, pool) {
                return false;
            }
            match self.hub.table.put(pool, page, skip, data, is_whole) {
                Put::Done => return true,
                Put::NoRoom if !self.make_clean(active, pool) => return false,
                Put::NoRoom => {}
                Put::Absent => {
                    let mut rest = [0; PAGE_64 as usize];
                    let namespace_end = self.hub.namespace.blocks() * self.hub.block_bytes();
                    let bytes = PAGE_64.min(namespace_end - page * PAGE_64) as usize;
                    // What cannot be read may be what is to be written, or a block beside it.
                    if self.fill(active, pool, page..page + 1, page * PAGE_64, &mut rest[..bytes]).is_err() {
                        return false;
                    }
                }
            }
        }
        false
    }

    /// Writes some of what waits. Returns whether there is less of it; what goes wrong is told with the next
    /// flush, as it is about what was written before.
    fn make_clean(&self, active: &Active, pool: &Arc<Pool>) -> bool {
        let way = Way { lane: &self.lane, worker: &active.worker, options: active.options() };
        let most = (pool.dirty_max() / 4).clamp(1, 256);
        if let Err(e) = self.hub.write_some(&way, pool, most) {
            lock(&self.late).get_or_insert(e);
        }
        pool.dirty_pages() < pool.dirty_max()
    }

    pub(super) fn flush(&self) -> Result<()> {
        let _open = read(&self.gate);
        self.flush_open(&self.active())
    }

    pub(super) fn flush_open(&self, active: &Active) -> Result<()> {
        let mut before = Ok(());
        if self.hub.is_caching() {
            let way = Way { lane: &self.lane, worker: &active.worker, options: active.options() };
            before = self.hub.clean(&way, &self.pages());
        }
        let flushed = self.exchange(active, Request::flush(), Op::Flush, Data::None);
        before.and(flushed.map(drop)).and(self.take_late())
    }

    pub(super) fn discard(&self, lba: u64, blocks: u64) -> Result<()> {
        let start = self.place("deallocate", lba, blocks)?;
        let _open = read(&self.gate);
        let active = self.active();
        let block = self.hub.block_bytes();
        let mut at = start;
        while at < start + blocks {
            // At most what a range has.
            let some = (start + blocks - at).min(1 << 20) as u32;
            let request = Request::discard(at, some);
            let passage = self.begin_write(&active, &request);
            let range = [BlockRange::new(Lba(at), some)];
            let given = self.exchange_in_turn(&active, request, Op::Deallocate(&range), Data::None);
            if let (Passage::Claimed(_), Ok(_)) = (passage, &given) {
                end_discard(&self.hub, at * block, u64::from(some) * block);
            }
            self.end_write(passage);
            given?;
            at += u64::from(some);
        }
        Ok(())
    }
}
