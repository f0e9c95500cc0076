//! Commands that were sent, and whose end somebody finds later.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use unvme_bus::DmaBuf;
use unvme_bus::lock::lock;
use unvme_spec::Status;

use super::arbiter::Lane;
use super::hub::{Failed, Hub, Run};
use super::inner::Inner;
use super::policy::CacheMode;
use super::request::{Completed, Request};
use super::table::{PAGE_64, Pool, slices};

/// What is to be done when a command has ended.
#[derive(Debug)]
pub(super) enum Work {
    /// Nothing: the buffer is the submitter's.
    Bare { is_write: bool },
    /// Bytes from `start` on were read, whole pages when a pool is to keep them; of these pages some are
    /// missing in the buffer of the submitter.
    Fill { start: u64, user: DmaBuf, missing: Vec<Range<u64>>, pool: Option<Arc<Pool>> },
    /// Blocks were written that may be in memory, or are to be.
    Through { byte: u64, bytes: usize, pool: Option<Arc<Pool>> },
    /// Blocks are not needed any more.
    Discard { byte: u64, bytes: u64 },
    /// Pages were written that had waited.
    WriteBack { run: Run, batch: Arc<Batch> },
}

/// Who submitted it.
#[derive(Debug)]
pub(super) struct Submitted {
    pub inner: Arc<Inner>,
    pub request: Request,
    pub token: u64,
    /// When it was sent, if that is to be learnt from.
    pub sent: Option<Instant>,
}

/// A command that was sent.
#[derive(Debug)]
pub(super) struct Flight {
    lane: Arc<Lane>,
    /// What it takes of its lane.
    bytes: u64,
    work: Work,
    claim: Option<u64>,
    pub submitted: Option<Submitted>,
}

impl Flight {
    pub(super) fn new(lane: Arc<Lane>, bytes: u64, work: Work, claim: Option<u64>) -> Self {
        Self { lane, bytes, work, claim, submitted: None }
    }

    /// Of a command that could not be sent: its claim is given up. Returns the buffer of the submitter that
    /// is not the one that travels.
    pub(super) fn take_back(self, hub: &Hub) -> Option<DmaBuf> {
        end_claim(hub, self.claim);
        if let Some(Submitted { inner, sent: Some(sent), .. }) = &self.submitted {
            lock(&inner.aloft).remove(*sent);
        }
        match self.work {
            Work::Fill { user, .. } => Some(user),
            Work::Bare { is_write } => {
                self.submitted.iter().filter(|_| is_write).for_each(|by| by.inner.end_bare_write());
                None
            }
            _ => None,
        }
    }

    /// It has ended.
    pub(super) fn end(self, hub: &Hub, status: Status, buf: Option<DmaBuf>) {
        let is_done = status.is_success();
        let mut buf = buf;
        match self.work {
            Work::Bare { is_write } => {
                if is_write {
                    self.submitted.iter().for_each(|submitted| submitted.inner.end_bare_write());
                }
                end_claim(hub, self.claim);
            }
            Work::Fill { start, mut user, missing, pool } => {
                let request = self.submitted.as_ref().map(|submitted| submitted.request);
                match (&buf, request) {
                    (Some(read), Some(request)) if is_done => {
                        let byte = request.lba * hub.block_bytes();
                        let bytes = u64::from(request.blocks) * hub.block_bytes();
                        hand_over(&mut user, (byte, bytes), read, (start, &missing));
                        end_fill(hub, self.claim, pool.as_ref(), (start, &missing), read);
                    }
                    _ => end_claim(hub, self.claim),
                }
                buf = Some(user);
            }
            Work::Through { byte, bytes, pool } => {
                let data = buf.as_ref().filter(|_| is_done).map(|buf| {
                    let mut data = vec![0; bytes];
                    buf.read(0, &mut data);
                    data
                });
                end_through(hub, pool.as_ref(), byte, data.as_deref().ok_or(bytes as u64));
                end_claim(hub, self.claim);
            }
            Work::Discard { byte, bytes } => {
                if is_done {
                    end_discard(hub, byte, bytes);
                }
                end_claim(hub, self.claim);
            }
            Work::WriteBack { run, batch } => {
                let pages = run.pages.clone();
                hub.table.end_writing(&run.pool, pages.clone(), is_done);
                end_claim(hub, self.claim);
                let per_page = PAGE_64 / hub.block_bytes();
                let (first, blocks) = (pages.start * per_page, (pages.end - pages.start) * per_page);
                let what = format!("write back {blocks} blocks from block {first}");
                buf.take().into_iter().for_each(|buf| batch.keep(buf));
                batch.end((!is_done).then(|| Failed { run, error: hub.refused(&what, status) }));
            }
        }
        hub.arbiter().leave(&self.lane, self.bytes);
        if let Some(Submitted { inner, token, request, sent }) = self.submitted {
            if let Some(sent) = sent {
                inner.learn(&request, sent);
            }
            inner.completed(Completed { token, status, buf });
        }
    }
}

/// Nobody has these pages any more.
pub(super) fn end_claim(hub: &Hub, claim: Option<u64>) {
    if let Some(claim) = claim {
        lock(&hub.claims).end(claim);
    }
}

/// Copies what was missing to the submitter.
fn hand_over(
    user: &mut DmaBuf,
    (byte, bytes): (u64, u64),
    read: &DmaBuf,
    (start, missing): (u64, &[Range<u64>]),
) {
    for range in missing {
        let first = (range.start * PAGE_64).max(byte);
        let end = (range.end * PAGE_64).min(byte + bytes);
        let (from, to) = ((first - start) as usize, (first - byte) as usize);
        read.region().copy_to(from, user.region(), to, (end - first) as usize);
    }
}

/// Keeps pages that were read, if nobody has written them meanwhile.
pub(super) fn end_fill(
    hub: &Hub,
    claim: Option<u64>,
    pool: Option<&Arc<Pool>>,
    (start, missing): (u64, &[Range<u64>]),
    read: &DmaBuf,
) {
    let Some(claim) = claim else { return };
    let mut claims = lock(&hub.claims);
    let may_keep = claims.end(claim);
    let Some(pool) = pool.filter(|_| may_keep) else { return };
    let mut page = [0; PAGE_64 as usize];
    // With the lock: nobody begins to write one of these pages in between.
    for index in missing.iter().cloned().flatten() {
        read.read((index * PAGE_64 - start) as usize, &mut page);
        hub.table.insert_clean(pool, index, &page);
    }
}

/// Blocks were written to the device, or could not be: what is there of them in memory follows. What is on
/// the device then is not known, but is read when somebody wants it.
pub(super) fn end_through(hub: &Hub, pool: Option<&Arc<Pool>>, byte: u64, data: Result<&[u8], u64>) {
    let data = match data {
        Ok(data) => data,
        Err(bytes) => return hub.table.drop_clean(super::table::pages_of(byte, bytes)),
    };
    hub.table.overlay(byte, data);
    let keeps =
        |pool: &&Arc<Pool>| matches!(pool.caching.mode, CacheMode::WriteThrough | CacheMode::WriteBack);
    if let Some(pool) = pool.filter(keeps) {
        for (page, _, range) in slices(byte, data.len()).filter(|(_, _, range)| range.len() as u64 == PAGE_64)
        {
            hub.table.insert_clean(pool, page, &data[range]);
        }
    }
}

/// Blocks were given back: pages that are all of them are gone, and of the others that part is zero.
pub(super) fn end_discard(hub: &Hub, byte: u64, bytes: u64) {
    let end = byte + bytes;
    let whole = byte.div_ceil(PAGE_64)..(end / PAGE_64).max(byte.div_ceil(PAGE_64));
    let zeros = [0; PAGE_64 as usize];
    hub.table.drop_pages(whole.clone());
    let head = byte..end.min(byte.next_multiple_of(PAGE_64));
    let tail = (end / PAGE_64 * PAGE_64).max(head.end)..end;
    for part in [head, tail] {
        if part.start < part.end {
            hub.table.overlay(part.start, &zeros[..(part.end - part.start) as usize]);
        }
    }
}

/// Commands that somebody waits for together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    in_flight: AtomicUsize,
    failed: Mutex<Vec<Failed>>,
    /// Buffers of those that have ended, for those that come.
    spares: Mutex<Vec<DmaBuf>>,
}

impl Batch {
    pub(super) fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self, failed: Option<Failed>) {
        lock(&self.failed).extend(failed);
        // Release: pairs with the Acquire of whoever waits.
        self.in_flight.fetch_sub(1, Ordering::Release);
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    pub(super) fn keep(&self, buf: DmaBuf) {
        lock(&self.spares).push(buf);
    }

    pub(super) fn take_spare(&self) -> Option<DmaBuf> {
        lock(&self.spares).pop()
    }

    /// What could not be written.
    pub(super) fn take_failed(&self) -> Vec<Failed> {
        std::mem::take(&mut *lock(&self.failed))
    }
}

/// All that are under way, by the tokens of the queues.
#[derive(Debug, Default)]
pub(super) struct Flights {
    places: Vec<Option<Flight>>,
    free: Vec<usize>,
}

impl Flights {
    pub(super) fn start(&mut self, flight: Flight) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(flight);
        place as u64
    }

    pub(super) fn land(&mut self, token: u64) -> Option<Flight> {
        let flight = self.places.get_mut(token as usize)?.take()?;
        self.free.push(token as usize);
        Some(flight)
    }
}
