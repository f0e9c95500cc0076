//! `kvradix.h`: the SDK's radix tree, of pointers that are the program's.
// UNSAFETY: functions that C calls, with the pointers it passes, and a tree that C holds.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uchar, c_void};
use std::ptr::null_mut;

use unvme_guide::RadixTree;

use crate::boundary::quietly;

/// `art_tree`.
#[repr(C)]
pub(crate) struct ArtTree {
    root: *mut RadixTree<usize>,
    size: u64,
}

/// # Safety
/// `key` is null or has `length` bytes, which stay as they are for `'a`.
unsafe fn key<'a>(key: *const c_uchar, length: c_int) -> Option<&'a [u8]> {
    let length = usize::try_from(length).ok()?;
    // SAFETY: the caller's promise.
    (!key.is_null()).then(|| unsafe { std::slice::from_raw_parts(key, length) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn art_tree_init(t: *mut ArtTree) -> c_int {
    quietly(-1, || {
        if t.is_null() {
            return -1;
        }
        let root = Box::into_raw(Box::new(RadixTree::default()));
        // SAFETY: what kvradix.h asks for; what was there before means nothing.
        unsafe { t.write(ArtTree { root, size: 0 }) };
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn art_tree_destroy(t: *mut ArtTree) -> c_int {
    quietly(-1, || {
        // SAFETY: what kvradix.h asks for, or null.
        let Some(tree) = (unsafe { t.as_mut() }) else { return -1 };
        if !tree.root.is_null() {
            // SAFETY: it came from a box in art_tree_init, and is null after the first time.
            drop(unsafe { Box::from_raw(tree.root) });
        }
        (tree.root, tree.size) = (null_mut(), 0);
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn art_insert(
    t: *mut ArtTree,
    key_bytes: *const c_uchar,
    key_len: c_int,
    value: *mut c_void,
) -> *mut c_void {
    quietly(null_mut(), || {
        // SAFETY: what kvradix.h asks for, or null.
        let Some((tree, key)) = (unsafe { t.as_mut().zip(key(key_bytes, key_len)) }) else {
            return null_mut();
        };
        // SAFETY: null, or the box of art_tree_init, used by one thread at a time.
        let Some(root) = (unsafe { tree.root.as_mut() }) else { return null_mut() };
        let before = root.insert(key, value as usize);
        tree.size = root.len() as u64;
        before.map_or(null_mut(), |value| value as *mut c_void)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn art_search(t: *const ArtTree, key_bytes: *const c_uchar, key_len: c_int) -> *mut c_void {
    quietly(null_mut(), || {
        // SAFETY: what kvradix.h asks for, or null.
        let Some((tree, key)) = (unsafe { t.as_ref().zip(key(key_bytes, key_len)) }) else {
            return null_mut();
        };
        // SAFETY: null, or the box of art_tree_init, used by one thread at a time.
        let root = unsafe { tree.root.as_ref() };
        root.and_then(|root| root.get(key)).map_or(null_mut(), |value| *value as *mut c_void)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn art_delete(t: *mut ArtTree, key_bytes: *const c_uchar, key_len: c_int) -> *mut c_void {
    quietly(null_mut(), || {
        // SAFETY: what kvradix.h asks for, or null.
        let Some((tree, key)) = (unsafe { t.as_mut().zip(key(key_bytes, key_len)) }) else {
            return null_mut();
        };
        // SAFETY: null, or the box of art_tree_init, used by one thread at a time.
        let Some(root) = (unsafe { tree.root.as_mut() }) else { return null_mut() };
        let removed = root.remove(key);
        tree.size = root.len() as u64;
        removed.map_or(null_mut(), |value| value as *mut c_void)
    })
}
