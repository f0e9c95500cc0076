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
use unvme_spec::{Nsid, Status};

use super::arbiter::{Arbiter, Lane, Turn};
use super::flight::{Batch, Flight, Flights, Work};
use super::inner::Inner;
use super::policy::{Completing, Policies, Queueing};
use super::table::{Claims, PAGE_64, Pool, Table, stripe_of};
use crate::worker::{Data, Done, Medium, Queues, Reason, Refused, Worker, WorkerOptions};
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

    /// Lets the device work, and ends what has ended of all handles. Returns whether there was anything.
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
        let queue = QueueOptions { depth, mode, ..QueueOptions::default() };
        let open = |queues| {
            let options = WorkerOptions { queue: queue.clone(), queues, threads: 0 };
            Worker::create(&self.name, &self.controller, Medium::Blocks(self.namespace), &options)
                .map(Arc::new)
        };
        if policies.queue == Queueing::Own {
            return open(Queues::Count(1));
        }
        let mut shared = lock(&self.shared[usize::from(interrupts)]);
        if let Some(worker) = shared.upgrade() {
            return Ok(worker);
        }
        let worker = open(Queues::PerCpu)?;
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
        for handle in self.everybody() {
            let worker = Arc::clone(&handle.active().worker);
            if !workers.iter().any(|known| Arc::ptr_eq(known, &worker)) {
                workers.push(worker);
            }
        }
        workers.iter().fold(false, |is_any, worker| self.harvest(worker) | is_any)
    }

    /// Ends what has ended of one worker.
    pub(super) fn harvest(&self, worker: &Worker) -> bool {
        let mut done: Vec<Done> = Vec::new();
        worker.poll(&mut done);
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

    /// Waits until nobody writes these pages, and claims them.
    pub(super) fn claim_to_write(&self, pages: &Range<u64>, worker: &Worker) -> u64 {
        let mut patience = None;
        loop {
            if let Some(claim) = lock(&self.claims).write(pages.clone()) {
                return claim;
            }
            if !self.desk.progress() {
                patience.get_or_insert_with(|| worker.nearest().first().patience()).pause();
            }
        }
    }

    /// Waits until nobody writes these pages.
    fn wait_for_writers(&self, pages: &Range<u64>, worker: &Worker) {
        let mut patience = worker.nearest().first().patience();
        while lock(&self.claims).is_written(pages) {
            if !self.desk.progress() {
                patience.pause();
            }
        }
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

    /// Writes pages of a pool that wait, all of those within a range or some, and waits for it.
    ///
    /// # Errors
    /// The first that could not be written; they wait on.
    pub(super) fn write_back(&self, way: &Way<'_>, within: &Range<u64>, most: u64) -> Result<()> {
        let batch = Arc::new(Batch::default());
        let mut written = 0;
        'stripes: for stripe in way.pool.waiting() {
            // A page that waits again after it was written is not looked at twice.
            let mut from = 0;
            loop {
                if written >= most {
                    break 'stripes;
                }
                match self.write_run(way, stripe, (from, within), &batch)? {
                    Some(pages) => {
                        written += pages.end - pages.start;
                        from = pages.end;
                    }
                    None => break,
                }
                self.wait_for(&batch, RUNS - 1, way.worker);
            }
        }
        self.wait_for(&batch, 0, way.worker);
        let mut result = Ok(());
        for (pages, error) in batch.take_failed() {
            // Of several pages one may be to blame.
            result = result.and(match pages.end - pages.start {
                1 => Err(error),
                _ => self.write_singly(way, pages),
            });
        }
        result
    }

    /// Writes pages one by one, those that wait of them.
    fn write_singly(&self, way: &Way<'_>, pages: Range<u64>) -> Result<()> {
        let batch = Arc::new(Batch::default());
        for page in pages {
            self.write_run(way, stripe_of(page), (page, &(page..page + 1)), &batch)?;
            self.wait_for(&batch, RUNS - 1, way.worker);
        }
        self.wait_for(&batch, 0, way.worker);
        batch.take_failed().into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    fn wait_for(&self, batch: &Batch, most: usize, worker: &Worker) {
        let mut patience = None;
        while batch.in_flight() > most {
            if !self.desk.progress() {
                patience.get_or_insert_with(|| worker.nearest().first().patience()).pause();
            }
        }
    }

    /// Sends the next pages of a stripe.
    fn write_run(
        &self,
        way: &Way<'_>,
        stripe: u64,
        (from, within): (u64, &Range<u64>),
        batch: &Arc<Batch>,
    ) -> Result<Option<Range<u64>>> {
        let most =
            RUN_PAGES.min(u64::from(self.namespace.transfer_blocks_max()) * self.block_bytes() / PAGE_64);
        let mut buf = self.alloc(RUN_PAGES * PAGE_64)?;
        let within = from.max(within.start)..within.end;
        let mut claims = lock(&self.claims);
        let begun = self.table.begin_writing(
            (way.pool, stripe),
            &within,
            most.max(1),
            |page| claims.is_written(&(page..page + 1)),
            |nth, page| buf.write((nth * PAGE_64) as usize, page),
        );
        let Some(pages) = begun else { return Ok(None) };
        let claim = claims.write(pages.clone());
        drop(claims);
        let blocks_end = self.namespace.blocks();
        let per_page = PAGE_64 / self.block_bytes();
        let start = pages.start * per_page;
        let blocks = (pages.end * per_page).min(blocks_end) - start;
        let bytes = blocks * self.block_bytes();
        self.wait_for_turn(&way.pool.lane, bytes, way.worker);
        batch.begin();
        let work =
            Work::WriteBack { pool: Arc::clone(way.pool), pages: pages.clone(), batch: Arc::clone(batch) };
        let mut flight = Flight::new(Arc::clone(&way.pool.lane), bytes, work, claim);
        let op =
            Op::Write(unvme_spec::nvm::BlockRange::new(unvme_spec::Lba(start), blocks as u32), way.options);
        let mut buf = Some(buf);
        loop {
            match self.launch(way.worker, usize::MAX, flight, (op, buf)) {
                Launch::Sent => return Ok(Some(pages)),
                Launch::Full(back, its) => (flight, buf) = (*back, its),
                Launch::Refused(flight, _, error) => {
                    flight.into_iter().for_each(|flight| flight.end(self, Status::ABORTED_BY_HOST, None));
                    return Err(error);
                }
            }
            self.desk.progress();
        }
    }

    /// Has everything of some pages that waits on the device.
    pub(super) fn clean(&self, worker: &Worker, within: &Range<u64>) -> Result<()> {
        let mut result = Ok(());
        for handle in self.everybody() {
            let active = handle.active();
            if let Some(pool) = &active.pool {
                let way = Way { pool, worker, options: active.options() };
                result = result.and(self.write_back(&way, within, u64::MAX));
                // Those that somebody else was writing, and that wait again because he could not.
                self.wait_for_writers(within, worker);
                result = result.and_then(|()| self.write_back(&way, within, u64::MAX));
            }
        }
        self.wait_for_writers(within, worker);
        result
    }
}

/// How what waits is written.
pub(super) struct Way<'a> {
    pub pool: &'a Arc<Pool>,
    pub worker: &'a Worker,
    pub options: WriteOptions,
}

/// What became of a command that was to be sent.
pub(super) enum Launch {
    Sent,
    /// The queue is full.
    Full(Box<Flight>, Option<DmaBuf>),
    Refused(Option<Box<Flight>>, Option<DmaBuf>, Error),
}
