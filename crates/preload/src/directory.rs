//! Directories: streams of their entries, lists and patterns.

use std::collections::{HashSet, VecDeque};
use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{AT_FDCWD, DIR, O_CLOEXEC, O_DIRECTORY, O_NONBLOCK, O_RDONLY, dirent, off_t, size_t, ssize_t};
use rustix::io::Errno;
use unvme::lock::lock;
use unvme_fs::calls::{Listed, Reply, Request};

use crate::errno::{self, Result, bytes, pointer};
use crate::table::{self, Held};
use crate::{real, state};

/// Bytes of entries that are asked for at a time.
const SOME: usize = 32 << 10;

/// Entries that were read of an open directory and not given out.
#[derive(Default)]
pub(crate) struct Listing(VecDeque<Listed>);

/// Somebody has moved the offset of a directory.
pub(crate) fn seek_descriptor(held: &Held) {
    lock(&held.listing).0.clear();
}

/// More entries from the offset of an open directory on.
fn fetch(held: &Held, cookie: u64) -> Result<Vec<Listed>> {
    held.check_readable()?;
    if !held.is_directory() {
        return Err(Errno::NOTDIR);
    }
    match held.call(&Request::List { open: held.open(), cookie, bytes: SOME })? {
        Reply::Entries(entries) => Ok(entries),
        _ => Err(Errno::IO),
    }
}

/// A stream of a directory of ours.
struct Stream {
    fd: c_int,
    entries: VecDeque<Listed>,
    /// Where the next entry is looked for.
    cookie: u64,
    is_over: bool,
    current: dirent,
}

static STREAMS: Mutex<Option<HashSet<usize>>> = Mutex::new(None);

/// Nobody else changes this as long as somebody has it: see `process`.
pub(crate) fn still() -> Box<dyn std::any::Any> {
    Box::new(lock(&STREAMS))
}
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// One of ours, if it is.
///
/// # Safety
/// The stream is not closed meanwhile.
unsafe fn ours<'a>(dir: *mut DIR) -> Option<&'a Mutex<Stream>> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let is_ours =
        crate::gate::leaf(&STREAMS).as_ref().is_some_and(|streams| streams.contains(&(dir as usize)));
    is_ours.then(|| &*dir.cast::<Mutex<Stream>>())
}

fn stream_of(fd: c_int) -> *mut DIR {
    // SAFETY: all bytes are values.
    let current = unsafe { std::mem::zeroed() };
    let stream = Stream { fd, entries: VecDeque::new(), cookie: 0, is_over: false, current };
    let stream = Box::into_raw(Box::new(Mutex::new(stream)));
    crate::gate::leaf(&STREAMS).get_or_insert_with(HashSet::new).insert(stream as usize);
    COUNT.fetch_add(1, Ordering::Relaxed);
    stream.cast()
}

/// Puts an entry where C expects it. Returns the bytes that it takes.
unsafe fn put_entry(entry: &Listed, out: *mut dirent) -> usize {
    let (next, ino, kind, name) = entry;
    let head = std::mem::offset_of!(dirent, d_name);
    let length = (head + name.len() + 1).next_multiple_of(8);
    let out_bytes: *mut u8 = out.cast();
    out_bytes.write_bytes(0, length);
    (&raw mut (*out).d_ino).write_unaligned(*ino);
    (&raw mut (*out).d_off).write_unaligned(*next as off_t);
    (&raw mut (*out).d_reclen).write_unaligned(length as u16);
    (&raw mut (*out).d_type).write_unaligned(*kind);
    std::ptr::copy_nonoverlapping(name.as_ptr(), out_bytes.add(head), name.len());
    length
}

fn next(stream: &mut Stream) -> Result<Option<Listed>> {
    if stream.entries.is_empty() && !stream.is_over {
        let held = table::get(stream.fd).ok_or(Errno::BADF)?;
        stream.entries = fetch(&held, stream.cookie)?.into();
        stream.is_over = stream.entries.is_empty();
    }
    let entry = stream.entries.pop_front();
    if let Some((cookie, ..)) = &entry {
        stream.cookie = *cookie;
        if let Some(held) = table::get(stream.fd) {
            held.slot.offset.store(*cookie, Ordering::Relaxed);
        }
    }
    Ok(entry)
}

unsafe fn read_stream(dir: *mut DIR) -> *mut dirent {
    // At the end programs know by it that nothing is wrong.
    let before = errno::get();
    let Some(stream) = ours(dir) else { return real::readdir(dir) };
    let mut stream = lock(stream);
    match next(&mut stream) {
        Ok(Some(entry)) => {
            put_entry(&entry, &raw mut stream.current);
            errno::put(before);
            &raw mut stream.current
        }
        Ok(None) => {
            errno::put(before);
            std::ptr::null_mut()
        }
        Err(errno) => pointer(Err(errno)),
    }
}

fn rewind(stream: &mut Stream, cookie: u64) {
    stream.entries.clear();
    (stream.cookie, stream.is_over) = (cookie, false);
    if let Some(held) = table::get(stream.fd) {
        held.slot.offset.store(cookie, Ordering::Relaxed);
    }
}

unsafe fn dents(fd: c_int, buf: *mut c_void, room: size_t) -> ssize_t {
    let Some(held) = table::get(fd) else { return real::getdents64(fd, buf, room) };
    let fill = || -> Result<usize> {
        let mut listing = lock(&held.listing);
        let mut used = 0;
        loop {
            if listing.0.is_empty() {
                listing.0 = fetch(&held, held.slot.offset.load(Ordering::Relaxed))?.into();
            }
            let Some(entry) = listing.0.front() else { return Ok(used) };
            let head = std::mem::offset_of!(dirent, d_name);
            if (head + entry.3.len() + 1).next_multiple_of(8) > room - used {
                return if used == 0 { Err(Errno::INVAL) } else { Ok(used) };
            }
            crate::memory::check_writable(buf.byte_add(used), head + entry.3.len() + 1)?;
            used += put_entry(entry, buf.byte_add(used).cast());
            held.slot.offset.store(entry.0, Ordering::Relaxed);
            listing.0.pop_front();
        }
    };
    bytes(fill())
}

type Filter = Option<unsafe extern "C-unwind" fn(*const dirent) -> c_int>;
type Compare = Option<unsafe extern "C-unwind" fn(*mut *const dirent, *mut *const dirent) -> c_int>;

/// All entries that a filter lets through, each in memory of its own.
unsafe fn scan(
    dir: c_int,
    path: *const c_char,
    list: *mut *mut *mut dirent,
    filter: Filter,
    compare: Compare,
) -> c_int {
    let fd = crate::open::openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK, 0);
    if fd < 0 {
        return -1;
    }
    if !table::is_ours(fd) {
        real::close(fd);
        return behind::scandirat(dir, path, list, filter, compare);
    }
    let stream = fdopendir(fd);
    let mut found: Vec<*mut dirent> = Vec::new();
    loop {
        errno::put(0);
        let entry = readdir(stream);
        if entry.is_null() {
            break;
        }
        if filter.is_none_or(|wanted| wanted(entry) != 0) {
            let length = usize::from((*entry).d_reclen);
            let copy = libc::malloc(length).cast::<dirent>();
            if copy.is_null() {
                break;
            }
            std::ptr::copy_nonoverlapping(entry.cast::<u8>(), copy.cast::<u8>(), length);
            found.push(copy);
        }
    }
    let failed = errno::get();
    closedir(stream);
    let table = libc::malloc((found.len().max(1)) * size_of::<*mut dirent>()).cast::<*mut dirent>();
    if failed != 0 || table.is_null() {
        found.iter().for_each(|&entry| libc::free(entry.cast()));
        libc::free(table.cast());
        errno::put(if failed != 0 { failed } else { libc::ENOMEM });
        return -1;
    }
    std::ptr::copy_nonoverlapping(found.as_ptr(), table, found.len());
    if let Some(compare) = compare {
        // Whatever order the program has in mind, the C library makes something of it.
        behind::qsort(table.cast(), found.len(), size_of::<*mut dirent>(), compare);
    }
    *list = table;
    found.len() as c_int
}

/// The functions by which `glob` looks at directories.
unsafe extern "C-unwind" fn glob_open(path: *const c_char) -> *mut c_void {
    opendir(path).cast()
}

unsafe extern "C-unwind" fn glob_read(dir: *mut c_void) -> *mut dirent {
    readdir(dir.cast())
}

unsafe extern "C-unwind" fn glob_close(dir: *mut c_void) {
    closedir(dir.cast());
}

/// `glob_t` as the C library has it.
#[repr(C)]
pub(crate) struct Glob {
    count: size_t,
    paths: *mut *mut c_char,
    offset: size_t,
    flags: c_int,
    close: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
    read: Option<unsafe extern "C-unwind" fn(*mut c_void) -> *mut dirent>,
    open: Option<unsafe extern "C-unwind" fn(*const c_char) -> *mut c_void>,
    lstat: Option<unsafe extern "C-unwind" fn(*const c_char, *mut libc::stat) -> c_int>,
    stat: Option<unsafe extern "C-unwind" fn(*const c_char, *mut libc::stat) -> c_int>,
}

type GlobError = Option<unsafe extern "C-unwind" fn(*const c_char, c_int) -> c_int>;

mod behind {
    use super::*;

    functions! {
        fn glob(pattern: *const c_char, flags: c_int, error: GlobError, out: *mut Glob) -> c_int;
        fn scandirat(
            dir: c_int, path: *const c_char, list: *mut *mut *mut dirent, filter: Filter, compare: Compare,
        ) -> c_int;
        fn qsort(
            base: *mut c_void, count: size_t, bytes: size_t,
            compare: unsafe extern "C-unwind" fn(*mut *const dirent, *mut *const dirent) -> c_int,
        );
    }
}

unsafe fn glob_any(pattern: *const c_char, flags: c_int, error: GlobError, out: *mut Glob) -> c_int {
    const GLOB_ALTDIRFUNC: c_int = 1 << 9;
    if !state::is_on() || flags & GLOB_ALTDIRFUNC != 0 {
        return behind::glob(pattern, flags, error, out);
    }
    (*out).close = Some(glob_close);
    (*out).read = Some(glob_read);
    (*out).open = Some(glob_open);
    (*out).lstat = Some(crate::attributes::lstat);
    (*out).stat = Some(crate::attributes::stat);
    let result = behind::glob(pattern, flags | GLOB_ALTDIRFUNC, error, out);
    (*out).flags &= !GLOB_ALTDIRFUNC;
    result
}

exported! {
    fn opendir(path: *const c_char) -> *mut DIR {
        if !state::is_on() || crate::gate::is_inside() {
            return real::opendir(path);
        }
        let fd = crate::open::openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK, 0);
        if fd < 0 {
            return std::ptr::null_mut();
        }
        fdopendir(fd)
    }

    fn fdopendir(fd: c_int) -> *mut DIR {
        let Some(held) = table::get(fd) else { return real::fdopendir(fd) };
        if !held.is_directory() {
            return pointer(Err(Errno::NOTDIR));
        }
        let at = held.slot.offset.load(Ordering::Relaxed);
        drop(held);
        let stream = stream_of(fd);
        if let Some(found) = ours(stream) {
            lock(found).cookie = at;
        }
        stream
    }

    fn readdir(dir: *mut DIR) -> *mut dirent {
        read_stream(dir)
    }

    fn readdir64(dir: *mut DIR) -> *mut dirent {
        read_stream(dir)
    }

    fn readdir_r(dir: *mut DIR, entry: *mut dirent, out: *mut *mut dirent) -> c_int {
        let Some(stream) = ours(dir) else { return real::readdir_r(dir, entry, out) };
        match next(&mut lock(stream)) {
            Ok(found) => {
                *out = found.map_or(std::ptr::null_mut(), |found| {
                    put_entry(&found, entry);
                    entry
                });
                0
            }
            Err(errno) => errno.raw_os_error(),
        }
    }

    fn readdir64_r(dir: *mut DIR, entry: *mut dirent, out: *mut *mut dirent) -> c_int {
        readdir_r(dir, entry, out)
    }

    fn closedir(dir: *mut DIR) -> c_int {
        if ours(dir).is_none() {
            return real::closedir(dir);
        }
        if let Some(streams) = crate::gate::leaf(&STREAMS).as_mut() {
            streams.remove(&(dir as usize));
        }
        COUNT.fetch_sub(1, Ordering::Relaxed);
        let stream = Box::from_raw(dir.cast::<Mutex<Stream>>());
        let fd = lock(&stream).fd;
        crate::open::close(fd)
    }

    fn rewinddir(dir: *mut DIR) {
        match ours(dir) {
            Some(stream) => rewind(&mut lock(stream), 0),
            None => real::rewinddir(dir),
        }
    }

    fn seekdir(dir: *mut DIR, at: c_long) {
        match ours(dir) {
            Some(stream) => rewind(&mut lock(stream), at as u64),
            None => real::seekdir(dir, at),
        }
    }

    fn telldir(dir: *mut DIR) -> c_long {
        match ours(dir) {
            Some(stream) => lock(stream).cookie as c_long,
            None => real::telldir(dir),
        }
    }

    fn dirfd(dir: *mut DIR) -> c_int {
        match ours(dir) {
            Some(stream) => lock(stream).fd,
            None => real::dirfd(dir),
        }
    }

    fn getdents64(fd: c_int, buf: *mut c_void, room: size_t) -> ssize_t {
        dents(fd, buf, room)
    }

    fn scandir(path: *const c_char, list: *mut *mut *mut dirent, filter: Filter, compare: Compare) -> c_int {
        scan(AT_FDCWD, path, list, filter, compare)
    }

    fn scandir64(path: *const c_char, list: *mut *mut *mut dirent, filter: Filter, compare: Compare) -> c_int {
        scan(AT_FDCWD, path, list, filter, compare)
    }

    fn scandirat(
        dir: c_int, path: *const c_char, list: *mut *mut *mut dirent, filter: Filter, compare: Compare,
    ) -> c_int {
        scan(dir, path, list, filter, compare)
    }

    fn scandirat64(
        dir: c_int, path: *const c_char, list: *mut *mut *mut dirent, filter: Filter, compare: Compare,
    ) -> c_int {
        scan(dir, path, list, filter, compare)
    }

    fn glob(pattern: *const c_char, flags: c_int, error: GlobError, out: *mut Glob) -> c_int {
        glob_any(pattern, flags, error, out)
    }

    fn glob64(pattern: *const c_char, flags: c_int, error: GlobError, out: *mut Glob) -> c_int {
        glob_any(pattern, flags, error, out)
    }
}
