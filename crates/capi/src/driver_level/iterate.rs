//! Iterators.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::ffi::c_int;

use unvme_guide::session::QueueKind;

use super::queue;
use crate::abi::{KvIterate, KvIterateHandleInfo};
use crate::boundary::call;
use crate::handle;
use crate::operation;
use crate::pair::Iteration;
use crate::sdk_level::iterate_info;

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_nvme_iterate_read(number: u64, qid: c_int, it: *mut KvIterate) -> c_int {
    let read = |iteration: &mut Iteration<'_>| {
        let open = handle::get(number)?;
        operation::iterate_read(&open, queue(&open, qid, QueueKind::Sync)?, iteration)
    };
    // SAFETY: what kvnvme.h asks for.
    call(|| unsafe { Iteration::read(it, read) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_nvme_iterate_read_async(number: u64, qid: c_int, it: *mut KvIterate) -> c_int {
    let read = |iteration: &mut Iteration<'_>| {
        let open = handle::get(number)?;
        operation::iterate_read_async(&open, queue(&open, qid, QueueKind::Async)?, iteration)
    };
    // SAFETY: what kvnvme.h asks for.
    call(|| unsafe { Iteration::read(it, read) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_nvme_iterate_info(
    number: u64,
    info: *mut KvIterateHandleInfo,
    nr_handle: c_int,
) -> c_int {
    // SAFETY: what kvnvme.h asks for.
    call(|| unsafe { iterate_info(number, info, nr_handle) })
}
