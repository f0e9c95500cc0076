//! The environment that other programs are given: what they need to go on with our files is in it.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::OnceLock;

use crate::loader::Told;
use crate::program::{self, Program};
use crate::{mount, place, slot, state, table};

/// A variable that other programs need to go on with our files.
struct Needed {
    text: CString,
    /// As this process has found it, if it has: as long as it says this, it is to say the other.
    found: Option<CString>,
    /// A program that is given none gets it.
    is_added: bool,
}

static NEEDED: OnceLock<Vec<Needed>> = OnceLock::new();

/// Remembers what programs need that are given another environment; `told` has other values there than here.
/// Before `main`.
pub(crate) fn note(told: Vec<(&str, Vec<u8>)>) {
    let text = |name: &str, value: &[u8]| CString::new([name.as_bytes(), b"=", value].concat()).ok();
    let found = |name: &str| text(name, &state::variable(name)?);
    let same = ["LD_PRELOAD", "UNVME_PRELOAD_SERVER", "UNVME_HOME"].into_iter().filter_map(|name| {
        let text = found(name)?;
        Some(Needed { found: Some(text.clone()), text, is_added: true })
    });
    let other = told.into_iter().filter_map(|(name, value)| {
        Some(Needed { text: text(name, &value)?, found: found(name), is_added: name == state::TEXT })
    });
    let _ = NEEDED.set(same.chain(other).collect());
}

fn name_of(text: &CStr) -> &[u8] {
    text.to_bytes().split(|&byte| byte == b'=').next().unwrap_or_default()
}

/// Who is to have what is handed over. Processes that come after it find the same words in their environment
/// when they are begun by ways that are not seen here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    /// This process, which becomes another program.
    Itself,
    /// A child that is about to be.
    Child,
}

impl Taker {
    fn word(self, pid: u32) -> String {
        match self {
            Self::Itself => format!("e{pid}"),
            Self::Child => format!("c{pid}"),
        }
    }
}

/// Whether this process is meant by a word.
pub(crate) fn is_taker(word: &str) -> bool {
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_pid().cast_unsigned());
    word == Taker::Itself.word(std::process::id()) || word == Taker::Child.word(parent)
}

/// The environment of another program.
pub(crate) struct Environment {
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Environment {
    /// As `execve` takes it.
    pub(crate) fn pointers(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }

    /// What a program is given, and what it needs to go on with our files. `connections` are descriptors.
    pub(crate) unsafe fn new(
        given: *const *const c_char,
        connections: &[(u32, c_int)],
        program: Option<&Program>,
        loader: &Told,
        taker: Taker,
    ) -> Self {
        let mut texts: Vec<CString> = Vec::new();
        let mut at = given;
        while !at.is_null() && !(*at).is_null() {
            let text = CStr::from_ptr(*at);
            let own = [state::HANDED, state::WORKING_DIRECTORY, program::OWN_PATH];
            if !own.iter().any(|name| name.as_bytes() == name_of(text)) {
                texts.push(text.to_owned());
            }
            at = at.add(1);
        }
        // A program that was given another environment has the folders all the same.
        for needed in NEEDED.get().into_iter().flatten() {
            match texts.iter_mut().find(|text| name_of(text) == name_of(&needed.text)) {
                None if needed.is_added => texts.push(needed.text.clone()),
                None => {}
                Some(there) if name_of(&needed.text) == b"LD_PRELOAD" => {
                    if let Some(both) = with_own_library(there, &needed.text) {
                        *there = both;
                    }
                }
                Some(there) if needed.found.as_ref() == Some(there) => *there = needed.text.clone(),
                Some(_) => {}
            }
        }
        loader.apply(&mut texts);
        let mut add = |name: &str, value: &[u8]| {
            if let Ok(text) = CString::new([name.as_bytes(), b"=", value].concat()) {
                texts.push(text);
            }
        };
        let memory = slot::descriptor_of_memory().unwrap_or(-1);
        let mut handed = format!("{memory},{},{}", mount::digests(), taker.word(std::process::id()));
        connections.iter().for_each(|(number, fd)| handed.push_str(&format!(",{number}:{fd}")));
        handed.push_str(&table::handed());
        add(state::HANDED, handed.as_bytes());
        if let Some(path) = place::handed() {
            add(state::WORKING_DIRECTORY, &path);
        }
        if let Some(path) = program.and_then(|program| program.own_path.as_ref()) {
            add(program::OWN_PATH, path);
        }
        let mut pointers: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        pointers.push(std::ptr::null());
        Self { _texts: texts, pointers }
    }
}

/// Puts this library before those that a program is to have; nothing, when it is among them.
fn with_own_library(given: &CStr, needed: &CStr) -> Option<CString> {
    const FILE: &[u8] = b"libunvme_preload.so";
    let libraries = |text: &CStr| text.to_bytes()[b"LD_PRELOAD=".len()..].to_vec();
    let is_own = |path: &[u8]| path.ends_with(FILE);
    let split = |&byte: &u8| byte == b':' || byte == b' ';
    let given = libraries(given);
    if given.split(split).any(is_own) {
        return None;
    }
    let needed = libraries(needed);
    let own = needed.split(split).find(|path| is_own(path))?;
    let colon: &[u8] = if given.is_empty() { b"" } else { b":" };
    CString::new([b"LD_PRELOAD=", own, colon, &given].concat()).ok()
}
