//! `--completion`: what a thread does while nothing can be submitted or taken.

use std::num::NonZeroU64;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::set_current_timer_slack;
use unvme::{CompletionMode, EventFd};

use super::watch::Watch;

/// Longest sleep: Ctrl-C is looked for in between.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// How long a hybrid looks at most; what takes longer is slept for.
const LOOK_MAX_NS: u64 = 50_000;
/// And at least.
const LOOK_MIN_NS: u64 = LOOK_MAX_NS / 10;
/// Weight of the past: 7/8.
const LEARN_SHIFT: u32 = 3;

/// How threads learn of completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Completion {
    /// Look at the queues all the time
    #[default]
    Poll,
    /// Sleep until an interrupt
    Interrupt,
    /// Look for as long as commands have recently taken, 50 us at most, then sleep
    Hybrid,
}

impl Completion {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Interrupt => "interrupt",
            Self::Hybrid => "hybrid",
        }
    }

    pub(super) fn mode(self) -> CompletionMode {
        match self {
            Self::Poll => CompletionMode::Poll,
            Self::Interrupt => CompletionMode::Interrupt,
            Self::Hybrid => CompletionMode::Hybrid,
        }
    }
}

/// A queue that somebody waits for.
pub(super) trait Queue {
    /// Commands on their way.
    fn outstanding(&mut self) -> usize;

    /// Waits until something has finished, or that long, as the queue was told to. Errors: those of the
    /// queue.
    fn wait(&mut self, limit: Duration) -> Result<()>;

    /// What is signalled when something has finished; `None` for one that polls.
    fn interrupt(&mut self) -> Option<&EventFd>;

    /// True where the device works only while somebody looks.
    fn is_host_driven(&mut self) -> bool;
}

/// The rests of one thread.
#[derive(Debug)]
pub(super) struct Rest {
    is_hybrid: bool,
    /// Some device works only while somebody looks.
    is_sleepless: bool,
    /// When there was nothing to do for the first time since there was something.
    since_ns: Option<u64>,
    /// How long that has lasted, lately.
    learnt_ns: u64,
    /// What was signalled so far is forgotten, and lanes have been looked at since.
    is_armed: bool,
}

impl Rest {
    /// `None` where the thread polls. It is called on the thread that rests.
    pub(super) fn new(completion: Completion, lanes: &mut [impl Queue]) -> Option<Self> {
        if completion == Completion::Poll {
            return None;
        }
        // Sleeps for what is due later end 50 us late otherwise. Without it they do.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        Some(Self {
            is_hybrid: completion == Completion::Hybrid,
            is_sleepless: lanes.iter_mut().any(Queue::is_host_driven),
            since_ns: None,
            learnt_ns: 0,
            is_armed: false,
        })
    }

    /// There was something to do.
    pub(super) fn end(&mut self, now_ns: u64) {
        self.is_armed = false;
        if let Some(since_ns) = self.since_ns.take() {
            let rested_ns = now_ns.saturating_sub(since_ns);
            self.learnt_ns = self.learnt_ns - (self.learnt_ns >> LEARN_SHIFT) + (rested_ns >> LEARN_SHIFT);
        }
    }

    /// There was nothing to do: waits, at most until `until_ns` of the watch. It may be called again without
    /// anything having happened. Errors: those of a queue.
    pub(super) fn wait(&mut self, lanes: &mut [impl Queue], watch: Watch<'_>, until_ns: u64) -> Result<()> {
        let now_ns = watch.ns();
        let left = Duration::from_nanos(until_ns.saturating_sub(now_ns)).min(SLEEP_MAX);
        if left.is_zero() || self.is_sleepless || self.looks(now_ns) {
            return Ok(());
        }
        let mut busy = lanes.iter_mut().filter_map(|lane| (lane.outstanding() > 0).then_some(lane));
        match (busy.next(), busy.next()) {
            (None, _) => thread::sleep(left),
            (Some(only), None) => only.wait(left)?,
            _ => self.wait_for_any(lanes, left)?,
        }
        Ok(())
    }

    /// True while a hybrid looks.
    fn looks(&mut self, now_ns: u64) -> bool {
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        let budget_ns = self.learnt_ns.saturating_mul(2).max(LOOK_MIN_NS);
        self.is_hybrid && budget_ns <= LOOK_MAX_NS && now_ns.saturating_sub(since_ns) < budget_ns
    }

    /// Sleeps until one of several queues has something. The first call only forgets what was signalled so
    /// far: what is signalled after the look that follows ends the sleep of the second.
    fn wait_for_any(&mut self, lanes: &mut [impl Queue], limit: Duration) -> Result<()> {
        if !self.is_armed {
            lanes.iter_mut().filter_map(Queue::interrupt).for_each(|event| _ = event.drain());
            self.is_armed = true;
            return Ok(());
        }
        let events = lanes.iter_mut().filter_map(Queue::interrupt);
        let mut fds: Vec<PollFd<'_>> = events.map(|event| PollFd::new(event, PollFlags::IN)).collect();
        let timeout = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        // Interrupted or not: the thread looks next.
        let _ = poll(&mut fds, Some(&timeout));
        drop(fds);
        self.is_armed = false;
        // They look at the time their commands take.
        lanes.iter_mut().try_for_each(|lane| lane.wait(Duration::ZERO))
    }
}

/// Processor time of this thread so far.
pub(super) fn processor_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hybrid() -> Rest {
        Rest { is_hybrid: true, is_sleepless: false, since_ns: None, learnt_ns: 0, is_armed: false }
    }

    #[test]
    fn a_hybrid_looks_for_twice_what_it_has_waited_lately() {
        let mut rest = hybrid();
        assert!(rest.looks(1000) && rest.looks(5999) && !rest.looks(6000), "5 us at least");
        for at in 0..100 {
            let from_ns = at * 1_000_000;
            rest.looks(from_ns);
            rest.end(from_ns + 16_000);
        }
        let from_ns = 1_000_000_000;
        assert!(rest.looks(from_ns) && rest.looks(from_ns + 30_000) && !rest.looks(from_ns + 32_001));
        for _ in 0..100 {
            rest.looks(0);
            rest.end(80_000);
        }
        assert!(!rest.looks(0), "what takes long is slept for at once");
    }

    #[test]
    fn who_only_sleeps_never_looks() {
        assert!(!Rest { is_hybrid: false, ..hybrid() }.looks(0));
    }

    #[test]
    fn a_thread_that_works_takes_processor_time_and_one_that_sleeps_does_not() {
        let before = processor_ns();
        thread::sleep(Duration::from_millis(200));
        let slept = processor_ns() - before;
        let mut sum = 0u64;
        while processor_ns() - before < slept + 5_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(slept < 100_000_000, "{slept}");
    }
}
