//! Threads that store, delete, sweep and retrieve the same pairs at the same time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use super::*;

const KEYS: usize = 8;
const THREADS: u64 = 4;
const ROUNDS: u32 = 20_000;
const MIB: usize = 1 << 20;

/// Marsaglia's xorshift: which interleaving comes up is chance anyway, the choices are not.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % bound
    }

    /// The time between the device's answer and the cache's learning of it.
    fn dawdle(&mut self) {
        match self.below(16) {
            0 => thread::yield_now(),
            1 => (0..self.below(2000)).for_each(|_| std::hint::spin_loop()),
            _ => {}
        }
    }
}

/// A device that counts: each change of a pair gives it the next version, which its value repeats.
struct Counting {
    pairs: Mutex<[(u64, bool); KEYS]>,
    /// The newest version of each pair that anybody was told of.
    told: [AtomicU64; KEYS],
}

/// A value of a version, of a length that depends on it.
fn value(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(1 + version as usize % 40)
}

fn version_of(value: &[u8], seed: u64) -> u64 {
    let version = u64::from_le_bytes(*value.first_chunk().expect("values have a version"));
    assert!(value == self::value(version), "seed {seed}: a mixture of values, or a part of one");
    version
}

impl Counting {
    fn change(&self, at: usize, is_there: bool) -> u64 {
        let mut pairs = self.pairs.lock().unwrap();
        pairs[at] = (pairs[at].0 + 1, is_there);
        pairs[at].0
    }

    fn tell(&self, at: usize, version: u64) {
        self.told[at].fetch_max(version, Ordering::SeqCst);
    }
}

fn key(at: usize) -> Vec<u8> {
    format!("key{}", at % KEYS).into_bytes()
}

fn retrieve_one(cache: &ReadCache, device: &Counting, at: usize, random: &mut Random, seed: u64) {
    let key = key(at);
    let told = device.told[at].load(Ordering::SeqCst);
    let mut out = [0; 512];
    if let Some(hit) = cache.lookup(&id(&key), 0, out.as_mut_slice()) {
        let version = version_of(&out[..hit.copied], seed);
        assert!(version >= told, "seed {seed}: a hit of version {version} after {told} was told");
        return device.tell(at, version);
    }
    let ticket = cache.fill_begin(&id(&key));
    random.dawdle();
    let (version, is_there) = device.pairs.lock().unwrap()[at];
    random.dawdle();
    assert!(version >= told);
    if is_there {
        let value = value(version);
        let value_bytes = value.len() as u64;
        cache.fill_end(ticket, &id(&key), Fetched { offset: 0, value_bytes, data: Value::Bytes(&value) });
    }
    // A retrieve tells as well: what one has seen, a later one must not see older.
    device.tell(at, version);
}

fn change_one(cache: &ReadCache, device: &Counting, at: usize, is_store: bool, random: &mut Random) {
    let key = key(at);
    let ticket = cache.write_begin(&id(&key));
    random.dawdle();
    let version = device.change(at, is_store);
    random.dawdle();
    let value = value(version);
    cache.write_end(ticket, &id(&key), is_store.then_some(Value::Bytes(&value)));
    device.tell(at, version);
}

fn sweep(cache: &ReadCache, device: &Counting, scope: Scope, random: &mut Random) {
    let ticket = cache.sweep_begin(0, scope);
    // In the background and one by one, as a device does.
    for at in 0..KEYS {
        random.dawdle();
        device.change(at, false);
    }
    random.dawdle();
    cache.sweep_end(ticket);
}

#[test]
fn a_hit_is_never_older_than_what_anybody_was_told_before() {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64 | 1;
    // Small enough that values are dropped all the time.
    let cache = cache(1, 4096);
    let device = Counting { pairs: Mutex::new([(0, false); KEYS]), told: Default::default() };
    thread::scope(|scope| {
        for me in 0..THREADS {
            let (cache, device) = (&cache, &device);
            scope.spawn(move || {
                let mut random = Random(seed.wrapping_mul(2 * me + 1) | 1);
                for _ in 0..ROUNDS {
                    let at = random.below(KEYS as u64) as usize;
                    match random.below(200) {
                        0 => sweep(cache, device, Scope::Device, &mut random),
                        1 => {
                            let all =
                                Scope::Matching { keyspace: 0, prefix: 0x6b65_7930, bitmask: 0xffff_ff00 };
                            sweep(cache, device, all, &mut random);
                        }
                        2..5 => drop(cache.evict(0, 500)),
                        5..15 => change_one(cache, device, at, false, &mut random),
                        15..40 => change_one(cache, device, at, true, &mut random),
                        _ => retrieve_one(cache, device, at, &mut random, seed),
                    }
                }
            });
        }
    });
    let stats = cache.stats();
    assert!(stats.hits > 1000 && stats.misses > 1000, "seed {seed}: {stats:?}");
}

#[test]
fn a_change_while_a_large_value_is_being_copied_in_keeps_it_out() {
    const LARGE: usize = MIB;
    let cache = cache(1, 64 * MIB);
    let (newest, told, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let key = id(b"key");
    let look = || {
        let told = told.load(Ordering::SeqCst);
        let mut out = [0; 8];
        if cache.lookup(&key, 0, out.as_mut_slice()).is_some() {
            let version = u64::from_le_bytes(out);
            assert!(version >= told, "a hit of version {version} after {told} was told");
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = vec![0; LARGE];
            for round in 0..300 {
                if round % 2 == 0 {
                    let ticket = cache.fill_begin(&key);
                    value[..8].copy_from_slice(&newest.load(Ordering::SeqCst).to_le_bytes());
                    let data = Value::Bytes(&value);
                    cache.fill_end(ticket, &key, Fetched { offset: 0, value_bytes: LARGE as u64, data });
                } else {
                    let ticket = cache.write_begin(&key);
                    let version = newest.fetch_add(1, Ordering::SeqCst) + 1;
                    value[..8].copy_from_slice(&version.to_le_bytes());
                    cache.write_end(ticket, &key, Some(Value::Bytes(&value)));
                    told.fetch_max(version, Ordering::SeqCst);
                }
                look();
            }
            is_over.store(true, Ordering::SeqCst);
        });
        let mut random = Random(0x1234_5678_9abc_def1);
        while !is_over.load(Ordering::SeqCst) {
            let ticket = cache.write_begin(&key);
            let version = newest.fetch_add(1, Ordering::SeqCst) + 1;
            cache.write_end(ticket, &key, None);
            told.fetch_max(version, Ordering::SeqCst);
            // Longer and shorter than the copy takes.
            for _ in 0..random.below(200) {
                look();
            }
        }
    });
    // What was prepared and did not come in does not count.
    cache.forget_device(0);
    assert_eq!((cache.stats().bytes, cache.devices[0].slab.stats().used_bytes), (0, 0));
}

#[test]
fn values_dropped_while_they_are_copied_out_are_never_seen_overwritten() {
    // One value fits: each thread drops the others', and its memory is theirs next.
    let cache = cache(1, 4096 + 192 + 9);
    thread::scope(|scope| {
        for me in 0..THREADS as u8 {
            let cache = &cache;
            scope.spawn(move || {
                let key = [b'k', me];
                let mut out = vec![0; 4096];
                for _ in 0..5000 {
                    store(cache, &id(&key), &[me; 4096]);
                    for other in 0..THREADS as u8 {
                        if cache.lookup(&id(&[b'k', other]), 0, out.as_mut_slice()).is_some() {
                            assert!(out.iter().all(|byte| *byte == other));
                        }
                    }
                }
            });
        }
    });
    assert!(cache.stats().bytes <= 4096 + 192 + 9);
    assert!(cache.stats().hits > 0 && MIB > cache.devices[0].slab.stats().used_bytes);
}
