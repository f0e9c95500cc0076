//! Who uses a drive: the evidence, and how to end it.

use std::fmt;
use std::path::PathBuf;

/// One reason why a drive must be left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Use {
    /// The block device, controller or device node that is in use: `nvme0n1p1`, `/dev/vfio/7`.
    pub device: String,
    /// In what way.
    pub how: How,
}

/// In what way a device is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum How {
    /// It is mounted, or a layer of an overlay is on it.
    Mounted {
        /// Where.
        at: PathBuf,
    },
    /// The running system needs what is mounted.
    Boots {
        /// Where: `/`, `/boot`, `/boot/efi`, `/efi` or `/usr`.
        at: PathBuf,
    },
    /// It is swapped on, or holds a file that is.
    Swap,
    /// The system hibernates to it.
    Resume,
    /// Another block device is made of it.
    Holder {
        /// That block device, `dm-0`.
        name: String,
        /// What it is: `the LVM volume vg-root`.
        what: String,
        /// The command that takes it apart.
        remedy: String,
    },
    /// It is one of the devices of a mounted file system.
    FileSystem {
        /// Its name: `btrfs 6d0e...`.
        what: String,
    },
    /// Its superblock says that it is part of something that is not assembled now.
    Member {
        /// Of what: `LVM`, `a RAID array (md)`, `ZFS`.
        of: &'static str,
    },
    /// Something in the kernel passes it on: a loop device, an NVMe target.
    PassedOn {
        /// What does: `loop3`.
        by: String,
    },
    /// A process has it open.
    Open {
        /// Its id.
        pid: u32,
        /// Its name.
        program: String,
    },
    /// Something has it for itself alone, and nothing says what.
    Exclusive,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = &self.device;
        let text = match &self.how {
            How::Mounted { at } => format!("{device} is mounted at {}", at.display()),
            How::Boots { at } => format!("{device} is mounted at {}: the system runs from it", at.display()),
            How::Swap => format!("{device} is swapped on"),
            How::Resume => format!("{device} is where the system resumes from"),
            How::Holder { name, what, .. } => format!("{device} is part of {what} ({name})"),
            How::FileSystem { what } => format!("{device} is part of the mounted {what}"),
            How::Member { of } => format!("{device} is part of {of}, says its superblock"),
            How::PassedOn { by } => format!("{device} is used by {by}"),
            How::Open { pid, program } => format!("{device} is open in process {pid} ({program})"),
            How::Exclusive => format!("{device} is held exclusively, by what the kernel does not say"),
        };
        f.write_str(&one_line(&text))
    }
}

/// What others have named (mount points, programs, volumes) as one line without control characters: it is
/// shown on terminals, and in the comments of a dry run, which is a script for a root shell.
pub(super) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

impl Use {
    /// A few words for a table: `/ (nvme0n1p2)`.
    pub fn brief(&self) -> String {
        let what = match &self.how {
            How::Mounted { at } | How::Boots { at } => at.display().to_string(),
            How::Swap => "swap".to_owned(),
            How::Resume => "resume".to_owned(),
            How::Holder { what, .. } => what.strip_prefix("the ").unwrap_or(what).to_owned(),
            How::FileSystem { what } => what.clone(),
            How::Member { of } => of.strip_prefix("a ").unwrap_or(of).to_owned(),
            How::PassedOn { by } => by.clone(),
            How::Open { pid, program } => format!("{program}[{pid}]"),
            How::Exclusive => "exclusive".to_owned(),
        };
        one_line(&format!("{what} ({})", self.device))
    }

    /// What to do before the drive can be taken.
    pub fn remedy(&self) -> String {
        let node = format!("/dev/{}", self.device);
        let text = match &self.how {
            How::Mounted { at } => format!("unmount it first: umount {}", at.display()),
            How::Boots { .. } | How::Resume => "choose another drive".to_owned(),
            How::Swap => format!("switch it off first: swapoff {node}"),
            How::Holder { remedy, .. } => format!("take that apart first: {remedy}"),
            How::FileSystem { .. } => "unmount it first".to_owned(),
            How::Member { of: "LVM" } => format!("if nobody needs it: vgreduce and pvremove {node}"),
            How::Member { of: "ZFS" } => format!("if nobody needs it: zpool labelclear {node}"),
            How::Member { .. } => format!("if nobody needs it: wipefs --all {node}"),
            How::PassedOn { by } => format!("remove {by} first"),
            How::Open { pid, .. } => format!("end process {pid} first"),
            How::Exclusive => "find out what uses it (another container may), and end that first".to_owned(),
        };
        one_line(&text)
    }

    /// True for what may end at any moment, and does not say that the data belongs to somebody.
    pub(super) fn is_opener(&self) -> bool {
        matches!(self.how, How::Open { .. })
    }
}
