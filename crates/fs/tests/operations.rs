//! What a file system does, on a device in memory.
use std::ops::ControlFlow;

use rustix::fs::OFlags;
use unvme::{Block, Device, Nsid, OpenOptions, open};
use unvme_fs::calls::{At, OpenId, Processes, Reply, Request};
use unvme_fs::{
    Allocation, Credentials, Errno, Error, FileSystem, FileType, MakeOptions, MountOptions, NewAttributes,
    NewFile, Rename, Seek, SetXattr, Vnode, make,
};

fn device(size: &str) -> (Device, Block) {
    let device = open(&format!("mem:block:{size}"), &OpenOptions::default()).expect("open");
    let block = device.block(Nsid(1)).expect("namespace");
    make(&block, device.name(), &MakeOptions::default(), |_, _| ()).expect("make");
    (device, block)
}

fn mount(block: &Block) -> FileSystem {
    FileSystem::mount(block, "mem:", &MountOptions::default()).expect("mount")
}

fn assert_sound(fs: &FileSystem) {
    let survey = fs.check(|_| ()).expect("check");
    assert_eq!(survey.problems, [], "{survey:?}");
}

#[test]
fn a_new_file_system_is_empty_and_sound() {
    let (_device, block) = device("64M");
    let fs = mount(&block);
    assert_sound(&fs);
    assert_eq!(fs.check(|_| ()).expect("check").directories, 1);
}

#[test]
fn what_was_written_is_there_after_another_mount() {
    let (_device, block) = device("64M");
    let who = Credentials::root();
    let fs = mount(&block);
    let root = fs.root().expect("root");
    let directory = root.create(b"directory", &NewFile::directory(0o755), &who).expect("mkdir");
    let file = directory.create(b"file", &NewFile::regular(0o644), &who).expect("create");
    let data: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    assert_eq!(file.write_at(1234, &data).expect("write"), data.len());
    assert_sound(&fs);
    fs.unmount().expect("unmount");
    drop((root, directory, file, fs));
    let fs = mount(&block);
    assert_sound(&fs);
    let file = fs
        .root()
        .expect("root")
        .lookup(b"directory", &who)
        .expect("directory")
        .lookup(b"file", &who)
        .expect("file");
    let mut read = vec![1; data.len() + 5000];
    assert_eq!(file.read_at(0, &mut read).expect("read"), data.len() + 1234);
    assert_eq!(read[..1234], [0; 1234]);
    assert_eq!(read[1234..1234 + data.len()], data);
}

#[test]
fn ten_thousand_names_come_and_go() {
    let (_device, block) = device("512M");
    let who = Credentials::root();
    let fs = mount(&block);
    let root = fs.root().expect("root");
    let name = |i: u32| format!("a name of some length, number {i}").into_bytes();
    for i in 0..10_000 {
        root.create(&name(i), &NewFile::regular(0o644), &who).expect("create");
    }
    let mut seen = 0;
    root.list(0, |_| {
        seen += 1;
        ControlFlow::Continue(())
    })
    .expect("list");
    assert_eq!(seen, 10_002);
    assert_sound(&fs);
    for i in 0..10_000 {
        root.lookup(&name(i), &who).expect("lookup");
        root.unlink(&name(i), &who).expect("unlink");
    }
    assert_sound(&fs);
    assert_eq!(fs.check(|_| ()).expect("check").files, 0);
}

#[test]
fn renaming_replaces_exchanges_and_refuses() {
    let (_device, block) = device("64M");
    let who = Credentials::root();
    let fs = mount(&block);
    let root = fs.root().expect("root");
    let a = root.create(b"a", &NewFile::directory(0o755), &who).expect("a");
    let b = a.create(b"b", &NewFile::directory(0o755), &who).expect("b");
    let errno = |result: unvme_fs::Result<()>| result.expect_err("refused").errno();
    assert_eq!(errno(root.rename(b"a", (&b, b"a"), Rename::Replace, &who)), Errno::INVAL);
    let file = root.create(b"file", &NewFile::regular(0o644), &who).expect("file");
    assert_eq!(errno(root.rename(b"file", (&root, b"a"), Rename::Replace, &who)), Errno::ISDIR);
    assert_eq!(errno(root.rename(b"file", (&root, b"a"), Rename::NoReplace, &who)), Errno::EXIST);
    root.rename(b"file", (&a, b"b"), Rename::Exchange, &who).expect("exchange");
    assert_eq!(a.lookup(b"b", &who).expect("b").ino(), file.ino());
    assert_eq!(root.lookup(b"file", &who).expect("file").ino(), b.ino());
    assert_eq!(b.lookup(b"..", &who).expect("..").ino(), root.ino());
    assert_sound(&fs);
    root.rename(b"file", (&a, b"new"), Rename::Replace, &who).expect("move");
    assert_eq!(errno(root.rmdir(b"a", &who)), Errno::NOTEMPTY);
    assert_sound(&fs);
}

#[test]
fn a_renaming_can_leave_a_whiteout() {
    let (_device, block) = device("64M");
    let who = Credentials::root();
    let fs = mount(&block);
    let root = fs.root().expect("root");
    let other = root.create(b"other", &NewFile::directory(0o755), &who).expect("other");
    // RENAME_WHITEOUT, RENAME_NOREPLACE and both of linux/fs.h; RENAME_EXCHANGE goes with neither.
    assert_eq!(Rename::from_flags(4).expect("flag"), Rename::Whiteout);
    assert_eq!(Rename::from_flags(5).expect("flags"), Rename::NoReplaceWhiteout);
    assert_eq!(Rename::from_flags(6).expect_err("flags").errno(), Errno::INVAL);
    for (name, directory, new) in [(b"one", &root, b"new"), (b"two", &other, b"new")] {
        let file = root.create(name, &NewFile::regular(0o644), &who).expect("file");
        root.rename(name, (directory, new), Rename::Whiteout, &who).expect("rename");
        assert_eq!(directory.lookup(new, &who).expect("moved").ino(), file.ino());
        let left = root.lookup(name, &who).expect("whiteout").attributes();
        assert_eq!((left.file_type(), left.mode & 0o7777, left.rdev), (FileType::CharacterDevice, 0, 0));
        let taken =
            root.rename(name, (directory, new), Rename::NoReplaceWhiteout, &who).expect_err("refused");
        assert_eq!(taken.errno(), Errno::EXIST);
    }
    root.rename(b"new", (&other, b"new"), Rename::Whiteout, &who).expect("replace");
    root.unlink(b"new", &who).expect("remove the whiteout");
    assert_sound(&fs);
    fs.unmount().expect("unmount");
}

#[test]
fn a_file_without_names_lives_as_long_as_somebody_has_it() {
    let (_device, block) = device("64M");
    let who = Credentials::root();
    let fs = mount(&block);
    let free = fs.usage().free_blocks;
    let root = fs.root().expect("root");
    let file = root.create(b"file", &NewFile::regular(0o644), &who).expect("create");
    file.write_at(0, &[7; 1 << 20]).expect("write");
    root.unlink(b"file", &who).expect("unlink");
    let mut read = [0; 10];
    assert_eq!(file.read_at(1000, &mut read).expect("read"), 10);
    assert_eq!(read, [7; 10]);
    assert_sound(&fs);
    drop(file);
    fs.sync().expect("sync");
    assert_sound(&fs);
    assert_eq!(fs.usage().free_blocks, free);
}

#[test]
fn a_full_device_says_so_and_deleting_helps() {
    let (_device, block) = device("16M");
    let who = Credentials::root();
    let fs = mount(&block);
    let root = fs.root().expect("root");
    let file = root.create(b"big", &NewFile::regular(0o644), &who).expect("create");
    let chunk = vec![3; 1 << 20];
    let mut written = 0;
    let error = loop {
        match file.write_at(written, &chunk) {
            Ok(bytes) => written += bytes as u64,
            Err(e) => break e,
        }
    };
    assert_eq!(error.errno(), Errno::NOSPC);
    assert!(written > 8 << 20, "{written}");
    assert_sound(&fs);
    drop(file);
    root.unlink(b"big", &who).expect("unlink");
    let file = root.create(b"again", &NewFile::regular(0o644), &who).expect("create");
    assert_eq!(file.write_at(0, &chunk).expect("write"), chunk.len());
    assert_sound(&fs);
}

#[test]
fn a_device_that_is_full_of_data_still_takes_names() {
    let (_device, block) = device("64M");
    let who = Credentials::root();
    let fs = mount(&block);
    let root = fs.root().expect("root");
    let big = root.create(b"big", &NewFile::regular(0o644), &who).expect("create");
    let mut written = 0;
    while let Ok(bytes @ 1..) = big.write_at(written, &[3; 4096]) {
        written += bytes as u64;
    }
    let file = |n: u32| root.create(format!("{n}").as_bytes(), &NewFile::regular(0o644), &who);
    for n in 0..100 {
        let made = file(n).expect("create");
        assert_eq!(made.write_at(0, &[1; 4096]).map_err(|e| e.errno()), Err(Errno::NOSPC));
    }
    big.link(&root, b"link", &who).expect("link");
    fs.sync().expect("sync");
    // Not without end: those who delete have something left.
    let more = (100..1 << 20).take_while(|&n| file(n).is_ok()).count() as u32;
    assert!(more < 1 << 18, "{more}");
    fs.sync().expect("sync");
    for n in (0..100 + more).rev() {
        root.unlink(format!("{n}").as_bytes(), &who).expect("unlink");
    }
    assert_sound(&fs);
}

#[test]
fn holes_are_holes() {
    let (_device, block) = device("64M");
    let who = Credentials::root();
    let fs = mount(&block);
    let file = fs.root().expect("root").create(b"file", &NewFile::regular(0o644), &who).expect("create");
    file.write_at(100_000, b"data").expect("write");
    assert_eq!(file.seek(0, Seek::Data).expect("data"), 98_304);
    assert_eq!(file.seek(100_000, Seek::Hole).expect("hole"), 100_004);
    file.allocate(0..20_000, Allocation::Reserve { keep_size: true }).expect("allocate");
    assert_eq!(file.seek(0, Seek::Data).expect("data"), 98_304);
    file.write_at(5000, &[9; 5000]).expect("write");
    assert_eq!(file.seek(0, Seek::Data).expect("data"), 4096);
    file.allocate(6000..9000, Allocation::PunchHole).expect("punch");
    let mut read = [1; 5000];
    file.read_at(5000, &mut read).expect("read");
    assert_eq!(
        (&read[..1000], &read[1000..4000], &read[4000..]),
        (&[9; 1000][..], &[0; 3000][..], &[9; 1000][..])
    );
    file.truncate(100).expect("truncate");
    file.truncate(200_000).expect("truncate");
    assert_eq!(file.seek(100, Seek::Data).expect_err("no data").errno(), Errno::NXIO);
    assert_sound(&fs);
}

#[test]
fn what_is_deleted_counts_as_free_at_once() {
    let (_device, block) = device("64M");
    let fs = mount(&block);
    let who = Credentials::root();
    let root = fs.root().expect("root");
    let before = fs.usage();
    for size in [1usize, 5000, 4 << 20] {
        let file = root.create(b"file", &NewFile::regular(0o644), &who).expect("create");
        file.write_at(0, &vec![1; size]).expect("write");
        file.sync().expect("sync");
        assert!(fs.usage().free_blocks < before.free_blocks && fs.usage().free_inodes < before.free_inodes);
        drop(file);
        root.unlink(b"file", &who).expect("unlink");
        assert_eq!(fs.usage(), before, "{size} bytes");
        fs.sync().expect("sync");
        assert_eq!(fs.usage(), before, "{size} bytes, committed");
    }
    assert_sound(&fs);
}

#[test]
fn a_directory_has_more_directories_than_a_file_has_names() {
    let (_device, block) = device("4G");
    let (fs, who) = (mount(&block), Credentials::root());
    let (root, new) = (fs.root().expect("there"), NewFile::directory(0o755));
    let many = unvme_fs::LINKS_MAX + 10;
    for number in 0..many {
        root.create(format!("d{number}").as_bytes(), &new, &who).expect("made");
    }
    assert_eq!(root.attributes().links, many + 2);
    let above = root.create(b"above", &new, &who).expect("made");
    let within = above.create(b"within", &new, &who).expect("made");
    above.rename(b"within", (&root, b"moved"), Rename::Replace, &who).expect("moved");
    assert_eq!(root.attributes().links, many + 4);
    assert_sound(&fs);
    fs.unmount().expect("unmounted");
    drop((root, above, within, fs));
    let fs = mount(&block);
    assert_eq!(fs.root().expect("there").attributes().links, many + 4);
    assert_sound(&fs);
}

/// Reads the capability of a program; `None` when it has none.
fn capability(file: &Vnode) -> Option<Vec<u8>> {
    match file.xattr(b"security.capability", &Credentials::root()) {
        Ok(value) => Some(value),
        Err(Error::Posix(Errno::NODATA)) => None,
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn a_write_removes_capabilities_and_those_set_id_bits_that_its_caller_may_not_keep() {
    let (_device, block) = device("64M");
    let fs = mount(&block);
    let processes = Processes::new(fs.clone());
    let user = Credentials { uid: 5, gid: 6, ..Credentials::default() };
    for (who, kept) in [(Credentials::root(), 0o6777), (user, 0o777)] {
        let process = processes.enter(1, who);
        let at = At { base: OpenId::ROOT, path: b"file", follows: true };
        let file = fs.root().expect("root");
        let file = file.create(b"file", &NewFile::regular(0o777), &Credentials::root()).expect("made");
        let flags = OFlags::RDWR.bits();
        let opened = process.call(&Request::Open { at, flags, mode: 0 }, &[], &mut []).expect("opened");
        let Reply::Opened(open, ..) = opened else { panic!("{opened:?}") };
        let changes = [
            Request::Write { open, offset: 0 },
            Request::Append { open },
            Request::Truncate { at, size: 5 },
            Request::Allocate { open, mode: 0, offset: 0, bytes: 9000 },
            Request::Copy { open, offset: 0, to: open, to_offset: 4096, bytes: 100 },
            Request::Open { at, flags: flags | OFlags::TRUNC.bits(), mode: 0 },
        ];
        for change in &changes {
            let set_id = NewAttributes { permissions: Some(0o6777), ..NewAttributes::default() };
            file.set_attributes(&set_id, &Credentials::root()).expect("changed");
            let given = file.set_xattr(b"security.capability", b"all", SetXattr::Any, &Credentials::root());
            given.expect("given");
            let input: &[u8] = match change {
                Request::Write { .. } | Request::Append { .. } => b"data",
                _ => b"",
            };
            process.call(change, input, &mut []).expect("changed");
            assert_eq!((file.attributes().mode & 0o7777, capability(&file)), (kept, None), "{change:?}");
        }
        fs.root().expect("root").unlink(b"file", &Credentials::root()).expect("removed");
    }
    assert_sound(&fs);
}

#[test]
fn an_owner_that_changes_takes_set_id_bits_and_capabilities_away() {
    let (_device, block) = device("64M");
    let (fs, root) = (mount(&block), Credentials::root());
    let file = fs.root().expect("root").create(b"file", &NewFile::regular(0o6755), &root).expect("made");
    file.set_xattr(b"security.capability", b"all", SetXattr::Any, &root).expect("given");
    file.set_xattr(b"user.other", b"stays", SetXattr::Any, &root).expect("set");
    // An operation without a caller keeps all of it: a mapping is written back like that.
    file.write_at(0, b"data").expect("written");
    assert_eq!((file.attributes().mode & 0o7777, capability(&file)), (0o6755, Some(b"all".to_vec())));
    let owner = NewAttributes { uid: Some(5), ..NewAttributes::default() };
    file.set_attributes(&owner, &root).expect("changed");
    assert_eq!((file.attributes().mode & 0o7777, capability(&file)), (0o755, None));
    assert_eq!(file.xattr(b"user.other", &root).expect("read"), b"stays");
    assert_sound(&fs);
}

#[test]
fn access_control_lists_are_refused() {
    let (_device, block) = device("64M");
    let (fs, root) = (mount(&block), Credentials::root());
    let file = fs.root().expect("root").create(b"file", &NewFile::regular(0o644), &root).expect("made");
    for name in [&b"system.posix_acl_access"[..], b"system.posix_acl_default"] {
        let results = [
            file.set_xattr(name, b"any", SetXattr::Any, &root).err(),
            file.xattr(name, &root).err(),
            file.remove_xattr(name, &root).err(),
        ];
        for error in results {
            assert_eq!(error.map(|e| e.errno()), Some(Errno::OPNOTSUPP));
        }
    }
    assert_eq!(file.xattrs(&root).expect("listed"), Vec::<Vec<u8>>::new());
}

#[test]
fn what_is_open_with_o_direct_bypasses_the_page_cache() {
    let (_device, block) = device("64M");
    let fs = mount(&block);
    let process = Processes::new(fs.clone()).enter(1, Credentials::root());
    let at = At { base: OpenId::ROOT, path: b"file", follows: true };
    let flags = (OFlags::RDWR | OFlags::CREATE | OFlags::DIRECT).bits();
    let opened = process.call(&Request::Open { at, flags, mode: 0o644 }, &[], &mut []).expect("opened");
    let Reply::Opened(open, ..) = opened else { panic!("{opened:?}") };
    let (data, mut out) = (vec![7; 1 << 20], vec![0; 1 << 20]);
    let before = fs.traffic();
    let written = process.call(&Request::Write { open, offset: 0 }, &data, &mut []).expect("written");
    assert_eq!(written, Reply::Number(1 << 20));
    assert!(fs.traffic().written_bytes >= before.written_bytes + (1 << 20), "it waits in the cache");
    for _ in 0..2 {
        let before = fs.traffic();
        let read = process.call(&Request::Read { open, offset: 0 }, &[], &mut out).expect("read");
        assert_eq!(read, Reply::Number(1 << 20));
        assert!(out == data, "another content");
        assert_eq!(fs.traffic().read_bytes - before.read_bytes, 1 << 20);
    }
}
