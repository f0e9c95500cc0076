//! Errors of the device: a read that fails is the error of that call and leaves nothing half done; a failed
//! write of metadata ends all changes, and what was promised before stays.
mod sight;

use sight::{Sight, sight};
use unvme::{Block, Device, Nsid, OpenOptions, open};
use unvme_fs::{
    Allocation, Credentials, Errno, Error, FileSystem, MakeOptions, MountOptions, NewFile, Rename, Result,
    SetXattr, Vnode, make,
};

fn device() -> (Device, Block) {
    let device = open("mem:block:64M", &OpenOptions::default()).expect("open");
    let block = device.block(Nsid(1)).expect("namespace");
    make(&block, device.name(), &MakeOptions::default(), |_, _| ()).expect("make");
    (device, block)
}

fn mount(block: &Block) -> FileSystem {
    FileSystem::mount(block, "mem:", &MountOptions::default()).expect("mount")
}

fn assert_sound(fs: &FileSystem, about: &str) {
    assert_eq!(fs.check(|_| ()).expect("check").problems, [], "{about}");
}

fn at(fs: &FileSystem, path: &str) -> Result<Vnode> {
    fs.resolve(path.as_bytes(), false, &Credentials::root())
}

/// Directories with many names, files with many extents, attributes: trees of several levels.
fn populate(fs: &FileSystem) -> Result<()> {
    let who = Credentials::root();
    let root = fs.root()?;
    for directory in [b"a", b"b"] {
        let directory = root.create(directory, &NewFile::directory(0o755), &who)?;
        for name in 0..1200 {
            directory.create(format!("name number {name}").as_bytes(), &NewFile::regular(0o644), &who)?;
        }
    }
    let holey = root.create(b"holey", &NewFile::regular(0o644), &who)?;
    for index in 0..500 {
        holey.write_direct(index * 8192, &[index as u8; 4096])?;
    }
    holey.set_xattr(b"user.long", &[7; 30_000], SetXattr::Any, &who)?;
    for name in [&b"short"[..], b"other"] {
        root.create(name, &NewFile::regular(0o644), &who)?.write_at(0, &[5; 20_000])?;
    }
    root.create(b"empty", &NewFile::directory(0o755), &who)?;
    fs.unmount()
}

/// Changes, each of one call.
type Change = (&'static str, fn(&FileSystem) -> Result<()>);

const CHANGES: [Change; 15] = [
    ("create", |fs| at(fs, "a")?.create(b"new", &NewFile::regular(0o600), &Credentials::root()).map(drop)),
    ("mkdir", |fs| at(fs, "b")?.create(b"new", &NewFile::directory(0o700), &Credentials::root()).map(drop)),
    ("symlink", |fs| {
        let target = vec![b'x'; 3000];
        let new =
            NewFile { file_type: unvme_fs::FileType::Symlink, target: &target, ..NewFile::regular(0o777) };
        at(fs, "a")?.create(b"new", &new, &Credentials::root()).map(drop)
    }),
    ("unlink", |fs| at(fs, "a")?.unlink(b"name number 700", &Credentials::root())),
    ("unlink a file of many extents", |fs| fs.root()?.unlink(b"holey", &Credentials::root())),
    ("rmdir", |fs| fs.root()?.rmdir(b"empty", &Credentials::root())),
    ("link", |fs| at(fs, "short")?.link(&at(fs, "b")?, b"new", &Credentials::root())),
    ("rename", |fs| {
        let to = (&at(fs, "b")?, &b"name number 9"[..]);
        at(fs, "a")?.rename(b"name number 8", to, Rename::Replace, &Credentials::root())
    }),
    ("exchange", |fs| {
        let to = (&at(fs, "a")?, &b"name number 9"[..]);
        fs.root()?.rename(b"empty", to, Rename::Exchange, &Credentials::root())
    }),
    ("truncate a file of many extents", |fs| at(fs, "holey")?.truncate(70_000)),
    ("write into a hole", |fs| at(fs, "holey")?.write_direct(4096, &[9; 4096]).map(drop)),
    ("append", |fs| {
        let file = at(fs, "other")?;
        file.append(&[3; 5000])?;
        file.sync()
    }),
    ("fallocate", |fs| at(fs, "holey")?.allocate(0..3_000_000, Allocation::Reserve { keep_size: false })),
    ("punch a hole", |fs| at(fs, "holey")?.allocate(0..2_000_000, Allocation::PunchHole)),
    ("setxattr", |fs| {
        let file = at(fs, "holey")?;
        file.set_xattr(b"user.long", &[8; 20_000], SetXattr::Replace, &Credentials::root())
    }),
];

/// What is to be seen, but for what the change itself may have done to the data of the file it is about.
fn names(fs: &FileSystem) -> Vec<String> {
    sight(fs).into_keys().collect()
}

fn acted(device: &Device) -> u64 {
    let text = device.faults().expect("rules");
    let (_, rest) = text.split_once("\"hits\":").expect("a rule counts");
    rest.trim_start().chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number")
}

#[test]
fn a_read_that_fails_is_the_error_of_one_call_and_leaves_nothing_half_done() {
    let (device, mut block) = device();
    populate(&mount(&block)).expect("populate");
    let mut image = vec![0; block.bytes() as usize];
    block.read_at(0, &mut image).expect("read");
    let mut failures = 0;
    for (what, change) in CHANGES {
        let mut after = 0;
        loop {
            block.write_at(0, &image).expect("write");
            let fs = mount(&block);
            let rule = format!(
                r#"{{"match": {{"opcode": "read", "after": {after}, "count": 1}}, "act": {{"status": "0x281"}}}}"#
            );
            device.add_faults(&rule).expect("rule");
            let done = change(&fs);
            let has_failed = acted(&device) > 0;
            device.clear_faults(None).expect("clear");
            let about = format!("{what}, with read {after} failed");
            match done {
                Err(Error::Device(_)) => {
                    assert!(has_failed, "{about}");
                    failures += 1;
                    // Calls of several transactions may have got some of their way.
                    assert_sound(&fs, &about);
                    let before = names(&fs);
                    change(&fs).unwrap_or_else(|e| panic!("{about}, again: {e}"));
                    let mut single = before.clone();
                    single.extend(names(&fs));
                    single.sort_unstable();
                    single.dedup();
                    assert!(single.len() <= before.len() + 1, "{about}");
                }
                other => other.unwrap_or_else(|e| panic!("{about}: {e}")),
            }
            assert_sound(&fs, &about);
            fs.root()
                .expect("root")
                .create(b"after", &NewFile::regular(0o600), &Credentials::root())
                .expect(&about);
            // What could not be given up is given up now.
            fs.sync().expect(&about);
            let usage = fs.usage();
            fs.unmount().expect(&about);
            drop(fs);
            let fs = mount(&block);
            assert_sound(&fs, &about);
            // What was free in memory is what is free on the media.
            assert_eq!(fs.usage(), usage, "{about}");
            if !has_failed {
                break;
            }
            after += 1;
        }
    }
    assert!(failures > 60, "{failures} failures");
}

#[test]
fn a_write_of_data_that_fails_is_the_error_of_one_call() {
    let (device, block) = device();
    let fs = mount(&block);
    let file = fs.root().expect("root").create(b"file", &NewFile::regular(0o644), &Credentials::root());
    let file = file.expect("create");
    file.write_direct(0, &[1; 8192]).expect("write");
    fs.sync().expect("sync");
    let lba = file.extents().expect("extents")[0].device_offset / u64::from(block.block_bytes());
    let rule =
        format!(r#"{{"match": {{"opcode": "write", "lba": "{lba}"}}, "act": {{"status": "write-fault"}}}}"#);
    device.add_faults(&rule).expect("rule");
    assert_eq!(file.write_direct(0, &[2; 4096]).expect_err("it fails").errno(), Errno::IO);
    file.write_at(100, b"buffered").expect("into memory");
    assert_eq!(file.sync().expect_err("it fails").errno(), Errno::IO);
    assert_eq!(file.write_direct(4096, &[3; 4096]).expect("another block"), 4096);
    device.clear_faults(None).expect("clear");
    // What could not be written waits still.
    file.sync().expect("sync");
    let mut read = [0; 8192];
    file.read_direct(0, &mut read).expect("read");
    assert_eq!((&read[100..108], read[0], read[5000]), (&b"buffered"[..], 1, 3));
    assert_sound(&fs, "afterwards");
}

#[test]
fn a_write_of_metadata_that_fails_ends_all_changes_and_what_was_promised_stays() {
    let (device, block) = device();
    let fs = mount(&block);
    let who = Credentials::root();
    let root = fs.root().expect("root");
    root.create(b"promised", &NewFile::regular(0o644), &who)
        .expect("create")
        .write_at(0, b"data")
        .expect("write");
    fs.sync().expect("sync");
    let promised: Sight = sight(&fs);
    device.add_faults(r#"{"match": {"opcode": "write"}, "act": {"status": "write-fault"}}"#).expect("rule");
    root.create(b"lost", &NewFile::regular(0o644), &who).expect("into memory");
    assert_eq!(fs.sync().expect_err("the journal cannot be written").errno(), Errno::IO);
    device.clear_faults(None).expect("clear");
    let refused = root.create(b"more", &NewFile::regular(0o644), &who).err().expect("it is read-only");
    assert_eq!(refused.errno(), Errno::ROFS);
    assert!(refused.to_string().contains("read-only"), "{refused}");
    let file = at(&fs, "promised").expect("it can be read still");
    assert_eq!(file.write_at(0, b"no").expect_err("read-only").errno(), Errno::ROFS);
    let mut read = [0; 4];
    assert_eq!((file.read_at(0, &mut read).expect("read"), &read), (4, b"data"));
    drop((file, root, fs));
    let fs = mount(&block);
    assert_eq!(sight(&fs), promised);
    assert_sound(&fs, "mounted again");
}

#[test]
fn a_device_that_is_gone_is_an_error_everywhere_and_nothing_hangs() {
    let (device, block) = device();
    let fs = mount(&block);
    let who = Credentials::root();
    let file = fs.root().expect("root").create(b"file", &NewFile::regular(0o644), &who).expect("create");
    file.write_direct(0, &[1; 4096]).expect("write");
    fs.sync().expect("sync");
    device.add_faults(r#"{"match": {"opcode": "read"}, "act": {"unplug": true}}"#).expect("rule");
    let mut read = [0; 4096];
    assert_eq!(file.read_direct(0, &mut read).expect_err("it is gone").errno(), Errno::IO);
    assert_eq!(file.write_direct(0, &read).expect_err("it is gone").errno(), Errno::IO);
    file.append(b"more").expect("into memory");
    assert_eq!(file.sync().expect_err("it is gone").errno(), Errno::IO);
    fs.unmount().expect_err("nothing can be written");
}
