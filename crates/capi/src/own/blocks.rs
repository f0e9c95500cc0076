//! Logical blocks.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use sdk::{BlockRange, Lba, Status, WriteOptions};
use unvme_guide::config::SsdType;
use unvme_guide::session::{Data, Op, QueueChoice, Returned};

use crate::boundary::call;
use crate::completion::{BlockCallback, BlockIo};
use crate::handle::{self, Open};
use crate::pair::BLOCK_BYTES_MAX;
use crate::result::{Code, Failure, Result};

/// `unvme_block_info`.
#[repr(C)]
struct BlockInfo {
    blocks: u64,
    block_bytes: u32,
    transfer_bytes_max: u32,
}

const _: () = assert!(size_of::<BlockInfo>() == 16);

pub(super) fn invalid(text: &'static str) -> Failure {
    Failure::new(Code::SDK_INVALID_PARAM, text)
}

/// A range of blocks that is on the device.
pub(super) struct Range {
    pub(super) lba: u64,
    blocks: u64,
    pub(super) bytes: usize,
    block_bytes: u32,
}

impl Range {
    pub(super) fn new(open: &Open, lba: u64, blocks: u64) -> Result<Self> {
        open.require(SsdType::Lba)?;
        let member = open.member();
        let bytes =
            blocks.checked_mul(member.sector_bytes().into()).and_then(|bytes| usize::try_from(bytes).ok());
        match (lba.checked_add(blocks), bytes) {
            (Some(end), Some(bytes)) if end <= member.sectors() => {
                Ok(Self { lba, blocks, bytes, block_bytes: member.sector_bytes() })
            }
            _ => Err(Failure::of_status(Status::LBA_OUT_OF_RANGE, Code::IO)),
        }
    }

    /// Blocks of a piece.
    pub(super) fn count(&self, piece: &std::ops::Range<usize>) -> u32 {
        (piece.len() / self.block_bytes as usize) as u32
    }

    /// Its pieces, each of at most one command: first block and offset in bytes.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
        let block_bytes = self.block_bytes as usize;
        let step = BLOCK_BYTES_MAX as usize / block_bytes * block_bytes;
        let (lba, bytes) = (self.lba, self.bytes);
        (0..bytes)
            .step_by(step.max(1))
            .map(move |offset| (lba + (offset / block_bytes) as u64, offset..bytes.min(offset + step)))
    }
}

/// A program's buffer of so many bytes.
///
/// # Safety
/// `buf` is null or has `bytes` bytes that nobody else uses for `'a`.
pub(super) unsafe fn buffer<'a>(buf: *mut c_void, bytes: usize) -> Result<&'a mut [u8]> {
    if bytes == 0 {
        return Ok(&mut []);
    }
    if buf.is_null() {
        return Err(invalid("the buffer is NULL"));
    }
    // SAFETY: the caller's promise, and it is not null.
    Ok(unsafe { std::slice::from_raw_parts_mut(buf.cast(), bytes) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_block_info_get(number: u64, info: *mut BlockInfo) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        open.require(SsdType::Lba)?;
        if info.is_null() || !info.is_aligned() {
            return Err(invalid("the place for the result is NULL or not aligned"));
        }
        let member = open.member();
        let found = BlockInfo {
            blocks: member.sectors(),
            block_bytes: member.sector_bytes(),
            transfer_bytes_max: BLOCK_BYTES_MAX,
        };
        // SAFETY: what unvme.h asks for; it is neither null nor misaligned.
        unsafe { info.write(found) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_read(number: u64, lba: u64, blocks: u64, buf: *mut c_void) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        let range = Range::new(&open, lba, blocks)?;
        // SAFETY: what unvme.h asks for.
        let buf = unsafe { buffer(buf, range.bytes) }?;
        for (lba, piece) in range.pieces() {
            open.member().call(
                QueueChoice::Auto,
                Op::read(lba, range.count(&piece)),
                Data::In(&mut buf[piece]),
            )?;
        }
        Ok(())
    })
}

/// Writes blocks, in as many commands as it takes.
///
/// # Safety
/// `buf` is null or has as many bytes as the blocks.
pub(super) unsafe fn write(
    number: u64,
    lba: u64,
    blocks: u64,
    buf: *const c_void,
    options: WriteOptions,
) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        let range = Range::new(&open, lba, blocks)?;
        // SAFETY: the caller's promise; it is only read.
        let buf = unsafe { buffer(buf.cast_mut(), range.bytes) }?;
        for (lba, piece) in range.pieces() {
            let write = Op::Write(BlockRange::new(Lba(lba), range.count(&piece)), options);
            open.member().call(QueueChoice::Auto, write, Data::Out(&buf[piece]))?;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_write(number: u64, lba: u64, blocks: u64, buf: *const c_void) -> c_int {
    // SAFETY: what unvme.h asks for.
    unsafe { write(number, lba, blocks, buf, WriteOptions::default()) }
}

#[unsafe(no_mangle)]
extern "C" fn unvme_deallocate(number: u64, lba: u64, blocks: u64) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        let Range { mut lba, blocks: mut left, .. } = Range::new(&open, lba, blocks)?;
        while left > 0 {
            let step = left.min(u32::MAX.into());
            let given = [BlockRange::new(Lba(lba), step as u32)];
            open.member().call(QueueChoice::Auto, Op::Deallocate(&given), Data::None)?;
            lba += step;
            left -= step;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn unvme_flush(number: u64) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        open.member().call(QueueChoice::Auto, Op::Flush, Data::None)?;
        Ok(())
    })
}

/// A range that one command takes.
pub(super) fn single(open: &Open, lba: u64, blocks: u32) -> Result<Range> {
    let range = Range::new(open, lba, blocks.into())?;
    if range.bytes == 0 || range.bytes > BLOCK_BYTES_MAX as usize {
        return Err(Failure::new(Code::INVALID_VALUE_SIZE, "one block to 2 MiB are expected"));
    }
    Ok(range)
}

/// Submits with a token that owns `io`, and takes it back when that fails.
pub(super) fn submit(
    io: BlockIo,
    submit: impl FnOnce(u64) -> std::result::Result<(), Returned>,
) -> Result<()> {
    let token = io.into_token();
    submit(token).map_err(|error| {
        // SAFETY: an operation that was not accepted does not finish, so nobody else has the token.
        drop(unsafe { BlockIo::take_back(token) });
        Failure::from(error)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_read_async(
    number: u64,
    lba: u64,
    blocks: u32,
    buf: *mut c_void,
    callback: Option<BlockCallback>,
    arg: *mut c_void,
) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        let range = single(&open, lba, blocks)?;
        let callback = callback.ok_or_else(|| invalid("the callback is NULL"))?;
        if buf.is_null() {
            return Err(invalid("the buffer is NULL"));
        }
        let io = BlockIo { buffer: buf.cast(), bytes: range.bytes, callback, arg };
        submit(io, |token| {
            open.member().submit(QueueChoice::Auto, Op::read(range.lba, blocks), Data::None, token)
        })
    })
}

/// Submits a write of blocks.
///
/// # Safety
/// `buf` is null or has as many bytes as the blocks.
pub(super) unsafe fn write_async(
    number: u64,
    (lba, blocks): (u64, u32),
    buf: *const c_void,
    options: WriteOptions,
    (callback, arg): (Option<BlockCallback>, *mut c_void),
) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        let range = single(&open, lba, blocks)?;
        let callback = callback.ok_or_else(|| invalid("the callback is NULL"))?;
        // SAFETY: the caller's promise; it is only read.
        let data = unsafe { buffer(buf.cast_mut(), range.bytes) }?;
        let io = BlockIo { buffer: std::ptr::null_mut(), bytes: 0, callback, arg };
        let write = Op::Write(BlockRange::new(Lba(range.lba), blocks), options);
        submit(io, |token| open.member().submit(QueueChoice::Auto, write, Data::Out(data), token))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_write_async(
    number: u64,
    lba: u64,
    blocks: u32,
    buf: *const c_void,
    callback: Option<BlockCallback>,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: what unvme.h asks for.
    unsafe { write_async(number, (lba, blocks), buf, WriteOptions::default(), (callback, arg)) }
}
