//! How results become what C expects: a number, and `errno`.

use std::ffi::{c_char, c_int};

use libc::ssize_t;
use rustix::io::Errno;
use unvme_fs::Error;

/// A result here: what went wrong is an error number.
pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// Sets `errno`.
pub(crate) fn set(errno: Errno) {
    // SAFETY: the C library says where this thread's `errno` is.
    unsafe { *libc::__errno_location() = errno.raw_os_error() }
}

/// Sets `errno` to a number, which may be 0.
pub(crate) fn put(number: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = number }
}

/// This thread's `errno`.
pub(crate) fn get() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// What the C library has just said.
pub(crate) fn last() -> Errno {
    match get() {
        // It has failed, and has not said why.
        0 => Errno::IO,
        number => Errno::from_raw_os_error(number),
    }
}

/// What the file system says, as a number.
pub(crate) fn of<T>(result: unvme_fs::Result<T>) -> Result<T> {
    result.map_err(|e: Error| e.errno())
}

/// 0, or -1 and `errno`.
pub(crate) fn done(result: Result<()>) -> c_int {
    number(result.map(|()| 0))
}

/// A number, or -1 and `errno`.
pub(crate) fn number(result: Result<c_int>) -> c_int {
    result.unwrap_or_else(|errno| {
        set(errno);
        -1
    })
}

/// Bytes, or -1 and `errno`.
pub(crate) fn bytes(result: Result<usize>) -> ssize_t {
    match result {
        Ok(bytes) => bytes as ssize_t,
        Err(errno) => {
            set(errno);
            -1
        }
    }
}

/// A pointer, or the null pointer and `errno`.
pub(crate) fn pointer<T>(result: Result<*mut T>) -> *mut T {
    result.unwrap_or_else(|errno| {
        set(errno);
        std::ptr::null_mut()
    })
}

/// A C string, without its NUL.
///
/// # Safety
/// It stays as long as the result is used.
///
/// # Errors
/// EFAULT when there is none.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a [u8]> {
    let length = crate::memory::length(pointer)?;
    Ok(std::slice::from_raw_parts(pointer.cast(), length))
}
