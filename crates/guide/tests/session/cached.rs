//! The cache on or off: the same answers, whatever happens in which order.

use unvme_guide::session::{
    IterateType, KvKey as Key, KvVerdict, Member, OpError, Prefix, QueueChoice, StoreOptions,
};
use unvme_spec::samsung_kv::{Command, KeyspaceField, Target};

use crate::rig::{BOTH, Books, POLLED, pairs};
use crate::verbs::Verbs;

const AUTO: QueueChoice = QueueChoice::Auto;

/// Xorshift: the same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// An answer as far as it has to be the same.
#[derive(Debug, PartialEq)]
enum Answer {
    Value { data: Vec<u8>, value_bytes: u64 },
    Verdict(KvVerdict, u16),
    Found(bool),
    Error(String),
}

fn answer<T>(result: Result<T, OpError>, good: impl FnOnce(T) -> Answer) -> Answer {
    match result {
        Ok(value) => good(value),
        Err(OpError::Status(status)) => Answer::Verdict(KvVerdict::of(status), status.raw()),
        Err(e) => Answer::Error(e.to_string()),
    }
}

fn done(_: ()) -> Answer {
    Answer::Verdict(KvVerdict::Done, 0)
}

/// One operation, drawn by lot; blocking or asynchronous.
fn operate(device: &Member, books: &Books, dice: &mut Dice) -> Answer {
    let number = dice.roll(40);
    let name: Vec<u8> = match number % 3 {
        0 => format!("key:{number:02}").into_bytes(),
        1 => format!("a key of more than sixteen bytes: {number:02}").into_bytes(),
        _ => vec![b'k', number as u8, 0, 1],
    };
    let key = Key { keyspace: (number % 2) as u8, bytes: &name };
    let bytes = [0, 1, 3, 100, 512, 1000, 4096, 5000, 40_000][dice.roll(9) as usize];
    let value: Vec<u8> = (0..bytes).map(|at| (at as u64 ^ dice.0 >> 20) as u8).collect();
    let options = [
        StoreOptions::default(),
        StoreOptions::default(),
        StoreOptions::IF_EXISTS,
        StoreOptions::IF_NOT_EXISTS,
    ][dice.roll(4) as usize];
    let offset = [0, 0, 0, 512, 1024, 4096, 100][dice.roll(7) as usize];
    match dice.roll(20) {
        0..5 => answer(device.store(AUTO, key, &value, options), done),
        5 => answer(device.append(AUTO, key, &value), done),
        6 => answer(device.delete(AUTO, key, dice.roll(2) == 0), done),
        7 => answer(device.exist(AUTO, key), Answer::Found),
        8 => ended(books, device.store_async(AUTO, key, &value, options, 1)),
        9 => ended(books, device.delete_async(AUTO, key, dice.roll(2) == 0, 1)),
        10 if dice.roll(20) == 0 => answer(device.format(dice.roll(2) == 0), done),
        11..15 => ended(books, device.retrieve_async(AUTO, key, offset, bytes, 1)),
        _ => {
            let mut out = vec![0xee; bytes];
            answer(device.retrieve(AUTO, key, offset, &mut out), |got| {
                assert!(out[got.copied..].iter().all(|byte| *byte == 0xee));
                out.truncate(got.copied);
                Answer::Value { data: out, value_bytes: got.value_bytes }
            })
        }
    }
}

/// The answer to an asynchronous operation, waited for.
fn ended(books: &Books, taken: Result<(), OpError>) -> Answer {
    answer(taken, |()| {
        books.wait_for(1);
        let outcome = books.take(1);
        if !outcome.status.is_success() {
            return Answer::Verdict(KvVerdict::of(outcome.status), outcome.status.raw());
        }
        let mut data = vec![0; outcome.data_bytes];
        outcome.copy_data(&mut data);
        Answer::Value { data, value_bytes: outcome.value_bytes }
    })
}

#[test]
fn every_answer_is_the_same_with_the_cache_and_without() {
    for seed in [1, 0x5eed, 0xdead_beef, 77] {
        let (_on, cached, cached_books) = pairs(BOTH, true);
        let (_off, plain, plain_books) = pairs(BOTH, false);
        let (mut first, mut second) = (Dice(seed), Dice(seed));
        for step in 0..4000 {
            let with = operate(&cached, &cached_books, &mut first);
            let without = operate(&plain, &plain_books, &mut second);
            assert_eq!(with, without, "seed {seed:#x}, step {step}");
        }
    }
}

/// Writers of one key each and readers of all: a reader never sees an older value than the one it saw before,
/// nor one that is older than what its writer has been told is stored.
#[test]
fn threads_never_see_a_value_older_than_one_that_was_acknowledged() {
    use std::sync::atomic::{AtomicU64, Ordering};
    const KEYS: usize = 3;
    let (_session, device, _) = pairs(crate::rig::Masks(3, 3, 0, 8), true);
    let acknowledged: [AtomicU64; KEYS] = Default::default();
    let name = |index: usize| (index as u64 + 1).to_be_bytes();
    let put = |index: usize, version: u64| {
        let value = [version.to_le_bytes(), version.to_le_bytes()].concat();
        let name = name(index);
        device.store(AUTO, Key { keyspace: 0, bytes: &name }, &value, StoreOptions::default()).unwrap();
        acknowledged[index].store(version, Ordering::SeqCst);
    };
    (0..KEYS).for_each(|index| put(index, 1));
    std::thread::scope(|scope| {
        for index in 0..KEYS {
            let put = &put;
            scope.spawn(move || (2..3000).for_each(|version| put(index, version)));
        }
        for _ in 0..3 {
            scope.spawn(|| {
                let mut seen = [0; KEYS];
                for round in 0..6000 {
                    let index = round % KEYS;
                    let least = acknowledged[index].load(Ordering::SeqCst).max(seen[index]);
                    let mut out = [0; 16];
                    let name = name(index);
                    let key = Key { keyspace: 0, bytes: &name };
                    assert_eq!(device.retrieve(AUTO, key, 0, &mut out).unwrap().copied, 16);
                    assert_eq!(out[..8], out[8..], "a torn value");
                    let version = u64::from_le_bytes(out[..8].try_into().unwrap());
                    assert!(version >= least, "key {index}: {version} after {least}");
                    seen[index] = version;
                }
            });
        }
    });
}

#[test]
fn a_hit_is_refused_on_the_wrong_queue_as_a_miss_is() {
    let key = Key { keyspace: 0, bytes: b"wrong queue" };
    for cached in [true, false] {
        let (_session, device, books) = pairs(BOTH, cached);
        device.store(AUTO, key, b"value", StoreOptions::default()).unwrap();
        let mut out = [0xee; 16];
        for cpu in [1, 2, 64] {
            let answer = device.retrieve(QueueChoice::Cpu(cpu), key, 0, &mut out);
            assert!(matches!(answer, Err(OpError::WrongQueue { .. })), "CPU {cpu}, {cached}");
        }
        for cpu in [0, 2, 64] {
            let answer = device.retrieve_async(QueueChoice::Cpu(cpu), key, 0, 16, 1);
            assert!(matches!(answer, Err(OpError::WrongQueue { .. })), "CPU {cpu}, {cached}");
        }
        assert_eq!(books.len(), 0);
        assert_eq!(device.retrieve(QueueChoice::Cpu(0), key, 0, &mut out).unwrap().copied, 5);
        device.retrieve_async(QueueChoice::Cpu(1), key, 0, 16, 1).unwrap();
        books.wait_for(1);
    }
}

#[test]
fn nothing_is_cached_while_an_iterator_deletes_that_a_raw_command_has_opened() {
    let (_session, device, books) = pairs(POLLED, true);
    let target = Target { nsid: device.nsid(), keyspace: 0 };
    let raw = |command: Command| {
        let outcome = device.raw_io(AUTO, command.encode(target, KeyspaceField::Cdw3), &mut []).unwrap();
        assert!(outcome.status.is_success(), "{}", outcome.status);
        outcome.result as u8
    };
    let key = Key { keyspace: 0, bytes: b"bbbb-1" };
    // A hit is answered at once, everything else when somebody polls.
    let is_hit = |token| {
        device.retrieve(AUTO, key, 0, &mut [0; 8]).unwrap();
        device.retrieve_async(AUTO, key, 0, 8, token).unwrap();
        let is_hit = books.len() == 1;
        while books.len() == 0 {
            device.process_completions(None);
        }
        assert!(books.take(token).status.is_success());
        is_hit
    };
    device.store(AUTO, key, b"value", StoreOptions::default()).unwrap();
    assert!(is_hit(1));
    let prefix = Prefix { prefix: 0x6161_6161, bitmask: 0xffff_ffff };
    let iterator = raw(Command::IterateOpen { kind: Ok(IterateType::KeyDelete), prefix });
    assert!(!is_hit(2));
    raw(Command::IterateClose { iterator });
    assert!(is_hit(3));
}
