//! Walking PRP lists and SGLs: where in host memory a command's data is.
//!
//! Everything read here was written by the host: nothing is assumed about it.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use unvme_bus::Mappings;
use unvme_bus::space::{Direction, Place};
use unvme_spec::sgl::{DESCRIPTOR_BYTES, Descriptor, descriptor_type, sub_type};
use unvme_spec::{DataPointerKind, Sqe, Status};

/// Most SGL descriptors a command of up to [`SGL_BYTES`] may have (MSDBD is not reported for PCIe).
const SGL_DESCRIPTORS_MAX: usize = 4096;
/// Most segments the SGL of such a command may be spread over.
const SGL_SEGMENTS_MAX: usize = 256;
/// A larger command may have one descriptor more for each 2 KiB, and one segment more for each 512 KiB,
/// beyond this: twice what pages of 4 KiB and segments of one page take.
const SGL_BYTES: usize = 2 << 20;
const SGL_DESCRIPTOR_BYTES: u32 = DESCRIPTOR_BYTES as u32;

/// A command's data as the host describes it.
#[derive(Clone, Copy)]
pub(crate) struct DataPointer<'a> {
    pub(crate) host: &'a Mappings,
    pub(crate) sqe: &'a Sqe,
    pub(crate) page_bytes: u32,
    /// Transfer length of the command as its fields state it. What PRP2 is (a page or a list), and where a
    /// list goes on, follow from this and not from the length of the data (Base 4.3.1).
    pub(crate) bytes: usize,
    /// What the device does with host memory.
    pub(crate) direction: Direction,
}

impl DataPointer<'_> {
    /// Finds every piece of the data, in order, before any byte moves; they add up to `bytes`.
    pub(crate) fn walk(self, pieces: &mut Vec<Place>) -> Result<(), Status> {
        self.walk_first(self.bytes, pieces)
    }

    /// Finds the pieces of the first `wanted` bytes of the transfer, for a command that moves less than it
    /// has asked for; they add up to `wanted`, or to `bytes` when that is less. Nothing else of the host's
    /// memory is touched. PRP entries behind those bytes are not read; an SGL is still refused when it
    /// describes less than the transfer length.
    pub(crate) fn walk_first(self, wanted: usize, pieces: &mut Vec<Place>) -> Result<(), Status> {
        pieces.clear();
        let wanted = wanted.min(self.bytes);
        if wanted == 0 {
            return Ok(());
        }
        match self.sqe.data_pointer_kind() {
            DataPointerKind::Prp => self.walk_prp(wanted, pieces),
            DataPointerKind::Sgl | DataPointerKind::SglMetadata => self.walk_sgl(wanted, pieces),
            DataPointerKind::Reserved => Err(Status::INVALID_FIELD.with_do_not_retry()),
        }
    }

    /// Copies the host's data to `out`, which has the length of the transfer. Nothing is copied before every
    /// piece has been found.
    pub(crate) fn fetch(self, pieces: &mut Vec<Place>, out: &mut [u8]) -> Result<(), Status> {
        self.walk(pieces)?;
        self.gather(pieces, out)
    }

    /// The copy of [`DataPointer::fetch`], for who makes room for the data only once its pieces have been
    /// found.
    pub(crate) fn gather(self, pieces: &[Place], out: &mut [u8]) -> Result<(), Status> {
        let mut rest = out;
        for &place in pieces {
            let (now, later) = rest.split_at_mut_checked(place.bytes).ok_or(Status::INTERNAL_ERROR)?;
            self.host.region(place).read(place.offset, now);
            rest = later;
        }
        Ok(())
    }

    /// Copies `data`, or as much of it as fits, to pieces that have been found; what is left of them is left
    /// alone.
    pub(crate) fn scatter(host: &Mappings, pieces: &[Place], data: &[u8]) {
        let mut rest = data;
        for &place in pieces {
            let (now, later) = rest.split_at(place.bytes.min(rest.len()));
            host.region(place).write(place.offset, now);
            rest = later;
        }
    }

    /// The single piece of a transfer that lies within one page, or is no longer than a page and in one SGL
    /// data block, as most are; `None` sends the caller to [`DataPointer::walk`].
    #[inline]
    pub(crate) fn single(self) -> Option<Place> {
        let [prp1, _] = self.sqe.dptr;
        let within = prp1 & u64::from(self.page_bytes.wrapping_sub(1));
        let fits = self.bytes as u64 <= u64::from(self.page_bytes).wrapping_sub(within);
        if self.sqe.flags >> 6 != 0 {
            return self.single_block();
        }
        if !fits || prp1 & 3 != 0 {
            return None;
        }
        self.place_of(prp1)
    }

    /// The single piece of a transfer whose SGL is the descriptor in the command: SPDK describes all
    /// contiguous buffers like that.
    fn single_block(self) -> Option<Place> {
        let descriptor = Descriptor::from_dptr(self.sqe.dptr);
        let is_block =
            descriptor.kind() == descriptor_type::DATA_BLOCK && descriptor.sub_type() == sub_type::ADDRESS;
        let is_sgl =
            matches!(self.sqe.data_pointer_kind(), DataPointerKind::Sgl | DataPointerKind::SglMetadata);
        let fits = self.bytes <= self.page_bytes as usize && self.bytes <= descriptor.length as usize;
        if !is_sgl || !is_block || !fits {
            return None;
        }
        self.place_of(descriptor.address)
    }

    /// Where all of the data is, when it is at `iova` in one piece.
    #[inline]
    fn place_of(self, iova: u64) -> Option<Place> {
        self.host.find(iova, self.bytes, self.direction).filter(|place| place.bytes == self.bytes)
    }

    fn add(self, pieces: &mut Vec<Place>, iova: u64, bytes: usize) -> Result<(), Status> {
        let mut at = iova;
        let mut left = bytes;
        while left > 0 {
            let place = self.host.find(at, left, self.direction).ok_or(Status::DATA_TRANSFER_ERROR)?;
            pieces.push(place);
            left = left.saturating_sub(place.bytes);
            at = at.checked_add(place.bytes as u64).ok_or(Status::DATA_TRANSFER_ERROR)?;
        }
        Ok(())
    }

    /// Base 4.3.1: the first entry may start anywhere in a page, all others at its beginning; the second is a
    /// list when the transfer has more than two pages.
    fn walk_prp(self, wanted: usize, pieces: &mut Vec<Place>) -> Result<(), Status> {
        let page = u64::from(self.page_bytes);
        let mask = page.wrapping_sub(1);
        let [prp1, prp2] = self.sqe.dptr;
        if !unvme_spec::prp::is_dword_aligned(prp1) {
            return Err(Status::PRP_OFFSET_INVALID.with_do_not_retry());
        }
        let first = (self.bytes as u64).min(page.saturating_sub(prp1 & mask)) as usize;
        self.add(pieces, prp1, first.min(wanted))?;
        // Bytes of the transfer for which no entry has been read, which say what the next entry is; and bytes
        // for which no piece has been found.
        let mut left = self.bytes.saturating_sub(first);
        let mut wanted = wanted.saturating_sub(first);
        if wanted == 0 {
            return Ok(());
        }
        if left as u64 <= page {
            if prp2 & mask != 0 {
                return Err(Status::PRP_OFFSET_INVALID.with_do_not_retry());
            }
            return self.add(pieces, prp2, wanted);
        }
        if prp2 & 7 != 0 {
            return Err(Status::PRP_OFFSET_INVALID.with_do_not_retry());
        }
        let mut entry = prp2;
        while wanted > 0 {
            let last_in_page = entry & mask == page.saturating_sub(8);
            let value = self.load(entry)?;
            if last_in_page && left as u64 > page {
                // The last entry of a list page points to the next list page when there is more to come.
                if value & mask != 0 {
                    return Err(Status::PRP_OFFSET_INVALID.with_do_not_retry());
                }
                // A host that makes the list a loop cannot keep us here: every list page but the first is
                // entered at its beginning and moves at least 511 pages of data.
                entry = value;
                continue;
            }
            if value & mask != 0 {
                return Err(Status::PRP_OFFSET_INVALID.with_do_not_retry());
            }
            let bytes = (left as u64).min(page) as usize;
            self.add(pieces, value, bytes.min(wanted))?;
            left = left.saturating_sub(bytes);
            wanted = wanted.saturating_sub(bytes);
            entry = entry.checked_add(8).ok_or(Status::DATA_TRANSFER_ERROR)?;
        }
        Ok(())
    }

    fn load(self, iova: u64) -> Result<u64, Status> {
        let mut bytes = [0; 8];
        self.read_host(iova, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn read_host(self, iova: u64, out: &mut [u8]) -> Result<(), Status> {
        let mut at = iova;
        let mut rest = out;
        while !rest.is_empty() {
            let place = self.host.find(at, rest.len(), Direction::Read).ok_or(Status::DATA_TRANSFER_ERROR)?;
            let (now, later) = rest.split_at_mut_checked(place.bytes).ok_or(Status::DATA_TRANSFER_ERROR)?;
            self.host.region(place).read(place.offset, now);
            at = at.checked_add(place.bytes as u64).ok_or(Status::DATA_TRANSFER_ERROR)?;
            rest = later;
        }
        Ok(())
    }

    /// Base 4.3.2: the descriptor in the command is the data itself or leads to a chain of segments.
    fn walk_sgl(self, wanted: usize, pieces: &mut Vec<Place>) -> Result<(), Status> {
        let mut left = Left { transfer: self.bytes, wanted };
        let mut descriptor = Descriptor::from_dptr(self.sqe.dptr);
        let mut descriptors = 0usize;
        let beyond = self.bytes.saturating_sub(SGL_BYTES);
        let descriptors_max = SGL_DESCRIPTORS_MAX.saturating_add(beyond / (2 << 10));
        for _ in 0..SGL_SEGMENTS_MAX.saturating_add(beyond / (512 << 10)) {
            let last = match descriptor.kind() {
                descriptor_type::SEGMENT => false,
                descriptor_type::LAST_SEGMENT => true,
                _ => {
                    self.add_descriptor(pieces, descriptor, &mut left)?;
                    return finish(left);
                }
            };
            check_is_address(descriptor)?;
            let count = descriptor.length / SGL_DESCRIPTOR_BYTES;
            if descriptor.length == 0 || !descriptor.length.is_multiple_of(SGL_DESCRIPTOR_BYTES) {
                return Err(Status::INVALID_SGL_SEGMENT.with_do_not_retry());
            }
            descriptors = descriptors.saturating_add(count as usize);
            if descriptors > descriptors_max {
                return Err(Status::INVALID_SGL_COUNT.with_do_not_retry());
            }
            match self.walk_segment(pieces, descriptor, last, &mut left)? {
                Some(next) => descriptor = next,
                None => return finish(left),
            }
        }
        Err(Status::INVALID_SGL_COUNT.with_do_not_retry())
    }

    /// One segment; returns the descriptor of the next one when its last entry is that.
    fn walk_segment(
        self,
        pieces: &mut Vec<Place>,
        segment: Descriptor,
        last: bool,
        left: &mut Left,
    ) -> Result<Option<Descriptor>, Status> {
        let count = segment.length / SGL_DESCRIPTOR_BYTES;
        for index in 0..count {
            let offset = u64::from(index).saturating_mul(SGL_DESCRIPTOR_BYTES.into());
            let at = segment.address.checked_add(offset).ok_or(Status::DATA_TRANSFER_ERROR)?;
            let mut bytes = [0; DESCRIPTOR_BYTES];
            self.read_host(at, &mut bytes)?;
            let descriptor: Descriptor = zerocopy::transmute!(bytes);
            let is_segment =
                matches!(descriptor.kind(), descriptor_type::SEGMENT | descriptor_type::LAST_SEGMENT);
            if is_segment {
                let is_last_entry = index.saturating_add(1) == count;
                if last || !is_last_entry {
                    return Err(Status::INVALID_SGL_SEGMENT.with_do_not_retry());
                }
                return Ok(Some(descriptor));
            }
            self.add_descriptor(pieces, descriptor, left)?;
        }
        // Only the last segment may end without naming another one.
        if last { Ok(None) } else { Err(Status::INVALID_SGL_SEGMENT.with_do_not_retry()) }
    }

    fn add_descriptor(
        self,
        pieces: &mut Vec<Place>,
        descriptor: Descriptor,
        left: &mut Left,
    ) -> Result<(), Status> {
        if descriptor.kind() != descriptor_type::DATA_BLOCK {
            return Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_do_not_retry());
        }
        check_is_address(descriptor)?;
        // A host may describe more memory than the command transfers (Base 4.3.2); the rest is left alone.
        let bytes = left.transfer.min(descriptor.length as usize);
        self.add(pieces, descriptor.address, bytes.min(left.wanted))?;
        left.transfer = left.transfer.saturating_sub(bytes);
        left.wanted = left.wanted.saturating_sub(bytes);
        Ok(())
    }
}

/// Bytes that the descriptors of an SGL have not covered so far.
#[derive(Clone, Copy)]
struct Left {
    /// Of the transfer.
    transfer: usize,
    /// Of what is to be found of it.
    wanted: usize,
}

fn finish(left: Left) -> Result<(), Status> {
    if left.transfer == 0 { Ok(()) } else { Err(Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry()) }
}

/// Over PCIe an address is an address (sub type 0h); offsets belong to Fabrics.
fn check_is_address(descriptor: Descriptor) -> Result<(), Status> {
    match descriptor.sub_type() {
        sub_type::ADDRESS => Ok(()),
        _ => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_do_not_retry()),
    }
}
