//! Bringing devices up and shutting them down.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use unvme_guide::config::SdkConfig;

use crate::abi::KvNvmeIoOptions;
use crate::boundary::{call, quietly, value};
use crate::configuration;
use crate::handle;
use crate::result::{Code, Failure, Result};
use crate::sdk_level::{about, tell};
use crate::session;

/// Memory for values on their way, when they are not in memory of `kv_alloc`.
const SLAB_BYTES: u64 = 128 << 20;

fn invalid(text: impl Into<String>) -> Failure {
    Failure::new(Code::DD_INVALID_PARAM, text.into())
}

/// # Safety
/// `name` is null or NUL-terminated.
unsafe fn name_of(name: *const c_char) -> Result<String> {
    if name.is_null() {
        return Err(invalid("the name of the device is NULL"));
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    Ok(name.to_str().map_err(|_| invalid("the name of the device is not UTF-8"))?.to_owned())
}

#[unsafe(no_mangle)]
extern "C" fn kv_env_init(_process_mem_size_mb: u32) -> c_int {
    Code::SUCCESS.0
}

#[unsafe(no_mangle)]
extern "C" fn kv_env_init_with_spdk_opts(_opts: *mut c_void) -> c_int {
    Code::SUCCESS.0
}

fn init(name: String, options: &KvNvmeIoOptions, ssd_type: c_uint) -> Result<()> {
    let ssd_type = i32::try_from(ssd_type).unwrap_or(i32::MAX);
    let config = SdkConfig {
        ssd_type: configuration::ssd_type(ssd_type).map_err(invalid)?,
        slab_bytes: SLAB_BYTES,
        submit_retry: None,
        devices: vec![configuration::device(name.clone(), options)],
        ..SdkConfig::default()
    };
    session::open_driver(&name, config).map_err(|failure| {
        let code = if failure.code == Code::SDK_OPEN { Code::IO } else { failure.code };
        Failure { code, ..failure }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_nvme_init(
    bdf: *const c_char,
    options: *mut KvNvmeIoOptions,
    ssd_type: c_uint,
) -> c_int {
    call(|| {
        let init = || {
            // SAFETY: what kvnvme.h asks for.
            let name = unsafe { name_of(bdf) }?;
            if options.is_null() || !options.is_aligned() {
                return Err(invalid("the options are NULL or not aligned"));
            }
            // SAFETY: what kvnvme.h asks for, and they are neither null nor misaligned.
            init(name, &unsafe { options.read() }, ssd_type)
        };
        init().inspect_err(|failure| tell(&failure.describe()))
    })
}

#[unsafe(no_mangle)]
extern "C" fn kv_nvme_is_dd_initialized() -> c_int {
    quietly(0, || c_int::from(session::any_is_up()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_nvme_open(bdf: *const c_char) -> u64 {
    // SAFETY: what kvnvme.h asks for.
    value(0, || session::open_handle(&unsafe { name_of(bdf) }?))
}

#[unsafe(no_mangle)]
extern "C" fn kv_nvme_close(number: u64) -> c_int {
    call(|| handle::remove(number).map(drop))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_nvme_finalize(bdf: *mut c_char) -> c_int {
    // SAFETY: what kvnvme.h asks for.
    call(|| session::close_driver(&unsafe { name_of(bdf) }?))
}

#[unsafe(no_mangle)]
extern "C" fn kv_nvme_sdk_info() {
    quietly((), about);
}
