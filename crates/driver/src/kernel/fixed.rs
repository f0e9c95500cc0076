//! Buffers a ring has registered: the kernel has their pages at hand and does not look them up for each
//! command.
// UNSAFETY: the kernel is handed addresses of memory that it uses for as long as the ring lives. A clone of
// each region is kept here for as long.
#![allow(unsafe_code)]

use std::sync::Arc;

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue};
use unvme_bus::function::IOVA_RANGE;
use unvme_bus::mem::HUGE_PAGE_BYTES;
use unvme_bus::space::Direction;
use unvme_bus::{AddressSpace, Region};

/// What a pool takes from the system at a time, and where its mappings start at multiples of.
const UNIT_BYTES: u64 = HUGE_PAGE_BYTES as u64;
/// Places for regions: 8 GiB of pool, when it grew by the smallest step.
const BUFFERS_MAX: u32 = 4096;
/// Not looked up yet.
const UNKNOWN: u16 = u16::MAX;
/// The kernel did not take it: commands name it by its address alone.
const REFUSED: u16 = u16::MAX - 1;

/// The regions of a pool, registered when a command first names them.
pub(super) struct FixedBuffers {
    memory: Arc<AddressSpace>,
    /// The number of each unit of I/O virtual addresses, from the first that a pool gives out.
    numbers: Vec<u16>,
    /// By number. The kernel has their addresses: they outlive the pool.
    kept: Vec<Region>,
    can_register: bool,
}

impl FixedBuffers {
    pub(super) fn new(ring: &IoUring<Entry128, cqueue::Entry32>, memory: Arc<AddressSpace>) -> Self {
        let registered = ring.submitter().register_buffers_sparse(BUFFERS_MAX);
        if let Err(e) = &registered {
            tracing::warn!(error = %e, "no registered buffers: commands take longer");
        }
        Self { memory, numbers: Vec::new(), kept: Vec::new(), can_register: registered.is_ok() }
    }

    /// The number under which the memory at `iova` is registered, if it is.
    #[inline]
    pub(super) fn number(&mut self, ring: &IoUring<Entry128, cqueue::Entry32>, iova: u64) -> Option<u16> {
        let unit = iova.wrapping_sub(IOVA_RANGE.start) / UNIT_BYTES;
        match self.numbers.get(unit as usize) {
            Some(&number) if number < REFUSED => Some(number),
            Some(&REFUSED) => None,
            _ => self.register(ring, iova),
        }
    }

    #[cold]
    fn register(&mut self, ring: &IoUring<Entry128, cqueue::Entry32>, iova: u64) -> Option<u16> {
        let view = self.memory.view();
        let place = view.find(iova, 1, Direction::Read)?;
        let region = view.region(place);
        let skip = (iova - place.offset as u64).checked_sub(IOVA_RANGE.start)?;
        let length = region.len() as u64;
        if !skip.is_multiple_of(UNIT_BYTES) || !length.is_multiple_of(UNIT_BYTES) {
            return None;
        }
        let (from, to) = (skip / UNIT_BYTES, (skip + length) / UNIT_BYTES);
        if self.numbers.len() < to as usize {
            self.numbers.resize(to as usize, UNKNOWN);
        }
        let number = self.hand_over(ring, region);
        self.numbers[from as usize..to as usize].fill(number.unwrap_or(REFUSED));
        number
    }

    fn hand_over(&mut self, ring: &IoUring<Entry128, cqueue::Entry32>, region: &Region) -> Option<u16> {
        let number = self.kept.len() as u32;
        if !self.can_register || number >= BUFFERS_MAX {
            return None;
        }
        let buffer = libc::iovec { iov_base: region.as_ptr().cast(), iov_len: region.len() };
        // SAFETY: the region is kept in `kept` from here on, which goes when the ring does: it is a field of
        // the value that owns this one, and declared before it.
        match unsafe { ring.submitter().register_buffers_update(number, &[buffer], None) } {
            Ok(()) => {
                self.kept.push(region.clone());
                Some(number as u16)
            }
            Err(e) => {
                tracing::warn!(
                    error = %e,
                    bytes = region.len(),
                    "the kernel does not register a buffer, commands take longer; `ulimit -l unlimited` lets it"
                );
                None
            }
        }
    }
}
