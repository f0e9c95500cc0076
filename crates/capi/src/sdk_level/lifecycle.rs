//! Initialising and finalizing.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Write as _;

use unvme_guide::config::{ConfigFile, SdkConfig};

use crate::abi::KvSdk;
use crate::boundary;
use crate::configuration;
use crate::result::{Code, Failure, Result};
use crate::session::{self, Opened};

const INIT_FROM_JSON: c_int = 0;
const INIT_FROM_STR: c_int = 1;

fn not_open(text: String) -> Failure {
    Failure::new(Code::SDK_OPEN, text)
}

/// One line on stderr, where programs of the original SDK expect what happens at initialisation.
pub(crate) fn tell(text: &str) {
    print(&format!("unvme: {text}\n"));
}

/// Prints on stderr. What cannot be printed is lost: nothing fails because of it.
fn print(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// A path that C passed.
///
/// # Safety
/// `path` is null or NUL-terminated.
unsafe fn path(path: *const c_char) -> Result<String> {
    if path.is_null() {
        return Err(Failure::new(Code::SDK_OPEN, "the path of the configuration is NULL"));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(path) };
    Ok(bytes.to_str().map_err(|_| not_open("the path of the configuration is not UTF-8".into()))?.to_owned())
}

fn from_file(path: &str) -> Result<SdkConfig> {
    let (config, warnings) = SdkConfig::load(path).map_err(|e| not_open(e.to_string()))?;
    warnings.iter().for_each(|warning| tell(warning));
    Ok(config)
}

fn from_struct(opt: &KvSdk) -> Result<SdkConfig> {
    configuration::from_struct(opt).map_err(not_open)
}

/// # Safety
/// `option` is what `init_from` says it is.
unsafe fn init(init_from: c_int, option: *mut c_void) -> Result<()> {
    let opened = session::open_sdk(|| match init_from {
        // SAFETY: the caller's promise.
        INIT_FROM_JSON => from_file(&unsafe { path(option.cast()) }?),
        INIT_FROM_STR if option.is_null() || !option.cast::<KvSdk>().is_aligned() => {
            Err(not_open("the kv_sdk is NULL or not aligned".into()))
        }
        // SAFETY: the caller's promise, and it is neither null nor misaligned.
        INIT_FROM_STR => from_struct(unsafe { &*option.cast::<KvSdk>() }),
        other => Err(not_open(format!("init_from: expected 0 or 1, not {other}"))),
    })?;
    let (session, handles) = match opened {
        Opened::Already(session, handles) => {
            tell("the SDK is initialised already");
            (session, handles)
        }
        Opened::Now(session, handles) => {
            session.warnings().iter().for_each(|warning| tell(warning));
            show(session.config());
            (session, handles)
        }
    };
    let option = option.cast::<KvSdk>();
    if init_from == INIT_FROM_STR && !option.is_null() && option.is_aligned() {
        // SAFETY: as above; the program leaves it alone during the call.
        configuration::write_back(session.config(), &handles, unsafe { &mut *option });
    }
    Ok(())
}

fn show(config: &SdkConfig) {
    let cores = config.devices.iter().fold(0, |cores, device| cores | device.core_mask);
    let megabytes = (config.slab_bytes * config.devices.len() as u64 + config.app_memory_bytes) >> 20;
    print(&format!(
        "{}\nSDK: total hugemem size={megabytes}MB core_mask={cores:#x} shm_id={}\n",
        configuration::show(config),
        std::process::id()
    ));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_sdk_init(init_from: c_int, option: *mut c_void) -> c_int {
    boundary::call(|| {
        // SAFETY: what kv_apis.h asks for.
        unsafe { init(init_from, option) }.inspect_err(|failure| tell(&failure.describe()))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_sdk_init_with_spdk_opts(
    init_from: c_int,
    option: *mut c_void,
    _spdk_opts: *mut c_void,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { kv_sdk_init(init_from, option) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_sdk_load_option(opt: *mut KvSdk, json_path: *mut c_char) -> c_int {
    let done = boundary::call(|| {
        let load = || {
            if opt.is_null() || !opt.is_aligned() {
                return Err(not_open("the kv_sdk is NULL or not aligned".into()));
            }
            // SAFETY: what kv_apis.h asks for.
            let file = unsafe { path(json_path) }?;
            let file = ConfigFile::load(file).map_err(|e| not_open(e.to_string()))?;
            // SAFETY: it is neither null nor misaligned, and the program leaves it alone during the call.
            configuration::load(&file, unsafe { &mut *opt });
            Ok(())
        };
        load().inspect_err(|failure| tell(&failure.describe()))
    });
    if done == Code::SUCCESS.0 { 0 } else { -1 }
}

#[unsafe(no_mangle)]
extern "C" fn kv_sdk_finalize() -> c_int {
    boundary::call(|| {
        let left = session::close_sdk().inspect_err(|failure| tell(&failure.describe()))?;
        if left > 0 {
            tell(&format!("the SDK stays initialised: {left} more calls of kv_sdk_finalize() are to come"));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn kv_is_sdk_initialized() -> c_int {
    boundary::quietly(0, || c_int::from(session::sdk_is_open()))
}

#[unsafe(no_mangle)]
extern "C" fn kv_sdk_info() {
    boundary::quietly((), about);
}

/// A line about the library and the machine.
pub(crate) fn about() {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    print(&format!(
        "KV SDK info: version={}, os={}, kernel={}, processor={}, dpdk_version=none spdk_version=none\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        kernel.trim(),
        std::env::consts::ARCH,
    ));
}
