//! Room to begin with after a power cut.
//!
//! A power cut can bring back what reclaim had done away with: copies that were made are lost, so the units
//! they were made from hold data again, and no unit may be left to move anything to. A layer never gets there
//! by itself, and cannot get out. Here units are emptied as far as it takes, into themselves: the pages of a
//! unit that hold nothing can be programmed, because what superseded them is on the media for certain by now.
//! What was moved is synced before the place it was moved from is used.

use unvme_bus::Region;
use unvme_flash::PAGE_BYTES;
use unvme_flash::ftl::{FtlConfig, UnitImage, UnitState};

use super::chip::Block;
use super::layout::Layout;
use super::record::{self, FLAG_ELSEWHERE, FLAG_MOVED, Record};
use super::recovery::unwritable;
use crate::SsdError;
use crate::store::Backing;

/// Free units that every group gets: with one to move data to, reclaim makes all others.
const FREE_UNITS: usize = 1;

/// A layer that is about to be restored.
pub(super) struct Room<'a> {
    pub(super) layout: &'a Layout,
    pub(super) memory: &'a Region,
    pub(super) backing: &'a Backing,
    pub(super) config: &'a FtlConfig,
    pub(super) secret: u64,
    pub(super) host_pages: u64,
    pub(super) units: &'a mut [UnitImage],
    /// Logical and physical pages.
    pub(super) mapping: &'a mut [(u32, u32)],
    /// Number of the last program.
    pub(super) sequence: u64,
}

impl Room<'_> {
    /// Makes as much room in each group as reclaim needs to go on. Errors: when the store fails.
    pub(super) fn make(&mut self) -> Result<(), SsdError> {
        let per_group = self.config.units as usize / usize::from(self.config.groups);
        for group in 0..usize::from(self.config.groups) {
            let units = group * per_group..(group + 1) * per_group;
            let free =
                |room: &Self| room.units[units.clone()].iter().filter(|u| u.state == UnitState::Free).count();
            if free(self) >= FREE_UNITS {
                continue;
            }
            let mut held = self.held();
            let mut order: Vec<usize> =
                units.clone().filter(|&unit| self.units[unit].state == UnitState::Closed).collect();
            order.sort_by_key(|&unit| held[unit].len());
            self.empty(&order, &mut held, |room| free(room) >= FREE_UNITS)?;
        }
        Ok(())
    }

    /// What each unit holds: positions in the mapping.
    fn held(&self) -> Vec<Vec<usize>> {
        let mut held = vec![Vec::new(); self.units.len()];
        for (index, (_, ppn)) in self.mapping.iter().enumerate() {
            held[(ppn / self.config.unit_pages) as usize].push(index);
        }
        held
    }

    /// Empties units, those that hold least first, until it is enough. A unit takes what the next ones hold
    /// in the pages that hold nothing.
    fn empty(
        &mut self,
        order: &[usize],
        held: &mut [Vec<usize>],
        is_enough: impl Fn(&Self) -> bool,
    ) -> Result<(), SsdError> {
        let mut taker: Option<usize> = None;
        for &unit in order {
            if is_enough(self) {
                break;
            }
            while let (Some(to), Some(&index)) = (taker, held[unit].last()) {
                let Some(page) = self.vacant(to, &held[to]) else {
                    taker = None;
                    break;
                };
                self.relocate(index, page, to)?;
                held[unit].pop();
                held[to].push(index);
            }
            self.backing.sync().map_err(|_| unwritable(self.backing.store()))?;
            if held[unit].is_empty() {
                let erased = self.units[unit].erased + 1;
                self.units[unit] = UnitImage { erased, ..UnitImage::default() };
            } else {
                taker = Some(unit);
            }
        }
        Ok(())
    }

    /// A page of a unit that holds nothing.
    fn vacant(&self, unit: usize, held: &[usize]) -> Option<u32> {
        let first = unit as u32 * self.config.unit_pages;
        let is_held = |page: &u32| held.iter().any(|&index| self.mapping[index].1 == *page);
        (first..first + self.config.unit_pages).find(|page| !is_held(page))
    }

    fn relocate(&mut self, index: usize, to: u32, unit: usize) -> Result<(), SsdError> {
        let (lpn, from) = self.mapping[index];
        let failed = |_| unwritable(self.backing.store());
        self.backing.reserve_range(self.layout.page(to), PAGE_BYTES).map_err(failed)?;
        self.backing.reserve_range(self.layout.record(to), record::RECORD_BYTES).map_err(failed)?;
        let before = Record::read(self.memory, self.layout.record(from), self.secret, from);
        let elsewhere = before.is_some_and(|record| record.flags & FLAG_ELSEWHERE != 0);
        let mut block: Block = [0; PAGE_BYTES as usize];
        if !elsewhere {
            self.memory.read(self.layout.page(from) as usize, &mut block);
            self.memory.write(self.layout.page(to) as usize, &block);
        }
        self.sequence += 1;
        let record = Record {
            sequence: self.sequence,
            lpn,
            // Without its record the data cannot be vouched for, here or there.
            data_crc: before.map_or_else(|| !record::crc(&block), |record| record.data_crc),
            erased: self.units[unit].erased,
            stream: self.units[unit].stream,
            flags: FLAG_MOVED | if elsewhere { FLAG_ELSEWHERE } else { 0 },
            host_pages: self.host_pages as u32,
            check: 0,
        };
        self.memory.write_words(self.layout.record(to) as usize, record.seal(self.secret, to));
        self.units[unit].written = self.units[unit].written.max(to % self.config.unit_pages + 1);
        self.mapping[index].1 = to;
        Ok(())
    }
}
