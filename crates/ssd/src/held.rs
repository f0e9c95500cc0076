//! Completions that wait for their time.
//!
//! A command is executed when it is taken from its queue, and its completion is posted when the device that
//! is modelled would have been done. Until then it is here, and its place in the completion queue is taken.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use unvme_spec::Status;

/// The completions of a queue that are not due yet, in the order in which they will be.
#[derive(Default)]
pub(crate) struct Held {
    heap: BinaryHeap<Reverse<Completion>>,
    /// Counts what was ever held: of two that are due at one time, the first one goes first.
    count: u64,
    /// Where each submission queue's head was last: a completion tells the host of it as it is posted, and
    /// heads that went back would confuse it. Submission queues that share a completion queue are few.
    heads: Vec<(u16, u16)>,
}

/// Which command a completion is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Origin {
    pub(crate) sq_id: u16,
    pub(crate) sq_head: u16,
    pub(crate) cid: u16,
}

/// Ordered by its time, then by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Completion {
    due: u64,
    number: u64,
    origin: Origin,
    status: u16,
    result: u64,
}

/// What to post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) origin: Origin,
    pub(crate) status: Status,
    pub(crate) result: u64,
}

impl Held {
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.heap.len() as u32
    }

    /// When the first of them is due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(first)| first.due)
    }

    pub(crate) fn push(&mut self, due: u64, origin: Origin, status: Status, result: u64) {
        match self.heads.iter_mut().find(|(sq_id, _)| *sq_id == origin.sq_id) {
            Some((_, head)) => *head = origin.sq_head,
            None => self.heads.push((origin.sq_id, origin.sq_head)),
        }
        let number = self.count;
        self.count += 1;
        self.heap.push(Reverse(Completion { due, number, origin, status: status.raw(), result }));
    }

    /// Commands of a submission queue were answered at once, up to where its head is now.
    pub(crate) fn note_head(&mut self, sq_id: u16, sq_head: u16) {
        if let Some((_, head)) = self.heads.iter_mut().find(|(id, _)| *id == sq_id) {
            *head = sq_head;
        }
    }

    /// Takes the first one, if it is due at `now`.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<Due> {
        if self.next_due()? > now {
            return None;
        }
        let Reverse(first) = self.heap.pop()?;
        Some(self.with_head(first))
    }

    /// Takes all of a submission queue's, which is going away, in the order in which they would have been
    /// due.
    pub(crate) fn take_all_of(&mut self, sq_id: u16) -> Vec<Due> {
        let mut taken: Vec<Completion> = Vec::new();
        self.heap.retain(|Reverse(held)| {
            let stays = held.origin.sq_id != sq_id;
            if !stays {
                taken.push(*held);
            }
            stays
        });
        taken.sort_unstable();
        let due = taken.into_iter().map(|held| self.with_head(held)).collect();
        self.heads.retain(|&(id, _)| id != sq_id);
        due
    }

    /// Takes the completion of one command.
    pub(crate) fn take(&mut self, sq_id: u16, cid: u16) -> Option<Due> {
        let Reverse(found) =
            *self.heap.iter().find(|Reverse(held)| held.origin.sq_id == sq_id && held.origin.cid == cid)?;
        self.heap.retain(|Reverse(held)| held.number != found.number);
        Some(self.with_head(found))
    }

    fn with_head(&self, held: Completion) -> Due {
        let mut origin = held.origin;
        if let Some(&(_, head)) = self.heads.iter().find(|(sq_id, _)| *sq_id == origin.sq_id) {
            origin.sq_head = head;
        }
        Due { origin, status: Status::from_raw(held.status), result: held.result }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(sq_id: u16, sq_head: u16, cid: u16) -> Origin {
        Origin { sq_id, sq_head, cid }
    }

    #[test]
    fn completions_leave_in_the_order_of_their_times_with_the_head_that_is_last_known() {
        let mut held = Held::default();
        held.push(300, origin(1, 1, 10), Status::SUCCESS, 7);
        held.push(100, origin(1, 2, 11), Status::COMPARE_FAILURE, 0);
        held.push(100, origin(2, 9, 12), Status::SUCCESS, 0);
        assert_eq!((held.len(), held.next_due(), held.pop_due(99)), (3, Some(100), None));
        let mut pop = |now| held.pop_due(now).map(|due| (due.origin, due.status, due.result));
        assert_eq!(pop(100), Some((origin(1, 2, 11), Status::COMPARE_FAILURE, 0)));
        assert_eq!(pop(100), Some((origin(2, 9, 12), Status::SUCCESS, 0)));
        assert_eq!(pop(299), None);
        assert_eq!(pop(300), Some((origin(1, 2, 10), Status::SUCCESS, 7)));
        assert_eq!(held.next_due(), None);
    }

    #[test]
    fn one_command_or_one_queue_can_be_taken_out_and_the_rest_stays() {
        let mut held = Held::default();
        for (due, sq_id, cid) in [(30, 1, 1), (10, 2, 2), (20, 1, 3), (40, 1, 4)] {
            held.push(due, origin(sq_id, 0, cid), Status::SUCCESS, 0);
        }
        assert_eq!(held.take(1, 4).map(|due| due.origin.cid), Some(4));
        assert_eq!((held.take(1, 4), held.take(2, 1)), (None, None));
        let cids: Vec<u16> = held.take_all_of(1).iter().map(|due| due.origin.cid).collect();
        assert_eq!(cids, [3, 1]);
        assert_eq!((held.len(), held.next_due()), (1, Some(10)));
    }
}
