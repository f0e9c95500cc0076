//! Functions that `kv_apis.h` and `kvnvme.h` have alike, each under a name of its own.
// UNSAFETY: functions that C calls.
#![allow(unsafe_code)]

use std::ffi::c_int;

use crate::abi::ERR_INVALID_VALUE;
use crate::boundary::call;
use crate::handle;
use crate::operation;
use crate::sdk_level::{device_info, iterate_open, process_completions, queue_type};

macro_rules! twins {
    ($($sdk:ident, $driver:ident($($name:ident: $type:ty),*) -> $result:ty $body:block)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $sdk($($name: $type),*) -> $result $body

        #[unsafe(no_mangle)]
        extern "C" fn $driver($($name: $type),*) -> $result $body
    )*};
}

twins! {
    kv_get_total_size, kv_nvme_get_total_size(number: u64) -> u64 {
        device_info(ERR_INVALID_VALUE, number, |member| Ok(member.total_bytes()))
    }
    kv_get_used_size, kv_nvme_get_used_size(number: u64) -> u64 {
        device_info(ERR_INVALID_VALUE, number, |member| Ok(member.used()?))
    }
    kv_get_waf, kv_nvme_get_waf(number: u64) -> u64 {
        device_info(ERR_INVALID_VALUE, number, |member| Ok(member.waf_tenths()?.into()))
    }
    kv_get_sector_size, kv_nvme_get_sector_size(number: u64) -> u32 {
        device_info(0, number, |member| Ok(member.sector_bytes()))
    }
    kv_get_num_sectors, kv_nvme_get_num_sectors(number: u64) -> u64 {
        device_info(ERR_INVALID_VALUE, number, |member| Ok(member.sectors()))
    }
    kv_io_queue_type, kv_nvme_io_queue_type(number: u64, core_id: c_int) -> c_int {
        queue_type(number, core_id)
    }
    kv_process_completion, kv_nvme_process_completion(number: u64) -> () {
        process_completions(number, None);
    }
    kv_process_completion_queue, kv_nvme_process_completion_queue(number: u64, queue_id: u32) -> () {
        process_completions(number, Some(queue_id));
    }
    kv_iterate_open, kv_nvme_iterate_open(
        number: u64, keyspace: u8, bitmask: u32, prefix: u32, iterate_type: u8
    ) -> u32 {
        iterate_open(number, keyspace, bitmask, prefix, iterate_type)
    }
    kv_iterate_close, kv_nvme_iterate_close(number: u64, iterator: u8) -> c_int {
        call(|| operation::iterate_close(&*handle::get(number)?, iterator))
    }
}
