//! Whose proof is worked on next.
//!
//! The arithmetic of a Diffie-Hellman exchange takes milliseconds, and whoever knows a host's name can ask
//! for it. One proof is worked on at a time, and then for as long none is, so that the connections of a
//! thread have their turns in between. Origins take turns: who asks often waits behind itself.

use std::collections::HashMap;
use std::sync::Mutex;

use unvme_bus::lock;

/// How often somebody looks whose turn it is not, in nanoseconds: for each who waits, at least, and at most.
const LOOK_AGAIN_EACH_NS: u64 = 100_000;
const LOOK_AGAIN_MIN_NS: u64 = 1_000_000;
const LOOK_AGAIN_MAX_NS: u64 = 20_000_000;
/// Whose turn it is has this long to take it, in nanoseconds, while others wait: its connection may be on its
/// way out.
const ABSENT_NS: u64 = 200_000_000;
/// Origins whose turns are remembered.
const SERVED_MAX: usize = 4096;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Desk(Mutex<Line>);

#[derive(Debug, Default)]
struct Line {
    /// Nothing is worked on before.
    free_at: u64,
    last: u64,
    waiting: Vec<Waiter>,
    /// Whose turn it is, and since when; `None` until somebody asks.
    next: Option<(u64, u64)>,
    /// When origins had their turn last, by number, as long as anybody waits.
    served: HashMap<String, u64>,
    turns: u64,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    /// Who has a lower one came before.
    order: u64,
    origin: String,
}

/// A place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeskTicket(u64);

impl Line {
    fn remove(&mut self, DeskTicket(ticket): DeskTicket) -> Option<Waiter> {
        let at = self.waiting.iter().position(|waiter| waiter.ticket == ticket)?;
        self.next.take_if(|(next, _)| *next == ticket);
        Some(self.waiting.remove(at))
    }

    /// Whose turn it is: the origin's that had its own longest ago, and the oldest of those.
    fn next(&mut self, now: u64) -> Option<u64> {
        if let Some((ticket, _)) =
            self.next.take_if(|(_, since)| now.saturating_sub(self.free_at.max(*since)) > ABSENT_NS)
        {
            self.miss_turn(ticket);
        }
        if self.next.is_none() {
            let by_turn = |waiter: &&Waiter| (self.served.get(&waiter.origin).copied(), waiter.order);
            self.next = self.waiting.iter().min_by_key(by_turn).map(|waiter| (waiter.ticket, now));
        }
        self.next.map(|(ticket, _)| ticket)
    }

    /// Who has this ticket has not taken its turn, and is the last of all.
    fn miss_turn(&mut self, ticket: u64) {
        self.last += 1;
        let last = self.last;
        let Some(absent) = self.waiting.iter_mut().find(|waiter| waiter.ticket == ticket) else { return };
        absent.order = last;
        let origin = absent.origin.clone();
        self.note_turn(origin);
    }

    fn note_turn(&mut self, origin: String) {
        self.turns += 1;
        if self.waiting.is_empty() || self.served.len() >= SERVED_MAX {
            self.served.clear();
        }
        if !self.waiting.is_empty() {
            self.served.insert(origin, self.turns);
        }
    }
}

impl Desk {
    /// A place in the line for somebody who comes from `origin`.
    pub(super) fn enter(&self, origin: String) -> DeskTicket {
        let mut line = lock(&self.0);
        line.last += 1;
        let ticket = line.last;
        line.waiting.push(Waiter { ticket, order: ticket, origin });
        DeskTicket(ticket)
    }

    /// Takes the turn of who has this ticket, which is none after that; or when to look again.
    pub(super) fn take_turn(&self, ticket: DeskTicket, now: u64) -> Result<(), u64> {
        let mut line = lock(&self.0);
        // Who comes late and is not given up yet has its turn all the same.
        let is_known = line.next.is_some_and(|(next, _)| next == ticket.0);
        let is_next = is_known || line.next(now) == Some(ticket.0);
        if !is_next {
            let others = (line.waiting.len() as u64).saturating_mul(LOOK_AGAIN_EACH_NS);
            return Err(now.saturating_add(others.clamp(LOOK_AGAIN_MIN_NS, LOOK_AGAIN_MAX_NS)));
        }
        if now < line.free_at {
            return Err(line.free_at);
        }
        // Until it is known how long it takes.
        line.free_at = now.saturating_add(LOOK_AGAIN_MAX_NS);
        if let Some(Waiter { origin, .. }) = line.remove(ticket) {
            line.note_turn(origin);
        }
        Ok(())
    }

    /// What the turn was taken for was at work from `began` to `ended`.
    pub(super) fn end_turn(&self, began: u64, ended: u64) {
        lock(&self.0).free_at = ended.saturating_add(ended.saturating_sub(began));
    }

    /// Who has this ticket waits no longer.
    pub(super) fn leave(&self, ticket: DeskTicket) {
        lock(&self.0).remove(ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_worked_on_at_a_time_and_others_have_as_long() {
        let desk = Desk::default();
        let (one, two) = (desk.enter("a".into()), desk.enter("a".into()));
        assert_eq!(desk.take_turn(two, 100), Err(100 + LOOK_AGAIN_MIN_NS), "it is the other one's turn");
        assert_eq!(desk.take_turn(one, 100), Ok(()));
        assert_eq!(desk.take_turn(two, 103), Err(100 + LOOK_AGAIN_MAX_NS), "somebody is at work");
        desk.end_turn(100, 105);
        assert_eq!(desk.take_turn(two, 106), Err(110));
        assert_eq!(desk.take_turn(two, 110), Ok(()));
    }

    #[test]
    fn who_asks_often_waits_behind_itself_and_nobody_behind_who_is_gone() {
        let desk = Desk::default();
        let flood: Vec<_> = (0..100).map(|_| desk.enter("192.0.2.66".into())).collect();
        assert_eq!(desk.take_turn(flood[0], 0), Ok(()));
        desk.end_turn(0, 0);
        let host = desk.enter("192.0.2.7".into());
        assert_eq!(desk.take_turn(flood[1], 0), Err(100 * LOOK_AGAIN_EACH_NS));
        assert_eq!(desk.take_turn(host, 0), Ok(()));
        desk.end_turn(0, 0);
        assert_eq!(desk.take_turn(flood[1], 0), Ok(()));
        desk.end_turn(0, 0);
        flood[2..].iter().for_each(|ticket| desk.leave(*ticket));
        let next = desk.enter("192.0.2.66".into());
        assert_eq!(desk.take_turn(next, 0), Ok(()));
        assert!(lock(&desk.0).served.is_empty());
    }

    #[test]
    fn who_does_not_take_its_turn_is_not_waited_for() {
        let desk = Desk::default();
        let (absent, host) = (desk.enter("192.0.2.66".into()), desk.enter("192.0.2.7".into()));
        assert!(desk.take_turn(host, 0).is_err());
        assert!(desk.take_turn(host, ABSENT_NS).is_err());
        assert_eq!(desk.take_turn(host, ABSENT_NS + 1), Ok(()));
        desk.end_turn(ABSENT_NS + 1, ABSENT_NS + 1);
        assert_eq!(desk.take_turn(absent, ABSENT_NS + 1), Ok(()), "it is there after all");
    }
}
