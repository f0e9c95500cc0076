//! Operations over time, from what the threads of db_bench say with --stats_interval_seconds.

use std::collections::BTreeMap;

use super::output::{Benchmark, number};

/// Intervals at most, and the shortest one in seconds.
const INTERVALS: usize = 600;
const SHORTEST: f64 = 1.0;
/// A rest that is shorter than this part of an interval goes with the one before.
const REST: f64 = 0.5;

/// `... thread 0: (1000,3000) ops and (999.4,998.1) ops/second in (1.000562,3.005) seconds`: what a thread
/// has done since it last spoke, and from its beginning on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Progress {
    thread: u32,
    operations: f64,
    from: f64,
    to: f64,
}

impl Progress {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.split_once("... thread ")?;
        let (thread, rest) = rest.split_once(": (")?;
        let (operations, rest) = rest.split_once(',')?;
        let (_, rest) = rest.split_once(" in (")?;
        let (took, rest) = rest.split_once(',')?;
        let (to, _) = rest.split_once(')')?;
        let (took, to) = (number(took)?, number(to)?);
        let from = (to - took).max(0.0);
        Some(Self { thread: thread.parse().ok()?, operations: number(operations)?, from, to })
    }
}

/// The end of each interval, and the rate of all threads together in it. What they did after they last spoke
/// is what the whole has beyond that. A benchmark that was too short for its threads to speak is one
/// interval.
pub(super) fn series(benchmark: &Benchmark, all: &[Progress]) -> Vec<(f64, f64)> {
    // The first thread is what happens "while" the others read; the line of the benchmark is of the others.
    let is_counted = |at: &&Progress| !(benchmark.name.contains("while") && at.thread == 0);
    let mut said: Vec<Progress> = all.iter().filter(is_counted).copied().collect();
    let last = said.iter().map(|at| at.to).fold(0.0, f64::max);
    let end = benchmark.seconds.unwrap_or(last).max(last);
    if end <= 0.0 {
        return Vec::new();
    }
    if said.is_empty() {
        return vec![(end, benchmark.ops_per_second)];
    }
    said.extend(rest(benchmark, &said, end));
    let width = (end / INTERVALS as f64).max(SHORTEST);
    let mut count = (end / width).floor() as usize;
    if end - count as f64 * width >= REST * width || count == 0 {
        count += 1;
    }
    let mut operations = vec![0.0; count];
    let edge = |index: usize| if index == count { end } else { index as f64 * width };
    for at in &said {
        let first = ((at.from / width) as usize).min(count - 1);
        for (index, sum) in operations.iter_mut().enumerate().skip(first) {
            let shared = at.to.min(edge(index + 1)) - at.from.max(edge(index));
            if edge(index) >= at.to {
                break;
            }
            if at.to > at.from && shared > 0.0 {
                *sum += at.operations * shared / (at.to - at.from);
            }
        }
    }
    let rate = |(index, sum): (usize, f64)| (edge(index + 1), sum / (edge(index + 1) - edge(index)));
    operations.into_iter().enumerate().map(rate).collect()
}

/// What each thread did after it last spoke, if all did as much in a second.
fn rest(benchmark: &Benchmark, said: &[Progress], end: f64) -> Vec<Progress> {
    let Some(all) = benchmark.operations else { return Vec::new() };
    let told: f64 = said.iter().map(|at| at.operations).sum();
    let mut ends: BTreeMap<u32, f64> = BTreeMap::new();
    for at in said {
        let last = ends.entry(at.thread).or_default();
        *last = at.to.max(*last);
    }
    let silent: f64 = ends.values().map(|last| end - last).sum();
    if silent <= 0.0 {
        return Vec::new();
    }
    let per_second = (all as f64 - told).max(0.0) / silent;
    let own = |(thread, from): (u32, f64)| Progress {
        thread,
        operations: (end - from) * per_second,
        from,
        to: end,
    };
    ends.into_iter().map(own).collect()
}
