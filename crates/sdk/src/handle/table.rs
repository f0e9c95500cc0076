//! Blocks of a namespace in memory, for all its handles: each has a [`Pool`] with a budget of its own, and
//! all look into the same table, so that what one has written is what the others read.
//!
//! A page is in one pool at a time: that of the handle which brought it. Pages are in stripes, by chunks in
//! turn, each behind a lock that whoever reads shares. Pages whose blocks are on their way to or from the
//! device are written down in [`super::claims::Claims`].

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use unvme_bus::lock::{lock, read, write};

use super::policy::Caching;
use crate::cache::{CHUNK, Cache, Found, NoRoom, Own, Owners, PAGE, Pages};
use crate::{Error, Result};

/// Bytes of a page.
pub(super) const PAGE_64: u64 = PAGE as u64;
const STRIPES: u64 = 256;

/// The pages of one handle.
#[derive(Debug)]
pub(super) struct Pool {
    pub cache: Cache,
    pub caching: Caching,
    /// It takes pages.
    is_open: AtomicBool,
    /// Pages that wait to be written.
    dirty: AtomicU64,
    /// Stripes that have some.
    waiting: Mutex<BTreeSet<u64>>,
}

impl Pool {
    pub(super) fn new(name: &str, caching: &Caching) -> Result<Arc<Self>> {
        let cache = Cache::new(caching.bytes, caching.order).map_err(|e| {
            Error::driver(format!("{name}: a cache of {} bytes", caching.bytes), unvme_driver::Error::Bus(e))
        })?;
        Ok(Arc::new(Self {
            cache,
            caching: *caching,
            is_open: AtomicBool::new(true),
            dirty: AtomicU64::new(0),
            waiting: Mutex::default(),
        }))
    }

    pub(super) fn dirty_pages(&self) -> u64 {
        self.dirty.load(Ordering::Relaxed)
    }

    pub(super) fn dirty_max(&self) -> u64 {
        (self.caching.dirty_bytes as u64 / PAGE_64).max(1)
    }

    /// Takes no page from now on.
    pub(super) fn close(&self) {
        self.is_open.store(false, Ordering::Relaxed);
    }

    fn waiting(&self) -> Vec<u64> {
        lock(&self.waiting).iter().copied().collect()
    }

    fn more_dirty(&self, stripe: u64, pages: u64) {
        if pages > 0 {
            self.dirty.fetch_add(pages, Ordering::Relaxed);
            lock(&self.waiting).insert(stripe);
        }
    }

    fn less_dirty(&self, stripe: u64, pages: u64, left: &Pages) {
        self.dirty.fetch_sub(pages, Ordering::Relaxed);
        if left.dirty().is_empty() {
            lock(&self.waiting).remove(&stripe);
        }
    }
}

/// What a stripe has of one pool.
#[derive(Debug)]
struct Part {
    pool: Arc<Pool>,
    pages: Pages,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Table {
    stripes: Box<[RwLock<Vec<Part>>]>,
}

/// Where the pages of one pool are.
#[derive(Debug)]
struct Everywhere<'a> {
    table: &'a Table,
    pool: &'a Arc<Pool>,
}

impl Owners for Everywhere<'_> {
    fn with<R>(&self, owner: u64, act: impl FnOnce(&mut Pages) -> R) -> Found<R> {
        let Some(stripe) = self.table.stripes.get(owner as usize) else { return Found::Gone };
        let Ok(mut parts) = stripe.try_write() else { return Found::Busy };
        match parts.iter_mut().find(|part| Arc::ptr_eq(&part.pool, self.pool)) {
            Some(part) => Found::There(act(&mut part.pages)),
            None => Found::Gone,
        }
    }
}

/// Stripe and index of a page.
fn place(page: u64) -> (u64, u64) {
    let chunk = page / CHUNK;
    (chunk % STRIPES, chunk / STRIPES * CHUNK + page % CHUNK)
}

/// The page of a stripe's index.
fn page_of(stripe: u64, index: u64) -> u64 {
    (index / CHUNK * STRIPES + stripe) * CHUNK + index % CHUNK
}

/// The indexes of a stripe that pages have there, and of some more before and behind them.
fn indexes_of(pages: &Range<u64>) -> Range<u64> {
    let in_turn = STRIPES * CHUNK;
    pages.start / in_turn * CHUNK..pages.end.div_ceil(in_turn) * CHUNK
}

/// The stripes that have some of these pages.
fn stripes_of(pages: &Range<u64>) -> impl Iterator<Item = u64> + use<> {
    let chunks = pages.start / CHUNK..pages.end.div_ceil(CHUNK);
    (chunks.start..chunks.end.min(chunks.start + STRIPES)).map(|chunk| chunk % STRIPES)
}

/// The pages that bytes are on.
pub(super) fn pages_of(byte: u64, bytes: u64) -> Range<u64> {
    byte / PAGE_64..(byte + bytes).div_ceil(PAGE_64)
}

/// Bytes cut at pages: which page, from which of its bytes on, and which of them.
pub(super) fn slices(byte: u64, bytes: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (page, skip) = ((byte + at as u64) / PAGE_64, ((byte + at as u64) % PAGE_64) as usize);
        let end = bytes.min(at + PAGE - skip);
        let slice = (at < bytes).then_some((page, skip, at..end));
        at = end;
        slice
    })
}

/// What became of bytes that were to be put into a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Done,
    /// The page is not there, and the bytes are not all of it.
    Absent,
    NoRoom,
}

impl Table {
    pub(super) fn new() -> Self {
        Self { stripes: (0..STRIPES).map(|_| RwLock::default()).collect() }
    }

    /// Copies what is there. Returns the pages that are not, as ranges.
    #[inline]
    pub(super) fn copy(&self, byte: u64, out: &mut [u8]) -> Vec<Range<u64>> {
        let mut missing: Vec<Range<u64>> = Vec::new();
        let all = pages_of(byte, out.len() as u64);
        let mut from = all.start;
        while from < all.end {
            let end = all.end.min((from / CHUNK + 1) * CHUNK);
            let parts = read(&self.stripes[place(from).0 as usize]);
            for page in from..end {
                let (stripe, index) = place(page);
                let start = (page * PAGE_64).max(byte);
                let skip = (start - page * PAGE_64) as usize;
                let at = (start - byte) as usize;
                let bytes = (out.len() - at).min(PAGE - skip);
                let slice = &mut out[at..at + bytes];
                let is_there =
                    parts.iter().any(|part| part.pool.cache.read(stripe, &part.pages, index, skip, slice));
                match missing.last_mut() {
                    _ if is_there => {}
                    Some(last) if last.end == page => last.end += 1,
                    _ => missing.push(page..page + 1),
                }
            }
            from = end;
        }
        missing
    }

    /// Changes what is there of some bytes, and nothing else.
    pub(super) fn overlay(&self, byte: u64, data: &[u8]) {
        for (page, skip, range) in slices(byte, data.len()) {
            let (stripe, index) = place(page);
            for part in write(&self.stripes[stripe as usize]).iter_mut() {
                part.pool.cache.write(stripe, &mut part.pages, index, skip, &data[range.clone()]);
            }
        }
    }

    /// A whole page that is on the device as well, unless it is there, or there is no room for it.
    pub(super) fn insert_clean(&self, pool: &Arc<Pool>, page: u64, data: &[u8]) {
        let (stripe, index) = place(page);
        let mut parts = write(&self.stripes[stripe as usize]);
        if parts.iter().all(|part| part.pages.get(index).is_none()) {
            let _ = self.insert(pool, &mut parts, page, data);
        }
    }

    fn insert(
        &self,
        pool: &Arc<Pool>,
        parts: &mut Vec<Part>,
        page: u64,
        data: &[u8],
    ) -> std::result::Result<usize, NoRoom> {
        if !pool.is_open.load(Ordering::Relaxed) {
            return Err(NoRoom);
        }
        let at = parts.iter().position(|part| Arc::ptr_eq(&part.pool, pool));
        let at = at.unwrap_or_else(|| {
            parts.push(Part { pool: Arc::clone(pool), pages: Pages::default() });
            parts.len() - 1
        });
        let (stripe, index) = place(page);
        let others = Everywhere { table: self, pool };
        let mut own = Own { others: &others, owner: stripe, pages: &mut parts[at].pages };
        pool.cache.insert(&mut own, index, data)?;
        Ok(at)
    }

    /// Has a page hold bytes that are not on the device: of the pool, or of another one where it waits to be
    /// written already. `whole` is the page when the bytes are all of it.
    pub(super) fn put(&self, pool: &Arc<Pool>, page: u64, skip: usize, data: &[u8], is_whole: bool) -> Put {
        let (stripe, index) = place(page);
        let mut parts = write(&self.stripes[stripe as usize]);
        let found = parts.iter().position(|part| part.pages.get(index).is_some());
        let at = match found {
            Some(at) if Arc::ptr_eq(&parts[at].pool, pool) => Ok(at),
            Some(at)
                if parts[at].pages.get(index).is_some_and(|word| word.is_dirty() || word.is_marked()) =>
            {
                Ok(at)
            }
            // It moves: the other pool may be one of a handle that has nothing to write.
            Some(at) => {
                let mut copy = [0; PAGE];
                let part = &mut parts[at];
                part.pool.cache.read(stripe, &part.pages, index, 0, &mut copy);
                let _ = part.pool.cache.drop_range(stripe, &mut part.pages, index..index + 1);
                self.insert(pool, &mut parts, page, &copy)
            }
            None if is_whole => {
                let mut copy = [0; PAGE];
                copy[..data.len()].copy_from_slice(data);
                self.insert(pool, &mut parts, page, &copy)
            }
            None => return Put::Absent,
        };
        let Ok(at) = at else { return Put::NoRoom };
        let part = &mut parts[at];
        part.pool.cache.write(stripe, &mut part.pages, index, skip, data);
        let is_new = part.pool.cache.mark_dirty(&mut part.pages, index);
        part.pool.more_dirty(stripe, is_new.into());
        Put::Done
    }

    /// Gives up pages, written or not.
    pub(super) fn drop_pages(&self, pages: Range<u64>) {
        self.give_up(pages, |_, _| true);
    }

    /// Gives up pages that are on the device.
    pub(super) fn drop_clean(&self, pages: Range<u64>) {
        self.give_up(pages, |part, index| {
            part.pages.get(index).is_some_and(|word| !word.is_dirty() && !word.is_marked())
        });
    }

    fn give_up(&self, pages: Range<u64>, is_to_go: impl Fn(&Part, u64) -> bool) {
        let indexes = indexes_of(&pages);
        for stripe in stripes_of(&pages) {
            for part in write(&self.stripes[stripe as usize]).iter_mut() {
                let is_of_them =
                    |index: &u64| pages.contains(&page_of(stripe, *index)) && is_to_go(part, *index);
                let there: Vec<u64> = part.pages.there(&indexes).into_iter().filter(is_of_them).collect();
                for index in there {
                    let dirty = u64::from(part.pages.dirty().contains(&index));
                    let _ = part.pool.cache.drop_range(stripe, &mut part.pages, index..index + 1);
                    part.pool.less_dirty(stripe, dirty, &part.pages);
                }
            }
        }
    }

    /// Gives up all pages of a pool, none of which is dirty, when there is none left to be written. Returns
    /// whether that is so.
    pub(super) fn empty(&self, pool: &Arc<Pool>) -> bool {
        for (stripe, parts) in (0..).zip(&self.stripes) {
            let mut parts = write(parts);
            let Some(at) = parts.iter().position(|part| Arc::ptr_eq(&part.pool, pool)) else { continue };
            if !parts[at].pages.dirty().is_empty() || parts[at].pages.marked() > 0 {
                return false;
            }
            let mut part = parts.swap_remove(at);
            let _ = pool.cache.drop_range(stripe, &mut part.pages, 0..u64::MAX);
        }
        true
    }

    /// Gives up all pages of a pool, written or not. Returns those that were not.
    pub(super) fn drop_pages_of(&self, pool: &Arc<Pool>) -> Vec<u64> {
        let mut lost = Vec::new();
        for (stripe, parts) in (0..).zip(&self.stripes) {
            let mut parts = write(parts);
            if let Some(at) = parts.iter().position(|part| Arc::ptr_eq(&part.pool, pool)) {
                let mut part = parts.swap_remove(at);
                lost.extend(part.pages.dirty().iter().map(|&index| page_of(stripe, index)));
                let _ = pool.cache.drop_range(stripe, &mut part.pages, 0..u64::MAX);
            }
        }
        lost
    }

    /// The pages of a pool that wait to be written, of a range, and that are wanted: as ranges of up to
    /// `longest` pages of a chunk, until there are `most` pages.
    pub(super) fn waiting(
        &self,
        pool: &Arc<Pool>,
        within: &Range<u64>,
        (longest, most): (u64, u64),
        is_wanted: impl Fn(u64) -> bool,
    ) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        let (indexes, mut count) = (indexes_of(within), 0);
        for stripe in pool.waiting() {
            let parts = read(&self.stripes[stripe as usize]);
            let Some(part) = parts.iter().find(|part| Arc::ptr_eq(&part.pool, pool)) else { continue };
            for &index in part.pages.dirty().range(indexes.clone()) {
                let page = page_of(stripe, index);
                if !within.contains(&page) || !is_wanted(page) {
                    continue;
                }
                if count >= most {
                    return runs;
                }
                count += 1;
                match runs.last_mut() {
                    Some(last)
                        if last.end == page
                            && !page.is_multiple_of(CHUNK)
                            && last.end - last.start < longest =>
                    {
                        last.end += 1;
                    }
                    _ => runs.push(page..page + 1),
                }
            }
        }
        runs
    }

    /// The pool of a page that is being written.
    pub(super) fn writing(&self, page: u64) -> Option<Arc<Pool>> {
        let (stripe, index) = place(page);
        let parts = read(&self.stripes[stripe as usize]);
        let is_it = |part: &&Part| part.pages.get(index).is_some_and(|word| word.is_marked());
        parts.iter().find(is_it).map(|part| Arc::clone(&part.pool))
    }

    /// The first of some pages of a chunk that wait to be written, one behind the other: what is in them is
    /// handed to `take`, and they are about to be written. Whoever calls this has claimed them.
    pub(super) fn begin_writing(
        &self,
        pool: &Arc<Pool>,
        pages: &Range<u64>,
        mut take: impl FnMut(u64, &[u8]),
    ) -> Option<Range<u64>> {
        let (stripe, start) = place(pages.start);
        let mut parts = write(&self.stripes[stripe as usize]);
        let part = parts.iter_mut().find(|part| Arc::ptr_eq(&part.pool, pool))?;
        let mut dirty = part.pages.dirty().range(start..start + (pages.end - pages.start)).copied();
        let first = dirty.next()?;
        let mut end = first + 1;
        while dirty.next() == Some(end) {
            end += 1;
        }
        let mut copy = [0; PAGE];
        for index in first..end {
            pool.cache
                .memory(&part.pages, index)
                .into_iter()
                .for_each(|(memory, at)| memory.read(at, &mut copy));
            take(index - first, &copy);
        }
        let cleaned = pool.cache.begin_writing(&mut part.pages, first..end);
        pool.less_dirty(stripe, cleaned, &part.pages);
        let page = page_of(stripe, first);
        Some(page..page + (end - first))
    }

    /// Pages were written, or could not be, and wait again.
    pub(super) fn end_writing(&self, pool: &Arc<Pool>, pages: Range<u64>, is_written: bool) {
        let (stripe, index) = place(pages.start);
        let mut parts = write(&self.stripes[stripe as usize]);
        if let Some(part) = parts.iter_mut().find(|part| Arc::ptr_eq(&part.pool, pool)) {
            let indexes = index..index + (pages.end - pages.start);
            let again = pool.cache.end_writing(&mut part.pages, indexes, is_written);
            pool.more_dirty(stripe, again);
        }
    }
}
