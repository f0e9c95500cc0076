//! The write buffer, and what reclaim moves at a time: so many pages, each taken until the program that it is
//! part of has ended.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A program that has been queued, and the pages of the buffer that it will set free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Release {
    /// When the program ends, as far as was known; it can be later.
    pub(super) end: u64,
    pub(super) die: u32,
    /// Number of the program on its die.
    pub(super) program: u64,
    pub(super) pages: u32,
}

/// Which program a page in the buffer is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resident {
    /// One that has not been queued yet.
    Collecting,
    /// This one, of the page's die.
    Program(u64),
}

/// Places of the buffer, who has them, and which pages are there.
pub(super) struct Buffer {
    pages: u32,
    free: u32,
    /// No page gets a place sooner: that is when the place the last one has waited for became free.
    gate: u64,
    releases: BinaryHeap<Reverse<Release>>,
    /// By page number modulo its length: the page and where it is. Two pages that would have one place take
    /// it from each other, and the loser is read from the flash.
    residents: Box<[Option<(u32, Resident)>]>,
}

impl Buffer {
    pub(super) fn new(pages: u32) -> Self {
        let slots = if pages == 0 { 0 } else { (pages as usize * 4).next_power_of_two() };
        Self { pages, free: pages, gate: 0, releases: BinaryHeap::new(), residents: vec![None; slots].into() }
    }

    /// Places for what reclaim moves: nobody asks for a page there.
    pub(super) fn of_reclaim(pages: u32) -> Self {
        Self { pages, free: pages, gate: 0, releases: BinaryHeap::new(), residents: Box::default() }
    }

    /// False for a device whose writes wait for their programs.
    pub(super) const fn exists(&self) -> bool {
        self.pages > 0
    }

    /// Pages that are in the buffer, or wait for a place that will be free.
    #[cfg(test)]
    pub(super) const fn used(&self) -> u32 {
        self.pages - self.free
    }

    /// Takes a place, if one is free, for a page that comes at `at`; returns when it is in.
    pub(super) fn take(&mut self, at: u64) -> Option<u64> {
        self.free = self.free.checked_sub(1)?;
        Some(at.max(self.gate))
    }

    /// The pages of a program will be free when it ends.
    pub(super) fn release_at_end(&mut self, release: Release) {
        self.releases.push(Reverse(release));
    }

    /// Frees the places of programs that have ended at `now`, where `end_of` knows how long one takes by now.
    pub(super) fn retire(&mut self, now: u64, end_of: impl Fn(&Release) -> u64) {
        while let Some(first) = self.pop_if(|end| end <= now, &end_of) {
            self.free += first.pages;
        }
    }

    /// Frees the places of the program that ends first, for which the next page waits. False when there is
    /// none.
    pub(super) fn wait_for_first(&mut self, end_of: impl Fn(&Release) -> u64) -> bool {
        let Some(first) = self.pop_if(|_| true, &end_of) else { return false };
        self.free += first.pages;
        self.gate = self.gate.max(first.end);
        true
    }

    /// Takes out the program that ends first, when that is a time that is `wanted`.
    fn pop_if(&mut self, wanted: impl Fn(u64) -> bool, end_of: impl Fn(&Release) -> u64) -> Option<Release> {
        loop {
            let Reverse(first) = *self.releases.peek()?;
            if !wanted(first.end) {
                return None;
            }
            self.releases.pop();
            // Reads may have suspended it since.
            let end = end_of(&first);
            if end <= first.end {
                return Some(first);
            }
            self.releases.push(Reverse(Release { end, ..first }));
        }
    }

    /// When everything that is being programmed will have been.
    pub(super) fn drained(&self, end_of: impl Fn(&Release) -> u64) -> u64 {
        self.releases.iter().map(|Reverse(release)| end_of(release)).fold(self.gate, u64::max)
    }

    pub(super) fn put(&mut self, ppn: u32, resident: Resident) {
        let mask = self.residents.len().wrapping_sub(1);
        if let Some(slot) = self.residents.get_mut(ppn as usize & mask) {
            *slot = Some((ppn, resident));
        }
    }

    /// Where a page is, or was, while it is or was in the buffer.
    pub(super) fn find(&self, ppn: u32) -> Option<Resident> {
        let mask = self.residents.len().wrapping_sub(1);
        self.residents.get(ppn as usize & mask).copied().flatten().filter(|&(p, _)| p == ppn).map(|(_, r)| r)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_buffer_gives_a_place_when_the_first_program_ends_by_then() {
        let mut buffer = Buffer::new(3);
        let planned = |release: &Release| release.end;
        assert_eq!(
            [buffer.take(5), buffer.take(6), buffer.take(7), buffer.take(8)],
            [Some(5), Some(6), Some(7), None]
        );
        assert!(!buffer.wait_for_first(planned), "nothing is being programmed");
        buffer.release_at_end(Release { end: 900, die: 1, program: 0, pages: 1 });
        buffer.release_at_end(Release { end: 100, die: 0, program: 0, pages: 2 });
        // The one that would have ended first has been suspended meanwhile.
        let suspended = |release: &Release| if release.die == 0 { 1000 } else { release.end };
        assert!(buffer.wait_for_first(suspended));
        assert_eq!((buffer.take(8), buffer.take(9)), (Some(900), None));
        assert_eq!(buffer.drained(suspended), 1000);
        buffer.retire(999, suspended);
        assert_eq!(buffer.used(), 3);
        buffer.retire(1000, suspended);
        assert_eq!((buffer.used(), buffer.take(1200)), (1, Some(1200)));
    }

    #[test]
    fn pages_that_share_a_slot_are_never_taken_for_each_other() {
        let mut buffer = Buffer::new(1);
        buffer.put(1, Resident::Collecting);
        assert_eq!((buffer.find(1), buffer.find(5)), (Some(Resident::Collecting), None));
        buffer.put(5, Resident::Program(7));
        assert_eq!((buffer.find(1), buffer.find(5)), (None, Some(Resident::Program(7))));
        let mut none = Buffer::new(0);
        none.put(1, Resident::Collecting);
        assert_eq!((none.find(1), none.take(0), none.exists()), (None, None, false));
    }
}
