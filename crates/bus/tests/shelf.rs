//! Shelves of buffers of one size, and the pages that buffers are made of.

use std::collections::BTreeSet;
use std::sync::Arc;

use unvme_bus::mem::HUGE_PAGE_BYTES;
use unvme_bus::{DmaBuf, DmaParts, DmaPool, DmaShelf, Pages, Region};

mod toy;

fn pool() -> DmaPool {
    DmaPool::new(toy::Toy::new() as Arc<_>)
}

/// Free pages of 2 MiB in the system's pool, as the kernel says.
fn free_huge_pages() -> usize {
    std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

fn take_all(shelf: &DmaShelf) -> Vec<DmaBuf> {
    std::iter::from_fn(|| shelf.take(shelf.piece_bytes())).collect()
}

#[test]
fn a_shelf_cuts_its_chunks_into_pieces_that_are_apart_and_mapped() {
    let pool = pool();
    let shelf = DmaShelf::new(512);
    assert!(shelf.take(512).is_none(), "nothing to cut yet");
    shelf.add(pool.alloc(8192).unwrap());
    shelf.add(pool.alloc(4096).unwrap());
    let mut pieces = take_all(&shelf);
    assert_eq!(pieces.len(), 24);
    for (at, piece) in pieces.iter_mut().enumerate() {
        piece.fill(at as u8);
        assert_eq!((piece.len(), piece.region().len()), (512, 512));
        assert_eq!(piece.iova() % 512, 0);
    }
    for (at, piece) in pieces.iter().enumerate() {
        assert_eq!(piece.to_vec(), vec![at as u8; 512]);
    }
    // What the device reaches at a piece's address is the piece.
    let iovas: BTreeSet<u64> = pieces.iter().map(DmaBuf::iova).collect();
    assert_eq!(iovas.len(), 24);
    assert!(shelf.take(1).is_none());
}

#[test]
fn a_piece_that_is_dropped_anywhere_is_taken_again() {
    let pool = pool();
    let shelf = DmaShelf::new(4096);
    shelf.add(pool.alloc(8192).unwrap());
    let (first, second) = (shelf.take(100).unwrap(), shelf.take(4096).unwrap());
    assert_eq!(first.len(), 100);
    assert_eq!((shelf.taken(), shelf.taken_max()), (2, 2));
    let iova = first.iova();
    std::thread::spawn(move || drop(first)).join().unwrap();
    assert_eq!((shelf.taken(), shelf.taken_max()), (1, 2));
    assert_eq!(shelf.take(4096).unwrap().iova(), iova);
    // A piece outlives the handles of its shelf and of its pool.
    drop((shelf, pool));
    assert_eq!(second.to_vec().len(), 4096);
}

#[test]
fn a_chunk_is_reclaimed_when_none_of_its_pieces_is_in_use() {
    let pool = pool();
    let shelf = DmaShelf::new(1024);
    assert!(shelf.reclaim().is_none(), "an empty shelf");
    shelf.add(pool.alloc(4096).unwrap());
    shelf.add(pool.alloc(4096).unwrap());
    let mut pieces = take_all(&shelf);
    assert_eq!(pieces.len(), 8);
    pieces.sort_by_key(DmaBuf::iova);
    // Seven pieces are back, three of one chunk and four of the other.
    let kept = pieces.remove(1);
    drop(pieces);
    let chunk = shelf.reclaim().expect("one chunk is free");
    assert_eq!(chunk.len(), 4096);
    assert!(!(chunk.iova()..chunk.iova() + 4096).contains(&kept.iova()));
    assert!(shelf.reclaim().is_none(), "a piece of the other chunk is in use");
    let left = take_all(&shelf);
    assert_eq!(left.len(), 3, "the pieces beside the one in use, and none of the chunk that was given away");
    assert!(left.iter().all(|piece| piece.iova() & !4095 == kept.iova() & !4095));
    drop((left, kept));
    assert!(shelf.reclaim().is_some());
    assert!(shelf.take(1).is_none());
    // A chunk that nothing was cut from.
    shelf.add(chunk);
    assert!(shelf.reclaim().is_some());
    assert!(shelf.take(1).is_none());
}

#[test]
fn a_shelf_knows_its_own_pieces() {
    let pool = pool();
    let (shelf, other) = (DmaShelf::new(512), DmaShelf::new(512));
    shelf.add(pool.alloc(4096).unwrap());
    let piece = shelf.take(512).unwrap();
    assert!(shelf.owns(&piece) && shelf.clone().owns(&piece));
    assert!(!other.owns(&piece));
    assert!(!shelf.owns(&pool.alloc(512).unwrap()));
}

#[test]
fn pieces_carry_the_pool_of_their_chunks() {
    let (pool, other) = (pool(), pool());
    assert_ne!(pool.id(), other.id());
    assert_eq!(pool.clone().id(), pool.id());
    let shelf = DmaShelf::new(512);
    shelf.add(pool.alloc(8192).unwrap());
    let piece = shelf.take(100).unwrap();
    assert_eq!((piece.pool(), other.alloc(512).unwrap().pool()), (pool.id(), other.id()));
    drop(piece);
    assert_eq!(shelf.take(512).unwrap().pool(), pool.id(), "also one that was used before");
}

#[test]
#[should_panic(expected = "of another pool")]
fn a_shelf_takes_chunks_of_one_pool() {
    let shelf = DmaShelf::new(512);
    shelf.add(pool().alloc(8192).unwrap());
    shelf.add(pool().alloc(8192).unwrap());
}

#[test]
fn huge_pages_are_used_when_the_pool_has_them_and_ordinary_ones_when_not() {
    let bytes = 2 * HUGE_PAGE_BYTES;
    // The tests beside this one take a few.
    let (all_taken, plenty) = (free_huge_pages() == 0, free_huge_pages() >= 64);
    let check = |is_huge: bool| assert!(if is_huge { !all_taken } else { !plenty }, "huge: {is_huge}");
    let region = Region::shared_on("pages", bytes, Pages::Huge).unwrap();
    check(region.is_huge());
    assert_eq!(region.len(), bytes);
    region.fill(0, bytes, 0x77);
    drop(region);
    let buf = pool().alloc_on(bytes, Pages::Huge).unwrap();
    check(buf.region().is_huge());
    // No pool has this many, and the machine has the addresses.
    let beyond = (free_huge_pages() + 64) * HUGE_PAGE_BYTES;
    assert!(!Region::shared_on("pages", beyond, Pages::Huge).unwrap().is_huge());
    // Less than a huge page never comes from the pool.
    assert!(!Region::shared_on("pages", HUGE_PAGE_BYTES - 4096, Pages::Huge).unwrap().is_huge());
}

#[test]
fn ordinary_pages_leave_the_pool_of_huge_pages_alone() {
    let region = Region::shared_on("pages", HUGE_PAGE_BYTES, Pages::Ordinary).unwrap();
    region.fill(0, HUGE_PAGE_BYTES, 1);
    assert!(!region.is_huge());
    let pool = pool();
    let buf = pool.alloc_on(HUGE_PAGE_BYTES, Pages::Ordinary).unwrap();
    assert!(!buf.region().is_huge());
}

#[test]
fn buffers_given_back_are_used_again_before_more_memory_is_taken() {
    let pool = pool();
    for pages in [Pages::Huge, Pages::Ordinary] {
        let iova = pool.alloc_on(HUGE_PAGE_BYTES, pages).unwrap().iova();
        for _ in 0..3 {
            assert_eq!(pool.alloc_on(HUGE_PAGE_BYTES, pages).unwrap().iova(), iova, "{pages:?}");
        }
    }
}

#[test]
fn parts_are_where_they_are_in_the_whole_and_keep_it() {
    let pool = pool();
    let parts = DmaParts::new(pool.alloc(8192).unwrap());
    let (start, iova) = (parts.whole().region().as_ptr(), parts.whole().iova());
    let mut part = parts.part(4100, 92);
    assert_eq!((part.iova(), part.len(), part.pool()), (iova + 4100, 92, pool.id()));
    assert_eq!(part.region().as_ptr(), start.wrapping_add(4100));
    part.fill(7);
    let mut around = [0; 94];
    parts.whole().read(4099, &mut around);
    assert_eq!((around[0], around[1], around[92], around[93]), (0, 7, 7, 0));
    drop(parts);
    // Somebody else does not get the memory before the last part has gone.
    assert_ne!(pool.alloc(8192).unwrap().iova(), iova);
    drop(part);
    let again: Vec<_> = (0..256).map(|_| pool.alloc(8192).unwrap()).collect();
    assert!(again.iter().any(|buf| buf.iova() == iova), "the whole has gone back");
}

#[test]
#[should_panic(expected = "93 bytes at 4100 of a buffer of 4192 bytes")]
fn a_part_is_within_the_whole() {
    DmaParts::new(pool().alloc(4192).unwrap()).part(4100, 93);
}

#[test]
fn memory_of_one_pool_is_mapped_by_another_for_as_long_as_the_import_lives() {
    let (owner, function) = (pool(), toy::Toy::new());
    let other = DmaPool::new(Arc::clone(&function) as Arc<_>);
    let mut buf = owner.alloc(8192).unwrap();
    buf.fill(9);
    let import = other.import(buf.region()).unwrap();
    assert_eq!((import.len(), import.pool()), (8192, other.id()));
    assert_eq!(import.to_vec(), vec![9; 8192]);
    let iova = import.iova();
    drop(buf);
    assert_eq!(import.to_vec(), vec![9; 8192], "the memory stays");
    // A pool's own memory never gets an import's addresses, and taking the import back leaves it alone.
    let own = other.alloc(4096).unwrap();
    assert!(own.iova() >= iova + 8192);
    drop(import);
    assert_eq!(own.to_vec(), vec![0; 4096]);
}
