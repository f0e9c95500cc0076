//! Bytes that have arrived and are not understood yet.

use std::io;

use unvme_bus::{Region, Room};

/// Room at first: an ICReq and a Connect fit, and most connections of a server that is tried out send no
/// more.
const BYTES_MIN: usize = 2 << 10;
/// Room once bursts fill it: the headers of several hundred commands, or 15 writes of 4 KiB.
const BYTES_MAX: usize = 64 << 10;
/// Room while much data is on its way that goes to its place without passing through here.
const BYTES_BESIDE_DATA: usize = 1 << 10;

/// A buffer that is filled at its end and used up from its start. Between bursts it is empty and begins at
/// its start again, so that a connection that receives little touches little memory.
#[derive(Debug)]
pub(super) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// Staging memory that what arrives first belongs to.
pub(super) struct Direct<'a> {
    pub(super) region: &'a Region,
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

impl Input {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; BYTES_MIN], start: 0, end: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether anything more can be received.
    pub(super) fn has_room(&self) -> bool {
        self.start > 0 || self.end < self.bytes.len()
    }

    /// What is here.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// The first bytes have been understood. Panics: when there are not that many.
    pub(super) fn take(&mut self, count: usize) {
        assert!(count <= self.bytes().len(), "{count} bytes taken of {}", self.bytes().len());
        self.start = self.start.saturating_add(count);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Has `from` receive, first into `direct`, then into this buffer: how many bytes went to the one, and
    /// how many altogether. `is_beside_data` when more data is to come that is better received elsewhere.
    pub(super) fn fill(
        &mut self,
        direct: Option<Direct<'_>>,
        is_beside_data: bool,
        from: impl FnOnce(&mut [Room<'_>]) -> io::Result<usize>,
    ) -> Result<(usize, usize), io::ErrorKind> {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end = self.end.saturating_sub(self.start);
            self.start = 0;
        }
        let room = self.bytes.get_mut(self.end..).unwrap_or_default();
        let most = if is_beside_data { room.len().min(BYTES_BESIDE_DATA) } else { room.len() };
        let room = room.get_mut(..most).unwrap_or_default();
        let first = direct.as_ref().map_or(0, |direct| direct.bytes);
        let received = match direct {
            Some(Direct { region, offset, bytes }) => {
                from(&mut [Room::Memory { region, offset, bytes }, Room::Bytes(room)])
            }
            None => from(&mut [Room::Bytes(room)]),
        };
        let received = received.map_err(|error| error.kind())?;
        let beyond = received.saturating_sub(first);
        assert!(beyond <= most, "{received} bytes received into {first} and {most}");
        self.end = self.end.saturating_add(beyond);
        Ok((received.saturating_sub(beyond), received))
    }

    /// After a burst that has filled it there is more room, if that can be paid for: the next one is received
    /// by fewer calls.
    pub(super) fn grow(&mut self, pay: impl FnOnce(usize) -> bool) {
        let bytes = self.bytes.len();
        if self.end == bytes && bytes < BYTES_MAX && pay(bytes.min(BYTES_MAX.saturating_sub(bytes))) {
            self.bytes.resize(bytes.saturating_mul(2).min(BYTES_MAX), 0);
        }
    }

    /// Receives and forgets.
    pub(super) fn discard(
        &mut self,
        from: impl FnOnce(&mut [Room<'_>]) -> io::Result<usize>,
    ) -> Result<usize, io::ErrorKind> {
        (self.start, self.end) = (0, 0);
        from(&mut [Room::Bytes(&mut self.bytes)]).map_err(|error| error.kind())
    }
}
