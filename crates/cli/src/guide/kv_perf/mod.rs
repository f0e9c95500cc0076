//! `kv_perf`: workloads on key-value and block devices, by threads on synchronous and asynchronous queues.
//!
//! | module | concept |
//! |---|---|
//! | `args` | what can be typed |
//! | `job` | the configuration, and the pairs of each thread |
//! | `run` | all phases in order |
//! | `smart` | reading the log page of the extended SMART information meanwhile |
//! | `text` | the lines that are printed |
//!
//! Options and lines are those of the original program. What differs: the write amplification is divided by
//! ten once, the type of the devices and a file of pairs count, ranges of keys may be hexadecimal, a text for
//! the values may have any length, sizes of the slab may be beyond 2 GB, values of several sizes do not
//! overlap on a block device, and a read of a key that is not there fails in every kind of queue.

mod args;
mod job;
mod run;
mod smart;
mod text;

pub(crate) use args::KvPerf;
