//! What becomes of a mapping of device memory when the device goes away.
//!
//! The kernel takes such a mapping's pages back, and the next access raises SIGBUS, which ends a program that
//! has not asked for it. Here it is asked for: the handler puts memory of all ones in place of the mapping,
//! as the PCI bus itself answers for a device that is not there, notes that the device is gone, and the
//! access goes on. Every other SIGBUS goes to the handler that was there before; what that one set up besides
//! (a signal mask, SA_RESETHAND) is not imitated. A program that installs a handler later must pass on what
//! it does not know, as this one does.
// UNSAFETY: a signal handler, and mapping over pages of a mapping this crate owns.
#![allow(unsafe_code)]

use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::{io, mem, ptr};

use rustix::fs::MemfdFlags;

use crate::BusError;
use crate::lock;

/// Most mappings that can be guarded at a time.
const GUARDS_MAX: usize = 256;
/// Longest mapping that can be guarded.
pub(super) const GUARDED_BYTES_MAX: usize = 1 << 20;

/// A guarded range of addresses. Written under [`WRITERS`], read by the handler: a reader that finds
/// `version` odd or changed has looked at a slot that was being rewritten, which is never the one of the
/// mapping it faulted in.
struct Slot {
    version: AtomicUsize,
    start: AtomicUsize,
    bytes: AtomicUsize,
    gone: AtomicPtr<AtomicBool>,
}

static SLOTS: [Slot; GUARDS_MAX] = [const {
    Slot {
        version: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        gone: AtomicPtr::new(ptr::null_mut()),
    }
}; GUARDS_MAX];

/// Held while slots are taken and given back; the handler never takes it.
static WRITERS: Mutex<()> = Mutex::new(());

/// What the handler needs, complete before it is installed.
static BASIS: OnceLock<Basis> = OnceLock::new();

struct Basis {
    /// [`GUARDED_BYTES_MAX`] of all ones.
    ones: OwnedFd,
    /// The handler that was there before.
    previous: libc::sigaction,
}

/// Keeps a range guarded until dropped.
pub(super) struct Guard {
    slot: &'static Slot,
    /// The slot points to it.
    _gone: Arc<AtomicBool>,
}

impl Slot {
    /// Start, length and flag of the range, when `address` is in it.
    fn find(&self, address: usize) -> Option<(usize, usize, *mut AtomicBool)> {
        // SeqCst throughout: this is far from any path whose time matters, and one order of everything is
        // easy to check.
        let version = self.version.load(Ordering::SeqCst);
        let start = self.start.load(Ordering::SeqCst);
        let bytes = self.bytes.load(Ordering::SeqCst);
        let gone = self.gone.load(Ordering::SeqCst);
        let is_whole = version.is_multiple_of(2) && version == self.version.load(Ordering::SeqCst);
        (is_whole && address.wrapping_sub(start) < bytes).then_some((start, bytes, gone))
    }

    /// The caller holds [`WRITERS`].
    fn set(&self, start: usize, bytes: usize, gone: *mut AtomicBool) {
        self.version.fetch_add(1, Ordering::SeqCst);
        self.start.store(start, Ordering::SeqCst);
        self.bytes.store(bytes, Ordering::SeqCst);
        self.gone.store(gone, Ordering::SeqCst);
        self.version.fetch_add(1, Ordering::SeqCst);
    }
}

impl Guard {
    /// Guards `bytes` from `start`, whole pages and at most [`GUARDED_BYTES_MAX`]: `gone` is set when one of
    /// them is not there any more.
    ///
    /// # Errors
    /// [`BusError::Os`] when the handler cannot be installed, [`BusError::Unsupported`] when too many are
    /// guarded.
    pub(super) fn new(start: *mut u8, bytes: usize, gone: &Arc<AtomicBool>) -> Result<Self, BusError> {
        // Only atomics are written under the lock, one slot at a time.
        let _writing = lock(&WRITERS);
        install()?;
        let free = SLOTS.iter().find(|slot| slot.bytes.load(Ordering::SeqCst) == 0);
        let slot = free.ok_or_else(|| {
            BusError::Unsupported(format!(
                "{GUARDS_MAX} mappings of device memory are guarded, and no more can be"
            ))
        })?;
        slot.set(start.addr(), bytes, Arc::as_ptr(gone).cast_mut());
        Ok(Self { slot, _gone: Arc::clone(gone) })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _writing = lock(&WRITERS);
        self.slot.set(0, 0, ptr::null_mut());
    }
}

/// Puts memory of all ones in place of `bytes` from `start`, in one step: other threads find the device or
/// all ones.
///
/// # Safety
/// The range is whole pages, at most [`GUARDED_BYTES_MAX`], of one mapping that this crate owns and to which
/// there are only raw pointers and atomics.
pub(super) unsafe fn replace(start: *mut u8, bytes: usize) -> io::Result<()> {
    let Some(basis) = BASIS.get() else { return Err(io::Error::from_raw_os_error(libc::ENOENT)) };
    // SAFETY: the caller's promise. Private: what is stored there is seen by nobody else, and as a doorbell
    // nobody reads it. Called by the handler as well: mmap is a bare system call.
    let mapped = unsafe {
        libc::mmap(
            start.cast(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_FIXED,
            basis.ones.as_raw_fd(),
            0,
        )
    };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Installs the handler, once. The caller holds [`WRITERS`].
fn install() -> Result<(), BusError> {
    if BASIS.get().is_some() {
        return Ok(());
    }
    let ones = ones().map_err(|e| BusError::os("make memory of all ones", e))?;
    let refused = |_: i32| BusError::os("install a handler for SIGBUS", io::Error::last_os_error());
    // SAFETY: all zeroes are a valid sigaction; sigaction(2) writes one that is complete.
    let previous = unsafe {
        let mut previous: libc::sigaction = mem::zeroed();
        match libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous) {
            0 => previous,
            failed => return Err(refused(failed)),
        }
    };
    // First the basis, then the handler that looks at it. Nobody else sets it: the caller holds the lock.
    let _ = BASIS.set(Basis { ones, previous });
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_sigbus;
    // SAFETY: `on_sigbus` has the signature SA_SIGINFO asks for and does only what a handler may. SA_ONSTACK:
    // a thread that has an alternative stack has it because its own may be used up.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        match libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) {
            0 => Ok(()),
            failed => Err(refused(failed)),
        }
    }
}

fn ones() -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create("unvme-ones", MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(fd);
    file.write_all(&vec![0xff; GUARDED_BYTES_MAX])?;
    Ok(file.into())
}

/// Runs in whatever thread made the access, at that instruction, with whatever locks it holds. It therefore
/// allocates nothing, takes no lock and calls nothing but system calls: it reads atomics, and a `OnceLock`
/// that was set before the handler was installed, which is a load.
extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the C library's errno of this thread; the interrupted code finds it as it was.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let kept = unsafe { *errno };
    // SAFETY: with SA_SIGINFO the kernel passes a siginfo; for a SIGBUS it raised itself (a positive code) it
    // holds an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    if code > 0 && cover(address) {
        // SAFETY: as above.
        unsafe { *errno = kept };
        return;
    }
    // SAFETY: the arguments are those of this handler.
    unsafe { pass_on(signal, info, context) }
}

/// Covers the guarded mapping that holds `address`; false when there is none.
fn cover(address: usize) -> bool {
    let found = SLOTS.iter().find_map(|slot| slot.find(address));
    let Some((start, bytes, gone)) = found else { return false };
    // SAFETY: the range is that of a guarded mapping, which was checked when the guard was made, belongs to
    // this crate, and is alive, as it is being accessed right now; the accesses are raw ones.
    if unsafe { replace(ptr::with_exposed_provenance_mut(start), bytes) }.is_err() {
        return false;
    }
    // SAFETY: the guard keeps the flag alive, and the guard outlives every access to its mapping.
    unsafe { (*gone).store(true, Ordering::SeqCst) };
    true
}

/// Does what would have been done without this handler.
///
/// # Safety
/// The arguments are those a handler with SA_SIGINFO was called with.
unsafe fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(basis) = BASIS.get() else { return };
    let previous = basis.previous;
    match previous.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: see `on_sigbus`.
            let was_sent = unsafe { (*info).si_code } <= 0;
            if was_sent && previous.sa_sigaction == libc::SIG_IGN {
                return;
            }
            // The kernel ends the program for an access that faults also where the signal is ignored. It is
            // blocked now, so it is delivered when this handler returns.
            // SAFETY: both are async-signal-safe (signal-safety(7)); all zeroes are a sigaction that says
            // SIG_DFL.
            unsafe {
                let action: libc::sigaction = mem::zeroed();
                libc::sigaction(signal, &raw const action, ptr::null_mut());
                libc::raise(signal);
            }
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: whoever installed it said that it has this signature.
            let handler = unsafe { mem::transmute::<libc::sighandler_t, Handler>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: whoever installed it said that it has this signature.
            let handler =
                unsafe { mem::transmute::<libc::sighandler_t, extern "C" fn(libc::c_int)>(handler) };
            handler(signal);
        }
    }
}

// SAFETY: a sigaction is plain data: the pointers in it are addresses of code.
unsafe impl Send for Basis {}
// SAFETY: as above, and it is never written after it was set.
unsafe impl Sync for Basis {}
