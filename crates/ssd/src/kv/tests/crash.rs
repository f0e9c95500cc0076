//! Power cuts: what was synced is there, in that version or a later one, and nothing is torn or comes back.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::SsdConfig;
use crate::kv::layout::{SEGMENT_BYTES, SUPERBLOCK_AT, SegmentKind};

/// What a key has been, in order; `None` is deleted.
type History = Vec<(usize, Option<Vec<u8>>)>;

/// What hosts see of the device.
const BYTES: u64 = 16 << 20;

struct Machine {
    media: Arc<Media>,
    disk: Arc<Disk>,
    pairs: Pairs,
    /// Commands begun.
    clock: Arc<AtomicUsize>,
    /// Commands begun when the last sync was done.
    synced: Arc<AtomicUsize>,
    histories: BTreeMap<Vec<u8>, History>,
    /// Segments that cuts have left half empty may be all there are: a deletion may find no room then.
    may_fill_up: bool,
}

impl Machine {
    fn start(image: &[u8], is_new: bool) -> Self {
        Self::start_on(None, image, is_new, Vec::new())
    }

    /// With a translation layer when there is a configuration for one, and what is left of saved indexes.
    fn start_on(flash: Option<&SsdConfig>, image: &[u8], is_new: bool, indexes: Vec<Vec<u8>>) -> Self {
        let clock = Arc::new(AtomicUsize::new(0));
        let synced = Arc::new(AtomicUsize::new(0));
        let (now, then) = (Arc::clone(&clock), Arc::clone(&synced));
        // In the middle of a command that has begun but is not done: what was done before it is durable.
        let disk = Disk::new(image, move || {
            then.store(now.load(Ordering::Relaxed), Ordering::Relaxed);
        });
        *disk.indexes.lock().unwrap() = indexes;
        let store: Box<dyn Store> = Box::new(DiskStore(Arc::clone(&disk)));
        let media = match flash {
            Some(config) => Media::open(config, store),
            None => Media::new(store),
        };
        let media = Arc::new(media.expect("media"));
        let (shared, chunks) = (Arc::clone(&media), chunks_of(&media));
        let store = if is_new { KvStore::create(shared, chunks) } else { KvStore::open(shared, chunks) };
        let store = Arc::new(store.expect("a store"));
        Self {
            media,
            disk,
            pairs: Pairs::new(store, 0),
            clock,
            synced,
            histories: BTreeMap::new(),
            may_fill_up: false,
        }
    }

    /// The process dies, and another one goes on with what is there: everything that was done.
    fn kill(mut self) -> Self {
        self.pairs.store.abandon();
        let media = Arc::new(Media::new(Box::new(DiskStore(Arc::clone(&self.disk)))).expect("media"));
        let store = KvStore::open(Arc::clone(&media), chunks_of(&media)).expect("a store");
        self.media = media;
        self.pairs = Pairs::new(Arc::new(store), 0);
        assert_eq!((self.pairs.store.check(), self.pairs.store.is_in_doubt()), (Vec::new(), false));
        for (key, history) in &self.histories {
            let last = history.last().and_then(|(_, value)| value.clone());
            let found = self.pairs.get(key).ok();
            assert!(found == last, "{} after a kill", String::from_utf8_lossy(key));
        }
        self
    }

    fn step(&mut self, random: &mut Random) {
        let now = self.clock.fetch_add(1, Ordering::Relaxed) + 1;
        let key = format!("key{}", random.below(60)).into_bytes();
        let history = self.histories.entry(key.clone()).or_default();
        match random.below(10) {
            0..7 => {
                let bytes = match random.below(30) {
                    0 => random.below(3 << 20),
                    1..8 => random.below(40_000),
                    8..20 => random.below(300),
                    _ => random.below(6000),
                };
                let is_packed = random.below(2) == 0;
                let value = if is_packed { random.half(bytes) } else { random.bytes(bytes) };
                // Noted before it is done: a crash may leave it.
                history.push((now, Some(value.clone())));
                let policy = StorePolicy { compress: is_packed, ..StorePolicy::default() };
                if self.pairs.store_with(&key, &value, policy) == Err(KvError::Full) {
                    history.pop();
                }
            }
            7..9 => {
                history.push((now, None));
                match self.pairs.delete(&key) {
                    Err(KvError::Full) if self.may_fill_up => drop(history.pop()),
                    done => drop(done.unwrap()),
                }
            }
            _ if random.below(4) == 0 => self.pairs.store.sync().unwrap(),
            _ if random.below(8) == 0 => self.pairs.store.close().unwrap(),
            _ => {
                self.pairs.store.maintain(200_000);
            }
        }
    }

    /// Every key has its state at the last sync, or a later one, and nothing that was promised is missed.
    /// Returns what they are now.
    fn verify(&mut self, before: &BTreeMap<Vec<u8>, History>, synced: usize) {
        assert_eq!((self.pairs.store.check(), self.pairs.store.is_in_doubt()), (Vec::new(), false));
        for (key, history) in before {
            let found = match self.pairs.get(key) {
                Ok(value) => Some(value),
                Err(KvError::NotFound) => None,
                Err(error) => panic!("{}: {error:?}", String::from_utf8_lossy(key)),
            };
            // The command that was under way when the sync was done has a number of its own: it is not
            // covered.
            let covered = history.iter().rposition(|(at, _)| *at < synced.max(1));
            let mut possible: Vec<_> =
                history[covered.unwrap_or(0)..].iter().map(|(_, value)| value.clone()).collect();
            if covered.is_none() {
                possible.push(None);
            }
            assert!(
                possible.contains(&found),
                "{}: found {:?} bytes, possible {:?}, synced {synced}",
                String::from_utf8_lossy(key),
                found.as_ref().map(Vec::len),
                history.iter().map(|(at, v)| (at, v.as_ref().map(Vec::len))).collect::<Vec<_>>(),
            );
            self.histories.insert(key.clone(), vec![(0, found)]);
        }
    }
}

#[test]
fn after_a_power_cut_everything_synced_is_there_and_nothing_is_torn_or_comes_back() {
    let seed = seed("power_cuts");
    let mut random = Random(seed.value);
    let mut machine = Machine::start(&vec![0; BYTES as usize], true);
    for _ in 0..60 {
        for step in 0..random.below(400) {
            if step == 250 {
                machine = machine.kill();
            }
            machine.step(&mut random);
            machine.disk.write_back(|limit| random.below(limit as usize) as u64);
        }
        let image = machine.disk.cut_power(|limit| random.below(limit as usize) as u64);
        let synced = machine.synced.load(Ordering::Relaxed);
        let before = std::mem::take(&mut machine.histories);
        let indexes = machine.disk.cut_index(|limit| random.below(limit as usize) as u64);
        machine = Machine::start_on(None, &image, false, indexes);
        machine.verify(&before, synced);
    }
}

/// Many cuts, each soon after the one before: also while what the last one has left is being put in order.
#[test]
fn a_power_cut_is_never_taken_for_damage() {
    let seed = seed("no_false_alarms");
    let mut random = Random(seed.value);
    let mut machine = Machine::start(&vec![0; BYTES as usize], true);
    machine.may_fill_up = true;
    let cuts = if std::env::var("UNVME_TEST_EXHAUSTIVE").is_ok() { 1000 } else { 40 };
    let mut found = 0;
    for _ in 0..cuts {
        for _ in 0..random.below(80) {
            machine.step(&mut random);
            machine.disk.write_back(|limit| random.below(limit as usize) as u64);
        }
        match random.below(8) {
            0 | 1 => machine.pairs.store.close().unwrap(),
            2 => {
                machine = machine.kill();
                (0..random.below(20)).for_each(|_| machine.step(&mut random));
            }
            _ => {}
        }
        let image = machine.disk.cut_power(|limit| random.below(limit as usize) as u64);
        let synced = machine.synced.load(Ordering::Relaxed);
        let before = std::mem::take(&mut machine.histories);
        machine.pairs.store.abandon();
        let indexes = machine.disk.cut_index(|limit| random.below(limit as usize) as u64);
        machine = Machine::start_on(None, &image, false, indexes);
        found += usize::from(machine.pairs.store.is_saved.load(Ordering::Relaxed));
        machine.may_fill_up = true;
        machine.verify(&before, synced);
    }
    assert!(found > 0, "no index was ever of the moment");
}

/// The store of pairs and the layer that keeps accounts of it share the disk, and lose their parts of it
/// independently.
#[test]
fn after_a_power_cut_of_a_device_with_flash_pairs_and_accounts_are_there() {
    let seed = seed("power_cuts_of_flash");
    let mut random = Random(seed.value);
    let config = programs::config_of(BYTES);
    let image = vec![0; config.store_bytes().unwrap() as usize];
    let mut machine = Machine::start_on(Some(&config), &image, true, Vec::new());
    let mut erased = 0;
    for _ in 0..12 {
        for _ in 0..random.below(400) {
            machine.step(&mut random);
            machine.disk.write_back(|limit| random.below(limit as usize) as u64);
        }
        erased = erased.max(machine.media.flash().unwrap().stats().ftl.erased_units);
        let image = machine.disk.cut_power(|limit| random.below(limit as usize) as u64);
        let synced = machine.synced.load(Ordering::Relaxed);
        let before = std::mem::take(&mut machine.histories);
        let indexes = machine.disk.cut_index(|limit| random.below(limit as usize) as u64);
        machine = Machine::start_on(Some(&config), &image, false, indexes);
        machine.verify(&before, synced);
        assert_eq!(machine.media.flash().unwrap().check(), []);
    }
    assert!(erased > 0, "units are used again");
}

#[test]
fn a_command_cut_short_by_a_kill_has_happened_or_has_not_and_all_others_have() {
    let seed = seed("kills");
    let mut random = Random(seed.value);
    let mut image = vec![0; BYTES as usize];
    let mut model: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let mut is_new = true;
    let mut cut_short = 0;
    for _ in 0..60 {
        let mut machine = Machine::start(&image, is_new);
        is_new = false;
        for (key, value) in &model {
            assert_eq!(machine.pairs.get(key).as_ref(), Ok(value));
        }
        assert_eq!(machine.pairs.store.stats().pairs, model.len() as u64);
        for _ in 0..random.below(150) {
            let key = format!("key{}", random.below(40)).into_bytes();
            let bytes = random.below(9000);
            let value = random.bytes(bytes);
            machine.pairs.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        let before = machine.disk.image();
        let key = format!("key{}", random.below(40)).into_bytes();
        let bytes = random.below(9000);
        let value = random.bytes(bytes);
        machine.pairs.put(&key, &value).unwrap();
        let after = machine.disk.image();
        image = before.clone();
        let lines =
            (0..after.len() / 64).filter(|l| before[l * 64..l * 64 + 64] != after[l * 64..l * 64 + 64]);
        let lines: Vec<usize> = lines.collect();
        // A command that opens a segment or reclaims does many things in an order; this one does one.
        if lines.len() < 200 {
            for line in lines {
                if random.below(2) == 0 {
                    image[line * 64..line * 64 + 64].copy_from_slice(&after[line * 64..line * 64 + 64]);
                    cut_short += 1;
                }
            }
        }
        let mut check = Machine::start(&image, false);
        match check.pairs.get(&key) {
            Ok(found) if found == value => {
                model.insert(key, value);
            }
            found => assert_eq!(found.ok(), model.get(&key).cloned()),
        }
        image = check.disk.image();
    }
    assert!(cut_short > 0);
}

/// What a power cut after `kill` leaves when the system has written nothing back but extents.
fn cut_all_but_extents(synced: &[u8], after: &[u8]) -> Vec<u8> {
    let mut image = synced.to_vec();
    let segments = synced.chunks(SEGMENT_BYTES).zip(after.chunks(SEGMENT_BYTES));
    for (segment, (was, is)) in image.chunks_mut(SEGMENT_BYTES).zip(segments) {
        let kind = |bytes: &[u8]| u32::from_le_bytes(bytes[12..16].try_into().unwrap());
        if kind(was) == SegmentKind::Extent.number() {
            segment.copy_from_slice(is);
        }
    }
    image
}

#[test]
fn extents_of_what_may_come_back_are_not_used_again_after_a_kill() {
    let big = |seed| Random(seed).bytes(6_000_000);
    let mut machine = Machine::start(&vec![0; 2 * BYTES as usize], true);
    machine.pairs.put(b"key", &big(1)).unwrap();
    machine.pairs.store.sync().unwrap();
    let synced = machine.disk.image();
    machine.pairs.put(b"key", b"small").unwrap();
    machine.histories.insert(b"key".to_vec(), vec![(0, Some(b"small".to_vec()))]);
    machine = machine.kill();
    machine.clock.store(1, Ordering::Relaxed);
    machine.pairs.put(b"other", &big(2)).unwrap();
    assert_eq!(machine.synced.load(Ordering::Relaxed), 0, "there was no need for a sync");
    let image = cut_all_but_extents(&synced, &machine.disk.image());
    machine.pairs.store.abandon();
    let mut after = Machine::start(&image, false);
    assert!(after.pairs.get(b"key").as_deref() == Ok(&big(1)[..]));
    assert_eq!(after.pairs.store.check(), []);
}

#[test]
fn a_store_that_was_formatted_is_that_one_after_a_power_cut() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let machine = Machine::start(&vec![0; BYTES as usize], true);
        machine.pairs.store.sync().unwrap();
        let old = machine.disk.image();
        machine.pairs.store.abandon();
        let machine = Machine::start(&old, true);
        let image = machine.disk.cut_power(|limit| random.below(limit as usize) as u64);
        machine.pairs.store.abandon();
        let formatted = machine.disk.image();
        let mut machine = Machine::start(&image, false);
        assert_eq!(machine.pairs.store.check(), []);
        let superblocks = [0, SEGMENT_BYTES * 4].map(|at| at + SUPERBLOCK_AT);
        let store = |image: &[u8], at: usize| image[at + 16..at + 24].to_vec();
        for at in superblocks {
            assert_eq!(store(&image, at), store(&formatted, at), "seed {seed}");
        }
        assert_eq!(machine.pairs.get(b"key"), Err(KvError::NotFound));
    }
}
