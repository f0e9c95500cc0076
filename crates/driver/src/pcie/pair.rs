//! Mechanics of one submission and one completion queue: entries, slots, doorbells. Which controller they
//! belong to, and what to do when it misbehaves, is decided above.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use unvme_bus::mem::PAGE_BYTES;
use unvme_bus::{BusError, DmaBuf, DmaPool, Doorbell, PoolId, Region};
use unvme_spec::{Cid, Cqe, Qid, Sqe, Status, prp, samsung_kv};

use super::dptr;
use crate::command::{Completion, Payload};
use crate::options::DataPointers;
use crate::repeat::may_repeat;

const SQE_BYTES: usize = size_of::<Sqe>();
const CQE_BYTES: usize = size_of::<Cqe>();

/// Command identifier: slot index in bits 11:0, count of reuse in bits 15:12. Slots number at most 4095, so
/// FFFFh, which the specification reserves for "no command", never occurs.
const INDEX_MASK: u16 = 0x0fff;
const GENERATION_ONE: u16 = 0x1000;
/// In a slot's tag: the device has the command.
const BUSY: u32 = 1 << 16;
/// In a slot's tag: a reset ended the command and its owner has not been told yet.
const ABORTED: u32 = 1 << 17;
/// Transfers up to this length have their PRP list in memory of the slot. One page; those that are longer
/// take a list from the pool, and time enough to hide that.
const SLOT_LIST_BYTES: u64 = 2 << 20;
/// Memory for a long key in each slot. A divisor of the page: a key never crosses one.
const KEY_BYTES: usize = 256;
/// Completions that may be taken before the device is told, on a queue that is polled. Each doorbell is a
/// write across the bus, or an exit of a virtual machine; this many more entries make it one in as many
/// completions.
pub(crate) const CQ_SLACK: u32 = 63;
/// End of the list of free slots.
const NONE: u32 = u32::MAX;

/// One place for an outstanding command.
#[repr(align(32))]
struct Slot {
    token: u64,
    buf: Option<DmaBuf>,
    /// Command identifier in bits 15:0, [`BUSY`], [`ABORTED`].
    tag: u32,
    /// Next free slot.
    next: u32,
    /// Kept by [`crate::watch`]; 0 when it has not seen the command yet.
    deadline: u64,
}

/// What a pair is made of.
pub(crate) struct PairConfig {
    pub(crate) qid: Qid,
    /// Commands that can be outstanding, 1 to [`crate::DEPTH_MAX`].
    pub(crate) depth: u16,
    /// Completions that may be taken before the device is told: the completion queue has that many more
    /// entries. 0 for a queue with interrupts, as a controller may keep the next message back while entries
    /// are not acknowledged (PCIe Transport, interrupts).
    pub(crate) cq_slack: u32,
    /// Longest transfer in bytes.
    pub(crate) transfer_bytes_max: usize,
    /// [`DataPointers::Auto`] is resolved: it stands for a controller with SGLs.
    pub(crate) data_pointers: DataPointers,
    /// Memory for a long key in every slot.
    pub(crate) long_keys: bool,
    /// The device may move to another process: what it has not completed then is needed again.
    pub(crate) is_movable: bool,
    pub(crate) sq_doorbell: Doorbell,
    pub(crate) cq_doorbell: Doorbell,
}

/// DPTR and PSDT of an entry. A value, not written through a reference: see [`Pair::submit`].
struct DataPointer {
    dptr: [u64; 2],
    is_sgl: bool,
}

/// Why an entry was not written.
pub(crate) enum Refused {
    /// No slot is free.
    Full,
    /// More bytes than the buffer or the controller takes.
    TooLong,
    /// The buffer is of another controller's pool: its address means other memory, or none, to this one.
    ForeignBuffer,
    /// No memory is left for the PRP list of a long transfer.
    NoList,
    /// The key is longer than a slot's key memory, or the queue was created without.
    NoKeyMemory,
}

/// The PRP list of a transfer that is too long for the list of its slot.
struct FarList {
    /// Slot that uses it, or has last used it.
    index: u32,
    memory: DmaBuf,
}

/// An entry as it was submitted.
#[derive(Clone, Copy, Default)]
struct Kept {
    words: [u64; 8],
    /// Number of the command in the order of submission on its queue.
    serial: u64,
}

/// A submission queue and its completion queue.
pub(crate) struct Pair {
    sq: Region,
    cq: Region,
    slots: Box<[Slot]>,
    /// First free slot. Last in, first out: the slot used last is the one in the cache.
    free: u32,
    outstanding: u32,
    /// Commands that have ended without a completion in the queue: slots marked [`ABORTED`], and `early`.
    ended: u32,
    /// Completions of a device that has moved since.
    early: VecDeque<Completion>,
    /// The entry of each slot's command, for a device that may move.
    kept: Option<Box<[Kept]>>,
    /// Number of the next entry that is kept.
    serial: u64,
    /// Entries of the submission queue: one more than there are slots, as a queue of n entries holds n - 1.
    sq_entries: u32,
    tail: u32,
    tail_rung: u32,
    /// Entries of the completion queue: as many as the submission queue has, and the slack.
    cq_entries: u32,
    head: u32,
    head_rung: u32,
    phase: bool,
    cq_slack: u32,
    data_pointers: DataPointers,
    qid: u16,
    transfer_bytes_max: usize,
    lists: Region,
    lists_iova: u64,
    list_bytes: usize,
    far_lists: Vec<FarList>,
    /// Where far lists come from.
    pool: DmaPool,
    /// Where buffers must come from.
    pool_id: PoolId,
    sq_doorbell: Doorbell,
    cq_doorbell: Doorbell,
    violation: Option<Cqe>,
    sq_iova: u64,
    cq_iova: u64,
    /// Long keys, [`KEY_BYTES`] for each slot.
    keys: Option<DmaBuf>,
    /// Submission queue, completion queue, PRP lists; `None` once it had to be given up.
    memory: Option<[DmaBuf; 3]>,
}

impl Pair {
    pub(crate) fn new(pool: &DmaPool, config: PairConfig) -> Result<Self, BusError> {
        let sq_entries = u32::from(config.depth) + 1;
        let cq_entries = sq_entries + config.cq_slack;
        let listed = SLOT_LIST_BYTES.min(config.transfer_bytes_max as u64);
        let list_bytes = dptr::list_pages(listed) as usize * PAGE_BYTES;
        let sq = pool.alloc(sq_entries as usize * SQE_BYTES)?;
        let cq = pool.alloc(cq_entries as usize * CQE_BYTES)?;
        let lists = pool.alloc(usize::from(config.depth) * list_bytes)?;
        let keys = match config.long_keys {
            true => Some(pool.alloc(usize::from(config.depth) * KEY_BYTES)?),
            false => None,
        };
        let slots = (0..u32::from(config.depth))
            .map(|index| Slot {
                token: 0,
                buf: None,
                tag: index,
                next: if index + 1 == u32::from(config.depth) { NONE } else { index + 1 },
                deadline: 0,
            })
            .collect();
        Ok(Self {
            sq: sq.region().clone(),
            cq: cq.region().clone(),
            slots,
            free: 0,
            outstanding: 0,
            ended: 0,
            early: VecDeque::new(),
            kept: config.is_movable.then(|| vec![Kept::default(); config.depth.into()].into()),
            serial: 0,
            sq_entries,
            tail: 0,
            tail_rung: 0,
            cq_entries,
            head: 0,
            head_rung: 0,
            phase: true,
            cq_slack: config.cq_slack,
            data_pointers: config.data_pointers,
            qid: config.qid.0,
            transfer_bytes_max: config.transfer_bytes_max,
            lists: lists.region().clone(),
            lists_iova: lists.iova(),
            list_bytes,
            far_lists: Vec::new(),
            pool: pool.clone(),
            pool_id: pool.id(),
            sq_doorbell: config.sq_doorbell,
            cq_doorbell: config.cq_doorbell,
            violation: None,
            sq_iova: sq.iova(),
            cq_iova: cq.iova(),
            keys,
            memory: Some([sq, cq, lists]),
        })
    }

    /// Addresses of the submission and the completion queue for the device.
    pub(crate) fn addresses(&self) -> (u64, u64) {
        (self.sq_iova, self.cq_iova)
    }

    /// Entries of the submission and the completion queue.
    pub(crate) fn entries(&self) -> (u32, u32) {
        (self.sq_entries, self.cq_entries)
    }

    pub(crate) fn qid(&self) -> Qid {
        Qid(self.qid)
    }

    pub(crate) fn transfer_bytes_max(&self) -> usize {
        self.transfer_bytes_max
    }

    /// Lowers the longest transfer, for a queue that was made before the controller had said what it takes.
    pub(crate) fn limit_transfers(&mut self, bytes: usize) {
        self.transfer_bytes_max = self.transfer_bytes_max.min(bytes);
    }

    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding as usize
    }

    /// Writes an entry; the device is told by [`Pair::ring`].
    ///
    /// Always inlined, here and in the callers, and no reference to the entry is handed on: then it is put
    /// together in registers. As a value in memory its narrow fields are written just before they are read
    /// back as 64-bit words, which stalls for as long as the rest of the submission takes.
    #[inline(always)]
    pub(crate) fn submit(
        &mut self,
        sqe: Sqe,
        payload: Option<Payload>,
        token: u64,
    ) -> Result<(), (Refused, Option<DmaBuf>)> {
        self.submit_as(sqe, payload, token, self.data_pointers)
    }

    /// [`Pair::submit`] with a data pointer of a kind that may not be the queue's.
    #[inline(always)]
    pub(crate) fn submit_as(
        &mut self,
        mut sqe: Sqe,
        payload: Option<Payload>,
        token: u64,
        data_pointers: DataPointers,
    ) -> Result<(), (Refused, Option<DmaBuf>)> {
        let index = self.free;
        let buf = match payload {
            None => None,
            Some(Payload { buf, bytes }) => {
                if bytes > buf.len() || bytes > self.transfer_bytes_max {
                    return Err((Refused::TooLong, Some(buf)));
                }
                if buf.pool() != self.pool_id {
                    return Err((Refused::ForeignBuffer, Some(buf)));
                }
                if bytes > 0 && index != NONE {
                    let Some(pointer) = self.point(index, buf.iova(), bytes, data_pointers) else {
                        return Err((Refused::NoList, Some(buf)));
                    };
                    sqe.dptr = pointer.dptr;
                    if pointer.is_sgl {
                        sqe.set_sgl();
                    }
                }
                Some(buf)
            }
        };
        let Some(slot) = self.slots.get_mut(index as usize) else {
            return Err((Refused::Full, buf));
        };
        self.free = slot.next;
        let cid = (slot.tag as u16).wrapping_add(GENERATION_ONE);
        slot.tag = u32::from(cid) | BUSY;
        slot.token = token;
        slot.deadline = 0;
        // A free slot has none: nothing is there to be dropped, which is not looked at.
        std::mem::forget(std::mem::replace(&mut slot.buf, buf));
        self.outstanding += 1;
        sqe.cid = cid;
        let words = sqe.to_words();
        if let Some(entry) = self.kept.as_mut().and_then(|kept| kept.get_mut(index as usize)) {
            *entry = Kept { words, serial: self.serial };
            self.serial += 1;
        }
        self.append(words);
        Ok(())
    }

    #[inline(always)]
    fn append(&mut self, words: [u64; 8]) {
        self.sq.write_words::<8>(self.tail as usize * SQE_BYTES, words);
        self.tail = wrap(self.tail + 1, self.sq_entries);
    }

    /// Submits an entry of [`unvme_spec::samsung_kv`] whose key travels in memory.
    #[inline(never)]
    pub(crate) fn submit_with_key(
        &mut self,
        mut sqe: Sqe,
        key: &[u8],
        payload: Option<Payload>,
        token: u64,
    ) -> Result<(), (Refused, Option<DmaBuf>)> {
        let Some(keys) = self.keys.as_ref().filter(|_| key.len() <= KEY_BYTES) else {
            return Err((Refused::NoKeyMemory, payload.map(|payload| payload.buf)));
        };
        if self.free != NONE {
            let place = self.free as usize * KEY_BYTES;
            // The doorbell publishes it, with the entry.
            keys.region().write(place, key);
            samsung_kv::set_key_prp(&mut sqe, [keys.iova() + place as u64, 0]);
        }
        self.submit_as(sqe, payload, token, DataPointers::Prp)
    }

    /// The data pointer of a command in slot `index`; `None` when there is no memory to describe it in.
    #[inline(always)]
    fn point(&mut self, index: u32, iova: u64, bytes: usize, kind: DataPointers) -> Option<DataPointer> {
        if kind == DataPointers::Sgl {
            return Some(DataPointer { dptr: dptr::sgl(iova, bytes as u32), is_sgl: true });
        }
        let skip = index as usize * self.list_bytes;
        let prp = dptr::prp(iova, bytes as u64, self.lists_iova + skip as u64);
        if prp.has_list {
            return self.point_far(index, prp, iova, bytes, kind);
        }
        Some(DataPointer { dptr: prp.dptr, is_sgl: false })
    }

    /// More than two pages: one SGL data block where the queue may use it, a PRP list otherwise.
    #[inline(never)]
    fn point_far(
        &mut self,
        index: u32,
        prp: dptr::Prp,
        iova: u64,
        bytes: usize,
        kind: DataPointers,
    ) -> Option<DataPointer> {
        if kind == DataPointers::Auto {
            return Some(DataPointer { dptr: dptr::sgl(iova, bytes as u32), is_sgl: true });
        }
        let list_bytes = dptr::list_pages(bytes as u64) as usize * PAGE_BYTES;
        let (lists, skip, list_iova) = if list_bytes <= self.list_bytes {
            (self.lists.clone(), index as usize * self.list_bytes, prp.dptr[1])
        } else {
            let memory = self.far_list(index, list_bytes)?;
            (memory.region().clone(), 0, memory.iova())
        };
        for (i, word) in dptr::list(iova, bytes as u64, list_iova).enumerate() {
            // Relaxed: the doorbell publishes it, with the entry.
            lists.store_u64(skip + i * prp::ENTRY_BYTES, word, Ordering::Relaxed);
        }
        Some(DataPointer { dptr: [prp.dptr[0], list_iova], is_sgl: false })
    }

    /// Memory for the PRP list of a command in slot `index`, which is free. Lists of commands that have ended
    /// go back to the pool here: completions, which are many, do not look for them.
    fn far_list(&mut self, index: u32, bytes: usize) -> Option<&DmaBuf> {
        let slots = &self.slots;
        self.far_lists.retain(|list| {
            list.index != index && slots.get(list.index as usize).is_some_and(|slot| slot.tag & BUSY != 0)
        });
        let memory = self.pool.alloc(bytes).ok()?;
        self.far_lists.push(FarList { index, memory });
        self.far_lists.last().map(|list| &list.memory)
    }

    /// Tells the device about the entries written since the last call.
    #[inline(always)]
    pub(crate) fn ring(&mut self) -> Result<(), BusError> {
        if self.tail == self.tail_rung {
            return Ok(());
        }
        self.tail_rung = self.tail;
        self.sq_doorbell.ring(self.tail)
    }

    /// True when the device has not been told of any of the commands that are outstanding.
    #[inline]
    pub(crate) fn is_all_unseen(&self) -> bool {
        let around = if self.tail < self.tail_rung { self.sq_entries } else { 0 };
        let unseen = self.tail + around - self.tail_rung;
        unseen > 0 && unseen == self.outstanding
    }

    /// True when more completions have been taken than the slack, and [`Pair::acknowledge`] is due.
    ///
    /// Until then every outstanding command has a place: what is outstanding and what is not acknowledged are
    /// together at most the entries less one. The device never finds the completion queue full.
    #[inline]
    pub(crate) fn owes_head(&self) -> bool {
        // Never a whole round: nothing is submitted while completions are taken.
        let around = if self.head < self.head_rung { self.cq_entries } else { 0 };
        self.head + around - self.head_rung > self.cq_slack
    }

    /// Tells the device which completions have been taken.
    #[inline]
    pub(crate) fn acknowledge(&mut self) -> Result<(), BusError> {
        self.head_rung = self.head;
        self.cq_doorbell.ring(self.head)
    }

    /// True when a completion, or a command that a reset ended, can be taken.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        let high = self.cq.load_u64(self.head as usize * CQE_BYTES + 8, Ordering::Acquire);
        let entry: Cqe = zerocopy::transmute!([0, high]);
        entry.phase() == self.phase || self.ended != 0
    }

    /// Takes the next completion. An entry that belongs to no outstanding command stays where it is and is
    /// reported by [`Pair::violation`].
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<Completion> {
        if self.ended != 0 {
            return self.pop_ended();
        }
        self.pop_posted()
    }

    /// Takes the next completion the device has posted.
    #[inline(always)]
    fn pop_posted(&mut self) -> Option<Completion> {
        let offset = self.head as usize * CQE_BYTES;
        // Acquire: pairs with the device's Release store of the word that holds the phase tag; the other word
        // and the data were written before it.
        let [low, high] = self.cq.words::<2>(offset);
        let high = high.load(Ordering::Acquire);
        let tagged: Cqe = zerocopy::transmute!([0, high]);
        if tagged.phase() != self.phase {
            return None;
        }
        let low = low.load(Ordering::Relaxed);
        let entry: Cqe = zerocopy::transmute!([low, high]);
        let index = u32::from(entry.cid & INDEX_MASK);
        let slot = match self.slots.get_mut(index as usize) {
            Some(slot) if slot.tag == u32::from(entry.cid) | BUSY && entry.sq_id == self.qid => slot,
            _ => return self.violated(entry),
        };
        slot.tag = u32::from(entry.cid);
        slot.next = self.free;
        let (token, buf) = (slot.token, slot.buf.take());
        self.free = index;
        self.outstanding -= 1;
        self.head += 1;
        if self.head == self.cq_entries {
            self.head = 0;
            self.phase = !self.phase;
        }
        Some(Completion { token, status: entry.status(), result: entry.result(), buf })
    }

    #[cold]
    fn violated(&mut self, entry: Cqe) -> Option<Completion> {
        self.violation = Some(entry);
        None
    }

    #[cold]
    fn pop_ended(&mut self) -> Option<Completion> {
        if let Some(completion) = self.early.pop_front() {
            self.ended -= 1;
            self.outstanding -= 1;
            return Some(completion);
        }
        let index = self.slots.iter().position(|slot| slot.tag & ABORTED != 0)?;
        let slot = &mut self.slots[index];
        slot.tag &= !ABORTED;
        slot.next = self.free;
        self.free = index as u32;
        self.ended -= 1;
        self.outstanding -= 1;
        Some(Completion {
            token: slot.token,
            status: Status::ABORTED_BY_HOST,
            result: 0,
            buf: slot.buf.take(),
        })
    }

    /// True when [`Pair::violation`] has something to report.
    #[inline]
    pub(crate) fn is_violated(&self) -> bool {
        self.violation.is_some()
    }

    /// The completion that belonged to no outstanding command, if there was one.
    pub(crate) fn violation(&mut self) -> Option<Cqe> {
        self.violation.take()
    }

    /// Ends every outstanding command. With `stopped` the device is known not to touch memory any more and
    /// buffers go back with the completions; otherwise they are leaked, as memory that a device may still
    /// write is nobody else's.
    pub(crate) fn abort_all(&mut self, stopped: bool) {
        for slot in self.slots.iter_mut().filter(|slot| slot.tag & BUSY != 0) {
            slot.tag = slot.tag & !BUSY | ABORTED;
            self.ended += 1;
            if !stopped {
                std::mem::forget(slot.buf.take());
            }
        }
    }

    /// Empties both queues, for a device that has forgotten them. Commands that were ended keep their slots
    /// until they are popped.
    pub(crate) fn restart(&mut self) {
        self.cq.fill(0, self.cq_entries as usize * CQE_BYTES, 0);
        (self.tail, self.tail_rung, self.head, self.head_rung) = (0, 0, 0, 0);
        self.phase = true;
        self.violation = None;
    }

    /// For a device that has moved with all that was on its media, and forgotten its queues: keeps what it
    /// had completed, submits again what it has never seen and what may be executed twice, and ends the rest.
    pub(crate) fn move_over(&mut self) {
        while let Some(completion) = self.pop_posted() {
            self.early.push_back(completion);
            (self.ended, self.outstanding) = (self.ended + 1, self.outstanding + 1);
        }
        let mut unseen = Vec::new();
        while self.tail_rung != self.tail {
            let [first] = self.sq.words::<1>(self.tail_rung as usize * SQE_BYTES);
            // The identifier is in the upper half of the first dword.
            unseen.push((first.load(Ordering::Relaxed) >> 16) as u16);
            self.tail_rung = wrap(self.tail_rung + 1, self.sq_entries);
        }
        self.restart();
        let Some(kept) = &self.kept else { return };
        let mut again = Vec::new();
        for (slot, kept) in self.slots.iter_mut().zip(kept.iter()).filter(|(slot, _)| slot.tag & BUSY != 0) {
            let sqe: Sqe = zerocopy::transmute!(kept.words);
            if unseen.contains(&(slot.tag as u16)) || may_repeat(&sqe) {
                slot.deadline = 0;
                again.push(*kept);
            } else {
                slot.tag = slot.tag & !BUSY | ABORTED;
                self.ended += 1;
            }
        }
        // In the order of their submission, as the device saw them the first time.
        again.sort_unstable_by_key(|kept| kept.serial);
        for kept in again {
            self.append(kept.words);
        }
    }

    /// Exchanges the doorbells for those of a device that has moved.
    pub(crate) fn set_doorbells(&mut self, submission: Doorbell, completion: Doorbell) {
        (self.sq_doorbell, self.cq_doorbell) = (submission, completion);
    }

    /// Leaks the queues' memory: the device may still write it.
    pub(crate) fn quarantine(&mut self) {
        self.abort_all(false);
        std::mem::forget((self.memory.take(), self.keys.take(), std::mem::take(&mut self.far_lists)));
    }

    /// The commands the device has, each with its deadline, which starts at 0.
    pub(crate) fn deadlines(&mut self) -> impl Iterator<Item = (Cid, &mut u64)> {
        self.slots
            .iter_mut()
            .filter(|slot| slot.tag & BUSY != 0)
            .map(|slot| (Cid(slot.tag as u16), &mut slot.deadline))
    }
}

#[inline]
fn wrap(index: u32, entries: u32) -> u32 {
    if index == entries { 0 } else { index }
}
