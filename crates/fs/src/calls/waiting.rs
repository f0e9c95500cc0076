//! Who waits for whose lock. Waiting is asking again: nobody is in a call meanwhile, and whoever gives up
//! need not say so.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use unvme::lock::lock;

use super::{OpenId, Range, Reply, Request};
use crate::error::{Error, Result};

/// Who has not asked again for so long does not wait any more.
const FORGOTTEN: Duration = Duration::from_secs(2);
/// Between two times of asking: at first, and at last.
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(10);

/// Who waits, for whom, and when it asked last.
#[derive(Default)]
pub(super) struct Waits(Mutex<Vec<(u64, u64, Instant)>>);

impl Waits {
    /// `who` finds `other` in the way, and will ask again.
    ///
    /// # Errors
    /// EDEADLK when that one waits for `who`, or for somebody who does, and so on.
    pub(super) fn add(&self, who: u64, other: u64) -> Result<()> {
        let mut waits = lock(&self.0);
        waits
            .retain(|&(waiting, whom, since)| since.elapsed() < FORGOTTEN && (waiting, whom) != (who, other));
        let mut reached = vec![other];
        let mut at = 0;
        while let Some(&owner) = reached.get(at) {
            if owner == who {
                return Err(Errno::DEADLK.into());
            }
            for &(_, whom, _) in waits.iter().filter(|(waiting, ..)| *waiting == owner) {
                if !reached.contains(&whom) {
                    reached.push(whom);
                }
            }
            at += 1;
        }
        waits.push((who, other, Instant::now()));
        Ok(())
    }

    /// It has what it waited for, or is gone.
    pub(super) fn remove(&self, who: u64) {
        lock(&self.0).retain(|(waiting, ..)| *waiting != who);
    }
}

/// `fcntl` with `F_SETLKW`: asks, by [`super::Process::call`] or [`crate::share::Client::call`], until nobody
/// is in the way. `is_interrupted` says whether a signal came whose handler wants it to end.
///
/// # Errors
/// EDEADLK when it would wait for itself; EINTR; those of [`Request::Lock`].
pub fn lock_waiting(
    ask: impl Fn(&Request<'_>) -> Result<Reply>,
    open: OpenId,
    range: Range,
    is_interrupted: impl Fn() -> bool,
) -> Result<()> {
    let mut pause = PAUSE_MIN;
    loop {
        match ask(&Request::AwaitLock { open, range }) {
            Err(Error::Posix(Errno::AGAIN)) => {}
            done => return done.map(|_| ()),
        }
        if is_interrupted() {
            return Err(Errno::INTR.into());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_of_those_who_wait_is_found_and_no_other() {
        let waits = Waits::default();
        waits.add(1, 2).expect("2 has it");
        waits.add(2, 3).expect("3 has it");
        waits.add(1, 2).expect("it asks again");
        waits.add(4, 2).expect("another one waits for it");
        assert_eq!(waits.add(3, 1).expect_err("a circle").errno(), Errno::DEADLK);
        waits.remove(2);
        waits.add(3, 1).expect("2 does not wait any more");
    }
}
