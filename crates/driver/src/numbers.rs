//! Small numbers that are taken and given back: queue identifiers, interrupt vectors, places.

use std::sync::{Mutex, MutexGuard};

use unvme_bus::lock;

/// Which of the numbers from 0 on are taken.
#[derive(Debug)]
pub(crate) struct Numbers(Mutex<Vec<bool>>);

impl Numbers {
    /// So many numbers, of which none is taken.
    pub(crate) fn new(count: usize) -> Self {
        Self(Mutex::new(vec![false; count]))
    }

    fn taken(&self) -> MutexGuard<'_, Vec<bool>> {
        // Only flags are flipped under this lock.
        lock(&self.0)
    }

    pub(crate) fn count(&self) -> usize {
        self.taken().len()
    }

    /// Makes it `count` numbers, when there are fewer.
    pub(crate) fn grow(&self, count: usize) {
        let mut taken = self.taken();
        let count = count.max(taken.len());
        taken.resize(count, false);
    }

    /// Takes the first free number from `first` on.
    pub(crate) fn take(&self, first: usize) -> Option<usize> {
        let mut taken = self.taken();
        let (number, flag) = taken.iter_mut().enumerate().skip(first).find(|(_, taken)| !**taken)?;
        *flag = true;
        Some(number)
    }

    /// Takes this number; false when somebody has it, or there is no such number.
    pub(crate) fn claim(&self, number: usize) -> bool {
        self.taken().get_mut(number).is_some_and(|taken| !std::mem::replace(taken, true))
    }

    pub(crate) fn give_back(&self, number: usize) {
        if let Some(taken) = self.taken().get_mut(number) {
            *taken = false;
        }
    }
}
