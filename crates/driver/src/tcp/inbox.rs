//! What arrives: headers and short data by way of a bounce buffer, long data straight to where it belongs.
//!
//! A burst of short data cannot be scattered by one call, as nobody knows the order it comes in: it is taken
//! whole and copied once more, within the cache. Where a call finds the connection amid data, the rest of
//! that goes straight to its buffer; and while long data is expected no more is taken with a header than a
//! header, so that nearly all of it does.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;

use unvme_bus::socket::Room;
use unvme_fabric::Digest;
use unvme_spec::command::Direction;
use unvme_spec::tcp::fatal_error;
use zerocopy::FromBytes;

use super::pdu::{self, Agreement, Fault, HEAD_BYTES_MAX, Head};
use super::slots::{LONG_BYTES, Slots};

/// Bytes that one call takes at most besides long data. As much as stays in a second-level cache.
const BOUNCE_BYTES: usize = 128 << 10;

/// Data that is arriving.
struct Arriving {
    index: u16,
    /// Where the next byte belongs in the command's buffer.
    offset: u32,
    left: u32,
    digest: Option<Digest>,
    is_success: bool,
}

/// What has arrived, for [`super::link`] to act upon.
pub(super) enum Arrival {
    /// A header that is no data.
    Head(Head),
    /// All data of a PDU is where it belongs; with `is_success` it was the command's last and all went well.
    Data { index: u16, is_success: bool, is_intact: bool },
}

/// How a call went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is the end of the stream.
    Nothing,
    /// Less than there was room for: there was no more.
    Some,
    /// As much as there was room for.
    All,
}

impl Taken {
    fn of(received: usize, room: usize) -> Self {
        match received {
            0 => Self::Nothing,
            _ if received < room => Self::Some,
            _ => Self::All,
        }
    }
}

pub(super) struct Inbox {
    bounce: Box<[u8]>,
    /// What is in it: from here...
    start: usize,
    /// ...to here.
    end: usize,
    arriving: Option<Arriving>,
    pub(super) agreed: Agreement,
}

impl Inbox {
    pub(super) fn new(agreed: Agreement) -> Self {
        Self { bounce: vec![0; BOUNCE_BYTES].into_boxed_slice(), start: 0, end: 0, arriving: None, agreed }
    }

    /// Forgets what was arriving, for a new connection.
    pub(super) fn clear(&mut self, agreed: Agreement) {
        (self.start, self.end) = (0, 0);
        self.arriving = None;
        self.agreed = agreed;
    }

    /// The header that is being looked at, for a Terminate Request.
    pub(super) fn wrong(&self) -> &[u8] {
        let bytes = self.bounce.get(self.start..self.end).unwrap_or_default();
        // Its own length says how much of it there is.
        bytes.get(..bytes.get(2).map_or(0, |hlen| usize::from(*hlen))).unwrap_or(bytes)
    }

    /// Has `from` fill the rooms there are, once; it is as [`unvme_fabric::Stream::receive`]. Errors:
    /// [`io::ErrorKind::WouldBlock`], or the connection is broken.
    pub(super) fn receive(
        &mut self,
        slots: &Slots,
        from: impl FnOnce(&mut [Room<'_>]) -> io::Result<usize>,
    ) -> io::Result<Taken> {
        self.make_room();
        let most = if self.is_long(slots) { HEAD_BYTES_MAX } else { BOUNCE_BYTES };
        let Some(free) = self.bounce.get_mut(self.end..) else { return Ok(Taken::All) };
        let most = most.min(free.len());
        let Some(free) = free.get_mut(..most) else { return Ok(Taken::All) };
        let direct = match (&self.arriving, self.start == self.end) {
            (Some(it), true) if it.left > 0 => slots
                .get(it.index)
                .and_then(|slot| Some((slot.buf.as_ref()?.region(), it.offset as usize, it.left as usize))),
            _ => None,
        };
        let Some((region, offset, bytes)) = direct else {
            let received = from(&mut [Room::Bytes(free)])?;
            self.end = self.end.saturating_add(received);
            return Ok(Taken::of(received, most));
        };
        let mut rooms = [Room::Memory { region, offset, bytes }, Room::Bytes(free)];
        let received = from(&mut rooms)?;
        let placed = received.min(bytes);
        self.end = self.end.saturating_add(received.saturating_sub(placed));
        if let Some(it) = &mut self.arriving {
            if let Some(digest) = &mut it.digest {
                digest.update_memory(region, offset, placed);
            }
            it.advance(placed);
        }
        Ok(Taken::of(received, bytes.saturating_add(most)))
    }

    /// Whether to take no more than a header besides data.
    fn is_long(&self, slots: &Slots) -> bool {
        slots.expects_long() || self.arriving.as_ref().is_some_and(|it| it.left >= LONG_BYTES)
    }

    /// Moves what is left to the front, when there is no room for a header behind it.
    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.bounce.len().saturating_sub(self.end) < HEAD_BYTES_MAX {
            self.bounce.copy_within(self.start..self.end, 0);
            self.end = self.end.saturating_sub(self.start);
            self.start = 0;
        }
    }

    /// The next thing that has arrived whole. Errors: what is wrong with it.
    #[inline]
    pub(super) fn next(&mut self, slots: &mut Slots) -> Result<Option<Arrival>, Fault> {
        loop {
            if let Some(arrival) = self.place(slots)? {
                return Ok(Some(arrival));
            }
            if self.arriving.is_some() {
                return Ok(None);
            }
            let bytes = self.bounce.get(self.start..self.end).unwrap_or_default();
            let Some((head, length)) = pdu::head(bytes, self.agreed)? else { return Ok(None) };
            let Head::Data { cid, offset, bytes, is_last, is_success } = head else {
                self.start = self.start.saturating_add(length);
                return Ok(Some(Arrival::Head(head)));
            };
            let index = expect_data(slots, cid, offset, bytes, is_last)?;
            self.start = self.start.saturating_add(length);
            let digest = self.agreed.data_digest.then(Digest::new);
            self.arriving = Some(Arriving { index, offset, left: bytes, digest, is_success });
        }
    }

    /// Puts data from the bounce buffer where it belongs; tells when a PDU's data is all there.
    #[inline]
    fn place(&mut self, slots: &mut Slots) -> Result<Option<Arrival>, Fault> {
        let Some(it) = &mut self.arriving else { return Ok(None) };
        if it.left > 0 {
            let bytes = self.bounce.get(self.start..self.end).unwrap_or_default();
            let bytes = bytes.get(..it.left as usize).unwrap_or(bytes);
            let buf = slots.get(it.index).and_then(|slot| slot.buf.as_ref());
            let Some(buf) = buf else {
                return Err(Fault::of(fatal_error::DATA_OUT_OF_RANGE, "data for a command without a buffer"));
            };
            buf.region().write(it.offset as usize, bytes);
            if let Some(digest) = &mut it.digest {
                digest.update(bytes);
            }
            self.start = self.start.saturating_add(bytes.len());
            it.advance(bytes.len());
            if it.left > 0 {
                return Ok(None);
            }
        }
        let mut is_intact = true;
        if let Some(digest) = &it.digest {
            let bytes = self.bounce.get(self.start..self.end).unwrap_or_default();
            let Ok((sent, _)) = u32::read_from_prefix(bytes) else { return Ok(None) };
            is_intact = sent == digest.finish();
            self.start = self.start.saturating_add(self.agreed.data_digest_bytes());
        }
        let arrival = Arrival::Data { index: it.index, is_success: it.is_success, is_intact };
        self.arriving = None;
        Ok(Some(arrival))
    }
}

impl Arriving {
    fn advance(&mut self, bytes: usize) {
        // At most `left`, which is a u32.
        self.offset = self.offset.saturating_add(bytes as u32);
        self.left = self.left.saturating_sub(bytes as u32);
    }
}

/// Checks the header of data against its command, and takes note of it.
fn expect_data(slots: &mut Slots, cid: u16, offset: u32, bytes: u32, is_last: bool) -> Result<u16, Fault> {
    let Some((index, slot)) = slots.of(cid) else {
        return Err(Fault::field(8, format!("data for command {cid:#06x}, which is not outstanding")));
    };
    if bytes == 0 {
        // There is no end to how many of them there could be.
        return Err(Fault::field(16, format!("no data at all, for command {cid:#06x}")));
    }
    let end = slot.received.checked_add(bytes);
    if slot.direction != Direction::ToHost || end.is_none_or(|end| end > slot.bytes) {
        let what = format!("{bytes} bytes of data at {offset} of a transfer of {}", slot.transfer_bytes());
        return Err(Fault::of(fatal_error::DATA_OUT_OF_RANGE, what));
    }
    // The data of a command comes in order, each byte once (3.3.2.2).
    if offset != slot.received {
        let what = format!("data at {offset} of a command, where {} is expected", slot.received);
        return Err(Fault::field(12, what));
    }
    if slot.is_last {
        return Err(Fault::of(fatal_error::SEQUENCE_ERROR, "data of a command after its last"));
    }
    slot.received = end.unwrap_or(slot.received);
    slot.is_last = is_last;
    Ok(index)
}
