//! Get and Set Features (Base 5.1.11, 5.1.25; NVM 4.1.3).
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use unvme_bus::Clock;
use unvme_spec::admin::{GetFeatures, SetFeatures};
use unvme_spec::feature::{
    Arbitration, AsyncEventConfiguration, Capabilities, ErrorRecovery, HostBehaviorSupport,
    InterruptCoalescing, InterruptVectorConfiguration, IoCommandSetProfile, NumberOfQueues, PowerManagement,
    Select, TemperatureThreshold, Timestamp, VolatileWriteCache, WriteAtomicity, fid,
};
use unvme_spec::log_page::critical_warning;
use unvme_spec::{Nsid, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use super::identify::WCTEMP;
use crate::Ssd;
use crate::config::SsdConfig;
use crate::engine::lock;
use crate::queue::SubmissionQueue;

/// Composite temperature in kelvins: 40 degrees Celsius, always.
pub(super) const TEMPERATURE: u16 = 313;

const INVALID_FIELD: Status = Status::INVALID_FIELD.with_do_not_retry();
/// Arbitration burst without a limit.
const BURST_UNLIMITED: u8 = 7;
/// Unit of the coalescing time.
const COALESCING_UNIT_NS: u64 = 100_000;
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

/// Values of all features. A value that is not in a table is the default.
pub(crate) struct Features {
    io_queues: u16,
    current: BTreeMap<Key, u32>,
    saved: BTreeMap<Key, u32>,
    timestamp: ControllerTime,
    host_behavior: HostBehaviorSupport,
}

impl Features {
    pub(crate) fn new(config: &SsdConfig, state: FeaturesState) -> Self {
        let vectors = config.io_queues + 1;
        let mut saved = BTreeMap::new();
        for SavedFeature { fid, index, value } in state.saved {
            let saveable = capabilities(fid).is_some_and(|c| c.saveable());
            match checked(fid, value, vectors) {
                Ok((_, value)) if saveable => {
                    saved.insert((fid, index), value);
                }
                _ => tracing::warn!(fid, index, value, "a saved feature is not possible and is ignored"),
            }
        }
        Self {
            io_queues: config.io_queues,
            current: saved.clone(),
            saved,
            timestamp: ControllerTime::default(),
            host_behavior: HostBehaviorSupport::default(),
        }
    }

    /// Controller level reset: saved values come back, everything else becomes the default (Base 4.4).
    pub(crate) fn reset(&mut self) {
        self.current = self.saved.clone();
        self.timestamp = ControllerTime::default();
        self.host_behavior = HostBehaviorSupport::default();
    }

    /// What [`Features::new`] needs to continue.
    pub(crate) fn saved(&self) -> FeaturesState {
        let saved = self.saved.iter().map(|(&(fid, index), &value)| SavedFeature { fid, index, value });
        FeaturesState { saved: saved.collect() }
    }

    /// Forgets the values of a namespace that has been deleted.
    pub(super) fn forget_namespace(&mut self, nsid: Nsid) {
        self.current.remove(&(fid::ERROR_RECOVERY, nsid.0));
        self.saved.remove(&(fid::ERROR_RECOVERY, nsid.0));
    }

    /// The value in force.
    fn value(&self, fid: u8, index: u32) -> u32 {
        self.selected(Select::Current, fid, index)
    }

    fn selected(&self, select: Select, fid: u8, index: u32) -> u32 {
        let set = match select {
            Select::Current => self.current.get(&(fid, index)),
            // A feature that was never saved, or cannot be, has its default as the saved value (Base 4.4).
            Select::Saved => self.saved.get(&(fid, index)),
            _ => None,
        };
        set.copied().unwrap_or_else(|| self.default_of(fid, index))
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

/// THSEL of an over temperature threshold.
const THRESHOLD_OVER: u8 = 0;
/// THSEL of an under temperature threshold.
const THRESHOLD_UNDER: u8 = 1;
/// TMPSEL of the composite temperature, the only one there is.
const SENSOR_COMPOSITE: u8 = 0;
/// TMPSEL of all temperatures.
const SENSOR_ALL: u8 = 0xf;

/// What can be done with a feature; `None` for one that is not supported.
pub(super) fn capabilities(fid: u8) -> Option<Capabilities> {
    let fixed = Capabilities::new();
    let changeable = fixed.with_changeable(true);
    let saveable = changeable.with_saveable(true);
    Some(match fid {
        fid::ARBITRATION
        | fid::TEMPERATURE_THRESHOLD
        | fid::VOLATILE_WRITE_CACHE
        | fid::INTERRUPT_COALESCING
        | fid::INTERRUPT_VECTOR_CONFIGURATION
        | fid::WRITE_ATOMICITY
        | fid::ASYNC_EVENT_CONFIGURATION => saveable,
        fid::ERROR_RECOVERY => saveable.with_namespace_specific(true),
        fid::POWER_MANAGEMENT
        | fid::NUMBER_OF_QUEUES
        | fid::TIMESTAMP
        | fid::HOST_BEHAVIOR_SUPPORT
        | fid::IO_COMMAND_SET_PROFILE => changeable,
        // There is no keep alive timer (KAS is zero): its value is zero and stays so.
        fid::KEEP_ALIVE_TIMER => fixed,
        _ => return None,
    })
}

/// Checks dword 11 of Set Features for a feature that is nothing but that dword; returns which of the feature's values
/// it is (namespaces aside) and what to keep of it. Reserved bits are not kept.
fn checked(fid: u8, value: u32, vectors: u16) -> Result<(u32, u32), Status> {
    let kept = match fid {
        fid::ARBITRATION => {
            let new = Arbitration::from_bits(value);
            Arbitration::new()
                .with_burst(new.burst())
                .with_low_weight_z(new.low_weight_z())
                .with_medium_weight_z(new.medium_weight_z())
                .with_high_weight_z(new.high_weight_z())
                .into_bits()
        }
        fid::POWER_MANAGEMENT => {
            let new = PowerManagement::from_bits(value);
            if new.power_state() != 0 {
                return Err(INVALID_FIELD);
            }
            PowerManagement::new().with_workload_hint(new.workload_hint()).into_bits()
        }
        fid::TEMPERATURE_THRESHOLD => return checked_threshold(value),
        fid::ERROR_RECOVERY => {
            let new = ErrorRecovery::from_bits(value);
            if new.deallocated_error() {
                // NSFEAT of no namespace offers the error.
                return Err(INVALID_FIELD);
            }
            ErrorRecovery::new().with_time_limit(new.time_limit()).into_bits()
        }
        fid::INTERRUPT_VECTOR_CONFIGURATION => {
            let new = InterruptVectorConfiguration::from_bits(value);
            if new.vector() >= vectors {
                return Err(INVALID_FIELD);
            }
            let kept = InterruptVectorConfiguration::new()
                .with_vector(new.vector())
                .with_coalescing_disable(new.coalescing_disable());
            return Ok((new.vector().into(), kept.into_bits()));
        }
        fid::ASYNC_EVENT_CONFIGURATION => {
            let new = AsyncEventConfiguration::from_bits(value);
            let offered = AsyncEventConfiguration::new()
                .with_smart_critical_warnings(new.smart_critical_warnings())
                .with_namespace_attributes(new.namespace_attributes())
                .with_firmware_activation(new.firmware_activation());
            if offered != new {
                // OAES does not offer the others.
                return Err(INVALID_FIELD);
            }
            value
        }
        fid::IO_COMMAND_SET_PROFILE => match IoCommandSetProfile::from_bits(value).index() {
            0 => 0,
            _ => return Err(Status::IO_COMMAND_SET_COMBINATION_REJECTED.with_do_not_retry()),
        },
        fid::VOLATILE_WRITE_CACHE => {
            VolatileWriteCache::new().with_enabled(VolatileWriteCache::from_bits(value).enabled()).into_bits()
        }
        fid::INTERRUPT_COALESCING => {
            let new = InterruptCoalescing::from_bits(value);
            InterruptCoalescing::new().with_threshold_z(new.threshold_z()).with_time(new.time()).into_bits()
        }
        fid::WRITE_ATOMICITY => WriteAtomicity::new()
            .with_disable_normal(WriteAtomicity::from_bits(value).disable_normal())
            .into_bits(),
        _ => return Err(INVALID_FIELD),
    };
    Ok((0, kept))
}

fn checked_threshold(value: u32) -> Result<(u32, u32), Status> {
    let new = TemperatureThreshold::from_bits(value);
    let index = threshold_index(new)?;
    Ok((index.into_bits(), index.with_kelvins(new.kelvins()).into_bits()))
}

/// Which threshold a value is for. There are no sensors besides the composite temperature, and no hysteresis.
fn threshold_index(value: TemperatureThreshold) -> Result<TemperatureThreshold, Status> {
    let sensor = matches!(value.sensor(), SENSOR_COMPOSITE | SENSOR_ALL);
    let kind = matches!(value.kind(), THRESHOLD_OVER | THRESHOLD_UNDER);
    if !sensor || !kind {
        return Err(INVALID_FIELD);
    }
    Ok(TemperatureThreshold::new().with_kind(value.kind()))
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

/// Features the I/O path looks at, without a lock.
pub(crate) struct HotFeatures {
    write_through: AtomicBool,
    arbitration_burst: AtomicU32,
    /// Completions to collect in bits 15:0 and how long, in units of 100 us, in bits 31:16; 0 when interrupts are not
    /// coalesced.
    coalescing: AtomicU32,
    /// A bit per interrupt vector that is not coalesced.
    immediate: [AtomicU64; 2],
}

impl HotFeatures {
    pub(crate) fn new(features: &Features) -> Self {
        let cache = VolatileWriteCache::from_bits(features.value(fid::VOLATILE_WRITE_CACHE, 0));
        let burst = match Arbitration::from_bits(features.value(fid::ARBITRATION, 0)).burst() {
            BURST_UNLIMITED => u32::MAX,
            // The two commands of a fused pair are taken together, so a turn is at least two commands long.
            burst => (1 << burst).max(2),
        };
        let coalescing = InterruptCoalescing::from_bits(features.value(fid::INTERRUPT_COALESCING, 0));
        let (threshold, time) = (u32::from(coalescing.threshold_z()) + 1, u32::from(coalescing.time()));
        // A threshold of one entry, and a time of zero, both mean: at once.
        let coalescing = if threshold > 1 && time > 0 { threshold | time << 16 } else { 0 };
        let mut immediate = [0u64; 2];
        for (&(_, vector), &value) in features
            .current
            .range((fid::INTERRUPT_VECTOR_CONFIGURATION, 0)..=(fid::INTERRUPT_VECTOR_CONFIGURATION, u32::MAX))
        {
            let disabled = InterruptVectorConfiguration::from_bits(value).coalescing_disable();
            if let Some(word) = immediate.get_mut(vector as usize / 64) {
                *word |= u64::from(disabled) << (vector % 64);
            }
        }
        Self {
            write_through: AtomicBool::new(!cache.enabled()),
            arbitration_burst: AtomicU32::new(burst),
            coalescing: AtomicU32::new(coalescing),
            immediate: immediate.map(AtomicU64::new),
        }
    }

    /// Takes over the values of `new`. An I/O queue may see some of them a moment before the others.
    pub(crate) fn replace(&self, new: &Self) {
        self.write_through.store(new.write_through.load(Ordering::Relaxed), Ordering::Relaxed);
        self.arbitration_burst.store(new.arbitration_burst.load(Ordering::Relaxed), Ordering::Relaxed);
        self.coalescing.store(new.coalescing.load(Ordering::Relaxed), Ordering::Relaxed);
        for (word, new) in self.immediate.iter().zip(&new.immediate) {
            word.store(new.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

impl Ssd {
    /// True when the volatile write cache is disabled: a write is on the media before it completes.
    #[inline]
    pub(crate) fn is_write_through(&self) -> bool {
        self.admin.hot.write_through.load(Ordering::Relaxed)
    }

    /// Most commands taken from one submission queue in a turn.
    #[inline]
    pub(crate) fn arbitration_burst(&self) -> u32 {
        self.admin.hot.arbitration_burst.load(Ordering::Relaxed)
    }

    /// True when interrupts are coalesced on any vector.
    #[inline]
    pub(crate) fn coalescing(&self) -> bool {
        self.admin.hot.coalescing.load(Ordering::Relaxed) != 0
    }

    /// Completions to collect before an interrupt on `vector`, and for how many nanoseconds at most; `None` when
    /// interrupts on it are not coalesced.
    pub(crate) fn coalescing_of(&self, vector: u16) -> Option<(u32, u64)> {
        let packed = self.admin.hot.coalescing.load(Ordering::Relaxed);
        let word = self.admin.hot.immediate.get(usize::from(vector) / 64)?;
        let immediate = word.load(Ordering::Relaxed) & 1 << (vector % 64) != 0;
        let (threshold, time) = (packed & 0xffff, packed >> 16);
        (packed != 0 && !immediate).then(|| (threshold, u64::from(time) * COALESCING_UNIT_NS))
    }

    pub(super) fn get_features(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        get: GetFeatures,
        clock: &Clock,
    ) -> Result<u64, Status> {
        let capabilities = capabilities(get.fid).ok_or(INVALID_FIELD)?;
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
            _ => {
                let index = self.index_to_get(get)?;
                Ok(lock(&self.admin.features).selected(get.select, get.fid, index).into())
            }
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
            fid::ERROR_RECOVERY if get.nsid != Nsid::NONE => {
                self.namespaces.get().active(get.nsid.0)?;
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
        let capabilities = capabilities(set.fid).ok_or(INVALID_FIELD)?;
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
        let (index, value) = checked(set.fid, set.cdw11, self.interrupts.vectors())?;
        let indices = match set.fid {
            fid::ERROR_RECOVERY => self.namespaces_to_set(set.nsid)?,
            fid::INTERRUPT_VECTOR_CONFIGURATION if !self.is_vector_in_use(index as u16) => {
                return Err(INVALID_FIELD);
            }
            _ => vec![index],
        };
        let (hot, appeared) = {
            let mut features = lock(&self.admin.features);
            let before = features.reported_warnings();
            for index in indices {
                features.current.insert((set.fid, index), value);
                if set.save {
                    features.saved.insert((set.fid, index), value);
                }
            }
            (HotFeatures::new(&features), features.reported_warnings() & !before)
        };
        self.admin.hot.replace(&hot);
        self.admin.critical_warnings_raised(appeared);
        if set.fid == fid::VOLATILE_WRITE_CACHE && self.is_write_through() {
            // What was cached when the cache was switched off is written out.
            self.media.sync()?;
        }
        if set.save {
            self.admin.changed();
            self.save_state()?;
        }
        Ok(0)
    }

    /// Namespaces that a value is set for: the one named, or all that are attached.
    fn namespaces_to_set(&self, nsid: Nsid) -> Result<Vec<u32>, Status> {
        let namespaces = self.namespaces.get();
        if nsid == Nsid::ALL {
            return Ok(namespaces.iter().filter(|n| n.attached).map(|n| n.nsid.0).collect());
        }
        Ok(vec![namespaces.active(nsid.0)?.nsid.0])
    }
}
