//! `format`.

use anyhow::Result;
use clap::Args;
use unvme::{Device, Nsid};
use unvme_spec::admin::{FormatNvm, SecureErase};
use unvme_spec::identify::{IdentifyNamespace, csi};

use super::list::pairs_of;
use crate::exit::usage;
use crate::numbers;
use crate::output::Output;
use crate::target::{DeviceArg, Force, NamespaceArg};
use crate::value::fields;

/// Arguments of `format`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unvme format 0000:02:00.0 --block-size 4096      erase, and change to blocks of 4096 bytes
  unvme format 0000:02:00.0 -n 1 --ses 1           erase all user data of namespace 1")]
pub(crate) struct Format {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    namespace: NamespaceArg,
    /// Format, an index into the list of id-ns; the one in use when left out
    #[arg(short, long, value_name = "INDEX", value_parser = numbers::u8)]
    lbaf: Option<u8>,
    /// Bytes of a logical block, instead of an index
    #[arg(short, long, value_name = "BYTES", value_parser = numbers::bytes, conflicts_with = "lbaf")]
    block_size: Option<u64>,
    /// Secure erase: 0 none, 1 user data, 2 cryptographic
    #[arg(short, long, value_name = "SES", default_value = "0", value_parser = clap::value_parser!(u8).range(0..=2))]
    ses: u8,
    /// Reset the controller afterwards
    #[arg(short, long)]
    reset: bool,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: Output,
}

/// The index of the format with blocks of `bytes` bytes and no metadata.
pub(crate) fn format_of_size(data: &IdentifyNamespace, bytes: u64) -> Result<u8> {
    let count = usize::from(data.nlbaf_z) + 1;
    let formats = data.lbaf.get(..count).unwrap_or(&data.lbaf);
    let size = |index: usize| formats.get(index).and_then(|f| f.block_bytes()).map(u64::from);
    if let Some(index) = (0..formats.len()).find(|&i| size(i) == Some(bytes) && formats[i].ms == 0) {
        return Ok(index as u8);
    }
    let sizes: Vec<String> =
        (0..formats.len()).filter(|&i| formats[i].ms == 0).filter_map(size).map(|s| s.to_string()).collect();
    Err(usage(format!("--block-size {bytes}: the device offers {}", sizes.join(", "))))
}

impl Format {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let nsid = self.namespace.choose_any(&device)?;
        let lbaf = self.format_index(&device, nsid)?;
        let what = match nsid {
            Nsid::ALL => "format destroys the data of all namespaces".to_owned(),
            nsid => format!("format destroys all data of namespace {nsid}"),
        };
        self.force.confirm_all(&device, &what)?;
        let secure_erase = match self.ses {
            1 => SecureErase::UserData,
            2 => SecureErase::Cryptographic,
            _ => SecureErase::None,
        };
        device.admin(|c| c.format(FormatNvm { nsid, lbaf, secure_erase, ..Default::default() }))?;
        if self.reset {
            device.admin(|controller| controller.reset())?;
        }
        let json = fields! { "nsid": nsid.0, "lbaf": lbaf, "ses": self.ses };
        self.output.output.say(json, format!("Success formatting namespace:{:x}", nsid.0))
    }

    fn format_index(&self, device: &Device, nsid: Nsid) -> Result<u8> {
        if let Some(index) = self.lbaf {
            return Ok(index);
        }
        let holds_pairs = nsid != Nsid::ALL
            && device.admin(|controller| controller.namespace_command_set(nsid))? == csi::KEY_VALUE;
        if holds_pairs {
            return match self.block_size {
                Some(_) => {
                    Err(usage(format!("--block-size: namespace {nsid} holds pairs, which have no blocks")))
                }
                None => Ok(pairs_of(device, nsid)?.kvfc & 0xf),
            };
        }
        let data = device.admin(|controller| controller.identify_namespace(nsid))?;
        match self.block_size {
            Some(bytes) => format_of_size(&data, bytes),
            None => Ok(data.format_index()),
        }
    }
}
