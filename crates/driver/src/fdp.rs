//! Flexible Data Placement: the admin commands of an endurance group and of a namespace, typed.
//!
//! Writes that are placed, and reclaim unit handle status and update, are commands of a [`crate::Namespace`].

use unvme_spec::directive::{DirectiveReceive, IdentifyParameters, dtype, identify_operation};
use unvme_spec::fdp::{
    ConfigurationDescriptor, Configurations, ConfigurationsHeader, EVENTS_MAX, Event, EventSupport,
    EventType, EventsHeader, PlacementHandle, RuhDescriptor, RuhUsage, RuhUsageHeader, RuhUse, Statistics,
    events, lsp_host_events, ruh_usages,
};
use unvme_spec::feature::{FdpEvents, FdpEventsEnable, FlexibleDataPlacement, fid};
use unvme_spec::log_page::lid;
use unvme_spec::{Nsid, admin};
use zerocopy::{FromBytes, IntoBytes};

use crate::{Controller, Error, LogRequest};

/// Most bytes of log page 20h that are read: 65536 configurations of 64 KiB each would be possible, and none
/// is sane.
const CONFIGURATIONS_BYTES_MAX: u32 = 1 << 20;

/// Whose events a log of FDP events holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FdpEventSource {
    /// What hosts did.
    Host,
    /// What the controller did on its own.
    Controller,
}

/// A configuration of an endurance group, with its reclaim unit handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FdpConfiguration {
    /// The fixed part.
    pub descriptor: ConfigurationDescriptor,
    /// The handles, by identifier.
    pub handles: Vec<RuhDescriptor>,
}

impl Controller {
    /// FDP Configurations of endurance group `group` (log page 20h), by configuration index. Errors:
    /// [`Error::Status`]; [`Error::Protocol`] for a log page that is shorter than it says, or longer than 1
    /// MiB.
    pub fn fdp_configurations(&self, group: u16) -> Result<Vec<FdpConfiguration>, Error> {
        let request = LogRequest { lid: lid::FDP_CONFIGURATIONS, lsi: group, ..LogRequest::default() };
        let header: ConfigurationsHeader = self.get_log_as(request)?;
        if header.size > CONFIGURATIONS_BYTES_MAX {
            return Err(Error::Protocol(format!("FDP Configurations log page of {} bytes", header.size)));
        }
        let bytes = (header.size as usize).max(size_of::<ConfigurationsHeader>());
        let log = self.get_log(&LogRequest { bytes, ..request })?;
        let read: Vec<_> = Configurations::new(&log)
            .into_iter()
            .flatten()
            .map(|read| FdpConfiguration { descriptor: read.descriptor, handles: read.handles.to_vec() })
            .collect();
        if read.len() != usize::from(header.n_z) + 1 {
            return Err(Error::Protocol(format!(
                "FDP Configurations log page: {} of {} configurations in {bytes} bytes",
                read.len(),
                u32::from(header.n_z) + 1
            )));
        }
        Ok(read)
    }

    /// Who uses each reclaim unit handle of endurance group `group` (log page 21h), by handle. Errors:
    /// [`Error::Status`].
    pub fn fdp_ruh_usage(&self, group: u16) -> Result<Vec<RuhUse>, Error> {
        let request = LogRequest { lid: lid::FDP_HANDLE_USAGE, lsi: group, ..LogRequest::default() };
        let header: RuhUsageHeader = self.get_log_as(request)?;
        let bytes = size_of::<RuhUsageHeader>() + usize::from(header.nruh) * size_of::<RuhUsage>();
        let log = self.get_log(&LogRequest { bytes, ..request })?;
        Ok(ruh_usages(&log).into_iter().flatten().map(|usage| usage.ruha).collect())
    }

    /// FDP Statistics of endurance group `group` (log page 22h): bytes written by hosts, written to media,
    /// erased. Errors: [`Error::Status`].
    pub fn fdp_statistics(&self, group: u16) -> Result<Statistics, Error> {
        self.get_log_as(LogRequest { lid: lid::FDP_STATISTICS, lsi: group, ..LogRequest::default() })
    }

    /// FDP Events of endurance group `group` (log page 23h), oldest first, at most [`EVENTS_MAX`]. Errors:
    /// [`Error::Status`].
    pub fn fdp_events(&self, group: u16, source: FdpEventSource) -> Result<Vec<Event>, Error> {
        let request = LogRequest {
            lid: lid::FDP_EVENTS,
            lsp: lsp_host_events(source == FdpEventSource::Host),
            lsi: group,
            bytes: size_of::<EventsHeader>() + EVENTS_MAX * size_of::<Event>(),
            ..LogRequest::default()
        };
        let log = self.get_log(&request)?;
        Ok(events(&log).into_iter().flatten().collect())
    }

    /// Whether FDP is enabled in endurance group `group`, and its configuration (feature 1Dh). Errors:
    /// [`Error::Status`].
    pub fn fdp(&self, group: u16) -> Result<FlexibleDataPlacement, Error> {
        let command = admin::GetFeatures {
            fid: fid::FLEXIBLE_DATA_PLACEMENT,
            cdw11: group.into(),
            ..Default::default()
        };
        Ok(FlexibleDataPlacement::from(self.get_feature(command, 0)?.value))
    }

    /// Enables FDP with a configuration, or disables it (feature 1Dh). The endurance group must not have
    /// namespaces. The value is saved: controllers take no other change of it (Base 5.1.25.1.20). Errors:
    /// [`Error::Status`], for namespaces [`unvme_spec::Status::COMMAND_SEQUENCE_ERROR`].
    pub fn set_fdp(&self, group: u16, value: FlexibleDataPlacement) -> Result<(), Error> {
        let command = admin::SetFeatures {
            fid: fid::FLEXIBLE_DATA_PLACEMENT,
            save: true,
            cdw11: group.into(),
            cdw12: value.into(),
            ..Default::default()
        };
        self.set_feature(command, &[])?;
        Ok(())
    }

    /// The event types that can be recorded for a placement handle of a namespace, and which are (feature
    /// 1Eh). Errors: [`Error::Status`].
    pub fn fdp_event_types(&self, nsid: Nsid, handle: PlacementHandle) -> Result<Vec<EventSupport>, Error> {
        let room = FdpEvents::new().with_placement_handle(handle.0).with_event_types(u8::MAX);
        let command = admin::GetFeatures {
            nsid,
            fid: fid::FLEXIBLE_DATA_PLACEMENT_EVENTS,
            cdw11: room.into(),
            ..Default::default()
        };
        let answer = self.get_feature(command, EventSupport::LIST_BYTES_MAX)?;
        let (list, _) = answer.data.as_chunks::<{ size_of::<EventSupport>() }>();
        let count = usize::from(answer.value as u8);
        Ok(list.iter().take(count).filter_map(|entry| EventSupport::read_from_bytes(entry).ok()).collect())
    }

    /// Has events of `types` recorded for a placement handle of a namespace, or not (feature 1Eh). Errors:
    /// [`Error::Status`]; [`Error::InvalidArgument`] for no types, or more than 255.
    pub fn set_fdp_events(
        &self,
        nsid: Nsid,
        handle: PlacementHandle,
        types: &[EventType],
        enabled: bool,
    ) -> Result<(), Error> {
        let Some(count) = u8::try_from(types.len()).ok().filter(|count| *count > 0) else {
            return Err(Error::InvalidArgument(format!(
                "{} FDP event types: 1 to 255 can be enabled or disabled at a time",
                types.len()
            )));
        };
        let command = admin::SetFeatures {
            nsid,
            fid: fid::FLEXIBLE_DATA_PLACEMENT_EVENTS,
            cdw11: FdpEvents::new().with_placement_handle(handle.0).with_event_types(count).into(),
            cdw12: FdpEventsEnable::new().with_enabled(enabled).into(),
            ..Default::default()
        };
        self.set_feature(command, types.as_bytes())?;
        Ok(())
    }

    /// The directives a namespace supports and has enabled (Directive Receive, Identify, Return Parameters).
    /// Errors: [`Error::Status`].
    pub fn directives(&self, nsid: Nsid) -> Result<IdentifyParameters, Error> {
        let command = DirectiveReceive {
            nsid,
            dwords: size_of::<IdentifyParameters>() as u64 / 4,
            operation: identify_operation::RETURN_PARAMETERS,
            dtype: dtype::IDENTIFY,
            ..Default::default()
        };
        let sqe = admin::Command::DirectiveReceive(command).encode();
        let (_, data) = self.admin_receive(sqe, size_of::<IdentifyParameters>())?;
        IdentifyParameters::read_from_bytes(&data)
            .map_err(|_| Error::Protocol(format!("directives of namespace {nsid}: {} bytes", data.len())))
    }
}
