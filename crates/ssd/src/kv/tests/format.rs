//! What is on the media, and what is not ours.

use super::*;
use crate::kv::layout::{self, RecordHead, RecordKind};

#[test]
fn a_record_is_laid_out_as_documented() {
    let head = RecordHead {
        kind: RecordKind::Value,
        keyspace: 0,
        key_bytes: 16,
        stored_bytes: 100,
        value_bytes: 100,
        compressed: false,
        may_be_twin: false,
        sequence: 1,
    };
    assert_eq!((head.checks_at(), head.head_bytes(), head.record_bytes()), (48, 52, 160));
    assert_eq!(head.data_at(4096), 4148);
    let page = RecordHead { stored_bytes: 4096, value_bytes: 4096, ..head };
    assert_eq!((page.head_bytes(), page.record_bytes(), page.data_at(4112)), (52, 4208, 4224));
    let tombstone = RecordHead { kind: RecordKind::Tombstone, stored_bytes: 0, value_bytes: 0, ..head };
    assert_eq!(tombstone.record_bytes(), 48);
}

#[test]
fn the_bytes_of_a_stored_pair_are_where_the_document_says() {
    let disk = Disk::new(&vec![0; 16 << 20], || {});
    let mut pairs = Pairs::new(create(Box::new(DiskStore(Arc::clone(&disk)))), 0);
    pairs.put(b"0123456789abcdef", b"the value").unwrap();
    let image = disk.image();
    assert_eq!(image[0..8], *b"UNVMEKV\n");
    assert_eq!(image[8..16], [4, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(image[..64], image[4032..4096]);
    let record = &image[4096..4096 + 64];
    assert_eq!(record[8..16], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(record[16..24], [9, 0, 0, 0, 9, 0, 0, 0]);
    assert_eq!(record[24..28], image[40..44]);
    assert_eq!(record[28..32], [16, 0, 0, 0]);
    assert_eq!(record[32..48], *b"0123456789abcdef");
    // CRC-32C of "the value".
    assert_eq!(record[48..52], 0xd5a6_8308u32.to_le_bytes());
    assert_eq!(record[52..61], *b"the value");
}

#[test]
fn another_version_is_refused_by_name() {
    let disk = Disk::new(&vec![0; 16 << 20], || {});
    drop(create(Box::new(DiskStore(Arc::clone(&disk)))));
    let good = disk.image();
    let remedies = [
        (3, "this version knows 4; copy the data out with the unvme that wrote it"),
        (5, "this version knows up to 4; use a newer unvme"),
    ];
    for (version, remedy) in remedies {
        let mut image = good.clone();
        for segment in image.chunks_mut(layout::SEGMENT_BYTES) {
            for version_at in layout::HEADER_AT.into_iter().chain([layout::SUPERBLOCK_AT]) {
                segment[version_at + 8] = version;
            }
        }
        let error =
            try_open(Box::new(DiskStore(Disk::new(&image, || {})))).err().expect("an error").to_string();
        let expected = format!("the key-value store has format {version}, and {remedy}");
        assert!(error.ends_with(&expected), "{error}");
    }
}

#[test]
fn media_without_a_store_is_refused() {
    let error = try_open(memory(16 << 20)).err().expect("an error").to_string();
    assert!(error.contains("there is no key-value store in the namespace"), "{error}");
}

#[test]
fn formatting_leaves_nothing_of_the_store_before() {
    let disk = Disk::new(&vec![0; 16 << 20], || {});
    let mut pairs = Pairs::new(create(Box::new(DiskStore(Arc::clone(&disk)))), 0);
    let value = Random(1).bytes(100_000);
    for number in 0..50u32 {
        pairs.put(&number.to_be_bytes(), &value).unwrap();
    }
    drop(pairs);
    drop(create(Box::new(DiskStore(Arc::clone(&disk)))));
    let mut pairs = Pairs::new(open(Box::new(DiskStore(Arc::clone(&disk)))), 0);
    assert_eq!(pairs.store.stats().pairs, 0);
    assert_eq!(pairs.exist(&3u32.to_be_bytes()), Ok(false));
    assert!(!disk.image().windows(64).any(|window| window == &value[..64]));
}

#[test]
fn a_value_that_looks_like_a_record_is_not_taken_for_one() {
    let disk = Disk::new(&vec![0; 16 << 20], || {});
    let mut pairs = Pairs::new(create(Box::new(DiskStore(Arc::clone(&disk)))), 0);
    pairs.put(b"victim", b"old").unwrap();
    // The whole log so far as a value: every record in it is a copy of a real one.
    let log = disk.image()[4096..4096 + 4096].to_vec();
    pairs.put(b"victim", b"new").unwrap();
    pairs.put(b"forged", &log).unwrap();
    let mut image = disk.image();
    // The end of the first records is damaged beyond repair, so that the scan has to look at every place.
    let forged = image.windows(6).position(|w| w == b"forged").unwrap();
    image[forged] ^= 3;
    let mut pairs = Pairs::new(open(Box::new(DiskStore(Disk::new(&image, || {})))), 0);
    assert_eq!(pairs.get(b"victim").unwrap(), b"new");
    assert_eq!(pairs.exist(b"forged"), Ok(false), "it had not been synced, and the power was cut");
    // When nothing but the process has died, it must be there.
    let mut pairs = Pairs::new(open(Box::new(DiskStore(disk.killed(&image)))), 0);
    assert_eq!(pairs.exist(b"forged"), Err(KvError::Unrecovered));
    assert_ne!(pairs.store.check(), []);
    pairs.store.accept_loss().unwrap();
    assert_eq!(pairs.get(b"victim").unwrap(), b"new");
    assert_eq!(pairs.exist(b"forged"), Ok(false));
}
