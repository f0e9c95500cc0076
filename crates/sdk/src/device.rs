//! An open device.

use std::fmt;
use std::sync::Arc;
#[cfg(feature = "local")]
use std::sync::Weak;

use unvme_driver::{Controller, KvOptions};
use unvme_spec::identify::IdentifyController;
use unvme_spec::identify::text::Text;
use unvme_spec::{Nsid, identify};

use crate::block::Block;
use crate::fabrics::KeepAlive;
use crate::handle::Desk;
use crate::kv::Kv;
use crate::share::Held;
use crate::share::place::DrivePlace;
use crate::{Error, Result};

/// How a device is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// The virtual SSD in this process.
    InProcess,
    /// Shared memory with the process that serves or holds the device.
    VfioUser,
    /// A PCI function through VFIO.
    Vfio,
    /// A PCI function through UIO, without an IOMMU.
    Uio,
    /// The kernel's driver.
    Kernel,
    /// NVMe/TCP.
    Tcp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::InProcess => "in-process",
            Self::VfioUser => "vfio-user",
            Self::Vfio => "vfio",
            Self::Uio => "uio",
            Self::Kernel => "kernel",
            Self::Tcp => "tcp",
        })
    }
}

/// Who a device says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Serial number.
    pub serial: String,
    /// Model number.
    pub model: String,
    /// Firmware revision.
    pub firmware: String,
    /// PCI vendor.
    pub vendor: u16,
    /// Identifier of the controller in its NVM subsystem.
    pub controller_id: u16,
}

impl From<&IdentifyController> for Identity {
    fn from(data: &IdentifyController) -> Self {
        Self {
            serial: Text::new(&data.sn).to_string(),
            model: Text::new(&data.mn).to_string(),
            firmware: Text::new(&data.fr).to_string(),
            vendor: data.vid,
            controller_id: data.cntlid,
        }
    }
}

/// An active namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceEntry {
    /// Namespace identifier.
    pub nsid: Nsid,
    /// Command set, see [`unvme_spec::identify::csi`].
    pub command_set: u8,
}

/// An open device. Closed when it and everything made from it is dropped.
///
/// ```
/// use unvme::{Nsid, OpenOptions, Transport, open};
///
/// # fn main() -> Result<(), unvme::Error> {
/// let device = open("mem:block:64M", &OpenOptions::default())?;
/// assert_eq!(device.transport(), Transport::InProcess);
/// println!("{}: {}", device.name(), device.identity().model);
/// assert_eq!(device.namespaces()?, [Nsid(1)]);
/// // Admin commands go through the controller.
/// let identify = device.admin(|controller| controller.identify_namespace(Nsid(1)))?;
/// assert_eq!(identify.nsze, device.block(Nsid(1))?.blocks());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Device {
    /// First, so that other processes are sent away before the controller goes.
    held: Option<Held>,
    name: String,
    transport: Transport,
    origin: Origin,
    identity: Identity,
    controller: Controller,
    /// What its handles share.
    desk: Arc<Desk>,
    /// The virtual SSD, when it is in this process.
    #[cfg(feature = "local")]
    ssd: Weak<unvme_ssd::Ssd>,
    /// Told when the controller has been closed.
    _kept: Option<KeepAlive>,
    /// Last: whoever gets the lock in it opens the drive, which has one user at a time.
    place: Option<DrivePlace>,
}

/// What is known of a device besides what it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Made here: a virtual slot, or a device in memory.
    Virtual,
    /// A drive, or whatever somebody else serves.
    Unknown,
}

impl Device {
    pub(crate) fn new(
        name: String,
        transport: Transport,
        origin: Origin,
        controller: Controller,
    ) -> Result<Self> {
        let data = controller.identify_controller().map_err(|e| Error::driver(name.as_str(), e))?;
        let identity = Identity::from(&data);
        let kept = KeepAlive::start(&name, &controller);
        let desk = Desk::new(controller.clock());
        Ok(Self {
            held: None,
            name,
            transport,
            origin,
            identity,
            controller,
            desk,
            #[cfg(feature = "local")]
            ssd: Weak::new(),
            _kept: kept,
            place: None,
        })
    }

    /// It is this virtual SSD.
    #[cfg(feature = "local")]
    pub(crate) fn of_ssd(self, ssd: Weak<unvme_ssd::Ssd>) -> Self {
        Self { ssd, ..self }
    }

    /// What the translation layer of a virtual SSD in this process has counted; `None` for one without, and
    /// for any other device.
    #[cfg(feature = "local")]
    pub fn flash_stats(&self) -> Option<unvme_ssd::FlashStats> {
        self.ssd.upgrade()?.ftl_stats()
    }

    /// Lets other processes use the device for as long as this lives.
    pub(crate) fn with_others(mut self, mut held: Held) -> Self {
        self.place = held.take_place();
        self.held = Some(held);
        self
    }

    /// The name it was opened by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it is reached.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Who it said it is when it was opened.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// True for devices that were made here: nobody else's data is on them. What is behind a `vfio-user:`
    /// name is not known to be one, whatever it says about itself.
    pub fn is_virtual(&self) -> bool {
        self.origin == Origin::Virtual
    }

    /// The controller: queues, admin commands, reset.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    pub(crate) fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }

    /// Admin commands: what `commands` does with the controller, its errors with this device's name.
    ///
    /// # Errors
    /// [`Error::Device`] for a status, [`Error::Driver`] for the rest.
    pub fn admin<T>(
        &self,
        commands: impl FnOnce(&Controller) -> std::result::Result<T, unvme_driver::Error>,
    ) -> Result<T> {
        commands(&self.controller).map_err(|e| Error::of_controller(&self.name, e, &self.controller))
    }

    /// The error of a command on `what` that the device has completed with `status`: it names those whose
    /// claims are behind [`unvme_spec::Status::RESERVATION_CONFLICT`], and why the host has ended a command.
    pub fn refused(&self, what: String, status: unvme_spec::Status) -> Error {
        Error::refused(what, status, &self.controller)
    }

    /// Active namespaces of all command sets, ascending.
    ///
    /// # Errors
    /// As [`Device::admin`].
    pub fn all_namespaces(&self) -> Result<Vec<NamespaceEntry>> {
        self.admin(|controller| {
            let active = controller.active_namespaces()?.into_iter();
            active
                .map(|nsid| {
                    let command_set = controller.namespace_command_set(nsid)?;
                    Ok(NamespaceEntry { nsid, command_set })
                })
                .collect()
        })
    }

    /// Active namespaces of the NVM Command Set, ascending.
    ///
    /// # Errors
    /// As [`Device::admin`].
    pub fn namespaces(&self) -> Result<Vec<Nsid>> {
        self.admin(Controller::block_namespaces)
    }

    /// Controllers that a new namespace is for: all there are in a device that several processes use, each
    /// with a controller of its own; otherwise the one this device was opened by.
    ///
    /// # Errors
    /// As [`Device::admin`].
    pub fn controllers(&self) -> Result<Vec<u16>> {
        self.admin(|controller| {
            let own = controller.identify_controller()?;
            match own.cmic & identify::cmic::SEVERAL_CONTROLLERS {
                0 => Ok(vec![own.cntlid]),
                _ => controller.controllers(None),
            }
        })
    }

    /// A namespace of logical blocks.
    ///
    /// # Errors
    /// [`Error::Argument`] when the namespace is not active, listing those that are, and when it holds
    /// something else than blocks that can be written in any order; as [`Device::admin`].
    pub fn block(&self, nsid: Nsid) -> Result<Block> {
        let active = self.namespaces()?;
        if !active.contains(&nsid) {
            let all = self.all_namespaces()?;
            return Err(match all.iter().find(|entry| entry.nsid == nsid) {
                Some(entry) => Error::Argument(format!(
                    "{}: namespace {nsid} {}; blocks are read and written in namespaces of the NVM Command Set only",
                    self.name,
                    match entry.command_set {
                        identify::csi::KEY_VALUE => "holds key-value pairs".to_owned(),
                        identify::csi::ZONED => "is zoned, which is not supported".to_owned(),
                        set => format!("has command set {set:#04x}, which is not supported"),
                    }
                )),
                None => self.no_namespace(nsid, &all.iter().map(|entry| entry.nsid).collect::<Vec<_>>()),
            });
        }
        Block::open(&self.name, &self.controller, nsid)
    }

    /// A key-value namespace.
    ///
    /// # Errors
    /// [`Error::Argument`] when the namespace is not active, listing those that are; [`Error::Unsupported`]
    /// when it has no key-value commands; as [`Device::admin`].
    pub fn kv(&self, nsid: Nsid) -> Result<Kv> {
        self.kv_with(nsid, KvOptions::default())
    }

    /// A key-value namespace, for devices that do not say what they are.
    ///
    /// # Errors
    /// As [`Device::kv`].
    pub fn kv_with(&self, nsid: Nsid, options: KvOptions) -> Result<Kv> {
        let active = self.admin(Controller::active_namespaces)?;
        if !active.contains(&nsid) {
            return Err(self.no_namespace(nsid, &active));
        }
        Kv::open(&self.name, &self.controller, nsid, options)
    }

    fn no_namespace(&self, nsid: Nsid, active: &[Nsid]) -> Error {
        let list: Vec<String> = active.iter().map(ToString::to_string).collect();
        let reason = match list.as_slice() {
            [] => "no namespace is attached".to_owned(),
            list => format!("attached namespaces are {}", list.join(", ")),
        };
        Error::Argument(format!("{}: there is no namespace {nsid}; {reason}", self.name))
    }
}
