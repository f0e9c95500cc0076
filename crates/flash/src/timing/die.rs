//! A die: what its planes read, and what it programs and erases between.
//!
//! Reads of the host go first. Everything else stands in a queue and takes the whole die: programs, erases,
//! and what reclaim reads. A read that finds a program or an erase at work suspends it; one that finds it
//! about to begin puts it off. Each of them lets so many reads go first and then no more.
//!
//! What is queued begins as soon as its data is there and the die is free: before what was queued earlier,
//! where that waits for its own data for long enough.
//!
//! The times of the queue are kept as if nothing had been put off since the die was made, and `delay` is by
//! how much it has: suspending what is at work moves everything behind it by one addition.

use std::collections::VecDeque;

use super::trace::Trace;

/// What stands in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Program,
    Erase,
    /// Reads of reclaim, which cannot be suspended.
    Read,
}

/// How suspension works.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspension {
    pub(super) program_ns: u64,
    pub(super) erase_ns: u64,
    pub(super) resume_ns: u64,
    pub(super) reads_max: u16,
}

impl Suspension {
    const fn latency_ns(&self, kind: Kind) -> Option<u64> {
        match kind {
            Kind::Program => Some(self.program_ns),
            Kind::Erase => Some(self.erase_ns),
            Kind::Read => None,
        }
    }
}

struct Queued {
    number: u64,
    kind: Kind,
    /// When it ends, but for the delay.
    end: u64,
    /// How long it works.
    duration: u64,
    /// Reads it has let go first.
    reads: u16,
    /// Since when reads can start, and when it goes on, once it has been suspended.
    suspended: Option<(u64, u64)>,
}

/// When an operation ends.
#[derive(Clone, Copy)]
enum End {
    /// It is in the queue: then, but for the delay.
    Queued(u64),
    /// It has left the queue, and nothing moves it any more.
    Settled(u64),
}

/// A die's timeline.
pub(super) struct Die {
    /// When the last read of each plane ends.
    planes: Box<[u64]>,
    /// In the order of their times, which is not that of their numbers.
    queue: VecDeque<Queued>,
    delay: u64,
    /// End of the last operation that has left the queue.
    settled: u64,
    /// Operations by number, from `first` on.
    ends: VecDeque<End>,
    first: u64,
    pub(super) trace: Trace,
}

impl Die {
    pub(super) fn new(planes: u8) -> Self {
        Self {
            planes: vec![0; usize::from(planes)].into(),
            queue: VecDeque::new(),
            delay: 0,
            settled: 0,
            ends: VecDeque::new(),
            first: 0,
            trace: Trace::default(),
        }
    }

    /// Queues an operation that can start at `ready`; returns its number, to ask [`Die::end_of`] with.
    pub(super) fn push(&mut self, kind: Kind, ready: u64, duration: u64) -> u64 {
        self.trace.pushed(duration);
        let (index, begin) = self.find_room(ready, duration);
        let number = self.first + self.ends.len() as u64;
        let end = begin + duration - self.delay;
        self.queue.insert(index, Queued { number, kind, end, duration, reads: 0, suspended: None });
        self.ends.push_back(End::Queued(end));
        number
    }

    /// Where in the queue `duration` fits that can start at `ready`, and when it does.
    fn find_room(&self, ready: u64, duration: u64) -> (usize, u64) {
        let mut index = self.queue.partition_point(|queued| queued.end + self.delay <= ready);
        let mut begin = match index.checked_sub(1).and_then(|before| self.queue.get(before)) {
            Some(before) => ready.max(before.end + self.delay),
            None => self.planes.iter().copied().fold(self.settled.max(ready), u64::max),
        };
        while let Some(queued) = self.queue.get(index) {
            let end = queued.end + self.delay;
            // What has been suspended began long before.
            if queued.suspended.is_none() && begin + duration <= end - queued.duration {
                break;
            }
            begin = begin.max(end);
            index += 1;
        }
        (index, begin)
    }

    /// When operation `number` ends, as far as is known now; `None` when it did a while ago.
    pub(super) fn end_of(&self, number: u64) -> Option<u64> {
        let index = number.checked_sub(self.first)?;
        self.ends.get(index as usize).map(|&end| match end {
            End::Queued(end) => end + self.delay,
            End::Settled(end) => end,
        })
    }

    /// Nothing will be asked about times before `now`.
    pub(super) fn retire(&mut self, now: u64) {
        self.settle_until(now);
        while self.ends.front().is_some_and(|end| matches!(end, End::Settled(end) if *end <= now)) {
            self.ends.pop_front();
            self.first += 1;
        }
    }

    /// Reads a flash page of `plane` for the host, which asks for it at `at`; returns when it has been
    /// sensed.
    pub(super) fn read(&mut self, plane: usize, at: u64, duration: u64, suspension: &Suspension) -> u64 {
        let mut begin = at.max(self.planes[plane]).max(self.settled);
        loop {
            self.settle_until(begin);
            match self.give_way(begin, duration, suspension) {
                Some(start) => {
                    begin = start;
                    break;
                }
                // What is at the front goes on to its end.
                None => begin = self.settle_first().max(begin),
            }
        }
        self.planes[plane] = begin + duration;
        self.trace.plane(plane, begin, begin + duration);
        begin + duration
    }

    /// Makes the front of the queue wait for a read that can begin at `begin`. Returns when it begins, or
    /// `None` when it has to wait instead.
    fn give_way(&mut self, begin: u64, duration: u64, suspension: &Suspension) -> Option<u64> {
        let Some(front) = self.queue.front_mut() else { return Some(begin) };
        let end = front.end + self.delay;
        let Some((open, resumed)) = front.suspended.filter(|&(_, resumed)| begin < resumed) else {
            let start = front.suspended.map_or(end - front.duration, |(_, resumed)| resumed);
            if begin + duration <= start {
                return Some(begin);
            }
            let latency = suspension.latency_ns(front.kind);
            let may_wait = front.reads < suspension.reads_max;
            if begin <= start && may_wait && front.suspended.is_none() {
                front.reads += 1;
                self.delay += begin + duration - start;
                return Some(begin);
            }
            let open = begin + latency.filter(|_| may_wait)?;
            if open >= end {
                return None;
            }
            let resumed = open + duration + suspension.resume_ns;
            self.trace.all(start, open);
            front.reads += 1;
            front.suspended = Some((open, resumed));
            self.delay += resumed - open;
            return Some(open);
        };
        if front.reads >= suspension.reads_max {
            return None;
        }
        front.reads += 1;
        let begin = begin.max(open);
        let later = resumed.max(begin + duration + suspension.resume_ns);
        front.suspended = Some((open, later));
        self.delay += later - resumed;
        Some(begin)
    }

    /// Takes what ends until `time` out of the queue.
    fn settle_until(&mut self, time: u64) {
        while self.queue.front().is_some_and(|front| front.end + self.delay <= time) {
            self.settle_first();
        }
    }

    /// Takes the first operation out of the queue; returns its end, which is final.
    fn settle_first(&mut self) -> u64 {
        let Some(front) = self.queue.pop_front() else { return self.settled };
        let end = front.end + self.delay;
        self.trace.all(front.suspended.map_or(end - front.duration, |(_, resumed)| resumed), end);
        if let Some(known) = self.ends.get_mut((front.number - self.first) as usize) {
            *known = End::Settled(end);
        }
        self.settled = end;
        end
    }

    /// Nanoseconds of work that have been queued.
    #[cfg(test)]
    pub(super) const fn pushed_ns(&self) -> u64 {
        self.trace.pushed_ns
    }

    /// Ends everything, for tests that look at the trace.
    #[cfg(test)]
    pub(super) fn settle_all(&mut self) {
        self.settle_until(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUSPENSION: Suspension = Suspension { program_ns: 20, erase_ns: 60, resume_ns: 10, reads_max: 3 };

    #[test]
    fn planes_read_side_by_side_and_one_plane_reads_in_turn() {
        let mut die = Die::new(2);
        assert_eq!(die.read(0, 100, 50, &SUSPENSION), 150);
        assert_eq!(die.read(1, 100, 50, &SUSPENSION), 150);
        assert_eq!(die.read(0, 100, 50, &SUSPENSION), 200);
    }

    #[test]
    fn a_program_waits_for_reads_of_every_plane_and_the_next_one_for_it() {
        let mut die = Die::new(2);
        die.read(1, 100, 50, &SUSPENSION);
        let (first, second) = (die.push(Kind::Program, 0, 500), die.push(Kind::Erase, 0, 2000));
        assert_eq!((die.end_of(first), die.end_of(second)), (Some(650), Some(2650)));
        assert_eq!(die.end_of(second + 1), None);
    }

    #[test]
    fn a_read_suspends_a_program_and_what_stands_behind_it_is_as_much_later() {
        let mut die = Die::new(1);
        let (program, erase) = (die.push(Kind::Program, 0, 500), die.push(Kind::Erase, 0, 2000));
        // Asked for at 100, possible from 120; the program goes on at 180 and has 380 left.
        assert_eq!(die.read(0, 100, 50, &SUSPENSION), 170);
        assert_eq!(die.end_of(program), Some(560));
        assert_eq!(die.end_of(erase), Some(2560));
        // Another one while it is suspended costs no suspension.
        assert_eq!(die.read(0, 130, 50, &SUSPENSION), 220);
        assert_eq!(die.end_of(program), Some(610));
        // While it is at work again, one more; the fourth waits for its end.
        assert_eq!(die.read(0, 300, 50, &SUSPENSION), 370);
        assert_eq!(die.end_of(program), Some(670));
        assert_eq!(die.read(0, 400, 50, &SUSPENSION), 720);
        assert_eq!(die.end_of(program), Some(670));
        // The erase, which would have begun then, has let that one go first.
        assert_eq!(die.end_of(erase), Some(2720));
    }

    #[test]
    fn one_suspension_is_not_drawn_out_for_ever() {
        let mut die = Die::new(1);
        let program = die.push(Kind::Program, 0, 500);
        assert_eq!([100, 101, 102].map(|at| die.read(0, at, 50, &SUSPENSION)), [170, 220, 270]);
        // Three have been let go first: from 280 on it works off the 380 that are left.
        assert_eq!(die.read(0, 103, 50, &SUSPENSION), 710);
        assert_eq!(die.end_of(program), Some(660));
    }

    #[test]
    fn a_read_waits_for_what_cannot_be_suspended() {
        let mut die = Die::new(1);
        die.push(Kind::Read, 0, 50);
        assert_eq!(die.read(0, 10, 50, &SUSPENSION), 100);
        let mut die = Die::new(1);
        let program = die.push(Kind::Program, 0, 500);
        let never = Suspension { reads_max: 0, ..SUSPENSION };
        assert_eq!(die.read(0, 10, 50, &never), 550);
        assert_eq!(die.end_of(program), Some(500));
        // Nor for one that ends sooner than it could be suspended.
        let mut die = Die::new(1);
        die.push(Kind::Program, 0, 500);
        assert_eq!(die.read(0, 490, 50, &SUSPENSION), 550);
    }

    #[test]
    fn what_waits_for_its_data_does_not_keep_others_waiting() {
        let mut die = Die::new(1);
        let late = die.push(Kind::Program, 5000, 500);
        let soon = die.push(Kind::Program, 100, 500);
        assert_eq!((die.end_of(soon), die.end_of(late)), (Some(600), Some(5500)));
        // 4400 ns are between them, of which the second of these takes too much.
        let [fits, does_not] = [4000, 500].map(|duration| die.push(Kind::Erase, 100, duration));
        assert_eq!((die.end_of(fits), die.end_of(does_not)), (Some(4600), Some(6000)));
        // A read that the first lets go first moves all of them.
        assert_eq!(die.read(0, 50, 100, &SUSPENSION), 150);
        let ends = [soon, fits, late, does_not].map(|number| die.end_of(number));
        assert_eq!(ends, [650, 4650, 5550, 6050].map(Some));
        die.retire(700);
        assert_eq!((die.end_of(soon), die.end_of(does_not)), (Some(650), Some(6050)));
    }

    #[test]
    fn what_has_ended_is_forgotten_when_time_has_passed_it() {
        let mut die = Die::new(1);
        let program = die.push(Kind::Program, 0, 500);
        die.retire(499);
        assert_eq!(die.end_of(program), Some(500));
        die.retire(500);
        assert_eq!(die.end_of(program), None);
    }
}
