//! A device that has the Key Value Command Set alone.

use std::sync::Arc;

use unvme::Status;
use unvme_guide::config::SsdType;
use unvme_guide::session::{
    ITERATE_BYTES, IterateType, KvKey as Key, KvOptions, KvVerdict, Member, OpError, Prefix, QueueChoice,
    Session, StoreOptions, VendorCommands,
};
use unvme_spec::samsung_kv::status;

use crate::rig::{BOTH, Books, config, keys_in, options};
use crate::verbs::Verbs;

const AUTO: QueueChoice = QueueChoice::Auto;

fn standard(cached: bool) -> (Session, Arc<Member>, Books) {
    let books = Books::default();
    let mut options = options(&books);
    options.kv = KvOptions { vendor: VendorCommands::Never, ..KvOptions::default() };
    let mut config = config("mem:kv:64M", SsdType::Kv, BOTH);
    config.cache = cached;
    let session = Session::open(config, options).unwrap();
    let device = Arc::clone(&session.members()[0]);
    (session, device, books)
}

fn key(bytes: &[u8]) -> Key<'_> {
    Key { keyspace: 0, bytes }
}

#[test]
fn parts_of_values_are_those_that_the_vendor_commands_would_return() {
    for cached in [false, true] {
        let (_standard, device, books) = standard(cached);
        let (_vendor, other, other_books) = crate::rig::pairs(BOTH, false);
        let value: Vec<u8> = (0..10_240u32).map(|at| (at ^ at >> 8) as u8).collect();
        device.store(AUTO, key(b"name"), &value, StoreOptions::default()).unwrap();
        other.store(AUTO, key(b"name"), &value, StoreOptions::default()).unwrap();
        for offset in [0, 512, 8192, 9728, 10_240, 10_752, 16_384, 4 << 20, 100] {
            for bytes in [0, 4, 2048, 4096, 10_240, 65_536] {
                let (mut out, mut expected) = (vec![0xee; bytes], vec![0xee; bytes]);
                let got = device.retrieve(AUTO, key(b"name"), offset, &mut out);
                let want = other.retrieve(AUTO, key(b"name"), offset, &mut expected);
                match (got, want) {
                    (Ok(got), Ok(want)) => assert_eq!(got, want, "{bytes} bytes from {offset}"),
                    (Err(got), Err(want)) => assert_eq!(
                        got.status().map(Status::kind),
                        want.status().map(Status::kind),
                        "{bytes} bytes from {offset}"
                    ),
                    (got, want) => panic!("{bytes} bytes from {offset}: {got:?}, {want:?}"),
                }
                assert_eq!(out, expected, "{bytes} bytes from {offset}");
                let taken = device.retrieve_async(AUTO, key(b"name"), offset, bytes, 1);
                let wanted = other.retrieve_async(AUTO, key(b"name"), offset, bytes, 1);
                assert_eq!(taken.is_ok(), wanted.is_ok(), "{bytes} bytes from {offset}");
                if taken.is_err() {
                    continue;
                }
                books.wait_for(1);
                other_books.wait_for(1);
                let (got, want) = (books.take(1), other_books.take(1));
                assert_eq!(
                    (got.status.kind(), got.value_bytes, got.data_bytes),
                    (want.status.kind(), want.value_bytes, want.data_bytes),
                    "{bytes} bytes from {offset}"
                );
                let (mut out, mut expected) = (vec![0; bytes], vec![0; bytes]);
                got.copy_data(&mut out);
                want.copy_data(&mut expected);
                assert_eq!(out, expected, "{bytes} bytes from {offset}");
            }
        }
    }
}

#[test]
fn what_takes_the_vendor_commands_is_an_error_that_says_so() {
    let (_session, device, _) = standard(false);
    let long = [b'k'; 17];
    let refused = device.store(AUTO, key(&long), b"v", StoreOptions::default()).unwrap_err();
    assert_eq!(refused.status(), Some(status::INVALID_KEY_SIZE));
    let other = Key { keyspace: 1, bytes: b"name" };
    assert_eq!(device.exist(AUTO, other).unwrap_err().status(), Some(status::INVALID_KEYSPACE));
    assert!(matches!(device.append(AUTO, key(b"name"), b"v"), Err(OpError::Unsupported(_))));
    let prefix = Prefix { prefix: 0, bitmask: 0 };
    let pairs = device.iterate_open(AUTO, 0, IterateType::KeyValue, prefix);
    assert!(matches!(pairs, Err(OpError::Unsupported(_))), "{pairs:?}");
}

fn store_numbered(device: &Member, start: &[u8], count: u32) {
    for number in 0..count {
        let name = [start, &number.to_be_bytes()].concat();
        device.store(AUTO, key(&name), b"v", StoreOptions::default()).unwrap();
    }
}

#[test]
fn iterators_are_emulated_over_list() {
    let (_session, device, books) = standard(false);
    store_numbered(&device, b"0000", 3000);
    store_numbered(&device, b"0010", 3000);
    store_numbered(&device, b"1", 50);
    let open = |prefix, bitmask| device.iterate_open(AUTO, 0, IterateType::Key, Prefix { prefix, bitmask });
    let first = open(0x3030_3030, 0xffff_ffff).unwrap();
    // The first twelve bits: both groups of three thousand.
    let second = open(0x3030_0000, 0xfff0_0000).unwrap();
    assert_eq!((first, second), (1, 2));
    let again = open(0x3030_0000, 0xfff0_0000).unwrap_err();
    assert_eq!(again.status(), Some(status::ITERATE_ALREADY_OPEN));
    // The same keys in other words.
    assert_eq!(open(0x3030_7fff, 0xfff0_0000).unwrap(), 3);
    for bits in 0..13 {
        open(0x4040_4040, !(u32::MAX >> 1 >> bits)).unwrap();
    }
    assert_eq!(open(0x5050_5050, 0xffff_ffff).unwrap_err().status(), Some(status::ITERATE_NO_HANDLE));
    let mut buffer = Box::new([0; ITERATE_BYTES]);
    let mut all = Vec::new();
    loop {
        let read = device.iterate_read(AUTO, first, &mut buffer).unwrap();
        all.extend(keys_in(&buffer[..read.bytes]));
        if read.end {
            break;
        }
        // Keys of 8 bytes: 12 bytes each after the number of keys.
        assert_eq!(read.bytes, 4 + 2730 * 12);
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 3000);
    assert!(all.iter().all(|name| name.starts_with(b"0000")));
    assert_eq!(device.iterate_info().unwrap()[0].is_eof, 1);
    assert_eq!(device.iterate_info().unwrap()[1].prefix, *b"00\0\0");
    let read = device.iterate_read(AUTO, first, &mut buffer).unwrap();
    assert_eq!((read.bytes, read.end), (0, true));
    let mut found = 0;
    for token in 0.. {
        device.iterate_read_async(AUTO, second, token).unwrap();
        let outcome = books.take(token);
        let mut data = vec![0; outcome.data_bytes];
        outcome.copy_data(&mut data);
        found += keys_in(&data).len();
        if KvVerdict::of(outcome.status) == KvVerdict::EndOfIteration {
            break;
        }
    }
    assert_eq!(found, 6000);
    device.iterate_close(AUTO, first).unwrap();
    assert!(device.iterate_close(AUTO, first).is_err());
    assert!(device.iterate_read(AUTO, first, &mut buffer).is_err());
    for iterator in [0, 17, 255] {
        assert!(device.iterate_close(AUTO, iterator).is_err());
        assert!(device.iterate_read_async(AUTO, iterator, 1).is_err());
    }
}

#[test]
fn an_iterator_that_deletes_is_emulated_as_well() {
    for cached in [false, true] {
        let (_session, device, _) = standard(cached);
        store_numbered(&device, b"gone", 4000);
        store_numbered(&device, b"kept", 10);
        let prefix = Prefix { prefix: u32::from_be_bytes(*b"gone"), bitmask: 0xffff_ffff };
        let iterator = device.iterate_open(AUTO, 0, IterateType::KeyDelete, prefix).unwrap();
        assert_eq!(device.iterate_info().unwrap()[0].is_eof, 1);
        assert!(device.iterate_read(AUTO, iterator, &mut Box::new([0; ITERATE_BYTES])).is_err());
        device.iterate_close(AUTO, iterator).unwrap();
        for number in [0u32, 1, 2999, 3999] {
            assert!(!device.exist(AUTO, key(&[&b"gone"[..], &number.to_be_bytes()].concat())).unwrap());
        }
        assert!(device.exist(AUTO, key(b"kept\0\0\0\x09")).unwrap());
    }
}
