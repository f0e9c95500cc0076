//! Where on the flash a page is: a pure function of its number.

use super::config::TimingModel;

/// A page's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) die: u32,
    pub(super) plane: usize,
    /// Which page of its word line it is in: selects the time to sense it.
    pub(super) cell: usize,
    /// First page number of the flash page it is in.
    pub(super) row: u32,
}

/// How pages are striped: what one program writes lies on one die, the next on the next one, so that a
/// reclaim unit spans all dies like a superblock. Units begin on different dies, so that several that are
/// filled side by side do not meet on one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    unit_pages: u32,
    dies: u32,
    planes: u32,
    plane_pages: u32,
    program_pages: u32,
    block_pages: u32,
}

impl Layout {
    pub(super) fn new(model: &TimingModel, unit_pages: u32) -> Self {
        Self {
            unit_pages,
            dies: model.dies(),
            planes: model.planes.into(),
            plane_pages: model.plane_pages.into(),
            program_pages: model.program_pages(),
            block_pages: model.block_pages,
        }
    }

    #[inline]
    pub(super) fn place(&self, ppn: u32) -> Place {
        let (unit, page) = (ppn / self.unit_pages, ppn % self.unit_pages);
        let (program, within) = (page / self.program_pages, page % self.program_pages);
        let flash_page = within / self.plane_pages;
        Place {
            die: ((u64::from(program) + u64::from(unit)) % u64::from(self.dies)) as u32,
            plane: (flash_page % self.planes) as usize,
            cell: (flash_page / self.planes) as usize,
            row: ppn - within % self.plane_pages,
        }
    }

    /// Dies that erase blocks when a unit is erased, and how many each. Small units share blocks' worth of
    /// time: a unit of a third of a block on every die is erased on a third of the dies, others each time.
    pub(super) fn erases(&self, unit: u32) -> impl Iterator<Item = (u32, u32)> + use<> {
        let (dies, blocks) = (u64::from(self.dies), u64::from(self.unit_pages.div_ceil(self.block_pages)));
        let first = u64::from(unit) * blocks % dies;
        (0..dies.min(blocks)).map(move |index| {
            let count = blocks / dies + u64::from(index < blocks % dies);
            (((first + index) % dies) as u32, count as u32)
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
        assert_eq!(place(4), (0, 1, 0, 4));
        assert_eq!(place(8), (0, 0, 1, 8));
        assert_eq!(place(23), (0, 1, 2, 20));
        assert_eq!(place(24), (1, 0, 0, 24));
        assert_eq!(place(24 * 32), (0, 0, 0, 768));
        // The next unit begins on the next die.
        assert_eq!(place(2048), (1, 0, 0, 2048));
    }

    #[test]
    fn a_unit_is_erased_on_as_many_dies_as_it_has_blocks() {
        let tlc = TimingConfig::preset("tlc").unwrap();
        let erases =
            |unit_pages, unit| Layout::new(tlc.model().unwrap(), unit_pages).erases(unit).collect::<Vec<_>>();
        // Blocks of 6144 pages.
        assert_eq!(erases(2048, 0), [(0, 1)]);
        assert_eq!(erases(2048, 33), [(1, 1)]);
        assert_eq!(erases(6144 * 3, 11), [(1, 1), (2, 1), (3, 1)]);
        let superblock = erases(6144 * 33, 0);
        assert_eq!(superblock.len(), 32);
        assert_eq!(superblock[..2], [(0, 2), (1, 1)]);
    }
}
