//! Opening, closing, and copies of descriptors.

use std::ffi::{c_char, c_int, c_uint};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{
    AT_FDCWD, F_DUPFD, F_DUPFD_CLOEXEC, F_GETFL, F_GETOWN, F_SETFL, F_SETOWN, O_ACCMODE, O_APPEND, O_ASYNC,
    O_CLOEXEC, O_CREAT, O_DIRECT, O_DIRECTORY, O_EXCL, O_NOATIME, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_RDONLY,
    O_TMPFILE, O_TRUNC, O_WRONLY, mode_t,
};
use rustix::io::Errno;
use unvme_fs::FileSettings;
use unvme_fs::calls::{Reply, Request};

use crate::errno::{Result, number, set, text};
use crate::mount::Mount;
use crate::owner::{F_GETOWNER_UIDS, F_GETSIG, F_SETOWN_EX, F_SETSIG};
use crate::place::{self, Place};
use crate::table::{self, Opened};
use crate::{gate, links, memory, own, program, real, slot, state};

static UMASK: AtomicU32 = AtomicU32::new(0o022);

/// Before `main`, where nobody else is disturbed by it.
pub(crate) fn note_umask() {
    // SAFETY: it takes any mask.
    unsafe {
        let mask = real::umask(0);
        real::umask(mask);
        UMASK.store(mask, Ordering::Relaxed);
    }
}

/// A mode without what new files do not get.
pub(crate) fn masked(mode: mode_t) -> mode_t {
    mode & !UMASK.load(Ordering::Relaxed)
}

/// What came of opening.
enum Opening {
    Kernel,
    Other(std::ffi::CString),
    Done(c_int),
}

unsafe fn open_ours(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> Result<Opening> {
    let mut place = place::resolve_as(dir, path, flags & O_NOFOLLOW == 0)?;
    if let Place::Kernel = place {
        if flags & O_CREAT == 0 || !state::is_on() || path.is_null() || gate::is_inside() {
            return Ok(Opening::Kernel);
        }
        // It would be made, wherever symbolic links lead.
        match links::through_links(dir, text(path)?) {
            Some(found) if flags & (O_EXCL | O_NOFOLLOW) == 0 || !is_link(dir, path) => place = found,
            _ => return Ok(Opening::Kernel),
        }
    }
    open_place(place, dir, flags, mode)
}

fn open_place(mut place: Place, dir: c_int, mut flags: c_int, mode: mode_t) -> Result<Opening> {
    let mode = if flags & O_CREAT != 0 || flags & O_TMPFILE == O_TMPFILE { masked(mode) } else { 0 };
    for _ in 0..place::CROSSINGS_MAX {
        let (mount, base, path) = match place {
            Place::Kernel => return Ok(Opening::Kernel),
            Place::Other(path) => return Ok(Opening::Other(path)),
            Place::Ours(mount, base, path) => (mount, base, path),
        };
        if path.is_empty() && flags & O_CREAT != 0 {
            // An open file by the name of its descriptor: it is there.
            if flags & O_EXCL != 0 {
                return Err(Errno::EXIST);
            }
            flags &= !O_CREAT;
        }
        let _inside = gate::enter();
        let at = unvme_fs::calls::At { base, path: &path, follows: flags & O_NOFOLLOW == 0 };
        // Nothing is made or cut for who has no descriptor left for it.
        let changes = flags & (O_CREAT | O_TRUNC) != 0 || flags & O_TMPFILE == O_TMPFILE;
        let reserved = if changes { Some(table::reserve(flags)?) } else { None };
        match mount.call(&Request::Open { at, flags: flags as u32, mode }, &[], &mut [])? {
            Reply::Outside(_, path) => place = place::follow(mount, &path, flags & O_NOFOLLOW == 0)?,
            Reply::Opened(open, file, mode, _) => {
                let path = place::below_folder(mount, base, dir, path);
                return descriptor(mount, reserved, &Opened { open, file, mode }, flags, path)
                    .map(Opening::Done);
            }
            _ => return Err(Errno::IO),
        }
    }
    Err(Errno::LOOP)
}

unsafe fn is_link(dir: c_int, path: *const c_char) -> bool {
    let mut one = [0; 1];
    real::readlinkat(dir, path, one.as_mut_ptr(), 1) >= 0
}

fn descriptor(
    mount: &'static Mount,
    reserved: Option<table::Reserved>,
    opened: &Opened,
    flags: c_int,
    path: Vec<u8>,
) -> Result<c_int> {
    let kept = flags & !(O_CREAT | O_EXCL | O_TRUNC | libc::O_NOCTTY);
    let added = table::add(mount, reserved, opened, kept, path);
    if added.is_err() {
        let _ = mount.call(&Request::Release { open: opened.open }, &[], &mut []);
        return added;
    }
    mount.counters.opened.add(1);
    if let Ok(fd @ 0..=2) = added {
        crate::stdio::note_standard(fd);
    }
    if let Some(bytes) = mount.config.read_ahead
        && let Some(file) = mount.file(opened.open)
    {
        let _ = file.set_settings(&FileSettings { read_ahead: bytes, ..file.settings() });
    }
    added
}

unsafe fn open_any(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    if flags & (O_PATH | O_CREAT | O_DIRECTORY) == O_CREAT | O_DIRECTORY {
        return number(Err(Errno::INVAL));
    }
    // Of a path that is only held, the others mean nothing.
    let flags =
        if flags & O_PATH != 0 { flags & (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) } else { flags };
    match state::steadily(|| open_ours(dir, path, flags, mode)) {
        Ok(Opening::Kernel) => open_of_kernel(dir, path, flags, mode),
        other => opened(other, flags, mode),
    }
}

unsafe fn opened(opening: Result<Opening>, flags: c_int, mode: mode_t) -> c_int {
    match opening {
        Ok(Opening::Kernel) => number(Err(Errno::NOENT)),
        Ok(Opening::Other(path)) => real::openat(AT_FDCWD, path.as_ptr(), flags, mode),
        Ok(Opening::Done(fd)) => fd,
        Err(errno) => number(Err(errno)),
    }
}

unsafe fn open_of_kernel(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let fd =
        if dir == AT_FDCWD { real::open(path, flags, mode) } else { real::openat(dir, path, flags, mode) };
    if !state::is_on() || gate::is_inside() || path.is_null() {
        return fd;
    }
    if fd < 0 {
        let failed = crate::errno::get();
        let found = match failed {
            // A symbolic link may lead to a folder, which the kernel sees empty.
            libc::ENOENT => text(path).ok().and_then(|path| links::through_links(dir, path)),
            // The mark of a file of ours is neither opened nor emptied.
            libc::EPERM | libc::EACCES => {
                let mark = real::openat(dir, path, O_PATH | O_CLOEXEC, 0);
                crate::errno::put(failed);
                return open_again(path, mark, flags, fd);
            }
            _ => None,
        };
        return match found {
            Some(place) => opened(open_place(place, dir, flags, mode), flags, mode),
            None => {
                crate::errno::put(failed);
                fd
            }
        };
    }
    let may_be_folder = flags & (O_ACCMODE | O_CREAT) == O_RDONLY || flags & O_PATH != 0;
    let mut found: libc::stat = std::mem::zeroed();
    if may_be_folder
        && real::fstat(fd, &mut found) == 0
        && let Some(place) = links::folder(&found)
    {
        real::close(fd);
        return opened(open_place(place, dir, flags, mode), flags, mode);
    }
    if flags & (O_ACCMODE | O_PATH) == O_RDONLY && program::is_mappings(path) {
        let _inside = gate::enter();
        if let Err(errno) = program::show_mappings(fd, flags) {
            real::close(fd);
            return number(Err(errno));
        }
        return fd;
    }
    open_again(path, fd, flags, fd)
}

/// Opens a file of ours whose mark the kernel has opened, by a name that only the kernel understands.
unsafe fn open_again(path: *const c_char, mark: c_int, flags: c_int, opened: c_int) -> c_int {
    let slot = if mark < 0 { None } else { links::slot_behind(path, mark) };
    let Some(slot) = slot else {
        if opened != mark && mark >= 0 {
            let failed = crate::errno::get();
            real::close(mark);
            crate::errno::put(failed);
        }
        return opened;
    };
    real::close(mark);
    let again = || {
        let mount = crate::mount::by_number(slot.mount.load(Ordering::Acquire)).ok_or(Errno::NXIO)?;
        let _inside = gate::enter();
        let adopt = slot.adopt((flags & !(O_CREAT | O_EXCL)) as u32);
        let Reply::Opened(open, file, mode, _) = mount.call(&adopt, &[], &mut [])? else {
            return Err(Errno::IO);
        };
        descriptor(mount, None, &Opened { open, file, mode }, flags, Vec::new())
    };
    number(again())
}

exported! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_any(AT_FDCWD, path, flags, mode)
    }

    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_any(AT_FDCWD, path, flags, mode)
    }

    fn __open_2(path: *const c_char, flags: c_int) -> c_int {
        open_any(AT_FDCWD, path, flags, 0)
    }

    fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
        open_any(AT_FDCWD, path, flags, 0)
    }

    fn __open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_any(AT_FDCWD, path, flags, mode)
    }

    fn __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_any(AT_FDCWD, path, flags, mode)
    }

    fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_any(dir, path, flags, mode)
    }

    fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_any(dir, path, flags, mode)
    }

    fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
        open_any(dir, path, flags, 0)
    }

    fn __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
        open_any(dir, path, flags, 0)
    }

    fn creat(path: *const c_char, mode: mode_t) -> c_int {
        open_any(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode)
    }

    fn creat64(path: *const c_char, mode: mode_t) -> c_int {
        open_any(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode)
    }

    fn umask(mask: mode_t) -> mode_t {
        UMASK.store(mask & 0o777, Ordering::Relaxed);
        real::umask(mask)
    }

    fn close(fd: c_int) -> c_int {
        if own::is_out_of_reach(fd) {
            set(Errno::BADF);
            return -1;
        }
        own::forget(fd);
        let Some(taken) = table::take(fd) else { return real::close(fd) };
        if (0..=2).contains(&fd) {
            crate::stdio::note_standard(fd);
        }
        let closed = real::close(fd);
        if closed < 0 {
            crate::errno::pass();
        }
        drop(taken);
        closed
    }

    fn __close(fd: c_int) -> c_int {
        close(fd)
    }

    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        const CLOSE_RANGE_CLOEXEC: c_int = 4;
        if first > last {
            return real::close_range(first, last, flags);
        }
        if flags & CLOSE_RANGE_CLOEXEC != 0 {
            return close_around(first, last, flags);
        }
        for fd in table::ours_in(first as usize, last as usize) {
            table::remove(fd);
        }
        close_around(first, last, flags)
    }

    fn closefrom(first: c_int) {
        close_range(first.max(0) as c_uint, c_uint::MAX, 0);
    }

    fn dup(fd: c_int) -> c_int {
        if own::is_out_of_reach(fd) {
            set(Errno::BADF);
            return -1;
        }
        let held = table::get(fd);
        note_copy(held, real::dup(fd))
    }

    fn dup2(from: c_int, to: c_int) -> c_int {
        copy_to(from, to, || real::dup2(from, to))
    }

    fn __dup2(from: c_int, to: c_int) -> c_int {
        copy_to(from, to, || real::dup2(from, to))
    }

    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
        if from == to {
            return real::dup3(from, to, flags);
        }
        copy_to(from, to, || real::dup3(from, to, flags))
    }

    fn fcntl(fd: c_int, cmd: c_int, arg: usize) -> c_int {
        fcntl_any(fd, cmd, arg)
    }

    fn fcntl64(fd: c_int, cmd: c_int, arg: usize) -> c_int {
        fcntl_any(fd, cmd, arg)
    }

    fn __fcntl(fd: c_int, cmd: c_int, arg: usize) -> c_int {
        fcntl_any(fd, cmd, arg)
    }

    fn ioctl(fd: c_int, request: libc::c_ulong, arg: usize) -> c_int {
        if matches!(request, libc::FIOCLEX | libc::FIONCLEX) && own::is_out_of_reach(fd) {
            return 0;
        }
        let Some(held) = table::get(fd) else { return real::ioctl(fd, request, arg) };
        if matches!(request, libc::FIOCLEX | libc::FIONCLEX) && held.check_open().is_ok() {
            let flag = if request == libc::FIOCLEX { libc::FD_CLOEXEC } else { 0 };
            return real::fcntl(fd, libc::F_SETFD, flag as usize);
        }
        number(control(&held, request, arg).map(|()| 0))
    }
}

/// The calls of `ioctl` that there are for each file.
unsafe fn control(held: &table::Held, request: libc::c_ulong, arg: usize) -> Result<()> {
    /// The size of a block, and of all that a file has.
    const FIGETBSZ: libc::c_ulong = 2;
    const FIOQSIZE: libc::c_ulong = 0x5460;
    /// Of two files that share blocks.
    const FICLONE: libc::c_ulong = 0x4004_9409;
    const FICLONERANGE: libc::c_ulong = 0x4020_940d;
    const FIDEDUPERANGE: libc::c_ulong = 0xc018_9436;
    held.check_open()?;
    match request {
        libc::FIONREAD if held.is_regular() => {
            // Less than nothing behind the end, as the kernel has it.
            let left = crate::data::size(held)? as i64 - held.slot.offset.load(Ordering::Relaxed) as i64;
            put(arg, left as c_int)
        }
        FIGETBSZ => put(arg, 4096 as c_int),
        FIOQSIZE => put(arg, crate::attributes::of_open(held)?.sectors * 512),
        libc::FIONBIO | libc::FIOASYNC => {
            memory::check_readable(arg as *const _, size_of::<c_int>())?;
            let is_set = (arg as *const c_int).read_unaligned() != 0;
            let flag = if request == libc::FIONBIO { O_NONBLOCK } else { O_ASYNC };
            let flags = held.flags() & !flag | if is_set { flag } else { 0 };
            if flag == O_ASYNC && flags != held.flags() {
                return Err(Errno::NOTTY);
            }
            held.slot.flags.store(flags as u32, Ordering::Relaxed);
            Ok(())
        }
        FICLONE | FICLONERANGE | FIDEDUPERANGE => Err(Errno::OPNOTSUPP),
        _ => Err(Errno::NOTTY),
    }
}

unsafe fn put<T>(to: usize, value: T) -> Result<()> {
    memory::check_writable(to as *mut _, size_of::<T>())?;
    (to as *mut T).write_unaligned(value);
    Ok(())
}

/// A descriptor was copied, unless that has failed.
unsafe fn note_copy(held: Option<table::Held>, copied: c_int) -> c_int {
    if copied < 0 {
        crate::errno::pass();
        return copied;
    }
    let is_gone = match held {
        Some(held) => !table::copy(&held, copied),
        None => slot::of_descriptor(BorrowedFd::borrow_raw(copied)).is_some(),
    };
    if is_gone {
        // Another thread has closed it first.
        real::close(copied);
        set(Errno::BADF);
        return -1;
    }
    if copied <= 2 {
        crate::stdio::note_standard(copied);
    }
    copied
}

/// Does something to a range of the kernel's descriptors, but not to our own.
unsafe fn close_around(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let number = |fd: c_uint| c_int::try_from(fd).unwrap_or(c_int::MAX);
    let mut from = first;
    for fd in own::within(number(first), number(last)) {
        let fd = fd as c_uint;
        if fd > from && real::close_range(from, fd - 1, flags) != 0 {
            return -1;
        }
        from = fd + 1;
    }
    if from > last { 0 } else { real::close_range(from, last, flags) }
}

unsafe fn copy_to(from: c_int, to: c_int, act: impl FnOnce() -> c_int) -> c_int {
    if from == to {
        return act();
    }
    if own::is_out_of_reach(to) {
        // As where the limit ends. Programs try again what is busy, some of them for ever.
        set(Errno::BADF);
        return -1;
    }
    if table::is_ours(from) || table::is_ours(to) {
        crate::stdio::flush_standard(to);
    }
    let (held, before) = (table::get(from), table::take(to));
    let copied = act();
    if copied < 0 {
        crate::errno::pass();
        // What it was it still is.
        if let Some(before) = before {
            table::put_back(to, before);
        }
        return copied;
    }
    drop(before);
    note_copy(held, copied)
}

/// As the kernel of x86-64 shows it, of all files; `libc` has 0 for it.
const O_LARGEFILE: c_int = 0o100_000;
/// Flags that `F_SETFL` changes.
const CHANGED: c_int = O_APPEND | O_DIRECT | O_NOATIME | O_NONBLOCK;
/// Whether two descriptors are of one open file.
const F_DUPFD_QUERY: c_int = 1027;
/// Of `F_NOTIFY`: more than once.
const DN_MULTISHOT: u32 = 1 << 31;

unsafe fn fcntl_any(fd: c_int, cmd: c_int, arg: usize) -> c_int {
    if !table::is_ours(fd) {
        if own::is_out_of_reach(fd) {
            if cmd == libc::F_SETFD {
                // What it is at `exec` is our business; who has found it in a list takes no refusal.
                return 0;
            }
            set(Errno::BADF);
            return -1;
        }
        let result = real::fcntl(fd, cmd, arg);
        // It may have been ours until another thread began to close it.
        return if matches!(cmd, F_DUPFD | F_DUPFD_CLOEXEC) { note_copy(None, result) } else { result };
    }
    match cmd {
        F_DUPFD | F_DUPFD_CLOEXEC => {
            let held = table::get(fd);
            return note_copy(held, real::fcntl(fd, cmd, arg));
        }
        libc::F_GETFD | libc::F_SETFD | F_DUPFD_QUERY => return real::fcntl(fd, cmd, arg),
        _ => {}
    }
    let Some(held) = table::get(fd) else { return real::fcntl(fd, cmd, arg) };
    number(match cmd {
        F_GETFL if held.flags() & O_PATH != 0 => Ok(held.flags()),
        F_GETFL => Ok(held.flags() | O_LARGEFILE),
        _ if held.flags() & O_PATH != 0 => Err(Errno::BADF),
        F_SETFL => {
            let flags = held.flags() & !CHANGED | arg as c_int & CHANGED;
            held.slot.flags.store((flags & !O_CLOEXEC) as u32, Ordering::Relaxed);
            Ok(0)
        }
        libc::F_GETLK
        | libc::F_SETLK
        | libc::F_SETLKW
        | libc::F_OFD_GETLK
        | libc::F_OFD_SETLK
        | libc::F_OFD_SETLKW => return crate::locks::fcntl(held, fd, cmd, arg as *mut libc::flock),
        F_GETOWN | F_SETOWN | F_SETSIG | F_GETSIG | F_SETOWN_EX..=F_GETOWNER_UIDS => {
            crate::owner::fcntl(&held.owner, cmd, arg)
        }
        libc::F_GETLEASE => Ok(libc::F_UNLCK),
        // Nothing is to be told any more: `DN_MULTISHOT` alone names no event.
        libc::F_NOTIFY if arg as u32 & !DN_MULTISHOT == 0 => Ok(0),
        libc::F_NOTIFY if !held.is_directory() => Err(Errno::NOTDIR),
        libc::F_SETLEASE | libc::F_NOTIFY => Err(Errno::AGAIN),
        libc::F_GETPIPE_SZ | libc::F_SETPIPE_SZ => Err(Errno::BADF),
        libc::F_GET_SEALS | libc::F_ADD_SEALS => Err(Errno::INVAL),
        _ => write_hint(&held, cmd, arg as *mut u64),
    })
}

/// `F_GET_RW_HINT` and `F_SET_RW_HINT`: how long data are expected to live.
unsafe fn write_hint(held: &table::Held, cmd: c_int, hint: *mut u64) -> Result<c_int> {
    const F_GET_RW_HINT: c_int = 1035;
    const F_SET_RW_HINT: c_int = 1036;
    const NAME: &[u8] = b"user.unvme.write_hint";
    const WORDS: [&[u8]; 6] = [b"not-set", b"none", b"short", b"medium", b"long", b"extreme"];
    let at = held.at();
    if hint.is_null() {
        return Err(Errno::INVAL);
    }
    match cmd {
        F_GET_RW_HINT => memory::check_writable(hint.cast(), size_of::<u64>())?,
        F_SET_RW_HINT => memory::check_readable(hint.cast(), size_of::<u64>())?,
        _ => return Err(Errno::INVAL),
    }
    match cmd {
        F_GET_RW_HINT => {
            let found = match held.call(&Request::GetXattr { at, name: NAME }) {
                Ok(Reply::Bytes(word)) => WORDS.iter().position(|known| *known == word).unwrap_or(0) as u64,
                _ => 0,
            };
            hint.write_unaligned(found);
            Ok(0)
        }
        F_SET_RW_HINT if hint.read_unaligned() <= 5 => {
            let value = WORDS[hint.read_unaligned() as usize];
            held.call(&Request::SetXattr { at, name: NAME, value, flags: 0 }).map(|_| 0)
        }
        _ => Err(Errno::INVAL),
    }
}
