//! Memory that a device can reach.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_ulonglong, c_void};
use std::ptr::null_mut;

use crate::boundary::quietly;
use crate::memory;

/// Zeroed memory, or NULL.
pub(crate) fn alloc(bytes: c_ulonglong, alignment: usize) -> *mut c_void {
    quietly(null_mut(), || {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        memory::alloc(bytes, alignment).map_or(null_mut(), |address| address.as_ptr().cast())
    })
}

#[unsafe(no_mangle)]
extern "C" fn kv_alloc(size: c_ulonglong) -> *mut c_void {
    alloc(size, 0)
}

#[unsafe(no_mangle)]
extern "C" fn kv_zalloc(size: c_ulonglong) -> *mut c_void {
    alloc(size, 0)
}

#[unsafe(no_mangle)]
extern "C" fn kv_zalloc_socket(size: c_ulonglong, _socket_id: c_int) -> *mut c_void {
    alloc(size, 0)
}

/// Frees what [`alloc`] gave; NULL and anything else stay what they are.
pub(crate) fn free(memory: *mut c_void) {
    quietly((), || {
        memory::free(memory.cast());
    });
}

#[unsafe(no_mangle)]
extern "C" fn kv_free(ptr: *mut c_void) {
    free(ptr);
}
