//! Where each field of an admin command is in its submission queue entry.

use super::{
    AttachmentOperation, CommitAction, CreateIoCq, CreateIoSq, FirmwareCommit, FormatNvm, GetFeatures,
    GetLogPage, Identify, NamespaceAttachment, NamespaceManagement, NamespaceOperation, QueuePriority,
    SecureErase, SetFeatures, opcode,
};
use crate::{Nsid, Qid, Sqe, feature};

pub(super) const fn high(dword: u32) -> u16 {
    (dword >> 16) as u16
}

pub(super) const fn join(high: u16, low: u16) -> u32 {
    (high as u32) << 16 | low as u32
}

/// A queue size in its zero-based field.
const fn size_z(size: u32) -> u16 {
    debug_assert!(size >= 1 && size <= 1 << 16, "a queue has 1 to 65536 entries");
    size.wrapping_sub(1) as u16
}

/// A transfer length in its zero-based field.
pub(super) const fn dwords_z(dwords: u64) -> u32 {
    debug_assert!(dwords >= 1 && dwords <= 1 << 32, "a transfer has 1 to 2^32 dwords");
    dwords.wrapping_sub(1) as u32
}

impl CreateIoSq {
    pub(super) fn parse(sqe: &Sqe) -> Self {
        Self {
            qid: Qid(sqe.cdw10 as u16),
            size: high(sqe.cdw10) as u32 + 1,
            cqid: Qid(high(sqe.cdw11)),
            contiguous: sqe.cdw11 & 1 != 0,
            priority: QueuePriority::from_raw((sqe.cdw11 >> 1) as u8),
        }
    }

    pub(super) fn encode(self) -> Sqe {
        Sqe {
            opcode: opcode::CREATE_IO_SQ,
            cdw10: join(size_z(self.size), self.qid.0),
            cdw11: join(self.cqid.0, self.contiguous as u16 | (self.priority.raw() as u16) << 1),
            ..Sqe::default()
        }
    }
}

impl CreateIoCq {
    pub(super) fn parse(sqe: &Sqe) -> Self {
        Self {
            qid: Qid(sqe.cdw10 as u16),
            size: high(sqe.cdw10) as u32 + 1,
            contiguous: sqe.cdw11 & 1 != 0,
            interrupt: (sqe.cdw11 & 2 != 0).then_some(high(sqe.cdw11)),
        }
    }

    pub(super) fn encode(self) -> Sqe {
        let interrupts_enabled = (self.interrupt.is_some() as u16) << 1;
        Sqe {
            opcode: opcode::CREATE_IO_CQ,
            cdw10: join(size_z(self.size), self.qid.0),
            cdw11: join(self.interrupt.unwrap_or(0), interrupts_enabled | self.contiguous as u16),
            ..Sqe::default()
        }
    }
}

impl GetLogPage {
    pub(super) fn parse(sqe: &Sqe) -> Self {
        Self {
            nsid: Nsid(sqe.nsid),
            lid: sqe.cdw10 as u8,
            lsp: (sqe.cdw10 >> 8) as u8 & 0x7f,
            retain_async_event: sqe.cdw10 & 1 << 15 != 0,
            dwords: join(sqe.cdw11 as u16, high(sqe.cdw10)) as u64 + 1,
            lsi: high(sqe.cdw11),
            offset: sqe.cdw12 as u64 | (sqe.cdw13 as u64) << 32,
            offset_is_index: sqe.cdw14 & 1 << 23 != 0,
            csi: (sqe.cdw14 >> 24) as u8,
            uuid_index: sqe.cdw14 as u8 & 0x7f,
        }
    }

    pub(super) fn encode(self) -> Sqe {
        let numd = dwords_z(self.dwords);
        let parameters =
            self.lid as u16 | (self.lsp as u16 & 0x7f) << 8 | (self.retain_async_event as u16) << 15;
        Sqe {
            opcode: opcode::GET_LOG_PAGE,
            nsid: self.nsid.0,
            cdw10: join(numd as u16, parameters),
            cdw11: join(self.lsi, high(numd)),
            cdw12: self.offset as u32,
            cdw13: (self.offset >> 32) as u32,
            cdw14: self.uuid_index as u32 & 0x7f
                | (self.offset_is_index as u32) << 23
                | (self.csi as u32) << 24,
            ..Sqe::default()
        }
    }
}

impl Identify {
    pub(super) fn parse(sqe: &Sqe) -> Self {
        Self {
            nsid: Nsid(sqe.nsid),
            cns: sqe.cdw10 as u8,
            cntid: high(sqe.cdw10),
            csi: (sqe.cdw11 >> 24) as u8,
            cns_specific: sqe.cdw11 as u16,
            uuid_index: sqe.cdw14 as u8 & 0x7f,
        }
    }

    pub(super) fn encode(self) -> Sqe {
        Sqe {
            opcode: opcode::IDENTIFY,
            nsid: self.nsid.0,
            cdw10: join(self.cntid, self.cns as u16),
            cdw11: (self.csi as u32) << 24 | self.cns_specific as u32,
            cdw14: self.uuid_index as u32 & 0x7f,
            ..Sqe::default()
        }
    }
}

impl SetFeatures {
    pub(super) fn parse(sqe: &Sqe) -> Self {
        Self {
            nsid: Nsid(sqe.nsid),
            fid: sqe.cdw10 as u8,
            save: sqe.cdw10 & 1 << 31 != 0,
            cdw11: sqe.cdw11,
            cdw12: sqe.cdw12,
            cdw13: sqe.cdw13,
            cdw15: sqe.cdw15,
            uuid_index: sqe.cdw14 as u8 & 0x7f,
        }
    }

    pub(super) fn encode(self) -> Sqe {
        Sqe {
            opcode: opcode::SET_FEATURES,
            nsid: self.nsid.0,
            cdw10: self.fid as u32 | (self.save as u32) << 31,
            cdw11: self.cdw11,
            cdw12: self.cdw12,
            cdw13: self.cdw13,
            cdw14: self.uuid_index as u32 & 0x7f,
            cdw15: self.cdw15,
            ..Sqe::default()
        }
    }
}

impl GetFeatures {
    pub(super) fn parse(sqe: &Sqe) -> Self {
        Self {
            nsid: Nsid(sqe.nsid),
            fid: sqe.cdw10 as u8,
            select: feature::Select::from_raw((sqe.cdw10 >> 8) as u8),
            cdw11: sqe.cdw11,
            uuid_index: sqe.cdw14 as u8 & 0x7f,
        }
    }

    pub(super) fn encode(self) -> Sqe {
        Sqe {
            opcode: opcode::GET_FEATURES,
            nsid: self.nsid.0,
            cdw10: self.fid as u32 | (self.select.raw() as u32) << 8,
            cdw11: self.cdw11,
            cdw14: self.uuid_index as u32 & 0x7f,
            ..Sqe::default()
        }
    }
}

impl NamespaceManagement {
    pub(super) fn parse(sqe: &Sqe) -> Self {
        let operation = NamespaceOperation::from_raw(sqe.cdw10 as u8);
        Self { nsid: Nsid(sqe.nsid), operation, csi: (sqe.cdw11 >> 24) as u8 }
    }

    pub(super) fn encode(self) -> Sqe {
        Sqe {
            opcode: opcode::NAMESPACE_MANAGEMENT,
            nsid: self.nsid.0,
            cdw10: self.operation.raw() as u32,
            cdw11: (self.csi as u32) << 24,
            ..Sqe::default()
        }
    }
}

impl NamespaceAttachment {
    pub(super) fn parse(sqe: &Sqe) -> Self {
        Self { nsid: Nsid(sqe.nsid), operation: AttachmentOperation::from_raw(sqe.cdw10 as u8) }
    }

    pub(super) fn encode(self) -> Sqe {
        Sqe {
            opcode: opcode::NAMESPACE_ATTACHMENT,
            nsid: self.nsid.0,
            cdw10: self.operation.raw() as u32,
            ..Sqe::default()
        }
    }
}

impl FirmwareCommit {
    pub(super) fn parse(sqe: &Sqe) -> Self {
        let action = CommitAction::from_raw((sqe.cdw10 >> 3) as u8);
        Self { action, slot: sqe.cdw10 as u8 & 7, boot_partition: sqe.cdw10 & 1 << 31 != 0 }
    }

    pub(super) fn encode(self) -> Sqe {
        Sqe {
            opcode: opcode::FIRMWARE_COMMIT,
            cdw10: self.slot as u32 & 7
                | (self.action.raw() as u32) << 3
                | (self.boot_partition as u32) << 31,
            ..Sqe::default()
        }
    }
}

impl FormatNvm {
    pub(super) fn parse(sqe: &Sqe) -> Self {
        Self {
            nsid: Nsid(sqe.nsid),
            lbaf: sqe.cdw10 as u8 & 0xf | ((sqe.cdw10 >> 12) as u8 & 3) << 4,
            metadata_extended: sqe.cdw10 & 1 << 4 != 0,
            protection: (sqe.cdw10 >> 5) as u8 & 7,
            protection_first: sqe.cdw10 & 1 << 8 != 0,
            secure_erase: SecureErase::from_raw((sqe.cdw10 >> 9) as u8),
        }
    }

    pub(super) fn encode(self) -> Sqe {
        Sqe {
            opcode: opcode::FORMAT_NVM,
            nsid: self.nsid.0,
            cdw10: self.lbaf as u32 & 0xf
                | (self.metadata_extended as u32) << 4
                | (self.protection as u32 & 7) << 5
                | (self.protection_first as u32) << 8
                | (self.secure_erase.raw() as u32) << 9
                | (self.lbaf as u32 >> 4 & 3) << 12,
            ..Sqe::default()
        }
    }
}
