//! The store against models of what it must do.

mod crash;
mod damage;
#[path = "../../../tests/host/disk.rs"]
mod disk;
mod exhaustive;
mod format;
mod full;
mod hostile;
mod killed;
mod model;
mod parts;
mod programs;
mod saved;
mod threads;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use unvme_bus::space::{Direction, Place, View};
use unvme_bus::{AddressSpace, DmaAccess, Region, random};

use super::{HostData, KvError, KvScratch, KvStore, Listing, Part, StorePolicy};
use crate::media::Media;
use crate::store::{CHUNK_BYTES, MemoryStore, NOWHERE, Store};
use crate::{FileStore, SsdError};
use disk::{Disk, DiskStore};

/// Bytes of host memory: enough for the largest value tested.
const HOST_BYTES: usize = 8 << 20;

/// Numbers that are the same for the same seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(random::STEP);
        random::mix(self.0)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(super) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }

    /// Bytes that compress to a little more than a half.
    pub(super) fn half(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = self.bytes(count);
        bytes.chunks_mut(1024).for_each(|some| some.iter_mut().skip(512).for_each(|byte| *byte = 7));
        bytes
    }
}

/// The seed of a test; printed when the test fails.
pub(super) struct Seed {
    test: &'static str,
    pub(super) value: u64,
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "{}: UNVME_TEST_SEED={}", self.test, self.value);
        }
    }
}

/// A seed from the environment, or a new one.
pub(super) fn seed(test: &'static str) -> Seed {
    let value = std::env::var("UNVME_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    Seed { test, value: value.unwrap_or_else(random::number) }
}

/// A store and a queue's side of it: host memory and scratch.
pub(super) struct Pairs {
    pub(super) store: Arc<KvStore>,
    host: Region,
    view: View,
    scratch: KvScratch,
    cuts: Random,
}

pub(super) fn chunks_of(media: &Media) -> Arc<[u32]> {
    (0..media.chunks() as u32).collect()
}

pub(super) fn create(store: Box<dyn Store>) -> Arc<KvStore> {
    let media = Arc::new(Media::new(store).expect("media"));
    let chunks = chunks_of(&media);
    Arc::new(KvStore::create(media, chunks).expect("a store"))
}

pub(super) fn try_open(store: Box<dyn Store>) -> Result<Arc<KvStore>, SsdError> {
    let media = Arc::new(Media::new(store)?);
    let chunks = chunks_of(&media);
    KvStore::open(media, chunks).map(Arc::new)
}

pub(super) fn open(store: Box<dyn Store>) -> Arc<KvStore> {
    try_open(store).expect("a store")
}

pub(super) fn memory(bytes: u64) -> Box<dyn Store> {
    Box::new(MemoryStore::new(bytes).expect("memory"))
}

pub(super) fn folder(path: &std::path::Path, bytes: u64) -> Box<dyn Store> {
    Box::new(FileStore::open(path, bytes).expect("a file"))
}

impl Pairs {
    pub(super) fn new(store: Arc<KvStore>, lane: u16) -> Self {
        Self::with_host(store, lane, HOST_BYTES)
    }

    pub(super) fn with_host(store: Arc<KvStore>, lane: u16, host_bytes: usize) -> Self {
        let host = Region::anonymous(host_bytes).expect("memory");
        let space = AddressSpace::new();
        space.map(0, &host, DmaAccess { read: true, write: true }).expect("a mapping");
        let view = space.view();
        Self { store, host, view, scratch: KvScratch::new(lane), cuts: Random(u64::from(lane)) }
    }

    /// Pieces of host memory from its start, cut at random places.
    fn pieces(&mut self, bytes: usize) -> Vec<Place> {
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < bytes {
            let cut = if self.cuts.below(2) == 0 { bytes } else { 1 + self.cuts.below(bytes) };
            let place = self.view.find(at as u64, cut.min(bytes - at), Direction::Write).expect("mapped");
            pieces.push(place);
            at += place.bytes;
        }
        pieces
    }

    pub(super) fn store_with(
        &mut self,
        key: &[u8],
        value: &[u8],
        policy: StorePolicy,
    ) -> Result<(), KvError> {
        self.host.write(0, value);
        let pieces = self.pieces(value.len());
        let data = HostData { host: &self.view, pieces: &pieces, bytes: value.len() as u32 };
        self.store.store(&self.store.key(0, key), data, policy, &mut self.scratch)
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), KvError> {
        self.store_with(key, value, StorePolicy::default())
    }

    /// Stores compressed, if that saves anything.
    pub(super) fn put_packed(&mut self, key: &[u8], value: &[u8]) -> Result<(), KvError> {
        self.store_with(key, value, StorePolicy { compress: true, ..StorePolicy::default() })
    }

    pub(super) fn append(&mut self, key: &[u8], value: &[u8]) -> Result<u32, KvError> {
        self.host.write(0, value);
        let pieces = self.pieces(value.len());
        let data = HostData { host: &self.view, pieces: &pieces, bytes: value.len() as u32 };
        self.store.append(&self.store.key(0, key), data, &mut self.scratch)
    }

    /// `bytes` of a value from `offset`, as many as there are, and the length of the whole.
    pub(super) fn part(
        &mut self,
        key: &[u8],
        offset: u32,
        bytes: usize,
        raw: bool,
    ) -> Result<(Vec<u8>, u32), KvError> {
        let pieces = self.pieces(bytes);
        let data = HostData { host: &self.view, pieces: &pieces, bytes: bytes as u32 };
        let part = Part { offset, raw, next_read: NOWHERE };
        let length = self.store.retrieve(&self.store.key(0, key), part, data, &mut self.scratch)?;
        let mut out = vec![0; bytes.min((length as usize).saturating_sub(offset as usize))];
        self.host.read(0, &mut out);
        Ok((out, length))
    }

    pub(super) fn get(&mut self, key: &[u8]) -> Result<Vec<u8>, KvError> {
        let (_, length) = self.part(key, 0, 0, false)?;
        let (value, _) = self.part(key, 0, length as usize, false)?;
        Ok(value)
    }

    pub(super) fn delete(&mut self, key: &[u8]) -> Result<bool, KvError> {
        self.store.delete(&self.store.key(0, key), &mut self.scratch)
    }

    pub(super) fn exist(&mut self, key: &[u8]) -> Result<bool, KvError> {
        self.store.exist(&self.store.key(0, key), &mut self.scratch)
    }

    pub(super) fn keys(&self, start: &[u8]) -> Vec<Vec<u8>> {
        let (keys, listed) = self.list(start);
        listed.expect("a listing");
        keys
    }

    /// Keys that were listed, and how that ended.
    pub(super) fn list(&self, start: &[u8]) -> (Vec<Vec<u8>>, Result<(), KvError>) {
        let mut keys = Vec::new();
        let listed = self.store.list(all_from(start), |key| {
            keys.push(key.to_vec());
            true
        });
        (keys, listed)
    }

    /// A listing has every key of a pair, or says that some cannot be read.
    pub(super) fn check_listing(&self, model: &BTreeMap<Vec<u8>, Option<Vec<u8>>>, what: &str) {
        let (keys, listed) = self.list(b"");
        let there: Vec<_> = model.iter().filter(|(_, value)| value.is_some()).map(|(key, _)| key).collect();
        match listed {
            Ok(()) => assert!(keys.iter().eq(there), "{what}: a listing of {} keys", keys.len()),
            Err(KvError::Unrecovered) => assert!(keys.iter().all(|key| there.contains(&key)), "{what}"),
            Err(error) => panic!("{what}: {error:?}"),
        }
    }
}

pub(super) fn all_from(start: &[u8]) -> Listing<'_> {
    Listing { keyspace: 0, start, after_start: false, key_bytes_max: 255, prefix: 0, mask: 0 }
}
