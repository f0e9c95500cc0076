//! PDUs from the host.

use std::io;
use std::mem::offset_of;

use unvme_bus::Room;
use unvme_fabric::Digest;
use unvme_spec::Status;
use unvme_spec::admin::opcode;
use unvme_spec::tcp::{DIGEST_BYTES, DataHeader, digests};

use super::header::{self, Agreed, Kind, Look, Shape};
use super::input::Direct;
use super::reply::Reply;
use super::{Connection, Ending, Fatal, Phase};
use crate::fabrics::{self, Begun, FabricsQueue, SlotId, Staging};

/// Data on its way that is worth receiving without passing through the input buffer.
const DIRECT_BYTES_MIN: u64 = 8 << 10;

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Receiving {
    Header,
    /// Data of a PDU, and its digest.
    Data(Incoming),
}

/// Data of a PDU that is arriving.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    cargo: Cargo,
    /// Bytes of data in the PDU.
    bytes: usize,
    /// Of them, how many are there.
    done: usize,
}

/// What data is.
#[derive(Clone, Copy, Debug)]
enum Cargo {
    /// All that a command has in its capsule.
    Capsule(SlotId),
    /// Data that was asked for, by its transfer tag, and where in the command's data it begins.
    Transfer { slot: SlotId, ttag: u16, at: usize },
    /// Nobody wants it.
    Nothing,
}

impl Incoming {
    /// Staging memory that the data goes to, and where in it the first byte of this PDU is.
    fn place<'q>(&self, queue: &'q FabricsQueue) -> Option<(Staging<'q>, usize)> {
        match self.cargo {
            Cargo::Capsule(slot) => Some((queue.capsule_memory(slot)?, 0)),
            Cargo::Transfer { slot, at, .. } => Some((queue.memory(slot)?, at)),
            Cargo::Nothing => None,
        }
    }

    fn is_transfer(&self) -> bool {
        matches!(self.cargo, Cargo::Transfer { .. })
    }

    fn left(&self) -> usize {
        self.bytes.saturating_sub(self.done)
    }
}

impl Connection {
    /// Receives once and understands what that was.
    pub(super) fn receive_pdus(
        &mut self,
        from: impl FnOnce(&mut [Room<'_>]) -> io::Result<usize>,
    ) -> Result<usize, io::ErrorKind> {
        let direct = match &self.receiving {
            Receiving::Data(incoming) => incoming.place(&self.queue).map(|(staging, at)| {
                let offset = staging.offset.saturating_add(at).saturating_add(incoming.done);
                Direct { region: staging.region, offset, bytes: incoming.left() }
            }),
            Receiving::Header => None,
        };
        let now = direct.as_ref().map_or(0, |direct| direct.bytes) as u64;
        let is_beside_data = self.transfers.expected_bytes().saturating_sub(now) >= DIRECT_BYTES_MIN;
        let (placed, received) = self.input.fill(direct, is_beside_data, from)?;
        if let Receiving::Data(incoming) = &mut self.receiving {
            incoming.done = incoming.done.saturating_add(placed);
            if incoming.is_transfer() {
                self.watch.data.moved(placed);
            }
        }
        let queue = &mut self.queue;
        self.input.grow(|bytes| queue.pay(bytes as u64));
        self.understand();
        Ok(received)
    }

    /// Goes through what has been received, until more is needed or the output is full.
    pub(super) fn understand(&mut self) {
        self.round.catch_up();
        while self.is_open() && !self.is_full() && !self.is_paused {
            // Data that has begun to arrive goes on: what is received next may go to its place directly.
            if self.round.is_full() && matches!(self.receiving, Receiving::Header) {
                return self.round.fall_behind(!self.input.is_empty());
            }
            if !self.step() {
                return;
            }
        }
    }

    /// One header, or the data of one PDU as far as it is there; false when more bytes are needed.
    fn step(&mut self) -> bool {
        match self.receiving {
            Receiving::Header => self.header(),
            Receiving::Data(incoming) => self.data(incoming),
        }
    }

    fn header(&mut self) -> bool {
        match header::look(self.input.bytes(), &self.agreed) {
            Look::Needs => return false,
            Look::Terminate(status) => {
                self.replies.clear();
                self.enter(Phase::Ended(Ending::TerminatedByHost(status)));
            }
            Look::Wrong { fatal, header_bytes } => self.terminate(fatal, header_bytes),
            Look::Whole(shape) => {
                self.watch.input.progress();
                let result = match (self.phase, shape.kind) {
                    (Phase::Greeting, Kind::IcReq) => self.greet(),
                    // Data that was asked for may be behind it.
                    (Phase::Running, Kind::Capsule) if self.is_draining => Ok(Cargo::Nothing),
                    (Phase::Running, Kind::Capsule) => self.capsule(&shape),
                    (Phase::Running, Kind::Data) => self.transfer(&shape),
                    _ => Err(Fatal::SEQUENCE),
                };
                match result {
                    Ok(_) if self.is_paused => return false,
                    Ok(cargo) => {
                        self.input.take(shape.before_data);
                        if shape.data_bytes > 0 {
                            let incoming = Incoming { cargo, bytes: shape.data_bytes, done: 0 };
                            self.receiving = Receiving::Data(incoming);
                        }
                    }
                    Err(fatal) => self.terminate(fatal, shape.hlen),
                }
            }
        }
        true
    }

    /// An ICReq: what is used from now on is what both sides can do.
    fn greet(&mut self) -> Result<Cargo, Fatal> {
        let request = header::ic_req(self.input.bytes())?;
        let agreed = Agreed {
            header_digest: request.dgst & digests::HEADER != 0,
            data_digest: request.dgst & digests::DATA != 0,
            host_alignment_z: request.hpda_z,
            controller_alignment_z: self.limits.cpda_z,
            r2ts_max: request.maxr2t_z.get().saturating_add(1).min(self.limits.r2ts_max),
        };
        self.answer_greeting(&agreed);
        self.agreed = agreed;
        self.enter(Phase::Running);
        Ok(Cargo::Nothing)
    }

    fn capsule(&mut self, shape: &Shape) -> Result<Cargo, Fatal> {
        if shape.data_bytes > self.queue.in_capsule_bytes() as usize {
            return Err(Fatal::field(header::PLEN));
        }
        let Some(sqe) = header::capsule(self.input.bytes()) else { return Err(Fatal::SEQUENCE) };
        match self.queue.begin(&sqe) {
            Begun::Run(slot) => {
                self.round.add(self.queue.memory(slot).map_or(0, |staging| staging.bytes));
                // On other queues it is another command.
                if sqe.opcode == opcode::ASYNC_EVENT_REQUEST && self.queue.queue_id() == Some(0) {
                    self.event_requests.push(slot);
                }
            }
            Begun::Waits(slot) => self.transfers.expect(slot, sqe.cid),
            Begun::NeedsData(wanted) => {
                self.transfers.expect(wanted.slot, sqe.cid);
                if !wanted.in_capsule {
                    self.ask_for(wanted);
                } else if wanted.bytes as usize == shape.data_bytes {
                    return Ok(Cargo::Capsule(wanted.slot));
                } else {
                    let status = Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry();
                    self.queue.fail(wanted.slot, status);
                }
            }
            Begun::Full => self.is_paused = true,
            Begun::Refused(cqe) => self.replies.push_back(Reply::Refusal(cqe)),
            Begun::Fatal(fabrics::Fatal::TooManyCommands) => return Err(Fatal::SEQUENCE),
            Begun::Fatal(_) => self.close(Ending::Queue),
        }
        Ok(Cargo::Nothing)
    }

    /// H2CData: it has to be the data that was asked for, in order.
    fn transfer(&mut self, shape: &Shape) -> Result<Cargo, Fatal> {
        let Some(header) = header::data(self.input.bytes()) else { return Err(Fatal::SEQUENCE) };
        let bytes = header.datal.get();
        if bytes > self.limits.h2c_bytes_max {
            return Err(Fatal::LIMIT);
        }
        let ttag = header.ttag.get();
        let Some(expected) = self.transfers.get(ttag) else {
            return Err(Fatal::field(offset_of!(DataHeader, ttag) as u32));
        };
        if expected.cid != header.cccid.get() {
            return Err(Fatal::field(offset_of!(DataHeader, cccid) as u32));
        }
        if bytes == 0 || bytes as usize != shape.data_bytes {
            return Err(Fatal::field(offset_of!(DataHeader, datal) as u32));
        }
        let at = header.datao.get();
        let end = at.checked_add(bytes).filter(|end| at >= expected.start && *end <= expected.end);
        let Some(end) = end else { return Err(Fatal::OUT_OF_RANGE) };
        if at != expected.next || shape.is_last != (end == expected.end) {
            return Err(Fatal::SEQUENCE);
        }
        Ok(Cargo::Transfer { slot: expected.slot, ttag, at: at as usize })
    }

    /// Data of a PDU, as far as it is in the input; then its digest.
    fn data(&mut self, mut incoming: Incoming) -> bool {
        let digest_bytes = if self.agreed.data_digest { DIGEST_BYTES } else { 0 };
        let bytes = self.input.bytes();
        let count = bytes.len().min(incoming.left());
        if count > 0 {
            if let (Some((staging, at)), Some(bytes)) = (incoming.place(&self.queue), bytes.get(..count)) {
                let offset = staging.offset.saturating_add(at).saturating_add(incoming.done);
                staging.region.write(offset, bytes);
            }
            self.input.take(count);
            incoming.done = incoming.done.saturating_add(count);
            if incoming.is_transfer() {
                self.watch.data.moved(count);
            }
            self.receiving = Receiving::Data(incoming);
        }
        if incoming.left() > 0 || self.input.bytes().len() < digest_bytes {
            return false;
        }
        let is_intact = digest_bytes == 0 || self.is_intact(&incoming);
        self.input.take(digest_bytes);
        self.receiving = Receiving::Header;
        self.watch.input.progress();
        self.arrived(&incoming, is_intact);
        true
    }

    /// Whether the digest that comes next is that of the data. What nobody wants is not looked at.
    fn is_intact(&self, incoming: &Incoming) -> bool {
        let Some((staging, at)) = incoming.place(&self.queue) else { return true };
        let Some(received) = self.input.bytes().first_chunk() else { return false };
        let mut digest = Digest::new();
        digest.update_memory(staging.region, staging.offset.saturating_add(at), incoming.bytes);
        digest.finish() == u32::from_le_bytes(*received)
    }

    fn arrived(&mut self, incoming: &Incoming, is_intact: bool) {
        match incoming.cargo {
            Cargo::Capsule(slot) if is_intact => {
                self.round.add(incoming.bytes);
                self.queue.data_arrived(slot);
                // When that was its key, its data may be still to come.
                self.ask_for_wanted();
            }
            // A data digest error is not fatal: the command fails, the host may send it again (TCP Transport
            // 3.3.1.1).
            Cargo::Capsule(slot) => self.queue.fail(slot, Status::TRANSIENT_TRANSPORT_ERROR),
            Cargo::Transfer { ttag, .. } => self.transferred(ttag, incoming.bytes, is_intact),
            Cargo::Nothing => {}
        }
    }
}
