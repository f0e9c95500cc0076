//! Devices by name, and memory.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::time::Duration;

use sdk::Error;
use unvme_guide::config::{DeviceConfig, SdkConfig};

use crate::boundary::call;
use crate::configuration;
use crate::driver_level;
use crate::handle;
use crate::result::{Code, Failure, Result};
use crate::session::{self, Manner};

const SLAB_BYTES: u64 = 64 << 20;
const QUEUE_DEPTH: u32 = 64;

/// `unvme_options`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Options {
    size: usize,
    slab_bytes: u64,
    queue_depth: u32,
    command_ms: u32,
    cache: bool,
    poll: bool,
    interrupts: bool,
}

const _: () = assert!(size_of::<Options>() == 32 && std::mem::offset_of!(Options, interrupts) == 26);

/// What `unvme_options` says, defaults included.
struct Wanted {
    slab_bytes: u64,
    queue_depth: u32,
    command: Option<Duration>,
    cache: bool,
    poll: bool,
    interrupts: bool,
}

fn invalid(text: impl Into<String>) -> Failure {
    Failure::new(Code::SDK_INVALID_PARAM, text.into())
}

/// # Safety
/// `options` is null or points to what its first field says it has.
unsafe fn wanted(options: *const Options) -> Result<Wanted> {
    let none = Wanted {
        slab_bytes: SLAB_BYTES,
        queue_depth: QUEUE_DEPTH,
        command: None,
        cache: false,
        poll: false,
        interrupts: false,
    };
    if options.is_null() {
        return Ok(none);
    }
    if !options.is_aligned() {
        return Err(invalid("the unvme_options are not aligned"));
    }
    // SAFETY: the caller's promise: the first field is there in every version of the structure.
    let size = unsafe { (&raw const (*options).size).read() };
    if size != size_of::<Options>() {
        return Err(invalid(format!("unvme_options.size: expected {}, not {size}", size_of::<Options>())));
    }
    // Bytes, because a `bool` of a program may be any.
    // SAFETY: the caller's promise: it has the size it says it has.
    let [cache, poll, interrupts] = unsafe {
        [
            (&raw const (*options).cache).cast::<u8>().read(),
            (&raw const (*options).poll).cast::<u8>().read(),
            (&raw const (*options).interrupts).cast::<u8>().read(),
        ]
    };
    // SAFETY: as above.
    let [slab_bytes, queue_depth, command_ms] = unsafe {
        [
            (&raw const (*options).slab_bytes).read(),
            (&raw const (*options).queue_depth).read().into(),
            (&raw const (*options).command_ms).read().into(),
        ]
    };
    Ok(Wanted {
        slab_bytes: if slab_bytes == 0 { none.slab_bytes } else { slab_bytes },
        queue_depth: if queue_depth == 0 { none.queue_depth } else { queue_depth as u32 },
        command: (command_ms != 0).then(|| Duration::from_millis(command_ms)),
        cache: cache != 0,
        poll: poll != 0,
        interrupts: interrupts != 0,
    })
}

fn open(name: &str, kind: c_int, wanted: &Wanted) -> Result<u64> {
    let mut device = DeviceConfig::new(name);
    device.queue_depth = wanted.queue_depth;
    if wanted.poll {
        // CPU 0 submits and waits, CPU 1 only submits; neither thread nor queue needs to be on its CPU.
        (device.core_mask, device.sync_mask, device.cq_thread_mask) = (0b11, 0b01, 0);
    }
    let config = SdkConfig {
        cache: wanted.cache,
        slab_bytes: wanted.slab_bytes,
        ssd_type: configuration::ssd_type(kind).map_err(invalid)?,
        devices: vec![device],
        ..SdkConfig::default()
    };
    session::open_one(config, &Manner { command: wanted.command, interrupts: wanted.interrupts })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_open(
    name: *const c_char,
    ssd_type: c_int,
    options: *const c_void,
    handle: *mut u64,
) -> c_int {
    call(|| {
        if name.is_null() || handle.is_null() {
            return Err(invalid("the name of the device, or the place for its handle, is NULL"));
        }
        // SAFETY: what unvme.h asks for, and it is not null.
        let name = unsafe { CStr::from_ptr(name) }.to_str();
        let name = name.map_err(|_| invalid("the name of the device is not UTF-8"))?;
        // SAFETY: what unvme.h asks for.
        let opened = open(name, ssd_type, &unsafe { wanted(options.cast()) }?)?;
        // SAFETY: what unvme.h asks for, and it is not null.
        unsafe { handle.write(opened) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn unvme_close(handle: u64) -> c_int {
    call(|| session::close_one(handle))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_completion_fd(handle: u64, fd: *mut c_int) -> c_int {
    call(|| {
        let open = handle::get(handle)?;
        if fd.is_null() || !fd.is_aligned() {
            return Err(invalid("the place for the descriptor is NULL or not aligned"));
        }
        let descriptor = open.member().descriptor().map_err(|error| {
            let code = match error {
                Error::Unsupported { .. } => Code::DD_INVALID_QUEUE_TYPE,
                _ => Code::DD_NO_AVAILABLE_RESOURCE,
            };
            Failure::new(code, error.to_string())
        })?;
        // The device keeps the descriptor open until it is closed itself.
        // SAFETY: what unvme.h asks for; it is neither null nor misaligned.
        unsafe { fd.write(descriptor.as_raw_fd()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn unvme_alloc(bytes: usize, alignment: usize) -> *mut c_void {
    if alignment != 0 && !alignment.is_power_of_two() {
        return std::ptr::null_mut();
    }
    driver_level::alloc(bytes as u64, alignment)
}

#[unsafe(no_mangle)]
extern "C" fn unvme_free(memory: *mut c_void) {
    driver_level::free(memory);
}
