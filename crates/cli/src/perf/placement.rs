//! The values of `--fdp-pid` and `--fdp-select`, and which placement identifier a write carries.

use std::str::FromStr;

use clap::ValueEnum;
use unvme::fdp::PlacementId;

use super::addresses::Random;

/// Placement identifiers as typed, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlacementList(pub(super) Vec<PlacementId>);

const SYNTAX: &str = "expected placement identifiers of 0 to 65535, such as 0,2 or 0-3";
/// A namespace has no more placement identifiers than there are numbers for them.
const LIST_MAX: usize = 1 << 16;

impl FromStr for PlacementList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u16>().ok().filter(|_| digits).ok_or_else(|| format!("{text:?}; {SYNTAX}"))
        };
        let mut list = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(format!("{part} goes backwards; {SYNTAX}"));
            }
            list.extend((first..=last).map(PlacementId));
            if list.len() > LIST_MAX {
                return Err(format!("more than {LIST_MAX} placement identifiers; {SYNTAX}"));
            }
        }
        Ok(Self(list))
    }
}

/// How a write gets one of several placement identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Select {
    /// One after the other, on each queue
    RoundRobin,
    /// Any of them
    Random,
}

impl Select {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::Random => "random",
        }
    }
}

/// The placement identifiers of the writes of one lane, an endless series.
#[derive(Clone, Debug)]
pub(super) struct Placements {
    list: Vec<PlacementId>,
    select: Select,
    next: usize,
    random: Random,
}

impl Placements {
    /// The series number `stream`; `None` without identifiers.
    pub(super) fn new(list: &[PlacementId], select: Select, seed: u64, stream: u64) -> Option<Self> {
        // Streams of addresses count from 0: these count from the other end.
        let random = Random::new(seed, !stream);
        (!list.is_empty()).then(|| Self { list: list.to_vec(), select, next: 0, random })
    }

    /// The identifier of a stream that was recorded.
    pub(super) fn of(&self, stream: u16) -> PlacementId {
        self.list[usize::from(stream) % self.list.len()]
    }

    /// The identifier of the next write.
    #[inline]
    pub(super) fn next(&mut self) -> PlacementId {
        let count = self.list.len();
        match self.select {
            Select::Random => self.list[self.random.below(count as u64) as usize],
            Select::RoundRobin => {
                let at = self.next;
                self.next = if at + 1 == count { 0 } else { at + 1 };
                self.list[at]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u16]) -> Vec<PlacementId> {
        ids.iter().copied().map(PlacementId).collect()
    }

    #[test]
    fn lists_are_numbers_and_ranges_in_the_order_typed() {
        let parsed = |text: &str| text.parse::<PlacementList>().map(|list| list.0);
        assert_eq!(parsed("0"), Ok(ids(&[0])));
        assert_eq!(parsed("3,0-2,65535"), Ok(ids(&[3, 0, 1, 2, 65535])));
        assert_eq!(parsed("1,1"), Ok(ids(&[1, 1])), "one may get more of the writes than another");
        assert_eq!(parsed("0-65535").map(|list| list.len()), Ok(65536));
        for bad in ["", ",", "1,", "-1", "65536", "0x1", "a", "1-", "+1", "0-65535,0"] {
            let error = parsed(bad).expect_err(bad);
            assert!(error.contains(SYNTAX), "{bad}: {error}");
        }
        assert!(parsed("3-1").expect_err("backwards").starts_with("3-1 goes backwards"));
    }

    #[test]
    fn round_robin_goes_through_the_list_and_starts_again() {
        let mut series = Placements::new(&ids(&[5, 0, 7]), Select::RoundRobin, 1, 0).expect("a list");
        let first: Vec<_> = (0..7).map(|_| series.next().0).collect();
        assert_eq!(first, [5, 0, 7, 5, 0, 7, 5]);
        assert!(Placements::new(&[], Select::RoundRobin, 1, 0).is_none());
    }

    #[test]
    fn random_takes_each_of_the_list_about_as_often_and_the_same_for_the_same_seed() {
        let draw = |seed| -> Vec<u16> {
            let mut series = Placements::new(&ids(&[0, 1, 2, 3]), Select::Random, seed, 0).expect("a list");
            (0..4000).map(|_| series.next().0).collect()
        };
        let drawn = draw(1);
        for id in 0..4 {
            let times = drawn.iter().filter(|drawn| **drawn == id).count();
            assert!((800..1200).contains(&times), "{id} came {times} times of 4000");
        }
        assert_eq!(draw(1), drawn);
        assert_ne!(draw(2), drawn);
    }
}
