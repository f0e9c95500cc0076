//! A log-structured merge tree, as a device sees it: files of several levels, written in order and deleted
//! whole.
//!
//! Each level has one file open at a time, and the levels' writers take turns. A level that holds all the
//! files it may deletes one before it opens the next, and what a file occupied is deallocated.

use std::collections::VecDeque;

use anyhow::Result;

use super::chance::Mixture;
use super::op::Op;
use crate::exit::usage;
use crate::perf::Random;

/// Which file of a level is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Victim {
    /// The one that was written first
    Fifo,
    /// Any
    Random,
}

/// What the tree is made of.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RocksDb {
    /// Share of the data, and share of the traffic, of each level from the top.
    pub(super) levels: Vec<(f64, f64)>,
    pub(super) file_pages: u32,
    /// Pages that a level's writer writes before another one may.
    pub(super) burst: u32,
    pub(super) victim: Victim,
}

#[derive(Debug)]
struct Level {
    /// First pages of its complete files, the oldest first.
    files: VecDeque<u32>,
    /// Files it may have, the open one included.
    files_max: usize,
    /// Next page of the open file and the one behind its last; equal when none is open.
    next: u32,
    end: u32,
}

#[derive(Debug)]
pub(super) struct Traffic {
    levels: Vec<Level>,
    /// First pages of places for files that are free, the one that was freed first at the front.
    free: VecDeque<u32>,
    file_pages: u32,
    burst: u32,
    victim: Victim,
    mixture: Mixture,
    random: Random,
}

impl Traffic {
    /// A tree on the first `pages` of the device. Errors: there is no room for a file of each level.
    pub(super) fn new(recipe: &RocksDb, pages: u32, seed: u64) -> Result<Self> {
        let places = pages / recipe.file_pages;
        let count = recipe.levels.len();
        if (places as usize) < 2 * count {
            let message = format!(
                "--file-size: {places} files fit into the data, expected at least {}: two for each level",
                2 * count
            );
            return Err(usage(message));
        }
        let files_max = |share: f64| ((f64::from(places) * share).round() as usize).max(1);
        let level = |&(share, _): &(f64, f64)| Level {
            files: VecDeque::new(),
            files_max: files_max(share),
            next: 0,
            end: 0,
        };
        let mut levels: Vec<Level> = recipe.levels.iter().map(level).collect();
        // Rounding has to end somewhere, and the largest level notices least.
        let sum: usize = levels.iter().map(|level| level.files_max).sum();
        if let Some(largest) = levels.iter_mut().max_by_key(|level| level.files_max) {
            largest.files_max = (largest.files_max + places as usize).saturating_sub(sum).max(1);
        }
        let shares: Vec<(f64, u32)> =
            recipe.levels.iter().map(|&(_, traffic)| (traffic, recipe.burst)).collect();
        Ok(Self {
            levels,
            free: (0..places).map(|place| place * recipe.file_pages).collect(),
            file_pages: recipe.file_pages,
            burst: recipe.burst,
            victim: recipe.victim,
            mixture: Mixture::new(&shares),
            random: Random::new(seed, 0),
        })
    }

    pub(super) fn fill(&mut self, out: &mut Vec<Op>, ops: usize) {
        while out.len() < ops {
            let stream = self.mixture.draw(&mut self.random);
            for _ in 0..self.burst {
                if self.levels[stream].next == self.levels[stream].end {
                    self.open(stream, out);
                }
                let level = &mut self.levels[stream];
                out.push(Op::write(level.next, stream as u16));
                level.next += 1;
            }
        }
    }

    /// Puts a level's open file to the complete ones, deletes one when there are too many, and opens the
    /// next.
    fn open(&mut self, index: usize, out: &mut Vec<Op>) {
        let file_pages = self.file_pages;
        let level = &mut self.levels[index];
        if level.end > 0 {
            level.files.push_back(level.end - file_pages);
        }
        while level.files.len() >= level.files_max || (self.free.is_empty() && !level.files.is_empty()) {
            let first = match self.victim {
                Victim::Fifo => level.files.pop_front(),
                Victim::Random => {
                    level.files.swap_remove_back(self.random.below(level.files.len() as u64) as usize)
                }
            };
            let Some(first) = first else { break };
            out.extend((first..first + file_pages).map(Op::trim));
            self.free.push_back(first);
        }
        // Levels never have more files than there are places: see `new`.
        let place = self.free.pop_front().unwrap_or_default();
        level.next = place;
        level.end = place + file_pages;
    }
}

#[cfg(test)]
mod tests {
    use super::super::op::Kind;
    use super::*;

    fn tree(victim: Victim) -> Traffic {
        let levels = vec![(0.1, 0.5), (0.9, 0.5)];
        let recipe = RocksDb { levels, file_pages: 8, burst: 4, victim };
        Traffic::new(&recipe, 100, 1).expect("it has room")
    }

    #[test]
    fn no_page_is_overwritten_before_it_was_deallocated_and_the_data_stays_within_its_bounds() {
        for victim in [Victim::Fifo, Victim::Random] {
            let mut traffic = tree(victim);
            let mut ops = Vec::new();
            traffic.fill(&mut ops, 10_000);
            let mut is_used = [false; 100];
            for op in ops {
                let used = &mut is_used[op.lpn as usize];
                assert_eq!(*used, op.kind == Kind::Trim, "page {}", op.lpn);
                *used = op.kind == Kind::Write;
            }
            assert!(is_used.iter().filter(|&&used| used).count() >= 80);
        }
    }

    #[test]
    fn a_tree_without_room_is_refused() {
        let recipe = RocksDb { levels: vec![(0.5, 0.5); 2], file_pages: 32, burst: 4, victim: Victim::Fifo };
        let error = Traffic::new(&recipe, 127, 1).expect_err("three files for two levels").to_string();
        assert!(error.contains("3 files fit") && error.contains("at least 4"), "{error}");
    }
}
