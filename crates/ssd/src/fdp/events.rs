//! FDP events (log page 23h, Base 5.1.12.1.31): which are recorded, and those that were.
//!
//! Whether an event is recorded is a property of the reclaim unit handle it happened to (feature 1Eh). An
//! event gets its time when a clock is at hand: at the end of the turn in which it happened, or when the log
//! is read.

use std::collections::VecDeque;

use unvme_spec::fdp::{EVENTS_MAX, Event, EventSupport, EventType, EventsHeader};
use unvme_spec::feature::Timestamp;
use zerocopy::{FromBytes, IntoBytes};

use crate::hex::{bytes_of, hexadecimal};

/// Bytes of the log page: a header and all the events there can be.
const LOG_BYTES: usize = size_of::<EventsHeader>() + EVENTS_MAX * size_of::<Event>();

/// A set of event types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventSet(u8);

impl EventSet {
    /// Bit of a type; `None` for one that this device does not know.
    fn bit(event_type: EventType) -> Option<u8> {
        EventType::NAMED.iter().position(|&named| named == event_type).map(|index| 1 << index)
    }

    /// A set as [`EventSet::into_bits`] has written it; `None` for bits that are no event.
    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        (bits >> EventType::NAMED.len() == 0).then_some(Self(bits))
    }

    /// A bit per type, in increasing order of the types.
    pub(crate) fn into_bits(self) -> u8 {
        self.0
    }

    pub(crate) fn contains(self, event_type: EventType) -> bool {
        Self::bit(event_type).is_some_and(|bit| self.0 & bit != 0)
    }

    /// Adds or removes a type. False when this device does not know it.
    pub(crate) fn set(&mut self, event_type: EventType, enabled: bool) -> bool {
        let Some(bit) = Self::bit(event_type) else { return false };
        self.0 = if enabled { self.0 | bit } else { self.0 & !bit };
        true
    }

    /// What Get Features of feature 1Eh lists: every type this device knows.
    pub(crate) fn supported(self) -> [EventSupport; EventType::NAMED.len()] {
        EventType::NAMED.map(|event_type| EventSupport::new(event_type, self.contains(event_type)))
    }
}

/// The most recent host events, or controller events, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventLog {
    events: VecDeque<Event>,
    /// How many of the last ones have no time yet.
    unstamped: usize,
}

impl EventLog {
    /// Records an event, whose time is not known yet. The oldest one makes room.
    pub(crate) fn record(&mut self, event: Event) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
        self.unstamped = (self.unstamped + 1).min(EVENTS_MAX);
    }

    /// It is `now`: what has no time yet has just happened.
    pub(crate) fn stamp(&mut self, now: Timestamp) {
        let stamped = self.events.len() - self.unstamped;
        for event in self.events.iter_mut().skip(stamped) {
            event.timestamp = now;
        }
        self.unstamped = 0;
    }

    /// Log page 23h.
    pub(crate) fn page(&self) -> Vec<u8> {
        let mut page = EventsHeader::new(self.events.len() as u32).as_bytes().to_vec();
        for event in &self.events {
            page.extend_from_slice(event.as_bytes());
        }
        page.resize(LOG_BYTES, 0);
        page
    }

    /// The events as they are saved: hexadecimal digits, 128 to an event.
    pub(crate) fn saved(&self) -> Vec<String> {
        self.events.iter().map(|event| hexadecimal(event.as_bytes())).collect()
    }

    /// What [`EventLog::saved`] has written; `None` when it is something else. `hosts` says which of the two
    /// logs it is.
    pub(crate) fn restore(saved: &[String], hosts: bool) -> Option<Self> {
        if saved.len() > EVENTS_MAX {
            return None;
        }
        let read = |digits: &String| {
            let event = Event::read_from_bytes(&bytes_of::<{ size_of::<Event>() }>(digits)?).ok()?;
            (event.event_type.is_host() == hosts).then_some(event)
        };
        let events = saved.iter().map(read).collect::<Option<VecDeque<Event>>>()?;
        Some(Self { events, unstamped: 0 })
    }
}
