//! Connections of a server that has room for so many: who gives way when there are more.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use unvme_bus::lock;
use unvme_ssd::fabrics::origin;

/// Connections that may be there in place of those that have been told to leave and have not left.
const LEAVING_MAX: usize = 64;

/// A connection, as the others see it.
pub(super) struct Visitor {
    origin: String,
    /// Which thread has it.
    pub(super) worker: usize,
    /// Its host has a controller, and has proven what it has to.
    is_admitted: AtomicBool,
    has_to_leave: AtomicBool,
}

impl Visitor {
    /// Its host is no stranger any more.
    pub(super) fn admit(&self) {
        self.is_admitted.store(true, Ordering::Relaxed);
    }

    /// It is to be closed.
    pub(super) fn has_to_leave(&self) -> bool {
        self.has_to_leave.load(Ordering::Relaxed)
    }

    fn is_stranger(&self) -> bool {
        !self.is_admitted.load(Ordering::Relaxed)
    }
}

/// What becomes of a connection that was accepted.
pub(super) struct Entry {
    pub(super) visitor: Arc<Visitor>,
    /// Who has to leave for it; the thread that has that one is to be woken up.
    pub(super) instead_of: Option<Arc<Visitor>>,
}

/// All connections of a server, the oldest first.
pub(super) struct Crowd {
    most: usize,
    visitors: Mutex<Vec<Weak<Visitor>>>,
}

impl Crowd {
    /// Room for `most` connections.
    pub(super) fn new(most: usize) -> Self {
        Self { most, visitors: Mutex::default() }
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// A connection that thread `worker` is to have; `None` when there is no room for it, and nobody who has
    /// to give way.
    pub(super) fn enter(&self, address: SocketAddr, worker: usize) -> Option<Entry> {
        let mut visitors = lock(&self.visitors);
        visitors.retain(|visitor| visitor.strong_count() != 0);
        let origin = origin(&address.to_string());
        let mut instead_of = None;
        if visitors.len() >= self.most {
            let there: Vec<Arc<Visitor>> = visitors.iter().filter_map(Weak::upgrade).collect();
            let (leaving, staying): (Vec<_>, Vec<_>) =
                there.into_iter().partition(|visitor| visitor.has_to_leave());
            if leaving.len() >= LEAVING_MAX {
                return None;
            }
            if staying.len() >= self.most {
                let victim = victim(&staying, &origin)?;
                victim.has_to_leave.store(true, Ordering::Relaxed);
                instead_of = Some(Arc::clone(victim));
            }
        }
        let (is_admitted, has_to_leave) = (AtomicBool::new(false), AtomicBool::new(false));
        let visitor = Arc::new(Visitor { origin, worker, is_admitted, has_to_leave });
        visitors.push(Arc::downgrade(&visitor));
        Some(Entry { visitor, instead_of })
    }
}

/// The oldest stranger of the origin that has most of them; without strangers the youngest of the origin that
/// has most connections, when those are at least two more than `origin` has.
fn victim<'a>(there: &'a [Arc<Visitor>], origin: &str) -> Option<&'a Arc<Visitor>> {
    let strangers = there.iter().filter(|visitor| visitor.is_stranger());
    if let Some((largest, _)) = largest(strangers.clone()) {
        return strangers.into_iter().find(|visitor| visitor.origin == largest);
    }
    let mine = there.iter().filter(|visitor| visitor.origin == origin).count();
    let (largest, _) = largest(there.iter()).filter(|&(_, count)| count > mine + 1)?;
    there.iter().rev().find(|visitor| visitor.origin == largest)
}

/// The origin of most of these, and how many that are.
fn largest<'a>(visitors: impl Iterator<Item = &'a Arc<Visitor>>) -> Option<(&'a str, usize)> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    visitors.for_each(|visitor| *counts.entry(&visitor.origin).or_default() += 1);
    counts.into_iter().max_by_key(|&(_, count)| count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(crowd: &Crowd, address: &str) -> Option<Entry> {
        crowd.enter(format!("{address}:9").parse().expect("an address"), 0)
    }

    #[test]
    fn the_oldest_stranger_of_who_has_most_gives_way_whoever_comes() {
        let crowd = Crowd::new(4);
        let known = enter(&crowd, "192.0.2.66").expect("room").visitor;
        known.admit();
        let strangers: Vec<_> = (0..2).map(|_| enter(&crowd, "192.0.2.66").expect("room").visitor).collect();
        let other = enter(&crowd, "192.0.2.7").expect("room");
        assert!(other.instead_of.is_none());
        let late = enter(&crowd, "192.0.2.7").expect("a stranger gives way");
        let gone = late.instead_of.expect("who gives way");
        assert!(Arc::ptr_eq(&gone, &strangers[0]) && gone.has_to_leave() && !known.has_to_leave());
        // Its place is taken already.
        assert!(enter(&crowd, "192.0.2.7").expect("another one does").instead_of.is_some());
    }

    #[test]
    fn without_strangers_who_has_most_gives_way_to_who_has_less_and_to_nobody_else() {
        let crowd = Crowd::new(3);
        let greedy: Vec<_> = (0..3)
            .map(|_| enter(&crowd, "192.0.2.66").expect("room").visitor)
            .inspect(|visitor| visitor.admit())
            .collect();
        assert!(enter(&crowd, "192.0.2.66").is_none());
        let entry = enter(&crowd, "192.0.2.7").expect("a place");
        assert!(entry.instead_of.is_some_and(|gone| Arc::ptr_eq(&gone, &greedy[2])));
        entry.visitor.admit();
        drop(greedy);
        assert!(enter(&crowd, "192.0.2.66").is_some(), "they have left");
    }

    #[test]
    fn no_more_come_than_leave() {
        let crowd = Crowd::new(200);
        let mut there: Vec<_> = (0..200).map(|_| enter(&crowd, "192.0.2.66").expect("room")).collect();
        while let Some(entry) = enter(&crowd, "192.0.2.66") {
            there.push(entry);
        }
        assert_eq!(there.len(), 200 + LEAVING_MAX);
    }
}
