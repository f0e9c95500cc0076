//! Options of a controller and of its queues.

use std::time::Duration;

use unvme_bus::Clock;
use unvme_bus::mem::PAGE_BYTES;
use unvme_spec::admin::QueuePriority;

use crate::Error;

/// Most commands a queue takes: 4095 slots leave 4 bits of the command identifier for a count of reuse.
pub const DEPTH_MAX: u16 = 4095;

/// Options of a controller.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// I/O queue pairs to ask the controller for; it may grant fewer ([`crate::Controller::queues_max`]).
    pub io_queues: u16,
    /// How long an admin command may take before the controller is reset.
    pub admin_timeout: Duration,
    /// Longest transfer in bytes, at least 4096, unless the controller allows less. Every slot of a queue has
    /// a page for the PRP list of up to 2 MiB; the list of a longer transfer is taken from the pool when it
    /// is submitted.
    pub transfer_bytes_max: usize,
    /// Choose weighted round robin where the controller offers it (Base 3.4.4.2), so that queues can have a
    /// [`QueueOptions::priority`]. Those that do not say one are of medium priority, all alike.
    pub weighted_round_robin: bool,
    /// Time for time-outs and for devices that are handed one. Whoever waits on a virtual clock moves it.
    pub clock: Clock,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            io_queues: 64,
            admin_timeout: Duration::from_secs(60),
            transfer_bytes_max: 256 << 20,
            weighted_round_robin: true,
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

/// How a queue's owner learns of completions in [`crate::Queue::wait`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompletionMode {
    /// Look at the ring until something is there. Needs no interrupt vector.
    #[default]
    Poll,
    /// Sleep until the queue's interrupt.
    Interrupt,
    /// Look for as long as commands have recently taken, then sleep.
    Hybrid,
}

/// How a queue describes buffers to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataPointers {
    /// Physical Region Pages: every controller understands them.
    Prp,
    /// One SGL data block per command; an error when the controller does not support SGLs.
    Sgl,
    /// SGL for transfers that would need a PRP list, when the controller supports SGLs.
    #[default]
    Auto,
}

/// Options of a queue.
#[derive(Clone, Debug)]
pub struct QueueOptions {
    /// Commands that can be outstanding, 1 to [`DEPTH_MAX`] and below the controller's maximum
    /// ([`crate::Controller::queue_depth_max`]).
    pub depth: u16,
    /// How to wait.
    pub mode: CompletionMode,
    /// How to describe buffers.
    pub data_pointers: DataPointers,
    /// Memory for keys of more than 16 bytes, which travel outside their entry: 256 bytes for each command.
    pub long_keys: bool,
    /// The priority class of the submission queue, for a controller that arbitrates by weighted round robin;
    /// an error with any other. With the first queue that says one, weights that are all alike become those
    /// of [`crate::WEIGHTS`].
    pub priority: Option<QueuePriority>,
    /// How long a command may take before it is aborted; then the controller is reset.
    pub command_timeout: Duration,
    /// How long after the Abort the command may still take before the controller is reset.
    pub abort_grace: Duration,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            depth: 128,
            mode: CompletionMode::default(),
            data_pointers: DataPointers::default(),
            long_keys: false,
            priority: None,
            command_timeout: Duration::from_secs(30),
            abort_grace: Duration::from_secs(5),
        }
    }
}
