//! The trees of the kernel that setup looks at and writes to.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use unvme_bus::pci::PciBus;

/// The most that is read of a file of the kernel's. The largest are lists of mounts and of modules.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// Where `/sys`, `/proc`, `/dev`, `/etc`, `/run` and `/lib/modules` are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    root: PathBuf,
    /// Where `/sys` is, when it is not below the root.
    sys: Option<PathBuf>,
    /// False for a copy, whose device nodes are files.
    is_live: bool,
}

impl System {
    /// This machine.
    pub fn live() -> Self {
        Self { root: "/".into(), sys: None, is_live: true }
    }

    /// A copy in a folder. Its device nodes are files, and its `/sys` does nothing when it is written.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), sys: None, is_live: false }
    }

    /// A copy of `/sys` alone: all else of the machine is missing.
    pub fn at_sys(sys: impl Into<PathBuf>) -> Self {
        let sys = sys.into();
        // No file has this name, so that all else is absent.
        Self { root: sys.join(".no-root"), sys: Some(sys), is_live: false }
    }

    /// The copy that [`unvme::SYSTEM_ROOT_VARIABLE`] names, else this machine.
    pub fn from_environment() -> Self {
        unvme::system_root().map_or_else(Self::live, Self::at)
    }

    /// The PCI bus.
    pub fn bus(&self) -> PciBus {
        PciBus::at(self.path("/sys")).with_dev(self.path("/dev"))
    }

    /// False for a copy in a folder.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// Where something is that the machine has at an absolute path.
    pub(crate) fn path(&self, absolute: &str) -> PathBuf {
        if let (Some(sys), Some(below)) = (&self.sys, absolute.strip_prefix("/sys")) {
            return sys.join(below.trim_start_matches('/'));
        }
        self.root.join(absolute.trim_start_matches('/'))
    }

    /// The text of a small file without blanks around it; `None` where there is no such file. Errors:
    /// [`unvme::Error::Io`] for a file that exists and cannot be read.
    pub fn file(&self, absolute: &str) -> unvme::Result<Option<String>> {
        let path = self.path(absolute);
        match try_text_of(&path) {
            Ok(text) => Ok(Some(text)),
            Err(source) if is_absent(&source) => Ok(None),
            Err(source) => Err(unvme::Error::Io { what: format!("read {}", path.display()), source }),
        }
    }

    /// The names in a directory in natural order; none where there is no such directory. Errors:
    /// [`unvme::Error::Io`] for a directory that exists and cannot be listed.
    pub fn entries(&self, absolute: &str) -> unvme::Result<Vec<String>> {
        let path = self.path(absolute);
        let listed = fs::read_dir(&path).and_then(|entries| {
            let name = |entry: std::io::Result<fs::DirEntry>| Ok(entry?.file_name().into_string().ok());
            entries.filter_map(|entry| name(entry).transpose()).collect::<std::io::Result<Vec<_>>>()
        });
        match listed {
            Ok(mut names) => {
                names.sort_by_key(|name| natural(name));
                Ok(names)
            }
            Err(source) if is_absent(&source) => Ok(Vec::new()),
            Err(source) => Err(unvme::Error::Io { what: format!("list {}", path.display()), source }),
        }
    }

    /// The text of a small file without blanks around it; `None` when it cannot be read.
    pub(super) fn text(&self, absolute: &str) -> Option<String> {
        text_of(&self.path(absolute))
    }

    /// A number in a file; `None` when it cannot be read or is none.
    pub(super) fn number(&self, absolute: &str) -> Option<u64> {
        self.text(absolute)?.parse().ok()
    }

    /// The names in a folder in order; none when it cannot be read.
    pub(super) fn names(&self, absolute: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(absolute)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_by_key(|name| natural(name));
        names
    }

    /// True when something is at an absolute path.
    pub(super) fn has(&self, absolute: &str) -> bool {
        self.path(absolute).exists()
    }
}

/// The text of a file, without blanks around it; what is not UTF-8 is replaced.
fn text_of(path: &Path) -> Option<String> {
    try_text_of(path).ok()
}

fn try_text_of(path: &Path) -> std::io::Result<String> {
    // A FIFO in a copy of a system would block.
    if !fs::metadata(path)?.is_file() {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is no file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(TEXT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// True when nothing is at a path: a component of it is missing or no directory.
fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// A key that sorts `nvme2` before `nvme10`.
fn natural(name: &str) -> Vec<(u64, String)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let word = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (letters, tail) = rest.split_at(word);
        let digits = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (number, tail) = tail.split_at(digits);
        parts.push((number.parse().unwrap_or(0), letters.to_owned()));
        rest = tail;
    }
    // Letters decide before the number that follows them.
    parts.into_iter().flat_map(|(number, letters)| [(0, letters), (number, String::new())]).collect()
}
