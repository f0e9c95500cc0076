//! The places of outstanding commands, and what is known of each.

use unvme_bus::DmaBuf;
use unvme_spec::command::Direction;
use unvme_spec::samsung_kv::KEY_CAPSULE_BYTES;
use unvme_spec::{Cid, Sqe, Status, kv};

/// Command identifier: slot index in bits 11:0, count of reuse in bits 15:12, as in [`crate::pcie`].
const INDEX_MASK: u16 = 0x0fff;
const GENERATION_ONE: u16 = 0x1000;
/// End of the list of free slots.
const NONE: u32 = u32::MAX;

/// How far a command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Free,
    /// Submitted; the target has not seen a byte of it.
    Waiting,
    /// With the target.
    Sent,
    /// Completed, and not taken by its owner yet.
    Ended,
}

/// A key that travels beside its entry, padded with zeroes as it is in a capsule.
pub(super) type LongKey = [u8; KEY_CAPSULE_BYTES as usize];

/// One place for an outstanding command.
pub(super) struct Slot {
    pub(super) sqe: Sqe,
    pub(super) token: u64,
    /// Number of the command in the order of submission on its queue.
    pub(super) serial: u64,
    pub(super) buf: Option<DmaBuf>,
    /// Bytes the command transfers.
    pub(super) bytes: u32,
    /// Bytes that have arrived, from the first on.
    pub(super) received: u32,
    /// Bytes the target has asked for, from the first on.
    pub(super) asked: u32,
    cid: u16,
    pub(super) direction: Direction,
    pub(super) stage: Stage,
    /// Pieces of the buffer that wait to be sent: it cannot be given back before.
    pub(super) unsent: u16,
    /// R2Ts that have not been answered in full.
    pub(super) asks: u16,
    /// Times the command has been sent again.
    pub(super) resent: u8,
    /// Bytes that a success stands for at the least.
    pub(super) due: u32,
    /// A key-value command: its result says how much of the buffer a success stands for.
    pub(super) is_kv: bool,
    /// Data came with a wrong digest.
    pub(super) is_corrupt: bool,
    /// The target has said that no more data follows.
    pub(super) is_last: bool,
    /// The command has a key of [`Slots::long_key`].
    has_long_key: bool,
    /// How the command has ended, while a part of its buffer still waits to be sent.
    held: Option<(Status, u64)>,
    /// Kept by [`crate::watch`]; 0 when it has not seen the command yet.
    pub(super) deadline: u64,
    next: u32,
}

/// What a command is submitted with.
pub(super) struct Order<'a> {
    pub(super) sqe: Sqe,
    /// A key that is not in the entry, at most 255 bytes.
    pub(super) long_key: Option<&'a [u8]>,
    pub(super) token: u64,
    pub(super) buf: Option<DmaBuf>,
    pub(super) bytes: u32,
    pub(super) direction: Direction,
    /// Bytes that a success stands for at the least.
    pub(super) due: u32,
    pub(super) is_kv: bool,
}

/// The slots of a queue. Those in use are known by the identifiers of their commands.
pub(super) struct Slots {
    all: Box<[Slot]>,
    /// One for each slot, or none at all. Kept until their commands have ended: they may be sent again.
    long_keys: Box<[LongKey]>,
    /// First free slot. Last in, first out: the slot used last is the one in the cache.
    free: u32,
    taken: u32,
    /// Number of the next command.
    serial: u64,
    /// Commands with more data for the host than is worth copying.
    long_reads: u32,
}

/// Data for the host of at least this length goes from the socket to its buffer without a stop.
pub(super) const LONG_BYTES: u32 = 16 << 10;

impl Slots {
    pub(super) fn new(depth: u16, long_keys: bool) -> Self {
        let keys = if long_keys { depth } else { 0 };
        let slot = |index: u32| Slot {
            sqe: Sqe::default(),
            token: 0,
            serial: 0,
            buf: None,
            bytes: 0,
            received: 0,
            asked: 0,
            cid: index as u16,
            direction: Direction::None,
            stage: Stage::Free,
            unsent: 0,
            asks: 0,
            resent: 0,
            due: 0,
            is_kv: false,
            is_corrupt: false,
            is_last: false,
            has_long_key: false,
            held: None,
            deadline: 0,
            next: if index + 1 == u32::from(depth) { NONE } else { index + 1 },
        };
        Self {
            all: (0..u32::from(depth)).map(slot).collect(),
            long_keys: vec![[0; KEY_CAPSULE_BYTES as usize]; keys.into()].into_boxed_slice(),
            free: 0,
            taken: 0,
            serial: 0,
            long_reads: 0,
        }
    }

    /// Whether there is memory for keys that are not in their entries.
    pub(super) fn take_long_keys(&self) -> bool {
        !self.long_keys.is_empty()
    }

    /// The key of a command that has one beside its entry.
    #[inline]
    pub(super) fn long_key(&self, index: u16) -> Option<&LongKey> {
        let has_one = self.get(index)?.has_long_key;
        self.long_keys.get(usize::from(index)).filter(|_| has_one)
    }

    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.all.len()
    }

    #[inline]
    pub(super) fn taken(&self) -> usize {
        self.taken as usize
    }

    /// Whether data is expected that is better not copied.
    #[inline]
    pub(super) fn expects_long(&self) -> bool {
        self.long_reads > 0
    }

    /// Takes a slot for a command; gives its buffer back when there is none.
    #[inline]
    pub(super) fn take(&mut self, order: Order<'_>) -> Result<u16, Option<DmaBuf>> {
        let index = self.free;
        let Some(slot) = self.all.get_mut(index as usize) else { return Err(order.buf) };
        self.free = slot.next;
        slot.cid = slot.cid.wrapping_add(GENERATION_ONE);
        let Order { sqe, long_key, token, buf, bytes, direction, due, is_kv } = order;
        slot.sqe = Sqe { cid: slot.cid, ..sqe };
        slot.token = token;
        slot.serial = self.serial;
        self.serial += 1;
        slot.buf = buf;
        slot.bytes = bytes;
        slot.direction = direction;
        (slot.due, slot.is_kv) = (due, is_kv);
        slot.has_long_key = long_key.is_some();
        slot.resent = 0;
        slot.unsent = 0;
        slot.renew();
        self.taken += 1;
        self.long_reads += u32::from(slot.is_long_read());
        if let Some(key) = long_key
            && let Some(place) = self.long_keys.get_mut(index as usize)
            && let Some((place, rest)) = place.split_at_mut_checked(key.len())
        {
            place.copy_from_slice(key);
            rest.fill(0);
        }
        Ok(index as u16)
    }

    /// Frees a slot; the token and the buffer of its command.
    #[inline]
    pub(super) fn finish(&mut self, index: u16) -> Option<(u64, Option<DmaBuf>)> {
        let slot = self.all.get_mut(usize::from(index))?;
        self.long_reads -= u32::from(slot.is_long_read());
        slot.stage = Stage::Free;
        slot.direction = Direction::None;
        slot.next = self.free;
        self.free = u32::from(index);
        self.taken -= 1;
        Some((slot.token, slot.buf.take()))
    }

    /// The slot of a command that the target has.
    #[inline]
    pub(super) fn of(&mut self, cid: u16) -> Option<(u16, &mut Slot)> {
        let index = cid & INDEX_MASK;
        let slot = self.all.get_mut(usize::from(index))?;
        (slot.cid == cid && slot.stage == Stage::Sent).then_some((index, slot))
    }

    #[inline]
    pub(super) fn get(&self, index: u16) -> Option<&Slot> {
        self.all.get(usize::from(index))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u16) -> Option<&mut Slot> {
        self.all.get_mut(usize::from(index))
    }

    /// All slots that are in use, with their indices.
    pub(super) fn busy(&mut self) -> impl Iterator<Item = (u16, &mut Slot)> {
        let indexed = self.all.iter_mut().enumerate();
        indexed.filter(|(_, slot)| slot.stage != Stage::Free).map(|(index, slot)| (index as u16, slot))
    }

    /// The commands the target has, or still has to take data of, each with its deadline, which starts at 0.
    pub(super) fn deadlines(&mut self) -> impl Iterator<Item = (Cid, &mut u64)> {
        let sent = self.all.iter_mut().filter(|slot| slot.stage == Stage::Sent || slot.is_held());
        sent.map(|slot| (Cid(slot.cid), &mut slot.deadline))
    }
}

impl Slot {
    /// Bytes of a capsule's data that its key takes.
    #[inline]
    pub(super) fn key_bytes(&self) -> u32 {
        if self.has_long_key { KEY_CAPSULE_BYTES } else { 0 }
    }

    /// Whether its data travels with it in a capsule that takes so many bytes.
    #[inline]
    pub(super) fn is_in_capsule(&self, capsule_bytes: u32) -> bool {
        self.direction == Direction::ToController
            && self.bytes.saturating_add(self.key_bytes()) <= capsule_bytes
    }

    fn is_long_read(&self) -> bool {
        self.direction == Direction::ToHost && self.bytes >= LONG_BYTES
    }

    /// Bytes the command transfers, one way or the other.
    pub(super) fn transfer_bytes(&self) -> u32 {
        self.bytes
    }

    /// Whether the command has ended, and a part of its buffer still waits to be sent.
    fn is_held(&self) -> bool {
        self.stage == Stage::Ended && self.unsent > 0
    }

    /// Remembers how the command has ended.
    pub(super) fn hold(&mut self, status: Status, result: u64) {
        self.held = Some((status, result));
    }

    /// How the command has ended, when that was remembered.
    pub(super) fn verdict(&mut self) -> Option<(Status, u64)> {
        self.held.take()
    }

    /// What a success says that cannot be: that all is done while data is missing.
    pub(super) fn contradiction(&self, result: u64) -> Option<String> {
        let cid = self.cid;
        let due = match self.is_kv {
            // A Retrieve may return less than there was room for; its result says how long the value is.
            true if self.sqe.opcode == kv::opcode::RETRIEVE => {
                self.bytes.min(u32::try_from(result).unwrap_or(u32::MAX))
            }
            _ => self.due,
        };
        match self.direction {
            Direction::ToHost if self.received > 0 && !self.is_last => {
                Some(format!("command {cid:#06x} has succeeded, and more of its data was to come"))
            }
            Direction::ToHost if self.received < due => {
                Some(format!("command {cid:#06x} has succeeded with {} bytes of {due}", self.received))
            }
            Direction::ToController if due > 0 && (self.unsent > 0 || self.asked < self.bytes) => {
                Some(format!("command {cid:#06x} has succeeded without its data"))
            }
            Direction::ToController if due > 0 && self.asks > 0 => {
                Some(format!("command {cid:#06x} has succeeded before its data was sent"))
            }
            _ => None,
        }
    }

    /// Puts the command back to before it was sent.
    pub(super) fn renew(&mut self) {
        self.stage = Stage::Waiting;
        self.received = 0;
        self.asked = 0;
        self.asks = 0;
        self.unsent = 0;
        self.is_corrupt = false;
        self.is_last = false;
        self.deadline = 0;
    }

    /// A new identifier, for a command that is sent again: what belonged to the old one is not mistaken for
    /// its own.
    pub(super) fn rename(&mut self) {
        self.cid = self.cid.wrapping_add(GENERATION_ONE);
        self.sqe.cid = self.cid;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(token: u64) -> Order<'static> {
        Order {
            sqe: Sqe::default(),
            long_key: None,
            token,
            buf: None,
            bytes: 0,
            direction: Direction::None,
            due: 0,
            is_kv: false,
        }
    }

    #[test]
    fn an_identifier_that_was_used_before_finds_nothing() {
        let mut slots = Slots::new(1, false);
        let index = slots.take(order(1)).ok().unwrap();
        let cid = slots.get(index).unwrap().sqe.cid;
        assert!(slots.of(cid).is_none(), "it has not been sent");
        slots.get_mut(index).unwrap().stage = Stage::Sent;
        assert!(slots.of(cid).is_some());
        assert!(slots.take(order(2)).is_err(), "full");
        assert_eq!(slots.finish(index).unwrap().0, 1);
        let again = slots.take(order(3)).ok().unwrap();
        slots.get_mut(again).unwrap().stage = Stage::Sent;
        assert!(slots.of(cid).is_none());
        assert!(slots.of(0x0fff).is_none());
    }
}
