//! Questions to the kernel about an open file, and admin commands through it.
// UNSAFETY: ioctl and statx take pointers; std and rustix have no call for these.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use unvme_bus::DmaBuf;
use unvme_spec::Sqe;

use super::wire::{Data, NvmePassthru};

/// `NVME_IOCTL_ID`: `_IO('N', 0x40)`.
const NVME_IOCTL_ID: libc::Ioctl = 0x4e40;
/// `NVME_IOCTL_RESET`: `_IO('N', 0x44)`.
const NVME_IOCTL_RESET: libc::Ioctl = 0x4e44;
/// `NVME_IOCTL_SUBSYS_RESET`: `_IO('N', 0x45)`.
const NVME_IOCTL_SUBSYS_RESET: libc::Ioctl = 0x4e45;
/// `NVME_IOCTL_ADMIN64_CMD`: `_IOWR('N', 0x47, struct nvme_passthru_cmd64)`.
const NVME_IOCTL_ADMIN64_CMD: libc::Ioctl = 0xc050_4e47_u32 as libc::Ioctl;
/// `BLKSSZGET`: `_IO(0x12, 104)`.
const BLKSSZGET: libc::Ioctl = 0x1268;
/// `BLKGETSIZE64`: `_IOR(0x12, 114, size_t)`.
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272_u32 as libc::Ioctl;

/// Passes the answer on, or the system's error.
fn checked(answer: libc::c_int) -> io::Result<u32> {
    u32::try_from(answer).map_err(|_| io::Error::last_os_error())
}

/// Identifier of the namespace that `node` is of.
pub(super) fn namespace_id(node: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: the request takes no argument.
    checked(unsafe { libc::ioctl(node.as_raw_fd(), NVME_IOCTL_ID) })
}

/// Controller level reset.
pub(super) fn reset(node: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the request takes no argument.
    checked(unsafe { libc::ioctl(node.as_raw_fd(), NVME_IOCTL_RESET) }).map(drop)
}

/// NVM subsystem reset.
pub(super) fn subsystem_reset(node: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the request takes no argument.
    checked(unsafe { libc::ioctl(node.as_raw_fd(), NVME_IOCTL_SUBSYS_RESET) }).map(drop)
}

/// Sends an admin command and waits as long as the kernel does: raw status and result. Panics: when the
/// command moves more bytes than the buffer has.
pub(super) fn admin(
    node: BorrowedFd<'_>,
    sqe: &Sqe,
    data: Option<(&mut DmaBuf, usize)>,
    timeout: Duration,
) -> io::Result<(u16, u64)> {
    let data = match data {
        Some((buf, bytes)) if bytes > 0 => {
            assert!(bytes <= buf.len(), "{bytes} bytes of a buffer of {}", buf.len());
            Data { address: buf.region().as_ptr() as u64, bytes: bytes as u32, fixed: None }
        }
        _ => Data::default(),
    };
    let mut command = NvmePassthru::new(sqe, data, timeout);
    // SAFETY: the request reads and writes one `nvme_passthru_cmd64`, and at most `data_len` bytes at `addr`,
    // which are the buffer's; both are borrowed until the call has returned, and the kernel is done with them
    // then.
    let answer = unsafe { libc::ioctl(node.as_raw_fd(), NVME_IOCTL_ADMIN64_CMD, &raw mut command) };
    Ok((checked(answer)? as u16, command.result))
}

/// Bytes of a block device's logical block.
pub(super) fn block_bytes(device: BorrowedFd<'_>) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one int.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), BLKSSZGET, &raw mut bytes) })?;
    u32::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Size of a block device in bytes.
pub(super) fn device_bytes(device: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: u64 = 0;
    // SAFETY: the request writes one 64-bit number.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), BLKGETSIZE64, &raw mut bytes) })?;
    Ok(bytes)
}

/// What offsets and lengths of direct I/O on a file must be multiples of; `None` when the file system does
/// not say, which it can from Linux 6.1 on. 0 when there is no direct I/O.
pub(super) fn direct_alignment(file: BorrowedFd<'_>) -> Option<u32> {
    let mut answer = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is an empty string with its NUL, and the call writes one `statx`.
    let done = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            answer.as_mut_ptr(),
        )
    };
    if done != 0 {
        return None;
    }
    // SAFETY: all its fields are numbers, for which zeroes are valid; the call has filled it in.
    let answer = unsafe { answer.assume_init() };
    (answer.stx_mask & libc::STATX_DIOALIGN != 0).then_some(answer.stx_dio_offset_align)
}
