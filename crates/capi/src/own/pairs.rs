//! Pairs.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use unvme_guide::config::SsdType;
use unvme_guide::session::{Data, Op, Prefix, QueueChoice};

use crate::boundary::call;
use crate::handle::{self, Open};
use crate::operation;
use crate::pair::{KEY_BYTES_MIN, VALUE_BYTES_MAX};
use crate::result::{Code, Failure, Result};

const STORE: u8 = 0;
const DELETE: u8 = 1;

/// `unvme_batch_entry`.
#[repr(C)]
struct BatchEntry {
    verb: u8,
    keyspace: u8,
    option: u8,
    reserved: u8,
    key_length: u32,
    key: *const c_void,
    value: *const c_void,
    value_length: usize,
    result: c_int,
    reserved2: u32,
}

const _: () = assert!(size_of::<BatchEntry>() == 40 && std::mem::offset_of!(BatchEntry, result) == 32);

type KeyCallback = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> bool;

fn invalid(text: &'static str) -> Failure {
    Failure::new(Code::SDK_INVALID_PARAM, text)
}

/// What a program passes as an address and a length.
///
/// # Safety
/// `address` is null or has `bytes` bytes, which stay as they are for `'a`.
unsafe fn bytes<'a>(address: *const c_void, bytes: usize) -> Result<&'a [u8]> {
    if bytes == 0 {
        return Ok(&[]);
    }
    if address.is_null() {
        return Err(invalid("a key or a value is NULL"));
    }
    if bytes > VALUE_BYTES_MAX as usize {
        return Err(Failure::new(Code::INVALID_VALUE_SIZE, "a key or a value is longer than 256 MiB"));
    }
    // SAFETY: the caller's promise, and it is not null.
    Ok(unsafe { std::slice::from_raw_parts(address.cast(), bytes) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_value_size(
    number: u64,
    keyspace: u8,
    key: *const c_void,
    key_length: usize,
    size: *mut u64,
) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        open.require(SsdType::Kv)?;
        if size.is_null() {
            return Err(invalid("the place for the size is NULL"));
        }
        // SAFETY: what unvme.h asks for.
        let key = operation::key(keyspace, unsafe { bytes(key, key_length) }?)?;
        let retrieved = open.member().call(QueueChoice::Auto, Op::retrieve(key, 0), Data::In(&mut []))?;
        // SAFETY: what unvme.h asks for, and it is not null.
        unsafe { size.write(retrieved.value_bytes) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_append(
    number: u64,
    keyspace: u8,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        open.require(SsdType::Kv)?;
        // SAFETY: what unvme.h asks for.
        let (key, value) = unsafe { (bytes(key, key_length)?, bytes(value, value_length)?) };
        let key = operation::key(keyspace, key)?;
        if key.bytes.len() < usize::from(KEY_BYTES_MIN) {
            let text = "append is a command of the vendor's, whose keys have 4 to 255 bytes";
            return Err(Failure::new(Code::INVALID_KEY_SIZE, text));
        }
        let append = Op::Append { key, bytes: value.len() };
        open.member().call(QueueChoice::Auto, append, Data::Out(value))?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_list(
    number: u64,
    keyspace: u8,
    prefix: *const c_void,
    prefix_length: usize,
    callback: Option<KeyCallback>,
    arg: *mut c_void,
) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        open.require(SsdType::Kv)?;
        let callback = callback.ok_or_else(|| invalid("the callback is NULL"))?;
        // SAFETY: what unvme.h asks for.
        let prefix = unsafe { bytes(prefix, prefix_length) }?;
        list(&open, keyspace, prefix, &mut |key| {
            // SAFETY: a function of the type that unvme.h declares, with the argument that belongs to it.
            unsafe { callback(arg, key.as_ptr().cast(), key.len()) }
        })
    })
}

/// Calls `visit` for each key that begins with `prefix`, until it says no.
fn list(open: &Open, keyspace: u8, prefix: &[u8], visit: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
    if keyspace > 1 {
        return Err(Failure::new(Code::INVALID_KEYSPACE_ID, "keyspace is neither 0 nor 1"));
    }
    let member = open.member();
    let failed = |e: sdk::Error| {
        let status = e.status().unwrap_or(sdk::Status::SUCCESS);
        let code = if status.is_success() { Code::IO } else { Code::of_status(status) };
        Failure { status, ..Failure::new(code, e.to_string()) }
    };
    let mut pairs = member.device().kv(member.nsid()).and_then(|kv| kv.keyspace(keyspace)).map_err(failed)?;
    for key in pairs.prefix(prefix).map_err(failed)? {
        if !visit(&key.map_err(failed)?) {
            break;
        }
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_iterate_open(
    number: u64,
    keyspace: u8,
    bitmask: u32,
    prefix: u32,
    kind: u8,
    iterator: *mut u8,
) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        if iterator.is_null() {
            return Err(invalid("the place for the number of the iterator is NULL"));
        }
        let opened = operation::iterate_open(&open, keyspace, Prefix { prefix, bitmask }, kind)?;
        // SAFETY: what unvme.h asks for, and it is not null.
        unsafe { iterator.write(opened) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_batch(number: u64, entries: *mut BatchEntry, count: usize) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        open.require(SsdType::Kv)?;
        if count > 0 && (entries.is_null() || !entries.is_aligned()) {
            return Err(invalid("the entries are NULL or not aligned"));
        }
        let mut first_failure = Ok(());
        for index in 0..count {
            let at = entries.wrapping_add(index);
            // SAFETY: what unvme.h asks for: `count` entries are there, with their keys and values.
            let (done, result) = unsafe { (entry(&open, &at.read()), &raw mut (*at).result) };
            let code = done.as_ref().map_or_else(|failure| failure.code, |()| Code::SUCCESS);
            // SAFETY: a field of the entry.
            unsafe { result.write(code.0) };
            if first_failure.is_ok() {
                first_failure = done;
            }
        }
        first_failure
    })
}

/// # Safety
/// The key and the value of the entry are as long as it says.
unsafe fn entry(open: &Open, entry: &BatchEntry) -> Result<()> {
    if entry.reserved != 0 || entry.reserved2 != 0 {
        return Err(invalid("a reserved field of an entry is not 0"));
    }
    // SAFETY: the caller's promise.
    let key = operation::key(entry.keyspace, unsafe { bytes(entry.key, entry.key_length as usize) }?)?;
    match entry.verb {
        STORE => {
            let options = operation::store_options(entry.option.into())?;
            // SAFETY: the caller's promise.
            let value = unsafe { bytes(entry.value, entry.value_length) }?;
            let store = Op::Store { key, bytes: value.len(), options };
            open.member().call(QueueChoice::Auto, store, Data::Out(value))?;
        }
        DELETE => {
            let must_exist = operation::delete_option(entry.option.into())?;
            open.member().call(QueueChoice::Auto, Op::Delete { key, must_exist }, Data::None)?;
        }
        _ => return Err(invalid("the verb of an entry is neither store nor delete")),
    }
    Ok(())
}
