//! What a program does with files, from the first one to the last: `cargo run -p unvme-fs --example tour`.

use unvme::{Nsid, OpenOptions, open};
use unvme_fs::{
    Credentials, FileSystem, Lock, LockKind, MakeOptions, MountOptions, NewAttributes, NewFile, READ, Rename,
    WRITE, make,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = open("mem:block:64M", &OpenOptions::default())?;
    let block = device.block(Nsid(1))?;
    make(&block, device.name(), &MakeOptions { label: "tour".into(), ..MakeOptions::default() }, |_, _| ())?;
    let fs = FileSystem::mount(&block, device.name(), &MountOptions::default())?;
    assert!(fs.description().is_clean);
    let (root, ada) = (fs.root()?, Credentials { uid: 1000, gid: 1000, ..Credentials::default() });

    // A directory of Ada's own.
    let home = root.create(b"ada", &NewFile::directory(0o700), &Credentials::root())?;
    let owner = NewAttributes { uid: Some(1000), gid: Some(1000), ..NewAttributes::default() };
    home.set_attributes(&owner, &Credentials::root())?;
    home.check_access(&ada, READ | WRITE)?;

    // A file that gets its name when it is whole.
    let file = home.create_unnamed(0o600, &ada)?;
    file.append(b"one line\n")?;
    file.sync()?;
    file.link(&home, b"draft", &ada)?;
    home.rename(b"draft", (&home, b"text"), Rename::NoReplace, &ada)?;
    assert_eq!(home.lookup(b"text", &ada)?.attributes().size, 9);

    // Advisory locks: of bytes, and of the whole file.
    let whole = Lock { owner: 1, kind: LockKind::Exclusive, start: 0, end: u64::MAX };
    file.lock(whole, false)?;
    assert_eq!(file.find_lock(&Lock { owner: 2, ..whole }), Some(whole));
    file.unlock(1, 0, u64::MAX);
    file.flock(1, LockKind::Shared, true)?;
    file.funlock(1);

    home.unlink(b"text", &ada)?;
    root.rmdir(b"ada", &Credentials::root())?;
    assert_eq!(fs.check(|_| ())?.problems, []);
    fs.unmount()?;
    Ok(())
}
