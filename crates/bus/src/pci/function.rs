//! One function, as the kernel describes it.

use std::io;
use std::path::{Path, PathBuf};

use super::{PciAddress, PciBus};
use crate::BusError;

/// The kernel's driver that hands a function to a process behind an IOMMU.
pub const DRIVER_VFIO: &str = "vfio-pci";
/// The kernel's driver that lets a process reach a function where there is no IOMMU.
pub const DRIVER_UIO: &str = "uio_pci_generic";

/// Base class of bridges, which an IOMMU group may contain whatever drives them.
const BASE_CLASS_BRIDGE: u32 = 0x06;
/// Base address registers of a function.
const BARS: usize = 6;

/// A PCI function of this machine, as it was when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PciFunction {
    /// Where it is.
    pub address: PciAddress,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Base class, sub-class and programming interface: 24 bits.
    pub class: u32,
    /// The kernel's driver it is bound to.
    pub driver: Option<String>,
    /// NUMA node it is attached to; `None` when the machine has one memory for all.
    pub numa_node: Option<u32>,
    /// IOMMU group it is in; `None` when no IOMMU is switched on.
    pub iommu_group: Option<u32>,
    /// Bytes of BARs 0 to 5; 0 where there is none. The upper half of a 64-bit BAR counts as none.
    pub bar_bytes: [u64; BARS],
    bus: PciBus,
}

impl PciFunction {
    /// Reads what the kernel says about a function; `None` when it is not there, or not any more.
    pub(super) fn read(bus: &PciBus, address: PciAddress) -> Result<Option<Self>, BusError> {
        let path = bus.devices().join(address.to_string());
        if !path.exists() {
            return Ok(None);
        }
        match Self::read_at(bus, address, &path) {
            // Half read when it was removed.
            Err(_) if !path.exists() => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    fn read_at(bus: &PciBus, address: PciAddress, path: &Path) -> Result<Self, BusError> {
        let iommu_group = match link_name(&path.join("iommu_group"))? {
            None => None,
            Some(name) => {
                let number = name.parse().map_err(|_| nonsense(&path.join("iommu_group"), &name))?;
                Some(number)
            }
        };
        Ok(Self {
            address,
            vendor: hexadecimal(&path.join("vendor"))?,
            device: hexadecimal(&path.join("device"))?,
            class: hexadecimal(&path.join("class"))?,
            driver: link_name(&path.join("driver"))?,
            numa_node: numa_node(&path.join("numa_node"))?,
            iommu_group,
            bar_bytes: bar_bytes(&path.join("resource"))?,
            bus: bus.clone(),
        })
    }

    /// Its folder in `sysfs`.
    pub fn path(&self) -> PathBuf {
        self.bus.devices().join(self.address.to_string())
    }

    /// The bus it was read from.
    pub fn bus(&self) -> &PciBus {
        &self.bus
    }

    /// The function as it is now; `None` when it has been removed. Errors: as [`PciBus::find`].
    pub fn refresh(&self) -> Result<Option<Self>, BusError> {
        self.bus.find(self.address)
    }

    /// The other functions of its IOMMU group, in ascending order: they can only be handed to a process
    /// together. Errors: as [`PciBus::group`].
    pub fn group_others(&self) -> Result<Vec<Self>, BusError> {
        let Some(group) = self.iommu_group else { return Ok(Vec::new()) };
        let mut others = self.bus.group(group)?;
        others.retain(|other| other.address != self.address);
        Ok(others)
    }

    /// True when this function keeps its IOMMU group from being handed to a process: a driver of the kernel
    /// may use it.
    pub fn holds_group(&self) -> bool {
        let is_bridge = self.class >> 16 == BASE_CLASS_BRIDGE;
        match self.driver.as_deref() {
            None => false,
            // Drivers of the VFIO family, and the one that does nothing (drivers/vfio/vfio_main.c).
            Some(driver) => !is_bridge && driver != "pci-stub" && !driver.starts_with("vfio"),
        }
    }

    /// True when its memory accesses are translated: the IOMMU does not pass physical addresses through.
    pub fn is_translated(&self) -> bool {
        let Some(group) = self.iommu_group else { return false };
        let path = self.bus.sys().join("kernel/iommu_groups").join(group.to_string()).join("type");
        // `identity` passes addresses through; `DMA`, `DMA-FQ` and whatever else there is do not. Linux
        // before 5.11 has no such file: then it is not known, and the careful answer is yes.
        std::fs::read_to_string(path).map_or(true, |kind| kind.trim() != "identity")
    }

    /// Where the device node of its IOMMU group is.
    pub fn group_node(&self) -> Option<PathBuf> {
        self.iommu_group.map(|group| self.bus.dev().join("vfio").join(group.to_string()))
    }
}

/// Name of what a symbolic link points to; `None` when there is no such link.
fn link_name(path: &Path) -> Result<Option<String>, BusError> {
    match std::fs::read_link(path) {
        Ok(target) => match target.file_name().and_then(|name| name.to_str()) {
            Some(name) => Ok(Some(name.to_owned())),
            None => Err(nonsense(path, &target.display().to_string())),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(BusError::os(format!("read {}", path.display()), e)),
    }
}

fn text(path: &Path) -> Result<String, BusError> {
    let text =
        std::fs::read_to_string(path).map_err(|e| BusError::os(format!("read {}", path.display()), e))?;
    Ok(text.trim().to_owned())
}

/// A number such as `0x8086`, of at most as many bits as `T` has.
fn hexadecimal<T: TryFrom<u32>>(path: &Path) -> Result<T, BusError> {
    let text = text(path)?;
    let digits = text.strip_prefix("0x").ok_or_else(|| nonsense(path, &text))?;
    let number = u32::from_str_radix(digits, 16).map_err(|_| nonsense(path, &text))?;
    T::try_from(number).map_err(|_| nonsense(path, &text))
}

fn numa_node(path: &Path) -> Result<Option<u32>, BusError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        // A kernel without NUMA.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(BusError::os(format!("read {}", path.display()), e)),
    };
    let node: i64 = text.trim().parse().map_err(|_| nonsense(path, text.trim()))?;
    // -1: the firmware does not say.
    Ok(u32::try_from(node).ok())
}

/// Sizes from `resource`: a line of first address, last address and flags for each BAR, then for ROM and
/// bridges.
fn bar_bytes(path: &Path) -> Result<[u64; BARS], BusError> {
    let text = text(path)?;
    let mut sizes = [0; BARS];
    for (size, line) in sizes.iter_mut().zip(text.lines()) {
        let mut numbers = line
            .split_whitespace()
            .map(|word| word.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok()));
        let (Some(Some(first)), Some(Some(last))) = (numbers.next(), numbers.next()) else {
            return Err(nonsense(path, line));
        };
        if (first, last) != (0, 0) {
            let above = last.checked_sub(first).and_then(|above| above.checked_add(1));
            *size = above.ok_or_else(|| nonsense(path, line))?;
        }
    }
    Ok(sizes)
}

fn nonsense(path: &Path, text: &str) -> BusError {
    BusError::Protocol(format!("{} contains {text:?}, which makes no sense", path.display()))
}
