//! Closed units ordered by how many of their pages are valid.
//!
//! Each group has an array of its closed units in that order and, for each number of valid pages, the place
//! where units with at least so many begin. When a page becomes invalid, its unit changes places with the
//! first of its bucket and the boundary moves over it: a constant number of steps, in arrays that stay in the
//! nearest cache. Closing and taking a unit move one unit of each bucket above it, once for all the pages it
//! has.

use super::config::FtlConfig;
use super::units::NOBODY;

#[derive(Clone, Copy, Debug)]
struct Entry {
    valid: u32,
    /// Place in `sorted`; `NOBODY` when it is not closed.
    place: u32,
}

pub(super) struct Buckets {
    entries: Box<[Entry]>,
    /// By group, `per_group` places each, of which the first `starts[unit_pages + 1]` are taken.
    sorted: Box<[u32]>,
    /// By group, `unit_pages + 2` each: how many of its units have fewer valid pages than that.
    starts: Box<[u32]>,
    per_group: usize,
    /// Entries of `starts` for each group.
    row: usize,
}

impl Buckets {
    pub(super) fn new(config: &FtlConfig) -> Self {
        let row = config.unit_pages as usize + 2;
        Self {
            entries: vec![Entry { valid: 0, place: NOBODY }; config.units as usize].into(),
            sorted: vec![NOBODY; config.units as usize].into(),
            starts: vec![0; row * usize::from(config.groups)].into(),
            per_group: config.units as usize / usize::from(config.groups),
            row,
        }
    }

    #[inline]
    pub(super) fn valid(&self, unit: u32) -> u32 {
        self.entries[unit as usize].valid
    }

    /// So many more pages of a unit that is not a candidate are valid.
    #[inline]
    pub(super) fn add_valid(&mut self, unit: u32, pages: u32) {
        self.entries[unit as usize].valid += pages;
    }

    /// So many pages of a unit that is not a candidate are not valid any more.
    #[inline]
    pub(super) fn take_valid(&mut self, unit: u32, pages: u32) {
        self.entries[unit as usize].valid -= pages;
    }

    #[inline]
    pub(super) fn contains(&self, unit: u32) -> bool {
        self.entries[unit as usize].place != NOBODY
    }

    /// Number of units of a group that are in it.
    #[inline]
    pub(super) fn len(&self, group: usize) -> usize {
        self.starts[(group + 1) * self.row - 1] as usize
    }

    /// A unit with the fewest valid pages.
    #[inline]
    pub(super) fn first(&self, group: usize) -> Option<u32> {
        (self.len(group) > 0).then(|| self.sorted[group * self.per_group])
    }

    /// The units of a group with the fewest valid pages.
    pub(super) fn lowest(&self, group: usize) -> &[u32] {
        let base = group * self.per_group;
        let Some(unit) = self.first(group) else { return &[] };
        let end = self.starts[group * self.row + self.valid(unit) as usize + 1];
        &self.sorted[base..base + end as usize]
    }

    /// A page of a unit of `group` is not valid any more.
    #[inline]
    pub(super) fn invalidate(&mut self, group: usize, unit: u32) {
        let entry = &mut self.entries[unit as usize];
        let Entry { valid, place } = *entry;
        entry.valid = valid - 1;
        if place == NOBODY {
            return;
        }
        let start = &mut self.starts[group * self.row + valid as usize];
        let first = (group * self.per_group) as u32 + *start;
        *start += 1;
        entry.place = first;
        let other = std::mem::replace(&mut self.sorted[first as usize], unit);
        self.sorted[place as usize] = other;
        // Last, and right for a unit that changes places with itself.
        self.entries[other as usize].place = if other == unit { first } else { place };
    }

    /// A unit of `group` becomes a candidate.
    pub(super) fn insert(&mut self, group: usize, unit: u32) {
        let valid = self.entries[unit as usize].valid as usize;
        let base = group * self.per_group;
        let starts = &mut self.starts[group * self.row..(group + 1) * self.row];
        // From behind: the first unit of each bucket goes to the free place behind its last.
        let mut hole = starts[self.row - 1];
        starts[self.row - 1] += 1;
        for start in starts[valid + 1..self.row - 1].iter_mut().rev() {
            if *start < hole {
                let moved = self.sorted[base + *start as usize];
                self.sorted[base + hole as usize] = moved;
                self.entries[moved as usize].place = base as u32 + hole;
                hole = *start;
            }
            *start += 1;
        }
        self.sorted[base + hole as usize] = unit;
        self.entries[unit as usize].place = base as u32 + hole;
    }

    /// A candidate of `group` is one no more.
    pub(super) fn remove(&mut self, group: usize, unit: u32) {
        let Entry { valid, place } = self.entries[unit as usize];
        let base = group * self.per_group;
        let starts = &mut self.starts[group * self.row..(group + 1) * self.row];
        // From its place on: the last unit of each bucket goes to the hole before it.
        let mut hole = place;
        for start in &mut starts[valid as usize + 1..] {
            *start -= 1;
            let last = base as u32 + *start;
            if last != hole {
                let moved = self.sorted[last as usize];
                self.sorted[hole as usize] = moved;
                self.entries[moved as usize].place = hole;
                hole = last;
            }
        }
        self.sorted[hole as usize] = NOBODY;
        self.entries[unit as usize].place = NOBODY;
    }

    /// Whether the order of a group is right: `None`, or a unit that is in the wrong place.
    pub(super) fn misplaced(&self, group: usize) -> Option<u32> {
        let starts = &self.starts[group * self.row..(group + 1) * self.row];
        let base = group * self.per_group;
        (0..self.len(group)).find_map(|at| {
            let unit = self.sorted[base + at];
            let Entry { valid, place } = *self.entries.get(unit as usize)?;
            let bucket = starts[valid as usize] as usize..starts[valid as usize + 1] as usize;
            (place as usize != base + at || !bucket.contains(&at)).then_some(unit)
        })
    }
}
