//! The Key Value Command Set through the queue, byte by byte (KV 1.3, section 3).

mod host;

use host::blocks::pattern;
use host::pairs::{DELETE, EXIST, LIST, RETRIEVE, STORE, standard};
use host::{DATA, Host, sqe};
use unvme_spec::{Sqe, Status};

const MUST_EXIST: u32 = 1;
const MUST_NOT_EXIST: u32 = 2;
const NO_COMPRESSION: u32 = 4;

#[test]
fn a_value_that_is_stored_is_retrieved() {
    let mut host = Host::with_pairs();
    for (key, bytes) in [
        (&b"k"[..], 0),
        (b"ab", 1),
        (b"abc", 100),
        (b"abcd", 511),
        (b"eight by", 4096),
        (b"nine byte", 4097),
        (b"fifteen bytes..", 70_000),
        (b"sixteen bytes...", 256 << 10),
    ] {
        let value = pattern(key.len() as u8, bytes);
        assert_eq!(host.exist(key), Err(Status::KEY_NOT_FOUND));
        assert_eq!(host.store(key, &value), Ok(0));
        assert_eq!(host.exist(key), Ok(0));
        assert!(host.value(key) == Ok(value), "a value of {bytes} bytes");
    }
}

#[test]
fn a_value_is_replaced_by_another_of_any_size() {
    let mut host = Host::with_pairs();
    for bytes in [10, 5000, 0, 1, 64 << 10, 3] {
        let value = pattern(bytes as u8, bytes);
        assert_eq!(host.store(b"key", &value), Ok(0));
        assert_eq!(host.value(b"key"), Ok(value));
    }
}

#[test]
fn dword_0_is_the_length_of_the_whole_value_and_the_buffer_gets_what_fits() {
    let mut host = Host::with_pairs();
    let value = pattern(7, 10_000);
    host.store(b"key", &value).unwrap();
    for bytes in [0, 1, 4, 4095, 4096, 9999, 10_000, 10_001, 20_000] {
        let (length, data) = host.retrieve(b"key", bytes).unwrap();
        assert_eq!((length, data.len()), (10_000, bytes.min(10_000)));
        assert!(data == value[..data.len()]);
    }
}

#[test]
fn keys_differ_in_their_length_and_in_every_byte() {
    let mut host = Host::with_pairs();
    let keys: Vec<Vec<u8>> = (1..=16)
        .map(|length| vec![0; length])
        .chain((0..16).map(|at| {
            let mut key = vec![0; 16];
            key[at] = 1;
            key
        }))
        .collect();
    for (number, key) in keys.iter().enumerate() {
        host.store(key, &[number as u8; 9]).unwrap();
    }
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(host.value(key), Ok(vec![number as u8; 9]), "{key:?}");
    }
}

#[test]
fn a_key_that_is_too_short_or_too_long_is_refused_by_every_command() {
    let mut host = Host::with_pairs();
    for opcode in [STORE, RETRIEVE, DELETE, EXIST] {
        let command = host.with_buffer(standard(opcode, b""), 8);
        assert_eq!(host.io(command), Err(Status::INVALID_KEY_SIZE), "opcode {opcode:#x}");
        for length in [17, 255] {
            let command = Sqe { cdw11: length, ..command };
            assert_eq!(host.io(command), Err(Status::INVALID_FIELD), "opcode {opcode:#x}");
        }
    }
    let list = Sqe { cdw10: 64, cdw11: 17, ..host.with_buffer(standard(LIST, b""), 64) };
    assert_eq!(host.io(list), Err(Status::INVALID_FIELD));
}

#[test]
fn store_can_ask_that_the_key_is_there_or_is_not() {
    let mut host = Host::with_pairs();
    assert_eq!(host.store_with(b"key", b"1", MUST_EXIST), Err(Status::KEY_NOT_FOUND));
    assert_eq!(host.exist(b"key"), Err(Status::KEY_NOT_FOUND));
    assert_eq!(host.store_with(b"key", b"2", MUST_NOT_EXIST), Ok(0));
    assert_eq!(host.store_with(b"key", b"3", MUST_NOT_EXIST), Err(Status::KEY_EXISTS));
    assert_eq!(host.value(b"key"), Ok(b"2".to_vec()));
    assert_eq!(host.store_with(b"key", b"4", MUST_EXIST | NO_COMPRESSION), Ok(0));
    assert_eq!(host.value(b"key"), Ok(b"4".to_vec()));
    assert_eq!(host.store_with(b"key", b"5", MUST_EXIST | MUST_NOT_EXIST), Err(Status::INVALID_FIELD));
}

#[test]
fn a_value_longer_than_256_mib_is_refused() {
    let mut host = Host::with_pairs();
    let store = Sqe { cdw10: (256 << 20) + 1, ..host.with_value(standard(STORE, b"key"), b"x") };
    assert_eq!(host.io(store), Err(Status::INVALID_VALUE_SIZE));
    let store = Sqe { cdw10: u32::MAX, ..store };
    assert_eq!(host.io(store), Err(Status::INVALID_VALUE_SIZE));
}

#[test]
fn deleting_what_is_not_there_is_an_error_when_the_host_says_so() {
    let mut host = Host::with_pairs();
    host.store(b"key", b"value").unwrap();
    assert_eq!(host.delete(b"key"), Ok(0));
    assert_eq!(host.retrieve(b"key", 8), Err(Status::KEY_NOT_FOUND));
    assert_eq!(host.delete(b"key"), Ok(0));
    // Set Features 20h, bit 0: EDNEK.
    let configure = |value| Sqe { cdw10: 0x20, cdw11: value, ..sqe(0x09, 1) };
    assert_eq!(host.admin(configure(1)), Ok(0));
    assert_eq!(host.admin(Sqe { cdw10: 0x20, ..sqe(0x0a, 1) }), Ok(1));
    assert_eq!(host.delete(b"key"), Err(Status::KEY_NOT_FOUND));
    host.store(b"key", b"value").unwrap();
    assert_eq!(host.delete(b"key"), Ok(0));
    assert_eq!(host.admin(configure(0)), Ok(0));
    assert_eq!(host.delete(b"key"), Ok(0));
    // A value that is not saved is gone after a reset, one that is saved is back.
    for (save, after) in [(0, 0), (1 << 31, 1)] {
        host.admin(Sqe { cdw10: save | 0x20, ..configure(1) }).unwrap();
        host.disable();
        host.enable_all();
        host.create_queue_pair(1, 64);
        assert_eq!(host.admin(Sqe { cdw10: 0x20, ..sqe(0x0a, 1) }), Ok(after));
        assert_eq!(host.delete(b"key").is_err(), after == 1);
    }
}

#[test]
fn a_list_has_all_keys_in_order_from_the_one_it_starts_with() {
    let mut host = Host::with_pairs();
    for key in [&b"b"[..], b"a", b"ab", b"\0", b"abcdefghijklmnop", b"\xff\xff", b"aa"] {
        host.store(key, b"value").unwrap();
    }
    let all = [&b"\0"[..], b"a", b"aa", b"ab", b"abcdefghijklmnop", b"b", b"\xff\xff"];
    let (keys, data) = host.list(b"", 4096).unwrap();
    assert_eq!(keys, all);
    assert_eq!(data[..12], [7, 0, 0, 0, 1, 0, 0, 0, 1, 0, b'a', 0]);
    assert_eq!(host.list(b"aa", 4096).unwrap().0, all[2..]);
    // A key that is not there starts with the next greater one.
    assert_eq!(host.list(b"aaa", 4096).unwrap().0, all[3..]);
    assert_eq!(host.list(b"\xff\xff\xff", 4096).unwrap().0, [b""; 0]);
    host.delete(b"ab").unwrap();
    assert_eq!(host.list(b"aa", 4096).unwrap().0, [&b"aa"[..], b"abcdefghijklmnop", b"b", b"\xff\xff"]);
}

#[test]
fn a_list_holds_whole_keys_only_and_goes_on_from_the_last() {
    let mut host = Host::with_pairs();
    let all: Vec<Vec<u8>> =
        (0..200u32).map(|n| format!("key {n:03}").into_bytes()[..5 + n as usize % 3].to_vec()).collect();
    let mut all: Vec<Vec<u8>> = all;
    for key in &all {
        host.store(key, b"v").unwrap();
    }
    all.sort();
    all.dedup();
    let mut seen = host.list(b"", 100).unwrap().0;
    loop {
        let last = seen.last().unwrap().clone();
        let (keys, data) = host.list(&last, 100).unwrap();
        assert!(data.len() <= 100);
        assert_eq!(keys[0], last, "the key it starts with is the first");
        if keys.len() == 1 {
            break;
        }
        seen.extend_from_slice(&keys[1..]);
    }
    assert_eq!(seen, all);
}

#[test]
fn a_list_needs_room_for_the_number_of_keys() {
    let mut host = Host::with_pairs();
    host.store(b"k", b"").unwrap();
    for bytes in [0, 3] {
        assert_eq!(host.list(b"", bytes).err(), Some(Status::INVALID_FIELD), "{bytes} bytes");
    }
    assert_eq!(host.list(b"", 4).unwrap(), (vec![], vec![0; 4]));
    assert_eq!(host.list(b"", 7).unwrap().0, [b""; 0]);
    assert_eq!(host.list(b"", 8).unwrap().0, [b"k"]);
}

#[test]
fn a_flush_is_for_one_namespace_or_all_and_other_commands_for_one_alone() {
    let mut host = Host::with_pairs();
    assert_eq!(host.io(sqe(0x00, 1)), Ok(0));
    assert_eq!(host.io(sqe(0x00, u32::MAX)), Ok(0));
    assert_eq!(host.io(sqe(0x00, 2)), Err(Status::INVALID_FIELD));
    for opcode in [STORE, RETRIEVE, LIST, DELETE, EXIST] {
        let all = Sqe { nsid: u32::MAX, ..host.with_buffer(standard(opcode, b"key"), 64) };
        let refused = host.io(all).unwrap_err();
        assert!(
            matches!(refused, Status::INVALID_NAMESPACE_OR_FORMAT | Status::INVALID_OPCODE),
            "{opcode:#x}: {refused}"
        );
    }
}

#[test]
fn commands_of_the_nvm_command_set_are_none_of_this_one() {
    let mut host = Host::with_pairs();
    for opcode in [0x04, 0x05, 0x08, 0x09, 0x0c, 0x0d, 0x11, 0x15, 0x19, 0x7f] {
        assert_eq!(host.io(sqe(opcode, 1)), Err(Status::INVALID_OPCODE), "{opcode:#x}");
    }
}

#[test]
fn a_data_pointer_that_leads_nowhere_stores_and_retrieves_nothing() {
    let mut host = Host::with_pairs();
    let nowhere = Sqe { dptr: [0x10_0000_0000, 0], cdw10: 8, ..standard(STORE, b"key") };
    assert_eq!(host.io(nowhere), Err(Status::DATA_TRANSFER_ERROR));
    assert_eq!(host.exist(b"key"), Err(Status::KEY_NOT_FOUND));
    host.store(b"key", b"12345678").unwrap();
    let nowhere = Sqe { dptr: [0x10_0000_0000, 0], cdw10: 8, ..standard(RETRIEVE, b"key") };
    assert_eq!(host.io(nowhere), Err(Status::DATA_TRANSFER_ERROR));
    let odd = Sqe { dptr: [host::BASE + DATA as u64 + 2, 0], ..nowhere };
    assert_eq!(host.io(odd), Err(Status::PRP_OFFSET_INVALID));
    let reserved = Sqe { flags: 0xc0, dptr: [host::BASE + DATA as u64, 0], ..nowhere };
    assert_eq!(host.io(reserved), Err(Status::INVALID_FIELD));
}

#[test]
fn a_transfer_is_no_larger_than_mdts() {
    let config = unvme_ssd::SsdConfig { transfer_bytes_max: Some(8192), ..host::pairs::kv_config() };
    let mut host = Host::attach(host::device(config));
    host.enable_all();
    host.create_queue_pair(1, 8);
    assert_eq!(host.store(b"key", &[1; 8192]), Ok(0));
    assert_eq!(host.store(b"key", &[1; 8193]), Err(Status::INVALID_FIELD));
    assert_eq!(host.retrieve(b"key", 8193).err(), Some(Status::INVALID_FIELD));
    assert_eq!(host.list(b"", 8196).err(), Some(Status::INVALID_FIELD));
}
