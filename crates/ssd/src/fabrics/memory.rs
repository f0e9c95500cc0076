//! Memory of a server for its hosts: one bound for all of it, and a share for each host.
//!
//! An eighth is reserved: it is divided among the hosts that are connected, and a host's part among its
//! connections. The rest is common. Whoever asks first has it, all of it if nobody else asks; once there is
//! not enough, those who wait have their turns, hosts that have least first. So a host that keeps what it has
//! keeps others from the common part alone. What queues are made of has an eighth of all memory there at
//! most, since it stays: three quarters are always for commands that come and go.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use unvme_bus::{EventFd, lock};

use super::guest::Guest;

/// The reserve is this part of all memory.
const RESERVE_PART: u64 = 8;
/// The reserve has room for the shares of so many hosts at least, of which some may not be there yet.
const SHARES_MIN: u64 = 4;
/// What queues are made of is at most this part of all memory, unless it is of their hosts' shares.
const FIXED_PART: u64 = 8;
/// Names of hosts at one origin that have shares of their own, unless they were proven; more have one
/// together.
const NAMES_PER_ORIGIN: usize = 8;
/// So often others may be served before a command that waits, because their hosts have less.
const PASSED_MAX: u32 = 64;

/// Most bytes that all queues of a server have at a time: data on its way, and what the queues are made of.
/// Commands that find no memory wait; while some do, every queue gives back what it does not use.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: u64,
    /// Bytes taken of the common part.
    common: AtomicU64,
    /// Of those, what queues are made of.
    fixed: AtomicU64,
    /// Bytes taken of the reserve.
    reserved: AtomicU64,
    /// Hosts that have an account.
    hosts: AtomicU64,
    accounts: Mutex<HashMap<Guest, Weak<Account>>>,
    /// Commands that wait; read without the lock.
    waiting: AtomicUsize,
    state: Mutex<Waiting>,
}

/// What a host has.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// Bytes for data.
    data: AtomicU64,
    /// Bytes that its queues are made of.
    fixed: AtomicU64,
    /// Of all of that, what is of the reserve.
    reserved: AtomicU64,
    /// Its connections.
    lines: AtomicU64,
}

impl Account {
    fn used(&self) -> u64 {
        self.data.load(Ordering::Relaxed).saturating_add(self.fixed.load(Ordering::Relaxed))
    }
}

/// Which part of the memory something is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Common,
    Reserve,
}

/// What one connection has, on its host's account.
#[derive(Debug)]
pub(super) struct Purse {
    account: Arc<Account>,
    /// Bytes for data, by part.
    data: [u64; 2],
    /// Bytes that the queue is made of, by part.
    fixed: [u64; 2],
}

#[derive(Debug, Default)]
struct Waiting {
    next_ticket: u64,
    line: Vec<Waiter>,
    /// Queues that have memory, by the ticket they were given, and how they are woken up.
    holders: Vec<(u64, EventFd)>,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    account: Arc<Account>,
    /// Others that came later and were served before.
    passed: u32,
    wake: Option<EventFd>,
}

/// A place in the line of those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitTicket(u64);

impl Waiting {
    /// Whose turn it is: the host's that has least, and the oldest of those; unless somebody was passed too
    /// often.
    fn first(&self) -> Option<&Waiter> {
        let by_turn = |waiter: &&Waiter| match waiter.passed {
            PASSED_MAX.. => (0, waiter.ticket),
            _ => (1 + waiter.account.used(), waiter.ticket),
        };
        self.line.iter().min_by_key(by_turn)
    }

    fn wake_first(&self) {
        if let Some(Waiter { wake: Some(wake), .. }) = self.first() {
            wake.signal();
        }
    }

    fn wake_host(&self, account: &Account) {
        let of_host = self.line.iter().filter(|waiter| std::ptr::eq(&*waiter.account, account));
        of_host.filter_map(|waiter| waiter.wake.as_ref()).for_each(EventFd::signal);
    }
}

impl MemoryBudget {
    /// Unless told otherwise: 1 GiB.
    pub const DEFAULT_BYTES: u64 = 1 << 30;

    /// At most `bytes`.
    pub fn new(bytes: u64) -> Self {
        Self {
            limit: bytes,
            common: AtomicU64::new(0),
            fixed: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            hosts: AtomicU64::new(0),
            accounts: Mutex::default(),
            waiting: AtomicUsize::new(0),
            state: Mutex::default(),
        }
    }

    /// The bound in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Most bytes of one command: they become free in the end, however many queues there are.
    pub fn command_limit(&self) -> u64 {
        self.common_limit() - self.fixed_limit()
    }

    /// Most bytes that are taken by who asks first.
    fn common_limit(&self) -> u64 {
        self.limit - self.reserve_limit()
    }

    fn fixed_limit(&self) -> u64 {
        self.limit / FIXED_PART
    }

    fn reserve_limit(&self) -> u64 {
        self.limit / RESERVE_PART
    }

    /// A host's part of the reserve.
    fn share(&self) -> u64 {
        self.reserve_limit() / self.hosts.load(Ordering::Relaxed).max(SHARES_MIN)
    }

    /// Bytes that are taken now: those that queues keep for their next commands are among them.
    pub fn used(&self) -> u64 {
        self.common.load(Ordering::Relaxed).saturating_add(self.reserved.load(Ordering::Relaxed))
    }

    /// True while commands wait: memory that is not in use is to be given back.
    #[inline]
    pub(super) fn is_pressed(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) != 0
    }

    /// A connection of a host, which has nothing yet.
    pub(super) fn open(&self, guest: &Guest) -> Purse {
        Purse { account: self.join(guest), data: [0; 2], fixed: [0; 2] }
    }

    /// The account of a host, which has one connection more.
    fn join(&self, guest: &Guest) -> Arc<Account> {
        let mut accounts = lock(&self.accounts);
        let mut guest = guest.clone();
        if let Guest::Named { origin, hostnqn } = &mut guest
            && !accounts.contains_key(&Guest::Named { origin: origin.clone(), hostnqn: hostnqn.clone() })
        {
            let is_here = |other: &&Guest| matches!(other, Guest::Named { origin: one, .. } if one == origin);
            if accounts.keys().filter(is_here).count() >= NAMES_PER_ORIGIN {
                hostnqn.clear();
            }
        }
        let known = accounts.get(&guest).and_then(Weak::upgrade);
        let account = known.unwrap_or_else(|| {
            let account = Arc::new(Account::default());
            accounts.insert(guest, Arc::downgrade(&account));
            account
        });
        account.lines.fetch_add(1, Ordering::Relaxed);
        self.hosts.store(accounts.len() as u64, Ordering::Relaxed);
        account
    }

    /// A host has one connection less.
    fn part(&self, account: &Account) {
        let mut accounts = lock(&self.accounts);
        account.lines.fetch_sub(1, Ordering::Relaxed);
        let is_here = |account: Arc<Account>| account.lines.load(Ordering::Relaxed) > 0;
        accounts.retain(|_, account| account.upgrade().is_some_and(is_here));
        self.hosts.store(accounts.len() as u64, Ordering::Relaxed);
    }

    /// The connection is another host's, as has turned out: with all that it has.
    pub(super) fn move_to(&self, purse: &mut Purse, guest: &Guest) {
        let account = self.join(guest);
        let Purse { account: before, data, fixed } = &mut *purse;
        let (reserve, data_bytes, fixed_bytes) =
            (Part::Reserve as usize, data.iter().sum(), fixed.iter().sum());
        for (from, to, bytes) in [
            (&before.data, &account.data, data_bytes),
            (&before.fixed, &account.fixed, fixed_bytes),
            (&before.reserved, &account.reserved, data[reserve] + fixed[reserve]),
        ] {
            from.fetch_sub(bytes, Ordering::Relaxed);
            to.fetch_add(bytes, Ordering::Relaxed);
        }
        self.part(before);
        purse.account = account;
    }

    /// The connection is closed; it has given back its data.
    pub(super) fn close(&self, purse: &mut Purse) {
        for part in [Part::Common, Part::Reserve] {
            let fixed = std::mem::take(&mut purse.fixed[part as usize]);
            purse.account.fixed.fetch_sub(fixed, Ordering::Relaxed);
            if part == Part::Common {
                self.fixed.fetch_sub(fixed, Ordering::Relaxed);
            }
            self.return_to(part, fixed, &purse.account);
        }
        self.part(&purse.account);
    }

    /// Whether it is the turn of whoever has this ticket, or none.
    pub(super) fn is_turn_of(&self, ticket: Option<WaitTicket>) -> bool {
        if !self.is_pressed() {
            return true;
        }
        let state = lock(&self.state);
        state.first().is_none_or(|first| ticket == Some(WaitTicket(first.ticket)))
    }

    /// Takes `bytes` of the common part, unless that is too much or it is others' turn. Who has waited keeps
    /// its place until it leaves it, see [`MemoryBudget::forget`].
    pub(super) fn take(&self, bytes: u64, purse: &mut Purse, ticket: Option<WaitTicket>) -> bool {
        let is_taken = self.is_turn_of(ticket) && add(&self.common, bytes, self.common_limit());
        if is_taken {
            purse.note_data(Part::Common, bytes);
            if let Some(WaitTicket(ticket)) = ticket {
                let mut state = lock(&self.state);
                let passed = state.line.iter_mut().filter(|waiter| waiter.ticket < ticket);
                passed.for_each(|waiter| waiter.passed = waiter.passed.saturating_add(1));
            }
        }
        is_taken
    }

    /// Takes `bytes` of the host's share. Half of that is divided among its connections; the other half is
    /// for one command of a host that has no data at all.
    pub(super) fn take_share(&self, bytes: u64, purse: &mut Purse) -> bool {
        let (account, share) = (&purse.account, self.share());
        let own = purse.data[Part::Reserve as usize].saturating_add(bytes);
        let lines = account.lines.load(Ordering::Relaxed).max(1);
        let is_only = account.data.load(Ordering::Relaxed) == 0 && bytes <= share / 2;
        if !(is_only || own <= share / 2 / lines) || !self.take_reserved(bytes, account, share) {
            return false;
        }
        purse.note_data(Part::Reserve, bytes);
        if self.is_pressed() {
            // It may be another one's turn now.
            lock(&self.state).wake_first();
        }
        true
    }

    /// Takes a few `bytes` of a part whoever waits: others would wait for what they are for.
    pub(super) fn take_urgently(&self, part: Part, bytes: u64, purse: &mut Purse) -> bool {
        let is_taken = match part {
            Part::Common => add(&self.common, bytes, self.common_limit()),
            Part::Reserve => self.take_reserved(bytes, &purse.account, u64::MAX),
        };
        if is_taken {
            purse.note_data(part, bytes);
        }
        is_taken
    }

    /// Takes `bytes` that a queue is made of, until its connection is closed.
    pub(super) fn take_fixed(&self, bytes: u64, purse: &mut Purse) -> bool {
        let part = if self.take_common_fixed(bytes) {
            Part::Common
        } else if self.take_reserved(bytes, &purse.account, self.share()) {
            Part::Reserve
        } else {
            return false;
        };
        purse.fixed[part as usize] += bytes;
        purse.account.fixed.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    fn take_common_fixed(&self, bytes: u64) -> bool {
        if !add(&self.fixed, bytes, self.fixed_limit()) {
            return false;
        }
        let is_taken = add(&self.common, bytes, self.common_limit());
        if !is_taken {
            self.fixed.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_taken
    }

    /// Takes `bytes` of the reserve, of which the host then has `most` at most.
    fn take_reserved(&self, bytes: u64, account: &Account, most: u64) -> bool {
        if !add(&account.reserved, bytes, most) {
            return false;
        }
        let is_taken = add(&self.reserved, bytes, self.reserve_limit());
        if !is_taken {
            account.reserved.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_taken
    }

    /// Gives `bytes` of data back that were taken.
    pub(super) fn give(&self, part: Part, bytes: u64, purse: &mut Purse) {
        purse.data[part as usize] -= bytes;
        purse.account.data.fetch_sub(bytes, Ordering::Relaxed);
        self.return_to(part, bytes, &purse.account);
    }

    fn return_to(&self, part: Part, bytes: u64, account: &Account) {
        if bytes == 0 {
            return;
        }
        // SeqCst, as all that is done to these and the number of those who wait: either who gives sees that
        // somebody waits, or who waits sees what was given.
        match part {
            Part::Common => self.common.fetch_sub(bytes, Ordering::SeqCst),
            Part::Reserve => {
                account.reserved.fetch_sub(bytes, Ordering::Relaxed);
                self.reserved.fetch_sub(bytes, Ordering::SeqCst)
            }
        };
        if self.is_pressed() {
            let state = lock(&self.state);
            state.wake_first();
            if part == Part::Reserve {
                // It is for others of the same host whoever is the first.
                state.wake_host(account);
            }
        }
    }

    /// Waits for its turn; the first one in an empty line makes all others give back what they do not use,
    /// which they go on doing while there is a line.
    pub(super) fn wait(&self, purse: &Purse, wake: Option<EventFd>) -> WaitTicket {
        let mut state = lock(&self.state);
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.line.push(Waiter { ticket, account: Arc::clone(&purse.account), passed: 0, wake });
        self.waiting.store(state.line.len(), Ordering::SeqCst);
        if state.line.len() == 1 {
            state.holders.iter().for_each(|(_, wake)| wake.signal());
        }
        WaitTicket(ticket)
    }

    /// Waits no longer.
    pub(super) fn forget(&self, ticket: WaitTicket) {
        let mut state = lock(&self.state);
        state.line.retain(|waiter| waiter.ticket != ticket.0);
        self.waiting.store(state.line.len(), Ordering::SeqCst);
        // What is left may do for the next one.
        state.wake_first();
    }

    /// Whether others wait, and this host has more than its part of all memory.
    pub(super) fn is_greedy(&self, purse: &Purse) -> bool {
        self.is_pressed()
            && purse.account.used() > self.limit / self.hosts.load(Ordering::Relaxed).max(SHARES_MIN)
    }

    /// A queue that may have memory to give back wants to be woken up for it.
    pub(super) fn enter(&self, wake: EventFd) -> WaitTicket {
        let mut state = lock(&self.state);
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.holders.push((ticket, wake));
        WaitTicket(ticket)
    }

    /// That queue is gone.
    pub(super) fn leave(&self, ticket: WaitTicket) {
        lock(&self.state).holders.retain(|(holder, _)| *holder != ticket.0);
    }
}

impl Purse {
    fn note_data(&mut self, part: Part, bytes: u64) {
        self.data[part as usize] += bytes;
        self.account.data.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Adds `bytes` unless that would be more than `most`.
fn add(sum: &AtomicU64, bytes: u64, most: u64) -> bool {
    let fits = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= most);
    sum.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn named(origin: &str, hostnqn: &str) -> Guest {
        Guest::Named { origin: origin.into(), hostnqn: hostnqn.into() }
    }

    #[test]
    fn what_one_host_leaves_is_enough_for_a_command_of_another() {
        let budget = MemoryBudget::new(64 * MIB);
        let mut greedy = budget.open(&named("a", "greedy"));
        let mut taken = 0;
        while budget.take(MIB, &mut greedy, None) || budget.take_share(MIB, &mut greedy) {
            taken += 1;
        }
        assert_eq!(taken, 56 + 1, "seven eighths, and half a share of the reserve");
        let mut other = budget.open(&named("a", "other"));
        assert!(budget.take_share(MIB, &mut other));
        assert!(!budget.take_share(MIB, &mut other), "one at a time");
        budget.give(Part::Reserve, MIB, &mut other);
        assert!(budget.take_fixed(64 << 10, &mut other));
        budget.close(&mut other);
        assert_eq!(budget.used(), 57 * MIB);
    }

    #[test]
    fn the_host_that_has_least_is_next_and_nobody_is_passed_for_ever() {
        let budget = MemoryBudget::new(64 * MIB);
        let mut one = budget.open(&named("a", "one"));
        assert!(budget.take(40 * MIB, &mut one, None));
        let first = budget.wait(&one, None);
        let mut two = budget.open(&named("b", "two"));
        for _ in 0..PASSED_MAX {
            let next = budget.wait(&two, None);
            assert!(budget.is_turn_of(Some(next)) && !budget.is_turn_of(Some(first)));
            assert!(budget.take(MIB, &mut two, Some(next)));
            budget.forget(next);
            budget.give(Part::Common, MIB, &mut two);
        }
        let next = budget.wait(&two, None);
        assert!(budget.is_turn_of(Some(first)) && !budget.is_turn_of(Some(next)));
        assert!(budget.is_greedy(&one) && !budget.is_greedy(&two));
    }

    #[test]
    fn who_makes_up_names_has_few_shares() {
        let budget = MemoryBudget::new(64 * MIB);
        let purses: Vec<_> = (0..100).map(|number| budget.open(&named("a", &number.to_string()))).collect();
        assert_eq!(budget.hosts.load(Ordering::Relaxed), NAMES_PER_ORIGIN as u64 + 1);
        let proven = budget.open(&Guest::Proven("name".into()));
        assert_eq!(budget.hosts.load(Ordering::Relaxed), NAMES_PER_ORIGIN as u64 + 2);
        for mut purse in purses.into_iter().chain([proven]) {
            budget.close(&mut purse);
        }
        assert_eq!(budget.hosts.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_connection_takes_what_it_has_along_when_its_host_is_known() {
        let budget = MemoryBudget::new(64 * MIB);
        let mut purse = budget.open(&named("a", ""));
        assert!(budget.take_share(16 << 10, &mut purse) && budget.take_fixed(1 << 10, &mut purse));
        assert_eq!((purse.data, purse.fixed), ([0, 16 << 10], [1 << 10, 0]));
        let stranger = Arc::clone(&purse.account);
        budget.move_to(&mut purse, &Guest::Proven("name".into()));
        assert_eq!((stranger.used(), purse.account.used()), (0, 17 << 10));
        budget.give(Part::Reserve, 16 << 10, &mut purse);
        budget.close(&mut purse);
        assert_eq!((purse.account.used(), budget.used()), (0, 0));
    }
}
