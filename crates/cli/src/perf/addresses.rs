//! Which unit comes next, and whether it is read or written. A unit is the data of one command.

use std::convert::Infallible;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use anyhow::Result;
use rand::TryRng;
use rand_distr::{Distribution as _, Zipf};
use unvme::random;

use super::pattern::Pattern;
use crate::exit::usage;
use crate::numbers;

/// Largest exponent of a Zipf distribution: beyond it nearly all commands are on one unit.
const THETA_MAX: f64 = 10.0;

/// Exponent of `latest`: YCSB's.
const LATEST_THETA: f64 = 0.99;

/// How random addresses are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Distribution {
    /// All units alike.
    Uniform,
    /// The k-th most popular unit in proportion to 1 / k^theta.
    Zipf(f64),
    /// Some of the units, at the front, get most of the commands.
    Hot(Hot),
    /// The units that came last are the most popular ones, as Zipf's: units are ranks.
    Latest,
}

/// Units that get more commands than others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hot {
    /// Percent of the units.
    units: u8,
    /// Percent of the commands.
    commands: u8,
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = |text: &str| numbers::u8(text).ok().filter(|percent| (1..=99).contains(percent));
        let parsed = match text.split_once(':') {
            None if text == "uniform" => Some(Self::Uniform),
            None if text == "latest" => Some(Self::Latest),
            Some(("zipf", theta)) => {
                let theta = theta.parse::<f64>().ok().filter(|theta| *theta > 0.0 && *theta <= THETA_MAX);
                theta.map(Self::Zipf)
            }
            Some(("hot", shares)) => shares.split_once(':').and_then(|(units, commands)| {
                Some(Self::Hot(Hot { units: percent(units)?, commands: percent(commands)? }))
            }),
            _ => None,
        };
        parsed.ok_or_else(|| {
            format!(
                "expected uniform, latest, or zipf:THETA with a THETA above 0 and up to {THETA_MAX}, or hot:SPACE:COMMANDS with \
                 percentages of 1 to 99"
            )
        })
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Latest => f.write_str("latest"),
            Self::Zipf(theta) => write!(f, "zipf:{theta}"),
            Self::Hot(Hot { units, commands }) => write!(f, "hot:{units}:{commands}"),
        }
    }
}

/// xorshift64*: random enough for addresses, and a few cycles are all a command should pay for one.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A generator for each `stream` of a seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        // Seeds and streams are small numbers; spread over all bits they start far apart, and never at 0.
        Self(random::mix(seed ^ stream.wrapping_mul(random::STEP)) | 1)
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`.
    #[inline]
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}

impl TryRng for Random {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.next() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.next())
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

/// What is the same for all lanes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    /// Order and kind.
    pub(super) pattern: Pattern,
    /// Share of reads, 0 to 100.
    pub(super) read_percent: u8,
    /// Of random addresses.
    pub(super) distribution: Distribution,
    /// Of everything random.
    pub(super) seed: u64,
}

#[derive(Clone, Debug)]
enum Order {
    Sequential {
        next: u64,
    },
    Uniform,
    Zipf {
        ranks: Zipf<f64>,
        stride: u64,
    },
    /// So many units from the first on get this percentage of the commands.
    Hot {
        units: u64,
        percent: u64,
    },
}

/// An endless series of commands on a range of units.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    units: Range<u64>,
    order: Order,
    random: Random,
    read_percent: u8,
}

impl Addresses {
    /// The series number `stream` on `units`. A sequential one starts at the unit `skip` after the first.
    pub(super) fn new(mix: &Mix, units: Range<u64>, stream: u64, skip: u64) -> Result<Self> {
        let count = units.end - units.start;
        let order = match mix.distribution {
            _ if !mix.pattern.is_random() => Order::Sequential { next: skip % count },
            Distribution::Uniform => Order::Uniform,
            Distribution::Zipf(theta) => {
                let ranks = Zipf::new(count as f64, theta).map_err(|e| usage(format!("--dist: {e}")))?;
                Order::Zipf { ranks, stride: stride(count) }
            }
            Distribution::Latest => {
                let ranks =
                    Zipf::new(count as f64, LATEST_THETA).map_err(|e| usage(format!("--dist: {e}")))?;
                Order::Zipf { ranks, stride: 1 }
            }
            // Of a single unit nothing is cold.
            Distribution::Hot(_) if count < 2 => Order::Uniform,
            Distribution::Hot(hot) => {
                let units = (u128::from(count) * u128::from(hot.units) / 100) as u64;
                Order::Hot { units: units.clamp(1, count - 1), percent: hot.commands.into() }
            }
        };
        Ok(Self { units, order, random: Random::new(mix.seed, stream), read_percent: mix.read_percent })
    }

    #[inline]
    pub(super) fn next_unit(&mut self) -> u64 {
        let count = self.units.end - self.units.start;
        let place = match &mut self.order {
            Order::Sequential { next } => {
                let place = *next;
                *next = if place + 1 == count { 0 } else { place + 1 };
                place
            }
            Order::Uniform => self.random.below(count),
            Order::Zipf { ranks, stride } => {
                let rank = (ranks.sample(&mut self.random) as u64).clamp(1, count) - 1;
                // Popular units are spread over the device, as in a file system; multiplying by a number
                // without a common divisor reaches each unit once.
                (u128::from(rank) * u128::from(*stride) % u128::from(count)) as u64
            }
            Order::Hot { units, percent } => {
                let (units, is_hot) = (*units, self.random.below(100) < *percent);
                if is_hot { self.random.below(units) } else { units + self.random.below(count - units) }
            }
        };
        self.units.start + place
    }

    /// True when the next command reads.
    #[inline]
    pub(super) fn next_is_read(&mut self) -> bool {
        match self.read_percent {
            0 => false,
            100 => true,
            percent => self.random.below(100) < u64::from(percent),
        }
    }

    pub(super) fn units(&self) -> Range<u64> {
        self.units.clone()
    }
}

/// A number near the golden section of `count` that has no divisor in common with it.
fn stride(count: u64) -> u64 {
    let near = (count as f64 * 0.618_033_988_749_895) as u64;
    (near.max(1)..).find(|&candidate| gcd(candidate, count) == 1).unwrap_or(1)
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(pattern: Pattern, distribution: Distribution) -> Mix {
        Mix { pattern, read_percent: 100, distribution, seed: 1 }
    }

    #[test]
    fn sequential_addresses_start_where_they_should_and_wrap() {
        let mix = mix(Pattern::Read, Distribution::Uniform);
        let mut some = Addresses::new(&mix, 10..16, 1, 3).expect("addresses");
        let units: Vec<u64> = (0..7).map(|_| some.next_unit()).collect();
        assert_eq!(units, [13, 14, 15, 10, 11, 12, 13]);
    }

    #[test]
    fn uniform_addresses_reach_every_unit_about_alike() {
        let mut all =
            Addresses::new(&mix(Pattern::Randread, Distribution::Uniform), 5..15, 0, 0).expect("addresses");
        let mut seen = [0u32; 10];
        for _ in 0..100_000 {
            seen[(all.next_unit() - 5) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (9_000..11_000).contains(count)), "{seen:?}");
    }

    #[test]
    fn zipf_addresses_follow_their_law_and_stay_inside() {
        let units = 1000;
        let zipf = Distribution::Zipf(1.0);
        let mut some = Addresses::new(&mix(Pattern::Randread, zipf), 0..units, 0, 0).expect("addresses");
        let mut seen = vec![0u32; units as usize];
        for _ in 0..100_000 {
            seen[some.next_unit() as usize] += 1;
        }
        seen.sort_unstable_by(|a, b| b.cmp(a));
        // The harmonic number of 1000 is 7.485: the first has 1 / 7.485 of all, the second half of that.
        assert!((12_700..14_000).contains(&seen[0]), "{}", seen[0]);
        assert!((6_200..7_200).contains(&seen[1]), "{}", seen[1]);
    }

    #[test]
    fn hot_addresses_get_their_share_and_are_at_the_front() {
        let hot: Distribution = "hot:20:80".parse().expect("a distribution");
        let mut some = Addresses::new(&mix(Pattern::Randread, hot), 100..1100, 0, 0).expect("addresses");
        let mut seen = vec![0u32; 1000];
        for _ in 0..100_000 {
            seen[(some.next_unit() - 100) as usize] += 1;
        }
        let hot: u32 = seen[..200].iter().sum();
        assert!((79_000..81_000).contains(&hot), "{hot}");
        // Alike among themselves: 400 and 25 each.
        assert!(seen[..200].iter().all(|count| (300..500).contains(count)), "{seen:?}");
        assert!(seen[200..].iter().all(|count| (1..60).contains(count)), "{seen:?}");
        for count in [1, 2, 3] {
            let hot: Distribution = "hot:99:1".parse().expect("a distribution");
            let mut few = Addresses::new(&mix(Pattern::Randread, hot), 0..count, 0, 0).expect("addresses");
            let mut seen = vec![false; count as usize];
            (0..10_000).for_each(|_| seen[few.next_unit() as usize] = true);
            assert!(seen.iter().all(|seen| *seen), "{count} units: {seen:?}");
        }
    }

    #[test]
    fn every_rank_of_a_zipf_distribution_has_a_unit_of_its_own() {
        for count in [1u64, 2, 3, 16, 1000, 1 << 20] {
            assert_eq!(gcd(stride(count), count), 1, "{count}");
        }
    }

    #[test]
    fn a_seed_gives_the_same_series_and_streams_differ() {
        let mix = mix(Pattern::Randrw, Distribution::Uniform);
        let series = |stream| {
            let mut addresses = Addresses::new(&mix, 0..1 << 40, stream, 0).expect("addresses");
            (0..8).map(|_| addresses.next_unit()).collect::<Vec<_>>()
        };
        assert_eq!(series(0), series(0));
        assert_ne!(series(0), series(1));
    }

    #[test]
    fn the_mix_is_as_asked_for() {
        let mix = Mix { read_percent: 70, ..mix(Pattern::Randrw, Distribution::Uniform) };
        let mut some = Addresses::new(&mix, 0..100, 0, 0).expect("addresses");
        let reads = (0..100_000).filter(|_| some.next_is_read()).count();
        assert!((69_000..71_000).contains(&reads), "{reads}");
    }

    #[test]
    fn distributions_parse_and_display() {
        assert_eq!("uniform".parse(), Ok(Distribution::Uniform));
        assert_eq!("zipf:0.99".parse(), Ok(Distribution::Zipf(0.99)));
        assert_eq!(Distribution::Zipf(1.2).to_string(), "zipf:1.2");
        assert_eq!(
            "hot:20:80".parse::<Distribution>().map(|hot| hot.to_string()),
            Ok("hot:20:80".to_owned())
        );
        for text in ["hot", "hot:", "hot:20", "hot:20:", "hot:0:80", "hot:20:100", "hot:x:80", "hot:20:80:1"]
        {
            let message = text.parse::<Distribution>().expect_err(text);
            assert!(message.contains("hot:SPACE:COMMANDS with percentages of 1 to 99"), "{text}: {message}");
        }
        for text in ["", "zipf", "zipf:", "zipf:0", "zipf:-1", "zipf:nan", "zipf:11", "uniform:1", "pareto:1"]
        {
            let message = text.parse::<Distribution>().expect_err(text);
            assert!(message.contains("expected uniform, latest, or zipf:THETA"), "{text}: {message}");
        }
    }
}
