//! The makers of keys of `kvutil.h`, and printing them.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use sdk::random;

use super::stdio::print;
use crate::abi::KvKey;
use crate::boundary::quietly;

/// `key_policy`.
#[repr(C)]
struct KeyPolicy {
    idx: c_int,
    name: [c_char; 128],
}

const NAMES: [&str; 6] =
    ["PREFIX_SEQ_INC", "POSTFIX_SEQ_INC", "RANDOM", "DEBUG_KEY", "DB_BENCH_KEY", "READ_RANDOM_NUMBER"];

const fn policy(index: usize) -> KeyPolicy {
    let mut name = [0; 128];
    if index < NAMES.len() {
        let text = NAMES[index].as_bytes();
        let mut at = 0;
        while at < text.len() {
            name[at] = text[at] as c_char;
            at += 1;
        }
    }
    KeyPolicy { idx: index as c_int, name }
}

static POLICIES: [KeyPolicy; 16] = {
    let mut policies = [const { policy(NAMES.len()) }; 16];
    let mut index = 0;
    while index < 16 {
        policies[index] = policy(index);
        index += 1;
    }
    policies
};

#[unsafe(no_mangle)]
extern "C" fn unvme_key_policies() -> *const KeyPolicy {
    POLICIES.as_ptr()
}

/// Random numbers of no great quality, shared by all threads.
fn next() -> u64 {
    static STATE: AtomicU64 = AtomicU64::new(0);
    let now = || SystemTime::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64 | 1);
    let _ = STATE.compare_exchange(0, now(), Ordering::Relaxed, Ordering::Relaxed);
    random::mix(STATE.fetch_add(random::STEP, Ordering::Relaxed))
}

/// Writes a key; -1 when there is no place for it.
///
/// # Safety
/// `target` is null or has as many bytes as `key`.
unsafe fn put(target: *mut c_char, key: &[u8]) -> c_int {
    if target.is_null() {
        return -1;
    }
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(key.as_ptr(), target.cast(), key.len()) };
    key.len() as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn gen_debug_key(key_buf: *mut c_char, _value_size: c_int, idx: c_int) -> c_int {
    let mut key = [0; 16];
    key[..4].copy_from_slice(&(idx as u32 & 0x0fff_ffff).to_le_bytes());
    // SAFETY: what kvutil.h asks for.
    unsafe { put(key_buf, &key) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn gen_rand_key(key_buf: *mut c_char, len: c_int) -> c_int {
    quietly(-1, || {
        let Ok(len) = usize::try_from(len) else { return -1 };
        let key: Vec<u8> = (0..len).map(|_| b'!' + (next() % 94) as u8).collect();
        // SAFETY: what kvutil.h asks for.
        unsafe { put(key_buf, &key) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn gen_db_bench_key(start: *mut c_char, key_size: c_int, num: u64) -> c_int {
    quietly(-1, || {
        let Ok(size) = usize::try_from(key_size) else { return -1 };
        let mut key = vec![b'0'; size];
        for (target, byte) in key.iter_mut().zip(num.to_be_bytes()) {
            *target = byte;
        }
        // SAFETY: what kvutil.h asks for.
        unsafe { put(start, &key) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn gen_rand_num(max: c_int) -> c_int {
    u64::try_from(max).map_or(0, |max| (next() % (max + 1)) as c_int)
}

#[unsafe(no_mangle)]
extern "C" fn get_power_of(n: c_int) -> c_int {
    u32::try_from(n).ok().and_then(u32::checked_ilog2).map_or(-1, |power| power as c_int)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// # Safety
/// `address` is null or has `bytes` bytes.
unsafe fn shown(address: *const c_char, bytes: c_int) -> String {
    match usize::try_from(bytes) {
        // SAFETY: the caller's promise.
        Ok(bytes) if !address.is_null() => hex(unsafe { std::slice::from_raw_parts(address.cast(), bytes) }),
        _ => String::new(),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dump_key_value(
    key: *const c_char,
    key_len: c_int,
    value: *const c_char,
    value_len: c_int,
    show_value: bool,
) {
    quietly((), || {
        // SAFETY: what kvutil.h asks for.
        let key = unsafe { shown(key, key_len) };
        let value = if show_value {
            // SAFETY: as above.
            unsafe { shown(value, value_len) }
        } else {
            format!("{value_len} bytes")
        };
        print(&format!("key={key} value={value}\n"));
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn show_key(origin_key: *const KvKey, hashed_key: *const KvKey) {
    quietly((), || {
        // SAFETY: what kvutil.h asks for, or null.
        let keys = unsafe { [origin_key.as_ref(), hashed_key.as_ref()] };
        // SAFETY: as above: a key has as many bytes as it says.
        let [origin, hashed] = keys
            .map(|key| key.map_or(String::new(), |key| unsafe { shown(key.key.cast(), key.length.into()) }));
        print(&format!("key={origin} hashed={hashed}\n"));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_documented_bytes() {
        let mut key = [0xff_u8; 16];
        let target = key.as_mut_ptr().cast();
        // SAFETY: 16 bytes are there, in all three calls.
        unsafe {
            assert_eq!(gen_debug_key(target, 0, 0x7123_4567), 16);
            assert_eq!(key, [0x67, 0x45, 0x23, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            assert_eq!(gen_db_bench_key(target, 12, 0x0102), 12);
            assert_eq!(&key[..12], b"\0\0\0\0\0\0\x01\x020000");
            assert_eq!(gen_rand_key(target, 16), 16);
        }
        assert!(key.iter().all(u8::is_ascii_graphic));
        assert_eq!([0, 1, 2, 3, 4096, -1].map(|n| get_power_of(n)), [-1, 0, 1, 1, 12, -1]);
        assert!((0..1000).all(|_| (0..=3).contains(&gen_rand_num(3))));
        assert_eq!(gen_rand_num(0), 0);
    }
}
