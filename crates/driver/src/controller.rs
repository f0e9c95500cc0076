//! A controller: opened on a PCI function, shared by everybody who uses it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use unvme_bus::mem::PAGE_BYTES;
use unvme_bus::{Clock, DmaBuf, DmaPool, Function};
use unvme_spec::Sqe;
use unvme_spec::regs::Cap;

use crate::device::Device;
use crate::queue::{Completion, Payload, Queue, QueueOptions};
use crate::{Error, Event, Ring};

/// Options of a controller.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// I/O queue pairs to ask the controller for; it may grant fewer ([`Controller::queues_max`]).
    pub io_queues: u16,
    /// How long an admin command may take before the controller is reset.
    pub admin_timeout: Duration,
    /// Longest transfer in bytes, at least 4096, unless the controller allows less. Every slot of a queue has a page for
    /// the PRP list of up to 2 MiB; the list of a longer transfer is taken from the pool when it is submitted.
    pub transfer_bytes_max: usize,
    /// Time for time-outs and for devices that are handed one. Whoever waits on a virtual clock moves it.
    pub clock: Clock,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            io_queues: 64,
            admin_timeout: Duration::from_secs(60),
            transfer_bytes_max: 256 << 20,
            clock: Clock::wall(),
        }
    }
}

impl ControllerOptions {
    pub(crate) fn check(&self) -> Result<(), Error> {
        // SGL data blocks have 32-bit lengths.
        if !(PAGE_BYTES..1 << 31).contains(&self.transfer_bytes_max) {
            return Err(Error::InvalidArgument(format!(
                "transfer_bytes_max of {}: {PAGE_BYTES} or more, and less than 2 GiB, is expected",
                self.transfer_bytes_max
            )));
        }
        if self.io_queues == 0 {
            return Err(Error::InvalidArgument("io_queues of 0: at least 1 is expected".to_owned()));
        }
        Ok(())
    }
}

/// A controller that has been brought up. Clones share it; with the last of them and the last [`Queue`] it is shut down.
#[derive(Clone)]
pub struct Controller {
    pub(crate) device: Arc<Device>,
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("version", &format_args!("{:#x}", self.device.version))
            .field("cap", &self.device.cap)
            .field("epoch", &self.device.epoch)
            .finish_non_exhaustive()
    }
}

impl Controller {
    /// Brings a controller up: disable, admin queue, enable, Identify, I/O command sets, number of queues,
    /// Asynchronous Event Requests.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the function is not an NVMe controller the driver can use, [`Error::Timeout`] beyond
    /// the limits of CAP.TO and CRTO, [`Error::Gone`] for a fatal status, [`Error::Bus`].
    pub fn open(function: Arc<dyn Function>, options: ControllerOptions) -> Result<Self, Error> {
        let device = Arc::new(Device::new(function, options)?);
        device.open()?;
        Ok(Self { device })
    }

    /// Creates an I/O queue pair. Its identifier is free again when the queue is dropped.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a depth out of range, [`Error::Exhausted`] when no queue or interrupt vector is
    /// left, [`Error::Unsupported`] for SGLs the controller does not have, and those of [`Controller::admin`].
    pub fn create_queue(&self, options: &QueueOptions) -> Result<Queue, Error> {
        Ring::create(&self.device, options).map(Queue::Ring)
    }

    /// Sends any admin command and waits for its completion. The status is the caller's to look at.
    ///
    /// # Errors
    /// [`Error::Timeout`] when the controller did not answer and was reset, [`Error::Gone`] when that did not help,
    /// [`Error::Protocol`], [`Error::Bus`], [`Error::InvalidArgument`] for a transfer that is too long.
    pub fn admin(&self, sqe: Sqe, payload: Option<Payload>) -> Result<Completion, Error> {
        self.device.admin(sqe, payload)
    }

    /// Controller level reset. Every outstanding command of every queue is returned by its owner's next poll as
    /// [`unvme_spec::Status::ABORTED_BY_HOST`], and the queues create themselves again.
    ///
    /// Buffers are given back only when the device is known to have stopped (CSTS.RDY was seen to be 0, or the
    /// function is gone); otherwise they are leaked.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Gone`], [`Error::Bus`]: the controller did not come back. It can be reset again.
    pub fn reset(&self) -> Result<(), Error> {
        self.device.reset_since(self.device.epoch.load(Ordering::Acquire), "asked for")
    }

    /// NVM Subsystem Reset (Base 3.7.1), then as [`Controller::reset`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] when CAP.NSSRS is 0, and those of [`Controller::reset`].
    pub fn subsystem_reset(&self) -> Result<(), Error> {
        self.device.subsystem_reset()
    }

    /// The asynchronous events that have arrived since the last call. Their requests are sent again; the controller
    /// holds back further events of a kind until the log page named by the event has been read.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Protocol`], [`Error::Bus`].
    pub fn poll_events(&self) -> Result<Vec<Event>, Error> {
        self.device.admin.take_events(&self.device)
    }

    /// A zeroed, page aligned buffer the device can reach.
    ///
    /// # Errors
    /// [`Error::Bus`] when memory or I/O virtual addresses are used up.
    pub fn alloc(&self, bytes: usize) -> Result<DmaBuf, Error> {
        Ok(self.device.pool.alloc(bytes)?)
    }

    /// Where [`Controller::alloc`] takes buffers from.
    pub fn pool(&self) -> &DmaPool {
        &self.device.pool
    }

    /// The function the controller is on.
    pub fn function(&self) -> &Arc<dyn Function> {
        &self.device.function
    }

    /// The clock of the time-outs.
    pub fn clock(&self) -> &Clock {
        &self.device.clock
    }

    /// Controller Capabilities.
    pub fn capabilities(&self) -> Cap {
        self.device.cap
    }

    /// Version, as the VS register has it; see [`unvme_spec::regs::version_parts`].
    pub fn version(&self) -> u32 {
        self.device.version
    }

    /// I/O queue pairs the controller granted.
    pub fn queues_max(&self) -> usize {
        self.device.queues_max()
    }

    /// Most commands a queue of this controller takes.
    pub fn queue_depth_max(&self) -> u16 {
        self.device.depth_max()
    }

    /// Longest transfer of one command in bytes.
    ///
    /// # Errors
    /// [`Error::Gone`] when the controller was never brought up.
    pub fn transfer_bytes_max(&self) -> Result<usize, Error> {
        Ok(self.device.facts()?.transfer_bytes_max)
    }

    /// Number of times the controller has been started, first bring-up included.
    pub fn epoch(&self) -> u64 {
        self.device.epoch.load(Ordering::Acquire)
    }
}
