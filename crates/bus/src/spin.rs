//! A lock whose release waits for nothing.
// UNSAFETY: a lock hands out the only reference to what it protects, which the compiler cannot see.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Looks at a lock that is held before the thread gives its turn away.
const SPINS: u32 = 100;
/// Looks before it sleeps in between.
const LOOKS_AWAKE: u32 = 200;
const NAP: Duration = Duration::from_micros(50);

/// A mutual exclusion lock for critical sections that are short and hardly ever contended, and end with
/// writes to memory that is far away.
///
/// Releasing a [`std::sync::Mutex`] exchanges its word to learn whether somebody sleeps, and an exchange
/// waits until all earlier writes have left the processor. Here it is a plain store: the writes are on their
/// way while the thread goes on. Nobody sleeps on the lock; who has to wait spins, then yields, then naps. A
/// panic while it is held releases it.
#[derive(Debug, Default)]
pub struct SpinLock<T> {
    is_locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives one thread at a time access to the value, which moves between threads by that.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// The right to use what a [`SpinLock`] protects.
#[derive(Debug)]
pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
    /// A guard may be used by several threads only as far as the value itself may.
    _value: std::marker::PhantomData<&'a mut T>,
}

impl<T> SpinLock<T> {
    /// A lock that is free.
    pub const fn new(value: T) -> Self {
        Self { is_locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits until the lock is free, and takes it.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        // Acquire: pairs with the Release in `drop`.
        let taken =
            self.is_locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // Made only when it is due: dropping a guard releases the lock.
        taken.then(|| SpinGuard { lock: self, _value: std::marker::PhantomData })
    }

    #[cold]
    fn wait(&self) -> SpinGuard<'_, T> {
        let mut looks = 0u32;
        loop {
            // Only looked at while it is held: taking it would fetch the line away from its holder each time.
            if !self.is_locked.load(Ordering::Relaxed)
                && let Some(guard) = self.try_lock()
            {
                return guard;
            }
            looks = looks.saturating_add(1);
            match looks {
                0..SPINS => std::hint::spin_loop(),
                SPINS..LOOKS_AWAKE => std::thread::yield_now(),
                _ => std::thread::sleep(NAP),
            }
        }
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this thread holds the lock, and nobody else has a reference to the
        // value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.is_locked.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_add_under_the_lock_lose_no_addition() {
        let lock = SpinLock::new((0u64, 0u64));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let mut pair = lock.lock();
                        assert_eq!(pair.0, pair.1);
                        pair.0 += 1;
                        pair.1 += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), (80_000, 80_000));
    }

    #[test]
    fn a_lock_that_is_held_is_not_given_twice_and_a_panic_releases_it() {
        let lock = SpinLock::new(1);
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = lock.lock();
            std::panic::panic_any(());
        }));
        assert!(result.is_err());
        assert!(lock.try_lock().is_some());
    }
}
