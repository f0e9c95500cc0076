//! Errors as text, and the device's status.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};

use sdk::Status;
use unvme_guide::session::pair_status::OfPair;

use crate::boundary;
use crate::result::Code;

#[unsafe(no_mangle)]
extern "C" fn unvme_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[unsafe(no_mangle)]
extern "C" fn unvme_last_error() -> *const c_char {
    boundary::quietly(c"".as_ptr(), boundary::last_error)
}

#[unsafe(no_mangle)]
extern "C" fn unvme_last_status() -> u16 {
    boundary::last_status().raw()
}

#[unsafe(no_mangle)]
extern "C" fn unvme_result_name(result: c_int) -> *const c_char {
    Code(result).name().unwrap_or(c"unknown").as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_status_name(status: u16, buf: *mut c_char, size: usize) -> usize {
    boundary::quietly(0, || {
        let name = OfPair(Status::from_raw(status)).to_string();
        if !buf.is_null() && size > 0 {
            let bytes = name.len().min(size - 1);
            // SAFETY: unvme.h asks for `size` bytes; the last one written is the NUL.
            unsafe {
                std::ptr::copy_nonoverlapping(name.as_ptr(), buf.cast(), bytes);
                buf.add(bytes).write(0);
            }
        }
        name.len()
    })
}
