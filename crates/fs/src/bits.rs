//! A map of free places.

use crate::layout::{MAP_START, Page};

/// Bits that are set are free.
pub(crate) struct Bits {
    words: Vec<u64>,
    len: usize,
    free: usize,
    /// No bit below is set.
    low: usize,
}

impl Bits {
    /// The complement of a map on the media, whose bits are set where something is used.
    pub(crate) fn free_of(page: &Page, len: usize) -> Self {
        let mut words: Vec<u64> = page[MAP_START..]
            .chunks_exact(8)
            .take(len.div_ceil(64))
            .map(|bytes| !u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
            .collect();
        if !len.is_multiple_of(64)
            && let Some(last) = words.last_mut()
        {
            *last &= (1 << (len % 64)) - 1;
        }
        let free = words.iter().map(|word| word.count_ones() as usize).sum();
        Self { words, len, free, low: 0 }
    }

    fn is_set(&self, at: usize) -> bool {
        self.words[at / 64] >> (at % 64) & 1 == 1
    }

    /// The first set bit from `from` on.
    fn next_set(&self, from: usize) -> Option<usize> {
        let mut index = from / 64;
        let mut word = *self.words.get(index)? & (u64::MAX << (from % 64));
        while word == 0 {
            index += 1;
            word = *self.words.get(index)?;
        }
        Some(index * 64 + word.trailing_zeros() as usize)
    }

    /// Set bits from `at` on, at most `most`.
    fn run_len(&self, at: usize, most: usize) -> usize {
        let mut len = 0;
        while len < most && at + len < self.len {
            let place = at + len;
            let word = self.words[place / 64] >> (place % 64);
            let ones = word.trailing_ones() as usize;
            let there = 64 - place % 64;
            len += ones.min(there);
            if ones < there {
                break;
            }
        }
        len.min(most)
    }

    /// Takes up to `want` set bits in a row: those at `from` if any, or the first run behind it that is long
    /// enough, or the longest.
    pub(crate) fn take_run(&mut self, from: usize, want: usize) -> Option<(usize, usize)> {
        if self.free == 0 {
            return None;
        }
        let from = from.max(self.low);
        if from < self.len && self.is_set(from) {
            let len = self.run_len(from, want);
            return Some(self.take(from, len));
        }
        let mut best: Option<(usize, usize)> = None;
        for (start, end) in [(from, self.len), (self.low, from.min(self.len))] {
            let mut at = start;
            while let Some(found) = self.next_set(at).filter(|&found| found < end) {
                let len = self.run_len(found, want);
                if len == want {
                    return Some(self.take(found, len));
                }
                if best.is_none_or(|best| best.1 < len) {
                    best = Some((found, len));
                }
                at = found + len;
            }
        }
        best.map(|(start, len)| self.take(start, len))
    }

    fn take(&mut self, start: usize, len: usize) -> (usize, usize) {
        for at in start..start + len {
            self.words[at / 64] &= !(1 << (at % 64));
        }
        self.free -= len;
        if start == self.low {
            self.low = start + len;
        }
        (start, len)
    }

    /// Sets bits again.
    pub(crate) fn set_run(&mut self, start: usize, len: usize) {
        for at in start..(start + len).min(self.len) {
            if !self.is_set(at) {
                self.words[at / 64] |= 1 << (at % 64);
                self.free += 1;
            }
        }
        self.low = self.low.min(start);
    }
}

/// Sets or clears bits of a map on the media. Returns how many had another value before.
pub(crate) fn mark(page: &mut Page, start: u64, len: u64, is_used: bool) -> u64 {
    let mut changed = 0;
    for at in start as usize..(start + len) as usize {
        let byte = &mut page[MAP_START + at / 8];
        let bit = 1 << (at % 8);
        changed += u64::from((*byte & bit != 0) != is_used);
        *byte = if is_used { *byte | bit } else { *byte & !bit };
    }
    changed
}

/// Whether a bit of a map on the media is set.
pub(crate) fn is_marked(page: &Page, at: u64) -> bool {
    page[MAP_START + at as usize / 8] >> (at % 8) & 1 == 1
}
