//! The Key Value Command Set: entries, List buffers and Identify structures against bytes worked out from the
//! specification's figures (and, for where a key goes, from what SPDK's and xNVMe's encoders do).

use proptest::prelude::*;
use unvme_spec::command::CommandSet;
use unvme_spec::feature::KeyValueConfiguration;
use unvme_spec::identify::{KvControllerIdentify, KvFormat, KvNamespaceCreate, KvNamespaceIdentify};
use unvme_spec::kv::{Command, Key, ListReader, ListWriter, StoreOptions, opcode};
use unvme_spec::{Nsid, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

/// 64 bytes: dwords 0 to 3 | 4 to 9, the metadata and data pointers, zero | 10 to 15.
fn entry(head: [u8; 16], tail: [u8; 24]) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..16].copy_from_slice(&head);
    bytes[40..].copy_from_slice(&tail);
    bytes
}

fn key(bytes: &[u8]) -> Key {
    Key::new(bytes).unwrap()
}

#[track_caller]
fn assert_entry(command: Command, nsid: u32, expected: [u8; 64]) {
    assert_eq!(command.encode(Nsid(nsid)).as_bytes(), expected, "{command:?}");
    assert_eq!(Command::parse(&Sqe::read_from_bytes(&expected).unwrap()), command);
}

#[test]
fn store_has_a_short_key_in_dwords_2_and_3_and_the_size_in_bytes() {
    let options = StoreOptions { must_not_exist: true, ..StoreOptions::default() };
    assert_entry(
        Command::Store { key: key(b"hello"), value_bytes: 4096, options },
        1,
        entry(
            [0x01, 0, 0, 0, 1, 0, 0, 0, b'h', b'e', b'l', b'l', b'o', 0, 0, 0],
            [0x00, 0x10, 0, 0, 5, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
    );
}

#[test]
fn a_key_of_sixteen_bytes_goes_on_in_dwords_14_and_15() {
    let options = StoreOptions { must_exist: true, no_compression: true, ..StoreOptions::default() };
    assert_entry(
        Command::Store { key: key(b"0123456789abcdef"), value_bytes: 0x1000_0000, options },
        0x0102_0304,
        entry(
            [0x01, 0, 0, 0, 4, 3, 2, 1, b'0', b'1', b'2', b'3', b'4', b'5', b'6', b'7'],
            [
                0, 0, 0, 0x10, 16, 0x05, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'8', b'9', b'a', b'b', b'c', b'd',
                b'e', b'f',
            ],
        ),
    );
}

#[test]
fn retrieve_has_the_buffer_size_and_the_raw_option() {
    let head = [0x02, 0, 0, 0, 2, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0];
    let mut tail = [0; 24];
    tail[..6].copy_from_slice(&[0x03, 0x02, 0x01, 0, 1, 0x01]);
    assert_entry(
        Command::Retrieve { key: key(&[0xff]), buffer_bytes: 0x0001_0203, raw: true },
        2,
        entry(head, tail),
    );
    tail[5] = 0;
    assert_entry(
        Command::Retrieve { key: key(&[0xff]), buffer_bytes: 0x0001_0203, raw: false },
        2,
        entry(head, tail),
    );
}

#[test]
fn delete_and_exist_have_nothing_but_a_key() {
    let mut tail = [0; 24];
    tail[4] = 9;
    tail[16] = 9;
    let head = |opcode| [opcode, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let nine = key(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_entry(Command::Delete(nine), 1, entry(head(0x10), tail));
    assert_entry(Command::Exist(nine), 1, entry(head(0x14), tail));
}

#[test]
fn list_starts_at_a_key_or_at_the_beginning() {
    let mut tail = [0; 24];
    tail[..5].copy_from_slice(&[0, 0x80, 0, 0, 0]);
    assert_entry(
        Command::List { start: key(b""), buffer_bytes: 32768 },
        1,
        entry([0x06, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], tail),
    );
    tail[4] = 2;
    assert_entry(
        Command::List { start: key(b"ab"), buffer_bytes: 32768 },
        1,
        entry([0x06, 0, 0, 0, 1, 0, 0, 0, b'a', b'b', 0, 0, 0, 0, 0, 0], tail),
    );
}

#[test]
fn flush_is_the_flush_of_all_command_sets() {
    assert_entry(
        Command::Flush,
        u32::MAX,
        entry([0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0], [0; 24]),
    );
}

#[test]
fn opcodes_have_the_direction_of_their_data_in_the_low_bits() {
    let directions = [
        (opcode::STORE, 1, "Store"),
        (opcode::RETRIEVE, 2, "Retrieve"),
        (opcode::LIST, 2, "List"),
        (opcode::DELETE, 0, "Delete"),
        (opcode::EXIST, 0, "Exist"),
        (opcode::FLUSH, 0, "Flush"),
    ];
    let named = |opcode| CommandSet::KeyValue.facts(opcode).map(|facts| facts.name);
    for (opcode, direction, name) in directions {
        assert_eq!(opcode & 3, direction, "{name}");
        assert_eq!(named(opcode), Some(name));
    }
    assert_eq!(named(0x04), None);
}

#[test]
fn a_key_length_above_sixteen_is_kept_and_is_no_key() {
    let mut sqe = Sqe { opcode: opcode::EXIST, cdw11: 17, ..Sqe::default() };
    let Command::Exist(long) = Command::parse(&sqe) else { panic!("not Exist") };
    assert_eq!((long.length(), long.as_bytes()), (17, None));
    sqe.cdw11 = 0;
    let Command::Exist(empty) = Command::parse(&sqe) else { panic!("not Exist") };
    assert_eq!((empty.length(), empty.as_bytes()), (0, Some(&b""[..])));
    assert_eq!(Key::new(&[0; 17]), None);
}

#[test]
fn a_list_is_a_count_and_keys_with_lengths_padded_to_four() {
    let expected = [
        3, 0, 0, 0, // number of keys
        1, 0, b'a', 0, // a length of one, and one byte of padding
        2, 0, b'b', b'c', // no padding
        3, 0, b'd', b'e', b'f', 0, 0, 0, // three bytes of padding
    ];
    let mut buffer = [0xee; 24];
    let mut list = ListWriter::new(&mut buffer).unwrap();
    for key in [&b"a"[..], b"bc", b"def"] {
        assert!(list.push(key));
    }
    // Four bytes are left, and a key of three takes eight.
    assert!(!list.push(b"ghi"));
    assert_eq!(list.finish(), 20);
    assert_eq!(buffer[..20], expected);
    assert_eq!(buffer[20..], [0xee; 4]);
    let keys: Vec<&[u8]> = ListReader::new(&expected).collect();
    assert_eq!(keys, [&b"a"[..], b"bc", b"def"]);
}

#[test]
fn a_list_takes_at_least_the_count() {
    assert!(ListWriter::new(&mut [0; 3]).is_none());
    let mut buffer = [0xee; 4];
    let mut list = ListWriter::new(&mut buffer).unwrap();
    assert!(!list.push(b"a"));
    assert_eq!(list.finish(), 4);
    assert_eq!(buffer, [0; 4]);
}

#[test]
fn a_list_that_promises_more_than_it_has_ends_early() {
    // Two keys are announced; the second one's length leaves the buffer.
    let data = [2, 0, 0, 0, 1, 0, b'a', 0, 9, 0, b'b', b'c'];
    let mut reader = ListReader::new(&data);
    assert_eq!(reader.next(), Some(&b"a"[..]));
    assert_eq!(reader.next(), None);
    assert_eq!(ListReader::new(&[1, 0, 0]).next(), None);
    // The padding of the last key may be missing.
    assert_eq!(ListReader::new(&[1, 0, 0, 0, 1, 0, b'a']).next(), Some(&b"a"[..]));
}

#[test]
fn identify_namespace_fields_are_where_the_specification_puts_them() {
    let mut page = [0; 4096];
    let fields: [(usize, &[u8]); 16] = [
        (0, &[1, 2, 3, 4, 5, 6, 7, 8]),
        (16, &[9, 0, 0, 0, 0, 0, 0, 0]),
        (24, &[0x08]),
        (25, &[1]),
        (26, &[0x01]),
        (27, &[0xff]),
        (28, &[0x80]),
        (29, &[0x01]),
        (32, &[0x00, 0x10, 0, 0]),
        (36, &[7, 0, 0, 0]),
        (43, &[1]),
        (44, &[2, 0, 3, 0]),
        (48, b"0123456789abcdef"),
        (64, b"01234567"),
        (72, &[16, 0, 0, 3, 0, 0, 0, 0x10, 4, 0, 0, 0, 0, 0, 0, 0]),
        (88, &[8, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for (offset, bytes) in fields {
        page[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    let id = KvNamespaceIdentify::read_from_bytes(&page).unwrap();
    assert_eq!((id.nsze, id.nuse), (0x0807_0605_0403_0201, 9));
    assert_eq!((id.nsfeat, id.nkvf_z, id.nmic, id.rescap, id.fpi, id.kvfc), (8, 1, 1, 0xff, 0x80, 1));
    assert_eq!((id.novg, id.anagrpid, id.nsattr, id.nvmsetid, id.endgid), (4096, 7, 1, 2, 3));
    assert_eq!((&id.nguid, &id.eui64), (b"0123456789abcdef", b"01234567"));
    let first = KvFormat { kvkml: 16, afo: 3, kvvml: 256 << 20, mnks: 4, ..KvFormat::default() };
    let second = KvFormat { kvkml: 8, kvvml: 4096, ..KvFormat::default() };
    assert_eq!((id.kvf[0], id.kvf[1], id.kvf[2]), (first, second, KvFormat::default()));
    assert_eq!(id.format(), second);
    assert_eq!(id.as_bytes(), page);
}

#[test]
fn the_version_of_the_command_set_is_1_3() {
    let id =
        KvControllerIdentify { ver: unvme_spec::identify::KV_VERSION_1_3, ..KvControllerIdentify::default() };
    assert_eq!(id.as_bytes()[..8], [0x00, 0x03, 0x01, 0x00, 0, 0, 0, 0]);
}

#[test]
fn a_namespace_is_created_with_a_size_in_bytes_and_a_format() {
    let mut page = [0; 4096];
    page[..8].copy_from_slice(&[0, 0, 0, 0, 1, 0, 0, 0]);
    (page[26], page[29]) = (1, 2);
    page[36..40].copy_from_slice(&[3, 0, 0, 0]);
    page[44..48].copy_from_slice(&[4, 0, 5, 0]);
    let create = KvNamespaceCreate::read_from_bytes(&page).unwrap();
    assert_eq!((create.nsze, create.nmic, create.kvfc), (1 << 32, 1, 2));
    assert_eq!((create.anagrpid, create.nvmsetid, create.endgid), (3, 4, 5));
}

#[test]
fn error_on_delete_is_bit_0_of_the_key_value_configuration() {
    assert!(KeyValueConfiguration::from_bits(1).delete_missing_is_error());
    assert!(!KeyValueConfiguration::from_bits(!1).delete_missing_is_error());
}

#[test]
fn the_statuses_have_the_codes_of_the_specification() {
    let codes = [
        (Status::CAPACITY_EXCEEDED, 0x81),
        (Status::INVALID_VALUE_SIZE, 0x85),
        (Status::INVALID_KEY_SIZE, 0x86),
        (Status::KEY_NOT_FOUND, 0x87),
        (Status::UNRECOVERED_ERROR, 0x88),
        (Status::KEY_EXISTS, 0x89),
    ];
    for (status, code) in codes {
        assert_eq!(status.raw(), code);
    }
}

fn any_key() -> impl Strategy<Value = Key> {
    prop::collection::vec(any::<u8>(), 0..=16).prop_map(|bytes| key(&bytes))
}

fn any_command() -> impl Strategy<Value = Command> {
    let options = any::<[bool; 3]>().prop_map(|[must_exist, must_not_exist, no_compression]| StoreOptions {
        must_exist,
        must_not_exist,
        no_compression,
    });
    prop_oneof![
        Just(Command::Flush),
        (any_key(), any::<u32>(), options).prop_map(|(key, value_bytes, options)| Command::Store {
            key,
            value_bytes,
            options
        }),
        (any_key(), any::<u32>(), any::<bool>()).prop_map(|(key, buffer_bytes, raw)| Command::Retrieve {
            key,
            buffer_bytes,
            raw
        }),
        (any_key(), any::<u32>()).prop_map(|(start, buffer_bytes)| Command::List { start, buffer_bytes }),
        any_key().prop_map(Command::Delete),
        any_key().prop_map(Command::Exist),
    ]
}

proptest! {
    #[test]
    fn what_is_encoded_is_what_is_parsed(command in any_command(), nsid: u32) {
        let sqe = command.encode(Nsid(nsid));
        prop_assert_eq!(Command::parse(&sqe), command);
        prop_assert_eq!(sqe.nsid, nsid);
        // The metadata pointer and dwords 12 and 13 are reserved.
        prop_assert_eq!((sqe.mptr, sqe.cdw12, sqe.cdw13), (0, 0, 0));
    }

    #[test]
    fn any_entry_can_be_parsed_and_keeps_what_it_means(bytes in prop::collection::vec(any::<u8>(), 64)) {
        let sqe = Sqe::read_from_bytes(&bytes).unwrap();
        let command = Command::parse(&sqe);
        prop_assert_eq!(Command::parse(&command.encode(Nsid(sqe.nsid))), command);
    }

    #[test]
    fn a_list_holds_what_was_put_in_as_far_as_it_fits(
        keys in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
        room in 4usize..600,
    ) {
        let mut buffer = vec![0xee; room];
        let mut list = ListWriter::new(&mut buffer).unwrap();
        let fitted = keys.iter().take_while(|key| list.push(key)).count();
        let used = list.finish();
        let expected: usize = 4 + keys[..fitted].iter().map(|key| (2 + key.len()).div_ceil(4) * 4).sum::<usize>();
        prop_assert_eq!(used, expected);
        prop_assert!(buffer[used..].iter().all(|&byte| byte == 0xee));
        let read: Vec<Vec<u8>> = ListReader::new(&buffer[..used]).map(<[u8]>::to_vec).collect();
        prop_assert_eq!(&read[..], &keys[..fitted]);
        if let Some(next) = keys.get(fitted) {
            prop_assert!(used + (2 + next.len()).div_ceil(4) * 4 > room);
        }
    }

    #[test]
    fn any_list_can_be_read(data in prop::collection::vec(any::<u8>(), 0..100)) {
        let bytes: usize = ListReader::new(&data).map(<[u8]>::len).sum();
        prop_assert!(bytes <= data.len());
    }
}
