//! A buffer of a slab.

use unvme_bus::{DmaBuf, Region};
use unvme_driver::Payload;

/// A buffer of a [`crate::Slab`], owned by whoever holds it. Goes back to the slab when dropped.
///
/// It travels with a command as the [`DmaBuf`] it is, and comes back with the completion;
/// [`crate::Slab::adopt`] makes it a buffer of the slab again. Dropped on the way, it is back in the slab all
/// the same.
#[derive(Debug)]
pub struct SlabBuf(DmaBuf);

impl SlabBuf {
    #[inline]
    pub(super) fn new(buf: DmaBuf) -> Self {
        Self(buf)
    }

    /// Length in bytes, as it was asked for.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // An empty buffer is not a case anyone asks about.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Bytes of memory it takes of the slab.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.0.region().len()
    }

    /// Address the device knows it by.
    #[inline]
    pub fn iova(&self) -> u64 {
        self.0.iova()
    }

    /// The memory, [`SlabBuf::capacity`] bytes.
    #[inline]
    pub fn region(&self) -> &Region {
        self.0.region()
    }

    /// Copies bytes out, from `offset` on, to fill `out`.
    ///
    /// # Panics
    /// When the range is not within the buffer.
    #[inline]
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.0.read(offset, out);
    }

    /// Copies `data` in at `offset`.
    ///
    /// # Panics
    /// When the range is not within the buffer.
    #[inline]
    pub fn write(&mut self, offset: usize, data: &[u8]) {
        self.0.write(offset, data);
    }

    /// The buffer for a command that transfers its first `bytes`.
    pub fn into_payload(self, bytes: usize) -> Payload {
        Payload { buf: self.0, bytes }
    }

    /// The buffer for a command.
    #[inline]
    pub fn into_dma(self) -> DmaBuf {
        self.0
    }
}

impl From<SlabBuf> for DmaBuf {
    fn from(buf: SlabBuf) -> Self {
        buf.0
    }
}
