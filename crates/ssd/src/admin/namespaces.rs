//! Namespace Management and Attachment (Base 5.1.20, 5.1.21; NVM 4.1.6), Format NVM (Base 5.1.10).
//!
//! Admin commands are executed one at a time, by whoever holds the admin submission queue: nobody else changes the
//! table of namespaces. Before anything is done to the media of a namespace, a version of the table is published in
//! which the namespace is busy, and every I/O queue is locked once: from then on no command is at work on it.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::convert::Infallible;
use std::sync::Arc;

use unvme_spec::admin::{AttachmentOperation, FormatNvm, NamespaceOperation, SecureErase};
use unvme_spec::identify::{ControllerList, IDENTIFY_BYTES, NamespaceCreate, csi};
use unvme_spec::{Nsid, Sqe, Status, admin};
use zerocopy::FromBytes;

use super::identify::CONTROLLER_ID;
use super::identity;
use crate::Ssd;
use crate::config::{CHUNK_BYTES, NAMESPACES_MAX};
use crate::engine::lock;
use crate::namespace::{BadBlocks, Namespace, NamespaceTable};
use crate::queue::SubmissionQueue;

/// An LBA format without metadata.
pub(super) struct Format {
    /// Logical block size as a power of two.
    pub(super) block_shift: u8,
    /// RP: 0 best, 1 better, 2 good, 3 degraded.
    pub(super) relative_performance: u8,
}

/// LBA formats by index.
pub(super) const FORMATS: [Format; 2] =
    [Format { block_shift: 9, relative_performance: 2 }, Format { block_shift: 12, relative_performance: 0 }];

/// Namespaces a device can have had, since their identifiers are never used again: NGUID has 40 bits for the number.
pub(super) const CREATED_MAX: u64 = (1 << 40) - 1;

/// Index of the format with blocks of `1 << block_shift` bytes.
pub(super) fn format_of(block_shift: u8) -> u8 {
    FORMATS.iter().position(|format| format.block_shift == block_shift).unwrap_or(0) as u8
}

/// Chunks of the media that belong to no namespace.
pub(super) fn free_chunks(table: &NamespaceTable, total: u64) -> u64 {
    let used: u64 = table.iter().map(|namespace| namespace.chunks.len() as u64).sum();
    total.saturating_sub(used)
}

/// Flags by chunk: it belongs to a namespace.
pub(super) fn owned_chunks(table: &NamespaceTable, total: u64) -> Vec<bool> {
    let mut owned = vec![false; total as usize];
    for &chunk in table.iter().flat_map(|namespace| &*namespace.chunks) {
        if let Some(flag) = owned.get_mut(chunk as usize) {
            *flag = true;
        }
    }
    owned
}

/// A namespace that does not exist yet.
#[derive(Clone, Copy)]
pub(super) struct NewNamespace {
    pub(super) nsid: Nsid,
    pub(super) block_shift: u8,
    pub(super) blocks: u64,
    pub(super) attached: bool,
}

impl NewNamespace {
    /// Chunks it needs; `None` when its size in bytes is beyond all numbers.
    pub(super) fn chunks(self) -> Option<u64> {
        let bytes = self.blocks.checked_mul(1 << self.block_shift)?;
        Some(bytes.div_ceil(CHUNK_BYTES))
    }
}

/// Adds a namespace to `table`, on the first free chunks. Fails with the bytes that are needed when there are too few.
pub(super) fn add(
    table: &mut NamespaceTable,
    new: NewNamespace,
    serial: &str,
    total: u64,
) -> Result<(), NoSpace> {
    let wanted = new.chunks().filter(|&wanted| wanted <= free_chunks(table, total)).ok_or(NoSpace)?;
    let owned = owned_chunks(table, total);
    let free = (0u32..).zip(&owned).filter(|(_, owned)| !**owned).map(|(chunk, _)| chunk);
    let chunks: Arc<[u32]> = free.take(wanted as usize).collect();
    table.created += 1;
    table.put(Namespace {
        nsid: new.nsid,
        block_shift: new.block_shift,
        blocks: new.blocks,
        attached: new.attached,
        busy: false,
        nguid: identity::nguid(serial, table.created),
        eui64: identity::eui64(serial, table.created),
        chunks,
        bad: Arc::new(BadBlocks::default()),
    });
    Ok(())
}

/// There are fewer free chunks than a namespace needs.
#[derive(Debug)]
pub(super) struct NoSpace;

impl Ssd {
    pub(super) fn namespace_management(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        manage: admin::NamespaceManagement,
    ) -> Result<u64, Status> {
        match manage.operation {
            NamespaceOperation::Create => self.create_namespace(sq, sqe, manage.csi),
            NamespaceOperation::Delete => self.delete_namespaces(manage.nsid),
            NamespaceOperation::Reserved(_) => Err(Status::INVALID_FIELD.with_do_not_retry()),
        }
    }

    fn create_namespace(&self, sq: &mut SubmissionQueue, sqe: &Sqe, command_set: u8) -> Result<u64, Status> {
        if command_set != csi::NVM {
            return Err(Status::IO_COMMAND_SET_UNSUPPORTED.with_do_not_retry());
        }
        let data = self.receive(sq, sqe, IDENTIFY_BYTES)?;
        let create = NamespaceCreate::read_from_bytes(&data).map_err(|_| Status::INTERNAL_ERROR)?;
        let block_shift = check_create(&create)?;
        let mut table = NamespaceTable::clone(&self.namespaces.get());
        let nsid = (1..=NAMESPACES_MAX)
            .map(Nsid)
            .find(|&nsid| table.get(nsid).is_none() && table.created < CREATED_MAX)
            .ok_or(Status::NAMESPACE_IDENTIFIER_UNAVAILABLE)?;
        let new = NewNamespace { nsid, block_shift, blocks: create.nsze, attached: false };
        add(&mut table, new, &self.config.serial, self.media.chunks())
            .map_err(|NoSpace| Status::NAMESPACE_INSUFFICIENT_CAPACITY)?;
        self.replace_namespaces(table)?;
        Ok(nsid.0.into())
    }

    fn delete_namespaces(&self, nsid: Nsid) -> Result<u64, Status> {
        let old = self.namespaces.get();
        let doomed = named(&old, nsid, old.iter())?;
        self.quiesce(&doomed);
        if let Err(status) = self.erase(&doomed) {
            self.publish(NamespaceTable::clone(&old));
            return Err(status);
        }
        let mut table = NamespaceTable::clone(&old);
        for namespace in &doomed {
            table.remove(namespace.nsid);
            lock(&self.admin.features).forget_namespace(namespace.nsid);
        }
        self.replace_namespaces(table)?;
        for namespace in doomed.iter().filter(|namespace| namespace.attached) {
            self.admin.namespace_changed(namespace.nsid);
        }
        Ok(0)
    }

    pub(super) fn namespace_attachment(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        attach: admin::NamespaceAttachment,
    ) -> Result<u64, Status> {
        let attaches = match attach.operation {
            AttachmentOperation::Attach => true,
            AttachmentOperation::Detach => false,
            AttachmentOperation::Reserved(_) => return Err(Status::INVALID_FIELD.with_do_not_retry()),
        };
        let data = self.receive(sq, sqe, IDENTIFY_BYTES)?;
        let list = ControllerList::read_from_bytes(&data).map_err(|_| Status::INTERNAL_ERROR)?;
        let old = self.namespaces.get();
        let namespace = existing(&old, attach.nsid)?;
        // There is one controller: anything else is a list of controllers that are not there, or not in order.
        if list.identifiers() != Some(&[CONTROLLER_ID]) {
            return Err(Status::CONTROLLER_LIST_INVALID.with_do_not_retry());
        }
        match (attaches, namespace.attached) {
            (true, true) => return Err(Status::NAMESPACE_ALREADY_ATTACHED.with_do_not_retry()),
            (false, false) => return Err(Status::NAMESPACE_NOT_ATTACHED.with_do_not_retry()),
            _ => {}
        }
        let mut table = NamespaceTable::clone(&old);
        table.put(Namespace { attached: attaches, ..Namespace::clone(namespace) });
        self.replace_namespaces(table)?;
        self.drain();
        self.admin.namespace_changed(attach.nsid);
        Ok(0)
    }

    /// A namespace keeps its chunks and its size in bytes, rounded up to whole blocks of the new format, which the
    /// chunks have room for. Its contents are zeroes afterwards.
    pub(super) fn format_nvm(&self, format: FormatNvm) -> Result<u64, Status> {
        let block_shift = check_format(&format)?;
        let old = self.namespaces.get();
        // FNA.FNS is clear: FFFFFFFFh is the namespaces attached to this controller (Base 5.1.10, operation scope).
        let named = named(&old, format.nsid, old.iter().filter(|namespace| namespace.attached))?;
        self.quiesce(&named);
        if let Err(status) = self.erase(&named) {
            self.publish(NamespaceTable::clone(&old));
            return Err(status);
        }
        let mut table = NamespaceTable::clone(&old);
        for namespace in &named {
            table.put(Namespace {
                block_shift,
                blocks: namespace.bytes(namespace.blocks).div_ceil(1 << block_shift),
                bad: Arc::new(BadBlocks::default()),
                ..Namespace::clone(namespace)
            });
        }
        self.replace_namespaces(table)?;
        // Only what Identify Namespace says of an attached namespace is news.
        for namespace in named.iter().filter(|n| n.attached && n.block_shift != block_shift) {
            self.admin.namespace_changed(namespace.nsid);
        }
        Ok(0)
    }

    fn publish(&self, table: NamespaceTable) {
        let published: Result<(), Infallible> = self.namespaces.update(|_| Ok((table, ())));
        let Ok(()) = published;
        self.admin.changed();
    }

    /// Publishes a table and saves it. When it cannot be saved the old one comes back: what the host is told and what
    /// it finds after a power cycle are the same.
    fn replace_namespaces(&self, table: NamespaceTable) -> Result<(), Status> {
        let old = NamespaceTable::clone(&self.namespaces.get());
        // A version from before the command, should a busy one be published.
        let restored = old.without_busy();
        self.publish(table);
        self.save_state().inspect_err(|_| self.publish(restored))
    }

    /// Refuses commands to `namespaces` and waits until none is at work on them.
    fn quiesce(&self, namespaces: &[Arc<Namespace>]) {
        let mut table = NamespaceTable::clone(&self.namespaces.get());
        for namespace in namespaces {
            table.put(Namespace { busy: true, ..Namespace::clone(namespace) });
        }
        self.publish(table);
        self.drain();
    }

    /// Waits until no I/O queue uses an older table. The admin queue, which the caller holds, is the first in the order
    /// in which queues are locked.
    fn drain(&self) {
        for cell in self.submission.iter().skip(1) {
            if let Some(queue) = lock(cell).as_mut() {
                self.namespaces.refresh(&mut queue.namespaces);
            }
        }
    }

    /// Gives the space of quiet namespaces back: they are zeroes.
    fn erase(&self, namespaces: &[Arc<Namespace>]) -> Result<(), Status> {
        let chunks =
            namespaces.iter().flat_map(|namespace| namespace.chunks.iter().map(|&chunk| chunk.into()));
        self.media.release(chunks).map_err(|error| {
            tracing::error!(%error, "the space of a namespace could not be given back");
            Status::INTERNAL_ERROR
        })
    }
}

/// The namespace that `nsid` names, or with FFFFFFFFh `all`.
fn named<'a>(
    table: &NamespaceTable,
    nsid: Nsid,
    all: impl Iterator<Item = &'a Arc<Namespace>>,
) -> Result<Vec<Arc<Namespace>>, Status> {
    if nsid == Nsid::ALL {
        return Ok(all.cloned().collect());
    }
    Ok(vec![Arc::clone(existing(table, nsid)?)])
}

/// A namespace that is allocated, attached or not.
fn existing(table: &NamespaceTable, nsid: Nsid) -> Result<&Arc<Namespace>, Status> {
    match nsid.0 {
        1..=NAMESPACES_MAX => table.get(nsid).ok_or(Status::INVALID_FIELD.with_do_not_retry()),
        _ => Err(Status::INVALID_NAMESPACE_OR_FORMAT.with_do_not_retry()),
    }
}

/// Block size, as a power of two, of an LBA format without metadata and protection information.
fn block_shift_of(index: u8, metadata_extended: bool, protection: u8) -> Result<u8, Status> {
    match FORMATS.get(usize::from(index)) {
        Some(format) if !metadata_extended && protection == 0 => Ok(format.block_shift),
        _ => Err(Status::INVALID_FORMAT.with_do_not_retry()),
    }
}

fn check_create(create: &NamespaceCreate) -> Result<u8, Status> {
    let block_shift = block_shift_of(create.format_index(), create.flbas & 1 << 4 != 0, create.dps)?;
    // No sharing, NVM sets, endurance groups, storage tags or data placement.
    let unsupported = create.nmic != 0
        || create.nvmsetid != 0
        || create.endgid != 0
        || create.lbstm != 0
        || create.nphndls != 0
        || create.anagrpid != 0;
    if unsupported || create.nsze == 0 || create.ncap > create.nsze {
        return Err(Status::INVALID_FIELD.with_do_not_retry());
    }
    if create.ncap < create.nsze {
        return Err(Status::THIN_PROVISIONING_UNSUPPORTED.with_do_not_retry());
    }
    Ok(block_shift)
}

fn check_format(format: &FormatNvm) -> Result<u8, Status> {
    match format.secure_erase {
        SecureErase::None | SecureErase::UserData => {}
        SecureErase::Cryptographic | SecureErase::Reserved(_) => {
            return Err(Status::INVALID_FIELD.with_do_not_retry());
        }
    }
    block_shift_of(format.lbaf, format.metadata_extended, format.protection)
}
