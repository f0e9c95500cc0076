//! Power that goes while a device with flash is at work: flushed data is there exactly, other data as it was
//! or as it was to be, block by block, and never half of both.

mod host;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use host::blocks::{DATASET_MANAGEMENT, FLUSH, READ, SOURCE, WRITE, WRITE_ZEROES, access, transfer};
use host::random::Random;
use host::{DATA, Host, device_on, sqe};
use unvme_bus::Region;
use unvme_spec::Status;
use unvme_ssd::{
    CHUNK_BYTES, FileStore, FlashConfig, FlashGeometry, NamespaceConfig, SsdConfig, SsdError, Store,
};

#[path = "host/disk.rs"]
mod disk;

use disk::{Disk, DiskStore};

/// What hosts see.
const BYTES: u64 = 2 << 20;
const BLOCK: usize = 512;
const BLOCKS: u64 = BYTES / BLOCK as u64;
/// Blocks that the workload uses: the more often it writes them, the more there is to reclaim.
const USED: u64 = BLOCKS * 7 / 8;
/// Most blocks of a command.
const MOST: u64 = 40;
/// Bit of CDW12 that forces unit access.
const FUA: u32 = 1 << 30;

/// Enough overprovisioning for a pool of units that one sync makes ready.
fn config() -> SsdConfig {
    let geometry = FlashGeometry { unit_bytes: 64 << 10, ..FlashGeometry::default() };
    let flash = FlashConfig { geometry, overprovisioning: 0.7, ..FlashConfig::default() };
    SsdConfig {
        namespaces: vec![NamespaceConfig::blocks(BLOCK as u32)],
        flash: Some(flash),
        ..SsdConfig::block(BYTES, BLOCK as u32)
    }
}

/// Memory that outlives a device.
#[derive(Clone)]
struct Kept {
    memory: Region,
    state: Arc<Mutex<Option<Vec<u8>>>>,
}

impl Kept {
    fn new(bytes: u64) -> Self {
        Self { memory: Region::anonymous(bytes as usize).unwrap(), state: Arc::default() }
    }

    /// Offsets of the pages that hold anything.
    fn pages(&self) -> Vec<usize> {
        let mut page = [0; 4096];
        let mut holds_data = |at: &usize| {
            self.memory.read(*at, &mut page);
            page != [0; 4096]
        };
        (0..self.memory.len()).step_by(4096).filter(|at| holds_data(at)).collect()
    }

    fn copy(&self, pages: &[usize]) -> Self {
        let copy = Self::new(self.memory.len() as u64);
        pages.iter().for_each(|&at| self.memory.copy_to(at, &copy.memory, at, 4096));
        copy.state.lock().unwrap().clone_from(&self.state.lock().unwrap());
        copy
    }
}

impl Store for Kept {
    fn bytes(&self) -> u64 {
        self.memory.len() as u64
    }
    fn memory(&self) -> Option<&Region> {
        Some(&self.memory)
    }
    fn holds_data(&self, _chunk: u64) -> bool {
        true
    }
    fn reserve(&self, _chunk: u64) -> Result<(), SsdError> {
        Ok(())
    }
    fn release(&self, chunk: u64) -> Result<(), SsdError> {
        self.memory.discard((chunk * CHUNK_BYTES) as usize, CHUNK_BYTES as usize);
        Ok(())
    }
    fn sync(&self) -> Result<(), SsdError> {
        Ok(())
    }
    fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError> {
        Ok(self.state.lock().unwrap().clone())
    }
    fn save_state(&self, state: &[u8]) -> Result<(), SsdError> {
        *self.state.lock().unwrap() = Some(state.to_vec());
        Ok(())
    }
}

/// What each block may hold: the number of a write, or 0 for zeroes.
#[derive(Clone)]
struct Model {
    /// Since the last flush; the last one is what it holds now.
    may_hold: Vec<Vec<u32>>,
    /// As the commands that were completed have left it.
    acknowledged: Vec<u32>,
    writes: u32,
}

impl Model {
    fn new() -> Self {
        Self { may_hold: vec![vec![0]; BLOCKS as usize], acknowledged: vec![0; BLOCKS as usize], writes: 0 }
    }

    fn set(&mut self, lba: u64, blocks: u64, number: u32) {
        for block in &mut self.may_hold[lba as usize..(lba + blocks) as usize] {
            block.push(number);
        }
    }

    fn flushed(&mut self) {
        for block in &mut self.may_hold {
            block.drain(..block.len() - 1);
        }
    }

    /// After a restart what is there is what counts.
    fn settle(&mut self, found: &[u32]) {
        for (block, number) in self.may_hold.iter_mut().zip(found) {
            *block = vec![*number];
        }
        self.acknowledged = found.to_vec();
    }
}

/// A block says which one it is, and which write it is from, all over.
fn block(lba: u64, number: u32) -> Vec<u8> {
    match number {
        0 => vec![0; BLOCK],
        _ => [(lba as u32).to_le_bytes(), number.to_le_bytes()].concat().repeat(BLOCK / 8),
    }
}

fn number_of(lba: u64, bytes: &[u8]) -> u32 {
    let number = u32::from_le_bytes(bytes[4..8].try_into().unwrap());
    assert_eq!(bytes, block(lba, number), "block {lba} is torn");
    number
}

fn open(store: Box<dyn Store>) -> Host {
    let mut host = Host::attach(device_on(config(), store));
    host.enable();
    host.create_queue_pair(1, 64);
    host
}

/// Executes one random command; false when it failed because the power did.
fn step(host: &mut Host, model: &mut Model, random: &mut Random) -> bool {
    let lba = random.below(USED - MOST);
    let blocks = 1 + random.below(MOST);
    let (command, number) = match random.below(32) {
        0 => (sqe(FLUSH, 1), None),
        1 => {
            // A deallocated range, as the specification lays it out.
            let range = [0u32.to_le_bytes(), (blocks as u32).to_le_bytes()].concat();
            host.memory.write(SOURCE, &[&range[..], &lba.to_le_bytes()].concat());
            let mut command = sqe(DATASET_MANAGEMENT, 1);
            command.cdw11 = 1 << 2;
            host.set_prps(&mut command, SOURCE, 16);
            (command, Some(0))
        }
        2 => (access(WRITE_ZEROES, lba, blocks as u32), Some(0)),
        kind => {
            model.writes += 1;
            let data: Vec<u8> = (lba..lba + blocks).flat_map(|lba| block(lba, model.writes)).collect();
            host.memory.write(SOURCE, &data);
            let mut command = transfer(host, WRITE, lba, blocks as u32, SOURCE, data.len());
            if kind == 3 {
                command.cdw12 |= FUA;
            }
            (command, Some(model.writes))
        }
    };
    let outcome = host.io(command);
    // A command that failed may have been executed in part.
    if let Some(number) = number {
        model.set(lba, blocks, number);
    }
    if let (Ok(_), Some(number)) = (outcome, number) {
        model.acknowledged[lba as usize..(lba + blocks) as usize].fill(number);
    }
    match outcome {
        Ok(_) if number.is_none() || command.cdw12 & FUA != 0 => model.flushed(),
        Ok(_) => {}
        Err(status) => {
            assert_eq!(status, Status::WRITE_FAULT);
            assert!(host.ssd.has_lost_power());
            return false;
        }
    }
    true
}

/// Reads everything, and compares it with what may be there.
fn verify(host: &mut Host, model: &Model, what: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for lba in (0..BLOCKS).step_by(64) {
        let read = transfer(host, READ, lba, 64, DATA, 64 * BLOCK);
        assert_eq!(host.io(read), Ok(0), "{what}: block {lba}");
        for (index, bytes) in host.bytes(DATA, 64 * BLOCK).chunks(BLOCK).enumerate() {
            found.push(number_of(lba + index as u64, bytes));
        }
    }
    for (lba, (number, may)) in found.iter().zip(&model.may_hold).enumerate() {
        assert!(may.contains(number), "{what}: block {lba} holds write {number}, expected one of {may:?}");
    }
    assert_eq!(host.ssd.check_flash(), [], "{what}");
    found
}

/// The workload up to the first failure, or `commands` of it.
fn run(host: &mut Host, model: &mut Model, random: &mut Random, commands: u32) -> bool {
    (0..commands).all(|_| step(host, model, random))
}

#[test]
fn power_may_go_at_any_program_of_a_small_device() {
    const COMMANDS: u32 = 100;
    let bytes = config().store_bytes().unwrap();
    // A device that is full and at work, and what it holds: all cuts begin from here.
    let start = Kept::new(bytes);
    let mut model = Model::new();
    let mut host = open(Box::new(start.clone()));
    assert!(run(&mut host, &mut model, &mut Random::new(7), 500));
    assert!(host.ssd.ftl_stats().unwrap().ftl.reclaim_pages > 0, "reclaim is at work");
    drop(host);
    model.flushed();
    let pages = start.pages();
    let mut cut_at = 0;
    let mut seen = BTreeSet::new();
    loop {
        cut_at += 1;
        let store = start.copy(&pages);
        let mut model = model.clone();
        let mut host = open(Box::new(store.clone()));
        host.ssd.plan_power_cut(cut_at, cut_at * 0x9e37_79b9);
        let mut random = Random(99);
        let what = format!("power cut at program {cut_at}");
        if run(&mut host, &mut model, &mut random, COMMANDS) {
            break;
        }
        drop(host);
        let mut host = open(Box::new(store.clone()));
        let found = verify(&mut host, &model, &what);
        // What the last command wrote may be there or not; apart from that, has anything been lost?
        let is_lost =
            |((found, told), may): &((&u32, &u32), &Vec<u32>)| found != told && may.last() == Some(told);
        seen.insert(found.iter().zip(&model.acknowledged).zip(&model.may_hold).any(|block| is_lost(&block)));
        // And it goes on working.
        model.settle(&found);
        assert!(run(&mut host, &mut model, &mut random, 5), "{what}");
        drop(host);
        let mut host = open(Box::new(store));
        model.flushed();
        verify(&mut host, &model, &what);
    }
    assert!(cut_at > 300, "the workload programs enough pages: {cut_at}");
    assert_eq!(seen.len(), 2, "some cuts lose something, and some do not");
}

/// The system forgets any of what the device had not synced, whatever the device thinks.
#[test]
fn the_power_of_the_whole_machine_may_go() {
    let bytes = config().store_bytes().unwrap();
    let mut random = Random::from_environment();
    let mut disk = Disk::new(&vec![0; bytes as usize], || {});
    let mut model = Model::new();
    let mut lost = 0;
    for round in 0..40 {
        let mut host = open(Box::new(DiskStore(Arc::clone(&disk))));
        let what = format!("round {round}");
        let found = verify(&mut host, &model, &what);
        lost += found.iter().zip(&model.acknowledged).filter(|(found, told)| found != told).count();
        model.settle(&found);
        let commands = random.below(60) as u32;
        for _ in 0..commands {
            assert!(step(&mut host, &mut model, &mut random), "{what}");
            disk.write_back(|limit| random.below(limit));
        }
        let image = disk.cut_power(|limit| random.below(limit));
        let after = Disk::new(&image, || {});
        *after.state.lock().unwrap() = disk.state.lock().unwrap().clone();
        disk = after;
        drop(host);
    }
    assert!(lost > 0, "a power cut loses something");
}

#[test]
fn one_sync_makes_many_units_ready_that_were_freed() {
    const PAGES: u64 = 4096;
    let geometry = FlashGeometry { unit_bytes: 64 << 10, ..FlashGeometry::default() };
    let flash = FlashConfig { geometry, overprovisioning: 0.28, ..FlashConfig::default() };
    let config = SsdConfig { flash: Some(flash), ..SsdConfig::block(PAGES * 4096, 4096) };
    let syncs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&syncs);
    let disk = Disk::new(&vec![0; config.store_bytes().unwrap() as usize], move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let mut host = Host::attach(device_on(config, Box::new(DiskStore(disk))));
    host.enable();
    host.create_queue_pair(1, 64);
    let mut random = Random::from_environment();
    let mut write = |lba: u64| {
        let command = transfer(&host, WRITE, lba, 1, DATA, 4096);
        assert_eq!(host.io(command), Ok(0));
    };
    (0..PAGES).for_each(&mut write);
    let before = syncs.load(Ordering::Relaxed);
    (0..2 * PAGES).for_each(|_| write(random.below(PAGES)));
    let syncs = syncs.load(Ordering::Relaxed) - before;
    let erased = host.ssd.ftl_stats().unwrap().ftl.erased_units;
    assert!(erased > 500, "units are written again: {erased}");
    assert!(syncs * 6 < erased, "{syncs} syncs for {erased} units");
    assert!(syncs > 0, "a unit is not written again before what has superseded it is durable");
}

/// A process that is killed leaves the file as it was at that moment.
#[test]
fn everything_acknowledged_survives_a_killed_process() {
    let bytes = config().store_bytes().unwrap();
    let mut random = Random::from_environment();
    let mut store = Kept::new(bytes);
    let mut model = Model::new();
    for round in 0..30 {
        let mut host = open(Box::new(store.clone()));
        let what = format!("round {round}");
        verify(&mut host, &model, &what);
        let commands = random.below(80) as u32;
        assert!(run(&mut host, &mut model, &mut random, commands), "{what}");
        // Nothing that was acknowledged is lost: only what it holds now will do.
        model.flushed();
        store = store.copy(&store.pages());
        drop(host);
    }
}

/// A checkpoint that is not whole is none, and not damage.
#[test]
fn a_process_may_be_killed_at_any_step_of_a_checkpoint() {
    let bytes = config().store_bytes().unwrap();
    let mut model = Model::new();
    let mut random = Random::new(5);
    let mut image = vec![0; bytes as usize];
    let mut state = None;
    for round in 0..4 {
        let images: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let this: Arc<OnceLock<Weak<Disk>>> = Arc::default();
        let (taken, disk_of) = (Arc::clone(&images), Arc::clone(&this));
        let disk = Disk::new(&image, move || {
            let disk = disk_of.get().and_then(Weak::upgrade).expect("the disk that is synced");
            taken.lock().unwrap().push(disk.image());
        });
        this.set(Arc::downgrade(&disk)).expect("set once");
        *disk.state.lock().unwrap() = state.take();
        let mut host = open(Box::new(DiskStore(Arc::clone(&disk))));
        assert!(run(&mut host, &mut model, &mut random, 20));
        images.lock().unwrap().clear();
        drop(host);
        model.flushed();
        let images = std::mem::take(&mut *images.lock().unwrap());
        assert!(images.len() >= 3, "a checkpoint has so many steps: {}", images.len());
        for (step, image) in images.iter().enumerate() {
            let killed = Disk::new(image, || {});
            killed.state.lock().unwrap().clone_from(&disk.state.lock().unwrap());
            verify(&mut open(Box::new(DiskStore(killed))), &model, &format!("round {round}, step {step}"));
        }
        image = disk.image();
        state = disk.state.lock().unwrap().take();
    }
}

#[test]
fn a_device_in_a_folder_is_there_when_it_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = config().store_bytes().unwrap();
    let mut model = Model::new();
    let mut random = Random::new(3);
    for round in 0..4 {
        let mut host = open(Box::new(FileStore::open(folder.path(), bytes).unwrap()));
        verify(&mut host, &model, &format!("round {round}"));
        assert!(run(&mut host, &mut model, &mut random, 300));
        let stats = host.ssd.ftl_stats().unwrap();
        drop(host);
        model.flushed();
        let host = open(Box::new(FileStore::open(folder.path(), bytes).unwrap()));
        let again = host.ssd.ftl_stats().unwrap();
        assert_eq!((again.ftl, again.handles), (stats.ftl, stats.handles), "counters survive");
    }
}
