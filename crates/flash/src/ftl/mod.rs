//! The flash translation layer: where each logical page is, and how room is made for the next one.
//!
//! Pure bookkeeping: no data, no clock, no threads. What it decides goes to a [`Nand`], which is the device's
//! media or a simulator's counters; both therefore run the very same layer.
//!
//! Flash is written a page at a time and erased a **reclaim unit** (RU) at a time. Units are divided into
//! **reclaim groups**; a host names a **reclaim unit handle** (RUH) and a group for each write, and each pair
//! of them has one open unit. Overwritten pages leave holes. When a group runs out of free units, the layer
//! chooses a victim, moves what is valid in it to a destination unit and erases it. Data of an initially
//! isolated handle goes to a destination that all such handles of the group share; a persistently isolated
//! handle has its own.
//!
//! | file | concept |
//! |---|---|
//! | `config`, `policy` | geometry, handles, victim policies and their names, and what makes sense of them |
//! | `map` | logical to physical pages, readable by other threads without a lock |
//! | `units`, `buckets` | reclaim units: their state and wear; the closed ones by age and by valid pages |
//! | `streams` | append points: open units of handles and of reclaim's destinations |
//! | `layer` | [`Ftl`]: writing, deallocating, opening and closing units |
//! | `reclaim`, `victim` | making room, at which pace; which unit is reclaimed next |
//! | `wear` | erase counts, evening them out, the end of the media |
//! | `stats`, `check` | what is counted, and the sums that have to agree |
//! | `image` | what outlives the process, and a layer made from it |
//! | `nand` | [`Nand`]: what the layer works on |
//! | `theory` | what write amplification has to be, where that is known |

mod buckets;
mod check;
mod config;
mod image;
mod layer;
mod map;
mod nand;
mod policy;
mod reclaim;
mod stats;
mod streams;
pub mod theory;
mod units;
mod victim;
mod wear;

pub use check::SumError;
pub use config::{FtlConfig, FtlError, Isolation};
pub use image::{Image, UnitImage, UnitState};
pub use layer::{Ftl, Placement};
pub use map::Map;
pub use nand::{Nand, Opened, Origin, ProgramFailure};
pub use policy::VictimPolicy;
pub use stats::{FtlStats, StreamStats};
pub use streams::{OpenUnit, StreamInfo};
pub use wear::Wear;
