//! A set of byte offsets, as disjoint ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint ranges that do not touch: the end of each by its start.
#[derive(Debug, Default)]
pub(super) struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    /// Adds a range, merged with those that it overlaps or touches.
    pub(super) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        if let Some((&before, &its_end)) = self.0.range(..start).next_back()
            && its_end >= start
        {
            (start, end) = (before, end.max(its_end));
        }
        while let Some((&next, &its_end)) = self.0.range(start..=end).next() {
            self.0.remove(&next);
            end = end.max(its_end);
        }
        self.0.insert(start, end);
    }

    /// Returns whether an offset is in the set, and where the run of offsets ends of which the same is true.
    pub(super) fn piece(&self, at: u64) -> (bool, u64) {
        match self.0.range(..=at).next_back() {
            Some((_, &end)) if at < end => (true, end),
            _ => (false, self.0.range(at..).next().map_or(u64::MAX, |(&start, _)| start)),
        }
    }

    /// The parts of a range, in order: each is in the set as a whole, or not at all.
    pub(super) fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = (bool, Range<u64>)> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let start = at;
            let (is_in, end) = self.piece(start);
            at = end.min(range.end);
            (start < range.end).then_some((is_in, start..at))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_meet_are_one() {
        let mut set = RangeSet::default();
        for range in [10..20, 30..40, 5..5, 20..25, 0..4, 24..31] {
            set.insert(range);
        }
        assert_eq!(set.0.into_iter().collect::<Vec<_>>(), [(0, 4), (10, 40)]);
    }

    #[test]
    fn parts_of_a_range_are_in_the_set_or_not() {
        let mut set = RangeSet::default();
        set.insert(10..20);
        set.insert(30..u64::MAX);
        let parts: Vec<_> = set.pieces(5..35).collect();
        assert_eq!(parts, [(false, 5..10), (true, 10..20), (false, 20..30), (true, 30..35)]);
        assert_eq!(set.pieces(12..15).collect::<Vec<_>>(), [(true, 12..15)]);
        assert_eq!(set.pieces(7..7).count(), 0);
        assert_eq!(set.piece(u64::MAX - 1), (true, u64::MAX));
    }

    #[test]
    fn offsets_are_in_the_set_as_in_a_plain_list_of_them() {
        let mut set = RangeSet::default();
        let mut plain = [false; 200];
        let mut random = 1_u64;
        for _ in 0..60 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (start, bytes) = (random >> 33 & 127, random >> 45 & 15);
            set.insert(start..start + bytes);
            plain[start as usize..(start + bytes) as usize].fill(true);
            for at in 0..200 {
                assert_eq!(set.piece(at).0, plain[at as usize], "{at} in {set:?}");
            }
        }
    }
}
