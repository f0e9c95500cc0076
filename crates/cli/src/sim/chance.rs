//! Drawing what comes next: pages by their popularity, streams by their share of the traffic.
//!
//! Everything here is a function of the seed, takes a handful of nanoseconds per draw and does not depend on
//! the number of threads.

use crate::perf::Random;

/// One of `n` pages, each with a popularity of its own, in constant time: Walker's alias method as Vose
/// builds it. A draw picks a column at random and keeps it, or takes the column's alias. 8 bytes per page.
#[derive(Debug)]
pub(super) struct Alias {
    columns: Box<[Column]>,
}

#[derive(Clone, Copy, Debug)]
struct Column {
    /// The column itself is kept in `keep` of 2^32 cases.
    keep: u32,
    alias: u32,
}

impl Alias {
    /// Pages whose popularity is Zipf's, the ranks scattered over the pages.
    pub(super) fn zipf(pages: u32, theta: f64, random: &mut Random) -> Self {
        let mut weights: Vec<f64> = (1..=pages).map(|rank| f64::from(rank).powf(-theta)).collect();
        for last in (1..weights.len()).rev() {
            weights.swap(last, random.below(last as u64 + 1) as usize);
        }
        Self::new(weights)
    }

    /// Pages that keys are hashed to, `keys` for each page on average: the keys' popularity is Zipf's, and a
    /// page is as popular as all of its keys together. Some pages have no key, and are never drawn.
    pub(super) fn hashed_zipf(pages: u32, keys: u32, theta: f64, random: &mut Random) -> Self {
        let mut weights = vec![0.0; pages as usize];
        for rank in 1..=u64::from(pages) * u64::from(keys) {
            weights[random.below(pages.into()) as usize] += (rank as f64).powf(-theta);
        }
        Self::new(weights)
    }

    /// Pages by weights, at least one of which is above 0.
    fn new(mut weights: Vec<f64>) -> Self {
        let mean = weights.iter().sum::<f64>() / weights.len() as f64;
        weights.iter_mut().for_each(|weight| *weight /= mean);
        let mut columns: Box<[Column]> =
            (0..weights.len() as u32).map(|alias| Column { keep: u32::MAX, alias }).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            (0..weights.len() as u32).partition(|&page| weights[page as usize] < 1.0);
        while let (Some(&low), Some(&high)) = (small.last(), large.last()) {
            small.pop();
            let weight = weights[low as usize];
            columns[low as usize] = Column { keep: (weight * 4_294_967_296.0) as u32, alias: high };
            let rest = &mut weights[high as usize];
            *rest -= 1.0 - weight;
            if *rest < 1.0 {
                large.pop();
                small.push(high);
            }
        }
        Self { columns }
    }

    /// Draws a page.
    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> u32 {
        // One product serves twice: its upper half is the column, its lower half is uniform within it.
        let product = u128::from(random.next()) * self.columns.len() as u128;
        let index = (product >> 64) as u32;
        let column = self.columns[index as usize];
        if (product as u64 >> 32) as u32 <= column.keep { index } else { column.alias }
    }
}

/// Which of a few streams writes next, so that each gets its share of the pages although some write many at a
/// time.
#[derive(Debug)]
pub(super) struct Mixture {
    /// Upper ends of the streams' ranges of a 32-bit number; the last stream has the rest.
    ends: Vec<u32>,
}

impl Mixture {
    /// Streams by their share of the pages, and how many pages each writes at a time.
    pub(super) fn new(streams: &[(f64, u32)]) -> Self {
        let turns: Vec<f64> = streams.iter().map(|&(share, pages)| share / f64::from(pages)).collect();
        let total: f64 = turns.iter().sum();
        let mut sum = 0.0;
        let end = |turn: &f64| {
            sum += turn / total;
            (sum * 4_294_967_296.0) as u32
        };
        Self { ends: turns[..turns.len().saturating_sub(1)].iter().map(end).collect() }
    }

    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> usize {
        let at = (random.next() >> 32) as u32;
        self.ends.iter().take_while(|&&end| at >= end).count()
    }
}

/// True in a share of the cases.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(share: f64) -> Self {
        Self((share * 4_294_967_296.0) as u64)
    }

    #[inline]
    pub(super) fn draw(self, random: &mut Random) -> bool {
        self.0 > 0 && (random.next() >> 32) < self.0
    }
}

/// All pages once in random order, then again in another: what fio does unless it is given `norandommap`. 4
/// bytes per page.
#[derive(Debug)]
pub(super) struct Passes {
    order: Box<[u32]>,
    drawn: usize,
}

impl Passes {
    pub(super) fn new(pages: u32) -> Self {
        Self { order: (0..pages).collect(), drawn: 0 }
    }

    /// Fisher and Yates, a step for each draw.
    #[inline]
    pub(super) fn draw(&mut self, random: &mut Random) -> u32 {
        if self.drawn == self.order.len() {
            self.drawn = 0;
        }
        let from = self.drawn + random.below((self.order.len() - self.drawn) as u64) as usize;
        self.order.swap(self.drawn, from);
        self.drawn += 1;
        self.order[self.drawn - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_drawn_as_often_as_their_weight_says() {
        let mut random = Random::new(3, 0);
        let alias = Alias::new(vec![8.0, 1.0, 4.0, 3.0]);
        let mut drawn = [0u32; 4];
        (0..160_000).for_each(|_| drawn[alias.draw(&mut random) as usize] += 1);
        for (count, expected) in drawn.into_iter().zip([80_000, 10_000, 40_000, 30_000]) {
            assert!(count.abs_diff(expected) < 800, "{drawn:?}");
        }
    }

    #[test]
    fn zipf_gives_ranks_their_popularity_and_scatters_them() {
        let mut random = Random::new(7, 1);
        let alias = Alias::zipf(1000, 0.9, &mut random);
        let mut drawn = vec![0u32; 1000];
        (0..1_000_000).for_each(|_| drawn[alias.draw(&mut random) as usize] += 1);
        let first = drawn.iter().position(|&count| count == *drawn.iter().max().expect("pages"));
        assert_ne!(first, Some(0), "the most popular page is not simply the first");
        drawn.sort_by_key(|&count| std::cmp::Reverse(count));
        // The sum of k^-0.9 for k = 1 to 1000 is 10.50: the most popular page has 9.5 % of the draws.
        assert!(drawn[0].abs_diff(95_200) < 2_000, "{}", drawn[0]);
        assert!(drawn[9].abs_diff(11_990) < 1_000, "{}", drawn[9]);
    }

    #[test]
    fn a_stream_that_writes_many_pages_at_a_time_gets_fewer_turns() {
        let mut random = Random::new(5, 0);
        let mixture = Mixture::new(&[(0.8, 1), (0.2, 8)]);
        let mut pages = [0u32; 2];
        for _ in 0..100_000 {
            let stream = mixture.draw(&mut random);
            pages[stream] += [1, 8][stream];
        }
        let share = f64::from(pages[0]) / f64::from(pages[0] + pages[1]);
        assert!((0.79..0.81).contains(&share), "{share}");
    }

    #[test]
    fn every_pass_has_every_page_once_and_another_order() {
        let mut random = Random::new(1, 0);
        let mut passes = Passes::new(100);
        let mut pass = || (0..100).map(|_| passes.draw(&mut random)).collect::<Vec<u32>>();
        let (one, other) = (pass(), pass());
        assert_ne!(one, other);
        for mut pages in [one, other] {
            pages.sort_unstable();
            assert!(pages.into_iter().eq(0..100));
        }
    }
}
