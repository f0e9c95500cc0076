//! The SDK's log file.
//!
//! Level 1 has errors, 2 also opening and closing, 3 also every operation. A line is the time since the Epoch
//! in seconds, the level, the device, and what happened.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

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
    /// Opens the file to add to it, when `level` is not 0. Errors: why that was not possible.
    pub(super) fn open(path: &Path, level: u8) -> std::io::Result<Self> {
        let file = match level {
            0 => None,
            _ => Some(File::options().append(true).create(true).open(path)?),
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
