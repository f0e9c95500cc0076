//! Pages on their way to a program: a die programs a whole word line of all its planes at once, so pages for
//! it are collected until there are as many.

use std::collections::VecDeque;

use super::Timing;
use super::buffer::{Release, Resident};
use super::die::{Die, Kind};
use super::layout::Place;
use crate::PAGE_BYTES;

/// What has been collected for each die.
pub(super) struct Collector {
    word_lines: Box<[WordLine]>,
    program_pages: u32,
    /// Dies with pages that take places in the buffer, the one that has had any for longest first, and the
    /// number of the word line they were for: of another number, they have been programmed.
    waiting: VecDeque<(u32, u64)>,
    /// Dies that the command at work has written to, and the number of the word line.
    touched: Vec<(u32, u64)>,
    /// When the last program ends that has been queued for the command at work.
    queued_end: u64,
}

/// Pages collected for a die.
#[derive(Default)]
struct WordLine {
    number: u64,
    pages: u32,
    /// When the last of them came.
    ready: u64,
    /// Those of them that take places in the buffer.
    buffered: Vec<u32>,
}

impl Collector {
    pub(super) fn new(dies: u32, program_pages: u32) -> Self {
        Self {
            word_lines: (0..dies).map(|_| WordLine::default()).collect(),
            program_pages,
            waiting: VecDeque::new(),
            touched: Vec::new(),
            queued_end: 0,
        }
    }

    /// A command begins.
    pub(super) fn begin(&mut self) {
        self.touched.clear();
        self.queued_end = 0;
    }

    fn is_current(&self, (die, number): (u32, u64)) -> bool {
        let line = &self.word_lines[die as usize];
        line.number == number && !line.buffered.is_empty()
    }

    /// Notes that a word line has its first page that takes a place in the buffer.
    fn wait(&mut self, die: u32, number: u64) {
        if self.waiting.len() >= 2 * self.word_lines.len() {
            let waiting = std::mem::take(&mut self.waiting);
            self.waiting = waiting.into_iter().filter(|&entry| self.is_current(entry)).collect();
        }
        self.waiting.push_back((die, number));
    }
}

/// When the program of a release ends, as far as is known now.
pub(super) fn end_of(dies: &[Die], release: &Release) -> u64 {
    dies[release.die as usize].end_of(release.program).unwrap_or(release.end)
}

impl Timing {
    /// Adds a page that comes at `ready` to its die's word line; `buffered` is its number when it takes a
    /// place in the buffer. Returns when its program ends, when it was the page that completes it.
    pub(super) fn collect(&mut self, place: Place, ready: u64, buffered: Option<u32>) -> Option<u64> {
        let line = &mut self.collector.word_lines[place.die as usize];
        line.pages += 1;
        line.ready = line.ready.max(ready);
        let (number, is_full) = (line.number, line.pages == self.collector.program_pages);
        if let Some(ppn) = buffered {
            line.buffered.push(ppn);
            if line.buffered.len() == 1 {
                self.collector.wait(place.die, number);
            }
            let touched = (place.die, number);
            if self.collector.touched.last() != Some(&touched) {
                self.collector.touched.push(touched);
            }
        }
        is_full.then(|| self.program(place.die))
    }

    /// Programs what has been collected for a die; returns when that ends.
    fn program(&mut self, die: u32) -> u64 {
        let line = &mut self.collector.word_lines[die as usize];
        let (pages, ready) = (std::mem::take(&mut line.pages), std::mem::take(&mut line.ready));
        let mut buffered = std::mem::take(&mut line.buffered);
        line.number += 1;
        // Padding does not move, and a word line that is given up before it is complete begins now.
        let begun = ready.max(self.now);
        let arrived = self.channel(die).transfer_in_turns(begun, u64::from(pages) * PAGE_BYTES);
        let duration = self.model.program_ns.into();
        let timeline = self.die(die);
        let program = timeline.push(Kind::Program, arrived, duration);
        let end = timeline.end_of(program).unwrap_or(arrived);
        for &ppn in &buffered {
            self.buffer.put(ppn, Resident::Program(program));
        }
        if !buffered.is_empty() {
            self.buffer.release_at_end(Release { end, die, program, pages: buffered.len() as u32 });
        }
        // For its allocation.
        buffered.clear();
        self.collector.word_lines[die as usize].buffered = buffered;
        self.collector.queued_end = self.collector.queued_end.max(end);
        end
    }

    /// A place in the buffer for a page that comes at `at`; returns when the page has it.
    pub(super) fn enter_buffer(&mut self, at: u64) -> u64 {
        loop {
            if let Some(entered) = self.buffer.take(at) {
                return entered;
            }
            let dies = &self.dies;
            let freed = self.buffer.wait_for_first(|release| end_of(dies, release));
            // Everything in the buffer waits for more pages: the word line that has waited for longest gets
            // padding.
            if !freed && !self.program_oldest() {
                return at;
            }
        }
    }

    /// Programs the word line that has had pages in the buffer for longest; false when there is none.
    pub(super) fn program_oldest(&mut self) -> bool {
        while let Some(entry) = self.collector.waiting.pop_front() {
            if self.collector.is_current(entry) {
                self.program(entry.0);
                return true;
            }
        }
        false
    }

    /// Programs everything in the buffer, with padding where there is not enough; returns when all of that
    /// has ended.
    pub(super) fn drain(&mut self) -> u64 {
        while self.program_oldest() {}
        let dies = &self.dies;
        self.buffer.drained(|release| end_of(dies, release))
    }

    /// Programs what the command at work has written, with padding; returns when that has ended.
    pub(super) fn program_touched(&mut self) -> u64 {
        while let Some(entry) = self.collector.touched.pop() {
            if self.collector.is_current(entry) {
                self.program(entry.0);
            }
        }
        self.collector.queued_end
    }
}
