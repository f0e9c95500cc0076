//! Staging memory of one queue: where a command's data is between the network and the media.
//!
//! Buffers of up to 1 MiB are cut from slabs by powers of two, bigger ones have a mapping of their own. What
//! a command gives back is kept for the next one, up to [`KEPT_BYTES_MAX`] and only while nobody waits for
//! memory, so that a queue at work maps nothing.
//!
//! Memory within the budget and memory beyond it are apart: a command that waits for the former holds the
//! latter at most, so that all of the budget becomes free in the end.

use std::sync::Arc;

use unvme_bus::mem::PAGE_BYTES;
use unvme_bus::{AddressSpace, DmaAccess, Region};

use super::memory::{MemoryBudget, WaitTicket};
use super::queue::Staging;

/// Smallest buffer, as a power of two.
const SHIFT_MIN: u32 = 12;
/// Largest buffer that is cut from a slab, as a power of two.
const SHIFT_MAX: u32 = 20;
const CLASSES: usize = (SHIFT_MAX - SHIFT_MIN + 1) as usize;
/// Bytes of the first slab of a size, unless a buffer is larger: each one after it has twice as many, up to
/// the maximum.
const SLAB_BYTES_MIN: u64 = 16 << 10;
const SLAB_BYTES_MAX: u64 = 256 << 10;
/// Most bytes that a queue keeps beside those in use: 128 transfers of 128 KiB come and go at once and map
/// nothing.
const KEPT_BYTES_MAX: u64 = 16 << 20;
/// First address; none is used twice, and there are enough for as many mappings as there can be.
const FIRST_IOVA: u64 = 1 << 32;
/// A buffer with a mapping of its own serves commands down to this part of its size.
const LARGE_WASTE_MAX: u64 = 2;

/// Memory for one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffer {
    slab: u32,
    offset: u32,
}

#[derive(Debug)]
struct Slab {
    region: Region,
    iova: u64,
    bytes: u64,
    /// Of each buffer in it.
    buffer_bytes: u64,
    in_use: u32,
    supply: Supply,
}

/// Whether memory is within the budget, or beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Supply {
    Budgeted,
    Beyond,
}

const SUPPLIES: usize = 2;

/// Where memory may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terms {
    /// Within the budget; the ticket of who has waited.
    Budget(Option<WaitTicket>),
    /// Beyond it.
    Anyway,
}

impl Terms {
    #[inline]
    fn supply(self) -> Supply {
        match self {
            Self::Budget(_) => Supply::Budgeted,
            Self::Anyway => Supply::Beyond,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Pool {
    space: Arc<AddressSpace>,
    next_iova: u64,
    /// Places are used again; `None` is free.
    slabs: Vec<Option<Slab>>,
    /// By supply.
    free: [[Vec<Buffer>; CLASSES]; SUPPLIES],
    /// Mappings of their own that are not in use.
    free_large: Vec<u32>,
    /// Bytes of all slabs.
    bytes: u64,
    /// Bytes of all buffers that commands have.
    in_use: u64,
    /// Bytes by supply that are unmapped, of which others may have a snapshot still.
    unmapped: [u64; SUPPLIES],
}

impl Pool {
    pub(super) fn new() -> Self {
        Self {
            space: Arc::new(AddressSpace::new()),
            next_iova: FIRST_IOVA,
            slabs: Vec::new(),
            free: Default::default(),
            free_large: Vec::new(),
            bytes: 0,
            in_use: 0,
            unmapped: [0; SUPPLIES],
        }
    }

    /// Bytes of all buffers that commands have.
    #[inline]
    pub(super) fn in_use(&self) -> u64 {
        self.in_use
    }

    /// Bytes of the buffer that a command of `bytes` gets, at least 1; one that is kept can be twice as
    /// large.
    pub(super) fn buffer_bytes(bytes: u32) -> u64 {
        match class_of(bytes) {
            Some(class) => class_bytes(class),
            None => u64::from(bytes).next_multiple_of(PAGE_BYTES as u64),
        }
    }

    /// What the controller sees of it.
    pub(super) fn space(&self) -> &Arc<AddressSpace> {
        &self.space
    }

    /// Bytes that have to be had from the budget for a command of `bytes`, at most, when nothing is kept.
    pub(super) fn cost(bytes: u32) -> u64 {
        match class_of(bytes) {
            Some(class) => class_bytes(class).max(SLAB_BYTES_MIN),
            None => Self::buffer_bytes(bytes),
        }
    }

    /// Memory for `bytes`, at least 1; `None` when there is none.
    #[inline]
    pub(super) fn take(&mut self, bytes: u32, budget: &MemoryBudget, terms: Terms) -> Option<Buffer> {
        let Some(class) = class_of(bytes) else { return self.take_large(bytes, budget, terms) };
        let supply = terms.supply() as usize;
        if self.free[supply].get(class)?.is_empty() {
            self.grow(class, budget, terms)?;
        }
        let buffer = self.free[supply].get_mut(class)?.pop()?;
        if let Some(Some(slab)) = self.slabs.get_mut(buffer.slab as usize) {
            slab.in_use += 1;
            self.in_use += slab.buffer_bytes;
        }
        Some(buffer)
    }

    #[cold]
    fn take_large(&mut self, bytes: u32, budget: &MemoryBudget, terms: Terms) -> Option<Buffer> {
        let wanted = Self::cost(bytes);
        let fits = |slab: &Slab| {
            slab.supply == terms.supply() && (wanted..=wanted * LARGE_WASTE_MAX).contains(&slab.bytes)
        };
        let kept = self.free_large.iter().position(|&at| self.slab(at).is_some_and(fits));
        let at = match kept {
            Some(kept) => self.free_large.swap_remove(kept),
            None => self.map(wanted, wanted, budget, terms)?,
        };
        if let Some(Some(slab)) = self.slabs.get_mut(at as usize) {
            slab.in_use += 1;
            self.in_use += slab.buffer_bytes;
        }
        Some(Buffer { slab: at, offset: 0 })
    }

    #[cold]
    fn grow(&mut self, class: usize, budget: &MemoryBudget, terms: Terms) -> Option<()> {
        let buffer_bytes = class_bytes(class);
        let supply = terms.supply();
        let of_this_kind = |slab: &&Slab| slab.buffer_bytes == buffer_bytes && slab.supply == supply;
        let before = self.slabs.iter().flatten().filter(of_this_kind).count().min(8);
        let bytes = (SLAB_BYTES_MIN << before).min(SLAB_BYTES_MAX).max(buffer_bytes);
        // Rather a small one than none.
        let smallest = SLAB_BYTES_MIN.max(buffer_bytes);
        let at = match self.map(bytes, buffer_bytes, budget, terms) {
            Some(at) => at,
            None if bytes > smallest => self.map(smallest, buffer_bytes, budget, terms)?,
            None => return None,
        };
        let bytes = self.slab(at)?.bytes;
        let offsets = (0..bytes).step_by(buffer_bytes as usize);
        self.free[supply as usize]
            .get_mut(class)?
            .extend(offsets.map(|offset| Buffer { slab: at, offset: offset as u32 }));
        Some(())
    }

    fn map(&mut self, bytes: u64, buffer_bytes: u64, budget: &MemoryBudget, terms: Terms) -> Option<u32> {
        match terms {
            Terms::Budget(ticket) if !budget.take(bytes, ticket) => return None,
            Terms::Budget(_) => {}
            Terms::Anyway => budget.take_anyway(bytes),
        }
        let mapped = usize::try_from(bytes)
            .ok()
            .and_then(|length| Region::anonymous(length).ok())
            .filter(|region| self.space.map(self.next_iova, region, DmaAccess::READ_WRITE).is_ok());
        let Some(region) = mapped else {
            tracing::warn!(bytes, "there is no memory for a command");
            match terms {
                Terms::Budget(None) => budget.give(bytes),
                // Nothing has become free: it tries again later.
                Terms::Budget(Some(_)) => budget.take_back(bytes),
                Terms::Anyway => budget.give_beyond(bytes),
            }
            return None;
        };
        let slab =
            Slab { region, iova: self.next_iova, bytes, buffer_bytes, in_use: 0, supply: terms.supply() };
        self.next_iova += bytes.next_multiple_of(PAGE_BYTES as u64);
        self.bytes += bytes;
        let at = match self.slabs.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.slabs.push(None);
                self.slabs.len() - 1
            }
        };
        *self.slabs.get_mut(at)? = Some(slab);
        Some(at as u32)
    }

    /// A command does not need its memory any more; see [`Pool::has_unmapped`].
    #[inline]
    pub(super) fn give(&mut self, buffer: Buffer, budget: &MemoryBudget) {
        let Some(Some(slab)) = self.slabs.get_mut(buffer.slab as usize) else { return };
        slab.in_use -= 1;
        self.in_use -= slab.buffer_bytes;
        let is_idle = slab.in_use == 0;
        match class_of_bytes(slab.buffer_bytes) {
            Some(class) => self.free[slab.supply as usize][class].push(buffer),
            None => self.free_large.push(buffer.slab),
        }
        if is_idle && (self.bytes - self.in_use > KEPT_BYTES_MAX || budget.is_pressed()) {
            self.unmap(buffer.slab);
        }
    }

    /// Unmaps all that is not in use; see [`Pool::has_unmapped`].
    #[cold]
    pub(super) fn trim(&mut self) {
        for at in 0..self.slabs.len() as u32 {
            if self.slab(at).is_some_and(|slab| slab.in_use == 0) {
                self.unmap(at);
            }
        }
    }

    #[cold]
    fn unmap(&mut self, at: u32) {
        let Some(slab) = self.slabs.get_mut(at as usize).and_then(Option::take) else { return };
        match class_of_bytes(slab.buffer_bytes) {
            Some(class) => self.free[slab.supply as usize][class].retain(|buffer| buffer.slab != at),
            None => self.free_large.retain(|&large| large != at),
        }
        let unmapped = self.space.unmap(slab.iova, slab.region.len() as u64);
        debug_assert!(unmapped.is_ok(), "a slab is mapped");
        self.bytes -= slab.bytes;
        self.unmapped[slab.supply as usize] += slab.bytes;
    }

    /// There is memory that was unmapped and counts all the same, since it exists for as long as anybody has
    /// a snapshot of what was mapped. Once nobody does, [`Pool::return_unmapped`] is to be called.
    #[inline]
    pub(super) fn has_unmapped(&self) -> bool {
        self.unmapped != [0; SUPPLIES]
    }

    /// Nobody has a snapshot of what was unmapped: it goes back.
    pub(super) fn return_unmapped(&mut self, budget: &MemoryBudget) {
        let [budgeted, beyond] = std::mem::take(&mut self.unmapped);
        if budgeted > 0 {
            budget.give(budgeted);
        }
        budget.give_beyond(beyond);
    }

    /// Everything goes back; nothing of it is in use, and nobody has a snapshot of it.
    pub(super) fn close(&mut self, budget: &MemoryBudget) {
        for at in 0..self.slabs.len() as u32 {
            self.unmap(at);
        }
        self.return_unmapped(budget);
    }

    fn slab(&self, at: u32) -> Option<&Slab> {
        self.slabs.get(at as usize)?.as_ref()
    }

    /// Where a buffer's first `bytes` are.
    #[inline]
    pub(super) fn staging(&self, buffer: Buffer, bytes: u32) -> Option<Staging<'_>> {
        self.staging_behind(0, buffer, bytes)
    }

    /// Where `bytes` of a buffer are, behind its first `from`.
    #[inline]
    pub(super) fn staging_behind(&self, from: u32, buffer: Buffer, bytes: u32) -> Option<Staging<'_>> {
        let slab = self.slab(buffer.slab)?;
        let offset = buffer.offset as usize + from as usize;
        Some(Staging { region: &slab.region, offset, bytes: bytes as usize })
    }

    /// Address of a buffer.
    #[inline]
    pub(super) fn iova(&self, buffer: Buffer) -> Option<u64> {
        self.slab(buffer.slab).map(|slab| slab.iova + u64::from(buffer.offset))
    }

    /// An address for a mapping that the pool does not have, of so many bytes.
    pub(super) fn spare_iova(&mut self, bytes: usize) -> u64 {
        let iova = self.next_iova;
        self.next_iova += bytes.next_multiple_of(PAGE_BYTES) as u64;
        iova
    }
}

/// Buffers of this size are cut from slabs; `None` for those that are not.
#[inline]
fn class_of(bytes: u32) -> Option<usize> {
    let shift = bytes.max(1).checked_next_power_of_two()?.trailing_zeros().max(SHIFT_MIN);
    (shift <= SHIFT_MAX).then_some((shift - SHIFT_MIN) as usize)
}

#[inline]
fn class_of_bytes(bytes: u64) -> Option<usize> {
    u32::try_from(bytes).ok().and_then(class_of)
}

const fn class_bytes(class: usize) -> u64 {
    1 << (SHIFT_MIN as usize + class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_waited_keeps_its_place_though_nothing_can_be_mapped() {
        let budget = MemoryBudget::new(1 << 20);
        let mut pool = Pool::new();
        let ticket = budget.wait(None);
        // No address for it.
        pool.next_iova = u64::MAX - PAGE_BYTES as u64 + 1;
        assert_eq!(pool.take(64 << 10, &budget, Terms::Budget(Some(ticket))), None);
        assert_eq!(budget.used(), 0);
        assert!(budget.is_turn_of(Some(ticket)) && !budget.is_turn_of(None));
        pool.next_iova = FIRST_IOVA;
        assert!(pool.take(64 << 10, &budget, Terms::Budget(Some(ticket))).is_some());
        budget.forget(ticket);
        assert!(budget.is_turn_of(None));
    }

    #[test]
    fn memory_beyond_the_budget_is_for_capsules_alone() {
        let budget = MemoryBudget::new(16 << 10);
        let mut pool = Pool::new();
        let capsule = pool.take(256, &budget, Terms::Anyway).expect("memory beyond it");
        let data = pool.take(4096, &budget, Terms::Budget(None)).expect("all of the budget");
        assert_eq!(budget.used(), 32 << 10);
        assert_eq!(pool.take(16 << 10, &budget, Terms::Budget(None)), None);
        let ticket = budget.wait(None);
        pool.give(data, &budget);
        assert!(pool.has_unmapped());
        assert_eq!(budget.used(), 32 << 10, "until nobody has a snapshot of it");
        pool.return_unmapped(&budget);
        assert!(pool.take(16 << 10, &budget, Terms::Budget(Some(ticket))).is_some());
        pool.give(capsule, &budget);
        pool.close(&budget);
        assert_eq!(budget.used(), 0);
    }
}
