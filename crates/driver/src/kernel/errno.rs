//! What the kernel answers instead of an NVMe status.

use unvme_bus::BusError;
use unvme_spec::Status;

use crate::Error;

/// The errors of a command that was passed through.
pub(super) fn passthrough_status(errno: i32) -> Status {
    match errno {
        libc::EPERM | libc::EACCES => Status::OPERATION_DENIED.with_do_not_retry(),
        libc::EINVAL | libc::EOPNOTSUPP | libc::EFAULT => Status::INVALID_FIELD.with_do_not_retry(),
        libc::EAGAIN | libc::EBUSY | libc::ENOMEM => Status::COMMAND_INTERRUPTED,
        libc::ECANCELED | libc::EINTR => Status::ABORTED_BY_HOST,
        libc::EIO => Status::INTERNAL_PATH_ERROR,
        _ if is_gone(errno) => Status::ABORTED_BY_HOST,
        _ => Status::INTERNAL_ERROR,
    }
}

/// The errors of a read or write of a block device or file: what a drive's own status was is not to be had
/// there.
pub(super) fn block_status(errno: i32, is_write: bool) -> Status {
    match errno {
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => Status::CAPACITY_EXCEEDED,
        libc::EROFS | libc::EPERM | libc::EACCES | libc::EBADF | libc::ETXTBSY => {
            Status::NAMESPACE_WRITE_PROTECTED.with_do_not_retry()
        }
        libc::EINVAL => Status::INVALID_FIELD.with_do_not_retry(),
        libc::EOPNOTSUPP => Status::INVALID_OPCODE.with_do_not_retry(),
        libc::EBADE => Status::RESERVATION_CONFLICT,
        libc::EAGAIN | libc::EBUSY | libc::ENOMEM => Status::COMMAND_INTERRUPTED,
        libc::ECANCELED | libc::EINTR | libc::ETIMEDOUT => Status::ABORTED_BY_HOST,
        _ if is_gone(errno) => Status::ABORTED_BY_HOST,
        _ if is_write => Status::WRITE_FAULT,
        _ => Status::UNRECOVERED_READ_ERROR,
    }
}

/// The device is not there any more.
pub(super) fn is_gone(errno: i32) -> bool {
    matches!(errno, libc::ENODEV | libc::ENXIO | libc::ESHUTDOWN)
}

/// An error of the system, with what helps where that is known.
pub(super) fn explain(what: &str, path: &str, errno: i32) -> Error {
    let reason = std::io::Error::from_raw_os_error(errno);
    let setup = |remedy: String| setup(format!("{what} {path}: {reason}"), remedy);
    match errno {
        libc::EPERM | libc::EACCES => setup(format!(
            "run as root, or give yourself the node (`sudo setfacl -m u:$USER:rw {path}`); of the NVMe commands the \
             kernel passes on, all but Identify, reads and writes need CAP_SYS_ADMIN"
        )),
        libc::ENOENT => setup(
            "see which drives there are with `unvme setup status`; `sudo modprobe nvme` loads the kernel's driver"
                .to_owned(),
        ),
        _ if is_gone(errno) => Error::Gone { reason: format!("{what} {path}: {reason}") },
        _ => Error::Bus(BusError::os(format!("{what} {path}"), reason)),
    }
}

/// What is missing or in the way, and what helps.
pub(super) fn setup(problem: impl Into<String>, remedy: impl Into<String>) -> Error {
    Error::Bus(BusError::Setup { problem: problem.into(), remedy: remedy.into() })
}

/// Why a ring could not be made.
pub(super) fn explain_ring(errno: i32) -> Error {
    let reason = std::io::Error::from_raw_os_error(errno);
    let setup = |remedy: &str| setup(format!("set up an io_uring: {reason}"), remedy);
    match errno {
        libc::ENOSYS => setup("this takes a kernel with CONFIG_IO_URING, Linux 5.19 or newer"),
        libc::EINVAL => setup("this takes Linux 5.19 or newer (`uname -r` shows what runs)"),
        libc::EPERM | libc::EACCES => setup(
            "io_uring is switched off here: `sudo sysctl kernel.io_uring_disabled=0`; in a container, its seccomp \
             profile has to allow io_uring_setup",
        ),
        libc::ENOMEM => setup("raise the limit of locked memory: `ulimit -l unlimited`"),
        libc::EMFILE | libc::ENFILE => setup("raise the limit of open files: `ulimit -n 65536`"),
        _ => Error::Bus(BusError::os("set up an io_uring", reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_node_and_the_command_that_helps() {
        let error = explain("open", "/dev/ng0n1", libc::EACCES).to_string();
        assert!(error.starts_with("open /dev/ng0n1: Permission denied"), "{error}");
        assert!(error.contains("sudo setfacl -m u:$USER:rw /dev/ng0n1"), "{error}");
        assert!(explain_ring(libc::EPERM).to_string().contains("sysctl kernel.io_uring_disabled=0"));
        assert!(explain_ring(libc::ENOMEM).to_string().contains("ulimit -l"));
    }

    #[test]
    fn a_device_that_left_is_gone_and_its_commands_are_aborted() {
        for errno in [libc::ENODEV, libc::ENXIO, libc::ESHUTDOWN] {
            assert!(matches!(explain("open", "/dev/ng0n1", errno), Error::Gone { .. }));
            assert_eq!(passthrough_status(errno), Status::ABORTED_BY_HOST);
            assert_eq!(block_status(errno, true), Status::ABORTED_BY_HOST);
        }
    }

    #[test]
    fn a_failed_access_says_in_which_direction() {
        assert_eq!(block_status(libc::EIO, false), Status::UNRECOVERED_READ_ERROR);
        assert_eq!(block_status(libc::EIO, true), Status::WRITE_FAULT);
        assert_eq!(block_status(libc::ENOSPC, true), Status::CAPACITY_EXCEEDED);
        assert_eq!(passthrough_status(libc::EIO), Status::INTERNAL_PATH_ERROR);
    }
}
