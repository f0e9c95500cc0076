//! What a run comes down to: the points worth naming, and the sentence at the top of the report.

use super::model::{Point, Run};
use super::scale::{average, micros, si};
use crate::count::count;

/// Phases that the sentence at the top names.
const PHASES_TOLD: usize = 5;
/// Phases that have a line in a plot, as many as there are colours that tell them apart.
const PHASES_DRAWN: usize = 8;

/// What distinguishes the points of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sweep {
    /// One point, or none.
    Single,
    /// Several depths, with any number of thread counts.
    Depth,
    /// Several thread counts at one depth.
    Threads,
    /// Phases, which do different things and are not compared.
    Phases,
}

/// True for the name of a setting that a point does not say as one of its figures.
fn is_more(name: &&str) -> bool {
    !matches!(*name, "threads" | "depth")
}

/// Names of the settings that points differ in, in the order of their axes.
pub(super) fn setting_names(points: &[Point]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for setting in points.iter().flat_map(|point| &point.settings) {
        if !names.contains(&setting.name.as_str()) {
            names.push(&setting.name);
        }
    }
    names
}

/// A question asked of a whole run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Summary<'a> {
    run: &'a Run,
}

impl<'a> Summary<'a> {
    pub(super) fn new(run: &'a Run) -> Self {
        Self { run }
    }

    pub(super) fn sweep(self) -> Sweep {
        if self.has_settings() {
            return Sweep::Phases;
        }
        match (depths(&self.run.points).len(), thread_counts(&self.run.points).len()) {
            (2.., _) => Sweep::Depth,
            (_, 2..) => Sweep::Threads,
            _ => Sweep::Single,
        }
    }

    /// True when points differ in more than threads and depth.
    pub(super) fn has_settings(self) -> bool {
        !self.run.points.iter().all(Self::is_alike)
    }

    /// True for a point that threads and depth tell from others.
    pub(super) fn is_alike(point: &Point) -> bool {
        let others = setting_names(std::slice::from_ref(point)).iter().any(is_more);
        point.phase.is_none() && point.jobs.is_empty() && !others
    }

    /// The point with the highest rate.
    pub(super) fn peak(self) -> Option<&'a Point> {
        self.run.points.iter().max_by(|one, other| one.total.iops.total_cmp(&other.total.iops))
    }

    /// The point with the least in flight, where latency is that of the device rather than of a queue.
    pub(super) fn quietest(self) -> Option<&'a Point> {
        self.run.points.iter().min_by_key(|point| (point.depth, point.threads))
    }

    /// One sentence: the highest rate, and the latency that matters beside it.
    pub(super) fn sentence(self) -> String {
        let (Some(peak), Some(quiet)) = (self.peak(), self.quietest()) else {
            return "Nothing was measured.".to_owned();
        };
        if self.sweep() == Sweep::Phases {
            return self.phases();
        }
        let threads = count(u64::from(peak.threads), "thread");
        let best = format!("{} at depth {} on {threads}", iops(peak.total.iops), peak.depth);
        if self.sweep() == Sweep::Depth {
            return format!("{best}; {} at depth {}", average(quiet.total.latency_us_average), quiet.depth);
        }
        let average = average(peak.total.latency_us_average);
        match p99(peak) {
            Some(p99) => format!("{best}; {average}, {} at the 99th percentile", micros(p99)),
            None => format!("{best}; {average}"),
        }
    }

    /// The rate and the average latency of each phase, as far as a sentence goes.
    fn phases(self) -> String {
        let phase = |point: &Point| {
            let average = average(point.total.latency_us_average);
            format!("{}: {}, {average}", super::place(point), iops(point.total.iops))
        };
        let told: Vec<String> = self.run.points.iter().take(PHASES_TOLD).map(phase).collect();
        let more = self.run.points.len() - told.len();
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        told.join("; ") + &more
    }

    /// What the measuring loop itself costs, beside what was measured.
    pub(super) fn harness(self) -> Option<String> {
        let cost = self.run.harness?;
        let mut text = format!(
            "The same loop with no device, at depth {}, takes {:.1} ns per command, latencies kept: {} per second on one thread.",
            cost.depth,
            cost.ns_per_op,
            si(cost.ops_per_second)
        );
        if let Some(peak) = self.peak().filter(|peak| peak.total.iops > 0.0) {
            let measured = f64::from(peak.threads) * 1e9 / peak.total.iops;
            let share = cost.ns_per_op / measured * 100.0;
            text += &format!(
                " At the peak a thread completes a command every {measured:.0} ns; {share:.1} % of that is the tool's own."
            );
        }
        Some(text)
    }

    /// Up to four points with a latency distribution that span the sweep, on the threads of the peak.
    pub(super) fn samples(self) -> Vec<&'a Point> {
        let Some(peak) = self.peak() else { return Vec::new() };
        let mut chosen: Vec<&Point> = self
            .run
            .points
            .iter()
            .filter(|point| self.sweep() == Sweep::Threads || point.threads == peak.threads)
            .filter(|point| point.latency.is_some())
            .collect();
        chosen.sort_by_key(|point| (point.depth, point.threads));
        if self.sweep() == Sweep::Phases {
            // One after the other as they were measured, whatever their threads.
            let mut phases: Vec<&Point> =
                self.run.points.iter().filter(|point| point.latency.is_some()).collect();
            phases.truncate(PHASES_DRAWN);
            return phases;
        }
        let last = chosen.len().saturating_sub(1);
        if last < 4 {
            return chosen;
        }
        [0, last.div_ceil(3), (2 * last).div_ceil(3), last].map(|index| chosen[index]).to_vec()
    }

    /// How the points of [`Summary::samples`] are told apart.
    pub(super) fn sample_name(self, point: &Point) -> String {
        if self.has_settings() {
            return super::place(point);
        }
        match self.sweep() {
            Sweep::Threads => count(u64::from(point.threads), "thread"),
            Sweep::Depth | Sweep::Single | Sweep::Phases => format!("depth {}", point.depth),
        }
    }
}

/// What went wrong, in words: `3 commands failed, 1 read returned wrong data`. `None` when nothing did.
pub(super) fn failures(errors: u64, miscompares: u64) -> Option<String> {
    let failed = (errors > 0).then(|| count(errors, "command") + " failed");
    let wrong = (miscompares > 0).then(|| count(miscompares, "read") + " returned wrong data");
    let parts: Vec<String> = failed.into_iter().chain(wrong).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// What could not be verified, in words; `None` when all could.
pub(super) fn unjudged(reads: u64) -> Option<String> {
    (reads > 0).then(|| {
        let reads = count(reads, "read");
        format!("{reads} could not be judged: not all of their blocks were written with --verify")
    })
}

/// The thread counts that occur, ascending.
pub(super) fn thread_counts(points: &[Point]) -> Vec<u32> {
    ascending(points.iter().map(|point| point.threads).collect())
}

/// The depths that occur, ascending.
pub(super) fn depths(points: &[Point]) -> Vec<u32> {
    ascending(points.iter().map(|point| point.depth).collect())
}

/// The 99th percentile of a point, if latency was recorded.
pub(super) fn p99(point: &Point) -> Option<f64> {
    point.latency.as_ref()?.all.percentile_us(99.0)
}

/// A rate with its unit: `1.82 M IOPS`.
pub(super) fn iops(rate: f64) -> String {
    format!("{} IOPS", si(rate))
}

fn ascending(mut values: Vec<u32>) -> Vec<u32> {
    values.sort_unstable();
    values.dedup();
    values
}
