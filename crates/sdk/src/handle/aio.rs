//! A handle at work: requests that nobody waits for.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use unvme_bus::DmaBuf;
use unvme_bus::lock::{lock, read};
use unvme_spec::nvm::BlockRange;
use unvme_spec::{Lba, Status};

use super::arbiter::Turn;
use super::flight::{Flight, Submitted, Work, end_claim};
use super::hub::Launch;
use super::inner::{Active, Inner};
use super::policy::{CacheMode, Completing, Schedule};
use super::request::{Completed, NotTaken, Request, RequestKind};
use super::table::{PAGE_64, pages_of};
use crate::worker::Manner;
use crate::{Error, Op};

/// Requests of a handle that may be outstanding.
pub const OUTSTANDING_MAX: usize = 4095;

/// A request that was not sent yet.
#[derive(Debug)]
pub(super) struct Waiting {
    request: Request,
    buf: Option<DmaBuf>,
    token: u64,
    turn: Turn,
}

/// What became of a request that had its turn.
enum Outcome {
    OnItsWay,
    /// It was answered without the device.
    Answered(Completed),
    /// It has to wait.
    Stays(Option<DmaBuf>),
}

impl Inner {
    fn bytes(&self, request: &Request) -> u64 {
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
        let turn = self.hub.arbiter().enter(&self.lane, self.bytes(&request));
        if active.policies.completing == Completing::Hybrid {
            *lock(&self.last) = Some((Instant::now(), request.kind, self.bytes(&request)));
        }
        lock(&self.waiting).push_back(Waiting { request, buf, token, turn });
        self.send_waiting(&active);
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

    /// Sends requests that have their turn.
    pub(super) fn send_waiting(self: &Arc<Self>, active: &Active) {
        let mut waiting = lock(&self.waiting);
        while let Some(first) = waiting.front_mut() {
            if !self.hub.arbiter().is_due(&self.lane, first.turn) {
                return;
            }
            first.turn = Turn::Now;
            let (request, token) = (first.request, first.token);
            match self.send(active, request, first.buf.take(), token) {
                Outcome::OnItsWay => {}
                Outcome::Answered(completed) => {
                    self.hub.arbiter().leave(&self.lane, self.bytes(&request));
                    self.completed(completed);
                }
                Outcome::Stays(buf) => {
                    first.buf = buf;
                    return;
                }
            }
            waiting.pop_front();
        }
    }

    fn send(self: &Arc<Self>, active: &Active, request: Request, buf: Option<DmaBuf>, token: u64) -> Outcome {
        let hub = &self.hub;
        let (byte, bytes) = (request.lba * hub.block_bytes(), u64::from(request.blocks) * hub.block_bytes());
        let pages = pages_of(byte, bytes);
        let is_write = matches!(request.kind, RequestKind::Write | RequestKind::Discard);
        let mut claim = None;
        let mut sent = BlockRange::new(Lba(request.lba), request.blocks);
        let mut buf = buf;
        let work = if is_write && !self.begin_bare_write() {
            claim = lock(&hub.claims).write(pages.clone());
            if claim.is_none() {
                return Outcome::Stays(buf);
            }
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
        flight.submitted = Some(Submitted { inner: Arc::clone(self), request, token });
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
            None => return Outcome::Stays(buf),
        };
        match hub.launch(&active.worker, Self::queue(active, &request), flight, (op, buf)) {
            Launch::Sent => Outcome::OnItsWay,
            Launch::Full(flight, buf) => Outcome::Stays(flight.take_back(hub).or(buf)),
            Launch::Refused(flight, buf, error) => {
                tracing::warn!(what = hub.name, %error, "submit a request of a handle");
                let user = flight.and_then(|flight| flight.take_back(hub));
                Outcome::Answered(Completed { token, status: status_of(&Err(error)), buf: user.or(buf) })
            }
        }
    }

    /// A read of pages that are not all there: what is there is copied.
    fn begin_fill(
        &self,
        active: &Active,
        request: &Request,
        buf: &mut Option<DmaBuf>,
    ) -> Result<(Work, BlockRange, Option<u64>), Status> {
        let hub = &self.hub;
        let (byte, bytes) = (request.lba * hub.block_bytes(), self.bytes(request));
        let pages = pages_of(byte, bytes);
        let mut data = vec![0; bytes as usize];
        let mut claims = lock(&hub.claims);
        let missing = hub.table.copy(byte, &mut data);
        if missing.is_empty() || missing.len() > 1 || missing.first() != Some(&pages) {
            buf.iter_mut().for_each(|buf| buf.write(0, &data));
        }
        let (Some(first), Some(last)) = (missing.first(), missing.last()) else {
            return Err(Status::SUCCESS);
        };
        let whole = first.start..last.end;
        let claim = active.pool.as_ref().map(|_| claims.fill(whole.clone()));
        drop(claims);
        if let Some(pool) = &active.pool {
            pool.cache.count_reads(missing.iter().map(|range| range.end - range.start).sum(), 0);
        }
        let read = hub.alloc((whole.end - whole.start) * PAGE_64).map_err(|e| {
            end_claim(hub, claim);
            status_of(&Err(e))
        })?;
        let Some(user) = buf.replace(read) else { return Err(Status::INVALID_FIELD) };
        let end = (whole.end * PAGE_64).min(hub.namespace.blocks() * hub.block_bytes());
        let start = whole.start * PAGE_64;
        let range =
            BlockRange::new(Lba(start / hub.block_bytes()), ((end - start) / hub.block_bytes()) as u32);
        Ok((Work::Fill { pages: whole, user, missing, pool: active.pool.clone() }, range, claim))
    }

    pub(super) fn completed(&self, completed: Completed) {
        lock(&self.ready).push(completed);
        // Pairs with the sequentially consistent count of one that looks a last time before it sleeps.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            // Somebody else may have taken the interrupt.
            self.active().worker.nudge();
        }
    }

    pub(super) fn poll(self: &Arc<Self>, done: &mut Vec<Completed>) -> usize {
        let _open = read(&self.gate);
        let active = self.active();
        self.hub.harvest(&active.worker);
        if !lock(&self.waiting).is_empty() {
            // Others may be before, and those who sent them may not look.
            self.hub.desk.progress();
            self.send_waiting(&active);
        }
        let mut ready = lock(&self.ready);
        let count = ready.len();
        done.append(&mut ready);
        self.outstanding.fetch_sub(count, Ordering::Release);
        count
    }

    /// Requests that were not sent end as the handle does.
    pub(super) fn drop_waiting(&self) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        // What is in line there leaves when its turn has come, which is at once.
        self.hub.arbiter().set(&self.lane, Schedule::Priority(u8::MAX), None);
        for Waiting { buf, token, turn, request } in waiting {
            while !self.hub.arbiter().is_due(&self.lane, turn) {
                if !self.hub.desk.progress() {
                    std::thread::yield_now();
                }
            }
            self.hub.arbiter().leave(&self.lane, self.bytes(&request));
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
        let last = *lock(&self.last);
        let (sent, kind, bytes) = last.unwrap_or((started, RequestKind::Read, 0));
        let manner = self.manner(&active, kind, bytes);
        if let Manner::Sleep = manner {
            self.sleepers.fetch_add(1, Ordering::SeqCst);
        }
        let queue = active.worker.nearest().first();
        let (mut patience, mut line) = (queue.patience_in(manner).since(sent), queue.patience());
        while count == 0 && started.elapsed() < limit {
            count = self.poll(done);
            if count > 0 {
                break;
            }
            let is_in_line = !lock(&self.waiting).is_empty();
            match manner {
                // Not the interrupt of one queue, but of all.
                Manner::Sleep if !is_in_line && active.worker.doze(limit) => {}
                // What has to be sent first ends nobody's sleep.
                _ if is_in_line => line.pause(),
                _ => patience.pause(),
            }
        }
        if let Manner::Sleep = manner {
            self.sleepers.fetch_sub(1, Ordering::Relaxed);
        }
        if count > 0 {
            patience.end();
        }
        count
    }
}

/// The status of an error, for those who get no more.
fn status_of(result: &Result<(), Error>) -> Status {
    match result {
        Ok(()) => Status::SUCCESS,
        Err(error) => error.status().unwrap_or(Status::INTERNAL_ERROR),
    }
}
