//! What is mounted, and what is swapped on.

use std::path::{Path, PathBuf};

use super::System;

/// Fields of a line of `mountinfo` before the optional ones (`proc_pid_mountinfo(5)`).
const FIELDS_BEFORE_OPTIONAL: usize = 6;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// `major:minor` of the file system; of a block device, except where a file system has several (btrfs).
    pub(super) device: String,
    /// Where it is.
    pub(super) at: PathBuf,
    /// What was mounted: a path below `/dev`, or any word.
    pub(super) source: PathBuf,
    /// Folders it is made of, for an overlay.
    layers: Vec<PathBuf>,
}

/// The mounts of this process's mount namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct Mounts(Vec<Mount>);

impl Mounts {
    /// Reads `/proc/self/mountinfo`. Lines that make no sense are left out.
    pub(super) fn read(system: &System) -> Self {
        let text = system.text("/proc/self/mountinfo").unwrap_or_default();
        Self(text.lines().filter_map(Mount::parse).collect())
    }

    /// Where a block device is mounted: one of this number, or of this name. With it come overlays that have
    /// a layer on it.
    pub(super) fn of(&self, number: &str, name: &str) -> Vec<PathBuf> {
        let is_ours = |mount: &Mount| {
            mount.device == number
                || (mount.source.starts_with("/dev")
                    && mount.source.file_name().is_some_and(|file| file == name))
        };
        let mut found = Vec::new();
        for mount in &self.0 {
            let below = |layer: &PathBuf| self.over(layer, mount).is_some_and(is_ours);
            if is_ours(mount) || mount.layers.iter().any(below) {
                found.push(mount.at.clone());
            }
        }
        found.dedup();
        found
    }

    /// The mount that a path is on, other than `but`.
    fn over(&self, path: &Path, but: &Mount) -> Option<&Mount> {
        let candidates = self.0.iter().filter(|mount| *mount != but && path.starts_with(&mount.at));
        // The last of two at one place hides the other.
        candidates.max_by_key(|mount| mount.at.components().count())
    }
}

impl Mount {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (device, at) = (words.get(2)?, words.get(4)?);
        let rest = words.get(FIELDS_BEFORE_OPTIONAL..)?;
        let dash = rest.iter().position(|word| *word == "-")?;
        let (kind, source) = (rest.get(dash + 1)?, rest.get(dash + 2)?);
        let options = rest.get(dash + 3).filter(|_| *kind == "overlay").copied().unwrap_or_default();
        let layers = options
            .split(',')
            .filter_map(|option| option.split_once('='))
            .filter(|(key, _)| matches!(*key, "lowerdir" | "upperdir" | "lowerdir+" | "datadir+"))
            .flat_map(|(_, folders)| folders.split(':').filter(|folder| !folder.is_empty()).map(unescaped))
            .collect();
        Some(Self { device: (*device).to_owned(), at: unescaped(at), source: unescaped(source), layers })
    }
}

/// Paths of the block devices and files that are swapped on, from `/proc/swaps`.
pub(super) fn swaps(system: &System) -> Vec<PathBuf> {
    let text = system.text("/proc/swaps").unwrap_or_default();
    text.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().next()).map(unescaped).collect()
}

/// A path in which blanks, tabs, line ends and backslashes are `\` and three octal digits.
fn unescaped(word: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let octal =
            tail.get(..3).filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_number_by_name_and_through_overlays() {
        let lines = "\
21 1 0:20 / / rw - overlay root rw,lowerdir=/lower,upperdir=/rw/u,workdir=/rw/w
22 21 259:1 / /lower ro,relatime shared:1 master:2 - ext4 /dev/nvme0n1p1 ro
23 21 0:45 /sub /with\\040blank rw - btrfs /dev/nvme1n1 rw
24 21 0:46 / /rw rw - tmpfs nvme1n1 rw
nonsense
1 2 3
25 21 0:47 / /x rw shared:1";
        let mounts = Mounts(lines.lines().filter_map(Mount::parse).collect());
        assert_eq!(mounts.of("259:1", "nvme0n1p1"), [Path::new("/"), Path::new("/lower")]);
        assert_eq!(mounts.of("259:9", "nvme1n1"), [Path::new("/with blank")]);
        assert_eq!(mounts.of("259:7", "nvme0n1"), [] as [&Path; 0]);
    }
}
