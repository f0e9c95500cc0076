//! Flexible Data Placement: a host says which data belongs together, and the device keeps it together on the
//! media.
//!
//! ```
//! use unvme::fdp::EventSource;
//! use unvme::{Nsid, OpenOptions, WriteOptions, open};
//!
//! # fn main() -> Result<(), unvme::Error> {
//! let device = open("mem:block:256M,fdp", &OpenOptions::default())?;
//! let mut block = device.block(Nsid(1))?;
//! let [hot, cold, ..] = block.placements()?[..] else { panic!("two placement identifiers") };
//! block.write_with(0, &[1; 4096], WriteOptions::placed(hot))?;
//! block.write_with(8, &[2; 4096], WriteOptions::placed(cold))?;
//!
//! let fdp = device.fdp()?;
//! let written = fdp.statistics()?;
//! assert_eq!(written.host_bytes, 8192);
//! assert!(fdp.events(EventSource::Host)?.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! | noun | concept |
//! |---|---|
//! | [`Fdp`] | an endurance group: its configurations, whether it is enabled, what it counts and records |
//! | [`HandleStatus`] | where a placement identifier of a namespace writes now; [`crate::Block::handles`] |
//! | [`NewNamespace`] | a namespace to create, with placement handles |
//!
//! Three things follow each other: a namespace has *placement handles*, of which each stands for a *reclaim
//! unit handle* of the endurance group, which in turn fills one *reclaim unit* in each reclaim group. A write
//! names a placement handle and a reclaim group, in one number: the placement identifier.

mod group;
mod handles;
mod namespace;

pub use group::{Configuration, EventSource, Fdp, State, Statistics};
pub use handles::{HandleStatus, missing_placement, statuses_of};
pub use namespace::{NamespaceKind, NewNamespace};

pub use unvme_spec::fdp::{
    Event, EventType, MediaReallocated, PlacementHandle, PlacementId, ReclaimGroup, Rgif, RuhType, RuhUse,
    Ruhid,
};

use unvme_spec::Status;

use crate::{Error, Result};

/// Says what to do about the statuses that have one cause with FDP; other errors stay as they are.
fn explain<T>(done: Result<T>) -> Result<T> {
    done.map_err(|e| {
        let advice = match e.status().map(Status::kind) {
            Some(Status::FDP_DISABLED) => {
                "FDP is disabled in its endurance group; delete the group's namespaces, enable FDP with one of its \
                 configurations, and create them again"
            }
            Some(Status::INVALID_OPCODE) => {
                "the device has no Flexible Data Placement; a virtual one has it when it is created with --fdp, or \
                 named mem:block:SIZE,fdp"
            }
            _ => return e,
        };
        advise(e, advice)
    })
}

/// Adds what to do to an error status.
fn advise(error: Error, advice: &str) -> Error {
    match error {
        Error::Device { what, status } => Error::Device { what: format!("{what} ({advice})"), status },
        other => other,
    }
}
