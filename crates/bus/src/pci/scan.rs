//! The functions of a PCI bus, as the kernel lists them.

use std::io;
use std::path::{Path, PathBuf};

use super::{PciAddress, PciFunction};
use crate::BusError;

/// Class code of an NVM Express I/O controller: base class, sub-class, programming interface (PCIe Transport
/// 3.1.1).
pub const CLASS_NVM_EXPRESS: u32 = 0x010802;

/// The kernel's view of PCI: a mounted `sysfs` and the device nodes that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciBus {
    sys: PathBuf,
    dev: PathBuf,
}

impl PciBus {
    /// The bus of this machine: `/sys` and `/dev`.
    pub fn system() -> Self {
        Self { sys: "/sys".into(), dev: "/dev".into() }
    }

    /// A bus whose `sysfs` is at `sys_root`, with the device nodes of this machine.
    pub fn at(sys_root: impl Into<PathBuf>) -> Self {
        Self { sys: sys_root.into(), dev: "/dev".into() }
    }

    /// The same with the device nodes at `dev_root`.
    #[must_use]
    pub fn with_dev(self, dev_root: impl Into<PathBuf>) -> Self {
        Self { dev: dev_root.into(), ..self }
    }

    /// Where `sysfs` is.
    pub fn sys(&self) -> &Path {
        &self.sys
    }

    /// Where device nodes are.
    pub fn dev(&self) -> &Path {
        &self.dev
    }

    /// All functions, or those of one class (24 bits, as [`CLASS_NVM_EXPRESS`]), in ascending order of their
    /// addresses. A machine without PCI has none. An entry that vanishes while it is read, or that makes no
    /// sense, is left out. Errors: [`BusError::Os`] when the list cannot be read.
    pub fn functions(&self, class: Option<u32>) -> Result<Vec<PciFunction>, BusError> {
        let folder = self.devices();
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(BusError::os(format!("list {}", folder.display()), e)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| BusError::os(format!("list {}", folder.display()), e))?;
            let Some(address) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            match self.find(address) {
                Ok(Some(function)) if class.is_none_or(|class| class == function.class) => {
                    found.push(function);
                }
                Ok(_) => {}
                Err(e) => tracing::debug!(%address, error = %e, "PCI function left out"),
            }
        }
        found.sort_by_key(|function| function.address);
        Ok(found)
    }

    /// The function at an address; `None` when there is none. Errors: [`BusError::Os`] and
    /// [`BusError::Protocol`] when what the kernel says about it cannot be read or makes no sense.
    pub fn find(&self, address: PciAddress) -> Result<Option<PciFunction>, BusError> {
        PciFunction::read(self, address)
    }

    /// The functions of an IOMMU group, in ascending order. Devices that are not on PCI are left out. Errors:
    /// [`BusError::Os`] when the group cannot be read.
    pub fn group(&self, group: u32) -> Result<Vec<PciFunction>, BusError> {
        let folder = self.sys.join("kernel/iommu_groups").join(group.to_string()).join("devices");
        let entries =
            std::fs::read_dir(&folder).map_err(|e| BusError::os(format!("list {}", folder.display()), e))?;
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| BusError::os(format!("list {}", folder.display()), e))?;
            let address = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(address) = address
                && let Some(function) = self.find(address)?
            {
                found.push(function);
            }
        }
        found.sort_by_key(|function| function.address);
        Ok(found)
    }

    /// True when an IOMMU is switched on in this machine, whatever it does with a particular device.
    pub fn has_iommu(&self) -> bool {
        let folder = self.sys.join("class/iommu");
        std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
    }

    pub(super) fn devices(&self) -> PathBuf {
        self.sys.join("bus/pci/devices")
    }
}
