//! Every way in: a panic ends here, a failure becomes a number, and the thread remembers it.

use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use sdk::Status;

use crate::result::{Code, Failure, Result};

thread_local! {
    /// Status of this thread's last operation, or of the one whose callback it is in.
    static STATUS: Cell<u16> = const { Cell::new(0) };
    /// Whether [`FAILURE`] is of the last call.
    static FAILED: Cell<bool> = const { Cell::new(false) };
    /// What failed; made into words only when somebody asks.
    static FAILURE: RefCell<Option<Failure>> = const { RefCell::new(None) };
    /// The words as C has them.
    static TEXT: RefCell<CString> = RefCell::default();
}

/// Runs the body of a function that returns an `enum kv_result`.
#[inline]
pub(crate) fn call(body: impl FnOnce() -> Result<()>) -> c_int {
    match guard(body) {
        Ok(()) => {
            succeeded();
            Code::SUCCESS.0
        }
        Err(failure) => failed(failure).0,
    }
}

/// As [`call`], for functions that are called for every command: one that succeeds leaves what
/// `unvme_last_error()` says as it was.
#[inline(always)]
pub(crate) fn call_often(body: impl FnOnce() -> Result<()>) -> c_int {
    match guard(body) {
        Ok(()) => Code::SUCCESS.0,
        Err(failure) => failed(failure).0,
    }
}

/// Runs the body of a function that returns something else: `failed` when it fails.
#[inline]
pub(crate) fn value<T>(failure_value: T, body: impl FnOnce() -> Result<T>) -> T {
    match guard(body) {
        Ok(value) => {
            succeeded();
            value
        }
        Err(failure) => {
            failed(failure);
            failure_value
        }
    }
}

/// Runs the body of a function that cannot fail, or has no way to say so.
#[inline]
pub(crate) fn quietly<T>(panic_value: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(panic_value)
}

#[inline]
fn guard<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    // What a panic leaves half done is behind locks that take what is there, and operations that end with an
    // error.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(_) => Err(Failure::new(Code::IO, "an assertion of the library failed; it is on stderr")),
    }
}

/// Remembers that this thread's last call, or the operation whose callback it is about to enter, succeeded.
#[inline]
pub(crate) fn succeeded() {
    STATUS.set(0);
    FAILED.set(false);
}

/// Remembers what failed, and says what C gets.
#[cold]
pub(crate) fn failed(failure: Failure) -> Code {
    let code = failure.code;
    STATUS.set(failure.status.raw());
    FAILED.set(true);
    // A thread that is ending has no memory any more; the code still arrives.
    let _ = FAILURE.try_with(|last| last.replace(Some(failure)));
    code
}

/// Status of the last operation.
pub(crate) fn last_status() -> Status {
    Status::from_raw(STATUS.get())
}

/// The words of the last failure, NUL-terminated; valid until this thread's next call.
pub(crate) fn last_error() -> *const c_char {
    if !FAILED.get() {
        return c"".as_ptr();
    }
    let text = FAILURE.with_borrow(|failure| failure.as_ref().map(Failure::describe)).unwrap_or_default();
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    TEXT.with_borrow_mut(|kept| {
        *kept = text;
        kept.as_ptr()
    })
}
