//! The cache as a whole: who is given up, and that somebody always is.

use super::{Cache, Found, NoRoom, Order, Own, Owners, PAGE, Pages};

/// One other owner, which may be busy.
struct Other<'a> {
    pages: &'a std::sync::Mutex<Pages>,
    is_busy: bool,
}

impl Owners for Other<'_> {
    fn with<R>(&self, _: u64, act: impl FnOnce(&mut Pages) -> R) -> Found<R> {
        match self.is_busy {
            true => Found::Busy,
            false => Found::There(act(&mut self.pages.lock().expect("nobody panics"))),
        }
    }
}

/// Pages of a cache of one part.
const BUDGET: u64 = 1000;

fn cache(order: Order) -> Cache {
    Cache::new(BUDGET as usize * PAGE, order).expect("memory")
}

fn insert(cache: &Cache, others: &Other<'_>, pages: &mut Pages, index: u64) -> Result<(), NoRoom> {
    cache.insert(&mut Own { others, owner: 7, pages }, index, &[index as u8; PAGE])
}

/// Pages come, some again soon after they were given up: not among those that came lately. There are never
/// many more than are kept.
fn come_again(cache: &Cache, others: &Other<'_>, pages: &mut Pages) {
    for nth in 0..20_000 {
        let index = 10_000 + nth % 1500;
        if pages.get(index).is_none() {
            insert(cache, others, pages, index).expect("room");
        }
        let there = cache.counts().pages;
        assert!(there <= BUDGET + 100, "{:?}: {there} pages of {BUDGET}", cache.order);
    }
}

#[test]
fn pages_that_wait_to_be_written_keep_no_others() {
    for order in [Order::S3Fifo, Order::Lru] {
        let (cache, mut pages, nobody) = (cache(order), Pages::default(), std::sync::Mutex::default());
        let others = Other { pages: &nobody, is_busy: false };
        // More than the part of those that came lately, and less than what a file system lets wait.
        let dirty = |pages: &mut Pages, range: std::ops::Range<u64>| {
            for index in range {
                insert(&cache, &others, pages, index).expect("room");
                assert!(cache.mark_dirty(pages, index));
            }
        };
        (2000..2700).for_each(|index| insert(&cache, &others, &mut pages, index).expect("room"));
        dirty(&mut pages, 0..300);
        come_again(&cache, &others, &mut pages);
        assert!((0..300).all(|index| pages.get(index).is_some()), "{order:?}: one was not written");
        // They are written, and are given up as others are.
        assert_eq!(cache.mark_written(&mut pages, 0..300), 300);
        (30_000..32_000).for_each(|index| insert(&cache, &others, &mut pages, index).expect("room"));
        assert_eq!((0..300).filter(|&index| pages.get(index).is_some()).count(), 0, "{order:?}");
        assert!(cache.counts().pages <= BUDGET, "{order:?}");
    }
}

#[test]
fn pages_of_somebody_busy_keep_no_others() {
    for order in [Order::S3Fifo, Order::Lru] {
        let (cache, mut pages, other) = (cache(order), Pages::default(), std::sync::Mutex::default());
        let nobody = std::sync::Mutex::default();
        for index in 0..300 {
            let mut own = Own {
                others: &Other { pages: &nobody, is_busy: false },
                owner: 8,
                pages: &mut other.lock().expect("nobody panics"),
            };
            cache.insert(&mut own, index, &[0; PAGE]).expect("room");
        }
        let busy = Other { pages: &other, is_busy: true };
        come_again(&cache, &busy, &mut pages);
        let free = Other { pages: &other, is_busy: false };
        (20_000..22_000).for_each(|index| insert(&cache, &free, &mut pages, index).expect("room"));
        let left = (0..300).filter(|&index| other.lock().expect("nobody panics").get(index).is_some());
        assert_eq!(left.count(), 0, "{order:?}");
    }
}

#[test]
fn there_is_no_room_when_all_pages_wait() {
    let (cache, mut pages, nobody) = (cache(Order::S3Fifo), Pages::default(), std::sync::Mutex::default());
    let others = Other { pages: &nobody, is_busy: false };
    let mut index = 0;
    while insert(&cache, &others, &mut pages, index).is_ok() {
        cache.mark_dirty(&mut pages, index);
        index += 1;
        assert!(index < 10 * BUDGET);
    }
    // One is enough.
    cache.mark_written(&mut pages, 5..6);
    for next in index..index + 100 {
        // It takes a few attempts until it is its turn.
        if insert(&cache, &others, &mut pages, next).is_ok() {
            return;
        }
    }
    panic!("a page that could be given up is not");
}

#[test]
fn a_page_that_comes_and_goes_is_not_remembered_each_time() {
    for order in [Order::S3Fifo, Order::Lru] {
        let (cache, mut pages, nobody) = (cache(order), Pages::default(), std::sync::Mutex::default());
        let others = Other { pages: &nobody, is_busy: false };
        for _ in 0..100 * BUDGET {
            insert(&cache, &others, &mut pages, 0).expect("room");
            assert_eq!(cache.drop_range(7, &mut pages, 0..1), 0);
        }
        insert(&cache, &others, &mut pages, 0).expect("room");
        let remembered: usize = cache.shards.iter().map(|shard| shard.queues.lock().unwrap().len()).sum();
        assert!(remembered < 10 * BUDGET as usize, "{order:?}: {remembered} entries");
    }
}

#[test]
fn a_page_in_memory_that_somebody_busy_had_is_given_up_some_day() {
    let (cache, other) = (cache(Order::S3Fifo), std::sync::Mutex::new(Pages::default()));
    let (mut pages, nobody) = (Pages::default(), std::sync::Mutex::default());
    let free = Other { pages: &nobody, is_busy: false };
    {
        let mut theirs = other.lock().expect("nobody panics");
        let mut own = Own { others: &free, owner: 8, pages: &mut theirs };
        cache.insert(&mut own, 0, &[0; PAGE]).expect("room");
        assert_eq!(cache.drop_range(8, &mut theirs, 0..1), 0);
    }
    // It has the same memory, and those that come and go have a sweep begin.
    insert(&cache, &free, &mut pages, 5).expect("room");
    let busy = Other { pages: &other, is_busy: true };
    for _ in 0..20 * BUDGET {
        insert(&cache, &busy, &mut pages, 6).expect("room");
        assert_eq!(cache.drop_range(7, &mut pages, 6..7), 0);
    }
    for index in 1000..1000 + 4 * BUDGET {
        insert(&cache, &free, &mut pages, index).expect("room");
    }
    assert!(pages.get(5).is_none(), "nobody considers it any more");
}

#[test]
fn memory_is_there_before_it_is_used_and_no_more_than_is_kept() {
    const PAGES: usize = 8192;
    let cache = Cache::new(PAGES * PAGE, Order::S3Fifo).expect("memory");
    let (mut pages, nobody) = (Pages::default(), std::sync::Mutex::default());
    let others = Other { pages: &nobody, is_busy: false };
    assert_eq!(cache.prepare(), 0);
    let mut is_ahead = false;
    for index in 0..2 * PAGES as u64 {
        insert(&cache, &others, &mut pages, index).expect("room");
        if index % 512 == 0 {
            // The shards take some more than they use, each.
            let (ready, come) = (cache.prepare(), index as usize + 1);
            assert!(
                ready <= (2 * come + 4096).max(PAGES + 1024),
                "memory for {ready} pages, {come} have come"
            );
            is_ahead |= ready >= come + 1024;
        }
    }
    // A kernel before 5.14 cannot do it.
    assert_eq!(is_ahead, cache.frames.memory.slice(0, PAGE).populate(PAGE).is_ok());
    let there = pages.there(&(0..2 * PAGES as u64));
    let mut out = [0; 1];
    assert!(there.iter().all(|&index| cache.read(7, &pages, index, 9, &mut out) && out[0] == index as u8));
}
