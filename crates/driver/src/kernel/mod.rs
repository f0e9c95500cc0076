//! Devices beside the kernel's driver: nothing is unbound, file systems on the same drive live on.
//!
//! | path | way |
//! |---|---|
//! | `/dev/nvme0` | a controller: admin commands by its node, I/O by the nodes of its namespaces |
//! | `/dev/ng0n1` | one namespace by passthrough: every NVMe command, Key Value and placement among them |
//! | `/dev/nvme0n1p2`, `/dev/sda`, a file | reads, writes, flushes, zeroes and discards, with O_DIRECT |
//!
//! All go through io_uring: submissions are entries in a ring that one call hands over, as a doorbell does,
//! and completions are read from another ring.
//!
//! What the kernel does not pass on is an error that says so: fused pairs, metadata pointers and keys in
//! memory, SGLs of our own, asynchronous events. It builds the PRP lists, chooses the queue and looks after
//! time-outs.
//!
//! The modules `uring`, `fixed` and `ioctl` are the driver's only unsafe code.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use unvme_bus::mem::PAGE_BYTES;
use unvme_bus::{AddressSpace, DmaPool};
use unvme_spec::regs::{Cap, VERSION_2_0};
use unvme_spec::{Nsid, Sqe, admin};

use crate::base::{Base, Limits};
use crate::claim::ClaimKind;
use crate::command::{Completion, Payload};
use crate::options::{ControllerOptions, DEPTH_MAX};
use crate::{Error, limits};

mod block;
mod claims;
mod describe;
mod errno;
mod fixed;
mod ioctl;
mod nodes;
mod nvme;
mod queue;
mod steps;
#[cfg(test)]
mod tests;
mod uring;
mod wire;

pub use queue::KernelQueue;

use block::BlockFile;
use claims::NodeClaims;
use nodes::{Node, Roots};
use nvme::NvmeNodes;

/// What is behind a path.
enum Target {
    Nvme(NvmeNodes),
    Block(BlockFile),
}

/// What all queues and users of one kernel's device share.
pub(crate) struct KernelDevice {
    pub(crate) base: Base,
    /// What rings register of the pool's memory.
    memory: Arc<AddressSpace>,
    target: Target,
    claims: NodeClaims,
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
        let limits = Limits { cap, version, depth_max: DEPTH_MAX, transfer_bytes_max, firmware_piece_bytes };
        // The kernel has no limit of rings, and shares its own queues among them.
        let queues = usize::from(options.io_queues);
        Ok(Self {
            base: Base::new(pool, options, 2, queues, limits),
            memory,
            target,
            claims: NodeClaims::default(),
        })
    }

    /// Sends an admin command and waits for its completion, whatever its status.
    pub(crate) fn admin(&self, sqe: Sqe, payload: Option<Payload>) -> Result<Completion, Error> {
        let base = &self.base;
        if let Some(payload) = &payload
            && (payload.bytes > payload.buf.len() || payload.bytes > base.limits().transfer_bytes_max)
        {
            return Err(Error::InvalidArgument(format!(
                "the transfer of {} bytes is longer than its buffer ({} bytes) or than the limit of {} bytes",
                payload.bytes,
                payload.buf.len(),
                base.limits().transfer_bytes_max
            )));
        }
        let payload = payload.map(|payload| payload.check(usize::MAX, base.pool.id())).transpose()?;
        self.check_reshaping(&sqe)?;
        match &self.target {
            Target::Nvme(nodes) => nodes.admin(sqe, payload, self.base.options.admin_timeout),
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
        // The kernel does more on its own, which nobody counts.
        self.base.epoch.fetch_add(2, Ordering::AcqRel);
        Ok(())
    }

    /// What a namespace is called, whichever node leads to it; `None` when there is no such namespace.
    fn claim_name(&self, nsid: Nsid) -> Option<String> {
        match &self.target {
            Target::Nvme(nodes) => nodes.kernel_name(nsid),
            Target::Block(file) => {
                let found = rustix::fs::fstat(file.as_fd()).ok()?;
                if rustix::fs::FileType::from_raw_mode(found.st_mode).is_file() {
                    return Some(format!("file-{:x}-{:x}", found.st_dev, found.st_ino));
                }
                let (major, minor) = (libc::major(found.st_rdev), libc::minor(found.st_rdev));
                nodes::block_name(major, minor).or(Some(format!("block-{major}-{minor}")))
            }
        }
    }

    /// As [`crate::Controller::claim`], against the programs of this machine.
    pub(crate) fn claim(&self, nsid: Nsid, kind: ClaimKind, holder: &str) -> Result<bool, Error> {
        let Some(name) = self.claim_name(nsid) else { return Ok(false) };
        self.claims.claim(nsid, &name, kind, holder)
    }

    /// As [`crate::Controller::release`].
    pub(crate) fn release(&self, nsid: Nsid, kind: ClaimKind) {
        self.claims.release(nsid, kind);
    }

    /// As [`crate::Controller::claims`].
    pub(crate) fn claims(&self, nsid: Nsid) -> Result<String, Error> {
        let namespaces = match &self.target {
            Target::Nvme(nodes) if nsid == Nsid::ALL => nodes.of_controller(),
            Target::Block(_) => vec![Nsid(1)],
            Target::Nvme(_) => vec![nsid],
        };
        let mut text = String::new();
        for nsid in namespaces {
            let Some(name) = self.claim_name(nsid) else { continue };
            if let Some(holder) = claims::holder(&name)? {
                text.push_str(&format!("namespace {nsid}: {holder}\n"));
            }
        }
        Ok(text)
    }

    /// Whether this process may change a namespace, and keeps others from claiming it from now on.
    fn admits_changes(&self, nsid: Nsid) -> Result<bool, Error> {
        match self.claim_name(nsid) {
            Some(name) => self.claims.admits_changes(nsid, &name),
            None => Ok(true),
        }
    }

    /// Refuses an admin command that would change the contents, the format or the existence of a namespace
    /// which a program has claimed, be it this one.
    fn check_reshaping(&self, sqe: &Sqe) -> Result<(), Error> {
        let nsid = match admin::Command::parse(sqe) {
            admin::Command::FormatNvm(format) => format.nsid,
            admin::Command::NamespaceManagement(manage)
                if manage.operation == admin::NamespaceOperation::Delete =>
            {
                manage.nsid
            }
            admin::Command::NamespaceAttachment(attach)
                if attach.operation == admin::AttachmentOperation::Detach =>
            {
                attach.nsid
            }
            _ if sqe.opcode == admin::opcode::SANITIZE => Nsid::ALL,
            _ => return Ok(()),
        };
        match claims::unless_denied(self.claims(nsid).map(|found| found.is_empty()), true)? {
            true => Ok(()),
            false => Err(claims::conflict()),
        }
    }
}
