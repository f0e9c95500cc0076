//! Who is in a call right now: so that what he uses is given up later, and so that all can be kept out while
//! a file system changes hands.
//!
//! Each thread counts itself on a line of its own, in one of two counters. Whoever gives something up puts it
//! aside, has new calls count in the other counter, and drops it when the first one is 0.

use std::cell::Cell;
use std::ffi::c_int;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use unvme::lock::{lock, read, write};

const STRIPES: usize = 64;

#[repr(align(128))]
struct Stripe([AtomicU32; 2]);

static GATE: [Stripe; STRIPES] = [const { Stripe([AtomicU32::new(0), AtomicU32::new(0)]) }; STRIPES];
static EPOCH: AtomicUsize = AtomicUsize::new(0);
static IS_CLOSED: AtomicBool = AtomicBool::new(false);
/// The program has threads canceled.
static HAS_CANCELS: AtomicBool = AtomicBool::new(false);
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Which stripe is this thread's, from 1 on.
    static OWN: Cell<usize> = const { Cell::new(0) };
    /// How many calls it is in: a signal may come in the middle of one, and our own work makes some.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// It is one of our own.
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
    /// What it makes is another program: a server, or one that was given a connection already.
    static MAKES_OTHERS: Cell<bool> = const { Cell::new(false) };
    /// `errno` before the outermost call.
    static ERRNO: Cell<c_int> = const { Cell::new(0) };
}

/// A thread is in a call as long as it has this.
pub(crate) struct Inside {
    stripe: usize,
    epoch: usize,
}

fn own() -> usize {
    OWN.with(|own| {
        if own.get() == 0 {
            own.set(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES + 1);
        }
        own.get() - 1
    })
}

/// Whether this thread is in a call already: what it asks for is the C library's.
pub(crate) fn is_inside() -> bool {
    DEPTH.with(|depth| depth.get() > 0)
}

/// Whether what this thread does right now is our own business, and not the program's.
pub(crate) fn is_ours() -> bool {
    is_inside() || IS_OWN.get()
}

/// This thread is one of our own.
pub(crate) fn note_own_thread() {
    IS_OWN.set(true);
}

/// Makes a process that has nothing of our files.
pub(crate) fn as_other<R>(act: impl FnOnce() -> R) -> R {
    let before = MAKES_OTHERS.replace(true);
    let done = act();
    MAKES_OTHERS.set(before);
    done
}

/// Whether this thread is in the middle of [`as_other`].
pub(crate) fn makes_others() -> bool {
    MAKES_OTHERS.get()
}

pub(crate) fn has_cancels() -> bool {
    HAS_CANCELS.load(Ordering::Acquire)
}

/// From now on whoever enters looks whether he is canceled.
pub(crate) fn expect_cancels() {
    HAS_CANCELS.store(true, Ordering::Release);
}

/// What succeeds leaves `errno` alone, whatever our own work has met: see [`leave`].
#[inline]
fn note_errno() {
    if !is_inside() {
        ERRNO.set(crate::errno::get());
        crate::errno::begin();
    }
}

/// Enters a call.
#[inline]
pub(crate) fn enter() -> Inside {
    if HAS_CANCELS.load(Ordering::Relaxed) && !is_inside() {
        crate::cancel::look();
    }
    note_errno();
    let depth = DEPTH.with(|depth| depth.replace(depth.get() + 1));
    let stripe = own();
    loop {
        let epoch = EPOCH.load(Ordering::Relaxed) & 1;
        // SeqCst, with that of `close`: either the count is seen there, or the closed gate here.
        GATE[stripe].0[epoch].fetch_add(1, Ordering::SeqCst);
        if depth > 0 || !IS_CLOSED.load(Ordering::SeqCst) {
            return Inside { stripe, epoch };
        }
        GATE[stripe].0[epoch].fetch_sub(1, Ordering::Release);
        while IS_CLOSED.load(Ordering::Acquire) {
            nap(50);
        }
        if has_cancels() {
            crate::cancel::put_off();
        }
    }
}

/// Sleeps, where a thread must not be canceled.
fn nap(micros: i64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: micros * 1000 };
    // SAFETY: a time that is there. The C library's own function would be a place to be canceled at.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, 0_usize) };
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        GATE[self.stripe].0[self.epoch].fetch_sub(1, Ordering::Release);
        leave();
    }
}

/// What this thread asks for is the C library's, as in a call; but it uses nothing that others may give up,
/// and nobody waits for it.
pub(crate) struct AmongOurselves(());

pub(crate) fn among_ourselves() -> AmongOurselves {
    note_errno();
    DEPTH.with(|depth| depth.set(depth.get() + 1));
    AmongOurselves(())
}

impl Drop for AmongOurselves {
    fn drop(&mut self) {
        leave();
    }
}

/// One call less that this thread is in.
#[inline]
fn leave() {
    let left = DEPTH.with(Cell::get) - 1;
    if left > 0 {
        DEPTH.with(|depth| depth.set(left));
        return;
    }
    if !crate::errno::is_set() {
        crate::errno::put(ERRNO.get());
    }
    // What was held back until here is this call's to let go of: a handler that runs from here on may make
    // calls of its own.
    let held = crate::signals::take_held();
    compiler_fence(Ordering::SeqCst);
    DEPTH.with(|depth| depth.set(0));
    compiler_fence(Ordering::SeqCst);
    // One that comes before that line is held back and found here; one that comes after it runs.
    let held = held | crate::signals::take_held();
    if held != 0 {
        crate::signals::release(held);
    }
}

fn count(epoch: usize) -> u32 {
    GATE.iter().map(|stripe| stripe.0[epoch].load(Ordering::SeqCst)).sum()
}

/// No handler of a signal runs in this thread as long as somebody has this: it could ask for what is held.
pub(crate) struct Quiet(());

/// Nobody enters meanwhile.
fn quiet() -> Quiet {
    note_errno();
    DEPTH.with(|depth| depth.set(depth.get() + 1));
    Quiet(())
}

impl Drop for Quiet {
    fn drop(&mut self) {
        leave();
    }
}

/// A lock that is taken for a moment, also by who is not inside; for `fork` see `process`.
pub(crate) struct Leaf<G> {
    guard: G,
    _quiet: Quiet,
}

impl<G: Deref> Deref for Leaf<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Leaf<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

pub(crate) fn leaf<T>(mutex: &Mutex<T>) -> Leaf<MutexGuard<'_, T>> {
    let quiet = quiet();
    Leaf { guard: lock(mutex), _quiet: quiet }
}

pub(crate) fn leaf_read<T>(one: &RwLock<T>) -> Leaf<RwLockReadGuard<'_, T>> {
    let quiet = quiet();
    Leaf { guard: read(one), _quiet: quiet }
}

pub(crate) fn leaf_write<T>(one: &RwLock<T>) -> Leaf<RwLockWriteGuard<'_, T>> {
    let quiet = quiet();
    Leaf { guard: write(one), _quiet: quiet }
}

/// What was given up, and may still be in use.
type Aside = Vec<Box<dyn Send>>;

/// First what waits for the other counter, then what came since.
static ASIDE: Mutex<(Aside, Aside)> = Mutex::new((Vec::new(), Vec::new()));

/// Puts something aside that is dropped when nobody who may have found it before is still in a call. Who does
/// this is in one.
pub(crate) fn put_aside(gone: Box<dyn Send>) {
    lock(&ASIDE).1.push(gone);
}

/// Drops what can be dropped of what was put aside: everything, if nobody is in a call.
pub(crate) fn sweep() {
    // Not inside, or there would always be somebody.
    let _quiet = quiet();
    let mut aside = lock(&ASIDE);
    let mut dropped = Vec::new();
    // Twice: what has just come waits for those who entered before the first change.
    for _ in 0..2 {
        let now = EPOCH.load(Ordering::Relaxed) & 1;
        if count(now ^ 1) > 0 {
            break;
        }
        dropped.append(&mut aside.0);
        aside.0 = std::mem::take(&mut aside.1);
        EPOCH.store(now ^ 1, Ordering::SeqCst);
    }
    if count((EPOCH.load(Ordering::Relaxed) & 1) ^ 1) == 0 {
        dropped.append(&mut aside.0);
    }
    // Before others can find nothing left: what is dropped may write to the device.
    drop(dropped);
    drop(aside);
}

/// Drops all that was put aside: nobody is inside.
pub(crate) fn drop_aside(_closed: &Closed) {
    let (first, second) = std::mem::take(&mut *lock(&ASIDE));
    drop((first, second));
}

/// The gate is closed as long as somebody has this.
pub(crate) struct Closed(());

/// Keeps everybody out who is not inside yet. Whoever has done so before is waited for.
fn shut() -> Closed {
    while IS_CLOSED.swap(true, Ordering::SeqCst) {
        nap(20);
    }
    note_errno();
    // Who closes it goes on, and is at most in what nobody waits for.
    DEPTH.with(|depth| depth.set(depth.get() + 1));
    Closed(())
}

fn is_anybody_inside() -> bool {
    count(0) + count(1) > 0
}

/// Keeps everybody out, and waits until nobody is inside.
pub(crate) fn close() -> Closed {
    let closed = shut();
    while is_anybody_inside() {
        nap(20);
    }
    closed
}

/// As [`close`], and gives up when somebody is inside after so many looks, which are some 20 us from each
/// other.
pub(crate) fn close_within(looks: u64) -> Option<Closed> {
    let closed = shut();
    for _ in 0..looks {
        if !is_anybody_inside() {
            return Some(closed);
        }
        nap(20);
    }
    None
}

impl Drop for Closed {
    fn drop(&mut self) {
        IS_CLOSED.store(false, Ordering::SeqCst);
        leave();
    }
}

/// Nobody else gives anything up as long as somebody has this: see `process`.
pub(crate) fn still() -> Box<dyn std::any::Any> {
    Box::new(lock(&ASIDE))
}

/// In a process that `fork` has made there is one thread, which has closed the gate.
pub(crate) fn forget_others() {
    for stripe in &GATE {
        stripe.0.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
    DEPTH.with(|depth| depth.set(1));
}
