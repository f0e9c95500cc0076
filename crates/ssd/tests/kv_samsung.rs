//! The vendor commands of Samsung's KV SSDs through the queue, byte by byte.

mod host;

use host::blocks::pattern;
use host::pairs::{
    ITERATE_READ, ITERATE_REQUEST, KEYS, VENDOR_APPEND, VENDOR_DELETE, VENDOR_EXIST, VENDOR_RETRIEVE,
    VENDOR_STORE, keys_of, samsung, vendor,
};
use host::{BASE, DATA, Host, sqe};
use unvme_spec::{Sqe, Status};

const COMPRESS: u32 = 1;
const IDEMPOTENT: u32 = 2;
const UPDATE_ONLY: u32 = 8;

const KEY: u32 = 0x04;
const KEY_VALUE: u32 = 0x08;
const KEY_DELETE: u32 = 0x10;

#[test]
fn keys_of_4_to_255_bytes_have_values_of_any_size() {
    let mut host = Host::with_pairs();
    for length in [4, 5, 15, 16, 17, 18, 31, 32, 64, 100, 200, 254, 255] {
        let (key, value) =
            (pattern(length as u8, length), pattern(length as u8 ^ 0xff, length * 97 + length % 4));
        assert_eq!(host.vendor_exist(0, &key), Err(vendor(0x10)));
        assert_eq!(host.vendor_store(VENDOR_STORE, 0, &key, &value, 0), Ok(0));
        assert_eq!(host.vendor_exist(0, &key), Ok(0));
        assert!(host.vendor_value(0, &key) == Ok(value), "a key of {length} bytes");
    }
}

#[test]
fn a_value_has_as_many_bytes_as_its_dwords_less_the_unused_ones() {
    let mut host = Host::with_pairs();
    for bytes in 0..10 {
        let value = pattern(9, bytes);
        host.vendor_store(VENDOR_STORE, 0, b"keys", &value, 0).unwrap();
        assert_eq!(host.vendor_value(0, b"keys"), Ok(value));
    }
    // No dwords, and yet unused bytes.
    let nothing = Sqe { cdw11: 3 | 1 << 16, ..samsung(&host, VENDOR_STORE, 0, b"keys") };
    assert_eq!(host.io(nothing), Err(vendor(0x01)));
}

#[test]
fn keys_that_are_too_short_or_too_long_are_refused() {
    let mut host = Host::with_pairs();
    for opcode in [VENDOR_STORE, VENDOR_APPEND, VENDOR_RETRIEVE, VENDOR_DELETE, VENDOR_EXIST] {
        for length in [1, 3, 256] {
            let mut command = samsung(&host, opcode, 0, b"0123456789abcdef0");
            command.cdw11 = length - 1;
            assert_eq!(host.io(command), Err(vendor(0x03)), "opcode {opcode:#x}, {length} bytes");
        }
    }
}

#[test]
fn a_key_in_memory_may_cross_a_page_anywhere() {
    let mut host = Host::with_pairs();
    let key = pattern(77, 255);
    host.vendor_store(VENDOR_STORE, 1, &key, b"value", 0).unwrap();
    // The second page is not the one behind the first.
    let second = KEYS + 4096;
    for first_bytes in (4..255).step_by(4) {
        let first = KEYS - 4096 + 4096 - first_bytes;
        host.memory.write(first, &key[..first_bytes]);
        host.memory.write(second, &key[first_bytes..]);
        let [low, high] = [BASE + first as u64, BASE + second as u64];
        let command = Sqe {
            cdw12: low as u32,
            cdw13: (low >> 32) as u32,
            cdw14: high as u32,
            cdw15: (high >> 32) as u32,
            ..samsung(&host, VENDOR_EXIST, 1, &key)
        };
        assert_eq!(host.io(command), Ok(0), "{first_bytes} bytes in the first page");
    }
    let nowhere = Sqe { cdw12: 0, cdw13: 0x80, ..samsung(&host, VENDOR_EXIST, 1, &key) };
    assert_eq!(host.io(nowhere), Err(Status::DATA_TRANSFER_ERROR));
}

#[test]
fn two_keyspaces_know_nothing_of_each_other_and_there_is_no_third() {
    let mut host = Host::with_pairs();
    host.vendor_store(VENDOR_STORE, 0, b"same key", b"zero", 0).unwrap();
    host.vendor_store(VENDOR_STORE, 1, b"same key", b"one", 0).unwrap();
    assert_eq!(host.vendor_value(0, b"same key"), Ok(b"zero".to_vec()));
    assert_eq!(host.vendor_value(1, b"same key"), Ok(b"one".to_vec()));
    host.vendor_delete(0, b"same key", 0).unwrap();
    assert_eq!(host.vendor_exist(0, b"same key"), Err(vendor(0x10)));
    assert_eq!(host.vendor_value(1, b"same key"), Ok(b"one".to_vec()));
    for keyspace in [2, 255, 256, u32::MAX] {
        for opcode in [VENDOR_STORE, VENDOR_APPEND, VENDOR_RETRIEVE, VENDOR_DELETE, VENDOR_EXIST] {
            let command = samsung(&host, opcode, keyspace, b"same key");
            assert_eq!(host.io(command), Err(vendor(0x05)), "opcode {opcode:#x}, keyspace {keyspace}");
        }
        assert_eq!(host.iterate_open(keyspace, *b"same", !0, KEY), Err(vendor(0x05)));
    }
}

#[test]
fn a_store_can_be_idempotent_or_an_update() {
    let mut host = Host::with_pairs();
    assert_eq!(host.vendor_store(VENDOR_STORE, 0, b"keys", b"1", UPDATE_ONLY), Err(vendor(0x10)));
    assert_eq!(host.vendor_store(VENDOR_STORE, 0, b"keys", b"2", IDEMPOTENT), Ok(0));
    assert_eq!(host.vendor_store(VENDOR_STORE, 0, b"keys", b"3", IDEMPOTENT), Err(vendor(0x80)));
    assert_eq!(host.vendor_value(0, b"keys"), Ok(b"2".to_vec()));
    assert_eq!(host.vendor_store(VENDOR_STORE, 0, b"keys", b"4", UPDATE_ONLY), Ok(0));
    assert_eq!(host.vendor_value(0, b"keys"), Ok(b"4".to_vec()));
    assert_eq!(
        host.vendor_store(VENDOR_STORE, 0, b"keys", b"5", UPDATE_ONLY | IDEMPOTENT),
        Err(vendor(0x04))
    );
}

#[test]
fn a_compressed_value_takes_less_space_and_comes_back_as_it_was() {
    let mut host = Host::with_pairs();
    let value = vec![b'x'; 100_000];
    let used = |host: &mut Host| {
        let page = host.admin_in(Sqe { cdw10: 0x05, cdw11: 1 << 24, ..sqe(0x06, 1) }, 4096).unwrap();
        u64::from_le_bytes(page[16..24].try_into().unwrap())
    };
    let empty = used(&mut host);
    host.vendor_store(VENDOR_STORE, 0, b"plain", &value, 0).unwrap();
    let plain = used(&mut host) - empty;
    host.vendor_store(VENDOR_STORE, 0, b"packed", &value, COMPRESS).unwrap();
    let packed = used(&mut host) - empty - plain;
    assert!(plain >= 100_000 && packed < 10_000, "{plain} and {packed} bytes");
    assert!(host.vendor_value(0, b"packed").unwrap() == value);
    assert!(host.value(b"packed").unwrap() == value, "by the other command set");
    let (length, data) = host.vendor_retrieve(0, b"packed", 99_840, 4096).unwrap();
    assert_eq!((length, data), (100_000, vec![b'x'; 160]));
    // Raw: as it is stored.
    let raw = host::pairs::standard(host::pairs::RETRIEVE, b"packed");
    let (length, data) = host.retrieve_with(Sqe { cdw11: raw.cdw11 | 1 << 8, ..raw }, 100_000).unwrap();
    assert!(length < 10_000 && data.len() == length as usize, "{length} bytes");
}

#[test]
fn options_that_mean_nothing_are_refused() {
    let mut host = Host::with_pairs();
    host.vendor_store(VENDOR_STORE, 0, b"keys", b"value", 0).unwrap();
    for (opcode, options) in [
        (VENDOR_STORE, &[16u32, 32, 64, 128][..]),
        (VENDOR_APPEND, &[2, 8, 16, 128]),
        (VENDOR_RETRIEVE, &[4, 8, 128]),
        (VENDOR_DELETE, &[2, 4, 128]),
        (VENDOR_EXIST, &[1, 128]),
        (ITERATE_READ, &[1, 128]),
    ] {
        for option in options {
            let mut command = samsung(&host, opcode, 0, b"keys");
            command.cdw11 |= option << 8;
            let command = host.with_buffer(command, 64);
            assert_eq!(host.io(command), Err(vendor(0x04)), "opcode {opcode:#x}, option {option}");
        }
    }
}

#[test]
fn a_value_of_256_mib_is_the_largest() {
    let mut host = Host::with_pairs();
    let value = pattern(3, 2 << 20);
    host.vendor_store(VENDOR_STORE, 0, b"large", &value, 0).unwrap();
    let (length, data) = host.vendor_retrieve(0, b"large", 0, 2 << 20).unwrap();
    assert!(length == 2 << 20 && data == value);
    for opcode in [VENDOR_STORE, VENDOR_APPEND, VENDOR_RETRIEVE] {
        let command = Sqe { cdw10: 67_108_865, ..samsung(&host, opcode, 0, b"large") };
        assert_eq!(host.io(command), Err(vendor(0x01)), "opcode {opcode:#x}");
    }
    // The unused bytes of a dword too many do not save it; those of the last that fits do not matter.
    let mut command = samsung(&host, VENDOR_STORE, 0, b"large");
    (command.cdw10, command.cdw11) = (67_108_866, command.cdw11 | 3 << 16);
    assert_eq!(host.io(command), Err(vendor(0x01)));
}

#[test]
fn a_value_is_retrieved_from_offsets_in_steps_of_512() {
    let mut host = Host::with_pairs();
    let value = pattern(5, 10_240);
    host.vendor_store(VENDOR_STORE, 0, b"ten KiB", &value, 0).unwrap();
    // The worked cases of the programming guide.
    for (bytes, offset, got) in
        [(10_240, 0, 10_240), (4096, 0, 4096), (4096, 8192, 2048), (20_480, 0, 10_240), (4096, 512, 4096)]
    {
        let (length, data) = host.vendor_retrieve(0, b"ten KiB", offset, bytes).unwrap();
        assert_eq!((length, data.len()), (10_240, got));
        assert!(data == value[offset as usize..][..got]);
    }
    assert_eq!(host.vendor_retrieve(0, b"ten KiB", 9728, 512).unwrap().1, value[9728..]);
    for offset in [10_240, 10_752, 1 << 30] {
        let refused = host.vendor_retrieve(0, b"ten KiB", offset, 512);
        assert_eq!(refused.err(), Some(vendor(0x02)), "offset {offset}");
    }
    for offset in [1, 4, 511, 513] {
        let refused = host.vendor_retrieve(0, b"ten KiB", offset, 512);
        assert_eq!(refused.err(), Some(vendor(0x09)), "offset {offset}");
    }
    host.vendor_store(VENDOR_STORE, 0, b"empty", b"", 0).unwrap();
    assert_eq!(host.vendor_retrieve(0, b"empty", 0, 512), Ok((0, vec![])));
    // A store has no offset.
    let store = samsung(&host, VENDOR_STORE, 0, b"keys");
    let store = Sqe { cdw10: 1, mptr: 512, ..host.with_value(store, b"1234") };
    assert_eq!(host.io(store), Err(vendor(0x02)));
}

#[test]
fn the_size_of_a_value_is_to_be_had_without_its_data() {
    let mut host = Host::with_pairs();
    host.vendor_store(VENDOR_STORE, 0, b"keys", &[1; 12_345], 0).unwrap();
    let mut size_only = samsung(&host, VENDOR_RETRIEVE, 0, b"keys");
    (size_only.cdw10, size_only.cdw11) = (1024, size_only.cdw11 | 2 << 8);
    let size_only = host.with_buffer(size_only, 4096);
    assert_eq!(host.io(size_only), Ok(12_345));
    assert_eq!(host.bytes(DATA, 4096), [0xee; 4096]);
    assert_eq!(host.vendor_retrieve(0, b"none", 0, 512).err(), Some(vendor(0x10)));
}

#[test]
fn what_is_appended_comes_behind_what_is_there() {
    let mut host = Host::with_pairs();
    let mut model = Vec::new();
    for (round, bytes) in [5, 0, 4091, 1, 70_000, 3].into_iter().enumerate() {
        let part = pattern(round as u8, bytes);
        model.extend_from_slice(&part);
        assert_eq!(host.vendor_store(VENDOR_APPEND, 0, b"keys", &part, 0), Ok(model.len() as u64));
        assert!(host.vendor_value(0, b"keys").unwrap() == model, "round {round}");
    }
}

#[test]
fn a_delete_can_ask_that_the_key_is_there() {
    let mut host = Host::with_pairs();
    host.vendor_store(VENDOR_STORE, 0, b"keys", b"v", 0).unwrap();
    assert_eq!(host.vendor_delete(0, b"keys", 1), Ok(0));
    assert_eq!(host.vendor_delete(0, b"keys", 1), Err(vendor(0x10)));
    assert_eq!(host.vendor_delete(0, b"keys", 0), Ok(0));
}

#[test]
fn data_pointers_are_prps() {
    let mut host = Host::with_pairs();
    for flags in [0x40, 0x80, 0xc0] {
        for opcode in [VENDOR_STORE, VENDOR_RETRIEVE, VENDOR_DELETE, VENDOR_EXIST, 0x85, ITERATE_READ] {
            let command = Sqe { flags, ..samsung(&host, opcode, 0, b"keys") };
            assert_eq!(host.io(command), Err(Status::INVALID_FIELD), "opcode {opcode:#x}, flags {flags:#x}");
        }
    }
}

#[test]
fn unknown_vendor_opcodes_and_namespaces_are_refused() {
    let mut host = Host::with_pairs();
    for opcode in [0x80, 0x82, 0x91, 0xa0, 0xb0, 0xff] {
        assert_eq!(host.io(sqe(opcode, 1)), Err(Status::INVALID_OPCODE), "{opcode:#x}");
    }
    let elsewhere = Sqe { nsid: 2, ..samsung(&host, VENDOR_EXIST, 0, b"keys") };
    assert_eq!(host.io(elsewhere), Err(Status::INVALID_OPCODE));
}

#[test]
fn each_command_set_sees_what_the_other_has_stored() {
    let mut host = Host::with_pairs();
    host.store(b"by the standard", b"1").unwrap();
    assert_eq!(host.vendor_value(0, b"by the standard"), Ok(b"1".to_vec()));
    assert_eq!(host.vendor_exist(1, b"by the standard"), Err(vendor(0x10)));
    host.vendor_store(VENDOR_STORE, 0, b"by the vendor", b"2", 0).unwrap();
    assert_eq!(host.value(b"by the vendor"), Ok(b"2".to_vec()));
    host.vendor_store(VENDOR_STORE, 0, b"longer than sixteen", b"3", 0).unwrap();
    host.vendor_store(VENDOR_STORE, 1, b"elsewhere", b"4", 0).unwrap();
    host.store(b"abc", b"5").unwrap();
    // A list has the keys that the standard set can name.
    assert_eq!(host.list(b"", 4096).unwrap().0, [&b"abc"[..], b"by the standard", b"by the vendor"]);
    host.delete(b"by the vendor").unwrap();
    assert_eq!(host.vendor_exist(0, b"by the vendor"), Err(vendor(0x10)));
}

#[test]
fn the_keyspace_takes_the_place_of_the_namespace_where_the_device_is_told_so() {
    let config = unvme_ssd::SsdConfig {
        keyspace_field: unvme_spec::samsung_kv::KeyspaceField::Nsid,
        ..host::pairs::kv_config()
    };
    let mut host = Host::attach(host::device(config));
    host.enable_all();
    host.create_queue_pair(1, 8);
    for keyspace in 0..2 {
        let store = Sqe { nsid: keyspace, cdw10: 1, ..samsung(&host, VENDOR_STORE, 7, b"keys") };
        let store = host.with_value(store, &[keyspace as u8 + b'0'; 4]);
        assert_eq!(host.io(store), Ok(0));
    }
    for keyspace in 0..2 {
        let retrieve = Sqe { nsid: keyspace, cdw10: 1, ..samsung(&host, VENDOR_RETRIEVE, 7, b"keys") };
        let retrieve = host.with_buffer(retrieve, 4);
        assert_eq!(host.io(retrieve), Ok(4));
        assert_eq!(host.bytes(DATA, 4), [keyspace as u8 + b'0'; 4]);
    }
    let third = Sqe { nsid: 2, ..samsung(&host, VENDOR_EXIST, 0, b"keys") };
    assert_eq!(host.io(third), Err(vendor(0x05)));
    // The standard command set has namespaces.
    assert_eq!(host.value(b"keys"), Ok(b"0000".to_vec()));
}

#[test]
fn an_iterator_returns_the_keys_that_begin_as_it_says_and_then_its_end() {
    let mut host = Host::with_pairs();
    for n in 0..2000u32 {
        host.vendor_store(VENDOR_STORE, 0, format!("user{n:012}").as_bytes(), b"v", 0).unwrap();
    }
    for key in ["other", "usex", "useful", "use1"] {
        host.vendor_store(VENDOR_STORE, 0, key.as_bytes(), b"v", 0).unwrap();
    }
    host.vendor_store(VENDOR_STORE, 1, b"user elsewhere", b"v", 0).unwrap();
    assert_eq!(host.iterate_open(0, *b"user", !0, KEY), Ok(1));
    let (status, data) = host.iterate_read(1);
    assert_eq!((status, data.len()), (Status::SUCCESS, 4 + 1638 * 20));
    let mut keys = keys_of(&data);
    // The last keys come with the end.
    let (status, data) = host.iterate_read(1);
    assert_eq!((status, data.len()), (vendor(0x93), 4 + 362 * 20));
    keys.extend(keys_of(&data));
    keys.sort();
    let expected: Vec<Vec<u8>> = (0..2000u32).map(|n| format!("user{n:012}").into_bytes()).collect();
    assert!(keys == expected);
    for _ in 0..3 {
        assert_eq!(host.iterate_read(1), (vendor(0x93), vec![]));
    }
    assert_eq!(host.iterate_close(1), Ok(0));
    // Three bytes of the prefix count.
    assert_eq!(host.iterate_open(0, *b"usez", 0xffff_ff00, KEY), Ok(1));
    let mut count = 0;
    loop {
        let (status, data) = host.iterate_read(1);
        count += keys_of(&data).len();
        if status == vendor(0x93) {
            break;
        }
    }
    assert_eq!(count, 2003);
    assert_eq!(host.iterate_open(1, *b"user", !0, KEY), Ok(2));
    assert_eq!(keys_of(&host.iterate_read(2).1), [b"user elsewhere"]);
    assert_eq!(host.iterate_open(0, *b"none", !0, KEY), Ok(3));
    assert_eq!(host.iterate_read(3), (vendor(0x93), vec![]));
}

#[test]
fn there_are_sixteen_iterators_and_the_lowest_that_is_free_is_taken() {
    let mut host = Host::with_pairs();
    for n in 0..16u8 {
        assert_eq!(host.iterate_open(0, [n, 0, 0, 0], 0xff00_0000, KEY), Ok(u64::from(n) + 1));
    }
    assert_eq!(host.iterate_open(0, [99, 0, 0, 0], 0xff00_0000, KEY), Err(vendor(0x91)));
    assert_eq!(host.iterate_close(7), Ok(0));
    assert_eq!(host.iterate_close(3), Ok(0));
    assert_eq!(host.iterate_open(0, [4, 0, 0, 0], 0xff00_0000, KEY), Err(vendor(0x92)));
    // Iterator 5's keys, asked for in other words: bits that the mask does not have.
    assert_eq!(host.iterate_open(0, [4, 1, 2, 3], 0xff00_0000, KEY), Ok(3));
    assert_eq!(host.iterate_open(0, [4, 1, 2, 3], 0xff00_0000, KEY), Err(vendor(0x92)));
    assert_eq!(host.iterate_close(3), Ok(0));
    assert_eq!(host.iterate_open(0, [4, 0, 0, 0], 0xfff0_0000, KEY), Ok(3));
    assert_eq!(host.iterate_open(1, [4, 0, 0, 0], 0xff00_0000, KEY), Ok(7));
    for id in [0, 17, 255] {
        assert_eq!(host.iterate_close(id), Err(vendor(0x90)), "iterator {id}");
        assert_eq!(host.iterate_read(id).0, vendor(0x90), "iterator {id}");
    }
    host.iterate_close(7).unwrap();
    assert_eq!(host.iterate_close(7), Err(vendor(0x90)));
    // A reset closes all of them.
    host.disable();
    host.enable_all();
    host.create_queue_pair(1, 64);
    assert_eq!(host.iterate_open(0, [4, 0, 0, 0], 0xff00_0000, KEY), Ok(1));
}

#[test]
fn an_iterator_is_read_into_32_kib_and_opened_with_one_type() {
    let mut host = Host::with_pairs();
    host.iterate_open(0, *b"keys", !0, KEY).unwrap();
    for dwords in [0, 256, 4096, 8191, 8193, 16_384] {
        let read = host.with_buffer(sqe(ITERATE_READ, 1), 65_536);
        assert_eq!(host.io(Sqe { cdw10: dwords, cdw11: 1, ..read }), Err(vendor(0x01)), "{dwords} dwords");
    }
    for kind in [0, 0x0c, 0x1c, 0x20] {
        assert_eq!(host.iterate_open(0, *b"abcd", !0, kind), Err(vendor(0x96)), "type {kind:#x}");
    }
    for request in [0, 0x04, 0x80] {
        let request = Sqe { cdw11: request << 8, ..sqe(ITERATE_REQUEST, 1) };
        assert_eq!(host.io(request), Err(vendor(0x96)));
    }
}

#[test]
fn an_iterator_over_pairs_returns_values_too() {
    let mut host = Host::with_pairs();
    host.vendor_store(VENDOR_STORE, 0, b"pair1", b"abc", 0).unwrap();
    host.vendor_store(VENDOR_STORE, 0, b"pair22", b"", 0).unwrap();
    host.iterate_open(0, *b"pair", !0, KEY_VALUE).unwrap();
    let expected = b"\x02\0\0\0\x05\0\0\0pair1\0\0\0\x03\0\0\0abc\0\x06\0\0\0pair22\0\0\0\0\0\0";
    assert_eq!(host.iterate_read(1), (vendor(0x93), expected.to_vec()));
    host.iterate_close(1).unwrap();
    // Values of 20000 bytes come one at a time, one of 40000 is cut off at the end of the buffer.
    for n in 0..3 {
        host.vendor_store(VENDOR_STORE, 1, &[b'b', b'i', b'g', n], &pattern(n, 20_000), 0).unwrap();
    }
    host.vendor_store(VENDOR_STORE, 1, b"bigger", &pattern(9, 40_000), 0).unwrap();
    host.iterate_open(1, *b"big\0", 0xffff_ff00, KEY_VALUE).unwrap();
    for n in 0..3 {
        let (status, data) = host.iterate_read(1);
        assert_eq!((status, data.len()), (Status::SUCCESS, 4 + 8 + 4 + 20_000));
        assert!(data[12..16] == 20_000u32.to_le_bytes() && data[16..] == pattern(n, 20_000));
    }
    let (_, data) = host.iterate_read(1);
    assert_eq!((data.len(), &data[..4], &data[8..14]), (32_768, &[1, 0, 0, 0][..], &b"bigger"[..]));
    assert!(data[16..20] == 40_000u32.to_le_bytes() && data[20..] == pattern(9, 40_000)[..32_748]);
    assert_eq!(host.iterate_read(1), (vendor(0x93), vec![]));
}

#[test]
fn an_iterator_that_deletes_does_so_in_the_background_and_says_when_it_is_done() {
    let mut host = Host::with_pairs();
    for n in 0..1000u32 {
        host.vendor_store(VENDOR_STORE, 0, format!("temp{n}").as_bytes(), b"v", 0).unwrap();
    }
    host.vendor_store(VENDOR_STORE, 0, b"tent", b"kept", 0).unwrap();
    host.vendor_store(VENDOR_STORE, 1, b"temp1", b"kept", 0).unwrap();
    assert_eq!(host.iterate_open(0, *b"temp", !0, KEY_DELETE), Ok(1));
    assert_eq!(host.iterate_read(1), (vendor(0x94), vec![]));
    // Log page D0h: byte 1 of the entry says that it is open, byte 12 that it is done.
    let entry = |host: &mut Host| {
        let log = Sqe { cdw10: 127 << 16 | 0xd0, ..sqe(0x02, 0) };
        host.admin_in(log, 512).unwrap()[..16].to_vec()
    };
    let mut turns = 0;
    while entry(&mut host)[12] == 0 {
        host.advance();
        turns += 1;
        assert!(turns < 10_000, "the iterator does not end");
    }
    assert!(turns > 1, "all at once");
    assert_eq!(entry(&mut host), *b"\x01\x01\x03\x00temp\xff\xff\xff\xff\x01\0\0\0");
    host.iterate_close(1).unwrap();
    assert_eq!(entry(&mut host), *b"\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(host.list(b"", 4096).unwrap().0, [b"tent"]);
    assert_eq!(host.vendor_value(1, b"temp1"), Ok(b"kept".to_vec()));
}
