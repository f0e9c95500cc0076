//! Workloads of one stream: random in several ways, and sequential.

use super::chance::{Alias, Chance, Passes};
use super::op::Op;
use crate::perf::Random;

/// How pages are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pattern {
    /// All alike, each draw by itself (fio with `norandommap=1`).
    Uniform,
    /// By popularity.
    Zipf(f64),
    /// One after the other, around and around.
    Sequential,
    /// Each once per pass (fio without `norandommap`).
    RandomMap,
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(theta) => write!(f, "zipf {theta}"),
            Self::Sequential => f.write_str("sequential"),
            Self::RandomMap => f.write_str("random-map"),
        }
    }
}

/// One stream on the first pages of the device.
#[derive(Debug)]
pub(super) struct Simple {
    pages: u32,
    order: Order,
    /// `None` when nothing is deallocated.
    trims: Option<Trims>,
    random: Random,
}

/// Deallocation of pages that hold data: to deallocate others would change nothing.
#[derive(Debug)]
struct Trims {
    chance: Chance,
    /// A bit for each page.
    is_mapped: Box<[u64]>,
}

/// Draws after which no page was found that holds data, and one is written instead.
const TRIES_MAX: u32 = 1000;

impl Trims {
    fn set(&mut self, lpn: u32, is_mapped: bool) {
        let word = &mut self.is_mapped[lpn as usize / 64];
        let bit = 1 << (lpn % 64);
        *word = if is_mapped { *word | bit } else { *word & !bit };
    }

    fn is_set(&self, lpn: u32) -> bool {
        self.is_mapped[lpn as usize / 64] >> (lpn % 64) & 1 == 1
    }
}

/// Where a pattern has come to.
#[derive(Debug)]
pub(super) enum Order {
    Uniform,
    Zipf(Alias),
    Sequential(u32),
    RandomMap(Passes),
}

impl Order {
    pub(super) fn new(pattern: Pattern, pages: u32, random: &mut Random) -> Self {
        match pattern {
            Pattern::Uniform => Self::Uniform,
            Pattern::Zipf(theta) => Self::Zipf(Alias::zipf(pages, theta, random)),
            Pattern::Sequential => Self::Sequential(0),
            Pattern::RandomMap => Self::RandomMap(Passes::new(pages)),
        }
    }

    /// The next of so many pages, as many as it was made for.
    #[inline]
    pub(super) fn draw(&mut self, pages: u32, random: &mut Random) -> u32 {
        match self {
            Self::Uniform => random.below(pages.into()) as u32,
            Self::Zipf(alias) => alias.draw(random),
            Self::Sequential(next) => {
                let lpn = *next;
                *next = if lpn + 1 == pages { 0 } else { lpn + 1 };
                lpn
            }
            Self::RandomMap(passes) => passes.draw(random),
        }
    }
}

impl Simple {
    /// `trim` is the share of requests that deallocate a page instead of writing it.
    pub(super) fn new(pattern: Pattern, pages: u32, trim: f64, seed: u64) -> Self {
        let mut random = Random::new(seed, 0);
        let order = Order::new(pattern, pages, &mut random);
        let is_mapped = || vec![0; pages.div_ceil(64) as usize].into();
        let trims = (trim > 0.0).then(|| Trims { chance: Chance::new(trim), is_mapped: is_mapped() });
        Self { pages, order, trims, random }
    }

    pub(super) fn fill(&mut self, out: &mut Vec<Op>, ops: usize) {
        let Self { pages, order, trims, random } = self;
        let bound = u64::from(*pages);
        // The order is chosen once per batch, not once per page.
        match order {
            Order::Uniform => each(out, ops, trims, random, |random| random.below(bound) as u32, None),
            Order::Zipf(alias) => each(out, ops, trims, random, |random| alias.draw(random), None),
            Order::RandomMap(passes) => {
                each(out, ops, trims, random, |random| passes.draw(random), Some(*pages));
            }
            Order::Sequential(_) => out.extend((0..ops).map(|_| Op::write(order.draw(*pages, random), 0))),
        }
    }
}

/// Draws operations. What is deallocated is drawn like what is written; with `trims_of`, uniformly from so
/// many pages.
#[inline]
fn each(
    out: &mut Vec<Op>,
    ops: usize,
    trims: &mut Option<Trims>,
    random: &mut Random,
    mut draw: impl FnMut(&mut Random) -> u32,
    trims_of: Option<u32>,
) {
    let Some(trims) = trims else {
        out.extend((0..ops).map(|_| Op::write(draw(random), 0)));
        return;
    };
    for _ in 0..ops {
        if trims.chance.draw(random) {
            let mut any = |random: &mut Random| match trims_of {
                Some(pages) => random.below(pages.into()) as u32,
                None => draw(random),
            };
            if let Some(lpn) = (0..TRIES_MAX).map(|_| any(random)).find(|&lpn| trims.is_set(lpn)) {
                trims.set(lpn, false);
                out.push(Op::trim(lpn));
                continue;
            }
        }
        let lpn = draw(random);
        trims.set(lpn, true);
        out.push(Op::write(lpn, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::super::op::Kind;
    use super::*;

    #[test]
    fn only_pages_that_hold_data_are_deallocated_as_often_as_asked() {
        for pattern in [Pattern::Uniform, Pattern::Zipf(0.9), Pattern::RandomMap] {
            let mut simple = Simple::new(pattern, 1000, 0.2, 3);
            let mut ops = Vec::new();
            simple.fill(&mut ops, 100_000);
            let mut is_mapped = vec![false; 1000];
            for op in &ops {
                let mapped = &mut is_mapped[op.lpn as usize];
                assert!(op.kind == Kind::Write || *mapped, "{pattern:?}: page {}", op.lpn);
                *mapped = op.kind == Kind::Write;
            }
            let trims = ops.iter().filter(|op| op.kind == Kind::Trim).count();
            assert!(trims.abs_diff(20_000) < 600, "{pattern:?}: {trims}");
        }
    }

    #[test]
    fn a_sequential_stream_goes_around() {
        let mut ops = Vec::new();
        Simple::new(Pattern::Sequential, 3, 0.0, 1).fill(&mut ops, 7);
        assert!(ops.iter().map(|op| op.lpn).eq([0, 1, 2, 0, 1, 2, 0]));
    }
}
