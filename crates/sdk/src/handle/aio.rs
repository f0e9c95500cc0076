//! A handle at work: requests that nobody waits for.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use unvme_bus::DmaBuf;
use unvme_bus::lock::{lock, read, try_lock};
use unvme_spec::nvm::BlockRange;
use unvme_spec::{Lba, Status};

use super::arbiter::Turn;
use super::flight::{Flight, Submitted, Work, end_claim};
use super::hub::Launch;
use super::inner::{Active, Inner};
use super::policy::{CacheMode, Completing};
use super::request::{Completed, NotTaken, Request, RequestKind};
use super::table::{PAGE_64, pages_of};
use crate::worker::Manner;
use crate::{Error, Op};

/// Requests of a handle that may be outstanding.
pub const OUTSTANDING_MAX: usize = 4095;
/// Requests that may stand in line for their pages while those behind them are sent.
const BEHIND_MAX: usize = 32;

/// A request that was not sent yet.
#[derive(Debug)]
struct Waiting {
    request: Request,
    buf: Option<DmaBuf>,
    token: u64,
    turn: Turn,
    /// Its pages, which others write before it does.
    claim: Option<u64>,
}

/// Requests that were not sent, in the order of their turns.
#[derive(Debug, Default)]
pub(super) struct Line {
    list: VecDeque<Waiting>,
    /// None is to be sent now.
    pub is_held: bool,
}

impl Line {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }
}

/// Requests on the device whose times are learnt.
#[derive(Debug, Default)]
pub(super) struct Aloft {
    /// The oldest first.
    list: VecDeque<(Instant, RequestKind, u64)>,
    /// Somebody waits for the one that was sent then, and has looked a moment ago; or has slept since, and
    /// not looked yet, and the other way round.
    watched: Option<(Instant, Option<bool>)>,
}

impl Aloft {
    /// One that is over. Returns whether it is watched, and how.
    pub(super) fn remove(&mut self, sent: Instant) -> Option<(bool, Option<bool>)> {
        if let Some(at) = self.list.iter().position(|(then, ..)| *then == sent) {
            self.list.remove(at);
        }
        self.watched.map(|(watched, overslept)| (watched == sent, overslept))
    }
}

/// What became of a request that had its turn.
enum Outcome {
    OnItsWay,
    /// It was answered without the device.
    Answered(Completed),
    /// Somebody else writes there.
    Behind(Option<DmaBuf>),
    /// The queue is full.
    Full(Option<DmaBuf>),
}

impl Inner {
    /// What a request moves, which is what it takes of its lane.
    pub(super) fn bytes(&self, request: &Request) -> u64 {
        match request.kind {
            RequestKind::Read | RequestKind::Write => u64::from(request.blocks) * self.hub.block_bytes(),
            RequestKind::Flush | RequestKind::Discard => 0,
        }
    }

    fn check(&self, request: &mut Request, buf: Option<&DmaBuf>) -> Result<(), Error> {
        let (what, needs) = match request.kind {
            RequestKind::Read => ("read", true),
            RequestKind::Write => ("write", true),
            RequestKind::Discard => ("deallocate", false),
            RequestKind::Flush => return Ok(()),
        };
        request.lba = self.place(what, request.lba, request.blocks.into())?;
        let (bytes, most) = (self.bytes(request), self.hub.namespace.transfer_blocks_max());
        if needs && request.blocks > most {
            return Err(Error::Argument(format!(
                "{}: {what} {} blocks: one request has {most} at most",
                self.hub.name, request.blocks
            )));
        }
        if needs && buf.is_none_or(|buf| (buf.len() as u64) < bytes) {
            let has = buf.map_or(0, DmaBuf::len);
            return Err(Error::Argument(format!(
                "{}: {what} {bytes} bytes: the buffer has {has}",
                self.hub.name
            )));
        }
        Ok(())
    }

    pub(super) fn submit(
        self: &Arc<Self>,
        mut request: Request,
        buf: Option<DmaBuf>,
        token: u64,
    ) -> Result<(), NotTaken> {
        if let Err(error) = self.check(&mut request, buf.as_ref()) {
            return Err(NotTaken { error, is_full: false, buf });
        }
        if self.outstanding.load(Ordering::Relaxed) >= OUTSTANDING_MAX {
            let error = Error::Argument(format!(
                "{}: {OUTSTANDING_MAX} requests of a handle are outstanding: poll",
                self.hub.name
            ));
            return Err(NotTaken { error, is_full: true, buf });
        }
        let _open = read(&self.gate);
        let active = self.active();
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        let buf = match self.answer_at_once(&active, &request, buf, token) {
            Ok(()) => return Ok(()),
            Err(buf) => buf,
        };
        let mut line = lock(&self.line);
        // With the lock, so that they stand here in the order of their turns.
        let turn = self.hub.arbiter().enter(&self.lane, self.bytes(&request));
        line.list.push_back(Waiting { request, buf, token, turn, claim: None });
        self.send_from(&mut line);
        Ok(())
    }

    /// What needs no device. Else the buffer comes back.
    fn answer_at_once(
        &self,
        active: &Active,
        request: &Request,
        buf: Option<DmaBuf>,
        token: u64,
    ) -> Result<(), Option<DmaBuf>> {
        if !self.hub.is_caching() {
            return Err(buf);
        }
        let mut buf = buf;
        let byte = request.lba * self.hub.block_bytes();
        let bytes = self.bytes(request) as usize;
        let status = match (request.kind, &active.pool) {
            (RequestKind::Read, Some(pool)) => {
                let mut data = vec![0; bytes];
                if !self.hub.table.copy(byte, &mut data).is_empty() {
                    return Err(buf);
                }
                pool.cache.count_hits((bytes as u64).div_ceil(PAGE_64));
                buf.iter_mut().for_each(|buf| buf.write(0, &data));
                Status::SUCCESS
            }
            (RequestKind::Write, Some(pool)) if active.policies.cache.mode == CacheMode::WriteBack => {
                let mut data = vec![0; bytes];
                buf.iter().for_each(|buf| buf.read(0, &mut data));
                status_of(&self.write_back(active, pool, byte, &data))
            }
            (RequestKind::Flush, _) => status_of(&self.flush_open(active)),
            _ => return Err(buf),
        };
        self.completed(Completed { token, status, buf });
        Ok(())
    }

    /// Sends requests that have their turn, unless somebody is at it. Returns whether there were any.
    pub(super) fn send_waiting(self: &Arc<Self>) -> bool {
        try_lock(&self.line).is_some_and(|mut line| self.send_from(&mut line))
    }

    fn send_from(self: &Arc<Self>, line: &mut Line) -> bool {
        if line.is_held || line.list.is_empty() {
            return false;
        }
        let active = self.active();
        let (mut at, mut is_any) = (0, false);
        while let Some(next) = line.list.get_mut(at) {
            if !self.hub.arbiter().is_due(&self.lane, next.turn) {
                break;
            }
            next.turn = Turn::Now;
            match self.send(&active, next) {
                Outcome::OnItsWay => {}
                Outcome::Answered(completed) => {
                    self.hub.arbiter().leave(&self.lane, self.bytes(&next.request));
                    self.completed(completed);
                }
                Outcome::Behind(buf) => {
                    next.buf = buf;
                    // Those behind it may have their turn, too, and others wait until they have had it.
                    at += 1;
                    if at < BEHIND_MAX {
                        continue;
                    }
                    break;
                }
                Outcome::Full(buf) => {
                    next.buf = buf;
                    break;
                }
            }
            is_any = true;
            line.list.remove(at);
        }
        is_any
    }

    fn send(self: &Arc<Self>, active: &Active, next: &mut Waiting) -> Outcome {
        let hub = &self.hub;
        let (request, token) = (next.request, next.token);
        let (byte, bytes) = (request.lba * hub.block_bytes(), u64::from(request.blocks) * hub.block_bytes());
        let is_write = matches!(request.kind, RequestKind::Write | RequestKind::Discard);
        let mut claim = None;
        let mut sent = BlockRange::new(Lba(request.lba), request.blocks);
        let mut buf = next.buf.take();
        let work = if is_write && (next.claim.is_some() || !self.begin_bare_write()) {
            let mut claims = lock(&hub.claims);
            let its = *next.claim.get_or_insert_with(|| claims.write(pages_of(byte, bytes)));
            if !claims.holds(its) {
                return Outcome::Behind(buf);
            }
            claim = next.claim.take();
            match request.kind {
                RequestKind::Write => {
                    Work::Through { byte, bytes: bytes as usize, pool: active.pool.clone() }
                }
                _ => Work::Discard { byte, bytes },
            }
        } else if request.kind == RequestKind::Read && hub.is_caching() {
            match self.begin_fill(active, &request, &mut buf) {
                Ok((work, range, its)) => {
                    (claim, sent) = (its, range);
                    work
                }
                Err(status) => return Outcome::Answered(Completed { token, status, buf }),
            }
        } else {
            Work::Bare { is_write }
        };
        let mut flight = Flight::new(Arc::clone(&self.lane), self.bytes(&request), work, claim);
        let is_learnt = active.policies.completing == Completing::Hybrid;
        let sent_at = is_learnt.then(Instant::now);
        if let Some(now) = sent_at {
            lock(&self.aloft).list.push_back((now, request.kind, self.bytes(&request)));
        }
        flight.submitted = Some(Submitted { inner: Arc::clone(self), request, token, sent: sent_at });
        let ranges = [sent];
        let op = match request.kind {
            RequestKind::Read => Op::Read(sent, Default::default()),
            RequestKind::Write => Op::Write(sent, active.options()),
            RequestKind::Flush => Op::Flush,
            RequestKind::Discard => Op::Deallocate(&ranges),
        };
        self.take_off(active, flight, op, buf)
    }

    fn take_off(
        self: &Arc<Self>,
        active: &Active,
        flight: Flight,
        op: Op<'_>,
        buf: Option<DmaBuf>,
    ) -> Outcome {
        let hub = &self.hub;
        let (request, token) = match &flight.submitted {
            Some(submitted) => (submitted.request, submitted.token),
            None => return Outcome::Full(buf),
        };
        match hub.launch(&active.worker, Self::queue(active, &request), flight, (op, buf)) {
            Launch::Sent => Outcome::OnItsWay,
            Launch::Full(flight, buf) => Outcome::Full(flight.take_back(hub).or(buf)),
            Launch::Refused(flight, buf, error) => {
                tracing::warn!(what = hub.name, %error, "submit a request of a handle");
                let user = flight.and_then(|flight| flight.take_back(hub));
                Outcome::Answered(Completed { token, status: status_of(&Err(error)), buf: user.or(buf) })
            }
        }
    }

    /// A read while some handles have caches: what is there is copied. The rest is read in whole pages when
    /// they are to be kept, and else as it was asked for.
    fn begin_fill(
        &self,
        active: &Active,
        request: &Request,
        buf: &mut Option<DmaBuf>,
    ) -> Result<(Work, BlockRange, Option<u64>), Status> {
        let hub = &self.hub;
        let block = hub.block_bytes();
        let (byte, bytes) = (request.lba * block, self.bytes(request));
        let pages = pages_of(byte, bytes);
        let most = u64::from(hub.namespace.transfer_blocks_max()) * block;
        let whole = |pages: &Range<u64>| {
            pages.start * PAGE_64..(pages.end * PAGE_64).min(hub.namespace.blocks() * block)
        };
        // More than one command can have is not kept.
        let pool = active.pool.as_ref().filter(|_| whole(&pages).end - whole(&pages).start <= most);
        let mut data = vec![0; bytes as usize];
        let mut claims = lock(&hub.claims);
        let missing = hub.table.copy(byte, &mut data);
        let (Some(first), Some(last)) = (missing.first(), missing.last()) else {
            buf.iter_mut().for_each(|buf| buf.write(0, &data));
            return Err(Status::SUCCESS);
        };
        let all = first.start..last.end;
        let claim = pool.map(|_| claims.fill(all.clone()));
        drop(claims);
        if let Some(pool) = &active.pool {
            pool.cache.count_reads(missing.iter().map(|range| range.end - range.start).sum(), 0);
        }
        let is_all = missing.len() == 1 && all == pages;
        if is_all && pool.is_none() {
            let range = BlockRange::new(Lba(request.lba), request.blocks);
            return Ok((Work::Bare { is_write: false }, range, None));
        }
        if !is_all {
            buf.iter_mut().for_each(|buf| buf.write(0, &data));
        }
        let read = match pool {
            Some(_) => whole(&all),
            None => whole(&all).start.max(byte)..whole(&all).end.min(byte + bytes),
        };
        let into = hub.alloc(read.end - read.start).map_err(|e| {
            end_claim(hub, claim);
            status_of(&Err(e))
        })?;
        let Some(user) = buf.replace(into) else {
            end_claim(hub, claim);
            return Err(Status::INVALID_FIELD);
        };
        let range = BlockRange::new(Lba(read.start / block), ((read.end - read.start) / block) as u32);
        Ok((Work::Fill { start: read.start, user, missing, pool: pool.cloned() }, range, claim))
    }

    pub(super) fn completed(&self, completed: Completed) {
        lock(&self.ready).push(completed);
        // Pairs with the sequentially consistent count of one that looks a last time before it sleeps.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            // Somebody else has taken it off its queue.
            self.active().worker.nudge();
        }
    }

    pub(super) fn poll(self: &Arc<Self>, done: &mut Vec<Completed>) -> usize {
        let _open = read(&self.gate);
        let active = self.active();
        self.hub.harvest(&active.worker);
        if !lock(&self.line).list.is_empty() {
            // Others may be before, and those who sent them may not look.
            self.hub.desk.progress();
        }
        let mut ready = lock(&self.ready);
        let count = ready.len();
        done.append(&mut ready);
        self.outstanding.fetch_sub(count, Ordering::Release);
        count
    }

    /// Requests that were not sent end as the handle does. Nobody else is in line with its lane any more.
    pub(super) fn drop_waiting(&self) {
        let list = std::mem::take(&mut lock(&self.line).list);
        let granted = self.hub.arbiter().forget(&self.lane);
        for Waiting { buf, token, turn, request, claim } in list {
            end_claim(&self.hub, claim);
            if turn.is_among(granted) {
                self.hub.arbiter().leave(&self.lane, self.bytes(&request));
            }
            self.completed(Completed { token, status: Status::ABORTED_BY_HOST, buf });
        }
    }

    /// Waits until something can be polled, in the manner of the handle.
    pub(super) fn wait(self: &Arc<Self>, done: &mut Vec<Completed>, limit: Duration) -> usize {
        let started = Instant::now();
        let mut count = self.poll(done);
        if count > 0 || self.outstanding.load(Ordering::Relaxed) == 0 {
            return count;
        }
        let active = self.active();
        let oldest = lock(&self.aloft).list.front().copied();
        let manner = match oldest {
            Some((_, kind, bytes)) => self.manner(&active, kind, bytes),
            None if active.policies.completing == Completing::Hybrid => Manner::Patient,
            None => self.manner(&active, RequestKind::Read, 0),
        };
        // Not the interrupt of one queue, but of all.
        let bed = matches!(manner, Manner::Sleep).then(|| active.worker.bed()).flatten();
        if bed.is_some() {
            self.sleepers.fetch_add(1, Ordering::SeqCst);
        }
        let queue = active.worker.nearest().first();
        let sent = oldest.map_or(started, |(sent, ..)| sent);
        let (mut patience, mut line) = (queue.patience_in(manner).since(sent), queue.patience());
        while count == 0 && started.elapsed() < limit {
            if let Manner::Hybrid(_) = manner {
                lock(&self.aloft).watched = Some((sent, patience.overslept()));
            }
            count = self.poll(done);
            if count > 0 {
                break;
            }
            let is_in_line = lock(&self.line).len() > 0;
            match &bed {
                // What has to be sent first ends nobody's sleep.
                _ if is_in_line => line.pause(),
                Some(bed) => bed.doze(limit.saturating_sub(started.elapsed())),
                None => patience.pause(),
            }
        }
        if bed.is_some() {
            self.sleepers.fetch_sub(1, Ordering::Relaxed);
        }
        if let Manner::Hybrid(_) = manner {
            lock(&self.aloft).watched = None;
        }
        count
    }

    /// A request is over that was sent then. How long it took is known to those who look all the time, and of
    /// one that somebody has slept for.
    pub(super) fn learn(&self, request: &Request, sent: Instant) {
        let watched = lock(&self.aloft).remove(sent);
        let Some((is_watched, overslept)) = watched else { return };
        let habit = self.habits.of(request.kind, self.bytes(request));
        match (is_watched, overslept) {
            (true, _) => habit.note(sent.elapsed(), overslept),
            (false, Some(true)) => {}
            (false, _) => habit.learn(sent.elapsed()),
        }
    }
}

/// The status of an error, for those who get no more.
fn status_of(result: &Result<(), Error>) -> Status {
    match result {
        Ok(()) => Status::SUCCESS,
        Err(error) => error.status().unwrap_or(Status::INTERNAL_ERROR),
    }
}
