//! Damage of every kind: a check finds it, a repair makes everything fit together again, and what was not
//! damaged is there as it was.

mod sight;

use std::collections::BTreeMap;

use sight::{Sight, sight};
use unvme::{Block, Device, Nsid, OpenOptions, open};
use unvme_fs::{
    Credentials, Errno, Error, FileSystem, FileType, MakeOptions, MountOptions, NewFile, SetXattr, check,
    make, repair,
};

const BLOCK: usize = 4096;

/// Those of the smallest journal.
const JOURNAL_BLOCKS: usize = 256;

fn device() -> (Device, Block) {
    let device = open("mem:block:8M", &OpenOptions::default()).expect("open");
    let block = device.block(Nsid(1)).expect("namespace");
    make(&block, "mem:", &MakeOptions::default(), |_, _| ()).expect("make");
    (device, block)
}

fn mount(block: &Block) -> unvme_fs::Result<FileSystem> {
    FileSystem::mount(block, "mem:", &MountOptions::default())
}

/// A file system with something of everything.
fn populate(block: &Block) -> Sight {
    let fs = mount(block).expect("mount");
    let who = Credentials::root();
    let root = fs.root().expect("root");
    let mut at = root.clone();
    for depth in 0..3u8 {
        at = at.create(&[b'd', b'0' + depth], &NewFile::directory(0o755), &who).expect("mkdir");
        for index in 0..20u8 {
            let name = format!("file{depth}{index}-{}", "x".repeat(100));
            let file = at.create(name.as_bytes(), &NewFile::regular(0o644), &who).expect("create");
            file.write_at(0, &vec![depth * 20 + index; 100 + 700 * usize::from(index)]).expect("write");
        }
    }
    // More extents than an inode holds, long attributes, links.
    let sparse = root.create(b"sparse", &NewFile::regular(0o644), &who).expect("create");
    for index in 0..40u64 {
        sparse.write_at(index * 2 * BLOCK as u64, &[index as u8 + 1; 10]).expect("write");
    }
    sparse.set_xattr(b"user.long", &[7; 9000], SetXattr::Any, &who).expect("xattr");
    sparse.set_xattr(b"user.short", b"s", SetXattr::Any, &who).expect("xattr");
    sparse.link(&root, b"other name", &who).expect("link");
    let target = vec![b't'; 3000];
    let link = NewFile { file_type: FileType::Symlink, target: &target, ..NewFile::regular(0o777) };
    root.create(b"link", &link, &who).expect("symlink");
    fs.unmount().expect("unmount");
    drop((root, at, sparse));
    let seen = sight(&fs);
    drop(fs);
    seen
}

fn image_of(block: &mut Block) -> Vec<u8> {
    let mut image = vec![0; block.bytes() as usize];
    block.read_at(0, &mut image).expect("read");
    image
}

/// Kind of a block of metadata, if it is one.
fn kind(image: &[u8], block: usize) -> Option<u16> {
    let bytes = &image[block * BLOCK..][..BLOCK];
    // In the ring of the journal, behind its two heads, everything is over.
    let is_over = (3..1 + JOURNAL_BLOCKS).contains(&block);
    (bytes[..4] == image[..4] && !is_over).then(|| u16::from_le_bytes([bytes[4], bytes[5]]))
}

/// After a repair everything fits together, and a second one finds nothing.
fn is_whole_again(block: &Block, about: &str) -> Sight {
    let found = repair(block, "mem:", |_| ()).unwrap_or_else(|e| panic!("{about}: {e}"));
    let again = check(block, "mem:", |_| ()).expect("check").problems;
    assert_eq!(again, [], "{about}: {found:?}");
    let fs = mount(block).unwrap_or_else(|e| panic!("{about}: {e}"));
    assert_eq!(fs.check(|_| ()).expect("check").problems, [], "{about}");
    // It can be used.
    let root = fs.root().expect("root");
    let new = root.create(b"new", &NewFile::regular(0o644), &Credentials::root()).expect("create");
    new.write_at(0, &[9; 30_000]).expect("write");
    new.sync().expect("sync");
    root.unlink(b"new", &Credentials::root()).expect("unlink");
    drop((new, root));
    sight(&fs)
}

#[test]
fn a_check_writes_nothing_and_finds_nothing_where_all_is_well() {
    let (_device, mut block) = device();
    populate(&block);
    let before = image_of(&mut block);
    assert_eq!(check(&block, "mem:", |_| ()).expect("check").problems, []);
    assert!(before == image_of(&mut block));
    assert_eq!(repair(&block, "mem:", |_| ()).expect("repair"), []);
}

#[test]
fn every_block_of_metadata_may_be_lost() {
    let (_device, mut block) = device();
    let whole = populate(&block);
    let image = image_of(&mut block);
    let blocks = image.len() / BLOCK;
    let mut tried = BTreeMap::new();
    for at in 0..blocks {
        let Some(kind) = kind(&image, at) else { continue };
        block.write_at(0, &image).expect("write");
        block.write_at((at * BLOCK) as u64 / u64::from(block.block_bytes()), &[0xa5; BLOCK]).expect("write");
        let problems = check(&block, "mem:", |_| ()).expect("check").problems;
        *tried.entry(kind).or_insert(0) += 1;
        let seen = is_whole_again(&block, &format!("block {at} of kind {kind}"));
        let is_kept = |path: &&String| seen.get(*path) == whole.get(*path);
        let kept = whole.keys().filter(is_kept).count();
        if problems.is_empty() {
            // The older head of the journal, or what an image in the ring stands for.
            assert_eq!(kept, whole.len(), "block {at} of kind {kind}");
        }
        let bytes: usize = whole.values().flatten().map(Vec::len).sum();
        let left: usize = seen.values().flatten().map(Vec::len).sum();
        assert!(
            kept + 40 >= whole.len() || left * 4 > bytes,
            "block {at} of kind {kind}: {kept} of {} are left",
            whole.len()
        );
    }
    assert!(tried.len() >= 5 && tried.values().sum::<i32>() > 20, "{tried:?}");
}

#[test]
fn flipped_bits_are_found_wherever_they_are() {
    let (_device, mut block) = device();
    populate(&block);
    let image = image_of(&mut block);
    // Of the superblock and its copy one is always whole.
    let last = image.len() / BLOCK - 1;
    let blocks: Vec<usize> = (0..last).filter(|&at| kind(&image, at).is_some()).collect();
    let mut choice = 12345u64;
    let mut found = 0;
    for round in 0..150 {
        let mut damaged = image.clone();
        for _ in 0..1 + round % 3 {
            choice = choice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = blocks[(choice >> 33) as usize % blocks.len()];
            let bit = (choice >> 13) as usize % (BLOCK * 8);
            damaged[at * BLOCK + bit / 8] ^= 1 << (bit % 8);
        }
        block.write_at(0, &damaged).expect("write");
        match check(&block, "mem:", |_| ()) {
            Ok(survey) => found += usize::from(!survey.problems.is_empty()),
            Err(e) => panic!("round {round}: {e}"),
        }
        is_whole_again(&block, &format!("round {round}"));
    }
    assert!(found > 130, "{found} of 150");
}

/// What has a right checksum, and is wrong all the same.
#[test]
fn names_and_counts_that_contradict_each_other_are_put_right() {
    let (_device, mut block) = device();
    let whole = populate(&block);
    let image = image_of(&mut block);
    let mut tried = 0;
    let mut choice = 99u64;
    for at in 0..image.len() / BLOCK {
        // Trees, inodes and maps: 2 to 5.
        if !kind(&image, at).is_some_and(|kind| (2..=6).contains(&kind)) {
            continue;
        }
        for _ in 0..6 {
            let mut damaged = image.clone();
            let page = &mut damaged[at * BLOCK..][..BLOCK];
            choice = choice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            page[48 + (choice >> 33) as usize % (BLOCK - 48)] ^= 1 << (choice >> 20 & 7);
            page[8..12].fill(0);
            let crc = crc_fast::crc32_iscsi(page);
            page[8..12].copy_from_slice(&crc.to_le_bytes());
            block.write_at(0, &damaged).expect("write");
            let seen = is_whole_again(&block, &format!("block {at}, try {tried}"));
            assert!(seen.len() + 45 > whole.len(), "block {at}: {} of {} are left", seen.len(), whole.len());
            tried += 1;
        }
    }
    assert!(tried > 50, "{tried}");
}

#[test]
fn what_has_lost_its_directory_is_in_lost_and_found() {
    let (_device, mut block) = device();
    let whole = populate(&block);
    let image = image_of(&mut block);
    // The directory that has the most names has pages of its own: all of them are lost.
    let fs = mount(&block).expect("mount");
    let owner = fs.resolve(b"d0/d1", true, &Credentials::root()).expect("there").ino();
    drop(fs);
    for at in 0..image.len() / BLOCK {
        let bytes = &image[at * BLOCK..][..BLOCK];
        if kind(&image, at).is_some() && bytes[32..40] == owner.to_le_bytes() {
            block.write_at((at * BLOCK) as u64 / u64::from(block.block_bytes()), &[0; BLOCK]).expect("write");
        }
    }
    let seen = is_whole_again(&block, "d0/d1");
    let of = |sight: &Sight, start: &str| -> Vec<Vec<u8>> {
        let inside = sight.iter().filter(|(path, data)| path.starts_with(start) && data.is_some());
        let mut data: Vec<Vec<u8>> = inside.filter_map(|(_, data)| data.clone()).collect();
        data.sort();
        data
    };
    assert_eq!(of(&seen, "/lost+found/"), of(&whole, "/d0/d1/"));
    assert_eq!(seen.get("/d0/d1"), Some(&None));
}

#[test]
fn what_is_no_file_system_is_not_touched() {
    let device = open("mem:block:8M", &OpenOptions::default()).expect("open");
    let mut block = device.block(Nsid(1)).expect("namespace");
    block.write_at(0, &vec![0x11; 1 << 20]).expect("write");
    let before = image_of(&mut block);
    for result in [check(&block, "mem:", |_| ()).map(drop), repair(&block, "mem:", |_| ()).map(drop)] {
        let error = result.expect_err("no file system");
        assert!(matches!(error, Error::Format(_)) && error.errno() == Errno::INVAL, "{error}");
    }
    assert!(before == image_of(&mut block));
}
