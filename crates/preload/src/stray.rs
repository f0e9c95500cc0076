//! Files that a program has made in the kernel's folder, past this library: by system calls of its own. It is
//! told at its end, with its name.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Dir, Mode, OFlags};

use crate::mount::{self, Mount};
use crate::{program, state};

/// The folders that were empty for the kernel when this process began, by their numbers.
static EMPTY: OnceLock<Vec<u32>> = OnceLock::new();

/// A name in the kernel's folder, which the kernel is asked for directly.
fn first(mount: &Mount) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(mount.folder.as_slice(), flags, Mode::empty()).ok()?;
    let names = Dir::new(folder).ok()?.flatten();
    let mut names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.find(|name| name != "." && name != "..")
}

/// Before `main`.
pub(crate) fn start() {
    let empty = mount::all().iter().filter(|mount| first(mount).is_none()).map(|mount| mount.number);
    let _ = EMPTY.set(empty.collect());
}

/// At the end of the process. Others may have made the files: it is this program if it has instructions for
/// system calls in it.
pub(crate) fn end() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if IS_DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    let was_empty = |mount: &&Mount| EMPTY.get().is_some_and(|empty| empty.contains(&mount.number));
    for mount in mount::all().iter().filter(was_empty) {
        if let Some(name) = first(mount)
            && makes_calls()
        {
            let own = program::own_path().map(|path| String::from_utf8_lossy(path).into_owned());
            let own = own.or_else(|| Some(std::env::current_exe().ok()?.display().to_string()));
            state::say(&format!(
                "{}: it makes system calls itself, and not by the C library: {name} is in {} of the kernel, \
                 and not on {}",
                own.unwrap_or_default(),
                String::from_utf8_lossy(&mount.folder),
                mount.config.device
            ));
        }
    }
}

/// Whether the program, or a library of its own, has instructions for system calls in it.
fn makes_calls() -> bool {
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
        /// Those of the C library, of the kernel (`linux-vdso`), and ours.
        const KNOWN: &[&str] = &["/libc.so", "/ld-linux", "linux-vdso", "/libpthread", "/libunvme_preload"];
        /// `syscall` of x86-64.
        const INSTRUCTION: [u8; 2] = [0x0f, 0x05];
        let info = &*info;
        if !info.dlpi_name.is_null() {
            let name = CStr::from_ptr(info.dlpi_name).to_string_lossy();
            if KNOWN.iter().any(|known| name.contains(known)) {
                return 0;
            }
        }
        const CODE: u32 = libc::PF_R | libc::PF_X;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        let is_code =
            |header: &&libc::Elf64_Phdr| header.p_type == libc::PT_LOAD && header.p_flags & CODE == CODE;
        let mut bytes = headers.iter().filter(is_code).map(|header| {
            let at = (info.dlpi_addr + header.p_vaddr) as *const u8;
            std::slice::from_raw_parts(at, header.p_filesz as usize)
        });
        bytes.any(|bytes| bytes.windows(2).any(|pair| pair == INSTRUCTION)).into()
    }
    // SAFETY: the loader shows what is mapped, and waits with changes meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(look), std::ptr::null_mut()) != 0 }
}
