//! Advisory locks: ranges of bytes, as `fcntl(F_OFD_SETLK)` and `F_SETLK` have them, and whole files, as
//! `flock` has them. The two do not know of each other.

use std::ops::Range;
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

/// Locks that do not know of those in another table, as Linux has them: those of one owner beside each other
/// and in order, none touching another one of its kind; owners in the order in which they came.
#[derive(Default)]
struct Table(Vec<Lock>);

impl Table {
    /// Where an owner's locks are.
    fn group(&self, owner: u64) -> Range<usize> {
        let start = self.0.iter().position(|lock| lock.owner == owner).unwrap_or(self.0.len());
        start..start + self.0[start..].partition_point(|lock| lock.owner == owner)
    }

    /// What an owner has of these bytes is this from now on.
    fn assign(&mut self, owner: u64, start: u64, end: u64, kind: Option<LockKind>) {
        let group = self.group(owner);
        let held = &self.0[group.clone()];
        // Those that touch may become one with the new one.
        let from = group.start + held.partition_point(|lock| lock.end.saturating_add(1) < start);
        let to = group.start + held.partition_point(|lock| lock.start <= end.saturating_add(1));
        let mut new = kind.map(|kind| Lock { owner, kind, start, end });
        let (mut before, mut after) = (None, None);
        for lock in &self.0[from..to] {
            match &mut new {
                Some(new) if new.kind == lock.kind => {
                    new.start = new.start.min(lock.start);
                    new.end = new.end.max(lock.end);
                }
                _ => {
                    if lock.start < start {
                        before = Some(Lock { end: lock.end.min(start - 1), ..*lock });
                    }
                    if lock.end > end {
                        after = Some(Lock { start: lock.start.max(end + 1), ..*lock });
                    }
                }
            }
        }
        self.0.splice(from..to, [before, new, after].into_iter().flatten());
    }

    /// The first lock that is in the way of `new`.
    fn in_the_way(&self, new: &Lock) -> Option<&Lock> {
        self.0.iter().find(|held| held.is_in_the_way(new))
    }
}

#[derive(Default)]
struct Tables {
    ranges: Table,
    whole: Table,
    /// Who waits for a range, and for whom.
    waiting: Vec<(u64, u64)>,
}

impl Tables {
    fn of(&mut self, is_flock: bool) -> &mut Table {
        if is_flock { &mut self.whole } else { &mut self.ranges }
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
    /// Takes a lock, in place of what the owner has there; `flock` gives that back first.
    ///
    /// # Errors
    /// EAGAIN when somebody is in the way and it does not wait; EDEADLK when it would wait for itself; EINVAL
    /// for a range that is none.
    pub(crate) fn set(&self, new: Lock, is_flock: bool, waits: bool) -> Result<()> {
        if new.end < new.start {
            return Err(Errno::INVAL.into());
        }
        let mut tables = lock(&self.tables);
        if is_flock {
            let held = tables.whole.group(new.owner);
            match tables.whole.0[held].first() {
                Some(held) if held.kind == new.kind => return Ok(()),
                None => {}
                // What it has is given back before anybody else's is looked at, and not had again.
                Some(_) => {
                    tables.whole.assign(new.owner, 0, u64::MAX, None);
                    self.changed.notify_all();
                }
            }
        }
        while let Some(other) = tables.of(is_flock).in_the_way(&new).map(|held| held.owner) {
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
        tables.of(is_flock).assign(new.owner, new.start, new.end, Some(new.kind));
        // An exclusive lock may have become a shared one.
        self.tell(tables);
        Ok(())
    }

    /// Gives bytes back.
    pub(crate) fn unset(&self, owner: u64, start: u64, end: u64, is_flock: bool) {
        let mut tables = lock(&self.tables);
        tables.of(is_flock).assign(owner, start, end, None);
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
        let mut tables = lock(&self.tables);
        let table = tables.of(is_flock);
        table.0[table.group(owner)].to_vec()
    }

    /// The lock that is in the way of `new`: of the owner who came first, the first one.
    pub(crate) fn find(&self, new: &Lock) -> Option<Lock> {
        lock(&self.tables).ranges.in_the_way(new).copied()
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
    fn who_wants_a_whole_file_alone_gives_up_what_it_shares() {
        let locks = Locks::default();
        let take = |owner, kind| number(locks.set(ask(owner, kind, 0, u64::MAX), true, false));
        assert_eq!(take(1, LockKind::Shared), None);
        assert_eq!(take(2, LockKind::Shared), None);
        assert_eq!(take(1, LockKind::Exclusive), Some(Errno::AGAIN));
        assert_eq!(take(2, LockKind::Exclusive), None);
        assert_eq!(take(2, LockKind::Exclusive), None);
        assert_eq!(take(1, LockKind::Shared), Some(Errno::AGAIN));
    }

    #[test]
    fn ranges_that_touch_are_one_and_who_came_first_is_named() {
        let locks = Locks::default();
        let set = |lock| locks.set(lock, false, false).expect("free");
        let found = |kind| locks.find(&ask(9, kind, 0, u64::MAX)).map(|held| (held.start, held.end));
        set(ask(1, LockKind::Exclusive, 10, 19));
        set(ask(1, LockKind::Exclusive, 30, 39));
        set(ask(1, LockKind::Exclusive, 20, 29));
        assert_eq!(found(LockKind::Shared), Some((10, 39)));
        set(ask(1, LockKind::Exclusive, 35, u64::MAX));
        assert_eq!(found(LockKind::Shared), Some((10, u64::MAX)));
        set(ask(1, LockKind::Shared, 12, 14));
        assert_eq!(locks.of(1, false).len(), 3);
        locks.unset(1, 0, u64::MAX, false);
        assert_eq!(found(LockKind::Exclusive), None);
        set(ask(1, LockKind::Exclusive, 50, 59));
        set(ask(2, LockKind::Exclusive, 0, 9));
        assert_eq!(found(LockKind::Shared), Some((50, 59)));
        // In place of itself it stays where it is.
        set(ask(1, LockKind::Shared, 40, 69));
        assert_eq!(found(LockKind::Exclusive), Some((40, 69)));
    }

    proptest::proptest! {
        /// Each byte by itself is the model.
        #[test]
        fn ranges_are_what_their_bytes_are(
            changes in proptest::collection::vec((0_u64..3, 0_u64..20, 0_u64..9, 0_u8..3), 1..40)
        ) {
            let locks = Locks::default();
            let mut bytes = [[None; 32]; 3];
            for (owner, start, length, what) in changes {
                let kind = [Some(LockKind::Shared), Some(LockKind::Exclusive), None][usize::from(what)];
                let end = start + length;
                let is_free = |kind: LockKind| !(0..3).filter(|other| *other != owner).any(|other| {
                    bytes[other as usize][start as usize..=end as usize].iter().flatten()
                        .any(|held| *held == LockKind::Exclusive || kind == LockKind::Exclusive)
                });
                match kind {
                    Some(kind) if !is_free(kind) => {
                        let refused = locks.set(ask(owner, kind, start, end), false, false);
                        assert_eq!(number(refused), Some(Errno::AGAIN));
                        continue;
                    }
                    Some(kind) => locks.set(ask(owner, kind, start, end), false, false).expect("free"),
                    None => locks.unset(owner, start, end, false),
                }
                bytes[owner as usize][start as usize..=end as usize].fill(kind);
                for owner in 0..3 {
                    let held = locks.of(owner, false);
                    let mut found = [None; 32];
                    held.iter().for_each(|held| found[held.start as usize..=held.end as usize].fill(Some(held.kind)));
                    assert_eq!(found, bytes[owner as usize]);
                    let is_apart = |pair: &[Lock]| {
                        pair[0].end + u64::from(pair[0].kind == pair[1].kind) < pair[1].start
                    };
                    assert!(held.windows(2).all(is_apart), "{held:?}");
                }
            }
        }
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
