//! From a name to a device: the one place where transports are chosen.

use std::io;
use std::sync::Arc;

use unvme_bus::vfio_user::Client;
use unvme_bus::{BusError, Function};
use unvme_driver::{Controller, ControllerOptions};

use crate::device::{Device, Transport};
use crate::registry::Slot;
use crate::{DeviceName, Error, PciAddress, Registry, Result};

/// How to open a device.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Where virtual slots are; `None` means [`Registry::from_environment`].
    pub registry: Option<Registry>,
    /// Options of the driver.
    pub controller: ControllerOptions,
}

impl OpenOptions {
    fn registry(&self) -> Result<Registry> {
        self.registry.clone().map_or_else(Registry::from_environment, Ok)
    }
}

/// Opens the device called `name`, and no other: see [`crate::NAME_SYNTAX`].
///
/// # Errors
/// [`Error::NotFound`] lists what is there; [`Error::InUse`] when another process holds a slot and does not serve it;
/// [`Error::Name`] and [`Error::Unsupported`] say what was expected; or what the device itself reports.
pub fn open(name: &str, options: &OpenOptions) -> Result<Device> {
    let (function, transport) = connect(name, options)?;
    let controller = Controller::open(function, options.controller.clone())
        .map_err(|e| Error::driver(format!("open {name}"), e))?;
    Device::new(canonical(name), transport, controller)
}

/// Opens a device of the caller's own making: any PCI function that is an NVMe controller. `name` is what errors call
/// it.
///
/// # Errors
/// What the device itself reports.
pub fn open_function(name: &str, function: Arc<dyn Function>, options: &ControllerOptions) -> Result<Device> {
    let controller =
        Controller::open(function, options.clone()).map_err(|e| Error::driver(format!("open {name}"), e))?;
    Device::new(name.to_owned(), Transport::InProcess, controller)
}

/// The name as the SDK writes it: `02:00.0` becomes `0000:02:00.0`.
fn canonical(name: &str) -> String {
    name.parse::<PciAddress>().map_or_else(|_| name.to_owned(), |address| address.to_string())
}

fn connect(name: &str, options: &OpenOptions) -> Result<(Arc<dyn Function>, Transport)> {
    match DeviceName::parse(name)? {
        Some(DeviceName::VfioUser(path)) => {
            let client = Client::connect(&path)
                .map_err(|e| Error::driver(format!("open {name}"), unvme_driver::Error::Bus(e)))?;
            Ok((client, Transport::VfioUser))
        }
        #[cfg(feature = "local")]
        Some(DeviceName::Memory(device)) => Ok((crate::local::memory(&device)?, Transport::InProcess)),
        #[cfg(not(feature = "local"))]
        Some(DeviceName::Memory(_)) => Err(without_local(name)),
        Some(DeviceName::Slot(address)) => {
            let registry = options.registry()?;
            let Some(slot) = registry.find(address) else {
                return Err(registry.not_found(name));
            };
            connect_slot(&slot)
        }
        None => Err(options.registry()?.not_found(name)),
    }
}

#[cfg(feature = "local")]
fn connect_slot(slot: &Slot) -> Result<(Arc<dyn Function>, Transport)> {
    use crate::local::{Opened, slot as open_slot};
    match open_slot(slot)? {
        Opened::Here(ssd) => Ok((ssd, Transport::InProcess)),
        Opened::Busy(pid) => Ok((attach(slot, pid)?, Transport::VfioUser)),
    }
}

#[cfg(not(feature = "local"))]
fn connect_slot(slot: &Slot) -> Result<(Arc<dyn Function>, Transport)> {
    match slot.holder()? {
        Some(pid) => Ok((attach(slot, pid)?, Transport::VfioUser)),
        None => Err(without_local(&slot.address.to_string())),
    }
}

#[cfg(not(feature = "local"))]
fn without_local(name: &str) -> Error {
    let reason = "this build has no virtual SSD; serve the device with `unvme serve` and attach to it";
    Error::Unsupported { name: name.into(), reason: reason.into() }
}

/// Reaches a slot through the process that holds it.
fn attach(slot: &Slot, pid: Option<u32>) -> Result<Arc<dyn Function>> {
    let in_use = |reason: String| Error::InUse { name: slot.address.to_string(), pid, reason };
    let path = slot.socket_path();
    if !path.exists() {
        let reason = if pid == Some(std::process::id()) {
            "this process has the device open already, and it opens once"
        } else {
            "it does not serve the device to others; wait for it, stop it, or start `unvme serve` instead"
        };
        return Err(in_use(reason.into()));
    }
    Client::connect(&path).map(|client| client as Arc<dyn Function>).map_err(|e| match e {
        BusError::Os { source, .. } if source.kind() == io::ErrorKind::ResourceBusy => {
            in_use("it serves another client, and one at a time; wait for that one to leave".into())
        }
        e => in_use(format!("its server cannot be reached ({e}); stop it")),
    })
}
