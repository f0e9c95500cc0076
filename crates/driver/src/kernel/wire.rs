//! Entries for the kernel: what `linux/nvme_ioctl.h` and `linux/blkdev.h` lay down.

use std::time::Duration;

use io_uring::opcode;
use io_uring::squeue::Entry128;
use io_uring::types::Fixed;
use unvme_spec::Sqe;
use zerocopy::{Immutable, IntoBytes};

/// `NVME_URING_CMD_IO`: `_IOWR('N', 0x80, struct nvme_uring_cmd)`.
const NVME_URING_CMD_IO: u32 = 0xc048_4e80;
/// `NVME_URING_CMD_ADMIN`: `_IOWR('N', 0x82, struct nvme_uring_cmd)`.
const NVME_URING_CMD_ADMIN: u32 = 0xc048_4e82;
/// `BLOCK_URING_CMD_DISCARD`: `_IO(0x12, 0)`, Linux 6.12.
const BLOCK_URING_CMD_DISCARD: u32 = 0x1200;

/// Which of a controller's queues a command goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandKind {
    /// An I/O queue, by a namespace's node.
    Io,
    /// The admin queue, by the controller's node.
    Admin,
}

/// Memory of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Data {
    pub(super) address: u64,
    pub(super) bytes: u32,
    /// Number of the registered buffer that holds it.
    pub(super) fixed: Option<u16>,
}

/// `struct nvme_passthru_cmd64`, and in a large entry `struct nvme_uring_cmd`, which ends before `result`: 8
/// bytes that the kernel does not look at there.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct NvmePassthru {
    opcode: u8,
    flags: u8,
    rsvd1: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: [u32; 6],
    timeout_ms: u32,
    rsvd2: u32,
    pub(super) result: u64,
}

const _: () = {
    assert!(size_of::<NvmePassthru>() == 80);
    assert!(std::mem::offset_of!(NvmePassthru, addr) == 24);
    assert!(std::mem::offset_of!(NvmePassthru, timeout_ms) == 64);
    assert!(std::mem::offset_of!(NvmePassthru, result) == 72);
};

impl NvmePassthru {
    #[inline]
    pub(super) fn new(sqe: &Sqe, data: Data, timeout: Duration) -> Self {
        Self {
            opcode: sqe.opcode,
            flags: 0,
            rsvd1: 0,
            nsid: sqe.nsid,
            cdw2: sqe.cdw2,
            cdw3: sqe.cdw3,
            metadata: 0,
            addr: data.address,
            metadata_len: 0,
            data_len: data.bytes,
            cdw10: [sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15],
            timeout_ms: milliseconds(timeout),
            rsvd2: 0,
            result: 0,
        }
    }
}

/// An NVMe command. The kernel fills in command identifier and data pointer, and wants all flags to be 0.
#[inline]
pub(super) fn command(file: u32, kind: CommandKind, sqe: &Sqe, data: Data, timeout: Duration) -> Entry128 {
    let command = NvmePassthru::new(sqe, data, timeout);
    let operation = match kind {
        CommandKind::Io => NVME_URING_CMD_IO,
        CommandKind::Admin => NVME_URING_CMD_ADMIN,
    };
    opcode::UringCmd80::new(Fixed(file), operation)
        .cmd(zerocopy::transmute!(command))
        .buf_index(data.fixed)
        .build()
}

/// A limit for the kernel, to whom 0 is its own default.
fn milliseconds(limit: Duration) -> u32 {
    u32::try_from(limit.as_millis()).unwrap_or(u32::MAX).max(1)
}

pub(super) fn read(file: u32, offset: u64, data: Data) -> Entry128 {
    let address = data.address as *mut u8;
    match data.fixed {
        Some(number) => {
            opcode::ReadFixed::new(Fixed(file), address, data.bytes, number).offset(offset).build().into()
        }
        None => opcode::Read::new(Fixed(file), address, data.bytes).offset(offset).build().into(),
    }
}

pub(super) fn write(file: u32, offset: u64, data: Data, sync: bool) -> Entry128 {
    let address = data.address as *const u8;
    let flags = if sync { libc::RWF_DSYNC } else { 0 };
    match data.fixed {
        Some(number) => opcode::WriteFixed::new(Fixed(file), address, data.bytes, number)
            .offset(offset)
            .rw_flags(flags)
            .build()
            .into(),
        None => {
            opcode::Write::new(Fixed(file), address, data.bytes).offset(offset).rw_flags(flags).build().into()
        }
    }
}

/// Start in `addr`, length in `addr3`, which is where a command's own bytes begin.
pub(super) fn discard(file: u32, offset: u64, bytes: u64) -> Entry128 {
    let mut own = [0; 80];
    own[..8].copy_from_slice(&bytes.to_le_bytes());
    opcode::UringCmd80::new(Fixed(file), BLOCK_URING_CMD_DISCARD).cmd(own).addr(Some(offset)).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_the_layout_of_the_kernels_header() {
        let sqe = Sqe {
            opcode: 0x01,
            nsid: 2,
            cdw2: 3,
            cdw3: 4,
            cdw10: 10,
            cdw11: 11,
            cdw12: 12,
            cdw13: 13,
            cdw14: 14,
            cdw15: 15,
            ..Sqe::default()
        };
        let data = Data { address: 0x7f00_0000_1000, bytes: 4096, fixed: Some(5) };
        let command = NvmePassthru::new(&sqe, data, Duration::from_secs(30));
        assert_eq!(
            command.as_bytes()[..72],
            [
                1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, // opcode, nsid, cdw2, cdw3
                0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0x7f, 0, 0, // metadata, addr
                0, 0, 0, 0, 0, 0x10, 0, 0, 10, 0, 0, 0, 11, 0, 0, 0, // lengths, cdw10, cdw11
                12, 0, 0, 0, 13, 0, 0, 0, 14, 0, 0, 0, 15, 0, 0, 0, // cdw12 to cdw15
                0x30, 0x75, 0, 0, 0, 0, 0, 0, // 30000 ms
            ]
        );
    }

    #[test]
    fn a_limit_of_nothing_is_not_the_kernels_default() {
        assert_eq!(milliseconds(Duration::ZERO), 1);
        assert_eq!(milliseconds(Duration::MAX), u32::MAX);
    }
}
