//! The standard library's locks, held on to after a panic.
//!
//! A lock is poisoned when its holder panicked. Whoever locks it next could panic too, which turns one failed
//! call into a device that no thread can use, close or flush; and a destructor that panics ends the process.
//! Everything behind a lock of this project is therefore written to be whole, or to be taken as it is, at
//! each point where its holder could panic, and the lock goes on with it. The panic itself has been reported
//! by then. These functions are the one place that says so; clippy refuses `PoisonError` everywhere else.

#![expect(clippy::disallowed_types, reason = "the one place that decides about poisoned locks")]

use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};
use std::time::Duration;

/// Locks `mutex`.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks `mutex`, unless somebody holds it.
pub fn try_lock<T: ?Sized>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Locks `lock` beside other readers.
pub fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks `lock` alone.
pub fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Gives `guard` up until `condvar` is notified, or for no reason.
pub fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Gives `guard` up while `is_waiting` says so, but not for longer than `limit`.
pub fn wait_while<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    limit: Duration,
    is_waiting: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    condvar.wait_timeout_while(guard, limit, is_waiting).unwrap_or_else(PoisonError::into_inner).0
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Mutex, RwLock};

    use super::{lock, read, try_lock, write};

    #[test]
    fn a_lock_whose_holder_panicked_is_taken_as_it_was_left() {
        let mutex = Mutex::new(1);
        let both = RwLock::new(1);
        catch_unwind(AssertUnwindSafe(|| {
            let (mut guard, mut other) = (lock(&mutex), write(&both));
            (*guard, *other) = (2, 3);
            panic!("with both locks held");
        }))
        .expect_err("it panicked");
        assert!(mutex.is_poisoned() && both.is_poisoned());
        assert_eq!(*lock(&mutex), 2);
        assert_eq!(*read(&both), 3);
        assert_eq!(try_lock(&mutex).as_deref(), Some(&2));
    }

    #[test]
    fn a_lock_that_is_held_is_not_tried_for_long() {
        let mutex = Mutex::new(());
        let held = lock(&mutex);
        assert!(try_lock(&mutex).is_none());
        drop(held);
        assert!(try_lock(&mutex).is_some());
    }
}
