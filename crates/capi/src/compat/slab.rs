//! `kvslab.h`: pairs with room for their key and value in one piece.
// UNSAFETY: functions that C calls, and structures in memory that C holds.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard};

use sdk::lock;

use crate::abi::{KvIterate, KvKey, KvPair, KvValue};
use crate::boundary::quietly;
use crate::result::Code;

/// Alignment of keys and values: a cache line.
const ALIGNMENT: usize = 64;
const DEVICES_MAX: usize = 64;
const POSIX: c_int = 0x10;
const HUGE: c_int = 0x20;

/// One allocation.
struct Piece {
    layout: Layout,
    /// The device whose slab it is from; `None` for ordinary memory.
    device: Option<usize>,
}

#[derive(Default)]
struct Slabs {
    /// Bytes left for each device; empty when there is no slab.
    left: Vec<usize>,
    /// Everything that was handed out, by address.
    pieces: BTreeMap<usize, Piece>,
}

static SLABS: Mutex<Slabs> = Mutex::new(Slabs { left: Vec::new(), pieces: BTreeMap::new() });

fn slabs() -> MutexGuard<'static, Slabs> {
    // Whole after every statement.
    lock(&SLABS)
}

/// A zeroed structure with a key and a value behind it: their addresses. `None` when there is no room.
fn alloc<T>(key_len: c_int, value_len: c_int, device: Option<usize>) -> Option<(*mut T, *mut u8, *mut u8)> {
    let (key, value) = (usize::try_from(key_len).ok()?, usize::try_from(value_len).ok()?);
    let key_at = size_of::<T>().next_multiple_of(ALIGNMENT);
    let value_at = key_at.checked_add(key)?.checked_next_multiple_of(ALIGNMENT)?;
    let layout = Layout::from_size_align(value_at.checked_add(value)?, ALIGNMENT).ok()?;
    let mut slabs = slabs();
    if let Some(device) = device {
        let left = slabs.left.get_mut(device)?;
        *left = left.checked_sub(layout.size())?;
    }
    // SAFETY: the size is not 0: the structure is in it.
    let start = unsafe { alloc_zeroed(layout) };
    if start.is_null() {
        if let Some(left) = device.and_then(|device| slabs.left.get_mut(device)) {
            *left += layout.size();
        }
        return None;
    }
    slabs.pieces.insert(start as usize, Piece { layout, device });
    Some((start.cast(), start.wrapping_add(key_at), start.wrapping_add(value_at)))
}

fn release(start: usize, piece: &Piece) {
    // SAFETY: it was allocated with this layout, and is no longer in the map: this is the only time.
    unsafe { dealloc(start as *mut u8, piece.layout) };
}

/// Frees a piece of [`alloc`]; anything else is left alone.
fn free(start: usize) {
    let mut slabs = slabs();
    let Some(piece) = slabs.pieces.remove(&start) else { return };
    if let Some(left) = piece.device.and_then(|device| slabs.left.get_mut(device)) {
        *left += piece.layout.size();
    }
    release(start, &piece);
}

fn set_up(pair: &mut KvPair, key: *mut u8, key_len: c_int, value: *mut u8, value_len: c_int) {
    pair.key = KvKey { key: key.cast(), length: u16::try_from(key_len).unwrap_or(u16::MAX) };
    pair.value = KvValue { value: value.cast(), length: value_len as u32, actual_value_size: 0, offset: 0 };
}

fn alloc_pair(key_len: c_int, value_len: c_int, device: Option<usize>) -> *mut KvPair {
    quietly(null_mut(), || {
        let Some((pair, key, value)) = alloc::<KvPair>(key_len, value_len, device) else { return null_mut() };
        // SAFETY: a zeroed, aligned structure that nobody else has; zeroes are valid for it.
        set_up(unsafe { &mut *pair }, key, key_len, value, value_len);
        pair
    })
}

#[unsafe(no_mangle)]
extern "C" fn kvslab_init(total_slab_size: usize, slab_alloc_policy: c_int, nr_ssd: c_int) -> c_int {
    quietly(Code::HEAP_ALLOC_FAILURE.0, || {
        let devices = usize::try_from(nr_ssd).unwrap_or(0);
        let mut slabs = slabs();
        let known = matches!(slab_alloc_policy, POSIX | HUGE);
        if !(1..=DEVICES_MAX).contains(&devices) || !known || total_slab_size == 0 || !slabs.left.is_empty() {
            return Code::SDK_INVALID_PARAM.0;
        }
        slabs.left = vec![total_slab_size; devices];
        Code::SUCCESS.0
    })
}

#[unsafe(no_mangle)]
extern "C" fn kvslab_destroy() -> c_int {
    quietly(Code::SDK_CLOSE.0, || {
        let mut slabs = slabs();
        slabs.left.clear();
        slabs.pieces.retain(|start, piece| {
            let stays = piece.device.is_none();
            if !stays {
                release(*start, piece);
            }
            stays
        });
        Code::SUCCESS.0
    })
}

#[unsafe(no_mangle)]
extern "C" fn posix_alloc_pair(key_len: c_int, value_len: c_int, _flag: c_int) -> *mut KvPair {
    alloc_pair(key_len, value_len, None)
}

#[unsafe(no_mangle)]
extern "C" fn slab_alloc_pair(key_len: c_int, value_len: c_int, did: c_int) -> *mut KvPair {
    alloc_pair(key_len, value_len, Some(usize::try_from(did).unwrap_or(usize::MAX)))
}

#[unsafe(no_mangle)]
extern "C" fn slab_alloc_iterate(key_len: c_int, value_len: c_int, did: c_int) -> *mut KvIterate {
    quietly(null_mut(), || {
        let device = Some(usize::try_from(did).unwrap_or(usize::MAX));
        let Some((iterate, key, value)) = alloc::<KvIterate>(key_len, value_len, device) else {
            return null_mut();
        };
        // SAFETY: a zeroed, aligned structure that nobody else has; zeroes are valid for it.
        set_up(unsafe { &mut (*iterate).kv }, key, key_len, value, value_len);
        iterate
    })
}

#[unsafe(no_mangle)]
extern "C" fn posix_free_pair(kv: *mut KvPair) {
    quietly((), || free(kv as usize));
}

#[unsafe(no_mangle)]
extern "C" fn slab_free_pair(kv: *mut KvPair) {
    quietly((), || free(kv as usize));
}

#[unsafe(no_mangle)]
extern "C" fn slab_free_iterate(it: *mut KvIterate) {
    quietly((), || free(it as usize));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defect_10_pieces_are_aligned_and_a_slab_that_is_used_up_gives_null() {
        assert_eq!(kvslab_init(4096, POSIX, 2), 0);
        assert_ne!(kvslab_init(4096, POSIX, 2), 0, "there is one already");
        let pair = slab_alloc_pair(13, 1001, 1);
        // SAFETY: a pair that this test owns.
        let fields = unsafe { pair.read() };
        assert!(
            (fields.key.key as usize).is_multiple_of(8) && (fields.value.value as usize).is_multiple_of(8)
        );
        assert_eq!((fields.key.length, fields.value.length), (13, 1001));
        let rest: Vec<_> =
            std::iter::from_fn(|| Some(slab_alloc_pair(13, 1001, 1)).filter(|p| !p.is_null())).collect();
        assert_eq!(rest.len(), 2, "three pieces of 1257 bytes are in 4096");
        slab_free_pair(pair);
        slab_free_pair(pair);
        assert!(!slab_alloc_pair(13, 1001, 1).is_null());
        assert!(slab_alloc_pair(13, 1001, 2).is_null(), "there is no third device");
        assert!(slab_alloc_pair(-1, 16, 0).is_null());
        assert_eq!(kvslab_destroy(), 0);
        assert!(slab_alloc_pair(13, 1001, 0).is_null());
    }
}
