//! Which of a program's memory the device reaches, and copies of all other.
// UNSAFETY: memory of a program is copied from and to.
#![allow(unsafe_code)]

use sdk::{Controller, DmaBuf, DmaParts};

use crate::memory;
use crate::queue::slots::Data;
use crate::queue::work::Verb;
use crate::result::{Code, Failure, Result};

/// Buffers of a piece of memory are found by where they begin, in steps of at least this.
const STEP_BYTES_MIN: usize = 512;
/// Most steps of a piece of memory.
const STEPS_MAX: usize = 1 << 16;
/// Data pointers are multiples of it (NVM Express Base 4.3.1).
const DWORD_BYTES: usize = 4;

/// Memory of `unvme_alloc()` that was seen before.
struct Known {
    start: usize,
    bytes: usize,
    /// `None`: the device cannot reach it.
    parts: Option<DmaParts>,
    step_shift: u32,
    /// A part for each step, once one was used: from there to the end.
    parked: Box<[Option<DmaBuf>]>,
}

impl Known {
    fn new(start: usize, bytes: usize, parts: Option<DmaParts>) -> Self {
        let step = (bytes / STEPS_MAX).next_power_of_two().max(STEP_BYTES_MIN);
        let steps = if parts.is_some() { bytes.div_ceil(step) } else { 0 };
        Self { start, bytes, parts, step_shift: step.ilog2(), parked: (0..steps).map(|_| None).collect() }
    }

    #[inline(always)]
    fn has(&self, address: usize, bytes: usize) -> bool {
        let offset = address.wrapping_sub(self.start);
        offset < self.bytes && bytes <= self.bytes - offset
    }

    /// The part from `address` to the end.
    #[inline(always)]
    fn take(&mut self, address: usize) -> Option<DmaBuf> {
        let offset = address - self.start;
        let place = self.parked.get_mut(offset >> self.step_shift)?;
        match place.take() {
            Some(buf) if buf.region().as_ptr() as usize == address => Some(buf),
            other => {
                *place = other;
                Some(self.parts.as_ref()?.part(offset, self.bytes - offset))
            }
        }
    }
}

/// What a queue knows of memory.
pub(super) struct Memory {
    controller: Controller,
    known: Vec<Known>,
    /// [`memory::freed`] when it was learnt.
    freed: u64,
    /// Buffers for copies, by the power of two of their size.
    spares: Vec<Vec<DmaBuf>>,
}

impl Memory {
    pub(super) fn new(controller: Controller) -> Self {
        Self { controller, known: Vec::new(), freed: memory::freed(), spares: Vec::new() }
    }

    /// A buffer for `bytes` bytes at `address`: the memory itself where the device reaches it, else one with
    /// a copy of what is to be written.
    pub(super) fn lend(&mut self, address: *mut u8, bytes: usize, verb: Verb) -> Result<(DmaBuf, Data)> {
        if let Some(buf) = self.part(address as usize, bytes) {
            return Ok((buf, Data { is_lent: true, ..Data::NONE }));
        }
        self.bounce(address, bytes, verb)
    }

    /// As [`Memory::lend`], for commands that move whole dwords: they would change what follows other values.
    #[inline]
    pub(super) fn lend_dwords(
        &mut self,
        address: *mut u8,
        bytes: usize,
        verb: Verb,
    ) -> Result<(DmaBuf, Data)> {
        if bytes.is_multiple_of(DWORD_BYTES) {
            return self.lend(address, bytes, verb);
        }
        self.bounce(address, bytes, verb)
    }

    /// The part of the program's memory, where the device reaches it.
    #[inline(always)]
    pub(super) fn part(&mut self, address: usize, bytes: usize) -> Option<DmaBuf> {
        if !address.is_multiple_of(DWORD_BYTES) {
            return None;
        }
        if memory::freed() != self.freed {
            self.forget();
        }
        if let Some(known) = self.known.iter_mut().find(|known| known.has(address, bytes)) {
            return known.take(address);
        }
        self.learn(address, bytes)
    }

    #[cold]
    fn forget(&mut self) {
        self.freed = memory::freed();
        self.known.clear();
    }

    #[inline(never)]
    fn learn(&mut self, address: usize, bytes: usize) -> Option<DmaBuf> {
        let (parts, region) = memory::around(address)?;
        let own = |parts: &DmaParts| parts.whole().pool() == self.controller.pool().id();
        let parts = parts.filter(own).or_else(|| self.controller.import(&region).ok().map(DmaParts::new));
        let whole = parts.as_ref().map_or(region.len(), |parts| parts.whole().len());
        let mut known = Known::new(region.as_ptr() as usize, whole, parts);
        let buf = if known.has(address, bytes) { known.take(address) } else { None };
        self.known.push(known);
        buf
    }

    /// Keeps a part for the next time.
    #[inline(always)]
    pub(super) fn park(&mut self, buf: DmaBuf) {
        let address = buf.region().as_ptr() as usize;
        if let Some(known) = self.known.iter_mut().find(|known| known.has(address, buf.len())) {
            let step = (address - known.start) >> known.step_shift;
            // Of memory that was freed meanwhile and is there again, it may be another's: a part that is not
            // to the end is no part of this.
            if address + buf.len() == known.start + known.bytes
                && let Some(place) = known.parked.get_mut(step)
            {
                *place = Some(buf);
            }
        }
    }

    #[inline(never)]
    fn bounce(&mut self, address: *mut u8, bytes: usize, verb: Verb) -> Result<(DmaBuf, Data)> {
        let mut buf = self.spare(bytes)?;
        let mut data = Data { copy_to: std::ptr::null_mut(), bytes, is_lent: false };
        if verb.reads() {
            data.copy_to = address;
        } else {
            // SAFETY: whoever submits the command promises so many bytes there, which nobody writes.
            buf.write(0, unsafe { std::slice::from_raw_parts(address, bytes) });
        }
        Ok((buf, data))
    }

    /// A buffer of at least so many bytes; what is in it is of no use.
    pub(super) fn spare(&mut self, bytes: usize) -> Result<DmaBuf> {
        let bytes = bytes.next_power_of_two().max(4096);
        match self.spares.get_mut(bytes.ilog2() as usize).and_then(Vec::pop) {
            Some(buf) => Ok(buf),
            None => self
                .controller
                .alloc(bytes)
                .map_err(|e| Failure::new(Code::HEAP_ALLOC_FAILURE, format!("a buffer for a copy: {e}"))),
        }
    }

    /// Puts a buffer of the queue's back, with a copy of its first bytes to where that is wanted.
    #[inline(never)]
    pub(super) fn take_bounce(&mut self, buf: DmaBuf, copy_to: *mut u8, bytes: usize) {
        if !copy_to.is_null() {
            // SAFETY: whoever submitted the command promised so many bytes there, which nobody uses.
            buf.read(0, unsafe { std::slice::from_raw_parts_mut(copy_to, bytes) });
        }
        let class = buf.len().ilog2() as usize;
        if self.spares.len() <= class {
            self.spares.resize_with(class + 1, Vec::new);
        }
        self.spares[class].push(buf);
    }
}
