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
#[derive(Default)]
pub(crate) struct Apart<T>(pub T);

/// Copies of a value, for the CPUs in turn.
pub(crate) struct Stripes<T>(Box<[Apart<T>]>);

impl<T: Default> Default for Stripes<T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T> Stripes<T> {
    /// As many as there are CPUs for this process, made by `make`.
    pub(crate) fn new(mut make: impl FnMut() -> T) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let copies = cpus.next_power_of_two().min(MOST);
        Self((0..copies).map(|_| Apart(make())).collect())
    }

    /// Something for each copy.
    pub(crate) fn map<R>(&self, make: impl Fn(&T) -> R) -> Stripes<R> {
        Stripes(self.iter().map(|value| Apart(make(value))).collect())
    }

    /// That of the CPU the caller is on. Others may use the same one.
    #[inline]
    pub(crate) fn own(&self) -> &T {
        &self.0[cpu() & (self.0.len() - 1)].0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|apart| &apart.0)
    }
}

/// How many of the things that are kept for some are left by those who take some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    Kept,
    Half,
    None,
}

/// A number of things that threads take and give back. Each CPU has some of them set aside, so that most of
/// the time nobody touches what is common.
pub(crate) struct Stock {
    common: AtomicI64,
    parts: Stripes<AtomicI64>,
    /// How many a CPU sets aside.
    portion: i64,
    /// So many are for those alone who may take the last ones. They are never set aside for a CPU.
    kept: i64,
}

impl Stock {
    pub(crate) fn new(things: u64, portion: i64, kept: i64) -> Self {
        Self { common: AtomicI64::new(things as i64), parts: Stripes::default(), portion, kept }
    }

    /// How many there are, all in all. As long as somebody takes or gives back it may be off by what he does.
    pub(crate) fn total(&self) -> i64 {
        let parts: i64 = self.parts.iter().map(|part| part.load(Ordering::Relaxed)).sum();
        parts + self.common.load(Ordering::Relaxed)
    }

    /// Takes `count`, so that as many are left of those that are kept. Returns whether there were as many.
    pub(crate) fn take(&self, count: u64, leave: Leave) -> bool {
        let count = count as i64;
        let floor = match leave {
            Leave::Kept => self.kept,
            Leave::Half => self.kept / 2,
            Leave::None => 0,
        };
        let own = self.parts.own();
        if take_from(own, count, 0) {
            return true;
        }
        if take_from(&self.common, count + self.portion, self.kept) {
            own.fetch_add(self.portion, Ordering::AcqRel);
            return true;
        }
        if take_from(&self.common, count, floor) {
            return true;
        }
        // There is little left: what others have set aside counts, too.
        for part in self.parts.iter() {
            self.common.fetch_add(part.swap(0, Ordering::AcqRel), Ordering::AcqRel);
        }
        take_from(&self.common, count, floor)
    }

    pub(crate) fn put(&self, count: u64) {
        if count == 0 {
            return;
        }
        if self.common.load(Ordering::Acquire) < self.kept {
            // First those that are kept, so that a CPU has none of them.
            self.common.fetch_add(count as i64, Ordering::AcqRel);
            return;
        }
        let own = self.parts.own();
        if own.fetch_add(count as i64, Ordering::AcqRel) + count as i64 > 2 * self.portion {
            let have = own.swap(0, Ordering::AcqRel);
            let kept = have.min(self.portion);
            own.fetch_add(kept, Ordering::AcqRel);
            self.common.fetch_add(have - kept, Ordering::AcqRel);
        }
    }

    /// So many there are from now on.
    pub(crate) fn set(&self, things: u64) {
        self.parts.iter().for_each(|part| part.store(0, Ordering::Release));
        self.common.store(things as i64, Ordering::Release);
    }
}

/// A count that nobody needs to know exactly while it changes.
pub(crate) struct Tally {
    common: AtomicI64,
    parts: Stripes<AtomicI64>,
    /// How much a CPU counts by itself.
    portion: i64,
}

impl Tally {
    pub(crate) fn new(portion: i64) -> Self {
        Self { common: AtomicI64::new(0), parts: Stripes::default(), portion }
    }

    #[inline]
    pub(crate) fn add(&self, more: i64) {
        let own = self.parts.own();
        let now = own.fetch_add(more, Ordering::Relaxed) + more;
        if now.abs() >= self.portion {
            self.common.fetch_add(own.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The count, off by at most a portion for each CPU.
    #[inline]
    pub(crate) fn about(&self) -> i64 {
        self.common.load(Ordering::Relaxed)
    }

    /// The count; exact when nobody counts meanwhile.
    pub(crate) fn total(&self) -> i64 {
        let parts: i64 = self.parts.iter().map(|part| part.load(Ordering::Relaxed)).sum();
        self.about() + parts
    }
}

fn take_from(from: &AtomicI64, count: i64, floor: i64) -> bool {
    let left = |have: i64| (have - count >= floor).then_some(have - count);
    from.fetch_update(Ordering::AcqRel, Ordering::Acquire, left).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_can_be_had_down_to_the_floor_whoever_has_set_it_aside() {
        let stock = Stock::new(1000, 100, 50);
        assert!(stock.take(1, Leave::Kept));
        assert_eq!(stock.total(), 999);
        // All but those that are kept, although some were set aside.
        assert!(!stock.take(950, Leave::Kept));
        assert!(stock.take(949, Leave::Kept));
        assert_eq!(stock.total(), 50);
        assert!(!stock.take(1, Leave::Kept));
        assert!(!stock.take(26, Leave::Half) && stock.take(25, Leave::Half) && !stock.take(1, Leave::Half));
        assert!(stock.take(25, Leave::None));
        assert_eq!(stock.total(), 0);
        stock.put(1000);
        assert!(stock.take(1000, Leave::None));
        stock.set(7);
        assert!(!stock.take(8, Leave::None) && stock.take(7, Leave::None));
    }

    #[test]
    fn those_that_are_kept_stay_kept_when_they_were_taken_and_given_back() {
        let stock = Stock::new(60, 20, 50);
        for _ in 0..5 {
            assert!(stock.take(3, Leave::None));
            stock.put(3);
            assert!(!stock.take(11, Leave::Kept), "{}", stock.total());
        }
        assert!(stock.take(10, Leave::Kept) && stock.take(5, Leave::None) && !stock.take(1, Leave::Kept));
        stock.put(5);
        assert!(!stock.take(1, Leave::Kept) && stock.take(50, Leave::None));
    }

    #[test]
    fn a_count_is_exact_in_the_end_and_nearly_so_before() {
        let tally = Tally::new(10);
        for more in [3, -8, 9, 4, 100, -95, -7] {
            tally.add(more);
            assert!((tally.about() - tally.total()).abs() < 10 * 32);
        }
        assert_eq!(tally.total(), 6);
    }

    #[test]
    fn threads_together_take_no_more_than_there_are() {
        let stock = Stock::new(10_000, 64, 0);
        let taken: u64 = std::thread::scope(|scope| {
            let threads = [3, 5, 7, 11].map(|count| {
                let stock = &stock;
                scope.spawn(move || {
                    let (mut taken, mut turn) = (0, 0_u64);
                    while stock.take(count, Leave::None) {
                        turn += 1;
                        match turn.is_multiple_of(3) {
                            true => stock.put(count),
                            false => taken += count,
                        }
                    }
                    taken
                })
            });
            threads.into_iter().map(|thread| thread.join().expect("it ended")).sum()
        });
        assert_eq!(taken as i64 + stock.total(), 10_000);
        assert!(stock.total() < 11, "{}", stock.total());
    }
}
