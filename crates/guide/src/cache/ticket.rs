//! What an operation on its way to the device keeps, to tell the cache how it ended.

use super::gate::Seen;
use super::key::Scope;

/// A retrieve that goes to the device. Dropped, nothing is cached.
#[derive(Debug)]
#[must_use = "without it the value cannot be cached"]
pub struct FillTicket(pub(super) Option<Pass>);

/// A command that goes to the device and may change one pair. Handed back to [`crate::ReadCache::write_end`]
/// however the command ends.
///
/// One that is lost costs no truth: pairs that share its version are not cached any more.
#[derive(Debug)]
#[must_use = "the cache waits for the end of the write"]
pub struct WriteTicket(pub(super) Option<Pass>);

/// Something that goes on at the device and may change many pairs. Handed back to
/// [`crate::ReadCache::sweep_end`].
///
/// One that is lost costs no truth: pairs in its scope are not cached any more.
#[derive(Debug)]
#[must_use = "the cache waits for the end of the sweep"]
pub struct SweepTicket {
    pub(super) device: usize,
    pub(super) id: u64,
    pub(super) scope: Scope,
}

/// The pair and the versions a ticket was given for.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) device: usize,
    pub(super) hash: u64,
    pub(super) seen: Seen,
}
