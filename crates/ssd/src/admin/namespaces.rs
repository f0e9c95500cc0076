//! Namespace Management and Attachment (Base 5.1.20, 5.1.21; NVM 4.1.6), Format NVM (Base 5.1.10).
//!
//! Commands that change the table of namespaces are executed one at a time in the subsystem: whoever executes
//! one holds `Subsystem::changing`, and the admin submission queue of its controller. Before anything is done
//! to the media of a namespace, a version of the table is published to all controllers in which the namespace
//! is busy, and every I/O queue of each is locked once: from then on no command is at work on it.
//!
//! A Key Value namespace that is being erased is busy in the saved state too: a store that a process left
//! half erased when it was killed is made anew when the device starts again, instead of being missed.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use unvme_bus::lock;
use unvme_spec::admin::{AttachmentOperation, FormatNvm, NamespaceOperation, SecureErase};
use unvme_spec::identify::{ControllerList, IDENTIFY_BYTES, KvNamespaceCreate, NamespaceCreate, csi};
use unvme_spec::{Nsid, Sqe, Status, admin};
use zerocopy::FromBytes;

use crate::Ssd;
use crate::controllers::ControllerSet;
use crate::fdp::{ChosenBy, ENDURANCE_GROUP, Handles};
use crate::kv::{KeyValue, KvStore, STORE_BYTES_MIN};
use crate::limits::NAMESPACES_MAX;
use crate::namespace::{
    AddError, Blocks, CREATED_MAX, Contents, Namespace, NamespaceTable, NewNamespace, Shape, add, assign,
};
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

/// Index of the format with blocks of `1 << block_shift` bytes.
pub(super) fn format_of(block_shift: u8) -> u8 {
    FORMATS.iter().position(|format| format.block_shift == block_shift).unwrap_or(0) as u8
}

/// SHRNS of NMIC: the namespace may be attached to several controllers.
pub(super) const NMIC_SHARED: u8 = 1 << 0;

/// Formats a Key Value namespace can have: one, with keys of up to 16 bytes and values of up to 256 MiB.
pub(super) const KV_FORMATS: u8 = 1;

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
        if !self.has_command_set(command_set) {
            return Err(Status::IO_COMMAND_SET_UNSUPPORTED.with_do_not_retry());
        }
        let data = self.receive(sq, sqe, IDENTIFY_BYTES)?;
        let has_flash = self.fdp.has_flash();
        let create = NamespaceCreate::read_from_bytes(&data).map_err(|_| Status::INTERNAL_ERROR)?;
        let shape = match command_set {
            csi::KEY_VALUE => check_kv_create(
                &KvNamespaceCreate::read_from_bytes(&data).map_err(|_| Status::INTERNAL_ERROR)?,
                has_flash,
            )?,
            _ => check_create(&create, has_flash)?,
        };
        let mut table = NamespaceTable::clone(&self.namespaces.get());
        let nsid = (1..=NAMESPACES_MAX)
            .map(Nsid)
            .find(|&nsid| table.get(nsid).is_none() && table.created < CREATED_MAX)
            .ok_or(Status::NAMESPACE_IDENTIFIER_UNAVAILABLE)?;
        // The list is at the same place whatever the namespace holds.
        let handles = self.handles_for(&table, &create, shape)?;
        // NMIC is at the same place, too. A controller that was made for a host goes with it: a namespace
        // that is its alone would be nobody's.
        let is_private = create.nmic & NMIC_SHARED == 0 && self.association.is_none();
        let new = NewNamespace { nsid, shape, attached: ControllerSet::default(), is_private };
        add(&mut table, new, handles, &self.config.serial, &self.media)?;
        self.replace_namespaces(table)?;
        Ok(nsid.0.into())
    }

    /// Placement handles for a namespace that a host asks for.
    fn handles_for(
        &self,
        table: &NamespaceTable,
        create: &NamespaceCreate,
        shape: Shape,
    ) -> Result<Arc<Handles>, Status> {
        let fdp = &self.fdp;
        let Some(configuration) = fdp.configuration() else {
            return match create.nphndls {
                0 => Ok(fdp.no_handles()),
                _ => Err(Status::FDP_DISABLED.with_do_not_retry()),
            };
        };
        let list = create.phndl.get(..usize::from(create.nphndls));
        let list = list.ok_or(Status::INVALID_PLACEMENT_HANDLE_LIST.with_do_not_retry())?;
        assign::assign(table, configuration, list, shape.block_shift())
    }

    /// True when the device can have Key Value namespaces: it keeps data.
    pub(super) fn holds_pairs(&self) -> bool {
        !self.media.is_null()
    }

    fn delete_namespaces(&self, nsid: Nsid) -> Result<u64, Status> {
        let old = self.namespaces.get();
        let doomed = named(&old, nsid, old.iter())?;
        self.subsystem.check_unclaimed(doomed.iter().map(|namespace| namespace.nsid))?;
        let seen: Vec<ControllerSet> = doomed.iter().map(|namespace| self.viewers_of(namespace)).collect();
        self.quiesce(&doomed)?;
        self.erase(&doomed)?;
        let mut table = NamespaceTable::clone(&old);
        for namespace in &doomed {
            table.remove(namespace.nsid);
            lock(&self.subsystem.features).forget_namespace(namespace.nsid);
        }
        self.replace_namespaces(table)?;
        for (namespace, seen) in doomed.iter().zip(seen) {
            self.subsystem.namespace_changed_for(seen, namespace.nsid);
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
        let named = self.controllers_named(&list)?;
        if !attaches {
            self.subsystem.check_unclaimed([attach.nsid])?;
        }
        let present = self.subsystem.present();
        let attached = match attaches {
            true => self.check_attach(namespace, named)?.with(self.of_hosts_to_come(named)),
            false if !named.is_within(namespace.attached.and(present)) => {
                return Err(Status::NAMESPACE_NOT_ATTACHED.with_do_not_retry());
            }
            false => namespace.attached.without(named).without(self.of_hosts_to_come(named)),
        };
        let mut table = NamespaceTable::clone(&old);
        table.put(Namespace { attached, ..Namespace::clone(namespace) });
        self.replace_namespaces(table)?;
        self.drain();
        self.subsystem.namespace_changed_for(named, attach.nsid);
        Ok(0)
    }

    /// Controllers that are made for hosts are given the namespaces of one that stays. What is done to the
    /// former is done to that one: a host that connects again finds what it has left.
    fn of_hosts_to_come(&self, named: ControllerSet) -> ControllerSet {
        let is_made =
            |controller: &Arc<Ssd>| controller.association.is_some() && named.contains(controller.cntlid);
        match self.subsystem.controllers().iter().any(is_made) {
            true => self.subsystem.model(),
            false => ControllerSet::default(),
        }
    }

    /// The controllers for whose hosts a namespace is there.
    fn viewers_of(&self, namespace: &Namespace) -> ControllerSet {
        let controllers = self.subsystem.controllers();
        let viewers =
            controllers.iter().filter(|controller| controller.namespaces.get().is_active(namespace));
        viewers.fold(ControllerSet::default(), |set, controller| set.with(controller.itself()))
    }

    /// The controllers of a list, which are all there and in ascending order.
    fn controllers_named(&self, list: &ControllerList) -> Result<ControllerSet, Status> {
        let invalid = Status::CONTROLLER_LIST_INVALID.with_do_not_retry();
        let identifiers =
            list.identifiers().filter(|list| !list.is_empty() && list.is_sorted_by(|a, b| a < b));
        let present = self.subsystem.present();
        identifiers.ok_or(invalid)?.iter().try_fold(ControllerSet::default(), |named, &cntlid| match present
            .contains(cntlid)
        {
            true => Ok(named.with(ControllerSet::only(cntlid))),
            false => Err(invalid),
        })
    }

    /// Checks that a namespace can be attached to the controllers `named`; returns all those it will be
    /// attached to.
    fn check_attach(&self, namespace: &Namespace, named: ControllerSet) -> Result<ControllerSet, Status> {
        let attached = namespace.attached.and(self.subsystem.present());
        if attached.intersects(named) {
            return Err(Status::NAMESPACE_ALREADY_ATTACHED.with_do_not_retry());
        }
        let attached = attached.with(named);
        if namespace.is_private && attached.count() > 1 {
            return Err(Status::NAMESPACE_IS_PRIVATE.with_do_not_retry());
        }
        // A controller that is not enabled has not chosen its command sets yet.
        let lacks = |controller: &Arc<Ssd>| {
            named.contains(controller.cntlid)
                && !controller.is_stopped()
                && !controller.is_enabled(namespace.csi())
        };
        match self.subsystem.controllers().iter().any(lacks) {
            true => Err(Status::IO_COMMAND_SET_NOT_ENABLED.with_do_not_retry()),
            false => Ok(attached),
        }
    }

    /// A namespace keeps its chunks and, when it has blocks, its size in bytes, rounded up to whole blocks of
    /// the new format, which the chunks have room for. It is empty afterwards: blocks are zeroes.
    pub(super) fn format_nvm(&self, format: FormatNvm) -> Result<u64, Status> {
        check_secure_erase(format.secure_erase)?;
        let old = self.namespaces.get();
        // FNA.FNS is clear: FFFFFFFFh is the namespaces attached to this controller (Base 5.1.10, operation
        // scope).
        let named = named(&old, format.nsid, old.iter().filter(|namespace| old.is_active(namespace)))?;
        for namespace in &named {
            check_format(&format, namespace)?;
        }
        self.check_shared_handles(&format, &old, &named)?;
        self.subsystem.check_unclaimed(named.iter().map(|namespace| namespace.nsid))?;
        self.quiesce(&named)?;
        self.erase(&named)?;
        let mut table = NamespaceTable::clone(&old);
        for namespace in &named {
            let contents = self.formatted(&format, namespace)?;
            table.put(Namespace { contents, ..Namespace::clone(namespace) });
        }
        self.replace_namespaces(table)?;
        self.configure_pairs();
        // Only what Identify Namespace says of an attached namespace is news.
        let table = self.namespaces.get();
        let changed = |old: &&Arc<Namespace>| {
            let new = table.get(old.nsid).map(|new| &new.contents);
            matches!((&old.contents, new), (Contents::Blocks(old), Some(Contents::Blocks(new)))
                if old.block_shift != new.block_shift)
        };
        for namespace in named.iter().filter(changed) {
            self.subsystem.namespace_changed_for(namespace.attached, namespace.nsid);
        }
        Ok(0)
    }

    /// Namespaces that share a reclaim unit handle keep having the same blocks: they are formatted together,
    /// or not to others (NVM 4.1.6.3).
    fn check_shared_handles(
        &self,
        format: &FormatNvm,
        table: &NamespaceTable,
        named: &[Arc<Namespace>],
    ) -> Result<(), Status> {
        if self.fdp.enabled().is_none() {
            return Ok(());
        }
        for namespace in
            named.iter().filter(|n| n.csi() == csi::NVM && n.handles.chosen_by() == ChosenBy::Host)
        {
            let block_shift = Some(check_format(format, namespace)?);
            let stays = |other: &&Arc<Namespace>| !named.iter().any(|named| named.nsid == other.nsid);
            let others = table.iter().filter(stays).map(|other| &**other);
            assign::check_format(others, namespace.handles.ruhs(), block_shift)?;
        }
        Ok(())
    }

    /// What an erased namespace holds.
    fn formatted(&self, format: &FormatNvm, namespace: &Namespace) -> Result<Contents, Status> {
        match &namespace.contents {
            Contents::Blocks(blocks) => {
                let block_shift = check_format(format, namespace)?;
                let count = blocks.bytes(blocks.count).div_ceil(1 << block_shift);
                Ok(Contents::Blocks(Blocks { block_shift, count, bad: Arc::default(), ..blocks.clone() }))
            }
            Contents::KeyValue(KeyValue { chunks, .. }) => {
                // Left busy when this fails: there is nothing to be used before another format.
                let store =
                    KvStore::create(Arc::clone(&self.media), Arc::clone(chunks)).map_err(AddError::Store)?;
                store.place(namespace.handles.ruhs());
                Ok(Contents::KeyValue(KeyValue::new(Arc::clone(chunks), store)))
            }
        }
    }

    fn publish(&self, table: NamespaceTable) {
        self.subsystem.publish(&table);
    }

    /// Publishes a table and saves it. When it cannot be saved the old one comes back: what the host is told
    /// and what it finds after a power cycle are the same.
    fn replace_namespaces(&self, table: NamespaceTable) -> Result<(), Status> {
        let old = NamespaceTable::clone(&self.namespaces.get());
        // A version from before the command, should a busy one be published.
        let restored = old.without_busy();
        self.publish(table);
        self.subsystem.save_state().inspect_err(|_| self.publish(restored))
    }

    /// Refuses commands to `namespaces` and waits until none is at work on them. Fails, and changes nothing,
    /// when the state cannot be saved.
    fn quiesce(&self, namespaces: &[Arc<Namespace>]) -> Result<(), Status> {
        let old = NamespaceTable::clone(&self.namespaces.get());
        let mut table = NamespaceTable::clone(&self.namespaces.get());
        for namespace in namespaces {
            table.put(Namespace { busy: true, ..Namespace::clone(namespace) });
        }
        self.publish(table);
        self.drain();
        let holds_pairs = |namespace: &Arc<Namespace>| matches!(namespace.contents, Contents::KeyValue(_));
        if namespaces.iter().any(holds_pairs) {
            self.subsystem.save_state().inspect_err(|_| self.publish(old))?;
        }
        Ok(())
    }

    /// Waits until no I/O queue of any controller uses an older table. The admin queue, which the caller
    /// holds, is the first in the order in which queues are locked.
    pub(crate) fn drain(&self) {
        for controller in self.subsystem.controllers() {
            controller.queues.drain(&controller.namespaces);
        }
    }

    /// Gives the space of quiet namespaces back: they are zeroes. When that fails, blocks are open to
    /// commands again, since any of them may be zeroes or not; of pairs nothing is left that could be.
    fn erase(&self, namespaces: &[Arc<Namespace>]) -> Result<(), Status> {
        for namespace in namespaces {
            if let Contents::KeyValue(pairs) = &namespace.contents {
                pairs.store.abandon();
                pairs.store.drop_index();
            }
        }
        let chunks =
            namespaces.iter().flat_map(|namespace| namespace.chunks().iter().map(|&chunk| chunk.into()));
        self.media.release(chunks).map_err(|error| {
            tracing::error!(%error, "the space of a namespace could not be given back");
            let mut table = NamespaceTable::clone(&self.namespaces.get());
            for namespace in namespaces.iter().filter(|n| matches!(n.contents, Contents::Blocks(_))) {
                table.put(Namespace { busy: false, ..Namespace::clone(namespace) });
            }
            self.publish(table);
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

fn check_create(create: &NamespaceCreate, has_flash: bool) -> Result<Shape, Status> {
    let block_shift = block_shift_of(create.format_index(), create.flbas & 1 << 4 != 0, create.dps)?;
    // No NVM sets or storage tags, no ANA; one endurance group and data placement on a device with flash.
    let unsupported = create.nmic & !NMIC_SHARED != 0
        || create.nvmsetid != 0
        || !is_endurance_group(create.endgid, has_flash)
        || create.lbstm != 0
        || (create.nphndls != 0 && !has_flash)
        || create.anagrpid != 0;
    if unsupported || create.nsze == 0 || create.ncap > create.nsze {
        return Err(Status::INVALID_FIELD.with_do_not_retry());
    }
    if create.ncap < create.nsze {
        return Err(Status::THIN_PROVISIONING_UNSUPPORTED.with_do_not_retry());
    }
    Ok(Shape::Blocks { block_shift, count: create.nsze })
}

/// The controller chooses the endurance group, or the host names the only one.
fn is_endurance_group(endgid: u16, has_flash: bool) -> bool {
    endgid == 0 || (has_flash && endgid == ENDURANCE_GROUP)
}

/// A host asks for bytes of media; what pairs can use of them, which is what NSZE says then, is less.
fn check_kv_create(create: &KvNamespaceCreate, has_flash: bool) -> Result<Shape, Status> {
    if create.kvfc & 0xf >= KV_FORMATS {
        return Err(Status::INVALID_FORMAT.with_do_not_retry());
    }
    let unsupported = create.nmic & !NMIC_SHARED != 0
        || create.nvmsetid != 0
        || !is_endurance_group(create.endgid, has_flash)
        || (create.nphndls != 0 && !has_flash)
        || create.anagrpid != 0;
    if unsupported || create.nsze < STORE_BYTES_MIN {
        return Err(Status::INVALID_FIELD.with_do_not_retry());
    }
    Ok(Shape::KeyValue { bytes: create.nsze })
}

fn check_secure_erase(secure_erase: SecureErase) -> Result<(), Status> {
    match secure_erase {
        SecureErase::None | SecureErase::UserData => Ok(()),
        SecureErase::Cryptographic | SecureErase::Reserved(_) => {
            Err(Status::INVALID_FIELD.with_do_not_retry())
        }
    }
}

/// Checks a format for a namespace; returns the block size as a power of two, 0 when it has none.
fn check_format(format: &FormatNvm, namespace: &Namespace) -> Result<u8, Status> {
    match &namespace.contents {
        Contents::Blocks(_) => block_shift_of(format.lbaf, format.metadata_extended, format.protection),
        Contents::KeyValue(_)
            if format.lbaf < KV_FORMATS && !format.metadata_extended && format.protection == 0 =>
        {
            Ok(0)
        }
        Contents::KeyValue(_) => Err(Status::INVALID_FORMAT.with_do_not_retry()),
    }
}
