//! Who sends next: one arbiter for all handles of an opened device, over all its queues and threads.
//!
//! Whoever wants to send a command enters with its bytes, waits until it is his turn, and leaves when the
//! command has ended. What is in flight below is bounded while several handles are awake, so that what one
//! has sent does not stand in the device before what another sends: a handle has one command there whenever
//! it is its turn, and more only within the window. A handle that is alone takes none of this: it counts
//! what it has in flight, and sends.
//!
//! Shares are start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996): each request is tagged with the
//! time in a virtual clock at which its turn is; the tags of a handle go on by what its requests cost,
//! divided by its share. Who was away gets no credit for it.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use unvme_bus::Clock;
use unvme_bus::lock::{lock, try_lock};

use super::bucket::Buckets;
use super::policy::{Limit, Policies, Schedule};

/// What a command costs beside its bytes.
const COMMAND_COST: u64 = 16 << 10;
/// What may be in flight while several handles are awake, in bytes and what commands cost.
pub const WINDOW: u64 = 160 << 10;
/// When a request of a handle without a deadline is due, beside those with one.
pub const FIFO_DEADLINE: Duration = Duration::from_millis(10);
/// A handle that has sent nothing for so long is asleep.
const AWAKE_NS: u64 = 20_000_000;
/// What the tags of a share of 1 go on by for one byte.
const SCALE: u64 = 1 << 10;

/// A handle, as far as everybody may see it without the lock.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Lane {
    /// What it has in flight, in costs.
    in_flight: AtomicU64,
    /// How many of its requests had their turn, of those that waited.
    granted: AtomicU64,
    /// How many have waited, or do.
    entered: AtomicU64,
    is_awake: AtomicBool,
    /// It has no limit.
    is_free: AtomicBool,
    /// The device decides when its commands have their turn: nobody else waits for them here.
    is_devices: AtomicBool,
}

impl Lane {
    fn is_waiting(&self) -> bool {
        self.entered.load(Ordering::Relaxed) != self.granted.load(Ordering::Relaxed)
    }

    /// What others have to consider of what it has in flight.
    fn in_others_way(&self) -> u64 {
        match self.is_devices.load(Ordering::Relaxed) {
            true => 0,
            false => self.in_flight.load(Ordering::Relaxed),
        }
    }
}

/// A request that waits.
#[derive(Clone, Copy, Debug)]
struct Wish {
    bytes: u64,
    came_ns: u64,
    /// The virtual time when it came.
    came: u64,
}

/// A handle, behind the lock.
#[derive(Debug)]
struct Seat {
    lane: Arc<Lane>,
    schedule: Schedule,
    buckets: Option<Buckets>,
    waiting: VecDeque<Wish>,
    /// The tag that its next request has at least.
    tag: u64,
    last_ns: u64,
}

#[derive(Debug, Default)]
struct State {
    seats: Vec<Seat>,
    virtual_time: u64,
    /// The tag of all those that have no share.
    others: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Arbiter {
    clock: Clock,
    window: AtomicU64,
    awake: AtomicUsize,
    state: Mutex<State>,
}

/// A request that entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It may go.
    Now,
    /// It may go when so many of its lane may.
    After(u64),
}

impl Turn {
    /// Whether it is one of those that so many of the lane are.
    pub(super) fn is_among(self, granted: u64) -> bool {
        match self {
            Self::Now => true,
            Self::After(nth) => nth <= granted,
        }
    }
}

/// Who is next.
struct Next {
    seat: usize,
    tag: u64,
    is_sharing: bool,
}

fn cost(bytes: u64) -> u64 {
    COMMAND_COST + bytes
}

impl Arbiter {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, window: AtomicU64::new(WINDOW), awake: AtomicUsize::new(0), state: Mutex::default() }
    }

    pub(super) fn set_window(&self, bytes: u64) {
        self.window.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn window(&self) -> u64 {
        self.window.load(Ordering::Relaxed)
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// A lane for one more handle.
    pub(super) fn join(&self, policies: &Policies) -> Arc<Lane> {
        let lane = Arc::new(Lane::default());
        let mut state = lock(&self.state);
        state.seats.push(Seat {
            lane: Arc::clone(&lane),
            schedule: Schedule::Fifo,
            buckets: None,
            waiting: VecDeque::new(),
            tag: 0,
            last_ns: 0,
        });
        drop(state);
        self.set(&lane, policies.schedule, policies.limit.as_ref());
        lane
    }

    /// Other policies, for what waits already as well.
    pub(super) fn set(&self, lane: &Arc<Lane>, schedule: Schedule, limit: Option<&Limit>) {
        let now = self.clock.now();
        let mut state = lock(&self.state);
        lane.is_free.store(limit.is_none(), Ordering::Relaxed);
        let is_devices = matches!(schedule, Schedule::Weighted(_));
        lane.is_devices.store(is_devices, Ordering::Relaxed);
        if is_devices && lane.is_awake.swap(false, Ordering::Relaxed) {
            self.awake.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(seat) = state.seats.iter_mut().find(|seat| Arc::ptr_eq(&seat.lane, lane)) {
            // Others consider it again, when there is something of it.
            let is_busy = !seat.waiting.is_empty() || lane.in_flight.load(Ordering::Relaxed) > 0;
            if !is_devices && is_busy && !lane.is_awake.swap(true, Ordering::Relaxed) {
                self.awake.fetch_add(1, Ordering::Relaxed);
                seat.last_ns = now;
            }
            seat.schedule = schedule;
            seat.buckets = limit.map(|limit| Buckets::after(seat.buckets, limit, now));
        }
        self.go_on(&mut state, now);
    }

    /// Those who wait with a lane do so no longer: they have their turn, and nothing to send. Returns how
    /// many of the lane had it before; only they leave.
    pub(super) fn forget(&self, lane: &Arc<Lane>) -> u64 {
        let mut state = lock(&self.state);
        let granted = lane.granted.load(Ordering::Relaxed);
        if let Some(seat) = state.seats.iter_mut().find(|seat| Arc::ptr_eq(&seat.lane, lane)) {
            seat.waiting.clear();
        }
        lane.granted.store(lane.entered.load(Ordering::Relaxed), Ordering::Release);
        self.go_on(&mut state, self.clock.now());
        granted
    }

    /// A handle is closed. What it has in flight is not waited for.
    pub(super) fn part(&self, lane: &Arc<Lane>) {
        let mut state = lock(&self.state);
        state.seats.retain(|seat| !Arc::ptr_eq(&seat.lane, lane));
        if lane.is_awake.swap(false, Ordering::Relaxed) {
            self.awake.fetch_sub(1, Ordering::Relaxed);
        }
        self.go_on(&mut state, self.clock.now());
    }

    /// A request comes. Every one that enters leaves, once it had its turn.
    #[inline]
    pub(super) fn enter(&self, lane: &Arc<Lane>, bytes: u64) -> Turn {
        let is_alone = self.awake.load(Ordering::Relaxed) == 1 && lane.is_awake.load(Ordering::Relaxed);
        if (is_alone || lane.is_devices.load(Ordering::Relaxed))
            && lane.is_free.load(Ordering::Relaxed)
            && !lane.is_waiting()
        {
            // Who wakes up meanwhile finds this in flight, or a moment later: one command beyond the window.
            lane.in_flight.fetch_add(cost(bytes), Ordering::Relaxed);
            return Turn::Now;
        }
        self.wait_in_line(lane, bytes)
    }

    #[cold]
    fn wait_in_line(&self, lane: &Arc<Lane>, bytes: u64) -> Turn {
        let now = self.clock.now();
        let mut state = lock(&self.state);
        let State { seats, virtual_time, .. } = &mut *state;
        let Some(seat) = seats.iter_mut().find(|seat| Arc::ptr_eq(&seat.lane, lane)) else {
            lane.in_flight.fetch_add(cost(bytes), Ordering::Relaxed);
            return Turn::Now;
        };
        if !matches!(seat.schedule, Schedule::Weighted(_)) && !lane.is_awake.swap(true, Ordering::Relaxed) {
            self.awake.fetch_add(1, Ordering::Relaxed);
        }
        seat.last_ns = now;
        seat.waiting.push_back(Wish { bytes, came_ns: now, came: *virtual_time });
        let nth = lane.entered.fetch_add(1, Ordering::Relaxed) + 1;
        self.go_on(&mut state, now);
        if lane.granted.load(Ordering::Relaxed) >= nth { Turn::Now } else { Turn::After(nth) }
    }

    /// Whether a request that waits has its turn. Those who wait ask again and again: time may bring it.
    pub(super) fn is_due(&self, lane: &Lane, turn: Turn) -> bool {
        let Turn::After(nth) = turn else { return true };
        if lane.granted.load(Ordering::Acquire) >= nth {
            return true;
        }
        if let Some(mut state) = try_lock(&self.state) {
            self.go_on(&mut state, self.clock.now());
        }
        lane.granted.load(Ordering::Acquire) >= nth
    }

    /// How long nothing but the time can bring a handle its turn: what waits has taken all of its limit.
    pub(super) fn idle(&self, lane: &Arc<Lane>) -> Duration {
        let now = self.clock.now();
        let mut state = lock(&self.state);
        let seat = state.seats.iter_mut().find(|seat| Arc::ptr_eq(&seat.lane, lane));
        let wait = seat.and_then(|seat| Some(seat.buckets.as_mut()?.wait(seat.waiting.front()?.bytes, now)));
        Duration::from_nanos(wait.unwrap_or(0))
    }

    /// A request that had its turn has ended.
    #[inline]
    pub(super) fn leave(&self, lane: &Lane, bytes: u64) {
        lane.in_flight.fetch_sub(cost(bytes), Ordering::Relaxed);
        let is_others = !lane.is_devices.load(Ordering::Relaxed);
        if is_others && self.awake.load(Ordering::Relaxed) > 1 || lane.is_waiting() {
            self.go_on(&mut lock(&self.state), self.clock.now());
        }
    }

    /// Gives turns to those who may go.
    fn go_on(&self, state: &mut State, now: u64) {
        self.put_to_sleep(state, now);
        let window = self.window.load(Ordering::Relaxed);
        let is_alone = self.awake.load(Ordering::Relaxed) <= 1;
        let mut in_flight: u64 = state.seats.iter().map(|seat| seat.lane.in_others_way()).sum();
        while let Some(next) = Self::next(state, now) {
            let seat = &mut state.seats[next.seat];
            let Some(wish) = seat.waiting.front().copied() else { return };
            let more = cost(wish.bytes);
            let has_none = seat.lane.in_flight.load(Ordering::Relaxed) == 0;
            if !matches!(seat.schedule, Schedule::Weighted(_)) {
                if !is_alone && !has_none && in_flight + more > window {
                    return;
                }
                in_flight += more;
            }
            seat.waiting.pop_front();
            seat.last_ns = now;
            seat.buckets.iter_mut().for_each(|buckets| buckets.take(wish.bytes));
            state.virtual_time = state.virtual_time.max(next.tag);
            match (next.is_sharing, seat.schedule) {
                (true, Schedule::Share(share)) => seat.tag = next.tag + more * SCALE / u64::from(share),
                (true, _) => state.others = next.tag + more * SCALE,
                (false, _) => {}
            }
            seat.lane.in_flight.fetch_add(more, Ordering::Relaxed);
            // Release: pairs with the Acquire of whoever waits for his turn.
            seat.lane.granted.fetch_add(1, Ordering::Release);
        }
    }

    /// Those who have nothing to do are nobody to be considerate of.
    fn put_to_sleep(&self, state: &mut State, now: u64) {
        for seat in &mut state.seats {
            let is_busy = !seat.waiting.is_empty() || seat.lane.in_flight.load(Ordering::Relaxed) > 0;
            if is_busy {
                seat.last_ns = now;
            } else if seat.lane.is_awake.load(Ordering::Relaxed)
                && now.saturating_sub(seat.last_ns) > AWAKE_NS
            {
                seat.lane.is_awake.store(false, Ordering::Relaxed);
                self.awake.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Who is next of those who wait and whose limit lets them.
    fn next(state: &mut State, now: u64) -> Option<Next> {
        let State { seats, others, .. } = state;
        let mut first: Option<(usize, (u8, Reverse<u64>))> = None;
        let mut soonest: Option<(usize, u64)> = None;
        let mut fairest: Option<(usize, u64)> = None;
        for (index, seat) in seats.iter_mut().enumerate() {
            let Some(&wish) = seat.waiting.front() else { continue };
            if seat.buckets.as_mut().is_some_and(|buckets| buckets.wait(wish.bytes, now) > 0) {
                continue;
            }
            let due = |after: Duration| wish.came_ns.saturating_add(after.as_nanos() as u64);
            match seat.schedule {
                Schedule::Weighted(_) => {
                    return Some(Next { seat: index, tag: 0, is_sharing: false });
                }
                Schedule::Priority(level) if level > 0 => {
                    // Of two alike, who has waited longer.
                    let rank = (level, Reverse(wish.came_ns));
                    if first.is_none_or(|(_, highest)| rank > highest) {
                        first = Some((index, rank));
                    }
                }
                Schedule::Share(_) => {
                    let tag = wish.came.max(seat.tag);
                    if fairest.is_none_or(|(_, least)| tag < least) {
                        fairest = Some((index, tag));
                    }
                }
                Schedule::Deadline(after) => {
                    let due = due(after);
                    if soonest.is_none_or(|(_, least)| due < least) {
                        soonest = Some((index, due));
                    }
                }
                Schedule::Fifo | Schedule::Priority(_) => {
                    let due = due(FIFO_DEADLINE);
                    if soonest.is_none_or(|(_, least)| due < least) {
                        soonest = Some((index, due));
                    }
                }
            }
        }
        if let Some((seat, _)) = first {
            return Some(Next { seat, tag: 0, is_sharing: false });
        }
        let timed = soonest.map(|(seat, _)| {
            let came = seats[seat].waiting.front().map_or(0, |wish| wish.came);
            (seat, came.max(*others))
        });
        let (seat, tag) = match (timed, fairest) {
            (Some(timed), Some(fair)) => {
                if fair.1 <= timed.1 {
                    fair
                } else {
                    timed
                }
            }
            (one, other) => one.or(other)?,
        };
        Some(Next { seat, tag, is_sharing: true })
    }
}

#[cfg(test)]
mod tests {
    use unvme_spec::admin::QueuePriority;

    use super::*;

    fn policies(text: &str) -> Policies {
        text.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    /// Handles that each keep so many requests of a size in the arbiter, on a device that ends one request
    /// after another at a rate of a byte of cost in a nanosecond.
    struct Players {
        arbiter: Arbiter,
        players: Vec<Player>,
        in_device: VecDeque<(usize, u64)>,
    }

    struct Player {
        lane: Arc<Lane>,
        bytes: u64,
        depth: usize,
        turns: VecDeque<Turn>,
        sent: usize,
        done: u64,
        worst: usize,
    }

    impl Players {
        fn new(of: &[(&str, u64, usize)]) -> Self {
            let arbiter = Arbiter::new(Clock::manual());
            let players = of.iter().map(|&(text, bytes, depth)| Player {
                lane: arbiter.join(&policies(text)),
                bytes,
                depth,
                turns: VecDeque::new(),
                sent: 0,
                done: 0,
                worst: 0,
            });
            Self { players: players.collect(), arbiter, in_device: VecDeque::new() }
        }

        fn step(&mut self) {
            for (nth, player) in self.players.iter_mut().enumerate() {
                while player.turns.len() + player.sent < player.depth {
                    player.turns.push_back(self.arbiter.enter(&player.lane, player.bytes));
                }
                while player.turns.front().is_some_and(|turn| self.arbiter.is_due(&player.lane, *turn)) {
                    player.turns.pop_front();
                    player.sent += 1;
                    player.worst = player.worst.max(self.in_device.len());
                    self.in_device.push_back((nth, player.bytes));
                }
            }
            match self.in_device.pop_front() {
                Some((nth, bytes)) => {
                    self.arbiter.clock.advance(Duration::from_nanos(cost(bytes)));
                    let player = &mut self.players[nth];
                    player.sent -= 1;
                    player.done += 1;
                    self.arbiter.leave(&player.lane, bytes);
                }
                None => self.arbiter.clock.advance(Duration::from_micros(1)),
            }
        }

        fn run(&mut self, seconds: u64) -> Vec<u64> {
            let end = self.arbiter.clock.now() + seconds * 1_000_000_000;
            while self.arbiter.clock.now() < end {
                self.step();
            }
            self.players.iter().map(|player| player.done).collect()
        }
    }

    #[test]
    fn shares_are_of_what_requests_cost() {
        let mut players = Players::new(&[("sched=share:3", 4096, 32), ("sched=share:1", 128 << 10, 32)]);
        let done = players.run(2);
        let costs = [done[0] * cost(4096), done[1] * cost(128 << 10)];
        let ratio = costs[0] as f64 / costs[1] as f64;
        assert!((2.8..3.2).contains(&ratio), "{ratio} {done:?}");
    }

    #[test]
    fn what_one_does_not_take_is_the_others() {
        let mut players = Players::new(&[("sched=share:1000", 4096, 1), ("sched=share:1", 128 << 10, 32)]);
        let done = players.run(1);
        // The first waits for its own answer each time, behind what the window lets in.
        assert!(done[1] * cost(128 << 10) > 500_000_000, "{done:?}");
        assert!(players.players[0].worst <= 2, "{} before it in the device", players.players[0].worst);
    }

    #[test]
    fn one_alone_has_all_of_its_requests_in_the_device() {
        let mut players = Players::new(&[("sched=share:1", 128 << 10, 32), ("sched=share:1", 4096, 0)]);
        players.run(1);
        assert_eq!(players.players[0].worst, 31);
        // The other comes, and the first is cut back; it goes, and it is as before.
        players.players[1].depth = 1;
        players.run(1);
        players.players[1].worst = 0;
        players.run(1);
        assert!(players.players[1].worst <= 2);
        players.players[1].depth = 0;
        players.run(1);
        players.players[0].worst = 0;
        players.run(1);
        assert_eq!(players.players[0].worst, 31);
    }

    #[test]
    fn nobody_starves_beside_a_deadline_and_everybody_does_beside_a_priority() {
        let of = [("sched=deadline:100us", 4096, 64), ("", 4096, 4), ("sched=deadline:20ms", 128 << 10, 4)];
        let done = Players::new(&of).run(1);
        assert!(done.iter().all(|&done| done > 100), "{done:?}");
        let of = [("sched=priority:2", 4096, 64), ("sched=share:9", 4096, 4), ("sched=priority:1", 4096, 4)];
        let done = Players::new(&of).run(1);
        // But for the first ones, which were alone when they came.
        assert!(done[0] > 40_000 && done[1] < 10 && done[2] < 10, "{done:?}");
    }

    #[test]
    fn of_two_with_the_same_priority_none_starves() {
        let of = [("sched=priority:2", 128 << 10, 32), ("sched=priority:2", 128 << 10, 4)];
        let done = Players::new(&of).run(1);
        assert!(done[0] > 1000 && done[1] > 500, "{done:?}");
    }

    #[test]
    fn what_is_forgotten_does_not_wait_and_lets_the_others_go() {
        let arbiter = Arbiter::new(Clock::manual());
        let lanes = ["limit=iops:1:burst:1ms", ""].map(|text| arbiter.join(&policies(text)));
        let turns: Vec<_> = (0..4).map(|_| arbiter.enter(&lanes[0], 4096)).collect();
        assert_eq!((turns[0], turns[3]), (Turn::Now, Turn::After(4)));
        assert_eq!(arbiter.forget(&lanes[0]), 1);
        assert!(arbiter.is_due(&lanes[0], turns[3]));
        arbiter.leave(&lanes[0], 4096);
        assert_eq!(lanes[0].in_flight.load(Ordering::Relaxed), 0);
        assert_eq!(arbiter.enter(&lanes[1], 128 << 10), Turn::Now);
    }

    #[test]
    fn what_the_device_decides_waits_for_its_limit_alone() {
        let of = [("sched=wrr:low", 128 << 10, 32), ("sched=share:1", 4096, 4), ("", 128 << 10, 32)];
        let mut players = Players::new(&of);
        let done = players.run(1);
        // All of it is in the device at once, and does not count for the others, who share the window.
        assert!(players.players[0].worst >= 31, "{}", players.players[0].worst);
        assert!(done[1] > 500 && done[2] > 100, "{done:?}");
        let of = [("sched=wrr:high,limit=iops:500:burst:10ms", 4096, 8), ("sched=wrr:low", 4096, 8)];
        let done = Players::new(&of).run(2);
        assert!((1000..=1006).contains(&done[0]) && done[1] > 10_000, "{done:?}");
        // From one to the other, with what is in flight.
        let mut players = Players::new(&[("sched=wrr:low", 128 << 10, 32), ("sched=share:1", 4096, 1)]);
        players.run(1);
        let lane = Arc::clone(&players.players[0].lane);
        players.arbiter.set(&lane, Schedule::Share(1), None);
        players.run(1);
        players.players[1].worst = 0;
        players.run(1);
        assert!(players.players[1].worst <= 2, "{}", players.players[1].worst);
        players.arbiter.set(&lane, Schedule::Weighted(QueuePriority::Low), None);
        players.players[0].worst = 0;
        players.run(1);
        assert!(players.players[0].worst >= 31, "{}", players.players[0].worst);
    }

    #[test]
    fn a_limit_that_is_set_again_is_as_empty_as_it_was() {
        let mut players = Players::new(&[("limit=iops:100:burst:100ms", 4096, 4)]);
        let lane = Arc::clone(&players.players[0].lane);
        let limit = policies("limit=iops:100:burst:100ms").limit;
        let end = players.arbiter.clock.now() + 1_000_000_000;
        while players.arbiter.clock.now() < end {
            players.step();
            players.arbiter.set(&lane, Schedule::Fifo, limit.as_ref());
        }
        let done = players.players[0].done;
        assert!((100..=112).contains(&done), "{done}");
    }

    #[test]
    fn a_limit_is_exact_over_time() {
        let of = [("limit=iops:500:burst:10ms", 4096, 8), ("limit=bytes:8M:burst:100ms", 128 << 10, 8)];
        let done = Players::new(&of).run(4);
        // What is in the bucket first, and what comes in four seconds.
        assert!((2000..=2006).contains(&done[0]), "{done:?}");
        assert!((8 * 8 * 4..=8 * 8 * 4 + 8).contains(&done[1]), "{done:?}");
    }

    #[test]
    fn policies_hold_for_what_waits_already() {
        let mut players = Players::new(&[("limit=iops:1:burst:1ms", 4096, 4), ("", 4096, 1)]);
        assert!(players.run(1)[0] <= 2);
        let lane = Arc::clone(&players.players[0].lane);
        players.arbiter.set(&lane, Schedule::Fifo, None);
        assert!(players.run(1)[0] > 1000);
    }
}
