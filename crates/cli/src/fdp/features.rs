//! `fdp feature`, `fdp set-events`.

use anyhow::Result;
use clap::Args;
use unvme::Device;
use unvme::fdp::{PlacementHandle, State};
use unvme_spec::admin::SetFeatures;
use unvme_spec::feature::{FdpEvents, FdpEventsEnable, fid};
use unvme_spec::{Nsid, Status};

use super::Group;
use crate::exit::usage;
use crate::numbers;
use crate::output::Output;
use crate::target::{DeviceArg, Force, NamespaceArg};
use crate::value::fields;

/// Arguments of `fdp feature`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without an option the present state is shown. FDP can be changed only while the endurance group has
no namespaces: `unvme delete-ns -n 0xffffffff` deletes all of them, with their data.

Examples:
  unvme fdp feature 0000:02:00.0
  unvme fdp feature 0000:02:00.0 --enable-conf-idx 1
  unvme fdp feature 0000:02:00.0 --disable")]
pub(crate) struct Feature {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    group: Group,
    /// Enable FDP with this configuration, an index into `unvme fdp configs`
    #[arg(short = 'c', long, value_name = "INDEX", value_parser = numbers::u8)]
    enable_conf_idx: Option<u8>,
    /// Disable FDP
    #[arg(short, long, conflicts_with = "enable_conf_idx")]
    disable: bool,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: Output,
}

impl Feature {
    pub(super) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        match (self.enable_conf_idx, self.disable) {
            (None, false) => self.show(&device),
            (index, _) => {
                let what = "fdp feature changes how all of the endurance group is written";
                self.force.confirm(&device, what)?;
                self.change(&device, index)
            }
        }
    }

    fn show(&self, device: &Device) -> Result<()> {
        let State { enabled, configuration: index } = device.fdp_of(self.group.endgid)?.state()?;
        let json = fields! { "endgid": self.group.endgid, "fdpe": enabled, "fdpcidx": index };
        self.output.output.show(json, |out| {
            writeln!(out, "Endurance Group                               : {}", self.group.endgid)?;
            let enabled = if enabled { "Yes" } else { "No" };
            writeln!(out, "Flexible Direct Placement Enable (FDPE)       : {enabled}")?;
            writeln!(out, "Flexible Direct Placement Configuration Index : {index}")
        })
    }

    fn change(&self, device: &Device, index: Option<u8>) -> Result<()> {
        let fdp = device.fdp_of(self.group.endgid)?;
        match index {
            Some(index) => fdp.enable(index)?,
            None => fdp.disable()?,
        }
        let endgid = self.group.endgid;
        let json = fields! { "endgid": endgid, "fdpe": index.is_some() };
        let (json, line) = match index {
            Some(index) => (
                json.with("fdpcidx", index),
                format!("Success enabling Endurance Group: {endgid}, FDP configuration index: {index}"),
            ),
            None => (json, format!("Success disabling Endurance Group: {endgid}")),
        };
        self.output.output.say(json, line)
    }
}

/// Arguments of `fdp set-events`.
#[derive(Debug, Args)]
#[command(after_help = "\
Events of hosts: 0 reclaim unit not fully written, 1 time limit exceeded, 2 reset modified reclaim
unit handles, 3 invalid placement identifier. Of the controller: 0x80 media reallocated, 0x81
implicitly modified reclaim unit handle. The choice is saved, as every program that opens a device
resets it.

Example: unvme fdp set-events 0000:02:00.0 -p 0 -t 0,3,0x80 --enable")]
pub(crate) struct SetEvents {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    namespace: NamespaceArg,
    /// Placement handle of the namespace
    #[arg(short, long, value_name = "HANDLE", default_value = "0", value_parser = numbers::u16)]
    placement_handle: u16,
    /// Record these events; without this, do not
    #[arg(short, long)]
    enable: bool,
    /// Save the choice; it is anyway
    #[arg(short, long = "save", hide = true)]
    _save: bool,
    /// Event types, separated by commas
    #[arg(short = 't', long, value_name = "LIST", value_delimiter = ',', required = true, value_parser = numbers::u8)]
    event_types: Vec<u8>,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: Output,
}

impl SetEvents {
    pub(super) fn run(self) -> Result<()> {
        let count = u8::try_from(self.event_types.len())
            .map_err(|_| usage(format!("--event-types: {} of them, at most 255", self.event_types.len())))?;
        let device = self.device.open()?;
        let nsid = self.namespace.choose_any(&device)?;
        self.check(&device, nsid)?;
        self.force.confirm(&device, "fdp set-events is kept over power cycles")?;
        let which = FdpEvents::new().with_placement_handle(self.placement_handle).with_event_types(count);
        let command = SetFeatures {
            nsid,
            fid: fid::FLEXIBLE_DATA_PLACEMENT_EVENTS,
            save: true,
            cdw11: which.into_bits(),
            cdw12: FdpEventsEnable::new().with_enabled(self.enable).into_bits(),
            ..Default::default()
        };
        device.admin(|controller| controller.set_feature(command, &self.event_types))?;
        let json = fields! {
            "nsid": nsid.0, "placement_handle": self.placement_handle, "enabled": self.enable,
            "event_types": self.event_types,
        };
        self.output.output.say(json, "set-events: Success")
    }

    /// Names what the device would refuse as an invalid field.
    fn check(&self, device: &Device, nsid: Nsid) -> Result<()> {
        let handle = self.placement_handle;
        let known = device.fdp()?.event_types(nsid, PlacementHandle(handle)).map_err(|error| match error
            .status()
            .map(Status::kind)
        {
            Some(Status::INVALID_FIELD) => {
                usage(format!("{}: namespace {nsid} has no placement handle {handle}", device.name()))
            }
            _ => error.into(),
        })?;
        let types = known.iter().map(|(known, _)| known.0);
        match self.event_types.iter().find(|&&wanted| types.clone().all(|known| known != wanted)) {
            None => Ok(()),
            Some(unknown) => {
                let list: Vec<String> = types.map(|known| format!("{known:#x}")).collect();
                Err(usage(format!(
                    "--event-types: {} records no events of type {unknown:#x}, expected some of {}",
                    device.name(),
                    list.join(", ")
                )))
            }
        }
    }
}
