//! Where threads and queues go: the topology of a machine, the placement rules of the uNVMe guide, and what
//! each choice is worth on this machine, measured.
//!
//! | module | concept |
//! |---|---|
//! | `cpus` | sets of CPUs as the kernel lists them |
//! | `topology`, `relation` | CPUs, cores, caches, NUMA nodes; how two CPUs relate to each other |
//! | `location`, `interrupts` | where a device is, and where its interrupts run |
//! | `order` | the CPUs of a device, the best one first |
//! | `rules` | CPUs for all devices |
//! | `config` | configuration files, affinities and interrupts for them |
//! | `ping` | what a cache line costs between two CPUs |
//! | `measure` | one placement, measured |
//! | `cases` | the placements that are compared, and the guide's tables |
//! | `campaign` | all of them in turns |
//! | `judge` | what differs, and whether the machine was quiet enough to say so |
//! | `statistics` | medians, spreads, the Mann-Whitney U test |
//!
//! What it does not implement: writes (a measurement changes nothing on a device), moving interrupts itself,
//! masks of CPUs above 63, and caches other than L3.
#![forbid(unsafe_code)]

mod campaign;
mod cases;
mod config;
mod cpus;
mod interrupts;
mod judge;
mod location;
pub mod measure;
mod order;
mod ping;
mod relation;
mod rules;
pub mod statistics;
mod topology;

pub use campaign::{Campaign, Figures};
pub use cases::{
    Alternative, Case, Cell, Choice, ChoiceKind, Missing, Plan, PlanOptions, Quantity, Sweep, Table,
};
pub use config::{
    Configuration, QueueSettings, configurations, frequency_lines, interrupt_lines, taskset, unit_lines,
};
pub use cpus::{CPU_NUMBERS, Cpus, NotAList};
pub use interrupts::{Interrupt, interrupts};
pub use judge::{Findings, Judged, Noise, Worth, judge, noise};
pub use location::{Location, Reach, locate, located_drives};
pub use order::{completing_cpu, order};
pub use ping::{pin, round_trip_ns};
pub use relation::Relation;
pub use rules::{AssignOptions, Assigned, Assignment, Goal, PerCore, assign};
pub use topology::{Cpu, Node, Topology};

#[cfg(test)]
mod tests;
