//! Who waits for whose lock. Waiting is asking again: nobody is in a call meanwhile, and whoever gives up
//! need not say so, but may: until he is forgotten others find him waiting.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use unvme::lock::lock;

use crate::error::Result;

/// Who has not asked again for so long does not wait any more.
const FORGOTTEN: Duration = Duration::from_secs(2);

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
