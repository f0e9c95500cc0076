//! What is known of files beside their data.

use std::ffi::{CString, c_char, c_int, c_uint};
use std::sync::atomic::Ordering;

use libc::{
    AT_EACCESS, AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, gid_t, mode_t, stat as Stat, statfs as Statfs,
    statvfs as Statvfs, statx as Statx, timespec, timeval, uid_t, utimbuf,
};
use rustix::io::Errno;
use unvme_fs::calls::{At, NewTime, Reply, Request};
use unvme_fs::{Attributes, Time, Usage};

use crate::errno::{Result, done, text};
use crate::mount::Mount;
use crate::place::{self, Outcome, Place};
use crate::table::{self, Held};
use crate::{links, memory, own, real, state};

/// `f_type` of a file system that no kernel knows: "UNVM".
const MAGIC: i64 = 0x554e_564d;

unsafe fn put_stat(mount: &Mount, found: &Attributes, out: *mut Stat) -> Result<()> {
    memory::check_writable(out.cast(), size_of::<Stat>())?;
    out.write_bytes(0, 1);
    let out = &mut *out;
    out.st_dev = mount.device.load(Ordering::Relaxed);
    out.st_ino = found.ino;
    out.st_mode = found.mode;
    out.st_nlink = found.links.into();
    out.st_uid = found.uid;
    out.st_gid = found.gid;
    out.st_rdev = found.rdev;
    out.st_size = found.size as i64;
    out.st_blksize = 4096;
    out.st_blocks = found.sectors as i64;
    (out.st_atime, out.st_atime_nsec) = (found.accessed.seconds, found.accessed.nanoseconds.into());
    (out.st_mtime, out.st_mtime_nsec) = (found.modified.seconds, found.modified.nanoseconds.into());
    (out.st_ctime, out.st_ctime_nsec) = (found.changed.seconds, found.changed.nanoseconds.into());
    Ok(())
}

unsafe fn put_statx(mount: &Mount, found: &Attributes, out: *mut Statx) -> Result<()> {
    memory::check_writable(out.cast(), size_of::<Statx>())?;
    let stamp = |time: Time| {
        let mut stamp: libc::statx_timestamp = std::mem::zeroed();
        (stamp.tv_sec, stamp.tv_nsec) = (time.seconds, time.nanoseconds);
        stamp
    };
    out.write_bytes(0, 1);
    let device = mount.device.load(Ordering::Relaxed);
    let out = &mut *out;
    out.stx_mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    out.stx_blksize = 4096;
    out.stx_nlink = found.links;
    out.stx_uid = found.uid;
    out.stx_gid = found.gid;
    out.stx_mode = found.mode as u16;
    out.stx_ino = found.ino;
    out.stx_size = found.size;
    out.stx_blocks = found.sectors;
    out.stx_atime = stamp(found.accessed);
    out.stx_mtime = stamp(found.modified);
    out.stx_ctime = stamp(found.changed);
    out.stx_btime = stamp(found.created);
    (out.stx_dev_major, out.stx_dev_minor) = (libc::major(device), libc::minor(device));
    (out.stx_rdev_major, out.stx_rdev_minor) = (libc::major(found.rdev), libc::minor(found.rdev));
    Ok(())
}

/// What is known of what a path, or with an empty one a descriptor, leads to. Of one of the kernel's it is
/// asked for below.
unsafe fn find(dir: c_int, path: *const c_char, flags: c_int) -> Result<Outcome> {
    const SYNC_TYPE: c_int = libc::AT_STATX_FORCE_SYNC | libc::AT_STATX_DONT_SYNC;
    let known = AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT | AT_EMPTY_PATH | SYNC_TYPE;
    if flags & !known != 0 || flags & SYNC_TYPE == SYNC_TYPE {
        return Err(Errno::INVAL);
    }
    if let Some(found) = of_empty(dir, path, flags, |mount, at| mount.ask(&Request::Attributes { at })) {
        return found;
    }
    let follows = flags & AT_SYMLINK_NOFOLLOW == 0;
    state::steadily(|| {
        let place = place::resolve_as(dir, path, follows)?;
        place::call_at(place, follows, |mount, at| mount.ask(&Request::Attributes { at }))
    })
}

/// A call on a descriptor, or on the working directory, which an empty path stands for where it may be empty.
unsafe fn of_empty(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    request: impl Fn(&'static Mount, At<'_>) -> Result<Reply>,
) -> Option<Result<Outcome>> {
    if flags & AT_EMPTY_PATH == 0 || !path.is_null() && !text(path).is_ok_and(<[u8]>::is_empty) {
        return None;
    }
    if let Some(held) = table::get(dir) {
        let at = held.at();
        return Some(request(held.mount, at).map(|reply| Outcome::Done(held.mount, reply)));
    }
    if dir == AT_FDCWD && state::is_on() && !crate::gate::is_inside() {
        return Some(place::call(dir, c".".as_ptr(), true, request));
    }
    Some(Ok(Outcome::Kernel))
}

/// What is known of an open file.
pub(crate) fn of_open(held: &Held) -> Result<Attributes> {
    if let Some(vnode) = held.vnode() {
        return Ok(vnode.attributes());
    }
    let at = held.at();
    match held.call(&Request::Attributes { at })? {
        Reply::Attributes(found) => Ok(found),
        _ => Err(Errno::IO),
    }
}

unsafe fn stat_at(dir: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int {
    match find(dir, path, flags) {
        Ok(Outcome::Kernel) => stat_of_kernel(dir, path, out, flags),
        Ok(Outcome::Other(path)) => real::fstatat(AT_FDCWD, path.as_ptr(), out, flags),
        Ok(Outcome::Done(mount, Reply::Attributes(found))) => done(put_stat(mount, &found, out)),
        Ok(Outcome::Done(..)) => done(Err(Errno::IO)),
        Err(errno) => done(Err(errno)),
    }
}

unsafe fn stat_of_kernel(dir: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int {
    let result = match (dir, flags) {
        (AT_FDCWD, 0) => real::stat(path, out),
        (AT_FDCWD, AT_SYMLINK_NOFOLLOW) => real::lstat(path, out),
        _ => real::fstatat(dir, path, out, flags),
    };
    let folder = if result == 0 { links::folder(&*out) } else { None };
    match instead(result, folder, dir, path, flags) {
        None => result,
        Some(found) => done(found.and_then(|(mount, found)| put_stat(mount, &found, out))),
    }
}

/// What is known instead of what the kernel has said: where symbolic links that it does not find lead to a
/// folder, and of a folder by another name.
unsafe fn instead(
    result: c_int,
    folder: Option<Place>,
    dir: c_int,
    path: *const c_char,
    flags: c_int,
) -> Option<Result<(&'static Mount, Attributes)>> {
    if !state::is_on() || crate::gate::is_inside() || path.is_null() {
        return None;
    }
    let place = match folder {
        Some(folder) => folder,
        None if result != 0 && crate::errno::get() == libc::ENOENT => {
            links::through_links(dir, text(path).ok()?)?
        }
        None => return None,
    };
    let follows = flags & AT_SYMLINK_NOFOLLOW == 0;
    match place::call_at(place, follows, |mount, at| mount.ask(&Request::Attributes { at })) {
        Ok(Outcome::Done(mount, Reply::Attributes(found))) => Some(Ok((mount, found))),
        Ok(_) => Some(Err(Errno::NOENT)),
        Err(errno) => Some(Err(errno)),
    }
}

unsafe fn fstat_any(fd: c_int, out: *mut Stat) -> c_int {
    let Some(held) = table::get(fd) else {
        if own::is_out_of_reach(fd) {
            return done(Err(Errno::BADF));
        }
        return real::fstat(fd, out);
    };
    done(of_open(&held).and_then(|found| put_stat(held.mount, &found, out)))
}

unsafe fn access_at(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    let follows = flags & AT_SYMLINK_NOFOLLOW == 0;
    let known = AT_SYMLINK_NOFOLLOW | AT_EACCESS | AT_EMPTY_PATH;
    if mode & !7 != 0 || flags & !known != 0 {
        return done(Err(Errno::INVAL));
    }
    let request = |mount: &'static Mount, at: At<'_>| mount.ask(&Request::Access { at, wanted: mode as u32 });
    let found =
        of_empty(dir, path, flags, request).unwrap_or_else(|| place::call(dir, path, follows, request));
    match found {
        Ok(Outcome::Kernel) if dir == AT_FDCWD && flags == 0 => real::access(path, mode),
        Ok(Outcome::Kernel) => real::faccessat(dir, path, mode, flags),
        Ok(Outcome::Other(path)) => real::faccessat(AT_FDCWD, path.as_ptr(), mode, flags),
        other => done(other.map(drop)),
    }
}

/// A change that is made of a path, or of a descriptor when the path is empty and may be.
unsafe fn change(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    request: impl Fn(&'static Mount, At<'_>) -> Result<Reply>,
    kernel: impl FnOnce(Option<&CString>) -> c_int,
) -> c_int {
    if flags & !(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0 {
        return done(Err(Errno::INVAL));
    }
    if path.is_null() {
        // Unlike for `stat`, it does not stand for an empty one.
        return done(Err(Errno::FAULT));
    }
    let found = of_empty(dir, path, flags, &request)
        .unwrap_or_else(|| place::call(dir, path, flags & AT_SYMLINK_NOFOLLOW == 0, request));
    match found {
        Ok(Outcome::Kernel) => kernel(None),
        Ok(Outcome::Other(path)) => kernel(Some(&path)),
        other => done(other.map(drop)),
    }
}

fn on_open(held: &Held, request: impl Fn(&'static Mount, At<'_>) -> Result<Reply>) -> c_int {
    let at = held.at();
    done(held.check_open().and_then(|()| request(held.mount, at)).map(drop))
}

fn owner(id: u32) -> Option<u32> {
    (id != u32::MAX).then_some(id)
}

unsafe fn chown_at(dir: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int) -> c_int {
    let request = |mount: &'static Mount, at: At<'_>| {
        mount.ask(&Request::ChangeOwner { at, uid: owner(uid), gid: owner(gid) })
    };
    change(dir, path, flags, request, |other| match other {
        None => real::fchownat(dir, path, uid, gid, flags),
        Some(path) => real::fchownat(AT_FDCWD, path.as_ptr(), uid, gid, flags),
    })
}

unsafe fn chmod_at(dir: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
    if flags & AT_SYMLINK_NOFOLLOW != 0
        && let Ok(Outcome::Done(_, Reply::Attributes(found))) = find(dir, path, flags)
        && found.mode & libc::S_IFMT == libc::S_IFLNK
    {
        return done(Err(Errno::OPNOTSUPP));
    }
    change(
        dir,
        path,
        flags,
        |mount, at| mount.ask(&Request::ChangeMode { at, mode: mode & 0o7777 }),
        |other| match other {
            None if dir == AT_FDCWD && flags == 0 => real::chmod(path, mode),
            None => real::fchmodat(dir, path, mode, flags),
            Some(path) => real::fchmodat(AT_FDCWD, path.as_ptr(), mode, flags),
        },
    )
}

/// Two moments, as C gives them: access and change.
type Times = (NewTime, NewTime);

fn of_timespec(time: &timespec) -> Result<NewTime> {
    match time.tv_nsec {
        libc::UTIME_NOW => Ok(NewTime::Now),
        libc::UTIME_OMIT => Ok(NewTime::Keep),
        nanoseconds @ 0..1_000_000_000 => Ok(NewTime::At(time.tv_sec, nanoseconds as u32)),
        _ => Err(Errno::INVAL),
    }
}

unsafe fn timespecs(times: *const timespec) -> Result<Times> {
    if times.is_null() {
        return Ok((NewTime::Now, NewTime::Now));
    }
    memory::check_readable(times.cast(), 2 * size_of::<timespec>())?;
    Ok((of_timespec(&*times)?, of_timespec(&*times.add(1))?))
}

unsafe fn timevals(times: *const timeval) -> Result<Times> {
    if times.is_null() {
        return Ok((NewTime::Now, NewTime::Now));
    }
    memory::check_readable(times.cast(), 2 * size_of::<timeval>())?;
    let of = |time: &timeval| match time.tv_usec {
        microseconds @ 0..1_000_000 => Ok(NewTime::At(time.tv_sec, microseconds as u32 * 1000)),
        _ => Err(Errno::INVAL),
    };
    Ok((of(&*times)?, of(&*times.add(1))?))
}

/// `utimensat` by number and without a path, which is `futimens` for the kernel, though not for the C
/// library.
///
/// # Safety
/// As for `futimens`.
pub(crate) unsafe fn times_by_number(fd: c_int, times: *const timespec, flags: c_int) -> c_int {
    match timespecs(times) {
        Err(Errno::FAULT) => done(Err(Errno::FAULT)),
        Ok((NewTime::Keep, NewTime::Keep)) => 0,
        _ if flags != 0 => done(Err(Errno::INVAL)),
        _ if fd == AT_FDCWD => done(Err(Errno::FAULT)),
        _ => futimens(fd, times),
    }
}

unsafe fn times_at(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    times: Result<Times>,
    kernel: impl FnOnce(Option<&CString>) -> c_int,
) -> c_int {
    match times {
        Ok((accessed, modified)) => change(
            dir,
            path,
            flags,
            |mount, at| mount.ask(&Request::ChangeTimes { at, accessed, modified }),
            kernel,
        ),
        Err(Errno::INVAL) if flags & !(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) == 0 => {
            // Who has no such file hears that; the kernel says so, of its own files.
            match find(dir, path, flags) {
                Ok(Outcome::Kernel) => kernel(None),
                Ok(Outcome::Other(path)) => kernel(Some(&path)),
                Ok(Outcome::Done(..)) => done(Err(Errno::INVAL)),
                Err(errno) => done(Err(errno)),
            }
        }
        Err(errno) => done(Err(errno)),
    }
}

fn times_of_open(held: &Held, times: Result<Times>) -> c_int {
    match times {
        Ok((accessed, modified)) => {
            on_open(held, |mount, at| mount.ask(&Request::ChangeTimes { at, accessed, modified }))
        }
        Err(Errno::FAULT) => done(Err(Errno::FAULT)),
        Err(errno) => done(held.check_open().and(Err(errno))),
    }
}

fn usage_of(mount: &'static Mount) -> Result<(Usage, u64)> {
    match mount.call(&Request::Usage, &[], &mut [])? {
        Reply::Usage(usage, identity) => Ok((usage, identity)),
        _ => Err(Errno::IO),
    }
}

unsafe fn put_statfs(mount: &'static Mount, out: *mut Statfs) -> Result<()> {
    let (usage, identity) = usage_of(mount)?;
    memory::check_writable(out.cast(), size_of::<Statfs>())?;
    out.write_bytes(0, 1);
    let out = &mut *out;
    out.f_type = MAGIC;
    out.f_bsize = usage.block_bytes as i64;
    out.f_frsize = usage.block_bytes as i64;
    out.f_blocks = usage.blocks;
    out.f_bfree = usage.free_blocks;
    out.f_bavail = usage.free_blocks;
    out.f_files = usage.inodes;
    out.f_ffree = usage.free_inodes;
    out.f_namelen = unvme_fs::NAME_MAX as i64;
    out.f_fsid = std::mem::transmute::<u64, libc::fsid_t>(identity);
    Ok(())
}

unsafe fn put_statvfs(mount: &'static Mount, out: *mut Statvfs) -> Result<()> {
    let (usage, identity) = usage_of(mount)?;
    memory::check_writable(out.cast(), size_of::<Statvfs>())?;
    out.write_bytes(0, 1);
    let out = &mut *out;
    out.f_bsize = usage.block_bytes;
    out.f_frsize = usage.block_bytes;
    out.f_blocks = usage.blocks;
    out.f_bfree = usage.free_blocks;
    out.f_bavail = usage.free_blocks;
    out.f_files = usage.inodes;
    out.f_ffree = usage.free_inodes;
    out.f_favail = usage.free_inodes;
    out.f_fsid = identity;
    out.f_namemax = unvme_fs::NAME_MAX as u64;
    Ok(())
}

/// Which folder a path is in; the path has to be there.
unsafe fn mount_of(path: *const c_char) -> Result<Outcome> {
    place::call(AT_FDCWD, path, true, |mount, at| mount.ask(&Request::Attributes { at }))
}

exported! {
    fn stat(path: *const c_char, out: *mut Stat) -> c_int {
        stat_at(AT_FDCWD, path, out, 0)
    }

    fn stat64(path: *const c_char, out: *mut Stat) -> c_int {
        stat_at(AT_FDCWD, path, out, 0)
    }

    fn lstat(path: *const c_char, out: *mut Stat) -> c_int {
        stat_at(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW)
    }

    fn lstat64(path: *const c_char, out: *mut Stat) -> c_int {
        stat_at(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW)
    }

    fn fstat(fd: c_int, out: *mut Stat) -> c_int {
        fstat_any(fd, out)
    }

    fn fstat64(fd: c_int, out: *mut Stat) -> c_int {
        fstat_any(fd, out)
    }

    fn fstatat(dir: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int {
        stat_at(dir, path, out, flags)
    }

    fn fstatat64(dir: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int {
        stat_at(dir, path, out, flags)
    }

    fn __xstat(_version: c_int, path: *const c_char, out: *mut Stat) -> c_int {
        stat_at(AT_FDCWD, path, out, 0)
    }

    fn __xstat64(_version: c_int, path: *const c_char, out: *mut Stat) -> c_int {
        stat_at(AT_FDCWD, path, out, 0)
    }

    fn __lxstat(_version: c_int, path: *const c_char, out: *mut Stat) -> c_int {
        stat_at(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW)
    }

    fn __lxstat64(_version: c_int, path: *const c_char, out: *mut Stat) -> c_int {
        stat_at(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW)
    }

    fn __fxstat(_version: c_int, fd: c_int, out: *mut Stat) -> c_int {
        fstat_any(fd, out)
    }

    fn __fxstat64(_version: c_int, fd: c_int, out: *mut Stat) -> c_int {
        fstat_any(fd, out)
    }

    fn __fxstatat(_version: c_int, dir: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int {
        stat_at(dir, path, out, flags)
    }

    fn __fxstatat64(_version: c_int, dir: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int {
        stat_at(dir, path, out, flags)
    }

    fn statx(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut Statx) -> c_int {
        if mask & 0x8000_0000 != 0 {
            return real::statx(dir, path, flags, mask, out);
        }
        match find(dir, path, flags) {
            Ok(Outcome::Kernel) => {
                let result = real::statx(dir, path, flags, mask, out);
                let folder = if result == 0 {
                    let device = libc::makedev((*out).stx_dev_major, (*out).stx_dev_minor);
                    links::folder_of((*out).stx_mode.into(), device, (*out).stx_ino)
                } else {
                    None
                };
                match instead(result, folder, dir, path, flags) {
                    None => result,
                    Some(found) => done(found.and_then(|(mount, found)| put_statx(mount, &found, out))),
                }
            }
            Ok(Outcome::Other(path)) => real::statx(AT_FDCWD, path.as_ptr(), flags, mask, out),
            Ok(Outcome::Done(mount, Reply::Attributes(found))) => {
                done(put_statx(mount, &found, out))
            }
            Ok(Outcome::Done(..)) => done(Err(Errno::IO)),
            Err(errno) => done(Err(errno)),
        }
    }

    fn statfs(path: *const c_char, out: *mut Statfs) -> c_int {
        match mount_of(path) {
            Ok(Outcome::Kernel) => real::statfs(path, out),
            Ok(Outcome::Other(path)) => real::statfs(path.as_ptr(), out),
            Ok(Outcome::Done(mount, _)) => done(put_statfs(mount, out)),
            Err(errno) => done(Err(errno)),
        }
    }

    fn statfs64(path: *const c_char, out: *mut Statfs) -> c_int {
        statfs(path, out)
    }

    fn fstatfs(fd: c_int, out: *mut Statfs) -> c_int {
        let Some(held) = table::get(fd) else { return real::fstatfs(fd, out) };
        done(put_statfs(held.mount, out))
    }

    fn fstatfs64(fd: c_int, out: *mut Statfs) -> c_int {
        fstatfs(fd, out)
    }

    fn statvfs(path: *const c_char, out: *mut Statvfs) -> c_int {
        match mount_of(path) {
            Ok(Outcome::Kernel) => real::statvfs(path, out),
            Ok(Outcome::Other(path)) => real::statvfs(path.as_ptr(), out),
            Ok(Outcome::Done(mount, _)) => done(put_statvfs(mount, out)),
            Err(errno) => done(Err(errno)),
        }
    }

    fn statvfs64(path: *const c_char, out: *mut Statvfs) -> c_int {
        statvfs(path, out)
    }

    fn fstatvfs(fd: c_int, out: *mut Statvfs) -> c_int {
        let Some(held) = table::get(fd) else { return real::fstatvfs(fd, out) };
        done(put_statvfs(held.mount, out))
    }

    fn fstatvfs64(fd: c_int, out: *mut Statvfs) -> c_int {
        fstatvfs(fd, out)
    }

    fn access(path: *const c_char, mode: c_int) -> c_int {
        access_at(AT_FDCWD, path, mode, 0)
    }

    // The C library leaves out what is no permission.
    fn euidaccess(path: *const c_char, mode: c_int) -> c_int {
        access_at(AT_FDCWD, path, mode & 7, AT_EACCESS)
    }

    fn eaccess(path: *const c_char, mode: c_int) -> c_int {
        access_at(AT_FDCWD, path, mode & 7, AT_EACCESS)
    }

    fn faccessat(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
        access_at(dir, path, mode, flags)
    }

    fn chmod(path: *const c_char, mode: mode_t) -> c_int {
        chmod_at(AT_FDCWD, path, mode, 0)
    }

    fn lchmod(path: *const c_char, mode: mode_t) -> c_int {
        chmod_at(AT_FDCWD, path, mode, AT_SYMLINK_NOFOLLOW)
    }

    fn fchmod(fd: c_int, mode: mode_t) -> c_int {
        let Some(held) = table::get(fd) else { return real::fchmod(fd, mode) };
        on_open(&held, |mount, at| mount.ask(&Request::ChangeMode { at, mode: mode & 0o7777 }))
    }

    fn fchmodat(dir: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
        chmod_at(dir, path, mode, flags)
    }

    fn chown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
        chown_at(AT_FDCWD, path, uid, gid, 0)
    }

    fn lchown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
        chown_at(AT_FDCWD, path, uid, gid, AT_SYMLINK_NOFOLLOW)
    }

    fn fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int {
        let Some(held) = table::get(fd) else { return real::fchown(fd, uid, gid) };
        on_open(&held, |mount, at| mount.ask(&Request::ChangeOwner { at, uid: owner(uid), gid: owner(gid) }))
    }

    fn fchownat(dir: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int) -> c_int {
        chown_at(dir, path, uid, gid, flags)
    }

    fn utimensat(dir: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int {
        if path.is_null() {
            // As the C library has it, whatever the kernel's call makes of it.
            return done(Err(Errno::INVAL));
        }
        let given = timespecs(times);
        if let Ok((NewTime::Keep, NewTime::Keep)) = given {
            // Nothing is to be done, and the path is not looked at.
            return 0;
        }
        times_at(dir, path, flags, given, |other| match other {
            None => real::utimensat(dir, path, times, flags),
            Some(path) => real::utimensat(AT_FDCWD, path.as_ptr(), times, flags),
        })
    }

    fn futimens(fd: c_int, times: *const timespec) -> c_int {
        let Some(held) = table::get(fd) else { return real::futimens(fd, times) };
        match timespecs(times) {
            Ok((NewTime::Keep, NewTime::Keep)) => 0,
            given => times_of_open(&held, given),
        }
    }

    fn utime(path: *const c_char, times: *const utimbuf) -> c_int {
        let given = if times.is_null() {
            Ok((NewTime::Now, NewTime::Now))
        } else {
            memory::check_readable(times.cast(), size_of::<utimbuf>())
                .map(|()| (NewTime::At((*times).actime, 0), NewTime::At((*times).modtime, 0)))
        };
        times_at(AT_FDCWD, path, 0, given, |other| real::utime(other.map_or(path, |o| o.as_ptr()), times))
    }

    fn utimes(path: *const c_char, times: *const timeval) -> c_int {
        let kernel = |other: Option<&CString>| real::utimes(other.map_or(path, |o| o.as_ptr()), times);
        times_at(AT_FDCWD, path, 0, timevals(times), kernel)
    }

    fn lutimes(path: *const c_char, times: *const timeval) -> c_int {
        let kernel = |other: Option<&CString>| real::lutimes(other.map_or(path, |o| o.as_ptr()), times);
        times_at(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, timevals(times), kernel)
    }

    fn futimesat(dir: c_int, path: *const c_char, times: *const timeval) -> c_int {
        if path.is_null() {
            return futimes(dir, times);
        }
        times_at(dir, path, 0, timevals(times), |other| match other {
            None => real::futimesat(dir, path, times),
            Some(path) => real::futimesat(AT_FDCWD, path.as_ptr(), times),
        })
    }

    fn futimes(fd: c_int, times: *const timeval) -> c_int {
        let Some(held) = table::get(fd) else { return real::futimes(fd, times) };
        times_of_open(&held, timevals(times))
    }
}
