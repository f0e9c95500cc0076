//! What the loader (`ld.so`) of a program is told by the environment, and the program itself is not: before
//! `main` the variables are again what the program was given.
//!
//! Libraries that are in folders are copied into memory for the loader, which has the copies' descriptors. A
//! directory of the kernel's has a link for each by the name by which it is needed; it is put before those of
//! `LD_LIBRARY_PATH`, and removed by the program that it is for, before `main`.

use std::collections::HashSet;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, CWD, Mode};
use rustix::io::{Errno, FdFlags};
use unvme_fs::{Time, is_sanitizer};

use crate::libraries::{self, LIBRARY_PATH, Needed, Search, Seen};
use crate::program::{self, Version};
use crate::{errno, gate, own, process, state};

/// The variables as the program was given them: a line for each, a name alone for one that was not set.
/// `unvme run` sets this, too. Of libraries in folders there are the lines of [`Copied`] and the directory.
const TOLD: &str = "UNVME_PRELOAD_LOADER";

const PRELOAD: &str = "LD_PRELOAD";
const DIRECTORY: &[u8] = b"directory=";
const LIBRARY: &[u8] = b"library=";

/// Directories of the kernel's in which one of links is made.
const PLACES: &[&str] = &["/dev/shm", "/tmp", "/var/tmp"];

/// A library that the loader finds in memory, or by a link alone.
struct Copied {
    /// Its name with the loader.
    name: Vec<u8>,
    /// Where it is.
    path: Vec<u8>,
    memory: Option<(Version, OwnedFd)>,
}

impl Copied {
    unsafe fn new(seen: &Seen) -> Option<Self> {
        let path = CString::new(seen.path.as_slice()).ok()?;
        let memory = if seen.is_ours { Some(program::copy_for_loader(path.as_ptr())?) } else { None };
        let name = memory.as_ref().map(|(_, memory)| format!("/proc/self/fd/{}", memory.as_raw_fd()));
        let whole = || std::path::absolute(OsStr::from_bytes(&seen.path));
        let name = match name {
            Some(name) => name.into_bytes(),
            None => whole().ok()?.into_os_string().into_encoded_bytes(),
        };
        // A line is made of it.
        let is_line = !seen.path.iter().any(|byte| b"\n\t".contains(byte));
        is_line.then(|| Self { name, path: seen.path.clone(), memory })
    }

    /// What the program is told of it.
    fn line(&self) -> Vec<u8> {
        let (fd, (mount, ino, changed)) = match &self.memory {
            Some((version, memory)) => (memory.as_raw_fd(), *version),
            None => (-1, (0, 0, Time { seconds: 0, nanoseconds: 0 })),
        };
        let numbers = format!("{fd}\t{mount}\t{ino}\t{}\t{}\t", changed.seconds, changed.nanoseconds);
        [LIBRARY, numbers.as_bytes(), &self.name, b"\t", &self.path].concat()
    }
}

/// As [`Copied::line`] has made it, without its first word: the name with the loader, and the path. The copy
/// is this process's from now on.
fn adopt(line: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut words = line.split(|&byte| byte == b'\t');
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<i64>().ok();
    let (fd, mount, ino, seconds, nanoseconds) = (number()?, number()?, number()?, number()?, number()?);
    let names = (words.next()?.to_vec(), words.next()?.to_vec());
    if let (Ok(fd @ 0..), Ok(mount)) = (c_int::try_from(fd), u32::try_from(mount)) {
        let changed = Time { seconds, nanoseconds: u32::try_from(nanoseconds).ok()? };
        // SAFETY: the process before this one has left it open for this one.
        rustix::io::fcntl_setfd(unsafe { BorrowedFd::borrow_raw(fd) }, FdFlags::CLOEXEC).ok()?;
        own::note(fd);
        program::adopt_library((mount, ino.cast_unsigned(), changed), fd);
    }
    Some(names)
}

/// A directory of links to libraries. It is removed when this is dropped.
struct Links {
    directory: PathBuf,
    copies: Vec<Copied>,
}

impl Links {
    /// `None` when there is no place for one.
    fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mode = Mode::RUSR | Mode::WUSR | Mode::XUSR;
        for place in PLACES {
            loop {
                let number = NEXT.fetch_add(1, Ordering::Relaxed);
                let name = format!("{place}/unvme-libraries-{}-{number}", std::process::id());
                match rustix::fs::mkdir(name.as_str(), mode) {
                    Ok(()) => return Some(Self { directory: PathBuf::from(name), copies: Vec::new() }),
                    // Of a process that had the number before.
                    Err(Errno::EXIST) => {}
                    Err(_) => break,
                }
            }
        }
        None
    }

    /// Makes a link to a library.
    fn add(&mut self, name: &[u8], mut copy: Copied) {
        let link = self.directory.join(OsStr::from_bytes(name));
        if rustix::fs::symlink(copy.name.as_slice(), link.as_path()).is_ok() {
            copy.name = link.as_os_str().as_bytes().to_vec();
            self.copies.push(copy);
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        remove(&self.directory);
    }
}

/// Removes a directory of links.
fn remove(directory: &Path) {
    let is_ours = PLACES.iter().any(|place| {
        directory.parent() == Some(Path::new(place))
            && directory.file_name().is_some_and(|name| name.as_bytes().starts_with(b"unvme-libraries-"))
    });
    if !is_ours {
        return;
    }
    for name in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let _ = rustix::fs::unlink(name.path());
    }
    let _ = rustix::fs::unlinkat(CWD, directory, AtFlags::REMOVEDIR);
}

/// What the loader of a program is told.
#[derive(Default)]
pub(crate) struct Told {
    /// The run-time library of a sanitizer: it ends the program unless it comes before all others.
    first: Option<Vec<u8>>,
    /// Those of `LD_PRELOAD` that are in folders.
    preloaded: Vec<Copied>,
    links: Option<Links>,
}

/// The value of a variable among lines such as `NAME=value`.
fn value_of<'a>(texts: &[&'a CStr], name: &str) -> Option<&'a [u8]> {
    texts.iter().find_map(|text| value_in(text.to_bytes(), name))
}

fn value_in<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    text.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

fn is_separator(byte: &u8) -> bool {
    b": ".contains(byte)
}

/// The libraries of `LD_PRELOAD`.
fn listed(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(is_separator).filter(|path| !path.is_empty())
}

/// The texts of an environment.
///
/// # Safety
/// As for `execve`.
unsafe fn texts<'a>(mut at: *const *const c_char) -> Vec<&'a CStr> {
    let mut texts = Vec::new();
    while !at.is_null() && !(*at).is_null() {
        texts.push(CStr::from_ptr(*at));
        at = at.add(1);
    }
    texts
}

/// Sets a variable, and notes what it was.
fn set(texts: &mut Vec<CString>, name: &str, value: &[u8], told: &mut Vec<Vec<u8>>) {
    let Ok(changed) = CString::new([name.as_bytes(), b"=", value].concat()) else { return };
    match texts.iter_mut().find(|text| value_in(text.to_bytes(), name).is_some()) {
        Some(text) => told.push(std::mem::replace(text, changed).into_bytes()),
        None => {
            texts.push(changed);
            told.push(name.as_bytes().to_vec());
        }
    }
}

fn value_now(texts: &[CString], name: &str) -> Vec<u8> {
    texts.iter().find_map(|text| value_in(text.to_bytes(), name)).unwrap_or_default().to_vec()
}

impl Told {
    /// What a program is to be told that is run by a path, with an environment; `own_path` is where it is
    /// when the path is that of its copy.
    ///
    /// # Safety
    /// As for `execve`; the environment can be read.
    pub(crate) unsafe fn of(
        path: *const c_char,
        own_path: Option<&[u8]>,
        envp: *const *const c_char,
    ) -> Self {
        if !state::is_on() || gate::is_inside() {
            return Self::default();
        }
        let before = errno::get();
        let told = Self::find(path, own_path, &texts(envp)).unwrap_or_default();
        errno::put(before);
        told
    }

    unsafe fn find(path: *const c_char, own_path: Option<&[u8]>, texts: &[&CStr]) -> Option<Self> {
        let path = program::run_for(path)?;
        let program = libraries::see(own_path.unwrap_or(path.as_bytes()))?;
        let preload = value_of(texts, PRELOAD).unwrap_or_default();
        let first = program.sanitizer().or_else(|| listed(preload).find(|path| is_sanitizer(path)));
        let mut told = Self { first: first.map(<[u8]>::to_vec), ..Self::default() };
        let library_path = value_of(texts, LIBRARY_PATH).unwrap_or_default();
        let mut search = Search::new(library_path, HashSet::new());
        for path in listed(preload).filter(|path| path.contains(&b'/')) {
            if let Some(seen) = libraries::see(path).filter(|seen| seen.is_ours) {
                search.follow(&seen);
                told.preloaded.extend(Copied::new(&seen));
            }
        }
        search.follow(&program);
        for Needed { name, seen } in &search.found {
            // The loader opens a path of the program's own as it is.
            if !name.contains(&b'/')
                && let Some(copy) = Copied::new(seen)
            {
                told.links = told.links.or_else(Links::new);
                if let Some(links) = &mut told.links {
                    links.add(name, copy);
                }
            }
        }
        Some(told)
    }

    /// Changes the environment of the program.
    pub(crate) fn apply(&self, texts: &mut Vec<CString>) {
        texts.retain(|text| value_in(text.to_bytes(), TOLD).is_none());
        let mut told = Vec::new();
        if self.first.is_some() || !self.preloaded.is_empty() {
            let given = value_now(texts, PRELOAD);
            let instead = |path: &[u8]| match self.preloaded.iter().find(|copy| copy.path == path) {
                Some(copy) => copy.name.clone(),
                None => path.to_vec(),
            };
            let list: Vec<_> = self.first.iter().cloned().chain(listed(&given).map(instead)).collect();
            set(texts, PRELOAD, &list.join(&b':'), &mut told);
        }
        let copies = self.links.iter().flat_map(|links| &links.copies);
        told.extend(self.preloaded.iter().chain(copies).map(Copied::line));
        if let Some(links) = &self.links {
            let directory = links.directory.as_os_str().as_bytes();
            let given = value_now(texts, LIBRARY_PATH);
            let colon: &[u8] = if given.is_empty() { b"" } else { b":" };
            set(texts, LIBRARY_PATH, &[directory, colon, &given].concat(), &mut told);
            told.push([DIRECTORY, directory].concat());
        }
        if !told.is_empty()
            && let Ok(text) = CString::new([TOLD.as_bytes(), b"=", &told.join(&b'\n')].concat())
        {
            texts.push(text);
        }
    }

    /// The program has begun, and removes the directory of links.
    pub(crate) fn hand_over(mut self) {
        if let Some(links) = self.links.take() {
            // The descriptors are closed, and the directory stays.
            let mut links = std::mem::ManuallyDrop::new(links);
            links.copies.clear();
        }
    }
}

/// Before `main`: the environment is what the program was given, and the libraries have the names of the
/// files that they are from.
pub(crate) fn restore() {
    let Some(told) = state::variable(TOLD) else { return };
    change(TOLD.as_bytes(), None);
    let mut names = Vec::new();
    for line in told.split(|&byte| byte == b'\n') {
        if let Some(library) = line.strip_prefix(LIBRARY) {
            names.extend(adopt(library));
            continue;
        }
        if let Some(directory) = line.strip_prefix(DIRECTORY) {
            remove(Path::new(OsStr::from_bytes(directory)));
            continue;
        }
        let end = line.iter().position(|&byte| byte == b'=').unwrap_or(line.len());
        let (name, value) = (&line[..end], line.get(end + 1..));
        // No others are changed.
        if name == PRELOAD.as_bytes() || name == LIBRARY_PATH.as_bytes() {
            change(name, value);
        }
    }
    if !names.is_empty() {
        libraries::rename_all(&names);
    }
}

/// Changes or removes a variable of this process, in the array that `main` is given. The C library's
/// functions are not called: shells have some of those names, which do not work before `main`.
fn change(name: &[u8], value: Option<&[u8]>) {
    // SAFETY: there is one thread before `main`, and the kernel has put the array and its null pointer into
    // memory that can be written to.
    unsafe {
        let mut at = process::environ().cast_mut();
        while !at.is_null() && !(*at).is_null() {
            let text = CStr::from_ptr(*at).to_bytes();
            if !text.strip_prefix(name).is_some_and(|rest| rest.starts_with(b"=")) {
                at = at.add(1);
                continue;
            }
            let Some(value) = value else {
                let mut to = at;
                while !(*to).is_null() {
                    *to = *to.add(1);
                    to = to.add(1);
                }
                continue;
            };
            if let Ok(text) = CString::new([name, b"=", value].concat()) {
                // It stays as long as the process.
                *at = text.into_raw();
            }
            at = at.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::Told;

    fn applied(first: Option<&[u8]>, texts: &[&str]) -> Vec<String> {
        let mut texts: Vec<_> = texts.iter().map(|text| CString::new(*text).expect("no NUL")).collect();
        Told { first: first.map(<[u8]>::to_vec), ..Told::default() }.apply(&mut texts);
        texts.into_iter().map(|text| text.into_string().expect("text")).collect()
    }

    #[test]
    fn a_sanitizer_comes_first_and_the_program_does_not_see_it() {
        let given = ["A=1", "LD_PRELOAD=/lib/libunvme_preload.so", "UNVME_PRELOAD_LOADER=old"];
        assert_eq!(applied(None, &given), given[..2]);
        let told = [
            "A=1",
            "LD_PRELOAD=libasan.so.8:/lib/libunvme_preload.so",
            "UNVME_PRELOAD_LOADER=LD_PRELOAD=/lib/libunvme_preload.so",
        ];
        assert_eq!(applied(Some(b"libasan.so.8"), &given), told);
    }
}
