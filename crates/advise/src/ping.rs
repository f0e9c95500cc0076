//! What a cache line costs between two CPUs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use unvme::{Error, Result};

/// Keeps the calling thread on a CPU.
///
/// # Errors
/// [`Error::Io`] when the system refuses: the CPU is offline, or not of this process.
pub fn pin(cpu: u32) -> Result<()> {
    let mut set = CpuSet::new();
    if (cpu as usize) < CpuSet::MAX_CPU {
        set.set(cpu as usize);
    }
    sched_setaffinity(None, &set)
        .map_err(|e| Error::Io { what: format!("keep a thread on CPU {cpu}"), source: e.into() })
}

/// Nanoseconds in which a cache line goes from one CPU to another and back, as a mean over `time`. The line
/// is written by each side in turn and polled by the other, as a doorbell and a completion are.
///
/// # Errors
/// As [`pin`].
pub fn round_trip_ns(cpus: [u32; 2], time: Duration) -> Result<f64> {
    const STOP: u64 = u64::MAX;
    let line = AtomicU64::new(0);
    // The asking side begins once the answering one is on its CPU, or has failed.
    let ready = AtomicBool::new(false);
    let failed = |source| Error::Io { what: "start a thread".into(), source };
    thread::scope(|scope| {
        let answer = || -> Result<()> {
            let pinned = pin(cpus[1]);
            ready.store(true, Ordering::Release);
            pinned?;
            loop {
                // Acquire and Release order nothing here but the word itself: this is how a doorbell is seen.
                match line.load(Ordering::Acquire) {
                    STOP => return Ok(()),
                    asked if asked % 2 == 1 => {
                        // A STOP that came in between stays.
                        let _ = line.compare_exchange(asked, asked + 1, Ordering::Release, Ordering::Relaxed);
                    }
                    _ => std::hint::spin_loop(),
                }
            }
        };
        let ask = || -> Result<f64> {
            let pinned = pin(cpus[0]);
            while !ready.load(Ordering::Acquire) {
                thread::yield_now();
            }
            let result = pinned.map(|()| {
                let began = Instant::now();
                let mut turns = 0u64;
                while began.elapsed() < time {
                    let asked = turns * 2 + 1;
                    line.store(asked, Ordering::Release);
                    while line.load(Ordering::Acquire) == asked && began.elapsed() < time {}
                    turns += 1;
                }
                began.elapsed().as_nanos() as f64 / turns.max(1) as f64
            });
            line.store(STOP, Ordering::Release);
            result
        };
        let answering = thread::Builder::new().spawn_scoped(scope, answer).map_err(failed)?;
        let asking = thread::Builder::new().spawn_scoped(scope, ask).map_err(|source| {
            line.store(STOP, Ordering::Release);
            failed(source)
        })?;
        let ns = join(asking)?;
        join(answering)?;
        Ok(ns)
    })
}

/// What a thread returned; its panic continues in the caller.
pub(crate) fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
