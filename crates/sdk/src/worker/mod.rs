//! The queue pairs of a namespace, shared by any number of threads.
//!
//! A [`crate::BlockQueue`] or [`crate::KvQueue`] has one owner, and is the fastest there is. A [`Worker`] is
//! for programs whose threads do not each have a queue: file systems, caches, libraries that anybody calls.
//! It has queue pairs, one for each CPU unless it is told otherwise, and every thread may use it in each of
//! three ways, side by side:
//!
//! - [`Worker::call`] waits;
//! - [`Worker::submit`] returns at once, and the completion comes with its token out of [`Worker::poll`],
//!   whoever calls that;
//! - [`Worker::run`] is a future, for any executor.
//!
//! ```
//! use unvme::worker::{Data, WorkerOptions};
//! use unvme::{Nsid, Op, OpenOptions, open};
//!
//! # fn main() -> Result<(), unvme::Error> {
//! let device = open("mem:block:64M", &OpenOptions::default())?;
//! let worker = device.block(Nsid(1))?.worker(&WorkerOptions::default())?;
//! std::thread::scope(|scope| {
//!     for thread in 0..8u8 {
//!         let worker = &worker;
//!         scope.spawn(move || {
//!             let lba = u64::from(thread) * 8;
//!             worker.call(Op::write(lba, 1), Data::Out(&[thread; 512])).expect("write");
//!             worker.submit(Op::read(lba, 1), Data::None, lba).expect("read");
//!         });
//!     }
//! });
//! let mut done = Vec::new();
//! while done.len() < 8 {
//!     worker.poll(&mut done);
//! }
//! for read in &done {
//!     let data = read.buf.as_ref().expect("what was read").to_vec();
//!     assert_eq!(data, [read.token as u8 / 8; 512]);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # The contract
//!
//! **Who may call what.** Everything, from any thread, at any time; nothing takes `&mut`. No lock is held
//! while somebody waits, and none while code of the caller runs, but for the cloning of a waker.
//!
//! **Which queue.** That of the CPU the caller is on, as [`Worker::nearest`] says. Those who wait take
//! another when it is busy; what is submitted with a token stays there. A thread that wants a queue of its
//! own choice keeps a [`SharedQueue`] of [`Worker::queues`] and calls that, which has the same methods.
//!
//! **Order.** None between commands, as everywhere in NVMe: whoever writes what must not be overtaken waits
//! for the first completion before the second submission. Completions of one queue come out of `poll` in the
//! order in which the device completed them. [`crate::Op::Flush`] covers what has completed, not what is
//! under way.
//!
//! **Bounds.** A queue takes as many commands as it is deep ([`crate::QueueOptions::depth`], up to
//! [`crate::DEPTH_MAX`]). [`Reason::Full`] is the answer of `submit` beyond that, and when as many
//! completions wait to be polled; `call` waits for a place as long as a command may take; futures wait in
//! line, and a place that gets free is theirs first.
//!
//! **Memory.** What is lent travels with the command and comes back with the completion or the refusal. It
//! belongs to the device in between, also when the call is a future that is dropped. What is not lent is
//! copied, by way of a buffer from the controller's pool; small calls share one that each queue keeps.
//!
//! **Progress.** Time-outs, resets and lost connections are dealt with by whoever looks at a queue: a caller
//! who waits, a poller, or a completion thread ([`WorkerOptions::threads`]). A device inside this process
//! works only while somebody looks.
//!
//! **The end.** A device that is lost ends what it has with [`unvme_spec::Status::ABORTED_BY_HOST`], each
//! command once; what comes after is refused with [`crate::DriverError::Gone`]. [`Worker::close`] ends
//! everything the same way: what waits returns, what has a token still comes out of `poll`.
//!
//! **fork.** A child must not use, nor drop, a worker of its parent: the device and its memory are the
//! parent's. It opens the device for itself, or replaces itself with another program, and leaves with `_exit`
//! otherwise.
//!
//! What it does not implement: buffers in several pieces, and calls of more than one command.

mod bed;
mod command;
mod core;
mod descriptor;
mod future;
mod manner;
mod patience;
mod queue;
mod route;
mod sleeper;
mod thread;
mod waiters;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use unvme_bus::lock;
use unvme_driver::{CompletionMode, Controller, DmaBuf, Error as DriverError, Queue, QueueOptions};

use crate::{Device, Error, Op, Result};

use bed::Bed;
pub use command::{Command, Data, Done, Load, Medium, Reason, Refused};
pub use future::Run;
pub use manner::{Habit, Manner};
pub use patience::Patience;
pub use queue::{BATCH, SPARE_BYTES, SharedQueue, Submitter};
pub use route::Route;
pub use thread::{CompletionThread, Deliver};

/// In place of an index: the CPU has no queue of its own.
const NONE: u16 = u16::MAX;

/// How many queue pairs a [`Worker`] has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Queues {
    /// One for each CPU this process may use, or fewer when the controller has not as many; one is left for
    /// others.
    #[default]
    PerCpu,
    /// So many, for the CPUs in turn.
    Count(u32),
    /// One for each of these CPUs. Threads on others take them in turn.
    Cpus(Vec<u32>),
}

/// How a [`Worker`] is made.
///
/// ```
/// use unvme::worker::{Queues, WorkerOptions};
/// use unvme::QueueOptions;
///
/// // Two queues of 1,000 commands, and a thread that sleeps until there is something to tell.
/// let options = WorkerOptions {
///     queue: QueueOptions { depth: 1000, ..QueueOptions::default() },
///     queues: Queues::Count(2),
///     threads: 1,
/// };
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
pub struct WorkerOptions {
    /// Each of the queues. [`CompletionMode::Interrupt`] asks the device to interrupt, for those who watch
    /// the descriptor; with threads it is asked anyway, where it can.
    pub queue: QueueOptions,
    /// How many queues.
    pub queues: Queues,
    /// Completion threads, which serve the queues in turn. Without any, progress is made by those who wait
    /// and poll.
    pub threads: usize,
}

/// The queue pairs of a namespace, for all threads. See the [module](self) for what is promised.
///
/// ```
/// use unvme::worker::{Data, WorkerOptions};
/// use unvme::{Nsid, Op, OpenOptions, open};
///
/// # fn main() -> Result<(), unvme::Error> {
/// let device = open("mem:kv:64M", &OpenOptions::default())?;
/// let worker = device.kv(Nsid(1))?.worker(&WorkerOptions::default())?;
/// worker.call(Op::store(&b"user:1"[..], 3), Data::Out(b"Ada"))?;
/// let mut name = [0; 16];
/// let done = worker.call(Op::retrieve(&b"user:1"[..], 16), Data::In(&mut name))?;
/// assert_eq!((&name[..done.bytes], done.value_bytes), (&b"Ada"[..], 3));
/// # Ok(())
/// # }
/// ```
pub struct Worker {
    /// First: what serves the queues ends before they do.
    threads: Mutex<Vec<CompletionThread>>,
    queues: Box<[Arc<SharedQueue>]>,
    medium: Medium,
    /// Index of the queue of each CPU, or [`NONE`].
    by_cpu: Box<[u16]>,
    /// Whose turn it is among those without.
    turn: AtomicUsize,
    /// The last CPU that got no queue because there was none left, and why.
    shortage: Option<(u32, String)>,
    descriptor: Mutex<Option<Arc<OwnedFd>>>,
}

impl Worker {
    /// Makes the queues for a namespace of `device`. [`crate::Block::worker`] and [`crate::Kv::worker`] are
    /// the short ways.
    ///
    /// # Errors
    /// [`Error::Argument`] for options out of range, [`Error::Driver`] when not a single queue is left.
    pub fn open(device: &Device, medium: Medium, options: &WorkerOptions) -> Result<Self> {
        Self::create(device.name(), device.controller(), medium, options)
    }

    pub(crate) fn create(
        name: &str,
        controller: &Controller,
        medium: Medium,
        options: &WorkerOptions,
    ) -> Result<Self> {
        let (cpus, is_for_all) = cpus_of(controller, &options.queues);
        if cpus.is_empty() {
            return Err(Error::Argument(format!("{name}: a worker has one queue or more")));
        }
        let mut queues = Vec::with_capacity(cpus.len());
        let mut shortage = None;
        for &cpu in &cpus {
            match create_queue(controller, &medium, options) {
                Ok(queue) => {
                    let timeout = options.queue.command_timeout;
                    let pool = controller.pool().clone();
                    queues.push(Arc::new(SharedQueue::new(cpu, medium, pool, timeout, queue)));
                }
                Err(e) => shortage = Some((cpu, e)),
            }
        }
        let shortage = match shortage {
            Some((cpu, DriverError::Exhausted(reason))) if !queues.is_empty() => Some((cpu, reason)),
            Some((_, e)) => return Err(Error::driver(name, e)),
            None => None,
        };
        let by_cpu = table(&queues, is_for_all);
        let mut threads = Vec::new();
        for turn in 0..options.threads.min(queues.len()) {
            let served: Vec<_> = queues.iter().skip(turn).step_by(options.threads).cloned().collect();
            threads.push(CompletionThread::start(served[0].cpu, false, served, None)?);
        }
        Ok(Self {
            threads: Mutex::new(threads),
            queues: queues.into(),
            medium,
            by_cpu,
            turn: AtomicUsize::new(0),
            shortage,
            descriptor: Mutex::new(None),
        })
    }

    /// Its namespace.
    pub fn medium(&self) -> &Medium {
        &self.medium
    }

    /// Its queues.
    pub fn queues(&self) -> &[Arc<SharedQueue>] {
        &self.queues
    }

    /// The CPU for which no queue was left, and why; the last one of them.
    pub fn shortage(&self) -> Option<&(u32, String)> {
        self.shortage.as_ref()
    }

    /// A zeroed, page aligned buffer that the device can reach, to be lent.
    ///
    /// # Errors
    /// [`Reason::Driver`] when memory is used up.
    pub fn alloc(&self, bytes: usize) -> std::result::Result<DmaBuf, Refused> {
        Ok(self.queues[0].alloc(bytes)?)
    }

    /// The queues as the caller takes them: that of the CPU it is on first, or whose turn it is.
    #[inline]
    pub fn nearest(&self) -> Route<'_> {
        let (first, start) = if self.queues.len() == 1 {
            (0, 0)
        } else {
            match self.by_cpu.get(rustix::thread::sched_getcpu()) {
                Some(&own) if own != NONE => (usize::from(own), 0),
                _ => {
                    let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.queues.len();
                    (turn, turn)
                }
            }
        };
        Route { first: &self.queues[first], others: &self.queues, start, manner: Manner::Patient }
    }

    /// The queue of a CPU, and no other.
    #[inline]
    pub fn on_cpu(&self, cpu: u32) -> Option<&SharedQueue> {
        let own = *self.by_cpu.get(cpu as usize)?;
        self.queues.get(usize::from(own)).map(|queue| &**queue)
    }

    /// Sends a command and waits for it. What the device says about it is data: look at [`Done::status`].
    ///
    /// # Errors
    /// As [`Worker::submit`]; [`Reason::Full`] when it stays so for as long as a command may take.
    #[inline]
    pub fn call(&self, op: Op<'_>, data: Data<'_>) -> std::result::Result<Done, Refused> {
        self.nearest().call(op, data)
    }

    /// Sends a command and returns. Its completion comes out of [`Worker::poll`], with `token`.
    ///
    /// # Errors
    /// [`Refused`], with the buffer that was lent: [`Reason::Full`], [`Reason::Closed`]; [`Reason::Driver`]
    /// for what the namespace does not have, data that is missing or too short, and a device that is lost.
    /// Nothing was sent.
    #[inline]
    pub fn submit(&self, op: Op<'_>, data: Data<'_>, token: u64) -> std::result::Result<(), Refused> {
        self.nearest().submit(op, data, token)
    }

    /// A future that sends a command and ends with its completion.
    pub fn run<'a>(&'a self, op: Op<'a>, data: Data<'a>) -> Run<'a> {
        self.nearest().run(op, data)
    }

    /// Takes completions of all queues that are there, at most [`BATCH`] of each, and adds them to `done`;
    /// returns their number. See [`SharedQueue::poll`].
    pub fn poll(&self, done: &mut Vec<Done>) -> usize {
        self.queues.iter().map(|queue| queue.poll(done)).sum()
    }

    /// Commands of tokens and futures that were taken and that nobody has been told of yet.
    pub fn outstanding(&self) -> u64 {
        self.queues.iter().map(|queue| queue.outstanding()).sum()
    }

    /// A descriptor that is readable (level) while [`Worker::poll`] would find something, or has to look: for
    /// `epoll`, `poll` and the reactors of async runtimes. From the first call on it is the reactor that
    /// makes progress: whoever watches it polls when it is readable, and now and then when nothing is
    /// come for long, as a device that has died does not interrupt. On devices that do not interrupt,
    /// such as those in this process, it is readable as long as commands are outstanding, unless completion
    /// threads look for them.
    ///
    /// ```
    /// use std::os::fd::AsFd;
    /// use unvme::worker::{Data, WorkerOptions};
    /// use unvme::{Nsid, Op, OpenOptions, open};
    ///
    /// # fn main() -> Result<(), unvme::Error> {
    /// let device = open("mem:block:64M", &OpenOptions::default())?;
    /// let options = WorkerOptions { threads: 1, ..WorkerOptions::default() };
    /// let worker = device.block(Nsid(1))?.worker(&options)?;
    /// let descriptor = worker.descriptor()?;
    /// worker.submit(Op::Flush, Data::None, 1)?;
    /// let mut watched = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
    /// rustix::event::poll(&mut watched, None).expect("readable");
    /// let mut done = Vec::new();
    /// assert_eq!(worker.poll(&mut done), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] when the system has no descriptor left.
    pub fn descriptor(&self) -> Result<Descriptor> {
        let mut made = lock(&self.descriptor);
        if let Some(fd) = &*made {
            return Ok(Descriptor(Arc::clone(fd)));
        }
        let fd = Arc::new(descriptor::over(self.queues.iter().map(|queue| &**queue))?);
        *made = Some(Arc::clone(&fd));
        Ok(Descriptor(fd))
    }

    /// Sleeps until the device interrupts for one of the queues, somebody [nudges](Worker::nudge), or for
    /// `limit`. Returns false at once when it does not interrupt. What has ended before is to be polled
    /// first, and after.
    pub fn doze(&self, limit: Duration) -> bool {
        let Some(bed) = self.bed() else { return false };
        // What has come while nobody could say so.
        if !self.queues.iter().any(|queue| queue.has_ended()) {
            bed.doze(limit);
        }
        true
    }

    /// A bed for one who looks before each sleep, and is woken for what comes after that look.
    pub(crate) fn bed(&self) -> Option<Bed<'_, Arc<SharedQueue>>> {
        Bed::new(&self.queues)
    }

    /// Ends the sleep of those who [doze](Worker::doze).
    pub fn nudge(&self) {
        self.queues[0].beds().wake();
    }

    /// Takes nothing more from now on; what is outstanding goes on.
    pub fn stop_taking(&self) {
        self.queues.iter().for_each(|queue| queue.stop_taking());
    }

    /// Takes nothing more, and ends what is outstanding with [`unvme_spec::Status::ABORTED_BY_HOST`]: calls
    /// return, futures are ready, and what has a token comes out of [`Worker::poll`]. The queues are given
    /// back to the controller. Whoever wants the commands done waits until nothing is
    /// [outstanding](Worker::outstanding) before. A worker that is dropped is closed.
    pub fn close(&self) {
        self.stop_taking();
        // Joined without the lock: a waker that runs on one of them may close the worker as well.
        drop(std::mem::take(&mut *lock(&self.threads)));
        self.queues.iter().for_each(|queue| queue.close());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.close();
    }
}

unvme_bus::debug_parts!(Worker { queues });

/// See [`Worker::descriptor`].
#[derive(Clone, Debug)]
pub struct Descriptor(Arc<OwnedFd>);

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl std::os::fd::AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}

/// The CPUs that queues are made for, and whether they are for all other CPUs, too.
fn cpus_of(controller: &Controller, queues: &Queues) -> (Vec<u32>, bool) {
    match queues {
        Queues::Cpus(cpus) => (cpus.clone(), false),
        Queues::Count(count) => ((0..*count).collect(), true),
        Queues::PerCpu => {
            let mut cpus = allowed_cpus();
            cpus.truncate(controller.queues_max().saturating_sub(1).max(1));
            (cpus, true)
        }
    }
}

/// CPUs that this process may use, ascending.
pub(crate) fn allowed_cpus() -> Vec<u32> {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    let cpus: Vec<u32> =
        (0..rustix::thread::CpuSet::MAX_CPU as u32).filter(|cpu| allowed.is_set(*cpu as usize)).collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// Which queue each CPU has.
fn table(queues: &[Arc<SharedQueue>], is_for_all: bool) -> Box<[u16]> {
    let most = queues.iter().map(|queue| queue.cpu).chain(allowed_cpus()).max().unwrap_or(0);
    let queue_of = |cpu: u32| match queues.iter().position(|queue| queue.cpu == cpu) {
        Some(own) => own as u16,
        // Queue numbers have 16 bits.
        None if is_for_all => (cpu as usize % queues.len()) as u16,
        None => NONE,
    };
    (0..=most).map(queue_of).collect()
}

/// A queue; with an interrupt when somebody sleeps on it and the device has one left. A drive on UIO has none
/// at all.
fn create_queue(
    controller: &Controller,
    medium: &Medium,
    options: &WorkerOptions,
) -> std::result::Result<Queue, DriverError> {
    let long_keys = match medium {
        Medium::Pairs(namespace) => namespace.has_vendor(),
        Medium::Blocks(_) => options.queue.long_keys,
    };
    let is_slept_on = options.threads > 0 || options.queue.mode != CompletionMode::Poll;
    let mut options = QueueOptions { long_keys, mode: CompletionMode::Poll, ..options.queue.clone() };
    let can_interrupt = match controller.function() {
        Some(function) => function.vectors() > 0 && !function.is_host_driven(),
        // The kernel's completions, and a connection, can be slept on.
        None => true,
    };
    if is_slept_on && can_interrupt {
        options.mode = CompletionMode::Interrupt;
        match controller.create_queue(&options) {
            Err(DriverError::Exhausted(_)) => options.mode = CompletionMode::Poll,
            answer => return answer,
        }
    }
    controller.create_queue(&options)
}
