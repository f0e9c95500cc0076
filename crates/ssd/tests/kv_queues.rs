//! Several queues at once, random commands of both sets against a model, values of 256 MiB, another process's
//! view.
// The seed is printed.
#![allow(clippy::print_stdout)]

mod host;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use host::pairs::{RETRIEVE, STORE, VENDOR_STORE, kv_config, standard, vendor};
use host::{BASE, Host, MEDIA_BYTES, device, device_on, sqe};
use unvme_bus::{Clock, Dma, DmaAccess, Function, Region, random};
use unvme_spec::{Sqe, Status};
use unvme_ssd::{FileStore, Ssd, SsdConfig};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(random::STEP);
        random::mix(self.0)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn value(&mut self) -> Vec<u8> {
        let bytes = match self.below(8) {
            0 => 0,
            1..=4 => self.below(300),
            5 | 6 => self.below(9000),
            _ => self.below(60_000),
        };
        let byte = self.next() as u8;
        (0..bytes).map(|at| byte.wrapping_add((at / 7) as u8)).collect()
    }

    /// One of some keys: few, so that they meet again.
    fn key(&mut self) -> Vec<u8> {
        let length = [1, 3, 4, 5, 16, 17, 40, 255][self.below(8) as usize];
        vec![self.below(12) as u8; length]
    }
}

type Model = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

fn open(folder: &std::path::Path) -> Host {
    let store = FileStore::open(folder, MEDIA_BYTES).expect("media");
    let mut host = Host::attach(device_on(kv_config(), Box::new(store)));
    host.enable_all();
    host.create_queue_pair(1, 64);
    host
}

/// A random command by the standard set, for a key that it can have.
fn standard_step(host: &mut Host, model: &mut Model, random: &mut Random, key: &[u8]) {
    let entry = (0, key.to_vec());
    let there = model.contains_key(&entry);
    match random.below(5) {
        0 | 1 => {
            let (value, options) = (random.value(), random.below(3) as u32);
            let expected = match options {
                1 if !there => Err(Status::KEY_NOT_FOUND),
                2 if there => Err(Status::KEY_EXISTS),
                _ => Ok(0),
            };
            assert_eq!(host.store_with(key, &value, options), expected);
            if expected.is_ok() {
                model.insert(entry, value);
            }
        }
        2 => assert_eq!(host.value(key), model.get(&entry).cloned().ok_or(Status::KEY_NOT_FOUND)),
        3 => assert_eq!(host.exist(key), if there { Ok(0) } else { Err(Status::KEY_NOT_FOUND) }),
        _ => {
            assert_eq!(host.delete(key), Ok(0));
            model.remove(&entry);
        }
    }
}

/// A random command by the vendor's set.
fn vendor_step(host: &mut Host, model: &mut Model, random: &mut Random, key: &[u8]) {
    let keyspace = random.below(2) as u32;
    let entry = (keyspace, key.to_vec());
    let there = model.contains_key(&entry);
    match random.below(6) {
        0 | 1 => {
            let (value, option) = (random.value(), [0, 1, 2, 4, 8, 9][random.below(6) as usize]);
            let expected = match option & 10 {
                2 if there => Err(vendor(0x80)),
                8 if !there => Err(vendor(0x10)),
                _ => Ok(0),
            };
            assert_eq!(host.vendor_store(VENDOR_STORE, keyspace, key, &value, option), expected);
            if expected.is_ok() {
                model.insert(entry, value);
            }
        }
        2 => assert_eq!(host.vendor_value(keyspace, key), model.get(&entry).cloned().ok_or(vendor(0x10))),
        3 => {
            let part = random.value();
            let whole = model.entry(entry).or_default();
            if whole.len() + part.len() > 200_000 {
                return;
            }
            whole.extend_from_slice(&part);
            assert_eq!(host.vendor_store(0x83, keyspace, key, &part, 0), Ok(whole.len() as u64));
        }
        4 => {
            let offset = random.below(20) as u32 * 512;
            let expected = match model.get(&entry) {
                None => Err(vendor(0x10)),
                Some(value) if offset > 0 && offset as usize >= value.len() => Err(vendor(0x02)),
                Some(value) => {
                    let part = &value[offset as usize..];
                    Ok((value.len() as u64, part[..part.len().min(1024)].to_vec()))
                }
            };
            assert_eq!(host.vendor_retrieve(keyspace, key, offset, 1024), expected);
        }
        _ => {
            let expected = if there { Ok(0) } else { Err(vendor(0x10)) };
            assert_eq!(host.vendor_delete(keyspace, key, 1), expected);
            model.remove(&entry);
        }
    }
}

#[test]
fn both_command_sets_behave_like_a_map_over_many_openings() {
    let seed = std::env::var("UNVME_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_120);
    println!("UNVME_SEED={seed}");
    let mut random = Random(seed);
    let folder = tempfile::tempdir().unwrap();
    let mut model = Model::new();
    for _ in 0..6 {
        let mut host = open(folder.path());
        for _ in 0..600 {
            let key = random.key();
            let by_standard = key.len() <= 16 && (key.len() < 4 || random.below(2) == 0);
            if by_standard {
                standard_step(&mut host, &mut model, &mut random, &key);
            } else {
                vendor_step(&mut host, &mut model, &mut random, &key);
            }
        }
        let listed = host.list(b"", 65_536).unwrap().0;
        let short = model.keys().filter(|(keyspace, key)| *keyspace == 0 && key.len() <= 16);
        assert_eq!(listed, short.map(|(_, key)| key.clone()).collect::<Vec<_>>());
        for ((keyspace, key), value) in model.iter().filter(|((_, key), _)| key.len() >= 4) {
            assert!(host.vendor_value(*keyspace, key).as_ref() == Ok(value), "{keyspace} {key:?}");
        }
    }
}

#[test]
fn a_queue_that_moves_much_lets_the_others_have_their_turn() {
    let mut host = Host::with_pairs();
    host.create_queue_pair(2, 4);
    host.store(b"large", &[7; 1 << 20]).unwrap();
    let retrieve = Sqe { cdw10: 1 << 20, ..host.with_buffer(standard(RETRIEVE, b"large"), 1 << 20) };
    for _ in 0..60 {
        host.push(1, retrieve);
    }
    host.push(2, standard(0x14, b"large"));
    host.ring(1);
    host.ring(2);
    host.advance();
    assert!(host.poll(2).is_some(), "the other queue's command");
    let mut turns = Vec::new();
    loop {
        turns.push(std::iter::from_fn(|| host.poll(1)).map(|cqe| assert_eq!(cqe.result(), 1 << 20)).count());
        if turns.iter().sum::<usize>() == 60 {
            break;
        }
        host.advance();
    }
    assert_eq!(turns, [16, 16, 16, 12], "turns of 16 MiB");
}

#[test]
fn commands_of_a_whole_ring_are_each_answered_with_their_own_value() {
    let mut host = Host::with_pairs();
    for n in 0..60u8 {
        host.store(&[n; 16], &[n; 64]).unwrap();
    }
    host.store(&[7; 3], b"short").unwrap();
    for _ in 0..20 {
        for n in 0..60u8 {
            let mut retrieve = standard(RETRIEVE, &[n; 16]);
            host.set_prps(&mut retrieve, host::DATA + usize::from(n) * 4096, 64);
            host.push(1, Sqe { cdw10: 64, ..retrieve });
        }
        host.ring(1);
        host.advance();
        for n in 0..60u8 {
            assert_eq!(host.poll(1).unwrap().result(), 64);
            assert_eq!(host.bytes(host::DATA + usize::from(n) * 4096, 64), [n; 64]);
        }
    }
}

/// A queue pair of its own, driven by its own thread.
fn work(ssd: &Arc<Ssd>, queue: u16, memory: &Region, data: usize, rounds: u64) {
    let clock = Clock::manual();
    let doorbells = ssd.bar(0).unwrap().unwrap().windows[0].region.clone();
    let (mut tail, mut head, mut phase) = (0u32, 0u32, true);
    let entries = 16u32;
    let (sq, cq) = (Host::submission_offset(queue), Host::completion_offset(queue));
    let mut run = |mut sqe: Sqe, bytes: usize| {
        sqe.dptr = [BASE + data as u64, 0];
        sqe.cdw10 = bytes as u32;
        memory.write_words::<8>(sq + tail as usize * 64, zerocopy::transmute!(sqe));
        tail = (tail + 1) % entries;
        doorbells.store_u32(usize::from(queue) * 8, tail, Ordering::Release);
        loop {
            ssd.advance(Some(queue), &clock);
            let words = memory.read_words::<2>(cq + head as usize * 16);
            let cqe: unvme_spec::Cqe = zerocopy::transmute!(words);
            if cqe.phase() == phase {
                head = (head + 1) % entries;
                phase ^= head == 0;
                doorbells.store_u32(usize::from(queue) * 8 + 4, head, Ordering::Release);
                return cqe;
            }
        }
    };
    let mut random = Random(u64::from(queue));
    for round in 0..rounds {
        // Keys of its own, and some that all queues write: their values say whose and which they are.
        let shared = random.below(4) == 0;
        let key = [if shared { 0 } else { queue as u8 }, random.below(50) as u8];
        let stamp = [queue as u8, key[1]];
        if random.below(2) == 0 {
            memory.write(data, &stamp.repeat(500 + round as usize % 500));
            assert!(run(standard(STORE, &key), 1000 + round as usize % 500 * 2).status().is_success());
        } else {
            let cqe = run(standard(RETRIEVE, &key), 4096);
            if cqe.status().is_success() {
                let mut value = vec![0; cqe.result() as usize];
                memory.read(data, &mut value);
                assert!(value.chunks(2).all(|pair| pair == &value[..2]), "torn");
                assert!(value[1] == key[1] && (shared || value[0] == queue as u8), "somebody else's value");
            } else {
                assert_eq!(cqe.status().kind(), Status::KEY_NOT_FOUND);
            }
        }
    }
}

#[test]
fn four_queues_at_once_see_whole_values_of_the_right_keys() {
    let mut host = Host::attach(host::pairs::kv_device());
    host.enable_all();
    for queue in 1..=4 {
        host.create_queue_pair(queue, 16);
    }
    let (ssd, memory) = (Arc::clone(&host.ssd), host.memory.clone());
    std::thread::scope(|scope| {
        for queue in 1..=4u16 {
            let (ssd, memory) = (&ssd, &memory);
            scope.spawn(move || work(ssd, queue, memory, host::DATA + usize::from(queue) * 8192, 3000));
        }
    });
}

/// A value of 256 MiB, described by PRP lists over many pages or by an SGL of 4 KiB blocks in many segments.
#[test]
fn a_value_of_256_mib_is_stored_by_prps_and_retrieved_by_an_sgl() {
    const VALUE: usize = 256 << 20;
    const PAGES: usize = VALUE / 4096;
    const FAR: u64 = 0x40_0000_0000;
    let config = SsdConfig::kv(1 << 30);
    let mut host = Host::attach(device(config));
    host.enable_all();
    host.create_queue_pair(1, 8);
    let value = Region::anonymous(VALUE).unwrap();
    let lists = Region::anonymous(4 << 20).unwrap();
    host.ssd.dma_map(FAR, &value, DmaAccess::READ_WRITE).unwrap();
    host.ssd.dma_map(2 * FAR, &lists, DmaAccess::READ_WRITE).unwrap();
    for page in 0..PAGES {
        value.store_u64(page * 4096, page as u64 ^ 0x5555, Ordering::Relaxed);
        value.store_u64(page * 4096 + 4088, !(page as u64), Ordering::Relaxed);
    }
    // PRP lists: 511 entries and the place of the next list in each page. Pages go from the last to the
    // first.
    let page_at = |page: usize| FAR + (PAGES - 1 - page) as u64 * 4096;
    let (mut list, mut slot) = (0usize, 0usize);
    for page in 1..PAGES {
        if slot == 511 && page + 1 < PAGES {
            lists.store_u64(list * 4096 + slot * 8, 2 * FAR + (list as u64 + 1) * 4096, Ordering::Relaxed);
            (list, slot) = (list + 1, 0);
        }
        lists.store_u64(list * 4096 + slot * 8, page_at(page), Ordering::Relaxed);
        slot += 1;
    }
    let bytes = VALUE as u32;
    let store = Sqe { dptr: [page_at(0), 2 * FAR], cdw10: bytes, ..standard(STORE, b"large") };
    assert_eq!(host.io(store), Ok(0));
    value.fill(0, VALUE, 0);
    // An SGL: segments of 256 descriptors, the last of which leads to the next segment.
    let mut page = 0;
    let mut segment = 0usize;
    let segments = PAGES.div_ceil(255);
    while page < PAGES {
        let here = (PAGES - page).min(255);
        for index in 0..here {
            let at = segment * 4096 + index * 16;
            lists.store_u64(at, page_at(page), Ordering::Relaxed);
            lists.store_u64(at + 8, 4096, Ordering::Relaxed);
            page += 1;
        }
        segment += 1;
        if page < PAGES {
            let (at, left) = ((segment - 1) * 4096 + here * 16, PAGES - page);
            let (kind, count) = if segment + 1 == segments { (0x30, left) } else { (0x20, 256) };
            lists.store_u64(at, 2 * FAR + segment as u64 * 4096, Ordering::Relaxed);
            lists.store_u64(at + 8, (kind << 56) | (count as u64 * 16), Ordering::Relaxed);
        }
    }
    let first = [2 * FAR, (0x20 << 56) | (256 * 16)];
    let retrieve = Sqe { flags: 0x40, dptr: first, cdw10: bytes, ..standard(RETRIEVE, b"large") };
    assert_eq!(host.io(retrieve), Ok(256 << 20));
    for page in 0..PAGES {
        assert_eq!(value.load_u64(page * 4096, Ordering::Relaxed), page as u64 ^ 0x5555, "page {page}");
        assert_eq!(value.load_u64(page * 4096 + 4088, Ordering::Relaxed), !(page as u64), "page {page}");
    }
    assert_eq!(host.io(Sqe { cdw10: bytes + 1, ..store }), Err(Status::INVALID_VALUE_SIZE));
    assert_eq!(host.delete(b"large"), Ok(0));
    assert_eq!(host.io(sqe(0x00, 1)), Ok(0));
}
