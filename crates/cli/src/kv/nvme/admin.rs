//! Commands on devices: those of `unvme`, with the guide's flags and defaults.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Parser};
use unvme::{LogRequest, Nsid};
use unvme_spec::log_page::{SmartHealth, lid};
use zerocopy::IntoBytes;

use crate::args::Cli;
use crate::numbers;
use crate::output::{Format as OutputFormat, write_raw};
use crate::show;
use crate::target::DeviceArg;

/// Slot that `fw-download` commits an image to.
const FIRMWARE_SLOT: &str = "2";
/// Action that `fw-download` commits an image with: replace the image of the slot, and activate it at the
/// next reset.
const FIRMWARE_ACTION: &str = "1";

/// Most bytes of a log page that are asked for.
const LOG_BYTES_MAX: u32 = 64 << 20;

/// Does a command of `unvme`.
fn unvme(words: &[&str]) -> Result<()> {
    Cli::try_parse_from(std::iter::once("unvme").chain(words.iter().copied()))?.command.run()
}

fn written(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}

/// Arguments of a command that has none but the device.
#[derive(Clone, Debug, Args)]
pub(crate) struct Plain {
    #[command(flatten)]
    device: DeviceArg,
}

impl Plain {
    pub(crate) fn run(self, command: &str) -> Result<()> {
        unvme(&[command, &self.device.device])
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct List {
    /// Form of the result
    #[arg(long, visible_alias = "output-format", value_name = "FORMAT", default_value = "text")]
    output: OutputFormat,
}

impl List {
    pub(crate) fn run(self) -> Result<()> {
        match self.output {
            OutputFormat::Text => unvme(&["list"]),
            OutputFormat::Json => unvme(&["list", "--output", "json"]),
        }
    }
}

/// What a command reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageKind {
    /// Identify Controller.
    Controller,
    /// The SMART / Health log.
    Smart,
}

/// Arguments of `id-ctrl` and `smart-log`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Page {
    #[command(flatten)]
    device: DeviceArg,
    /// File for the bytes as they are
    #[arg(short, long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

impl Page {
    pub(crate) fn run(self, kind: PageKind) -> Result<()> {
        let Some(path) = &self.binary else {
            return match kind {
                PageKind::Controller => {
                    let data = self.device.open()?.admin(|c| c.identify_controller())?;
                    let mut text = Vec::new();
                    show::identify::write_guide_controller(&mut text, &data)?;
                    write_raw(&text)
                }
                PageKind::Smart => unvme(&["smart-log", &self.device.device]),
            };
        };
        let device = self.device.open()?;
        let bytes = match kind {
            PageKind::Controller => device.admin(|c| c.identify_controller())?.as_bytes().to_vec(),
            PageKind::Smart => {
                let request = LogRequest { nsid: Nsid::ALL, lid: lid::SMART_HEALTH, ..LogRequest::default() };
                device.admin(|c| c.get_log_as::<SmartHealth>(request))?.as_bytes().to_vec()
            }
        };
        written(path, &bytes)
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct GetLog {
    #[command(flatten)]
    device: DeviceArg,
    /// Log page
    #[arg(short = 'i', long, value_name = "ID", value_parser = log_id)]
    log_id: u8,
    /// Bytes to read
    #[arg(short = 'l', long, value_name = "BYTES", default_value = "512", value_parser = log_len)]
    log_len: u32,
    /// File for the bytes; standard output when left out
    #[arg(short, long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// The guide's sample has a comma behind the number.
fn log_id(text: &str) -> Result<u8, String> {
    numbers::u8(text.strip_suffix(',').unwrap_or(text))
}

fn log_len(text: &str) -> Result<u32, String> {
    match numbers::u32(text)? {
        bytes @ 1..=LOG_BYTES_MAX => Ok(bytes),
        _ => Err(format!("expected 1 to {LOG_BYTES_MAX}")),
    }
}

impl GetLog {
    pub(crate) fn run(self) -> Result<()> {
        let length = self.log_len as usize;
        // The device counts in dwords.
        let bytes = length.next_multiple_of(4);
        let request = LogRequest { nsid: Nsid::ALL, lid: self.log_id, bytes, ..LogRequest::default() };
        let mut log = self.device.open()?.admin(|c| c.get_log(&request))?;
        log.truncate(length);
        match &self.binary {
            Some(path) => written(path, &log),
            None => write_raw(&log),
        }
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Format {
    #[command(flatten)]
    device: DeviceArg,
    /// Secure erase: 0 no, 1 yes
    #[arg(short, long, value_name = "SES", default_value = "1", value_parser = ["0", "1"])]
    ses: String,
    /// Do not ask before data is destroyed on a device that is not virtual
    #[arg(long)]
    force: bool,
}

impl Format {
    pub(crate) fn run(self) -> Result<()> {
        let mut words = vec!["format", self.device.device.as_str(), "--ses", &self.ses];
        words.extend(self.force.then_some("--force"));
        unvme(&words)
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct FwDownload {
    #[command(flatten)]
    device: DeviceArg,
    /// File with the firmware
    #[arg(short, long, value_name = "FILE")]
    fw: String,
    /// Bytes of one transfer
    #[arg(short, long, value_name = "BYTES")]
    xfer: Option<String>,
    /// Where in the image the file starts, in dwords
    #[arg(short, long, value_name = "DWORDS")]
    offset: Option<String>,
    /// Do not ask before firmware is changed on a device that is not virtual
    #[arg(long)]
    force: bool,
}

impl FwDownload {
    pub(crate) fn run(self) -> Result<()> {
        let mut words = vec!["fw-download", self.device.device.as_str(), "--fw", &self.fw];
        for (option, value) in [("--xfer", &self.xfer), ("--offset", &self.offset)] {
            if let Some(value) = value {
                words.extend([option, value]);
            }
        }
        words.extend(["--slot", FIRMWARE_SLOT, "--action", FIRMWARE_ACTION]);
        words.extend(self.force.then_some("--force"));
        unvme(&words)
    }
}

/// Arguments that nobody looks at.
#[derive(Clone, Debug, Args)]
pub(crate) struct Ignored {
    /// Anything
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _words: Vec<String>,
}

/// Shows the version.
pub(super) fn version() -> Result<()> {
    write_raw(format!("kv_nvme version {}\n", env!("CARGO_PKG_VERSION")).as_bytes())
}
