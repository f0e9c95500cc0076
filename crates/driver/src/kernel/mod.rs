//! Devices beside the kernel's driver: nothing is unbound, file systems on the same drive live on.
//!
//! | path | way |
//! |---|---|
//! | `/dev/nvme0` | a controller: admin commands by its node, I/O by the passthrough nodes of its namespaces |
//! | `/dev/ng0n1` | one namespace by passthrough: every NVMe command, Key Value and placement among them |
//! | `/dev/nvme0n1p2`, `/dev/sda`, a file | reads, writes, flushes, zeroes and discards of the block layer, O_DIRECT |
//!
//! All go through io_uring: submissions are entries in a ring that one call hands over, as a doorbell does, and
//! completions are read from another ring.
//!
//! What the kernel does not pass on is an error that says so: fused pairs, metadata pointers and keys in memory, SGLs of
//! our own, asynchronous events. It builds the PRP lists, chooses the queue and looks after time-outs.
//!
//! The modules `uring`, `fixed` and `ioctl` are the driver's only unsafe code.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use unvme_bus::mem::PAGE_BYTES;
use unvme_bus::{AddressSpace, Clock, DmaPool, lock};
use unvme_spec::regs::{Cap, VERSION_2_0};
use unvme_spec::{Qid, Sqe};

use crate::controller::ControllerOptions;
use crate::pair::FOREIGN_BUFFER;
use crate::queue::{Completion, DEPTH_MAX, Payload};
use crate::{DmaBuf, Error, limits};

mod block;
mod describe;
mod errno;
mod fixed;
mod ioctl;
mod nodes;
mod nvme;
mod overdue;
mod queue;
mod steps;
#[cfg(test)]
mod tests;
mod uring;
mod wire;

pub use queue::{KernelCompletions, KernelQueue};

use block::BlockFile;
use nodes::{Node, Roots};
use nvme::NvmeNodes;

/// What is behind a path.
enum Target {
    Nvme(NvmeNodes),
    Block(BlockFile),
}

/// What all queues and users of one kernel's device share.
pub(crate) struct KernelDevice {
    /// What rings register of the pool's memory.
    memory: Arc<AddressSpace>,
    pool: DmaPool,
    options: ControllerOptions,
    target: Target,
    cap: Cap,
    version: u32,
    transfer_bytes_max: usize,
    firmware_piece_bytes: usize,
    /// Counts resets that were asked for here; the kernel does more on its own.
    epoch: AtomicU64,
    /// Queue identifiers that are taken; the index is the number.
    taken: Mutex<Vec<bool>>,
}

impl KernelDevice {
    pub(crate) fn open(path: &Path, options: ControllerOptions) -> Result<Self, Error> {
        Self::open_at(&Roots::system(), path, options)
    }

    fn open_at(roots: &Roots, path: &Path, options: ControllerOptions) -> Result<Self, Error> {
        options.check()?;
        let memory = Arc::new(AddressSpace::new());
        let target = match nodes::identify(roots, path)? {
            Node::File => Target::Block(BlockFile::file(path)?),
            Node::Block(sysfs) => Target::Block(BlockFile::device(path, &sysfs)?),
            node => Target::Nvme(NvmeNodes::open(roots, path, &node, &memory)?),
        };
        Self::with(memory, target, options)
    }

    fn with(memory: Arc<AddressSpace>, target: Target, options: ControllerOptions) -> Result<Self, Error> {
        let pool = DmaPool::new(memory.clone());
        let mut transfer_bytes_max = options.transfer_bytes_max;
        let (mut version, mut firmware_piece_bytes, mut cap) = (VERSION_2_0, PAGE_BYTES, Cap::new());
        if let Target::Nvme(nodes) = &target {
            let identify = nodes.identify(pool.alloc(PAGE_BYTES)?, options.admin_timeout)?;
            version = identify.ver;
            cap = cap.with_mqes_z(nodes.queue_entries_z());
            // The kernel's driver takes controllers with pages of 4 KiB alone, in which MDTS is counted.
            let mdts = limits::transfer_bytes_max(&identify, PAGE_BYTES);
            transfer_bytes_max = transfer_bytes_max.min(mdts).min(nodes.transfer_bytes_max());
            firmware_piece_bytes = limits::firmware_piece_bytes(&identify);
        }
        let taken = Mutex::new(vec![false; usize::from(options.io_queues)]);
        let epoch = AtomicU64::new(1);
        Ok(Self {
            memory,
            pool,
            options,
            target,
            cap,
            version,
            transfer_bytes_max,
            firmware_piece_bytes,
            epoch,
            taken,
        })
    }

    /// Sends an admin command and waits for its completion, whatever its status.
    pub(crate) fn admin(&self, sqe: Sqe, payload: Option<Payload>) -> Result<Completion, Error> {
        if let Some(payload) = &payload
            && (payload.bytes > payload.buf.len() || payload.bytes > self.transfer_bytes_max)
        {
            return Err(Error::InvalidArgument(format!(
                "the transfer of {} bytes is longer than its buffer ({} bytes) or than the limit of {} bytes",
                payload.bytes,
                payload.buf.len(),
                self.transfer_bytes_max
            )));
        }
        if payload.as_ref().is_some_and(|payload| is_foreign(&payload.buf, &self.pool)) {
            return Err(Error::InvalidArgument(FOREIGN_BUFFER.to_owned()));
        }
        match &self.target {
            Target::Nvme(nodes) => nodes.admin(sqe, payload, self.options.admin_timeout),
            Target::Block(file) => Ok(match describe::answer(file, &sqe) {
                Ok(data) => nvme::answered(payload, &data),
                Err(status) => {
                    Completion { token: 0, status, result: 0, buf: payload.map(|payload| payload.buf) }
                }
            }),
        }
    }

    /// Controller level reset, or that of the NVM subsystem, by the kernel.
    pub(crate) fn reset(&self, is_subsystem: bool) -> Result<(), Error> {
        match &self.target {
            Target::Nvme(nodes) => nodes.reset(is_subsystem)?,
            Target::Block(file) => {
                return Err(Error::Unsupported(format!(
                    "{} is a block device or a file, which has no reset; open its controller, kernel:/dev/nvmeX",
                    file.shown
                )));
            }
        }
        self.epoch.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    pub(crate) fn pool(&self) -> &DmaPool {
        &self.pool
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.options.clock
    }

    pub(crate) fn capabilities(&self) -> Cap {
        self.cap
    }

    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Rings that can be made: the kernel has no limit, and shares its own queues among them.
    pub(crate) fn queues_max(&self) -> usize {
        usize::from(self.options.io_queues)
    }

    pub(crate) fn depth_max(&self) -> u16 {
        DEPTH_MAX
    }

    pub(crate) fn transfer_bytes_max(&self) -> usize {
        self.transfer_bytes_max
    }

    pub(crate) fn firmware_piece_bytes(&self) -> usize {
        self.firmware_piece_bytes
    }

    /// A buffer for a command that needs one of its own.
    fn scratch_pool(&self) -> &DmaPool {
        &self.pool
    }

    fn take_queue(&self) -> Result<Qid, Error> {
        // Only flags are flipped under this lock.
        let mut taken = lock(&self.taken);
        let Some(free) = taken.iter().position(|taken| !taken) else {
            let most = taken.len();
            return Err(Error::Exhausted(format!("all {most} I/O queues that were asked for are in use")));
        };
        taken[free] = true;
        Ok(Qid(free as u16 + 1))
    }

    fn return_queue(&self, qid: Qid) {
        let mut taken = lock(&self.taken);
        if let Some(place) = taken.get_mut(usize::from(qid.0) - 1) {
            *place = false;
        }
    }
}

/// A buffer of another controller.
fn is_foreign(buf: &DmaBuf, pool: &DmaPool) -> bool {
    buf.pool() != pool.id()
}
