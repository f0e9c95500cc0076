//! Completions that wait for their time.
//!
//! A command is executed when it is taken from its queue, and its completion is posted when the device that
//! is modelled would have been done. Until then it is here, and its place in the completion queue is taken.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::reply::Reply;

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
    what: Due,
}

/// What to post.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    pub(crate) origin: Origin,
    pub(crate) reply: Reply,
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

    pub(crate) fn push(&mut self, due: u64, what: Due) {
        let Origin { sq_id, sq_head, .. } = what.origin;
        match self.heads.iter_mut().find(|(id, _)| *id == sq_id) {
            Some((_, head)) => *head = sq_head,
            None => self.heads.push((sq_id, sq_head)),
        }
        let number = self.count;
        self.count += 1;
        self.heap.push(Reverse(Completion { due, number, what }));
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
        Some(self.with_head(first.what))
    }

    /// Takes all of a submission queue's, which is going away, in the order in which they would have been
    /// due.
    pub(crate) fn take_all_of(&mut self, sq_id: u16) -> Vec<Due> {
        let mut taken: Vec<Completion> = Vec::new();
        self.heap.retain(|Reverse(held)| {
            let stays = held.what.origin.sq_id != sq_id;
            if !stays {
                taken.push(*held);
            }
            stays
        });
        taken.sort_unstable();
        let due = taken.into_iter().map(|held| self.with_head(held.what)).collect();
        self.heads.retain(|&(id, _)| id != sq_id);
        due
    }

    /// Takes the completion of one command.
    pub(crate) fn take(&mut self, sq_id: u16, cid: u16) -> Option<Due> {
        let Reverse(found) = *self
            .heap
            .iter()
            .find(|Reverse(held)| held.what.origin.sq_id == sq_id && held.what.origin.cid == cid)?;
        self.heap.retain(|Reverse(held)| held.number != found.number);
        Some(self.with_head(found.what))
    }

    fn with_head(&self, mut due: Due) -> Due {
        if let Some(&(_, head)) = self.heads.iter().find(|(sq_id, _)| *sq_id == due.origin.sq_id) {
            due.origin.sq_head = head;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use unvme_spec::Status;

    use super::*;

    fn origin(sq_id: u16, sq_head: u16, cid: u16) -> Origin {
        Origin { sq_id, sq_head, cid }
    }

    #[test]
    fn completions_leave_in_the_order_of_their_times_with_the_head_that_is_last_known() {
        let mut held = Held::default();
        let [first, second] = [Reply { sent: 512, ..Reply::of(7) }, Status::COMPARE_FAILURE.into()];
        held.push(300, Due { origin: origin(1, 1, 10), reply: first });
        held.push(100, Due { origin: origin(1, 2, 11), reply: second });
        held.push(100, Due { origin: origin(2, 9, 12), reply: Reply::DONE });
        assert_eq!((held.len(), held.next_due(), held.pop_due(99)), (3, Some(100), None));
        let mut pop = |now| held.pop_due(now).map(|due| (due.origin, due.reply));
        assert_eq!(pop(100), Some((origin(1, 2, 11), second)));
        assert_eq!(pop(100), Some((origin(2, 9, 12), Reply::DONE)));
        assert_eq!(pop(299), None);
        assert_eq!(pop(300), Some((origin(1, 2, 10), first)));
        assert_eq!(held.next_due(), None);
    }

    #[test]
    fn one_command_or_one_queue_can_be_taken_out_and_the_rest_stays() {
        let mut held = Held::default();
        for (due, sq_id, cid) in [(30, 1, 1), (10, 2, 2), (20, 1, 3), (40, 1, 4)] {
            held.push(due, Due { origin: origin(sq_id, 0, cid), reply: Reply::DONE });
        }
        assert_eq!(held.take(1, 4).map(|due| due.origin.cid), Some(4));
        assert_eq!((held.take(1, 4), held.take(2, 1)), (None, None));
        let cids: Vec<u16> = held.take_all_of(1).iter().map(|due| due.origin.cid).collect();
        assert_eq!(cids, [3, 1]);
        assert_eq!((held.len(), held.next_due()), (1, Some(10)));
    }
}
