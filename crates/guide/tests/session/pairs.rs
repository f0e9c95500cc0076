//! Pairs and iterators.

use unvme::Status;
use unvme_guide::config::SsdType;
use unvme_guide::session::{
    ITERATE_BYTES, IterateType, KvKey as Key, KvVerdict, OpError, Prefix, QueueChoice, StoreOptions,
};
use unvme_spec::samsung_kv::status;

use crate::rig::{BOTH, Masks, POLLED, config, keys_in, pairs, start};
use crate::verbs::Verbs;

const AUTO: QueueChoice = QueueChoice::Auto;
const ALWAYS: StoreOptions =
    StoreOptions { condition: unvme_guide::session::StoreCondition::Always, compress: false };

fn key(bytes: &[u8]) -> Key<'_> {
    Key { keyspace: 0, bytes }
}

/// A value of which no two places are alike.
fn value(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

fn status_of<T: std::fmt::Debug>(answer: Result<T, OpError>) -> Status {
    answer.unwrap_err().status().expect("a status").kind()
}

#[test]
fn the_programming_guides_cases_of_a_value_of_10_kib() {
    for cached in [false, true] {
        let (_session, device, _) = pairs(BOTH, cached);
        let name = key(b"ten-kibibytes");
        device.store(AUTO, name, &value(10 << 10), ALWAYS).unwrap();
        // Twice: what the cache answers is what the device answers.
        for _ in 0..2 {
            for (room, offset, copied, left) in [
                (10 << 10, 0, 10 << 10, 10 << 10),
                (4 << 10, 0, 4 << 10, 10 << 10),
                (4 << 10, 8 << 10, 2 << 10, 2 << 10),
                (16 << 10, 0, 10 << 10, 10 << 10),
                (0, 0, 0, 10 << 10),
            ] {
                let mut out = vec![0xee; room];
                let got = device.retrieve(AUTO, name, offset, &mut out).unwrap();
                assert_eq!((got.copied, got.value_bytes), (copied, left), "{room} {offset}");
                assert_eq!(out[..copied], value(10 << 10)[offset as usize..offset as usize + copied]);
                assert!(out[copied..].iter().all(|byte| *byte == 0xee), "{room} {offset}");
            }
        }
        let mut out = [0; 4096];
        assert_eq!(status_of(device.retrieve(AUTO, name, 100, &mut out)), status::MISALIGNED_VALUE_OFFSET);
        assert_eq!(status_of(device.retrieve(AUTO, name, 16 << 10, &mut out)), status::INVALID_VALUE_OFFSET);
    }
}

#[test]
fn values_of_every_length_come_back_whole() {
    for cached in [false, true] {
        let (_session, device, books) = pairs(BOTH, cached);
        for bytes in [
            0,
            1,
            2,
            3,
            4,
            5,
            100,
            127,
            128,
            129,
            511,
            512,
            4095,
            4096,
            4097,
            65_535,
            2 << 20,
            (2 << 20) + 1,
            9_000_003,
        ] {
            let name = (bytes as u64).to_le_bytes();
            device.store(AUTO, key(&name), &value(bytes), ALWAYS).unwrap();
            let mut out = vec![0xee; bytes + 8];
            let got = device.retrieve(AUTO, key(&name), 0, &mut out[..bytes.next_multiple_of(4)]).unwrap();
            assert_eq!((got.copied, got.value_bytes), (bytes, bytes as u64));
            assert_eq!(out[..bytes], value(bytes));
            assert!(out[bytes..].iter().all(|byte| *byte == 0xee), "{bytes}");

            let name = [&name[..], b" asynchronously, and under a long key"].concat();
            device.store_async(AUTO, key(&name), &value(bytes), ALWAYS, 1).unwrap();
            books.wait_for(1);
            assert_eq!(books.take(1).status, Status::SUCCESS, "{bytes}");
            device.retrieve_async(AUTO, key(&name), 0, bytes, 2).unwrap();
            books.wait_for(1);
            let outcome = books.take(2);
            assert_eq!((outcome.status, outcome.value_bytes), (Status::SUCCESS, bytes as u64));
            let mut out = vec![0; bytes];
            assert_eq!(outcome.copy_data(&mut out), bytes);
            assert_eq!(out, value(bytes));
        }
    }
}

#[test]
fn keys_values_and_keyspaces_that_cannot_be_are_refused_with_the_vendors_status() {
    for cached in [false, true] {
        let (_session, device, books) = pairs(BOTH, cached);
        let mut out = [0; 16];
        for length in [0, 256, 1000] {
            let name = vec![b'k'; length];
            assert_eq!(status_of(device.store(AUTO, key(&name), b"v", ALWAYS)), status::INVALID_KEY_SIZE);
            assert_eq!(status_of(device.retrieve(AUTO, key(&name), 0, &mut out)), status::INVALID_KEY_SIZE);
            assert_eq!(status_of(device.delete(AUTO, key(&name), false)), status::INVALID_KEY_SIZE);
            assert_eq!(status_of(device.exist(AUTO, key(&name))), status::INVALID_KEY_SIZE);
            assert_eq!(status_of(device.exist_async(AUTO, key(&name), 1)), status::INVALID_KEY_SIZE);
        }
        let far = Key { keyspace: 2, bytes: b"four" };
        assert_eq!(status_of(device.store(AUTO, far, b"v", ALWAYS)), status::INVALID_KEYSPACE);
        assert_eq!(status_of(device.retrieve_async(AUTO, far, 0, 16, 1)), status::INVALID_KEYSPACE);
        let prefix = Prefix { prefix: 0, bitmask: 0 };
        assert_eq!(
            status_of(device.iterate_open(AUTO, 2, IterateType::Key, prefix)),
            status::INVALID_KEYSPACE
        );
        let large = vec![0; (256 << 20) + 1];
        assert_eq!(status_of(device.store(AUTO, key(b"four"), &large, ALWAYS)), status::INVALID_VALUE_SIZE);
        assert_eq!(
            status_of(device.store_async(AUTO, key(b"four"), &large, ALWAYS, 1)),
            status::INVALID_VALUE_SIZE
        );
        assert_eq!(books.len(), 0);
    }
}

#[test]
fn a_missing_key_is_an_error_only_where_that_is_asked() {
    use KvVerdict::{Done, NotFound};
    for cached in [false, true] {
        let (_session, device, books) = pairs(BOTH, cached);
        let (here, gone) = (key(b"is here"), key(b"is not here"));
        device.store(AUTO, here, b"value", ALWAYS).unwrap();
        let mut out = [0; 16];
        let missing = device.retrieve(AUTO, gone, 0, &mut out).unwrap_err().status().unwrap();
        assert_eq!(KvVerdict::of(missing), NotFound);
        assert!(device.exist(AUTO, here).unwrap());
        assert!(!device.exist(AUTO, gone).unwrap());
        device.delete(AUTO, gone, false).unwrap();
        let missing = device.delete(AUTO, gone, true).unwrap_err().status().unwrap();
        assert_eq!(KvVerdict::of(missing), NotFound);
        device.exist_async(AUTO, gone, 1).unwrap();
        device.delete_async(AUTO, gone, false, 2).unwrap();
        device.delete_async(AUTO, gone, true, 3).unwrap();
        device.delete_async(AUTO, here, true, 4).unwrap();
        books.wait_for(4);
        let verdicts: Vec<_> = (1..5).map(|token| KvVerdict::of(books.take(token).status)).collect();
        assert_eq!(verdicts, [NotFound, Done, NotFound, Done]);
        assert!(!device.exist(AUTO, here).unwrap());
        assert!(device.retrieve(AUTO, here, 0, &mut out).is_err());
    }
}

#[test]
fn an_idempotent_store_leaves_the_value_that_is_there() {
    for cached in [false, true] {
        let (_session, device, _) = pairs(BOTH, cached);
        let name = key(b"once");
        device.store(AUTO, name, b"first", StoreOptions::IF_NOT_EXISTS).unwrap();
        let refused = device.store(AUTO, name, b"other", StoreOptions::IF_NOT_EXISTS).unwrap_err();
        assert_eq!(KvVerdict::of(refused.status().unwrap()), KvVerdict::Exists);
        let mut out = [0; 8];
        assert_eq!(device.retrieve(AUTO, name, 0, &mut out).unwrap().copied, 5);
        assert_eq!(&out[..5], b"first");
        let refused = device.store(AUTO, key(b"never"), b"other", StoreOptions::IF_EXISTS).unwrap_err();
        assert_eq!(KvVerdict::of(refused.status().unwrap()), KvVerdict::NotFound);
        assert!(!device.exist(AUTO, key(b"never")).unwrap());
    }
}

#[test]
fn what_is_appended_is_seen_at_once() {
    for cached in [false, true] {
        let (_session, device, books) = pairs(BOTH, cached);
        let name = key(b"growing");
        device.store(AUTO, name, b"one", ALWAYS).unwrap();
        let mut out = [0; 16];
        device.retrieve(AUTO, name, 0, &mut out).unwrap();
        device.append(AUTO, name, b"two").unwrap();
        assert_eq!(device.retrieve(AUTO, name, 0, &mut out).unwrap().copied, 6);
        device.append_async(AUTO, name, b"three", 1).unwrap();
        books.wait_for(1);
        assert_eq!(books.take(1).status, Status::SUCCESS);
        let got = device.retrieve(AUTO, name, 0, &mut out).unwrap();
        assert_eq!(&out[..got.copied], b"onetwothree");
    }
}

#[test]
fn keyspaces_have_their_own_keys() {
    for cached in [false, true] {
        let (_session, device, _) = pairs(BOTH, cached);
        let other = Key { keyspace: 1, bytes: b"same key" };
        device.store(AUTO, key(b"same key"), b"zero", ALWAYS).unwrap();
        assert!(!device.exist(AUTO, other).unwrap());
        device.store(AUTO, other, b"one!", ALWAYS).unwrap();
        let mut out = [0; 4];
        device.retrieve(AUTO, key(b"same key"), 0, &mut out).unwrap();
        assert_eq!(&out, b"zero");
        device.retrieve(AUTO, other, 0, &mut out).unwrap();
        assert_eq!(&out, b"one!");
    }
}

#[test]
fn an_iterator_returns_the_keys_that_begin_alike_and_then_ends() {
    let (_session, device, books) = pairs(BOTH, false);
    for number in 0..2000u32 {
        let name = [&b"0000"[..], &number.to_be_bytes(), &[0; 8]].concat();
        device.store(AUTO, key(&name), b"v", ALWAYS).unwrap();
    }
    device.store(AUTO, key(b"1000 is another"), b"v", ALWAYS).unwrap();
    let prefix = Prefix { prefix: 0x3030_3030, bitmask: 0xffff_ffff };
    let iterator = device.iterate_open(AUTO, 0, IterateType::Key, prefix).unwrap();
    assert_eq!(iterator, 1);
    assert_eq!(
        status_of(device.iterate_open(AUTO, 0, IterateType::Key, prefix)),
        status::ITERATE_ALREADY_OPEN
    );
    let info = device.iterate_info().unwrap();
    assert_eq!((info[0].id, info[0].status, info[0].kind, info[0].prefix), (1, 1, 1, *b"0000"));
    assert_eq!((info[1].id, info[1].status), (2, 0));
    let mut buffer = Box::new([0; ITERATE_BYTES]);
    let mut found = Vec::new();
    loop {
        let read = device.iterate_read(AUTO, iterator, &mut buffer).unwrap();
        found.extend(keys_in(&buffer[..read.bytes]));
        if read.end {
            break;
        }
        // Keys of 16 bytes: 20 bytes each after the number of keys.
        assert_eq!(read.bytes, 4 + 1638 * 20);
    }
    found.sort();
    assert_eq!(found.len(), 2000);
    assert!(found.iter().all(|name| name.starts_with(b"0000")));
    found.dedup();
    assert_eq!(found.len(), 2000);
    // After the end there is nothing, again and again, and in order.
    for token in 0..5 {
        device.iterate_read_async(AUTO, iterator, token).unwrap();
    }
    books.wait_for(5);
    for token in 0..5 {
        let outcome = books.take(token);
        assert_eq!((outcome.status.kind(), outcome.data_bytes), (status::ITERATE_END, 0));
    }
    device.iterate_close(AUTO, iterator).unwrap();
    assert!(device.iterate_close(AUTO, iterator).is_err());
    assert!(matches!(
        device.iterate_open(AUTO, 0, IterateType::Key, Prefix { prefix: 0, bitmask: 0x00ff_0000 }),
        Err(OpError::Argument(_))
    ));
}

#[test]
fn reads_that_are_queued_on_an_iterator_end_in_their_order() {
    for masks in [BOTH, POLLED] {
        let (session, device, books) = pairs(masks, false);
        for number in 0..5000u32 {
            let name = [&b"key:"[..], &number.to_be_bytes(), &[0; 8]].concat();
            device.store(AUTO, key(&name), b"", ALWAYS).unwrap();
        }
        let everything = Prefix { prefix: 0, bitmask: 0 };
        let iterator = device.iterate_open(AUTO, 0, IterateType::Key, everything).unwrap();
        for token in 0..8 {
            device.iterate_read_async(AUTO, iterator, token).unwrap();
        }
        session.close().unwrap();
        let keys: Vec<usize> = (0..8)
            .map(|token| {
                let outcome = books.take(token);
                let mut buffer = vec![0; outcome.data_bytes];
                outcome.copy_data(&mut buffer);
                keys_in(&buffer).len()
            })
            .collect();
        assert_eq!(keys, [1638, 1638, 1638, 86, 0, 0, 0, 0]);
    }
}

#[test]
fn an_iterator_that_deletes_takes_what_it_matches_out_of_the_cache() {
    for cached in [false, true] {
        let (_session, device, _) = pairs(BOTH, cached);
        let mut out = [0; 8];
        for name in [b"aaaa-1", b"aaaa-2", b"bbbb-1"] {
            device.store(AUTO, key(name), b"value", ALWAYS).unwrap();
            device.retrieve(AUTO, key(name), 0, &mut out).unwrap();
        }
        let prefix = Prefix { prefix: 0x6161_6161, bitmask: 0xffff_ffff };
        let iterator = device.iterate_open(AUTO, 0, IterateType::KeyDelete, prefix).unwrap();
        let started = std::time::Instant::now();
        while device.iterate_info().unwrap()[usize::from(iterator) - 1].is_eof == 0 {
            assert!(started.elapsed().as_secs() < 20, "the pairs are not deleted");
        }
        device.iterate_close(AUTO, iterator).unwrap();
        for name in [b"aaaa-1", b"aaaa-2"] {
            assert!(device.retrieve(AUTO, key(name), 0, &mut out).is_err(), "cached: {cached}");
            assert!(!device.exist(AUTO, key(name)).unwrap());
        }
        device.retrieve(AUTO, key(b"bbbb-1"), 0, &mut out).unwrap();
        // What is stored again is cached again.
        device.store(AUTO, key(b"aaaa-1"), b"again", ALWAYS).unwrap();
        device.retrieve(AUTO, key(b"aaaa-1"), 0, &mut out).unwrap();
        assert_eq!(&out[..5], b"again");
    }
}

#[test]
fn a_format_leaves_nothing_in_the_device_nor_in_the_cache() {
    for cached in [false, true] {
        let (_session, device, _) = pairs(BOTH, cached);
        let mut out = vec![0; 100_000];
        device.store(AUTO, key(b"to be gone"), &value(100_000), ALWAYS).unwrap();
        device.retrieve(AUTO, key(b"to be gone"), 0, &mut out).unwrap();
        let used = device.used().unwrap();
        assert!((1..=10_000).contains(&used), "{used}");
        device.format(true).unwrap();
        assert!(device.retrieve(AUTO, key(b"to be gone"), 0, &mut out).is_err());
        assert!(device.used().unwrap() < used);
        assert!(device.waf_tenths().is_ok());
    }
}

#[test]
fn a_hit_is_answered_in_the_thread_that_submits() {
    let (session, device, books) = pairs(POLLED, true);
    device.store(AUTO, key(b"cached"), b"value", ALWAYS).unwrap();
    device.retrieve_async(AUTO, key(b"cached"), 0, 16, 1).unwrap();
    let outcome = books.take(1);
    let mut out = [0; 16];
    assert_eq!((outcome.status, outcome.copy_data(&mut out)), (Status::SUCCESS, 5));
    assert_eq!((outcome.value_bytes, outcome.result & 0xffff_ffff), (5, 5));
    // Without the cache it waits for somebody to poll.
    let (uncached, other, unread) = pairs(POLLED, false);
    other.store(AUTO, key(b"cached"), b"value", ALWAYS).unwrap();
    other.retrieve_async(AUTO, key(b"cached"), 0, 16, 1).unwrap();
    assert_eq!(unread.len(), 0);
    uncached.close().unwrap();
    session.close().unwrap();
    assert!(matches!(device.retrieve(AUTO, key(b"cached"), 0, &mut out), Err(OpError::Closed)));
    assert!(matches!(device.retrieve_async(AUTO, key(b"cached"), 0, 16, 2), Err(OpError::Closed)));
}

#[test]
fn memory_runs_out_with_an_error_and_comes_back() {
    let mut config = config("mem:kv:1G", SsdType::Kv, Masks(1, 0, 0, 256));
    config.slab_bytes = 44 << 20;
    config.submit_retry = None;
    let (_session, device, books) = start(config);
    let large = value(2 << 20);
    let mut taken = 0;
    let refused = loop {
        match device.store_async(AUTO, key(&(taken as u32).to_le_bytes()), &large, ALWAYS, taken) {
            Ok(()) => taken += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(refused, OpError::SlabExhausted { bytes: 0x20_0000 }), "{refused}");
    assert!((1..=22).contains(&taken), "{taken}");
    while books.len() < taken as usize {
        device.process_completions(None);
    }
    // The handler's books hold the outcomes, and those no buffers of stores.
    let before = taken;
    books.assert_all_succeeded(0..before);
    drop(books);
    let mut out = vec![0; 2 << 20];
    for number in 0..before {
        device.retrieve(AUTO, key(&(number as u32).to_le_bytes()), 0, &mut out).unwrap();
        assert_eq!(out, large);
    }
}

#[test]
fn the_callers_own_buffers_travel_without_a_copy_and_come_back() {
    for cached in [false, true] {
        let (_session, device, books) = pairs(BOTH, cached);
        let alloc = || device.device().controller().alloc(8192).unwrap();
        let mut buf = alloc();
        buf.write(0, &value(5000));
        let at = buf.iova();
        let buf = device.store_from(AUTO, key(b"lent"), buf, 5000, ALWAYS).unwrap();
        assert_eq!(buf.iova(), at);
        device.store_from_async(AUTO, key(b"lent, asynchronously"), buf, 5000, ALWAYS, 1).unwrap();
        books.wait_for(1);
        let outcome = books.take(1);
        assert_eq!(outcome.status, Status::SUCCESS);
        let mut buf = outcome.data.unwrap();
        assert_eq!(buf.iova(), at);
        for name in [&b"lent"[..], b"lent, asynchronously"] {
            let mut out = [0; 5000];
            assert_eq!(device.retrieve(AUTO, key(name), 0, &mut out).unwrap().copied, 5000);
            assert_eq!(out[..], value(5000));
            buf.fill(0);
            let (got, back) = device.retrieve_into(AUTO, key(name), 4096, buf, 8192).unwrap();
            assert_eq!((got.copied, got.value_bytes, back.iova()), (904, 904, at));
            assert_eq!(back.to_vec()[..904], value(5000)[4096..]);
            device.retrieve_into_async(AUTO, key(name), 0, back, 4096, 2).unwrap();
            books.wait_for(1);
            let outcome = books.take(2);
            assert_eq!((outcome.data_bytes, outcome.value_bytes), (4096, 5000));
            buf = outcome.data.unwrap();
            assert_eq!(buf.to_vec()[..4096], value(5000)[..4096]);
        }
        // Refused before or by the device: the buffer comes back.
        let refused = device.retrieve_into(AUTO, key(b"missing"), 0, buf, 8192).unwrap_err();
        assert_eq!(KvVerdict::of(refused.error.status().unwrap()), KvVerdict::NotFound);
        let refused =
            device.store_from_async(AUTO, key(b""), refused.buf.unwrap(), 1, ALWAYS, 3).unwrap_err();
        assert_eq!(refused.buf.map(|buf| buf.iova()), Some(at));
    }
}
