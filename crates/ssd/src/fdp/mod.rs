//! Flexible Data Placement: hosts say which data belongs together (Base 8.1.10).
//!
//! A write names a placement identifier: a reclaim group and a **placement handle**, which is an index into a
//! list that the namespace has. The list gives a **reclaim unit handle** (RUH) of the endurance group;
//! several namespaces may share it. For each RUH and reclaim group the translation layer has one open reclaim
//! unit. There is one endurance group, number 1: the device.
//!
//! | file | concept |
//! |---|---|
//! | `configuration` | the configurations a device offers |
//! | `handles` | the placement handles of a namespace, and where they put a write |
//! | `events` | which events are recorded, and the logs of those that were |
//! | `timer` | how long reclaim units have been open |
//! | `attend` | when something is to be done about what the layer has noted, and about time limits |
//! | `state` | what of it survives the process |
//!
//! **Events.** A write with an invalid placement identifier succeeds: the controller places it as it places
//! writes without one, and says so in the log. No asynchronous event announces FDP events; the specification
//! has none.
//!
//! **Locks.** [`Fdp`]'s own lock is taken before that of the translation layer, and that before the one of
//! the notes that it leaves ([`crate::flash::Watch`]).

mod attend;
mod configuration;
mod events;
mod handles;
mod state;
mod timer;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};
use unvme_bus::lock;
use unvme_flash::PAGE_BYTES;
use unvme_flash::ftl::Placement;
use unvme_spec::fdp::{Event, EventSupport, EventType, Statistics};
use unvme_spec::feature::{Select, Timestamp};

use crate::config::SsdConfig;
use crate::flash::{FlashGeometry, FlashStats};

pub(crate) use configuration::{Configuration, log_page as configurations_page};
use events::{EventLog, EventSet};
pub(crate) use handles::{ChosenBy, Handles};
pub(crate) use state::{FdpState, SavedHandles};
use timer::OpenUnits;

/// Identifier of the only endurance group.
pub(crate) const ENDURANCE_GROUP: u16 = 1;

/// Nothing has to be looked at, however late it is.
const NEVER: u64 = u64::MAX;

/// FDP's state of a device. Without flash it offers nothing and nothing of it can be enabled.
pub(crate) struct Fdp {
    /// Whether the device has an endurance group: flash.
    has_flash: bool,
    configurations: Vec<Configuration>,
    /// Geometry while FDP is disabled: everything goes to its handle 0.
    conventional: FlashGeometry,
    /// FDP is enabled; lets the engine ask without the lock.
    active: AtomicBool,
    /// Events have been recorded that have no time yet.
    unstamped: AtomicBool,
    /// Clock reading from which on reclaim units' time limits have to be looked at.
    due: AtomicU64,
    /// The latest clock reading.
    latest: AtomicU64,
    /// Held by who turns notes into events.
    attending: Mutex<()>,
    state: Mutex<State>,
}

/// Bytes written and erased: since the flash was divided as it is, or before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Counted {
    host_bytes: u64,
    media_bytes: u64,
    erased_bytes: u64,
}

impl From<&FlashStats> for Counted {
    fn from(stats: &FlashStats) -> Self {
        let FlashStats { ftl, padded_bytes, .. } = stats;
        Self {
            // A power cut may have taken pages whose padding had been saved.
            host_bytes: (ftl.host_pages * PAGE_BYTES).saturating_sub(*padded_bytes),
            media_bytes: ftl.media_bytes(),
            erased_bytes: ftl.erased_pages * PAGE_BYTES,
        }
    }
}

impl Counted {
    fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// Log page 22h.
    pub(crate) fn statistics(self) -> Statistics {
        let mut statistics = Statistics::default();
        statistics.hbmw = u128::from(self.host_bytes).into();
        statistics.mbmw = u128::from(self.media_bytes).into();
        statistics.mbe = u128::from(self.erased_bytes).into();
        statistics
    }

    /// Bytes written to the media.
    pub(crate) fn media_bytes(self) -> u64 {
        self.media_bytes
    }

    fn plus(self, other: Self) -> Self {
        Self {
            host_bytes: self.host_bytes.saturating_add(other.host_bytes),
            media_bytes: self.media_bytes.saturating_add(other.media_bytes),
            erased_bytes: self.erased_bytes.saturating_add(other.erased_bytes),
        }
    }
}

struct State {
    /// Index of the configuration that is enabled.
    enabled: Option<u8>,
    /// Events that are recorded, by reclaim unit handle: now, and after a reset.
    current: Vec<EventSet>,
    saved: Vec<EventSet>,
    host: EventLog,
    controller: EventLog,
    /// What had been counted when the flash was divided as it is: the translation layer has counted from zero
    /// since.
    before: Counted,
    /// What flash that does not outlive its process has counted since, in earlier ones.
    earlier: Counted,
    open: OpenUnits,
    /// Clock reading at which events were saved last; `None` while all are.
    unsaved_since: Option<u64>,
}

impl State {
    fn log(&mut self, event_type: EventType) -> &mut EventLog {
        if event_type.is_host() { &mut self.host } else { &mut self.controller }
    }

    /// Forgets everything, for a configuration of so many handles.
    fn clear(&mut self, configuration: Option<(u8, &Configuration)>, before: Counted) {
        let handles = configuration.map_or(0, |(_, configuration)| configuration.handles().into());
        *self = Self {
            enabled: configuration.map(|(index, _)| index),
            current: vec![EventSet::default(); handles],
            saved: vec![EventSet::default(); handles],
            host: EventLog::default(),
            controller: EventLog::default(),
            before,
            earlier: Counted::default(),
            open: OpenUnits::new(configuration.map_or(0, |(_, configuration)| configuration.time_limit_s)),
            unsaved_since: None,
        };
    }
}

impl Fdp {
    /// A new device's: disabled, or with the configuration enabled that `config` names.
    pub(crate) fn new(config: &SsdConfig) -> Self {
        let fdp = Self::disabled(config);
        fdp.enable(config.fdp, Counted::default());
        fdp
    }

    fn disabled(config: &SsdConfig) -> Self {
        let offers = config.flash.as_ref().map(|flash| configuration::offered(flash, config.bytes));
        let conventional = config.flash.as_ref().map(|flash| flash.geometry.clone());
        Self {
            has_flash: config.flash.is_some(),
            configurations: offers.unwrap_or_default(),
            conventional: conventional.unwrap_or_default(),
            active: AtomicBool::new(false),
            unstamped: AtomicBool::new(false),
            due: AtomicU64::new(NEVER),
            latest: AtomicU64::new(0),
            attending: Mutex::new(()),
            state: Mutex::new(State {
                enabled: None,
                current: Vec::new(),
                saved: Vec::new(),
                host: EventLog::default(),
                controller: EventLog::default(),
                before: Counted::default(),
                earlier: Counted::default(),
                open: OpenUnits::default(),
                unsaved_since: None,
            }),
        }
    }

    /// While this is held nobody turns notes into events.
    pub(crate) fn attending(&self) -> MutexGuard<'_, ()> {
        lock(&self.attending)
    }

    /// The device has flash, and with it an endurance group.
    pub(crate) fn has_flash(&self) -> bool {
        self.has_flash
    }

    /// The configurations of log page 20h.
    pub(crate) fn configurations(&self) -> &[Configuration] {
        &self.configurations
    }

    /// A configuration that can be enabled.
    pub(crate) fn valid(&self, index: u8) -> Option<&Configuration> {
        self.configurations.get(usize::from(index)).filter(|configuration| configuration.is_valid)
    }

    /// Index of the configuration that is enabled.
    pub(crate) fn enabled(&self) -> Option<u8> {
        lock(&self.state).enabled
    }

    /// The configuration that is enabled.
    pub(crate) fn configuration(&self) -> Option<&Configuration> {
        self.valid(self.enabled()?)
    }

    /// The geometry in force.
    pub(crate) fn geometry(&self) -> &FlashGeometry {
        self.configuration().map_or(&self.conventional, |configuration| &configuration.geometry)
    }

    /// The geometry with a configuration enabled, or with none. `None` when it cannot be enabled.
    pub(crate) fn geometry_of(&self, index: Option<u8>) -> Option<&FlashGeometry> {
        match index {
            Some(index) => self.valid(index).map(|configuration| &configuration.geometry),
            None => Some(&self.conventional),
        }
    }

    /// Enables a configuration, or disables FDP: statistics, events and what is recorded start anew.
    /// `counted` is what has been counted since this was done the last time.
    pub(crate) fn enable(&self, index: Option<u8>, counted: Counted) {
        let configuration = index.and_then(|index| Some((index, self.valid(index)?)));
        let mut state = lock(&self.state);
        let before = state.before.plus(state.earlier).plus(counted);
        state.clear(configuration, before);
        drop(state);
        self.due.store(NEVER, Ordering::Relaxed);
        self.unstamped.store(false, Ordering::Relaxed);
        self.active.store(configuration.is_some(), Ordering::Release);
    }

    /// Controller level reset: what is recorded is what was saved.
    pub(crate) fn reset(&self) {
        let mut state = lock(&self.state);
        state.current = state.saved.clone();
    }

    /// Makes events of `types` of a reclaim unit handle be recorded or not. False, and nothing is changed,
    /// when a type is not known.
    pub(crate) fn set_events(&self, ruh: u16, types: &[EventType], enabled: bool, save: bool) -> bool {
        let mut state = lock(&self.state);
        let Some(mut current) = state.current.get(usize::from(ruh)).copied() else { return false };
        let mut saved = state.saved.get(usize::from(ruh)).copied().unwrap_or_default();
        if !types.iter().all(|&event_type| current.set(event_type, enabled) && saved.set(event_type, enabled))
        {
            return false;
        }
        if let Some(set) = state.current.get_mut(usize::from(ruh)) {
            *set = current;
        }
        if let Some(set) = state.saved.get_mut(usize::from(ruh)).filter(|_| save) {
            *set = saved;
        }
        true
    }

    /// The events a reclaim unit handle can have, and which of them are recorded.
    pub(crate) fn events(&self, ruh: u16, select: Select) -> Vec<EventSupport> {
        let state = lock(&self.state);
        let sets = match select {
            Select::Current => Some(&state.current),
            Select::Saved => Some(&state.saved),
            _ => None,
        };
        let set = sets.and_then(|sets| sets.get(usize::from(ruh))).copied().unwrap_or_default();
        set.supported().to_vec()
    }

    /// Moves of data are to be noted: an event of theirs is recorded for some handle.
    pub(crate) fn wants_moves(&self) -> bool {
        lock(&self.state).current.iter().any(|set| set.contains(EventType::MEDIA_REALLOCATED))
    }

    /// Records an event when that is wanted for its reclaim unit handle.
    pub(crate) fn record(&self, ruh: u16, event: Event) {
        let mut state = lock(&self.state);
        if state.current.get(usize::from(ruh)).is_some_and(|set| set.contains(event.event_type)) {
            self.put(&mut state, event);
        }
    }

    fn put(&self, state: &mut State, event: Event) {
        tracing::debug!(?event.event_type, ?event.flags, pid = event.pid.get(), "FDP event");
        state.log(event.event_type).record(event);
        self.unstamped.store(true, Ordering::Relaxed);
    }

    /// Gives events that have none their time.
    pub(crate) fn stamp(&self, now: Timestamp) {
        let mut state = lock(&self.state);
        state.host.stamp(now);
        state.controller.stamp(now);
        self.unstamped.store(false, Ordering::Relaxed);
    }

    /// Log page 23h: host events, or controller events.
    pub(crate) fn events_page(&self, hosts: bool) -> Vec<u8> {
        let state = lock(&self.state);
        if hosts { state.host.page() } else { state.controller.page() }
    }

    /// What had been counted when the flash was divided as it is.
    pub(crate) fn counted_before(&self) -> Counted {
        let state = lock(&self.state);
        state.before.plus(state.earlier)
    }

    /// What has been counted since, with what the flash counts in this process.
    pub(crate) fn counted_since(&self, stats: &FlashStats) -> Counted {
        let earlier = lock(&self.state).earlier;
        earlier.plus(stats.into())
    }

    /// When the next reclaim unit will have been open for too long.
    pub(crate) fn next_due(&self) -> Option<u64> {
        Some(self.due.load(Ordering::Relaxed)).filter(|&due| due != NEVER)
    }

    /// EARUTR of a reclaim unit handle and group.
    pub(crate) fn seconds_left(&self, at: Placement, now: u64) -> u32 {
        lock(&self.state).open.seconds_left(at, now)
    }
}
