//! Memory: bounds, the copies against the plain one, what is discarded, what is refused.
#![allow(unsafe_code)] // UNSAFETY: one test locks a page, which the kernel is told by address.

use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{SealFlags, fcntl_add_seals};
use unvme_bus::{AddressSpace, BusError, DmaAccess, DmaPool, Region};

mod toy;

const PAGE: usize = 4096;

/// Bytes that tell every offset below 64 KiB from its neighbours.
fn numbered(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

fn contents(region: &Region) -> Vec<u8> {
    let mut out = vec![0; region.len()];
    region.read(0, &mut out);
    out
}

#[test]
fn every_access_outside_a_region_is_refused_before_memory_is_touched() {
    let whole = Region::anonymous(3 * PAGE).unwrap();
    let region = whole.slice(PAGE, PAGE);
    let other = Region::anonymous(PAGE).unwrap();
    whole.fill(0, 3 * PAGE, 0x11);
    let refused = |what: &str, access: &dyn Fn()| {
        assert!(catch_unwind(AssertUnwindSafe(access)).is_err(), "{what}");
    };
    for (offset, bytes) in
        [(0, PAGE + 1), (1, PAGE), (PAGE, 1), (PAGE + 1, 0), (usize::MAX, 2), (2, usize::MAX)]
    {
        refused("slice", &|| drop(region.slice(offset, bytes)));
        refused("fill", &|| region.fill(offset, bytes, 0xff));
        refused("discard", &|| region.discard(offset, bytes));
        refused("copy from", &|| region.copy_to(offset, &other, 0, bytes));
        refused("copy to", &|| other.copy_to(0, &region, offset, bytes));
        refused("copy ahead", &|| other.copy_to_ahead(0, &region, offset, bytes, 0));
        refused("copy uncached", &|| other.copy_to_uncached(0, &region, offset, bytes));
    }
    for offset in [PAGE - 3, PAGE, usize::MAX - 3, 2] {
        refused("a word", &|| region.store_u32(offset, 0, Ordering::Relaxed));
        refused("two words", &|| region.write_words(offset, [0; 2]));
    }
    refused("read", &|| region.read(PAGE - 1, &mut [0; 2]));
    refused("write", &|| region.write(PAGE - 1, &[0; 2]));
    // Hints may name anything.
    region.prefetch(usize::MAX, 4);
    region.prefetch(PAGE - 1, 1000);
    assert_eq!(contents(&whole), vec![0x11; 3 * PAGE]);
}

#[test]
fn every_way_to_copy_moves_the_same_bytes_also_where_source_and_target_overlap() {
    type Copy = fn(&Region, usize, &Region, usize, usize);
    let ways: [(&str, Copy); 4] = [
        ("plain", |s, at, t, to, bytes| s.copy_to(at, t, to, bytes)),
        ("ahead", |s, at, t, to, bytes| s.copy_to_ahead(at, t, to, bytes, at + bytes)),
        ("ahead of nothing", |s, at, t, to, bytes| s.copy_to_ahead(at, t, to, bytes, usize::MAX)),
        ("uncached", |s, at, t, to, bytes| s.copy_to_uncached(at, t, to, bytes)),
    ];
    let data = numbered(4 * PAGE);
    for (name, copy) in ways {
        // Whole lines and not, aligned and not, apart, overlapping by all, by much, by one line and by one
        // byte.
        for (from, to, bytes) in [
            (0, 2 * PAGE, PAGE),
            (7, 2 * PAGE, PAGE),
            (0, 2 * PAGE + 7, PAGE),
            (0, 2 * PAGE, 100),
            (0, 2 * PAGE, 0),
            (0, 0, PAGE),
            (0, 64, PAGE),
            (64, 0, PAGE),
            (1, 0, PAGE),
            (0, 1, PAGE),
            (0, PAGE - 64, PAGE),
            (PAGE - 1, 0, PAGE),
        ] {
            let region = Region::anonymous(4 * PAGE).unwrap();
            region.write(0, &data);
            let mut expected = data.clone();
            expected.copy_within(from..from + bytes, to);
            copy(&region, from, &region, to, bytes);
            assert!(contents(&region) == expected, "{name}: {bytes} bytes from {from} to {to}");
        }
    }
}

#[test]
fn what_is_discarded_reads_as_zeroes_and_what_is_beside_it_stays() {
    let region = Region::anonymous(4 * PAGE).unwrap();
    for (offset, bytes) in [(0, 4 * PAGE), (100, 200), (100, 2 * PAGE), (PAGE, PAGE), (PAGE - 1, 2), (5, 0)] {
        let mut expected = numbered(4 * PAGE);
        region.write(0, &expected);
        region.discard(offset, bytes);
        expected[offset..offset + bytes].fill(0);
        assert!(contents(&region) == expected, "{bytes} bytes at {offset}");
    }
}

#[test]
fn memory_that_is_locked_is_cleared_when_it_is_discarded() {
    let region = Region::anonymous(2 * PAGE).unwrap();
    // SAFETY: the page is mapped and stays so until the end of the test.
    unsafe { rustix::mm::mlock(region.as_ptr().cast(), PAGE) }.expect("one page may be locked by anybody");
    region.fill(0, 2 * PAGE, 0x5a);
    region.discard(0, 2 * PAGE);
    assert_eq!(contents(&region), vec![0; 2 * PAGE]);
}

#[test]
fn who_receives_shared_memory_can_neither_resize_it_nor_seal_it() {
    let region = Region::shared("sealed", PAGE).unwrap();
    let (fd, _) = region.backing().unwrap();
    assert!(rustix::fs::ftruncate(fd, 0).is_err());
    assert!(rustix::fs::ftruncate(fd, 1 << 20).is_err());
    assert!(fcntl_add_seals(fd, SealFlags::FUTURE_WRITE).is_err());
    // The next one who attaches can still map it to write.
    Region::from_fd(fd.as_fd().try_clone_to_owned().unwrap(), 0, PAGE, true).unwrap();
}

#[test]
fn sizes_no_machine_has_are_errors() {
    for bytes in [usize::MAX, usize::MAX - PAGE + 1, isize::MAX as usize, 1 << 62] {
        let outcome = Region::anonymous(bytes);
        assert!(matches!(outcome, Err(BusError::Os { .. })), "{bytes}: {outcome:?}");
        let outcome = Region::shared("huge", bytes);
        assert!(matches!(outcome, Err(BusError::Os { .. })), "{bytes}: {outcome:?}");
    }
    let pool = DmaPool::new(toy::Toy::new() as Arc<_>);
    for bytes in [usize::MAX, (1 << 63) + 1, 1 << 63, 1 << 39] {
        let outcome = pool.alloc(bytes);
        assert!(matches!(outcome, Err(BusError::Dma { .. })), "{bytes}: {outcome:?}");
    }
    assert_eq!(pool.alloc(0).unwrap().len(), 0);
    assert_eq!(pool.alloc(PAGE + 1).unwrap().region().len(), 2 * PAGE);
}

#[test]
fn a_descriptor_that_does_not_hold_the_range_is_refused() {
    let region = Region::shared("two pages", 2 * PAGE).unwrap();
    let fd = || region.backing().unwrap().0.try_clone_to_owned().unwrap();
    for (offset, bytes) in
        [(0, 2 * PAGE + 1), (PAGE as u64, 2 * PAGE), (u64::MAX - 4095, PAGE), (1 << 40, PAGE)]
    {
        let outcome = Region::from_fd(fd(), offset, bytes, true);
        assert!(matches!(outcome, Err(BusError::OutOfRange { .. })), "{offset} {bytes}: {outcome:?}");
    }
    for (offset, bytes) in [(1, PAGE), (0, 0)] {
        let outcome = Region::from_fd(fd(), offset, bytes, true);
        assert!(matches!(outcome, Err(BusError::Protocol(_))), "{offset} {bytes}: {outcome:?}");
    }
    let (pipe, _other_end) = rustix::pipe::pipe().unwrap();
    assert!(Region::from_fd(pipe, 0, PAGE, true).is_err());
}

#[test]
fn ranges_that_are_empty_unaligned_or_overlap_are_not_mapped() {
    let space = AddressSpace::new();
    let page = Region::anonymous(2 * PAGE).unwrap();
    let map = |iova, region: &Region| space.map(iova, region, DmaAccess::READ_WRITE);
    map(0x10000, &page).unwrap();
    for (iova, region) in [
        (0x20000, page.slice(0, 0)),
        (0x20000, page.slice(0, 512)),
        (0x20001, page.clone()),
        (0x11000, page.clone()),
        (0xf000, page.clone()),
        (0x10000, page.slice(0, PAGE)),
        (0xffff_ffff_ffff_f000, page.clone()),
    ] {
        let outcome = map(iova, &region);
        assert!(matches!(outcome, Err(BusError::Dma { .. })), "{iova:#x} {region:?}: {outcome:?}");
    }
    map(0x12000, &page).unwrap();
    assert_eq!(space.view().len(), 2);
}
