//! Key-value calls, on a device with both dialects and on one with the standard commands alone.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use unvme::{
    BatchOp, Device, DialectLimits, DriverError, Error, Kv, KvKey, KvOptions, KvQueue, KvVerdict, Nsid, Op,
    OpenOptions, Payload, QueueOptions, Retrieved, Status, StoreOptions, VendorCommands, open,
};

const DEFAULT: StoreOptions = StoreOptions { condition: unvme::StoreCondition::Always, compress: false };

fn device() -> Device {
    open("mem:kv:256M", &OpenOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialects {
    Both,
    StandardOnly,
    VendorOnly,
}

fn kv(device: &Device, dialects: Dialects) -> Kv {
    let vendor = match dialects {
        Dialects::Both | Dialects::VendorOnly => VendorCommands::Detect,
        Dialects::StandardOnly => VendorCommands::Never,
    };
    device.kv_with(Nsid(1), KvOptions { vendor, ..KvOptions::default() }).unwrap_or_else(|e| panic!("{e}"))
}

fn keys(iter: unvme::Result<unvme::KeyIter<'_>>) -> Vec<Vec<u8>> {
    iter.and_then(Iterator::collect).unwrap_or_else(|e| panic!("{e}"))
}

/// A value that differs from byte to byte and from `seed` to `seed`.
fn value(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i as u64).wrapping_mul(31).wrapping_add(seed) as u8 ^ (i >> 8) as u8).collect()
}

fn argument<T: std::fmt::Debug>(outcome: unvme::Result<T>, part: &str) {
    match outcome {
        Err(Error::Argument(message)) => assert!(message.contains(part), "{message}"),
        other => panic!("{other:?}, not {part}"),
    }
}

fn unsupported<T: std::fmt::Debug>(outcome: unvme::Result<T>, part: &str) {
    match outcome {
        Err(e @ Error::Unsupported { .. }) => assert!(e.to_string().contains(part), "{e}"),
        other => panic!("{other:?}, not {part}"),
    }
}

#[test]
fn every_call_does_what_it_says_in_either_dialect() {
    let device = device();
    for dialects in [Dialects::Both, Dialects::StandardOnly] {
        let mut kv = kv(&device, dialects);
        assert_eq!(kv.retrieve(b"name").expect("retrieve"), None);
        assert!(!kv.exist(b"name").expect("exist") && !kv.delete(b"name").expect("delete"));
        assert_eq!(kv.value_bytes(b"name").expect("value_bytes"), None);
        let missing = kv.store(b"name", b"Ada", StoreOptions::IF_EXISTS).expect_err("no such key");
        assert_eq!(missing.kv_verdict(), Some(KvVerdict::NotFound));
        kv.store(b"name", b"Ada", StoreOptions::IF_NOT_EXISTS).expect("store");
        let exists = kv.store(b"name", b"Grace", StoreOptions::IF_NOT_EXISTS).expect_err("the key exists");
        assert_eq!(exists.kv_verdict(), Some(KvVerdict::Exists));
        assert_eq!(kv.retrieve(b"name").expect("retrieve").as_deref(), Some(&b"Ada"[..]));
        kv.store(b"name", b"Grace", StoreOptions::IF_EXISTS).expect("store");
        assert_eq!(kv.value_bytes(b"name").expect("value_bytes"), Some(5));
        let mut part = [0xee; 3];
        let found = kv.retrieve_into(b"name", 0, &mut part).expect("retrieve");
        assert_eq!((found, &part), (Some(Retrieved { copied: 3, value_bytes: 5 }), b"Gra"));
        assert_eq!(keys(kv.list()), [b"name"]);
        assert!(kv.exist(b"name").expect("exist") && kv.delete(b"name").expect("delete"));
        kv.store(b"e", b"", DEFAULT).expect("a value of no bytes");
        assert_eq!(kv.retrieve(b"e").expect("retrieve"), Some(Vec::new()));
        assert!(kv.delete(b"e").expect("delete") && !kv.delete(b"e").expect("delete"));
        kv.flush().expect("flush");
        assert_eq!(keys(kv.list()), [[0; 0]; 0]);
    }
}

#[test]
fn limits_name_what_each_dialect_takes() {
    let device = device();
    let both = kv(&device, Dialects::Both).limits();
    assert_eq!((both.key_bytes_min, both.key_bytes_max, both.keyspaces), (1, 255, 2));
    assert_eq!(both.value_bytes_max, 256 << 20);
    let dialect = |key_bytes_min, key_bytes_max, value_bytes_max| {
        Some(DialectLimits { key_bytes_min, key_bytes_max, value_bytes_max })
    };
    let standard = dialect(1, 16, 256 << 20);
    assert_eq!((both.standard, both.vendor), (standard, dialect(4, 255, 256 << 20)));
    let alone = kv(&device, Dialects::StandardOnly).limits();
    assert_eq!((alone.standard, alone.vendor), (standard, None));
    assert_eq!((alone.key_bytes_max, alone.keyspaces), (16, 1));
}

#[test]
fn a_standard_device_says_what_takes_the_vendor_commands() {
    let device = device();
    let mut kv = kv(&device, Dialects::StandardOnly);
    let long = [7; 17];
    let hint = "a key of 17 bytes: 1 to 16 are possible; longer ones take Samsung's vendor commands";
    argument(kv.store(&long, b"v", DEFAULT), hint);
    argument(kv.retrieve(&long), hint);
    argument(kv.delete(&long), hint);
    argument(kv.exist(&long), hint);
    argument(kv.batch(&[BatchOp::store(b"k", b"v"), BatchOp::Delete(&long)]), hint);
    unsupported(kv.append(b"name", b"v"), "append to a value: that takes Samsung's vendor commands");
    let compress = StoreOptions { compress: true, ..DEFAULT };
    unsupported(kv.store(b"name", b"v", compress), "ask for compression: that takes Samsung's");
    for offset in [1, 511, 512] {
        unsupported(kv.retrieve_into(b"name", offset, &mut [0; 16]), "retrieve from an offset: that takes");
    }
    argument(kv.keyspace(1), "keyspace 1: the device has 1, numbered from 0; others take Samsung's vendor");
    // Nothing of the batch was sent.
    assert_eq!(kv.retrieve(b"k").expect("retrieve"), None);
}

#[test]
fn the_callers_mistakes_are_told_with_the_name_of_the_device() {
    let device = device();
    let mut both = kv(&device, Dialects::Both);
    match both.exist(b"") {
        Err(Error::Argument(message)) => {
            assert_eq!(message, "mem:kv:256M: namespace 1: a key of 0 bytes: 1 to 255 are possible")
        }
        other => panic!("{other:?}"),
    }
    argument(both.store(&[1; 256], b"", DEFAULT), "a key of 256 bytes: 1 to 255 are possible");
    argument(both.store(&[1; 17], &vec![0; (256 << 20) + 1], DEFAULT), "at most 268435456 bytes");
    argument(both.store(b"k", &vec![0; (256 << 20) + 1], DEFAULT), "at most 268435456 bytes");
    let mut one = both.keyspace(1).expect("keyspace 1");
    argument(one.exist(b"abc"), "use keyspace 1 with a key of 3 bytes");
    argument(both.keyspace(2), "keyspace 2: the device has 2, numbered from 0");
    match device.kv(Nsid(9)) {
        Err(Error::Argument(message)) => {
            assert_eq!(message, "mem:kv:256M: there is no namespace 9; attached namespaces are 1");
        }
        other => panic!("{other:?}"),
    }
    let block = open("mem:block:16M", &OpenOptions::default()).expect("open");
    unsupported(block.kv(Nsid(1)), "no key-value commands");
    assert_eq!(device.all_namespaces().expect("namespaces").len(), 1);
    assert_eq!(device.all_namespaces().expect("namespaces")[0].command_set, 1);
}

#[test]
fn long_values_are_moved_by_one_command_or_retrieved_in_pieces() {
    let device = device();
    let mut kv = kv(&device, Dialects::Both);
    for bytes in [65_535, 65_536, 65_537, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 20_000_003] {
        let data = value(bytes as u64, bytes);
        kv.store(b"long", &data, DEFAULT).expect("store");
        assert!(kv.retrieve(b"long").expect("retrieve") == Some(data), "{bytes} bytes");
    }
    // A long key's value, too; and it grows by being appended to.
    let key = [5; 40];
    let data = value(2, 20_000_003);
    kv.store(&key, &data, DEFAULT).expect("store");
    assert!(kv.retrieve(&key).expect("retrieve") == Some(data));
    let data = value(1, 5_000_001);
    kv.store(&key, &data[..2 << 20], DEFAULT).expect("store");
    kv.append(&key, &data[2 << 20..4 << 20]).expect("append");
    kv.append(&key, &data[4 << 20..]).expect("append");
    assert_eq!(kv.value_bytes(&key).expect("value_bytes"), Some(5_000_001));
    assert!(kv.retrieve(&key).expect("retrieve").as_ref() == Some(&data));
    for (offset, bytes) in
        [(0, 3_000_000), (1, 2 << 20), (511, 2), (512, 1), (700, 4_100_000), (4_999_999, 100)]
    {
        let mut part = vec![0xee; bytes];
        let there = bytes.min(data.len() - offset);
        let found = kv.retrieve_into(&key, offset as u32, &mut part).expect("retrieve");
        assert_eq!(found, Some(Retrieved { copied: there, value_bytes: 5_000_001 }), "{bytes} at {offset}");
        assert!(part[..there] == data[offset..offset + there], "{bytes} at {offset}");
        assert!(part[there..].iter().all(|byte| *byte == 0xee), "{bytes} at {offset}");
    }
    for offset in [5_000_001, 5_000_192, 6_000_000, u32::MAX] {
        let found = kv.retrieve_into(&key, offset, &mut [0; 16]).expect("retrieve");
        assert_eq!(found, Some(Retrieved { copied: 0, value_bytes: 5_000_001 }), "at {offset}");
    }
    let compress = StoreOptions { compress: true, ..DEFAULT };
    kv.store(b"zeroes", &vec![0; 1 << 20], compress).expect("store");
    assert!(kv.retrieve(b"zeroes").expect("retrieve") == Some(vec![0; 1 << 20]));
}

#[test]
fn keys_are_listed_over_many_pages_and_by_prefix() {
    let device = device();
    let short: Vec<Vec<u8>> = (0..4000).map(|n: u32| format!("{:03}/{n:05}", n % 7).into_bytes()).collect();
    let long: Vec<Vec<u8>> =
        (0..2000).map(|n: u32| format!("{:03}/{n:05}{}", n % 7, "-".repeat(60)).into_bytes()).collect();
    let mut both = kv(&device, Dialects::Both);
    let ops: Vec<BatchOp<'_>> = short.iter().chain(&long).map(|key| BatchOp::store(key, b"v")).collect();
    assert!(both.batch(&ops).expect("batch").iter().all(|status| status.is_success()));
    let wanted = |some: &[&[Vec<u8>]], takes: &dyn Fn(&[u8]) -> bool| {
        let mut all: Vec<Vec<u8>> =
            some.iter().flat_map(|keys| keys.iter()).filter(|key| takes(key)).cloned().collect();
        all.sort();
        all
    };
    let sorted = |mut keys: Vec<Vec<u8>>| {
        keys.sort();
        keys
    };
    let mut standard = kv(&device, Dialects::StandardOnly);
    assert_eq!(keys(standard.list()), wanted(&[&short], &|_| true));
    assert_eq!(sorted(keys(both.list())), wanted(&[&short, &long], &|_| true));
    for prefix in [&b"0"[..], b"003/", b"003/01", b"003/01001", b"009", b"003/01001---", b"x", &[0xff; 300]] {
        let takes = |key: &[u8]| key.starts_with(prefix);
        assert_eq!(keys(standard.prefix(prefix)), wanted(&[&short], &takes), "{prefix:?}");
        assert_eq!(sorted(keys(both.prefix(prefix))), wanted(&[&short, &long], &takes), "{prefix:?}");
    }
    for start in [&b""[..], b"003", b"003/02000-", b"006/03988", b"006/03989", b"\xff", &[b'0'; 40]] {
        let takes = |key: &[u8]| key >= start;
        assert_eq!(keys(standard.list_from(start)), wanted(&[&short], &takes), "{start:?}");
        assert_eq!(sorted(keys(both.list_from(start))), wanted(&[&short, &long], &takes), "{start:?}");
    }
}

#[test]
fn listings_go_on_while_others_list_and_give_their_iterators_back() {
    let device = device();
    let mut writer = kv(&device, Dialects::Both).keyspace(1).expect("keyspace 1");
    let all: Vec<Vec<u8>> = (0..1000_u32).map(|n| format!("{n:020}").into_bytes()).collect();
    for key in &all {
        writer.store(key, b"", DEFAULT).expect("store");
    }
    for _ in 0..3 {
        // Six listings of the same keys at a time: the device has one iterator for them, and others for
        // halves.
        let mut handles: Vec<Kv> = (0..6).map(|_| writer.keyspace(1).expect("keyspace 1")).collect();
        let mut lists: Vec<_> = handles.iter_mut().map(|kv| kv.prefix(b"00").expect("prefix")).collect();
        let mut found: Vec<Vec<Vec<u8>>> =
            lists.iter_mut().map(|list| vec![list.next().unwrap().unwrap()]).collect();
        for (found, list) in found.iter_mut().zip(&mut lists) {
            found.extend(list.map(|key| key.expect("key")));
            found.sort();
            assert!(*found == all);
        }
        // Dropped early, a listing gives its iterator back: there are sixteen.
        for _ in 0..40 {
            assert!(writer.list().expect("list").next().is_some());
        }
    }
}

#[test]
fn a_batch_reports_on_each_operation_in_either_dialect() {
    let device = device();
    let big = value(9, 700_000);
    for dialects in [Dialects::Both, Dialects::StandardOnly] {
        let mut kv = kv(&device, dialects);
        let mut ops = vec![
            BatchOp::store(b"same", b"1"),
            BatchOp::Store { key: b"same", value: b"2", options: StoreOptions::IF_NOT_EXISTS },
            BatchOp::Delete(b"same"),
            BatchOp::Store { key: b"same", value: b"3", options: StoreOptions::IF_EXISTS },
            BatchOp::store(b"same", b"4"),
            BatchOp::store(b"x", b""),
        ];
        ops.extend([
            BatchOp::store(b"big1", &big),
            BatchOp::store(b"big2", &big),
            BatchOp::store(b"big3", &big),
        ]);
        let names: Vec<[u8; 8]> = (0..50_u64).map(u64::to_be_bytes).collect();
        ops.extend(names.iter().map(|name| BatchOp::store(name, name)));
        let statuses = kv.batch(&ops).expect("batch");
        let verdicts: Vec<KvVerdict> = statuses.iter().map(|status| KvVerdict::of(*status)).collect();
        use KvVerdict::{Done, Exists, NotFound};
        assert_eq!(verdicts[..6], [Done, Exists, Done, NotFound, Done, Done], "{dialects:?}");
        assert!(verdicts[6..].iter().all(|verdict| *verdict == Done) && verdicts.len() == ops.len());
        assert_eq!(kv.retrieve(b"same").expect("retrieve").as_deref(), Some(&b"4"[..]));
        for key in [&b"big1"[..], b"big2", b"big3"] {
            assert!(kv.retrieve(key).expect("retrieve").as_ref() == Some(&big));
        }
        for name in &names {
            assert_eq!(kv.retrieve(name).expect("retrieve").as_deref(), Some(&name[..]));
        }
        let all = keys(kv.list());
        let deletes: Vec<BatchOp<'_>> = all.iter().map(|key| BatchOp::Delete(key)).collect();
        assert!(kv.batch(&deletes).expect("batch").iter().all(|status| status.is_success()));
        assert!(keys(kv.list()).is_empty() && kv.batch(&[]).expect("nothing to do").is_empty());
    }
}

#[test]
fn usage_grows_with_what_is_stored_and_a_full_device_says_so() {
    let device = open("mem:kv:64M", &OpenOptions::default()).expect("open");
    let mut kv = device.kv(Nsid(1)).expect("namespace 1");
    let empty = kv.usage().expect("usage");
    assert!(empty.bytes > 32 << 20 && empty.used_bytes < empty.bytes / 100, "{empty:?}");
    let data = value(3, 100_000);
    let mut stored: u64 = 0;
    let full = loop {
        match kv.store(&stored.to_be_bytes(), &data, DEFAULT) {
            Ok(()) => stored += 1,
            Err(e) => break e,
        }
        assert!(stored < 640);
    };
    assert_eq!(full.kv_verdict(), Some(KvVerdict::Full), "{full}");
    let usage = kv.usage().expect("usage");
    assert!(usage.used_bytes >= stored * 100_000 && usage.used_bytes <= usage.bytes, "{usage:?} of {stored}");
    assert!(kv.delete(&0_u64.to_be_bytes()).expect("delete"));
    kv.store(b"again", &data, DEFAULT).expect("a deletion gives its space back");
    assert!(kv.retrieve(b"again").expect("retrieve") == Some(data));
}

fn finish(queue: &mut KvQueue, mut done: impl FnMut(unvme::KvCompletion)) {
    while queue.outstanding() > 0 {
        assert!(queue.wait(Duration::from_secs(10)).expect("wait"), "nothing completes");
        queue.poll(16).for_each(&mut done);
    }
}

#[test]
fn buffers_travel_with_commands_and_come_back_with_completions() {
    let device = device();
    let kv = kv(&device, Dialects::Both);
    let mut queue = kv.queue(&QueueOptions { depth: 4, ..Default::default() }).expect("queue");
    assert_eq!(queue.capacity(), 4);
    let long = [8; 100];
    let names: [&[u8]; 4] = [b"a", b"0123456789abcdef", &long, b"bb"];
    for (token, name) in names.iter().enumerate() {
        let mut buf = queue.alloc(4096).expect("buffer");
        buf.fill(token as u8 + 1);
        queue.store(KvKey::new(name), Payload { buf, bytes: 1000 + token }, token as u64).expect("submit");
    }
    let spare = queue.alloc(4096).expect("buffer");
    let rejected = queue.retrieve(KvKey::new(b"a"), Payload::whole(spare), 9).expect_err("the queue is full");
    assert!(matches!(rejected.error, DriverError::Full { capacity: 4 }));
    assert!(rejected.buf.is_some());
    queue.ring().expect("ring");
    let mut buffers = Vec::new();
    finish(&mut queue, |completion| {
        assert_eq!(completion.status, Status::SUCCESS);
        buffers.push(completion.buf.expect("the buffer comes back"));
    });
    for (token, (name, buf)) in names.iter().zip(buffers.drain(..)).enumerate() {
        queue.retrieve(KvKey::new(name), Payload::whole(buf), token as u64).expect("submit");
    }
    finish(&mut queue, |completion| {
        assert_eq!(completion.status, Status::SUCCESS);
        assert_eq!(u64::from(completion.value_bytes), 1000 + completion.token);
        let data = completion.buf.expect("the buffer comes back").to_vec();
        assert!(
            data[..completion.value_bytes as usize].iter().all(|b| u64::from(*b) == completion.token + 1)
        );
    });
}

#[test]
fn a_queue_takes_every_command_and_refuses_what_the_device_does_not_have() {
    let device = device();
    let mut queue = kv(&device, Dialects::Both).queue(&QueueOptions::default()).expect("queue");
    let key = KvKey::new(b"name");
    let mut buf = queue.alloc(8).expect("buffer");
    buf.write(0, b"one two ");
    let mut answers = Vec::new();
    let mut ask = |queue: &mut KvQueue, op, buf| {
        queue.submit(op, buf, 1).expect("submit");
        finish(queue, |completion| answers.push((KvVerdict::of(completion.status), completion.value_bytes)));
        *answers.last().expect("completion")
    };
    let store = Op::Store { key, bytes: 8, options: StoreOptions::IF_NOT_EXISTS };
    assert_eq!(ask(&mut queue, store, Some(buf)).0, KvVerdict::Done);
    let buf = queue.alloc(8).expect("buffer");
    assert_eq!(ask(&mut queue, store, Some(buf)).0, KvVerdict::Exists);
    let buf = queue.alloc(8).expect("buffer");
    assert_eq!(ask(&mut queue, Op::Append { key, bytes: 8 }, Some(buf)).0, KvVerdict::Done);
    assert_eq!(ask(&mut queue, Op::Retrieve { key, offset: 0, bytes: 0 }, None), (KvVerdict::Done, 16));
    assert_eq!(ask(&mut queue, Op::Exist(key), None).0, KvVerdict::Done);
    let buf = queue.alloc(4096).expect("buffer");
    assert_eq!(ask(&mut queue, Op::List { start: b"", bytes: 4096 }, Some(buf)).0, KvVerdict::Done);
    let (kind, prefix) =
        (unvme_spec::samsung_kv::IterateType::Key, unvme_spec::samsung_kv::Prefix::default());
    let open = Op::IterateOpen { keyspace: 0, kind, prefix };
    assert_eq!(ask(&mut queue, open, None), (KvVerdict::Done, 1));
    let read = Op::IterateRead { keyspace: 0, iterator: 1 };
    let buf = queue.alloc(32 << 10).expect("buffer");
    // One key of four bytes: the count, its length, the key.
    assert_eq!(ask(&mut queue, read, Some(buf)).1, 12);
    assert_eq!(ask(&mut queue, Op::IterateClose { keyspace: 0, iterator: 1 }, None).0, KvVerdict::Done);
    assert_eq!(ask(&mut queue, Op::Delete { key, must_exist: true }, None).0, KvVerdict::Done);
    assert_eq!(ask(&mut queue, Op::Delete { key, must_exist: true }, None).0, KvVerdict::NotFound);
    assert_eq!(ask(&mut queue, Op::Flush, None).0, KvVerdict::Done);

    let mut alone = kv(&device, Dialects::StandardOnly).queue(&QueueOptions::default()).expect("queue");
    let buf = alone.alloc(8).expect("buffer");
    let rejected = alone.submit(Op::Append { key, bytes: 8 }, Some(buf), 1).expect_err("no vendor commands");
    assert!(matches!(rejected.error, DriverError::Unsupported(_)) && rejected.buf.is_some(), "{rejected}");
    let rejected = alone.submit(store, None, 1).expect_err("no buffer");
    assert!(rejected.to_string().contains("moves 8 bytes and came without a buffer"), "{rejected}");
    let buf = alone.alloc(8).expect("buffer");
    let long = KvKey::new(&[1; 17]);
    let rejected = alone.retrieve(long, Payload::whole(buf), 1).expect_err("a long key");
    assert!(rejected.to_string().contains("1 to 16 are possible"), "{rejected}");
}

/// Something to do to a pair.
#[derive(Clone, Debug)]
enum Step {
    Store(usize, usize, u8),
    Update(usize, usize),
    Insert(usize, usize),
    Append(usize, usize),
    Delete(usize),
    Retrieve(usize),
    Part(usize, u32, usize),
    Batch(Vec<(usize, Option<usize>)>),
    Prefix(usize, usize),
    ListFrom(usize),
}

const KEYS: usize = 24;

/// Keys of every kind: 1 to 3 bytes, up to 16, longer; many that begin alike.
fn key(n: usize) -> Vec<u8> {
    let bytes = [1, 2, 3, 4, 8, 16, 17, 64, 255];
    let length = bytes[n % bytes.len()];
    (0..length).map(|i| if i == length - 1 { n as u8 } else { b'a' + (n / 9) as u8 }).collect()
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![8 => 0..5000_usize, 1 => 60_000..70_000_usize];
    let k = 0..KEYS;
    prop_oneof![
        5 => (k.clone(), bytes.clone(), any::<u8>()).prop_map(|(k, n, seed)| Step::Store(k, n, seed)),
        1 => (k.clone(), bytes.clone()).prop_map(|(k, n)| Step::Update(k, n)),
        1 => (k.clone(), bytes.clone()).prop_map(|(k, n)| Step::Insert(k, n)),
        1 => (k.clone(), 0..3000_usize).prop_map(|(k, n)| Step::Append(k, n)),
        3 => k.clone().prop_map(Step::Delete),
        4 => k.clone().prop_map(Step::Retrieve),
        2 => (k.clone(), 0..6000_u32, 0..6000_usize).prop_map(|(k, o, n)| Step::Part(k, o, n)),
        2 => prop::collection::vec((k.clone(), prop::option::of(0..2000_usize)), 0..20).prop_map(Step::Batch),
        1 => (k.clone(), 0..6_usize).prop_map(|(k, n)| Step::Prefix(k, n)),
        1 => k.prop_map(Step::ListFrom),
    ]
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn check_verdict(outcome: unvme::Result<()>, expected: KvVerdict) -> Result<(), TestCaseError> {
    let verdict = match outcome {
        Ok(()) => KvVerdict::Done,
        Err(e) => e.kv_verdict().ok_or_else(|| TestCaseError::fail(e.to_string()))?,
    };
    prop_assert_eq!(verdict, expected);
    Ok(())
}

/// Does a step to the device and to the model; `vendor` says whether there are offsets, append and
/// compression.
fn apply(
    kv: &mut Kv,
    model: &mut Model,
    step: &Step,
    names: &[Vec<u8>],
    vendor: bool,
) -> Result<(), TestCaseError> {
    let failed = |e: Error| TestCaseError::fail(format!("{step:?}: {e}"));
    let name = |n: &usize| &names[n % names.len()];
    match step {
        Step::Store(k, bytes, seed) => {
            let data = value((*seed).into(), *bytes);
            let options = StoreOptions { compress: vendor && seed % 4 == 0 && name(k).len() >= 4, ..DEFAULT };
            kv.store(name(k), &data, options).map_err(failed)?;
            model.insert(name(k).clone(), data);
        }
        Step::Update(k, bytes) | Step::Insert(k, bytes) => {
            let (inserts, exists) = (matches!(step, Step::Insert(..)), model.contains_key(name(k)));
            let options = if inserts { StoreOptions::IF_NOT_EXISTS } else { StoreOptions::IF_EXISTS };
            let expected = match (inserts, exists) {
                (true, true) => KvVerdict::Exists,
                (false, false) => KvVerdict::NotFound,
                _ => KvVerdict::Done,
            };
            let data = value(1, *bytes);
            check_verdict(kv.store(name(k), &data, options), expected)?;
            if expected == KvVerdict::Done {
                model.insert(name(k).clone(), data);
            }
        }
        Step::Append(k, bytes) => {
            if !vendor || name(k).len() < 4 {
                return Ok(());
            }
            let data = value(2, *bytes);
            kv.append(name(k), &data).map_err(failed)?;
            model.entry(name(k).clone()).or_default().extend(data);
        }
        Step::Delete(k) => {
            prop_assert_eq!(kv.delete(name(k)).map_err(failed)?, model.remove(name(k)).is_some());
        }
        Step::Retrieve(k) => {
            prop_assert!(kv.retrieve(name(k)).map_err(failed)?.as_ref() == model.get(name(k)), "{:?}", step);
            prop_assert_eq!(kv.exist(name(k)).map_err(failed)?, model.contains_key(name(k)));
        }
        Step::Part(k, offset, bytes) => {
            let offset = if vendor && name(k).len() >= 4 { *offset } else { 0 };
            part(kv, model.get(name(k)), name(k), (offset, *bytes))?;
        }
        Step::Batch(ops) => batch(kv, model, ops, names)?,
        Step::Prefix(k, bytes) => {
            let prefix = &name(k)[..name(k).len().min(*bytes)];
            let mut found = keys(kv.prefix(prefix));
            found.sort();
            let expected: Vec<_> = model.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
            prop_assert_eq!(found, expected);
        }
        Step::ListFrom(k) => {
            let mut found = keys(kv.list_from(name(k)));
            found.sort();
            let expected: Vec<_> = model.range(name(k).clone()..).map(|(key, _)| key.clone()).collect();
            prop_assert_eq!(found, expected);
        }
    }
    Ok(())
}

/// Retrieves bytes of a value that should be `expected`, from an offset on.
fn part(
    kv: &mut Kv,
    expected: Option<&Vec<u8>>,
    key: &[u8],
    (offset, bytes): (u32, usize),
) -> Result<(), TestCaseError> {
    let mut out = vec![0xee; bytes];
    let found = kv.retrieve_into(key, offset, &mut out).map_err(|e| TestCaseError::fail(e.to_string()))?;
    prop_assert_eq!(found.map(|found| found.value_bytes), expected.map(|value| value.len() as u64));
    if let (Some(found), Some(value)) = (found, expected) {
        let behind = value.get(offset as usize..).unwrap_or(&[]);
        prop_assert_eq!(found.copied, behind.len().min(bytes));
        prop_assert!(out[..found.copied] == behind[..found.copied], "{} bytes at {}", bytes, offset);
    }
    Ok(())
}

fn batch(
    kv: &mut Kv,
    model: &mut Model,
    ops: &[(usize, Option<usize>)],
    names: &[Vec<u8>],
) -> Result<(), TestCaseError> {
    let values: Vec<Vec<u8>> = ops.iter().map(|(k, bytes)| value(*k as u64, bytes.unwrap_or(0))).collect();
    let name = |k: usize| &names[k % names.len()];
    let made: Vec<BatchOp<'_>> = ops
        .iter()
        .zip(&values)
        .map(|((k, bytes), value)| match bytes {
            Some(_) => BatchOp::store(name(*k), value),
            None => BatchOp::Delete(name(*k)),
        })
        .collect();
    let statuses = kv.batch(&made).map_err(|e| TestCaseError::fail(e.to_string()))?;
    prop_assert_eq!(statuses.len(), ops.len());
    for (((k, bytes), value), status) in ops.iter().zip(&values).zip(statuses) {
        let verdict = KvVerdict::of(status);
        if bytes.is_some() {
            prop_assert_eq!(verdict, KvVerdict::Done);
            model.insert(name(*k).clone(), value.clone());
        } else {
            let existed = model.remove(name(*k)).is_some();
            // The standard Delete of a key that is not there may succeed.
            let tells = kv.namespace().delete_tells(KvKey::new(name(*k)));
            let expected = if existed || !tells { KvVerdict::Done } else { KvVerdict::NotFound };
            prop_assert_eq!(verdict, expected);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn a_namespace_behaves_like_a_map(
        dialects in prop_oneof![Just(Dialects::Both), Just(Dialects::StandardOnly), Just(Dialects::VendorOnly)],
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let device = device();
        let vendor = dialects != Dialects::StandardOnly;
        let kinds = |key: &Vec<u8>| match dialects {
            Dialects::Both => true,
            Dialects::StandardOnly => key.len() <= 16,
            // A keyspace that the standard commands do not reach.
            Dialects::VendorOnly => key.len() >= 4,
        };
        let names: Vec<Vec<u8>> = (0..KEYS).map(key).filter(kinds).collect();
        let keyspace = u8::from(dialects == Dialects::VendorOnly);
        let mut kv = kv(&device, dialects).keyspace(keyspace).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let mut model = Model::new();
        for step in &steps {
            apply(&mut kv, &mut model, step, &names, vendor)?;
        }
        let mut found = keys(kv.list());
        found.sort();
        prop_assert_eq!(found, model.keys().cloned().collect::<Vec<_>>());
        for (key, value) in &model {
            prop_assert!(kv.retrieve(key).map_err(|e| TestCaseError::fail(e.to_string()))?.as_ref() == Some(value));
        }
    }
}
