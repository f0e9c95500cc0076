//! NVMe/TCP: Protocol Data Units (NVMe/TCP Transport Specification 1.1, section 3.6).

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout,
    little_endian::{U16, U32},
};

/// TCP port of NVMe/TCP; the discovery service's is [`DISCOVERY_PORT`].
pub const PORT: u16 = 4420;
/// TCP port of discovery services.
pub const DISCOVERY_PORT: u16 = 8009;
/// PDU format version: PFV of both initialization PDUs.
pub const PDU_FORMAT_VERSION: u16 = 0;
/// Bytes of a header or data digest, CRC32C.
pub const DIGEST_BYTES: usize = 4;
/// Bytes of the in-capsule data that the admin queue takes in any case.
pub const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;
/// Least value of MAXH2CDATA.
pub const MAXH2CDATA_MIN: u32 = 4096;
/// Most bytes of data in a Terminate Request: as much of the header that was wrong.
pub const TERMINATE_DATA_BYTES_MAX: usize = 128;

codes! {
    /// PDU types: byte 0.
    pub mod pdu_type: u8 {
        IC_REQ = 0x00, "Initialize Connection Request, by the host";
        IC_RESP = 0x01, "Initialize Connection Response, by the controller";
        H2C_TERM_REQ = 0x02, "Host to Controller Terminate Connection Request";
        C2H_TERM_REQ = 0x03, "Controller to Host Terminate Connection Request";
        CAPSULE_CMD = 0x04, "Command Capsule, by the host";
        CAPSULE_RESP = 0x05, "Response Capsule, by the controller";
        H2C_DATA = 0x06, "Data, host to controller";
        C2H_DATA = 0x07, "Data, controller to host";
        R2T = 0x09, "Ready to Transfer, by the controller";
    }

    /// Flags: byte 1.
    pub mod flags: u8 {
        HEADER_DIGEST = 1 << 0, "HDGSTF: a header digest follows the header";
        DATA_DIGEST = 1 << 1, "DDGSTF: a data digest follows the data";
        LAST_PDU = 1 << 2, "LAST_PDU: the last data of an R2T, or of a command";
        SUCCESS = 1 << 3, "SUCCESS: the command has succeeded, and no Response Capsule follows";
    }

    /// Digests: DGST of both initialization PDUs.
    pub mod digests: u8 {
        HEADER = 1 << 0, "Header digests are used";
        DATA = 1 << 1, "Data digests are used";
    }
}

/// SGL sub types of this transport are those of [`crate::sgl::sub_type`]: in-capsule data is a Data Block
/// whose address is an offset into the capsule's data; other data is a Transport Data Block with the
/// transport's own sub type.
///
/// Fatal error statuses: FES of Terminate Requests (figures 21 and 24).
pub mod fatal_error {
    /// A field of the header is invalid; the information is its byte offset.
    pub const INVALID_HEADER_FIELD: u16 = 0x01;
    /// The PDU is not expected now.
    pub const SEQUENCE_ERROR: u16 = 0x02;
    /// The header digest is wrong; the information is the one that was received.
    pub const HEADER_DIGEST_ERROR: u16 = 0x03;
    /// Data beyond what was asked for.
    pub const DATA_OUT_OF_RANGE: u16 = 0x04;
    /// From a controller: more data than MAXH2CDATA. From a host: more R2Ts than MAXR2T.
    pub const LIMIT_EXCEEDED: u16 = 0x05;
    /// A parameter is not supported; the information is its byte offset.
    pub const UNSUPPORTED_PARAMETER: u16 = 0x06;

    /// The specification's name; of the two meanings of 05h, the one that `from_controller` sends.
    pub const fn name(status: u16, from_controller: bool) -> Option<&'static str> {
        Some(match status {
            INVALID_HEADER_FIELD => "Invalid PDU Header Field",
            SEQUENCE_ERROR => "PDU Sequence Error",
            HEADER_DIGEST_ERROR => "Header Digest Error",
            DATA_OUT_OF_RANGE => "Data Transfer Out of Range",
            LIMIT_EXCEEDED if from_controller => "Data Transfer Limit Exceeded",
            LIMIT_EXCEEDED => "R2T Limit Exceeded",
            UNSUPPORTED_PARAMETER => "Unsupported Parameter",
            _ => return None,
        })
    }
}

/// Common header: 8 bytes (figure 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CommonHeader {
    /// Type, see [`pdu_type`].
    pub pdu_type: u8,
    /// See [`flags`].
    pub flags: u8,
    /// HLEN: bytes of the header, digests excluded.
    pub hlen: u8,
    /// PDO: where the data is, in bytes from the start of the PDU; 0 when there is none.
    pub pdo: u8,
    /// PLEN: bytes of the PDU, digests included.
    pub plen: U32,
}

layout!(CommonHeader, 8, { pdo: 3, plen: 4 });

/// Initialize Connection Request: 128 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct IcReq {
    /// Common header.
    pub ch: CommonHeader,
    /// PDU format version.
    pub pfv: U16,
    /// HPDA: data of PDUs to the host starts at a multiple of this many dwords, zero-based; 0 to 31.
    pub hpda_z: u8,
    /// Digests the host can do, see [`digests`].
    pub dgst: u8,
    /// MAXR2T: R2Ts the host takes for one command at a time, zero-based.
    pub maxr2t_z: U32,
    _reserved16: [u8; 112],
}

layout!(IcReq, 128, { pfv: 8, dgst: 11, maxr2t_z: 12 });

/// Initialize Connection Response: 128 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct IcResp {
    /// Common header.
    pub ch: CommonHeader,
    /// PDU format version.
    pub pfv: U16,
    /// CPDA: data of PDUs to the controller starts at a multiple of this many dwords, zero-based; 0 to 31.
    pub cpda_z: u8,
    /// Digests that are used, see [`digests`].
    pub dgst: u8,
    /// MAXH2CDATA: most bytes of data in one PDU to the controller, a multiple of 4.
    pub maxh2cdata: U32,
    _reserved16: [u8; 112],
}

layout!(IcResp, 128, { pfv: 8, dgst: 11, maxh2cdata: 12 });

/// Header of a Terminate Request of either side: 24 bytes, then as much of the header that was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct TermReq {
    /// Common header.
    pub ch: CommonHeader,
    /// Fatal error status, see [`fatal_error`].
    pub fes: U16,
    /// Fatal error information.
    pub fei: U32,
    _reserved14: [u8; 10],
}

layout!(TermReq, 24, { fes: 8, fei: 10 });

/// Header of data in either direction: 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DataHeader {
    /// Common header.
    pub ch: CommonHeader,
    /// CCCID: command identifier.
    pub cccid: U16,
    /// TTAG: transfer tag of the R2T; reserved in data to the host.
    pub ttag: U16,
    /// DATAO: where in the command's data this is, in bytes.
    pub datao: U32,
    /// DATAL: bytes of data.
    pub datal: U32,
    _reserved20: [u8; 4],
}

layout!(DataHeader, 24, { cccid: 8, datao: 12, datal: 16 });

/// Ready to Transfer: 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct R2t {
    /// Common header.
    pub ch: CommonHeader,
    /// CCCID: command identifier.
    pub cccid: U16,
    /// TTAG: transfer tag, which the data carries.
    pub ttag: U16,
    /// R2TO: where in the command's data to begin, in bytes.
    pub r2to: U32,
    /// R2TL: bytes of data asked for.
    pub r2tl: U32,
    _reserved20: [u8; 4],
}

layout!(R2t, 24, { cccid: 8, r2to: 12, r2tl: 16 });

/// Bytes of a Command Capsule's header: the common header and an [`crate::Sqe`].
pub const CAPSULE_CMD_BYTES: usize = 72;
/// Bytes of a Response Capsule: the common header and a [`crate::Cqe`].
pub const CAPSULE_RESP_BYTES: usize = 24;
