//! Waiting for descriptors. Files are always ready, and the kernel does not say so of what stands for ours
//! (`slot`).

use std::ffi::{c_int, c_void};

use libc::{
    POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec,
    timeval,
};
use rustix::io::Errno;

use crate::errno::set;
use crate::{memory, real, table};

/// What each file is ready for.
const READY: i16 = POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM;

/// Bits of a word of a set.
const WORD: usize = u64::BITS as usize;

mod behind {
    use super::*;

    functions! {
        fn poll(files: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
        fn ppoll(
            files: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t,
        ) -> c_int;
        fn __poll_chk(files: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int;
        fn __ppoll_chk(
            files: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t,
        ) -> c_int;
        fn select(
            count: c_int, reads: *mut fd_set, writes: *mut fd_set, others: *mut fd_set, timeout: *mut timeval,
        ) -> c_int;
        fn pselect(
            count: c_int, reads: *mut fd_set, writes: *mut fd_set, others: *mut fd_set,
            timeout: *const timespec, mask: *const sigset_t,
        ) -> c_int;
        fn epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    }
}

/// Whether a descriptor is of a file of ours that is open for more than its path: of the others the kernel
/// says what is right.
#[inline]
pub(crate) fn is_file(fd: c_int) -> bool {
    table::is_ours(fd) && table::get(fd).is_some_and(|held| held.check_open().is_ok())
}

/// Asks the kernel about those descriptors that are not ours, without waiting when one of ours is ready.
unsafe fn poll_with(
    files: *mut pollfd,
    count: nfds_t,
    act: impl FnOnce(*mut pollfd, bool) -> c_int,
) -> c_int {
    let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(size_of::<pollfd>()));
    let is_there = bytes.is_some_and(|bytes| memory::check_writable(files.cast(), bytes).is_ok());
    if !table::is_any() || count == 0 || !is_there {
        return act(files, false);
    }
    let given = std::slice::from_raw_parts_mut(files, count as usize);
    if !given.iter().any(|file| table::is_ours(file.fd)) {
        return act(files, false);
    }
    let mut asked = given.to_vec();
    let mut ready = 0;
    let mut is_ours = vec![false; asked.len()];
    for (file, is_ours) in asked.iter_mut().zip(&mut is_ours) {
        if is_file(file.fd) {
            *is_ours = true;
            ready += c_int::from(file.events & READY != 0);
            // The kernel passes over it.
            file.fd = -1;
        }
    }
    let others = act(asked.as_mut_ptr(), ready > 0);
    if others < 0 {
        return others;
    }
    for ((to, from), is_ours) in given.iter_mut().zip(asked).zip(is_ours) {
        to.revents = if is_ours { to.events & READY } else { from.revents };
    }
    others + ready
}

/// As [`poll_with`], of sets: what may be read, what may be written, and what has something else.
unsafe fn select_with(
    count: c_int,
    sets: [*mut fd_set; 3],
    act: impl FnOnce([*mut fd_set; 3], bool) -> c_int,
) -> c_int {
    let words = usize::try_from(count).unwrap_or(0).div_ceil(WORD);
    let is_there = |set: &*mut fd_set| {
        set.is_null() || memory::check_writable(set.cast_const().cast(), words * size_of::<u64>()).is_ok()
    };
    if !table::is_any() || !sets.iter().all(is_there) {
        return act(sets, false);
    }
    let read = |set: &*mut fd_set| match set.is_null() {
        true => Vec::new(),
        false => std::slice::from_raw_parts(set.cast::<u64>(), words).to_vec(),
    };
    let mut asked = [read(&sets[0]), read(&sets[1]), read(&sets[2])];
    let mut ready: Vec<(usize, usize)> = Vec::new();
    let mut is_any = false;
    for fd in 0..usize::try_from(count).unwrap_or(0) {
        let (word, bit) = (fd / WORD, 1_u64 << (fd % WORD));
        let is_in = |set: &Vec<u64>| set.get(word).is_some_and(|word| word & bit != 0);
        if !asked.iter().any(is_in) || !is_file(fd as c_int) {
            continue;
        }
        is_any = true;
        for (which, set) in asked.iter_mut().enumerate() {
            let Some(word_of_set) = set.get_mut(word).filter(|word| **word & bit != 0) else { continue };
            *word_of_set &= !bit;
            // Nothing else ever happens to a file.
            if which < 2 {
                ready.push((which, fd));
            }
        }
    }
    if !is_any {
        return act(sets, false);
    }
    let pointers = [0, 1, 2].map(|which: usize| match sets[which].is_null() {
        true => std::ptr::null_mut(),
        false => asked[which].as_mut_ptr().cast::<fd_set>(),
    });
    let others = act(pointers, !ready.is_empty());
    if others < 0 {
        return others;
    }
    for &(which, fd) in &ready {
        asked[which][fd / WORD] |= 1 << (fd % WORD);
    }
    for (to, from) in sets.iter().zip(&asked).filter(|(to, _)| !to.is_null()) {
        std::ptr::copy_nonoverlapping(from.as_ptr(), to.cast::<u64>(), from.len());
    }
    others + ready.len() as c_int
}

/// A time to wait, or none.
fn patience(is_ready: bool, timeout: *const timespec) -> *const timespec {
    static NONE: timespec = timespec { tv_sec: 0, tv_nsec: 0 };
    if is_ready { &raw const NONE } else { timeout }
}

exported! {
    fn poll(files: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        poll_with(files, count, |files, is_ready| {
            behind::poll(files, count, if is_ready { 0 } else { timeout })
        })
    }

    fn __poll(files: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        poll(files, count, timeout)
    }

    fn __poll_chk(files: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int {
        poll_with(files, count, |files, is_ready| {
            behind::__poll_chk(files, count, if is_ready { 0 } else { timeout }, room)
        })
    }

    fn ppoll(
        files: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t,
    ) -> c_int {
        poll_with(files, count, |files, is_ready| {
            behind::ppoll(files, count, patience(is_ready, timeout), mask)
        })
    }

    fn __ppoll_chk(
        files: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t,
    ) -> c_int {
        poll_with(files, count, |files, is_ready| {
            behind::__ppoll_chk(files, count, patience(is_ready, timeout), mask, room)
        })
    }

    fn select(
        count: c_int, reads: *mut fd_set, writes: *mut fd_set, others: *mut fd_set, timeout: *mut timeval,
    ) -> c_int {
        select_with(count, [reads, writes, others], |[reads, writes, others], is_ready| {
            let mut none = timeval { tv_sec: 0, tv_usec: 0 };
            behind::select(count, reads, writes, others, if is_ready { &raw mut none } else { timeout })
        })
    }

    fn __select(
        count: c_int, reads: *mut fd_set, writes: *mut fd_set, others: *mut fd_set, timeout: *mut timeval,
    ) -> c_int {
        select(count, reads, writes, others, timeout)
    }

    fn pselect(
        count: c_int, reads: *mut fd_set, writes: *mut fd_set, others: *mut fd_set, timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        select_with(count, [reads, writes, others], |[reads, writes, others], is_ready| {
            behind::pselect(count, reads, writes, others, patience(is_ready, timeout), mask)
        })
    }

    /// The kernel waits for no file.
    fn epoll_ctl(queue: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        if !is_file(fd) {
            return behind::epoll_ctl(queue, operation, fd, event);
        }
        let has_event = operation != libc::EPOLL_CTL_DEL;
        let event: *const c_void = event.cast_const().cast();
        set(if has_event && memory::check_readable(event, size_of::<epoll_event>()).is_err() {
            Errno::FAULT
        } else if real::fcntl(queue, libc::F_GETFD, 0) < 0 {
            Errno::BADF
        } else {
            Errno::PERM
        });
        -1
    }
}
