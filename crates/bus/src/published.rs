//! A value that changes rarely and is read all the time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::lock;

/// The current version of `T`. Readers keep a [`Reader`] and pay one load to see that nothing has changed.
#[derive(Debug, Default)]
pub struct Published<T> {
    generation: AtomicU64,
    current: Mutex<Arc<T>>,
}

/// A reader's version of a [`Published`] value.
#[derive(Clone, Debug)]
pub struct Reader<T> {
    generation: u64,
    value: Arc<T>,
}

impl<T> Published<T> {
    /// Publishes a first version.
    pub fn new(value: T) -> Self {
        Self { generation: AtomicU64::new(0), current: Mutex::new(Arc::new(value)) }
    }

    /// The current version.
    pub fn get(&self) -> Arc<T> {
        Arc::clone(&self.lock())
    }

    /// A reader at the current version.
    pub fn reader(&self) -> Reader<T> {
        let current = self.lock();
        Reader { generation: self.generation.load(Ordering::Relaxed), value: Arc::clone(&current) }
    }

    /// Brings `reader` up to date; true when its version has changed.
    #[inline]
    pub fn refresh(&self, reader: &mut Reader<T>) -> bool {
        // Acquire: pairs with the Release in `update`; seeing the new number means the lock yields the new
        // value.
        if self.generation.load(Ordering::Acquire) == reader.generation {
            return false;
        }
        *reader = self.reader();
        true
    }

    /// Replaces the value by what `change` makes of it. When `change` fails nothing is replaced. Errors: what
    /// `change` returns.
    pub fn update<R, E>(&self, change: impl FnOnce(&T) -> Result<(T, R), E>) -> Result<R, E> {
        let mut current = self.lock();
        let (value, result) = change(&current)?;
        *current = Arc::new(value);
        self.generation.fetch_add(1, Ordering::Release);
        Ok(result)
    }

    fn lock(&self) -> MutexGuard<'_, Arc<T>> {
        // The guarded value is replaced in one assignment: a panic elsewhere leaves it whole.
        lock(&self.current)
    }
}

impl<T> std::ops::Deref for Reader<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}
