//! Letting a device go that other threads may still be using.
// UNSAFETY: puts another open file behind a descriptor that is in use.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::MemfdFlags;

/// Offset of revision and class code in configuration space: four bytes that are never all ones in a device
/// that is there.
pub(crate) const CLASS_OFFSET: u64 = 8;

/// Closes the open file behind `fd` and leaves the descriptor valid, with an empty file behind it: whoever
/// uses it at the same time gets an end of file or ENOTTY, and never another file that happened to get the
/// same number.
pub(crate) fn close_behind(fd: &OwnedFd) {
    let empty = match rustix::fs::memfd_create("unvme-gone", MemfdFlags::CLOEXEC) {
        Ok(empty) => empty,
        Err(e) => return tracing::warn!(error = %e, "close a descriptor of a device"),
    };
    // SAFETY: `fd` stays open and stays ours; only what is behind it changes, atomically, and everything that
    // uses it is prepared for errors of the device.
    if unsafe { libc::dup3(empty.as_raw_fd(), fd.as_raw_fd(), libc::O_CLOEXEC) } < 0 {
        tracing::warn!(error = %std::io::Error::last_os_error(), "close a descriptor of a device");
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_descriptor_that_was_closed_behind_its_users_is_an_empty_file() {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let kept = OwnedFd::from(writer.try_clone().expect("another descriptor"));
        drop(writer);
        close_behind(&kept);
        let mut text = Vec::new();
        // The pipe has no writer any more.
        reader.read_to_end(&mut text).expect("read");
        assert!(text.is_empty());
        let mut bytes = [0; 4];
        assert_eq!(rustix::io::pread(&kept, &mut bytes, 0), Ok(0));
    }
}
