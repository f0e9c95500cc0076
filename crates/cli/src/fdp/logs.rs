//! `fdp configs`, `fdp usage`, `fdp stats`, `fdp events`.

use anyhow::{Context, Result};
use clap::Args;
use unvme::fdp::EventSource;
use unvme::{Device, LogRequest};
use unvme_spec::fdp::{
    ConfigurationsHeader, EVENTS_MAX, Event, EventsHeader, RuhUsage, RuhUsageHeader, Statistics,
    lsp_host_events,
};
use unvme_spec::log_page::lid;
use zerocopy::FromBytes;

use super::Group;
use crate::output::{Output, write_raw};
use crate::show::fdp as show;
use crate::target::DeviceArg;

/// Most bytes of configurations that are read.
const CONFIGS_BYTES_MAX: usize = 1 << 20;

/// A log page of a group that there is, as it is; `bytes` finds its length in the first 16 of them.
fn raw(
    device: &Device,
    group: Group,
    lid: u8,
    lsp: u8,
    bytes: impl FnOnce(&[u8]) -> Option<usize>,
) -> Result<Vec<u8>> {
    device.fdp_of(group.endgid)?;
    let request = LogRequest { lid, lsp, lsi: group.endgid, bytes: 16, ..Default::default() };
    let header = device.admin(|controller| controller.get_log(&request))?;
    let bytes = bytes(&header).context("the log page has no header")?;
    Ok(device.admin(|controller| controller.get_log(&LogRequest { bytes, ..request }))?)
}

#[derive(Debug, Args)]
pub(crate) struct Configs {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    group: Group,
    /// Explain the attributes
    #[arg(short = 'H', long)]
    human_readable: bool,
    /// Write the log page as it is
    #[arg(short = 'b', long)]
    raw_binary: bool,
    #[command(flatten)]
    output: Output,
}

impl Configs {
    pub(super) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let log = raw(&device, self.group, lid::FDP_CONFIGURATIONS, 0, |header| {
            let (header, _) = ConfigurationsHeader::read_from_prefix(header).ok()?;
            Some((header.size as usize).clamp(size_of::<ConfigurationsHeader>(), CONFIGS_BYTES_MAX))
        })?;
        if self.raw_binary {
            return write_raw(&log);
        }
        self.output
            .output
            .show(show::configs(&log), |out| show::write_configs(out, &log, self.human_readable))
    }
}

#[derive(Debug, Args)]
pub(crate) struct Usage {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    group: Group,
    /// Write the log page as it is
    #[arg(short = 'b', long)]
    raw_binary: bool,
    #[command(flatten)]
    output: Output,
}

impl Usage {
    pub(super) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        if self.raw_binary {
            let log = raw(&device, self.group, lid::FDP_HANDLE_USAGE, 0, |header| {
                let (header, _) = RuhUsageHeader::read_from_prefix(header).ok()?;
                Some(size_of::<RuhUsageHeader>() + usize::from(header.nruh) * size_of::<RuhUsage>())
            })?;
            return write_raw(&log);
        }
        let handles = device.fdp_of(self.group.endgid)?.usage()?;
        self.output.output.show(show::usage(&handles), |out| show::write_usage(out, &handles))
    }
}

/// Arguments of `fdp stats`.
#[derive(Debug, Args)]
#[command(after_help = "\
The counters go on for the life of the endurance group. What a workload did is the difference of
two readings: write amplification is the media bytes of one divided by its host bytes.")]
pub(crate) struct Stats {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    group: Group,
    /// Write the log page as it is
    #[arg(short = 'b', long)]
    raw_binary: bool,
    #[command(flatten)]
    output: Output,
}

impl Stats {
    pub(super) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        if self.raw_binary {
            let log = raw(&device, self.group, lid::FDP_STATISTICS, 0, |_| Some(size_of::<Statistics>()))?;
            return write_raw(&log);
        }
        let log = device.fdp_of(self.group.endgid)?.statistics()?;
        self.output.output.show(show::stats(&log), |out| show::write_stats(out, &log))
    }
}

/// Arguments of `fdp events`.
#[derive(Debug, Args)]
#[command(after_help = "\
Only events that `unvme fdp set-events` has enabled are recorded.")]
pub(crate) struct Events {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    group: Group,
    /// Events of hosts instead of the controller's
    #[arg(short = 'E', long)]
    host_events: bool,
    /// Write the log page as it is
    #[arg(short = 'b', long)]
    raw_binary: bool,
    #[command(flatten)]
    output: Output,
}

impl Events {
    pub(super) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        if self.raw_binary {
            let bytes = size_of::<EventsHeader>() + EVENTS_MAX * size_of::<Event>();
            let lsp = lsp_host_events(self.host_events);
            return write_raw(&raw(&device, self.group, lid::FDP_EVENTS, lsp, |_| Some(bytes))?);
        }
        let source = if self.host_events { EventSource::Host } else { EventSource::Controller };
        let list = device.fdp_of(self.group.endgid)?.events(source)?;
        self.output.output.show(show::events(&list), |out| {
            if list.is_empty() {
                let kind = if self.host_events { "host" } else { "controller" };
                return writeln!(out, "no {kind} events");
            }
            show::write_events(out, &list)
        })
    }
}
