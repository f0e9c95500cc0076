//! `kvcache.h`: a cache by itself, in the SDK's radix tree.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use sdk::lock;
use unvme_guide::RadixTree;

use crate::abi::KvPair;
use crate::boundary::quietly;
use crate::pair::{Pair, Verb};

const SUCCESS: c_int = 0;
const NO_CACHED_KEY: c_int = -1;
const INVALID_PARAM: c_int = -2;
const ALLOC_FAILURE: c_int = -3;

/// Values by keyspace and key; `None` before `kv_cache_init`.
static CACHE: RwLock<Option<RadixTree<Box<[u8]>>>> = RwLock::new(None);

fn write() -> RwLockWriteGuard<'static, Option<RadixTree<Box<[u8]>>>> {
    // The tree is whole after every call.
    lock::write(&CACHE)
}

fn read() -> RwLockReadGuard<'static, Option<RadixTree<Box<[u8]>>>> {
    lock::read(&CACHE)
}

/// The pair, and what its value is found by.
///
/// Programs leave the keyspace unset here; one that does not exist counts as 0.
///
/// # Safety
/// As [`Pair::copy`].
unsafe fn parts<'a>(pair: *mut KvPair, verb: Verb) -> Option<(Pair<'a>, Vec<u8>)> {
    // SAFETY: the caller's promise.
    let pair = unsafe { Pair::copy(pair) }.ok()?.in_existing_keyspace();
    let key = pair.key(verb).ok()?;
    let mut name = Vec::with_capacity(key.bytes.len() + 1);
    name.push(key.keyspace);
    name.extend_from_slice(key.bytes);
    Some((pair, name))
}

#[unsafe(no_mangle)]
extern "C" fn kv_cache_init() -> c_int {
    quietly(ALLOC_FAILURE, || {
        *write() = Some(RadixTree::default());
        SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn kv_cache_finalize() -> c_int {
    quietly(INVALID_PARAM, || {
        *write() = None;
        SUCCESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_cache_write(pair: *mut KvPair) -> c_int {
    quietly(ALLOC_FAILURE, || {
        // SAFETY: what kvcache.h asks for.
        let Some((pair, name)) = (unsafe { parts(pair, Verb::Store) }) else { return INVALID_PARAM };
        let mut value = Vec::new();
        if value.try_reserve_exact(pair.length() as usize).is_err() {
            return ALLOC_FAILURE;
        }
        value.extend_from_slice(pair.value(0));
        match write().as_mut() {
            Some(tree) => {
                tree.insert(&name, value.into_boxed_slice());
                SUCCESS
            }
            None => INVALID_PARAM,
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_cache_read(pair: *mut KvPair) -> c_int {
    quietly(INVALID_PARAM, || {
        // SAFETY: what kvcache.h asks for.
        let Some((mut pair, name)) = (unsafe { parts(pair, Verb::Store) }) else { return INVALID_PARAM };
        let cache = read();
        let Some(tree) = cache.as_ref() else { return INVALID_PARAM };
        let Some(value) = tree.get(&name) else { return NO_CACHED_KEY };
        let buffer = pair.buffer(0);
        let bytes = value.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&value[..bytes]);
        pair.answer(bytes as u32, value.len() as u32);
        SUCCESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_cache_delete(pair: *mut KvPair) -> c_int {
    quietly(INVALID_PARAM, || {
        // SAFETY: what kvcache.h asks for.
        let Some((_, name)) = (unsafe { parts(pair, Verb::Delete) }) else { return INVALID_PARAM };
        match write().as_mut() {
            Some(tree) => tree.remove(&name).map_or(NO_CACHED_KEY, |_| SUCCESS),
            None => INVALID_PARAM,
        }
    })
}
