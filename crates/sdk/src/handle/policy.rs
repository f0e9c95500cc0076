//! What may be said about a handle: its policies, and in what range.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use unvme_spec::admin::QueuePriority;
use unvme_spec::fdp::PlacementId;

use super::Request;
use crate::cache::Order;

/// The least a cache has.
pub const CACHE_BYTES_MIN: usize = 1 << 20;
/// The greatest share.
pub const SHARE_MAX: u32 = 10_000;
/// The longest deadline, and burst.
pub const TIME_MAX: Duration = Duration::from_secs(60);
/// The most that a limit can be: commands, or bytes, in a second.
pub const RATE_MAX: u64 = 1_000_000_000_000;

/// All that is decided for one handle. They can be changed while it is open ([`super::Handle::set`]), and
/// typed:
///
/// ```
/// use unvme::handle::{CacheMode, Completing, Policies, Queueing, Schedule};
///
/// let policies: Policies = "cache=write-back:64M:lru,sched=share:8,complete=hybrid,queue=own".parse()?;
/// assert_eq!((policies.cache.mode, policies.cache.bytes), (CacheMode::WriteBack, 64 << 20));
/// assert_eq!(policies.schedule, Schedule::Share(8));
/// assert_eq!((policies.completing, policies.queue), (Completing::Hybrid, Queueing::Own));
/// assert_eq!("sched=fair".parse::<Policies>().unwrap_err().word, "sched=fair");
/// # Ok::<(), unvme::handle::NotAPolicy>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policies {
    /// Whether blocks are kept in memory.
    pub cache: Caching,
    /// Which handle of a device is next.
    pub schedule: Schedule,
    /// What a handle may take at most, whoever else there is.
    pub limit: Option<Limit>,
    /// How the end of a command is learnt of.
    pub completing: Completing,
    /// The placement identifier that writes carry, if any.
    pub stream: Option<PlacementId>,
    /// Which queue pair commands go to.
    pub queue: Queueing,
}

/// Whether blocks are kept in memory, and when what is written goes to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caching {
    /// What is kept.
    pub mode: CacheMode,
    /// Bytes that are kept at most; [`CACHE_BYTES_MIN`] or more.
    pub bytes: usize,
    /// What is given up first.
    pub order: Order,
    /// Bytes that may wait to be written, with [`CacheMode::WriteBack`]; a part of `bytes`.
    pub dirty_bytes: usize,
}

impl Default for Caching {
    fn default() -> Self {
        Self::new(CacheMode::None, 64 << 20)
    }
}

impl Caching {
    /// A cache of `bytes` bytes, of which a quarter may wait to be written.
    pub const fn new(mode: CacheMode, bytes: usize) -> Self {
        Self { mode, bytes, order: Order::S3Fifo, dirty_bytes: bytes / 4 }
    }
}

/// What a cache keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheMode {
    /// Nothing: everything goes to the device at once.
    #[default]
    None,
    /// What was read. Writes go to the device, and change what is there.
    Read,
    /// What was read and written. A write has ended when the device has it.
    WriteThrough,
    /// What was read and written. A write has ended when it is in memory; it is on the device, and durable,
    /// after [`super::Handle::flush`].
    WriteBack,
}

/// Which handle of a device is next, when several want to send something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// Who came first.
    #[default]
    Fifo,
    /// Whose time is up first: this long after a request has come. A handle with [`Schedule::Fifo`] counts
    /// as one that waits for [`super::FIFO_DEADLINE`], so that nobody waits for ever.
    Deadline(Duration),
    /// Each gets a part of the device in proportion to this number, 1 to [`SHARE_MAX`], and what others do
    /// not use as well. Those with a deadline and those without are one party with a share of 1.
    Share(u32),
    /// Before everybody whose number is lower, and everybody with another policy, who have 0.
    Priority(u8),
    /// The device decides: by NVMe's weighted round robin, from a queue pair of this class that nobody else
    /// uses. Commands go there at once, beside those that take turns here.
    Weighted(QueuePriority),
}

/// What a handle may take: a bucket that fills up at a constant rate, and that requests are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Commands in a second.
    pub iops: Option<u64>,
    /// Bytes in a second.
    pub bytes: Option<u64>,
    /// The bucket holds as much as comes in this time, and one request at least.
    pub burst: Duration,
}

/// How the end of a command is learnt of by whoever waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completing {
    /// By looking for it, again and again: soonest, and a processor is busy with it.
    #[default]
    Poll,
    /// By the device's interrupt, asleep. A device in this process does not interrupt: it is looked at in
    /// short intervals.
    Interrupt,
    /// Asleep for a part of the time that such commands have taken lately, then by looking.
    Hybrid,
}

/// Which queue pair commands go to.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Queueing {
    /// The queue pair of the caller's CPU, which all handles of the namespace share.
    #[default]
    Shared,
    /// One that nobody else uses.
    Own,
    /// Of those that are shared, the one that a function says.
    Chosen(Chooser),
}

/// A function that chooses a queue: its index, of which the remainder by their number is taken.
#[derive(Clone)]
pub struct Chooser(pub Arc<dyn Fn(&Request) -> usize + Send + Sync>);

impl Chooser {
    /// A chooser that does what `function` says.
    pub fn new(function: impl Fn(&Request) -> usize + Send + Sync + 'static) -> Self {
        Self(Arc::new(function))
    }
}

impl fmt::Debug for Chooser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chooser")
    }
}

impl PartialEq for Chooser {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Policies {
    /// The class of the queue pair that commands go to, if it has one.
    pub(super) fn class(&self) -> Option<QueuePriority> {
        match self.schedule {
            Schedule::Weighted(class) => Some(class),
            _ => None,
        }
    }

    /// Whether the numbers are in range; a sentence when they are not.
    ///
    /// # Errors
    /// What is wrong, and what was expected.
    pub fn check(&self) -> Result<(), String> {
        let cache = &self.cache;
        if cache.mode != CacheMode::None && cache.bytes < CACHE_BYTES_MIN {
            return Err(format!("a cache of {} bytes: {CACHE_BYTES_MIN} or more are expected", cache.bytes));
        }
        if cache.mode == CacheMode::WriteBack && !(1..=cache.bytes).contains(&cache.dirty_bytes) {
            let (dirty, all) = (cache.dirty_bytes, cache.bytes);
            return Err(format!(
                "{dirty} bytes that wait to be written: 1 to {all}, the cache, are expected"
            ));
        }
        let is_time = |time: Duration| !time.is_zero() && time <= TIME_MAX;
        match self.schedule {
            Schedule::Share(share) if !(1..=SHARE_MAX).contains(&share) => {
                return Err(format!("a share of {share}: 1 to {SHARE_MAX} is expected"));
            }
            Schedule::Deadline(time) if !is_time(time) => {
                return Err(format!(
                    "a deadline of {time:?}: more than 0 and up to {TIME_MAX:?} is expected"
                ));
            }
            Schedule::Weighted(_) if matches!(self.queue, Queueing::Chosen(_)) => {
                return Err(
                    "a queue of a class is nobody else's, and not one that a function chooses".to_owned()
                );
            }
            _ => {}
        }
        let Some(limit) = &self.limit else { return Ok(()) };
        if limit.iops.is_none() && limit.bytes.is_none() {
            return Err("a limit of nothing: commands or bytes in a second are expected".to_owned());
        }
        for (what, rate) in [("commands", limit.iops), ("bytes", limit.bytes)] {
            if rate.is_some_and(|rate| !(1..=RATE_MAX).contains(&rate)) {
                return Err(format!(
                    "a limit of {} {what} in a second: 1 to 10^12 is expected",
                    rate.unwrap_or(0)
                ));
            }
        }
        if !is_time(limit.burst) {
            let burst = limit.burst;
            return Err(format!("a burst of {burst:?}: more than 0 and up to {TIME_MAX:?} is expected"));
        }
        Ok(())
    }
}
