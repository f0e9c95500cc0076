//! What the handles of a namespace share, and the namespaces of a device.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::time::Duration;

use unvme_bus::Clock;
use unvme_bus::lock::{lock, read, write};
use unvme_driver::{
    CompletionMode, Controller, DmaBuf, Error as DriverError, Namespace, QueueOptions, WriteOptions,
};
use unvme_spec::nvm::BlockRange;
use unvme_spec::{Lba, Nsid, Status};

use super::arbiter::{Arbiter, Lane, Turn};
use super::claims::Claims;
use super::flight::{Batch, Flight, Flights, Work};
use super::inner::Inner;
use super::policy::{Completing, Policies, Queueing};
use super::table::{PAGE_64, Pool, Table};
use crate::worker::{
    BATCH, Data, Done, Medium, Queues, Reason, Refused, Worker, WorkerOptions, allowed_cpus,
};
use crate::{Error, Op, Result};

/// Commands of a queue of handles.
const DEPTH: u16 = 1023;
/// Pages of one command that writes what has waited: 128 KiB.
const RUN_PAGES: u64 = 32;
/// Such commands that are in flight at a time.
const RUNS: usize = 8;

/// What all handles of an opened device share.
#[derive(Debug)]
pub(crate) struct Desk {
    arbiter: Arc<Arbiter>,
    hubs: Mutex<Vec<Weak<Hub>>>,
}

impl Desk {
    pub(crate) fn new(clock: &Clock) -> Arc<Self> {
        Arc::new(Self { arbiter: Arc::new(Arbiter::new(clock.clone())), hubs: Mutex::default() })
    }

    pub(super) fn arbiter(&self) -> &Arc<Arbiter> {
        &self.arbiter
    }

    /// The handles of a namespace.
    pub(super) fn hub(
        self: &Arc<Self>,
        name: &str,
        controller: &Controller,
        namespace: Namespace,
    ) -> Arc<Hub> {
        let mut hubs = lock(&self.hubs);
        hubs.retain(|hub| hub.strong_count() > 0);
        let known =
            hubs.iter().filter_map(Weak::upgrade).find(|hub| hub.namespace.nsid() == namespace.nsid());
        known.unwrap_or_else(|| {
            let hub = Arc::new(Hub {
                desk: Arc::clone(self),
                name: format!("{name} namespace {}", namespace.nsid()),
                controller: controller.clone(),
                namespace,
                shared: [const { Mutex::new(Weak::new()) }; 2],
                table: Table::new(),
                claims: Mutex::default(),
                caching: AtomicUsize::new(0),
                handles: RwLock::default(),
                flights: Mutex::default(),
            });
            hubs.push(Arc::downgrade(&hub));
            hub
        })
    }

    /// Lets the device work, ends what has ended of all handles, and sends what has its turn by now: those to
    /// whom it belongs may not look, and others would wait for it. Returns whether there was anything.
    pub(super) fn progress(&self) -> bool {
        let hubs: Vec<_> = lock(&self.hubs).iter().filter_map(Weak::upgrade).collect();
        hubs.iter().fold(false, |is_any, hub| hub.progress() | is_any)
    }
}

/// What the handles of a namespace share.
#[derive(Debug)]
pub(super) struct Hub {
    pub desk: Arc<Desk>,
    /// Device and namespace, for errors.
    pub name: String,
    pub controller: Controller,
    pub namespace: Namespace,
    /// The queue pairs that handles share: those that are looked at, and those that interrupt.
    shared: [Mutex<Weak<Worker>>; 2],
    pub table: Table,
    pub claims: Mutex<Claims>,
    /// Handles with a cache.
    pub caching: AtomicUsize,
    pub handles: RwLock<Vec<Weak<Inner>>>,
    pub flights: Mutex<Flights>,
}

impl Hub {
    pub(super) fn arbiter(&self) -> &Arbiter {
        self.desk.arbiter()
    }

    pub(super) fn nsid(&self) -> Nsid {
        self.namespace.nsid()
    }

    pub(super) fn block_bytes(&self) -> u64 {
        self.namespace.block_bytes().into()
    }

    /// Pages of the namespace; the last one may be more than it has.
    pub(super) fn pages(&self) -> u64 {
        (self.namespace.blocks() * self.block_bytes()).div_ceil(PAGE_64)
    }

    pub(super) fn is_caching(&self) -> bool {
        self.caching.load(Ordering::SeqCst) > 0
    }

    /// The queue pairs for such policies.
    pub(super) fn worker(&self, policies: &Policies) -> Result<Arc<Worker>> {
        let interrupts = policies.completing == Completing::Interrupt;
        let mode = if interrupts { CompletionMode::Interrupt } else { CompletionMode::Poll };
        let depth = DEPTH.min(self.controller.queue_depth_max());
        let queue = QueueOptions { depth, mode, priority: policies.class(), ..QueueOptions::default() };
        let open = |queues| {
            let options = WorkerOptions { queue: queue.clone(), queues, threads: 0 };
            Worker::create(&self.name, &self.controller, Medium::Blocks(self.namespace), &options)
                .map(Arc::new)
        };
        if policies.queue == Queueing::Own || policies.class().is_some() {
            return open(Queues::Count(1));
        }
        let mut shared = lock(&self.shared[usize::from(interrupts)]);
        if let Some(worker) = shared.upgrade() {
            return Ok(worker);
        }
        // No more than half of what there is, beside those of the other kind and those that have their own.
        let most = (self.controller.queues_max() / 2).max(1);
        let per_cpu = allowed_cpus().len() <= most;
        let worker = open(if per_cpu { Queues::PerCpu } else { Queues::Count(most as u32) })?;
        *shared = Arc::downgrade(&worker);
        Ok(worker)
    }

    /// An error of a command, with where it was.
    pub(super) fn refused(&self, what: &str, status: Status) -> Error {
        Error::refused(format!("{}: {what}", self.name), status, &self.controller)
    }

    pub(super) fn failed(&self, source: DriverError) -> Error {
        Error::driver(self.name.as_str(), source)
    }

    /// A buffer of so many bytes.
    pub(super) fn alloc(&self, bytes: u64) -> Result<DmaBuf> {
        self.controller.alloc(bytes as usize).map_err(|e| self.failed(e))
    }

    /// All handles that are open.
    pub(super) fn everybody(&self) -> Vec<Arc<Inner>> {
        read(&self.handles).iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn join(&self, handle: &Arc<Inner>) {
        let mut handles = write(&self.handles);
        handles.retain(|handle| handle.strong_count() > 0);
        handles.push(Arc::downgrade(handle));
    }

    /// As [`Desk::progress`], of one namespace.
    pub(super) fn progress(&self) -> bool {
        let mut workers: Vec<Arc<Worker>> = Vec::new();
        let handles = self.everybody();
        for handle in &handles {
            let worker = Arc::clone(&handle.active().worker);
            if !workers.iter().any(|known| Arc::ptr_eq(known, &worker)) {
                workers.push(worker);
            }
        }
        let is_any = workers.iter().fold(false, |is_any, worker| self.harvest(worker) | is_any);
        handles.iter().fold(is_any, |is_any, handle| handle.send_waiting() | is_any)
    }

    /// Ends what has ended of one worker.
    pub(super) fn harvest(&self, worker: &Worker) -> bool {
        let mut done: Vec<Done> = Vec::new();
        // All that is there: somebody may sleep who waits for the last one.
        let most = usize::from(DEPTH) / BATCH + 1;
        let _ = (0..most).find(|_| worker.poll(&mut done) < BATCH);
        let is_any = !done.is_empty();
        for done in done {
            // The lock is not held over the end of a command, which may take others.
            let flight = lock(&self.flights).land(done.token);
            if let Some(flight) = flight {
                let is_copy = done.is_copy();
                flight.end(self, done.status, done.buf.filter(|_| !is_copy));
            }
        }
        is_any
    }

    /// Waits for a turn.
    pub(super) fn wait_for_turn(&self, lane: &Arc<Lane>, bytes: u64, worker: &Worker) {
        let turn = self.arbiter().enter(lane, bytes);
        if turn != Turn::Now {
            self.stand_in_line(lane, turn, worker);
        }
    }

    #[cold]
    fn stand_in_line(&self, lane: &Arc<Lane>, turn: Turn, worker: &Worker) {
        /// What is slept of the time that a limit takes, at most: others may change it.
        const NAP: Duration = Duration::from_millis(1);
        /// What is worth a sleep.
        const NAP_MIN: Duration = Duration::from_micros(100);
        let queue = worker.nearest().first();
        let mut patience = queue.patience();
        while !self.arbiter().is_due(lane, turn) {
            // Those who are before may be waiting for somebody to look.
            if self.desk.progress() {
                continue;
            }
            let idle = self.arbiter().idle(lane);
            match self.arbiter().clock() {
                clock @ Clock::Virtual(_) if !idle.is_zero() => clock.advance(idle.min(NAP)),
                Clock::Wall(_) if idle > NAP_MIN => std::thread::sleep((idle - NAP_MIN / 2).min(NAP)),
                _ => patience.pause(),
            }
        }
    }

    /// Claims pages to write, and waits until the claim holds.
    pub(super) fn claim_to_write(&self, pages: &Range<u64>, worker: &Worker) -> u64 {
        let claim = lock(&self.claims).write(pages.clone());
        self.wait_until(worker, || lock(&self.claims).holds(claim));
        claim
    }

    /// Sends a command whose end nobody waits for by itself, to the queue of an index or else to the nearest.
    pub(super) fn launch(
        &self,
        worker: &Worker,
        queue: usize,
        flight: Flight,
        (op, buf): (Op<'_>, Option<DmaBuf>),
    ) -> Launch {
        let token = lock(&self.flights).start(flight);
        let route = match worker.queues().get(queue) {
            Some(chosen) => chosen.route(),
            None => worker.nearest(),
        };
        match route.submit(op, buf.map_or(Data::None, Data::Lent), token) {
            Ok(()) => Launch::Sent,
            Err(Refused { reason, buf }) => {
                let flight = lock(&self.flights).land(token).map(Box::new);
                match (reason, flight) {
                    (Reason::Full, Some(flight)) => Launch::Full(flight, buf),
                    (reason, flight) => Launch::Refused(flight, buf, Error::from(Refused::from(reason))),
                }
            }
        }
    }

    /// Pages of one command at most.
    fn run_pages(&self) -> u64 {
        let most = u64::from(self.namespace.transfer_blocks_max()) * self.block_bytes() / PAGE_64;
        most.clamp(1, RUN_PAGES)
    }

    /// Writes all pages of a pool that wait.
    ///
    /// # Errors
    /// The first that could not be written; they wait on.
    pub(super) fn write_all(&self, way: &Way<'_>, pool: &Arc<Pool>) -> Result<()> {
        let runs = self.table.waiting(pool, &(0..self.pages()), (self.run_pages(), u64::MAX), |_| true);
        self.write_back(way, runs.into_iter().map(|pages| Run::new(pool, way.options, pages)).collect())
    }

    /// Writes about so many pages of a pool that wait, and that nobody writes.
    ///
    /// # Errors
    /// As [`Hub::write_all`].
    pub(super) fn write_some(&self, way: &Way<'_>, pool: &Arc<Pool>, most: u64) -> Result<()> {
        let claims = lock(&self.claims);
        let is_free = |page| !claims.is_written(&(page..page + 1));
        let runs = self.table.waiting(pool, &(0..self.pages()), (self.run_pages(), most), is_free);
        drop(claims);
        self.write_back(way, runs.into_iter().map(|pages| Run::new(pool, way.options, pages)).collect())
    }

    /// Has everything of some pages that waits on the device, and what others are writing back.
    ///
    /// # Errors
    /// As [`Hub::write_all`].
    pub(super) fn clean(&self, way: &Way<'_>, within: &Range<u64>) -> Result<()> {
        let mut runs = Vec::new();
        let handles = self.everybody();
        // With the lock: whoever writes a page back has claimed it before it waits no longer, and until it
        // is written or waits again. So what is found is all there is, and what comes later is not.
        let claims = lock(&self.claims);
        for active in handles.iter().map(|handle| handle.active()) {
            if let Some(pool) = &active.pool {
                let found = self.table.waiting(pool, within, (self.run_pages(), u64::MAX), |_| true);
                runs.extend(found.into_iter().map(|pages| Run::new(pool, active.options(), pages)));
            }
        }
        // He who writes them back may fail. A longer claim is of somebody who writes or gives back directly.
        for page in claims.written(within).filter(|pages| pages.end - pages.start <= RUN_PAGES).flatten() {
            if let Some(pool) = self.table.writing(page) {
                runs.push(Run::new(&pool, way.options, page..page + 1));
            }
        }
        drop(claims);
        self.write_back(way, runs)
    }

    /// Writes pages back, those of them that wait, and waits for it.
    fn write_back(&self, way: &Way<'_>, runs: Vec<Run>) -> Result<()> {
        let batch = Arc::new(Batch::default());
        let mut result = self.write_runs(way, runs, &batch);
        let mut again = Vec::new();
        for Failed { run, error } in batch.take_failed() {
            match run.pages.end - run.pages.start {
                1 => result = result.and(Err(error)),
                // Of several pages one may be to blame.
                _ => again.extend(run.pages.map(|page| Run::new(&run.pool, run.options, page..page + 1))),
            }
        }
        let written = self.write_runs(way, again, &batch);
        let failed = batch.take_failed().into_iter().next().map_or(Ok(()), |failed| Err(failed.error));
        result.and(written).and(failed)
    }

    /// Nothing is under way any more when this returns, whatever it returns.
    fn write_runs(&self, way: &Way<'_>, runs: Vec<Run>, batch: &Arc<Batch>) -> Result<()> {
        let mut result = Ok(());
        'runs: for run in runs {
            let mut rest = run;
            while !rest.pages.is_empty() {
                match self.write_run(way, &rest, batch) {
                    Ok(end) => rest.pages.start = end,
                    Err(error) => {
                        result = Err(error);
                        break 'runs;
                    }
                }
                self.wait_for(batch, RUNS - 1, way.worker);
            }
        }
        self.wait_for(batch, 0, way.worker);
        result
    }

    fn wait_for(&self, batch: &Batch, most: usize, worker: &Worker) {
        self.wait_until(worker, || batch.in_flight() <= most);
    }

    /// Lets the device work, and all handles, until something is so; a virtual clock moves meanwhile.
    pub(super) fn wait_until(&self, worker: &Worker, mut is_so: impl FnMut() -> bool) {
        let mut patience = None;
        while !is_so() {
            if !self.desk.progress() {
                patience.get_or_insert_with(|| worker.nearest().first().patience()).pause();
            }
        }
    }

    /// Sends the first pages of a run that wait, when it is their turn. Returns up to where they have been
    /// looked at.
    fn write_run(&self, way: &Way<'_>, run: &Run, batch: &Arc<Batch>) -> Result<u64> {
        let mut buf = batch.take_spare().map_or_else(|| self.alloc(RUN_PAGES * PAGE_64), Ok)?;
        let per_page = PAGE_64 / self.block_bytes();
        let blocks_of = |pages: &Range<u64>| {
            let start = pages.start * per_page;
            BlockRange::new(Lba(start), ((pages.end * per_page).min(self.namespace.blocks()) - start) as u32)
        };
        let bytes = u64::from(blocks_of(&run.pages).blocks) * self.block_bytes();
        self.wait_for_turn(way.lane, bytes, way.worker);
        let claim = self.claim_to_write(&run.pages, way.worker);
        let copy = |nth: u64, page: &[u8]| buf.write((nth * PAGE_64) as usize, page);
        let Some(pages) = self.table.begin_writing(&run.pool, &run.pages, copy) else {
            // Somebody has written them meanwhile.
            lock(&self.claims).end(claim);
            self.arbiter().leave(way.lane, bytes);
            batch.keep(buf);
            return Ok(run.pages.end);
        };
        let end = pages.end;
        batch.begin();
        let op = Op::Write(blocks_of(&pages), run.options);
        let work = Work::WriteBack { run: Run { pages, ..run.clone() }, batch: Arc::clone(batch) };
        let mut flight = Flight::new(Arc::clone(way.lane), bytes, work, Some(claim));
        let (mut buf, mut patience) = (Some(buf), None);
        loop {
            match self.launch(way.worker, usize::MAX, flight, (op, buf)) {
                Launch::Sent => return Ok(end),
                Launch::Full(back, its) => (flight, buf) = (*back, its),
                Launch::Refused(flight, _, error) => {
                    flight.into_iter().for_each(|flight| flight.end(self, Status::ABORTED_BY_HOST, None));
                    return Err(error);
                }
            }
            if !self.desk.progress() {
                patience.get_or_insert_with(|| way.worker.nearest().first().patience()).pause();
            }
        }
    }
}

/// How what waits is written.
pub(super) struct Way<'a> {
    /// Whose turn it takes.
    pub lane: &'a Arc<Lane>,
    pub worker: &'a Worker,
    pub options: WriteOptions,
}

/// Pages of a pool, of a chunk, to be written back.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub pool: Arc<Pool>,
    /// As the handle writes whose pool it is.
    pub options: WriteOptions,
    pub pages: Range<u64>,
}

impl Run {
    fn new(pool: &Arc<Pool>, options: WriteOptions, pages: Range<u64>) -> Self {
        Self { pool: Arc::clone(pool), options, pages }
    }
}

/// Pages that could not be written back, and why.
#[derive(Debug)]
pub(super) struct Failed {
    pub run: Run,
    pub error: Error,
}

/// What became of a command that was to be sent.
pub(super) enum Launch {
    Sent,
    /// The queue is full.
    Full(Box<Flight>, Option<DmaBuf>),
    Refused(Option<Box<Flight>>, Option<DmaBuf>, Error),
}

#[cfg(all(test, feature = "local"))]
mod tests;
