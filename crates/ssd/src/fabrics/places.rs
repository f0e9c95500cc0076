//! Who has the controllers of a subsystem, and who gives way when there are too few for all.
//!
//! A host that still has to prove its name has a place among few: few per origin, few per claimed name, few
//! altogether, and the oldest gives way. The others share what is left: as long as there is room anybody may
//! have any number, and then whoever has most gives way to whoever has less, those without an I/O queue
//! first.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use super::guest::Guest;
use crate::association::{Association, EndReason};
use crate::{CONTROLLERS_MAX, Ssd};

/// Most controllers of one origin whose hosts still have to prove who they are.
pub(super) const UNPROVEN_PER_ORIGIN: usize = 8;
/// Most controllers under one claimed name whose hosts still have to prove it.
pub(super) const UNPROVEN_PER_NAME: usize = 8;
/// Most controllers of a subsystem whose hosts still have to prove who they are.
pub(super) const UNPROVEN_MAX: usize = 16;
/// Most controllers of all others, where hosts have to prove who they are: the first controller is not for
/// the network.
pub(super) const PROVEN_MAX: usize = CONTROLLERS_MAX - 1 - UNPROVEN_MAX;

/// A controller of a host.
struct Place {
    controller: Weak<Ssd>,
    association: Arc<Association>,
    origin: String,
    guest: Guest,
    is_unproven: bool,
}

impl Place {
    fn is_gone(&self) -> bool {
        self.controller.strong_count() == 0
    }

    fn is_live(&self) -> bool {
        !self.is_gone() && self.association.ended().is_none()
    }

    /// It has no I/O queue.
    fn is_bare(&self) -> bool {
        !self.association.has_io_queues()
    }

    fn give_way(&self) {
        self.association.end(EndReason::GaveWay);
    }
}

/// Who wants a place.
pub(super) struct Newcomer<'a> {
    pub(super) origin: &'a str,
    pub(super) guest: &'a Guest,
    /// It has to prove its name first.
    pub(super) is_unproven: bool,
}

/// The places of a subsystem, the oldest first.
#[derive(Default)]
pub(super) struct Places {
    places: Vec<Place>,
}

impl Places {
    /// A host has a controller.
    pub(super) fn enter(&mut self, newcomer: &Newcomer<'_>, controller: &Arc<Ssd>) {
        let Some(association) = &controller.association else { return };
        self.places.retain(|place| !place.is_gone());
        self.places.push(Place {
            controller: Arc::downgrade(controller),
            association: Arc::clone(association),
            origin: newcomer.origin.to_owned(),
            guest: newcomer.guest.clone(),
            is_unproven: newcomer.is_unproven,
        });
    }

    /// Controllers of its hosts.
    pub(super) fn controllers(&self) -> impl Iterator<Item = Arc<Ssd>> {
        self.places.iter().filter_map(|place| place.controller.upgrade())
    }

    /// Keeps the places of those who prove nothing few: the oldest gives way to `newcomer`.
    pub(super) fn limit_unproven(&self, newcomer: &Newcomer<'_>) {
        let names = |place: &&Place| match (&place.guest, newcomer.guest) {
            (Guest::Named { hostnqn: one, .. }, Guest::Named { hostnqn: two, .. }) => one == two,
            _ => false,
        };
        let comes_along = |place: &&Place| place.origin == newcomer.origin;
        self.limit(comes_along, UNPROVEN_PER_ORIGIN);
        self.limit(names, UNPROVEN_PER_NAME);
        self.limit(|_| true, UNPROVEN_MAX);
    }

    /// Leaves room for one more among the unproven that `which` is about: the oldest of the origin that has
    /// most of them gives way.
    fn limit(&self, which: impl Fn(&&Place) -> bool, most: usize) {
        let there: Vec<&Place> =
            self.places.iter().filter(|place| place.is_unproven && place.is_live()).filter(which).collect();
        if there.len() < most {
            return;
        }
        let count = |origin: &str| there.iter().filter(|place| place.origin == origin).count();
        let largest = there.iter().map(|place| count(&place.origin)).max().unwrap_or_default();
        if let Some(oldest) = there.iter().find(|place| count(&place.origin) == largest) {
            oldest.give_way();
        }
    }

    /// There is no controller for `newcomer`. True when it is worth waiting: somebody is on the way out, or
    /// has been told to go.
    pub(super) fn make_room(&self, newcomer: &Newcomer<'_>) -> bool {
        let is_leaving = |place: &Place| !place.is_gone() && !place.is_live();
        if self.places.iter().any(is_leaving) {
            return true;
        }
        let unproven = self.live().find(|place| place.is_unproven);
        let victim = match unproven {
            Some(oldest) => Some(oldest),
            None if newcomer.is_unproven => None,
            None => self.victim_for(newcomer.guest),
        };
        victim.inspect(|victim| victim.give_way()).is_some()
    }

    /// Whether a host that has proven who it is, or need not where others must, can have a place for good;
    /// another one may have to give way for that.
    pub(super) fn admit(&self, guest: &Guest) -> bool {
        if self.live().filter(|place| !place.is_unproven).count() < PROVEN_MAX {
            return true;
        }
        self.victim_for(guest).inspect(|victim| victim.give_way()).is_some()
    }

    /// A host has proven its name. False when there is no place for it.
    pub(super) fn prove(&mut self, cntlid: u16, guest: Guest) -> bool {
        let is_admitted = self.admit(&guest);
        let is_it =
            |place: &&mut Place| place.controller.upgrade().is_some_and(|it| it.controller_id() == cntlid);
        if let Some(place) = self.places.iter_mut().find(is_it) {
            place.guest = guest;
            place.is_unproven = false;
        }
        is_admitted
    }

    fn live(&self) -> impl Iterator<Item = &Place> {
        self.places.iter().filter(|place| place.is_live())
    }

    /// Who gives way to `guest`: one of those who have most, if that is more than it would have then; with
    /// as few as itself, who does not use what it has.
    fn victim_for(&self, guest: &Guest) -> Option<&Place> {
        let standing: Vec<&Place> = self.live().filter(|place| !place.is_unproven).collect();
        let kin: Vec<&Place> = standing.iter().copied().filter(|place| place.guest.is_kin(guest)).collect();
        let by_kin = |place: &Place| match &place.guest {
            Guest::Proven(name) => (true, name.clone()),
            Guest::Named { origin, .. } => (false, origin.clone()),
        };
        largest(&standing, kin.len(), by_kin)
            .or_else(|| {
                let namesakes = kin.iter().filter(|place| place.guest == *guest).count();
                largest(&kin, namesakes, |place| place.guest.clone())
            })
            .or_else(|| kin.iter().copied().find(|place| place.is_bare()))
            .or_else(|| standing.iter().copied().find(|place| place.is_bare()))
    }
}

/// One of the largest group of `places`, when that has at least two more than `mine`: the oldest without an
/// I/O queue, or else the youngest.
fn largest<'a, K: Ord>(places: &[&'a Place], mine: usize, by: impl Fn(&Place) -> K) -> Option<&'a Place> {
    let mut groups: BTreeMap<K, Vec<&'a Place>> = BTreeMap::new();
    for place in places {
        groups.entry(by(place)).or_default().push(place);
    }
    let group = groups.into_values().max_by_key(Vec::len).filter(|group| group.len() > mine + 1)?;
    group.iter().copied().find(|place| place.is_bare()).or_else(|| group.last().copied())
}
