//! Which pairs a test touches, and in which order: every pair has a number, its id.

use unvme::random;

use crate::perf::Random;

/// Order of the ids of a test, by the numbers of `kv_perf -p`.
///
/// The guide's table lists 3 and 4 the other way round; the numbers here are those of the original program,
/// of its own help and of its scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// 0: ascending.
    Ascending,
    /// 1: descending.
    Descending,
    /// 2: any of them at random, some more than once.
    Uniform,
    /// 3: any of a range at random, whatever offset and number of keys say about the ids.
    Range {
        /// First id.
        first: u64,
        /// Last id.
        last: u64,
    },
    /// 4: each of them once, shuffled.
    Shuffled,
}

impl Workload {
    /// The order in words.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ascending => "ascending",
            Self::Descending => "descending",
            Self::Uniform => "random",
            Self::Range { .. } => "random in a range",
            Self::Shuffled => "shuffled",
        }
    }
}

/// The ids of one thread in one test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ids {
    /// Their order.
    pub(crate) workload: Workload,
    pub(crate) first: u64,
    /// How many are touched.
    pub(crate) count: u64,
    /// Of all that is random; the same seed gives the same ids again.
    pub(crate) seed: u64,
}

impl Ids {
    /// The ids in order, the same ones on each call.
    pub(crate) fn iter(self) -> impl Iterator<Item = u64> {
        let mut random = Random::new(self.seed, 0);
        let permutation = Permutation::new(self.count, self.seed);
        (0..self.count).map(move |place| match self.workload {
            Workload::Ascending => self.first + place,
            Workload::Descending => self.first + (self.count - 1 - place),
            Workload::Uniform => self.first + random.below(self.count),
            Workload::Range { first, last } => first + random.below((last - first).saturating_add(1)),
            Workload::Shuffled => self.first + permutation.at(place),
        })
    }

    /// The highest id that can occur; `None` when none does.
    pub(crate) fn highest(self) -> Option<u64> {
        let last = self.count.checked_sub(1)?;
        Some(match self.workload {
            Workload::Range { last, .. } => last,
            _ => self.first.saturating_add(last),
        })
    }
}

/// The number after `number` in the series of SplitMix64: any number, spread over all 64 bits.
pub(crate) fn scatter(number: u64) -> u64 {
    random::mix(number.wrapping_add(random::STEP))
}

/// A shuffle of `0..count` that needs no memory: a Feistel network on the next even power of two, walked
/// until it is back inside.
#[derive(Clone, Copy, Debug)]
struct Permutation {
    count: u64,
    half_bits: u32,
    seed: u64,
}

/// Rounds of the network; four are enough to look random.
const ROUNDS: u64 = 4;

impl Permutation {
    fn new(count: u64, seed: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        Self { count, half_bits: bits.div_ceil(2).max(1), seed: scatter(seed) }
    }

    fn at(&self, place: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let mut at = place;
        loop {
            let (mut left, mut right) = (at >> self.half_bits & mask, at & mask);
            for round in 0..ROUNDS {
                let mixed = scatter(right ^ self.seed.rotate_left(round as u32 * 16)) & mask;
                (left, right) = (right, left ^ mixed);
            }
            at = left << self.half_bits | right;
            if at < self.count {
                return at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(workload: Workload, first: u64, count: u64, seed: u64) -> Vec<u64> {
        Ids { workload, first, count, seed }.iter().collect()
    }

    #[test]
    fn sequences_go_up_and_down() {
        assert_eq!(ids(Workload::Ascending, 7, 4, 0), [7, 8, 9, 10]);
        assert_eq!(ids(Workload::Descending, 7, 4, 0), [10, 9, 8, 7]);
        assert!(ids(Workload::Descending, 7, 0, 0).is_empty());
    }

    #[test]
    fn a_shuffle_has_every_id_once_whatever_their_number() {
        for count in [0, 1, 2, 3, 5, 64, 1000, 4097] {
            let mut shuffled = ids(Workload::Shuffled, 100, count, 42);
            assert!(count < 64 || !shuffled.is_sorted(), "{count}");
            shuffled.sort_unstable();
            assert_eq!(shuffled, (100..100 + count).collect::<Vec<_>>(), "{count}");
        }
    }

    #[test]
    fn random_ids_stay_inside_and_reach_about_everything() {
        let mut seen = [0u32; 10];
        for id in ids(Workload::Uniform, 50, 10, 1).iter().chain(&ids(Workload::Uniform, 50, 10, 2)) {
            seen[(id - 50) as usize] += 1;
        }
        assert!(seen.iter().any(|&count| count > 1), "some twice: {seen:?}");
        let wide = ids(Workload::Range { first: 5, last: 6 }, 999, 1000, 3);
        let fives = wide.iter().filter(|&&id| id == 5).count();
        assert!(wide.iter().all(|id| (5..=6).contains(id)) && (400..600).contains(&fives), "{fives}");
        assert_eq!(ids(Workload::Range { first: 9, last: 9 }, 0, 3, 0), [9, 9, 9]);
    }

    #[test]
    fn a_seed_gives_the_same_ids_again_and_another_one_others() {
        for workload in [Workload::Uniform, Workload::Shuffled, Workload::Range { first: 0, last: 1 << 40 }] {
            assert_eq!(ids(workload, 0, 100, 7), ids(workload, 0, 100, 7));
            assert_ne!(ids(workload, 0, 100, 7), ids(workload, 0, 100, 8), "{workload:?}");
        }
    }

    #[test]
    fn the_highest_id_is_known_before() {
        let highest = |workload, first, count| Ids { workload, first, count, seed: 0 }.highest();
        assert_eq!(highest(Workload::Shuffled, 10, 5), Some(14));
        assert_eq!(highest(Workload::Range { first: 1, last: 99 }, 10, 5), Some(99));
        assert_eq!(highest(Workload::Ascending, 10, 0), None);
    }
}
