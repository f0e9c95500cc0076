//! Calls that take long: they load or write back a large mapped file. They have threads of their own, so that
//! the workers stay free for all others, however many such calls come.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use unvme::lock::{lock, wait_while};

use super::server::Shared;
use super::worker::{Buffers, Connection};

/// Threads for long calls of all clients.
pub(super) const THREADS: usize = 4;
/// How long one of them sleeps when nothing wakes it.
const REST: Duration = Duration::from_secs(1);

/// Calls that no thread has begun, in the order in which they came: connections and slots. Each slot is in it
/// at most once.
#[derive(Default)]
pub(super) struct LongCalls {
    queue: Mutex<VecDeque<(Arc<Connection>, usize)>>,
    changed: Condvar,
}

impl LongCalls {
    /// Adds a call whose slot is in state RUNNING.
    pub(super) fn push(&self, connection: Arc<Connection>, slot: usize) {
        lock(&self.queue).push_back((connection, slot));
        self.changed.notify_one();
    }

    /// Wakes the threads: the server ends.
    pub(super) fn end(&self) {
        // With the lock, so that none is between its check and its sleep.
        let _queue = lock(&self.queue);
        self.changed.notify_all();
    }

    fn pop(&self, is_over: impl Fn() -> bool) -> Option<(Arc<Connection>, usize)> {
        let queue = lock(&self.queue);
        wait_while(&self.changed, queue, REST, |queue| queue.is_empty() && !is_over()).pop_front()
    }
}

/// Does long calls until the server ends.
pub(super) fn work(shared: &Shared) {
    let mut buffers = Buffers::new();
    while !shared.has_ended() {
        if let Some((connection, slot)) = shared.long.pop(|| shared.has_ended()) {
            connection.run_long(shared, slot, &mut buffers);
        }
    }
    // Connections whose calls are not done any more.
    lock(&shared.long.queue).clear();
}
