//! The flash of the simulator: counters, and what a model of time has to know.

use unvme_flash::ftl::{Nand, Opened, Origin, ProgramFailure};
use unvme_flash::timing::{Cause, FlashOp, OpList};

/// Flash without data. With `NOTES` each operation is noted for the model of time.
#[derive(Debug)]
pub(super) struct Flash<const NOTES: bool> {
    /// Pages programmed.
    pub(super) programs: u64,
    /// Units erased.
    pub(super) erases: u64,
    /// Units that are erased and not open.
    pub(super) free_units: u32,
    pub(super) notes: OpList,
}

impl<const NOTES: bool> Flash<NOTES> {
    pub(super) fn new(units: u32) -> Self {
        Self { programs: 0, erases: 0, free_units: units, notes: OpList::new(NOTES) }
    }
}

impl<const NOTES: bool> Nand for Flash<NOTES> {
    fn open(&mut self, _opened: Opened) {
        self.free_units -= 1;
    }

    #[inline]
    fn program(&mut self, ppn: u32, _lpn: u32, origin: Origin) -> Result<(), ProgramFailure> {
        self.programs += 1;
        if NOTES {
            let cause = match origin {
                Origin::Host => Cause::Host,
                Origin::Reclaim { from } => {
                    self.notes.note(FlashOp::Read { ppn: from }, Cause::Reclaim);
                    Cause::Reclaim
                }
            };
            self.notes.note(FlashOp::Program { ppn }, cause);
        }
        Ok(())
    }

    fn close(&mut self, _unit: u32, _written: u32) {}

    fn erase(&mut self, unit: u32) {
        self.erases += 1;
        self.free_units += 1;
        if NOTES {
            self.notes.note(FlashOp::Erase { unit }, Cause::Reclaim);
        }
    }
}
