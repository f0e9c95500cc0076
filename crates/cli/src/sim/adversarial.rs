//! Three streams that FDP alone does not help: one is overwritten at random by another.
//!
//! The first writes nine tenths of the data in order with commands of 128 KiB, the second the rest at random,
//! and the third overwrites single pages of the first one's. Units of the first stream therefore never die
//! whole, and those of the third mix pages of all ages.

use super::chance::{Alias, Mixture};
use super::op::Op;
use super::share::{Share, Theta};
use crate::perf::Random;

/// Pages of a command of the first stream: 128 KiB.
const SEQUENTIAL_PAGES: u32 = 32;

/// How the third stream draws the pages that it overwrites.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Overwrites {
    /// 80 % of them in the first 20 % of the range, 10 % in the next 20 %, 10 % in the last 60 %: fio's
    /// `random_distribution=zoned:80/20:10/20:10/60`.
    Zoned,
    /// By popularity.
    Zipf(f64),
    /// All alike.
    Uniform,
}

impl std::str::FromStr for Overwrites {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "zoned" => return Ok(Self::Zoned),
            "uniform" => return Ok(Self::Uniform),
            _ => {}
        }
        let theta = text.strip_prefix("zipf=").or_else(|| text.strip_prefix("zipf:"));
        let theta = theta.and_then(|theta| theta.parse::<Theta>().ok());
        theta
            .map(|theta| Self::Zipf(theta.0))
            .ok_or_else(|| format!("expected zoned, uniform or zipf=THETA, not `{text}`"))
    }
}

impl std::fmt::Display for Overwrites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Zoned => f.write_str("zoned 80/20 10/20 10/60"),
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(theta) => write!(f, "zipf {theta}"),
        }
    }
}

/// What the three streams are.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Adversarial {
    /// Share of the data that the second stream writes.
    pub(super) random_space: Share,
    /// Shares of the traffic.
    pub(super) traffic: [f64; 3],
    pub(super) overwrites: Overwrites,
}

#[derive(Debug)]
pub(super) struct Traffic {
    pages: u32,
    /// Pages of the first stream; the second has the rest.
    sequential: u32,
    next: u32,
    overwrites: Overwritten,
    mixture: Mixture,
    random: Random,
}

#[derive(Debug)]
enum Overwritten {
    Zoned,
    Zipf(Alias),
    Uniform,
}

impl Traffic {
    /// On the first `pages` of the device, at least two.
    pub(super) fn new(recipe: &Adversarial, pages: u32, seed: u64) -> Self {
        let mut random = Random::new(seed, 0);
        let rest = ((f64::from(pages) * recipe.random_space.0).round() as u32).clamp(1, pages - 1);
        let sequential = pages - rest;
        let [first, second, third] = recipe.traffic;
        Self {
            pages,
            sequential,
            next: 0,
            overwrites: match recipe.overwrites {
                Overwrites::Zoned => Overwritten::Zoned,
                Overwrites::Uniform => Overwritten::Uniform,
                Overwrites::Zipf(theta) => Overwritten::Zipf(Alias::zipf(sequential, theta, &mut random)),
            },
            mixture: Mixture::new(&[(first, SEQUENTIAL_PAGES), (second, 1), (third, 1)]),
            random,
        }
    }

    pub(super) fn stream_of(&self, lpn: u32) -> u16 {
        u16::from(lpn >= self.sequential)
    }

    pub(super) fn fill(&mut self, out: &mut Vec<Op>, ops: usize) {
        while out.len() < ops {
            match self.mixture.draw(&mut self.random) {
                0 => {
                    for _ in 0..SEQUENTIAL_PAGES {
                        out.push(Op::write(self.next, 0));
                        self.next = if self.next + 1 == self.sequential { 0 } else { self.next + 1 };
                    }
                }
                1 => {
                    let span = u64::from(self.pages - self.sequential);
                    out.push(Op::write(self.sequential + self.random.below(span) as u32, 1));
                }
                _ => out.push(Op::write(self.overwritten(), 2)),
            }
        }
    }

    fn overwritten(&mut self) -> u32 {
        let all = u64::from(self.sequential);
        match &self.overwrites {
            Overwritten::Uniform => self.random.below(all) as u32,
            Overwritten::Zipf(alias) => alias.draw(&mut self.random),
            Overwritten::Zoned => {
                let (first, second) = (all / 5, all * 2 / 5);
                let (from, to) = match self.random.below(10) {
                    0..8 => (0, first),
                    8 => (first, second),
                    _ => (second, all),
                };
                (from + self.random.below((to - from).max(1))) as u32
            }
        }
    }
}
