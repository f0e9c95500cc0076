//! Making room: emptying units and erasing them.
//!
//! Reclaim is paced. While a group has less room than it keeps available (one unit for each append point and
//! one more), a victim is being emptied, and each page a host writes there pays for moving
//! `valid / (unit_pages - valid)` pages: when the victim is empty, hosts have written as much as it gives
//! back. Where a group has fallen behind, because a program failed, a unit was closed early or a stream is
//! new, each page pays up to [`HASTE_MAX`] times as much.
//!
//! **Bound.** One page written by a host moves at most `HASTE_MAX * (BATCH_PAGES + ceil(valid / gain))` pages
//! and erases one unit, where `valid` is what the victim held when it was chosen and `gain` the rest of it,
//! or a quarter of a unit for a unit that is emptied because it fails or is worn too little. Only when a
//! stream needs a unit and none is free is more moved: victims are emptied until one is. What is moved in
//! such a moment is counted in [`forced_pages`](super::FtlStats::forced_pages); with room kept for each
//! append point it takes failures of the flash, units closed early, or a stream that is new to a full device
//! for that to happen.

use super::config::FtlError;
use super::layer::Ftl;
use super::nand::{Nand, Origin};
use super::units::State;

/// Pages moved at a time: hosts pay for that many at once.
const BATCH_PAGES: u32 = 8;
/// Entries of the map are fetched this many pages ahead while a unit is emptied.
const AHEAD: usize = 16;
/// How much faster than it is used up room is made, at most, when there is less than there should be.
const HASTE_MAX: u64 = 4;
/// Units' worth of room that reclaim in the background makes beyond what is kept available.
const BACKGROUND_UNITS: i64 = 2;
/// Free units that hosts leave to reclaim, which may need a destination to make any other.
const FREE_FOR_RECLAIM: usize = 1;

/// A unit that is being emptied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Victim {
    pub(super) unit: u32,
    /// Next page to look at, and the one behind the last.
    at: u32,
    end: u32,
    /// Valid pages when it was chosen, and what emptying it gives.
    cost: u32,
    gain: u32,
    /// Pages hosts write for each batch, and have written since the last.
    every: u32,
    waited: u32,
    /// `cost` for each page hosts have paid with, minus `gain` for each page moved.
    credit: u64,
    is_levelling: bool,
}

impl Ftl {
    /// Reclaims ahead of need, at most `pages` moved or units erased. True when there is more to do.
    pub fn reclaim(&mut self, group: u16, pages: u32, nand: &mut impl Nand) -> bool {
        let enough = BACKGROUND_UNITS * i64::from(self.config.unit_pages);
        let mut left = pages;
        while left > 0 {
            let has_room = self.units.group(group).room >= enough;
            if has_room && self.victims[usize::from(group)].is_none() || !self.ensure_victim(group, true) {
                return false;
            }
            match self.move_pages(group, left, nand) {
                Ok(moved) => left -= moved.clamp(1, left),
                Err(_) => return false,
            }
        }
        true
    }

    /// Moves what a page written by a host pays for.
    #[inline]
    pub(super) fn pay(&mut self, group: u16, nand: &mut impl Nand) {
        if let Some(victim) = &mut self.victims[usize::from(group)] {
            victim.waited += 1;
            if victim.waited < victim.every {
                return;
            }
        }
        self.pay_batch(group, nand);
    }

    #[inline(never)]
    fn pay_batch(&mut self, group: u16, nand: &mut impl Nand) {
        if !self.ensure_victim(group, true) {
            return;
        }
        let haste = (self.units.shortage(group) + 1).min(HASTE_MAX);
        let Some(victim) = &mut self.victims[usize::from(group)] else { return };
        let gain = u64::from(victim.gain);
        victim.credit +=
            u64::from(victim.cost) * u64::from(std::mem::take(&mut victim.waited).max(1)) * haste;
        // Rounded up: it is done a little early rather than late.
        let pages = victim.credit.div_ceil(gain).max(1);
        victim.credit = victim.credit.saturating_sub(pages * gain);
        // An error is not the host's problem as long as its own stream has room.
        let moved = self.move_pages(group, pages as u32, nand).unwrap_or_default();
        self.stats.moved_at_once_max = self.stats.moved_at_once_max.max(moved.into());
    }

    /// A group with a free unit for a host's stream: `home` if anything can be won there, else another one.
    /// Errors: [`FtlError::WornOut`], from then on, when there is none; [`FtlError::Refused`].
    pub(super) fn make_free(&mut self, home: u16, nand: &mut impl Nand) -> Result<u16, FtlError> {
        if self.units.group(home).free.len() > FREE_FOR_RECLAIM {
            return Ok(home);
        }
        let before = self.stats.reclaim_pages;
        let found = self.find_free(home, nand);
        let moved = self.stats.reclaim_pages - before;
        self.stats.forced_pages += moved;
        self.stats.moved_at_once_max = self.stats.moved_at_once_max.max(moved);
        found.inspect_err(|e| {
            if *e == FtlError::WornOut {
                self.levelling.give_up();
            }
        })
    }

    fn find_free(&mut self, home: u16, nand: &mut impl Nand) -> Result<u16, FtlError> {
        if self.empty_until_free(home, nand)? {
            return Ok(home);
        }
        // A group that holds nothing but valid data has no room, however much others have.
        if let Some(group) = self.group_with_free(home, FREE_FOR_RECLAIM + 1) {
            return Ok(group);
        }
        for group in (0..self.config.groups).filter(|&group| group != home) {
            if self.empty_until_free(group, nand)? {
                return Ok(group);
            }
        }
        Err(FtlError::WornOut)
    }

    /// Empties units of a group until it has one for hosts. Each gives at least a page, so it ends. False
    /// when no more can be won. Errors: [`FtlError::Refused`].
    fn empty_until_free(&mut self, group: u16, nand: &mut impl Nand) -> Result<bool, FtlError> {
        while self.units.group(group).free.len() <= FREE_FOR_RECLAIM {
            if !self.ensure_victim(group, false) {
                return Ok(false);
            }
            match self.move_pages(group, u32::MAX, nand) {
                Ok(_) => {}
                Err(FtlError::WornOut) => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Chooses a victim when there is none. False when nothing can be won.
    fn ensure_victim(&mut self, group: u16, may_level: bool) -> bool {
        if self.victims[usize::from(group)].is_some() {
            return true;
        }
        let (pages, now) = (self.config.unit_pages, self.stats.host_pages);
        let entry = self.units.group(group);
        // These two may give no unit back for the one they take.
        let has_destination = entry.free.len() > FREE_FOR_RECLAIM;
        let failing = if has_destination { entry.failing.pop() } else { None };
        let mut is_levelling = false;
        let chosen = failing.or_else(|| {
            let cold =
                if may_level && has_destination { self.levelling.take(group, &self.units) } else { None };
            is_levelling = cold.is_some();
            cold.or_else(|| self.chooser.choose(&mut self.units, group, pages, now))
        });
        let Some(unit) = chosen else { return false };
        self.units.take(unit);
        let cost = self.units.valid(unit);
        let at = self.units.first_page(unit);
        let least = if failing.is_some() || is_levelling { pages / 4 } else { 0 };
        let gain = (pages - cost).max(least).max(1);
        let end = at + self.units.at(unit).written;
        let every = (u64::from(BATCH_PAGES) * u64::from(gain) / u64::from(cost.max(1)))
            .clamp(1, u64::from(gain / 4).max(1));
        let every = every as u32;
        let victim = Victim { unit, at, end, cost, gain, every, waited: 0, credit: 0, is_levelling };
        self.victims[usize::from(group)] = Some(victim);
        true
    }

    /// Moves up to `limit` valid pages of a group's victim, at least one if there is any, and erases it when
    /// none is left. Returns how many were moved. Errors: [`FtlError::WornOut`] or [`FtlError::Refused`] when
    /// there is no page to move to: the victim is one no more.
    fn move_pages(&mut self, group: u16, limit: u32, nand: &mut impl Nand) -> Result<u32, FtlError> {
        let Some(mut victim) = self.victims[usize::from(group)] else { return Ok(0) };
        let source = usize::from(self.units.at(victim.unit).stream);
        let destination = self.streams.destination_of(source, group, victim.is_levelling);
        let mut index = destination;
        let mut moved = 0;
        let mut left = self.units.valid(victim.unit).min(limit);
        while left > 0 {
            if self.streams.all[index].left == 0 {
                match self.open(destination, nand) {
                    Ok(stream) => index = stream,
                    Err(e) => {
                        self.victims[usize::from(group)] = None;
                        self.units.give_back(victim.unit);
                        return Err(e);
                    }
                }
            }
            let run = self.move_run(&mut victim, index, left, nand);
            self.streams.all[source].stats.moved_pages += u64::from(run);
            moved += run;
            left -= run;
        }
        self.victims[usize::from(group)] = Some(victim);
        if self.units.valid(victim.unit) == 0 {
            self.erase(group, victim.unit, nand);
        }
        Ok(moved)
    }

    /// Moves up to `limit` valid pages of a victim, which has as many, to the open unit of a stream, which
    /// has room: as many as that takes, and up to a program that fails. Returns how many were moved.
    fn move_run(&mut self, victim: &mut Victim, index: usize, limit: u32, nand: &mut impl Nand) -> u32 {
        let stream = &mut self.streams.all[index];
        let first = stream.next;
        let end = first + stream.left.min(limit);
        let mut to = first;
        let mut failed = 0;
        while to < end && victim.at < victim.end {
            let from = victim.at;
            let lpn = self.owners[from as usize];
            if let Some(&ahead) = self.owners.get(from as usize + AHEAD) {
                self.map.prefetch(ahead);
            }
            if self.map.get(lpn) == Some(from) {
                if nand.program(to, lpn, Origin::Reclaim { from }).is_err() {
                    failed = 1;
                    break;
                }
                self.owners[to as usize] = lpn;
                self.map.relocate(lpn, to);
                to += 1;
            }
            victim.at += 1;
        }
        let moved = to - first;
        stream.next = to + failed;
        stream.left -= moved + failed;
        stream.stats.received_pages += u64::from(moved);
        let (is_full, taker) = (stream.left == 0, stream.group);
        self.units.group(taker).room -= i64::from(moved);
        self.units.buckets.add_valid(self.units.of(first), moved);
        self.units.buckets.take_valid(victim.unit, moved);
        self.stats.reclaim_pages += u64::from(moved);
        if victim.is_levelling {
            self.stats.levelled_pages += u64::from(moved);
        }
        if failed > 0 {
            self.fail(index, failed, nand);
        } else if is_full {
            self.close_unit(index, nand);
        }
        moved
    }

    fn erase(&mut self, group: u16, unit: u32, nand: &mut impl Nand) {
        self.victims[usize::from(group)] = None;
        nand.erase(unit);
        let endurance = self.config.endurance;
        let entry = self.units.at(unit);
        debug_assert_eq!(entry.state, State::Victim);
        entry.erased += 1;
        let (erased, was_good, written) = (entry.erased, !entry.is_failing, entry.written);
        let is_good = was_good && endurance.is_none_or(|cycles| erased < cycles);
        let source = usize::from(entry.stream);
        self.units.put_erased(unit, !is_good);
        if was_good {
            self.levelling.erased(erased, is_good);
        }
        self.streams.all[source].stats.erased_units += 1;
        self.stats.erased_units += 1;
        self.stats.erased_pages += u64::from(self.config.unit_pages);
        self.sums.erased_written += u64::from(written);
        self.levelling.look(group, &self.units);
        self.assert_sums();
    }
}
