//! Libraries that are in folders, and those that they need. The loader (`ld.so`) opens files by calls of its
//! own, and finds nothing there: what it would look for is looked for here, by its rules (`ld.so(8)`).
//!
//! A library that `dlopen` loads is a copy in memory. The libraries that it needs are loaded before it, each
//! under the name by which it is needed: the loader compares that with `l_name` of what it has before it
//! looks for a file. Afterwards `l_name` is the path in the folder, where `dladdr`, debuggers and this module
//! find it. For libraries that are loaded before `main` see `loader`.
//!
//! Libraries that need each other are loaded before `main`, and not by `dlopen`.

use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use libc::AT_FDCWD;
use unvme_fs::Dynamic;

use crate::errno::{self, text};
use crate::place::{self, Place};
use crate::{gate, program, state};

/// Programs and libraries that one search goes through.
const OBJECTS_MAX: usize = 512;

/// Where the loader looks last; its cache names no others on most systems.
const DEFAULTS: &[&[u8]] = &[
    b"/lib/x86_64-linux-gnu",
    b"/usr/lib/x86_64-linux-gnu",
    b"/lib64",
    b"/usr/lib64",
    b"/lib",
    b"/usr/lib",
    b"/usr/local/lib",
];

/// Directories that the user has named.
pub(crate) const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// Its value when this process began: the loader does not look at it again.
static OWN_LIBRARY_PATH: OnceLock<Vec<u8>> = OnceLock::new();

/// Before `main`.
pub(crate) fn start() {
    let _ = OWN_LIBRARY_PATH.set(state::variable(LIBRARY_PATH).unwrap_or_default());
}

/// What the loader has of a library (`struct link_map` of `<link.h>`): a handle of `dlopen` points to it.
#[repr(C)]
pub(crate) struct LinkMap {
    _address: usize,
    name: *mut c_char,
    _dynamic: *const c_void,
    next: *mut LinkMap,
    previous: *mut LinkMap,
}

/// A file that the loader could load.
pub(crate) struct Seen {
    pub path: Vec<u8>,
    /// It is in a folder.
    pub is_ours: bool,
    /// The loader looks there last, whatever the program says.
    is_default: bool,
    dynamic: Dynamic,
}

/// A file at a path, if the loader could load it.
///
/// # Safety
/// None but that of the calls on files.
pub(crate) unsafe fn see(path: &[u8]) -> Option<Seen> {
    let name = CString::new(path).ok()?;
    let place = place::resolve_through_links(AT_FDCWD, name.as_ptr(), true);
    let dynamic = program::dynamic_of_file(name.as_ptr())?;
    let is_ours = matches!(place, Ok(Place::Ours(..)));
    Some(Seen { path: path.to_vec(), is_ours, is_default: false, dynamic })
}

impl Seen {
    /// As of its dynamic section.
    pub(crate) fn sanitizer(&self) -> Option<&[u8]> {
        self.dynamic.sanitizer()
    }
}

/// Whether a directory is in a folder.
unsafe fn is_in_folder(directory: &[u8]) -> bool {
    let Ok(path) = CString::new(directory) else { return false };
    matches!(place::resolve_through_links(AT_FDCWD, path.as_ptr(), true), Ok(Place::Ours(..)))
}

/// The directory of a file, for `$ORIGIN`.
fn directory_of(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|&byte| byte == b'/') {
        None => b".",
        Some(0) => b"/",
        Some(at) => &path[..at],
    }
}

/// A directory of a list, with what `$ORIGIN` stands for. `None` when there is more in it that only the
/// loader knows, such as `$LIB`.
fn expand(directory: &[u8], origin: &[u8]) -> Option<Vec<u8>> {
    if directory.is_empty() {
        return Some(b".".to_vec());
    }
    let mut expanded = Vec::new();
    let mut rest = directory;
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'$' {
            expanded.push(byte);
            rest = after;
            continue;
        }
        rest = after.strip_prefix(b"ORIGIN").or_else(|| after.strip_prefix(b"{ORIGIN}"))?;
        expanded.extend_from_slice(origin);
    }
    Some(expanded)
}

fn directories(list: &[u8], origin: &[u8]) -> Vec<Vec<u8>> {
    if list.is_empty() {
        return Vec::new();
    }
    list.split(|byte| b":;".contains(byte)).filter_map(|directory| expand(directory, origin)).collect()
}

/// A program or a library in a search.
struct Object {
    path: Vec<u8>,
    is_ours: bool,
    dynamic: Dynamic,
    /// Which one needs it.
    requester: Option<usize>,
}

/// A library that the loader does not find, or not where it would look: by which name it is needed.
pub(crate) struct Needed {
    pub name: Vec<u8>,
    pub seen: Seen,
}

/// A search for what is needed.
pub(crate) struct Search {
    library_path: Vec<Vec<u8>>,
    objects: Vec<Object>,
    /// Names that were looked for, or that the loader has.
    known: HashSet<Vec<u8>>,
    /// Each comes before those that need it.
    pub found: Vec<Needed>,
}

impl Search {
    pub(crate) fn new(library_path: &[u8], known: HashSet<Vec<u8>>) -> Self {
        let library_path = directories(library_path, b"");
        Self { library_path, objects: Vec::new(), known, found: Vec::new() }
    }

    /// The directories that the loader looks in for what an object needs, in its order, but for the last.
    fn directories_for(&self, number: usize) -> Vec<Vec<u8>> {
        let object = &self.objects[number];
        let mut all = Vec::new();
        let mut at = if object.dynamic.runpath.is_none() { Some(number) } else { None };
        while let Some(one) = at.map(|at| &self.objects[at]) {
            // A path of the newer kind replaces the older one.
            if let (Some(list), None) = (&one.dynamic.rpath, &one.dynamic.runpath) {
                all.extend(directories(list, directory_of(&one.path)));
            }
            at = one.requester;
        }
        all.extend_from_slice(&self.library_path);
        if let Some(list) = &object.dynamic.runpath {
            all.extend(directories(list, directory_of(&object.path)));
        }
        all
    }

    unsafe fn find(&self, name: &[u8], number: usize) -> Option<Seen> {
        if name.contains(&b'/') {
            return see(name);
        }
        for directory in self.directories_for(number) {
            if let Some(seen) = see(&[directory.as_slice(), b"/", name].concat()) {
                return Some(seen);
            }
        }
        for directory in DEFAULTS {
            if let Some(seen) = see(&[*directory, b"/", name].concat()) {
                return Some(Seen { is_default: true, ..seen });
            }
        }
        None
    }

    /// Adds an object. `None` beyond the bound.
    fn add(&mut self, seen: &Seen, requester: Option<usize>) -> Option<usize> {
        let number = self.objects.len();
        let Seen { path, is_ours, dynamic, .. } = seen;
        let object = Object { path: path.clone(), is_ours: *is_ours, dynamic: dynamic.clone(), requester };
        if number >= OBJECTS_MAX {
            return None;
        }
        self.objects.push(object);
        Some(number)
    }

    /// Finds what an object needs that is in a folder, and what that needs.
    ///
    /// # Safety
    /// As of [`see`].
    pub(crate) unsafe fn follow(&mut self, object: &Seen) {
        let Some(number) = self.add(object, None) else { return };
        // Most programs have nothing to do with a folder.
        let mut may_lead_there = object.is_ours;
        for directory in self.directories_for(number) {
            may_lead_there |= is_in_folder(&directory);
        }
        if may_lead_there {
            self.follow_all(number);
        }
    }

    unsafe fn follow_all(&mut self, number: usize) {
        for name in self.objects[number].dynamic.needed.clone() {
            if !self.known.insert(name.clone()) {
                continue;
            }
            let Some(seen) = self.find(&name, number) else { continue };
            if let Some(next) = self.add(&seen, Some(number)) {
                self.follow_all(next);
            }
            // `$ORIGIN` of a copy is not where the library is.
            if seen.is_ours || self.objects[number].is_ours && !seen.is_default {
                self.found.push(Needed { name, seen });
            }
        }
    }
}

/// The names by which the loader knows libraries that need no file any more.
fn loaded() -> HashSet<Vec<u8>> {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, names: *mut c_void) -> c_int {
        const DT_STRTAB: u64 = 5;
        const DT_SONAME: u64 = 14;
        let (info, names) = (&*info, &mut *names.cast::<HashSet<Vec<u8>>>());
        if !info.dlpi_name.is_null() {
            names.insert(CStr::from_ptr(info.dlpi_name).to_bytes().to_vec());
        }
        let mut headers = (0..usize::from(info.dlpi_phnum)).map(|nth| &*info.dlpi_phdr.add(nth));
        let Some(section) = headers.find(|header| header.p_type == libc::PT_DYNAMIC) else { return 0 };
        let (mut texts, mut soname) = (None, None);
        let mut at = (info.dlpi_addr + section.p_vaddr) as *const [u64; 2];
        while (*at)[0] != 0 {
            match *at {
                [DT_STRTAB, value] => texts = Some(value),
                [DT_SONAME, value] => soname = Some(value),
                _ => {}
            }
            at = at.add(1);
        }
        if let (Some(texts), Some(soname)) = (texts, soname) {
            // The loader has made it an address, but for what the kernel has mapped.
            let texts = if texts < info.dlpi_addr { info.dlpi_addr + texts } else { texts };
            names.insert(CStr::from_ptr((texts + soname) as *const c_char).to_bytes().to_vec());
        }
        0
    }
    let mut names = HashSet::new();
    // SAFETY: the loader shows what is mapped, and waits with changes meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut names).cast()) };
    names
}

/// What `dlopen` is in the C library, or in a library before it.
pub(crate) type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// Loads a library that is in a folder or needs one that is. `None` when the loader is to do it as it is
/// asked.
///
/// # Safety
/// As for `dlopen`; `caller` is an address in the library that calls it.
pub(crate) unsafe fn open(
    path: *const c_char,
    flags: c_int,
    caller: *const c_void,
    real: Open,
) -> Option<*mut c_void> {
    if !state::is_on() || gate::is_inside() || flags & libc::RTLD_NOLOAD != 0 {
        return None;
    }
    let name = text(path).ok().filter(|name| !name.is_empty())?;
    let before = errno::get();
    let found = find(name, caller);
    errno::put(before);
    let (root, needed) = found?;
    let handle = load(&root, &needed, flags, real);
    Some(handle)
}

unsafe fn find(name: &[u8], caller: *const c_void) -> Option<(Seen, Vec<Needed>)> {
    let known = loaded();
    if known.contains(name) {
        return None;
    }
    let library_path = OWN_LIBRARY_PATH.get().map_or(&b""[..], Vec::as_slice);
    let root = if name.contains(&b'/') {
        see(name)?
    } else {
        let mut search = Search::new(library_path, HashSet::new());
        let number = search.add(&seen_at(caller)?, None)?;
        search.find(name, number)?
    };
    let mut search = Search::new(library_path, known);
    search.follow(&root);
    (root.is_ours || !search.found.is_empty()).then_some((root, search.found))
}

/// The library, or the program, that has an address in it.
unsafe fn seen_at(address: *const c_void) -> Option<Seen> {
    let map = map_of(address)?;
    match CStr::from_ptr((*map).name).to_bytes() {
        b"" => match program::own_path() {
            Some(path) => see(path),
            None => see(std::env::current_exe().ok()?.as_os_str().as_bytes()),
        },
        path => see(path),
    }
}

unsafe fn map_of(address: *const c_void) -> Option<*mut LinkMap> {
    const RTLD_DL_LINKMAP: c_int = 2;
    let mut found: libc::Dl_info = std::mem::zeroed();
    let mut map: *mut c_void = std::ptr::null_mut();
    let is_found = libc::dladdr1(address, &mut found, &mut map, RTLD_DL_LINKMAP) != 0;
    (is_found && !map.is_null()).then(|| map.cast())
}

unsafe fn load(root: &Seen, needed: &[Needed], flags: c_int, real: Open) -> *mut c_void {
    let mut loaded = Vec::new();
    for library in needed {
        let Some(path) = loadable(&library.seen) else { continue };
        let handle = real(path.as_ptr(), libc::RTLD_LAZY);
        if handle.is_null() {
            // The loader says what is missing when it loads the one that needs it.
            continue;
        }
        let map = handle.cast::<LinkMap>();
        let before = own_name(map, &library.seen.path);
        rename(map, &library.name);
        loaded.push((map, before));
    }
    // The loader says that there is no such file, when it cannot be copied.
    let path = loadable(root).or_else(|| CString::new(root.path.as_slice()).ok());
    let handle = path.map_or(std::ptr::null_mut(), |path| real(path.as_ptr(), flags));
    // One that was needed by two names has the first name that it had.
    for (map, name) in loaded.iter().rev() {
        (**map).name = *name;
    }
    if !handle.is_null() {
        let map = handle.cast::<LinkMap>();
        (*map).name = own_name(map, &root.path);
        // They stay as long as what needs them. After a failure they stay as well: closing them would take
        // away what `dlerror` says.
        for (map, _) in loaded {
            libc::dlclose(map.cast());
        }
    }
    handle
}

/// The path by which the loader finds a file.
unsafe fn loadable(seen: &Seen) -> Option<CString> {
    let path = CString::new(seen.path.as_slice()).ok()?;
    if !seen.is_ours {
        return Some(path);
    }
    program::library(path.as_ptr()).map(|copy| CStr::from_ptr(copy).to_owned())
}

/// Text in memory that the loader may free.
unsafe fn allocate(name: &[u8]) -> *mut c_char {
    CString::new(name).map_or(std::ptr::null_mut(), |name| libc::strdup(name.as_ptr()))
}

/// The name that a library has from now on: of a copy it is the path of what was copied.
unsafe fn own_name(map: *mut LinkMap, path: &[u8]) -> *mut c_char {
    let before = (*map).name;
    if !CStr::from_ptr(before).to_bytes().starts_with(b"/proc/self/fd/") {
        return before;
    }
    let name = allocate(path);
    if name.is_null() { before } else { name }
}

/// Gives a library another name. The one before is not freed: another thread may be reading it.
unsafe fn rename(map: *mut LinkMap, name: &[u8]) {
    let name = allocate(name);
    if !name.is_null() {
        (*map).name = name;
    }
}

/// Gives the libraries that were loaded before `main` the names of the files that they are from: pairs of the
/// name that the loader has, and the path.
pub(crate) fn rename_all(names: &[(Vec<u8>, Vec<u8>)]) {
    // SAFETY: before `main` nothing is loaded or closed by another thread.
    unsafe {
        let Some(mut map) = map_of(rename_all as *const c_void) else { return };
        while !(*map).previous.is_null() {
            map = (*map).previous;
        }
        while !map.is_null() {
            let now = CStr::from_ptr((*map).name).to_bytes();
            if let Some((_, path)) = names.iter().find(|(name, _)| name == now) {
                rename(map, path);
            }
            map = (*map).next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{directories, directory_of, expand};

    #[test]
    fn lists_of_directories_are_read_as_the_loader_reads_them() {
        assert_eq!(directories(b"", b"/a"), Vec::<Vec<u8>>::new());
        assert_eq!(directories(b"$ORIGIN/libs:/b;", b"/a"), [&b"/a/libs"[..], b"/b", b"."]);
        assert_eq!(expand(b"${ORIGIN}/../x", b"/a").as_deref(), Some(&b"/a/../x"[..]));
        assert_eq!(expand(b"/usr/$LIB", b"/a"), None);
    }

    #[test]
    fn the_directory_of_a_file_is_what_is_before_its_name() {
        assert_eq!(directory_of(b"/a/b.so"), b"/a");
        assert_eq!(directory_of(b"/b.so"), b"/");
        assert_eq!(directory_of(b"b.so"), b".");
    }
}
