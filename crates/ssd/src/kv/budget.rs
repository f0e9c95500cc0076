//! How much of the capacity is left.
//!
//! A counter that every store changes would travel between the cores with every store. Each append head
//! therefore keeps some of what is left for itself, and only goes to the common rest, or to the other heads,
//! when that is used up. No byte is counted twice or lost: the sum of all parts and of what is used is the
//! capacity.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a head takes from the common rest at a time.
const STEP_BYTES: u64 = 1 << 20;

#[repr(align(128))]
struct Share(AtomicU64);

/// Capacity that is left, in the parts it is in.
pub(super) struct Budget {
    total: u64,
    rest: Share,
    lanes: Box<[Share]>,
}

impl Budget {
    pub(super) fn new(total: u64, used: u64, lanes: usize) -> Self {
        Self {
            total,
            rest: Share(AtomicU64::new(total.saturating_sub(used))),
            lanes: (0..lanes).map(|_| Share(AtomicU64::new(0))).collect(),
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Capacity in use.
    pub(super) fn used(&self) -> u64 {
        let left: u64 = self.lanes.iter().chain([&self.rest]).map(|s| s.0.load(Ordering::Relaxed)).sum();
        self.total.saturating_sub(left)
    }

    /// Takes `bytes`; false when that much is not left.
    #[inline]
    pub(super) fn take(&self, lane: usize, bytes: u64) -> bool {
        subtract(&self.lanes[lane].0, bytes) || self.take_from_rest(lane, bytes)
    }

    #[cold]
    fn take_from_rest(&self, lane: usize, bytes: u64) -> bool {
        if subtract(&self.rest.0, bytes + STEP_BYTES) {
            self.lanes[lane].0.fetch_add(STEP_BYTES, Ordering::Relaxed);
            return true;
        }
        // Short of space: what the heads have put aside is everyone's.
        for share in &self.lanes {
            let kept = share.0.swap(0, Ordering::Relaxed);
            self.rest.0.fetch_add(kept, Ordering::Relaxed);
        }
        subtract(&self.rest.0, bytes)
    }

    /// Gives back what was taken, or what has died.
    #[inline]
    pub(super) fn give(&self, lane: usize, bytes: u64) {
        let share = &self.lanes[lane].0;
        let kept = share.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if kept > 4 * STEP_BYTES && subtract(share, kept - STEP_BYTES) {
            self.rest.0.fetch_add(kept - STEP_BYTES, Ordering::Relaxed);
        }
    }
}

#[inline]
fn subtract(share: &AtomicU64, bytes: u64) -> bool {
    share.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_the_capacity_can_be_taken_by_any_lane_and_none_twice() {
        let budget = Budget::new(10 << 20, 1 << 20, 3);
        assert!(budget.take(0, 100));
        assert!(budget.take(1, 100));
        assert_eq!(budget.used(), (1 << 20) + 200);
        assert!(budget.take(2, (9 << 20) - 200));
        assert!(!budget.take(0, 1));
        budget.give(1, 9 << 20);
        assert_eq!(budget.used(), 1 << 20);
        assert!(budget.take(0, 9 << 20));
        assert!(!budget.take(1, 1));
    }
}
