//! Checksums of blocks: what is not as it was written is an error, and nothing else is, whatever happens.

mod host;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use host::blocks::{
    COMPARE, DATASET_MANAGEMENT, FLUSH, READ, SOURCE, WRITE, WRITE_ZEROES, access, pattern, read, transfer,
    write,
};
use host::random::Random;
use host::{DATA, Host, device_on, sqe};
use unvme_spec::{Sqe, Status};
use unvme_ssd::{
    CHUNK_BYTES, FileStore, FlashConfig, MemoryStore, NamespaceConfig, Ssd, SsdConfig, SsdError, Store,
};

#[path = "host/disk.rs"]
mod disk;

use disk::{Disk, DiskStore};

const BYTES: u64 = 8 << 20;
const VERIFY: u8 = 0x0c;
const CHUNK_BLOCKS: u64 = CHUNK_BYTES / 4096;
/// Behind the data: the marks, and a chunk further the entries, 4 bytes for each 512.
const ENTRIES: u64 = BYTES + CHUNK_BYTES;

fn config(block_bytes: u32) -> SsdConfig {
    SsdConfig {
        namespaces: vec![NamespaceConfig::blocks(block_bytes)],
        checksum: true,
        ..SsdConfig::block(BYTES, block_bytes)
    }
}

fn started(block_bytes: u32, store: Box<dyn Store>) -> Host {
    let mut host = Host::attach(device_on(config(block_bytes), store));
    host.enable();
    host.create_queue_pair(1, 64);
    host
}

fn in_folder(folder: &Path, block_bytes: u32) -> Host {
    let bytes = config(block_bytes).store_bytes().unwrap();
    started(block_bytes, Box::new(FileStore::open(folder, bytes).unwrap()))
}

fn flip(folder: &Path, at: u64, bit: u8) {
    let file = OpenOptions::new().read(true).write(true).open(folder.join("media.img")).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << bit], at).unwrap();
}

fn read_one(host: &mut Host, lba: u64, block: usize) -> Result<u64, Status> {
    let command = transfer(host, READ, lba, 1, DATA, block);
    host.io(command)
}

#[test]
fn blocks_behave_like_an_array_of_bytes() {
    for block in [512, 4096] {
        let folder = tempfile::tempdir().unwrap();
        let mut host = in_folder(folder.path(), block as u32);
        let mut model = vec![0u8; BYTES as usize];
        let mut random = Random::from_environment();
        for round in 0..3000 {
            let most = if random.below(20) == 0 { CHUNK_BYTES / block } else { 24 };
            let blocks = 1 + random.below(most);
            let lba = random.below(BYTES / block - blocks);
            let (start, bytes) = ((lba * block) as usize, (blocks * block) as usize);
            let range = start..start + bytes;
            // In pieces that end anywhere, too.
            let at = SOURCE + 4 * random.below(1024) as usize;
            match random.below(10) {
                0 => {
                    let deallocate = (random.below(2) as u32) << 25;
                    let zeroes = access(WRITE_ZEROES, lba, blocks as u32);
                    assert_eq!(host.io(Sqe { cdw12: zeroes.cdw12 | deallocate, ..zeroes }), Ok(0));
                    model[range].fill(0);
                }
                1 => {
                    deallocate(&mut host, lba, blocks);
                    model[range].fill(0);
                }
                2 => {
                    host.memory.write(at, &model[range]);
                    let compare = transfer(&host, COMPARE, lba, blocks as u32, at, bytes);
                    assert_eq!(host.io(compare), Ok(0), "round {round}");
                    assert_eq!(host.io(access(VERIFY, lba, blocks as u32)), Ok(0));
                }
                3..6 => {
                    let command = transfer(&host, READ, lba, blocks as u32, at, bytes);
                    assert_eq!(host.io(command), Ok(0), "round {round}");
                    assert!(host.bytes(at, bytes) == model[range], "round {round}");
                }
                _ => {
                    let data = pattern(round as u8, bytes);
                    host.memory.write(at, &data);
                    let command = transfer(&host, WRITE, lba, blocks as u32, at, bytes);
                    assert_eq!(host.io(command), Ok(0), "round {round}");
                    model[range].copy_from_slice(&data);
                }
            }
        }
        drop(host);
        let mut host = in_folder(folder.path(), block as u32);
        for at in (0..BYTES as usize).step_by(256 << 10) {
            let found = read(&mut host, at as u64 / block, 256 << 10, block as usize);
            assert!(found == model[at..at + (256 << 10)], "{at}");
        }
    }
}

#[test]
fn a_check_names_the_ranges_of_blocks_that_are_not_as_they_were_written() {
    for block in [512, 4096] {
        let folder = tempfile::tempdir().unwrap();
        let mut host = in_folder(folder.path(), block as u32);
        let blocks = CHUNK_BYTES / block;
        write(&mut host, 0, &pattern(1, 4 * 4096), block as usize);
        write(&mut host, 2 * blocks, &pattern(2, 4096), block as usize);
        let found = host.ssd.check_blocks().unwrap();
        assert_eq!((found.len(), found[0].nsid.0, found[0].blocks, found[0].damaged), (1, 1, 2 * blocks, 0));
        drop(host);
        // Two that follow each other, the last block of a chunk, and one behind a chunk that has no space.
        for lba in [2, 3, blocks - 1, 2 * blocks] {
            flip(folder.path(), lba * block + 7, 3);
        }
        let host = in_folder(folder.path(), block as u32);
        let found = &host.ssd.check_blocks().unwrap()[0];
        let expected = [2..4, blocks - 1..blocks, 2 * blocks..2 * blocks + 1];
        assert_eq!((found.damaged, &found.ranges[..]), (4, &expected[..]), "blocks of {block}");
    }
    let host =
        Host::attach(device_on(SsdConfig::block(BYTES, 512), Box::new(MemoryStore::new(BYTES).unwrap())));
    assert_eq!(host.ssd.check_blocks(), None);
}

#[test]
fn damage_beyond_a_thousand_ranges_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = in_folder(folder.path(), 512);
    write(&mut host, 0, &pattern(1, 4096), 512);
    drop(host);
    for lba in (0..2400).step_by(2) {
        flip(folder.path(), lba * 512, 3);
    }
    let host = in_folder(folder.path(), 512);
    let found = &host.ssd.check_blocks().unwrap()[0];
    assert_eq!((found.damaged, found.ranges.len(), found.ranges[999].clone()), (1200, 1000, 1998..1999));
}

#[test]
fn a_flipped_bit_in_data_or_its_checksum_is_an_error_of_that_block_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = in_folder(folder.path(), 512);
    for lba in (0..64).step_by(8) {
        write(&mut host, lba, &pattern(lba as u8, 4096), 512);
    }
    drop(host);
    // In data, in a checksum, and in a block that was never written, beside some that were.
    flip(folder.path(), 3 * 512 + 100, 5);
    flip(folder.path(), ENTRIES + 20 * 4 + 1, 0);
    flip(folder.path(), 100 * 512 + 511, 7);
    let mut host = in_folder(folder.path(), 512);
    for lba in 0..128 {
        let expected = if [3, 20, 100].contains(&lba) { Err(Status::UNRECOVERED_READ_ERROR) } else { Ok(0) };
        assert_eq!(read_one(&mut host, lba, 512), expected, "block {lba}");
        assert_eq!(host.io(access(VERIFY, lba, 1)), expected, "block {lba}");
    }
    host.memory.write(SOURCE, &pattern(0, 4096));
    let compare = transfer(&host, COMPARE, 0, 8, SOURCE, 4096);
    assert_eq!(host.io(compare), Err(Status::UNRECOVERED_READ_ERROR));
    // Compare and write does not write over it, and a write makes it good.
    let fused = |host: &mut Host, flags, opcode| {
        let command = transfer(host, opcode, 3, 1, SOURCE, 512);
        host.push(1, Sqe { flags, ..command });
    };
    fused(&mut host, 1, COMPARE);
    fused(&mut host, 2, WRITE);
    host.ring(1);
    host.advance();
    let statuses = [(); 2].map(|()| host.poll(1).expect("a completion").status().kind());
    assert_eq!(statuses, [Status::UNRECOVERED_READ_ERROR, Status::ABORTED_FAILED_FUSED]);
    for lba in [3, 20] {
        write(&mut host, lba, &pattern(9, 512), 512);
        assert!(read(&mut host, lba, 512, 512) == pattern(9, 512));
    }
    assert_eq!(host.io(access(WRITE_ZEROES, 100, 1)), Ok(0));
    assert_eq!(read_one(&mut host, 100, 512), Ok(0));
}

#[test]
fn a_block_that_was_being_written_at_a_kill_is_no_error_and_later_damage_of_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = in_folder(folder.path(), 4096);
    write(&mut host, 7, &pattern(1, 4096), 4096);
    write(&mut host, 8, &pattern(2, 4096), 4096);
    std::mem::forget(host.ssd.clone());
    drop(host);
    // Half of the new data is there, and the entries of all of the block say so.
    let file = OpenOptions::new().write(true).open(folder.path().join("media.img")).unwrap();
    file.write_all_at(&pattern(3, 2048), 7 * 4096).unwrap();
    file.write_all_at(&[0xff; 32], ENTRIES + 7 * 32).unwrap();
    let mut host = in_folder(folder.path(), 4096);
    let found = read(&mut host, 7, 4096, 4096);
    assert!(found[..2048] == pattern(3, 2048) && found[2048..] == pattern(1, 4096)[2048..]);
    assert!(read(&mut host, 8, 4096, 4096) == pattern(2, 4096));
    drop(host);
    flip(folder.path(), 7 * 4096 + 9, 1);
    let mut host = in_folder(folder.path(), 4096);
    assert_eq!(read_one(&mut host, 7, 4096), Err(Status::UNRECOVERED_READ_ERROR));
}

/// A disk with what a power cut has left of another one.
fn after_cut(disk: &Disk, image: &[u8]) -> Arc<Disk> {
    with_state_of(disk, Disk::new(image, || {}))
}

fn with_state_of(disk: &Disk, other: Arc<Disk>) -> Arc<Disk> {
    other.state.lock().unwrap().clone_from(&disk.state.lock().unwrap());
    other
}

fn new_disk() -> Arc<Disk> {
    Disk::new(&vec![0; config(4096).store_bytes().unwrap() as usize], || {})
}

fn on(disk: &Arc<Disk>) -> Host {
    started(4096, Box::new(DiskStore(Arc::clone(disk))))
}

/// Dataset Management, Deallocate.
fn deallocate(host: &mut Host, lba: u64, blocks: u64) {
    let list = [0u32.to_le_bytes(), (blocks as u32).to_le_bytes()].concat();
    host.memory.write(SOURCE, &[&list[..], &lba.to_le_bytes()].concat());
    let mut command = Sqe { cdw11: 1 << 2, ..sqe(DATASET_MANAGEMENT, 1) };
    host.set_prps(&mut command, SOURCE, 16);
    assert_eq!(host.io(command), Ok(0));
}

/// Format NVM, with blocks of 4 KiB.
fn format(host: &mut Host) -> Result<u64, Status> {
    host.admin(Sqe { cdw10: 1, ..sqe(0x80, 1) })
}

/// What a power cut leaves of data and of checksums has nothing to do with each other.
#[test]
fn a_power_cut_leaves_old_or_new_blocks_and_no_errors_and_flushed_ones_are_exact() {
    const BLOCKS: u64 = BYTES / 4096;
    let mut random = Random::from_environment();
    let mut disk = new_disk();
    // What each block may hold since the last flush; the last is what it holds now.
    let mut model = vec![vec![0u8]; BLOCKS as usize];
    let value = |host: &mut Host, lba: u64| {
        assert_eq!(read_one(host, lba, 4096), Ok(0), "block {lba}");
        let data = host.bytes(DATA, 4096);
        assert!(data.iter().all(|&byte| byte == data[0]));
        data[0]
    };
    for round in 0..40 {
        let mut host = on(&disk);
        for (lba, may_hold) in (0..).zip(&mut model) {
            let found = value(&mut host, lba);
            assert!(may_hold.contains(&found), "round {round}, block {lba}: {found}, not of {may_hold:?}");
            *may_hold = vec![found];
        }
        // As found, it is not durable yet.
        assert_eq!(host.io(sqe(FLUSH, 1)), Ok(0));
        for _ in 0..random.below(150) {
            let lba = random.below(BLOCKS);
            match random.below(40) {
                0 => {
                    assert_eq!(host.io(sqe(FLUSH, 1)), Ok(0));
                    model.iter_mut().for_each(|may_hold| drop(may_hold.drain(..may_hold.len() - 1)));
                }
                1 => {
                    assert_eq!(host.io(access(WRITE_ZEROES, lba, 1)), Ok(0));
                    model[lba as usize].push(0);
                }
                2 => {
                    // All of a chunk, or less.
                    let lba = random.below(BLOCKS / CHUNK_BLOCKS) * CHUNK_BLOCKS;
                    let blocks = CHUNK_BLOCKS - random.below(2) * random.below(CHUNK_BLOCKS);
                    deallocate(&mut host, lba, blocks);
                    model[lba as usize..(lba + blocks) as usize].iter_mut().for_each(|held| held.push(0));
                }
                3 if random.below(8) == 0 => {
                    assert_eq!(format(&mut host), Ok(0));
                    model.iter_mut().for_each(|may_hold| may_hold.push(0));
                }
                _ => {
                    let byte = random.below(256) as u8;
                    host.memory.fill(SOURCE, 4096, byte);
                    let command = transfer(&host, WRITE, lba, 1, SOURCE, 4096);
                    assert_eq!(host.io(command), Ok(0));
                    model[lba as usize].push(byte);
                }
            }
            disk.write_back(|limit| random.below(limit));
        }
        for (lba, may_hold) in (0..).zip(&model) {
            assert_eq!(Some(&value(&mut host, lba)), may_hold.last(), "round {round}, block {lba}");
        }
        let image = disk.cut_power(|limit| random.below(limit));
        disk = after_cut(&disk, &image);
        drop(host);
    }
}

#[test]
fn damage_of_what_was_not_written_for_long_is_an_error_after_a_power_cut() {
    let mut random = Random::from_environment();
    let disk = new_disk();
    let mut host = on(&disk);
    write(&mut host, 5, &pattern(5, 4096), 4096);
    for _ in 0..200 {
        assert_eq!(host.io(sqe(FLUSH, 1)), Ok(0));
    }
    let image = disk.cut_power(|limit| random.below(limit));
    let after = after_cut(&disk, &image);
    after.memory.fill(5 * 4096 + 17, 1, 0xee);
    drop(host);
    let mut host = on(&after);
    assert_eq!(read_one(&mut host, 5, 4096), Err(Status::UNRECOVERED_READ_ERROR));
    assert_eq!(read_one(&mut host, 6, 4096), Ok(0));
}

/// How a chunk loses its data.
type Release = (&'static str, fn(&mut Host));

const RELEASES: [Release; 2] = [
    ("deallocated", |host| deallocate(host, 0, CHUNK_BLOCKS)),
    ("formatted", |host| assert_eq!(format(host), Ok(0))),
];
/// Blocks that are written first.
const WRITTEN: u64 = 16;

/// A disk with some blocks at its beginning, closed well: nothing on it says that it may have been written.
fn with_blocks() -> Arc<Disk> {
    let disk = new_disk();
    write(&mut on(&disk), 0, &pattern(1, WRITTEN as usize * 4096), 4096);
    disk
}

fn holds(host: &mut Host, expected: &[u8], what: &str) {
    for (lba, block) in (0..).zip(expected.chunks(4096)) {
        assert_eq!(read_one(host, lba, 4096), Ok(0), "{what}: block {lba}");
        assert!(host.bytes(DATA, 4096) == block, "{what}: block {lba}");
    }
}

/// Damage of a block is an error of it and of no other.
fn is_protected(disk: &Arc<Disk>, what: &str) {
    disk.memory.fill(5 * 4096 + 17, 1, 0xee);
    let mut host = on(disk);
    for lba in 0..WRITTEN {
        let expected = if lba == 5 { Err(Status::UNRECOVERED_READ_ERROR) } else { Ok(0) };
        assert_eq!(read_one(&mut host, lba, 4096), expected, "{what}: block {lba}");
    }
}

/// The blocks hold what is expected, and a write of one of them changes that one; all are protected.
fn goes_on(disk: &Arc<Disk>, mut expected: Vec<u8>, what: &str) {
    let mut host = on(disk);
    holds(&mut host, &expected, what);
    write(&mut host, 3, &pattern(2, 4096), 4096);
    expected[3 * 4096..4 * 4096].copy_from_slice(&pattern(2, 4096));
    holds(&mut host, &expected, what);
    drop(host);
    is_protected(disk, what);
}

#[test]
fn a_power_cut_that_leaves_a_hole_and_its_old_checksums_is_no_error_of_what_is_written_there() {
    for (what, release) in RELEASES {
        let disk = with_blocks();
        let mut host = on(&disk);
        release(&mut host);
        let mut image = disk.synced();
        image[..CHUNK_BYTES as usize].fill(0);
        assert!(image[ENTRIES as usize..][..32] != [0; 32], "the entries of before");
        let after = after_cut(&disk, &image);
        goes_on(&after, vec![0; WRITTEN as usize * 4096], what);
    }
}

#[test]
fn a_power_cut_that_leaves_data_and_takes_its_checksums_is_no_error() {
    for (what, release) in RELEASES {
        let disk = with_blocks();
        let mut host = on(&disk);
        release(&mut host);
        let mut image = disk.synced();
        image[ENTRIES as usize..].copy_from_slice(&disk.image()[ENTRIES as usize..]);
        assert!(image[ENTRIES as usize..][..32] == [0; 32], "the entries of a hole");
        let after = after_cut(&disk, &image);
        holds(&mut on(&after), &pattern(1, WRITTEN as usize * 4096), what);
        is_protected(&after, what);
    }
}

#[test]
fn a_kill_while_a_chunk_is_given_back_leaves_each_of_its_blocks_with_a_checksum() {
    for (what, release) in RELEASES {
        let disk = with_blocks();
        let mut host = on(&disk);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (weak, images) = (Arc::downgrade(&disk), Arc::clone(&seen));
        *disk.on_release.lock().unwrap() = Box::new(move || {
            images.lock().unwrap().push(weak.upgrade().unwrap().image());
            true
        });
        release(&mut host);
        let before = seen.lock().unwrap()[0].clone();
        let mut behind = before.clone();
        behind[..CHUNK_BYTES as usize].fill(0);
        for (image, expected) in
            [(before, pattern(1, WRITTEN as usize * 4096)), (behind, vec![0; WRITTEN as usize * 4096])]
        {
            let after = with_state_of(&disk, disk.killed(&image));
            goes_on(&after, expected, what);
        }
    }
}

#[test]
fn blocks_whose_space_could_not_be_given_back_have_checksums() {
    let disk = with_blocks();
    *disk.on_release.lock().unwrap() = Box::new(|| false);
    let mut host = on(&disk);
    assert_eq!(format(&mut host), Err(Status::INTERNAL_ERROR));
    holds(&mut host, &pattern(1, WRITTEN as usize * 4096), "formatted");
    drop(host);
    is_protected(&disk, "formatted");
    let mut host = on(&disk);
    deallocate(&mut host, 0, CHUNK_BLOCKS);
    holds(&mut host, &vec![0; WRITTEN as usize * 4096], "deallocated");
    drop(host);
    is_protected(&disk, "deallocated");
}

#[test]
fn devices_that_have_checksums_already_are_refused() {
    let refused = |config: SsdConfig| {
        let store = MemoryStore::new(16 << 20).unwrap();
        match Ssd::new(config, Box::new(store)) {
            Err(error @ SsdError::Config { key: "checksum", .. }) => error.to_string(),
            Err(other) => panic!("another error: {other}"),
            Ok(_) => panic!("it was accepted"),
        }
    };
    let flash = refused(SsdConfig { flash: Some(FlashConfig::default()), ..config(512) });
    assert!(flash.contains("flash, which has checksums of its own"), "{flash}");
    let pairs = refused(SsdConfig { namespaces: vec![NamespaceConfig::key_value()], ..config(512) });
    assert!(pairs.contains("pairs, which have checksums of their own"), "{pairs}");
}
