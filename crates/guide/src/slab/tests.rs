use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use std::thread;

use unvme_bus::function::IOVA_RANGE;
use unvme_bus::{AddressSpace, DmaAccess, DmaPool, Pages, Region};

use super::{CHUNK_BYTES, Class, SLAB_BYTES_MIN, Slab, SlabBuf, SlabError, SlabOptions};

const MIB: usize = 1 << 20;

fn slab(bytes: usize) -> Slab {
    slab_on(&DmaPool::new(Arc::new(AddressSpace::new())), bytes)
}

fn slab_on(pool: &DmaPool, bytes: usize) -> Slab {
    Slab::new(pool, &SlabOptions { bytes, pages: Pages::Ordinary }).unwrap()
}

fn take_all(slab: &Slab, bytes: usize) -> Vec<SlabBuf> {
    std::iter::from_fn(|| slab.alloc(bytes).ok()).collect()
}

#[test]
fn a_budget_below_44_mib_is_refused() {
    let pool = DmaPool::new(Arc::new(AddressSpace::new()));
    for bytes in [0, 1, 44 * MIB - 1] {
        let options = SlabOptions { bytes, pages: Pages::Huge };
        let outcome = Slab::new(&pool, &options);
        assert!(matches!(outcome, Err(SlabError::BudgetTooSmall { .. })), "{outcome:?}");
    }
    let slab = Slab::new(&pool, &SlabOptions { bytes: SLAB_BYTES_MIN, pages: Pages::Huge }).unwrap();
    assert_eq!(slab.stats().budget_bytes, 44 * MIB);
    assert_eq!(slab.stats().mapped_bytes, 0);
}

#[test]
fn buffers_are_as_long_as_asked_for_aligned_and_apart() {
    let slab = slab(SLAB_BYTES_MIN);
    let mut held: Vec<SlabBuf> = Vec::new();
    for bytes in [0, 1, 100, 128, 129, 255, 512, 4096, 5000, 32_768, 100_000, 1 << 20, 2 << 20] {
        for _ in 0..2 {
            let mut buf = slab.alloc(bytes).unwrap();
            assert_eq!(buf.len(), bytes);
            assert!(buf.capacity() >= bytes && buf.iova().is_multiple_of(buf.capacity().min(4096) as u64));
            buf.write(0, &vec![held.len() as u8; bytes]);
            held.push(buf);
        }
    }
    let mut ranges = BTreeMap::new();
    for (at, buf) in held.iter().enumerate() {
        let mut data = vec![0xff; buf.len()];
        buf.read(0, &mut data);
        assert!(data.iter().all(|byte| *byte == at as u8), "buffer {at}");
        ranges.insert(buf.iova(), buf.capacity() as u64);
    }
    let mut end = 0;
    for (start, bytes) in ranges {
        assert!(start >= end, "{start:#x} is in use twice");
        end = start + bytes;
    }
}

#[test]
fn what_no_size_holds_is_an_error() {
    let slab = slab(SLAB_BYTES_MIN);
    for bytes in [2 * MIB + 1, usize::MAX] {
        let outcome = slab.alloc(bytes);
        assert!(matches!(outcome, Err(SlabError::TooLarge { .. })), "{outcome:?}");
    }
    assert_eq!(slab.stats().mapped_bytes, 0);
}

#[test]
fn the_budget_is_never_exceeded_and_what_it_does_not_have_is_an_error() {
    let slab = slab(SLAB_BYTES_MIN);
    let held = take_all(&slab, 2 * MIB);
    // Of 22 chunks 14 are kept for the 14 other sizes.
    assert_eq!(held.len(), 8);
    let stats = slab.stats();
    assert_eq!((stats.mapped_bytes, stats.used_bytes, stats.refusals), (16 * MIB, 16 * MIB, 1));
    let refused = slab.alloc(2 * MIB);
    assert!(matches!(refused, Err(SlabError::Exhausted { bytes: 2_097_152, budget_bytes: 46_137_344 })));
    drop(held);
    let stats = slab.stats();
    assert_eq!((stats.used_bytes, stats.used_bytes_max, stats.refusals), (0, 16 * MIB, 2));
    assert!(slab.alloc(2 * MIB).is_ok());
}

#[test]
fn a_size_that_was_never_used_has_room_however_much_the_others_took() {
    let slab = slab(SLAB_BYTES_MIN);
    let mut held = take_all(&slab, 4096);
    assert_eq!(held.len(), 8 * CHUNK_BYTES / 4096);
    for class in Class::all().filter(|class| class.bytes() != 4096) {
        held.push(slab.alloc(class.bytes()).unwrap_or_else(|e| panic!("{}: {e}", class.bytes())));
    }
    assert_eq!(slab.stats().mapped_bytes, SLAB_BYTES_MIN);
}

#[test]
fn memory_of_one_size_that_is_not_in_use_serves_another() {
    let slab = slab(SLAB_BYTES_MIN);
    let mut small = take_all(&slab, 4096);
    let large = take_all(&slab, 2 * MIB);
    assert_eq!(large.len(), 1);
    // One page in use keeps its chunk, and one chunk stays with the size.
    small.truncate(1);
    let more = take_all(&slab, 2 * MIB);
    assert_eq!(more.len(), 7);
    // And back again.
    drop((large, more));
    assert_eq!(take_all(&slab, 4096).len(), 7 * CHUNK_BYTES / 4096 + CHUNK_BYTES / 4096 - 1);
}

#[test]
fn a_buffer_travels_with_a_command_and_comes_back() {
    let pool = DmaPool::new(Arc::new(AddressSpace::new()));
    let (slab, other) = (slab_on(&pool, SLAB_BYTES_MIN), slab_on(&pool, SLAB_BYTES_MIN));
    let mut buf = slab.alloc(1000).unwrap();
    buf.write(0, b"value");
    let payload = buf.into_payload(5);
    assert_eq!((payload.bytes, payload.buf.len()), (5, 1000));
    let refused = other.adopt(payload.buf).unwrap_err();
    let buf = slab.adopt(refused).unwrap();
    let mut data = [0; 5];
    buf.read(0, &mut data);
    assert_eq!(&data, b"value");
    assert!(slab.adopt(pool.alloc(1024).unwrap()).is_err());
    // A buffer that is dropped where nobody adopts it is not lost.
    drop(buf.into_dma());
    assert_eq!(slab.stats().used_bytes, 0);
}

#[test]
fn when_the_system_has_no_memory_it_is_an_error_that_says_so() {
    // Its first address is taken: what the pool maps there is refused.
    let space = AddressSpace::new();
    let taken = Region::anonymous(4096).unwrap();
    space.map(IOVA_RANGE.start, &taken, DmaAccess::READ_WRITE).unwrap();
    let pool = DmaPool::new(Arc::new(space));
    let outcome = slab_on(&pool, SLAB_BYTES_MIN).alloc(4096);
    assert!(matches!(outcome, Err(SlabError::System(_))), "{outcome:?}");
}

#[test]
fn threads_share_a_slab_and_no_buffer_is_held_twice_or_lost() {
    let slab = slab(SLAB_BYTES_MIN);
    let start = Arc::new(Barrier::new(4));
    let threads: Vec<_> = (0..4u8)
        .map(|me| {
            let (slab, start) = (slab.clone(), Arc::clone(&start));
            thread::spawn(move || {
                start.wait();
                let mut held: Vec<SlabBuf> = Vec::new();
                for round in 0..20_000usize {
                    let bytes = 100 << (round * 7 % 11);
                    if let Ok(mut buf) = slab.alloc(bytes) {
                        buf.write(0, &[me; 100]);
                        held.push(buf);
                    }
                    if round % 3 != 0 || held.len() > 50 {
                        let buf = held.swap_remove(round % held.len());
                        let mut data = [0xff; 100];
                        buf.read(0, &mut data);
                        assert_eq!(data, [me; 100], "somebody else wrote here");
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let stats = slab.stats();
    assert_eq!(stats.used_bytes, 0);
    assert!(stats.mapped_bytes <= SLAB_BYTES_MIN && stats.used_bytes_max <= stats.mapped_bytes);
}
