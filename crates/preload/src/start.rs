//! What happens before `main`, and after it.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};
use unvme_fs::calls::OpenId;

use crate::config;
use crate::{gate, mount, place, slot, state, table};

/// The configuration file, as the slides have it.
const FILE: &str = "WRAPPER_CONFIG";

/// A configuration, and the file that it is from.
type Read = (config::Config, Option<PathBuf>);

fn read_config() -> Result<Option<Read>, String> {
    let file = std::env::var_os(FILE).map(|path| std::path::absolute(&path).unwrap_or(path.into()));
    if let Some(text) = std::env::var_os(state::TEXT) {
        let text = text.to_string_lossy();
        // One that was made of another file than the one that is named now is not meant.
        let is_meant = match (config::made_of(&text), &file) {
            (Some(from), Some(file)) => from == file,
            _ => true,
        };
        if is_meant {
            return config::parse(&text, state::TEXT).map(|config| Some((config, file)));
        }
    }
    let Some(path) = file else { return Ok(None) };
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{FILE}: {}: {e}", path.display()))?;
    let name = path.display().to_string();
    config::parse(&text, &name).map(|config| Some((config, Some(path))))
}

/// What programs that this one starts are told, who may be in another folder by then: variables, with their
/// values here and there.
fn told_config(from: Option<&Path>) -> Vec<(&'static str, Vec<u8>)> {
    let mut config = mount::config();
    // This process does it.
    config.folders.iter_mut().for_each(|folder| folder.format = false);
    let text = config.to_text(from).map(|text| (state::TEXT, text.into_bytes()));
    let file = from.map(|from| (FILE, from.as_os_str().as_bytes().to_vec()));
    text.into_iter().chain(file).collect()
}

/// What the process before this one has handed over, if it is of this configuration; the files that it had
/// open. `None` for who is not the one that it was handed to, and has its descriptors all the same.
fn inherit() -> Option<HashMap<u32, OpenId>> {
    let Some(handed) = std::env::var_os(state::HANDED) else { return Some(HashMap::new()) };
    let text = handed.to_string_lossy().into_owned();
    let mut words = text.split(',');
    let (memory, folders) = (words.next(), words.next());
    let own = mount::digests();
    // Folders have the same numbers, when those of this process begin with those.
    if !folders.is_some_and(|folders| format!("{own};").starts_with(&format!("{folders};"))) {
        return Some(HashMap::new());
    }
    state::note_earlier();
    slot::inherit(memory.and_then(|word| word.parse::<c_int>().ok()).unwrap_or(-1));
    state::turn_on();
    if !words.next().is_some_and(crate::environment::is_taker) {
        return None;
    }
    crate::process::inherit(words.clone());
    Some(table::parse_handed(words))
}

/// The smallest stack that calls on a folder can be made on, also those that mount its file system.
const STACK_MIN: u64 = 256 << 10;

/// # Errors
/// The limit of the stack is too low: a call could overflow it, and end the program by SIGSEGV.
fn check_stack() -> Result<(), String> {
    match getrlimit(Resource::Stack).current {
        Some(limit) if limit < STACK_MIN => Err(format!(
            "the limit of the stack (ulimit -s) is {} KiB; with files in a folder a program needs {} KiB",
            limit >> 10,
            STACK_MIN >> 10
        )),
        _ => Ok(()),
    }
}

fn start() -> Result<(), String> {
    crate::loader::restore();
    crate::libraries::start();
    let Some((config, from)) = read_config()? else { return Ok(()) };
    check_stack()?;
    mount::configure(config)?;
    crate::stray::start();
    crate::identity::start();
    crate::environment::note(told_config(from.as_deref()));
    let had = inherit();
    crate::open::note_umask();
    crate::limit::note();
    place::start(std::env::var_os(state::WORKING_DIRECTORY).map(|path| path.as_bytes().to_vec()));
    state::turn_on();
    // A device that is missing is said now, and not in the middle.
    for mount in mount::all().iter().filter(|_| state::is_first()) {
        mount.ensure()?;
    }
    // Whoever mounts it again has not to make it again.
    state::note_earlier();
    crate::signals::start();
    let _inside = gate::enter();
    match &had {
        Some(had) => {
            table::inherit(had);
            crate::process::keep_inherited();
        }
        None => table::adopt(),
    }
    crate::process::start();
    // SAFETY: a function that stays as long as the process.
    unsafe { __cxa_at_quick_exit(at_quick_exit, std::ptr::null_mut()) };
    crate::stdio::start();
    Ok(())
}

extern "C" fn begin(_argc: c_int, _argv: *const *const c_char, _envp: *const *const c_char) {
    let inside = gate::among_ourselves();
    if let Err(e) = start() {
        state::die(&e);
    }
    drop(inside);
}

extern "C" fn end_in_order() {
    if state::is_on() {
        // The C library writes what its streams hold after this.
        // SAFETY: all streams, which it knows.
        unsafe { libc::fflush(std::ptr::null_mut()) };
    }
    end();
}

extern "C" fn end() {
    if state::is_on() && !gate::is_inside() {
        let _inside = gate::among_ourselves();
        crate::stray::end();
        mount::end_all();
        table::end();
    }
}

/// The last that `quick_exit` does: the C library ends the process by a call of its own.
unsafe extern "C" fn at_quick_exit(_: *mut c_void) {
    end();
}

unsafe extern "C" {
    fn __cxa_at_quick_exit(act: unsafe extern "C" fn(*mut c_void), of: *mut c_void) -> c_int;
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
        state::leave(status)
    }

    fn _Exit(status: c_int) -> ! {
        end();
        state::leave(status)
    }
}
