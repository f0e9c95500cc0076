//! What the translation layer does that FDP has to know of.
//!
//! The layer works under its lock, on whichever thread writes; nobody there has a clock or knows namespaces.
//! So it leaves notes here, which the end of a turn collects.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use unvme_bus::lock;
use unvme_flash::ftl::{Opened, Placement};

/// Something has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// A reclaim unit handle references a new reclaim unit, to which something is about to be written.
    Opened { at: Placement, unit: u32 },
    /// The unit a reclaim unit handle referenced has been closed.
    Closed {
        at: Placement,
        /// There was room left in it, and nobody had asked for it to be closed.
        is_early: bool,
    },
    /// A unit's valid pages have been moved.
    Moved {
        /// Whose data it was; `None` when it was that of several handles.
        at: Option<Placement>,
        /// Group the unit is in.
        group: u16,
        /// One of the logical pages.
        lpn: u32,
        /// How many pages.
        pages: u32,
    },
}

/// What has to be known of a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) unit_pages: u32,
    /// Reclaim groups.
    pub(crate) groups: u16,
}

impl Shape {
    /// Handle and group of a unit that takes what hosts write. The group is the one they have named: the unit
    /// itself may be of another one.
    pub(crate) fn host_stream(self, opened: Opened) -> Option<Placement> {
        match opened.handle {
            Some(handle) if !opened.is_destination => {
                Some(Placement { handle, group: opened.stream % self.groups.max(1) })
            }
            _ => None,
        }
    }
}

/// Notes wait until they are collected, but not more than this many: what is lost then is the oldest ones.
const NOTES_MAX: usize = 4096;

/// Where the layer leaves its notes. While it is switched off a call is one load.
#[derive(Default)]
pub(crate) struct Watch {
    on: AtomicBool,
    /// Moves are wanted too.
    moves: AtomicBool,
    /// There is something to collect.
    any: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    shape: Shape,
    /// As what each unit that is not free was opened, by its number.
    units: BTreeMap<u32, Opened>,
    /// Units that are being emptied: one of the pages moved, and how many.
    moved: BTreeMap<u32, (u32, u32)>,
    /// Closing these is somebody's wish.
    expected: Vec<Placement>,
    notes: Vec<Note>,
}

impl Watch {
    /// Starts watching a layer in which `units` are not free, and some of them open: those are noted as if
    /// they had just been opened. What was known is forgotten.
    pub(crate) fn start(&self, shape: Shape, units: Vec<Opened>, open: Vec<Note>) {
        let units = units.into_iter().map(|opened| (opened.unit, opened)).collect();
        let mut state = lock(&self.state);
        self.any.store(!open.is_empty(), Ordering::Relaxed);
        *state = State { shape, units, notes: open, ..State::default() };
        self.on.store(true, Ordering::Relaxed);
    }

    /// Stops watching.
    pub(crate) fn stop(&self) {
        self.on.store(false, Ordering::Relaxed);
        *lock(&self.state) = State::default();
        self.any.store(false, Ordering::Relaxed);
    }

    /// Whether moves are noted.
    pub(crate) fn want_moves(&self, wanted: bool) {
        self.moves.store(wanted, Ordering::Relaxed);
    }

    /// [`unvme_flash::ftl::Nand::open`] of a layer.
    pub(crate) fn opened(&self, opened: Opened) {
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let mut state = lock(&self.state);
        state.units.insert(opened.unit, opened);
        if let Some(at) = state.shape.host_stream(opened) {
            self.note(&mut state, Note::Opened { at, unit: opened.unit });
        }
    }

    /// [`unvme_flash::ftl::Nand::close`] of a layer: `unit` is full, or not to be written any further with
    /// `written` pages in it.
    pub(crate) fn closed(&self, unit: u32, written: u32) {
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let mut state = lock(&self.state);
        let Some(at) = state.units.get(&unit).and_then(|&opened| state.shape.host_stream(opened)) else {
            return;
        };
        let expected = state.expected.iter().position(|&expected| expected == at);
        if let Some(index) = expected {
            state.expected.swap_remove(index);
        }
        let is_early = written < state.shape.unit_pages && expected.is_none();
        self.note(&mut state, Note::Closed { at, is_early });
    }

    /// [`unvme_flash::ftl::Nand::program`] of a layer with [`unvme_flash::ftl::Origin::Reclaim`]: `lpn` has
    /// been moved out of `unit`.
    #[inline]
    pub(crate) fn moved(&self, unit: u32, lpn: u32) {
        if self.moves.load(Ordering::Relaxed) && self.on.load(Ordering::Relaxed) {
            let mut state = lock(&self.state);
            let (_, pages) = state.moved.entry(unit).or_insert((lpn, 0));
            *pages += 1;
        }
    }

    /// [`unvme_flash::ftl::Nand::erase`] of a layer.
    pub(crate) fn erased(&self, unit: u32) {
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let mut state = lock(&self.state);
        let opened = state.units.remove(&unit);
        if let Some((lpn, pages)) = state.moved.remove(&unit) {
            let group = opened.map_or(0, |opened| opened.group);
            let at =
                opened.and_then(|opened| Some(Placement { handle: opened.handle?, group: opened.group }));
            self.note(&mut state, Note::Moved { at, group, lpn, pages });
        }
    }

    /// Closing the open unit of `at` is somebody's wish: a host's, a time limit's, a reset's. Withdrawn by
    /// [`Watch::unexpect`] when it was not open after all.
    pub(crate) fn expect(&self, at: Placement) {
        lock(&self.state).expected.push(at);
    }

    /// Takes [`Watch::expect`] back.
    pub(crate) fn unexpect(&self, at: Placement) {
        lock(&self.state).expected.retain(|&expected| expected != at);
    }

    /// There are notes.
    #[inline]
    pub(crate) fn has_notes(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Takes the notes, in the order in which they were left.
    pub(crate) fn collect(&self) -> Vec<Note> {
        let mut state = lock(&self.state);
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut state.notes)
    }

    fn note(&self, state: &mut State, note: Note) {
        if state.notes.len() >= NOTES_MAX {
            state.notes.remove(0);
        }
        state.notes.push(note);
        self.any.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Placement = Placement { handle: 3, group: 1 };
    const SHAPE: Shape = Shape { unit_pages: 64, groups: 2 };

    fn opened(unit: u32) -> Opened {
        Opened { unit, group: 1, handle: Some(3), is_destination: false, stream: 7 }
    }

    fn watching() -> Watch {
        let watch = Watch::default();
        watch.start(SHAPE, Vec::new(), Vec::new());
        watch.want_moves(true);
        watch
    }

    #[test]
    fn a_unit_that_is_closed_with_room_left_is_early_unless_somebody_has_asked_for_it() {
        let watch = watching();
        watch.opened(opened(9));
        watch.closed(9, 64);
        watch.opened(opened(10));
        watch.closed(10, 63);
        watch.opened(opened(11));
        watch.expect(AT);
        watch.closed(11, 1);
        let closed = |is_early| Note::Closed { at: AT, is_early };
        let open = |unit| Note::Opened { at: AT, unit };
        assert!(watch.has_notes());
        let expected = [open(9), closed(false), open(10), closed(true), open(11), closed(false)];
        assert_eq!(watch.collect(), expected);
        assert!(!watch.has_notes());
        // What was not open after all is not expected any more.
        watch.expect(AT);
        watch.unexpect(AT);
        watch.opened(opened(12));
        watch.closed(12, 5);
        assert_eq!(watch.collect(), [open(12), closed(true)]);
    }

    #[test]
    fn moves_out_of_a_unit_are_one_note_when_it_is_erased() {
        let watch = watching();
        watch.opened(opened(9));
        let destination = Opened { unit: 10, group: 0, handle: None, is_destination: true, stream: 16 };
        watch.opened(destination);
        watch.collect();
        watch.moved(9, 100);
        watch.moved(10, 7);
        watch.moved(9, 50);
        watch.erased(9);
        watch.erased(10);
        watch.erased(9);
        let expected = [
            Note::Moved { at: Some(AT), group: 1, lpn: 100, pages: 2 },
            Note::Moved { at: None, group: 0, lpn: 7, pages: 1 },
        ];
        assert_eq!(watch.collect(), expected);
    }

    #[test]
    fn what_is_not_watched_leaves_no_notes() {
        let watch = Watch::default();
        watch.opened(opened(1));
        watch.moved(1, 1);
        watch.closed(1, 1);
        watch.erased(1);
        assert!(!watch.has_notes());
        watch.start(SHAPE, vec![opened(1)], vec![Note::Opened { at: AT, unit: 1 }]);
        assert!(watch.has_notes());
        watch.closed(1, 1);
        assert_eq!(watch.collect().len(), 2, "it is known from before");
        watch.stop();
        watch.opened(opened(2));
        assert_eq!(watch.collect(), []);
    }

    #[test]
    fn notes_that_nobody_collects_push_each_other_out() {
        let watch = watching();
        for unit in 0..5000 {
            watch.opened(opened(unit));
        }
        let notes = watch.collect();
        assert_eq!((notes.len(), notes[0]), (NOTES_MAX, Note::Opened { at: AT, unit: 904 }));
    }
}
