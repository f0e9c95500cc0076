//! The features of Flexible Data Placement: 1Dh, which enables it, and 1Eh, which events are recorded (Base
//! 5.1.25.1.20, 5.1.25.1.21).
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use unvme_spec::admin::{GetFeatures, SetFeatures};
use unvme_spec::fdp::EventType;
use unvme_spec::feature::{FdpEvents, FdpEventsEnable, FlexibleDataPlacement, Select};
use unvme_spec::{Nsid, Sqe, Status};
use zerocopy::IntoBytes;

use super::features::INVALID_FIELD;
use crate::Ssd;
use crate::fdp::{Counted, ENDURANCE_GROUP};
use crate::queue::SubmissionQueue;

impl Ssd {
    /// Get Features of feature 1Dh.
    pub(super) fn get_placement(&self, get: GetFeatures) -> Result<u64, Status> {
        if get.cdw11 as u16 != ENDURANCE_GROUP {
            return Err(INVALID_FIELD);
        }
        let index = match get.select {
            Select::Default => None,
            // A change is always saved.
            _ => self.fdp.enabled(),
        };
        let value =
            FlexibleDataPlacement::new().with_enabled(index.is_some()).with_configuration(index.unwrap_or(0));
        Ok(value.into_bits().into())
    }

    /// Set Features of feature 1Dh. What is so already is set again at any time; everything else has to be
    /// saved, and wants an endurance group without namespaces.
    pub(super) fn set_placement(&self, set: SetFeatures) -> Result<u64, Status> {
        let value = FlexibleDataPlacement::from_bits(set.cdw12);
        let index = value.enabled().then_some(value.configuration());
        let fdp = &self.fdp;
        if set.cdw11 as u16 != ENDURANCE_GROUP || fdp.geometry_of(index).is_none() {
            return Err(INVALID_FIELD);
        }
        let before = fdp.enabled();
        if index == before {
            return Ok(0);
        }
        if !set.save {
            return Err(INVALID_FIELD);
        }
        if self.namespaces.get().iter().next().is_some() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.with_do_not_retry());
        }
        self.divide_flash(index)?;
        self.subsystem.save_state().inspect_err(|_| {
            if self.divide_flash(before).is_err() {
                tracing::error!("the flash could not be divided as before");
            }
        })?;
        Ok(0)
    }

    /// Makes the translation layer anew for a configuration, or for none.
    fn divide_flash(&self, index: Option<u8>) -> Result<(), Status> {
        let fdp = &self.fdp;
        let (Some(flash), Some(geometry)) = (self.media.flash(), fdp.geometry_of(index)) else {
            return Err(Status::INTERNAL_ERROR);
        };
        flash.watch().stop();
        let counted = Counted::from(&flash.stats());
        flash.reconfigure(geometry).map_err(|error| {
            tracing::error!(%error, "the flash could not be divided anew");
            Status::INTERNAL_ERROR
        })?;
        fdp.enable(index, counted);
        fdp.start_watching(flash);
        self.time_units();
        self.subsystem.saving.changed();
        Ok(())
    }

    /// Reclaim unit handle of a placement handle of a namespace.
    fn ruh_of(&self, nsid: Nsid, value: FdpEvents) -> Result<u16, Status> {
        if self.fdp.enabled().is_none() {
            return Err(Status::FDP_DISABLED.with_do_not_retry());
        }
        let table = self.namespaces.get();
        let ruhs = table.active(nsid.0)?.handles.ruhs();
        ruhs.get(usize::from(value.placement_handle())).copied().ok_or(INVALID_FIELD)
    }

    /// Get Features of feature 1Eh: every event type there is, whatever the host has room for, and how many.
    pub(super) fn get_placement_events(&self, get: GetFeatures, data: &mut Vec<u8>) -> Result<u64, Status> {
        let ruh = self.ruh_of(get.nsid, FdpEvents::from_bits(get.cdw11))?;
        let events = self.fdp.events(ruh, get.select);
        data.extend(events.as_bytes());
        Ok(events.len() as u64)
    }

    /// Set Features of feature 1Eh.
    pub(super) fn set_placement_events(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        set: SetFeatures,
    ) -> Result<u64, Status> {
        let value = FdpEvents::from_bits(set.cdw11);
        let ruh = self.ruh_of(set.nsid, value)?;
        let data = match value.event_types() {
            0 => Vec::new(),
            count => self.receive(sq, sqe, count.into())?,
        };
        let types: Vec<EventType> = data.into_iter().map(EventType).collect();
        let (fdp, enabled) = (&self.fdp, FdpEventsEnable::from_bits(set.cdw12).enabled());
        if !fdp.set_events(ruh, &types, enabled, set.save) {
            return Err(INVALID_FIELD);
        }
        if let Some(flash) = self.media.flash() {
            flash.watch().want_moves(fdp.wants_moves());
        }
        if set.save {
            self.subsystem.saving.changed();
            self.subsystem.save_state()?;
        }
        Ok(0)
    }
}
