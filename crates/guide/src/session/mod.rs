//! Devices that a program keeps open and calls from any thread: what the C library and the guide's tools
//! stand on.
//!
//! A [`Session`] opens the devices of a configuration. Each of them is a [`Member`], with a queue pair for
//! each CPU of its core mask. Blocking operations wait for their own commands on a synchronous queue.
//! Asynchronous ones return at once; a completion thread, or whoever calls [`Member::process_completions`],
//! calls the session's [`Handler`] for each that was taken, exactly once, also when the device is lost or the
//! session is closed meanwhile.
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
//! use unvme_guide::config::{DeviceConfig, SdkConfig, SsdType};
//! use unvme_guide::session::{Data, Op, QueueChoice, Session, SessionOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let done = Arc::new(AtomicU64::new(0));
//! let count = Arc::clone(&done);
//! let options = SessionOptions::new(Arc::new(move |finished| {
//!     assert!(finished.outcome.status.is_success());
//!     count.fetch_add(finished.token, Ordering::Relaxed);
//! }));
//! let config = SdkConfig {
//!     ssd_type: SsdType::Lba,
//!     devices: vec![DeviceConfig::new("mem:block:64M")],
//!     ..SdkConfig::default()
//! };
//! let session = Session::open(config, options)?;
//! let device = &session.members()[0];
//! device.call(QueueChoice::Auto, Op::write(8, 8), Data::Out(&[0x5a; 4096]))?;
//! device.submit(QueueChoice::Auto, Op::write(16, 8), Data::Out(&[0xa5; 4096]), 7)?;
//! session.close()?;
//! assert_eq!(done.load(Ordering::Relaxed), 7);
//! # Ok(())
//! # }
//! ```
//!
//! What it does not implement: caching values of more than 2 MiB, vectored buffers, several processes that
//! share one device without a server. With the read cache on, nobody else may change a device's pairs, and
//! commands that change them go through its [`Member`]: what is sent by [`Member::device`] the cache does not
//! see.

mod call;
mod cut;
mod error;
mod fdp;
mod handling;
mod information;
mod iterate;
mod journal;
mod listed;
mod member;
mod memory;
mod opening;
mod operation;
mod outcome;
mod submit;
mod workers;

pub use error::{OpError, Returned};
pub use information::RawOutcome;
pub use iterate::{ITERATE_BYTES, IterateRead};
pub use member::Member;
pub use outcome::{Finished, Handler, Outcome};
pub use unvme::Op;
pub use unvme::worker::Data;
pub use unvme_driver::{KvKey, KvOptions, KvVerdict, StoreCondition, StoreOptions, VendorCommands};
pub use unvme_spec::samsung_kv::{IterateType, Prefix, status as pair_status};
pub use unvme_spec::samsung_log::IteratorEntry;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use handling::Handling;
use journal::Topic;
use member::Shared;
use unvme::worker::{CompletionThread, Medium, SharedQueue, Worker};
use unvme_bus::lock;

use crate::SdkConfig;
use unvme::OpenOptions;

/// Time between two looks at what is still outstanding while a session is closed.
const CLOSE_PAUSE: Duration = Duration::from_micros(100);

/// What a queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// Callers wait for their own commands.
    Sync,
    /// The handler is called for commands that have ended.
    Async,
}

impl fmt::Display for QueueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sync => "synchronous",
            Self::Async => "asynchronous",
        })
    }
}

/// Which queue an operation takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueChoice {
    /// A queue of the right kind: that of the CPU the caller is on when it has one, or else any.
    #[default]
    Auto,
    /// The queue of this CPU, and no other.
    Cpu(u32),
}

/// How a session is opened.
#[derive(Clone)]
pub struct SessionOptions {
    /// How its devices are opened.
    pub open: OpenOptions,
    /// Called for every asynchronous operation that ends.
    pub handler: Handler,
    /// How key-value namespaces are treated: where the keyspace goes, whether the vendor commands are used.
    pub kv: KvOptions,
    /// How long a command may take before it is aborted.
    pub command_timeout: Duration,
    /// How long after the Abort it may still take before the controller is reset.
    pub abort_grace: Duration,
    /// Whether devices interrupt, where they can, for queues without a completion thread: for those who watch
    /// [`Member::descriptor`]. Whoever polls without sleeping does better without.
    pub interrupts: bool,
}

impl SessionOptions {
    /// The driver's limits, and this handler.
    pub fn new(handler: Handler) -> Self {
        let queue = unvme::QueueOptions::default();
        Self {
            open: OpenOptions::default(),
            handler,
            kv: KvOptions::default(),
            command_timeout: queue.command_timeout,
            abort_grace: queue.abort_grace,
            interrupts: false,
        }
    }
}

unvme_bus::debug_parts!(SessionOptions { open, kv, command_timeout, abort_grace, interrupts });

/// Devices that are open together, for any thread. Closed by [`Session::close`], or when dropped.
pub struct Session {
    config: SdkConfig,
    warnings: Vec<String>,
    members: Vec<Arc<Member>>,
    shared: Arc<Shared>,
    /// How long closing waits for what is outstanding.
    patience: Duration,
    threads: Mutex<Vec<CompletionThread>>,
}

unvme_bus::debug_parts!(Session { members });

impl Session {
    /// The configuration as it is in effect: masks as placed, limits settled.
    pub fn config(&self) -> &SdkConfig {
        &self.config
    }

    /// What was asked for and could not be done as asked, each a sentence.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The devices, in the order of the configuration.
    pub fn members(&self) -> &[Arc<Member>] {
        &self.members
    }

    /// Closes the session: from now on nothing is taken; what is outstanding is waited for, as long as
    /// commands may take, and ended with [`unvme_spec::Status::ABORTED_BY_HOST`] after that; then the
    /// completion threads end. Nothing is left to do the second time. The devices themselves are closed with
    /// the last [`Member`] that somebody keeps.
    ///
    /// # Errors
    /// [`OpError::Reentered`] in a handler of this session, which could never be waited for. Nothing happens
    /// then.
    pub fn close(&self) -> Result<(), OpError> {
        if Handling::is_in(self.shared.session) {
            return Err(OpError::Reentered);
        }
        self.shut_down();
        Ok(())
    }

    fn shut_down(&self) {
        if self.shared.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let workers = || self.members.iter().flat_map(|member| member.workers.iter());
        workers().for_each(Worker::stop_taking);
        // In a handler of this session nobody can wait for that handler: what is outstanding ends at once.
        let within = Handling::is_in(self.shared.session);
        let started = Instant::now();
        while !within && self.unfinished() > 0 && started.elapsed() < self.patience {
            if self.process(|queue| !queue.is_served()) == 0 {
                std::thread::sleep(CLOSE_PAUSE);
            }
        }
        for thread in lock(&self.threads).iter_mut() {
            thread.stop();
        }
        workers().for_each(Worker::close);
        // What nobody has been told of yet: there was no thread, or it has ended.
        while self.process(|_| true) > 0 {}
        for member in &self.members {
            self.shared.journal.write(Topic::Lifecycle, member.name(), format_args!("closed"));
        }
    }

    /// Calls the handler for what has ended on some queues; returns its number.
    fn process(&self, which: fn(&SharedQueue) -> bool) -> usize {
        let of = |member: &Arc<Member>| -> usize {
            let queues = member.workers.queues().filter(|queue| which(queue));
            queues.map(|queue| member.process(queue, &mut Vec::new())).sum()
        };
        self.members.iter().map(of).sum()
    }

    /// Operations and commands that are still to end; an asynchronous one counts as both.
    fn unfinished(&self) -> u64 {
        self.members.iter().map(|member| member.unfinished() + member.in_queues()).sum()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shut_down();
    }
}
