//! The cache in front of a device that is a sorted map.

mod answers;
mod budget;
mod overtaking;
mod threads;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use unvme_bus::{AddressSpace, DmaPool, Pages};

use super::{CacheDevice, EntryId, Fetched, ReadCache, Scope, Value};
use crate::slab::{SLAB_BYTES_MIN, Slab, SlabOptions};

fn slab() -> Slab {
    let pool = DmaPool::new(Arc::new(AddressSpace::new()));
    Slab::new(&pool, &SlabOptions { bytes: SLAB_BYTES_MIN, pages: Pages::Ordinary }).unwrap()
}

/// A cache for `devices` devices of `budget_bytes` each.
fn cache(devices: usize, budget_bytes: usize) -> ReadCache {
    ReadCache::new((0..devices).map(|_| CacheDevice { slab: slab(), budget_bytes }))
}

fn id(key: &[u8]) -> EntryId<'_> {
    EntryId { device: 0, keyspace: 0, key }
}

/// Stores a value in the cache as a store without company does.
fn store(cache: &ReadCache, id: &EntryId<'_>, value: &[u8]) {
    let ticket = cache.write_begin(id);
    cache.write_end(ticket, id, Some(Value::Bytes(value)));
}

/// The whole value of a pair, if it is cached.
fn cached(cache: &ReadCache, id: &EntryId<'_>) -> Option<Vec<u8>> {
    let mut out = vec![0; 4096];
    let hit = cache.lookup(id, 0, out.as_mut_slice())?;
    assert_eq!(hit.value_bytes, hit.copied);
    out.truncate(hit.copied);
    Some(out)
}

/// What a device answers a retrieve: size of the whole value, and the bytes; or why not.
type Answer = Result<(usize, Vec<u8>), &'static str>;

/// Keyspace and key.
type Pair = (u8, Vec<u8>);

/// A device.
#[derive(Default)]
struct Map(Mutex<BTreeMap<Pair, Vec<u8>>>);

impl Map {
    fn store(&self, id: &EntryId<'_>, value: &[u8]) {
        self.0.lock().unwrap().insert((id.keyspace, id.key.to_vec()), value.to_vec());
    }

    fn append(&self, id: &EntryId<'_>, more: &[u8]) {
        self.0.lock().unwrap().entry((id.keyspace, id.key.to_vec())).or_default().extend(more);
    }

    fn delete(&self, id: &EntryId<'_>) {
        self.0.lock().unwrap().remove(&(id.keyspace, id.key.to_vec()));
    }

    fn sweep(&self, scope: Scope) {
        self.0.lock().unwrap().retain(|(keyspace, key), _| match scope {
            Scope::Device => false,
            Scope::Matching { keyspace: swept, prefix, bitmask } => {
                let first = key.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
                *keyspace != swept || first.is_none_or(|first| first & bitmask != prefix & bitmask)
            }
        });
    }

    fn retrieve(&self, id: &EntryId<'_>, offset: u64, room: usize) -> Answer {
        let map = self.0.lock().unwrap();
        let value = map.get(&(id.keyspace, id.key.to_vec())).ok_or("not found")?;
        if offset > 0 && offset >= value.len() as u64 {
            return Err("invalid offset");
        }
        let rest = &value[offset as usize..];
        Ok((value.len(), rest[..rest.len().min(room)].to_vec()))
    }
}

/// A retrieve through the cache.
fn retrieve(cache: &ReadCache, map: &Map, id: &EntryId<'_>, offset: u64, room: usize) -> Answer {
    let mut out = vec![0xee; room];
    if let Some(hit) = cache.lookup(id, offset, out.as_mut_slice()) {
        assert!(out[hit.copied..].iter().all(|byte| *byte == 0xee), "bytes beyond those that were copied");
        out.truncate(hit.copied);
        return Ok((hit.value_bytes, out));
    }
    let ticket = cache.fill_begin(id);
    let answer = map.retrieve(id, offset, room);
    if let Ok((whole, data)) = &answer {
        let data = Value::Bytes(data);
        cache.fill_end(ticket, id, Fetched { offset, value_bytes: *whole as u64, data });
    }
    answer
}
