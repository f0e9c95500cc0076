//! What the flags of open(2) mean.

use std::ffi::c_int;

use rustix::fs::OFlags;

use super::{File, Mounted, Result, invalid};

/// What an open file may be told beside how it is accessed; the last ones have no meaning here.
const FLAGS: OFlags = OFlags::RWMODE
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::TRUNC)
    .union(OFlags::APPEND)
    .union(OFlags::DIRECT)
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::SYNC)
    .union(OFlags::TMPFILE)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOCTTY)
    .union(OFlags::NONBLOCK)
    .union(OFlags::LARGEFILE);

pub(super) fn open(fs: &Mounted, path: &[u8], flags: c_int, mode: u32) -> Result<File> {
    let flags = OFlags::from_bits_retain(flags as u32);
    if !FLAGS.contains(flags) || flags.contains(OFlags::RWMODE) {
        return Err(invalid());
    }
    Ok(File::new(fs, fs.fs.open(path, flags, mode, &fs.who)?, flags))
}
