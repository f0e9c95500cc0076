//! Executing commands of the NVM command set.

use unvme_bus::Region;
use unvme_bus::space::{Direction, Place};
use unvme_flash::ftl::Placement;
use unvme_flash::timing::OpList;
use unvme_spec::nvm::{self, AccessFlags, BlockRange, DsmRange};
use unvme_spec::{Lba, Nsid, Sqe, Status};

use crate::Ssd;
use crate::dptr::DataPointer;
use crate::namespace::Blocks;
use crate::queue::SubmissionQueue;
use crate::store::{CHUNK_BYTES, Extent, NOWHERE};

/// Bytes of a queue's buffer for data in pieces that is kept for the next command.
const GATHERED_BYTES_MAX: usize = 128 << 10;

impl Ssd {
    /// Executes one command that is not part of a fused pair; returns the bytes that it has sent to the host.
    #[inline]
    pub(crate) fn execute_nvm(&self, sq: &mut SubmissionQueue, sqe: &Sqe) -> Result<u32, Status> {
        // The two that matter are told apart by two comparisons, all others by a table.
        match (sqe.opcode, nvm::Command::parse(sqe)) {
            (nvm::opcode::READ, nvm::Command::Read(range, _)) => self.read(sq, sqe, range),
            (nvm::opcode::WRITE, nvm::Command::Write(range, flags)) => {
                self.write(sq, sqe, range, flags).map(|()| 0)
            }
            (_, other) => self.execute_rare(sq, sqe, other),
        }
    }

    #[inline(never)]
    fn execute_rare(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        command: nvm::Command,
    ) -> Result<u32, Status> {
        match command {
            nvm::Command::IoManagementReceive(receive) => {
                return self.io_management_receive(sq, sqe, receive).map(|reply| reply.sent);
            }
            nvm::Command::Flush => self.flush(sq, sqe),
            nvm::Command::Compare(range, _) => self.compare(sq, sqe, range),
            nvm::Command::WriteZeroes { range, flags, deallocate } => {
                self.write_zeroes(sq, sqe, range, flags, deallocate)
            }
            nvm::Command::WriteUncorrectable(range) => {
                let namespace = sq.namespaces.blocks(sqe.nsid)?;
                namespace.check(range)?;
                namespace.bad.mark(range);
                self.subsystem.saving.changed();
                self.persist_if(false)
            }
            nvm::Command::Verify(range, _) => {
                let namespace = sq.namespaces.blocks(sqe.nsid)?;
                namespace.check(range)?;
                let (offset, bytes) = byte_range(namespace, range)?;
                namespace
                    .bad
                    .check(range)
                    .and_then(|()| {
                        namespace.for_each_extent(offset, bytes, |extent, _| self.media.verify(extent))
                    })
                    .inspect_err(|_| sq.counters.media_errors += 1)
            }
            nvm::Command::DatasetManagement { ranges, deallocate, hints: _ } => {
                self.dataset_management(sq, sqe, ranges, deallocate)
            }
            nvm::Command::IoManagementSend(send) => self.io_management_send(sq, sqe, send),
            _ => Err(Status::INVALID_OPCODE.with_do_not_retry()),
        }?;
        Ok(0)
    }

    /// Where on the media a command that waits will read; [`NOWHERE`] when it is not a read, whose place is
    /// known before.
    #[inline]
    pub(crate) fn prefetch_blocks(&self, sq: &SubmissionQueue, sqe: &Sqe) -> u64 {
        if sqe.opcode != nvm::opcode::READ {
            return NOWHERE;
        }
        let Ok(namespace) = sq.namespaces.blocks(sqe.nsid) else { return NOWHERE };
        let range = BlockRange::new(Lba(sqe.cdw10_11()), 1);
        match namespace.check(range) {
            Ok(()) => namespace
                .locate(namespace.bytes(range.start.0), 1)
                .map_or(NOWHERE, |extent| self.media.prefetch(extent.offset)),
            Err(_) => NOWHERE,
        }
    }

    /// Brings close what [`Ssd::prefetch_blocks`] will ask about a command that waits: on a device with a
    /// translation layer it looks up where a page is, and so does a write.
    #[inline]
    pub(crate) fn prefetch_map(&self, sq: &SubmissionQueue, sqe: &Sqe) {
        if !matches!(sqe.opcode, nvm::opcode::READ | nvm::opcode::WRITE) {
            return;
        }
        if let Ok(namespace) = sq.namespaces.blocks(sqe.nsid)
            && let Some(extent) = namespace.locate(sqe.cdw10_11().saturating_mul(namespace.bytes(1)), 1)
        {
            self.media.prefetch_map(extent.offset);
        }
    }

    /// Where what a command writes goes, on a device with flash.
    #[inline]
    fn place_write(&self, sq: &SubmissionQueue, sqe: &Sqe, offset: u64) -> Result<Placement, Status> {
        match (self.media.flash(), sq.namespaces.handles(sqe.nsid)) {
            (Some(_), Some(handles)) => self.place(handles, sqe, offset),
            _ => Ok(Placement::default()),
        }
    }

    #[inline]
    fn read(&self, sq: &mut SubmissionQueue, sqe: &Sqe, range: BlockRange) -> Result<u32, Status> {
        let namespace = sq.namespaces.blocks(sqe.nsid)?;
        let bytes = self.check_transfer(namespace, range)?;
        namespace.bad.check(range).inspect_err(|_| sq.counters.media_errors += 1)?;
        sq.counters.read(bytes as u64);
        let offset = namespace.bytes(range.start.0);
        let data = DataPointer {
            host: &sq.host,
            sqe,
            page_bytes: sq.page_bytes,
            bytes,
            direction: Direction::Write,
        };
        let SubmissionQueue { ops, counters, .. } = sq;
        if self.media.is_null() {
            check_alignment(sqe)?;
            return self.pretend(namespace, offset, bytes, None, ops).map(|()| bytes as u32);
        }
        let done = if let Some(place) = data.single() {
            let host = sq.host.region(place);
            namespace.for_each_extent(offset, bytes, |extent, done| {
                self.media.read(extent, host, place.offset + done, sq.next_read, ops)
            })
        } else {
            data.walk(&mut sq.pieces)?;
            let region = |place| sq.host.region(place);
            for_each_piece(namespace, offset, &sq.pieces, region, |extent, host, at| {
                self.media.read(extent, host, at, NOWHERE, ops)
            })
        };
        done.inspect_err(|_| counters.media_errors += 1).map(|()| bytes as u32)
    }

    /// A command on media that keeps no data: only a translation layer or a timing notices it.
    #[inline]
    fn pretend(
        &self,
        namespace: &Blocks,
        offset: u64,
        bytes: usize,
        write: Option<Placement>,
        ops: &mut OpList,
    ) -> Result<(), Status> {
        if self.media.flash().is_none() {
            return Ok(());
        }
        namespace.for_each_extent(offset, bytes, |extent, _| self.media.pretend(extent, write, ops))
    }

    #[inline]
    fn write(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        range: BlockRange,
        flags: AccessFlags,
    ) -> Result<(), Status> {
        let namespace = sq.namespaces.blocks(sqe.nsid)?;
        let bytes = self.check_transfer(namespace, range)?;
        let offset = namespace.bytes(range.start.0);
        let at = self.place_write(sq, sqe, offset)?;
        let data =
            DataPointer { host: &sq.host, sqe, page_bytes: sq.page_bytes, bytes, direction: Direction::Read };
        let ops = &mut sq.ops;
        if self.media.is_null() {
            check_alignment(sqe)?;
            self.pretend(namespace, offset, bytes, Some(at), ops)?;
        } else if let Some(place) = data.single() {
            // Space first, for all of it: a write for which there is no space leaves everything as it was.
            self.reserve(namespace, offset, bytes)?;
            let host = sq.host.region(place);
            namespace.for_each_extent(offset, bytes, |extent, done| {
                self.media.write(extent, host, place.offset + done, at, ops)
            })?;
        } else {
            data.walk(&mut sq.pieces)?;
            self.reserve(namespace, offset, bytes)?;
            if splits_grains(offset, &sq.pieces, self.media.grain_bytes(namespace.bytes(1))) {
                // A page is programmed once, and a block is written as a whole, in however many pieces it
                // comes.
                sq.gathered.resize(bytes, 0);
                data.gather(&sq.pieces, &mut sq.gathered)?;
                namespace.for_each_extent(offset, bytes, |extent, done| {
                    let bytes = sq.gathered.get(done..done + extent.bytes).ok_or(Status::INTERNAL_ERROR)?;
                    self.media.write_bytes(extent, bytes, at, ops)
                })?;
                sq.gathered.truncate(GATHERED_BYTES_MAX);
                sq.gathered.shrink_to(GATHERED_BYTES_MAX);
            } else {
                let region = |place| sq.host.region(place);
                for_each_piece(namespace, offset, &sq.pieces, region, |extent, host, from| {
                    self.media.write(extent, host, from, at, ops)
                })?;
            }
        }
        self.unmark(namespace, range);
        sq.counters.write(bytes as u64);
        self.persist_if(flags.force_unit_access)
    }

    #[inline]
    fn reserve(&self, namespace: &Blocks, offset: u64, bytes: usize) -> Result<(), Status> {
        namespace.for_each_extent(offset, bytes, |extent, _| {
            self.media.reserve_blocks(extent.offset / CHUNK_BYTES)
        })
    }

    /// Range and size of a command that moves data, in bytes.
    #[inline]
    fn check_transfer(&self, namespace: &Blocks, range: BlockRange) -> Result<usize, Status> {
        namespace.check(range)?;
        let bytes = namespace.bytes(range.blocks.into());
        if bytes > self.transfer_bytes_max {
            return Err(Status::INVALID_FIELD.with_do_not_retry());
        }
        Ok(bytes as usize)
    }

    fn flush(&self, sq: &SubmissionQueue, sqe: &Sqe) -> Result<(), Status> {
        if Nsid(sqe.nsid) != Nsid::ALL {
            sq.namespaces.blocks(sqe.nsid)?;
        } else {
            sq.namespaces.stores().try_for_each(|pairs| pairs.store.sync())?;
        }
        self.keep_placement_events(&sq.clock);
        self.persist()
    }

    /// Makes what has been written survive, and with it which blocks are marked by Write Uncorrectable. May
    /// be called with queues locked: saving locks none, and does nothing while nothing has changed
    /// (`admin::state`).
    pub(crate) fn persist(&self) -> Result<(), Status> {
        self.media.sync()?;
        self.subsystem.save_state()
    }

    /// [`Ssd::persist`] after a command that changes the media: with FUA, or when there is no write cache.
    #[inline]
    fn persist_if(&self, force_unit_access: bool) -> Result<(), Status> {
        if force_unit_access || self.hot.is_write_through() { self.persist() } else { Ok(()) }
    }

    #[inline]
    fn unmark(&self, namespace: &Blocks, range: BlockRange) {
        if namespace.bad.clear(range) {
            self.subsystem.saving.changed();
        }
    }

    fn compare(&self, sq: &mut SubmissionQueue, sqe: &Sqe, range: BlockRange) -> Result<(), Status> {
        let namespace = sq.namespaces.blocks(sqe.nsid)?;
        let bytes = self.check_transfer(namespace, range)?;
        namespace.bad.check(range).inspect_err(|_| sq.counters.media_errors += 1)?;
        sq.counters.read(bytes as u64);
        let data =
            DataPointer { host: &sq.host, sqe, page_bytes: sq.page_bytes, bytes, direction: Direction::Read };
        data.walk(&mut sq.pieces)?;
        let offset = namespace.bytes(range.start.0);
        let ops = &mut sq.ops;
        let region = |place| sq.host.region(place);
        for_each_piece(namespace, offset, &sq.pieces, region, |extent, host, at| {
            match self.media.equals(extent, host, at, ops)? {
                true => Ok(()),
                false => Err(Status::COMPARE_FAILURE),
            }
        })
    }

    fn write_zeroes(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        range: BlockRange,
        flags: AccessFlags,
        deallocate: bool,
    ) -> Result<(), Status> {
        let namespace = sq.namespaces.blocks(sqe.nsid)?;
        namespace.check(range)?;
        let at = self.place_write(sq, sqe, namespace.bytes(range.start.0))?;
        if deallocate {
            self.deallocate_range(namespace, range, at, &mut sq.ops)?;
        } else {
            let (offset, bytes) = byte_range(namespace, range)?;
            let ops = &mut sq.ops;
            namespace.for_each_extent(offset, bytes, |extent, _| self.media.zero(extent, at, ops))?;
            self.unmark(namespace, range);
        }
        sq.counters.write_commands += 1;
        self.persist_if(flags.force_unit_access)
    }

    /// Deallocated blocks read as zeroes (DLFEAT 001b).
    fn deallocate_range(
        &self,
        namespace: &Blocks,
        range: BlockRange,
        at: Placement,
        ops: &mut OpList,
    ) -> Result<(), Status> {
        let (offset, mut bytes) = byte_range(namespace, range)?;
        if range.end() == Some(namespace.count) {
            // What is behind the last block is nobody's: with it, its chunk is a whole one.
            bytes += (offset + bytes as u64).next_multiple_of(CHUNK_BYTES) as usize - offset as usize - bytes;
        }
        namespace.for_each_extent(offset, bytes, |extent, _| self.media.deallocate(extent, at, ops))?;
        self.unmark(namespace, range);
        Ok(())
    }

    fn dataset_management(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        ranges: u32,
        deallocate: bool,
    ) -> Result<(), Status> {
        let bytes = ranges as usize * size_of::<DsmRange>();
        let data =
            DataPointer { host: &sq.host, sqe, page_bytes: sq.page_bytes, bytes, direction: Direction::Read };
        let mut list = [DsmRange::default(); 256];
        let list = list.get_mut(..ranges as usize).ok_or(Status::INTERNAL_ERROR)?;
        data.fetch(&mut sq.pieces, zerocopy::IntoBytes::as_mut_bytes(&mut *list))?;
        let namespace = sq.namespaces.blocks(sqe.nsid)?;
        // All ranges are checked before any is touched.
        for range in list.iter() {
            let end = range.start.checked_add(range.blocks.into());
            if end.is_none_or(|end| end > namespace.count) {
                return Err(Status::LBA_OUT_OF_RANGE.with_do_not_retry());
            }
        }
        if deallocate {
            // Parts of pages are zeroed, which is a write that nobody has placed: the entry has no directive.
            let handles = sq.namespaces.handles(sqe.nsid);
            let at = handles
                .map_or(Ok(Placement::default()), |handles| self.place(handles, &Sqe::default(), 0))?;
            self.deallocate(namespace, list, at, &mut sq.ops)?;
            self.persist_if(false)?;
        }
        Ok(())
    }

    /// Deallocates the ranges, which are within the namespace. A block that several of them name is
    /// deallocated once: no command does more than the namespace is large.
    fn deallocate(
        &self,
        namespace: &Blocks,
        ranges: &mut [DsmRange],
        at: Placement,
        ops: &mut OpList,
    ) -> Result<(), Status> {
        ranges.sort_unstable_by_key(|range| range.start);
        let mut done = 0;
        for range in ranges {
            let end = range.start + u64::from(range.blocks);
            let start = range.start.max(done);
            if start < end {
                // No more than `range.blocks`, which is a 32-bit number.
                let range = BlockRange::new(Lba(start), (end - start) as u32);
                self.deallocate_range(namespace, range, at, ops)?;
                done = end;
            }
        }
        Ok(())
    }

    /// Compare and Write (NVM 3.4): both or nothing, over one logical block. Returns the statuses of the two
    /// commands.
    pub(crate) fn execute_compare_and_write(
        &self,
        sq: &mut SubmissionQueue,
        first: &Sqe,
        second: &Sqe,
    ) -> (Status, Status) {
        let (nvm::Command::Compare(range, _), nvm::Command::Write(target, flags)) =
            (nvm::Command::parse(first), nvm::Command::parse(second))
        else {
            let status = Status::INVALID_FIELD.with_do_not_retry();
            return (status, status);
        };
        if range != target || first.nsid != second.nsid {
            let status = Status::INVALID_FIELD.with_do_not_retry();
            return (status, status);
        }
        match self.compare_and_write(sq, [first, second], range, flags) {
            Ok(()) => (Status::SUCCESS, Status::SUCCESS),
            Err(status) => (status, Status::ABORTED_FAILED_FUSED),
        }
    }

    fn compare_and_write(
        &self,
        sq: &mut SubmissionQueue,
        pair: [&Sqe; 2],
        range: BlockRange,
        flags: AccessFlags,
    ) -> Result<(), Status> {
        let namespace = sq.namespaces.blocks(pair[0].nsid)?;
        let bytes = self.check_transfer(namespace, range)?;
        if range.blocks > 1 {
            // ACWU says one logical block.
            return Err(Status::ATOMIC_WRITE_UNIT_EXCEEDED.with_do_not_retry());
        }
        if self.faults.is_read_only() {
            return Err(Status::WRITE_TO_READ_ONLY_RANGE.with_do_not_retry());
        }
        namespace.bad.check(range).inspect_err(|_| sq.counters.media_errors += 1)?;
        let mut blocks = [vec![0; bytes], vec![0; bytes]];
        for (sqe, block) in pair.into_iter().zip(&mut blocks) {
            let data = DataPointer {
                host: &sq.host,
                sqe,
                page_bytes: sq.page_bytes,
                bytes,
                direction: Direction::Read,
            };
            data.fetch(&mut sq.pieces, block)?;
        }
        let extent = namespace.locate(namespace.bytes(range.start.0), bytes).ok_or(Status::INTERNAL_ERROR)?;
        self.media.reserve_blocks(extent.offset / CHUNK_BYTES)?;
        let at = self.place_write(sq, pair[1], namespace.bytes(range.start.0))?;
        sq.counters.read(bytes as u64);
        let [expected, new] = &blocks;
        if !self.media.compare_and_write(extent, expected, new, at, &mut sq.ops)? {
            return Err(Status::COMPARE_FAILURE);
        }
        sq.counters.write(bytes as u64);
        self.persist_if(flags.force_unit_access)
    }
}

/// Where in the namespace a range begins, and how many bytes it has.
fn byte_range(namespace: &Blocks, range: BlockRange) -> Result<(u64, usize), Status> {
    let bytes = usize::try_from(namespace.bytes(range.blocks.into())).map_err(|_| Status::INTERNAL_ERROR)?;
    Ok((namespace.bytes(range.start.0), bytes))
}

/// A null device looks at a data pointer no further than this.
#[inline]
fn check_alignment(sqe: &Sqe) -> Result<(), Status> {
    match sqe.flags >> 6 == 0 && sqe.dptr[0] & 3 != 0 {
        true => Err(Status::PRP_OFFSET_INVALID.with_do_not_retry()),
        false => Ok(()),
    }
}

/// True when pieces of host memory meet within a grain of the media, at blocks from `offset` on: the buffer
/// or the first block is not aligned to them.
fn splits_grains(offset: u64, pieces: &[Place], grain_bytes: u64) -> bool {
    let mut at = offset;
    let Some((_, before)) = pieces.split_last() else { return false };
    before.iter().any(|place| {
        at += place.bytes as u64;
        !at.is_multiple_of(grain_bytes)
    })
}

/// Visits the common refinement of a command's pieces of host memory and the namespace's pieces of media.
#[inline]
fn for_each_piece<'a>(
    namespace: &Blocks,
    offset: u64,
    pieces: &[Place],
    region: impl Fn(Place) -> &'a Region,
    mut visit: impl FnMut(Extent, &Region, usize) -> Result<(), Status>,
) -> Result<(), Status> {
    let mut at = offset;
    for &place in pieces {
        let host = region(place);
        namespace
            .for_each_extent(at, place.bytes, |extent, done| visit(extent, host, place.offset + done))?;
        at += place.bytes as u64;
    }
    Ok(())
}
