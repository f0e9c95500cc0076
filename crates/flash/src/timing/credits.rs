//! Bandwidth that transfers share: a channel, or one direction of the link.
//!
//! Transfers are not asked for in the order of their times: a read that was asked for first may have its data
//! last. A timeline with one "next free" time would make the second wait for the first. So time is cut into
//! slices, each of which has so many bytes to give away, and a transfer takes what it finds from its start
//! on.

use std::collections::VecDeque;

/// Slices that are kept account of. What starts later than that finds nobody else there: a device with so
/// much work ahead of it waits for its dies and not for their channels.
const SLICES_MAX: usize = 1 << 16;

/// A resource that moves so many bytes in a slice of time.
pub(super) struct Credits {
    /// Thousandths of bytes per nanosecond, which is the same number as MB/s.
    rate: u64,
    slice_ns: u64,
    /// What has been taken of each slice from `first` on, in thousandths of bytes.
    taken: VecDeque<u64>,
    /// Number of the slice at the front of `taken`.
    first: u64,
    /// No slice before this one has anything left.
    full: u64,
}

impl Credits {
    pub(super) const fn new(mb_s: u32, slice_ns: u32) -> Self {
        Self { rate: mb_s as u64, slice_ns: slice_ns as u64, taken: VecDeque::new(), first: 0, full: 0 }
    }

    /// Nothing will be asked for that starts before `now`.
    pub(super) fn retire(&mut self, now: u64) {
        let slice = now / self.slice_ns;
        if slice <= self.first {
            return;
        }
        let gone = usize::try_from(slice - self.first).unwrap_or(usize::MAX).min(self.taken.len());
        self.taken.drain(..gone);
        self.first = slice;
        self.full = self.full.max(slice);
    }

    /// Moves `bytes`, no sooner than `from`; returns when the last of them has arrived.
    pub(super) fn transfer(&mut self, from: u64, bytes: u64) -> u64 {
        self.take(from, bytes, self.slice_ns * self.rate)
    }

    /// Moves `bytes` that nobody waits for, in no more than half of any slice: what comes meanwhile need not
    /// wait for the end of a long transfer, as controllers take turns between dies. Two of these use all
    /// there is.
    pub(super) fn transfer_in_turns(&mut self, from: u64, bytes: u64) -> u64 {
        self.take(from, bytes, (self.slice_ns * self.rate / 2).max(1))
    }

    fn take(&mut self, from: u64, bytes: u64, of_slice: u64) -> u64 {
        let (rate, slice_ns) = (self.rate, self.slice_ns);
        let wanted = bytes * 1000;
        let (mut left, mut at) = (wanted, from);
        // As if it were alone.
        let earliest = from + wanted.div_ceil(rate);
        while left > 0 {
            let slice = (at / slice_ns).max(self.full);
            let start = slice * slice_ns;
            at = at.max(start);
            let Some(taken) = self.slice(slice) else { return earliest.max(at + left.div_ceil(rate)) };
            let end = start + slice_ns;
            let room = (slice_ns * rate - *taken).min((end - at) * rate);
            let take = room.min(left).min(of_slice);
            *taken += take;
            let reached = start + taken.div_ceil(rate);
            left -= take;
            self.skip_full();
            if left == 0 {
                return earliest.max(reached);
            }
            at = end;
        }
        earliest
    }

    /// What has been taken of a slice; `None` when it is too far ahead to be kept account of.
    fn slice(&mut self, slice: u64) -> Option<&mut u64> {
        let index = usize::try_from(slice.saturating_sub(self.first)).ok().filter(|&i| i < SLICES_MAX)?;
        if index >= self.taken.len() {
            self.taken.resize(index + 1, 0);
        }
        self.taken.get_mut(index)
    }

    fn skip_full(&mut self) {
        let all = self.slice_ns * self.rate;
        while self.taken.get((self.full - self.first) as usize) == Some(&all) {
            self.full += 1;
        }
    }

    /// Most that has been taken of a slice, and what a slice has, in thousandths of bytes; and what was taken
    /// in all.
    #[cfg(test)]
    pub(super) fn account(&self) -> (u64, u64, u64) {
        let most = self.taken.iter().copied().max().unwrap_or_default();
        (most, self.slice_ns * self.rate, self.taken.iter().sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_alone_takes_its_bytes_over_the_bandwidth() {
        // 400 MB/s: 4096 bytes take 10240 ns.
        let mut channel = Credits::new(400, 4096);
        assert_eq!(channel.transfer(1000, 4096), 1000 + 10_240);
        // Slices in which nobody was are still free behind an idle time.
        channel.retire(1_000_000);
        assert_eq!(channel.transfer(1_000_000, 4096), 1_010_240);
        assert_eq!(channel.transfer(2_000_000, 0), 2_000_000);
    }

    #[test]
    fn one_that_starts_earlier_does_not_wait_for_one_that_was_asked_for_before_it() {
        let mut channel = Credits::new(400, 4096);
        assert_eq!(channel.transfer(100 * 4096, 4096), 100 * 4096 + 10_240);
        assert_eq!(channel.transfer(0, 4096), 10_240);
        // The second at the same time has to wait for what the first has taken.
        assert_eq!(channel.transfer(0, 4096), 20_480);
    }

    #[test]
    fn what_is_over_of_a_slice_cannot_be_taken_any_more() {
        let mut channel = Credits::new(400, 4096);
        // 96 ns of its first slice are left: 361 of 400 bytes take their time from the second one.
        channel.transfer(4000, 400);
        // Which has not enough for 1638 bytes then.
        let end = channel.transfer(4096, 1638);
        assert!((2 * 4096 + 800..2 * 4096 + 1000).contains(&end), "{end}");
    }

    #[test]
    fn no_slice_gives_away_more_than_it_has_and_all_of_it_is_accounted_for() {
        let mut random = 0x5eed_u64;
        let mut channel = Credits::new(450, 1000);
        let mut sum = 0;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (from, bytes) = ((random >> 40) % 4_000_000, (random >> 20) % 900);
            let end = channel.transfer(from, bytes);
            assert!(end >= from + (bytes * 1000).div_ceil(450), "{bytes} bytes from {from} arrived at {end}");
            sum += bytes * 1000;
        }
        let (most, all, taken) = channel.account();
        assert!(most <= all, "{most} of {all}");
        assert_eq!(taken, sum);
    }

    #[test]
    fn far_ahead_a_transfer_is_alone() {
        let mut channel = Credits::new(1000, 1000);
        let far = 1000 * (SLICES_MAX as u64 + 5);
        assert_eq!(channel.transfer(far, 4096), far + 4096);
        assert_eq!(channel.transfer(far, 4096), far + 4096);
        assert!(channel.taken.len() <= SLICES_MAX);
    }
}
