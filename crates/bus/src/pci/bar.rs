//! A BAR of a function of this machine: what can be mapped is, the rest goes through a file.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::mem::PAGE_BYTES;
use crate::{BarLayout, BusError, Region, Window};

/// Most bytes of a BAR that are mapped in one piece. Registers, and doorbells of any number of queues, are
/// well within the first of these; a BAR that is larger holds memory, for which nobody asks here.
const WINDOW_BYTES_MAX: u64 = Region::DEVICE_BYTES_MAX as u64;

#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) layout: BarLayout,
    file: Arc<OwnedFd>,
    /// Offset of the BAR's first byte in `file`.
    base: u64,
    /// `file` can be read and written outside windows too.
    is_readable: bool,
}

/// Where a BAR is and what of it can be mapped.
pub(crate) struct BarSource {
    pub(crate) file: Arc<OwnedFd>,
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    /// Offset and length in ascending order, within the BAR.
    pub(crate) mappable: Vec<(u64, u64)>,
    /// `file` can be read and written outside windows too.
    pub(crate) is_readable: bool,
}

impl Bar {
    /// Maps what can be mapped. `gone` is set when an access finds that the device is gone. Errors:
    /// [`BusError::Protocol`] for parts that are not within the BAR, [`BusError::Os`].
    pub(crate) fn map(source: BarSource, gone: &Arc<AtomicBool>) -> Result<Self, BusError> {
        let BarSource { file, base, bytes, mappable, is_readable } = source;
        let page = PAGE_BYTES as u64;
        let mut windows = Vec::with_capacity(mappable.len());
        let mut end = 0;
        for (offset, length) in mappable {
            if offset < end || offset.checked_add(length).is_none_or(|end| end > bytes) {
                return Err(BusError::Protocol(format!(
                    "the part {offset:#x}+{length:#x} of a BAR of {bytes:#x} bytes is not where it can be"
                )));
            }
            end = offset + length;
            let length = length.min(WINDOW_BYTES_MAX) / page * page;
            if length == 0 || !offset.is_multiple_of(page) {
                continue;
            }
            let at = base.checked_add(offset).ok_or_else(|| {
                BusError::Protocol(format!("a BAR at offset {base:#x} of its file reaches beyond its end"))
            })?;
            let region = Region::device(&file, at, length as usize, gone)?;
            windows.push(Window { offset, region });
        }
        Ok(Self { layout: BarLayout { bytes, windows }, file, base, is_readable })
    }

    /// The first register, if it is mapped: read to see whether the device is there.
    pub(crate) fn first_word(&self) -> Option<u32> {
        let window = self.layout.windows.first()?;
        Some(window.region.load_u32(0, Ordering::Relaxed))
    }

    /// Takes all mappings away; accesses to windows find all ones from now on.
    pub(crate) fn withdraw(&self) {
        for window in &self.layout.windows {
            window.region.withdraw();
        }
    }

    /// Reads registers: in the widest aligned accesses of up to 32 bits, in ascending order. A 64-bit
    /// register is two of 32 bits for any controller (some take nothing else), and registers that can change
    /// between the two are not that wide. Errors: [`BusError::OutOfRange`], [`BusError::Os`],
    /// [`BusError::Unsupported`] outside windows where nothing else reads.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BusError> {
        self.check(offset, out.len())?;
        let mut at = offset;
        let mut rest = out;
        while !rest.is_empty() {
            // The bytes of the 32-bit word that holds the next byte.
            let skip = (at % 4) as usize;
            let (now, later) = rest.split_at_mut(rest.len().min(4 - skip));
            match self.word(at - skip as u64) {
                Some(word) => {
                    let bytes = word.load_u32(0, Ordering::Acquire).to_le_bytes();
                    now.copy_from_slice(&bytes[skip..skip + now.len()]);
                }
                None => self.read_file(at, now)?,
            }
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Writes registers, as [`Bar::read`] reads them. Errors: as [`Bar::read`].
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.check(offset, data.len())?;
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let skip = (at % 4) as usize;
            let (now, later) = rest.split_at(rest.len().min(4 - skip));
            match (self.word(at - skip as u64), <[u8; 4]>::try_from(now)) {
                // Release: what was written to memory before is there before the device acts on this.
                (Some(word), Ok(bytes)) => word.store_u32(0, u32::from_le_bytes(bytes), Ordering::Release),
                // Less than a word: reading and writing back the rest of it would be an access nobody asked
                // for.
                _ => self.write_file(at, now)?,
            }
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// The mapped word at `offset`, a multiple of 4.
    fn word(&self, offset: u64) -> Option<Region> {
        let window = self.layout.windows.iter().find(|window| {
            offset.checked_sub(window.offset).is_some_and(|skip| skip < window.region.len() as u64)
        })?;
        Some(window.region.slice((offset - window.offset) as usize, 4))
    }

    fn read_file(&self, offset: u64, out: &mut [u8]) -> Result<(), BusError> {
        self.check_file(offset)?;
        read_exactly(&self.file, self.base + offset, out)
    }

    fn write_file(&self, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.check_file(offset)?;
        write_exactly(&self.file, self.base + offset, data)
    }

    fn check_file(&self, offset: u64) -> Result<(), BusError> {
        match self.is_readable {
            true => Ok(()),
            false => Err(BusError::Unsupported(format!(
                "the register at {offset:#x} of a BAR can only be reached in aligned accesses of 32 bits to the part of it that is mapped"
            ))),
        }
    }

    fn check(&self, offset: u64, bytes: usize) -> Result<(), BusError> {
        BusError::check_range("a BAR", offset, bytes, self.layout.bytes)
    }
}

/// Fills `out` from `offset` of a file of registers.
pub(crate) fn read_exactly(file: &OwnedFd, offset: u64, out: &mut [u8]) -> Result<(), BusError> {
    let bytes = out.len();
    let what = || format!("read {bytes} bytes of a function's registers at {offset:#x}");
    match rustix::io::pread(file, out, offset) {
        Ok(count) if count == bytes => Ok(()),
        Ok(_) => Err(BusError::os(what(), std::io::Error::from(std::io::ErrorKind::UnexpectedEof))),
        Err(e) => Err(BusError::os(what(), e)),
    }
}

/// Writes all of `data` at `offset` of a file of registers.
pub(crate) fn write_exactly(file: &OwnedFd, offset: u64, data: &[u8]) -> Result<(), BusError> {
    let what = || format!("write {} bytes of a function's registers at {offset:#x}", data.len());
    match rustix::io::pwrite(file, data, offset) {
        Ok(count) if count == data.len() => Ok(()),
        Ok(_) => Err(BusError::os(what(), std::io::Error::from(std::io::ErrorKind::WriteZero))),
        Err(e) => Err(BusError::os(what(), e)),
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    /// A file of three pages, each byte its number modulo 251, of which the middle page is the BAR's first
    /// and can be mapped, and the last is its second and cannot.
    fn bar(is_readable: bool) -> Bar {
        let fd = memfd_create("bar", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&fd, 3 * 4096).expect("its size");
        let bytes: Vec<u8> = (0..3 * 4096).map(|n| (n % 251) as u8).collect();
        write_exactly(&fd, 0, &bytes).expect("written");
        let source =
            BarSource { file: Arc::new(fd), base: 4096, bytes: 8192, mappable: vec![(0, 4096)], is_readable };
        Bar::map(source, &Arc::default()).expect("mapped")
    }

    #[test]
    fn registers_are_read_and_written_across_the_end_of_a_window() {
        let bar = bar(true);
        let mut out = [0; 12];
        bar.read(4090, &mut out).expect("read");
        // 4096 + 4090 = 8186 = 32 * 251 + 154.
        assert_eq!(out, [154, 155, 156, 157, 158, 159, 160, 161, 162, 163, 164, 165]);
        bar.write(4092, &[1, 2, 3, 4, 5, 6, 7, 8]).expect("written");
        bar.write(4089, &[9, 10, 11]).expect("written");
        let mut out = [0; 12];
        bar.read(4089, &mut out).expect("read");
        assert_eq!(out, [9, 10, 11, 1, 2, 3, 4, 5, 6, 7, 8, 164]);
    }

    #[test]
    fn what_is_not_mapped_and_cannot_be_read_either_is_an_error() {
        let bar = bar(false);
        let mut out = [0; 4];
        bar.read(8, &mut out).expect("the window");
        assert!(matches!(bar.read(4096, &mut out), Err(BusError::Unsupported(_))));
        assert!(matches!(bar.write(1, &[0]), Err(BusError::Unsupported(_))));
    }

    #[test]
    fn accesses_beyond_the_bar_are_out_of_range() {
        let bar = bar(true);
        for offset in [8189, 8192, u64::MAX - 1, u64::MAX] {
            assert!(matches!(bar.read(offset, &mut [0; 4]), Err(BusError::OutOfRange { .. })), "{offset}");
            assert!(matches!(bar.write(offset, &[0; 4]), Err(BusError::OutOfRange { .. })), "{offset}");
        }
    }

    #[test]
    fn parts_outside_the_bar_or_in_the_wrong_order_are_refused() {
        let fd = Arc::new(memfd_create("bar", MemfdFlags::CLOEXEC).expect("a memfd"));
        for mappable in [
            vec![(0, 8193)],
            vec![(u64::MAX, 4096)],
            vec![(4096, 4096), (0, 4096)],
            vec![(0, 4097), (4096, 1)],
        ] {
            let shown = format!("{mappable:?}");
            let source =
                BarSource { file: Arc::clone(&fd), base: 0, bytes: 8192, mappable, is_readable: true };
            assert!(matches!(Bar::map(source, &Arc::default()), Err(BusError::Protocol(_))), "{shown}");
        }
    }
}
