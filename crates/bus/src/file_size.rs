//! Writing files under a limit of their size (RLIMIT_FSIZE).
//!
//! The kernel answers a write beyond the limit with EFBIG, and with a signal that ends a program which has
//! not asked for it.
// UNSAFETY: the C library's functions for a thread's signal mask.
#![allow(unsafe_code)]

use std::{mem, ptr};

/// Runs `work` with SIGXFSZ held back in this thread: a file that would grow beyond the limit is an error of
/// the call that writes it, and nothing else.
pub fn without_signal<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: all zeroes are a signal set; the calls write ones that are complete, and change the mask of
    // this thread alone.
    let (set, before) = unsafe {
        let (mut set, mut before, mut pending): (libc::sigset_t, libc::sigset_t, libc::sigset_t) =
            mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGXFSZ);
        libc::sigpending(&raw mut pending);
        let is_theirs = libc::sigismember(&raw const pending, libc::SIGXFSZ) == 1;
        if is_theirs || libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) != 0 {
            // Held back by somebody else already.
            return work();
        }
        (set, before)
    };
    let done = work();
    // SAFETY: as above. The signal is one for this thread: nobody else's is taken.
    unsafe {
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        while libc::sigtimedwait(&raw const set, ptr::null_mut(), &raw const at_once) == libc::SIGXFSZ {}
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
    }
    done
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::process::Command;

    use rustix::process::{Resource, Rlimit, setrlimit};

    use super::*;

    /// Set for the child process of the test below.
    const CHILD: &str = "UNVME_BUS_FILE_SIZE_CHILD";

    #[test]
    fn a_file_beyond_the_limit_is_an_error_and_no_signal() {
        if std::env::var_os(CHILD).is_some() {
            let limit = Rlimit { current: Some(4096), maximum: Some(4096) };
            setrlimit(Resource::Fsize, limit).expect("a limit");
            let file = tempfile::tempfile().expect("a file");
            for _ in 0..2 {
                let error = without_signal(|| file.set_len(8192)).expect_err("beyond the limit");
                assert_eq!(error.kind(), ErrorKind::FileTooLarge);
            }
            // Nothing is left behind that the mask held back.
            std::process::exit(7);
        }
        let status = Command::new(std::env::current_exe().expect("the test program"))
            .args(["--exact", "file_size::tests::a_file_beyond_the_limit_is_an_error_and_no_signal"])
            .env(CHILD, "1")
            .stdout(std::process::Stdio::null())
            .status()
            .expect("a child");
        assert_eq!(status.code(), Some(7), "{status}");
    }
}
