//! Reclaim units: their state, and the orders they are found by.

use std::collections::BTreeSet;

use super::buckets::Buckets;
use super::config::FtlConfig;

pub(super) const NOBODY: u32 = u32::MAX;
/// Taken from a group's room as long as it has a failing unit, so that reclaim goes on until that is empty.
const URGENT: i64 = 1 << 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Erased.
    Free,
    /// The open unit of a stream.
    Open,
    /// Written, and a candidate for reclaim.
    Closed,
    /// Being emptied.
    Victim,
    /// Never written again.
    Bad,
}

/// What is looked at once for each erasure. How many pages are valid, which changes with each write, is in
/// [`Buckets`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    /// Pages programmed since it was erased, once it is closed.
    pub(super) written: u32,
    pub(super) erased: u32,
    pub(super) state: State,
    /// A program in it has failed: it is bad once it has been emptied.
    pub(super) is_failing: bool,
    /// Stream that filled it.
    pub(super) stream: u16,
    /// Pages hosts had written to the device when it was closed: its age.
    pub(super) closed_at: u64,
    /// Neighbours in the order in which the group's units were closed.
    older: u32,
    newer: u32,
}

/// What a group has to write to, and its closed units from the oldest on.
pub(super) struct Group {
    /// Erased units, the least worn first.
    pub(super) free: BTreeSet<(u32, u32)>,
    /// Closed units in which a program has failed.
    pub(super) failing: Vec<u32>,
    /// Those, and the one of them that is being emptied.
    failing_left: u32,
    /// Pages that can be programmed (in free and in open units) beyond those that reclaim keeps available:
    /// one unit for each append point, one more, and the pool. Below zero, reclaim works.
    pub(super) room: i64,
    /// Units of the pool: [`FtlConfig::pool_units`], less those that are bad.
    pub(super) pool: u32,
    oldest: u32,
    newest: u32,
}

pub(super) struct Units {
    pub(super) units: Box<[Unit]>,
    pub(super) groups: Box<[Group]>,
    pub(super) buckets: Buckets,
    unit_pages: u32,
    per_group: u32,
    /// ceil(2^64 / unit_pages): one multiplication instead of a division.
    reciprocal: u64,
}

impl Units {
    pub(super) fn new(config: &FtlConfig) -> Self {
        let unit = Unit {
            written: 0,
            erased: 0,
            state: State::Free,
            is_failing: false,
            stream: 0,
            closed_at: 0,
            older: NOBODY,
            newer: NOBODY,
        };
        let pool = config.pool_units / u32::from(config.groups);
        let group = |_| Group {
            free: BTreeSet::new(),
            failing: Vec::new(),
            failing_left: 0,
            room: -i64::from(config.unit_pages) * (1 + i64::from(pool)),
            pool,
            oldest: NOBODY,
            newest: NOBODY,
        };
        let mut units = Self {
            units: vec![unit; config.units as usize].into(),
            groups: (0..config.groups).map(group).collect(),
            buckets: Buckets::new(config),
            unit_pages: config.unit_pages,
            per_group: config.units / u32::from(config.groups),
            reciprocal: u64::MAX / u64::from(config.unit_pages) + 1,
        };
        for &bad in &config.bad_units {
            if std::mem::replace(&mut units.at(bad).state, State::Bad) != State::Bad {
                units.shrink_pool(bad);
            }
        }
        for group in 0..config.groups {
            let good = |number: &u32| units.units[*number as usize].state == State::Free;
            let free: BTreeSet<_> = units.range_of(group).filter(good).map(|number| (0, number)).collect();
            let entry = &mut units.groups[usize::from(group)];
            entry.room += free.len() as i64 * i64::from(config.unit_pages);
            entry.free = free;
        }
        units
    }

    /// Unit of a physical page.
    #[inline]
    pub(super) fn of(&self, ppn: u32) -> u32 {
        // Exact for 32-bit numbers and divisors of at least 2.
        ((u128::from(ppn) * u128::from(self.reciprocal)) >> 64) as u32
    }

    #[inline]
    pub(super) fn first_page(&self, unit: u32) -> u32 {
        unit * self.unit_pages
    }

    #[inline]
    pub(super) fn group_of(&self, unit: u32) -> u16 {
        if self.groups.len() == 1 { 0 } else { (unit / self.per_group) as u16 }
    }

    /// Numbers of a group's units.
    pub(super) fn range_of(&self, group: u16) -> std::ops::Range<u32> {
        u32::from(group) * self.per_group..(u32::from(group) + 1) * self.per_group
    }

    #[inline]
    pub(super) fn at(&mut self, unit: u32) -> &mut Unit {
        &mut self.units[unit as usize]
    }

    #[inline]
    pub(super) fn group(&mut self, group: u16) -> &mut Group {
        &mut self.groups[usize::from(group)]
    }

    /// Pages of a unit that are valid.
    #[inline]
    pub(super) fn valid(&self, unit: u32) -> u32 {
        self.buckets.valid(unit)
    }

    /// A page of a unit is not valid any more.
    #[inline]
    pub(super) fn invalidate(&mut self, unit: u32) {
        let group = self.group_of(unit);
        self.buckets.invalidate(group.into(), unit);
    }

    /// A unit of the flash has gone bad: the pool is one smaller, if there is one.
    fn shrink_pool(&mut self, unit: u32) {
        let (group, pages) = (self.group_of(unit), i64::from(self.unit_pages));
        let group = self.group(group);
        if group.pool > 0 {
            group.pool -= 1;
            group.room += pages;
        }
    }

    /// A free unit of a group becomes the open one of a stream: the least worn, or the most worn one, of
    /// those that are ready, if any is.
    pub(super) fn open(
        &mut self,
        group: u16,
        stream: u16,
        is_most_worn: bool,
        is_ready: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let free = &mut self.group(group).free;
        let is_ready = |entry: &&(u32, u32)| is_ready(entry.1);
        let found = match is_most_worn {
            true => free.iter().rev().find(is_ready).or(free.last()),
            false => free.iter().find(is_ready).or(free.first()),
        };
        let entry = *found?;
        free.remove(&entry);
        let (_, unit) = entry;
        let entry = self.at(unit);
        entry.state = State::Open;
        entry.stream = stream;
        Some(unit)
    }

    /// A unit that was just opened, and not written to, is free as before.
    pub(super) fn put_back(&mut self, unit: u32) {
        let group = self.group_of(unit);
        let entry = self.at(unit);
        entry.state = State::Free;
        let erased = entry.erased;
        self.group(group).free.insert((erased, unit));
    }

    /// An open unit is closed with `written` pages: it may be reclaimed.
    pub(super) fn close(&mut self, unit: u32, written: u32, now: u64, is_failing: bool) {
        let group = self.group_of(unit);
        let entry = self.at(unit);
        entry.state = State::Closed;
        entry.written = written;
        entry.closed_at = now;
        entry.is_failing = is_failing;
        if is_failing {
            let group = self.group(group);
            group.failing.push(unit);
            group.failing_left += 1;
            if group.failing_left == 1 {
                group.room -= URGENT;
            }
        } else {
            self.make_candidate(unit);
        }
    }

    /// A closed unit can be chosen as a victim.
    fn make_candidate(&mut self, unit: u32) {
        let group = self.group_of(unit);
        self.buckets.insert(usize::from(group), unit);
        self.append_newest(group, unit);
    }

    /// A closed unit is being emptied.
    pub(super) fn take(&mut self, unit: u32) {
        if self.buckets.contains(unit) {
            let group = self.group_of(unit);
            self.buckets.remove(usize::from(group), unit);
            self.unlink(group, unit);
        }
        self.at(unit).state = State::Victim;
    }

    /// A victim is not being emptied after all.
    pub(super) fn give_back(&mut self, unit: u32) {
        let group = self.group_of(unit);
        self.at(unit).state = State::Closed;
        if self.units[unit as usize].is_failing {
            self.group(group).failing.push(unit);
        } else {
            self.make_candidate(unit);
        }
    }

    /// An erased unit is free, or bad.
    pub(super) fn put_erased(&mut self, unit: u32, is_bad: bool) {
        let (group, pages) = (self.group_of(unit), i64::from(self.unit_pages));
        if is_bad && self.at(unit).state != State::Bad {
            self.shrink_pool(unit);
        }
        let entry = &mut self.units[unit as usize];
        entry.written = 0;
        entry.state = if is_bad { State::Bad } else { State::Free };
        let (erased, was_failing) = (entry.erased, std::mem::take(&mut entry.is_failing));
        let group = self.group(group);
        if was_failing {
            group.failing_left -= 1;
            if group.failing_left == 0 {
                group.room += URGENT;
            }
        }
        if !is_bad {
            group.free.insert((erased, unit));
            group.room += pages;
        }
    }

    /// No unit of a new layer is free any more: each will be put where it belongs.
    pub(super) fn forget_free(&mut self) {
        for group in &mut self.groups {
            group.room -= group.free.len() as i64 * i64::from(self.unit_pages);
            group.free.clear();
        }
    }

    /// How many units' worth of pages a group is short of, beyond the one that emptying a victim takes for a
    /// while.
    pub(super) fn shortage(&self, group: u16) -> u64 {
        let group = &self.groups[usize::from(group)];
        let urgent = if group.failing_left > 0 { URGENT } else { 0 };
        let missing = (-(group.room + urgent)).max(0) as u64;
        missing / u64::from(self.unit_pages)
    }

    /// The room of a group as counted anew, but for the units it keeps available.
    pub(super) fn recount(&self, group: u16) -> i64 {
        let entry = &self.groups[usize::from(group)];
        let urgent = if entry.failing_left > 0 { URGENT } else { 0 };
        entry.free.len() as i64 * i64::from(self.unit_pages) - urgent
    }

    /// A closed unit with the fewest valid pages.
    #[inline]
    pub(super) fn fewest_valid(&self, group: u16) -> Option<u32> {
        self.buckets.first(usize::from(group))
    }

    /// The unit that was closed first, apart from those that are valid throughout: these go to the end of the
    /// order.
    pub(super) fn oldest_with_holes(&mut self, group: u16) -> Option<u32> {
        for _ in 0..self.buckets.len(usize::from(group)) {
            let oldest = self.groups[usize::from(group)].oldest;
            if oldest == NOBODY || self.valid(oldest) < self.unit_pages {
                break;
            }
            self.unlink(group, oldest);
            self.append_newest(group, oldest);
        }
        Some(self.groups[usize::from(group)].oldest).filter(|&unit| unit != NOBODY)
    }

    /// Closed units of a group from the oldest on.
    pub(super) fn oldest_first(&self, group: u16) -> impl Iterator<Item = u32> {
        let some = |unit: u32| Some(unit).filter(|&unit| unit != NOBODY);
        let first = some(self.groups[usize::from(group)].oldest);
        std::iter::successors(first, move |&unit| some(self.units[unit as usize].newer))
    }

    fn append_newest(&mut self, group: u16, unit: u32) {
        let group = &mut self.groups[usize::from(group)];
        let older = std::mem::replace(&mut group.newest, unit);
        if older == NOBODY {
            group.oldest = unit;
        } else {
            self.units[older as usize].newer = unit;
        }
        let entry = &mut self.units[unit as usize];
        entry.older = older;
        entry.newer = NOBODY;
    }

    fn unlink(&mut self, group: u16, unit: u32) {
        let Unit { older, newer, .. } = self.units[unit as usize];
        let group = &mut self.groups[usize::from(group)];
        match older {
            NOBODY => group.oldest = newer,
            older => self.units[older as usize].newer = newer,
        }
        match newer {
            NOBODY => group.newest = older,
            newer => self.units[newer as usize].older = older,
        }
    }
}
