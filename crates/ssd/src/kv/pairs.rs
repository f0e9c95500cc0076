//! What a Key Value namespace holds, and what a queue keeps for its commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use unvme_spec::samsung_kv;

use super::counters::KvCounters;
use super::iterator::Iterators;
use super::{KvScratch, KvStore};

/// What a Key Value namespace holds.
#[derive(Clone)]
pub(crate) struct KeyValue {
    /// Chunk of the media behind each chunk of the namespace.
    pub(crate) chunks: Arc<[u32]>,
    pub(crate) store: Arc<KvStore>,
    pub(crate) iterators: Arc<Iterators>,
    /// EDNEK: deleting a key that is not there is an error to the standard command set.
    delete_missing_is_error: Arc<AtomicBool>,
}

impl KeyValue {
    /// Pairs in `store`, which lies on `chunks`; no iterator is open.
    pub(crate) fn new(chunks: Arc<[u32]>, store: KvStore) -> Self {
        Self {
            chunks,
            store: Arc::new(store),
            iterators: Arc::default(),
            delete_missing_is_error: Arc::default(),
        }
    }

    /// EDNEK is set.
    pub(crate) fn is_delete_missing_an_error(&self) -> bool {
        self.delete_missing_is_error.load(Ordering::Relaxed)
    }

    /// Sets EDNEK of the Key Value Configuration feature.
    pub(crate) fn set_delete_missing_is_error(&self, error: bool) {
        self.delete_missing_is_error.store(error, Ordering::Relaxed);
    }
}

/// What a submission queue keeps for Key Value commands.
pub(crate) struct KvLane {
    pub(crate) scratch: KvScratch,
    /// A key that is not in its entry.
    pub(crate) long_key: [u8; samsung_kv::KEY_BYTES_MAX],
    pub(crate) counters: KvCounters,
    /// Bytes that commands of this turn have moved.
    pub(crate) turn_bytes: u64,
}

impl KvLane {
    /// What queue `qid` of a controller needs. Queue identifiers are a controller's own: with this, queues of
    /// one number of up to eight controllers append to different heads, of which there are eight at most.
    pub(crate) fn new(cntlid: u16, qid: u16) -> Self {
        Self {
            scratch: KvScratch::new(cntlid.wrapping_mul(3).wrapping_add(qid)),
            long_key: [0; samsung_kv::KEY_BYTES_MAX],
            counters: KvCounters::default(),
            turn_bytes: 0,
        }
    }
}
