//! The program that is run, and whether a library can be loaded before its others.

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::exit::usage;

/// How many interpreters of interpreters are looked at, as Linux does.
const SCRIPTS_MAX: usize = 5;

/// The file of a program, as a shell finds it.
pub(super) fn find(program: &OsStr) -> Result<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return Ok(path.to_owned());
    }
    let places = env::var_os("PATH").unwrap_or_default();
    let is_program = |file: &PathBuf| {
        file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let found = env::split_paths(&places).map(|place| place.join(path)).find(is_program);
    found.ok_or_else(|| usage(format!("{}: there is no such program in $PATH", path.display())))
}

/// Refuses what the library would not be loaded into: its files would be in the folder, and not on the
/// device.
pub(super) fn check(program: &Path) -> Result<()> {
    let mut program = program.to_owned();
    for _ in 0..SCRIPTS_MAX {
        let file = File::open(&program).with_context(|| format!("open {}", program.display()))?;
        let found = file.metadata().with_context(|| format!("inspect {}", program.display()))?;
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let mode = found.mode();
        if mode & 0o4000 != 0 && found.uid() != uid || mode & 0o2010 == 0o2010 && found.gid() != gid {
            return Err(usage(format!(
                "{}: it runs as another user, so no library can be loaded before its own: its files would not be on \
                 the device",
                program.display()
            )));
        }
        let mut start = Vec::new();
        let mut head = (&file).take(4096);
        head.read_to_end(&mut start).with_context(|| format!("read {}", program.display()))?;
        if let Some(line) = start.strip_prefix(b"#!") {
            let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
            let interpreter = String::from_utf8_lossy(line).trim().to_owned();
            let name = interpreter.split_whitespace().next().unwrap_or_default();
            program = PathBuf::from(name);
            continue;
        }
        if start.starts_with(b"\x7fELF") && !has_interpreter(&file, &start) {
            return Err(usage(format!(
                "{}: it is linked statically, so no library can be loaded before its own: its files would not be on \
                 the device",
                program.display()
            )));
        }
        return Ok(());
    }
    Ok(())
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
