//! How long reclaim units have been open: the Estimated Reclaim Unit Time Limit.
//!
//! The clock is the device's, wall or virtual. Who opens a unit has no clock: the time runs from the end of
//! the turn in which the first page was written, and after a restart from the end of the first one.

use std::collections::BTreeMap;

use unvme_flash::ftl::Placement;

const NS_PER_S: u64 = 1_000_000_000;

/// Reclaim units that are open, by reclaim unit handle and group, and since when.
#[derive(Debug, Default)]
pub(crate) struct OpenUnits {
    /// Limit in nanoseconds; 0 when there is none.
    limit_ns: u64,
    /// By handle and group: its number, and when it was opened.
    open: BTreeMap<(u16, u16), (u32, u64)>,
}

impl OpenUnits {
    pub(crate) fn new(limit_s: u32) -> Self {
        Self { limit_ns: u64::from(limit_s) * NS_PER_S, open: BTreeMap::new() }
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.limit_ns > 0
    }

    pub(crate) fn opened(&mut self, at: Placement, unit: u32, now: u64) {
        self.open.insert((at.handle, at.group), (unit, now));
    }

    pub(crate) fn closed(&mut self, at: Placement) {
        self.open.remove(&(at.handle, at.group));
    }

    /// EARUTR: seconds that are left, at least 1 as long as the limit has not been noticed; 0 when there is
    /// no limit. A handle that references an empty unit has all the time.
    pub(crate) fn seconds_left(&self, at: Placement, now: u64) -> u32 {
        if !self.is_limited() {
            return 0;
        }
        let open = self.open.get(&(at.handle, at.group)).map_or(0, |&(_, since)| now.saturating_sub(since));
        (self.limit_ns.saturating_sub(open)).div_ceil(NS_PER_S).max(1) as u32
    }

    /// Units that have been open for as long as the limit: they are not counted as open any more.
    pub(crate) fn take_expired(&mut self, now: u64) -> Vec<(Placement, u32)> {
        if !self.is_limited() {
            return Vec::new();
        }
        let over =
            |&(_, &(_, since)): &(&(u16, u16), &(u32, u64))| now.saturating_sub(since) >= self.limit_ns;
        let place =
            |(&(handle, group), &(unit, _)): (&(u16, u16), &(u32, u64))| (Placement { handle, group }, unit);
        let expired: Vec<(Placement, u32)> = self.open.iter().filter(over).map(place).collect();
        for &(at, _) in &expired {
            self.closed(at);
        }
        expired
    }

    /// When the next one expires; `None` when nothing does.
    pub(crate) fn next_expiry(&self) -> Option<u64> {
        let first = self.open.values().map(|&(_, since)| since).min().filter(|_| self.is_limited())?;
        Some(first.saturating_add(self.limit_ns))
    }
}
