//! A page of a tree: keys in order, each with a value of any length up to [`VALUE_MAX`].
//!
//! Behind the header: level, number of keys, where the values begin, bytes of values that were removed. Then
//! the keys with place and length of their values; values fill the page from its end.

use crate::error::{Error, Result};
use crate::layout::{BLOCK, Header, Page};

const LEVEL: usize = Header::BYTES;
const COUNT: usize = LEVEL + 2;
const HEAP: usize = LEVEL + 4;
const GARBAGE: usize = LEVEL + 6;
const SLOTS: usize = LEVEL + 8;
const SLOT_BYTES: usize = 12;

/// Bytes that keys and values of a page share.
pub(crate) const ROOM: usize = BLOCK - SLOTS;

/// The longest value: three fit into a page.
pub(crate) const VALUE_MAX: usize = ROOM / 3 - SLOT_BYTES;

/// Levels that a tree can have.
pub(crate) const LEVELS_MAX: u8 = 12;

fn u16_at(page: &Page, at: usize) -> usize {
    usize::from(u16::from_le_bytes([page[at], page[at + 1]]))
}

fn put_u16(page: &mut Page, at: usize, value: usize) {
    page[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
}

/// Makes an empty page of a level out of one that has its header.
pub(crate) fn init(page: &mut Page, level: u8) {
    page[LEVEL..].fill(0);
    page[LEVEL] = level;
    put_u16(page, HEAP, BLOCK);
}

/// 0 for a page of values; else its values are blocks of pages one level below.
pub(crate) fn level(page: &Page) -> u8 {
    page[LEVEL]
}

pub(crate) fn count(page: &Page) -> usize {
    u16_at(page, COUNT)
}

pub(crate) fn key(page: &Page, index: usize) -> u64 {
    let at = SLOTS + index * SLOT_BYTES;
    u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"))
}

pub(crate) fn set_key(page: &mut Page, index: usize, key: u64) {
    let at = SLOTS + index * SLOT_BYTES;
    page[at..at + 8].copy_from_slice(&key.to_le_bytes());
}

pub(crate) fn value(page: &Page, index: usize) -> &[u8] {
    let at = SLOTS + index * SLOT_BYTES + 8;
    let start = u16_at(page, at);
    &page[start..start + u16_at(page, at + 2)]
}

/// The page that value `index` of an inner page leads to.
pub(crate) fn child(page: &Page, index: usize) -> u64 {
    value(page, index).try_into().map_or(0, u64::from_le_bytes)
}

/// Where `wanted` is, or would be.
pub(crate) fn find(page: &Page, wanted: u64) -> std::result::Result<usize, usize> {
    let (mut low, mut high) = (0, count(page));
    while low < high {
        let middle = (low + high) / 2;
        match key(page, middle).cmp(&wanted) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Equal => return Ok(middle),
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    Err(low)
}

/// Which child of an inner page has `wanted`, if any has.
pub(crate) fn descend(page: &Page, wanted: u64) -> usize {
    match find(page, wanted) {
        Ok(index) => index,
        Err(index) => index.saturating_sub(1),
    }
}

/// Bytes that keys and values take.
pub(crate) fn used(page: &Page) -> usize {
    count(page) * SLOT_BYTES + (BLOCK - u16_at(page, HEAP)) - u16_at(page, GARBAGE)
}

/// Whether a value of so many bytes can be added.
pub(crate) fn fits(page: &Page, bytes: usize) -> bool {
    used(page) + SLOT_BYTES + bytes <= ROOM
}

/// Adds a key that is not there, with a value that fits.
pub(crate) fn add(page: &mut Page, key: u64, value: &[u8]) {
    let (Ok(index) | Err(index)) = find(page, key);
    insert(page, index, key, value);
}

/// Adds a value that fits.
pub(crate) fn insert(page: &mut Page, index: usize, key: u64, value: &[u8]) {
    debug_assert!(fits(page, value.len()));
    let n = count(page);
    if SLOTS + (n + 1) * SLOT_BYTES + value.len() > u16_at(page, HEAP) {
        compact(page);
    }
    let heap = u16_at(page, HEAP) - value.len();
    page[heap..heap + value.len()].copy_from_slice(value);
    let at = SLOTS + index * SLOT_BYTES;
    page.copy_within(at..SLOTS + n * SLOT_BYTES, at + SLOT_BYTES);
    page[at..at + 8].copy_from_slice(&key.to_le_bytes());
    put_u16(page, at + 8, heap);
    put_u16(page, at + 10, value.len());
    put_u16(page, HEAP, heap);
    put_u16(page, COUNT, n + 1);
}

/// Removes a key and its value.
pub(crate) fn remove(page: &mut Page, index: usize) {
    let n = count(page);
    let garbage = u16_at(page, GARBAGE) + value(page, index).len();
    let at = SLOTS + index * SLOT_BYTES;
    page.copy_within(at + SLOT_BYTES..SLOTS + n * SLOT_BYTES, at);
    put_u16(page, GARBAGE, garbage);
    put_u16(page, COUNT, n - 1);
}

/// Sets a value of the same length in its place.
pub(crate) fn overwrite(page: &mut Page, index: usize, value: &[u8]) {
    let start = u16_at(page, SLOTS + index * SLOT_BYTES + 8);
    page[start..start + value.len()].copy_from_slice(value);
}

fn compact(page: &mut Page) {
    let old = *page;
    init(page, level(&old));
    append(page, &old, 0..count(&old));
}

/// Adds keys of `from`, which come behind all there are.
pub(crate) fn append(page: &mut Page, from: &Page, which: std::ops::Range<usize>) {
    let mut heap = u16_at(page, HEAP);
    let mut n = count(page);
    for index in which {
        let bytes = value(from, index);
        heap -= bytes.len();
        page[heap..heap + bytes.len()].copy_from_slice(bytes);
        let at = SLOTS + n * SLOT_BYTES;
        page[at..at + 8].copy_from_slice(&key(from, index).to_le_bytes());
        put_u16(page, at + 8, heap);
        put_u16(page, at + 10, bytes.len());
        n += 1;
    }
    put_u16(page, HEAP, heap);
    put_u16(page, COUNT, n);
}

/// Where a page that is too full for a value at `index` is cut in two.
pub(crate) fn middle(page: &Page, index: usize) -> usize {
    let n = count(page);
    if index == n {
        // Keys that come in order leave full pages behind.
        return n - (n / 16).max(1).min(n - 1);
    }
    let half = used(page) / 2;
    let mut bytes = 0;
    for at in 0..n {
        bytes += SLOT_BYTES + value(page, at).len();
        if bytes >= half {
            return (at + 1).clamp(1, n - 1);
        }
    }
    n - 1
}

/// Whether everything in a page that was read is in its bounds and in order.
///
/// # Errors
/// [`Error::Damaged`].
pub(crate) fn check(page: &Page, block: u64) -> Result<()> {
    let damaged = |what: &str| Err(Error::damaged(block, format!("a page of a tree: {what}")));
    let (n, heap) = (count(page), u16_at(page, HEAP));
    if level(page) > LEVELS_MAX {
        return damaged("its level is too high");
    }
    if heap > BLOCK || SLOTS + n * SLOT_BYTES > heap {
        return damaged("keys and values overlap");
    }
    let mut bytes = 0;
    for index in 0..n {
        let at = SLOTS + index * SLOT_BYTES + 8;
        let (start, len) = (u16_at(page, at), u16_at(page, at + 2));
        bytes += len;
        if start < heap || start + len > BLOCK || len > VALUE_MAX {
            return damaged("a value is out of bounds");
        }
        if level(page) > 0 && len != 8 {
            return damaged("a value of an inner page is not a block");
        }
        if index > 0 && key(page, index - 1) >= key(page, index) {
            return damaged("its keys are not in order");
        }
    }
    if level(page) > 0 && n == 0 {
        return damaged("an inner page is empty");
    }
    if bytes + u16_at(page, GARBAGE) != BLOCK - heap {
        return damaged("its values are not counted right");
    }
    Ok(())
}
