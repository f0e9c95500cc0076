//! Configuration space of a shared controller: an NVMe function with MSI-X, and nothing else.

use unvme_bus::function::CONFIG_SPACE_BYTES;
use unvme_bus::{BusError, Function};

/// Vendor and device, and those of the subsystem: as the drive has them.
const IDENTIFIERS: usize = 0x00;
const SUBSYSTEM_IDENTIFIERS: usize = 0x2c;
const COMMAND: usize = 0x04;
/// Memory Space, Bus Master, Interrupt Disable.
const COMMAND_WRITABLE: [u8; 2] = [0x06, 0x04];
const STATUS: usize = 0x06;
const STATUS_CAPABILITIES: u8 = 1 << 4;
const CLASS: usize = 0x09;
/// Programming interface, sub-class and class: NVM Express I/O controller (PCIe Transport 3.1.1).
const CLASS_NVME: [u8; 3] = [0x02, 0x08, 0x01];
const BAR0: usize = 0x10;
/// 64-bit memory.
const BAR_64_BIT: u8 = 0x04;
const CAPABILITIES: usize = 0x34;

const MSI_X: usize = 0x40;
const CAPABILITY_MSI_X: u8 = 0x11;
/// Enable and function mask.
const MSI_X_WRITABLE: u8 = 0xc0;

/// The bytes, and which bits of them a host may change.
pub(super) struct ConfigSpace {
    bytes: Vec<u8>,
    writable: Vec<u8>,
}

impl ConfigSpace {
    /// For a function with `vectors` interrupts whose table is at `table` in BAR 0. Errors: those of reading
    /// the drive's identifiers.
    pub(super) fn new(
        drive: &dyn Function,
        vectors: u16,
        table: u32,
        pending: u32,
    ) -> Result<Self, BusError> {
        let mut space = Self { bytes: vec![0; CONFIG_SPACE_BYTES], writable: vec![0; CONFIG_SPACE_BYTES] };
        for at in [IDENTIFIERS, SUBSYSTEM_IDENTIFIERS] {
            let mut identifiers = [0; 4];
            drive.config_read(at, &mut identifiers)?;
            space.put(at, &identifiers);
        }
        space.allow(COMMAND, &COMMAND_WRITABLE);
        space.put(CLASS, &CLASS_NVME);
        space.put(BAR0, &[BAR_64_BIT]);
        if let Some(last) = vectors.checked_sub(1) {
            space.put(STATUS, &[STATUS_CAPABILITIES]);
            space.put(CAPABILITIES, &[MSI_X as u8]);
            let mut capability = [0; 12];
            capability[0] = CAPABILITY_MSI_X;
            capability[2..4].copy_from_slice(&last.to_le_bytes());
            // Bits 2:0 name the BAR, 0; the offsets are whole pages.
            capability[4..8].copy_from_slice(&table.to_le_bytes());
            capability[8..12].copy_from_slice(&pending.to_le_bytes());
            space.put(MSI_X, &capability);
            space.allow(MSI_X.saturating_add(3), &[MSI_X_WRITABLE]);
        }
        Ok(space)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        for (byte, &value) in self.bytes.iter_mut().skip(at).zip(bytes) {
            *byte = value;
        }
    }

    fn allow(&mut self, at: usize, mask: &[u8]) {
        for (byte, &value) in self.writable.iter_mut().skip(at).zip(mask) {
            *byte = value;
        }
    }

    /// Errors: [`BusError::OutOfRange`].
    pub(super) fn read(&self, at: usize, out: &mut [u8]) -> Result<(), BusError> {
        check(at, out.len())?;
        for (out, &byte) in out.iter_mut().zip(self.bytes.iter().skip(at)) {
            *out = byte;
        }
        Ok(())
    }

    /// Errors: [`BusError::OutOfRange`].
    pub(super) fn write(&mut self, at: usize, data: &[u8]) -> Result<(), BusError> {
        check(at, data.len())?;
        let places = self.bytes.iter_mut().zip(&self.writable).skip(at);
        for ((byte, mask), value) in places.zip(data) {
            *byte = *byte & !mask | value & mask;
        }
        Ok(())
    }
}

fn check(at: usize, length: usize) -> Result<(), BusError> {
    BusError::check_range("configuration space", at as u64, length, CONFIG_SPACE_BYTES as u64)
}
