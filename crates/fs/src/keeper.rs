//! What has to be done even when nobody asks: pages that have waited long are written, what was done lately
//! is committed, and memory is made ready for pages that come.

use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use unvme::lock::{lock, wait_while};

use crate::error::{Error, Result};
use crate::layout::Time;
use crate::system::System;

/// How often it looks.
const TICK: Duration = Duration::from_millis(200);

/// A thread that keeps a file system.
pub(crate) struct Keeper {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(crate) fn start(system: &Arc<System>, commit_interval: Duration) -> Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let thread = thread::Builder::new().name("unvme-fs".into()).spawn({
            let (stop, system) = (Arc::clone(&stop), Arc::clone(system));
            move || run(&system, &stop, commit_interval)
        });
        let thread = thread.map_err(|e| Error::Device(format!("start a thread: {e}")))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends it; nothing is done by it afterwards.
    pub(crate) fn stop(&mut self) {
        *lock(&self.stop.0) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // What it could not do is tried again by whoever unmounts.
            let _ = thread.join();
        }
    }
}

fn run(system: &System, (stop, changed): &(Mutex<bool>, Condvar), commit_interval: Duration) {
    let mut committed = Instant::now();
    loop {
        let is_over = *wait_while(changed, lock(stop), TICK, |is_over| !*is_over);
        if is_over {
            return;
        }
        system.set_clock(Time::now());
        if system.check_writable().is_err() {
            continue;
        }
        // What has waited for somebody's commands.
        system.space.release();
        let mut done = Ok(());
        while let Some(node) = system.cache.next_waiting(&system.nodes, system.cache.options.dirty_age) {
            done = system.write_back_waiting(node);
            if done.is_err() {
                // Those that could not be written wait again, behind all others.
                break;
            }
        }
        if committed.elapsed() >= commit_interval {
            system.finish_all();
            // Whatever could not be written, the others are committed.
            done = done.and(system.log_listed_times());
            done = done.and(system.journal.commit(system.journal.running()));
            committed = Instant::now();
        }
        if let Err(e) = done {
            tracing::warn!("{}: {e}", system.disk.name());
        }
        system.cache.prepare();
    }
}
