//! What the dynamic section of an ELF file (System V ABI, chapter 5) asks the loader for: libraries, and the
//! directories to look for them in.

use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::reach::{self, SCRIPTS_MAX};

/// Bounds of what is read of a file: a file that is larger in one of these is none of a linker's.
const HEADERS_MAX: u64 = 64;
const ENTRIES_MAX: u64 = 4096;
const TEXT_BYTES_MAX: u64 = 4096;

/// What the kernel reads of each script.
const SCRIPT_BYTES: u64 = 256;

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;

const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SONAME: u64 = 14;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// The start of the file names of those libraries that have to come first in a process (of GCC, and of Clang
/// with `-shared-libsan`): they replace functions of the C library, and end the program when another library
/// has been loaded before.
const SANITIZERS: &[&str] = &[
    "libasan.so",
    "libhwasan.so",
    "liblsan.so",
    "libtsan.so",
    "libclang_rt.asan",
    "libclang_rt.hwasan",
    "libclang_rt.lsan",
    "libclang_rt.tsan",
];

/// What an ELF file asks the loader for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dynamic {
    /// Libraries (`DT_NEEDED`), in the order of the file.
    pub needed: Vec<Vec<u8>>,
    /// `DT_SONAME`.
    pub soname: Option<Vec<u8>>,
    /// `DT_RPATH`: directories with a colon between them.
    pub rpath: Option<Vec<u8>>,
    /// `DT_RUNPATH`, which replaces the former.
    pub runpath: Option<Vec<u8>>,
}

/// A program header, as far as it is used.
struct Header {
    kind: u64,
    offset: u64,
    address: u64,
    bytes: u64,
}

impl Dynamic {
    /// Reads the dynamic section of a file of 64 bits. `read_at` fills a buffer from an offset on. `None` for
    /// what has none: another kind of file, or a program that is linked statically.
    ///
    /// # Errors
    /// Those of `read_at`, of which `UnexpectedEof` means that the file is none that a linker has made.
    pub fn read(read_at: &mut dyn FnMut(&mut [u8], u64) -> io::Result<()>) -> io::Result<Option<Self>> {
        let mut head = [0; 64];
        match read_at(&mut head, 0) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        // Of 64 bits, and little-endian.
        if !head.starts_with(b"\x7fELF\x02\x01") {
            return Ok(None);
        }
        let headers = headers(&head, read_at)?;
        let Some(section) = headers.iter().find(|header| header.kind == PT_DYNAMIC) else { return Ok(None) };
        let entries = entries(section, read_at)?;
        let Some(&(_, table)) = entries.iter().find(|(tag, _)| *tag == DT_STRTAB) else { return Ok(None) };
        // The table of texts is named by its address.
        let holds = |header: &&Header| {
            header.kind == PT_LOAD && table.checked_sub(header.address).is_some_and(|at| at < header.bytes)
        };
        let Some(segment) = headers.iter().find(holds) else { return Ok(None) };
        let texts = segment.offset.saturating_add(table - segment.address);
        let end = segment.offset.saturating_add(segment.bytes);
        let mut found = Self::default();
        for (tag, value) in entries {
            if !matches!(tag, DT_NEEDED | DT_SONAME | DT_RPATH | DT_RUNPATH) {
                continue;
            }
            let text = text(texts.saturating_add(value), end, read_at)?;
            match tag {
                DT_NEEDED => found.needed.push(text),
                DT_SONAME => found.soname = Some(text),
                DT_RPATH => found.rpath = Some(text),
                _ => found.runpath = Some(text),
            }
        }
        Ok(Some(found))
    }

    /// As [`Dynamic::read`], of the program that the kernel starts for a path: of a script, its interpreter.
    ///
    /// # Errors
    /// As there; those of opening it.
    pub fn of_program(path: &Path) -> io::Result<Option<Self>> {
        let mut path = path.to_owned();
        for _ in 0..=SCRIPTS_MAX {
            let file = reach::open(&path)?;
            if !file.metadata()?.is_file() {
                return Ok(None);
            }
            let mut start = Vec::new();
            (&file).take(SCRIPT_BYTES).read_to_end(&mut start)?;
            match reach::interpreter(&start) {
                Some(name) => path = name,
                None => return Self::read(&mut |buffer: &mut [u8], at: u64| file.read_exact_at(buffer, at)),
            }
        }
        Ok(None)
    }

    /// The library that has to be loaded before all others, if the program needs one: the run-time library of
    /// a sanitizer.
    #[must_use]
    pub fn sanitizer(&self) -> Option<&[u8]> {
        self.needed.iter().map(Vec::as_slice).find(|name| is_sanitizer(name))
    }
}

/// Whether a library, by its name or path, is the run-time library of a sanitizer.
#[must_use]
pub fn is_sanitizer(library: &[u8]) -> bool {
    let name = library.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    SANITIZERS.iter().any(|known| name.starts_with(known.as_bytes()))
}

/// A number of up to 8 bytes, little-endian; 0 beyond the end.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let mut whole = [0; 8];
    if let (Some(to), Some(from)) = (whole.get_mut(..size), bytes.get(at..at + size)) {
        to.copy_from_slice(from);
    }
    u64::from_le_bytes(whole)
}

fn headers(
    head: &[u8; 64],
    read_at: &mut dyn FnMut(&mut [u8], u64) -> io::Result<()>,
) -> io::Result<Vec<Header>> {
    let (at, size, count) = (number(head, 32, 8), number(head, 54, 2), number(head, 56, 2));
    let mut found = Vec::new();
    for nth in 0..count.min(HEADERS_MAX) {
        let mut header = [0; 56];
        read_at(&mut header, at.saturating_add(nth * size))?;
        found.push(Header {
            kind: number(&header, 0, 4),
            offset: number(&header, 8, 8),
            address: number(&header, 16, 8),
            bytes: number(&header, 32, 8),
        });
    }
    Ok(found)
}

/// Tags and values of a dynamic section, up to its end mark.
fn entries(
    section: &Header,
    read_at: &mut dyn FnMut(&mut [u8], u64) -> io::Result<()>,
) -> io::Result<Vec<(u64, u64)>> {
    let mut bytes = vec![0; (section.bytes / 16).min(ENTRIES_MAX) as usize * 16];
    read_at(&mut bytes, section.offset)?;
    let pairs = bytes.chunks_exact(16).map(|pair| (number(pair, 0, 8), number(pair, 8, 8)));
    Ok(pairs.take_while(|(tag, _)| *tag != 0).collect())
}

/// A text without its NUL, from an offset on; cut off at the end of its segment and at a bound.
fn text(at: u64, end: u64, read_at: &mut dyn FnMut(&mut [u8], u64) -> io::Result<()>) -> io::Result<Vec<u8>> {
    let mut text = vec![0; end.saturating_sub(at).min(TEXT_BYTES_MAX) as usize];
    read_at(&mut text, at)?;
    let length = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    text.truncate(length);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::Dynamic;

    /// An ELF file of one segment, whose dynamic section is at 256 and whose texts are at 512.
    fn file(entries: &[(u64, u64)], texts: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 512];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut put = |at: usize, value: u64, size: usize| {
            file[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
        };
        put(32, 64, 8);
        put(54, 56, 2);
        put(56, 2, 2);
        // PT_LOAD of the whole file at address 0x1000, and PT_DYNAMIC.
        for (at, kind, offset, address, bytes) in [(64, 1, 0, 0x1000, 4096), (120, 2, 256, 0x1100, 256)] {
            put(at, kind, 4);
            put(at + 8, offset, 8);
            put(at + 16, address, 8);
            put(at + 32, bytes, 8);
        }
        for (nth, (tag, value)) in entries.iter().enumerate() {
            put(256 + nth * 16, *tag, 8);
            put(264 + nth * 16, *value, 8);
        }
        file.extend_from_slice(texts);
        file.resize(8192, 0);
        file
    }

    fn read(file: &[u8]) -> io::Result<Option<Dynamic>> {
        Dynamic::read(&mut |buffer: &mut [u8], at: u64| {
            let at = usize::try_from(at).map_err(|_| io::ErrorKind::UnexpectedEof)?;
            let end = at.checked_add(buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            buffer.copy_from_slice(file.get(at..end).ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    #[test]
    fn libraries_and_directories_are_found() {
        let texts = b"\0libasan.so.8\0libb.so\0$ORIGIN/libs\0liba.so\0";
        let entries = [(1, 1), (1, 14), (29, 22), (14, 35), (5, 0x1200), (0, 0)];
        let found = read(&file(&entries, texts)).expect("it can be read").expect("it has one");
        assert_eq!(found.needed, [b"libasan.so.8".to_vec(), b"libb.so".to_vec()]);
        assert_eq!(found.runpath.as_deref(), Some(&b"$ORIGIN/libs"[..]));
        assert_eq!(found.soname.as_deref(), Some(&b"liba.so"[..]));
        assert_eq!(found.rpath, None);
        assert_eq!(found.sanitizer(), Some(&b"libasan.so.8"[..]));
    }

    #[test]
    fn what_is_no_elf_file_has_none() {
        assert_eq!(read(b"#!/bin/sh\n").expect("it can be read"), None);
        assert_eq!(read(&[0; 4096]).expect("it can be read"), None);
    }

    #[test]
    fn damaged_files_do_no_harm() {
        let whole = file(&[(1, 1), (29, u64::MAX), (5, 0x1200), (0, 0)], b"\0libb.so\0");
        for at in 0..512 {
            for value in [0, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                let _ = read(&damaged);
            }
        }
    }
}
