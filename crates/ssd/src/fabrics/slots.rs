//! Commands of a queue that have begun, by slot and by the host's command identifier.

use unvme_spec::{Fuse, Sqe};

use super::memory::WaitTicket;
use super::staging::Buffer;

/// Where a command is on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// No command has the slot.
    #[default]
    Free,
    /// It waits for memory; the first of those that do has a place in the line.
    Waiting(Option<WaitTicket>),
    /// Its data is on its way here.
    Filling,
    /// It waits for the other half of a fused pair.
    Paired,
    /// The controller has it.
    Running,
    /// It has been executed, and is answered.
    Done,
}

/// A command.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    pub(super) sqe: Sqe,
    pub(super) stage: Stage,
    /// Memory for its data, behind its key when both are in the capsule.
    pub(super) buffer: Option<Buffer>,
    /// Memory for a key in the capsule, when the data is elsewhere.
    pub(super) key_buffer: Option<Buffer>,
    /// Bytes of its data.
    pub(super) bytes: u32,
    /// Bytes of the capsule that have its key; 0 for one that has none there.
    pub(super) key_bytes: u32,
    /// The other half of a fused pair.
    pub(super) partner: Option<u16>,
    /// The data comes from the host.
    pub(super) is_write: bool,
    /// It is an Asynchronous Event Request.
    pub(super) is_request: bool,
    /// Since when the host has had to send the data, or to take it: a number that no other has; 0 for never.
    pub(super) hold: u64,
}

/// All slots of a queue.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u16>,
    cids: CidTable,
    /// Slots of Asynchronous Event Requests: they stay for as long as there is no event, and there are hosts
    /// that give their identifiers to other commands meanwhile.
    requests: Vec<u16>,
}

impl Slot {
    /// It is the second half of a fused pair, whose first half there is.
    #[inline]
    pub(super) fn is_second_half(&self) -> bool {
        self.partner.is_some() && self.sqe.fuse() == Fuse::Second
    }

    /// It is to be found by its identifier among those that do not wait for events.
    fn is_known(&self) -> bool {
        !self.is_request && !matches!(self.stage, Stage::Free | Stage::Done)
    }

    /// Bytes of its memory in front of its data.
    #[inline]
    pub(super) fn before_data(&self) -> u32 {
        if self.key_buffer.is_some() { 0 } else { self.key_bytes }
    }

    /// Memory that its key is in, when it has one in its capsule.
    #[inline]
    pub(super) fn key_memory(&self) -> Option<Buffer> {
        if self.key_bytes == 0 { None } else { self.key_buffer.or(self.buffer) }
    }
}

impl Slots {
    /// Slots for `count` commands; those of commands that have begun stay.
    pub(super) fn grow(&mut self, count: u16) {
        let before = self.slots.len() as u16;
        self.slots.resize(usize::from(count.max(before)), Slot::default());
        // The lowest first, so that few of them are warm.
        self.free.extend((before..count).rev());
        self.free.reserve(self.slots.len());
        let mut cids = CidTable::for_commands(self.slots.len());
        for (at, slot) in self.slots.iter().enumerate().filter(|(_, slot)| slot.is_known()) {
            cids.insert(slot.sqe.cid, at as u16);
        }
        self.cids = cids;
    }

    /// Whether all are taken.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// A slot for a command; `None` when all are taken.
    #[inline]
    pub(super) fn take(&mut self, slot: Slot) -> Option<u16> {
        let at = self.free.pop()?;
        if slot.is_request {
            self.requests.push(at);
        } else {
            self.cids.insert(slot.sqe.cid, at);
        }
        *self.slots.get_mut(usize::from(at))? = slot;
        Some(at)
    }

    /// The slot is free; returns what it was.
    #[inline]
    pub(super) fn free(&mut self, at: u16) -> Option<Slot> {
        let slot = self.slots.get_mut(usize::from(at)).filter(|slot| slot.stage != Stage::Free)?;
        let taken = std::mem::take(slot);
        if taken.is_request {
            self.requests.retain(|&request| request != at);
        } else if self.cids.find(taken.sqe.cid) == Some(at) {
            self.cids.remove(taken.sqe.cid);
        }
        self.free.push(at);
        Some(taken)
    }

    /// The command is answered: the host may use its identifier for the next one as soon as it has the
    /// answer.
    #[inline]
    pub(super) fn answered(&mut self, at: u16) {
        if let Some(slot) = self.slots.get_mut(usize::from(at)) {
            slot.stage = Stage::Done;
            if slot.is_request {
                self.requests.retain(|&request| request != at);
            } else {
                self.cids.remove(slot.sqe.cid);
            }
        }
    }

    #[inline]
    pub(super) fn get(&self, at: u16) -> Option<&Slot> {
        self.slots.get(usize::from(at)).filter(|slot| slot.stage != Stage::Free)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u16) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(at)).filter(|slot| slot.stage != Stage::Free)
    }

    /// The command with this identifier that has not been answered and is no Asynchronous Event Request.
    #[inline]
    pub(super) fn find(&self, cid: u16) -> Option<u16> {
        self.cids.find(cid)
    }

    /// The Asynchronous Event Request with this identifier that has not been answered.
    pub(super) fn find_request(&self, cid: u16) -> Option<u16> {
        self.requests.iter().copied().find(|&at| self.get(at).is_some_and(|slot| slot.sqe.cid == cid))
    }

    /// Slots there are.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Commands that have begun.
    #[inline]
    pub(super) fn taken(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Slots of commands at this stage.
    pub(super) fn at_stage(&self, stage: Stage) -> Vec<u16> {
        let there = self.slots.iter().enumerate().filter(|(_, slot)| slot.stage == stage);
        there.map(|(at, _)| at as u16).collect()
    }
}

/// Bytes that a slot has, and its command's identifier.
pub(super) const SLOT_BYTES: usize = size_of::<Slot>() + size_of::<u16>() + 4 * size_of::<u64>();

/// Command identifiers to slots: open addressing with linear probing, at most half full. Hosts count their
/// identifiers up or keep a small number in the low bits: both fall next to each other.
#[derive(Debug, Default)]
struct CidTable {
    /// Identifier in bits 15:0, slot in bits 31:16, and bit 32 set for an entry that is there.
    entries: Vec<u64>,
}

const THERE: u64 = 1 << 32;

impl CidTable {
    fn for_commands(count: usize) -> Self {
        Self { entries: vec![0; (2 * count.max(2)).next_power_of_two()] }
    }

    #[inline]
    fn mask(&self) -> usize {
        self.entries.len().wrapping_sub(1)
    }

    /// Place of an identifier, or where it would go; `None` without a table.
    #[inline]
    fn place(&self, cid: u16) -> Option<usize> {
        let mut at = usize::from(cid) & self.mask();
        loop {
            let entry = *self.entries.get(at)?;
            if entry & THERE == 0 || entry as u16 == cid {
                return Some(at);
            }
            at = (at + 1) & self.mask();
        }
    }

    #[inline]
    fn find(&self, cid: u16) -> Option<u16> {
        let entry = *self.entries.get(self.place(cid)?)?;
        (entry & THERE != 0).then_some((entry >> 16) as u16)
    }

    #[inline]
    fn insert(&mut self, cid: u16, slot: u16) {
        if let Some(at) = self.place(cid) {
            self.entries[at] = THERE | u64::from(slot) << 16 | u64::from(cid);
        }
    }

    #[inline]
    fn remove(&mut self, cid: u16) {
        let Some(mut hole) = self.place(cid).filter(|&at| self.entries[at] & THERE != 0) else { return };
        let mut at = hole;
        loop {
            self.entries[hole] = 0;
            // What had to go further because of the one that is gone moves up.
            loop {
                at = (at + 1) & self.mask();
                let entry = self.entries[at];
                if entry & THERE == 0 {
                    return;
                }
                let home = usize::from(entry as u16) & self.mask();
                let from_home = at.wrapping_sub(home) & self.mask();
                let from_hole = at.wrapping_sub(hole) & self.mask();
                if from_home >= from_hole {
                    self.entries[hole] = entry;
                    hole = at;
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn command_identifiers_are_found_as_in_a_map() {
        let mut table = CidTable::for_commands(32);
        let mut model = BTreeMap::new();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for step in 0..20_000_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(u64::from(step) | 1);
            // Many of them want the same place.
            let cid = (random >> 33) as u16 & 0xf0f3;
            if model.len() < 32 && random >> 63 == 0 {
                table.insert(cid, step as u16);
                model.insert(cid, step as u16);
            } else {
                table.remove(cid);
                model.remove(&cid);
            }
            assert_eq!(table.find(cid), model.get(&cid).copied());
            for (&cid, &slot) in &model {
                assert_eq!(table.find(cid), Some(slot), "step {step}");
            }
        }
    }
}
