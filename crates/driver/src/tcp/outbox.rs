//! What waits to be sent: headers written one after another, and parts of commands' buffers between them.

use std::collections::VecDeque;
use std::io;

use unvme_bus::socket::{PIECES_MAX, Piece};
use unvme_fabric::{Digest, Stream};
use unvme_spec::samsung_kv;

use super::pdu::{self, Agreement, DataPart};
use super::slots::{LongKey, Slots, Stage};

/// Header bytes that are written at most before they are sent.
const HEADERS_BYTES_MAX: usize = 64 << 10;
/// Segments that one PDU takes: its header, its data, its digest.
const PDU_SEGMENTS: usize = 3;

/// A run of bytes to send.
#[derive(Clone, Copy, Debug)]
enum Segment {
    /// The next bytes of the headers.
    Head(usize),
    /// A part of a command's buffer.
    Data { index: u16, offset: u32, bytes: u32 },
}

/// Data that the target has asked for.
#[derive(Clone, Copy, Debug)]
struct Answer {
    index: u16,
    tag: u16,
    offset: u32,
    left: u32,
}

/// Nothing is allocated once it has been used for a while: what waits here is bounded by the slots of the
/// queue.
pub(super) struct Outbox {
    /// Commands that wait to be written, in the order they were submitted.
    pub(super) waiting: VecDeque<u16>,
    answers: VecDeque<Answer>,
    heads: Vec<u8>,
    /// Bytes of `heads` that have been sent.
    heads_sent: usize,
    segments: VecDeque<Segment>,
    /// Bytes of the first segment that have been sent.
    segment_sent: usize,
    pub(super) agreed: Agreement,
    /// Most bytes of data that travel with their command.
    pub(super) in_capsule_bytes: u32,
    /// Command slots whose last piece has left.
    pub(super) emptied: Vec<u16>,
}

impl Outbox {
    /// For `depth` commands, which may have keys beside their entries.
    pub(super) fn new(depth: u16, long_keys: bool) -> Self {
        let head_bytes = if long_keys { 128 + size_of::<LongKey>() } else { 128 };
        Self {
            waiting: VecDeque::with_capacity(depth.into()),
            answers: VecDeque::with_capacity(depth.into()),
            heads: Vec::with_capacity(HEADERS_BYTES_MAX.min(usize::from(depth) * head_bytes)),
            heads_sent: 0,
            segments: VecDeque::with_capacity(PIECES_MAX),
            segment_sent: 0,
            agreed: Agreement {
                header_digest: false,
                data_digest: false,
                alignment: 4,
                data_bytes_max: 4096,
            },
            in_capsule_bytes: 0,
            emptied: Vec::with_capacity(PIECES_MAX),
        }
    }

    /// Forgets everything but the commands that wait, for a new connection.
    pub(super) fn clear(&mut self) {
        self.answers.clear();
        self.heads.clear();
        self.heads_sent = 0;
        self.segments.clear();
        self.segment_sent = 0;
        self.emptied.clear();
    }

    /// Whether anything waits to be sent.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.waiting.is_empty() && self.answers.is_empty()
    }

    /// Remembers data that the target has asked for.
    pub(super) fn answer(&mut self, index: u16, tag: u16, offset: u32, bytes: u32) {
        self.answers.push_back(Answer { index, tag, offset, left: bytes });
    }

    /// Forgets data that was asked for by a command that has ended all the same.
    pub(super) fn forget(&mut self, index: u16) {
        self.answers.retain(|answer| answer.index != index);
    }

    /// Sends what the connection takes; true when nothing is left. Errors: the connection is broken.
    #[inline]
    pub(super) fn flush(&mut self, stream: &mut Stream, slots: &mut Slots) -> io::Result<bool> {
        loop {
            self.write(slots);
            if self.segments.is_empty() {
                return Ok(true);
            }
            match self.send(stream, slots) {
                Ok(sent) => self.sent(sent, slots),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
    }

    /// Writes what waits, as far as one call can send it. Data that was asked for and commands take turns.
    #[inline]
    fn write(&mut self, slots: &mut Slots) {
        while self.segments.len() + PDU_SEGMENTS <= PIECES_MAX && self.heads.len() < HEADERS_BYTES_MAX {
            let answered = !self.answers.is_empty() && self.write_data(slots);
            let Some(index) = self.waiting.pop_front() else {
                if answered {
                    continue;
                }
                return;
            };
            self.write_command(index, slots);
        }
    }

    #[inline]
    fn write_command(&mut self, index: u16, slots: &mut Slots) {
        let Some(slot) = slots.get_mut(index) else { return };
        let key_bytes = slot.key_bytes();
        let in_capsule = if slot.is_in_capsule(self.in_capsule_bytes) { slot.bytes } else { 0 };
        slot.stage = Stage::Sent;
        slot.asked = in_capsule;
        let mut sqe = slot.sqe;
        sqe.set_sgl();
        sqe.dptr = pdu::data_pointer(slot.bytes, (in_capsule > 0).then_some(key_bytes));
        if key_bytes > 0 {
            samsung_kv::set_key_in_capsule(&mut sqe);
        }
        let before = self.heads.len();
        pdu::capsule(&mut self.heads, &sqe, key_bytes + in_capsule, self.agreed);
        let key = slots.long_key(index);
        if let Some(key) = key {
            self.heads.extend_from_slice(key);
        }
        let mut digest = self.digest();
        if let (Some(digest), Some(key)) = (&mut digest, key) {
            digest.update(key);
        }
        self.push_head(before);
        if in_capsule > 0 {
            self.push_data(index, 0, in_capsule, slots, digest);
        } else if key.is_some() {
            self.push_digest(digest);
        }
    }

    /// The digest of the data of a PDU, when there are any.
    #[inline]
    fn digest(&self) -> Option<Digest> {
        self.agreed.data_digest.then(Digest::new)
    }

    fn push_digest(&mut self, digest: Option<Digest>) {
        let Some(digest) = digest else { return };
        let before = self.heads.len();
        self.heads.extend_from_slice(&digest.finish().to_le_bytes());
        self.push_head(before);
    }

    /// Writes one PDU of data; false when there was none after all.
    fn write_data(&mut self, slots: &mut Slots) -> bool {
        let Some(answer) = self.answers.pop_front() else { return false };
        let Some(slot) = slots.get_mut(answer.index) else { return false };
        let bytes = answer.left.min(self.agreed.data_bytes_max);
        let left = answer.left - bytes;
        let part =
            DataPart { cid: slot.sqe.cid, tag: answer.tag, offset: answer.offset, bytes, is_last: left == 0 };
        if left == 0 {
            slot.asks = slot.asks.saturating_sub(1);
        } else {
            self.answers.push_back(Answer { offset: answer.offset + bytes, left, ..answer });
        }
        let before = self.heads.len();
        pdu::data_head(&mut self.heads, &part, self.agreed);
        self.push_head(before);
        self.push_data(answer.index, answer.offset, bytes, slots, self.digest());
        true
    }

    #[inline]
    fn push_head(&mut self, before: usize) {
        let bytes = self.heads.len() - before;
        match self.segments.back_mut() {
            Some(Segment::Head(run)) => *run += bytes,
            _ => self.segments.push_back(Segment::Head(bytes)),
        }
    }

    /// A part of a command's buffer, and the digest of what is before it in the PDU.
    fn push_data(
        &mut self,
        index: u16,
        offset: u32,
        bytes: u32,
        slots: &mut Slots,
        mut digest: Option<Digest>,
    ) {
        let Some(slot) = slots.get_mut(index) else { return };
        slot.unsent += 1;
        self.segments.push_back(Segment::Data { index, offset, bytes });
        if let (Some(digest), Some(buf)) = (&mut digest, &slot.buf) {
            digest.update_memory(buf.region(), offset as usize, bytes as usize);
        }
        self.push_digest(digest);
    }

    /// As if a connection had taken all that waits.
    pub(super) fn pretend_sent(&mut self, slots: &mut Slots) {
        self.write(slots);
        self.sent(usize::MAX, slots);
    }

    fn send(&mut self, stream: &mut Stream, slots: &Slots) -> io::Result<usize> {
        let mut pieces = [Piece::Bytes(&[]); PIECES_MAX];
        let mut at = self.heads_sent;
        let mut skip = self.segment_sent;
        let mut count = 0;
        for (piece, segment) in pieces.iter_mut().zip(&self.segments) {
            *piece = match *segment {
                Segment::Head(bytes) => {
                    let from = at;
                    // What has been sent of the first segment is behind `heads_sent` already.
                    at += bytes - skip;
                    Piece::Bytes(&self.heads[from..at])
                }
                Segment::Data { index, offset, bytes } => {
                    let buf = slots.get(index).and_then(|slot| slot.buf.as_ref());
                    // A slot keeps its buffer for as long as a part of it waits here.
                    let region = buf.expect("the buffer of a command in flight").region();
                    Piece::Memory { region, offset: offset as usize + skip, bytes: bytes as usize - skip }
                }
            };
            skip = 0;
            count += 1;
        }
        stream.send(&pieces[..count])
    }

    /// Takes note of what has been sent.
    fn sent(&mut self, mut bytes: usize, slots: &mut Slots) {
        while let Some(segment) = self.segments.front() {
            let length = match segment {
                Segment::Head(length) => *length,
                Segment::Data { bytes, .. } => *bytes as usize,
            };
            let now = bytes.min(length - self.segment_sent);
            bytes -= now;
            self.segment_sent += now;
            if matches!(segment, Segment::Head(_)) {
                self.heads_sent += now;
            }
            if self.segment_sent < length {
                break;
            }
            if let Segment::Data { index, .. } = *segment
                && let Some(slot) = slots.get_mut(index)
            {
                slot.unsent = slot.unsent.saturating_sub(1);
                if slot.unsent == 0 && slot.stage == Stage::Ended {
                    self.emptied.push(index);
                }
            }
            self.segments.pop_front();
            self.segment_sent = 0;
        }
        if self.segments.is_empty() {
            self.heads.clear();
            self.heads_sent = 0;
        }
    }
}
