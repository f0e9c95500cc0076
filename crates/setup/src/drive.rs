//! NVMe functions of the PCI bus, and what the kernel's driver makes of them.

use unvme_bus::pci::{CLASS_NVM_EXPRESS, DRIVER_UIO, DRIVER_VFIO, PciFunction};

use super::System;
use super::usage::one_line;
use unvme::{Error, Result};

/// An NVMe function, as `sysfs` describes it. Nothing is opened to find out.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Drive {
    /// The function.
    pub function: PciFunction,
    /// The kernel's controller, `nvme0`; `None` when its driver does not have the function.
    pub controller: Option<String>,
    /// Serial number, from the kernel's driver.
    pub serial: Option<String>,
    /// Model number, from the kernel's driver.
    pub model: Option<String>,
    /// Firmware revision, from the kernel's driver.
    pub firmware: Option<String>,
    /// Namespaces that the kernel's driver offers.
    pub namespaces: Vec<KernelNamespace>,
}

/// A namespace as the kernel's driver offers it. With several controllers in the subsystem it is the one all
/// of them lead to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelNamespace {
    /// Its name, `nvme0n1`, whether or not there is a block device of that name.
    pub name: String,
    /// Namespace identifier, where the kernel says it.
    pub nsid: Option<u32>,
    /// True when there is a block device of its name.
    pub has_blocks: bool,
    /// The character device for passthrough, `ng0n1`.
    pub generic: Option<String>,
    /// Bytes of the block device.
    pub bytes: u64,
    /// Bytes of a logical block; 0 without a block device.
    pub block_bytes: u32,
    /// Its partitions, `nvme0n1p1`.
    pub partitions: Vec<String>,
}

/// All NVMe functions by address. A function that is removed meanwhile is left out. Errors: [`Error::Driver`]
/// when the bus cannot be listed.
pub fn drives(system: &System) -> Result<Vec<Drive>> {
    let functions = system.bus().functions(Some(CLASS_NVM_EXPRESS)).map_err(bus_error)?;
    Ok(functions.into_iter().map(|function| Drive::describe(system, function)).collect())
}

/// An error of looking at the PCI bus.
pub(super) fn bus_error(source: unvme_bus::BusError) -> Error {
    Error::driver("look at the PCI bus", source.into())
}

impl Drive {
    pub(super) fn describe(system: &System, function: PciFunction) -> Self {
        let folder = format!("/sys/bus/pci/devices/{}/nvme", function.address);
        let controller = system.names(&folder).into_iter().find(|name| is_numbered(name, "nvme"));
        let mut drive =
            Self { function, controller, serial: None, model: None, firmware: None, namespaces: Vec::new() };
        if let Some(controller) = &drive.controller {
            let folder = format!("{folder}/{controller}");
            let text = |name: &str| {
                let text = system.text(&format!("{folder}/{name}")).filter(|text| !text.is_empty());
                text.map(|text| one_line(&text))
            };
            drive.serial = text("serial");
            drive.model = text("model");
            drive.firmware = text("firmware_rev");
            let mut names: Vec<String> =
                system.names(&folder).iter().filter_map(|name| namespace_name(name)).collect();
            // A namespace has up to two entries here: one for blocks, one for passthrough.
            names.sort();
            names.dedup();
            drive.namespaces = names.into_iter().map(|name| KernelNamespace::read(system, name)).collect();
        }
        drive
    }

    /// The kernel's driver it is bound to.
    pub fn driver(&self) -> Option<&str> {
        self.function.driver.as_deref()
    }

    /// Its block devices without their partitions.
    pub(super) fn disks(&self) -> Vec<String> {
        self.namespaces.iter().filter(|namespace| namespace.has_blocks).map(|n| n.name.clone()).collect()
    }

    /// Its block devices: namespaces with their partitions.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &str> {
        self.namespaces.iter().filter(|namespace| namespace.has_blocks).flat_map(|namespace| {
            std::iter::once(namespace.name.as_str()).chain(namespace.partitions.iter().map(String::as_str))
        })
    }

    /// Paths of the character devices that the kernel's driver makes: of the controller, and of namespaces
    /// for passthrough.
    pub(super) fn character_nodes(&self) -> Vec<String> {
        let generic = self.namespaces.iter().filter_map(|namespace| namespace.generic.as_ref());
        self.controller.iter().chain(generic).map(|name| format!("/dev/{name}")).collect()
    }

    /// Paths of the device nodes that reach it through the driver it is bound to.
    pub fn nodes(&self) -> Vec<String> {
        let mut nodes = self.character_nodes();
        nodes.extend(self.blocks().map(|name| format!("/dev/{name}")));
        match (self.driver(), self.function.iommu_group) {
            (Some(DRIVER_VFIO), Some(group)) => nodes.push(format!("/dev/vfio/{group}")),
            (Some(DRIVER_UIO), _) => nodes.extend(entries(self, "uio").map(|name| format!("/dev/{name}"))),
            _ => {}
        }
        if self.driver() == Some(DRIVER_VFIO) {
            nodes.extend(entries(self, "vfio-dev").map(|name| format!("/dev/vfio/devices/{name}")));
        }
        nodes
    }
}

/// Names in a folder of the function's, such as `uio0` in `uio`.
fn entries(drive: &Drive, folder: &str) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(drive.function.path().join(folder));
    entries.into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok())
}

impl KernelNamespace {
    fn read(system: &System, name: String) -> Self {
        let folder = format!("/sys/class/block/{name}");
        // A namespace without blocks, such as one of pairs, has a hidden disk, or none.
        let has_blocks = system.has(&folder) && system.number(&format!("{folder}/hidden")) != Some(1);
        let generic = name.strip_prefix("nvme").map(|rest| format!("ng{rest}"));
        let generic = generic.filter(|generic| system.has(&format!("/sys/class/nvme-generic/{generic}")));
        let nsid = system.number(&format!("{folder}/nsid")).or_else(|| {
            system.number(&format!("/sys/class/nvme-generic/{}/nsid", generic.as_deref().unwrap_or_default()))
        });
        let mut namespace = Self {
            nsid: nsid.and_then(|nsid| u32::try_from(nsid).ok()),
            has_blocks,
            generic,
            name,
            ..Self::default()
        };
        if has_blocks {
            namespace.bytes = block_bytes(system, &namespace.name);
            let block = system.number(&format!("{folder}/queue/logical_block_size")).unwrap_or(0);
            namespace.block_bytes = u32::try_from(block).unwrap_or(0);
            namespace.partitions = system
                .names(&folder)
                .into_iter()
                .filter(|entry| system.has(&format!("{folder}/{entry}/partition")))
                .collect();
        }
        namespace
    }
}

/// Bytes of a block device. `sysfs` counts 512 bytes whatever the logical block is.
pub(super) fn block_bytes(system: &System, name: &str) -> u64 {
    system.number(&format!("/sys/class/block/{name}/size")).unwrap_or(0).saturating_mul(512)
}

/// True for `prefix` and a number.
fn is_numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// The namespace that an entry of a controller's folder belongs to: `nvme0n1` and `ng0n1` are nvme0n1, and so
/// is `nvme0c1n1`, the path by which one of several controllers reaches it.
fn namespace_name(entry: &str) -> Option<String> {
    let rest = entry.strip_prefix("nvme").or_else(|| entry.strip_prefix("ng"))?;
    let (left, namespace) = rest.split_once('n')?;
    let subsystem = match left.split_once('c') {
        Some((subsystem, controller)) if is_numbered(controller, "") => subsystem,
        Some(_) => return None,
        None => left,
    };
    (is_numbered(subsystem, "") && is_numbered(namespace, "")).then(|| format!("nvme{subsystem}n{namespace}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_controller_name_the_namespace_they_belong_to() {
        for (entry, namespace) in [
            ("nvme0n1", Some("nvme0n1")),
            ("nvme12c3n45", Some("nvme12n45")),
            ("ng0n1", Some("nvme0n1")),
            ("nvme0", None),
            ("nvme0n1p1", None),
            ("nvmen1", None),
            ("nvme0cn1", None),
            ("nvme0n", None),
            ("ngn", None),
            ("hwmon1", None),
            ("numa_node", None),
        ] {
            assert_eq!(namespace_name(entry).as_deref(), namespace, "{entry}");
        }
    }
}
