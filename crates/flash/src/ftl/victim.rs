//! Which unit is reclaimed next.

use super::policy::VictimPolicy;
use super::units::Units;

/// Units that cost-benefit compares for a victim: some for each page of it, so that choosing costs less than
/// moving, in these bounds. A group with more is looked at so many at a time, in turn: the best of thousands
/// is as good as the best of all.
const COMPARED_FOR_A_PAGE: u32 = 4;
const COMPARED_MIN: u32 = 2048;
const COMPARED_MAX: u32 = 4096;

/// Units with as many valid pages that are compared by wear. They are looked at in turn, so that none is left
/// out for ever.
const TIES_COMPARED: usize = 8;

/// A xorshift generator: what is random here has to be fast and repeatable, and nothing else.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u64::from((self.0 >> 32) as u32) * u64::from(bound)) >> 32) as u32
    }
}

/// What choosing keeps from one victim to the next.
pub(super) struct Chooser {
    policy: VictimPolicy,
    random: Random,
    /// Where cost-benefit, or the choice among equals, goes on in each group.
    cursors: Box<[u32]>,
}

impl Chooser {
    pub(super) fn new(policy: VictimPolicy, seed: u64, groups: u16) -> Self {
        Self { policy, random: Random::new(seed), cursors: vec![0; groups.into()].into() }
    }

    /// Chooses a closed unit of a group; `None` when nothing can be won. `now` counts pages hosts have
    /// written.
    pub(super) fn choose(&mut self, units: &mut Units, group: u16, unit_pages: u32, now: u64) -> Option<u32> {
        let has_holes = |unit: &u32, units: &Units| units.valid(*unit) < unit_pages;
        // Whatever the policy: a unit from which something can be won is there, or none is.
        let fewest = units.fewest_valid(group).filter(|unit| has_holes(unit, units))?;
        let chosen = match self.policy {
            VictimPolicy::Greedy => self.least_worn_of_lowest(units, group),
            VictimPolicy::Fifo => units.oldest_with_holes(group),
            VictimPolicy::CostBenefit => self.best_ratio(units, group, unit_pages, now),
            VictimPolicy::DChoice(choices) => self.sample(units, group, choices),
        };
        chosen.filter(|unit| has_holes(unit, units)).or(Some(fewest))
    }

    fn least_worn_of_lowest(&mut self, units: &Units, group: u16) -> Option<u32> {
        let ties = units.buckets.lowest(group.into());
        let compared = ties.len().min(TIES_COMPARED);
        let cursor = &mut self.cursors[usize::from(group)];
        let first = *cursor as usize % ties.len().max(1);
        *cursor = (first + compared) as u32;
        let in_turn = ties[first..].iter().chain(&ties[..first]).take(compared);
        in_turn.copied().min_by_key(|&unit| {
            let unit = &units.units[unit as usize];
            (unit.erased, unit.closed_at)
        })
    }

    fn best_ratio(&mut self, units: &Units, group: u16, unit_pages: u32, now: u64) -> Option<u32> {
        let range = units.range_of(group);
        let count = range.end - range.start;
        let cursor = &mut self.cursors[usize::from(group)];
        let first = *cursor;
        let wanted = unit_pages.saturating_mul(COMPARED_FOR_A_PAGE).clamp(COMPARED_MIN, COMPARED_MAX);
        let compared = count.min(wanted);
        *cursor = (first + compared) % count;
        let mut best = None;
        // (1 - u) * age / 2u, but for factors that all have, as a fraction: dividing would take most of the
        // time.
        let mut best_score = (0.0, 1.0);
        for at in first..first + compared {
            let number = range.start + if at >= count { at - count } else { at };
            if !units.buckets.contains(number) {
                continue;
            }
            let valid = units.valid(number);
            let age = now - units.units[number as usize].closed_at + 1;
            let score = (f64::from(unit_pages - valid) * age as f64, f64::from(valid));
            if score.0 * best_score.1 > best_score.0 * score.1 {
                best_score = score;
                best = Some(number);
            }
        }
        best
    }

    fn sample(&mut self, units: &Units, group: u16, choices: u8) -> Option<u32> {
        let range = units.range_of(group);
        let count = range.end - range.start;
        let mut best: Option<u32> = None;
        let mut found = 0;
        // Most units are closed: a few more draws than choices find enough of them.
        for _ in 0..u32::from(choices) * 8 + 64 {
            let number = range.start + self.random.below(count);
            if units.buckets.contains(number) {
                found += 1;
                if best.is_none_or(|best| units.valid(number) < units.valid(best)) {
                    best = Some(number);
                }
                if found == u32::from(choices) {
                    break;
                }
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::FtlConfig;
    use super::*;

    const PAGES: u32 = 16;

    /// Units 0, 1 and so on, closed in this order with so many valid pages.
    fn closed(valid: &[u32]) -> Units {
        let mut units = Units::new(&FtlConfig::simple(128, 64, PAGES));
        for (now, &pages) in (0_u64..).zip(valid) {
            let unit = units.open(0, 0, false, |_| true).unwrap();
            units.buckets.add_valid(unit, pages);
            units.close(unit, PAGES, now, false);
        }
        units
    }

    fn chosen(policy: VictimPolicy, seed: u64, units: &mut Units) -> Option<u32> {
        Chooser::new(policy, seed, 1).choose(units, 0, PAGES, 100)
    }

    #[test]
    fn each_policy_chooses_its_own_victim_and_none_without_holes() {
        for seed in 1..20 {
            let units = || closed(&[16, 9, 3, 12, 5]);
            assert_eq!(chosen(VictimPolicy::Greedy, seed, &mut units()), Some(2));
            assert_eq!(chosen(VictimPolicy::Fifo, seed, &mut units()), Some(1));
            assert_eq!(chosen(VictimPolicy::DChoice(200), seed, &mut units()), Some(2), "seed {seed}");
            for policy in [
                VictimPolicy::Greedy,
                VictimPolicy::Fifo,
                VictimPolicy::CostBenefit,
                VictimPolicy::DChoice(4),
            ] {
                assert_eq!(chosen(policy, seed, &mut closed(&[16, 16])), None, "{policy:?}");
            }
        }
    }

    #[test]
    fn among_units_with_as_many_valid_pages_the_least_worn_one_is_chosen() {
        let mut units = closed(&[3, 3, 3]);
        for (unit, erased) in [(0, 2), (1, 1), (2, 2)] {
            units.at(unit).erased = erased;
        }
        assert_eq!(chosen(VictimPolicy::Greedy, 1, &mut units), Some(1));
    }
}
