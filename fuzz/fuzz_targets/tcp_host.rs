//! A target on NVMe/TCP that sends anything to a queue with commands outstanding.
//!
//! The host neither panics nor waits, and every command ends exactly once.
//!
//! Input: a byte that says what was agreed on and whether the rest comes in pieces, then what the target
//! sends; see `unvme_driver::tcp_host`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| unvme_driver::tcp_host(data));
