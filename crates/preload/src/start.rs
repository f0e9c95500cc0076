//! What happens before `main`, and after it.

use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::stdio::stderr;
use unvme_fs::calls::OpenId;

use crate::config;
use crate::{gate, mount, place, slot, table};

/// The configuration file, as the slides have it.
const FILE: &str = "WRAPPER_CONFIG";

/// The same as text, for those who have no file.
pub(crate) const TEXT: &str = "UNVME_PRELOAD_CONFIG";

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

/// A configuration, and the file that it is from.
type Read = (config::Config, Option<PathBuf>);

fn read_config() -> Result<Option<Read>, String> {
    let file = std::env::var_os(FILE).map(|path| std::path::absolute(&path).unwrap_or(path.into()));
    if let Some(text) = std::env::var_os(TEXT) {
        let text = text.to_string_lossy();
        // One that was made of another file than the one that is named now is not meant.
        let is_meant = match (config::made_of(&text), &file) {
            (Some(from), Some(file)) => from == file,
            _ => true,
        };
        if is_meant {
            return config::parse(&text, TEXT).map(|config| Some((config, file)));
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
    let text = config.to_text(from).map(|text| (TEXT, text.into_bytes()));
    let file = from.map(|from| (FILE, from.as_os_str().as_bytes().to_vec()));
    text.into_iter().chain(file).collect()
}

/// What the process before this one has handed over, if it is of this configuration; the files that it had
/// open.
fn inherit() -> HashMap<u32, OpenId> {
    let Some(handed) = std::env::var_os(HANDED) else { return HashMap::new() };
    let text = handed.to_string_lossy().into_owned();
    let mut words = text.split(',');
    let (marks, memory, folders) = (words.next(), words.next(), words.next());
    let own = mount::digests();
    // Folders have the same numbers, when those of this process begin with those.
    if !folders.is_some_and(|folders| format!("{own};").starts_with(&format!("{folders};"))) {
        return HashMap::new();
    }
    IS_FIRST.store(false, Ordering::Relaxed);
    let number = |word: Option<&str>| word.and_then(|word| word.parse::<c_int>().ok()).unwrap_or(-1);
    slot::inherit(number(marks), number(memory));
    IS_ON.store(true, Ordering::Relaxed);
    crate::process::inherit(words.clone());
    table::parse_handed(words)
}

fn start() -> Result<(), String> {
    let Some((config, from)) = read_config()? else { return Ok(()) };
    mount::configure(config)?;
    crate::environment::note(told_config(from.as_deref()));
    let had = inherit();
    crate::open::note_umask();
    crate::limit::note();
    place::start(std::env::var_os(WORKING_DIRECTORY).map(|path| path.as_bytes().to_vec()));
    IS_ON.store(true, Ordering::Relaxed);
    // A device that is missing is said now, and not in the middle.
    for mount in mount::all().iter().filter(|_| is_first()) {
        mount.ensure()?;
    }
    crate::signals::start();
    let _inside = gate::enter();
    table::inherit(&had);
    crate::process::keep_inherited();
    crate::process::start();
    crate::stdio::start();
    Ok(())
}

extern "C" fn begin(_argc: c_int, _argv: *const *const c_char, _envp: *const *const c_char) {
    let inside = gate::among_ourselves();
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
    if is_on() && !gate::is_inside() {
        let _inside = gate::among_ourselves();
        mount::end_all();
        table::end();
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

/// A variable of the environment. Programs may have a `getenv` of their own: shells do.
pub(crate) fn variable(name: &str) -> Option<Vec<u8>> {
    std::env::var_os(name).map(|value| value.as_bytes().to_vec())
}
