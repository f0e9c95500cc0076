//! The entries of both dialects, byte by byte, and what is refused.

use unvme_spec::identify::csi;
use unvme_spec::samsung_kv::{IterateType, KeyspaceField, Prefix, batch_result};
use unvme_spec::{Nsid, Sqe, Status, samsung_kv};

use super::*;
use crate::KvCommand;
use crate::repeat::may_repeat_in;

/// A namespace 7 with both dialects and 256 MiB transfers.
fn both() -> KvNamespace {
    KvNamespace {
        nsid: Nsid(7),
        standard: true,
        vendor: Vendor { basic: true, append: true, batch: true },
        keyspace_field: KeyspaceField::Cdw3,
        standard_key_bytes_max: 16,
        standard_value_bytes_max: 256 << 20,
        vendor_value_bytes_max: 2 << 20,
        delete_missing_is_error: false,
        bytes: 1 << 30,
        keys_max: None,
    }
}

fn standard_only() -> KvNamespace {
    KvNamespace { vendor: Vendor::default(), vendor_value_bytes_max: 0, ..both() }
}

fn vendor_only() -> KvNamespace {
    KvNamespace { standard: false, standard_key_bytes_max: 0, standard_value_bytes_max: 0, ..both() }
}

fn in_keyspace(keyspace: u8, bytes: &[u8]) -> KvKey<'_> {
    KvKey { keyspace, bytes }
}

/// Opcode, NSID, CDW2, CDW3, CDW4, CDW10 to CDW15.
fn words(sqe: &Sqe) -> [u32; 11] {
    [
        sqe.opcode.into(),
        sqe.nsid,
        sqe.cdw2,
        sqe.cdw3,
        sqe.mptr as u32,
        sqe.cdw10,
        sqe.cdw11,
        sqe.cdw12,
        sqe.cdw13,
        sqe.cdw14,
        sqe.cdw15,
    ]
}

fn refused(outcome: Result<KvCommand<'_>, Error>) -> String {
    match outcome {
        Err(e @ (Error::InvalidArgument(_) | Error::Unsupported(_))) => e.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_short_key_goes_out_in_the_standard_set() {
    let key = KvKey::new(b"0123456789abcdef");
    let command = both().store(key, 5, StoreOptions::IF_EXISTS).unwrap();
    assert_eq!((command.bytes, command.long_key, command.is_prp_only), (5, None, false));
    // Key bytes 0 to 7 in CDW2 and 3, 8 to 15 in CDW14 and 15; length and options in CDW11.
    let expected = [1, 7, 0x3332_3130, 0x3736_3534, 0, 5, 0x110, 0, 0, 0x6261_3938, 0x6665_6463];
    assert_eq!(words(&command.sqe), expected);
    let command = both().store(KvKey::new(b"k"), 0, StoreOptions::IF_NOT_EXISTS).unwrap();
    assert_eq!(words(&command.sqe), [1, 7, 0x6b, 0, 0, 0, 0x201, 0, 0, 0, 0]);
    let command = both().retrieve(KvKey::new(b"k"), 0, 4096).unwrap();
    assert_eq!(words(&command.sqe), [2, 7, 0x6b, 0, 0, 4096, 1, 0, 0, 0, 0]);
    let command = both().exist(KvKey::new(b"k")).unwrap();
    assert_eq!(words(&command.sqe), [0x14, 7, 0x6b, 0, 0, 0, 1, 0, 0, 0, 0]);
    let command = both().list(b"k", 1000).unwrap();
    assert_eq!(words(&command.sqe), [6, 7, 0x6b, 0, 0, 1000, 1, 0, 0, 0, 0]);
    assert_eq!(words(&both().flush().sqe), [0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_delete_of_a_key_that_need_not_exist_may_be_repeated() {
    let key = KvKey::new(b"abcd");
    let asks = both().delete(key).unwrap();
    assert!(!may_repeat_in(csi::KEY_VALUE, asks.sqe()));
    for namespace in [both(), vendor_only()] {
        let command = namespace.delete_if_present(key).unwrap();
        assert_eq!(command.sqe().opcode, asks.sqe().opcode);
        assert!(may_repeat_in(csi::KEY_VALUE, command.sqe()));
    }
}

#[test]
fn delete_asks_whether_the_key_was_there_wherever_it_can() {
    let command = both().delete(KvKey::new(b"abcd")).unwrap();
    assert_eq!(words(&command.sqe), [0xa1, 7, 0, 0, 0, 0, 0x103, 0x6463_6261, 0, 0, 0]);
    assert!(both().delete_tells(KvKey::new(b"abcd")));
    for (namespace, key, length) in [(both(), &b"abc"[..], 3), (standard_only(), b"abcd", 4)] {
        let command = namespace.delete(KvKey::new(key)).unwrap();
        assert_eq!((command.sqe.opcode, command.sqe.cdw11), (0x10, length));
        assert!(!namespace.delete_tells(KvKey::new(key)));
    }
}

#[test]
fn what_the_standard_set_cannot_express_is_a_vendor_command() {
    let options = StoreOptions { compress: true, ..StoreOptions::default() };
    // 5 bytes are 2 dwords of which 3 bytes are not used.
    let command = both().store(KvKey::new(b"abcd"), 5, options).unwrap();
    assert_eq!(words(&command.sqe), [0x81, 7, 0, 0, 0, 2, 0x3_0103, 0x6463_6261, 0, 0, 0]);
    assert!(command.is_prp_only);
    let command = both().store(in_keyspace(1, b"abcd"), 4, StoreOptions::IF_NOT_EXISTS).unwrap();
    assert_eq!(words(&command.sqe), [0x81, 7, 0, 1, 0, 1, 0x203, 0x6463_6261, 0, 0, 0]);
    let command = both().store(in_keyspace(1, b"abcd"), 4, StoreOptions::IF_EXISTS).unwrap();
    assert_eq!(command.sqe.cdw11, 0x803);
    let command = both().retrieve(KvKey::new(b"abcd"), 1024, 4095).unwrap();
    assert_eq!(words(&command.sqe), [0x90, 7, 0, 0, 1024, 1024, 0x103, 0x6463_6261, 0, 0, 0]);
    let command = both().append(KvKey::new(b"abcd"), 4).unwrap();
    assert_eq!(words(&command.sqe), [0x83, 7, 0, 0, 0, 1, 3, 0x6463_6261, 0, 0, 0]);
    let command = vendor_only().exist(KvKey::new(b"abcd")).unwrap();
    assert_eq!(words(&command.sqe), [0xb3, 7, 0, 0, 0, 0, 3, 0x6463_6261, 0, 0, 0]);
    // Nothing but the size.
    let command = vendor_only().retrieve(KvKey::new(b"abcd"), 0, 0).unwrap();
    assert_eq!(words(&command.sqe), [0x90, 7, 0, 0, 0, 0, 0x203, 0x6463_6261, 0, 0, 0]);
}

#[test]
fn a_long_key_travels_beside_its_entry() {
    let key = [0x6b; 17];
    let command = both().store(KvKey::new(&key), 4096, StoreOptions::default()).unwrap();
    assert_eq!(command.long_key, Some(&key[..]));
    assert_eq!(words(&command.sqe), [0x81, 7, 0, 0, 0, 1024, 16, 0, 0, 0, 0]);
    let key = [0x6b; 255];
    assert_eq!(both().exist(KvKey::new(&key)).unwrap().sqe.cdw11, 254);
}

#[test]
fn a_keyspace_takes_the_place_of_the_namespace_where_devices_have_it_there() {
    let namespace = KvNamespace { keyspace_field: KeyspaceField::Nsid, ..vendor_only() };
    let command = namespace.exist(in_keyspace(1, b"abcd")).unwrap();
    assert_eq!((command.sqe.nsid, command.sqe.cdw3), (1, 0));
}

#[test]
fn iterators_are_opened_read_and_closed() {
    let prefix = Prefix { prefix: 0x3031_0000, bitmask: 0xffff_0000 };
    let command = both().iterate_open(1, IterateType::Key, prefix).unwrap();
    // Prefix and bitmask are big-endian on the wire.
    assert_eq!(words(&command.sqe), [0xb1, 7, 0, 1, 0, 0, 0x500, 0x3130, 0xffff, 0, 0]);
    let command = both().iterate_read(1, 3).unwrap();
    assert_eq!((words(&command.sqe), command.bytes), ([0xb2, 7, 0, 1, 0, 8192, 3, 0, 0, 0, 0], 32768));
    let command = both().iterate_close(0, 3).unwrap();
    assert_eq!(words(&command.sqe), [0xb1, 7, 0, 0, 0, 0, 0x203, 0, 0, 0, 0]);
    let holes = Prefix { prefix: 0, bitmask: 0xff00_ff00 };
    assert_eq!(
        refused(both().iterate_open(0, IterateType::Key, holes)),
        "namespace 7: an iterator's bitmask of 0xff00ff00: ones from the most significant bit on are expected"
    );
    assert_eq!(refused(both().iterate_read(2, 1)), "namespace 7: keyspace 2: there are 0 and 1");
}

#[test]
fn a_device_without_the_vendor_commands_says_what_they_are_needed_for() {
    let namespace = standard_only();
    let key = KvKey::new(b"abcd");
    let compress = StoreOptions { compress: true, ..StoreOptions::default() };
    let lacking = |what: &str| {
        format!("namespace 7: {what}: that takes Samsung's vendor commands, which this device does not have")
    };
    assert_eq!(refused(namespace.store(key, 1, compress)), lacking("ask for compression"));
    assert_eq!(refused(namespace.retrieve(key, 512, 1)), lacking("retrieve from an offset"));
    assert_eq!(refused(namespace.append(key, 1)), lacking("append to a value"));
    assert_eq!(refused(namespace.iterate_open(0, IterateType::Key, Prefix::default())), lacking("iterators"));
    assert_eq!(
        refused(namespace.exist(KvKey::new(&[1; 17]))),
        "namespace 7: a key of 17 bytes: 1 to 16 are possible; longer ones take Samsung's vendor commands, which this device \
         does not have"
    );
    assert_eq!(
        refused(namespace.exist(in_keyspace(1, b"abcd"))),
        "namespace 7: keyspace 1: there is 0 alone without Samsung's vendor commands"
    );
    assert_eq!(
        refused(namespace.store(key, (256 << 20) + 1, StoreOptions::default())),
        "namespace 7: a command moves at most 268435456 bytes of a value here"
    );
}

#[test]
fn keys_and_values_that_no_command_takes_are_refused() {
    let exist = |namespace: KvNamespace, bytes: &[u8]| refused(namespace.exist(KvKey::new(bytes)));
    assert_eq!(exist(both(), b""), "namespace 7: a key of 0 bytes: 1 to 255 are possible");
    assert_eq!(exist(both(), &[1; 256]), "namespace 7: a key of 256 bytes: 1 to 255 are possible");
    assert_eq!(exist(standard_only(), &[1; 256]), "namespace 7: a key of 256 bytes: 1 to 16 are possible");
    assert_eq!(exist(vendor_only(), b"abc"), "namespace 7: a key of 3 bytes: 4 to 255 are possible");
    assert_eq!(
        refused(both().exist(in_keyspace(1, b"abc"))),
        "namespace 7: use keyspace 1 with a key of 3 bytes: that takes Samsung's vendor commands, whose keys have 4 bytes or \
         more"
    );
    let store = |bytes: usize| refused(both().store(KvKey::new(&[1; 17]), bytes, StoreOptions::default()));
    assert_eq!(
        store((2 << 20) + 1),
        "namespace 7: 2097153 bytes under a key of 17 bytes: this key or option takes a vendor command, and those move at \
         most 2097152 bytes"
    );
    assert_eq!(
        store((256 << 20) + 1),
        "namespace 7: 268435457 bytes under a key of 17 bytes: a command moves at most 268435456 bytes here"
    );
    assert_eq!(
        refused(both().retrieve(KvKey::new(b"abcd"), 100, 4)),
        "namespace 7: retrieve from byte 100: a multiple of 512 is expected"
    );
    assert!(
        refused(both().list(b"", 3)).contains("into 3 bytes: at most 16 and 4 to 268435456 are expected")
    );
    assert!(refused(both().list(&[1; 17], 4096)).contains("list from a key of 17 bytes"));
    assert!(refused(vendor_only().list(b"", 4096)).contains("Key Value Command Set, which List is part of"));
}

#[test]
fn a_batch_has_a_status_for_each_of_its_commands() {
    // Commands 0 to 10, four bits each in dword 0.
    let result = 0x0000_00a9_u64;
    assert_eq!(KvNamespace::batch_status(result, 0), samsung_kv::status::IDEMPOTENT_STORE_FAIL);
    assert_eq!(KvVerdict::of(KvNamespace::batch_status(result, 0)), KvVerdict::Exists);
    assert_eq!(KvVerdict::of(KvNamespace::batch_status(result, 1)), KvVerdict::NotFound);
    assert_eq!(KvVerdict::of(KvNamespace::batch_status(result, 2)), KvVerdict::Done);
    let full = u64::from(batch_result::with(0, 7, batch_result::CAPACITY_EXCEEDED));
    assert_eq!(KvVerdict::of(KvNamespace::batch_status(full, 7)), KvVerdict::Full);
    assert_eq!(KvVerdict::of(KvNamespace::batch_status(0xf, 0)), KvVerdict::Failed);
}

#[test]
fn a_verdict_is_the_same_in_either_dialect() {
    let verdict = |kind, code| KvVerdict::of(Status::new(kind, code).with_do_not_retry());
    assert_eq!(verdict(0, 0x00), KvVerdict::Done);
    assert_eq!((verdict(0, 0x87), verdict(3, 0x10)), (KvVerdict::NotFound, KvVerdict::NotFound));
    assert_eq!((verdict(0, 0x89), verdict(3, 0x80)), (KvVerdict::Exists, KvVerdict::Exists));
    assert_eq!((verdict(0, 0x81), verdict(3, 0x12)), (KvVerdict::Full, KvVerdict::Full));
    assert_eq!(verdict(3, 0x93), KvVerdict::EndOfIteration);
    assert_eq!(
        (verdict(0, 0x88), verdict(3, 0x11), verdict(3, 0x71)),
        (KvVerdict::Failed, KvVerdict::Failed, KvVerdict::Failed)
    );
}
