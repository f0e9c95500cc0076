//! The SDK's log file.
//!
//! Level 1 has errors, 2 also opening and closing, 3 also every operation. A line is the time since the Epoch
//! in seconds, the level, the device, and what happened.

use std::fmt;
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::config::SdkConfig;

/// Mode of the folder that the default log file is in: its owner's alone.
const FOLDER_MODE: u32 = 0o700;

/// What a line is about: the least log level that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Topic {
    Error = 1,
    Lifecycle = 2,
    Operation = 3,
}

/// The log file of a session, or nothing when it logs nothing.
#[derive(Debug)]
pub(super) struct Journal {
    file: Option<File>,
    level: u8,
}

impl Journal {
    /// Opens the file to add to it, and makes it, in the default folder with the folder, when `level` is not
    /// 0. Errors: why that was not possible.
    pub(super) fn open(path: &Path, level: u8) -> io::Result<Self> {
        let file = match level {
            0 => None,
            _ => Some(open_to_append(path)?),
        };
        Ok(Self { file, level })
    }

    /// A journal that has nothing.
    pub(super) fn none() -> Self {
        Self { file: None, level: 0 }
    }

    /// Whether lines on `topic` are written: for callers that would have to put them together first.
    #[inline]
    pub(super) fn has(&self, topic: Topic) -> bool {
        self.level >= topic as u8
    }

    /// Writes a line. A file that cannot be written to is no reason to fail an operation.
    #[cold]
    pub(super) fn write(&self, topic: Topic, device: &str, what: fmt::Arguments<'_>) {
        let Some(mut file) = self.file.as_ref().filter(|_| self.has(topic)) else { return };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = match topic {
            Topic::Error => "error",
            Topic::Lifecycle => "info",
            Topic::Operation => "io",
        };
        // One write for each line, so that those of several threads and processes do not mix.
        let line = format!("{}.{:06} {name} {device}: {what}\n", now.as_secs(), now.subsec_micros());
        let _ = file.write_all(line.as_bytes());
    }
}

/// Opens a log file. Where anybody can make files, a symbolic link of somebody else may lead to any file of
/// this user: such a link is not followed, and no link to a file of somebody else is. Errors: the system's,
/// and [`ErrorKind::PermissionDenied`] for such a link.
fn open_to_append(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.append(true).create(true);
    if path == SdkConfig::default().log_file
        && let Some(folder) = path.parent()
    {
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
    }
    match options.clone().custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path) {
        Err(e) if Errno::from_io_error(&e) == Some(Errno::LOOP) => {}
        opened => return opened,
    }
    let me = geteuid().as_raw();
    let refused = |what: &str, owner: u32| {
        let reason = format!("it is a symbolic link {what} user {owner}, and is not followed");
        Err(io::Error::new(ErrorKind::PermissionDenied, reason))
    };
    let owner = path.symlink_metadata()?.uid();
    if owner != me && owner != 0 {
        return refused("of", owner);
    }
    let file = options.open(path)?;
    let found = file.metadata()?;
    // A terminal or a pipe is whoever's.
    if found.is_file() && found.uid() != me {
        return refused("to a file of", found.uid());
    }
    Ok(file)
}
