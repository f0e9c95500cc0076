//! The read cache: complete values, so that a retrieve need not go to the device.
//!
//! With the cache on, every answer is bit for bit what the device would say. A hit needs the same pair
//! (device, keyspace and key), a complete value, and an offset within it; it copies what fits the caller's
//! buffer and says how long the value is. Everything else goes to the device: unknown keys, offsets at or
//! beyond the end, keys that no device takes. Values are found by a radix tree, behind a table of hints, and
//! dropped in the order of their last use, within a budget for each device. Shards, chosen by hash, have
//! locks and an order of their own, so that threads seldom meet; a small budget has one shard.
//!
//! # When a value may come in
//!
//! Threads and commands in flight overtake each other: a retrieve reads the old value, a store of the new one
//! begins and ends, and only then does the retrieve get round to filling the cache. So operations that go to
//! the device take a ticket *before* their command is submitted, and hand it in *after* its completion and
//! before their caller learns of it.
//!
//! Each shard has versions, which keys share by hash. A write (store, delete, append: anything that may
//! change a pair) counts its version on when it begins and when it ends, and is counted as under way in
//! between. Then:
//!
//! 1. When a write begins, the pair is dropped. While it is under way retrieves go to the device, which alone
//!    knows whether the old or the new value holds: a hit could show the old one after another retrieve had
//!    seen the new.
//! 2. A retrieve fills the cache only if no write was under way when it began, and the version has not
//!    changed since: then no write overlapped it, and what it read is what the device has.
//! 3. A store leaves its value in the cache only if it succeeded, no write was under way when it began, and
//!    the version has not changed since: then it was the only one from beginning to end. The order in which
//!    the device carried out two stores that overlap is not known here, so neither stays, and retrieves that
//!    overlap either do not fill (rule 2).
//!
//! Every entry was therefore the device's value at a moment after which no write has begun, since rule 1
//! would have dropped it; and checking the version and putting the value in is one step under the shard's
//! lock. A hit is at least as new as the last store acknowledged before the lookup began, because that store
//! dropped the pair when it began.
//!
//! A format and an iterator that deletes are *sweeps*: they change pairs nobody names. When one begins, the
//! pairs in its scope are dropped shard by shard, each together with noting the sweep, so that nothing in
//! scope comes in until it ends; its beginning and its end also count as writes of every pair for tickets
//! handed out before.
//!
//! Versions shared by many keys, tickets that are lost, statuses that are not understood: all of these only
//! make the cache forget more. What it cannot see is somebody else who writes the same device: whoever shares
//! one gives it a budget of 0. Those that a session opens by name are its own. A slot is locked, and its
//! server has one client at a time.

mod device;
mod entries;
mod gate;
mod key;
mod ticket;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use unvme_bus::{DmaBuf, Region};

use crate::slab::{Slab, SlabBuf, SlabError};
use device::DeviceCache;
use key::TreeKey;
pub use key::{EntryId, Scope};
use ticket::Pass;
pub use ticket::{FillTicket, SweepTicket, WriteTicket};

/// Cache lines of a value that are asked for before anything else is done with it.
const PREFETCH_LINES: usize = 8;

/// A device and the memory for its cached values.
#[derive(Clone, Debug)]
pub struct CacheDevice {
    /// Where buffers come from.
    pub slab: Slab,
    /// Bytes of cached values, each with its key and 192 bytes beside; 0 for no cache.
    pub budget_bytes: usize,
}

/// Where a hit is copied to: the first bytes of it.
#[derive(Debug)]
pub enum Target<'a> {
    /// The caller's memory.
    Slice(&'a mut [u8]),
    /// A buffer of a device.
    Buffer(&'a mut DmaBuf),
}

impl<'a> From<&'a mut [u8]> for Target<'a> {
    fn from(slice: &'a mut [u8]) -> Self {
        Self::Slice(slice)
    }
}

impl<'a> From<&'a mut DmaBuf> for Target<'a> {
    fn from(buf: &'a mut DmaBuf) -> Self {
        Self::Buffer(buf)
    }
}

/// A value that is offered to the cache.
#[derive(Debug)]
pub enum Value<'a> {
    /// The first `bytes` of a buffer of the device's slab. It stays in the cache, uncopied when it is of the
    /// right size.
    Buffer {
        /// The buffer.
        buf: SlabBuf,
        /// Bytes of it that are the value.
        bytes: usize,
    },
    /// Bytes to be copied.
    Bytes(&'a [u8]),
}

impl Value<'_> {
    fn bytes(&self) -> usize {
        match self {
            Self::Buffer { bytes, .. } => *bytes,
            Self::Bytes(data) => data.len(),
        }
    }

    fn is_whole(&self) -> bool {
        match self {
            Self::Buffer { buf, bytes } => *bytes <= buf.len(),
            Self::Bytes(_) => true,
        }
    }
}

/// What the device answered a retrieve.
#[derive(Debug)]
pub struct Fetched<'a> {
    /// The offset it was asked for.
    pub offset: u64,
    /// Size of the whole value in bytes, from offset 0 to its end.
    pub value_bytes: u64,
    /// What was transferred.
    pub data: Value<'a>,
}

/// What a lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Size of the whole value in bytes, from offset 0 to its end.
    pub value_bytes: usize,
    /// Bytes copied from the offset on: all that are left of the value, or as many as there was room for.
    pub copied: usize,
}

/// What a cache has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups that were answered.
    pub hits: u64,
    /// Lookups that were not.
    pub misses: u64,
    /// Values that are cached.
    pub entries: usize,
    /// Bytes they take of the budget.
    pub bytes: usize,
}

/// Complete values of some devices.
pub struct ReadCache {
    devices: Box<[DeviceCache]>,
    sweeps: AtomicU64,
}

impl ReadCache {
    /// A cache for these devices, which are then called by their places in the list.
    pub fn new(devices: impl IntoIterator<Item = CacheDevice>) -> Self {
        Self { devices: devices.into_iter().map(DeviceCache::new).collect(), sweeps: AtomicU64::new(0) }
    }

    /// Copies a value from `offset` on, if it is there; as much of it as the target holds.
    #[inline]
    pub fn lookup<'t>(&self, id: &EntryId<'_>, offset: u64, target: impl Into<Target<'t>>) -> Option<Hit> {
        let device = self.devices.get(id.device)?;
        let key = TreeKey::new(id)?;
        let mut state = device.shard(key.hash())?.lock();
        // From the end on only the device knows what to say.
        let is_within = |(_, bytes): &(_, usize)| offset < *bytes as u64 || offset == 0;
        let Some((leaf, bytes)) = state.entries.find(&key).filter(is_within) else {
            state.misses += 1;
            return None;
        };
        state.hits += 1;
        let offset = offset as usize;
        if let Some(region) = state.entries.get(leaf).and_then(|entry| entry.region()) {
            region.prefetch(offset, PREFETCH_LINES);
        }
        state.entries.touch(leaf);
        let region = state.entries.get(leaf).and_then(|entry| entry.region());
        // The lock is held until the bytes are out: nobody can give the buffer to somebody else meanwhile.
        let copied = region.map_or(0, |region| copy_out(region, offset, bytes - offset, target.into()));
        Some(Hit { value_bytes: bytes, copied })
    }

    /// Before a retrieve is submitted to the device.
    pub fn fill_begin(&self, id: &EntryId<'_>) -> FillTicket {
        FillTicket(self.pass(id, |state, key| state.gate.fill_begin(key.hash(), key.as_slice())))
    }

    /// After a retrieve has succeeded: keeps the value if it is complete and certain to be the device's.
    pub fn fill_end(&self, ticket: FillTicket, id: &EntryId<'_>, fetched: Fetched<'_>) {
        let is_complete = fetched.offset == 0
            && fetched.value_bytes == fetched.data.bytes() as u64
            && fetched.data.is_whole();
        let Some((pass, device, key)) = self.redeem(ticket.0, id) else { return };
        let Some(shard) = device.shard(key.hash()) else { return };
        if !is_complete || !shard.lock().gate.is_unchanged(key.hash(), &pass.seen) {
            return;
        }
        let Some(entry) = device.prepare(&key, fetched.data) else { return };
        let mut state = shard.lock();
        if state.gate.is_unchanged(key.hash(), &pass.seen) {
            let freed = state.entries.insert(&key, entry);
            device.release(freed);
        } else {
            device.withdraw(&key, &entry);
        }
    }

    /// Before a command that may change one pair is submitted to the device. Drops the pair.
    pub fn write_begin(&self, id: &EntryId<'_>) -> WriteTicket {
        let device = self.devices.get(id.device);
        WriteTicket(self.pass(id, |state, key| {
            let freed = state.entries.remove(key);
            if let Some(device) = device {
                device.release(freed);
            }
            state.gate.write_begin(key.hash(), key.as_slice())
        }))
    }

    /// After that command has ended, and before its caller is told. `stored` is the complete value that the
    /// device now has, when the command was a store of one and succeeded; nothing in all other cases.
    pub fn write_end(&self, ticket: WriteTicket, id: &EntryId<'_>, stored: Option<Value<'_>>) {
        let Some(pass) = ticket.0 else { return };
        let Some(device) = self.devices.get(pass.device) else { return };
        let Some(shard) = device.shard(pass.hash) else { return };
        // Prepared while the write still counts as under way: nothing comes in meanwhile.
        let key = TreeKey::new(id).filter(|key| key.hash() == pass.hash && id.device == pass.device);
        let entry = key.as_ref().zip(stored.filter(Value::is_whole)).and_then(|(key, value)| {
            let was_alone = shard.lock().gate.is_unchanged(pass.hash, &pass.seen);
            was_alone.then(|| device.prepare(key, value)).flatten()
        });
        let mut state = shard.lock();
        let was_alone = state.gate.write_end(pass.hash, &pass.seen);
        if let Some((key, entry)) = key.as_ref().zip(entry) {
            if was_alone {
                let freed = state.entries.insert(key, entry);
                device.release(freed);
            } else {
                device.withdraw(key, &entry);
            }
        }
    }

    /// Before something is started at a device that may change the pairs of `scope`: a format, an iterator
    /// that deletes. Drops them; they are not cached until the end.
    pub fn sweep_begin(&self, device: usize, scope: Scope) -> SweepTicket {
        // Relaxed: only the number counts.
        let id = self.sweeps.fetch_add(1, Ordering::Relaxed);
        if let Some(device) = self.devices.get(device) {
            for shard in device.shards() {
                let mut state = shard.lock();
                state.gate.sweep_begin(id, scope);
                let freed = state.entries.remove_all(&scope.common_prefix(), |key, _| scope.covers(key));
                device.release(freed);
            }
        }
        SweepTicket { device, id, scope }
    }

    /// After it has ended, whether it succeeded or not.
    pub fn sweep_end(&self, ticket: SweepTicket) {
        let Some(device) = self.devices.get(ticket.device) else { return };
        tracing::trace!(device = ticket.device, scope = ?ticket.scope, "end of a sweep");
        device.shards().iter().for_each(|shard| shard.lock().gate.sweep_end(ticket.id));
    }

    /// Drops all pairs of a device, after something has changed them all: between its end and telling
    /// anybody.
    pub fn forget_device(&self, device: usize) {
        self.sweep_end(self.sweep_begin(device, Scope::Device));
    }

    /// Drops one pair.
    pub fn remove(&self, id: &EntryId<'_>) {
        let ticket = self.write_begin(id);
        self.write_end(ticket, id, None);
    }

    /// A buffer of a device's slab, as [`Slab::alloc`]; when there is none left, values are dropped to make
    /// room.
    ///
    /// # Errors
    /// As [`Slab::alloc`], with all memory in use by commands.
    ///
    /// # Panics
    /// When there is no such device.
    #[inline]
    pub fn alloc(&self, device: usize, bytes: usize) -> Result<SlabBuf, SlabError> {
        self.devices[device].alloc(bytes)
    }

    /// Drops values of a device, those used longest ago first, until `bytes` are back in its slab or nothing
    /// is left. Returns how many bytes are.
    pub fn evict(&self, device: usize, bytes: usize) -> usize {
        self.devices.get(device).map_or(0, |device| device.evict(bytes))
    }

    /// What the cache has done so far, of all devices.
    pub fn stats(&self) -> CacheStats {
        let mut stats = CacheStats::default();
        for device in &self.devices {
            stats.bytes += device.used_bytes();
            for shard in device.shards() {
                let state = shard.lock();
                stats.hits += state.hits;
                stats.misses += state.misses;
                stats.entries += state.entries.len();
            }
        }
        stats
    }

    fn pass(
        &self,
        id: &EntryId<'_>,
        look: impl FnOnce(&mut device::State, &TreeKey) -> gate::Seen,
    ) -> Option<Pass> {
        let key = TreeKey::new(id)?;
        let shard = self.devices.get(id.device)?.shard(key.hash())?;
        let seen = look(&mut shard.lock(), &key);
        Some(Pass { device: id.device, hash: key.hash(), seen })
    }

    /// The device and key of a ticket, which must have been given for this pair.
    fn redeem(&self, pass: Option<Pass>, id: &EntryId<'_>) -> Option<(Pass, &DeviceCache, TreeKey)> {
        let pass = pass?;
        let key = TreeKey::new(id).filter(|key| key.hash() == pass.hash && id.device == pass.device)?;
        Some((pass, self.devices.get(id.device)?, key))
    }
}

#[inline]
fn copy_out(value: &Region, offset: usize, left: usize, target: Target<'_>) -> usize {
    match target {
        Target::Slice(out) => {
            let bytes = left.min(out.len());
            value.read(offset, &mut out[..bytes]);
            bytes
        }
        Target::Buffer(out) => {
            let bytes = left.min(out.len());
            value.copy_to(offset, out.region(), 0, bytes);
            bytes
        }
    }
}

impl fmt::Debug for ReadCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadCache")
            .field("devices", &self.devices.len())
            .field("stats", &self.stats())
            .finish()
    }
}
