//! Values of features: a controller's, and those that all controllers share (Base 4.4).
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

mod hot;
mod values;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use unvme_bus::Clock;
use unvme_spec::Nsid;
use unvme_spec::feature::{
    Arbitration, AsyncEventConfiguration, HostBehaviorSupport, NumberOfQueues, Select, TemperatureThreshold,
    Timestamp, VolatileWriteCache, fid,
};
use unvme_spec::log_page::critical_warning;

use crate::config::SsdConfig;
pub(crate) use hot::HotFeatures;
pub(crate) use values::{SENSOR_ALL, capabilities, checked, threshold_index};
use values::{THRESHOLD_OVER, THRESHOLD_UNDER};

/// Warning composite temperature in kelvins.
pub(crate) const WCTEMP: u16 = 343;
/// Composite temperature in kelvins: 40 degrees Celsius, always.
pub(crate) const TEMPERATURE: u16 = 313;

/// Arbitration burst without a limit.
const BURST_UNLIMITED: u8 = 7;
/// Commands in a round of weighted round robin, to one of low priority.
const HIGH_WEIGHT: u8 = 16;
const MEDIUM_WEIGHT: u8 = 4;
const NS_PER_MS: u64 = 1_000_000;

/// A feature's value that outlives resets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedFeature {
    fid: u8,
    /// Which of the feature's values: a namespace, an interrupt vector, a temperature threshold.
    index: u32,
    value: u32,
}

/// What of the features survives the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FeaturesState {
    saved: Vec<SavedFeature>,
}

/// Feature identifier, and which of the feature's values.
type Key = (u8, u32);

/// Values that a controller's features have now. One that is not in the table is the default.
pub(crate) struct Features {
    io_queues: u16,
    current: BTreeMap<Key, u32>,
    timestamp: ControllerTime,
    pub(crate) host_behavior: HostBehaviorSupport,
}

/// Values of features of namespaces now, and the values of all features that are saved. Identifiers of
/// controllers do not outlive a process: what one of them saves is what all of them start with.
pub(crate) struct SharedFeatures {
    current: BTreeMap<Key, u32>,
    saved: BTreeMap<Key, u32>,
}

/// True for features that have a value for each namespace, whichever controller asks.
const fn is_of_namespace(fid: u8) -> bool {
    matches!(fid, fid::ERROR_RECOVERY | fid::KEY_VALUE_CONFIGURATION)
}

impl SharedFeatures {
    pub(crate) fn new(config: &SsdConfig, state: FeaturesState) -> Self {
        let vectors = config.io_queues + 1;
        let mut saved = BTreeMap::new();
        for SavedFeature { fid, index, value } in state.saved {
            let possible = capabilities(fid, false).filter(|c| c.saveable()).and_then(|c| {
                let (place, value) = checked(fid, value, vectors, true).ok()?;
                (place == index || c.namespace_specific()).then_some(value)
            });
            match possible {
                Some(value) => _ = saved.insert((fid, index), value),
                None => tracing::warn!(fid, index, value, "a saved feature is not possible and is ignored"),
            }
        }
        Self { current: saved.clone(), saved }
    }

    /// Saved values come back, everything else becomes the default: all controllers have been reset.
    pub(crate) fn reset(&mut self) {
        self.current = self.saved.clone();
    }

    pub(crate) fn saved_values(&self) -> BTreeMap<Key, u32> {
        self.saved.clone()
    }

    /// The value of a feature that is shared: the one in force, or the one that is saved. A feature that was
    /// never saved, or cannot be, has its default as the saved value (Base 4.4).
    pub(crate) fn selected(&self, select: Select, fid: u8, index: u32) -> Option<u32> {
        match select {
            Select::Current if is_of_namespace(fid) => self.current.get(&(fid, index)).copied(),
            Select::Saved => self.saved.get(&(fid, index)).copied(),
            _ => None,
        }
    }

    /// Takes over what is shared of a value that a host has set; returns what was saved before.
    pub(crate) fn set(&mut self, fid: u8, indices: &[u32], value: u32, save: bool) -> BTreeMap<Key, u32> {
        let saved_before = self.saved_values();
        for &index in indices {
            if is_of_namespace(fid) {
                self.current.insert((fid, index), value);
            }
            if save {
                self.saved.insert((fid, index), value);
            }
        }
        saved_before
    }

    /// What was saved before is what is saved again: the store did not take the new values.
    pub(crate) fn take_back(&mut self, saved_before: BTreeMap<Key, u32>) {
        self.saved = saved_before;
    }

    /// What [`SharedFeatures::new`] needs to continue.
    pub(crate) fn saved(&self) -> FeaturesState {
        let saved = self.saved.iter().map(|(&(fid, index), &value)| SavedFeature { fid, index, value });
        FeaturesState { saved: saved.collect() }
    }

    /// Forgets the values of a namespace that has been deleted.
    pub(crate) fn forget_namespace(&mut self, nsid: Nsid) {
        for fid in [fid::ERROR_RECOVERY, fid::KEY_VALUE_CONFIGURATION] {
            self.current.remove(&(fid, nsid.0));
            self.saved.remove(&(fid, nsid.0));
        }
    }

    /// The value in force of a feature of namespaces: the default is zero for all of them.
    pub(crate) fn value(&self, fid: u8, nsid: Nsid) -> u32 {
        self.current.get(&(fid, nsid.0)).copied().unwrap_or(0)
    }
}

impl Features {
    /// Of a controller that has just been made.
    pub(crate) fn new(config: &SsdConfig, shared: &SharedFeatures) -> Self {
        Self {
            io_queues: config.io_queues,
            current: shared.saved_values(),
            timestamp: ControllerTime::default(),
            host_behavior: HostBehaviorSupport::default(),
        }
    }

    /// Controller level reset: `saved` values come back, everything else becomes the default (Base 4.4).
    pub(crate) fn reset(&mut self, saved: BTreeMap<Key, u32>) {
        self.current = saved;
        self.timestamp = ControllerTime::default();
        self.host_behavior = HostBehaviorSupport::default();
    }

    /// The value in force of a feature of the controller.
    pub(crate) fn value(&self, fid: u8, index: u32) -> u32 {
        self.or_default(self.current.get(&(fid, index)), fid, index)
    }

    /// The value of a feature, of which `shared` is what [`SharedFeatures::selected`] says.
    pub(crate) fn selected(&self, select: Select, shared: Option<u32>, fid: u8, index: u32) -> u32 {
        match select {
            Select::Current if !is_of_namespace(fid) => self.value(fid, index),
            _ => self.or_default(shared.as_ref(), fid, index),
        }
    }

    /// Takes over what is the controller's of a value that a host has set. Returns what the I/O path has to
    /// know, and the critical warnings that are to be reported since then.
    pub(crate) fn set(&mut self, fid: u8, indices: &[u32], value: u32) -> (HotFeatures, u8) {
        let before = self.reported_warnings();
        if !is_of_namespace(fid) {
            self.current.extend(indices.iter().map(|&index| ((fid, index), value)));
        }
        (HotFeatures::new(self), self.reported_warnings() & !before)
    }

    fn or_default(&self, value: Option<&u32>, fid: u8, index: u32) -> u32 {
        value.copied().unwrap_or_else(|| self.default_of(fid, index))
    }

    fn default_of(&self, fid: u8, index: u32) -> u32 {
        match fid {
            fid::ARBITRATION => Arbitration::new()
                .with_burst(BURST_UNLIMITED)
                .with_high_weight_z(HIGH_WEIGHT - 1)
                .with_medium_weight_z(MEDIUM_WEIGHT - 1)
                .into_bits(),
            fid::TEMPERATURE_THRESHOLD => {
                let threshold = TemperatureThreshold::from_bits(index);
                let kelvins = if threshold.kind() == THRESHOLD_OVER { WCTEMP } else { 0 };
                threshold.with_kelvins(kelvins).into_bits()
            }
            fid::VOLATILE_WRITE_CACHE => VolatileWriteCache::new().with_enabled(true).into_bits(),
            // As many as there are, whatever was asked for: the number must not change between resets.
            fid::NUMBER_OF_QUEUES => NumberOfQueues::new()
                .with_submission_z(self.io_queues - 1)
                .with_completion_z(self.io_queues - 1)
                .into_bits(),
            fid::INTERRUPT_VECTOR_CONFIGURATION => index,
            _ => 0,
        }
    }

    /// The host has set the Timestamp feature.
    pub(crate) fn knows_time(&self) -> bool {
        self.timestamp.attributes == Timestamp::ORIGIN_SET_FEATURES
    }

    /// The host says what time it is.
    pub(crate) fn set_timestamp(&mut self, milliseconds: u64, clock: &Clock) {
        let attributes = Timestamp::ORIGIN_SET_FEATURES;
        self.timestamp = ControllerTime { milliseconds, attributes, at: Some(clock.now()) };
    }

    /// The Timestamp feature at this moment.
    pub(crate) fn timestamp(&mut self, clock: &Clock) -> Timestamp {
        self.timestamp.now(clock)
    }

    /// Which events the host wants.
    pub(crate) fn async_events(&self) -> AsyncEventConfiguration {
        AsyncEventConfiguration::from_bits(self.value(fid::ASYNC_EVENT_CONFIGURATION, 0))
    }

    /// Critical warnings of the SMART log: the temperature against its two thresholds.
    pub(crate) fn critical_warnings(&self) -> u8 {
        let threshold = |kind| {
            let index = TemperatureThreshold::new().with_kind(kind).into_bits();
            TemperatureThreshold::from_bits(self.value(fid::TEMPERATURE_THRESHOLD, index)).kelvins()
        };
        let crossed = TEMPERATURE >= threshold(THRESHOLD_OVER) || TEMPERATURE <= threshold(THRESHOLD_UNDER);
        if crossed { critical_warning::TEMPERATURE } else { 0 }
    }

    /// Critical warnings that are to be reported as events.
    fn reported_warnings(&self) -> u8 {
        self.critical_warnings() & self.async_events().smart_critical_warnings()
    }
}

/// The Timestamp feature: what the host said the time was, and when.
#[derive(Clone, Copy, Default)]
struct ControllerTime {
    milliseconds: u64,
    attributes: u8,
    /// Clock when that was the time. A reset is not handed a clock: the count starts when features are next
    /// looked at.
    at: Option<u64>,
}

impl ControllerTime {
    fn now(&mut self, clock: &Clock) -> Timestamp {
        let now = clock.now();
        let passed = now.saturating_sub(*self.at.get_or_insert(now)) / NS_PER_MS;
        Timestamp::new(self.milliseconds.wrapping_add(passed), self.attributes)
    }
}
