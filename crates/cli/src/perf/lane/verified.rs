//! A lane that knows what it has written.

use std::ops::Range;

use unvme::{DmaBuf, Status};

use super::{Generator, Slot};
use crate::perf::data::{self, Verdict};
use crate::perf::ledger::{Ledger, expected};

impl Generator<'_> {
    /// Makes what a slot writes.
    pub(super) fn stamp(&mut self, index: u32, buf: &mut DmaBuf, unit: u64, generation: u8) {
        let lba = self.unit.range(unit).start.0;
        data::fill(&mut self.scratch, self.unit.block_bytes as usize, lba, generation);
        match self.split.get_mut(index as usize) {
            None => buf.write(0, &self.scratch),
            Some(parts) => {
                let chunks = self.scratch.chunks(self.unit.part_bytes(0));
                parts.buffers(buf).zip(chunks).for_each(|(buf, chunk)| buf.write(0, chunk));
            }
        }
    }

    /// What was read, in one piece.
    fn gather(&mut self, index: u32, buf: &mut DmaBuf) {
        match self.split.get_mut(index as usize) {
            None => buf.read(0, &mut self.scratch),
            Some(parts) => {
                let chunks = self.scratch.chunks_mut(self.unit.part_bytes(0));
                parts.buffers(buf).zip(chunks).for_each(|(buf, chunk)| buf.read(0, chunk));
            }
        }
    }

    /// Checks what was read, and enters what was written.
    pub(super) fn verify(
        &mut self,
        ledger: &Ledger,
        (index, slot): (u32, Slot),
        status: Status,
        buf: &mut DmaBuf,
    ) {
        if !status.is_success() {
            // A write that failed may have happened or not. What a read did not return is as it was.
            return ledger.release(slot.unit, if slot.read { slot.generation } else { 0 });
        }
        if slot.read {
            self.gather(index, buf);
            let lba = self.unit.range(slot.unit).start.0;
            let found =
                data::check(&self.scratch, self.unit.block_bytes as usize, lba, expected(slot.generation));
            match found {
                Ok(Verdict::Right) => {}
                Ok(Verdict::Unjudged) => self.counters.unjudged += 1,
                Err(mismatch) => self.counters.miscompared(|| mismatch.to_string()),
            }
        }
        ledger.release(slot.unit, slot.generation);
    }
}

/// A unit nobody is at, `wanted` if possible. A lane has more units than slots, so there is one.
pub(super) fn claim(ledger: &Ledger, wanted: u64, units: &Range<u64>) -> (u64, u8) {
    ledger.claim_from(wanted, units).unwrap_or_else(|| unreachable!("more commands than units"))
}
