//! Iterators.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::ffi::c_int;

use unvme_guide::session::{Prefix, QueueChoice};

use crate::abi::{KvIterate, KvIterateHandleInfo};
use crate::boundary;
use crate::handle;
use crate::operation;
use crate::pair::Iteration;
use crate::result::{Code, Failure, Result};

/// Opens an iterator; a failure is a number beside those of the iterators.
pub(crate) fn open(number: u64, keyspace: u8, bitmask: u32, prefix: u32, kind: u8) -> u32 {
    let mut iterator = 0;
    let code = boundary::call(|| {
        let open = handle::get(number)?;
        iterator = operation::iterate_open(&open, keyspace, Prefix { prefix, bitmask }, kind)?;
        Ok(())
    });
    if code == Code::SUCCESS.0 { iterator.into() } else { code as u32 }
}

/// The state of iterators, written where C wants it.
///
/// # Safety
/// `info` is null or has room for `count` entries.
pub(crate) unsafe fn info(number: u64, info: *mut KvIterateHandleInfo, count: c_int) -> Result<()> {
    let open = handle::get(number)?;
    if info.is_null() || !info.is_aligned() {
        let text = "the place for the result is NULL or not aligned";
        return Err(Failure::new(Code::SDK_INVALID_PARAM, text));
    }
    let Some(count) = usize::try_from(count).ok().filter(|count| *count <= 16) else {
        return Err(Failure::new(Code::DD_INVALID_PARAM, "nr_handle is not 1 to 16"));
    };
    // SAFETY: the caller's promise, and it is neither null nor misaligned.
    let entries = unsafe { std::slice::from_raw_parts_mut(info, count) };
    operation::iterate_info(&open, entries)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_iterate_read(number: u64, it: *mut KvIterate) -> c_int {
    let read = |iteration: &mut Iteration<'_>| {
        operation::iterate_read(&*handle::get(number)?, QueueChoice::Auto, iteration)
    };
    // SAFETY: what kv_apis.h asks for.
    boundary::call(|| unsafe { Iteration::read(it, read) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_iterate_read_async(number: u64, it: *mut KvIterate) -> c_int {
    let read = |iteration: &mut Iteration<'_>| {
        operation::iterate_read_async(&*handle::get(number)?, QueueChoice::Auto, iteration)
    };
    // SAFETY: what kv_apis.h asks for.
    boundary::call(|| unsafe { Iteration::read(it, read) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_iterate_info(
    number: u64,
    entries: *mut KvIterateHandleInfo,
    nr_handle: c_int,
) -> c_int {
    // SAFETY: what kv_apis.h asks for.
    boundary::call(|| unsafe { info(number, entries, nr_handle) })
}
