//! Programs that no library can be loaded into before their own: their files cannot be ours.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How many interpreters of interpreters are looked at, as Linux does.
const SCRIPTS_MAX: usize = 5;

/// Why the loader takes no library from the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// There is no loader: it is linked statically.
    Static,
    /// It runs as another user or group: it is set-user-id.
    OtherUser,
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
        let file = File::open(&program).map_err(|e| named("open", e))?;
        let found = file.metadata().map_err(|e| named("inspect", e))?;
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let mode = found.mode();
        if mode & 0o4000 != 0 && found.uid() != uid || mode & 0o2010 == 0o2010 && found.gid() != gid {
            return Ok(Some((program, Unreachable::OtherUser)));
        }
        let mut start = Vec::new();
        (&file).take(4096).read_to_end(&mut start).map_err(|e| named("read", e))?;
        let Some(line) = start.strip_prefix(b"#!") else {
            let is_static = start.starts_with(b"\x7fELF") && !has_interpreter(&file, &start);
            return Ok(is_static.then_some((program, Unreachable::Static)));
        };
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii();
        let name = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
        program = PathBuf::from(std::ffi::OsStr::from_bytes(name));
    }
    Ok(None)
}

/// Whether the loader starts a program of 64 bits. What is no such program is for the kernel to refuse.
fn has_interpreter(file: &File, start: &[u8]) -> bool {
    const PROGRAM_HEADERS_MAX: u64 = 64;
    const PT_INTERP: u32 = 3;
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let mut whole = [0; 8];
        whole.get_mut(..bytes)?.copy_from_slice(start.get(at..at + bytes)?);
        Some(u64::from_le_bytes(whole))
    };
    let (Some(2), Some(at), Some(size), Some(count)) =
        (number(4, 1), number(32, 8), number(54, 2), number(56, 2))
    else {
        return true;
    };
    (0..count.min(PROGRAM_HEADERS_MAX)).any(|nth| {
        let mut kind = [0; 4];
        let place = at.saturating_add(nth.saturating_mul(size));
        file.read_exact_at(&mut kind, place).is_ok() && u32::from_le_bytes(kind) == PT_INTERP
    })
}
