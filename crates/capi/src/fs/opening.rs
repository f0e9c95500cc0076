//! What the flags of open(2) mean.

use std::ffi::c_int;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use unvme_fs::{Error, NewFile, Vnode};

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

/// Symbolic links that lead to where a file is made.
const LINKS_MAX: usize = 40;

/// Finds a file, or makes it. Returns whether it is new.
fn find_or_make(fs: &Mounted, path: &[u8], flags: OFlags, mode: u32) -> Result<(Vnode, bool)> {
    if flags.contains(OFlags::CREATE) && path.ends_with(b"/") {
        return Err(Errno::ISDIR.into());
    }
    let follows = !flags.contains(OFlags::NOFOLLOW);
    let mut path = path.to_vec();
    for _ in 0..LINKS_MAX {
        match fs.fs.resolve(&path, follows, &fs.who) {
            Ok(_) if flags.contains(OFlags::CREATE | OFlags::EXCL) => return Err(Errno::EXIST.into()),
            Err(Error::Posix(Errno::NOENT)) if flags.contains(OFlags::CREATE) => {}
            other => return Ok((other?, false)),
        }
        match fs.make(&path, &NewFile::regular(mode & 0o7777)) {
            // Somebody was faster, or it is a symbolic link to where nothing is yet.
            Err(Error::Posix(Errno::EXIST)) if !flags.contains(OFlags::EXCL) => {}
            other => return Ok((other?, true)),
        }
        let there = fs.fs.resolve(&path, false, &fs.who)?;
        if there.file_type() == FileType::Symlink {
            let target = there.target()?;
            let name = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
            path.truncate(if target.starts_with(b"/") { 0 } else { name });
            path.extend_from_slice(&target);
        }
    }
    Err(Errno::LOOP.into())
}

pub(super) fn open(fs: &Mounted, path: &[u8], flags: c_int, mode: u32) -> Result<File> {
    let flags = OFlags::from_bits_retain(flags as u32);
    let access = flags & OFlags::RWMODE;
    if !FLAGS.contains(flags) || access == OFlags::RWMODE {
        return Err(invalid());
    }
    let (can_read, can_write) = (access != OFlags::WRONLY, access != OFlags::RDONLY);
    if flags.contains(OFlags::TMPFILE) {
        if !can_write {
            return Err(invalid());
        }
        let directory = fs.fs.resolve(path, true, &fs.who)?;
        return Ok(File::new(fs, directory.create_unnamed(mode & 0o7777, &fs.who)?, flags));
    }
    let (found, is_new) = find_or_make(fs, path, flags, mode)?;
    if is_new {
        // Whoever makes a file may use it, whatever its mode says to others.
        return Ok(File::new(fs, found, flags));
    }
    if found.file_type() == FileType::Symlink {
        return Err(Errno::LOOP.into());
    }
    let is_directory = found.file_type() == FileType::Directory;
    if flags.contains(OFlags::DIRECTORY) && !is_directory {
        return Err(Errno::NOTDIR.into());
    }
    if is_directory && can_write {
        return Err(Errno::ISDIR.into());
    }
    let wanted = if can_read { unvme_fs::READ } else { 0 } | if can_write { unvme_fs::WRITE } else { 0 };
    found.check_access(&fs.who, wanted)?;
    if flags.contains(OFlags::TRUNC) && can_write {
        found.truncate(0)?;
    }
    Ok(File::new(fs, found, flags))
}
