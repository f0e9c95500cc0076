//! Typed access to a function's BAR.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::{BusError, Function, Region};

/// Registers of one BAR.
#[derive(Clone)]
pub struct Registers {
    function: Arc<dyn Function>,
    bar: usize,
    windows: Vec<crate::Window>,
}

impl Registers {
    /// Registers in BAR `bar` of a function. Errors: [`BusError::Unsupported`] when the function has no such
    /// BAR.
    pub fn new(function: Arc<dyn Function>, bar: usize) -> Result<Self, BusError> {
        let layout = function.bar(bar)?.ok_or_else(|| {
            BusError::Unsupported(format!("the function has no BAR {bar}; its registers are expected there"))
        })?;
        Ok(Self { function, bar, windows: layout.windows })
    }

    /// Reads a 32-bit register at byte `offset`. Errors: as [`Function::bar_read`].
    pub fn read32(&self, offset: u64) -> Result<u32, BusError> {
        let mut bytes = [0; 4];
        self.function.bar_read(self.bar, offset, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Reads a 64-bit register at byte `offset`. Errors: as [`Function::bar_read`].
    pub fn read64(&self, offset: u64) -> Result<u64, BusError> {
        let mut bytes = [0; 8];
        self.function.bar_read(self.bar, offset, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Writes a 32-bit register at byte `offset`. Errors: as [`Function::bar_write`].
    pub fn write32(&self, offset: u64, value: u32) -> Result<(), BusError> {
        self.function.bar_write(self.bar, offset, &value.to_le_bytes())
    }

    /// Writes a 64-bit register at byte `offset`. Errors: as [`Function::bar_write`].
    pub fn write64(&self, offset: u64, value: u64) -> Result<(), BusError> {
        self.function.bar_write(self.bar, offset, &value.to_le_bytes())
    }

    /// True when the register at byte `offset` is memory of this process: reading it takes no message to
    /// another one.
    pub fn is_mapped(&self, offset: u64) -> bool {
        self.window(offset).is_some()
    }

    fn window(&self, offset: u64) -> Option<&crate::Window> {
        let end = offset.checked_add(4)?;
        self.windows.iter().find(|w| offset >= w.offset && end <= w.offset + w.region.len() as u64)
    }

    /// A doorbell at byte `offset`: a store into shared memory where the function offers that, a register
    /// write where it does not.
    pub fn doorbell(&self, offset: u64) -> Doorbell {
        match self.window(offset) {
            Some(w) => Doorbell::Mapped(w.region.slice((offset - w.offset) as usize, 4)),
            None => Doorbell::Register { registers: self.clone(), offset },
        }
    }
}

/// A register that is only ever written, to say that a queue has moved.
#[derive(Clone)]
pub enum Doorbell {
    /// Four bytes of memory the device reads.
    Mapped(Region),
    /// A register write per ring.
    Register {
        /// Where the register is.
        registers: Registers,
        /// Byte offset in the BAR.
        offset: u64,
    },
}

impl Doorbell {
    /// Publishes everything written before to the device, then the new queue index. Errors: an error of the
    /// connection; a mapped doorbell cannot fail.
    #[inline(always)]
    pub fn ring(&self, value: u32) -> Result<(), BusError> {
        match self {
            // Release: pairs with the device's Acquire load of the doorbell; the entries are visible before
            // the index. The same store suffices for a register of real hardware on x86-64: the mapping is
            // uncached, stores to memory leave the processor in program order (it is coherent for devices,
            // and what was streamed past the caches was fenced), and an uncached store waits for those before
            // it. Other processors would need a barrier for devices.
            Self::Mapped(memory) => {
                memory.store_u32(0, value, Ordering::Release);
                Ok(())
            }
            Self::Register { registers, offset } => write_register(registers, *offset, value),
        }
    }
}

/// Out of line: a message to another process costs more than the call.
#[inline(never)]
fn write_register(registers: &Registers, offset: u64, value: u32) -> Result<(), BusError> {
    registers.write32(offset, value)
}
