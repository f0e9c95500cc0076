//! Pages that other processes read without asking: which memory has which page, in memory that they map.
//!
//! Each frame has a version, which is odd while its memory changes, and says whose page it has. Who copies a
//! page looks at both before, and at the version after: what was copied in between is the page's, or is
//! thrown away. Where to look says a table of hints, by owner and index, that may be wrong: then the page is
//! not found, and whoever wants it asks.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use unvme_bus::{BusError, Pages as Kind, Region};

use super::frames::{FrameNo, PAGE};
use crate::spread::spread;

/// What is known of a frame: version, and whose page of which index it has.
const FRAME_BYTES: usize = 16;
/// Hints that are looked at together: a quarter of a cache line.
const BUCKET: usize = 4;
/// Pages whose hints are beside each other, as their memory mostly is: who reads at random in a part of a
/// file comes by few lines and few pages of the table.
const RUN: u64 = 512;
/// Uses of a page that are counted: beyond, nobody has to write to memory that all share.
const USES_MAX: u32 = 3;
/// A page that nobody has.
const NOBODYS: u64 = u64::MAX;

/// Owner and index as one word; pages beyond 2^32 are not shown.
#[inline]
fn identity(owner: u64, index: u64) -> u64 {
    if owner >> 32 == 0 && index >> 32 == 0 { owner << 32 | index } else { NOBODYS }
}

/// How large a cache is that others read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ShownSize {
    /// Frames.
    pub frames: u32,
    /// Places for hints: a power of two.
    pub hints: u32,
}

impl ShownSize {
    fn table_bytes(self) -> usize {
        (self.frames as usize * FRAME_BYTES + self.hints as usize * 4).next_multiple_of(PAGE)
    }

    fn used_bytes(self) -> usize {
        (self.frames as usize * 4).next_multiple_of(PAGE)
    }

    /// The first hint for a page, as an offset in the table.
    #[inline]
    fn bucket(self, owner: u64, index: u64) -> usize {
        let run = spread(spread(owner) ^ (index / RUN));
        let bucket = run.wrapping_add(index % RUN) as usize & (self.hints as usize / BUCKET - 1);
        self.frames as usize * FRAME_BYTES + bucket * BUCKET * 4
    }
}

/// The side of the cache.
#[derive(Debug)]
pub(super) struct Shown {
    pub size: ShownSize,
    table: Region,
    used: Region,
}

impl Shown {
    /// For so many frames, of which about `budget` have pages.
    pub(super) fn new(frames: usize, budget: usize) -> Result<Self, BusError> {
        let hints = (budget.max(1) * BUCKET).next_power_of_two() as u32;
        let size = ShownSize { frames: frames as u32, hints };
        let table = Region::published("unvme-page-table", size.table_bytes())?;
        let used = Region::shared_on("unvme-pages-used", size.used_bytes(), Kind::Ordinary)?;
        Ok(Self { size, table, used })
    }

    /// The descriptors of the table and of what others write: which pages they have used.
    pub(super) fn descriptors(&self) -> Option<[BorrowedFd<'_>; 2]> {
        Some([self.table.backing()?.0, self.used.backing()?.0])
    }

    /// Changes the memory of a frame, which nobody else changes meanwhile.
    #[inline]
    pub(super) fn change(&self, frame: FrameNo, act: impl FnOnce()) {
        let [version] = self.table.words::<1>(frame.0 as usize * FRAME_BYTES);
        let before = version.load(Ordering::Relaxed);
        version.store(before.wrapping_add(1), Ordering::Relaxed);
        // Before what changes, for those who look at the version again behind a fence.
        fence(Ordering::Release);
        act();
        version.store(before.wrapping_add(2), Ordering::Release);
    }

    fn hints(&self, owner: u64, index: u64) -> impl Iterator<Item = &AtomicU32> {
        let first = self.size.bucket(owner, index);
        (0..BUCKET).map(move |at| self.table.atomic_u32(first + at * 4))
    }

    /// A frame gets a page, by `act`.
    pub(super) fn put(&self, frame: FrameNo, owner: u64, index: u64, act: impl FnOnce()) {
        self.change(frame, || {
            let [_, whose] = self.table.words::<2>(frame.0 as usize * FRAME_BYTES);
            whose.store(identity(owner, index), Ordering::Relaxed);
            act();
        });
        self.uses(frame);
        // Of two who hint at a time one may be lost, and of more than four in a bucket.
        let free = self.hints(owner, index).find(|hint| hint.load(Ordering::Relaxed) == 0);
        let hint = free.or_else(|| self.hints(owner, index).nth(frame.0 as usize % BUCKET));
        if let Some(hint) = hint {
            hint.store(frame.0 + 1, Ordering::Release);
        }
    }

    /// A frame has no page any more.
    pub(super) fn take(&self, frame: FrameNo, owner: u64, index: u64) {
        self.change(frame, || {
            let [_, whose] = self.table.words::<2>(frame.0 as usize * FRAME_BYTES);
            whose.store(NOBODYS, Ordering::Relaxed);
        });
        for hint in self.hints(owner, index) {
            if hint.load(Ordering::Relaxed) == frame.0 + 1 {
                hint.store(0, Ordering::Relaxed);
            }
        }
    }

    /// How often others have read a page since this was asked last, up to a few times.
    pub(super) fn uses(&self, frame: FrameNo) -> u32 {
        let used = self.used.atomic_u32(frame.0 as usize * 4);
        if used.load(Ordering::Relaxed) == 0 { 0 } else { used.swap(0, Ordering::Relaxed).min(USES_MAX) }
    }
}

/// The pages of another process's cache, to be read.
#[derive(Debug)]
pub struct ShownPages {
    size: ShownSize,
    pages: Region,
    table: Region,
    used: Region,
}

impl ShownPages {
    /// From what [`Cache::shown`](super::Cache::shown) has given.
    ///
    /// # Errors
    /// When the descriptors are not those of memory of that size, or it cannot be mapped.
    pub fn open(size: ShownSize, [pages, table, used]: [BorrowedFd<'_>; 3]) -> Result<Self, BusError> {
        if size.frames == 0 || !size.hints.is_power_of_two() || (size.hints as usize) < BUCKET {
            return Err(BusError::Protocol(format!("a cache of {} pages cannot be", size.frames)));
        }
        Ok(Self {
            size,
            pages: Region::sealed(pages, size.frames as usize * PAGE, false)?,
            table: Region::sealed(table, size.table_bytes(), false)?,
            used: Region::sealed(used, size.used_bytes(), true)?,
        })
    }

    /// Replaces the mappings by private zeroes: no page is found any more. See [`Region::detach`].
    ///
    /// # Errors
    /// Those of [`Region::detach`].
    pub fn detach(&self) -> Result<(), BusError> {
        [&self.pages, &self.table, &self.used].into_iter().try_for_each(Region::detach)
    }

    /// Copies bytes from `skip` of a page on. Returns whether it was there, and is what it was when this
    /// began, or later. When it was not, `out` holds anything. `is_use`: somebody uses the page now, and that
    /// was not counted before.
    ///
    /// # Panics
    /// When the bytes are not all of the page.
    #[inline]
    pub fn read(&self, owner: u64, index: u64, skip: usize, out: &mut [u8], is_use: bool) -> bool {
        assert!(skip <= PAGE && out.len() <= PAGE - skip, "{} bytes at {skip} of a page", out.len());
        let first = self.size.bucket(owner, index);
        let page = identity(owner, index);
        page != NOBODYS
            && (0..BUCKET).any(|at| {
                let frame = self.table.load_u32(first + at * 4, Ordering::Acquire);
                frame != 0 && frame <= self.size.frames && self.copy(frame - 1, page, skip, out, is_use)
            })
    }

    #[inline]
    fn copy(&self, frame: u32, page: u64, skip: usize, out: &mut [u8], is_use: bool) -> bool {
        let [version, whose] = self.table.words::<2>(frame as usize * FRAME_BYTES);
        let before = version.load(Ordering::Acquire);
        if !before.is_multiple_of(2) || whose.load(Ordering::Relaxed) != page {
            return false;
        }
        self.pages.read(frame as usize * PAGE + skip, out);
        // What was copied was so before the version is looked at again.
        fence(Ordering::Acquire);
        if version.load(Ordering::Relaxed) != before {
            return false;
        }
        let used = self.used.atomic_u32(frame as usize * 4);
        let uses = used.load(Ordering::Relaxed);
        if is_use && uses < USES_MAX {
            used.store(uses + 1, Ordering::Relaxed);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::super::{Cache, Found, NoRoom, Order, Own, Owners, Pages};
    use super::*;

    struct Nobody;

    impl Owners for Nobody {
        fn with<R>(&self, _: u64, _: impl FnOnce(&mut Pages) -> R) -> Found<R> {
            Found::Gone
        }
    }

    fn insert(cache: &Cache, pages: &mut Pages, index: u64, byte: u8) -> Result<(), NoRoom> {
        cache.insert(&mut Own { others: &Nobody, owner: 7, pages }, index, &[byte; PAGE])
    }

    fn seen(cache: &Cache) -> ShownPages {
        let (size, fds) = cache.shown().expect("it is shown");
        ShownPages::open(size, fds).expect("mapped")
    }

    #[test]
    fn others_see_pages_as_they_are_and_none_that_are_gone() {
        let cache = Cache::shared(64 * PAGE, Order::S3Fifo).expect("memory");
        let (mut pages, others) = (Pages::default(), seen(&cache));
        let mut out = [0; 3];
        assert!(!others.read(7, 0, 0, &mut out, true));
        for index in 0..50 {
            insert(&cache, &mut pages, index, index as u8).expect("room");
        }
        let there =
            (0..50).filter(|&index| others.read(7, index, 4093, &mut out, true) && out == [index as u8; 3]);
        assert!(there.count() > 45);
        assert!(!others.read(8, 0, 0, &mut out, true) && !others.read(7, 50, 0, &mut out, true));
        assert!(
            !others.read(7 + (1 << 32), 0, 0, &mut out, true) && !others.read(7, 1 << 32, 0, &mut out, true)
        );
        // Whosever hints are in the same place.
        assert!((100..2000).all(|owner| (0..50).all(|index| !others.read(owner, index, 0, &mut out, true))));
        assert!(cache.write(7, &mut pages, 3, 1, b"new"));
        assert!(others.read(7, 3, 1, &mut out, true) && &out == b"new");
        cache.clear_tail(&mut pages, 3, 2);
        assert!(others.read(7, 3, 1, &mut out, true) && &out == b"n\0\0");
        assert_eq!(cache.drop_range(7, &mut pages, 3..4), 0);
        assert!(!others.read(7, 3, 1, &mut out, true));
        // More than there is room for: what was given up is not seen, and what is seen is right.
        for index in 100..1000 {
            insert(&cache, &mut pages, index, index as u8).expect("room");
        }
        for index in 0..1000 {
            if others.read(7, index, 0, &mut out, true) {
                assert!(pages.get(index).is_some() && out == [index as u8; 3], "{index}");
            }
        }
    }

    #[test]
    fn nearly_all_pages_of_a_full_cache_are_seen() {
        const ALL: usize = 8192;
        let cache = Cache::shared(ALL * PAGE, Order::S3Fifo).expect("memory");
        let others = seen(&cache);
        // A file from its beginning, and every eleventh page of another one.
        for (owner, step) in [(7, 1), (9, 11)] {
            let mut pages = Pages::default();
            for at in 0..ALL as u64 / 2 {
                let mut own = Own { others: &Nobody, owner, pages: &mut pages };
                cache.insert(&mut own, at * step, &[1; PAGE]).expect("room");
            }
            let (mut there, mut found, mut out) = (0, 0, [0]);
            for at in (0..ALL as u64 / 2).filter(|at| pages.get(at * step).is_some()) {
                there += 1;
                found += usize::from(others.read(owner, at * step, 0, &mut out, true) && out == [1]);
            }
            assert!(there > ALL / 3 && found * 100 >= there * 98, "{owner}: {found} of {there}");
        }
    }

    #[test]
    fn nobody_can_write_what_is_shown() {
        let cache = Cache::shared(64 * PAGE, Order::S3Fifo).expect("memory");
        let (_, [pages, table, _]) = cache.shown().expect("it is shown");
        assert!(Region::sealed(pages, PAGE, true).is_err() && Region::sealed(table, PAGE, true).is_err());
        assert!(Cache::new(64 * PAGE, Order::S3Fifo).expect("memory").shown().is_none());
    }

    #[test]
    fn pages_that_others_read_stay() {
        let cache = Cache::shared(64 * PAGE, Order::S3Fifo).expect("memory");
        let (mut pages, others) = (Pages::default(), seen(&cache));
        let mut out = [0; 1];
        insert(&cache, &mut pages, 5, 5).expect("room");
        for index in 1000..1400 {
            others.read(7, 5, 0, &mut out, true);
            insert(&cache, &mut pages, index, 0).expect("room");
        }
        assert!(others.read(7, 5, 0, &mut out, true));
    }

    #[test]
    fn no_page_is_seen_half_written() {
        let cache = Cache::shared(64 * PAGE, Order::S3Fifo).expect("memory");
        let others = seen(&cache);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Until it has seen the other one at work for long, or has looked for very long.
                let (mut out, mut hits, mut changes, mut last) = ([0; PAGE], 0, 0, 0);
                while changes < 4_000 && hits < 600_000 {
                    match others.read(7, 1, 0, &mut out, true) {
                        true => hits += 1,
                        false => continue,
                    }
                    if out.iter().any(|&byte| byte != out[0]) {
                        done.store(true, Ordering::Relaxed);
                        panic!("{} and others", out[0]);
                    }
                    changes += u32::from(out[0] != last);
                    last = out[0];
                }
                done.store(true, Ordering::Relaxed);
            });
            let mut pages = Pages::default();
            for round in 0_u32.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                if round % 16 == 0 {
                    // The same memory has another page, or the same one.
                    let _ = cache.drop_range(7, &mut pages, 0..9);
                    insert(&cache, &mut pages, 1 + u64::from(round / 16 % 4 == 0), round as u8)
                        .expect("room");
                }
                cache.write(7, &mut pages, 1, 0, &[round as u8; PAGE]);
                if round % 64 == 63 {
                    std::thread::yield_now();
                }
            }
        });
    }
}
