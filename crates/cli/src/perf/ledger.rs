//! What each unit of a namespace should hold.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::Result;

use super::data::{Expected, GENERATION_MAX};
use crate::exit::usage;

/// Units a ledger takes: a byte of memory each.
const UNITS_MAX: u64 = 1 << 32;
/// A command is on its way to the unit.
const BUSY: u8 = 0x80;

/// A generation for each unit, kept over all points of a run.
///
/// While a point is measured each lane has units of its own, so that nobody else writes what it expects to
/// read; the atomics only make that a matter of arithmetic and not of borrowing.
#[derive(Debug)]
pub(super) struct Ledger {
    /// The generation written last, 0 when it is not known.
    entries: Box<[AtomicU8]>,
}

impl Ledger {
    /// A ledger of `units` in which nothing is known. Errors: a usage error when there are too many.
    pub(super) fn new(units: u64) -> Result<Self> {
        if units > UNITS_MAX {
            let message = format!(
                "--verify keeps account of {UNITS_MAX} units and not of {units}; use --range or a larger -o"
            );
            return Err(usage(message));
        }
        Ok(Self { entries: (0..units).map(|_| AtomicU8::new(0)).collect() })
    }

    fn entry(&self, unit: u64) -> &AtomicU8 {
        &self.entries[unit as usize]
    }

    /// Takes a unit for a command, and says what it holds; `None` when a command is on its way there.
    pub(super) fn claim(&self, unit: u64) -> Option<u8> {
        let entry = self.entry(unit);
        let generation = entry.load(Ordering::Relaxed);
        if generation & BUSY != 0 {
            return None;
        }
        entry.store(generation | BUSY, Ordering::Relaxed);
        Some(generation)
    }

    /// Takes the first free unit from `unit` on, around the end of `units`, of which fewer are busy than
    /// there are.
    pub(super) fn claim_from(&self, unit: u64, units: &Range<u64>) -> Option<(u64, u8)> {
        (unit..units.end).chain(units.start..unit).find_map(|unit| Some((unit, self.claim(unit)?)))
    }

    /// Units there are.
    pub(super) fn units(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Nothing is known any more; no command may be on its way.
    pub(super) fn forget(&self) {
        self.entries.iter().for_each(|entry| entry.store(0, Ordering::Relaxed));
    }

    /// Gives a unit back, which holds `generation` now; 0 when that is not known.
    pub(super) fn release(&self, unit: u64, generation: u8) {
        self.entry(unit).store(generation, Ordering::Relaxed);
    }
}

/// What a read of a unit should find.
pub(super) fn expected(generation: u8) -> Expected {
    if generation == 0 { Expected::Unknown } else { Expected::Generation(generation) }
}

/// The generation after this one.
pub(super) fn after(generation: u8) -> u8 {
    if generation >= GENERATION_MAX { 1 } else { generation + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_claimed_once_until_it_is_released() {
        let ledger = Ledger::new(4).expect("ledger");
        assert_eq!(ledger.claim(1), Some(0));
        assert_eq!(ledger.claim(1), None);
        assert_eq!(ledger.claim_from(1, &(0..3)), Some((2, 0)));
        assert_eq!(ledger.claim_from(1, &(0..3)), Some((0, 0)), "around the end, not beyond the range");
        assert_eq!(ledger.claim_from(1, &(0..3)), None);
        ledger.release(1, 5);
        assert_eq!(ledger.claim(1), Some(5));
        ledger.release(1, 5);
        ledger.forget();
        assert_eq!((ledger.units(), ledger.claim(1)), (4, Some(0)));
    }

    #[test]
    fn generations_go_round_without_the_unknown_one() {
        assert_eq!((after(0), after(1), after(126), after(127)), (1, 2, 127, 1));
        assert_eq!((expected(0), expected(9)), (Expected::Unknown, Expected::Generation(9)));
    }
}
