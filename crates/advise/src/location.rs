//! Where a device is: its NUMA node, its driver, its interrupts.

use std::path::Path;

use serde::Serialize;
use unvme::{DeviceName, Registry, Result};
use unvme_setup::{Drive, System, drives};

use crate::interrupts::{self, Interrupt, interrupts};

/// How a device is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reach {
    /// A virtual SSD of this process: the thread that polls it is the device, too.
    InProcess,
    /// A virtual slot that this process opened: it is in this process, too, and keeps its data.
    Slot,
    /// A virtual slot that another process holds, or the socket of one.
    Process,
    /// A drive that user space has, by VFIO or UIO.
    UserSpace,
    /// A drive that the kernel's driver has.
    Kernel,
    /// Another machine.
    Network,
    /// A drive that no driver has, or a file.
    Other,
}

/// A device, and where it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Location {
    /// Its name as given; of a drive that was found, its address.
    pub name: String,
    /// How it is reached.
    pub reach: Reach,
    /// Its address on the PCI bus, if it is there.
    pub address: Option<String>,
    /// The kernel's controller, `nvme0`.
    pub controller: Option<String>,
    /// The driver it is bound to.
    pub driver: Option<String>,
    /// Its NUMA node; `None` where it has none, or the firmware does not say.
    pub node: Option<u32>,
    /// Its interrupts.
    pub interrupts: Vec<Interrupt>,
}

impl Location {
    /// A device of which nothing is known but its name.
    pub fn nowhere(name: &str, reach: Reach) -> Self {
        Self {
            name: name.to_owned(),
            reach,
            address: None,
            controller: None,
            driver: None,
            node: None,
            interrupts: Vec::new(),
        }
    }

    fn of(system: &System, name: &str, drive: &Drive, all: &[Interrupt]) -> Result<Self> {
        let address = drive.function.address.to_string();
        let numbers = interrupts::of_function(system, &address)?;
        let reach = match drive.driver() {
            Some("nvme") => Reach::Kernel,
            Some("vfio-pci" | "uio_pci_generic") => Reach::UserSpace,
            _ => Reach::Other,
        };
        Ok(Self {
            name: name.to_owned(),
            reach,
            controller: drive.controller.clone(),
            driver: drive.driver().map(str::to_owned),
            node: drive.function.numa_node,
            interrupts: all.iter().filter(|one| numbers.contains(&one.number)).cloned().collect(),
            address: Some(address),
        })
    }
}

/// All NVMe drives of the PCI bus, by their addresses.
///
/// # Errors
/// Those of [`drives`] and [`interrupts`].
pub fn located_drives(system: &System) -> Result<Vec<Location>> {
    let all = interrupts(system)?;
    let locate = |drive: &Drive| Location::of(system, &drive.function.address.to_string(), drive, &all);
    drives(system)?.iter().map(locate).collect()
}

/// Where the device called `name` is. A name that says nothing of a place, and a drive that is not on the
/// bus, has a location without a node.
///
/// # Errors
/// [`unvme::Error::Name`] for what is no name of a device; those of [`located_drives`].
pub fn locate(system: &System, name: &str) -> Result<Location> {
    match DeviceName::parse(name)? {
        Some(DeviceName::Memory(_)) => Ok(Location::nowhere(name, Reach::InProcess)),
        Some(DeviceName::VfioUser(_)) => Ok(Location::nowhere(name, Reach::Process)),
        Some(DeviceName::Tcp(_)) => Ok(Location::nowhere(name, Reach::Network)),
        Some(DeviceName::Address(address)) => {
            let is_slot = system.is_live()
                && Registry::from_environment().is_ok_and(|registry| registry.find(address).is_some());
            if is_slot {
                // Opened by this process, it is in it; held by another one, it is reached through that.
                return Ok(Location::nowhere(name, Reach::Process));
            }
            let found = drives(system)?.into_iter().find(|drive| drive.function.address == address);
            match found {
                Some(drive) => Location::of(system, name, &drive, &interrupts(system)?),
                None => Ok(Location::nowhere(name, Reach::Other)),
            }
        }
        Some(DeviceName::Kernel(path)) => {
            let found = drives(system)?.into_iter().find(|drive| is_of(drive, &path));
            match found {
                Some(drive) => Location::of(system, name, &drive, &interrupts(system)?),
                None => Ok(Location::nowhere(name, Reach::Other)),
            }
        }
        _ => Ok(Location::nowhere(name, Reach::Other)),
    }
}

/// True when a device node is one of this drive's.
fn is_of(drive: &Drive, path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    drive.controller.as_deref() == Some(name)
        || drive.namespaces.iter().any(|namespace| {
            namespace.name == name
                || namespace.generic.as_deref() == Some(name)
                || namespace.partitions.iter().any(|partition| partition == name)
        })
}
