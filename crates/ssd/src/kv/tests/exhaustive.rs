//! Every page that a small store uses is lost, or gives back what was in it before, and every bit that is not
//! a value's flips, one at a time: after a shutdown, and after a kill. No key ever has an older value then,
//! or none; it may be unrecovered, until the loss is accepted. After a shutdown that is so with the index
//! that was saved, whatever happens to that, and without it.
//!
//! A run in `make test` takes some of the cases, others each time; `UNVME_TEST_EXHAUSTIVE=1` takes them all.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::kv::layout::{
    DATA_START, DIRECTORY_AT, EXTENT_CHECKS_AT, HEADER_AT, NONCE_AT, RecordHead, SEGMENT_BYTES,
    SUPERBLOCK_AT, TAIL_AT, TRAILER_AT,
};

const PAGE: usize = 4096;
const BYTES: usize = 24 << 20;
/// Cases of a short run, of each kind.
const CASES: usize = 400;
const LIFE: [u8; 16] = [7; 16];

type Pages = BTreeMap<usize, Vec<u8>>;
type Model = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A disk of which only the pages that hold something are ever touched.
struct Sparse {
    memory: Region,
    index: Mutex<Option<Vec<u8>>>,
}

impl Sparse {
    fn new(pages: &Pages, index: Option<&[u8]>) -> Arc<Self> {
        let memory = Region::anonymous(BYTES).expect("memory for the media");
        for (at, page) in pages {
            memory.write(*at, page);
        }
        Arc::new(Self { memory, index: Mutex::new(index.map(<[u8]>::to_vec)) })
    }

    fn pages(&self) -> Pages {
        let mut page = vec![0; PAGE];
        let mut pages = Pages::new();
        for at in (0..BYTES).step_by(PAGE) {
            self.memory.read(at, &mut page);
            if page.iter().any(|&byte| byte != 0) {
                pages.insert(at, page.clone());
            }
        }
        pages
    }
}

struct SparseStore(Arc<Sparse>);

impl Store for SparseStore {
    fn bytes(&self) -> u64 {
        BYTES as u64
    }
    fn memory(&self) -> Option<&Region> {
        Some(&self.0.memory)
    }
    fn life(&self) -> Option<[u8; 16]> {
        Some(LIFE)
    }
    fn holds_data(&self, _chunk: u64) -> bool {
        true
    }
    fn reserve(&self, _chunk: u64) -> Result<(), SsdError> {
        Ok(())
    }
    fn release(&self, chunk: u64) -> Result<(), SsdError> {
        self.0.memory.discard((chunk * CHUNK_BYTES) as usize, CHUNK_BYTES as usize);
        Ok(())
    }
    fn sync(&self) -> Result<(), SsdError> {
        Ok(())
    }
    fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError> {
        Ok(None)
    }
    fn save_state(&self, _state: &[u8]) -> Result<(), SsdError> {
        Ok(())
    }
    fn save_index(
        &self,
        _chunk: u64,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), SsdError> {
        let mut index = Vec::new();
        write(&mut index).expect("memory takes it");
        *self.0.index.lock().unwrap() = Some(index);
        Ok(())
    }
    fn load_index(&self, _chunk: u64) -> Option<Box<dyn Read>> {
        let index = self.0.index.lock().unwrap().clone()?;
        Some(Box::new(io::Cursor::new(index)))
    }
}

/// A store with a history.
struct History {
    disk: Arc<Sparse>,
    pairs: Option<Pairs>,
    model: Model,
    /// All that was ever in each page, at the moments that were kept.
    former: BTreeMap<usize, BTreeSet<Vec<u8>>>,
}

impl History {
    fn new() -> Self {
        let disk = Sparse::new(&Pages::new(), None);
        let store = create(Box::new(SparseStore(Arc::clone(&disk))));
        let mut history =
            Self { disk, pairs: Some(pairs_of(store)), model: Model::new(), former: BTreeMap::new() };
        history.keep();
        history
    }

    fn pairs(&mut self) -> &mut Pairs {
        self.pairs.as_mut().expect("open")
    }

    fn put(&mut self, key: &str, value: Vec<u8>) {
        self.pairs().put(key.as_bytes(), &value).unwrap();
        self.model.insert(key.into(), Some(value));
        self.keep();
    }

    fn put_packed(&mut self, key: &str, value: Vec<u8>) {
        self.pairs().put_packed(key.as_bytes(), &value).unwrap();
        self.model.insert(key.into(), Some(value));
        self.keep();
    }

    fn delete(&mut self, key: &str) {
        assert_eq!(self.pairs().delete(key.as_bytes()), Ok(true), "{key}");
        self.model.insert(key.into(), None);
    }

    /// What is on the media at this moment may come back.
    fn keep(&mut self) {
        for (at, page) in self.disk.pages() {
            self.former.entry(at).or_default().insert(page);
        }
    }

    /// Seals what is open, so that a segment is full after a few pages.
    fn seal(&mut self) {
        self.keep();
        self.pairs().store.close().unwrap();
        self.keep();
    }

    fn reopen(&mut self) {
        self.pairs = None;
        self.keep();
        self.pairs = Some(pairs_of(open(Box::new(SparseStore(Arc::clone(&self.disk))))));
        self.keep();
    }

    /// What a kill leaves: nothing is written when the store goes.
    fn kill(mut self) -> Left {
        self.keep();
        let pages = self.disk.pages();
        let index = self.disk.index.lock().unwrap().clone();
        self.pairs().store.abandon();
        Left { pages, index, model: self.model, former: self.former }
    }
}

/// What is left of a store, and what it should hold.
struct Left {
    pages: Pages,
    index: Option<Vec<u8>>,
    model: Model,
    former: BTreeMap<usize, BTreeSet<Vec<u8>>>,
}

/// How a store ended.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Closed,
    ClosedAndIndexLost,
    Killed,
}

fn pairs_of(store: Arc<KvStore>) -> Pairs {
    Pairs::with_host(store, 0, 4 << 20)
}

fn value(name: &str, version: usize, bytes: usize) -> Vec<u8> {
    let text = format!("{name} in version {version}; ");
    text.as_bytes().iter().copied().cycle().take(bytes).collect()
}

/// A value of an extent and a rest, nearly all of it zeroes, so that few of its pages are anything to lose.
fn big_value(version: u8) -> Vec<u8> {
    let mut value = vec![0; 2_500_000];
    for at in (0..value.len()).step_by(500_000) {
        value[at] = version;
    }
    value
}

/// Keys with older values in older segments, deletions, values of several segments, segments that were
/// emptied and used again: all in few pages.
fn history(end: End) -> Left {
    let mut history = History::new();
    for version in 0..4 {
        for number in 0..6 {
            let key = format!("key {number}");
            history.put(&key, value(&key, version, [10, 700, 3000, 4096, 9000, 40][number]));
        }
        history.put(&format!("only {version}"), value("only", version, 500));
        history.put("deleted", value("deleted", version, 300));
        if version > 1 {
            // Compressed, and cut into parts.
            history.put_packed("packed", Random(version as u64).half(550_000));
            history.put("big", big_value(version as u8));
            history.delete("deleted");
        }
        history.seal();
    }
    // Segments whose records are all dead come back, and are used for records of the same sizes.
    history.pairs().store.empty_all_dead();
    history.keep();
    history.reopen();
    for version in 4..6 {
        for number in 0..6 {
            let key = format!("key {number}");
            history.put(&key, value(&key, version, [10, 700, 3000, 4096, 9000, 40][number]));
        }
        history.put("deleted", value("deleted", version, 300));
        history.delete(&format!("only {}", version - 4));
        history.seal();
        history.pairs().store.empty_all_dead();
        history.keep();
    }
    // What is open when it ends: newest values, and a deletion, of keys with older ones.
    history.put("big", big_value(9));
    history.put("key 0", value("key 0", 9, 10));
    history.delete("deleted");
    history.keep();
    history.pairs().store.sync().unwrap();
    for number in 1..6 {
        let key = format!("key {number}");
        history.put(&key, value(&key, 9, [10, 700, 3000, 4096, 9000, 40][number]));
    }
    history.delete("only 2");
    history.put("new", value("new", 9, 5000));
    if end != End::Killed {
        history.seal();
    }
    let mut left = history.kill();
    if end == End::ClosedAndIndexLost {
        left.index = None;
    }
    left
}

/// One thing that is wrong with the media.
#[derive(Clone, Debug)]
enum Fault {
    Zeroes(usize),
    Former(usize, Vec<u8>),
    Bit(usize, u8),
    /// A page of the saved index.
    IndexPage(usize),
    IndexBit(usize, u8),
    /// Only so much of it is there.
    IndexCut(usize),
}

impl Fault {
    fn apply(&self, disk: &Sparse) {
        let memory = &disk.memory;
        let mut index = disk.index.lock().unwrap();
        match self {
            Self::IndexPage(at) => {
                let index = index.as_mut().expect("an index");
                let end = (at + PAGE).min(index.len());
                index[*at..end].fill(0);
            }
            Self::IndexBit(at, bit) => index.as_mut().expect("an index")[*at] ^= 1 << bit,
            Self::IndexCut(bytes) => index.as_mut().expect("an index").truncate(*bytes),
            Self::Zeroes(at) => memory.write(*at, &[0; PAGE]),
            Self::Former(at, page) => memory.write(*at, page),
            Self::Bit(at, bit) => {
                let mut byte = [0];
                memory.read(*at, &mut byte);
                memory.write(*at, &[byte[0] ^ 1 << bit]);
            }
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Zeroes(at) => {
                format!("page {:#x} of segment {} is lost", at % SEGMENT_BYTES, at / SEGMENT_BYTES)
            }
            Self::Former(at, _) => {
                format!("page {:#x} of segment {} is an earlier one", at % SEGMENT_BYTES, at / SEGMENT_BYTES)
            }
            Self::IndexPage(at) => format!("page {at:#x} of the saved index is lost"),
            Self::IndexBit(at, bit) => format!("bit {bit} of byte {at:#x} of the saved index flips"),
            Self::IndexCut(bytes) => format!("the saved index ends after {bytes} bytes"),
            Self::Bit(at, bit) => {
                format!("bit {bit} of byte {:#x} of segment {} flips", at % SEGMENT_BYTES, at / SEGMENT_BYTES)
            }
        }
    }
}

/// Opens the store with a fault.
fn try_fault(left: &Left, fault: &Fault) -> Outcome {
    let model = &left.model;
    let disk = Sparse::new(&left.pages, left.index.as_deref());
    fault.apply(&disk);
    let mut outcome = Outcome::default();
    // What it says is what it says the next time, too.
    for round in 0..2 {
        let mut pairs = pairs_of(open(Box::new(SparseStore(Arc::clone(&disk)))));
        let mut unread = 0;
        for (key, value) in model {
            let found = pairs.get(key);
            match (&found, value) {
                (Ok(found), Some(value)) if found == value => {}
                (Err(KvError::NotFound), None) => {}
                (Err(KvError::Unrecovered), _) => unread += 1,
                _ => panic!(
                    "{}: {} is {:?} in round {round}",
                    fault.name(),
                    String::from_utf8_lossy(key),
                    found.map(|found| String::from_utf8_lossy(&found[..found.len().min(40)]).into_owned())
                ),
            }
        }
        pairs.check_listing(model, &fault.name());
        let losses = pairs.store.check();
        assert_eq!(unread == 0, losses.is_empty(), "{}: {unread} unread, {losses:?}", fault.name());
        outcome = Outcome { unread, is_in_doubt: pairs.store.is_in_doubt() };
        pairs.store.abandon();
    }
    if outcome.unread > 0 {
        accept(&disk, model, fault, outcome);
    }
    outcome
}

/// Gives up what is lost: everything that is left can be read, and the store can be used.
fn accept(disk: &Arc<Sparse>, model: &Model, fault: &Fault, outcome: Outcome) {
    let mut pairs = pairs_of(open(Box::new(SparseStore(Arc::clone(disk)))));
    let given_up = pairs.store.accept_loss().unwrap_or_else(|error| panic!("{}: {error:?}", fault.name()));
    assert_ne!(given_up, [], "{}", fault.name());
    for is_reopened in [false, true] {
        if is_reopened {
            drop(pairs);
            pairs = pairs_of(open(Box::new(SparseStore(Arc::clone(disk)))));
        }
        assert_eq!(
            pairs.store.check(),
            [],
            "{}, reopened: {is_reopened}, given up: {given_up:?}",
            fault.name()
        );
        let mut there = 0;
        for (key, value) in model {
            let found = pairs.get(key);
            // Only what nobody could name leaves older values.
            let is_right = found.as_ref().ok() == value.as_ref();
            assert!(
                is_right || found == Err(KvError::NotFound) || outcome.is_in_doubt,
                "{}: {} is {:?} when the loss is accepted",
                fault.name(),
                String::from_utf8_lossy(key),
                found.map(|found| found.len())
            );
            there += u64::from(found.is_ok());
        }
        assert_eq!(pairs.store.stats().pairs, there, "{}", fault.name());
        assert_eq!(pairs.keys(b"").len() as u64, there, "{}", fault.name());
        pairs.put(b"key 1", b"again").unwrap();
        assert_eq!(pairs.get(b"key 1").unwrap(), b"again");
        assert_eq!(pairs.delete(b"key 1"), Ok(true));
        pairs.put(b"key 1", model[b"key 1".as_slice()].as_ref().unwrap()).unwrap();
    }
}

/// What a fault has cost.
#[derive(Clone, Copy, Default)]
struct Outcome {
    unread: usize,
    is_in_doubt: bool,
}

/// Places of everything but values: of what describes segments, and of the heads of records.
fn metadata(pages: &Pages) -> Vec<usize> {
    let mut bytes = Vec::new();
    for segment in (0..BYTES).step_by(SEGMENT_BYTES) {
        let whole: Vec<u8> = (segment..segment + SEGMENT_BYTES)
            .step_by(PAGE)
            .flat_map(|at| pages.get(&at).cloned().unwrap_or_else(|| vec![0; PAGE]))
            .collect();
        let word = |at: usize| u32::from_le_bytes(whole[at..at + 4].try_into().unwrap());
        let nonce = word(40);
        bytes.extend((0..64).chain(HEADER_AT[1]..PAGE).map(|at| segment + at));
        bytes.extend((SUPERBLOCK_AT..SUPERBLOCK_AT + 72).chain(TAIL_AT..TAIL_AT + 8).map(|at| segment + at));
        let directory = (DIRECTORY_AT..HEADER_AT[1]).filter(|&at| whole[at / 32 * 32..][..32] != [0; 32]);
        bytes.extend(directory.map(|at| segment + at));
        match whole[12] {
            2 => {
                let summary = TRAILER_AT - 16 * word(TRAILER_AT + 12).min(500) as usize;
                bytes.extend(
                    (summary..SEGMENT_BYTES).filter(|_| word(TRAILER_AT + 8) == nonce).map(|at| segment + at),
                );
                let mut at = DATA_START;
                while word(at + NONCE_AT) == nonce {
                    let head = RecordHead::parse(&whole[at..]).expect("a record");
                    bytes.extend((at..at + head.head_bytes()).map(|at| segment + at));
                    at += head.record_bytes();
                }
            }
            3 => bytes.extend((EXTENT_CHECKS_AT..EXTENT_CHECKS_AT + 20).map(|at| segment + at)),
            _ => {}
        }
    }
    bytes
}

fn faults(left: &Left) -> [Vec<Fault>; 2] {
    let Left { pages, former, .. } = left;
    let mut whole: Vec<Fault> = pages.keys().map(|&at| Fault::Zeroes(at)).collect();
    for (at, page) in pages {
        let others = former.get(at).into_iter().flatten().filter(|other| *other != page);
        whole.extend(others.map(|other| Fault::Former(*at, other.clone())));
    }
    let bit = |at: usize| (0..8).map(move |bit| Fault::Bit(at, bit));
    let mut bits: Vec<Fault> = metadata(pages).into_iter().flat_map(bit).collect();
    // And some of everything.
    bits.extend(
        pages.keys().flat_map(|&at| (0..PAGE).step_by(171).map(move |within| Fault::Bit(at + within, 3))),
    );
    if let Some(index) = &left.index {
        whole.extend((0..index.len()).step_by(PAGE).map(Fault::IndexPage));
        whole.extend((0..index.len()).step_by(PAGE).map(Fault::IndexCut));
        bits.extend((0..index.len()).map(|at| Fault::IndexBit(at, (at % 8) as u8)));
    }
    [whole, bits]
}

fn run(end: End) {
    let seed = seed("every_fault");
    let mut random = Random(seed.value);
    let takes_all = std::env::var("UNVME_TEST_EXHAUSTIVE").is_ok();
    let left = history(end);
    for all in faults(&left) {
        let step = if takes_all { 1 } else { all.len().div_ceil(CASES).max(1) };
        let chosen: Vec<&Fault> = all.iter().skip(random.below(step)).step_by(step).collect();
        let (next, unread, doubts) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while let Some(fault) = chosen.get(next.fetch_add(1, Relaxed)) {
                        let outcome = try_fault(&left, fault);
                        unread.fetch_add(usize::from(outcome.unread > 0), Relaxed);
                        doubts.fetch_add(usize::from(outcome.is_in_doubt), Relaxed);
                        // After a shutdown everything that is lost can be told.
                        let may_doubt = end == End::Killed && !matches!(fault, Fault::Bit(..));
                        assert!(may_doubt || !outcome.is_in_doubt, "{}: in doubt", fault.name());
                    }
                });
            }
        });
        let _ = writeln!(
            io::stderr(),
            "{} of {} faults: {unread:?} cost something, {doubts:?} put all in doubt",
            chosen.len(),
            all.len()
        );
        assert!(unread.into_inner() > 0, "values were damaged");
    }
}

#[test]
fn no_fault_of_a_store_that_was_closed_brings_an_older_value_back() {
    run(End::Closed);
}

#[test]
fn no_fault_of_a_store_that_was_closed_and_has_lost_its_index_brings_an_older_value_back() {
    run(End::ClosedAndIndexLost);
}

#[test]
fn no_fault_of_a_store_that_was_killed_brings_an_older_value_back() {
    run(End::Killed);
}
