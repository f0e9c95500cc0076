//! What becomes of a mapping whose memory goes away.
//!
//! The kernel takes the pages of a device back that is removed, and those of a file that is cut or that its
//! file system has no room for; the next access raises SIGBUS, which ends a program that has not asked for
//! it. Here it is asked for: the handler puts other memory in place of the mapping ([`Cover`]), notes that
//! the memory is lost, and the access goes on. Every other SIGBUS goes to the handler that was there before;
//! what that one set up besides (a signal mask, SA_RESETHAND) is not imitated. A program that installs a
//! handler later must pass on what it does not know, as this one does.
// UNSAFETY: a signal handler, and mapping over pages of a mapping this crate owns.
#![allow(unsafe_code)]

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::{io, mem, ptr, slice};

use rustix::fs::MemfdFlags;

use crate::lock;
use crate::{BusError, EventFd};

/// Slots of the first block; each further one has twice as many.
const SLOTS_MIN: usize = 256;
/// Blocks of slots: two million mappings at a time.
const BLOCKS: usize = 13;
/// Longest mapping of device memory that can be guarded.
pub(super) const DEVICE_BYTES_MAX: usize = 1 << 20;

/// What is put in place of memory that went away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cover {
    /// All ones, as the PCI bus itself answers for a device that is not there; at most [`DEVICE_BYTES_MAX`].
    Ones,
    /// Zeroes.
    Zeroes,
}

/// Who is told that a mapping's memory went away, beside the mapping itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    /// Set.
    pub(crate) gone: Option<Arc<AtomicBool>>,
    /// Signalled.
    pub(crate) event: Option<EventFd>,
}

/// A guarded range of addresses. Written under [`WRITERS`], read by the handler: a reader that finds
/// `version` odd or changed has looked at a slot that was being rewritten, which is never the one of the
/// mapping it faulted in.
struct Slot {
    version: AtomicUsize,
    start: AtomicUsize,
    bytes: AtomicUsize,
    is_device: AtomicBool,
    is_lost: AtomicBool,
    /// May be null.
    gone: AtomicPtr<AtomicBool>,
    /// A descriptor to write to, or -1.
    event: AtomicI32,
}

/// What a slot says.
#[derive(Clone, Copy)]
struct Range {
    start: usize,
    bytes: usize,
    cover: Cover,
    gone: *mut AtomicBool,
    event: i32,
}

const NO_RANGE: Range = Range { start: 0, bytes: 0, cover: Cover::Zeroes, gone: ptr::null_mut(), event: -1 };

/// The slots, in blocks that are made when they are needed and stay: the handler may look at any time.
static SLOTS: [AtomicPtr<Slot>; BLOCKS] = [const { AtomicPtr::new(ptr::null_mut()) }; BLOCKS];

/// Mappings of memory, not of devices, that are covered at the moment.
static LOST: AtomicUsize = AtomicUsize::new(0);

/// Held while slots are taken and given back; the handler never takes it.
static WRITERS: Mutex<Free> = Mutex::new(Free { slots: Vec::new(), blocks: 0 });

/// Slots that are not in use.
struct Free {
    slots: Vec<&'static Slot>,
    /// Blocks there are.
    blocks: usize,
}

/// What the handler needs, complete before it is installed.
static BASIS: OnceLock<Basis> = OnceLock::new();

struct Basis {
    /// [`DEVICE_BYTES_MAX`] of all ones.
    ones: OwnedFd,
    /// The handler that was there before.
    previous: libc::sigaction,
}

/// Keeps a range guarded until dropped.
pub(super) struct Guard {
    slot: &'static Slot,
    /// The slot points to what is in it.
    _watch: Watch,
}

/// Whether any memory is lost that somebody still has mapped: the question to ask before
/// [`Region::is_lost`](crate::Region::is_lost), for one load.
#[inline]
pub fn any_lost() -> bool {
    LOST.load(Ordering::Relaxed) > 0
}

impl Slot {
    fn empty() -> Self {
        Self {
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            is_device: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            gone: AtomicPtr::new(ptr::null_mut()),
            event: AtomicI32::new(-1),
        }
    }

    /// The range, when `address` is in it.
    fn find(&self, address: usize) -> Option<Range> {
        // SeqCst throughout: this is far from any path whose time matters, and one order of everything is
        // easy to check.
        let version = self.version.load(Ordering::SeqCst);
        let range = Range {
            start: self.start.load(Ordering::SeqCst),
            bytes: self.bytes.load(Ordering::SeqCst),
            cover: if self.is_device.load(Ordering::SeqCst) { Cover::Ones } else { Cover::Zeroes },
            gone: self.gone.load(Ordering::SeqCst),
            event: self.event.load(Ordering::SeqCst),
        };
        let is_whole = version.is_multiple_of(2) && version == self.version.load(Ordering::SeqCst);
        (is_whole && address.wrapping_sub(range.start) < range.bytes).then_some(range)
    }

    /// The caller holds [`WRITERS`].
    fn set(&self, range: Range) {
        self.version.fetch_add(1, Ordering::SeqCst);
        self.start.store(range.start, Ordering::SeqCst);
        self.bytes.store(range.bytes, Ordering::SeqCst);
        self.is_device.store(range.cover == Cover::Ones, Ordering::SeqCst);
        self.gone.store(range.gone, Ordering::SeqCst);
        self.event.store(range.event, Ordering::SeqCst);
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// Tells everybody that the memory is lost. Called by the handler.
    fn lose(&self, range: &Range) {
        if !self.is_lost.swap(true, Ordering::SeqCst) && range.cover == Cover::Zeroes {
            LOST.fetch_add(1, Ordering::SeqCst);
        }
        // SAFETY: the guard keeps the flag alive, and the guard outlives every access to its mapping.
        if let Some(gone) = unsafe { range.gone.as_ref() } {
            gone.store(true, Ordering::SeqCst);
        }
        if range.event >= 0 {
            let one = 1u64;
            // SAFETY: eight bytes of this thread's stack; write is async-signal-safe. The descriptor is an
            // eventfd of this process, non-blocking, which the guard keeps open.
            unsafe { libc::write(range.event, (&raw const one).cast(), size_of::<u64>()) };
        }
    }
}

impl Free {
    /// A slot that is not in use; `None` when there are no more.
    fn take(&mut self) -> Option<&'static Slot> {
        if self.slots.is_empty() {
            let block = SLOTS.get(self.blocks)?;
            let slots: Box<[Slot]> = (0..SLOTS_MIN << self.blocks).map(|_| Slot::empty()).collect();
            let slots = Box::leak(slots);
            block.store(slots.as_mut_ptr(), Ordering::SeqCst);
            self.blocks += 1;
            self.slots.extend(slots.iter());
        }
        self.slots.pop()
    }
}

impl Guard {
    /// Guards `bytes` from `start`, whole pages. Errors: [`BusError::Os`] when the handler cannot be
    /// installed, [`BusError::Unsupported`] when too many are guarded.
    pub(super) fn new(start: *mut u8, bytes: usize, cover: Cover, watch: Watch) -> Result<Self, BusError> {
        debug_assert!(cover == Cover::Zeroes || bytes <= DEVICE_BYTES_MAX);
        // Only atomics are written under the lock, one slot at a time.
        let mut free = lock(&WRITERS);
        install()?;
        let slot = free.take().ok_or_else(|| {
            BusError::Unsupported("more memory of others is mapped than can be guarded; unmap some".into())
        })?;
        slot.set(Range {
            // Exposed: the handler of SIGBUS knows the address from the signal.
            start: start.expose_provenance(),
            bytes,
            cover,
            gone: watch.gone.as_ref().map_or(ptr::null_mut(), |gone| Arc::as_ptr(gone).cast_mut()),
            event: watch.event.as_ref().map_or(-1, |event| event.as_fd().as_raw_fd()),
        });
        Ok(Self { slot, _watch: watch })
    }

    /// Whether the memory is lost.
    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        self.slot.is_lost.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut free = lock(&WRITERS);
        let was_device = self.slot.is_device.load(Ordering::SeqCst);
        self.slot.set(NO_RANGE);
        if self.slot.is_lost.swap(false, Ordering::SeqCst) && !was_device {
            LOST.fetch_sub(1, Ordering::SeqCst);
        }
        free.slots.push(self.slot);
    }
}

/// Puts other memory in place of `bytes` from `start`, in one step: other threads find what was there or the
/// cover.
///
/// # Safety
/// The range is whole pages, with [`Cover::Ones`] at most [`DEVICE_BYTES_MAX`], of one mapping that this
/// crate owns and to which there are only raw pointers and atomics.
pub(super) unsafe fn replace(start: *mut u8, bytes: usize, cover: Cover) -> io::Result<()> {
    let Some(basis) = BASIS.get() else { return Err(io::Error::from_raw_os_error(libc::ENOENT)) };
    // Private: what is stored there is seen by nobody else, and as a doorbell nobody reads it.
    let (flags, fd) = match cover {
        Cover::Ones => (libc::MAP_PRIVATE, basis.ones.as_raw_fd()),
        Cover::Zeroes => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1),
    };
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the caller's promise. Called by the handler as well: mmap is a bare system call.
    let mapped = unsafe { libc::mmap(start.cast(), bytes, protection, flags | libc::MAP_FIXED, fd, 0) };
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
    file.write_all(&vec![0xff; DEVICE_BYTES_MAX])?;
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
    let Some((slot, range)) = find(address) else { return false };
    // First this: whoever finds the cover finds that the memory is lost, too.
    slot.lose(&range);
    // SAFETY: the range is that of a guarded mapping, which was checked when the guard was made, belongs to
    // this crate, and is alive, as it is being accessed right now; the accesses are raw ones.
    unsafe { replace(ptr::with_exposed_provenance_mut(range.start), range.bytes, range.cover) }.is_ok()
}

fn find(address: usize) -> Option<(&'static Slot, Range)> {
    SLOTS.iter().enumerate().find_map(|(number, block)| {
        let block = block.load(Ordering::SeqCst);
        if block.is_null() {
            return None;
        }
        // SAFETY: a block that is there was published with so many slots, and stays.
        let slots = unsafe { slice::from_raw_parts(block, SLOTS_MIN << number) };
        slots.iter().find_map(|slot| Some((slot, slot.find(address)?)))
    })
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
