//! A file system whose metadata were changed at any place, with right checksums or wrong ones: it is mounted
//! or refused, checked, walked and repaired; nothing panics, nothing goes on for ever, and a repaired one is
//! in order.
#![no_main]

use std::ops::ControlFlow;
use std::sync::{LazyLock, Mutex};

use libfuzzer_sys::fuzz_target;
use unvme::{Block, Device, Nsid, OpenOptions, open};
use unvme_fs::{
    Credentials, FileSystem, FileType, MakeOptions, MountOptions, NewFile, SetXattr, Vnode, check, make,
    repair,
};

const BLOCK: usize = 4096;

/// A device, what it held when all was well, and which blocks of it are metadata.
struct Rig {
    block: Block,
    image: Vec<u8>,
    metadata: Vec<usize>,
    _device: Device,
}

static RIG: LazyLock<Mutex<Rig>> = LazyLock::new(|| {
    let device = open("mem:block:8M", &OpenOptions::default()).unwrap();
    let mut block = device.block(Nsid(1)).unwrap();
    make(&block, "mem:", &MakeOptions { uuid: Some([7; 16]), ..MakeOptions::default() }, |_, _| ()).unwrap();
    let who = Credentials::root();
    let fs = FileSystem::mount(&block, "mem:", &MountOptions::default()).unwrap();
    let root = fs.root().unwrap();
    let directory = root.create(b"directory", &NewFile::directory(0o755), &who).unwrap();
    for index in 0..30u8 {
        let name = format!("{index}-{}", "n".repeat(150));
        let file = directory.create(name.as_bytes(), &NewFile::regular(0o644), &who).unwrap();
        file.write_at(u64::from(index % 3) * 8192, &[index; 5000]).unwrap();
        file.set_xattr(b"user.k", &[index; 3000], SetXattr::Any, &who).unwrap();
    }
    let sparse = root.create(b"sparse", &NewFile::regular(0o644), &who).unwrap();
    (0..20).for_each(|index| assert_eq!(sparse.write_at(index * 8192, b"x").unwrap(), 1));
    let link = NewFile { file_type: FileType::Symlink, target: &[b't'; 2000], ..NewFile::regular(0o777) };
    root.create(b"link", &link, &who).unwrap();
    // Half of it in the ring alone: what is replayed is changed, too.
    fs.unmount().unwrap();
    root.create(b"late", &NewFile::regular(0o644), &who).unwrap().write_at(0, b"late").unwrap();
    fs.sync().unwrap();
    fs.abandon();
    drop((root, directory, sparse, fs));
    let mut image = vec![0; block.bytes() as usize];
    block.read_at(0, &mut image).unwrap();
    let metadata = (0..image.len() / BLOCK).filter(|at| image[at * BLOCK..][..4] == image[..4]).collect();
    Mutex::new(Rig { block, image, metadata, _device: device })
});

fn walk(directory: &Vnode, depth: usize) {
    let mut names = Vec::new();
    let _ = directory.list(0, |entry| {
        names.push(entry.name);
        if names.len() < 100 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    for name in names.iter().filter(|name| *name != b"." && *name != b"..") {
        let Ok(node) = directory.lookup(name, &Credentials::root()) else { continue };
        let _ = node.read_at(0, &mut [0; 10_000]);
        let _ = node.target();
        let _ = node.xattrs(&Credentials::root());
        let _ = node.xattr(b"user.k", &Credentials::root());
        if depth > 0 && node.file_type() == FileType::Directory {
            walk(&node, depth - 1);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut rig = RIG.lock().unwrap();
    let rig = &mut *rig;
    let mut image = rig.image.clone();
    for change in data.chunks_exact(6).take(16) {
        let at = rig.metadata[usize::from(u16::from_le_bytes([change[0], change[1]])) % rig.metadata.len()];
        let page = &mut image[at * BLOCK..][..BLOCK];
        let place = usize::from(u16::from_le_bytes([change[2], change[3]])) % BLOCK;
        page[place] = change[4];
        if change[5] & 1 == 0 {
            page[8..12].fill(0);
            let crc = crc_fast::crc32_iscsi(page);
            page[8..12].copy_from_slice(&crc.to_le_bytes());
        }
    }
    rig.block.write_at(0, &image).unwrap();
    let _ = check(&rig.block, "mem:", |_| ());
    if let Ok(fs) = FileSystem::mount(&rig.block, "mem:", &MountOptions::default()) {
        let who = Credentials::root();
        if let Ok(root) = fs.root() {
            walk(&root, 3);
            if let Ok(new) = root.create(b"new", &NewFile::regular(0o644), &who) {
                let _ = new.write_at(5, &[1; 9000]);
                let _ = new.sync();
            }
            let _ = root.unlink(b"sparse", &who);
            let _ = root.rename(b"late", (&root, b"new"), unvme_fs::Rename::Replace, &who);
        }
    }
    rig.block.write_at(0, &image).unwrap();
    if repair(&rig.block, "mem:", |_| ()).is_ok() {
        let problems = check(&rig.block, "mem:", |_| ()).unwrap().problems;
        assert_eq!(problems, []);
        FileSystem::mount(&rig.block, "mem:", &MountOptions::default()).unwrap();
    }
});
