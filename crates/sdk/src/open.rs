//! From a name to a device: the one place where transports are chosen.

use std::sync::Arc;
#[cfg(feature = "local")]
use std::sync::Weak;
use std::time::Duration;

use unvme_bus::Function;
use unvme_bus::vfio_user::Client;
use unvme_driver::{Controller, ControllerOptions, Reconnect};
#[cfg(feature = "local")]
use unvme_ssd::Ssd;

use crate::device::{Device, Origin, Transport};
use crate::drive;
use crate::registry::Slot;
use crate::share::Offer;
use crate::share::attach::{Holder, Retries, attach, is_lost};
use crate::share::place::{DrivePlace, Held as Place};
use crate::{DeviceName, Error, PciAddress, Registry, Result, fabrics};

/// How to open a device.
///
/// ```
/// use std::time::Duration;
/// use unvme::{ControllerOptions, OpenOptions, open};
///
/// # fn main() -> Result<(), unvme::Error> {
/// // Nobody else may open it meanwhile, and an admin command that takes a second has failed.
/// let controller =
///     ControllerOptions { admin_timeout: Duration::from_secs(1), ..ControllerOptions::default() };
/// let options = OpenOptions { share: false, controller, ..OpenOptions::default() };
/// let device = open("mem:block:64M", &options)?;
/// # let _ = device;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Where virtual slots are; `None` means [`Registry::from_environment`].
    pub registry: Option<Registry>,
    /// Options of the driver.
    pub controller: ControllerOptions,
    /// Other processes may use a slot or a drive while this one holds it: they open it by the same name, for
    /// as long as the [`Device`] lives here; what was made from it alone, a [`crate::Block`] say, holds it
    /// without sharing. With false they are told that it is in use. True by default.
    pub share: bool,
    /// How long a lost connection to a device on the network is tried again before the device is given up:
    /// commands wait until then. Those in flight that leave the same when they are executed twice (reads,
    /// writes, stores without a condition) are sent again; the others end. `reconnect=` in the device's name
    /// goes before it. 10 seconds by default; a service that is to outlast a restart of its target wants
    /// more.
    pub reconnect: Duration,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            registry: None,
            controller: ControllerOptions::default(),
            share: true,
            reconnect: Reconnect::default().give_up_after,
        }
    }
}

impl OpenOptions {
    fn registry(&self) -> Result<Registry> {
        self.registry.clone().map_or_else(Registry::from_environment, Ok)
    }
}

/// Opens the device called `name`, and no other: see [`crate::NAME_SYNTAX`].
///
/// # Errors
/// [`Error::NotFound`] lists what is there; [`Error::InUse`] when another process holds a slot and does not
/// serve it; [`Error::Unplugged`] for a slot that is, or has been meanwhile; [`Error::Name`] and
/// [`Error::Unsupported`] say what was expected; or what the device itself reports.
pub fn open(name: &str, options: &OpenOptions) -> Result<Device> {
    open_as_it_is(name, options).map_err(|error| unplugged(name, options).unwrap_or(error))
}

/// Why a slot does not open that is unplugged, whatever step it was that has failed.
fn unplugged(name: &str, options: &OpenOptions) -> Option<Error> {
    options.registry().ok()?.find(name.parse().ok()?)?.check_plugged().err()
}

fn open_as_it_is(name: &str, options: &OpenOptions) -> Result<Device> {
    let retries = Retries::new();
    loop {
        let found = connect(name, options, &retries)?;
        #[cfg(feature = "local")]
        let ssd = found.ssd;
        let Found { open, transport, origin, offer, .. } = found;
        let is_attached = transport == Transport::VfioUser && offer.is_none();
        let controller = match open(options.controller.clone()) {
            // Its holder has just closed it: this process may be the next.
            Err(e) if is_attached && is_lost(&e) && retries.wait(name, "its holder has just closed it") => {
                continue;
            }
            opened => opened.map_err(|e| Error::driver(format!("open {name}"), e))?,
        };
        let device = Device::new(canonical(name), transport, origin, controller)?;
        #[cfg(feature = "local")]
        let device = device.of_ssd(ssd);
        return Ok(match offer {
            Some(offer) => {
                let held = offer.start(name, device.controller(), options.share);
                device.with_others(held)
            }
            None => device,
        });
    }
}

/// Opens the controller of a device that has been found.
type Opening = Box<dyn FnOnce(ControllerOptions) -> std::result::Result<Controller, unvme_driver::Error>>;

/// A device, and what is known of it.
struct Found {
    open: Opening,
    transport: Transport,
    origin: Origin,
    /// What others can be offered, when this process holds the device.
    offer: Option<Offer>,
    /// The virtual SSD, when it is in this process.
    #[cfg(feature = "local")]
    ssd: Weak<Ssd>,
}

impl Found {
    fn new(function: Arc<dyn Function>, transport: Transport, origin: Origin) -> Self {
        Self::with(Box::new(|options| Controller::open(function, options)), transport, origin)
    }

    fn with(open: Opening, transport: Transport, origin: Origin) -> Self {
        Self {
            open,
            transport,
            origin,
            offer: None,
            #[cfg(feature = "local")]
            ssd: Weak::new(),
        }
    }

    #[cfg(feature = "local")]
    fn here(ssd: Arc<Ssd>) -> Self {
        let known = Arc::downgrade(&ssd);
        Self { ssd: known, ..Self::new(ssd, Transport::InProcess, Origin::Virtual) }
    }
}

/// Opens a device of the caller's own making: any PCI function that is an NVMe controller. `name` is what
/// errors call it.
///
/// # Errors
/// What the device itself reports.
pub fn open_function(name: &str, function: Arc<dyn Function>, options: &ControllerOptions) -> Result<Device> {
    let controller =
        Controller::open(function, options.clone()).map_err(|e| Error::driver(format!("open {name}"), e))?;
    Device::new(name.to_owned(), Transport::InProcess, Origin::Unknown, controller)
}

/// The name as the SDK writes it: `02:00.0` becomes `0000:02:00.0`.
fn canonical(name: &str) -> String {
    name.parse::<PciAddress>().map_or_else(|_| name.to_owned(), |address| address.to_string())
}

fn connect(name: &str, options: &OpenOptions, retries: &Retries) -> Result<Found> {
    match DeviceName::parse(name)? {
        Some(DeviceName::VfioUser(path)) => {
            let client = Client::connect(&path)
                .map_err(|e| Error::driver(format!("open {name}"), unvme_driver::Error::Bus(e)))?;
            Ok(Found::new(client, Transport::VfioUser, Origin::Unknown))
        }
        #[cfg(feature = "local")]
        Some(DeviceName::Memory(device)) => Ok(Found::here(crate::local::memory(&device)?)),
        #[cfg(not(feature = "local"))]
        Some(DeviceName::Memory(_)) => Err(without_local(name)),
        Some(DeviceName::Address(address)) => {
            let registry = options.registry()?;
            if let Some(slot) = registry.find(address) {
                return connect_slot(&slot, retries);
            }
            connect_drive(address, retries)?.ok_or_else(|| registry.not_found(name))
        }
        Some(DeviceName::Kernel(path)) => {
            let open = Box::new(move |options| Controller::open_kernel(&path, options));
            Ok(Found::with(open, Transport::Kernel, Origin::Unknown))
        }
        Some(DeviceName::Tcp(tcp)) => {
            let target = fabrics::target_of(&tcp, &options.registry()?, options.reconnect)?;
            let open = Box::new(|options| Controller::open_tcp(target, options));
            Ok(Found::with(open, Transport::Tcp, Origin::Unknown))
        }
        None => Err(options.registry()?.not_found(name)),
    }
}

#[cfg(feature = "local")]
fn connect_slot(slot: &Slot, retries: &Retries) -> Result<Found> {
    use crate::local::{Opened, slot as open_slot};
    use crate::share::guest::Guest;
    loop {
        let pid = match open_slot(slot)? {
            Opened::Here(ssd) => {
                let (lock, socket) = (slot.lock_path(), slot.socket_path());
                let offer = Offer::Slot { ssd: Arc::clone(&ssd), lock, socket };
                return Ok(Found { offer: Some(offer), ..Found::here(ssd) });
            }
            Opened::Busy(pid) => pid,
        };
        if let Some(client) = attach_slot(slot, pid, retries)? {
            return Ok(Found::new(Guest::new(slot, client), Transport::VfioUser, Origin::Virtual));
        }
    }
}

#[cfg(not(feature = "local"))]
fn connect_slot(slot: &Slot, retries: &Retries) -> Result<Found> {
    loop {
        let Some(pid) = slot.holder()? else {
            return Err(without_local(&slot.address.to_string()));
        };
        if let Some(client) = attach_slot(slot, pid, retries)? {
            return Ok(Found::new(client, Transport::VfioUser, Origin::Virtual));
        }
    }
}

fn attach_slot(slot: &Slot, pid: Option<u32>, retries: &Retries) -> Result<Option<Arc<dyn Function>>> {
    let (name, lock, socket) = (slot.address.to_string(), slot.lock_path(), slot.socket_path());
    attach(&Holder { name: &name, pid, lock: &lock, socket: &socket }, retries)
}

/// The drive at an address, here or through the process that holds it; `None` when the bus has none there.
fn connect_drive(address: PciAddress, retries: &Retries) -> Result<Option<Found>> {
    loop {
        if !drive::is_taken_over(address)? {
            // Nobody holds it then: what there is to say does not depend on others.
            let found = drive::open(address)?;
            return Ok(found.map(|(function, transport)| Found::new(function, transport, Origin::Unknown)));
        }
        let (pid, lock, socket) = match DrivePlace::hold(address)? {
            Place::Here(place) => {
                let found = drive::open(address)?;
                return Ok(found.map(|(function, transport)| Found {
                    offer: Some(Offer::Drive(place)),
                    ..Found::new(function, transport, Origin::Unknown)
                }));
            }
            Place::Busy { pid, lock, socket } => (pid, lock, socket),
        };
        let name = address.to_string();
        if let Some(client) = attach(&Holder { name: &name, pid, lock: &lock, socket: &socket }, retries)? {
            return Ok(Some(Found::new(client, Transport::VfioUser, Origin::Unknown)));
        }
    }
}

#[cfg(not(feature = "local"))]
fn without_local(name: &str) -> Error {
    let reason = "this build has no virtual SSD; serve the device with `unvme serve` and attach to it";
    Error::Unsupported { name: name.into(), reason: reason.into() }
}
