//! Regular files, opened without waiting: a FIFO in the place of one would keep its reader until a writer
//! comes, and a server could neither read its rules again nor end.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file for reading.
///
/// # Errors
/// Those of `open(2)`; [`io::ErrorKind::InvalidInput`] for anything but a regular file.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    // Of what was opened: the path may lead elsewhere by now. Reads of regular files ignore O_NONBLOCK.
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => {
            let reason = "it is no regular file: a FIFO, a device or a directory";
            Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_is_refused_without_waiting_for_a_writer_and_so_is_a_device() {
        let folder = tempfile::tempdir().expect("a folder");
        let fifo = folder.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).expect("a FIFO");
        for path in [fifo.as_path(), Path::new("/dev/zero"), folder.path()] {
            assert_eq!(open(path).expect_err("refused").kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
        let file = folder.path().join("file");
        assert_eq!(open(&file).expect_err("missing").kind(), io::ErrorKind::NotFound);
        std::fs::write(&file, "text").expect("a file");
        assert_eq!(io::read_to_string(open(&file).expect("opened")).expect("read"), "text");
    }
}
