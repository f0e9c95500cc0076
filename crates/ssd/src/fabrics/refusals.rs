//! Telling of hosts that were refused, and of no more of them than a log can take.
//!
//! Whoever reaches a port can be refused as often as it likes: of each address, and of all together, some
//! refusals a minute are logged, and of the others their number.

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use unvme_bus::{EventFd, lock};

/// What is counted together.
const WINDOW: Duration = Duration::from_secs(60);
/// Refusals of one address that are logged in a window: what a person sees who tries a key or two.
const OF_ONE_MAX: u32 = 8;
/// Refusals that are logged in a window: some 10 MB of log a day at worst.
const OF_ALL_MAX: u32 = 32;

/// Who was refused, and why.
#[derive(Clone, Copy)]
pub struct Refused<'a> {
    /// Its address.
    pub peer: &'a str,
    /// NQN that it claims to have, when it has claimed one.
    pub host: Option<&'a str>,
    /// NQN of what it wants to use.
    pub subsystem: Option<&'a str>,
    /// Why it was refused, and what would help.
    pub why: &'a dyn fmt::Display,
}

impl<'a> Refused<'a> {
    /// A refusal, of whom nothing is known yet.
    pub fn of(why: &'a dyn fmt::Display) -> Self {
        Self { peer: "", host: None, subsystem: None, why }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Refusals {
    window: Mutex<Window>,
    /// Signalled when refusals are left out of the log for the first time in a window.
    wake: Mutex<Option<EventFd>>,
}

#[derive(Debug, Default)]
struct Window {
    /// When the first refusal of it came; `None` while there is none.
    began: Option<Instant>,
    /// Addresses whose refusals were logged, and how many: no more than [`OF_ALL_MAX`] of them.
    logged: Vec<(String, u32)>,
    left_out: u64,
}

impl Refusals {
    /// A host was refused. Keys are nothing that `refused` may have.
    #[cold]
    pub fn tell(&self, refused: &Refused<'_>) {
        let address = refused.peer.rsplit_once(':').map_or(refused.peer, |(address, _port)| address);
        let now = Instant::now();
        let mut window = lock(&self.window);
        if let Some(count) = window.roll(now) {
            tell_count(count);
        }
        if !window.admits(address) {
            let is_first = window.left_out == 0;
            window.left_out = window.left_out.saturating_add(1);
            if is_first && let Some(wake) = lock(&self.wake).as_ref() {
                wake.signal();
            }
            return;
        }
        drop(window);
        // What a host says of itself may be anything.
        let shown = |name: Option<&str>| name.map(|name| name.escape_debug().to_string());
        let (host, subsystem) = (shown(refused.host), shown(refused.subsystem));
        tracing::warn!(peer = refused.peer, host, subsystem, "refused: {}", refused.why);
    }

    /// Says who is to be woken up when [`Refusals::due`] begins to be something.
    pub fn wake_by(&self, wake: EventFd) {
        *lock(&self.wake) = Some(wake);
    }

    /// In how long refusals that were left out are to be told of, by [`Refusals::tell_left_out`]; `None` when
    /// there are none.
    pub fn due(&self) -> Option<Duration> {
        let window = lock(&self.window);
        let began = window.began.filter(|_| window.left_out > 0)?;
        Some(WINDOW.saturating_sub(began.elapsed()))
    }

    /// Says how many refusals were left out, when their window is over, or `at_once`.
    pub fn tell_left_out(&self, at_once: bool) {
        let mut window = lock(&self.window);
        let count = if at_once { window.end() } else { window.roll(Instant::now()) };
        if let Some(count) = count {
            tell_count(count);
        }
    }
}

fn tell_count(left_out: u64) {
    tracing::warn!("{left_out} more refusals in the last minute, which are left out here");
}

impl Window {
    /// Ends the window if its time is over: how many refusals it has left out, if any.
    fn roll(&mut self, now: Instant) -> Option<u64> {
        let began = *self.began.get_or_insert(now);
        if now.saturating_duration_since(began) < WINDOW {
            return None;
        }
        let left_out = self.end();
        self.began = Some(now);
        left_out
    }

    fn end(&mut self) -> Option<u64> {
        let Self { left_out, .. } = std::mem::take(self);
        (left_out > 0).then_some(left_out)
    }

    /// Whether another refusal of an address is logged.
    fn admits(&mut self, address: &str) -> bool {
        let all: u32 = self.logged.iter().map(|(_, count)| *count).sum();
        let own = self.logged.iter_mut().find(|(other, _)| other == address);
        match own {
            _ if all >= OF_ALL_MAX => false,
            Some((_, count)) if *count >= OF_ONE_MAX => false,
            Some((_, count)) => {
                *count += 1;
                true
            }
            None => {
                self.logged.push((address.to_owned(), 1));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_does_not_keep_others_out_of_the_log_and_all_together_do_not_fill_it() {
        let mut window = Window::default();
        let now = Instant::now();
        assert_eq!(window.roll(now), None);
        let mut logged = |address: &str, times: u32| (0..times).filter(|_| window.admits(address)).count();
        assert_eq!(logged("192.0.2.1", 1000), OF_ONE_MAX as usize);
        assert_eq!(logged("192.0.2.2", 1), 1, "another one is told of");
        let flood: usize = (0..1000).map(|number| logged(&format!("198.51.100.{number}"), 3)).sum();
        assert_eq!(flood, (OF_ALL_MAX - OF_ONE_MAX - 1) as usize);
        assert!(window.logged.len() <= OF_ALL_MAX as usize);
        window.left_out = 7;
        assert_eq!(window.roll(now + WINDOW - Duration::from_nanos(1)), None);
        assert_eq!(window.roll(now + WINDOW), Some(7));
        assert!(window.admits("192.0.2.1"), "a new window");
        assert_eq!(window.roll(now + 2 * WINDOW), None, "nothing was left out");
    }

    #[test]
    fn whoever_tells_of_what_was_left_out_is_woken_up_once() {
        let refusals = Refusals::default();
        let wake = EventFd::new().expect("an eventfd");
        refusals.wake_by(wake.clone());
        let refused = Refused { peer: "192.0.2.1:40000", ..Refused::of(&"a test") };
        (0..OF_ONE_MAX).for_each(|_| refusals.tell(&refused));
        assert!(!wake.drain() && refusals.due().is_none());
        refusals.tell(&refused);
        assert!(wake.drain() && refusals.due().is_some_and(|due| due <= WINDOW));
        refusals.tell(&refused);
        assert!(!wake.drain());
        assert_eq!(lock(&refusals.window).left_out, 2);
        refusals.tell_left_out(false);
        assert!(refusals.due().is_some(), "not yet");
        refusals.tell_left_out(true);
        assert!(refusals.due().is_none());
    }
}
