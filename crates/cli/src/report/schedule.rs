//! How a rate that was asked for was kept.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::latency::Latency;
use super::model::Row;
use super::scale::{average, micros, micros_or_none, si};
use crate::count::count;

/// More of the commands than this, due and not submitted at the end, is a backlog and no accident.
const BACKLOG_SHARE: f64 = 0.01;

/// A rate and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Schedule {
    /// Commands that became due per second.
    pub(crate) asked_iops: f64,
    /// Commands that were due by the end and not submitted.
    pub(crate) overdue_commands: u64,
    /// They are more than can be by accident: the rate was not kept.
    pub(crate) is_behind: bool,
    /// Mean latency from submission, when a command completed.
    pub(crate) from_submission_us_average: Option<f64>,
    /// Latency from submission: what the device takes.
    pub(crate) from_submission: Option<Latency>,
}

impl Schedule {
    /// From the commands that were `overdue` after `seconds`, and the latencies from submission.
    pub(crate) fn new(asked_iops: f64, seconds: f64, overdue: u64, ns: &Histogram<u64>) -> Self {
        Self {
            asked_iops,
            overdue_commands: overdue,
            is_behind: overdue as f64 > (asked_iops * seconds * BACKLOG_SHARE).max(1.0),
            from_submission_us_average: (!ns.is_empty()).then(|| ns.mean() / 1e3),
            from_submission: Latency::from_histogram_ns(ns),
        }
    }

    /// A percentile from submission.
    pub(super) fn percentile_us(&self, percent: f64) -> Option<f64> {
        self.from_submission.as_ref()?.all.percentile_us(percent)
    }

    pub(super) fn is_finite(&self) -> bool {
        self.asked_iops.is_finite()
            && self.from_submission_us_average.is_none_or(f64::is_finite)
            && self.from_submission.as_ref().is_none_or(Latency::is_finite)
    }

    /// Both latencies of a point whose sum is `total`, and whether the rate was kept, a sentence each.
    pub(super) fn sentences(&self, total: &Row) -> Vec<String> {
        let tail = self.percentile_us(99.0).map_or_else(String::new, |us| format!(", {} p99", micros(us)));
        let mut said = vec![format!(
            "At {} commands per second: {} from when a command was due, {} from its submission{tail}",
            si(self.asked_iops),
            average(total.latency_us_average),
            micros_or_none(self.from_submission_us_average)
        )];
        if self.is_behind {
            said.push(format!(
                "Asked {}/s, got {}/s: the device or this machine is slower; {} overdue at the end",
                si(self.asked_iops),
                si(total.iops),
                count(self.overdue_commands, "command")
            ));
        }
        said
    }
}
