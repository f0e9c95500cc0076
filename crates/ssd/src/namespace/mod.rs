//! Namespaces: what they hold, logical blocks or pairs, and where on the media it lies.

mod add;
pub(crate) mod assign;
mod damage;

use std::sync::Arc;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

use unvme_bus::lock;
use unvme_spec::command::{self, Facts};
use unvme_spec::identify::csi;
use unvme_spec::nvm::BlockRange;
use unvme_spec::{Nsid, Sqe, Status};

use crate::controllers::ControllerSet;
use crate::fdp::Handles;
use crate::kv::KeyValue;
use crate::limits::NAMESPACES_MAX;
use crate::store::{CHUNK_BYTES, Extent};

pub(crate) use add::{AddError, CREATED_MAX, NewNamespace, Shape, add, free_chunks, owned_chunks};
pub use damage::CheckedBlocks;

/// All namespaces of the subsystem as one controller sees them; entry `nsid - 1` is namespace `nsid`.
#[derive(Clone, Default)]
pub(crate) struct NamespaceTable {
    entries: Vec<Option<Arc<Namespace>>>,
    /// The controller that looks.
    viewer: ControllerSet,
    /// Namespaces created since the device was made: what their identifiers are derived from.
    pub(crate) created: u64,
    /// CC.CSS selects all command sets: namespaces of other sets than NVM are there for the host.
    all_command_sets: bool,
    /// The first Key Value namespace that is there for the host.
    key_value: Option<Nsid>,
}

impl NamespaceTable {
    /// A namespace that exists, attached or not.
    pub(crate) fn get(&self, nsid: Nsid) -> Option<&Arc<Namespace>> {
        self.entries.get((nsid.0 as usize).checked_sub(1)?)?.as_ref()
    }

    /// The logical blocks an I/O command names (Base 3.2.1.5): a namespace that cannot exist is Invalid
    /// Namespace or Format, one that is not attached is Invalid Field.
    #[inline]
    pub(crate) fn blocks(&self, nsid: u32) -> Result<&Blocks, Status> {
        match self.entries.get((nsid as usize).wrapping_sub(1)) {
            Some(Some(namespace)) if namespace.attached.intersects(self.viewer) && !namespace.busy => {
                match &namespace.contents {
                    Contents::Blocks(blocks) => Ok(blocks),
                    Contents::KeyValue(_) => Err(self.inactive(nsid)),
                }
            }
            _ => Err(self.inactive(nsid)),
        }
    }

    /// Placement handles of a namespace that exists.
    #[inline]
    pub(crate) fn handles(&self, nsid: u32) -> Option<&Handles> {
        Some(&self.get(Nsid(nsid))?.handles)
    }

    /// The pairs an I/O command names, as [`NamespaceTable::blocks`].
    #[inline]
    pub(crate) fn pairs(&self, nsid: u32) -> Result<&KeyValue, Status> {
        match self.entries.get((nsid as usize).wrapping_sub(1)) {
            Some(Some(namespace)) if self.is_active(namespace) && !namespace.busy => {
                match &namespace.contents {
                    Contents::KeyValue(pairs) => Ok(pairs),
                    Contents::Blocks(_) => Err(self.inactive(nsid)),
                }
            }
            _ => Err(self.inactive(nsid)),
        }
    }

    /// The command set of a namespace, when it is there for the host and not of the NVM command set.
    #[inline]
    pub(crate) fn is_key_value(&self, nsid: u32) -> bool {
        match self.entries.get((nsid as usize).wrapping_sub(1)) {
            Some(Some(namespace)) => {
                matches!(namespace.contents, Contents::KeyValue(_)) && self.is_active(namespace)
            }
            _ => false,
        }
    }

    /// What is known of a command by its opcode: of one for pairs, or for whatever its namespace holds.
    pub(crate) fn facts(&self, for_pairs: bool, sqe: &Sqe) -> Option<&'static Facts> {
        let csi = if for_pairs { csi::KEY_VALUE } else { self.csi(sqe.nsid) };
        command::io(csi, sqe.opcode)
    }

    /// Command set of a namespace; the NVM command set where there is none for the host.
    pub(crate) fn csi(&self, nsid: u32) -> u8 {
        let namespace = self.get(Nsid(nsid)).filter(|namespace| self.is_active(namespace));
        namespace.map_or(csi::NVM, |namespace| namespace.csi())
    }

    /// The first Key Value namespace that is there for the host; `None` when commands are for logical blocks
    /// only.
    #[inline]
    pub(crate) fn first_key_value(&self) -> Option<Nsid> {
        self.key_value
    }

    /// A namespace an admin command names and that can be used, whatever it holds; statuses as
    /// [`NamespaceTable::blocks`].
    pub(crate) fn active(&self, nsid: u32) -> Result<&Namespace, Status> {
        match self.get(Nsid(nsid)) {
            Some(namespace) if self.is_active(namespace) && !namespace.busy => Ok(namespace),
            _ => Err(self.inactive(nsid)),
        }
    }

    /// True when a namespace is attached and of a command set that the host has selected.
    #[inline]
    pub(crate) fn is_active(&self, namespace: &Namespace) -> bool {
        self.is_attached(namespace)
            && (self.all_command_sets || matches!(namespace.contents, Contents::Blocks(_)))
    }

    /// True when a namespace is attached to the controller that looks.
    #[inline]
    pub(crate) fn is_attached(&self, namespace: &Namespace) -> bool {
        namespace.attached.intersects(self.viewer)
    }

    /// The same namespaces as another controller sees them, which has selected all command sets or not.
    pub(crate) fn seen_by(&self, viewer: ControllerSet, all_command_sets: bool) -> Self {
        let mut view = Self { viewer, all_command_sets, ..self.clone() };
        view.note_key_value();
        view
    }

    /// These namespaces as the controller of `view` sees them.
    pub(crate) fn seen_as(&self, view: &Self) -> Self {
        self.seen_by(view.viewer, view.all_command_sets)
    }

    #[cold]
    fn inactive(&self, nsid: u32) -> Status {
        if self.get(Nsid(nsid)).is_some_and(|namespace| self.is_active(namespace) && namespace.busy) {
            // Attached and refused: a format or deletion is under way, and the command may be retried after
            // it.
            Status::FORMAT_IN_PROGRESS
        } else if (1..=NAMESPACES_MAX).contains(&nsid) {
            Status::INVALID_FIELD.with_do_not_retry()
        } else {
            Status::INVALID_NAMESPACE_OR_FORMAT.with_do_not_retry()
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Namespace>> {
        self.entries.iter().flatten()
    }

    /// The Key Value namespaces that are not being erased.
    pub(crate) fn key_value_namespaces(&self) -> impl Iterator<Item = (Nsid, &KeyValue)> {
        self.iter().filter(|namespace| !namespace.busy).filter_map(|namespace| match &namespace.contents {
            Contents::KeyValue(pairs) => Some((namespace.nsid, pairs)),
            Contents::Blocks(_) => None,
        })
    }

    /// Their pairs.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &KeyValue> {
        self.key_value_namespaces().map(|(_, pairs)| pairs)
    }

    /// Adds or replaces a namespace.
    pub(crate) fn put(&mut self, namespace: Namespace) {
        let index = namespace.nsid.0 as usize - 1;
        if self.entries.len() <= index {
            self.entries.resize(index + 1, None);
        }
        self.entries[index] = Some(Arc::new(namespace));
        self.note_key_value();
    }

    pub(crate) fn remove(&mut self, nsid: Nsid) {
        if let Some(entry) = (nsid.0 as usize).checked_sub(1).and_then(|i| self.entries.get_mut(i)) {
            *entry = None;
        }
        self.note_key_value();
    }

    /// Takes note of CC.CSS; true when that changes anything.
    pub(crate) fn select_command_sets(&mut self, all: bool) -> bool {
        let changes = self.all_command_sets != all;
        self.all_command_sets = all;
        self.note_key_value();
        changes
    }

    fn note_key_value(&mut self) {
        let first = self.iter().find(|n| matches!(n.contents, Contents::KeyValue(_)) && self.is_active(n));
        self.key_value = first.map(|namespace| namespace.nsid);
    }

    /// This table with logical blocks open to commands. Pairs whose media was to be erased are not there any
    /// more: they stay closed until that has been done.
    pub(crate) fn without_busy(&self) -> Self {
        let open = |namespace: &Arc<Namespace>| match namespace.busy && namespace.csi() == csi::NVM {
            true => Arc::new(Namespace { busy: false, ..Namespace::clone(namespace) }),
            false => Arc::clone(namespace),
        };
        let entries = self.entries.iter().map(|entry| entry.as_ref().map(open)).collect();
        Self { entries, ..*self }
    }
}

#[derive(Clone)]
pub(crate) struct Namespace {
    pub(crate) nsid: Nsid,
    /// The controllers it is attached to. Those that are gone are not taken out: who asks leaves them out.
    pub(crate) attached: ControllerSet,
    /// It may be attached to one controller at a time.
    pub(crate) is_private: bool,
    /// Its media is being erased: commands are refused meanwhile.
    pub(crate) busy: bool,
    /// Namespace globally unique identifier.
    pub(crate) nguid: [u8; 16],
    /// IEEE extended unique identifier.
    pub(crate) eui64: [u8; 8],
    /// Where what is written to it goes, on a device with flash.
    pub(crate) handles: Arc<Handles>,
    pub(crate) contents: Contents,
}

/// What a namespace holds: which command set it belongs to.
#[derive(Clone)]
pub(crate) enum Contents {
    /// NVM command set.
    Blocks(Blocks),
    /// Key Value command set.
    KeyValue(KeyValue),
}

impl Contents {
    /// The command sets there are.
    pub(crate) const COMMAND_SETS: [u8; 2] = [csi::NVM, csi::KEY_VALUE];
}

impl Namespace {
    /// Chunk of the media behind each chunk of the namespace.
    pub(crate) fn chunks(&self) -> &Arc<[u32]> {
        match &self.contents {
            Contents::Blocks(blocks) => &blocks.chunks,
            Contents::KeyValue(pairs) => &pairs.chunks,
        }
    }

    /// Its command set's identifier.
    pub(crate) fn csi(&self) -> u8 {
        match &self.contents {
            Contents::Blocks(_) => csi::NVM,
            Contents::KeyValue(_) => csi::KEY_VALUE,
        }
    }
}

/// Logical blocks.
#[derive(Clone)]
pub(crate) struct Blocks {
    /// Logical block size as a power of two: 9 or 12.
    pub(crate) block_shift: u8,
    /// Capacity in logical blocks.
    pub(crate) count: u64,
    /// Chunk of the media behind each chunk of the namespace.
    pub(crate) chunks: Arc<[u32]>,
    /// Blocks marked by Write Uncorrectable; shared by all versions of the namespace.
    pub(crate) bad: Arc<BadBlocks>,
}

impl Blocks {
    /// Bytes of `blocks` logical blocks.
    #[inline]
    pub(crate) fn bytes(&self, blocks: u64) -> u64 {
        blocks << self.block_shift
    }

    /// Checks that a range lies within the namespace.
    #[inline]
    pub(crate) fn check(&self, range: BlockRange) -> Result<(), Status> {
        match range.end() {
            Some(end) if end <= self.count => Ok(()),
            _ => Err(Status::LBA_OUT_OF_RANGE.with_do_not_retry()),
        }
    }

    /// Where on the media byte `offset` of the namespace is, and how many of `bytes` lie there in one chunk.
    /// `None` beyond the end of the namespace.
    #[inline]
    pub(crate) fn locate(&self, offset: u64, bytes: usize) -> Option<Extent> {
        let chunk = *self.chunks.get((offset / CHUNK_BYTES) as usize)?;
        let within = offset % CHUNK_BYTES;
        let bytes = bytes.min((CHUNK_BYTES - within) as usize);
        Some(Extent { offset: u64::from(chunk) * CHUNK_BYTES + within, bytes })
    }

    /// Calls `visit` for each piece of a byte range of the namespace that lies in one chunk, with the bytes
    /// before it.
    #[inline]
    pub(crate) fn for_each_extent(
        &self,
        offset: u64,
        bytes: usize,
        mut visit: impl FnMut(Extent, usize) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let mut done = 0;
        while done < bytes {
            // Ranges are checked before: the chunk is there. Should it not be, the device is at fault.
            let extent = self.locate(offset + done as u64, bytes - done).ok_or(Status::INTERNAL_ERROR)?;
            visit(extent, done)?;
            done += extent.bytes;
        }
        Ok(())
    }
}

/// Logical blocks that cannot be read, as disjoint half-open ranges in ascending order.
#[derive(Default)]
pub(crate) struct BadBlocks {
    /// False lets reads pass without taking the lock.
    any: AtomicBool,
    ranges: RwLock<Vec<(u64, u64)>>,
}

impl BadBlocks {
    pub(crate) fn new(ranges: Vec<(u64, u64)>) -> Self {
        Self { any: AtomicBool::new(!ranges.is_empty()), ranges: RwLock::new(ranges) }
    }

    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        lock::read(&self.ranges).clone()
    }

    /// Fails when a block of `range` is marked.
    #[inline]
    pub(crate) fn check(&self, range: BlockRange) -> Result<(), Status> {
        if self.any.load(Ordering::Acquire) { self.search(range) } else { Ok(()) }
    }

    #[cold]
    fn search(&self, range: BlockRange) -> Result<(), Status> {
        let (start, end) = bounds(range);
        let ranges = lock::read(&self.ranges);
        let first = ranges.partition_point(|&(_, e)| e <= start);
        match ranges.get(first) {
            Some(&(s, _)) if s < end => Err(Status::UNRECOVERED_READ_ERROR),
            _ => Ok(()),
        }
    }

    pub(crate) fn mark(&self, range: BlockRange) {
        let (start, end) = bounds(range);
        let mut ranges = lock::write(&self.ranges);
        // Ranges that overlap or touch the new one become part of it.
        let first = ranges.partition_point(|&(_, e)| e < start);
        let behind = ranges.partition_point(|&(s, _)| s <= end);
        let merged = ranges[first..behind].iter().fold((start, end), |(s, e), r| (s.min(r.0), e.max(r.1)));
        ranges.splice(first..behind, [merged]);
        self.any.store(true, Ordering::Release);
    }

    /// Unmarks a range: it has been written. True when a block of it was marked.
    #[inline]
    pub(crate) fn clear(&self, range: BlockRange) -> bool {
        self.any.load(Ordering::Acquire) && self.cut(range)
    }

    #[cold]
    fn cut(&self, range: BlockRange) -> bool {
        if self.search(range).is_ok() {
            return false;
        }
        let (start, end) = bounds(range);
        let mut ranges = lock::write(&self.ranges);
        *ranges = ranges
            .iter()
            .flat_map(|&(s, e)| [(s, e.min(start)), (s.max(end), e)])
            .filter(|(s, e)| s < e)
            .collect();
        self.any.store(!ranges.is_empty(), Ordering::Release);
        true
    }
}

fn bounds(range: BlockRange) -> (u64, u64) {
    (range.start.0, range.start.0.saturating_add(range.blocks.into()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use unvme_spec::Lba;

    use super::*;

    #[test]
    fn a_namespace_is_refused_for_a_while_when_it_is_busy_and_for_good_when_it_is_not_there() {
        let blocks = Blocks { block_shift: 9, count: 1, chunks: Arc::new([0]), bad: Arc::default() };
        let namespace = Namespace {
            nsid: Nsid(2),
            attached: ControllerSet::only(3),
            is_private: false,
            busy: true,
            nguid: [0; 16],
            eui64: [0; 8],
            handles: Handles::conventional(1),
            contents: Contents::Blocks(blocks),
        };
        let mut table = NamespaceTable::default().seen_by(ControllerSet::only(3), false);
        table.put(namespace.clone());
        assert_eq!(table.blocks(2).err(), Some(Status::FORMAT_IN_PROGRESS));
        assert!(table.without_busy().blocks(2).is_ok());
        let of_another = table.seen_by(ControllerSet::only(2), false);
        assert_eq!(of_another.blocks(2).err(), Some(Status::INVALID_FIELD.with_do_not_retry()));
        table.put(Namespace { attached: ControllerSet::default(), ..namespace });
        let invalid_field = Some(Status::INVALID_FIELD.with_do_not_retry());
        assert_eq!([1, 2, 3, 128].map(|nsid| table.blocks(nsid).err()), [invalid_field; 4]);
        let invalid_namespace = Some(Status::INVALID_NAMESPACE_OR_FORMAT.with_do_not_retry());
        assert_eq!([0, 129, u32::MAX].map(|nsid| table.blocks(nsid).err()), [invalid_namespace; 3]);
    }

    #[test]
    fn bad_blocks_behave_like_a_set_of_numbers() {
        let bad = BadBlocks::default();
        let mut model = BTreeSet::new();
        let mut seed = 42u64;
        for _ in 0..2000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (start, blocks) = ((seed >> 33) % 100, (seed >> 45) as u32 % 8 + 1);
            let range = BlockRange::new(Lba(start), blocks);
            let numbers = start..start + u64::from(blocks);
            match seed >> 62 {
                0 => {
                    bad.mark(range);
                    model.extend(numbers);
                }
                1 => {
                    assert_eq!(bad.clear(range), numbers.clone().any(|n| model.contains(&n)));
                    model.retain(|n| !numbers.contains(n));
                }
                _ => assert_eq!(bad.check(range).is_err(), numbers.clone().any(|n| model.contains(&n))),
            }
            let listed: BTreeSet<u64> = bad.ranges().iter().flat_map(|&(s, e)| s..e).collect();
            assert_eq!(listed, model);
        }
    }
}
