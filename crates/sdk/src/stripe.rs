//! What all threads change all the time, several times over: threads on different CPUs change different
//! copies, whose cache lines stay where they are. Whoever wants the whole adds the copies up.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

/// Copies at most.
const MOST: usize = 32;

/// The CPU that the caller was on lately: to ask costs more than to be wrong now and then.
#[inline]
fn cpu() -> usize {
    const CALLS: u32 = 64;
    thread_local! {
        static LATELY: Cell<(usize, u32)> = const { Cell::new((0, 0)) };
    }
    let (cpu, calls) = LATELY.get();
    let (cpu, calls) = if calls == 0 { (rustix::thread::sched_getcpu(), CALLS) } else { (cpu, calls) };
    LATELY.set((cpu, calls - 1));
    cpu
}

/// A value with cache lines of its own, two of them: processors fetch lines in pairs.
#[repr(align(128))]
#[derive(Debug, Default)]
pub struct Apart<T>(pub T);

/// Copies of a value, for the CPUs in turn.
#[derive(Debug)]
pub struct Stripes<T>(Box<[Apart<T>]>);

impl<T: Default> Default for Stripes<T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T> Stripes<T> {
    /// As many as there are CPUs for this process, made by `make`.
    pub fn new(mut make: impl FnMut() -> T) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let copies = cpus.next_power_of_two().min(MOST);
        Self((0..copies).map(|_| Apart(make())).collect())
    }

    /// Something for each copy.
    pub fn map<R>(&self, make: impl Fn(&T) -> R) -> Stripes<R> {
        Stripes(self.iter().map(|value| Apart(make(value))).collect())
    }

    /// That of the CPU the caller is on. Others may use the same one.
    #[inline]
    pub fn own(&self) -> &T {
        &self.0[cpu() & (self.0.len() - 1)].0
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|apart| &apart.0)
    }
}

/// A count that nobody needs to know exactly while it changes.
#[derive(Debug)]
pub struct Tally {
    common: AtomicI64,
    parts: Stripes<AtomicI64>,
    /// How much a CPU counts by itself.
    portion: i64,
}

impl Tally {
    /// A count from 0 on, of which a CPU has a portion for itself.
    pub fn new(portion: i64) -> Self {
        Self { common: AtomicI64::new(0), parts: Stripes::default(), portion }
    }

    /// Counts so many more, or fewer.
    #[inline]
    pub fn add(&self, more: i64) {
        let own = self.parts.own();
        let now = own.fetch_add(more, Ordering::Relaxed) + more;
        if now.abs() >= self.portion {
            self.common.fetch_add(own.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The count, off by at most a portion for each CPU.
    #[inline]
    pub fn about(&self) -> i64 {
        self.common.load(Ordering::Relaxed)
    }

    /// The count; exact when nobody counts meanwhile.
    pub fn total(&self) -> i64 {
        let parts: i64 = self.parts.iter().map(|part| part.load(Ordering::Relaxed)).sum();
        self.about() + parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_exact_in_the_end_and_nearly_so_before() {
        let tally = Tally::new(10);
        for more in [3, -8, 9, 4, 100, -95, -7] {
            tally.add(more);
            assert!((tally.about() - tally.total()).abs() < 10 * 32);
        }
        assert_eq!(tally.total(), 6);
    }
}
