//! Programs that no library can be loaded into before their own: their files cannot be ours.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How many interpreters of interpreters are looked at, as Linux does.
pub(crate) const SCRIPTS_MAX: usize = 5;

/// Why a program's calls are not those of a library that is loaded before its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// There is no loader: it is linked statically.
    Static,
    /// It runs as another user or group, or with capabilities of its file: the loader takes nothing from the
    /// environment.
    OtherUser,
    /// It is of 32 bits, and the library is not.
    Bits32,
    /// It is a Go program: it makes the kernel's calls itself.
    OwnCalls,
}

impl std::fmt::Display for Unreachable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Static => "it is linked statically, so no library can be loaded before its own",
            Self::OtherUser => {
                "it runs as another user (set-user-id, or capabilities), so no library can be loaded before its own"
            }
            Self::Bits32 => "it is a program of 32 bits, so no library of 64 can be loaded before its own",
            Self::OwnCalls => {
                "it is a Go program, which makes the kernel's calls itself and not by the C library"
            }
        })
    }
}

/// Whether a program, or the one that interprets it, is out of reach, and which one of them.
///
/// # Errors
/// A file that cannot be read, named.
pub fn out_of_reach(program: &Path) -> io::Result<Option<(PathBuf, Unreachable)>> {
    let mut program = program.to_owned();
    for _ in 0..SCRIPTS_MAX {
        let named =
            |what: &str, e: io::Error| io::Error::new(e.kind(), format!("{what} {}: {e}", program.display()));
        let file = open(&program).map_err(|e| named("open", e))?;
        let found = file.metadata().map_err(|e| named("inspect", e))?;
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let mode = found.mode();
        let has_capabilities =
            uid != 0 && rustix::fs::fgetxattr(&file, "security.capability", &mut [0; 64]).is_ok();
        let is_others =
            mode & 0o4000 != 0 && found.uid() != uid || mode & 0o2010 == 0o2010 && found.gid() != gid;
        if is_others || has_capabilities {
            return Ok(Some((program, Unreachable::OtherUser)));
        }
        let mut start = Vec::new();
        (&file).take(4096).read_to_end(&mut start).map_err(|e| named("read", e))?;
        match interpreter(&start) {
            Some(name) => program = name,
            None => return Ok(why_not(&file, &start, &found).map(|why| (program, why))),
        }
    }
    Ok(None)
}

/// Opens a program to look at it: a pipe without a writer does not block.
pub(crate) fn open(program: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    File::options().read(true).custom_flags(flags.bits() as i32).open(program)
}

/// The interpreter that the first line of a script names; `None` for what is no script.
pub(crate) fn interpreter(start: &[u8]) -> Option<PathBuf> {
    let line = start.strip_prefix(b"#!")?;
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii();
    let name = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name)))
}

const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;

/// Why a program itself is out of reach. What is no program is for the kernel to refuse.
fn why_not(file: &File, start: &[u8], found: &std::fs::Metadata) -> Option<Unreachable> {
    if start.starts_with(b"\x7fELF\x01") {
        return Some(Unreachable::Bits32);
    }
    if !start.starts_with(b"\x7fELF") {
        return None;
    }
    let headers: Vec<_> = headers(file, start)?.collect();
    if !headers.iter().any(|(kind, ..)| *kind == PT_INTERP) && !is_loader(found) {
        return Some(Unreachable::Static);
    }
    let mut notes = headers.iter().filter(|(kind, ..)| *kind == PT_NOTE);
    notes.any(|(_, at, bytes)| is_go(file, *at, *bytes)).then_some(Unreachable::OwnCalls)
}

/// Whether notes (System V ABI, note section) are there that the Go linker leaves in its programs.
fn is_go(file: &File, at: u64, bytes: u64) -> bool {
    const NOTES_BYTES_MAX: u64 = 4096;
    let mut notes = vec![0; bytes.min(NOTES_BYTES_MAX) as usize];
    if file.read_exact_at(&mut notes, at).is_err() {
        return false;
    }
    let mut rest = notes.as_slice();
    while let Some((head, after)) = rest.split_first_chunk::<12>() {
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let (name, content) = (word(0), word(4).next_multiple_of(4));
        if name == 4 && after.starts_with(b"Go\0\0") {
            return true;
        }
        rest = after.get(name.next_multiple_of(4).saturating_add(content)..).unwrap_or_default();
    }
    false
}

/// The program headers of a program of 64 bits: what each is about, where in the file that is, and its bytes.
/// `None` for what is no such program, which is for the kernel to refuse.
fn headers<'a>(file: &'a File, start: &[u8]) -> Option<impl Iterator<Item = (u32, u64, u64)> + use<'a>> {
    const PROGRAM_HEADERS_MAX: u64 = 64;
    let number = |bytes: &[u8], at: usize, size: usize| -> Option<u64> {
        let mut whole = [0; 8];
        whole.get_mut(..size)?.copy_from_slice(bytes.get(at..at + size)?);
        Some(u64::from_le_bytes(whole))
    };
    let (2, at, size, count) =
        (number(start, 4, 1)?, number(start, 32, 8)?, number(start, 54, 2)?, number(start, 56, 2)?)
    else {
        return None;
    };
    Some((0..count.min(PROGRAM_HEADERS_MAX)).filter_map(move |nth| {
        let mut header = [0; 56];
        file.read_exact_at(&mut header, at.saturating_add(nth.saturating_mul(size))).ok()?;
        Some((number(&header, 0, 4)? as u32, number(&header, 8, 8)?, number(&header, 32, 8)?))
    }))
}

/// Whether a file is the loader that has started this program: it loads libraries before those of the program
/// that it is given, as when the kernel starts it.
fn is_loader(found: &std::fs::Metadata) -> bool {
    const PATH_BYTES_MAX: u64 = 4096;
    let loader = || -> Option<std::fs::Metadata> {
        let file = File::open("/proc/self/exe").ok()?;
        let mut start = Vec::new();
        (&file).take(4096).read_to_end(&mut start).ok()?;
        let (_, at, bytes) = headers(&file, &start)?.find(|(kind, ..)| *kind == PT_INTERP)?;
        let mut path = vec![0; bytes.min(PATH_BYTES_MAX) as usize];
        file.read_exact_at(&mut path, at).ok()?;
        let path = path.split(|&byte| byte == 0).next()?;
        std::fs::metadata(std::ffi::OsStr::from_bytes(path)).ok()
    };
    loader().is_some_and(|loader| (loader.dev(), loader.ino()) == (found.dev(), found.ino()))
}
