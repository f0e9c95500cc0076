//! A block device, a partition or a file, opened for direct I/O, and what the kernel says of it.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{errno, ioctl, nodes};
use crate::Error;

/// Block sizes that can be described: LBADS from 9 on, and not more than anybody has.
const BLOCK_BYTES_MIN: u32 = 512;
const BLOCK_BYTES_MAX: u32 = 1 << 20;

/// What kind of thing it is: what can be asked of it differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    Device,
    File,
}

/// An open block device or file.
#[derive(Debug)]
pub(super) struct BlockFile {
    file: File,
    pub(super) kind: BlockKind,
    /// What errors call it.
    pub(super) shown: String,
    /// Bytes of a block, a power of two.
    pub(super) block_bytes: u32,
    pub(super) blocks: u64,
    /// Why it is open for reading alone, if it is.
    pub(super) read_only: Option<String>,
    pub(super) model: String,
    pub(super) serial: String,
    pub(super) firmware: String,
}

impl BlockFile {
    /// Opens a block device; `sysfs` is its folder there. Nobody else may use it, or it is opened for reading
    /// alone.
    pub(super) fn device(path: &Path, sysfs: &Path) -> Result<Self, Error> {
        let (file, read_only) = open(path, libc::O_EXCL)?;
        let shown = path.display().to_string();
        let asked =
            |e: std::io::Error| errno::explain("inspect", &shown, e.raw_os_error().unwrap_or(libc::EIO));
        let block_bytes = ioctl::block_bytes(file.as_fd()).map_err(asked)?;
        let bytes = ioctl::device_bytes(file.as_fd()).map_err(asked)?;
        let about = |name: &str| described(sysfs, name).unwrap_or_default();
        let (model, serial, firmware) = (about("model"), about("serial"), about("firmware_rev"));
        let model = if model.is_empty() { "Linux block device".to_owned() } else { model };
        Self {
            file,
            kind: BlockKind::Device,
            shown,
            block_bytes,
            blocks: 0,
            read_only,
            model,
            serial,
            firmware,
        }
        .sized(bytes)
    }

    /// Opens a regular file.
    pub(super) fn file(path: &Path) -> Result<Self, Error> {
        let (file, read_only) = open(path, 0)?;
        let shown = path.display().to_string();
        let metadata = file
            .metadata()
            .map_err(|e| errno::explain("inspect", &shown, e.raw_os_error().unwrap_or(libc::EIO)))?;
        let block_bytes = match ioctl::direct_alignment(file.as_fd()) {
            Some(0) => return Err(no_direct_io(&shown)),
            Some(bytes) => bytes.max(BLOCK_BYTES_MIN),
            // An older file system: blocks of 512 bytes, or what the read tells otherwise.
            None => BLOCK_BYTES_MIN,
        };
        let model = "Linux file".to_owned();
        let (serial, firmware) = (String::new(), String::new());
        Self {
            file,
            kind: BlockKind::File,
            shown,
            block_bytes,
            blocks: 0,
            read_only,
            model,
            serial,
            firmware,
        }
        .sized(metadata.len())
    }

    /// Sets the size; bytes behind the last whole block are out of reach.
    fn sized(mut self, bytes: u64) -> Result<Self, Error> {
        let block_bytes = self.block_bytes;
        if !block_bytes.is_power_of_two() || !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block_bytes) {
            return Err(Error::Unsupported(format!("{}: blocks of {block_bytes} bytes", self.shown)));
        }
        self.blocks = bytes / u64::from(block_bytes);
        if self.blocks == 0 {
            return Err(errno::setup(
                format!("{} has {bytes} bytes, and a block has {block_bytes}", self.shown),
                format!("give a file a size: `truncate -s 1G {}`", self.shown),
            ));
        }
        let rest = bytes % u64::from(block_bytes);
        if rest > 0 {
            tracing::warn!(
                path = self.shown,
                rest,
                block_bytes,
                "bytes behind the last whole block are out of reach"
            );
        }
        if let Some(reason) = &self.read_only {
            tracing::warn!(path = self.shown, reason, "open for reading alone");
        }
        Ok(self)
    }

    pub(super) fn block_shift(&self) -> u32 {
        self.block_bytes.trailing_zeros()
    }

    /// An open file as such, for tests of what hangs.
    #[cfg(test)]
    pub(super) fn of(file: File, blocks: u64) -> Self {
        Self {
            file,
            kind: BlockKind::File,
            shown: "test".to_owned(),
            block_bytes: BLOCK_BYTES_MIN,
            blocks,
            read_only: None,
            model: String::new(),
            serial: String::new(),
            firmware: String::new(),
        }
    }
}

impl AsFd for BlockFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Opens for reading and writing, or for reading with the reason why not more.
fn open(path: &Path, flags: i32) -> Result<(File, Option<String>), Error> {
    let shown = path.display().to_string();
    let attempt = |write: bool, flags: i32| {
        let mut options = OpenOptions::new();
        options.read(true).write(write).custom_flags(libc::O_DIRECT | flags);
        options.open(path).map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))
    };
    let explain = |code| match code {
        libc::EINVAL => no_direct_io(&shown),
        code => errno::explain("open", &shown, code),
    };
    let refusal = match attempt(true, flags) {
        Ok(file) => return Ok((file, None)),
        Err(code) => code,
    };
    let reason = match refusal {
        libc::EBUSY => "it is in use: mounted, swapped on, or part of another device; unmount it to write",
        libc::EACCES | libc::EPERM => "there is no permission to write it; run as root to write",
        libc::EROFS => "it is read-only",
        libc::ETXTBSY => "it is a program that runs",
        code => return Err(explain(code)),
    };
    let file = attempt(false, 0).map_err(explain)?;
    Ok((file, Some(reason.to_owned())))
}

fn no_direct_io(shown: &str) -> Error {
    errno::setup(
        format!("the file system of {shown} has no direct I/O (O_DIRECT)"),
        "put the file on one that has: ext4, XFS or btrfs, or tmpfs of Linux 6.6 or newer",
    )
}

/// What sysfs says of the drive that a block device, or the disk a partition is on, belongs to.
fn described(sysfs: &Path, name: &str) -> Option<String> {
    let own = nodes::text(&sysfs.join("device").join(name));
    let real: Option<PathBuf> = std::fs::canonicalize(sysfs).ok();
    own.or_else(|| nodes::text(&real?.parent()?.join("device").join(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        // Where the program is, and not /tmp, which may be a tmpfs without direct I/O.
        tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap()
    }

    #[test]
    fn a_file_is_described_by_what_the_kernel_says_and_its_rest_is_out_of_reach() {
        let folder = folder();
        let path = folder.path().join("disk");
        std::fs::write(&path, vec![0; 10_000]).unwrap();
        let file = BlockFile::file(&path).unwrap();
        assert!(file.block_bytes == 512 || file.block_bytes == 4096, "{}", file.block_bytes);
        assert_eq!(file.blocks, 10_000 / u64::from(file.block_bytes));
        assert_eq!(file.read_only, None);
        assert_eq!(file.kind, BlockKind::File);
    }

    #[test]
    fn an_empty_file_is_an_error_that_says_how_to_give_it_a_size() {
        let folder = folder();
        let path = folder.path().join("empty");
        std::fs::write(&path, b"").unwrap();
        let error = BlockFile::file(&path).unwrap_err().to_string();
        assert!(error.contains("truncate -s 1G"), "{error}");
    }

    #[test]
    fn a_model_is_that_of_the_disk_a_partition_is_on() {
        let folder = folder();
        let disk = folder.path().join("devices/sda");
        std::fs::create_dir_all(disk.join("device")).unwrap();
        std::fs::create_dir_all(disk.join("sda1")).unwrap();
        std::fs::write(disk.join("device/model"), "QEMU HARDDISK   \n").unwrap();
        assert_eq!(described(&disk, "model").as_deref(), Some("QEMU HARDDISK"));
        assert_eq!(described(&disk.join("sda1"), "model").as_deref(), Some("QEMU HARDDISK"));
        assert_eq!(described(&disk, "serial"), None);
    }
}
