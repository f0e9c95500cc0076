//! Iterators on a device that has none: by List.
//!
//! List returns keys from a key on, in an order that is the device's own affair. So all keys are listed and
//! those that match are returned; a pair that is stored or deleted meanwhile may be returned or not. The
//! iterators live and die with the session. Reads of one iterator wait for each other.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use unvme::Op;
use unvme::worker::{Data, Done};
use unvme_bus::lock;
use unvme_driver::{KvKey, KvNamespace};
use unvme_spec::kv::ListReader;
use unvme_spec::samsung_kv::{IterateType, IterateWriter, Prefix, status};
use unvme_spec::samsung_log::IteratorEntry;

use super::{ITERATE_BYTES, IterateRead, Member, OpError, QueueChoice, QueueKind};
use unvme::scan::{Order, Scan, Wanted};

/// Iterators of a device.
const ITERATORS: usize = 16;

/// The iterators of a device that has none, by identifier less one.
#[derive(Default)]
pub(super) struct Listed([Mutex<Option<Listing>>; ITERATORS]);

/// An open iterator.
struct Listing {
    prefix: Prefix,
    kind: IterateType,
    scan: Scan,
    /// Keys that match and have not been returned.
    waiting: VecDeque<Vec<u8>>,
}

impl Listing {
    fn new(pairs: &KvNamespace, prefix: Prefix, kind: IterateType) -> Self {
        // The bytes of which all bits count.
        let whole = prefix.bitmask.leading_ones() as usize / 8;
        let wanted = Wanted { prefix: prefix.prefix.to_be_bytes()[..whole].to_vec(), ..Wanted::default() };
        let scan = Scan::new(wanted, Order::Unknown, pairs.standard_key_bytes_max());
        Self { prefix, kind, scan, waiting: VecDeque::new() }
    }

    /// Whether nothing is left.
    fn has_ended(&self) -> bool {
        self.waiting.is_empty() && self.scan.start().is_none()
    }
}

impl Listed {
    /// An iterator that is open.
    fn get(&self, iterator: u8) -> Result<MutexGuard<'_, Option<Listing>>, OpError> {
        let place = usize::from(iterator).checked_sub(1).and_then(|index| self.0.get(index));
        let listing = place.map(lock).filter(|listing| listing.is_some());
        listing.ok_or(OpError::Status(status::ITERATE_REQUEST_NOT_PROCESSED))
    }

    fn is_open(&self, prefix: Prefix) -> bool {
        self.0.iter().any(|place| lock(place).as_ref().is_some_and(|open| open.prefix == prefix))
    }
}

impl Member {
    /// [`Member::iterate_open`]. An iterator that deletes has deleted everything when this returns.
    pub(super) fn open_listing(
        &self,
        queue: QueueChoice,
        kind: IterateType,
        prefix: Prefix,
    ) -> Result<u8, OpError> {
        let pairs = self.pairs()?;
        if kind == IterateType::KeyValue {
            return Err(OpError::Unsupported("iterating over values takes Samsung's vendor commands".into()));
        }
        if !prefix.is_contiguous() {
            let reason = "an iterator's bitmask is ones from the most significant bit on";
            return Err(OpError::Argument(reason.into()));
        }
        if self.listed.is_open(prefix) {
            return Err(OpError::Status(status::ITERATE_ALREADY_OPEN));
        }
        let mut listing = Listing::new(pairs, prefix, kind);
        let free = self.listed.0.iter().zip(1..).find_map(|(place, iterator)| {
            let mut place = lock(place);
            place.is_none().then(|| {
                *place = Some(Listing::new(pairs, prefix, kind));
                iterator
            })
        });
        let iterator = free.ok_or(OpError::Status(status::ITERATE_NO_HANDLE))?;
        if kind == IterateType::KeyDelete {
            let deleted = self.delete_listed(queue, &mut listing);
            match &deleted {
                Ok(()) => *lock(&self.listed.0[usize::from(iterator) - 1]) = Some(listing),
                Err(_) => *lock(&self.listed.0[usize::from(iterator) - 1]) = None,
            }
            deleted?;
        }
        Ok(iterator)
    }

    fn delete_listed(&self, queue: QueueChoice, listing: &mut Listing) -> Result<(), OpError> {
        while !listing.has_ended() {
            self.next_page(queue, listing)?;
            for key in std::mem::take(&mut listing.waiting) {
                let delete = Op::Delete { key: KvKey::new(&key), must_exist: false };
                self.call(queue, delete, Data::None)?;
            }
        }
        Ok(())
    }

    pub(super) fn close_listing(&self, iterator: u8) -> Result<(), OpError> {
        *self.listed.get(iterator)? = None;
        Ok(())
    }

    /// [`Member::iterate_read`].
    pub(super) fn read_listing(
        &self,
        queue: QueueChoice,
        iterator: u8,
        out: &mut [u8; ITERATE_BYTES],
    ) -> Result<IterateRead, OpError> {
        let mut place = self.listed.get(iterator)?;
        let Some(listing) = place.as_mut() else { return Ok(IterateRead::default()) };
        if listing.kind == IterateType::KeyDelete {
            return Err(OpError::Status(status::ITERATE_REQUEST_FAIL));
        }
        let Some(mut records) = IterateWriter::new(out) else { return Ok(IterateRead::default()) };
        loop {
            while let Some(key) = listing.waiting.pop_front() {
                if !records.push_key(&key) {
                    listing.waiting.push_front(key);
                    return Ok(IterateRead { bytes: records.finish(), end: false });
                }
            }
            if listing.has_ended() {
                let bytes = if records.records() > 0 { records.finish() } else { 0 };
                return Ok(IterateRead { bytes, end: true });
            }
            self.next_page(queue, listing)?;
        }
    }

    /// [`Member::iterate_read_async`]: the read is done, and its handler called, when this returns.
    pub(super) fn read_listing_at_once(
        &self,
        queue: QueueChoice,
        iterator: u8,
        token: u64,
    ) -> Result<(), OpError> {
        self.check_queue(queue, QueueKind::Async)?;
        let mut buf = self.memory.alloc(ITERATE_BYTES)?;
        let mut keys = Box::new([0; ITERATE_BYTES]);
        let read = self.read_listing(QueueChoice::Auto, iterator, &mut keys)?;
        buf.write(0, &keys[..read.bytes]);
        let mut done = Done::answered(token, read.bytes as u64, buf, read.bytes, 0);
        if read.end {
            done.status = status::ITERATE_END;
        }
        self.finish_at_once(queue, done)
    }

    /// Lists further keys, if there are any.
    fn next_page(&self, queue: QueueChoice, listing: &mut Listing) -> Result<(), OpError> {
        let Some(start) = listing.scan.start() else { return Ok(()) };
        let outcome = self.call(queue, Op::List { start, bytes: ITERATE_BYTES }, Data::None)?;
        let page = outcome.data.map(|buf| buf.to_vec()).unwrap_or_default();
        let prefix = listing.prefix;
        let keys = listing.scan.take(ListReader::new(&page));
        listing.waiting.extend(keys.into_iter().filter(|key| prefix.matches(key)));
        Ok(())
    }

    /// [`Member::iterate_info`].
    pub(super) fn listings(&self) -> [IteratorEntry; ITERATORS] {
        let mut entries = [IteratorEntry::default(); ITERATORS];
        for ((entry, place), id) in entries.iter_mut().zip(&self.listed.0).zip(1..) {
            entry.id = id;
            if let Some(listing) = lock(place).as_ref() {
                entry.status = 1;
                entry.kind = listing.kind.number();
                entry.prefix = listing.prefix.prefix.to_be_bytes();
                entry.bitmask = listing.prefix.bitmask.to_be_bytes();
                entry.is_eof = listing.has_ended().into();
            }
        }
        entries
    }
}
