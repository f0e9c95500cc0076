//! What is to be together is together: files by their hints, the journal, metadata; and what is deleted is
//! given back to the device.

use unvme::fdp::PlacementId;
use unvme::{Block, Device, Nsid, OpenOptions, open};
use unvme_fs::{
    Credentials, Errno, FileSystem, MakeOptions, MountOptions, NewFile, Placement, PlacementTable, SetXattr,
    make,
};

const NAME: &str = "mem:block:64M,block=4096,fdp,handles=8,ru=8M,op=150%";

fn device() -> (Device, Block) {
    let device = open(NAME, &OpenOptions::default()).expect("open");
    let block = device.block(Nsid(1)).expect("namespace");
    make(&block, NAME, &MakeOptions::default(), |_, _| ()).expect("make");
    (device, block)
}

/// Blocks of a reclaim unit.
const UNIT: u64 = 2048;

/// Blocks that were written by each handle since the last call, which are fewer than a unit has.
fn written(block: &mut Block, before: &mut Vec<u64>) -> Vec<u64> {
    let now: Vec<u64> = block.handles().expect("handles").iter().map(|handle| handle.blocks_left).collect();
    assert!(
        now.iter().enumerate().all(|(at, _)| block.placements().expect("list")[at] == PlacementId(at as u16))
    );
    let used = before.iter().zip(&now).map(|(before, now)| (before + UNIT - now) % UNIT).collect();
    *before = now;
    used
}

#[test]
fn hints_choose_handles_and_the_journal_and_metadata_have_their_own() {
    let (_device, mut block) = device();
    let fs = FileSystem::mount(&block, NAME, &MountOptions::default()).expect("mount");
    let who = Credentials::root();
    let root = fs.root().expect("root");
    let mut left: Vec<u64> =
        block.handles().expect("handles").iter().map(|handle| handle.blocks_left).collect();
    for (index, hint) in ["not-set", "short", "medium", "long", "extreme"].iter().enumerate() {
        let file = root.create(hint.as_bytes(), &NewFile::regular(0o644), &who).expect("create");
        file.set_xattr(b"user.unvme.write_hint", hint.as_bytes(), SetXattr::Any, &who).expect("hint");
        file.write_at(0, &[1; 40 * 4096]).expect("write");
        file.sync().expect("sync");
        file.write_direct(0, &[2; 8 * 4096]).expect("write");
        let used = written(&mut block, &mut left);
        assert_eq!(used[index], 48, "{hint}: {used:?}");
        assert!(used[5] > 0, "the journal: {used:?}");
        let others = used.iter().enumerate().filter(|(at, _)| *at != index && *at != 5);
        assert_eq!(others.map(|(_, blocks)| blocks).sum::<u64>(), 0, "{hint}: {used:?}");
    }
    fs.unmount().expect("unmount");
    let used = written(&mut block, &mut left);
    assert!(used[6] > 0 && used[..5] == [0; 5], "metadata in their places: {used:?}");
}

#[test]
fn a_directory_has_a_hint_for_what_is_made_in_it() {
    let (_device, mut block) = device();
    let fs = FileSystem::mount(&block, NAME, &MountOptions::default()).expect("mount");
    let who = Credentials::root();
    let logs =
        fs.root().and_then(|root| root.create(b"logs", &NewFile::directory(0o755), &who)).expect("mkdir");
    logs.set_xattr(b"user.unvme.write_hint", b"2", SetXattr::Any, &who).expect("hint");
    let mut left: Vec<u64> =
        block.handles().expect("handles").iter().map(|handle| handle.blocks_left).collect();
    let log = logs.create(b"log", &NewFile::regular(0o644), &who).expect("create");
    log.append(&[3; 4096 * 10]).expect("append");
    log.sync_data().expect("sync");
    assert_eq!(log.xattr(b"user.unvme.write_hint", &who).expect("hint"), b"short");
    assert_eq!(written(&mut block, &mut left)[1], 10);
    let refused =
        log.set_xattr(b"user.unvme.write_hint", b"forever", SetXattr::Any, &who).expect_err("no hint");
    assert_eq!(refused.errno(), Errno::INVAL);
}

#[test]
fn a_table_can_be_another_one_and_may_have_fewer_handles_than_it_names() {
    let (_device, mut block) = device();
    let who = Credentials::root();
    for (placement, wanted) in [
        (Placement::Off, 0),
        (Placement::Table(PlacementTable { none: 3, ..PlacementTable::default() }), 3),
        (Placement::Table(PlacementTable { none: 99, ..PlacementTable::default() }), 7),
    ] {
        let options = MountOptions { placement, ..MountOptions::default() };
        let fs = FileSystem::mount(&block, NAME, &options).expect("mount");
        let mut left: Vec<u64> =
            block.handles().expect("handles").iter().map(|handle| handle.blocks_left).collect();
        let name = format!("file{wanted}");
        let file = fs
            .root()
            .and_then(|root| root.create(name.as_bytes(), &NewFile::regular(0o644), &who))
            .expect("create");
        file.write_direct(0, &[1; 20 * 4096]).expect("write");
        let used = written(&mut block, &mut left);
        assert!(used[wanted] >= 20, "{placement:?}: {used:?}");
    }
}

#[test]
fn what_is_deleted_is_given_back() {
    let (_device, block) = device();
    let fs = FileSystem::mount(&block, NAME, &MountOptions::default()).expect("mount");
    let who = Credentials::root();
    let root = fs.root().expect("root");
    let file = root.create(b"big", &NewFile::regular(0o644), &who).expect("create");
    file.write_at(0, &vec![1; 20 << 20]).expect("write");
    fs.sync().expect("sync");
    drop(file);
    root.unlink(b"big", &who).expect("unlink");
    fs.sync().expect("sync");
    assert!(fs.traffic().deallocated_bytes >= 20 << 20, "{:?}", fs.traffic());
}
