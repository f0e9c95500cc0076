//! `create-ns`, `delete-ns`.

use anyhow::Result;
use clap::Args;
use unvme::{Device, Nsid, Size};
use unvme_spec::fdp::RUH_MAX;
use unvme_spec::identify::{IdentifyNamespace, KvNamespaceCreate, NamespaceCreate, csi};

use super::format::format_of_size;
use crate::exit::usage;
use crate::numbers;
use crate::output::Output;
use crate::target::{DeviceArg, Force};
use crate::value::{Fields, fields};

/// Arguments of `create-ns`.
#[derive(Debug, Args)]
#[command(after_help = "\
A new namespace has to be attached before it can be used.

Examples:
  unvme create-ns 0000:02:00.0 --size 1G --block-size 4096
  unvme create-ns 0000:02:00.0 --size 1G --csi 1             for pairs
  unvme create-ns 0000:02:00.0 --size 1G --phndls 0,1,2,3    with four placement handles (FDP)
  unvme create-ns 0000:02:00.0 --nsze 262144 --ncap 262144 --flbas 0")]
pub(crate) struct CreateNs {
    #[command(flatten)]
    device: DeviceArg,
    /// Size in logical blocks
    #[arg(short = 's', long, value_name = "BLOCKS", value_parser = numbers::u64, required_unless_present = "size")]
    nsze: Option<u64>,
    /// Capacity in logical blocks; the size when left out
    #[arg(short = 'c', long, value_name = "BLOCKS", value_parser = numbers::u64)]
    ncap: Option<u64>,
    /// Size in bytes, such as 1G, instead of blocks
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["nsze", "ncap"])]
    size: Option<Size>,
    /// LBA format, an index into the list of id-ns
    #[arg(short, long, value_name = "INDEX", value_parser = numbers::u8, conflicts_with = "block_size")]
    flbas: Option<u8>,
    /// Bytes of a logical block, instead of an index; 512 when both are left out
    #[arg(short, long, value_name = "BYTES", value_parser = numbers::bytes)]
    block_size: Option<u64>,
    /// Multi-path and sharing capabilities: 0 private, 1 shared; when left out shared where several
    /// controllers are
    #[arg(short = 'm', long, value_name = "NMIC", value_parser = numbers::u8)]
    nmic: Option<u8>,
    /// I/O command set: 0 NVM, 1 key value, whose sizes are in bytes
    #[arg(short = 'y', long, value_name = "CSI", default_value = "0", value_parser = numbers::u8)]
    csi: u8,
    /// Endurance group; the device chooses when it is 0
    #[arg(short, long, value_name = "ENDGID", default_value = "0", value_parser = numbers::u16)]
    endg_id: u16,
    /// Number of placement handles; that of --phndls when left out
    #[arg(short = 'n', long, value_name = "COUNT", requires = "phndls", value_parser = numbers::u16)]
    nphndls: Option<u16>,
    /// Reclaim unit handles of the placement handles 0, 1 and so on, separated by commas: Flexible Data
    /// Placement
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = numbers::u16)]
    phndls: Vec<u16>,
    #[command(flatten)]
    output: Output,
}

impl CreateNs {
    pub(crate) fn run(self) -> Result<()> {
        self.check_handles()?;
        let device = self.device.open()?;
        match self.csi {
            csi::NVM => {}
            csi::KEY_VALUE => return self.create_for_pairs(&device),
            other => return Err(usage(format!("--csi {other}: expected 0 (NVM) or 1 (key value)"))),
        }
        // What all namespaces have in common, the formats among it.
        let common = device.admin(|controller| controller.identify_namespace(Nsid::ALL))?;
        let (format, block_bytes) = self.format(&common)?;
        let (nsze, ncap) = match (self.size, self.nsze) {
            (Some(Size(bytes)), _) if bytes == 0 || !bytes.is_multiple_of(block_bytes) => {
                return Err(usage(format!(
                    "--size {bytes}: expected a multiple of the block, {block_bytes} bytes"
                )));
            }
            (Some(Size(bytes)), _) => (bytes / block_bytes, bytes / block_bytes),
            (None, Some(nsze)) => (nsze, self.ncap.unwrap_or(nsze)),
            (None, None) => return Err(usage("create-ns: expected --nsze or --size")),
        };
        let mut request = NamespaceCreate::default();
        request.nsze = nsze;
        request.ncap = ncap;
        request.flbas = format & 0xf | (format & 0x30) << 1;
        request.nmic = self.nmic(&device)?;
        self.place(&mut request);
        let nsid = device.admin(|controller| controller.create_namespace(&request, csi::NVM))?;
        let json = fields! { "nsid": nsid.0, "nsze": nsze, "ncap": ncap, "flbas": format };
        let json = self.with_handles(json);
        self.output.output.say(json, format!("create-ns: Success, created nsid:{nsid}"))
    }

    fn nmic(&self, device: &Device) -> Result<u8> {
        match self.nmic {
            Some(nmic) => Ok(nmic),
            None => Ok(u8::from(device.controllers()?.len() > 1)),
        }
    }

    fn create_for_pairs(&self, device: &Device) -> Result<()> {
        if self.block_size.is_some() || self.ncap.is_some_and(|ncap| Some(ncap) != self.nsze) {
            return Err(usage(
                "create-ns --csi 1: pairs have no blocks, and no capacity other than their size",
            ));
        }
        let size = self.size.map(|size| size.0).or(self.nsze);
        let nsze = size.ok_or_else(|| usage("create-ns: expected --nsze or --size"))?;
        let format = self.flbas.unwrap_or(0);
        let mut request = KvNamespaceCreate::default();
        (request.nsze, request.kvfc, request.nmic) = (nsze, format & 0xf, self.nmic(device)?);
        // The driver sends the page as it is, whichever command set it is for.
        let mut request: NamespaceCreate = zerocopy::transmute!(request);
        self.place(&mut request);
        let nsid = device.admin(|controller| controller.create_namespace(&request, csi::KEY_VALUE))?;
        let json = self.with_handles(fields! { "nsid": nsid.0, "nsze": nsze, "kvfc": format });
        self.output.output.say(json, format!("create-ns: Success, created nsid:{nsid}"))
    }

    fn check_handles(&self) -> Result<()> {
        let listed = self.phndls.len();
        match self.nphndls {
            Some(count) if usize::from(count) != listed => {
                Err(usage(format!("--nphndls {count}: --phndls lists {listed}")))
            }
            _ if listed > RUH_MAX => {
                Err(usage(format!("--phndls: {listed} handles, a namespace has at most {RUH_MAX}")))
            }
            _ => Ok(()),
        }
    }

    /// Endurance group and placement handles: at the same place for blocks and for pairs.
    fn place(&self, request: &mut NamespaceCreate) {
        request.endgid = self.endg_id;
        request.nphndls = self.phndls.len() as u16;
        for (entry, ruhid) in request.phndl.iter_mut().zip(&self.phndls) {
            *entry = *ruhid;
        }
    }

    fn with_handles(&self, json: Fields) -> Fields {
        if self.phndls.is_empty() { json } else { json.with("phndls", self.phndls.clone()) }
    }

    /// Index of the LBA format and the bytes of its block.
    fn format(&self, common: &IdentifyNamespace) -> Result<(u8, u64)> {
        let index = match (self.flbas, self.block_size) {
            (Some(index), _) => index,
            (None, bytes) => format_of_size(common, bytes.unwrap_or(512))?,
        };
        let block = common.lbaf.get(usize::from(index)).and_then(|format| format.block_bytes());
        // A format the device does not have is the device's to refuse.
        Ok((index, block.map_or(512, u64::from)))
    }
}

#[derive(Debug, Args)]
pub(crate) struct DeleteNs {
    #[command(flatten)]
    device: DeviceArg,
    /// Namespace to delete; 0xffffffff deletes all
    #[arg(short, long, value_name = "NSID", value_parser = numbers::u32)]
    namespace_id: u32,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: Output,
}

impl DeleteNs {
    pub(crate) fn run(self) -> Result<()> {
        let device: Device = self.device.open()?;
        let nsid = Nsid(self.namespace_id);
        self.force.confirm_all(&device, &format!("delete-ns destroys namespace {nsid} and its data"))?;
        device.admin(|controller| controller.delete_namespace(nsid))?;
        let json = fields! { "nsid": nsid.0 };
        self.output.output.say(json, format!("delete-ns: Success, deleted nsid:{nsid}"))
    }
}
