//! A controller: opened on a PCI function, shared by everybody who uses it.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use unvme_bus::{Clock, DmaBuf, DmaPool, Function, Region};
use unvme_spec::regs::Cap;
use unvme_spec::{Sqe, fabrics as spec};

use crate::base::Base;
use crate::claim::Claimed;
use crate::command::{Completion, Payload};
use crate::fabrics::{TcpDevice, TcpQueue};
use crate::kernel::{KernelDevice, KernelQueue};
use crate::options::{ControllerOptions, QueueOptions};
use crate::pcie::{PcieDevice, Ring};
use crate::queue::Queue;
use crate::tcp::TcpTarget;
use crate::{Error, Event};

/// Why commands were ended when nothing was wrong.
const ASKED_FOR: &str = "a reset was asked for";

/// A controller that has been brought up. Clones share it; with the last of them and the last [`Queue`] it is
/// shut down.
#[derive(Clone)]
pub struct Controller {
    pub(crate) host: Host,
}

/// Who drives the controller.
#[derive(Clone)]
pub(crate) enum Host {
    /// We do: its registers and queues are ours.
    Pcie(Arc<PcieDevice>),
    /// The kernel's driver, which we ask.
    Kernel(Arc<KernelDevice>),
    /// A target on the network, whose controller we have an association with.
    Tcp(Arc<TcpDevice>),
}

/// Keeps a controller on the network alive for as long as somebody has it open, see
/// [`Controller::keep_alive`].
pub struct Keeper(Weak<TcpDevice>);

impl Keeper {
    /// [`Controller::keep_alive`]; `None` when nobody has the controller open any more. Errors:
    /// [`Error::Gone`] when the target was given up.
    pub fn keep_alive(&self) -> Result<Option<Duration>, Error> {
        self.0.upgrade().map(|device| device.keep_alive()).transpose()
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keeper")
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("version", &format_args!("{:#x}", self.version()))
            .field("cap", &self.capabilities())
            .field("epoch", &self.epoch())
            .finish_non_exhaustive()
    }
}

impl Controller {
    fn base(&self) -> &Base {
        match &self.host {
            Host::Pcie(device) => &device.base,
            Host::Kernel(device) => &device.base,
            Host::Tcp(device) => &device.base,
        }
    }

    pub(crate) fn claimed(&self) -> &Claimed {
        &self.base().claimed
    }

    /// Brings a controller up: disable, admin queue, enable, Identify, I/O command sets, number of queues,
    /// Asynchronous Event Requests. Errors: [`Error::Unsupported`] when the function is not an NVMe
    /// controller the driver can use, [`Error::Timeout`] beyond the limits of CAP.TO and CRTO,
    /// [`Error::Gone`] for a fatal status, [`Error::Bus`].
    pub fn open(function: Arc<dyn Function>, options: ControllerOptions) -> Result<Self, Error> {
        let device = Arc::new(PcieDevice::new(function, options)?);
        device.open()?;
        Ok(Self { host: Host::Pcie(device) })
    }

    /// Opens a device beside the kernel's driver: `/dev/nvmeX` with all its namespaces, one namespace as
    /// `/dev/ngXnY`, or the blocks of any block device, partition or file as namespace 1. See
    /// [`crate::KernelQueue`] for what is different.
    ///
    /// A block device that somebody else uses, and what there is no permission to write, is opened for
    /// reading alone: writes end with the status Namespace is Write Protected. Errors: [`Error::Bus`] with
    /// the remedy for what is missing: the path, permission, io_uring, direct I/O; [`Error::Unsupported`] for
    /// a path that is none of these; and those of [`Controller::admin`].
    pub fn open_kernel(path: &Path, options: ControllerOptions) -> Result<Self, Error> {
        Ok(Self { host: Host::Kernel(Arc::new(KernelDevice::open(path, options)?)) })
    }

    /// Opens a device on the network by NVMe/TCP: connects, authenticates where one of the two wants that,
    /// and brings the controller up. See [`crate::TcpQueue`] for what happens when a connection is lost.
    /// Errors: [`Error::Unreachable`], [`Error::Denied`], [`Error::Timeout`], [`Error::Protocol`],
    /// [`Error::Unsupported`] for a controller the driver cannot use, [`Error::InvalidArgument`] for names no
    /// target has and for a discovery service, which [`crate::discover`] asks.
    pub fn open_tcp(target: TcpTarget, options: ControllerOptions) -> Result<Self, Error> {
        Ok(Self { host: Host::Tcp(Arc::new(TcpDevice::open(target, options)?)) })
    }

    /// Keeps a controller on the network alive while nobody polls one of its queues, and tries to get a lost
    /// connection back. Returns how long the next call may wait at most; of other controllers, for ever.
    ///
    /// Does not wait for an answer, except while reconnecting. Errors: [`Error::Gone`] when the target was
    /// given up.
    pub fn keep_alive(&self) -> Result<Duration, Error> {
        match &self.host {
            Host::Pcie(_) | Host::Kernel(_) => Ok(Duration::MAX),
            Host::Tcp(device) => device.keep_alive(),
        }
    }

    /// Does the same for whoever must not keep the controller open; `None` for a controller that needs
    /// nobody.
    pub fn keeper(&self) -> Option<Keeper> {
        match &self.host {
            Host::Pcie(_) | Host::Kernel(_) => None,
            Host::Tcp(device) => Some(Keeper(Arc::downgrade(device))),
        }
    }

    /// False while the connection to a controller on the network is lost and being made anew: what is asked
    /// of it waits meanwhile.
    pub fn is_connected(&self) -> bool {
        match &self.host {
            Host::Pcie(_) | Host::Kernel(_) => true,
            Host::Tcp(device) => device.is_connected(),
        }
    }

    /// True when the kernel's driver has the controller ([`Controller::open_kernel`]).
    pub fn is_kernel(&self) -> bool {
        matches!(self.host, Host::Kernel(_))
    }

    /// Creates an I/O queue pair. Its identifier is free again when the queue is dropped. Errors:
    /// [`Error::InvalidArgument`] for a depth out of range, [`Error::Exhausted`] when no queue or interrupt
    /// vector is left, [`Error::Unsupported`] for SGLs or priority classes the controller does not have, and
    /// those of [`Controller::admin`].
    pub fn create_queue(&self, options: &QueueOptions) -> Result<Queue, Error> {
        if options.priority.is_some() {
            self.prepare_classes()?;
        }
        match &self.host {
            Host::Pcie(device) => Ring::create(device, options).map(Queue::Ring),
            Host::Kernel(device) => KernelQueue::create(device, options).map(Queue::Kernel),
            Host::Tcp(device) => TcpQueue::create(device, options).map(|queue| Queue::Tcp(Box::new(queue))),
        }
    }

    /// Sends any admin command and waits for its completion. The status is the caller's to look at. Errors:
    /// [`Error::Timeout`] when the controller did not answer and was reset, [`Error::Gone`] when that did not
    /// help, [`Error::Protocol`], [`Error::Bus`], [`Error::InvalidArgument`] for a transfer that is too long;
    /// [`Error::Unsupported`] for what the kernel's driver keeps to itself.
    pub fn admin(&self, sqe: Sqe, payload: Option<Payload>) -> Result<Completion, Error> {
        match &self.host {
            Host::Pcie(device) => device.admin(sqe, payload),
            Host::Kernel(device) => device.admin(sqe, payload),
            Host::Tcp(device) => device.admin(sqe, payload),
        }
    }

    /// Controller level reset. Every outstanding command of every queue is returned by its owner's next poll
    /// as [`unvme_spec::Status::ABORTED_BY_HOST`], and the queues create themselves again.
    ///
    /// Buffers are given back only when the device is known to have stopped (CSTS.RDY was seen to be 0, or
    /// the function is gone); otherwise they are leaked. Errors: [`Error::Timeout`], [`Error::Gone`],
    /// [`Error::Bus`]: the controller did not come back. It can be reset again. [`Error::Unsupported`] for a
    /// block device or a file.
    pub fn reset(&self) -> Result<(), Error> {
        match &self.host {
            Host::Pcie(device) => device.reset_since(device.base.epoch(), ASKED_FOR),
            Host::Kernel(device) => device.reset(false),
            Host::Tcp(device) => device.reset_since(device.base.epoch(), ASKED_FOR),
        }
    }

    /// Why outstanding commands were last ended as [`unvme_spec::Status::ABORTED_BY_HOST`]: what did not
    /// answer, Controller Fatal Status, a connection that was lost; and for a virtual SSD in this process,
    /// the rule of its script that was behind it. `None` when none were, or when the kernel has ended them.
    pub fn ended_by(&self) -> Option<String> {
        self.base().ended_by()
    }

    /// NVM Subsystem Reset (Base 3.7.1), then as [`Controller::reset`]. Errors: [`Error::Unsupported`] when
    /// CAP.NSSRS is 0, and those of [`Controller::reset`].
    pub fn subsystem_reset(&self) -> Result<(), Error> {
        match &self.host {
            Host::Pcie(device) => device.subsystem_reset(),
            Host::Kernel(device) => device.reset(true),
            Host::Tcp(device) => device.subsystem_reset(),
        }
    }

    /// The asynchronous events that have arrived since the last call. Their requests are sent again; the
    /// controller holds back further events of a kind until the log page named by the event has been read.
    /// The kernel's driver keeps them to itself: there are none then. Errors: [`Error::Gone`],
    /// [`Error::Protocol`], [`Error::Bus`].
    pub fn poll_events(&self) -> Result<Vec<Event>, Error> {
        match &self.host {
            Host::Pcie(device) => device.admin.take_events(device),
            Host::Kernel(_) => Ok(Vec::new()),
            Host::Tcp(device) => device.poll_events(),
        }
    }

    /// A zeroed, page aligned buffer the device can reach. Errors: [`Error::Bus`] when memory or I/O virtual
    /// addresses are used up.
    pub fn alloc(&self, bytes: usize) -> Result<DmaBuf, Error> {
        Ok(self.pool().alloc(bytes)?)
    }

    /// Lets the device reach memory of another device's buffer as well. Errors: as [`DmaPool::import`].
    pub fn import(&self, region: &Region) -> Result<DmaBuf, Error> {
        Ok(self.pool().import(region)?)
    }

    /// Where [`Controller::alloc`] takes buffers from.
    pub fn pool(&self) -> &DmaPool {
        &self.base().pool
    }

    /// The PCI function the controller is on; `None` when the kernel drives it, or when it is on the network.
    pub fn function(&self) -> Option<&Arc<dyn Function>> {
        match &self.host {
            Host::Pcie(device) => Some(&device.function),
            Host::Kernel(_) | Host::Tcp(_) => None,
        }
    }

    /// The clock of the time-outs.
    pub fn clock(&self) -> &Clock {
        self.base().clock()
    }

    /// Controller Capabilities. Of a controller that the kernel drives MQES alone is known, and the rest 0.
    pub fn capabilities(&self) -> Cap {
        self.base().limits().cap
    }

    /// Version, as the VS register has it; see [`unvme_spec::regs::version_parts`].
    pub fn version(&self) -> u32 {
        self.base().limits().version
    }

    /// Reads a register, `bytes` 4 or 8 at one of [`unvme_spec::regs::offset`]: of a PCI function that, of a
    /// controller on the network the property of the same offset (Base 3.1.4). Errors: [`Error::Status`] for
    /// a property that the controller does not have, [`Error::Bus`]; [`Error::Unsupported`] for a controller
    /// that the kernel drives; and those of [`Controller::admin`].
    pub fn register(&self, offset: u64, bytes: usize) -> Result<u64, Error> {
        let mut value = [0; 8];
        match &self.host {
            Host::Pcie(device) => {
                device.function.bar_read(0, offset, &mut value[..bytes.min(8)])?;
                Ok(u64::from_le_bytes(value))
            }
            Host::Tcp(device) => {
                let is_wide = bytes > 4;
                let property = spec::Property { offset: offset as u32, is_wide: Some(is_wide), value: 0 };
                let completion = device.admin(spec::Command::PropertyGet(property).encode(), None)?;
                Error::check(|| "Property Get".into(), completion.status)?;
                let mask = if is_wide { u64::MAX } else { u32::MAX.into() };
                Ok(completion.result & mask)
            }
            Host::Kernel(_) => Err(Error::Unsupported(
                "the kernel's driver keeps a controller's registers to itself".to_owned(),
            )),
        }
    }

    /// I/O queue pairs the controller granted; with the kernel's driver, which shares its own, as many as
    /// were asked for.
    pub fn queues_max(&self) -> usize {
        self.base().queues_max()
    }

    /// Most commands a queue of this controller takes.
    pub fn queue_depth_max(&self) -> u16 {
        self.base().limits().depth_max
    }

    /// Longest transfer of one command in bytes.
    pub fn transfer_bytes_max(&self) -> usize {
        self.base().limits().transfer_bytes_max
    }

    /// Firmware Update Granularity in bytes: pieces of an image are multiples of it.
    pub(crate) fn firmware_piece_bytes(&self) -> usize {
        self.base().limits().firmware_piece_bytes
    }

    /// Number of times the controller has been started, first bring-up included. The resets of the kernel's
    /// driver are counted when they were asked for here.
    pub fn epoch(&self) -> u64 {
        self.base().epoch() / 2
    }
}
