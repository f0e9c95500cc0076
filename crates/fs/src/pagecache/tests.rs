//! A cache whose pages all wait to be written.

use unvme::{Nsid, OpenOptions, open};

use super::{CacheOptions, FileSettings};
use crate::{Credentials, FileSystem, MakeOptions, MountOptions, NewFile, Vnode, make};

/// More than the frames of a cache of 16 pages.
const BYTES: usize = 8 << 20;

fn bytes(seed: usize) -> Vec<u8> {
    (0..BYTES).map(|at| (at / 7 + seed) as u8).collect()
}

fn small() -> (unvme::Device, FileSystem) {
    let device = open("mem:block:64M", &OpenOptions::default()).expect("open");
    let block = device.block(Nsid(1)).expect("namespace");
    make(&block, device.name(), &MakeOptions::default(), |_, _| ()).expect("make");
    let cache = CacheOptions { bytes: 16 * 4096, ..CacheOptions::default() };
    let options = MountOptions { cache, ..MountOptions::default() };
    (device, FileSystem::mount(&block, "mem:", &options).expect("mount"))
}

fn create(fs: &FileSystem, name: &[u8]) -> Vnode {
    let root = fs.root().expect("root");
    root.create(name, &NewFile::regular(0o644), &Credentials::root()).expect("create")
}

#[test]
fn one_write_may_be_larger_than_the_cache() {
    let (_device, fs) = small();
    let file = create(&fs, b"large");
    let data = bytes(1);
    assert_eq!(file.write_at(5, &data).expect("written"), BYTES);
    let mut read = vec![0; BYTES];
    assert_eq!(file.read_at(5, &mut read).expect("read"), BYTES);
    assert!(read == data);
}

#[test]
fn files_are_read_and_written_while_somebody_has_all_pages() {
    let (_device, fs) = small();
    let (holder, file) = (create(&fs, b"holder"), create(&fs, b"file"));
    let data = bytes(2);
    file.write_direct(0, &data).expect("written");
    file.set_settings(&FileSettings { read_ahead: 0, ..FileSettings::default() }).expect("set");
    // Pages of a file that is locked: nobody else can give them up.
    let system = &fs.0;
    let node = system.nodes.find(holder.attributes().ino).expect("in use");
    let mut state = node.lock();
    system.load_extents(node.ino, &mut state).expect("loaded");
    let mut index = 0;
    loop {
        let mut held = super::Held { nodes: &system.nodes, node: &node, file: &mut state.cache };
        if system.cache.insert(&mut held, index, &[0; 4096]).is_err() {
            break;
        }
        state.cache.mark(index);
        index += 1;
    }
    assert!(index > 16);
    let mut read = vec![0; 100_000];
    assert_eq!(file.read_at(777, &mut read).expect("read"), read.len());
    assert!(read == data[777..100_777]);
    file.prefetch(0..1 << 20).expect("nothing is brought, and nothing fails");
    let mut data = data;
    for (at, part) in [(3, &b"in a page"[..]), (70_000, &[9; 300_000]), (BYTES, &[8; 5])] {
        assert_eq!(file.write_at(at as u64, part).expect("written"), part.len());
        data.resize(data.len().max(at + part.len()), 0);
        data[at..at + part.len()].copy_from_slice(part);
    }
    // Behind what has been in the last page.
    file.truncate(BYTES as u64 + 100).expect("longer");
    data.resize(BYTES + 100, 0);
    let mut read = vec![1; data.len()];
    assert_eq!(file.read_at(0, &mut read).expect("read"), read.len());
    assert!(read == data);
    let dropped = system.cache.drop_range(node.ino, &mut state.cache, 0..index);
    assert_eq!(dropped, index);
    drop(state);
    assert_eq!(file.read_at(0, &mut read).expect("read"), read.len());
    assert!(read == data);
    assert_eq!(fs.check(|_| ()).expect("checked").problems, []);
}
