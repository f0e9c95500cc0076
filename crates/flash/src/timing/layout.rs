//! Where on the flash a page is.

use super::config::TimingModel;

use super::op::Cause;

/// A page's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) die: u32,
    pub(super) plane: usize,
    /// Which page of its word line it is in: selects the time to sense it.
    pub(super) cell: usize,
    /// Which flash page of which unit it is in.
    pub(super) row: u64,
}

/// How pages are striped: what one program writes lies on one die, the next on the next one, so that a
/// reclaim unit spans all dies like a superblock.
///
/// A unit takes its place when its first page is programmed: where the unit ends that was opened before it,
/// in the stripe of hosts or in that of reclaim. So units that are filled one after the other are one
/// sequence of pages to the dies, whatever their size and their numbers. Units that are older than the model
/// lie in the order of their numbers.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    unit_pages: u32,
    dies: u32,
    planes: u32,
    plane_pages: u32,
    program_pages: u32,
    /// First position of each unit, below [`Layout::round`], or [`UNPLACED`].
    bases: Vec<u32>,
    /// Where the next unit begins, for hosts and for reclaim.
    next: [u32; 2],
}

/// No base: rounds are shorter, by the ranges of what they are made of.
const UNPLACED: u32 = u32::MAX;

impl Layout {
    pub(super) fn new(model: &TimingModel, unit_pages: u32) -> Self {
        Self {
            unit_pages,
            dies: model.dies(),
            planes: model.planes.into(),
            plane_pages: model.plane_pages.into(),
            program_pages: model.program_pages(),
            bases: Vec::new(),
            next: [0; 2],
        }
    }

    /// Positions of one program on every die.
    const fn round(&self) -> u64 {
        self.dies as u64 * self.program_pages as u64
    }

    fn base(&self, unit: u32) -> u64 {
        match self.bases.get(unit as usize) {
            Some(&base) if base != UNPLACED => base.into(),
            _ => u64::from(unit) * u64::from(self.unit_pages) % self.round(),
        }
    }

    #[inline]
    pub(super) fn place(&self, ppn: u32) -> Place {
        let (unit, page) = (ppn / self.unit_pages, ppn % self.unit_pages);
        let position = self.base(unit) + u64::from(page);
        let within = (position % u64::from(self.program_pages)) as u32;
        let flash_page = within / self.plane_pages;
        Place {
            die: (position / u64::from(self.program_pages) % u64::from(self.dies)) as u32,
            plane: (flash_page % self.planes) as usize,
            cell: (flash_page / self.planes) as usize,
            row: (u64::from(unit) << 32) | (position / u64::from(self.plane_pages)),
        }
    }

    /// The place of a page that is programmed: its unit takes its own with the first one.
    #[inline]
    pub(super) fn place_programmed(&mut self, ppn: u32, cause: Cause) -> Place {
        if ppn.is_multiple_of(self.unit_pages) {
            self.open(ppn / self.unit_pages, cause);
        }
        self.place(ppn)
    }

    fn open(&mut self, unit: u32, cause: Cause) {
        let (index, round) = (unit as usize, self.round());
        if index >= self.bases.len() {
            self.bases.resize(index + 1, UNPLACED);
        }
        let next = &mut self.next[cause as usize];
        // Media without erasures program a unit's first page again where it is.
        if self.bases[index] == UNPLACED {
            self.bases[index] = *next;
            *next = ((u64::from(*next) + u64::from(self.unit_pages)) % round) as u32;
        }
    }

    /// A unit is erased: it has no place until it is programmed again. Each die, and how many of the unit's
    /// pages were on it.
    pub(super) fn erase(&mut self, unit: u32) -> impl Iterator<Item = (u32, u64)> + use<> {
        let first = self.base(unit);
        let (behind, round, each) =
            (first + u64::from(self.unit_pages), self.round(), u64::from(self.program_pages));
        if let Some(base) = self.bases.get_mut(unit as usize) {
            *base = UNPLACED;
        }
        (0..self.dies).map(move |die| {
            let below = |position: u64| {
                let of_round = (position % round).saturating_sub(u64::from(die) * each);
                position / round * each + of_round.min(each)
            };
            (die, below(behind) - below(first))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::TimingConfig;

    #[test]
    fn consecutive_pages_fill_a_flash_page_then_the_other_plane_then_the_word_line_then_the_next_die() {
        let tlc = TimingConfig::preset("tlc").unwrap();
        // 32 dies; programs of 3 x 2 x 4 pages.
        let layout = Layout::new(tlc.model().unwrap(), 2048);
        let place = |ppn| {
            let Place { die, plane, cell, row } = layout.place(ppn);
            (die, plane, cell, row)
        };
        assert_eq!(place(0), (0, 0, 0, 0));
        assert_eq!(place(3), (0, 0, 0, 0));
        assert_eq!(place(4), (0, 1, 0, 1));
        assert_eq!(place(8), (0, 0, 1, 2));
        assert_eq!(place(23), (0, 1, 2, 5));
        assert_eq!(place(24), (1, 0, 0, 6));
        assert_eq!(place(24 * 32), (0, 0, 0, 192));
        // The next unit goes on where this one ends: 2048 pages are 85 programs and 8 pages.
        assert_eq!(place(2048), (21, 0, 1, (1 << 32) + 128));
    }

    #[test]
    fn units_that_are_opened_one_after_the_other_are_one_sequence_whatever_their_numbers() {
        let tlc = TimingConfig::preset("tlc").unwrap();
        for unit_pages in [16, 24, 64, 2048, 16_384] {
            let mut layout = Layout::new(tlc.model().unwrap(), unit_pages);
            let mut sequence = Vec::new();
            for unit in [7, 2, 1000, 3] {
                for page in 0..unit_pages {
                    let place = layout.place_programmed(unit * unit_pages + page, Cause::Host);
                    assert_eq!(place, layout.place(unit * unit_pages + page));
                    sequence.push(place.die);
                }
            }
            let expected = (0..4 * unit_pages).map(|position| position / 24 % 32);
            assert!(expected.eq(sequence.iter().copied()), "{unit_pages}");
            // Reclaim has a stripe of its own, and a unit stays where it is until it is erased.
            assert_eq!(layout.place_programmed(5 * unit_pages, Cause::Reclaim).die, 0);
            let before = layout.place_programmed(2 * unit_pages, Cause::Host).die;
            assert_eq!(before, unit_pages / 24 % 32);
            _ = layout.erase(2).count();
            assert_eq!(layout.place_programmed(2 * unit_pages, Cause::Host).die, 4 * unit_pages / 24 % 32);
        }
    }

    #[test]
    fn a_unit_is_erased_where_its_pages_are() {
        let tlc = TimingConfig::preset("tlc").unwrap();
        let erased = |unit_pages, unit| {
            let pages = Layout::new(tlc.model().unwrap(), unit_pages).erase(unit);
            pages.filter(|&(_, pages)| pages > 0).collect::<Vec<_>>()
        };
        assert_eq!(erased(24, 33), [(1, 24)]);
        assert_eq!(erased(16, 1), [(0, 8), (1, 8)]);
        // Beyond the last die it goes on with the first.
        assert_eq!(erased(40, 19), [(0, 24), (1, 8), (31, 8)]);
        let superblock = erased(6144 * 32, 5);
        assert!(superblock.len() == 32 && superblock.iter().all(|&(_, pages)| pages == 6144));
        assert_eq!(erased(2048, 3).iter().map(|&(_, pages)| pages).sum::<u64>(), 2048);
    }
}
