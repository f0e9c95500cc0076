//! Creating namespaces, with placement handles.

use unvme_spec::fdp::RUH_MAX;
use unvme_spec::identify::{IdentifyNamespace, KvNamespaceCreate, NamespaceCreate, csi};
use unvme_spec::{Nsid, Status};

use super::{Ruhid, advise};
use crate::{Device, Error, Result};

/// NMIC: several controllers may have the namespace.
const NMIC_SHARED: u8 = 1;

/// What a namespace holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceKind {
    /// Logical blocks of so many bytes.
    Blocks {
        /// Bytes of a block: one of the sizes the device has a format of.
        block_bytes: u32,
    },
    /// Pairs.
    Pairs,
}

/// A namespace to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNamespace {
    /// What it holds.
    pub kind: NamespaceKind,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its endurance group; 0 leaves it to the device.
    pub endurance_group: u16,
    /// Reclaim unit handles of its placement handles 0, 1 and so on. Empty leaves it to the device, which
    /// gives it one when FDP is enabled.
    pub handles: Vec<Ruhid>,
}

impl NewNamespace {
    /// A namespace of `bytes` bytes in blocks of `block_bytes`, for the device to place.
    pub const fn blocks(bytes: u64, block_bytes: u32) -> Self {
        Self { kind: NamespaceKind::Blocks { block_bytes }, bytes, endurance_group: 0, handles: Vec::new() }
    }
}

impl Device {
    /// Creates a namespace and attaches it, to [all controllers](Device::controllers) where there are
    /// several: the one this process has may be gone with the process.
    ///
    /// # Errors
    /// [`Error::Argument`] for more placement handles than a namespace can have, a size that is no whole
    /// number of blocks, or a block size the device does not have; as [`Device::admin`],
    /// [`Status::INVALID_PLACEMENT_HANDLE_LIST`] with what the device has among it.
    pub fn create_namespace(&self, new: &NewNamespace) -> Result<Nsid> {
        let controllers = self.controllers()?;
        let nmic = if controllers.len() > 1 { NMIC_SHARED } else { 0 };
        let (request, csi) = match new.kind {
            NamespaceKind::Blocks { block_bytes } => (self.block_request(new, block_bytes, nmic)?, csi::NVM),
            NamespaceKind::Pairs => (pairs_request(new, nmic), csi::KEY_VALUE),
        };
        let request = with_handles(self.name(), request, &new.handles)?;
        let created = self.admin(|controller| controller.create_namespace(&request, csi));
        let nsid = created.map_err(|e| self.explain_creation(e))?;
        self.admin(|controller| controller.attach_namespace(nsid, &controllers))?;
        Ok(nsid)
    }

    fn block_request(&self, new: &NewNamespace, block_bytes: u32, nmic: u8) -> Result<NamespaceCreate> {
        // What all namespaces have in common, the formats among it.
        let common = self.admin(|controller| controller.identify_namespace(Nsid::ALL))?;
        let format = format_of(self.name(), &common, block_bytes)?;
        if !new.bytes.is_multiple_of(block_bytes.into()) {
            return Err(Error::Argument(format!(
                "{}: a namespace of {} bytes: whole blocks of {block_bytes} bytes are expected",
                self.name(),
                new.bytes
            )));
        }
        let mut request = NamespaceCreate::default();
        (request.nsze, request.endgid) = (new.bytes / u64::from(block_bytes), new.endurance_group);
        (request.ncap, request.nmic) = (request.nsze, nmic);
        request.flbas = format & 0xf | (format & 0x30) << 1;
        Ok(request)
    }

    fn explain_creation(&self, error: Error) -> Error {
        match error.status().map(Status::kind) {
            Some(Status::INVALID_PLACEMENT_HANDLE_LIST) => {
                let there = match self.fdp().and_then(|fdp| fdp.usage()) {
                    Ok(usage) => format!("the endurance group has {} reclaim unit handles", usage.len()),
                    Err(_) => "FDP is disabled in the endurance group".to_owned(),
                };
                advise(error, &format!("each reclaim unit handle can be listed once, and {there}"))
            }
            _ => error,
        }
    }
}

fn pairs_request(new: &NewNamespace, nmic: u8) -> NamespaceCreate {
    let mut request = KvNamespaceCreate::default();
    (request.nsze, request.endgid, request.nmic) = (new.bytes, new.endurance_group, nmic);
    request.into()
}

fn with_handles(name: &str, mut request: NamespaceCreate, handles: &[Ruhid]) -> Result<NamespaceCreate> {
    if handles.len() > RUH_MAX {
        return Err(Error::Argument(format!(
            "{name}: a namespace with {} placement handles: {RUH_MAX} at most are possible",
            handles.len()
        )));
    }
    request.nphndls = handles.len() as u16;
    for (entry, handle) in request.phndl.iter_mut().zip(handles) {
        *entry = handle.0;
    }
    Ok(request)
}

/// Index of a format without metadata whose blocks have `block_bytes`.
fn format_of(name: &str, common: &IdentifyNamespace, block_bytes: u32) -> Result<u8> {
    let formats: Vec<(u8, u32)> = (0..=common.nlbaf_z)
        .zip(&common.lbaf)
        .filter(|(_, format)| format.ms == 0)
        .filter_map(|(index, format)| Some((index, format.block_bytes()?)))
        .collect();
    if let Some((index, _)) = formats.iter().find(|(_, bytes)| *bytes == block_bytes) {
        return Ok(*index);
    }
    let sizes: Vec<String> = formats.iter().map(|(_, bytes)| bytes.to_string()).collect();
    Err(Error::Argument(format!(
        "{name}: blocks of {block_bytes} bytes: the device has blocks of {}",
        sizes.join(", ")
    )))
}
