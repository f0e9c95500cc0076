//! Programs and libraries that are in a folder: the kernel is given what it can find.
//!
//! A program is copied into memory. Of a script the interpreter is run, with the script's own path, as the
//! kernel would.

use std::ffi::{CString, c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::{Mutex, OnceLock};

use libc::{O_CLOEXEC, O_NONBLOCK, O_RDONLY, S_IFMT, S_IFREG, X_OK};
use rustix::fs::MemfdFlags;
use rustix::io::{Errno, FdFlags};
use unvme::lock::lock;
use unvme_fs::{Dynamic, Time};

use crate::errno::{self, Result, text};
use crate::place::{self, Place};
use crate::{attributes, data, gate, links, names, open, reach, real, state, table};

/// The path of a program in a folder, for itself.
pub(crate) const OWN_PATH: &str = "UNVME_PRELOAD_PROGRAM";

/// Interpreters of interpreters, as many as the kernel takes.
const INTERPRETERS_MAX: usize = 5;

/// What the name of a copy begins with, as the kernel shows it; the path of the file is behind it.
const COPY: &[u8] = b"/memfd:unvme:";

/// What the kernel looks at of a script.
const HEAD: usize = 256;

static OWN: OnceLock<Vec<u8>> = OnceLock::new();

/// Before `main`.
pub(crate) fn start() {
    if let Some(path) = state::variable(OWN_PATH) {
        let _ = OWN.set(path);
    }
}

/// Where this program is, when it is in a folder.
pub(crate) fn own_path() -> Option<&'static [u8]> {
    OWN.get().map(Vec::as_slice)
}

/// What is run instead of what was asked for.
pub(crate) struct Program {
    pub path: CString,
    /// Where it is, when what is run is a copy of it.
    pub own_path: Option<Vec<u8>>,
    arguments: Option<Vec<*const c_char>>,
    texts: Vec<CString>,
    memory: Option<OwnedFd>,
}

impl Program {
    /// Whether it is a copy of what is no program: for the C library a script without a first line.
    fn is_text(&self) -> bool {
        let mut head = [0; 4];
        let memory = self.memory.as_ref();
        memory
            .is_some_and(|memory| rustix::io::pread(memory, &mut head, 0).is_ok_and(|_| head != *b"\x7fELF"))
    }

    /// Its arguments, if they are not those that were given.
    pub(crate) fn arguments(&self, given: *const *const c_char) -> *const *const c_char {
        self.arguments.as_ref().map_or(given, |arguments| arguments.as_ptr())
    }

    /// Goes on to the interpreter of a script.
    unsafe fn interpret(&mut self, given: *const *const c_char, (name, word): Interpreter) -> Result<()> {
        let before = self.arguments(given);
        let script = std::mem::replace(&mut self.path, CString::new(name).map_err(|_| Errno::NOEXEC)?);
        let mut arguments = Vec::new();
        let mut keep = |text: CString| {
            arguments.push(text.as_ptr());
            self.texts.push(text);
        };
        keep(self.path.clone());
        if let Some(word) = word {
            keep(CString::new(word).map_err(|_| Errno::NOEXEC)?);
        }
        keep(script);
        let mut at = before;
        if !at.is_null() && !(*at).is_null() {
            at = at.add(1);
            while !(*at).is_null() {
                arguments.push(*at);
                at = at.add(1);
            }
        }
        arguments.push(std::ptr::null());
        self.arguments = Some(arguments);
        reach::check(self.path.as_ptr(), self.arguments(given))
    }
}

/// A file that is open here, for a moment.
struct Open(c_int);

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: opened here.
        unsafe { open::close(self.0) };
    }
}

impl Open {
    unsafe fn new(path: *const c_char) -> Result<Self> {
        match open::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0) {
            fd if fd < 0 => Err(errno::last()),
            fd => Ok(Self(fd)),
        }
    }

    /// Where the file is, when it is the kernel's and a link in a folder has led to it: the kernel does not
    /// find the link.
    unsafe fn led_to(&self, path: &std::ffi::CStr) -> Option<CString> {
        match place::resolve_through_links(libc::AT_FDCWD, path.as_ptr(), true) {
            Ok(Place::Ours(..)) => {
                let path = links::path_of_kernel(self.0)?;
                Some(std::ffi::CStr::from_ptr(path.pointer()).to_owned())
            }
            _ => None,
        }
    }

    unsafe fn head(&self) -> Result<Vec<u8>> {
        let mut head = vec![0; HEAD];
        let read = data::pread(self.0, head.as_mut_ptr().cast(), HEAD, 0);
        head.truncate(usize::try_from(read).map_err(|_| errno::last())?);
        Ok(head)
    }

    /// Which file it is. `None` for one of the kernel's.
    unsafe fn version(&self) -> Option<Version> {
        let held = table::get(self.0)?;
        let found = attributes::of_open(&held).ok()?;
        Some((held.mount.number, found.ino, found.changed))
    }

    /// What it asks the loader for. `None` for what is no program, and no library.
    unsafe fn dynamic(&self) -> Option<Dynamic> {
        let read = Dynamic::read(&mut |buffer: &mut [u8], at: u64| {
            let at = i64::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
            let mut read = 0;
            while read < buffer.len() {
                let rest = &mut buffer[read..];
                let from = at.saturating_add(read as i64);
                match data::pread(self.0, rest.as_mut_ptr().cast(), rest.len(), from) {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    bytes => read += usize::try_from(bytes).map_err(|_| io::Error::last_os_error())?,
                }
            }
            Ok(())
        });
        read.ok().flatten()
    }

    /// The whole file, in memory that is named as the file is.
    unsafe fn copy(&self, path: *const c_char) -> Result<OwnedFd> {
        /// Where programs do not look for their own.
        const FIRST: c_int = 900;
        /// As the kernel has it, without the NUL.
        const NAME_BYTES_MAX: usize = 249;
        let path = names::real_path(path).ok().flatten().unwrap_or_default();
        let name = CString::new([&COPY[b"/memfd:".len()..], path.as_slice()].concat()).unwrap_or_default();
        let is_short = !path.is_empty() && name.as_bytes().len() <= NAME_BYTES_MAX;
        let name = if is_short { name.as_c_str() } else { c"unvme-program" };
        let memory = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?;
        let memory = rustix::io::fcntl_dupfd_cloexec(&memory, FIRST).unwrap_or(memory);
        let mut buffer = vec![0_u8; 1 << 18];
        loop {
            let read = data::read(self.0, buffer.as_mut_ptr().cast(), buffer.len());
            let mut left = &buffer[..usize::try_from(read).map_err(|_| errno::last())?];
            if left.is_empty() {
                return Ok(memory);
            }
            while !left.is_empty() {
                left = &left[rustix::io::write(&memory, left)?..];
            }
        }
    }
}

fn in_proc(memory: &OwnedFd) -> Result<CString> {
    CString::new(format!("/proc/self/fd/{}", memory.as_raw_fd())).map_err(|_| Errno::INVAL)
}

/// What is run for a program. `None` when it is the kernel's as a whole, or the kernel is to refuse it.
///
/// # Errors
/// EACCES, ENOEXEC, ELOOP; those of reading it.
///
/// # Safety
/// As for `execve`.
pub(crate) unsafe fn find(path: *const c_char, argv: *const *const c_char) -> Result<Option<Program>> {
    if !state::is_on() || gate::is_inside() {
        return Ok(None);
    }
    let path = CString::from(std::ffi::CStr::from_ptr(match text(path) {
        Ok(_) => path,
        Err(_) => return Ok(None),
    }));
    let mut program = Program { path, own_path: None, arguments: None, texts: Vec::new(), memory: None };
    let before = errno::get();
    let mut is_ours = false;
    for _ in 0..=INTERPRETERS_MAX {
        let Ok(file) = Open::new(program.path.as_ptr()) else {
            errno::put(before);
            return Ok(is_ours.then_some(program));
        };
        let here = table::get(file.0).map(|held| held.mode());
        if let Some(mode) = here {
            is_ours = true;
            let may_run = attributes::access(program.path.as_ptr(), X_OK) == 0;
            if mode & S_IFMT != S_IFREG || !may_run {
                return Err(Errno::ACCESS);
            }
        }
        let led_to = if here.is_none() { file.led_to(&program.path) } else { None };
        is_ours |= led_to.is_some();
        if let Some(path) = &led_to
            && real::access(path.as_ptr(), X_OK) != 0
        {
            return Err(Errno::ACCESS);
        }
        let head = match file.head() {
            Ok(head) => head,
            Err(errno) if here.is_some() => return Err(errno),
            // The kernel says what is wrong with it.
            Err(_) => {
                errno::put(before);
                return Ok(is_ours.then_some(program));
            }
        };
        match interpreter(&head) {
            Ok(Some(interpreter)) => program.interpret(argv, interpreter)?,
            Err(errno) if here.is_some() => return Err(errno),
            _ if here.is_some() => {
                let memory = file.copy(program.path.as_ptr())?;
                reach::check_as(
                    in_proc(&memory)?.as_bytes(),
                    program.path.as_bytes(),
                    program.arguments(argv),
                )?;
                program.own_path = names::real_path(program.path.as_ptr())?;
                program.path = in_proc(&memory)?;
                program.memory = Some(memory);
                errno::put(before);
                return Ok(Some(program));
            }
            _ => {
                if let Some(path) = led_to {
                    program.path = path;
                    reach::check(program.path.as_ptr(), program.arguments(argv))?;
                }
                errno::put(before);
                return Ok(is_ours.then_some(program));
            }
        }
    }
    if is_ours { Err(Errno::LOOP) } else { Ok(None) }
}

/// What a library asks the loader for. `None` for what is none.
///
/// # Safety
/// A C string.
pub(crate) unsafe fn dynamic_of_file(path: *const c_char) -> Option<Dynamic> {
    Open::new(path).ok()?.dynamic()
}

/// What the kernel runs for a path: a program, or the interpreter of a script. `None` for what is no program,
/// which is for the kernel to refuse.
///
/// # Safety
/// A C string.
pub(crate) unsafe fn run_for(path: *const c_char) -> Option<CString> {
    let mut path = std::ffi::CStr::from_ptr(path).to_owned();
    for _ in 0..=INTERPRETERS_MAX {
        let file = Open::new(path.as_ptr()).ok()?;
        match interpreter(&file.head().ok()?).ok()? {
            Some((name, _)) => path = CString::new(name).ok()?,
            None => return Some(path),
        }
    }
    None
}

/// Where a shell would find a program.
pub(crate) unsafe fn search(file: *const c_char) -> Option<CString> {
    let name = text(file).ok()?;
    if name.contains(&b'/') {
        return Some(std::ffi::CStr::from_ptr(file).to_owned());
    }
    let places = state::variable("PATH").unwrap_or_else(|| b"/bin:/usr/bin".to_vec());
    places.split(|&byte| byte == b':').find_map(|folder| {
        let folder = if folder.is_empty() { b"." } else { folder };
        let path = CString::new([folder, b"/", name].concat()).ok()?;
        let mut found: libc::stat = std::mem::zeroed();
        let is_file = attributes::stat(path.as_ptr(), &mut found) == 0 && found.st_mode & S_IFMT == S_IFREG;
        (is_file && attributes::access(path.as_ptr(), X_OK) == 0).then_some(path)
    })
}

/// What a program that a shell would find is run by: `None` when the kernel's way is to be gone.
///
/// # Errors
/// As of [`find`].
///
/// # Safety
/// As there.
pub(crate) unsafe fn find_in_path(
    file: *const c_char,
    argv: *const *const c_char,
) -> Result<Option<Program>> {
    let before = errno::get();
    let path = if state::is_on() && !gate::is_inside() { search(file) } else { None };
    errno::put(before);
    let Some(path) = path else { return Ok(None) };
    reach::check(path.as_ptr(), argv)?;
    match find(path.as_ptr(), argv) {
        // The C library has a shell run what is no program.
        Err(Errno::NOEXEC) => by_shell(path, argv).map(Some),
        Ok(Some(program)) if program.is_text() => by_shell(path, argv).map(Some),
        other => other,
    }
}

/// A shell that reads a file.
unsafe fn by_shell(path: CString, argv: *const *const c_char) -> Result<Program> {
    let mut program = Program { path, own_path: None, arguments: None, texts: Vec::new(), memory: None };
    program.interpret(argv, (b"/bin/sh".to_vec(), None))?;
    Ok(program)
}

/// The path of an interpreter, and the one word that it may be given.
type Interpreter = (Vec<u8>, Option<Vec<u8>>);

/// What the first line of a script says, as the kernel reads it (`fs/binfmt_script.c`).
fn interpreter(head: &[u8]) -> Result<Option<Interpreter>> {
    fn is_space(byte: &u8) -> bool {
        matches!(byte, b' ' | b'\t')
    }
    let Some(line) = head.strip_prefix(b"#!") else { return Ok(None) };
    let line = match line.iter().position(|&byte| byte == b'\n') {
        Some(end) => &line[..end],
        None if head.len() < HEAD => line,
        None => {
            let line = &line[..line.len() - 1];
            let name = line.iter().position(|byte| !is_space(byte)).ok_or(Errno::NOEXEC)?;
            // Without an end the path would be cut off.
            line[name..].iter().position(|byte| is_space(byte) || *byte == 0).ok_or(Errno::NOEXEC)?;
            line
        }
    };
    let end = line.iter().rposition(|byte| !is_space(byte)).ok_or(Errno::NOEXEC)? + 1;
    let start = line.iter().position(|byte| !is_space(byte)).ok_or(Errno::NOEXEC)?;
    let line = &line[start..end];
    let until_nul = |text: &[u8]| text.split(|&byte| byte == 0).next().unwrap_or_default().to_vec();
    let Some(name) = line.iter().position(|byte| is_space(byte) || *byte == 0) else {
        return Ok(Some((line.to_vec(), None)));
    };
    let rest = &line[name..];
    let word = rest.iter().position(|byte| !is_space(byte)).map(|at| until_nul(&rest[at..]));
    if name == 0 {
        return Err(Errno::NOEXEC);
    }
    Ok(Some((line[..name].to_vec(), word.filter(|word| !word.is_empty()))))
}

/// Which file a library is, and as of when: folder, inode, its last change.
pub(crate) type Version = (u32, u64, Time);

/// A library that has been copied.
struct Copied {
    version: Version,
    /// By which the loader knows it.
    name: CString,
}

static LIBRARIES: Mutex<Vec<Copied>> = Mutex::new(Vec::new());

/// A copy that was made for this process before it began, as [`copy_for_loader`] has done it.
pub(crate) fn adopt_library(version: Version, memory: c_int) {
    if let Ok(name) = CString::new(format!("/proc/self/fd/{memory}")) {
        lock(&LIBRARIES).push(Copied { version, name });
    }
}

/// A copy of a library for a program that is about to begin, which has the descriptor.
///
/// # Safety
/// A C string.
pub(crate) unsafe fn copy_for_loader(path: *const c_char) -> Option<(Version, OwnedFd)> {
    let file = Open::new(path).ok()?;
    let version = file.version()?;
    let memory = file.copy(path).ok()?;
    rustix::io::fcntl_setfd(&memory, FdFlags::empty()).ok()?;
    Some((version, memory))
}

/// A library that is in a folder, as one that the kernel can find. The loader may ask for it by this name as
/// long as the process lives, so it stays.
///
/// # Safety
/// A C string or null.
pub(crate) unsafe fn library(path: *const c_char) -> Option<*const c_char> {
    if !state::is_on() || gate::is_inside() || !text(path).ok()?.contains(&b'/') {
        return None;
    }
    let before = errno::get();
    let file = Open::new(path).ok();
    errno::put(before);
    let file = file?;
    let version = file.version()?;
    let mut libraries = lock(&LIBRARIES);
    if let Some(known) = libraries.iter().find(|known| known.version == version) {
        return Some(known.name.as_ptr());
    }
    let memory = file.copy(path).ok()?;
    let name = in_proc(&memory).ok()?;
    let _ = memory.into_raw_fd();
    let pointer = name.as_ptr();
    libraries.push(Copied { version, name });
    Some(pointer)
}

/// Whether a path names a list of this process's mappings.
///
/// # Safety
/// A C string or null.
pub(crate) unsafe fn is_mappings(path: *const c_char) -> bool {
    let is_list = |path| matches!(links::own(path), Some(b"maps" | b"smaps"));
    state::is_on() && !path.is_null() && !gate::is_inside() && text(path).is_ok_and(is_list)
}

/// Puts a list of mappings in place of the kernel's, which is open, in which copies have the paths of the
/// files that they are of.
///
/// # Safety
/// The descriptor is the caller's.
pub(crate) unsafe fn show_mappings(fd: c_int, flags: c_int) -> Result<()> {
    let list = std::os::fd::BorrowedFd::borrow_raw(fd);
    let mut kernels = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match rustix::io::read(list, &mut buffer[..]) {
            Ok(0) => break,
            Ok(bytes) => kernels.extend_from_slice(&buffer[..bytes]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    let shown = with_paths(&kernels);
    if shown == kernels {
        rustix::fs::seek(list, rustix::fs::SeekFrom::Start(0))?;
        return Ok(());
    }
    let memory = rustix::fs::memfd_create("unvme-maps", MemfdFlags::CLOEXEC)?;
    let mut left = shown.as_slice();
    while !left.is_empty() {
        left = &left[rustix::io::write(&memory, left)?..];
    }
    rustix::fs::seek(&memory, rustix::fs::SeekFrom::Start(0))?;
    match real::dup3(memory.as_raw_fd(), fd, flags & O_CLOEXEC) {
        failed if failed < 0 => Err(errno::last()),
        _ => Ok(()),
    }
}

/// Lines of mappings, with the path of a file in place of its copy's name.
fn with_paths(list: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(list.len());
    for line in list.split_inclusive(|&byte| byte == b'\n') {
        let at = line.windows(COPY.len()).position(|part| part == COPY);
        let path = at.and_then(|at| line[at + COPY.len()..].strip_suffix(b" (deleted)\n"));
        match (at, path) {
            (Some(at), Some(path)) => {
                shown.extend_from_slice(&line[..at]);
                shown.extend_from_slice(path);
                shown.push(b'\n');
            }
            _ => shown.extend_from_slice(line),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::{HEAD, interpreter, with_paths};

    #[test]
    fn copies_are_listed_as_the_files_that_they_are_of() {
        let list = "1-2 r--p 0 00:01 7   /memfd:unvme:/a/b.so (deleted)\nRss: 4 kB\n2-3 rw-p 0 00:00 0 \n";
        let shown = "1-2 r--p 0 00:01 7   /a/b.so\nRss: 4 kB\n2-3 rw-p 0 00:00 0 \n";
        assert_eq!(with_paths(list.as_bytes()), shown.as_bytes());
        let other = b"1-2 rw-s 0 00:01 7   /memfd:unvme-slots (deleted)\n";
        assert_eq!(with_paths(other), other);
    }

    fn said(line: &[u8]) -> Option<(String, Option<String>)> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        interpreter(line).expect("it can be run").map(|(name, word)| (text(name), word.map(text)))
    }

    #[test]
    fn first_lines_are_read_as_the_kernel_reads_them() {
        let both = |name: &str, word: Option<&str>| Some((name.to_owned(), word.map(str::to_owned)));
        assert_eq!(said(b"\x7fELF"), None);
        assert_eq!(said(b"#!/bin/sh\necho\n"), both("/bin/sh", None));
        assert_eq!(said(b"#! \t/bin/sh \t\n"), both("/bin/sh", None));
        assert_eq!(said(b"#!/usr/bin/env  python3 -u \nx"), both("/usr/bin/env", Some("python3 -u")));
        assert_eq!(said(b"#!/bin/sh"), both("/bin/sh", None));
        assert_eq!(said(b"#!/bin/sh\0-x\n"), both("/bin/sh", None));
        let long = [b"#!/bin/sh ", &[b'x'; 2 * HEAD][..]].concat();
        assert_eq!(said(&long[..HEAD]), both("/bin/sh", Some(&"x".repeat(HEAD - 11))));
    }

    #[test]
    fn a_line_without_an_interpreter_cannot_be_run() {
        let long = [b"#!/", &[b'x'; 2 * HEAD][..]].concat();
        for line in [&b"#!\n"[..], b"#! \t\n", b"#!", &long[..HEAD]] {
            assert!(interpreter(line).is_err(), "{line:?}");
        }
    }
}
