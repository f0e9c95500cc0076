//! What a handler may do, and what becomes of one that panics.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use unvme::Status;
use unvme_guide::config::{SdkConfig, SsdType};
use unvme_guide::session::{
    Finished, IterateType, KvKey as Key, KvOptions, Member, Prefix, QueueChoice, Session, SessionOptions,
    StoreOptions, VendorCommands,
};
use unvme_spec::samsung_kv::status;

use crate::rig::{BOTH, Books, Masks, POLLED, config};
use crate::verbs::Verbs;

const AUTO: QueueChoice = QueueChoice::Auto;

#[test]
fn a_handler_that_panics_is_called_for_everything_else_all_the_same() {
    for masks in [BOTH, POLLED] {
        let books = Books::default();
        let handler = {
            let books = books.clone();
            move |finished: Finished| {
                let token = finished.token;
                books.note(finished);
                assert!(!token.is_multiple_of(3), "meant to panic");
            }
        };
        let config = config("mem:kv:64M", SsdType::Kv, masks);
        let config = SdkConfig { cache: true, ..config };
        let session = Session::open(config, SessionOptions::new(Arc::new(handler))).unwrap();
        let device = &session.members()[0];
        let key = |token: &'static [u8; 8]| Key { keyspace: 0, bytes: token };
        for round in 0..20 {
            for token in round * 8..(round + 1) * 8 {
                device.store_async(AUTO, key(b"panicked"), b"value", StoreOptions::default(), token).unwrap();
            }
            let started = Instant::now();
            while books.len() < (round as usize + 1) * 8 {
                device.process_completions(None);
                assert!(started.elapsed() < Duration::from_secs(60), "{} of {round} rounds", books.len());
            }
        }
        // A hit: in this thread.
        device.store(AUTO, key(b"panicked"), b"value", StoreOptions::default()).unwrap();
        device.retrieve_async(AUTO, key(b"panicked"), 0, 16, 162).unwrap();
        session.close().unwrap();
        assert_eq!(device.unfinished(), 0);
        books.assert_all_succeeded((0..160).chain([162]));
    }
}

/// Hands on what `next` submits from each handler, until it has submitted `total`. Returns how deep handlers
/// were within each other at most.
fn chain(
    config: SdkConfig,
    kv: KvOptions,
    total: u64,
    prepare: impl Fn(&Member),
    next: impl Fn(&Member, u64) + Send + Sync + 'static,
) -> u64 {
    thread_local! {
        static DEPTH: Cell<u64> = const { Cell::new(0) };
    }
    let device: Arc<OnceLock<Arc<Member>>> = Arc::default();
    let (ended, deepest) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let next = Arc::new(next);
    let handler = {
        let (device, ended, deepest) = (Arc::clone(&device), Arc::clone(&ended), Arc::clone(&deepest));
        let next = Arc::clone(&next);
        move |finished: Finished| {
            let status = finished.outcome.status;
            assert!(status.is_success() || status == status::ITERATE_END, "{status}");
            DEPTH.set(DEPTH.get() + 1);
            deepest.fetch_max(DEPTH.get(), Ordering::Relaxed);
            if finished.token < total {
                next(device.get().unwrap(), finished.token + 1);
            }
            DEPTH.set(DEPTH.get() - 1);
            ended.fetch_add(1, Ordering::Relaxed);
        }
    };
    let options = SessionOptions { kv, ..SessionOptions::new(Arc::new(handler)) };
    let session = Session::open(config, options).unwrap();
    let member = &session.members()[0];
    device.set(Arc::clone(member)).unwrap();
    prepare(member);
    next(member, 1);
    let started = Instant::now();
    while ended.load(Ordering::Relaxed) < total {
        assert!(started.elapsed() < Duration::from_secs(60), "{ended:?} of {total}");
        member.process_completions(None);
    }
    session.close().unwrap();
    assert_eq!(ended.load(Ordering::Relaxed), total);
    deepest.load(Ordering::Relaxed)
}

#[test]
fn handlers_that_submit_what_the_cache_answers_are_not_called_within_each_other() {
    // Also where no queue is asynchronous.
    for masks in [BOTH, POLLED, Masks(1, 1, 0, 8)] {
        let key = Key { keyspace: 0, bytes: b"cached" };
        let config = SdkConfig { cache: true, ..config("mem:kv:64M", SsdType::Kv, masks) };
        let deepest = chain(
            config,
            KvOptions::default(),
            50_000,
            |device| device.store(AUTO, key, b"value", StoreOptions::default()).unwrap(),
            move |device, token| device.retrieve_async(AUTO, key, 0, 16, token).unwrap(),
        );
        assert_eq!(deepest, 1);
    }
}

#[test]
fn handlers_that_read_on_an_emulated_iterator_are_not_called_within_each_other() {
    for masks in [BOTH, POLLED] {
        let kv = KvOptions { vendor: VendorCommands::Never, ..KvOptions::default() };
        let deepest = chain(
            config("mem:kv:64M", SsdType::Kv, masks),
            kv,
            50,
            |device| {
                let opened = device.iterate_open(AUTO, 0, IterateType::Key, Prefix { prefix: 0, bitmask: 0 });
                assert_eq!(opened.unwrap(), 1);
            },
            |device, token| device.iterate_read_async(AUTO, 1, token).unwrap(),
        );
        assert_eq!(deepest, 1);
    }
}

#[test]
fn a_hit_in_a_handler_brings_what_a_hit_brings() {
    let device: Arc<OnceLock<Arc<Member>>> = Arc::default();
    let books = Books::default();
    let key = Key { keyspace: 1, bytes: b"cached" };
    let handler = {
        let (device, books) = (Arc::clone(&device), books.clone());
        move |finished: Finished| {
            if finished.token == 1 {
                device.get().unwrap().retrieve_async(AUTO, key, 512, 100, 2).unwrap();
            }
            books.note(finished);
        }
    };
    let config = SdkConfig { cache: true, ..config("mem:kv:64M", SsdType::Kv, BOTH) };
    let session = Session::open(config, SessionOptions::new(Arc::new(handler))).unwrap();
    device.set(Arc::clone(&session.members()[0])).unwrap();
    let value: Vec<u8> = (0..600u32).map(|at| at as u8).collect();
    session.members()[0].store(AUTO, key, &value, StoreOptions::default()).unwrap();
    session.members()[0].retrieve_async(AUTO, key, 512, 50, 1).unwrap();
    books.wait_for(2);
    for (token, bytes) in [(1, 50), (2, 88)] {
        let outcome = books.take(token);
        let mut out = [0; 100];
        assert_eq!((outcome.status, outcome.value_bytes), (Status::SUCCESS, 88), "token {token}");
        assert_eq!((outcome.data_bytes, outcome.copy_data(&mut out)), (bytes, bytes), "token {token}");
        assert_eq!(out[..bytes], value[512..512 + bytes], "token {token}");
    }
    session.close().unwrap();
}
