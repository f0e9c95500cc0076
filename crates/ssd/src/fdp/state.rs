//! What of FDP survives the process.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use unvme_bus::lock;

use super::events::{EventLog, EventSet};
use super::{ChosenBy, Configuration, Counted, Fdp, Handles};
use crate::config::SsdConfig;
use crate::flash::Flash;

/// FDP's state as it is saved; a device without flash has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FdpState {
    /// Index of the configuration that is enabled.
    configuration: Option<u8>,
    /// Saved values of feature 1Eh by reclaim unit handle: a bit per event type, in increasing order of the
    /// types.
    events: Vec<u8>,
    /// Log page 23h, oldest first: 64 bytes each, as hexadecimal digits.
    host_events: Vec<String>,
    controller_events: Vec<String>,
    /// What had been counted when the flash was divided as it is.
    before: Counted,
    /// What flash that does not outlive its process has counted since.
    #[serde(default, skip_serializing_if = "Counted::is_zero")]
    earlier: Counted,
    /// [`FlashStats::padded_bytes`](crate::FlashStats::padded_bytes): a killed process loses what it has
    /// counted of it, and counts those pages as written whole.
    #[serde(default, skip_serializing_if = "is_zero")]
    padded_bytes: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A namespace's placement handles as they are saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedHandles {
    /// Reclaim unit handle by placement handle.
    ruhs: Vec<u16>,
    /// The host gave the list.
    by_host: bool,
    /// The Data Placement directive is enabled.
    directive: bool,
}

impl Fdp {
    /// Continues with what was saved; `None` is a device that has saved nothing of FDP. `flash` goes on
    /// counting.
    pub(crate) fn restore(
        config: &SsdConfig,
        saved: Option<FdpState>,
        flash: Option<&Flash>,
    ) -> Result<Self, String> {
        let fdp = Self::disabled(config);
        let Some(saved) = saved else { return Ok(fdp) };
        let Some(flash) = flash else { return Err("fdp is there, but the device has no flash".to_owned()) };
        flash.restore_padded_bytes(saved.padded_bytes);
        if let Some(index) = saved.configuration
            && fdp.valid(index).is_none()
        {
            return Err(format!("fdp: configuration {index} is not possible on this device"));
        }
        fdp.enable(saved.configuration, saved.before);
        let mut state = lock(&fdp.state);
        let sets: Option<Vec<EventSet>> = saved.events.into_iter().map(EventSet::from_bits).collect();
        let sets = sets.filter(|sets| sets.len() == state.saved.len());
        let sets = sets.ok_or("fdp: events are not one number of 6 bits per reclaim unit handle")?;
        state.earlier = saved.earlier;
        state.current.clone_from(&sets);
        state.saved = sets;
        let log = |saved: &[String], hosts| {
            EventLog::restore(saved, hosts).ok_or("fdp: the events are not at most 63 of 64 bytes each")
        };
        state.host = log(&saved.host_events, true)?;
        state.controller = log(&saved.controller_events, false)?;
        drop(state);
        Ok(fdp)
    }

    /// What [`Fdp::restore`] needs to continue.
    pub(crate) fn saved(&self, flash: Option<&Flash>) -> Option<FdpState> {
        let flash = flash?;
        // Flash that does not outlive the process counts from zero in the next one.
        let (since, padded_bytes) = match flash.persists() {
            true => (Counted::default(), flash.padded_bytes()),
            false => (Counted::from(&flash.stats()), 0),
        };
        let state = lock(&self.state);
        Some(FdpState {
            configuration: state.enabled,
            events: state.saved.iter().map(|set| set.into_bits()).collect(),
            host_events: state.host.saved(),
            controller_events: state.controller.saved(),
            before: state.before,
            earlier: state.earlier.plus(since),
            padded_bytes,
        })
    }

    /// Events have been recorded that are not saved; from now on they are about to be.
    pub(crate) fn take_unsaved(&self) -> bool {
        self.active.load(Ordering::Relaxed) && lock(&self.state).unsaved_since.take().is_some()
    }

    /// The placement handles of a namespace that was saved with `saved`.
    pub(crate) fn restore_handles(&self, saved: Option<SavedHandles>) -> Result<Arc<Handles>, String> {
        let Some(configuration) = self.configuration() else {
            return match saved {
                Some(_) => Err("it has placement handles, but FDP is disabled".to_owned()),
                None => Ok(self.no_handles()),
            };
        };
        let saved = saved.ok_or("it has no placement handles, but FDP is enabled")?;
        saved.restore(configuration)
    }

    /// The placement handles of a namespace while FDP is disabled.
    pub(crate) fn no_handles(&self) -> Arc<Handles> {
        Handles::conventional(self.geometry().groups)
    }

    /// A namespace's placement handles, to be saved; `None` while FDP is disabled.
    pub(crate) fn saved_handles(&self, handles: &Handles) -> Option<SavedHandles> {
        self.active.load(Ordering::Acquire).then(|| SavedHandles {
            ruhs: handles.ruhs().to_vec(),
            by_host: handles.chosen_by() == ChosenBy::Host,
            directive: handles.is_directive_enabled(),
        })
    }
}

impl SavedHandles {
    fn restore(self, configuration: &Configuration) -> Result<Arc<Handles>, String> {
        let handles = configuration.handles();
        let exist = self.ruhs.iter().all(|&ruh| ruh < handles);
        let mut sorted = self.ruhs.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let unique = sorted.len() == self.ruhs.len();
        if self.ruhs.is_empty() || !exist || !unique {
            return Err(format!("its placement handles are not different ones of the {handles} there are"));
        }
        if !self.by_host && self.ruhs.len() != 1 {
            return Err("it has several placement handles, none of which a host has asked for".to_owned());
        }
        let chosen_by = if self.by_host { ChosenBy::Host } else { ChosenBy::Controller };
        Ok(Handles::new(self.ruhs.into(), chosen_by, configuration, self.directive))
    }
}
