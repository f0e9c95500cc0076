//! The two functions of `kvutil.h` that print how long something took.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::fmt::Display;

use unvme_guide::elapsed::{Cumulative, Elapsed, TimeOfDay};

use super::latency::{LatencyStat, Timeval};
use super::stdio::print;
use crate::boundary::quietly;

fn block(
    what: &str,
    start: Timeval,
    end: Timeval,
    count: c_int,
    value_bytes: u64,
    stat: Option<&LatencyStat>,
) -> String {
    let count = u64::try_from(count).unwrap_or(0);
    let stat = stat.filter(|_| count > 0).map(|stat| stat as &dyn Display);
    Elapsed { what, start: start.into(), end: end.into(), count, least_us: 0, value_bytes, stat }.to_string()
}

/// Several threads at a time: their operations per second add up.
fn cumulative(
    what: &str,
    times: impl Iterator<Item = (Timeval, Timeval)>,
    count_each: c_int,
    value_bytes: u64,
    stat: Option<&LatencyStat>,
) -> String {
    let us = |(start, end): (Timeval, Timeval)| TimeOfDay::from(start).micros_until(end.into()).max(1);
    let ops: f64 = times.map(|time| f64::from(count_each) * 1e6 / us(time) as f64).sum();
    let stat = stat.filter(|_| ops > 0.0).map(|stat| stat as &dyn Display);
    Cumulative { what, ops, value_bytes, stat }.to_string()
}

/// # Safety
/// `text` is null or NUL-terminated.
unsafe fn message(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn show_elapsed_time(
    start: *const Timeval,
    end: *const Timeval,
    msg: *const c_char,
    repeat_count: c_int,
    value_size: u64,
    stat: *const LatencyStat,
) {
    quietly((), || {
        // SAFETY: what kvutil.h asks for, or null.
        if let (Some(start), Some(end)) = unsafe { (start.as_ref(), end.as_ref()) } {
            // SAFETY: as above.
            let (message, stat) = unsafe { (message(msg), stat.as_ref()) };
            print(&block(&message, *start, *end, repeat_count, value_size, stat));
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn show_elapsed_time_cumulative(
    start: *const Timeval,
    end: *const Timeval,
    num_timeval: c_int,
    msg: *const c_char,
    repeat_count_each: c_int,
    value_size: u64,
    stat: *const LatencyStat,
) {
    quietly((), || {
        let Ok(count) = usize::try_from(num_timeval) else { return };
        if start.is_null() || end.is_null() {
            return;
        }
        // SAFETY: what kvutil.h asks for: so many times are at either place.
        let times = unsafe {
            std::slice::from_raw_parts(start, count).iter().zip(std::slice::from_raw_parts(end, count))
        };
        // SAFETY: as above, or null.
        let (message, stat) = unsafe { (message(msg), stat.as_ref()) };
        let times = times.map(|(start, end)| (*start, *end));
        print(&cumulative(&message, times, repeat_count_each, value_size, stat));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tv_sec: i64, tv_usec: i64) -> Timeval {
        Timeval { tv_sec, tv_usec }
    }

    #[test]
    fn a_block_has_times_latency_operations_and_throughput() {
        let text = block("kv_store", at(10, 0), at(11, 500_000), 3000, 4096, None);
        assert_eq!(
            text,
            "======================================================\n\
             kv_store start: 10s.0us end: 11s.500000us\n\
             kv_store total elapsed: 1500000us 1500.000ms\n\
             kv_store latency: 500.000 us per operation\n\
             kv_store ops: 2000.000\n\
             kv_store throughput: 8000 KB\n\
             ======================================================\n\n\n"
        );
    }

    #[test]
    fn without_a_count_there_are_the_times_alone() {
        let text = block("init", at(1, 0), at(1, 0), 0, 4096, None);
        assert_eq!(text.lines().count(), 6, "{text}");
        assert!(text.contains("init total elapsed: 0us 0.000ms\n"));
    }

    #[test]
    fn operations_of_threads_add_up() {
        let times = [(at(0, 0), at(1, 0)), (at(0, 0), at(2, 0))];
        let text = cumulative("kv_store", times.into_iter(), 1000, 1024, None);
        assert!(
            text.contains("kv_store ops: 1500.000\n") && text.contains("kv_store throughput: 1500 KB\n"),
            "{text}"
        );
        assert!(text.contains("kv_store latency: 666.667 us per operation\n"), "{text}");
    }
}
