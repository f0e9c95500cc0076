//! Wear: how often units were erased, and evening that out.
//!
//! Free units are taken by wear: hosts get the least worn one. Data that is never written again would keep
//! its unit from wearing at all, so when the least and the most erased unit are too far apart, such units are
//! emptied as well. What they held goes to the most worn free unit, to rest there, and not beside data that
//! is warmer.

use std::collections::BTreeMap;

use super::config::FtlConfig;
use super::layer::Ftl;
use super::units::{State, Units};

/// Units looked at after an erasure for one that is worn little: bounded, and all have been looked at before
/// long.
const LOOKED_AT_MAX: u32 = 256;
/// Of so many victims, one is chosen for wear at most: levelling must not take what reclaim has to give.
const VICTIMS_FOR_ONE: u32 = 4;

/// How worn the units of a layer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wear {
    /// Times the least and the most erased unit were erased, bad ones left out.
    pub erased_min: u32,
    /// See `erased_min`.
    pub erased_max: u32,
    /// Units that are not bad, nor about to be.
    pub good_units: u32,
    /// Units that are, whether from the beginning or since.
    pub bad_units: u32,
    /// Units that can still go bad until the media is read-only.
    pub spare_units: u32,
    /// Of how many in the beginning.
    pub spare_units_max: u32,
}

/// What levelling keeps for a group.
#[derive(Clone, Copy, Debug, Default)]
struct Cold {
    /// Where it goes on looking.
    cursor: u32,
    /// A closed unit that is worn too little.
    unit: Option<u32>,
    victims_since: u32,
}

pub(super) struct Levelling {
    /// Good units by how often they were erased.
    counts: BTreeMap<u32, u32>,
    good: u32,
    needed: u32,
    /// No unit could be made free any more.
    has_given_up: bool,
    spread_max: Option<u32>,
    groups: Box<[Cold]>,
}

impl Levelling {
    pub(super) fn new(config: &FtlConfig, units: &Units) -> Self {
        let mut levelling = Self {
            counts: BTreeMap::new(),
            good: 0,
            needed: config.needed_units(),
            has_given_up: false,
            spread_max: config.wear_spread_max,
            groups: vec![Cold::default(); config.groups.into()].into(),
        };
        for unit in units.units.iter().filter(|unit| unit.state != State::Bad && !unit.is_failing) {
            levelling.count(unit.erased);
        }
        levelling
    }

    fn count(&mut self, erased: u32) {
        *self.counts.entry(erased).or_default() += 1;
        self.good += 1;
    }

    /// A good unit that was erased so often is not that any more.
    pub(super) fn discount(&mut self, erased: u32) {
        if let Some(count) = self.counts.get_mut(&erased) {
            *count -= 1;
            self.good -= 1;
            if *count == 0 {
                self.counts.remove(&erased);
            }
        }
    }

    /// A good unit was erased once more.
    pub(super) fn erased(&mut self, erased: u32, is_still_good: bool) {
        self.discount(erased - 1);
        if is_still_good {
            self.count(erased);
        }
    }

    /// Good units do not suffice to write to any more.
    #[inline]
    pub(super) fn is_worn_out(&self) -> bool {
        self.good < self.needed || self.has_given_up
    }

    /// No unit can be made free any more: those that are left have failed together, or are at the end of
    /// their life.
    pub(super) fn give_up(&mut self) {
        self.has_given_up = true;
    }

    fn range(&self) -> (u32, u32) {
        let end = |entry: Option<(&u32, &u32)>| entry.map_or(0, |(erased, _)| *erased);
        (end(self.counts.first_key_value()), end(self.counts.last_key_value()))
    }

    pub(super) fn good(&self) -> u32 {
        self.good
    }

    /// Looks for a closed unit of a group that is worn too little, unless there is none or one is known.
    pub(super) fn look(&mut self, group: u16, units: &Units) {
        let Some(spread_max) = self.spread_max else { return };
        let (min, max) = self.range();
        if max - min <= spread_max {
            return;
        }
        let cold = &mut self.groups[usize::from(group)];
        if cold.unit.is_some() {
            return;
        }
        let range = units.range_of(group);
        let count = range.end - range.start;
        for _ in 0..LOOKED_AT_MAX.min(count) {
            let unit = range.start + cold.cursor;
            cold.cursor = (cold.cursor + 1) % count;
            if units.buckets.contains(unit) && max - units.units[unit as usize].erased > spread_max {
                cold.unit = Some(unit);
                return;
            }
        }
    }

    /// The unit of a group that is to be emptied now because it is worn too little.
    pub(super) fn take(&mut self, group: u16, units: &Units) -> Option<u32> {
        let cold = &mut self.groups[usize::from(group)];
        cold.victims_since += 1;
        if cold.victims_since < VICTIMS_FOR_ONE {
            return None;
        }
        // It may have been reclaimed meanwhile.
        let unit = cold.unit.take().filter(|&unit| units.buckets.contains(unit))?;
        cold.victims_since = 0;
        Some(unit)
    }
}

impl Ftl {
    /// How worn the units are.
    pub fn wear(&self) -> Wear {
        let (erased_min, erased_max) = self.levelling.range();
        let good_units = self.levelling.good();
        let needed = self.config.needed_units();
        Wear {
            erased_min,
            erased_max,
            good_units,
            bad_units: self.config.units - good_units,
            spare_units: if self.is_read_only() { 0 } else { good_units - needed },
            spare_units_max: self.config.good_units().saturating_sub(needed),
        }
    }

    /// So many units are bad that no further unit is opened: what is written stays readable, and writes fail
    /// with [`FtlError::WornOut`](super::FtlError::WornOut) from when their stream needs a unit.
    pub fn is_read_only(&self) -> bool {
        self.levelling.is_worn_out()
    }
}
