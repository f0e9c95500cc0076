//! Threads that are canceled: before a call or after it, as by `read(2)`, and not in the middle of it, where
//! our own work waits and sleeps.
//!
//! Most programs cancel nobody, and their calls pay nothing for it: from the first `pthread_cancel` on each
//! call looks, and puts cancellation off until it ends.

use std::ffi::c_int;
use std::sync::Mutex;

use unvme::lock::lock;

use crate::{gate, signals, state};

mod behind {
    use super::c_int;

    functions! {
        fn pthread_cancel(thread: libc::pthread_t) -> c_int;
    }
}

const ENABLE: c_int = 0;
const DISABLE: c_int = 1;

unsafe extern "C-unwind" {
    fn pthread_testcancel();
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// A thread that was canceled ends here. What its frames hold is not given back: nobody has anything yet.
#[cold]
pub(crate) fn look() {
    // SAFETY: the C library unwinds the thread, through frames that have nothing to drop.
    unsafe { pthread_testcancel() };
    put_off();
}

/// Nobody is canceled until the call is left.
#[cold]
pub(crate) fn put_off() {
    let mut before = DISABLE;
    // SAFETY: a place for the answer.
    unsafe { pthread_setcancelstate(DISABLE, &mut before) };
    if before == ENABLE {
        signals::note_put_off();
    }
}

/// The call is left.
pub(crate) fn allow() {
    let mut before = DISABLE;
    // SAFETY: as above.
    unsafe { pthread_setcancelstate(ENABLE, &mut before) };
}

exported! {
    fn pthread_cancel(thread: libc::pthread_t) -> c_int {
        static FIRST: Mutex<()> = Mutex::new(());
        if state::is_on() && !gate::is_inside() && !gate::has_cancels() {
            let _first = lock(&FIRST);
            if !gate::has_cancels() {
                // Whoever is inside has not looked.
                let closed = gate::close();
                gate::expect_cancels();
                drop(closed);
            }
        }
        behind::pthread_cancel(thread)
    }
}
