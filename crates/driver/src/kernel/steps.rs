//! Commands of the NVM Command Set on a block device or file: each is one operation of the kernel after the
//! other.

use unvme_bus::{DmaBuf, DmaPool};
use unvme_spec::nvm::{AccessFlags, BlockRange, Command, DsmRange};
use unvme_spec::{Sqe, Status};
use zerocopy::FromBytes;

use super::block::{BlockFile, BlockKind};
use super::describe::NSID;
use super::errno::block_status;
use super::uring::{Operation, Place};

/// The file's number in a queue's ring.
pub(super) const FILE: u32 = 0;
/// Verify reads so much at a time.
const VERIFY_BYTES: u64 = 1 << 20;

/// Direct I/O moves multiples of this.
const SECTOR_BYTES: usize = 512;

/// What comes next for a command.
pub(super) enum Next {
    /// An operation of the kernel.
    Start(Operation<'static>),
    /// The same, for which the slot needs a buffer of its own.
    Lend(DmaBuf, Operation<'static>),
    /// Nothing.
    Done(Status),
}

/// How far a command has come. Offsets and lengths are bytes.
pub(super) enum Work {
    Flush,
    Read { offset: u64, bytes: usize, done: usize },
    Write { offset: u64, bytes: usize, done: usize, sync: bool },
    Compare { offset: u64, bytes: usize, done: usize },
    Verify { offset: u64, left: u64, now: usize },
    Zero { offset: u64, bytes: u64, modes: [i32; 2], tried: usize, sync: bool, is_syncing: bool },
    Deallocate { ranges: Vec<(u64, u64)>, at: usize, way: Deallocation },
}

/// How a range is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deallocation {
    /// The block layer's discard, by io_uring: Linux 6.12.
    Discard,
    /// A hole: what was there reads as zeroes.
    Hole,
}

const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
const HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

impl Work {
    /// Checks a command against the file, and against the buffer that came with it.
    pub(super) fn parse(
        file: &BlockFile,
        sqe: &Sqe,
        payload: Option<(&DmaBuf, usize)>,
    ) -> Result<Self, Status> {
        let command = Command::parse(sqe);
        let is_flush = command == Command::Flush;
        if sqe.nsid != NSID.0 && !(is_flush && sqe.nsid == u32::MAX) {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT.with_do_not_retry());
        }
        let place = |range: BlockRange| place(file, range);
        let moved = |range: BlockRange| {
            let (offset, bytes) = place(range)?;
            let bytes = usize::try_from(bytes).map_err(|_| Status::INVALID_FIELD)?;
            match payload {
                Some((_, room)) if room >= bytes => Ok((offset, bytes)),
                _ => Err(Status::DATA_TRANSFER_ERROR.with_do_not_retry()),
            }
        };
        if is_write(&command) && file.read_only.is_some() {
            return Err(Status::NAMESPACE_WRITE_PROTECTED.with_do_not_retry());
        }
        match command {
            Command::Flush => Ok(Self::Flush),
            Command::Read(range, flags) => {
                plain(flags)?;
                moved(range).map(|(offset, bytes)| Self::Read { offset, bytes, done: 0 })
            }
            Command::Write(range, flags) => {
                plain(flags)?;
                if sqe.directive().dtype != 0 {
                    return Err(Status::INVALID_FIELD.with_do_not_retry());
                }
                let sync = flags.force_unit_access;
                moved(range).map(|(offset, bytes)| Self::Write { offset, bytes, done: 0, sync })
            }
            Command::Compare(range, flags) => {
                plain(flags)?;
                moved(range).map(|(offset, bytes)| Self::Compare { offset, bytes, done: 0 })
            }
            Command::Verify(range, flags) => {
                plain(flags)?;
                place(range).map(|(offset, left)| Self::Verify { offset, left, now: 0 })
            }
            Command::WriteZeroes { range, flags, deallocate } => {
                plain(flags)?;
                let (offset, bytes) = place(range)?;
                let modes = if deallocate { [HOLE, ZERO] } else { [ZERO, HOLE] };
                let sync = flags.force_unit_access;
                Ok(Self::Zero { offset, bytes, modes, tried: 0, sync, is_syncing: false })
            }
            Command::DatasetManagement { ranges, deallocate, .. } => {
                let ranges = if deallocate { read_ranges(file, ranges, payload)? } else { Vec::new() };
                let way = match file.kind {
                    BlockKind::Device => Deallocation::Discard,
                    BlockKind::File => Deallocation::Hole,
                };
                Ok(Self::Deallocate { ranges, at: 0, way })
            }
            _ => Err(Status::INVALID_OPCODE.with_do_not_retry()),
        }
    }

    /// The next operation, or the end: success when there is nothing left to do.
    pub(super) fn next(&mut self, pool: &DmaPool) -> Next {
        match self {
            Self::Flush => Next::Start(Operation::Sync { file: FILE }),
            Self::Read { offset, bytes, done } => {
                let (offset, skip, bytes) = (*offset + *done as u64, *done, *bytes - *done);
                Next::Start(Operation::Read { file: FILE, offset, place: Place::Payload, skip, bytes })
            }
            Self::Write { offset, bytes, done, sync } => {
                let (offset, skip, bytes, sync) = (*offset + *done as u64, *done, *bytes - *done, *sync);
                Next::Start(Operation::Write { file: FILE, offset, skip, bytes, sync })
            }
            Self::Compare { offset, bytes, done } => {
                let (offset, skip, left) = (*offset + *done as u64, *done, *bytes - *done);
                let operation =
                    Operation::Read { file: FILE, offset, place: Place::Scratch, skip, bytes: left };
                if skip > 0 { Next::Start(operation) } else { lend(pool, *bytes, operation) }
            }
            Self::Verify { left: 0, .. } => Next::Done(Status::SUCCESS),
            Self::Verify { offset, left, now } => {
                let is_first = *now == 0;
                *now = (*left).min(VERIFY_BYTES) as usize;
                let (offset, bytes) = (*offset, *now);
                let operation = Operation::Read { file: FILE, offset, place: Place::Scratch, skip: 0, bytes };
                if is_first { lend(pool, bytes, operation) } else { Next::Start(operation) }
            }
            Self::Zero { is_syncing: true, .. } => Next::Start(Operation::Sync { file: FILE }),
            Self::Zero { offset, bytes, modes, tried, .. } => match modes.get(*tried) {
                Some(&mode) => {
                    let (offset, bytes) = (*offset, *bytes);
                    Next::Start(Operation::Allocate { file: FILE, mode, offset, bytes })
                }
                None => Next::Done(Status::INVALID_OPCODE.with_do_not_retry()),
            },
            Self::Deallocate { ranges, at, way } => match ranges.get(*at) {
                Some(&(offset, bytes)) => Next::Start(match way {
                    Deallocation::Discard => Operation::Discard { file: FILE, offset, bytes },
                    Deallocation::Hole => Operation::Allocate { file: FILE, mode: HOLE, offset, bytes },
                }),
                None => Next::Done(Status::SUCCESS),
            },
        }
    }

    /// Takes note of what an operation returned; `Some` when that ends the command.
    pub(super) fn note(&mut self, res: i32, buffers: (Option<&DmaBuf>, Option<&DmaBuf>)) -> Option<Status> {
        let moved = usize::try_from(res);
        match self {
            Self::Flush => Some(moved.map_or_else(|_| block_status(-res, true), |_| Status::SUCCESS)),
            Self::Read { bytes, done, .. } => advance(done, *bytes, res, false),
            Self::Write { bytes, done, .. } => advance(done, *bytes, res, true),
            Self::Compare { bytes, done, .. } => {
                let ended = advance(done, *bytes, res, false)?;
                Some(if ended.is_success() { compare(buffers, *bytes) } else { ended })
            }
            Self::Verify { offset, left, now } => {
                let mut done = 0;
                let ended = advance(&mut done, *now, res, false);
                *offset += done as u64;
                *left = left.saturating_sub(done as u64);
                ended.filter(|status| !status.is_success())
            }
            Self::Zero { tried, sync, is_syncing, .. } => match res {
                0 if *sync && !*is_syncing => {
                    *is_syncing = true;
                    None
                }
                0 => Some(Status::SUCCESS),
                _ if -res == libc::EOPNOTSUPP && !*is_syncing => {
                    *tried += 1;
                    None
                }
                _ => Some(block_status(-res, true)),
            },
            Self::Deallocate { at, way, .. } => deallocated(at, way, res),
        }
    }
}

/// The end of one range. Where nothing can be given back it stays: to deallocate is a wish (NVM 3.3.3.2.1).
fn deallocated(at: &mut usize, way: &mut Deallocation, res: i32) -> Option<Status> {
    let is_lacking = matches!(-res, libc::EOPNOTSUPP | libc::EINVAL | libc::ENOTTY);
    match *way {
        _ if res == 0 => *at += 1,
        Deallocation::Discard if is_lacking => *way = Deallocation::Hole,
        Deallocation::Hole if -res == libc::EOPNOTSUPP => *at += 1,
        _ => return Some(block_status(-res, true)),
    }
    None
}

fn is_write(command: &Command) -> bool {
    matches!(command, Command::Write(..) | Command::WriteZeroes { .. } | Command::DatasetManagement { .. })
}

/// Protection information is for drives that have it.
fn plain(flags: AccessFlags) -> Result<(), Status> {
    if flags.protection_info == 0 { Ok(()) } else { Err(Status::INVALID_PROTECTION_INFORMATION) }
}

/// Byte offset and length of blocks that are all there.
fn place(file: &BlockFile, range: BlockRange) -> Result<(u64, u64), Status> {
    if range.end().is_none_or(|end| end > file.blocks) {
        return Err(Status::LBA_OUT_OF_RANGE.with_do_not_retry());
    }
    // No overflow: the blocks are within the file, whose size in bytes is a number of 64 bits.
    Ok((range.start.0 << file.block_shift(), u64::from(range.blocks) << file.block_shift()))
}

fn read_ranges(
    file: &BlockFile,
    count: u32,
    payload: Option<(&DmaBuf, usize)>,
) -> Result<Vec<(u64, u64)>, Status> {
    let bytes = count as usize * size_of::<DsmRange>();
    let Some((buf, _)) = payload.filter(|(_, room)| *room >= bytes) else {
        return Err(Status::DATA_TRANSFER_ERROR.with_do_not_retry());
    };
    let mut list = vec![0; bytes];
    buf.read(0, &mut list);
    let entries =
        list.chunks_exact(size_of::<DsmRange>()).filter_map(|one| DsmRange::read_from_bytes(one).ok());
    let mut ranges = Vec::new();
    for entry in entries.filter(|entry| entry.blocks > 0) {
        let end = entry.start.checked_add(entry.blocks.into());
        if end.is_none_or(|end| end > file.blocks) {
            return Err(Status::LBA_OUT_OF_RANGE.with_do_not_retry());
        }
        ranges.push((entry.start << file.block_shift(), u64::from(entry.blocks) << file.block_shift()));
    }
    Ok(ranges)
}

fn lend(pool: &DmaPool, bytes: usize, operation: Operation<'static>) -> Next {
    match pool.alloc(bytes) {
        Ok(scratch) => Next::Lend(scratch, operation),
        Err(e) => {
            tracing::warn!(bytes, error = %e, "no memory for a command that needs some of its own");
            Next::Done(Status::INTERNAL_ERROR)
        }
    }
}

/// Adds what an operation moved. A transfer may end early; one that moves nothing has met the end of a file
/// that somebody has made shorter.
fn advance(done: &mut usize, bytes: usize, res: i32, is_write: bool) -> Option<Status> {
    match usize::try_from(res) {
        Err(_) => Some(block_status(-res, is_write)),
        Ok(0) if is_write => Some(Status::WRITE_FAULT),
        // The last block may have been cut in two as well.
        Ok(moved) if moved == 0 || !moved.is_multiple_of(SECTOR_BYTES) => {
            Some(Status::LBA_OUT_OF_RANGE.with_do_not_retry())
        }
        Ok(moved) => {
            *done = (*done + moved).min(bytes);
            (*done == bytes).then_some(Status::SUCCESS)
        }
    }
}

fn compare(buffers: (Option<&DmaBuf>, Option<&DmaBuf>), bytes: usize) -> Status {
    let (Some(expected), Some(found)) = buffers else { return Status::INTERNAL_ERROR };
    let (mut left, mut right) = (vec![0; bytes], vec![0; bytes]);
    expected.read(0, &mut left);
    found.read(0, &mut right);
    if left == right { Status::SUCCESS } else { Status::COMPARE_FAILURE }
}
