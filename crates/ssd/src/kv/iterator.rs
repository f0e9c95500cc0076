//! The vendor's iterators: up to sixteen at a time for each controller, each over the keys of a keyspace that
//! begin alike. A controller knows its own alone: numbers are unique there, and a reset closes no others.
//!
//! Reads of one iterator are answered in order, each from where the one before has ended. Keys that are
//! stored behind that place while it is open are returned, keys that are stored before it are not.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

use unvme_bus::space::{Direction, View};
use unvme_bus::{AddressSpace, DmaAccess, Region, lock};
use unvme_spec::Status;
use unvme_spec::samsung_kv::{
    ITERATE_BUFFER_BYTES, ITERATORS_MAX, IterateType, IterateWriter, Prefix, status,
};
use unvme_spec::samsung_log::{IteratorEntry, IteratorLog};

use super::{HostData, KEY_BYTES_MAX, Key, KvError, KvScratch, KvStore, Listing, Part};

/// Keys taken from the store at a time, for what cannot be done while it lists them.
const KEYS_PER_STEP: usize = 64;

const ITERATORS: usize = ITERATORS_MAX as usize;

/// The iterators of a namespace.
#[derive(Default)]
pub(crate) struct Iterators {
    table: Mutex<Table>,
    /// Iterators that have pairs to delete; lets queues ask without taking the lock.
    deleting: AtomicU32,
}

/// Entry `n` is iterator `n + 1`.
type Slots = [Option<Open>; ITERATORS];

#[derive(Default)]
struct Table {
    /// By controller identifier.
    slots: BTreeMap<u16, Slots>,
    /// Where values are put together with their keys; made when it is first needed.
    staging: Option<Staging>,
}

struct Open {
    kind: IterateType,
    keyspace: u8,
    prefix: Prefix,
    /// The last key that was returned or deleted; empty before the first.
    last: Vec<u8>,
    /// Nothing is left.
    ended: bool,
}

impl Open {
    /// What is still to come.
    fn listing(&self) -> Listing<'_> {
        Listing {
            keyspace: self.keyspace,
            start: &self.last,
            after_start: !self.last.is_empty(),
            key_bytes_max: KEY_BYTES_MAX,
            prefix: self.prefix.prefix,
            mask: self.prefix.bitmask,
        }
    }

    fn deletes(&self) -> bool {
        self.kind == IterateType::KeyDelete && !self.ended
    }
}

/// What an iterator was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// Bytes of the buffer that are used.
    pub(crate) bytes: usize,
    /// Nothing is left.
    pub(crate) ended: bool,
}

impl Iterators {
    /// Opens the first iterator of a controller that is free.
    pub(crate) fn open(
        &self,
        cntlid: u16,
        kind: IterateType,
        keyspace: u8,
        prefix: Prefix,
    ) -> Result<u8, Status> {
        let mut table = self.lock();
        let slots = table.slots.entry(cntlid).or_default();
        // As they were given: bits of the prefix that the mask leaves out count as well.
        let same = |open: &Open| open.keyspace == keyspace && open.prefix == prefix;
        if slots.iter().flatten().any(same) {
            return Err(status::ITERATE_ALREADY_OPEN.with_do_not_retry());
        }
        let free = (1..).zip(slots).find(|(_, slot)| slot.is_none());
        let (id, slot) = free.ok_or(status::ITERATE_NO_HANDLE)?;
        *slot = Some(Open { kind, keyspace, prefix, last: Vec::new(), ended: false });
        self.note(&table);
        Ok(id)
    }

    /// Closes an iterator of a controller. One that deletes stops where it is.
    pub(crate) fn close(&self, cntlid: u16, id: u8) -> Result<(), Status> {
        let mut table = self.lock();
        let slot = slot(&mut table.slots, cntlid, id)?;
        slot.take().ok_or(NOT_OPEN)?;
        self.note(&table);
        Ok(())
    }

    /// Reads as many records of a controller's iterator as `buffer` has room for. After the end nothing is
    /// returned, again and again.
    pub(crate) fn read(
        &self,
        (cntlid, id): (u16, u8),
        store: &KvStore,
        buffer: &mut [u8],
        scratch: &mut KvScratch,
    ) -> Result<Read, Status> {
        let mut table = self.lock();
        let Table { slots, staging } = &mut *table;
        let open = slot(slots, cntlid, id)?.as_mut().ok_or(NOT_OPEN)?;
        if open.ended {
            return Ok(Read { bytes: 0, ended: true });
        }
        let mut records = IterateWriter::new(buffer).ok_or(Status::INTERNAL_ERROR)?;
        match open.kind {
            IterateType::Key => read_keys(open, store, &mut records)?,
            IterateType::KeyValue => read_pairs(open, store, &mut records, staging, scratch)?,
            IterateType::KeyDelete => return Err(status::ITERATE_REQUEST_FAIL.with_do_not_retry()),
        }
        let bytes = if records.records() > 0 { records.finish() } else { 0 };
        Ok(Read { bytes, ended: open.ended })
    }

    /// Deletes some of the pairs of the iterators that do; true when there are more. Does nothing while
    /// somebody else is at work on an iterator.
    ///
    /// With `write_through` an iterator has ended, as log page D0h tells the host, when its deletions are on
    /// the media.
    #[inline]
    pub(crate) fn delete_some(&self, store: &KvStore, scratch: &mut KvScratch, write_through: bool) -> bool {
        self.deleting.load(Ordering::Relaxed) > 0 && self.delete_step(store, scratch, write_through)
    }

    #[cold]
    fn delete_step(&self, store: &KvStore, scratch: &mut KvScratch, write_through: bool) -> bool {
        let Ok(mut table) = self.table.try_lock() else { return true };
        let mut all = table.slots.values_mut().flatten().flatten();
        let Some(open) = all.find(|open| open.deletes()) else { return false };
        let deleted = delete_keys(open, store, scratch).and_then(|()| match write_through && open.ended {
            true => store.sync().map_err(KvError::Media),
            false => Ok(()),
        });
        match deleted {
            Ok(()) => {}
            // No space for a deletion, or the media fails: what waits here is tried again.
            Err(KvError::Full) => return false,
            Err(error) => {
                tracing::error!(?error, "an iterator cannot delete and ends");
                open.ended = true;
            }
        }
        self.note(&table);
        self.deleting.load(Ordering::Relaxed) > 0
    }

    /// Log page D0h of a controller.
    pub(crate) fn log(&self, cntlid: u16) -> IteratorLog {
        let mut log = IteratorLog::default();
        let mut table = self.lock();
        for ((id, entry), slot) in (1..).zip(&mut log.iterators).zip(table.slots.entry(cntlid).or_default()) {
            *entry = IteratorEntry { id, ..IteratorEntry::default() };
            if let Some(open) = slot {
                entry.status = 1;
                entry.kind = open.kind.number();
                entry.keyspace = open.keyspace;
                entry.prefix = open.prefix.prefix.to_be_bytes();
                entry.bitmask = open.prefix.bitmask.to_be_bytes();
                entry.is_eof = open.ended.into();
            }
        }
        log
    }

    /// Closes all iterators of a controller.
    pub(crate) fn reset(&self, cntlid: u16) {
        let mut table = self.lock();
        table.slots.remove(&cntlid);
        self.note(&table);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// Counts the iterators that have pairs to delete, under the lock.
    fn note(&self, table: &Table) {
        let deleting = table.slots.values().flatten().flatten().filter(|open| open.deletes()).count();
        self.deleting.store(deleting as u32, Ordering::Relaxed);
    }
}

/// What the vendor's commands call an error of the store.
pub(crate) fn vendor_status(error: KvError) -> Status {
    match error {
        KvError::NotFound => status::KEY_NOT_FOUND.with_do_not_retry(),
        KvError::Exists => status::IDEMPOTENT_STORE_FAIL.with_do_not_retry(),
        KvError::TooLong => status::MAXIMUM_VALUE_SIZE_EXCEEDED.with_do_not_retry(),
        KvError::Full => status::CAPACITY_EXCEEDED,
        KvError::Unrecovered => status::UNRECOVERED_ERROR,
        KvError::Media(status) => status,
    }
}

const NOT_OPEN: Status = status::ITERATE_REQUEST_NOT_PROCESSED.with_do_not_retry();

/// The place of a controller's iterator by its identifier.
fn slot(slots: &mut BTreeMap<u16, Slots>, cntlid: u16, id: u8) -> Result<&mut Option<Open>, Status> {
    let slots = slots.get_mut(&cntlid).ok_or(NOT_OPEN)?;
    usize::from(id).checked_sub(1).and_then(|index| slots.get_mut(index)).ok_or(NOT_OPEN)
}

fn read_keys(open: &mut Open, store: &KvStore, records: &mut IterateWriter<'_>) -> Result<(), Status> {
    let mut last = Vec::new();
    let mut full = false;
    let visit = |key: &[u8]| {
        full = !records.push_key(key);
        if !full {
            last.clear();
            last.extend_from_slice(key);
        }
        !full
    };
    let listed = store.list(open.listing(), visit);
    // What was read before it is returned first; the next read reports it.
    if last.is_empty() {
        listed.map_err(vendor_status)?;
    }
    open.advance(last, !full && listed.is_ok());
    Ok(())
}

impl Open {
    fn advance(&mut self, last: Vec<u8>, ended: bool) {
        if !last.is_empty() {
            self.last = last;
        }
        self.ended = ended;
    }

    /// The next keys, some of them, and whether they are the last ones.
    fn next_keys(&self, store: &KvStore) -> Result<(Vec<Vec<u8>>, bool), KvError> {
        let mut keys = Vec::new();
        let mut ended = true;
        let listed = store.list(self.listing(), |key| {
            ended = keys.len() < KEYS_PER_STEP;
            if ended {
                keys.push(key.to_vec());
            }
            ended
        });
        match listed {
            // Those that can be read come first.
            Err(_) if !keys.is_empty() => Ok((keys, false)),
            _ => listed.map(|()| (keys, ended)),
        }
    }
}

fn read_pairs(
    open: &mut Open,
    store: &KvStore,
    records: &mut IterateWriter<'_>,
    staging: &mut Option<Staging>,
    scratch: &mut KvScratch,
) -> Result<(), Status> {
    let staging = match staging {
        Some(staging) => staging,
        None => staging.insert(Staging::new()?),
    };
    loop {
        let (keys, ended) = open.next_keys(store).map_err(vendor_status)?;
        for bytes in keys {
            let key = store.key(open.keyspace, &bytes);
            let length = match staging.retrieve(store, &key, scratch) {
                Ok(length) => length,
                // Deleted since it was listed.
                Err(KvError::NotFound) => continue,
                // What was read before it is returned first; the next read reports it, and the one after that
                // goes on.
                Err(_) if records.records() > 0 => return Ok(()),
                Err(error) => {
                    open.last = bytes;
                    return Err(vendor_status(error));
                }
            };
            let Some(place) = records.push_pair(&bytes, length as usize) else { return Ok(()) };
            staging.region.read(0, place);
            open.last = bytes;
        }
        if ended {
            open.ended = true;
            return Ok(());
        }
    }
}

fn delete_keys(open: &mut Open, store: &KvStore, scratch: &mut KvScratch) -> Result<(), KvError> {
    let (keys, ended) = open.next_keys(store)?;
    for key in keys {
        store.delete(&store.key(open.keyspace, &key), scratch)?;
        open.last = key;
    }
    open.ended = ended;
    Ok(())
}

/// A page's worth of memory that values are retrieved to, as if it were the host's.
struct Staging {
    region: Region,
    host: View,
}

impl Staging {
    fn new() -> Result<Self, Status> {
        let make = || {
            let region = Region::anonymous(ITERATE_BUFFER_BYTES as usize)?;
            let space = AddressSpace::new();
            space.map(0, &region, DmaAccess::READ_WRITE)?;
            Ok(Self { region, host: space.view() })
        };
        make().map_err(|error: unvme_bus::BusError| {
            tracing::error!(%error, "no memory to read values to");
            Status::INTERNAL_ERROR
        })
    }

    /// Retrieves the beginning of a value; returns the length of all of it.
    fn retrieve(&self, store: &KvStore, key: &Key<'_>, scratch: &mut KvScratch) -> Result<u32, KvError> {
        let bytes = self.region.len();
        let place =
            self.host.find(0, bytes, Direction::Write).ok_or(KvError::Media(Status::INTERNAL_ERROR))?;
        let target = HostData { host: &self.host, pieces: &[place], bytes: bytes as u32 };
        store.retrieve(key, Part::default(), target, scratch)
    }
}
