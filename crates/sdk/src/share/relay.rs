//! Letting the controllers of clients work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use unvme_bus::vfio_user::Server;
use unvme_bus::{Clock, Function};

/// Rounds of looking between two looks at the clock.
const ROUNDS_PER_CLOCK: u32 = 1024;
/// Longest sleep while there is no client; whoever comes, or wants this to end, ends it.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// How much of a processor looking for work may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How long to look without a pause after the last work there was; `None` means for ever.
    pub(crate) spin: Option<Duration>,
    /// Pause between two looks after that: what the first command after a while pays at most.
    pub(crate) nap: Duration,
    /// The same while there is no client; `None` to sleep until there is one.
    pub(crate) nap_alone: Option<Duration>,
}

/// Lets the functions of all clients of `server` work until `stopped`, and `own` with them, which works
/// without a client too.
pub(crate) fn relay(
    server: &Server,
    own: Option<&Arc<dyn Function>>,
    clock: &Clock,
    pace: &Pace,
    stopped: &AtomicBool,
) {
    let mut driven = server.driven();
    let mut rounds = 0u32;
    let mut idle_since: Option<Instant> = None;
    let mut is_napping = false;
    while !stopped.load(Ordering::Acquire) {
        server.refresh(&mut driven);
        if driven.is_empty() && pace.nap_alone.is_none() {
            // First the counter, then the list: a client that comes between the two leaves the counter set.
            server.changed().drain();
            server.refresh(&mut driven);
            if driven.is_empty() && !stopped.load(Ordering::Acquire) {
                wait(server);
            }
            continue;
        }
        let mut work: usize = driven.iter().map(|function| function.advance(None, clock)).sum();
        if let Some(own) = own
            && !driven.iter().any(|function| Arc::ptr_eq(function, own))
        {
            work += own.advance(None, clock);
        }
        if work > 0 {
            (idle_since, is_napping) = (None, false);
        } else {
            std::hint::spin_loop();
        }
        rounds = rounds.wrapping_add(1);
        // The clock is read every so many rounds; while there is nothing to do each look is followed by a
        // nap.
        if !is_napping && !rounds.is_multiple_of(ROUNDS_PER_CLOCK) {
            continue;
        }
        if driven.iter().any(|function| function.is_gone()) {
            server.look_after();
        }
        if work > 0 {
            continue;
        }
        let Some(spin) = pace.spin else { continue };
        if idle_since.get_or_insert_with(Instant::now).elapsed() >= spin {
            is_napping = true;
            let alone = driven.is_empty().then_some(pace.nap_alone).flatten();
            thread::sleep(alone.unwrap_or(pace.nap));
        }
    }
}

fn wait(server: &Server) {
    if let Err(error) = server.changed().wait(SLEEP_MAX) {
        tracing::debug!(%error, "wait for a client");
        thread::sleep(Duration::from_millis(10));
    }
}
