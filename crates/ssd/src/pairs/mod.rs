//! Commands for Key Value namespaces: two command sets over one store.
//!
//! | module | what |
//! |---|---|
//! | `standard` | the Key Value Command Set: keys of 1 to 16 bytes, in keyspace 0 |
//! | `samsung`, `batch` | the vendor commands of Samsung's KV SSDs: keys of 4 to 255 bytes, two keyspaces |

mod batch;
mod samsung;
mod standard;

use unvme_bus::Mappings;
use unvme_bus::space::{Direction, Place};
use unvme_spec::command::is_vendor_specific;
use unvme_spec::samsung_kv::{KeyspaceField, Target};
use unvme_spec::{Sqe, Status, kv, samsung_kv};

use crate::Ssd;
use crate::dptr::DataPointer;
use crate::kv::{HostData, KEYSPACES, Key, KeyValue, KvStore};
use crate::namespace::NamespaceTable;
use crate::queue::SubmissionQueue;
use crate::reply::Reply;
use crate::store::NOWHERE;

const INVALID_FIELD: Status = Status::INVALID_FIELD.with_do_not_retry();
/// Keyspace of the standard command set.
const STANDARD_KEYSPACE: u8 = 0;
/// Bytes a store may copy for itself after a turn of a queue: a few of the largest commands that a host may
/// be used to wait for.
const MAINTENANCE_BYTES: usize = 256 << 10;

/// Finds the host memory of a command's data.
fn find_data<'a>(pointer: DataPointer<'a>, pieces: &'a mut Vec<Place>) -> Result<HostData<'a>, Status> {
    find_first(pointer, pointer.bytes, pieces)
}

/// Finds the host memory of the first `wanted` bytes of a command's data, for a command that never moves more
/// than that, however long the buffer is.
fn find_first<'a>(
    pointer: DataPointer<'a>,
    wanted: usize,
    pieces: &'a mut Vec<Place>,
) -> Result<HostData<'a>, Status> {
    match pointer.single() {
        Some(place) if pointer.bytes > 0 => {
            pieces.clear();
            pieces.push(place);
        }
        _ => pointer.walk_first(wanted, pieces)?,
    }
    Ok(HostData { host: pointer.host, pieces, bytes: pointer.bytes.min(wanted) as u32 })
}

impl Ssd {
    /// True when a command is for a Key Value namespace. Vendor commands of hosts that have the keyspace in
    /// place of the namespace are for the first one.
    #[inline]
    pub(crate) fn is_for_pairs(&self, namespaces: &NamespaceTable, sqe: &Sqe) -> bool {
        namespaces.is_key_value(sqe.nsid)
            || (self.is_vendor(sqe) && self.config.keyspace_field == KeyspaceField::Nsid)
    }

    /// True for opcodes that are a vendor's to define, on a device that defines them.
    #[inline]
    fn is_vendor(&self, sqe: &Sqe) -> bool {
        is_vendor_specific(sqe.opcode, false) && self.config.vendor_kv
    }

    /// Executes one command for a Key Value namespace.
    #[inline]
    pub(crate) fn execute_kv(&self, sq: &mut SubmissionQueue, sqe: &Sqe) -> Result<Reply, Status> {
        if self.is_vendor(sqe) { self.execute_samsung(sq, sqe) } else { self.execute_standard(sq, sqe) }
    }

    /// The pairs that a vendor command is for, and the keyspace as the host wrote it.
    #[inline]
    fn vendor_target<'a>(
        &self,
        namespaces: &'a NamespaceTable,
        sqe: &Sqe,
    ) -> Result<(&'a KeyValue, u32), Status> {
        let target = Target::parse(sqe, self.config.keyspace_field);
        let nsid = match self.config.keyspace_field {
            KeyspaceField::Cdw3 => target.nsid,
            KeyspaceField::Nsid => namespaces.first_key_value().ok_or(INVALID_FIELD)?,
        };
        Ok((namespaces.pairs(nsid.0)?, target.keyspace))
    }

    /// Calls `use_key` with the key in an entry that waits; `None` when it is in memory or no key.
    #[inline]
    fn with_key<R>(
        &self,
        sq: &SubmissionQueue,
        sqe: &Sqe,
        use_key: impl FnOnce(&KvStore, &Key<'_>) -> R,
    ) -> Option<R> {
        if self.is_vendor(sqe) {
            let (pairs, keyspace) = self.vendor_target(&sq.namespaces, sqe).ok()?;
            let key = samsung_kv::Command::key_of(sqe)?;
            let keyspace = u8::try_from(keyspace).ok().filter(|&k| k < KEYSPACES)?;
            return Some(use_key(&pairs.store, &pairs.store.key(keyspace, key.as_inline()?)));
        }
        let pairs = sq.namespaces.pairs(sqe.nsid).ok()?;
        let key = kv::Command::key_of(sqe)?;
        let bytes = key.as_bytes().filter(|bytes| !bytes.is_empty())?;
        Some(use_key(&pairs.store, &pairs.store.key(STANDARD_KEYSPACE, bytes)))
    }

    /// Brings the index entry of a command's key close, two commands before it is executed.
    #[inline]
    pub(crate) fn prefetch_index(&self, sq: &SubmissionQueue, sqe: &Sqe) {
        if self.is_for_pairs(&sq.namespaces, sqe) {
            self.with_key(sq, sqe, |store, key| store.prefetch_index(key));
        }
    }

    /// Brings the beginning of what the next command reads close, and returns where on the media the rest of
    /// it is.
    #[inline]
    pub(crate) fn prefetch_record(&self, sq: &SubmissionQueue, sqe: &Sqe) -> u64 {
        if !self.is_for_pairs(&sq.namespaces, sqe) {
            return self.prefetch_blocks(sq, sqe);
        }
        // A store looks at the record it supersedes, too, but reads no further.
        let rest = self.with_key(sq, sqe, |store, key| store.prefetch_record(key)).unwrap_or(NOWHERE);
        let is_read = matches!(sqe.opcode, kv::opcode::RETRIEVE | samsung_kv::opcode::RETRIEVE);
        if is_read { rest } else { NOWHERE }
    }

    /// Where on the media the record of a command's key is; `None` when there is none, or the key is not in
    /// the entry.
    pub(crate) fn place_of_pair(&self, sq: &SubmissionQueue, sqe: &Sqe) -> Option<u64> {
        self.with_key(sq, sqe, |store, key| store.place_of(key)).flatten()
    }

    /// [`Ssd::persist`] after a command that has changed a store, when there is no write cache.
    #[inline]
    fn persist_pairs(&self, pairs: &KeyValue) -> Result<(), Status> {
        if self.hot.is_write_through() { pairs.store.sync() } else { Ok(()) }
    }

    /// Background work of all stores, bounded; true when there is more to do. The caller holds a queue, whose
    /// table is the current one or one in which no namespace is being erased.
    pub(crate) fn maintain(&self, sq: &mut SubmissionQueue) -> bool {
        let SubmissionQueue { namespaces, kv, .. } = sq;
        let mut more = false;
        for pairs in namespaces.stores() {
            let write_through = self.hot.is_write_through();
            more |= pairs.iterators.delete_some(&pairs.store, &mut kv.scratch, write_through);
            more |= pairs.store.maintain(MAINTENANCE_BYTES);
        }
        more
    }

    /// Bytes a command moves, checked against the largest transfer.
    #[inline]
    fn check_bytes(&self, bytes: u64) -> Result<usize, Status> {
        match bytes <= self.transfer_bytes_max {
            true => usize::try_from(bytes).map_err(|_| INVALID_FIELD),
            false => Err(INVALID_FIELD),
        }
    }
}

/// A command's data in host memory, which the device reads or writes.
#[inline]
const fn pointer<'a>(
    host: &'a Mappings,
    sqe: &'a Sqe,
    page_bytes: u32,
    bytes: usize,
    direction: Direction,
) -> DataPointer<'a> {
    DataPointer { host, sqe, page_bytes, bytes, direction }
}
