//! I/O Management Receive and I/O Management Send (Base 7.3, 7.4): the state of reclaim unit handles, and
//! having them reference other reclaim units.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::PlacementId;
use crate::Sqe;

choices! {
    /// What I/O Management Receive shall return: MO.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum ReceiveOperation(8 bits) {
        /// Nothing.
        #[default]
        NoAction = 0,
        /// [`RuhStatusHeader`] and a [`RuhStatus`] per placement handle and reclaim group.
        RuhStatus = 1,
    }
}

/// I/O Management Receive (opcode 12h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoManagementReceive {
    /// What to return.
    pub operation: ReceiveOperation,
    /// Management Operation Specific.
    pub specific: u16,
    /// Length of the transfer in dwords, 1 to 2^32.
    pub dwords: u64,
}

impl IoManagementReceive {
    /// Length of the transfer in bytes.
    pub const fn bytes(&self) -> u64 {
        self.dwords.saturating_mul(4)
    }

    pub(crate) fn parse(sqe: &Sqe) -> Self {
        let operation = ReceiveOperation::from_raw(sqe.cdw10 as u8);
        let dwords = u64::from(sqe.cdw11).saturating_add(1);
        Self { operation, specific: (sqe.cdw10 >> 16) as u16, dwords }
    }

    pub(crate) fn encode(self, sqe: &mut Sqe) {
        sqe.cdw10 = u32::from(self.specific) << 16 | u32::from(self.operation.raw());
        sqe.cdw11 = self.dwords.wrapping_sub(1) as u32;
    }
}

/// What I/O Management Send shall do: MO, 8 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendOperation {
    /// 0: nothing.
    #[default]
    NoAction,
    /// 1: each placement identifier of the data gets a new reclaim unit.
    RuhUpdate {
        /// Placement identifiers in the data, 1 to 65536, 2 bytes each.
        placement_ids: u32,
    },
    /// The other values, with Management Operation Specific.
    Reserved(u8, u16),
}

/// I/O Management Send (opcode 1Dh).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoManagementSend {
    /// What to do.
    pub operation: SendOperation,
}

impl IoManagementSend {
    pub(crate) fn parse(sqe: &Sqe) -> Self {
        let specific = (sqe.cdw10 >> 16) as u16;
        let operation = match sqe.cdw10 as u8 {
            0 => SendOperation::NoAction,
            1 => SendOperation::RuhUpdate { placement_ids: u32::from(specific).saturating_add(1) },
            other => SendOperation::Reserved(other, specific),
        };
        Self { operation }
    }

    pub(crate) fn encode(self, sqe: &mut Sqe) {
        let (operation, specific) = match self.operation {
            SendOperation::NoAction => (0, 0),
            SendOperation::RuhUpdate { placement_ids } => (1, placement_ids.wrapping_sub(1) as u16),
            SendOperation::Reserved(other, specific) => (other, specific),
        };
        sqe.cdw10 = u32::from(specific) << 16 | u32::from(operation);
    }
}

/// Header of the Reclaim Unit Handle Status: 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RuhStatusHeader {
    _reserved0: [u8; 14],
    /// Number of Reclaim Unit Handle Status Descriptors.
    pub nruhsd: u16,
}

layout!(RuhStatusHeader, 16, { nruhsd: 14 });

impl RuhStatusHeader {
    /// A header of `nruhsd` descriptors.
    pub const fn new(nruhsd: u16) -> Self {
        Self { _reserved0: [0; 14], nruhsd }
    }
}

/// Reclaim Unit Handle Status Descriptor: 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RuhStatus {
    /// Placement Identifier.
    pub pid: u16,
    /// Reclaim Unit Handle Identifier.
    pub ruhid: u16,
    /// Estimated Active Reclaim Unit Time Remaining in seconds; 0 not reported.
    pub earutr: u32,
    /// Reclaim Unit Available Media Writes: logical blocks that still fit in the reclaim unit.
    pub ruamw: u64,
    _reserved16: [u8; 16],
}

layout!(RuhStatus, 32, { ruhid: 2, earutr: 4, ruamw: 8 });

impl RuhStatus {
    /// The placement identifier.
    pub const fn placement_id(&self) -> PlacementId {
        PlacementId(self.pid)
    }
}

/// How many descriptors the header of a Reclaim Unit Handle Status in `bytes` announces, more than the bytes
/// may hold. `None` when they are too short for the header.
pub fn ruh_status_count(bytes: &[u8]) -> Option<u16> {
    RuhStatusHeader::read_from_prefix(bytes).ok().map(|(header, _)| header.nruhsd)
}

/// The descriptors of a Reclaim Unit Handle Status in `bytes`: as many as the header says and the bytes hold.
/// `None` when they are too short for the header.
pub fn ruh_statuses(bytes: &[u8]) -> Option<impl Iterator<Item = RuhStatus> + '_> {
    let (header, rest) = RuhStatusHeader::read_from_prefix(bytes).ok()?;
    Some(super::entries(rest, usize::from(header.nruhsd)))
}

/// The placement identifiers in the data of a Reclaim Unit Handle Update, two bytes each.
pub fn placement_ids(bytes: &[u8]) -> impl Iterator<Item = PlacementId> + '_ {
    super::entries(bytes, usize::MAX).map(|pid: zerocopy::little_endian::U16| PlacementId(pid.get()))
}
