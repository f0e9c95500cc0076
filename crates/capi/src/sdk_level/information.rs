//! Devices and CPUs.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use unvme_guide::session::{Member, QueueKind};

use crate::abi::{MAX_CPU_CORES, NR_MAX_SSD};
use crate::boundary;
use crate::handle;
use crate::result::{Code, Failure, Result};
use crate::session;

/// `SYNC_IO_QUEUE` and `ASYNC_IO_QUEUE`.
const SYNC_QUEUE: c_int = 1;
const ASYNC_QUEUE: c_int = 2;
/// Most bytes of a log page: what NUMD of the original SDK can ask for.
const LOG_BYTES_MAX: u32 = 1 << 18;

#[inline]
pub(crate) fn device_info<T>(failure: T, number: u64, ask: impl FnOnce(&Member) -> Result<T>) -> T {
    boundary::value(failure, || ask(handle::get(number)?.member()))
}

#[unsafe(no_mangle)]
extern "C" fn kv_get_core_id() -> c_int {
    sched_getcpu() as c_int
}

/// Reads a log page into a program's buffer, which stays as it is on failure.
///
/// # Safety
/// `buffer` is null or has `bytes` bytes.
pub(crate) unsafe fn log_page(number: u64, id: u8, buffer: *mut c_void, bytes: u32) -> Result<()> {
    let open = handle::get(number)?;
    if buffer.is_null() || bytes == 0 || !bytes.is_multiple_of(4) || bytes > LOG_BYTES_MAX {
        let text = "a buffer of a multiple of 4 bytes, at most 256 KiB, is expected";
        return Err(Failure::new(Code::SDK_INVALID_PARAM, text));
    }
    // SAFETY: the caller's promise, and it is not null.
    let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), bytes as usize) };
    open.member().log_page(id, buffer).map_err(|e| Failure::from(e).into_io())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_get_log_page(
    number: u64,
    log_id: u8,
    buffer: *mut c_void,
    buffer_size: u32,
) -> c_int {
    // SAFETY: what kv_apis.h asks for.
    boundary::call(|| unsafe { log_page(number, log_id, buffer, buffer_size) })
}

/// The kind of queue a CPU has, as a number.
pub(crate) fn queue_type(number: u64, core_id: c_int) -> c_int {
    boundary::value(Code::IO.0, || {
        let open = handle::get(number)?;
        let kind = u32::try_from(core_id).ok().and_then(|cpu| open.member().queue_kind(cpu));
        match kind {
            Some(QueueKind::Sync) => Ok(SYNC_QUEUE),
            Some(QueueKind::Async) => Ok(ASYNC_QUEUE),
            None => Err(Failure::new(Code::IO, format!("CPU {core_id} has no queue to this device"))),
        }
    })
}

/// Writes handles where C wants them: their number, and they themselves.
///
/// # Safety
/// `count` points to an int and `array` to 64 handles.
unsafe fn hand_out(handles: &[u64], count: *mut c_int, array: *mut u64) {
    let handles = &handles[..handles.len().min(NR_MAX_SSD)];
    // SAFETY: the caller's promise; there are at most 64.
    unsafe {
        count.write(handles.len() as c_int);
        std::ptr::copy_nonoverlapping(handles.as_ptr(), array, handles.len());
    }
}

fn no_place() -> Failure {
    Failure::new(Code::SDK_INVALID_PARAM, "a place for the result is NULL")
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_get_devices_on_cpu(
    core_id: c_int,
    nr_device: *mut c_int,
    arr_handle: *mut u64,
) -> c_int {
    boundary::call(|| {
        if nr_device.is_null() || arr_handle.is_null() {
            return Err(no_place());
        }
        let cpu = u32::try_from(core_id).ok();
        let on_cpu = |member: &Arc<Member>| cpu.is_some_and(|cpu| member.queue_kind(cpu).is_some());
        let devices = session::sdk_devices().unwrap_or_default();
        let handles: Vec<u64> =
            devices.iter().filter(|(_, member)| on_cpu(member)).map(|(number, _)| *number).collect();
        // SAFETY: what kv_apis.h asks for; neither is null.
        unsafe { hand_out(&handles, nr_device, arr_handle) };
        if handles.is_empty() {
            return Err(Failure::new(Code::IO, format!("no device has a queue for CPU {core_id}")));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_get_device_handles(nr_device: *mut c_int, arr_handle: *mut u64) -> c_int {
    boundary::call(|| {
        if nr_device.is_null() || arr_handle.is_null() {
            return Err(no_place());
        }
        let devices = session::sdk_devices();
        let handles: Vec<u64> = devices.iter().flatten().map(|(number, _)| *number).collect();
        // SAFETY: what kv_apis.h asks for; neither is null.
        unsafe { hand_out(&handles, nr_device, arr_handle) };
        devices.map(|_| ())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_get_cpus_on_device(number: u64, nr_core: *mut c_int, arr_core: *mut c_int) -> c_int {
    boundary::call(|| {
        if nr_core.is_null() || arr_core.is_null() {
            return Err(no_place());
        }
        let cpus: Vec<c_int> = handle::get(number)?
            .member()
            .cpus()
            .iter()
            .map(|cpu| *cpu as c_int)
            .take(MAX_CPU_CORES)
            .collect();
        // SAFETY: what kv_apis.h asks for; neither is null, and there are at most 64.
        unsafe {
            nr_core.write(cpus.len() as c_int);
            std::ptr::copy_nonoverlapping(cpus.as_ptr(), arr_core, cpus.len());
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn kv_get_dev_idx_on_handle(number: u64) -> c_int {
    boundary::value(Code::SDK_INVALID_PARAM.0, || Ok(handle::get(number)?.member().index() as c_int))
}

/// Moves the thread to the next CPU whose queue to a device is of a kind.
fn move_to(device: c_int, kind: QueueKind) -> Result<bool> {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let devices = session::sdk_devices()?;
    let Some((_, member)) = usize::try_from(device).ok().and_then(|index| devices.get(index)) else {
        return Err(Failure::new(Code::SDK_INVALID_PARAM, format!("there is no device {device}")));
    };
    let cpus: Vec<u32> = member.cpus().into_iter().filter(|cpu| member.has_queue(*cpu, kind)).collect();
    let first = TURN.fetch_add(1, Ordering::Relaxed);
    for turn in 0..cpus.len() {
        let mut only = CpuSet::new();
        only.set(cpus[(first + turn) % cpus.len()] as usize);
        // A mask may name CPUs that this machine does not have: the next one, then.
        if sched_setaffinity(None, &only).is_ok() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[unsafe(no_mangle)]
extern "C" fn context_switch_async_to_sync(did: c_int) -> bool {
    boundary::value(false, || move_to(did, QueueKind::Sync))
}

#[unsafe(no_mangle)]
extern "C" fn context_switch_sync_to_async(did: c_int) -> bool {
    boundary::value(false, || move_to(did, QueueKind::Async))
}

#[unsafe(no_mangle)]
extern "C" fn kv_format_device(number: u64, erase_user_data: c_int) -> c_int {
    boundary::call(|| {
        let open = handle::get(number)?;
        open.member().format(erase_user_data != 0).map_err(|e| Failure::from(e).into_io())
    })
}
