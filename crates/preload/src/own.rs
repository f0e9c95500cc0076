//! Descriptors of our own: of memory, connections, lock files and what a device is driven by. To the program
//! they are not open, whatever it closes: all descriptors from 3 on, as daemons do, or those that
//! `/proc/self/fd` lists.

use std::collections::HashSet;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::FdFlags;
use rustix::net::SocketType;

use crate::table::DESCRIPTORS;
use crate::{gate, mount, real, slot};

/// The first number that is left to us, where the limit allows so many: programs choose small numbers
/// themselves (`exec 6<file` in a shell).
pub(crate) const FIRST: c_int = 512;

/// None of ours is below, so that a look at most descriptors is one comparison.
static LOWEST: AtomicI32 = AtomicI32::new(FIRST);
static HIGHEST: AtomicI32 = AtomicI32::new(0);

/// A bit for each number.
static OWN: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];

fn place(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((OWN.get(fd / 64)?, 1 << (fd % 64)))
}

/// A descriptor is ours until we close it.
pub(crate) fn note(fd: c_int) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
        LOWEST.fetch_min(fd, Ordering::Relaxed);
        HIGHEST.fetch_max(fd, Ordering::Relaxed);
    }
}

/// We have closed it.
pub(crate) fn forget(fd: c_int) {
    if fd >= LOWEST.load(Ordering::Relaxed)
        && let Some((word, bit)) = place(fd)
    {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

fn is_noted(fd: c_int) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// Whether a descriptor is our own, and not for this thread to change: for those of the program.
#[inline]
pub(crate) fn is_out_of_reach(fd: c_int) -> bool {
    fd >= LOWEST.load(Ordering::Relaxed) && is_own(fd) && !gate::is_ours()
}

#[cold]
fn is_own(fd: c_int) -> bool {
    if is_noted(fd) {
        return true;
    }
    if gate::is_ours() {
        return false;
    }
    let _inside = gate::enter();
    mount::own_descriptors().any(|own| own == fd)
}

/// Those in a range of numbers, in order.
pub(crate) fn within(first: c_int, last: c_int) -> Vec<c_int> {
    let from = first.max(LOWEST.load(Ordering::Relaxed));
    let to = last.min(HIGHEST.load(Ordering::Relaxed));
    let mut found: Vec<c_int> = (from..=to).filter(|&fd| is_noted(fd)).collect();
    let _inside = gate::enter();
    found.extend(mount::own_descriptors().filter(|fd| (first..=last).contains(fd)));
    found.sort_unstable();
    found.dedup();
    found
}

/// Closes all that were noted, but for those that this process needs itself.
pub(crate) fn close_all() {
    let kept: Vec<c_int> = mount::own_descriptors().chain(slot::own_descriptors()).collect();
    let (from, to) = (LOWEST.load(Ordering::Relaxed), HIGHEST.load(Ordering::Relaxed));
    for fd in (from..=to).filter(|fd| is_noted(*fd) && !kept.contains(fd)) {
        forget(fd);
        // SAFETY: nobody in this process uses it: what does is another's, and leaked.
        unsafe { real::close(fd) };
    }
}

/// Closes what other processes may see the end of: the program's pipes, sockets and terminals. It has ended,
/// and the process stays for others alone. Sockets of packets in order are those of the server in this
/// process.
pub(crate) fn close_ends_of_program() {
    for fd in open() {
        // SAFETY: only asked about; no other thread of the program opens or closes anything by now.
        let one = unsafe { BorrowedFd::borrow_raw(fd) };
        let is_end = match rustix::fs::fstat(one).map(|found| FileType::from_raw_mode(found.st_mode)) {
            Ok(FileType::Fifo) => true,
            Ok(FileType::CharacterDevice) => rustix::termios::isatty(one),
            Ok(FileType::Socket) => {
                rustix::net::sockopt::socket_type(one).is_ok_and(|kind| kind != SocketType::SEQPACKET)
            }
            _ => false,
        };
        if is_end && !is_noted(fd) {
            // SAFETY: as above.
            unsafe { real::close(fd) };
        }
    }
}

/// The numbers of all descriptors.
pub(crate) fn open() -> HashSet<c_int> {
    let names = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    names.filter_map(|name| name.file_name().to_str()?.parse().ok()).collect()
}

/// Does something that opens descriptors of our own, which stay.
pub(crate) fn out_of_the_way<R>(act: impl FnOnce() -> R) -> R {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let first = (FIRST as u64).min(limit / 2) as c_int;
    let before = open();
    let mut taken = Vec::new();
    if let Ok(one) = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        while let Ok(next) = rustix::io::fcntl_dupfd_cloexec(&one, 0) {
            if next.as_raw_fd() >= first {
                break;
            }
            taken.push(next);
        }
        taken.push(one);
    }
    let done = act();
    drop(taken);
    open().difference(&before).filter(|&&fd| fd >= first && closes_at_exec(fd)).for_each(|&fd| note(fd));
    done
}

/// As all of ours do that are not handed on.
fn closes_at_exec(fd: c_int) -> bool {
    // SAFETY: only asked about.
    rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) })
        .is_ok_and(|flags| flags.contains(FdFlags::CLOEXEC))
}

/// Other descriptors of one file are ours as well.
pub(crate) fn note_same(file: BorrowedFd<'_>) {
    let identity = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).map(|found| (found.st_dev, found.st_ino)).ok();
    let wanted = identity(file);
    let first = LOWEST.load(Ordering::Relaxed);
    for fd in open().into_iter().filter(|&fd| fd >= first && fd != file.as_raw_fd()) {
        // SAFETY: only asked about.
        if wanted.is_some() && identity(unsafe { BorrowedFd::borrow_raw(fd) }) == wanted {
            note(fd);
        }
    }
}
