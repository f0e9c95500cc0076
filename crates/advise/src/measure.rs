//! Measuring a placement: which thread submits to which device, and which one completes.
//!
//! A layout is measured with the queues of [`unvme::worker`], which the guide's session and the C library
//! use, too. Commands are reads of one size, so nothing on a device is changed.
//!
//! | module | concept |
//! |---|---|
//! | `subject` | a device that is measured: its namespace, and what is read of it |
//! | `lane` | the queue of a device in a layout: slots, buffers, what has completed |
//! | `run` | threads that submit, and one measurement |

mod lane;
mod run;
mod subject;

use serde::Serialize;

pub use run::{Options, measure};
pub use subject::{Subject, SubjectOptions};

/// How the completions of a queue are reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Completing {
    /// The thread that submits polls.
    Polled,
    /// A completion thread on this CPU.
    Thread(u32),
}

/// A queue of a layout: its device, and the CPUs of its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Placed {
    /// Index of the device.
    pub device: usize,
    /// CPU of the thread that submits.
    pub submit: u32,
    /// How its completions are reaped.
    pub complete: Completing,
}

/// Queues that are measured together. Queues with one submitting CPU share a thread, and so do those with one
/// completing CPU.
pub type Layout = Vec<Placed>;

/// What a measurement found out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Sample {
    /// Commands completed in a second, of all queues.
    pub iops: f64,
    /// Mean latency from submission to completion, in microseconds; `None` where nothing completed, as those
    /// that follow.
    pub mean_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// 99.99th percentile.
    pub p9999_us: Option<f64>,
    /// The longest.
    pub max_us: Option<f64>,
    /// Share of the time in which the submitting threads had their CPUs, 0 to 1: the least of all threads.
    pub on_cpu: f64,
}
