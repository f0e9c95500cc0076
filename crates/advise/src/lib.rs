//! Where threads and queues go: the topology of a machine, the placement rules of the uNVMe guide, and what
//! each choice is worth on this machine, measured.
//!
//! | module | concept |
//! |---|---|
//! | `ping` | what a cache line costs between two CPUs |
//! | `statistics` | medians, spreads, the Mann-Whitney U test |
//!
//! What it does not implement: writes (a measurement changes nothing on a device), moving interrupts itself,
//! masks of CPUs above 63, and caches other than L3.
#![forbid(unsafe_code)]

mod ping;
pub mod statistics;

pub use ping::{pin, round_trip_ns};
