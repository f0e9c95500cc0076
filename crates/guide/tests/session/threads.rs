//! Many threads at once, and threads that sleep.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use unvme::Status;
use unvme_guide::SdkConfig;
use unvme_guide::config::SsdType;
use unvme_guide::session::{Finished, Member, OpError, QueueChoice, Session, SessionOptions};

use crate::rig::{BOTH, Masks, POLLED, blocks, config, start};
use crate::verbs::Verbs;

const AUTO: QueueChoice = QueueChoice::Auto;
const BLOCKS_PER_THREAD: u64 = 200;

/// The pattern of a block.
fn pattern(lba: u64) -> [u8; 512] {
    let mut data = [0; 512];
    for (place, byte) in data.chunks_exact_mut(8).zip(0u64..) {
        place.copy_from_slice(&(lba * 64 + byte).to_le_bytes());
    }
    data
}

/// Thread `index` writes and reads blocks of its own, asynchronously when `index` is even.
fn work(device: &Member, index: u64) {
    for lba in index * BLOCKS_PER_THREAD..(index + 1) * BLOCKS_PER_THREAD {
        if index.is_multiple_of(2) {
            device.write_async(AUTO, lba, &pattern(lba), lba).unwrap();
        } else {
            device.write(AUTO, lba, &pattern(lba)).unwrap();
            let mut data = [0; 512];
            device.read(AUTO, lba, &mut data).unwrap();
            assert_eq!(data, pattern(lba), "block {lba}");
        }
    }
}

/// Half of `threads` threads are asynchronous, half are blocking.
fn mixed(config: SdkConfig, threads: u64) {
    let (session, device, books) = start(config);
    std::thread::scope(|scope| {
        for index in 0..threads {
            let device = &device;
            scope.spawn(move || work(device, index));
        }
    });
    session.close().unwrap();
    let own = |index: u64| index * BLOCKS_PER_THREAD..(index + 1) * BLOCKS_PER_THREAD;
    books.assert_all_succeeded((0..threads).step_by(2).flat_map(own));
    assert_eq!(device.unfinished(), 0);
}

#[test]
fn thirty_two_threads_half_of_them_asynchronous_share_a_device_that_was_given_no_masks() {
    mixed(config("mem:block:64M", SsdType::Lba, Masks(0, 0, 0, 0)), 32);
}

#[test]
fn thirty_two_threads_share_queues_of_every_shape() {
    // Queues of one kind alone; more CPUs than the machine has; no completion threads; one command at a time.
    for masks in
        [BOTH, POLLED, Masks(1, 1, 0, 8), Masks(0xff, 0x0f, 0xf0, 4), Masks(3, 1, 0, 16), Masks(3, 2, 3, 1)]
    {
        mixed(config("mem:block:64M", SsdType::Lba, masks), 32);
    }
}

#[test]
fn blocking_and_asynchronous_operations_follow_each_other_in_one_thread() {
    let (session, device, books) = blocks(Masks(0, 0, 0, 0));
    for lba in 0..1000 {
        device.write(AUTO, lba, &pattern(lba)).unwrap();
    }
    for lba in 0..1000 {
        device.read_async(AUTO, lba, 1, lba).unwrap();
    }
    books.wait_for(1000);
    for lba in 0..1000 {
        let mut data = [0; 512];
        assert_eq!(books.take(lba).copy_data(&mut data), 512);
        assert_eq!(data, pattern(lba), "block {lba}");
    }
    for lba in 0..1000 {
        device.deallocate_async(AUTO, lba, 1, lba).unwrap();
    }
    session.close().unwrap();
    books.assert_all_succeeded(0..1000);
}

/// A handler that submits another operation for each that ends, until there have been `total`.
fn resubmitting(masks: Masks, at_once: u64, total: u64) {
    let device: Arc<OnceLock<Arc<Member>>> = Arc::default();
    let submitted = Arc::new(AtomicU64::new(at_once));
    let ended = Arc::new(AtomicU64::new(0));
    let handler = {
        let (device, submitted, ended) = (Arc::clone(&device), Arc::clone(&submitted), Arc::clone(&ended));
        move |finished: Finished| {
            assert_eq!(finished.outcome.status, Status::SUCCESS);
            let device = device.get().unwrap();
            let token = submitted.fetch_add(1, Ordering::Relaxed);
            if token < total {
                device.write_async(AUTO, token % 1000, &[1; 512], token).unwrap();
            }
            // A blocking operation in a handler works, too.
            if finished.token.is_multiple_of(64) {
                device.read(AUTO, 0, &mut [0; 512]).unwrap();
            }
            ended.fetch_add(1, Ordering::Relaxed);
        }
    };
    let config = config("mem:block:64M", SsdType::Lba, masks);
    let session = Session::open(config, SessionOptions::new(Arc::new(handler))).unwrap();
    device.set(Arc::clone(&session.members()[0])).unwrap();
    for token in 0..at_once {
        session.members()[0].write_async(AUTO, token, &[1; 512], token).unwrap();
    }
    let started = Instant::now();
    while ended.load(Ordering::Relaxed) < total {
        assert!(started.elapsed() < Duration::from_secs(60), "{ended:?} of {total}");
        session.members()[0].process_completions(None);
    }
    session.close().unwrap();
    assert_eq!(ended.load(Ordering::Relaxed), total);
}

#[test]
fn a_handler_submits_again_on_a_queue_that_is_full() {
    for (masks, at_once) in [(BOTH, 32), (POLLED, 8), (Masks(1, 0, 1, 1), 1), (Masks(3, 0, 3, 4), 16)] {
        resubmitting(masks, at_once, 5000);
    }
}

#[test]
fn a_handler_submits_more_than_the_queue_takes() {
    let device: Arc<OnceLock<Arc<Member>>> = Arc::default();
    let books = crate::rig::Books::default();
    let handler = {
        let (device, books) = (Arc::clone(&device), books.clone());
        move |finished: Finished| {
            if finished.token == 0 {
                let device = device.get().unwrap();
                (4..16).for_each(|token| device.write_async(AUTO, token, &[1; 512], token).unwrap());
            }
            books.note(finished);
        }
    };
    let config = config("mem:block:64M", SsdType::Lba, Masks(1, 0, 0, 4));
    let session = Session::open(config, SessionOptions::new(Arc::new(handler))).unwrap();
    device.set(Arc::clone(&session.members()[0])).unwrap();
    for token in 0..4 {
        session.members()[0].write_async(AUTO, token, &[1; 512], token).unwrap();
    }
    while books.len() < 16 {
        session.members()[0].process_completions(None);
    }
    session.close().unwrap();
    books.assert_all_succeeded(0..16);
}

#[test]
fn a_full_queue_is_an_error_at_once_without_a_retry_interval() {
    let mut config = config("mem:block:64M", SsdType::Lba, POLLED);
    config.submit_retry = None;
    let (session, device, books) = start(config);
    for token in 0..8 {
        device.write_async(AUTO, token, &[1; 512], token).unwrap();
    }
    assert!(matches!(device.write_async(AUTO, 8, &[1; 512], 8), Err(OpError::QueueFull)));
    assert_eq!(device.outstanding(0), 8);
    assert_eq!(device.process_completions(None), 8);
    device.write_async(AUTO, 9, &[1; 512], 9).unwrap();
    session.close().unwrap();
    books.assert_all_succeeded((0..8).chain([9]));
}

#[test]
fn a_full_queue_is_tried_again_and_the_submitter_polls_when_nobody_else_does() {
    let (session, device, books) = blocks(POLLED);
    for token in 0..100 {
        device.write_async(AUTO, token, &[1; 512], token).unwrap();
    }
    assert!(books.len() >= 92, "{}", books.len());
    session.close().unwrap();
    books.assert_all_succeeded(0..100);
}

#[test]
fn a_permanent_error_is_not_tried_again() {
    let (_session, device, _) = blocks(POLLED);
    let started = Instant::now();
    assert!(matches!(device.write_async(AUTO, 0, &[1; 500], 1), Err(OpError::Argument(_))));
    assert!(started.elapsed() < Duration::from_secs(60));
}
