//! `unvme sim`: hours of traffic in seconds, on the flash translation layer that the virtual SSD has.
//!
//! A row is an empty device and one workload, until so many pages are written. Only what the layer keeps is
//! there: no data, no commands, and time only when a model of it is asked for. Everything follows from the
//! options and the seed.
//!
//! | module | concept |
//! |---|---|
//! | `args` | what can be typed |
//! | `share` | percentages and exponents |
//! | `workload` | what hosts do: parameters, streams, and what theory says of it |
//! | `simple`, `writers`, `cachelib`, `rocksdb`, `adversarial`, `trace` | a workload each |
//! | `chance` | samplers that take nanoseconds |
//! | `op` | a page that is written or deallocated |
//! | `geometry` | from options to a translation layer |
//! | `flash` | what the layer works on: counters |
//! | `clock`, `idle` | virtual time, and when the host does nothing |
//! | `row` | one row: the loop, samples, sums that have to agree |
//! | `run` | all rows on all cores, and the results where they are wanted |

mod adversarial;
mod args;
mod cachelib;
mod chance;
mod clock;
mod flash;
mod geometry;
mod idle;
mod op;
mod rocksdb;
mod row;
mod run;
mod share;
mod simple;
mod trace;
mod workload;
mod writers;

pub(crate) use args::Sim;
