//! Which session's handler this thread is in.

use std::cell::Cell;

thread_local! {
    /// Number of the session; 0 outside of handlers.
    static WITHIN: Cell<u64> = const { Cell::new(0) };
}

/// Marks the thread as being in a handler of a session, until dropped.
pub(super) struct Handling {
    before: u64,
}

impl Handling {
    pub(super) fn of(session: u64) -> Self {
        Self { before: WITHIN.replace(session) }
    }

    /// Whether this thread is in a handler of the session.
    pub(super) fn is_in(session: u64) -> bool {
        WITHIN.get() == session
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        WITHIN.set(self.before);
    }
}
