//! A device's buffers, and what the read cache has of it.
//!
//! The cache is told of every command that may change pairs, before it is submitted and after it has ended;
//! the rules are those of [`crate::cache`]. A key is kept with an asynchronous operation for that, in one
//! allocation, and only with the cache on.

use std::sync::{Arc, Mutex};

use unvme::worker::Done;
use unvme_bus::lock;
use unvme_driver::{DmaBuf, KvKey, KvNamespace};
use unvme_spec::samsung_kv::{IterateType, KEY_BYTES_MAX, Prefix};

use super::{OpError, Returned};
use crate::cache::{EntryId, Fetched, FillTicket, Hit, ReadCache, Scope, SweepTicket, Value, WriteTicket};
use crate::slab::{SLAB_BUF_BYTES_MAX, Slab, SlabBuf, SlabError};

/// Iterators of a device.
const ITERATORS: usize = 16;

/// A device's part of the session's memory.
pub(super) struct Memory {
    cache: Arc<ReadCache>,
    slab: Slab,
    /// The device, for the cache.
    device: usize,
    /// Whether values are cached.
    caches: bool,
    /// Iterators that delete, by identifier less one.
    sweeps: Mutex<[Option<SweepTicket>; ITERATORS]>,
}

/// What an operation on one pair holds against the cache.
pub(super) enum Claim<'a> {
    /// The cache is off.
    None,
    /// A retrieve that the cache had no answer to.
    Fill(FillTicket, KvKey<'a>),
    /// Something that may change the pair.
    Write(WriteTicket, KvKey<'a>),
}

/// A [`Claim`] without a borrowed key, for an asynchronous operation; `None` with the cache off.
pub(super) type HeldClaim = Option<Box<Held>>;

/// See [`HeldClaim`].
pub(super) struct Held {
    ticket: HeldTicket,
    keyspace: u8,
    key_bytes: u8,
    key: [u8; KEY_BYTES_MAX],
}

enum HeldTicket {
    Fill(FillTicket),
    Write(WriteTicket),
}

impl Claim<'_> {
    /// Keeps the claim without the caller's key. Every key here has been checked by a command: it fits.
    pub(super) fn hold(self) -> HeldClaim {
        let (ticket, key) = match self {
            Self::None => return None,
            Self::Fill(ticket, key) => (HeldTicket::Fill(ticket), key),
            Self::Write(ticket, key) => (HeldTicket::Write(ticket), key),
        };
        let mut bytes = [0; KEY_BYTES_MAX];
        for (to, from) in bytes.iter_mut().zip(key.bytes) {
            *to = *from;
        }
        let key_bytes = key.bytes.len().min(KEY_BYTES_MAX) as u8;
        Some(Box::new(Held { ticket, keyspace: key.keyspace, key_bytes, key: bytes }))
    }
}

impl Memory {
    pub(super) fn new(cache: Arc<ReadCache>, slab: Slab, device: usize, caches: bool) -> Self {
        Self { cache, slab, device, caches, sweeps: Mutex::default() }
    }

    /// Whether values are cached.
    #[inline]
    pub(super) fn caches(&self) -> bool {
        self.caches
    }

    /// A buffer of `bytes` that holds anything. When there is none left, the cache gives some back. One that
    /// is larger than those of the slab is made for the command, and not cached.
    #[inline]
    pub(super) fn alloc(&self, bytes: usize) -> Result<DmaBuf, OpError> {
        if bytes > SLAB_BUF_BYTES_MAX {
            return self.slab.alloc_large(bytes).map_err(refused);
        }
        self.cache.alloc(self.device, bytes).map(SlabBuf::into_dma).map_err(refused)
    }

    /// A buffer that holds `data`.
    #[inline]
    pub(super) fn filled(&self, data: &[u8]) -> Result<DmaBuf, OpError> {
        let mut buf = self.alloc(data.len())?;
        buf.write(0, data);
        Ok(buf)
    }

    fn id<'k>(&self, key: KvKey<'k>) -> EntryId<'k> {
        EntryId { device: self.device, keyspace: key.keyspace, key: key.bytes }
    }

    /// What the cache has of a value from `offset` on, copied to `out`.
    #[inline]
    pub(super) fn lookup(&self, key: KvKey<'_>, offset: u32, out: &mut [u8]) -> Option<Hit> {
        if !self.caches {
            return None;
        }
        self.cache.lookup(&self.id(key), offset.into(), out)
    }

    /// As [`Memory::lookup`], into a buffer of the device.
    #[inline]
    pub(super) fn lookup_into(&self, key: KvKey<'_>, offset: u32, out: &mut DmaBuf) -> Option<Hit> {
        if !self.caches {
            return None;
        }
        self.cache.lookup(&self.id(key), offset.into(), out)
    }

    /// Before a retrieve is submitted.
    #[inline]
    pub(super) fn claim_fill<'k>(&self, key: KvKey<'k>) -> Claim<'k> {
        if !self.caches {
            return Claim::None;
        }
        Claim::Fill(self.cache.fill_begin(&self.id(key)), key)
    }

    /// Before a command that may change a pair is submitted.
    #[inline]
    pub(super) fn claim_write<'k>(&self, key: KvKey<'k>) -> Claim<'k> {
        if !self.caches {
            return Claim::None;
        }
        Claim::Write(self.cache.write_begin(&self.id(key)), key)
    }

    /// After the command of a claim has ended without success, or was never submitted.
    #[inline]
    pub(super) fn end_without(&self, claim: Claim<'_>) {
        if let Claim::Write(ticket, key) = claim {
            self.cache.write_end(ticket, &self.id(key), None);
        }
    }

    /// After a store has succeeded, whose value is the first `bytes` of `buf`: nobody needs the buffer any
    /// more.
    #[inline]
    pub(super) fn end_store(&self, claim: Claim<'_>, buf: Option<DmaBuf>, bytes: usize) {
        if let Claim::Write(ticket, key) = claim {
            let buf = buf.and_then(|buf| self.slab.adopt(buf).ok());
            self.cache.write_end(ticket, &self.id(key), buf.map(|buf| Value::Buffer { buf, bytes }));
        }
    }

    /// After a retrieve has succeeded: `buf` has what the device sent. Nobody needs it any more.
    #[inline]
    pub(super) fn end_fill(&self, claim: Claim<'_>, offset: u32, result: u64, buf: Option<DmaBuf>) {
        if let Claim::Fill(ticket, key) = claim
            && let Some(Ok(buf)) = buf.map(|buf| self.slab.adopt(buf))
        {
            let value_bytes = u64::from(KvNamespace::value_bytes(result));
            let bytes = buf.len().min(value_bytes as usize);
            let fetched = Fetched { offset: offset.into(), value_bytes, data: Value::Buffer { buf, bytes } };
            self.cache.fill_end(ticket, &self.id(key), fetched);
        }
    }

    /// A copy of the first `bytes` bytes of a buffer for the cache, if there is room without dropping
    /// anything for it.
    pub(super) fn copy(&self, buf: &DmaBuf, bytes: usize) -> Option<DmaBuf> {
        let copy = self.slab.alloc(bytes).ok()?;
        buf.region().copy_to(0, copy.region(), 0, bytes.min(buf.len()));
        Some(copy.into_dma())
    }

    /// After the command of an asynchronous operation has ended; `stored` is the number of bytes of a value
    /// that it has stored from its buffer, if that is what it did. The handler still gets the buffer of a
    /// retrieve: the cache gets a copy.
    pub(super) fn end_held(&self, held: HeldClaim, done: &mut Done, offset: u32, stored: Option<usize>) {
        let Some(held) = held else { return };
        let Held { ticket, keyspace, key_bytes, key } = *held;
        let key = KvKey { keyspace, bytes: &key[..usize::from(key_bytes)] };
        let succeeded = done.status.is_success();
        match (ticket, stored) {
            (HeldTicket::Write(ticket), Some(bytes)) if succeeded => {
                self.end_store(Claim::Write(ticket, key), done.buf.take(), bytes);
            }
            (HeldTicket::Write(ticket), _) => self.end_without(Claim::Write(ticket, key)),
            (HeldTicket::Fill(ticket), _) if succeeded => {
                let value_bytes = KvNamespace::value_bytes(done.result) as usize;
                let Some(buf) = done.buf.as_ref().filter(|buf| offset == 0 && value_bytes <= buf.len())
                else {
                    return;
                };
                let copy = self.copy(buf, value_bytes);
                self.end_fill(Claim::Fill(ticket, key), offset, done.result, copy);
            }
            (HeldTicket::Fill(_), _) => {}
        }
    }

    /// After the command of an asynchronous operation was refused.
    pub(super) fn end_unsent(&self, held: HeldClaim) {
        if let Some(held) = held
            && let Held { ticket: HeldTicket::Write(ticket), keyspace, key_bytes, key } = *held
        {
            let key = KvKey { keyspace, bytes: &key[..usize::from(key_bytes)] };
            self.end_without(Claim::Write(ticket, key));
        }
    }

    /// Runs something that may change any pair of the device.
    pub(super) fn sweeping<T>(&self, command: impl FnOnce() -> T) -> T {
        if !self.caches {
            return command();
        }
        let ticket = self.cache.sweep_begin(self.device, Scope::Device);
        let result = command();
        self.cache.sweep_end(ticket);
        result
    }

    /// Runs something that, when it succeeds, opens an iterator that may delete any pair until it is closed.
    pub(super) fn sweeping_on(
        &self,
        command: impl FnOnce() -> Result<Done, Returned>,
    ) -> Result<Done, Returned> {
        if !self.caches {
            return command();
        }
        let ticket = self.cache.sweep_begin(self.device, Scope::Device);
        let answer = command();
        match &answer {
            Ok(done) if done.status.is_success() => {
                self.keep_sweep(done.result as u8, Some(ticket));
            }
            _ => self.cache.sweep_end(ticket),
        }
        answer
    }

    /// Opens an iterator, which may begin to delete what it matches.
    pub(super) fn open_iterator(
        &self,
        keyspace: u8,
        kind: IterateType,
        prefix: Prefix,
        open: impl FnOnce() -> Result<u8, OpError>,
    ) -> Result<u8, OpError> {
        if !self.caches || kind != IterateType::KeyDelete {
            return open();
        }
        let scope = Scope::Matching { keyspace, prefix: prefix.prefix, bitmask: prefix.bitmask };
        let ticket = self.cache.sweep_begin(self.device, scope);
        let opened = open();
        match opened {
            Ok(iterator) => self.keep_sweep(iterator, Some(ticket)),
            Err(_) => self.cache.sweep_end(ticket),
        }
        opened
    }

    /// After an iterator was closed: it deletes nothing any more.
    pub(super) fn closed_iterator(&self, iterator: u8) {
        if self.caches {
            self.keep_sweep(iterator, None);
        }
    }

    fn keep_sweep(&self, iterator: u8, ticket: Option<SweepTicket>) {
        let mut sweeps = lock(&self.sweeps);
        // A device that answers with an identifier there is not: its ticket is lost, and its pairs are not
        // cached.
        let Some(place) = usize::from(iterator).checked_sub(1).and_then(|index| sweeps.get_mut(index)) else {
            return;
        };
        let before = std::mem::replace(place, ticket);
        drop(sweeps);
        if let Some(ticket) = before {
            self.cache.sweep_end(ticket);
        }
    }
}

#[cold]
fn refused(error: SlabError) -> OpError {
    match error {
        SlabError::Exhausted { bytes, .. } => OpError::SlabExhausted { bytes },
        SlabError::TooLarge { .. } | SlabError::BudgetTooSmall { .. } => OpError::Argument(error.to_string()),
        SlabError::System(e) => OpError::Driver(unvme_driver::Error::Bus(e)),
    }
}
