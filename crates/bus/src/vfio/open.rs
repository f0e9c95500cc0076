//! From a function of the bus to its descriptors, and what can be in the way.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use super::abi;
use super::container::Container;
use crate::pci::DRIVER_VFIO;
use crate::{BusError, PciFunction};

/// Devices that are named in an error.
const OTHERS_MAX: usize = 8;

/// The descriptors of a function that has been handed to this process.
#[derive(Debug)]
pub(super) struct Handles {
    pub(super) container: Container,
    pub(super) group: OwnedFd,
    pub(super) device: OwnedFd,
}

/// Opens the group of `function` in a container of its own, and the function.
pub(super) fn open(function: &PciFunction) -> Result<Handles, BusError> {
    check_driver(function)?;
    let (Some(group), Some(node)) = (function.iommu_group, function.group_node()) else {
        return Err(no_group(function));
    };
    let container = open_container(function)?;
    let group_fd = open_group(function, group, &node)?;
    check_viable(function, group, &group_fd)?;
    abi::set_container(&group_fd, &container).map_err(|e| match Errno::from_io_error(&e) {
        Some(Errno::BUSY) => busy(function, group, &node),
        _ => BusError::os(format!("{}: put IOMMU group {group} into a container", function.address), e),
    })?;
    abi::call(&container, abi::SET_IOMMU, abi::TYPE1V2_IOMMU).map_err(|e| no_iommu(function, e))?;
    // The kernel's name of a device is its address; none has a 0 in it.
    let name = CString::new(function.address.to_string()).unwrap_or_default();
    let device = abi::device_fd(&group_fd, &name).map_err(|e| match Errno::from_io_error(&e) {
        Some(Errno::BUSY) => busy(function, group, &node),
        _ => BusError::os(format!("{}: open it in IOMMU group {group}", function.address), e),
    })?;
    Ok(Handles { container: Container { fd: container }, group: group_fd, device })
}

fn check_driver(function: &PciFunction) -> Result<(), BusError> {
    let address = function.address;
    match function.driver.as_deref() {
        Some(DRIVER_VFIO) => Ok(()),
        None => Err(BusError::setup(
            format!("{address} is bound to no driver, and vfio-pci is expected"),
            format!("run `unvme setup config {address}`"),
        )),
        Some(driver) => Err(BusError::setup(
            format!("{address} is bound to the driver `{driver}`, and vfio-pci is expected"),
            format!("run `unvme setup config {address}`"),
        )),
    }
}

fn no_group(function: &PciFunction) -> BusError {
    let problem = format!("{} is in no IOMMU group", function.address);
    let remedy = if function.bus().has_iommu() {
        "the IOMMU of this machine does not reach it: run `unvme setup config --driver uio_pci_generic` for it and use it as root"
    } else {
        "switch the IOMMU on (VT-d or AMD-Vi in the firmware's setup, `intel_iommu=on` on the kernel's command line), or \
         run `unvme setup config --driver uio_pci_generic` for it and use it as root"
    };
    BusError::setup(problem, remedy)
}

fn open_node(path: &Path) -> io::Result<OwnedFd> {
    Ok(OpenOptions::new().read(true).write(true).open(path)?.into())
}

fn open_container(function: &PciFunction) -> Result<OwnedFd, BusError> {
    let path = function.bus().dev().join("vfio/vfio");
    let address = function.address;
    let container = open_node(&path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => BusError::setup(
            format!("{address}: there is no {}: the kernel's vfio is not loaded", path.display()),
            format!("run `unvme setup config {address}`, or `modprobe vfio-pci` as root"),
        ),
        io::ErrorKind::PermissionDenied => BusError::setup(
            format!("{address}: no permission to open {}", path.display()),
            format!("run `chmod 666 {}` as root", path.display()),
        ),
        _ => BusError::os(format!("{address}: open {}", path.display()), e),
    })?;
    let version = abi::call(&container, abi::GET_API_VERSION, 0)
        .map_err(|e| BusError::os(format!("{address}: {}", abi::GET_API_VERSION.name), e))?;
    if version != abi::API_VERSION {
        return Err(BusError::Unsupported(format!(
            "{address}: the kernel's vfio has version {version} of its interface; {} is supported",
            abi::API_VERSION
        )));
    }
    match abi::call(&container, abi::CHECK_EXTENSION, abi::TYPE1V2_IOMMU) {
        Ok(has) if has > 0 => Ok(container),
        _ => Err(BusError::setup(
            format!("{address}: the kernel's vfio has no IOMMU of type 1"),
            "run `modprobe vfio_iommu_type1` as root",
        )),
    }
}

fn open_group(function: &PciFunction, group: u32, node: &Path) -> Result<OwnedFd, BusError> {
    let address = function.address;
    open_node(node).map_err(|e| match Errno::from_io_error(&e) {
        Some(Errno::NOENT) => BusError::setup(
            format!("{address}: there is no {}, the node of its IOMMU group", node.display()),
            format!("run `unvme setup config {address}`"),
        ),
        Some(Errno::ACCESS | Errno::PERM) => BusError::setup(
            format!("{address}: no permission to open {}, the node of its IOMMU group", node.display()),
            format!(
                "as root run `unvme setup config {address} --user USER`, or `chown USER {}`",
                node.display()
            ),
        ),
        Some(Errno::BUSY) => busy(function, group, node),
        _ => BusError::os(format!("{address}: open {}", node.display()), e),
    })
}

fn busy(function: &PciFunction, group: u32, node: &Path) -> BusError {
    BusError::setup(
        format!("{} is in use: IOMMU group {group} has been opened already", function.address),
        format!("`fuser -v {}` shows by whom; an IOMMU group has one user at a time", node.display()),
    )
}

fn check_viable(function: &PciFunction, group: u32, fd: &OwnedFd) -> Result<(), BusError> {
    let mut status = abi::GroupStatus::default();
    abi::exchange(fd, abi::GROUP_GET_STATUS, status.as_mut_bytes())
        .map_err(|e| BusError::os(format!("{}: {}", function.address, abi::GROUP_GET_STATUS.name), e))?;
    if status.flags.get() & abi::GROUP_VIABLE != 0 {
        return Ok(());
    }
    Err(not_viable(function, group))
}

/// The group has other functions that drivers of the kernel use.
pub(super) fn not_viable(function: &PciFunction, group: u32) -> BusError {
    let address = function.address;
    let others = function.group_others().unwrap_or_default();
    let holders: Vec<_> = others.iter().filter(|other| other.holds_group()).collect();
    let named: Vec<_> = holders
        .iter()
        .take(OTHERS_MAX)
        .map(|other| format!("{} ({})", other.address, other.driver.as_deref().unwrap_or("no driver")))
        .collect();
    let list = if named.is_empty() { "which are not shown on the bus".to_owned() } else { named.join(", ") };
    BusError::setup(
        format!("{address}: other devices of its IOMMU group {group} are used by the kernel: {list}"),
        "a group can only be handed over as a whole: take each from its driver (as root, `echo ADDRESS > \
         /sys/bus/pci/devices/ADDRESS/driver/unbind`), or move the drive to another slot of the machine",
    )
}

fn no_iommu(function: &PciFunction, source: io::Error) -> BusError {
    let address = function.address;
    match Errno::from_io_error(&source) {
        Some(Errno::PERM) => BusError::setup(
            format!("{address}: the kernel does not trust the IOMMU, which does not remap interrupts"),
            "switch interrupt remapping on in the firmware's setup, or allow it as root: \
             `echo 1 > /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts`",
        ),
        _ => BusError::os(format!("{address}: {}", abi::SET_IOMMU.name), source),
    }
}

/// What a device says about itself.
pub(super) struct DeviceFacts {
    pub(super) is_resettable: bool,
}

/// Asks the device for its kind.
pub(super) fn device_facts(function: &PciFunction, device: &OwnedFd) -> Result<DeviceFacts, BusError> {
    let question = abi::DeviceInfo { argsz: 0.into(), flags: 0.into(), regions: 0.into(), irqs: 0.into() };
    let mut bytes = question.as_bytes().to_vec();
    abi::exchange(device, abi::DEVICE_GET_INFO, &mut bytes)
        .map_err(|e| BusError::os(format!("{}: {}", function.address, abi::DEVICE_GET_INFO.name), e))?;
    let flags = abi::DeviceInfo::ref_from_prefix(&bytes).map_or(0, |(info, _)| info.flags.get());
    if flags & abi::DEVICE_PCI == 0 {
        return Err(BusError::Protocol(format!("{}: the kernel says it is not on PCI", function.address)));
    }
    Ok(DeviceFacts { is_resettable: flags & abi::DEVICE_RESETTABLE != 0 })
}
