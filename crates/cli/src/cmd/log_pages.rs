//! `effects-log`, `supported-log-pages`, `endurance-log`, `ana-log`.

use anyhow::{Context, Result};
use clap::Args;
use unvme::{Device, LogRequest, Nsid};
use unvme_spec::identify::csi;
use unvme_spec::log_page::{AnaHeader, CommandsSupported, EnduranceGroup, SupportedLogPages, lid};
use zerocopy::{FromBytes, IntoBytes};

use crate::exit::usage;
use crate::numbers;
use crate::output::{Output, write_raw};
use crate::show::log_pages::{self as show, Effects};
use crate::target::DeviceArg;

/// Bytes that an ANA log is read in at first; it says how long it is.
const ANA_BYTES: usize = 4096;
/// Most bytes of an ANA log.
const ANA_BYTES_MAX: usize = 16 << 20;
/// Return Groups Only: the log without the namespaces of each group.
const GROUPS_ONLY: u8 = 1;

fn read<T: FromBytes>(device: &Device, request: LogRequest) -> Result<T> {
    Ok(device.admin(|controller| controller.get_log_as(request))?)
}

/// Arguments of `effects-log`.
#[derive(Debug, Args)]
#[command(after_help = "Example: unvme effects-log 0000:02:00.0 -H")]
pub(crate) struct EffectsLog {
    #[command(flatten)]
    device: DeviceArg,
    /// I/O command set: 0 NVM, 1 key value; NVM and those of the namespaces when left out
    #[arg(short, long, value_name = "CSI", value_parser = numbers::u8)]
    csi: Option<u8>,
    /// Explain the effects bit by bit
    #[arg(short = 'H', long)]
    human_readable: bool,
    /// Write the 4096 bytes as they are; of one command set
    #[arg(short = 'b', long)]
    raw_binary: bool,
    #[command(flatten)]
    output: Output,
}

impl EffectsLog {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let sets = match self.csi {
            Some(csi) => vec![csi],
            None if self.raw_binary => vec![csi::NVM],
            None => command_sets(&device)?,
        };
        let mut logs = Vec::new();
        for csi in sets {
            let request =
                LogRequest { nsid: Nsid::ALL, lid: lid::COMMANDS_SUPPORTED, csi, ..Default::default() };
            logs.push(Effects { csi, log: read::<CommandsSupported>(&device, request)? });
        }
        if self.raw_binary {
            return logs.iter().try_for_each(|effects| write_raw(effects.log.as_bytes()));
        }
        self.output
            .output
            .show(show::effects(&logs), |out| show::write_effects(out, &logs, self.human_readable))
    }
}

/// NVM, and those of the namespaces that are attached.
fn command_sets(device: &Device) -> Result<Vec<u8>> {
    let mut sets = vec![csi::NVM];
    sets.extend(device.all_namespaces()?.iter().map(|entry| entry.command_set));
    sets.sort_unstable();
    sets.dedup();
    Ok(sets)
}

/// Arguments of `supported-log-pages`.
#[derive(Debug, Args)]
pub(crate) struct SupportedPages {
    #[command(flatten)]
    device: DeviceArg,
    /// Say of each page what the device says of it
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    output: Output,
}

impl SupportedPages {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let request = LogRequest { nsid: Nsid::ALL, lid: lid::SUPPORTED_LOG_PAGES, ..Default::default() };
        let log: SupportedLogPages = read(&device, request)?;
        self.output
            .output
            .show(show::pages(&log), |out| show::write_pages(out, device.name(), &log, self.verbose))
    }
}

/// Arguments of `endurance-log`.
#[derive(Debug, Args)]
#[command(after_help = "Example: unvme endurance-log 0000:02:00.0")]
pub(crate) struct EnduranceLog {
    #[command(flatten)]
    device: DeviceArg,
    /// Endurance group
    #[arg(short, long, value_name = "ID", default_value = "1", value_parser = numbers::u16)]
    group_id: u16,
    #[command(flatten)]
    output: Output,
}

impl EnduranceLog {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let (lid, lsi) = (lid::ENDURANCE_GROUP, self.group_id);
        let request = LogRequest { nsid: Nsid::NONE, lid, lsi, ..Default::default() };
        let log: EnduranceGroup = read(&device, request)?;
        self.output
            .output
            .show(show::endurance(&log), |out| show::write_endurance(out, device.name(), self.group_id, &log))
    }
}

/// Arguments of `ana-log`.
#[derive(Debug, Args)]
#[command(after_help = "\
A device that is served by `unvme serve --tcp` has this log.

Example: unvme ana-log tcp:127.0.0.1:4420/nqn.2024-01.io.example:blocks")]
pub(crate) struct AnaLog {
    #[command(flatten)]
    device: DeviceArg,
    /// Leave the namespaces of each group out
    #[arg(short, long)]
    groups: bool,
    #[command(flatten)]
    output: Output,
}

impl AnaLog {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let mut bytes = ANA_BYTES;
        let (header, groups) = loop {
            let log = self.read(&device, bytes)?;
            match show::ana_groups(&log) {
                Some(found) => break found,
                None if bytes < ANA_BYTES_MAX => bytes *= 4,
                None => {
                    let groups =
                        AnaHeader::read_from_prefix(&log).map_or(0, |(header, _)| header.groups.get());
                    return Err(usage(format!(
                        "{}: an ANA log of {groups} groups that does not end within {ANA_BYTES_MAX} bytes",
                        device.name()
                    )));
                }
            }
        };
        self.output.output.show(show::ana(device.name(), &header, &groups), |out| {
            show::write_ana(out, device.name(), &header, &groups)
        })
    }

    fn read(&self, device: &Device, bytes: usize) -> Result<Vec<u8>> {
        let lsp = if self.groups { GROUPS_ONLY } else { 0 };
        let request = LogRequest {
            nsid: Nsid::ALL,
            lid: lid::ANA,
            lsp,
            bytes,
            retain_async_event: true,
            ..Default::default()
        };
        device.admin(|controller| controller.get_log(&request)).context("ana-log")
    }
}
