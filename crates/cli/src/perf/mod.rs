//! `unvme perf`: how fast a device is.
//!
//! A point is one workload, or several at once; a sweep is many points. Each thread is bound to a core and
//! has a [`lane`] (a queue of its own) per namespace; nothing is shared between threads while they measure.
//!
//! | module | concept |
//! |---|---|
//! | `args` | what can be typed |
//! | `settings` | what may differ from point to point: options, axes of `--matrix`, keys of `--job` |
//! | `matrix`, `cores`, `amount` | the values of `--matrix`, `-c` and `--amount` |
//! | `sheet` | files of `--job`, and those of `--sheet`: phases, and jobs that run at once |
//! | `session` | all of it, checked against the devices that are there: stages, one for each point |
//! | `job` | one workload of a stage |
//! | `addresses` | which unit of the namespace comes next, and whether it is read or written |
//! | `blend` | commands that differ: `--size-mix`, `--trim`, `--flush-every` |
//! | `breaks` | `--think`, `--burst`: when nothing is submitted |
//! | `data` | blocks whose content says which block they are and how often it was written |
//! | `ledger` | what each unit should hold, for `--verify` |
//! | `lane` | the measuring loop: one queue, or none at all to measure the loop itself |
//! | `counters` | latencies, errors, the rate over time |
//! | `pace` | `--rate`, `--arrivals`: when commands are due |
//! | `watch` | the time of the machine, or with `--virtual-time` that of a model |
//! | `placement` | `--fdp-pid`, `--fdp-select`: where writes go |
//! | `point` | threads, and one point of the report from what they have found |
//! | `prefill` | data to read, before the first point |
//! | `machine` | the computer, for the report |
//! | `progress`, `status` | a bar on standard error; lines of `--status-interval` |
//! | `handles` | `--handle`: several handles of one device, side by side |
//! | `run` | all of it in order, and the results where they are wanted |
//! | `compare` | runs that were saved, side by side |
//!
//! A command's latency is the time from its submission, or with `--rate` from when it was due, to the poll
//! that saw it complete. The clock is read
//! once per batch: commands submitted together start together, and those found by one poll end together.

mod addresses;
mod amount;
mod args;
mod blend;
mod breaks;
mod compare;
mod cores;
mod counters;
mod data;
mod handles;
mod job;
mod keys;
mod lane;
mod ledger;
mod load;
pub(crate) mod machine;
mod matrix;
mod pace;
mod pairs;
mod pattern;
mod placement;
mod point;
mod prefill;
mod progress;
mod replay;
mod rest;
mod run;
mod session;
mod settings;
mod sheet;
mod split;
mod status;
mod watch;

pub(crate) use addresses::Random;
pub(crate) use args::Perf;
pub(crate) use cores::bind;
pub(crate) use counters::histogram;
pub(crate) use job::transport;
pub(crate) use machine::{machine, now, rfc3339};
pub(crate) use progress::{PAUSE, Progress};
pub(crate) use run::{command_line, save, stop_on_signals, touch};
