//! What a header must be. What is wrong with it is reported for its first field that is wrong (TCP Transport
//! 3.5).

use std::mem::offset_of;

use unvme_fabric::Digest;
use unvme_spec::Sqe;
use unvme_spec::tcp::{
    CAPSULE_CMD_BYTES, CommonHeader, DIGEST_BYTES, DataHeader, IcReq, PDU_FORMAT_VERSION, TermReq, flags,
    pdu_type,
};
use zerocopy::FromBytes;

use super::Fatal;

/// Bytes of a dword: what data is aligned to is counted in them.
const DWORD_BYTES: usize = 4;
/// HPDA and CPDA are 5 bits wide.
const ALIGNMENT_Z_MAX: u8 = 31;

/// Header fields by their offset.
const TYPE: u32 = offset_of!(CommonHeader, pdu_type) as u32;
const FLAGS: u32 = offset_of!(CommonHeader, flags) as u32;
const HLEN: u32 = offset_of!(CommonHeader, hlen) as u32;
const PDO: u32 = offset_of!(CommonHeader, pdo) as u32;
pub(super) const PLEN: u32 = offset_of!(CommonHeader, plen) as u32;

/// What both sides have agreed on by their initialization PDUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Agreed {
    /// Header digests are used.
    pub(super) header_digest: bool,
    /// Data digests are used.
    pub(super) data_digest: bool,
    /// Data of PDUs to the host starts at a multiple of this, less one.
    pub(super) host_alignment_z: u8,
    /// Data of PDUs from the host starts at a multiple of this, less one.
    pub(super) controller_alignment_z: u8,
    /// R2Ts of one command that may be outstanding.
    pub(super) r2ts_max: u32,
}

impl Agreed {
    /// Bytes of a header of `bytes` with its digest.
    pub(super) fn header_bytes(&self, bytes: usize) -> usize {
        bytes.saturating_add(if self.header_digest { DIGEST_BYTES } else { 0 })
    }

    /// Where the data of a PDU to the host is, whose header has `bytes`.
    pub(super) fn data_offset(&self, bytes: usize) -> usize {
        self.header_bytes(bytes).next_multiple_of(alignment(self.host_alignment_z))
    }
}

/// The alignment that a zero-based number of dwords says.
pub(super) fn alignment(dwords_z: u8) -> usize {
    usize::from(dwords_z).saturating_add(1).saturating_mul(DWORD_BYTES)
}

/// A PDU whose common header can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    /// Bytes of the header alone.
    pub(super) hlen: usize,
    /// Bytes before the data: the header, its digest and padding. Without data, the whole PDU.
    pub(super) before_data: usize,
    /// Bytes of the data, its digest excluded; 0 for none.
    pub(super) data_bytes: usize,
    pub(super) is_last: bool,
}

/// PDUs that a host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    IcReq,
    TermReq,
    Capsule,
    Data,
}

impl Kind {
    fn of(pdu: u8) -> Option<Self> {
        Some(match pdu {
            pdu_type::IC_REQ => Self::IcReq,
            pdu_type::H2C_TERM_REQ => Self::TermReq,
            pdu_type::CAPSULE_CMD => Self::Capsule,
            pdu_type::H2C_DATA => Self::Data,
            _ => return None,
        })
    }

    fn hlen(self) -> usize {
        match self {
            Self::IcReq => size_of::<IcReq>(),
            Self::TermReq => size_of::<TermReq>(),
            Self::Capsule => CAPSULE_CMD_BYTES,
            Self::Data => size_of::<DataHeader>(),
        }
    }

    /// Whether digests may belong to it.
    fn has_digests(self) -> bool {
        matches!(self, Self::Capsule | Self::Data)
    }
}

/// What is known of the PDU whose first bytes these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing yet: more bytes are needed.
    Needs,
    /// It is this, and its header is here whole; the digest, if there is one, is right.
    Whole(Shape),
    /// It is wrong, and these many bytes of the header are here to show.
    Wrong { fatal: Fatal, header_bytes: usize },
    /// A Terminate Request; this is its status, 0 when it is malformed: nothing is answered.
    Terminate(u16),
}

/// Looks at the first bytes of a PDU.
pub(super) fn look(bytes: &[u8], agreed: &Agreed) -> Look {
    let Ok((common, _)) = CommonHeader::read_from_prefix(bytes) else {
        return Look::Needs;
    };
    let unknown = |fatal| Look::Wrong { fatal, header_bytes: size_of::<CommonHeader>() };
    let Some(kind) = Kind::of(common.pdu_type) else { return unknown(Fatal::field(TYPE)) };
    let hlen = kind.hlen();
    if kind == Kind::TermReq {
        return terminate(bytes, &common, hlen);
    }
    let shape = shape(&common, kind, agreed);
    if usize::from(common.hlen) != hlen {
        // Nobody knows where such a header ends.
        return unknown(shape.err().unwrap_or(Fatal::field(HLEN)));
    }
    let Some(header) = bytes.get(..hlen) else { return Look::Needs };
    let wrong = |fatal| Look::Wrong { fatal, header_bytes: hlen };
    let shape = match shape {
        Ok(shape) => shape,
        Err(fatal) => return wrong(fatal),
    };
    if bytes.len() < shape.before_data {
        return Look::Needs;
    }
    if kind.has_digests() && agreed.header_digest {
        let received = bytes.get(hlen..).and_then(|rest| rest.first_chunk::<DIGEST_BYTES>());
        let received = received.map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if received != Digest::of(header) {
            return wrong(Fatal::digest(received));
        }
    }
    Look::Whole(shape)
}

/// The shape that a common header describes, its fields checked in their order.
fn shape(common: &CommonHeader, kind: Kind, agreed: &Agreed) -> Result<Shape, Fatal> {
    let hlen = kind.hlen();
    let (header_digest, data_digest) = match kind.has_digests() {
        true => (agreed.header_digest, agreed.data_digest),
        false => (false, false),
    };
    let header_bytes = hlen.saturating_add(if header_digest { DIGEST_BYTES } else { 0 });
    let plen = common.plen.get() as usize;
    let has_data = kind.has_digests() && plen > header_bytes;
    let mut expected = 0;
    if header_digest {
        expected |= flags::HEADER_DIGEST;
    }
    if data_digest && has_data {
        expected |= flags::DATA_DIGEST;
    }
    let may = if kind == Kind::Data { flags::LAST_PDU } else { 0 };
    if common.flags & !may != expected {
        return Err(Fatal::field(FLAGS));
    }
    if usize::from(common.hlen) != hlen {
        return Err(Fatal::field(HLEN));
    }
    let pdo = usize::from(common.pdo);
    let is_last = common.flags & flags::LAST_PDU != 0;
    if !has_data {
        // There is no data for it to point to.
        if pdo != 0 && (!kind.has_digests() || pdo != plen) {
            return Err(Fatal::field(PDO));
        }
        if plen != header_bytes {
            return Err(Fatal::field(PLEN));
        }
        return Ok(Shape { kind, hlen, before_data: header_bytes, data_bytes: 0, is_last });
    }
    if pdo < header_bytes || pdo > plen || !pdo.is_multiple_of(alignment(agreed.controller_alignment_z)) {
        return Err(Fatal::field(PDO));
    }
    let after = if data_digest { DIGEST_BYTES } else { 0 };
    match plen.checked_sub(pdo.saturating_add(after)) {
        Some(data_bytes @ 1..) => Ok(Shape { kind, hlen, before_data: pdo, data_bytes, is_last }),
        _ => Err(Fatal::field(PLEN)),
    }
}

/// A Terminate Request is never answered, right or wrong (TCP Transport 3.5).
fn terminate(bytes: &[u8], common: &CommonHeader, hlen: usize) -> Look {
    if usize::from(common.hlen) != hlen || (common.plen.get() as usize) < hlen {
        return Look::Terminate(0);
    }
    match TermReq::read_from_prefix(bytes) {
        Ok((request, _)) => Look::Terminate(request.fes.get()),
        Err(_) => Look::Needs,
    }
}

/// The parameters of an ICReq.
pub(super) fn ic_req(bytes: &[u8]) -> Result<IcReq, Fatal> {
    // Only called for a header that is whole.
    let Ok((request, _)) = IcReq::read_from_prefix(bytes) else { return Err(Fatal::SEQUENCE) };
    if request.pfv.get() != PDU_FORMAT_VERSION {
        return Err(Fatal::unsupported(offset_of!(IcReq, pfv) as u32));
    }
    if request.hpda_z > ALIGNMENT_Z_MAX {
        return Err(Fatal::field(offset_of!(IcReq, hpda_z) as u32));
    }
    Ok(request)
}

/// The entry of a Command Capsule.
pub(super) fn capsule(bytes: &[u8]) -> Option<Sqe> {
    let entry = bytes.get(size_of::<CommonHeader>()..CAPSULE_CMD_BYTES)?;
    Sqe::read_from_bytes(entry).ok()
}

/// The header of H2CData.
pub(super) fn data(bytes: &[u8]) -> Option<DataHeader> {
    Some(DataHeader::read_from_prefix(bytes).ok()?.0)
}
