//! What a client and a server of a shared file system tell each other may be anything: it is understood or
//! refused, and what was understood is the same when it is said again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unvme_fs::share::{is_answer, is_call};

fuzz_target!(|data: &[u8]| {
    is_call(data);
    is_answer(data);
});
