//! Printing through C's own stream, in the order in which the program prints.
// UNSAFETY: `stdout` and `fwrite` are C's.
#![allow(unsafe_code)]

use std::ffi::c_void;

unsafe extern "C" {
    static stdout: *mut c_void;
    fn fwrite(data: *const c_void, size: usize, count: usize, stream: *mut c_void) -> usize;
}

/// Prints on stdout. What cannot be printed is lost, as with printf.
pub(crate) fn print(text: &str) {
    // SAFETY: the C library has set the stream up before main and keeps it; the text is as long as it says.
    unsafe {
        fwrite(text.as_ptr().cast(), 1, text.len(), stdout);
    }
}
