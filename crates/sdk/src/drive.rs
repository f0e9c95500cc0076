//! Drives on the PCI bus, taken over from the kernel.

use std::fs;
use std::sync::Arc;

use unvme_bus::pci::{CLASS_NVM_EXPRESS, DRIVER_UIO, DRIVER_VFIO};
use unvme_bus::uio::UioFunction;
use unvme_bus::vfio::VfioFunction;
use unvme_bus::{BusError, Function, PciAddress, PciBus, PciFunction};

use crate::device::Transport;
use crate::{Error, Result};

/// The kernel's own driver.
const DRIVER_KERNEL: &str = "nvme";
/// Drives that are named in an error.
const NAMED_MAX: usize = 16;

/// The function at `address`; `None` when the bus has none there. Errors: [`Error::Setup`] with what is
/// missing to drive it from user space and the command that helps, [`Error::Unsupported`] for a function that
/// is no NVMe controller, [`Error::Driver`].
pub(crate) fn open(address: PciAddress) -> Result<Option<(Arc<dyn Function>, Transport)>> {
    open_on(&PciBus::system(), address)
}

/// True when there is a drive at `address` that user space has, so that some process may hold it. Errors:
/// those of looking at the bus.
pub(crate) fn is_taken_over(address: PciAddress) -> Result<bool> {
    let found = PciBus::system().find(address).map_err(|e| failed(address, e))?;
    let drives =
        |function: &PciFunction| matches!(function.driver.as_deref(), Some(DRIVER_VFIO | DRIVER_UIO));
    Ok(found.as_ref().is_some_and(drives))
}

fn open_on(bus: &PciBus, address: PciAddress) -> Result<Option<(Arc<dyn Function>, Transport)>> {
    let Some(function) = bus.find(address).map_err(|e| failed(address, e))? else { return Ok(None) };
    if function.class != CLASS_NVM_EXPRESS {
        let reason = format!(
            "the PCI function there has class {:06x}, and an NVMe controller has {CLASS_NVM_EXPRESS:06x}; {}",
            function.class,
            available_on(bus)
        );
        return Err(Error::Unsupported { name: address.to_string(), reason });
    }
    match function.driver.as_deref() {
        Some(DRIVER_VFIO) => match VfioFunction::open(&function) {
            Ok(opened) => Ok(Some((opened, Transport::Vfio))),
            Err(e) => Err(failed(address, e)),
        },
        Some(DRIVER_UIO) => match UioFunction::open(&function) {
            Ok(opened) => Ok(Some((opened, Transport::Uio))),
            Err(e) => Err(failed(address, e)),
        },
        driver => Err(not_ours(&function, driver)),
    }
}

fn failed(address: PciAddress, e: BusError) -> Error {
    match e {
        BusError::Setup { problem, remedy } => Error::Setup { problem, remedy },
        e => Error::driver(format!("open {address}"), unvme_driver::Error::Bus(e)),
    }
}

/// The error for a drive that has not been taken over.
fn not_ours(function: &PciFunction, driver: Option<&str>) -> Error {
    let address = function.address;
    let take_over = format!("take it over with `unvme setup config {address}`");
    match driver {
        Some(DRIVER_KERNEL) => {
            let node = node(function);
            Error::Setup {
                problem: match &node {
                    Some(node) => format!("{address} is driven by the kernel, as {node}"),
                    None => format!("{address} is driven by the kernel"),
                },
                remedy: format!(
                    "use `kernel:{}` to share it with the kernel, or {take_over}",
                    node.unwrap_or_else(|| "/dev/nvmeN".to_owned())
                ),
            }
        }
        Some(driver) => Error::Setup {
            problem: format!(
                "{address} is bound to the driver `{driver}`; {DRIVER_VFIO} or {DRIVER_UIO} is expected"
            ),
            // Setup does not take it from a driver that it does not know.
            remedy: format!(
                "release it there first (echo {address} > /sys/bus/pci/drivers/{driver}/unbind), then {take_over}"
            ),
        },
        None => Error::Setup { problem: format!("{address} is bound to no driver"), remedy: take_over },
    }
}

/// The kernel's name of a controller, such as `/dev/nvme0`.
fn node(function: &PciFunction) -> Option<String> {
    let mut entries = fs::read_dir(function.path().join("nvme")).ok()?;
    let name = entries.find_map(|entry| entry.ok()?.file_name().into_string().ok())?;
    Some(format!("/dev/{name}"))
}

/// The drives of this machine, for errors: `NVMe drives of this machine are 0000:01:00.0 (nvme), ...`.
pub(crate) fn available() -> String {
    available_on(&PciBus::system())
}

fn available_on(bus: &PciBus) -> String {
    let functions = match bus.functions(Some(CLASS_NVM_EXPRESS)) {
        Ok(functions) => functions,
        Err(e) => return format!("the drives of this machine cannot be listed ({e})"),
    };
    if functions.is_empty() {
        return "this machine has no NVMe drive on its PCI bus".to_owned();
    }
    let named: Vec<String> = functions
        .iter()
        .take(NAMED_MAX)
        .map(|function| {
            let driver = function.driver.as_deref().unwrap_or("no driver");
            format!("{} ({driver})", function.address)
        })
        .collect();
    let more = match functions.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("NVMe drives of this machine are {}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    /// Adds a function to a faked `/sys`.
    fn add(sys: &Path, address: &str, class: &str, driver: Option<&str>) {
        let folder = sys.join("bus/pci/devices").join(address);
        fs::create_dir_all(&folder).expect("a folder");
        for (file, text) in [
            ("vendor", "0x1b36\n"),
            ("device", "0x0010\n"),
            ("class", class),
            ("numa_node", "-1\n"),
            ("resource", "0x00000000fe800000 0x00000000fe803fff 0x0000000000140204\n"),
        ] {
            fs::write(folder.join(file), text).expect("a file");
        }
        if let Some(driver) = driver {
            symlink(format!("../../../bus/pci/drivers/{driver}"), folder.join("driver")).expect("a link");
        }
    }

    fn error(sys: &Path, address: &str) -> String {
        let bus = PciBus::at(sys).with_dev(sys.join("dev"));
        match open_on(&bus, address.parse().expect("an address")) {
            Ok(found) => panic!("{address}: opened: {}", found.is_some()),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn a_drive_of_the_kernel_says_both_ways_to_use_it() {
        let sys = tempfile::tempdir().expect("a folder");
        add(sys.path(), "0000:01:00.0", "0x010802\n", Some("nvme"));
        fs::create_dir_all(sys.path().join("bus/pci/devices/0000:01:00.0/nvme/nvme3")).expect("a folder");
        assert_eq!(
            error(sys.path(), "0000:01:00.0"),
            "0000:01:00.0 is driven by the kernel, as /dev/nvme3; use `kernel:/dev/nvme3` to share it with the kernel, or \
             take it over with `unvme setup config 0000:01:00.0`"
        );
    }

    #[test]
    fn other_drivers_and_none_are_named() {
        let sys = tempfile::tempdir().expect("a folder");
        add(sys.path(), "0000:01:00.0", "0x010802\n", None);
        add(sys.path(), "0000:02:00.0", "0x010802\n", Some("pci-stub"));
        assert_eq!(
            error(sys.path(), "0000:01:00.0"),
            "0000:01:00.0 is bound to no driver; take it over with `unvme setup config 0000:01:00.0`"
        );
        let text = error(sys.path(), "0000:02:00.0");
        assert!(text.contains("bound to the driver `pci-stub`"), "{text}");
        assert!(
            text.contains(
                "; release it there first (echo 0000:02:00.0 > /sys/bus/pci/drivers/pci-stub/unbind)"
            ),
            "{text}"
        );
    }

    #[test]
    fn what_is_no_drive_is_refused_and_the_drives_are_listed() {
        let sys = tempfile::tempdir().expect("a folder");
        add(sys.path(), "0000:00:02.0", "0x030000\n", None);
        let text = error(sys.path(), "0000:00:02.0");
        assert!(text.contains("class 030000") && text.contains("has no NVMe drive"), "{text}");
        add(sys.path(), "0000:01:00.0", "0x010802\n", Some("vfio-pci"));
        add(sys.path(), "0000:02:00.0", "0x010802\n", None);
        let text = error(sys.path(), "0000:00:02.0");
        assert!(
            text.ends_with(
                "NVMe drives of this machine are 0000:01:00.0 (vfio-pci), 0000:02:00.0 (no driver)"
            ),
            "{text}"
        );
    }

    #[test]
    fn an_address_without_a_function_is_no_error_here() {
        let sys = tempfile::tempdir().expect("a folder");
        let address = "0000:01:00.0".parse().expect("an address");
        assert!(matches!(open_on(&PciBus::at(sys.path()), address), Ok(None)));
    }
}
