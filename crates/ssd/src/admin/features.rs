//! Get and Set Features (Base 5.1.11, 5.1.25; NVM 4.1.3).
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

mod hot;
mod placement;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use unvme_bus::{Clock, lock};
use unvme_spec::admin::{GetFeatures, SetFeatures};
use unvme_spec::feature::{
    Arbitration, AsyncEventConfiguration, Capabilities, HostBehaviorSupport, InterruptVectorConfiguration,
    KeyValueConfiguration, NumberOfQueues, Select, TemperatureThreshold, Timestamp, VolatileWriteCache, fid,
};
use unvme_spec::identify::csi;
use unvme_spec::log_page::critical_warning;
use unvme_spec::{Nsid, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use super::identify::WCTEMP;
use crate::Ssd;
use crate::config::SsdConfig;
use crate::namespace::{Contents, Namespace};
use crate::queue::SubmissionQueue;
use values::{SENSOR_ALL, THRESHOLD_OVER, THRESHOLD_UNDER, checked, threshold_index};

pub(crate) use hot::HotFeatures;
pub(super) use values::capabilities;

/// Composite temperature in kelvins: 40 degrees Celsius, always.
pub(super) const TEMPERATURE: u16 = 313;

const INVALID_FIELD: Status = Status::INVALID_FIELD.with_do_not_retry();
/// Arbitration burst without a limit.
const BURST_UNLIMITED: u8 = 7;
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
    host_behavior: HostBehaviorSupport,
}

/// Values of features of namespaces now, and the values of all features that are saved. Identifiers of controllers do not
/// outlive a process: what one of them saves is what all of them start with.
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

    /// The values that are saved.
    pub(super) fn saved_values(&self) -> BTreeMap<Key, u32> {
        self.saved.clone()
    }

    /// What [`SharedFeatures::new`] needs to continue.
    pub(crate) fn saved(&self) -> FeaturesState {
        let saved = self.saved.iter().map(|(&(fid, index), &value)| SavedFeature { fid, index, value });
        FeaturesState { saved: saved.collect() }
    }

    /// Forgets the values of a namespace that has been deleted.
    pub(super) fn forget_namespace(&mut self, nsid: Nsid) {
        for fid in [fid::ERROR_RECOVERY, fid::KEY_VALUE_CONFIGURATION] {
            self.current.remove(&(fid, nsid.0));
            self.saved.remove(&(fid, nsid.0));
        }
    }

    /// The value in force of a feature of namespaces: the default is zero for all of them.
    pub(super) fn value(&self, fid: u8, nsid: Nsid) -> u32 {
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
    pub(super) fn value(&self, fid: u8, index: u32) -> u32 {
        self.or_default(self.current.get(&(fid, index)), fid, index)
    }

    fn or_default(&self, value: Option<&u32>, fid: u8, index: u32) -> u32 {
        value.copied().unwrap_or_else(|| self.default_of(fid, index))
    }

    fn default_of(&self, fid: u8, index: u32) -> u32 {
        match fid {
            fid::ARBITRATION => Arbitration::new().with_burst(BURST_UNLIMITED).into_bits(),
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
    pub(super) fn knows_time(&self) -> bool {
        self.timestamp.attributes == Timestamp::ORIGIN_SET_FEATURES
    }

    /// The Timestamp feature at this moment.
    pub(super) fn timestamp(&mut self, clock: &Clock) -> Timestamp {
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
    /// Clock when that was the time. A reset is not handed a clock: the count starts when features are next looked at.
    at: Option<u64>,
}

impl ControllerTime {
    fn now(&mut self, clock: &Clock) -> Timestamp {
        let now = clock.now();
        let passed = now.saturating_sub(*self.at.get_or_insert(now)) / NS_PER_MS;
        Timestamp::new(self.milliseconds.wrapping_add(passed), self.attributes)
    }
}

impl Ssd {
    /// What can be done with a feature; `None` for one that this device does not support.
    fn capabilities(&self, fid: u8) -> Option<Capabilities> {
        let capabilities = capabilities(fid, self.admin.fdp.has_flash())?;
        let has_timer = fid == fid::KEEP_ALIVE_TIMER && self.association.is_some();
        Some(if has_timer { capabilities.with_changeable(true) } else { capabilities })
    }

    pub(super) fn get_features(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        get: GetFeatures,
        clock: &Clock,
    ) -> Result<u64, Status> {
        let capabilities = self.capabilities(get.fid).ok_or(INVALID_FIELD)?;
        match get.select {
            Select::Reserved(_) => return Err(INVALID_FIELD),
            Select::SupportedCapabilities => return Ok(capabilities.into_bits().into()),
            Select::Current | Select::Default | Select::Saved => {}
        }
        match get.fid {
            fid::TIMESTAMP => {
                let timestamp = match get.select {
                    Select::Current => lock(&self.admin.features).timestamp.now(clock),
                    _ => Timestamp::default(),
                };
                self.send(sq, sqe, timestamp.as_bytes())?;
                Ok(0)
            }
            fid::HOST_BEHAVIOR_SUPPORT => {
                let behavior = match get.select {
                    Select::Current => lock(&self.admin.features).host_behavior,
                    _ => HostBehaviorSupport::default(),
                };
                self.send(sq, sqe, behavior.as_bytes())?;
                Ok(0)
            }
            fid::KEEP_ALIVE_TIMER => Ok(self.keep_alive(get.select)),
            fid::FLEXIBLE_DATA_PLACEMENT => self.get_placement(get),
            fid::FLEXIBLE_DATA_PLACEMENT_EVENTS => self.get_placement_events(sq, sqe, get),
            _ => {
                let index = self.index_to_get(get)?;
                Ok(self.selected(get.select, get.fid, index).into())
            }
        }
    }

    fn selected(&self, select: Select, fid: u8, index: u32) -> u32 {
        let key = (fid, index);
        let set = {
            let shared = lock(&self.subsystem.admin.features);
            match select {
                Select::Current if is_of_namespace(fid) => shared.current.get(&key).copied(),
                // A feature that was never saved, or cannot be, has its default as the saved value (Base 4.4).
                Select::Saved => shared.saved.get(&key).copied(),
                _ => None,
            }
        };
        let features = lock(&self.admin.features);
        match select {
            Select::Current if !is_of_namespace(fid) => features.value(fid, index),
            _ => features.or_default(set.as_ref(), fid, index),
        }
    }

    /// Which of a feature's values Get Features asks for.
    fn index_to_get(&self, get: GetFeatures) -> Result<u32, Status> {
        match get.fid {
            fid::TEMPERATURE_THRESHOLD => {
                let asked = TemperatureThreshold::from_bits(get.cdw11);
                if asked.sensor() == SENSOR_ALL {
                    return Err(INVALID_FIELD);
                }
                Ok(threshold_index(asked)?.into_bits())
            }
            fid::INTERRUPT_VECTOR_CONFIGURATION => {
                let vector = InterruptVectorConfiguration::from_bits(get.cdw11).vector();
                if vector >= self.interrupts.vectors() {
                    return Err(INVALID_FIELD);
                }
                Ok(vector.into())
            }
            // Zero asks for no namespace's value in particular: hosts that probe for the feature do.
            fid::ERROR_RECOVERY | fid::KEY_VALUE_CONFIGURATION if get.nsid != Nsid::NONE => {
                check_command_set(get.fid, self.namespaces.get().active(get.nsid.0)?)?;
                Ok(get.nsid.0)
            }
            _ => Ok(0),
        }
    }

    pub(super) fn set_features(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        set: SetFeatures,
        clock: &Clock,
    ) -> Result<u64, Status> {
        let capabilities = self.capabilities(set.fid).ok_or(INVALID_FIELD)?;
        if set.save && !capabilities.saveable() {
            return Err(Status::FEATURE_NOT_SAVEABLE.with_do_not_retry());
        }
        let one_namespace = !matches!(set.nsid, Nsid::NONE | Nsid::ALL);
        if one_namespace && !capabilities.namespace_specific() {
            return Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC.with_do_not_retry());
        }
        if !capabilities.changeable() {
            return Err(Status::FEATURE_NOT_CHANGEABLE.with_do_not_retry());
        }
        match set.fid {
            fid::NUMBER_OF_QUEUES => self.set_number_of_queues(set.cdw11),
            fid::KEEP_ALIVE_TIMER => self.set_keep_alive(set.cdw11),
            fid::TIMESTAMP => {
                let data = self.receive(sq, sqe, size_of::<Timestamp>())?;
                let new = Timestamp::read_from_bytes(&data).map_err(|_| Status::INTERNAL_ERROR)?;
                lock(&self.admin.features).timestamp = ControllerTime {
                    milliseconds: new.milliseconds(),
                    attributes: Timestamp::ORIGIN_SET_FEATURES,
                    at: Some(clock.now()),
                };
                Ok(0)
            }
            fid::HOST_BEHAVIOR_SUPPORT => {
                let data = self.receive(sq, sqe, size_of::<HostBehaviorSupport>())?;
                let new = HostBehaviorSupport::read_from_bytes(&data).map_err(|_| Status::INTERNAL_ERROR)?;
                if [new.acre, new.etdas, new.lbafee, new.hdisns].iter().any(|&flag| flag > 1) {
                    return Err(INVALID_FIELD);
                }
                lock(&self.admin.features).host_behavior = new;
                Ok(0)
            }
            fid::FLEXIBLE_DATA_PLACEMENT => self.set_placement(set),
            fid::FLEXIBLE_DATA_PLACEMENT_EVENTS => self.set_placement_events(sq, sqe, set),
            _ => self.set_value(set),
        }
    }

    /// A host may ask until it has created queues. It gets what there is.
    fn set_number_of_queues(&self, value: u32) -> Result<u64, Status> {
        let asked = NumberOfQueues::from_bits(value);
        if asked.submission_z() == u16::MAX || asked.completion_z() == u16::MAX {
            return Err(INVALID_FIELD);
        }
        if self.has_io_queues() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.with_do_not_retry());
        }
        Ok(lock(&self.admin.features).value(fid::NUMBER_OF_QUEUES, 0).into())
    }

    /// A feature whose value is dword 11.
    fn set_value(&self, set: SetFeatures) -> Result<u64, Status> {
        let (index, value) =
            checked(set.fid, set.cdw11, self.interrupts.vectors(), self.association.is_some())?;
        let indices = match set.fid {
            fid::ERROR_RECOVERY | fid::KEY_VALUE_CONFIGURATION => self.namespaces_to_set(set)?,
            fid::IO_COMMAND_SET_PROFILE => {
                self.check_profile(value)?;
                vec![index]
            }
            fid::INTERRUPT_VECTOR_CONFIGURATION if !self.is_vector_in_use(index as u16) => {
                return Err(INVALID_FIELD);
            }
            _ => vec![index],
        };
        let saved_before = {
            let mut shared = lock(&self.subsystem.admin.features);
            let saved_before = shared.saved_values();
            for &index in &indices {
                if is_of_namespace(set.fid) {
                    shared.current.insert((set.fid, index), value);
                }
                if set.save {
                    shared.saved.insert((set.fid, index), value);
                }
            }
            saved_before
        };
        let (hot, appeared) = {
            let mut features = lock(&self.admin.features);
            let before = features.reported_warnings();
            if !is_of_namespace(set.fid) {
                features.current.extend(indices.into_iter().map(|index| ((set.fid, index), value)));
            }
            (HotFeatures::new(&features), features.reported_warnings() & !before)
        };
        self.admin.hot.replace(&hot);
        self.configure_pairs();
        self.admin.critical_warnings_raised(appeared);
        if set.fid == fid::VOLATILE_WRITE_CACHE && self.is_write_through() {
            // What was cached when the cache was switched off is written out.
            self.persist()?;
        }
        if set.save {
            self.subsystem.admin.changed();
            // The value is in force all the same; what the store does not have is not said to be saved.
            self.save_state().inspect_err(|_| {
                lock(&self.subsystem.admin.features).saved = saved_before;
                self.subsystem.admin.changed();
            })?;
        }
        Ok(0)
    }

    /// Namespaces that a value is set for: the one named, or all that are there for the host and can have it.
    fn namespaces_to_set(&self, set: SetFeatures) -> Result<Vec<u32>, Status> {
        let table = self.namespaces.get();
        if set.nsid == Nsid::ALL {
            let has = |n: &&Arc<Namespace>| table.is_active(n) && check_command_set(set.fid, n).is_ok();
            return Ok(table.iter().filter(has).map(|n| n.nsid.0).collect());
        }
        let namespace = table.active(set.nsid.0)?;
        check_command_set(set.fid, namespace)?;
        Ok(vec![namespace.nsid.0])
    }

    /// Hands the Key Value Configuration to all Key Value namespaces: after it has changed, or they have.
    pub(crate) fn configure_pairs(&self) {
        for namespace in self.namespaces.get().iter() {
            if let Contents::KeyValue(pairs) = &namespace.contents {
                let value =
                    lock(&self.subsystem.admin.features).value(fid::KEY_VALUE_CONFIGURATION, namespace.nsid);
                let configuration = KeyValueConfiguration::from_bits(value);
                pairs.set_delete_missing_is_error(configuration.delete_missing_is_error());
            }
        }
    }

    /// Closes the controller's iterators of all namespaces: the host that has opened them has gone or starts again.
    pub(crate) fn close_iterators(&self) {
        for pairs in self.namespaces.get().stores() {
            pairs.iterators.reset(self.cntlid);
        }
    }
}

/// A feature of one command set is not to be had for a namespace of another.
fn check_command_set(fid: u8, namespace: &Namespace) -> Result<(), Status> {
    let holds_pairs = namespace.csi() == csi::KEY_VALUE;
    if holds_pairs == (fid == fid::KEY_VALUE_CONFIGURATION) { Ok(()) } else { Err(INVALID_FIELD) }
}
