//! What fio writes with `--output-format=json` or `json+`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// Options as a job file has them.
pub(super) type Options = BTreeMap<String, Value>;

/// A file of fio's.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Output {
    #[serde(rename = "fio version")]
    pub(super) version: String,
    /// Seconds since 1970.
    #[serde(default)]
    pub(super) timestamp: u64,
    #[serde(default, rename = "global options")]
    pub(super) global: Options,
    #[serde(default)]
    pub(super) jobs: Vec<Job>,
}

/// A job, or all of a group where fio reports those.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Job {
    pub(super) jobname: String,
    #[serde(default)]
    pub(super) groupid: u64,
    #[serde(default)]
    pub(super) error: i64,
    #[serde(default)]
    pub(super) total_err: u64,
    #[serde(default, rename = "job options")]
    pub(super) options: Options,
    #[serde(default)]
    pub(super) read: Side,
    #[serde(default)]
    pub(super) write: Side,
    #[serde(default)]
    pub(super) trim: Side,
    #[serde(default)]
    pub(super) sync: Side,
    /// Milliseconds.
    #[serde(default)]
    pub(super) job_runtime: f64,
    #[serde(default)]
    pub(super) usr_cpu: f64,
    #[serde(default)]
    pub(super) sys_cpu: f64,
}

/// One direction of a job.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Side {
    #[serde(default)]
    pub(super) iops: f64,
    #[serde(default)]
    pub(super) bw_bytes: f64,
    #[serde(default)]
    pub(super) total_ios: u64,
    /// From when fio had made the command to its completion.
    #[serde(default)]
    pub(super) lat_ns: Spread,
    /// From when the device had it.
    #[serde(default)]
    pub(super) clat_ns: Spread,
}

/// How latencies are spread.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Spread {
    #[serde(default)]
    pub(super) min: f64,
    #[serde(default)]
    pub(super) max: f64,
    #[serde(default)]
    pub(super) mean: f64,
    #[serde(default, rename = "N")]
    pub(super) count: u64,
    /// `99.000000` to nanoseconds.
    #[serde(default)]
    pub(super) percentile: BTreeMap<String, f64>,
    /// Nanoseconds to a number of commands: `json+` alone has them.
    #[serde(default)]
    pub(super) bins: BTreeMap<String, u64>,
}

impl Output {
    /// From what is in a file, which may have lines of text around the JSON, as with `normal,json`. Errors:
    /// what is wrong with it, with line and column.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let start = if text.starts_with('{') { Some(0) } else { text.find("\n{").map(|at| at + 1) };
        let end = text.rfind("\n}").map(|at| at + 2);
        let json = match (start, end) {
            (Some(start), Some(end)) if start < end => &text[start..end],
            _ => text,
        };
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    /// An option of a job, its own or that of all, as text.
    pub(super) fn option(&self, job: &Job, name: &str) -> Option<String> {
        let value = job.options.get(name).or_else(|| self.global.get(name))?;
        Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }
}

impl Side {
    /// The latencies that have percentiles: the whole, where fio was asked for those.
    pub(super) fn spread(&self) -> &Spread {
        if self.lat_ns.count > 0 && !self.lat_ns.percentile.is_empty() { &self.lat_ns } else { &self.clat_ns }
    }

    /// The latencies that the mean is of.
    pub(super) fn whole(&self) -> &Spread {
        if self.lat_ns.count > 0 { &self.lat_ns } else { &self.clat_ns }
    }
}
