//! Samsung's vendor commands against bytes worked out from the open host code for these drives (the KVSSD
//! kernel driver, NVMeVirt), the SDK's guide and what its programs expect.

use proptest::prelude::*;
use unvme_spec::command::CommandSet;
use unvme_spec::samsung_kv::{
    BatchCommand, BatchReader, BatchWriter, Command, IterateKeys, IteratePairs, IterateType, IterateWriter,
    Key, KeyspaceField, Pair, Prefix, Target, ValueSize, batch_result, delete_option, opcode,
    retrieve_option, set_key_in_capsule, status, store_option,
};
use unvme_spec::samsung_log::{
    CommandCounts, ExtendedSmartLog, IteratorEntry, IteratorLog, Limits, ValueSizes, WafLog,
};
use unvme_spec::{Nsid, Sqe};
use zerocopy::{FromBytes, IntoBytes};

const TARGET: Target = Target { nsid: Nsid(1), keyspace: 1 };

/// Bytes 0 to 23 (dwords 0 to 5), and 40 to 63 (dwords 10 to 15); the data pointer between them is zero.
fn entry(head: [u8; 24], tail: [u8; 24]) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..24].copy_from_slice(&head);
    bytes[40..].copy_from_slice(&tail);
    bytes
}

/// Opcode, namespace 1, keyspace 1 in dword 3, and dword 4.
fn head(opcode: u8, dword4: [u8; 4]) -> [u8; 24] {
    let [a, b, c, d] = dword4;
    [opcode, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, a, b, c, d, 0, 0, 0, 0]
}

fn inline(key: &[u8]) -> Key {
    Key::inline(key).unwrap()
}

#[track_caller]
fn assert_entry(command: Command, expected: [u8; 64]) {
    assert_eq!(command.encode(TARGET, KeyspaceField::Cdw3).as_bytes(), expected, "{command:?}");
    let sqe = Sqe::read_from_bytes(&expected).unwrap();
    assert_eq!(Command::parse(&sqe), command);
    assert_eq!(Target::parse(&sqe, KeyspaceField::Cdw3), TARGET);
}

#[test]
fn store_counts_in_dwords_and_says_how_many_bytes_of_the_last_are_unused() {
    // 4097 bytes: 1025 dwords, of which three bytes are unused. The key length is zero-based.
    let tail = [
        0x01, 0x04, 0, 0, 15, 0x02, 0x03, 0, b'0', b'1', b'2', b'3', b'4', b'5', b'6', b'7', b'8', b'9',
        b'a', b'b', b'c', b'd', b'e', b'f',
    ];
    let command = Command::Store {
        key: inline(b"0123456789abcdef"),
        size: ValueSize::of_bytes(4097),
        offset: 0,
        option: store_option::IDEMPOTENT,
    };
    assert_entry(command, entry(head(0x81, [0; 4]), tail));
    assert_eq!(ValueSize::of_bytes(4097), ValueSize { dwords: 1025, unused: 3 });
}

#[test]
fn a_key_in_the_capsule_is_described_by_its_offset_and_length() {
    let tail = [0x04, 0, 0, 0, 254, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0, 0, 0, 0, 0, 0x01];
    let mut expected = head(0x90, [0; 4]).to_vec();
    expected.extend_from_slice(&[0; 16]);
    expected.extend_from_slice(&tail);
    let key = Key::Memory { prp: [0; 2], length: 255 };
    let option = retrieve_option::DECOMPRESS;
    let mut sqe = Command::Retrieve { key, dwords: 4, offset: 0, option }.encode(TARGET, KeyspaceField::Cdw3);
    set_key_in_capsule(&mut sqe);
    assert_eq!(sqe.as_bytes(), expected);
}

#[test]
fn append_differs_from_store_in_its_opcode_alone() {
    let tail = [1, 0, 0, 0, 3, 0x0d, 0, 0, b'k', b'e', b'y', b's', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let option = store_option::COMPRESS | store_option::BACKGROUND_COMPRESS | store_option::UPDATE_ONLY;
    let (key, size) = (inline(b"keys"), ValueSize::of_bytes(4));
    assert_entry(Command::Append { key, size, offset: 0, option }, entry(head(0x83, [0; 4]), tail));
    assert_entry(Command::Store { key, size, offset: 0, option }, entry(head(0x81, [0; 4]), tail));
}

#[test]
fn retrieve_has_its_offset_in_dword_4() {
    let tail = [0, 4, 0, 0, 4, 0x03, 0, 0, b'h', b'e', b'l', b'l', b'o', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let command = Command::Retrieve {
        key: inline(b"hello"),
        dwords: 1024,
        offset: 0x0001_0200,
        option: retrieve_option::DECOMPRESS | retrieve_option::SIZE_ONLY,
    };
    assert_entry(command, entry(head(0x90, [0x00, 0x02, 0x01, 0x00]), tail));
}

#[test]
fn a_key_of_more_than_sixteen_bytes_is_in_memory() {
    let tail = [
        0, 0, 0, 0, 254, 0x01, 0, 0, 0x00, 0x10, 0x20, 0x30, 0x04, 0, 0, 0, 0x00, 0x20, 0x20, 0x30, 0x04, 0,
        0, 0,
    ];
    let key = Key::Memory { prp: [0x4_3020_1000, 0x4_3020_2000], length: 255 };
    assert_entry(
        Command::Delete { key, option: delete_option::CHECK_EXISTENCE },
        entry(head(0xa1, [0; 4]), tail),
    );
    let mut tail = tail;
    (tail[4], tail[5]) = (16, 0);
    let key = Key::Memory { prp: [0x4_3020_1000, 0x4_3020_2000], length: 17 };
    assert_entry(Command::Exist { key, option: 0 }, entry(head(0xb3, [0; 4]), tail));
}

#[test]
fn iterate_open_has_prefix_and_mask_in_the_order_of_the_keys_bytes() {
    let prefix = Prefix { prefix: u32::from_be_bytes(*b"user"), bitmask: 0xffff_ff00 };
    for (kind, option) in
        [(IterateType::Key, 0x05), (IterateType::KeyValue, 0x09), (IterateType::KeyDelete, 0x11)]
    {
        let tail = [
            0, 0, 0, 0, 0, option, 0, 0, b'u', b's', b'e', b'r', 0xff, 0xff, 0xff, 0x00, 0, 0, 0, 0, 0, 0, 0,
            0,
        ];
        assert_entry(Command::IterateOpen { kind: Ok(kind), prefix }, entry(head(0xb1, [0; 4]), tail));
    }
}

#[test]
fn iterate_close_and_read_name_their_iterator() {
    let mut tail = [0; 24];
    (tail[4], tail[5]) = (16, 0x02);
    assert_entry(Command::IterateClose { iterator: 16 }, entry(head(0xb1, [0; 4]), tail));
    let mut tail = [0; 24];
    tail[..6].copy_from_slice(&[0x00, 0x20, 0, 0, 3, 0]);
    assert_entry(
        Command::IterateRead { iterator: 3, dwords: 8192, option: 0 },
        entry(head(0xb2, [0; 4]), tail),
    );
}

#[test]
fn an_iterate_request_without_a_known_type_is_told_from_an_open() {
    let request = |option: u32| Command::parse(&Sqe { opcode: 0xb1, cdw11: option << 8, ..Sqe::default() });
    let prefix = Prefix::default();
    assert_eq!(request(0x01), Command::IterateOpen { kind: Err(0), prefix });
    assert_eq!(request(0x0d), Command::IterateOpen { kind: Err(0x0c), prefix });
    assert_eq!(request(0x00), Command::IterateInvalid { request: 0 });
    assert_eq!(request(0x04), Command::IterateInvalid { request: 4 });
}

#[test]
fn batch_has_its_size_and_the_number_of_its_commands() {
    let mut tail = [0; 24];
    tail[..5].copy_from_slice(&[0x00, 0x02, 0, 0, 8]);
    assert_entry(Command::Batch { commands: 8, dwords: 512 }, entry(head(0x85, [0; 4]), tail));
}

#[test]
fn the_sdk_puts_the_keyspace_in_place_of_the_namespace() {
    let command = Command::Exist { key: inline(b"keys"), option: 0 };
    let target = Target { nsid: Nsid(0), keyspace: 1 };
    let sqe = command.encode(target, KeyspaceField::Nsid);
    assert_eq!(sqe.as_bytes()[..16], [0xb3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Target::parse(&sqe, KeyspaceField::Nsid), target);
}

#[test]
fn a_batch_is_eight_descriptions_and_padded_keys_and_values() {
    // A store of five bytes under "key1" in keyspace 1, and a delete of "key22" that checks.
    let mut expected = vec![0; 512 + (64 + 64 + 64) + (64 + 64)];
    expected[..12].copy_from_slice(&[0x81, 4, 0, 0, 5, 0, 0, 0, 2, 1, 0, 0]);
    expected[16..28].copy_from_slice(&[0xa1, 5, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    expected[576..580].copy_from_slice(b"key1");
    expected[640..645].copy_from_slice(b"value");
    expected[768..773].copy_from_slice(b"key22");
    let store = BatchCommand { opcode: 0x81, keyspace: 1, option: 2, key: b"key1", value: b"value" };
    let delete = BatchCommand { opcode: 0xa1, keyspace: 0, option: 1, key: b"key22", value: b"" };
    let mut buffer = vec![0xee; 900];
    let mut batch = BatchWriter::new(&mut buffer).unwrap();
    assert!(batch.push(store) && batch.push(delete));
    // 68 bytes are left, and the smallest command takes 128.
    assert!(!batch.push(delete));
    assert_eq!((batch.commands(), batch.bytes()), (2, 832));
    assert_eq!(buffer[..832], expected);
    let read: Vec<_> = BatchReader::new(&expected, 2).unwrap().collect();
    // With each command, where its value is.
    assert_eq!(read, [Some((store, 640)), Some((delete, 832))]);
}

#[test]
fn a_batch_has_at_most_eight_commands_and_none_that_leaves_it() {
    let mut buffer = vec![0; 4096];
    let mut batch = BatchWriter::new(&mut buffer).unwrap();
    let command = BatchCommand { opcode: 0xa1, keyspace: 0, option: 0, key: b"key1", value: b"" };
    assert_eq!((0..9).filter(|_| batch.push(command)).count(), 8);
    assert!(BatchReader::new(&buffer, 9).is_none());
    assert!(BatchReader::new(&buffer[..511], 0).is_none());
    // The third command's value is said to be longer than all of the data.
    buffer[36..40].copy_from_slice(&[0xff; 4]);
    let read: Vec<_> = BatchReader::new(&buffer, 8).unwrap().collect();
    assert_eq!(read, [Some((command, 640)), Some((command, 768)), None]);
}

#[test]
fn the_results_of_a_batch_are_four_bits_each() {
    let dw0 = batch_result::with(
        batch_result::with(0, 0, batch_result::INVALID_KEY_SIZE),
        7,
        batch_result::UPDATE_STORE_FAIL,
    );
    assert_eq!(dw0, 0xa000_0002);
    assert_eq!([0, 1, 7].map(|index| batch_result::of(dw0, index)), [2, 0, 0xa]);
}

#[test]
fn an_iterator_returns_keys_at_strides_of_20_20_and_36() {
    // The example of the programming guide: keys of 16, 15 and 30 bytes.
    let mut expected = vec![0; 80];
    expected[..8].copy_from_slice(&[3, 0, 0, 0, 16, 0, 0, 0]);
    expected[8..24].fill(1);
    expected[24] = 15;
    expected[28..43].fill(2);
    expected[44] = 30;
    expected[48..78].fill(3);
    let keys = [vec![1; 16], vec![2; 15], vec![3; 30]];
    let mut buffer = [0xee; 83];
    let mut writer = IterateWriter::new(&mut buffer).unwrap();
    assert!(keys.iter().all(|key| writer.push_key(key)));
    assert!(!writer.push_key(b""));
    assert_eq!(writer.finish(), 80);
    assert_eq!(buffer[..80], expected);
    let read: Vec<&[u8]> = IterateKeys::new(&expected).collect();
    assert_eq!(read, keys);
}

#[test]
fn a_buffer_of_32_kib_has_1638_keys_of_16_bytes() {
    let mut buffer = vec![0; 32768];
    let mut writer = IterateWriter::new(&mut buffer).unwrap();
    let count = (0..2000u128).take_while(|n| writer.push_key(&n.to_be_bytes())).count();
    assert_eq!((count, writer.finish()), (1638, 4 + 1638 * 20));
}

#[test]
fn an_iterator_over_pairs_returns_the_value_behind_the_key() {
    let expected = [
        2, 0, 0, 0, // number of pairs
        5, 0, 0, 0, b'a', b'b', b'c', b'd', b'e', 0, 0, 0, // key
        3, 0, 0, 0, 7, 8, 9, 0, // value
        4, 0, 0, 0, b'w', b'x', b'y', b'z', // key
        0, 0, 0, 0, // a value of no bytes
    ];
    let mut buffer = [0xee; 40];
    let mut writer = IterateWriter::new(&mut buffer).unwrap();
    writer.push_pair(b"abcde", 3).unwrap().copy_from_slice(&[7, 8, 9]);
    assert_eq!(writer.push_pair(b"wxyz", 0).map(|place| place.len()), Some(0));
    assert!(writer.push_pair(b"more", 0).is_none());
    assert_eq!(writer.finish(), 36);
    assert_eq!(buffer[..36], expected);
    let pairs: Vec<Pair<'_>> = IteratePairs::new(&expected).collect();
    let first = Pair { key: b"abcde", value: &[7, 8, 9], value_bytes: 3 };
    assert_eq!(pairs, [first, Pair { key: b"wxyz", value: &[], value_bytes: 0 }]);
}

#[test]
fn a_value_that_never_fits_is_cut_off_and_says_how_long_it_is() {
    let mut buffer = [0xee; 24];
    let mut writer = IterateWriter::new(&mut buffer).unwrap();
    let place = writer.push_pair(b"long", 100).unwrap();
    assert_eq!(place.len(), 8);
    place.fill(5);
    assert!(writer.push_pair(b"next", 0).is_none());
    assert_eq!(writer.finish(), 24);
    assert_eq!(buffer, *b"\x01\0\0\0\x04\0\0\0long\x64\0\0\0\x05\x05\x05\x05\x05\x05\x05\x05");
    let pairs: Vec<Pair<'_>> = IteratePairs::new(&buffer).collect();
    assert_eq!(pairs, [Pair { key: b"long", value: &[5; 8], value_bytes: 100 }]);
}

#[test]
fn an_iterate_buffer_that_promises_more_than_it_has_ends_early() {
    let data = [2, 0, 0, 0, 4, 0, 0, 0, 1, 2, 3, 4, 9, 0, 0, 0, 1, 2];
    let keys: Vec<&[u8]> = IterateKeys::new(&data).collect();
    assert_eq!(keys, [[1, 2, 3, 4]]);
    assert_eq!(IteratePairs::new(&data[..8]).next(), None);
    assert_eq!(IterateKeys::new(&[1, 0, 0]).next(), None);
}

#[test]
fn a_prefix_is_the_first_four_bytes_as_a_big_endian_number() {
    let prefix = Prefix { prefix: 0x3030_3030, bitmask: 0xffff_0000 };
    assert!(prefix.is_contiguous() && prefix.matches(b"00zz") && !prefix.matches(b"0z00"));
    assert!(Prefix::default().matches(b"anything") && Prefix::default().is_contiguous());
    assert!(!Prefix { prefix: 0, bitmask: 0x00ff_0000 }.is_contiguous());
    // A standard key may be shorter than four bytes: what it lacks is zero.
    assert!(Prefix { prefix: 0x6100_0000, bitmask: !0 }.matches(b"a"));
}

#[test]
fn statuses_are_of_type_3() {
    let codes = [
        (status::INVALID_VALUE_SIZE, 0x301),
        (status::INVALID_VALUE_OFFSET, 0x302),
        (status::INVALID_KEY_SIZE, 0x303),
        (status::INVALID_OPTION, 0x304),
        (status::INVALID_KEYSPACE, 0x305),
        (status::MISALIGNED_VALUE_SIZE, 0x308),
        (status::MISALIGNED_VALUE_OFFSET, 0x309),
        (status::MISALIGNED_KEY_SIZE, 0x30a),
        (status::KEY_NOT_FOUND, 0x310),
        (status::UNRECOVERED_ERROR, 0x311),
        (status::CAPACITY_EXCEEDED, 0x312),
        (status::IDEMPOTENT_STORE_FAIL, 0x380),
        (status::MAXIMUM_VALUE_SIZE_EXCEEDED, 0x381),
        (status::ITERATE_REQUEST_NOT_PROCESSED, 0x390),
        (status::ITERATE_NO_HANDLE, 0x391),
        (status::ITERATE_ALREADY_OPEN, 0x392),
        (status::ITERATE_END, 0x393),
        (status::ITERATE_REQUEST_FAIL, 0x394),
        (status::ITERATE_TCG_LOCKED, 0x395),
        (status::ITERATE_ERROR, 0x396),
    ];
    for (status, code) in codes {
        assert_eq!(status.raw(), code);
        assert!(status::name(status.with_do_not_retry()).is_some());
    }
    assert_eq!(status::name(unvme_spec::Status::SUCCESS), None);
    let facts = CommandSet::SamsungKv.facts(opcode::ITERATE_READ);
    assert_eq!(facts.map(|facts| facts.name), Some("KV Iterate Read"));
}

#[test]
fn the_extended_smart_log_has_its_counters_where_the_drives_have_them() {
    let mut log = ExtendedSmartLog::default();
    let counts = |first| CommandCounts { submitted: first, succeeded: first + 1, failed: first + 2 };
    (log.retrieve, log.store, log.append, log.delete) = (counts(1), counts(4), counts(7), counts(10));
    log.retrieve_sizes = ValueSizes { max: 13, min: 14, average: 15 };
    log.store_sizes = ValueSizes { max: 16, min: 17, average: 18 };
    log.append_sizes = ValueSizes { max: 19, min: 20, average: 21 };
    let limits = |first| Limits { max: first, min: first + 1, alignment: first + 2 };
    (log.key, log.value) = (limits(22), limits(25));
    (log.retrieve_limits, log.store_limits, log.append_limits) = (limits(28), limits(31), limits(34));
    log.waf_tenths = 37;
    let bytes = log.as_bytes();
    let u64s = [512, 520, 528, 536, 544, 552, 560, 568, 576, 584, 592, 600];
    for (value, at) in (1..).zip(u64s) {
        assert_eq!(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()), value, "at {at}");
    }
    let u32s = [
        728, 732, 736, 740, 744, 748, 752, 756, 760, 824, 828, 832, 836, 840, 844, 848, 852, 856, 860, 864,
        868, 872, 876, 880, 944,
    ];
    for (value, at) in (13..).zip(u32s) {
        assert_eq!(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()), value, "at {at}");
    }
    assert_eq!(bytes.len(), 1024);
}

#[test]
fn the_other_logs_are_laid_out_as_the_sdk_reads_them() {
    let log = WafLog { waf_tenths: 0x0102_0304, ..WafLog::default() };
    assert_eq!((log.as_bytes().len(), &log.as_bytes()[256..260]), (512, &[4, 3, 2, 1][..]));
    let mut log = IteratorLog::default();
    log.iterators[1] = IteratorEntry {
        id: 2,
        status: 1,
        kind: 3,
        keyspace: 1,
        prefix: *b"user",
        bitmask: [0xff, 0xff, 0, 0],
        is_eof: 1,
        reserved: [0; 3],
    };
    assert_eq!(log.as_bytes()[16..32], *b"\x02\x01\x03\x01user\xff\xff\0\0\x01\0\0\0");
    assert_eq!(log.as_bytes().len(), 512);
}

fn any_key() -> impl Strategy<Value = Key> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 1..=16).prop_map(|bytes| inline(&bytes)),
        (any::<[u64; 2]>(), 17u16..=256).prop_map(|(prp, length)| Key::Memory { prp, length }),
    ]
}

fn any_value_command() -> impl Strategy<Value = Command> {
    let size = (any::<u32>(), 0u8..4).prop_map(|(dwords, unused)| ValueSize { dwords, unused });
    (0..5, any_key(), size, any::<u32>(), any::<u8>()).prop_map(|(which, key, size, offset, option)| {
        match which {
            0 => Command::Store { key, size, offset, option },
            1 => Command::Append { key, size, offset, option },
            2 => Command::Retrieve { key, dwords: size.dwords, offset, option },
            3 => Command::Delete { key, option },
            _ => Command::Exist { key, option },
        }
    })
}

proptest! {
    #[test]
    fn what_is_encoded_is_what_is_parsed(command in any_value_command(), nsid: u32, keyspace: u32) {
        let target = Target { nsid: Nsid(nsid), keyspace };
        let sqe = command.encode(target, KeyspaceField::Cdw3);
        prop_assert_eq!(Command::parse(&sqe), command);
        prop_assert_eq!(Target::parse(&sqe, KeyspaceField::Cdw3), target);
    }

    #[test]
    fn any_entry_can_be_parsed_and_keeps_what_it_means(bytes in prop::collection::vec(any::<u8>(), 64)) {
        let sqe = Sqe::read_from_bytes(&bytes).unwrap();
        let command = Command::parse(&sqe);
        for field in [KeyspaceField::Cdw3, KeyspaceField::Nsid] {
            let target = Target::parse(&sqe, field);
            let again = command.encode(target, field);
            prop_assert_eq!((Command::parse(&again), Target::parse(&again, field)), (command, target));
        }
    }

    #[test]
    fn the_size_of_any_value_is_its_dwords_without_the_unused_bytes(bytes: u32) {
        let size = ValueSize::of_bytes(bytes);
        prop_assert_eq!(size.bytes(), Some(bytes.into()));
        prop_assert!(size.unused < 4);
    }

    #[test]
    fn any_buffer_can_be_read(data in prop::collection::vec(any::<u8>(), 0..1200), commands in 0u8..10) {
        let keys: usize = IterateKeys::new(&data).map(<[u8]>::len).sum();
        let pairs: usize = IteratePairs::new(&data).map(|pair| pair.key.len() + pair.value.len()).sum();
        prop_assert!(keys <= data.len() && pairs <= data.len());
        if let Some(batch) = BatchReader::new(&data, commands) {
            prop_assert!(batch.count() <= 8);
        }
    }

    #[test]
    fn a_batch_holds_what_was_put_in(
        pairs in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..256), prop::collection::vec(any::<u8>(), 0..300)), 0..9),
    ) {
        let mut buffer = vec![0xee; 8192];
        let mut batch = BatchWriter::new(&mut buffer).unwrap();
        let commands: Vec<BatchCommand<'_>> = pairs
            .iter()
            .map(|(key, value)| BatchCommand { opcode: 0x81, keyspace: 1, option: 8, key, value })
            .collect();
        let fitted = commands.iter().take_while(|&&command| batch.push(command)).count();
        prop_assert_eq!(fitted, commands.len().min(8));
        let (count, used) = (batch.commands(), batch.bytes());
        let read: Option<Vec<_>> = BatchReader::new(&buffer[..used], count).unwrap().collect();
        let (read, offsets): (Vec<_>, Vec<usize>) = read.unwrap().into_iter().unzip();
        prop_assert_eq!(&read[..], &commands[..fitted]);
        for (command, at) in read.iter().zip(offsets) {
            prop_assert_eq!(&buffer[at..at + command.value.len()], command.value);
        }
    }
}
