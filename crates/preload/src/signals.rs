//! Handlers of signals: none runs in the middle of a call. It could ask for what the call holds, or leave it
//! by `siglongjmp`.
//!
//! The kernel is given [`arrive`] in the place of a program's handler. When it comes in the middle of a call,
//! it blocks the signal and sends it to this thread once more; who leaves the call unblocks it. So the kernel
//! keeps what waits, and gives it to the handler with everything it had at first: the mask, the stack, the
//! flags. What says that the program itself is wrong (`SIGSEGV` and its like) does not wait.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use libc::{
    SA_NODEFER, SA_RESETHAND, SA_RESTART, SA_SIGINFO, SIG_DFL, SIG_ERR, SIG_IGN, sigaction as Action,
};

use crate::gate;

mod behind {
    use super::*;

    functions! {
        fn pthread_create(
            out: *mut libc::pthread_t, how: *const libc::pthread_attr_t, run: Run, argument: *mut c_void,
        ) -> c_int;
        fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int;
    }
}

/// What a thread does.
type Run = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

/// Signals of Linux are 1 to 64.
const SIGNALS: usize = 65;

/// What the program wants to be called.
struct Wanted {
    handler: AtomicUsize,
    /// Those of its flags that the kernel is not given.
    flags: AtomicI32,
}

static WANTED: [Wanted; SIGNALS] =
    [const { Wanted { handler: AtomicUsize::new(0), flags: AtomicI32::new(0) } }; SIGNALS];

/// Signals that end what waits: `siginterrupt`.
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

/// What is not handed on to the kernel as it is.
const OWN_FLAGS: c_int = SA_SIGINFO | SA_RESETHAND;

thread_local! {
    /// Signals that have come in the middle of a call, and are blocked until it ends: a bit for each.
    static HELD: Cell<u64> = const { Cell::new(0) };
    /// Handlers that have run and that let nothing go on that waits.
    static INTERRUPTED: Cell<u32> = const { Cell::new(0) };
    /// What comes runs at once.
    static IS_PROMPT: Cell<bool> = const { Cell::new(false) };
}

/// The bit of a signal that is the C library's own: cancellation was put off.
const PUT_OFF: u64 = 1 << 31;

fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// Whether a handler waits for the end of a call. Others are of mistakes in the middle of it, or ends.
fn is_held_back(signal: c_int) -> bool {
    !matches!(
        signal,
        libc::SIGSEGV
            | libc::SIGBUS
            | libc::SIGFPE
            | libc::SIGILL
            | libc::SIGTRAP
            | libc::SIGSYS
            | libc::SIGABRT
            | libc::SIGKILL
            | libc::SIGSTOP
    ) && (1..SIGNALS as c_int).contains(&signal)
}

unsafe fn change_mask(how: c_int, signals: u64) {
    libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const signals, 0_usize, size_of::<u64>());
}

/// What the kernel calls.
unsafe extern "C-unwind" fn arrive(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if gate::is_inside() && !IS_PROMPT.get() && hold_back(signal, info, context) {
        return;
    }
    let wanted = &WANTED[signal as usize];
    let (handler, flags) = (wanted.handler.load(Ordering::Acquire), wanted.flags.load(Ordering::Acquire));
    if flags & SA_RESETHAND != 0 {
        let mut default: Action = std::mem::zeroed();
        default.sa_sigaction = SIG_DFL;
        behind::sigaction(signal, &default, std::ptr::null_mut());
    }
    if flags & SA_RESTART == 0 {
        INTERRUPTED.set(INTERRUPTED.get().wrapping_add(1));
    }
    // SAFETY: the program has said that it is one. Who expects one argument does not look at the others.
    let handler: unsafe extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
        std::mem::transmute(handler);
    handler(signal, info, context);
}

/// Signals of faults, which say of memory that a program points to that it is not there.
const FAULTS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// What the kernel calls at a fault, whatever the program wants to be called.
unsafe extern "C-unwind" fn arrive_at_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if crate::memory::recover(context) {
        return;
    }
    let wanted = &WANTED[signal as usize];
    let handler = wanted.handler.load(Ordering::Acquire);
    let resets = wanted.flags.load(Ordering::Acquire) & SA_RESETHAND != 0;
    if [SIG_DFL, SIG_IGN].contains(&handler) || resets {
        // A fault that is returned from comes again, and does then what it does without us.
        let mut plain: Action = std::mem::zeroed();
        let was_sent = (*info).si_code <= 0;
        plain.sa_sigaction = if was_sent && !resets { handler } else { SIG_DFL };
        behind::sigaction(signal, &plain, std::ptr::null_mut());
        if !resets {
            if was_sent {
                send_again(signal, info);
            }
            return;
        }
        wanted.handler.store(SIG_DFL, Ordering::Release);
    }
    // SAFETY: the program has said that it is one. Who expects one argument does not look at the others.
    let handler: unsafe extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
        std::mem::transmute(handler);
    handler(signal, info, context);
}

/// Has faults come here first. Before `main`.
pub(crate) fn start() {
    for signal in FAULTS {
        // SAFETY: plain data, and a function that stays.
        unsafe {
            let (mut own, mut found): (Action, Action) = (std::mem::zeroed(), std::mem::zeroed());
            own.sa_sigaction = arrive_at_fault as *const () as usize;
            own.sa_flags = SA_SIGINFO | libc::SA_ONSTACK | SA_NODEFER;
            if behind::sigaction(signal, std::ptr::null(), &mut found) == 0
                && [SIG_DFL, SIG_IGN].contains(&found.sa_sigaction)
            {
                WANTED[signal as usize].handler.store(found.sa_sigaction, Ordering::Release);
                behind::sigaction(signal, &own, std::ptr::null_mut());
            }
        }
    }
}

/// What a program wants to be called at a fault.
unsafe fn act_at_fault(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    let own = arrive_at_fault as *const () as usize;
    let wanted = &WANTED[signal as usize];
    let known = (wanted.handler.load(Ordering::Acquire), wanted.flags.load(Ordering::Acquire));
    let mut found: Action = std::mem::zeroed();
    let mut done = behind::sigaction(signal, std::ptr::null(), &mut found);
    if done == 0 && !new.is_null() {
        let mut given = std::ptr::read(new);
        wanted.handler.store(given.sa_sigaction, Ordering::Release);
        wanted.flags.store(given.sa_flags, Ordering::Release);
        if [SIG_DFL, SIG_IGN].contains(&given.sa_sigaction) {
            given.sa_flags |= libc::SA_ONSTACK;
        }
        given.sa_sigaction = own;
        given.sa_flags = given.sa_flags & !OWN_FLAGS | SA_SIGINFO;
        done = behind::sigaction(signal, &given, std::ptr::null_mut());
    }
    if done == 0 && !old.is_null() {
        if found.sa_sigaction == own {
            found.sa_sigaction = known.0;
            found.sa_flags = known.1;
        }
        std::ptr::write(old, found);
    }
    done
}

/// Sends a signal to this thread once more, with everything it had at first; whether that was possible.
unsafe fn send_again(signal: c_int, info: *mut libc::siginfo_t) -> bool {
    let (process, thread) = (rustix::process::getpid(), rustix::thread::gettid());
    let numbers = (process.as_raw_pid(), thread.as_raw_pid());
    libc::syscall(libc::SYS_rt_tgsigqueueinfo, numbers.0, numbers.1, signal, info) == 0
}

/// Has the kernel keep a signal until the call in whose middle it has come is left.
unsafe fn hold_back(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) -> bool {
    let before = crate::errno::get();
    change_mask(libc::SIG_BLOCK, bit(signal));
    let is_sent = send_again(signal, info);
    if is_sent {
        // The mask after the return: it stays blocked.
        let mask = &raw mut (*context.cast::<libc::ucontext_t>()).uc_sigmask;
        libc::sigaddset(mask, signal);
        HELD.set(HELD.get() | bit(signal));
    }
    crate::errno::put(before);
    is_sent
}

/// What has come in the middle of calls, for [`release`].
#[inline]
pub(crate) fn take_held() -> u64 {
    let held = HELD.get();
    if held != 0 {
        HELD.set(0);
    }
    held
}

/// The outermost call of this thread has been left: what has come meanwhile is handled before this returns.
#[cold]
pub(crate) fn release(held: u64) {
    let before = crate::errno::get();
    // A handler need not come back.
    if held & PUT_OFF != 0 {
        crate::cancel::allow();
    }
    if held & !PUT_OFF != 0 {
        // SAFETY: the mask is this thread's, and held signals were not blocked when they came.
        unsafe { change_mask(libc::SIG_UNBLOCK, held & !PUT_OFF) };
    }
    crate::errno::put(before);
}

fn let_go() {
    let held = take_held();
    if held != 0 {
        release(held);
    }
}

/// Cancellation is put off until the call is left.
pub(crate) fn note_put_off() {
    HELD.set(HELD.get() | PUT_OFF);
}

/// How many handlers have run in this thread that end what waits.
pub(crate) fn interruptions() -> u32 {
    INTERRUPTED.get()
}

/// While this is there, signals are handled where they come: the program may be another one at its end.
pub(crate) struct Prompt(bool);

pub(crate) fn promptly() -> Prompt {
    let before = IS_PROMPT.replace(true);
    let_go();
    Prompt(before)
}

impl Drop for Prompt {
    fn drop(&mut self) {
        IS_PROMPT.set(self.0);
    }
}

/// What a thread of our own does.
struct Own {
    run: Run,
    argument: *mut c_void,
}

unsafe extern "C" fn run_own(own: *mut c_void) -> *mut c_void {
    gate::note_own_thread();
    let Own { run, argument } = *Box::from_raw(own.cast::<Own>());
    run(argument)
}

unsafe fn act(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    if crate::state::is_on() && FAULTS.contains(&signal) {
        return act_at_fault(signal, new, old);
    }
    if !crate::state::is_on() || !is_held_back(signal) {
        return behind::sigaction(signal, new, old);
    }
    let wanted = &WANTED[signal as usize];
    let known = (wanted.handler.load(Ordering::Acquire), wanted.flags.load(Ordering::Acquire));
    let mut new = new;
    let mut given: Action;
    if !new.is_null() {
        given = std::ptr::read(new);
        if ![SIG_DFL, SIG_IGN].contains(&given.sa_sigaction) {
            // Before the kernel calls it.
            wanted.handler.store(given.sa_sigaction, Ordering::Release);
            wanted.flags.store(given.sa_flags, Ordering::Release);
            given.sa_sigaction = arrive as *const () as usize;
            given.sa_flags = given.sa_flags & !OWN_FLAGS | SA_SIGINFO;
        }
        new = &given;
    }
    let mut found: Action = std::mem::zeroed();
    let done = behind::sigaction(signal, new, &mut found);
    if done == 0 && !old.is_null() {
        if found.sa_sigaction == arrive as *const () as usize {
            found.sa_sigaction = known.0;
            found.sa_flags = found.sa_flags & !OWN_FLAGS | known.1 & OWN_FLAGS;
        }
        std::ptr::write(old, found);
    }
    done
}

/// As the functions that take a handler alone: what was there before.
unsafe fn set(signal: c_int, handler: usize, flags: c_int, is_masked: bool) -> usize {
    let (mut new, mut old): (Action, Action) = (std::mem::zeroed(), std::mem::zeroed());
    new.sa_sigaction = handler;
    new.sa_flags = flags;
    libc::sigemptyset(&mut new.sa_mask);
    if is_masked {
        libc::sigaddset(&mut new.sa_mask, signal);
    }
    if handler == SIG_ERR {
        crate::errno::set(rustix::io::Errno::INVAL);
        return SIG_ERR;
    }
    if act(signal, &new, &mut old) == 0 { old.sa_sigaction } else { SIG_ERR }
}

unsafe fn set_as_bsd(signal: c_int, handler: usize) -> usize {
    let interrupts =
        (1..SIGNALS as c_int).contains(&signal) && INTERRUPTING.load(Ordering::Relaxed) & bit(signal) != 0;
    set(signal, handler, if interrupts { 0 } else { SA_RESTART }, true)
}

unsafe fn set_once(signal: c_int, handler: usize) -> usize {
    set(signal, handler, SA_RESETHAND | SA_NODEFER, false)
}

exported! {
    /// Threads of our own get no signals: those are for the program's, which may have them blocked.
    fn pthread_create(
        out: *mut libc::pthread_t, how: *const libc::pthread_attr_t, run: Run, argument: *mut c_void,
    ) -> c_int {
        if !gate::is_ours() {
            return behind::pthread_create(out, how, run, argument);
        }
        let (run, argument) = (run_own as Run, Box::into_raw(Box::new(Own { run, argument })).cast());
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let failed = behind::pthread_create(out, how, run, argument);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        failed
    }

    fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
        act(signal, new, old)
    }

    fn __sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
        act(signal, new, old)
    }

    fn signal(signal: c_int, handler: usize) -> usize {
        set_as_bsd(signal, handler)
    }

    fn bsd_signal(signal: c_int, handler: usize) -> usize {
        set_as_bsd(signal, handler)
    }

    fn ssignal(signal: c_int, handler: usize) -> usize {
        set_as_bsd(signal, handler)
    }

    fn sysv_signal(signal: c_int, handler: usize) -> usize {
        set_once(signal, handler)
    }

    fn __sysv_signal(signal: c_int, handler: usize) -> usize {
        set_once(signal, handler)
    }

    fn sigset(signal: c_int, handler: usize) -> usize {
        const SIG_HOLD: usize = 2;
        let (mut one, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut one);
        if libc::sigaddset(&mut one, signal) != 0 {
            return SIG_ERR;
        }
        if handler == SIG_HOLD {
            if libc::sigprocmask(libc::SIG_BLOCK, &one, &mut before) != 0 {
                return SIG_ERR;
            }
            let mut found: Action = std::mem::zeroed();
            if libc::sigismember(&before, signal) == 1 {
                return SIG_HOLD;
            }
            return if act(signal, std::ptr::null(), &mut found) == 0 { found.sa_sigaction } else { SIG_ERR };
        }
        let old = set(signal, handler, 0, false);
        if old == SIG_ERR || libc::sigprocmask(libc::SIG_UNBLOCK, &one, &mut before) != 0 {
            return SIG_ERR;
        }
        if libc::sigismember(&before, signal) == 1 { SIG_HOLD } else { old }
    }

    fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
        let mut found: Action = std::mem::zeroed();
        if act(signal, std::ptr::null(), &mut found) != 0 {
            return -1;
        }
        if interrupts != 0 {
            INTERRUPTING.fetch_or(bit(signal), Ordering::Relaxed);
            found.sa_flags &= !SA_RESTART;
        } else {
            INTERRUPTING.fetch_and(!bit(signal), Ordering::Relaxed);
            found.sa_flags |= SA_RESTART;
        }
        act(signal, &found, std::ptr::null_mut())
    }
}
