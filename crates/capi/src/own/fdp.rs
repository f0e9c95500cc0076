//! Flexible Data Placement.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use sdk::fdp::PlacementId;
use sdk::{Error, WriteOptions};
use unvme_guide::config::SsdType;
use unvme_guide::session::QueueChoice;

use super::blocks::{self, invalid};
use crate::boundary::call;
use crate::completion::BlockCallback;
use crate::handle;
use crate::result::{Code, Failure, Result};

/// `unvme_fdp_handle`.
#[repr(C)]
struct FdpHandle {
    placement: u16,
    ruhid: u16,
    seconds_left: u32,
    blocks_left: u64,
}

const _: () = assert!(size_of::<FdpHandle>() == 16 && std::mem::offset_of!(FdpHandle, blocks_left) == 8);

/// `unvme_fdp_stats`.
#[repr(C)]
struct FdpStats {
    host_bytes: u64,
    media_bytes: u64,
    erased_bytes: u64,
}

const _: () = assert!(size_of::<FdpStats>() == 24);

/// What the header says of counters that have more bits than the program's.
fn counted(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn failure(error: Error) -> Failure {
    match &error {
        Error::Device { status, .. } | Error::Claimed { status, .. } | Error::Ended { status, .. } => {
            Failure { status: *status, ..Failure::new(Code::of_status(*status), error.to_string()) }
        }
        Error::Unsupported { .. } => Failure::new(Code::DD_UNSUPPORTED_CMD, error.to_string()),
        _ => Failure::new(Code::IO, error.to_string()),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_fdp_status(
    number: u64,
    handles: *mut FdpHandle,
    room: usize,
    count: *mut usize,
) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        open.require(SsdType::Lba)?;
        if count.is_null() || !count.is_aligned() {
            return Err(invalid("the place for the count is NULL or not aligned"));
        }
        if room > 0 && (handles.is_null() || !handles.is_aligned()) {
            return Err(invalid("the place for the handles is NULL or not aligned"));
        }
        let found = open.member().handles(QueueChoice::Auto)?;
        for (index, status) in found.iter().take(room).enumerate() {
            let handle = FdpHandle {
                placement: status.placement.0,
                ruhid: status.ruhid.0,
                seconds_left: status.seconds_left,
                blocks_left: status.blocks_left,
            };
            // SAFETY: what unvme.h asks for: there is room for so many; it is neither null nor misaligned.
            unsafe { handles.add(index).write(handle) };
        }
        // SAFETY: what unvme.h asks for; it is neither null nor misaligned.
        unsafe { count.write(found.len()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_fdp_stats_get(number: u64, stats: *mut FdpStats) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        if stats.is_null() || !stats.is_aligned() {
            return Err(invalid("the place for the result is NULL or not aligned"));
        }
        let read = open.member().device().fdp().and_then(|fdp| fdp.statistics()).map_err(failure)?;
        let found = FdpStats {
            host_bytes: counted(read.host_bytes),
            media_bytes: counted(read.media_bytes),
            erased_bytes: counted(read.erased_bytes),
        };
        // SAFETY: what unvme.h asks for; it is neither null nor misaligned.
        unsafe { stats.write(found) };
        Ok(())
    })
}

/// The placement identifiers of a program, copied.
///
/// # Safety
/// `placements` is null or has `count` numbers.
unsafe fn listed(placements: *const u16, count: usize) -> Result<Vec<PlacementId>> {
    if placements.is_null() || !placements.is_aligned() || count == 0 {
        return Err(invalid("the placement identifiers are NULL, not aligned or none"));
    }
    if count > 1 << 16 {
        return Err(invalid("more placement identifiers than there are numbers for them"));
    }
    // SAFETY: the caller's promise; it is neither null nor misaligned.
    Ok(unsafe { std::slice::from_raw_parts(placements, count) }.iter().copied().map(PlacementId).collect())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_fdp_update(number: u64, placements: *const u16, count: usize) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        open.require(SsdType::Lba)?;
        // SAFETY: what unvme.h asks for.
        let placements = unsafe { listed(placements, count) }?;
        Ok(open.member().update_handles(QueueChoice::Auto, &placements)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_write_placed(
    number: u64,
    lba: u64,
    blocks: u64,
    buf: *const c_void,
    placement: u16,
) -> c_int {
    // SAFETY: what unvme.h asks for.
    unsafe { blocks::write(number, lba, blocks, buf, WriteOptions::placed(PlacementId(placement))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_write_placed_async(
    number: u64,
    lba: u64,
    blocks: u32,
    buf: *const c_void,
    placement: u16,
    callback: Option<BlockCallback>,
    arg: *mut c_void,
) -> c_int {
    let options = WriteOptions::placed(PlacementId(placement));
    // SAFETY: what unvme.h asks for.
    unsafe { blocks::write_async(number, (lba, blocks), buf, options, (callback, arg)) }
}
