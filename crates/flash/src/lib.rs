//! Flash as bookkeeping: where pages are, and how long a device takes, without data, clock or threads.
//!
//! | module | concept |
//! |---|---|
//! | [`ftl`] | the translation layer: the map of pages, reclaim, wear |
//! | [`timing`] | how long commands take: a model of the device's resources as a pure function |
//!
//! The virtual SSD and the simulator of the command line run the very same code: one puts data beneath it,
//! the other counts.
//!
//! What is not modelled: read disturb, retention and error correction. [`timing`] lists its own
//! simplifications.
#![forbid(unsafe_code)]

pub mod ftl;
pub mod timing;

/// Bytes of a page: what is mapped, programmed, moved and timed as one.
pub const PAGE_BYTES: u64 = 4096;
