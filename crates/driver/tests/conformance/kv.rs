//! Key-value commands, in both dialects.

use std::collections::BTreeMap;

use unvme_driver::{
    Completion, Controller, DataPointers, DmaBuf, Error, KvBatchOp, KvCommand, KvKey, KvNamespace, KvOptions,
    KvVerdict, Queue, QueueOptions, StoreOptions, VendorCommands,
};
use unvme_spec::kv::ListReader;
use unvme_spec::samsung_kv::{IterateKeys, IterateType, KeyspaceField, Prefix};
use unvme_spec::{Nsid, Status};
use unvme_ssd::SsdConfig;

use crate::model::Random;
use crate::rig::{Rig, Transport, filled, next, small};

fn pairs() -> SsdConfig {
    SsdConfig::kv(128 << 20)
}

fn long_keys() -> QueueOptions {
    QueueOptions { long_keys: true, ..QueueOptions::default() }
}

/// A controller, a queue and key-value namespace 1.
fn kv_queue(rig: &Rig, options: &QueueOptions) -> (Controller, Queue, KvNamespace) {
    let controller = rig.open();
    let queue = controller.create_queue(options).expect("create a queue");
    let namespace = KvNamespace::open(&controller, Nsid(1)).expect("open namespace 1");
    (controller, queue, namespace)
}

/// Submits, rings and waits for one command.
fn run(queue: &mut Queue, command: Result<KvCommand<'_>, Error>, buf: Option<DmaBuf>) -> Completion {
    queue.submit_kv(command.expect("the command can be made"), buf, 7).expect("submit");
    let completion = next(queue);
    assert_eq!(completion.token, 7);
    completion
}

struct Store {
    controller: Controller,
    queue: Queue,
    namespace: KvNamespace,
}

impl Store {
    fn open(rig: &Rig, options: &QueueOptions) -> Self {
        let (controller, queue, namespace) = kv_queue(rig, options);
        Self { controller, queue, namespace }
    }

    fn store(&mut self, key: KvKey<'_>, value: &[u8], options: StoreOptions) -> Status {
        let buf = (!value.is_empty()).then(|| filled(&self.controller, value));
        run(&mut self.queue, self.namespace.store(key, value.len(), options), buf).status
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        assert_eq!(self.store(KvKey::new(key), value, StoreOptions::default()), Status::SUCCESS, "{key:?}");
    }

    /// What a buffer of `bytes` takes of a value, and the size of all of it.
    fn get_part(&mut self, key: KvKey<'_>, offset: u32, bytes: usize) -> Result<(Vec<u8>, u32), Status> {
        let mut buf = self.controller.alloc(bytes.max(1)).expect("buffer");
        buf.fill(0xee);
        let completion = run(&mut self.queue, self.namespace.retrieve(key, offset, bytes), Some(buf));
        if !completion.status.is_success() {
            return Err(completion.status.kind());
        }
        let size = KvNamespace::value_bytes(completion.result);
        let mut data = vec![0; bytes.min(size.saturating_sub(offset) as usize)];
        completion.buf.expect("the buffer comes back").read(0, &mut data);
        Ok((data, size))
    }

    fn get(&mut self, key: &[u8], bytes: usize) -> Result<Vec<u8>, Status> {
        self.get_part(KvKey::new(key), 0, bytes).map(|(data, _)| data)
    }

    fn verdict(&mut self, command: Result<KvCommand<'_>, Error>) -> KvVerdict {
        KvVerdict::of(run(&mut self.queue, command, None).status)
    }

    fn list(&mut self, start: &[u8], bytes: usize) -> Vec<Vec<u8>> {
        let buf = self.controller.alloc(bytes).expect("buffer");
        let completion = run(&mut self.queue, self.namespace.list(start, bytes), Some(buf));
        assert_eq!(completion.status, Status::SUCCESS);
        let data = completion.buf.expect("the buffer comes back").to_vec();
        ListReader::new(&data).map(<[u8]>::to_vec).collect()
    }
}

pub(crate) fn a_key_value_namespace_says_what_it_takes(transport: Transport) {
    let rig = transport(pairs());
    let (controller, _queue, namespace) = kv_queue(&rig, &QueueOptions::default());
    assert_eq!((namespace.has_standard(), namespace.has_vendor()), (true, true));
    assert_eq!((namespace.has_append(), namespace.has_batch(), namespace.keyspaces()), (true, true, 2));
    assert_eq!((namespace.key_bytes_min(), namespace.key_bytes_max()), (1, 255));
    assert_eq!(namespace.standard_value_bytes_max(), 256 << 20);
    assert_eq!(namespace.vendor_value_bytes_max(), 256 << 20);
    assert!((64 << 20..=128 << 20).contains(&namespace.bytes()), "{}", namespace.bytes());
    let never = KvOptions { vendor: VendorCommands::Never, ..KvOptions::default() };
    let standard = KvNamespace::open_with(&controller, Nsid(1), never).unwrap();
    assert_eq!((standard.has_vendor(), standard.key_bytes_max(), standard.keyspaces()), (false, 16, 1));
}

pub(crate) fn a_device_without_the_vendor_commands_is_told_by_its_log(transport: Transport) {
    let rig = transport(SsdConfig { vendor_kv: false, ..pairs() });
    let mut pairs = Store::open(&rig, &long_keys());
    assert_eq!((pairs.namespace.has_standard(), pairs.namespace.has_vendor()), (true, false));
    pairs.put(b"key", b"value");
    assert_eq!(pairs.get(b"key", 16), Ok(b"value".to_vec()));
    // Whoever claims otherwise hears from the device.
    let always = KvOptions { vendor: VendorCommands::Always, ..KvOptions::default() };
    let namespace = KvNamespace::open_with(&pairs.controller, Nsid(1), always).unwrap();
    assert!(namespace.has_vendor() && namespace.has_batch());
    let status = run(&mut pairs.queue, namespace.exist(KvKey::new(&[1; 30])), None).status;
    assert_eq!(status.kind(), Status::INVALID_OPCODE);
}

pub(crate) fn a_block_namespace_has_no_pairs_and_the_other_way_round(transport: Transport) {
    let blocks = transport(small());
    let controller = blocks.open();
    let error = KvNamespace::open(&controller, Nsid(1)).unwrap_err();
    assert_eq!(error.to_string(), "namespace 1 has command set 0x00 and no key-value commands");
    let pairs = transport(pairs());
    let controller = pairs.open();
    let error = unvme_driver::Namespace::open(&controller, Nsid(1)).unwrap_err();
    assert_eq!(error.to_string(), "namespace 1 has command set 0x01, not the NVM Command Set");
}

pub(crate) fn pairs_are_stored_retrieved_and_deleted(transport: Transport) {
    let rig = transport(pairs());
    let mut pairs = Store::open(&rig, &long_keys());
    let long = [0x6c; 255];
    for key in [&b"k"[..], b"abc", b"abcd", b"0123456789abcdef", b"0123456789abcdefg", &long] {
        let named = KvKey::new(key);
        let exist = pairs.namespace.exist(named);
        assert_eq!(pairs.verdict(exist), KvVerdict::NotFound, "{key:?}");
        assert!(pairs.get(key, 16).is_err_and(|status| KvVerdict::of(status) == KvVerdict::NotFound));
        assert_eq!(KvVerdict::of(pairs.store(named, b"x", StoreOptions::IF_EXISTS)), KvVerdict::NotFound);
        assert_eq!(KvVerdict::of(pairs.store(named, b"value", StoreOptions::IF_NOT_EXISTS)), KvVerdict::Done);
        assert_eq!(KvVerdict::of(pairs.store(named, b"x", StoreOptions::IF_NOT_EXISTS)), KvVerdict::Exists);
        assert_eq!(pairs.get(key, 16), Ok(b"value".to_vec()));
        assert_eq!(pairs.get_part(named, 0, 2), Ok((b"va".to_vec(), 5)));
        assert_eq!(pairs.get_part(named, 0, 0), Ok((Vec::new(), 5)));
        assert_eq!(KvVerdict::of(pairs.store(named, b"", StoreOptions::IF_EXISTS)), KvVerdict::Done);
        assert_eq!(pairs.get(key, 16), Ok(Vec::new()), "a value of no bytes is one");
        let (exist, delete) = (pairs.namespace.exist(named), pairs.namespace.delete(named));
        assert_eq!(pairs.verdict(exist), KvVerdict::Done);
        assert_eq!(pairs.verdict(delete), KvVerdict::Done);
        let (exist, delete) = (pairs.namespace.exist(named), pairs.namespace.delete(named));
        assert_eq!(pairs.verdict(exist), KvVerdict::NotFound);
        if pairs.namespace.delete_tells(named) {
            assert_eq!(pairs.verdict(delete), KvVerdict::NotFound);
        }
    }
    let flush = Ok(pairs.namespace.flush());
    assert_eq!(pairs.verdict(flush), KvVerdict::Done);
}

pub(crate) fn both_dialects_see_the_same_pairs_and_keyspaces_their_own(transport: Transport) {
    let rig = transport(pairs());
    let mut pairs = Store::open(&rig, &QueueOptions::default());
    let one = |keyspace| KvKey { keyspace, bytes: b"same key" };
    let compressed = StoreOptions { compress: true, ..StoreOptions::default() };
    // Compression takes the vendor's Store; the standard Retrieve finds what it stored.
    assert_eq!(pairs.store(one(0), &[7; 10_000], compressed), Status::SUCCESS);
    assert_eq!(pairs.get_part(one(0), 0, 16_384), Ok((vec![7; 10_000], 10_000)));
    assert!(pairs.get_part(one(1), 0, 16).is_err());
    assert_eq!(pairs.store(one(1), b"other", StoreOptions::default()), Status::SUCCESS);
    assert_eq!(pairs.get_part(one(1), 0, 16), Ok((b"other".to_vec(), 5)));
    assert_eq!(pairs.list(b"", 4096), [b"same key"]);
    let delete = pairs.namespace.delete(one(0));
    assert_eq!(pairs.verdict(delete), KvVerdict::Done);
    assert_eq!(pairs.get_part(one(1), 0, 16), Ok((b"other".to_vec(), 5)));
}

pub(crate) fn a_value_is_retrieved_from_an_offset_and_appended_to(transport: Transport) {
    let rig = transport(pairs());
    let mut pairs = Store::open(&rig, &QueueOptions::default());
    let data = Random::seeded().bytes(5_003);
    pairs.put(b"value", &data[..2_001]);
    let append = pairs.namespace.append(KvKey::new(b"value"), data.len() - 2_001);
    let buf = filled(&pairs.controller, &data[2_001..]);
    assert_eq!(run(&mut pairs.queue, append, Some(buf)).status, Status::SUCCESS);
    let key = KvKey::new(b"value");
    assert_eq!(pairs.get_part(key, 512, 100), Ok((data[512..612].to_vec(), 5_003)));
    // Not whole dwords, and more than there is.
    assert_eq!(pairs.get_part(key, 4_608, 395), Ok((data[4_608..].to_vec(), 5_003)));
    assert_eq!(pairs.get_part(key, 4_608, 4_096), Ok((data[4_608..].to_vec(), 5_003)));
    assert_eq!(pairs.get_part(key, 5_120, 16), Err(Status::new(3, 0x02)), "the value ends before");
}

pub(crate) fn values_of_every_length_come_back_by_prps_and_sgls(transport: Transport) {
    let rig = transport(pairs());
    let mut random = Random::seeded();
    for data_pointers in [DataPointers::Prp, DataPointers::Sgl, DataPointers::Auto] {
        let options = QueueOptions { data_pointers, long_keys: true, ..QueueOptions::default() };
        let mut pairs = Store::open(&rig, &options);
        for bytes in
            [1, 3, 511, 512, 4_095, 4_096, 4_097, 8_192, 8_193, 100_001, 2 << 20, (2 << 20) + 1, 9_000_001]
        {
            let value = random.bytes(bytes);
            pairs.put(b"value", &value);
            assert!(pairs.get(b"value", bytes) == Ok(value.clone()), "{bytes} bytes, {data_pointers:?}");
            // More room than value, and less.
            let (data, size) = pairs.get_part(KvKey::new(b"value"), 0, bytes + 5_000).expect("retrieve");
            assert!(data == value && size as usize == bytes, "{bytes} bytes, {data_pointers:?}");
            let (data, size) = pairs.get_part(KvKey::new(b"value"), 0, bytes / 2).expect("retrieve");
            assert!(data == value[..bytes / 2] && size as usize == bytes, "{bytes} bytes, {data_pointers:?}");
        }
        // What does not fit into the entry takes a vendor command, and has as long a value.
        let key = [7; 40];
        let value = random.bytes(5_000_001);
        pairs.put(&key, &value);
        assert!(pairs.get(&key, value.len()) == Ok(value.clone()), "{data_pointers:?}");
        let part = pairs.get_part(KvKey::new(&key), 4_608, 3_000_000);
        assert!(part == Ok((value[4_608..3_004_608].to_vec(), 5_000_001)), "{data_pointers:?}");
    }
}

pub(crate) fn several_long_transfers_have_lists_of_their_own(transport: Transport) {
    let rig = transport(pairs());
    let options = QueueOptions { data_pointers: DataPointers::Prp, depth: 4, ..QueueOptions::default() };
    let (controller, mut queue, namespace) = kv_queue(&rig, &options);
    // Three rounds: lists of commands that have ended are used again.
    for round in 0..3_u8 {
        let bytes = (3 << 20) + usize::from(round) * (1 << 20);
        for index in 0..4_u8 {
            let mut buf = controller.alloc(bytes).unwrap();
            buf.fill(round << 4 | index);
            let key = [index];
            let command = namespace.store(KvKey::new(&key), bytes, StoreOptions::default()).unwrap();
            queue.submit_kv(command, Some(buf), index.into()).unwrap();
        }
        for _ in 0..4 {
            assert_eq!(next(&mut queue).status, Status::SUCCESS);
        }
        for index in 0..4_u8 {
            let key = [index];
            let command = namespace.retrieve(KvKey::new(&key), 0, bytes).unwrap();
            queue.submit_kv(command, Some(controller.alloc(bytes).unwrap()), index.into()).unwrap();
        }
        for _ in 0..4 {
            let completion = next(&mut queue);
            assert_eq!(completion.status, Status::SUCCESS);
            let expected = round << 4 | completion.token as u8;
            assert!(completion.buf.unwrap().to_vec().iter().all(|byte| *byte == expected));
        }
    }
}

pub(crate) fn long_keys_of_many_commands_do_not_mix(transport: Transport) {
    let rig = transport(pairs());
    let (controller, mut queue, namespace) = kv_queue(&rig, &QueueOptions { depth: 48, ..long_keys() });
    let key = |n: u64| -> Vec<u8> {
        let mut key = n.to_le_bytes().to_vec();
        // As long as the others that are under way: nothing but their bytes tells them apart.
        key.resize(17 + n as usize / 48 * 26, 0x6b);
        key
    };
    for base in (0..480).step_by(48) {
        for n in base..base + 48 {
            let (key, value) = (key(n), n.to_le_bytes());
            let command = namespace.store(KvKey::new(&key), 8, StoreOptions::default()).unwrap();
            queue.submit_kv(command, Some(filled(&controller, &value)), n).unwrap();
        }
        for _ in 0..48 {
            assert_eq!(next(&mut queue).status, Status::SUCCESS);
        }
    }
    for base in (0..480).step_by(48) {
        for n in base..base + 48 {
            let key = key(n);
            let command = namespace.retrieve(KvKey::new(&key), 0, 8).unwrap();
            queue.submit_kv(command, Some(controller.alloc(8).unwrap()), n).unwrap();
        }
        for _ in 0..48 {
            let completion = next(&mut queue);
            assert_eq!(completion.status, Status::SUCCESS);
            assert_eq!(completion.buf.unwrap().to_vec(), completion.token.to_le_bytes());
        }
    }
}

pub(crate) fn what_a_queue_cannot_take_comes_back_with_its_buffer(transport: Transport) {
    let rig = transport(pairs());
    let (controller, mut queue, namespace) = kv_queue(&rig, &QueueOptions::default());
    let key = [1; 20];
    let store = namespace.store(KvKey::new(&key), 4, StoreOptions::default()).unwrap();
    let rejected = queue.submit_kv(store, Some(filled(&controller, b"four")), 1).unwrap_err();
    assert!(rejected.to_string().contains("QueueOptions::long_keys"), "{rejected}");
    assert_eq!(rejected.buf.expect("the buffer comes back").to_vec(), b"four");
    let store = namespace.store(KvKey::new(b"k"), 5000, StoreOptions::default()).unwrap();
    let rejected = queue.submit_kv(store, Some(controller.alloc(4096).unwrap()), 1).unwrap_err();
    assert!(rejected.to_string().contains("longer than its buffer (4096 bytes)"), "{rejected}");
    let rejected = queue.submit_kv(store, None, 1).unwrap_err();
    assert_eq!(rejected.to_string(), "the command moves 5000 bytes and came without a buffer");
    assert_eq!(queue.outstanding(), 0);
}

pub(crate) fn list_and_iterators_return_the_keys(transport: Transport) {
    let rig = transport(pairs());
    let mut pairs = Store::open(&rig, &long_keys());
    for key in [&b"b"[..], b"a", b"abc1", b"abc2", b"abd", b"abc3 is longer than sixteen"] {
        pairs.put(key, key);
    }
    let expected: [&[u8]; 5] = [b"a", b"abc1", b"abc2", b"abd", b"b"];
    assert_eq!(pairs.list(b"", 4096), expected);
    assert_eq!(pairs.list(b"abc2", 4096), expected[2..]);
    assert_eq!(pairs.list(b"abc20", 4096), expected[3..]);
    // Room for the count, two records of four and one of eight bytes.
    assert_eq!(pairs.list(b"", 4 + 4 + 8), expected[..2]);

    let abc = Prefix { prefix: 0x6162_6300, bitmask: 0xffff_ff00 };
    let open = pairs.namespace.iterate_open(0, IterateType::Key, abc);
    let opened = run(&mut pairs.queue, open, None);
    assert_eq!((opened.status, opened.result & 0xff), (Status::SUCCESS, 1));
    let again = pairs.namespace.iterate_open(0, IterateType::Key, abc);
    assert_eq!(run(&mut pairs.queue, again, None).status.kind(), Status::new(3, 0x92));
    let mut keys = Vec::new();
    loop {
        let read = pairs.namespace.iterate_read(0, 1);
        let buf = pairs.controller.alloc(32 << 10).unwrap();
        let completion = run(&mut pairs.queue, read, Some(buf));
        let data = completion.buf.unwrap().to_vec();
        keys.extend(IterateKeys::new(&data[..completion.result as usize]).map(<[u8]>::to_vec));
        if KvVerdict::of(completion.status) == KvVerdict::EndOfIteration {
            break;
        }
        assert_eq!(completion.status, Status::SUCCESS);
    }
    keys.sort();
    assert_eq!(keys, [&b"abc1"[..], b"abc2", b"abc3 is longer than sixteen"]);
    let close = pairs.namespace.iterate_close(0, 1);
    assert_eq!(pairs.verdict(close), KvVerdict::Done);
    let close = pairs.namespace.iterate_close(0, 1);
    assert_eq!(run(&mut pairs.queue, close, None).status.kind(), Status::new(3, 0x90));
}

pub(crate) fn a_batch_does_its_commands_one_after_another(transport: Transport) {
    let rig = transport(pairs());
    let mut pairs = Store::open(&rig, &long_keys());
    let long = [9; 200];
    let store = |key, value, options| KvBatchOp::Store { key: KvKey::new(key), value, options };
    let ops = [
        store(&b"first"[..], &b"1"[..], StoreOptions::default()),
        store(b"first", b"2", StoreOptions::IF_NOT_EXISTS),
        store(b"second", b"", StoreOptions::default()),
        KvBatchOp::Delete(KvKey::new(b"first")),
        KvBatchOp::Delete(KvKey::new(b"first")),
        store(&long, b"long", StoreOptions::default()),
        store(b"first", b"3", StoreOptions::IF_EXISTS),
    ];
    let mut buf = pairs.controller.alloc(KvNamespace::batch_bytes(&ops)).unwrap();
    let command = pairs.namespace.batch(&ops, &mut buf);
    let completion = run(&mut pairs.queue, command, Some(buf));
    let verdicts: Vec<KvVerdict> = (0..ops.len())
        .map(|index| KvVerdict::of(KvNamespace::batch_status(completion.result, index)))
        .collect();
    use KvVerdict::{Done, Exists, NotFound};
    assert_eq!(verdicts, [Done, Exists, Done, Done, NotFound, Done, NotFound]);
    assert_eq!(pairs.get(b"second", 16), Ok(Vec::new()));
    assert_eq!(pairs.get(&long, 16), Ok(b"long".to_vec()));
    assert!(pairs.get(b"first", 16).is_err());

    let nine = [ops[0]; 9];
    let mut buf = pairs.controller.alloc(KvNamespace::batch_bytes(&nine)).unwrap();
    for wrong in [&nine[..], &[], &[KvBatchOp::Delete(KvKey::new(b"abc"))]] {
        let error = pairs.namespace.batch(wrong, &mut buf).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    }
    let mut buf = pairs.controller.alloc(600).unwrap();
    let error = pairs.namespace.batch(&ops, &mut buf).unwrap_err();
    assert!(error.to_string().contains("a batch of 7 commands in a buffer of 600 bytes"), "{error}");
}

pub(crate) fn random_pairs_leave_what_a_model_has(transport: Transport) {
    let rig = transport(pairs());
    let mut random = Random::seeded();
    let mut pairs = Store::open(&rig, &long_keys());
    let mut model: BTreeMap<(u8, Vec<u8>), Vec<u8>> = BTreeMap::new();
    for step in 0..600 {
        // Few keys of every kind: most meet again.
        let length = [1, 3, 4, 16, 17, 255][random.below(6) as usize];
        let bytes = vec![random.below(4) as u8; length];
        let keyspace = u8::from(length >= 4 && random.below(3) == 0);
        let key = KvKey { keyspace, bytes: &bytes };
        let place = (keyspace, bytes.clone());
        let known = model.contains_key(&place);
        match random.below(4) {
            0 | 1 => {
                let length = random.below(9000) as usize;
                let value = random.bytes(length);
                let options = [StoreOptions::default(), StoreOptions::IF_EXISTS, StoreOptions::IF_NOT_EXISTS];
                let choice = random.below(3) as usize;
                let expected = match (choice, known) {
                    (1, false) => KvVerdict::NotFound,
                    (2, true) => KvVerdict::Exists,
                    _ => KvVerdict::Done,
                };
                let status = pairs.store(key, &value, options[choice]);
                assert_eq!(KvVerdict::of(status), expected, "step {step}: store {key:?}: {status}");
                if expected == KvVerdict::Done {
                    model.insert(place, value);
                }
            }
            2 => {
                let delete = pairs.namespace.delete(key);
                let verdict = pairs.verdict(delete);
                if known || pairs.namespace.delete_tells(key) {
                    let expected = if known { KvVerdict::Done } else { KvVerdict::NotFound };
                    assert_eq!(verdict, expected, "step {step}: delete {key:?}");
                }
                model.remove(&place);
            }
            _ => match (pairs.get_part(key, 0, 9000), model.get(&place)) {
                (Ok((data, _)), Some(value)) => assert!(data == *value, "step {step}: {key:?} differs"),
                (Err(status), None) => assert_eq!(KvVerdict::of(status), KvVerdict::NotFound),
                (got, expected) => panic!(
                    "step {step}: a key of {} bytes: {:?}, not {:?} bytes",
                    key.bytes.len(),
                    got.map(|(data, _)| data.len()),
                    expected.map(Vec::len)
                ),
            },
        }
    }
    let short = model.keys().filter(|(keyspace, key)| *keyspace == 0 && key.len() <= 16);
    assert_eq!(pairs.list(b"", 65_536), short.map(|(_, key)| key.clone()).collect::<Vec<_>>());
}

pub(crate) fn long_keys_work_after_a_reset(transport: Transport) {
    let rig = transport(pairs());
    let mut pairs = Store::open(&rig, &long_keys());
    let key = [3; 100];
    pairs.put(&key, b"before");
    pairs.controller.reset().expect("reset");
    assert_eq!(pairs.get(&key, 16), Ok(b"before".to_vec()));
    pairs.put(&key, b"after");
    assert_eq!(pairs.get(&key, 16), Ok(b"after".to_vec()));
}

pub(crate) fn a_device_is_asked_where_it_wants_the_keyspace(transport: Transport) {
    for keyspace_field in [KeyspaceField::Cdw3, KeyspaceField::Nsid] {
        let rig = transport(SsdConfig { keyspace_field, ..pairs() });
        let mut pairs = Store::open(&rig, &long_keys());
        for keyspace in [0, 1] {
            let key = KvKey { keyspace, bytes: b"a key of more than 16 bytes" };
            assert_eq!(pairs.store(key, &[keyspace; 3], StoreOptions::default()), Status::SUCCESS);
        }
        for keyspace in [0, 1] {
            let key = KvKey { keyspace, bytes: b"a key of more than 16 bytes" };
            assert_eq!(pairs.get_part(key, 0, 16), Ok((vec![keyspace; 3], 3)), "{keyspace_field:?}");
        }
        // The other field is the wrong one, or there would be nothing to ask.
        let other = match keyspace_field {
            KeyspaceField::Cdw3 => KeyspaceField::Nsid,
            KeyspaceField::Nsid => KeyspaceField::Cdw3,
        };
        let options = KvOptions { keyspace_field: Some(other), ..KvOptions::default() };
        let wrong = KvNamespace::open_with(&pairs.controller, Nsid(1), options).unwrap();
        let store = wrong.store(KvKey::new(&[7; 30]), 0, StoreOptions::default());
        let stored = run(&mut pairs.queue, store, None).status;
        let right = pairs.namespace.exist(KvKey::new(&[7; 30]));
        let is_there = pairs.verdict(right) == KvVerdict::Done;
        assert!(!stored.is_success() || !is_there, "{keyspace_field:?}: {stored}");
    }
}
