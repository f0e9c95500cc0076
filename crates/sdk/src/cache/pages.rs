//! The pages of one owner: which memory each of them has, and what is known about it.
//!
//! A page has one word, so that whoever reads it finds in one place where it is, how often it was used, and
//! what is to be done with it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::frames::FrameNo;
use crate::spread::ByNumber;

/// Pages of a chunk: they are of one shard, and are looked up together.
pub const CHUNK: u64 = 64;

/// Chunks that are found by their place alone: 4 GiB of an owner.
const DENSE: u64 = 1 << 14;

/// How often a page was used, at most.
const HEAT_MAX: u64 = 3;

/// Where the parts of a word are: above the number of the frame, counted from one.
const HEAT: u64 = 1 << 32;
const DIRTY: u64 = 1 << 34;
const MARKED: u64 = 1 << 35;
const AHEAD: u64 = 1 << 36;

/// What is known of a page, or 0. Those who share the lock of the owner change how often it was used, and no
/// more.
#[derive(Debug, Default)]
pub struct Word(AtomicU64);

impl Word {
    #[inline]
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    fn is_there(&self) -> bool {
        self.get() != 0
    }

    #[inline]
    pub(super) fn frame(&self) -> FrameNo {
        FrameNo(self.get() as u32 - 1)
    }

    /// It has the owner's mark, see [`Pages::mark`].
    pub fn is_marked(&self) -> bool {
        self.get() & MARKED != 0
    }

    /// It has to be written.
    pub fn is_dirty(&self) -> bool {
        self.get() & DIRTY != 0
    }

    pub(super) fn heat(&self) -> u64 {
        self.get() / HEAT % (HEAT_MAX + 1)
    }

    pub(super) fn set_heat(&self, heat: u64) {
        self.0.store((self.get() & !(HEAT_MAX * HEAT)) | (heat * HEAT), Ordering::Relaxed);
    }

    /// It is used once more. Returns whether it was read before anybody asked, and nobody has asked since.
    #[inline]
    pub(super) fn warm(&self) -> bool {
        let word = self.get();
        let warmer = if self.heat() < HEAT_MAX { word + HEAT } else { word };
        if warmer & !AHEAD != word {
            // Of two who do so at a time one may be missed.
            self.0.store(warmer & !AHEAD, Ordering::Relaxed);
        }
        word & AHEAD != 0
    }

    /// Sets a flag. Returns whether it was set before.
    fn set(&mut self, flag: u64, is_set: bool) -> bool {
        let word = self.0.get_mut();
        let was_set = *word & flag != 0;
        *word = if is_set { *word | flag } else { *word & !flag };
        was_set
    }
}

#[derive(Debug)]
struct Chunk {
    words: [Word; CHUNK as usize],
    used: u32,
}

impl Chunk {
    fn new() -> Box<Self> {
        Box::new(Self { words: [const { Word(AtomicU64::new(0)) }; CHUNK as usize], used: 0 })
    }

    fn take(&mut self, place: usize) -> Word {
        let word = std::mem::take(&mut self.words[place]);
        self.used -= u32::from(word.is_there());
        word
    }
}

/// All pages of an owner that are in memory.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Pages {
    /// Pages that have the mark.
    marked: u64,
    /// Those of the first chunk, as many as there are: most owners are small files.
    first: Vec<Word>,
    /// The other chunks.
    dense: Vec<Option<Box<Chunk>>>,
    sparse: ByNumber<Box<Chunk>>,
    len: usize,
    dirty: BTreeSet<u64>,
}

impl Pages {
    /// No page is in memory.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Pages that have to be written.
    pub fn dirty(&self) -> &BTreeSet<u64> {
        &self.dirty
    }

    /// How many pages have the mark.
    pub fn marked(&self) -> u64 {
        self.marked
    }

    #[inline]
    fn word(&self, index: u64) -> Option<&Word> {
        if index < CHUNK {
            return self.first.get(index as usize);
        }
        let chunk = match self.dense.get((index / CHUNK) as usize) {
            Some(found) => found.as_deref()?,
            None => self.sparse.get(&(index / CHUNK))?,
        };
        Some(&chunk.words[(index % CHUNK) as usize])
    }

    /// What is known of a page that is there.
    #[inline]
    pub fn get(&self, index: u64) -> Option<&Word> {
        self.word(index).filter(|word| word.is_there())
    }

    fn get_mut(&mut self, index: u64) -> Option<&mut Word> {
        let word = if index < CHUNK {
            self.first.get_mut(index as usize)?
        } else {
            let chunk = match self.dense.get_mut((index / CHUNK) as usize) {
                Some(found) => found.as_deref_mut()?,
                None => self.sparse.get_mut(&(index / CHUNK))?,
            };
            &mut chunk.words[(index % CHUNK) as usize]
        };
        word.is_there().then_some(word)
    }

    /// It was read before anybody has asked for it.
    pub fn mark_ahead(&mut self, index: u64) {
        if let Some(word) = self.get_mut(index) {
            word.set(AHEAD, true);
        }
    }

    /// A page that is not there gets a frame.
    pub(super) fn put(&mut self, index: u64, frame: FrameNo) {
        let place = (index % CHUNK) as usize;
        let word = if index < CHUNK {
            if self.first.len() <= place {
                self.first.resize_with(place + 1, Word::default);
            }
            &mut self.first[place]
        } else {
            let chunk = index / CHUNK;
            let found = if chunk < DENSE {
                let at = chunk as usize;
                if self.dense.len() <= at {
                    self.dense.resize_with((at + 1).next_power_of_two(), || None);
                }
                self.dense[at].get_or_insert_with(Chunk::new)
            } else {
                self.sparse.entry(chunk).or_insert_with(Chunk::new)
            };
            found.used += 1;
            &mut found.words[place]
        };
        debug_assert!(!word.is_there(), "a page came twice");
        *word = Word(AtomicU64::new(u64::from(frame.0) + 1));
        self.len += 1;
    }

    /// Gives a page up, which is clean.
    pub(super) fn take(&mut self, index: u64) -> Option<FrameNo> {
        let (chunk, place) = (index / CHUNK, (index % CHUNK) as usize);
        let word = if chunk == 0 {
            std::mem::take(self.first.get_mut(place)?)
        } else if chunk < DENSE {
            let at = self.dense.get_mut(chunk as usize)?;
            let word = at.as_deref_mut()?.take(place);
            if at.as_deref().is_some_and(|chunk| chunk.used == 0) {
                *at = None;
            }
            word
        } else {
            let found = self.sparse.get_mut(&chunk)?;
            let word = found.take(place);
            if found.used == 0 {
                self.sparse.remove(&chunk);
            }
            word
        };
        if !word.is_there() {
            return None;
        }
        self.len -= 1;
        Some(word.frame())
    }

    /// Returns whether it was clean.
    pub(super) fn mark_dirty(&mut self, index: u64) -> bool {
        let was_clean = self.get_mut(index).is_some_and(|word| !word.set(DIRTY, true));
        if was_clean {
            self.dirty.insert(index);
        }
        was_clean
    }

    /// Gives a page the owner's mark: the file system has set blocks aside for such a page, a block cache is
    /// writing it. A page that has it is not given up.
    pub fn mark(&mut self, index: u64) {
        let is_new = self.get_mut(index).is_some_and(|word| !word.set(MARKED, true));
        self.marked += u64::from(is_new);
    }

    /// Takes the owner's mark off pages.
    pub(super) fn unmark(&mut self, indexes: Range<u64>) {
        for index in indexes {
            let was_marked = self.get_mut(index).is_some_and(|word| word.set(MARKED, false));
            self.marked -= u64::from(was_marked);
        }
    }

    /// Pages are on the device, and have no mark any more. Returns how many were dirty.
    pub(super) fn mark_clean(&mut self, indexes: Range<u64>) -> i64 {
        let mut cleaned = 0;
        for index in indexes {
            let Some(word) = self.get_mut(index) else { continue };
            let (was_marked, was_dirty) = (word.set(MARKED, false), word.set(DIRTY, false));
            self.marked -= u64::from(was_marked);
            if was_dirty {
                self.dirty.remove(&index);
                cleaned += 1;
            }
        }
        cleaned
    }

    /// The pages of a range that are there; those of a chunk one behind the other.
    pub(crate) fn there(&self, range: &Range<u64>) -> Vec<u64> {
        let mut indexes = Vec::new();
        if self.len == 0 || range.is_empty() {
            return indexes;
        }
        let mut look = |chunk: u64, words: &[Word]| {
            let all = (chunk * CHUNK..).zip(words);
            let there = all.filter(|(index, word)| word.is_there() && range.contains(index));
            indexes.extend(there.map(|(index, _)| index));
        };
        let (start, end) = (range.start / CHUNK, (range.end - 1) / CHUNK + 1);
        if start == 0 {
            look(0, &self.first);
        }
        let dense = self.dense.len() as u64;
        for chunk in start.min(dense)..end.min(dense) {
            if let Some(found) = &self.dense[chunk as usize] {
                look(chunk, &found.words);
            }
        }
        for (&chunk, found) in self.sparse.iter().filter(|(chunk, _)| (start..end).contains(*chunk)) {
            look(chunk, &found.words);
        }
        indexes
    }

    /// Whether there is any page of a range.
    pub fn has_any(&self, range: Range<u64>) -> bool {
        // Of a long range nobody looks at every page: to expel pages that are not there costs little.
        self.len > 0
            && (range.end - range.start > 1024 || range.into_iter().any(|index| self.get(index).is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_wherever_in_a_file_they_are() {
        let mut file = Pages::default();
        let indexes = [0, 1, 63, 64, 65, 4095, DENSE * CHUNK - 1, DENSE * CHUNK, 1 << 50];
        for (frame, &index) in (0..).zip(&indexes) {
            assert!(file.get(index).is_none());
            file.put(index, FrameNo(frame));
        }
        for (frame, &index) in (0..).zip(&indexes) {
            assert_eq!(file.get(index).map(Word::frame), Some(FrameNo(frame)));
            assert!(file.mark_dirty(index) && !file.mark_dirty(index));
        }
        let mut there = file.there(&(0..u64::MAX));
        there.sort_unstable();
        assert_eq!(there, indexes);
        assert_eq!(file.there(&(63..65)), [63, 64]);
        assert_eq!(file.there(&(DENSE * CHUNK..1 << 50)), [DENSE * CHUNK]);
        assert_eq!(file.mark_clean(0..66), 5);
        assert_eq!(file.dirty().len(), 4);
        file.mark_clean(1 << 50..(1 << 50) + 1);
        for (frame, &index) in (0..).zip(&indexes) {
            assert_eq!(file.take(index), Some(FrameNo(frame)));
            assert!(file.get(index).is_none() && file.take(index).is_none());
        }
        assert!(file.is_empty() && file.sparse.is_empty());
    }

    #[test]
    fn what_is_known_of_a_page_is_known_apart() {
        let mut file = Pages::default();
        file.put(3, FrameNo(u32::MAX - 1));
        file.mark_ahead(3);
        file.mark_dirty(3);
        file.mark(3);
        let word = file.get(3).expect("it was put there");
        assert_eq!((word.heat(), word.warm(), word.warm(), word.heat()), (0, true, false, 2));
        assert!(!word.warm() && !word.warm());
        assert_eq!((word.heat(), word.is_dirty(), word.is_marked()), (3, true, true));
        word.set_heat(1);
        assert_eq!((word.heat(), word.frame(), file.marked()), (1, FrameNo(u32::MAX - 1), 1));
        assert_eq!((file.mark_clean(0..9), file.marked()), (1, 0));
    }
}
