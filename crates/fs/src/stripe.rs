//! Things that threads take and give back, some of them set aside for each CPU.

use std::sync::atomic::{AtomicI64, Ordering};

pub(crate) use unvme::stripe::{Apart, Stripes, Tally};

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
