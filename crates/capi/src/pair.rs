//! A `kv_pair` and a `kv_iterate`, taken apart once.
//!
//! What the program passed is copied when the call comes in, and written when it is answered; nothing refers
//! to the structures in between, so a program that changes them under a running call spoils its own data and
//! nothing else.
// UNSAFETY: the structures, keys and values of a C program are behind raw pointers.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use sdk::Status;
use unvme_guide::session::{ITERATE_BYTES, KvKey};

use crate::abi::{Callback, KvIterate, KvPair};
use crate::result::{Code, Failure, Result};

/// `KV_MAX_IO_VALUE_LEN`: what one command moves of blocks.
pub(crate) const BLOCK_BYTES_MAX: u32 = 2 << 20;
/// Most bytes of a pair's value; a device may take less.
pub(crate) const VALUE_BYTES_MAX: u32 = 256 << 20;
/// `KV_MIN_KEY_LEN`: that of the uNVMe SDK.
pub(crate) const KEY_BYTES_MIN: u16 = 4;
const KEY_BYTES_MAX: u16 = 255;
/// `KV_ALIGNMENT_UNIT`.
const OFFSET_UNIT: u32 = 512;
/// `KV_VALUE_LENGTH_ALIGNMENT_UNIT`.
const LENGTH_UNIT: u32 = 4;
const KEYSPACES: u8 = 2;
/// Bytes of a key that say which block it is.
const LBA_BYTES: usize = 8;

/// What is asked of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Store,
    Append,
    Retrieve,
    Delete,
    Exist,
}

impl Verb {
    const fn has_value(self) -> bool {
        matches!(self, Self::Store | Self::Append | Self::Retrieve)
    }
}

/// A pair of a program, for as long as a call (`'a`) lasts.
pub(crate) struct Pair<'a> {
    at: *mut KvPair,
    fields: KvPair,
    lifetime: PhantomData<&'a mut [u8]>,
}

impl<'a> Pair<'a> {
    /// Copies the pair at `at`. The first of the checks: everything is there.
    ///
    /// # Safety
    /// `at` is null or points to a `kv_pair` whose key has as many bytes as it says, or 8 on a block device,
    /// and whose value has as many as it says; all that is left alone by others for `'a`.
    pub(crate) unsafe fn copy(at: *const KvPair) -> Result<Self> {
        if at.is_null() || !at.is_aligned() {
            return Err(missing("the kv_pair is NULL or not aligned"));
        }
        // SAFETY: the caller's promise, and it is neither null nor misaligned.
        let fields = unsafe { at.read() };
        if fields.key.key.is_null() {
            return Err(missing("key.key is NULL"));
        }
        Ok(Self { at: at.cast_mut(), fields, lifetime: PhantomData })
    }

    /// The pair of an operation that has ended, copied anew. Nothing is checked: whatever it has become, its
    /// callback is called.
    ///
    /// # Safety
    /// `at` is where [`Pair::copy`] found a pair, which is still there for `'a`, with its value.
    pub(crate) unsafe fn ended(at: *mut KvPair) -> Self {
        // SAFETY: the caller's promise.
        let fields = unsafe { at.read() };
        Self { at, fields, lifetime: PhantomData }
    }

    /// The same pair, in keyspace 0 unless it names one that exists.
    pub(crate) fn in_existing_keyspace(mut self) -> Self {
        if self.fields.keyspace_id >= KEYSPACES {
            self.fields.keyspace_id = 0;
        }
        self
    }

    /// `param.io_option`.
    pub(crate) fn option(&self) -> i32 {
        self.fields.param.io_option
    }

    /// `value.length`.
    pub(crate) fn length(&self) -> u32 {
        self.fields.value.length
    }

    /// `value.offset`.
    pub(crate) fn offset(&self) -> u32 {
        self.fields.value.offset
    }

    pub(crate) fn value_address(&self) -> *const u8 {
        self.fields.value.value.cast()
    }

    /// A number that says which pair it is, and in its low bits nothing.
    pub(crate) fn address(&self) -> u64 {
        self.at as u64
    }

    /// The checks that key-value and block devices share, in the order of the original SDK.
    fn check(&self, verb: Verb) -> Result<()> {
        if verb.has_value() {
            if self.fields.value.value.is_null() && self.length() > 0 {
                return Err(missing("value.value is NULL"));
            }
            if self.length() > VALUE_BYTES_MAX {
                return Err(wrong(Code::INVALID_VALUE_SIZE, "value.length is more than 256 MiB"));
            }
        }
        if self.fields.keyspace_id >= KEYSPACES {
            return Err(wrong(Code::INVALID_KEYSPACE_ID, "keyspace_id is neither 0 nor 1"));
        }
        Ok(())
    }

    /// The key of a key-value device, when everything about the pair is as it must be.
    pub(crate) fn key(&self, verb: Verb) -> Result<KvKey<'a>> {
        self.check(verb)?;
        let length = self.fields.key.length;
        if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&length) {
            return Err(wrong(
                Code::INVALID_KEY_SIZE,
                "key.length is not 4 to 255: the calls of unvme.h take keys of 1 to 3 bytes",
            ));
        }
        if verb == Verb::Retrieve {
            if !self.length().is_multiple_of(LENGTH_UNIT) {
                return Err(wrong(Code::MISALIGNED_VALUE_SIZE, "value.length is not a multiple of 4"));
            }
            if !self.offset().is_multiple_of(OFFSET_UNIT) {
                return Err(wrong(Code::MISALIGNED_VALUE_OFFSET, "value.offset is not a multiple of 512"));
            }
        }
        // SAFETY: the promise of `copy`: so many bytes are there, for 'a.
        let bytes = unsafe { std::slice::from_raw_parts(self.fields.key.key.cast::<u8>(), length.into()) };
        Ok(KvKey { keyspace: self.fields.keyspace_id, bytes })
    }

    /// The first block and the number of blocks on a block device, when everything about the pair is as it
    /// must be.
    pub(crate) fn blocks(&self, verb: Verb, block_bytes: u32, device_blocks: u64) -> Result<(u64, u32)> {
        self.check(verb)?;
        let length = self.length();
        if length > BLOCK_BYTES_MAX {
            return Err(wrong(Code::INVALID_VALUE_SIZE, "value.length is more than 2 MiB"));
        }
        if length == 0 {
            return Err(wrong(Code::INVALID_VALUE_SIZE, "value.length is 0, which is no number of blocks"));
        }
        if !length.is_multiple_of(block_bytes) {
            return Err(wrong(
                Code::MISALIGNED_VALUE_SIZE,
                "value.length is not a multiple of the block size",
            ));
        }
        // SAFETY: the promise of `copy`: 8 bytes are there.
        let lba =
            u64::from_le_bytes(unsafe { self.fields.key.key.cast::<[u8; LBA_BYTES]>().read_unaligned() });
        let blocks = length / block_bytes;
        if lba.checked_add(blocks.into()).is_none_or(|end| end > device_blocks) {
            // What the device would say, with the code that cannot be mistaken for a key-value result.
            return Err(Failure::of_status(Status::LBA_OUT_OF_RANGE, Code::IO));
        }
        Ok((lba, blocks))
    }

    /// The value, to be read. On a block device `value.offset` bytes of it are skipped.
    pub(crate) fn value(&self, skip: u32) -> &'a [u8] {
        if self.length() == 0 {
            return &[];
        }
        let start = self.fields.value.value.cast::<u8>().wrapping_add(skip as usize);
        // SAFETY: the promise of `copy`, and the checks found that it is not null.
        unsafe { std::slice::from_raw_parts(start, self.length() as usize) }
    }

    /// The value, to be written.
    pub(crate) fn buffer(&mut self, skip: u32) -> &mut [u8] {
        if self.length() == 0 || self.fields.value.value.is_null() {
            return &mut [];
        }
        let start = self.fields.value.value.cast::<u8>().wrapping_add(skip as usize);
        // SAFETY: the promise of `copy` or `ended`, and it is not null; nobody else may touch it during the
        // call, and this borrow is the only one.
        unsafe { std::slice::from_raw_parts_mut(start, self.length() as usize) }
    }

    /// Writes `value.length` and `value.actual_value_size`.
    pub(crate) fn answer(&mut self, length: u32, actual: u32) {
        // SAFETY: `copy` found that `at` is a kv_pair, and the program leaves it there for 'a.
        unsafe {
            (&raw mut (*self.at).value.length).write(length);
            (&raw mut (*self.at).value.actual_value_size).write(actual);
        }
    }

    /// Writes `value.actual_value_size`.
    pub(crate) fn answer_actual(&mut self, actual: u32) {
        // SAFETY: as in `answer`.
        unsafe { (&raw mut (*self.at).value.actual_value_size).write(actual) }
    }

    /// What a finished operation calls, and with what.
    pub(crate) fn callback(&self) -> Option<(Callback, *mut std::ffi::c_void)> {
        self.fields.param.async_cb.map(|callback| (callback, self.at.cast()))
    }
}

/// A `kv_iterate` of a program.
pub(crate) struct Iteration<'a> {
    at: *mut KvIterate,
    fields: KvIterate,
    lifetime: PhantomData<&'a mut [u8]>,
}

impl Iteration<'_> {
    /// Copies the structure at `at`.
    ///
    /// # Safety
    /// As [`Pair::copy`], for a `kv_iterate`; its key is not looked at.
    pub(crate) unsafe fn copy(at: *mut KvIterate) -> Result<Self> {
        if at.is_null() || !at.is_aligned() {
            return Err(missing("the kv_iterate is NULL or not aligned"));
        }
        // SAFETY: the caller's promise, and it is neither null nor misaligned.
        let fields = unsafe { at.read() };
        Ok(Self { at, fields, lifetime: PhantomData })
    }

    /// Reads keys into the structure at `at`: after every failure but the end its length is 0. What was
    /// submitted is not touched any more.
    ///
    /// # Safety
    /// As [`Iteration::copy`].
    pub(crate) unsafe fn read(at: *mut KvIterate, read: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        // SAFETY: the caller's promise.
        let mut iteration = unsafe { Self::copy(at) }?;
        read(&mut iteration).inspect_err(|failure| {
            if failure.code != Code::ITERATE_READ_EOF {
                iteration.answer(0);
            }
        })
    }

    /// The number of the iterator, when everything about the structure is as it must be.
    pub(crate) fn iterator(&self) -> Result<u8> {
        if self.fields.kv.value.value.is_null() {
            return Err(missing("value.value is NULL"));
        }
        if self.fields.kv.value.length as usize != ITERATE_BYTES {
            return Err(wrong(Code::INVALID_VALUE_SIZE, "value.length is not 32768"));
        }
        if self.fields.kv.param.io_option != 0 {
            return Err(wrong(Code::INVALID_OPTION, "iterate_read_option is not 0"));
        }
        match u8::try_from(self.fields.iterator) {
            Ok(iterator @ 1..=16) => Ok(iterator),
            _ => Err(wrong(Code::DD_INVALID_PARAM, "the number of an iterator is 1 to 16")),
        }
    }

    /// A number that says which structure it is, and in its low bits nothing.
    pub(crate) fn address(&self) -> u64 {
        self.at as u64
    }

    /// The buffer; [`Iteration::iterator`] has found that it is there.
    pub(crate) fn buffer(&mut self) -> Result<&mut [u8; ITERATE_BYTES]> {
        self.iterator()?;
        // SAFETY: the promise of `copy`, for the length that was just checked; nobody else may touch it
        // during the call.
        Ok(unsafe { &mut *self.fields.kv.value.value.cast::<[u8; ITERATE_BYTES]>() })
    }

    /// Writes `value.length`, and 0 to `key.length`.
    pub(crate) fn answer(&mut self, length: u32) {
        // SAFETY: `copy` found that `at` is a kv_iterate, and the program leaves it there for the call.
        unsafe {
            (&raw mut (*self.at).kv.value.length).write(length);
            (&raw mut (*self.at).kv.key.length).write(0);
        }
    }

    /// What a finished operation calls, and with what.
    pub(crate) fn callback(&self) -> Option<(Callback, *mut std::ffi::c_void)> {
        self.fields.kv.param.async_cb.map(|callback| (callback, self.at.cast()))
    }
}

fn missing(text: &'static str) -> Failure {
    Failure::new(Code::SDK_INVALID_PARAM, text)
}

fn wrong(code: Code, text: &'static str) -> Failure {
    Failure::new(code, text)
}
