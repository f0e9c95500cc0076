//! The identity of the process, and of threads that have another one.
//!
//! Linux keeps users and groups by thread. The C library's functions change those of all threads; `syscall`
//! changes those of the calling one, which Samba relies on. So the file system knows the identity of the
//! process, and a request of a thread with another identity carries that. A thread asks the kernel for its
//! effective user before each request on a path: one system call, which also finds what a program has changed
//! by instructions of its own. The file system user (`setfsuid`) differs only where the program has asked for
//! that through this library.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use unvme_fs::Credentials;
use unvme_fs::calls::Request;
use unvme_fs::share::{is_root_within_reach, stated_user};

use crate::gate;

/// In a thread's own words: no other user for the file system than the effective one.
pub(crate) const NONE: u32 = u32::MAX;

/// What a thread has found out about itself.
#[derive(Clone, Copy)]
struct Seen {
    /// [`CHANGES`] then.
    change: u32,
    /// Its effective user then.
    uid: u32,
    /// User and group for the file system, where the thread has set them.
    fs: (u32, u32),
    /// Its credentials where they differ from those of the process.
    acting: Option<&'static Credentials>,
}

thread_local! {
    static SEEN: Cell<Seen> =
        const { Cell::new(Seen { change: 0, uid: NONE, fs: (NONE, NONE), acting: None }) };
}

/// How often the identity of the process has changed, from 1 on.
static CHANGES: AtomicU32 = AtomicU32::new(1);
/// The identity of the process, as its file systems know it.
static PROCESS: Mutex<Option<Credentials>> = Mutex::new(None);
/// As which user the process was known before it last changed.
static STATED: AtomicU32 = AtomicU32::new(NONE);
/// Credentials of threads, which stay: a program has few of them.
static ACTING: Mutex<Vec<&'static Credentials>> = Mutex::new(Vec::new());

/// Whether any thread has had credentials of its own, or may have: as long as none has, a request on an open
/// file asks the kernel for nothing.
static IS_ANY_ACTING: AtomicBool = AtomicBool::new(false);

/// The calling thread's own credentials, from the kernel.
fn of_thread() -> Credentials {
    let groups = rustix::process::getgroups().unwrap_or_default();
    Credentials {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.into_iter().map(|group| group.as_raw()).collect(),
        are_checked: false,
    }
}

/// Before `main`.
pub(crate) fn start() {
    STATED.store(stated_user(), Ordering::Relaxed);
    *gate::leaf(&PROCESS) = Some(of_thread());
}

/// In whose name this process acts.
pub(crate) fn of_process() -> Credentials {
    let known = gate::leaf(&PROCESS).clone();
    // One that has given root up by itself cannot say that it is root any more.
    known.filter(|_| is_root_within_reach()).unwrap_or_else(of_thread)
}

/// The credentials of the calling thread, where they are not those of its process.
#[inline]
pub(crate) fn acting() -> Option<&'static Credentials> {
    let (uid, change) = (rustix::process::geteuid().as_raw(), CHANGES.load(Ordering::Acquire));
    // A thread that is about to end has no memory of its own any more.
    let seen = SEEN.try_with(Cell::get).ok()?;
    if seen.uid == uid && seen.change == change { seen.acting } else { look(change, seen.noted()) }
}

impl Seen {
    /// What the thread has set for itself since it last looked: a change of its effective user is one of its
    /// file system user, too.
    fn noted(&self) -> (u32, u32) {
        if self.change == 0 { self.fs } else { (NONE, NONE) }
    }
}

#[cold]
fn look(change: u32, fs: (u32, u32)) -> Option<&'static Credentials> {
    let mut own = of_thread();
    let uid = own.uid;
    if fs.0 != NONE {
        own.uid = fs.0;
    }
    if fs.1 != NONE {
        own.gid = fs.1;
    }
    let acting = if gate::leaf(&PROCESS).as_ref() == Some(&own) { None } else { Some(kept(own)) };
    let _ = SEEN.try_with(|seen| seen.set(Seen { change, uid, fs, acting }));
    acting
}

/// As [`acting`], for a request: most of those on open files do not depend on the caller.
#[inline]
pub(crate) fn acting_for(request: &Request<'_>) -> Option<&'static Credentials> {
    let is_any_acting = || IS_ANY_ACTING.load(Ordering::Relaxed);
    if is_of_user(request) || changes_content(request) && is_any_acting() { acting() } else { None }
}

/// Whether the result of a request depends on the caller: an open file is open to every user.
#[inline]
fn is_of_user(request: &Request<'_>) -> bool {
    !matches!(
        request,
        Request::Close { .. }
            | Request::Release { .. }
            | Request::CloseOne { .. }
            | Request::Read { .. }
            | Request::Write { .. }
            | Request::Append { .. }
            | Request::Allocate { .. }
            | Request::Seek { .. }
            | Request::Copy { .. }
            | Request::Sync { .. }
            | Request::SyncAll
            | Request::WriteBack { .. }
            | Request::Advise { .. }
            | Request::List { .. }
            | Request::Lock { .. }
            | Request::AwaitLock { .. }
            | Request::Unlock { .. }
            | Request::FindLock { .. }
            | Request::Flock { .. }
            | Request::Usage
            | Request::Path { .. }
    )
}

/// Whether a request may remove set-id bits of an open file: it depends on who asks whether it does.
#[inline]
fn changes_content(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Write { .. } | Request::Append { .. } | Request::Allocate { .. } | Request::Copy { .. }
    )
}

fn kept(credentials: Credentials) -> &'static Credentials {
    IS_ANY_ACTING.store(true, Ordering::Relaxed);
    let mut all = gate::leaf(&ACTING);
    if let Some(found) = all.iter().copied().find(|found| **found == credentials) {
        return found;
    }
    let kept: &'static Credentials = Box::leak(Box::new(credentials));
    all.push(kept);
    kept
}

/// The calling thread has other credentials from here on.
pub(crate) fn note_thread(fs: (u32, u32)) {
    IS_ANY_ACTING.store(true, Ordering::Relaxed);
    forget_seen(fs);
}

/// Has the calling thread ask the kernel again.
fn forget_seen(fs: (u32, u32)) {
    let _ = SEEN.try_with(|seen| seen.set(Seen { change: 0, uid: NONE, fs, acting: None }));
}

/// All threads of this process have another identity from here on. Returns whether it states itself as
/// another user to a server.
pub(crate) fn note_process() -> bool {
    forget_seen((NONE, NONE));
    *gate::leaf(&PROCESS) = Some(of_thread());
    CHANGES.fetch_add(1, Ordering::AcqRel);
    let stated = stated_user();
    STATED.swap(stated, Ordering::Relaxed) != stated
}

/// Whether the calling thread would state itself as another user than its process did last.
pub(crate) fn is_stated_otherwise() -> bool {
    STATED.load(Ordering::Relaxed) != stated_user()
}

/// Changes the user and the group that the calling thread has set for the file system.
pub(crate) fn note_fs(change: impl FnOnce((u32, u32)) -> (u32, u32)) {
    if let Ok(seen) = SEEN.try_with(Cell::get) {
        let is_known = seen.change == 0 || seen.change == CHANGES.load(Ordering::Acquire);
        note_thread(change(if is_known { seen.fs } else { (NONE, NONE) }));
    }
}
