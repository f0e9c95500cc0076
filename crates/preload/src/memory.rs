//! Memory that a program points to: whether it is there. The kernel says EFAULT of memory that is not; here
//! it is touched, a byte of each page, by code whose faults lead to a "no" ([`recover`]).

use std::ffi::{c_char, c_void};

use rustix::io::Errno;

use crate::errno::Result;

const PAGE: usize = 4096;

#[cfg(target_arch = "x86_64")]
mod probe {
    // A fault between the first label and the last but one goes on at `unvme_probe_failed`. `lock or` with 0
    // changes nothing, also when another thread changes the byte.
    std::arch::global_asm!(
        ".pushsection .text.unvme_probe, \"ax\", @progbits",
        ".hidden unvme_probe_read",
        ".hidden unvme_probe_write",
        ".hidden unvme_probe_failed",
        ".globl unvme_probe_read",
        ".globl unvme_probe_write",
        ".globl unvme_probe_failed",
        "unvme_probe_read:",
        "mov cl, byte ptr [rdi]",
        "or rdi, 4095",
        "inc rdi",
        "cmp rdi, rsi",
        "jbe unvme_probe_read",
        "xor eax, eax",
        "ret",
        "unvme_probe_write:",
        "lock or byte ptr [rdi], 0",
        "or rdi, 4095",
        "inc rdi",
        "cmp rdi, rsi",
        "jbe unvme_probe_write",
        "xor eax, eax",
        "ret",
        "unvme_probe_failed:",
        "mov eax, 1",
        "ret",
        ".popsection",
    );

    unsafe extern "C" {
        /// Touches each page from the first byte to the last; 0, or 1 when one is not there.
        pub(super) fn unvme_probe_read(first: usize, last: usize) -> u32;
        pub(super) fn unvme_probe_write(first: usize, last: usize) -> u32;
        pub(super) fn unvme_probe_failed() -> u32;
    }
}

/// Nothing is touched elsewhere: only the first page is known not to be there.
#[cfg(not(target_arch = "x86_64"))]
mod probe {
    pub(super) unsafe extern "C" fn unvme_probe_read(_first: usize, _last: usize) -> u32 {
        0
    }

    pub(super) use unvme_probe_read as unvme_probe_write;
}

/// In a handler of a fault: has what has touched the memory say that it is not there. False when the fault is
/// somebody else's.
///
/// # Safety
/// `context` is what the kernel has given the handler.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn recover(context: *mut c_void) -> bool {
    let first = probe::unvme_probe_read as *const () as usize;
    let end = probe::unvme_probe_failed as *const () as usize;
    let at = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize];
    let is_probe = (first..end).contains(&(*at as usize));
    if is_probe {
        *at = end as i64;
    }
    is_probe
}

/// # Safety
/// None.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn recover(_context: *mut c_void) -> bool {
    false
}

/// Touches memory by a function of [`probe`].
#[inline]
fn check(
    pointer: *const c_void,
    bytes: usize,
    touch: unsafe extern "C" fn(usize, usize) -> u32,
) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let first = pointer as usize;
    // No process has the first page, nor does memory go round.
    let last = first.checked_add(bytes - 1).filter(|_| first >= PAGE).ok_or(Errno::FAULT)?;
    // SAFETY: what is there stays as it is, and a fault is recovered from.
    if unsafe { touch(first, last) } == 0 { Ok(()) } else { Err(Errno::FAULT) }
}

/// # Errors
/// EFAULT when there is a byte that cannot be read.
#[inline]
pub(crate) fn check_readable(pointer: *const c_void, bytes: usize) -> Result<()> {
    check(pointer, bytes, probe::unvme_probe_read)
}

/// # Errors
/// EFAULT when there is a byte that cannot be written.
#[inline]
pub(crate) fn check_writable(pointer: *const c_void, bytes: usize) -> Result<()> {
    check(pointer, bytes, probe::unvme_probe_write)
}

/// Bytes from the first one on that a probe finds.
#[inline]
fn prefix(
    pointer: *const c_void,
    bytes: usize,
    probe: fn(*const c_void, usize) -> Result<()>,
) -> Result<usize> {
    if probe(pointer, bytes).is_ok() { Ok(bytes) } else { prefix_by_pages(pointer, bytes, probe) }
}

#[cold]
fn prefix_by_pages(
    pointer: *const c_void,
    bytes: usize,
    probe: fn(*const c_void, usize) -> Result<()>,
) -> Result<usize> {
    let mut there = 0;
    while there < bytes {
        let at = pointer.wrapping_byte_add(there);
        match probe(at, 1) {
            Ok(()) => there = (there + PAGE - at as usize % PAGE).min(bytes),
            Err(errno) if there == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(there)
}

/// How many bytes can be read, from the first one on.
///
/// # Errors
/// EFAULT when not even the first one can be.
#[inline]
pub(crate) fn readable(pointer: *const c_void, bytes: usize) -> Result<usize> {
    prefix(pointer, bytes, check_readable)
}

/// How many bytes can be written to, from the first one on.
///
/// # Errors
/// EFAULT when not even the first one can be.
#[inline]
pub(crate) fn writable(pointer: *const c_void, bytes: usize) -> Result<usize> {
    prefix(pointer, bytes, check_writable)
}

/// Whether the arguments or the environment of a program can be read: an array of C strings that ends with a
/// null pointer, or none.
///
/// # Errors
/// EFAULT.
pub(crate) fn check_texts(texts: *const *const c_char) -> Result<()> {
    let mut at = texts;
    while !at.is_null() {
        check_readable(at.cast(), size_of::<*const c_char>())?;
        // SAFETY: it has just been read.
        let text = unsafe { at.read_unaligned() };
        if text.is_null() {
            break;
        }
        length(text)?;
        at = at.wrapping_add(1);
    }
    Ok(())
}

/// How many bytes a C string has, without its NUL.
///
/// # Errors
/// EFAULT when it leads to where nothing is.
pub(crate) fn length(text: *const c_char) -> Result<usize> {
    let mut length = 0;
    loop {
        let at = text.wrapping_add(length);
        check_readable(at.cast(), 1)?;
        let room = PAGE - at as usize % PAGE;
        // SAFETY: the rest of the page is there as its first byte is.
        let found = unsafe { libc::memchr(at.cast(), 0, room) };
        if !found.is_null() {
            return Ok(found as usize - text as usize);
        }
        length += room;
    }
}
