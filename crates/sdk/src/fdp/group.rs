//! An endurance group: what it can be made of, whether FDP is enabled, what it counts and records.

use unvme_driver::{Controller, FdpConfiguration};
use unvme_spec::feature::FlexibleDataPlacement;
use unvme_spec::identify::ctratt;
use unvme_spec::{Nsid, Status};

use super::{Event, EventType, PlacementHandle, Rgif, RuhType, RuhUse, advise, explain};
use crate::{Device, Error, Result};

pub use unvme_driver::FdpEventSource as EventSource;

/// Flexible Data Placement of an endurance group.
#[derive(Clone, Copy, Debug)]
pub struct Fdp<'a> {
    device: &'a Device,
    group: u16,
}

/// Whether FDP is enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// It is enabled.
    pub enabled: bool,
    /// Index of the configuration it is enabled with, or was last.
    pub configuration: u8,
}

/// What an endurance group can be made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// FDP can be enabled with it.
    pub valid: bool,
    /// There is a volatile write cache.
    pub volatile_write_cache: bool,
    /// Reclaim groups.
    pub groups: u32,
    /// How reclaim group and placement handle share a placement identifier.
    pub format: Rgif,
    /// What garbage collection may mix, by reclaim unit handle.
    pub handles: Vec<RuhType>,
    /// Most placement identifiers that [`crate::Block::update_handles`] can be given at a time.
    pub placements_max: u32,
    /// Most namespaces; 0 is no limit of its own.
    pub namespaces_max: u32,
    /// Nominal size of a reclaim unit in bytes.
    pub unit_bytes: u64,
    /// How long a reclaim unit may be open in seconds; 0 is no limit.
    pub unit_seconds_max: u32,
}

impl From<&FdpConfiguration> for Configuration {
    fn from(read: &FdpConfiguration) -> Self {
        let descriptor = &read.descriptor;
        Self {
            valid: descriptor.fdpa.valid(),
            volatile_write_cache: descriptor.fdpa.volatile_write_cache(),
            groups: descriptor.nrg,
            // Four bits: always one of the 17 formats.
            format: Rgif::new(descriptor.fdpa.rgif()).unwrap_or_default(),
            handles: read.handles.iter().map(|handle| handle.ruht).collect(),
            placements_max: u32::from(descriptor.maxpids_z) + 1,
            namespaces_max: descriptor.nnss,
            unit_bytes: descriptor.runs,
            unit_seconds_max: descriptor.erutl,
        }
    }
}

/// Bytes an endurance group has written and erased since FDP was enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Written by hosts.
    pub host_bytes: u128,
    /// Written to the media: for hosts, and to move data.
    pub media_bytes: u128,
    /// Erased on the media.
    pub erased_bytes: u128,
}

impl Statistics {
    /// Write amplification since `earlier`: bytes written to the media for each that hosts wrote. `None` when
    /// hosts wrote nothing since, or `earlier` is later.
    pub fn write_amplification_since(&self, earlier: &Self) -> Option<f64> {
        let host = self.host_bytes.checked_sub(earlier.host_bytes).filter(|bytes| *bytes > 0)?;
        let media = self.media_bytes.checked_sub(earlier.media_bytes)?;
        Some(media as f64 / host as f64)
    }
}

impl Device {
    /// Flexible Data Placement of the device's first endurance group.
    ///
    /// # Errors
    /// As [`Device::fdp_of`].
    pub fn fdp(&self) -> Result<Fdp<'_>> {
        self.fdp_of(1)
    }

    /// Flexible Data Placement of endurance group `group`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the device has no Flexible Data Placement, [`Error::Argument`] when it has
    /// no such endurance group; as [`Device::admin`].
    pub fn fdp_of(&self, group: u16) -> Result<Fdp<'_>> {
        let identify = self.admin(Controller::identify_controller)?;
        if identify.ctratt & ctratt::FLEXIBLE_DATA_PLACEMENT == 0 {
            return Err(Error::Unsupported {
                name: self.name().to_owned(),
                reason:
                    "the device has no Flexible Data Placement; a virtual one has it when it is created with \
                         --fdp, or named mem:block:SIZE,fdp"
                        .to_owned(),
            });
        }
        if !(1..=identify.endgidmax).contains(&group) {
            return Err(Error::Argument(format!(
                "{}: there is no endurance group {group}; the device has 1 to {}",
                self.name(),
                identify.endgidmax
            )));
        }
        Ok(Fdp { device: self, group })
    }
}

impl Fdp<'_> {
    /// Identifier of the endurance group.
    pub fn group(&self) -> u16 {
        self.group
    }

    /// What the group can be made of, by configuration index.
    ///
    /// # Errors
    /// As [`Device::admin`].
    pub fn configurations(&self) -> Result<Vec<Configuration>> {
        let read = self.device.admin(|controller| controller.fdp_configurations(self.group))?;
        Ok(read.iter().map(Configuration::from).collect())
    }

    /// Whether FDP is enabled, and with which configuration.
    ///
    /// # Errors
    /// As [`Device::admin`].
    pub fn state(&self) -> Result<State> {
        let value = self.device.admin(|controller| controller.fdp(self.group))?;
        Ok(State { enabled: value.enabled(), configuration: value.configuration() })
    }

    /// Enables FDP with a configuration. The group must not have namespaces.
    ///
    /// # Errors
    /// [`Error::Argument`] for a configuration there is not, with how many there are, or one that is not
    /// valid; [`Error::Device`] with [`Status::COMMAND_SEQUENCE_ERROR`] while there are namespaces.
    pub fn enable(&self, configuration: u8) -> Result<()> {
        let configurations = self.configurations()?;
        let name = self.device.name();
        match configurations.get(usize::from(configuration)) {
            None => Err(Error::Argument(format!(
                "{name}: there is no FDP configuration {configuration}; endurance group {} has {}, counted from 0",
                self.group,
                configurations.len()
            ))),
            Some(chosen) if !chosen.valid => Err(Error::Argument(format!(
                "{name}: FDP configuration {configuration} of endurance group {} is not valid",
                self.group
            ))),
            Some(_) => {
                self.set(FlexibleDataPlacement::new().with_enabled(true).with_configuration(configuration))
            }
        }
    }

    /// Disables FDP. The group must not have namespaces.
    ///
    /// # Errors
    /// [`Error::Device`] with [`Status::COMMAND_SEQUENCE_ERROR`] while there are namespaces.
    pub fn disable(&self) -> Result<()> {
        self.set(FlexibleDataPlacement::new().with_configuration(self.state()?.configuration))
    }

    fn set(&self, value: FlexibleDataPlacement) -> Result<()> {
        let done = self.device.admin(|controller| controller.set_fdp(self.group, value));
        done.map_err(|e| match e.status().map(Status::kind) {
            Some(Status::COMMAND_SEQUENCE_ERROR) => advise(e, &self.namespaces_first()),
            _ => e,
        })
    }

    fn namespaces_first(&self) -> String {
        let there = self.device.admin(Controller::allocated_namespaces).unwrap_or_default();
        let there: Vec<String> = there.iter().map(ToString::to_string).collect();
        format!(
            "FDP can change only without namespaces: delete those of endurance group {}; the device has namespaces {}",
            self.group,
            there.join(", ")
        )
    }

    /// Who uses each reclaim unit handle, by its identifier.
    ///
    /// # Errors
    /// As [`Device::admin`]; [`Status::FDP_DISABLED`].
    pub fn usage(&self) -> Result<Vec<RuhUse>> {
        explain(self.device.admin(|controller| controller.fdp_ruh_usage(self.group)))
    }

    /// What was written and erased since FDP was enabled.
    ///
    /// # Errors
    /// As [`Fdp::usage`].
    pub fn statistics(&self) -> Result<Statistics> {
        let read = explain(self.device.admin(|controller| controller.fdp_statistics(self.group)))?;
        Ok(Statistics {
            host_bytes: read.hbmw.get(),
            media_bytes: read.mbmw.get(),
            erased_bytes: read.mbe.get(),
        })
    }

    /// What was recorded, oldest first; the device keeps the last 63 of each source.
    ///
    /// # Errors
    /// As [`Fdp::usage`].
    pub fn events(&self, source: EventSource) -> Result<Vec<Event>> {
        explain(self.device.admin(|controller| controller.fdp_events(self.group, source)))
    }

    /// The types of events that can be recorded for a placement handle of a namespace, and whether they are.
    ///
    /// # Errors
    /// As [`Fdp::usage`].
    pub fn event_types(&self, nsid: Nsid, handle: PlacementHandle) -> Result<Vec<(EventType, bool)>> {
        let read = explain(self.device.admin(|controller| controller.fdp_event_types(nsid, handle)))?;
        Ok(read.iter().map(|entry| (entry.event_type, entry.enabled())).collect())
    }

    /// Has events of `types` recorded for a placement handle of a namespace, or no longer.
    ///
    /// # Errors
    /// As [`Fdp::usage`]; [`Error::Argument`] for no types, or more than 255.
    pub fn set_events(
        &self,
        nsid: Nsid,
        handle: PlacementHandle,
        types: &[EventType],
        enabled: bool,
    ) -> Result<()> {
        explain(self.device.admin(|controller| controller.set_fdp_events(nsid, handle, types, enabled)))
    }
}
