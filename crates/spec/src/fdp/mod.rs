//! Flexible Data Placement (Base 8.1.10): where the host's data goes on the media, and what became of it.
//!
//! A write names a [`PlacementId`]: a reclaim group and a placement handle ([`Rgif`] says how many of its
//! bits are the group). Each namespace has a list of placement handles, each of which stands for a reclaim
//! unit handle (RUH) of the endurance group. A reclaim unit handle has one reclaim unit in each reclaim
//! group, which the write fills.
//!
//! The write's side is [`crate::directive`], the features are in [`crate::feature`], the placement handles of
//! a namespace in [`crate::identify::NamespaceCreate`]. Here are the log pages and I/O Management:
//!
//! | log page | structures |
//! |---|---|
//! | 20h FDP Configurations | [`ConfigurationsHeader`], [`ConfigurationDescriptor`], [`RuhDescriptor`] |
//! | 21h Reclaim Unit Handle Usage | [`RuhUsageHeader`], [`RuhUsage`] |
//! | 22h FDP Statistics | [`Statistics`] |
//! | 23h FDP Events | [`EventsHeader`], [`Event`] |
//!
//! Lists of variable length come from the other side: their readers check every count against the bytes there
//! are. A list that is cut short is read as far as it goes, because hosts may read less than the whole of a
//! log page.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod configuration;
mod event;
mod management;
mod placement;
mod usage;

pub use configuration::{
    Configuration, ConfigurationDescriptor, Configurations, ConfigurationsHeader, Fdpa, RUH_MAX,
    RuhDescriptor, RuhType, write_configurations,
};
pub use event::{
    EVENTS_MAX, Event, EventFlags, EventSupport, EventType, EventsHeader, MediaReallocated, events,
    lsp_host_events,
};
pub use management::{
    IoManagementReceive, IoManagementSend, ReceiveOperation, RuhStatus, RuhStatusHeader, SendOperation,
    placement_ids, ruh_status_count, ruh_statuses,
};
pub use placement::{PlacementHandle, PlacementId, ReclaimGroup, Rgif, Ruhid};
pub use usage::{RuhUsage, RuhUsageHeader, RuhUse, Statistics, ruh_usages};

use zerocopy::FromBytes;

/// Entries of a list, as many as `count` says and the bytes hold.
fn entries<T: FromBytes>(bytes: &[u8], count: usize) -> impl Iterator<Item = T> + '_ {
    bytes.chunks_exact(size_of::<T>()).take(count).filter_map(|chunk| T::read_from_bytes(chunk).ok())
}
