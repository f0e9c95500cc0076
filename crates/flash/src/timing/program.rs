//! Pages on their way to a program: a die programs a whole word line of all its planes at once, so pages for
//! it are collected until there are as many.

use std::collections::VecDeque;

use super::Timing;
use super::buffer::{Release, Resident};
use super::die::{Die, Kind};
use super::layout::Place;
use super::op::Cause;
use crate::PAGE_BYTES;

/// What has been collected for each die: pages of hosts and pages of reclaim have word lines of their own, as
/// hosts must not wait for what reclaim has to read first.
pub(super) struct Collector {
    /// Two for each die, see [`Collector::index`].
    word_lines: Box<[WordLine]>,
    program_pages: u32,
    /// Word lines with pages that take places in the buffer, the one that has had any for longest first, and
    /// the number it had: of another number, they have been programmed.
    waiting: VecDeque<(usize, u64)>,
    /// Word lines that the command at work has written to, and their numbers.
    touched: Vec<(usize, u64)>,
    /// When the last program ends that has been queued for the command at work.
    queued_end: u64,
}

/// Pages collected for a program.
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
            word_lines: (0..2 * dies).map(|_| WordLine::default()).collect(),
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

    /// Which word line a page is collected in.
    const fn index(die: u32, cause: Cause) -> usize {
        2 * die as usize + cause as usize
    }

    fn is_current(&self, (index, number): (usize, u64)) -> bool {
        let line = &self.word_lines[index];
        line.number == number && !line.buffered.is_empty()
    }

    /// Notes that a word line has its first page that takes a place in the buffer.
    fn wait(&mut self, index: usize, number: u64) {
        if self.waiting.len() >= 2 * self.word_lines.len() {
            let waiting = std::mem::take(&mut self.waiting);
            self.waiting = waiting.into_iter().filter(|&entry| self.is_current(entry)).collect();
        }
        self.waiting.push_back((index, number));
    }
}

/// When the program of a release ends, as far as is known now.
pub(super) fn end_of(dies: &[Die], release: &Release) -> u64 {
    dies[release.die as usize].end_of(release.program).unwrap_or(release.end)
}

impl Timing {
    /// Adds a page that comes at `ready` to a word line of its die; `buffered` is its number when it takes a
    /// place in the buffer. Returns when its program ends, when it was the page that completes it.
    pub(super) fn collect(
        &mut self,
        place: Place,
        cause: Cause,
        ready: u64,
        buffered: Option<u32>,
    ) -> Option<u64> {
        let index = Collector::index(place.die, cause);
        let line = &mut self.collector.word_lines[index];
        line.pages += 1;
        line.ready = line.ready.max(ready);
        let (number, is_full) = (line.number, line.pages == self.collector.program_pages);
        if let Some(ppn) = buffered {
            line.buffered.push(ppn);
            if line.buffered.len() == 1 {
                self.collector.wait(index, number);
            }
            let touched = (index, number);
            if self.collector.touched.last() != Some(&touched) {
                self.collector.touched.push(touched);
            }
        }
        is_full.then(|| self.program(index))
    }

    /// Programs what has been collected in a word line; returns when that ends.
    fn program(&mut self, index: usize) -> u64 {
        let die = (index / 2) as u32;
        let line = &mut self.collector.word_lines[index];
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
        if index == Collector::index(die, Cause::Reclaim) {
            self.staging.release_at_end(Release { end, die, program, pages });
        }
        // For its allocation.
        buffered.clear();
        self.collector.word_lines[index].buffered = buffered;
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

    /// A place for a page that reclaim wants to read at `at`; returns when the page has it.
    pub(super) fn enter_staging(&mut self, at: u64) -> u64 {
        loop {
            if let Some(entered) = self.staging.take(at) {
                return entered;
            }
            let dies = &self.dies;
            if !self.staging.wait_for_first(|release| end_of(dies, release)) {
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
