//! Whose turn it is: one queue after another, or by their classes.

use unvme_bus::Clock;
use unvme_spec::admin::QueuePriority;

use crate::Ssd;
use crate::arbiter::Round;

/// Commands that are taken before whoever serves looks for something else to do.
const COMMANDS_MAX: u32 = 64;
/// How long, in nanoseconds, it goes on at most where commands take time, but for the last of them.
const PATIENCE_NS: u64 = 1_000_000;
/// Turns that the admin queue has before all others, while there is something in it.
const ADMIN_TURNS: u32 = 8;

/// A look at all classes by one who serves.
struct Pass<'a> {
    clock: &'a Clock,
    /// When it began, where commands take time.
    began: Option<u64>,
    /// What was done.
    served: usize,
    /// Commands that are taken at most from now on.
    left: u32,
    /// No command more can be taken from anybody: too much is under way.
    is_full: bool,
}

impl Pass<'_> {
    fn is_over(&self) -> bool {
        self.is_full || self.left == 0
    }
}

impl Ssd {
    /// Lets the device work on a queue, or on all: one after another, a turn each.
    #[inline]
    pub(crate) fn serve_next(&self, lane: Option<u16>, clock: &Clock) -> usize {
        if self.arbiter.is_on() {
            return self.serve_by_class(clock);
        }
        match lane {
            Some(qid) => self.serve(qid, clock),
            None => self.serve_all(clock),
        }
    }

    /// Round robin over all queues.
    fn serve_all(&self, clock: &Clock) -> usize {
        let mut served = 0;
        for qid in self.queues.existing() {
            served += self.serve(qid, clock);
        }
        self.served_all(served)
    }

    fn served_all(&self, served: usize) -> usize {
        if served == 0 && !self.is_stopped() {
            self.queues.watch_doorbells(|error| self.doorbell_error(error));
        }
        served
    }

    /// Weighted round robin (Base 3.4.4.2): the admin queue before all others, then queues of the urgent
    /// class, then the others by their weights. Whoever waits for one queue has them all served, as what it
    /// waits for may be behind what others have sent.
    #[cold]
    fn serve_by_class(&self, clock: &Clock) -> usize {
        let admin = (0..ADMIN_TURNS).map(|_| self.serve(0, clock)).take_while(|&served| served > 0);
        let mut served = admin.sum();
        let Some(mut round) = self.arbiter.round(self.hot.weights()) else { return served };
        // What is done is told, whoever may send more.
        for qid in self.queues.existing().filter(|&qid| qid != 0) {
            served += self.serve_up_to(qid, 0, clock).all();
        }
        let mut pass = Pass { clock, began: None, served, left: COMMANDS_MAX, is_full: false };
        for _ in 0..3 {
            let class = round.class();
            let credits = round.credits();
            let taken = self.serve_class(&mut pass, &mut round, class, credits);
            round.spend(taken);
            if pass.is_over() {
                break;
            }
            round.pass(class);
        }
        drop(round);
        served = pass.served;
        // One queue, as what there is to do is not a queue's.
        if let Some(qid) = self.queues.existing().find(|&qid| qid != 0) {
            served += self.maintain_idle(qid, clock);
        }
        self.served_all(served)
    }

    /// Takes up to `most` commands from the queues of a class, from each as many in a row as the arbitration
    /// burst allows, and whatever is urgent before each of them. Returns how many of the class.
    fn serve_class(&self, pass: &mut Pass<'_>, round: &mut Round, class: QueuePriority, most: u32) -> u32 {
        let mut taken = 0;
        loop {
            let before = taken;
            for qid in self.arbiter.members(round, class) {
                if class != QueuePriority::Urgent {
                    self.serve_class(pass, round, QueuePriority::Urgent, u32::MAX);
                    if pass.is_over() {
                        return taken;
                    }
                }
                let burst = self.hot.arbitration_burst().min(most - taken).min(pass.left);
                let commands = self.serve_burst(pass, qid, burst);
                if commands > 0 {
                    round.note(class, qid);
                }
                taken += commands;
                if taken >= most || pass.is_over() {
                    return taken;
                }
            }
            if taken == before {
                return taken;
            }
        }
    }

    /// Takes up to `burst` commands from a queue; returns how many.
    fn serve_burst(&self, pass: &mut Pass<'_>, qid: u16, burst: u32) -> u32 {
        // Where they take time, one by one: how long is known only when one has been executed.
        let step = if self.arbiter.is_timed() { 1 } else { burst };
        let mut taken = 0;
        while taken < burst && !pass.is_over() {
            let (clock, began) = (pass.clock, &mut pass.began);
            let mut is_long = false;
            pass.is_full = !self.arbiter.has_room(|| {
                let now = clock.now();
                is_long = now.saturating_sub(*began.get_or_insert(now)) > PATIENCE_NS;
                now
            });
            if pass.is_full {
                break;
            }
            let turn = self.serve_up_to(qid, step, clock);
            pass.served += turn.all();
            pass.left = if turn.is_cut || is_long { 0 } else { pass.left.saturating_sub(turn.taken) };
            taken += turn.taken;
            if turn.taken < step {
                break;
            }
        }
        taken
    }
}
