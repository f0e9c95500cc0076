//! A session, and a handler that keeps books.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use unvme::Status;
use unvme_guide::config::{DeviceConfig, SdkConfig, SsdType};
use unvme_guide::session::{Finished, Member, Outcome, Session, SessionOptions};

/// What the handler was given: token to outcomes.
#[derive(Clone, Default)]
pub(crate) struct Books(Arc<Mutex<BTreeMap<u64, Vec<Outcome>>>>);

impl Books {
    pub(crate) fn note(&self, finished: Finished) {
        self.0.lock().unwrap().entry(finished.token).or_default().push(finished.outcome);
    }

    /// Operations that have ended.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().values().map(Vec::len).sum()
    }

    /// Waits until `count` have ended.
    pub(crate) fn wait_for(&self, count: usize) {
        let started = Instant::now();
        while self.len() < count {
            assert!(started.elapsed() < Duration::from_secs(60), "{} of {count} have ended", self.len());
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Takes the one outcome of a token.
    pub(crate) fn take(&self, token: u64) -> Outcome {
        let mut outcomes = self.0.lock().unwrap().remove(&token).expect("the operation has ended");
        assert_eq!(outcomes.len(), 1, "token {token} came back more than once");
        outcomes.remove(0)
    }

    /// Each of the tokens came back once, none else did, and all succeeded.
    pub(crate) fn assert_all_succeeded(&self, tokens: impl Iterator<Item = u64>) {
        let books = self.0.lock().unwrap();
        let mut expected = 0;
        for token in tokens {
            expected += 1;
            let outcomes = books.get(&token).map_or(&[][..], Vec::as_slice);
            assert_eq!(outcomes.len(), 1, "token {token}");
            assert_eq!(outcomes[0].status, Status::SUCCESS, "token {token}");
        }
        assert_eq!(books.len(), expected);
    }
}

/// Masks and depth of a device: CPUs with queues, those that are synchronous, those with completion threads.
#[derive(Clone, Copy)]
pub(crate) struct Masks(pub(crate) u64, pub(crate) u64, pub(crate) u64, pub(crate) u32);

/// One asynchronous queue on CPU 0 that its users poll.
pub(crate) const POLLED: Masks = Masks(1, 0, 0, 8);
/// A synchronous queue on CPU 0, an asynchronous one on CPU 1 with a completion thread there.
pub(crate) const BOTH: Masks = Masks(3, 1, 2, 32);

pub(crate) fn config(name: &str, ssd_type: SsdType, masks: Masks) -> SdkConfig {
    let Masks(core_mask, sync_mask, cq_thread_mask, queue_depth) = masks;
    let device =
        DeviceConfig { core_mask, sync_mask, cq_thread_mask, queue_depth, ..DeviceConfig::new(name) };
    SdkConfig { ssd_type, devices: vec![device], ..SdkConfig::default() }
}

pub(crate) fn options(books: &Books) -> SessionOptions {
    let books = books.clone();
    SessionOptions::new(Arc::new(move |finished| books.note(finished)))
}

/// A block device of 64 MiB.
pub(crate) fn blocks(masks: Masks) -> (Session, Arc<Member>, Books) {
    start(config("mem:block:64M", SsdType::Lba, masks))
}

pub(crate) fn start(config: SdkConfig) -> (Session, Arc<Member>, Books) {
    let books = Books::default();
    let session = Session::open(config, options(&books)).unwrap();
    let member = Arc::clone(&session.members()[0]);
    (session, member, books)
}

/// A key-value device of 256 MiB.
pub(crate) fn pairs(masks: Masks, cached: bool) -> (Session, Arc<Member>, Books) {
    let config = config("mem:kv:256M", SsdType::Kv, masks);
    start(SdkConfig { cache: cached, ..config })
}

/// The keys in what an iterate read has brought.
pub(crate) fn keys_in(buffer: &[u8]) -> Vec<Vec<u8>> {
    let word = |at: usize| u32::from_le_bytes(buffer[at..at + 4].try_into().unwrap()) as usize;
    if buffer.is_empty() {
        return Vec::new();
    }
    let mut at = 4;
    (0..word(0))
        .map(|_| {
            let bytes = word(at);
            let key = buffer[at + 4..at + 4 + bytes].to_vec();
            at += 4 + bytes.next_multiple_of(4);
            key
        })
        .collect()
}
