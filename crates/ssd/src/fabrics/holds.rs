//! How long hosts have kept memory: that of data which they are to send, or to take.

use std::collections::VecDeque;

/// Commands of a queue whose memory the host keeps, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Holds {
    line: VecDeque<Hold>,
    last: u64,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    slot: u16,
    number: u64,
    /// `None` until the clock is seen.
    since: Option<u64>,
}

impl Holds {
    /// A command's memory is the host's to fill or to empty from now on; its number.
    pub(super) fn begin(&mut self, slot: u16) -> u64 {
        self.last += 1;
        self.line.push_back(Hold { slot, number: self.last, since: None });
        self.last
    }

    /// Since when the oldest is there, seen at `now`; `number` is that which a slot has. Nothing newer makes
    /// it younger.
    pub(super) fn oldest(
        &mut self,
        now: u64,
        slots: usize,
        number: impl Fn(u16) -> Option<u64>,
    ) -> Option<u64> {
        self.line
            .iter_mut()
            .rev()
            .take_while(|hold| hold.since.is_none())
            .for_each(|hold| hold.since = Some(now));
        let is_there = |hold: &Hold| number(hold.slot) == Some(hold.number);
        while self.line.front().is_some_and(|hold| !is_there(hold)) {
            self.line.pop_front();
        }
        if self.line.len() > 2 * slots {
            // One that stays does not keep all that came after it.
            self.line.retain(is_there);
        }
        self.line.front().and_then(|hold| hold.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_stays_the_oldest_whatever_comes_after_it_and_the_line_stays_short() {
        let mut holds = Holds::default();
        let first = holds.begin(0);
        assert_eq!(holds.oldest(5, 2, |slot| (slot == 0).then_some(first)), Some(5));
        let mut second = 0;
        for now in 6..10_000 {
            second = holds.begin(1);
            let number = |slot| Some(if slot == 0 { first } else { second });
            assert_eq!(holds.oldest(now, 2, number), Some(5));
            assert!(holds.line.len() <= 5);
        }
        assert_eq!(holds.oldest(10_000, 2, |slot| (slot == 1).then_some(second)), Some(9_999));
        assert_eq!(holds.oldest(10_000, 2, |_| None), None);
    }
}
