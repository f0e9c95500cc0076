//! What a device is and has.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU16, Ordering};

use crate::boundary::{call, value};
use crate::handle;
use crate::result::{Code, Failure, Result};
use crate::sdk_level::{device_info, log_page};

#[unsafe(no_mangle)]
extern "C" fn kv_nvme_get_io_queue_size(number: u64) -> u16 {
    device_info(0, number, |member| Ok(member.queue_depth() as u16))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_nvme_get_log_page(
    number: u64,
    log_id: u8,
    buffer: *mut c_void,
    buffer_size: u32,
) -> c_int {
    // SAFETY: what kvnvme.h asks for.
    call(|| unsafe { log_page(number, log_id, buffer, buffer_size) })
}

#[unsafe(no_mangle)]
extern "C" fn kv_nvme_format(number: u64, erase_user_data: c_int) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        open.member().format(erase_user_data != 0).map_err(|e| Failure::from(e).into_io())
    })
}

/// Does something with the count of a CPU.
fn count(number: u64, core_id: c_int, change: impl FnOnce(&AtomicU16) -> u16) -> u16 {
    value(0, || {
        let open = handle::get(number)?;
        let count: Result<&AtomicU16> =
            usize::try_from(core_id).ok().and_then(|cpu| open.counts.get(cpu)).ok_or_else(|| {
                Failure::new(Code::DD_INVALID_PARAM, format!("core_id: expected 0 to 63, not {core_id}"))
            });
        Ok(change(count?))
    })
}

#[unsafe(no_mangle)]
extern "C" fn kv_nvme_get_current_qd(number: u64, core_id: c_int) -> u16 {
    count(number, core_id, |count| count.load(Ordering::Relaxed))
}

#[unsafe(no_mangle)]
extern "C" fn kv_nvme_increase_current_qd(number: u64, core_id: c_int) -> u16 {
    count(number, core_id, |count| count.fetch_add(1, Ordering::Relaxed).wrapping_add(1))
}

#[unsafe(no_mangle)]
extern "C" fn kv_nvme_decrease_current_qd(number: u64, core_id: c_int) -> u16 {
    count(number, core_id, |count| count.fetch_sub(1, Ordering::Relaxed).wrapping_sub(1))
}
