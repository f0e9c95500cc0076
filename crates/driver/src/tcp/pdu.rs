//! PDUs, written and understood (NVMe/TCP Transport Specification 1.1, 3.6). Bytes alone: no sockets, no
//! commands.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use unvme_spec::sgl::Descriptor;
use unvme_spec::tcp::{
    CAPSULE_CMD_BYTES, CAPSULE_RESP_BYTES, CommonHeader, DIGEST_BYTES, DataHeader, IcReq, IcResp,
    MAXH2CDATA_MIN, PDU_FORMAT_VERSION, R2t, TERMINATE_DATA_BYTES_MAX, TermReq, digests, fatal_error, flags,
    pdu_type,
};
use unvme_spec::{Cqe, Sqe};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use unvme_fabric::Digest;

pub(crate) const COMMON_BYTES: usize = size_of::<CommonHeader>();
/// Bytes of the header of data, and of an R2T.
const DATA_BYTES: usize = size_of::<DataHeader>();
/// Bytes of both initialization PDUs.
pub(crate) const INIT_BYTES: usize = size_of::<IcResp>();
/// Longest header with its digest that a controller sends after the initialization: a PDO reaches that far.
pub(crate) const HEAD_BYTES_MAX: usize = 256;
/// R2Ts for one command at a time that we take.
pub(crate) const R2TS_MAX: u16 = 4;

/// What both ends have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    /// Data to the controller starts at a multiple of this many bytes, a power of two or not: 4 to 128.
    pub(crate) alignment: u32,
    /// Most bytes of data in one PDU to the controller.
    pub(crate) data_bytes_max: u32,
}

impl Agreement {
    fn head_digest_bytes(self) -> usize {
        if self.header_digest { DIGEST_BYTES } else { 0 }
    }

    /// Bytes of the digest after data.
    pub(crate) fn data_digest_bytes(self) -> usize {
        if self.data_digest { DIGEST_BYTES } else { 0 }
    }

    /// Where data starts behind a header of `bytes`.
    fn data_offset(self, bytes: usize) -> usize {
        let end = bytes.saturating_add(self.head_digest_bytes());
        end.checked_next_multiple_of(self.alignment.max(1) as usize).unwrap_or(end)
    }
}

/// Why a connection cannot go on; what the target is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// FES, see [`fatal_error`].
    pub(crate) status: u16,
    /// FEI.
    pub(crate) information: u32,
    pub(crate) what: String,
}

impl Fault {
    pub(crate) fn field(offset: u32, what: impl Into<String>) -> Self {
        Self { status: fatal_error::INVALID_HEADER_FIELD, information: offset, what: what.into() }
    }

    pub(crate) fn of(status: u16, what: impl Into<String>) -> Self {
        Self { status, information: 0, what: what.into() }
    }
}

/// Our Initialize Connection Request.
pub(crate) fn ic_req(wanted: super::TcpDigests) -> [u8; INIT_BYTES] {
    let mut request = IcReq::new_zeroed();
    request.ch = common(pdu_type::IC_REQ, 0, INIT_BYTES, 0, INIT_BYTES);
    request.pfv = PDU_FORMAT_VERSION.into();
    request.maxr2t_z = u32::from(R2TS_MAX).saturating_sub(1).into();
    request.dgst =
        if wanted.header { digests::HEADER } else { 0 } | if wanted.data { digests::DATA } else { 0 };
    let mut bytes = [0; INIT_BYTES];
    bytes.copy_from_slice(request.as_bytes());
    bytes
}

/// Understands the answer to [`ic_req`]. Errors: what is wrong with it.
pub(crate) fn ic_resp(bytes: &[u8; INIT_BYTES], wanted: super::TcpDigests) -> Result<Agreement, Fault> {
    let response = IcResp::read_from_bytes(bytes)
        .map_err(|_| Fault::of(fatal_error::SEQUENCE_ERROR, "no Initialize Connection Response"))?;
    let ch = response.ch;
    if ch.pdu_type == pdu_type::C2H_TERM_REQ {
        return Err(refused(bytes));
    }
    if ch.pdu_type != pdu_type::IC_RESP {
        let what =
            format!("a PDU of type {:#04x} in place of the Initialize Connection Response", ch.pdu_type);
        return Err(Fault::of(fatal_error::SEQUENCE_ERROR, what));
    }
    if usize::from(ch.hlen) != INIT_BYTES {
        return Err(Fault::field(2, "an Initialize Connection Response of a wrong header length"));
    }
    if ch.plen.get() as usize != INIT_BYTES {
        return Err(Fault::field(4, "an Initialize Connection Response of a wrong length"));
    }
    if response.pfv.get() != PDU_FORMAT_VERSION {
        let what = format!("PDU format version {}", response.pfv.get());
        return Err(Fault { status: fatal_error::UNSUPPORTED_PARAMETER, information: 8, what });
    }
    if response.cpda_z > 31 {
        return Err(Fault::field(10, format!("a data alignment of {} dwords", response.cpda_z)));
    }
    let agreed = |bit: u8| response.dgst & bit != 0;
    if (agreed(digests::HEADER) && !wanted.header) || (agreed(digests::DATA) && !wanted.data) {
        return Err(Fault::field(11, "digests that were not asked for"));
    }
    let data_bytes_max = response.maxh2cdata.get();
    if data_bytes_max < MAXH2CDATA_MIN || !data_bytes_max.is_multiple_of(4) {
        return Err(Fault::field(12, format!("a MAXH2CDATA of {data_bytes_max}")));
    }
    Ok(Agreement {
        header_digest: agreed(digests::HEADER),
        data_digest: agreed(digests::DATA),
        alignment: u32::from(response.cpda_z).saturating_add(1).saturating_mul(4),
        data_bytes_max,
    })
}

/// What comes from a controller after the initialization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    Response(Cqe),
    Data { cid: u16, offset: u32, bytes: u32, is_last: bool, is_success: bool },
    Ask { cid: u16, tag: u16, offset: u32, bytes: u32 },
    Terminate { status: u16, information: u32 },
}

/// The header at the start of `bytes` and how long it is, up to where data starts; `None` while it is not
/// whole. Errors: what is wrong with it.
pub(crate) fn head(bytes: &[u8], agreed: Agreement) -> Result<Option<(Head, usize)>, Fault> {
    let Ok((ch, _)) = CommonHeader::read_from_prefix(bytes) else { return Ok(None) };
    let (hlen, plen) = (usize::from(ch.hlen), ch.plen.get() as usize);
    let expected = match ch.pdu_type {
        pdu_type::CAPSULE_RESP => CAPSULE_RESP_BYTES,
        pdu_type::C2H_DATA | pdu_type::R2T => DATA_BYTES,
        pdu_type::C2H_TERM_REQ => return terminated(bytes, plen),
        other => return Err(Fault::field(0, format!("a PDU of type {other:#04x}"))),
    };
    if hlen != expected {
        return Err(Fault::field(2, format!("a header of {hlen} bytes, where {expected} are expected")));
    }
    let has_digest = ch.flags & flags::HEADER_DIGEST != 0;
    if has_digest != agreed.header_digest {
        return Err(Fault::field(1, "a header digest other than agreed"));
    }
    let end = hlen.saturating_add(agreed.head_digest_bytes());
    let Some(head) = bytes.get(..end) else { return Ok(None) };
    if agreed.header_digest {
        check_digest(head, hlen)?;
    }
    let (parsed, skip) = match ch.pdu_type {
        pdu_type::CAPSULE_RESP => (response(head, plen, end)?, end),
        pdu_type::R2T => (ask(head, plen, end)?, end),
        _ => data(head, ch, agreed, end)?,
    };
    if bytes.len() < skip {
        return Ok(None);
    }
    Ok(Some((parsed, skip)))
}

fn check_digest(head: &[u8], hlen: usize) -> Result<(), Fault> {
    let Some((covered, digest)) = head.split_at_checked(hlen) else { return Ok(()) };
    let sent = u32::read_from_bytes(digest).unwrap_or_default();
    if Digest::of(covered) != sent {
        return Err(Fault {
            status: fatal_error::HEADER_DIGEST_ERROR,
            information: sent,
            what: "a header digest that is wrong".to_owned(),
        });
    }
    Ok(())
}

fn response(head: &[u8], plen: usize, end: usize) -> Result<Head, Fault> {
    let whole = head.get(COMMON_BYTES..).and_then(|entry| Cqe::read_from_prefix(entry).ok());
    match whole {
        Some((entry, _)) if plen == end => Ok(Head::Response(entry)),
        _ => Err(Fault::field(4, format!("a Response Capsule of {plen} bytes"))),
    }
}

fn ask(head: &[u8], plen: usize, end: usize) -> Result<Head, Fault> {
    match R2t::read_from_prefix(head) {
        Ok((it, _)) if plen == end => Ok(Head::Ask {
            cid: it.cccid.get(),
            tag: it.ttag.get(),
            offset: it.r2to.get(),
            bytes: it.r2tl.get(),
        }),
        _ => Err(Fault::field(4, format!("a Ready to Transfer of {plen} bytes"))),
    }
}

fn data(head: &[u8], ch: CommonHeader, agreed: Agreement, end: usize) -> Result<(Head, usize), Fault> {
    let Ok((it, _)) = DataHeader::read_from_prefix(head) else {
        return Err(Fault::field(2, "a header of data that is too short"));
    };
    let start = usize::from(ch.pdo);
    if start < end {
        return Err(Fault::field(3, format!("data at byte {start}, within its header")));
    }
    let has_digest = ch.flags & flags::DATA_DIGEST != 0;
    if has_digest != agreed.data_digest {
        return Err(Fault::field(1, "a data digest other than agreed"));
    }
    let bytes = it.datal.get();
    let length = start.saturating_add(bytes as usize).saturating_add(agreed.data_digest_bytes());
    if ch.plen.get() as usize != length {
        let what = format!("a PDU of {} bytes with {bytes} bytes of data", ch.plen.get());
        return Err(Fault::field(4, what));
    }
    let is_last = ch.flags & flags::LAST_PDU != 0;
    let is_success = ch.flags & flags::SUCCESS != 0;
    if is_success && !is_last {
        return Err(Fault::field(1, "a success with data that is not the last"));
    }
    let parsed = Head::Data { cid: it.cccid.get(), offset: it.datao.get(), bytes, is_last, is_success };
    Ok((parsed, start))
}

/// A Terminate Request has no digests, and the header that was wrong behind it, which is of no use here.
fn terminated(bytes: &[u8], plen: usize) -> Result<Option<(Head, usize)>, Fault> {
    let header = size_of::<TermReq>();
    if plen > header.saturating_add(TERMINATE_DATA_BYTES_MAX) {
        return Err(Fault::field(4, format!("a Terminate Request of {plen} bytes")));
    }
    let Ok((it, _)) = TermReq::read_from_prefix(bytes) else { return Ok(None) };
    Ok(Some((Head::Terminate { status: it.fes.get(), information: it.fei.get() }, header)))
}

fn refused(bytes: &[u8]) -> Fault {
    match TermReq::read_from_prefix(bytes) {
        Ok((it, _)) => Fault::of(fatal_error::SEQUENCE_ERROR, terminate_text(it.fes.get(), it.fei.get())),
        Err(_) => Fault::of(fatal_error::SEQUENCE_ERROR, "the target has ended the connection"),
    }
}

/// What a Terminate Request of the controller says.
pub(crate) fn terminate_text(status: u16, information: u32) -> String {
    let name = fatal_error::name(status, true).unwrap_or("unknown status");
    format!("the target has ended the connection: {name} ({status:#04x}, information {information:#x})")
}

/// Writes a Command Capsule's header for `sqe` with `bytes` of in-capsule data, up to where the data starts.
pub(crate) fn capsule(out: &mut Vec<u8>, sqe: &Sqe, bytes: u32, agreed: Agreement) {
    let start = if bytes > 0 { agreed.data_offset(CAPSULE_CMD_BYTES) } else { 0 };
    let digest = if bytes > 0 { agreed.data_digest_bytes() } else { 0 };
    let length = match bytes {
        0 => CAPSULE_CMD_BYTES.saturating_add(agreed.head_digest_bytes()),
        _ => start.saturating_add(bytes as usize).saturating_add(digest),
    };
    let mut bits = if agreed.header_digest { flags::HEADER_DIGEST } else { 0 };
    if digest > 0 {
        bits |= flags::DATA_DIGEST;
    }
    let ch = common(pdu_type::CAPSULE_CMD, bits, CAPSULE_CMD_BYTES, start, length);
    let first = out.len();
    out.extend_from_slice(ch.as_bytes());
    for word in sqe.to_words() {
        out.extend_from_slice(&word.to_le_bytes());
    }
    close(out, first, start, agreed);
}

/// Writes the header of data to the controller.
pub(crate) fn data_head(out: &mut Vec<u8>, part: &DataPart, agreed: Agreement) {
    let start = agreed.data_offset(DATA_BYTES);
    let length = start.saturating_add(part.bytes as usize).saturating_add(agreed.data_digest_bytes());
    let mut bits = if agreed.header_digest { flags::HEADER_DIGEST } else { 0 };
    if agreed.data_digest {
        bits |= flags::DATA_DIGEST;
    }
    if part.is_last {
        bits |= flags::LAST_PDU;
    }
    let mut it = DataHeader::new_zeroed();
    it.ch = common(pdu_type::H2C_DATA, bits, DATA_BYTES, start, length);
    it.cccid = part.cid.into();
    it.ttag = part.tag.into();
    it.datao = part.offset.into();
    it.datal = part.bytes.into();
    let first = out.len();
    out.extend_from_slice(it.as_bytes());
    close(out, first, start, agreed);
}

/// A part of a command's data, for the controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataPart {
    pub(crate) cid: u16,
    pub(crate) tag: u16,
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
    /// The last of its R2T.
    pub(crate) is_last: bool,
}

/// Our Terminate Request, with the header that was wrong, as much as there is of it.
pub(crate) fn terminate(fault: &Fault, wrong: &[u8]) -> Vec<u8> {
    let wrong = wrong.get(..TERMINATE_DATA_BYTES_MAX).unwrap_or(wrong);
    let header = size_of::<TermReq>();
    let mut it = TermReq::new_zeroed();
    it.ch = common(pdu_type::H2C_TERM_REQ, 0, header, 0, header.saturating_add(wrong.len()));
    it.fes = fault.status.into();
    it.fei = fault.information.into();
    [it.as_bytes(), wrong].concat()
}

/// The digest and the padding of the header that starts at `first`.
fn close(out: &mut Vec<u8>, first: usize, start: usize, agreed: Agreement) {
    if agreed.header_digest {
        let digest = Digest::of(out.get(first..).unwrap_or_default());
        out.extend_from_slice(&digest.to_le_bytes());
    }
    let end = first.saturating_add(start);
    if out.len() < end {
        out.resize(end, 0);
    }
}

fn common(pdu_type: u8, flags: u8, hlen: usize, pdo: usize, plen: usize) -> CommonHeader {
    CommonHeader { pdu_type, flags, hlen: hlen as u8, pdo: pdo as u8, plen: (plen as u32).into() }
}

/// The data pointer of a command: its data is in the capsule, so many bytes from the start of what is there,
/// or travels by itself.
pub(crate) fn data_pointer(bytes: u32, in_capsule: Option<u32>) -> [u64; 2] {
    let descriptor = match in_capsule {
        Some(offset) => Descriptor::in_capsule(offset.into(), bytes),
        None => Descriptor::transport_block(bytes),
    };
    descriptor.to_dptr()
}
