//! Advisory locks: ranges of bytes, as `fcntl(F_OFD_SETLK)` and `F_SETLK` have them, and whole files, as
//! `flock` has them. The two do not know of each other.

use std::sync::{Condvar, Mutex, MutexGuard};

use rustix::io::Errno;
use unvme::lock::{lock, wait};

use crate::error::Result;

/// What a lock keeps others from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// `F_RDLCK`, `LOCK_SH`: others may share it.
    Shared,
    /// `F_WRLCK`, `LOCK_EX`: nobody else has any.
    Exclusive,
}

/// A lock that somebody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Who has it; a number that the callers agree on, such as a process or an open file.
    pub owner: u64,
    /// What it keeps others from.
    pub kind: LockKind,
    /// First byte.
    pub start: u64,
    /// Last byte; `u64::MAX` is up to the end, wherever that is.
    pub end: u64,
}

impl Lock {
    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start <= end && start <= self.end
    }

    fn is_in_the_way(&self, other: &Self) -> bool {
        let is_exclusive = self.kind == LockKind::Exclusive || other.kind == LockKind::Exclusive;
        self.owner != other.owner && is_exclusive && self.overlaps(other.start, other.end)
    }
}

#[derive(Default)]
struct Tables {
    ranges: Vec<Lock>,
    whole: Vec<Lock>,
    /// Who waits for a range, and for whom.
    waiting: Vec<(u64, u64)>,
}

impl Tables {
    fn of(&mut self, is_flock: bool) -> &mut Vec<Lock> {
        if is_flock { &mut self.whole } else { &mut self.ranges }
    }

    /// Takes bytes out of what an owner has.
    fn carve(list: &mut Vec<Lock>, owner: u64, start: u64, end: u64) {
        let mut rest = Vec::new();
        list.retain(|lock| {
            if lock.owner != owner || !lock.overlaps(start, end) {
                return true;
            }
            if lock.start < start {
                rest.push(Lock { end: start - 1, ..*lock });
            }
            if lock.end > end {
                rest.push(Lock { start: end + 1, ..*lock });
            }
            false
        });
        list.append(&mut rest);
    }

    /// Whether `owner` would wait for itself if it waited for `other`.
    fn is_circle(&self, owner: u64, other: u64) -> bool {
        let mut at = other;
        for _ in 0..=self.waiting.len() {
            if at == owner {
                return true;
            }
            match self.waiting.iter().find(|(who, _)| *who == at) {
                Some((_, whom)) => at = *whom,
                None => return false,
            }
        }
        false
    }
}

/// The locks of a file.
#[derive(Default)]
pub(crate) struct Locks {
    tables: Mutex<Tables>,
    changed: Condvar,
}

impl Locks {
    /// Takes a lock, in place of what the owner has there.
    ///
    /// # Errors
    /// EAGAIN when somebody is in the way and it does not wait; EDEADLK when it would wait for itself; EINVAL
    /// for a range that is none.
    pub(crate) fn set(&self, new: Lock, is_flock: bool, waits: bool) -> Result<()> {
        if new.end < new.start {
            return Err(Errno::INVAL.into());
        }
        let mut tables = lock(&self.tables);
        loop {
            let other =
                tables.of(is_flock).iter().find(|held| held.is_in_the_way(&new)).map(|held| held.owner);
            let Some(other) = other else { break };
            if !waits {
                return Err(Errno::AGAIN.into());
            }
            if tables.is_circle(new.owner, other) {
                return Err(Errno::DEADLK.into());
            }
            tables.waiting.push((new.owner, other));
            tables = wait(&self.changed, tables);
            if let Some(at) = tables.waiting.iter().position(|&entry| entry == (new.owner, other)) {
                tables.waiting.swap_remove(at);
            }
        }
        let list = tables.of(is_flock);
        Tables::carve(list, new.owner, new.start, new.end);
        list.push(new);
        // An exclusive lock may have become a shared one.
        self.tell(tables);
        Ok(())
    }

    /// Gives bytes back.
    pub(crate) fn unset(&self, owner: u64, start: u64, end: u64, is_flock: bool) {
        let mut tables = lock(&self.tables);
        Tables::carve(tables.of(is_flock), owner, start, end);
        self.tell(tables);
    }

    /// Something has changed. Most often nobody waits, and a call of the system would be for nobody.
    fn tell(&self, tables: MutexGuard<'_, Tables>) {
        let is_awaited = !tables.waiting.is_empty();
        drop(tables);
        if is_awaited {
            self.changed.notify_all();
        }
    }

    /// What an owner has.
    pub(crate) fn of(&self, owner: u64, is_flock: bool) -> Vec<Lock> {
        lock(&self.tables).of(is_flock).iter().filter(|held| held.owner == owner).copied().collect()
    }

    /// A lock that is in the way of `new`.
    pub(crate) fn find(&self, new: &Lock) -> Option<Lock> {
        let tables = lock(&self.tables);
        let in_the_way = tables.ranges.iter().filter(|held| held.is_in_the_way(new));
        in_the_way.min_by_key(|held| held.start).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::error::Error;

    fn ask(owner: u64, kind: LockKind, start: u64, end: u64) -> Lock {
        Lock { owner, kind, start, end }
    }

    fn number(result: Result<()>) -> Option<Errno> {
        result.err().map(|e: Error| e.errno())
    }

    #[test]
    fn a_range_is_cut_where_its_owner_gives_back_or_changes_a_part() {
        let locks = Locks::default();
        locks.set(ask(1, LockKind::Exclusive, 0, 99), false, false).expect("free");
        locks.unset(1, 40, 59, false);
        locks.set(ask(2, LockKind::Exclusive, 40, 59), false, false).expect("given back");
        assert_eq!(number(locks.set(ask(2, LockKind::Shared, 30, 45), false, false)), Some(Errno::AGAIN));
        locks.set(ask(1, LockKind::Shared, 0, 39), false, false).expect("its own");
        locks.set(ask(2, LockKind::Shared, 30, 45), false, false).expect("shared by now");
        assert_eq!(locks.find(&ask(3, LockKind::Exclusive, 99, u64::MAX)).map(|held| held.owner), Some(1));
        assert_eq!(locks.find(&ask(3, LockKind::Exclusive, 100, u64::MAX)), None);
        assert_eq!(number(locks.set(ask(1, LockKind::Shared, 5, 4), false, false)), Some(Errno::INVAL));
        // `flock` knows nothing of all this.
        locks.set(ask(7, LockKind::Exclusive, 0, u64::MAX), true, false).expect("free");
        assert_eq!(number(locks.set(ask(8, LockKind::Shared, 0, u64::MAX), true, false)), Some(Errno::AGAIN));
    }

    #[test]
    fn who_waits_gets_it_and_a_circle_is_refused() {
        let locks = Arc::new(Locks::default());
        locks.set(ask(1, LockKind::Exclusive, 0, 9), false, true).expect("free");
        locks.set(ask(2, LockKind::Exclusive, 10, 19), false, true).expect("free");
        let waiter = {
            let locks = Arc::clone(&locks);
            std::thread::spawn(move || locks.set(ask(1, LockKind::Exclusive, 10, 19), false, true))
        };
        while lock(&locks.tables).waiting.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(number(locks.set(ask(2, LockKind::Shared, 0, 0), false, true)), Some(Errno::DEADLK));
        locks.unset(2, 0, u64::MAX, false);
        waiter.join().expect("thread").expect("given back");
        assert!(lock(&locks.tables).waiting.is_empty());
    }
}
