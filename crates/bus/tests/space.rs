//! A device's view of host memory, at its edges.

use unvme_bus::space::Direction;
use unvme_bus::{AddressSpace, BusError, DmaAccess, Region};

const PAGE: u64 = 4096;

fn space_with(ranges: &[(u64, usize, DmaAccess)]) -> AddressSpace {
    let space = AddressSpace::new();
    for &(iova, pages, access) in ranges {
        let region = Region::anonymous(pages * PAGE as usize).unwrap();
        space.map(iova, &region, access).unwrap();
    }
    space
}

/// Offset and length of the piece at `iova` when `bytes` are wanted.
fn find(space: &AddressSpace, iova: u64, bytes: usize) -> Option<(usize, usize)> {
    let place = space.view().find(iova, bytes, Direction::Read)?;
    Some((place.offset, place.bytes))
}

#[test]
fn a_range_starts_at_its_first_byte_and_ends_behind_its_last() {
    let space = space_with(&[(0x10_0000, 2, DmaAccess::READ_WRITE)]);
    assert_eq!(find(&space, 0x10_0000 - 1, 1), None);
    assert_eq!(find(&space, 0x10_0000, 1), Some((0, 1)));
    assert_eq!(find(&space, 0x10_1fff, 1), Some((0x1fff, 1)));
    assert_eq!(find(&space, 0x10_2000, 1), None, "the byte behind the range is nobody's");
    assert_eq!(find(&space, 0x10_2001, 1), None);
}

#[test]
fn the_byte_behind_a_range_is_nobodys_among_several_ranges_too() {
    let space = space_with(&[(0x10_0000, 1, DmaAccess::READ_WRITE), (0x20_0000, 1, DmaAccess::READ_WRITE)]);
    assert_eq!(find(&space, 0x10_1000, 8), None);
    assert_eq!(find(&space, 0x20_1000, 8), None);
    assert_eq!(find(&space, 0, 8), None);
}

#[test]
fn a_piece_ends_where_its_range_ends_even_when_another_one_follows() {
    let space = space_with(&[(0x10_0000, 1, DmaAccess::READ_WRITE), (0x10_1000, 1, DmaAccess::READ_WRITE)]);
    assert_eq!(find(&space, 0x10_0ff0, 0x20), Some((0xff0, 0x10)));
    assert_eq!(find(&space, 0x10_1000, 0x20), Some((0, 0x20)));
    assert!(space.view().resolve(0x10_0ff0, 0x20, Direction::Read).is_none(), "not in one piece");
    assert!(space.view().resolve(0x10_0ff0, 0x10, Direction::Read).is_some());
}

#[test]
fn memory_a_device_may_only_read_cannot_be_found_for_writing() {
    let space = space_with(&[(0x10_0000, 1, DmaAccess::READ_ONLY)]);
    assert!(space.view().find(0x10_0000, 8, Direction::Read).is_some());
    assert!(space.view().find(0x10_0000, 8, Direction::Write).is_none());
}

#[test]
fn ranges_that_overlap_or_are_not_whole_pages_or_wrap_around_are_refused() {
    let space = space_with(&[(0x10_0000, 2, DmaAccess::READ_WRITE)]);
    let two_pages = Region::anonymous(2 * PAGE as usize).unwrap();
    for iova in [0x10_0000, 0x0f_f000, 0x10_1000, 0x10_0800, u64::MAX - 0xfff] {
        let refused = space.map(iova, &two_pages, DmaAccess::READ_WRITE);
        assert!(matches!(refused, Err(BusError::Dma { .. })), "{iova:#x}: {refused:?}");
    }
    for iova in [0x0f_e000, 0x10_2000] {
        space.map(iova, &two_pages, DmaAccess::READ_WRITE).unwrap();
    }
    assert_eq!(space.view().len(), 3);
}

#[test]
fn a_range_goes_as_a_whole_or_not_at_all() {
    let space = space_with(&[(0x10_0000, 2, DmaAccess::READ_WRITE), (0x20_0000, 1, DmaAccess::READ_WRITE)]);
    for (iova, length) in [(0x10_0000, PAGE), (0x10_1000, PAGE), (0x0f_f000, 2 * PAGE), (0x30_0000, PAGE)] {
        let refused = space.unmap(iova, length);
        assert!(matches!(refused, Err(BusError::Dma { .. })), "{iova:#x}+{length:#x}: {refused:?}");
    }
    assert_eq!(space.view().len(), 2);
    space.unmap(0, u64::MAX).unwrap();
    assert!(space.view().is_empty());
}

#[test]
fn a_view_keeps_what_it_saw_until_it_is_refreshed() {
    let space = space_with(&[(0x10_0000, 1, DmaAccess::READ_WRITE)]);
    let mut view = space.view();
    assert!(!space.refresh(&mut view), "nothing has changed");
    space.unmap(0x10_0000, PAGE).unwrap();
    assert_eq!(view.len(), 1);
    assert!(space.refresh(&mut view));
    assert!(view.is_empty());
}
