//! `fw-download`, `fw-commit`.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use unvme::{Device, DriverError, Payload, Status, Transport};
use unvme_spec::admin::{Command, CommitAction, FirmwareCommit, FirmwareDownload};

use crate::exit::usage;
use crate::numbers;
use crate::output::{LongOutput, Output};
use crate::target::{DeviceArg, Force};
use crate::value::{Fields, fields};

/// Most bytes of an image: more than any drive takes.
const IMAGE_BYTES_MAX: u64 = 64 << 20;

/// Arguments of `fw-download`.
#[derive(Debug, Args)]
#[command(after_help = "\
A controller forgets a downloaded image when it is reset, and every program that opens a device
resets it, unless the kernel drives it: commit the image in the same command, with --slot and
--action. `unvme fw-log` shows the slots.

Examples:
  unvme fw-download 0000:02:00.0 --fw image.bin --slot 2 --action 1
  unvme fw-download kernel:/dev/nvme0 --fw image.bin
  unvme fw-commit kernel:/dev/nvme0 -s 2 -a 1")]
pub(crate) struct Download {
    #[command(flatten)]
    device: DeviceArg,
    /// File with the image, a whole number of dwords
    #[arg(short, long, value_name = "FILE")]
    fw: PathBuf,
    /// Bytes of one transfer; as many as the device likes when left out
    #[arg(short, long, value_name = "BYTES", value_parser = numbers::bytes)]
    xfer: Option<u64>,
    /// Where in the image the file starts, in dwords
    #[arg(short, long, value_name = "DWORDS", default_value = "0", value_parser = numbers::u32)]
    offset: u32,
    #[command(flatten)]
    commit: CommitAfter,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: LongOutput,
}

/// What to do with the image once it is downloaded.
#[derive(Clone, Debug, Args)]
struct CommitAfter {
    /// Commit the image to this slot, 1 to 7; 0 lets the device choose
    #[arg(short, long, value_name = "SLOT", value_parser = clap::value_parser!(u8).range(0..=7))]
    slot: Option<u8>,
    /// Commit it with this action, as fw-commit does: 0, 1 or 3
    #[arg(short, long, value_name = "ACTION", value_parser = ["0", "1", "3"])]
    action: Option<String>,
}

impl CommitAfter {
    /// Slot and action, when either was given. Without an action the image only goes to the slot.
    fn asked(&self) -> Option<(u8, u8)> {
        let action = self.action.as_deref().and_then(|action| action.parse().ok());
        (self.slot.is_some() || action.is_some()).then(|| (self.slot.unwrap_or(0), action.unwrap_or(0)))
    }
}

impl Download {
    pub(crate) fn run(self) -> Result<()> {
        let image = self.read_image()?;
        let device = self.device.open()?;
        let commit = self.commit.asked();
        if commit.is_some() {
            self.force.confirm(&device, REPLACES)?;
        }
        match self.xfer {
            None if self.offset == 0 => device.admin(|controller| controller.firmware_download(&image))?,
            xfer => self.send(&device, &image, xfer)?,
        }
        let mut json = fields! { "bytes": image.len() as u64, "offset": self.offset };
        let mut lines = "Firmware download success".to_owned();
        match commit {
            None if device.transport() == Transport::Kernel => {
                lines.push_str("; `unvme fw-commit` puts it into a slot");
            }
            None => lines.push_str("; not committed, so the device forgets it now"),
            Some((slot, action)) => {
                let (fields, line) = commit_image(&device, slot, action)?;
                json = json.with("commit", fields);
                lines = format!("{lines}\n{line}");
            }
        }
        self.output.output.say(json, lines)
    }

    fn read_image(&self) -> Result<Vec<u8>> {
        let what = || format!("read {}", self.fw.display());
        let mut image = Vec::new();
        File::open(&self.fw)
            .and_then(|file| file.take(IMAGE_BYTES_MAX + 1).read_to_end(&mut image))
            .with_context(what)?;
        let bytes = image.len();
        if image.is_empty() || !bytes.is_multiple_of(4) || bytes as u64 > IMAGE_BYTES_MAX {
            return Err(usage(format!(
                "{}: {bytes} bytes; an image has 4 to {IMAGE_BYTES_MAX} bytes, in whole dwords",
                self.fw.display()
            )));
        }
        Ok(image)
    }

    /// Sends the image in pieces of a chosen size, from a chosen offset.
    fn send(&self, device: &Device, image: &[u8], xfer: Option<u64>) -> Result<()> {
        let transfer_max = device.controller().transfer_bytes_max();
        let piece = xfer.unwrap_or(4096.min(transfer_max as u64));
        if piece == 0 || !piece.is_multiple_of(4) || piece > transfer_max as u64 {
            return Err(usage(format!("--xfer {piece}: expected a multiple of 4, at most {transfer_max}")));
        }
        for (index, part) in image.chunks(piece as usize).enumerate() {
            let skip = (index as u64 * piece / 4) as u32;
            let offset_dwords = self.offset.checked_add(skip);
            let Some(offset_dwords) = offset_dwords else {
                return Err(usage(format!("--offset {}: the image ends beyond 16 GiB", self.offset)));
            };
            let command = FirmwareDownload { dwords: part.len() as u64 / 4, offset_dwords };
            device.admin(|controller| {
                let mut buf = controller.alloc(part.len())?;
                buf.write(0, part);
                let sqe = Command::FirmwareDownload(command).encode();
                let completion = controller.admin(sqe, Some(Payload::whole(buf)))?;
                match completion.status {
                    status if status.is_success() => Ok(()),
                    status => Err(DriverError::Status {
                        what: format!("Firmware Image Download of {} bytes", part.len()),
                        status,
                    }),
                }
            })?;
        }
        Ok(())
    }
}

/// Arguments of `fw-commit`.
#[derive(Debug, Args)]
#[command(after_help = "\
Actions:
  0  put the downloaded image into the slot
  1  put it into the slot, and activate it at the next reset
  2  activate the slot at the next reset
  3  activate the slot at once; with a downloaded image, put that into it first

A device forgets a downloaded image when it is closed, unless the kernel drives it: to commit
one, use `unvme fw-download` with --slot and --action.")]
pub(crate) struct Commit {
    #[command(flatten)]
    device: DeviceArg,
    /// Slot, 1 to 7; 0 lets the device choose
    #[arg(short, long, value_name = "SLOT", default_value = "0", value_parser = clap::value_parser!(u8).range(0..=7))]
    slot: u8,
    /// What to do, 0 to 3
    #[arg(short, long, value_name = "ACTION", default_value = "0", value_parser = clap::value_parser!(u8).range(0..=3))]
    action: u8,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: Output,
}

impl Commit {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        self.force.confirm(&device, REPLACES)?;
        let (json, line) = commit_image(&device, self.slot, self.action)?;
        self.output.output.say(json, line)
    }
}

/// What a commit may do, for the question.
const REPLACES: &str = "the command replaces or activates firmware";

/// Firmware Commit; the result for programs and for people.
fn commit_image(device: &Device, slot: u8, action: u8) -> Result<(Fields, String)> {
    let commit = match action {
        0 => CommitAction::Replace,
        1 => CommitAction::ReplaceAndActivateAtReset,
        2 => CommitAction::ActivateAtReset,
        _ => CommitAction::ActivateImmediately,
    };
    let command = FirmwareCommit { action: commit, slot, boot_partition: false };
    let status = device.admin(|controller| controller.firmware_commit(command))?;
    let needs = match status.kind() {
        Status::FIRMWARE_NEEDS_CONVENTIONAL_RESET => Some("conventional reset"),
        Status::FIRMWARE_NEEDS_SUBSYSTEM_RESET => Some("NVM subsystem reset"),
        Status::FIRMWARE_NEEDS_CONTROLLER_RESET => Some("controller reset"),
        _ => None,
    };
    let mut line = format!("Success committing firmware action:{action} slot:{slot}");
    let mut json = fields! { "action": action, "slot": slot };
    if let Some(reset) = needs {
        line = format!("{line}, activation needs a {reset}");
        json = json.with("needs", reset);
    }
    Ok((json, line))
}
