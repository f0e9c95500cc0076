//! Faults by script.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};

use sdk::Error;

use crate::boundary::call;
use crate::handle;
use crate::result::{Code, Failure, Result};

fn failure(error: Error) -> Failure {
    let code = match &error {
        Error::Argument(_) => Code::SDK_INVALID_PARAM,
        Error::Unsupported { .. } => Code::DD_UNSUPPORTED_CMD,
        Error::Device { status, .. } | Error::Claimed { status, .. } | Error::Ended { status, .. } => {
            Code::of_status(*status)
        }
        _ => Code::IO,
    };
    let status = error.status().unwrap_or_default();
    Failure { status, ..Failure::new(code, error.to_string()) }
}

fn invalid(text: &'static str) -> Failure {
    Failure::new(Code::SDK_INVALID_PARAM, text)
}

/// Rules as a program passes them.
///
/// # Safety
/// `text` is null or ends with a NUL.
unsafe fn rules<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(invalid("the rules are NULL"));
    }
    // SAFETY: the caller's promise, and it is not null.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| invalid("the rules are not UTF-8"))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_fault_add(number: u64, text: *const c_char, first: *mut u32) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        // SAFETY: what unvme.h asks for.
        let text = unsafe { rules(text) }?;
        if !first.is_null() && !first.is_aligned() {
            return Err(invalid("the place for the rule's number is not aligned"));
        }
        let added = open.member().device().add_faults(text).map_err(failure)?;
        if !first.is_null() {
            // SAFETY: what unvme.h asks for; it is neither null nor misaligned.
            unsafe { first.write(added.first) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn unvme_fault_clear(number: u64, id: u32) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        open.member().device().clear_faults((id != 0).then_some(id)).map_err(failure)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_fault_list(
    number: u64,
    buf: *mut c_char,
    size: usize,
    length: *mut usize,
) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        if length.is_null() || !length.is_aligned() || (buf.is_null() && size > 0) {
            return Err(invalid("a place for the result is NULL or not aligned"));
        }
        let text = open.member().device().faults().map_err(failure)?;
        if size > 0 {
            let bytes = text.len().min(size - 1);
            // SAFETY: unvme.h asks for `size` bytes; the last one written is the NUL.
            unsafe {
                std::ptr::copy_nonoverlapping(text.as_ptr(), buf.cast(), bytes);
                buf.add(bytes).write(0);
            }
        }
        // SAFETY: what unvme.h asks for; it is neither null nor misaligned.
        unsafe { length.write(text.len()) };
        Ok(())
    })
}
