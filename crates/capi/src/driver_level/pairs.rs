//! Pairs, on a queue of the caller's choice.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::ffi::c_int;

use unvme_guide::session::QueueKind::{Async, Sync};

use super::queue;
use crate::abi::KvPair;
use crate::boundary::call;
use crate::handle;
use crate::operation;
use crate::pair::Pair;

/// Defines functions of a handle, a queue and a pair.
macro_rules! pair_functions {
    ($($name:ident($pair:ty) $kind:ident $operation:ident $borrow:tt;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(number: u64, qid: c_int, kv: $pair) -> c_int {
            call(|| {
                let open = handle::get(number)?;
                // SAFETY: what kvnvme.h asks for.
                #[allow(unused_mut)]
                let mut pair = unsafe { Pair::copy(kv) }?;
                let queue = queue(&open, qid, $kind)?;
                operation::$operation(&open, queue, pair_functions!(@$borrow pair))
            })
        }
    )*};
    (@changed $pair:ident) => { &mut $pair };
    (@seen $pair:ident) => { &$pair };
}

pair_functions! {
    kv_nvme_write(*mut KvPair) Sync store changed;
    kv_nvme_read(*mut KvPair) Sync retrieve changed;
    kv_nvme_append(*mut KvPair) Sync append changed;
    kv_nvme_delete(*const KvPair) Sync delete seen;
    kv_nvme_exist(*const KvPair) Sync exist seen;
    kv_nvme_write_async(*mut KvPair) Async store_async seen;
    kv_nvme_read_async(*mut KvPair) Async retrieve_async seen;
    kv_nvme_delete_async(*const KvPair) Async delete_async seen;
    kv_nvme_exist_async(*const KvPair) Async exist_async seen;
}
