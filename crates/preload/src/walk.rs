//! Walks through trees: `ftw` and `nftw`, where a folder may be met. All others are the C library's.

use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char, c_int};

use libc::{AT_FDCWD, O_CLOEXEC, O_DIRECTORY, O_RDONLY, PATH_MAX};
use rustix::io::Errno;

use crate::directory::{closedir, opendir, readdir};
use crate::errno::{self, number};
use crate::place::{self, Place};
use crate::{attributes, gate, mount, names, open, real, state};

/// `struct FTW` of the C library.
#[repr(C)]
pub(crate) struct Level {
    base: c_int,
    level: c_int,
}

type Visit = unsafe extern "C-unwind" fn(*const c_char, *const libc::stat, c_int, *mut Level) -> c_int;
type ShortVisit = unsafe extern "C-unwind" fn(*const c_char, *const libc::stat, c_int) -> c_int;

const FTW_F: c_int = 0;
const FTW_D: c_int = 1;
const FTW_DNR: c_int = 2;
const FTW_NS: c_int = 3;
const FTW_SL: c_int = 4;
const FTW_DP: c_int = 5;
const FTW_SLN: c_int = 6;
const FTW_PHYS: c_int = 1;
const FTW_MOUNT: c_int = 2;
const FTW_CHDIR: c_int = 4;
const FTW_DEPTH: c_int = 8;
const FTW_ACTIONRETVAL: c_int = 16;
const FTW_SKIP_SUBTREE: c_int = 2;
const FTW_SKIP_SIBLINGS: c_int = 3;

/// What is called for each file.
type Told<'a> = &'a dyn Fn(*const c_char, *const libc::stat, c_int, *mut Level) -> c_int;

/// A walk through a tree.
struct Tree<'a> {
    visit: Told<'a>,
    flags: c_int,
    /// Directories that were found, when links are followed: by device and inode.
    seen: HashSet<(u64, u64)>,
    device: u64,
}

/// A directory that the walk is in.
struct Inside {
    path: Vec<u8>,
    base: c_int,
    stat: libc::stat,
    names: std::vec::IntoIter<CString>,
    /// Where the walk goes back to from those below.
    fd: c_int,
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.fd >= 0 {
            // SAFETY: opened here.
            unsafe { open::close(self.fd) };
        }
    }
}

/// What came of a file: the walk goes on, goes into a directory, or ends.
enum Step {
    On(c_int),
    Into(Box<Inside>),
}

impl Tree<'_> {
    fn has(&self, flag: c_int) -> bool {
        self.flags & flag != 0
    }

    unsafe fn tell(
        &self,
        path: &[u8],
        stat: &libc::stat,
        kind: c_int,
        (base, level): (c_int, usize),
    ) -> c_int {
        let Ok(path) = CString::new(path) else { return 0 };
        (self.visit)(path.as_ptr(), stat, kind, &mut Level { base, level: level as c_int })
    }

    /// `name` is how the file is reached from the working directory.
    unsafe fn meet(&mut self, path: Vec<u8>, name: &CStr, base: c_int, level: usize) -> Step {
        let mut stat: libc::stat = std::mem::zeroed();
        let at = (base, level);
        let is_found = match self.has(FTW_PHYS) {
            true => attributes::lstat(name.as_ptr(), &mut stat) == 0,
            false => attributes::stat(name.as_ptr(), &mut stat) == 0,
        };
        if !is_found {
            let failed = errno::get();
            let is_link = !self.has(FTW_PHYS)
                && attributes::lstat(name.as_ptr(), &mut stat) == 0
                && stat.st_mode & libc::S_IFMT == libc::S_IFLNK;
            // Of what it begins with more has to be known.
            if is_link && (level > 0 || failed == libc::ENOENT) {
                return Step::On(self.tell(&path, &stat, FTW_SLN, at));
            }
            errno::put(failed);
            if level == 0 || !matches!(failed, libc::EACCES | libc::ENOENT) {
                return Step::On(-1);
            }
            return Step::On(self.tell(&path, &stat, FTW_NS, at));
        }
        if level == 0 {
            self.device = stat.st_dev;
        } else if self.has(FTW_MOUNT) && stat.st_dev != self.device {
            return Step::On(0);
        }
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFDIR if self.has(FTW_PHYS) || self.seen.insert((stat.st_dev, stat.st_ino)) => {
                self.enter(path, name, stat, at)
            }
            libc::S_IFDIR => Step::On(0),
            libc::S_IFLNK => Step::On(self.tell(&path, &stat, FTW_SL, at)),
            _ => Step::On(self.tell(&path, &stat, FTW_F, at)),
        }
    }

    unsafe fn enter(&self, path: Vec<u8>, name: &CStr, stat: libc::stat, at: (c_int, usize)) -> Step {
        let Some(names) = names_in(name) else {
            return Step::On(match errno::get() {
                libc::EACCES => self.tell(&path, &stat, FTW_DNR, at),
                _ => -1,
            });
        };
        let mut inside = Box::new(Inside { path, base: at.0, stat, names: names.into_iter(), fd: -1 });
        if self.has(FTW_CHDIR) {
            inside.fd = open::openat(AT_FDCWD, name.as_ptr(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
            if inside.fd < 0 {
                return Step::On(-1);
            }
        }
        if !self.has(FTW_DEPTH) {
            let told = self.tell(&inside.path, &inside.stat, FTW_D, at);
            if told != 0 {
                return Step::On(told);
            }
        }
        if self.has(FTW_CHDIR) && names::fchdir(inside.fd) != 0 {
            return Step::On(-1);
        }
        Step::Into(inside)
    }

    /// The walk, with the directories that it is in.
    unsafe fn walk(&mut self, path: Vec<u8>, name: &CStr, base: c_int) -> c_int {
        let mut above: Vec<Box<Inside>> = Vec::new();
        let mut result = match self.meet(path, name, base, 0) {
            Step::On(result) => return result,
            Step::Into(inside) => {
                above.push(inside);
                0
            }
        };
        loop {
            let level = above.len();
            let Some(here) = above.last_mut() else { return result };
            if result != 0 {
                return result;
            }
            if let Some(name) = here.names.next() {
                let mut path = here.path.clone();
                if !path.ends_with(b"/") {
                    path.push(b'/');
                }
                let base = path.len() as c_int;
                path.extend_from_slice(name.to_bytes());
                let Ok(whole) = CString::new(path.clone()) else { continue };
                let reached = if self.has(FTW_CHDIR) { &name } else { &whole };
                match self.meet(path, reached, base, level) {
                    Step::Into(inside) => above.push(inside),
                    Step::On(told) => result = self.judged(told, &mut above),
                }
                continue;
            }
            let Some(here) = above.pop() else { return result };
            if self.has(FTW_DEPTH) {
                let told = self.tell(&here.path, &here.stat, FTW_DP, (here.base, level - 1));
                result = self.judged(told, &mut above);
            }
            if self.has(FTW_CHDIR)
                && result == 0
                && let Some(next) = above.last()
                && names::fchdir(next.fd) != 0
            {
                return -1;
            }
        }
    }

    /// What an answer means for the directory that the walk is in.
    fn judged(&self, told: c_int, above: &mut [Box<Inside>]) -> c_int {
        match told {
            FTW_SKIP_SUBTREE if self.has(FTW_ACTIONRETVAL) => 0,
            FTW_SKIP_SIBLINGS if self.has(FTW_ACTIONRETVAL) => {
                if let Some(here) = above.last_mut() {
                    here.names = Vec::new().into_iter();
                }
                0
            }
            told => told,
        }
    }
}

unsafe fn names_in(path: &CStr) -> Option<Vec<CString>> {
    let dir = opendir(path.as_ptr());
    if dir.is_null() {
        return None;
    }
    let mut names = Vec::new();
    loop {
        let entry = readdir(dir);
        if entry.is_null() {
            break;
        }
        let name = CStr::from_ptr((&raw const (*entry).d_name).cast());
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    closedir(dir);
    Some(names)
}

/// Whether a walk may come to a folder: it is at the root, above or below it; or links are followed, which
/// lead anywhere.
unsafe fn may_meet_folder(path: *const c_char, flags: c_int) -> bool {
    if !state::is_on() || gate::is_inside() {
        return false;
    }
    if flags & FTW_PHYS == 0
        || !matches!(place::resolve_through_links(AT_FDCWD, path, true), Ok(Place::Kernel))
    {
        return true;
    }
    let mut whole = [0; PATH_MAX as usize];
    if real::realpath(path, whole.as_mut_ptr()).is_null() {
        return false;
    }
    let root = CStr::from_ptr(whole.as_ptr()).to_bytes();
    let is_above = |folder: &[u8]| {
        root == b"/" || folder.strip_prefix(root).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    };
    mount::all().iter().any(|mount| is_above(&mount.folder))
}

unsafe fn walk(path: *const c_char, flags: c_int, visit: Told<'_>) -> c_int {
    let given = CStr::from_ptr(path).to_bytes();
    let end = given.iter().rposition(|&byte| byte != b'/').map_or(given.len().min(1), |at| at + 1);
    let path = given[..end].to_vec();
    let base = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let mut tree = Tree { visit, flags, seen: HashSet::new(), device: 0 };
    let Ok(whole) = CString::new(path.clone()) else { return -1 };
    if flags & FTW_CHDIR == 0 {
        return tree.ended(path, &whole, base as c_int);
    }
    let before = open::openat(AT_FDCWD, c".".as_ptr(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if before < 0 {
        return -1;
    }
    let parent = CString::new(if base > 1 { &path[..base - 1] } else { b"/" }).unwrap_or_default();
    let name = CString::new(if base < path.len() { &path[base..] } else { b"/" }).unwrap_or_default();
    let result = if base > 0 && names::chdir(parent.as_ptr()) != 0 {
        -1
    } else {
        tree.ended(path, &name, base as c_int)
    };
    let failed = errno::get();
    names::fchdir(before);
    open::close(before);
    errno::put(failed);
    result
}

impl Tree<'_> {
    unsafe fn ended(&mut self, path: Vec<u8>, name: &CStr, base: c_int) -> c_int {
        let result = self.walk(path, name, base);
        let is_skip = matches!(result, FTW_SKIP_SUBTREE | FTW_SKIP_SIBLINGS);
        if self.has(FTW_ACTIONRETVAL) && is_skip { 0 } else { result }
    }
}

mod behind {
    use super::*;

    functions! {
        fn nftw(path: *const c_char, visit: Visit, descriptors: c_int, flags: c_int) -> c_int;
        fn ftw(path: *const c_char, visit: ShortVisit, descriptors: c_int) -> c_int;
    }
}

unsafe fn nftw_any(path: *const c_char, visit: Visit, descriptors: c_int, flags: c_int) -> c_int {
    const KNOWN: c_int = FTW_PHYS | FTW_MOUNT | FTW_CHDIR | FTW_DEPTH | FTW_ACTIONRETVAL;
    if flags & !KNOWN != 0 {
        return number(Err(Errno::INVAL));
    }
    if errno::text(path).is_ok_and(<[u8]>::is_empty) {
        return number(Err(Errno::NOENT));
    }
    if !may_meet_folder(path, flags) {
        return behind::nftw(path, visit, descriptors, flags);
    }
    walk(path, flags, &|path, stat, kind, level| visit(path, stat, kind, level))
}

unsafe fn ftw_any(path: *const c_char, visit: ShortVisit, descriptors: c_int) -> c_int {
    if errno::text(path).is_ok_and(<[u8]>::is_empty) {
        return number(Err(Errno::NOENT));
    }
    if !may_meet_folder(path, 0) {
        return behind::ftw(path, visit, descriptors);
    }
    walk(path, 0, &|path, stat, kind, _| visit(path, stat, if kind == FTW_SLN { FTW_NS } else { kind }))
}

exported! {
    fn nftw(path: *const c_char, visit: Visit, descriptors: c_int, flags: c_int) -> c_int {
        nftw_any(path, visit, descriptors, flags)
    }

    fn nftw64(path: *const c_char, visit: Visit, descriptors: c_int, flags: c_int) -> c_int {
        nftw_any(path, visit, descriptors, flags)
    }

    fn ftw(path: *const c_char, visit: ShortVisit, descriptors: c_int) -> c_int {
        ftw_any(path, visit, descriptors)
    }

    fn ftw64(path: *const c_char, visit: ShortVisit, descriptors: c_int) -> c_int {
        ftw_any(path, visit, descriptors)
    }
}
