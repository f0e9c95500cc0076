//! Moving bytes between host memory and a buffer of our own.
//!
//! Nothing is checked or decided on host memory itself, which the host may change at any time: bytes pass
//! through a buffer that stays in the nearest cache.

use unvme_bus::Region;

use super::HostData;

/// A position in a command's host memory.
pub(super) struct HostCursor<'a> {
    data: HostData<'a>,
    piece: usize,
    within: usize,
}

impl<'a> HostCursor<'a> {
    pub(super) fn new(data: HostData<'a>) -> Self {
        Self { data, piece: 0, within: 0 }
    }

    /// Region and offset of the next `bytes`, when they lie in one piece; they count as read.
    #[inline]
    pub(super) fn take_piece(&mut self, bytes: usize) -> Option<(&'a Region, usize)> {
        let place = *self.data.pieces.get(self.piece).filter(|place| place.bytes - self.within >= bytes)?;
        let at = place.offset + self.within;
        self.advance(place.bytes, bytes);
        Some((self.data.host.region(place), at))
    }

    /// Copies the next bytes of host memory to `out`.
    #[inline]
    pub(super) fn read(&mut self, out: &mut [u8]) {
        let mut done = 0;
        while done < out.len() {
            let Some(place) = self.data.pieces.get(self.piece) else { return out[done..].fill(0) };
            let bytes = (place.bytes - self.within).min(out.len() - done);
            let region = self.data.host.region(*place);
            region.read(place.offset + self.within, &mut out[done..done + bytes]);
            self.advance(place.bytes, bytes);
            done += bytes;
        }
    }

    /// Copies `bytes` to the next bytes of host memory.
    #[inline]
    pub(super) fn write(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some(place) = self.data.pieces.get(self.piece) else { return };
            let (now, later) = rest.split_at(rest.len().min(place.bytes - self.within));
            self.data.host.region(*place).write(place.offset + self.within, now);
            self.advance(place.bytes, now.len());
            rest = later;
        }
    }

    #[inline]
    fn advance(&mut self, piece_bytes: usize, bytes: usize) {
        self.within += bytes;
        if self.within == piece_bytes {
            self.piece += 1;
            self.within = 0;
        }
    }
}
