//! What happens before `main`, and after it.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::stdio::stderr;

use crate::config;
use crate::{gate, mount, place, slot, table};

/// The configuration file, as the slides have it.
const FILE: &str = "WRAPPER_CONFIG";

/// The same as text, for those who have no file.
const TEXT: &str = "UNVME_PRELOAD_CONFIG";

/// What one process tells the next one, which `exec` makes of it: the folders' process group, two
/// descriptors.
pub(crate) const HANDED: &str = "UNVME_PRELOAD_HANDED";

/// The virtual working directory at `exec`.
pub(crate) const WORKING_DIRECTORY: &str = "UNVME_PRELOAD_CWD";

static IS_ON: AtomicBool = AtomicBool::new(false);
static IS_FIRST: AtomicBool = AtomicBool::new(true);

/// The process that has done what is below.
static STARTED_BY: AtomicI32 = AtomicI32::new(0);

/// Whether any folder is wrapped.
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Whether no process before this one was started with the same configuration.
pub(crate) fn is_first() -> bool {
    IS_FIRST.load(Ordering::Relaxed)
}

/// Tells people something, in one line.
pub(crate) fn say(text: &str) {
    let line = format!("unvme: {text}\n");
    let _ = rustix::io::write(stderr(), line.as_bytes());
}

/// Ends the process, with a line that says why.
pub(crate) fn die(text: &str) -> ! {
    say(text);
    // SAFETY: it ends at once: nothing of it may run on.
    unsafe { libc::_exit(78) }
}

fn read_config() -> Result<Option<config::Config>, String> {
    if let Some(text) = std::env::var_os(TEXT) {
        return config::parse(&text.to_string_lossy(), TEXT).map(Some);
    }
    let Some(path) = std::env::var_os(FILE) else { return Ok(None) };
    let name = path.to_string_lossy().into_owned();
    if let Ok(whole) = std::path::absolute(&path)
        && whole != path
        && let Ok(whole) = CString::new(whole.into_os_string().into_vec())
    {
        // Programs that this one starts may be in another folder by then.
        // SAFETY: before `main` there is one thread.
        unsafe { libc::setenv(c"WRAPPER_CONFIG".as_ptr(), whole.as_ptr(), 1) };
    }
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{FILE}: {name}: {e}"))?;
    config::parse(&text, &name).map(Some)
}

fn start() -> Result<(), String> {
    let Some(config) = read_config()? else { return Ok(()) };
    mount::configure(config)?;
    if let Some(handed) = std::env::var_os(HANDED) {
        IS_FIRST.store(false, Ordering::Relaxed);
        let text = handed.to_string_lossy().into_owned();
        let mut numbers = text.split(',').map_while(|number| number.parse::<c_int>().ok());
        if let (Some(marks), Some(memory)) = (numbers.next(), numbers.next()) {
            slot::inherit(marks, memory);
        }
        IS_ON.store(true, Ordering::Relaxed);
        crate::process::inherit(text.split(',').skip(2));
    }
    crate::open::note_umask();
    place::start(std::env::var_os(WORKING_DIRECTORY).map(|path| path.as_bytes().to_vec()));
    IS_ON.store(true, Ordering::Relaxed);
    if is_first() {
        // A device that is missing is said now, and not in the middle.
        for mount in mount::all() {
            mount.ensure()?;
        }
    }
    table::inherit();
    crate::process::keep_inherited();
    crate::process::start();
    crate::stdio::start();
    Ok(())
}

extern "C" fn begin(_argc: c_int, _argv: *const *const c_char, _envp: *const *const c_char) {
    let inside = gate::enter();
    STARTED_BY.store(rustix::process::getpid().as_raw_pid(), Ordering::Relaxed);
    if let Err(e) = start() {
        die(&e);
    }
    drop(inside);
}

extern "C" fn end_in_order() {
    if is_on() {
        // The C library writes what its streams hold after this.
        // SAFETY: all streams, which it knows.
        unsafe { libc::fflush(std::ptr::null_mut()) };
    }
    end();
}

extern "C" fn end() {
    if is_on() {
        let _inside = gate::enter();
        mount::end_all();
    }
}

// SAFETY: the loader calls what is in these sections, with and without arguments, once.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;
// SAFETY: as above.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end_in_order;

exported! {
    /// A program that ends at once has its data on the device all the same.
    fn _exit(status: c_int) -> ! {
        end();
        leave(status)
    }

    fn _Exit(status: c_int) -> ! {
        end();
        leave(status)
    }
}

pub(crate) fn leave(status: c_int) -> ! {
    loop {
        // SAFETY: the C library's own has nothing more to do than this.
        unsafe { crate::real::syscall(libc::SYS_exit_group, status as usize, 0, 0, 0, 0, 0) };
    }
}

/// A variable of the environment of C, as it is now.
pub(crate) fn variable(name: &CStr) -> Option<Vec<u8>> {
    // SAFETY: the C library's own table; it is copied at once.
    unsafe {
        let found = libc::getenv(name.as_ptr());
        (!found.is_null()).then(|| CStr::from_ptr(found).to_bytes().to_vec())
    }
}
