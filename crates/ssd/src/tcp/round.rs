//! How much begins before any of it is answered.
//!
//! Commands that a host sends at once are executed a part at a time: the data of the first is on its way, and
//! its memory is free for the next ones, while the others wait as capsules. Were all executed at once, the
//! memory of a deep queue would be larger than a cache, and the host would have nothing to do meanwhile.

/// Bytes of data from which on nothing more begins in a round: with what the system copies of them they fit
/// in a second-level cache, and one call sends them.
const ROUND_BYTES: usize = 128 << 10;

/// The commands that have begun since the last ones were executed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    /// Their data.
    bytes: usize,
    /// What has arrived has not been looked at to its end.
    is_behind: bool,
}

impl Round {
    /// What has begun has been executed.
    pub(super) fn end(&mut self) {
        self.bytes = 0;
    }

    /// A command with so many bytes of data begins.
    pub(super) fn add(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether what has begun is to be executed before anything else begins.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= ROUND_BYTES
    }

    /// What has arrived is looked at...
    pub(super) fn catch_up(&mut self) {
        self.is_behind = false;
    }

    /// ...and, as the round is full, no further: whether there is more.
    pub(super) fn fall_behind(&mut self, is_more: bool) {
        self.is_behind = is_more;
    }

    /// Whether more of what has arrived is to be looked at in the next round.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }
}
