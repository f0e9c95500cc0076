//! Get and Set Features (Base 5.1.11, 5.1.25; NVM 4.1.3).
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use unvme_bus::{Clock, lock};
use unvme_spec::admin::{GetFeatures, SetFeatures};
use unvme_spec::feature::{
    Capabilities, HostBehaviorSupport, InterruptVectorConfiguration, KeyValueConfiguration, NumberOfQueues,
    Select, TemperatureThreshold, Timestamp, fid,
};
use unvme_spec::identify::csi;
use unvme_spec::{Nsid, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use crate::Ssd;
use crate::features::{SENSOR_ALL, capabilities, checked, threshold_index};
use crate::namespace::{Contents, Namespace};
use crate::queue::SubmissionQueue;
use crate::reply::Reply;

pub(super) const INVALID_FIELD: Status = Status::INVALID_FIELD.with_do_not_retry();

impl Ssd {
    /// What can be done with a feature; `None` for one that this device does not support.
    fn capabilities(&self, fid: u8) -> Option<Capabilities> {
        let capabilities = capabilities(fid, self.fdp.has_flash())?;
        let has_timer = fid == fid::KEEP_ALIVE_TIMER && self.association.is_some();
        Some(if has_timer { capabilities.with_changeable(true) } else { capabilities })
    }

    pub(super) fn get_features(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        get: GetFeatures,
        clock: &Clock,
    ) -> Result<Reply, Status> {
        let mut data = Vec::new();
        let result = self.feature(get, clock, &mut data)?;
        Ok(Reply { result, ..self.send_whole(sq, sqe, &data)? })
    }

    /// Value of a feature; what it has beside that is added to `data`.
    fn feature(&self, get: GetFeatures, clock: &Clock, data: &mut Vec<u8>) -> Result<u64, Status> {
        let capabilities = self.capabilities(get.fid).ok_or(INVALID_FIELD)?;
        match get.select {
            Select::Reserved(_) => return Err(INVALID_FIELD),
            Select::SupportedCapabilities => return Ok(capabilities.into_bits().into()),
            Select::Current | Select::Default | Select::Saved => {}
        }
        match get.fid {
            fid::TIMESTAMP => {
                let timestamp = match get.select {
                    Select::Current => lock(&self.features).timestamp(clock),
                    _ => Timestamp::default(),
                };
                data.extend(timestamp.as_bytes());
                Ok(0)
            }
            fid::HOST_BEHAVIOR_SUPPORT => {
                let behavior = match get.select {
                    Select::Current => lock(&self.features).host_behavior,
                    _ => HostBehaviorSupport::default(),
                };
                data.extend(behavior.as_bytes());
                Ok(0)
            }
            fid::KEEP_ALIVE_TIMER => Ok(self.keep_alive(get.select)),
            fid::FLEXIBLE_DATA_PLACEMENT => self.get_placement(get),
            fid::FLEXIBLE_DATA_PLACEMENT_EVENTS => self.get_placement_events(get, data),
            _ => {
                let index = self.index_to_get(get)?;
                Ok(self.selected(get.select, get.fid, index).into())
            }
        }
    }

    fn selected(&self, select: Select, fid: u8, index: u32) -> u32 {
        let shared = lock(&self.subsystem.features).selected(select, fid, index);
        lock(&self.features).selected(select, shared, fid, index)
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
                lock(&self.features).set_timestamp(new.milliseconds(), clock);
                Ok(0)
            }
            fid::HOST_BEHAVIOR_SUPPORT => {
                let data = self.receive(sq, sqe, size_of::<HostBehaviorSupport>())?;
                let new = HostBehaviorSupport::read_from_bytes(&data).map_err(|_| Status::INTERNAL_ERROR)?;
                if [new.acre, new.etdas, new.lbafee, new.hdisns].iter().any(|&flag| flag > 1) {
                    return Err(INVALID_FIELD);
                }
                lock(&self.features).host_behavior = new;
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
        if self.queues.has_io_queues() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.with_do_not_retry());
        }
        Ok(lock(&self.features).value(fid::NUMBER_OF_QUEUES, 0).into())
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
            fid::INTERRUPT_VECTOR_CONFIGURATION if !self.queues.is_vector_in_use(index as u16) => {
                return Err(INVALID_FIELD);
            }
            _ => vec![index],
        };
        let saved_before = lock(&self.subsystem.features).set(set.fid, &indices, value, set.save);
        let (hot, appeared) = lock(&self.features).set(set.fid, &indices, value);
        self.hot.replace(&hot);
        self.configure_pairs();
        self.events.critical_warnings_raised(appeared);
        if set.fid == fid::VOLATILE_WRITE_CACHE && self.hot.is_write_through() {
            // What was cached when the cache was switched off is written out.
            self.persist()?;
        }
        if set.save {
            self.subsystem.saving.changed();
            // The value is in force all the same; what the store does not have is not said to be saved.
            self.subsystem.save_state().inspect_err(|_| {
                lock(&self.subsystem.features).take_back(saved_before);
                self.subsystem.saving.changed();
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
                    lock(&self.subsystem.features).value(fid::KEY_VALUE_CONFIGURATION, namespace.nsid);
                let configuration = KeyValueConfiguration::from_bits(value);
                pairs.set_delete_missing_is_error(configuration.delete_missing_is_error());
            }
        }
    }

    /// Closes the controller's iterators of all namespaces: the host that has opened them has gone or starts
    /// again.
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
