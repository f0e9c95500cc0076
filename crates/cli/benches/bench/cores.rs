//! Cores: pinning, and what a cache line costs between two of them.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The first two cores this process may use.
pub(crate) fn pair() -> Result<[usize; 2]> {
    let allowed = sched_getaffinity(None).context("ask which cores there are")?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).take(2).collect();
    ensure!(cores.len() == 2, "this row needs two cores and this process may use {}", cores.len());
    Ok([cores[0], cores[1]])
}

/// True when this process may use two cores at least.
pub(crate) fn are_two() -> Result<bool> {
    let allowed = sched_getaffinity(None).context("ask which cores there are")?;
    Ok(allowed.count() >= 2)
}

/// Runs `work` in a thread of its own on a core.
pub(crate) fn on<T: Send>(core: usize, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pin(core)?;
            work()
        });
        join(thread)
    })
}

/// Runs `work` on the first core this process may use; returns that core, too.
pub(crate) fn on_first<T: Send>(work: impl FnOnce(usize) -> Result<T> + Send) -> Result<T> {
    let core = first()?;
    on(core, || work(core))
}

/// The first core this process may use.
pub(crate) fn first() -> Result<usize> {
    let allowed = sched_getaffinity(None).context("ask which cores there are")?;
    (0..CpuSet::MAX_CPU).find(|&core| allowed.is_set(core)).context("no core may be used")
}

/// What a thread returned; its panic goes on here.
pub(crate) fn join<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Keeps the calling thread on a core.
pub(crate) fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("pin a thread to core {core}"))
}

/// Nanoseconds in which a cache line goes from one core to another and back.
pub(crate) fn round_trip_ns(cores: [usize; 2]) -> Result<f64> {
    let cpus = cores.map(|core| core as u32);
    Ok(unvme_advise::round_trip_ns(cpus, Duration::from_millis(20))?)
}
