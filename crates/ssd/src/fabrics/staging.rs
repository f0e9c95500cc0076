//! Staging memory of one queue: where a command's data is between the network and the media.
//!
//! Buffers of up to 1 MiB are cut from slabs by powers of two, bigger ones have a mapping of their own. What
//! a command gives back is kept for the next one, up to [`KEPT_BYTES_MAX`] and only while nobody waits for
//! memory, so that a queue at work maps nothing.
//!
//! Memory is apart by where it is from. A command that waits for some has a key at most, which its queue has
//! paid for, so that all that can be waited for becomes free in the end.

use std::sync::Arc;

use unvme_bus::mem::PAGE_BYTES;
use unvme_bus::{AddressSpace, DmaAccess, EventFd, Region};
use unvme_spec::samsung_kv;

use super::memory::{MemoryBudget, Part, Purse, WaitTicket};
use super::queue::Staging;
use crate::association::IN_CAPSULE_BYTES;

/// Buffers for keys, as a power of two: what a capsule has for one.
const SHIFT_KEY: u32 = samsung_kv::KEY_CAPSULE_BYTES.trailing_zeros();
/// Smallest buffer for data, as a power of two.
const SHIFT_MIN: u32 = 12;
/// Largest buffer that is cut from a slab, as a power of two.
const SHIFT_MAX: u32 = 20;
/// The first one is for keys.
const CLASSES: usize = (SHIFT_MAX - SHIFT_MIN + 2) as usize;
const KEY_CLASS: usize = 0;
/// Bytes of the first slab of a size, unless a buffer is larger: each one after it has twice as many, up to
/// the maximum.
const SLAB_BYTES_MIN: u64 = 16 << 10;
const SLAB_BYTES_MAX: u64 = 256 << 10;
/// Most bytes that a queue keeps beside those in use: 128 transfers of 128 KiB come and go at once and map
/// nothing.
const KEPT_BYTES_MAX: u64 = 16 << 20;
/// Most bytes of one connection's commands at a time, unless one of them alone has more: a host is to send
/// or take them all within the time that it has for each.
pub(super) const LINE_BYTES_MAX: u64 = 64 << 20;
/// Capsules with data that every queue has memory for: a command that does not wait for anything runs in it,
/// and so does the other half of a pair.
const CAPSULES: u64 = 2;
/// Bytes of them.
pub(super) const CAPSULES_BYTES: u64 = CAPSULES * IN_CAPSULE_BYTES as u64;
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

/// Where memory is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Supply {
    Common,
    Reserve,
    /// The queue has paid for it.
    Prepaid,
}

const SUPPLIES: usize = 3;

/// Where memory may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terms {
    /// What is common, or the host's share; the ticket of who has waited.
    Turn(Option<WaitTicket>),
    /// Anything, before those who wait.
    Urgent,
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
    /// Bytes of all buffers that commands have and that are not prepaid.
    in_use: u64,
    /// Bytes by supply that are unmapped, of which others may have a snapshot still.
    unmapped: [u64; SUPPLIES],
    /// Capsules that are in what the queue has paid for.
    capsules: u64,
    /// What it has all that with.
    purse: Purse,
}

impl Pool {
    /// A pool that pays with `purse`.
    pub(super) fn new(purse: Purse) -> Self {
        Self {
            space: Arc::new(AddressSpace::new()),
            next_iova: FIRST_IOVA,
            slabs: Vec::new(),
            free: Default::default(),
            free_large: Vec::new(),
            bytes: 0,
            in_use: 0,
            unmapped: [0; SUPPLIES],
            capsules: 0,
            purse,
        }
    }

    /// What the pool pays with.
    pub(super) fn purse(&mut self) -> &mut Purse {
        &mut self.purse
    }

    /// Whether others wait, and the host has more than its part.
    pub(super) fn is_greedy(&self, budget: &MemoryBudget) -> bool {
        budget.is_greedy(&self.purse)
    }

    /// A place in the line of those who wait for memory.
    pub(super) fn wait(&self, budget: &MemoryBudget, wake: Option<EventFd>) -> WaitTicket {
        budget.wait(&self.purse, wake)
    }

    /// Bytes of all buffers that commands have, but for what the queue has paid for.
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
        // What the queue has of the common part is not for it before its turn either: it would never become
        // free for who was here before.
        let is_turn = match terms {
            Terms::Turn(ticket) => budget.is_turn_of(ticket),
            Terms::Urgent => true,
        };
        let common = if is_turn { self.take_of(bytes, budget, terms, Supply::Common) } else { None };
        common.or_else(|| self.take_of(bytes, budget, terms, Supply::Reserve))
    }

    /// Memory for all that a command has in its capsule.
    #[inline]
    pub(super) fn take_for_capsule(&mut self, bytes: u32, budget: &MemoryBudget) -> Option<Buffer> {
        if self.capsules < CAPSULES {
            let taken = self.take_prepaid(class_of(IN_CAPSULE_BYTES)?, CAPSULES_BYTES)?;
            self.capsules += 1;
            return Some(taken);
        }
        self.take(bytes, budget, Terms::Turn(None))
    }

    /// Memory for a key: there is some for each entry of a queue of pairs.
    pub(super) fn take_for_key(&mut self) -> Option<Buffer> {
        self.take_prepaid(KEY_CLASS, SLAB_BYTES_MIN)
    }

    fn take_prepaid(&mut self, class: usize, slab_bytes: u64) -> Option<Buffer> {
        let supply = Supply::Prepaid;
        if self.free[supply as usize].get(class)?.is_empty() {
            let at = self.map(slab_bytes, class_bytes(class), supply)?;
            self.cut(at, class, supply)?;
        }
        self.pop(class, supply)
    }

    #[inline]
    fn take_of(&mut self, bytes: u32, budget: &MemoryBudget, terms: Terms, supply: Supply) -> Option<Buffer> {
        let Some(class) = class_of(bytes) else { return self.take_large(bytes, budget, terms, supply) };
        if self.free[supply as usize].get(class)?.is_empty() {
            self.grow(class, budget, terms, supply)?;
        }
        self.pop(class, supply)
    }

    #[inline]
    fn pop(&mut self, class: usize, supply: Supply) -> Option<Buffer> {
        let buffer = self.free[supply as usize].get_mut(class)?.pop()?;
        if let Some(Some(slab)) = self.slabs.get_mut(buffer.slab as usize) {
            slab.in_use += 1;
            if supply != Supply::Prepaid {
                self.in_use += slab.buffer_bytes;
            }
        }
        Some(buffer)
    }

    #[cold]
    fn take_large(
        &mut self,
        bytes: u32,
        budget: &MemoryBudget,
        terms: Terms,
        supply: Supply,
    ) -> Option<Buffer> {
        let wanted = Self::cost(bytes);
        let fits =
            |slab: &Slab| slab.supply == supply && (wanted..=wanted * LARGE_WASTE_MAX).contains(&slab.bytes);
        let kept = self.free_large.iter().position(|&at| self.slab(at).is_some_and(fits));
        let at = match kept {
            Some(kept) => self.free_large.swap_remove(kept),
            None => self.buy(wanted, wanted, budget, terms, supply)?,
        };
        if let Some(Some(slab)) = self.slabs.get_mut(at as usize) {
            slab.in_use += 1;
            self.in_use += slab.buffer_bytes;
        }
        Some(Buffer { slab: at, offset: 0 })
    }

    #[cold]
    fn grow(&mut self, class: usize, budget: &MemoryBudget, terms: Terms, supply: Supply) -> Option<()> {
        let buffer_bytes = class_bytes(class);
        let of_this_kind = |slab: &&Slab| slab.buffer_bytes == buffer_bytes && slab.supply == supply;
        let before = self.slabs.iter().flatten().filter(of_this_kind).count().min(8);
        let smallest = SLAB_BYTES_MIN.max(buffer_bytes);
        let bytes = match supply {
            Supply::Common => (SLAB_BYTES_MIN << before).min(SLAB_BYTES_MAX).max(buffer_bytes),
            // There is little of it.
            Supply::Reserve | Supply::Prepaid => smallest,
        };
        // Rather a small one than none.
        let at = match self.buy(bytes, buffer_bytes, budget, terms, supply) {
            Some(at) => at,
            None if bytes > smallest => self.buy(smallest, buffer_bytes, budget, terms, supply)?,
            None => return None,
        };
        self.cut(at, class, supply)
    }

    /// The buffers of a new slab are free.
    fn cut(&mut self, at: u32, class: usize, supply: Supply) -> Option<()> {
        let bytes = self.slab(at)?.bytes;
        let offsets = (0..bytes).step_by(class_bytes(class) as usize);
        self.free[supply as usize]
            .get_mut(class)?
            .extend(offsets.map(|offset| Buffer { slab: at, offset: offset as u32 }));
        Some(())
    }

    /// A slab that counts.
    fn buy(
        &mut self,
        bytes: u64,
        buffer_bytes: u64,
        budget: &MemoryBudget,
        terms: Terms,
        supply: Supply,
    ) -> Option<u32> {
        let part = if supply == Supply::Common { Part::Common } else { Part::Reserve };
        let is_taken = match (terms, part) {
            (Terms::Urgent, _) => budget.take_urgently(part, bytes, &mut self.purse),
            (Terms::Turn(ticket), Part::Common) => budget.take(bytes, &mut self.purse, ticket),
            (Terms::Turn(_), Part::Reserve) => budget.take_share(bytes, &mut self.purse),
        };
        if !is_taken {
            return None;
        }
        let at = self.map(bytes, buffer_bytes, supply);
        if at.is_none() {
            budget.give(part, bytes, &mut self.purse);
        }
        at
    }

    fn map(&mut self, bytes: u64, buffer_bytes: u64, supply: Supply) -> Option<u32> {
        let mapped = usize::try_from(bytes)
            .ok()
            .and_then(|length| Region::anonymous(length).ok())
            .filter(|region| self.space.map(self.next_iova, region, DmaAccess::READ_WRITE).is_ok());
        let Some(region) = mapped else {
            tracing::warn!(bytes, "there is no memory for a command");
            return None;
        };
        let slab = Slab { region, iova: self.next_iova, bytes, buffer_bytes, in_use: 0, supply };
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
        let is_prepaid = slab.supply == Supply::Prepaid;
        if !is_prepaid {
            self.in_use -= slab.buffer_bytes;
        } else if slab.buffer_bytes != class_bytes(KEY_CLASS) {
            self.capsules -= 1;
        }
        // What is prepaid is the queue's until its end.
        let is_idle = slab.in_use == 0 && !is_prepaid;
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
            if self.slab(at).is_some_and(|slab| slab.in_use == 0 && slab.supply != Supply::Prepaid) {
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
        let [common, reserve, _] = std::mem::take(&mut self.unmapped);
        for (part, bytes) in [(Part::Common, common), (Part::Reserve, reserve)] {
            if bytes > 0 {
                budget.give(part, bytes, &mut self.purse);
            }
        }
    }

    /// Everything goes back; nothing of it is in use, and nobody has a snapshot of it.
    pub(super) fn close(&mut self, budget: &MemoryBudget) {
        for at in 0..self.slabs.len() as u32 {
            self.unmap(at);
        }
        self.return_unmapped(budget);
        budget.close(&mut self.purse);
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

/// Buffers for so much data are cut from slabs of a class; `None` for those that are not.
#[inline]
fn class_of(bytes: u32) -> Option<usize> {
    let shift = bytes.max(1).checked_next_power_of_two()?.trailing_zeros().max(SHIFT_MIN);
    (shift <= SHIFT_MAX).then_some((shift - SHIFT_MIN + 1) as usize)
}

/// The class of slabs that are cut into buffers of this size.
#[inline]
fn class_of_bytes(bytes: u64) -> Option<usize> {
    if bytes == class_bytes(KEY_CLASS) {
        return Some(KEY_CLASS);
    }
    u32::try_from(bytes).ok().and_then(class_of)
}

const fn class_bytes(class: usize) -> u64 {
    match class {
        KEY_CLASS => 1 << SHIFT_KEY,
        _ => 1 << (SHIFT_MIN as usize + class - 1),
    }
}

const _: () = assert!(samsung_kv::KEY_CAPSULE_BYTES.is_power_of_two());
const _: () = assert!(CAPSULES_BYTES.is_multiple_of(PAGE_BYTES as u64) && IN_CAPSULE_BYTES.is_power_of_two());

#[cfg(test)]
mod tests {
    use super::super::guest::Guest;
    use super::*;

    fn pool(budget: &MemoryBudget) -> Pool {
        Pool::new(budget.open(&Guest::Proven("host".to_owned())))
    }

    #[test]
    fn who_has_waited_keeps_its_place_though_nothing_can_be_mapped() {
        let budget = MemoryBudget::new(1 << 20);
        let mut pool = pool(&budget);
        let ticket = pool.wait(&budget, None);
        // No address for it.
        pool.next_iova = u64::MAX - PAGE_BYTES as u64 + 1;
        assert_eq!(pool.take(64 << 10, &budget, Terms::Turn(Some(ticket))), None);
        assert_eq!(budget.used(), 0);
        assert!(budget.is_turn_of(Some(ticket)) && !budget.is_turn_of(None));
        pool.next_iova = FIRST_IOVA;
        assert!(pool.take(64 << 10, &budget, Terms::Turn(Some(ticket))).is_some());
        budget.forget(ticket);
        assert!(budget.is_turn_of(None));
    }

    #[test]
    fn what_a_queue_has_paid_for_is_there_though_all_else_is_taken() {
        let budget = MemoryBudget::new(128 << 10);
        let (mut greedy, mut pool) = (pool(&budget), pool(&budget));
        assert!(budget.take_fixed(CAPSULES_BYTES, pool.purse()));
        while greedy.take(4096, &budget, Terms::Turn(None)).is_some() {}
        let used = budget.used();
        let capsules: Vec<_> =
            (0..CAPSULES).map(|_| pool.take_for_capsule(256, &budget).expect("memory")).collect();
        assert_eq!(pool.take_for_capsule(256, &budget), None);
        assert!(pool.take_for_key().is_some());
        assert_eq!(budget.used(), used);
        pool.give(capsules[0], &budget);
        assert!(pool.take_for_capsule(IN_CAPSULE_BYTES, &budget).is_some());
    }

    #[test]
    fn what_is_unmapped_counts_until_nobody_has_a_snapshot_of_it() {
        let budget = MemoryBudget::new(32 << 10);
        let mut pool = pool(&budget);
        let data = pool.take(4096, &budget, Terms::Turn(None)).expect("memory");
        assert_eq!(budget.used(), 16 << 10);
        let ticket = pool.wait(&budget, None);
        pool.give(data, &budget);
        assert!(pool.has_unmapped());
        assert_eq!(budget.used(), 16 << 10);
        pool.return_unmapped(&budget);
        assert_eq!(budget.used(), 0);
        assert!(pool.take(16 << 10, &budget, Terms::Turn(Some(ticket))).is_some());
        pool.close(&budget);
        assert_eq!(budget.used(), 0);
    }
}
