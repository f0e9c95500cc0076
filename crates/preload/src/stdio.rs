//! `FILE` over a descriptor of ours, and files with names that are made up.
//!
//! The C library reads and writes its streams by calls of its own, which nobody can take the place of. So a
//! stream of ours is a custom one, with functions that do. So are the standard streams when their
//! descriptors are ours.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use libc::{
    AT_FDCWD, FILE, O_ACCMODE, O_APPEND, O_CLOEXEC, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY,
    off64_t, size_t, ssize_t,
};
use rustix::io::Errno;
use unvme::lock::lock;

use crate::errno::{set, text};
use crate::place::{self, Place};
use crate::{gate, open, real, state, table};

#[repr(C)]
struct Functions {
    read: unsafe extern "C-unwind" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C-unwind" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C-unwind" fn(*mut c_void, *mut off64_t, c_int) -> c_int,
    close: unsafe extern "C-unwind" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
    fn __fpurge(file: *mut FILE);
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

/// What a stream of ours is about.
struct Cookie {
    fd: AtomicI32,
    /// Whether it is of wide characters, as `fwide` says it: 0 as long as nobody has said.
    orientation: AtomicI32,
}

/// Streams of ours, and where their cookies are.
static FILES: Mutex<Option<HashMap<usize, usize>>> = Mutex::new(None);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Where a stream of ours notes whether it is of wide characters, as long as it is open; `None` for others.
pub(crate) fn orientation(file: *mut FILE) -> Option<*const AtomicI32> {
    /// Where a `FILE` says what is there for wide characters; of a custom stream that is an address that
    /// there is not, "to cause a predictable crash".
    const WIDE_DATA: usize = 160;
    // SAFETY: it is a stream.
    let wide_data = unsafe { file.cast::<u8>().add(WIDE_DATA).cast::<usize>().read() };
    if COUNT.load(Ordering::Relaxed) == 0 || wide_data != usize::MAX {
        return None;
    }
    let cookie = gate::leaf(&FILES).as_ref()?.get(&(file as usize)).copied()? as *const Cookie;
    // SAFETY: it is of a stream that is open.
    Some(unsafe { &raw const (*cookie).orientation })
}

/// Nobody else changes this as long as somebody has it: see `process`.
pub(crate) fn still() -> Box<dyn std::any::Any> {
    Box::new(lock(&FILES))
}

/// Ours for the standard descriptors, once they were needed.
static CUSTOM: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 3];

/// The standard streams as the C library made them, where ours are in their place.
static ORIGINAL: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 3];

/// # Safety
/// It is one.
unsafe fn descriptor(cookie: *mut c_void) -> c_int {
    (*cookie.cast::<Cookie>()).fd.load(Ordering::Acquire)
}

unsafe extern "C-unwind" fn cookie_read(cookie: *mut c_void, buf: *mut c_char, count: size_t) -> ssize_t {
    crate::data::read(descriptor(cookie), buf.cast(), count)
}

unsafe extern "C-unwind" fn cookie_write(cookie: *mut c_void, buf: *const c_char, count: size_t) -> ssize_t {
    write_all(descriptor(cookie), buf, count)
}

/// How much was written: less when it has failed.
unsafe fn write_all(fd: c_int, buf: *const c_char, count: size_t) -> ssize_t {
    let mut done = 0;
    while done < count {
        let written = crate::data::write(fd, buf.add(done).cast(), count - done);
        if written <= 0 {
            break;
        }
        done += written as usize;
    }
    done as ssize_t
}

unsafe extern "C-unwind" fn cookie_seek(cookie: *mut c_void, at: *mut off64_t, whence: c_int) -> c_int {
    let found = crate::data::lseek(descriptor(cookie), *at, whence);
    if found < 0 {
        return -1;
    }
    *at = found;
    0
}

unsafe extern "C-unwind" fn cookie_close(cookie: *mut c_void) -> c_int {
    let fd = descriptor(cookie);
    forget(cookie as usize);
    drop(Box::from_raw(cookie.cast::<Cookie>()));
    open::close(fd)
}

/// The stream with this cookie is closed.
fn forget(cookie: usize) {
    if let Some(files) = gate::leaf(&FILES).as_mut() {
        let before = files.len();
        files.retain(|&file, of| {
            if *of == cookie {
                for custom in &CUSTOM {
                    let (file, gone) = (file as *mut FILE, std::ptr::null_mut());
                    let _ = custom.compare_exchange(file, gone, Ordering::AcqRel, Ordering::Relaxed);
                }
            }
            *of != cookie
        });
        COUNT.fetch_sub(before - files.len(), Ordering::Relaxed);
    }
}

unsafe fn stream(fd: c_int, mode: &CStr) -> *mut FILE {
    let functions =
        Functions { read: cookie_read, write: cookie_write, seek: cookie_seek, close: cookie_close };
    let cookie = Box::into_raw(Box::new(Cookie { fd: AtomicI32::new(fd), orientation: AtomicI32::new(0) }));
    let made = fopencookie(cookie.cast(), mode.as_ptr(), functions);
    if made.is_null() {
        drop(Box::from_raw(cookie));
    } else {
        gate::leaf(&FILES).get_or_insert_with(HashMap::new).insert(made as usize, cookie as usize);
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
    made
}

/// What a mode of `fopen` means: flags of `open`, and the mode for a custom stream.
fn parse(mode: &[u8]) -> Option<(c_int, &'static CStr)> {
    let letters = mode.split(|&letter| letter == b',').next()?;
    let both = letters.contains(&b'+');
    let (flags, shown) = match (letters.first()?, both) {
        (b'r', false) => (O_RDONLY, c"r"),
        (b'r', true) => (O_RDWR, c"r+"),
        (b'w', false) => (O_WRONLY | O_CREAT | O_TRUNC, c"w"),
        (b'w', true) => (O_RDWR | O_CREAT | O_TRUNC, c"w+"),
        (b'a', false) => (O_WRONLY | O_CREAT | O_APPEND, c"a"),
        (b'a', true) => (O_RDWR | O_CREAT | O_APPEND, c"a+"),
        _ => return None,
    };
    let mut flags = flags;
    if letters.contains(&b'x') {
        flags |= O_EXCL;
    }
    if letters.contains(&b'e') {
        flags |= O_CLOEXEC;
    }
    Some((flags, shown))
}

unsafe fn is_ours(path: *const c_char) -> bool {
    state::is_on()
        && !gate::is_inside()
        && match place::resolve(AT_FDCWD, path) {
            Ok(Place::Kernel) => {
                text(path).is_ok_and(|path| crate::links::through_links(AT_FDCWD, path).is_some())
            }
            Ok(_) => true,
            Err(_) => false,
        }
}

unsafe fn fopen_any(path: *const c_char, mode: *const c_char) -> *mut FILE {
    if !is_ours(path) && !crate::program::is_mappings(path) {
        return real::fopen(path, mode);
    }
    let Some((flags, shown)) = text(mode).ok().and_then(parse) else {
        set(Errno::INVAL);
        return std::ptr::null_mut();
    };
    let fd = open::open(path, flags, 0o666);
    if fd < 0 {
        return std::ptr::null_mut();
    }
    if !table::is_ours(fd) {
        return real::fdopen(fd, mode);
    }
    if flags & O_APPEND != 0 && flags & O_ACCMODE == O_WRONLY {
        // The stream says where it is before it writes.
        crate::data::lseek(fd, 0, libc::SEEK_END);
    }
    let made = stream(fd, shown);
    if made.is_null() {
        open::close(fd);
    }
    made
}

unsafe fn fdopen_any(fd: c_int, mode: *const c_char) -> *mut FILE {
    let Some(held) = table::get(fd) else { return real::fdopen(fd, mode) };
    let parsed = text(mode).ok().and_then(parse);
    let have = held.flags() & O_ACCMODE;
    let fits = |flags: c_int| matches!(have, O_RDWR | O_ACCMODE) || flags & O_ACCMODE == have;
    let Some((flags, shown)) = parsed.filter(|(flags, _)| fits(*flags)) else {
        set(Errno::INVAL);
        return std::ptr::null_mut();
    };
    if flags & O_APPEND != 0 && !held.appends() {
        held.slot.flags.fetch_or(O_APPEND as u32, Ordering::Relaxed);
        if flags & O_ACCMODE == O_WRONLY {
            // The stream says where it is before it writes.
            let _ = crate::data::seek(&held, 0, libc::SEEK_END);
        }
    }
    if flags & O_CLOEXEC != 0 {
        real::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC as usize);
    }
    drop(held);
    stream(fd, shown)
}

unsafe fn freopen_any(path: *const c_char, mode: *const c_char, old: *mut FILE) -> *mut FILE {
    let is_of_ours = fileno_of(old).is_some();
    if !is_of_ours && (path.is_null() || !is_ours(path)) {
        return real::freopen(path, mode, old);
    }
    let before = real_fileno(old);
    if path.is_null() {
        return match cookie_of(old) {
            Some(cookie) => reopen(path, mode, old, cookie),
            None => {
                libc::fflush(old);
                old
            }
        };
    }
    libc::fflush(old);
    if (0..=2).contains(&before) {
        // The standard streams keep their numbers.
        let new = fopen_any(path, mode);
        if new.is_null() {
            return new;
        }
        open::dup2(fileno(new), before);
        real::fclose(new);
        return standard(before).read();
    }
    match cookie_of(old) {
        Some(cookie) => reopen(path, mode, old, cookie),
        None => {
            // It has to be the same stream, and the C library's cannot become one of ours.
            set(Errno::OPNOTSUPP);
            std::ptr::null_mut()
        }
    }
}

/// Opens a stream's own file once more, under the number that it has.
unsafe fn open_itself(cookie: *mut Cookie, flags: c_int) -> c_int {
    let fd = (*cookie).fd.load(Ordering::Acquire);
    let path = std::ffi::CString::new(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    let new = open::open(path.as_ptr(), flags, 0);
    if new < 0 {
        let failed = crate::errno::get();
        open::close((*cookie).fd.swap(-1, Ordering::AcqRel));
        crate::errno::put(failed);
        return new;
    }
    open::dup3(new, fd, flags & O_CLOEXEC);
    open::close(new);
    fd
}

/// A stream of ours goes on with another file, whosever that is, or with its own one when there is no path.
unsafe fn reopen(
    path: *const c_char,
    mode: *const c_char,
    file: *mut FILE,
    cookie: *mut Cookie,
) -> *mut FILE {
    let Some((flags, _)) = text(mode).ok().and_then(parse) else {
        set(Errno::INVAL);
        return std::ptr::null_mut();
    };
    // It holds nothing more than what can be forgotten.
    libc::fseek(file, 0, libc::SEEK_CUR);
    let fd = if path.is_null() {
        open_itself(cookie, flags)
    } else {
        // The next one has its number, mostly.
        open::close((*cookie).fd.swap(-1, Ordering::AcqRel));
        open::open(path, flags, 0o666)
    };
    if fd < 0 {
        return std::ptr::null_mut();
    }
    if flags & O_APPEND != 0 && flags & O_ACCMODE == O_WRONLY {
        crate::data::lseek(fd, 0, libc::SEEK_END);
    }
    (*cookie).fd.store(fd, Ordering::Release);
    begin_again(file, flags);
    file
}

/// Has a stream be as one that was just opened. The C library has no function for it; where it keeps what
/// stays as long as its binary interface does.
unsafe fn begin_again(file: *mut FILE, flags: c_int) {
    const NO_READS: u32 = 0x4;
    const NO_WRITES: u32 = 0x8;
    const IS_APPENDING: u32 = 0x1000;
    /// Of its place in a file: the end was met, an error, pushed back, being written.
    const PASSING: u32 = 0x10 | 0x20 | 0x100 | 0x800;
    const BUFFER: usize = 7;
    const OFFSET: usize = 144;
    const ORIENTATION: usize = 192;
    let pointers = file.cast::<*mut c_char>();
    let buffer = pointers.add(BUFFER).read();
    (1..BUFFER).for_each(|at| pointers.add(at).write(buffer));
    let access = match flags & O_ACCMODE {
        O_RDONLY => NO_WRITES,
        O_WRONLY => NO_READS,
        _ => 0,
    };
    let appends = if flags & O_APPEND != 0 { IS_APPENDING } else { 0 };
    let word = file.cast::<u32>();
    word.write(word.read() & !(NO_READS | NO_WRITES | IS_APPENDING | PASSING) | access | appends);
    file.byte_add(OFFSET).cast::<i64>().write(-1);
    // As all custom streams: of bytes.
    file.byte_add(ORIENTATION).cast::<c_int>().write(-1);
}

fn cookie_of(file: *mut FILE) -> Option<*mut Cookie> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    gate::leaf(&FILES).as_ref()?.get(&(file as usize)).map(|&cookie| cookie as *mut Cookie)
}

fn fileno_of(file: *mut FILE) -> Option<c_int> {
    // SAFETY: who asks has the stream open, and its cookie is there as long.
    cookie_of(file).map(|cookie| unsafe { (*cookie).fd.load(Ordering::Acquire) })
}

unsafe fn real_fileno(file: *mut FILE) -> c_int {
    fileno_of(file).unwrap_or_else(|| real::fileno(file))
}

fn standard(fd: c_int) -> *mut *mut FILE {
    match fd {
        0 => &raw mut stdin,
        1 => &raw mut stdout,
        _ => &raw mut stderr,
    }
}

/// The stream that takes the place of a standard one: always the same.
unsafe fn custom(fd: c_int) -> *mut FILE {
    let known = CUSTOM[fd as usize].load(Ordering::Acquire);
    if !known.is_null() {
        __fpurge(known);
        libc::clearerr(known);
        return known;
    }
    let made = stream(fd, if fd == 0 { c"r" } else { c"w" });
    CUSTOM[fd as usize].store(made, Ordering::Release);
    made
}

/// How a program has one stream buffered, the other one is as well.
unsafe fn carry_buffering(from: *mut FILE, to: *mut FILE) {
    const UNBUFFERED: c_int = 0x2;
    const BY_LINES: c_int = 0x200;
    let kind = |file: *mut FILE| file.cast::<c_int>().read() & (UNBUFFERED | BY_LINES);
    if !from.is_null() && kind(from) != kind(to) {
        let mode = match kind(from) {
            0 => libc::_IOFBF,
            BY_LINES => libc::_IOLBF,
            _ => libc::_IONBF,
        };
        libc::setvbuf(to, std::ptr::null_mut(), mode, 0);
    }
}

/// `std::cout` and its like keep the stream of C's that they have found when libstdc++ has begun: those that
/// are as it has made them are led to another one.
unsafe fn lead_cpp(from: *mut FILE, to: *mut FILE) {
    type Buffer = unsafe extern "C" fn(*const c_void) -> *mut c_void;
    /// Behind the table of functions, six pointers and a locale.
    const FILE_AT: usize = 64;
    let symbol = |name: &CStr| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
    let narrow = [c"_ZSt3cin", c"_ZSt4cout", c"_ZSt4cerr", c"_ZSt4clog"];
    let wide = [c"_ZSt4wcin", c"_ZSt5wcout", c"_ZSt5wcerr", c"_ZSt5wclog"];
    for (table, buffer_of, streams) in [
        (
            c"_ZTVN9__gnu_cxx18stdio_sync_filebufIcSt11char_traitsIcEEE",
            c"_ZNKSt9basic_iosIcSt11char_traitsIcEE5rdbufEv",
            narrow,
        ),
        (
            c"_ZTVN9__gnu_cxx18stdio_sync_filebufIwSt11char_traitsIwEEE",
            c"_ZNKSt9basic_iosIwSt11char_traitsIwEE5rdbufEv",
            wide,
        ),
    ] {
        let (table, buffer_of) = (symbol(table), symbol(buffer_of));
        if table.is_null() || buffer_of.is_null() {
            continue;
        }
        let buffer_of: Buffer = std::mem::transmute(buffer_of);
        for name in streams {
            let stream = symbol(name);
            // Null before it has begun.
            if stream.is_null() || stream.cast::<*const isize>().read().is_null() {
                continue;
            }
            // The base that all streams share is where the table says, before its functions.
            let base = stream.cast::<*const isize>().read().sub(3).read();
            let buffer = buffer_of(stream.byte_offset(base));
            if buffer.is_null() || buffer.cast::<*mut c_void>().read() != table.byte_add(16) {
                continue;
            }
            let file = buffer.byte_add(FILE_AT).cast::<*mut FILE>();
            if file.read() == from {
                file.write(to);
            }
        }
    }
}

/// A standard descriptor leads elsewhere from now on.
pub(crate) fn note_standard(fd: c_int) {
    if !state::is_on() {
        return;
    }
    let (variable, original) = (standard(fd), &ORIGINAL[fd as usize]);
    // SAFETY: the C library's variables, which programs may set; the streams stay as long as the process.
    unsafe {
        let (is_ours, before) = (table::is_ours(fd), original.load(Ordering::Relaxed));
        let now = variable.read();
        if is_ours && before.is_null() {
            let made = custom(fd);
            if !made.is_null() {
                carry_buffering(now, made);
                original.store(now, Ordering::Relaxed);
                variable.write(made);
                lead_cpp(now, made);
            }
        } else if !is_ours && !before.is_null() {
            libc::fflush(now);
            carry_buffering(now, before);
            variable.write(before);
            original.store(std::ptr::null_mut(), Ordering::Relaxed);
            lead_cpp(now, before);
        }
    }
}

/// Has what the standard streams hold go where they lead before they lead elsewhere.
pub(crate) fn flush_standard(fd: c_int) {
    if state::is_on() && (1..=2).contains(&fd) {
        // SAFETY: the C library's variable.
        unsafe { libc::fflush(standard(fd).read()) };
    }
}

/// Before `main`: the standard descriptors may be ours from the beginning.
pub(crate) fn start() {
    (0..=2).for_each(note_standard);
}

mod behind {
    use super::*;

    functions! {
        fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    }
}

unsafe extern "C" {
    fn vasprintf(out: *mut *mut c_char, format: *const c_char, arguments: *mut c_void) -> c_int;
}

unsafe extern "C-unwind" fn print(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
    if !table::is_ours(fd) {
        return behind::vdprintf(fd, format, arguments);
    }
    let mut text = std::ptr::null_mut();
    let length = vasprintf(&mut text, format, arguments);
    if length < 0 {
        return -1;
    }
    let written = write_all(fd, text, length as usize);
    libc::free(text.cast());
    if written == length as ssize_t { length } else { -1 }
}

variadic! {
    dprintf: "16", "mov rsi, rsi", "rdx", print;
    __dprintf_chk: "24", "mov rsi, rdx", "rdx", print;
}

/// A file or a directory whose name ends in letters that nobody has used yet.
unsafe fn make_up(template: *mut c_char, suffix: c_int, make: impl Fn(*const c_char) -> c_int) -> c_int {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    const TRIES: usize = 10_000;
    let Ok(name) = text(template) else {
        set(Errno::INVAL);
        return -1;
    };
    let end = name.len() as isize - suffix as isize;
    if suffix < 0 || end < 6 || &name[end as usize - 6..end as usize] != b"XXXXXX" {
        set(Errno::INVAL);
        return -1;
    }
    let at = template.add(end as usize - 6);
    for _ in 0..TRIES {
        let mut random = [0; 6];
        if rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).is_err() {
            return -1;
        }
        for (place, byte) in random.iter().enumerate() {
            *at.add(place) = LETTERS[usize::from(*byte) % LETTERS.len()] as c_char;
        }
        let made = make(template);
        if made >= 0 || crate::errno::get() != libc::EEXIST {
            return made;
        }
    }
    set(Errno::EXIST);
    -1
}

unsafe fn mkstemp_any(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    let flags = flags & !O_ACCMODE | O_RDWR | O_CREAT | O_EXCL;
    make_up(template, suffix, |path| open::open(path, flags, 0o600))
}

exported! {
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
        fopen_any(path, mode)
    }

    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
        fopen_any(path, mode)
    }

    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        fdopen_any(fd, mode)
    }

    fn freopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE {
        freopen_any(path, mode, file)
    }

    fn freopen64(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE {
        freopen_any(path, mode, file)
    }

    fn fileno(file: *mut FILE) -> c_int {
        real_fileno(file)
    }

    fn fileno_unlocked(file: *mut FILE) -> c_int {
        real_fileno(file)
    }

    fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        print(fd, format, arguments)
    }

    fn __vdprintf_chk(fd: c_int, _flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        print(fd, format, arguments)
    }

    fn mkstemp(template: *mut c_char) -> c_int {
        mkstemp_any(template, 0, 0)
    }

    fn mkstemp64(template: *mut c_char) -> c_int {
        mkstemp_any(template, 0, 0)
    }

    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int {
        mkstemp_any(template, 0, flags)
    }

    fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int {
        mkstemp_any(template, 0, flags)
    }

    fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int {
        mkstemp_any(template, suffix, 0)
    }

    fn mkstemps64(template: *mut c_char, suffix: c_int) -> c_int {
        mkstemp_any(template, suffix, 0)
    }

    fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
        mkstemp_any(template, suffix, flags)
    }

    fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
        mkstemp_any(template, suffix, flags)
    }

    fn mkdtemp(template: *mut c_char) -> *mut c_char {
        let made = make_up(template, 0, |path| crate::names::mkdir(path, 0o700));
        if made < 0 { std::ptr::null_mut() } else { template }
    }
}
