//! A journal that was not replayed, and of which a bit has flipped: no durable change disappears without a
//! report.
mod sight;

use sight::{Sight, sight};
use unvme::{Block, Device, Nsid, OpenOptions, open};
use unvme_fs::{Credentials, Errno, FileSystem, MakeOptions, MountOptions, NewFile, check, make, repair};

const BLOCK: usize = 4096;
const HEADS: [usize; 2] = [1, 2];
const DIRECTORIES: u8 = 10;

fn mount(block: &Block) -> unvme_fs::Result<FileSystem> {
    FileSystem::mount(block, "mem:", &MountOptions::default())
}

fn number(image: &[u8], block: usize, at: usize, bytes: usize) -> u64 {
    let mut number = [0; 8];
    number[..bytes].copy_from_slice(&image[block * BLOCK + at..][..bytes]);
    u64::from_le_bytes(number)
}

fn tx(image: &[u8], block: usize) -> u64 {
    number(image, block, 40, 8)
}

/// The newer head.
fn newest_head(image: &[u8]) -> usize {
    HEADS.into_iter().max_by_key(|&block| tx(image, block)).expect("two heads")
}

/// The records that a mount replays, in order: the first block of each, and how many it has.
fn records(image: &[u8]) -> Vec<(usize, usize)> {
    let tail = number(image, newest_head(image), 48, 8);
    let is_first = |&block: &usize| {
        image[block * BLOCK..][..4] == *b"uNfs"
            && number(image, block, 4, 2) == 7
            && number(image, block, 52, 4) == 0
            && tx(image, block) >= tail
    };
    let mut found: Vec<usize> = (3..257).filter(is_first).collect();
    found.sort_by_key(|&block| tx(image, block));
    let blocks = |block| number(image, block, 48, 4) + number(image, block, 60, 4);
    found.into_iter().map(|block| (block, blocks(block) as usize)).collect()
}

fn read(block: &mut Block) -> Vec<u8> {
    let mut image = vec![0; block.bytes() as usize];
    block.read_at(0, &mut image).expect("read");
    image
}

/// Directories with a file each, synced one by one, and no unmount.
fn crashed() -> (Device, Block, Vec<u8>, Sight) {
    let device = open("mem:block:8M", &OpenOptions::default()).expect("open");
    let mut block = device.block(Nsid(1)).expect("namespace");
    make(&block, "mem:", &MakeOptions::default(), |_, _| ()).expect("make");
    let fs = mount(&block).expect("mount");
    let (root, who) = (fs.root().expect("root"), Credentials::root());
    for nth in 0..DIRECTORIES {
        let directory = root.create(&[b'a' + nth], &NewFile::directory(0o755), &who).expect("mkdir");
        let file = directory.create(b"file", &NewFile::regular(0o644), &who).expect("create");
        file.write_at(0, &vec![nth + 1; 5000]).expect("write");
        file.sync().expect("sync");
    }
    let seen = sight(&fs);
    fs.abandon();
    drop((root, fs));
    let image = read(&mut block);
    (device, block, image, seen)
}

fn put(block: &mut Block, image: &[u8], flips: &[(usize, usize)]) {
    let mut damaged = image.to_vec();
    for &(at, byte) in flips {
        damaged[at * BLOCK + byte] ^= 0x10;
    }
    block.write_at(0, &damaged).expect("write");
}

fn has_journal(problems: &[unvme_fs::Problem]) -> bool {
    problems.iter().any(|problem| problem.about == "the journal")
}

#[test]
fn a_damaged_record_before_whole_ones_is_reported_and_its_losses_are_named() {
    let (_device, mut block, image, whole) = crashed();
    let records = records(&image);
    assert!(records.len() >= usize::from(DIRECTORIES), "{records:?}");
    let (mut tried, mut complete) = (0, 0);
    for (first, blocks) in records[..records.len() - 1].iter().step_by(2) {
        for at in *first..first + blocks {
            let about = format!("block {at} of the record at {first}");
            put(&mut block, &image, &[(at, 300 + tried)]);
            let before = read(&mut block);
            assert!(has_journal(&check(&block, "mem:", |_| ()).expect("check").problems), "{about}");
            let fs = mount(&block).expect("mount");
            assert!(fs.description().damage.is_some(), "{about}");
            let made = fs.root().expect("root").create(b"x", &NewFile::regular(0o644), &Credentials::root());
            assert_eq!(made.err().expect("read-only").errno(), Errno::ROFS, "{about}");
            drop(fs);
            assert!(before == read(&mut block), "{about}: a mount has written");
            let found = repair(&block, "mem:", |_| ()).expect("repair");
            assert_eq!(check(&block, "mem:", |_| ()).expect("check").problems, [], "{about}: {found:?}");
            let fs = mount(&block).expect("mount");
            assert_eq!(fs.description().damage, None, "{about}");
            let seen = sight(&fs);
            for (path, data) in &whole {
                let is_named = found.iter().any(|problem| problem.about.starts_with(&path[..2]));
                assert!(seen.get(path) == Some(data) || is_named, "{about}: {path} is lost: {found:?}");
            }
            complete += usize::from(seen == whole);
            tried += 1;
        }
    }
    assert!(tried > 20 && complete * 2 > tried, "{complete} of {tried} are complete");
}

#[test]
fn a_last_record_that_is_torn_is_no_damage() {
    let (_device, mut block, image, whole) = crashed();
    let &(first, blocks) = records(&image).last().expect("records");
    for at in [first, first + blocks - 1] {
        put(&mut block, &image, &[(at, 100)]);
        assert_eq!(check(&block, "mem:", |_| ()).expect("check").problems, []);
        let fs = mount(&block).expect("mount");
        assert_eq!(fs.description().damage, None);
        fs.root()
            .expect("root")
            .create(b"x", &NewFile::regular(0o644), &Credentials::root())
            .expect("create");
        let kept = sight(&fs).iter().filter(|&(path, data)| whole.get(path) == Some(data)).count();
        assert!(kept + 2 >= whole.len(), "{kept} of {} are left", whole.len());
    }
}

#[test]
fn a_damaged_head_is_reported_and_written_again() {
    let (_device, mut block, image, whole) = crashed();
    for head in HEADS {
        put(&mut block, &image, &[(head, 50)]);
        assert!(has_journal(&check(&block, "mem:", |_| ()).expect("check").problems), "head {head}");
        let fs = mount(&block).expect("mount");
        assert_eq!(fs.description().damage, None, "head {head}");
        assert_eq!(sight(&fs), whole, "head {head}");
        fs.unmount().expect("unmount");
        drop(fs);
        assert_eq!(check(&block, "mem:", |_| ()).expect("check").problems, [], "head {head}");
    }
}

#[test]
fn a_journal_without_a_head_is_read_and_repaired() {
    let (_device, mut block, image, whole) = crashed();
    put(&mut block, &image, &HEADS.map(|head| (head, 50)));
    assert!(has_journal(&check(&block, "mem:", |_| ()).expect("check").problems));
    let fs = mount(&block).expect("mount");
    assert!(fs.description().damage.is_some());
    assert_eq!(sight(&fs), whole);
    drop(fs);
    repair(&block, "mem:", |_| ()).expect("repair");
    assert_eq!(check(&block, "mem:", |_| ()).expect("check").problems, []);
    assert_eq!(sight(&mount(&block).expect("mount")), whole);
}
