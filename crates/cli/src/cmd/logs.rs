//! `smart-log`, `error-log`, `fw-log`.

use anyhow::{Context, Result};
use clap::Args;
use unvme::{Device, LogRequest, Nsid};
use unvme_spec::log_page::{ErrorInformation, FirmwareSlot, SmartHealth, lid};
use zerocopy::FromBytes;

use crate::numbers;
use crate::output::{Output, write_raw};
use crate::show;
use crate::target::DeviceArg;

/// Bytes of an entry of the error log.
const ERROR_BYTES: usize = size_of::<ErrorInformation>();

fn read(device: &Device, nsid: Nsid, lid: u8, bytes: usize) -> Result<Vec<u8>> {
    let request = LogRequest { nsid, lid, bytes, retain_async_event: false, ..Default::default() };
    Ok(device.admin(|controller| controller.get_log(&request))?)
}

#[derive(Debug, Args)]
pub(crate) struct SmartLog {
    #[command(flatten)]
    device: DeviceArg,
    /// Namespace, on devices that have a log for each
    #[arg(short, long, value_name = "NSID", default_value = "0xffffffff", value_parser = numbers::u32)]
    namespace_id: u32,
    /// Explain the critical warning bit by bit
    #[arg(short = 'H', long)]
    human_readable: bool,
    /// Write the 512 bytes as they are
    #[arg(short = 'b', long)]
    raw_binary: bool,
    #[command(flatten)]
    output: Output,
}

impl SmartLog {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let bytes = read(&device, Nsid(self.namespace_id), lid::SMART_HEALTH, size_of::<SmartHealth>())?;
        if self.raw_binary {
            return write_raw(&bytes);
        }
        let log =
            SmartHealth::read_from_bytes(&bytes).ok().context("smart-log: the log has not 512 bytes")?;
        self.output.output.show(show::log::smart(&log), |out| {
            show::log::write_smart(out, device.name(), self.namespace_id, &log, self.human_readable)
        })
    }
}

/// Arguments of `error-log`.
#[derive(Debug, Args)]
#[command(after_help = "\
A controller may empty this log when it is reset, and every program that opens a device resets it.
How many errors there were in its life is in the SMART log.")]
pub(crate) struct ErrorLog {
    #[command(flatten)]
    device: DeviceArg,
    /// Entries to show, the latest first; never more than the device has
    #[arg(short = 'e', long, value_name = "COUNT", default_value = "64", value_parser = clap::value_parser!(u16).range(1..))]
    log_entries: u16,
    /// Write the entries as they are
    #[arg(short = 'b', long)]
    raw_binary: bool,
    #[command(flatten)]
    output: Output,
}

impl ErrorLog {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let has = device.admin(|controller| controller.identify_controller())?.elpe_z;
        let entries = usize::from(self.log_entries).min(usize::from(has) + 1);
        let bytes = read(&device, Nsid::ALL, lid::ERROR_INFORMATION, entries * ERROR_BYTES)?;
        if self.raw_binary {
            return write_raw(&bytes);
        }
        let mut log: Vec<ErrorInformation> = bytes
            .chunks_exact(ERROR_BYTES)
            .filter_map(|entry| ErrorInformation::read_from_bytes(entry).ok())
            .collect();
        // An entry that counts no error is not used.
        log.retain(|entry| entry.error_count != 0);
        self.output
            .output
            .show(show::log::errors(&log), |out| show::log::write_errors(out, device.name(), &log))
    }
}

#[derive(Debug, Args)]
pub(crate) struct FwLog {
    #[command(flatten)]
    device: DeviceArg,
    /// Write the 512 bytes as they are
    #[arg(short = 'b', long)]
    raw_binary: bool,
    #[command(flatten)]
    output: Output,
}

impl FwLog {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let bytes = read(&device, Nsid::ALL, lid::FIRMWARE_SLOT, size_of::<FirmwareSlot>())?;
        if self.raw_binary {
            return write_raw(&bytes);
        }
        let log = FirmwareSlot::read_from_bytes(&bytes).ok().context("fw-log: the log has not 512 bytes")?;
        self.output.output.show(show::log::firmware(device.name(), &log), |out| {
            show::log::write_firmware(out, device.name(), &log)
        })
    }
}
