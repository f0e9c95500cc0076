//! Iterators that live over invocations of `kv_nvme`.
//!
//! A device forgets its iterators when its controller is reset, and whoever opens a device resets it. So what
//! an iterator is about and how far it has come is kept in a small file: `iterators.json` in the folder of a
//! virtual slot, or under `iterators` in the home of the virtual devices for one that is reached through a
//! socket. A position is a key: reading goes on behind it in byte order, so that every key that is there all
//! the time is returned once, whatever is stored and deleted between two reads.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use unvme::{PciAddress, Registry};
use unvme_spec::samsung_kv::{ITERATORS_MAX, Prefix, status};

use crate::exit::{Failed, usage};
use crate::guide;
use crate::show::hex;

/// Version of the file.
const VERSION: u32 = 1;
/// Name of the file.
const FILE: &str = "iterators.json";

/// An open iterator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Iterator {
    /// Identifier, 1 to 16.
    pub(super) id: u8,
    /// Keyspace, 0 or 1.
    pub(super) keyspace: u8,
    /// Number of the type: 1 keys, 3 delete.
    #[serde(rename = "type")]
    pub(super) kind: u8,
    /// First four bytes of the keys, as a big-endian number.
    pub(super) prefix: u32,
    /// Bits of it that count.
    pub(super) bitmask: u32,
    /// The last key that was returned, in hexadecimal.
    pub(super) last_key: Option<String>,
    /// There is nothing left to return.
    pub(super) ended: bool,
}

impl Iterator {
    /// Which keys it is about.
    pub(super) fn keys(&self) -> Prefix {
        Prefix { prefix: self.prefix, bitmask: self.bitmask }
    }

    /// Puts it behind a key.
    pub(super) fn move_behind(&mut self, key: &[u8]) {
        self.last_key = Some(hex::text(key));
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    iterators: Vec<Iterator>,
}

/// The iterators of a device, while nobody else changes them.
#[derive(Debug)]
pub(super) struct Iterators {
    path: PathBuf,
    /// Holds the flock.
    _lock: File,
    open: Vec<Iterator>,
}

impl Iterators {
    /// Those of a device by its name.
    pub(super) fn of(device: &str) -> Result<Self> {
        Self::at(path_of(device)?)
    }

    fn at(path: PathBuf) -> Result<Self> {
        let lock_path = path.with_extension("lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .with_context(|| format!("open {}", lock_path.display()))?;
        flock(&lock, FlockOperation::LockExclusive)
            .with_context(|| format!("lock {}", lock_path.display()))?;
        let open = read(&path)?;
        Ok(Self { path, _lock: lock, open })
    }

    /// Opens one with the lowest identifier that is free.
    pub(super) fn open(&mut self, keyspace: u8, kind: u8, keys: Prefix) -> Result<&mut Iterator> {
        if self.open.iter().any(|other| other.keyspace == keyspace && other.keys() == keys) {
            return Err(refused("open-it", status::ITERATE_ALREADY_OPEN));
        }
        let taken = |id: u8| self.open.iter().any(|other| other.id == id);
        let Some(id) = (1..=ITERATORS_MAX).find(|&id| !taken(id)) else {
            return Err(refused("open-it", status::ITERATE_NO_HANDLE));
        };
        let Prefix { prefix, bitmask } = keys;
        self.open.push(Iterator { id, keyspace, kind, prefix, bitmask, last_key: None, ended: false });
        self.get("open-it", id)
    }

    /// The one with an identifier.
    pub(super) fn get(&mut self, what: &str, id: u8) -> Result<&mut Iterator> {
        let found = self.open.iter_mut().find(|iterator| iterator.id == id);
        found.ok_or_else(|| {
            refused(&format!("{what}: iterator {id} is not open"), status::ITERATE_REQUEST_NOT_PROCESSED)
        })
    }

    pub(super) fn close(&mut self, id: u8) -> Result<()> {
        self.get("close-it", id)?;
        self.open.retain(|iterator| iterator.id != id);
        Ok(())
    }

    /// Writes the file, so that it is there whole or not at all.
    pub(super) fn save(&self) -> Result<()> {
        let content = Content { version: VERSION, iterators: self.open.clone() };
        let new = self.path.with_extension("new");
        let mut text = serde_json::to_vec_pretty(&content)?;
        text.push(b'\n');
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options.open(&new).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &self.path)
        });
        written.with_context(|| format!("write {}", self.path.display()))
    }
}

/// What the device would answer.
fn refused(what: &str, status: unvme::Status) -> anyhow::Error {
    Failed(format!("{what}: {}", guide::status_text(status))).into()
}

fn read(path: &Path) -> Result<Vec<Iterator>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e).with_context(|| format!("read {}", path.display())),
    };
    let broken = || format!("{}: remove it to close all iterators", path.display());
    let content: Content = serde_json::from_slice(&text).with_context(broken)?;
    if content.version != VERSION {
        let reason = format!("expected version {VERSION}, found {}", content.version);
        return Err(anyhow::anyhow!(reason)).with_context(broken);
    }
    Ok(content.iterators)
}

/// Where the iterators of a device are kept.
fn path_of(device: &str) -> Result<PathBuf> {
    let registry = Registry::from_environment()?;
    if let Ok(address) = device.parse::<PciAddress>() {
        let slot = registry.find(address).ok_or_else(|| registry.not_found(device))?;
        return Ok(slot.folder().join(FILE));
    }
    if device.starts_with("mem:") {
        return Err(usage(format!("{device}: it ends with this command, and so would an iterator")));
    }
    let folder = registry.home().join("iterators");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    // A name may have any character; its digits have none that means something in a path.
    Ok(folder.join(hex::text(device.as_bytes())).with_extension("json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: Prefix = Prefix { prefix: 0x3030_3030, bitmask: 0xffff_ffff };

    fn keys(prefix: u32) -> Prefix {
        Prefix { prefix, ..KEYS }
    }

    #[test]
    fn iterators_are_there_again_with_their_position() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join(FILE);
        let mut first = Iterators::at(path.clone()).expect("no file yet");
        first.open(0, 1, KEYS).expect("open").move_behind(b"0000a\xff");
        first.open(1, 1, KEYS).expect("the other keyspace");
        first.save().expect("save");
        drop(first);
        let mut again = Iterators::at(path).expect("read");
        let one = again.get("read-it", 1).expect("still open").clone();
        assert_eq!((one.keyspace, one.keys(), one.ended), (0, KEYS, false));
        assert_eq!(one.last_key.as_deref(), Some("3030303061ff"));
        assert_eq!(again.get("read-it", 2).expect("still open").keyspace, 1);
    }

    #[test]
    fn the_lowest_free_identifier_is_taken_and_there_are_sixteen() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let mut all = Iterators::at(folder.path().join(FILE)).expect("no file yet");
        for number in 1..=16 {
            assert_eq!(all.open(0, 1, keys(number)).expect("open").id, number as u8);
        }
        let message = all.open(0, 1, keys(17)).expect_err("none is left").to_string();
        assert!(message.contains("No Iterator Available (0x91)"), "{message}");
        all.close(5).expect("close");
        let message = all.open(0, 1, keys(6)).expect_err("open already").to_string();
        assert!(message.contains("Iterator Is Open Already (0x92)"), "{message}");
        assert_eq!(all.open(0, 1, keys(99)).expect("open").id, 5);
        assert!(all.close(0).is_err() && all.close(17).is_err());
    }

    #[test]
    fn a_file_of_another_version_or_a_broken_one_is_told_by_its_path() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join(FILE);
        for text in ["", "{}", "{\"version\":2,\"iterators\":[]}", "{\"version\":1,\"iterators\":[{}]}"] {
            fs::write(&path, text).expect("write");
            let message = Iterators::at(path.clone()).expect_err(text).to_string();
            assert!(message.contains("iterators.json: remove it to close all"), "{message}");
        }
    }
}
