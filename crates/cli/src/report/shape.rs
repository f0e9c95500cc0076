//! How the commands of a workload differ from each other.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::model::Point;
use super::scale::{bytes, micros, thousands, trimmed};
use crate::count::count;

/// What reads and writes of one size, one after the other, are not; empty for those.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Pairs that were there before; the sizes are those of values then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pairs: Option<PairsShape>,
    /// What was replayed, in place of all that follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<TraceShape>,
    /// Sizes of commands, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) size_mix: Vec<SizeShare>,
    /// Share of the commands that do not read which deallocated their unit, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trim_percent: Option<u32>,
    /// Writes of a thread to a namespace after which a flush went out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) flush_every: Option<u32>,
    /// How threads learnt of completions: `poll`, `interrupt` or `hybrid`. By polling when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) completion: Option<String>,
    /// Time between the completion of a command and the next one in its slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) think_us: Option<f64>,
    /// Commands that came at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) burst: Option<BurstShape>,
}

/// Commands at once, and how long each thread submitted nothing to a namespace after them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BurstShape {
    pub(crate) commands: u32,
    pub(crate) pause_us: f64,
}

/// Pairs of each namespace before the first point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PairsShape {
    pub(crate) keys: u64,
    pub(crate) key_bytes: u8,
}

/// What there was of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PairFigures {
    /// Commands on pairs that were not there; they are in all figures but that of failures.
    pub(crate) misses: u64,
    /// Keys that lists had.
    pub(crate) listed: u64,
}

impl PairFigures {
    /// In words, where there is something to say.
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut said = Vec::new();
        if self.misses > 0 {
            said.push(format!("Misses: {} on pairs that were not there", counted(self.misses, "command")));
        }
        if self.listed > 0 {
            said.push(format!("Listed: {}", counted(self.listed, "key")));
        }
        said
    }
}

/// `1 key`, `12,000 keys`.
fn counted(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {noun}{s}", thousands(number as f64))
}

/// A trace that was replayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TraceShape {
    pub(crate) file: String,
    pub(crate) requests: u64,
    /// How many times as fast as it was recorded; `None` where it went as fast as the device took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) speed: Option<String>,
}

/// A size that some of the commands have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SizeShare {
    pub(crate) bytes: u64,
    /// Its share of the commands is this of the sum of all weights.
    pub(crate) weight: u32,
}

impl Shape {
    /// What there is to tell, each with its name.
    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = Vec::new();
        if let Some(PairsShape { keys, key_bytes }) = self.pairs {
            facts.push(("Keys", format!("{} of {key_bytes} bytes", thousands(keys as f64))));
        }
        if let Some(TraceShape { file, requests, speed }) = &self.trace {
            let how = match speed.as_deref() {
                Some("1") => "by its own clock".to_owned(),
                Some(factor) => format!("{factor} times as fast as recorded"),
                None => "as fast as the device takes it".to_owned(),
            };
            facts.push(("Trace", format!("{file}, {}, {how}", count(*requests, "request"))));
        }
        let weights: f64 = self.size_mix.iter().map(|size| f64::from(size.weight)).sum();
        let size = |size: &SizeShare| {
            let percent = format!("{:.2}", f64::from(size.weight) * 100.0 / weights);
            format!("{} {} %", bytes(size.bytes), trimmed(&percent))
        };
        if !self.size_mix.is_empty() {
            let sizes: Vec<String> = self.size_mix.iter().map(size).collect();
            facts.push(("Sizes", sizes.join(", ")));
        }
        if let Some(percent) = self.trim_percent {
            facts.push(("Deallocations", format!("{percent} % of the commands that do not read")));
        }
        if let Some(writes) = self.flush_every {
            let writes = count(writes, "write");
            facts.push(("Flushes", format!("one after every {writes} of a thread to a namespace")));
        }
        if let Some(how) = &self.completion {
            facts.push(("Completion", how.clone()));
        }
        if let Some(us) = self.think_us {
            facts.push(("Think time", format!("{} after each command", micros(us))));
        }
        if let Some(BurstShape { commands, pause_us }) = self.burst {
            facts.push((
                "Bursts",
                format!("{}, then nothing for {}", count(commands, "command"), micros(pause_us)),
            ));
        }
        facts
    }
}

/// Processor time of the threads that measure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CpuUse {
    /// Of the time they had, each on a core of its own.
    pub(crate) percent: f64,
    /// For each command; `None` when none completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) us_per_command: Option<f64>,
}

impl CpuUse {
    /// Of threads that took so many of a core's seconds each second, and completed so many commands in it.
    pub(crate) fn new(cores: f64, threads: u32, iops: f64) -> Self {
        let us_per_command = (iops > 0.0).then(|| cores * 1e6 / iops);
        Self { percent: cores * 100.0 / f64::from(threads.max(1)), us_per_command }
    }

    /// In words.
    pub(super) fn sentence(&self) -> String {
        let percent = format!("{:.1} % busy", self.percent);
        match self.us_per_command {
            Some(us) => format!("{percent}, {} of a core per command", micros(us)),
            None => percent,
        }
    }

    pub(super) fn is_finite(&self) -> bool {
        self.percent.is_finite() && self.us_per_command.is_none_or(f64::is_finite)
    }
}

/// Commands that move no data: they are in no other figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CommandFigures {
    /// Those that succeeded.
    pub(crate) count: u64,
    /// Mean latency, when one completed and it was recorded.
    pub(crate) latency_us_average: Option<f64>,
    /// 99th percentile of the latency, when one completed and it was recorded.
    pub(crate) latency_us_p99: Option<f64>,
}

impl CommandFigures {
    pub(crate) fn from_histogram_ns(ns: &Histogram<u64>) -> Self {
        let us = |ns_of: fn(&Histogram<u64>) -> f64| (!ns.is_empty()).then(|| ns_of(ns) / 1e3);
        Self {
            count: ns.len(),
            latency_us_average: us(Histogram::mean),
            latency_us_p99: us(|ns| ns.value_at_percentile(99.0) as f64),
        }
    }

    /// In words.
    pub(super) fn sentence(&self) -> String {
        let named = [(self.latency_us_average, "average"), (self.latency_us_p99, "p99")];
        let told = named.into_iter().filter_map(|(us, name)| Some(format!(", {} {name}", micros(us?))));
        thousands(self.count as f64) + &told.collect::<String>()
    }

    pub(super) fn is_finite(&self) -> bool {
        [self.latency_us_average, self.latency_us_p99].into_iter().flatten().all(f64::is_finite)
    }
}

impl Point {
    /// Commands that are counted apart, each kind with its name.
    pub(super) fn asides(&self) -> Vec<(&'static str, CommandFigures)> {
        let trims = self.trims.map(|trims| ("Deallocations", trims));
        trims.into_iter().chain(self.flushes.map(|flushes| ("Flushes", flushes))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_workload_has_nothing_to_tell_and_no_words_in_json() {
        assert!(Shape::default().facts().is_empty());
        assert_eq!(serde_json::to_string(&Shape::default()).expect("JSON"), "{}");
        assert_eq!(serde_json::from_str::<Shape>("{}").expect("a shape"), Shape::default());
    }

    #[test]
    fn sizes_are_told_in_percent_whatever_their_weights() {
        let sizes = [(4096, 2), (1 << 20, 1)];
        let size_mix = sizes.map(|(bytes, weight)| SizeShare { bytes, weight }).to_vec();
        let shape = Shape {
            pairs: None,
            trace: None,
            size_mix,
            trim_percent: Some(10),
            flush_every: Some(1),
            completion: Some("hybrid".to_owned()),
            think_us: Some(100.0),
            burst: Some(BurstShape { commands: 32, pause_us: 1500.0 }),
        };
        let mut facts = shape.facts();
        assert_eq!(facts.remove(3), ("Completion", "hybrid".to_owned()));
        assert_eq!(facts[0], ("Sizes", "4 KiB 66.67 %, 1 MiB 33.33 %".to_owned()));
        assert_eq!(facts[1], ("Deallocations", "10 % of the commands that do not read".to_owned()));
        assert_eq!(facts[2], ("Flushes", "one after every 1 write of a thread to a namespace".to_owned()));
        assert_eq!(facts[3], ("Think time", "100 µs after each command".to_owned()));
        assert_eq!(facts[4], ("Bursts", "32 commands, then nothing for 1.50 ms".to_owned()));
        let text = serde_json::to_string(&shape).expect("JSON");
        assert_eq!(serde_json::from_str::<Shape>(&text).expect("a shape"), shape);
    }

    #[test]
    fn commands_that_are_counted_apart_have_their_figures() {
        let mut ns = Histogram::<u64>::new(3).expect("three digits are allowed");
        assert_eq!(CommandFigures::from_histogram_ns(&ns).sentence(), "0");
        ns.record_n(2_000, 1000).expect("the range grows");
        assert_eq!(CommandFigures::from_histogram_ns(&ns).sentence(), "1,000, 2.00 µs average, 2.00 µs p99");
    }
}
