//! Bytes and memory on their way out.

use std::collections::VecDeque;
use std::io;

use unvme_bus::Piece;
use unvme_bus::socket::PIECES_MAX;

use crate::fabrics::{SlotId, Staging};

/// Encoded bytes from which on nothing more is encoded: more than one call sends.
const BYTES_ENOUGH: usize = 256 << 10;
/// As many bytes beside data.
const HEADERS_ENOUGH: usize = 8 << 10;
/// Bytes of headers that were sent and still lie before those that were not, from which on they are worth
/// removing.
const SENT_BYTES_MAX: usize = 8 << 10;

/// What is encoded and not sent yet, in its order.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// Headers, responses and digests, one after the other; those before `start` have been sent.
    bytes: Vec<u8>,
    start: usize,
    parts: VecDeque<Part>,
    /// Parts that are pieces of a call: all that have bytes.
    pieces: usize,
    /// Bytes of all parts.
    queued: usize,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    /// The next so many of the bytes.
    Bytes(usize),
    /// Data of a command, by its place in the command's staging memory.
    Data { slot: SlotId, offset: usize, bytes: usize },
    /// All of a command has been sent.
    Done(SlotId),
}

impl Output {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether encoding more would be of no use now.
    pub(super) fn is_enough(&self) -> bool {
        let headers = self.bytes.len().saturating_sub(self.start);
        self.queued >= BYTES_ENOUGH || headers >= HEADERS_ENOUGH || self.pieces >= PIECES_MAX
    }

    /// Adds bytes.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.queued = self.queued.saturating_add(bytes.len());
        if let Some(Part::Bytes(count)) = self.parts.back_mut() {
            *count = count.saturating_add(bytes.len());
        } else if !bytes.is_empty() {
            self.parts.push_back(Part::Bytes(bytes.len()));
            self.pieces = self.pieces.saturating_add(1);
        }
    }

    /// Adds data of a command.
    pub(super) fn data(&mut self, slot: SlotId, offset: usize, bytes: usize) {
        self.queued = self.queued.saturating_add(bytes);
        self.parts.push_back(Part::Data { slot, offset, bytes });
        self.pieces = self.pieces.saturating_add(1);
    }

    /// When all before this has been sent, the command is done.
    pub(super) fn done(&mut self, slot: SlotId) {
        self.parts.push_back(Part::Done(slot));
    }

    /// Has `to` send the first pieces; `memory` says where the data of a command is. There is something to
    /// send.
    pub(super) fn send<'a>(
        &'a self,
        memory: impl Fn(SlotId) -> Option<Staging<'a>>,
        to: impl FnOnce(&[Piece<'a>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut pieces = [Piece::Bytes(&[]); PIECES_MAX];
        let mut count = 0;
        let mut at = self.start;
        for part in &self.parts {
            let piece = match *part {
                Part::Bytes(bytes) => {
                    let end = at.saturating_add(bytes);
                    let piece = self.bytes.get(at..end).map(Piece::Bytes);
                    at = end;
                    piece
                }
                Part::Data { slot, offset, bytes } => memory(slot).map(|staging| Piece::Memory {
                    region: staging.region,
                    offset: staging.offset.saturating_add(offset),
                    bytes,
                }),
                Part::Done(_) => continue,
            };
            let (Some(place), Some(piece)) = (pieces.get_mut(count), piece) else { break };
            *place = piece;
            count = count.saturating_add(1);
        }
        match pieces.get(..count) {
            // The queue has ended and taken the memory back: the PDU can never be finished.
            None | Some([]) => Err(io::ErrorKind::NotFound.into()),
            Some(pieces) => to(pieces),
        }
    }

    /// The first `count` bytes have been sent; `done` is called for the commands that end with them.
    pub(super) fn sent(&mut self, count: usize, mut done: impl FnMut(SlotId)) {
        assert!(count <= self.queued, "{count} bytes sent of {}", self.queued);
        self.queued = self.queued.saturating_sub(count);
        let mut left = count;
        while let Some(part) = self.parts.front_mut() {
            let (Part::Bytes(bytes) | Part::Data { bytes, .. }) = part else {
                if let Some(Part::Done(slot)) = self.parts.pop_front() {
                    done(slot);
                }
                continue;
            };
            let now = left.min(*bytes);
            *bytes = bytes.saturating_sub(now);
            left = left.saturating_sub(now);
            let is_sent = *bytes == 0;
            match part {
                Part::Data { offset, .. } => *offset = offset.saturating_add(now),
                _ => self.start = self.start.saturating_add(now),
            }
            if !is_sent {
                break;
            }
            self.parts.pop_front();
            self.pieces = self.pieces.saturating_sub(1);
        }
        if self.parts.is_empty() {
            self.bytes.clear();
            self.start = 0;
        } else if self.start >= SENT_BYTES_MAX {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }
}
