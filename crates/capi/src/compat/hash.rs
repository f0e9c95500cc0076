//! `EagleHashIP.h` and the current hash function of `kvutil.h`.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint, c_void};

use super::stdio::print;
use crate::boundary::quietly;

type HashFn = unsafe extern "C" fn(*const c_void, c_int, c_uint, *mut c_void);

/// Odd constants with about as many ones as zeroes: the fractions of the square roots of 2, 3, 5 and 7.
const MIX: [u64; 4] =
    [0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1];

/// Both halves of a 128-bit product, folded: every bit of the result depends on every bit of the arguments.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    for (target, byte) in word.iter_mut().zip(bytes) {
        *target = *byte;
    }
    u64::from_le_bytes(word)
}

/// A hash of 128 bits. `variant` makes different functions.
fn hash(data: &[u8], seed: u32, variant: usize) -> [u8; 16] {
    let (first, second) = (MIX[variant % 4], MIX[(variant + 1) % 4]);
    let mut low = fold(u64::from(seed) ^ first, second);
    let mut high = fold(data.len() as u64 ^ second, low | 1);
    for piece in data.chunks(16) {
        let (a, b) = (word(piece), word(piece.get(8..).unwrap_or_default()));
        // A piece of zeroes must move both halves too, or runs of them would be alike.
        low = fold(low ^ a ^ MIX[2], b ^ MIX[3]).wrapping_add(high.rotate_left(29));
        high = fold(high ^ b ^ MIX[0], a ^ MIX[1]).wrapping_add(low.rotate_left(31));
    }
    let (low, high) = (fold(low ^ high.rotate_left(17), first), fold(high ^ low.rotate_left(43), second));
    (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
}

/// # Safety
/// `key` is null or has `len` bytes; `out` is null or has room for 16.
unsafe fn hash_to(key: *const c_void, len: c_int, seed: c_uint, out: *mut c_void, variant: usize) {
    let Ok(len) = usize::try_from(len) else { return };
    if out.is_null() || (key.is_null() && len > 0) {
        return;
    }
    // SAFETY: the caller's promise.
    let data = if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(key.cast::<u8>(), len) } };
    // SAFETY: the caller's promise; bytes need no alignment.
    unsafe { out.cast::<[u8; 16]>().write(hash(data, seed, variant)) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn Hash128_1_P128(key: *const c_void, len: c_int, seed: c_uint, out: *mut c_void) {
    // SAFETY: what EagleHashIP.h asks for.
    unsafe { hash_to(key, len, seed, out, 0) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn Hash128_2_P128(key: *const c_void, len: c_int, seed: c_uint, out: *mut c_void) {
    // SAFETY: what EagleHashIP.h asks for.
    unsafe { hash_to(key, len, seed, out, 1) };
}

/// What used to be a variable of the program: it is the program's to keep threads from changing it at a time.
struct Current(UnsafeCell<Option<HashFn>>);

// SAFETY: only reached through the address that C gets, under C's rules for a global variable.
unsafe impl Sync for Current {}

static CURRENT: Current = Current(UnsafeCell::new(None));

#[unsafe(no_mangle)]
extern "C" fn unvme_hash_func() -> *mut Option<HashFn> {
    CURRENT.0.get()
}

#[unsafe(no_mangle)]
extern "C" fn set_hash_func(hash_no: c_int) {
    quietly((), || {
        let (function, name): (Option<HashFn>, _) = match hash_no {
            1 => (Some(Hash128_1_P128), "Ealge_1"),
            2 => (Some(Hash128_2_P128), "Eagle_2"),
            3 => (Some(Hash128_1_P128), "Murmur3"),
            _ => (None, "none"),
        };
        // SAFETY: the program calls this while no other thread uses the variable, as kvutil.h says.
        unsafe { CURRENT.0.get().write(function) };
        print(&format!("hash_func: {name}\n"));
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_hash_depends_on_every_byte_the_length_the_seed_and_the_function() {
        let data: Vec<u8> = (0..64).collect();
        let mut seen = BTreeSet::new();
        for length in 0..=64 {
            assert!(seen.insert(hash(&data[..length], 7, 0)), "{length} bytes");
        }
        for at in 0..64 {
            let mut changed = data.clone();
            changed[at] ^= 1;
            assert!(seen.insert(hash(&changed, 7, 0)), "byte {at}");
        }
        assert!(seen.insert(hash(&data, 8, 0)) && seen.insert(hash(&data, 7, 1)));
        assert_eq!(hash(&data, 7, 0), hash(&data, 7, 0));
    }

    #[test]
    fn lengths_of_zeroes_differ() {
        let zeroes = [0; 96];
        let hashes: BTreeSet<_> = (0..=96).map(|length| hash(&zeroes[..length], 0, 0)).collect();
        assert_eq!(hashes.len(), 97);
    }
}
