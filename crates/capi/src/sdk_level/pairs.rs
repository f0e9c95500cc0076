//! Pairs.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::ffi::c_int;

use rustix::thread::sched_getcpu;
use unvme_guide::session::QueueChoice;

use crate::abi::{KvPair, MAX_CPU_CORES};
use crate::boundary::{call, quietly};
use crate::handle;
use crate::operation;
use crate::pair::Pair;
use crate::result::{Code, Failure};

/// Defines functions of a handle and a pair.
macro_rules! pair_functions {
    ($($name:ident($pair:ty) $operation:ident $borrow:tt;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(number: u64, kv: $pair) -> c_int {
            call(|| {
                let open = handle::get(number)?;
                // SAFETY: what kv_apis.h asks for.
                #[allow(unused_mut)]
                let mut pair = unsafe { Pair::copy(kv) }?;
                operation::$operation(&open, QueueChoice::Auto, pair_functions!(@$borrow pair))
            })
        }
    )*};
    (@changed $pair:ident) => { &mut $pair };
    (@seen $pair:ident) => { &$pair };
}

pair_functions! {
    kv_store(*mut KvPair) store changed;
    kv_retrieve(*mut KvPair) retrieve changed;
    kv_delete(*mut KvPair) delete seen;
    kv_exist(*mut KvPair) exist seen;
    kv_store_async(*mut KvPair) store_async seen;
    kv_retrieve_async(*mut KvPair) retrieve_async seen;
    kv_delete_async(*mut KvPair) delete_async seen;
    kv_exist_async(*mut KvPair) exist_async seen;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_append(number: u64, kv: *mut KvPair) -> c_int {
    call(|| {
        handle::get(number)?;
        // SAFETY: what kv_apis.h asks for.
        unsafe { Pair::copy(kv) }?;
        Err(Failure::new(Code::DD_UNSUPPORTED_CMD, "kv_append() is not offered; unvme_append() is"))
    })
}

/// Completes what has ended on the queue of a CPU, or on all queues.
pub(crate) fn process_completions(number: u64, cpu: Option<u32>) {
    quietly((), || {
        if let Ok(open) = handle::get(number) {
            let here = |cpu| if cpu < MAX_CPU_CORES as u32 { cpu } else { sched_getcpu() as u32 };
            open.member().process_completions(cpu.map(here));
        }
    });
}
