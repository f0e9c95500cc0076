//! When a command is answered: what the timing model says, and what else waits for a time.

use unvme_bus::{Clock, lock};
use unvme_flash::PAGE_BYTES;
use unvme_flash::timing::{Cause, Command, CommandKind, FlashOp};
use unvme_spec::command::Access;
use unvme_spec::{Sqe, Status, nvm};

use crate::Ssd;
use crate::queue::SubmissionQueue;

impl Ssd {
    /// Earliest time at which the device has something to do for any of its controllers though no doorbell is
    /// rung: a completion that is held, room for a command that waits for some, an interrupt, a reclaim unit
    /// that will have been open for too long. `None` when there is no such time. Times are those of the clock
    /// that [`Ssd::advance`] is given; nobody may be at work in it meanwhile, or the answer is of a moment
    /// ago.
    ///
    /// On a virtual clock a program that waits for the device can jump there.
    ///
    /// [`Ssd::advance`]: unvme_bus::Function::advance
    pub fn next_event(&self) -> Option<u64> {
        let controllers = self.subsystem.controllers();
        let held = controllers.iter().filter_map(|controller| controller.queues.next_due(&controller.hot));
        let room = controllers.iter().filter_map(|controller| controller.arbiter.next_due());
        held.chain(room).chain(self.fdp.next_due()).min()
    }

    /// When a command that has been executed is to be answered, `delay_ns` later than the device would;
    /// `None` for at once. Its flash operations are forgotten.
    #[cold]
    pub(crate) fn hold_until(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        status: Status,
        delay_ns: u64,
    ) -> Option<u64> {
        let now = sq.turn_began;
        let Some(timing) = &self.subsystem.timing else {
            return (delay_ns > 0).then(|| now.saturating_add(delay_ns));
        };
        let for_pairs = self.is_for_pairs(&sq.namespaces, sqe);
        let counted = sq.counters.bytes_read + sq.counters.bytes_written;
        let moved = sq.moved.since(counted, sq.kv.turn_bytes);
        let facts = sq.namespaces.facts(for_pairs, sqe);
        let kind = match facts.map(|facts| facts.access) {
            Some(Access::Read) => CommandKind::Read,
            Some(Access::Write) => CommandKind::Write,
            Some(Access::Flush) => CommandKind::Flush,
            Some(Access::Other) | None => CommandKind::Other,
        };
        let bytes = match facts {
            // Ranges are data that nothing counts.
            Some(facts) if !for_pairs && facts.opcode == nvm::opcode::DATASET_MANAGEMENT => {
                facts.length.bytes(sqe, 0).unwrap_or_default()
            }
            _ => moved,
        };
        self.collect_charges(sq);
        if status.is_success() && sq.ops.ops().is_empty() {
            // Pairs lie in a log; what they program is charged for where there is a translation layer.
            let notes_pairs = kind == CommandKind::Read || self.media.flash().is_none();
            match for_pairs {
                true if notes_pairs => self.note_pairs(sq, sqe, kind, bytes),
                false if self.media.is_null() => note_blocks(sq, sqe),
                _ => {}
            }
        }
        let durable = self.hot.is_write_through() || facts.is_some_and(|facts| facts.forces_unit_access(sqe));
        let command = Command { kind, bytes, durable, ops: sq.ops.ops() };
        let due = lock(timing).schedule(now, &command);
        if self.arbiter.is_on() {
            self.arbiter.begun(due, sq.ops.ops().len());
        }
        sq.ops.clear();
        Some(due.saturating_add(delay_ns))
    }

    /// What the device has done on its own account takes its time, too, though nobody waits for it.
    #[inline]
    pub(crate) fn time_background(&self, sq: &mut SubmissionQueue, clock: &Clock) {
        if sq.ops.is_on() {
            self.time_noted(sq, clock);
        }
    }

    #[cold]
    fn time_noted(&self, sq: &mut SubmissionQueue, clock: &Clock) {
        self.collect_charges(sq);
        if sq.ops.ops().is_empty() {
            return;
        }
        if let Some(timing) = &self.subsystem.timing {
            let kind = CommandKind::Background;
            let command = Command { kind, bytes: 0, durable: false, ops: sq.ops.ops() };
            lock(timing).schedule(clock.now(), &command);
        }
        sq.ops.clear();
    }

    /// What the translation layer was charged with for pairs.
    fn collect_charges(&self, sq: &mut SubmissionQueue) {
        if sq.namespaces.first_key_value().is_some()
            && let Some(flash) = self.media.flash()
        {
            flash.take_charged(&mut sq.ops);
        }
    }

    /// A new device: what only the model wants to know is noted from now on.
    pub(crate) fn start_timing(&self) {
        if self.subsystem.timing.is_some()
            && let Some(flash) = self.media.flash()
        {
            flash.note_charges();
            self.time_units();
        }
    }

    /// The translation layer's reclaim units may have another size than before.
    pub(crate) fn time_units(&self) {
        if let (Some(timing), Some(flash)) = (&self.subsystem.timing, self.media.flash()) {
            let unit_pages = u32::try_from(flash.geometry().unit_bytes / PAGE_BYTES).unwrap_or(u32::MAX);
            if let Err(error) = lock(timing).set_unit_pages(unit_pages) {
                tracing::error!(%error, "the timing model keeps the units it has");
            }
        }
    }

    /// Another host may come with another clock: nothing is under way, and time begins anew, unless other
    /// controllers are enabled.
    pub(crate) fn restart_timing(&self) {
        if let Some(timing) = &self.subsystem.timing
            && self.is_alone()
        {
            lock(timing).restart();
        }
    }

    /// Without a translation layer a pair is read where it lies, and each page's worth of what is stored is a
    /// program there.
    fn note_pairs(&self, sq: &mut SubmissionQueue, sqe: &Sqe, kind: CommandKind, bytes: u64) {
        let place = self.place_of_pair(sq, sqe);
        let first = place.map_or(sq.moved.pages, |place| place / PAGE_BYTES);
        let pages = match kind {
            CommandKind::Read => (place.unwrap_or_default() % PAGE_BYTES + bytes).div_ceil(PAGE_BYTES),
            CommandKind::Write => {
                let stored = sq.moved.stored + bytes;
                sq.moved.stored = stored % PAGE_BYTES;
                stored / PAGE_BYTES
            }
            _ => return,
        };
        sq.moved.pages += pages;
        for page in first..first + pages {
            // Places are striped by their low bits.
            let ppn = page as u32;
            let op = if kind == CommandKind::Read { FlashOp::Read { ppn } } else { FlashOp::Program { ppn } };
            sq.ops.note(op, Cause::Host);
        }
    }
}

/// Media that keeps nothing moves no pages: they are those that would be moved.
fn note_blocks(sq: &mut SubmissionQueue, sqe: &Sqe) {
    let SubmissionQueue { namespaces, ops, .. } = sq;
    let (range, is_read) = match nvm::Command::parse(sqe) {
        nvm::Command::Read(range, _) | nvm::Command::Compare(range, _) => (range, true),
        nvm::Command::Write(range, _) => (range, false),
        _ => return,
    };
    let Ok(namespace) = namespaces.blocks(sqe.nsid) else { return };
    let bytes = usize::try_from(namespace.bytes(range.blocks.into())).unwrap_or_default();
    // It has been executed: all of it is there.
    let _ = namespace.for_each_extent(namespace.bytes(range.start.0), bytes, |extent, _| {
        let end = (extent.offset + extent.bytes as u64).div_ceil(PAGE_BYTES);
        for page in extent.offset / PAGE_BYTES..end {
            let ppn = page as u32;
            ops.note(if is_read { FlashOp::Read { ppn } } else { FlashOp::Program { ppn } }, Cause::Host);
        }
        Ok(())
    });
}
