//! PDUs to the host.

use unvme_fabric::Digest;
use unvme_spec::tcp::{
    CAPSULE_RESP_BYTES, CommonHeader, DIGEST_BYTES, DataHeader, IcResp, PDU_FORMAT_VERSION, R2t,
    TERMINATE_DATA_BYTES_MAX, TermReq, digests, flags, pdu_type,
};
use unvme_spec::{Cqe, Status};
use zerocopy::{FromZeros, IntoBytes};

use super::header::Agreed;
use super::transfer::Part;
use super::{Connection, Ending, Fatal};
use crate::fabrics::{Finished, SlotId};

/// Zeroes before the data of a PDU: less than the largest alignment, 32 dwords.
const PADDING: [u8; 128] = [0; 128];
/// Replies that are not encoded yet and that no entry of the queue has paid for, above which nothing more is
/// read. Commands that are refused have no slot which would bound them.
const REPLIES_BESIDE: usize = 64;

/// What is to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    /// An R2T.
    Ready { ttag: u16, part: Part },
    /// The response to a command that has no slot.
    Refusal(Cqe),
    /// The data of a command from byte `sent` on, and its response.
    Completion { finished: Finished, sent: u32 },
}

impl Connection {
    /// Whether the host has to take output before it is listened to again.
    pub(super) fn is_full(&self) -> bool {
        self.replies.len() >= self.queue.commands_max().saturating_add(REPLIES_BESIDE)
    }

    /// Turns replies into bytes, as many as one call sends.
    pub(super) fn encode(&mut self) {
        while !self.output.is_enough()
            && let Some(reply) = self.replies.pop_front()
        {
            match reply {
                Reply::Ready { ttag, part } => self.encode_r2t(ttag, part),
                Reply::Refusal(cqe) => self.encode_response(&cqe),
                Reply::Completion { finished, sent } => self.encode_completion(finished, sent),
            }
        }
    }

    /// Adds a header with its length and its digest.
    fn encode_header(&mut self, header: &[u8]) {
        self.output.bytes(header);
        if self.agreed.header_digest {
            self.output.bytes(&Digest::of(header).to_le_bytes());
        }
    }

    /// The common header of a PDU without data.
    fn common(&self, pdu_type: u8, header_bytes: usize) -> CommonHeader {
        CommonHeader {
            pdu_type,
            flags: if self.agreed.header_digest { flags::HEADER_DIGEST } else { 0 },
            hlen: header_bytes as u8,
            pdo: 0,
            plen: (self.agreed.header_bytes(header_bytes) as u32).into(),
        }
    }

    fn encode_r2t(&mut self, ttag: u16, part: Part) {
        let mut r2t = R2t::new_zeroed();
        r2t.ch = self.common(pdu_type::R2T, size_of::<R2t>());
        r2t.cccid = part.cid.into();
        r2t.ttag = ttag.into();
        r2t.r2to = part.start.into();
        r2t.r2tl = part.end.saturating_sub(part.start).into();
        self.encode_header(r2t.as_bytes());
    }

    fn encode_response(&mut self, cqe: &Cqe) {
        let mut header = [0; CAPSULE_RESP_BYTES];
        let ch = self.common(pdu_type::CAPSULE_RESP, CAPSULE_RESP_BYTES);
        let (first, second) = header.split_at_mut(size_of::<CommonHeader>());
        first.copy_from_slice(ch.as_bytes());
        second.copy_from_slice(cqe.as_bytes());
        self.encode_header(&header);
    }

    /// The next data PDU of a command; after its last one, or without any, its response.
    fn encode_completion(&mut self, finished: Finished, sent: u32) {
        let Finished { slot, cqe, bytes, is_plain } = finished;
        if bytes == 0 {
            self.encode_response(&cqe);
            // Nothing of the command is looked at any more.
            return self.queue.release(slot);
        }
        let now = bytes.saturating_sub(sent).min(self.limits.c2h_bytes_max);
        let after = sent.saturating_add(now);
        let mut marks = 0;
        if after == bytes {
            marks |= flags::LAST_PDU;
            // Success is said with the data when the response would say nothing else (TCP Transport 3.3.2.1).
            if is_plain && cqe.status() == Status::SUCCESS && cqe.result() == 0 {
                marks |= flags::SUCCESS;
            }
        }
        self.encode_data(slot, cqe.cid, sent, now, marks);
        if after < bytes {
            // Behind what others have to send: a command with much data does not keep them from it.
            return self.replies.push_back(Reply::Completion { finished, sent: after });
        }
        if marks & flags::SUCCESS == 0 {
            self.encode_response(&cqe);
        }
        self.output.done(slot);
    }

    /// A PDU with `bytes` of a command's data from byte `at` on.
    fn encode_data(&mut self, slot: SlotId, cid: u16, at: u32, bytes: u32, marks: u8) {
        let header_bytes = size_of::<DataHeader>();
        let pdo = self.agreed.data_offset(header_bytes);
        let digest_bytes = if self.agreed.data_digest { DIGEST_BYTES } else { 0 };
        let mut header = DataHeader::new_zeroed();
        header.ch = self.common(pdu_type::C2H_DATA, header_bytes);
        header.ch.flags |= marks;
        if self.agreed.data_digest {
            header.ch.flags |= flags::DATA_DIGEST;
        }
        // At most 128: the largest alignment, see `ALIGNMENT_Z_MAX`.
        header.ch.pdo = pdo as u8;
        header.ch.plen = bytes.saturating_add(pdo.saturating_add(digest_bytes) as u32).into();
        header.cccid = cid.into();
        header.datao = at.into();
        header.datal = bytes.into();
        self.encode_header(header.as_bytes());
        let padding = pdo.saturating_sub(self.agreed.header_bytes(header_bytes));
        self.output.bytes(PADDING.get(..padding).unwrap_or_default());
        self.output.data(slot, at as usize, bytes as usize);
        if self.agreed.data_digest
            && let Some(staging) = self.queue.memory(slot)
        {
            let mut digest = Digest::new();
            digest.update_memory(staging.region, staging.offset.saturating_add(at as usize), bytes as usize);
            self.output.bytes(&digest.finish().to_le_bytes());
        }
    }

    /// The answer to an ICReq, which has no digest yet.
    pub(super) fn answer_greeting(&mut self, agreed: &Agreed) {
        let mut response = IcResp::new_zeroed();
        response.ch = self.common(pdu_type::IC_RESP, size_of::<IcResp>());
        response.pfv = PDU_FORMAT_VERSION.into();
        response.cpda_z = agreed.controller_alignment_z;
        if agreed.header_digest {
            response.dgst |= digests::HEADER;
        }
        if agreed.data_digest {
            response.dgst |= digests::DATA;
        }
        response.maxh2cdata = self.limits.h2c_bytes_max.into();
        self.output.bytes(response.as_bytes());
    }

    /// Tells the host what was wrong, with the first `header_bytes` of the input to show it, and closes.
    pub(super) fn terminate(&mut self, fatal: Fatal, header_bytes: usize) {
        let header_bytes = header_bytes.min(TERMINATE_DATA_BYTES_MAX);
        let mut request = TermReq::new_zeroed();
        request.ch.pdu_type = pdu_type::C2H_TERM_REQ;
        request.ch.hlen = size_of::<TermReq>() as u8;
        request.ch.plen = (size_of::<TermReq>().saturating_add(header_bytes) as u32).into();
        request.fes = fatal.status.into();
        request.fei = fatal.information.into();
        // Whatever is not encoded is not sent. What is encoded is whole PDUs.
        self.replies.clear();
        self.output.bytes(request.as_bytes());
        self.output.bytes(self.input.bytes().get(..header_bytes).unwrap_or_default());
        self.close(Ending::Fatal(fatal));
    }
}
